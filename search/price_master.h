// SPDX-License-Identifier: Apache-2.0
// PriceMaster: the best prices of a few limits, as far as the points met so far tell.
//
// Problem: every point costs something and exceeds each limit by something (less than 0: room). The
// least of cost + sum of price x excess over all points there are is a lower bound on the cost of
// any that exceeds nothing; which prices give the best bound? Idea: cutting planes (Kelley 1960),
// seen from the other side column generation (Dantzig and Wolfe 1960): the points met so far give
// an upper bound on every such bound; its maximiser is the next to try, and the point found there
// cuts it off. The mixture of points that belongs to the maximum meets all limits on average; it
// tells what good solutions are made of.
//
// A step is kept inside a box around the best prices (Marsten, Hogan and Blankenship 1975): far
// away, few points say nothing. Few limits and points: one dense tableau, primal simplex with the
// prices read off the slack columns.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace meshplan {

class PriceMaster {
 public:
  /// `excess`: per limit. Points of equal length.
  void add_point(double cost, std::vector<double> excess);
  std::size_t points() const { return costs_.size(); }

  struct Answer {
    double value = 0;            ///< no prices in the box give a better bound than this
    std::vector<double> prices;  ///< per limit
    std::vector<double> shares;  ///< per point; sum 1
    bool at_edge = false;        ///< some price is as far from the center as the box allows
  };
  /// Prices from `least` to `most`, per limit. Needs a point.
  Answer solve(std::span<const double> least, std::span<const double> most) const;

 private:
  std::vector<double> costs_;
  std::vector<std::vector<double>> excess_;
};

}  // namespace meshplan

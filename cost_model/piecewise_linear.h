// SPDX-License-Identifier: Apache-2.0
// Times as functions of a message's size: straight lines between points. Sums, shares, the best of
// several and the slowest of several are such functions again, so that a price that is the best of
// hundreds of algorithms costs one binary search.
#pragma once

#include <vector>

namespace meshplan {

/// A continuous function on [0, infinity) that never falls and is never negative. Immutable.
class PiecewiseLinear {
 public:
  struct Point {
    double x = 0;
    double y = 0;
    friend bool operator==(const Point&, const Point&) = default;
  };

  /// at_zero + slope * x; neither is negative.
  explicit PiecewiseLinear(double at_zero = 0.0, double slope = 0.0);

  /// Straight from point to point, then on with `slope`. The first x is 0, x ascends and y does not
  /// fall (broken invariants).
  PiecewiseLinear(std::vector<Point> points, double slope);

  /// The value at x >= 0; never falls when x grows, not even by rounding.
  double operator()(double x) const;

  const std::vector<Point>& points() const { return points_; }
  /// Beyond the last point.
  double slope() const { return slope_; }

  /// factor * f(x / divisor); factor >= 0, divisor > 0.
  PiecewiseLinear scaled(double factor, double divisor = 1.0) const;

  friend PiecewiseLinear operator+(const PiecewiseLinear& a, const PiecewiseLinear& b);
  /// The smaller of both at every size.
  friend PiecewiseLinear least(const PiecewiseLinear& a, const PiecewiseLinear& b);
  /// The larger of both at every size.
  friend PiecewiseLinear greatest(const PiecewiseLinear& a, const PiecewiseLinear& b);

 private:
  std::vector<Point> points_;  ///< never empty
  double slope_ = 0;
};

PiecewiseLinear operator+(const PiecewiseLinear& a, const PiecewiseLinear& b);
PiecewiseLinear least(const PiecewiseLinear& a, const PiecewiseLinear& b);
PiecewiseLinear greatest(const PiecewiseLinear& a, const PiecewiseLinear& b);

}  // namespace meshplan

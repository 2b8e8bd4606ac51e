// SPDX-License-Identifier: Apache-2.0
// As a linear program over shares a_k of the points, with the lower ends l of the box inside the
// costs:
//   min  sum a_k (cost_k + l . excess_k) + sum (most_t - l_t) over_t
//   sum a_k = 1,   sum a_k excess_kt - over_t + room_t = 0,   all >= 0.
// The price of limit t, less l_t, is the reduced cost of room_t. One point and, per limit, over_t
// or room_t are a feasible basis to start from.
#include "search/price_master.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "lib/check.h"

namespace meshplan {
namespace {

constexpr double kTolerance = 1e-11;
constexpr int kMostPivots = 2000;
constexpr int kSteepest = 200;  ///< pivots after which the first column that gains is taken

/// Rows of coefficients with the right-hand side last; the last row holds the reduced costs.
class Tableau {
 public:
  Tableau(std::size_t rows, std::size_t columns)
      : rows_(rows), columns_(columns), at_((rows + 1) * (columns + 1), 0), basis_(rows, 0) {}

  double& at(std::size_t row, std::size_t column) { return at_[row * (columns_ + 1) + column]; }
  double right(std::size_t row) { return at(row, columns_); }
  double& cost(std::size_t column) { return at(rows_, column); }
  std::size_t basic(std::size_t row) const { return basis_[row]; }

  /// Makes a column basic in a row.
  void pivot(std::size_t row, std::size_t column) {
    const double by = at(row, column);
    for (std::size_t c = 0; c <= columns_; ++c) at(row, c) /= by;
    for (std::size_t r = 0; r <= rows_; ++r) {
      const double factor = at(r, column);
      if (r == row || factor == 0) continue;
      for (std::size_t c = 0; c <= columns_; ++c) at(r, c) -= factor * at(row, c);
    }
    basis_[row] = column;
  }

  void minimise() {
    for (int pivots = 0; pivots < kMostPivots; ++pivots) {
      std::size_t enter = columns_;
      double best = -kTolerance;
      for (std::size_t c = 0; c < columns_; ++c) {
        if (cost(c) >= best) continue;
        enter = c;
        if (pivots >= kSteepest) break;
        best = cost(c);
      }
      if (enter == columns_) return;
      std::size_t leave = rows_;
      double ratio = 0;
      for (std::size_t r = 0; r < rows_; ++r) {
        if (at(r, enter) <= kTolerance) continue;
        const double here = std::max(right(r), 0.0) / at(r, enter);
        if (leave < rows_ && (here > ratio || (here == ratio && basis_[r] > basis_[leave])))
          continue;
        leave = r;
        ratio = here;
      }
      if (leave == rows_) return;  // shares are bounded: only rounding leads here
      pivot(leave, enter);
    }
  }

 private:
  std::size_t rows_;
  std::size_t columns_;
  std::vector<double> at_;
  std::vector<std::size_t> basis_;  ///< per row: its basic column
};

}  // namespace

void PriceMaster::add_point(double cost, std::vector<double> excess) {
  costs_.push_back(cost);
  excess_.push_back(std::move(excess));
}

PriceMaster::Answer PriceMaster::solve(std::span<const double> least,
                                       std::span<const double> most) const {
  MESHPLAN_CHECK(!costs_.empty() && least.size() == most.size());
  const std::size_t limits = least.size();
  const std::size_t count = costs_.size();
  const std::size_t over = count;
  const std::size_t room = count + limits;
  Tableau tableau(limits + 1, count + 2 * limits);
  double scale = 0;
  for (const double cost : costs_) scale = std::max(scale, std::abs(cost));
  if (scale == 0) scale = 1;
  for (std::size_t k = 0; k < count; ++k) {
    tableau.at(limits, k) = 1;
    double cost = costs_[k];
    for (std::size_t t = 0; t < limits; ++t) {
      tableau.at(t, k) = excess_[k][t];
      cost += least[t] * excess_[k][t];
    }
    tableau.cost(k) = cost / scale;
  }
  for (std::size_t t = 0; t < limits; ++t) {
    tableau.at(t, over + t) = -1;
    tableau.at(t, room + t) = 1;
    tableau.cost(over + t) = (most[t] - least[t]) / scale;
  }
  tableau.at(limits, count + 2 * limits) = 1;
  tableau.pivot(limits, 0);
  for (std::size_t t = 0; t < limits; ++t)
    tableau.pivot(t, tableau.right(t) < 0 ? over + t : room + t);
  tableau.minimise();

  Answer answer;
  answer.value = -tableau.right(limits + 1) * scale;
  answer.shares.assign(count, 0);
  for (std::size_t r = 0; r <= limits; ++r) {
    if (tableau.basic(r) < count) answer.shares[tableau.basic(r)] = std::max(tableau.right(r), 0.0);
  }
  for (std::size_t t = 0; t < limits; ++t) {
    const double width = most[t] - least[t];
    const double above = std::clamp(tableau.cost(room + t) * scale, 0.0, width);
    answer.prices.push_back(least[t] + above);
    answer.at_edge =
        answer.at_edge || above >= width * (1 - 1e-9) || (least[t] > 0 && above <= width * 1e-9);
  }
  return answer;
}

}  // namespace meshplan

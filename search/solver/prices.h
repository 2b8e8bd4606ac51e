// SPDX-License-Identifier: Apache-2.0
// Prices: the Lagrangian relaxation of the memory limit. Every moment has a price per byte; the
// least priced cost less prices times room is a lower bound on every assignment within the limit,
// at any prices. The prices climb along a subgradient (the usage of the labelling that message
// passing reads off, less the room), with Polyak's step towards the best known cost.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "search/solver/core.h"
#include "search/solver/messages.h"

namespace meshplan::solver {

class Prices {
 public:
  explicit Prices(const Core& core);

  /// For every strategy a bound on all labellings within the limit that use it, at the center.
  std::vector<double> strategy_bounds();
  /// Starts again from these prices.
  void set(std::vector<double> prices);
  /// One pass of messages at the present prices; returns the bound (with the core's constant, and a
  /// margin for rounding).
  double bound();
  /// Moves the prices; `target` is the cost to aim at, or what is thought possible.
  void climb(double target);

  const std::vector<double>& prices() const { return prices_; }
  const std::vector<double>& theta() const { return theta_; }
  const Labels& labels() const { return labels_; }
  double best_bound() const { return best_bound_; }
  /// The best prices since set(), and the bound at them.
  const std::vector<double>& center() const { return center_; }
  double center_bound() const { return center_bound_; }
  /// Several starts have gained nothing.
  bool converged() const { return idle_ >= 3; }
  /// Moves one price after the other to where the bound is best, the others as they are: where few
  /// moments bind, steps along subgradients come near to that point but do not reach it. Asks
  /// `over` between evaluations.
  void search_along(std::size_t most_moments, const std::function<bool()>& over);
  double work() const { return messages_.work() + 4 * static_cast<double>(core_.moments()); }

 private:
  void restart();

  const Core& core_;
  Messages messages_;
  bool forward_ = true;
  std::vector<double> prices_;
  std::vector<double> prefix_;
  std::vector<double> theta_;
  Labels labels_;
  double last_bound_ = 0;
  double best_bound_;
  double center_bound_ = 0;
  std::vector<double> center_;
  std::vector<double> center_messages_;
  bool center_forward_ = true;
  std::vector<double> direction_;
  double scale_ = 1.0;
  int since_better_ = 0;
  bool better_ = false;
  bool first_ = true;
  int idle_ = 0;  ///< starts that gained nothing
  double at_restart_ = 0;
};

}  // namespace meshplan::solver

// SPDX-License-Identifier: Apache-2.0
// Worker: one of the searches that run side by side. Each has its own random numbers, plans and
// current solution; what they share is read at the beginning of a round and written after its end,
// in the order of the workers, so that the result does not depend on how fast each of them runs.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "search/solver/block.h"
#include "search/solver/core.h"
#include "search/solver/prices.h"

namespace meshplan::solver {

using Clock = std::chrono::steady_clock;

/// When to stop: after so much work (table entries), at a point in time, or when told to.
class Budget {
 public:
  /// `stop` outlives the budget; nullptr or empty: never.
  Budget(double work, std::optional<Clock::time_point> end, const std::function<bool()>* stop)
      : work_(work), end_(end), stop_(stop) {}

  void spend(double work) { spent_ += work; }
  bool over() const {
    return spent_ >= work_ || (end_ && Clock::now() >= *end_) ||
           (stop_ != nullptr && *stop_ && (*stop_)());
  }
  double spent() const { return spent_; }
  /// So much of what is left, no later than the whole.
  Budget part(double work) const { return Budget(std::min(work, work_ - spent_), end_, stop_); }

 private:
  double work_;
  std::optional<Clock::time_point> end_;
  const std::function<bool()>* stop_;
  double spent_ = 0;
};

/// A labelling within the limit.
struct Solution {
  Labels labels;
  double cost = std::numeric_limits<double>::infinity();
  std::vector<double> usage;
};

/// What the workers of a round see.
struct Shared {
  static constexpr std::size_t kMostElites = 10;

  std::vector<Solution> elites;  ///< best first; different from each other
  /// Of the best assignment, which the core may no longer contain.
  double incumbent = std::numeric_limits<double>::infinity();
  std::vector<double> prices;  ///< that gave the bound, or the best known

  double best_cost() const {
    return elites.empty() ? incumbent : std::min(incumbent, elites.front().cost);
  }
  /// Keeps the solution if it is among the best that differ enough from each other.
  void offer(const Solution& solution);
};

class Worker {
 public:
  Worker(const Core& core, std::uint64_t seed);

  /// Polishes a labelling at these priced costs: exact over all nodes but a few.
  void polish(const std::vector<double>& theta, Labels& labels, Budget& budget);

  /// Raises prices where the limit is exceeded and polishes again, until the labelling fits.
  std::optional<Solution> repair(std::vector<double> prices,
                                 Labels labels,
                                 int most_rounds,
                                 Budget& budget);

  /// Neighbourhood search from the current solution until the budget is over.
  void improve(const Shared& shared, Budget& budget);

  /// Solutions found since the last call, best last.
  std::vector<Solution> take_found();
  void found(Solution solution);

  std::int64_t blocks() const { return blocks_; }
  std::int64_t improvements() const { return improvements_; }
  RandomBits& random() { return random_; }

 private:
  enum Kind : int { kRegion, kTight, kDifference, kWindow, kKinds };

  const BlockPlan& full_plan(Budget& budget);
  /// Goes on from where it is, or from the best or another good solution.
  void choose_start(const Shared& shared);
  /// After many blocks without gain: accept some loss for a while, then descend again.
  void escape(const Shared& shared);
  std::vector<int> choose_block(const Shared& shared, int kind, int size);
  void grow_region(std::vector<int>& block, std::size_t size);
  void try_block(const Shared& shared, const std::vector<int>& block, Budget& budget);
  /// The same for a small block by complete search, against the limit itself.
  void exhaust_block(const Shared& shared, const std::vector<int>& block, Budget& budget);
  /// The block as a problem of its own, all other nodes fixed; changes change_.
  Problem problem_of(const std::vector<int>& block);
  /// Takes over what the block has in current_.labels, which costs `gain` less than before.
  void accept(double gain);
  double local_cost(const std::vector<int>& block) const;
  void draw_prices(const Shared& shared);
  /// Adds the change of usage since `before` to change_; whether the result fits.
  bool change_fits(const std::vector<int>& block, const Labels& before);

  const Core& core_;
  RandomBits random_;
  BlockWorkspace workspace_;
  std::vector<BlockPlan> plans_;
  double plan_cap_ = 1 << 14;
  std::size_t next_plan_ = 0;
  std::size_t runs_ = 0;  ///< of full plans
  Solution current_;
  std::vector<Solution> found_;
  std::vector<double> prices_;  ///< of the block at hand
  std::vector<double> prefix_;
  std::vector<double> theta_;
  std::vector<double> change_;
  std::vector<char> inside_;  ///< per node: in the block at hand
  std::int64_t blocks_ = 0;
  std::int64_t improvements_ = 0;
  std::int64_t since_better_ = 0;
  int shakes_ = 0;      ///< blocks that may still cost more
  double allowed_ = 0;  ///< up to this cost
  Solution best_;       ///< of this worker
};

}  // namespace meshplan::solver

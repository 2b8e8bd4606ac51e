// SPDX-License-Identifier: Apache-2.0
// memory_search: the cheapest plan of one mesh whose memory stays within a limit at every moment.
//
// Idea: prices of memory turn the limit into a part of the sum (Lagrangian relaxation). At any
// prices, the least priced sum minus prices x limit is a lower bound on every plan within the
// limit. Few moments bind: the bound is raised by cutting planes over the prices of those moments
// (price_master.h); a moment joins them when the mixture of plans that belongs to the best prices
// exceeds the limit there. The same with bytes alone instead of seconds finds a mixture within the
// limit, or proves that no plan fits.
//
// The mixture says what good plans are made of, but it is no plan: equal layers switch together at
// one price. So its members are joined: operators before a cut as in one plan, from the cut as in
// another, with the operators around the cut chosen anew; the cut is found by bisection.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "search/plan_problem.h"
#include "search/price_master.h"

namespace meshplan {

struct MemorySearchResult {
  std::optional<Decision> decision;  ///< none: no plan within the limit was found
  Seconds objective;
  double lower_bound = 0;  ///< seconds; on every plan of this mesh within the limit
  MemoryPrices prices;     ///< that gave the bound
  bool proven_optimal = false;
  bool empty = false;  ///< there is no plan, however large the limit
  /// Set where it is proven that no plan fits: the least bytes that any needs, and when.
  std::optional<Bytes> min_memory;
  int tightest_moment = 0;
  std::optional<Bytes> least_peak;  ///< of all plans that were tried
  int least_peak_moment = 0;        ///< of that plan
  bool stopped = false;             ///< ended early: more may be found
};

/// How much is done at once: kRough finds a plan and prices that are worth something.
enum class SearchEffort : std::uint8_t { kRough, kFull };

/// What is known before a mesh is searched: the best plan of the others.
struct Incumbent {
  Seconds objective;
  MemoryPrices prices;  ///< that gave the bound of its mesh
};

class MemorySearch {
 public:
  /// The problem must outlive it.
  MemorySearch(PlanProblem& problem, Bytes limit);

  /// `watcher` is told what is known whenever plan or bound gets better, by the thread that runs.
  void watch(std::function<void(const MemorySearchResult&)> watcher) {
    watcher_ = std::move(watcher);
  }

  /// A lower bound, in seconds, on every plan of the problem within the limit, from one solve at
  /// these prices; infinity where there is no plan at all. What is met is kept for run(). The solve
  /// is spared where less work gives a bound of `enough`.
  double bound(const MemoryPrices& prices, double enough = std::numeric_limits<double>::infinity());

  /// With an incumbent the search starts at its prices and ends where the bound reaches its
  /// objective; a decision is then given only where it is better. `stop` is asked between solves;
  /// true ends the search with what there is. Empty: never. Once more goes on from where the last
  /// run ended.
  MemorySearchResult run(const std::optional<Incumbent>& incumbent = std::nullopt,
                         const std::function<bool()>& stop = {},
                         SearchEffort effort = SearchEffort::kFull);

 private:
  struct Candidate {
    Decision decision;
    PlanProblem::Measured measured;
  };
  struct Tried {
    MemoryPrices prices;
    double lower_bound = 0;  ///< on the priced sum
  };

  bool stopped();
  bool beaten() const;
  bool good_enough() const;
  bool tried(const MemoryPrices& prices) const;
  void solve(const MemoryPrices& prices);
  bool offer(const Candidate& candidate);
  PriceMaster::Answer best_prices(bool memory_only,
                                  Bytes aim,
                                  double width,
                                  const std::vector<double>& center);
  int tightest(const std::vector<double>& shares, Bytes aim) const;
  bool weigh(const std::map<int, double>& weights);
  void find_mixture();
  void climb(Bytes aim, int most_solves);
  void aim_lower(int most_aims);
  std::vector<std::size_t> parts() const;
  void join_all(std::vector<std::size_t> with);
  void join(const Candidate& heavy, const Candidate& light, bool heavy_first);
  std::optional<Candidate> join_at(const Candidate& first, const Candidate& second, int cut);
  MemorySearchResult finish();

  PlanProblem& problem_;
  Bytes limit_;
  double unit_;  ///< the master counts memory in limits
  std::optional<Incumbent> incumbent_;
  std::function<bool()> stop_;
  std::function<void(const MemorySearchResult&)> watcher_;
  std::vector<Candidate> candidates_;
  std::vector<int> moments_;  ///< with a price
  std::size_t most_moments_ = 0;
  std::vector<Tried> tried_;
  PriceMaster::Answer mixture_;
  MemorySearchResult result_;
};

/// MemorySearch(problem, limit).run().
MemorySearchResult memory_search(PlanProblem& problem, Bytes limit);

}  // namespace meshplan

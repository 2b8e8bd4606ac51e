// SPDX-License-Identifier: Apache-2.0
// solve_cost_graph: the best assignment of a cost graph within its limit, with a lower bound.
//
// What happens (search/solver/): exact reductions; a Lagrangian price on the memory of every
// moment, whose inner problem is bounded by message passing; labellings read off the messages,
// polished by exact elimination over all nodes but a few, and repaired until they fit; then
// neighbourhood search by exact elimination over blocks of nodes; small problems are searched
// completely. The result is evaluated anew from the document, in 128 bits.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>

#include "search/cost_graph.h"

namespace meshplan {

struct CostGraphProgress {
  double seconds = 0;                 ///< since `start`
  std::optional<double> cost;         ///< of the best assignment so far, in units
  std::optional<double> lower_bound;  ///< in units
};

struct SolveOptions {
  using Clock = std::chrono::steady_clock;

  /// Ends the search this many seconds after `start`, wherever it is.
  std::optional<double> time_limit;
  /// Rounds of about 30 million table entries for each of two workers. Without a time limit the
  /// result depends on nothing but the graph, this and the seed, and the search ends earlier where
  /// rounds bring nothing any more, unless iterations_given. With one, rounds are measured by the
  /// clock, and end the search only if iterations_given.
  std::int64_t iterations = 1000;
  bool iterations_given = false;
  std::uint64_t seed = 0;
  unsigned threads = 1;
  Clock::time_point start = Clock::now();
  /// Called now and then from one thread.
  std::function<void(const CostGraphProgress&)> progress;
  /// Asked now and then, by any thread; true ends the search early. Empty: never.
  std::function<bool()> stop;
};

struct CostGraphSolution {
  enum class Status {
    kOptimal,     ///< proven: the bound equals the cost
    kFeasible,    ///< within the limit, `lower_bound` says how good at least
    kImpossible,  ///< proven that no assignment is feasible
    kNothing      ///< the budget ended before anything was found or proven
  };
  Status status = Status::kNothing;
  CostGraphAssignment assignment;
  CostGraphEvaluation evaluation;
  std::optional<Int128> lower_bound;  ///< in units
  double gap = 0;                     ///< (cost - lower_bound) / cost

  /// Where impossible: the forbidden strategies and pairs alone leave nothing.
  bool no_allowed = false;
  /// Where impossible: every assignment uses at least this at `tightest_moment` (or on a weighted
  /// mean of moments around it). Not set where it took a complete search to prove it.
  std::optional<double> least_usage;
  std::int64_t tightest_moment = 0;

  /// What was done.
  struct Phases {
    double reduce_seconds = 0;
    double first_feasible_seconds = 0;  ///< after `start`
    double search_seconds = 0;
    std::size_t free_nodes = 0;  ///< after the reductions
    std::size_t free_edges = 0;
    std::size_t moments = 0;
    std::int64_t rounds = 0;
    std::int64_t price_steps = 0;
    std::int64_t blocks = 0;
    std::int64_t improvements = 0;
  };
  Phases phases;
};

CostGraphSolution solve_cost_graph(const CostGraph& graph, const SolveOptions& options);

}  // namespace meshplan

// SPDX-License-Identifier: Apache-2.0
#include "search/whole_plan.h"

#include <algorithm>
#include <cmath>

#include "lib/check.h"
#include "search/cost_graph_solver.h"
#include "search/plan_cost_graph.h"

namespace meshplan {
namespace {

constexpr std::int64_t kRounds = 4;  ///< of the solver: what is small is proven in the first

}  // namespace

WholePlan solve_whole(PriceBook& book,
                      const Restrictions& restrictions,
                      Bytes memory_limit,
                      unsigned threads,
                      const std::function<bool()>& stop) {
  MESHPLAN_CHECK(!restrictions.strategy_charge && !restrictions.parameter_charge);
  WholePlan whole;
  const auto made = plan_cost_graph(book, restrictions, memory_limit);
  if (!made) return whole;
  SolveOptions options;
  options.iterations = kRounds;
  options.threads = std::max(threads, 1U);
  options.stop = stop;
  const CostGraphSolution solved = solve_cost_graph(made->graph, options);
  whole.stopped = stop && stop();
  if (solved.lower_bound) {
    // whole ticks; a double has the next lower one beyond 2^53
    const auto bound = static_cast<double>(*solved.lower_bound);
    whole.lower_bound =
        std::max(0.0, std::nextafter(bound, bound < 0x1p53 ? bound : 0)) / kTicksPerSecond;
  }
  using Status = CostGraphSolution::Status;
  if (solved.status == Status::kImpossible) {
    // what a complete search excludes needs more than the limit, and bytes are whole
    const Bytes least = solved.least_usage ? static_cast<Bytes>(std::ceil(*solved.least_usage)) : 0;
    whole.least_memory = std::max(least, memory_limit + 1);
  }
  if (solved.status != Status::kOptimal && solved.status != Status::kFeasible) return whole;
  whole.plan = assignment_of(*made, book, solved.assignment);
  const Evaluation evaluation = evaluate(book, *whole.plan);
  whole.objective = evaluation.objective;
  MESHPLAN_CHECK(evaluation.peak <= memory_limit);
  return whole;
}

}  // namespace meshplan

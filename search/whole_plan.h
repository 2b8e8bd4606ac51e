// SPDX-License-Identifier: Apache-2.0
// solve_whole: all plans of one mesh as a bare cost graph (plan_cost_graph.h), solved as `meshplan
// solve` does (cost_graph_solver.h). Nothing is shared between equal layers, and nothing is left to
// prices alone: for problems that are small, and so tight that prices of memory leave a gap or find
// no plan at all.
#pragma once

#include <functional>
#include <optional>

#include "cost_model/evaluate.h"
#include "search/plan_problem.h"

namespace meshplan {

struct WholePlan {
  std::optional<Assignment> plan;  ///< the cheapest that was found within the limit
  Seconds objective;               ///< of the plan
  double lower_bound = 0;          ///< seconds; on every plan within the limit
  /// Set where it is proven that no plan is within the limit: bytes that every plan needs at least.
  std::optional<Bytes> least_memory;
  bool stopped = false;  ///< ended early: more may be found
};

/// The restrictions must charge nothing. `stop` is asked by any thread; true ends the search with
/// what there is; empty: never. The same answer for any number of threads.
WholePlan solve_whole(PriceBook& book,
                      const Restrictions& restrictions,
                      Bytes memory_limit,
                      unsigned threads,
                      const std::function<bool()>& stop = {});

}  // namespace meshplan

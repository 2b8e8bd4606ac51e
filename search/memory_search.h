// SPDX-License-Identifier: Apache-2.0
// memory_search: the cheapest plan of one mesh whose memory stays within a limit at every moment.
//
// Idea: a price of memory at one moment turns the limit into a part of the sum (Lagrangian
// relaxation). The least priced sum minus price x limit is a lower bound on every plan within the
// limit. Growing the price by a factor and then intersecting the two lines (of the plan just above
// and the one just below the limit) gives the best bound in a handful of solves. Equal layers
// switch together at one price, so neither of the two plans is near the limit: they are joined,
// operators before a cut as in one, from the cut as in the other, with the operators around the cut
// chosen anew; the cut is found by bisection. A plan that exceeds the limit at another moment leads
// to a price at that moment or to a lower target. Where no plan was found, moments are weighed
// against each other until one is, or until it is proven that there is none; where the gap stays
// wide (small graphs), prices at several moments narrow it.
#pragma once

#include <functional>
#include <optional>

#include "search/plan_problem.h"

namespace meshplan {

struct MemorySearchResult {
  std::optional<Decision> decision;  ///< none: no plan within the limit was found
  Seconds objective;
  double lower_bound = 0;  ///< seconds; on every plan of this mesh within the limit
  MemoryPrices prices;     ///< that gave the bound
  bool proven_optimal = false;
  /// Set where it is proven that no plan fits: the least bytes that any needs, and when.
  std::optional<Bytes> min_memory;
  int tightest_moment = 0;
  bool stopped = false;  ///< ended early: more may be found
};

/// What is known before a mesh is searched: the best plan of the others.
struct Incumbent {
  Seconds objective;
  MemoryPrices prices;  ///< that gave the bound of its mesh
};

/// With an incumbent the search starts at its prices and ends where the bound reaches its
/// objective; a decision is then given only where it is better. `stop` is asked between solves;
/// true ends the search with what there is. Empty: never.
MemorySearchResult memory_search(PlanProblem& problem,
                                 Bytes limit,
                                 const std::optional<Incumbent>& incumbent = std::nullopt,
                                 const std::function<bool()>& stop = {});

/// A lower bound, in seconds, on every plan of the problem within the limit, from one solve at
/// these prices; infinity where there is no plan at all.
double bound_at(PlanProblem& problem, const MemoryPrices& prices, Bytes limit);

}  // namespace meshplan

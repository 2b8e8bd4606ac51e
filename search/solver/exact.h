// SPDX-License-Identifier: Apache-2.0
// Complete search of a small core: depth first in the order of the nodes, bounded by what the
// messages of a backward pass say about the nodes that are not fixed yet.
#pragma once

#include <optional>

#include "search/solver/prices.h"
#include "search/solver/worker.h"

namespace meshplan::solver {

struct ExactOutcome {
  bool complete = false;  ///< nothing better than `solution` or the given cost exists
  std::optional<Solution> solution;
};

/// Looks for labellings that fit and cost less than `cost` (infinity: any). `prices` stands at the
/// prices to bound with. Costs must be whole numbers.
ExactOutcome search_all(const Core& core, Prices& prices, double cost, Budget& budget);

}  // namespace meshplan::solver

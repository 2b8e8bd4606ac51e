// SPDX-License-Identifier: Apache-2.0
// Complete search: branch and bound over whole problems.
//
// A node of the search is a problem of its own. It is reduced, its prices climb for a few steps
// from those of the node above, and whatever strategy can be in nothing better than the best
// solution is dropped; that is repeated as long as much is dropped. What is left is divided by the
// node whose best and second best strategy differ most: the best one alone, and all others. Memory
// comes in lumps, and a bound from prices only sees their mean: to fix one large lump often closes
// what no prices could.
#pragma once

#include <optional>
#include <vector>

#include "search/solver/problem.h"
#include "search/solver/worker.h"

namespace meshplan::solver {

struct ExactOutcome {
  bool complete = false;  ///< nothing better than `solution` or the given cost exists
  std::optional<Solution> solution;
};

/// Looks for labellings that fit and cost less than `cost` (infinity: any). `prices` (per moment)
/// are where the bounds start. Costs must be whole numbers.
ExactOutcome search_all(const Problem& problem,
                        const std::vector<double>& prices,
                        double cost,
                        Budget& budget);

}  // namespace meshplan::solver

// SPDX-License-Identifier: Apache-2.0
// What constraints leave of the strategy space.
#pragma once

#include "graph/constraints.h"
#include "search/plan_problem.h"

namespace meshplan {

/// A constrained tensor is found in an allowed placement by each of its readers and, if it ends the
/// graph, there; a parameter rests in one. The book must outlive the result.
Restrictions restrictions_from(const BoundConstraints& constraints, PriceBook& book);

}  // namespace meshplan

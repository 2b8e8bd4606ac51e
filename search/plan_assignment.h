// SPDX-License-Identifier: Apache-2.0
// From a plan document back to the assignment that it was built from.
#pragma once

#include "cost_model/evaluate.h"
#include "plan/plan.h"

namespace meshplan {

/// The assignment whose plan this is; evaluate() of it gives the plan's objective. The book must be
/// of the plan's graph, mesh and options, and the plan one that check_plan finds right. Errors
/// (with a JSON Pointer as `where`): kUnsupported for what the strategy space does not have
/// (strided shards, ranks of its own), kConflict where the plan is none of the space.
Result<Assignment> assignment_of(const Plan& plan, PriceBook& book);

}  // namespace meshplan

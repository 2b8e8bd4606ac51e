// SPDX-License-Identifier: Apache-2.0
// The plan checker: derives from the graph, the cluster and the placements alone what a plan must
// say, and names every difference.
//
// It shares no code with the searches, their tables or the evaluator: it reads the rules
// (graph/rule.h) with its own eyes, composes the redistributions with its own layouts, walks the
// memory moment by moment with its own lifetimes, and adds up the objective with its own sums.
// docs/cost_model.md is what both follow. What it takes from cost_model/ is the price of one
// collective and of one local pass.
#pragma once

#include <optional>
#include <vector>

#include "cost_model/cluster.h"
#include "graph/graph.h"
#include "lib/units.h"
#include "plan/finding.h"
#include "plan/plan.h"

namespace meshplan {

/// What the checker's own sums come to, whatever the plan says.
struct DerivedCost {
  Seconds objective;
  Seconds step_time;
  Seconds compute_time;
  Seconds communication_time;
  Bytes peak = 0;
};

/// All faults in the order of the checks; empty: the plan is right. `graph` must be of the plan's
/// mode and of one micro-batch, as the search saw it; `cluster` must have the plan's number of
/// devices. Never fails, whatever the plan says. `derived` is set where placements and
/// redistributions are right enough to follow from them.
std::vector<Finding> check_plan(const Plan& plan,
                                const Graph& graph,
                                const Cluster& cluster,
                                std::optional<DerivedCost>* derived = nullptr);

}  // namespace meshplan

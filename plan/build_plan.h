// SPDX-License-Identifier: Apache-2.0
// From an assignment to the plan document: placements, redistributions, groups, costs, memory.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "cost_model/evaluate.h"
#include "plan/plan.h"

namespace meshplan {

/// What a plan says beside the assignment.
struct PlanContext {
  std::string version;
  PlanOptions options;
  std::vector<std::string> axes;                ///< names of the mesh axes
  std::vector<std::vector<std::string>> roles;  ///< what they are used for; may be empty
  PlanResult result;
  std::set<TensorId> constrained;  ///< tensors whose placements the user fixed
  /// Where a tensor's placements come from; empty: "constraint" for constrained ones, else "cost".
  std::function<std::string(TensorId, const Placements&)> reason;
  Bytes memory_limit = 0;
};

/// Times, throughput, use of the devices' peak and price of one step.
PlanCost plan_cost(const PriceBook& book, const Evaluation& evaluation);

/// The whole plan of an assignment and its evaluation.
Plan build_plan(PriceBook& book,
                const Assignment& assignment,
                const Evaluation& evaluation,
                const PlanContext& context);

/// A plan that says that nothing fits: identity, options, limit, the least memory needed.
Plan infeasible_plan(const Graph& graph, const Cluster& cluster, const PlanContext& context);

}  // namespace meshplan

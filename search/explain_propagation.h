// SPDX-License-Identifier: Apache-2.0
// Where a tensor's placement in a propagated plan comes from: the way from what was given, and the
// conflicts met on it with the price of each alternative.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "search/constraint_propagation.h"
#include "search/explain_plan.h"

namespace meshplan {

struct AxisOrigin {
  int axis = 0;
  Placement placement;  ///< the tensor's, in the plan
  PropagationOrigin origin;
  /// The operators that wanted two dimensions cut by the axis at once; it went to neither.
  std::vector<OperatorId> contested_by;
};

struct ExplainedConflict {
  PropagationConflict conflict;
  /// For everything that the operator could do along the axis, the cheapest strategy; the chosen
  /// one first.
  std::vector<Alternative> alternatives;
};

struct PropagationExplanation {
  /// What the plan holds of the propagation; none: only the constraints were kept.
  std::optional<PropagationHold> hold;
  std::vector<AxisOrigin> axes;              ///< axes of size 1 left out
  std::vector<ExplainedConflict> conflicts;  ///< at most kMostExplainedConflicts, along the way
  std::size_t more_conflicts = 0;
};

constexpr std::size_t kMostExplainedConflicts = 6;

/// The plan must be the explainer's, made by propagation_search under these constraints. Errors:
/// those of propagate.
Result<PropagationExplanation> explain_propagation(PlanExplainer& explainer,
                                                   const Plan& plan,
                                                   const std::optional<Constraints>& constraints,
                                                   PropagationPolicy policy,
                                                   TensorId tensor);

}  // namespace meshplan

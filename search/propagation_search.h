// SPDX-License-Identifier: Apache-2.0
// propagation_search: plans from what follows from a user's constraints.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "graph/constraints.h"
#include "search/constraint_propagation.h"
#include "search/dp_search.h"
#include "search/top_plans.h"

namespace meshplan {

/// The propagation on the book's mesh, whose axes are named as in `mesh`. Errors: those of
/// bind_constraints and ConstraintPropagation::make.
Result<std::shared_ptr<const ConstraintPropagation>> propagate(
    PriceBook& book,
    const MeshShape& mesh,
    const std::optional<Constraints>& constraints,
    PropagationPolicy policy,
    PropagationHold hold);

/// What the constraints alone leave on a mesh; empty without constraints. They must outlive it.
RestrictionsOf restrictions_of(const std::optional<Constraints>& constraints);

struct PropagationOutcome {
  /// The cheapest first; their bounds and proofs are null, as they would hold for what propagation
  /// leaves alone.
  std::variant<std::vector<DpResult>, NoPlan> found;
  /// What the plans were searched under, for searches near them.
  RestrictionsOf restrictions;
  /// What was held of the propagation; none: no plan that keeps it fits or exists, so only the
  /// constraints were.
  std::optional<PropagationHold> hold;
  bool by_price = false;  ///< there is one, but the constraints alone allow a better one
};

/// What is given up of the propagation must make the plan better by this much.
constexpr double kWorthReleasing = 0.01;

/// The best plans over all jobs and meshes that keep the constraints and what follows from them.
/// Under policy cost, what follows from parameters is given up where that gains kWorthReleasing,
/// and all that follows where the best plan of the same mesh that keeps the constraints gains as
/// much; where no plan exists or fits, the best ones that keep the constraints. Constraints must
/// outlive the result. Errors: those of top_plans; kConflict naming the constraints that clash.
Result<PropagationOutcome> propagation_search(std::size_t count,
                                              const std::vector<DpJob>& jobs,
                                              const Cluster& cluster,
                                              const std::vector<MeshShape>& meshes,
                                              const DpOptions& options,
                                              const std::optional<Constraints>& constraints,
                                              PropagationPolicy policy);

}  // namespace meshplan

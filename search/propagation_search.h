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

/// The error of a search without a plan, with the places of the constraints that clash where they
/// can be told.
Error name_clash(Error error,
                 const std::vector<DpJob>& jobs,
                 const Cluster& cluster,
                 const std::vector<MeshShape>& meshes,
                 const DpOptions& options,
                 const std::optional<Constraints>& constraints);

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

/// Propagation is given up where that makes the plan better by this much.
constexpr double kWorthReleasing = 0.01;

/// The best plans over all jobs and meshes that keep the constraints and what follows from them.
/// Where none exists or fits, or under policy cost the best plan of the mesh that keeps the
/// constraints alone is better by kWorthReleasing: those that keep less, PropagationHold by
/// PropagationHold, in the end the constraints alone. Constraints must outlive the result. Errors:
/// those of top_plans; kConflict naming the constraints that clash.
Result<PropagationOutcome> propagation_search(std::size_t count,
                                              const std::vector<DpJob>& jobs,
                                              const Cluster& cluster,
                                              const std::vector<MeshShape>& meshes,
                                              const DpOptions& options,
                                              const std::optional<Constraints>& constraints,
                                              PropagationPolicy policy);

}  // namespace meshplan

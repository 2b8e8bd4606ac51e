// SPDX-License-Identifier: Apache-2.0
// What the user fixes about a plan (meshplan.constraints/1.0), and what that means on a graph and a
// mesh. Read by apps/constraints_reader.h; every search honours the bound form.
//
// Example, on a mesh (dp, tp):
//   "tensors":   {"x": {"dims": [["dp"], "open"]}}        x is cut by dp in dimension 0; tp may cut
//   1 "operators": {"fc2": {"in_strategy": [[8, 1], [1, 1]]}} "scopes":    {"layers.*.mlp":
//   {"parameters": {"w2": ["*", "S(0)"]}, "recompute": true}}
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "graph/graph.h"
#include "graph/scope_pattern.h"
#include "lib/device_mesh.h"
#include "lib/placement.h"
#include "lib/result.h"

namespace meshplan {

// ------------------------------------------------------------------------- as the user wrote them

/// One entry per mesh axis, in mesh order; nothing where "*" leaves the axis free.
using PlacementPattern = std::vector<std::optional<Placement>>;

/// The mesh axes that cut one tensor dimension, outermost first. `open`: searches may add others.
struct DimensionConstraint {
  std::vector<std::string> axes;
  bool open = false;
  friend bool operator==(const DimensionConstraint&, const DimensionConstraint&) = default;
};

/// The mesh that placements refer to.
struct ConstraintMesh {
  std::vector<std::int64_t> shape;
  std::vector<std::string> axes;
  std::map<std::string, std::vector<std::string>> flatten;  ///< further names for several axes
  friend bool operator==(const ConstraintMesh&, const ConstraintMesh&) = default;
};

struct TensorConstraint {
  std::string tensor;
  std::variant<PlacementPattern, std::vector<DimensionConstraint>> layout;
  std::int64_t priority = 0;  ///< propagation spreads lower numbers first
  std::string where;          ///< file and JSON Pointer
};

struct OperatorConstraint {
  std::string op;
  /// Cuts per dimension of every input; an input without constraint is nullopt.
  std::optional<std::vector<std::optional<std::vector<std::int64_t>>>> in_strategy;
  std::optional<std::vector<std::optional<PlacementPattern>>> in_placements;
  std::optional<std::vector<std::optional<PlacementPattern>>> out_placements;
  std::string where;
};

struct ScopeConstraint {
  ScopePattern pattern;
  std::map<std::string, PlacementPattern> parameters;  ///< by the last components of their names
  std::optional<PlacementPattern> input;               ///< activations that enter the scope
  std::optional<PlacementPattern> output;              ///< activations that leave it
  std::optional<bool> recompute;
  std::string where;
};

struct Constraints {
  std::string file;
  std::optional<ConstraintMesh> mesh;  ///< always there if anything has placements
  std::vector<TensorConstraint> tensors;
  std::vector<OperatorConstraint> operators;
  std::vector<ScopeConstraint> scopes;

  bool empty() const { return tensors.empty() && operators.empty() && scopes.empty(); }
};

// ------------------------------------------------------------------------------- on graph and mesh

/// Per mesh axis the placements that are allowed; an empty list allows all.
struct LayoutChoices {
  std::vector<std::vector<Placement>> axes;
  std::string where;          ///< the constraint, for messages and reasons
  std::int64_t priority = 0;  ///< the lowest of the constraints that were joined

  bool allows(int axis, const Placement& placement) const;
};

struct OperatorChoices {
  /// One per input and output; nullopt is free. Those of inputs hold for what the operator reads,
  /// after any redistribution; those of outputs for what it computes, before any.
  std::vector<std::optional<LayoutChoices>> inputs;
  std::vector<std::optional<LayoutChoices>> outputs;
  /// Cuts per dimension of every input, on the mesh as a whole; empty is free.
  std::vector<std::optional<std::vector<std::int64_t>>> in_strategy;
  std::string in_strategy_where;
};

/// What `recompute` of scopes says about the operators; independent of any mesh.
struct RecomputeScopes {
  std::vector<std::optional<bool>> recompute;  ///< per operator
  std::vector<std::string> scope;  ///< per operator: the instance of the scope that decided
};

/// All that constraints say about one graph on one mesh.
struct BoundConstraints {
  /// A tensor as its readers and the graph's outputs find it (for a parameter: as it rests between
  /// steps). The operator that makes it may leave it Partial or elsewhere; then it is moved.
  std::map<TensorId, LayoutChoices> tensors;
  std::map<OperatorId, OperatorChoices> operators;
  std::vector<std::optional<bool>> recompute;  ///< per operator
  std::vector<std::string>
      recompute_scope;  ///< per operator: the instance of the scope that said so

  bool empty() const { return tensors.empty() && operators.empty() && !any_recompute(); }
  bool any_recompute() const;
};

struct ConstraintOptions {
  bool allow_uneven = false;  ///< dimensions need not be divisible by what cuts them
};

/// Checks everything that does not depend on the mesh: names of tensors, operators, scopes and
/// their parameters, numbers of operands, dimensions. Errors carry the place in the constraints'
/// file: kMissing (an unknown name, with the nearest one), kValue, kConflict.
Result<void> check_constraints(const Constraints& constraints, const Graph& graph);

/// What the scopes' `recompute` means for every operator. Errors: those of check_constraints.
Result<RecomputeScopes> recompute_scopes(const Constraints& constraints, const Graph& graph);

/// Checks and resolves the constraints. Errors: those of check_constraints; kUnknownAxis; kConflict
/// (constraints that exclude each other, or that are written for another mesh).
Result<BoundConstraints> bind_constraints(const Constraints& constraints,
                                          const Graph& graph,
                                          const DeviceMesh& mesh,
                                          const ConstraintOptions& options = {});

}  // namespace meshplan

// SPDX-License-Identifier: Apache-2.0
// preferred_plan: a plan near the best one that keeps as many choices of an earlier plan as it can.
//
// Operators and parameters are matched by name. An operator is kept if it reads and leaves its
// tensors in the earlier plan's placements, a parameter if it, its gradient and its optimizer state
// rest in them; each counts one. What the earlier plan has no choice for, or one that is not legal
// any more, cannot be kept. Placements of meshes of different shapes are not comparable, so the
// plan is looked for on the earlier plan's mesh.
//
// Idea: everything that is not kept is charged. At a charge above everything, the plan keeps all
// that fits into memory; if it costs too much, charges are lowered as memory prices are in
// memory_search: crossing the lines of the plan that costs too much and of the one that does not
// gives the next charge, until nothing lies below. Equal layers change sides at one charge, so the
// two are then joined: the higher charge for the operators before a cut (or from it on), the lower
// one for the others, the cut by bisection. The result is within the tolerance in any case; that
// nothing within it keeps more is not proven.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "plan/plan.h"
#include "search/dp_search.h"

namespace meshplan {

/// How much of an earlier plan there is in another one.
struct KeptChoices {
  std::size_t operators = 0;
  std::size_t parameters = 0;
  std::size_t all() const { return operators + parameters; }
  friend bool operator==(const KeptChoices&, const KeptChoices&) = default;
};

/// The choices of a plan, to be compared with those of other graphs and meshes.
class EarlierChoices {
 public:
  /// The plan must outlive this.
  explicit EarlierChoices(const Plan& plan);

  const Plan& plan() const { return plan_; }
  /// Placements can be compared: meshes of equal shape.
  bool same_mesh(std::span<const std::int64_t> shape) const;
  bool is_kept(PriceBook& book, OperatorId id, const Strategy& strategy) const;
  bool is_kept(PriceBook& book,
               TensorId parameter,
               const TensorState& state,
               const ParameterChoice& choice) const;
  /// Of a whole assignment; nothing on another mesh.
  KeptChoices kept(PriceBook& book, const Assignment& assignment) const;
  /// The operators and parameters with readers of the graph that the earlier plan has, too.
  KeptChoices known(const Graph& graph) const;

 private:
  const Plan& plan_;
  std::map<std::string, const PlanOperator*> operators_;
  std::map<std::string, const PlanTensor*> tensors_;
};

struct Preferred {
  /// A plan on the earlier plan's mesh that keeps more than `best`; none: `best` is the answer.
  std::optional<DpResult> plan;
  KeptChoices kept;   ///< by that plan, or by `best`
  KeptChoices known;  ///< of the graph, that the earlier plan has, too
  std::string note;   ///< why the earlier plan's mesh was not taken; may be empty
};

/// Looks for the plan of `best`'s job, or of the job with the earlier plan's micro-batches, that
/// keeps the most within objective <= (1 + tolerance) x that of `best` and the memory limit; ties:
/// the cheapest. `mesh`: the earlier plan's mesh, with the axis names of `restrictions`; none: it
/// is not to be used, and `best` is the answer. Bound and proof of the result are those of `best`.
Preferred prefer_choices(const EarlierChoices& earlier,
                         double tolerance,
                         DpResult& best,
                         const std::vector<DpJob>& jobs,
                         const Cluster& cluster,
                         const std::optional<MeshShape>& mesh,
                         const DpOptions& options,
                         const RestrictionsOf& restrictions = {});

}  // namespace meshplan

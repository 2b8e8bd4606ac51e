// SPDX-License-Identifier: Apache-2.0
// ConstraintPropagation: what follows from a user's constraints for all operators of a graph.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "graph/constraints.h"
#include "search/dp_search.h"
#include "search/plan_problem.h"
#include "search/sharding_propagation.h"

namespace meshplan {

/// kCost: what no tensor contradicts is taken over, the rest is decided by price. kRules: size and
/// position decide, and every operator runs as its tensors say.
enum class PropagationPolicy : std::uint8_t { kCost, kRules };
std::optional<PropagationPolicy> parse_propagation_policy(const std::string& name);

/// What of the propagation is held fixed. kAll; kActivations: a constraint on a parameter says how
/// it rests, and whether its readers take it so is left to the price.
enum class PropagationHold : std::uint8_t { kAll, kActivations };

/// The tensors of an operator use a mesh axis for different factors, or some do and others do not.
struct PropagationConflict {
  struct Claim {
    std::optional<TensorId> tensor;  ///< none: the constraints on the operator
    std::optional<int> dim;          ///< that the axis cuts there; none: it cuts none
    std::string factor;              ///< "" where there is none
  };
  OperatorId op{};
  int axis = 0;
  std::vector<Claim> claims;
};

/// One step of the way that a mesh axis took: `op` took it over from `from`.
struct PropagationStep {
  OperatorId op{};
  std::optional<TensorId> from;  ///< none: from the constraints on the operator
};

/// Where the cut of a tensor by a mesh axis comes from.
struct PropagationOrigin {
  enum class Kind : std::uint8_t {
    kPrice,       ///< propagation says nothing of this axis
    kConstraint,  ///< the user gave it
    kDefault,     ///< nothing was given: the batch of an input
    kPropagated,
  };
  Kind kind = Kind::kPrice;
  std::vector<PropagationStep> steps;  ///< kPropagated: from the tensor back to what was given
};

class ConstraintPropagation {
 public:
  /// Propagates on the book's mesh. Where nothing is constrained, it starts from the batch
  /// dimension of the inputs, cut by all axes that divide it. The book must outlive the result.
  /// Errors: kConflict, with the place of one constraint as `where` and naming the other, where an
  /// operator has no strategy that two of them allow, or where users of one parameter are given
  /// different placements of it.
  static Result<std::shared_ptr<const ConstraintPropagation>> make(PriceBook& book,
                                                                   BoundConstraints bound,
                                                                   PropagationPolicy policy,
                                                                   PropagationHold hold);

  const BoundConstraints& bound() const { return bound_; }
  bool from_batch() const { return from_batch_; }
  const std::vector<PropagationConflict>& conflicts() const { return conflicts_; }
  /// The dimension of a tensor that the axis was found to cut; nullopt: none, or open.
  std::optional<int> cut_by(TensorId tensor, int axis) const;
  /// Where `cut_by` comes from, or for an axis that cuts nothing: whether that was given.
  PropagationOrigin origin(TensorId tensor, int axis) const;
  /// The operators that wanted two dimensions of the tensor cut by the axis at once.
  std::vector<OperatorId> contested(TensorId tensor, int axis) const;
  /// The factor that an axis must shard in an operator; nullopt: open.
  std::optional<int> required(OperatorId op, int axis) const;
  bool allows(OperatorId op, const Strategy& strategy) const;
  /// "constraint", "propagated from x", "dp: propagated from x, tp: cost": per mesh axis where the
  /// placement comes from; `placements` are those of the plan, `axes` the names of the mesh axes.
  std::string reason(TensorId tensor,
                     const Placements& placements,
                     const std::vector<std::string>& axes) const;

 private:
  ConstraintPropagation(PriceBook& book,
                        BoundConstraints bound,
                        PropagationPolicy policy,
                        PropagationHold hold);
  Result<void> run();
  bool touched(OperatorId op) const;
  bool from_parameter(std::size_t tensor, std::size_t axis) const;
  bool touches_tensor(TensorId tensor) const { return bound_.tensors.contains(tensor); }
  Result<void> find_usable();
  std::vector<std::intptr_t> usable_key(OperatorId op,
                                        const std::map<TensorId, int>& choice_classes) const;
  const std::vector<char>& usable(OperatorId op) const {
    return usable_[static_cast<std::size_t>(usable_class_.at(op))];
  }
  Result<void> check_shared_parameters() const;
  Error clash_at(OperatorId op) const;
  bool usable_parameters(OperatorId op,
                         const Strategy& strategy,
                         const Restrictions& restrictions) const;
  void build_graph();
  void seed_tensors();
  void seed_operators();
  void seed_batch();
  void require_factors();
  void choose_strategies();
  void find_roots();

  PriceBook& book_;
  const Graph& graph_;
  BoundConstraints bound_;
  Restrictions plain_;  ///< of the constraints alone
  PropagationPolicy policy_;
  PropagationHold hold_;
  bool from_batch_ = false;
  std::map<OperatorId, int> usable_class_;  ///< of touched operators; equal ones share one
  std::vector<std::vector<char>> usable_;   ///< per class and strategy
  PropagationGraph tensors_;  ///< the graph's tensors, then one for each operator with constraints
  std::map<OperatorId, int> rows_;  ///< of those
  std::vector<OperatorId> row_operators_;
  Shardings given_;
  std::vector<std::int64_t> priorities_;
  std::unique_ptr<ShardingPropagation> found_;
  std::vector<PropagationConflict> conflicts_;
  std::vector<std::int32_t> roots_;  ///< per tensor and axis: the tensor that it was given for
  std::vector<int> filter_of_;       ///< per operator
  std::vector<std::vector<char>> filters_;                         ///< per strategy of the operator
  std::vector<std::array<std::int16_t, kPlanMeshAxes>> required_;  ///< per operator and axis; -1
};

/// What constraints and propagation leave of the strategy space; parameters and copies as the
/// constraints leave them.
Restrictions restrictions_from(std::shared_ptr<const ConstraintPropagation> propagation,
                               PriceBook& book);

}  // namespace meshplan

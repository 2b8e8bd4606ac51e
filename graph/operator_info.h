// SPDX-License-Identifier: Apache-2.0
// OperatorInfo: the strategies of one operator on a mesh, enumerated from its rule.
//
// A strategy gives every mesh axis one action: shard a factor, shard a factor in its ring form, cut
// tokens on one side and experts on the other, pass Partial through a linear operator, or none
// (redundant work). From the action follow the
// states of all operands and results on that axis.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "graph/rule.h"
#include "graph/tensor_state.h"

namespace meshplan {

/// What one mesh axis does in an operator.
struct AxisAction {
  enum class Kind : std::uint8_t { kFactor, kRing, kRoute, kPass, kNone };
  Kind kind = Kind::kNone;
  int factor = -1;  ///< kFactor, kRing, kRoute (the tokens)
  int ring = -1;    ///< kRing: the factor sharded together with `factor`; kRoute: the experts
  int group = -1;   ///< kPass: index into Rule::linear
  friend bool operator==(const AxisAction&, const AxisAction&) = default;
};

/// One action (index into OperatorInfo::actions()) per mesh axis.
struct Strategy {
  std::array<std::uint8_t, kPlanMeshAxes> actions{};
  friend auto operator<=>(const Strategy&, const Strategy&) = default;
};

class OperatorInfo {
 public:
  /// `mesh_shape` has at most kPlanMeshAxes axes.
  OperatorInfo(std::shared_ptr<const Rule> rule, std::vector<std::int64_t> mesh_shape);

  const Rule& rule() const { return *rule_; }
  std::span<const std::int64_t> mesh_shape() const { return mesh_shape_; }
  /// Factors in the order of the rule, each followed by its ring form and its routes; then passes;
  /// then none.
  const std::vector<AxisAction>& actions() const { return actions_; }
  const AxisAction& action(const Strategy& strategy, int axis) const {
    return actions_[strategy.actions[static_cast<std::size_t>(axis)]];
  }
  /// Every legal strategy, in lexicographic order of actions.
  const std::vector<Strategy>& strategies() const { return strategies_; }
  /// Whether the strategy is legal: divisibility, order within compound dimensions, windows that
  /// reach no further than the neighbours.
  bool legal(const Strategy& strategy) const;

  /// States of operands and results; a tensor without gradient has R/R instead of R/P.
  TensorState operand_state(const Strategy& strategy, std::size_t operand, bool has_gradient) const;
  TensorState result_state(const Strategy& strategy, std::size_t result) const;
  /// The reduction of a result that is Partial.
  Reduction result_reduction() const { return reduction_; }
  /// Size of each factor that one device works through (a ring factor: all of it).
  std::vector<std::int64_t> local_factors(const Strategy& strategy) const;
  /// True if an axis passes Partial through.
  bool passes_partial(const Strategy& strategy) const;
  /// "m,none": the action of every axis.
  std::string label(const Strategy& strategy) const;

 private:
  AxisState axis_state(const OperandRule& operand,
                       int index,
                       bool is_result,
                       const AxisAction& action) const;
  void enumerate(Strategy& strategy, std::size_t axis);
  bool legal_dimension(const DimensionFactors& dimension, const Strategy& strategy) const;

  std::shared_ptr<const Rule> rule_;
  std::vector<std::int64_t> mesh_shape_;
  std::vector<AxisAction> actions_;
  std::vector<Strategy> strategies_;
  Reduction reduction_ = Reduction::kSum;
};

/// The local shape of a tensor in this state; every sharded dimension divides.
std::vector<std::int64_t> local_shape(const std::vector<std::int64_t>& shape,
                                      const TensorState& state,
                                      std::span<const std::int64_t> mesh_shape);

/// Whether every axis divides what it shards; `shape`: Tensor::divisible().
bool divides(const std::vector<std::int64_t>& shape,
             const TensorState& state,
             std::span<const std::int64_t> mesh_shape);

/// Every state that divides: S(0), S(1), ..., R/R, then R/P (with a gradient) and P/R (if
/// `partial`) per axis, lexicographic. Axes of size 1 are R/R.
std::vector<TensorState> all_states(const std::vector<std::int64_t>& shape,
                                    std::span<const std::int64_t> mesh_shape,
                                    bool has_gradient,
                                    bool partial);

}  // namespace meshplan

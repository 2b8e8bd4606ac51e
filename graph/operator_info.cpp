// SPDX-License-Identifier: Apache-2.0
#include "graph/operator_info.h"

#include <algorithm>

#include "lib/check.h"

namespace meshplan {
OperatorInfo::OperatorInfo(std::shared_ptr<const Rule> rule, std::vector<std::int64_t> mesh_shape)
    : rule_(std::move(rule)), mesh_shape_(std::move(mesh_shape)) {
  MESHPLAN_CHECK(mesh_shape_.size() <= static_cast<std::size_t>(kPlanMeshAxes));
  for (std::size_t f = 0; f < rule_->factors.size(); ++f) {
    const Factor& factor = rule_->factors[f];
    if (factor.kind == FactorKind::kReduction) reduction_ = factor.reduction;
    if (factor.size == 1) continue;
    const int id = static_cast<int>(f);
    if (factor.kind != FactorKind::kWhole && factor.kind != FactorKind::kRing)
      actions_.push_back({AxisAction::Kind::kFactor, id, -1, -1});
    for (std::size_t t = 0; t < rule_->factors.size(); ++t) {
      const Factor& ring = rule_->factors[t];
      if (ring.kind == FactorKind::kRing && ring.partner == id && ring.size > 1 &&
          factor.kind != FactorKind::kWhole) {
        actions_.push_back({AxisAction::Kind::kRing, id, static_cast<int>(t), -1});
      }
    }
    for (const Route& route : rule_->routes) {
      if (route.token == id && rule_->factors[static_cast<std::size_t>(route.expert)].size > 1)
        actions_.push_back({AxisAction::Kind::kRoute, id, route.expert, -1});
    }
  }
  for (std::size_t g = 0; g < rule_->linear.size(); ++g)
    actions_.push_back({AxisAction::Kind::kPass, -1, -1, static_cast<int>(g)});
  actions_.push_back({});
  Strategy strategy;
  enumerate(strategy, 0);
}

void OperatorInfo::enumerate(Strategy& strategy, std::size_t axis) {
  const auto none = static_cast<std::uint8_t>(actions_.size() - 1);
  if (axis == mesh_shape_.size() || axis == strategy.actions.size()) {
    for (std::size_t rest = axis; rest < strategy.actions.size(); ++rest)
      strategy.actions[rest] = none;
    if (legal(strategy)) strategies_.push_back(strategy);
    return;
  }
  for (std::uint8_t action = mesh_shape_[axis] == 1 ? none : std::uint8_t{0}; action <= none;
       ++action) {
    strategy.actions[axis] = action;
    enumerate(strategy, axis + 1);
  }
}

bool OperatorInfo::legal(const Strategy& strategy) const {
  std::vector<std::int64_t> cuts(rule_->factors.size(), 1);
  for (std::size_t axis = 0; axis < mesh_shape_.size(); ++axis) {
    const AxisAction& chosen = action(strategy, static_cast<int>(axis));
    if (mesh_shape_[axis] == 1 && chosen.kind != AxisAction::Kind::kNone) return false;
    for (const int factor : {chosen.factor, chosen.ring}) {
      if (factor >= 0) cuts[static_cast<std::size_t>(factor)] *= mesh_shape_[axis];
    }
  }
  for (std::size_t f = 0; f < cuts.size(); ++f) {
    const Factor& factor = rule_->factors[f];
    if (!factor.divides_into(cuts[f])) return false;
    if (factor.kind == FactorKind::kWindow && cuts[f] > 1 &&
        !halo(factor.window, factor.size, cuts[f]))
      return false;
  }
  // an axis that cuts tokens on both sides has one block of them on the experts' side: the blocks
  // that a route brings together there must be neighbours, so no such axis lies inside the route
  for (std::size_t outer = 0; outer < mesh_shape_.size(); ++outer) {
    const AxisAction& route = action(strategy, static_cast<int>(outer));
    for (std::size_t inner = outer + 1; inner < mesh_shape_.size(); ++inner) {
      const AxisAction& chosen = action(strategy, static_cast<int>(inner));
      if (route.kind == AxisAction::Kind::kRoute && chosen.kind == AxisAction::Kind::kFactor &&
          chosen.factor == route.factor)
        return false;
    }
  }
  for (const std::vector<OperandRule>* list : {&rule_->operands, &rule_->results}) {
    for (const OperandRule& operand : *list) {
      for (const DimensionFactors& dim : operand.dims) {
        if (dim.size() > 1 && !legal_dimension(dim, strategy)) return false;
      }
    }
  }
  return true;
}

/// Only a prefix of a compound dimension's factors may be sharded, each but the last completely,
/// and the axes must cut it in mesh order.
bool OperatorInfo::legal_dimension(const DimensionFactors& dimension,
                                   const Strategy& strategy) const {
  std::size_t position = 0;  // the factor being cut
  std::int64_t left = rule_->factors[static_cast<std::size_t>(dimension[0])].size;  // of it
  for (std::size_t axis = 0; axis < mesh_shape_.size(); ++axis) {
    const AxisAction& chosen = action(strategy, static_cast<int>(axis));
    for (const int factor : {chosen.factor, chosen.ring}) {
      if (factor < 0) continue;
      const auto at = static_cast<std::size_t>(
          std::find(dimension.begin(), dimension.end(), factor) - dimension.begin());
      if (at == dimension.size()) continue;
      if (at < position) return false;
      while (position < at) {
        if (left != 1) return false;
        left = rule_->factors[static_cast<std::size_t>(dimension[++position])].size;
      }
      if (left % mesh_shape_[axis] != 0) return false;
      left /= mesh_shape_[axis];
    }
  }
  return true;
}

AxisState OperatorInfo::axis_state(const OperandRule& operand,
                                   int index,
                                   bool is_result,
                                   const AxisAction& action) const {
  switch (action.kind) {
    case AxisAction::Kind::kNone:
      return kReplicatedState;
    case AxisAction::Kind::kPass: {
      if (is_result) return kPartialState;
      const std::vector<int>& passing =
          rule_->linear[static_cast<std::size_t>(action.group)].operands;
      const bool in_group = std::find(passing.begin(), passing.end(), index) != passing.end();
      // the gradient of any other operand is linear in what is Partial: it is a sum, too
      return in_group ? kPartialState : kGradientPartialState;
    }
    case AxisAction::Kind::kFactor:
    case AxisAction::Kind::kRing:
    case AxisAction::Kind::kRoute:
      break;
  }
  for (std::size_t d = 0; d < operand.dims.size(); ++d) {
    for (const int factor : operand.dims[d]) {
      if (factor == action.factor || factor == action.ring) return static_cast<AxisState>(d);
    }
  }
  return is_result ? kPartialState : kGradientPartialState;
}

TensorState OperatorInfo::operand_state(const Strategy& strategy,
                                        std::size_t operand,
                                        bool has_gradient) const {
  TensorState state;
  for (std::size_t axis = 0; axis < mesh_shape_.size(); ++axis) {
    const AxisState found = axis_state(rule_->operands[operand],
                                       static_cast<int>(operand),
                                       false,
                                       action(strategy, static_cast<int>(axis)));
    state.axes[axis] = found == kGradientPartialState && !has_gradient ? kReplicatedState : found;
  }
  return state;
}

TensorState OperatorInfo::result_state(const Strategy& strategy, std::size_t result) const {
  TensorState state;
  for (std::size_t axis = 0; axis < mesh_shape_.size(); ++axis) {
    const AxisAction& chosen = action(strategy, static_cast<int>(axis));
    AxisState found = axis_state(rule_->results[result], static_cast<int>(result), true, chosen);
    // a factor that is neither in this result nor reduced is redundant work for it
    if (found == kPartialState && chosen.kind != AxisAction::Kind::kPass) {
      const FactorKind kind = rule_->factors[static_cast<std::size_t>(chosen.factor)].kind;
      if (kind != FactorKind::kReduction) found = kReplicatedState;
    }
    state.axes[axis] = found;
  }
  return state;
}

std::vector<std::int64_t> OperatorInfo::local_factors(const Strategy& strategy) const {
  std::vector<std::int64_t> sizes;
  for (const Factor& factor : rule_->factors) sizes.push_back(factor.size);
  for (std::size_t axis = 0; axis < mesh_shape_.size(); ++axis) {
    const AxisAction& chosen = action(strategy, static_cast<int>(axis));
    // every device of a ring sees the whole ring factor in the end: it is work, not divided
    if (chosen.factor >= 0) sizes[static_cast<std::size_t>(chosen.factor)] /= mesh_shape_[axis];
    if (chosen.kind == AxisAction::Kind::kRoute)
      sizes[static_cast<std::size_t>(chosen.ring)] /= mesh_shape_[axis];
  }
  return sizes;
}

bool OperatorInfo::passes_partial(const Strategy& strategy) const {
  for (std::size_t axis = 0; axis < mesh_shape_.size(); ++axis) {
    if (action(strategy, static_cast<int>(axis)).kind == AxisAction::Kind::kPass) return true;
  }
  return false;
}

std::string OperatorInfo::label(const Strategy& strategy) const {
  std::string text;
  for (std::size_t axis = 0; axis < mesh_shape_.size(); ++axis) {
    const AxisAction& chosen = action(strategy, static_cast<int>(axis));
    if (axis > 0) text += ",";
    switch (chosen.kind) {
      case AxisAction::Kind::kFactor:
        text += rule_->factors[static_cast<std::size_t>(chosen.factor)].name;
        break;
      case AxisAction::Kind::kRing:
        text += rule_->factors[static_cast<std::size_t>(chosen.factor)].name + "=" +
                rule_->factors[static_cast<std::size_t>(chosen.ring)].name;
        break;
      case AxisAction::Kind::kRoute:
        text += rule_->factors[static_cast<std::size_t>(chosen.factor)].name + ">" +
                rule_->factors[static_cast<std::size_t>(chosen.ring)].name;
        break;
      case AxisAction::Kind::kPass:
        text += "partial";
        break;
      case AxisAction::Kind::kNone:
        text += "none";
        break;
    }
  }
  return text;
}

std::vector<std::int64_t> local_shape(const std::vector<std::int64_t>& shape,
                                      const TensorState& state,
                                      std::span<const std::int64_t> mesh_shape) {
  std::vector<std::int64_t> local = shape;
  for (std::size_t axis = 0; axis < mesh_shape.size(); ++axis) {
    if (is_sharded(state.axes[axis])) local[state.axes[axis]] /= mesh_shape[axis];
  }
  return local;
}

bool divides(const std::vector<std::int64_t>& shape,
             const TensorState& state,
             std::span<const std::int64_t> mesh_shape) {
  std::vector<std::int64_t> local = shape;
  for (std::size_t axis = 0; axis < mesh_shape.size(); ++axis) {
    const AxisState s = state.axes[axis];
    if (!is_sharded(s)) continue;
    if (s >= local.size() || local[s] % mesh_shape[axis] != 0) return false;
    local[s] /= mesh_shape[axis];
  }
  return true;
}

std::vector<TensorState> all_states(const std::vector<std::int64_t>& shape,
                                    std::span<const std::int64_t> mesh_shape,
                                    bool has_gradient,
                                    bool partial) {
  std::vector<AxisState> choices;
  for (std::size_t d = 0; d < shape.size() && d < 16; ++d)
    choices.push_back(static_cast<AxisState>(d));
  choices.push_back(kReplicatedState);
  if (has_gradient) choices.push_back(kGradientPartialState);
  if (partial) choices.push_back(kPartialState);
  std::vector<TensorState> states = {TensorState()};
  for (std::size_t axis = 0; axis < mesh_shape.size(); ++axis) {
    if (mesh_shape[axis] == 1) continue;
    std::vector<TensorState> next;
    for (const TensorState& state : states) {
      for (const AxisState choice : choices) {
        TensorState longer = state;
        longer.axes[axis] = choice;
        if (divides(shape, longer, mesh_shape.first(axis + 1))) next.push_back(longer);
      }
    }
    states = std::move(next);
  }
  return states;
}

}  // namespace meshplan

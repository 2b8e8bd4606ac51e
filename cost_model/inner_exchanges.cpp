// SPDX-License-Identifier: Apache-2.0
#include "cost_model/inner_exchanges.h"

#include <algorithm>

#include "cost_model/data_flow.h"
#include "lib/check.h"

namespace meshplan {

AxisSet axes_of_factor(const OperatorInfo& info, const Strategy& strategy, int factor) {
  AxisSet axes = 0;
  for (std::size_t axis = 0; axis < info.mesh_shape().size(); ++axis) {
    const AxisAction& action = info.action(strategy, static_cast<int>(axis));
    if (action.factor == factor || action.ring == factor) axes |= AxisSet{1} << axis;
  }
  return axes;
}

std::vector<bool> factors_in(const OperandRule& operand, std::size_t count) {
  std::vector<bool> in(count);
  for (const DimensionFactors& dim : operand.dims) {
    for (const int factor : dim) in[static_cast<std::size_t>(factor)] = true;
  }
  return in;
}

std::vector<InnerExchange> inner_exchanges(const Graph& graph,
                                           const Operator& op,
                                           const OperatorInfo& info,
                                           const Strategy& strategy) {
  const Rule& rule = *op.rule;
  const bool backward = graph.training && has_backward(graph, op);
  std::vector<InnerExchange> made;
  auto add = [&](Collective collective,
                 AxisSet axes,
                 bool in_backward,
                 std::int64_t count,
                 std::int64_t elements,
                 Bytes element_bytes,
                 OverlapKind overlap) {
    if (count == 0) return;
    made.push_back({collective, axes, in_backward, count, elements, element_bytes, overlap});
  };
  auto local_elements = [&](TensorId tensor, const TensorState& state) {
    return element_count(local_shape(graph.tensor(tensor).shape, state, info.mesh_shape()));
  };
  const std::vector<std::int64_t> sizes = info.local_factors(strategy);
  for (const bool in_backward : {false, true}) {
    // those of the backward are for the first operand's gradient; a scale's needs none
    if (in_backward && !(backward && op.inputs[0] && graph.tensor(*op.inputs[0]).has_gradient))
      continue;
    AxisSet axes = 0;
    for (std::size_t f = 0; f < rule.factors.size(); ++f) {
      if (exchanges_statistics(rule.factors[f], in_backward))
        axes |= axes_of_factor(info, strategy, static_cast<int>(f));
    }
    if (axes == 0) continue;
    // the first operand without the factors that are reduced
    std::int64_t statistics = rule.statistic_values;
    for (const DimensionFactors& dim : rule.operands[0].dims) {
      for (const int factor : dim) {
        const auto f = static_cast<std::size_t>(factor);
        if (!exchanges_statistics(rule.factors[f], in_backward)) statistics *= sizes[f];
      }
    }
    add(Collective::kAllReduce,
        axes,
        in_backward,
        in_backward ? rule.statistic_backward : rule.statistic_forward,
        statistics,
        4,
        OverlapKind::kActivation);
  }
  // halos, one dimension after the other: a later one carries the corners of the earlier ones
  for (std::size_t i = 0; i < op.inputs.size(); ++i) {
    if (!op.inputs[i]) continue;
    const Tensor& tensor = graph.tensor(*op.inputs[i]);
    Shape local =
        local_shape(tensor.shape, info.operand_state(strategy, i, true), info.mesh_shape());
    for (std::size_t d = 0; d < local.size(); ++d) {
      if (rule.operands[i].dims[d].size() != 1) continue;
      const int id = rule.operands[i].dims[d][0];
      const Factor& factor = rule.factors[static_cast<std::size_t>(id)];
      const AxisSet axes = axes_of_factor(info, strategy, id);
      if (factor.kind != FactorKind::kWindow || axes == 0) continue;
      const auto rows =
          halo(factor.window, factor.size, factor.size / sizes[static_cast<std::size_t>(id)]);
      MESHPLAN_CHECK(rows.has_value());
      const std::int64_t row = element_count(local) / local[d];
      const Bytes width = dtype_bytes(tensor.dtype);
      for (const std::int64_t count : {rows->before, rows->after}) {
        if (count == 0) continue;
        add(Collective::kPermute, axes, false, 1, count * row, width, OverlapKind::kActivation);
        if (backward && tensor.has_gradient)
          add(Collective::kPermute, axes, true, 1, count * row, width, OverlapKind::kActivation);
      }
      local[d] += rows->before + rows->after;
    }
  }
  // tokens to experts or back: the slots of one device change hands
  AxisSet route_axes = 0;
  int experts = -1;
  for (std::size_t axis = 0; axis < info.mesh_shape().size(); ++axis) {
    const AxisAction& action = info.action(strategy, static_cast<int>(axis));
    if (action.kind != AxisAction::Kind::kRoute) continue;
    route_axes |= AxisSet{1} << axis;
    experts = action.ring;
  }
  if (route_axes != 0) {
    const auto has_experts = [&](const OperandRule& operand) -> bool {
      return factors_in(operand, sizes.size())[static_cast<std::size_t>(experts)];
    };
    std::int64_t slots = 0;
    Bytes width = 0;
    auto see = [&](TensorId tensor, const TensorState& state) {
      slots = local_elements(tensor, state);
      width = dtype_bytes(graph.tensor(tensor).dtype);
    };
    for (std::size_t i = 0; i < op.inputs.size() && slots == 0; ++i) {
      if (op.inputs[i] && has_experts(rule.operands[i]))
        see(*op.inputs[i], info.operand_state(strategy, i, true));
    }
    for (std::size_t r = 0; r < op.outputs.size() && slots == 0; ++r) {
      if (has_experts(rule.results[r])) see(op.outputs[r], info.result_state(strategy, r));
    }
    add(Collective::kAllToAll, route_axes, false, 1, slots, width, OverlapKind::kActivation);
    if (backward)
      add(Collective::kAllToAll, route_axes, true, 1, slots, width, OverlapKind::kActivation);
  }
  for (std::size_t axis = 0; axis < info.mesh_shape().size(); ++axis) {
    const AxisAction& action = info.action(strategy, static_cast<int>(axis));
    if (action.kind != AxisAction::Kind::kRing) continue;
    std::int64_t exchanged = 0;
    Bytes width = 0;
    for (std::size_t i = 0; i < op.inputs.size(); ++i) {
      if (op.inputs[i] &&
          factors_in(rule.operands[i], sizes.size())[static_cast<std::size_t>(action.ring)]) {
        exchanged += local_elements(*op.inputs[i], info.operand_state(strategy, i, true));
        width = std::max<Bytes>(width, dtype_bytes(graph.tensor(*op.inputs[i]).dtype));
      }
    }
    // the rings of inner axes come first: what they have gathered goes round as one block
    for (std::size_t inner = axis + 1; inner < info.mesh_shape().size(); ++inner) {
      if (info.action(strategy, static_cast<int>(inner)).kind == AxisAction::Kind::kRing)
        exchanged *= info.mesh_shape()[inner];
    }
    const std::int64_t hops = info.mesh_shape()[axis] - 1;
    add(Collective::kPermute,
        AxisSet{1} << axis,
        false,
        hops,
        exchanged,
        width,
        OverlapKind::kRing);
    if (backward)
      add(Collective::kPermute,
          AxisSet{1} << axis,
          true,
          hops,
          2 * exchanged,
          width,
          OverlapKind::kRing);
  }
  return made;
}

}  // namespace meshplan

// SPDX-License-Identifier: Apache-2.0
#include "search/dimension_roles.h"

#include <algorithm>

namespace meshplan {

std::vector<std::optional<int>> follow_dimension(const Graph& graph, std::size_t number) {
  std::vector<std::optional<std::size_t>> dim_of(graph.tensors.size());
  for (std::size_t t = 0; t < graph.tensors.size(); ++t) {
    if (graph.tensors[t].role == Role::kInput && number < graph.tensors[t].shape.size())
      dim_of[t] = number;
  }
  std::vector<std::optional<int>> factors(graph.operators.size());
  for (std::size_t i = 0; i < graph.operators.size(); ++i) {
    const Operator& op = graph.operators[i];
    for (std::size_t k = 0; k < op.inputs.size() && !factors[i]; ++k) {
      if (!op.inputs[k] || !dim_of[index(*op.inputs[k])]) continue;
      const DimensionFactors& dim = op.rule->operands[k].dims[*dim_of[index(*op.inputs[k])]];
      if (!dim.empty()) factors[i] = dim.front();
    }
    if (!factors[i]) continue;
    for (std::size_t r = 0; r < op.outputs.size(); ++r) {
      const std::vector<DimensionFactors>& dims = op.rule->results[r].dims;
      for (std::size_t d = 0; d < dims.size(); ++d) {
        if (!dims[d].empty() && dims[d].front() == *factors[i]) dim_of[index(op.outputs[r])] = d;
      }
    }
  }
  return factors;
}

bool shards_parameter(const Graph& graph, const Operator& op, const AxisAction& action) {
  if (action.kind != AxisAction::Kind::kFactor) return false;
  for (std::size_t k = 0; k < op.inputs.size(); ++k) {
    if (!op.inputs[k] || graph.tensor(*op.inputs[k]).role != Role::kParameter) continue;
    for (const DimensionFactors& dim : op.rule->operands[k].dims) {
      if (std::find(dim.begin(), dim.end(), action.factor) != dim.end()) return true;
    }
  }
  return false;
}

}  // namespace meshplan

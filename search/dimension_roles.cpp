// SPDX-License-Identifier: Apache-2.0
#include "search/dimension_roles.h"

#include <algorithm>
#include <map>

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

std::vector<std::string> axis_names_by_use(PriceBook& book, const Assignment& assignment) {
  const Graph& graph = book.graph();
  const auto batch = follow_dimension(graph, 0);
  const auto sequence = follow_dimension(graph, 1);
  std::vector<std::string> names;
  std::map<std::string, int> taken;
  for (int axis = 0; axis < book.mesh_axes(); ++axis) {
    std::map<std::string, double> votes;
    double cut = 0;    // bytes of parameters that rest cut along the axis
    double whole = 0;  // and of the others
    for (std::size_t i = 0; i < graph.operators.size(); ++i) {
      const Operator& op = graph.operators[i];
      if (op.rule->family != OperatorFamily::kMatMul) continue;
      const AxisAction& action =
          book.info(static_cast<OperatorId>(i)).action(assignment.strategies[i], axis);
      if (action.kind != AxisAction::Kind::kFactor) continue;
      std::vector<std::int64_t> sizes;
      for (const Factor& factor : op.rule->factors) sizes.push_back(factor.size);
      const double flops = op.rule->flops(sizes);
      if (batch[i] && *batch[i] == action.factor) {
        votes["dp"] += flops;
      } else if (sequence[i] && *sequence[i] == action.factor) {
        votes["cp"] += flops;
      } else if (shards_parameter(graph, op, action)) {
        votes["tp"] += flops;
      }
    }
    for (std::size_t t = 0; t < graph.tensors.size(); ++t) {
      if (graph.tensors[t].role != Role::kParameter || graph.tensors[t].uses.empty()) continue;
      const double bytes = static_cast<double>(element_count(graph.tensors[t].shape));
      (assignment.parameters[t][static_cast<std::size_t>(axis)] == ParameterAction::kAll ? cut
                                                                                         : whole) +=
          bytes;
    }
    std::string name;
    double most = 0;
    for (const auto& [use, flops] : votes) {
      if (flops > most) {
        most = flops;
        name = use;
      }
    }
    if (name == "dp" && cut > whole) name = "fsdp";
    if (name.empty()) {
      name = "d" + std::to_string(axis);
    } else if (const int count = ++taken[name]; count > 1) {
      name += std::to_string(count);
    }
    names.push_back(std::move(name));
  }
  return names;
}

}  // namespace meshplan

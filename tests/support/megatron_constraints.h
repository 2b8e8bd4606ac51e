// SPDX-License-Identifier: Apache-2.0
// The constraints that a user of tensor parallelism writes: the batch dimension of the inputs, and
// one weight per kind of layer cut along its last dimension.
#pragma once

#include <cctype>
#include <cstdint>
#include <set>
#include <string>

#include "graph/constraints.h"
#include "graph/graph.h"

namespace meshplan::test {

/// "layers.3.mlp" -> "layers.*.mlp"; "" where there is no number.
inline std::string kind_of(const std::string& name) {
  std::string kind;
  bool numbered = false;
  for (std::size_t begin = 0; begin <= name.size();) {
    const std::size_t end = std::min(name.find('.', begin), name.size());
    const std::string part = name.substr(begin, end - begin);
    bool number = !part.empty();
    for (const char c : part) number = number && std::isdigit(static_cast<unsigned char>(c)) != 0;
    numbered = numbered || number;
    kind += (begin > 0 ? "." : "") + (number ? std::string("*") : part);
    begin = end + 1;
  }
  return numbered ? kind : "";
}

/// On the mesh (dp, tp); of every scope with a number in its path, the first product's weight.
inline Constraints megatron_constraints(const Graph& graph,
                                        std::int64_t dp,
                                        std::int64_t tp,
                                        std::int64_t batch) {
  Constraints made;
  made.file = "megatron.json";
  made.mesh = ConstraintMesh{{dp, tp}, {"dp", "tp"}, {}};
  for (const Tensor& tensor : graph.tensors) {
    if (tensor.role != Role::kInput || tensor.uses.empty() || tensor.shape.empty() ||
        tensor.shape[0] != batch)
      continue;
    made.tensors.push_back({tensor.name,
                            PlacementPattern{Placement(Shard{0}), Placement(Replicate{})},
                            0,
                            "megatron.json: /tensors/" + tensor.name});
  }
  std::set<std::string> scopes;
  for (const Operator& op : graph.operators) {
    const std::string scope = kind_of(op.scope);
    if (scope.empty() || op.rule->family != OperatorFamily::kMatMul) continue;
    for (const auto& input : op.inputs) {
      if (!input || graph.tensor(*input).role != Role::kParameter) continue;
      const Tensor& weight = graph.tensor(*input);
      if (weight.shape.size() < 2 || weight.shape.back() % tp != 0) continue;
      if (!scopes.insert(scope).second) break;
      const std::string name = kind_of(weight.name);
      made.tensors.push_back(
          {name.empty() ? weight.name : name,
           PlacementPattern{std::nullopt,
                            Placement(Shard{static_cast<int>(weight.shape.size()) - 1})},
           0,
           "megatron.json: /tensors/" + weight.name});
      break;
    }
  }
  return made;
}

}  // namespace meshplan::test

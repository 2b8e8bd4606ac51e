// SPDX-License-Identifier: Apache-2.0
#include "search/dimension_map.h"

#include <algorithm>
#include <string>
#include <utility>

namespace meshplan {

Result<DimensionMap> compose(const DimensionMap& first, const DimensionMap& second) {
  if (second.source_rank != static_cast<int>(first.dims.size())) {
    return fail(ErrorCode::kConflict,
                "",
                "the second map is of a tensor of " + std::to_string(second.source_rank) +
                    " dimensions, the first one makes a tensor of " +
                    std::to_string(first.dims.size()));
  }
  DimensionMap made{first.source_rank, {}};
  for (const std::vector<int>& sources : second.dims) {
    std::vector<int>& dims = made.dims.emplace_back();
    for (const int source : sources) {
      if (source < 0 || source >= second.source_rank)
        return fail(ErrorCode::kValue,
                    "",
                    "dimension " + std::to_string(source) + " is none of the tensor's " +
                        std::to_string(second.source_rank));
      for (const int dim : first.dims[static_cast<std::size_t>(source)]) {
        if (std::find(dims.begin(), dims.end(), dim) == dims.end()) dims.push_back(dim);
      }
    }
  }
  return made;
}

std::optional<DimensionMap> dimension_map(const Rule& rule) {
  const auto present = [](const OperandRule& operand) { return operand.present; };
  if (rule.results.size() != 1 ||
      std::count_if(rule.operands.begin(), rule.operands.end(), present) != 1)
    return std::nullopt;
  const OperandRule& operand = *std::find_if(rule.operands.begin(), rule.operands.end(), present);
  DimensionMap made{static_cast<int>(operand.dims.size()), {}};
  for (const DimensionFactors& result : rule.results.front().dims) {
    std::vector<int>& dims = made.dims.emplace_back();
    for (const int factor : result) {
      if (rule.factors[static_cast<std::size_t>(factor)].size == 1) continue;
      for (std::size_t d = 0; d < operand.dims.size(); ++d) {
        const DimensionFactors& source = operand.dims[d];
        const int dim = static_cast<int>(d);
        if (std::find(source.begin(), source.end(), factor) != source.end() &&
            std::find(dims.begin(), dims.end(), dim) == dims.end())
          dims.push_back(dim);
      }
    }
  }
  return made;
}

std::optional<int> cut_after(const DimensionMap& map, int source_dimension) {
  for (std::size_t i = 0; i < map.dims.size(); ++i) {
    if (!map.dims[i].empty() && map.dims[i].front() == source_dimension) return static_cast<int>(i);
  }
  return std::nullopt;
}

std::optional<TensorState> state_after(const DimensionMap& map, const TensorState& state) {
  TensorState made = state;
  for (AxisState& axis : made.axes) {
    if (!is_sharded(axis)) continue;
    const std::optional<int> dim = cut_after(map, axis);
    if (!dim) return std::nullopt;
    axis = static_cast<AxisState>(*dim);
  }
  return made;
}

}  // namespace meshplan

// SPDX-License-Identifier: Apache-2.0
// What the dimensions of the graph's inputs become along the operators.
#pragma once

#include <optional>
#include <vector>

#include "graph/graph.h"
#include "graph/operator_info.h"

namespace meshplan {

/// Which factor of each operator is the one that dimension `number` of the graph inputs becomes
/// (0: the batch, 1: the sequence); nullopt where it has none.
std::vector<std::optional<int>> follow_dimension(const Graph& graph, std::size_t number);

/// Does an axis that takes this action shard a parameter that the operator reads?
bool shards_parameter(const Graph& graph, const Operator& op, const AxisAction& action);

}  // namespace meshplan

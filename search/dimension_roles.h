// SPDX-License-Identifier: Apache-2.0
// What the dimensions of the graph's inputs become along the operators, and what a mesh axis is
// used for.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cost_model/evaluate.h"
#include "cost_model/price_book.h"

namespace meshplan {

/// Which factor of each operator is the one that dimension `number` of the graph inputs becomes
/// (0: the batch, 1: the sequence); nullopt where it has none.
std::vector<std::optional<int>> follow_dimension(const Graph& graph, std::size_t number);

/// Does an axis that takes this action shard a parameter that the operator reads?
bool shards_parameter(const Graph& graph, const Operator& op, const AxisAction& action);

/// A name for every mesh axis from what most of the matrix FLOPs use it for: dp (batch), fsdp
/// (batch, with parameters cut at rest), tp (weights), cp (sequence); a second axis of one use gets
/// a number: tp, tp2. Axes of no clear use are d0, d1, ...
std::vector<std::string> axis_names_by_use(PriceBook& book, const Assignment& assignment);

}  // namespace meshplan

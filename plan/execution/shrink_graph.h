// SPDX-License-Identifier: Apache-2.0
// shrink_graph: the same graph with small sizes, so that a plan made for billions of weights runs
// with real numbers in seconds. Every operator, tensor and placement stays; only sizes change.
//
// Sizes are products of atoms. The operators' rules say which dimensions are cut alike: where one
// rule splits a dimension into factors, its atom is split, and atoms that must be equal are joined.
// Every atom then becomes as small as the pieces allow that a plan cuts it into. What rules do not
// say (a window, a part that is sliced off) comes out of the operators' own type inference: where
// it refuses the small sizes, the dimensions of that operator shrink by one common divisor, and
// where that is refused as well they keep their sizes.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/graph.h"
#include "lib/result.h"

namespace meshplan {

/// Numbers of pieces per dimension, all of which must divide the new sizes as they divide the old.
using Pieces = std::vector<std::int64_t>;

/// `pieces[t]`: every cut of tensor t that occurs. Errors: kValue where the pieces do not divide
/// the graph's own sizes; kUnsupported where no smaller or equal sizes pass type inference (never
/// for a graph that resolve() made).
Result<Graph> shrink_graph(const Graph& graph, const std::vector<std::vector<Pieces>>& pieces);

}  // namespace meshplan

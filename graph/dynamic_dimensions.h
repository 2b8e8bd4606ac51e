// SPDX-License-Identifier: Apache-2.0
// Dynamic dimensions as a rule of what may be cut: a plan that is made for one size must hold for
// every size within min..max, in steps of multiple_of.
#pragma once

#include <functional>

#include "graph/graph.h"
#include "graph/graph_document.h"
#include "lib/result.h"

namespace meshplan {

/// Graphs with more dynamic dimensions than this are refused: one resolution per combination.
constexpr std::size_t kMostDynamicDimensions = 6;

/// Sets Tensor::units and Factor::unit of a graph that was resolved from `document`. `resolve_at`
/// resolves the document with other sizes. Errors: kUnsupported (too many dynamic dimensions),
/// kConflict where the graph does not hold, or is another one, at another size.
Result<void> limit_cuts(Graph& graph,
                        const GraphDocument& document,
                        std::int64_t microbatches,
                        const std::function<Result<Graph>(const GraphDocument&)>& resolve_at);

}  // namespace meshplan

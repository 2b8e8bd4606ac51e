// SPDX-License-Identifier: Apache-2.0
// What may be recomputed in the backward instead of being stored: the segments that the option
// `recompute` and the constraints' scopes name. timeline.h says what follows from them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "graph/constraints.h"
#include "graph/graph.h"
#include "lib/result.h"

namespace meshplan {

/// Per operator, the layer it belongs to: the outermost numbered component of its scope with all
/// before it ("model.layers.3" of "model.layers.3.mlp.act"), "" where none is a number.
std::vector<std::string> numbered_layers(const Graph& graph);

enum class RecomputeOption : std::uint8_t { kNone, kSelective, kSelectiveOp, kFull };
/// "none", "selective", "selective-op", "full"; nullopt for anything else.
std::optional<RecomputeOption> parse_recompute(const std::string& name);

/// Operators that may be recomputed, in segments.
struct Recomputation {
  std::vector<int> segment;  ///< per operator, -1: none; empty: nothing is recomputed
  /// Per operator: the segment whose values it reads without their being stored, its own or (an
  /// operator of the same layer that does not run again) the layer's.
  std::vector<int> region;
  /// Per segment: whether results that any operator outside reads are stored; if not, only those
  /// that another segment reads are.
  std::vector<bool> stores_results;
};

/// `kFull`: a segment per layer (the outermost numbered component of the scope; without any, per
/// outermost scope). `kSelective`: the runs of operators within a layer that cost little and are
/// read by other operators: everything but products with parameters, fused attention, convolutions,
/// embeddings, routes to experts and losses. `kSelectiveOp`: a segment per layer without these, but
/// with the second, fourth, ... of its products with parameters. `scopes`: operators taken out, and
/// scopes of which each instance is a segment. Nothing is recomputed in inference. Errors: kValue
/// for `kFull` and `kSelectiveOp` on a graph without scopes.
Result<Recomputation> find_recomputation(const Graph& graph,
                                         RecomputeOption option,
                                         const RecomputeScopes& scopes = {});

}  // namespace meshplan

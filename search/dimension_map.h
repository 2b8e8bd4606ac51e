// SPDX-License-Identifier: Apache-2.0
// DimensionMap: where the dimensions of a tensor come from in one that it is made of without a
// choice (transposed, reshaped, cast, computed element by element), and the composition of two such
// maps (MindSpore's ShapeMappingCombine, its transposes and its ReshapeDecompose).
#pragma once

#include <optional>
#include <vector>

#include "graph/operator_info.h"
#include "graph/rule.h"
#include "lib/result.h"

namespace meshplan {

/// dims[i]: the source's dimensions that dimension i is made of, major to minor; none for one of
/// its own (of size 1).
/// (s, b, h*d) of (b, s, h, d): {4, {{1}, {0}, {2, 3}}}.
struct DimensionMap {
  int source_rank = 0;
  std::vector<std::vector<int>> dims;
  friend bool operator==(const DimensionMap&, const DimensionMap&) = default;
};

/// First one map, then the other: of the last tensor's dimensions in the first tensor. A dimension
/// that is split comes from the whole of it in each part. Errors (with an empty `where`): kConflict
/// where the second map is of a tensor of another rank, kValue where it names no dimension of it.
Result<DimensionMap> compose(const DimensionMap& first, const DimensionMap& second);

/// The map of an operator of one operand and one result, by its rule; nullopt for any other.
std::optional<DimensionMap> dimension_map(const Rule& rule);

/// Where a cut of the source's dimension goes to: the first dimension that begins with it; nullopt
/// where none does (a minor part of a merged dimension).
std::optional<int> cut_after(const DimensionMap& map, int source_dimension);

/// The same for a state, axis by axis; replicated and Partial stay. nullopt where a cut has no
/// place.
std::optional<TensorState> state_after(const DimensionMap& map, const TensorState& state);

}  // namespace meshplan

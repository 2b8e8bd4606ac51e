// SPDX-License-Identifier: Apache-2.0
// The plan checker's own view of layouts and of what collectives do to them. Internal to
// check_plan*.cpp and its tests.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lib/placement.h"
#include "plan/plan.h"

namespace meshplan::checking {

using Sizes = std::vector<std::int64_t>;

/// A layout: which axes cut each tensor dimension, outermost first, and which reductions are open.
/// Axes of size 1 appear nowhere, so equal data means equal Cuts.
struct Cuts {
  std::vector<std::vector<int>> dims;                ///< per tensor dimension
  std::vector<std::optional<Reduction>> reductions;  ///< per mesh axis
  friend bool operator==(const Cuts&, const Cuts&) = default;

  bool has_partial() const;
};

/// nullopt where the placements are no layout of a tensor of this rank: wrong count, a dimension
/// out of range, a split factor that no order of the axes has.
std::optional<Cuts> cuts_of(const Placements& placements, std::size_t rank, const Sizes& mesh);
/// The placements, R on axes of size 1. Printed in messages.
Placements placements_of(const Cuts& cuts, const Sizes& mesh);
std::string text_of(const Cuts& cuts, const Sizes& mesh);

/// The largest shard. nullopt where a dimension does not divide, except (`uneven`) by one axis.
std::optional<Sizes> local_shape_of(const Cuts& cuts,
                                    const Sizes& shape,
                                    const Sizes& mesh,
                                    bool uneven);

/// PlanTensor::tensor_map of a layout whose axes of size 1 are taken from `placements`.
std::vector<std::vector<int>> tensor_map_of(const Placements& placements,
                                            std::size_t rank,
                                            const Sizes& mesh);

/// Applies one step to `cuts`; `axes` are the step's axes in group order. Returns what is wrong, or
/// "" if the step is possible. A permute or send_receive leads to the step's own placements.
std::string apply_step(const PlanStep& step,
                       const std::vector<int>& axes,
                       const Sizes& shape,
                       const Sizes& mesh,
                       Cuts& cuts);

/// What is wrong with the pairs (source, destination) of a permute between two layouts, or "".
/// Every device gets one block, of the part of the tensor that it must hold, and devices that
/// reduce together get every summand of it once. `ranks`: of the mesh by position; empty: the
/// positions.
std::string wrong_pairs(const std::vector<std::pair<std::int64_t, std::int64_t>>& pairs,
                        const Cuts& before,
                        const Cuts& after,
                        const Sizes& mesh,
                        const std::vector<std::int64_t>& ranks);

/// The axes of size above 1 whose coordinate selects something else in `b` than in `a`.
std::vector<int> changed_axes(const Cuts& a, const Cuts& b, const Sizes& mesh);

/// Product of sizes, saturating at 2^62.
std::int64_t product_of(const Sizes& sizes);

}  // namespace meshplan::checking

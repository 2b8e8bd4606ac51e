// SPDX-License-Identifier: Apache-2.0
// Redistributions on meshes with too many layouts to look at all: the parts that differ, cut out,
// and the sequences of rules. Internal to lib.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "lib/redistribution.h"
#include "lib/redistribution_moves.h"

namespace meshplan {

/// A redistribution on a mesh with more axes than a state has, without the axes that both layouts
/// replicate.
struct UsedAxes {
  std::vector<int> axes;
  std::vector<std::int64_t> sizes;
  Placements from;  ///< on these axes
  Placements to;
};

/// Nothing where the mesh is small enough as it is, or where a side has not one placement per axis.
std::optional<UsedAxes> used_axes(std::span<const std::int64_t> axis_sizes,
                                  std::span<const Placement> from,
                                  std::span<const Placement> to);
/// A price on the used axes.
CollectivePrice price_on(const UsedAxes& used, CollectivePrice price);
/// A plan on the used axes as one on all `axis_count` axes.
Redistribution on_all_axes(const UsedAxes& used, std::size_t axis_count, Redistribution plan);

/// The part of a redistribution in which its two ends differ.
struct ReducedProblem {
  std::vector<int> axes;            ///< mesh axes that take part
  std::vector<int> dims;            ///< tensor dimensions that take part
  std::vector<std::int64_t> shape;  ///< their sizes, divided by the cuts that stay
  Bytes dtype_bytes = 0;            ///< of an element and everything in the other dimensions
  LayoutCode from = 0;              ///< on these axes and dimensions
  LayoutCode to = 0;
  LayoutCode kept = 0;  ///< the bytes of the other axes
};

/// Axes that both ends use alike (the same outer cuts of a dimension, R, or the same pending
/// reduction) stay as they are; of the dimensions that neither end re-cuts, the two largest are
/// kept as room to move through.
ReducedProblem reduce_problem(std::span<const std::int64_t> axis_sizes,
                              std::span<const std::int64_t> shape,
                              Bytes dtype_bytes,
                              LayoutCode from,
                              LayoutCode to);

/// A plan of the reduced problem as a plan of the whole one that ends in `to`.
Redistribution restore_problem(std::span<const std::int64_t> axis_sizes,
                               const ReducedProblem& problem,
                               const Redistribution& plan,
                               LayoutCode to);

/// The cheapest of the rule-based sequences and of gather-everything-then-slice.
Redistribution cheapest_by_rules(std::span<const std::int64_t> axis_sizes,
                                 const CollectivePrice& price,
                                 std::span<const std::int64_t> shape,
                                 Bytes dtype_bytes,
                                 LayoutCode from,
                                 LayoutCode to,
                                 Division division);

/// Reduces and gathers everything, then slices and masks. Always possible.
Redistribution gather_then_slice(std::span<const std::int64_t> axis_sizes,
                                 const CollectivePrice& price,
                                 std::span<const std::int64_t> shape,
                                 Bytes dtype_bytes,
                                 LayoutCode from,
                                 LayoutCode to);

}  // namespace meshplan

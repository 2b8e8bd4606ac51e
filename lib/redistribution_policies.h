// SPDX-License-Identifier: Apache-2.0
// The sequences that rule-based systems emit between two layouts, for comparison and for users who
// must match them. Neither looks at prices; both are valid, neither is cheaper than a plan of the
// RedistributionPlanner on the same mesh.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "lib/redistribution.h"

namespace meshplan {

/// Gives the price function of a mesh of these axis sizes over the same devices.
using PriceOfMesh = std::function<CollectivePrice(std::span<const std::int64_t> axis_sizes)>;

/// The greedy rewriting of the hyper-parallel library: slice what is free, then all-to-all, then
/// gather; reductions first, as a reduce-scatter where the destination cuts by that axis. Where
/// that library splits a dimension by an axis that still cuts another one, the axis is freed first.
/// `use_all_to_all` = false replaces an all-to-all by a gather and a slice. Errors: as plan().
Result<Redistribution> hyper_parallel_redistribution(std::span<const std::int64_t> axis_sizes,
                                                     const CollectivePrice& price,
                                                     std::span<const std::int64_t> shape,
                                                     Bytes dtype_bytes,
                                                     std::span<const Placement> from,
                                                     std::span<const Placement> to,
                                                     bool use_all_to_all = true);

/// A piece of a mesh axis: `size` consecutive digits below `before` outer parts, printed x:(2)4.
struct SubAxis {
  int axis = 0;
  std::int64_t before = 1;  ///< product of the pieces outside it
  std::int64_t size = 1;
  friend auto operator<=>(const SubAxis&, const SubAxis&) = default;
};

/// A sequence on a mesh whose axes may be cut into pieces.
struct RefinedRedistribution {
  std::vector<SubAxis> axes;               ///< the axes that the steps speak of, outermost first
  std::vector<std::int64_t> axis_sizes;    ///< their sizes
  std::vector<std::int64_t> padded_shape;  ///< the tensor, rounded up to what the cuts divide
  bool refined = false;                    ///< some axis of the mesh is cut
  Placements from;                         ///< the source on these axes
  Redistribution steps;
};

/// The sequence of Shardy's pass from reshards to collectives: slice, permute, all-to-all, gather,
/// at most twice; an all-reduce and the slices behind it become a reduce-scatter. Where it needs
/// parts of a mesh axis, the mesh is refined. Dimensions that several axes cut unevenly are padded
/// to the next size that they divide. Errors: as plan() otherwise.
Result<RefinedRedistribution> shardy_redistribution(std::span<const std::int64_t> axis_sizes,
                                                    const PriceOfMesh& price,
                                                    std::span<const std::int64_t> shape,
                                                    Bytes dtype_bytes,
                                                    std::span<const Placement> from,
                                                    std::span<const Placement> to);

}  // namespace meshplan

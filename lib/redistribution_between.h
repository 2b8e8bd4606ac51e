// SPDX-License-Identifier: Apache-2.0
// Redistribution from a layout on one mesh to a layout on another mesh of the same job.
//
// Example: (2,4) to (4,2) over ranks 0..7. Both are groupings of the axes of the 2x2x2 mesh, their
// common refinement: the layouts are written on that mesh and redistributed there. Meshes without a
// common refinement, or over other ranks, exchange blocks by send and receive.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "lib/collective.h"
#include "lib/device_mesh.h"
#include "lib/placement.h"
#include "lib/redistribution.h"
#include "lib/redistribution_replay.h"
#include "lib/result.h"

namespace meshplan {

/// A mesh whose axes are pieces of the axes of two meshes over the same ranks.
struct MeshRefinement {
  std::vector<std::int64_t> sizes;  ///< outermost first, in the order of the first mesh
  std::vector<std::vector<int>>
      of_first;  ///< per axis of the first mesh: its pieces, outermost first
  std::vector<std::vector<int>> of_second;  ///< the same for the second mesh
};

/// The coarsest common refinement, or nothing where the meshes are not groupings of common pieces.
std::optional<MeshRefinement> common_refinement(const DeviceMesh& first, const DeviceMesh& second);

/// Placements on the pieces of a mesh's axes; `pieces` as in MeshRefinement. Errors: kUnsupported
/// (more than 8 pieces), those of encode_placements.
Result<Placements> refined_placements(std::span<const std::int64_t> axis_sizes,
                                      std::span<const std::int64_t> refined_sizes,
                                      std::span<const std::vector<int>> pieces,
                                      int tensor_rank,
                                      std::span<const Placement> placements);

/// One step with the ranks that act in it.
struct BetweenStep {
  RedistributionStep step;  ///< axes, order and `after` refer to `mesh`
  ReplayStep replay;        ///< in ranks
  DeviceMesh mesh;
};

struct RedistributionBetween {
  std::vector<BetweenStep> steps;
  Seconds time;
  Bytes bytes = 0;
};

/// Gives the price function of a mesh.
using PriceOfDeviceMesh = std::function<Result<CollectivePrice>(const DeviceMesh& mesh)>;

/// The plan on the common refinement, or where there is none the cheapest of: one permute that
/// brings the data into the other mesh's rank order and then such a plan; blocks sent directly.
/// Never dearer than gathering everything on one mesh and slicing on the other. Ranks that only one
/// mesh has take part by send and receive. Errors: as RedistributionPlanner::plan.
Result<RedistributionBetween> redistribute_between(const DeviceMesh& from_mesh,
                                                   const DeviceMesh& to_mesh,
                                                   const PriceOfDeviceMesh& price,
                                                   std::span<const std::int64_t> shape,
                                                   Bytes dtype_bytes,
                                                   std::span<const Placement> from,
                                                   std::span<const Placement> to);

}  // namespace meshplan

// SPDX-License-Identifier: Apache-2.0
// What every device has to do in one step of a redistribution: groups, pairs, sends. Enough to
// replay the step without knowing about layouts.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "lib/collective.h"
#include "lib/placement.h"
#include "lib/redistribution.h"
#include "lib/result.h"

namespace meshplan {

/// A device's position in the flat (row-major) rank list of the mesh, or its rank after
/// translation.
using DeviceRank = std::int64_t;

/// A block that one device copies to another; offsets and sizes per dimension, in local
/// coordinates.
struct BlockSend {
  DeviceRank source = 0;
  DeviceRank destination = 0;
  std::vector<std::int64_t> source_begin;
  std::vector<std::int64_t> destination_begin;
  std::vector<std::int64_t> size;
  friend bool operator==(const BlockSend&, const BlockSend&) = default;
};

/// One step as the devices execute it. Gathered pieces are concatenated, and split pieces (of
/// ceil(size / n), the last ones shorter) handed out, in group order.
struct ReplayStep {
  Collective collective = Collective::kAllReduce;
  std::vector<std::vector<DeviceRank>> groups;  ///< in group order; every device is in one group
  int dim = -1;
  int split_dim = -1;
  int concat_dim = -1;
  Reduction reduction = Reduction::kSum;
  std::vector<std::array<DeviceRank, 2>>
      pairs;                     ///< permute: source, destination; every device once each
  std::vector<BlockSend> sends;  ///< send_receive
};

/// The groups of devices that differ only in the coordinates of `order` (outermost digit first), by
/// position in the mesh; the groups stand in row-major order of the other coordinates.
std::vector<std::vector<DeviceRank>> device_groups(std::span<const std::int64_t> axis_sizes,
                                                   std::span<const int> order);

/// Source and destination of every device (by position) of a permute between two placements with
/// equal local shapes. Devices keep their data where they can (source = destination).
/// Errors: kValue where no permute leads from one to the other.
Result<std::vector<std::array<DeviceRank, 2>>> permute_pairs(
    std::span<const std::int64_t> axis_sizes,
    int tensor_rank,
    std::span<const Placement> before,
    std::span<const Placement> after);

/// The step as devices (by position) execute it. `before` are the placements that it starts from.
Result<ReplayStep> replay_step(std::span<const std::int64_t> axis_sizes,
                               int tensor_rank,
                               std::span<const Placement> before,
                               const RedistributionStep& step);

/// The local shapes that the sends of a send_receive fill.
std::map<DeviceRank, std::vector<std::int64_t>> received_shapes(const ReplayStep& step,
                                                                std::size_t tensor_rank);

/// Replaces positions by ranks: position p becomes ranks[p].
void translate(ReplayStep& step, std::span<const std::int64_t> ranks);

}  // namespace meshplan

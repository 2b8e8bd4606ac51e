// SPDX-License-Identifier: Apache-2.0
// Executes a redistribution on virtual devices and looks at the numbers.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "lib/layout.h"
#include "lib/redistribution_replay.h"
#include "lib/result.h"
#include "lib/virtual_devices.h"

namespace meshplan {

/// What the devices of `layout` (by rank) hold of `full`: their shard, and where the layout is
/// partial a term, made from the value by a fixed rule. Errors: Layout::check_shape().
Result<VirtualDevices> distribute(const DenseTensor& full, const Layout& layout);

/// The first element of a shard that is not what it should be.
struct ShardDifference {
  DeviceRank rank = 0;
  bool other_shape = false;         ///< the shard has another shape; nothing else is set
  std::vector<std::int64_t> index;  ///< in the whole tensor
  double expected = 0;
  double found = 0;
};

/// The first difference between what the devices hold and `full` under `layout`, in the order of
/// the mesh, or nullopt. Numbers differ where they are further apart than `tolerance` times the
/// larger of 1 and the largest number of `full`. Pending reductions are resolved from the innermost
/// axis outwards. Errors: kConflict (a pending reduction over unequal shapes), those of
/// Layout::check_shape().
Result<std::optional<ShardDifference>> first_difference(const VirtualDevices& devices,
                                                        const DenseTensor& full,
                                                        const Layout& layout,
                                                        double tolerance = 0);
/// The same of the devices by position.
Result<std::optional<ShardDifference>> first_difference(std::span<const DenseTensor> devices,
                                                        const DenseTensor& full,
                                                        const Layout& layout,
                                                        double tolerance = 0);

/// kConflict with the first device and element that differ, unless the devices hold exactly `full`
/// under `layout`.
Result<void> check_devices(const VirtualDevices& devices,
                           const DenseTensor& full,
                           const Layout& layout);

/// Distributes different numbers under `from`, executes the steps (in ranks) and checks the result
/// under `to`. Errors: kConflict (wrong data), kUnsupported (more than 2^24 numbers on all
/// devices).
Result<void> verify_redistribution(std::span<const std::int64_t> shape,
                                   const Layout& from,
                                   const Layout& to,
                                   std::span<const ReplayStep> steps);

}  // namespace meshplan

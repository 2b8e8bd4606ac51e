// SPDX-License-Identifier: Apache-2.0
// Executes a redistribution on virtual devices and looks at the numbers.
#pragma once

#include <cstdint>
#include <span>

#include "lib/layout.h"
#include "lib/redistribution_replay.h"
#include "lib/result.h"
#include "lib/virtual_devices.h"

namespace meshplan {

/// What the devices of `layout` (by rank) hold of `full`: their shard, and where the layout is
/// partial a term, made from the value by a fixed rule. Errors: Layout::check_shape().
Result<VirtualDevices> distribute(const DenseTensor& full, const Layout& layout);

/// kConflict with the first device and element that differ, unless the devices hold `full` under
/// `layout`. Pending reductions are resolved from the innermost axis outwards.
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

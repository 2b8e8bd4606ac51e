// SPDX-License-Identifier: Apache-2.0
// Test support: simple prices of collectives.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "lib/collective.h"
#include "lib/units.h"

namespace meshplan {

/// A ring of `n` devices; local passes at 1 TB/s.
inline Seconds ring_time(const CollectiveCall& call, double n, double latency, double bandwidth) {
  const double bytes = static_cast<double>(call.bytes);
  const double pass = (n - 1) * latency + (n - 1) / n * bytes / bandwidth;
  switch (call.collective) {
    case Collective::kAllReduce:
      return on_price_grid({2 * pass});
    case Collective::kAllGather:
    case Collective::kReduceScatter:
    case Collective::kAllToAll:
      return on_price_grid({pass});
    case Collective::kPermute:
    case Collective::kSendReceive:
    case Collective::kBroadcast:
      return on_price_grid({latency + bytes / bandwidth});
    case Collective::kSlice:
    case Collective::kMask:
      return on_price_grid({bytes / 1e12});
  }
  return {};
}

/// One level of 100 GB/s and 1 us.
inline CollectivePrice ring_price(std::vector<std::int64_t> sizes) {
  return [sizes = std::move(sizes)](const CollectiveCall& call) {
    double n = 1;
    for (std::size_t axis = 0; axis < sizes.size(); ++axis) {
      if ((call.axes >> axis & 1U) != 0) n *= static_cast<double>(sizes[axis]);
    }
    return ring_time(call, n, 1e-6, 100e9);
  };
}

/// The outermost axis crosses a network of 10 GB/s and 5 us, the others a link of 200 GB/s and 2
/// us.
inline CollectivePrice two_level_price(std::vector<std::int64_t> sizes) {
  return [sizes = std::move(sizes)](const CollectiveCall& call) {
    double n = 1;
    for (std::size_t axis = 0; axis < sizes.size(); ++axis) {
      if ((call.axes >> axis & 1U) != 0) n *= static_cast<double>(sizes[axis]);
    }
    const bool outer = (call.axes & 1U) != 0;
    return ring_time(call, n, outer ? 5e-6 : 2e-6, outer ? 10e9 : 200e9);
  };
}

}  // namespace meshplan

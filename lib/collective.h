// SPDX-License-Identifier: Apache-2.0
// The collectives that a redistribution is made of, and the shape of a function that prices them.
#pragma once

#include <array>
#include <cstdint>
#include <functional>

#include "lib/units.h"

namespace meshplan {

enum class Collective : std::uint8_t {
  kAllGather,
  kReduceScatter,
  kAllReduce,
  kAllToAll,
  kPermute,      ///< a relabelling of equal local shapes, one message in and out per device
  kSendReceive,  ///< general point-to-point pieces
  kBroadcast,
  kSlice,  ///< local: keep the own piece
  kMask,   ///< local, R -> P: the first of each group keeps its value, the others the identity
};

/// Those that use the network: the first values of the enumeration, in its order.
inline constexpr std::array kNetworkCollectives = {Collective::kAllGather,
                                                   Collective::kReduceScatter,
                                                   Collective::kAllReduce,
                                                   Collective::kAllToAll,
                                                   Collective::kPermute,
                                                   Collective::kSendReceive,
                                                   Collective::kBroadcast};

bool uses_network(Collective collective);

/// "all_gather", "reduce_scatter", ...: the names used in files.
const char* collective_name(Collective collective);

/// A set of mesh axes: bit i is mesh axis i (0 = outermost).
using AxisSet = std::uint32_t;

/// One collective as its price sees it.
struct CollectiveCall {
  Collective collective = Collective::kAllReduce;
  AxisSet axes = 0;  ///< the axes that its groups span
  /// Bytes of the larger side on one device: output of an all-gather, input of a reduce-scatter,
  /// input = output elsewhere. For kSlice and kMask the bytes that are written locally.
  Bytes bytes = 0;
};

/// Bytes that each of `devices` (1 and more) sends in one call whose larger side has `bytes` on one
/// device, rounded up: (n - 1) / n of them in a gather, a scatter and an exchange, twice that in an
/// all-reduce, all of them in a permutation and a broadcast, none locally. Stays at the largest
/// number where it would overflow.
Bytes moved_bytes(Collective collective, std::int64_t devices, Bytes bytes);

/// Seconds of one call. Must be >= 0, monotone in bytes, and on the price grid (units.h).
using CollectivePrice = std::function<Seconds(const CollectiveCall&)>;

}  // namespace meshplan

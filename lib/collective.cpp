// SPDX-License-Identifier: Apache-2.0
#include "lib/collective.h"

#include <algorithm>
#include <limits>

namespace meshplan {

bool uses_network(Collective collective) {
  return std::find(kNetworkCollectives.begin(), kNetworkCollectives.end(), collective) !=
         kNetworkCollectives.end();
}

const char* collective_name(Collective collective) {
  switch (collective) {
    case Collective::kAllGather:
      return "all_gather";
    case Collective::kReduceScatter:
      return "reduce_scatter";
    case Collective::kAllReduce:
      return "all_reduce";
    case Collective::kAllToAll:
      return "all_to_all";
    case Collective::kPermute:
      return "permute";
    case Collective::kSendReceive:
      return "send_receive";
    case Collective::kBroadcast:
      return "broadcast";
    case Collective::kSlice:
      return "slice";
    case Collective::kMask:
      return "mask";
  }
  return "";
}

Bytes moved_bytes(Collective collective, std::int64_t devices, Bytes bytes) {
  if (devices <= 1 || bytes <= 0) return 0;
  const Bytes others = bytes - bytes / devices;  // bytes * (devices - 1) / devices
  switch (collective) {
    case Collective::kAllGather:
    case Collective::kReduceScatter:
    case Collective::kAllToAll:
      return others;
    case Collective::kAllReduce: {
      constexpr Bytes kMost = std::numeric_limits<Bytes>::max();
      return others > kMost / 2 ? kMost : 2 * others;
    }
    case Collective::kPermute:
    case Collective::kSendReceive:
    case Collective::kBroadcast:
      return bytes;
    case Collective::kSlice:
    case Collective::kMask:
      return 0;
  }
  return 0;
}

}  // namespace meshplan

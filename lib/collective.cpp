// SPDX-License-Identifier: Apache-2.0
#include "lib/collective.h"

namespace meshplan {

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

}  // namespace meshplan

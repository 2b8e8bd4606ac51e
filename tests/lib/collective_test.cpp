// SPDX-License-Identifier: Apache-2.0
#include "lib/collective.h"

#include <limits>

#include "support/catch.h"

namespace meshplan::collective_test {

TEST_CASE("moved bytes are shares of the larger side, rounded up, and never overflow") {
  CHECK(moved_bytes(Collective::kAllGather, 8, 800) == 700);
  CHECK(moved_bytes(Collective::kReduceScatter, 3, 10) == 7);
  CHECK(moved_bytes(Collective::kAllReduce, 8, 800) == 1400);
  CHECK(moved_bytes(Collective::kAllToAll, 2, 800) == 400);
  CHECK(moved_bytes(Collective::kBroadcast, 2, 800) == 800);
  CHECK(moved_bytes(Collective::kSlice, 2, 800) == 0);
  constexpr Bytes kMost = std::numeric_limits<Bytes>::max();
  CHECK(moved_bytes(Collective::kAllReduce, 2, kMost) == kMost);
  for (const Collective c : kNetworkCollectives) {
    CHECK(moved_bytes(c, 1, 800) == 0);
    CHECK(moved_bytes(c, 4, 0) == 0);
    CHECK(moved_bytes(c, 4, kMost) > 0);
  }
}

}  // namespace meshplan::collective_test

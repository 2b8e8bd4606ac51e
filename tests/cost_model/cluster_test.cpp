// SPDX-License-Identifier: Apache-2.0
#include "cost_model/cluster.h"

#include "support/catch.h"
#include "test_clusters.h"

namespace meshplan::cluster_test {

namespace {

std::vector<std::int64_t> sizes(const Cluster& cluster) {
  std::vector<std::int64_t> result;
  for (const Level& level : cluster.levels) result.push_back(level.size);
  return result;
}

using Sizes = std::vector<std::int64_t>;

}  // namespace

TEST_CASE("a cluster is resized from the outside in", "[cluster]") {
  const Cluster pod =
      test::cluster({test::level(8, 300, 3), test::level(4, 25, 6), test::level(2, 10, 9)});
  REQUIRE(pod.devices() == 64);
  const auto resized = [&](std::int64_t n) {
    const Result<Cluster> result = pod.resized(n);
    REQUIRE(result.has_value());
    CHECK(result->devices() == n);
    CHECK(result->name == pod.name);
    return sizes(*result);
  };
  CHECK(resized(64) == Sizes{8, 4, 2});
  CHECK(resized(128) == Sizes{8, 4, 4});
  CHECK(resized(32) == Sizes{8, 4, 1});
  CHECK(resized(16) == Sizes{8, 2, 1});
  CHECK(resized(24) == Sizes{8, 3, 1});
  CHECK(resized(8) == Sizes{8, 1, 1});
  CHECK(resized(3) == Sizes{3, 1, 1});
  CHECK(resized(1) == Sizes{1, 1, 1});
}

TEST_CASE("a number of devices that does not fit the levels is a usage error", "[cluster]") {
  const Cluster pod = test::cluster({test::level(8, 300, 3), test::level(4, 25, 6)});
  for (const std::int64_t n : {12, 9, 33, 0, -8}) {
    const Result<Cluster> result = pod.resized(n);
    REQUIRE_FALSE(result.has_value());
    CHECK(result.error().code == ErrorCode::kUsage);
    CHECK(result.error().where == "--devices");
  }
  CHECK(pod.resized(12).error().message.find("8 and 16") != std::string::npos);
  CHECK_FALSE(pod.resized(kMaxDevices + 8).has_value());
}

TEST_CASE("a bandwidth curve interpolates transfer times", "[cluster]") {
  const BandwidthCurve curve{{{1000, 0.25}, {3000, 0.5}}, 1, 1};
  CHECK(curve.slowdown(10) == Approx(4.0));
  CHECK(curve.slowdown(1000) == Approx(4.0));
  CHECK(curve.slowdown(3000) == Approx(2.0));
  CHECK(curve.slowdown(1'000'000) == Approx(2.0));
  // 1000 bytes take 4000 units of time, 3000 take 6000: 2000 take 5000
  CHECK(curve.slowdown(2000) == Approx(2.5));
  CHECK(BandwidthCurve{}.slowdown(5) == 1.0);
}

}  // namespace meshplan::cluster_test

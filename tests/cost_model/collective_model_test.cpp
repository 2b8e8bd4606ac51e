// SPDX-License-Identifier: Apache-2.0
#include "cost_model/collective_model.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "support/catch.h"
#include "test_clusters.h"

namespace meshplan::collective_model_test {

using test::cluster;
using test::level;

namespace {

using Sizes = std::vector<std::int64_t>;

constexpr Collective kAll[] = {Collective::kAllGather,
                               Collective::kReduceScatter,
                               Collective::kAllReduce,
                               Collective::kAllToAll,
                               Collective::kPermute,
                               Collective::kSendReceive,
                               Collective::kBroadcast,
                               Collective::kSlice,
                               Collective::kMask};

constexpr double kGrid = 1.0 / 1099511627776.0;  // 2^-40 s

CollectiveModel model(const Cluster& machine, const Sizes& shape, const Sizes& ranks = {}) {
  Result<CollectiveModel> result = CollectiveModel::make(machine, shape, ranks);
  INFO((result ? "" : to_string(result.error())));
  REQUIRE(result.has_value());
  return *result;
}

double time(const CollectiveModel& m, Collective collective, AxisSet axes, Bytes bytes) {
  return m.time({collective, axes, bytes}).value;
}

Cluster pod() { return cluster({level(8, 300, 3), level(16, 25, 6)}); }

constexpr AxisSet kFirst = 1;
constexpr AxisSet kSecond = 2;

}  // namespace

TEST_CASE("within one level the times are those of the closed forms", "[collective]") {
  const double alpha = 3e-6;
  const double beta = 1.0 / 300e9;
  const Bytes bytes = 1 << 30;
  const double s = static_cast<double>(bytes);
  // two devices: a ring, a doubling and a direct exchange are the same thing
  const CollectiveModel pair = model(cluster({level(2, 300, 3)}), {2});
  CHECK(time(pair, Collective::kAllGather, 1, bytes) == Approx(alpha + s / 2 * beta));
  CHECK(time(pair, Collective::kReduceScatter, 1, bytes) == Approx(alpha + s / 2 * beta));
  CHECK(time(pair, Collective::kAllReduce, 1, bytes) == Approx(2 * alpha + s * beta));
  CHECK(time(pair, Collective::kAllToAll, 1, bytes) == Approx(alpha + s / 2 * beta));
  CHECK(time(pair, Collective::kPermute, 1, bytes) == Approx(alpha + s * beta));
  CHECK(time(pair, Collective::kBroadcast, 1, bytes) == Approx(alpha + s * beta));
  // eight: the bytes of a ring in three steps, as calls cost nothing here
  const CollectiveModel eight = model(cluster({level(8, 300, 3)}), {8});
  CHECK(time(eight, Collective::kAllGather, 1, bytes) == Approx(3 * alpha + 7.0 / 8 * s * beta));
  CHECK(time(eight, Collective::kReduceScatter, 1, bytes) ==
        Approx(3 * alpha + 7.0 / 8 * s * beta));
  CHECK(time(eight, Collective::kAllReduce, 1, bytes) == Approx(6 * alpha + 14.0 / 8 * s * beta));
  CHECK(time(eight, Collective::kBroadcast, 1, bytes) == Approx(3 * alpha + s * beta));
  CHECK(time(eight, Collective::kSendReceive, 1, bytes) == Approx(alpha + s * beta));
  // in one call it is the seven hops of a ring
  Cluster single = cluster({level(8, 300, 3)});
  single.efficiency.algorithms.staged = false;
  const CollectiveModel ring = model(single, {8});
  CHECK(time(ring, Collective::kAllGather, 1, bytes) == Approx(7 * alpha + 7.0 / 8 * s * beta));
  CHECK(time(ring, Collective::kAllReduce, 1, bytes) == Approx(14 * alpha + 14.0 / 8 * s * beta));
  CHECK(time(ring, Collective::kAllToAll, 1, bytes) == Approx(7 * alpha + 7.0 / 8 * s * beta));
  // without latencies a doubling has exactly the time of a ring, for any number of devices
  for (std::int64_t n = 2; n <= 13; ++n) {
    const CollectiveModel free = model(cluster({level(n, 300, 0)}), {n});
    const double share = static_cast<double>(n - 1) / static_cast<double>(n);
    CHECK(time(free, Collective::kAllGather, 1, bytes) == Approx(share * s * beta));
    CHECK(time(free, Collective::kAllReduce, 1, bytes) == Approx(2 * share * s * beta));
    CHECK(time(free, Collective::kAllToAll, 1, bytes) == Approx(share * s * beta));
  }
}

TEST_CASE("a gather also copies each device's own piece", "[collective]") {
  const double s = 1 << 30;
  Cluster machine = cluster({level(4, 300, 0)});
  machine.efficiency.own_piece_bandwidth = 500e9;
  const CollectiveModel m = model(machine, {4});
  for (const Collective c : {Collective::kAllGather, Collective::kReduceScatter})
    CHECK(time(m, c, 1, 1 << 30) == Approx(s * (3.0 / 4 / 300e9 + 1.0 / 4 / 500e9)));
  CHECK(time(m, Collective::kAllReduce, 1, 1 << 30) == Approx(s * 6.0 / 4 / 300e9));
  // never slower than a link
  machine.levels[0].bandwidth = 900e9;
  CHECK(time(model(machine, {4}), Collective::kAllGather, 1, 1 << 30) == Approx(s / 900e9));
}

TEST_CASE("an all-to-all takes the cheapest of direct, staged and log-step exchange",
          "[collective]") {
  const double alpha = 3e-6;
  const double beta = 1.0 / 300e9;
  const CollectiveModel eight = model(cluster({level(8, 300, 3)}), {8});
  const auto expected = [&](double s) {
    return std::min({7 * alpha + 7.0 / 8 * s * beta,              // direct
                     4 * alpha + (1.0 / 2 + 3.0 / 4) * s * beta,  // 2 x 4
                     3 * alpha + 3.0 / 2 * s * beta});            // 2 x 2 x 2
  };
  for (Bytes bytes = 1 << 10; bytes <= 1 << 30; bytes *= 2) {
    CHECK(time(eight, Collective::kAllToAll, 1, bytes) ==
          Approx(expected(static_cast<double>(bytes))).margin(kGrid));
  }
}

TEST_CASE("across levels a call runs at its slowest level, or in stages", "[collective]") {
  const double a0 = 3e-6;
  const double a1 = 6e-6;
  const double b0 = 1.0 / 300e9;
  const double b1 = 1.0 / 25e9;
  const Bytes bytes = 1 << 30;
  const double s = static_cast<double>(bytes);
  const Cluster two_nodes = cluster({level(8, 300, 3), level(2, 25, 6)});
  const CollectiveModel all = model(two_nodes, {16});
  // a ring in one call: 15/16 of the data pass every edge, eight devices share the outer one
  const double gather = 14 * a0 + a1 + 15.0 / 16 * s * std::max(b0, b1 / 8);
  CHECK(time(all, Collective::kAllGather, 1, bytes) == Approx(gather));
  CHECK(time(all, Collective::kReduceScatter, 1, bytes) == Approx(gather));
  // an all-reduce over trees in one call: S goes up and down inside, S over the eight outer links
  CHECK(time(all, Collective::kAllReduce, 1, bytes) ==
        Approx(14 * a0 + 2 * a1 + std::max(2 * s * b0, s / 8 * b1)));
  // direct: 7 of 16 parts stay in the node, 8 of 16 cross at the same time
  CHECK(time(all, Collective::kAllToAll, 1, Bytes{1} << 40) ==
        Approx(2 * (a1 - a0) + 15 * a0 + std::ldexp(1.0, 40) * 8.0 / 16 * b1));
  // one pipeline, at the rate of its slowest link
  CHECK(time(all, Collective::kPermute, 1, bytes) == Approx(a1 + s * b1));
  CHECK(time(all, Collective::kBroadcast, 1, bytes) == Approx(3 * a0 + a1 + s * b1));
  CHECK(all.level(1) == 1);

  // a library that only knows rings
  Cluster plain = two_nodes;
  plain.efficiency.algorithms = {false, false};
  const CollectiveModel ring = model(plain, {16});
  CHECK(time(ring, Collective::kAllGather, 1, bytes) == Approx(gather));
  CHECK(time(ring, Collective::kAllReduce, 1, bytes) == Approx(2 * gather));

  // a slow network: stages, with 1/2 of an eighth over the outer links, then 7/8 over the inner
  // ones
  Cluster slow = two_nodes;
  slow.levels[1].bandwidth = 2.5e9;
  const double in_stages = 3 * a0 + a1 + 7.0 / 8 * s * b0 + 1.0 / 2 * s / 8 * b1 * 10;
  CHECK(time(model(slow, {16}), Collective::kAllGather, 1, bytes) == Approx(in_stages));
  CHECK(time(model(slow, {16}), Collective::kReduceScatter, 1, bytes) == Approx(in_stages));

  // a strided group: one device per node, so everything crosses
  const CollectiveModel strided = model(cluster({level(8, 300, 3), level(2, 25, 6)}), {2, 8});
  CHECK(time(strided, Collective::kAllReduce, kFirst, bytes) == Approx(2 * a1 + s * b1));
  CHECK(time(strided, Collective::kAllReduce, kSecond, bytes) ==
        Approx(6 * a0 + 14.0 / 8 * s * b0));
  CHECK(strided.level(kFirst) == 1);
  CHECK(strided.level(kSecond) == 0);
  CHECK(strided.level(0) == -1);
  // dp=4, tp=4: ranks 0, 4, 8, 12 are two pairs
  const CollectiveModel mixed = model(cluster({level(8, 300, 3), level(2, 25, 6)}), {4, 4});
  CHECK(time(mixed, Collective::kAllGather, kFirst, bytes) ==
        Approx(a0 + a1 + 1.0 / 2 * s * b0 + 1.0 / 2 * s / 2 * b1));
}

TEST_CASE("a tree over more than two nodes sends twice as much out of each", "[collective]") {
  Cluster machine = cluster({level(8, 300, 0), level(4, 10, 0)});
  machine.efficiency.algorithms.staged = false;
  const double s = 1 << 30;
  // a ring: 2 * 31/32 of the data over eight outer links; a tree: 2
  CHECK(time(model(machine, {32}), Collective::kAllReduce, 1, 1 << 30) ==
        Approx(2 * 31.0 / 32 * s / 8 / 10e9));
  CHECK(time(model(machine, {16}), Collective::kAllReduce, 1, 1 << 30) == Approx(s / 8 / 10e9));
  machine.efficiency.algorithms.tree = false;
  CHECK(time(model(machine, {16}), Collective::kAllReduce, 1, 1 << 30) ==
        Approx(2 * 15.0 / 16 * s / 8 / 10e9));
}

TEST_CASE("a network that reduces takes its own time", "[collective]") {
  Cluster machine = cluster({level(8, 300, 1), level(4, 100, 5)});
  machine.levels[0].in_network_all_reduce = InNetworkReduction{250e9, {20e-6}};
  const double s = 1 << 30;
  // a ring would take 7/4 S at 300 GB/s
  CHECK(time(model(machine, {4, 8}), Collective::kAllReduce, kSecond, 1 << 30) ==
        Approx(20e-6 + s / 250e9));
  // of two devices a ring is faster
  CHECK(time(model(machine, {2}), Collective::kAllReduce, 1, 1 << 30) == Approx(2e-6 + s / 300e9));
  // over four nodes: trees between the nodes beside it
  CHECK(time(model(machine, {32}), Collective::kAllReduce, 1, 1 << 30) ==
        Approx(20e-6 + 20e-6 + s / 250e9));
}

TEST_CASE("in a fully connected level small groups have few links", "[collective]") {
  Cluster machine = cluster({level(8, 70, 0)});
  machine.levels[0].wiring = Wiring::kFullyConnected;
  machine.efficiency.algorithms.staged = false;
  const double s = 1 << 30;
  const CollectiveModel m = model(machine, {4, 2});
  CHECK(time(m, Collective::kAllReduce, kFirst | kSecond, 1 << 30) == Approx(14.0 / 8 * s / 70e9));
  CHECK(time(m, Collective::kAllReduce, kFirst, 1 << 30) == Approx(6.0 / 4 * s / 30e9));
  CHECK(time(m, Collective::kAllReduce, kSecond, 1 << 30) == Approx(s / 10e9));
  CHECK(time(m, Collective::kPermute, kFirst | kSecond, 1 << 30) == Approx(s / 10e9));
  // half a node has half the links, and each of them is what it was
  const Result<Cluster> half = machine.resized(4);
  REQUIRE(half.has_value());
  CHECK(half->levels[0].bandwidth == Approx(30e9));
  CHECK(time(model(*half, {4}), Collective::kAllReduce, 1, 1 << 30) == Approx(6.0 / 4 * s / 30e9));
}

TEST_CASE("a group may reach less than its devices together", "[collective]") {
  Cluster machine = cluster({level(8, 300, 0), level(2, 10, 0)});
  machine.efficiency.algorithms = {false, false};
  machine.levels[1].group_bandwidth = 40e9;
  const double s = 1 << 30;
  CHECK(time(model(machine, {16}), Collective::kAllGather, 1, 1 << 30) ==
        Approx(15.0 / 16 * s / 40e9));
  CHECK(time(model(machine, {4, 4}), Collective::kAllGather, kFirst, 1 << 30) ==
        Approx(3.0 / 4 * s / 20e9));
  CHECK(time(model(machine, {16}), Collective::kAllToAll, 1, 1 << 30) ==
        Approx(8.0 / 16 * s / 5e9));
}

TEST_CASE("oversubscription divides the bandwidth of its level only", "[collective]") {
  Cluster machine = cluster({level(8, 300, 3), level(2, 25, 6)});
  machine.levels[1].oversubscription = 4;
  const Bytes bytes = 1 << 30;
  const double s = static_cast<double>(bytes);
  const CollectiveModel m = model(machine, {2, 8});
  CHECK(time(m, Collective::kAllGather, kFirst, bytes) == Approx(6e-6 + s / 2 / 25e9 * 4));
  CHECK(time(m, Collective::kAllGather, kSecond, bytes) == Approx(9e-6 + s * 7 / 8 / 300e9));
}

TEST_CASE("explicit ranks are priced where they are", "[collective]") {
  const Cluster machine = *pod().resized(16);
  const Bytes bytes = 1 << 28;
  // the transposed mesh: dp inside the node, tp across
  Sizes transposed;
  for (std::int64_t i = 0; i < 8; ++i) {
    transposed.push_back(i);
    transposed.push_back(i + 8);
  }
  const CollectiveModel plain = model(machine, {2, 8});
  const CollectiveModel turned = model(machine, {8, 2}, transposed);
  for (const Collective c : kAll) {
    CHECK(time(plain, c, kFirst, bytes) == time(turned, c, kSecond, bytes));
    CHECK(time(plain, c, kSecond, bytes) == time(turned, c, kFirst, bytes));
    CHECK(time(plain, c, kFirst | kSecond, bytes) == time(turned, c, kFirst | kSecond, bytes));
  }
  const Result<DeviceMesh> mesh = DeviceMesh::make({8, 2}, {"tp", "dp"}, transposed);
  REQUIRE(mesh.has_value());
  const Result<CollectiveModel> of_mesh = CollectiveModel::make(machine, *mesh);
  REQUIRE(of_mesh.has_value());
  CHECK(time(*of_mesh, Collective::kAllReduce, kFirst, bytes) ==
        time(turned, Collective::kAllReduce, kFirst, bytes));
  // one of the two groups lies in a node, the other one across: the slower one counts
  const CollectiveModel uneven = model(machine, {2, 2}, {0, 1, 2, 8});
  CHECK(time(uneven, Collective::kAllReduce, kSecond, bytes) ==
        time(plain, Collective::kAllReduce, kFirst, bytes));
  // a sub-mesh of the second node
  const CollectiveModel node = model(machine, {4}, {8, 9, 10, 11});
  CHECK(node.level(1) == 0);
}

TEST_CASE("the shape of a group counts its parts per level", "[collective]") {
  const Cluster machine = cluster({level(4, 300, 3), level(2, 50, 5), level(3, 10, 9)});
  CHECK(group_shape(machine, Sizes{0, 1, 2}) == GroupShape{3, 1, 1});
  CHECK(group_shape(machine, Sizes{4, 0}) == GroupShape{1, 2, 1});
  CHECK(group_shape(machine, Sizes{16, 0, 8}) == GroupShape{1, 1, 3});
  CHECK(group_shape(machine, Sizes{0, 1, 4, 5, 8, 9, 12, 13}) == GroupShape{2, 2, 2});
  CHECK(group_shape(machine, Sizes{0, 1, 2, 3, 4}) == GroupShape{4, 2, 1});  // ragged
  CHECK(group_shape(machine, Sizes{7}) == GroupShape{1, 1, 1});
}

TEST_CASE("local moves cost a pass over memory and axes of one device cost nothing",
          "[collective]") {
  const CollectiveModel m = model(*pod().resized(8), {1, 8});
  CHECK(time(m, Collective::kSlice, kSecond, 1 << 30) == Approx(2.0 * (1 << 30) / 1e12));
  CHECK(time(m, Collective::kMask, kSecond, 1 << 30) == Approx(2.0 * (1 << 30) / 1e12));
  for (const Collective c : kAll) {
    CHECK(time(m, c, kFirst, 1 << 30) == 0.0);
    CHECK(time(m, c, 0, 1 << 30) == 0.0);
    CHECK(time(m, c, kSecond, 0) == 0.0);
    CHECK(time(m, c, kSecond, 1) >= 0.0);
    CHECK(m.moved({c, kFirst, 1 << 30}) == 0);
  }
  CHECK(m.group_size(kSecond) == 8);
  CHECK(m.group_size(kFirst) == 1);
}

TEST_CASE("moved bytes are those of the table, whatever the algorithm", "[collective]") {
  const CollectiveModel m = model(*pod().resized(16), {2, 8});
  CHECK(m.moved({Collective::kAllGather, kSecond, 800}) == 700);
  CHECK(m.moved({Collective::kReduceScatter, kSecond, 800}) == 700);
  CHECK(m.moved({Collective::kAllReduce, kSecond, 800}) == 1400);
  CHECK(m.moved({Collective::kAllToAll, kFirst, 800}) == 400);
  CHECK(m.moved({Collective::kPermute, kFirst, 800}) == 800);
  CHECK(m.moved({Collective::kSendReceive, kFirst, 800}) == 800);
  CHECK(m.moved({Collective::kBroadcast, kFirst, 800}) == 800);
  CHECK(m.moved({Collective::kSlice, kFirst, 800}) == 0);
  CHECK(m.moved({Collective::kMask, kFirst, 800}) == 0);
  CHECK(m.moved({Collective::kAllReduce, kFirst, std::numeric_limits<Bytes>::max()}) > 0);
}

TEST_CASE("curves slow small messages down, per collective and level", "[collective]") {
  Cluster machine = cluster({level(4, 100, 0), level(2, 10, 0)});
  BandwidthCurve& common = machine.efficiency.collectives.common;
  common.points = {{1'000'000, 0.25}, {100'000'000, 0.5}};
  common.devices = 4;
  machine.efficiency.collectives.own[Collective::kAllReduce].points = {{1, 1.0}};
  machine.levels[1].collectives.emplace();
  machine.levels[1].collectives->common.points = {{1, 0.1}};
  const CollectiveModel m = model(machine, {2, 4});
  CHECK(time(m, Collective::kAllGather, kSecond, 1000) == Approx(750 / 25e9).epsilon(1e-3));
  CHECK(time(m, Collective::kAllGather, kSecond, 200'000'000) == Approx(150e6 / 50e9));
  CHECK(time(m, Collective::kAllReduce, kSecond, 200'000'000) == Approx(300e6 / 100e9));
  CHECK(time(m, Collective::kAllGather, kFirst, 200'000'000) == Approx(100e6 / 1e9));
  // an all-reduce is never dearer than the two collectives that do the same
  machine.efficiency.collectives.own[Collective::kAllReduce].points = {{1, 0.01}};
  const CollectiveModel slow = model(machine, {2, 4});
  CHECK(time(slow, Collective::kAllReduce, kSecond, 1 << 20) ==
        Approx(time(slow, Collective::kAllGather, kSecond, 1 << 20) +
               time(slow, Collective::kReduceScatter, kSecond, 1 << 20))
            .margin(2 * kGrid));
}

TEST_CASE("the curve of one number of devices tells the others by the size of a piece",
          "[collective]") {
  Cluster machine = cluster({level(8, 100, 0), level(4, 10, 0)});
  machine.efficiency.algorithms = {false, false};
  BandwidthCurve& inner = machine.efficiency.collectives.common;
  inner.points = {{8'000'000, 0.25}, {80'000'000, 0.5}};
  inner.devices = 8;
  machine.levels[1].collectives.emplace();
  BandwidthCurve& outer = machine.levels[1].collectives->common;
  outer.points = {{16 * 8 * 1000, 0.2}, {16 * 8 * 10000, 0.4}};
  outer.devices = 16;
  outer.sharing = 8;
  // eight devices at 80 MB have pieces of 10 MB, as two devices at 20 MB
  const CollectiveModel m = model(machine, {4, 4, 2});
  CHECK(time(model(machine, {4, 8}), Collective::kAllGather, kSecond, 80'000'000) ==
        Approx(7.0 / 8 * 80e6 / 50e9));
  CHECK(time(m, Collective::kAllGather, 4, 20'000'000) == Approx(1.0 / 2 * 20e6 / 50e9));
  CHECK(time(m, Collective::kAllGather, 4, 2'000'000) == Approx(1.0 / 2 * 2e6 / 25e9));
  // between nodes: one device of each with pieces of 10 kB on its own link
  CHECK(time(model(machine, {4, 8}), Collective::kAllGather, kFirst, 40'000) ==
        Approx(3.0 / 4 * 40e3 / 4e9));
  // two of each share: 8 devices, pieces of 20 kB are 10 kB per link
  CHECK(time(model(machine, {8, 4}), Collective::kAllGather, kFirst, 160'000) ==
        Approx(std::max(7.0 / 8 * 160e3 / 2 / 4e9, 7.0 / 8 * 160e3 / 25e9)));
}

TEST_CASE("a fixed cost per call is added once", "[collective]") {
  Cluster machine = cluster({level(4, 100, 1)});
  machine.efficiency.collective_overhead = {10e-6};
  const CollectiveModel m = model(machine, {4});
  CHECK(time(m, Collective::kAllGather, 1, 4000) == Approx(13e-6 + 3000 / 100e9));
  CHECK(time(m, Collective::kAllReduce, 1, 4000) == Approx(16e-6 + 6000 / 100e9));
  // once per call: where hops are slow, two calls of three hops and of one
  machine = cluster({level(16, 100, 1)});
  machine.efficiency.collective_overhead = {2e-6};
  CHECK(time(model(machine, {16}), Collective::kAllGather, 1, 4000) ==
        Approx(4e-6 + 6e-6 + 3750 / 100e9));
}

TEST_CASE("meshes that are not on the cluster are refused", "[collective]") {
  const Cluster machine = *pod().resized(16);
  const auto code = [&](const Sizes& shape, const Sizes& ranks) {
    const Result<CollectiveModel> result = CollectiveModel::make(machine, shape, ranks);
    REQUIRE_FALSE(result.has_value());
    return result.error().code;
  };
  CHECK(code({32}, {}) == ErrorCode::kRank);
  CHECK(code({2}, {0, 16}) == ErrorCode::kRank);
  CHECK(code({2}, {0, -1}) == ErrorCode::kRank);
  CHECK(code({2}, {3, 3}) == ErrorCode::kDuplicate);
  CHECK(code({2}, {0, 1, 2}) == ErrorCode::kConflict);
  CHECK(code({0}, {}) == ErrorCode::kConflict);
  CHECK(code({-2, 2}, {}) == ErrorCode::kConflict);
  CHECK(code({std::int64_t{1} << 40, std::int64_t{1} << 40}, {}) == ErrorCode::kConflict);
  const Cluster large = cluster({level(kMaxDevices, 1, 1)});
  const Result<CollectiveModel> result = CollectiveModel::make(large, Sizes(13, 2));
  REQUIRE_FALSE(result.has_value());
  CHECK(result.error().code == ErrorCode::kUnsupported);
}

// ---------------------------------------------------------------------------------------- laws

namespace {

/// A random machine whose outer levels are slower, with curves half of the time.
Cluster random_machine(std::mt19937_64& random, const Sizes& sizes) {
  const auto between = [&](double a, double b) {
    return std::uniform_real_distribution<>(a, b)(random);
  };
  std::vector<Level> levels;
  double bandwidth = between(100, 500);
  const double first = bandwidth;
  double latency = between(0, 5);
  for (const std::int64_t size : sizes) {
    levels.push_back(level(size, bandwidth, latency));
    levels.back().name += "#" + std::to_string(levels.size());
    bandwidth /= between(1, 15);
    latency += between(0, 9);
  }
  Cluster machine = cluster(std::move(levels));
  if (between(0, 1) < 0.5) {
    machine.efficiency.collectives.common.points = {
        {1 << 16, between(0.05, 0.2)}, {1 << 22, between(0.2, 0.6)}, {1 << 28, between(0.6, 1)}};
    machine.efficiency.collectives.common.devices = std::int64_t{1} << random() % 5;
  }
  if (between(0, 1) < 0.5) machine.efficiency.collective_overhead = {between(0, 9) * 1e-6};
  if (between(0, 1) < 0.3)
    machine.levels[0].in_network_all_reduce =
        InNetworkReduction{first * 1e9 * between(0.2, 1), {between(0, 30) * 1e-6}};
  if (between(0, 1) < 0.5) machine.efficiency.own_piece_bandwidth = first * 1e9 * between(0.5, 4);
  if (between(0, 1) < 0.3) machine.levels.back().group_bandwidth = bandwidth * 1e9 * between(1, 8);
  return machine;
}

/// The time of a collective on one axis after the other, the best of both orders.
double staged(const CollectiveModel& m, Collective c, AxisSet a, AxisSet b, Bytes bytes) {
  const auto n = [&](AxisSet axes) { return m.group_size(axes); };
  const auto in_order = [&](AxisSet first, AxisSet second) {
    if (c == Collective::kAllGather) {  // the first stage makes what the second one gathers
      return time(m, c, first, bytes / n(second)) + time(m, c, second, bytes);
    }
    if (c == Collective::kReduceScatter) {
      return time(m, c, first, bytes) + time(m, c, second, bytes / n(first));
    }
    const double in_full = time(m, c, first, bytes) + time(m, c, second, bytes);
    if (c != Collective::kAllReduce) return in_full;
    return std::min(in_full,
                    time(m, Collective::kReduceScatter, first, bytes) +
                        time(m, c, second, bytes / n(first)) +
                        time(m, Collective::kAllGather, first, bytes));
  };
  return std::min(in_order(a, b), in_order(b, a));
}

}  // namespace

TEST_CASE("splitting a mesh axis never makes a collective dearer", "[collective][law]") {
  const std::uint64_t seed = 20240229;
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  const std::vector<Sizes> machines = {
      {16}, {8, 2}, {8, 4}, {4, 4}, {2, 8}, {4, 2, 4}, {6, 3}, {12}};
  for (int round = 0; round < 40; ++round) {
    for (const Sizes& sizes : machines) {
      const Cluster machine = random_machine(random, sizes);
      const std::int64_t n = machine.devices();
      const CollectiveModel whole = model(machine, {n});
      for (std::int64_t a = 1; a <= n; ++a) {
        if (n % a != 0) continue;
        const CollectiveModel split = model(machine, {a, n / a});
        const Bytes bytes = (Bytes{1} << (random() % 30)) * n;
        for (const Collective c : kAll) {
          INFO(collective_name(c) << " of " << bytes << " bytes on " << a << " x " << n / a);
          // the same devices have the same price under any mesh
          CHECK(time(whole, c, 1, bytes) == time(split, c, kFirst | kSecond, bytes));
          CHECK(time(whole, c, 1, bytes) <=
                staged(split, c, kFirst, kSecond, bytes) * (1 + 1e-12) + 2 * kGrid);
        }
      }
    }
  }
}

TEST_CASE("a group is priced by where its ranks stand, in whatever order", "[collective][law]") {
  const std::uint64_t seed = 20250711;
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 60; ++round) {
    const Cluster machine = random_machine(random, {4, 3, 2, 2});
    Sizes ranks(48);
    std::iota(ranks.begin(), ranks.end(), 0);
    std::shuffle(ranks.begin(), ranks.end(), random);
    ranks.resize(1 + random() % 12);  // a sub-mesh, anywhere
    const auto n = static_cast<std::int64_t>(ranks.size());
    // the most units of the level below in one unit of each level, counted the plain way
    GroupShape shape;
    std::int64_t below = 1;
    for (const Level& l : machine.levels) {
      const std::int64_t unit = below * l.size;
      std::map<std::int64_t, std::set<std::int64_t>> parts;
      for (const std::int64_t r : ranks) parts[r / unit].insert(r / below);
      std::int64_t most = 0;
      for (const auto& [u, inside] : parts)
        most = std::max(most, static_cast<std::int64_t>(inside.size()));
      shape.push_back(most);
      below = unit;
    }
    CHECK(group_shape(machine, ranks) == shape);
    const CollectiveModel m = model(machine, {n}, ranks);
    std::shuffle(ranks.begin(), ranks.end(), random);
    const CollectiveModel other = model(machine, {n}, ranks);
    // swapping whole nodes of a pod moves nobody nearer or farther
    Sizes moved;
    for (const std::int64_t r : ranks) moved.push_back(r / 12 * 12 + (r % 12 + 4) % 12);
    const CollectiveModel turned = model(machine, {n}, moved);
    const Bytes bytes = Bytes{1} << (random() % 30);
    for (const Collective c : kAll) {
      CHECK(time(m, c, 1, bytes) == time(other, c, 1, bytes));
      CHECK(time(m, c, 1, bytes) == time(turned, c, 1, bytes));
    }
    // consecutive ranks fill nodes, strided ones stand apart: 4 in one node against 4 in four
    const CollectiveModel mesh = model(machine, {12, 4});
    const CollectiveModel strided = model(machine, {4, 12});
    CHECK(mesh.level(kSecond) == 0);
    CHECK(strided.level(kFirst) > 0);
    CHECK(time(mesh, Collective::kSendReceive, kSecond, bytes) <=
          time(strided, Collective::kSendReceive, kFirst, bytes));
  }
}

TEST_CASE("the best of many algorithms that differ by rounding alone stays a short list of lines",
          "[collective]") {
  Cluster machine = cluster({level(64, 100, 1), level(60, 20, 5)});
  machine.efficiency.collective_overhead = {4e-6};
  machine.efficiency.collectives.common.points = {
      {1 << 20, 0.1}, {1 << 22, 0.2}, {1 << 24, 0.4}, {1 << 30, 0.8}};
  CollectiveAlgorithmBook book(machine);
  for (const Collective c : kNetworkCollectives)
    CHECK(book.time(c, {64, 60}).points().size() < 400);
}

TEST_CASE("compositions of collectives obey the triangle inequality", "[collective][law]") {
  const std::uint64_t seed = 77;
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 60; ++round) {
    const Cluster machine = random_machine(random, {8, 4});
    const CollectiveModel m = model(machine, {4, 2, 4});
    for (AxisSet axes = 1; axes < 8; ++axes) {
      const Bytes bytes = Bytes{1024} << (random() % 24);
      const double gather = time(m, Collective::kAllGather, axes, bytes);
      const double scatter = time(m, Collective::kReduceScatter, axes, bytes);
      CHECK(time(m, Collective::kAllReduce, axes, bytes) <= gather + scatter + 2 * kGrid);
    }
  }
}

TEST_CASE("prices grow with bytes and with devices, and fall with bandwidth", "[collective][law]") {
  const std::uint64_t seed = 4711;
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 30; ++round) {
    const Cluster machine = random_machine(random, {8, 4});
    const CollectiveModel m = model(machine, {2, 2, 8});
    Cluster faster = machine;
    for (Level& l : faster.levels) l.bandwidth *= std::uniform_real_distribution<>(1, 3)(random);
    const CollectiveModel f = model(faster, {2, 2, 8});
    for (const Collective c : kAll) {
      for (AxisSet axes = 1; axes < 8; ++axes) {
        double last = 0;
        for (Bytes bytes = 1; bytes < Bytes{1} << 40; bytes = bytes * 3 + 1) {
          const double now = time(m, c, axes, bytes);
          CHECK(now >= last);
          CHECK(on_price_grid({now}).value == now);
          CHECK(time(f, c, axes, bytes) <= now * (1 + 1e-12) + kGrid);
          last = now;
        }
      }
    }
  }
}

TEST_CASE("within one level more devices are never faster", "[collective][law]") {
  const std::uint64_t seed = 31337;
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 6; ++round) {
    Cluster node = round == 0 ? cluster({level(70, 300, 3)}) : random_machine(random, {70});
    std::vector<CollectiveModel> of;
    for (std::int64_t n = 1; n <= 70; ++n) of.push_back(model(node, {n}));
    for (Bytes bytes = 64; bytes <= Bytes{1} << 32; bytes *= 4) {
      for (const Collective c : kAll) {
        double last = 0;
        for (std::size_t n = 1; n <= 70; ++n) {
          const double now = time(of[n - 1], c, 1, bytes);
          INFO(collective_name(c) << " of " << bytes << " bytes on " << n);
          CHECK(now >= last);
          last = now;
        }
      }
    }
  }
}

}  // namespace meshplan::collective_model_test

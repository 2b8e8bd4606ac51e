// SPDX-License-Identifier: Apache-2.0
// Closed-form prices of collectives in other planners, reproduced with a cluster that has their
// constants. What becomes what stands at each function.
#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "cost_model/collective_model.h"
#include "cost_model/test_clusters.h"
#include "support/catch.h"

namespace meshplan::rival_collectives_test {

using nlohmann::json;
using test::cluster;
using test::level;

namespace {

json data() {
  std::ifstream file(std::string(MESHPLAN_TEST_DATA) + "/rival_collectives.json");
  return json::parse(file);
}

CollectiveModel model(const Cluster& machine, const std::vector<std::int64_t>& mesh) {
  auto result = CollectiveModel::make(machine, mesh);
  if (!result) FAIL(to_string(result.error()));
  return *result;
}

Collective named(const std::string& name) {
  for (const Collective c : kNetworkCollectives) {
    if (name == collective_name(c)) return c;
  }
  FAIL("no collective " << name);
  return {};
}

/// One call at a time, as those models price it.
Cluster single_calls(std::vector<Level> levels) {
  Cluster machine = cluster(std::move(levels));
  machine.efficiency.algorithms = {false, false};
  return machine;
}

/// Alpa and XLA: alpha + beta B (n - 1) / n, with alpha once per call and beta per axis. An axis is
/// a level: alpha is the fixed cost of a call, beta 1 / bandwidth (one unit of its time is a
/// microsecond here). Its all-to-all of a tensor of B bytes costs n / 2 times what a device sends
/// of its B / n: a fraction 2 / n of the bandwidth. It adds 0.1, 0.01 and 0.001 to break ties; here
/// ties are broken otherwise.
Cluster alpa_cluster(const json& one) {
  const auto mesh = one.at("mesh").get<std::vector<std::int64_t>>();
  const auto beta = one.at("beta").get<std::vector<double>>();
  std::vector<Level> levels;
  for (std::size_t axis = mesh.size(); axis-- > 0;) {
    levels.push_back(level(mesh[axis], 1, 0));
    levels.back().name += "#" + std::to_string(axis);
    levels.back().bandwidth = 1e6 / beta[axis];
    levels.back().collectives.emplace();
    if (mesh[axis] > 1) {
      levels.back().collectives->own[Collective::kAllToAll].points = {
          {1, 2.0 / static_cast<double>(mesh[axis])}};
    }
  }
  Cluster machine = single_calls(std::move(levels));
  machine.efficiency.collective_overhead = {one.at("alpha").at(0).get<double>() * 1e-6};
  return machine;
}

void check_alpa(const json& one) {
  const auto mesh = one.at("mesh").get<std::vector<std::int64_t>>();
  const CollectiveModel m = model(alpa_cluster(one), mesh);
  const auto axis = one.at("axis").get<std::size_t>();
  const std::map<std::string, double> tie = {
      {"all_gather", 0.1}, {"all_reduce", 0.01}, {"reduce_scatter", 0.001}, {"all_to_all", 0.001}};
  for (const auto& [name, expected] : one.at("expected").items()) {
    Bytes bytes = one.at("bytes").get<Bytes>();
    if (name == "all_to_all") bytes /= mesh[axis];  // ours counts what a device has
    const double ours = m.time({named(name), AxisSet{1} << axis, bytes}).value * 1e6;
    INFO(name);
    CHECK(ours + tie.at(name) == Approx(expected.get<double>()).epsilon(1e-9));
  }
}

/// A gather of the whole tensor per gathered axis, whatever was gathered before; each is cut down
/// to an integer before the tie-breaker is added.
void check_alpa_resharding(const json& one) {
  const CollectiveModel m =
      model(alpa_cluster(one), one.at("mesh").get<std::vector<std::int64_t>>());
  double sum = 0;
  for (const json& axis : one.at("gathered")) {
    const AxisSet axes = AxisSet{1} << axis.get<unsigned>();
    const double gather =
        m.time({Collective::kAllGather, axes, one.at("bytes").get<Bytes>()}).value * 1e6;
    sum += std::floor(gather + 1e-5) + 0.1;
  }
  CHECK(sum == Approx(one.at("expected").get<double>()).epsilon(1e-9));
}

/// DTensor: a fixed cost, a latency per hop of the ring, GiB/s.
void check_dtensor(const json& one) {
  const auto mesh = one.at("mesh").get<std::vector<std::int64_t>>();
  Cluster machine = single_calls({level(mesh[0], 1, one.at("hop_us").get<double>())});
  machine.levels[0].bandwidth = one.at("bandwidth").get<double>() * std::ldexp(1.0, 30);
  machine.efficiency.collective_overhead = {one.at("base_us").get<double>() * 1e-6};
  const CollectiveModel m = model(machine, mesh);
  const auto bytes = static_cast<Bytes>(one.at("gib").get<double>() * std::ldexp(1.0, 30));
  for (const auto& [name, expected] : one.at("expected").items()) {
    INFO(name);
    CHECK(m.time({named(name), 1, bytes}).value * 1e6 ==
          Approx(expected.get<double>()).epsilon(1e-6));
  }
}

/// What DTensor's tests say of its costs, with its constants.
void check_dtensor_properties(const json& one) {
  const auto mesh = one.at("mesh").get<std::vector<std::int64_t>>();
  std::int64_t devices = 1;
  for (const std::int64_t size : mesh) devices *= size;
  Cluster machine = single_calls({level(devices, 87.7, 0.6)});
  machine.efficiency.collective_overhead = {6.6e-6};
  const CollectiveModel m = model(machine, mesh);
  Bytes bytes = 4;
  for (const json& size : one.at("tensor")) bytes *= size.get<Bytes>();
  for (AxisSet axes = 1; axes < AxisSet{1} << mesh.size(); ++axes) {
    const double gather = m.time({Collective::kAllGather, axes, bytes}).value * 1e6;
    const double scatter = m.time({Collective::kReduceScatter, axes, bytes}).value * 1e6;
    const double reduce = m.time({Collective::kAllReduce, axes, bytes}).value * 1e6;
    CHECK(gather == scatter);
    CHECK(reduce + 1 < gather + scatter);
    CHECK(reduce > gather);
    CHECK(reduce > scatter);
  }
}

/// latency (us) + bytes / bandwidth (GB/s, of the whole size).
struct Line {
  double latency = 0;
  double rate = 1;
  double at(double bytes) const { return latency + bytes / (rate * 1e3); }
};

/// The cheapest of some lines as a curve of bus bandwidth over `link` (GB/s) on n devices, with the
/// least latency taken off: one point where the lines cross, one far away.
BandwidthCurve curve_of(std::vector<Line> lines, std::int64_t n, double passes, double link) {
  double least = lines[0].latency;
  for (const Line& line : lines) least = std::min(least, line.latency);
  const auto cheapest = [&](double bytes) {
    double best = lines[0].at(bytes);
    for (const Line& line : lines) best = std::min(best, line.at(bytes));
    return best;
  };
  std::vector<double> sizes = {std::ldexp(1.0, 50)};
  for (const Line& a : lines) {
    for (const Line& b : lines) {
      const double slopes = 1 / (a.rate * 1e3) - 1 / (b.rate * 1e3);
      const double crossing = std::floor((b.latency - a.latency) / slopes);
      if (slopes > 0 && crossing > 1 && a.at(crossing) <= cheapest(crossing) * (1 + 1e-9))
        sizes.push_back(crossing);
    }
  }
  std::sort(sizes.begin(), sizes.end());
  BandwidthCurve curve;
  curve.devices = n;
  const double share = passes * static_cast<double>(n - 1) / static_cast<double>(n);
  for (const double bytes : sizes) {
    const double fraction = share * bytes / ((cheapest(bytes) - least) * 1e3) / link;
    curve.points.push_back({static_cast<Bytes>(bytes), fraction});
  }
  return curve;
}

/// A node with these lines per collective: the least latency of a collective is the fixed cost of
/// its calls, so there is a cluster per collective.
double price(std::vector<Line> lines, Collective c, std::int64_t n, Bytes bytes) {
  constexpr double kLink = 300;
  double least = lines[0].latency;
  for (const Line& line : lines) least = std::min(least, line.latency);
  Cluster machine = single_calls({level(n, kLink, 0)});
  machine.efficiency.collective_overhead = {least * 1e-6};
  machine.efficiency.collectives.own[c] =
      curve_of(std::move(lines), n, c == Collective::kAllReduce ? 2 : 1, kLink);
  return model(machine, {n}).time({c, 1, bytes}).value * 1e6;
}

/// AutoParallel in one node. On NVSwitch of Hopper and later: latency + bytes / bandwidth by the
/// number of devices (twice the bandwidth on Blackwell); all-to-all 50 us + bytes / 380 GB/s (675).
/// On A100 the protocols of a ring: base + steps x hop + bytes / (share of 87.7 GB/s x n / steps),
/// the cheapest of LL (6.6 us, 0.6 us, 1/2), LL128 (14, 1.9, 0.92) and Simple (8.4, 3.4, 1);
/// all-to-all n hops of Simple at 0.7 of the bandwidth.
std::vector<Line> autoparallel_lines(const std::string& topology, Collective c, std::int64_t n) {
  if (topology == "a100x8") {
    const auto devices = static_cast<double>(n);
    if (c == Collective::kAllToAll) return {{8.4 + devices * 3.4, 0.7 * 87.7}};
    const double steps = (c == Collective::kAllReduce ? 2 : 1) * (devices - 1);
    std::vector<Line> lines;
    for (const auto& [base, hop, share] :
         std::vector<std::array<double, 3>>{{6.6, 0.6, 0.5}, {14.0, 1.9, 0.92}, {8.4, 3.4, 1.0}}) {
      lines.push_back({base + steps * hop, share * 87.7 * devices / steps});
    }
    return lines;
  }
  const bool blackwell = topology == "gb200_72";
  if (c == Collective::kAllToAll) return {{50, blackwell ? 675.0 : 380.0}};
  const bool reduce = c == Collective::kAllReduce;
  const std::map<std::int64_t, std::array<double, 4>> points = {
      {2, {8, 537, 10, 324}}, {4, {17, 434, 15, 236}}, {8, {30, 394, 31, 267}}};
  const auto& at = points.at(std::min<std::int64_t>(n, 8));
  return {{reduce ? at[2] : at[0], (reduce ? at[3] : at[1]) * (blackwell ? 2 : 1)}};
}

void check_nccl(const json& one) {
  const auto topology = one.at("topology").get<std::string>();
  const std::map<std::string, std::int64_t> devices = {
      {"a100x8", 8}, {"h100x8", 8}, {"h100x4", 4}, {"h100x2", 2}, {"gb200_72", 72}};
  const std::int64_t n = devices.at(topology);
  for (const auto& [name, expected] : one.at("expected").items()) {
    const Collective c = named(name);
    INFO(name);
    CHECK(price(autoparallel_lines(topology, c, n), c, n, one.at("bytes").get<Bytes>()) ==
          Approx(expected.get<double>()).epsilon(1e-5));
  }
}

/// Its points themselves: the difference of two sizes is the bandwidth, the rest the latency.
void check_points(const json& one, Collective c, std::int64_t n, double latency, double rate) {
  const std::string topology = "h100x" + std::to_string(n);
  const auto at = [&](Bytes bytes) {
    return price(autoparallel_lines(topology, c, n), c, n, bytes);
  };
  const Bytes small = Bytes{1} << 20;
  const Bytes large = Bytes{1} << 30;
  INFO(one.at("id"));
  const double slope = (at(large) - at(small)) / static_cast<double>(large - small);
  CHECK(1e-3 / slope == Approx(rate));
  CHECK(at(small) - slope * static_cast<double>(small) == Approx(latency));
}

}  // namespace

TEST_CASE("closed forms of other planners are reproduced with their constants", "[rival]") {
  const json document = data();
  for (const json& one : document.at("cases")) {
    const auto kind = one.at("kind").get<std::string>();
    INFO(one.at("id"));
    if (kind == "alpa") {
      check_alpa(one);
    } else if (kind == "alpa_resharding") {
      check_alpa_resharding(one);
    } else if (kind == "dtensor") {
      check_dtensor(one);
    } else if (kind == "dtensor_properties") {
      check_dtensor_properties(one);
    } else if (kind == "nccl") {
      check_nccl(one);
    } else if (kind == "nvswitch") {
      const auto n = one.at("ranks").get<std::int64_t>();
      for (const Collective c : {Collective::kAllGather, Collective::kAllReduce}) {
        const json& point = one.at(collective_name(c));
        check_points(one, c, n, point.at(0).get<double>(), point.at(1).get<double>());
      }
    } else if (kind == "a2a") {
      check_points(one,
                   Collective::kAllToAll,
                   8,
                   one.at("latency_us").get<double>(),
                   one.at("GBps").get<double>());
    } else {
      FAIL("unknown kind " << kind);
    }
  }
  for (const auto& [id, why] : document.at("skipped").items()) {
    INFO(id);
    CHECK(why.get<std::string>().size() > 20);
  }
}

}  // namespace meshplan::rival_collectives_test

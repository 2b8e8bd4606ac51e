// SPDX-License-Identifier: Apache-2.0
// What other systems do between two layouts, next to what the plan does. Every plan is executed,
// and costs no more than what it replaces.
#include <algorithm>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "cost_model/cluster.h"
#include "cost_model/collective_model.h"
#include "lib/device_mesh.h"
#include "lib/layout.h"
#include "lib/redistribution.h"
#include "lib/redistribution_between.h"
#include "lib/redistribution_verify.h"
#include "support/catch.h"
#include "support/redistribution_prices.h"

namespace meshplan::redistribution_other_systems_test {

using nlohmann::json;

namespace {

using Sizes = std::vector<std::int64_t>;

DeviceMesh mesh_of(const json& shape, const json& ranks) {
  auto mesh = ranks.is_null() ? DeviceMesh::make(shape.get<Sizes>(), {})
                              : DeviceMesh::make(
                                    shape.get<Sizes>(), {}, ranks.get<std::vector<std::int64_t>>());
  REQUIRE(mesh.has_value());
  return *mesh;
}

/// Tensor maps count axes from the right.
Placements of_map(const json& entries, const DeviceMesh& mesh) {
  TensorMap map;
  for (const json& entry : entries) {
    map.push_back(entry.is_array() ? entry.get<std::vector<int>>()
                                   : std::vector<int>{entry.get<int>()});
  }
  const auto layout = Layout::from_tensor_map(mesh, map);
  REQUIRE(layout.has_value());
  return layout->placements();
}

Placements side_of(const json& one, const std::string& side, const DeviceMesh& mesh) {
  if (one.contains(side + "_map")) return of_map(one.at(side + "_map"), mesh);
  std::string text;
  for (const json& part : one.at(side)) text += (text.empty() ? "" : ",") + part.get<std::string>();
  auto parsed = parse_placements(text);
  REQUIRE(parsed.has_value());
  return *parsed;
}

bool is_local(const std::string& collective) {
  return collective == "slice" || collective == "mask";
}
std::size_t calls_in(const std::vector<std::string>& names) {
  return static_cast<std::size_t>(std::count_if(
      names.begin(), names.end(), [](const std::string& name) { return !is_local(name); }));
}

/// One level; what `meshplan redistribute` takes where no cluster is given.
Cluster one_level(std::int64_t devices, double bandwidth, double latency) {
  Cluster cluster;
  cluster.name = "one level";
  cluster.device.name = "device";
  cluster.device.memory_bandwidth = 2e12;
  Level level;
  level.name = "network";
  level.size = devices;
  level.bandwidth = bandwidth;
  level.latency = {latency};
  cluster.levels.push_back(level);
  return cluster;
}

const PriceOfDeviceMesh kPrice = [](const DeviceMesh& mesh) -> Result<CollectivePrice> {
  auto model = CollectiveModel::make(one_level(mesh.size(), 100e9, 1e-6), mesh.shape());
  if (!model) return fail(model.error());
  return CollectivePrice([model = *model](const CollectiveCall& call) { return model.time(call); });
};

TEST_CASE("every case that is not replayed gives its reason, and they are few") {
  const auto read = [](const std::string& name) {
    std::ifstream file(std::string(MESHPLAN_TEST_DATA) + "/" + name);
    return json::parse(file);
  };
  std::set<std::string> replayed;
  for (const char* name : {"redistribution_other_systems.json", "operator_strategy_cases.json"}) {
    for (const json& one : read(name)) replayed.insert(one.at("id").get<std::string>());
  }
  std::set<std::string> ids;
  for (const json& area : read("redistribution_skipped_cases.json")) {
    INFO(area.at("area"));
    const json& skipped = area.at("skipped");
    CHECK(10 * skipped.size() <= area.at("cases").get<std::size_t>());
    for (const json& one : skipped) {
      const auto id = one.at("id").get<std::string>();
      INFO(id);
      CHECK(ids.insert(id).second);
      CHECK_FALSE(replayed.contains(id));
      CHECK(one.at("reason").get<std::string>().size() > 20);
      // it cannot be written down here
      CHECK_FALSE(parse_placements(one.at("refused").get<std::string>()).has_value());
    }
  }
  CHECK(ids.size() == 1);
}

}  // namespace

TEST_CASE("Between the layouts of other systems' tests the plan is right and takes no more calls") {
  std::ifstream file(MESHPLAN_TEST_DATA "/redistribution_other_systems.json");
  int planned = 0;
  int refused = 0;
  for (const json& one : json::parse(file)) {
    INFO(one.dump());
    const DeviceMesh mesh = mesh_of(one.at("mesh"), json());
    const DeviceMesh goal =
        one.contains("to_mesh") ? mesh_of(one.at("to_mesh"), one.value("to_ranks", json())) : mesh;
    const auto shape = one.at("shape").get<Sizes>();
    const int rank = static_cast<int>(shape.size());
    const Placements from = side_of(one, "from", mesh);
    const Placements to = side_of(one, "to", goal);
    const auto plan = redistribute_between(mesh, goal, kPrice, shape, 4, from, to);
    if (one.contains("error")) {
      REQUIRE_FALSE(plan.has_value());
      CHECK(error_code_name(plan.error().code) == one.at("error").get<std::string>());
      ++refused;
      continue;
    }
    REQUIRE(plan.has_value());
    std::vector<std::string> names;
    std::vector<ReplayStep> steps;
    for (const BetweenStep& step : plan->steps) {
      names.emplace_back(collective_name(step.step.collective));
      steps.push_back(step.replay);
    }
    CHECK(names == one.at("steps").get<std::vector<std::string>>());
    const auto source = Layout::from_placements(mesh, from, rank);
    const auto target = Layout::from_placements(goal, to, rank);
    REQUIRE((source && target));
    const auto right = verify_redistribution(shape, *source, *target, steps);
    CHECK((right ? "" : right.error().message) == "");
    if (one.contains("theirs"))
      CHECK(calls_in(names) <= calls_in(one.at("theirs").get<std::vector<std::string>>()));
    if (one.contains("calls")) CHECK(calls_in(names) <= one.at("calls").get<std::size_t>());
    if (one.contains("trace")) {
      // Their layouts on the way, each hop planned alone.
      RedistributionPlanner planner({mesh.shape().begin(), mesh.shape().end()}, *kPrice(mesh));
      Seconds theirs;
      Placements now = from;
      for (const json& next : one.at("trace")) {
        const Placements after = of_map(next, mesh);
        const auto hop = planner.plan(shape, 4, now, after);
        REQUIRE(hop.has_value());
        theirs += (*hop)->time;
        now = after;
      }
      CHECK(now == to);
      CHECK(plan->time <= theirs);
    }
    ++planned;
  }
  CHECK(planned == 26);
  CHECK(refused == 3);
}

TEST_CASE("All pairs of tensor maps of three dimensions on a 2x2x2 mesh end in the wanted map") {
  // Every map that uses an axis at most once, without orders: what other planners sweep.
  const DeviceMesh mesh = mesh_of({2, 2, 2}, json());
  std::vector<Placements> layouts;
  for (int code = 0; code < 64; ++code) {
    const std::vector<int> map = {code % 4 - 1, code / 4 % 4 - 1, code / 16 - 1};
    bool valid = true;
    for (int axis = 0; axis < 3; ++axis)
      valid = valid && std::count(map.begin(), map.end(), axis) < 2;
    if (valid) layouts.push_back(of_map(json(map), mesh));
  }
  REQUIRE(layouts.size() == 34);
  const Sizes shape = {4, 2, 6};
  RedistributionPlanner planner({2, 2, 2}, *kPrice(mesh));
  int wrong = 0;
  for (const Placements& from : layouts) {
    for (const Placements& to : layouts) {
      const auto plan = planner.plan(shape, 4, from, to);
      REQUIRE(plan.has_value());
      std::vector<ReplayStep> steps;
      Placements now = from;
      for (const RedistributionStep& step : (*plan)->steps) {
        auto replay = replay_step(mesh.shape(), 3, now, step);
        REQUIRE(replay.has_value());
        steps.push_back(*std::move(replay));
        now = step.after;
      }
      const auto source = Layout::from_placements(mesh, from, 3);
      const auto target = Layout::from_placements(mesh, to, 3);
      if (!verify_redistribution(shape, *source, *target, steps)) ++wrong;
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("Prices order collectives as DTensor's do and stay below its ring formula") {
  // One level of 87.7 GiB/s and 0.6 us; DTensor adds 6.6 us to every call.
  const auto model = CollectiveModel::make(one_level(8, 87.7 * 1073741824.0, 0.6e-6), Sizes{8});
  REQUIRE(model.has_value());
  const auto time = [&](Collective collective, double gib) {
    return model->time({collective, 1, static_cast<Bytes>(gib * 1073741824.0)}).value * 1e6;
  };
  struct Row {
    double gib;
    double gather;
    double all_reduce;
  };
  for (const Row& row :
       std::vector<Row>{{0.0625, 634.3747, 1262.1494}, {0.875, 8740.8456, 17475.0912}}) {
    const double wire = row.gib * 7 / 8 / 87.7 * 1e6;
    CHECK(time(Collective::kAllGather, row.gib) >= wire);
    CHECK(time(Collective::kAllGather, row.gib) <= row.gather);
    CHECK(time(Collective::kReduceScatter, row.gib) == time(Collective::kAllGather, row.gib));
    CHECK(time(Collective::kAllReduce, row.gib) >= 2 * wire);
    CHECK(time(Collective::kAllReduce, row.gib) <= row.all_reduce);
  }
  // Redistributions of a 10x10 tensor over 4 and an 8x8 tensor over 2x2.
  RedistributionPlanner line({4}, ring_price({4}));
  RedistributionPlanner square({2, 2}, ring_price({2, 2}));
  const auto cost =
      [](RedistributionPlanner& planner, const Sizes& shape, const char* from, const char* to) {
        const auto plan = planner.plan(shape, 4, *parse_placements(from), *parse_placements(to));
        REQUIRE(plan.has_value());
        return (*plan)->time;
      };
  const Sizes ten = {10, 10};
  CHECK(cost(line, ten, "S(0)", "S(0)") == Seconds{});
  CHECK(cost(line, ten, "P(sum)", "R") <=
        cost(line, ten, "P(sum)", "S(0)") + cost(line, ten, "S(0)", "R"));
  CHECK(cost(line, {8, 8}, "S(0)", "R") == cost(line, {8, 8}, "P(sum)", "S(0)"));
  // Never from a shard to a sum there; here gather and mask, or a mask of what is left out.
  CHECK(cost(line, ten, "S(0)", "P(sum)") > cost(line, ten, "S(0)", "R"));
  const Sizes eight = {8, 8};
  CHECK(cost(square, eight, "P(sum),P(sum)", "R,R") > cost(square, eight, "S(0),S(0)", "R,R"));
  CHECK(cost(square, eight, "P(sum),P(sum)", "R,R") >
        cost(square, eight, "P(sum),P(sum)", "S(0),S(0)"));
}

}  // namespace meshplan::redistribution_other_systems_test

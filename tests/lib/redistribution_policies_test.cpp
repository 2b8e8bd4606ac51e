// SPDX-License-Identifier: Apache-2.0
#include "lib/redistribution_policies.h"

#include <fstream>
#include <random>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "lib/device_mesh.h"
#include "lib/layout.h"
#include "lib/redistribution_moves.h"
#include "lib/redistribution_replay.h"
#include "support/catch.h"
#include "support/redistribution_prices.h"
#include "support/sharded_tensor.h"

namespace meshplan::redistribution_policies_test {

using nlohmann::json;

namespace {

/// Expected sequences, one case per line. Tensor maps count axes from the right. Steps of
/// hyper-parallel: [collective, reduction, dim or split dim, concat dim, group of `rank`]; of
/// shardy: [collective, dim or split dim, concat dim, pieces of axes as [axis, parts before,
/// size]].
std::vector<json> cases_of(const std::string& policy) {
  std::ifstream file(MESHPLAN_TEST_DATA "/redistribution_cases.json");
  std::vector<json> cases;
  for (json& one : json::parse(file)) {
    if (one.at("policy") == policy) cases.push_back(std::move(one));
  }
  return cases;
}

DeviceMesh mesh_of(const json& one) {
  const auto shape = one.at("mesh").get<Sizes>();
  auto mesh = one.contains("ranks") ? DeviceMesh::make(shape, {}, one.at("ranks").get<Sizes>())
                                    : DeviceMesh::make(shape, {});
  REQUIRE(mesh.has_value());
  return *mesh;
}

Placements side_of(const json& one, const std::string& side, const DeviceMesh& mesh) {
  if (one.contains(side)) {
    std::string text;
    for (const json& part : one.at(side))
      text += (text.empty() ? "" : ",") + part.get<std::string>();
    auto parsed = parse_placements(text);
    REQUIRE(parsed.has_value());
    return *parsed;
  }
  TensorMap map;
  for (const json& entry : one.at(side + "_map")) {
    map.push_back(entry.is_array() ? entry.get<std::vector<int>>()
                                   : std::vector<int>{entry.get<int>()});
  }
  PartialList partial(static_cast<std::size_t>(mesh.ndim()));
  if (one.contains(side + "_partial")) {
    std::size_t axis = 0;
    for (const json& entry : one.at(side + "_partial")) {
      if (!entry.is_null()) partial[axis] = Reduction::kSum;
      ++axis;
    }
  }
  auto layout = Layout::from_tensor_map(mesh, map, partial);
  REQUIRE(layout.has_value());
  return layout->placements();
}

bool reduces(Collective collective) {
  return collective == Collective::kAllReduce || collective == Collective::kReduceScatter;
}

/// Executes the steps; returns "" or what went wrong.
std::string fault_of(const Sizes& sizes,
                     const Sizes& shape,
                     const Placements& from,
                     const Placements& to,
                     const Redistribution& plan) {
  std::mt19937 random(3);
  const DenseTensor full = numbered(shape);
  VirtualDevices devices = distribute_by_meaning(full, sizes, from, random);
  Placements now = from;
  for (const RedistributionStep& step : plan.steps) {
    const auto replay = replay_step(sizes, static_cast<int>(shape.size()), now, step);
    if (!replay) return replay.error().message;
    if (auto done = devices.execute(*replay); !done) return done.error().message;
    now = step.after;
    if (!holds(devices, full, sizes, now)) return "wrong data after " + to_string(now);
  }
  return holds(devices, full, sizes, to) ? "" : "wrong data";
}

json merged(const json& pieces) {
  json result = json::array();
  for (const json& piece : pieces) {
    if (!result.empty() && result.back()[0] == piece[0] &&
        result.back()[1].get<int>() * result.back()[2].get<int>() == piece[1].get<int>()) {
      result.back()[2] = result.back()[2].get<int>() * piece[2].get<int>();
    } else {
      result.push_back(piece);
    }
  }
  return result;
}

}  // namespace

TEST_CASE(
    "The hyper-parallel policy gives that library's sequences, and right ones where it is wrong") {
  int same = 0;
  int corrected = 0;
  for (const json& one : cases_of("hyper-parallel")) {
    INFO(one.dump());
    const DeviceMesh mesh = mesh_of(one);
    const Sizes sizes(mesh.shape().begin(), mesh.shape().end());
    const auto shape = one.at("shape").get<Sizes>();
    const Placements from = side_of(one, "from", mesh);
    const Placements to = side_of(one, "to", mesh);
    const auto plan = hyper_parallel_redistribution(
        sizes, ring_price(sizes), shape, 4, from, to, one.value("all_to_all", true));
    REQUIRE(plan.has_value());
    CHECK(fault_of(sizes, shape, from, to, *plan) == "");
    if (!one.contains("steps")) {
      ++corrected;
      continue;
    }
    json steps = json::array();
    Placements now = from;
    for (const RedistributionStep& step : plan->steps) {
      auto replay = replay_step(sizes, static_cast<int>(shape.size()), now, step);
      REQUIRE(replay.has_value());
      translate(*replay, mesh.ranks());
      for (const auto& group : replay->groups) {
        if (std::find(group.begin(), group.end(), one.at("rank").get<std::int64_t>()) ==
            group.end())
          continue;
        steps.push_back({collective_name(step.collective),
                         reduces(step.collective) ? reduction_name(step.reduction) : "",
                         step.split_dim >= 0 ? step.split_dim : step.dim,
                         step.concat_dim,
                         group});
      }
      now = step.after;
    }
    CHECK(steps == one.at("steps"));
    ++same;
  }
  CHECK(same == 294);
  CHECK(corrected == 3);
}

TEST_CASE("The shardy policy gives that pass' sequences, parts of axes included") {
  int same = 0;
  for (const json& one : cases_of("shardy")) {
    INFO(one.dump());
    const DeviceMesh mesh = mesh_of(one);
    const Sizes sizes(mesh.shape().begin(), mesh.shape().end());
    const auto shape = one.at("shape").get<Sizes>();
    const Placements from = side_of(one, "from", mesh);
    const Placements to = side_of(one, "to", mesh);
    const PriceOfMesh price = [](std::span<const std::int64_t> refined) {
      return ring_price({refined.begin(), refined.end()});
    };
    const auto plan = shardy_redistribution(sizes, price, shape, 4, from, to);
    REQUIRE(plan.has_value());
    json steps = json::array();
    for (const RedistributionStep& step : plan->steps.steps) {
      json pieces = json::array();
      if (step.collective != Collective::kPermute) {
        for (const int axis : step.order) {
          const SubAxis& piece = plan->axes[static_cast<std::size_t>(axis)];
          pieces.push_back({piece.axis, piece.before, piece.size});
        }
      }
      steps.push_back({collective_name(step.collective),
                       step.split_dim >= 0 ? step.split_dim : step.dim,
                       step.concat_dim,
                       merged(pieces)});
    }
    CHECK(steps == one.at("steps"));
    if (element_count(sizes) * element_count(plan->padded_shape) < 20000) {
      const Placements goal =
          plan->steps.steps.empty() ? plan->from : plan->steps.steps.back().after;
      CHECK(fault_of(plan->axis_sizes, plan->padded_shape, plan->from, goal, plan->steps) == "");
    }
    ++same;
  }
  CHECK(same == 68);
}

TEST_CASE(
    "The rule-based sequences are right for every pair of layouts and never cheaper than the "
    "plan") {
  for (const auto& [sizes, shape] : std::vector<std::pair<Sizes, Sizes>>{
           {{2, 4}, {8, 8}}, {{2, 2}, {4, 4, 4}}, {{2, 3}, {6, 6}}, {{2, 2, 2}, {8}}}) {
    const MoveGraph graph(sizes, static_cast<int>(shape.size()), {Reduction::kSum});
    RedistributionPlanner planner(sizes, ring_price(sizes));
    const PriceOfMesh price = [](std::span<const std::int64_t> refined) {
      return ring_price({refined.begin(), refined.end()});
    };
    std::string first;
    int refined = 0;
    for (std::size_t i = 0; i < graph.size(); ++i) {
      for (std::size_t j = 0; j < graph.size(); ++j) {
        const Placements from = decode_placements(sizes, graph.state(i));
        const Placements to = decode_placements(sizes, graph.state(j));
        const auto best = planner.plan(shape, 4, from, to);
        const auto greedy =
            hyper_parallel_redistribution(sizes, ring_price(sizes), shape, 4, from, to);
        const auto shardy = shardy_redistribution(sizes, price, shape, 4, from, to);
        REQUIRE((best && greedy && shardy));
        std::string fault = fault_of(sizes, shape, from, to, *greedy);
        if (greedy->time < (*best)->time) fault = "hyper-parallel is cheaper";
        refined += shardy->refined ? 1 : 0;
        if (!shardy->refined) {
          if (shardy->steps.time < (*best)->time) fault = "shardy is cheaper";
          if (fault.empty()) fault = fault_of(sizes, shape, from, to, shardy->steps);
        }
        if (!fault.empty() && first.empty())
          first = to_string(from) + " -> " + to_string(to) + ": " + fault;
      }
    }
    CHECK(first == "");
    CHECK((sizes == Sizes{2, 4}) == (refined > 0));
  }
}

}  // namespace meshplan::redistribution_policies_test

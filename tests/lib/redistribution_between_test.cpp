// SPDX-License-Identifier: Apache-2.0
#include "lib/redistribution_between.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "lib/layout.h"
#include "lib/redistribution_moves.h"
#include "lib/redistribution_reshape.h"
#include "lib/redistribution_verify.h"
#include "support/catch.h"
#include "support/redistribution_prices.h"
#include "support/sharded_tensor.h"

namespace meshplan::redistribution_between_test {

namespace {

DeviceMesh mesh(Sizes shape, Sizes ranks = {}) {
  auto made = ranks.empty() ? DeviceMesh::make(std::move(shape), {})
                            : DeviceMesh::make(std::move(shape), {}, std::move(ranks));
  REQUIRE(made.has_value());
  return *made;
}

Placements placements(const char* text) {
  auto parsed = parse_placements(text);
  REQUIRE(parsed.has_value());
  return *parsed;
}

const PriceOfDeviceMesh kPrice = [](const DeviceMesh& of) {
  return Result<CollectivePrice>(ring_price({of.shape().begin(), of.shape().end()}));
};

std::string collectives_of(const RedistributionBetween& plan) {
  std::string text;
  for (const BetweenStep& step : plan.steps) {
    if (!text.empty()) text += ' ';
    text += collective_name(step.step.collective);
  }
  return text;
}

/// "" or what is wrong with the redistribution.
std::string fault_of(const DeviceMesh& from_mesh,
                     const DeviceMesh& to_mesh,
                     const Sizes& shape,
                     const Placements& from,
                     const Placements& to) {
  const auto plan = redistribute_between(from_mesh, to_mesh, kPrice, shape, 4, from, to);
  if (!plan) return plan.error().message;
  const auto source = Layout::from_placements(from_mesh, from, static_cast<int>(shape.size()));
  const auto goal = Layout::from_placements(to_mesh, to, static_cast<int>(shape.size()));
  if (!source || !goal) return "no layout";
  std::vector<ReplayStep> steps;
  Seconds time;
  for (const BetweenStep& step : plan->steps) {
    steps.push_back(step.replay);
    time += step.step.time;
  }
  if (time != plan->time) return "the time is not the sum of the steps";
  const auto done = verify_redistribution(shape, *source, *goal, steps);
  return done ? "" : done.error().message;
}

Placements random_layout(const DeviceMesh& of, const Sizes& shape, std::mt19937& random) {
  const MoveGraph graph(
      {of.shape().begin(), of.shape().end()}, static_cast<int>(shape.size()), {Reduction::kSum});
  while (true) {
    const auto state =
        graph.state(std::uniform_int_distribution<std::size_t>(0, graph.size() - 1)(random));
    if (local_elements(of.shape(), shape, state) >= 0) return decode_placements(of.shape(), state);
  }
}

}  // namespace

TEST_CASE("Meshes over the same ranks are related through their common refinement") {
  const auto found = common_refinement(mesh({2, 4}), mesh({4, 2}));
  REQUIRE(found.has_value());
  CHECK(found->sizes == Sizes{2, 2, 2});
  CHECK(found->of_first == std::vector<std::vector<int>>{{0}, {1, 2}});
  CHECK(found->of_second == std::vector<std::vector<int>>{{0, 1}, {2}});
  // A transposed mesh: ranks 0,4,1,5,2,6,3,7.
  const auto transposed = common_refinement(mesh({2, 4}), mesh({4, 2}, {0, 4, 1, 5, 2, 6, 3, 7}));
  REQUIRE(transposed.has_value());
  CHECK(transposed->of_second == std::vector<std::vector<int>>{{1}, {0}});
  CHECK_FALSE(common_refinement(mesh({2, 3}), mesh({3, 2})).has_value());
  CHECK_FALSE(common_refinement(mesh({4}), mesh({4}, {0, 2, 3, 1})).has_value());
  CHECK_FALSE(common_refinement(mesh({2}), mesh({4})).has_value());
}

TEST_CASE("Between meshes collectives are used where they fit, blocks are sent where not") {
  const auto steps =
      [](const DeviceMesh& a, const DeviceMesh& b, const char* from, const char* to) {
        const auto plan =
            redistribute_between(a, b, kPrice, Sizes{48, 48}, 4, placements(from), placements(to));
        REQUIRE(plan.has_value());
        return collectives_of(*plan);
      };
  CHECK(steps(mesh({2, 4}), mesh({4, 2}), "S(0),S(0)", "S(0),S(0)").empty());
  CHECK(steps(mesh({2, 4}), mesh({4, 2}), "S(0),R", "S(0),R") == "slice");
  CHECK(steps(mesh({2, 4}), mesh({8}), "S(0),S(1)", "S(1)").find("all_to_all") !=
        std::string::npos);
  CHECK(steps(mesh({2, 3}), mesh({3, 2}), "S(0),R", "S(0),R") == "send_receive");
  CHECK(steps(mesh({2}), mesh({4}), "S(0)", "S(0)") == "send_receive");
  CHECK(steps(mesh({2, 2}), mesh({2, 2}, {3, 2, 1, 0}), "S(0),S(1)", "S(0),S(1)") == "permute");
}

TEST_CASE("What every device of the other mesh holds already takes no step") {
  const auto plan = [](const DeviceMesh& a, const DeviceMesh& b, const char* from, const char* to) {
    auto found =
        redistribute_between(a, b, kPrice, Sizes{8, 8}, 4, placements(from), placements(to));
    REQUIRE(found.has_value());
    return *std::move(found);
  };
  CHECK(plan(mesh({2, 2}), mesh({1}), "R,R", "R").steps.empty());
  CHECK(plan(mesh({2, 2}), mesh({2}), "S(0),S(1)", "S(1)").steps.size() == 1);
  CHECK(plan(mesh({2, 2}), mesh({2}), "R,S(1)", "S(1)").steps.empty());
  // One device, whatever the axes are called.
  CHECK(plan(mesh({1}), mesh({1, 1}), "S(0)", "P(sum),S(1)").steps.empty());
  // An axis of size 1 ends as what was asked for.
  const auto named = plan(mesh({2}), mesh({1}), "S(0)", "P(sum)");
  REQUIRE(named.steps.size() == 1);
  CHECK(to_string(named.steps.back().step.after) == "P(sum)");
}

TEST_CASE("Every kind of second mesh is reached with the right data") {
  std::mt19937 random(5);
  struct Pair {
    DeviceMesh from;
    DeviceMesh to;
  };
  std::vector<Pair> pairs = {{mesh({2, 4}), mesh({4, 2})},
                             {mesh({2, 4}), mesh({8})},
                             {mesh({2, 4}), mesh({4, 2}, {0, 4, 1, 5, 2, 6, 3, 7})},
                             {mesh({2, 3}), mesh({3, 2})},
                             {mesh({2, 3}), mesh({6})},
                             {mesh({12}), mesh({3, 4})},
                             {mesh({2, 2}), mesh({2, 4})},
                             {mesh({2, 4}), mesh({2, 2}, {2, 3, 6, 7})},
                             {mesh({3}), mesh({2, 2}, {5, 1, 7, 2})},
                             {mesh({1, 4}), mesh({2, 1, 2})}};
  for (int i = 0; i < 6; ++i) {
    Sizes ranks(8);
    std::iota(ranks.begin(), ranks.end(), 0);
    std::shuffle(ranks.begin(), ranks.end(), random);
    pairs.push_back({mesh({2, 4}), mesh({2, 2, 2}, ranks)});
  }
  for (const Pair& pair : pairs) {
    for (const Sizes& shape : std::vector<Sizes>{{24}, {24, 12}, {5, 7}}) {
      for (int i = 0; i < 15; ++i) {
        const Placements from = random_layout(pair.from, shape, random);
        const Placements to = random_layout(pair.to, shape, random);
        INFO(to_string(from) << " on " << to_string(pair.from) << " -> " << to_string(to) << " on "
                             << to_string(pair.to));
        CHECK(fault_of(pair.from, pair.to, shape, from, to) == "");
      }
    }
  }
}

TEST_CASE("A verification that should fail does") {
  const DeviceMesh line = mesh({4});
  const auto sharded = Layout::from_placements(line, placements("S(0)"), 1);
  const auto whole = Layout::from_placements(line, placements("R"), 1);
  REQUIRE((sharded && whole));
  const auto nothing = verify_redistribution(Sizes{8}, *sharded, *whole, {});
  REQUIRE_FALSE(nothing.has_value());
  ReplayStep gather;
  gather.collective = Collective::kAllGather;
  gather.dim = 0;
  gather.groups = {{0, 1, 2, 3}};
  CHECK(verify_redistribution(Sizes{8}, *sharded, *whole, std::vector{gather}).has_value());
  gather.groups = {{0, 2, 1, 3}};  // group order matters
  CHECK_FALSE(verify_redistribution(Sizes{8}, *sharded, *whole, std::vector{gather}).has_value());
  gather.groups = {{0, 1, 2, 4}};
  CHECK_FALSE(verify_redistribution(Sizes{8}, *sharded, *whole, std::vector{gather}).has_value());
  CHECK(verify_redistribution(Sizes{std::int64_t{1} << 30}, *sharded, *whole, {}).error().code ==
        ErrorCode::kUnsupported);
}

TEST_CASE("A view relates dimensions by common factors") {
  const auto view = [](const Sizes& from, const Sizes& to) {
    auto made = ViewRelation::make(from);
    REQUIRE(made.has_value());
    REQUIRE(made->reshape(to).has_value());
    return *made;
  };
  const Sizes two = {2, 2};
  CHECK(view({8, 16}, {2, 4, 16}).to_string() ==
        "out 0 <- in 0 / 4; out 1 <- in 0 % 4 / 1; out 2 <- in 1 / 1");
  CHECK(view({8, 16}, {128}).to_string() == "out 0 <- in 0 / 1; out 0 <- in 1 / 1");
  CHECK(view({4, 3}, {3, 4}).to_string().empty());
  CHECK(view({4, 3, 5}, {3, 4, 5}).to_string() == "out 2 <- in 2 / 1");
  const auto carried = [&](const Sizes& from, const Sizes& to, const char* text) {
    const auto result = view(from, to).carry(two, placements(text));
    return result ? to_string(*result) : std::string("none");
  };
  CHECK(carried({8, 16}, {2, 4, 16}, "S(0),S(1)") == "S(0),S(2)");
  CHECK(carried({8, 16}, {2, 4, 16}, "S(0),S(0)") == "S(0),S(1)");
  CHECK(carried({8, 16}, {128}, "S(0),R") == "S(0),R");
  CHECK(carried({8, 16}, {128}, "R,S(1)") == "none");
  CHECK(carried({2, 2, 4}, {16}, "S(0),S(1)") == "S(0),S(0)");
  CHECK(carried({2, 2, 4}, {16}, "S(1),S(0)") == "SS(0,2),S(0)");
  CHECK(carried({5, 6}, {5, 2, 3}, "S(0),P(sum)") == "S(0),P(sum)");
  CHECK(carried({5, 6}, {30}, "S(0),R") == "none");
  auto chain = ViewRelation::make({4, 6});
  REQUIRE(chain.has_value());
  REQUIRE(chain->reshape({4, 2, 3}).has_value());
  REQUIRE(chain->transpose({1, 0, 2}).has_value());
  REQUIRE(chain->reshape({8, 3}).has_value());
  CHECK(chain->output_shape() == Sizes{8, 3});
  CHECK(to_string(*chain->carry(two, placements("R,S(1)"))) == "R,S(0)");
  CHECK_FALSE(chain->carry(two, placements("S(0),R")).has_value());
  CHECK(chain->reshape({5, 5}).error().code == ErrorCode::kValue);
  CHECK(chain->reshape({-1, 3}).error().where == "/0");
  CHECK(chain->reshape({std::int64_t{1} << 40, std::int64_t{1} << 40}).error().code ==
        ErrorCode::kOverflow);
  CHECK(chain->output_shape() == Sizes{8, 3});  // a refused step changes nothing
  CHECK(chain->transpose({0, 0}).error().code == ErrorCode::kValue);
  CHECK(ViewRelation::make({-1}).error().code == ErrorCode::kValue);
}

TEST_CASE("Redistribution through a view keeps what lines up and is right on the devices") {
  std::mt19937 random(9);
  const Sizes sizes = {2, 2};
  RedistributionPlanner planner(sizes, ring_price(sizes));
  struct Case {
    Sizes from;
    std::vector<int> transpose;  // after the first reshape
    Sizes middle;
    Sizes to;
  };
  const std::vector<Case> cases = {{{8, 4}, {}, {8, 4}, {2, 4, 4}},
                                   {{4, 6}, {1, 0, 2}, {4, 2, 3}, {8, 3}},
                                   {{12}, {1, 0}, {3, 4}, {4, 3}},
                                   {{4, 3}, {}, {4, 3}, {3, 4}},
                                   {{8, 8}, {}, {8, 8}, {64}},
                                   {{5, 4}, {}, {5, 4}, {5, 2, 2}}};
  for (const Case& one : cases) {
    auto view = ViewRelation::make(one.from);
    REQUIRE(view.has_value());
    REQUIRE(view->reshape(one.middle).has_value());
    if (!one.transpose.empty()) REQUIRE(view->transpose(one.transpose).has_value());
    REQUIRE(view->reshape(one.to).has_value());
    // The same elements under both shapes: number the input, let the view move the numbers.
    const DenseTensor input = numbered(one.from);
    DenseTensor output = input;
    output.shape = one.middle;
    if (!one.transpose.empty()) {
      DenseTensor moved = DenseTensor::filled({}, 0);
      Sizes shape;
      for (const int dim : one.transpose)
        shape.push_back(one.middle[static_cast<std::size_t>(dim)]);
      moved = DenseTensor::filled(shape, 0);
      for (std::size_t i = 0; i < moved.values.size(); ++i) {
        auto at = coordinates_of(shape, static_cast<std::int64_t>(i));
        Sizes source(shape.size());
        for (std::size_t d = 0; d < shape.size(); ++d)
          source[static_cast<std::size_t>(one.transpose[d])] = at[d];
        std::int64_t flat = 0;
        for (std::size_t d = 0; d < source.size(); ++d) flat = flat * one.middle[d] + source[d];
        moved.values[i] = output.values[static_cast<std::size_t>(flat)];
      }
      output = std::move(moved);
    }
    output.shape = one.to;
    for (int i = 0; i < 60; ++i) {
      const Placements from = random_layout(mesh(sizes), one.from, random);
      const Placements to = random_layout(mesh(sizes), one.to, random);
      INFO(to_string(from) << " -> " << to_string(to));
      const auto plan = redistribute_through(planner, *view, 4, from, to);
      REQUIRE(plan.has_value());
      // Before the view, on the view (local data is only relabelled), and after it.
      const auto run = [&](const Redistribution& steps,
                           const DenseTensor& full,
                           const Placements& start) {
        VirtualDevices devices = distribute_by_meaning(full, sizes, start, random);
        Placements now = start;
        for (const RedistributionStep& step : steps.steps) {
          const auto replay = replay_step(sizes, static_cast<int>(full.shape.size()), now, step);
          REQUIRE(replay.has_value());
          REQUIRE(devices.execute(*replay).has_value());
          now = step.after;
        }
        return devices;
      };
      VirtualDevices devices = run(plan->before, input, from);
      CHECK(holds(devices, input, sizes, plan->input));
      // Under the carried layouts a device's elements are the same, in the same order or
      // transposed.
      const Placements no_partial_in = [&] {
        Placements result = plan->input;
        for (Placement& p : result)
          p = std::holds_alternative<Partial>(p) ? Placement{Replicate{}} : p;
        return result;
      }();
      const Placements no_partial_out = [&] {
        Placements result = plan->output;
        for (Placement& p : result)
          p = std::holds_alternative<Partial>(p) ? Placement{Replicate{}} : p;
        return result;
      }();
      VirtualDevices in = distribute_by_meaning(input, sizes, no_partial_in, random);
      VirtualDevices out = distribute_by_meaning(output, sizes, no_partial_out, random);
      for (DeviceRank device = 0; device < 4; ++device) {
        std::vector<double> a = in.at(device).values;
        std::vector<double> b = out.at(device).values;
        std::sort(a.begin(), a.end());
        std::sort(b.begin(), b.end());
        CHECK(a == b);
      }
      devices = run(plan->after, output, plan->output);
      CHECK(holds(devices, output, sizes, to));
      // Not dearer than gathering on one side and slicing on the other.
      const Placements whole(2, Replicate{});
      const auto gather = planner.plan(one.from, 4, from, whole);
      const auto slice = planner.plan(one.to, 4, whole, to);
      REQUIRE((gather && slice));
      CHECK(plan->time <= (*gather)->time + (*slice)->time);
      CHECK(plan->time == plan->before.time + plan->after.time);
    }
  }
}

}  // namespace meshplan::redistribution_between_test

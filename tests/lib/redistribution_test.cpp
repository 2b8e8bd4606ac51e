// SPDX-License-Identifier: Apache-2.0
#include "lib/redistribution.h"

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "lib/redistribution_moves.h"
#include "lib/redistribution_reduce.h"
#include "lib/redistribution_replay.h"
#include "lib/virtual_devices.h"
#include "support/catch.h"
#include "support/redistribution_prices.h"
#include "support/sharded_tensor.h"

namespace meshplan::redistribution_test {

namespace {

/// All layouts whose axes are R, cut a dimension (in every order) or carry one of `reductions`.
std::vector<Placements> all_layouts(const Sizes& sizes,
                                    const Sizes& shape,
                                    std::vector<Reduction> reductions) {
  const MoveGraph graph(sizes, static_cast<int>(shape.size()), std::move(reductions));
  std::vector<Placements> layouts;
  for (std::size_t i = 0; i < graph.size(); ++i) {
    if (local_elements(sizes, shape, graph.state(i)) >= 0)
      layouts.push_back(decode_placements(sizes, graph.state(i)));
  }
  return layouts;
}

struct Outcome {
  int pairs = 0;
  int wrong = 0;
  int refused = 0;
  std::string first;
};

/// Plans and executes one pair; `each_step` looks at the data after every step.
void execute_pair(RedistributionPlanner& planner,
                  const Sizes& sizes,
                  const DenseTensor& full,
                  const Placements& from,
                  const Placements& to,
                  std::mt19937& random,
                  bool each_step,
                  Outcome& outcome) {
  ++outcome.pairs;
  const auto found = planner.plan(full.shape, 4, from, to);
  if (!found) {
    ++outcome.refused;
    return;
  }
  std::string fault;
  VirtualDevices devices = distribute_by_meaning(full, sizes, from, random);
  Placements now = from;
  Seconds time;
  Bytes bytes = 0;
  for (const RedistributionStep& step : (*found)->steps) {
    const auto replay = replay_step(sizes, static_cast<int>(full.shape.size()), now, step);
    const auto done = replay ? devices.execute(*replay) : Result<void>(fail(replay.error()));
    if (!done) {
      fault = done.error().message;
      break;
    }
    now = step.after;
    time += step.time;
    bytes += step.bytes_moved;
    if (each_step && !holds(devices, full, sizes, now)) {
      fault = std::string("wrong data after ") + collective_name(step.collective) + " to " +
              to_string(now);
      break;
    }
  }
  if (fault.empty() && !holds(devices, full, sizes, to)) fault = "wrong data at the end";
  if (fault.empty() && time != (*found)->time) fault = "the time is not the sum of the steps";
  if (fault.empty() && bytes != (*found)->bytes) fault = "the bytes are not the sum of the steps";
  if (fault.empty() && !(*found)->steps.empty() && now != to)
    fault = "another layout than asked for";
  if (!fault.empty()) {
    ++outcome.wrong;
    if (outcome.first.empty())
      outcome.first = to_string(from) + " -> " + to_string(to) + ": " + fault;
  }
}

/// Every pair, or every `stride`-th one.
Outcome execute_all_pairs(const Sizes& sizes,
                          const Sizes& shape,
                          const std::vector<Reduction>& reductions,
                          std::size_t stride = 1) {
  RedistributionPlanner planner(sizes, ring_price(sizes));
  const auto layouts = all_layouts(sizes, shape, reductions);
  const DenseTensor full = numbered(shape);
  std::mt19937 random(7);
  Outcome outcome;
  std::size_t count = 0;
  for (const Placements& from : layouts) {
    for (const Placements& to : layouts) {
      if (count++ % stride == 0)
        execute_pair(planner, sizes, full, from, to, random, stride == 1, outcome);
    }
  }
  return outcome;
}

Placements placements(const char* text) {
  auto parsed = parse_placements(text);
  REQUIRE(parsed.has_value());
  return *parsed;
}

std::string steps_text(const Redistribution& plan) {
  std::string text;
  for (const RedistributionStep& step : plan.steps) {
    text += (text.empty() ? "" : "; ") + std::string(collective_name(step.collective)) + " " +
            to_string(step.after);
  }
  return text;
}

const std::vector<Reduction> kSumOnly = {Reduction::kSum};

}  // namespace

TEST_CASE(
    "Every sequence on a small mesh leaves the right numbers on the devices, after every step") {
  struct Case {
    Sizes mesh;
    Sizes shape;
  };
  const std::vector<Case> cases = {
      {{2}, {4}},       {{2}, {4, 2}},    {{2}, {4, 2, 6}},    {{4}, {8}},
      {{4}, {8, 4}},    {{4}, {4, 8, 4}}, {{2, 2}, {8}},       {{2, 2}, {8, 4}},
      {{2, 3}, {12}},   {{2, 3}, {6, 6}}, {{2, 2}, {4, 4, 4}}, {{2, 3}, {6, 6, 6}},
      {{2, 4}, {16}},   {{2, 4}, {8, 8}}, {{2, 2, 2}, {8}},    {{3}, {}},
      {{5}, {10}},      {{6}, {6, 12}},   {{7}, {7, 14}},      {{12}, {12, 5}},
      {{1, 3}, {3, 3}}, {{2, 1}, {1, 4}}};
  for (const Case& one : cases) {
    const Outcome outcome = execute_all_pairs(one.mesh, one.shape, kSumOnly);
    INFO(outcome.first);
    CHECK(outcome.wrong == 0);
    CHECK(outcome.refused == 0);
    CHECK(outcome.pairs >= 4);
  }
}

TEST_CASE("Sequences sampled from all pairs on meshes of three and four axes are right") {
  struct Case {
    Sizes mesh;
    Sizes shape;
    std::size_t stride;
  };
  const std::vector<Case> cases = {{{2, 2, 2}, {8, 8}, 17},
                                   {{2, 2, 2}, {8, 8, 8}, 211},
                                   {{2, 4}, {8, 8, 8}, 13},
                                   {{2, 3, 2}, {12, 12, 12}, 701},
                                   {{2, 3, 2}, {12, 12}, 23},
                                   {{2, 3, 4}, {24, 24}, 97},
                                   {{2, 2, 2, 2}, {16, 16}, 1999},
                                   {{2, 2, 3, 2}, {24, 24}, 3989}};
  for (const Case& one : cases) {
    const Outcome outcome = execute_all_pairs(one.mesh, one.shape, kSumOnly, one.stride);
    INFO(outcome.first);
    CHECK(outcome.wrong == 0);
    CHECK(outcome.refused == 0);
    CHECK(outcome.pairs > 40);
  }
}

TEST_CASE("All pairs on meshes of several axes are right", "[.slow]") {
  int pairs = 0;
  for (const Sizes& mesh : std::vector<Sizes>{{2, 2, 2}, {2, 3, 2}, {2, 4}}) {
    const std::int64_t n = element_count(mesh);
    for (const Sizes& shape : std::vector<Sizes>{{n}, {n, n}, {n, n, n}}) {
      const Outcome outcome = execute_all_pairs(mesh, shape, kSumOnly);
      INFO(outcome.first);
      CHECK(outcome.wrong == 0);
      CHECK(outcome.refused == 0);
      pairs += outcome.pairs;
    }
  }
  CHECK(pairs == 82976);
}

TEST_CASE("All pairs with every mixture of reductions on a 2x2x2 mesh are right", "[.slow]") {
  const Outcome outcome = execute_all_pairs(
      {2, 2, 2},
      {8},
      {Reduction::kSum, Reduction::kMax, Reduction::kMin, Reduction::kAvg, Reduction::kProd});
  INFO(outcome.first);
  CHECK(outcome.wrong == 0);
  CHECK(outcome.pairs == 133956);
}

TEST_CASE("Uneven dimensions are cut with ceil and moved without loss") {
  for (const auto& shape : std::vector<Sizes>{{5}, {5, 7}, {3, 5, 2}, {1, 4}, {6, 1}, {0, 3}}) {
    for (const auto& mesh : std::vector<Sizes>{{4}, {2, 3}, {2, 2}, {1, 3}}) {
      const Outcome outcome = execute_all_pairs(mesh, shape, kSumOnly);
      INFO(outcome.first);
      CHECK(outcome.wrong == 0);
      CHECK(outcome.refused == 0);
    }
  }
}

TEST_CASE(
    "Where pieces must be equal, no layout on the way is uneven, and costs are still a metric") {
  int cheaper_unevenly = 0;
  for (const auto& shape : std::vector<Sizes>{{4, 3}, {2, 8, 3}, {6, 5}, {3, 5}}) {
    for (const auto& mesh : std::vector<Sizes>{{2, 2}, {2, 3}, {2, 2, 2}}) {
      RedistributionPlanner equal(mesh, ring_price(mesh), Division::kEqual);
      RedistributionPlanner any(mesh, ring_price(mesh));
      std::vector<Placements> layouts;
      for (const Placements& layout : all_layouts(mesh, shape, kSumOnly)) {
        const auto code = encode_placements(mesh, static_cast<int>(shape.size()), layout);
        if (local_elements(mesh, shape, *code, Division::kEqual) >= 0) {
          layouts.push_back(layout);
        } else {
          CHECK_FALSE(equal.plan(shape, 2, layout, layout));
        }
      }
      std::vector<std::vector<Seconds>> cost(layouts.size());
      for (std::size_t i = 0; i < layouts.size(); ++i) {
        for (const Placements& to : layouts) {
          const auto found = equal.plan(shape, 2, layouts[i], to);
          REQUIRE(found);
          for (const RedistributionStep& step : (*found)->steps) {
            const auto code = encode_placements(mesh, static_cast<int>(shape.size()), step.after);
            REQUIRE(local_elements(mesh, shape, *code, Division::kEqual) >= 0);
          }
          const auto free = any.plan(shape, 2, layouts[i], to);
          REQUIRE(free);
          REQUIRE((*free)->time <= (*found)->time);
          cheaper_unevenly += (*free)->time < (*found)->time ? 1 : 0;
          cost[i].push_back((*found)->time);
        }
      }
      for (std::size_t a = 0; a < layouts.size(); ++a) {
        for (std::size_t b = 0; b < layouts.size(); ++b) {
          for (std::size_t c = 0; c < layouts.size(); ++c)
            REQUIRE(cost[a][c] <= cost[a][b] + cost[b][c]);
        }
      }
    }
  }
  CHECK(cheaper_unevenly > 0);  // it makes a difference
}

TEST_CASE(
    "Mixed reductions are resolved in a right order; only a change of kind on one axis is "
    "refused") {
  const std::vector<Reduction> all = {
      Reduction::kSum, Reduction::kMax, Reduction::kMin, Reduction::kAvg, Reduction::kProd};
  for (const Sizes& mesh : std::vector<Sizes>{{2, 2}, {2, 3}}) {
    const Sizes shape = {6};
    const Outcome outcome = execute_all_pairs(mesh, shape, all);
    INFO(outcome.first);
    CHECK(outcome.wrong == 0);
    int expected = 0;
    const auto layouts = all_layouts(mesh, shape, all);
    for (const Placements& from : layouts) {
      for (const Placements& to : layouts) {
        bool changes = false;
        for (std::size_t axis = 0; axis < mesh.size(); ++axis) {
          const auto* before = std::get_if<Partial>(&from[axis]);
          const auto* after = std::get_if<Partial>(&to[axis]);
          changes = changes || (before && after && !(*before == *after));
        }
        expected += changes ? 1 : 0;
      }
    }
    CHECK(outcome.refused == expected);
  }
  for (const std::vector<Reduction>& kinds :
       std::vector<std::vector<Reduction>>{{Reduction::kSum, Reduction::kMax, Reduction::kProd},
                                           {Reduction::kSum, Reduction::kAvg}}) {
    const Outcome three = execute_all_pairs({2, 2, 2}, {4}, kinds, 7);
    INFO(three.first);
    CHECK(three.wrong == 0);
  }
  // A permute behind which one of two axes is relabelled.
  RedistributionPlanner planner({2, 2, 2}, ring_price({2, 2, 2}));
  std::mt19937 random(3);
  Outcome averages;
  execute_pair(planner,
               {2, 2, 2},
               numbered({8}),
               placements("P(avg),R,R"),
               placements("R,P(avg),P(avg)"),
               random,
               true,
               averages);
  CHECK(averages.first == "");
}

TEST_CASE("Well-known pairs take the collectives that one expects") {
  // No latency and powers of two: equal bytes are equally dear, however they are grouped.
  const auto volume_price = [](Sizes sizes) -> CollectivePrice {
    return [sizes = std::move(sizes)](const CollectiveCall& call) {
      double n = 1;
      for (std::size_t axis = 0; axis < sizes.size(); ++axis) {
        if ((call.axes >> axis & 1U) != 0) n *= static_cast<double>(sizes[axis]);
      }
      return ring_time(call, n, 0.0, 68719476736.0);
    };
  };
  RedistributionPlanner planner({2, 4}, volume_price({2, 4}));
  const auto steps = [&](const char* from, const char* to) {
    const auto found = planner.plan(Sizes{512, 1024}, 2, placements(from), placements(to));
    REQUIRE(found.has_value());
    return steps_text(**found);
  };
  CHECK(steps("S(0),P(sum)", "S(0),S(0)") == "reduce_scatter S(0),S(0)");
  CHECK(steps("P(sum),R", "S(0),R") == "reduce_scatter S(0),R");
  CHECK(steps("P(sum),P(sum)", "R,R") == "all_reduce R,R");
  CHECK(steps("P(max),P(max)", "S(1),S(1)") == "reduce_scatter S(1),S(1)");
  CHECK(steps("S(0),S(0)", "S(1),S(1)") == "all_to_all S(1),S(1)");
  CHECK(steps("R,R", "P(sum),R") == "mask P(sum),R");
  CHECK(steps("R,R", "P(avg),R").empty());
  CHECK(steps("P(sum),S(0)", "P(sum),S(0)").empty());
  CHECK(steps("S(0),S(0)", "SS(0,4),S(0)") == "permute SS(0,4),S(0)");
  RedistributionPlanner square({2, 2}, volume_price({2, 2}));
  const auto swap =
      square.plan(Sizes{512, 1024}, 2, placements("S(0),S(1)"), placements("S(1),S(0)"));
  REQUIRE(swap.has_value());
  CHECK(steps_text(**swap) == "permute S(1),S(0)");
}

TEST_CASE(
    "Costs are a metric: identity is free, the triangle inequality holds, nothing beats it by a "
    "detour") {
  for (const auto& [mesh, shape] :
       std::vector<std::pair<Sizes, Sizes>>{{{2, 4}, {512, 64}}, {{2, 2, 2}, {64, 512}}}) {
    RedistributionPlanner planner(mesh, two_level_price(mesh));
    const auto layouts = all_layouts(mesh, shape, kSumOnly);
    const auto table = planner.cost_table(shape, 2, layouts);
    REQUIRE(table.has_value());
    const std::size_t count = layouts.size();
    std::size_t broken = 0;
    for (std::size_t i = 0; i < count; ++i) {
      if ((*table)[i * count + i] != Seconds{}) ++broken;
      for (std::size_t j = 0; j < count; ++j) {
        for (std::size_t k = 0; k < count; ++k) {
          if ((*table)[i * count + k] > (*table)[i * count + j] + (*table)[j * count + k]) ++broken;
        }
      }
    }
    CHECK(broken == 0);
  }
}

TEST_CASE(
    "The table, the plan and its steps have the same price to the last bit, and no plan exceeds "
    "gathering") {
  const Sizes mesh = {2, 2, 3};
  const Sizes shape = {96, 12, 7};
  RedistributionPlanner planner(mesh, two_level_price(mesh));
  const auto layouts = all_layouts(mesh, shape, kSumOnly);
  const auto table = planner.cost_table(shape, 4, layouts);
  REQUIRE(table.has_value());
  std::size_t unequal = 0;
  std::size_t dearer = 0;
  for (std::size_t i = 0; i < layouts.size(); ++i) {
    const auto row = planner.costs_from(shape, 4, layouts[i], layouts);
    REQUIRE(row.has_value());
    for (std::size_t j = 0; j < layouts.size(); ++j) {
      const auto found = planner.plan(shape, 4, layouts[i], layouts[j]);
      REQUIRE(found.has_value());
      Seconds sum;
      for (const RedistributionStep& step : (*found)->steps) {
        sum += step.time;
        if (step.time != two_level_price(mesh)({step.collective, step.axes, step.call_bytes}))
          ++unequal;
      }
      if (sum != (*table)[i * layouts.size() + j] || sum != (*found)->time || sum != (*row)[j])
        ++unequal;
      const auto from = encode_placements(mesh, 3, layouts[i]);
      const auto to = encode_placements(mesh, 3, layouts[j]);
      if (gather_then_slice(mesh, two_level_price(mesh), shape, 4, *from, *to).time < sum) ++dearer;
    }
  }
  CHECK(unequal == 0);
  CHECK(dearer == 0);
}

TEST_CASE("Two planners, asked in another order, give the same plans") {
  const Sizes mesh = {2, 2, 2};
  const Sizes shape = {16, 16};
  const auto layouts = all_layouts(mesh, shape, kSumOnly);
  // All prices equal: everything is decided by the tie-breaks.
  const CollectivePrice flat = [](const CollectiveCall&) { return on_price_grid({1e-6}); };
  RedistributionPlanner forward(mesh, flat);
  RedistributionPlanner backward(mesh, flat);
  for (auto i = layouts.rbegin(); i != layouts.rend(); ++i) {
    for (auto j = layouts.rbegin(); j != layouts.rend(); ++j)
      REQUIRE(backward.plan(shape, 4, *i, *j).has_value());
  }
  std::size_t different = 0;
  for (const Placements& from : layouts) {
    for (const Placements& to : layouts) {
      const auto a = forward.plan(shape, 4, from, to);
      const auto b = backward.plan(shape, 4, from, to);
      if ((*a)->steps != (*b)->steps) ++different;
      if (*forward.plan(shape, 4, from, to) != *a) ++different;  // remembered, not made again
    }
  }
  CHECK(different == 0);
}

TEST_CASE("Of equally dear sequences the one with the lower peak is taken, then the shorter one") {
  // Gathering is as dear as moving: from S(0) to S(1) the all-to-all never holds the whole tensor.
  const CollectivePrice price = [](const CollectiveCall& call) {
    return call.collective == Collective::kSlice ? Seconds{} : on_price_grid({1e-6});
  };
  RedistributionPlanner planner({4}, price);
  const auto found = planner.plan(Sizes{8, 8}, 4, placements("S(0)"), placements("S(1)"));
  REQUIRE(found.has_value());
  CHECK(steps_text(**found) == "all_to_all S(1)");
  CHECK((*found)->peak == 2 * 8 * 8 * 4 / 4);
}

TEST_CASE("Meshes with too many layouts are planned on what differs, and right") {
  const Sizes mesh = {2, 2, 2, 2, 2, 2};
  const Sizes shape = {64, 64};
  RedistributionPlanner planner(mesh, ring_price(mesh));
  const DenseTensor full = numbered(shape);
  std::mt19937 random(11);
  Outcome outcome;
  const auto random_layout = [&]() {
    LayoutCode code = 0;
    std::vector<int> count(shape.size(), 0);
    std::vector<int> axes = {0, 1, 2, 3, 4, 5};
    std::shuffle(axes.begin(), axes.end(), random);
    for (const int axis : axes) {
      const int choice = std::uniform_int_distribution<int>(0, 3)(random);
      if (choice < 2) {
        code = with_byte(code, axis, cut_byte(choice, count[static_cast<std::size_t>(choice)]++));
      } else if (choice == 2) {
        code = with_byte(code, axis, partial_byte(Reduction::kSum));
      }
    }
    return decode_placements(mesh, code);
  };
  for (int i = 0; i < 25; ++i) {
    Placements from = random_layout();
    Placements to = i % 2 == 0 ? random_layout() : from;
    if (i % 2 != 0) to[static_cast<std::size_t>(i) % 6] = Replicate{};
    if (encode_placements(mesh, 2, to))
      execute_pair(planner, mesh, full, from, to, random, true, outcome);
  }
  INFO(outcome.first);
  CHECK(outcome.wrong == 0);
  CHECK(outcome.refused == 0);
}

TEST_CASE("Faulty requests are refused with their place") {
  RedistributionPlanner planner({2, 4}, ring_price({2, 4}));
  const auto refusal = [&](const Sizes& shape, Bytes bytes, const char* from, const char* to) {
    const auto found = planner.plan(shape, bytes, placements(from), placements(to));
    REQUIRE_FALSE(found.has_value());
    return std::string(error_code_name(found.error().code)) + " " + found.error().where;
  };
  CHECK(refusal({8}, 4, "S(1),R", "R,R") == "value /from/0");
  CHECK(refusal({8}, 4, "R,R", "R,SS(0,2)") == "value /to/1");
  CHECK(refusal({8}, 4, "R", "R,R") == "value /from");
  CHECK(refusal({6}, 4, "S(0),S(0)", "R,R") == "value /from");
  CHECK(refusal({8}, 4, "P(sum),R", "P(max),R") == "conflict /to/0");
  CHECK(refusal({8}, 0, "R,R", "R,R") == "value /dtype");
  CHECK(refusal({-8}, 4, "R,R", "R,R") == "value /shape/0");
  CHECK(refusal({std::int64_t{1} << 40, std::int64_t{1} << 40}, 4, "R,R", "R,R") ==
        "overflow /shape");
  RedistributionPlanner wide(Sizes(9, 2), ring_price(Sizes(9, 2)));
  const Placements sums(9, Partial{});
  CHECK(wide.plan(Sizes{8}, 4, sums, sums).error().code == ErrorCode::kUnsupported);
}

TEST_CASE("Prices and bytes too large to add up still give right sequences") {
  for (const double seconds : {1e6, 4e6, 1e300}) {
    RedistributionPlanner planner({2, 2, 2}, [&](const CollectiveCall& call) {
      return call.collective == Collective::kSlice ? Seconds{} : Seconds{seconds};
    });
    const DenseTensor full = numbered({8, 8});
    const auto layouts = all_layouts({2, 2, 2}, full.shape, kSumOnly);
    std::mt19937 random(17);
    std::string first;
    for (std::size_t i = 0; i < layouts.size(); i += 5) {
      for (std::size_t j = 0; j < layouts.size(); j += 3) {
        const auto found = planner.plan(full.shape, 4, layouts[i], layouts[j]);
        REQUIRE(found.has_value());
        VirtualDevices devices = distribute_by_meaning(full, {2, 2, 2}, layouts[i], random);
        Placements now = layouts[i];
        for (const RedistributionStep& step : (*found)->steps) {
          REQUIRE(devices.execute(*replay_step(Sizes{2, 2, 2}, 2, now, step)).has_value());
          now = step.after;
        }
        if (!holds(devices, full, {2, 2, 2}, layouts[j])) first = to_string(layouts[i]);
      }
    }
    CHECK(first == "");
  }
  // The largest tensor, two reductions that do not commute: bytes and prices are not negative.
  RedistributionPlanner planner({2, 2, 2, 2}, ring_price({2, 2, 2, 2}));
  const Sizes largest = {std::int64_t{1} << 57};
  const auto found = planner.plan(
      largest, 1, placements("P(sum),P(max),P(sum),P(max)"), placements("R,R,P(sum),P(max)"));
  REQUIRE(found.has_value());
  CHECK((*found)->bytes > largest[0]);
  CHECK((*found)->time.value > 1e6);
  CHECK(planner.plan(largest, 2, placements("R,R,R,R"), placements("S(0),R,R,R")).error().code ==
        ErrorCode::kOverflow);
}

TEST_CASE("On a mesh of more than eight axes those that both layouts replicate do not count") {
  const Sizes mesh = {2, 1, 2, 2, 1, 3, 2, 1, 2, 2};
  const Sizes shape = {8, 12};
  RedistributionPlanner planner(mesh, two_level_price(mesh));
  const DenseTensor full = numbered(shape);
  std::mt19937 random(13);
  Outcome outcome;
  std::vector<Placements> layouts;
  for (const char* text : {"R,R,R,R,R,R,R,R,R,R",
                           "S(0),R,R,S(1),R,S(1),R,R,R,P(sum)",
                           "SS(0,2),R,R,S(0),R,R,R,R,S(1),R",
                           "R,R,R,S(0),R,P(max),R,R,S(0),R",
                           "S(1),R,R,S(0),R,R,R,R,S(0),R"}) {
    layouts.push_back(placements(text));
  }
  for (const Placements& from : layouts) {
    for (const Placements& to : layouts)
      execute_pair(planner, mesh, full, from, to, random, true, outcome);
  }
  INFO(outcome.first);
  CHECK(outcome.wrong == 0);
  CHECK(outcome.refused == 0);
  // The outermost axis is the slow one: prices are those of the axes on the whole mesh.
  const auto slow = planner.plan(shape, 4, layouts[4], layouts[2]);
  REQUIRE((slow && !(*slow)->steps.empty()));
  for (const RedistributionStep& step : (*slow)->steps)
    CHECK(step.time == two_level_price(mesh)({step.collective, step.axes, step.call_bytes}));
  const auto table = planner.cost_table(shape, 4, layouts);
  REQUIRE(table.has_value());
  CHECK((*table)[4 * layouts.size() + 2] == (*slow)->time);
}

TEST_CASE("The number of layouts is what combinatorics say") {
  // All three axes cut: N! * sum over i of C(N-1, i-1) * C(dims, i).
  for (const auto& [rank, expected] : std::vector<std::pair<int, int>>{{3, 60}, {4, 120}}) {
    const MoveGraph graph({2, 2, 2}, rank, {});
    int cut = 0;
    for (std::size_t i = 0; i < graph.size(); ++i) {
      const LayoutCode code = graph.state(i);
      cut += code_byte(code, 0) != 0 && code_byte(code, 1) != 0 && code_byte(code, 2) != 0 ? 1 : 0;
    }
    CHECK(cut == expected);
    CHECK(MoveGraph::count_states(Sizes{2, 2, 2}, rank, 0, 100000) == graph.size());
  }
}

}  // namespace meshplan::redistribution_test

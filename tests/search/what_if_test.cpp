// SPDX-License-Identifier: Apache-2.0
// A sweep finds at every point what a search of that point alone finds, however it is split.
#include "search/what_if.h"

#include <algorithm>
#include <string>
#include <vector>

#include "support/models.h"
#include "support/random.h"

namespace meshplan::what_if_test {
namespace {

WhatIfBatch batch_of(std::int64_t size) {
  test::LlamaSizes sizes;
  sizes.hidden = 256;
  sizes.intermediate = 688;
  sizes.heads = 4;
  sizes.kv_heads = 4;
  WhatIfBatch batch;
  batch.size = size;
  batch.graphs.push_back(test::llama_graph(test::llama_config(sizes), size, 256));
  batch.microbatches = {1};
  return batch;
}

Cluster machine() {
  Cluster cluster = test::shipped_cluster("dgx-a100-80g", 8);
  cluster.device.reserved_memory = 0;
  cluster.efficiency.allocator_reserve = 0;
  return cluster;
}

WhatIfSweep sweep_of() {
  WhatIfSweep sweep;
  sweep.clusters = {machine(), machine()};
  sweep.clusters[1].name = "slow";
  sweep.clusters[1].levels[0].scale_bandwidth(0.25);
  sweep.clusters[1].price_per_device_hour = 1.5;
  sweep.devices = {2, 4};
  sweep.batches.push_back(batch_of(8));
  sweep.batches.push_back(batch_of(16));
  sweep.memory = {std::nullopt};
  sweep.network = {{}};
  sweep.mesh_axes = 2;
  return sweep;
}

/// Memory sizes around what the plan of the first point takes.
void add_tight_memory(WhatIfSweep& sweep) {
  const auto points = what_if(sweep);
  REQUIRE(points.front().plan.has_value());
  const Bytes peak = points.front().plan->peak;
  sweep.memory = {peak / 100 * 40, peak, peak / 100 * 90, peak / 100 * 10};
}

DpOutcome alone(const WhatIfSweep& sweep, const WhatIfPoint& point) {
  Cluster cluster = *machine_of(sweep, point.place);
  for (Level& level : cluster.levels)
    level.scale_bandwidth(sweep.network[point.place.network].factor);
  DpOptions options = sweep.search;
  options.memory_limit = point.memory_limit;
  options.prices.overlap = cluster.efficiency.overlap;
  std::vector<MeshShape> meshes;
  for (MeshShape& mesh : all_meshes(cluster)) {
    if (mesh.shape.size() <= 2) meshes.push_back(std::move(mesh));
  }
  auto outcome =
      dp_search(sweep.batches[point.place.batch].graphs.front(), cluster, meshes, options);
  REQUIRE(outcome.has_value());
  return std::move(*outcome);
}

TEST_CASE("a sweep finds at every point what a search of the point alone proves") {
  WhatIfSweep sweep = sweep_of();
  add_tight_memory(sweep);
  sweep.network = {{1, std::nullopt}, {0.5, std::nullopt}};
  std::size_t planned = 0;
  std::size_t infeasible = 0;
  for (const WhatIfPoint& point : what_if(sweep)) {
    INFO(point.place.cluster << " " << point.devices << " " << *point.batch << " " << point.memory
                             << " " << point.place.network);
    const DpOutcome outcome = alone(sweep, point);
    if (const auto* found = std::get_if<DpResult>(&outcome)) {
      ++planned;
      REQUIRE(point.plan.has_value());
      CHECK(point.plan->peak <= point.memory_limit);
      // either may be nearer to the best where the gap is not closed; both bounds hold for both
      CHECK(point.plan->objective.value >= found->lower_bound);
      CHECK(found->evaluation.objective >= point.plan->lower_bound);
      if (found->optimal && point.status == WhatIfStatus::kOptimal)
        CHECK(point.plan->objective == found->evaluation.objective);
    } else {
      ++infeasible;
      CHECK(point.status == WhatIfStatus::kInfeasible);
      CHECK_FALSE(point.moment.empty());
      if (point.min_memory) CHECK(*point.min_memory > point.memory_limit);
    }
  }
  CHECK(planned >= 16);
  CHECK(infeasible >= 8);
}

TEST_CASE("threads and shards change nothing of a sweep") {
  WhatIfSweep sweep = sweep_of();
  add_tight_memory(sweep);
  sweep.network = {{1, std::nullopt}, {2, sweep.clusters[0].levels[0].name}};
  sweep.search.threads = 1;
  const auto whole = what_if(sweep);
  CHECK(whole.size() == 64);
  sweep.search.threads = 5;
  std::size_t told = 0;
  CHECK(what_if(sweep, {}, [&](std::size_t done, std::size_t all) {
          CHECK(done == ++told);
          CHECK(all == 64);
        }) == whole);
  CHECK(told == 64);
  const WhatIfGrid grid = grid_of(sweep);
  for (const std::size_t count : {std::size_t{3}, std::size_t{11}}) {
    std::vector<WhatIfPoint> joined(whole.size());
    std::size_t points = 0;
    for (std::size_t index = 0; index < count; ++index) {
      const auto part = what_if(sweep, {index, count});
      const auto places = grid.points_of({index, count});
      REQUIRE(part.size() == places.size());
      for (std::size_t i = 0; i < part.size(); ++i) joined[places[i]] = part[i];
      points += part.size();
    }
    CHECK(points == whole.size());
    CHECK(joined == whole);
  }
  for (std::size_t i = 0; i < whole.size(); ++i) {
    CHECK(grid.point(grid.place(i)) == i);
    CHECK(whole[i].place == grid.place(i));
  }
}

TEST_CASE("more bandwidth is never slower, and a machine that cannot be is said") {
  WhatIfSweep sweep = sweep_of();
  sweep.devices = {std::nullopt, 12};
  sweep.clusters[1].device.reserved_memory = sweep.clusters[1].device.memory;
  sweep.network = {{0.5, std::nullopt}, {1, std::nullopt}, {4, std::nullopt}};
  const auto points = what_if(sweep);
  REQUIRE(points.size() == 24);
  for (const WhatIfPoint& point : points) {
    if (point.place.cluster == 1) {
      CHECK(point.status == WhatIfStatus::kImpossible);
      const std::string why = point.place.devices == 0 ? "of which the cluster reserves" : "";
      CHECK(point.reason.find(why) != std::string::npos);
      continue;
    }
    if (point.place.devices == 1 && !point.plan) {  // a level of 8 grows in steps of 8
      CHECK(point.status == WhatIfStatus::kImpossible);
      CHECK(point.reason.find("12 devices are not possible") != std::string::npos);
      continue;
    }
    REQUIRE(point.plan.has_value());
    if (point.place.network == 0) continue;
    WhatIfPlace slower = point.place;
    --slower.network;
    const WhatIfPoint& before = points[grid_of(sweep).point(slower)];
    CHECK(point.plan->lower_bound.value <= before.plan->objective.value);
  }
}

/// Points with random figures, some of them without a plan.
std::vector<WhatIfPoint> random_points(test::Random& random) {
  std::vector<WhatIfPoint> points;
  const WhatIfGrid grid{{2, 5, 2, 1, 2}};
  for (std::size_t i = 0; i < grid.points(); ++i) {
    WhatIfPoint point;
    point.place = grid.place(i);
    point.devices = std::int64_t{1} << point.place.devices;
    if (random.below(5) != 0) {
      point.plan.emplace();
      // few different values, so that there are ties
      point.plan->cost.step_time = {static_cast<double>(1 + random.below(6))};
      if (random.below(3) != 0)
        point.plan->cost.price_per_step = static_cast<double>(random.below(4));
    }
    points.push_back(std::move(point));
  }
  return points;
}

TEST_CASE("what is on a front is beaten by nothing, and what is not is") {
  test::Random random(20261201);
  for (int round = 0; round < 200; ++round) {
    const auto points = random_points(random);
    for (const WhatIfExpense expense : {WhatIfExpense::kDevices, WhatIfExpense::kPricePerStep}) {
      const bool priced = expense == WhatIfExpense::kPricePerStep;
      const auto front = pareto_front(points, expense);
      const auto counts = [&](const WhatIfPoint& point) {
        return point.plan && (!priced || point.plan->cost.price_per_step);
      };
      const auto expense_of = [&](const WhatIfPoint& point) {
        return priced ? *point.plan->cost.price_per_step : static_cast<double>(point.devices);
      };
      for (std::size_t i = 0; i < points.size(); ++i) {
        const WhatIfPoint& a = points[i];
        const bool beaten = std::any_of(points.begin(), points.end(), [&](const WhatIfPoint& b) {
          if (!counts(a) || !counts(b)) return false;
          if (a.place.batch != b.place.batch || a.place.memory != b.place.memory ||
              a.place.network != b.place.network)
            return false;
          const Seconds time_a = a.plan->cost.step_time;
          const Seconds time_b = b.plan->cost.step_time;
          return expense_of(b) <= expense_of(a) && time_b <= time_a &&
                 (expense_of(b) < expense_of(a) || time_b < time_a);
        });
        CHECK(front[i] == (counts(a) && !beaten));
      }
    }
  }
}

TEST_CASE("efficiency compares with the smallest machine of the series that has a plan") {
  std::vector<WhatIfPoint> points(4);
  for (std::size_t i = 0; i < points.size(); ++i) {
    points[i].place.devices = i;
    points[i].devices = std::int64_t{8} << i;
  }
  for (const std::size_t i : {std::size_t{1}, std::size_t{2}, std::size_t{3}})
    points[i].plan.emplace();
  points[1].plan->cost.step_time = {4};
  points[2].plan->cost.step_time = {2.5};
  points[3].plan->cost.step_time = {1};
  const auto efficiency = scaling_efficiency(points);
  CHECK_FALSE(efficiency[0].has_value());
  CHECK(*efficiency[1] == 1);
  CHECK(*efficiency[2] == Approx(0.8));
  CHECK(*efficiency[3] == 1);
  // another batch is another series
  points[3].place.batch = 1;
  CHECK(*scaling_efficiency(points)[3] == 1);
  points[2].place.batch = 1;
  CHECK(*scaling_efficiency(points)[3] == Approx(1.25));
}

TEST_CASE("a grid that is too large is known without multiplying too far") {
  CHECK(WhatIfGrid{{100, 100, 100, 1, 1}}.countable());
  CHECK_FALSE(WhatIfGrid{{100, 100, 100, 2, 1}}.countable());
  const std::size_t huge = std::size_t{1} << 40;
  CHECK_FALSE(WhatIfGrid{{huge, huge, huge, huge, huge}}.countable());
}

}  // namespace
}  // namespace meshplan::what_if_test

// SPDX-License-Identifier: Apache-2.0
// Speed and quality of redistribution planning. Prints one line per figure.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <iterator>
#include <string>
#include <vector>

#include "lib/redistribution.h"
#include "lib/redistribution_moves.h"
#include "lib/redistribution_policies.h"
#include "lib/redistribution_reduce.h"
#include "support/redistribution_prices.h"

using namespace meshplan;

namespace {

using Sizes = std::vector<std::int64_t>;

/// CPU time, so that other programs on the machine do not count.
double cpu_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Layouts with or without non-default orders.
std::vector<Placements> layouts_of(const Sizes& mesh, const Sizes& shape, bool any_order) {
  const MoveGraph graph(mesh, static_cast<int>(shape.size()), {Reduction::kSum});
  std::vector<Placements> layouts;
  for (std::size_t i = 0; i < graph.size(); ++i) {
    Placements placements = decode_placements(mesh, graph.state(i));
    bool strided = false;
    for (const Placement& placement : placements)
      strided = strided || std::holds_alternative<StridedShard>(placement);
    if ((any_order || !strided) && local_elements(mesh, shape, graph.state(i)) >= 0) {
      layouts.push_back(std::move(placements));
    }
  }
  return layouts;
}

void bench_all_pairs(const Sizes& mesh, const Sizes& shape, bool any_order) {
  const auto layouts = layouts_of(mesh, shape, any_order);
  const auto start = std::chrono::steady_clock::now();
  const double cpu_start = cpu_seconds();
  RedistributionPlanner planner(mesh, ring_price(mesh));
  std::size_t steps = 0;
  for (const Placements& from : layouts) {
    for (const Placements& to : layouts) steps += (*planner.plan(shape, 2, from, to))->steps.size();
  }
  const double cold = seconds_since(start);
  const double cold_cpu = cpu_seconds() - cpu_start;
  const double warm_start = cpu_seconds();
  for (const Placements& from : layouts) {
    for (const Placements& to : layouts) steps += (*planner.plan(shape, 2, from, to))->steps.size();
  }
  const double warm = cpu_seconds() - warm_start;
  const auto pairs = static_cast<double>(layouts.size() * layouts.size());
  std::printf(
      "all pairs, %zu axes, %zu-D, %s orders: %zu layouts, %.0f pairs, cold %.3f s (CPU %.3f s), "
      "warm %.0f ns "
      "each (%zu)\n",
      mesh.size(),
      shape.size(),
      any_order ? "all" : "default",
      layouts.size(),
      pairs,
      cold,
      cold_cpu,
      warm / pairs * 1e9,
      steps);
}

void bench_table(const Sizes& mesh, const Sizes& shape) {
  const auto layouts = layouts_of(mesh, shape, false);
  RedistributionPlanner planner(mesh, ring_price(mesh));
  const auto cold = std::chrono::steady_clock::now();
  (void)planner.cost_table(shape, 2, layouts);
  const double first = seconds_since(cold);
  double best = 1e9;
  for (int i = 1; i <= 20; ++i) {
    Sizes other = shape;
    other[0] *= 1 + i;
    const auto start = std::chrono::steady_clock::now();
    (void)planner.cost_table(other, 2, layouts);
    best = std::min(best, seconds_since(start));
  }
  std::printf("cost table, %zu axes, %zu-D: K=%zu, first %.3f ms, further shapes %.3f ms\n",
              mesh.size(),
              shape.size(),
              layouts.size(),
              first * 1e3,
              best * 1e3);
}

/// Rule-based sequences against the plan, over all pairs of layouts.
void bench_policies(const Sizes& mesh, const Sizes& shape) {
  const auto layouts = layouts_of(mesh, shape, true);
  RedistributionPlanner planner(mesh, ring_price(mesh));
  const CollectivePrice price = ring_price(mesh);
  const PriceOfMesh price_of = [&](std::span<const std::int64_t>) { return price; };
  struct Other {
    const char* name;
    double sum = 0;
    double worst = 0;  ///< the largest ratio of the plan's time to theirs
  };
  Other others[] = {{"hyper-parallel"}, {"shardy"}, {"gather-then-slice"}};
  double best_sum = 0;
  std::size_t pairs = 0;
  for (const Placements& from : layouts) {
    for (const Placements& to : layouts) {
      const double best = (*planner.plan(shape, 2, from, to))->time.value;
      const double greedy =
          hyper_parallel_redistribution(mesh, price, shape, 2, from, to)->time.value;
      const double shardy =
          shardy_redistribution(mesh, price_of, shape, 2, from, to)->steps.time.value;
      const int rank = static_cast<int>(shape.size());
      const double gather = gather_then_slice(mesh,
                                              price,
                                              shape,
                                              2,
                                              *encode_placements(mesh, rank, from),
                                              *encode_placements(mesh, rank, to))
                                .time.value;
      ++pairs;
      best_sum += best;
      const double times[] = {greedy, shardy, gather};
      for (std::size_t i = 0; i < std::size(others); ++i) {
        others[i].sum += times[i];
        if (best > 0) others[i].worst = std::max(others[i].worst, best / times[i]);
      }
    }
  }
  for (const Other& other : others) {
    std::printf(
        "policies, %zu axes, %zu-D, %zu pairs: plan / %s %.3f over all, %.3f for the worst pair\n",
        mesh.size(),
        shape.size(),
        pairs,
        other.name,
        best_sum / other.sum,
        other.worst);
  }
}

}  // namespace

int main() {
  bench_all_pairs({2, 2, 2}, {64, 64, 64, 64}, false);
  bench_all_pairs({2, 2, 2}, {64, 64, 64, 64}, true);
  bench_policies({2, 2, 2}, {64, 64, 64, 64});
  bench_table({4, 8}, {64, 1024, 4096});
  bench_table({2, 4, 8}, {64, 1024, 4096});
  bench_table({2, 2, 4, 8}, {64, 1024, 4096});
  return EXIT_SUCCESS;
}

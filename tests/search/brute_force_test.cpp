// SPDX-License-Identifier: Apache-2.0
// The search against every assignment of small graphs, with and without a memory limit.
#include "search/brute_force.h"

#include <limits>

#include "search/dp_search.h"
#include "search/memory_search.h"
#include "support/random_graph.h"

namespace meshplan::brute_force_test {
namespace {

using test::BruteForce;
using test::Random;

constexpr Bytes kUnlimited = std::numeric_limits<Bytes>::max();

struct Tally {
  int graphs = 0;
  int recomputed = 0;  ///< of these, with something recomputed
  int limits = 0;
  int missed = 0;  ///< limits that a plan meets, but none was found
  int optimal = 0;
  int equal = 0;    ///< as good as brute force
  int several = 0;  ///< bounds that need prices at several moments
};

void check_limit(PlanProblem& problem, const BruteForce& all, Bytes limit, Tally& tally) {
  const MemorySearchResult found = memory_search(problem, limit);
  const std::optional<double> best = all.least_within(limit);
  const Bytes least_peak = all.frontier().begin()->first;
  INFO("limit " << limit << ", least peak " << least_peak);
  ++tally.limits;
  if (found.min_memory) {
    REQUIRE_FALSE(found.decision.has_value());
    REQUIRE_FALSE(best.has_value());
    REQUIRE(*found.min_memory > limit);
    REQUIRE(*found.min_memory <= least_peak);
  }
  if (!best) {
    REQUIRE_FALSE(found.decision.has_value());
    return;
  }
  REQUIRE(found.lower_bound <= *best);
  if (found.prices.at.size() > 1) ++tally.several;
  if (!found.decision) {
    ++tally.missed;
    return;
  }
  const Evaluation evaluation = evaluate(problem.book(), problem.assignment(*found.decision));
  REQUIRE(evaluation.peak <= limit);
  REQUIRE(evaluation.objective == found.objective);
  REQUIRE(found.objective.value >= *best);
  if (found.proven_optimal) {
    REQUIRE(found.objective.value == *best);
    ++tally.optimal;
  }
  if (found.objective.value == *best) ++tally.equal;
}

void check_graph(const std::string& text,
                 bool training,
                 const Cluster& cluster,
                 const std::vector<std::int64_t>& mesh,
                 const PriceOptions& given,
                 std::optional<std::uint64_t> segments,
                 double most,
                 Tally& tally) {
  const Graph graph = test::build_graph(text, training);
  PriceOptions options = given;
  if (segments) options.recomputation = test::random_recomputation(*segments, graph);
  auto book = PriceBook::make(graph, cluster, mesh, options);
  REQUIRE(book.has_value());
  BruteForce all(**book);
  if (all.combinations() > most / 20 || !all.run(most, 1)) return;
  auto made = PlanProblem::make(**book, {});
  REQUIRE(made.has_value());
  PlanProblem& problem = **made;
  ++tally.graphs;
  if ((*book)->flow().timeline().recomputes_any()) ++tally.recomputed;

  const MemorySearchResult free = memory_search(problem, kUnlimited);
  REQUIRE(free.decision.has_value());
  REQUIRE(free.proven_optimal);
  REQUIRE(free.objective.value == all.least());
  REQUIRE(free.lower_bound == all.least());

  const std::map<Bytes, double>& frontier = all.frontier();
  check_limit(problem, all, frontier.begin()->first - 1, tally);
  // all limits where the best plan changes, five at most
  const std::size_t stride = frontier.size() / 5 + 1;
  std::size_t number = 0;
  for (const auto& [peak, objective] : frontier) {
    if (number++ % stride == 0) check_limit(problem, all, peak, tally);
  }
  check_limit(problem, all, frontier.rbegin()->first - 1, tally);
}

const std::vector<std::vector<std::int64_t>> kMeshes = {{1}, {2}, {3}, {4}, {2, 2}};

Tally run(std::uint64_t first, std::uint64_t last, double most) {
  Tally tally;
  for (std::uint64_t seed = first; seed < last; ++seed) {
    Random random(seed);
    const std::vector<std::int64_t>& mesh = kMeshes[seed % kMeshes.size()];
    std::int64_t devices = 1;
    for (const std::int64_t size : mesh) devices *= size;
    const Cluster cluster = test::random_cluster(random, devices);
    const PriceOptions options = test::random_options(random, cluster);
    const int operators = static_cast<int>(random.between(1, mesh.size() == 2 ? 3 : 4));
    const bool training = random.chance(85);
    const std::string text =
        test::RandomGraphText(random, {1, 2, 3, 4, 4, 5, 6, 8}).make(operators, training);
    INFO("seed " << seed << ", mesh of " << mesh.size() << " axes, first " << mesh[0] << ": "
                 << text);
    const std::optional<std::uint64_t> segments =
        seed % 3 == 1 ? std::optional(seed) : std::nullopt;
    check_graph(text, training, cluster, mesh, options, segments, most, tally);
  }
  return tally;
}

/// Plans within a limit come with a bound; small graphs have few plans, so that the bound is often
/// loose, and a limit that hardly any plan meets may be missed without being called impossible.
void check_tally(const Tally& tally, std::uint64_t seeds) {
  INFO(tally.graphs << " graphs, " << tally.limits << " limits, " << tally.missed << " missed, "
                    << tally.optimal << " proven optimal, " << tally.equal << " equal, "
                    << tally.several << " at several moments");
  CHECK(static_cast<std::uint64_t>(tally.graphs) * 10 > seeds * 9);
  CHECK(static_cast<std::uint64_t>(tally.recomputed) * 25 > seeds);
  CHECK(tally.missed * 500 <= tally.limits);
  CHECK(tally.equal * 5 >= tally.limits * 2);
  CHECK(tally.optimal * 4 >= tally.limits);
  CHECK(tally.several * 20 >= tally.limits);
}

TEST_CASE("the search finds what brute force finds on small graphs") {
  check_tally(run(0, 300, 200'000), 300);
}

struct WholeTally {
  int limits = 0;
  int impossible = 0;
  int open = 0;  ///< not proven: memory on pairs of very many values
};

/// The whole search of one mesh solves what prices leave open.
void check_whole(std::uint64_t seed, WholeTally& tally) {
  Random random(seed);
  const std::vector<std::int64_t>& mesh = kMeshes[seed % kMeshes.size()];
  std::int64_t devices = 1;
  for (const std::int64_t size : mesh) devices *= size;
  const Cluster cluster = test::random_cluster(random, devices);
  DpOptions options;
  options.prices = test::random_options(random, cluster);
  const bool training = random.chance(85);
  const std::string text =
      test::RandomGraphText(random, {1, 2, 3, 4, 4, 5, 6, 8})
          .make(static_cast<int>(random.between(1, mesh.size() == 2 ? 3 : 4)), training);
  INFO("seed " << seed << ": " << text);
  const Graph graph = test::build_graph(text, training);
  auto book = PriceBook::make(graph, cluster, mesh, options.prices);
  REQUIRE(book.has_value());
  BruteForce all(**book);
  constexpr double kMost = 100'000;
  if (all.combinations() > kMost / 20 || !all.run(kMost, 1)) return;
  MeshShape shape;
  shape.shape = mesh;
  for (std::size_t axis = 0; axis < mesh.size(); ++axis)
    shape.axes.push_back("d" + std::to_string(axis));
  std::vector<Bytes> tried = {all.frontier().begin()->first - 1};
  const std::size_t stride = all.frontier().size() / 4 + 1;
  std::size_t number = 0;
  for (const auto& [peak, objective] : all.frontier()) {
    if (number++ % stride == 0) tried.push_back(peak);
  }
  for (const Bytes limit : tried) {
    INFO("limit " << limit);
    options.memory_limit = limit;
    const auto outcome = dp_search(graph, cluster, {shape}, options);
    REQUIRE(outcome.has_value());
    ++tally.limits;
    const std::optional<double> best = all.least_within(limit);
    if (!best) {
      ++tally.impossible;
      REQUIRE(std::holds_alternative<NoPlan>(*outcome));
      const Bytes least = std::get<NoPlan>(*outcome).min_memory;
      REQUIRE(least > limit);
      REQUIRE(least <= all.frontier().begin()->first);
      continue;
    }
    REQUIRE(std::holds_alternative<DpResult>(*outcome));
    const DpResult& found = std::get<DpResult>(*outcome);
    REQUIRE(found.evaluation.peak <= limit);
    REQUIRE(found.lower_bound <= *best);
    if (found.optimal)
      REQUIRE(found.evaluation.objective.value == *best);
    else
      ++tally.open;
  }
}

TEST_CASE("the search of one mesh is exact on small graphs, whatever the limit") {
  WholeTally tally;
  for (std::uint64_t seed = 0; seed < 60; ++seed) check_whole(seed, tally);
  CHECK(tally.limits > 100);
  CHECK(tally.impossible > 20);
  CHECK(tally.open == 0);
}

TEST_CASE("the search of one mesh is exact on many small graphs, whatever the limit", "[.][slow]") {
  WholeTally tally;
  for (std::uint64_t seed = 60; seed < 1500; ++seed) check_whole(seed, tally);
  CHECK(tally.limits > 2500);
  CHECK(tally.impossible > 500);
  CHECK(tally.open * 500 <= tally.limits);
}

TEST_CASE("the search finds what brute force finds on many small graphs", "[.][slow]") {
  check_tally(run(300, 3000, 2'000'000), 2700);
}

}  // namespace
}  // namespace meshplan::brute_force_test

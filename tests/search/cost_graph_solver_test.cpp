// SPDX-License-Identifier: Apache-2.0
// The solver of cost graphs against trying everything, and against optima of other systems.
#include "search/cost_graph_solver.h"

#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "search/cost_graph_builder.h"
#include "search/solver/core.h"
#include "search/solver/exact.h"
#include "search/solver/messages.h"
#include "search/solver/prices.h"
#include "search/solver/problem.h"
#include "search/solver/worker.h"
#include "support/catch.h"

namespace meshplan::cost_graph_solver_test {
namespace {

using test::EveryAssignment;
using test::Random;
using test::random_cost_graph;
using test::RandomCostGraphOptions;
using Status = CostGraphSolution::Status;

SolveOptions quick() {
  SolveOptions options;
  options.iterations = 6;
  return options;
}

/// Solves and holds every intermediate result against the known optimum.
CostGraphSolution solve_watched(const CostGraph& graph,
                                std::optional<std::int64_t> optimum,
                                SolveOptions options = quick()) {
  bool good = true;
  options.progress = [&](const CostGraphProgress& progress) {
    const double best = optimum ? static_cast<double>(*optimum) : 0;
    if (progress.cost) good = good && optimum && *progress.cost >= best;
    if (progress.lower_bound && optimum) good = good && *progress.lower_bound <= best;
  };
  CostGraphSolution solution = solve_cost_graph(graph, options);
  CHECK(good);
  return solution;
}

/// Limits from none over loose and tight to impossible.
std::vector<std::optional<std::int64_t>> limits(const EveryAssignment& brute, Random& random) {
  std::vector<std::optional<std::int64_t>> list = {std::nullopt};
  if (brute.allowed().empty()) return {std::nullopt, 5};
  const std::int64_t least = *brute.least_peak();
  list.emplace_back(least);
  if (least > 0) list.emplace_back(least - 1);
  list.emplace_back(least + random.between(1, 8));
  list.emplace_back(random.pick(brute.allowed()).peak);
  return list;
}

void check_against_brute_force(const RandomCostGraphOptions& options,
                               std::uint64_t first,
                               int count) {
  for (std::uint64_t seed = first; seed < first + static_cast<std::uint64_t>(count); ++seed) {
    Random random(seed);
    CostGraph graph = random_cost_graph(random, options);
    const EveryAssignment brute(graph);
    for (const auto limit : limits(brute, random)) {
      graph.limit = limit;
      INFO("seed " << seed << ", limit " << (limit ? std::to_string(*limit) : "none"));
      const auto optimum = brute.least_cost(limit);
      const CostGraphSolution solution = solve_watched(graph, optimum);
      if (!optimum) {
        REQUIRE(solution.status == Status::kImpossible);
        if (brute.allowed().empty()) {  // then any reason is true
          CHECK((solution.no_allowed || limit));
          continue;
        }
        CHECK(!solution.no_allowed);
        if (solution.least_usage) {
          // a certificate: more than the limit, and no more than what the best can do
          CHECK(*solution.least_usage > static_cast<double>(*limit));
          CHECK(*solution.least_usage <= static_cast<double>(*brute.least_peak()));
        }
        continue;
      }
      REQUIRE(solution.status == Status::kOptimal);
      CHECK(solution.evaluation.feasible());
      CHECK(solution.evaluation.cost == *optimum);
      CHECK(*solution.lower_bound == *optimum);
      CHECK(solution.gap == 0);
      const CostGraphEvaluation again = evaluate(graph, solution.assignment);
      CHECK(again.cost == *optimum);
      CHECK((!limit || again.peak_usage <= *limit));
    }
  }
}

TEST_CASE(
    "random graphs with loops, parallel edges and forbidden pairs are solved to the optimum") {
  check_against_brute_force({}, 1, 120);
}

TEST_CASE("random trees are solved to the optimum") {
  RandomCostGraphOptions options;
  options.tree = true;
  options.most_nodes = 8;
  options.most_strategies = 3;
  check_against_brute_force(options, 1000, 60);
}

TEST_CASE("memory on edges counts as much as memory of nodes") {
  RandomCostGraphOptions options;
  options.edge_use_percent = 60;
  options.most_nodes = 5;
  options.most_strategies = 3;
  check_against_brute_force(options, 2000, 60);
}

TEST_CASE("graphs with few forbidden pairs keep their loops and are solved to the optimum") {
  RandomCostGraphOptions options;
  options.forbidden_percent = 2;
  options.edge_percent = 70;
  options.most_nodes = 6;
  check_against_brute_force(options, 3000, 60);
}

bool never() { return false; }

/// Every labelling of the nodes of `block`, the others as they are, one after another.
template <class Visit>
void each_labelling(const solver::Core& core,
                    const std::vector<int>& block,
                    solver::Labels labels,
                    const Visit& visit) {
  for (const int v : block) labels[static_cast<std::size_t>(v)] = 0;
  while (true) {
    visit(labels);
    std::size_t i = 0;
    while (i < block.size() && ++labels[static_cast<std::size_t>(block[i])] == core.size(block[i]))
      labels[static_cast<std::size_t>(block[i++])] = 0;
    if (i == block.size()) return;
  }
}

/// Every labelling that is allowed and fits.
template <class Visit>
void each_feasible(const solver::Core& core, const Visit& visit) {
  std::vector<int> all;
  for (int v = 0; v < core.nodes(); ++v) all.push_back(v);
  each_labelling(core, all, solver::Labels(all.size(), 0), [&](const solver::Labels& labels) {
    const double cost = core.cost_of(labels);
    if (cost < core.big() / 2 && core.fits(core.usage_of(labels))) visit(labels, cost);
  });
}

/// A random graph that keeps loops when it is reduced, within a limit close to the least.
struct TightCase {
  explicit TightCase(std::uint64_t seed, int most_nodes = 6) : random(seed) {
    RandomCostGraphOptions options;
    options.forbidden_percent = 4;
    options.edge_percent = 60;
    options.most_nodes = most_nodes;
    if (most_nodes > 6) options.single_percent = 0;
    graph = random_cost_graph(random, options);
    const EveryAssignment brute(graph);
    if (brute.allowed().empty()) return;
    graph.limit = *brute.least_peak() + random.between(0, 4);
    optimum = static_cast<double>(*brute.least_cost(graph.limit));
    solver::BackMap back;
    reduced = reduce(solver::to_problem(graph, back), never);
    REQUIRE(!reduced.impossible);
  }

  Random random;
  CostGraph graph;
  std::optional<double> optimum;  ///< none: everything is forbidden
  solver::Reduced reduced;
};

TEST_CASE("reductions keep the optimum, and what they leave expands to it") {
  int smaller = 0;
  for (std::uint64_t seed = 1; seed <= 250; ++seed) {
    Random random(seed);
    RandomCostGraphOptions options;
    options.edge_use_percent = seed % 3 == 0 ? 30 : 0;
    options.most_strategies = 3;
    CostGraph graph = random_cost_graph(random, options);
    const EveryAssignment brute(graph);
    for (const auto limit : limits(brute, random)) {
      graph.limit = limit;
      INFO("seed " << seed << ", limit " << (limit ? std::to_string(*limit) : "none"));
      const auto optimum = brute.least_cost(limit);
      solver::BackMap back;
      solver::Reduced reduced = reduce(solver::to_problem(graph, back), never);
      if (reduced.impossible) {
        CHECK(!optimum);
        continue;
      }
      // everything that is left, by brute force
      const solver::Core core(reduced.problem);
      if (core.nodes() < static_cast<int>(graph.nodes.size())) ++smaller;
      std::optional<double> best;
      each_feasible(core, [&](const solver::Labels& labels, double cost) {
        std::vector<int> assignment = reduced.back.expand(labels);
        assignment.resize(graph.nodes.size());
        const CostGraphEvaluation evaluation = evaluate(graph, assignment);
        CHECK(evaluation.feasible());
        CHECK(static_cast<double>(evaluation.cost) == cost);
        best = std::min(best.value_or(cost), cost);
      });
      REQUIRE(best.has_value() == optimum.has_value());
      if (best) CHECK(*best == static_cast<double>(*optimum));
    }
  }
  CHECK(smaller > 500);
}

TEST_CASE("every bound at any prices stays below the optimum, every repaired labelling above it") {
  int bounds = 0;
  int repaired = 0;
  int moved = 0;
  for (std::uint64_t seed = 1; seed <= 80; ++seed) {
    TightCase one(seed);
    if (!one.optimum) continue;
    const double optimum = *one.optimum;
    INFO("seed " << seed);
    const solver::Core core(one.reduced.problem);
    solver::Prices prices(core);
    solver::Worker worker(core, seed);
    solver::Budget budget(1e12, std::nullopt, nullptr);
    for (int step = 0; step < 60; ++step) {
      if (step % 20 == 10) {  // anything at all
        std::vector<double> any(static_cast<std::size_t>(core.moments()));
        for (double& price : any) price = static_cast<double>(one.random.between(0, 30)) / 7;
        prices.set(any);
      }
      REQUIRE(prices.bound() <= optimum);
      ++bounds;
      if (step % 10 == 0) {
        const auto solution = worker.repair(prices.prices(), prices.labels(), 20, budget);
        if (solution) {
          ++repaired;
          REQUIRE(solution->cost >= optimum);
          CHECK(core.fits(solution->usage));
          CHECK(core.cost_of(solution->labels) == solution->cost);
        }
      }
      prices.climb(optimum);
    }
    const double before = prices.center_bound();
    prices.search_along(8, never);
    REQUIRE(prices.center_bound() >= before);
    REQUIRE(prices.center_bound() <= optimum);
    if (prices.center_bound() > before + 1e-9 * std::abs(before)) ++moved;
    // without a solution, with one to beat, and with the best one
    for (const double known : {std::numeric_limits<double>::infinity(), optimum + 1, optimum}) {
      const auto outcome = solver::search_all(one.reduced.problem, prices.center(), known, budget);
      REQUIRE(outcome.complete);
      REQUIRE(outcome.solution.has_value() == (known > optimum));
      if (outcome.solution) {
        CHECK(outcome.solution->cost == optimum);
        CHECK(core.cost_of(outcome.solution->labels) == optimum);
        CHECK(core.fits(core.usage_of(outcome.solution->labels)));
      }
    }
  }
  CHECK(bounds > 3000);
  CHECK(repaired > 100);
  CHECK(moved > 5);
}

TEST_CASE("a block that is searched to the end has the best choice against the limit itself") {
  int started = 0;
  int best = 0;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    TightCase one(seed, 7);
    if (!one.optimum) continue;
    const double optimum = *one.optimum;
    INFO("seed " << seed);
    const solver::Core core(one.reduced.problem);
    if (core.nodes() < 3) continue;
    solver::Prices prices(core);
    solver::Worker worker(core, seed);
    solver::Budget budget(1e12, std::nullopt, nullptr);
    std::optional<solver::Solution> first;
    for (int step = 0; step < 200 && !first; ++step) {
      prices.bound();
      first = worker.repair(prices.prices(), prices.labels(), 20, budget);
      prices.climb(2 * std::abs(optimum) + 1);
    }
    if (!first) continue;
    ++started;
    solver::Shared shared;
    shared.offer(*first);
    shared.prices = prices.center();
    solver::Budget some(3e5, std::nullopt, nullptr);
    worker.improve(shared, some);
    double least = first->cost;
    for (const solver::Solution& solution : worker.take_found()) {
      CHECK(solution.cost >= optimum);
      CHECK(core.fits(solution.usage));
      CHECK(core.fits(core.usage_of(solution.labels)));
      CHECK(core.cost_of(solution.labels) == solution.cost);
      least = std::min(least, solution.cost);
    }
    if (least == optimum) ++best;
  }
  INFO(started << " started, " << best << " at the optimum");
  CHECK(started > 20);
  CHECK(best == started);
}

TEST_CASE("the bound of a strategy holds for every labelling that uses it") {
  int checked = 0;
  int above = 0;
  for (std::uint64_t seed = 1; seed <= 150; ++seed) {
    TightCase one(seed);
    if (!one.optimum) continue;
    const double optimum = *one.optimum;
    INFO("seed " << seed);
    const solver::Core core(one.reduced.problem);
    solver::Prices prices(core);
    for (int step = 0; step < 40; ++step) {
      prices.bound();
      prices.climb(optimum);
    }
    const std::vector<double> bounds = prices.strategy_bounds();
    if (core.nodes() == 0) continue;
    each_feasible(core, [&](const solver::Labels& labels, double cost) {
      for (int v = 0; v < core.nodes(); ++v) {
        const double bound =
            bounds[core.first(v) + static_cast<std::size_t>(labels[static_cast<std::size_t>(v)])];
        REQUIRE(bound <= cost);
        ++checked;
      }
    });
    for (const double bound : bounds) above += bound > optimum ? 1 : 0;
  }
  CHECK(checked > 200);
  CHECK(above > 50);  // and it is good for something
}

TEST_CASE("a block is minimised exactly with everything else fixed") {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    Random random(seed);
    RandomCostGraphOptions options;
    options.forbidden_percent = 3;
    options.edge_percent = 60;
    options.single_percent = 0;
    CostGraph graph = random_cost_graph(random, options);
    solver::BackMap back;
    const solver::Reduced reduced = reduce(solver::to_problem(graph, back), never);
    if (reduced.impossible) continue;
    // the problem as it was: reductions would leave little without a limit
    const solver::Core core(solver::to_problem(graph, back));
    std::vector<int> block;
    solver::Labels labels;
    for (int v = 0; v < core.nodes(); ++v) {
      labels.push_back(static_cast<int>(random.below(static_cast<std::size_t>(core.size(v)))));
      if (random.chance(60)) block.push_back(v);
    }
    if (block.empty()) continue;
    double best = core.cost_of(labels);
    each_labelling(core, block, labels, [&](const solver::Labels& other) {
      best = std::min(best, core.cost_of(other));
    });
    INFO("seed " << seed);
    for (const double cap : {1e6, 4.0}) {  // with small tables nodes are frozen
      solver::BlockWorkspace workspace;
      solver::RandomBits bits(seed);
      const solver::BlockPlan plan(core, block, cap, 1, bits, workspace);
      solver::Labels found = labels;
      plan.run(core, core.costs(), found, workspace);
      for (int v = 0; v < core.nodes(); ++v) {
        if (std::find(block.begin(), block.end(), v) == block.end())
          CHECK(found[static_cast<std::size_t>(v)] == labels[static_cast<std::size_t>(v)]);
      }
      CHECK(core.cost_of(found) <= core.cost_of(labels));
      CHECK(core.cost_of(found) >= best);
      if (plan.complete()) CHECK(core.cost_of(found) == best);
      if (cap > 1000) CHECK(plan.complete());
    }
  }
}

/// A node of random costs and memory, used from its own moment on.
void add_random_node(CostGraph& graph, Random& random, int strategies, std::int64_t duration) {
  std::vector<std::int64_t> costs;
  std::vector<std::int64_t> usage;
  for (int s = 0; s < strategies; ++s) {
    costs.push_back(random.between(0, 100));
    usage.push_back(random.between(1, 100));
  }
  const auto at = static_cast<std::int64_t>(graph.nodes.size());
  graph.nodes.push_back({graph.pool.add(costs), {{at, at + duration, graph.pool.add(usage)}}});
}

void add_random_edge(CostGraph& graph, Random& random, int a, int b) {
  const std::size_t pairs =
      graph.strategies(static_cast<std::size_t>(a)) * graph.strategies(static_cast<std::size_t>(b));
  std::vector<std::int64_t> costs;
  for (std::size_t i = 0; i < pairs; ++i) costs.push_back(i % 5 == 0 ? 0 : random.between(0, 200));
  graph.edges.push_back({a, b, graph.pool.add(costs), {}});
}

/// A chain of layers with skips over several, whose memory limit binds: too large to try
/// everything.
CostGraph layered_graph(std::uint64_t seed, int nodes) {
  Random random(seed);
  CostGraph graph;
  graph.contest = true;
  for (int v = 0; v < nodes; ++v) add_random_node(graph, random, 4, random.between(2, 12));
  for (int v = 1; v < nodes; ++v) {
    add_random_edge(graph, random, v - 1, v);
    if (v >= 5 && random.chance(50)) add_random_edge(graph, random, v - 5, v);
  }
  graph.limit = 400;
  return graph;
}

SolveOptions one_round() {
  SolveOptions options;
  options.iterations = 1;
  return options;
}

struct Shape {
  const char* name;
  int nodes;
  std::int64_t duration;  ///< of the memory of a node; 0: to the end
  std::vector<int> back;  ///< edges to the nodes so many before; 0: to the first node
};

void solve_shape(const Shape& shape, bool with_limits = true) {
  INFO(shape.name);
  Random random(11);
  CostGraph graph;
  graph.contest = true;
  for (int v = 0; v < shape.nodes; ++v)
    add_random_node(graph, random, 3, shape.duration > 0 ? shape.duration : shape.nodes - v);
  for (int v = 1; v < shape.nodes; ++v) {
    for (const int back : shape.back) {
      if (back <= v && !(back == 1 && v == 1 && shape.back.size() > 1))
        add_random_edge(graph, random, back == 0 ? 0 : v - back, v);
    }
    for (int u = 0; shape.back.empty() && u < v; ++u) add_random_edge(graph, random, u, v);
  }
  const CostGraphSolution free = solve_cost_graph(graph, one_round());
  REQUIRE((free.status == Status::kOptimal || free.status == Status::kFeasible));
  if (!with_limits) return;
  graph.limit = 1;
  const CostGraphSolution none = solve_cost_graph(graph, one_round());
  REQUIRE(none.status == Status::kImpossible);
  REQUIRE(none.least_usage.has_value());
  graph.limit = static_cast<std::int64_t>(1.2 * *none.least_usage);
  const CostGraphSolution limited = solve_cost_graph(graph, one_round());
  REQUIRE((limited.status == Status::kOptimal || limited.status == Status::kFeasible));
  CHECK(limited.evaluation.feasible());
  CHECK(*limited.lower_bound <= limited.evaluation.cost);
  CHECK(*free.lower_bound <= limited.evaluation.cost);
  CHECK(free.evaluation.peak_usage > *graph.limit);  // the limit binds
}

TEST_CASE("large simple graphs end without a limit") {
  solve_shape({"chain", 5'000, 5, {1}}, false);
  solve_shape({"star", 2'000, 5, {0}}, false);
  solve_shape({"wheel", 1'000, 5, {0, 1}}, false);
}

TEST_CASE("large, dense and long-lived graphs end within limits, too small ones too", "[slow]") {
  solve_shape({"chain", 20'000, 5, {1}});
  solve_shape({"star", 5'000, 5, {0}});
  solve_shape({"wheel", 5'000, 5, {0, 1}});
  solve_shape({"chain with memory kept to the end", 3'000, 0, {1}});
  solve_shape({"grid", 400, 30, {1, 20}});
  solve_shape({"all with all", 60, 60, {}});
}

TEST_CASE("plans of all nodes are found where one cap is too small and the next one too large") {
  Random random(3);
  CostGraph graph;
  graph.contest = true;
  for (int pair = 0; pair < 1500; ++pair) {
    for (const int strategies : {200, 100}) {
      graph.nodes.push_back(
          {graph.pool.add(std::vector<std::int64_t>(static_cast<std::size_t>(strategies), pair)),
           {}});
    }
  }
  std::vector<std::int64_t> costs;
  for (int i = 0; i < 200 * 100; ++i) costs.push_back(random.between(0, 1000));
  const int table = graph.pool.add(costs);
  for (int v = 0; v < 3000; v += 2) graph.edges.push_back({v, v + 1, table, {}});
  solver::BackMap back;
  const solver::Core core(solver::to_problem(graph, back));
  solver::Worker worker(core, 1);
  solver::Budget budget(std::numeric_limits<double>::infinity(), std::nullopt, nullptr);
  solver::Labels labels(3000, 0);
  const double before = core.cost_of(labels);
  worker.polish(core.costs(), labels, budget);
  CHECK(core.cost_of(labels) < before);
}

TEST_CASE("memory on the pairs of large nodes is not combined with all that is around them") {
  Random random(5);
  CostGraph graph;
  graph.contest = true;
  for (const int strategies : {40, 24, 40, 24}) {
    add_random_node(graph, random, strategies, 4);
  }
  double pairs = 0;
  for (const auto& [a, b] : {std::pair(0, 1), std::pair(1, 2), std::pair(2, 3), std::pair(3, 0)}) {
    add_random_edge(graph, random, a, b);
    std::vector<std::int64_t> usage;
    for (int i = 0; i < 960; ++i) usage.push_back(random.between(0, 50));
    graph.edges.back().uses.push_back({a, b + 3, graph.pool.add(usage)});
    pairs += 960;
  }
  graph.limit = 300;
  solver::BackMap back;
  solver::Problem problem = solver::to_problem(graph, back);
  const solver::Reduced reduced = reduce(std::move(problem), never);
  REQUIRE(!reduced.impossible);
  double entries = 0;
  for (const solver::Problem::Edge& edge : reduced.problem.edges)
    entries += static_cast<double>(reduced.problem.pool.table(edge.table).costs.size());
  CHECK(entries < 80 * pairs);  // 960 x 960 for each two of them otherwise
}

TEST_CASE("where everything costs the same any assignment within the limit is optimal") {
  Random random(6);
  CostGraph graph;
  graph.contest = true;
  for (int v = 0; v < 200; ++v) add_random_node(graph, random, 4, 6);
  for (CostGraph::Node& node : graph.nodes)
    node.costs = graph.pool.add(std::vector<std::int64_t>(4, 7));
  for (int v = 1; v < 200; ++v)
    graph.edges.push_back({v - 1, v, graph.pool.add(std::vector<std::int64_t>(16, 2)), {}});
  graph.limit = 400;
  const CostGraphSolution solution = solve_cost_graph(graph, quick());
  REQUIRE(solution.status == Status::kOptimal);
  CHECK(solution.evaluation.cost == 200 * 7 + 199 * 2);
}

TEST_CASE("without a number of rounds a search ends when nothing moves any more", "[slow]") {
  Random random(8);
  CostGraph graph;
  graph.contest = true;
  for (int v = 0; v < 14; ++v) add_random_node(graph, random, 300, 14);
  for (int v = 0; v < 14; ++v) {
    for (int u = 0; u < v; ++u) {
      if (random.chance(40)) add_random_edge(graph, random, u, v);
    }
  }
  graph.limit = 14 * 30;
  SolveOptions options;
  const CostGraphSolution solution = solve_cost_graph(graph, options);
  CHECK(solution.phases.rounds < options.iterations);
  CHECK(solution.evaluation.feasible());
}

TEST_CASE("the result depends on the seed and the work alone, not on the number of threads") {
  const CostGraph graph = layered_graph(7, 120);
  std::set<CostGraphAssignment> different;
  for (const std::uint64_t seed : {0U, 1U}) {
    std::optional<CostGraphSolution> first;
    for (const unsigned threads : {1U, 2U, 5U}) {
      SolveOptions options;
      options.iterations = 2;
      options.seed = seed;
      options.threads = threads;
      const CostGraphSolution solution = solve_cost_graph(graph, options);
      REQUIRE((solution.status == Status::kFeasible || solution.status == Status::kOptimal));
      CHECK(*solution.lower_bound <= solution.evaluation.cost);
      if (!first) first = solution;
      CHECK(solution.assignment == first->assignment);
      CHECK(solution.lower_bound == first->lower_bound);
      CHECK(solution.phases.blocks == first->phases.blocks);
      CHECK(solution.phases.price_steps == first->phases.price_steps);
    }
  }
}

TEST_CASE("a time limit is kept, and whatever was found is within the limit") {
  const CostGraph graph = layered_graph(3, 400);
  SolveOptions options;
  options.time_limit = 1.0;
  options.threads = 2;
  options.start = SolveOptions::Clock::now();
  const CostGraphSolution solution = solve_cost_graph(graph, options);
  const double seconds =
      std::chrono::duration<double>(SolveOptions::Clock::now() - options.start).count();
  CHECK(seconds < 20);  // of a machine that may be busy; one second over at most is the promise
  CHECK(solution.status != Status::kImpossible);
  if (solution.status != Status::kNothing) CHECK(solution.evaluation.feasible());
}

TEST_CASE("a stopped search returns what it has") {
  const CostGraph graph = layered_graph(3, 60);
  SolveOptions options;
  options.stop = [] { return true; };
  CHECK(solve_cost_graph(graph, options).status == Status::kNothing);
}

TEST_CASE("costs and usages near 64 bits are added up in 128") {
  CostGraph graph;
  graph.contest = true;
  const std::int64_t huge = 900'000'000'000'000'000;
  const std::int64_t wide = 9'000'000'000'000'000'000;
  for (int v = 0; v < 30; ++v) {
    graph.nodes.push_back({graph.pool.add(std::vector<std::int64_t>{huge, huge}),
                           {{0, 5, graph.pool.add(std::vector<std::int64_t>{wide, wide})}}});
  }
  const CostGraphAssignment assignment(30, 1);
  const CostGraphEvaluation evaluation = evaluate(graph, assignment);
  CHECK(to_string(evaluation.cost) == "27000000000000000000");
  CHECK(to_string(evaluation.peak_usage) == "270000000000000000000");
  CHECK(evaluation.feasible());
  const CostGraphSolution solution = solve_cost_graph(graph, quick());
  REQUIRE(solution.status == Status::kFeasible);  // doubles cannot prove the last digit
  CHECK(solution.evaluation.cost == evaluation.cost);
  CHECK(*solution.lower_bound <= solution.evaluation.cost);
  CHECK(solution.gap < 1e-9);
}

TEST_CASE("what is said of too small a limit holds for usages that doubles cannot hold") {
  CostGraph graph;
  graph.contest = true;
  const std::int64_t most = std::numeric_limits<std::int64_t>::max();
  for (int v = 0; v < 3; ++v) {
    graph.nodes.push_back(
        {graph.pool.add(std::vector<std::int64_t>{5, 3}),
         {{v % 2, most, graph.pool.add(std::vector<std::int64_t>{most, most - 1})}}});
  }
  graph.limit = most;
  const CostGraphSolution solution = solve_cost_graph(graph, quick());
  REQUIRE(solution.status == Status::kImpossible);
  REQUIRE(solution.least_usage.has_value());
  CHECK(static_cast<Int128>(*solution.least_usage) <= 3 * (Int128{most} - 1));
  CHECK(static_cast<Int128>(*solution.least_usage) > most);
}

TEST_CASE("a graph without nodes has the empty assignment") {
  CostGraph graph;
  graph.limit = 0;
  const CostGraphSolution solution = solve_cost_graph(graph, quick());
  CHECK(solution.status == Status::kOptimal);
  CHECK(solution.evaluation.cost == 0);
}

TEST_CASE("optima and evaluations of other systems are reproduced") {
  std::ifstream file(MESHPLAN_TEST_DATA "/cost_graph_cases.json");
  const nlohmann::json cases = nlohmann::json::parse(file);
  CHECK(cases["cases"].size() == 19);
  for (const nlohmann::json& entry : cases["skipped"]) CHECK(!entry["reason"].empty());
  for (const nlohmann::json& entry : cases["cases"]) {
    INFO(entry["id"].get<std::string>());
    const auto graph = parse_cost_graph(entry["graph"].dump(), "case");
    REQUIRE(graph.has_value());
    if (entry.contains("solve")) {
      const nlohmann::json& expected = entry["solve"];
      const CostGraphSolution solution = solve_cost_graph(*graph, quick());
      REQUIRE(solution.status == Status::kOptimal);
      const double cost = static_cast<double>(solution.evaluation.cost) * graph->unit;
      if (expected.contains("cost"))
        CHECK(cost == Approx(expected["cost"].get<double>()).epsilon(1e-9));
      if (expected.contains("cost_above")) {
        // proven: nothing costs as little as that
        CHECK(static_cast<double>(*solution.lower_bound) > expected["cost_above"].get<double>());
      }
      if (expected.contains("assignment"))
        CHECK(solution.assignment == expected["assignment"].get<std::vector<int>>());
    }
    if (!entry.contains("check")) continue;
    for (const nlohmann::json& check : entry["check"]) {
      const auto assignment = parse_assignment(check["assignment"].dump(), "case", *graph);
      if (check.contains("rejected")) {
        CHECK(!assignment.has_value());
        continue;
      }
      REQUIRE(assignment.has_value());
      const CostGraphEvaluation evaluation = evaluate(*graph, *assignment);
      CHECK(evaluation.feasible() == check["feasible"].get<bool>());
      if (check.contains("cost")) CHECK(evaluation.cost == check["cost"].get<std::int64_t>());
    }
  }
}

}  // namespace
}  // namespace meshplan::cost_graph_solver_test

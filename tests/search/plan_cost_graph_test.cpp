// SPDX-License-Identifier: Apache-2.0
// The cost graph of a plan's search is the same problem: same optimum, same memory.
#include "search/plan_cost_graph.h"

#include <cmath>
#include <limits>

#include "search/cost_graph_solver.h"
#include "search/memory_search.h"
#include "support/models.h"
#include "support/random_graph.h"

namespace meshplan::plan_cost_graph_test {
namespace {

using test::Random;

constexpr Bytes kUnlimited = std::numeric_limits<Bytes>::max();

struct Case {
  explicit Case(std::uint64_t seed) : random(seed) {
    mesh = random.pick(std::vector<std::vector<std::int64_t>>{{2}, {3}, {2, 2}, {4}});
    std::int64_t devices = 1;
    for (const std::int64_t size : mesh) devices *= size;
    cluster = test::random_cluster(random, devices);
    options = test::random_options(random, cluster);
    const bool training = random.chance(85);
    text = test::RandomGraphText(random, {1, 2, 4, 6, 8, 12})
               .make(static_cast<int>(random.between(2, 6)), training);
    graph = test::build_graph(text, training);
    if (seed % 3 == 0) options.recomputation = test::random_recomputation(seed, graph);
  }

  Random random;
  std::vector<std::int64_t> mesh;
  Cluster cluster;
  PriceOptions options;
  std::string text;
  Graph graph;
};

/// A few rounds prove what is small; what they do not prove is not compared.
SolveOptions few_rounds() {
  SolveOptions options;
  options.iterations = 2;
  return options;
}

double seconds(Int128 ticks) { return std::ldexp(static_cast<double>(ticks), -40); }

TEST_CASE("a plan's cost graph has the optimum of the plan's search, with and without a limit") {
  int compared = 0;
  int limited = 0;
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    Case c(seed);
    INFO("seed " << seed << ": " << c.text);
    auto book = PriceBook::make(c.graph, c.cluster, c.mesh, c.options);
    REQUIRE(book.has_value());
    auto problem = PlanProblem::make(**book, {});
    REQUIRE(problem.has_value());
    const MemorySearchResult free = memory_search(**problem, kUnlimited);
    REQUIRE(free.proven_optimal);
    const Bytes peak = (*problem)->measure(*free.decision).peak;
    for (const int percent : {200, 90}) {
      const Bytes limit = peak / 100 * percent;
      INFO("limit " << limit);
      auto made = plan_cost_graph(**book, {}, limit);
      if (!made) FAIL(to_string(made.error()));
      const CostGraphSolution solved = solve_cost_graph(made->graph, few_rounds());
      const MemorySearchResult found = memory_search(**problem, limit);
      if (found.min_memory) {
        CHECK(solved.status != CostGraphSolution::Status::kOptimal);
        CHECK(solved.status != CostGraphSolution::Status::kFeasible);
        continue;
      }
      if (solved.status != CostGraphSolution::Status::kOptimal) continue;
      ++compared;
      const double optimum = seconds(solved.evaluation.cost);
      CHECK(found.lower_bound <= optimum);
      if (found.decision) CHECK(found.objective.value >= optimum);
      if (found.proven_optimal) CHECK(found.objective.value == optimum);
      if (percent < 100) ++limited;
    }
  }
  CHECK(compared > 15);
  CHECK(limited > 2);
}

TEST_CASE("cost graphs with memory on pairs of many strategies are solved in two rounds") {
  // pairs of nodes of 60 and more strategies are nodes of thousands
  for (const auto& [seed, limit] : {std::pair<std::uint64_t, Bytes>(53, 180)}) {
    Case c(seed);
    INFO("seed " << seed << ": " << c.text);
    auto book = PriceBook::make(c.graph, c.cluster, c.mesh, c.options);
    REQUIRE(book.has_value());
    auto problem = PlanProblem::make(**book, {});
    REQUIRE(problem.has_value());
    const auto made = plan_cost_graph(**book, {}, limit);
    REQUIRE(made.has_value());
    const CostGraphSolution solved = solve_cost_graph(made->graph, few_rounds());
    const MemorySearchResult found = memory_search(**problem, limit);
    REQUIRE(found.decision.has_value());
    REQUIRE(solved.lower_bound.has_value());
    CHECK(seconds(*solved.lower_bound) <= found.objective.value);
    CHECK(solved.evaluation.feasible());
    CHECK(found.lower_bound <= seconds(solved.evaluation.cost));
  }
}

TEST_CASE("what is written is read back as the same problem, in both formats") {
  for (std::uint64_t seed = 100; seed < 103; ++seed) {
    Case c(seed);
    INFO("seed " << seed << ": " << c.text);
    auto book = PriceBook::make(c.graph, c.cluster, c.mesh, c.options);
    REQUIRE(book.has_value());
    const auto made = plan_cost_graph(**book, {}, kUnlimited / 4);
    REQUIRE(made.has_value());
    const CostGraphSolution direct = solve_cost_graph(made->graph, few_rounds());
    REQUIRE(direct.status == CostGraphSolution::Status::kOptimal);
    const auto own = parse_cost_graph(write_cost_graph(*made), "own.json");
    if (!own) FAIL(to_string(own.error()));
    REQUIRE(own->nodes.size() == made->graph.nodes.size());
    const CostGraphEvaluation again = evaluate(*own, direct.assignment);
    CHECK(again.feasible());
    CHECK(static_cast<double>(again.cost) * own->unit == seconds(direct.evaluation.cost));
    CHECK(again.peak_usage == direct.evaluation.peak_usage);
    const auto contest = parse_cost_graph(write_contest_cost_graph(*made), "contest.json");
    if (!contest) FAIL(to_string(contest.error()));
    const CostGraphSolution other = solve_cost_graph(*contest, few_rounds());
    CHECK(other.evaluation.feasible());
    CHECK(other.evaluation.cost >= direct.evaluation.cost);
    if (other.status == CostGraphSolution::Status::kOptimal)
      CHECK(other.evaluation.cost == direct.evaluation.cost);
  }
}

TEST_CASE("the integer program has a row per node and moment, and costs are exact decimals") {
  const Graph graph = test::build_graph(
      "input x 8 4; weight w 4 6; y = MatMul x w; loss l = ReduceMean y keepdims=0");
  const Cluster cluster = test::cluster({test::level(2, 1, 1)});
  auto book = PriceBook::make(graph, cluster, {2}, {});
  REQUIRE(book.has_value());
  std::string lp;
  const auto count = [&](const std::string& word) {
    std::size_t found = 0;
    for (std::size_t at = lp.find(word); at != std::string::npos; at = lp.find(word, at + 1))
      ++found;
    return found;
  };
  // where nothing can exceed the limit, no moment needs a row
  const auto loose = plan_cost_graph(**book, {}, 1'000'000);
  REQUIRE(loose.has_value());
  lp = write_lp_cost_graph(*loose);
  CHECK(count("<= ") == 0);
  const auto made = plan_cost_graph(**book, {}, 100);
  REQUIRE(made.has_value());
  lp = write_lp_cost_graph(*made);
  CHECK(count("= 1\n") == made->graph.nodes.size());
  CHECK(count("<= 100\n") == static_cast<std::size_t>(made->moments));
  CHECK(lp.rfind("\\ cost graph of test", 0) == 0);
  CHECK(lp.substr(lp.size() - 4) == "End\n");
  CHECK(count("inf") == 0);
  CHECK(count("nan") == 0);
}

}  // namespace
}  // namespace meshplan::plan_cost_graph_test

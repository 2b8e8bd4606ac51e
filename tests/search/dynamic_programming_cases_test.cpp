// SPDX-License-Identifier: Apache-2.0
// Graphs from the tests of another planner's dynamic programming, and its eliminations by name.
//
// `theirs` is the plan that is the optimum there, by another cost model; forced by constraints it
// must be legal here, and ours never costs more. `given` are strategies that the user fixes. Soft
// labels of a loss became classes, FloorDiv became Div: the same cuts.
#include <algorithm>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "apps/constraints_reader.h"
#include "cost_model/test_clusters.h"
#include "plan/build_plan.h"
#include "plan/check_plan.h"
#include "search/constraint_restrictions.h"
#include "search/dp_search.h"
#include "search/min_sum.h"
#include "support/graph_builder.h"
#include "support/random.h"

namespace meshplan::dynamic_programming_cases_test {

using nlohmann::json;

namespace {

Cluster cluster_of(std::int64_t devices) {
  if (devices <= 8) return test::cluster({test::level(devices, 100, 2)});
  return test::cluster({test::level(8, 100, 2), test::level(devices / 8, 10, 10)});
}

DpOptions options_of(const Cluster& cluster) {
  DpOptions options;
  options.prices.overlap = cluster.efficiency.overlap;
  options.memory_limit = cluster.usable_memory();
  return options;
}

/// The best plan with these strategies fixed: {"op": [[2, 4], [4, 1]]}; none where no mesh has it.
std::optional<DpResult> best(const Graph& graph, const Cluster& cluster, const json& fixed) {
  json document = {{"schema", "meshplan.constraints/1.0"}, {"operators", json::object()}};
  for (const auto& [name, strategy] : fixed.items())
    document["operators"][name] = {{"in_strategy", strategy}};
  const auto constraints = parse_constraints(document.dump(), "constraints.json");
  if (!constraints) FAIL(to_string(constraints.error()));
  const RestrictionsOf restrictions = [&](PriceBook& book,
                                          const MeshShape& shape) -> Result<Restrictions> {
    auto mesh = DeviceMesh::make(shape.shape, shape.axes);
    if (!mesh) return fail(mesh.error());
    auto bound = bind_constraints(*constraints, graph, *mesh);
    if (!bound) return fail(bound.error());
    return restrictions_from(*bound, book);
  };
  auto outcome = dp_search(graph, cluster, all_meshes(cluster), options_of(cluster), restrictions);
  if (!outcome) {
    UNSCOPED_INFO(to_string(outcome.error()));
    return std::nullopt;
  }
  REQUIRE(std::holds_alternative<DpResult>(*outcome));
  return std::get<DpResult>(std::move(*outcome));
}

void check(const DpResult& found, const Graph& graph, const Cluster& cluster, bool training) {
  CHECK(found.optimal);
  PlanContext context;
  context.version = "0.0.0";
  context.axes = found.mesh.axes;
  context.options.mode = training ? "training" : "inference";
  context.memory_limit = cluster.usable_memory();
  context.result.gap = 0;
  context.result.lower_bound = found.evaluation.objective;
  context.result.status = PlanStatus::kOptimal;
  context.result.found_by = "dp";
  context.result.objective = found.evaluation.objective;
  const Plan plan = build_plan(*found.book, found.assignment, found.evaluation, context);
  for (const Finding& finding : check_plan(plan, graph, cluster))
    FAIL_CHECK(finding.pointer << ": " << finding.message);
}

/// What another planner calls the elimination of a variable, by what it is joined to.
std::string elimination_name(const Eliminated& step, const MinSum& problem) {
  switch (step.neighbours.size()) {
    case 0:
      return "last";
    case 1:
      return "merge or contract";
    case 2:
      return problem.joined(step.neighbours[0], step.neighbours[1]) ? "triangle"
                                                                    : "operator or source";
    default:
      return "star";
  }
}

/// A problem of random tables over `domains`, with an edge for each pair.
MinSum random_problem(const std::vector<int>& domains,
                      const std::vector<std::pair<int, int>>& edges,
                      test::Random& random,
                      std::vector<CostTable>& tables) {
  MinSum sum;
  auto table = [&](int rows, int columns) {
    CostTable made{rows, columns, {}};
    for (int i = 0; i < rows * columns; ++i)
      made.costs.push_back(static_cast<double>(random.between(0, 50)));
    tables.push_back(made);
    return sum.add_table(made);
  };
  for (const int domain : domains) sum.add_variable(table(domain, 1));
  for (const auto& [a, b] : edges)
    sum.add_edge(
        a, b, table(domains[static_cast<std::size_t>(a)], domains[static_cast<std::size_t>(b)]));
  return sum;
}

double brute_force(const std::vector<int>& domains,
                   const std::vector<std::pair<int, int>>& edges,
                   const std::vector<CostTable>& tables) {
  std::vector<int> choice(domains.size(), 0);
  double least = kForbidden;
  while (true) {
    double sum = 0;
    for (std::size_t v = 0; v < domains.size(); ++v)
      sum += tables[v].costs[static_cast<std::size_t>(choice[v])];
    for (std::size_t e = 0; e < edges.size(); ++e) {
      const CostTable& table = tables[domains.size() + e];
      sum += table.costs[static_cast<std::size_t>(
          choice[static_cast<std::size_t>(edges[e].first)] * table.columns +
          choice[static_cast<std::size_t>(edges[e].second)])];
    }
    least = std::min(least, sum);
    std::size_t v = 0;
    while (v < domains.size() && ++choice[v] == domains[v]) choice[v++] = 0;
    if (v == domains.size()) return least;
  }
}

}  // namespace

TEST_CASE("graphs of another planner's tests are planned, never at a higher cost than its plans") {
  std::ifstream file(MESHPLAN_TEST_DATA "/dynamic_programming_cases.json");
  const json data = json::parse(file);
  std::size_t replayed = 0;
  std::size_t equal = 0;
  std::size_t compared = 0;
  for (const json& one : data.at("cases")) {
    INFO(one.at("id").get<std::string>());
    ++replayed;
    const auto text = one.at("graph").get<std::string>();
    const bool training = text.find("loss ") != std::string::npos;
    const Graph graph = test::build_graph(text, training);
    const Cluster cluster = cluster_of(one.at("devices").get<std::int64_t>());
    const auto ours = best(graph, cluster, one.value("given", json::object()));
    REQUIRE(ours);
    check(*ours, graph, cluster, training);
    CHECK(ours->assignment.strategies.size() == graph.operators.size());
    if (!one.contains("theirs")) continue;
    const auto theirs = best(graph, cluster, one.at("theirs"));
    REQUIRE(theirs);
    check(*theirs, graph, cluster, training);
    CHECK(ours->evaluation.objective <= theirs->evaluation.objective);
    ++compared;
    if (ours->evaluation.objective == theirs->evaluation.objective) ++equal;
  }
  INFO(equal << " of " << compared << " plans cost the same");
  CHECK(compared == 8);
  CHECK(equal >= 3);
  std::size_t skipped = 0;
  for (const json& one : data.at("skipped")) {
    CHECK(one.at("reason").get<std::string>().size() > 20);
    ++skipped;
  }
  CHECK(replayed + skipped == 31);
  CHECK(skipped * 10 <= 31);
}

TEST_CASE("every elimination that has a name is one of ours, and keeps the optimum") {
  using Edges = std::vector<std::pair<int, int>>;
  struct Row {
    const char* name;
    std::vector<int> domains;
    Edges edges;       ///< as they point in the graph
    std::string step;  ///< one of those that are made
  };
  // the products m1 -> m2 -> m4 <- m3 of its tests, and the smallest graphs of each name
  const std::vector<Row> rows = {
      {"first mergeable", {2, 3, 3, 4}, {{0, 1}, {1, 3}, {2, 3}}, "merge or contract"},
      {"operator", {2, 5, 5, 5, 5}, {{1, 0}, {0, 2}, {2, 3}, {3, 4}, {4, 1}}, "operator or source"},
      {"edge", {2, 4}, {{0, 1}, {0, 1}, {1, 0}}, "merge or contract"},
      {"merge", {2, 4, 4}, {{0, 1}, {1, 2}}, "merge or contract"},
      {"contract", {2, 4, 4}, {{2, 1}, {1, 0}}, "merge or contract"},
      {"source", {2, 5, 5, 5}, {{0, 2}, {0, 3}, {1, 2}, {1, 3}}, "operator or source"},
      {"triangle", {2, 5, 5}, {{0, 1}, {0, 2}, {1, 2}}, "triangle"},
      {"star", {2, 5, 5, 5}, {{0, 1}, {0, 2}, {0, 3}, {1, 2}, {2, 3}, {1, 3}}, "star"},
      {"two parts", {2, 3, 3, 3}, {{0, 1}, {2, 3}}, "merge or contract"},
  };
  test::Random random(11);
  for (const Row& row : rows) {
    INFO(row.name);
    for (int repeat = 0; repeat < 50; ++repeat) {
      std::vector<CostTable> tables;
      MinSum problem = random_problem(row.domains, row.edges, random, tables);
      std::vector<Eliminated> steps;
      const MinSumSolution solution = problem.solve(&steps);
      REQUIRE(solution.feasible);
      CHECK(solution.exact);
      CHECK(solution.value == brute_force(row.domains, row.edges, tables));
      CHECK(solution.lower_bound == solution.value);
      REQUIRE(steps.size() == row.domains.size());
      // which variable is first depends on the values that are left
      CHECK(std::any_of(steps.begin(), steps.end(), [&](const Eliminated& step) {
        return elimination_name(step, problem) == row.step;
      }));
      // what remains of each part of the graph at the end is one variable
      std::size_t last = 0;
      for (const Eliminated& step : steps) last += step.neighbours.empty() ? 1U : 0U;
      CHECK(last == (std::string(row.name) == "two parts" ? 2U : 1U));
    }
  }
}

}  // namespace meshplan::dynamic_programming_cases_test

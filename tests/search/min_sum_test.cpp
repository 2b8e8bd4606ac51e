// SPDX-License-Identifier: Apache-2.0
// Variable elimination against brute force.
#include "search/min_sum.h"

#include <algorithm>

#include "support/catch.h"
#include "support/random.h"

namespace meshplan::min_sum_test {
namespace {

using test::Random;

/// A problem as brute force sees it; tables may be used by several variables and edges.
struct Problem {
  struct Pair {
    int a;
    int b;
    std::size_t table;
  };
  std::vector<CostTable> tables;
  std::vector<std::size_t> unary;
  std::vector<Pair> edges;

  double value(const std::vector<int>& choice) const {
    double sum = 0;
    for (std::size_t v = 0; v < unary.size(); ++v)
      sum += tables[unary[v]].costs[static_cast<std::size_t>(choice[v])];
    for (const Pair& edge : edges) {
      const CostTable& table = tables[edge.table];
      sum += table.costs[static_cast<std::size_t>(choice[static_cast<std::size_t>(edge.a)] *
                                                      table.columns +
                                                  choice[static_cast<std::size_t>(edge.b)])];
    }
    return sum;
  }

  double least() const {
    std::vector<int> choice(unary.size(), 0);
    double best = kForbidden;
    while (true) {
      best = std::min(best, value(choice));
      std::size_t v = 0;
      while (v < choice.size() && ++choice[v] == tables[unary[v]].rows) choice[v++] = 0;
      if (v == choice.size()) return best;
    }
  }

  MinSum solver(std::size_t budget) const {
    MinSum sum(budget);
    std::vector<TableNumber> numbers;
    for (const CostTable& table : tables) numbers.push_back(sum.add_table(table));
    for (const std::size_t table : unary) sum.add_variable(numbers[table]);
    for (const Pair& edge : edges) sum.add_edge(edge.a, edge.b, numbers[edge.table]);
    return sum;
  }
};

/// Whole numbers, so that sums are exact whatever their order.
CostTable random_table(Random& random, int rows, int columns, int forbidden_percent) {
  CostTable table{rows, columns, {}};
  for (int i = 0; i < rows * columns; ++i) {
    table.costs.push_back(
        random.chance(forbidden_percent) ? kForbidden : static_cast<double>(random.between(0, 12)));
  }
  return table;
}

enum class Form { kTree, kLoop, kDense, kParallel, kLayers };

Problem random_problem(Random& random, Form form) {
  Problem problem;
  const int forbidden = random.chance(50) ? 0 : random.chance(70) ? 10 : 40;
  const int variables = static_cast<int>(random.between(1, 7));
  // few distinct domains, so that tables can be shared
  std::vector<int> domains;
  const int equal = static_cast<int>(random.between(1, 4));
  for (int v = 0; v < variables; ++v) {
    domains.push_back(form == Form::kLayers ? equal : static_cast<int>(random.between(1, 4)));
    if (form == Form::kLayers && v > 0 && random.chance(70)) {
      problem.unary.push_back(problem.unary.back());
      continue;
    }
    problem.unary.push_back(problem.tables.size());
    problem.tables.push_back(random_table(random, domains.back(), 1, forbidden));
  }
  auto connect = [&](int a, int b) {
    if (random.chance(50)) std::swap(a, b);
    const int rows = domains[static_cast<std::size_t>(a)];
    const int columns = domains[static_cast<std::size_t>(b)];
    if (random.chance(form == Form::kLayers ? 80 : 20)) {
      for (const Problem::Pair& edge : problem.edges) {
        const CostTable& table = problem.tables[edge.table];
        if (table.rows == rows && table.columns == columns) {
          problem.edges.push_back({a, b, edge.table});
          return;
        }
      }
    }
    problem.edges.push_back({a, b, problem.tables.size()});
    problem.tables.push_back(random_table(random, rows, columns, forbidden));
  };
  for (int v = 1; v < variables; ++v) {
    const int before = form == Form::kLoop || form == Form::kLayers
                           ? v - 1
                           : static_cast<int>(random.below(static_cast<std::size_t>(v)));
    switch (form) {
      case Form::kTree:
        if (random.chance(90)) connect(v, before);
        break;
      case Form::kLoop:
      case Form::kLayers:
        connect(v, before);
        if (v + 1 == variables && v > 1) connect(v, 0);
        if (v > 2 && random.chance(30)) connect(v, static_cast<int>(random.below(2)));
        break;
      case Form::kDense:
        for (int u = 0; u < v; ++u) {
          if (random.chance(80)) connect(v, u);
        }
        break;
      case Form::kParallel:
        for (std::int64_t times = random.between(1, 3); times > 0; --times) connect(v, before);
        break;
    }
  }
  return problem;
}

const std::vector<Form> kForms = {
    Form::kTree, Form::kLoop, Form::kDense, Form::kParallel, Form::kLayers};

TEST_CASE("variable elimination finds the least sum of random problems") {
  for (std::uint64_t seed = 0; seed < 1500; ++seed) {
    Random random(seed);
    const Form form = kForms[seed % kForms.size()];
    const Problem problem = random_problem(random, form);
    INFO("seed " << seed << ", form " << static_cast<int>(form));
    MinSum sum = problem.solver(std::size_t{1} << 26);
    const MinSumSolution found = sum.solve();
    const double least = problem.least();
    REQUIRE(found.exact);
    REQUIRE(found.feasible == (least != kForbidden));
    if (!found.feasible) continue;
    REQUIRE(found.value == least);
    REQUIRE(found.lower_bound == least);
    REQUIRE(problem.value(found.choice) == least);
    // solving again changes nothing
    const MinSumSolution again = sum.solve();
    REQUIRE(again.value == least);
    REQUIRE(again.choice == found.choice);
  }
}

TEST_CASE("a small budget gives an honest bound and an honest choice") {
  int not_exact = 0;
  for (std::uint64_t seed = 0; seed < 1500; ++seed) {
    Random random(seed);
    const Problem problem = random_problem(random, seed % 3 == 0 ? Form::kLoop : Form::kDense);
    const double least = problem.least();
    for (const std::size_t budget : std::vector<std::size_t>{1, 8, 30, 100}) {
      INFO("seed " << seed << ", budget " << budget);
      const MinSumSolution found = problem.solver(budget).solve();
      if (!found.exact) ++not_exact;
      if (found.feasible) {
        REQUIRE(problem.value(found.choice) == found.value);
        REQUIRE(found.lower_bound <= least);
        REQUIRE(least <= found.value);
      }
      if (least == kForbidden) REQUIRE_FALSE(found.feasible);
      if (found.exact) {
        REQUIRE(found.feasible == (least != kForbidden));
        if (found.feasible) REQUIRE(found.value == least);
      }
    }
  }
  CHECK(not_exact > 500);  // the budgets were really too small
}

TEST_CASE("a problem without variables costs nothing, one without a legal value is infeasible") {
  const MinSumSolution nothing = MinSum().solve();
  CHECK(nothing.feasible);
  CHECK(nothing.value == 0);

  MinSum sum;
  const TableNumber two = sum.add_table({2, 1, {1, 2}});
  const int a = sum.add_variable(two);
  const int b = sum.add_variable(two);
  sum.add_edge(a, b, sum.add_table({2, 2, {kForbidden, kForbidden, kForbidden, kForbidden}}));
  CHECK_FALSE(sum.solve().feasible);
}

TEST_CASE("a thousand equal layers are solved exactly") {
  // the cheapest chain alternates between the values 0 and 1
  MinSum sum;
  const TableNumber own = sum.add_table({3, 1, {1, 1, 5}});
  const TableNumber pair = sum.add_table({3, 3, {9, 2, 9, 3, 9, 9, 0, 0, 0}});
  int before = sum.add_variable(own);
  for (int layer = 1; layer < 1000; ++layer) {
    const int next = sum.add_variable(own);
    sum.add_edge(before, next, pair);
    before = next;
  }
  const MinSumSolution found = sum.solve();
  REQUIRE(found.exact);
  // 1000 own costs, and 999 steps of which 500 or 499 cost 2 and the others 3
  CHECK(found.value == 1000 + 2 * 500 + 3 * 499);
  CHECK(found.lower_bound == found.value);
}

TEST_CASE("equal parts of any form are computed once") {
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    Random random(seed);
    const Problem part = random_problem(random, seed % 2 == 0 ? Form::kDense : Form::kLoop);
    const double least = part.least();
    INFO("seed " << seed);
    std::size_t tables_of_two = 0;
    for (const int copies : {2, 5}) {
      MinSum sum;
      std::vector<TableNumber> numbers;
      for (const CostTable& table : part.tables) numbers.push_back(sum.add_table(table));
      const auto variables = static_cast<int>(part.unary.size());
      for (int copy = 0; copy < copies; ++copy) {
        for (const std::size_t unary : part.unary) sum.add_variable(numbers[unary]);
        for (const Problem::Pair& edge : part.edges)
          sum.add_edge(copy * variables + edge.a, copy * variables + edge.b, numbers[edge.table]);
      }
      const MinSumSolution found = sum.solve();
      REQUIRE(found.exact);
      REQUIRE(found.feasible == (least != kForbidden));
      if (!found.feasible) continue;
      REQUIRE(found.value == copies * least);
      if (copies == 2) tables_of_two = found.tables;
      if (copies == 5) REQUIRE(found.tables == tables_of_two);
    }
  }
}

TEST_CASE("tables over several variables have a limit together, too") {
  // cliques of five variables: the first three take most of four budgets, what follows is bounded
  Random random(20261130);
  constexpr int kDomain = 12;
  for (const int cliques : {3, 7}) {
    MinSum problem(std::size_t{1} << 18);
    double least = 0;  // of every clique: all zero
    for (int c = 0; c < cliques; ++c) {
      std::vector<int> variables;
      CostTable unary{kDomain, 1, std::vector<double>(kDomain, 0.0)};
      for (int v = 0; v < 5; ++v)
        variables.push_back(problem.add_variable(problem.add_table(unary)));
      for (std::size_t a = 0; a < variables.size(); ++a) {
        for (std::size_t b = 0; b < a; ++b) {
          CostTable pair{kDomain, kDomain, {}};
          for (int i = 0; i < kDomain * kDomain; ++i)
            pair.costs.push_back(i == 0 ? 0.0 : static_cast<double>(1 + random.below(9)));
          problem.add_edge(variables[a], variables[b], problem.add_table(std::move(pair)));
        }
      }
    }
    const MinSumSolution solution = problem.solve();
    CHECK(solution.exact == (cliques == 3));
    CHECK(solution.lower_bound <= least);
    CHECK(solution.value >= least);
    if (solution.exact) CHECK(solution.value == least);
  }
}

}  // namespace
}  // namespace meshplan::min_sum_test

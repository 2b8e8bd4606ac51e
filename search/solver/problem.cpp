// SPDX-License-Identifier: Apache-2.0
#include "search/solver/problem.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <map>

#include "lib/check.h"

namespace meshplan::solver {

int TablePool::add(int rows, int columns, std::span<const double> costs) {
  MESHPLAN_CHECK(costs.size() ==
                 static_cast<std::size_t>(rows) * static_cast<std::size_t>(columns));
  key_.clear();
  key_.push_back(static_cast<std::uint64_t>(rows));
  for (const double cost : costs) key_.push_back(std::bit_cast<std::uint64_t>(cost + 0.0));
  const auto [number, added] = interner_.number(key_);
  if (added) {
    tables_.push_back(std::make_unique<CostTable>(
        CostTable{rows, columns, std::vector<double>(costs.begin(), costs.end())}));
    transposed_.push_back(-1);
  }
  return number;
}

int TablePool::transposed(int number) {
  const auto at = static_cast<std::size_t>(number);
  if (transposed_[at] >= 0) return transposed_[at];
  const CostTable& from = table(number);
  const auto rows = static_cast<std::size_t>(from.rows);
  const auto columns = static_cast<std::size_t>(from.columns);
  std::vector<double> costs(from.costs.size());
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t c = 0; c < columns; ++c) costs[c * rows + r] = from.costs[r * columns + c];
  }
  const int made = add(from.columns, from.rows, costs);
  transposed_[at] = made;
  transposed_[static_cast<std::size_t>(made)] = number;
  return made;
}

const std::vector<double>& TablePool::row_minima(int number) {
  const auto at = static_cast<std::size_t>(number);
  if (row_minima_.size() <= at) row_minima_.resize(tables_.size());
  std::vector<double>& minima = row_minima_[at];
  if (!minima.empty()) return minima;
  const CostTable& from = table(number);
  const double* costs = from.costs.data();
  for (int r = 0; r < from.rows; ++r, costs += from.columns)
    minima.push_back(*std::min_element(costs, costs + from.columns));
  return minima;
}

std::vector<int> BackMap::expand(const std::vector<int>& reduced) const {
  MESHPLAN_CHECK(reduced.size() == remaining_.size());
  std::vector<int> choice(nodes_, 0);
  for (std::size_t i = 0; i < reduced.size(); ++i) {
    const auto& [node, strategies] = remaining_[i];
    choice[static_cast<std::size_t>(node)] = strategies[static_cast<std::size_t>(reduced[i])];
  }
  for (std::size_t r = records_.size(); r-- > 0;) {
    const Record& record = records_[r];
    const std::size_t position =
        record.decider < 0
            ? 0
            : static_cast<std::size_t>(choice[static_cast<std::size_t>(record.decider)]);
    choice[static_cast<std::size_t>(record.node)] = record.choice[position];
  }
  return choice;
}

namespace {

double to_cost(std::int64_t cost) {
  return cost >= kForbiddenCost ? kForbidden : static_cast<double>(cost);
}

/// Numbers the moments at which the usage may change.
class Moments {
 public:
  explicit Moments(const CostGraph& graph) {
    const auto add = [&](const std::vector<CostGraph::Use>& uses) {
      for (const CostGraph::Use& use : uses) {
        if (use.begin >= use.end) continue;
        when_.push_back(use.begin);
        when_.push_back(use.end);
      }
    };
    for (const CostGraph::Node& node : graph.nodes) add(node.uses);
    for (const CostGraph::Edge& edge : graph.edges) add(edge.uses);
    std::sort(when_.begin(), when_.end());
    when_.erase(std::unique(when_.begin(), when_.end()), when_.end());
  }
  int number(std::int64_t moment) const {
    return static_cast<int>(std::lower_bound(when_.begin(), when_.end(), moment) - when_.begin());
  }
  const std::vector<std::int64_t>& when() const { return when_; }

 private:
  std::vector<std::int64_t> when_;
};

/// The largest sums that can come up, and what of them may be lost to rounding.
void set_tolerances(Problem& problem) {
  const auto largest = [](const std::vector<double>& numbers) {
    double most = 0;
    for (const double number : numbers) {
      if (number != kForbidden) most = std::max(most, std::abs(number));
    }
    return most;
  };
  double costs = 0;
  double usages = 0;
  for (const Problem::Node& node : problem.nodes) {
    costs += largest(node.costs);
    for (const Use& use : node.uses) usages += largest(use.usage);
  }
  std::vector<double> of_table;
  for (int t = 0; t < problem.pool.size(); ++t)
    of_table.push_back(largest(problem.pool.table(t).costs));
  for (const Problem::Edge& edge : problem.edges)
    costs += of_table[static_cast<std::size_t>(edge.table)];
  constexpr double kExact = 9007199254740992.0;  // 2^53
  constexpr double kRounding = 1e-11;
  if (costs >= kExact) problem.cost_tolerance = kRounding * costs;
  if (usages >= kExact) problem.usage_tolerance = kRounding * usages;
}

}  // namespace

Problem to_problem(const CostGraph& graph, BackMap& back) {
  Problem problem;
  problem.limit = graph.limit ? static_cast<double>(*graph.limit) : kForbidden;
  std::optional<Moments> moments;
  if (graph.limit) {
    moments.emplace(graph);
    problem.when = moments->when();
    if (!problem.when.empty()) problem.when.pop_back();  // after the last end nothing is used
    problem.room.assign(problem.when.size(), problem.limit);
  }
  const auto to_use = [&](const CostGraph::Use& use, const auto& position_of, std::size_t count) {
    Use made{moments->number(use.begin), moments->number(use.end), {}};
    for (std::size_t i = 0; i < count; ++i)
      made.usage.push_back(static_cast<double>(graph.pool.at(use.usage, position_of(i))));
    return made;
  };
  for (const CostGraph::Node& from : graph.nodes) {
    Problem::Node node;
    const std::size_t strategies = graph.pool.size(from.costs);
    for (std::size_t s = 0; s < strategies; ++s)
      node.costs.push_back(to_cost(graph.pool.at(from.costs, s)));
    for (const CostGraph::Use& use : from.uses) {
      if (!moments || use.begin >= use.end) continue;
      node.uses.push_back(to_use(
          use, [](std::size_t i) { return i; }, strategies));
    }
    problem.nodes.push_back(std::move(node));
  }
  std::map<std::pair<int, std::size_t>, int> known;  // sequence and rows -> table
  std::vector<double> costs;
  for (const CostGraph::Edge& edge : graph.edges) {
    const auto a = static_cast<std::size_t>(edge.from);
    const auto b = static_cast<std::size_t>(edge.to);
    const std::size_t rows = graph.strategies(a);
    const std::size_t columns = graph.strategies(b);
    if (a == b) {
      for (std::size_t s = 0; s < rows; ++s)
        problem.nodes[a].costs[s] += to_cost(graph.pool.at(edge.costs, s * columns + s));
      for (const CostGraph::Use& use : edge.uses) {
        if (!moments || use.begin >= use.end) continue;
        problem.nodes[a].uses.push_back(to_use(
            use, [&](std::size_t s) { return s * columns + s; }, rows));
      }
      continue;
    }
    if (moments && !edge.uses.empty()) {
      // a node that takes the pair: its own strategies decide both ends
      Problem::Node node;
      std::vector<std::size_t> pairs;
      for (std::size_t p = 0; p < rows * columns; ++p) {
        const double cost = to_cost(graph.pool.at(edge.costs, p));
        if (cost == kForbidden) continue;
        pairs.push_back(p);
        node.costs.push_back(cost);
      }
      if (pairs.empty()) {
        pairs.push_back(0);
        node.costs.push_back(kForbidden);
      }
      for (const CostGraph::Use& use : edge.uses) {
        if (use.begin >= use.end) continue;
        node.uses.push_back(to_use(
            use, [&](std::size_t i) { return pairs[i]; }, pairs.size()));
      }
      const int made = static_cast<int>(problem.nodes.size());
      problem.nodes.push_back(std::move(node));
      const auto link = [&](std::size_t end, std::size_t count, const auto& strategy_of) {
        costs.assign(count * pairs.size(), kForbidden);
        for (std::size_t i = 0; i < pairs.size(); ++i)
          costs[strategy_of(pairs[i]) * pairs.size() + i] = 0;
        const int table =
            problem.pool.add(static_cast<int>(count), static_cast<int>(pairs.size()), costs);
        problem.edges.push_back({static_cast<int>(end), made, table});
      };
      link(a, rows, [&](std::size_t p) { return p / columns; });
      link(b, columns, [&](std::size_t p) { return p % columns; });
      continue;
    }
    const auto [entry, added] = known.try_emplace({edge.costs, rows}, 0);
    if (added) {
      costs.clear();
      for (std::size_t p = 0; p < rows * columns; ++p)
        costs.push_back(to_cost(graph.pool.at(edge.costs, p)));
      entry->second = problem.pool.add(static_cast<int>(rows), static_cast<int>(columns), costs);
    }
    problem.edges.push_back({edge.from, edge.to, entry->second});
  }
  back = BackMap(problem.nodes.size());
  set_tolerances(problem);
  return problem;
}

Problem restricted(const Problem& problem,
                   const std::vector<std::vector<int>>& kept,
                   BackMap& filter) {
  Problem rest;
  filter = BackMap(problem.nodes.size());
  for (std::size_t v = 0; v < problem.nodes.size(); ++v) {
    const auto pick = [&](const std::vector<double>& from) {
      std::vector<double> picked;
      for (const int s : kept[v]) picked.push_back(from[static_cast<std::size_t>(s)]);
      return picked;
    };
    Problem::Node node{pick(problem.nodes[v].costs), {}};
    for (const Use& use : problem.nodes[v].uses)
      node.uses.push_back({use.begin, use.end, pick(use.usage)});
    rest.nodes.push_back(std::move(node));
    filter.remains(static_cast<int>(v), kept[v]);
  }
  std::vector<double> costs;
  for (const Problem::Edge& edge : problem.edges) {
    const CostTable& table = problem.pool.table(edge.table);
    const std::vector<int>& rows = kept[static_cast<std::size_t>(edge.from)];
    const std::vector<int>& columns = kept[static_cast<std::size_t>(edge.to)];
    costs.clear();
    for (const int r : rows) {
      for (const int c : columns)
        costs.push_back(table.costs[static_cast<std::size_t>(r * table.columns + c)]);
    }
    const int number =
        rest.pool.add(static_cast<int>(rows.size()), static_cast<int>(columns.size()), costs);
    rest.edges.push_back({edge.from, edge.to, number});
  }
  rest.constant = problem.constant;
  rest.room = problem.room;
  rest.when = problem.when;
  rest.limit = problem.limit;
  rest.cost_tolerance = problem.cost_tolerance;
  rest.usage_tolerance = problem.usage_tolerance;
  return rest;
}

std::vector<double> prices_of(const Problem& problem,
                              const std::vector<double>& prices,
                              const Problem& of) {
  std::vector<double> carried(problem.room.size(), 0);
  if (carried.empty()) return carried;
  std::size_t t = 0;
  for (std::size_t i = 0; i < prices.size(); ++i) {
    while (t + 1 < carried.size() && problem.when[t] < of.when[i]) ++t;
    carried[t] += prices[i];
  }
  return carried;
}

}  // namespace meshplan::solver

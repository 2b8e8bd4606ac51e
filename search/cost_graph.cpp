// SPDX-License-Identifier: Apache-2.0
#include "search/cost_graph.h"

#include <algorithm>
#include <utility>

#include "lib/check.h"

namespace meshplan {
namespace {

std::string forbidden_text(const char* what, std::size_t number, const std::string& strategies) {
  return std::string(what) + " " + std::to_string(number) + ", " + strategies;
}

}  // namespace

std::string to_string(Int128 number) {
  if (number == 0) return "0";
  const bool negative = number < 0;
  std::string digits;
  while (number != 0) {
    const int digit = static_cast<int>(number % 10);
    digits += static_cast<char>('0' + (digit < 0 ? -digit : digit));
    number /= 10;
  }
  if (negative) digits += '-';
  std::reverse(digits.begin(), digits.end());
  return digits;
}

CostGraphEvaluation evaluate(const CostGraph& graph, const CostGraphAssignment& assignment) {
  MESHPLAN_CHECK(assignment.size() == graph.nodes.size());
  CostGraphEvaluation result;
  std::vector<std::pair<std::int64_t, Int128>> changes;
  const auto use = [&](const std::vector<CostGraph::Use>& uses, std::size_t position) {
    for (const CostGraph::Use& one : uses) {
      const std::int64_t usage = graph.pool.at(one.usage, position);
      if (usage == 0 || one.begin >= one.end) continue;
      changes.emplace_back(one.begin, usage);
      changes.emplace_back(one.end, -Int128{usage});
    }
  };
  const auto forbid = [&](std::string where) {
    if (result.forbidden++ == 0) result.first_forbidden = std::move(where);
  };
  for (std::size_t v = 0; v < graph.nodes.size(); ++v) {
    const auto s = static_cast<std::size_t>(assignment[v]);
    MESHPLAN_CHECK(s < graph.strategies(v));
    const std::int64_t cost = graph.pool.at(graph.nodes[v].costs, s);
    result.cost += cost;
    if (cost >= kForbiddenCost) forbid(forbidden_text("node", v, "strategy " + std::to_string(s)));
    use(graph.nodes[v].uses, s);
  }
  for (std::size_t e = 0; e < graph.edges.size(); ++e) {
    const CostGraph::Edge& edge = graph.edges[e];
    const auto from = static_cast<std::size_t>(edge.from);
    const auto to = static_cast<std::size_t>(edge.to);
    const auto row = static_cast<std::size_t>(assignment[from]);
    const auto column = static_cast<std::size_t>(assignment[to]);
    const std::size_t pair = row * graph.strategies(to) + column;
    const std::int64_t cost = graph.pool.at(edge.costs, pair);
    result.cost += cost;
    if (cost >= kForbiddenCost) {
      forbid(forbidden_text("edge",
                            e,
                            "strategies " + std::to_string(row) + " and " + std::to_string(column) +
                                " of nodes " + std::to_string(from) + " and " +
                                std::to_string(to)));
    }
    use(edge.uses, pair);
  }
  // at equal moments the order of changes does not matter: only their sum counts
  std::sort(changes.begin(), changes.end(), [](const auto& a, const auto& b) {
    return a.first < b.first;
  });
  Int128 usage = 0;
  for (std::size_t i = 0; i < changes.size();) {
    const std::int64_t moment = changes[i].first;
    for (; i < changes.size() && changes[i].first == moment; ++i) usage += changes[i].second;
    if (usage > result.peak_usage) {
      result.peak_usage = usage;
      result.peak_moment = moment;
    }
  }
  result.within_limit = !graph.limit || result.peak_usage <= *graph.limit;
  return result;
}

}  // namespace meshplan

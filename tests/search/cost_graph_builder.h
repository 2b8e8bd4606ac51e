// SPDX-License-Identifier: Apache-2.0
// Small cost graphs for tests: made by hand or at random, and solved by trying everything.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "search/cost_graph.h"
#include "support/random.h"

namespace meshplan::test {

struct RandomCostGraphOptions {
  int most_nodes = 7;
  int most_strategies = 4;
  int edge_percent = 40;
  bool tree = false;
  int forbidden_percent = 15;
  int single_percent = 10;  ///< nodes with one strategy
  int edge_use_percent = 0;
  int moments = 6;
};

/// A graph without limit.
inline CostGraph random_cost_graph(Random& random, const RandomCostGraphOptions& options) {
  CostGraph graph;
  graph.contest = true;
  const auto cost = [&](std::int64_t most) {
    return random.chance(options.forbidden_percent) ? kForbiddenCost : random.between(0, most);
  };
  const auto uses = [&](std::size_t count, int most_uses) {
    std::vector<CostGraph::Use> made;
    for (std::int64_t i = random.between(0, most_uses); i > 0; --i) {
      const std::int64_t begin = random.between(0, options.moments - 1);
      const std::int64_t end = random.between(begin, options.moments);  // perhaps empty
      std::vector<std::int64_t> usage;
      for (std::size_t s = 0; s < count; ++s) usage.push_back(random.between(0, 9));
      made.push_back({begin, end, graph.pool.add(usage)});
    }
    return made;
  };
  const std::int64_t count = random.between(1, options.most_nodes);
  for (std::int64_t v = 0; v < count; ++v) {
    const std::int64_t strategies =
        random.chance(options.single_percent) ? 1 : random.between(1, options.most_strategies);
    std::vector<std::int64_t> costs;
    for (std::int64_t s = 0; s < strategies; ++s) {
      costs.push_back(random.chance(options.forbidden_percent / 3) ? kForbiddenCost
                                                                   : random.between(0, 20));
    }
    graph.nodes.push_back({graph.pool.add(costs), uses(costs.size(), 3)});
  }
  const auto add_edge = [&](std::int64_t a, std::int64_t b) {
    if (random.chance(50)) std::swap(a, b);
    const auto from = static_cast<std::size_t>(a);
    const auto to = static_cast<std::size_t>(b);
    const std::size_t rows = graph.strategies(from);
    const std::size_t columns = graph.strategies(to);
    std::vector<std::int64_t> costs(rows * columns);
    const std::size_t kind = random.below(4);
    for (std::size_t r = 0; r < rows; ++r) {
      const std::size_t only = random.below(columns);
      for (std::size_t c = 0; c < columns; ++c) {
        std::int64_t& entry = costs[r * columns + c];
        if (kind == 0) {  // each row allows one column
          entry = c == only ? random.between(0, 5) : kForbiddenCost;
        } else if (kind == 1) {  // a sum of a row and a column part
          entry = static_cast<std::int64_t>(3 * r + 2 * c);
        } else {
          entry = cost(15);
        }
      }
    }
    CostGraph::Edge edge{static_cast<int>(a), static_cast<int>(b), graph.pool.add(costs), {}};
    if (random.chance(options.edge_use_percent)) edge.uses = uses(costs.size(), 2);
    graph.edges.push_back(std::move(edge));
  };
  for (std::int64_t b = 1; b < count; ++b) {
    if (options.tree) {
      add_edge(random.between(0, b - 1), b);
      continue;
    }
    for (std::int64_t a = 0; a < b; ++a) {
      if (!random.chance(options.edge_percent)) continue;
      add_edge(a, b);
      if (random.chance(15)) add_edge(a, b);  // a parallel one
    }
  }
  return graph;
}

/// Every assignment's cost and peak usage, counted moment by moment.
class EveryAssignment {
 public:
  explicit EveryAssignment(const CostGraph& graph) : graph_(graph) {
    for (const CostGraph::Node& node : graph.nodes) note(node.uses);
    for (const CostGraph::Edge& edge : graph.edges) note(edge.uses);
    CostGraphAssignment assignment(graph.nodes.size(), 0);
    while (true) {
      visit(assignment);
      std::size_t v = 0;
      while (v < assignment.size() &&
             static_cast<std::size_t>(++assignment[v]) == graph.strategies(v))
        assignment[v++] = 0;
      if (v == assignment.size()) return;
    }
  }

  struct Point {
    std::int64_t cost;
    std::int64_t peak;
  };
  /// Of the assignments without forbidden costs.
  const std::vector<Point>& allowed() const { return points_; }

  std::optional<std::int64_t> least_cost(std::optional<std::int64_t> limit) const {
    std::optional<std::int64_t> best;
    for (const Point& point : points_) {
      if (limit && point.peak > *limit) continue;
      if (!best || point.cost < *best) best = point.cost;
    }
    return best;
  }
  std::optional<std::int64_t> least_peak() const {
    std::optional<std::int64_t> best;
    for (const Point& point : points_) best = std::min(best.value_or(point.peak), point.peak);
    return best;
  }

 private:
  void note(const std::vector<CostGraph::Use>& uses) {
    for (const CostGraph::Use& use : uses) last_ = std::max(last_, use.end);
  }

  void visit(const CostGraphAssignment& assignment) {
    Point point{0, 0};
    const auto label = [&](int v) {
      return static_cast<std::size_t>(assignment[static_cast<std::size_t>(v)]);
    };
    std::vector<std::int64_t> usage(static_cast<std::size_t>(last_) + 1, 0);
    const auto add =
        [&](std::int64_t cost, const std::vector<CostGraph::Use>& uses, std::size_t at) {
          if (cost >= kForbiddenCost) return false;
          point.cost += cost;
          for (const CostGraph::Use& use : uses) {
            for (std::int64_t t = use.begin; t < use.end; ++t)
              usage[static_cast<std::size_t>(t)] += graph_.pool.at(use.usage, at);
          }
          return true;
        };
    for (std::size_t v = 0; v < graph_.nodes.size(); ++v) {
      const CostGraph::Node& node = graph_.nodes[v];
      const std::size_t s = label(static_cast<int>(v));
      if (!add(graph_.pool.at(node.costs, s), node.uses, s)) return;
    }
    for (const CostGraph::Edge& edge : graph_.edges) {
      const std::size_t pair =
          label(edge.from) * graph_.strategies(static_cast<std::size_t>(edge.to)) + label(edge.to);
      if (!add(graph_.pool.at(edge.costs, pair), edge.uses, pair)) return;
    }
    point.peak = *std::max_element(usage.begin(), usage.end());
    points_.push_back(point);
  }

  const CostGraph& graph_;
  std::int64_t last_ = 0;
  std::vector<Point> points_;
};

}  // namespace meshplan::test

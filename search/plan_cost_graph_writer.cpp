// SPDX-License-Identifier: Apache-2.0
// The three formats of a plan's cost graph.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <utility>

#include "graph/json.h"
#include "search/plan_cost_graph.h"

namespace meshplan {
namespace {

constexpr auto kOneLine = JsonWriter::kOneLine;

bool is_forbidden(std::int64_t cost) { return cost >= kForbiddenCost; }

std::vector<std::int64_t> row(const CostGraph& graph, int sequence) {
  std::vector<std::int64_t> values(graph.pool.size(sequence));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = graph.pool.at(sequence, i);
  return values;
}

/// The graph with one interval per node and no usage on edges.
struct FlatGraph {
  struct Node {
    std::pair<std::int64_t, std::int64_t> interval{0, 0};
    std::vector<std::int64_t> costs;
    std::vector<std::int64_t> usages;
  };
  struct Edge {
    int from = 0;
    int to = 0;
    std::vector<std::int64_t> costs;
  };
  std::vector<Node> nodes;
  std::vector<Edge> edges;

  int add_node(const CostGraph::Use& use, std::vector<std::int64_t> usages) {
    Node node;
    node.interval = {use.begin, use.end};
    node.costs.assign(usages.size(), 0);
    node.usages = std::move(usages);
    nodes.push_back(std::move(node));
    return static_cast<int>(nodes.size()) - 1;
  }
};

FlatGraph flatten(const CostGraph& graph) {
  FlatGraph flat;
  for (const CostGraph::Node& node : graph.nodes) {
    FlatGraph::Node made;
    made.costs = row(graph, node.costs);
    made.usages.assign(made.costs.size(), 0);
    if (!node.uses.empty()) {
      made.interval = {node.uses.front().begin, node.uses.front().end};
      made.usages = row(graph, node.uses.front().usage);
    }
    flat.nodes.push_back(std::move(made));
  }
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    const CostGraph::Node& node = graph.nodes[n];
    const std::size_t size = graph.strategies(n);
    for (std::size_t u = 1; u < node.uses.size(); ++u) {
      const int twin = flat.add_node(node.uses[u], row(graph, node.uses[u].usage));
      FlatGraph::Edge equal{static_cast<int>(n), twin, {}};
      equal.costs.assign(size * size, kForbiddenCost);
      for (std::size_t s = 0; s < size; ++s) equal.costs[s * size + s] = 0;
      flat.edges.push_back(std::move(equal));
    }
  }
  for (const CostGraph::Edge& edge : graph.edges) {
    flat.edges.push_back({edge.from, edge.to, row(graph, edge.costs)});
    const std::size_t height = graph.strategies(static_cast<std::size_t>(edge.from));
    const std::size_t width = graph.strategies(static_cast<std::size_t>(edge.to));
    for (const CostGraph::Use& use : edge.uses) {
      // a strategy for each pair, tied to both sides
      const int pair = flat.add_node(use, row(graph, use.usage));
      FlatGraph::Edge first{edge.from, pair, {}};
      FlatGraph::Edge second{edge.to, pair, {}};
      first.costs.assign(height * height * width, kForbiddenCost);
      second.costs.assign(width * height * width, kForbiddenCost);
      for (std::size_t a = 0; a < height; ++a) {
        for (std::size_t b = 0; b < width; ++b) {
          const std::size_t both = a * width + b;
          first.costs[a * height * width + both] = 0;
          second.costs[b * height * width + both] = 0;
        }
      }
      flat.edges.push_back(std::move(first));
      flat.edges.push_back(std::move(second));
    }
  }
  return flat;
}

void write_own_node(JsonWriter& writer, const PlanCostGraph& plan, std::size_t n) {
  const CostGraph& graph = plan.graph;
  const CostGraph::Node& node = graph.nodes[n];
  writer.begin_object();
  writer.member("name", plan.names[n]);
  writer.key("strategies");
  writer.begin_array();
  for (std::size_t s = 0; s < graph.strategies(n); ++s) {
    writer.begin_object(kOneLine);
    writer.member("label", plan.labels[n][s]);
    writer.member("cost", static_cast<double>(graph.pool.at(node.costs, s)) * graph.unit);
    writer.key("usage");
    writer.begin_array(kOneLine);
    for (const CostGraph::Use& use : node.uses) {
      const std::int64_t bytes = graph.pool.at(use.usage, s);
      if (bytes != 0) writer.array(std::vector<std::int64_t>{use.begin, use.end, bytes});
    }
    writer.end_array();
    writer.end_object();
  }
  writer.end_array();
  writer.end_object();
}

void write_own_edge(JsonWriter& writer, const CostGraph& graph, const CostGraph::Edge& edge) {
  const std::size_t height = graph.strategies(static_cast<std::size_t>(edge.from));
  const std::size_t width = graph.strategies(static_cast<std::size_t>(edge.to));
  std::vector<std::pair<std::size_t, std::size_t>> forbidden;
  writer.begin_object();
  writer.key("nodes");
  writer.array(std::vector<int>{edge.from, edge.to});
  writer.key("costs");
  writer.begin_array();
  for (std::size_t a = 0; a < height; ++a) {
    writer.begin_array(kOneLine);
    for (std::size_t b = 0; b < width; ++b) {
      const std::int64_t cost = graph.pool.at(edge.costs, a * width + b);
      if (is_forbidden(cost)) forbidden.emplace_back(a, b);
      writer.value(is_forbidden(cost) ? 0.0 : static_cast<double>(cost) * graph.unit);
    }
    writer.end_array();
  }
  writer.end_array();
  if (!forbidden.empty()) {
    writer.key("forbidden");
    writer.begin_array(kOneLine);
    for (const auto& [a, b] : forbidden) writer.array(std::vector<std::size_t>{a, b});
    writer.end_array();
  }
  if (!edge.uses.empty()) {
    writer.key("usage");
    writer.begin_array();
    for (std::size_t a = 0; a < height; ++a) {
      for (std::size_t b = 0; b < width; ++b) {
        std::vector<std::vector<std::int64_t>> intervals;
        for (const CostGraph::Use& use : edge.uses) {
          const std::int64_t bytes = graph.pool.at(use.usage, a * width + b);
          if (bytes != 0) intervals.push_back({use.begin, use.end, bytes});
        }
        if (intervals.empty()) continue;
        writer.begin_object(kOneLine);
        writer.key("pair");
        writer.array(std::vector<std::size_t>{a, b});
        writer.key("intervals");
        writer.begin_array(kOneLine);
        for (const std::vector<std::int64_t>& interval : intervals) writer.array(interval);
        writer.end_array();
        writer.end_object();
      }
    }
    writer.end_array();
  }
  writer.end_object();
}

}  // namespace

std::string write_cost_graph(const PlanCostGraph& plan) {
  JsonWriter writer(1);
  writer.begin_object();
  writer.member("schema", "meshplan.cost_graph/1.0");
  writer.member("name", plan.graph.name);
  writer.member("moments", plan.moments);
  writer.key("nodes");
  writer.begin_array();
  for (std::size_t n = 0; n < plan.graph.nodes.size(); ++n) write_own_node(writer, plan, n);
  writer.end_array();
  writer.key("edges");
  writer.begin_array();
  for (const CostGraph::Edge& edge : plan.graph.edges) write_own_edge(writer, plan.graph, edge);
  writer.end_array();
  if (plan.graph.limit) writer.member("usage_limit", *plan.graph.limit);
  writer.end_object();
  return std::move(writer).text();
}

std::string write_contest_cost_graph(const PlanCostGraph& plan) {
  const FlatGraph flat = flatten(plan.graph);
  JsonWriter writer(1);
  const auto lists = [&](const char* key, const auto& items, const auto& numbers) {
    writer.key(key);
    writer.begin_array();
    for (const auto& item : items) writer.array(numbers(item));
    writer.end_array();
  };
  writer.begin_object();
  writer.key("problem");
  writer.begin_object();
  writer.member("name", plan.graph.name);
  writer.key("nodes");
  writer.begin_object();
  lists("intervals", flat.nodes, [](const FlatGraph::Node& node) {
    return std::vector<std::int64_t>{node.interval.first, node.interval.second};
  });
  lists("costs", flat.nodes, [](const FlatGraph::Node& node) { return node.costs; });
  lists("usages", flat.nodes, [](const FlatGraph::Node& node) { return node.usages; });
  writer.end_object();
  writer.key("edges");
  writer.begin_object();
  lists("nodes", flat.edges, [](const FlatGraph::Edge& edge) {
    return std::vector<int>{edge.from, edge.to};
  });
  lists("costs", flat.edges, [](const FlatGraph::Edge& edge) { return edge.costs; });
  writer.end_object();
  if (plan.graph.limit) writer.member("usage_limit", *plan.graph.limit);
  writer.end_object();
  writer.end_object();
  return std::move(writer).text();
}

namespace {

/// Lines of at most a few hundred letters: readers of the format limit them.
class LpText {
 public:
  void line(const std::string& text) {
    text_ += text + "\n";
    width_ = 0;
  }
  void term(const std::string& coefficient, const std::string& variable) {
    const std::string piece = " + " + coefficient + (coefficient.empty() ? "" : " ") + variable;
    if (width_ + piece.size() > 200) {
      text_ += "\n";
      width_ = 0;
    }
    text_ += piece;
    width_ += piece.size();
  }
  void end(const std::string& relation) {
    text_ += " " + relation + "\n";
    width_ = 0;
  }
  void begin(const std::string& name) {
    text_ += " " + name + ":";
    width_ = name.size() + 2;
  }
  std::string text() && { return std::move(text_); }

 private:
  std::string text_;
  std::size_t width_ = 0;
};

/// Of bytes by node (or edge) and strategy (or pair): the sum of the most that each can have.
Int128 largest_sum(const std::map<std::pair<std::size_t, std::size_t>, std::int64_t>& bytes) {
  Int128 sum = 0;
  for (auto at = bytes.begin(); at != bytes.end();) {
    std::int64_t most = 0;
    const std::size_t owner = at->first.first;
    for (; at != bytes.end() && at->first.first == owner; ++at) most = std::max(most, at->second);
    sum += most;
  }
  return sum;
}

std::string lp_cost(std::int64_t ticks) {
  constexpr double kTicksPerUnit = 1048576;  // 2^-20 s
  char buffer[64];
  std::snprintf(buffer, sizeof buffer, "%.20f", static_cast<double>(ticks) / kTicksPerUnit);
  std::string text = buffer;
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text;
}

}  // namespace

std::string write_lp_cost_graph(const PlanCostGraph& plan) {
  const CostGraph& graph = plan.graph;
  const auto strategy = [](std::size_t node, std::size_t s) {
    return "s" + std::to_string(node) + "_" + std::to_string(s);
  };
  const auto pair = [](std::size_t edge, std::size_t a, std::size_t b) {
    return "e" + std::to_string(edge) + "_" + std::to_string(a) + "_" + std::to_string(b);
  };
  LpText lp;
  lp.line("\\ cost graph of " + one_line(graph.name) + "; costs in units of 2^-20 s");
  lp.line("Minimize");
  lp.begin("cost");
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    for (std::size_t s = 0; s < graph.strategies(n); ++s)
      lp.term(lp_cost(graph.pool.at(graph.nodes[n].costs, s)), strategy(n, s));
  }
  const auto sizes = [&](const CostGraph::Edge& edge) {
    return std::pair(graph.strategies(static_cast<std::size_t>(edge.from)),
                     graph.strategies(static_cast<std::size_t>(edge.to)));
  };
  const auto is_allowed = [&](const CostGraph::Edge& edge, std::size_t at) {
    return !is_forbidden(graph.pool.at(edge.costs, at));
  };
  for (std::size_t e = 0; e < graph.edges.size(); ++e) {
    const CostGraph::Edge& edge = graph.edges[e];
    const auto [height, width] = sizes(edge);
    for (std::size_t at = 0; at < height * width; ++at) {
      const std::int64_t cost = graph.pool.at(edge.costs, at);
      if (!is_forbidden(cost) && cost != 0) lp.term(lp_cost(cost), pair(e, at / width, at % width));
    }
  }
  lp.end("");
  lp.line("Subject To");
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    lp.begin("n" + std::to_string(n));
    for (std::size_t s = 0; s < graph.strategies(n); ++s) lp.term("", strategy(n, s));
    lp.end("= 1");
  }
  for (std::size_t e = 0; e < graph.edges.size(); ++e) {
    const CostGraph::Edge& edge = graph.edges[e];
    const auto [height, width] = sizes(edge);
    // the pairs of a strategy are as much as the strategy
    for (std::size_t a = 0; a < height; ++a) {
      lp.begin("r" + std::to_string(e) + "_" + std::to_string(a));
      for (std::size_t b = 0; b < width; ++b) {
        if (is_allowed(edge, a * width + b)) lp.term("", pair(e, a, b));
      }
      lp.end("- " + strategy(static_cast<std::size_t>(edge.from), a) + " = 0");
    }
    for (std::size_t b = 0; b < width; ++b) {
      lp.begin("c" + std::to_string(e) + "_" + std::to_string(b));
      for (std::size_t a = 0; a < height; ++a) {
        if (is_allowed(edge, a * width + b)) lp.term("", pair(e, a, b));
      }
      lp.end("- " + strategy(static_cast<std::size_t>(edge.to), b) + " = 0");
    }
  }
  for (std::int64_t moment = 0; graph.limit && moment < plan.moments; ++moment) {
    std::map<std::pair<std::size_t, std::size_t>, std::int64_t> of_nodes;
    std::map<std::pair<std::size_t, std::size_t>, std::int64_t> of_pairs;
    for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
      for (const CostGraph::Use& use : graph.nodes[n].uses) {
        if (moment < use.begin || moment >= use.end) continue;
        for (std::size_t s = 0; s < graph.strategies(n); ++s)
          of_nodes[{n, s}] += graph.pool.at(use.usage, s);
      }
    }
    for (std::size_t e = 0; e < graph.edges.size(); ++e) {
      const CostGraph::Edge& edge = graph.edges[e];
      for (const CostGraph::Use& use : edge.uses) {
        if (moment < use.begin || moment >= use.end) continue;
        for (std::size_t at = 0; at < graph.pool.size(use.usage); ++at) {
          if (is_allowed(edge, at)) of_pairs[{e, at}] += graph.pool.at(use.usage, at);
        }
      }
    }
    // a row only where the limit can be exceeded
    if (largest_sum(of_nodes) + largest_sum(of_pairs) <= Int128{*graph.limit}) continue;
    lp.begin("m" + std::to_string(moment));
    for (const auto& [at, bytes] : of_nodes) {
      if (bytes == 0) continue;
      lp.term(std::to_string(bytes), strategy(at.first, at.second));
    }
    for (const auto& [at, bytes] : of_pairs) {
      if (bytes == 0) continue;
      const std::size_t width = sizes(graph.edges[at.first]).second;
      lp.term(std::to_string(bytes), pair(at.first, at.second / width, at.second % width));
    }
    lp.end("<= " + std::to_string(*graph.limit));
  }
  lp.line("Binary");
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    for (std::size_t s = 0; s < graph.strategies(n); ++s) lp.line(" " + strategy(n, s));
  }
  lp.line("End");
  return std::move(lp).text();
}

}  // namespace meshplan

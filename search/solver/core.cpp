// SPDX-License-Identifier: Apache-2.0
#include "search/solver/core.h"

#include <algorithm>
#include <cmath>

namespace meshplan::solver {

Core::Core(const Problem& problem) : room_(problem.room), constant_(problem.constant) {
  edges_ = static_cast<int>(problem.edges.size());
  double total = 0;
  const auto most = [](const std::vector<double>& costs) {
    double largest = 0;
    for (const double cost : costs) {
      if (cost != kForbidden) largest = std::max(largest, std::abs(cost));
    }
    return largest;
  };
  first_.push_back(0);
  for (const Problem::Node& node : problem.nodes) {
    sizes_.push_back(static_cast<int>(node.costs.size()));
    costs_.insert(costs_.end(), node.costs.begin(), node.costs.end());
    first_.push_back(costs_.size());
    total += most(node.costs);
  }
  // every table once in both orders
  const auto count = static_cast<std::size_t>(problem.pool.size());
  std::vector<std::size_t> offset(count);
  std::vector<double> largest(count);
  std::size_t size = 0;
  for (std::size_t t = 0; t < count; ++t) {
    offset[t] = size;
    size += 2 * problem.pool.table(static_cast<int>(t)).costs.size();
    largest[t] = most(problem.pool.table(static_cast<int>(t)).costs);
  }
  for (const Problem::Edge& edge : problem.edges)
    total += largest[static_cast<std::size_t>(edge.table)];
  big_ = std::max(1e17, 1024 * total);
  tables_.resize(size);
  for (std::size_t t = 0; t < count; ++t) {
    const CostTable& table = problem.pool.table(static_cast<int>(t));
    const auto rows = static_cast<std::size_t>(table.rows);
    const auto columns = static_cast<std::size_t>(table.columns);
    double* const straight = tables_.data() + offset[t];
    double* const crossed = straight + rows * columns;
    for (std::size_t r = 0; r < rows; ++r) {
      for (std::size_t c = 0; c < columns; ++c) {
        const double cost = std::min(table.costs[r * columns + c], big_);
        straight[r * columns + c] = cost;
        crossed[c * rows + r] = cost;
      }
    }
  }
  for (double& cost : costs_) cost = std::min(cost, big_);
  std::vector<std::vector<Link>> links(sizes_.size());
  for (std::size_t e = 0; e < problem.edges.size(); ++e) {
    const Problem::Edge& edge = problem.edges[e];
    const auto table = static_cast<std::size_t>(edge.table);
    const std::size_t entries = problem.pool.table(edge.table).costs.size();
    const double* straight = tables_.data() + offset[table];
    const double* crossed = straight + entries;
    entries_ += static_cast<double>(entries);
    const int number = static_cast<int>(e);
    links[static_cast<std::size_t>(edge.from)].push_back({edge.to, number, straight, crossed});
    links[static_cast<std::size_t>(edge.to)].push_back({edge.from, number, crossed, straight});
  }
  link_begin_.push_back(0);
  for (std::vector<Link>& own : links) {
    std::sort(own.begin(), own.end(), [](const Link& a, const Link& b) { return a.node < b.node; });
    links_.insert(links_.end(), own.begin(), own.end());
    link_begin_.push_back(links_.size());
  }
  std::size_t usages = 0;
  for (const Problem::Node& node : problem.nodes) usages += node.uses.size() * node.costs.size();
  usages_.reserve(usages);  // pointers into it
  use_begin_.push_back(0);
  for (const Problem::Node& node : problem.nodes) {
    for (const Use& use : node.uses) {
      uses_.push_back({use.begin, use.end, usages_.data() + usages_.size()});
      usages_.insert(usages_.end(), use.usage.begin(), use.usage.end());
    }
    use_begin_.push_back(uses_.size());
  }
}

double Core::cost_of(const Labels& labels) const {
  double sum = constant_;
  for (int v = 0; v < nodes(); ++v) {
    const auto own = static_cast<std::size_t>(labels[static_cast<std::size_t>(v)]);
    sum += costs(v)[own];
    for (const Link& link : links(v)) {
      if (link.node < v) continue;
      sum += link.rows[own * static_cast<std::size_t>(size(link.node)) +
                       static_cast<std::size_t>(labels[static_cast<std::size_t>(link.node)])];
    }
  }
  return sum;
}

std::vector<double> Core::usage_of(const Labels& labels) const {
  std::vector<double> change(room_.size() + 1, 0);
  for (int v = 0; v < nodes(); ++v) {
    const auto own = static_cast<std::size_t>(labels[static_cast<std::size_t>(v)]);
    for (const CoreUse& use : uses(v)) {
      change[static_cast<std::size_t>(use.begin)] += use.usage[own];
      change[static_cast<std::size_t>(use.end)] -= use.usage[own];
    }
  }
  double sum = 0;
  for (double& at : change) at = sum += at;
  change.pop_back();
  return change;
}

bool Core::fits(const std::vector<double>& usage) const {
  for (std::size_t t = 0; t < room_.size(); ++t) {
    if (usage[t] > room_[t]) return false;
  }
  return true;
}

void Core::price_node(int v, const std::vector<double>& prefix, double* theta) const {
  const auto count = static_cast<std::size_t>(size(v));
  const double* own = costs(v);
  for (std::size_t s = 0; s < count; ++s) theta[s] = own[s];
  for (const CoreUse& use : uses(v)) {
    const double price =
        prefix[static_cast<std::size_t>(use.end)] - prefix[static_cast<std::size_t>(use.begin)];
    if (price == 0) continue;
    for (std::size_t s = 0; s < count; ++s) theta[s] += price * use.usage[s];
  }
}

void Core::price(const std::vector<double>& prefix, std::vector<double>& theta) const {
  theta.resize(strategies());
  for (int v = 0; v < nodes(); ++v) price_node(v, prefix, theta.data() + first(v));
}

void prefix_sums(const std::vector<double>& prices, std::vector<double>& prefix) {
  prefix.resize(prices.size() + 1);
  double sum = 0;
  for (std::size_t t = 0; t < prices.size(); ++t) {
    prefix[t] = sum;
    sum += prices[t];
  }
  prefix[prices.size()] = sum;
}

}  // namespace meshplan::solver

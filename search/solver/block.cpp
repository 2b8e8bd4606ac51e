// SPDX-License-Identifier: Apache-2.0
#include "search/solver/block.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <queue>
#include <utility>

namespace meshplan::solver {
namespace {

/// Tables over more than these are too large whatever the sizes.
constexpr std::size_t kMostNeighbours = 64;

}  // namespace

BlockPlan::BlockPlan(const Core& core,
                     const std::vector<int>& nodes,
                     double cap,
                     double noise,
                     RandomBits& random,
                     BlockWorkspace& workspace) {
  workspace.local.resize(static_cast<std::size_t>(core.nodes()), -1);
  for (std::size_t i = 0; i < nodes.size(); ++i)
    workspace.local[static_cast<std::size_t>(nodes[i])] = static_cast<int>(i);
  order_nodes(core, nodes, cap, noise, random, workspace.local);
  lay_out(core, nodes, workspace.local);
  for (const int v : nodes) workspace.local[static_cast<std::size_t>(v)] = -1;
}

void BlockPlan::order_nodes(const Core& core,
                            const std::vector<int>& nodes,
                            double cap,
                            double noise,
                            RandomBits& random,
                            const std::vector<int>& local) {
  const std::size_t count = nodes.size();
  const double most = std::log2(cap);
  // ascending; what is gone is skipped and stays until half of a list is: hubs lose their
  // neighbours one by one
  std::vector<std::vector<int>> around(count);
  std::vector<std::size_t> degree(count);
  std::vector<char> gone(count, 0);
  std::vector<double> width(count);
  std::vector<double> shift(count, 0);
  for (std::size_t i = 0; i < count; ++i) {
    width[i] = std::log2(static_cast<double>(core.size(nodes[i])));
    if (noise > 0) shift[i] = noise * random.unit();
    for (const Core::Link& link : core.links(nodes[i])) {
      const int u = local[static_cast<std::size_t>(link.node)];
      if (u >= 0) around[i].push_back(u);
    }
    std::sort(around[i].begin(), around[i].end());
    around[i].erase(std::unique(around[i].begin(), around[i].end()), around[i].end());
    degree[i] = around[i].size();
    made_ += 4 + static_cast<double>(around[i].size());
  }
  const auto is_gone = [&](int u) { return gone[static_cast<std::size_t>(u)] != 0; };
  const auto table_width = [&](std::size_t i) {
    if (degree[i] > kMostNeighbours) return std::numeric_limits<double>::infinity();
    double sum = width[i];
    for (const int u : around[i]) sum += is_gone(u) ? 0 : width[static_cast<std::size_t>(u)];
    return sum;
  };
  using Entry = std::pair<double, int>;
  std::vector<double> rank(count);
  std::vector<Entry> all(count);
  for (std::size_t i = 0; i < count; ++i) {
    rank[i] = table_width(i) + shift[i];
    all[i] = {rank[i], static_cast<int>(i)};
  }
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue({}, std::move(all));
  position_.assign(count, -1);
  // a neighbour of `u` is gone
  const auto lose_one = [&](int u) {
    std::vector<int>& list = around[static_cast<std::size_t>(u)];
    if (list.size() > 2 * --degree[static_cast<std::size_t>(u)] + 8) std::erase_if(list, is_gone);
  };
  const auto take_neighbours = [&](std::size_t i) {
    std::vector<int> list = std::move(around[i]);
    around[i].clear();
    std::erase_if(list, is_gone);
    return list;
  };
  const auto enqueue = [&](int u) {
    const auto at = static_cast<std::size_t>(u);
    const double now = table_width(at) + shift[at];
    if (now == rank[at]) return;
    rank[at] = now;
    queue.emplace(now, u);
  };
  std::vector<int> joined;
  while (!queue.empty()) {
    const double first = queue.top().first;
    const int i = queue.top().second;
    const auto at = static_cast<std::size_t>(i);
    if (gone[at] != 0 || first != rank[at]) {
      queue.pop();
      continue;
    }
    if (first - shift[at] > most && degree[at] > 0) {
      // freeze the node that makes tables large, here and elsewhere
      int worst = i;
      double weight = -1;
      const auto consider = [&](int u) {
        const auto of = static_cast<std::size_t>(u);
        const double heavy =
            width[of] * static_cast<double>(degree[of]) * (noise > 0 ? 0.5 + random.unit() : 1.0);
        if (heavy > weight) {
          weight = heavy;
          worst = u;
        }
      };
      consider(i);
      for (const int u : around[at]) {
        if (!is_gone(u)) consider(u);
      }
      const auto out = static_cast<std::size_t>(worst);
      gone[out] = 1;
      ++frozen_;
      const std::vector<int> neighbours = take_neighbours(out);
      for (const int u : neighbours) {
        lose_one(u);
        enqueue(u);
      }
      made_ += 8 * static_cast<double>(neighbours.size());
      continue;
    }
    queue.pop();
    gone[at] = 1;
    position_[at] = static_cast<int>(order_.size());
    order_.push_back(i);
    const std::vector<int> neighbours = take_neighbours(at);
    made_ += 8 + 4 * static_cast<double>(neighbours.size() * neighbours.size());
    for (const int u : neighbours) {
      std::vector<int>& list = around[static_cast<std::size_t>(u)];
      const bool knows_all = std::all_of(neighbours.begin(), neighbours.end(), [&](int w) {
        return w == u || std::binary_search(list.begin(), list.end(), w);
      });
      if (knows_all) {
        lose_one(u);
      } else {
        joined.clear();
        std::set_union(list.begin(),
                       list.end(),
                       neighbours.begin(),
                       neighbours.end(),
                       std::back_inserter(joined));
        std::erase_if(joined, [&](int w) { return w == u || is_gone(w); });
        list = joined;
        degree[static_cast<std::size_t>(u)] = joined.size();
      }
      enqueue(u);
    }
  }
}

void BlockPlan::lay_out(const Core& core,
                        const std::vector<int>& nodes,
                        const std::vector<int>& local) {
  struct Result {
    std::size_t step;
    std::size_t offset;
  };
  std::vector<std::vector<Result>> results(order_.size());  // per position of the first reader
  const auto position_of = [&](int node) {
    const int i = local[static_cast<std::size_t>(node)];
    return i < 0 ? -1 : position_[static_cast<std::size_t>(i)];
  };
  std::vector<int> scope;  // positions
  for (std::size_t p = 0; p < order_.size(); ++p) {
    Step step;
    step.node = nodes[static_cast<std::size_t>(order_[p])];
    step.own = own_entries_;
    own_entries_ += static_cast<std::size_t>(core.size(step.node));
    step.scope_begin = scope_.size();
    step.member_begin = members_.size();
    step.outside_begin = outside_.size();
    scope.clear();
    for (const Core::Link& link : core.links(step.node)) {
      const int other = position_of(link.node);
      if (other < 0) outside_.push_back({link.node, link.columns});
      if (other > static_cast<int>(p)) scope.push_back(other);
    }
    for (const Result& result : results[p]) {
      const Step& from = steps_[result.step];
      for (std::size_t s = 1; s < from.scope_count; ++s)
        scope.push_back(position_of(scope_[from.scope_begin + s]));
    }
    std::sort(scope.begin(), scope.end());
    scope.erase(std::unique(scope.begin(), scope.end()), scope.end());
    double entries = 1;
    for (const int other : scope) {
      const int node = nodes[static_cast<std::size_t>(order_[static_cast<std::size_t>(other)])];
      scope_.push_back(node);
      scope_sizes_.push_back(core.size(node));
      entries *= core.size(node);
    }
    step.scope_count = scope.size();
    const auto slot_of = [&](int other) {
      return static_cast<std::size_t>(std::lower_bound(scope.begin(), scope.end(), other) -
                                      scope.begin());
    };
    for (const Core::Link& link : core.links(step.node)) {
      const int other = position_of(link.node);
      if (other <= static_cast<int>(p)) continue;
      members_.push_back(
          {link.rows, 0, static_cast<std::size_t>(core.size(link.node)), strides_.size()});
      strides_.resize(strides_.size() + scope.size(), 0);
      strides_[members_.back().strides + slot_of(other)] = 1;
    }
    for (const Result& result : results[p]) {
      const Step& from = steps_[result.step];
      Member member{nullptr, result.offset, 0, strides_.size()};
      strides_.resize(strides_.size() + scope.size(), 0);
      std::size_t stride = 1;
      for (std::size_t s = from.scope_count; s-- > 1;) {
        strides_[member.strides + slot_of(position_of(scope_[from.scope_begin + s]))] = stride;
        stride *= static_cast<std::size_t>(scope_sizes_[from.scope_begin + s]);
      }
      member.value_stride = stride;
      members_.push_back(member);
    }
    step.member_count = members_.size() - step.member_begin;
    step.outside_count = outside_.size() - step.outside_begin;
    work_ += entries * core.size(step.node) *
                 static_cast<double>(std::max<std::size_t>(step.member_count, 1)) +
             static_cast<double>(step.outside_count) * core.size(step.node);
    if (!scope.empty()) {
      step.out = table_entries_;
      table_entries_ += static_cast<std::size_t>(entries);
      results[static_cast<std::size_t>(scope.front())].push_back({steps_.size(), step.out});
    }
    steps_.push_back(step);
  }
  made_ += 8 * static_cast<double>(members_.size() + scope_.size());
}

double BlockPlan::run(const Core& core,
                      const std::vector<double>& theta,
                      Labels& labels,
                      BlockWorkspace& workspace) const {
  if (workspace.tables.size() < table_entries_) workspace.tables.resize(table_entries_);
  if (workspace.own.size() < own_entries_) workspace.own.resize(own_entries_);
  double* const tables = workspace.tables.data();
  std::vector<EliminationMember> members;
  for (const Step& step : steps_) {
    const auto size = static_cast<std::size_t>(core.size(step.node));
    double* const own = workspace.own.data() + step.own;
    const double* const costs = theta.data() + core.first(step.node);
    for (std::size_t s = 0; s < size; ++s) own[s] = costs[s];
    for (std::size_t o = step.outside_begin; o < step.outside_begin + step.outside_count; ++o) {
      const auto label =
          static_cast<std::size_t>(labels[static_cast<std::size_t>(outside_[o].node)]);
      const double* const column = outside_[o].columns + label * size;
      for (std::size_t s = 0; s < size; ++s) own[s] += column[s];
    }
    if (step.scope_count == 0) continue;
    members.clear();
    for (std::size_t m = step.member_begin; m < step.member_begin + step.member_count; ++m) {
      const Member& member = members_[m];
      members.push_back({member.table != nullptr ? member.table : tables + member.offset,
                         member.value_stride,
                         strides_.data() + member.strides});
    }
    eliminate_variable(own,
                       size,
                       std::span(scope_sizes_).subspan(step.scope_begin, step.scope_count),
                       members,
                       tables + step.out);
  }
  double total = 0;
  for (std::size_t i = steps_.size(); i-- > 0;) {
    const Step& step = steps_[i];
    const auto size = static_cast<std::size_t>(core.size(step.node));
    double* const own = workspace.own.data() + step.own;
    for (std::size_t m = step.member_begin; m < step.member_begin + step.member_count; ++m) {
      const Member& member = members_[m];
      const double* from = member.table != nullptr ? member.table : tables + member.offset;
      for (std::size_t s = 0; s < step.scope_count; ++s) {
        const int node = scope_[step.scope_begin + s];
        from += strides_[member.strides + s] *
                static_cast<std::size_t>(labels[static_cast<std::size_t>(node)]);
      }
      for (std::size_t s = 0; s < size; ++s) own[s] += from[s * member.value_stride];
    }
    int& label = labels[static_cast<std::size_t>(step.node)];
    auto best = static_cast<std::size_t>(label);
    for (std::size_t s = 0; s < size; ++s) {
      if (own[s] < own[best]) best = s;
    }
    label = static_cast<int>(best);
    if (step.scope_count == 0) total += own[best];
  }
  return total;
}

}  // namespace meshplan::solver

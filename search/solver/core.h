// SPDX-License-Identifier: Apache-2.0
// Core: a reduced problem in flat arrays, read by all workers at once. Forbidden pairs have the
// cost `big`, which exceeds any sum of others; so labellings that break rules can be compared as
// well.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "search/solver/problem.h"

namespace meshplan::solver {

/// One strategy per node of a core.
using Labels = std::vector<int>;

class Core {
 public:
  explicit Core(const Problem& problem);

  /// A neighbour and the pair costs, in both orders.
  struct Link {
    int node = 0;
    int edge = 0;
    const double* rows = nullptr;     ///< [own strategy][the neighbour's]
    const double* columns = nullptr;  ///< [the neighbour's strategy][own]
  };
  struct CoreUse {
    int begin = 0;
    int end = 0;
    const double* usage = nullptr;  ///< per strategy
  };

  int nodes() const { return static_cast<int>(sizes_.size()); }
  int edges() const { return edges_; }
  int moments() const { return static_cast<int>(room_.size()); }
  int size(int v) const { return sizes_[static_cast<std::size_t>(v)]; }
  /// Where the strategies of `v` begin in arrays over all strategies.
  std::size_t first(int v) const { return first_[static_cast<std::size_t>(v)]; }
  std::size_t strategies() const { return first_.back(); }
  const double* costs(int v) const { return costs_.data() + first(v); }
  const std::vector<double>& costs() const { return costs_; }
  /// Ascending by neighbour.
  std::span<const Link> links(int v) const { return range(links_, link_begin_, v); }
  std::span<const CoreUse> uses(int v) const { return range(uses_, use_begin_, v); }
  const std::vector<double>& room() const { return room_; }
  double big() const { return big_; }
  double constant() const { return constant_; }
  /// Entries of all pair tables, shared ones counted for every edge.
  double entries() const { return entries_; }

  double cost_of(const Labels& labels) const;
  std::vector<double> usage_of(const Labels& labels) const;
  bool fits(const std::vector<double>& usage) const;
  /// Costs with memory priced; `prefix` has the sum of the prices of all moments before each.
  void price(const std::vector<double>& prefix, std::vector<double>& theta) const;
  void price_node(int v, const std::vector<double>& prefix, double* theta) const;

 private:
  template <class T>
  std::span<const T> range(const std::vector<T>& list,
                           const std::vector<std::size_t>& begin,
                           int v) const {
    const auto at = static_cast<std::size_t>(v);
    return {list.data() + begin[at], begin[at + 1] - begin[at]};
  }

  std::vector<int> sizes_;
  std::vector<std::size_t> first_;
  std::vector<double> costs_;
  std::vector<double> tables_;
  std::vector<Link> links_;
  std::vector<std::size_t> link_begin_;
  std::vector<double> usages_;
  std::vector<CoreUse> uses_;
  std::vector<std::size_t> use_begin_;
  std::vector<double> room_;
  int edges_ = 0;
  double big_ = 0;
  double constant_ = 0;
  double entries_ = 0;
};

/// prefix[t] = prices[0] + ... + prices[t - 1], one longer than prices.
void prefix_sums(const std::vector<double>& prices, std::vector<double>& prefix);

}  // namespace meshplan::solver

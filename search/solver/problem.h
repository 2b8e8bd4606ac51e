// SPDX-License-Identifier: Apache-2.0
// Problem: a cost graph as the solver sees it: doubles, forbidden is kForbidden (infinity), moments
// numbered from 0, equal tables stored once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lib/interner.h"
#include "search/cost_graph.h"
#include "search/min_sum.h"

namespace meshplan::solver {

/// Distinct tables of pairs of strategies; a table and its transpose know each other.
class TablePool {
 public:
  int add(int rows, int columns, std::span<const double> costs);
  const CostTable& table(int number) const { return *tables_[static_cast<std::size_t>(number)]; }
  /// The number of the table with rows and columns exchanged; made when it is first asked for.
  int transposed(int number);
  int size() const { return static_cast<int>(tables_.size()); }

  /// The least entry of every row; kept.
  const std::vector<double>& row_minima(int number);

 private:
  Interner interner_;
  std::vector<std::uint64_t> key_;
  std::vector<std::unique_ptr<CostTable>> tables_;
  std::vector<int> transposed_;  ///< -1: not made yet
  std::vector<std::vector<double>> row_minima_;
};

/// Memory used during the moments [begin, end), per strategy.
struct Use {
  int begin = 0;
  int end = 0;
  std::vector<double> usage;
};

struct Problem {
  struct Node {
    std::vector<double> costs;
    std::vector<Use> uses;
  };
  struct Edge {
    int from = 0;
    int to = 0;
    int table = 0;
  };

  std::vector<Node> nodes;
  std::vector<Edge> edges;  ///< at most one between two nodes, from < to
  TablePool pool;
  double constant = 0;             ///< cost that does not depend on any choice
  std::vector<double> room;        ///< per moment: the limit less what is used in any case
  std::vector<std::int64_t> when;  ///< per moment, as in the document
  double limit = 0;                ///< infinity: none
  /// What rounding may amount to; 0 where all sums are below 2^53, so that they are exact.
  double cost_tolerance = 0;
  double usage_tolerance = 0;
};

/// How the choices of a reduced problem become those of the graph. Strategies keep their numbers.
class BackMap {
 public:
  explicit BackMap(std::size_t nodes = 0) : nodes_(nodes) {}

  /// `node` takes choice[strategy of `decider`].
  void determined(int node, int decider, std::vector<int> choice) {
    records_.push_back({node, decider, std::move(choice)});
  }
  void fixed(int node, int strategy) { records_.push_back({node, -1, {strategy}}); }
  /// Node `position` of the reduced problem is `node`, its strategies have these numbers.
  void remains(int node, std::vector<int> strategies) {
    remaining_.emplace_back(node, std::move(strategies));
  }

  std::vector<int> expand(const std::vector<int>& reduced) const;

  const std::vector<std::pair<int, std::vector<int>>>& remaining() const { return remaining_; }

 private:
  struct Record {
    int node;
    int decider;
    std::vector<int> choice;
  };
  std::size_t nodes_;
  std::vector<Record> records_;
  std::vector<std::pair<int, std::vector<int>>> remaining_;
};

/// Why there is no solution, and its proof.
struct Impossible {
  bool forbidden = false;  ///< no assignment avoids what is forbidden, whatever the memory
  double least_usage = 0;  ///< that any assignment has at the tightest moment (or a weighted mean)
  std::int64_t moment = 0;
};

/// The graph as a problem: edge usages become nodes whose strategies are the pairs.
Problem to_problem(const CostGraph& graph, BackMap& back);

/// The problem with these strategies of each node only; `filter` leads back.
Problem restricted(const Problem& problem,
                   const std::vector<std::vector<int>>& kept,
                   BackMap& filter);

/// Prices of moments that are gone go to the next one that is left.
std::vector<double> prices_of(const Problem& problem,
                              const std::vector<double>& prices,
                              const Problem& of);

struct Reduced {
  Problem problem;
  BackMap back;
  std::optional<Impossible> impossible;
};

/// Exact reductions, repeated until nothing changes; `stop` ends them early (what is left is still
/// an equivalent problem). Some optimal solution is among those that remain.
Reduced reduce(Problem problem, const std::function<bool()>& stop);

}  // namespace meshplan::solver

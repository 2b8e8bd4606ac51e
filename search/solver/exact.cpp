// SPDX-License-Identifier: Apache-2.0
#include "search/solver/exact.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "search/solver/core.h"
#include "search/solver/prices.h"

namespace meshplan::solver {
namespace {

constexpr int kSettling = 20;          ///< passes of messages at the prices of the node above
constexpr int kSteps = 60;             ///< of prices
constexpr double kReducing = 60;       ///< table entries that reducing one of what is left is worth
constexpr double kWorthAgain = 0.05;   ///< of the strategies, dropped at once
constexpr double kAhead = 0.15;        ///< without a solution: how far beyond the bound prices aim
constexpr std::size_t kDeepest = 600;  ///< nodes of the search above each other

class Search {
 public:
  Search(const Problem& problem, double cost, Budget& budget)
      : whole_(problem), best_cost_(cost), budget_(budget) {}

  ExactOutcome run(const Problem& problem, std::vector<double> prices) {
    BackMap same(problem.nodes.size());
    std::vector<std::vector<int>> all(problem.nodes.size());
    for (std::size_t v = 0; v < all.size(); ++v) {
      for (std::size_t s = 0; s < problem.nodes[v].costs.size(); ++s)
        all[v].push_back(static_cast<int>(s));
    }
    ExactOutcome outcome;
    outcome.complete = visit(problem, all, std::move(prices)) && !doubtful_;
    outcome.solution = std::move(best_);
    return outcome;
  }

 private:
  /// The least cost that is no better than the best known.
  double most() const { return best_cost_ - 1 + 1e-6; }

  /// The problem with these strategies only. Returns whether all of it was seen.
  bool visit(const Problem& above, std::vector<std::vector<int>> kept, std::vector<double> prices) {
    const std::size_t depth = backs_.size();
    const bool seen = depth < 2 * kDeepest && divide(above, std::move(kept), std::move(prices));
    backs_.resize(depth);
    return seen;
  }

  bool divide(const Problem& above,
              std::vector<std::vector<int>> kept,
              std::vector<double> prices) {
    Problem problem;
    for (const Problem* from = &above;; from = &problem) {
      if (budget_.over()) return false;
      BackMap filter;
      Problem rest = restricted(*from, kept, filter);
      budget_.spend(kReducing * entries_of(rest));
      Reduced made = reduce(std::move(rest), [this] { return budget_.over(); });
      if (made.impossible) {
        doubtful_ = doubtful_ || (!made.impossible->forbidden && whole_.usage_tolerance > 0);
        return true;
      }
      prices = prices_of(made.problem, prices, *from);
      problem = std::move(made.problem);
      backs_.push_back(std::move(filter));
      backs_.push_back(std::move(made.back));
      const Core core(problem);
      if (core.nodes() == 0) {
        offer();
        return true;
      }
      Prices climbing(core);
      if (climbs_above(climbing, prices)) return true;
      prices = climbing.center();
      const std::vector<double> bounds = climbing.strategy_bounds();
      budget_.spend(3 * climbing.work());
      std::size_t dropped = 0;
      kept.assign(problem.nodes.size(), {});
      for (int v = 0; v < core.nodes(); ++v) {
        std::vector<int>& list = kept[static_cast<std::size_t>(v)];
        for (int s = 0; s < core.size(v); ++s) {
          if (bounds[core.first(v) + static_cast<std::size_t>(s)] <= most()) list.push_back(s);
        }
        if (list.empty()) return true;
        dropped += static_cast<std::size_t>(core.size(v)) - list.size();
      }
      if (dropped > 0 &&
          static_cast<double>(dropped) >= kWorthAgain * static_cast<double>(core.strategies()))
        continue;
      const auto [v, best] = choice_of(core, kept, bounds);
      if (v < 0) {  // one strategy each
        if (dropped == 0) return false;
        continue;
      }
      std::vector<int>& list = kept[static_cast<std::size_t>(v)];
      std::vector<int> others = list;
      std::erase(others, best);
      list = {best};
      if (!visit(problem, kept, prices)) return false;
      kept[static_cast<std::size_t>(v)] = std::move(others);
      return visit(problem, std::move(kept), std::move(prices));
    }
  }

  static double entries_of(const Problem& problem) {
    std::size_t count = problem.room.size();
    for (const Problem::Node& node : problem.nodes) count += node.costs.size();
    for (const Problem::Edge& edge : problem.edges)
      count += problem.pool.table(edge.table).costs.size();
    return static_cast<double>(count);
  }

  /// Whether the bound leaves nothing better.
  bool climbs_above(Prices& climbing, const std::vector<double>& prices) {
    climbing.set(prices);
    for (int pass = 0; pass < kSettling; ++pass) climbing.bound();
    budget_.spend(kSettling * climbing.work());
    for (int step = 0; step < kSteps && !budget_.over(); ++step) {
      if (climbing.bound() > most()) return true;
      const double bound = climbing.best_bound();
      climbing.climb(std::min(best_cost_, bound + kAhead * std::max(1.0, std::abs(bound))));
      budget_.spend(climbing.work());
    }
    return climbing.best_bound() > most();
  }

  /// The node to divide by and its best strategy; -1: no node has two.
  static std::pair<int, int> choice_of(const Core& core,
                                       const std::vector<std::vector<int>>& kept,
                                       const std::vector<double>& bounds) {
    int node = -1;
    int best = 0;
    double widest = -1;
    for (int v = 0; v < core.nodes(); ++v) {
      const std::vector<int>& list = kept[static_cast<std::size_t>(v)];
      if (list.size() < 2) continue;
      double first = std::numeric_limits<double>::infinity();
      double second = first;
      int first_strategy = 0;
      for (const int s : list) {
        const double bound = bounds[core.first(v) + static_cast<std::size_t>(s)];
        if (bound < first) {
          second = std::exchange(first, bound);
          first_strategy = s;
        } else {
          second = std::min(second, bound);
        }
      }
      if (second - first <= widest) continue;
      widest = second - first;
      node = v;
      best = first_strategy;
    }
    return {node, best};
  }

  /// Everything is decided.
  void offer() {
    Labels labels;
    for (std::size_t b = backs_.size(); b-- > 0;) labels = backs_[b].expand(labels);
    if (!core_) core_.emplace(whole_);
    const double cost = core_->cost_of(labels);
    std::vector<double> usage = core_->usage_of(labels);
    if (cost >= best_cost_ || cost >= core_->big() / 2 || !core_->fits(usage)) return;
    best_cost_ = cost;
    best_ = Solution{std::move(labels), cost, std::move(usage)};
  }

  const Problem& whole_;
  double best_cost_;
  Budget& budget_;
  std::vector<BackMap> backs_;  ///< from the whole problem to the node at hand
  std::optional<Core> core_;    ///< of the whole problem; made for the first solution
  std::optional<Solution> best_;
  bool doubtful_ = false;  ///< something was ruled out within the rounding of usages
};

}  // namespace

ExactOutcome search_all(const Problem& problem,
                        const std::vector<double>& prices,
                        double cost,
                        Budget& budget) {
  return Search(problem, cost, budget).run(problem, prices);
}

}  // namespace meshplan::solver

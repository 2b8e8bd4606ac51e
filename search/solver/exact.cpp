// SPDX-License-Identifier: Apache-2.0
#include "search/solver/exact.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace meshplan::solver {
namespace {

class Search {
 public:
  Search(const Core& core, Prices& prices, double cost, Budget& budget)
      : core_(core), prices_(prices), best_cost_(cost), budget_(budget) {
    const auto nodes = static_cast<std::size_t>(core.nodes());
    labels_.assign(nodes, 0);
    usage_.assign(core.room().size(), 0);
    candidates_.resize(nodes);
  }

  ExactOutcome run() {
    strategy_bounds_ = prices_.strategy_bounds();
    prices_.set(prices_.center());
    for (int pass = 0; pass < kPasses; ++pass) prices_.bound();
    if (!prices_.forward_next()) prices_.bound();  // the last pass must go towards the first node
    double paid = 0;
    for (std::size_t t = 0; t < usage_.size(); ++t) paid += prices_.prices()[t] * core_.room()[t];
    base_ = core_.constant() - paid;
    rounding_ = 1e-10 * (std::abs(paid) + std::abs(core_.constant()) +
                         std::abs(prices_.messages().suffix(0)));
    ExactOutcome outcome;
    outcome.complete = visit(0, 0, 0);
    outcome.solution = std::move(best_);
    return outcome;
  }

 private:
  static constexpr int kPasses = 20;

  /// `priced`: of the nodes before v and the links between them; `crossing`: the messages into them
  /// from the others. Returns whether the search was complete.
  bool visit(int v, double priced, double crossing) {
    if (budget_.over()) return false;
    if (v == core_.nodes()) {
      const double cost = core_.cost_of(labels_);
      if (cost < best_cost_ && cost < core_.big() / 2) {
        best_cost_ = cost;
        best_ = Solution{labels_, cost, usage_};
      }
      return true;
    }
    const auto size = static_cast<std::size_t>(core_.size(v));
    const double* theta = prices_.theta().data() + core_.first(v);
    std::vector<std::pair<double, int>>& order = candidates_[static_cast<std::size_t>(v)];
    order.clear();
    double known = crossing;
    std::vector<double> own(theta, theta + size);
    std::vector<double> later(size, 0);
    for (const Core::Link& link : core_.links(v)) {
      const double* message = prices_.messages().message(link.edge);
      if (link.node < v) {
        const auto label = static_cast<std::size_t>(labels_[static_cast<std::size_t>(link.node)]);
        const double* column = link.columns + label * size;
        for (std::size_t s = 0; s < size; ++s) own[s] += column[s];
        known -= message[label];
      } else {
        for (std::size_t s = 0; s < size; ++s) later[s] += message[s];
      }
    }
    const double rest = prices_.messages().suffix(v + 1);
    for (std::size_t s = 0; s < size; ++s) {
      if (own[s] >= core_.big() / 2) continue;
      if (strategy_bounds_[core_.first(v) + s] > best_cost_ - 1 + 1e-6) continue;
      order.emplace_back(base_ + priced + own[s] + known + later[s] + rest, static_cast<int>(s));
    }
    budget_.spend(static_cast<double>(size * (core_.links(v).size() + 1)) +
                  static_cast<double>(core_.uses(v).size() + 1) * 8);
    std::sort(order.begin(), order.end());
    for (std::size_t i = 0; i < order.size(); ++i) {
      const auto [bound, s] = order[i];
      // better means at least one unit less
      if (bound - rounding_ > best_cost_ - 1 + 1e-6) break;
      const auto at = static_cast<std::size_t>(s);
      labels_[static_cast<std::size_t>(v)] = s;
      bool fits = true;
      for (const Core::CoreUse& use : core_.uses(v)) {
        if (use.usage[at] == 0) continue;
        for (int t = use.begin; t < use.end; ++t) {
          const auto moment = static_cast<std::size_t>(t);
          usage_[moment] += use.usage[at];
          fits = fits && usage_[moment] <= core_.room()[moment];
        }
        budget_.spend(static_cast<double>(use.end - use.begin));
      }
      const bool complete = !fits || visit(v + 1, priced + own[at], known + later[at]);
      for (const Core::CoreUse& use : core_.uses(v)) {
        if (use.usage[at] == 0) continue;
        for (int t = use.begin; t < use.end; ++t)
          usage_[static_cast<std::size_t>(t)] -= use.usage[at];
      }
      if (!complete) return false;
    }
    return true;
  }

  const Core& core_;
  Prices& prices_;
  double best_cost_;
  Budget& budget_;
  Labels labels_;
  std::vector<double> usage_;
  std::vector<std::vector<std::pair<double, int>>> candidates_;
  std::optional<Solution> best_;
  std::vector<double> strategy_bounds_;
  double base_ = 0;
  double rounding_ = 0;
};

}  // namespace

ExactOutcome search_all(const Core& core, Prices& prices, double cost, Budget& budget) {
  return Search(core, prices, cost, budget).run();
}

}  // namespace meshplan::solver

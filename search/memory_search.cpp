// SPDX-License-Identifier: Apache-2.0
#include "search/memory_search.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "lib/check.h"

namespace meshplan {
namespace {

constexpr int kMostAttempts = 10;
constexpr int kMostGrowths = 40;
constexpr int kMostIntersections = 14;
constexpr double kGrowth = 8;
constexpr double kBelowIncumbent = 0.7;  ///< the price of another mesh's bound is near this one's
constexpr double kGrowthFromIncumbent = 1.6;
constexpr int kWindow = 40;  ///< operators chosen anew around a cut: more than a decoder layer
constexpr int kMostBalances = 60;
constexpr int kMostRefinements = 24;
constexpr double kGoodGap = 0.01;  ///< a gap below this is not worked on further

/// A bound on the priced sum as a bound on the seconds of a plan within the limit.
double unpriced(double priced, const MemoryPrices& prices, Bytes limit) {
  for (const auto& [moment, price] : prices.at) priced -= price * static_cast<double>(limit);
  return priced;
}

struct Candidate {
  Decision decision;
  PlanProblem::Measured measured;
  double bound = 0;  ///< on the priced sum of every plan
};

class MemorySearch {
 public:
  MemorySearch(PlanProblem& problem,
               Bytes limit,
               const std::optional<Incumbent>& incumbent,
               const std::function<bool()>& stop)
      : problem_(problem), limit_(limit), incumbent_(incumbent), stop_(stop) {}

  MemorySearchResult run() {
    if (incumbent_) {
      solve(incumbent_->prices);
      if (infeasible_ || beaten()) return finish();
    }
    const Candidate cheapest = solve({});
    if (infeasible_) return std::move(result_);
    if (cheapest.measured.peak <= limit_) {
      offer(cheapest);
      return finish();
    }
    int moment = cheapest.measured.peak_moment;
    Bytes target = limit_;
    for (int attempt = 0; attempt < kMostAttempts && !stopped(); ++attempt) {
      const std::optional<Candidate> below = squeeze(cheapest, moment, target);
      if (!below || beaten()) break;
      if (below->measured.peak <= limit_) break;
      if (below->measured.peak_moment != moment && attempt < kMostAttempts / 2) {
        moment = below->measured.peak_moment;
      } else {
        target -= below->measured.peak - limit_;
      }
    }
    if (!result_.decision && !result_.min_memory && !beaten()) balance(cheapest);
    if (result_.decision) refine(cheapest);
    return finish();
  }

 private:
  bool stopped() {
    result_.stopped = result_.stopped || (stop_ && stop_());
    return result_.stopped;
  }

  Candidate solve(const MemoryPrices& prices) {
    Candidate candidate;
    const PlanProblem::Solution solution = problem_.solve(prices);
    if (!solution.feasible) {
      infeasible_ = true;
      return candidate;
    }
    candidate.bound = solution.lower_bound;
    const double bound = unpriced(solution.lower_bound, prices, limit_);
    if (!prices.memory_only && bound > result_.lower_bound) {
      result_.lower_bound = bound;
      result_.prices = prices;
    }
    candidate.decision = {solution.choice, prices, prices};
    candidate.measured = problem_.measure(candidate.decision);
    return candidate;
  }

  /// Nothing better than the incumbent is to be had.
  bool beaten() const { return incumbent_ && result_.lower_bound >= incumbent_->objective.value; }

  void offer(const Candidate& candidate) {
    if (candidate.measured.peak > limit_) return;
    if (result_.decision && result_.objective <= candidate.measured.objective) return;
    result_.decision = candidate.decision;
    result_.objective = candidate.measured.objective;
  }

  /// Finds the two plans on either side of `target` at one moment, joins them, and returns the one
  /// below. nullopt: nothing gets below, or (with a lowered target) nothing more is to be had.
  std::optional<Candidate> squeeze(const Candidate& cheapest, int moment, Bytes target) {
    const auto at = static_cast<std::size_t>(moment);
    if (cheapest.measured.profile[at] <= target) return cheapest;
    const MemoryPrices bytes_only{{{moment, 1.0}}, true};
    const Candidate least = solve(bytes_only);
    if (least.measured.profile[at] > target) {
      // sums of whole bytes are exact
      const auto floor = static_cast<Bytes>(least.bound);
      if (floor > limit_ && floor > result_.min_memory.value_or(0)) {
        result_.min_memory = floor;
        result_.tightest_moment = moment;
      }
      return std::nullopt;
    }
    offer(least);
    Candidate above = cheapest;
    double growth_factor = kGrowth;
    double price =
        0.01 * above.measured.objective.value / static_cast<double>(above.measured.profile[at]);
    if (incumbent_ && incumbent_->prices.at.size() == 1) {
      price = incumbent_->prices.at.begin()->second * kBelowIncumbent;
      growth_factor = kGrowthFromIncumbent;
    }
    std::optional<Candidate> below;
    double below_price = 0;
    for (int growth = 0; growth < kMostGrowths && !below && !stopped();
         ++growth, price *= growth_factor) {
      Candidate next = solve({{{moment, price}}, false});
      if (beaten()) return std::nullopt;
      if (next.measured.profile[at] <= target) {
        below_price = price;
        below = std::move(next);
      } else {
        above = std::move(next);
      }
    }
    if (!below) return least;
    for (int i = 0; i < kMostIntersections && !stopped(); ++i) {
      const double bytes =
          static_cast<double>(above.measured.profile[at] - below->measured.profile[at]);
      const double crossing = (below->measured.objective - above.measured.objective).value / bytes;
      if (!(crossing > 0)) break;
      Candidate next = solve({{{moment, crossing}}, false});
      if (beaten()) return std::nullopt;
      const double line = above.measured.objective.value +
                          crossing * static_cast<double>(above.measured.profile[at]);
      const double priced =
          next.measured.objective.value + crossing * static_cast<double>(next.measured.profile[at]);
      below_price = crossing;
      if (priced >= line * (1 - 1e-12)) break;  // nothing lies below the line between the two
      if (next.measured.profile[at] <= target) {
        below = std::move(next);
      } else {
        above = std::move(next);
      }
    }
    offer(*below);
    join(above, *below, {{{moment, below_price}}, false});
    join(*below, above, {{{moment, below_price}}, false});
    return below;
  }

  /// Operators before the cut as in `first`, from it as in `second`; the best cut by bisection.
  /// One of the two is within the limit.
  void join(const Candidate& first, const Candidate& second, const MemoryPrices& prices) {
    const bool first_is_heavy = first.measured.peak > second.measured.peak;
    const int operators = static_cast<int>(problem_.book().graph().operators.size());
    int low = 0;           // fits (heavy part empty)
    int high = operators;  // does not fit
    if (!first_is_heavy) std::swap(low, high);
    while (std::abs(high - low) > 1 && !stopped()) {
      const int cut = (low + high) / 2;
      const std::optional<Candidate> joined = join_at(first, second, cut, prices);
      if (joined && joined->measured.peak <= limit_) {
        offer(*joined);
        low = cut;
      } else {
        high = cut;
      }
    }
  }

  std::optional<Candidate> join_at(const Candidate& first,
                                   const Candidate& second,
                                   int cut,
                                   const MemoryPrices& prices) {
    Choice fixed(problem_.variables());
    std::vector<char> free(problem_.variables(), 0);
    for (std::size_t v = 0; v < fixed.size(); ++v) {
      const int moment = problem_.moment_of(v);
      fixed[v] = moment < cut ? first.decision.choice[v] : second.decision.choice[v];
      free[v] = moment >= cut - kWindow / 2 && moment < cut + kWindow / 2 ? 1 : 0;
    }
    const PlanProblem::Solution solution = problem_.solve(prices, &fixed, &free);
    if (!solution.feasible) return std::nullopt;
    Candidate joined;
    joined.decision = {solution.choice, first.decision.prices, second.decision.late, cut};
    joined.measured = problem_.measure(joined.decision);
    return joined;
  }

  /// Looks for any plan within the limit where the least bytes at one moment are too many at
  /// another. Moments that are exceeded count ever more (fictitious play); whatever they count, no
  /// plan's peak is below the least weighted bytes over the sum of the weights.
  void balance(const Candidate& cheapest) {
    MemoryPrices weights;
    weights.memory_only = true;
    int moment = cheapest.measured.peak_moment;
    for (int round = 1; round <= kMostBalances && !stopped(); ++round) {
      weights.at[moment] += 1;
      const Candidate next = solve(weights);
      const auto floor = static_cast<Bytes>(std::ceil(next.bound / round * (1 - 1e-12)));
      if (floor > limit_) {
        result_.min_memory = floor;
        result_.tightest_moment = moment;
        return;
      }
      offer(next);
      if (result_.decision) return;
      moment = next.measured.peak_moment;
    }
  }

  /// Prices at several moments at once, raised where the limit is exceeded and lowered where there
  /// is room: better bounds and better plans where several moments are tight.
  void refine(const Candidate& cheapest) {
    MemoryPrices prices;
    const double first = 0.1 * cheapest.measured.objective.value /
                         static_cast<double>(std::max<Bytes>(cheapest.measured.peak, 1));
    int moment = cheapest.measured.peak_moment;
    for (int round = 0; round < kMostRefinements && !stopped(); ++round) {
      if (result_.objective.value <= result_.lower_bound * (1 + kGoodGap)) return;
      const int calmer = round / 4;  // smaller steps every fourth round
      const double step = 1 + 3.0 / (1 + calmer);
      for (auto& [at, price] : prices.at) {
        if (at != moment) price /= std::sqrt(step);
      }
      if (moment >= 0) {
        double& price = prices.at[moment];
        price = price == 0 ? first : price * step;
      }
      const Candidate next = solve(prices);
      offer(next);
      moment = next.measured.peak > limit_ ? next.measured.peak_moment : -1;
    }
  }

  MemorySearchResult finish() {
    if (result_.decision) {
      result_.min_memory.reset();
      // bounds are rounded down, sums are exact: equality is a proof
      const double objective = result_.objective.value;
      result_.lower_bound = std::min(result_.lower_bound, objective);
      result_.proven_optimal = result_.lower_bound >= objective;
    }
    return std::move(result_);
  }

  PlanProblem& problem_;
  Bytes limit_;
  const std::optional<Incumbent>& incumbent_;
  const std::function<bool()>& stop_;
  bool infeasible_ = false;
  MemorySearchResult result_;
};

}  // namespace

MemorySearchResult memory_search(PlanProblem& problem,
                                 Bytes limit,
                                 const std::optional<Incumbent>& incumbent,
                                 const std::function<bool()>& stop) {
  return MemorySearch(problem, limit, incumbent, stop).run();
}

double bound_at(PlanProblem& problem, const MemoryPrices& prices, Bytes limit) {
  const PlanProblem::Solution solution = problem.solve(prices);
  if (!solution.feasible) return std::numeric_limits<double>::infinity();
  return unpriced(solution.lower_bound, prices, limit);
}

}  // namespace meshplan

// SPDX-License-Identifier: Apache-2.0
#include "search/memory_search.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "lib/check.h"
#include "search/price_master.h"

namespace meshplan {
namespace {

constexpr int kMostSolves = 40;
constexpr int kRoughSolves = 10;
constexpr int kAimSolves = 6;
constexpr int kMostAims = 10;
constexpr int kRoughAims = 3;
constexpr int kMostWeighings = 60;
constexpr std::size_t kMostMoments = 8;  ///< with a price
constexpr std::size_t kRoughMoments = 3;
constexpr std::size_t kNewMoments = 2;  ///< at once
constexpr int kSpacing = 48;            ///< of all moments: moments closer than this share a price
constexpr double kRises = 0.005;  ///< ... unless one exceeds the other by this share of the limit
constexpr double kFirstPrice = 0.01;  ///< of the whole limit, of the objective
constexpr double kBoxWidth = 4;
constexpr double kWidest = 1e6;
constexpr double kEnough = 1e-4;     ///< relative gain of the bound that is not worth a solve
constexpr double kGoodGap = 2.5e-3;  ///< a gap below this is not worked on further
constexpr double kLeastAim = 2e-3;   ///< of the limit: how much lower an aim is than the last
constexpr double kMostAim = 1e-2;
constexpr double kCalm = 0.3;       ///< share of the best prices in the next ones
constexpr double kNothing = 1e-12;  ///< excess, in limits, that is rounding
constexpr double kWeightSteps = 256;
constexpr int kWindow = 40;  ///< operators chosen anew around a cut: more than a decoder layer
constexpr int kMostJoins = 4;

double paid(const MemoryPrices& prices, Bytes limit) {
  double sum = 0;
  for (const auto& [moment, price] : prices.at) sum += price * static_cast<double>(limit);
  return sum;
}

/// A bound on the priced sum as a bound on the seconds of a plan within the limit; rounded down.
double unpriced(double priced, const MemoryPrices& prices, Bytes limit) {
  if (prices.at.empty()) return priced;
  const double away = paid(prices, limit);
  const double rounding = static_cast<double>(prices.at.size() + 2) *
                          std::numeric_limits<double>::epsilon() * (std::abs(priced) + away);
  return priced - away - rounding;
}

}  // namespace

MemorySearch::MemorySearch(PlanProblem& problem, Bytes limit)
    : problem_(problem), limit_(limit), unit_(static_cast<double>(std::max<Bytes>(limit, 1))) {}

double MemorySearch::bound(const MemoryPrices& prices, double enough) {
  // transfers cost and take no less than nothing
  const double cheap = unpriced(problem_.bound_of_variables(prices), prices, limit_);
  if (cheap >= enough) return cheap;
  solve(prices);
  problem_.forget_tables();
  return result_.empty ? std::numeric_limits<double>::infinity() : result_.lower_bound;
}

MemorySearchResult MemorySearch::run(const std::optional<Incumbent>& incumbent,
                                     const std::function<bool()>& stop,
                                     SearchEffort effort) {
  incumbent_ = incumbent;
  stop_ = stop;
  const bool rough = effort == SearchEffort::kRough;
  most_moments_ = rough ? kRoughMoments : kMostMoments;
  const MemoryPrices first = incumbent ? incumbent->prices : MemoryPrices{};
  if (!tried(first)) solve(first);
  if (result_.empty || beaten()) return finish();
  if (!result_.decision) find_mixture();
  if (result_.min_memory || beaten()) return finish();
  climb(limit_, rough ? kRoughSolves : kMostSolves);
  if (beaten()) return finish();
  std::vector<std::size_t> with = parts();
  join_all(with);
  if (rough ? result_.decision.has_value() : good_enough()) return finish();
  aim_lower(rough ? kRoughAims : kMostAims);
  const std::vector<std::size_t> more = parts();
  with.insert(with.end(), more.begin(), more.end());
  if (!beaten()) join_all(std::move(with));
  return finish();
}

bool MemorySearch::stopped() {
  result_.stopped = result_.stopped || (stop_ && stop_());
  return result_.stopped;
}

bool MemorySearch::tried(const MemoryPrices& prices) const {
  return std::any_of(
      tried_.begin(), tried_.end(), [&](const Tried& one) { return one.prices == prices; });
}

bool MemorySearch::good_enough() const {
  return result_.decision && result_.objective.value <= result_.lower_bound * (1 + kGoodGap);
}

/// The best plan at these prices is a new candidate.
void MemorySearch::solve(const MemoryPrices& prices) {
  PlanProblem::Solution solution = problem_.solve(prices);
  if (!solution.feasible) {
    result_.empty = true;
    return;
  }
  if (!prices.memory_only) {
    const double bound = unpriced(solution.lower_bound, prices, limit_);
    if (bound > result_.lower_bound || tried_.empty()) {
      result_.lower_bound = std::max(bound, 0.0);
      result_.prices = prices;
      if (watcher_) watcher_(result_);
    }
  }
  tried_.push_back({prices, solution.lower_bound});
  Candidate candidate{problem_.decide(std::move(solution.choice), prices), {}};
  candidate.measured = problem_.measure(candidate.decision);
  offer(candidate);
  candidates_.push_back(std::move(candidate));
}

/// Nothing better than the incumbent is to be had.
bool MemorySearch::beaten() const {
  return incumbent_ && result_.lower_bound >= incumbent_->objective.value;
}

bool MemorySearch::offer(const Candidate& candidate) {
  const PlanProblem::Measured& measured = candidate.measured;
  if (!result_.least_peak || measured.peak < *result_.least_peak) {
    result_.least_peak = measured.peak;
    result_.least_peak_moment = measured.peak_moment;
  }
  if (candidate.measured.peak > limit_) return false;
  if (!result_.decision || candidate.measured.objective < result_.objective) {
    result_.decision = candidate.decision;
    result_.objective = candidate.measured.objective;
    if (watcher_) watcher_(result_);
  }
  return true;
}

/// The best prices in a box, per moment of moments_, by the candidates so far. Moments at which
/// the mixture of candidates exceeds the aim are added.
PriceMaster::Answer MemorySearch::best_prices(bool memory_only,
                                              Bytes aim,
                                              double width,
                                              const std::vector<double>& center) {
  const std::size_t most_moments = memory_only ? kMostMoments : most_moments_;
  for (std::size_t known = moments_.size();;) {
    PriceMaster master;
    for (const Candidate& candidate : candidates_) {
      std::vector<double> excess;
      for (const int moment : moments_) {
        const Bytes bytes = candidate.measured.profile[static_cast<std::size_t>(moment)];
        excess.push_back(static_cast<double>(bytes - aim) / unit_);
      }
      master.add_point(memory_only ? 0 : candidate.measured.objective.value, std::move(excess));
    }
    std::vector<double> least(moments_.size(), 0);
    std::vector<double> most(moments_.size(), 1);
    for (std::size_t t = 0; t < moments_.size() && !memory_only; ++t) {
      const double here = t < center.size() ? center[t] : 0;
      if (width < kWidest) least[t] = here / width;
      most[t] = here > 0 ? here * width
                         : kFirstPrice * candidates_.front().measured.objective.value * width;
    }
    PriceMaster::Answer answer = master.solve(least, most);
    const int moment = tightest(answer.shares, aim);
    if (moment < 0 || moments_.size() >= most_moments) return answer;
    if (!memory_only && moments_.size() >= known + kNewMoments) return answer;
    moments_.push_back(moment);
  }
}

/// The moment at which a mixture of the candidates exceeds the aim most, of those that no moment in
/// moments_ stands for; -1: none.
int MemorySearch::tightest(const std::vector<double>& shares, Bytes aim) const {
  std::vector<double> mixed(candidates_.front().measured.profile.size(), 0);
  for (std::size_t k = 0; k < shares.size(); ++k) {
    if (shares[k] == 0) continue;
    const std::vector<Bytes>& profile = candidates_[k].measured.profile;
    for (std::size_t m = 0; m < mixed.size(); ++m)
      mixed[m] += shares[k] * static_cast<double>(profile[m]);
  }
  // what moments_ stand for counts from where it rises above them
  std::vector<double> least(mixed.size(), static_cast<double>(aim) * (1 + 1e-9));
  const int spacing = static_cast<int>(mixed.size()) / kSpacing;
  for (const int known : moments_) {
    const int begin = std::max(known - spacing, 0);
    const int end = std::min(known + spacing + 1, static_cast<int>(mixed.size()));
    const double here = mixed[static_cast<std::size_t>(known)];
    for (int m = begin; m < end; ++m) {
      double& from = least[static_cast<std::size_t>(m)];
      from = std::max(from, m == known ? 2 * here : here + kRises * unit_);
    }
  }
  int most = -1;
  for (int m = 0; m < static_cast<int>(mixed.size()); ++m) {
    const double here = mixed[static_cast<std::size_t>(m)];
    if (here > least[static_cast<std::size_t>(m)] &&
        (most < 0 || here > mixed[static_cast<std::size_t>(most)]))
      most = m;
  }
  return most;
}

/// Whatever moments are weighed how, no plan's peak is below the least weighted bytes over the sum
/// of the weights: this may prove that there is no plan. Weights are whole: sums of whole bytes are
/// exact.
bool MemorySearch::weigh(const std::map<int, double>& weights) {
  double sum = 0;
  auto heaviest = weights.begin();
  for (auto at = weights.begin(); at != weights.end(); ++at) {
    sum += at->second;
    if (at->second > heaviest->second) heaviest = at;
  }
  const MemoryPrices prices{weights, true};
  if (sum == 0 || tried(prices)) return false;
  solve(prices);
  const auto floor = static_cast<Bytes>(std::ceil(tried_.back().lower_bound / sum * (1 - 1e-15)));
  if (floor > limit_ && floor > result_.min_memory.value_or(0)) {
    result_.min_memory = floor;
    result_.tightest_moment = heaviest->first;
  }
  return true;
}

/// Finds candidates a mixture of which is within the limit at every moment, or proves that there
/// is no plan.
void MemorySearch::find_mixture() {
  weigh({{candidates_.back().measured.peak_moment, 1.0}});
  for (int round = 0; round < kMostWeighings && !stopped(); ++round) {
    if (result_.decision || result_.min_memory) return;
    const PriceMaster::Answer answer = best_prices(true, limit_, 1, {});
    if (answer.value <= kNothing) return;
    std::map<int, double> weights;
    for (std::size_t t = 0; t < moments_.size(); ++t) {
      const double weight = std::round(answer.prices[t] * kWeightSteps);
      if (weight > 0) weights[moments_[t]] = weight;
    }
    if (weights.empty() || !weigh(weights)) return;
    if (result_.min_memory) weigh({{result_.tightest_moment, 1.0}});  // often tells more
  }
}

/// Prices at all moments that matter, by cutting planes, as if the limit were `aim`: the highest
/// bound there is, or (below the limit) plans that come out lighter.
void MemorySearch::climb(Bytes aim, int most_solves) {
  moments_.clear();
  double width = kBoxWidth;
  std::vector<double> last;
  double before = 0;
  for (int solves = 0; solves < most_solves && !stopped() && !beaten();) {
    const Tried* best = nullptr;
    double bound = 0;
    for (const Tried& one : tried_) {
      if (one.prices.memory_only) continue;
      const double here = one.lower_bound - paid(one.prices, aim);
      if (best != nullptr && here <= bound) continue;
      best = &one;
      bound = here;
    }
    if (best == nullptr || bound > before) width = kBoxWidth;
    before = bound;
    std::vector<double> center;
    for (const auto& [moment, price] : best->prices.at) {
      if (std::find(moments_.begin(), moments_.end(), moment) == moments_.end())
        moments_.push_back(moment);
    }
    for (const int moment : moments_) {
      const auto known = best->prices.at.find(moment);
      center.push_back(known == best->prices.at.end() ? 0 : known->second * unit_);
    }
    mixture_ = best_prices(false, aim, width, center);
    center.resize(moments_.size(), 0);
    if (mixture_.value <= bound + kEnough * std::abs(mixture_.value)) {
      if (!mixture_.at_edge || width > kWidest) return;
      width *= kBoxWidth;
      continue;
    }
    const bool again = mixture_.prices == last;
    last = mixture_.prices;
    MemoryPrices next;
    for (std::size_t t = 0; t < moments_.size(); ++t) {
      double price = mixture_.prices[t];
      if (!again && moments_.size() > 1) price += kCalm * (center[t] - price);
      if (price > 0) next.at[moments_[t]] = price / unit_;
    }
    if (tried(next)) return;
    solve(next);
    ++solves;
    if (aim < limit_ && good_enough()) return;
  }
}

/// The members of the mixture are a little too heavy, each at another moment: aims lower, until
/// some fit.
void MemorySearch::aim_lower(int most_aims) {
  Bytes aim = limit_;
  for (int attempt = 0; attempt < most_aims && !stopped() && !beaten(); ++attempt) {
    Bytes least = std::numeric_limits<Bytes>::max();
    for (const std::size_t k : parts()) least = std::min(least, candidates_[k].measured.peak);
    const auto step = [&](double share) { return static_cast<Bytes>(share * unit_); };
    aim -= std::clamp(least - limit_, step(kLeastAim), step(kMostAim));
    if (aim <= 0) return;
    climb(aim, kAimSolves);
    for (const std::size_t k : parts()) {
      if (candidates_[k].measured.peak <= limit_) return;
    }
  }
}

/// What the mixture is made of.
std::vector<std::size_t> MemorySearch::parts() const {
  std::vector<std::size_t> made;
  for (std::size_t k = 0; k < mixture_.shares.size(); ++k) {
    if (mixture_.shares[k] > 1e-9) made.push_back(k);
  }
  return made;
}

/// Joins the best plan with these candidates.
void MemorySearch::join_all(std::vector<std::size_t> with) {
  std::sort(with.begin(), with.end());
  with.erase(std::unique(with.begin(), with.end()), with.end());
  for (int round = 0; round < kMostJoins && result_.decision; ++round) {
    const Seconds before = result_.objective;
    for (const std::size_t k : with) {
      for (const bool heavy_first : {true, false}) {
        const Candidate best{*result_.decision, problem_.measure(*result_.decision)};
        if (candidates_[k].measured.objective >= best.measured.objective) break;
        join(candidates_[k], best, heavy_first);
      }
    }
    if (result_.objective >= before) return;
  }
}

/// Operators on one side of a cut as in `heavy`, on the other as in `light`, which fits; the best
/// cut by bisection.
void MemorySearch::join(const Candidate& heavy, const Candidate& light, bool heavy_first) {
  const int operators = static_cast<int>(problem_.book().graph().operators.size());
  int low = heavy_first ? 0 : operators;   // fits (heavy part empty)
  int high = heavy_first ? operators : 0;  // does not fit
  while (std::abs(high - low) > 1 && !stopped()) {
    const int cut = (low + high) / 2;
    const std::optional<Candidate> joined =
        heavy_first ? join_at(heavy, light, cut) : join_at(light, heavy, cut);
    if (joined && offer(*joined)) {
      low = cut;
    } else {
      high = cut;
    }
  }
}

std::optional<MemorySearch::Candidate> MemorySearch::join_at(const Candidate& first,
                                                             const Candidate& second,
                                                             int cut) {
  const Decision sides = problem_.spliced(first.decision, second.decision, cut);
  std::vector<char> free(problem_.variables(), 0);
  for (std::size_t v = 0; v < free.size(); ++v) {
    const int moment = problem_.moment_of(v);
    free[v] = moment >= cut - kWindow / 2 && moment < cut + kWindow / 2 ? 1 : 0;
  }
  PlanProblem::Solution solution = problem_.solve(result_.prices, &sides.choice, &free);
  if (!solution.feasible) return std::nullopt;
  Candidate joined;
  joined.decision = problem_.decide(std::move(solution.choice), result_.prices, &sides, &free);
  joined.measured = problem_.measure(joined.decision);
  return joined;
}

MemorySearchResult MemorySearch::finish() {
  problem_.forget_tables();
  MemorySearchResult result = result_;
  if (result.decision) {
    result.min_memory.reset();
    // bounds are rounded down, sums are exact: equality is a proof
    const double objective = result.objective.value;
    result.lower_bound = std::min(result.lower_bound, objective);
    result.proven_optimal = result.lower_bound >= objective;
  }
  return result;
}

MemorySearchResult memory_search(PlanProblem& problem, Bytes limit) {
  return MemorySearch(problem, limit).run();
}

}  // namespace meshplan

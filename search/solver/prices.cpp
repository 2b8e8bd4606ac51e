// SPDX-License-Identifier: Apache-2.0
#include "search/solver/prices.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace meshplan::solver {
namespace {

constexpr double kMomentum = 0.5;
constexpr int kPatience = 16;  ///< steps without a better bound before they get smaller
constexpr double kShrink = 0.7;
constexpr double kRounding = 1e-11;  ///< relative, of all that is added up

}  // namespace

Prices::Prices(const Core& core)
    : core_(core), messages_(core), best_bound_(-std::numeric_limits<double>::infinity()) {
  set(std::vector<double>(static_cast<std::size_t>(core.moments()), 0));
}

void Prices::set(std::vector<double> prices) {
  prices_ = std::move(prices);
  direction_.assign(prices_.size(), 0);
  scale_ = 1.0;
  since_better_ = 0;
}

double Prices::bound() {
  prefix_sums(prices_, prefix_);
  core_.price(prefix_, theta_);
  const double inner = messages_.pass(theta_, forward_, labels_);
  forward_ = !forward_;
  double paid = 0;
  for (std::size_t t = 0; t < prices_.size(); ++t) paid += prices_[t] * core_.room()[t];
  const double margin = kRounding * (std::abs(inner) + std::abs(paid) + std::abs(core_.constant()));
  last_bound_ = inner - paid + core_.constant() - margin;
  ++since_better_;
  if (last_bound_ > best_bound_) {
    const double scale = std::abs(best_bound_);
    if (!(last_bound_ < best_bound_ + 1e-6 * scale)) since_better_ = 0;
    best_bound_ = last_bound_;
    best_prices_ = prices_;
  }
  return last_bound_;
}

void Prices::climb(double target) {
  const std::vector<double> usage = core_.usage_of(labels_);
  double norm = 0;
  for (std::size_t t = 0; t < prices_.size(); ++t) {
    double slope = usage[t] - core_.room()[t];
    if (prices_[t] == 0 && slope < 0) slope = 0;
    direction_[t] = slope + kMomentum * direction_[t];
    if (prices_[t] == 0 && direction_[t] < 0) direction_[t] = 0;
    norm += direction_[t] * direction_[t];
  }
  if (since_better_ >= kPatience) {
    scale_ *= kShrink;
    since_better_ = 0;
    prices_ = best_prices_;  // wherever the steps led, it is worse
    std::fill(direction_.begin(), direction_.end(), 0.0);
    return;
  }
  if (norm == 0) return;
  const double step = scale_ * std::max(target - last_bound_, 1e-6 * std::abs(target)) / norm;
  for (std::size_t t = 0; t < prices_.size(); ++t)
    prices_[t] = std::max(0.0, prices_[t] + step * direction_[t]);
}

}  // namespace meshplan::solver

// SPDX-License-Identifier: Apache-2.0
#include "search/solver/prices.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace meshplan::solver {
namespace {

constexpr double kPart = 0.1;
constexpr int kPatience = 6;  ///< steps without a better bound before they get smaller
constexpr double kShrink = 0.66;
constexpr double kGrow = 1.2;       ///< of steps, where one brings a better bound
constexpr double kProgress = 1e-6;  ///< relative gain that counts as better
constexpr double kSmallest = 1e-4;  ///< step scale at which it starts again
constexpr double kWorthIt = 1e-5;   ///< relative gain that makes another start worth it
constexpr int kSettling = 6;        ///< passes per price tried
constexpr int kSections = 24;       ///< of an interval of prices
constexpr double kReach = 0.1;      ///< of a price, at first
constexpr double kReachShrink = 0.1;
constexpr double kLeastReach = 1e-5;
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
  first_ = true;
  center_bound_ = -std::numeric_limits<double>::infinity();
  at_restart_ = center_bound_;
  center_ = prices_;
}

/// Long steps again from the best prices; whether the last ones gained anything decides how often.
void Prices::restart() {
  const bool gained = center_bound_ > at_restart_ + kWorthIt * std::abs(center_bound_);
  idle_ = gained ? 0 : idle_ + 1;
  at_restart_ = center_bound_;
  scale_ = 0.5;
  first_ = true;
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
  best_bound_ = std::max(best_bound_, last_bound_);
  ++since_better_;
  better_ = false;
  if (last_bound_ > center_bound_) {
    const double scale = std::abs(center_bound_);
    if (!(last_bound_ < center_bound_ + kProgress * scale)) {
      since_better_ = 0;
      better_ = true;
    }
    center_bound_ = last_bound_;
    center_ = prices_;
    center_messages_ = messages_.all();
    center_forward_ = forward_;
  }
  return last_bound_;
}

std::vector<double> Prices::strategy_bounds() {
  prefix_sums(center_, prefix_);
  core_.price(prefix_, theta_);
  messages_.restore(center_messages_);
  if (!center_forward_) messages_.pass(theta_, false, labels_);
  std::vector<double> bounds;
  const double inner = messages_.marginals(theta_, bounds);
  forward_ = true;
  double paid = 0;
  for (std::size_t t = 0; t < prices_.size(); ++t) paid += center_[t] * core_.room()[t];
  const double margin =
      10 * kRounding * (std::abs(inner) + std::abs(paid) + std::abs(core_.constant()));
  for (double& bound : bounds) bound += core_.constant() - paid - margin;
  return bounds;
}

void Prices::climb(double target) {
  const std::vector<double> usage = core_.usage_of(labels_);
  if (first_) std::fill(direction_.begin(), direction_.end(), 0.0);
  const double part = first_ ? 1.0 : kPart;
  first_ = false;
  double norm = 0;
  double along = 0;
  for (std::size_t t = 0; t < prices_.size(); ++t) {
    const double slope = usage[t] - core_.room()[t];
    direction_[t] += part * (slope - direction_[t]);
    if (center_[t] == 0 && direction_[t] < 0) continue;
    norm += direction_[t] * direction_[t];
    along += direction_[t] * slope;
  }
  if (better_ && along > 0) scale_ = std::min(2.0, kGrow * scale_);
  if (since_better_ >= kPatience) {
    scale_ *= kShrink;
    since_better_ = 0;
    if (scale_ < kSmallest) restart();
    messages_.restore(center_messages_);
    forward_ = center_forward_;
  }
  if (norm == 0) return;
  const double step = scale_ * std::max(target - center_bound_, 1e-6 * std::abs(target)) / norm;
  for (std::size_t t = 0; t < prices_.size(); ++t)
    prices_[t] = std::max(0.0, center_[t] + step * direction_[t]);
}

void Prices::search_along(std::size_t most_moments, const std::function<bool()>& over) {
  std::vector<std::size_t> active;
  for (std::size_t t = 0; t < center_.size(); ++t) {
    if (center_[t] > 0) active.push_back(t);
  }
  if (active.size() > most_moments) return;
  messages_.restore(center_messages_);
  forward_ = center_forward_;
  // the bound at the best prices with another one at `t`; what is best moves the center
  const auto at = [&](std::size_t t, double price) {
    prices_ = center_;
    prices_[t] = price;
    double best = -std::numeric_limits<double>::infinity();
    for (int pass = 0; pass < kSettling; ++pass) best = std::max(best, bound());
    return best;
  };
  for (double reach = kReach; reach > kLeastReach; reach *= kReachShrink) {
    for (const std::size_t t : active) {
      // golden section: the bound is concave in a price, but for how far the messages have come
      const double golden = 0.5 * (std::sqrt(5.0) - 1);
      double low = center_[t] * (1 - reach);
      double high = center_[t] * (1 + reach);
      double left = high - golden * (high - low);
      double right = low + golden * (high - low);
      double bound_left = at(t, left);
      double bound_right = at(t, right);
      for (int i = 0; i < kSections && !over(); ++i) {
        if (bound_left < bound_right) {
          low = std::exchange(left, right);
          bound_left = bound_right;
          right = low + golden * (high - low);
          bound_right = at(t, right);
        } else {
          high = std::exchange(right, left);
          bound_right = bound_left;
          left = high - golden * (high - low);
          bound_left = at(t, left);
        }
      }
      if (over()) break;
    }
  }
  prices_ = center_;
}

}  // namespace meshplan::solver

// SPDX-License-Identifier: Apache-2.0
// The best prices of a few limits, against all mixtures of the points and against a grid of prices.
#include "search/price_master.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "support/catch.h"
#include "support/random.h"

namespace meshplan::price_master_test {
namespace {

using test::Random;

struct Points {
  std::vector<double> costs;
  std::vector<std::vector<double>> excess;

  PriceMaster master() const {
    PriceMaster made;
    for (std::size_t k = 0; k < costs.size(); ++k) made.add_point(costs[k], excess[k]);
    return made;
  }
  double bound(const std::vector<double>& prices) const {
    double least = std::numeric_limits<double>::infinity();
    for (std::size_t k = 0; k < costs.size(); ++k) {
      double sum = costs[k];
      for (std::size_t t = 0; t < prices.size(); ++t) sum += prices[t] * excess[k][t];
      least = std::min(least, sum);
    }
    return least;
  }
};

Points random_points(Random& random, std::size_t count, std::size_t limits) {
  Points points;
  for (std::size_t k = 0; k < count; ++k) {
    points.costs.push_back(static_cast<double>(random.between(0, 20)));
    points.excess.emplace_back();
    for (std::size_t t = 0; t < limits; ++t)
      points.excess.back().push_back(static_cast<double>(random.between(-4, 6)) / 4);
  }
  return points;
}

TEST_CASE("the master's prices give the bound that it claims, and none in the box gives more") {
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    INFO("seed " << seed);
    Random random(seed);
    const auto limits = static_cast<std::size_t>(random.between(0, 3));
    const Points points =
        random_points(random, static_cast<std::size_t>(random.between(1, 8)), limits);
    std::vector<double> least;
    std::vector<double> most;
    for (std::size_t t = 0; t < limits; ++t) {
      least.push_back(random.chance(50) ? 0 : static_cast<double>(random.between(0, 8)) / 8);
      most.push_back(least.back() + static_cast<double>(random.between(0, 40)) / 8);
    }
    const PriceMaster::Answer answer = points.master().solve(least, most);
    REQUIRE(answer.prices.size() == limits);
    double shares = 0;
    for (const double share : answer.shares) {
      REQUIRE(share >= 0);
      shares += share;
    }
    REQUIRE(std::abs(shares - 1) < 1e-9);
    for (std::size_t t = 0; t < limits; ++t) {
      REQUIRE(answer.prices[t] >= least[t]);
      REQUIRE(answer.prices[t] <= most[t]);
    }
    REQUIRE(std::abs(points.bound(answer.prices) - answer.value) < 1e-8);
    for (int probe = 0; probe < 60; ++probe) {
      std::vector<double> prices;
      for (std::size_t t = 0; t < limits; ++t)
        prices.push_back(least[t] + (static_cast<double>(random.between(0, 100)) / 100) *
                                        (most[t] - least[t]));
      REQUIRE(points.bound(prices) <= answer.value + 1e-8);
    }
  }
}

TEST_CASE("a wide box leaves a mixture that meets every limit, at the cost of the bound") {
  int met = 0;
  for (std::uint64_t seed = 1000; seed < 1200; ++seed) {
    INFO("seed " << seed);
    Random random(seed);
    const std::size_t limits = 2;
    Points points = random_points(random, 6, limits);
    // one point has room everywhere, so that some mixture meets all limits
    points.costs.push_back(25);
    points.excess.push_back({-1, -1});
    const PriceMaster::Answer answer =
        points.master().solve(std::vector<double>(limits, 0), std::vector<double>(limits, 1e4));
    double cost = 0;
    std::vector<double> mixed(limits, 0);
    for (std::size_t k = 0; k < points.costs.size(); ++k) {
      cost += answer.shares[k] * points.costs[k];
      for (std::size_t t = 0; t < limits; ++t) mixed[t] += answer.shares[k] * points.excess[k][t];
    }
    for (const double excess : mixed) REQUIRE(excess <= 1e-8);
    REQUIRE(std::abs(cost - answer.value) < 1e-6);
    REQUIRE_FALSE(answer.at_edge);
    ++met;
  }
  CHECK(met == 200);
}

TEST_CASE("between two points of one limit the price is where their lines cross") {
  PriceMaster master;
  master.add_point(10, {0.5});
  master.add_point(16, {-0.25});
  const std::vector<double> least = {0};
  const PriceMaster::Answer answer = master.solve(least, std::vector<double>{100});
  CHECK(std::abs(answer.prices[0] - 8) < 1e-9);
  CHECK(std::abs(answer.value - 14) < 1e-9);
  CHECK(std::abs(answer.shares[0] - 1.0 / 3) < 1e-9);
  const PriceMaster::Answer capped = master.solve(least, std::vector<double>{4});
  CHECK(capped.at_edge);
  CHECK(capped.value == 12);
}

}  // namespace
}  // namespace meshplan::price_master_test

// SPDX-License-Identifier: Apache-2.0
#include "cost_model/piecewise_linear.h"

#include <algorithm>
#include <random>

#include "support/catch.h"

namespace meshplan::piecewise_linear_test {

TEST_CASE("a piecewise linear function is straight between its points and beyond them",
          "[piecewise_linear]") {
  const PiecewiseLinear f({{0, 1}, {2, 2}, {4, 6}}, 3.0);
  CHECK(f(0) == 1.0);
  CHECK(f(1) == 1.5);
  CHECK(f(2) == 2.0);
  CHECK(f(3) == 4.0);
  CHECK(f(5) == 9.0);
  const PiecewiseLinear half = f.scaled(10.0, 2.0);  // 10 f(x / 2)
  CHECK(half(4) == 20.0);
  CHECK(half(10) == 90.0);
  CHECK(PiecewiseLinear(2.0, 0.5)(4) == 4.0);
}

TEST_CASE("sums and envelopes have the values of their parts at every size",
          "[piecewise_linear][law]") {
  const std::uint64_t seed = 8128;
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  const auto between = [&](double a, double b) {
    return std::uniform_real_distribution<>(a, b)(random);
  };
  const auto any = [&] {
    std::vector<PiecewiseLinear::Point> points = {{0, random() % 2 == 0 ? 0 : between(0, 5)}};
    for (std::uint64_t i = random() % 6; i > 0; --i) {
      points.push_back({points.back().x + between(0.1, 9), points.back().y + between(0, 9)});
      if (random() % 4 == 0) points.back().y = points[points.size() - 2].y;  // level
    }
    return PiecewiseLinear(std::move(points), random() % 5 == 0 ? 0 : between(0, 2));
  };
  for (int round = 0; round < 2000; ++round) {
    const PiecewiseLinear a = any();
    const PiecewiseLinear b = random() % 8 == 0 ? a.scaled(1.0, between(0.5, 2)) : any();
    const PiecewiseLinear sum = a + b;
    const PiecewiseLinear low = least(a, b);
    const PiecewiseLinear high = greatest(a, b);
    double last = 0;
    for (int i = 0; i < 60; ++i) {
      const double x = i < 50 ? i : 10.0 * i * i;
      const auto near = [](double value) { return Approx(value).epsilon(1e-10).margin(1e-10); };
      CHECK(sum(x) == near(a(x) + b(x)));
      CHECK(low(x) == near(std::min(a(x), b(x))));
      CHECK(high(x) == near(std::max(a(x), b(x))));
      CHECK(low(x) >= last);
      last = low(x);
    }
  }
}

}  // namespace meshplan::piecewise_linear_test

// SPDX-License-Identifier: Apache-2.0
#include "cost_model/piecewise_linear.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include "lib/check.h"

namespace meshplan {
namespace {

using Point = PiecewiseLinear::Point;

/// Beyond all message sizes: nearly parallel lines may cross wherever they like.
constexpr double kFarAway = 1e60;

/// The sizes at which either function bends, ascending.
std::vector<double> bends(const PiecewiseLinear& a, const PiecewiseLinear& b) {
  std::vector<double> xs;
  xs.reserve(a.points().size() + b.points().size());
  auto p = a.points().begin();
  auto q = b.points().begin();
  while (p != a.points().end() || q != b.points().end()) {
    const bool first = q == b.points().end() || (p != a.points().end() && p->x <= q->x);
    const double x = first ? (p++)->x : (q++)->x;
    if (xs.empty() || x > xs.back()) xs.push_back(x);
  }
  return xs;
}

/// Values at ascending sizes in one pass.
std::vector<double> values_at(const PiecewiseLinear& f, const std::vector<double>& xs) {
  std::vector<double> ys;
  ys.reserve(xs.size());
  const std::vector<Point>& points = f.points();
  std::size_t left = 0;
  for (const double x : xs) {
    while (left + 1 < points.size() && points[left + 1].x <= x) ++left;
    const Point& p = points[left];
    if (left + 1 == points.size()) {
      ys.push_back(p.y + f.slope() * (x - p.x));
    } else {
      const Point& q = points[left + 1];
      ys.push_back(std::min(q.y, p.y + (x - p.x) * ((q.y - p.y) / (q.x - p.x))));
    }
  }
  return ys;
}

/// Values this near are the same but for rounding: algorithms that move the same bytes in another
/// order must not take turns at being the best.
constexpr double kRounding = 1e-13;

/// Leaves out points on the line between their neighbours.
std::vector<Point> without_straight_points(const std::vector<Point>& points, double slope) {
  std::vector<Point> kept;
  kept.reserve(points.size());
  for (std::size_t i = 0; i < points.size(); ++i) {
    if (i > 0) {
      const Point& before = kept.back();
      const Point& here = points[i];
      const double right = i + 1 == points.size()
                               ? slope
                               : (points[i + 1].y - before.y) / (points[i + 1].x - before.x);
      const double straight = before.y + right * (here.x - before.x);
      if (std::abs(here.y - straight) <= kRounding * here.y) continue;
    }
    kept.push_back(points[i]);
  }
  return kept;
}

/// The lower (sign 1) or upper (sign -1) envelope of two functions.
PiecewiseLinear envelope(const PiecewiseLinear& a, const PiecewiseLinear& b, double sign) {
  const std::vector<double> xs = bends(a, b);
  const std::vector<double> as = values_at(a, xs);
  const std::vector<double> bs = values_at(b, xs);
  const auto pick = [&](double u, double v) { return sign > 0 ? std::min(u, v) : std::max(u, v); };
  const auto difference = [&](std::size_t i) {
    const double d = as[i] - bs[i];
    return std::abs(d) <= kRounding * as[i] ? 0.0 : d;
  };
  std::vector<Point> points;
  points.reserve(xs.size() + 2);
  const auto add = [&](double x, double y) {
    if (!points.empty()) {
      if (x <= points.back().x) return;
      y = std::max(y, points.back().y);  // against rounding
    }
    points.push_back({x, y});
  };
  for (std::size_t i = 0; i < xs.size(); ++i) {
    add(xs[i], pick(as[i], bs[i]));
    const double here = difference(i);
    if (i + 1 < xs.size()) {
      const double there = difference(i + 1);
      if ((here < 0) != (there < 0) && here != 0 && there != 0) {
        const double share = here / (here - there);
        const double y = as[i] + share * (as[i + 1] - as[i]);
        const double x = xs[i] + share * (xs[i + 1] - xs[i]);
        if (x < xs[i + 1]) add(x, std::min(y, std::max(as[i + 1], bs[i + 1])));
      }
    } else {
      const double closing = b.slope() - a.slope();  // of `here` towards zero
      if (here != 0 && closing != 0 && here / closing > 0) {
        const double x = xs[i] + here / closing;
        if (x < kFarAway) add(x, as[i] + a.slope() * (x - xs[i]));
      }
    }
  }
  const double slope = pick(a.slope(), b.slope());
  return PiecewiseLinear(without_straight_points(points, slope), slope);
}

}  // namespace

PiecewiseLinear::PiecewiseLinear(double at_zero, double slope)
    : points_{{0.0, at_zero}}, slope_(slope) {
  MESHPLAN_CHECK(at_zero >= 0 && slope >= 0);
}

PiecewiseLinear::PiecewiseLinear(std::vector<Point> points, double slope)
    : points_(std::move(points)), slope_(slope) {
  MESHPLAN_CHECK(!points_.empty() && points_.front().x == 0 && points_.front().y >= 0 &&
                 slope >= 0);
  for (std::size_t i = 1; i < points_.size(); ++i) {
    MESHPLAN_CHECK(points_[i].x > points_[i - 1].x && points_[i].y >= points_[i - 1].y);
  }
}

double PiecewiseLinear::operator()(double x) const {
  const auto right =
      std::upper_bound(points_.begin() + 1, points_.end(), x, [](double value, const Point& p) {
        return value < p.x;
      });
  const Point& p = *(right - 1);
  if (right == points_.end()) return p.y + slope_ * (x - p.x);
  return std::min(right->y, p.y + (x - p.x) * ((right->y - p.y) / (right->x - p.x)));
}

PiecewiseLinear PiecewiseLinear::scaled(double factor, double divisor) const {
  MESHPLAN_CHECK(factor >= 0 && divisor > 0);
  PiecewiseLinear result = *this;
  for (Point& p : result.points_) {
    p.x *= divisor;
    p.y *= factor;
  }
  result.slope_ *= factor / divisor;
  return result;
}

PiecewiseLinear operator+(const PiecewiseLinear& a, const PiecewiseLinear& b) {
  const std::vector<double> xs = bends(a, b);
  const std::vector<double> as = values_at(a, xs);
  const std::vector<double> bs = values_at(b, xs);
  std::vector<Point> points;
  points.reserve(xs.size());
  for (std::size_t i = 0; i < xs.size(); ++i) {
    const double y = as[i] + bs[i];
    points.push_back({xs[i], points.empty() ? y : std::max(y, points.back().y)});
  }
  const double slope = a.slope() + b.slope();
  return PiecewiseLinear(without_straight_points(points, slope), slope);
}

PiecewiseLinear least(const PiecewiseLinear& a, const PiecewiseLinear& b) {
  return envelope(a, b, 1.0);
}

PiecewiseLinear greatest(const PiecewiseLinear& a, const PiecewiseLinear& b) {
  return envelope(a, b, -1.0);
}

}  // namespace meshplan

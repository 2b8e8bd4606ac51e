// SPDX-License-Identifier: Apache-2.0
#include "plan/execution/ops/statistics.h"

#include <cmath>

namespace meshplan {

Var square(Var x) {
  return map(
      x, [](double v) { return v * v; }, [](double v, double) { return 2 * v; });
}

Var absolute(Var x) {
  return map(
      x,
      [](double v) { return std::abs(v); },
      [](double v, double) { return v > 0   ? 1.0
                                    : v < 0 ? -1.0
                                            : 0.0; });
}

Var power(Var x, double p) {
  return map(
      absolute(x),
      [p](double v) { return std::pow(v, p); },
      [p](double v, double) { return p * std::pow(v, p - 1); });
}

Var root(Var x, double p) {
  return map(
      x,
      [p](double v) { return std::pow(v, 1 / p); },
      [p](double v, double) { return std::pow(v, 1 / p - 1) / p; });
}

std::vector<Var> reduced_together(const std::vector<Var>& sums, AxisSet axes, bool spread) {
  for (const Var& sum : sums) {
    if (!sum.valid()) return std::vector<Var>(sums.size());
  }
  if (axes == 0) return sums;
  DeviceTape& tape = *sums[0].tape;
  const Shape shape = sums[0].shape();
  Shape row = shape;
  row.push_back(1);
  std::vector<Var> rows;
  for (const Var& sum : sums) rows.push_back(reshape(sum, row));
  const std::size_t last = shape.size();
  Var packed = all_reduce(concat(rows, last), axes, Reduction::kSum);
  if (spread) packed = tape.vary(packed, axes);
  std::vector<Var> result;
  for (std::size_t i = 0; i < sums.size(); ++i) {
    const auto index = std::make_shared<const std::vector<std::int64_t>>(std::vector<std::int64_t>(
        static_cast<std::size_t>(tape.devices()), static_cast<std::int64_t>(i)));
    result.push_back(reshape(take(packed, last, index), shape));
  }
  return result;
}

}  // namespace meshplan

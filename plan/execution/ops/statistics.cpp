// SPDX-License-Identifier: Apache-2.0
#include "plan/execution/ops/statistics.h"

#include <algorithm>
#include <cmath>

namespace meshplan {
namespace {

using Gradients = std::vector<std::optional<DenseTensor>>;

}  // namespace

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

Var partial_extreme(Var x, const std::vector<std::size_t>& dims, AxisSet axes, bool largest) {
  const Var local = extreme(stop(x), dims, largest);
  if (!local.valid()) return local;
  DeviceTape& tape = *x.tape;
  return tape.step(
      local.value(),
      {x},
      x.varying(),
      [x, local, dims, axes, largest, &tape](const DenseTensor& g) {
        DenseTensor best = local.value();
        if (axes != 0)
          best = tape.all_reduced(best, axes, largest ? Reduction::kMax : Reduction::kMin, true);
        const Var same = map2(stop(x), tape.step(best, x.varying()), [](double a, double b) {
          return a == b ? 1.0 : 0.0;
        });
        DenseTensor count = sum(same, dims).value();
        if (axes != 0) count = tape.all_reduced(count, axes, Reduction::kSum, true);
        const Var share = map2(tape.step(g, x.varying()),
                               tape.step(count, x.varying()),
                               [](double a, double b) { return a / b; });
        return Gradients{(same * share).value()};
      });
}

Var partial_product(Var x, const std::vector<std::size_t>& dims, AxisSet axes) {
  if (!x.valid()) return x;
  DeviceTape& tape = *x.tape;
  // [..., reduced] as rows of one dimension
  std::vector<std::size_t> order;
  for (std::size_t d = 0; d < x.shape().size(); ++d) {
    if (std::find(dims.begin(), dims.end(), d) == dims.end()) order.push_back(d);
  }
  order.insert(order.end(), dims.begin(), dims.end());
  std::int64_t width = 1;
  for (const std::size_t d : dims) width *= x.shape()[d];
  const std::int64_t rows = element_count(x.shape()) / width;
  const Var flat = reshape(permute(x, order), {rows, width});
  DenseTensor product = DenseTensor::filled({tape.devices(), rows, 1}, 1.0);
  const auto n = static_cast<std::size_t>(width);
  for (std::size_t i = 0; i < flat.value().values.size(); ++i)
    product.values[i / n] *= flat.value().values[i];
  const Var result = tape.step(
      product, {flat}, flat.varying(), [flat, product, n, axes, &tape](const DenseTensor& g) {
        // the products of the other shards, one exchange of a number per row
        DenseTensor others = DenseTensor::filled(product.shape, 1.0);
        if (axes != 0) {
          const std::size_t size = product.values.size() / static_cast<std::size_t>(tape.devices());
          for (const std::vector<std::int64_t>& group : tape.groups(axes)) {
            for (const std::int64_t device : group) {
              for (const std::int64_t other : group) {
                for (std::size_t i = 0; i < size && other != device; ++i)
                  others.values[static_cast<std::size_t>(device) * size + i] *=
                      product.values[static_cast<std::size_t>(other) * size + i];
              }
            }
          }
          tape.record({Collective::kAllReduce, axes, true, 1, static_cast<std::int64_t>(size)});
        }
        DenseTensor gradient = DenseTensor::filled(flat.value().shape, 0.0);
        for (std::size_t row = 0; row < product.values.size(); ++row) {
          for (std::size_t i = 0; i < n; ++i) {
            double rest = others.values[row];
            for (std::size_t j = 0; j < n; ++j)
              rest *= j == i ? 1.0 : flat.value().values[row * n + j];
            gradient.values[row * n + i] = g.values[row] * rest;
          }
        }
        return Gradients{std::move(gradient)};
      });
  return result;
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

// SPDX-License-Identifier: Apache-2.0
// Reductions. A sharded sum, maximum, minimum or product leaves each device with what its shard
// gives; where a step that is not linear follows, the shards combine inside.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "plan/execution/ops/meanings.h"
#include "plan/execution/ops/statistics.h"

namespace meshplan {
namespace {

using Results = std::vector<Var>;
using Gradients = std::vector<std::optional<DenseTensor>>;

/// The dimensions that are reduced, the axes that cut them, and how many elements they have.
struct Over {
  std::vector<std::size_t> dims;
  AxisSet axes = 0;
  double count = 1;
};

Over over(const OperatorContext& cx, std::vector<std::size_t> dims) {
  Over result;
  result.axes = cx.operand_axes(0, dims);
  for (const std::size_t d : dims) result.count *= static_cast<double>(cx.operand_shape(0)[d]);
  result.dims = std::move(dims);
  return result;
}

Over reduced_of(const OperatorContext& cx) {
  const auto rank = static_cast<std::int64_t>(cx.operand_shape(0).size());
  std::vector<std::size_t> dims;
  const auto axes = cx.integers("axes");
  if (axes && !axes->empty()) {
    for (const std::int64_t axis : *axes)
      dims.push_back(static_cast<std::size_t>(axis < 0 ? axis + rank : axis));
  } else if (cx.integer("noop_with_empty_axes", 0) == 0) {
    dims.resize(static_cast<std::size_t>(rank));
    std::iota(dims.begin(), dims.end(), std::size_t{0});
  }
  return over(cx, std::move(dims));
}

Over spatial_of(const OperatorContext& cx) {
  std::vector<std::size_t> dims(cx.operand_shape(0).size() - 2);
  std::iota(dims.begin(), dims.end(), std::size_t{2});
  return over(cx, std::move(dims));
}

Results finish(const OperatorContext& cx, Var y) { return {reshape(y, cx.local_result(0))}; }

Var total(const OperatorContext& cx, const Over& o) { return sum(cx.operand(0), o.dims); }

/// The extreme of the shard. The backward finds out the extreme of all shards and how many elements
/// share it: an element has its part of the gradient, whichever shard it is in.
Var partial_extreme(const OperatorContext& cx, const Over& o, bool largest) {
  const Var x = cx.operand(0);
  const Var local = extreme(stop(x), o.dims, largest);
  if (!local.valid()) return local;
  DeviceTape& tape = cx.tape;
  return tape.step(
      local.value(), {x}, x.varying(), [x, local, o, largest, &tape](const DenseTensor& g) {
        DenseTensor best = local.value();
        if (o.axes != 0)
          best = tape.all_reduced(best, o.axes, largest ? Reduction::kMax : Reduction::kMin, true);
        const Var same = map2(stop(x), tape.step(best, x.varying()), [](double a, double b) {
          return a == b ? 1.0 : 0.0;
        });
        DenseTensor count = sum(same, o.dims).value();
        if (o.axes != 0) count = tape.all_reduced(count, o.axes, Reduction::kSum, true);
        const Var share = map2(tape.step(g, x.varying()),
                               tape.step(count, x.varying()),
                               [](double a, double b) { return a / b; });
        return Gradients{(same * share).value()};
      });
}

/// The product of the shard; the gradient of an element is the product of all others.
Var partial_product(const OperatorContext& cx, const Over& o) {
  const Var x = cx.operand(0);
  if (!x.valid()) return x;
  DeviceTape& tape = cx.tape;
  // [..., reduced] as rows of one dimension
  std::vector<std::size_t> order;
  for (std::size_t d = 0; d < x.shape().size(); ++d) {
    if (std::find(o.dims.begin(), o.dims.end(), d) == o.dims.end()) order.push_back(d);
  }
  order.insert(order.end(), o.dims.begin(), o.dims.end());
  std::int64_t width = 1;
  for (const std::size_t d : o.dims) width *= x.shape()[d];
  const std::int64_t rows = element_count(x.shape()) / width;
  const Var flat = reshape(permute(x, order), {rows, width});
  DenseTensor product = DenseTensor::filled({tape.devices(), rows, 1}, 1.0);
  const auto n = static_cast<std::size_t>(width);
  for (std::size_t i = 0; i < flat.value().values.size(); ++i)
    product.values[i / n] *= flat.value().values[i];
  const Var result = tape.step(
      product, {flat}, flat.varying(), [flat, product, n, o, &tape](const DenseTensor& g) {
        // the products of the other shards, one exchange of a number per row
        DenseTensor others = DenseTensor::filled(product.shape, 1.0);
        if (o.axes != 0) {
          const std::size_t size = product.values.size() / static_cast<std::size_t>(tape.devices());
          for (const std::vector<std::int64_t>& group : tape.groups(o.axes)) {
            for (const std::int64_t device : group) {
              for (const std::int64_t other : group) {
                for (std::size_t i = 0; i < size && other != device; ++i)
                  others.values[static_cast<std::size_t>(device) * size + i] *=
                      product.values[static_cast<std::size_t>(other) * size + i];
              }
            }
          }
          tape.record({Collective::kAllReduce, o.axes, true, 1, static_cast<std::int64_t>(size)});
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

Var log_sum_exp(const OperatorContext& cx, const Over& o) {
  const Var largest =
      all_reduce(extreme(stop(cx.operand(0)), o.dims, true), o.axes, Reduction::kMax);
  const Var scaled = sum(exp(cx.operand(0) - largest), o.dims);
  return log(all_reduce(scaled, o.axes, Reduction::kSum)) + largest;
}

Var variance(const OperatorContext& cx, const Over& o) {
  const Var x = cx.operand(0);
  const std::vector<Var> sums = reduced_together({sum(x, o.dims), sum(square(x), o.dims)}, o.axes);
  const Var mean = sums[0] * (1 / o.count);
  const double unbiased = static_cast<double>(cx.integer("correction", 0));
  return (sums[1] - mean * mean * o.count) * (1 / (o.count - unbiased));
}

Results reduce(const OperatorContext& cx) {
  const std::string& type = cx.call.type;
  const bool pool = type.starts_with("Global");
  const Over o = pool ? spatial_of(cx) : reduced_of(cx);
  const Var x = cx.operand(0);
  const auto combined = [&](Var y) { return all_reduce(sum(y, o.dims), o.axes, Reduction::kSum); };
  if (type == "ReduceSum") return finish(cx, total(cx, o));
  if (type == "ReduceMean" || type == "GlobalAveragePool")
    return finish(cx, total(cx, o) * (1 / o.count));
  if (type == "ReduceL1") return finish(cx, sum(absolute(x), o.dims));
  if (type == "ReduceSumSquare") return finish(cx, sum(square(x), o.dims));
  if (type == "ReduceL2") return finish(cx, sqrt(combined(square(x))));
  if (type == "ReduceLogSum") return finish(cx, log(combined(x)));
  if (type == "ReduceLogSumExp") return finish(cx, log_sum_exp(cx, o));
  if (type == "ReduceMax" || type == "GlobalMaxPool")
    return finish(cx, partial_extreme(cx, o, true));
  if (type == "ReduceMin") return finish(cx, partial_extreme(cx, o, false));
  if (type == "ReduceProd") return finish(cx, partial_product(cx, o));
  if (type == "ReduceVariance") return finish(cx, variance(cx, o));
  if (type == "GlobalLpPool") {
    const auto p = static_cast<double>(cx.integer("p", 2));
    return finish(cx, root(combined(power(x, p)), p));
  }
  return {cx.tape.fail("no such reduction")};
}

constexpr MeaningRow kRows[] = {
    {"GlobalAveragePool", reduce},
    {"GlobalLpPool", reduce},
    {"GlobalMaxPool", reduce},
    {"ReduceL1", reduce},
    {"ReduceL2", reduce},
    {"ReduceLogSum", reduce},
    {"ReduceLogSumExp", reduce},
    {"ReduceMax", reduce},
    {"ReduceMean", reduce},
    {"ReduceMin", reduce},
    {"ReduceProd", reduce},
    {"ReduceSum", reduce},
    {"ReduceSumSquare", reduce},
    {"ReduceVariance", reduce},
};

}  // namespace

std::span<const MeaningRow> reduction_meanings() { return kRows; }

}  // namespace meshplan

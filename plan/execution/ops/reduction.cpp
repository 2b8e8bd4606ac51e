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
    return finish(cx, partial_extreme(x, o.dims, o.axes, true));
  if (type == "ReduceMin") return finish(cx, partial_extreme(x, o.dims, o.axes, false));
  if (type == "ReduceProd") return finish(cx, partial_product(x, o.dims, o.axes));
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

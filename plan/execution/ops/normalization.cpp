// SPDX-License-Identifier: Apache-2.0
// Normalisations and softmax: statistics over sharded dimensions are all-reduced, forward and
// backward; what belongs together travels together.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "plan/execution/ops/meanings.h"
#include "plan/execution/ops/statistics.h"

namespace meshplan {
namespace {

using Results = std::vector<Var>;

/// Mean and variance over `dims` of x, which `axes` cut into shards of `count` elements in all.
/// `shared` are the same on all devices, `spread` are to be combined with x.
struct Moments {
  Var mean, variance;
  Var shared_mean, shared_variance;
};

Moments moments(Var x, const std::vector<std::size_t>& dims, AxisSet axes, double count) {
  const std::vector<Var> terms = {sum(x, dims), sum(square(x), dims)};
  Moments m;
  if (!terms[0].valid() || !terms[1].valid()) return m;
  // one exchange; its sums are used in two ways
  DeviceTape& tape = *x.tape;
  const std::vector<Var> shared = reduced_together(terms, axes);
  m.shared_mean = shared[0] * (1 / count);
  m.shared_variance = shared[1] * (1 / count) - m.shared_mean * m.shared_mean;
  if (axes == 0 || !shared[0].valid()) {
    m.mean = m.shared_mean;
    m.variance = m.shared_variance;
    return m;
  }
  Shape row = shared[0].shape();
  const std::size_t last = row.size();
  row.push_back(1);
  const Var packed =
      tape.vary(concat({reshape(m.shared_mean, row), reshape(m.shared_variance, row)}, last), axes);
  const auto part = [&](std::int64_t at) {
    return reshape(take(packed,
                        last,
                        std::make_shared<const std::vector<std::int64_t>>(std::vector<std::int64_t>(
                            static_cast<std::size_t>(tape.devices()), at))),
                   m.shared_mean.shape());
  };
  m.mean = part(0);
  m.variance = part(1);
  return m;
}

double elements_of(const OperatorContext& cx, const std::vector<std::size_t>& dims) {
  double count = 1;
  for (const std::size_t d : dims) count *= static_cast<double>(cx.operand_shape(0)[d]);
  return count;
}

Var inverse_deviation(Var variance, double epsilon) { return reciprocal(sqrt(variance + epsilon)); }

std::vector<std::size_t> dims_from(std::size_t first, std::size_t rank) {
  std::vector<std::size_t> dims(rank - first);
  std::iota(dims.begin(), dims.end(), first);
  return dims;
}

Results layer_norm(const OperatorContext& cx) {
  const std::size_t rank = cx.operand_shape(0).size();
  const std::vector<std::size_t> dims = dims_from(cx.axis(-1, rank), rank);
  const double epsilon = cx.number("epsilon", 1e-5);
  const Moments m = moments(cx.operand(0), dims, cx.operand_axes(0, dims), elements_of(cx, dims));
  Var y = (cx.operand(0) - m.mean) * inverse_deviation(m.variance, epsilon) * cx.operand(1);
  if (cx.has(2)) y = y + cx.operand(2);
  return {y, m.shared_mean, inverse_deviation(m.shared_variance, epsilon)};
}

Results rms_norm(const OperatorContext& cx) {
  const std::size_t rank = cx.operand_shape(0).size();
  const std::vector<std::size_t> dims = dims_from(cx.axis(-1, rank), rank);
  const Var squares =
      all_reduce(sum(square(cx.operand(0)), dims), cx.operand_axes(0, dims), Reduction::kSum);
  const Var scale =
      inverse_deviation(squares * (1 / elements_of(cx, dims)), cx.number("epsilon", 1e-5));
  return {cx.operand(0) * scale * cx.operand(1)};
}

/// x [b, c, ...] with per-channel parameters [c].
Var per_channel(Var parameter, std::size_t rank) {
  if (!parameter.valid()) return parameter;
  Shape shape = parameter.shape();
  shape.resize(rank - 1, 1);
  return reshape(parameter, shape);
}

/// The channels of a group are the minor factor of dimension 1: a device has whole groups, or parts
/// of one.
Results group_norm(const OperatorContext& cx) {
  const Var x = cx.operand(0);
  const Shape whole = cx.operand_shape(0);
  const std::int64_t groups = cx.integer("num_groups", 1);
  const std::int64_t channels = whole[1] / groups;
  Shape split = x.shape();
  const std::int64_t own = std::max<std::int64_t>(split[1] / channels, 1);
  split[1] /= own;
  split.insert(split.begin() + 1, own);
  // axes that cut groups are parallel; those within a group share its statistics
  AxisSet axes = 0;
  std::int64_t left = groups;
  for (std::size_t a = 0; a < cx.info.mesh_shape().size(); ++a) {
    if ((cx.operand_axes(0, 1) >> a & 1U) == 0) continue;
    if (left == 1) axes |= AxisSet{1} << a;
    left = std::max<std::int64_t>(left / cx.info.mesh_shape()[a], 1);
  }
  axes |= cx.operand_axes(0, dims_from(2, whole.size()));
  const Var grouped = reshape(x, split);
  const std::vector<std::size_t> dims = dims_from(2, split.size());
  double count = static_cast<double>(channels);
  for (std::size_t d = 2; d < whole.size(); ++d) count *= static_cast<double>(whole[d]);
  const Moments m = moments(grouped, dims, axes, count);
  const Var normal = (grouped - m.mean) * inverse_deviation(m.variance, cx.number("epsilon", 1e-5));
  const bool per_group = cx.operand_shape(1)[0] != whole[1];
  const auto scaled = [&](Var y) {
    if (per_group)
      return y * per_channel(cx.operand(1), split.size()) +
             per_channel(cx.operand(2), split.size());
    return y;
  };
  Var y = reshape(scaled(normal), x.shape());
  if (!per_group)
    y = y * per_channel(cx.operand(1), whole.size()) + per_channel(cx.operand(2), whole.size());
  return {y};
}

Results instance_norm(const OperatorContext& cx) {
  const std::size_t rank = cx.operand_shape(0).size();
  const std::vector<std::size_t> dims = dims_from(2, rank);
  const Moments m = moments(cx.operand(0), dims, cx.operand_axes(0, dims), elements_of(cx, dims));
  return {(cx.operand(0) - m.mean) * inverse_deviation(m.variance, cx.number("epsilon", 1e-5)) *
              per_channel(cx.operand(1), rank) +
          per_channel(cx.operand(2), rank)};
}

/// In training over batch and space, and the running statistics follow; without `sync` each device
/// takes those of its shard.
Results batch_norm(const OperatorContext& cx) {
  const std::size_t rank = cx.operand_shape(0).size();
  const double epsilon = cx.number("epsilon", 1e-5);
  const auto apply = [&](Var mean, Var variance) {
    return (cx.operand(0) - mean) * inverse_deviation(variance, epsilon) *
               per_channel(cx.operand(1), rank) +
           per_channel(cx.operand(2), rank);
  };
  if (cx.integer("training_mode", 0) == 0)
    return {apply(per_channel(cx.operand(3), rank), per_channel(cx.operand(4), rank))};
  std::vector<std::size_t> dims = dims_from(2, rank);
  dims.insert(dims.begin(), 0);
  const bool sync = cx.integer("sync", 1) != 0;
  const AxisSet axes = cx.operand_axes(0, dims);
  double count = elements_of(cx, dims);
  if (!sync) count /= static_cast<double>(cx.tape.group_size(axes));
  const Moments m = moments(cx.operand(0), dims, sync ? axes : 0, count);
  const double momentum = cx.number("momentum", 0.9);
  const auto running = [&](Var old, Var now) {
    if (!now.valid()) return now;
    return stop(old) * momentum + stop(reshape(now, old.shape())) * (1 - momentum);
  };
  return {apply(m.mean, m.variance),
          running(cx.operand(3), m.shared_mean),
          running(cx.operand(4), m.shared_variance)};
}

Results lp_norm(const OperatorContext& cx) {
  const std::size_t axis = cx.axis(-1, cx.operand_shape(0).size());
  const auto p = static_cast<double>(cx.integer("p", 2));
  const Var norm = root(
      all_reduce(sum(power(cx.operand(0), p), {axis}), cx.operand_axes(0, axis), Reduction::kSum),
      p);
  return {cx.operand(0) / norm};
}

Results mean_variance_norm(const OperatorContext& cx) {
  const auto rank = static_cast<std::int64_t>(cx.operand_shape(0).size());
  std::vector<std::size_t> dims;
  for (const std::int64_t axis : cx.integers("axes").value_or(std::vector<std::int64_t>{0, 2, 3}))
    dims.push_back(static_cast<std::size_t>(axis < 0 ? axis + rank : axis));
  const Moments m = moments(cx.operand(0), dims, cx.operand_axes(0, dims), elements_of(cx, dims));
  return {(cx.operand(0) - m.mean) / (sqrt(m.variance) + 1e-9)};
}

Results softmax(const OperatorContext& cx) {
  const std::size_t axis = cx.axis(-1, cx.operand_shape(0).size());
  const AxisSet axes = cx.operand_axes(0, axis);
  const Var x = cx.operand(0);
  const Var largest = all_reduce(extreme(stop(x), {axis}, true), axes, Reduction::kMax);
  const Var scaled = exp(x - largest);
  const Var total = all_reduce(sum(scaled, {axis}), axes, Reduction::kSum);
  if (cx.call.type == "LogSoftmax") return {x - largest - log(total)};
  return {scaled / total};
}

constexpr MeaningRow kRows[] = {
    {"BatchNormalization", batch_norm},
    {"GroupNormalization", group_norm},
    {"InstanceNormalization", instance_norm},
    {"LayerNormalization", layer_norm},
    {"LogSoftmax", softmax},
    {"LpNormalization", lp_norm},
    {"MeanVarianceNormalization", mean_variance_norm},
    {"RMSNormalization", rms_norm},
    {"Softmax", softmax},
};

}  // namespace

std::span<const MeaningRow> normalization_meanings() { return kRows; }

}  // namespace meshplan

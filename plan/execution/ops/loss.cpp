// SPDX-License-Identifier: Apache-2.0
// Losses over a dimension of classes. A shard of the classes finds the labels that are its own; the
// mean divides by the number (or weight) of the labels that count, over all shards: it comes with
// the batch, so it is no collective of the step.
#include "plan/execution/ops/meanings.h"

namespace meshplan {
namespace {

using Results = std::vector<Var>;

Results loss(const OperatorContext& cx) {
  const bool softmax = cx.call.type == "SoftmaxCrossEntropyLoss";
  const Var x = cx.operand(0);
  const std::size_t rank = cx.operand_shape(0).size();
  const std::size_t axis = cx.axis(1, rank);
  const AxisSet axes = cx.operand_axes(0, axis);
  Shape rows = x.shape();
  rows[axis] = 1;
  const Var labels = reshape(cx.operand(1), rows);
  const Var own = map2(labels, cx.operand_positions(0, axis, rank), [](double label, double v) {
    return label == v ? 1.0 : 0.0;
  });
  const Var nothing = full(cx.tape, {}, 0);
  Var log_sum = nothing;
  if (softmax) {
    const Var largest = all_reduce(extreme(stop(x), {axis}, true), axes, Reduction::kMax);
    log_sum = log(all_reduce(sum(exp(x - largest), {axis}), axes, Reduction::kSum)) + largest;
  }
  const Var score = all_reduce(sum(where(own, x, nothing), {axis}), axes, Reduction::kSum);
  Var weight = full(cx.tape, {}, 1);
  if (cx.has(2)) {
    Shape classes(rank, 1);
    classes[axis] = cx.operand(2).shape().empty() ? 1 : cx.operand(2).shape()[0];
    const Var of_classes = reshape(stop(cx.operand(2)), classes);
    weight = all_reduce(sum(where(own, of_classes, nothing), {axis}), axes, Reduction::kSum);
  }
  const bool ignores = cx.has_attribute("ignore_index");
  if (ignores) {
    const auto ignored = static_cast<double>(cx.integer("ignore_index", 0));
    weight = weight * map(labels, [ignored](double label) { return label == ignored ? 0.0 : 1.0; });
  }
  const Var each = (log_sum - score) * weight;
  Results results;
  if (const std::string reduction = cx.text("reduction", "mean"); reduction == "none") {
    results.push_back(reshape(each, cx.local_result(0)));
  } else {
    std::vector<std::size_t> tokens;
    AxisSet token_axes = 0;
    double count = 1;
    for (std::size_t d = 0; d < rank; ++d) {
      if (d == axis) continue;
      tokens.push_back(d);
      token_axes |= cx.operand_axes(0, d);
      count *= static_cast<double>(cx.operand_shape(0)[d]);
    }
    Var total = reshape(sum(each, tokens), {});
    if (reduction == "mean" && (ignores || cx.has(2)) && total.valid()) {
      const Var local = reshape(sum(stop(broadcast(weight, rows)), tokens), {});
      if (!local.valid()) return {local};
      total = total / cx.tape.step(cx.tape.combined(local.value(), token_axes, Reduction::kSum),
                                   local.varying() & ~token_axes);
    } else if (reduction == "mean") {
      total = total * (1 / count);
    }
    results.push_back(total);
  }
  if (softmax && cx.result_count() > 1) results.push_back(x - log_sum);
  return results;
}

constexpr MeaningRow kRows[] = {
    {"NegativeLogLikelihoodLoss", loss},
    {"SoftmaxCrossEntropyLoss", loss},
};

}  // namespace

std::span<const MeaningRow> loss_meanings() { return kRows; }

}  // namespace meshplan

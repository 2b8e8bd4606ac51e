// SPDX-License-Identifier: Apache-2.0
// Operators with statistics over dimensions that the result keeps: normalisations, softmax.
#include <algorithm>

#include "graph/ops/ops.h"

namespace meshplan {
namespace {

/// Binds the text; `forward` and `backward` all-reduces of `values` numbers per row where the
/// statistics are sharded.
Result<Rule> with_statistics(
    const OperatorSpec& spec, const RuleText& text, int forward, int backward, int values = 1) {
  auto rule = text.bind(spec);
  if (!rule) return rule;
  rule->statistic_forward = forward;
  rule->statistic_backward = backward;
  rule->statistic_values = values;
  return rule;
}

/// [batch, channels, ...]
Result<std::size_t> rank_with_channels(const OperatorSpec& spec) {
  auto x = operand_shape(spec, 0);
  if (!x) return fail(x.error());
  if (x->size() < 2)
    return wrong(spec.type + " takes an operand of shape [batch, channels, ...], got " +
                 shape_text(*x));
  return x->size() - 2;
}

/// Statistics over the dimensions from `axis` on; the scale, and the bias if there is one, have
/// their shape. Mean and standard deviation (or what stands for them) are exchanged together.
Result<Rule> normalize_last(const OperatorSpec& spec, bool bias, int most_results) {
  auto axis = axis_attribute(spec, -1);
  if (!axis) return fail(axis.error());
  const std::size_t count = spec.inputs[0]->shape.size() - *axis;
  const std::string kept = factor_list("x", *axis);
  const std::string reduced = factor_list("r", count);
  RuleText text;
  text.operand(kept + reduced).operand(reduced).result(kept + reduced).modifier("saves:x,y");
  if (bias) text.operand(reduced + "?");
  for (std::size_t i = 0; i < count; ++i) text.mark("stat", "r" + std::to_string(i));
  std::string statistic = kept;
  for (std::size_t i = 0; i < count; ++i) statistic += " .";
  for (int i = 1; i < std::min(spec.output_count, most_results); ++i) text.result(statistic);
  return with_statistics(spec, text, 1, 1, bias ? 2 : 1);
}

}  // namespace

/// LayerNormalization: further results, the mean and the inverse of the standard deviation.
Result<Rule> make_layer_normalization(const OperatorSpec& spec) {
  return normalize_last(spec, true, 3);
}
Result<Rule> make_rms_normalization(const OperatorSpec& spec) {
  return normalize_last(spec, false, 1);
}

/// Softmax, LogSoftmax: the maximum and the sum of exponentials; one sum in the backward.
Result<Rule> make_softmax(const OperatorSpec& spec) {
  auto axis = axis_attribute(spec, -1);
  if (!axis) return fail(axis.error());
  const std::string dims = factor_list("x", spec.inputs[0]->shape.size());
  RuleText text;
  text.operand(dims).result(dims).mark("stat", "x" + std::to_string(*axis)).modifier("saves:out");
  return with_statistics(spec, text, 2, 1);
}

/// LpNormalization: x over its norm along `axis`.
Result<Rule> make_lp_normalization(const OperatorSpec& spec) {
  auto axis = axis_attribute(spec, -1);
  if (!axis) return fail(axis.error());
  const std::string dims = factor_list("x", spec.inputs[0]->shape.size());
  RuleText text;
  text.operand(dims).result(dims).mark("stat", "x" + std::to_string(*axis)).modifier("saves:x");
  return with_statistics(spec, text, 1, 1);
}

/// MeanVarianceNormalization over `axes` (batch and space of images).
Result<Rule> make_mean_variance_normalization(const OperatorSpec& spec) {
  auto x = operand_shape(spec, 0);
  if (!x) return fail(x.error());
  auto axes = axes_attribute(spec, x->size());
  if (!axes) return fail(axes.error());
  if (!*axes && x->size() < 4)
    return fail(ErrorCode::kMissing, "", "attribute \"axes\" is missing");
  const std::string dims = factor_list("x", x->size());
  RuleText text;
  text.operand(dims).result(dims).modifier("saves:x");
  for (std::size_t d = 0; d < x->size(); ++d) {
    if (*axes ? (**axes)[d] : d == 0 || d == 2 || d == 3)
      text.mark("stat", "x" + std::to_string(d));
  }
  return with_statistics(spec, text, 1, 1, 2);
}

/// GroupNormalization: groups are parallel, the channels of a group share statistics. Scale and
/// bias are per channel (opset 21), or per group (opset 18).
Result<Rule> make_group_normalization(const OperatorSpec& spec) {
  auto rank = rank_with_channels(spec);
  if (!rank) return fail(rank.error());
  const std::int64_t channels = spec.inputs[0]->shape[1];
  auto groups = required_size(spec, "num_groups");
  if (!groups) return fail(groups.error());
  if (channels % *groups != 0)
    return wrong("attribute \"num_groups\" is " + std::to_string(*groups) +
                 ", but it must divide the " + std::to_string(channels) + " channels");
  auto scale = operand_shape(spec, 1);
  if (!scale) return fail(scale.error());
  const bool per_group = *scale == Shape{*groups} && *groups != channels;
  const std::string dims = "b (g c)" + factor_list("s", *rank);
  const std::string parameters = per_group ? "g" : "(g c)";
  RuleText text;
  text.operand(dims).operand(parameters).operand(parameters).result(dims).size("g", *groups);
  text.mark("stat", "c").modifier("saves:x,y");
  for (std::size_t i = 0; i < *rank; ++i) text.mark("stat", "s" + std::to_string(i));
  return with_statistics(spec, text, 1, 1, 2);
}

Result<Rule> make_instance_normalization(const OperatorSpec& spec) {
  auto rank = rank_with_channels(spec);
  if (!rank) return fail(rank.error());
  const std::string dims = "b c" + factor_list("s", *rank);
  RuleText text;
  text.operand(dims).operand("c").operand("c").result(dims).modifier("saves:x,y");
  for (std::size_t i = 0; i < *rank; ++i) text.mark("stat", "s" + std::to_string(i));
  return with_statistics(spec, text, 1, 1, 2);
}

/// BatchNormalization: in training (`training_mode`) statistics over batch and space, and the
/// running ones as further results; without `sync` each device uses its own and exchanges nothing.
/// In inference it scales by the running statistics.
Result<Rule> make_batch_normalization(const OperatorSpec& spec) {
  auto rank = rank_with_channels(spec);
  if (!rank) return fail(rank.error());
  auto training = integer_attribute(spec, "training_mode", 0);
  if (!training) return fail(training.error());
  auto sync = integer_attribute(spec, "sync", 1);
  if (!sync) return fail(sync.error());
  const std::string dims = "b c" + factor_list("s", *rank);
  RuleText text;
  text.operand(dims).operand("c").operand("c").operand("c").operand("c").result(dims);
  if (*training == 0) return text.modifier("saves:x,y,3,4").bind(spec);
  text.mark("stat", "b").modifier("saves:x,y");
  for (std::size_t i = 0; i < *rank; ++i) text.mark("stat", "s" + std::to_string(i));
  if (spec.output_count > 1) text.result("c").result("c");
  const int exchanged = *sync != 0 ? 1 : 0;
  return with_statistics(spec, text, exchanged, exchanged, 2);
}

}  // namespace meshplan

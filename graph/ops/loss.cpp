// SPDX-License-Identifier: Apache-2.0
// Losses over a dimension of classes. The mean is a sum over tokens, each divided by the global
// number (or weight) of the labels that count.
#include "graph/ops/ops.h"

namespace meshplan {
namespace {

struct Loss {
  std::string saves;
  int statistics = 0;  ///< exchanged forward; the backward of the loss has all it needs
  Workspace workspace;
  bool log_probabilities = false;  ///< may be asked for as a second result
};

/// Scores, labels (the scores' shape without the class dimension), and per-class weights. The class
/// dimension is 1 as in ONNX, or `axis`.
Result<Rule> loss(const OperatorSpec& spec, const Loss& how) {
  auto scores = operand_shape(spec, 0);
  if (!scores) return fail(scores.error());
  auto axis = axis_attribute(spec, 1);
  if (!axis) return fail(axis.error());
  auto reduction = choice_attribute(spec, "reduction", "mean", {"mean", "sum", "none"});
  if (!reduction) return fail(reduction.error());
  RuleText text;
  std::string tokens, all;
  for (std::size_t d = 0; d < scores->size(); ++d) {
    const std::string name = d == *axis ? "v" : "t" + std::to_string(d);
    all += " " + name;
    if (d == *axis) continue;
    tokens += " " + name;
    if (*reduction != "none") text.mark("sum", name);
  }
  text.operand(all).operand(tokens).operand("v?").mark("stat", "v");
  text.result(*reduction == "none" ? tokens : "");
  if (how.log_probabilities && spec.output_count == 2) text.result(all);
  auto rule = text.modifier("saves:" + how.saves + (has_operand(spec, 2) ? ",z" : "")).bind(spec);
  if (!rule) return rule;
  rule->statistic_forward = how.statistics + (has_operand(spec, 2) ? 1 : 0);  // the label's weight
  // the gradient of the log-probabilities is summed over the classes
  rule->statistic_backward = rule->results.size() > 1 ? 1 : 0;
  rule->workspace = how.workspace;
  return rule;
}

}  // namespace

/// Maximum, sum of exponentials and the label's score are exchanged.
///
/// Buffers are those of PyTorch's cross_entropy, one kernel per step (log_softmax, nll_loss):
/// forward the scores in fp32 and their log-probabilities, which alone are kept; backward these,
/// the gradient by them and the gradient by the scores in fp32. Over sharded classes (the
/// loss_parallel of DTensor) the shifted scores forward and the probabilities backward are arrays
/// of their own. `fused`: one kernel each way (flash-attn, Liger) keeps the scores as they are and
/// a number per row.
Result<Rule> make_cross_entropy(const OperatorSpec& spec) {
  auto fused = integer_attribute(spec, "fused", 0);
  if (!fused) return fail(fused.error());
  if (*fused != 0) return loss(spec, {"x,y", 3, {}, true});
  constexpr int kArray = 4;  // fp32
  const bool upcast = has_operand(spec, 0) && dtype_bytes(spec.inputs[0]->dtype) < kArray;
  // scores in fp32 already need no copy, and their gradient is the operator's result
  const int copies = upcast ? 1 : 0;
  return loss(spec, {"y", 3, {(1 + copies) * kArray, kArray, (2 + copies) * kArray, kArray}, true});
}

/// Picks the label's log-probability: its gradient needs the labels alone.
Result<Rule> make_negative_log_likelihood(const OperatorSpec& spec) {
  return loss(spec, {"y", 1, {}, false});
}

}  // namespace meshplan

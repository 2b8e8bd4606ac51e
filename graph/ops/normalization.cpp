// SPDX-License-Identifier: Apache-2.0
// Operators with statistics over a dimension: normalisations, softmax, cross-entropy.
#include "graph/ops/ops.h"

namespace meshplan {

/// LayerNormalization and RMSNormalization: statistics over the dimensions from `axis` on.
Result<Rule> make_layer_normalization(const OperatorSpec& spec) {
  auto x = operand_shape(spec, 0);
  if (!x) return fail(x.error());
  auto attribute = integer_attribute(spec, "axis", -1);
  if (!attribute) return fail(attribute.error());
  auto axis = dimension_number(*attribute, x->size(), "axis");
  if (!axis) return fail(axis.error());
  const std::string kept = factor_list("x", *axis);
  const std::string reduced = factor_list("r", x->size() - *axis);
  auto rule = rule_from_text(
      spec,
      kept + reduced + "," + reduced + "," + reduced + "? ->" + kept + reduced + " ; stat:" +
          [&] {
            std::string list;
            for (std::size_t i = 0; i < x->size() - *axis; ++i)
              list += (i > 0 ? ",r" : "r") + std::to_string(i);
            return list;
          }() +
          " saves:x");
  if (!rule) return rule;
  rule->statistic_forward = 1;
  rule->statistic_backward = 1;
  return rule;
}

Result<Rule> make_softmax(const OperatorSpec& spec) {
  auto x = operand_shape(spec, 0);
  if (!x) return fail(x.error());
  auto attribute = integer_attribute(spec, "axis", -1);
  if (!attribute) return fail(attribute.error());
  auto axis = dimension_number(*attribute, x->size(), "axis");
  if (!axis) return fail(axis.error());
  const std::string dims = factor_list("x", x->size());
  auto rule = rule_from_text(
      spec, dims + " ->" + dims + " ; stat:x" + std::to_string(*axis) + " saves:out");
  if (!rule) return rule;
  rule->statistic_forward = 2;
  rule->statistic_backward = 1;
  return rule;
}

/// SoftmaxCrossEntropyLoss: scores, labels (the scores' shape without the class dimension), and
/// per-class weights. The class dimension is 1 as in ONNX, or `axis`.
Result<Rule> make_cross_entropy(const OperatorSpec& spec) {
  auto scores = operand_shape(spec, 0);
  if (!scores) return fail(scores.error());
  auto attribute = integer_attribute(spec, "axis", 1);
  if (!attribute) return fail(attribute.error());
  auto axis = dimension_number(*attribute, scores->size(), "axis");
  if (!axis) return fail(axis.error());
  auto reduction = text_attribute(spec, "reduction", "mean");
  if (!reduction) return fail(reduction.error());
  if (*reduction != "mean" && *reduction != "sum" && *reduction != "none") {
    return fail(ErrorCode::kValue,
                "",
                "attribute \"reduction\" is \"" + *reduction +
                    "\", expected \"mean\", \"sum\" or \"none\"");
  }
  std::string tokens, all, sum;
  for (std::size_t d = 0; d < scores->size(); ++d) {
    const std::string name = d == *axis ? "v" : "t" + std::to_string(d);
    all += " " + name;
    if (d == *axis) continue;
    tokens += " " + name;
    sum += (sum.empty() ? "" : ",") + name;
  }
  std::string text = all + "," + tokens + ", v? ->";
  if (*reduction == "none") {
    text += tokens + " ; stat:v saves:x,y";
  } else {
    text += " ; stat:v saves:x,y";
    if (!sum.empty()) text += " sum:" + sum;
  }
  auto rule = rule_from_text(spec, text);
  if (!rule) return rule;
  rule->statistic_forward = 3;
  rule->workspace_bytes = 4;  // the softmax in fp32
  return rule;
}

}  // namespace meshplan

// SPDX-License-Identifier: Apache-2.0
// Mixture of experts: tokens to their experts' slots, products per expert, and back.
//
// Tokens t = (g s): attribute `groups` (1) groups of s tokens. Every expert has c slots per group,
// ceil(capacity_factor * s * top_k / experts), at most s; a token that finds no slot left in its
// group is dropped. Slots are filled in token order, so no sharding changes which.
#include <algorithm>
#include <cmath>

#include "graph/ops/ops.h"

namespace meshplan {
namespace {

Result<std::int64_t> groups_of(const OperatorSpec& spec, std::int64_t tokens) {
  auto groups = integer_attribute(spec, "groups", 1);
  if (!groups) return groups;
  if (*groups < 1 || tokens % *groups != 0)
    return wrong("attribute \"groups\" is " + std::to_string(*groups) +
                 ", but it must divide the " + std::to_string(tokens) + " tokens");
  return groups;
}

/// [tokens, top_k] of operand 1, checked against the attribute.
Result<Shape> choices_of(const OperatorSpec& spec) {
  auto choices = operand_shape(spec, 1);
  if (!choices) return choices;
  if (choices->size() != 2)
    return wrong("operand 1 of shape " + shape_text(*choices) + " must be [tokens, top_k]");
  auto top_k = integer_attribute(spec, "top_k", (*choices)[1]);
  if (!top_k) return fail(top_k.error());
  if (*top_k != (*choices)[1])
    return wrong("attribute \"top_k\" is " + std::to_string(*top_k) + ", but operand 1 has shape " +
                 shape_text(*choices));
  return choices;
}

}  // namespace

/// MoEDispatch: tokens [t, d] and the experts of each [t, top_k] -> slots [experts, g*c, d].
/// Attributes `num_experts`, `capacity_factor` (1), `groups`, `top_k`.
Result<Rule> make_moe_dispatch(const OperatorSpec& spec) {
  auto x = operand_shape(spec, 0);
  if (!x) return fail(x.error());
  if (x->size() != 2)
    return wrong("operand 0 of shape " + shape_text(*x) + " must be [tokens, width]");
  auto choices = choices_of(spec);
  if (!choices) return fail(choices.error());
  auto experts = required_size(spec, "num_experts");
  if (!experts) return fail(experts.error());
  auto groups = groups_of(spec, (*x)[0]);
  if (!groups) return fail(groups.error());
  auto factor = number_attribute(spec, "capacity_factor", 1);
  if (!factor) return fail(factor.error());
  if (!(*factor > 0 && std::isfinite(*factor)))
    return wrong("attribute \"capacity_factor\" must be a number above 0");
  const std::int64_t tokens = (*x)[0] / *groups;
  const double slots =
      std::ceil(*factor * static_cast<double>(tokens) * static_cast<double>((*choices)[1]) /
                static_cast<double>(*experts));
  const auto capacity = std::max<std::int64_t>(
      slots < static_cast<double>(tokens) ? static_cast<std::int64_t>(slots) : tokens, 1);
  return rule_from_text(spec,
                        "(g s) d, (g s) . -> e (g c) d ; whole:s route:g=e route:s=e lin:x saves:y "
                        "flops:0",
                        {{"g", *groups}, {"e", *experts}, {"c", capacity}});
}

/// MoECombine: slots, the experts of each token, and their weights (all 1 where omitted) -> tokens.
Result<Rule> make_moe_combine(const OperatorSpec& spec) {
  auto y = operand_shape(spec, 0);
  if (!y) return fail(y.error());
  if (y->size() != 3)
    return wrong("operand 0 of shape " + shape_text(*y) + " must be [experts, slots, width]");
  auto choices = choices_of(spec);
  if (!choices) return fail(choices.error());
  auto groups = groups_of(spec, (*choices)[0]);
  if (!groups) return fail(groups.error());
  if ((*y)[1] % *groups != 0)
    return wrong("attribute \"groups\" is " + std::to_string(*groups) +
                 ", but it must divide the " + std::to_string((*y)[1]) + " slots of operand 0");
  const bool weights = has_operand(spec, 2);
  if (weights && spec.inputs[2]->shape != *choices)
    return wrong("operand 2 of shape " + shape_text(spec.inputs[2]->shape) +
                 " must have operand 1's shape " + shape_text(*choices));
  RuleText text;
  text.operand("e (g c) d").operand("(g s) .");
  text.operand(weights ? "(g s) ." : "(g s) .?");
  return text.result("(g s) d")
      .mark("sum", "e")
      .mark("sum", "c")
      .mark("whole", "s")
      .modifier("route:g=e route:s=e")
      .modifier(weights ? "lin:x|z saves:x,y,z" : "lin:x saves:y")
      .modifier("flops:2*g*s*d*" + std::to_string((*choices)[1]))
      .size("g", *groups)
      .size("s", (*choices)[0] / *groups)
      .bind(spec);
}

/// GroupedMatMul: one product per expert.
Result<Rule> make_grouped_matmul(const OperatorSpec& spec) {
  auto transpose = integer_attribute(spec, "transpose_b", 0);
  if (!transpose) return fail(transpose.error());
  return rule_from_text(spec,
                        std::string("e c d, ") + (*transpose != 0 ? "e f d" : "e d f") +
                            " -> e c f ; sum:d lin:x|y saves:x,y flops:2*e*c*d*f");
}

}  // namespace meshplan

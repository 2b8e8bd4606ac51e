// SPDX-License-Identifier: Apache-2.0
// Scaled dot-product attention with grouped heads, and rotary position embedding.
#include "graph/ops/ops.h"

namespace meshplan {

Result<Rule> make_attention(const OperatorSpec& spec) {
  auto q = operand_shape(spec, 0);
  if (!q) return fail(q.error());
  auto k = operand_shape(spec, 1);
  if (!k) return fail(k.error());
  auto v = operand_shape(spec, 2);
  if (!v) return fail(v.error());
  if (q->size() != 4 || k->size() != 4 || v->size() != 4) {
    return fail(ErrorCode::kUnsupported,
                "",
                "Attention takes q, k and v of shape [batch, heads, sequence, head size]");
  }
  if ((*q)[1] % (*k)[1] != 0) {
    return fail(ErrorCode::kValue,
                "",
                "Attention: the " + std::to_string((*q)[1]) +
                    " query heads are no multiple of the " + std::to_string((*k)[1]) +
                    " key heads");
  }
  auto causal = integer_attribute(spec, "is_causal", 0);
  if (!causal) return fail(causal.error());
  std::string text = "b (g q) s e, b g t e, b g t f";
  if (spec.inputs.size() > 3 && spec.inputs[3]) {
    // every device needs whole rows of the mask: its last dimension is private
    const std::size_t rank = spec.inputs[3]->shape.size();
    if (rank < 2 || rank > 4)
      return fail(
          ErrorCode::kValue,
          "",
          "Attention: the mask has " + std::to_string(rank) + " dimensions, expected 2 to 4");
    text += rank == 4 ? ", ~b ~(g q) ~s ." : rank == 3 ? ", ~(g q) ~s ." : ", ~s .";
  }
  if (spec.inputs.size() > 4)
    return fail(
        ErrorCode::kUnsupported, "", "Attention with past keys and values is not supported");
  text += " -> b (g q) s f ; ring:t=s whole:e,f saves:x,y,z,out flops:2*b*g*q*s*t*(e+f)";
  auto rule = rule_from_text(spec, text, {{"g", (*k)[1]}, {"q", (*q)[1] / (*k)[1]}});
  if (!rule) return rule;
  rule->backward_factor = 2.5;
  rule->flops_scale = *causal != 0 ? 0.5 : 1.0;
  return rule;
}

Result<Rule> make_rotary_embedding(const OperatorSpec& spec) {
  auto x = operand_shape(spec, 0);
  if (!x) return fail(x.error());
  auto cache = operand_shape(spec, 1);
  if (!cache) return fail(cache.error());
  if (x->size() != 4)
    return fail(ErrorCode::kUnsupported,
                "",
                "RotaryEmbedding takes x of shape [batch, heads, sequence, head size]");
  const bool positions = spec.inputs.size() > 3 && spec.inputs[3];
  std::string text = positions            ? "b h s d, p e, p e, b s"
                     : cache->size() == 3 ? "b h s d, b s e, b s e"
                                          : "b h s d, s e, s e";
  text += " -> b h s d ; whole:d,e";
  if (positions) text += ",p";
  return rule_from_text(spec, text + " lin:x saves:none");
}

}  // namespace meshplan

// SPDX-License-Identifier: Apache-2.0
// Scaled dot-product attention with grouped heads, and rotary position embedding. Operands have
// four dimensions, [batch, heads, sequence, head size], or three, [batch, sequence, heads * size].
#include <algorithm>
#include <optional>

#include "graph/dimension_sizes.h"
#include "graph/ops/ops.h"

namespace meshplan {
namespace {

/// The number of heads: dimension 1, or the attribute where heads and head size are one dimension.
Result<std::int64_t> heads_of(const OperatorSpec& spec,
                              std::size_t operand,
                              const std::string& attribute) {
  const Shape& shape = spec.inputs[operand]->shape;
  if (shape.size() == 4) return shape[1];
  auto heads = required_size(spec, attribute);
  if (!heads) return heads;
  if (shape[2] % *heads != 0)
    return wrong("attribute \"" + attribute + "\" is " + std::to_string(*heads) +
                 ", but it must divide the last dimension of operand " + std::to_string(operand) +
                 " (shape " + shape_text(shape) + ")");
  return heads;
}

/// Every device needs whole rows of the mask: its last dimension, the keys, is private.
Result<std::string> mask_dims(const OperatorSpec& spec, std::int64_t keys) {
  const Shape& mask = spec.inputs[3]->shape;
  if (mask.size() >= 2 && mask.back() != 1 && mask.back() != keys)
    return wrong("Attention: the last dimension of the mask (shape " + shape_text(mask) + ") is " +
                 std::to_string(mask.back()) + ", expected 1 or " + std::to_string(keys) +
                 ", the number of keys");
  switch (mask.size()) {
    case 2:
      return std::string("~s .");
    case 3:
      return std::string("~(g q) ~s .");
    case 4:
      return std::string("~b ~(g q) ~s .");
    default:
      return wrong("Attention: the mask has " + std::to_string(mask.size()) +
                   " dimensions, expected 2 to 4");
  }
}

}  // namespace

namespace {

/// The share of the pairs of a query and a key that count: a causal query sees what stands before
/// it, and of that at most the last `window` keys.
double visible_share(double queries, double past, double keys, std::optional<double> window) {
  const double first = past;
  const double last = past + queries;
  const double most = window ? std::min(*window, last) : last;
  const double rising = std::max(first, most);  // from here on, the window is full
  const double pairs = (rising * rising - first * first) / 2 + most * (last - rising);
  return std::min(pairs / (queries * (past + keys)), 1.0);
}

}  // namespace

/// Attention: q, k, v, and optionally a mask, past keys and past values. With these the results are
/// also all keys and all values; the sequence of the keys is then in two parts and stays whole.
/// Beside ONNX: attribute `sliding_window` (a causal query sees so many keys at most), and operand
/// 7, a score per head that takes part in the softmax and belongs to no key.
Result<Rule> make_attention(const OperatorSpec& spec) {
  std::size_t rank = 0;
  for (std::size_t i = 0; i < 3; ++i) {
    auto shape = operand_shape(spec, i);
    if (!shape) return fail(shape.error());
    if (i == 0) rank = shape->size();
    if (shape->size() != rank || rank < 3 || rank > 4) {
      return fail(ErrorCode::kUnsupported,
                  "",
                  "Attention takes q, k and v of shape [batch, heads, sequence, head size] or all "
                  "of shape [batch, sequence, heads * head size]");
    }
  }
  auto heads = heads_of(spec, 0, "q_num_heads");
  if (!heads) return fail(heads.error());
  auto groups = heads_of(spec, 1, "kv_num_heads");
  if (!groups) return fail(groups.error());
  if (auto same = heads_of(spec, 2, "kv_num_heads"); !same) return fail(same.error());
  if (*heads % *groups != 0)
    return wrong("Attention: the " + std::to_string(*heads) +
                 " query heads are no multiple of the " + std::to_string(*groups) + " key heads");
  auto causal = integer_attribute(spec, "is_causal", 0);
  if (!causal) return fail(causal.error());
  auto window = integer_attribute(spec, "sliding_window", 0);
  if (!window) return fail(window.error());
  if (*window < 0 || (*window > 0 && *causal == 0))
    return wrong("attribute \"sliding_window\" is " + std::to_string(*window) +
                 ", expected a number of keys, with \"is_causal\" 1");
  if (spec.inputs.size() > 8 || has_operand(spec, 6))
    return fail(ErrorCode::kUnsupported,
                "",
                "Attention takes q, k, v, a mask, past keys, past values and, as operand 7, a "
                "score per head");
  const bool past = has_operand(spec, 4) && has_operand(spec, 5);
  if (!past && (has_operand(spec, 4) || has_operand(spec, 5)))
    return fail(ErrorCode::kMissing, "", "Attention takes past keys and past values together");

  const std::size_t sequence = rank == 4 ? 2 : 1;
  std::int64_t keys = spec.inputs[1]->shape[sequence];
  if (past) {
    const Shape& earlier = spec.inputs[4]->shape;
    if (earlier.size() != 4)
      return wrong("operand 4 of shape " + shape_text(earlier) +
                   " must be [batch, heads, sequence, head size]");
    if (keys > kMostTensorBytes - earlier[2])
      return fail(ErrorCode::kOverflow, "", "the number of keys exceeds 64 bits");
    keys += earlier[2];
  }

  RuleText text;
  std::string saves = "x,y,z,out";
  text.operand(rank == 4 ? "b (g q) s e" : "b s (g q e)");
  text.operand(rank == 4 ? "b g t e" : "b t (g e)");
  text.operand(rank == 4 ? "b g t f" : "b t (g f)");
  text.result(rank == 4 ? "b (g q) s f" : "b s (g q f)");
  if (has_operand(spec, 3)) {
    auto dims = mask_dims(spec, keys);
    if (!dims) return fail(dims.error());
    text.operand(*dims);
    saves += ",3";
  } else if (spec.inputs.size() > 3) {
    text.operand("?");
  }
  if (past) {
    text.operand("b g p e").operand("b g p f").mark("whole", "p").mark("whole", "t");
    saves += ",4,5";
  } else {
    text.modifier("ring:t=s");
    for (std::size_t i = 4; i < std::min<std::size_t>(spec.inputs.size(), 6); ++i)
      text.operand("?");
  }
  if (spec.inputs.size() > 6) text.operand("?");
  if (has_operand(spec, 7)) {
    text.operand("(g q)");
    saves += ",7";
  } else if (spec.inputs.size() > 7) {
    text.operand("?");
  }
  if (past && spec.output_count > 1) {
    const std::string all = text.whole("n", keys);
    text.result("b g" + all + " e").result("b g" + all + " f");
  }
  text.mark("whole", "e").mark("whole", "f").size("g", *groups).size("q", *heads / *groups);
  text.modifier("saves:" + saves);
  text.modifier(past ? "flops:2*b*g*q*s*(p+t)*(e+f)" : "flops:2*b*g*q*s*t*(e+f)");
  auto rule = text.bind(spec);
  if (!rule) return rule;
  rule->backward_factor = 2.5;
  if (*causal != 0) {
    const auto length = [&](std::size_t operand, std::size_t d) {
      return static_cast<double>(spec.inputs[operand]->shape[d]);
    };
    rule->flops_scale =
        visible_share(length(0, sequence),
                      past ? length(4, 2) : 0,
                      length(1, sequence),
                      *window > 0 ? std::optional(static_cast<double>(*window)) : std::nullopt);
  }
  return rule;
}

/// RotaryEmbedding: the caches are half as wide and stand per position of the sequence, per batch
/// and position, or in a table that operand 3 (positions) looks up. Linear in x.
Result<Rule> make_rotary_embedding(const OperatorSpec& spec) {
  auto x = operand_shape(spec, 0);
  if (!x) return fail(x.error());
  auto cache = operand_shape(spec, 1);
  if (!cache) return fail(cache.error());
  if (x->size() != 3 && x->size() != 4)
    return fail(ErrorCode::kUnsupported,
                "",
                "RotaryEmbedding takes x of shape [batch, heads, sequence, head size] or [batch, "
                "sequence, heads * head size]");
  auto heads = heads_of(spec, 0, "num_heads");
  if (!heads) return fail(heads.error());
  auto partly = integer_attribute(spec, "rotary_embedding_dim", 0);
  if (!partly) return fail(partly.error());
  const std::int64_t head = x->size() == 4 ? x->back() : x->back() / *heads;
  const std::int64_t turned = *partly > 0 ? *partly : head;
  if (cache->empty() || turned > head || turned % 2 != 0 || cache->back() != turned / 2)
    return fail(ErrorCode::kValue,
                "",
                "RotaryEmbedding: the tables have " +
                    std::to_string(cache->empty() ? 0 : cache->back()) +
                    " columns, expected half of the " + std::to_string(std::min(turned, head)) +
                    " elements of a head that turn");
  RuleText text;
  const std::string dims = x->size() == 4 ? "b h s d" : "b s (h d)";
  text.operand(dims).result(dims).size("h", *heads);
  std::string table = cache->size() == 3 ? "b s e" : "s e";
  if (has_operand(spec, 3)) {
    table = "p e";
    text.mark("whole", "p");
  }
  text.operand(table).operand(table);
  if (has_operand(spec, 3)) text.operand("b s");
  text.mark("whole", "d").mark("whole", "e").modifier("lin:x flops:3*b*h*s*d");
  return text.modifier(has_operand(spec, 3) ? "saves:y,z,3" : "saves:y,z").bind(spec);
}

}  // namespace meshplan

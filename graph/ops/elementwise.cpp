// SPDX-License-Identifier: Apache-2.0
// Elementwise operators whose rule depends on attributes or on the number of operands.
#include "graph/ops/ops.h"

namespace meshplan {
namespace {

Result<Rule> variadic(const OperatorSpec& spec, bool sum) {
  if (spec.inputs.empty())
    return fail(ErrorCode::kMissing, "", spec.type + " needs at least one operand");
  RuleText text;
  std::string all;
  for (std::size_t i = 0; i < spec.inputs.size(); ++i) {
    if (auto shape = operand_shape(spec, i); !shape) return fail(shape.error());
    text.operand("~x..");
    all += (i == 0 ? "" : "+") + std::to_string(i);
  }
  text.result("x..");
  if (sum) text.modifier("lin:" + all).modifier("saves:none");
  return text.bind(spec);
}

/// Whether every value of `from` is a value of `to`, so that sums may be cast term by term.
bool widens(DType from, DType to) {
  if (from == to) return true;
  switch (from) {
    case DType::kFp8E4M3:
    case DType::kFp8E5M2:
      return to == DType::kFp16 || to == DType::kBf16 || to == DType::kFp32 || to == DType::kFp64;
    case DType::kFp16:
    case DType::kBf16:
      return to == DType::kFp32 || to == DType::kFp64;
    case DType::kFp32:
      return to == DType::kFp64;
    case DType::kBool:
    case DType::kUInt8:
    case DType::kInt8:
    case DType::kInt16:
    case DType::kInt32:
    case DType::kInt64:
    case DType::kFp64:
      return false;
  }
  return false;
}

}  // namespace

/// Max, Min: any number of operands, broadcast.
Result<Rule> make_variadic(const OperatorSpec& spec) { return variadic(spec, false); }

/// Sum, Mean: linear in all operands together.
Result<Rule> make_variadic_sum(const OperatorSpec& spec) { return variadic(spec, true); }

/// Cast and CastLike (the second operand gives its type alone). Rounding a sum is not the sum of
/// what is rounded, so only a cast to a wider type is linear.
Result<Rule> make_cast(const OperatorSpec& spec) {
  auto x = operand_shape(spec, 0);
  if (!x) return fail(x.error());
  const bool like = spec.type == "CastLike";
  if (auto type = like ? operand_shape(spec, 1) : x; !type) return fail(type.error());
  auto to = like ? Result<DType>(spec.inputs[1]->dtype) : dtype_attribute(spec, "to");
  if (!to) return fail(to.error());
  RuleText text;
  text.operand("x..").result("x..").modifier("saves:none");
  if (like) {
    std::string dims;
    for (std::size_t d = 0; d < spec.inputs[1]->shape.size(); ++d) dims += " .";
    text.operand(dims);
  }
  if (is_floating(spec.inputs[0]->dtype) && widens(spec.inputs[0]->dtype, *to))
    text.modifier("lin:x");
  return text.bind(spec);
}

/// Draws by global index, so sharding does not change the numbers; the backward draws again. Second
/// result: the mask; where there is one, the backward reads it instead.
Result<Rule> make_dropout(const OperatorSpec& spec) {
  RuleText text;
  text.operand("x..").operand("?").operand("?").result("x..").modifier("saves:none");
  if (spec.output_count == 2) text.result("x..");
  auto rule = text.bind(spec);
  if (rule && rule->results.size() == 2) rule->results[1].saved = true;
  return rule;
}

/// Trilu: which entries stay depends on their position in the last two dimensions.
Result<Rule> make_triangle(const OperatorSpec& spec) {
  auto x = operand_shape(spec, 0);
  if (!x) return fail(x.error());
  if (x->size() < 2)
    return wrong(spec.type + " needs at least two dimensions, operand 0 has shape " +
                 shape_text(*x));
  if (auto upper = integer_attribute(spec, "upper", 1); !upper) return fail(upper.error());
  if (auto k = integer_attribute(spec, "k", 0); !k) return fail(k.error());
  return rule_from_text(spec, "x.. r c -> x.. r c ; whole:r,c lin:x saves:none flops:0");
}

}  // namespace meshplan

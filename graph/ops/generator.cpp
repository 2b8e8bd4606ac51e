// SPDX-License-Identifier: Apache-2.0
// Operators without operands, or whose result depends on positions alone: every factor is in the
// result only, so each device makes its own part (random numbers are drawn by global index).
#include <cmath>

#include "graph/ops/ops.h"

namespace meshplan {
namespace {

Result<Rule> from_shape(const OperatorSpec& spec, const Shape& shape) {
  RuleText text;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] < 1)
      return wrong("attribute \"shape\": entry " + std::to_string(d) + " is " +
                   std::to_string(shape[d]) + ", expected a size >= 1");
    text.size("x" + std::to_string(d), shape[d]);
  }
  return text.result(factor_list("x", shape.size())).modifier("saves:none flops:0").bind(spec);
}

}  // namespace

/// ConstantOfShape, RandomNormal, RandomUniform: attribute `shape`. Constant: `shape`, or a list or
/// a single value (`value_ints`, `value_floats`, `value_strings`).
Result<Rule> make_constant(const OperatorSpec& spec) {
  if (spec.type == "Constant") {
    for (const char* name : {"value_ints", "value_floats"}) {
      const auto found = spec.attributes.find(name);
      if (found == spec.attributes.end()) continue;
      if (const auto* list = std::get_if<std::vector<std::int64_t>>(&found->second))
        return from_shape(spec, {static_cast<std::int64_t>(list->size())});
      if (const auto* list = std::get_if<std::vector<double>>(&found->second))
        return from_shape(spec, {static_cast<std::int64_t>(list->size())});
      return fail(ErrorCode::kType,
                  "",
                  std::string("attribute \"") + name + "\" must be a list of numbers");
    }
    if (!spec.attributes.contains("shape")) return from_shape(spec, {});
  }
  auto shape = required_integers(spec, "shape");
  if (!shape) return fail(shape.error());
  return from_shape(spec, *shape);
}

/// Range: attributes `start`, `limit`, `delta`.
Result<Rule> make_range(const OperatorSpec& spec) {
  if (!spec.attributes.contains("limit"))
    return fail(ErrorCode::kMissing, "", "attribute \"limit\" is missing");
  auto start = number_attribute(spec, "start", 0);
  if (!start) return fail(start.error());
  auto limit = number_attribute(spec, "limit", 0);
  if (!limit) return fail(limit.error());
  auto delta = number_attribute(spec, "delta", 1);
  if (!delta) return fail(delta.error());
  if (*delta == 0) return wrong("attribute \"delta\" is 0");
  const double count = std::ceil((*limit - *start) / *delta);
  if (!(count < 9e15))  // exactly counted by a double; not a number is refused, too
    return fail(ErrorCode::kOverflow, "", "Range has too many elements");
  if (count < 1)
    return wrong("Range is empty: \"delta\" does not lead from \"start\" to \"limit\"");
  return from_shape(spec, {static_cast<std::int64_t>(count)});
}

/// Multinomial: `sample_size` draws from each row of probabilities.
Result<Rule> make_multinomial(const OperatorSpec& spec) {
  auto samples = integer_attribute(spec, "sample_size", 1);
  if (!samples) return fail(samples.error());
  if (*samples < 1)
    return wrong("attribute \"sample_size\" is " + std::to_string(*samples) +
                 ", expected 1 or more");
  return rule_from_text(spec, "b c -> b n ; whole:c saves:none", {{"n", *samples}});
}

/// OneHot: operand 1 holds the two values; the classes (attribute `depth`) are a dimension of the
/// result alone, so each device fills in its own classes.
Result<Rule> make_one_hot(const OperatorSpec& spec) {
  auto indices = operand_shape(spec, 0);
  if (!indices) return fail(indices.error());
  auto depth = required_size(spec, "depth");
  if (!depth) return fail(depth.error());
  auto attribute = integer_attribute(spec, "axis", -1);
  if (!attribute) return fail(attribute.error());
  auto axis = dimension_number(*attribute, indices->size() + 1, "axis");
  if (!axis) return fail(axis.error());
  std::string result;
  for (std::size_t d = 0; d <= indices->size(); ++d) {
    if (d == *axis) result += " v";
    if (d < indices->size()) result += " t" + std::to_string(d);
  }
  RuleText text;
  text.operand(factor_list("t", indices->size()));
  if (spec.inputs.size() > 1) text.operand(".");
  return text.result(result).size("v", *depth).modifier("saves:x flops:0").bind(spec);
}

}  // namespace meshplan

// SPDX-License-Identifier: Apache-2.0
// Operators that compare or accumulate along a dimension, which stays whole: TopK, Sort, CumSum,
// ArgMax, ArgMin, NonZero, Unique. The other dimensions are parallel where results keep them.
#include <algorithm>

#include "graph/ops/ops.h"

namespace meshplan {
namespace {

std::string dims_with(std::size_t rank, std::size_t at, const std::string& dim) {
  std::string text;
  for (std::size_t d = 0; d < rank; ++d) text += d == at ? dim : " x" + std::to_string(d);
  return text;
}

std::string private_dims(std::size_t rank) {
  std::string text;
  for (std::size_t d = 0; d < rank; ++d) text += " .";
  return text;
}

/// How many elements a result of unknown size has: attribute `size`, or as many as there can be.
Result<std::int64_t> result_size(const OperatorSpec& spec, std::int64_t most) {
  auto size = integer_attribute(spec, "size", most);
  if (!size) return size;
  if (*size < 1 || *size > most)
    return wrong("attribute \"size\" is " + std::to_string(*size) + ", expected 1 to " +
                 std::to_string(most));
  return size;
}

}  // namespace

/// TopK: attribute `k`; values and their places along the dimension, which the gradient follows.
Result<Rule> make_top_k(const OperatorSpec& spec) {
  auto x = operand_shape(spec, 0);
  if (!x) return fail(x.error());
  auto axis = axis_attribute(spec, -1);
  if (!axis) return fail(axis.error());
  auto k = required_size(spec, "k");
  if (!k) return fail(k.error());
  if (*k > (*x)[*axis])
    return wrong("attribute \"k\" is " + std::to_string(*k) + ", but dimension " +
                 std::to_string(*axis) + " has size " + std::to_string((*x)[*axis]));
  RuleText text;
  const std::string result = dims_with(x->size(), *axis, text.whole("k", *k));
  return text.operand(dims_with(x->size(), *axis, " j"))
      .mark("whole", "j")
      .result(result)
      .result(result)
      .modifier("saves:out")
      .modifier("flops:1" +
                [&] {
                  std::string points = "*j";
                  for (std::size_t d = 0; d < x->size(); ++d)
                    points += d == *axis ? "" : "*x" + std::to_string(d);
                  return points;
                }())
      .bind(spec);
}

/// Sort: values and where they came from.
Result<Rule> make_sort(const OperatorSpec& spec) {
  auto axis = axis_attribute(spec, -1);
  if (!axis) return fail(axis.error());
  const std::string dims = factor_list("x", spec.inputs[0]->shape.size());
  RuleText text;
  text.operand(dims).result(dims).mark("whole", "x" + std::to_string(*axis));
  if (spec.output_count == 2) text.result(dims);
  return text.modifier("saves:out").bind(spec);
}

/// CumSum: linear.
Result<Rule> make_cumulative(const OperatorSpec& spec) {
  if (!spec.attributes.contains("axis"))
    return fail(ErrorCode::kMissing, "", "attribute \"axis\" is missing");
  auto axis = axis_attribute(spec, 0);
  if (!axis) return fail(axis.error());
  const std::string dims = factor_list("x", spec.inputs[0]->shape.size());
  return rule_from_text(
      spec, dims + " ->" + dims + " ; whole:x" + std::to_string(*axis) + " lin:x saves:none");
}

/// ArgMax, ArgMin: the place along the dimension; no gradient.
Result<Rule> make_arg_extreme(const OperatorSpec& spec) {
  auto axis = axis_attribute(spec, 0);
  if (!axis) return fail(axis.error());
  auto keepdims = integer_attribute(spec, "keepdims", 1);
  if (!keepdims) return fail(keepdims.error());
  const std::size_t rank = spec.inputs[0]->shape.size();
  RuleText text;
  return text.operand(factor_list("x", rank))
      .result(dims_with(rank, *axis, *keepdims != 0 ? " ." : ""))
      .mark("whole", "x" + std::to_string(*axis))
      .modifier("saves:none")
      .bind(spec);
}

/// NonZero: one row of positions per dimension. How many is not known before it runs: attribute
/// `size`, or at most all.
Result<Rule> make_non_zero(const OperatorSpec& spec) {
  auto x = operand_shape(spec, 0);
  if (!x) return fail(x.error());
  auto size = result_size(spec, element_count(*x));
  if (!size) return fail(size.error());
  RuleText text;
  const std::string rows = text.whole("r", std::max<std::int64_t>(std::ssize(*x), 1));
  const std::string columns = text.whole("n", *size);
  return text.operand(private_dims(x->size()))
      .result(rows + columns)
      .modifier("saves:none flops:0")
      .bind(spec);
}

/// Unique: values, first places, places of all elements, counts; over all elements or along `axis`.
/// Its size as NonZero's.
Result<Rule> make_unique(const OperatorSpec& spec) {
  auto x = operand_shape(spec, 0);
  if (!x) return fail(x.error());
  std::int64_t all = element_count(*x);
  std::optional<std::size_t> axis;
  if (spec.attributes.contains("axis")) {
    auto given = axis_attribute(spec, 0);
    if (!given) return fail(given.error());
    axis = *given;
    all = (*x)[*axis];
  }
  auto size = result_size(spec, all);
  if (!size) return fail(size.error());
  RuleText text;
  const std::string found = text.whole("n", *size);
  std::string values = found;
  if (axis) {
    values.clear();
    for (std::size_t d = 0; d < x->size(); ++d)
      values += d == *axis ? found : text.whole("y" + std::to_string(d), (*x)[d]);
  }
  text.operand(private_dims(x->size())).result(values);
  if (spec.output_count > 1) text.result(found);
  if (spec.output_count > 2) text.result(text.whole("m", all));
  if (spec.output_count > 3) text.result(found);
  return text.modifier("saves:out flops:0").bind(spec);
}

}  // namespace meshplan

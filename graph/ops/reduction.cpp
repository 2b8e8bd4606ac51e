// SPDX-License-Identifier: Apache-2.0
// Reductions over dimensions, and gathering rows.
#include "graph/ops/ops.h"

namespace meshplan {
namespace {

Result<Rule> reduce(const OperatorSpec& spec,
                    const std::string& reduction,
                    const std::string& linear) {
  auto x = operand_shape(spec, 0);
  if (!x) return fail(x.error());
  auto axes = integers_attribute(spec, "axes");
  if (!axes) return fail(axes.error());
  auto keepdims = integer_attribute(spec, "keepdims", 1);
  if (!keepdims) return fail(keepdims.error());
  auto noop = integer_attribute(spec, "noop_with_empty_axes", 0);
  if (!noop) return fail(noop.error());
  std::vector<bool> reduced(x->size());
  if (*axes && !(*axes)->empty()) {
    for (const std::int64_t axis : **axes) {
      auto d = dimension_number(axis, x->size(), "axes");
      if (!d) return fail(d.error());
      reduced[*d] = true;
    }
  } else if (*noop == 0) {
    reduced.assign(x->size(), true);
  }
  std::string text = factor_list("x", x->size()) + " ->";
  std::string list;
  for (std::size_t d = 0; d < x->size(); ++d) {
    const std::string name = "x" + std::to_string(d);
    if (!reduced[d]) {
      text += " " + name;
      continue;
    }
    if (*keepdims != 0) text += " .";
    list += (list.empty() ? "" : ",") + name;
  }
  text += " ;" + linear;
  if (!list.empty()) text += " " + reduction + ":" + list;
  return rule_from_text(spec, text);
}

}  // namespace

/// ReduceSum and ReduceMean (a sum with a scale: its partial results are summed).
Result<Rule> make_reduce_sum(const OperatorSpec& spec) {
  return reduce(spec, "sum", " lin:x saves:none");
}
Result<Rule> make_reduce_max(const OperatorSpec& spec) {
  return reduce(spec, "max", " saves:x,out");
}
Result<Rule> make_reduce_min(const OperatorSpec& spec) {
  return reduce(spec, "min", " saves:x,out");
}
Result<Rule> make_reduce_prod(const OperatorSpec& spec) {
  return reduce(spec, "prod", " saves:x,out");
}

/// Gather along any dimension: a shard of the gathered dimension answers its own rows, so the
/// result is a sum over the shards.
Result<Rule> make_gather(const OperatorSpec& spec) {
  auto data = operand_shape(spec, 0);
  if (!data) return fail(data.error());
  auto indices = operand_shape(spec, 1);
  if (!indices) return fail(indices.error());
  auto attribute = integer_attribute(spec, "axis", 0);
  if (!attribute) return fail(attribute.error());
  auto axis = dimension_number(*attribute, data->size(), "axis");
  if (!axis) return fail(axis.error());
  const std::string rows = factor_list("t", indices->size());
  std::string operand, result, moved = "bytes:1";
  for (std::size_t d = 0; d < data->size(); ++d) {
    const std::string name = " d" + std::to_string(d);
    operand += d == *axis ? " v" : name;
    result += d == *axis ? rows : name;
    if (d != *axis) moved += "*d" + std::to_string(d);
  }
  for (std::size_t d = 0; d < indices->size(); ++d) moved += "*t" + std::to_string(d);
  return rule_from_text(
      spec, operand + "," + rows + " ->" + result + " ; sum:v saves:y flops:0 " + moved);
}

}  // namespace meshplan

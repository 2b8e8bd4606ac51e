// SPDX-License-Identifier: Apache-2.0
// Reductions over dimensions. A sum, maximum, minimum or product over shards is Partial; where a
// step that is not linear follows (a root, a logarithm), the shards combine inside the operator.
#include <algorithm>

#include "graph/ops/ops.h"

namespace meshplan {
namespace {

/// What a reduction does with the dimensions it reduces.
struct Reduce {
  const char* kind;  ///< modifier of the reduced factors
  const char* modifiers;
  int forward = 0;  ///< statistics exchanged
  int backward = 0;
  int values = 1;  ///< numbers per row in each exchange
};

Result<Rule> reduce(const OperatorSpec& spec, const Reduce& how) {
  auto x = operand_shape(spec, 0);
  if (!x) return fail(x.error());
  auto axes = axes_attribute(spec, x->size());
  if (!axes) return fail(axes.error());
  auto keepdims = integer_attribute(spec, "keepdims", 1);
  if (!keepdims) return fail(keepdims.error());
  auto noop = integer_attribute(spec, "noop_with_empty_axes", 0);
  if (!noop) return fail(noop.error());
  std::vector<bool> reduced(x->size(), *noop == 0);  // no axes: all, or none
  if (*axes && std::find((*axes)->begin(), (*axes)->end(), true) != (*axes)->end())
    reduced = **axes;
  RuleText text;
  std::string result;
  for (std::size_t d = 0; d < x->size(); ++d) {
    const std::string name = "x" + std::to_string(d);
    if (reduced[d]) text.mark(how.kind, name);
    if (!reduced[d]) result += " " + name;
    if (reduced[d] && *keepdims != 0) result += " .";
  }
  auto rule =
      text.operand(factor_list("x", x->size())).result(result).modifier(how.modifiers).bind(spec);
  if (!rule) return rule;
  rule->statistic_forward = how.forward;
  rule->statistic_backward = how.backward;
  rule->statistic_values = how.values;
  return rule;
}

}  // namespace

/// ReduceSum and ReduceMean (a sum with a scale: its partial results are summed, each divided by
/// the global number of elements).
Result<Rule> make_reduce_sum(const OperatorSpec& spec) {
  return reduce(spec, {"sum", "lin:x saves:none"});
}

/// ReduceL1 and ReduceSumSquare: a sum of what is not linear.
Result<Rule> make_reduce_l1(const OperatorSpec& spec) { return reduce(spec, {"sum", "saves:x"}); }

// The gradient needs the reduced value; the result may be Partial, so the backward reduces again:
// the value, and for an extreme the number of elements that share it.
Result<Rule> make_reduce_max(const OperatorSpec& spec) {
  return reduce(spec, {"max", "saves:x", 0, 2});
}
Result<Rule> make_reduce_min(const OperatorSpec& spec) {
  return reduce(spec, {"min", "saves:x", 0, 2});
}
Result<Rule> make_reduce_prod(const OperatorSpec& spec) {
  return reduce(spec, {"prod", "saves:x", 0, 1});
}

// The result is whole on every shard, so the backward exchanges nothing.
Result<Rule> make_reduce_l2(const OperatorSpec& spec) {
  return reduce(spec, {"stat", "saves:x,out", 1, 0});
}
Result<Rule> make_reduce_log_sum(const OperatorSpec& spec) {
  return reduce(spec, {"stat", "saves:out", 1, 0});
}
/// Two statistics: the maximum, then the sum of exponentials below it.
Result<Rule> make_reduce_log_sum_exp(const OperatorSpec& spec) {
  return reduce(spec, {"stat", "saves:x,out", 2, 0});
}
/// ReduceVariance: sum and sum of squares in one exchange; every shard keeps the mean.
Result<Rule> make_reduce_variance(const OperatorSpec& spec) {
  return reduce(spec, {"stat", "saves:x", 1, 0, 2});
}

}  // namespace meshplan

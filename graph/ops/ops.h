// SPDX-License-Identifier: Apache-2.0
// What the rule makers in this folder share. A maker turns an operator's attributes and operand
// shapes into its Rule; errors have an empty `where`.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "graph/operator_table.h"

namespace meshplan {

using RuleMaker = Result<Rule> (*)(const OperatorSpec&);

/// The attribute as an integer / number / list of integers / text, or `otherwise` where it is
/// absent. Errors: kType.
Result<std::int64_t> integer_attribute(const OperatorSpec& spec,
                                       const std::string& name,
                                       std::int64_t otherwise);
Result<double> number_attribute(const OperatorSpec& spec,
                                const std::string& name,
                                double otherwise);
Result<std::optional<std::vector<std::int64_t>>> integers_attribute(const OperatorSpec& spec,
                                                                    const std::string& name);
Result<std::string> text_attribute(const OperatorSpec& spec,
                                   const std::string& name,
                                   const std::string& otherwise);
/// A text attribute that is one of `known`. Errors also: kValue with the names.
Result<std::string> choice_attribute(const OperatorSpec& spec,
                                     const std::string& name,
                                     const std::string& otherwise,
                                     const std::vector<std::string>& known);
/// The list without which the operator means nothing. Errors also: kMissing.
Result<std::vector<std::int64_t>> required_integers(const OperatorSpec& spec,
                                                    const std::string& name);
/// An integer >= 1 without which the operator means nothing. Errors also: kMissing, kValue.
Result<std::int64_t> required_size(const OperatorSpec& spec, const std::string& name);

/// The shape of operand `i`. Errors: kMissing.
Result<Shape> operand_shape(const OperatorSpec& spec, std::size_t i);
/// Whether operand `i` is there.
bool has_operand(const OperatorSpec& spec, std::size_t i);
/// "[4, 8]".
std::string shape_text(const Shape& shape);
/// A kValue error of one sentence.
Unexpected<Error> wrong(const std::string& message);

/// The element type that the attribute names or gives ONNX's number of. Errors: kMissing, kValue.
Result<DType> dtype_attribute(const OperatorSpec& spec, const std::string& name);

/// A dimension number in [-rank, rank) as one in [0, rank). Errors: kValue that names the
/// attribute.
Result<std::size_t> dimension_number(std::int64_t axis,
                                     std::size_t rank,
                                     const std::string& attribute);
/// The attribute "axis" as a dimension of operand 0. Errors: kMissing (operand 0), kType, kValue.
Result<std::size_t> axis_attribute(const OperatorSpec& spec, std::int64_t otherwise);
/// The attribute "axes": which of `rank` dimensions it names; nullopt where it is absent. Errors:
/// kType, kValue (also for a dimension that is named twice).
Result<std::optional<std::vector<bool>>> axes_attribute(const OperatorSpec& spec, std::size_t rank);

/// "x0 x1 x2": `count` factors named `name` + number, with a leading space each.
std::string factor_list(const std::string& name, std::size_t count);

/// make_rule on the operands of `spec`.
Result<Rule> rule_from_text(const OperatorSpec& spec,
                            const std::string& text,
                            const std::map<std::string, std::int64_t>& sizes = {});

/// Puts a rule's text together. Dimensions are written in the notation of rule.h.
class RuleText {
 public:
  RuleText& operand(const std::string& dims);
  RuleText& result(const std::string& dims);
  /// Adds to the list of a modifier: mark("sum", "a"), mark("sum", "b") is "sum:a,b".
  RuleText& mark(const std::string& key, const std::string& value);
  /// A whole modifier: "lin:x|y", "shift:s(3,1,1,1)".
  RuleText& modifier(const std::string& text);
  /// Gives the size of a factor that no operand determines.
  RuleText& size(const std::string& factor, std::int64_t size);
  /// A dimension of its own that cannot be cut, of this size, for a result.
  std::string whole(const std::string& factor, std::int64_t size);
  Result<Rule> bind(const OperatorSpec& spec) const;

 private:
  std::vector<std::string> operands_;
  std::vector<std::string> results_;
  std::map<std::string, std::string> lists_;
  std::string modifiers_;
  std::map<std::string, std::int64_t> sizes_;
};

Result<Rule> make_arg_extreme(const OperatorSpec& spec);
Result<Rule> make_attention(const OperatorSpec& spec);
Result<Rule> make_average_pool(const OperatorSpec& spec);
Result<Rule> make_batch_normalization(const OperatorSpec& spec);
Result<Rule> make_cast(const OperatorSpec& spec);
Result<Rule> make_concat(const OperatorSpec& spec);
Result<Rule> make_constant(const OperatorSpec& spec);
Result<Rule> make_conv(const OperatorSpec& spec);
Result<Rule> make_cross_entropy(const OperatorSpec& spec);
Result<Rule> make_cumulative(const OperatorSpec& spec);
Result<Rule> make_dropout(const OperatorSpec& spec);
Result<Rule> make_einsum(const OperatorSpec& spec);
Result<Rule> make_expand(const OperatorSpec& spec);
Result<Rule> make_flatten(const OperatorSpec& spec);
Result<Rule> make_gather(const OperatorSpec& spec);
Result<Rule> make_gather_elements(const OperatorSpec& spec);
Result<Rule> make_gather_nd(const OperatorSpec& spec);
Result<Rule> make_gemm(const OperatorSpec& spec);
Result<Rule> make_global_average_pool(const OperatorSpec& spec);
Result<Rule> make_global_lp_pool(const OperatorSpec& spec);
Result<Rule> make_global_max_pool(const OperatorSpec& spec);
Result<Rule> make_group_normalization(const OperatorSpec& spec);
Result<Rule> make_grouped_matmul(const OperatorSpec& spec);
Result<Rule> make_instance_normalization(const OperatorSpec& spec);
Result<Rule> make_layer_normalization(const OperatorSpec& spec);
Result<Rule> make_lp_normalization(const OperatorSpec& spec);
Result<Rule> make_matmul(const OperatorSpec& spec);
Result<Rule> make_max_pool(const OperatorSpec& spec);
Result<Rule> make_mean_variance_normalization(const OperatorSpec& spec);
Result<Rule> make_moe_combine(const OperatorSpec& spec);
Result<Rule> make_moe_dispatch(const OperatorSpec& spec);
Result<Rule> make_multinomial(const OperatorSpec& spec);
Result<Rule> make_negative_log_likelihood(const OperatorSpec& spec);
Result<Rule> make_non_zero(const OperatorSpec& spec);
Result<Rule> make_one_hot(const OperatorSpec& spec);
Result<Rule> make_pad(const OperatorSpec& spec);
Result<Rule> make_range(const OperatorSpec& spec);
Result<Rule> make_reduce_l1(const OperatorSpec& spec);
Result<Rule> make_reduce_l2(const OperatorSpec& spec);
Result<Rule> make_reduce_log_sum(const OperatorSpec& spec);
Result<Rule> make_reduce_log_sum_exp(const OperatorSpec& spec);
Result<Rule> make_reduce_max(const OperatorSpec& spec);
Result<Rule> make_reduce_min(const OperatorSpec& spec);
Result<Rule> make_reduce_prod(const OperatorSpec& spec);
Result<Rule> make_reduce_sum(const OperatorSpec& spec);
Result<Rule> make_reduce_variance(const OperatorSpec& spec);
Result<Rule> make_reshape(const OperatorSpec& spec);
Result<Rule> make_rms_normalization(const OperatorSpec& spec);
Result<Rule> make_rotary_embedding(const OperatorSpec& spec);
Result<Rule> make_scatter_elements(const OperatorSpec& spec);
Result<Rule> make_scatter_nd(const OperatorSpec& spec);
Result<Rule> make_slice(const OperatorSpec& spec);
Result<Rule> make_softmax(const OperatorSpec& spec);
Result<Rule> make_sort(const OperatorSpec& spec);
Result<Rule> make_split(const OperatorSpec& spec);
Result<Rule> make_squeeze(const OperatorSpec& spec);
Result<Rule> make_tile(const OperatorSpec& spec);
Result<Rule> make_top_k(const OperatorSpec& spec);
Result<Rule> make_transpose(const OperatorSpec& spec);
Result<Rule> make_triangle(const OperatorSpec& spec);
Result<Rule> make_unique(const OperatorSpec& spec);
Result<Rule> make_unsqueeze(const OperatorSpec& spec);
Result<Rule> make_variadic(const OperatorSpec& spec);
Result<Rule> make_variadic_sum(const OperatorSpec& spec);

}  // namespace meshplan

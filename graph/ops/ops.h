// SPDX-License-Identifier: Apache-2.0
// What the rule makers in this folder share. A maker turns an operator's attributes and operand
// shapes into its Rule; errors have an empty `where`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "graph/operator_table.h"

namespace meshplan {

using RuleMaker = Result<Rule> (*)(const OperatorSpec&);

/// The attribute as an integer / list of integers / text, or `otherwise` where it is absent.
/// Errors: kType.
Result<std::int64_t> integer_attribute(const OperatorSpec& spec,
                                       const std::string& name,
                                       std::int64_t otherwise);
Result<std::optional<std::vector<std::int64_t>>> integers_attribute(const OperatorSpec& spec,
                                                                    const std::string& name);
Result<std::string> text_attribute(const OperatorSpec& spec,
                                   const std::string& name,
                                   const std::string& otherwise);

/// The shape of operand `i`. Errors: kMissing.
Result<Shape> operand_shape(const OperatorSpec& spec, std::size_t i);

/// A dimension number in [-rank, rank) as one in [0, rank). Errors: kValue that names the
/// attribute.
Result<std::size_t> dimension_number(std::int64_t axis,
                                     std::size_t rank,
                                     const std::string& attribute);

/// "x0 x1 x2": `count` factors named `name` + number, with a leading space each.
std::string factor_list(const std::string& name, std::size_t count);

/// make_rule on the operands of `spec`.
Result<Rule> rule_from_text(const OperatorSpec& spec,
                            const std::string& text,
                            const std::map<std::string, std::int64_t>& sizes = {});

Result<Rule> make_attention(const OperatorSpec& spec);
Result<Rule> make_cross_entropy(const OperatorSpec& spec);
Result<Rule> make_expand(const OperatorSpec& spec);
Result<Rule> make_flatten(const OperatorSpec& spec);
Result<Rule> make_gather(const OperatorSpec& spec);
Result<Rule> make_gemm(const OperatorSpec& spec);
Result<Rule> make_layer_normalization(const OperatorSpec& spec);
Result<Rule> make_matmul(const OperatorSpec& spec);
Result<Rule> make_reduce_max(const OperatorSpec& spec);
Result<Rule> make_reduce_min(const OperatorSpec& spec);
Result<Rule> make_reduce_prod(const OperatorSpec& spec);
Result<Rule> make_reduce_sum(const OperatorSpec& spec);
Result<Rule> make_reshape(const OperatorSpec& spec);
Result<Rule> make_rotary_embedding(const OperatorSpec& spec);
Result<Rule> make_softmax(const OperatorSpec& spec);
Result<Rule> make_squeeze(const OperatorSpec& spec);
Result<Rule> make_transpose(const OperatorSpec& spec);
Result<Rule> make_unsqueeze(const OperatorSpec& spec);

}  // namespace meshplan

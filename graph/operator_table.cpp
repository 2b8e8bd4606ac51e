// SPDX-License-Identifier: Apache-2.0
#include "graph/operator_table.h"

#include <algorithm>

#include "graph/ops/ops.h"
#include "lib/nearest_name.h"

namespace meshplan {
namespace {

/// How the element type of a result follows from the operands.
enum class ResultType {
  kFirst,     ///< as the first operand
  kAnyFloat,  ///< as the first operand; another floating type may be declared
  kSecond,    ///< as the second operand (a condition comes first)
  kBool,
  kInt64,
  kFp32,
  kCast,             ///< attribute `to`
  kDeclaredOrFirst,  ///< attribute `dtype`, or ...
  kDeclaredOrFp32,
  kDeclaredOrInt32,
  kDeclaredOrInt64,
};

struct OperatorRow {
  std::string_view type;
  OperatorFamily family;
  ResultType result;
  std::string_view rule;  ///< in rule notation; "" where `make` builds it
  RuleMaker make = nullptr;
  ResultType others = ResultType::kFirst;  ///< of the results after the first
};

constexpr std::string_view kUnarySavesOperand = "x.. -> x.. ; saves:x";
constexpr std::string_view kUnarySavesResult = "x.. -> x.. ; saves:out";
constexpr std::string_view kUnarySavesNothing = "x.. -> x.. ; saves:none";
constexpr std::string_view kLogic = "~x.., ~x.. -> x.. ; saves:none";

using enum OperatorFamily;
using enum ResultType;

/// One row per operator type, sorted by type.
constexpr OperatorRow kOperators[] = {
    {"Abs", kElementwise, kFirst, kUnarySavesOperand},
    {"Acos", kElementwise, kFirst, kUnarySavesOperand},
    {"Acosh", kElementwise, kFirst, kUnarySavesOperand},
    {"Add", kElementwise, kAnyFloat, "~x.., ~x.. -> x.. ; lin:x+y saves:none"},
    {"And", kElementwise, kBool, kLogic},
    {"ArgMax", kReduction, kInt64, "", make_arg_extreme},
    {"ArgMin", kReduction, kInt64, "", make_arg_extreme},
    {"Asin", kElementwise, kFirst, kUnarySavesOperand},
    {"Asinh", kElementwise, kFirst, kUnarySavesOperand},
    {"Atan", kElementwise, kFirst, kUnarySavesOperand},
    {"Atanh", kElementwise, kFirst, kUnarySavesOperand},
    {"Attention", kAttention, kAnyFloat, "", make_attention},
    {"AveragePool", kReduction, kFirst, "", make_average_pool},
    {"BatchNormalization", kNormalization, kAnyFloat, "", make_batch_normalization},
    {"Bernoulli", kElementwise, kDeclaredOrFirst, kUnarySavesNothing},
    {"BitShift", kElementwise, kFirst, kLogic},
    {"BitwiseAnd", kElementwise, kFirst, kLogic},
    {"BitwiseNot", kElementwise, kFirst, kUnarySavesNothing},
    {"BitwiseOr", kElementwise, kFirst, kLogic},
    {"BitwiseXor", kElementwise, kFirst, kLogic},
    {"Cast", kElementwise, kCast, "", make_cast},
    {"CastLike", kElementwise, kSecond, "", make_cast},
    {"Ceil", kElementwise, kFirst, kUnarySavesNothing},
    {"Celu", kElementwise, kFirst, kUnarySavesOperand},
    {"Clip", kElementwise, kFirst, "x.., ?, ? -> x.. ; saves:x"},
    {"Concat", kElementwise, kFirst, "", make_concat},
    {"Constant", kElementwise, kDeclaredOrFp32, "", make_constant},
    {"ConstantOfShape", kElementwise, kDeclaredOrFp32, "", make_constant},
    {"Conv", kConvolution, kAnyFloat, "", make_conv},
    {"Cos", kElementwise, kFirst, kUnarySavesOperand},
    {"Cosh", kElementwise, kFirst, kUnarySavesOperand},
    {"CumSum", kReduction, kFirst, "", make_cumulative},
    {"Div", kElementwise, kAnyFloat, "~x.., ~x.. -> x.. ; lin:x saves:x,y"},
    {"Dropout", kElementwise, kFirst, "", make_dropout, kBool},
    {"Einsum", kOther, kAnyFloat, "", make_einsum},
    {"Elu", kElementwise, kFirst, kUnarySavesOperand},
    {"Equal", kElementwise, kBool, kLogic},
    {"Erf", kElementwise, kFirst, kUnarySavesOperand},
    {"Exp", kElementwise, kAnyFloat, kUnarySavesResult},
    {"Expand", kElementwise, kFirst, "", make_expand},
    {"Flatten", kView, kFirst, "", make_flatten},
    {"Floor", kElementwise, kFirst, kUnarySavesNothing},
    {"Gather", kEmbedding, kAnyFloat, "", make_gather},
    {"GatherElements", kEmbedding, kAnyFloat, "", make_gather_elements},
    {"GatherND", kEmbedding, kAnyFloat, "", make_gather_nd},
    {"Gelu", kElementwise, kAnyFloat, kUnarySavesOperand},
    {"Gemm", kMatMul, kAnyFloat, "", make_gemm},
    {"GlobalAveragePool", kReduction, kFirst, "", make_global_average_pool},
    {"GlobalLpPool", kReduction, kFirst, "", make_global_lp_pool},
    {"GlobalMaxPool", kReduction, kFirst, "", make_global_max_pool},
    {"Greater", kElementwise, kBool, kLogic},
    {"GreaterOrEqual", kElementwise, kBool, kLogic},
    {"GroupNormalization", kNormalization, kAnyFloat, "", make_group_normalization},
    {"GroupedMatMul", kMatMul, kAnyFloat, "", make_grouped_matmul},
    {"HardSigmoid", kElementwise, kFirst, kUnarySavesOperand},
    {"HardSwish", kElementwise, kFirst, kUnarySavesOperand},
    {"Identity", kView, kFirst, "x.. -> x.. ; lin:x saves:none flops:0"},
    {"InstanceNormalization", kNormalization, kAnyFloat, "", make_instance_normalization},
    {"IsInf", kElementwise, kBool, kUnarySavesNothing},
    {"IsNaN", kElementwise, kBool, kUnarySavesNothing},
    {"LayerNormalization", kNormalization, kAnyFloat, "", make_layer_normalization, kFp32},
    {"LeakyRelu", kElementwise, kFirst, kUnarySavesOperand},
    {"Less", kElementwise, kBool, kLogic},
    {"LessOrEqual", kElementwise, kBool, kLogic},
    {"Log", kElementwise, kAnyFloat, kUnarySavesOperand},
    {"LogSoftmax", kNormalization, kAnyFloat, "", make_softmax},
    {"LpNormalization", kNormalization, kAnyFloat, "", make_lp_normalization},
    {"LpPool", kReduction, kFirst, "", make_max_pool},
    {"MatMul", kMatMul, kAnyFloat, "", make_matmul},
    {"Max", kElementwise, kFirst, "", make_variadic},
    {"MaxPool", kReduction, kFirst, "", make_max_pool, kInt64},
    {"Mean", kElementwise, kAnyFloat, "", make_variadic_sum},
    {"MeanVarianceNormalization", kNormalization, kAnyFloat, "", make_mean_variance_normalization},
    {"Min", kElementwise, kFirst, "", make_variadic},
    {"Mish", kElementwise, kFirst, kUnarySavesOperand},
    {"MoECombine", kEmbedding, kAnyFloat, "", make_moe_combine},
    {"MoEDispatch", kEmbedding, kAnyFloat, "", make_moe_dispatch},
    {"Mod", kElementwise, kFirst, kLogic},
    {"Mul", kElementwise, kAnyFloat, "~x.., ~x.. -> x.. ; lin:x|y saves:x,y"},
    {"Multinomial", kElementwise, kDeclaredOrInt32, "", make_multinomial},
    {"Neg", kElementwise, kFirst, "x.. -> x.. ; lin:x saves:none"},
    {"NegativeLogLikelihoodLoss", kLoss, kAnyFloat, "", make_negative_log_likelihood},
    {"NonZero", kReduction, kInt64, "", make_non_zero},
    {"Not", kElementwise, kBool, kUnarySavesNothing},
    {"OneHot", kElementwise, kSecond, "", make_one_hot},
    {"Or", kElementwise, kBool, kLogic},
    {"PRelu", kElementwise, kFirst, "x.., ~x.. -> x.. ; saves:x,y"},
    {"Pad", kElementwise, kFirst, "", make_pad},
    {"Pow", kElementwise, kAnyFloat, "~x.., ~x.. -> x.. ; saves:x,y"},
    {"RMSNormalization", kNormalization, kAnyFloat, "", make_rms_normalization},
    {"RandomNormal", kElementwise, kDeclaredOrFp32, "", make_constant},
    {"RandomNormalLike", kElementwise, kDeclaredOrFirst, kUnarySavesNothing},
    {"RandomUniform", kElementwise, kDeclaredOrFp32, "", make_constant},
    {"RandomUniformLike", kElementwise, kDeclaredOrFirst, kUnarySavesNothing},
    {"Range", kElementwise, kDeclaredOrInt64, "", make_range},
    {"Reciprocal", kElementwise, kAnyFloat, kUnarySavesResult},
    {"ReduceL1", kReduction, kAnyFloat, "", make_reduce_l1},
    {"ReduceL2", kReduction, kAnyFloat, "", make_reduce_l2},
    {"ReduceLogSum", kReduction, kAnyFloat, "", make_reduce_log_sum},
    {"ReduceLogSumExp", kReduction, kAnyFloat, "", make_reduce_log_sum_exp},
    {"ReduceMax", kReduction, kFirst, "", make_reduce_max},
    {"ReduceMean", kReduction, kAnyFloat, "", make_reduce_sum},
    {"ReduceMin", kReduction, kFirst, "", make_reduce_min},
    {"ReduceProd", kReduction, kAnyFloat, "", make_reduce_prod},
    {"ReduceSum", kReduction, kAnyFloat, "", make_reduce_sum},
    {"ReduceSumSquare", kReduction, kAnyFloat, "", make_reduce_l1},
    {"ReduceVariance", kReduction, kAnyFloat, "", make_reduce_variance},
    {"Relu", kElementwise, kFirst, kUnarySavesResult},
    {"Reshape", kView, kFirst, "", make_reshape},
    {"RotaryEmbedding", kElementwise, kAnyFloat, "", make_rotary_embedding},
    {"Round", kElementwise, kFirst, kUnarySavesNothing},
    {"ScatterElements", kEmbedding, kFirst, "", make_scatter_elements},
    {"ScatterND", kEmbedding, kFirst, "", make_scatter_nd},
    {"Selu", kElementwise, kFirst, kUnarySavesOperand},
    {"Shrink", kElementwise, kFirst, kUnarySavesOperand},
    {"Sigmoid", kElementwise, kAnyFloat, kUnarySavesResult},
    {"Sign", kElementwise, kFirst, kUnarySavesNothing},
    {"Silu", kElementwise, kAnyFloat, kUnarySavesOperand},
    {"Sin", kElementwise, kFirst, kUnarySavesOperand},
    {"Sinh", kElementwise, kFirst, kUnarySavesOperand},
    {"Slice", kElementwise, kFirst, "", make_slice},
    {"Softmax", kNormalization, kAnyFloat, "", make_softmax},
    {"SoftmaxCrossEntropyLoss", kLoss, kAnyFloat, "", make_cross_entropy},
    {"Softplus", kElementwise, kFirst, kUnarySavesOperand},
    {"Softsign", kElementwise, kFirst, kUnarySavesOperand},
    {"Sort", kReduction, kFirst, "", make_sort, kInt64},
    {"Split", kElementwise, kFirst, "", make_split},
    {"Sqrt", kElementwise, kAnyFloat, kUnarySavesResult},
    {"Squeeze", kView, kFirst, "", make_squeeze},
    {"Sub", kElementwise, kAnyFloat, "~x.., ~x.. -> x.. ; lin:x+y saves:none"},
    {"Sum", kElementwise, kAnyFloat, "", make_variadic_sum},
    {"Swish", kElementwise, kAnyFloat, kUnarySavesOperand},
    {"Tan", kElementwise, kFirst, kUnarySavesResult},
    {"Tanh", kElementwise, kAnyFloat, kUnarySavesResult},
    {"ThresholdedRelu", kElementwise, kFirst, kUnarySavesOperand},
    {"Tile", kElementwise, kFirst, "", make_tile},
    {"TopK", kReduction, kFirst, "", make_top_k, kInt64},
    {"Transpose", kView, kFirst, "", make_transpose},
    {"Trilu", kElementwise, kFirst, "", make_triangle},
    {"Unique", kReduction, kFirst, "", make_unique, kInt64},
    {"Unsqueeze", kView, kFirst, "", make_unsqueeze},
    {"Where", kElementwise, kSecond, "~x.., ~x.., ~x.. -> x.. ; lin:y+z saves:x"},
    {"Xor", kElementwise, kBool, kLogic},
};
static_assert(std::is_sorted(std::begin(kOperators),
                             std::end(kOperators),
                             [](const OperatorRow& a, const OperatorRow& b) {
                               return a.type < b.type;
                             }));

const OperatorRow* find_row(std::string_view type) {
  const auto* row =
      std::lower_bound(std::begin(kOperators),
                       std::end(kOperators),
                       type,
                       [](const OperatorRow& a, std::string_view name) { return a.type < name; });
  return row != std::end(kOperators) && row->type == type ? row : nullptr;
}

/// ONNX's numbers of the element types.
std::optional<DType> onnx_dtype(std::int64_t number) {
  switch (number) {
    case 1:
      return DType::kFp32;
    case 2:
      return DType::kUInt8;
    case 3:
      return DType::kInt8;
    case 5:
      return DType::kInt16;
    case 6:
      return DType::kInt32;
    case 7:
      return DType::kInt64;
    case 9:
      return DType::kBool;
    case 10:
      return DType::kFp16;
    case 11:
      return DType::kFp64;
    case 16:
      return DType::kBf16;
    case 17:
      return DType::kFp8E4M3;
    case 19:
      return DType::kFp8E5M2;
    default:
      return std::nullopt;
  }
}

/// Attribute `dtype`; a Constant's value says it, too.
Result<DType> declared_type(const OperatorSpec& spec, DType otherwise) {
  if (spec.attributes.contains("dtype")) return dtype_attribute(spec, "dtype");
  const bool integers =
      spec.attributes.contains("value_int") || spec.attributes.contains("value_ints");
  return integers ? DType::kInt64 : otherwise;
}

Result<DType> result_type(const OperatorSpec& spec, ResultType how) {
  const auto as_operand = [&](std::size_t i) {
    return has_operand(spec, i) ? spec.inputs[i]->dtype : DType::kFp32;
  };
  switch (how) {
    case ResultType::kFirst:
    case ResultType::kAnyFloat:
      return as_operand(0);
    case ResultType::kSecond:
      return as_operand(1);
    case ResultType::kBool:
      return DType::kBool;
    case ResultType::kInt64:
      return DType::kInt64;
    case ResultType::kFp32:
      return DType::kFp32;
    case ResultType::kCast:
      return dtype_attribute(spec, "to");
    case ResultType::kDeclaredOrFirst:
      return declared_type(spec, as_operand(0));
    case ResultType::kDeclaredOrFp32:
      return declared_type(spec, DType::kFp32);
    case ResultType::kDeclaredOrInt32:
      return declared_type(spec, DType::kInt32);
    case ResultType::kDeclaredOrInt64:
      return declared_type(spec, DType::kInt64);
  }
  return DType::kFp32;
}

/// The exchanges that a user's rule implies: one number per row for a statistic, and again for its
/// gradient if a result keeps the rows; for the gradient of a maximum or minimum the value and how
/// many share it, for that of a product the product.
void count_statistics(Rule& rule) {
  for (std::size_t f = 0; f < rule.factors.size(); ++f) {
    const Factor& factor = rule.factors[f];
    if (factor.kind == FactorKind::kStatistic) {
      rule.statistic_forward = 1;
      const auto kept = [&](const OperandRule& result) {
        return std::any_of(result.dims.begin(), result.dims.end(), [&](const auto& dim) {
          return std::find(dim.begin(), dim.end(), static_cast<int>(f)) != dim.end();
        });
      };
      if (std::any_of(rule.results.begin(), rule.results.end(), kept))
        rule.statistic_backward = std::max(rule.statistic_backward, 1);
    } else if (factor.kind == FactorKind::kReduction && factor.reduction != Reduction::kSum) {
      rule.statistic_backward =
          std::max(rule.statistic_backward, factor.reduction == Reduction::kProd ? 1 : 2);
    }
  }
}

Result<Rule> rule_of(const OperatorSpec& spec, const OperatorRow* row) {
  if (row == nullptr) {
    const std::string text =
        spec.flops.empty()
            ? spec.rule
            : spec.rule + (spec.rule.find(';') == std::string::npos ? " ; flops:(" : " flops:(") +
                  spec.flops + ")";
    auto rule = rule_from_text(spec, text);
    if (!rule) return rule;
    rule->family = family_of(*rule);
    count_statistics(*rule);
    return rule;
  }
  auto rule = row->make != nullptr ? row->make(spec) : rule_from_text(spec, std::string(row->rule));
  if (rule) rule->family = row->family == kOther ? family_of(*rule) : row->family;
  return rule;
}

}  // namespace

Result<DType> dtype_attribute(const OperatorSpec& spec, const std::string& name) {
  const auto found = spec.attributes.find(name);
  if (found == spec.attributes.end())
    return fail(ErrorCode::kMissing, "", "attribute \"" + name + "\" is missing");
  std::optional<DType> dtype;
  std::string given;
  if (const auto* text = std::get_if<std::string>(&found->second)) {
    dtype = parse_dtype(*text);
    given = "\"" + *text + "\"" + (dtype ? "" : nearest_name_hint(*text, dtype_names()));
  } else if (const auto* number = std::get_if<std::int64_t>(&found->second)) {
    dtype = onnx_dtype(*number);
    given = std::to_string(*number);
  }
  if (!dtype)
    return fail(
        ErrorCode::kValue, "", "attribute \"" + name + "\" names no element type: " + given);
  return *dtype;
}

Result<TypedOperator> infer_operator(const OperatorSpec& spec) {
  const OperatorRow* row = spec.rule.empty() ? find_row(spec.type) : nullptr;
  if (row == nullptr && spec.rule.empty()) {
    return fail(ErrorCode::kUnsupported,
                "",
                "operator type \"" + spec.type + "\" is not known" +
                    nearest_name_hint(spec.type, operator_types()) +
                    " Declare it with a rule, e.g. {\"type\": \"Custom\", \"rule\": \"b s h, h f "
                    "-> b s f ; sum:h\"} or under \"operator_types\", or accept it as "
                    "replicated with --unknown-operators replicate");
  }
  auto rule = rule_of(spec, row);
  if (!rule) return fail(rule.error());
  if (static_cast<int>(rule->results.size()) != spec.output_count) {
    return fail(ErrorCode::kValue,
                "",
                spec.type + " has " + std::to_string(rule->results.size()) + " output(s), got " +
                    std::to_string(spec.output_count));
  }
  TypedOperator typed;
  for (std::size_t r = 0; r < rule->results.size(); ++r) {
    auto dtype = result_type(spec,
                             row == nullptr ? ResultType::kAnyFloat
                             : r == 0       ? row->result
                                            : row->others);
    if (!dtype) return fail(dtype.error());
    typed.outputs.push_back({rule->results[r].shape, *dtype});
  }
  typed.any_floating_result = row == nullptr || row->result == ResultType::kAnyFloat;
  typed.rule = std::make_shared<const Rule>(std::move(*rule));
  return typed;
}

TypedOperator replicated_operator(const OperatorSpec& spec, std::vector<TensorType> outputs) {
  Rule rule;
  rule.text = kReplicatedRule;
  for (const auto& input : spec.inputs) {
    OperandRule operand;
    operand.present = input.has_value();
    operand.saved = operand.present;
    if (input) {
      operand.shape = input->shape;
      operand.dims.resize(input->shape.size());
    }
    rule.operands.push_back(std::move(operand));
  }
  for (const TensorType& output : outputs) {
    OperandRule result;
    result.shape = output.shape;
    result.dims.resize(output.shape.size());
    rule.results.push_back(std::move(result));
  }
  TypedOperator typed;
  typed.rule = std::make_shared<const Rule>(std::move(rule));
  typed.outputs = std::move(outputs);
  typed.any_floating_result = true;
  return typed;
}

std::span<const std::string> operator_types() {
  static const std::vector<std::string> kTypes = [] {
    std::vector<std::string> types;
    for (const OperatorRow& row : kOperators) types.emplace_back(row.type);
    return types;
  }();
  return kTypes;
}

}  // namespace meshplan

// SPDX-License-Identifier: Apache-2.0
#include "graph/operator_table.h"

#include <algorithm>

#include "graph/ops/ops.h"
#include "lib/nearest_name.h"

namespace meshplan {
namespace {

/// How the element type of the results follows from the operands.
enum class ResultType {
  kFirst,     ///< as the first operand
  kAnyFloat,  ///< as the first operand; another floating type may be declared
  kSecond,    ///< as the second operand (a condition comes first)
  kBool,
  kCast,  ///< attribute `to`
};

struct OperatorRow {
  std::string_view type;
  OperatorFamily family;
  ResultType result;
  std::string_view rule;  ///< in rule notation; "" where `make` builds it
  RuleMaker make = nullptr;
};

constexpr std::string_view kUnarySavesOperand = "x.. -> x.. ; saves:x";
constexpr std::string_view kUnarySavesResult = "x.. -> x.. ; saves:out";
constexpr std::string_view kComparison = "~x.., ~x.. -> x.. ; saves:none";

using enum OperatorFamily;
using enum ResultType;

/// One row per operator type, sorted by type.
constexpr OperatorRow kOperators[] = {
    {"Abs", kElementwise, kFirst, kUnarySavesOperand},
    {"Add", kElementwise, kAnyFloat, "~x.., ~x.. -> x.. ; lin:x+y saves:none"},
    {"Attention", kAttention, kAnyFloat, "", make_attention},
    {"Cast", kElementwise, kCast, "x.. -> x.. ; saves:none"},
    {"Clip", kElementwise, kFirst, "x.., ?, ? -> x.. ; saves:x"},
    {"Cos", kElementwise, kFirst, kUnarySavesOperand},
    {"Div", kElementwise, kAnyFloat, "~x.., ~x.. -> x.. ; lin:x saves:x,y"},
    {"Equal", kElementwise, kBool, kComparison},
    {"Erf", kElementwise, kFirst, kUnarySavesOperand},
    {"Exp", kElementwise, kAnyFloat, kUnarySavesResult},
    {"Expand", kElementwise, kFirst, "", make_expand},
    {"Flatten", kView, kFirst, "", make_flatten},
    {"Gather", kEmbedding, kAnyFloat, "", make_gather},
    {"Gelu", kElementwise, kAnyFloat, kUnarySavesOperand},
    {"Gemm", kMatMul, kAnyFloat, "", make_gemm},
    {"Greater", kElementwise, kBool, kComparison},
    {"GreaterOrEqual", kElementwise, kBool, kComparison},
    {"Identity", kView, kFirst, "x.. -> x.. ; lin:x saves:none"},
    {"LayerNormalization", kNormalization, kAnyFloat, "", make_layer_normalization},
    {"Less", kElementwise, kBool, kComparison},
    {"LessOrEqual", kElementwise, kBool, kComparison},
    {"Log", kElementwise, kAnyFloat, kUnarySavesOperand},
    {"LogSoftmax", kNormalization, kAnyFloat, "", make_softmax},
    {"MatMul", kMatMul, kAnyFloat, "", make_matmul},
    {"Mul", kElementwise, kAnyFloat, "~x.., ~x.. -> x.. ; lin:x|y saves:x,y"},
    {"Neg", kElementwise, kFirst, "x.. -> x.. ; lin:x saves:none"},
    {"Pow", kElementwise, kAnyFloat, "~x.., ~x.. -> x.. ; saves:x,y"},
    {"RMSNormalization", kNormalization, kAnyFloat, "", make_layer_normalization},
    {"Reciprocal", kElementwise, kAnyFloat, kUnarySavesResult},
    {"ReduceMax", kReduction, kFirst, "", make_reduce_max},
    {"ReduceMean", kReduction, kAnyFloat, "", make_reduce_sum},
    {"ReduceMin", kReduction, kFirst, "", make_reduce_min},
    {"ReduceProd", kReduction, kAnyFloat, "", make_reduce_prod},
    {"ReduceSum", kReduction, kAnyFloat, "", make_reduce_sum},
    {"Relu", kElementwise, kFirst, kUnarySavesResult},
    {"Reshape", kView, kFirst, "", make_reshape},
    {"RotaryEmbedding", kElementwise, kAnyFloat, "", make_rotary_embedding},
    {"Sigmoid", kElementwise, kAnyFloat, kUnarySavesResult},
    {"Silu", kElementwise, kAnyFloat, kUnarySavesOperand},
    {"Sin", kElementwise, kFirst, kUnarySavesOperand},
    {"Softmax", kNormalization, kAnyFloat, "", make_softmax},
    {"SoftmaxCrossEntropyLoss", kLoss, kAnyFloat, "", make_cross_entropy},
    {"Sqrt", kElementwise, kAnyFloat, kUnarySavesResult},
    {"Squeeze", kView, kFirst, "", make_squeeze},
    {"Sub", kElementwise, kAnyFloat, "~x.., ~x.. -> x.. ; lin:x+y saves:none"},
    {"Tanh", kElementwise, kAnyFloat, kUnarySavesResult},
    {"Transpose", kView, kFirst, "", make_transpose},
    {"Unsqueeze", kView, kFirst, "", make_unsqueeze},
    {"Where", kElementwise, kSecond, "~x.., ~x.., ~x.. -> x.. ; saves:x"},
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

/// ONNX's numbers of the element types, for Cast's `to`.
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

Result<DType> cast_type(const OperatorSpec& spec) {
  const auto to = spec.attributes.find("to");
  if (to == spec.attributes.end())
    return fail(ErrorCode::kMissing, "", "attribute \"to\" is missing");
  std::optional<DType> dtype;
  std::string given;
  if (const auto* name = std::get_if<std::string>(&to->second)) {
    dtype = parse_dtype(*name);
    given = "\"" + *name + "\"" + (dtype ? "" : nearest_name_hint(*name, dtype_names()));
  } else if (const auto* number = std::get_if<std::int64_t>(&to->second)) {
    dtype = onnx_dtype(*number);
    given = std::to_string(*number);
  }
  if (!dtype)
    return fail(ErrorCode::kValue, "", "attribute \"to\" names no element type: " + given);
  return *dtype;
}

Result<DType> result_type(const OperatorSpec& spec, ResultType how) {
  if (how == ResultType::kBool) return DType::kBool;
  if (how == ResultType::kCast) return cast_type(spec);
  const std::size_t from = how == ResultType::kSecond ? 1 : 0;
  if (from >= spec.inputs.size() || !spec.inputs[from]) return DType::kFp32;
  return spec.inputs[from]->dtype;
}

Result<Rule> rule_of(const OperatorSpec& spec, const OperatorRow* row) {
  if (row == nullptr) {
    const std::string text =
        spec.flops.empty()
            ? spec.rule
            : spec.rule + (spec.rule.find(';') == std::string::npos ? " ; flops:(" : " flops:(") +
                  spec.flops + ")";
    return rule_from_text(spec, text);
  }
  auto rule = row->make != nullptr ? row->make(spec) : rule_from_text(spec, std::string(row->rule));
  if (rule) rule->family = row->family;
  return rule;
}

}  // namespace

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
  auto dtype = result_type(spec, row == nullptr ? ResultType::kAnyFloat : row->result);
  if (!dtype) return fail(dtype.error());
  TypedOperator typed;
  for (const OperandRule& result : rule->results) typed.outputs.push_back({result.shape, *dtype});
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

// SPDX-License-Identifier: Apache-2.0
// The table of operators: from type, attributes and operand types to the sharding rule and the
// result types. A new operator is one file in ops/ and one row.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/graph.h"
#include "lib/result.h"

namespace meshplan {

struct TensorType {
  Shape shape;
  DType dtype = DType::kFp32;
  friend bool operator==(const TensorType&, const TensorType&) = default;
};

/// An operator as the table sees it.
struct OperatorSpec {
  std::string type;                               ///< "MatMul", ...; "Custom" for one with a rule
  Attributes attributes;                          ///< constant inputs (shape, axes, ...) included
  std::vector<std::optional<TensorType>> inputs;  ///< omitted optional operands are nullopt
  int output_count = 1;
  std::string rule;   ///< the user's rule text, "" for built-in types
  std::string flops;  ///< the user's FLOPs expression, may be ""
};

struct TypedOperator {
  std::shared_ptr<const Rule> rule;
  std::vector<TensorType> outputs;
  /// The results may be declared with any other floating type (a product accumulated in fp32).
  bool any_floating_result = false;
};

/// The rule and the result types. Errors have an empty `where` and name what is wrong with which
/// operand or attribute: kUnsupported (unknown type: with the nearest names and how to declare a
/// rule), kValue (shapes that do not fit), kMissing, kType, kOverflow.
Result<TypedOperator> infer_operator(const OperatorSpec& spec);

/// Text of the rule of an operator that nothing is known about.
inline constexpr std::string_view kReplicatedRule = "(replicated)";

/// The rule of an operator that nothing is known about: every operand and result replicated. Its
/// outputs must be given.
TypedOperator replicated_operator(const OperatorSpec& spec, std::vector<TensorType> outputs);

/// Every built-in type name, sorted.
std::span<const std::string> operator_types();

}  // namespace meshplan

// SPDX-License-Identifier: Apache-2.0
// Arithmetic over named sizes: "2*b*s*(e+f)". Numbers, names, + - * / and parentheses.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lib/result.h"

namespace meshplan {

/// A parsed expression; evaluation needs a value per variable, in the order of variables().
class Expression {
 public:
  /// Errors: kValue, the message names the column (1-based) in `text`.
  static Result<Expression> parse(std::string_view text);

  const std::vector<std::string>& variables() const { return variables_; }
  /// `values[i]` belongs to variables()[i]. Division by zero gives 0.
  double evaluate(std::span<const double> values) const;

 private:
  enum class Code : std::uint8_t {
    kNumber,
    kVariable,
    kAdd,
    kSubtract,
    kMultiply,
    kDivide,
    kNegate
  };
  struct Instruction {
    Code code;
    double number = 0;     ///< kNumber
    std::size_t slot = 0;  ///< kVariable
  };
  friend class ExpressionParser;

  std::vector<std::string> variables_;
  std::vector<Instruction> program_;  ///< postfix
};

}  // namespace meshplan

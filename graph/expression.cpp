// SPDX-License-Identifier: Apache-2.0
#include "graph/expression.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>

namespace meshplan {

/// Recursive descent; parentheses may nest to a fixed depth.
class ExpressionParser {
 public:
  explicit ExpressionParser(std::string_view text) : text_(text) {}

  Result<Expression> run() {
    if (!sum(0)) return fail(ErrorCode::kValue, "", message());
    skip_space();
    if (at_ != text_.size()) {
      reason_ = "expected an operator";
      return fail(ErrorCode::kValue, "", message());
    }
    return std::move(result_);
  }

 private:
  static constexpr int kDeepest = 100;
  using Code = Expression::Code;

  std::string message() const {
    return "expression \"" + std::string(text_.substr(0, 200)) + "\", column " +
           std::to_string(at_ + 1) + ": " + reason_;
  }
  void skip_space() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  bool take(char c) {
    skip_space();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void emit(Code code) { result_.program_.push_back({code, 0, 0}); }

  bool sum(int depth) {
    if (!product(depth)) return false;
    for (;;) {
      if (take('+')) {
        if (!product(depth)) return false;
        emit(Code::kAdd);
      } else if (take('-')) {
        if (!product(depth)) return false;
        emit(Code::kSubtract);
      } else {
        return true;
      }
    }
  }

  bool product(int depth) {
    if (!atom(depth)) return false;
    for (;;) {
      if (take('*')) {
        if (!atom(depth)) return false;
        emit(Code::kMultiply);
      } else if (take('/')) {
        if (!atom(depth)) return false;
        emit(Code::kDivide);
      } else {
        return true;
      }
    }
  }

  bool atom(int depth) {
    if (depth > kDeepest) {
      reason_ = "too many nested parentheses";
      return false;
    }
    if (take('-')) {
      if (!atom(depth + 1)) return false;
      emit(Code::kNegate);
      return true;
    }
    if (take('(')) {
      if (!sum(depth + 1)) return false;
      if (take(')')) return true;
      reason_ = "expected \")\"";
      return false;
    }
    skip_space();
    const std::size_t start = at_;
    if (at_ < text_.size() &&
        (std::isdigit(static_cast<unsigned char>(text_[at_])) != 0 || text_[at_] == '.')) {
      double number = 0;
      const auto [end, status] =
          std::from_chars(text_.data() + at_, text_.data() + text_.size(), number);
      if (status == std::errc()) {
        at_ = static_cast<std::size_t>(end - text_.data());
        result_.program_.push_back({Code::kNumber, number, 0});
        return true;
      }
      reason_ = "expected a number";
      return false;
    }
    while (at_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[at_])) != 0 ||
                                  text_[at_] == '_' || (at_ > start && text_[at_] == '\''))) {
      ++at_;
    }
    if (at_ == start) {
      reason_ = "expected a number, a name or \"(\"";
      return false;
    }
    const std::string name(text_.substr(start, at_ - start));
    auto found = std::find(result_.variables_.begin(), result_.variables_.end(), name);
    if (found == result_.variables_.end()) found = result_.variables_.insert(found, name);
    result_.program_.push_back(
        {Code::kVariable, 0, static_cast<std::size_t>(found - result_.variables_.begin())});
    return true;
  }

  std::string_view text_;
  std::size_t at_ = 0;
  std::string reason_;
  Expression result_;
};

Result<Expression> Expression::parse(std::string_view text) { return ExpressionParser(text).run(); }

double Expression::evaluate(std::span<const double> values) const {
  std::vector<double> stack;
  stack.reserve(program_.size());
  for (const Instruction& instruction : program_) {
    if (instruction.code == Code::kNumber) {
      stack.push_back(instruction.number);
      continue;
    }
    if (instruction.code == Code::kVariable) {
      stack.push_back(values[instruction.slot]);
      continue;
    }
    const double b = stack.back();
    if (instruction.code == Code::kNegate) {
      stack.back() = -b;
      continue;
    }
    stack.pop_back();
    double& a = stack.back();
    switch (instruction.code) {
      case Code::kAdd:
        a += b;
        break;
      case Code::kSubtract:
        a -= b;
        break;
      case Code::kMultiply:
        a *= b;
        break;
      case Code::kDivide:
        a = b == 0 ? 0 : a / b;
        break;
      case Code::kNumber:
      case Code::kVariable:
      case Code::kNegate:
        break;
    }
  }
  return stack.back();
}

}  // namespace meshplan

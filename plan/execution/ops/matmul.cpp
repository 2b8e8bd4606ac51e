// SPDX-License-Identifier: Apache-2.0
// Products. Where the summed index is sharded each device has a term of the result; what is added
// to a product (a bias) is added by the first of them alone.
#include <algorithm>
#include <map>

#include "plan/execution/ops/meanings.h"

namespace meshplan {
namespace {

using Results = std::vector<Var>;

std::string letters(char first, std::size_t count) {
  std::string text;
  for (std::size_t i = 0; i < count; ++i) text += static_cast<char>(first + static_cast<char>(i));
  return text;
}

/// Batch dimensions broadcast; those of size 1 are spread over the others.
Results matmul(const OperatorContext& cx) {
  Var a = cx.operand(0);
  Var b = cx.operand(1);
  Shape left = a.shape();
  Shape right = b.shape();
  const bool vector_a = left.size() == 1;
  const bool vector_b = right.size() == 1;
  const std::size_t batch_a = vector_a ? 0 : left.size() - 2;
  const std::size_t batch_b = vector_b ? 0 : right.size() - 2;
  const std::size_t batch = std::max(batch_a, batch_b);
  Shape common(batch, 1);
  for (std::size_t d = 0; d < batch; ++d) {
    if (d + batch_a >= batch) common[d] = std::max(common[d], left[d + batch_a - batch]);
    if (d + batch_b >= batch) common[d] = std::max(common[d], right[d + batch_b - batch]);
  }
  const auto spread = [&](Var x, const Shape& shape, std::size_t own, bool vector) {
    if (vector || own == 0 || Shape(shape.begin(), shape.end() - 2) == common) return x;
    Shape wide = common;
    wide.insert(wide.end(), shape.end() - 2, shape.end());
    return broadcast(x, wide);
  };
  a = spread(a, left, batch_a, vector_a);
  b = spread(b, right, batch_b, vector_b);
  const std::string run = letters('A', batch);
  const std::string row = vector_a ? "" : "m";
  const std::string column = vector_b ? "" : "n";
  std::string term_a = cx.integer("transpose_a", 0) != 0 && !vector_a ? "k" + row : row + "k";
  std::string term_b = cx.integer("transpose_b", 0) != 0 && !vector_b ? column + "k" : "k" + column;
  if (batch_a > 0) term_a = run + term_a;
  if (batch_b > 0) term_b = run + term_b;
  return {einsum({term_a, term_b}, run + row + column, {a, b})};
}

Results gemm(const OperatorContext& cx) {
  Var y = einsum(
      {cx.integer("transA", 0) != 0 ? "km" : "mk", cx.integer("transB", 0) != 0 ? "nk" : "kn"},
      "mn",
      {cx.operand(0), cx.operand(1)});
  y = y * cx.number("alpha", 1);
  if (cx.has(2))
    y = y + cx.operand(2) * cx.number("beta", 1) *
                cx.first_of(cx.partial_axes(0) & ~cx.partial_operand_axes(2));
  return {y};
}

/// One product per expert.
Results grouped_matmul(const OperatorContext& cx) {
  const bool transposed = cx.integer("transpose_b", 0) != 0;
  return {einsum({"ecd", transposed ? "efd" : "edf"}, "ecf", {cx.operand(0), cx.operand(1)})};
}

/// The ellipsis becomes letters of its own; its dimensions of size 1 are spread.
Results equation(const OperatorContext& cx) {
  std::string text = cx.text("equation", "");
  std::erase(text, ' ');
  const std::size_t arrow = text.find("->");
  std::vector<std::string> terms = {""};
  for (const char c : text.substr(0, arrow)) {
    if (c == ',') {
      terms.emplace_back();
    } else {
      terms.back() += c;
    }
  }
  // letters that the equation does not use, for the dimensions of the ellipsis
  std::string spare;
  for (char c = 33; c < 127; ++c) {
    if (text.find(c) == std::string::npos && c != '.') spare += c;
  }
  std::size_t longest = 0;
  std::vector<Var> operands;
  for (std::size_t i = 0; i < terms.size(); ++i) {
    operands.push_back(cx.operand(i));
    if (terms[i].find("...") != std::string::npos)
      longest = std::max(longest, cx.operand_shape(i).size() - (terms[i].size() - 3));
  }
  const std::string run = spare.substr(0, longest);
  std::map<char, std::int64_t> most;
  std::string order = arrow == std::string::npos ? "" : text.substr(arrow + 2);
  std::map<char, int> uses;
  bool ellipsis = false;
  for (std::size_t i = 0; i < terms.size(); ++i) {
    for (const char c : terms[i]) {
      if (c != '.') ++uses[c];
    }
    const std::size_t at = terms[i].find("...");
    if (at == std::string::npos) continue;
    ellipsis = true;
    const std::size_t own = cx.operand_shape(i).size() - (terms[i].size() - 3);
    terms[i].replace(at, 3, run.substr(longest - own));
    for (std::size_t d = 0; d < own; ++d) {
      std::int64_t& size = most[run[longest - own + d]];
      size = std::max(size, operands[i].shape()[at + d]);
    }
  }
  if (arrow == std::string::npos) {
    order = ellipsis ? "..." : "";
    for (const auto& [letter, count] : uses) {
      if (count == 1) order += letter;
    }
  }
  if (const std::size_t at = order.find("..."); at != std::string::npos) order.replace(at, 3, run);
  for (std::size_t i = 0; i < terms.size(); ++i) {
    Shape wide = operands[i].shape();
    for (std::size_t d = 0; d < wide.size() && d < terms[i].size(); ++d) {
      if (const auto found = most.find(terms[i][d]); found != most.end()) wide[d] = found->second;
    }
    if (wide != operands[i].shape()) operands[i] = broadcast(operands[i], wide);
  }
  return {einsum(terms, order, operands)};
}

constexpr MeaningRow kRows[] = {
    {"Einsum", equation},
    {"Gemm", gemm},
    {"GroupedMatMul", grouped_matmul},
    {"MatMul", matmul},
};

}  // namespace

std::span<const MeaningRow> matmul_meanings() { return kRows; }

}  // namespace meshplan

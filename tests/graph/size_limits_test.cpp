// SPDX-License-Identifier: Apache-2.0
// Sizes near the limits of 64 bits: products and sums of what a document says are refused where
// they do not fit, never computed.
#include <cstdint>
#include <string>
#include <vector>

#include "graph/dimension_sizes.h"
#include "graph/operator_table.h"
#include "graph/rule.h"
#include "support/catch.h"

namespace meshplan::size_limits_test {
namespace {

constexpr std::int64_t kHuge = std::int64_t{1} << 40;

std::string rule_error(const std::string& text,
                       const std::vector<std::optional<std::vector<std::int64_t>>>& shapes,
                       const std::map<std::string, std::int64_t>& sizes = {}) {
  const Result<Rule> rule = make_rule(text, shapes, sizes);
  return rule ? "no error" : rule.error().message;
}

/// The result of one operator on byte operands of these shapes: "" or the error.
std::string operator_error(const std::string& type,
                           const std::vector<std::vector<std::int64_t>>& shapes,
                           const Attributes& attributes,
                           DType dtype = DType::kInt8) {
  OperatorSpec spec;
  spec.type = type;
  for (const auto& shape : shapes) spec.inputs.emplace_back(TensorType{shape, dtype});
  spec.attributes = attributes;
  spec.output_count = 1;
  const auto typed = infer_operator(spec);
  return typed ? "" : typed.error().message;
}

TEST_CASE("a dimension that shares huge factors is compared with their product") {
  const std::string text = "p q, (p q) -> p ; sum:q";
  CHECK(
      rule_error(text, {{{kHuge, kHuge}}, {{4}}}) ==
      "dimension 0 of operand 1 (shape [4]) is 4, but factor \"p q\" is more than 2^62 elsewhere");
  // one factor is left over
  CHECK(rule_error("p q, (p q r) -> p ; sum:q,r", {{{kHuge, kHuge}}, {{4}}}) ==
        "dimension 0 of operand 1 (shape [4]) is 4, but factor \"p q r\" is more than 2^62 "
        "elsewhere");
  const std::int64_t most = kMostTensorBytes;
  CHECK(rule_error("p, q, (p q) -> p ; sum:q", {{{most}}, {{1}}, {{most}}}) == "no error");
  CHECK(rule_error("p, q, (p q) -> p ; sum:q", {{{most / 2}}, {{2}}, {{most}}}) == "no error");
}

TEST_CASE("sizes that are given to a rule are sizes") {
  for (const std::int64_t size : {std::int64_t{0}, std::int64_t{-3}, kMostTensorBytes + 1}) {
    CHECK(rule_error("(g q) -> (g q)", {{{8}}}, {{"g", size}}) ==
          "the size of factor \"g\" is " + std::to_string(size) + ", expected 1 to 2^62");
  }
}

TEST_CASE("operators refuse sums and products of sizes beyond 64 bits") {
  const std::int64_t most = kMostTensorBytes;
  CHECK(operator_error("Conv",
                       {{1, 1, 4}, {1, 1, most}},
                       {{"dilations", std::vector<std::int64_t>{1'000'000'000}}}) ==
        "the width of a window exceeds 64 bits");
  // one step more than the whole dimension finds its first position alone
  CHECK(operator_error("Slice",
                       {{most}},
                       {{"starts", std::vector<std::int64_t>{0}},
                        {"ends", std::vector<std::int64_t>{INT64_MAX}},
                        {"steps", std::vector<std::int64_t>{INT64_MAX}}}) == "");
  CHECK(operator_error("Slice",
                       {{most}},
                       {{"starts", std::vector<std::int64_t>{-1}},
                        {"ends", std::vector<std::int64_t>{INT64_MIN}},
                        {"steps", std::vector<std::int64_t>{INT64_MIN}}}) == "");
  CHECK(operator_error("Attention",
                       {{1, 1, 1, 1},
                        {1, 1, most, 1},
                        {1, 1, most, 1},
                        {1, 1},
                        {1, 1, most, 1},
                        {1, 1, most, 1}},
                       {},
                       DType::kFp8E4M3) == "the number of keys exceeds 64 bits");
  CHECK(operator_error("RotaryEmbedding", {{1, 1, 1, 4}, {1, most}, {1, most}}, {})
            .find("expected half of the 4 elements") != std::string::npos);
}

}  // namespace
}  // namespace meshplan::size_limits_test

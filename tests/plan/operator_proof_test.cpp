// SPDX-License-Identifier: Apache-2.0
// Every rule, proven by execution: whatever a strategy cuts, results and gradients are those of the
// unsharded operator. Tolerance: 1e-9 relative to the larger of 1 and the number, in double.
#include "plan/operator_proof.h"

#include <algorithm>
#include <set>

#include "plan/operator_cases.h"
#include "support/catch.h"

namespace meshplan::operator_proof_test {

using namespace test;
namespace {

const std::vector<Sizes> kMeshes = {{2}, {3}, {2, 2}, {2, 3}, {2, 2, 2}};

std::string text_of(const OperatorCase& c) {
  std::string text = c.spec.type + "(";
  for (const auto& input : c.spec.inputs) {
    text += text.back() == '(' ? "" : ", ";
    if (!input) continue;
    text += "[";
    for (const std::int64_t size : input->shape) text += std::to_string(size) + " ";
    text += "]";
  }
  return text + ")";
}

struct Proof {
  std::size_t operators = 0;
  std::size_t strategies = 0;
};

/// Proves every case of one type under every strategy on every mesh.
void prove(const std::string& type, std::uint64_t seed, Proof& proof) {
  Random random(seed);
  for (const OperatorCase& c : operator_cases().at(type)(random)) {
    INFO("seed " << seed << ": " << text_of(c));
    auto typed = infer_operator(c.spec);
    if (!typed) FAIL(typed.error().message);
    auto whole = run_whole(c, *typed, random);
    if (!whole) FAIL(whole.error().message);
    ++proof.operators;
    for (const Sizes& mesh : kMeshes) {
      const auto info = std::make_shared<const OperatorInfo>(typed->rule, mesh);
      for (const Strategy& strategy : info->strategies()) {
        const auto wrong = disproof(c, *typed, *whole, info, strategy, random);
        ++proof.strategies;
        if (wrong)
          FAIL_CHECK(typed->rule->text << " as " << info->label(strategy) << " on mesh of "
                                       << mesh.size() << " axes: " << *wrong);
      }
    }
  }
}

void prove_every_type(std::uint64_t seed) {
  Proof proof;
  for (const std::string& type : operator_types()) {
    INFO(type);
    REQUIRE(operator_cases().contains(type));
    prove(type, seed, proof);
  }
  CHECK(proof.operators > 250);
  CHECK(proof.strategies > 15000);
}

TEST_CASE("every operator gives the same in shards as whole, forward and backward") {
  prove_every_type(1);
}

TEST_CASE("every operator gives the same in shards as whole with other numbers", "[.][slow]") {
  for (const std::uint64_t seed : {2U, 3U}) prove_every_type(seed);
}

TEST_CASE("an operator of the user's own gives the same in shards as whole, by its rule") {
  Proof proof;
  for (const std::uint64_t seed : {1U, 2U}) prove("Custom", seed, proof);
  CHECK(proof.operators > 40);
  CHECK(proof.strategies > 4000);
}

TEST_CASE("rules that no function follows are refused with the reason") {
  struct Row {
    std::string rule;
    std::vector<std::vector<std::int64_t>> operands;
    std::string reason;
  };
  const std::vector<Row> rows = {
      {"t d, e -> e d ; sum:t route:t=e lin:x",
       {{8, 2}, {4}},
       "a rule with a route does not say which token goes where"},
      {"a, a -> a ; lin:x+y lin:x", {{4}, {4}}, "an operand is linear in two ways at once"},
      {"a, a b -> a b ; stat:b",
       {{4}, {4, 6}},
       "statistics are taken of the first operand, which lacks a factor of them"},
      {"a b, b k -> a b ; sum:k add:y",
       {{4, 6}, {6, 2}},
       "an addend has a factor that a result lacks"},
      {"a, a -> a ; lin:y add:y", {{4}, {4}}, "an addend is linear without what it is added to"},
      {"s e, (t e) -> s ; ring:t=s whole:e", {{4, 2}, {8}}, "the keys of a ring share a dimension"},
      {"s, t -> s t ; ring:t=s", {{4}, {4}}, "a result has the keys of a ring"},
      {"a b -> a ; stat:a max:b", {{4, 6}}, "it has statistics and a reduction that is no sum"},
      {"a b -> a, a ; max:b", {{4, 6}}, "it has several results and a reduction that is no sum"},
      {"a b, a -> a ; max:b add:y",
       {{4, 6}, {4}},
       "it has an addend and a reduction that is no sum"},
      {"a b, a c -> a c ; max:b",
       {{4, 6}, {4, 2}},
       "the first operand lacks a factor of another, and the reduction is no sum"},
      {"a b c -> a ; max:b whole:c",
       {{4, 6, 2}},
       "the first operand has a factor that the result lacks, and the reduction is no sum"},
  };
  for (const Row& row : rows) {
    INFO(row.rule);
    std::vector<std::optional<std::vector<std::int64_t>>> shapes(row.operands.begin(),
                                                                 row.operands.end());
    const Result<Rule> rule = make_rule(row.rule, shapes);
    if (!rule) FAIL(rule.error().message);
    const Result<void> can = can_execute("Mine", *rule);
    REQUIRE_FALSE(can);
    CHECK(can.error().code == ErrorCode::kUnsupported);
    CHECK(can.error().message == "operators of type \"Mine\" cannot be executed: " + row.reason);
  }
}

}  // namespace
}  // namespace meshplan::operator_proof_test

// SPDX-License-Identifier: Apache-2.0
// Every rule, proven by execution: whatever a strategy cuts, results and gradients are those of the
// unsharded operator. Tolerance: 1e-9 relative to the larger of 1 and the number, in double.
#include "plan/operator_proof.h"

#include <algorithm>
#include <set>

#include "plan/operator_cases.h"
#include "support/catch.h"

namespace meshplan::test {
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

TEST_CASE("every operator gives the same in shards as whole, forward and backward") {
  Proof proof;
  for (const std::string& type : operator_types()) {
    INFO(type);
    REQUIRE(operator_cases().contains(type));
    for (const std::uint64_t seed : {1U, 2U}) prove(type, seed, proof);
  }
  CHECK(proof.operators > 500);
  CHECK(proof.strategies > 30000);
}

}  // namespace
}  // namespace meshplan::test

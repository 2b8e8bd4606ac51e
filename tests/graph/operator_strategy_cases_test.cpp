// SPDX-License-Identifier: Apache-2.0
// What another library expects of an operator's strategies: how many there are, what they give for
// operands laid out so, and that operands laid out otherwise are no strategy.
#include <algorithm>
#include <fstream>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "graph/operator_info.h"
#include "graph/operator_table.h"
#include "support/catch.h"

namespace meshplan::operator_strategy_cases_test {

using nlohmann::json;

namespace {

using Sizes = std::vector<std::int64_t>;
using Names = std::vector<std::string>;

/// By its rule, or of a built-in type.
std::shared_ptr<const Rule> rule_of(const json& one) {
  OperatorSpec spec;
  spec.type = one.value("type", "Custom");
  spec.rule = one.value("rule", "");
  for (const json& shape : one.at("in"))
    spec.inputs.emplace_back(TensorType{shape.get<Sizes>(), DType::kFp32});
  auto typed = infer_operator(spec);
  if (!typed) FAIL(typed.error().message);
  return typed->rule;
}

Names names_of(const OperatorInfo& info, const TensorState& state) {
  Names names;
  const int axes = static_cast<int>(info.mesh_shape().size());
  for (const Placement& placement : value_placements(state, axes, info.result_reduction()))
    names.push_back(to_string(placement));
  return names;
}

/// What the strategies give that read the operands as they are given.
std::set<Names> results(const OperatorInfo& info, const json& given) {
  std::set<Names> found;
  for (const Strategy& strategy : info.strategies()) {
    bool fits = true;
    for (std::size_t i = 0; fits && i < given.size(); ++i)
      fits = names_of(info, info.operand_state(strategy, i, true)) == given[i].get<Names>();
    if (fits) found.insert(names_of(info, info.result_state(strategy, 0)));
  }
  return found;
}

TEST_CASE("strategies are as many as another library's, and give what its give") {
  std::ifstream file(std::string(MESHPLAN_TEST_DATA) + "/operator_strategy_cases.json");
  const json cases = json::parse(file);
  CHECK(cases.size() == 19);
  std::set<std::string> ids;
  for (const json& one : cases) {
    const auto id = one.at("id").get<std::string>();
    INFO(id);
    CHECK(ids.insert(id).second);
    const OperatorInfo info(rule_of(one), one.at("mesh").get<Sizes>());
    if (one.contains("strategies")) {
      CHECK(info.strategies().size() == one.at("strategies").get<std::size_t>());
      continue;
    }
    const std::set<Names> found = results(info, one.at("given"));
    if (one.contains("refused")) {
      CHECK(found.empty());
      CHECK_FALSE(results(info, one.at("instead")).empty());
    } else {
      CHECK(found == std::set<Names>{one.at("out").get<Names>()});
    }
  }
}

}  // namespace

}  // namespace meshplan::operator_strategy_cases_test

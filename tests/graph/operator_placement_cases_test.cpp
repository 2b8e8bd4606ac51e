// SPDX-License-Identifier: Apache-2.0
// What operators of other libraries give for operands laid out so, or refuse, next to ours.
//
// A case names our operator (or a rule of a user's own), a mesh and the placements of its operands.
// Four answers are possible: a strategy takes the operands as they are ("same": and gives what
// theirs gives; "gives": something else); one takes them once a replicated operand is sliced where
// it lies, without communication ("slices"); none does, or there is no such operator ("refuses").
// A case without `ours` is answered as theirs is. Of several equal results the first is compared.
#include <algorithm>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "graph/operator_info.h"
#include "graph/operator_table.h"
#include "support/catch.h"

namespace meshplan::operator_placement_cases_test {

using nlohmann::json;

namespace {

using Sizes = std::vector<std::int64_t>;
using Names = std::vector<std::string>;

json read_data(const std::string& name) {
  std::ifstream file(std::string(MESHPLAN_TEST_DATA) + "/" + name);
  return json::parse(file);
}

Attribute attribute_of(const json& value) {
  if (value.is_boolean()) return static_cast<std::int64_t>(value.get<bool>());
  if (value.is_number_integer()) return value.get<std::int64_t>();
  if (value.is_number()) return value.get<double>();
  if (value.is_string()) return value.get<std::string>();
  return value.get<Sizes>();
}

Result<std::shared_ptr<const Rule>> rule_of(const json& op) {
  const json& shapes = op.at("in");
  if (op.contains("rule")) {
    std::vector<std::optional<Sizes>> operands;
    for (const json& shape : shapes) operands.emplace_back(shape.get<Sizes>());
    auto rule = make_rule(op.at("rule").get<std::string>(),
                          operands,
                          op.value("sizes", std::map<std::string, std::int64_t>()));
    if (!rule) return fail(rule.error());
    return std::make_shared<const Rule>(*std::move(rule));
  }
  OperatorSpec spec;
  spec.type = op.at("type").get<std::string>();
  const json attributes = op.value("attrs", json::object());
  for (const auto& [name, value] : attributes.items())
    spec.attributes.emplace(name, attribute_of(value));
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    const auto integers = op.value("integers", std::vector<std::size_t>());
    const bool integer = std::count(integers.begin(), integers.end(), i) > 0;
    spec.inputs.emplace_back(
        TensorType{shapes[i].get<Sizes>(), integer ? DType::kInt64 : DType::kFp32});
  }
  spec.output_count = op.value("outputs", 1);
  auto typed = infer_operator(spec);
  if (!typed) return fail(typed.error());
  return typed->rule;
}

Names names_of(const TensorState& state, std::size_t axes, Reduction reduction) {
  Names names;
  for (const Placement& placement : value_placements(state, static_cast<int>(axes), reduction))
    names.push_back(to_string(placement));
  return names;
}

/// Whether what is `given` can be read as `wanted` with nothing but local slices.
bool readable(const Names& given, const Names& wanted, bool slicing) {
  for (std::size_t axis = 0; axis < given.size(); ++axis) {
    const bool sliced = slicing && given[axis] == "R" && wanted[axis].front() == 'S';
    if (given[axis] != wanted[axis] && !sliced) return false;
  }
  return true;
}

struct Outcome {
  Names result;
  Sizes local;
};

/// What the strategies give that read the operands as they are given.
std::vector<Outcome> outcomes(const OperatorInfo& info, const json& given, bool slicing) {
  std::vector<Outcome> found;
  const std::size_t axes = info.mesh_shape().size();
  for (const Strategy& strategy : info.strategies()) {
    bool fits = true;
    for (std::size_t i = 0; fits && i < given.size(); ++i) {
      const Names wanted =
          names_of(info.operand_state(strategy, i, true), axes, info.result_reduction());
      fits = readable(given[i].get<Names>(), wanted, slicing);
    }
    if (!fits) continue;
    const TensorState state = info.result_state(strategy, 0);
    found.push_back({names_of(state, axes, info.result_reduction()),
                     local_shape(info.rule().results[0].shape, state, info.mesh_shape())});
  }
  return found;
}

bool holds(const std::vector<Outcome>& list, const Names& result, const json& local) {
  return std::any_of(list.begin(), list.end(), [&](const Outcome& one) {
    return one.result == result && (local.is_null() || one.local == local.get<Sizes>());
  });
}

std::string text_of(const std::vector<Outcome>& list) {
  std::set<std::string> texts;
  for (const Outcome& one : list) texts.insert(json(one.result).dump());
  std::string text;
  for (const std::string& one : texts) text += (text.empty() ? "" : " ") + one;
  return text;
}

/// The answer, and for "gives" what.
std::string answer_to(const json& one, std::string* given_back) {
  const auto rule = rule_of(one.at("op"));
  if (!rule) {
    *given_back = rule.error().message;
    return "refuses";
  }
  const OperatorInfo info(*rule, one.at("mesh").get<Sizes>());
  const auto exact = outcomes(info, one.at("given"), false);
  *given_back = text_of(exact);
  if (one.contains("out")) {
    const auto out = one.at("out").get<Names>();
    const json local = one.value("local", json());
    if (holds(exact, out, local)) return "same";
    if (!exact.empty()) return "gives";
    const auto sliced = outcomes(info, one.at("given"), true);
    *given_back = text_of(sliced);
    if (holds(sliced, out, local)) return "slices";
    return sliced.empty() ? "refuses" : "slices to another";
  }
  return exact.empty() ? "refuses" : "gives";
}

/// All ways to write `devices` as up to four axes longer than 1.
std::vector<Sizes> meshes_of(std::int64_t devices) {
  std::vector<Sizes> meshes = {{devices}};
  for (std::int64_t a = 2; a < devices; ++a) {
    if (devices % a != 0) continue;
    for (const Sizes& rest : meshes_of(devices / a)) {
      if (rest.size() > 3) continue;
      meshes.push_back({a});
      meshes.back().insert(meshes.back().end(), rest.begin(), rest.end());
    }
  }
  return meshes;
}

/// Into how many pieces a strategy cuts every dimension of every operand.
std::vector<Sizes> splits_of(const OperatorInfo& info, const Strategy& strategy) {
  std::vector<Sizes> splits;
  const Rule& rule = info.rule();
  for (std::size_t i = 0; i < rule.operands.size(); ++i) {
    Sizes pieces(rule.operands[i].shape.size(), 1);
    const TensorState state = info.operand_state(strategy, i, true);
    for (std::size_t axis = 0; axis < info.mesh_shape().size(); ++axis) {
      const AxisState s = state[static_cast<int>(axis)];
      if (is_sharded(s)) pieces[s] *= info.mesh_shape()[axis];
    }
    splits.push_back(pieces);
  }
  return splits;
}

/// Strategies of one operator whose operands are cut into these pieces.
std::vector<Strategy> cutting(const OperatorInfo& info, const std::vector<Sizes>& splits) {
  std::vector<Strategy> found;
  for (const Strategy& strategy : info.strategies()) {
    if (!info.passes_partial(strategy) && splits_of(info, strategy) == splits)
      found.push_back(strategy);
  }
  return found;
}

struct Listed {
  std::map<std::string, json> deviating;
  std::set<std::string> skipped;
};

/// Every deviating or skipped case gives its reason.
Listed listed(const json& file) {
  Listed all;
  for (const json& group : file.at("deviating")) {
    CHECK(group.at("reason").get<std::string>().size() > 20);
    for (const auto& [id, ours] : group.at("ids").items()) all.deviating.emplace(id, ours);
  }
  for (const json& one : file.at("skipped")) {
    CHECK(one.at("reason").get<std::string>().size() > 20);
    all.skipped.insert(one.at("id").get<std::string>());
  }
  return all;
}

}  // namespace

TEST_CASE(
    "Placements in and out of operators are those of another library, or differ for a reason") {
  const json cases = read_data("operator_placement_cases.json");
  const Listed differs = listed(read_data("operator_placement_deviations.json"));
  std::set<std::string> deviated;
  for (const json& one : cases) {
    const auto id = one.at("id").get<std::string>();
    INFO(one.dump());
    std::string back;
    const std::string answer = answer_to(one, &back);
    INFO("ours: " << answer << " " << back);
    const auto deviation = differs.deviating.find(id);
    if (deviation == differs.deviating.end()) {
      CHECK(answer == (one.contains("out") ? "same" : "refuses"));
      continue;
    }
    deviated.insert(id);
    CHECK(answer != (one.contains("out") ? "same" : "refuses"));
    // the answer alone, or with what ours gives
    const json& ours = deviation->second;
    if (ours.is_string()) {
      CHECK(answer == ours.get<std::string>());
    } else {
      CHECK((answer == "gives" || answer == "slices to another"));
      CHECK(back.find(ours.dump()) != std::string::npos);
    }
  }
  CHECK(deviated.size() == differs.deviating.size());
  CHECK(cases.size() + differs.skipped.size() == 343);
  CHECK(differs.skipped.size() * 10 <= 343);
}

TEST_CASE("Strategies as numbers of pieces are those of another planner, or differ for a reason") {
  const json cases = read_data("operator_split_cases.json");
  const Listed differs = listed(read_data("operator_split_deviations.json"));
  std::set<std::string> deviated;
  for (const json& one : cases) {
    const auto id = one.at("id").get<std::string>();
    INFO(one.dump());
    const auto rule = rule_of(one.at("op"));
    std::string answer;
    if (one.contains("candidates")) {
      REQUIRE(rule.has_value());
      std::set<std::vector<Sizes>> candidates;
      for (const Sizes& mesh : meshes_of(one.at("devices").get<std::int64_t>())) {
        const OperatorInfo info(*rule, mesh);
        for (const Strategy& strategy : info.strategies()) {
          int unused = 0;
          for (int axis = 0; axis < static_cast<int>(mesh.size()); ++axis)
            unused += info.action(strategy, axis).kind == AxisAction::Kind::kNone ? 1 : 0;
          // all devices work on parts, or all on the whole
          if (!info.passes_partial(strategy) && (unused == 0 || unused == std::ssize(mesh)))
            candidates.insert(splits_of(info, strategy));
        }
      }
      answer = std::to_string(candidates.size());
      CHECK(answer == std::to_string(one.at("candidates").get<std::size_t>()));
      if (one.value("free", false)) {
        CHECK((*rule)->flops(std::vector<std::int64_t>((*rule)->factors.size(), 2)) == 0);
        CHECK((*rule)->family == OperatorFamily::kView);
      }
      if (one.contains("among")) {
        for (const json& splits : one.at("among"))
          CHECK(candidates.count(splits.get<std::vector<Sizes>>()) == 1);
      }
      continue;
    }
    const auto splits = one.at("splits").get<std::vector<Sizes>>();
    bool taken = false;
    std::string others;
    if (rule) {
      for (const json& mesh : one.at("meshes")) {
        const OperatorInfo info(*rule, mesh.get<Sizes>());
        for (const Strategy& strategy : cutting(info, splits)) {
          json local = json::array();
          for (std::size_t i = 0; i < (*rule)->operands.size(); ++i)
            local.push_back(local_shape((*rule)->operands[i].shape,
                                        info.operand_state(strategy, i, true),
                                        info.mesh_shape()));
          const TensorState state = info.result_state(strategy, 0);
          const Sizes& result = (*rule)->results[0].shape;
          const Sizes piece = local_shape(result, state, info.mesh_shape());
          Sizes cut_out;
          for (std::size_t d = 0; d < result.size(); ++d) cut_out.push_back(result[d] / piece[d]);
          const TensorState last = info.operand_state(strategy, (*rule)->operands.size() - 1, true);
          int sums = 0;
          for (const AxisState axis : state.axes) sums += axis == kPartialState ? 1 : 0;
          // theirs: a gradient that is summed over copies of the parameter (the last operand)
          const bool mirrored =
              std::count(last.axes.begin(), last.axes.end(), kGradientPartialState) > 0;
          const json facts{{"local", local},
                           {"out", piece},
                           {"cut_out", cut_out},
                           {"sums", sums},
                           {"mirrors", mirrored ? 1 : 0}};
          // of strategies that cut the operands alike, one cuts the result as theirs does
          bool agrees = true;
          for (const char* key : {"local", "out", "cut_out", "sums", "mirrors"})
            agrees = agrees && (!one.contains(key) || facts.at(key) == one.at(key));
          taken = taken || agrees;
          others += facts.dump();
        }
      }
    }
    const bool deviates = differs.deviating.count(id) > 0;
    if (deviates) deviated.insert(id);
    INFO((rule ? others : rule.error().message));
    CHECK(taken == (one.value("refused", false) == deviates));
  }
  CHECK(deviated.size() == differs.deviating.size());
  std::set<std::string> replayed;
  for (const json& one : cases) replayed.insert(one.at("id").get<std::string>());
  for (const json& one : read_data("layout_equivalence_cases.json"))
    replayed.insert(one.at("id").get<std::string>());
  for (const std::string& id : differs.skipped) CHECK(replayed.count(id) == 0);
  CHECK(replayed.size() + differs.skipped.size() == 126);
}

}  // namespace meshplan::operator_placement_cases_test

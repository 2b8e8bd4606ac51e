// SPDX-License-Identifier: Apache-2.0
#include "plan/plan_json.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "plan/random_plan.h"
#include "support/catch.h"

namespace meshplan::plan_json_test {
namespace {

using testing::RandomPlan;

/// JSON with ' for ".
nlohmann::json parse(std::string text) {
  std::replace(text.begin(), text.end(), '\'', '"');
  return nlohmann::json::parse(text);
}

TEST_CASE("reading what was written gives the same plan") {
  for (unsigned seed = 0; seed < 200; ++seed) {
    INFO("seed " << seed);
    const int layers = 1 + static_cast<int>(seed % 7);
    const Plan plan = RandomPlan(seed).make(layers, 4);
    const std::string text = write_plan(plan);
    const Result<Plan> read = read_plan(text, "p.json");
    INFO((read ? std::string() : to_string(read.error())));
    REQUIRE(read);
    CHECK(*read == plan);
    CHECK(write_plan(*read) == text);
  }
}

TEST_CASE("names that look like patterns switch folding off and survive") {
  Plan plan = RandomPlan(1).make(3, 2);
  plan.tensors[0].name = "odd.{0..3}.name";
  const std::string text = write_plan(plan);
  CHECK(text.find("\"folded\": false") != std::string::npos);
  const Result<Plan> read = read_plan(text, "p.json");
  REQUIRE(read);
  CHECK(*read == plan);
}

TEST_CASE("a plan of many equal layers is as small as one of few") {
  const auto lines = [](int layers) {
    Plan plan = RandomPlan(7).make(1, 3);
    const Plan first = plan;
    for (int layer = 1; layer < layers; ++layer) {
      const auto rename = [&](std::string& name) {
        const std::size_t at = name.find("layers.0.");
        if (at != std::string::npos) name.replace(at, 9, "layers." + std::to_string(layer) + ".");
      };
      for (PlanTensor tensor : first.tensors) {
        rename(tensor.name);
        rename(tensor.reason);
        for (PlanSaved& saved : tensor.saved) rename(saved.readers[0]);
        if (tensor.name.find("experts") == std::string::npos) plan.tensors.push_back(tensor);
      }
      for (PlanOperator op : first.operators) {
        rename(op.name);
        plan.operators.push_back(op);
      }
    }
    const std::string text = write_plan(plan);
    REQUIRE(read_plan(text, "p"));
    CHECK(*read_plan(text, "p") == plan);
    return std::count(text.begin(), text.end(), '\n');
  };
  CHECK(lines(200) <= lines(3) + 2);
}

TEST_CASE("the document has one line per tensor, operator and redistribution") {
  const Plan plan = RandomPlan(3).make(1, 2);
  const std::string text = write_plan(plan);
  std::size_t entries = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\n', begin);
    const std::string line = text.substr(begin, end - begin);
    if (line.rfind("    \"layers.0.", 0) == 0 || line.rfind("    {\"", 0) == 0) ++entries;
    begin = end + 1;
  }
  CHECK(entries == plan.tensors.size() + plan.operators.size() + plan.redistributions.size() +
                       plan.groups.size() + plan.baselines.size() + plan.breakdown.size() +
                       plan.at_peak.size());
}

TEST_CASE("the document is the one of the format's description") {
  Plan plan;
  plan.generator_version = "0.1.0";
  plan.graph = {"mlp", "sha256:ab"};
  plan.cluster = {"c", "sha256:cd", 2};
  plan.mesh = {{2}, {"tp"}, {}, {}};
  plan.result = {PlanStatus::kOptimal, Seconds{0.5}, Seconds{0.5}, 0.0, "dp", std::nullopt};
  PlanTensor x;
  x.name = "x";
  x.shape = {4, 8};
  x.dtype = "bf16";
  x.placements = {Shard{1}};
  x.tensor_map = {{}, {0}};
  x.local_shape = {4, 4};
  x.saved = {{{Shard{1}}, {"fc"}, Saved::kKept}};
  plan.tensors = {x};
  PlanRedistribution sum;
  sum.tensor = "y";
  sum.producer = "fc";
  sum.consumers = {{"add", std::nullopt}};
  sum.from = {Partial{}};
  sum.to = {Replicate{}};
  PlanStep step;
  step.reduction = Reduction::kSum;
  step.axes = {"tp"};
  step.bytes = 64;
  step.time = {0.25};
  step.placements = {Replicate{}};
  sum.steps = {step};
  plan.redistributions = {sum};
  const auto json = nlohmann::json::parse(write_plan(plan));
  CHECK(json["schema"] == "meshplan.plan/1.0");
  CHECK(json["stages"] == parse("[{'operators': 'all', 'devices': 'all'}]"));
  CHECK(json["mesh"] == parse("{'shape': [2], 'axes': ['tp'], 'ranks': 'row-major'}"));
  CHECK(json["result"] == parse("{'status': 'optimal', 'objective': 0.5, 'lower_bound': 0.5, "
                                "'gap': 0.0, 'found_by': 'dp'}"));
  CHECK(json["tensors"]["x"] ==
        parse("{'shape': [4, 8], 'dtype': 'bf16', 'placements': ['S(1)'], 'tensor_map': [-1, 0], "
              "'local_shape': [4, 4], 'gradient': null, "
              "'saved': [{'placements': ['S(1)'], 'for': ['fc'], 'backward': 'kept'}]}"));
  CHECK(json["redistributions"] ==
        parse("[{'tensor': 'y', 'producer': 'fc', 'consumers': ['add'], 'phase': 'forward', "
              "'per': 'microbatch', 'from': ['P(sum)'], 'to': ['R'], "
              "'steps': [{'collective': 'all_reduce', 'reduction': 'sum', 'axes': ['tp'], "
              "'bytes': 64, 'time': 0.25, 'placements': ['R']}]}]"));
}

/// The error of reading `json` after an edit.
template <class Edit>
std::string error_after(Edit edit) {
  auto json = nlohmann::json::parse(write_plan(RandomPlan(4).make(1, 1)));
  edit(json);
  const Result<Plan> read = read_plan(json.dump(), "p.json");
  return read ? "" : to_string(read.error());
}

TEST_CASE("faults are named with their place") {
  using Json = nlohmann::json;
  CHECK(error_after([](Json&) {}).empty());
  CHECK(read_plan("{", "p.json").error().code == ErrorCode::kInput);
  CHECK(read_plan("[]", "p.json").error().where == "p.json");
  const auto starts = [](const std::string& error, const std::string& begin) {
    INFO(error);
    CHECK(error.rfind(begin, 0) == 0);
    return error;
  };
  starts(error_after([](Json& j) { j["schema"] = "meshplan.plan/2.0"; }), "p.json: /schema: ");
  starts(error_after([](Json& j) { j["schema"] = "meshplan.graph/1.0"; }), "p.json: /schema: ");
  starts(error_after([](Json& j) { j.erase("memory"); }), "p.json: the key \"memory\" is missing");
  const std::string hint =
      starts(error_after([](Json& j) { j["tensor"] = 1; }), "p.json: /tensor: unknown key");
  CHECK(hint.find("tensors") != std::string::npos);
  starts(error_after([](Json& j) { j["memory"]["peak"] = "1GiB"; }), "p.json: /memory/peak: ");
  starts(error_after([](Json& j) { j["memory"]["peak"] = 1.5; }), "p.json: /memory/peak: ");
  starts(error_after([](Json& j) { j["options"]["serch"] = 1; }), "p.json: /options/serch: ");
  starts(error_after([](Json& j) { j["options"]["search"] = "dq"; }),
         "p.json: /options/search: expected auto, dp, propagation or sapp, found \"dq\"");
  starts(
      error_after([](Json& j) { j["options"]["recompute"] = "some"; }),
      "p.json: /options/recompute: expected none, selective, selective-op or full, found \"some\"");
  starts(error_after([](Json& j) { j["result"]["found_by"] = "sap"; }),
         "p.json: /result/found_by: expected dp, propagation or sapp, found \"sap\"; did you mean "
         "\"sapp\"?");
  starts(error_after([](Json& j) { j["operators"][0]["out_placements"][0][1] = "Q"; }),
         "p.json: /operators/0/out_placements/0/1: ");
  starts(error_after([](Json& j) { j["redistributions"][0]["phase"] = "forwards"; }),
         "p.json: /redistributions/0/phase: expected forward, backward, regather, gradient, "
         "update or recompute, found \"forwards\"; did you mean \"forward\"?");
  starts(error_after([](Json& j) { j["redistributions"][0]["operands"] = Json::array({1}); }),
         "p.json: /redistributions/0/operands: ");
  starts(error_after([](Json& j) { j["operators"][0]["name"] = "x.{3..1}"; }),
         "p.json: /operators/0: ");
  starts(error_after([](Json& j) { j["operators"][0]["name"] = "x.{0..999999999}"; }),
         "p.json: /operators/0: ");
  // an order that does not fit the entries is no fault
  CHECK(error_after([](Json& j) { j["order"] = {{"operators", {{5, -1, 100}}}}; }).empty());
}

TEST_CASE("whatever is cut off or replaced, reading ends with a value or an error") {
  const std::string text = write_plan(RandomPlan(5).make(2, 2));
  std::mt19937 random(11);
  for (int round = 0; round < 2000; ++round) {
    std::string broken = text;
    const std::size_t at = random() % broken.size();
    switch (random() % 3) {
      case 0:
        broken.resize(at);
        break;
      case 1:
        broken[at] = static_cast<char>(random() % 128);
        break;
      default:
        broken.erase(at, random() % 40);
        break;
    }
    const Result<Plan> read = read_plan(broken, "p.json");
    if (!read) CHECK_FALSE(read.error().message.empty());
  }
}

TEST_CASE("a large plan whose layers all differ survives as well") {
  const Plan plan = RandomPlan(6).make(100, 60);
  const Result<Plan> read = read_plan(write_plan(plan), "p.json");
  REQUIRE(read);
  CHECK(*read == plan);
}

}  // namespace
}  // namespace meshplan::plan_json_test

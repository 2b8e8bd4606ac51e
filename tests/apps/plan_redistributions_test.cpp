// SPDX-License-Identifier: Apache-2.0
// The redistributions in a plan are those that `meshplan redistribute` gives between the same two
// layouts on the same cluster: the same steps, the same bytes, the same price to the last bit.
#include <algorithm>
#include <initializer_list>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "support/catch.h"
#include "support/run_program.h"

namespace meshplan::plan_redistributions_test {
namespace {

using nlohmann::json;

json steps_of(const json& entry, std::initializer_list<const char*> keys) {
  json steps = json::array();
  for (const json& step : entry.at("steps")) {
    json kept;
    for (const char* key : keys) {
      if (step.contains(key)) kept[key] = step.at(key);
    }
    steps.push_back(std::move(kept));
  }
  return steps;
}

TEST_CASE("Every edge of a plan is what redistribute gives, and the plan's price adds them up") {
  const test::TemporaryFolder folder;
  const std::string graph = std::string(MESHPLAN_SOURCE_DIR) + "/examples/mlp/graph.json";
  const std::string head =
      R"json({"schema": "meshplan.constraints/1.0", "mesh": {"shape": [2, 4], "axes": ["a", "b"]}, "tensors": )json";
  // Layouts that no one would want, so that there is much to move.
  const std::vector<std::string> constraints = {
      head + R"json({"x": {"placements": ["S(0)", "S(1)"]}, "h0": {"placements": ["S(1)", "S(0)"]},
                     "a0": {"placements": ["S(0)", "S(1)"]}, "y0": {"placements": ["S(1)", "S(0)"]},
                     "h1": {"placements": ["S(0)", "S(1)"]}, "a1": {"placements": ["S(1)", "S(1)"]},
                     "y1": {"placements": ["R", "S(1)"]}}})json",
      head + R"json({"x": {"placements": ["S(1)", "S(0)"]}, "h0": {"placements": ["R", "S(1)"]},
                     "a0": {"placements": ["S(1)", "R"]}, "y0": {"placements": ["S(0)", "P(sum)"]},
                     "h1": {"placements": ["S(1)", "S(0)"]}, "y1": {"placements": ["P(sum)", "S(1)"]}}})json"};
  std::size_t edges = 0;
  std::size_t longest = 0;
  for (const std::string& text : constraints) {
    const std::string file = folder.file("plan.json");
    const test::ProgramRun run = test::run_program({"plan",
                                                    graph,
                                                    "--cluster",
                                                    "dgx-a100-80g",
                                                    "--devices",
                                                    "8",
                                                    "--constraints",
                                                    folder.write("constraints.json", text),
                                                    "-o",
                                                    file});
    INFO(run.err);
    REQUIRE(run.exit_code == 0);
    const json plan = json::parse(test::file_text(file));
    std::vector<json> entries;
    json requests = json::array();
    for (const json& entry : plan.at("redistributions")) {
      const json& tensor = plan.at("tensors").at(entry.at("tensor").get<std::string>());
      if (tensor.contains("optimizer_state")) continue;  // parameters travel in buckets
      entries.push_back(entry);
      requests.push_back(
          {{"mesh", {{"shape", plan["mesh"]["shape"]}, {"axes", plan["mesh"]["axes"]}}},
           {"shape", tensor.at("shape")},
           {"dtype", tensor.at("dtype")},
           {"cluster", "dgx-a100-80g"},
           {"from", entry.at("from")},
           {"to", entry.at("to")}});
    }
    const test::ProgramRun answer =
        test::run_program({"redistribute", "--batch", "-"}, requests.dump());
    REQUIRE(answer.exit_code == 0);
    const json answers = json::parse(answer.out);
    REQUIRE(answers.size() == entries.size());
    for (std::size_t i = 0; i < entries.size(); ++i) {
      INFO(entries[i].dump());
      const auto keys = {"collective", "axes", "reduction", "bytes", "time", "placements"};
      CHECK(steps_of(entries[i], keys) == steps_of(answers[i], keys));
      longest = std::max(longest, entries[i].at("steps").size());
    }
    edges += entries.size();

    // The checker, which adds the prices up on its own, accepts the plan and no other sum.
    const std::vector<std::string> check = {
        "check", file, "--graph", graph, "--cluster", "dgx-a100-80g"};
    CHECK(test::run_program(check).exit_code == 0);
    json other = plan;
    for (json& entry : other["redistributions"]) {
      if (entry.at("phase") != "forward" || entry.at("steps").empty()) continue;
      entry["steps"][0]["time"] = entry["steps"][0]["time"].get<double>() * 2;
      break;
    }
    folder.write("plan.json", other.dump());
    CHECK(test::run_program(check).exit_code == 5);
  }
  CHECK(edges == 24);
  CHECK(longest == 3);
}

}  // namespace
}  // namespace meshplan::plan_redistributions_test

// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>

#include "support/catch.h"
#include "support/run_program.h"

namespace meshplan::verify_command_test {
namespace {

using nlohmann::json;

const std::string kGraph = std::string(MESHPLAN_SOURCE_DIR) + "/examples/mlp/graph.json";

std::string planned(const test::TemporaryFolder& folder) {
  const std::string file = folder.file("plan.json");
  const test::ProgramRun run = test::run_program({"plan",
                                                  kGraph,
                                                  "--cluster",
                                                  "dgx-a100-80g",
                                                  "--devices",
                                                  "8",
                                                  "--mesh",
                                                  "a=2,b=4",
                                                  "-o",
                                                  file});
  INFO(run.err);
  REQUIRE(run.exit_code == 0);
  return file;
}

json read_json(const std::string& file) {
  std::ifstream in(file);
  return json::parse(in);
}

TEST_CASE("meshplan verify runs a plan and says what it ran") {
  const test::TemporaryFolder folder;
  const std::string plan = planned(folder);
  test::ProgramRun run = test::run_program({"verify", plan, "--graph", kGraph});
  INFO(run.err);
  REQUIRE(run.exit_code == 0);
  CHECK(run.out.find("the plan computes what the graph says: ") == 0);
  CHECK(run.out.find(" on a 2x4 mesh") != std::string::npos);

  run = test::run_program({"verify", plan, "--graph", kGraph, "--seed", "7", "--format", "json"});
  REQUIRE(run.exit_code == 0);
  const json told = json::parse(run.out);
  CHECK(told.at("valid") == true);
  CHECK(told.at("mesh") == json({2, 4}));
  CHECK(told.at("comparisons") > 0);
}

TEST_CASE("meshplan verify ends with 5 where a plan computes something else") {
  const test::TemporaryFolder folder;
  const json right = read_json(planned(folder));
  auto verify = [&](const json& plan, std::vector<std::string> more = {}) {
    std::vector<std::string> words = {
        "verify", folder.write("broken.json", plan.dump()), "--graph", kGraph};
    words.insert(words.end(), more.begin(), more.end());
    return test::run_program(words);
  };
  json plan = right;
  bool found = false;
  for (json& entry : plan.at("redistributions")) {
    for (json& step : entry.at("steps")) {
      if (!step.contains("reduction")) continue;
      step["reduction"] = "max";
      found = true;
    }
  }
  REQUIRE(found);
  test::ProgramRun run = verify(plan);
  CHECK(run.exit_code == 5);
  CHECK(run.out.find("the plan diverges: ") == 0);
  run = verify(plan, {"--format", "json"});
  CHECK(run.exit_code == 5);
  const json told = json::parse(run.out);
  CHECK(told.at("valid") == false);
  CHECK(told.at("divergence").contains("operator"));
  CHECK(told.at("divergence").contains("tensor"));
  CHECK(told.at("divergence").contains("phase"));

  plan = right;
  plan["graph"]["fingerprint"] = "sha256:0";
  run = verify(plan);
  CHECK(run.exit_code == 5);
  CHECK(run.err.find("broken.json: /graph/fingerprint: the plan was made for another graph") !=
        std::string::npos);

  plan = right;
  plan["options"]["microbatches"] = 0;
  CHECK(verify(plan).exit_code == 5);
  plan = right;
  plan["operators"].erase(0);
  run = verify(plan);
  CHECK(run.exit_code == 5);
  CHECK(run.err.find("/operators") != std::string::npos);
}

TEST_CASE("meshplan verify ends with 3 where a file is wrong") {
  const test::TemporaryFolder folder;
  const std::string plan = planned(folder);
  CHECK(test::run_program({"verify", folder.file("none.json"), "--graph", kGraph}).exit_code == 3);
  CHECK(test::run_program({"verify", plan, "--graph", folder.file("none.json")}).exit_code == 3);
  CHECK(test::run_program({"verify", plan}).exit_code == 2);
  CHECK(test::run_program({"verify", "-", "--graph", "-"}).exit_code == 2);
}

}  // namespace
}  // namespace meshplan::verify_command_test

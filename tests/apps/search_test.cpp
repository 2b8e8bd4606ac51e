// SPDX-License-Identifier: Apache-2.0
// `plan --search`: which search found the plan, and that each plan checks.
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "support/catch.h"
#include "support/run_program.h"

namespace meshplan::search_test {
namespace {

using nlohmann::json;

const std::string kMlp = MESHPLAN_SOURCE_DIR "/examples/mlp/graph.json";

test::ProgramRun plan_mlp(const std::string& file, const std::vector<std::string>& more) {
  std::vector<std::string> words = {
      "plan", kMlp, "--cluster", "dgx-a100-80g", "--devices", "8", "-o", file};
  words.insert(words.end(), more.begin(), more.end());
  return test::run_program(words);
}

void check_plan_file(const std::string& file, const std::string& graph) {
  const test::ProgramRun check =
      test::run_program({"check", file, "--graph", graph, "--cluster", "dgx-a100-80g"});
  INFO(check.out << check.err);
  CHECK(check.exit_code == 0);
}

TEST_CASE("every search of the table plans, and its plan checks") {
  const test::TemporaryFolder folder;
  double exact = 0;
  for (const char* name : {"dp", "auto", "sapp"}) {
    INFO(name);
    const std::string file = folder.file(std::string(name) + ".json");
    const test::ProgramRun run = plan_mlp(file, {"--search", name});
    INFO(run.err);
    REQUIRE(run.exit_code == 0);
    check_plan_file(file, kMlp);
    const json plan = json::parse(test::file_text(file));
    const json& result = plan.at("result");
    CHECK(plan.at("options").at("search") == name);
    const double objective = result.at("objective").get<double>();
    if (std::string(name) == "dp") exact = objective;
    if (std::string(name) == "sapp") {
      CHECK(result.at("found_by") == "sapp");
      CHECK(result.at("status") == "feasible");
      CHECK(result.at("lower_bound").is_null());
      CHECK(objective >= exact);
      CHECK(plan.at("notes").dump().find("operators follow the one before them") !=
            std::string::npos);
      CHECK_FALSE(plan.at("options").contains("sapp"));
    } else {
      CHECK(objective == exact);
      CHECK(result.at("status") == "optimal");
    }
  }
}

TEST_CASE("rounds may be greedy") {
  const test::TemporaryFolder folder;
  const std::string file = folder.file("plan.json");
  const test::ProgramRun run = plan_mlp(file, {"--search", "sapp", "--sapp", "greedy"});
  INFO(run.err);
  REQUIRE(run.exit_code == 0);
  check_plan_file(file, kMlp);
  CHECK(json::parse(test::file_text(file)).at("options").at("sapp") == "greedy");
}

TEST_CASE("a search that does not exist is refused") {
  const test::TemporaryFolder folder;
  for (const auto& words : {std::vector<std::string>{"--search", "annealing"},
                            std::vector<std::string>{"--sapp", "lazy"},
                            std::vector<std::string>{"--search", "dp", "--sapp", "greedy"}}) {
    const test::ProgramRun run = plan_mlp(folder.file("plan.json"), words);
    CHECK(run.exit_code == 2);
    CHECK(run.err.find(words[words.size() - 2]) != std::string::npos);
    if (words.size() == 2) CHECK(run.err.find(words.back()) != std::string::npos);
  }
}

TEST_CASE("without time for exact search SAPP's plan is the answer") {
  const test::TemporaryFolder folder;
  const std::string graph = folder.file("graph.json");
  REQUIRE(test::run_program({"import",
                             "hf",
                             MESHPLAN_SOURCE_DIR "/configs/models/qwen1_5_moe_a2_7b.json",
                             "--layers",
                             "8",
                             "--batch",
                             "64",
                             "--seq",
                             "2048",
                             "-o",
                             graph})
              .exit_code == 0);
  const std::string file = folder.file("plan.json");
  const test::ProgramRun run = test::run_program({"plan",
                                                  graph,
                                                  "--cluster",
                                                  "dgx-a100-80g",
                                                  "--devices",
                                                  "32",
                                                  "--time-limit",
                                                  "1ms",
                                                  "-o",
                                                  file});
  INFO(run.err);
  REQUIRE(run.exit_code == 0);
  const json plan = json::parse(test::file_text(file));
  CHECK(plan.at("result").at("found_by") == "sapp");
  CHECK(plan.at("notes").dump().find("stopped early") != std::string::npos);
  check_plan_file(file, graph);
}

TEST_CASE("where nothing fits SAPP says the least that is needed, as exact search does") {
  const test::TemporaryFolder folder;
  const std::string file = folder.file("plan.json");
  std::string messages;
  for (const char* name : {"dp", "sapp"}) {
    const test::ProgramRun run = plan_mlp(file, {"--search", name, "--memory-limit", "1MiB"});
    CHECK(run.exit_code == 4);
    CHECK(run.err.find("every plan needs at least") != std::string::npos);
    if (!messages.empty()) CHECK(run.err == messages);
    messages = run.err;
  }
}

}  // namespace
}  // namespace meshplan::search_test

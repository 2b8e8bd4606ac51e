// SPDX-License-Identifier: Apache-2.0
// Searches that end early, at a time limit or at Ctrl-C: a plan that checks, never called optimal.
#include <chrono>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "apps/search_control.h"
#include "support/catch.h"
#include "support/run_program.h"

namespace meshplan::stopped_search_test {
namespace {

using nlohmann::json;

/// A job whose whole search takes seconds in any build: 70B on 512 devices, all meshes.
std::string large_graph(const test::TemporaryFolder& folder) {
  const std::string graph = folder.file("graph.json");
  REQUIRE(test::run_program({"import",
                             "hf",
                             MESHPLAN_SOURCE_DIR "/configs/models/llama2_70b.json",
                             "--batch",
                             "512",
                             "--seq",
                             "4096",
                             "-o",
                             graph})
              .exit_code == 0);
  return graph;
}

std::vector<std::string> plan_command(const std::string& graph, const std::string& file) {
  return {"plan",
          graph,
          "--cluster",
          "dgx-a100-80g",
          "--devices",
          "512",
          "--mesh",
          "all",
          "--recompute",
          "full",
          "-o",
          file};
}

void check_stopped(const std::string& graph, const std::string& file) {
  const json plan = json::parse(test::file_text(file));
  CHECK(plan.at("result").at("status") == "feasible");
  REQUIRE(plan.contains("notes"));
  CHECK(plan.at("notes").dump().find("the search was stopped early") != std::string::npos);
  const json& bound = plan.at("result").at("lower_bound");
  if (!bound.is_null())
    CHECK(bound.get<double>() <= plan.at("result").at("objective").get<double>());
  const test::ProgramRun check =
      test::run_program({"check", file, "--graph", graph, "--cluster", "dgx-a100-80g"});
  INFO(check.out << check.err);
  CHECK(check.exit_code == 0);
}

TEST_CASE("a time limit ends the search with a plan, however short it is") {
  const test::TemporaryFolder folder;
  const std::string graph = large_graph(folder);
  for (const char* limit : {"1us", "0.7"}) {
    INFO(limit);
    const std::string file = folder.file(std::string(limit) + ".json");
    std::vector<std::string> command = plan_command(graph, file);
    command.insert(command.end(), {"--time-limit", limit});
    const test::ProgramRun run = test::run_program(command);
    INFO(run.err);
    REQUIRE(run.exit_code == 0);
    CHECK(run.err.empty());  // no progress where there is no terminal
    check_stopped(graph, file);
  }
}

TEST_CASE("a time limit that is no time is refused") {
  for (const char* limit : {"0", "-1", "soon", "5GB"}) {
    const test::ProgramRun run = test::run_program({"plan",
                                                    MESHPLAN_SOURCE_DIR "/examples/mlp/graph.json",
                                                    "--cluster",
                                                    "dgx-a100-80g",
                                                    "--time-limit=" + std::string(limit)});
    INFO(limit << ": " << run.err);
    CHECK(run.exit_code == 2);
    CHECK(run.err.find("--time-limit") != std::string::npos);
  }
}

TEST_CASE("a limit that is not reached changes nothing but the option") {
  const std::vector<std::string> command = {"plan",
                                            MESHPLAN_SOURCE_DIR "/examples/mlp/graph.json",
                                            "--cluster",
                                            "dgx-a100-80g",
                                            "--devices",
                                            "8",
                                            "--format",
                                            "json"};
  const json free = json::parse(test::run_program(command).out);
  std::vector<std::string> with_limit = command;
  with_limit.insert(with_limit.end(), {"--time-limit", "10min"});
  json limited = json::parse(test::run_program(with_limit).out);
  CHECK(limited.at("options").at("time_limit") == 600.0);
  limited.at("options").erase("time_limit");
  CHECK(limited == free);
}

TEST_CASE("Ctrl-C ends the search with the best plan so far") {
  const test::TemporaryFolder folder;
  const std::string graph = large_graph(folder);
  const std::string file = folder.file("plan.json");
  test::ProgramRun run;
  // before the search begins Ctrl-C ends the program, as it should
  for (const char* delay : {"1", "2", "4", "8", "16"}) {
    std::vector<std::string> words = {"--preserve-status", "-s", "INT", delay, MESHPLAN_BINARY};
    const std::vector<std::string> command = plan_command(graph, file);
    words.insert(words.end(), command.begin(), command.end());
    run = test::run_program(words, "", std::chrono::seconds(300), "/usr/bin/timeout");
    if (run.exit_code != 130) break;
  }
  INFO(run.err);
  REQUIRE(run.exit_code == 0);
  check_stopped(graph, file);
}

TEST_CASE("the line of progress says what is known") {
  CHECK(progress_text({3, 40, std::nullopt, std::nullopt}) == "3 of 40 meshes");
  CHECK(progress_text({3, 40, Seconds{3.5}, std::nullopt}) == "3 of 40 meshes, best 3.500 s");
  CHECK(progress_text({0, 1, std::nullopt, 3.0}) == "0 of 1 meshes, bound 3.000 s");
  CHECK(progress_text({40, 40, Seconds{4}, 3.0}) ==
        "40 of 40 meshes, best 4.000 s, bound 3.000 s, gap 25.0 %");
}

}  // namespace
}  // namespace meshplan::stopped_search_test

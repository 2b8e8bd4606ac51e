// SPDX-License-Identifier: Apache-2.0
// plan --dump-cost-graph as a user calls it: where it may be written, and that solve agrees.
#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "support/catch.h"
#include "support/run_program.h"

namespace meshplan::cost_graph_dump_test {
namespace {

using nlohmann::json;
using test::ProgramRun;

constexpr const char* kGraph = MESHPLAN_SOURCE_DIR "/examples/mlp/graph.json";

ProgramRun plan(std::vector<std::string> options) {
  options.insert(options.begin(), {"plan", kGraph, "--cluster", "dgx-a100-80g"});
  return test::run_program(options);
}

TEST_CASE("solve finds what plan proves, on one device, a prime number and three nodes of eight") {
  const test::TemporaryFolder folder;
  for (const char* devices : {"1", "7", "24"}) {
    INFO(devices << " devices");
    const std::string file = folder.file("graph.json");
    const ProgramRun planned = plan({"--devices",
                                     devices,
                                     "--mesh",
                                     "a=" + std::string(devices),
                                     "--format",
                                     "json",
                                     "--dump-cost-graph",
                                     file});
    INFO(planned.err);
    REQUIRE(planned.exit_code == 0);
    const json result = json::parse(planned.out).at("result");
    REQUIRE(result.at("status") == "optimal");
    const json solved = json::parse(test::run_program({"solve", file, "--format", "json"}).out);
    CHECK(solved.at("status") == "optimal");
    CHECK(solved.at("cost") == result.at("objective"));
  }
}

TEST_CASE("a cost graph on standard output stands there alone") {
  const test::TemporaryFolder folder;
  const std::string file = folder.file("plan.json");
  const ProgramRun run =
      plan({"--devices", "2", "--mesh", "a=2", "--dump-cost-graph", "-", "-o", file});
  REQUIRE(run.exit_code == 0);
  CHECK(json::parse(run.out).at("schema") == "meshplan.cost_graph/1.0");
  CHECK(json::parse(test::file_text(file)).at("schema") == "meshplan.plan/1.0");
}

TEST_CASE("options that contradict each other or are empty are refused, and nothing is written") {
  const test::TemporaryFolder folder;
  const std::string file = folder.file("x.json");
  for (const std::vector<std::string>& options :
       std::vector<std::vector<std::string>>{{"--dump-cost-graph", file, "-o", file},
                                             {"--dump-cost-graph", "-", "-o", "-"},
                                             {"--dump-cost-graph", "-", "--format", "json"},
                                             {"--cost-graph-format", "lp", "-o", file},
                                             {"--prefer", "", "-o", file},
                                             {"--tolerance", "", "-o", file},
                                             {"--time-limit", "", "-o", file},
                                             {"--dump-cost-graph", "", "-o", file},
                                             {"--constraints", "", "-o", file}}) {
    std::vector<std::string> words = options;
    words.insert(words.end(), {"--devices", "2", "--mesh", "a=2"});
    const ProgramRun run = plan(words);
    INFO(options[0] << ": " << run.err);
    CHECK(run.exit_code == 2);
    CHECK(run.out.empty());
    CHECK(run.err.find(options[0]) != std::string::npos);
    CHECK(!std::filesystem::exists(file));
  }
  // over an old plan by another name
  std::filesystem::create_symlink(folder.write("plan.json", ""), folder.file("link.json"));
  CHECK(plan({"--devices",
              "2",
              "--mesh",
              "a=2",
              "--dump-cost-graph",
              folder.file("link.json"),
              "-o",
              folder.file("plan.json")})
            .exit_code == 2);
}

}  // namespace
}  // namespace meshplan::cost_graph_dump_test

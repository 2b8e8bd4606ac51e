// SPDX-License-Identifier: Apache-2.0
// Same input, same bytes: through the program, as a user would compare them.
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "support/catch.h"
#include "support/run_program.h"

namespace meshplan::determinism_test {

using namespace test;

namespace {

std::string content(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

/// The graph of a llama cut to `layers` layers, as a file in `folder`.
std::string llama(const TemporaryFolder& folder, const std::string& layers) {
  const std::string graph = folder.file("graph.json");
  const ProgramRun run = run_program({"import",
                                      "hf",
                                      MESHPLAN_SOURCE_DIR "/configs/models/llama2_7b.json",
                                      "--batch",
                                      "64",
                                      "--seq",
                                      "4096",
                                      "--layers",
                                      layers,
                                      "-o",
                                      graph});
  REQUIRE(run.exit_code == 0);
  return graph;
}

struct Written {
  std::string summary;
  std::string plan;
};

Written plan(const TemporaryFolder& folder,
             const std::string& graph,
             const std::vector<std::string>& options) {
  const std::string file = folder.file("plan.json");
  std::filesystem::remove(file);
  std::vector<std::string> arguments{
      "plan", graph, "--cluster", "dgx-a100-80g", "--devices", "16", "-o", file};
  arguments.insert(arguments.end(), options.begin(), options.end());
  const ProgramRun run = run_program(arguments);
  CHECK(run.err.empty());
  REQUIRE(run.exit_code == 0);
  Written written{run.out, content(file)};
  REQUIRE(written.plan.size() > 1000);
  return written;
}

void check_same(const Written& a, const Written& b) {
  CHECK((a.plan == b.plan));
  CHECK(a.summary == b.summary);
}

}  // namespace

TEST_CASE("the same input gives the same plan, byte for byte, on any number of threads") {
  const TemporaryFolder folder;
  const std::string graph = llama(folder, "3");
  const Written first = plan(folder, graph, {"--threads", "1"});
  check_same(first, plan(folder, graph, {"--threads", "1"}));
  check_same(first, plan(folder, graph, {"--threads", "4"}));
  check_same(first, plan(folder, graph, {}));
}

TEST_CASE("where the memory limit binds, the plan is the same on any number of threads") {
  const TemporaryFolder folder;
  const std::string graph = llama(folder, "6");
  const std::vector<std::string> tight{"--memory-limit", "22GiB", "--microbatches", "2"};
  auto with = [&](const char* threads) {
    std::vector<std::string> options = tight;
    options.insert(options.end(), {"--threads", threads});
    return plan(folder, graph, options);
  };
  const Written one = with("1");
  check_same(one, with("4"));
}

TEST_CASE("the graph of an import is the same, byte for byte") {
  const TemporaryFolder folder;
  const std::string first = content(llama(folder, "32"));
  CHECK((first == content(llama(folder, "32"))));
}

}  // namespace meshplan::determinism_test

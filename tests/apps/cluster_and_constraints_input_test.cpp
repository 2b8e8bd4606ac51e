// SPDX-License-Identifier: Apache-2.0
// Wrong cluster and constraints files through the program: one line, exit code 3, nothing written.
#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "support/catch.h"
#include "support/run_program.h"

namespace meshplan::cluster_and_constraints_input_test {

namespace {

const std::string kGraph = R"json({
  "schema": "meshplan.graph/1.0", "name": "mlp",
  "tensors": {
    "x": {"shape": [64, 32], "dtype": "bf16", "role": "input"},
    "w1": {"shape": [32, 64], "dtype": "bf16", "role": "parameter"},
    "loss": {"role": "loss"}
  },
  "operators": [
    {"name": "fc1", "type": "MatMul", "inputs": ["x", "w1"], "outputs": ["y"], "scope": "mlp"},
    {"name": "mean", "type": "ReduceMean", "inputs": ["y"], "outputs": ["loss"], "attributes": {"keepdims": 0}}
  ]
})json";

const std::string kCluster = R"json({
  "schema": "meshplan.cluster/1.0", "name": "small",
  "device": {"name": "A", "memory": "80GiB", "memory_bandwidth": "2039GB/s", "peak_flops": {"bf16": "312TFLOPS"}},
  "levels": [{"name": "nvlink", "size": 8, "bandwidth": "300GB/s", "latency": "3us"}]
})json";

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

/// Runs `plan` on the graph with these files and options.
struct Planning {
  test::TemporaryFolder folder;
  std::string plan = folder.file("plan.json");

  test::ProgramRun run(const std::string& cluster,
                       const std::string& constraints,
                       const std::vector<std::string>& options = {}) {
    std::vector<std::string> arguments = {"plan", folder.write("g.json", kGraph), "-o", plan};
    if (!cluster.empty()) {
      arguments.insert(arguments.end(), {"--cluster", folder.write("c.json", cluster)});
    }
    if (!constraints.empty()) {
      arguments.insert(arguments.end(), {"--constraints", folder.write("k.json", constraints)});
    }
    arguments.insert(arguments.end(), options.begin(), options.end());
    return test::run_program(arguments);
  }

  void refused(const test::ProgramRun& run, int code, const std::string& message) {
    INFO(run.err);
    CHECK(run.exit_code == code);
    CHECK(run.out.empty());
    CHECK(std::count(run.err.begin(), run.err.end(), '\n') == 1);
    CHECK(run.err.find(message) != std::string::npos);
    CHECK_FALSE(std::filesystem::exists(plan));
  }
};

std::string constraints(const std::string& body) {
  return R"json({"schema": "meshplan.constraints/1.0", "mesh": {"shape": [2, 4], "axes": ["dp", "tp"]}, )json" +
         body + "}";
}

}  // namespace

TEST_CASE("plan refuses wrong cluster files in one line", "[program]") {
  Planning p;
  p.refused(p.run("{", ""), 3, "c.json");
  p.refused(
      p.run(replaced(kCluster, "\"size\": 8", "\"size\": 0"), ""), 3, "c.json: /levels/0/size");
  p.refused(p.run(replaced(kCluster, "80GiB", "80Gib"), ""), 3, "c.json: /device/memory");
  p.refused(p.run(replaced(kCluster, "latency", "latancy"), ""), 3, "did you mean \"latency\"");
  p.refused(p.run("", "", {"--cluster", "dgx-a100-80"}), 3, "did you mean \"dgx-a100-80g\"");
  p.refused(p.run("", "", {"--cluster", "./missing.json"}), 3, "./missing.json");
  p.refused(p.run("", "", {"--cluster", "dgx-h100", "--devices", "12"}), 2, "8 and 16");
}

TEST_CASE("plan refuses wrong constraints in one line", "[program]") {
  Planning p;
  const std::vector<std::string> mesh = {"--mesh", "dp=2,tp=4"};
  p.refused(p.run(kCluster, "[1", mesh), 3, "k.json");
  p.refused(
      p.run(kCluster, constraints(R"json("tensors": {"w1": {"placements": ["R"]}})json"), mesh),
      3,
      "k.json: /tensors/w1/placements");
  p.refused(
      p.run(
          kCluster, constraints(R"json("tensors": {"w2": {"placements": ["R", "R"]}})json"), mesh),
      3,
      "did you mean \"w1\"");
  p.refused(p.run(kCluster,
                  constraints(R"json("tensors": {"w1": {"placements": ["S(2)", "R"]}})json"),
                  mesh),
            3,
            "k.json: /tensors/w1");
  p.refused(
      p.run(
          kCluster,
          constraints(
              R"json("tensors": {"w1": {"placements": ["*", "R"]}}, "scopes": {"mlp": {"parameters": {"w1": ["*", "S(0)"]}}})json"),
          mesh),
      3,
      "k.json: /tensors/w1 asks for R");
}

}  // namespace meshplan::cluster_and_constraints_input_test

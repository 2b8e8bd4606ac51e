// SPDX-License-Identifier: Apache-2.0
// Input that is large on purpose, and every exit code through the program.
#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "graph/graph_document.h"
#include "support/catch.h"
#include "support/run_program.h"

namespace meshplan::hostile_input_test {
namespace {

using test::ProgramRun;
using test::run_program;
using test::TemporaryFolder;

const std::string kHead =
    R"({"schema": "meshplan.graph/1.0", "tensors": {"x": {"shape": [64, 64], "dtype": "bf16", "role": "input"},
        "w": {"shape": [64, 64], "dtype": "bf16", "role": "parameter"}}, "operators": [)";

std::string relu(const std::string& name, const std::string& input, const std::string& output) {
  return R"({"name": ")" + name + R"(", "type": "Relu", "inputs": [")" + input +
         R"("], "outputs": [")" + output + "\"]}";
}

/// Operators that read one after the other, or all the same tensor.
std::string many_operators(std::size_t count, bool chain) {
  std::string text = kHead;
  for (std::size_t i = 0; i < count; ++i) {
    const std::string number = std::to_string(i);
    text += (i == 0 ? "" : ",") +
            relu("o" + number, i == 0 || !chain ? "x" : "t" + std::to_string(i - 1), "t" + number);
  }
  return text + "]}";
}

std::vector<std::string> plan_of(const std::string& graph) {
  return {"plan", graph, "--cluster", "dgx-a100-80g", "--devices", "8", "--mesh", "dp=8"};
}

TEST_CASE("every exit code, through the program") {
  const TemporaryFolder folder;
  const std::string graph = folder.write(
      "graph.json",
      kHead + R"({"name": "fc", "type": "MatMul", "inputs": ["x", "w"], "outputs": ["y"]}]})");
  const std::string plan = folder.file("plan.json");
  auto arguments = plan_of(graph);
  arguments.insert(arguments.end(), {"-o", plan});
  CHECK(run_program(arguments).exit_code == 0);
  CHECK(run_program({"plan", graph}).exit_code == 2);
  CHECK(run_program({"plan", "none.json", "--cluster", "dgx-a100-80g"}).exit_code == 3);
  auto small = plan_of(graph);
  small.insert(small.end(), {"--memory-limit", "1kB"});
  CHECK(run_program(small).exit_code == 4);
  std::string wrong = test::file_text(plan);
  const std::string objective = "\"objective\": ";
  wrong.insert(wrong.find(objective) + objective.size(), "1");
  const std::string broken = folder.write("broken.json", wrong);
  CHECK(run_program({"check", broken, "--graph", graph, "--cluster", "dgx-a100-80g"}).exit_code ==
        5);
#if defined(__SANITIZE_ADDRESS__)
  WARN("memory cannot be limited under the sanitizers: exit code 1 was not tried");
#else
  const std::string large = folder.write("large.json", many_operators(100000, true));
  const ProgramRun out_of_memory =
      run_program({"-c",
                   "ulimit -v 60000; exec \"$0\" plan \"$1\" --cluster dgx-a100-80g",
                   MESHPLAN_BINARY,
                   large},
                  "",
                  std::chrono::seconds(60),
                  "/bin/sh");
  CHECK(out_of_memory.exit_code == 1);
  CHECK(out_of_memory.err == "meshplan: error: out of memory; ask for less at once\n");
#endif
}

TEST_CASE("a name of ten megabytes is a name, and messages stay short") {
  const TemporaryFolder folder;
  const std::string name(10'000'000, 'n');
  const auto resolved = read_graph(kHead + relu(name, "x", "y") + "]}", "g.json", {});
  REQUIRE(resolved);
  CHECK(resolved->operators[0].name == name);
  const std::string graph = folder.write("g.json", kHead + relu("a", name, "y") + "]}");
  const ProgramRun run = run_program(plan_of(graph));
  CHECK(run.exit_code == 3);
  CHECK(run.err.find("g.json: /operators/0/inputs/0: tensor \"nnn") != std::string::npos);
  CHECK(run.err.size() < 2000);
}

TEST_CASE("nesting is refused before it costs anything, and a file beyond a gigabyte unread") {
  const TemporaryFolder folder;
  const std::string nested = folder.write("nested.json", std::string(10'000'000, '['));
  for (const std::vector<std::string>& command :
       {plan_of(nested),
        {"check", nested, "--graph", nested, "--cluster", "dgx-a100-80g"},
        {"solve", nested},
        {"import", "hf", nested, "--batch", "1"},
        {"mesh", "--batch", nested}}) {
    const ProgramRun run = run_program(command, "", std::chrono::seconds(60));
    INFO(command[0] << ": " << run.err);
    CHECK(run.exit_code == 3);
    CHECK(std::count(run.err.begin(), run.err.end(), '\n') == 1);
  }
  const std::string large = folder.write("large.json", "[");
  std::filesystem::resize_file(large,
                               std::uintmax_t{2} << 30U);  // a hole takes no place on the disk
  const ProgramRun run = run_program(plan_of(large), "", std::chrono::seconds(60));
  CHECK(run.exit_code == 3);
  CHECK(run.err == "meshplan: error: " + large + ": is larger than 1 GiB, which no document is\n");
  CHECK(run_program({"solve", large}, "", std::chrono::seconds(60)).exit_code == 3);
}

TEST_CASE("two gigabytes of [ through a pipe end with a message", "[slow]") {
  for (const char* command : {"plan - --cluster dgx-a100-80g",
                              "solve -",
                              "check - --graph g.json --cluster dgx-a100-80g"}) {
    const ProgramRun run =
        run_program({"-c",
                     std::string("head -c 2147483648 /dev/zero | tr '\\0' '[' | \"$0\" ") + command,
                     MESHPLAN_BINARY},
                    "",
                    std::chrono::seconds(300),
                    "/bin/sh");
    INFO(command << ": " << run.err);
    CHECK(run.exit_code == 3);
    CHECK(run.err.rfind("meshplan: error: standard input: ", 0) == 0);
  }
}

TEST_CASE("ten thousand readers of one tensor and a long chain resolve in linear time") {
  for (const bool chain : {false, true}) {
    const auto graph = read_graph(many_operators(10000, chain), "g.json", {});
    REQUIRE(graph);
    CHECK(graph->operators.size() == 10000);
  }
}

TEST_CASE("ten thousand readers of one tensor are planned", "[slow]") {
  const TemporaryFolder folder;
  const std::string graph = folder.write("g.json", many_operators(10000, false));
  CHECK(run_program(plan_of(graph)).exit_code == 0);
}

TEST_CASE("a million operators are read and resolved", "[slow]") {
  const auto graph = read_graph(many_operators(1000000, true), "g.json", {});
  REQUIRE(graph);
  CHECK(graph->operators.size() == 1000000);
}

TEST_CASE("the plan of a million operators is read and holds", "[slow]") {
  const TemporaryFolder folder;
  const std::string graph = folder.write("g.json", many_operators(1000000, true));
  const std::string plan = folder.file("plan.json");
  std::vector<std::string> arguments = plan_of(graph);
  arguments.insert(arguments.end(), {"--mode", "inference", "-o", plan});
  REQUIRE(run_program(arguments).exit_code == 0);
  const std::vector<std::string> check = {
      "check", plan, "--graph", graph, "--cluster", "dgx-a100-80g"};
  CHECK(run_program(check).exit_code == 0);
}

}  // namespace
}  // namespace meshplan::hostile_input_test

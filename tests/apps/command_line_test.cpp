// SPDX-License-Identifier: Apache-2.0
// Wrong command lines: one line that names what is wrong, exit code 2, nothing written. And where
// results go.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <sys/stat.h>
#include <unistd.h>

#include "support/catch.h"
#include "support/run_program.h"

namespace meshplan::command_line_test {
namespace {

using test::ProgramRun;
using test::run_program;
using test::TemporaryFolder;

const std::string kGraph = R"json({
  "schema": "meshplan.graph/1.0",
  "tensors": {"x": {"shape": [64, 64], "dtype": "bf16", "role": "input"},
              "w": {"shape": [64, 64], "dtype": "bf16", "role": "parameter"}},
  "operators": [{"name": "fc", "type": "MatMul", "inputs": ["x", "w"], "outputs": ["y"]}]
})json";

void refuse(const std::vector<std::string>& arguments, const std::string& message) {
  const ProgramRun run = run_program(arguments, kGraph);
  CHECK(run.err == "meshplan: error: " + message + "\n");
  CHECK(run.exit_code == 2);
  CHECK(run.out.empty());
}

std::vector<std::string> plan_with(std::vector<std::string> more) {
  std::vector<std::string> arguments = {"plan", "-", "--cluster", "dgx-a100-80g", "--devices", "8"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

TEST_CASE("a wrong command line is answered by one line with the nearest name") {
  const std::string help = " (meshplan plan --help shows what is expected)";
  refuse({"plna"},
         "there is no command \"plna\"; did you mean \"plan\"? (meshplan --help shows what is "
         "expected)");
  refuse({"chekc", "-", "--graph", "g.json"},
         "there is no command \"chekc\"; did you mean \"check\"? (meshplan --help shows what is "
         "expected)");
  refuse({"import", "fh"},
         "there is no command \"fh\"; did you mean \"hf\"? (meshplan import --help shows what is "
         "expected)");
  refuse(
      {"import", "hf", "-", "--bacth", "8"},
      "there is no option \"--bacth\"; did you mean \"--batch\"? (meshplan import hf --help shows "
      "what is expected)");
  refuse({}, "A subcommand is required (meshplan --help shows what is expected)");
  refuse(plan_with({"--memory-limits", "8GiB"}),
         "there is no option \"--memory-limits\"; did you mean \"--memory-limit\"?" + help);
  refuse(plan_with({"--dvices=8"}),
         "there is no option \"--dvices\"; did you mean \"--devices\"?" + help);
  refuse(plan_with({"second.json"}), "nothing expects the argument \"second.json\"" + help);
  refuse({"plan", "-"}, "--cluster is required" + help);
  refuse(plan_with({"--mode", "train"}), "--mode: train not in {training,inference}" + help);
  refuse(plan_with({"--seed", "-1"}),
         "--seed: expected an integer from 0 to 2^64 - 1, found -1" + help);
  refuse(plan_with({"--seed", "18446744073709551616"}),
         "--seed: expected an integer from 0 to 2^64 - 1, found 18446744073709551616" + help);
  refuse(plan_with({"-o", ""}), "--output: expected the name of a file or \"-\"" + help);
  refuse(plan_with({"--overlap", "ring=0.5,ring=0.7"}), "--overlap: \"ring\" is given twice");
}

TEST_CASE("only one input can be standard input, and messages call it by name") {
  const std::string message = "-: only one input can be standard input; the others need files";
  refuse({"check", "-", "--graph", "-", "--cluster", "dgx-a100-80g"}, message);
  refuse({"plan", "-", "--cluster", "-"}, message);
  refuse(plan_with({"--constraints", "-"}), message);
  const ProgramRun run = run_program(plan_with({}), "{}");
  CHECK(run.err.rfind("meshplan: error: standard input: the key \"schema\" is missing", 0) == 0);
  CHECK(run.exit_code == 3);
}

TEST_CASE("-o writes through links and into pipes and devices, and replaces none of them") {
  const TemporaryFolder folder;
  const std::string target = folder.write("target.json", "old");
  const std::string link = folder.file("link.json");
  std::filesystem::create_symlink("target.json", link);
  CHECK(run_program(plan_with({"-o", link}), kGraph).exit_code == 0);
  CHECK(std::filesystem::is_symlink(link));
  std::ifstream written(target);
  const std::string text{std::istreambuf_iterator<char>(written), {}};
  CHECK(text.find("meshplan.plan/1.0") != std::string::npos);

  // a pipe whose reading end is held open, so that the program does not wait
  const std::string pipe = folder.file("pipe");
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  std::fstream reader(pipe, std::ios::in | std::ios::out);
  CHECK(run_program(plan_with({"-o", pipe}), kGraph).exit_code == 0);
  CHECK(std::filesystem::is_fifo(pipe));
  std::string line;
  std::getline(reader, line);
  CHECK(line == "{");
}

}  // namespace
}  // namespace meshplan::command_line_test

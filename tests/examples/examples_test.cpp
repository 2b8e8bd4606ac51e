// SPDX-License-Identifier: Apache-2.0
// Runs every example as its cmd says and compares what a user sees with the files beside it:
// expected.txt (standard output), expected_error.txt (standard error, empty where missing) and
// expected_exit (0 where missing). With MESHPLAN_UPDATE_EXAMPLES=1 in the environment the files are
// written anew instead, the README's copy too, and the test fails so that nobody leaves it set.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "support/catch.h"
#include "support/run_program.h"

namespace meshplan::examples_test {

using namespace test;

namespace {

namespace fs = std::filesystem;

const fs::path kSource = MESHPLAN_SOURCE_DIR;

std::string content(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::vector<fs::path> entries(const fs::path& folder) {
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(folder)) found.push_back(entry.path());
  std::sort(found.begin(), found.end());
  return found;
}

/// Runs `script` as a shell would in `folder`, with the built program first on the PATH.
ProgramRun run_script(const fs::path& folder, const std::string& script) {
  const std::string programs = fs::path(MESHPLAN_BINARY).parent_path().string();
  return run_program(
      {"-e",
       "-c",
       "cd \"$1\" && PATH=\"$2:$PATH\" && NO_COLOR=1 && export PATH NO_COLOR\n" + script,
       "example",
       folder.string(),
       programs},
      "",
      std::chrono::seconds(600),
      "/bin/sh");
}

/// The folders of examples/, each with a cmd.
std::vector<fs::path> examples() {
  std::vector<fs::path> found;
  for (const fs::path& entry : entries(kSource / "examples")) {
    if (fs::is_directory(entry)) found.push_back(entry);
  }
  return found;
}

void update(const fs::path& example, const ProgramRun& run) {
  const auto write = [&](const char* name, const std::string& text, bool keep) {
    if (keep) {
      std::ofstream(example / name, std::ios::binary) << text;
    } else {
      fs::remove(example / name);
    }
  };
  write("expected.txt", run.out, true);
  write("expected_error.txt", run.err, !run.err.empty());
  write("expected_exit", std::to_string(run.exit_code) + "\n", run.exit_code != 0);
}

/// The text block of the README that shows what the first plan prints: its begin and end.
std::pair<std::size_t, std::size_t> readme_output(const std::string& readme) {
  const std::string mark = "<!-- what examples/llama2_7b prints -->\n```text\n";
  const std::size_t begin = readme.find(mark);
  if (begin == std::string::npos) return {0, 0};
  const std::size_t end = readme.find("```\n", begin + mark.size());
  return {begin + mark.size(), end == std::string::npos ? readme.size() : end};
}

void update_readme() {
  std::string readme = content(kSource / "README.md");
  const auto [begin, end] = readme_output(readme);
  readme.replace(begin, end - begin, content(kSource / "examples" / "llama2_7b" / "expected.txt"));
  std::ofstream(kSource / "README.md", std::ios::binary) << readme;
}

void check_example(const fs::path& example) {
  const TemporaryFolder folder;
  fs::copy(example, folder.path(), fs::copy_options::recursive);
  const ProgramRun run = run_script(folder.path(), content(example / "cmd"));
  if (std::getenv("MESHPLAN_UPDATE_EXAMPLES") != nullptr) {
    update(example, run);
    if (example.filename() == "llama2_7b") update_readme();
    FAIL(example.filename().string() << ": expected files written");
  }
  CHECK(run.out == content(example / "expected.txt"));
  CHECK(run.err == content(example / "expected_error.txt"));
  const std::string exit = content(example / "expected_exit");
  CHECK(std::to_string(run.exit_code) + "\n" == (exit.empty() ? "0\n" : exit));
}

}  // namespace

TEST_CASE("every example prints what its files say") {
  REQUIRE(examples().size() >= 4);
  for (const fs::path& example : examples()) {
    DYNAMIC_SECTION(example.filename().string()) { check_example(example); }
  }
}

TEST_CASE("every file of an example is used by its command or expected of it") {
  const std::set<std::string> fixed = {
      "cmd", "expected.txt", "expected_error.txt", "expected_exit", "README.md"};
  for (const fs::path& example : examples()) {
    const std::string command = content(example / "cmd");
    for (const fs::path& file : entries(example)) {
      const std::string name = file.filename().string();
      INFO(example.filename().string() << "/" << name);
      CHECK((fixed.count(name) == 1 || command.find(name) != std::string::npos));
    }
  }
}

TEST_CASE("every shipped cluster plans a small graph on two devices") {
  const std::string graph = (kSource / "examples" / "mlp" / "graph.json").string();
  std::size_t clusters = 0;
  for (const fs::path& file : entries(kSource / "configs" / "clusters")) {
    INFO(file.filename().string());
    const ProgramRun run =
        run_program({"plan", graph, "--cluster", file.stem().string(), "--devices", "2"});
    CHECK(run.err.empty());
    CHECK(run.exit_code == 0);
    ++clusters;
  }
  CHECK(clusters >= 4);
}

TEST_CASE("every shipped model becomes a graph that plan reads") {
  const TemporaryFolder folder;
  std::size_t models = 0;
  for (const fs::path& file : entries(kSource / "configs" / "models")) {
    INFO(file.filename().string());
    const std::string graph = folder.file("graph.json");
    const ProgramRun import = run_program({"import",
                                           "hf",
                                           file.string(),
                                           "--batch",
                                           "8",
                                           "--seq",
                                           "128",
                                           "--layers",
                                           "1",
                                           "--quiet",  // images have no length; some have no loss
                                           "-o",
                                           graph});
    CHECK(import.err.empty());
    REQUIRE(import.exit_code == 0);
    const ProgramRun plan =
        run_program({"plan", graph, "--cluster", "dgx-h100", "--devices", "8", "--mesh", "dp=8"});
    CHECK(plan.err.empty());
    CHECK(plan.exit_code == 0);
    ++models;
  }
  CHECK(models >= 6);
}

TEST_CASE("configs holds nothing that these tests do not read") {
  for (const auto& entry : fs::recursive_directory_iterator(kSource / "configs")) {
    if (!entry.is_regular_file()) continue;
    const fs::path path = fs::relative(entry.path(), kSource / "configs");
    INFO(path.string());
    const std::string folder = path.parent_path().string();
    CHECK((folder == "clusters" || folder == "models"));
    CHECK(path.extension() == ".json");
  }
}

TEST_CASE("the README shows the commands and the output of the first plan as they are") {
  const std::string readme = content(kSource / "README.md");
  const fs::path example = kSource / "examples" / "llama2_7b";
  const auto [begin, end] = readme_output(readme);
  REQUIRE(begin > 0);
  CHECK(readme.substr(begin, end - begin) == content(example / "expected.txt"));
  std::istringstream commands(content(example / "cmd"));
  for (std::string line; std::getline(commands, line);) {
    INFO(line);
    CHECK(readme.find(line) != std::string::npos);
  }
}

}  // namespace meshplan::examples_test

// SPDX-License-Identifier: Apache-2.0
// meshplan import, run as a user runs it.
#include <filesystem>
#include <string>

#include "graph/graph_document.h"
#include "support/catch.h"
#include "support/run_program.h"

namespace meshplan::import_test {
namespace {

using test::ProgramRun;
using test::run_program;
using test::TemporaryFolder;

const std::string kLlama = MESHPLAN_SOURCE_DIR "/configs/models/llama2_7b.json";

/// One line that names the fault, nothing on standard output.
void check_refused(const ProgramRun& run, int exit_code, const std::string& message) {
  INFO(run.err);
  CHECK(run.exit_code == exit_code);
  CHECK(run.out.empty());
  CHECK(run.err.find(message) != std::string::npos);
  if (exit_code == 3) {
    CHECK(run.err.rfind("meshplan: error: ", 0) == 0);
    CHECK(run.err.find('\n') == run.err.size() - 1);
  }
}

TEST_CASE("import hf prints a graph that reads back with its parameters counted in the log") {
  const ProgramRun run = run_program(
      {"import", "hf", kLlama, "--batch", "64", "--seq", "4096", "--log-level", "info"});
  REQUIRE(run.exit_code == 0);
  CHECK(run.err.find("6738415616 parameters") != std::string::npos);
  const Result<Graph> graph = read_graph(run.out, "out.json", GraphOptions{});
  REQUIRE(graph.has_value());
  CHECK(graph->operators.size() == 772);
  const ProgramRun quiet = run_program({"import", "hf", kLlama, "--batch", "64", "--seq", "4096"});
  CHECK(quiet.err.empty());
  CHECK(quiet.out == run.out);
}

TEST_CASE("import hf writes the same file with -o, from a file or standard input") {
  const TemporaryFolder folder;
  const std::string output = folder.file("model.json");
  const ProgramRun run = run_program({"import",
                                      "hf",
                                      kLlama,
                                      "--batch",
                                      "8",
                                      "--seq",
                                      "128",
                                      "--layers",
                                      "2",
                                      "--mode",
                                      "inference",
                                      "-o",
                                      output});
  REQUIRE(run.exit_code == 0);
  CHECK(run.out.empty());
  const std::string text = test::file_text(output);
  const Result<GraphDocument> document = read_graph_document(text, output);
  REQUIRE(document.has_value());
  CHECK(document->outputs == std::vector<std::string>{"lm_head"});
  CHECK(document->name == "llama2_7b");
  const ProgramRun piped = run_program(
      {"import", "hf", "-", "--batch", "8", "--seq", "128", "--layers", "2", "--mode", "inference"},
      test::file_text(kLlama));
  CHECK(piped.exit_code == 0);
  CHECK(piped.out.size() == text.size() - 4);  // only the name differs: llama
}

TEST_CASE("import hf warns on standard error of what it assumes") {
  const ProgramRun run =
      run_program({"import", "hf", kLlama, "--batch", "8", "--seq", "8192", "--layers", "1"});
  CHECK(run.exit_code == 0);
  CHECK(run.err.find("longer than max_position_embeddings 4096") != std::string::npos);
  CHECK(run_program(
            {"import", "hf", kLlama, "--batch", "8", "--seq", "8192", "--layers", "1", "--quiet"})
            .err.empty());
}

TEST_CASE("import refuses a wrong command line with exit code 2") {
  check_refused(run_program({"import"}), 2, "name the format to import: hf");
  check_refused(run_program({"import", "hfx", kLlama, "--batch", "1", "--seq", "1"}), 2, "hfx");
  check_refused(run_program({"import", "hf"}), 2, "CONFIG");
  check_refused(run_program({"import", "hf", kLlama, "--seq", "4"}), 2, "--batch");
  check_refused(run_program({"import", "hf", kLlama, "--batch", "0", "--seq", "4"}), 2, "--batch");
  check_refused(run_program({"import", "hf", kLlama, "--batch", "x", "--seq", "4"}), 2, "--batch");
  check_refused(
      run_program({"import", "hf", kLlama, "--batch", "1", "--seq", "99999999999"}), 2, "--seq");
  check_refused(
      run_program({"import", "hf", kLlama, "--batch", "1", "--seq", "1", "--layers", "100000"}),
      2,
      "--layers");
  check_refused(run_program({"import", "hf", kLlama, "--batch", "1", "--seq", "1", "--mode", "x"}),
                2,
                "--mode");
  check_refused(
      run_program({"import", "hf", kLlama, "--batch", "1", "--seq", "1", "--sq", "2"}), 2, "--sq");
}

TEST_CASE("import hf refuses wrong configs with one line and exit code 3, and writes nothing") {
  const TemporaryFolder folder;
  const std::string output = folder.file("out.json");
  const auto refused = [&](const std::string& config, const std::string& message) {
    const std::string path = folder.write("config.json", config);
    check_refused(run_program({"import", "hf", path, "--batch", "1", "--seq", "1", "-o", output}),
                  3,
                  message);
    CHECK_FALSE(std::filesystem::exists(output));
  };
  std::string config = test::file_text(kLlama);
  const auto with = [&](const std::string& old, const std::string& replacement) {
    std::string text = config;
    REQUIRE(text.find(old) != std::string::npos);
    return text.replace(text.find(old), old.size(), replacement);
  };
  refused("", "not valid JSON");
  refused("{\"model_type\": NaN}", "not valid JSON at line 1");
  refused(std::string(10000, '['), "nested more than 200 deep");
  refused(with("\"llama\"", "\"mamba2\""),
          "/model_type: model_type \"mamba2\" is not supported; supported are: baichuan, bert, ");
  refused(with("\"hidden_size\": 4096", "\"hidden_size\": -1"), "/hidden_size: ");
  refused(with("\"hidden_size\": 4096,", ""), "\"hidden_size\" is missing");
  refused(with("\"hidden_size\"", "\"vocab_size\""),
          "/vocab_size: the key \"vocab_size\" stands twice");
  // each size is legal, their product is not
  std::string huge = with("\"hidden_size\": 4096", "\"hidden_size\": 2147483584");
  huge.replace(huge.find("\"vocab_size\": 32000"), 19, "\"vocab_size\": 2147483647");
  refused(huge, "larger than 2^62 bytes");
  check_refused(
      run_program({"import", "hf", folder.file("missing.json"), "--batch", "1", "--seq", "1"}),
      3,
      "missing.json: cannot open");
  check_refused(run_program({"import", "hf", folder.path().string(), "--batch", "1", "--seq", "1"}),
                3,
                "is a folder");
  check_refused(run_program({"import",
                             "hf",
                             kLlama,
                             "--batch",
                             "1",
                             "--seq",
                             "1",
                             "-o",
                             folder.file("no/such/folder/out.json")}),
                3,
                "cannot create");
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 1);
}

}  // namespace
}  // namespace meshplan::import_test

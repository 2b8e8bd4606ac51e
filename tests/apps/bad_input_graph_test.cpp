// SPDX-License-Identifier: Apache-2.0
// Wrong graphs through the program: one clear line, exit code 3, nothing written.
#include <algorithm>
#include <filesystem>
#include <string>
#include <string_view>

#include "support/catch.h"
#include "support/run_program.h"

namespace meshplan::bad_input_graph_test {
namespace {

using test::ProgramRun;
using test::run_program;
using test::TemporaryFolder;

const std::string kGraph = R"({
  "schema": "meshplan.graph/1.0",
  "name": "mlp",
  "dimensions": {"batch": {"size": 64}},
  "tensors": {
    "x": {"shape": ["batch", 1024], "dtype": "bf16", "role": "input"},
    "w1": {"shape": [1024, 4096], "dtype": "bf16", "role": "parameter"},
    "w2": {"shape": [4096, 1024], "dtype": "bf16", "role": "parameter"},
    "loss": {"shape": [], "dtype": "fp32", "role": "loss"}
  },
  "operators": [
    {"name": "fc1", "type": "MatMul", "inputs": ["x", "w1"], "outputs": ["h"]},
    {"name": "act", "type": "Relu", "inputs": ["h"], "outputs": ["a"]},
    {"name": "fc2", "type": "MatMul", "inputs": ["a", "w2"], "outputs": ["y"]},
    {"name": "mean", "type": "ReduceMean", "inputs": ["y"], "outputs": ["loss"], "attributes": {"keepdims": 0}}
  ],
  "outputs": ["y"]
})";

/// kGraph with every `old` replaced; `old` must be there.
std::string with(std::string_view old, std::string_view replacement) {
  std::string text = kGraph;
  std::size_t at = text.find(old);
  REQUIRE(at != std::string::npos);
  for (; at != std::string::npos; at = text.find(old, at + replacement.size())) {
    text.replace(at, old.size(), replacement);
  }
  return text;
}

class BadInput {
 public:
  ProgramRun plan(const std::string& graph, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments = {
        "plan", graph, "--cluster", "dgx-a100-80g", "--devices", "8", "-o", output()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_program(arguments);
  }

  /// The document is refused with exactly this message.
  void refuse(const std::string& document, const std::string& message) const {
    const std::string graph = folder_.write("g.json", document);
    check(plan(graph), "meshplan: error: " + graph + message + "\n");
  }
  /// The document is refused with one line that holds this text.
  void refuse_with(const std::string& document, const std::string& part) const {
    const ProgramRun run = plan(folder_.write("g.json", document));
    INFO(run.err);
    CHECK(run.err.find(part) != std::string::npos);
    CHECK(run.err.size() < 1000);
    check(run, run.err);
  }
  void check(const ProgramRun& run, const std::string& message) const {
    INFO(run.err);
    CHECK(run.exit_code == 3);
    CHECK(run.err == message);
    CHECK(std::count(run.err.begin(), run.err.end(), '\n') == 1);
    CHECK(run.out.empty());
    for (const auto& file : std::filesystem::directory_iterator(folder_.path())) {
      CHECK(file.path().filename() == "g.json");
    }
  }

  std::string output() const { return folder_.file("plan.json"); }
  const TemporaryFolder& folder() const { return folder_; }

 private:
  TemporaryFolder folder_;
};

TEST_CASE("The graph of the bad-input tests is good") {
  const BadInput input;
  const ProgramRun run = input.plan(input.folder().write("g.json", kGraph));
  INFO(run.err);
  CHECK(run.exit_code == 0);
  CHECK(std::filesystem::exists(input.output()));
}

TEST_CASE("plan refuses a graph file that is missing or a folder") {
  const BadInput input;
  const std::string missing = input.folder().file("none.json");
  input.check(input.plan(missing),
              "meshplan: error: " + missing + ": cannot open: No such file or directory\n");
  const std::string folder = input.folder().path().string();
  input.check(input.plan(folder),
              "meshplan: error: " + folder + ": is a folder, expected a file\n");
}

TEST_CASE("plan refuses a graph that is not JSON") {
  const BadInput input;
  input.refuse_with("", "g.json: not valid JSON at line 1, column 1");
  input.refuse_with("graph", "g.json: not valid JSON at line 1");
  input.refuse_with(kGraph.substr(0, 300), "g.json: not valid JSON at line 8");
  input.refuse_with(with("64", "NaN"), "g.json: not valid JSON at line 4");
  input.refuse_with(with("64", "Infinity"), "g.json: not valid JSON at line 4");
  input.refuse_with(with("mlp", "m\xFFp"), "g.json: not valid JSON at line 3");
  input.refuse_with(with("mlp", std::string("m\0p", 3)), "g.json: not valid JSON at line 3");
  input.refuse_with(kGraph + "{}", "g.json: not valid JSON at line 18");
  std::string binary;
  for (int i = 0; i < 100000; ++i) binary += static_cast<char>((i * 7919) % 256);
  input.refuse_with(binary, "g.json: not valid JSON");
}

TEST_CASE("plan refuses nesting of any depth without running out of stack or time") {
  const BadInput input;
  for (const std::size_t depth : {std::size_t{201}, std::size_t{10000}, std::size_t{5000000}}) {
    input.refuse(std::string(depth, '['), ": arrays and objects are nested more than 200 deep");
    input.refuse(with("[1024, 4096]", std::string(depth, '[') + std::string(depth, ']')),
                 ": arrays and objects are nested more than 200 deep");
  }
  std::string objects;
  for (int i = 0; i < 10000; ++i) objects += "{\"a\":";
  input.refuse(objects, ": arrays and objects are nested more than 200 deep");
}

TEST_CASE("plan refuses another schema") {
  const BadInput input;
  input.refuse(with("graph/1.0", "graph/1.7"),
               ": /schema: this program reads meshplan.graph 1.0 to 1.0, not "
               "\"meshplan.graph/1.7\"");
  input.refuse(with("meshplan.graph/1.0", "meshplan.cluster/1.0"),
               ": /schema: expected \"meshplan.graph/1.0\", found \"meshplan.cluster/1.0\"");
  input.refuse("[]", ": expected an object, found an array");
}

TEST_CASE("plan refuses wrong types in a graph") {
  const BadInput input;
  input.refuse(with("{\"size\": 64}", "64"),
               ": /dimensions/batch: expected an object, found an integer");
  input.refuse(with("64", "\"64\""),
               ": /dimensions/batch/size: expected an integer, found a string \"64\"");
  input.refuse(with("64", "64.5"),
               ": /dimensions/batch/size: expected an integer, found a number 64.5");
  input.refuse(with("[\"x\", \"w1\"]", "[\"x\", 1]"),
               ": /operators/0/inputs/1: expected a string, found an integer");
  input.refuse(with("\"Relu\"", "null"), ": /operators/1/type: expected a string, found null");
  input.refuse(with("{\"keepdims\": 0}", "[]"),
               ": /operators/3/attributes: expected an object, found an array");
}

TEST_CASE("plan refuses unknown and missing keys, names, roles and dtypes") {
  const BadInput input;
  input.refuse(with("\"operators\"", "\"ops\""),
               ": /ops: unknown key \"ops\"; known here: schema, name, dimensions, tensors, "
               "operators, operator_types, outputs, mesh");
  input.refuse(with("\"role\": \"loss\"", "\"rolle\": \"loss\""),
               ": /tensors/loss/rolle: unknown key \"rolle\"; did you mean \"role\"?");
  input.refuse(with("\"name\": \"act\", ", ""), ": /operators/1: the key \"name\" is missing");
  input.refuse(with("\"role\": \"input\"", "\"role\": \"inputs\""),
               ": /tensors/x/role: unknown role \"inputs\"; known are input, parameter, constant, "
               "state, loss, activation; did you mean \"input\"?");
  input.refuse_with(with("\"fp32\"", "\"fp31\""), ": /tensors/loss/dtype: unknown dtype \"fp31\"");
  input.refuse_with(with("\"Relu\"", "\"Rellu\""),
                    ": /operators/1/type: operator \"act\": operator type \"Rellu\" is not known; "
                    "did you mean \"Relu\"?");
}

TEST_CASE("plan refuses duplicate names and dangling tensors") {
  const BadInput input;
  input.refuse(with("\"w2\": {", "\"w1\": {"),
               ": /tensors/w1: the key \"w1\" stands twice in one object");
  input.refuse(with("\"name\": \"act\"", "\"name\": \"fc1\""),
               ": /operators/1/name: operator \"fc1\" is declared twice, first at /operators/0");
  input.refuse(with("\"outputs\": [\"a\"]", "\"outputs\": [\"h\"]"),
               ": /operators/1/outputs/0: tensor \"h\" is made twice: by operator \"fc1\" and by "
               "operator \"act\"");
  input.refuse(with("[\"a\", \"w2\"]", "[\"a\", \"w22\"]"),
               ": /operators/2/inputs/1: tensor \"w22\" is not declared; did you mean \"w2\"?");
  input.refuse(with("\"outputs\": [\"y\"]\n", "\"outputs\": [\"yy\"]\n"),
               ": /outputs/0: tensor \"yy\" is not declared; did you mean \"y\"?");
  input.refuse_with(with("\"role\": \"input\"", "\"role\": \"activation\""),
                    ": /tensors/x: no operator makes this activation");
}

TEST_CASE("plan refuses a cycle and names its operators") {
  const BadInput input;
  input.refuse(
      with("[\"x\", \"w1\"]", "[\"y\", \"w1\"]"),
      ": /operators/0: the operators form a cycle: \"fc1\" -> \"act\" -> \"fc2\" -> \"fc1\"");
}

TEST_CASE("plan refuses zero, negative and enormous sizes") {
  const BadInput input;
  input.refuse(with("[1024, 4096]", "[1024, 0]"),
               ": /tensors/w1/shape/1: expected an integer of at least 1, found 0");
  input.refuse(with("[1024, 4096]", "[-1024, 4096]"),
               ": /tensors/w1/shape/0: expected an integer of at least 1, found -1024");
  input.refuse(with("64", "-64"),
               ": /dimensions/batch/size: expected an integer of at least 1, found -64");
  input.refuse(with("64", "9223372036854775808"),
               ": /dimensions/batch/size: the integer does not fit into 64 bits");
  input.refuse(with("64", "9223372036854775807"),
               ": /tensors/x/shape: the tensor is larger than 2^62 bytes; check its shape");
  input.refuse(
      with("[\"batch\", 1024]", "[\"batch*9223372036854775807\", 1024]"),
      ": /tensors/x/shape/0: the product \"batch*9223372036854775807\" does not fit into 64 "
      "bits");
  input.refuse(with("1024", "3000000000000000"),
               ": /tensors/w1/shape: the tensor is larger than 2^62 bytes; check its shape");
}

TEST_CASE("plan refuses shapes that do not fit together") {
  const BadInput input;
  input.refuse_with(with("[4096, 1024]", "[4095, 1024]"),
                    ": /operators/2: operator \"fc2\" (MatMul): ");
  input.refuse_with(with("[\"x\", \"w1\"]", "[\"x\"]"),
                    ": /operators/0: operator \"fc1\" (MatMul): ");
  input.refuse(with("[\"batch\", 1024]", "[\"bach\", 1024]"),
               ": /tensors/x/shape/0: dimension \"bach\" is not declared; did you mean \"batch\"?");
}

TEST_CASE("plan leaves an older plan as it was when its input is wrong") {
  const BadInput input;
  input.folder().write("plan.json", "older");
  const ProgramRun run = input.plan(input.folder().write("g.json", with("64", "0")));
  CHECK(run.exit_code == 3);
  CHECK(test::file_text(input.output()) == "older");
}

TEST_CASE("plan reads a graph from standard input") {
  const std::vector<std::string> arguments = {
      "plan", "-", "--cluster", "dgx-a100-80g", "--devices", "8"};
  CHECK(run_program(arguments, kGraph).exit_code == 0);
  const ProgramRun run = run_program(arguments, with("64", "0"));
  CHECK(run.exit_code == 3);
  CHECK(run.out.empty());
  CHECK(run.err.rfind("meshplan: error: standard input: /dimensions/batch/size: ", 0) == 0);
}

TEST_CASE("plan takes names with any characters") {
  const BadInput input;
  const ProgramRun run = input.plan(
      input.folder().write("g.json", with("\"fc1\"", R"json("\u0000\u0001\u0002{0..1}")json")));
  INFO(run.err);
  CHECK(run.exit_code == 0);
  const ProgramRun checked = run_program({"check",
                                          input.output(),
                                          "--graph",
                                          input.folder().file("g.json"),
                                          "--cluster",
                                          "dgx-a100-80g"});
  INFO(checked.out);
  CHECK(checked.exit_code == 0);
}

TEST_CASE("plan refuses tensors that cannot be redistributed or summed") {
  const BadInput input;
  const auto shape_of_x = [](const std::string& shape) {
    return R"json({"schema": "meshplan.graph/1.0",
      "tensors": {"x": {"shape": [)json" +
           shape + R"json(], "dtype": "bf16", "role": "input"}},
      "operators": [{"name": "act", "type": "Relu", "inputs": ["x"], "outputs": ["y"]}]})json";
  };
  input.refuse(shape_of_x("2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2"),
               ": tensor \"x\" has 16 dimensions; plans are made for tensors of at most 15");
  input.refuse(shape_of_x("1152921504606846976"),
               ": tensors and their readers hold more than 2^56 elements; their memory does not "
               "fit into 64 bits");
}

TEST_CASE("a step that takes hours is refused where sums are no longer exact") {
  const BadInput input;
  const std::string graph = input.folder().write("g.json", with("64}", "1099511627776}"));
  const ProgramRun run = run_program({"plan",
                                      graph,
                                      "--cluster",
                                      "dgx-a100-80g",
                                      "--devices",
                                      "8",
                                      "--memory-limit",
                                      "1000000TB",
                                      "-o",
                                      input.output()});
  CHECK(run.err.find(graph + ": the best step found takes ") != std::string::npos);
  input.check(run, run.err);
}

}  // namespace
}  // namespace meshplan::bad_input_graph_test

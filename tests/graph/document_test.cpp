// SPDX-License-Identifier: Apache-2.0
// The graph document as text: what is read, what is refused and how it is written.
#include <algorithm>
#include <string>

#include "graph/graph_document.h"
#include "support/catch.h"
#include "support/run_program.h"

namespace meshplan::document_test {
namespace {

const std::string kMlp = R"({
  "schema": "meshplan.graph/1.0",
  "name": "mlp",
  "dimensions": {
    "batch": {"size": 64},
    "seq": {"size": 2048, "dynamic": true, "min": 128, "max": 4096, "multiple_of": 128}
  },
  "operator_types": {
    "Mine": {"rule": "b h -> b h", "flops": "3*b*h"}
  },
  "tensors": {
    "x": {"shape": ["batch", 1024], "dtype": "bf16", "role": "input"},
    "w1": {"shape": [1024, 4096], "dtype": "bf16", "role": "parameter"},
    "w2": {"shape": [4096, 1024], "dtype": "bf16", "role": "parameter", "trainable": false},
    "h": {"shape": ["batch", 4096], "dtype": "bf16"},
    "loss": {"shape": [], "dtype": "fp32", "role": "loss"}
  },
  "operators": [
    {"name": "fc1", "type": "MatMul", "inputs": ["x", "w1"], "outputs": ["h"], "scope": "layers.0.mlp"},
    {"name": "mine", "type": "Mine", "inputs": ["h"], "outputs": ["a"]},
    {"name": "fc2", "type": "MatMul", "inputs": ["a", "w2"], "outputs": ["y"], "attributes": {"transpose_b": false}},
    {"name": "own", "type": "Custom", "inputs": ["y", ""], "outputs": ["z"], "rule": "b h, ? -> b h", "flops": "2*b*h"},
    {"name": "mean", "type": "ReduceMean", "inputs": ["z"], "outputs": ["loss"], "attributes": {"eps": 1.0, "keepdims": 0, "list": [1.0, 2.5], "mixed": ["batch*seq", -1], "mode": "sum"}}
  ],
  "outputs": ["y"]
}
)";

GraphDocument read(const std::string& text) {
  Result<GraphDocument> document = read_graph_document(text, "g.json");
  if (!document) FAIL(to_string(document.error()));
  return *std::move(document);
}

/// kMlp with the first `old` replaced, read: the error's text.
std::string error_with(const std::string& old, const std::string& replacement) {
  std::string text = kMlp;
  const std::size_t at = text.find(old);
  REQUIRE(at != std::string::npos);
  text.replace(at, old.size(), replacement);
  const Result<GraphDocument> document = read_graph_document(text, "g.json");
  INFO(replacement);
  REQUIRE_FALSE(document.has_value());
  const std::string message = to_string(document.error());
  CHECK(message.find('\n') == std::string::npos);
  return message;
}

TEST_CASE("A graph document is read with everything it says") {
  const GraphDocument document = read(kMlp);
  CHECK(document.name == "mlp");
  REQUIRE(document.dimensions.size() == 2);
  CHECK(document.dimensions[1].max == 4096);
  CHECK(document.dimensions[1].dynamic);
  REQUIRE(document.tensors.size() == 5);
  CHECK(document.tensors[0].shape == std::vector<Size>{"batch", 1024});
  CHECK(document.tensors[2].trainable == false);
  CHECK(document.tensors[4].role == Role::kLoss);
  CHECK(document.tensors[4].shape->empty());
  REQUIRE(document.operators.size() == 5);
  CHECK(document.operators[0].scope == "layers.0.mlp");
  CHECK(document.operators[2].attributes.at("transpose_b") == AttributeDocument(std::int64_t{0}));
  CHECK(document.operators[3].inputs[1].empty());
  CHECK(document.operators[4].attributes.at("list") ==
        AttributeDocument(std::vector<double>{1.0, 2.5}));
  CHECK(document.operators[4].attributes.at("eps") == AttributeDocument(1.0));
  CHECK(document.operator_types[0].flops == "3*b*h");
  CHECK(document.outputs == std::vector<std::string>{"y"});
}

TEST_CASE("A graph document that is written reads back the same") {
  const GraphDocument document = read(kMlp);
  const std::string text = write_graph_document(document);
  const GraphDocument again = read(text);
  CHECK(again.name == document.name);
  CHECK(again.dimensions == document.dimensions);
  CHECK(again.tensors == document.tensors);
  CHECK(again.operators == document.operators);
  CHECK(again.operator_types == document.operator_types);
  CHECK(again.outputs == document.outputs);
  CHECK(write_graph_document(again) == text);
  // the example is in the writer's own layout, but for the one boolean attribute
  std::string expected = kMlp;
  expected.replace(expected.find("\"transpose_b\": false"), 20, "\"transpose_b\": 0");
  CHECK(text == expected);
}

TEST_CASE("The fingerprint does not see order and white space, but every change of meaning") {
  const GraphDocument document = read(kMlp);
  GraphDocument shuffled = document;
  std::reverse(shuffled.operators.begin(), shuffled.operators.end());
  std::reverse(shuffled.tensors.begin(), shuffled.tensors.end());
  std::reverse(shuffled.dimensions.begin(), shuffled.dimensions.end());
  CHECK(fingerprint(shuffled) == fingerprint(document));
  CHECK(fingerprint(document).rfind("sha256:", 0) == 0);
  CHECK(fingerprint(document).size() == 7 + 64);
  std::string spaced = kMlp;
  for (std::size_t at = 0; (at = spaced.find(": ", at)) != std::string::npos; at += 4) {
    spaced.replace(at, 2, " :  ");
  }
  CHECK(fingerprint(read(spaced)) == fingerprint(document));
  const auto changed = [&](auto change) {
    GraphDocument other = document;
    change(other);
    return fingerprint(other) != fingerprint(document);
  };
  CHECK(changed([](GraphDocument& d) { d.dimensions[0].size = 65; }));
  CHECK(changed([](GraphDocument& d) { d.tensors[1].trainable = false; }));
  CHECK(changed([](GraphDocument& d) { d.tensors[1].dtype = DType::kFp16; }));
  CHECK(changed([](GraphDocument& d) { d.operators[0].scope = ""; }));
  CHECK(changed(
      [](GraphDocument& d) { std::swap(d.operators[0].inputs[0], d.operators[0].inputs[1]); }));
  CHECK(changed([](GraphDocument& d) { d.operators[2].attributes.clear(); }));
  CHECK(changed([](GraphDocument& d) { d.operators[3].flops += "*2"; }));
  CHECK(changed([](GraphDocument& d) { d.outputs.reset(); }));
}

TEST_CASE("Unknown keys are refused everywhere, with the nearest known one") {
  CHECK(error_with("\"operators\"", "\"operator\"") ==
        "g.json: /operator: unknown key \"operator\"; did you mean \"operators\"?");
  CHECK(error_with("\"dynamic\"", "\"dynamc\"") ==
        "g.json: /dimensions/seq/dynamc: unknown key \"dynamc\"; did you mean \"dynamic\"?");
  CHECK(error_with("\"dtype\"", "\"dtyp\"") ==
        "g.json: /tensors/x/dtyp: unknown key \"dtyp\"; did you mean \"dtype\"?");
  CHECK(error_with("\"scope\"", "\"scop\"") ==
        "g.json: /operators/0/scop: unknown key \"scop\"; did you mean \"scope\"?");
  CHECK(error_with("\"flops\": \"3", "\"flop\": \"3") ==
        "g.json: /operator_types/Mine/flop: unknown key \"flop\"; did you mean \"flops\"?");
}

TEST_CASE("Values of the wrong kind are refused with their place") {
  CHECK(error_with("\"mlp\"", "5") == "g.json: /name: expected a string, found an integer");
  CHECK(error_with("{\"size\": 64}", "64") ==
        "g.json: /dimensions/batch: expected an object, found an integer");
  CHECK(error_with("\"size\": 64", "\"size\": \"64\"") ==
        "g.json: /dimensions/batch/size: expected an integer, found a string \"64\"");
  CHECK(
      error_with("[1024, 4096]", "[1024, 4096.5]") ==
      "g.json: /tensors/w1/shape/1: expected a size: an integer or the name of a dimension, found "
      "a number");
  CHECK(error_with("[1024, 4096]", "1024") ==
        "g.json: /tensors/w1/shape: expected an array, found an integer");
  CHECK(error_with("\"trainable\": false", "\"trainable\": 0") ==
        "g.json: /tensors/w2/trainable: expected true or false, found an integer");
  CHECK(error_with("[\"x\", \"w1\"]", "\"x\"") ==
        "g.json: /operators/0/inputs: expected an array, found a string \"x\"");
  CHECK(error_with("[\"x\", \"w1\"]", "[\"x\", null]") ==
        "g.json: /operators/0/inputs/1: expected a string, found null");
  CHECK(error_with("\"mode\": \"sum\"", "\"mode\": null").find("/operators/4/attributes/mode: ") !=
        std::string::npos);
  CHECK(error_with("[1.0, 2.5]", "[1, [2]]").find("/operators/4/attributes/list/1: ") !=
        std::string::npos);
  CHECK(error_with("[1.0, 2.5]", "[1.5, \"batch\"]").find("/operators/4/attributes/list: ") !=
        std::string::npos);
}

TEST_CASE("Sizes below one and beyond 64 bits are refused") {
  CHECK(error_with("[1024, 4096]", "[1024, 0]") ==
        "g.json: /tensors/w1/shape/1: expected an integer of at least 1, found 0");
  CHECK(error_with("[1024, 4096]", "[-1, 4096]") ==
        "g.json: /tensors/w1/shape/0: expected an integer of at least 1, found -1");
  CHECK(error_with("\"size\": 64", "\"size\": 0") ==
        "g.json: /dimensions/batch/size: expected an integer of at least 1, found 0");
  CHECK(error_with("[1024, 4096]", "[1024, 9223372036854775808]") ==
        "g.json: /tensors/w1/shape/1: the integer does not fit into 64 bits");
  CHECK(error_with("[1024, 4096]", "[1024, NaN]").find("g.json: not valid JSON at line 13") == 0);
}

TEST_CASE("A dynamic size must lie within its own limits") {
  CHECK(error_with("\"size\": 2048", "\"size\": 64") ==
        "g.json: /dimensions/seq/min: size 64 is below min");
  CHECK(error_with("\"size\": 2048", "\"size\": 8192") ==
        "g.json: /dimensions/seq/max: size 8192 is above max");
  CHECK(error_with("\"size\": 2048", "\"size\": 2000") ==
        "g.json: /dimensions/seq/multiple_of: size 2000 is not a multiple of 128");
}

TEST_CASE("Roles, dtypes and names are checked") {
  CHECK(error_with("\"bf16\"", "\"bf61\"") ==
        "g.json: /tensors/x/dtype: unknown dtype \"bf61\"; known are bool, uint8, int8, int16, "
        "int32, int64, fp8_e4m3, fp8_e5m2, fp16, bf16, fp32, fp64; did you mean \"bf16\"?");
  CHECK(error_with("\"parameter\"", "\"weight\"").find("unknown role \"weight\"") !=
        std::string::npos);
  CHECK(error_with("\"role\": \"parameter\", \"trainable\"", "\"trainable\"") ==
        "g.json: /tensors/w2/trainable: only a tensor of role \"parameter\" can be trainable or "
        "not; this one's role is \"activation\"");
  CHECK(error_with("\"name\": \"fc1\", ", "") ==
        "g.json: /operators/0: the key \"name\" is missing");
  CHECK(error_with("\"name\": \"fc1\"", "\"name\": \"\"") ==
        "g.json: /operators/0/name: a name must not be empty");
  CHECK(error_with("\"outputs\": [\"h\"]", "\"outputs\": []") ==
        "g.json: /operators/0/outputs: an operator makes at least one tensor");
  CHECK(error_with("\"outputs\": [\"h\"]", "\"outputs\": [\"\"]") ==
        "g.json: /operators/0/outputs/0: a name must not be empty");
  CHECK(error_with("\"w2\": {\"shape\"", "\"w1\": {\"shape\"") ==
        "g.json: /tensors/w1: the key \"w1\" stands twice in one object");
  CHECK(error_with("graph/1.0", "graph/1.1") ==
        "g.json: /schema: this program reads meshplan.graph 1.0 to 1.0, not "
        "\"meshplan.graph/1.1\"");
}

TEST_CASE("The complete example of the user page is a good graph") {
  const std::string page = test::file_text(MESHPLAN_SOURCE_DIR "/docs/formats.md");
  const std::size_t begin = page.find("```json\n{\n  \"schema\"");
  REQUIRE(begin != std::string::npos);
  const std::string text = page.substr(begin + 8, page.find("```\n", begin + 8) - begin - 8);
  const GraphDocument document = read(text);
  CHECK(document.operators.size() == 4);
  const Result<Graph> graph = resolve(document, GraphOptions{});
  if (!graph) FAIL(to_string(graph.error()));
  CHECK(write_graph_document(document) == text);
}

}  // namespace
}  // namespace meshplan::document_test

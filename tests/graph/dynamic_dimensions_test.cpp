// SPDX-License-Identifier: Apache-2.0
// What may be cut where dimensions are dynamic.
#include "graph/dynamic_dimensions.h"

#include "graph/operator_info.h"
#include "support/catch.h"

namespace meshplan::dynamic_dimensions_test {
namespace {

/// y = x w over b * seq rows; the dimension seq is as in `seq`.
std::string document(const std::string& seq, const std::string& more = "") {
  return R"({"schema": "meshplan.graph/1.0", "name": "g", "dimensions": {"b": {"size": 6}, "seq": )" +
         seq + more + R"(}, "tensors": {
    "x": {"shape": ["b", "seq", 64], "dtype": "bf16", "role": "input"},
    "w": {"shape": [64, 32], "dtype": "bf16", "role": "parameter"},
    "l": {"shape": [], "dtype": "bf16", "role": "loss"}},
  "operators": [
    {"name": "r", "type": "Reshape", "inputs": ["x"], "outputs": ["r"], "attributes": {"shape": ["b*seq", 64]}},
    {"name": "y", "type": "MatMul", "inputs": ["r", "w"], "outputs": ["y"]},
    {"name": "l", "type": "ReduceMean", "inputs": ["y"], "outputs": ["l"], "attributes": {"keepdims": 0}}]})";
}

Result<Graph> graph_of(const std::string& text, std::int64_t microbatches = 1) {
  GraphOptions options;
  options.microbatches = microbatches;
  return read_graph(text, "g.json", options);
}

const Operator& named(const Graph& graph, const std::string& name) {
  for (const Operator& op : graph.operators) {
    if (op.name == name) return op;
  }
  FAIL("no operator " << name);
  return graph.operators.front();
}

/// The largest axis that cuts the rows of y.
std::int64_t most_pieces(const Graph& graph) {
  std::int64_t most = 1;
  for (std::int64_t pieces = 2; pieces <= 6 * 512; ++pieces) {
    const OperatorInfo info(named(graph, "y").rule, {pieces});
    for (const Strategy& strategy : info.strategies()) {
      const AxisAction& action = info.action(strategy, 0);
      if (action.kind == AxisAction::Kind::kFactor &&
          info.operand_state(strategy, 0, false)[0] == 0)
        most = pieces;
    }
  }
  return most;
}

TEST_CASE("a dynamic dimension is cut by what divides its step") {
  struct Case {
    const char* seq;
    std::int64_t rows;  ///< what divides b * seq at every size
  };
  for (const Case& one :
       {Case{R"({"size": 512})", 6 * 512},
        Case{R"({"size": 512, "dynamic": true, "multiple_of": 128})", 6 * 128},
        Case{R"({"size": 512, "dynamic": true})", 6},
        Case{R"({"size": 512, "dynamic": true, "min": 256, "max": 512, "multiple_of": 64})",
             6 * 64},
        // one size only
        Case{R"({"size": 512, "dynamic": true, "min": 512, "max": 600, "multiple_of": 128})",
             6 * 512}}) {
    INFO(one.seq);
    const auto graph = graph_of(document(one.seq));
    if (!graph) FAIL(to_string(graph.error()));
    CHECK(most_pieces(*graph) == one.rows);
    for (const Tensor& tensor : graph->tensors) {
      if (tensor.name == "r") CHECK(tensor.divisible() == Shape{one.rows, 64});
      if (tensor.name == "w") CHECK(tensor.units.empty());
      if (tensor.name == "x") CHECK(tensor.shape == Shape{6, 512, 64});
    }
  }
}

TEST_CASE("several dynamic dimensions have no more in common than their steps") {
  // 2 x 3 and 3 x 4: every size of b * seq alone is even, their steps are 1 and 2
  const std::string text = document(R"({"size": 4, "dynamic": true, "multiple_of": 2})");
  const std::string both =
      std::string(text).replace(text.find(R"({"size": 6})"), 11, R"({"size": 6, "dynamic": true})");
  const auto graph = graph_of(both);
  if (!graph) FAIL(to_string(graph.error()));
  CHECK(most_pieces(*graph) == 2);
}

TEST_CASE("a dynamic batch keeps what micro-batches divide") {
  const std::string text =
      R"({"schema": "meshplan.graph/1.0", "name": "g", "dimensions": {"batch": {"size": 48, "dynamic": true, "multiple_of": 8}},
  "tensors": {"x": {"shape": ["batch", 64], "dtype": "bf16", "role": "input"}, "w": {"shape": [64, 32], "dtype": "bf16", "role": "parameter"}, "l": {"shape": [], "dtype": "bf16", "role": "loss"}},
  "operators": [{"name": "y", "type": "MatMul", "inputs": ["x", "w"], "outputs": ["y"]},
    {"name": "l", "type": "ReduceMean", "inputs": ["y"], "outputs": ["l"], "attributes": {"keepdims": 0}}]})";
  const auto whole = graph_of(text);
  REQUIRE(whole.has_value());
  CHECK(most_pieces(*whole) == 8);
  const auto thirds = graph_of(text, 3);  // 24, 48, ... in three parts: 8, 16, ...
  if (!thirds) FAIL(to_string(thirds.error()));
  CHECK(most_pieces(*thirds) == 8);
  const auto halves = graph_of(text, 2);
  REQUIRE(halves.has_value());
  CHECK(most_pieces(*halves) == 4);
}

TEST_CASE("a graph that holds at one size only is refused") {
  const std::string fixed = document(R"({"size": 512, "dynamic": true, "multiple_of": 128})");
  const std::string at = R"("attributes": {"shape": ["b*seq", 64]})";
  const auto graph = graph_of(std::string(fixed).replace(
      fixed.find(at), at.size(), R"("attributes": {"shape": [3072, 64]})"));
  REQUIRE_FALSE(graph.has_value());
  CHECK(graph.error().code == ErrorCode::kConflict);
  CHECK(graph.error().where == "g.json: /dimensions/seq");
  CHECK(graph.error().message.find("the graph does not hold at every size of what is dynamic; at "
                                   "seq = 640: g.json: /operators/0") == 0);
}

TEST_CASE("too many dynamic dimensions are refused") {
  std::string more;
  for (int i = 0; i < 6; ++i)
    more += ", \"d" + std::to_string(i) + "\": {\"size\": 4, \"dynamic\": true}";
  const auto graph = graph_of(document(R"({"size": 4, "dynamic": true})", more));
  REQUIRE_FALSE(graph.has_value());
  CHECK(graph.error().code == ErrorCode::kUnsupported);
  CHECK(graph.error().where == "g.json: /dimensions");
  CHECK(graph.error().message == "7 dimensions are dynamic, at most 6 may be");
}

}  // namespace
}  // namespace meshplan::dynamic_dimensions_test

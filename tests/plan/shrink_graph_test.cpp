// SPDX-License-Identifier: Apache-2.0
#include "plan/execution/shrink_graph.h"

#include <algorithm>

#include "support/graph_builder.h"
#include "support/models.h"

namespace meshplan {
namespace {

std::vector<std::vector<Pieces>> uncut(const Graph& graph) {
  return std::vector<std::vector<Pieces>>(graph.tensors.size());
}

TEST_CASE("a decoder shrinks to a few elements per dimension and keeps its pieces") {
  const Graph graph = test::llama_graph(test::shipped_config("llama2_7b"), 32, 4096);
  std::vector<std::vector<Pieces>> pieces = uncut(graph);
  const TensorId tokens = test::tensor_id(graph, "input_ids");
  pieces[index(tokens)] = {{16, 1}, {1, 8}};
  const TensorId gate = test::tensor_id(graph, "model.layers.3.mlp.gate_proj.weight");
  pieces[index(gate)] = {{1, 4}};
  const Result<Graph> small = shrink_graph(graph, pieces);
  if (!small) FAIL(to_string(small.error()));
  REQUIRE(small->tensors.size() == graph.tensors.size());
  auto shape = [&](const std::string& name) {
    return small->tensor(test::tensor_id(*small, name)).shape;
  };
  CHECK(shape("input_ids") == Shape{32, 16});
  CHECK(shape("model.layers.3.mlp.gate_proj.weight") == Shape{2, 8});
  CHECK(shape("model.layers.3.mlp.down_proj.weight") == Shape{8, 2});
  CHECK(shape("model.layers.4.mlp.gate_proj.weight") == Shape{2, 2});
  CHECK(shape("model.layers.0.self_attn.q_rotary")[2] == 16);
  for (const Tensor& tensor : small->tensors) {
    std::int64_t elements = 1;
    for (const std::int64_t size : tensor.shape) elements *= size;
    INFO(tensor.name);
    CHECK(elements <= 32 * 16 * 32);
  }
  for (std::size_t o = 0; o < small->operators.size(); ++o) {
    const Operator& op = small->operators[o];
    INFO(op.name);
    for (std::size_t i = 0; i < op.inputs.size(); ++i) {
      if (op.inputs[i]) REQUIRE(op.rule->operands[i].shape == small->tensor(*op.inputs[i]).shape);
    }
    for (std::size_t r = 0; r < op.outputs.size(); ++r)
      REQUIRE(op.rule->results[r].shape == small->tensor(op.outputs[r]).shape);
  }
}

TEST_CASE("a dimension that a reshape splits shrinks part by part") {
  // 120 is [6, 20]: 3 pieces cut the 6, 5 pieces of the 20 are possible below it
  const Graph graph = test::build_graph(
      "input x 64 96; weight w 96 120; y = MatMul x w; z = Reshape y shape=64,6,20; "
      "u = Transpose z perm=1,0,2; loss s = ReduceSum u keepdims=0");
  std::vector<std::vector<Pieces>> pieces = uncut(graph);
  pieces[index(test::tensor_id(graph, "w"))] = {{1, 3}, {32, 1}};
  pieces[index(test::tensor_id(graph, "u"))] = {{1, 1, 5}};
  const Result<Graph> small = shrink_graph(graph, pieces);
  if (!small) FAIL(to_string(small.error()));
  auto shape = [&](const std::string& name) {
    return small->tensor(test::tensor_id(*small, name)).shape;
  };
  CHECK(shape("x") == Shape{2, 32});
  CHECK(shape("w") == Shape{32, 60});
  CHECK(shape("z") == Shape{2, 6, 10});
  CHECK(shape("u") == Shape{6, 2, 10});
}

TEST_CASE("pieces that no whole parts can follow are refused") {
  const Graph graph = test::llama_graph(test::llama_config({}), 4, 16);
  std::vector<std::vector<Pieces>> pieces = uncut(graph);
  pieces[index(test::tensor_id(graph, "input_ids"))] = {{3, 1}};
  const Result<Graph> small = shrink_graph(graph, pieces);
  REQUIRE_FALSE(small);
  CHECK(small.error().message ==
        "dimension 0 of tensor \"input_ids\" is not cut into whole parts by 3");
}

}  // namespace
}  // namespace meshplan

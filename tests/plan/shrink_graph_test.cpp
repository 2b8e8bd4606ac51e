// SPDX-License-Identifier: Apache-2.0
#include "plan/execution/shrink_graph.h"

#include <algorithm>

#include "support/graph_builder.h"
#include "support/imported_models.h"
#include "support/models.h"

namespace meshplan::shrink_graph_test {
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

TEST_CASE("a cut across the parts of a dimension shrinks as well") {
  // 64 pieces of 112 heads x 128: 16 lie along the heads, 4 within one
  const Graph graph = test::build_graph(
      "input x 64 96; weight w 96 14336; y = MatMul x w; z = Reshape y shape=64,112,128; "
      "loss s = ReduceSum z keepdims=0");
  std::vector<std::vector<Pieces>> pieces = uncut(graph);
  pieces[index(test::tensor_id(graph, "w"))] = {{1, 64}};
  const Result<Graph> small = shrink_graph(graph, pieces);
  if (!small) FAIL(to_string(small.error()));
  CHECK(small->tensor(test::tensor_id(*small, "z")).shape == Shape{2, 16, 4});
}

TEST_CASE("a slice of few positions keeps one, wherever it starts") {
  struct Row {
    std::string range;
    std::int64_t all, kept;
  };
  for (const Row& row : {Row{"starts=0 ends=1", 2, 1},
                         Row{"starts=-1 ends=9000", 2, 1},
                         Row{"starts=1 ends=9000", 2, 1},
                         Row{"starts=32 ends=96", 2, 1},
                         Row{"starts=0 ends=64", 4, 2}}) {  // an equal part keeps its share
    INFO(row.range);
    const Graph graph = test::build_graph("input x 64 128; y = Slice x axes=1 " + row.range +
                                          "; z = Tanh y; loss s = ReduceSum z keepdims=0");
    std::vector<std::vector<Pieces>> pieces = uncut(graph);
    pieces[index(test::tensor_id(graph, "x"))] = {{8, 1}};
    const Result<Graph> small = shrink_graph(graph, pieces);
    if (!small) FAIL(to_string(small.error()));
    CHECK(small->tensor(test::tensor_id(*small, "x")).shape == Shape{16, row.all});
    CHECK(small->tensor(test::tensor_id(*small, "z")).shape == Shape{16, row.kept});
  }
}

TEST_CASE("the keys of a mask follow those of the attention") {
  const Graph graph = test::build_graph(
      "input q 8 16 64 32; input k 8 4 48 32; input v 8 4 48 32; constant m 16 1 48; "
      "y = Attention q k v m");
  std::vector<std::vector<Pieces>> pieces = uncut(graph);
  pieces[index(test::tensor_id(graph, "k"))] = {{1, 1, 12, 1}};
  const Result<Graph> small = shrink_graph(graph, pieces);
  if (!small) FAIL(to_string(small.error()));
  CHECK(small->tensor(test::tensor_id(*small, "k")).shape == Shape{2, 2, 24, 2});
  CHECK(small->tensor(test::tensor_id(*small, "m")).shape == Shape{4, 1, 24});
}

TEST_CASE("a tensor that windows slide over has as many positions as they need") {
  const Graph graph = test::build_graph(
      "input x 8 3 224 224; weight w 64 3 7 7; "
      "y = Conv x w kernel_shape=7,7 strides=2,2 pads=3,3,3,3; loss s = ReduceSum y keepdims=0");
  std::vector<std::vector<Pieces>> pieces = uncut(graph);
  pieces[index(test::tensor_id(graph, "y"))] = {{1, 1, 4, 1}};
  const Result<Graph> small = shrink_graph(graph, pieces);
  if (!small) FAIL(to_string(small.error()));
  CHECK(small->tensor(test::tensor_id(*small, "y")).shape == Shape{2, 2, 8, 2});
  CHECK(small->tensor(test::tensor_id(*small, "x")).shape == Shape{2, 2, 16, 4});
  CHECK(small->tensor(test::tensor_id(*small, "w")).shape == Shape{2, 2, 7, 7});
}

/// As few layers as keep every kind.
std::int64_t few_layers(const std::string& name) {
  if (name == "deepseek_v3") return 4;
  return name == "gemma3_1b" ? 6 : 2;
}

TEST_CASE("every model shrinks to a few elements per tensor, and some experts are not chosen") {
  for (const std::string& name : test::shipped_models()) {
    INFO(name);
    HfOptions options;
    options.batch = 64;
    if (name.rfind("vit", 0) != 0) options.seq = 128;
    options.layers = few_layers(name);
    const Graph graph = test::imported(test::shipped_config(name), options);
    const Result<Graph> small = shrink_graph(graph, uncut(graph));
    if (!small) FAIL(to_string(small.error()));
    for (const Tensor& tensor : small->tensors) {
      INFO(tensor.name);
      // a kernel keeps its size, and what it slides over is no smaller
      CHECK(element_count(tensor.shape) <= (name.rfind("vit", 0) == 0 ? 4096 : 256));
    }
    for (const Operator& op : small->operators) {
      if (op.type != "TopK") continue;
      INFO(op.name);
      CHECK(small->tensor(op.outputs[0]).shape.back() < small->tensor(*op.inputs[0]).shape.back());
    }
  }
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
}  // namespace meshplan::shrink_graph_test

// SPDX-License-Identifier: Apache-2.0
// Every operator type with random operands and attributes, extreme ones included: the graph is
// resolved or refused, and whatever is resolved keeps the invariants of Graph.
#include <array>
#include <cstdint>
#include <limits>
#include <random>
#include <string>

#include "graph/graph_document.h"
#include "graph/operator_table.h"
#include "support/catch.h"

namespace meshplan::resolve_hostile_test {
namespace {

class RandomGraph {
 public:
  explicit RandomGraph(std::uint32_t seed) : random_(seed) {}

  GraphDocument make(const std::string& type) {
    GraphDocument document;
    document.file = "g.json";
    document.dimensions = {{"batch", 4, false, {}, {}, {}}};
    const Shape base = shape();
    OperatorDocument op;
    op.name = "op";
    op.type = type;
    for (std::uint32_t i = pick(5); i > 0; --i) {
      if (pick(12) == 0) {
        op.inputs.emplace_back();
        continue;
      }
      TensorDocument tensor;
      tensor.name = "t" + std::to_string(i);
      tensor.role = pick(2) == 0 ? Role::kInput : Role::kConstant;
      tensor.dtype = static_cast<DType>(pick(12));
      tensor.shape.emplace();
      for (const std::int64_t size : pick(3) == 0 ? shape() : base)
        tensor.shape->emplace_back(size);
      document.tensors.push_back(tensor);
      op.inputs.push_back(tensor.name);
    }
    for (std::uint32_t i = 1 + (pick(10) == 0 ? pick(3) : 0); i > 0; --i) {
      op.outputs.push_back("y" + std::to_string(i));
    }
    static const std::array<const char*, 20> kNames = {
        "axis",   "axes",   "perm", "shape",     "keepdims",  "transpose_a",         "transpose_b",
        "transA", "transB", "to",   "is_causal", "reduction", "allowzero",           "epsilon",
        "split",  "starts", "ends", "steps",     "k",         "noop_with_empty_axes"};
    for (std::uint32_t i = pick(4); i > 0; --i) {
      op.attributes.emplace(kNames[pick(kNames.size())], attribute());
    }
    document.operators.push_back(std::move(op));
    return document;
  }

 private:
  std::uint32_t pick(std::size_t below) { return static_cast<std::uint32_t>(random_() % below); }

  std::int64_t number() {
    constexpr std::int64_t kMin = std::numeric_limits<std::int64_t>::min();
    constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
    static const std::array<std::int64_t, 16> kNumbers = {
        0, 1, 2, 3, -1, -2, -4, 4, 8, 32, 1000003, kMax, kMin, kMax - 1, std::int64_t{1} << 32, 6};
    return kNumbers[pick(kNumbers.size())];
  }

  Shape shape() {
    static const std::array<std::int64_t, 12> kSizes = {
        1, 1, 2, 3, 4, 6, 8, 12, 128, 1000003, std::int64_t{1} << 31, std::int64_t{1} << 40};
    Shape shape(pick(6));
    for (std::int64_t& size : shape) size = kSizes[pick(pick(4) == 0 ? kSizes.size() : 8)];
    return shape;
  }

  AttributeDocument attribute() {
    switch (pick(6)) {
      case 0:
        return number();
      case 1:
        return 0.5 * static_cast<double>(pick(5));
      case 2:
        return std::string(pick(2) == 0 ? "mean" : "batch");
      case 3:
        return std::vector<double>{1.5};
      default: {
        std::vector<Size> list;
        for (std::uint32_t i = pick(6); i > 0; --i) {
          list.emplace_back(pick(3) == 0 ? number() : std::int64_t{pick(5)});
        }
        return list;
      }
    }
  }

  std::mt19937 random_;
};

TEST_CASE("Operators with random operands and attributes are resolved or refused") {
  int resolved = 0;
  int refused = 0;
  for (const std::string& type : operator_types()) {
    for (std::uint32_t seed = 0; seed < 200; ++seed) {
      const GraphDocument document = RandomGraph(seed).make(type);
      INFO("seed " << seed << "\n" << write_graph_document(document));
      const Result<Graph> graph = resolve(document, GraphOptions{});
      if (!graph) {
        ++refused;
        CHECK(graph.error().where.rfind("g.json: /", 0) == 0);
        CHECK(graph.error().message.find('\n') == std::string::npos);
        continue;
      }
      ++resolved;
      for (const Tensor& tensor : graph->tensors) {
        for (const std::int64_t size : tensor.shape) REQUIRE(size >= 1);
        REQUIRE(tensor.shape.size() <= 32);
        REQUIRE(element_count(tensor.shape) >= 1);
      }
      for (const Operator& op : graph->operators) {
        REQUIRE(op.rule->operands.size() >= op.inputs.size());
        REQUIRE(op.rule->results.size() == op.outputs.size());
        for (std::size_t i = 0; i < op.inputs.size(); ++i) {
          if (op.inputs[i])
            REQUIRE(op.rule->operands[i].shape == graph->tensor(*op.inputs[i]).shape);
        }
      }
    }
  }
  CHECK(resolved > 500);
  CHECK(refused > 500);
}

TEST_CASE("Rules of one's own with random text are resolved or refused") {
  std::mt19937 random(5);
  static const std::string kPieces[] = {"b",
                                        "h",
                                        " ",
                                        ",",
                                        "->",
                                        ";",
                                        "sum:h",
                                        "lin:x+y",
                                        "(",
                                        ")",
                                        "~x..",
                                        "x..",
                                        "?",
                                        ".",
                                        "flops:",
                                        "2*b",
                                        "stat:",
                                        "whole:b",
                                        "ring:t=s",
                                        "shift:s(3)",
                                        ":",
                                        "~",
                                        "99999999999999999999",
                                        "\n",
                                        "\"",
                                        "é"};
  for (int i = 0; i < 5000; ++i) {
    GraphDocument document;
    document.file = "g.json";
    TensorDocument x;
    x.name = "x";
    x.role = Role::kInput;
    x.dtype = DType::kFp32;
    x.shape = std::vector<Size>{std::int64_t{6}, std::int64_t{4}};
    document.tensors = {x};
    OperatorDocument op;
    op.name = "op";
    op.type = "Custom";
    op.inputs = {"x"};
    op.outputs = {"y"};
    op.rule = i % 3 == 0 ? "b h -> b h ;" : i % 3 == 1 ? "b h ->" : "";
    for (std::size_t n = random() % 8; n > 0; --n) {
      op.rule += " " + kPieces[random() % std::size(kPieces)];
    }
    if (i % 4 == 0) op.flops = kPieces[random() % std::size(kPieces)] + "*2";
    document.operators = {op};
    INFO(op.rule);
    const Result<Graph> graph = resolve(document, GraphOptions{});
    if (graph) continue;
    CHECK(to_string(graph.error()).find('\n') == std::string::npos);
  }
}

}  // namespace
}  // namespace meshplan::resolve_hostile_test

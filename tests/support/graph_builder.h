// SPDX-License-Identifier: Apache-2.0
// Graphs in one line: statements separated by ';' or new lines.
//
//   input x 8 16; weight w 16 32; y = MatMul x w; loss l = ReduceMean y
//
// `input`, `weight`, `frozen` (a weight that is not trained) and `constant` declare a tensor: name,
// element type (bf16 if left out), sizes. `name = Type operands attributes` is an operator with one
// result; "-" omits an operand; attributes are key=1, key=1,2 or key=text. `loss` before it marks
// the result as a loss.
#pragma once

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include "graph/graph_document.h"
#include "support/catch.h"

namespace meshplan::test {

inline AttributeDocument attribute_value(const std::string& key, const std::string& text) {
  const bool list = key == "shape" || key == "axes" || key == "perm" ||
                    (text.find(',') != std::string::npos &&
                     text.find_first_not_of("-0123456789,") == std::string::npos);
  if (!list && text.find_first_not_of("-0123456789") != std::string::npos) return text;
  std::vector<Size> numbers;
  std::stringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');)
    numbers.emplace_back(std::int64_t{std::stoll(part)});
  if (!list) return std::get<std::int64_t>(numbers.at(0));
  return numbers;
}

inline GraphDocument graph_document(const std::string& text) {
  GraphDocument document;
  document.file = "test.json";
  document.name = "test";
  std::string lines = text;
  std::replace(lines.begin(), lines.end(), ';', '\n');
  std::stringstream statements(lines);
  for (std::string statement; std::getline(statements, statement);) {
    std::stringstream in(statement);
    std::vector<std::string> words;
    for (std::string word; in >> word;) words.push_back(word);
    if (words.empty()) continue;
    const auto equals = std::find(words.begin(), words.end(), "=");
    if (equals == words.end()) {
      TensorDocument tensor;
      tensor.name = words.at(1);
      tensor.role = words[0] == "input"      ? Role::kInput
                    : words[0] == "constant" ? Role::kConstant
                                             : Role::kParameter;
      tensor.trainable = words[0] == "weight";
      tensor.dtype = DType::kBf16;
      tensor.shape.emplace();
      for (std::size_t i = 2; i < words.size(); ++i) {
        if (const auto dtype = parse_dtype(words[i])) {
          tensor.dtype = *dtype;
        } else {
          tensor.shape->push_back(Size(std::int64_t{std::stoll(words[i])}));
        }
      }
      document.tensors.push_back(std::move(tensor));
      continue;
    }
    OperatorDocument op;
    const std::string& result = *(equals - 1);
    if (words[0] == "loss") {
      TensorDocument tensor;
      tensor.name = result;
      tensor.role = Role::kLoss;
      document.tensors.push_back(std::move(tensor));
    }
    op.name = result;
    op.outputs = {result};
    op.type = *(equals + 1);
    for (auto word = equals + 2; word != words.end(); ++word) {
      const std::size_t sign = word->find('=');
      if (sign == std::string::npos) {
        op.inputs.push_back(*word == "-" ? "" : *word);
      } else {
        const std::string key = word->substr(0, sign);
        op.attributes.emplace(key, attribute_value(key, word->substr(sign + 1)));
      }
    }
    document.operators.push_back(std::move(op));
  }
  return document;
}

inline Graph build_graph(const std::string& text, bool training = true) {
  GraphOptions options;
  options.training = training;
  Result<Graph> graph = resolve(graph_document(text), options);
  if (!graph) FAIL(text << ": " << to_string(graph.error()));
  return *std::move(graph);
}

inline TensorId tensor_id(const Graph& graph, const std::string& name) {
  for (std::size_t t = 0; t < graph.tensors.size(); ++t) {
    if (graph.tensors[t].name == name) return static_cast<TensorId>(t);
  }
  FAIL("no tensor " << name);
  return TensorId{};
}

inline OperatorId operator_id(const Graph& graph, const std::string& name) {
  for (std::size_t i = 0; i < graph.operators.size(); ++i) {
    if (graph.operators[i].name == name) return static_cast<OperatorId>(i);
  }
  FAIL("no operator " << name);
  return OperatorId{};
}

}  // namespace meshplan::test

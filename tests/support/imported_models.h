// SPDX-License-Identifier: Apache-2.0
// Graphs of the models in configs/models, and small models made from settings of one's own.
#pragma once

#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "graph/importers/hf.h"
#include "support/catch.h"
#include "support/models.h"

namespace meshplan::test {

/// The names of all files in configs/models, sorted: "bloom_176b".
inline std::vector<std::string> shipped_models() {
  std::vector<std::string> names;
  for (const auto& file :
       std::filesystem::directory_iterator(MESHPLAN_SOURCE_DIR "/configs/models"))
    names.push_back(file.path().stem());
  std::sort(names.begin(), names.end());
  return names;
}

/// A config with these settings as JSON texts; those of `changes` win, "" removes one.
inline std::string config_of(std::map<std::string, std::string> settings,
                             const std::map<std::string, std::string>& changes = {}) {
  for (const auto& [key, value] : changes) settings[key] = value;
  std::string text = "{";
  for (const auto& [key, value] : settings) {
    if (!value.empty()) text += (text.size() > 1 ? ", \"" : "\"") + key + "\": " + value;
  }
  return text + "}";
}

inline Graph imported(const std::string& config, const HfOptions& options) {
  const Result<HfImport> import = import_hf(config, "config.json", options);
  if (!import) FAIL(to_string(import.error()));
  GraphOptions graph_options;
  graph_options.training = options.training;
  Result<Graph> graph = resolve(import->document, graph_options);
  if (!graph) FAIL(to_string(graph.error()));
  return *std::move(graph);
}

inline std::int64_t parameters_of(const Graph& graph) {
  std::int64_t count = 0;
  for (const Tensor& tensor : graph.tensors) {
    if (tensor.role == Role::kParameter) count += element_count(tensor.shape);
  }
  return count;
}

inline bool has_operator(const Graph& graph, const std::string& name) {
  return std::any_of(graph.operators.begin(), graph.operators.end(), [&](const Operator& op) {
    return op.name == name;
  });
}

inline const Operator& operator_named(const Graph& graph, const std::string& name) {
  for (const Operator& op : graph.operators) {
    if (op.name == name) return op;
  }
  FAIL("no operator " << name);
  return graph.operators.front();
}

inline const Tensor& tensor_named(const Graph& graph, const std::string& name) {
  for (const Tensor& tensor : graph.tensors) {
    if (tensor.name == name) return tensor;
  }
  FAIL("no tensor " << name);
  return graph.tensors.front();
}

inline Shape result_shape(const Graph& graph, const std::string& name) {
  return graph.tensor(operator_named(graph, name).outputs[0]).shape;
}

/// The names of an operator's operands, "" for an omitted one.
inline std::vector<std::string> operands(const Graph& graph, const std::string& name) {
  std::vector<std::string> names;
  for (const auto& input : operator_named(graph, name).inputs)
    names.push_back(input ? graph.tensor(*input).name : "");
  return names;
}

}  // namespace meshplan::test

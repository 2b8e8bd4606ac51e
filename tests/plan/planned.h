// SPDX-License-Identifier: Apache-2.0
// Plans of small models made by the real search, for tests of what reads plans.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cost_model/test_clusters.h"
#include "graph/graph_document.h"
#include "graph/importers/hf.h"
#include "plan/build_plan.h"
#include "search/dp_search.h"
#include "support/catch.h"

namespace meshplan::testing {

struct PlannedCase {
  std::string name;
  std::string graph_text;  ///< empty: a small Llama of two layers
  bool tied = false;       ///< of the Llama
  std::int64_t batch = 8;
  std::int64_t seq = 64;
  MeshShape mesh{{2, 2}, {"dp", "tp"}};
  std::int64_t microbatches = 1;
  bool training = true;
  std::string optimizer = "adamw";
  std::string recompute = "none";
  Bytes limit = Bytes{16} << 30;
  std::vector<Measurement> measurements;
};

struct Planned {
  Graph graph;
  Cluster cluster;
  Plan plan;
};

inline std::string small_llama(const PlannedCase& wanted) {
  const std::string config =
      std::string(R"({"model_type": "llama", "hidden_size": 64, "intermediate_size": 96,
      "num_hidden_layers": 2, "num_attention_heads": 8, "num_key_value_heads": 2,
      "vocab_size": 128, "torch_dtype": "bfloat16", "tie_word_embeddings": )") +
      (wanted.tied ? "true}" : "false}");
  HfOptions options;
  options.batch = wanted.batch;
  options.seq = wanted.seq;
  options.training = wanted.training;
  const Result<HfImport> import = import_hf(config, "config.json", options);
  if (!import) FAIL(to_string(import.error()));
  return write_graph_document(import->document);
}

/// Two nodes; slow enough links that the choices are no foregone conclusion.
inline Cluster two_nodes(const MeshShape& mesh) {
  std::int64_t devices = 1;
  for (const std::int64_t size : mesh.shape) devices *= size;
  std::vector<Level> levels = {test::level(devices > 1 ? devices / 2 : 1, 100, 2)};
  if (devices > 1) levels.push_back(test::level(2, 10, 5));
  Cluster cluster = test::cluster(std::move(levels));
  cluster.fingerprint = "sha256:c";
  cluster.efficiency.launch_overhead = {2e-6};
  cluster.price_per_device_hour = 2.0;
  return cluster;
}

inline Planned plan_case(const PlannedCase& wanted) {
  Planned planned;
  GraphOptions graph_options;
  graph_options.training = wanted.training;
  graph_options.microbatches = wanted.microbatches;
  const std::string text = wanted.graph_text.empty() ? small_llama(wanted) : wanted.graph_text;
  Result<Graph> graph = read_graph(text, "graph.json", graph_options);
  if (!graph) FAIL(to_string(graph.error()));
  planned.graph = *std::move(graph);
  planned.cluster = two_nodes(wanted.mesh);
  planned.cluster.measurements = wanted.measurements;
  DpOptions options;
  options.prices.microbatches = wanted.microbatches;
  options.prices.optimizer = *parse_optimizer(wanted.optimizer);
  options.prices.overlap = planned.cluster.efficiency.overlap;
  options.memory_limit = wanted.limit;
  Result<Recomputation> recomputation =
      find_recomputation(planned.graph, *parse_recompute(wanted.recompute));
  if (!recomputation) FAIL(to_string(recomputation.error()));
  options.prices.recomputation = *std::move(recomputation);
  Result<DpOutcome> outcome = dp_search(planned.graph, planned.cluster, {wanted.mesh}, options);
  if (!outcome) FAIL(to_string(outcome.error()));
  auto* const found = std::get_if<DpResult>(&*outcome);
  if (found == nullptr) FAIL("no plan for " << wanted.name);
  PlanContext context;
  context.version = "0.0.0";
  context.axes = wanted.mesh.axes;
  context.memory_limit = wanted.limit;
  context.options.mode = wanted.training ? "training" : "inference";
  context.options.microbatches = wanted.microbatches;
  context.options.optimizer = wanted.optimizer;
  context.options.recompute = wanted.recompute;
  if (wanted.limit != planned.cluster.usable_memory()) {
    context.options.others["memory_limit"] = std::int64_t{wanted.limit};
  }
  context.result.status = PlanStatus::kFeasible;
  context.result.found_by = "dp";
  context.result.objective = found->evaluation.objective;
  planned.plan = build_plan(*found->book, found->assignment, found->evaluation, context);
  return planned;
}

/// Two products with weights, a residual connection, a mean as loss.
inline const char* const kMlp = R"({
  "schema": "meshplan.graph/1.0", "name": "mlp", "dimensions": {"batch": {"size": 16}},
  "tensors": {
    "x": {"shape": ["batch", 64], "dtype": "bf16", "role": "input"},
    "w1": {"shape": [64, 256], "dtype": "bf16", "role": "parameter"},
    "w2": {"shape": [256, 64], "dtype": "bf16", "role": "parameter"},
    "loss": {"shape": [], "dtype": "bf16", "role": "loss"}},
  "operators": [
    {"name": "fc1", "type": "MatMul", "inputs": ["x", "w1"], "outputs": ["h"]},
    {"name": "gelu", "type": "Gelu", "inputs": ["h"], "outputs": ["a"]},
    {"name": "fc2", "type": "MatMul", "inputs": ["a", "w2"], "outputs": ["y"]},
    {"name": "add", "type": "Add", "inputs": ["x", "y"], "outputs": ["z"]},
    {"name": "mean", "type": "ReduceMean", "inputs": ["z"], "outputs": ["loss"],
     "attributes": {"keepdims": 0}}],
  "outputs": ["z"]})";

/// One of each kind.
inline std::vector<PlannedCase> planned_cases() {
  const MeshShape line{{4}, {"d"}};
  const MeshShape square{{2, 2}, {"dp", "tp"}};
  const MeshShape wide{{2, 4}, {"dp", "tp"}};
  std::vector<PlannedCase> list;
  const auto add = [&](std::string name, auto change) {
    PlannedCase made;
    made.name = std::move(name);
    change(made);
    list.push_back(std::move(made));
  };
  add("llama", [](PlannedCase&) {});
  add("llama, tied embeddings", [](PlannedCase& c) { c.tied = true; });
  add("llama on a line", [&](PlannedCase& c) { c.mesh = line; });
  add("llama on one device", [](PlannedCase& c) { c.mesh = {{1}, {"d"}}; });
  add("llama in four micro-batches", [](PlannedCase& c) { c.microbatches = 4; });
  add("llama, one long sequence", [&](PlannedCase& c) {
    c.mesh = wide;
    c.batch = 1;
    c.seq = 1024;
  });
  add("llama, inference", [](PlannedCase& c) { c.training = false; });
  add("llama, sgd", [](PlannedCase& c) { c.optimizer = "sgd"; });
  add("llama, no optimizer", [](PlannedCase& c) { c.optimizer = "none"; });
  add("llama, layers recomputed", [](PlannedCase& c) { c.recompute = "full"; });
  add("llama, layers recomputed on a wide mesh", [&](PlannedCase& c) {
    c.recompute = "full";
    c.mesh = wide;
    c.batch = 2;
    c.microbatches = 2;
  });
  add("llama, cheap operators recomputed", [&](PlannedCase& c) {
    c.recompute = "selective";
    c.mesh = wide;
    c.batch = 2;
  });
  add("llama, half of the products recomputed",
      [](PlannedCase& c) { c.recompute = "selective-op"; });
  add("llama, half of the products recomputed on a wide mesh", [&](PlannedCase& c) {
    c.recompute = "selective-op";
    c.mesh = wide;
    c.batch = 2;
    c.microbatches = 2;
  });
  add("mlp", [](PlannedCase& c) { c.graph_text = kMlp; });
  add("mlp on a wide mesh", [&](PlannedCase& c) {
    c.graph_text = kMlp;
    c.mesh = wide;
    c.microbatches = 2;
  });
  return list;
}

}  // namespace meshplan::testing

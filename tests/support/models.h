// SPDX-License-Identifier: Apache-2.0
// Decoder models for tests, made as users make them: from a config.json.
#pragma once

#include <fstream>
#include <sstream>
#include <string>

#include "apps/cluster_reader.h"
#include "graph/importers/hf.h"
#include "support/catch.h"

namespace meshplan::test {

struct LlamaSizes {
  std::int64_t hidden = 64;
  std::int64_t intermediate = 160;
  std::int64_t heads = 8;
  std::int64_t kv_heads = 8;
  std::int64_t layers = 2;
  std::int64_t vocab = 128;
  bool tied = false;
};

inline std::string llama_config(const LlamaSizes& sizes) {
  std::ostringstream text;
  text << R"({"model_type": "llama", "torch_dtype": "bfloat16", "hidden_act": "silu",)"
       << " \"hidden_size\": " << sizes.hidden << ", \"intermediate_size\": " << sizes.intermediate
       << ", \"num_attention_heads\": " << sizes.heads
       << ", \"num_key_value_heads\": " << sizes.kv_heads
       << ", \"num_hidden_layers\": " << sizes.layers << ", \"vocab_size\": " << sizes.vocab
       << ", \"tie_word_embeddings\": " << (sizes.tied ? "true" : "false") << "}";
  return text.str();
}

/// A config that the project ships: "llama2_7b".
inline std::string shipped_config(const std::string& name) {
  std::ifstream file(std::string(MESHPLAN_SOURCE_DIR) + "/configs/models/" + name + ".json");
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// `batch` sequences of `seq` tokens per micro-batch.
inline Graph llama_graph(const std::string& config,
                         std::int64_t batch,
                         std::int64_t seq,
                         std::optional<std::int64_t> layers = std::nullopt,
                         bool training = true) {
  HfOptions options;
  options.batch = batch;
  options.seq = seq;
  options.training = training;
  options.layers = layers;
  const Result<HfImport> import = import_hf(config, "config.json", options);
  if (!import) FAIL(to_string(import.error()));
  GraphOptions how;
  how.training = training;
  Result<Graph> graph = resolve(import->document, how);
  if (!graph) FAIL(to_string(graph.error()));
  return *std::move(graph);
}

inline Cluster shipped_cluster(const std::string& name, std::int64_t devices) {
  const Result<Cluster> whole = load_cluster(name);
  if (!whole) FAIL(to_string(whole.error()));
  Result<Cluster> cluster = whole->resized(devices);
  if (!cluster) FAIL(to_string(cluster.error()));
  return *std::move(cluster);
}

}  // namespace meshplan::test

// SPDX-License-Identifier: Apache-2.0
// config.json of Hugging Face: imported as one layer for training and for inference, with fused and
// with eager attention, and what comes of it is a graph.
#include "fuzz/fuzz.h"
#include "graph/importers/hf.h"

namespace meshplan::fuzz {
namespace {

void check_config(const std::string& text) {
  struct Way {
    bool training;
    bool eager;
  };
  for (const auto& [training, eager] : {Way{true, false}, Way{false, false}, Way{true, true}}) {
    HfOptions options;
    options.eager_attention = eager;
    options.batch = 4;
    options.seq = 32;
    options.layers = 1;
    options.training = training;
    const Result<HfImport> import = import_hf(text, "config.json", options);
    if (!import) {
      check_refusal(import.error());
      continue;
    }
    GraphOptions how;
    how.training = training;
    const Result<Graph> graph = resolve(import->document, how);
    if (!graph) {
      check_refusal(graph.error());
      continue;
    }
    const std::string written = write_graph_document(import->document);
    const Result<GraphDocument> again = read_graph_document(written, "graph.json");
    law(again && write_graph_document(*again) == written, "an imported graph reads back");
  }
}

}  // namespace
}  // namespace meshplan::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  meshplan::fuzz::check_config(meshplan::fuzz::input_text(data, size));
  return 0;
}

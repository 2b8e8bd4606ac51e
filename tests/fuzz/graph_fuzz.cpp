// SPDX-License-Identifier: Apache-2.0
// Graph documents: read, written and read again; resolved for training and inference, with its
// micro-batches; the strategies of its first operators.
#include <algorithm>

#include "fuzz/fuzz.h"
#include "graph/graph_document.h"
#include "graph/operator_info.h"

namespace meshplan::fuzz {
namespace {

void check_resolved(const Graph& graph) {
  constexpr std::size_t kOperators = 4;
  for (std::size_t i = 0; i < std::min(graph.operators.size(), kOperators); ++i) {
    const OperatorInfo info(graph.operators[i].rule, {2, 3});
    law(!info.strategies().empty(), "an operator can always be replicated");
    for (const Strategy& strategy : info.strategies())
      law(info.legal(strategy), "every strategy is legal");
  }
  for (const Tensor& tensor : graph.tensors)
    law(element_count(tensor.shape) >= 1, "a tensor has elements");
}

void check_document(const std::string& text) {
  const Result<GraphDocument> document = read_graph_document(text, "g.json");
  if (!document) return check_refusal(document.error());
  const Result<GraphDocument> again =
      read_graph_document(write_graph_document(*document), "g.json");
  law(again && again->operators == document->operators && again->tensors == document->tensors &&
          again->dimensions == document->dimensions && again->outputs == document->outputs,
      "a graph reads back from what is written");
  law(fingerprint(*again) == fingerprint(*document), "fingerprints do not depend on formatting");
  for (const GraphOptions& options :
       {GraphOptions{}, GraphOptions{false, 1, true}, GraphOptions{true, 2, true}}) {
    const Result<Graph> graph = resolve(*document, options);
    if (graph) {
      check_resolved(*graph);
    } else {
      check_refusal(graph.error());
    }
  }
}

}  // namespace
}  // namespace meshplan::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  meshplan::fuzz::check_document(meshplan::fuzz::input_text(data, size));
  return 0;
}

// SPDX-License-Identifier: Apache-2.0
// Cost graphs in the format of ours: read, evaluated, and solved where they are small.
#include "fuzz/cost_graph_laws.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  meshplan::fuzz::check_cost_graph(meshplan::fuzz::input_text(data, size));
  return 0;
}

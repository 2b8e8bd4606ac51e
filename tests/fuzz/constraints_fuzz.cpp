// SPDX-License-Identifier: Apache-2.0
// Constraints: read, and bound to a small graph on meshes with their names and with others.
#include "apps/constraints_reader.h"
#include "fuzz/fuzz.h"
#include "fuzz/small_plan.h"
#include "lib/device_mesh.h"

namespace meshplan::fuzz {
namespace {

void check_constraints_text(const std::string& text) {
  const Result<Constraints> constraints = parse_constraints(text, "k.json");
  if (!constraints) return check_refusal(constraints.error());
  const Graph& graph = small_graph();
  const Result<RecomputeScopes> scopes = recompute_scopes(*constraints, graph);
  if (!scopes) check_refusal(scopes.error());
  for (const auto& [shape, axes] :
       {std::pair<std::vector<std::int64_t>, std::vector<std::string>>{{8}, {"tp"}},
        {{2, 2}, {"dp", "tp"}},
        {{2, 3, 2}, {"a", "b", "c"}}}) {
    const Result<DeviceMesh> mesh = DeviceMesh::make(shape, axes);
    for (const bool uneven : {false, true}) {
      const Result<BoundConstraints> bound =
          bind_constraints(*constraints, graph, *mesh, ConstraintOptions{uneven});
      if (!bound) {
        check_refusal(bound.error());
        continue;
      }
      for (const auto& [tensor, choices] : bound->tensors)
        law(index(tensor) < graph.tensors.size(), "a constraint binds a tensor of the graph");
    }
  }
}

}  // namespace
}  // namespace meshplan::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  meshplan::fuzz::check_constraints_text(meshplan::fuzz::input_text(data, size));
  return 0;
}

// SPDX-License-Identifier: Apache-2.0
#include "plan/exporters/exporter.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "graph/json.h"
#include "lib/check.h"
#include "lib/nearest_name.h"

namespace meshplan {
namespace {

constexpr Exporter kExporters[] = {
    {"csv", "one row per tensor, operator and redistribution", export_csv},
    {"dot", "Graphviz: operators by scope, edges with what moves on them", export_dot},
    {"graph",
     "the graph document with placements in its operators and a Redistribute operator wherever a "
     "value moves in the forward",
     export_graph},
    {"hyper-parallel",
     "Python: a ShardingPlan of placements for shard_module",
     export_hyper_parallel},
    {"hyper-parallel-rfc",
     "Python: the older dictionary of parameter, forward.input and forward.output",
     export_hyper_parallel_rfc},
    {"mindspore",
     "strategy file (JSON) of MindSpore's semi-automatic parallelism",
     export_mindspore},
};

std::string at(const char* list, std::size_t i, const std::string& below = "") {
  return "/" + std::string(list) + "/" + std::to_string(i) + below;
}

/// The placements suit a tensor of this rank on the mesh.
Result<void> check_placements(const DeviceMesh& mesh,
                              const Placements& placements,
                              std::size_t rank,
                              const std::string& where) {
  const auto layout = Layout::from_placements(mesh, placements, static_cast<int>(rank));
  if (!layout) return fail(ErrorCode::kValue, where + layout.error().where, layout.error().message);
  return {};
}

Result<void> check_operator(const Plan& plan,
                            const Graph& graph,
                            const DeviceMesh& mesh,
                            std::size_t o) {
  const PlanOperator& planned = plan.operators[o];
  const Operator& op = graph.operators[o];
  if (planned.name != op.name || planned.in_placements.size() != op.inputs.size() ||
      planned.in_strategy.size() != op.inputs.size() ||
      planned.out_placements.size() != op.outputs.size()) {
    return fail(ErrorCode::kConflict,
                at("operators", o),
                "expected operator " + json_quote(op.name) + " of the graph with its " +
                    std::to_string(op.inputs.size()) + " inputs and " +
                    std::to_string(op.outputs.size()) + " outputs");
  }
  for (std::size_t i = 0; i < op.inputs.size(); ++i) {
    const std::string where = at("operators", o, "/in_placements/" + std::to_string(i));
    if (planned.in_placements[i].has_value() != op.inputs[i].has_value() ||
        planned.in_strategy[i].has_value() != op.inputs[i].has_value())
      return fail(ErrorCode::kConflict, where, "an input is there or left out as in the graph");
    if (!op.inputs[i]) continue;
    const std::size_t rank = graph.tensor(*op.inputs[i]).shape.size();
    if (auto ok = check_placements(mesh, *planned.in_placements[i], rank, where); !ok) return ok;
    if (planned.in_strategy[i]->size() != rank)
      return fail(
          ErrorCode::kValue,
          at("operators", o, "/in_strategy/" + std::to_string(i)),
          "expected a number of pieces for each of the " + std::to_string(rank) + " dimensions");
  }
  for (std::size_t i = 0; i < op.outputs.size(); ++i) {
    const std::string where = at("operators", o, "/out_placements/" + std::to_string(i));
    const std::size_t rank = graph.tensor(op.outputs[i]).shape.size();
    if (auto ok = check_placements(mesh, planned.out_placements[i], rank, where); !ok) return ok;
  }
  return {};
}

Result<void> check_tensor(const Plan& plan,
                          const Graph& graph,
                          const DeviceMesh& mesh,
                          std::size_t t) {
  const PlanTensor& planned = plan.tensors[t];
  const Tensor& tensor = graph.tensors[t];
  if (planned.name != tensor.name || planned.shape != tensor.shape) {
    return fail(ErrorCode::kConflict,
                at("tensors", t),
                "expected tensor " + json_quote(tensor.name) + " of the graph with its shape");
  }
  const std::size_t rank = tensor.shape.size();
  const std::string where = at("tensors", t);
  if (auto ok = check_placements(mesh, planned.placements, rank, where + "/placements"); !ok)
    return ok;
  if (planned.gradient) {
    if (auto ok = check_placements(mesh, *planned.gradient, rank, where + "/gradient"); !ok)
      return ok;
  }
  if (planned.optimizer_state) {
    if (auto ok =
            check_placements(mesh, *planned.optimizer_state, rank, where + "/optimizer_state");
        !ok)
      return ok;
  }
  return {};
}

Result<void> check_redistributions(const Plan& plan, const DeviceMesh& mesh) {
  std::unordered_map<std::string_view, std::size_t> ranks;
  for (const PlanTensor& tensor : plan.tensors) ranks.emplace(tensor.name, tensor.shape.size());
  for (std::size_t r = 0; r < plan.redistributions.size(); ++r) {
    const PlanRedistribution& moved = plan.redistributions[r];
    const auto rank = ranks.find(moved.tensor);
    if (rank == ranks.end())
      return fail(ErrorCode::kConflict,
                  at("redistributions", r, "/tensor"),
                  "the plan has no tensor " + json_quote(moved.tensor));
    for (const auto& [key, placements] : {std::pair{"/from", &moved.from}, {"/to", &moved.to}}) {
      if (auto ok =
              check_placements(mesh, *placements, rank->second, at("redistributions", r, key));
          !ok)
        return ok;
    }
  }
  return {};
}

/// What every format relies on.
Result<DeviceMesh> check_source(const Plan& plan, const Graph& graph) {
  if (plan.operators.empty())
    return fail(ErrorCode::kConflict, "/operators", "the plan has no operators to write");
  if (plan.graph.fingerprint != graph.fingerprint)
    return fail(ErrorCode::kConflict,
                "/graph/fingerprint",
                "the plan was made for another graph: expected " + graph.fingerprint + ", found " +
                    plan.graph.fingerprint);
  const auto& shape = plan.mesh.shape;
  auto mesh = plan.mesh.ranks.empty() ? DeviceMesh::make(shape, plan.mesh.axes)
                                      : DeviceMesh::make(shape, plan.mesh.axes, plan.mesh.ranks);
  if (!mesh) return fail(mesh.error().code, "/mesh" + mesh.error().where, mesh.error().message);
  if (plan.operators.size() != graph.operators.size())
    return fail(ErrorCode::kConflict,
                "/operators",
                "expected the " + std::to_string(graph.operators.size()) +
                    " operators of the graph, found " + std::to_string(plan.operators.size()));
  if (plan.tensors.size() != graph.tensors.size())
    return fail(ErrorCode::kConflict,
                "/tensors",
                "expected the " + std::to_string(graph.tensors.size()) +
                    " tensors of the graph, found " + std::to_string(plan.tensors.size()));
  for (std::size_t t = 0; t < plan.tensors.size(); ++t) {
    if (auto ok = check_tensor(plan, graph, *mesh, t); !ok) return fail(ok.error());
  }
  for (std::size_t o = 0; o < plan.operators.size(); ++o) {
    if (auto ok = check_operator(plan, graph, *mesh, o); !ok) return fail(ok.error());
  }
  if (auto ok = check_redistributions(plan, *mesh); !ok) return fail(ok.error());
  return mesh;
}

}  // namespace

std::span<const Exporter> exporters() { return kExporters; }

Result<Exported> export_plan(std::string_view format,
                             const Plan& plan,
                             const Graph& graph,
                             const GraphDocument& document) {
  const auto found = std::find_if(std::begin(kExporters),
                                  std::end(kExporters),
                                  [&](const Exporter& row) { return row.name == format; });
  if (found == std::end(kExporters)) {
    std::vector<std::string> names;
    for (const Exporter& row : kExporters) names.emplace_back(row.name);
    return fail(ErrorCode::kValue,
                "",
                "there is no format " + json_quote(format) + nearest_name_hint(format, names));
  }
  auto mesh = check_source(plan, graph);
  if (!mesh) return fail(mesh.error());
  return found->run(ExportSource{plan, graph, document, *std::move(mesh)});
}

Layout layout_of(const ExportSource& source, const Placements& placements, std::size_t rank) {
  auto layout = Layout::from_placements(source.mesh, placements, static_cast<int>(rank));
  MESHPLAN_CHECK(layout.has_value());
  return *std::move(layout);
}

void warn_of(Exported& exported,
             const std::vector<std::string>& names,
             const std::string& what,
             const std::string& why) {
  if (names.empty()) return;
  constexpr std::size_t kNamed = 3;
  std::string list;
  for (std::size_t i = 0; i < std::min(names.size(), kNamed); ++i)
    list += (i == 0 ? "" : ", ") + one_line(names[i]);
  if (names.size() > kNamed) list += ", ...; " + std::to_string(names.size()) + " in all";
  exported.warnings.push_back(what + " (" + list + ") " + why);
}

}  // namespace meshplan

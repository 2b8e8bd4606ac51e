// SPDX-License-Identifier: Apache-2.0
// Plans as other tools read them. One file and one row of the table per format; a format says in
// its warnings what of the plan it cannot carry.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/graph.h"
#include "graph/graph_document.h"
#include "lib/device_mesh.h"
#include "lib/layout.h"
#include "lib/result.h"
#include "plan/plan.h"

namespace meshplan {

/// A plan with its graph, found to fit each other: the same operators and tensors in the same
/// order, a placement for every axis of the mesh everywhere.
struct ExportSource {
  const Plan& plan;
  const Graph& graph;             ///< of the plan's mode and micro-batches
  const GraphDocument& document;  ///< that the graph was resolved from
  DeviceMesh mesh;
};

struct Exported {
  std::string text;
  std::vector<std::string> warnings;  ///< what the format cannot express, a sentence each
};

struct Exporter {
  const char* name;     ///< of --to
  const char* summary;  ///< for help and docs
  Exported (*run)(const ExportSource& source);
};

/// The formats, sorted by name.
std::span<const Exporter> exporters();

/// Writes the plan in the format of this name. Errors: kValue (no such format, with the nearest),
/// kConflict and kValue (the plan is of another graph, is infeasible, or holds placements that its
/// graph cannot have; `where` is a pointer into the plan).
Result<Exported> export_plan(std::string_view format,
                             const Plan& plan,
                             const Graph& graph,
                             const GraphDocument& document);

// ---- What the formats share.

/// The layout of a tensor of this rank; the placements are those of a checked plan.
Layout layout_of(const ExportSource& source, const Placements& placements, std::size_t rank);

/// Adds the warning "WHAT (a, b, c, ...; 5 in all) WHY" with the first names; none where there are
/// no names.
void warn_of(Exported& exported,
             const std::vector<std::string>& names,
             const std::string& what,
             const std::string& why);

Exported export_csv(const ExportSource& source);
Exported export_dot(const ExportSource& source);
Exported export_graph(const ExportSource& source);
Exported export_hyper_parallel(const ExportSource& source);
Exported export_hyper_parallel_rfc(const ExportSource& source);
Exported export_mindspore(const ExportSource& source);

}  // namespace meshplan

// SPDX-License-Identifier: Apache-2.0
// A plan together with the graph that it plans, as the commands that look at plans need them.
#pragma once

#include <string>
#include <vector>

#include "graph/graph.h"
#include "graph/graph_document.h"
#include "lib/result.h"
#include "plan/check_plan.h"
#include "plan/plan.h"
#include "plan/plan_json.h"

namespace meshplan {

struct PlannedGraph {
  Plan plan;
  Graph graph;             ///< of the plan's mode and micro-batches
  GraphDocument document;  ///< that the graph was resolved from
  /// What of the plan does not fit the graph; then the graph is that of one micro-batch.
  std::vector<Finding> findings;
};

/// Reads a plan ("-": standard input). Errors: those of read_file and read_plan.
Result<Plan> load_plan(const std::string& file, const PlanReading& reading = {});

/// Reads both files ("-": standard input). Errors: those of the readers, with the file's name.
Result<PlannedGraph> read_planned_graph(const std::string& plan_file,
                                        const std::string& graph_file,
                                        const PlanReading& reading = {});

}  // namespace meshplan

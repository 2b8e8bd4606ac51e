// SPDX-License-Identifier: Apache-2.0
// The plan checker: derives from the graph, the cluster and the placements alone what a plan must
// say, and names every difference.
//
// It shares no code with the searches, their tables or the evaluator: it reads the rules
// (graph/rule.h) with its own eyes, composes the redistributions with its own layouts, walks the
// memory moment by moment with its own lifetimes, and adds up the objective with its own sums.
// docs/cost_model.md is what both follow. What it takes from cost_model/ is the price of one
// collective and of one local pass.
#pragma once

#include <string>
#include <vector>

#include "cost_model/cluster.h"
#include "graph/graph.h"
#include "plan/plan.h"

namespace meshplan {

/// One thing that a plan says wrongly.
struct Finding {
  std::string
      pointer;  ///< JSON Pointer into the expanded plan, e.g. "/operators/3/in_placements/0"
  std::string expected;  ///< may be empty where only the message says it
  std::string found;
  std::string message;  ///< a sentence
  friend bool operator==(const Finding&, const Finding&) = default;
};

/// "/operators/3/compute_time: expected 1.5e-4, found 1e-4: the operator's ...".
std::string to_string(const Finding& finding);

/// All faults in the order of the document, at most a thousand; empty: the plan is right. `graph`
/// must be of the plan's mode and of one micro-batch, as the search saw it; `cluster` must have the
/// plan's number of devices. Never fails, whatever the plan says.
std::vector<Finding> check_plan(const Plan& plan, const Graph& graph, const Cluster& cluster);

}  // namespace meshplan

// SPDX-License-Identifier: Apache-2.0
#include "apps/plan_reader.h"

#include <utility>

#include "apps/command.h"
#include "graph/graph_document.h"
#include "plan/plan_json.h"

namespace meshplan {

Result<PlannedGraph> read_planned_graph(const std::string& plan_file,
                                        const std::string& graph_file) {
  auto plan_text = read_file(plan_file);
  if (!plan_text) return fail(plan_text.error());
  auto plan = read_plan(*plan_text, input_name(plan_file));
  if (!plan) return fail(plan.error());
  auto graph_text = read_file(graph_file);
  if (!graph_text) return fail(graph_text.error());
  auto document = read_graph_document(*graph_text, input_name(graph_file));
  if (!document) return fail(document.error());

  std::vector<Finding> findings;
  const auto unknown = plan->options.others.find("unknown_operators");
  GraphOptions options;
  options.training = plan->options.mode == "training";
  options.microbatches = plan->options.microbatches;
  options.replicate_unknown = unknown != plan->options.others.end() &&
                              unknown->second == OptionValue(std::string("replicate"));
  if (plan->options.microbatches < 1) {
    findings.push_back({"/options/microbatches",
                        "1 or more",
                        std::to_string(plan->options.microbatches),
                        "a step has at least one micro-batch"});
    options.microbatches = 1;
  }
  auto graph = resolve(*document, options);
  if (!graph && options.microbatches > 1) {
    // the graph alone is right: then the plan's micro-batches do not fit it
    GraphOptions whole = options;
    whole.microbatches = 1;
    if (auto alone = resolve(*document, whole)) {
      findings.push_back({"/options/microbatches",
                          "",
                          std::to_string(plan->options.microbatches),
                          graph.error().message});
      graph = std::move(alone);
    }
  }
  if (!graph) return fail(graph.error());
  return PlannedGraph{*std::move(plan), *std::move(graph), std::move(findings)};
}

}  // namespace meshplan

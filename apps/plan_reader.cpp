// SPDX-License-Identifier: Apache-2.0
#include "apps/plan_reader.h"

#include <utility>

#include "apps/command.h"
#include "graph/graph_document.h"

namespace meshplan {

Result<Plan> load_plan(const std::string& file, const PlanReading& reading) {
  auto text = read_file(file);
  if (!text) return fail(text.error());
  return read_plan(*text, input_name(file), reading);
}

namespace {

/// The graph as another choice of options reads it, where the plan's own options do not fit; then
/// `finding` says so.
Result<Graph> resolve_otherwise(const GraphDocument& document,
                                const GraphOptions& options,
                                const Error& error,
                                Finding& finding) {
  if (options.microbatches > 1) {
    GraphOptions whole = options;
    whole.microbatches = 1;
    if (auto graph = resolve(document, whole)) {
      finding = {"/options/microbatches",
                 "micro-batches that divide the batch",
                 std::to_string(options.microbatches),
                 error.message};
      return graph;
    }
  }
  if (!options.replicate_unknown) {
    GraphOptions tolerant = options;
    tolerant.replicate_unknown = true;
    if (auto graph = resolve(document, tolerant)) {
      finding = {"/options/unknown_operators", "replicate", "none", error.message};
      return graph;
    }
  }
  return fail(error);
}

}  // namespace

Result<PlannedGraph> read_planned_graph(const std::string& plan_file,
                                        const std::string& graph_file,
                                        const PlanReading& reading) {
  auto plan = load_plan(plan_file, reading);
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
                        "at least 1",
                        std::to_string(plan->options.microbatches),
                        "a step has micro-batches"});
    options.microbatches = 1;
  }
  auto graph = resolve(*document, options);
  if (!graph) {
    Finding finding;
    const Error error = graph.error();
    graph = resolve_otherwise(*document, options, error, finding);
    if (!graph) return fail(graph.error());
    findings.push_back(std::move(finding));
  }
  return PlannedGraph{
      *std::move(plan), *std::move(graph), *std::move(document), std::move(findings)};
}

}  // namespace meshplan

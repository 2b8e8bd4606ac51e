// SPDX-License-Identifier: Apache-2.0
// meshplan check PLAN: is this plan right for this graph and cluster, and does it fit?
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "apps/cluster_reader.h"
#include "apps/command.h"
#include "apps/plan_reader.h"
#include "graph/json.h"
#include "plan/check_plan.h"
#include "plan/readable.h"

namespace meshplan {
namespace {

struct CheckCommandOptions {
  std::string plan;
  std::string graph;
  std::string cluster;
};

std::string findings_json(const std::vector<Finding>& findings) {
  JsonWriter writer;
  writer.begin_object();
  writer.member("valid", findings.empty());
  writer.key("findings");
  writer.begin_array();
  for (const Finding& finding : findings) {
    writer.begin_object(JsonWriter::kOneLine);
    writer.member("pointer", finding.pointer);
    writer.member("expected", finding.expected);
    writer.member("found", finding.found);
    writer.member("message", finding.message);
    writer.end_object();
  }
  writer.end_array();
  writer.end_object();
  return std::move(writer).text();
}

std::string findings_text(const Plan& plan, const std::vector<Finding>& findings, bool markdown) {
  if (findings.empty()) {
    std::string text = "the plan is valid";
    if (plan.result.objective) {
      text += ": objective " + readable_time(*plan.result.objective) + ", step time " +
              readable_time(plan.cost.step_time) + ", " + readable_bytes(plan.memory.peak) +
              " of " + readable_bytes(plan.memory.limit) + " per device";
    }
    return text + "\n";
  }
  std::string text = std::to_string(findings.size()) + " difference(s)\n";
  for (const Finding& finding : findings) {
    text += (markdown ? "- `" : "  ") + to_string(finding) + (markdown ? "`\n" : "\n");
  }
  return text;
}

int run_check(const CheckCommandOptions& options, const CommonOptions& common) {
  if (auto done = check_inputs(std::vector{options.plan, options.graph, options.cluster}); !done)
    return report(done.error());
  auto planned = read_planned_graph(options.plan, options.graph);
  if (!planned) return report(planned.error());
  auto cluster = load_cluster(options.cluster);
  if (!cluster) return report(cluster.error());
  const Plan& plan = planned->plan;
  std::vector<Finding> findings = std::move(planned->findings);
  if (plan.cluster.devices != cluster->devices()) {
    auto resized = cluster->resized(plan.cluster.devices);
    if (resized) {
      cluster = std::move(resized);
    } else {
      findings.push_back({"/cluster/devices",
                          std::to_string(cluster->devices()),
                          std::to_string(plan.cluster.devices),
                          resized.error().message});
    }
  }
  if (findings.empty()) findings = check_plan(plan, planned->graph, *cluster);
  const std::string shown = common.format == "json"
                                ? findings_json(findings)
                                : findings_text(plan, findings, common.format == "markdown");
  if (auto done = write_output(common.output, shown); !done) return report(done.error());
  return findings.empty() ? kDone : kRejected;
}

}  // namespace

RunCommand define_check(CLI::App& app, CommonOptions& common) {
  auto options = std::make_shared<CheckCommandOptions>();
  app.add_option("PLAN", options->plan, "Plan, meshplan.plan/1.0 (\"-\": standard input)")
      ->required();
  app.add_option("--graph", options->graph, "The graph that it plans")->required()->type_name("G");
  app.add_option("--cluster", options->cluster, "Cluster file, or the name of a shipped one")
      ->required()
      ->type_name("C");
  return [options, &common] { return run_check(*options, common); };
}

}  // namespace meshplan

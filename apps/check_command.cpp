// SPDX-License-Identifier: Apache-2.0
// meshplan check PLAN: is this plan right for this graph and cluster, what does it cost, does it
// fit?
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "apps/cluster_reader.h"
#include "apps/command.h"
#include "apps/plan_reader.h"
#include "apps/progress_line.h"
#include "graph/json.h"
#include "lib/text.h"
#include "plan/check_plan.h"
#include "plan/located_findings.h"
#include "plan/readable.h"

namespace meshplan {
namespace {

struct CheckCommandOptions {
  std::string plan;
  std::string graph;
  std::string cluster;
};

/// All that is said about a plan.
struct CheckReport {
  Plan plan;
  std::vector<LocatedFinding> findings;
  std::optional<DerivedCost> derived;
  bool valid() const { return findings.empty(); }
};

std::string report_json(const CheckReport& report) {
  JsonWriter writer;
  writer.begin_object();
  writer.member("valid", report.valid());
  writer.key("findings");
  writer.begin_array();
  for (const LocatedFinding& located : report.findings) {
    writer.begin_object(JsonWriter::kOneLine);
    writer.member("pointer", located.finding.pointer);
    writer.member("expected", located.finding.expected);
    writer.member("found", located.finding.found);
    writer.member("message", located.finding.message);
    if (!located.entries.empty()) {
      writer.key("entries");
      writer.array(located.entries);
    }
    writer.end_object();
  }
  writer.end_array();
  writer.key("derived");
  if (report.derived) {
    const DerivedCost& derived = *report.derived;
    writer.begin_object();
    writer.member("objective", derived.objective.value);
    writer.member("step_time", derived.step_time.value);
    writer.member("compute_time", derived.compute_time.value);
    writer.member("communication_time", derived.communication_time.value);
    writer.member("peak", derived.peak);
    writer.member("limit", report.plan.memory.limit);
    writer.member("fits", derived.peak <= report.plan.memory.limit);
    writer.end_object();
  } else {
    writer.null();
  }
  writer.end_object();
  return std::move(writer).text();
}

std::string cost_text(const DerivedCost& derived, Bytes limit) {
  return "objective " + readable_time(derived.objective) + ", step time " +
         readable_time(derived.step_time) + ", " + readable_bytes(derived.peak) + " of " +
         readable_bytes(limit) + " per device";
}

std::string report_text(const CheckReport& report, bool markdown) {
  const Bytes limit = report.plan.memory.limit;
  if (report.valid()) {
    std::string text = "the plan is valid";
    if (report.derived) text += ": " + cost_text(*report.derived, limit);
    if (report.plan.result.status == PlanStatus::kInfeasible)
      text += ": it says that nothing fits " + readable_bytes(limit) + " per device";
    return text + "\n";
  }
  std::string text = counted(report.findings.size(), "difference") + "\n";
  for (const LocatedFinding& located : report.findings)
    text += (markdown ? "- `" : "  ") + to_string(located) + (markdown ? "`\n" : "\n");
  if (report.derived) {
    text += "what follows from its placements: " + cost_text(*report.derived, limit) + "\n";
  } else {
    text += "memory and cost follow once these are mended\n";
  }
  return text;
}

/// Where the reader had to leave a value at its default, what follows from that is no news.
void add_findings(const std::vector<LocatedFinding>& more, std::vector<LocatedFinding>& findings) {
  std::set<std::string> known;
  for (const LocatedFinding& located : findings) known.insert(located.finding.pointer);
  for (const LocatedFinding& located : more) {
    if (known.count(located.finding.pointer) == 0) findings.push_back(located);
  }
}

Result<CheckReport> make_report(const CheckCommandOptions& options) {
  std::vector<Finding> out_of_range;
  PlanPlaces places;
  PlanReading reading;
  reading.findings = &out_of_range;
  reading.places = &places;
  auto planned = read_planned_graph(options.plan, options.graph, reading);
  if (!planned) return fail(planned.error());
  auto cluster = load_cluster(options.cluster);
  if (!cluster) return fail(cluster.error());
  CheckReport report;
  report.plan = std::move(planned->plan);
  for (Finding& finding : out_of_range) report.findings.push_back({std::move(finding), {}});
  for (Finding& finding : planned->findings) report.findings.push_back({std::move(finding), {}});
  if (report.plan.cluster.devices != cluster->devices()) {
    auto resized = cluster->resized(report.plan.cluster.devices);
    if (resized) {
      cluster = std::move(resized);
    } else {
      report.findings.push_back({{"/cluster/devices",
                                  std::to_string(cluster->devices()),
                                  std::to_string(report.plan.cluster.devices),
                                  resized.error().message},
                                 {}});
    }
  }
  const std::vector<Finding> checked =
      check_plan(report.plan, planned->graph, *cluster, &report.derived);
  const std::vector<LocatedFinding> located = locate(checked, report.plan, places);
  if (report.findings.empty()) {
    report.findings = located;
  } else {
    add_findings(located, report.findings);
    report.derived.reset();
  }
  return report;
}

int run_check(const CheckCommandOptions& options, const CommonOptions& common) {
  if (auto done = check_inputs(std::vector{options.plan, options.graph, options.cluster}); !done)
    return report(done.error());
  const auto made = [&] {
    const ProgressLine line(common, "deriving the plan again");
    return make_report(options);
  }();
  if (!made) return report(made.error());
  const std::string shown = common.format == "json"
                                ? report_json(*made)
                                : report_text(*made, common.format == "markdown");
  if (auto done = write_output(common.output, shown); !done) return report(done.error());
  return made->valid() ? kDone : kRejected;
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
  refuse_empty_values(app);
  return [options, &common] { return run_check(*options, common); };
}

}  // namespace meshplan

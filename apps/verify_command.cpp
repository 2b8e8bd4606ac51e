// SPDX-License-Identifier: Apache-2.0
// meshplan verify PLAN: does this plan compute what the graph says?
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "apps/command.h"
#include "apps/plan_reader.h"
#include "apps/progress_line.h"
#include "graph/json.h"
#include "plan/verify_plan.h"

namespace meshplan {
namespace {

struct VerifyCommandOptions {
  std::string plan;
  std::string graph;
};

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string text;
  for (std::size_t i = 0; i < shape.size(); ++i)
    text += (i == 0 ? "" : "x") + std::to_string(shape[i]);
  return text;
}

std::string report_text(const VerifyReport& report) {
  if (report.divergence) return "the plan diverges: " + to_string(*report.divergence) + "\n";
  return "the plan computes what the graph says: " + std::to_string(report.comparisons) +
         " tensors compared over " + std::to_string(report.microbatches) + " micro-batch" +
         (report.microbatches == 1 ? "" : "es") + " on a " + shape_text(report.mesh_shape) +
         " mesh; ran " + std::to_string(report.operators) + " operators, " +
         std::to_string(report.redistributions) + " redistributions, " +
         std::to_string(report.collectives) + " collectives\n";
}

std::string report_json(const VerifyReport& report) {
  JsonWriter writer;
  writer.begin_object();
  writer.member("valid", !report.divergence);
  if (report.divergence) {
    const Divergence& divergence = *report.divergence;
    writer.key("divergence");
    writer.begin_object();
    writer.member("operator", divergence.op);
    writer.member("tensor", divergence.tensor);
    writer.member("phase", divergence.phase);
    writer.member("message", to_string(divergence));
    if (divergence.device) {
      writer.member("device", *divergence.device);
      writer.key("index");
      writer.array(divergence.index);
      // numbers that JSON has
      if (std::isfinite(divergence.expected)) writer.member("expected", divergence.expected);
      if (std::isfinite(divergence.found)) writer.member("found", divergence.found);
    }
    writer.end_object();
  }
  writer.key("mesh");
  writer.array(report.mesh_shape);
  writer.member("microbatches", report.microbatches);
  writer.member("operators", report.operators);
  writer.member("redistributions", report.redistributions);
  writer.member("collectives", report.collectives);
  writer.member("comparisons", report.comparisons);
  writer.end_object();
  return std::move(writer).text();
}

int run_verify(const VerifyCommandOptions& options, const CommonOptions& common) {
  if (auto done = check_inputs(std::vector{options.plan, options.graph}); !done)
    return meshplan::report(done.error());
  auto planned = read_planned_graph(options.plan, options.graph);
  if (!planned) return meshplan::report(planned.error());
  const Plan& plan = planned->plan;
  auto reject = [&](const std::string& where, const std::string& message) {
    meshplan::report({ErrorCode::kConflict, input_name(options.plan) + ": " + where, message});
    return kRejected;
  };
  if (!planned->findings.empty())
    return reject(planned->findings[0].pointer, planned->findings[0].message);
  if (plan.graph.fingerprint != planned->graph.fingerprint)
    return reject("/graph/fingerprint",
                  "the plan was made for another graph: expected " + planned->graph.fingerprint +
                      ", found " + plan.graph.fingerprint);
  VerifyOptions how;
  how.seed = common.seed;
  auto report = [&] {
    const ProgressLine line(common, "running the plan on virtual devices");
    return verify_plan(plan, planned->graph, how);
  }();
  if (!report) {
    if (report.error().code == ErrorCode::kConflict)
      return reject(report.error().where, report.error().message);
    return meshplan::report(report.error());
  }
  const std::string shown = common.format == "json" ? report_json(*report) : report_text(*report);
  if (auto done = write_output(common.output, shown); !done) return meshplan::report(done.error());
  return report->divergence ? kRejected : kDone;
}

}  // namespace

RunCommand define_verify(CLI::App& app, CommonOptions& common) {
  auto options = std::make_shared<VerifyCommandOptions>();
  app.add_option("PLAN", options->plan, "Plan, meshplan.plan/1.0 (\"-\": standard input)")
      ->required();
  app.add_option("--graph", options->graph, "The graph that it plans")->required()->type_name("G");
  refuse_empty_values(app);
  return [options, &common] { return run_verify(*options, common); };
}

}  // namespace meshplan

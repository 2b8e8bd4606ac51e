// SPDX-License-Identifier: Apache-2.0
// meshplan export PLAN: a plan as other tools read it.
#include <memory>
#include <string>
#include <vector>

#include <spdlog/spdlog.h>

#include "apps/command.h"
#include "apps/plan_reader.h"
#include "plan/exporters/exporter.h"

namespace meshplan {
namespace {

struct ExportCommandOptions {
  std::string plan;
  std::string graph;
  std::string to;
};

int run_export(const ExportCommandOptions& options, const CommonOptions& common) {
  if (auto done = check_inputs(std::vector{options.plan, options.graph}); !done)
    return report(done.error());
  const auto planned = read_planned_graph(options.plan, options.graph);
  if (!planned) return report(planned.error());
  const std::string file = input_name(options.plan) + ": ";
  if (!planned->findings.empty()) {
    const Finding& finding = planned->findings.front();
    return report({ErrorCode::kConflict, file + finding.pointer, finding.message});
  }
  auto exported = export_plan(options.to, planned->plan, planned->graph, planned->document);
  if (!exported) {
    const Error& error = exported.error();
    return report({error.code, file + error.where, error.message});
  }
  for (const std::string& warning : exported->warnings) spdlog::warn("{}", warning);
  if (auto done = write_output(common.output, exported->text); !done) return report(done.error());
  return kDone;
}

}  // namespace

RunCommand define_export(CLI::App& app, CommonOptions& common) {
  auto options = std::make_shared<ExportCommandOptions>();
  app.add_option("PLAN", options->plan, "Plan, meshplan.plan/1.0 (\"-\": standard input)")
      ->required();
  app.add_option("--graph", options->graph, "The graph that it plans")->required()->type_name("G");
  std::vector<std::string> names;
  std::string type;
  std::string help = "The format that is written:";
  for (const Exporter& exporter : exporters()) {
    names.emplace_back(exporter.name);
    help += "\n" + std::string(exporter.name) + ": " + exporter.summary;
    type += (type.empty() ? "" : "|") + names.back();
  }
  app.add_option("--to", options->to, help)
      ->required()
      ->check(CLI::IsMember(names))
      ->type_name(type);
  refuse_empty_values(app);
  return [options, &common] { return run_export(*options, common); };
}

}  // namespace meshplan

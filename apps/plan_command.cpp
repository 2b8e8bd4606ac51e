// SPDX-License-Identifier: Apache-2.0
// meshplan plan GRAPH: graph + cluster -> plan.
#include <spdlog/spdlog.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "apps/cluster_reader.h"
#include "apps/command.h"
#include "graph/graph_document.h"
#include "graph/quantity.h"
#include "plan/build_plan.h"
#include "plan/plan_json.h"
#include "search/dp_search.h"

namespace meshplan {
namespace {

struct PlanCommandOptions {
  std::string graph;
  std::string cluster;
  std::int64_t devices = 0;
  std::string mesh = "auto";
  std::string search = "auto";
  std::string mode = "training";
  std::string optimizer = "adamw";
  std::int64_t microbatches = 1;
  std::string overlap;
  std::string memory_limit;
  std::string unknown_operators = "error";
};

}  // namespace

int run_plan(const PlanCommandOptions& options, const CommonOptions& common) {
  auto text = read_file(options.graph);
  if (!text) return report(text.error());
  GraphOptions graph_options;
  graph_options.training = options.mode == "training";
  graph_options.microbatches = options.microbatches;
  auto graph = read_graph(*text, options.graph, graph_options);
  if (!graph) return report(graph.error());
  auto cluster = load_cluster(options.cluster);
  if (!cluster) return report(cluster.error());
  if (options.devices > 0) {
    cluster = cluster->resized(options.devices);
    if (!cluster) return report(cluster.error());
  }
  DpOptions dp;
  dp.prices.microbatches = options.microbatches;
  dp.prices.optimizer = *parse_optimizer(options.optimizer);
  dp.prices.overlap = cluster->efficiency.overlap;
  dp.memory_limit = cluster->usable_memory();
  dp.threads = common.threads > 0 ? common.threads : std::max(1U, std::thread::hardware_concurrency());
  std::vector<MeshShape> meshes = auto_meshes(*cluster);
  if (options.mesh != "auto") {
    MeshShape m;
    std::int64_t a = 0, b = 0;
    if (sscanf(options.mesh.c_str(), "%ldx%ld", &a, &b) == 2) m.shape = {a, b}, m.axes = {"d0", "d1"};
    else m.shape = {a}, m.axes = {"d0"};
    meshes = {m};
  }
  auto outcome = dp_search(*graph, *cluster, meshes, dp);
  if (!outcome) return report(outcome.error());
  if (auto* none = std::get_if<NoPlan>(&*outcome)) {
    std::printf("no plan: needs %ld\n", none->min_memory);
    return kNoPlan;
  }
  auto& result = std::get<DpResult>(*outcome);
  PlanContext context;
  context.axes = result.mesh.axes;
  context.memory_limit = dp.memory_limit;
  context.result.objective = result.evaluation.objective;
  context.result.lower_bound = Seconds{result.lower_bound};
  context.result.gap = 1 - result.lower_bound / result.evaluation.objective.value;
  Plan plan = build_plan(*result.book, result.assignment, result.evaluation, context);
  std::fprintf(stderr, "mesh %ldx%ld objective %.6f bound %.6f gap %.4f%% step %.4f peak %.2f GiB mfu %.3f\n", result.mesh.shape[0], result.mesh.shape.size() > 1 ? result.mesh.shape[1] : 1, result.evaluation.objective.value, result.lower_bound, 100 * *context.result.gap, result.evaluation.step_time.value, double(result.evaluation.peak) / (1 << 30), plan.cost.model_flops_utilization);
  if (auto ok = write_output(common.output, write_plan(plan)); !ok) return report(ok.error());
  return kDone;
}

RunCommand define_plan(CLI::App& app, CommonOptions& common) {
  auto options = std::make_shared<PlanCommandOptions>();
  app.add_option("GRAPH", options->graph, "Computation graph (meshplan.graph/1.0)")->required();
  app.add_option("--cluster", options->cluster, "Cluster file or name")->required();
  app.add_option("--devices", options->devices, "Number of devices");
  app.add_option("--mesh", options->mesh, "Mesh");
  app.add_option("--mode", options->mode, "Mode");
  app.add_option("--microbatches", options->microbatches, "M");
  return [options, &common] { return run_plan(*options, common); };
}

}  // namespace meshplan

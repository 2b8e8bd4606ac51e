// SPDX-License-Identifier: Apache-2.0
#include "search/dp_search.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <memory>
#include <thread>

#include "lib/check.h"

namespace meshplan {
namespace {

/// One mesh's part of the search.
struct MeshRun {
  std::optional<Error> error;
  std::unique_ptr<PriceBook> book;
  std::unique_ptr<PlanProblem> problem;
  MemorySearchResult found;
};

void search_mesh(const Graph& graph,
                 const Cluster& cluster,
                 const MeshShape& mesh,
                 const DpOptions& options,
                 const RestrictionsOf& restrictions,
                 const std::shared_ptr<const DataFlow>& flow,
                 MeshRun& run) {
  auto book = PriceBook::make(graph, cluster, mesh.shape, options.prices, flow);
  if (!book) {
    run.error = book.error();
    return;
  }
  run.book = std::move(*book);
  Restrictions allowed;
  if (restrictions) {
    auto made = restrictions(*run.book, mesh);
    if (!made) {
      run.error = made.error();
      return;
    }
    allowed = std::move(*made);
  }
  auto problem = PlanProblem::make(*run.book, allowed);
  if (!problem) {
    run.error = problem.error();
    return;
  }
  run.problem = std::move(*problem);
  run.found = memory_search(*run.problem, options.memory_limit);
}

}  // namespace

std::vector<MeshShape> auto_meshes(const Cluster& cluster) {
  const std::int64_t devices = cluster.devices();
  const auto levels = std::count_if(cluster.levels.begin(),
                                    cluster.levels.end(),
                                    [](const Level& level) { return level.size > 1; });
  std::vector<MeshShape> meshes = {{{devices}, {"d0"}}};
  for (std::int64_t outer = 2; outer < devices; ++outer) {
    if (devices % outer != 0) continue;
    if (levels <= 1 && outer > devices / outer) continue;
    meshes.push_back({{outer, devices / outer}, {"d0", "d1"}});
  }
  return meshes;
}

Result<DpOutcome> dp_search(const Graph& graph,
                            const Cluster& cluster,
                            const std::vector<MeshShape>& meshes,
                            const DpOptions& options,
                            const RestrictionsOf& restrictions) {
  std::vector<MeshRun> runs(meshes.size());
  const auto flow = std::make_shared<const DataFlow>(graph);
  std::atomic<std::size_t> next{0};
  auto work = [&] {
    for (std::size_t m = next++; m < meshes.size(); m = next++)
      search_mesh(graph, cluster, meshes[m], options, restrictions, flow, runs[m]);
  };
  const std::size_t helpers =
      std::min<std::size_t>(options.threads > 0 ? options.threads - 1 : 0, meshes.size() - 1);
  std::vector<std::thread> threads;
  for (std::size_t h = 0; h < helpers; ++h) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();

  std::optional<std::size_t> best;
  std::optional<double> bound;
  std::optional<std::size_t> least;
  bool all_proven = true;
  for (std::size_t m = 0; m < runs.size(); ++m) {
    const MeshRun& run = runs[m];
    if (run.error) continue;
    const MemorySearchResult& found = run.found;
    if (!found.decision && found.min_memory) {
      if (!least || *found.min_memory < *runs[*least].found.min_memory) least = m;
      continue;  // proven: no plan on this mesh, it bounds nothing
    }
    bound = bound ? std::min(*bound, found.lower_bound) : found.lower_bound;
    if (!found.decision) {
      all_proven = false;
      continue;
    }
    if (!best || found.objective < runs[*best].found.objective) best = m;
  }
  if (!best) {
    if (!least && !all_proven) return DpOutcome(NoPlan{0, "", meshes.front()});
    if (!least) return fail(*runs.front().error);
    const MemorySearchResult& found = runs[*least].found;
    return DpOutcome(NoPlan{all_proven ? *found.min_memory : 0,
                            moment_name(graph, runs[*least].book->flow(), found.tightest_moment),
                            meshes[*least]});
  }
  MeshRun& run = runs[*best];
  if (run.found.objective.value > kLongestStep) {
    return fail(ErrorCode::kOverflow,
                "",
                "the best step found takes " +
                    std::to_string(std::llround(run.found.objective.value)) +
                    " s; prices add up exactly to 8192 s only. Take more devices or a smaller "
                    "batch, and check the rates of the cluster");
  }
  DpResult result;
  result.mesh = meshes[*best];
  result.assignment = run.problem->assignment(*run.found.decision);
  run.problem.reset();
  result.book = std::move(run.book);
  result.evaluation = evaluate(*result.book, result.assignment);
  // the search's own sum and the evaluator's must agree to the last bit
  MESHPLAN_CHECK(result.evaluation.objective == run.found.objective);
  MESHPLAN_CHECK(result.evaluation.peak <= options.memory_limit);
  result.lower_bound = std::min(*bound, run.found.objective.value);
  result.optimal = result.lower_bound >= run.found.objective.value;
  return DpOutcome(std::move(result));
}

}  // namespace meshplan

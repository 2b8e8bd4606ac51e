// SPDX-License-Identifier: Apache-2.0
// How long sharding propagation takes, from 10^3 to 10^5 operators, and how near policy cost comes
// to the exact search under the same constraints. Prints Markdown tables (docs/benchmarks.md); ends
// with 1 where a search fails. Usage: propagation_bench [RUNS]    (default 3; the median is
// printed)
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "apps/cluster_reader.h"
#include "graph/graph_document.h"
#include "graph/importers/hf.h"
#include "search/propagation_search.h"
#include "support/megatron_constraints.h"

using namespace meshplan;

namespace {

namespace fs = std::filesystem;

std::optional<Graph> imported(const fs::path& config, const HfOptions& options) {
  std::ifstream file(config, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  auto import = import_hf(text, config.string(), options);
  if (!import) return std::nullopt;
  auto graph = resolve(import->document, {options.training, 1, false});
  if (!graph) return std::nullopt;
  return std::move(*graph);
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

template <class Work>
std::optional<double> seconds(int runs, const Work& work) {
  std::vector<double> times;
  for (int i = 0; i < runs; ++i) {
    const std::clock_t begin = std::clock();
    if (!work()) return std::nullopt;
    times.push_back(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC);
  }
  return median(std::move(times));
}

/// Everything that a search needs.
struct Job {
  Graph graph;
  Cluster cluster;
  MeshShape mesh;
  std::optional<Constraints> constraints;
  DpOptions options;

  Job(Graph the_graph, Cluster the_cluster, std::int64_t dp, std::int64_t tp, std::int64_t batch)
      : graph(std::move(the_graph)),
        cluster(std::move(the_cluster)),
        mesh{{dp, tp}, {"dp", "tp"}},
        constraints(test::megatron_constraints(graph, dp, tp, batch)) {
    options.prices.overlap = cluster.efficiency.overlap;
    options.memory_limit = Bytes{1} << 44;
    options.threads = 1;
  }

  std::optional<double> propagated(PropagationPolicy policy) const {
    auto found =
        propagation_search(1, {{&graph, 1}}, cluster, {mesh}, options, constraints, policy);
    if (!found || !std::holds_alternative<std::vector<DpResult>>(found->found)) return std::nullopt;
    return std::get<std::vector<DpResult>>(found->found).front().evaluation.objective.value;
  }
  std::optional<double> exact() const {
    auto found = dp_search({{&graph, 1}}, cluster, {mesh}, options, restrictions_of(constraints));
    if (!found || !std::holds_alternative<DpResult>(*found)) return std::nullopt;
    return std::get<DpResult>(*found).evaluation.objective.value;
  }
  /// Propagation alone, prices and strategies of the book known.
  bool propagation_alone(PriceBook& book, PropagationPolicy policy) const {
    return propagate(book, mesh, constraints, policy, PropagationHold::kAll).has_value();
  }
};

bool growth(const Cluster& cluster, int runs) {
  std::printf(
      "| operators | rules: propagation alone, s | whole search, s | us per operator | cost: "
      "propagation alone, s | whole search, s | us per operator | exact search, s |\n"
      "|---|---|---|---|---|---|---|---|\n");
  for (const std::int64_t layers : {42, 417, 4166}) {
    HfOptions options;
    options.batch = 16;
    options.seq = 1024;
    options.layers = layers;
    auto graph = imported(MESHPLAN_SOURCE_DIR "/examples/tiny_llama/config.json", options);
    if (!graph) return false;
    const Job job(std::move(*graph), cluster, 8, 2, options.batch);
    auto book = PriceBook::make(job.graph, job.cluster, job.mesh.shape, job.options.prices);
    if (!book) return false;
    const auto count = static_cast<double>(job.graph.operators.size());
    std::printf("| %.0f |", count);
    for (const PropagationPolicy policy : {PropagationPolicy::kRules, PropagationPolicy::kCost}) {
      const auto alone = seconds(runs, [&] { return job.propagation_alone(**book, policy); });
      const auto whole = seconds(runs, [&] { return job.propagated(policy).has_value(); });
      if (!alone || !whole) return false;
      std::printf(" %.3f | %.3f | %.1f |", *alone, *whole, *whole / count * 1e6);
    }
    const auto exact = seconds(runs, [&] { return job.exact().has_value(); });
    if (!exact) return false;
    std::printf(" %.3f |\n", *exact);
    std::fflush(stdout);
  }
  return true;
}

bool quality(const Cluster& cluster) {
  constexpr std::int64_t kBatch = 48;
  std::printf("\n| model | exact, s | cost / exact | rules / exact |\n|---|---|---|---|\n");
  std::vector<fs::path> configs;
  for (const auto& file : fs::directory_iterator(MESHPLAN_SOURCE_DIR "/configs/models"))
    configs.push_back(file.path());
  std::sort(configs.begin(), configs.end());
  double worst = 0;
  for (const fs::path& config : configs) {
    HfOptions options;
    options.batch = kBatch;
    options.seq = 256;  // as long as all of them take
    options.layers = 4;
    auto graph = imported(config, options);
    if (!graph) return false;
    const Job job(std::move(*graph), cluster, 4, 4, kBatch);
    const auto exact = job.exact();
    const auto cost = job.propagated(PropagationPolicy::kCost);
    const auto rules = job.propagated(PropagationPolicy::kRules);
    if (!exact || !cost || !rules) return false;
    worst = std::max(worst, *cost / *exact);
    std::printf("| %s | %.4f | %.4f | %.3f |\n",
                config.stem().c_str(),
                *exact,
                *cost / *exact,
                *rules / *exact);
    std::fflush(stdout);
  }
  std::printf("\nworst of policy cost: %.4f\n", worst);
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  int runs = 3;
  if (argc > 2 || (argc == 2 &&
                   (std::from_chars(argv[1], argv[1] + std::string_view(argv[1]).size(), runs).ec !=
                        std::errc{} ||
                    runs < 1))) {
    std::fprintf(stderr, "usage: propagation_bench [RUNS]\n");
    return 2;
  }
  auto cluster = load_cluster("dgx-a100-80g");
  if (cluster) cluster = cluster->resized(16);
  if (!cluster || !growth(*cluster, runs) || !quality(*cluster)) {
    std::fprintf(stderr, "propagation_bench: a search failed\n");
    return EXIT_FAILURE;
  }
  return EXIT_SUCCESS;
}

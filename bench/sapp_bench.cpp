// SPDX-License-Identifier: Apache-2.0
// How good and how fast recursive partitioning is. `quality`: SAPP, exact and greedy, against the
// exact search of all meshes, on shipped models and device counts; memory of the device as it is,
// the smallest power of two of micro-batches with which exact search has a plan. `time`: whole runs
// of `meshplan plan --search sapp` on graphs of 10^3 to 10^5 operators and on 8 to 65,536 devices.
// Prints Markdown tables (docs/benchmarks.md); ends with 1 where a run fails.
// Usage: sapp_bench [quality|time] [MODEL...]    (default: both, all models)
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "apps/cluster_reader.h"
#include "graph/importers/hf.h"
#include "plan/plan_json.h"
#include "search/sapp_search.h"
#include "support/measured_run.h"

using namespace meshplan;

namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kDevices[] = {8, 64, 512, 4096};
constexpr std::int64_t kMostMicrobatches = 16;

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

std::string text_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

/// The batch is two sequences of 1,024 tokens (or the most that the model takes) per device and
/// micro-batch.
std::optional<Graph> graph_of(const std::string& config,
                              std::int64_t devices,
                              std::int64_t microbatches) {
  HfOptions options;
  options.batch = 2 * devices * microbatches;
  // the longest sequence that the model takes; images have none
  options.seq = 1024;
  auto import = import_hf(config, "config.json", options);
  for (const std::optional<std::int64_t>& seq :
       std::vector<std::optional<std::int64_t>>{512, 448, std::nullopt}) {
    if (import) break;
    options.seq = seq;
    import = import_hf(config, "config.json", options);
  }
  if (!import) {
    std::fprintf(stderr, "%s\n", to_string(import.error()).c_str());
    return std::nullopt;
  }
  GraphOptions how;
  how.microbatches = microbatches;
  auto graph = resolve(import->document, how);
  if (!graph) {
    std::fprintf(stderr, "%s\n", to_string(graph.error()).c_str());
    return std::nullopt;
  }
  return std::move(*graph);
}

struct Deviations {
  std::vector<double> all;
  void add(double ratio) { all.push_back(ratio - 1); }
  double mean() const {
    double sum = 0;
    for (const double one : all) sum += one;
    return all.empty() ? 0 : sum / static_cast<double>(all.size());
  }
  double worst() const { return all.empty() ? 0 : *std::max_element(all.begin(), all.end()); }
};

/// A row per device count of one model.
bool quality_of(const std::string& model,
                const Cluster& whole,
                Deviations& exact,
                Deviations& greedy) {
  const std::string config =
      text_of(fs::path(MESHPLAN_SOURCE_DIR) / "configs/models" / (model + ".json"));
  for (const std::int64_t devices : kDevices) {
    auto cluster = whole.resized(devices);
    if (!cluster) return false;
    for (std::int64_t microbatches = 1;; microbatches *= 2) {
      const std::optional<Graph> graph = graph_of(config, devices, microbatches);
      if (!graph) return false;
      DpOptions options;
      options.prices.overlap = cluster->efficiency.overlap;
      options.prices.microbatches = microbatches;
      options.memory_limit = cluster->usable_memory();
      options.threads = 2;
      auto begin = std::chrono::steady_clock::now();
      const auto best = dp_search(*graph, *cluster, all_meshes(*cluster), options);
      const double dp_time = seconds_since(begin);
      if (!best) {
        std::fprintf(stderr, "%s\n", to_string(best.error()).c_str());
        return false;
      }
      const auto* const dp = std::get_if<DpResult>(&*best);
      if (dp == nullptr && microbatches < kMostMicrobatches) continue;
      if (dp == nullptr) {
        std::printf("| %s | %lld | %lld | no plan fits | | | | | |\n",
                    model.c_str(),
                    static_cast<long long>(devices),
                    static_cast<long long>(microbatches));
        break;
      }
      std::printf("| %s | %lld | %lld | %.4g | %.2f %% |",
                  model.c_str(),
                  static_cast<long long>(devices),
                  static_cast<long long>(microbatches),
                  dp->evaluation.objective.value,
                  100 * (1 - dp->lower_bound / dp->evaluation.objective.value));
      std::string times;
      for (const SappRounds rounds : {SappRounds::kExact, SappRounds::kGreedy}) {
        begin = std::chrono::steady_clock::now();
        const auto outcome = sapp_search(*graph, *cluster, {options, rounds, std::nullopt});
        const double time = seconds_since(begin);
        if (!outcome) return false;
        const auto* const found = std::get_if<SappResult>(&*outcome);
        if (found == nullptr) {
          std::printf(" none |");
        } else {
          const double ratio =
              found->found.evaluation.objective.value / dp->evaluation.objective.value;
          std::printf(" %+.2f %% |", 100 * (ratio - 1));
          (rounds == SappRounds::kExact ? exact : greedy).add(ratio);
        }
        if (rounds == SappRounds::kExact) {
          char text[64];
          std::snprintf(text, sizeof text, " %.2f | %.2f |", dp_time, time);
          times = text;
        }
      }
      std::printf("%s\n", times.c_str());
      std::fflush(stdout);
      break;
    }
  }
  return true;
}

bool quality(std::vector<std::string> models) {
  auto cluster = load_cluster("dgx-a100-80g");
  if (!cluster) return false;
  if (models.empty()) {
    for (const auto& file : fs::directory_iterator(MESHPLAN_SOURCE_DIR "/configs/models"))
      models.push_back(file.path().stem());
    std::sort(models.begin(), models.end());
  }
  std::printf(
      "| model | devices | micro-batches | exact search, s | its gap | SAPP exact | SAPP greedy | "
      "exact search takes, s | SAPP takes, s |\n|---|---|---|---|---|---|---|---|---|\n");
  Deviations exact;
  Deviations greedy;
  bool done = true;
  for (const std::string& model : models) {
    if (quality_of(model, *cluster, exact, greedy)) continue;
    std::fprintf(stderr, "%s: failed\n", model.c_str());
    done = false;
  }
  std::printf(
      "\n%zu jobs; exact rounds: mean %+.2f %%, worst %+.2f %%; greedy: mean %+.2f %%, worst %+.2f "
      "%%\n\n",
      exact.all.size(),
      100 * exact.mean(),
      100 * exact.worst(),
      100 * greedy.mean(),
      100 * greedy.worst());
  return done;
}

/// `plan --search sapp` of a llama of so many layers; nullopt where it fails.
std::optional<test::MeasuredRun> timed_run(const fs::path& folder,
                                           std::int64_t layers,
                                           std::int64_t devices,
                                           std::int64_t& operators) {
  const std::string graph = (folder / ("graph" + std::to_string(layers) + ".json")).string();
  const std::string batch = std::to_string(16 * 4096);
  if (!fs::exists(graph) &&
      test::measured_run({MESHPLAN_BINARY,
                          "import",
                          "hf",
                          MESHPLAN_SOURCE_DIR "/examples/tiny_llama/config.json",
                          "--layers",
                          std::to_string(layers),
                          "--batch",
                          batch,
                          "--seq",
                          "1024",
                          "-o",
                          graph})
              .exit_code != 0)
    return std::nullopt;
  const std::string plan = (folder / "plan.json").string();
  const test::MeasuredRun run = test::measured_run({MESHPLAN_BINARY,
                                                    "plan",
                                                    graph,
                                                    "--cluster",
                                                    "dgx-a100-80g",
                                                    "--devices",
                                                    std::to_string(devices),
                                                    "--microbatches",
                                                    "16",
                                                    "--memory-limit",
                                                    "100000GiB",
                                                    "--search",
                                                    "sapp",
                                                    "-o",
                                                    plan});
  if (run.exit_code != 0) return std::nullopt;
  auto document = read_graph_document(text_of(graph), graph);
  if (!document) return std::nullopt;
  operators = static_cast<std::int64_t>(document->operators.size());
  return run;
}

bool time() {
  std::string pattern = (fs::temp_directory_path() / "meshplan-bench-XXXXXX").string();
  if (::mkdtemp(pattern.data()) == nullptr) return false;
  const fs::path folder = pattern;
  std::printf("| operators | devices | wall s | CPU s | MiB |\n|---|---|---|---|---|\n");
  bool done = true;
  const auto row = [&](std::int64_t layers, std::int64_t devices) {
    std::int64_t operators = 0;
    const auto run = timed_run(folder, layers, devices, operators);
    done = done && run.has_value();
    if (!run) return;
    std::printf("| %lld | %lld | %.2f | %.2f | %.0f |\n",
                static_cast<long long>(operators),
                static_cast<long long>(devices),
                run->seconds,
                run->cpu_seconds,
                run->peak_mib);
    std::fflush(stdout);
  };
  for (const std::int64_t layers : {42, 133, 417, 1318, 4166}) row(layers, 4096);
  for (const std::int64_t devices : {8, 64, 512, 4096, 65536}) row(1318, devices);
  std::error_code ignored;
  fs::remove_all(folder, ignored);
  return done;
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> arguments(argv + 1, argv + argc);
  const bool both = arguments.empty();
  const std::string what = both ? "" : arguments.front();
  if (!both && what != "quality" && what != "time") {
    std::fprintf(stderr, "usage: sapp_bench [quality|time] [MODEL...]\n");
    return 2;
  }
  if (!both) arguments.erase(arguments.begin());
  bool done = true;
  if (both || what == "quality") done = quality(std::move(arguments)) && done;
  if (both || what == "time") done = time() && done;
  return done ? EXIT_SUCCESS : EXIT_FAILURE;
}

// SPDX-License-Identifier: Apache-2.0
// How long `meshplan plan` takes on real models, and how good its proof is: whole runs of the
// program, from the start of the process to its end, reading and writing files included. Prints a
// Markdown table (docs/benchmarks.md); ends with 1 where a run fails.
// Usage: plan_bench [RUNS]    (default 5; the median is printed)
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "plan/plan_json.h"
#include "support/measured_run.h"

using namespace meshplan;

namespace {

namespace fs = std::filesystem;

struct Case {
  const char* label;
  const char* config;   ///< in configs/models
  const char* import_;  ///< further arguments of `import hf`
  const char* plan;     ///< further arguments of `plan`
  bool verify = false;  ///< run `verify` on the plan as well
};

constexpr Case kCases[] = {
    {"Llama-2-7B, 16 devices, mesh auto",
     "llama2_7b",
     "--batch 64 --seq 4096",
     "--cluster dgx-a100-80g --devices 16 --mesh auto --microbatches 2",
     true},
    {"the same, 1 thread",
     "llama2_7b",
     "--batch 64 --seq 4096",
     "--cluster dgx-a100-80g --devices 16 --mesh auto --microbatches 2 --threads 1"},
    {"32 layers, 4 micro-batches, half the memory: binding",
     "llama2_7b",
     "--batch 64 --seq 4096",
     "--cluster dgx-a100-80g --devices 16 --mesh auto --microbatches 4 --memory-limit 38GiB"},
    {"64 layers, 4 micro-batches, all of the memory: binding",
     "llama2_7b",
     "--batch 64 --seq 4096 --layers 64",
     "--cluster dgx-a100-80g --devices 16 --mesh auto --microbatches 4"},
    {"32 layers, memory to spare",
     "llama2_7b",
     "--batch 64 --seq 4096",
     "--cluster dgx-a100-80g --devices 16 --mesh auto --microbatches 4 --memory-limit 160GiB"},
    {"64 layers, memory to spare",
     "llama2_7b",
     "--batch 64 --seq 4096 --layers 64",
     "--cluster dgx-a100-80g --devices 16 --mesh auto --microbatches 4 --memory-limit 160GiB"},
    {"Llama-2-70B, 512 devices, mesh and micro-batches auto",
     "llama2_70b",
     "--batch 1024 --seq 4096",
     "--cluster dgx-a100-80g --devices 512 --mesh auto --microbatches auto"},
    {"Llama-2-70B, 512 devices, mesh 64x8",
     "llama2_70b",
     "--batch 512 --seq 4096",
     "--cluster dgx-a100-80g --devices 512 --mesh dp=64,tp=8 --microbatches 4"},
    {"Llama-2-70B, 512 devices, mesh auto",
     "llama2_70b",
     "--batch 512 --seq 4096",
     "--cluster dgx-a100-80g --devices 512 --mesh auto --microbatches 4"},
    {"DeepSeek-V3, 1,024 devices, mesh 16x8x8",
     "deepseek_v3",
     "--batch 1024 --seq 4096",
     "--cluster dgx-h100 --devices 1024 --mesh dp=16,tp=8,ep=8 --microbatches 4"},
};

/// Appends the words of a line.
void append_words(std::vector<std::string>& words, const char* line) {
  std::istringstream in(line);
  words.insert(words.end(), std::istream_iterator<std::string>(in), {});
}

/// Runs the program.
test::MeasuredRun run(const std::vector<std::string>& arguments) {
  std::vector<std::string> words{MESHPLAN_BINARY};
  words.insert(words.end(), arguments.begin(), arguments.end());
  return test::measured_run(std::move(words));
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// Prints the case's row; the median of its wall times, or nothing where a run failed.
std::optional<double> bench_case(const Case& it, int runs, const fs::path& folder) {
  const std::string graph = (folder / "graph.json").string();
  const std::string plan_file = (folder / "plan.json").string();
  std::vector<std::string> import_{
      "import", "hf", MESHPLAN_SOURCE_DIR "/configs/models/" + std::string(it.config) + ".json"};
  append_words(import_, it.import_);
  import_.insert(import_.end(), {"-o", graph});
  if (run(import_).exit_code != 0) return std::nullopt;

  std::vector<std::string> arguments{"plan", graph};
  append_words(arguments, it.plan);
  arguments.insert(arguments.end(), {"-o", plan_file});
  std::vector<double> wall;
  std::vector<double> cpu;
  double peak = 0;
  for (int i = 0; i < runs; ++i) {
    const test::MeasuredRun result = run(arguments);
    if (result.exit_code != 0) return std::nullopt;
    wall.push_back(result.seconds);
    cpu.push_back(result.cpu_seconds);
    peak = std::max(peak, result.peak_mib);
  }

  std::ifstream file(plan_file, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const Result<Plan> plan = read_plan(text, plan_file);
  if (!plan) {
    std::fprintf(stderr, "%s\n", to_string(plan.error()).c_str());
    return std::nullopt;
  }
  std::string mesh;
  for (const auto size : plan->mesh.shape) mesh += (mesh.empty() ? "" : "x") + std::to_string(size);
  std::printf("| %s | %.3f | %.3f | %.0f | %s | %.4f | %s |\n",
              it.label,
              median(wall),
              median(cpu),
              peak,
              mesh.c_str(),
              plan->result.objective ? plan->result.objective->value : 0.0,
              plan->result.gap ? (std::to_string(100 * *plan->result.gap) + " %").c_str() : "-");
  std::fflush(stdout);
  if (!it.verify) return median(wall);
  wall.clear();
  cpu.clear();
  peak = 0;
  for (int i = 0; i < runs; ++i) {
    const test::MeasuredRun result = run({"verify", plan_file, "--graph", graph});
    if (result.exit_code != 0) return std::nullopt;
    wall.push_back(result.seconds);
    cpu.push_back(result.cpu_seconds);
    peak = std::max(peak, result.peak_mib);
  }
  std::printf("| `verify` of that plan | %.3f | %.3f | %.0f | %s | | |\n",
              median(wall),
              median(cpu),
              peak,
              mesh.c_str());
  std::fflush(stdout);
  return median(wall);
}

}  // namespace

int main(int argc, char** argv) {
  int runs = 5;
  if (argc > 2 || (argc == 2 &&
                   (std::from_chars(argv[1], argv[1] + std::string_view(argv[1]).size(), runs).ec !=
                        std::errc{} ||
                    runs < 1))) {
    std::fprintf(stderr, "usage: plan_bench [RUNS]\n");
    return 2;
  }
  std::string pattern = (fs::temp_directory_path() / "meshplan-bench-XXXXXX").string();
  if (::mkdtemp(pattern.data()) == nullptr) return EXIT_FAILURE;
  std::printf(
      "| job | wall s | CPU s | MiB | mesh | objective s | gap |\n|---|---|---|---|---|---|---|\n");
  bool failed = false;
  for (const Case& it : kCases) {
    if (!bench_case(it, runs, pattern)) {
      std::fprintf(stderr, "%s: failed\n", it.label);
      failed = true;
    }
  }
  std::error_code ignored;
  fs::remove_all(pattern, ignored);
  return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

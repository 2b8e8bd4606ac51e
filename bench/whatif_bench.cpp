// SPDX-License-Identifier: Apache-2.0
// How long a sweep takes: Llama-2-7B at 240 points, whole runs of the program. Prints a row of the
// Markdown table in docs/benchmarks.md; ends with 1 where the run fails.
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "support/measured_run.h"

using namespace meshplan;

int main() {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / "meshplan-whatif-bench";
  std::filesystem::create_directories(folder);
  const std::string graph = (folder / "graph.json").string();
  const std::string sheet = (folder / "points.csv").string();
  const auto run = [](std::vector<std::string> words) {
    words.insert(words.begin(), MESHPLAN_BINARY);
    return test::measured_run(std::move(words));
  };
  const auto import = run({"import",
                           "hf",
                           MESHPLAN_SOURCE_DIR "/configs/models/llama2_7b.json",
                           "--batch",
                           "1024",
                           "--seq",
                           "4096",
                           "-o",
                           graph});
  if (import.exit_code != 0) return 1;
  const auto sweep = run({"whatif",
                          graph,
                          "--cluster",
                          "dgx-a100-80g",
                          "--cluster",
                          "dgx-h100",
                          "--devices",
                          "8..1024",
                          "--batch",
                          "128..2048",
                          "--network",
                          "0.5x,1x,2x",
                          "--microbatches",
                          "8",
                          "--csv",
                          sheet});
  if (sweep.exit_code != 0) return 1;
  std::printf("| 240 points of Llama-2-7B | %.1f | %.1f | %.0f |\n",
              sweep.seconds,
              sweep.cpu_seconds,
              sweep.peak_mib);
  std::filesystem::remove_all(folder);
  return 0;
}

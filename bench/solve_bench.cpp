// SPDX-License-Identifier: Apache-2.0
// How good `meshplan solve` is on the cost graphs of a folder: whole runs of the program, one after
// another. Prints a Markdown table (docs/benchmarks.md); ends with 1 where a run fails.
// Usage: solve_bench FOLDER [SECONDS...]    (default 10 60; without a folder there is nothing to
// do)
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <unistd.h>

#include "graph/json.h"
#include "support/measured_run.h"

using namespace meshplan;

namespace {

namespace fs = std::filesystem;

std::string number_text(const JsonCursor& object, const std::string& key) {
  const auto member = object.find(key);
  if (!member || member->kind() == JsonKind::kNull) return "-";
  if (const auto whole = member->as_int64()) return std::to_string(*whole);
  const auto real = member->as_double();
  return real ? json_number(*real) : "-";
}

double number(const JsonCursor& object, const std::string& key) {
  const auto member = object.find(key);
  if (!member) return 0;
  const auto real = member->as_double();
  return real ? *real : 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::puts("usage: solve_bench FOLDER [SECONDS...]");
    return 0;
  }
  std::vector<std::string> files;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(argv[1], error)) {
    const std::string name = entry.path().filename().string();
    const bool graph = name.size() > 8 && (name.substr(name.size() - 8) == ".json.gz" ||
                                           name.substr(name.size() - 5) == ".json");
    if (graph) files.push_back(entry.path().string());
  }
  std::sort(files.begin(), files.end());
  std::vector<std::string> limits(argv + 2, argv + argc);
  if (limits.empty()) limits = {"10", "60"};
  const std::string out =
      (fs::temp_directory_path() / ("solve_bench." + std::to_string(::getpid()) + ".json"))
          .string();
  bool good = !files.empty();
  std::puts(
      "| graph | limit s | cost | lower bound | gap | first feasible s | wall s | CPU s | MiB | "
      "result |");
  std::puts("|---|---|---|---|---|---|---|---|---|---|");
  for (const std::string& limit : limits) {
    for (const std::string& file : files) {
      const test::MeasuredRun run = test::measured_run({MESHPLAN_BINARY,
                                                        "solve",
                                                        file,
                                                        "--time-limit",
                                                        limit,
                                                        "--threads",
                                                        "2",
                                                        "--format",
                                                        "json",
                                                        "-o",
                                                        out});
      const bool done = run.exit_code == 0;
      good = good && done;
      const std::string name = fs::path(file).filename().string();
      if (!done) {
        std::printf("| %s | %s | failed |\n", name.c_str(), limit.c_str());
        continue;
      }
      std::ifstream in(out, std::ios::binary);
      const std::string text((std::istreambuf_iterator<char>(in)),
                             std::istreambuf_iterator<char>());
      const auto document = JsonDocument::parse(text, out);
      if (!document) return 1;
      const JsonCursor root = document->root();
      const auto phases = root.find("phases");
      const auto status = root.find("status");
      const auto status_text = status ? status->as_string() : Result<std::string_view>("?");
      std::printf("| %s | %s | %s | %s | %.2f %% | %.2f | %.1f | %.1f | %.0f | %s |\n",
                  name.c_str(),
                  limit.c_str(),
                  number_text(root, "cost").c_str(),
                  number_text(root, "lower_bound").c_str(),
                  100 * number(root, "gap"),
                  phases ? number(*phases, "first_feasible_seconds") : 0.0,
                  run.seconds,
                  run.cpu_seconds,
                  run.peak_mib,
                  status_text ? std::string(*status_text).c_str() : "?");
      std::fflush(stdout);
    }
  }
  fs::remove(out, error);
  return good ? 0 : 1;
}

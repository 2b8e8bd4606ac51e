// SPDX-License-Identifier: Apache-2.0
// `meshplan plan` side by side with a general solver of integer programs, CBC, on the same problem:
// --dump-cost-graph writes it as an integer program, CBC solves that, and the optimum must be the
// plan's objective. Whole runs of both programs, reading included. Prints a Markdown table
// (docs/benchmarks.md); ends with 1 where the two do not agree or a run fails. Without CBC (Debian:
// coinor-cbc) there is nothing to do.
// Usage: integer_program_bench [SECONDS]    (that CBC gets for each program; default 600)
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "plan/plan_json.h"
#include "support/measured_run.h"

using namespace meshplan;

namespace {

namespace fs = std::filesystem;

struct Case {
  int layers;
  const char* mesh;
  bool limited;  ///< the tightest of kPercents of the peak without a limit that a plan fits
};

constexpr Case kCases[] = {
    {2, "dp=2,tp=2", false},
    {2, "dp=2,tp=2", true},
    {2, "dp=2,tp=4", false},
    {2, "dp=2,tp=4", true},
    {4, "dp=2,tp=4", false},
    {4, "dp=2,tp=4", true},
    {8, "dp=2,tp=4", false},
    {8, "dp=2,tp=4", true},
};

constexpr int kPercents[] = {70, 80, 85, 90, 92, 94, 96, 98};
constexpr const char* kNoLimit = "1000TiB";
constexpr double kSecondsPerUnit = 1.0 / 1048576;  ///< of costs in the integer program
constexpr double kAgreement = 1e-6;  ///< relative; CBC's own tolerances are of this size

std::string text_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
}

/// What the first line of CBC's solution says.
struct Answer {
  bool optimal = false;
  std::optional<double> seconds;  ///< objective; none: nothing was found
};

Answer read_answer(const std::string& file) {
  const std::string text = text_of(file);
  const std::string line = text.substr(0, text.find('\n'));
  Answer answer;
  answer.optimal = line.rfind("Optimal", 0) == 0;
  const std::size_t at = line.find("objective value");
  if (at == std::string::npos || line.rfind("Infeasible", 0) == 0) return answer;
  answer.seconds = std::strtod(line.c_str() + at + 15, nullptr) * kSecondsPerUnit;
  return answer;
}

class Bench {
 public:
  Bench(fs::path folder, std::string seconds)
      : folder_(std::move(folder)), seconds_(std::move(seconds)) {}

  /// Prints the row; whether everything is as it should be.
  bool run(const Case& it) {
    const std::string graph = file("graph.json");
    if (!meshplan({"import",
                   "hf",
                   MESHPLAN_SOURCE_DIR "/configs/models/llama2_7b.json",
                   "--batch",
                   "16",
                   "--seq",
                   "2048",
                   "--layers",
                   std::to_string(it.layers),
                   "-o",
                   graph}))
      return false;
    std::string limit = kNoLimit;
    std::optional<Plan> found = plan(graph, it, limit);
    if (!found) return false;
    int percent_of_peak = 0;
    if (it.limited) {
      const Bytes peak = found->memory.peak;
      found.reset();
      for (const int percent : kPercents) {
        limit = std::to_string(peak / 100 * percent);
        percent_of_peak = percent;
        found = plan(graph, it, limit);
        if (found) break;
      }
      if (!found) return false;
    }
    const double ours = time_.seconds;
    const double our_cpu = time_.cpu_seconds;
    const std::string program = file("program.lp");
    const std::string answer_file = file("answer.txt");
    std::vector<std::string> dump = plan_words(graph, it, limit);
    dump.insert(dump.end(), {"--dump-cost-graph", program, "--cost-graph-format", "lp"});
    if (!meshplan(dump)) return false;
    fs::remove(answer_file);
    const test::MeasuredRun cbc =
        test::measured_run({"cbc", program, "-sec", seconds_, "-solve", "-solution", answer_file});
    if (cbc.exit_code != 0) return false;
    const Answer answer = read_answer(answer_file);
    const double objective = found->result.objective->value;
    const bool finished = answer.optimal && answer.seconds;
    const bool agree = agrees(*found, answer);
    std::printf("| %d | %s | %s | %.6f | %s | %.3f | %.3f | %s | %.1f | %.1f | %s |\n",
                it.layers,
                it.mesh,
                it.limited ? (std::to_string(percent_of_peak) + " %").c_str() : "none",
                objective,
                found->result.gap ? percent(*found->result.gap).c_str() : "-",
                ours,
                our_cpu,
                answer.seconds ? number(*answer.seconds).c_str() : "-",
                cbc.seconds,
                cbc.cpu_seconds,
                finished ? (number(cbc.cpu_seconds / our_cpu, 0) + " x").c_str() : "not finished");
    std::fflush(stdout);
    if (!agree) std::fprintf(stderr, "the two do not agree\n");
    return agree;
  }

 private:
  std::string file(const char* name) const { return (folder_ / name).string(); }

  static std::string number(double value, int digits = 6) {
    char buffer[64];
    std::snprintf(buffer, sizeof buffer, "%.*f", digits, value);
    return buffer;
  }
  static std::string percent(double value) { return number(100 * value, 4) + " %"; }

  bool meshplan(std::vector<std::string> words) {
    words.insert(words.begin(), MESHPLAN_BINARY);
    time_ = test::measured_run(words);
    return time_.exit_code == 0;
  }

  std::vector<std::string> plan_words(const std::string& graph,
                                      const Case& it,
                                      const std::string& limit) const {
    const std::string mesh = it.mesh;
    const bool four = mesh == "dp=2,tp=2";
    return {"plan",
            graph,
            "--cluster",
            "dgx-a100-80g",
            "--devices",
            four ? "4" : "8",
            "--mesh",
            mesh,
            "--memory-limit",
            limit,
            "-o",
            file("plan.json")};
  }

  std::optional<Plan> plan(const std::string& graph, const Case& it, const std::string& limit) {
    if (!meshplan(plan_words(graph, it, limit))) return std::nullopt;
    const Result<Plan> plan = read_plan(text_of(file("plan.json")), "plan.json");
    if (!plan || !plan->result.objective) return std::nullopt;
    return *plan;
  }

  /// Nothing that CBC finds is below the plan's bound; what it calls optimal is not above the plan,
  /// and equal to it where the plan is called optimal.
  static bool agrees(const Plan& plan, const Answer& answer) {
    if (!answer.seconds) return true;  // no time
    const double objective = plan.result.objective->value;
    const double slack = kAgreement * objective;
    const double bound = plan.result.lower_bound ? plan.result.lower_bound->value : 0.0;
    if (*answer.seconds < bound - slack) return false;
    if (plan.result.status == PlanStatus::kOptimal && *answer.seconds < objective - slack)
      return false;
    return !answer.optimal || *answer.seconds <= objective + slack;
  }

  fs::path folder_;
  std::string seconds_;
  test::MeasuredRun time_;
};

}  // namespace

int main(int argc, char** argv) {
  int seconds = 600;
  const std::string_view given = argc > 1 ? argv[1] : "600";
  if (argc > 2 ||
      std::from_chars(given.data(), given.data() + given.size(), seconds).ec != std::errc{} ||
      seconds < 1) {
    std::fprintf(stderr, "usage: integer_program_bench [SECONDS]\n");
    return 2;
  }
  if (test::measured_run({"cbc", "-quit"}).exit_code == 127) {
    std::puts("integer_program_bench: CBC is not installed (Debian: coinor-cbc)");
    return 0;
  }
  std::string pattern = (fs::temp_directory_path() / "meshplan-bench-XXXXXX").string();
  if (::mkdtemp(pattern.data()) == nullptr) return EXIT_FAILURE;
  std::puts(
      "| layers | mesh | limit | objective s | gap | wall s | CPU s | CBC's objective s | wall s | "
      "CPU s | CBC / meshplan |\n|---|---|---|---|---|---|---|---|---|---|---|");
  bool failed = false;
  Bench bench(pattern, std::to_string(seconds));
  for (const Case& it : kCases) {
    if (bench.run(it)) continue;
    std::fprintf(stderr, "%d layers on %s: failed\n", it.layers, it.mesh);
    failed = true;
  }
  std::error_code ignored;
  fs::remove_all(pattern, ignored);
  return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

// SPDX-License-Identifier: Apache-2.0
// How long evaluate() takes to price a whole assignment: a Llama of 125 layers, 3,000 operators, on
// meshes of one to three axes. "first": every price of the assignment is computed; "again": the
// prices are known, as in a search. Prints a Markdown table (docs/benchmarks.md); ends with 1 where
// a plan is refused.
// Usage: evaluate_bench [RUNS]    (default 9; medians are printed)
#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "apps/cluster_reader.h"
#include "cost_model/evaluate.h"
#include "graph/importers/hf.h"
#include "search/plan_problem.h"

using namespace meshplan;

namespace {

constexpr const char* kConfig = R"({"model_type": "llama", "torch_dtype": "bfloat16",
  "hidden_size": 8192, "intermediate_size": 28672, "num_attention_heads": 64,
  "num_key_value_heads": 8, "num_hidden_layers": 125, "vocab_size": 32000})";

[[noreturn]] void stop(const Error& error) {
  std::fprintf(stderr, "%s\n", to_string(error).c_str());
  std::exit(EXIT_FAILURE);
}

template <class T>
T take(Result<T> result) {
  if (!result) stop(result.error());
  return std::move(*result);
}

double median_ms(int runs, const std::function<double()>& one) {
  std::vector<double> times;
  for (int i = 0; i < runs; ++i) times.push_back(1e3 * one());
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

/// Seconds of one evaluation.
double timed(PriceBook& book, const Assignment& assignment) {
  const auto begin = std::chrono::steady_clock::now();
  const Evaluation evaluation = evaluate(book, assignment);
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
  if (evaluation.profile.empty()) std::exit(EXIT_FAILURE);  // its result is used
  return time.count();
}

}  // namespace

int main(int argc, char** argv) {
  int runs = 9;
  if (argc > 2 || (argc == 2 &&
                   (std::from_chars(argv[1], argv[1] + std::string_view(argv[1]).size(), runs).ec !=
                        std::errc{} ||
                    runs < 1))) {
    std::fprintf(stderr, "usage: evaluate_bench [RUNS]\n");
    return 2;
  }
  HfOptions import;
  import.batch = 1024;
  import.seq = 4096;
  const Graph graph = take(resolve(take(import_hf(kConfig, "config.json", import)).document, {}));
  const Cluster cluster = take(take(load_cluster("dgx-a100-80g")).resized(1024));
  PriceOptions options;
  options.overlap = cluster.efficiency.overlap;
  std::printf("| mesh | operators | first, ms | again, ms |\n|---|---|---|---|\n");
  for (const std::vector<std::int64_t>& mesh :
       std::vector<std::vector<std::int64_t>>{{1024}, {128, 8}, {16, 8, 8}}) {
    const auto make_book = [&] { return take(PriceBook::make(graph, cluster, mesh, options)); };
    const std::unique_ptr<PriceBook> book = make_book();
    const std::unique_ptr<PlanProblem> problem = take(PlanProblem::make(*book, {}));
    // cheap in time and tight in memory: layouts differ, tensors travel
    const MemoryPrices prices{{{book->flow().moments() / 2, 1e-11}}, false};
    const Assignment assignment =
        problem->assignment(problem->decide(problem->solve(prices).choice, prices));
    const double again = median_ms(runs, [&] { return timed(*book, assignment); });
    const double first = median_ms(runs, [&] { return timed(*make_book(), assignment); });
    std::string name;
    for (const std::int64_t size : mesh) name += (name.empty() ? "" : "x") + std::to_string(size);
    std::printf("| %s | %zu | %.1f | %.1f |\n", name.c_str(), graph.operators.size(), first, again);
  }
  return EXIT_SUCCESS;
}

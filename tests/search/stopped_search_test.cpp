// SPDX-License-Identifier: Apache-2.0
// A search that is stopped after any number of questions returns a plan or says that it has none;
// its bound holds, and it is never called optimal.
#include <atomic>
#include <limits>

#include "search/dp_search.h"
#include "support/models.h"

namespace meshplan::stopped_search_test {
namespace {

TEST_CASE("wherever a search is stopped, what it says is true") {
  test::LlamaSizes sizes;
  sizes.hidden = 256;
  sizes.intermediate = 688;
  sizes.heads = 4;
  sizes.kv_heads = 4;
  const Graph graph = test::llama_graph(test::llama_config(sizes), 32, 256);
  const Cluster cluster = test::shipped_cluster("dgx-a100-80g", 8);
  DpOptions options;
  options.prices.overlap = cluster.efficiency.overlap;
  options.memory_limit = std::numeric_limits<Bytes>::max();
  const std::vector<MeshShape> meshes = {
      {{8}, {"d0"}}, {{2, 4}, {"d0", "d1"}}, {{4, 2}, {"d0", "d1"}}};
  const auto whole = dp_search(graph, cluster, meshes, options);
  const Bytes peak = std::get<DpResult>(*whole).evaluation.peak;
  options.memory_limit = peak / 100 * 95;  // memory binds: many solves
  const auto full = dp_search(graph, cluster, meshes, options);
  REQUIRE(std::holds_alternative<DpResult>(*full));
  const double best = std::get<DpResult>(*full).evaluation.objective.value;

  std::atomic<int> asked{0};
  options.stop = [&] {
    ++asked;
    return false;
  };
  std::size_t told = 0;
  DpProgress last;
  options.progress = [&](const DpProgress& progress) {
    // within a mesh again and again, after each once
    CHECK((progress.searched == told || progress.searched == told + 1));
    told = progress.searched;
    CHECK(progress.meshes == meshes.size());
    last = progress;
  };
  const auto watched = dp_search(graph, cluster, meshes, options);
  CHECK(std::get<DpResult>(*watched).assignment == std::get<DpResult>(*full).assignment);
  CHECK_FALSE(std::get<DpResult>(*watched).stopped);
  CHECK(told == meshes.size());
  REQUIRE(last.best);
  CHECK(last.best->value == best);
  REQUIRE(last.lower_bound);
  CHECK(*last.lower_bound == std::get<DpResult>(*watched).lower_bound);
  const int questions = asked;
  REQUIRE(questions > 30);

  options.progress = {};
  int with_plan = 0;
  int without = 0;
  for (int most = 0; most < questions; most += 1 + questions / 20) {
    INFO("stopped at question " << most);
    asked = 0;
    options.stop = [&] { return asked++ >= most; };
    const auto outcome = dp_search(graph, cluster, meshes, options);
    REQUIRE(outcome.has_value());
    if (const auto* none = std::get_if<NoPlan>(&*outcome)) {
      CHECK(none->stopped);
      ++without;
      continue;
    }
    const DpResult& found = std::get<DpResult>(*outcome);
    ++with_plan;
    CHECK(found.stopped);
    CHECK_FALSE(found.optimal);
    CHECK(found.evaluation.peak <= options.memory_limit);
    CHECK(found.lower_bound <= best);
    CHECK(found.evaluation.objective.value >= found.lower_bound);
  }
  CHECK(with_plan > 5);
  CHECK(without > 0);
}

}  // namespace
}  // namespace meshplan::stopped_search_test

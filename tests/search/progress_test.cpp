// SPDX-License-Identifier: Apache-2.0
// What a search tells while it runs.
#include <algorithm>
#include <vector>

#include "search/dp_search.h"
#include "support/models.h"

namespace meshplan::progress_test {
namespace {

TEST_CASE("the search of a single mesh tells its plan and its bound as they get better") {
  test::LlamaSizes sizes;
  sizes.hidden = 1024;
  sizes.intermediate = 3072;
  sizes.heads = 16;
  sizes.kv_heads = 16;
  sizes.vocab = 8192;
  sizes.layers = 4;
  const Graph graph = test::llama_graph(test::llama_config(sizes), 16, 512);
  const Cluster cluster = test::shipped_cluster("dgx-a100-80g", 8);
  const std::vector<MeshShape> meshes = {{{2, 4}, {"d0", "d1"}}};
  DpOptions options;
  options.prices.overlap = cluster.efficiency.overlap;
  options.memory_limit = cluster.usable_memory();
  const auto run = [&] {
    auto outcome = dp_search(graph, cluster, meshes, options);
    REQUIRE(outcome.has_value());
    auto* const result = std::get_if<DpResult>(&*outcome);
    REQUIRE(result != nullptr);
    return std::move(*result);
  };
  options.memory_limit = run().evaluation.peak / 100 * 85;
  std::vector<DpProgress> told;
  options.progress = [&](const DpProgress& progress) { told.push_back(progress); };
  const DpResult result = run();
  REQUIRE(told.size() > 3);
  CHECK(told.front().searched == 0);
  CHECK(told.back().searched == 1);
  for (std::size_t i = 1; i < told.size(); ++i) {
    if (told[i - 1].best) {
      REQUIRE(told[i].best.has_value());
      CHECK(told[i].best->value <= told[i - 1].best->value);
    }
    REQUIRE(told[i].lower_bound.has_value());
    CHECK(*told[i].lower_bound <= result.evaluation.objective.value);
    if (told[i - 1].lower_bound) CHECK(*told[i].lower_bound >= *told[i - 1].lower_bound);
  }
  CHECK(told.back().best->value == result.evaluation.objective.value);
  CHECK(*told.back().lower_bound == result.lower_bound);
}

}  // namespace
}  // namespace meshplan::progress_test

// SPDX-License-Identifier: Apache-2.0
// No textbook plan beats the plan found, whatever the model, the machine and the batch.
#include "search/baselines.h"

#include <limits>

#include "support/models.h"

namespace meshplan::baselines_test {
namespace {

using test::LlamaSizes;

struct Setting {
  const char* what;
  LlamaSizes sizes;
  const char* machine;
  std::int64_t devices;
  std::int64_t batch;
  std::int64_t seq;
};

const std::vector<Setting> kSettings = {
    {"small weights, large batch", {256, 688, 4, 4, 2, 1000}, "dgx-a100-80g", 8, 128, 256},
    {"large weights, small batch", {4096, 11008, 32, 32, 2, 32000}, "dgx-a100-80g", 8, 8, 128},
    {"both large, two nodes", {4096, 11008, 32, 32, 2, 32000}, "dgx-h100", 16, 32, 2048},
    {"few key heads", {2048, 8192, 32, 8, 3, 32000}, "dgx-a100-40g", 16, 16, 1024},
    {"tied embeddings, slow network", {576, 1536, 9, 3, 3, 49152}, "dgx-v100-32g", 8, 8, 512},
    {"four devices", {1024, 2816, 16, 16, 4, 8000}, "dgx-h100", 4, 4, 4096},
};

void compare_with_textbooks(const std::vector<Setting>& settings) {
  for (const Setting& setting : settings) {
    INFO(setting.what);
    LlamaSizes sizes = setting.sizes;
    sizes.tied = sizes.hidden == 576;
    const Graph graph = test::llama_graph(test::llama_config(sizes), setting.batch, setting.seq);
    const Cluster cluster = test::shipped_cluster(setting.machine, setting.devices);
    DpOptions options;
    options.prices.overlap = cluster.efficiency.overlap;
    options.threads = 2;
    const std::vector<MeshShape> meshes = all_meshes(cluster);
    options.memory_limit = std::numeric_limits<Bytes>::max();
    const auto best = dp_search(graph, cluster, meshes, options);
    REQUIRE(best.has_value());
    const auto& found = std::get<DpResult>(*best);
    const double objective = found.evaluation.objective.value;
    CHECK(found.optimal);
    int priced = 0;
    for (const std::string& name : baseline_names()) {
      INFO(name);
      const auto price = price_baseline(name, graph, cluster, meshes, options);
      if (!price) {
        CHECK(price.error().code == ErrorCode::kUnsupported);
        continue;
      }
      ++priced;
      CHECK(price->fits);
      CHECK(price->objective.value >= objective);
      CHECK(price->peak > 0);
      CHECK(price->step_time.value > 0);
    }
    CHECK(priced >= 4);

    // within a limit that the plan above does not meet
    options.memory_limit = found.evaluation.peak / 10 * 9;
    const auto limited = dp_search(graph, cluster, meshes, options);
    REQUIRE(limited.has_value());
    const auto* plan = std::get_if<DpResult>(&*limited);
    if (plan == nullptr) continue;
    CHECK(plan->evaluation.peak <= options.memory_limit);
    CHECK(plan->evaluation.objective.value >= objective);
    for (const std::string& name : baseline_names()) {
      INFO(name << " within the limit");
      const auto price = price_baseline(name, graph, cluster, meshes, options);
      if (!price || !price->fits) continue;
      CHECK(price->peak <= options.memory_limit);
      CHECK(price->objective.value >= plan->lower_bound);
      CHECK(price->objective.value >= plan->evaluation.objective.value);
    }
  }
}

TEST_CASE("no textbook plan beats the plan found") {
  compare_with_textbooks({kSettings[0], kSettings[1]});
}

TEST_CASE("no textbook plan beats the plan found, on other machines", "[.][slow]") {
  compare_with_textbooks({kSettings.begin() + 2, kSettings.end()});
}

TEST_CASE("textbook plans are what their names say") {
  const Graph graph = test::llama_graph(test::llama_config({1024, 2816, 16, 16, 2, 8000}), 16, 512);
  const Cluster cluster = test::shipped_cluster("dgx-a100-80g", 8);
  DpOptions options;
  options.prices.overlap = cluster.efficiency.overlap;
  options.memory_limit = std::numeric_limits<Bytes>::max();
  std::map<std::string, BaselinePrice> prices;
  for (const std::string& name : baseline_names()) {
    auto price = price_baseline(name, graph, cluster, {{{2, 4}, {"dp", "tp"}}}, options);
    if (!price) FAIL(name << ": " << to_string(price.error()));
    CHECK(price->name == name);
    prices[name] = *price;
  }
  // each cuts more state than the one before
  CHECK(prices["zero1"].peak < prices["ddp"].peak);
  CHECK(prices["zero2"].peak < prices["zero1"].peak);
  CHECK(prices["fsdp"].peak < prices["zero2"].peak);
  // and sharding the norms saves activations
  CHECK(prices["megatron-sp"].peak < prices["megatron"].peak);
  CHECK(prices["ddp"].mesh.shape == std::vector<std::int64_t>{8});
  CHECK(prices["megatron"].mesh.shape == std::vector<std::int64_t>{2, 4});
}

TEST_CASE("a textbook plan that cannot be applied says so") {
  const Cluster cluster = test::shipped_cluster("dgx-a100-80g", 8);
  DpOptions options;
  options.memory_limit = std::numeric_limits<Bytes>::max();
  // a batch of 3 does not divide over 8 devices
  const Graph graph = test::llama_graph(test::llama_config({64, 160, 8, 8, 1, 128}), 3, 16);
  const auto ddp = price_baseline("ddp", graph, cluster, {}, options);
  REQUIRE_FALSE(ddp.has_value());
  CHECK(ddp.error().code == ErrorCode::kUnsupported);
  // and a mesh of one axis has no second one for the weights
  const auto megatron = price_baseline("megatron", graph, cluster, {{{8}, {"d0"}}}, options);
  REQUIRE_FALSE(megatron.has_value());
  CHECK(megatron.error().code == ErrorCode::kUnsupported);
}

}  // namespace
}  // namespace meshplan::baselines_test

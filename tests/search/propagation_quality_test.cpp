// SPDX-License-Identifier: Apache-2.0
// From the batch and one weight per kind of layer, policy cost finds what the exact search finds
// under the same constraints, or nearly so; both policies place whole models.
#include <string>
#include <variant>
#include <vector>

#include "graph/importers/hf.h"
#include "plan/build_plan.h"
#include "plan/check_plan.h"
#include "search/propagation_search.h"
#include "support/catch.h"
#include "support/imported_models.h"
#include "support/megatron_constraints.h"
#include "support/models.h"

namespace meshplan::propagation_quality_test {
namespace {

constexpr std::int64_t kBatch = 48;

Graph model(const std::string& name) {
  HfOptions options;
  options.batch = kBatch;
  options.seq = 256;
  options.layers = 1;
  return test::imported(test::shipped_config(name), options);
}

/// The objective against that of the exact search, and a checked plan.
double ratio(const Graph& graph,
             std::int64_t dp,
             std::int64_t tp,
             PropagationPolicy policy,
             Bytes limit = Bytes{1} << 40) {
  const Cluster cluster = test::shipped_cluster("dgx-a100-80g", dp * tp);
  const std::optional<Constraints> constraints = test::megatron_constraints(graph, dp, tp, kBatch);
  REQUIRE(constraints->tensors.size() >= 2);
  const MeshShape mesh{{dp, tp}, {"dp", "tp"}};
  DpOptions options;
  options.prices.overlap = cluster.efficiency.overlap;
  options.memory_limit = limit;
  const std::vector<DpJob> jobs = {{&graph, 1}};
  auto exact = dp_search(jobs, cluster, {mesh}, options, restrictions_of(constraints));
  if (!exact) FAIL(to_string(exact.error()));
  auto found = propagation_search(1, jobs, cluster, {mesh}, options, constraints, policy);
  if (!found) FAIL(to_string(found.error()));
  REQUIRE(std::holds_alternative<DpResult>(*exact));
  DpResult& result = std::get<std::vector<DpResult>>(found->found).front();
  CHECK(result.evaluation.peak <= limit);
  PlanContext context;
  context.version = "0.0.0";
  context.axes = mesh.axes;
  context.memory_limit = limit;
  context.options.others["memory_limit"] = limit;
  context.result.status = PlanStatus::kFeasible;
  context.result.found_by = "propagation";
  context.result.objective = result.evaluation.objective;
  const Plan plan = build_plan(*result.book, result.assignment, result.evaluation, context);
  CHECK(plan.tensors.size() == graph.tensors.size());
  for (const Finding& finding : check_plan(plan, graph, cluster)) FAIL_CHECK(to_string(finding));
  return result.evaluation.objective.value / std::get<DpResult>(*exact).evaluation.objective.value;
}

}  // namespace

TEST_CASE("Policy cost is within 1 % of the exact search, on models of every kind") {
  for (const char* name :
       {"llama3_2_1b", "t5_base", "whisper_base", "vit_base_patch16_224", "gpt_oss_20b"}) {
    INFO(name);
    const Graph graph = model(name);
    const double cost = ratio(graph, 4, 4, PropagationPolicy::kCost);
    INFO(cost);
    CHECK(cost >= 1 - 1e-9);
    CHECK(cost <= 1.0101);
  }
}

TEST_CASE("Policy rules places models too, and 24 devices are as good as 16") {
  CHECK(ratio(model("llama3_2_1b"), 4, 4, PropagationPolicy::kRules) >= 1 - 1e-9);
  CHECK(ratio(model("llama3_2_1b"), 3, 8, PropagationPolicy::kCost) <= 1.03);
}

TEST_CASE("Policy cost is within 1 % of the exact search, on every shipped model", "[slow]") {
  for (const std::string& name : test::shipped_models()) {
    INFO(name);
    const Graph graph = model(name);
    for (const auto& [dp, tp] : {std::pair{4, 4}, std::pair{2, 4}, std::pair{3, 8}})
      CHECK(ratio(graph, dp, tp, PropagationPolicy::kCost) <= 1.03);
    CHECK(ratio(graph, 4, 4, PropagationPolicy::kRules) >= 1 - 1e-9);
  }
}

}  // namespace meshplan::propagation_quality_test

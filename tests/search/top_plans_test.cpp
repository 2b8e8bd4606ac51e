// SPDX-License-Identifier: Apache-2.0
#include "search/top_plans.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "search/axis_roles.h"
#include "support/models.h"

namespace meshplan::top_plans_test {
namespace {

struct Job {
  Graph graph;
  Cluster cluster;
  DpOptions options;
};

Job small_job(std::int64_t batch, std::int64_t seq) {
  test::LlamaSizes sizes;
  sizes.hidden = 1024;
  sizes.intermediate = 3072;
  sizes.heads = 16;
  sizes.kv_heads = 16;
  sizes.vocab = 8192;
  Job job;
  job.graph = test::llama_graph(test::llama_config(sizes), batch, seq);
  job.cluster = test::shipped_cluster("dgx-a100-80g", 8);
  job.options.prices.overlap = job.cluster.efficiency.overlap;
  job.options.memory_limit = job.cluster.usable_memory();
  return job;
}

std::vector<DpResult> top(const Job& job,
                          std::size_t count,
                          const std::vector<MeshShape>& meshes,
                          unsigned threads = 1) {
  DpOptions options = job.options;
  options.threads = threads;
  auto outcome = top_plans(count, {{&job.graph, 1}}, job.cluster, meshes, options);
  if (!outcome) FAIL(to_string(outcome.error()));
  auto* const results = std::get_if<std::vector<DpResult>>(&*outcome);
  if (results == nullptr) FAIL("no plan");
  return std::move(*results);
}

/// Sizes by role, the ways to rest only of the largest axis of each.
std::string kind(const DpResult& result) {
  std::map<std::string, std::pair<std::int64_t, std::int64_t>> sizes;  // of all axes, the largest
  std::map<std::string, std::string> rest;
  const auto habits = axis_habits(*result.book, result.assignment);
  for (std::size_t axis = 0; axis < habits.size(); ++axis) {
    std::string use = std::to_string(static_cast<int>(habits[axis].use));
    if (habits[axis].sequence_between) use += "+";
    const std::int64_t size = result.mesh.shape[axis];
    auto& [all, largest] = sizes.try_emplace(use, 1, 0).first->second;
    all *= size;
    if (size <= largest) continue;
    largest = size;
    rest[use] = habits[axis].rest ? std::to_string(static_cast<int>(*habits[axis].rest)) : "-";
  }
  std::string text;
  for (const auto& [use, size] : sizes)
    text += use + " " + std::to_string(size.first) + " " + rest[use] + "; ";
  return text;
}

void check_distinct_and_ordered(const Job& job, const std::vector<DpResult>& results) {
  std::set<std::string> kinds;
  Seconds before;
  for (const DpResult& result : results) {
    INFO(kind(result) << " " << result.evaluation.objective.value);
    CHECK(kinds.insert(kind(result)).second);
    CHECK(result.evaluation.objective >= before);
    before = result.evaluation.objective;
    CHECK(result.evaluation.peak <= job.options.memory_limit);
    CHECK(evaluate(*result.book, result.assignment).objective == result.evaluation.objective);
    CHECK(result.evaluation.objective.value >= results.front().lower_bound);
  }
}

TEST_CASE("one plan is the plan of the search") {
  const Job job = small_job(16, 256);
  const std::vector<MeshShape> meshes = all_meshes(job.cluster);
  const std::vector<DpResult> one = top(job, 1, meshes);
  REQUIRE(one.size() == 1);
  const auto alone = dp_search(job.graph, job.cluster, meshes, job.options);
  const DpResult& found = std::get<DpResult>(*alone);
  CHECK(one[0].assignment == found.assignment);
  CHECK(one[0].mesh.shape == found.mesh.shape);
  CHECK(one[0].lower_bound == found.lower_bound);
  CHECK(found.others.empty());
}

void check_several(const std::vector<std::int64_t>& batches, std::size_t most_axes) {
  for (const std::int64_t batch : batches) {
    INFO("batch " << batch);
    const Job job = small_job(batch, 1024);
    std::vector<MeshShape> meshes = all_meshes(job.cluster);
    meshes.erase(
        std::remove_if(meshes.begin(),
                       meshes.end(),
                       [&](const MeshShape& mesh) { return mesh.shape.size() > most_axes; }),
        meshes.end());
    const std::vector<DpResult> several = top(job, 5, meshes);
    CHECK(several.size() >= 4);  // a batch of one leaves fewer kinds
    check_distinct_and_ordered(job, several);
    CHECK(several[0].assignment == top(job, 1, meshes)[0].assignment);
    const std::vector<DpResult> again = top(job, 5, meshes, 3);
    REQUIRE(again.size() == several.size());
    for (std::size_t i = 0; i < several.size(); ++i)
      CHECK(again[i].assignment == several[i].assignment);
  }
}

TEST_CASE("several plans are of different kinds, the cheapest first, whatever the threads") {
  check_several({16}, 2);
}

TEST_CASE("several plans of meshes of all numbers of axes are of different kinds", "[.][slow]") {
  check_several({1, 16}, 3);
}

TEST_CASE("on one mesh plans differ in what its axes are used for") {
  const Job job = small_job(16, 512);
  const std::vector<DpResult> line = top(job, 4, {{{8}, {"d0"}}});
  CHECK(line.size() >= 3);
  check_distinct_and_ordered(job, line);
  const std::vector<DpResult> square = top(job, 6, {{{2, 4}, {"d0", "d1"}}});
  CHECK(square.size() >= 5);
  check_distinct_and_ordered(job, square);
}

TEST_CASE("what restrictions leave no choice of has no other kinds") {
  const Job job = small_job(16, 256);
  DpOptions options = job.options;
  const AxisUses uses(job.graph);
  // every product cuts the batch, every parameter rests whole
  const RestrictionsOf data_parallel = [&](PriceBook& book, const MeshShape&) {
    Restrictions restrictions;
    restrictions.strategy = [&](OperatorId id, const Strategy& strategy) {
      return job.graph.op(id).rule->family != OperatorFamily::kMatMul ||
             uses.of(id, book.info(id).action(strategy, 0)) == AxisUse::kBatch;
    };
    restrictions.parameter = [](TensorId, const TensorState&, const ParameterChoice& choice) {
      return choice[0] == ParameterAction::kNone;
    };
    return Result<Restrictions>(std::move(restrictions));
  };
  auto outcome =
      top_plans(3, {{&job.graph, 1}}, job.cluster, {{{8}, {"d0"}}}, options, data_parallel);
  REQUIRE(outcome.has_value());
  const auto& results = std::get<std::vector<DpResult>>(*outcome);
  REQUIRE(results.size() == 1);
  CHECK(axis_roles(*results[0].book, results[0].assignment) ==
        std::vector<std::vector<std::string>>{{"dp"}});
}

}  // namespace
}  // namespace meshplan::top_plans_test

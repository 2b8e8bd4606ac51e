// SPDX-License-Identifier: Apache-2.0
// What mesh axes are called, on plans that are known to use them so.
#include "search/axis_roles.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "search/baselines.h"
#include "search/dimension_roles.h"
#include "support/models.h"

namespace meshplan::axis_roles_test {
namespace {

using Roles = std::vector<std::vector<std::string>>;

struct Job {
  Graph graph;
  Cluster cluster;
  DpOptions options;
};

/// A shipped model with few layers on A100s.
Job job_of(const std::string& model,
           std::int64_t layers,
           std::int64_t devices,
           std::int64_t batch,
           std::int64_t seq) {
  Job job;
  job.graph = test::llama_graph(test::shipped_config(model), batch, seq, layers);
  job.cluster = test::shipped_cluster("dgx-a100-80g", devices);
  job.options.prices.overlap = job.cluster.efficiency.overlap;
  job.options.memory_limit = std::numeric_limits<Bytes>::max();
  return job;
}

MeshShape mesh_of(std::vector<std::int64_t> shape) {
  static const std::vector<std::string> kNames = {"a", "b", "c"};
  const auto count = static_cast<std::ptrdiff_t>(shape.size());
  return {std::move(shape), {kNames.begin(), kNames.begin() + count}};
}

Roles textbook_roles(const Job& job,
                     const std::vector<std::int64_t>& mesh,
                     std::vector<AxisRole> axes,
                     ParameterAction rest) {
  auto found = search_textbook(
      {std::move(axes), rest}, job.graph, job.cluster, {mesh_of(mesh)}, job.options);
  if (!found) FAIL(to_string(found.error()));
  return axis_roles(*found->found.book, found->found.assignment);
}

TEST_CASE("an axis that cuts the batch is dp, and says how parameters rest along it") {
  const Job job = job_of("llama2_7b", 2, 8, 8, 512);
  const std::vector<AxisRole> data = {AxisRole::kData};
  CHECK(textbook_roles(job, {8}, data, ParameterAction::kNone) == Roles{{"dp"}});
  CHECK(textbook_roles(job, {8}, data, ParameterAction::kState) == Roles{{"dp", "zero1"}});
  CHECK(textbook_roles(job, {8}, data, ParameterAction::kGradient) == Roles{{"dp", "zero2"}});
  CHECK(textbook_roles(job, {8}, data, ParameterAction::kAll) == Roles{{"fsdp"}});
}

TEST_CASE("an axis that cuts weights is tp, with sp where the sequence is cut in between") {
  const Job job = job_of("llama2_70b", 2, 16, 4, 512);
  CHECK(
      textbook_roles(job, {2, 8}, {AxisRole::kData, AxisRole::kTensor}, ParameterAction::kState) ==
      Roles{{"dp", "zero1"}, {"tp"}});
  CHECK(textbook_roles(
            job, {2, 8}, {AxisRole::kData, AxisRole::kTensorSequence}, ParameterAction::kAll) ==
        Roles{{"fsdp"}, {"tp", "sp"}});
  CHECK(textbook_roles(job,
                       {2, 2, 4},
                       {AxisRole::kData, AxisRole::kData, AxisRole::kTensor},
                       ParameterAction::kNone) == Roles{{"dp"}, {"dp"}, {"tp"}});
}

TEST_CASE("an axis that cuts a long sequence is cp where attention cuts it too") {
  const Job job = job_of("llama2_7b", 1, 8, 1, 32768);
  CHECK(textbook_roles(job, {8}, {AxisRole::kContext}, ParameterAction::kNone) == Roles{{"cp"}});
  CHECK(textbook_roles(job, {8}, {AxisRole::kContext}, ParameterAction::kAll) ==
        Roles{{"cp", "fsdp"}});
  CHECK(textbook_roles(
            job, {2, 4}, {AxisRole::kContext, AxisRole::kTensor}, ParameterAction::kNone) ==
        Roles{{"cp"}, {"tp"}});
}

TEST_CASE("an axis that cuts the sequence everywhere but the heads in attention is sp") {
  const Job job = job_of("llama2_7b", 1, 8, 1, 4096);
  auto book = PriceBook::make(job.graph, job.cluster, {8}, job.options.prices);
  REQUIRE(book.has_value());
  const auto sequence = follow_dimension(job.graph, 1);
  Restrictions restrictions;
  restrictions.strategy = [&](OperatorId id, const Strategy& strategy) {
    const AxisAction& action = (*book)->info(id).action(strategy, 0);
    const OperatorFamily family = job.graph.op(id).rule->family;
    const bool factor = action.kind == AxisAction::Kind::kFactor;
    const bool cut = factor && sequence[index(id)] && *sequence[index(id)] == action.factor;
    if (family == OperatorFamily::kMatMul) return cut;
    return family != OperatorFamily::kAttention || (factor && !cut);
  };
  auto problem = PlanProblem::make(**book, restrictions);
  REQUIRE(problem.has_value());
  const Assignment assignment =
      (*problem)->assignment((*problem)->decide((*problem)->solve({}).choice, {}));
  const Roles roles = axis_roles(**book, assignment);
  REQUIRE_FALSE(roles[0].empty());
  CHECK(roles[0].front() == "sp");
  CHECK(std::count(roles[0].begin(), roles[0].end(), "cp") == 0);
}

TEST_CASE("an axis that cuts experts is ep") {
  // enough layers that the experts outweigh the vocabulary
  for (const auto& [model, layers] : {std::pair("mixtral_8x7b", 2),
                                      std::pair("deepseek_moe_16b", 12),
                                      std::pair("deepseek_v3", 20)}) {
    INFO(model);
    const Job job = job_of(model, layers, 8, 8, 2048);
    auto book = PriceBook::make(job.graph, job.cluster, {8}, job.options.prices);
    REQUIRE(book.has_value());
    Restrictions restrictions;
    restrictions.strategy = [&](OperatorId id, const Strategy& strategy) {
      const Operator& op = job.graph.op(id);
      if (op.type != "GroupedMatMul") return true;
      return (*book)->info(id).label(strategy) == "e";
    };
    auto problem = PlanProblem::make(**book, restrictions);
    if (!problem) FAIL(to_string(problem.error()));
    const Assignment assignment =
        (*problem)->assignment((*problem)->decide((*problem)->solve({}).choice, {}));
    const Roles roles = axis_roles(**book, assignment);
    REQUIRE(roles.size() == 1);
    REQUIRE_FALSE(roles[0].empty());
    CHECK(std::count(roles[0].begin(), roles[0].end(), "ep") == 1);
    CHECK(std::count(roles[0].begin(), roles[0].end(), "tp") == 0);
  }
}

TEST_CASE("axes get names by their first role, each of its own") {
  CHECK(axis_names({{"dp", "zero1"}, {}, {"tp", "sp"}, {"dp"}}) ==
        std::vector<std::string>{"dp", "d1", "tp", "dp2"});
  CHECK(axis_names({}).empty());
}

}  // namespace
}  // namespace meshplan::axis_roles_test

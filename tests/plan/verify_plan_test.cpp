// SPDX-License-Identifier: Apache-2.0
#include "plan/verify_plan.h"

#include <algorithm>
#include <functional>

#include "plan/check_plan.h"
#include "plan/planned.h"
#include "support/catch.h"

namespace meshplan::verify_plan_test {
namespace {

using testing::plan_case;
using testing::Planned;
using testing::planned_cases;
using testing::PlannedCase;

std::string told(const Result<VerifyReport>& report) {
  if (!report) return to_string(report.error());
  return report->divergence ? to_string(*report->divergence) : std::string();
}

TEST_CASE("the planner's plans compute what their graphs say") {
  for (const PlannedCase& wanted : planned_cases()) {
    INFO(wanted.name);
    const Planned planned = plan_case(wanted);
    for (const std::uint64_t seed : {0U, 1U}) {
      VerifyOptions options;
      options.seed = seed;
      const Result<VerifyReport> report = verify_plan(planned.plan, planned.graph, options);
      REQUIRE(told(report) == "");
      const auto& operators = planned.plan.operators;
      const auto again = std::count_if(
          operators.begin(), operators.end(), [](const PlanOperator& op) { return op.recompute; });
      CHECK((again > 0) == (wanted.recompute != "none"));
      const auto runs = static_cast<std::int64_t>(operators.size()) * (wanted.training ? 2 : 1);
      CHECK(report->operators == (runs + again) * report->microbatches);
      CHECK(report->comparisons > 0);
      CHECK(report->mesh_shape == wanted.mesh.shape);
    }
  }
}

TEST_CASE("a mesh of many devices is run with smaller axes") {
  PlannedCase wanted;
  wanted.mesh = {{16, 8}, {"dp", "tp"}};
  wanted.batch = 64;
  const Planned planned = plan_case(wanted);
  const Result<VerifyReport> report = verify_plan(planned.plan, planned.graph);
  REQUIRE(told(report) == "");
  CHECK(report->mesh_shape == std::vector<std::int64_t>{8, 8});
}

/// Ways to break a plan; each returns how many places it found to do so at the `n`-th of them.
struct Mutation {
  std::string name;
  std::function<bool(Plan&, int n)> apply;  ///< false: there is no n-th place
};

/// Calls `change` on the n-th redistribution that `fits`.
std::function<bool(Plan&, int)> on_entry(const std::function<bool(const PlanRedistribution&)>& fits,
                                         const std::function<void(Plan&, std::size_t)>& change) {
  return [=](Plan& plan, int n) {
    for (std::size_t r = 0; r < plan.redistributions.size(); ++r) {
      if (!fits(plan.redistributions[r]) || n-- > 0) continue;
      change(plan, r);
      return true;
    }
    return false;
  };
}

bool has(const PlanRedistribution& entry, Collective collective) {
  return std::any_of(entry.steps.begin(), entry.steps.end(), [&](const PlanStep& step) {
    return step.collective == collective;
  });
}

PlanStep& step_with(PlanRedistribution& entry, Collective collective) {
  return *std::find_if(entry.steps.begin(), entry.steps.end(), [&](const PlanStep& step) {
    return step.collective == collective;
  });
}

std::vector<Mutation> mutations() {
  auto drop = [](Phase phase) {
    return on_entry(
        [=](const PlanRedistribution& entry) { return entry.phase == phase; },
        [](Plan& plan, std::size_t r) {
          plan.redistributions.erase(plan.redistributions.begin() + static_cast<std::ptrdiff_t>(r));
        });
  };
  std::vector<Mutation> list;
  list.push_back({"a forward redistribution is left out", drop(Phase::kForward)});
  list.push_back({"a backward redistribution is left out", drop(Phase::kBackward)});
  list.push_back({"a gradient is not reduced", drop(Phase::kGradient)});
  list.push_back({"an updated parameter is not gathered", drop(Phase::kUpdate)});
  list.push_back({"a reduction takes the maximum",
                  on_entry(
                      [](const PlanRedistribution& entry) {
                        return has(entry, Collective::kAllReduce) ||
                               has(entry, Collective::kReduceScatter);
                      },
                      [](Plan& plan, std::size_t r) {
                        PlanRedistribution& entry = plan.redistributions[r];
                        const Collective which = has(entry, Collective::kAllReduce)
                                                     ? Collective::kAllReduce
                                                     : Collective::kReduceScatter;
                        step_with(entry, which).reduction = Reduction::kMax;
                      })});
  list.push_back({"a gather joins the wrong dimension",
                  on_entry(
                      [](const PlanRedistribution& entry) {
                        return has(entry, Collective::kAllGather) && entry.from.size() > 1;
                      },
                      [](Plan& plan, std::size_t r) {
                        PlanStep& step = step_with(plan.redistributions[r], Collective::kAllGather);
                        step.dim = *step.dim == 0 ? 1 : 0;
                      })});
  list.push_back({"a collective runs along the other axis",
                  on_entry(
                      [](const PlanRedistribution& entry) {
                        return entry.steps.size() == 1 && (has(entry, Collective::kAllReduce) ||
                                                           has(entry, Collective::kAllGather) ||
                                                           has(entry, Collective::kReduceScatter));
                      },
                      [](Plan& plan, std::size_t r) {
                        for (PlanStep& step : plan.redistributions[r].steps) {
                          if (step.axes.size() != 1 || plan.mesh.axes.size() != 2) continue;
                          step.axes[0] = step.axes[0] == plan.mesh.axes[0] ? plan.mesh.axes[1]
                                                                           : plan.mesh.axes[0];
                        }
                      })});
  list.push_back(
      {"a permute takes one source twice",
       on_entry([](const PlanRedistribution& entry) { return has(entry, Collective::kPermute); },
                [](Plan& plan, std::size_t r) {
                  PlanStep& step = step_with(plan.redistributions[r], Collective::kPermute);
                  const auto other =
                      std::find_if(step.pairs.begin(), step.pairs.end(), [&](const auto& pair) {
                        return pair.first != step.pairs[0].first;
                      });
                  step.pairs[0].first = other->first;
                })});
  list.push_back(
      {"a step lists other bytes",
       on_entry([](const PlanRedistribution& entry) { return !entry.steps.empty(); },
                [](Plan& plan, std::size_t r) { plan.redistributions[r].steps[0].bytes += 64; })});
  const auto on_inner = [](const std::function<void(PlanOperator&)>& change) {
    return [=](Plan& plan, int n) {
      for (PlanOperator& op : plan.operators) {
        if (op.collectives.empty() || n-- > 0) continue;
        change(op);
        return true;
      }
      return false;
    };
  };
  list.push_back({"a collective inside an operator lists other bytes",
                  on_inner([](PlanOperator& op) { op.collectives[0].bytes *= 2; })});
  list.push_back({"a collective inside an operator is left out",
                  on_inner([](PlanOperator& op) { op.collectives.pop_back(); })});
  list.push_back({"a collective inside an operator runs once more",
                  on_inner([](PlanOperator& op) { op.collectives[0].count += 1; })});
  list.push_back({"an operand is said to lie otherwise", [](Plan& plan, int n) {
                    for (PlanOperator& op : plan.operators) {
                      for (auto& operand : op.in_placements) {
                        if (!operand || n-- > 0) continue;
                        Placement& first = (*operand)[0];
                        first = is_replicate(first) ? Placement(Shard{0}) : Placement(Replicate{});
                        return true;
                      }
                    }
                    return false;
                  }});
  list.push_back({"a gradient is said to arrive otherwise", [](Plan& plan, int n) {
                    for (PlanTensor& tensor : plan.tensors) {
                      if (!tensor.gradient || n-- > 0) continue;
                      Placement& first = (*tensor.gradient)[0];
                      first = is_replicate(first) ? Placement(Partial{}) : Placement(Replicate{});
                      return true;
                    }
                    return false;
                  }});
  return list;
}

/// Each way to break a plan at up to this many places of each plan.
void break_plans(int places) {
  PlannedCase tight;
  tight.name = "sharded states";
  tight.limit = 1200 << 10;
  PlannedCase tensor_parallel;
  tensor_parallel.name = "one sequence";
  tensor_parallel.batch = 1;
  tensor_parallel.seq = 256;
  PlannedCase long_sequence = tensor_parallel;
  long_sequence.name = "one long sequence";
  long_sequence.seq = 1024;
  long_sequence.mesh = {{2, 4}, {"dp", "tp"}};
  std::vector<PlannedCase> wanted = {PlannedCase{}, tight, tensor_parallel, long_sequence};
  std::map<std::string, int> found;
  for (const PlannedCase& each : wanted) {
    const Planned planned = plan_case(each);
    REQUIRE(told(verify_plan(planned.plan, planned.graph)) == "");
    for (const Mutation& mutation : mutations()) {
      for (int n = 0; n < places; ++n) {
        Plan broken = planned.plan;
        if (!mutation.apply(broken, n)) break;
        if (broken == planned.plan) continue;
        INFO(each.name << ": " << mutation.name << ", place " << n);
        CHECK(told(verify_plan(broken, planned.graph)) != "");
        CHECK_FALSE(check_plan(broken, planned.graph, planned.cluster).empty());
        ++found[mutation.name];
      }
    }
  }
  for (const Mutation& mutation : mutations()) {
    INFO(mutation.name);
    CHECK(found[mutation.name] > 0);
  }
}

TEST_CASE("every broken plan is found") { break_plans(4); }

TEST_CASE("every broken plan is found, in many places", "[.][slow]") { break_plans(12); }

/// Operators that only their rules describe, of every kind that a plan treats in its own way.
PlannedCase own_operators() {
  PlannedCase wanted;
  wanted.name = "operators of the user's own";
  wanted.mesh = {{2, 4}, {"dp", "tp"}};
  wanted.graph_text = R"json({"schema": "meshplan.graph/1.0",
    "operator_types": {
      "Mix": {"rule": "b s h, h f -> b s f ; sum:h lin:x|y", "flops": "2*b*s*h*f"},
      "Scale": {"rule": "b s h, h -> b s h ; stat:h"},
      "Look": {"rule": "b s h, b t h, b t h -> b s h ; ring:t=s whole:h"}},
    "tensors": {
      "x": {"shape": [64, 256, 512], "dtype": "bf16", "role": "input"},
      "scale": {"shape": [512], "dtype": "bf16", "role": "parameter"},
      "w1": {"shape": [512, 4096], "dtype": "bf16", "role": "parameter"},
      "w2": {"shape": [4096, 512], "dtype": "bf16", "role": "parameter"},
      "w3": {"shape": [512, 512], "dtype": "bf16", "role": "parameter"},
      "loss": {"role": "loss"}},
    "operators": [
      {"name": "scaled", "type": "Scale", "inputs": ["x", "scale"], "outputs": ["scaled"]},
      {"name": "up", "type": "Mix", "inputs": ["scaled", "w1"], "outputs": ["up"]},
      {"name": "bend", "type": "Custom", "rule": "x.. -> x..", "inputs": ["up"],
       "outputs": ["bend"]},
      {"name": "down", "type": "Mix", "inputs": ["bend", "w2"], "outputs": ["down"]},
      {"name": "query", "type": "Mix", "inputs": ["down", "w3"], "outputs": ["query"]},
      {"name": "look", "type": "Look", "inputs": ["query", "down", "down"], "outputs": ["look"]},
      {"name": "loss", "type": "ReduceSum", "inputs": ["look"], "outputs": ["loss"],
       "attributes": {"keepdims": 0}}]})json";
  return wanted;
}

TEST_CASE("plans of operators of the user's own are run by their rules, broken ones are found") {
  PlannedCase one = own_operators();
  std::map<std::string, int> found;
  for (const std::int64_t batch : {std::int64_t{64}, std::int64_t{1}}) {
    // with one sequence, tensors are cut otherwise
    PlannedCase wanted = one;
    const std::string from = "[64, 256, 512]";
    wanted.graph_text.replace(
        wanted.graph_text.find(from), from.size(), "[" + std::to_string(batch) + ", 256, 512]");
    const Planned planned = plan_case(wanted);
    const Result<VerifyReport> report = verify_plan(planned.plan, planned.graph);
    REQUIRE(told(report) == "");
    CHECK(report->operators == 14);
    for (const Mutation& mutation : mutations()) {
      for (int n = 0; n < 12; ++n) {
        Plan broken = planned.plan;
        if (!mutation.apply(broken, n)) break;
        if (broken == planned.plan) continue;
        INFO("batch " << batch << ": " << mutation.name << ", place " << n);
        CHECK(told(verify_plan(broken, planned.graph)) != "");
        ++found[mutation.name];
      }
    }
  }
  CHECK(found["a gradient is not reduced"] > 0);
  CHECK(found["a forward redistribution is left out"] > 0);
  CHECK(found["a reduction takes the maximum"] > 0);
  CHECK(found["an operand is said to lie otherwise"] > 0);
}

TEST_CASE("a run that would take too much memory is refused before it starts") {
  const Planned planned = plan_case(PlannedCase{});
  VerifyOptions options;
  options.memory_limit = 1000;
  const Result<VerifyReport> report = verify_plan(planned.plan, planned.graph, options);
  REQUIRE_FALSE(report);
  CHECK(report.error().code == ErrorCode::kUnsupported);
  CHECK(report.error().message.find("running the plan would take about ") == 0);
  CHECK(report.error().message.find("does not get smaller than [") != std::string::npos);
}

TEST_CASE("what cannot be run is said") {
  const Planned planned = plan_case(PlannedCase{});
  Plan broken = planned.plan;
  broken.tensors.erase(broken.tensors.begin());
  CHECK(told(verify_plan(broken, planned.graph)) ==
        "/tensors: tensor \"" + planned.plan.tensors[0].name + "\" is missing");
  broken = planned.plan;
  broken.operators[3].name = "nobody";
  CHECK(told(verify_plan(broken, planned.graph)) ==
        "/operators/3: the graph has no operator \"nobody\"");
  broken = planned.plan;
  broken.result.status = PlanStatus::kInfeasible;
  CHECK(told(verify_plan(broken, planned.graph)) ==
        "/result/status: the plan is infeasible, there is nothing to run");
  broken = planned.plan;
  broken.redistributions[0].consumers = {{"nobody", std::nullopt}};
  CHECK(told(verify_plan(broken, planned.graph)) ==
        "/redistributions/0/consumers: \"nobody\" is not one reader of \"" +
            planned.plan.redistributions[0].tensor + "\"");
}

}  // namespace
}  // namespace meshplan::verify_plan_test

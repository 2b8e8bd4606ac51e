// SPDX-License-Identifier: Apache-2.0
#include "search/explain_plan.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "plan/planned.h"
#include "search/memory_search.h"
#include "search/plan_assignment.h"
#include "support/catch.h"

namespace meshplan::explain_plan_test {
namespace {

using testing::kMlp;
using testing::plan_case;
using testing::Planned;
using testing::planned_cases;
using testing::PlannedCase;

/// The options of plan_case's search.
DpOptions options_of(const Planned& planned) {
  DpOptions options;
  options.prices.microbatches = planned.plan.options.microbatches;
  options.prices.optimizer = *parse_optimizer(planned.plan.options.optimizer);
  options.prices.overlap = planned.cluster.efficiency.overlap;
  options.prices.recomputation =
      *find_recomputation(planned.graph, *parse_recompute(planned.plan.options.recompute));
  options.memory_limit = planned.plan.memory.limit;
  return options;
}

/// A planned case with its explainer.
struct Explained {
  explicit Explained(const PlannedCase& wanted) : planned(plan_case(wanted)) {
    options = options_of(planned);
    auto made =
        PlanExplainer::make(planned.plan, planned.graph, planned.cluster, options, constraints);
    if (!made) FAIL(to_string(made.error()));
    explainer = std::move(*made);
  }

  OperatorId op(const std::string& name) const {
    for (std::size_t i = 0; i < planned.graph.operators.size(); ++i) {
      if (planned.graph.operators[i].name == name) return static_cast<OperatorId>(i);
    }
    FAIL("no operator " << name);
    return {};
  }
  TensorId tensor(const std::string& name) const {
    for (std::size_t i = 0; i < planned.graph.tensors.size(); ++i) {
      if (planned.graph.tensors[i].name == name) return static_cast<TensorId>(i);
    }
    FAIL("no tensor " << name);
    return {};
  }
  Seconds objective() const { return *planned.plan.result.objective; }

  /// The best plan of the mesh under these restrictions.
  std::optional<Seconds> search(const RestrictionsOf& restrictions) const {
    const MeshShape mesh{planned.plan.mesh.shape, planned.plan.mesh.axes};
    auto outcome = dp_search(planned.graph, planned.cluster, {mesh}, options, restrictions);
    if (!outcome) return std::nullopt;
    const DpResult* found = std::get_if<DpResult>(&*outcome);
    return found == nullptr ? std::nullopt : std::optional(found->evaluation.objective);
  }
  std::optional<Seconds> search_with(OperatorId id, const std::string& label) const {
    return search([&](PriceBook& book, const MeshShape&) -> Result<Restrictions> {
      Restrictions only;
      only.strategy = [&book, id, label](OperatorId other, const Strategy& strategy) {
        return other != id || book.info(id).label(strategy) == label;
      };
      return only;
    });
  }

  Planned planned;
  DpOptions options;
  std::optional<Constraints> constraints;
  std::unique_ptr<PlanExplainer> explainer;
};

PlannedCase mlp() {
  PlannedCase wanted;
  wanted.graph_text = kMlp;
  return wanted;
}

TEST_CASE("a plan gives back the assignment that it was built from") {
  for (const PlannedCase& wanted : planned_cases()) {
    INFO(wanted.name);
    const Planned planned = plan_case(wanted);
    const DpOptions options = options_of(planned);
    auto book =
        PriceBook::make(planned.graph, planned.cluster, planned.plan.mesh.shape, options.prices);
    REQUIRE(book);
    const Result<Assignment> assignment = assignment_of(planned.plan, **book);
    INFO((assignment ? "" : to_string(assignment.error())));
    REQUIRE(assignment);
    const Evaluation evaluation = evaluate(**book, *assignment);
    CHECK(evaluation.objective == *planned.plan.result.objective);
    PlanContext context;
    context.version = planned.plan.generator_version;
    context.options = planned.plan.options;
    context.axes = planned.plan.mesh.axes;
    context.result = planned.plan.result;
    context.memory_limit = planned.plan.memory.limit;
    CHECK(build_plan(**book, *assignment, evaluation, context) == planned.plan);
  }
}

TEST_CASE("plans of something else have no assignment") {
  const Planned planned = plan_case(mlp());
  auto book = PriceBook::make(
      planned.graph, planned.cluster, planned.plan.mesh.shape, options_of(planned).prices);
  Plan other = planned.plan;
  other.operators[1].out_placements[0] = {Partial{}, Partial{}};
  CHECK(assignment_of(other, **book).error().where == "/operators/1");
  other = planned.plan;
  other.tensors.clear();
  CHECK(assignment_of(other, **book).error().code == ErrorCode::kConflict);
  other = planned.plan;
  other.mesh.ranks = {3, 2, 1, 0};
  CHECK(assignment_of(other, **book).error().code == ErrorCode::kUnsupported);
}

TEST_CASE("the parts of an operator's cost add up to what the plan says of it") {
  for (const PlannedCase& wanted : planned_cases()) {
    if (wanted.name != "llama in four micro-batches" && wanted.name != "llama, tied embeddings" &&
        wanted.name != "llama, layers recomputed")
      continue;
    const Explained e(wanted);
    for (const PlanOperator& entry : e.planned.plan.operators) {
      INFO(entry.name);
      const OperatorCost cost = e.explainer->cost_of(e.op(entry.name));
      CHECK(cost.objective() == *entry.objective);
      CHECK(cost.forward + cost.recompute + cost.backward == entry.compute_time);
      CHECK(cost.outside.value >= 0);
      CHECK(cost.inside.value >= 0);
    }
  }
}

std::vector<Placements> inputs_of(const Explained& e, OperatorId id, const Strategy& strategy) {
  PriceBook& book = e.explainer->book();
  std::vector<Placements> inputs;
  for (std::size_t k = 0; k < e.planned.graph.op(id).inputs.size(); ++k)
    inputs.push_back(value_placements(book.operand_state(id, strategy, k), book.mesh_axes()));
  return inputs;
}

TEST_CASE("an alternative costs what evaluate says of the plan with that change") {
  Explained e(mlp());
  PriceBook& book = e.explainer->book();
  const DataFlow& flow = book.flow();
  for (std::size_t i = 0; i < e.planned.graph.operators.size(); ++i) {
    const auto id = static_cast<OperatorId>(i);
    const Operator& op = e.planned.graph.op(id);
    const OperatorExplanation told = e.explainer->explain(id, false);
    CHECK(told.alternatives.size() == told.filters.left);
    CHECK(told.alternatives[0].chosen);
    CHECK(told.alternatives[0].alone.objective == Seconds{});
    for (const Alternative& alternative : told.alternatives) {
      if (alternative.chosen) continue;
      INFO(op.name << " " << alternative.label);
      Assignment changed = e.explainer->assignment();
      for (const Strategy& strategy : book.info(id).strategies()) {
        // labels do not say which operands a sum passes through, placements do
        if (book.info(id).label(strategy) == alternative.label &&
            inputs_of(e, id, strategy) == alternative.inputs)
          changed.strategies[i] = strategy;
      }
      // memory is free here: what it reads is kept, its parameters rest as is cheapest
      std::optional<Evaluation> best;
      const auto offer = [&] {
        Evaluation made = evaluate(book, changed);
        if (!best || made.objective < best->objective) best = std::move(made);
      };
      bool reads_parameter = false;
      for (std::size_t k = 0; k < op.inputs.size(); ++k) {
        if (!op.inputs[k] || flow.direct(id, k) != DirectUse::kParameter) continue;
        reads_parameter = true;
        const TensorState state = book.operand_state(id, changed.strategies[i], k);
        const bool again = parameter_read_again(e.planned.graph, flow, *op.inputs[k]);
        for (const ParameterChoice& choice : book.parameter_choices(*op.inputs[k], state)) {
          if (!book.parameter_price(*op.inputs[k], state, choice, again)) continue;
          changed.parameters[index(*op.inputs[k])] = choice;
          offer();
        }
      }
      if (!reads_parameter) offer();
      REQUIRE(best);
      CHECK(alternative.alone.objective.value == (best->objective - e.objective()).value);
      if (!reads_parameter) CHECK(alternative.alone.peak == best->peak);
      REQUIRE(alternative.around);
      CHECK(alternative.around->objective.value <= alternative.alone.objective.value);
      // no plan with it is better than the best one with it
      const auto searched = e.search_with(id, alternative.label);
      REQUIRE(searched);
      CHECK(alternative.around->objective.value >= (*searched - e.objective()).value);
    }
  }
}

TEST_CASE("with the neighbours chosen anew, a small graph gives the best plan with the change") {
  PlannedCase wanted;
  wanted.graph_text = R"json({
    "schema": "meshplan.graph/1.0", "name": "three", "dimensions": {"batch": {"size": 16}},
    "tensors": {
      "x": {"shape": ["batch", 64], "dtype": "bf16", "role": "input"},
      "w1": {"shape": [64, 256], "dtype": "bf16", "role": "parameter"},
      "w2": {"shape": [256, 64], "dtype": "bf16", "role": "parameter"},
      "loss": {"shape": [], "dtype": "bf16", "role": "loss"}},
    "operators": [
      {"name": "fc1", "type": "MatMul", "inputs": ["x", "w1"], "outputs": ["h"]},
      {"name": "fc2", "type": "MatMul", "inputs": ["h", "w2"], "outputs": ["y"]},
      {"name": "mean", "type": "ReduceMean", "inputs": ["y"], "outputs": ["loss"],
       "attributes": {"keepdims": 0}}],
    "outputs": ["loss"]})json";
  Explained e(wanted);
  for (const char* name : {"fc1", "fc2", "mean"}) {
    const OperatorExplanation told = e.explainer->explain(e.op(name), false);
    for (const Alternative& alternative : told.alternatives) {
      if (alternative.chosen) continue;
      INFO(name << " " << alternative.label);
      REQUIRE(alternative.around);
      const auto searched = e.search_with(e.op(name), alternative.label);
      REQUIRE(searched);
      CHECK(alternative.around->objective == *searched - e.objective());
    }
  }
}

TEST_CASE("parameters and copies are explained for themselves, others by what makes them") {
  Explained e(mlp());
  PriceBook& book = e.explainer->book();
  const TensorExplanation weight = e.explainer->explain(e.tensor("w1"));
  CHECK(weight.by == TensorExplanation::By::kParameter);
  CHECK(weight.alternatives.size() > 1);
  std::size_t chosen = 0;
  for (const ParameterChoice& choice : book.parameter_choices(
           e.tensor("w1"), parameter_state(book, e.explainer->assignment(), e.tensor("w1")))) {
    Assignment changed = e.explainer->assignment();
    changed.parameters[index(e.tensor("w1"))] = choice;
    const Seconds objective = evaluate(book, changed).objective - e.objective();
    CHECK(std::any_of(weight.alternatives.begin(), weight.alternatives.end(), [&](const auto& a) {
      return a.alone.objective == objective;
    }));
  }
  for (const Alternative& alternative : weight.alternatives) chosen += alternative.chosen ? 1 : 0;
  CHECK(chosen == 1);
  CHECK(e.explainer->explain(e.tensor("x")).by == TensorExplanation::By::kCopy);  // read twice
  const TensorExplanation result = e.explainer->explain(e.tensor("h"));
  CHECK(result.by == TensorExplanation::By::kProducer);
  CHECK(result.op == e.op("fc1"));
}

/// The case under a limit between the least that has a plan (0) and what the cheapest takes (1).
PlannedCase tight(PlannedCase wanted, double fraction) {
  const Planned loose = plan_case(wanted);
  Bytes low = 0;
  Bytes high = loose.plan.memory.peak;
  const MeshShape mesh{loose.plan.mesh.shape, loose.plan.mesh.axes};
  while (high - low > high / 400) {
    DpOptions options = options_of(loose);
    options.memory_limit = (low + high) / 2;
    auto outcome = dp_search(loose.graph, loose.cluster, {mesh}, options);
    const bool fits = outcome && std::holds_alternative<DpResult>(*outcome);
    (fits ? high : low) = options.memory_limit;
  }
  const auto room = static_cast<double>(loose.plan.memory.peak - high);
  wanted.limit = high + static_cast<Bytes>(fraction * room);
  return wanted;
}

TEST_CASE("where memory binds, its price says what more of it would save") {
  const Explained loose(mlp());
  CHECK(loose.explainer->binding(0).prices.empty());

  const PlannedCase wanted = tight(mlp(), 0.3);
  const Explained e(wanted);
  REQUIRE(e.objective() > loose.objective());
  const Binding binding = e.explainer->binding(0);
  CHECK(binding.peak == e.planned.plan.memory.peak);
  CHECK(binding.limit == wanted.limit);
  CHECK(binding.moment == e.planned.plan.memory.moment);
  REQUIRE_FALSE(binding.prices.empty());
  double price = 0;
  for (const MemoryPrice& each : binding.prices) {
    CHECK(each.seconds_per_gib > 0);
    price += each.seconds_per_gib / (1024.0 * 1024 * 1024);
  }
  // no plan with more memory gains more than the price over the lower bound at these prices
  const MeshShape mesh{e.planned.plan.mesh.shape, e.planned.plan.mesh.axes};
  DpOptions options = e.options;
  auto book = PriceBook::make(e.planned.graph, e.planned.cluster, mesh.shape, options.prices);
  REQUIRE(book);
  auto problem = PlanProblem::make(**book, {});
  REQUIRE(problem);
  const double least = memory_search(**problem, wanted.limit).lower_bound;
  for (const int percent : {1, 5, 20}) {
    const Bytes more = wanted.limit / 100 * percent;
    options.memory_limit = wanted.limit + more;
    auto larger = dp_search(e.planned.graph, e.planned.cluster, {mesh}, options);
    REQUIRE(larger);
    const double saved = least - std::get<DpResult>(*larger).evaluation.objective.value;
    CHECK(saved <= price * static_cast<double>(more) * (1 + 1e-9));
  }
}

TEST_CASE("every strategy is left or left out for one reason") {
  PlannedCase wanted = mlp();
  std::string odd = kMlp;
  odd.replace(odd.find("\"size\": 16"), 10, "\"size\": 6 ");
  wanted.graph_text = odd;
  wanted.mesh = {{2, 4}, {"dp", "tp"}};
  const Explained e(wanted);
  for (std::size_t i = 0; i < e.planned.graph.operators.size(); ++i) {
    const FilterCounts counts = e.explainer->filters(static_cast<OperatorId>(i), true);
    INFO(e.planned.graph.operators[i].name);
    CHECK(counts.all ==
          counts.divisibility + counts.rule + counts.constraints + *counts.memory + counts.left);
    CHECK(counts.left >= 1);
  }
  // 6 rows: two devices divide them, four do not. gelu: rows, columns or none per axis
  const FilterCounts gelu = e.explainer->filters(e.op("gelu"), false);
  CHECK(gelu.all == 9);
  CHECK(gelu.divisibility == 3);
  CHECK_FALSE(gelu.memory);
}

TEST_CASE("memory leaves out strategies with which nothing fits") {
  const Explained e(tight(mlp(), 0));
  std::size_t excluded = 0;
  for (const char* name : {"fc1", "gelu", "fc2", "add"}) {
    const OperatorId id = e.op(name);
    const FilterCounts counts = e.explainer->filters(id, true);
    REQUIRE(counts.memory);
    excluded += *counts.memory;
    std::size_t none = 0;
    for (const Strategy& strategy : e.explainer->book().info(id).strategies())
      if (!e.search_with(id, e.explainer->book().info(id).label(strategy))) ++none;
    CHECK(*counts.memory <= none);
    CHECK(e.explainer->explain(id, true).filters.memory == counts.memory);
  }
  CHECK(excluded > 0);
}

Constraints wish_of(const Explained& e, const std::string& tensor, PlacementPattern pattern) {
  Constraints wish;
  wish.mesh = ConstraintMesh{e.planned.plan.mesh.shape, e.planned.plan.mesh.axes, {}};
  wish.tensors.push_back({tensor, std::move(pattern), 0, "wish"});
  return wish;
}

TEST_CASE("a wish is searched: what it costs, or why it cannot be") {
  Explained e(mlp());
  // what the plan does already costs nothing
  const auto entry = std::find_if(e.planned.plan.tensors.begin(),
                                  e.planned.plan.tensors.end(),
                                  [](const PlanTensor& tensor) { return tensor.name == "w1"; });
  PlacementPattern same(entry->placements.begin(), entry->placements.end());
  auto wish = e.explainer->why_not(wish_of(e, "w1", same));
  REQUIRE(wish);
  REQUIRE(wish->found);
  CHECK(wish->found->evaluation.objective == e.objective());

  const PlacementPattern other = {Placement(Shard{0}), Placement(Replicate{})};
  wish = e.explainer->why_not(wish_of(e, "w1", other));
  REQUIRE(wish);
  REQUIRE(wish->found);
  CHECK(wish->found->evaluation.objective > e.objective());
  auto& book = *wish->found->book;
  const TensorId w1 = e.tensor("w1");
  const auto price = book.parameter_price(w1,
                                          parameter_state(book, wish->found->assignment, w1),
                                          wish->found->assignment.parameters[index(w1)],
                                          true);
  REQUIRE(price);
  CHECK(price->rest == Placements{Shard{0}, Replicate{}});

  // the loss has no dimension to cut
  const auto no_dimension =
      e.explainer->why_not(wish_of(e, "loss", {Placement(Shard{0}), Placement(Replicate{})}));
  CHECK((!no_dimension || !no_dimension->found));
  const auto unknown = e.explainer->why_not(wish_of(e, "w9", other));
  REQUIRE_FALSE(unknown);
  CHECK(unknown.error().message.find("w9") != std::string::npos);
}

TEST_CASE("constraints are priced, and alternatives that they exclude are marked") {
  PlannedCase wanted = mlp();
  Planned planned = plan_case(wanted);
  DpOptions options = options_of(planned);
  Constraints constraints;
  constraints.mesh = ConstraintMesh{planned.plan.mesh.shape, planned.plan.mesh.axes, {}};
  constraints.tensors.push_back(
      {"w1", PlacementPattern{Placement(Shard{0}), Placement(Replicate{})}, 0, "c: /tensors/w1"});
  const MeshShape mesh{planned.plan.mesh.shape, planned.plan.mesh.axes};
  const Explained free(wanted);
  auto wish = free.explainer->why_not(constraints);
  REQUIRE(wish);
  REQUIRE(wish->found);
  PlanContext context;
  context.options = planned.plan.options;
  context.axes = mesh.axes;
  context.memory_limit = options.memory_limit;
  context.result.objective = wish->found->evaluation.objective;
  const Plan plan =
      build_plan(*wish->found->book, wish->found->assignment, wish->found->evaluation, context);
  const std::optional<Constraints> given = constraints;
  auto made = PlanExplainer::make(plan, planned.graph, planned.cluster, options, given);
  INFO((made ? "" : to_string(made.error())));
  REQUIRE(made);
  const Binding binding = (*made)->binding(5);
  REQUIRE(binding.constraints.size() == 2);
  CHECK(binding.constraints[0].where == "all");
  CHECK(binding.constraints[1].where == "c: /tensors/w1");
  for (const ConstraintPrice& price : binding.constraints)
    CHECK(price.objective == free.objective());
  const OperatorExplanation told = (*made)->explain(free.op("fc1"), true);
  CHECK(told.filters.constraints > 0);
  std::size_t marked = 0;
  for (const Alternative& alternative : told.alternatives)
    marked += alternative.constrained ? 1 : 0;
  CHECK(marked == told.filters.constraints);
  CHECK(told.filters.left + marked == told.alternatives.size());
  // the plan without its constraints is none of theirs
  CHECK_FALSE(PlanExplainer::make(planned.plan, planned.graph, planned.cluster, options, given));
}

TEST_CASE("sensitivity prices the plan and all meshes with a level slower and faster") {
  const Explained e(mlp());
  const auto rows = e.explainer->sensitivity();
  REQUIRE(rows.size() == 4);
  for (const Sensitivity& row : rows) {
    Cluster changed = e.planned.cluster;
    for (Level& level : changed.levels) {
      if (level.name == row.level) level.bandwidth *= row.factor;
    }
    auto book =
        PriceBook::make(e.planned.graph, changed, e.planned.plan.mesh.shape, e.options.prices);
    CHECK(row.as_planned == evaluate(**book, e.explainer->assignment()).objective);
    REQUIRE(row.same_mesh);
    REQUIRE(row.best);
    CHECK(*row.same_mesh <= *row.as_planned);
    CHECK(*row.best <= *row.same_mesh);
    CHECK(row.stays == (*row.best == *row.same_mesh));
    if (row.factor < 1) CHECK(*row.as_planned >= e.objective());
    if (row.factor > 1) CHECK(*row.as_planned <= e.objective());
  }
}

}  // namespace
}  // namespace meshplan::explain_plan_test

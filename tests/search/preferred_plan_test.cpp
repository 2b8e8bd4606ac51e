// SPDX-License-Identifier: Apache-2.0
// Plans that keep an earlier plan's choices: against trying every set of choices to keep.
#include "search/preferred_plan.h"

#include <limits>

#include "plan/build_plan.h"
#include "plan/check_plan.h"
#include "support/models.h"
#include "support/random_graph.h"

namespace meshplan::preferred_plan_test {
namespace {

using test::Random;

constexpr Bytes kUnlimited = std::numeric_limits<Bytes>::max();

MeshShape named(std::vector<std::int64_t> shape) {
  static const std::vector<std::string> kAxes = {"d0", "d1", "d2"};
  const auto axes = static_cast<std::ptrdiff_t>(shape.size());
  return {std::move(shape), {kAxes.begin(), kAxes.begin() + axes}};
}

Plan plan_of(const DpResult& found, const std::vector<std::string>& axes) {
  PlanContext context;
  context.axes = axes;
  context.result.objective = found.evaluation.objective;
  return build_plan(*found.book, found.assignment, found.evaluation, context);
}

DpResult best_of(const Graph& graph,
                 const Cluster& cluster,
                 const std::vector<MeshShape>& meshes,
                 const DpOptions& options,
                 const RestrictionsOf& restrictions = {}) {
  auto outcome = dp_search(graph, cluster, meshes, options, restrictions);
  if (!outcome) FAIL(to_string(outcome.error()));
  auto* const result = std::get_if<DpResult>(&*outcome);
  if (result == nullptr) FAIL("no plan");
  return std::move(*result);
}

/// Keeps about a third of all strategies, so that the best plan is another one.
RestrictionsOf arbitrary(std::uint64_t seed) {
  return [seed](PriceBook& book, const MeshShape& /*mesh*/) -> Result<Restrictions> {
    Restrictions made;
    made.strategy = [seed, &book](OperatorId id, const Strategy& strategy) {
      const std::vector<Strategy>& all = book.info(id).strategies();
      const auto at =
          static_cast<std::uint64_t>(std::find(all.begin(), all.end(), strategy) - all.begin());
      return (at + seed + index(id)) % 3 == 0 || all.size() < 3;
    };
    return made;
  };
}

struct Case {
  explicit Case(std::uint64_t seed) : random(seed) {
    mesh = named(random.pick(std::vector<std::vector<std::int64_t>>{{2}, {2, 2}, {4}}));
    std::int64_t devices = 1;
    for (const std::int64_t size : mesh.shape) devices *= size;
    cluster = test::random_cluster(random, devices);
    options.prices = test::random_options(random, cluster);
    options.memory_limit = kUnlimited;
    text =
        test::RandomGraphText(random, {2, 4, 8}).make(static_cast<int>(random.between(2, 5)), true);
    graph = test::build_graph(text, true);
  }

  Random random;
  MeshShape mesh;
  Cluster cluster;
  DpOptions options;
  std::string text;
  Graph graph;
};

/// The most that any plan within the limits keeps, by trying every set of what must be kept.
std::size_t most_kept(const EarlierChoices& earlier, Seconds most, Bytes limit, PriceBook& book) {
  const Graph& graph = book.graph();
  std::vector<TensorId> parameters;
  for (std::size_t t = 0; t < graph.tensors.size(); ++t) {
    if (graph.tensors[t].role == Role::kParameter && !graph.tensors[t].uses.empty())
      parameters.push_back(static_cast<TensorId>(t));
  }
  const std::size_t operators = graph.operators.size();
  const std::size_t count = operators + parameters.size();
  std::size_t best = 0;
  for (std::size_t set = 0; set < std::size_t{1} << count; ++set) {
    const auto size = static_cast<std::size_t>(__builtin_popcountll(set));
    if (size <= best) continue;
    Restrictions kept;
    kept.strategy = [&](OperatorId id, const Strategy& strategy) {
      return (set >> index(id) & 1U) == 0 || earlier.is_kept(book, id, strategy);
    };
    kept.parameter = [&](TensorId tensor, const TensorState& state, const ParameterChoice& choice) {
      const auto at = static_cast<std::size_t>(
          std::find(parameters.begin(), parameters.end(), tensor) - parameters.begin());
      return (set >> (operators + at) & 1U) == 0 || earlier.is_kept(book, tensor, state, choice);
    };
    auto problem = PlanProblem::make(book, kept);
    if (!problem) continue;
    const MemorySearchResult found = memory_search(**problem, limit);
    if (found.decision && found.objective <= most) best = size;
  }
  return best;
}

TEST_CASE("what is kept is nearly the most that is possible within tolerance and memory") {
  std::size_t compared = 0;
  std::size_t equal = 0;
  std::size_t kept_some = 0;
  for (std::uint64_t seed = 0; compared < 12 && seed < 200; ++seed) {
    Case c(seed);
    INFO("seed " << seed << ": " << c.text);
    std::size_t choices = c.graph.operators.size();
    for (const Tensor& tensor : c.graph.tensors)
      choices += tensor.role == Role::kParameter ? 1U : 0U;
    if (choices > 6) continue;
    auto old_outcome = dp_search(c.graph, c.cluster, {c.mesh}, c.options, arbitrary(seed));
    if (!old_outcome) continue;
    const DpResult old = std::move(std::get<DpResult>(*old_outcome));
    const Plan old_plan = plan_of(old, c.mesh.axes);
    const EarlierChoices earlier(old_plan);
    CHECK(earlier.kept(*old.book, old.assignment) == earlier.known(c.graph));
    DpResult best = best_of(c.graph, c.cluster, {c.mesh}, c.options);
    if (seed % 2 == 0) {  // memory that binds
      c.options.memory_limit = best.evaluation.peak / 100 * 95;
      auto tight = dp_search(c.graph, c.cluster, {c.mesh}, c.options);
      if (!tight || std::holds_alternative<NoPlan>(*tight)) {
        c.options.memory_limit = kUnlimited;
      } else {
        best = std::move(std::get<DpResult>(*tight));
      }
    }
    const double tolerance = c.random.pick(std::vector<double>{0, 0.01, 0.1, 0.5, 3});
    const Seconds most{(1 + tolerance) * best.evaluation.objective.value};
    const KeptChoices before = earlier.kept(*best.book, best.assignment);
    const Preferred made = prefer_choices(earlier,
                                          tolerance,
                                          best,
                                          {{&c.graph, c.options.prices.microbatches}},
                                          c.cluster,
                                          c.mesh,
                                          c.options);
    CHECK(made.known == earlier.known(c.graph));
    const DpResult& found = made.plan ? *made.plan : best;
    CHECK(made.kept == earlier.kept(*found.book, found.assignment));
    CHECK(made.kept.all() >= before.all());
    CHECK(found.evaluation.objective <= most);
    CHECK(found.evaluation.objective.value >= best.evaluation.objective.value);
    CHECK(found.evaluation.peak <= c.options.memory_limit);
    const Evaluation again = evaluate(*found.book, found.assignment);
    CHECK(again.objective == found.evaluation.objective);
    const std::size_t possible = most_kept(earlier, most, c.options.memory_limit, *best.book);
    CHECK(made.kept.all() <= std::max(possible, before.all()));
    ++compared;
    if (made.kept.all() >= possible) ++equal;
    if (made.kept.all() > before.all()) ++kept_some;
  }
  CHECK(compared == 12);
  CHECK(equal >= 10);
  CHECK(kept_some >= 4);
}

struct Job {
  Job() {
    test::LlamaSizes sizes;
    sizes.hidden = 1024;
    sizes.intermediate = 3072;
    sizes.heads = 16;
    sizes.kv_heads = 16;
    sizes.vocab = 8192;
    sizes.layers = 3;
    graph = test::llama_graph(test::llama_config(sizes), 16, 512);
    cluster = test::shipped_cluster("dgx-a100-80g", 8);
    options.prices.overlap = cluster.efficiency.overlap;
    options.memory_limit = cluster.usable_memory();
  }
  Graph graph;
  Cluster cluster;
  DpOptions options;
};

TEST_CASE("a whole earlier plan is kept where it is near the best, also on another mesh") {
  const Job job;
  const MeshShape mesh = named({4, 2});
  const DpResult old = best_of(job.graph, job.cluster, {mesh}, job.options);
  const Plan plan = plan_of(old, {"left", "right"});
  const EarlierChoices earlier(plan);
  DpResult best = best_of(job.graph, job.cluster, all_meshes(job.cluster), job.options);
  REQUIRE(best.mesh.shape != mesh.shape);
  const double worse = old.evaluation.objective.value / best.evaluation.objective.value - 1;
  REQUIRE(worse > 0);
  const auto prefer = [&](double tolerance, const std::optional<MeshShape>& on) {
    return prefer_choices(
        earlier, tolerance, best, {{&job.graph, 1}}, job.cluster, on, job.options);
  };
  const Preferred kept = prefer(worse * 1.001, mesh);
  REQUIRE(kept.plan.has_value());
  CHECK(kept.kept == kept.known);
  CHECK(kept.known.operators == job.graph.operators.size());
  CHECK(kept.plan->evaluation.objective == old.evaluation.objective);
  CHECK(kept.plan->lower_bound == best.lower_bound);
  CHECK(!kept.plan->optimal);
  // too dear: the best plan, and why
  const Preferred dear = prefer(worse * 0.5, mesh);
  CHECK(!dear.plan.has_value());
  CHECK(dear.kept == KeptChoices{});
  CHECK(dear.note.find("within the tolerance") != std::string::npos);
  const Preferred elsewhere = prefer(1, std::nullopt);
  CHECK(!elsewhere.plan.has_value());
  CHECK(elsewhere.note.find("mesh") != std::string::npos);
}

TEST_CASE("operators are matched by name; what is new or changed has no earlier choice") {
  const Job job;
  const DpResult old = best_of(job.graph, job.cluster, {named({8})}, job.options);
  Plan plan = plan_of(old, {"d0"});
  const std::size_t operators = plan.operators.size();
  plan.operators[0].name = "another";
  plan.operators[1].type = "Another";
  plan.operators[2].out_placements.push_back(plan.operators[2].out_placements.front());
  plan.operators[3].in_placements.pop_back();
  for (PlanTensor& tensor : plan.tensors) {
    if (tensor.optimizer_state) {
      tensor.name = "renamed";
      break;
    }
  }
  const EarlierChoices earlier(plan);
  const KeptChoices kept = earlier.kept(*old.book, old.assignment);
  const KeptChoices known = earlier.known(job.graph);
  CHECK(known.operators == operators - 1);
  CHECK(kept.operators == operators - 4);
  CHECK(kept.parameters == known.parameters);
  // ranks in another order are other devices
  plan.mesh.ranks = {7, 6, 5, 4, 3, 2, 1, 0};
  CHECK(earlier.kept(*old.book, old.assignment) == KeptChoices{});
}

TEST_CASE("a preferred plan is the same on any number of threads and ends when it is told to") {
  const Job job;
  const MeshShape mesh = named({2, 4});
  DpResult best = best_of(job.graph, job.cluster, {mesh}, job.options);
  const DpResult old = best_of(job.graph, job.cluster, {mesh}, job.options, arbitrary(5));
  const Plan plan = plan_of(old, mesh.axes);
  const EarlierChoices earlier(plan);
  std::optional<Assignment> first;
  for (const unsigned threads : {1U, 4U}) {
    DpOptions options = job.options;
    options.threads = threads;
    const Preferred made =
        prefer_choices(earlier, 0.02, best, {{&job.graph, 1}}, job.cluster, mesh, options);
    REQUIRE(made.plan.has_value());
    CHECK(made.kept.all() < made.known.all());
    if (!first) first = made.plan->assignment;
    CHECK(made.plan->assignment == *first);
  }
  DpOptions stopped = job.options;
  stopped.stop = [] { return true; };
  const Preferred made =
      prefer_choices(earlier, 0.02, best, {{&job.graph, 1}}, job.cluster, mesh, stopped);
  CHECK(!made.plan.has_value());
  CHECK(made.kept == earlier.kept(*best.book, best.assignment));
}

}  // namespace
}  // namespace meshplan::preferred_plan_test

// SPDX-License-Identifier: Apache-2.0
// The search's own sums against the evaluator, on larger random graphs: to the last bit.
#include <limits>

#include "plan/build_plan.h"
#include "plan/check_plan.h"
#include "plan/verify_plan.h"
#include "search/dp_search.h"
#include "support/models.h"
#include "support/random_graph.h"

namespace meshplan::agreement_test {
namespace {

using test::Random;

constexpr Bytes kUnlimited = std::numeric_limits<Bytes>::max();

const std::vector<std::vector<std::int64_t>> kMeshes = {
    {2}, {3}, {4}, {2, 2}, {6}, {2, 3}, {1, 4}, {2, 1, 2}};

/// One graph with the machine and the options that belong to a seed.
struct Case {
  explicit Case(std::uint64_t seed, int least_operators, int most_operators)
      : random(seed), mesh(kMeshes[seed % kMeshes.size()]) {
    for (const std::int64_t size : mesh) devices *= size;
    cluster = test::random_cluster(random, devices);
    options = test::random_options(random, cluster);
    const bool training = random.chance(85);
    text = test::RandomGraphText(random, {1, 2, 3, 4, 6, 8, 12, 7})
               .make(static_cast<int>(random.between(least_operators, most_operators)), training);
    graph = test::build_graph(text, training);
    if (seed % 2 == 1) options.recomputation = test::random_recomputation(seed, graph);
    if (seed % 4 < 2) {  // fractions at which rounding differs from step to step
      cluster.efficiency.overlap.activation = 0.3;
      options.overlap.activation = 0.3;
    }
  }

  Random random;
  std::vector<std::int64_t> mesh;
  std::int64_t devices = 1;
  Cluster cluster;
  PriceOptions options;
  std::string text;
  Graph graph;
};

/// A number that looks random but depends on nothing but its arguments.
std::uint64_t mixed(std::uint64_t seed, std::uint64_t a, std::uint64_t b) {
  std::uint64_t h = seed * 0x9e3779b97f4a7c15u + a * 0xbf58476d1ce4e5b9u + b * 0x94d049bb133111ebu;
  h ^= h >> 31;
  h *= 0xd6e8feb86659fd93u;
  return h ^ (h >> 32);
}

template <class Array>
std::uint64_t code_of(const Array& list) {
  std::uint64_t code = 0;
  for (const auto entry : list) code = code * 32 + static_cast<std::uint64_t>(entry);
  return code;
}

/// Leaves about two thirds of all choices.
Restrictions random_restrictions(std::uint64_t seed) {
  Restrictions restrictions;
  restrictions.strategy = [seed](OperatorId op, const Strategy& strategy) {
    return mixed(seed, index(op), code_of(strategy.actions)) % 3 != 0;
  };
  restrictions.value = [seed](TensorId tensor, const TensorState& state) {
    return mixed(seed + 1, index(tensor), code_of(state.axes)) % 3 != 0;
  };
  restrictions.parameter =
      [seed](TensorId tensor, const TensorState& state, const ParameterChoice& choice) {
        return mixed(seed + 2, index(tensor), code_of(state.axes) * 997 + code_of(choice)) % 3 != 0;
      };
  return restrictions;
}

MemoryPrices random_prices(Random& random, int moments) {
  MemoryPrices prices;
  for (std::int64_t count = random.between(0, 3); count > 0; --count) {
    prices.at[static_cast<int>(random.between(0, moments - 1))] =
        random.pick(std::vector<double>{1e-12, 1e-10, 1e-9, 1e-8, 1e-6});
  }
  // sums of whole bytes are exact
  prices.memory_only = !prices.at.empty() && random.chance(20);
  if (prices.memory_only) {
    for (auto& [moment, price] : prices.at) price = 1;
  }
  return prices;
}

/// The parts of an evaluation add up to its sums, to the last bit.
void check_parts(const Evaluation& evaluation) {
  Seconds objective;
  Seconds work;
  Seconds communication;
  for (const CostCell& cell : evaluation.breakdown.cells()) {
    objective += cell.objective;
    (std::holds_alternative<Work>(cell.kind) ? work : communication) += cell.time;
    REQUIRE(cell.objective <= cell.time);
    REQUIRE(cell.objective.value >= 0);
    REQUIRE((cell.axes == 0) == std::holds_alternative<Work>(cell.kind));
  }
  REQUIRE(objective == evaluation.objective);
  REQUIRE(work == evaluation.compute);
  REQUIRE(communication == evaluation.communication);
  Seconds of_operators;
  for (const Seconds part : evaluation.breakdown.operators()) of_operators += part;
  REQUIRE(of_operators == evaluation.objective);
  std::array<Bytes, kMemoryKinds> kinds{};
  Bytes peak = 0;
  for (const MemoryShare& share : evaluation.shares_at_peak) {
    kinds[static_cast<std::size_t>(share.kind)] += share.bytes;
    peak += share.bytes;
    REQUIRE(share.bytes > 0);
  }
  REQUIRE(kinds == evaluation.at_peak);
  REQUIRE(peak == evaluation.peak);
}

TEST_CASE("the search's sums equal the evaluator's for any choices") {
  int checked = 0;
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    Case c(seed, 3, 14);
    INFO("seed " << seed << ": " << c.text);
    auto book = PriceBook::make(c.graph, c.cluster, c.mesh, c.options);
    REQUIRE(book.has_value());
    const Restrictions restrictions = seed % 3 == 0 ? Restrictions{} : random_restrictions(seed);
    auto made = PlanProblem::make(**book, restrictions);
    if (!made) {
      REQUIRE(made.error().code == ErrorCode::kConflict);
      continue;
    }
    PlanProblem& problem = **made;
    const int moments = (*book)->flow().moments();
    for (int round = 0; round < 3; ++round) {
      const MemoryPrices prices = random_prices(c.random, moments);
      const PlanProblem::Solution solution = problem.solve(prices);
      REQUIRE(solution.feasible);
      REQUIRE(solution.lower_bound <= solution.priced);
      Decision decision = problem.decide(solution.choice, prices);
      const bool joined = c.random.chance(50);
      if (joined) {
        const MemoryPrices other = random_prices(c.random, moments);
        decision = problem.spliced(
            decision,
            problem.decide(problem.solve(other).choice, other),
            static_cast<int>(c.random.between(0, static_cast<int>(c.graph.operators.size()))));
      }
      const PlanProblem::Measured measured = problem.measure(decision);
      const Evaluation evaluation = evaluate(**book, problem.assignment(decision));
      REQUIRE(measured.objective == evaluation.objective);
      REQUIRE(measured.profile == evaluation.profile);
      REQUIRE(measured.peak == evaluation.peak);
      REQUIRE(measured.peak_moment == evaluation.peak_moment);
      check_parts(evaluation);
      if (prices.at.empty()) {
        REQUIRE(solution.exact);
        if (!joined) REQUIRE(solution.priced == measured.objective.value);
      }
      ++checked;
    }
  }
  CHECK(checked > 240);
}

TEST_CASE("the plan checker agrees with the evaluator on any choices, and they run") {
  int checked = 0;
  for (std::uint64_t seed = 1000; seed < 1400; ++seed) {
    Case c(seed, 2, 12);
    INFO("seed " << seed << ": " << c.text);
    c.cluster.fingerprint = "sha256:c";
    auto book = PriceBook::make(c.graph, c.cluster, c.mesh, c.options);
    REQUIRE(book.has_value());
    auto made =
        PlanProblem::make(**book, seed % 3 == 0 ? Restrictions{} : random_restrictions(seed));
    if (!made) continue;
    MemoryPrices prices = random_prices(c.random, (*book)->flow().moments());
    const PlanProblem::Solution solution = (*made)->solve(prices);
    REQUIRE(solution.feasible);
    const Assignment assignment = (*made)->assignment((*made)->decide(solution.choice, prices));
    const Evaluation evaluation = evaluate(**book, assignment);
    PlanContext context;
    context.version = "0.0.0";
    for (std::size_t axis = 0; axis < c.mesh.size(); ++axis)
      context.axes.push_back("d" + std::to_string(axis));
    context.memory_limit = c.cluster.usable_memory();
    context.options.mode = c.graph.training ? "training" : "inference";
    context.options.microbatches = c.options.microbatches;
    context.options.others["constraints"] = std::string("random");
    context.options.optimizer = c.options.optimizer == Optimizer::kAdamW ? "adamw"
                                : c.options.optimizer == Optimizer::kSgd ? "sgd"
                                                                         : "none";
    context.result.status = PlanStatus::kFeasible;
    context.result.found_by = "dp";
    context.result.objective = evaluation.objective;
    const Plan plan = build_plan(**book, assignment, evaluation, context);
    std::string faults;
    for (const Finding& finding : check_plan(plan, c.graph, c.cluster))
      faults += "\n" + to_string(finding);
    REQUIRE(faults == "");
    REQUIRE(plan.breakdown.empty() == (evaluation.objective.value == 0));
    REQUIRE_FALSE(plan.at_peak.empty());
    VerifyOptions how;
    how.seed = seed;
    const Result<VerifyReport> run = verify_plan(plan, c.graph, how);
    if (!run) FAIL(to_string(run.error()));
    if (run->divergence) FAIL(to_string(*run->divergence));
    ++checked;
  }
  CHECK(checked > 200);
}

TEST_CASE("a priced sum is the objective plus the priced bytes, rounded down") {
  for (std::uint64_t seed = 200; seed < 260; ++seed) {
    Case c(seed, 3, 10);
    INFO("seed " << seed << ": " << c.text);
    auto book = PriceBook::make(c.graph, c.cluster, c.mesh, c.options);
    REQUIRE(book.has_value());
    auto made = PlanProblem::make(**book, {});
    REQUIRE(made.has_value());
    MemoryPrices prices = random_prices(c.random, (*book)->flow().moments());
    prices.memory_only = false;
    const PlanProblem::Solution solution = (*made)->solve(prices);
    const PlanProblem::Measured measured =
        (*made)->measure((*made)->decide(solution.choice, prices));
    double priced = measured.objective.value;
    for (const auto& [moment, price] : prices.at)
      priced += price * static_cast<double>(measured.profile[static_cast<std::size_t>(moment)]);
    // every table entry is rounded down by less than one step of the price grid
    REQUIRE(solution.priced <= priced * (1 + 1e-12));
    REQUIRE(solution.priced >= priced * (1 - 1e-12) - 200 * std::ldexp(1.0, -40));
  }
}

TEST_CASE("equal layers are priced and joined once") {
  const Cluster cluster = test::shipped_cluster("dgx-a100-80g", 16);
  auto tables = [&](int layers, double price) {
    test::LlamaSizes sizes;
    sizes.layers = layers;
    const Graph graph = test::llama_graph(test::llama_config(sizes), 8, 128);
    auto book = PriceBook::make(graph, cluster, {2, 8}, {});
    REQUIRE(book.has_value());
    auto problem = PlanProblem::make(**book, {});
    REQUIRE(problem.has_value());
    MemoryPrices prices;
    if (price > 0) prices.at[(*book)->flow().moments() / 2] = price;
    const PlanProblem::Solution solution = (*problem)->solve(prices);
    REQUIRE(solution.exact);
    return solution.tables;
  };
  for (const double price : {0.0, 1e-12}) {
    INFO("price " << price);
    const std::size_t some = tables(16, price);
    const std::size_t twice = tables(32, price);
    CHECK(some < 1000);  // 16 layers of 24 operators: far fewer than one table each
    CHECK(twice <= some + 40);
  }
}

TEST_CASE("the bound of the variables alone is none too high") {
  for (std::uint64_t seed = 300; seed < 330; ++seed) {
    Case c(seed, 3, 10);
    INFO("seed " << seed << ": " << c.text);
    auto book = PriceBook::make(c.graph, c.cluster, c.mesh, c.options);
    REQUIRE(book.has_value());
    auto made = PlanProblem::make(**book, {});
    REQUIRE(made.has_value());
    for (int round = 0; round < 3; ++round) {
      const MemoryPrices prices = random_prices(c.random, (*book)->flow().moments());
      const double alone = (*made)->bound_of_variables(prices);
      REQUIRE(alone <= (*made)->solve(prices).lower_bound);
      REQUIRE(alone >= 0);
    }
  }
}

TEST_CASE("a plan within a limit fits, and its bound is none too high") {
  int found_plans = 0;
  int impossible = 0;
  int open = 0;
  for (std::uint64_t seed = 400; seed < 460; ++seed) {
    Case c(seed, 5, 16);
    INFO("seed " << seed << ": " << c.text);
    auto book = PriceBook::make(c.graph, c.cluster, c.mesh, c.options);
    REQUIRE(book.has_value());
    auto made = PlanProblem::make(**book, {});
    REQUIRE(made.has_value());
    PlanProblem& problem = **made;
    const MemorySearchResult free = memory_search(problem, kUnlimited);
    REQUIRE(free.decision.has_value());
    REQUIRE(free.proven_optimal);
    const Bytes peak = problem.measure(*free.decision).peak;
    for (const int percent : {30, 70, 85, 93, 99}) {
      const Bytes limit = peak / 100 * percent;
      INFO("limit " << limit << " of " << peak);
      const MemorySearchResult found = memory_search(problem, limit);
      if (found.min_memory) {
        REQUIRE_FALSE(found.decision.has_value());
        REQUIRE(*found.min_memory > limit);
        ++impossible;
      }
      REQUIRE(found.lower_bound >= free.objective.value);
      if (!found.decision && !found.min_memory) ++open;
      if (!found.decision) continue;
      ++found_plans;
      const Evaluation evaluation = evaluate(**book, problem.assignment(*found.decision));
      REQUIRE(evaluation.peak <= limit);
      REQUIRE(evaluation.objective == found.objective);
      REQUIRE(found.lower_bound <= found.objective.value);
      REQUIRE(found.proven_optimal == (found.lower_bound >= found.objective.value));
    }
  }
  INFO(found_plans << " plans, " << impossible << " proven impossible, " << open << " open");
  CHECK(found_plans > 40);
  CHECK(impossible > 40);
  CHECK(open * 20 < found_plans + impossible);
}

TEST_CASE("a mesh of which the restrictions leave nothing bounds nothing") {
  Random random(7);
  const Cluster cluster = test::random_cluster(random, 8);
  DpOptions options;
  options.prices = test::random_options(random, cluster);
  options.memory_limit = kUnlimited;
  const Graph graph =
      test::build_graph(test::RandomGraphText(random, {4, 8, 16}).make(4, true), true);
  const auto nothing_from = [&](std::size_t axes) {
    return [axes](PriceBook&, const MeshShape& mesh) -> Result<Restrictions> {
      Restrictions made;
      if (mesh.shape.size() >= axes)
        made.strategy = [](OperatorId, const Strategy&) { return false; };
      return made;
    };
  };
  const auto outcome = dp_search(graph, cluster, all_meshes(cluster), options, nothing_from(2));
  REQUIRE(outcome);
  const auto* found = std::get_if<DpResult>(&*outcome);
  REQUIRE(found != nullptr);
  CHECK(found->mesh.shape.size() == 1);
  CHECK(found->optimal);
  CHECK(found->lower_bound == found->evaluation.objective.value);
  const auto none = dp_search(graph, cluster, all_meshes(cluster), options, nothing_from(1));
  REQUIRE_FALSE(none);
  CHECK(none.error().code == ErrorCode::kConflict);
}

TEST_CASE("bounding meshes first loses no plan") {
  int plans = 0;
  for (std::uint64_t seed = 700; seed < 712; ++seed) {
    Random random(seed);
    const std::int64_t devices = std::vector<std::int64_t>{8, 12, 16}[seed % 3];
    const Cluster cluster = test::random_cluster(random, devices);
    DpOptions options;
    options.prices = test::random_options(random, cluster);
    options.memory_limit = kUnlimited;
    const std::string text = test::RandomGraphText(random, {2, 4, 6, 8, 12, 24})
                                 .make(static_cast<int>(random.between(3, 7)), true);
    INFO("seed " << seed << ": " << text);
    const Graph graph = test::build_graph(text, true);
    for (const int percent : {100, 80, 60}) {
      DpOptions thorough = options;
      thorough.bound_first = false;
      const auto all = dp_search(graph, cluster, all_meshes(cluster), thorough);
      const auto bounded = dp_search(graph, cluster, all_meshes(cluster), options);
      REQUIRE(all);
      REQUIRE(bounded);
      REQUIRE(bounded->index() == all->index());
      const auto* best = std::get_if<DpResult>(&*all);
      if (best == nullptr) break;
      ++plans;
      // a mesh that is dropped holds no better plan; under a limit neither search is exact
      const DpResult& quick = std::get<DpResult>(*bounded);
      const double least = best->evaluation.objective.value;
      if (percent == 100) REQUIRE(quick.evaluation.objective.value == least);
      REQUIRE(quick.evaluation.objective.value <= least * 1.01);
      REQUIRE(quick.lower_bound <= least);
      options.memory_limit = best->evaluation.peak / 100 * (percent == 100 ? 80 : 75);
    }
  }
  CHECK(plans > 12);
}

TEST_CASE("of several numbers of micro-batches the best is taken") {
  const std::string text = R"(input x 16 64; weight a 64 256; h = MatMul x a; r = Relu h;
                              weight b 256 64; y = MatMul r b; loss l = ReduceMean y)";
  Random random(1);
  const Cluster cluster = test::random_cluster(random, 4);
  std::vector<Graph> graphs;
  std::vector<DpJob> jobs;
  for (const char* batch : {"16", "8", "4"}) {
    std::string smaller = text;
    smaller.replace(smaller.find("16"), 2, batch);
    graphs.push_back(test::build_graph(smaller, true));
  }
  for (std::size_t i = 0; i < graphs.size(); ++i)
    jobs.push_back({&graphs[i], std::int64_t{1} << i});
  DpOptions options;
  for (const Bytes limit : {kUnlimited, Bytes{150'000}, Bytes{120'000}, Bytes{100'000}}) {
    options.memory_limit = limit;
    const auto together = dp_search(jobs, cluster, all_meshes(cluster), options);
    REQUIRE(together);
    std::optional<Seconds> best;
    for (const DpJob& job : jobs) {
      options.prices.microbatches = job.microbatches;
      const auto alone = dp_search(*job.graph, cluster, all_meshes(cluster), options);
      REQUIRE(alone);
      const auto* found = std::get_if<DpResult>(&*alone);
      if (found != nullptr && (!best || found->evaluation.objective < *best))
        best = found->evaluation.objective;
    }
    const auto* found = std::get_if<DpResult>(&*together);
    REQUIRE((found != nullptr) == best.has_value());
    if (found != nullptr) CHECK(found->evaluation.objective == *best);
  }
}

TEST_CASE("the search gives the same plan on one thread and on four") {
  for (std::uint64_t seed = 600; seed < 630; ++seed) {
    Case c(seed, 4, 10);
    INFO("seed " << seed << ": " << c.text);
    DpOptions options;
    options.prices = c.options;
    options.memory_limit = kUnlimited;
    const std::vector<MeshShape> meshes = all_meshes(c.cluster);
    std::optional<DpOutcome> before;
    for (const int percent : {100, 70}) {
      auto run = [&](unsigned threads) {
        options.threads = threads;
        auto outcome = dp_search(c.graph, c.cluster, meshes, options);
        REQUIRE(outcome.has_value());
        return std::move(*outcome);
      };
      const DpOutcome one = run(1);
      const DpOutcome four = run(4);
      REQUIRE(one.index() == four.index());
      if (const auto* plan = std::get_if<DpResult>(&one)) {
        const DpResult& other = std::get<DpResult>(four);
        REQUIRE(plan->mesh.shape == other.mesh.shape);
        REQUIRE(plan->mesh.axes == other.mesh.axes);
        REQUIRE(plan->assignment == other.assignment);
        REQUIRE(plan->evaluation.objective == other.evaluation.objective);
        REQUIRE(plan->evaluation.profile == other.evaluation.profile);
        REQUIRE(plan->lower_bound == other.lower_bound);
        REQUIRE(plan->lower_bound <= plan->evaluation.objective.value);
        REQUIRE(plan->optimal == other.optimal);
        if (percent == 100) options.memory_limit = plan->evaluation.peak / 100 * 70;
      } else {
        REQUIRE(std::get<NoPlan>(one).min_memory == std::get<NoPlan>(four).min_memory);
        REQUIRE(std::get<NoPlan>(one).moment == std::get<NoPlan>(four).moment);
        REQUIRE(std::get<NoPlan>(one).mesh.shape == std::get<NoPlan>(four).mesh.shape);
      }
    }
  }
}

}  // namespace
}  // namespace meshplan::agreement_test

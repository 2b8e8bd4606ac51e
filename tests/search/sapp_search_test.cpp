// SPDX-License-Identifier: Apache-2.0
// SAPP against the exact search, the evaluator, the checker and brute force.
#include "search/sapp_search.h"

#include <algorithm>
#include <limits>

#include "plan/build_plan.h"
#include "plan/check_plan.h"
#include "plan/verify_plan.h"
#include "search/brute_force.h"
#include "search/short_graph.h"
#include "search/simplify.h"
#include "support/models.h"
#include "support/random_graph.h"

namespace meshplan::sapp_search_test {
namespace {

using test::Random;

constexpr Bytes kUnlimited = std::numeric_limits<Bytes>::max();

SappOptions options_for(const Cluster& cluster, Bytes limit = kUnlimited) {
  SappOptions options;
  options.search.prices.overlap = cluster.efficiency.overlap;
  options.search.memory_limit = limit;
  return options;
}

SappResult found_by(const Graph& graph,
                    const Cluster& cluster,
                    const SappOptions& options,
                    const RestrictionsOf& restrictions = {}) {
  auto outcome = sapp_search(graph, cluster, options, restrictions);
  if (!outcome) FAIL(to_string(outcome.error()));
  REQUIRE(std::holds_alternative<SappResult>(*outcome));
  return std::move(std::get<SappResult>(*outcome));
}

/// The checker has nothing to say, and the plan computes what the graph does.
void check_whole(SappResult& result, const Graph& graph, const Cluster& cluster, bool run = true) {
  DpResult& found = result.found;
  CHECK(found.found_by == "sapp");
  CHECK_FALSE(found.optimal);
  CHECK(found.lower_bound == 0);
  std::int64_t devices = 1;
  for (const std::int64_t size : found.mesh.shape) devices *= size;
  CHECK(devices == cluster.devices());
  CHECK(found.mesh.shape.size() <= 3);
  const Evaluation evaluation = evaluate(*found.book, found.assignment);
  REQUIRE(evaluation.objective == found.evaluation.objective);
  PlanContext context;
  context.version = "0.0.0";
  context.axes = found.mesh.axes;
  context.memory_limit = cluster.usable_memory();
  context.options.mode = graph.training ? "training" : "inference";
  context.options.microbatches = found.book->options().microbatches;
  context.options.others["constraints"] = std::string("random");
  context.options.optimizer = found.book->options().optimizer == Optimizer::kAdamW ? "adamw"
                              : found.book->options().optimizer == Optimizer::kSgd ? "sgd"
                                                                                   : "none";
  context.result.status = PlanStatus::kFeasible;
  context.result.found_by = found.found_by;
  context.result.objective = evaluation.objective;
  const Plan plan = build_plan(*found.book, found.assignment, evaluation, context);
  std::string faults;
  for (const Finding& finding : check_plan(plan, graph, cluster))
    faults += "\n" + to_string(finding);
  REQUIRE(faults == "");
  if (!run) return;
  const Result<VerifyReport> report = verify_plan(plan, graph, VerifyOptions{});
  if (!report) FAIL(to_string(report.error()));
  if (report->divergence) FAIL(to_string(*report->divergence));
}

Graph small_llama(std::int64_t layers, std::int64_t batch = 24, bool tied = false) {
  test::LlamaSizes sizes;
  sizes.layers = layers;
  sizes.tied = tied;
  return test::llama_graph(test::llama_config(sizes), batch, 32);
}

double exact_objective(const Graph& graph, const Cluster& cluster, const DpOptions& options) {
  auto outcome = dp_search(graph, cluster, all_meshes(cluster), options);
  if (!outcome) FAIL(to_string(outcome.error()));
  REQUIRE(std::holds_alternative<DpResult>(*outcome));
  return std::get<DpResult>(*outcome).evaluation.objective.value;
}

TEST_CASE("plans of random graphs are valid and never better than the exact search's") {
  double sum = 0;
  int jobs = 0;
  for (std::uint64_t seed = 0; seed < 48; ++seed) {
    Random random(seed);
    const std::int64_t devices = std::vector<std::int64_t>{1, 2, 3, 4, 6, 8, 12}[seed % 7];
    Cluster cluster = test::random_cluster(random, devices);
    if (seed % 2 == 1 && devices % 2 == 0)
      cluster.levels = {test::level(2, 20, 0.02), test::level(devices / 2, 2, 0.2)};
    cluster.fingerprint = "sha256:c";
    SappOptions options;
    options.search.prices = test::random_options(random, cluster);
    options.search.memory_limit = kUnlimited;
    if (seed % 3 == 2) options.rounds = SappRounds::kGreedy;
    const bool training = random.chance(85);
    const std::string text = test::RandomGraphText(random, {1, 2, 3, 4, 6, 8, 12, 7})
                                 .make(static_cast<int>(3 + seed % 9), training);
    const Graph graph = test::build_graph(text, training);
    if (seed % 4 == 1)
      options.search.prices.recomputation = test::random_recomputation(seed, graph);
    INFO("seed " << seed << ": " << text);
    SappResult result = found_by(graph, cluster, options);
    check_whole(result, graph, cluster);
    const double exact = exact_objective(graph, cluster, options.search);
    const double objective = result.found.evaluation.objective.value;
    REQUIRE(objective >= exact);
    if (options.rounds == SappRounds::kExact) {
      sum += exact > 0 ? objective / exact : 1.0;
      ++jobs;
    }
  }
  CHECK(sum / jobs < 1.05);
}

TEST_CASE("any number of devices is used whole") {
  test::LlamaSizes sizes;
  sizes.hidden = 1536;
  sizes.intermediate = 3072;
  sizes.heads = sizes.kv_heads = 24;
  sizes.vocab = 1536;
  sizes.layers = 1;
  const Graph graph = test::llama_graph(test::llama_config(sizes), 48, 768);
  for (const std::int64_t devices : {24, 48, 96}) {
    const Cluster cluster =
        test::cluster({test::level(8, 200, 1), test::level(devices / 8, 20, 5)});
    SappResult result = found_by(graph, cluster, options_for(cluster));
    check_whole(result, graph, cluster, false);
    // no axis of a product is idle
    for (std::size_t i = 0; i < graph.operators.size(); ++i) {
      const Operator& op = graph.operators[i];
      if (op.rule->family != OperatorFamily::kMatMul) continue;
      INFO(devices << " devices, " << op.name);
      const auto id = static_cast<OperatorId>(i);
      for (int axis = 0; axis < result.found.book->mesh_axes(); ++axis)
        CHECK(
            result.found.book->info(id).action(result.found.assignment.strategies[i], axis).kind !=
            AxisAction::Kind::kNone);
    }
  }
  const Cluster odd = test::cluster({test::level(7, 200, 1), test::level(6, 20, 5)});
  const Graph sevens = test::build_graph(
      "input x 84 12; weight v 12 84; weight w 84 12; y = MatMul x v; z = MatMul y w; loss l = "
      "ReduceMean z");
  SappResult result = found_by(sevens, odd, options_for(odd));
  check_whole(result, sevens, odd);
}

TEST_CASE("rounds divide by prime factors, the outermost level first") {
  const Cluster cluster =
      test::cluster({test::level(8, 200, 1), test::level(6, 20, 5), test::level(7, 2, 5)});
  CHECK(sapp_rounds(cluster) == std::vector<std::int64_t>{7, 3, 2, 2, 2, 2});
  const Cluster part = outer_part(cluster, 21);
  CHECK(part.levels[0].size == 1);
  CHECK(part.levels[1].size == 3);
  CHECK(part.levels[2].size == 7);
  CHECK(part.levels[1].bandwidth == cluster.levels[1].bandwidth);
  Cluster full = cluster;
  full.levels[1].wiring = Wiring::kFullyConnected;
  CHECK(outer_part(full, 21).levels[1].bandwidth == full.levels[1].bandwidth * 2 / 5);
  CHECK(sapp_rounds(test::cluster({test::level(1, 1, 1)})).empty());
}

TEST_CASE("devices that one operator cannot use are used by others") {
  // 6 rows do not divide by 4: the axis cuts something else there, and rows where it can
  const Graph graph = test::build_graph(
      "input x 6 64; weight v 64 64; y = MatMul x v; input a 64 64; weight w 64 64; b = MatMul a "
      "w; loss l = ReduceMean y; loss k = ReduceMean b");
  const Cluster cluster = test::cluster({test::level(4, 100, 0.001)});
  SappResult result = found_by(graph, cluster, options_for(cluster));
  check_whole(result, graph, cluster);
  for (const char* name : {"y", "b"}) {
    const OperatorId id = test::operator_id(graph, name);
    std::int64_t work = 1;
    for (const std::int64_t size :
         result.found.book->info(id).local_factors(result.found.assignment.strategies[index(id)]))
      work *= size;
    CHECK(work == (std::string(name) == "y" ? 6 : 64) * 64 * 64 / 4);
  }
}

/// The pieces into which operator `name` cuts its first factor.
std::int64_t pieces_of(const DpResult& found, const Graph& graph, const std::string& name) {
  const OperatorId id = test::operator_id(graph, name);
  const OperatorInfo& info = found.book->info(id);
  return info.rule().factors[0].size /
         info.local_factors(found.assignment.strategies[index(id)])[0];
}

TEST_CASE("dynamic dimensions are cut by what divides every size") {
  const auto graph_with = [](bool dynamic) {
    GraphDocument document = test::graph_document(
        "input x 16384 4095; weight v 4095 63; weight w 63 4095; y = MatMul x v; z = MatMul y w; "
        "loss "
        "l = ReduceMean z");
    document.dimensions.push_back({"rows",
                                   16384,
                                   dynamic,
                                   128,
                                   32768,
                                   dynamic ? std::optional<std::int64_t>(4) : std::nullopt});
    document.tensors.front().shape->front() = Size("rows");
    auto graph = resolve(document, {});
    if (!graph) FAIL(to_string(graph.error()));
    return *std::move(graph);
  };
  const Graph fixed = graph_with(false);
  const Graph dynamic = graph_with(true);
  const Cluster cluster = test::cluster({test::level(8, 900, 0.001), test::level(2, 900, 0.001)});
  SappResult whole = found_by(fixed, cluster, options_for(cluster));
  check_whole(whole, fixed, cluster);
  CHECK(pieces_of(whole.found, fixed, "z") == 16);  // nothing but rows can be cut
  SappResult result = found_by(dynamic, cluster, options_for(cluster));
  check_whole(result, dynamic, cluster);
  for (const char* name : {"y", "z"}) CHECK(4 % pieces_of(result.found, dynamic, name) == 0);
  CHECK(result.found.evaluation.objective.value >=
        exact_objective(dynamic, cluster, options_for(cluster).search));
  CHECK(result.found.evaluation.objective.value >= whole.found.evaluation.objective.value);

  // the plan of the fixed size is none of the dynamic one
  PlanContext context;
  context.version = "0.0.0";
  context.axes = whole.found.mesh.axes;
  context.memory_limit = cluster.usable_memory();
  context.options.optimizer = "adamw";
  context.result.found_by = "sapp";
  context.result.objective = whole.found.evaluation.objective;
  const Plan plan =
      build_plan(*whole.found.book, whole.found.assignment, whole.found.evaluation, context);
  std::string faults;
  for (const Finding& finding : check_plan(plan, dynamic, cluster))
    faults += "\n" + to_string(finding);
  CHECK(faults.find("pieces, and a multiple of 4 is all that its size is known to be") !=
        std::string::npos);
  CHECK(faults.find("/tensors/") != std::string::npos);
}

TEST_CASE("a mesh that is given has one round per axis") {
  const Graph graph = small_llama(2, 8);
  const Cluster cluster = test::cluster({test::level(8, 200, 1)});
  SappOptions options = options_for(cluster);
  options.mesh = MeshShape{{2, 4}, {"a", "b"}};
  SappResult result = found_by(graph, cluster, options);
  check_whole(result, graph, cluster);
  CHECK(result.found.mesh.axes == std::vector<std::string>{"a", "b"});
  CHECK(result.report.rounds == std::vector<std::int64_t>{2, 4});
  const auto exact = dp_search(graph, cluster, {*options.mesh}, options.search);
  const double best = std::get<DpResult>(*exact).evaluation.objective.value;
  CHECK(result.found.evaluation.objective.value >= best);
  CHECK(result.found.evaluation.objective.value <= 1.15 * best);
}

TEST_CASE("restrictions hold, and several plans of one job are the same on any thread count") {
  const Graph graph = small_llama(6, 8);
  const Cluster cluster = test::cluster({test::level(4, 200, 1)});
  const RestrictionsOf restrictions = [](PriceBook& book,
                                         const MeshShape&) -> Result<Restrictions> {
    Restrictions allowed;
    allowed.strategy = [&book](OperatorId id, const Strategy& strategy) {
      // the first factor of products, the batch, is not cut
      if (book.graph().op(id).rule->family != OperatorFamily::kMatMul) return true;
      for (int axis = 0; axis < book.mesh_axes(); ++axis) {
        if (book.info(id).action(strategy, axis).factor == 0) return false;
      }
      return true;
    };
    return allowed;
  };
  for (const RestrictionsOf& allowed : {RestrictionsOf(), restrictions}) {
    SappOptions options = options_for(cluster);
    options.search.threads = 1;
    SappResult one = found_by(graph, cluster, options, allowed);
    options.search.threads = 3;
    const SappResult three = found_by(graph, cluster, options, allowed);
    CHECK(one.found.assignment == three.found.assignment);
    CHECK(one.found.mesh.shape == three.found.mesh.shape);
    check_whole(one, graph, cluster);
    if (!allowed) continue;
    Result<Restrictions> made = allowed(*one.found.book, one.found.mesh);
    for (std::size_t i = 0; i < graph.operators.size(); ++i)
      CHECK(made->strategy(static_cast<OperatorId>(i), one.found.assignment.strategies[i]));
  }
}

TEST_CASE("memory that binds is priced in until a plan fits, or none does") {
  const Graph graph = small_llama(6, 8);
  const Cluster cluster = test::cluster({test::level(4, 200, 1)});
  SappOptions options = options_for(cluster);
  const SappResult free = found_by(graph, cluster, options);
  CHECK(free.report.partitions == 1);
  double before = free.found.evaluation.objective.value;
  for (const int percent : {95, 88}) {
    INFO(percent);
    options.search.memory_limit = free.found.evaluation.peak / 100 * percent;
    SappResult result = found_by(graph, cluster, options);
    CHECK(result.found.evaluation.peak <= options.search.memory_limit);
    CHECK(result.report.partitions > 1);
    CHECK(result.found.evaluation.objective.value >= before);
    before = result.found.evaluation.objective.value;
    check_whole(result, graph, cluster);
    CHECK(before >= exact_objective(graph, cluster, options.search));
  }
  options.search.memory_limit = 1000;
  const auto outcome = sapp_search(graph, cluster, options);
  REQUIRE(outcome.has_value());
  const NoPlan& none = std::get<NoPlan>(*outcome);
  CHECK(none.min_memory == 0);  // partitioning proves nothing
  CHECK(none.least_peak > 1000);
  CHECK_FALSE(none.moment.empty());
}

TEST_CASE("the first answer keeps the limit, with less work and no better plan") {
  const Graph graph = small_llama(3, 8);
  const Cluster cluster = test::cluster({test::level(8, 200, 1)});
  SappOptions options = options_for(cluster);
  SappResult free = found_by(graph, cluster, options);
  for (const int percent : {200, 95, 88}) {
    INFO(percent);
    options.search.memory_limit = free.found.evaluation.peak / 100 * percent;
    options.first_answer = false;
    const SappResult full = found_by(graph, cluster, options);
    options.first_answer = true;
    SappResult soon = found_by(graph, cluster, options);
    CHECK(soon.report.solves < full.report.solves);
    CHECK(soon.found.evaluation.peak <= options.search.memory_limit);
    CHECK(soon.found.evaluation.objective >= full.found.evaluation.objective);
    check_whole(soon, graph, cluster);
  }
}

TEST_CASE("a search that is stopped at once still has a plan") {
  const Graph graph = small_llama(3, 8);
  const Cluster cluster = test::cluster({test::level(8, 200, 1)});
  SappOptions options = options_for(cluster);
  options.search.stop = [] { return true; };
  SappResult result = found_by(graph, cluster, options);
  CHECK(result.found.stopped);
  check_whole(result, graph, cluster);
}

TEST_CASE("exact search keeps a plan that it is given where it finds none as cheap") {
  const Graph graph = small_llama(2, 8);
  const Cluster cluster = test::cluster({test::level(8, 200, 1)});
  SappOptions options = options_for(cluster);
  const double exact = exact_objective(graph, cluster, options.search);
  SappResult result = found_by(graph, cluster, options);
  const double objective = result.found.evaluation.objective.value;
  options.search.first = &result.found;
  const auto all = dp_search(graph, cluster, all_meshes(cluster), options.search);
  CHECK(std::get<DpResult>(*all).evaluation.objective.value == exact);
  CHECK(std::get<DpResult>(*all).optimal);

  // on a mesh that is worse
  SappResult again = found_by(graph, cluster, options_for(cluster));
  options.search.first = &again.found;
  RestrictionsOf none = [](PriceBook& book, const MeshShape&) -> Result<Restrictions> {
    Restrictions allowed;
    allowed.strategy = [&book](OperatorId id, const Strategy& strategy) {
      return book.info(id).action(strategy, 0).kind == AxisAction::Kind::kNone;
    };
    return allowed;
  };
  const auto kept = dp_search(graph, cluster, {{{8}, {"d0"}}}, options.search, none);
  const DpResult& found = std::get<DpResult>(*kept);
  CHECK(found.found_by == "sapp");
  CHECK(found.evaluation.objective.value == objective);
  CHECK(found.lower_bound <= objective);
  CHECK(found.book != nullptr);
}

TEST_CASE("heavy operators decide first") {
  const Graph graph = test::build_graph(
      "input x 64 64; weight v 64 16; weight w 16 4096; y = MatMul x v; z = Relu y; u = MatMul z "
      "w; t = Relu u; loss l = ReduceMean t");
  const Cluster cluster = test::cluster({test::level(2, 200, 1)});
  auto book = PriceBook::make(graph, cluster, {2}, {});
  auto problem = PlanProblem::make(**book, {});
  const std::vector<EliminatedOperator> eliminated = simplify(graph, (*book)->flow());
  const std::vector<Follower> followers = followers_in(**problem, eliminated);
  std::vector<std::int64_t> weights(graph.operators.size(), 1);
  const auto cost = [&](int op) {
    const auto id = static_cast<OperatorId>(op);
    Strategy none;
    none.actions.fill(static_cast<std::uint8_t>((*book)->info(id).actions().size() - 1));
    return (*book)->operator_price(id, none).objective.value *
           static_cast<double>(weights[static_cast<std::size_t>(op)]);
  };
  std::vector<int> order = sort_by_weight(**problem, weights, followers);
  REQUIRE(order.size() == (*problem)->variables() - followers.size());
  for (std::size_t i = 0; i + 1 < order.size(); ++i) CHECK(cost(order[i]) >= cost(order[i + 1]));
  CHECK(order.front() != static_cast<int>(index(test::operator_id(graph, "y"))));
  // what stands for many is heavy
  weights[index(test::operator_id(graph, "y"))] = 1000;
  order = sort_by_weight(**problem, weights, followers);
  CHECK(order.front() == static_cast<int>(index(test::operator_id(graph, "y"))));
}

TEST_CASE("equal products decide in their order") {
  const Graph graph = test::build_graph(
      "input x 3000 1000; weight a 1000 4000; weight b 4000 1000; weight c 1000 4000; weight d "
      "4000 "
      "1000; m1 = MatMul x a; m2 = MatMul m1 b; m3 = MatMul m2 c; m4 = MatMul m3 d; loss l = "
      "ReduceMean m4");
  const Cluster cluster = test::cluster({test::level(2, 200, 1)});
  auto book = PriceBook::make(graph, cluster, {2}, {});
  auto problem = PlanProblem::make(**book, {});
  const std::vector<int> order =
      sort_by_weight(**problem, std::vector<std::int64_t>(graph.operators.size(), 1), {});
  REQUIRE(order.size() == 5);
  // m1 has no gradient of its operand to compute
  CHECK(order[4] == static_cast<int>(index(test::operator_id(graph, "l"))));
  CHECK(order[3] == static_cast<int>(index(test::operator_id(graph, "m1"))));
  for (int i = 0; i < 3; ++i)
    CHECK(order[static_cast<std::size_t>(i)] ==
          static_cast<int>(index(test::operator_id(graph, "m" + std::to_string(i + 2)))));
}

/// All choices of a problem in which followers follow, by enumeration.
double least_followed(PlanProblem& problem, const std::vector<Follower>& followers) {
  double least = std::numeric_limits<double>::infinity();
  problem.enumerate([&](const Choice& choice) {
    for (const Follower& follower : followers) {
      if (choice[static_cast<std::size_t>(follower.variable)] !=
          follower
              .value[static_cast<std::size_t>(choice[static_cast<std::size_t>(follower.leader)])])
        return;
    }
    least = std::min(least, problem.measure(problem.decide(choice, {})).objective.value);
  });
  return least;
}

TEST_CASE("a round is the best of all choices in which followers follow") {
  int with_followers = 0;
  int greedy_equal = 0;
  int checked = 0;
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    Random random(seed);
    const Cluster cluster = test::random_cluster(random, 2);
    const PriceOptions prices = test::random_options(random, cluster);
    std::string text =
        test::RandomGraphText(random, {1, 2, 4, 6}).make(static_cast<int>(2 + seed % 3), true);
    const Graph graph = test::build_graph(text, true);
    INFO("seed " << seed << ": " << text);
    auto book = PriceBook::make(graph, cluster, {2}, prices);
    auto problem = PlanProblem::make(**book, {});
    double combinations = 1;
    for (std::size_t i = 0; i < graph.operators.size(); ++i)
      combinations *=
          static_cast<double>((*problem)->strategies(static_cast<OperatorId>(i)).size());
    for (std::size_t v = graph.operators.size(); v < (*problem)->variables(); ++v)
      combinations *= static_cast<double>((*problem)->states_of(static_cast<int>(v)).size());
    if (combinations > 2000) continue;
    const std::vector<Follower> followers =
        followers_in(**problem, simplify(graph, (*book)->flow()));
    with_followers += followers.empty() ? 0 : 1;
    const double least = least_followed(**problem, followers);
    (*problem)->follow(followers);
    const PlanProblem::Solution solution = (*problem)->solve({});
    REQUIRE(solution.exact);
    REQUIRE(solution.priced == least);
    REQUIRE((*problem)->measure((*problem)->decide(solution.choice, {})).objective.value == least);
    const PlanProblem::Solution greedy = (*problem)->descend(
        {},
        sort_by_weight(**problem, std::vector<std::int64_t>(graph.operators.size(), 1), followers));
    REQUIRE((*problem)->measure((*problem)->decide(greedy.choice, {})).objective.value ==
            greedy.priced);
    REQUIRE(greedy.priced >= least);
    greedy_equal += greedy.priced == least ? 1 : 0;
    ++checked;
  }
  CHECK(checked > 60);
  CHECK(with_followers > 10);
  CHECK(greedy_equal > checked / 4);
}

TEST_CASE("one axis without followers is as good as brute force") {
  int equal = 0;
  int checked = 0;
  for (std::uint64_t seed = 500; seed < 540; ++seed) {
    Random random(seed);
    const Cluster cluster = test::random_cluster(random, 3);
    const PriceOptions prices = test::random_options(random, cluster);
    const std::string text =
        test::RandomGraphText(random, {1, 3, 6}).make(static_cast<int>(2 + seed % 2), true);
    const Graph graph = test::build_graph(text, true);
    INFO("seed " << seed << ": " << text);
    auto book = PriceBook::make(graph, cluster, {3}, prices);
    test::BruteForce all(**book);
    if (all.combinations() > 2000 || !all.run(20000, seed)) continue;
    SappOptions options = options_for(cluster);
    options.search.prices = prices;
    const double objective = found_by(graph, cluster, options).found.evaluation.objective.value;
    REQUIRE(objective >= all.least());
    equal += objective == all.least() ? 1 : 0;
    ++checked;
  }
  CHECK(checked > 20);
  CHECK(equal >= checked * 9 / 10);
}

TEST_CASE("what follows needs no move, whatever the leader does") {
  const Graph graph = small_llama(2);
  const Cluster cluster = test::cluster({test::level(4, 200, 1)});
  for (const std::vector<std::int64_t>& mesh :
       {std::vector<std::int64_t>{4}, std::vector<std::int64_t>{2, 2}}) {
    auto book = PriceBook::make(graph, cluster, mesh, {});
    auto problem = PlanProblem::make(**book, {});
    const std::vector<EliminatedOperator> eliminated = simplify(graph, (*book)->flow());
    CHECK(eliminated.size() > 10);
    const std::vector<Follower> followers = followers_in(**problem, eliminated);
    CHECK(followers.size() > 10);
    for (const Follower& follower : followers) {
      const auto id = static_cast<OperatorId>(follower.variable);
      const Operator& op = graph.op(id);
      const auto leader = static_cast<OperatorId>(follower.leader);
      const auto of = std::find_if(
          eliminated.begin(), eliminated.end(), [&](const auto& one) { return one.op == id; });
      REQUIRE(of != eliminated.end());
      for (std::size_t value = 0; value < follower.value.size(); ++value) {
        const Strategy& strategy =
            (*problem)->strategies(id)[static_cast<std::size_t>(follower.value[value])];
        const TensorState leads =
            (*book)->result_state(leader, (*problem)->strategies(leader)[value], 0);
        if (of->leader != leader) continue;
        CHECK(state_after(of->map, leads) == (*book)->result_state(id, strategy, 0));
        if (graph.tensor(*op.inputs[0]).producer == leader)
          CHECK((*book)->operand_state(id, strategy, 0) == leads);
      }
    }
    CHECK(eliminated_types(graph, eliminated).contains("Transpose"));
  }
}

TEST_CASE("a chain and a diamond of additions: operators of two operands stay") {
  const Graph graph = test::build_graph(
      "input x 4 8; a0 = Relu x; a1 = Relu a0; b = Relu a1; c = Add a1 b; d = Relu c; loss l = "
      "ReduceMean d");
  const std::vector<EliminatedOperator> eliminated = simplify(graph, DataFlow(graph));
  std::vector<std::string> names;
  for (const EliminatedOperator& one : eliminated) {
    names.push_back(graph.op(one.op).name + " after " + graph.op(one.leader).name);
    CHECK(one.map == DimensionMap{2, {{0}, {1}}});
  }
  // a1 has two readers, so b decides; d may have to add up what c passes on
  CHECK(names == std::vector<std::string>{"a1 after a0"});
}

TEST_CASE("a short graph stands for the whole one") {
  for (const bool tied : {false, true}) {
    const Graph graph = small_llama(20, 8, tied);
    const ShortGraph shortened = shorten(graph, {});
    REQUIRE(shortened.shortened);
    const std::size_t whole = graph.operators.size();
    CHECK(shortened.graph.operators.size() < whole / 3);
    std::int64_t stands_for = 0;
    for (const std::int64_t weight : shortened.weights) stands_for += weight;
    CHECK(stands_for == static_cast<std::int64_t>(whole));
    REQUIRE(shortened.operators.size() == whole);
    for (std::size_t i = 0; i < whole; ++i)
      CHECK(shortened.graph.op(shortened.operators[i]).rule == graph.operators[i].rule);

    const Cluster cluster = test::cluster({test::level(4, 200, 1)});
    auto whole_book = PriceBook::make(graph, cluster, {2, 2}, {});
    auto short_book = PriceBook::make(shortened.graph, cluster, {2, 2}, {});
    auto problem = PlanProblem::make(**short_book, {});
    (*problem)->weigh(shortened.weights);
    const PlanProblem::Solution solution = (*problem)->solve({});
    const Decision decision = (*problem)->decide(solution.choice, {});
    const PlanProblem::Measured measured = (*problem)->measure(decision);
    CHECK(measured.objective.value == solution.priced);
    const Assignment assignment =
        expanded(shortened, **whole_book, **short_book, (*problem)->assignment(decision));
    const Evaluation evaluation = evaluate(**whole_book, assignment);
    CHECK(evaluation.objective == measured.objective);
    auto exact = PlanProblem::make(**whole_book, {});
    CHECK(evaluation.objective.value == (*exact)->solve({}).priced);
    CHECK(std::abs(static_cast<double>(evaluation.peak - measured.peak)) <
          0.02 * static_cast<double>(evaluation.peak));
  }
  const Graph few = small_llama(3);
  const ShortGraph same = shorten(few, {});
  CHECK_FALSE(same.shortened);
  CHECK(same.graph.operators.size() == few.operators.size());
}

TEST_CASE("layers that are recomputed stay so when they are left out") {
  const Graph graph = small_llama(12, 8);
  auto recomputation = find_recomputation(graph, RecomputeOption::kFull);
  REQUIRE(recomputation.has_value());
  const ShortGraph shortened = shorten(graph, *recomputation);
  REQUIRE(shortened.shortened);
  const Cluster cluster = test::cluster({test::level(4, 200, 1)});
  SappOptions options = options_for(cluster);
  options.search.prices.recomputation = *recomputation;
  SappResult result = found_by(graph, cluster, options);
  const double exact = exact_objective(graph, cluster, options.search);
  CHECK(result.found.evaluation.objective.value >= exact);
  CHECK(result.found.evaluation.objective.value <= 1.15 * exact);
}

/// MindSpore's cases of recursive partitioning that our operators have, as graphs of ours.
struct Case {
  const char* name;
  const char* graph;
  std::int64_t devices;
  bool training;
};

TEST_CASE("cases of the reference have plans") {
  const char* const products =
      "input x 3000 1000; weight a 1000 4000; weight b 4000 1000; weight c 1000 4000; weight d "
      "4000 "
      "1000; m1 = MatMul x a; m2 = MatMul m1 b; m3 = MatMul m2 c; m4 = MatMul m3 d; ";
  const std::string trained = std::string(products) + "loss l = ReduceMean m4";
  for (const Case& one : {
           Case{"ms-216", trained.c_str(), 1024, true},
           Case{"ms-217", trained.c_str(), 2, true},
           Case{
               "ms-281",
               "input x fp32 128 96; input y fp32 128 96; e = Mul x y; r = Reshape e shape=64,192; "
               "c = Cast r to=bf16; u = Relu c; l = ReduceMean u",
               8,
               false},
           Case{"ms-334",
                "input x fp32 64 64; input i int32 64 64; input y fp32 2048 64; g = Gather x i "
                "axis=0; r = Reshape g shape=128,2048; m = MatMul r y",
                8,
                false},
           Case{"ms-335",
                "input x fp32 1024 128; input i int32 2 1024; input y fp32 2048 64; g = Gather x i "
                "axis=0; r = Reshape g shape=128,2048; m = MatMul r y",
                8,
                false},
           Case{"ms-339",
                "input x fp32 32 64; a = Reshape x shape=256,8; b = Reshape a shape=256,8",
                8,
                false},
           Case{"ms-341",
                "input x 120; input y 120 1; r = Reshape x shape=120,1; m = Mul y r",
                8,
                false},
           Case{"ms-212",
                "input x 4 8; a3 = Add x x; a1 = Add a3 x; a2 = Add a3 a1; a0 = Add a1 a2",
                4,
                false},
       }) {
    INFO(one.name);
    const Graph graph = test::build_graph(one.graph, one.training);
    const Cluster cluster =
        test::cluster({test::level(std::min<std::int64_t>(one.devices, 8), 200, 1),
                       test::level(std::max<std::int64_t>(one.devices / 8, 1), 20, 5)});
    SappResult result = found_by(graph, cluster, options_for(cluster));
    check_whole(result, graph, cluster, one.devices <= 8);
  }
}

TEST_CASE("a gather of four entries is cut by its index, however many devices there are") {
  // ms-336: four of eight devices are used, the table stays whole
  const Graph graph =
      test::build_graph("input x fp32 128; input i int32 4; g = Gather x i axis=0", false);
  const Cluster cluster = test::cluster({test::level(8, 200, 1)});
  for (const SappRounds rounds : {SappRounds::kExact, SappRounds::kGreedy}) {
    SappOptions options = options_for(cluster);
    options.rounds = rounds;
    SappResult result = found_by(graph, cluster, options);
    PriceBook& book = *result.found.book;
    const Strategy& strategy = result.found.assignment.strategies[0];
    std::int64_t ways = 1;
    for (int axis = 0; axis < book.mesh_axes(); ++axis) {
      CHECK_FALSE(is_sharded(book.operand_state(OperatorId{}, strategy, 0)[axis]));
      if (book.operand_state(OperatorId{}, strategy, 1)[axis] == 0)
        ways *= book.mesh_shape()[static_cast<std::size_t>(axis)];
    }
    CHECK(ways == 4);
  }
}

TEST_CASE("what a slice cuts a part from is not split") {
  // ms-338: of 256 rows the first 128 are taken
  const Graph graph = test::build_graph(
      "weight w fp32 256 64 32; input x fp32 128 128; s = Slice w axes=0 starts=0 ends=128; r = "
      "Reshape s shape=128,2048; m = MatMul x r",
      false);
  const Cluster cluster = test::cluster({test::level(8, 200, 1)});
  SappResult result = found_by(graph, cluster, options_for(cluster));
  const TensorState state =
      result.found.book->operand_state(OperatorId{}, result.found.assignment.strategies[0], 0);
  for (int axis = 0; axis < result.found.book->mesh_axes(); ++axis) CHECK(state[axis] != 0);
  check_whole(result, graph, cluster);
}

TEST_CASE("a lone product cuts its longest factor in every round") {
  for (const char* text : {"input x 160 320; weight w 320 320000; y = MatMul x w",
                           "input x 8 320; weight w 320 409600; y = MatMul x w"}) {
    INFO(text);
    const Graph graph = test::build_graph(text, false);
    const Cluster cluster = test::cluster({test::level(8, 200, 1)});
    SappResult result = found_by(graph, cluster, options_for(cluster));
    const TensorState state =
        result.found.book->operand_state(OperatorId{}, result.found.assignment.strategies[0], 1);
    for (int axis = 0; axis < result.found.book->mesh_axes(); ++axis) CHECK(state[axis] == 1);
  }
}

}  // namespace
}  // namespace meshplan::sapp_search_test

// SPDX-License-Identifier: Apache-2.0
// What comes out on decoder models: data parallelism, the column-then-row pattern, sharded states,
// sequence-sharded norms. Nothing in the search knows any of these.
#include <algorithm>
#include <limits>
#include <map>

#include "apps/constraints_reader.h"
#include "search/constraint_restrictions.h"
#include "search/dimension_roles.h"
#include "search/dp_search.h"
#include "support/models.h"

namespace meshplan::choices_test {
namespace {

using test::LlamaSizes;

constexpr Bytes kUnlimited = std::numeric_limits<Bytes>::max();

/// A plan with the questions that the tests ask about it.
class Found {
 public:
  Found(const Graph& graph,
        const Cluster& cluster,
        const std::vector<std::int64_t>& mesh,
        Bytes limit = kUnlimited,
        const RestrictionsOf& restrictions = {})
      : graph_(graph) {
    MeshShape shape{mesh, {}};
    for (std::size_t axis = 0; axis < mesh.size(); ++axis)
      shape.axes.push_back("d" + std::to_string(axis));
    DpOptions options;
    options.prices.overlap = cluster.efficiency.overlap;
    options.memory_limit = limit;
    auto outcome = dp_search(graph, cluster, {shape}, options, restrictions);
    if (!outcome) FAIL(to_string(outcome.error()));
    REQUIRE(std::holds_alternative<DpResult>(*outcome));
    result_ = std::get<DpResult>(std::move(*outcome));
  }

  const DpResult& result() const { return result_; }
  PriceBook& book() const { return *result_.book; }

  std::string label(const std::string& name) const {
    const OperatorId op = operator_named(name);
    return book().info(op).label(result_.assignment.strategies[index(op)]);
  }
  const AxisAction& action(OperatorId op, int axis) const {
    return book().info(op).action(result_.assignment.strategies[index(op)], axis);
  }
  OperatorId operator_named(const std::string& name) const {
    for (std::size_t i = 0; i < graph_.operators.size(); ++i) {
      if (graph_.operators[i].name == name) return static_cast<OperatorId>(i);
    }
    FAIL("no operator " << name);
    return OperatorId{};
  }

  /// "1 all_gather, 1 reduce_scatter": the collectives over the axis on all tensors whose name
  /// begins with one of `prefixes`.
  std::string collectives(const std::vector<std::string>& prefixes, bool backward, int axis) const {
    std::map<std::string, int> counts;
    const DataFlow& flow = book().flow();
    for (const Transfer& transfer : flow.transfers()) {
      const TensorId tensor = flow.values()[static_cast<std::size_t>(transfer.from)].tensor;
      const std::string& name = graph_.tensor(tensor).name;
      const bool named = std::any_of(prefixes.begin(), prefixes.end(), [&](const auto& prefix) {
        return name.substr(0, prefix.size()) == prefix;
      });
      if (!named) continue;
      const TensorState from = value_state(book(), result_.assignment, transfer.from);
      const TensorState to = far_state(book(), result_.assignment, transfer);
      const Redistribution* moves = backward ? book().gradient_steps(tensor, from, to)
                                             : book().forward_steps(tensor, from, to);
      if (moves == nullptr) continue;
      for (const RedistributionStep& step : moves->steps) {
        if ((step.axes >> axis & 1) != 0) ++counts[collective_name(step.collective)];
      }
    }
    std::string text;
    for (const auto& [name, count] : counts)
      text += (text.empty() ? "" : ", ") + std::to_string(count) + " " + name;
    return text;
  }

  /// Every operator that has the batch shards it over the axis.
  void check_data_parallel(int axis) const {
    const auto batch = follow_dimension(graph_, 0);
    int products = 0;
    for (std::size_t i = 0; i < graph_.operators.size(); ++i) {
      if (!batch[i]) continue;
      INFO(graph_.operators[i].name);
      const AxisAction& chosen = action(static_cast<OperatorId>(i), axis);
      CHECK(chosen.kind == AxisAction::Kind::kFactor);
      CHECK(chosen.factor == *batch[i]);
      if (graph_.operators[i].rule->family == OperatorFamily::kMatMul) ++products;
    }
    CHECK(products > 0);
  }

  /// Every decoder layer: weights cut by columns, then by rows.
  void check_column_then_row(int layers) const {
    for (int i = 0; i < layers; ++i) {
      const std::string layer = "model.layers." + std::to_string(i) + ".";
      INFO(layer);
      for (const char* name : {"self_attn.q_proj",
                               "self_attn.k_proj",
                               "self_attn.v_proj",
                               "mlp.gate_proj",
                               "mlp.up_proj"})
        CHECK(label(layer + name) == "n");
      for (const char* name : {"self_attn.o_proj", "mlp.down_proj"})
        CHECK(label(layer + name) == "k");
      CHECK(label(layer + "self_attn.attention") == "g");
    }
  }

  /// The collectives of the two blocks of a layer, forward and backward; nothing else in the layer.
  std::vector<std::string> block_collectives(int layer, int axis = 0) const {
    const std::string prefix = "model.layers." + std::to_string(layer) + ".";
    std::vector<std::string> list;
    for (const std::vector<std::string>& block :
         {std::vector<std::string>{prefix + "input_layernorm", prefix + "self_attn."},
          std::vector<std::string>{prefix + "post_attention_layernorm", prefix + "mlp."}}) {
      for (const bool backward : {false, true}) list.push_back(collectives(block, backward, axis));
    }
    for (const bool backward : {false, true}) {
      CHECK(collectives({prefix + "attention_residual", prefix + "mlp_residual"}, backward, axis) ==
            "");
    }
    return list;
  }

 private:
  const Graph& graph_;
  DpResult result_;
};

const std::vector<std::string> kAllReduces(4, "1 all_reduce");
const std::vector<std::string> kHalves(4, "1 all_gather, 1 reduce_scatter");

/// Weights of 1.6 GB per layer.
const LlamaSizes kLarge{8192, 28672, 64, 64, 3, 32000};

/// Every product with a weight shards the weight over this axis: tensor parallelism is given.
RestrictionsOf tensor_parallel(const Graph& graph, int axis) {
  return [&graph, axis](PriceBook& book, const MeshShape&) -> Result<Restrictions> {
    Restrictions restrictions;
    restrictions.strategy = [&graph, &book, axis](OperatorId id, const Strategy& strategy) {
      const Operator& op = graph.op(id);
      const bool weight = op.rule->family == OperatorFamily::kMatMul &&
                          std::any_of(op.inputs.begin(), op.inputs.end(), [&](const auto& input) {
                            return input && graph.tensor(*input).role == Role::kParameter;
                          });
      return !weight || shards_parameter(graph, op, book.info(id).action(strategy, axis));
    };
    return restrictions;
  };
}

TEST_CASE("a large batch through small weights comes out data parallel") {
  const Graph graph = test::llama_graph(test::llama_config({512, 1376, 8, 8, 2, 2000}), 512, 512);
  const Cluster cluster = test::shipped_cluster("dgx-a100-80g", 8);
  Found(graph, cluster, {8}).check_data_parallel(0);
  const Cluster two_nodes = test::shipped_cluster("dgx-a100-80g", 16);
  const Found on_two(graph, two_nodes, {2, 8});
  on_two.check_data_parallel(0);
  on_two.check_data_parallel(1);
}

TEST_CASE("a small batch through large weights comes out column-then-row") {
  const Cluster cluster = test::shipped_cluster("dgx-a100-80g", 8);
  SECTION("few tokens: latency counts, so one all-reduce each way") {
    const Graph graph = test::llama_graph(test::llama_config(kLarge), 1, 16);
    const Found found(graph, cluster, {8});
    found.check_column_then_row(3);
    CHECK(found.block_collectives(1) == kAllReduces);
  }
  SECTION("more tokens: its two halves around sharded norms") {
    const Graph graph = test::llama_graph(test::llama_config(kLarge), 1, 512);
    const Found found(graph, cluster, {8});
    found.check_column_then_row(3);
    CHECK(found.block_collectives(1) == kHalves);
    CHECK(found.label("model.layers.1.input_layernorm") == "x1");
  }
}

TEST_CASE("constraints that hold a block's ends replicated leave one all-reduce each way") {
  const Cluster cluster = test::shipped_cluster("dgx-a100-80g", 8);
  // without constraints this comes out as two halves
  const Graph graph = test::llama_graph(test::llama_config(kLarge), 1, 128);
  const auto constraints = parse_constraints(R"({
    "schema": "meshplan.constraints/1.0",
    "mesh": {"shape": [8], "axes": ["d0"]},
    "scopes": {
      "model.layers.*.self_attn": {"input": ["R"], "output": ["R"]},
      "model.layers.*.mlp": {"input": ["R"], "output": ["R"]}
    }})",
                                             "c.json");
  if (!constraints) FAIL(to_string(constraints.error()));
  const Found found(graph,
                    cluster,
                    {8},
                    kUnlimited,
                    [&](PriceBook& book, const MeshShape& shape) -> Result<Restrictions> {
                      const auto mesh = DeviceMesh::make(shape.shape, shape.axes);
                      REQUIRE(mesh.has_value());
                      const auto bound = bind_constraints(*constraints, graph, *mesh);
                      if (!bound) FAIL(to_string(bound.error()));
                      return restrictions_from(*bound, book);
                    });
  found.check_column_then_row(3);
  for (int layer = 0; layer < 3; ++layer) CHECK(found.block_collectives(layer) == kAllReduces);
}

TEST_CASE("a model whose states do not fit replicated comes out with sharded states") {
  // 6.7e9 parameters x 18 bytes = 121 GB
  const Graph graph = test::llama_graph(test::shipped_config("llama2_7b"), 16, 1024);
  double parameters = 0;
  for (const Tensor& tensor : graph.tensors) {
    if (tensor.role == Role::kParameter)
      parameters += static_cast<double>(element_count(tensor.shape));
  }
  CHECK(parameters == 6738415616.0);
  for (const char* machine : {"dgx-a100-40g", "dgx-a100-80g"}) {
    INFO(machine);
    const Cluster cluster = test::shipped_cluster(machine, 8);
    const Found found(graph, cluster, {8}, cluster.usable_memory());
    const Evaluation& evaluation = found.result().evaluation;
    CHECK(evaluation.peak <= cluster.usable_memory());
    double states = 0;  // at rest; moments and master are all of `optimizer`
    for (const MemoryKind kind :
         {MemoryKind::kParameters, MemoryKind::kGradients, MemoryKind::kOptimizer})
      states += static_cast<double>(evaluation.at_peak[static_cast<std::size_t>(kind)]);
    CHECK(states < 18 * parameters / 2);
    CHECK(states >= 18 * parameters / 8 * 0.999);
    // the optimizer's share is cut completely: it is the largest and the cheapest to cut
    CHECK(
        static_cast<double>(evaluation.at_peak[static_cast<std::size_t>(MemoryKind::kOptimizer)]) ==
        Approx(12 * parameters / 8).epsilon(0.001));
    CHECK(found.result().lower_bound >= evaluation.objective.value * 0.995);
  }
  // on one device of each node there is nothing to cut, and nothing fits
  const Cluster single = test::shipped_cluster("dgx-a100-80g", 1);
  DpOptions options;
  options.prices.overlap = single.efficiency.overlap;
  options.memory_limit = single.usable_memory();
  const auto outcome = dp_search(graph, single, {{{1}, {"d0"}}}, options);
  REQUIRE(outcome.has_value());
  REQUIRE(std::holds_alternative<NoPlan>(*outcome));
  CHECK(static_cast<double>(std::get<NoPlan>(*outcome).min_memory) > 18 * parameters);
}

TEST_CASE("70 billion parameters fit 8, 16 and 64 nodes by what each has room for") {
  const auto kParameters = static_cast<std::size_t>(MemoryKind::kParameters);
  const auto kOptimizer = static_cast<std::size_t>(MemoryKind::kOptimizer);
  const double parameters = 68976648192.0;
  double kept_before = 0;  // copies of parameters as a share of all, on fewer nodes
  for (const std::int64_t nodes : {8, 16, 64}) {
    INFO(nodes << " nodes");
    // two sequences per node: more devices than sequences, so that tensors are cut as well
    const Graph graph = test::llama_graph(test::shipped_config("llama2_70b"), 2 * nodes, 4096);
    const Cluster cluster = test::shipped_cluster("dgx-a100-80g", 8 * nodes);
    const Bytes limit = cluster.usable_memory();
    const Found found(graph, cluster, {nodes, 8}, limit);
    const Evaluation& evaluation = found.result().evaluation;
    CHECK(evaluation.peak <= limit);
    CHECK(found.result().lower_bound >= evaluation.objective.value * 0.995);
    // the optimizer's states are cut over everything
    const double states = 12 * parameters / static_cast<double>(8 * nodes);
    CHECK(static_cast<double>(evaluation.at_peak[kOptimizer]) == Approx(states).epsilon(0.01));
    // what is held of the parameters grows with the room that the states leave
    const double kept = static_cast<double>(evaluation.at_peak[kParameters]) / (2 * parameters);
    CHECK(kept >= kept_before);
    CHECK(kept >= 1.0 / static_cast<double>(8 * nodes));
    kept_before = kept;
  }
  // one node is too small for the states alone, which the certificate says
  const Graph graph = test::llama_graph(test::shipped_config("llama2_70b"), 2, 4096);
  const Cluster node = test::shipped_cluster("dgx-a100-80g", 8);
  DpOptions options;
  options.prices.overlap = node.efficiency.overlap;
  options.memory_limit = node.usable_memory();
  const auto outcome = dp_search(graph, node, {{{2, 4}, {"d0", "d1"}}}, options);
  REQUIRE(outcome.has_value());
  REQUIRE(std::holds_alternative<NoPlan>(*outcome));
  CHECK(static_cast<double>(std::get<NoPlan>(*outcome).min_memory) > 16 * parameters / 8);
}

TEST_CASE(
    "copies of parameters are kept where there is room and gathered again where there is not") {
  const Graph graph = test::llama_graph(test::shipped_config("llama2_7b"), 8, 2048);
  const Cluster cluster = test::shipped_cluster("dgx-a100-80g", 8);
  const auto kParameters = static_cast<std::size_t>(MemoryKind::kParameters);
  const Found free(graph, cluster, {8});
  const Bytes peak = free.result().evaluation.peak;
  const Found tight(graph, cluster, {8}, peak - peak / 8);
  CHECK(tight.result().evaluation.at_peak[kParameters] <
        free.result().evaluation.at_peak[kParameters]);
  CHECK(tight.result().evaluation.objective > free.result().evaluation.objective);
  CHECK(tight.result().evaluation.peak <= peak - peak / 8);
}

TEST_CASE("one axis of tensor parallelism and a long sequence shard the norms by the sequence") {
  const Cluster cluster = test::shipped_cluster("dgx-a100-80g", 8);
  SECTION("batch 1: the sequence is all there is to cut") {
    const Graph graph = test::llama_graph(test::shipped_config("llama2_7b"), 1, 16384, 3);
    const Found found(graph, cluster, {8}, kUnlimited, tensor_parallel(graph, 0));
    found.check_column_then_row(3);
    for (int layer = 0; layer < 3; ++layer) {
      const std::string prefix = "model.layers." + std::to_string(layer) + ".";
      for (const char* name :
           {"input_layernorm", "attention_residual", "post_attention_layernorm", "mlp_residual"})
        CHECK(found.label(prefix + name) == "x1");
    }
    // two all-gathers and two reduce-scatters per layer forward, and backward
    CHECK(found.block_collectives(1) == kHalves);
  }
  SECTION("a batch that the axis divides: cutting it costs the same") {
    const Graph graph = test::llama_graph(test::shipped_config("llama2_7b"), 8, 2048, 2);
    const auto norms_along = [&](std::size_t dimension) -> RestrictionsOf {
      return [&graph, dimension](PriceBook& book, const MeshShape& shape) -> Result<Restrictions> {
        auto restrictions = tensor_parallel(graph, 0)(book, shape);
        const auto weights = restrictions->strategy;
        const auto followed = follow_dimension(graph, dimension);
        restrictions->strategy = [weights, followed, &graph, &book](OperatorId id,
                                                                    const Strategy& strategy) {
          if (!weights(id, strategy)) return false;
          if (graph.op(id).rule->family != OperatorFamily::kNormalization) return true;
          return book.info(id).action(strategy, 0).factor == *followed[index(id)];
        };
        return restrictions;
      };
    };
    const Found by_batch(graph, cluster, {8}, kUnlimited, norms_along(0));
    CHECK(by_batch.block_collectives(1) == kHalves);
    const Found by_sequence(graph, cluster, {8}, kUnlimited, norms_along(1));
    CHECK(by_sequence.block_collectives(1) == kHalves);
    CHECK(by_sequence.result().evaluation.objective == by_batch.result().evaluation.objective);
    // left free, the search may also cut the norms' width, whose statistics are small
    const Found free(graph, cluster, {8}, kUnlimited, tensor_parallel(graph, 0));
    CHECK(free.block_collectives(1) == kHalves);
    CHECK(free.result().evaluation.objective <= by_batch.result().evaluation.objective);
  }
}

TEST_CASE("without a given axis, a long sequence through small weights keeps the weights whole") {
  // weights of 400 MB per layer, activations of 134 MB per tensor: the exchange of keys and values
  // is cheaper than gathering activations
  const Cluster cluster = test::shipped_cluster("dgx-a100-80g", 8);
  const Graph graph = test::llama_graph(test::shipped_config("llama2_7b"), 1, 16384, 2);
  const Found found(graph, cluster, {8});
  CHECK(found.label("model.layers.1.self_attn.attention") == "s=t");
  CHECK(found.label("model.layers.1.mlp.down_proj") == "m");
  CHECK(found.block_collectives(1) == std::vector<std::string>(4, ""));
  const Found given(graph, cluster, {8}, kUnlimited, tensor_parallel(graph, 0));
  CHECK(found.result().evaluation.objective < given.result().evaluation.objective);
}

}  // namespace
}  // namespace meshplan::choices_test

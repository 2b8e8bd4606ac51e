// SPDX-License-Identifier: Apache-2.0
// What one layer of a GPT keeps for its backward, against the terms that Korthikanti et al.
// ("Reducing Activation Recomputation in Large Transformer Models", 2022) count by hand: 16-bit
// activations, one-byte dropout masks, attention out of products, Softmax and Dropout. Nothing here
// knows their formulas; the bytes are the difference of two depths when the backward begins.
#include <algorithm>
#include <string>

#include "cost_model/test_clusters.h"
#include "search/baselines.h"
#include "search/plan_problem.h"
#include "support/graph_builder.h"

namespace meshplan {
namespace {

constexpr std::int64_t kSequence = 512;
constexpr std::int64_t kBatch = 4;
constexpr std::int64_t kWidth = 1024;
constexpr std::int64_t kHeads = 16;
constexpr double kSbh = static_cast<double>(kSequence * kBatch * kWidth);
constexpr double kScores = static_cast<double>(kHeads * kSequence) / kWidth;  // as / h

class GptGraph {
 public:
  explicit GptGraph(int layers) {
    document_.file = "gpt.json";
    document_.name = "gpt";
    declare("ids", Role::kInput, {kBatch, kSequence}, DType::kInt64);
    declare("labels", Role::kInput, {kBatch, kSequence}, DType::kInt64);
    declare("scale", Role::kConstant, {1}, DType::kFp16);
    apply("x", "Gather", {weight("table", {1024, kWidth}), "ids"}, {{"axis", "0"}});
    std::string x = "x";
    for (int l = 0; l < layers; ++l) x = layer(l, x);
    scope_.clear();
    apply("logits", "MatMul", {x, weight("head", {kWidth, 1024})});
    declare("loss", Role::kLoss, {}, DType::kFp16);
    document_.tensors.back().shape.reset();
    apply("loss", "SoftmaxCrossEntropyLoss", {"logits", "labels"}, {{"axis", "-1"}});
  }

  Graph build() const {
    Result<Graph> graph = resolve(document_, {});
    if (!graph) FAIL(to_string(graph.error()));
    return *std::move(graph);
  }

 private:
  using Attributes = std::vector<std::pair<std::string, std::string>>;

  void declare(const std::string& name, Role role, const Shape& shape, DType dtype) {
    TensorDocument tensor;
    tensor.name = name;
    tensor.role = role;
    tensor.trainable = role == Role::kParameter;
    tensor.dtype = dtype;
    tensor.shape.emplace();
    for (const std::int64_t size : shape) tensor.shape->push_back(Size(size));
    document_.tensors.push_back(std::move(tensor));
  }
  std::string weight(const std::string& name, const Shape& shape) {
    declare(prefix_ + name, Role::kParameter, shape, DType::kFp16);
    return prefix_ + name;
  }
  std::string apply(const std::string& name,
                    const std::string& type,
                    const std::vector<std::string>& inputs,
                    const Attributes& attributes = {}) {
    OperatorDocument op;
    op.name = prefix_ + name;
    op.type = type;
    op.scope = scope_;
    op.inputs = inputs;
    op.outputs = {op.name};
    if (type == "Dropout") op.outputs.push_back(op.name + ".mask");
    for (const auto& [key, text] : attributes)
      op.attributes.emplace(key, test::attribute_value(key, text));
    document_.operators.push_back(op);
    return op.outputs[0];
  }
  std::string linear(const std::string& name,
                     const std::string& x,
                     std::int64_t in,
                     std::int64_t out) {
    const std::string y = apply(name, "MatMul", {x, weight("w_" + name, {in, out})});
    return apply(name + "_bias", "Add", {y, weight("b_" + name, {out})});
  }
  std::string norm(const std::string& name, const std::string& x) {
    return apply(name,
                 "LayerNormalization",
                 {x, weight("g_" + name, {kWidth}), weight("o_" + name, {kWidth})},
                 {{"axis", "-1"}});
  }

  std::string layer(int number, const std::string& x) {
    scope_ = "layers." + std::to_string(number);
    prefix_ = scope_ + ".";
    const std::string layer_scope = scope_;
    const std::string heads = std::to_string(kBatch) + "," + std::to_string(kSequence) + "," +
                              std::to_string(kHeads) + "," + std::to_string(kWidth / kHeads);
    const std::string h = norm("norm1", x);
    std::vector<std::string> qkv;
    for (const std::string name : {"q", "k", "v"}) {
      const std::string y = linear(name, h, kWidth, kWidth);
      const std::string split = apply(name + "_heads", "Reshape", {y}, {{"shape", heads}});
      qkv.push_back(apply(
          name + "_turned", "Transpose", {split}, {{"perm", name == "k" ? "0,2,3,1" : "0,2,1,3"}}));
    }
    scope_ = layer_scope + ".core";
    std::string core = apply("scores", "MatMul", {qkv[0], qkv[1]});
    core = apply("scaled", "Mul", {core, "scale"});
    core = apply("softmax", "Softmax", {core}, {{"axis", "-1"}});
    core = apply("attention_dropout", "Dropout", {core});
    core = apply("context", "MatMul", {core, qkv[2]});
    scope_ = layer_scope;
    core = apply("context_turned", "Transpose", {core}, {{"perm", "0,2,1,3"}});
    core = apply("merged",
                 "Reshape",
                 {core},
                 {{"shape",
                   std::to_string(kBatch) + "," + std::to_string(kSequence) + "," +
                       std::to_string(kWidth)}});
    std::string y = apply("dropout1", "Dropout", {linear("proj", core, kWidth, kWidth)});
    const std::string middle = apply("add1", "Add", {x, y});
    y = linear("fc1", norm("norm2", middle), kWidth, 4 * kWidth);
    y = linear("fc2", apply("gelu", "Gelu", {y}), 4 * kWidth, kWidth);
    y = apply("dropout2", "Dropout", {y});
    const std::string end = apply("add2", "Add", {middle, y});
    prefix_.clear();
    return end;
  }

  GraphDocument document_;
  std::string prefix_;
  std::string scope_;
};

enum class Way { kNone, kCore, kFull };

Recomputation recomputation(const Graph& graph, Way way) {
  RecomputeScopes scopes;
  if (way == Way::kCore) {
    for (const Operator& op : graph.operators) {
      const bool core = op.scope.size() > 5 && op.scope.substr(op.scope.size() - 5) == ".core";
      scopes.recompute.push_back(core ? std::optional(true) : std::nullopt);
      scopes.scope.push_back(op.scope);
    }
  }
  auto made = find_recomputation(
      graph, way == Way::kFull ? RecomputeOption::kFull : RecomputeOption::kNone, scopes);
  REQUIRE(made.has_value());
  return *std::move(made);
}

/// Bytes of activations when the backward begins, of the plan that keeps least within the pattern.
Bytes kept(int layers, std::int64_t devices, const TextbookPlan& pattern, Way way) {
  const Graph graph = GptGraph(layers).build();
  const Cluster cluster = test::cluster({test::level(devices, 100, 1)});
  PriceOptions options;
  options.recomputation = recomputation(graph, way);
  auto book = PriceBook::make(graph, cluster, {devices}, options);
  REQUIRE(book.has_value());
  const bool sequence = pattern.axes[0] == AxisRole::kTensorSequence;
  Restrictions restrictions = restrict_to(pattern, **book);
  const auto given = restrictions.strategy;
  // dropout and bias after a block belong to what lies between the blocks
  restrictions.strategy = [&](OperatorId id, const Strategy& strategy) {
    const std::string& name = graph.op(id).name;
    const bool between =
        devices > 1 &&
        (name.find("dropout1") != std::string::npos || name.find("dropout2") != std::string::npos ||
         name.find("proj_bias") != std::string::npos || name.find("fc2_bias") != std::string::npos);
    if (devices > 1 && graph.op(id).type == "MatMul" && name.find("fc1") != std::string::npos &&
        is_sharded((*book)->operand_state(id, strategy, 1)[0]) &&
        (*book)->operand_state(id, strategy, 1)[0] != 1) {
      return false;  // by columns
    }
    if (!between) return given(id, strategy);
    const TensorState state = (*book)->info(id).result_state(strategy, 0);
    return state[0] == (sequence ? AxisState{1} : kReplicatedState);
  };
  // what lies between blocks has several readers; the planner would keep a shard of it, and gather
  // it again
  restrictions.value = [&](TensorId, const TensorState& state) {
    return sequence || devices == 1 || !is_sharded(state[0]);
  };
  auto problem = PlanProblem::make(**book, restrictions);
  if (!problem) FAIL(problem.error().message);
  const int moment =
      (*book)->flow().timeline().backward(static_cast<OperatorId>(graph.operators.size() - 1));
  const MemoryPrices bytes{{{moment, 1.0}}, true};
  const PlanProblem::Solution solution = (*problem)->solve(bytes);
  REQUIRE(solution.feasible);
  const Evaluation found =
      evaluate(**book, (*problem)->assignment({solution.choice, bytes, bytes}));
  Bytes always = 0;
  for (const MemoryKind kind :
       {MemoryKind::kParameters, MemoryKind::kGradients, MemoryKind::kOptimizer})
    always += found.at_peak[static_cast<std::size_t>(kind)];
  return found.profile[static_cast<std::size_t>(moment)] - always;
}

double per_layer(std::int64_t devices, AxisRole role, Way way) {
  const TextbookPlan pattern{{role}, ParameterAction::kNone};
  return static_cast<double>(kept(3, devices, pattern, way) - kept(2, devices, pattern, way));
}

TEST_CASE("a layer keeps for its backward what is counted by hand") {
  CHECK(per_layer(1, AxisRole::kTensor, Way::kNone) == kSbh * (34 + 5 * kScores));
  CHECK(per_layer(1, AxisRole::kTensor, Way::kCore) == kSbh * 34);
  CHECK(per_layer(1, AxisRole::kTensor, Way::kFull) == kSbh * 2);
}

TEST_CASE("tensor parallel layers keep what is counted by hand") {
  for (const std::int64_t t : {2, 4}) {
    const auto n = static_cast<double>(t);
    INFO(t << " devices");
    CHECK(per_layer(t, AxisRole::kTensor, Way::kNone) == kSbh * (10 + 24 / n + 5 * kScores / n));
    CHECK(per_layer(t, AxisRole::kTensor, Way::kCore) == kSbh * (10 + 24 / n));
    CHECK(per_layer(t, AxisRole::kTensor, Way::kFull) == kSbh * 2);
  }
}

TEST_CASE("layers that are sequence parallel between blocks keep what is counted by hand") {
  for (const std::int64_t t : {2, 4}) {
    const auto n = static_cast<double>(t);
    INFO(t << " devices");
    const AxisRole role = AxisRole::kTensorSequence;
    CHECK(per_layer(t, role, Way::kNone) == kSbh / n * (34 + 5 * kScores));
    CHECK(per_layer(t, role, Way::kCore) == kSbh / n * 34);
    CHECK(per_layer(t, role, Way::kFull) == kSbh / n * 2);
  }
}

}  // namespace
}  // namespace meshplan

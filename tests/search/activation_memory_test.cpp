// SPDX-License-Identifier: Apache-2.0
// What one layer of a GPT keeps for its backward, against the terms that Korthikanti et al.
// ("Reducing Activation Recomputation in Large Transformer Models", 2022) count by hand: 16-bit
// activations, one-byte dropout masks, attention out of products, Softmax and Dropout. Nothing here
// knows their formulas; the bytes are the difference of two depths when the backward begins.
#include <algorithm>
#include <string>
#include <vector>

#include "cost_model/test_clusters.h"
#include "graph/importers/hf.h"
#include "search/baselines.h"
#include "search/plan_problem.h"
#include "support/graph_builder.h"

namespace meshplan::activation_memory_test {
namespace {

struct Sizes {
  std::int64_t sequence;
  std::int64_t batch;
  std::int64_t width;
  std::int64_t heads;
};
constexpr Sizes kSmall = {512, 4, 1024, 16};
constexpr double kSbh = static_cast<double>(kSmall.sequence * kSmall.batch * kSmall.width);
constexpr double kScores = static_cast<double>(kSmall.heads * kSmall.sequence) / kSmall.width;

class GptGraph {
 public:
  GptGraph(int layers, const Sizes& sizes)
      : sequence_(sizes.sequence), batch_(sizes.batch), width_(sizes.width), heads_(sizes.heads) {
    document_.file = "gpt.json";
    document_.name = "gpt";
    declare("ids", Role::kInput, {batch_, sequence_}, DType::kInt64);
    declare("labels", Role::kInput, {batch_, sequence_}, DType::kInt64);
    declare("scale", Role::kConstant, {1}, DType::kFp16);
    apply("x", "Gather", {weight("table", {1024, width_}), "ids"}, {{"axis", "0"}});
    std::string x = "x";
    for (int l = 0; l < layers; ++l) x = layer(l, x);
    scope_.clear();
    apply("logits", "MatMul", {x, weight("head", {width_, 1024})});
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
                 {x, weight("g_" + name, {width_}), weight("o_" + name, {width_})},
                 {{"axis", "-1"}});
  }

  std::string layer(int number, const std::string& x) {
    scope_ = "layers." + std::to_string(number);
    prefix_ = scope_ + ".";
    const std::string layer_scope = scope_;
    const std::string heads = std::to_string(batch_) + "," + std::to_string(sequence_) + "," +
                              std::to_string(heads_) + "," + std::to_string(width_ / heads_);
    const std::string h = norm("norm1", x);
    std::vector<std::string> qkv;
    for (const std::string name : {"q", "k", "v"}) {
      const std::string y = linear(name, h, width_, width_);
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
                   std::to_string(batch_) + "," + std::to_string(sequence_) + "," +
                       std::to_string(width_)}});
    std::string y = apply("dropout1", "Dropout", {linear("proj", core, width_, width_)});
    const std::string middle = apply("add1", "Add", {x, y});
    y = linear("fc1", norm("norm2", middle), width_, 4 * width_);
    y = linear("fc2", apply("gelu", "Gelu", {y}), 4 * width_, width_);
    y = apply("dropout2", "Dropout", {y});
    const std::string end = apply("add2", "Add", {middle, y});
    prefix_.clear();
    return end;
  }

  std::int64_t sequence_;
  std::int64_t batch_;
  std::int64_t width_;
  std::int64_t heads_;
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

/// Bytes when the backward begins, of the plan that keeps least within the pattern.
struct Kept {
  Bytes activations = 0;
  Bytes states = 0;  ///< parameters, gradients and optimizer
};
Kept kept(const Graph& graph, std::int64_t devices, const TextbookPlan& pattern, Way way) {
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
      evaluate(**book, (*problem)->assignment((*problem)->decide(solution.choice, bytes)));
  Bytes always = 0;
  for (const MemoryKind kind :
       {MemoryKind::kParameters, MemoryKind::kGradients, MemoryKind::kOptimizer})
    always += found.at_peak[static_cast<std::size_t>(kind)];
  return {found.profile[static_cast<std::size_t>(moment)] - always, always};
}

Kept layer_of(std::int64_t devices, AxisRole role, Way way, const Sizes& sizes) {
  const TextbookPlan pattern{{role}, ParameterAction::kNone};
  const Kept three = kept(GptGraph(3, sizes).build(), devices, pattern, way);
  const Kept two = kept(GptGraph(2, sizes).build(), devices, pattern, way);
  return {three.activations - two.activations, three.states - two.states};
}

double per_layer(std::int64_t devices, AxisRole role, Way way) {
  return static_cast<double>(layer_of(devices, role, way, kSmall).activations);
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

/// GPT-2 of the small sizes with eager attention, as it is imported.
Graph imported_gpt(std::int64_t layers) {
  const std::string config =
      R"({"model_type": "gpt2", "n_layer": )" + std::to_string(layers) +
      R"(, "n_embd": 1024, "n_head": 16, "n_positions": 512, "vocab_size": 1024, "attn_pdrop": 0.1,
          "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5, "torch_dtype": "float16"})";
  HfOptions options;
  options.batch = kSmall.batch;
  options.seq = kSmall.sequence;
  options.eager_attention = true;
  const auto imported = import_hf(config, "gpt2", options);
  if (!imported) FAIL(to_string(imported.error()));
  auto graph = resolve(imported->document, {});
  if (!graph) FAIL(to_string(graph.error()));
  return *std::move(graph);
}

TEST_CASE("recomputing the core of imported eager attention takes its term away, and no other") {
  const TextbookPlan pattern{{AxisRole::kTensor}, ParameterAction::kNone};
  const auto per_layer = [&](Way way) {
    return static_cast<double>(kept(imported_gpt(3), 1, pattern, way).activations -
                               kept(imported_gpt(2), 1, pattern, way).activations);
  };
  // of the 34, two are the masks of the dropout after attention and MLP, which are not imported
  constexpr double kScale = 2;  // the factor of the scores
  CHECK(per_layer(Way::kNone) == kSbh * (32 + 5 * kScores) + kScale);
  CHECK(per_layer(Way::kCore) == kSbh * 32 + kScale);
}

TEST_CASE("what runs again of imported eager attention is its core up to the dropout") {
  const Graph graph = imported_gpt(2);
  PriceOptions options;
  options.recomputation = recomputation(graph, Way::kCore);
  const Cluster cluster = test::cluster({test::level(1, 100, 1)});
  auto book = PriceBook::make(graph, cluster, {1}, options);
  REQUIRE(book.has_value());
  std::vector<std::string> again;
  for (std::size_t i = 0; i < graph.operators.size(); ++i) {
    if ((*book)->flow().timeline().recomputes(static_cast<OperatorId>(i)))
      again.push_back(graph.operators[i].name);
  }
  std::vector<std::string> expected;
  for (const std::string layer : {"0", "1"}) {
    for (const std::string name : {"scores", "masked", "softmax", "dropout"})
      expected.push_back("transformer.h." + layer + ".attn.core." + name);
  }
  CHECK(again == expected);
}

TEST_CASE("the published memory of four models is what their layers take") {
  // Korthikanti et al. 2022, figures 1 and 7, in GiB per device of 8-way tensor parallel stages.
  // A stage holds `layers`; activations of `in_flight` layers are alive (micro-batches of the
  // stages behind it, interleaved for the second and third).
  struct Published {
    const char* model;
    Sizes sizes;
    double layers;
    double in_flight;
    double states;
    double activations;
    double sequence_and_selective;
  };
  const Published table[] = {
      {"22B", {2048, 4, 6144, 64}, 48, 48, 45.56, 59.25, 9.56},
      {"175B", {2048, 1, 12288, 96}, 12, 96 * (1 + 7.0 / 24), 45.56, 66.84, 12.35},
      {"530B", {2048, 1, 20480, 128}, 3, 105 * (1 + 34.0 / 105), 31.64, 114.02, 23.08},
      {"1T", {2048, 1, 25600, 160}, 2, 128, 32.96, 131.25, 26.56}};
  constexpr double kGiB = 1024.0 * 1024 * 1024;
  for (const Published& row : table) {
    INFO(row.model);
    const Kept tensor = layer_of(8, AxisRole::kTensor, Way::kNone, row.sizes);
    const Kept both = layer_of(8, AxisRole::kTensorSequence, Way::kCore, row.sizes);
    const double states = static_cast<double>(tensor.states) * row.layers / kGiB;
    const double activations = static_cast<double>(tensor.activations) * row.in_flight / kGiB;
    const double least = static_cast<double>(both.activations) * row.in_flight / kGiB;
    CHECK(states == Approx(row.states).epsilon(0.05));
    CHECK(activations == Approx(row.activations).epsilon(0.05));
    CHECK(least == Approx(row.sequence_and_selective).epsilon(0.05));
  }
}

/// Peak of fully sharded data parallelism over all devices.
Bytes peak(const Graph& graph, const Cluster& cluster, RecomputeOption recompute) {
  auto recomputation = find_recomputation(graph, recompute);
  REQUIRE(recomputation.has_value());
  DpOptions options;
  options.prices.recomputation = *std::move(recomputation);
  MeshShape mesh;
  mesh.shape = {cluster.devices()};
  mesh.axes = {"dp"};
  const auto found =
      search_textbook({{AxisRole::kData}, ParameterAction::kAll}, graph, cluster, {mesh}, options);
  if (!found) FAIL(to_string(found.error()));
  return found->found.evaluation.peak;
}

TEST_CASE("the more is recomputed, the less memory Llama 2 takes") {
  const std::string sizes[] = {
      R"("num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32,
         "num_key_value_heads": 32, "intermediate_size": 11008)",
      R"("num_hidden_layers": 80, "hidden_size": 8192, "num_attention_heads": 64,
         "num_key_value_heads": 8, "intermediate_size": 28672)"};
  for (const std::string& size : sizes) {
    INFO(size);
    const std::string config = R"({"model_type": "llama", "vocab_size": 32000,
      "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "hidden_act": "silu",
      "tie_word_embeddings": false, "torch_dtype": "bfloat16", )" +
                               size + "}";
    const auto imported = import_hf(config, "llama", {16, 4096, true, std::nullopt, 0});
    if (!imported) FAIL(to_string(imported.error()));
    const auto graph = resolve(imported->document, {true, 1, false});
    if (!graph) FAIL(to_string(graph.error()));
    const Cluster cluster = test::cluster({test::level(16, 100, 1)});
    const Bytes none = peak(*graph, cluster, RecomputeOption::kNone);
    const Bytes selective = peak(*graph, cluster, RecomputeOption::kSelective);
    const Bytes by_operator = peak(*graph, cluster, RecomputeOption::kSelectiveOp);
    const Bytes full = peak(*graph, cluster, RecomputeOption::kFull);
    CHECK(none > selective);
    CHECK(selective > by_operator);
    CHECK(by_operator > full);
  }
}

}  // namespace
}  // namespace meshplan::activation_memory_test

// SPDX-License-Identifier: Apache-2.0
// evaluate() against whole plans worked out by hand.
#include "cost_model/evaluate.h"

#include "cost_model/test_clusters.h"
#include "support/graph_builder.h"
#include "support/models.h"

namespace meshplan::evaluate_test {
namespace {

/// Strategies by label, e.g. {"y", "m"}; everything else is left as it starts (zero).
Assignment assign(PriceBook& book, const std::map<std::string, std::string>& labels) {
  const Graph& graph = book.graph();
  Assignment assignment;
  for (std::size_t i = 0; i < graph.operators.size(); ++i) {
    const OperatorInfo& info = book.info(static_cast<OperatorId>(i));
    const auto wanted = labels.find(graph.operators[i].name);
    bool found = false;
    for (const Strategy& strategy : info.strategies()) {
      if (wanted != labels.end() && info.label(strategy) != wanted->second) continue;
      assignment.strategies.push_back(strategy);
      found = true;
      break;
    }
    if (!found) FAIL("no strategy " << wanted->second << " of " << graph.operators[i].name);
  }
  assignment.values.resize(book.flow().values().size());
  assignment.gathered.resize(book.flow().transfers().size());
  assignment.parameters.resize(graph.tensors.size());
  return assignment;
}

/// Everything moves 1 MB/s: a byte takes a microsecond.
Cluster byte_machine(std::int64_t devices) {
  Cluster cluster = test::cluster({test::level(devices, 0.001, 0)});
  cluster.device.memory_bandwidth = 1e6;
  cluster.device.peak_flops = {{DType::kBf16, 1e12}, {DType::kFp32, 1e12}};
  cluster.efficiency.bucket_bytes = 0;
  return cluster;
}

std::unique_ptr<PriceBook> book_of(const Graph& graph,
                                   const Cluster& cluster,
                                   std::vector<std::int64_t> mesh,
                                   std::int64_t microbatches = 1) {
  PriceOptions options;
  options.microbatches = microbatches;
  options.overlap = cluster.efficiency.overlap;
  auto book = PriceBook::make(graph, cluster, std::move(mesh), options);
  if (!book) FAIL(to_string(book.error()));
  return std::move(*book);
}

TEST_CASE("a data-parallel product, by hand") {
  const Graph graph = test::build_graph(
      "input x 8 4; weight w 4 6; y = MatMul x w; loss l = ReduceMean y keepdims=0");
  const Cluster cluster = byte_machine(2);
  for (const std::int64_t microbatches : {1, 4}) {
    INFO(microbatches << " micro-batches");
    const auto book = book_of(graph, cluster, {2}, microbatches);
    const Evaluation e = evaluate(*book, assign(*book, {{"y", "m"}, {"l", "x0"}}));
    const double m = static_cast<double>(microbatches);
    // bytes, at a microsecond each. Product: 4x4, 4x6 and 4x6 elements of 2 bytes forward, the same
    // three for the gradient of w (x has none); mean: 48 bytes and a scalar of 2, both ways
    const double compute = 128 + 128 + 50 + 50;
    // the loss is summed: an all-reduce of 2 bytes over 2 devices moves 2
    const double loss = 2;
    // gradient of w: 96 bytes of fp32, once per step
    const double gradient = 96;
    // 2 x 48 of parameters, 96 of gradient, 2 x 288 of state
    const double update = 768;
    CHECK(e.objective.value ==
          Approx(1e-6 * (m * (compute + loss) + 0.2 * gradient + update)).margin(1e-11));
    CHECK(e.compute.value == Approx(1e-6 * (m * compute + update)).margin(1e-11));
    CHECK(e.communication.value == Approx(1e-6 * (m * loss + gradient)).margin(1e-11));
    // the reduction starts when the last backward ends; nothing is left to hide it
    CHECK(e.step_time.value ==
          Approx(1e-6 * (m * (compute + loss) + gradient + update)).margin(1e-11));
    // at all moments: 48 + 96 + 288 of w and the 32 local bytes of x
    // y is there forward until the mean has read it, its gradient backward; l at the loss
    CHECK(e.profile == std::vector<Bytes>{464 + 48, 464 + 48 + 2, 464 + 48, 464 + 48});
    CHECK(e.peak == 514);
    CHECK(e.peak_moment == 1);
    CHECK(e.at_peak == std::array<Bytes, kMemoryKinds>{48, 96, 288, 32 + 48 + 2, 0, 0, 0});
    // product: 32 + 48 + 48; mean: 48 + 2
    CHECK(e.seed_formula == 178);
    // 2 x 8 x 4 x 6 forward, twice that backward by convention
    CHECK(e.model_flops == m * 3 * 2 * 8 * 4 * 6);
  }
}

TEST_CASE("a column-then-row pair of products, by hand") {
  const Graph graph = test::build_graph(
      "input x 8 4; weight a 4 6; weight b 6 4; h = MatMul x a; g = Silu h; y = MatMul g b; "
      "loss l = ReduceMean y keepdims=0");
  const Cluster cluster = byte_machine(2);
  const auto book = book_of(graph, cluster, {2});
  const Assignment plan = assign(*book, {{"h", "n"}, {"g", "x1"}, {"y", "k"}, {"l", "none"}});
  const Evaluation e = evaluate(*book, plan);
  // h: x 64, a 24, h 48; backward for a only
  // g: 48 + 48; backward: gradient of g, h saved, gradient of h
  // y: g 48, b 24, y 64; backward twice the same bytes
  // l: 64 + 2 both ways
  const double compute = 2 * 136 + 96 + 144 + 3 * 136 + 2 * 66;
  // one all-reduce of y's 64 bytes over 2 devices moves 64; x has no gradient to reduce
  const double reduce = 64;
  // 12 elements of a and of b each: 2 x 24 + 48 + 2 x 144
  const double update = 2 * 384;
  CHECK(e.objective.value == Approx(1e-6 * (compute + reduce + update)).margin(1e-11));
  CHECK(e.communication.value == Approx(1e-6 * reduce).margin(1e-11));
  // moments h g y l | l y g h; always: two parameters of 24 + 48 + 144, x of 64
  const Bytes always = 2 * (24 + 48 + 144) + 64;
  CHECK(e.profile == std::vector<Bytes>{
                         always + 48,                     // h
                         always + 48 + 48,                // h, g
                         always + 48 + 48 + 64,           // h saved, g, y as left by the product
                         always + 48 + 48 + 64 + 64 + 2,  // h, g saved, y, its sum, l
                         always + 48 + 48 + 64,           // gradient of y
                         always + 48 + 48 + 64 + 48,      // g still, gradients of y and g
                         always + 48 + 48 + 48,           // h, gradients of g and h
                         always + 48,                     // gradient of h
                     });
}

TEST_CASE("saved operands are kept, or gathered again at the price of one more collective") {
  // y is left in rows by Silu; the product reads it whole and needs it for the gradient of b
  const Graph graph = test::build_graph(
      "input x 8 4; weight a 4 6; weight b 6 4; h = MatMul x a; g = Silu h; y = MatMul g b; "
      "loss l = ReduceMean y keepdims=0");
  const Cluster cluster = byte_machine(2);
  const auto book = book_of(graph, cluster, {2});
  Assignment kept = assign(*book, {{"h", "m"}, {"g", "x0"}, {"y", "n"}, {"l", "x1"}});
  Assignment again = kept;
  const int transfer = book->flow().transfer(test::operator_id(graph, "y"), 0);
  REQUIRE(transfer >= 0);
  again.gathered[static_cast<std::size_t>(transfer)] = 1;
  const Evaluation with = evaluate(*book, kept);
  const Evaluation without = evaluate(*book, again);
  // an all-gather of 96 bytes over 2 devices moves 48
  CHECK((without.objective - with.objective).value == Approx(48e-6).margin(1e-11));
  // moments h g y l | l y g h: instead of the copy of 96 bytes from y's forward through its
  // backward, the shard of 48 from there on, and the copy at y's forward and backward alone
  std::vector<Bytes> difference;
  for (std::size_t m = 0; m < with.profile.size(); ++m)
    difference.push_back(without.profile[m] - with.profile[m]);
  CHECK(difference == std::vector<Bytes>{0, 0, 0, 48 - 96, 48 - 96, 48, 0, 0});
}

TEST_CASE("the activations of a decoder layer, against the closed form") {
  // per token and layer, in bf16: the input of each norm (2 h), what q, k, v and gate, up read
  // (2 h), q and k after rotation and v (h + 2 kv), the attention's result (h), gate, silu(gate),
  // up, and their product (4 i)
  const test::LlamaSizes sizes{64, 160, 8, 2, 1, 32};
  const std::int64_t h = 64;
  const std::int64_t kv = 16;
  const std::int64_t i = 160;
  const Cluster cluster = byte_machine(1);
  for (const auto& [batch, seq] : {std::pair<std::int64_t, std::int64_t>{1, 32}, {4, 8}}) {
    std::vector<Bytes> at_loss;
    for (const std::int64_t layers : {2, 3}) {
      const Graph graph = test::llama_graph(test::llama_config(sizes), batch, seq, layers);
      const auto book = book_of(graph, cluster, {1});
      const Evaluation e = evaluate(*book, assign(*book, {}));
      at_loss.push_back(e.profile[graph.operators.size()]);
    }
    const std::int64_t parameters = 2 * h * h + 2 * h * kv + 3 * h * i + 2 * h;
    CHECK(at_loss[1] - at_loss[0] == 18 * parameters + 2 * batch * seq * (6 * h + 2 * kv + 4 * i));
  }
}

TEST_CASE("a loss holds the arrays of its kernels, over cut classes more of them") {
  // moments y l | l y; 8 rows of 16 classes in bf16
  const auto at_loss = [](const std::string& loss, const std::string& label) {
    const Graph graph = test::build_graph(
        "input x 8 4; input t int64 8; weight w 4 16; y = MatMul x w; "
        "loss l = SoftmaxCrossEntropyLoss y t " +
        loss);
    const Cluster cluster = byte_machine(2);
    const auto book = book_of(graph, cluster, {2});
    const Evaluation e =
        evaluate(*book, assign(*book, {{"y", label == "v" ? "n" : "m"}, {"l", label}}));
    return std::vector<Bytes>(e.profile.begin() + 1, e.profile.begin() + 3);
  };
  // always: w whole or halved (18 bytes an element with what belongs to it), x and the labels
  const Bytes rows = 64 * 18 + 32 + 4 * 8;
  const Bytes columns = 32 * 18 + 64 + 8 * 8;
  const Bytes logits = 8 * 16 / 2;
  // forward: the logits, the loss and its arrays; backward: arrays and the gradient of the logits
  CHECK(at_loss("", "t0") ==
        std::vector<Bytes>{rows + (2 + 8) * logits + 2, rows + (12 + 2) * logits});
  CHECK(at_loss("", "v") ==
        std::vector<Bytes>{columns + (2 + 12) * logits + 2, columns + (16 + 2) * logits});
  CHECK(at_loss("fused=1", "t0") ==
        std::vector<Bytes>{rows + 2 * logits + 2, rows + (2 + 2) * logits});
}

TEST_CASE("parameters are gathered while the layer before computes") {
  // two layers of one product each, sharded at rest; everything at a microsecond a byte
  GraphDocument document = test::graph_document(
      "input x 8 4; weight a 4 4; weight b 4 4; h = MatMul x a; g = Silu h; y = MatMul g b; "
      "loss l = ReduceMean y keepdims=0");
  const char* const scopes[] = {"layers.0", "layers.0", "layers.1", ""};
  const auto step = [&](bool layered) {
    for (std::size_t i = 0; i < document.operators.size(); ++i)
      document.operators[i].scope = layered ? scopes[i] : "";
    const auto graph = resolve(document, {});
    REQUIRE(graph.has_value());
    Cluster cluster = byte_machine(2);
    cluster.efficiency.overlap = {1, 1, 1, 0, 0};
    const auto book = book_of(*graph, cluster, {2});
    Assignment plan = assign(*book, {{"h", "m"}, {"g", "x0"}, {"y", "m"}, {"l", "x0"}});
    for (const char* name : {"a", "b"})
      plan.parameters[index(test::tensor_id(*graph, name))][0] = ParameterAction::kAll;
    const DataFlow& flow = book->flow();
    const ParameterSpan b = parameter_span(*graph, flow, test::tensor_id(*graph, "b"));
    CHECK(b.gathered == MomentRange{layered ? 0 : 1, 3});
    // moments h g y l | l y g h: the backward of layer 1 looks back at that of the loss
    CHECK(b.gathered_backward == MomentRange{4, 6});
    const ParameterSpan a = parameter_span(*graph, flow, test::tensor_id(*graph, "a"));
    CHECK(a.gathered == MomentRange{0, 1});
    return evaluate(*book, plan).step_time.value;
  };
  // layer by layer, b (16 us) travels beside h (96 us), otherwise beside g (64 us): both hide it
  CHECK(step(true) == Approx(step(false)).margin(1e-11));
}

TEST_CASE("what is not hidden of a collective slows the computation beside it") {
  const Graph graph = test::build_graph(
      "input x 8 4; weight a 4 4; h = MatMul x a; g = Silu h; loss l = ReduceMean g keepdims=0");
  const auto step = [&](double overlap) {
    Cluster cluster = byte_machine(2);
    cluster.efficiency.overlap.gather = overlap;
    const auto book = book_of(graph, cluster, {2});
    Assignment plan = assign(*book, {{"h", "m"}, {"g", "x0"}, {"l", "x0"}});
    plan.parameters[index(test::tensor_id(graph, "a"))][0] = ParameterAction::kAll;
    const Evaluation e = evaluate(*book, plan);
    CHECK(e.step_time >= e.objective);
    return e.step_time.value;
  };
  // the gather of 16 bytes before h has nothing to hide behind, whatever the overlap
  CHECK(step(1) == Approx(step(0.5)).margin(1e-11));
  CHECK(step(0.5) == Approx(step(0)).margin(1e-11));
}

TEST_CASE("a moment is named by its operator") {
  const Graph graph =
      test::build_graph("input x 8 4; weight w 4 6; y = MatMul x w; loss l = ReduceMean y");
  const DataFlow flow(graph);
  CHECK(moment_name(graph, flow, 0) == "forward of y");
  CHECK(moment_name(graph, flow, 1) == "forward of l");
  CHECK(moment_name(graph, flow, 2) == "backward of l");
  CHECK(moment_name(graph, flow, 3) == "backward of y");
}

}  // namespace
}  // namespace meshplan::evaluate_test

// SPDX-License-Identifier: Apache-2.0
// Prices of single choices, worked out by hand: parameters at rest, operators, states.
#include "cost_model/price_book.h"

#include "cost_model/test_clusters.h"
#include "support/graph_builder.h"

namespace meshplan::price_book_test {
namespace {

/// 1 GB/s links without latency, no bucket, half of the gathers and 4/5 of the reductions hidden.
Cluster slow_network(std::vector<std::int64_t> levels) {
  std::vector<Level> list;
  for (const std::int64_t size : levels) list.push_back(test::level(size, 1, 0));
  Cluster cluster = test::cluster(std::move(list));
  cluster.efficiency.bucket_bytes = 0;
  cluster.efficiency.overlap.gather = 0.5;
  return cluster;
}

struct Setup {
  Setup(const std::string& text, std::vector<std::int64_t> mesh, std::int64_t microbatches = 1)
      : graph(test::build_graph(text)) {
    std::int64_t devices = 1;
    for (const std::int64_t size : mesh) devices *= size;
    cluster = slow_network({devices});
    PriceOptions options;
    options.microbatches = microbatches;
    options.overlap = cluster.efficiency.overlap;
    auto made = PriceBook::make(graph, cluster, std::move(mesh), options);
    if (!made) FAIL(to_string(made.error()));
    book = std::move(*made);
  }
  Graph graph;
  Cluster cluster;
  std::unique_ptr<PriceBook> book;
};

TensorState state_of(std::initializer_list<AxisState> axes) {
  TensorState state;
  int axis = 0;
  for (const AxisState s : axes) state[axis++] = s;
  return state;
}

ParameterChoice choice_of(std::initializer_list<ParameterAction> actions) {
  ParameterChoice choice{};
  std::copy(actions.begin(), actions.end(), choice.begin());
  return choice;
}

/// "kind[/step]: collective bytes axes; ..." of every move.
std::string moves_text(const ParameterPrice& price) {
  static const char* const kKinds[] = {"forward", "backward", "gradient", "update"};
  std::string text;
  for (const ParameterMove& move : price.moves) {
    text += text.empty() ? "" : " | ";
    text += kKinds[static_cast<int>(move.kind)];
    if (move.per_step) text += "/step";
    for (const RedistributionStep& step : move.steps) {
      text += std::string(" ") + collective_name(step.collective) + " " +
              std::to_string(step.call_bytes) + "@" + std::to_string(step.axes);
    }
  }
  return text;
}

const std::string kOneWeight =
    "input x 8 64; weight w 64 32; y = MatMul x w; loss l = ReduceMean y";

TEST_CASE("a data-parallel parameter: DDP and the three stages of ZeRO, in bytes and seconds") {
  // 2,048 elements: 4,096 bytes of bf16, 8,192 of fp32 gradient, 24,576 of master and moments
  Setup s(kOneWeight, {4}, 3);
  const TensorId w = test::tensor_id(s.graph, "w");
  const TensorState state = state_of({kGradientPartialState});
  auto price_of = [&](ParameterAction action, bool reads = true) {
    auto price = s.book->parameter_price(w, state, choice_of({action}), reads);
    REQUIRE(price.has_value());
    return *price;
  };
  auto update_of = [](double parameters, double gradients, double optimizer) {
    return (2 * parameters + gradients + 2 * optimizer) / 1e12;
  };
  const double grid = 1e-11;
  {
    const ParameterPrice ddp = price_of(ParameterAction::kNone);
    CHECK(moves_text(ddp) == "gradient/step all_reduce 8192@1");
    CHECK(ddp.rest_bytes == 4096);
    CHECK(ddp.gradient_bytes == 8192);
    CHECK(ddp.optimizer_bytes == 24576);
    CHECK(ddp.gathered_bytes == 0);
    CHECK(ddp.unreduced_bytes == 0);
    CHECK(to_string(ddp.rest) == "R");
    // an all-reduce moves 2 x 3/4 of 8,192 bytes, 4/5 of it hidden
    CHECK(ddp.moves[0].steps[0].bytes_moved == 12288);
    CHECK(ddp.objective.value ==
          Approx(0.2 * 12288e-9 + update_of(4096, 8192, 24576)).margin(grid));
  }
  {
    const ParameterPrice zero1 = price_of(ParameterAction::kState);
    CHECK(moves_text(zero1) ==
          "gradient/step reduce_scatter 8192@1 | update/step all_gather 4096@1");
    CHECK(zero1.rest_bytes == 4096);
    CHECK(zero1.gradient_bytes == 8192);
    CHECK(zero1.optimizer_bytes == 6144);
    CHECK(zero1.unreduced_bytes == 0);
    CHECK(to_string(zero1.state) == "S(0)");
    CHECK(zero1.objective.value ==
          Approx(0.2 * 6144e-9 + 0.5 * 3072e-9 + update_of(1024, 2048, 6144)).margin(grid));
  }
  {
    const ParameterPrice zero2 = price_of(ParameterAction::kGradient);
    CHECK(moves_text(zero2) == "gradient reduce_scatter 8192@1 | update/step all_gather 4096@1");
    CHECK(zero2.rest_bytes == 4096);
    CHECK(zero2.gradient_bytes == 2048);
    CHECK(zero2.optimizer_bytes == 6144);
    CHECK(zero2.unreduced_bytes == 8192);
    CHECK(to_string(zero2.gradient) == "S(0)");
    // reduced in each of three micro-batches
    CHECK(zero2.objective.value ==
          Approx(3 * 0.2 * 6144e-9 + 0.5 * 3072e-9 + update_of(1024, 2048, 6144)).margin(grid));
  }
  {
    const ParameterPrice zero3 = price_of(ParameterAction::kAll);
    CHECK(moves_text(zero3) ==
          "forward all_gather 4096@1 | backward all_gather 4096@1 | gradient reduce_scatter "
          "8192@1");
    CHECK(zero3.rest_bytes == 1024);
    CHECK(zero3.gradient_bytes == 2048);
    CHECK(zero3.optimizer_bytes == 6144);
    CHECK(zero3.gathered_bytes == 4096);
    CHECK(zero3.gathered_backward);
    CHECK(zero3.unreduced_bytes == 8192);
    CHECK(to_string(zero3.rest) == "S(0)");
    CHECK(
        zero3.objective.value ==
        Approx(3 * (2 * 0.5 * 3072e-9 + 0.2 * 6144e-9) + update_of(1024, 2048, 6144)).margin(grid));
    // where the backward does not read the weight, it is gathered once
    const ParameterPrice once = price_of(ParameterAction::kAll, false);
    CHECK(moves_text(once) == "forward all_gather 4096@1 | gradient reduce_scatter 8192@1");
    CHECK_FALSE(once.gathered_backward);
  }
  CHECK(s.book->parameter_choices(w, state).size() == 4);
  CHECK(s.book->parameter_choices(w, state_of({0})).size() == 1);
}

TEST_CASE("on an axis of redundant work gradients are sliced, not reduced") {
  Setup s(kOneWeight, {4});
  const TensorId w = test::tensor_id(s.graph, "w");
  const TensorState state = state_of({kReplicatedState});
  CHECK(s.book->parameter_choices(w, state).size() == 3);
  auto text = [&](ParameterAction action) {
    return moves_text(*s.book->parameter_price(w, state, choice_of({action}), true));
  };
  CHECK(text(ParameterAction::kNone) == "");
  CHECK(text(ParameterAction::kState) ==
        "gradient/step slice 2048@1 | update/step all_gather 4096@1");
  CHECK(text(ParameterAction::kAll) ==
        "forward all_gather 4096@1 | backward all_gather 4096@1 | gradient slice 2048@1");
}

TEST_CASE("cuts over several axes: all before state, from the innermost axis outwards") {
  Setup s(kOneWeight, {2, 2});
  const TensorId w = test::tensor_id(s.graph, "w");
  const TensorState both = state_of({kGradientPartialState, kGradientPartialState});
  using enum ParameterAction;
  {  // the inner axis holds everything cut, the outer one the optimizer state within that
    const auto price = s.book->parameter_price(w, both, choice_of({kState, kAll}), true);
    REQUIRE(price.has_value());
    CHECK(moves_text(*price) ==
          "forward all_gather 4096@2 | backward all_gather 4096@2 | gradient reduce_scatter "
          "8192@2 | gradient/step reduce_scatter 4096@1 | update/step all_gather 2048@1");
    CHECK(to_string(price->rest) == "R,S(0)");
    CHECK(to_string(price->gradient) == "P(sum),S(0)");
    CHECK(to_string(price->state) == "SS(0,2),S(0)");
    CHECK(price->optimizer_bytes == 6144);
  }
  {  // hybrid: cut over the inner axis, reduced over the outer one on what is left
    const auto price = s.book->parameter_price(w, both, choice_of({kNone, kAll}), true);
    REQUIRE(price.has_value());
    CHECK(moves_text(*price) ==
          "forward all_gather 4096@2 | backward all_gather 4096@2 | gradient reduce_scatter "
          "8192@2 | gradient/step all_reduce 4096@1");
    CHECK(price->rest_bytes == 2048);
    CHECK(to_string(price->state) == "R,S(0)");
  }
  {  // both axes cut: gathered in the opposite order
    const auto price = s.book->parameter_price(w, both, choice_of({kAll, kAll}), true);
    REQUIRE(price.has_value());
    CHECK(moves_text(*price) ==
          "forward all_gather 2048@1 all_gather 4096@2 | backward all_gather 2048@1 all_gather "
          "4096@2 | gradient reduce_scatter 8192@2 reduce_scatter 4096@1");
    CHECK(to_string(price->rest) == "SS(0,2),S(0)");
    CHECK(price->rest_bytes == 1024);
  }
  {  // beside a reader that shards the same dimension
    const auto price = s.book->parameter_price(
        w, state_of({kGradientPartialState, 0}), choice_of({kAll, kNone}), true);
    REQUIRE(price.has_value());
    CHECK(to_string(price->rest) == "SS(0,2),S(0)");
    CHECK(moves_text(*price) ==
          "forward all_gather 2048@1 | backward all_gather 2048@1 | gradient reduce_scatter "
          "4096@1");
  }
}

TEST_CASE(
    "a parameter that no cut divides has no such choice, and the first that divides is taken") {
  Setup s(
      "input x 8 5; weight w 5 8; y = MatMul x w; weight b 7; z = Gather b i; "
      "input i int64 8 8; m = Add y z; loss l = ReduceMean m",
      {4});
  const TensorState state = state_of({kGradientPartialState});
  const auto cut = s.book->parameter_price(
      test::tensor_id(s.graph, "w"), state, choice_of({ParameterAction::kAll}), true);
  REQUIRE(cut.has_value());
  CHECK(to_string(cut->rest) == "S(1)");
  CHECK_FALSE(
      s.book
          ->parameter_price(
              test::tensor_id(s.graph, "b"), state, choice_of({ParameterAction::kAll}), true)
          .has_value());
}

TEST_CASE("small gradient collectives share the latency of one bucket") {
  Setup s(kOneWeight, {4});
  s.cluster.levels[0].latency = {1e-3};
  s.cluster.efficiency.bucket_bytes = 81920;
  PriceOptions options;
  options.overlap = s.cluster.efficiency.overlap;
  auto book = PriceBook::make(s.graph, s.cluster, {4}, options);
  REQUIRE(book.has_value());
  const auto price = (*book)->parameter_price(
      test::tensor_id(s.graph, "w"), state_of({kGradientPartialState}), ParameterChoice{}, true);
  REQUIRE(price.has_value());
  // a tenth of an all-reduce of 81,920 bytes
  const Seconds bucket = (*book)->collectives().time({Collective::kAllReduce, 1, 81920});
  CHECK(price->moves[0].steps[0].time.value == Approx(bucket.value / 10).epsilon(1e-6));
}

TEST_CASE("optimizer bytes per element") {
  CHECK(optimizer_bytes(Optimizer::kAdamW, DType::kBf16) == 12);
  CHECK(optimizer_bytes(Optimizer::kAdam, DType::kFp32) == 8);
  CHECK(optimizer_bytes(Optimizer::kMomentum, DType::kBf16) == 8);
  CHECK(optimizer_bytes(Optimizer::kAdafactor, DType::kBf16) == 4);
  CHECK(optimizer_bytes(Optimizer::kSgd, DType::kBf16) == 4);
  CHECK(optimizer_bytes(Optimizer::kSgd, DType::kFp32) == 0);
  CHECK(optimizer_bytes(Optimizer::kNone, DType::kBf16) == 0);
}

TEST_CASE("statistics of a sharded normalisation are reduced inside the operator") {
  Setup s(
      "weight x 8 16; weight g 16; y = RMSNormalization x g axis=-1; z = Softmax y axis=0; "
      "loss l = ReduceMean z",
      {4});
  auto inner = [&](const char* op, const char* label) {
    const OperatorId id = test::operator_id(s.graph, op);
    for (const Strategy& strategy : s.book->info(id).strategies()) {
      if (s.book->info(id).label(strategy) == label) {
        std::string text;
        for (const InnerCollective& c : s.book->operator_price(id, strategy).collectives) {
          text += std::string(text.empty() ? "" : ", ") +
                  (c.pass == Pass::kBackward ? "backward " : "forward ") + std::to_string(c.count) +
                  " " + collective_name(c.collective) + " " + std::to_string(c.moved);
        }
        return text;
      }
    }
    return std::string("no such strategy");
  };
  // 8 rows x 4 bytes = 32 bytes, of which an all-reduce over 4 moves 48
  CHECK(inner("y", "r0") == "forward 1 all_reduce 48, backward 1 all_reduce 48");
  CHECK(inner("y", "x0") == "");
  // 16 columns x 4 bytes = 64 bytes: 96; twice forward
  CHECK(inner("z", "x0") == "forward 2 all_reduce 96, backward 1 all_reduce 96");
}

TEST_CASE("a measured operator takes the measured time wherever its shards have those shapes") {
  const Graph graph = test::build_graph(
      "input x fp32 8 4; weight w fp32 4 6; y = MatMul x w; loss l = ReduceSum y");
  const Cluster plain = slow_network({2});
  Cluster cluster = plain;
  cluster.measurements = {
      {"MatMul", {{4, 4}, {4, 6}}, DType::kFp32, {0.25}, Seconds{0.5}},
      {"MatMul", {{8, 4}, {4, 3}}, DType::kFp32, {0.125}, std::nullopt},
      {"MatMul", {{8, 2}, {2, 6}}, DType::kBf16, {64}, std::nullopt},  // another dtype
  };
  auto with = PriceBook::make(graph, cluster, {2}, {});
  auto without = PriceBook::make(graph, plain, {2}, {});
  REQUIRE(with);
  REQUIRE(without);
  const OperatorId product{0};
  int measured = 0;
  for (const Strategy& strategy : (*with)->info(product).strategies()) {
    const OperatorPrice price = (*with)->operator_price(product, strategy);
    const OperatorPrice formula = (*without)->operator_price(product, strategy);
    const AxisAction& action = (*with)->info(product).action(strategy, 0);
    const Factor* factor = action.kind == AxisAction::Kind::kFactor
                               ? &graph.op(product).rule->factors[std::size_t(action.factor)]
                               : nullptr;
    if (factor != nullptr && factor->size == 8) {
      CHECK(price.forward.value == 0.25);
      CHECK(price.backward.value == (graph.training ? 0.5 : 0));
      ++measured;
    } else if (factor != nullptr && factor->size == 6) {
      CHECK(price.forward.value == 0.125);
      CHECK(price.backward == formula.backward);
      ++measured;
    } else {
      CHECK(price.forward == formula.forward);
    }
  }
  CHECK(measured == 2);
}

TEST_CASE("the ring form of attention exchanges keys and values") {
  Setup s(
      "weight q 1 4 16 8; weight k 1 2 16 8; weight v 1 2 16 8; y = Attention q k v; "
      "loss l = ReduceMean y",
      {4});
  const OperatorId id = test::operator_id(s.graph, "y");
  bool found = false;
  for (const Strategy& strategy : s.book->info(id).strategies()) {
    if (s.book->info(id).label(strategy) != "s=t") continue;
    found = true;
    const OperatorPrice price = s.book->operator_price(id, strategy);
    REQUIRE(price.collectives.size() == 2);
    // local keys and values: 2 x 1 x 2 x 4 x 8 elements of 2 bytes
    CHECK(price.collectives[0].collective == Collective::kPermute);
    CHECK(price.collectives[0].count == 3);
    CHECK(price.collectives[0].moved == 256);
    CHECK(price.collectives[1].pass == Pass::kBackward);
    CHECK(price.collectives[1].moved == 512);
    CHECK(price.collectives[1].overlap == OverlapKind::kRing);
  }
  CHECK(found);
}

TEST_CASE("a tensor's states and the prices between them") {
  Setup s("input x 8 4; weight w 4 8; y = MatMul x w; loss l = ReduceMean y", {2});
  const TensorId y = test::tensor_id(s.graph, "y");
  const StateTable& table = s.book->states(y);
  CHECK(table.states.size() == 5);  // S(0), S(1), R/R, R/P, P/R
  auto at = [&](AxisState from, AxisState to) {
    return static_cast<std::size_t>(table.index.at(state_of({from}))) * table.states.size() +
           static_cast<std::size_t>(table.index.at(state_of({to})));
  };
  // 64 elements of bf16 = 128 bytes; over 2 devices an all-reduce moves 128, a half 64
  const double grid = 1e-11;
  CHECK(table.forward[at(kPartialState, kReplicatedState)].value == Approx(128e-9).margin(grid));
  CHECK(table.gradient[at(kPartialState, kReplicatedState)].value == 0);
  CHECK(table.forward[at(kPartialState, 0)].value == Approx(64e-9).margin(grid));
  CHECK(table.gradient[at(kPartialState, 0)].value == Approx(64e-9).margin(grid));
  CHECK(table.forward[at(kReplicatedState, kGradientPartialState)].value == 0);
  CHECK(table.gradient[at(kReplicatedState, kGradientPartialState)].value ==
        Approx(128e-9).margin(grid));
  CHECK(table.forward[at(0, 1)].value == Approx(32e-9).margin(grid));  // all-to-all of 64 bytes
  for (std::size_t i = 0; i < table.states.size(); ++i) {
    CHECK(table.forward[i * table.states.size() + i].value == 0);
    CHECK(table.gradient[i * table.states.size() + i].value == 0);
  }
  CHECK(table.bytes[static_cast<std::size_t>(table.index.at(state_of({0})))] == 64);
}

TEST_CASE("a mesh of too many axes is refused") {
  const Graph graph = test::build_graph(kOneWeight);
  const Cluster cluster = slow_network({32});
  const auto book = PriceBook::make(graph, cluster, {2, 2, 2, 2, 2}, {});
  REQUIRE_FALSE(book.has_value());
  CHECK(book.error().code == ErrorCode::kUnsupported);
}

TEST_CASE("products with a parameter in fp8 cast their operands and the result's gradient") {
  Graph graph = test::build_graph(
      "input x 64 512; weight w 512 256; weight v 256 256; y = MatMul x w; z = MatMul y v; "
      "s = MatMul z z transpose_b=1; l = ReduceMean s");
  Cluster cluster = slow_network({2});
  cluster.device.peak_flops[DType::kFp8E4M3] = 200e12;
  const auto price_of = [&](const char* result, std::optional<DType> product_dtype) {
    PriceOptions options;
    options.product_dtype = product_dtype;
    auto book = PriceBook::make(graph, cluster, {2}, options);
    if (!book) FAIL(to_string(book.error()));
    const OperatorId id = *graph.tensor(test::tensor_id(graph, result)).producer;
    // redundant work on both devices
    for (const Strategy& strategy : (*book)->info(id).strategies()) {
      if ((*book)->info(id).action(strategy, 0).kind == AxisAction::Kind::kNone)
        return (*book)->operator_price(id, strategy);
    }
    FAIL("no strategy without cuts");
    return OperatorPrice{};
  };
  const ComputeModel compute(cluster);
  const auto cast = [&](double elements) {  // two bytes are read, one is written twice
    return compute.memory_pass(OperatorFamily::kElementwise, 4 * elements).value;
  };
  const auto product = [&](double m, double n, double k, DType dtype) {
    const MatMulDims dims{
        static_cast<std::int64_t>(m), static_cast<std::int64_t>(n), static_cast<std::int64_t>(k)};
    return compute
        .roofline(OperatorFamily::kMatMul, 2 * m * n * k, 2 * (m * n + n * k + m * k), dtype, dims)
        .value;
  };
  const OperatorPrice z = price_of("z", DType::kFp8E4M3);
  const double grid = 1e-11;
  CHECK(z.forward.value ==
        Approx(product(64, 256, 256, DType::kFp8E4M3) + cast(64 * 256) + cast(256 * 256))
            .margin(grid));
  CHECK(z.backward.value == Approx(product(64, 256, 256, DType::kFp8E4M3) +
                                   product(256, 256, 64, DType::kFp8E4M3) + cast(64 * 256))
                                .margin(grid));
  const OperatorPrice whole = price_of("z", std::nullopt);
  CHECK(whole.forward.value == Approx(product(64, 256, 256, DType::kBf16)).margin(grid));
  // a product of two activations stays as it is
  CHECK(price_of("s", DType::kFp8E4M3).compute().value ==
        price_of("s", std::nullopt).compute().value);
  // bf16 is what the operands are: nothing is cast
  CHECK(price_of("z", DType::kBf16).compute().value == whole.compute().value);
}

}  // namespace
}  // namespace meshplan::price_book_test

// SPDX-License-Identifier: Apache-2.0
// What operators compute, against numbers worked out by hand or given in ONNX's operator pages: a
// wrong meaning would be wrong in shards and whole alike.
#include "plan/operator_cases.h"
#include "plan/operator_proof.h"
#include "support/catch.h"

namespace meshplan::operator_meaning_test {

using namespace test;
namespace {

using Values = std::vector<double>;

struct Spot {
  std::string type;
  std::vector<std::optional<DenseTensor>> operands;
  Attributes attributes;
  std::vector<Values> expected;  ///< of the first results
};

DenseTensor row(Values values) {
  return {{static_cast<std::int64_t>(values.size())}, std::move(values)};
}
DenseTensor scalar(double value) { return {{}, {value}}; }
DenseTensor counting(Sizes shape, double first) {
  DenseTensor tensor = numbered(shape);
  for (double& value : tensor.values) value += first - 1;
  return tensor;
}
Attribute ints(std::vector<std::int64_t> values) { return values; }
Attribute whole(std::int64_t value) { return value; }
Attribute number(double value) { return value; }
Attribute text(std::string value) { return value; }

void check(const Spot& spot) {
  OperatorCase c;
  c.spec.type = spot.type;
  c.spec.attributes = spot.attributes;
  c.spec.output_count = static_cast<int>(spot.expected.size());
  for (const auto& operand : spot.operands) {
    c.spec.inputs.push_back(operand ? std::optional(TensorType{operand->shape, DType::kFp32})
                                    : std::nullopt);
    c.values.push_back(operand);
    c.gradients.push_back(false);
  }
  INFO(spot.type);
  auto typed = infer_operator(c.spec);
  if (!typed) FAIL(typed.error().message);
  Random random(1);
  auto run = run_whole(c, *typed, random);
  if (!run) FAIL(run.error().message);
  for (std::size_t r = 0; r < spot.expected.size(); ++r) {
    INFO("result " << r);
    REQUIRE(run->results[r].values.size() == spot.expected[r].size());
    for (std::size_t i = 0; i < spot.expected[r].size(); ++i) {
      INFO("element " << i);
      CHECK(run->results[r].values[i] == Approx(spot.expected[r][i]).epsilon(1e-6).margin(1e-7));
    }
  }
}

TEST_CASE("elementwise operators compute what ONNX says") {
  const DenseTensor three = row({-1, 0, 1});
  const std::vector<Spot> spots = {
      {"Celu", {three}, {{"alpha", number(2)}}, {{-0.78693868, 0, 1}}},
      {"Elu", {three}, {{"alpha", number(2)}}, {{-1.26424112, 0, 1}}},
      {"Selu", {three}, {{"alpha", number(2)}, {"gamma", number(3)}}, {{-3.79272335, 0, 3}}},
      {"LeakyRelu", {three}, {{"alpha", number(0.1)}}, {{-0.1, 0, 1}}},
      {"HardSigmoid", {three}, {{"alpha", number(0.5)}, {"beta", number(0.6)}}, {{0.1, 0.6, 1}}},
      {"HardSwish", {row({-4, 1, 5})}, {}, {{0, 2.0 / 3, 5}}},
      {"Softplus", {three}, {}, {{0.31326169, 0.69314718, 1.31326169}}},
      {"Softsign", {three}, {}, {{-0.5, 0, 0.5}}},
      {"Gelu", {three}, {}, {{-0.15865525, 0, 0.84134475}}},
      {"Gelu", {three}, {{"approximate", text("tanh")}}, {{-0.15880801, 0, 0.84119199}}},
      {"Mish", {row({1})}, {}, {{0.86509839}}},
      {"Silu", {row({1, -1})}, {}, {{0.73105858, -0.26894142}}},
      {"Swish", {row({1})}, {{"alpha", number(2)}}, {{0.88079708}}},
      {"Erf", {row({0, 1})}, {}, {{0, 0.84270079}}},
      {"Sigmoid", {three}, {}, {{0.26894142, 0.5, 0.73105858}}},
      {"Tanh", {three}, {}, {{-0.76159416, 0, 0.76159416}}},
      {"Shrink", {row({-2, -1, 0, 1, 2})}, {{"lambd", number(1.5)}}, {{-2, 0, 0, 0, 2}}},
      {"Shrink",
       {row({-2, -1, 0, 1, 2})},
       {{"lambd", number(1.5)}, {"bias", number(1.5)}},
       {{-0.5, 0, 0, 0, 0.5}}},
      {"ThresholdedRelu",
       {row({-1.5, 0, 1.2, 2, 2.2})},
       {{"alpha", number(2)}},
       {{0, 0, 0, 0, 2.2}}},
      {"Round", {row({0.9, 2.5, 2.3, 1.5, -4.5, -1.1})}, {}, {{1, 2, 2, 2, -4, -1}}},
      {"Sign", {row({-3, 0, 2})}, {}, {{-1, 0, 1}}},
      {"Ceil", {row({-1.5, 1.2})}, {}, {{-1, 2}}},
      {"Floor", {row({-1.5, 1.2})}, {}, {{-2, 1}}},
      {"Reciprocal", {row({-4, 2})}, {}, {{-0.25, 0.5}}},
      {"Mod", {row({-4, 7, 5, 4, -7, 8}), row({2, -3, 8, -2, 3, 5})}, {}, {{0, -2, 5, 0, 2, 3}}},
      {"Mod",
       {row({-4.3, 7.2, 5, 4.3, -7.2, 8}), row({2.1, -3.4, 8, -2.1, 3.4, 5})},
       {{"fmod", whole(1)}},
       {{-0.1, 0.4, 5, 0.1, -0.4, 3}}},
      {"Pow", {row({1, 2, 3}), row({4, 5, 6})}, {}, {{1, 32, 729}}},
      {"PRelu", {row({-2, 3}), row({0.5, 0.5})}, {}, {{-1, 3}}},
      {"BitShift", {row({16, 4, 1}), row({1, 2, 3})}, {{"direction", text("RIGHT")}}, {{8, 1, 0}}},
      {"BitShift", {row({16, 4, 1}), row({1, 2, 3})}, {{"direction", text("LEFT")}}, {{32, 16, 8}}},
      {"BitwiseXor", {row({12, 5}), row({10, 5})}, {}, {{6, 0}}},
      {"Xor", {row({1, 1, 0}), row({1, 0, 0})}, {}, {{0, 1, 0}}},
      {"Clip", {row({-2, 0, 2}), scalar(-1), scalar(1)}, {}, {{-1, 0, 1}}},
      {"Where", {row({1, 0}), row({1, 2}), row({3, 4})}, {}, {{1, 4}}},
      {"Max", {row({3, 2, 1}), row({1, 4, 4}), row({2, 5, 3})}, {}, {{3, 5, 4}}},
      {"Mean", {row({3, 0, 2}), row({1, 3, 4}), row({2, 6, 6})}, {}, {{2, 3, 4}}},
      {"Cast", {row({-1.7, 2.9, 0})}, {{"to", text("int64")}}, {{-1, 2, 0}}},
      {"Cast", {row({-1.7, 2.9, 0})}, {{"to", text("bool")}}, {{1, 1, 0}}},
      {"Dropout", {row({1, 2})}, {}, {{1, 2}, {1, 1}}},
      {"Bernoulli", {row({0, 1, 0, 1})}, {}, {{0, 1, 0, 1}}},
      {"Trilu", {counting({3, 3}, 1)}, {}, {{1, 2, 3, 0, 5, 6, 0, 0, 9}}},
      {"Trilu",
       {counting({3, 3}, 1)},
       {{"upper", whole(0)}, {"k", whole(-1)}},
       {{0, 0, 0, 4, 0, 0, 7, 8, 0}}},
  };
  for (const Spot& spot : spots) check(spot);
}

TEST_CASE("reductions and normalisations compute what ONNX says") {
  const DenseTensor square{{2, 2}, {1, 2, 3, 4}};
  const Attributes last = {{"axes", ints({-1})}};
  const std::vector<Spot> spots = {
      {"ReduceL1", {square}, last, {{3, 7}}},
      {"ReduceL2", {square}, last, {{2.23606798, 5}}},
      {"ReduceLogSum", {square}, last, {{1.09861229, 1.94591015}}},
      {"ReduceLogSumExp", {square}, last, {{2.31326169, 4.31326169}}},
      {"ReduceMax", {square}, last, {{2, 4}}},
      {"ReduceMean", {square}, last, {{1.5, 3.5}}},
      {"ReduceMin", {square}, last, {{1, 3}}},
      {"ReduceProd", {square}, last, {{2, 12}}},
      {"ReduceSum", {square}, {}, {{10}}},
      {"ReduceSumSquare", {square}, last, {{5, 25}}},
      {"ReduceVariance", {square}, last, {{0.25, 0.25}}},
      {"GlobalAveragePool", {counting({1, 1, 3, 3}, 1)}, {}, {{5}}},
      {"GlobalMaxPool", {counting({1, 1, 3, 3}, 1)}, {}, {{9}}},
      {"GlobalLpPool", {DenseTensor{{1, 1, 2}, {3, 4}}}, {}, {{5}}},
      {"Softmax", {row({-1, 0, 1})}, {}, {{0.09003057, 0.24472847, 0.66524096}}},
      {"LogSoftmax", {row({-1, 0, 1})}, {}, {{-2.40760596, -1.40760596, -0.40760596}}},
      {"LayerNormalization",
       {row({1, 3}), row({1, 2}), row({0, 1})},
       {{"epsilon", number(0)}},
       {{-1, 3}, {2}, {1}}},
      {"RMSNormalization",
       {row({3, 4}), row({1, 1})},
       {{"epsilon", number(0)}},
       {{0.84852814, 1.13137085}}},
      {"LpNormalization", {row({3, 4})}, {}, {{0.6, 0.8}}},
      {"LpNormalization", {row({3, 4})}, {{"p", whole(1)}}, {{3.0 / 7, 4.0 / 7}}},
      {"MeanVarianceNormalization", {row({1, 3})}, {{"axes", ints({-1})}}, {{-1, 1}}},
      {"InstanceNormalization",
       {DenseTensor{{1, 2, 2}, {1, 3, 2, 6}}, row({1, 2}), row({0, 1})},
       {{"epsilon", number(0)}},
       {{-1, 1, -1, 3}}},
      {"GroupNormalization",
       {DenseTensor{{1, 2, 2}, {1, 3, 2, 6}}, row({1, 1}), row({0, 0})},
       {{"epsilon", number(0)}, {"num_groups", whole(1)}},
       {{-1.06904497, 0, -0.53452248, 1.60356745}}},
      {"BatchNormalization",
       {DenseTensor{{2, 1, 2}, {1, 3, 5, 7}}, row({1}), row({0}), row({0}), row({1})},
       {{"epsilon", number(0)}, {"training_mode", whole(1)}},
       {{-1.34164079, -0.4472136, 0.4472136, 1.34164079}, {0.4}, {1.4}}},
      {"BatchNormalization",
       {DenseTensor{{2, 1}, {1, 3}}, row({2}), row({1}), row({1}), row({4})},
       {{"epsilon", number(0)}},
       {{1, 3}}},
      {"SoftmaxCrossEntropyLoss",
       {DenseTensor{{1, 2}, {0, 0}}, row({1})},
       {},
       {{0.69314718}, {-0.69314718, -0.69314718}}},
      {"NegativeLogLikelihoodLoss",
       {DenseTensor{{2, 2}, {-1, -2, -3, -4}}, row({0, 1}), row({2, 3})},
       {},
       {{2.8}}},
      {"NegativeLogLikelihoodLoss",
       {DenseTensor{{2, 2}, {-1, -2, -3, -4}}, row({0, 1})},
       {{"ignore_index", whole(1)}},
       {{1}}},
      {"NegativeLogLikelihoodLoss",
       {DenseTensor{{2, 2}, {-1, -2, -3, -4}}, row({0, 1})},
       {{"reduction", text("none")}},
       {{1, 4}}},
  };
  for (const Spot& spot : spots) check(spot);
}

TEST_CASE("look-ups, scatters, joins and selections compute what ONNX says") {
  const DenseTensor pairs{{3, 2}, {1.0, 1.2, 2.3, 3.4, 4.5, 5.7}};
  const std::vector<Spot> spots = {
      {"Gather",
       {pairs, DenseTensor{{2, 2}, {0, 1, 1, 2}}},
       {},
       {{1.0, 1.2, 2.3, 3.4, 2.3, 3.4, 4.5, 5.7}}},
      {"Gather",
       {DenseTensor{{3, 3}, {1.0, 1.2, 1.9, 2.3, 3.4, 3.9, 4.5, 5.7, 5.9}},
        DenseTensor{{1, 2}, {0, -1}}},
       {{"axis", whole(1)}},
       {{1.0, 1.9, 2.3, 3.9, 4.5, 5.9}}},
      {"GatherElements",
       {DenseTensor{{2, 2}, {1, 2, 3, 4}}, DenseTensor{{2, 2}, {0, 0, 1, 0}}},
       {{"axis", whole(1)}},
       {{1, 1, 4, 3}}},
      {"GatherElements",
       {counting({3, 3}, 1), DenseTensor{{2, 3}, {1, 2, 0, 2, 0, 0}}},
       {},
       {{4, 8, 3, 7, 2, 3}}},
      {"GatherND", {counting({2, 2}, 0), DenseTensor{{2, 2}, {0, 0, 1, 1}}}, {}, {{0, 3}}},
      {"GatherND", {counting({2, 2}, 0), DenseTensor{{2, 1}, {1, 0}}}, {}, {{2, 3, 0, 1}}},
      {"GatherND",
       {counting({2, 2, 2}, 0), DenseTensor{{2, 1}, {1, 0}}},
       {{"batch_dims", whole(1)}},
       {{2, 3, 4, 5}}},
      {"ScatterElements",
       {DenseTensor::filled({3, 3}, 0.0),
        DenseTensor{{2, 3}, {1, 0, 2, 0, 2, 1}},
        DenseTensor{{2, 3}, {1.0, 1.1, 1.2, 2.0, 2.1, 2.2}}},
       {},
       {{2.0, 1.1, 0, 1.0, 0, 2.2, 0, 2.1, 1.2}}},
      {"ScatterElements",
       {DenseTensor{{1, 5}, {1, 2, 3, 4, 5}},
        DenseTensor{{1, 2}, {1, 1}},
        DenseTensor{{1, 2}, {1.1, 2.1}}},
       {{"axis", whole(1)}, {"reduction", text("add")}},
       {{1, 5.2, 3, 4, 5}}},
      {"ScatterND",
       {counting({8}, 1), DenseTensor{{4, 1}, {4, 3, 1, 7}}, row({9, 10, 11, 12})},
       {},
       {{1, 11, 3, 10, 9, 6, 7, 12}}},
      {"Concat",
       {DenseTensor{{1, 2}, {1, 2}}, DenseTensor{{1, 1}, {3}}},
       {{"axis", whole(1)}},
       {{1, 2, 3}}},
      {"Split", {row({1, 2, 3, 4, 5, 6})}, {{"split", ints({2, 4})}}, {{1, 2}, {3, 4, 5, 6}}},
      {"Split", {row({1, 2, 3, 4, 5, 6, 7})}, {}, {{1, 2, 3}, {4, 5, 6}, {7}}},
      {"Slice",
       {counting({2, 4}, 1)},
       {{"starts", ints({1, 0})},
        {"ends", ints({2, 3})},
        {"axes", ints({0, 1})},
        {"steps", ints({1, 2})}},
       {{5, 7}}},
      {"Slice",
       {counting({4}, 1)},
       {{"starts", ints({-1})}, {"ends", ints({-5})}, {"steps", ints({-1})}},
       {{4, 3, 2, 1}}},
      {"Pad", {row({1, 2})}, {{"pads", ints({2, 1})}, {"value", number(9)}}, {{9, 9, 1, 2, 9}}},
      {"Pad",
       {row({1, 2, 3})},
       {{"pads", ints({2, 1})}, {"mode", text("reflect")}},
       {{3, 2, 1, 2, 3, 2}}},
      {"Pad",
       {row({1, 2, 3})},
       {{"pads", ints({2, 1})}, {"mode", text("edge")}},
       {{1, 1, 1, 2, 3, 3}}},
      {"Pad",
       {row({1, 2, 3})},
       {{"pads", ints({2, 1})}, {"mode", text("wrap")}},
       {{2, 3, 1, 2, 3, 1}}},
      {"Tile",
       {DenseTensor{{2, 2}, {0, 1, 2, 3}}},
       {{"repeats", ints({1, 2})}},
       {{0, 1, 0, 1, 2, 3, 2, 3}}},
      {"TopK", {counting({2, 4}, 0)}, {{"k", whole(3)}}, {{3, 2, 1, 7, 6, 5}, {3, 2, 1, 3, 2, 1}}},
      {"Sort", {row({3, 1, 2})}, {}, {{1, 2, 3}, {1, 2, 0}}},
      {"CumSum", {counting({5}, 1)}, {{"axis", whole(0)}}, {{1, 3, 6, 10, 15}}},
      {"CumSum",
       {counting({5}, 1)},
       {{"axis", whole(0)}, {"exclusive", whole(1)}},
       {{0, 1, 3, 6, 10}}},
      {"CumSum",
       {counting({5}, 1)},
       {{"axis", whole(0)}, {"reverse", whole(1)}},
       {{15, 14, 12, 9, 5}}},
      {"ArgMax", {DenseTensor{{2, 2}, {2, 2, 3, 10}}}, {{"axis", whole(1)}}, {{0, 1}}},
      {"ArgMax",
       {DenseTensor{{2, 2}, {2, 2, 3, 10}}},
       {{"axis", whole(1)}, {"select_last_index", whole(1)}},
       {{1, 1}}},
      {"NonZero", {DenseTensor{{2, 2}, {1, 0, 1, 1}}}, {{"size", whole(3)}}, {{0, 1, 1, 0, 0, 1}}},
      {"Unique",
       {row({2, 1, 1, 3, 4, 3})},
       {{"size", whole(4)}},
       {{1, 2, 3, 4}, {1, 0, 3, 4}, {1, 0, 0, 2, 3, 2}, {2, 1, 2, 1}}},
      {"Unique",
       {row({2, 1, 1, 3, 4, 3})},
       {{"size", whole(4)}, {"sorted", whole(0)}},
       {{2, 1, 3, 4}, {0, 1, 3, 4}, {0, 1, 1, 2, 3, 2}, {1, 2, 2, 1}}},
      {"OneHot",
       {row({0, 2, -1}), row({2, 5})},
       {{"depth", whole(3)}},
       {{5, 2, 2, 2, 2, 5, 2, 2, 5}}},
      {"Range",
       {},
       {{"start", number(10)}, {"limit", number(4)}, {"delta", number(-2)}},
       {{10, 8, 6}}},
      {"Multinomial", {DenseTensor{{2, 2}, {100, 0, 0, 100}}}, {}, {{0, 1}}},
  };
  for (const Spot& spot : spots) check(spot);
}

TEST_CASE("products, windows, attention and experts compute what their pages say") {
  const DenseTensor image = counting({1, 1, 5, 5}, 0);
  const DenseTensor ones = DenseTensor::filled({1, 1, 3, 3}, 1.0);
  const DenseTensor from_one = counting({1, 1, 5, 5}, 1);
  const auto heads = [](Values values) {
    return DenseTensor{{1, 1, static_cast<std::int64_t>(values.size()), 1}, values};
  };
  const double log3 = std::log(3.0);
  const std::vector<Spot> spots = {
      {"MatMul",
       {DenseTensor{{2, 2}, {1, 2, 3, 4}}, DenseTensor{{2, 2}, {5, 6, 7, 8}}},
       {},
       {{19, 22, 43, 50}}},
      {"Gemm",
       {DenseTensor{{2, 1}, {1, 2}}, DenseTensor{{2, 2}, {3, 4, 5, 6}}, row({1, 1})},
       {{"transA", whole(1)}, {"alpha", number(2)}, {"beta", number(3)}},
       {{29, 35}}},
      {"Einsum",
       {DenseTensor{{2, 2}, {1, 2, 3, 4}}, DenseTensor{{2, 2}, {1, 1, 2, 2}}},
       {{"equation", text("ij,ij->i")}},
       {{3, 14}}},
      {"GroupedMatMul",
       {DenseTensor{{2, 1, 2}, {1, 2, 3, 4}}, DenseTensor{{2, 2, 1}, {1, 1, 10, 1}}},
       {},
       {{3, 34}}},
      {"Conv", {image, ones}, {}, {{54, 63, 72, 99, 108, 117, 144, 153, 162}}},
      {"Conv",
       {image, ones},
       {{"pads", ints({1, 1, 1, 1})}},
       {{12,  21, 27, 33,  24,  33,  54,  63, 72,  51,  63,  99, 108,
         117, 81, 93, 144, 153, 162, 111, 72, 111, 117, 123, 84}}},
      {"Conv",
       {image, ones},
       {{"pads", ints({1, 1, 1, 1})}, {"strides", ints({2, 2})}},
       {{12, 27, 24, 63, 108, 81, 72, 117, 84}}},
      {"Conv",
       {DenseTensor{{1, 2, 3}, {1, 2, 3, 4, 5, 6}},
        DenseTensor{{2, 1, 2}, {1, 1, 1, -1}},
        row({0, 10})},
       {{"group", whole(2)}, {"dilations", ints({2})}},
       {{4, 8}}},
      {"MaxPool",
       {from_one},
       {{"kernel_shape", ints({2, 2})}, {"strides", ints({2, 2})}},
       {{7, 9, 17, 19}, {6, 8, 16, 18}}},
      {"MaxPool",
       {from_one},
       {{"kernel_shape", ints({5, 5})}, {"pads", ints({2, 2, 2, 2})}},
       {{13, 14, 15, 15, 15, 18, 19, 20, 20, 20, 23, 24, 25,
         25, 25, 23, 24, 25, 25, 25, 23, 24, 25, 25, 25}}},
      {"AveragePool",
       {from_one},
       {{"kernel_shape", ints({3, 3})},
        {"strides", ints({2, 2})},
        {"auto_pad", text("SAME_UPPER")}},
       {{4, 5.5, 7, 11.5, 13, 14.5, 19, 20.5, 22}}},
      {"AveragePool",
       {from_one},
       {{"kernel_shape", ints({5, 5})},
        {"pads", ints({2, 2, 2, 2})},
        {"count_include_pad", whole(1)}},
       {{2.52, 3.6, 4.8,  4.08, 3.24, 4.56,  6.4,  8.4,  7.04, 5.52, 7.2,  10,  13,
         10.8, 8.4, 6.96, 9.6,  12.4, 10.24, 7.92, 6.12, 8.4,  10.8, 8.88, 6.84}}},
      {"LpPool", {DenseTensor{{1, 1, 2}, {3, 4}}}, {{"kernel_shape", ints({2})}}, {{5}}},
      {"Attention",
       {heads({0, log3}), heads({0, 1}), heads({1, 5})},
       {{"scale", number(1)}, {"is_causal", whole(1)}},
       {{1, 4}}},
      {"Attention",
       {heads({log3}), heads({1}), heads({5}), std::nullopt, heads({0}), heads({1})},
       {{"scale", number(1)}, {"is_causal", whole(1)}},
       {{4}, {0, 1}, {1, 5}}},
      {"Attention",
       {heads({0}), heads({0, 0}), heads({1, 5}), DenseTensor{{1, 2}, {log3, 0}}},
       {},
       {{2}}},
      {"RotaryEmbedding",
       {DenseTensor{{1, 1, 1, 4}, {1, 2, 3, 4}},
        DenseTensor{{1, 2}, {0, 1}},
        DenseTensor{{1, 2}, {1, 0}}},
       {},
       {{-3, 2, 1, 4}}},
      {"RotaryEmbedding",
       {DenseTensor{{1, 1, 1, 4}, {1, 2, 3, 4}},
        DenseTensor{{1, 2}, {0, 1}},
        DenseTensor{{1, 2}, {1, 0}}},
       {{"interleaved", whole(1)}},
       {{-2, 1, 3, 4}}},
      {"MoEDispatch",
       {DenseTensor{{4, 1}, {1, 2, 3, 4}}, DenseTensor{{4, 1}, {0, 0, 1, 0}}},
       {{"num_experts", whole(2)}},
       {{1, 2, 3, 0}}},
      {"MoECombine",
       {DenseTensor{{2, 2, 1}, {1, 2, 3, 9}},
        DenseTensor{{4, 1}, {0, 0, 1, 0}},
        DenseTensor{{4, 1}, {0.5, 0.5, 2, 1}}},
       {},
       {{0.5, 1, 6, 0}}},
  };
  for (const Spot& spot : spots) check(spot);
}

}  // namespace
}  // namespace meshplan::operator_meaning_test

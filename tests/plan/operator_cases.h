// SPDX-License-Identifier: Apache-2.0
// Small random operators of every type, with numbers in the domain of each.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "plan/operator_proof.h"

namespace meshplan::test {

/// What an operand's numbers are.
struct Numbers {
  enum class Kind { kReal, kPositive, kInside, kAboveOne, kTruth, kWhole };
  Kind kind = Kind::kReal;
  std::int64_t limit = 2;  ///< kWhole: 0 to limit - 1
  bool gradient = true;
};

inline const Numbers kRealNumbers{};
inline const Numbers kPositiveNumbers{Numbers::Kind::kPositive, 2, true};
inline const Numbers kNoGradient{Numbers::Kind::kReal, 2, false};
inline Numbers whole_below(std::int64_t limit) { return {Numbers::Kind::kWhole, limit, false}; }
inline const Numbers kTruthValues{Numbers::Kind::kTruth, 2, false};

class CaseBuilder {
 public:
  CaseBuilder(std::string type, Random& random) : random_(random) { case_.spec.type = type; }

  CaseBuilder& operand(const Shape& shape, const Numbers& numbers = kRealNumbers) {
    DenseTensor values = DenseTensor::filled(shape, 0.0);
    for (double& value : values.values) value = draw(numbers);
    return operand(std::move(values), numbers);
  }
  CaseBuilder& operand(DenseTensor values, const Numbers& numbers) {
    const DType dtype = numbers.kind == Numbers::Kind::kTruth   ? DType::kBool
                        : numbers.kind == Numbers::Kind::kWhole ? DType::kInt64
                                                                : DType::kFp32;
    case_.spec.inputs.push_back(TensorType{values.shape, dtype});
    case_.values.emplace_back(std::move(values));
    case_.gradients.push_back(numbers.gradient);
    return *this;
  }
  CaseBuilder& omitted() {
    case_.spec.inputs.emplace_back();
    case_.values.emplace_back();
    case_.gradients.push_back(false);
    return *this;
  }
  CaseBuilder& attribute(const std::string& name, Attribute value) {
    case_.spec.attributes[name] = std::move(value);
    return *this;
  }
  CaseBuilder& whole(const std::string& name, std::int64_t value) {
    return attribute(name, Attribute(value));
  }
  CaseBuilder& list(const std::string& name, std::vector<std::int64_t> values) {
    return attribute(name, Attribute(std::move(values)));
  }
  CaseBuilder& text(const std::string& name, const std::string& value) {
    return attribute(name, Attribute(value));
  }
  CaseBuilder& number(const std::string& name, double value) {
    return attribute(name, Attribute(value));
  }
  CaseBuilder& rule(const std::string& text) {
    case_.spec.rule = text;
    return *this;
  }
  CaseBuilder& outputs(int count) {
    case_.spec.output_count = count;
    return *this;
  }
  OperatorCase done() { return std::move(case_); }

 private:
  double draw(const Numbers& numbers) {
    switch (numbers.kind) {
      case Numbers::Kind::kReal:
        return real(random_, -2, 2);
      case Numbers::Kind::kPositive:
        return real(random_, 0.2, 2);
      case Numbers::Kind::kInside:
        return real(random_, -0.9, 0.9);
      case Numbers::Kind::kAboveOne:
        return real(random_, 1.1, 3);
      case Numbers::Kind::kTruth:
        return random_.chance(50) ? 1 : 0;
      case Numbers::Kind::kWhole:
        return static_cast<double>(random_.below(static_cast<std::size_t>(numbers.limit)));
    }
    return 0;
  }

  Random& random_;
  OperatorCase case_;
};

using CaseMaker = std::function<std::vector<OperatorCase>(Random&)>;

/// A size that many meshes divide.
inline std::int64_t size_of(Random& random) {
  return random.pick(std::vector<std::int64_t>{1, 2, 3, 4, 6, 8, 12});
}
inline Shape random_shape(Random& random, std::size_t rank, std::int64_t most = 200) {
  Shape shape;
  while (true) {
    shape.clear();
    for (std::size_t d = 0; d < rank; ++d) shape.push_back(size_of(random));
    if (element_count(shape) <= most) return shape;
  }
}

// --- elementwise -------------------------------------------------------------------------------

/// Shapes that broadcast to one another: sizes of 1 and missing dimensions.
inline Shape broadcastable(Random& random, const Shape& shape) {
  Shape other = shape;
  for (std::int64_t& size : other) {
    if (random.chance(25)) size = 1;
  }
  if (random.chance(30)) other.erase(other.begin());
  return other;
}

inline CaseMaker unary_case(const std::string& type, Numbers numbers = kRealNumbers) {
  return [=](Random& random) {
    std::vector<OperatorCase> cases;
    for (const std::size_t rank : {std::size_t{2}, std::size_t{3}})
      cases.push_back(
          CaseBuilder(type, random).operand(random_shape(random, rank), numbers).done());
    return cases;
  };
}

inline CaseMaker binary_case(const std::string& type, Numbers a, Numbers b) {
  return [=](Random& random) {
    std::vector<OperatorCase> cases;
    const Shape shape = random_shape(random, 2);
    cases.push_back(CaseBuilder(type, random).operand(shape, a).operand(shape, b).done());
    const Shape wide = random_shape(random, 3);
    const Shape narrow = broadcastable(random, wide);
    cases.push_back(CaseBuilder(type, random).operand(wide, a).operand(narrow, b).done());
    if (type != "PRelu")
      cases.push_back(CaseBuilder(type, random).operand(narrow, a).operand(wide, b).done());
    cases.push_back(CaseBuilder(type, random).operand({4, 6}, a).operand({6}, b).done());
    return cases;
  };
}

inline void add_elementwise(std::map<std::string, CaseMaker>& cases) {
  const Numbers inside{Numbers::Kind::kInside, 2, true};
  const Numbers above{Numbers::Kind::kAboveOne, 2, true};
  for (const char* type : {"Abs",         "Asinh",
                           "Atan",        "Ceil",
                           "Celu",        "Cos",
                           "Cosh",        "Elu",
                           "Erf",         "Exp",
                           "Floor",       "Gelu",
                           "HardSigmoid", "HardSwish",
                           "Identity",    "IsInf",
                           "IsNaN",       "LeakyRelu",
                           "Mish",        "Neg",
                           "Relu",        "Round",
                           "Selu",        "Shrink",
                           "Sigmoid",     "Sign",
                           "Silu",        "Sin",
                           "Sinh",        "Softplus",
                           "Softsign",    "Swish",
                           "Tanh",        "ThresholdedRelu"})
    cases[type] = unary_case(type);
  for (const char* type : {"Acos", "Asin", "Atanh", "Tan"}) cases[type] = unary_case(type, inside);
  cases["Acosh"] = unary_case("Acosh", above);
  for (const char* type : {"Log", "Reciprocal", "Sqrt"})
    cases[type] = unary_case(type, kPositiveNumbers);
  cases["Not"] = unary_case("Not", kTruthValues);
  cases["BitwiseNot"] = unary_case("BitwiseNot", whole_below(64));
  for (const char* type : {"Add", "Sub", "Mul"})
    cases[type] = binary_case(type, kRealNumbers, kRealNumbers);
  cases["Div"] = binary_case("Div", kRealNumbers, kPositiveNumbers);
  cases["Mod"] = binary_case("Mod", kRealNumbers, kPositiveNumbers);
  cases["Pow"] = binary_case("Pow", kPositiveNumbers, kRealNumbers);
  cases["PRelu"] = binary_case("PRelu", kRealNumbers, kRealNumbers);
  for (const char* type : {"Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"})
    cases[type] = binary_case(type, whole_below(3), whole_below(3));
  for (const char* type : {"And", "Or", "Xor"})
    cases[type] = binary_case(type, kTruthValues, kTruthValues);
  for (const char* type : {"BitwiseAnd", "BitwiseOr", "BitwiseXor"})
    cases[type] = binary_case(type, whole_below(64), whole_below(64));
  cases["BitShift"] = [](Random& random) {
    std::vector<OperatorCase> list;
    for (const char* direction : {"LEFT", "RIGHT"})
      list.push_back(CaseBuilder("BitShift", random)
                         .operand({4, 6}, whole_below(64))
                         .operand({6}, whole_below(5))
                         .text("direction", direction)
                         .done());
    return list;
  };
  cases["Gelu"] = [](Random& random) {
    return std::vector<OperatorCase>{
        CaseBuilder("Gelu", random).operand({6, 8}).done(),
        CaseBuilder("Gelu", random).operand({6, 8}).text("approximate", "tanh").done()};
  };
  cases["Clip"] = [](Random& random) {
    return std::vector<OperatorCase>{
        CaseBuilder("Clip", random).operand({6, 8}).number("min", -0.7).number("max", 0.9).done(),
        CaseBuilder("Clip", random)
            .operand({4, 6, 2})
            .operand(DenseTensor{{}, {-0.5}}, kNoGradient)
            .operand(DenseTensor{{}, {0.8}}, kNoGradient)
            .done(),
        CaseBuilder("Clip", random).operand({12}).omitted().omitted().done()};
  };
  cases["Where"] = [](Random& random) {
    const Shape shape = random_shape(random, 3);
    return std::vector<OperatorCase>{CaseBuilder("Where", random)
                                         .operand({4, 6}, kTruthValues)
                                         .operand({4, 6})
                                         .operand({4, 6})
                                         .done(),
                                     CaseBuilder("Where", random)
                                         .operand(broadcastable(random, shape), kTruthValues)
                                         .operand(shape)
                                         .operand(broadcastable(random, shape))
                                         .done()};
  };
  cases["Cast"] = [](Random& random) {
    std::vector<OperatorCase> list;
    for (const char* to : {"fp64", "fp32", "bf16", "int64", "bool"})
      list.push_back(CaseBuilder("Cast", random).operand({6, 4}).text("to", to).done());
    return list;
  };
  cases["CastLike"] = [](Random& random) {
    return std::vector<OperatorCase>{
        CaseBuilder("CastLike", random).operand({6, 4}).operand({3}, kNoGradient).done()};
  };
  for (const char* type : {"Max", "Min", "Mean", "Sum"}) {
    cases[type] = [type](Random& random) {
      const Shape shape = random_shape(random, 2);
      return std::vector<OperatorCase>{
          CaseBuilder(type, random).operand(random_shape(random, 2)).done(),
          CaseBuilder(type, random).operand({4, 6}).operand({6}).operand({4, 1}).done(),
          CaseBuilder(type, random).operand(broadcastable(random, shape)).operand(shape).done()};
    };
  }
  cases["Dropout"] = [](Random& random) {
    return std::vector<OperatorCase>{
        CaseBuilder("Dropout", random).operand({6, 8}).outputs(2).done(),
        CaseBuilder("Dropout", random)
            .operand({6, 8})
            .operand(DenseTensor{{}, {0.4}}, kNoGradient)
            .operand(DenseTensor{{}, {1}}, kTruthValues)
            .outputs(2)
            .done()};
  };
  cases["Bernoulli"] = unary_case("Bernoulli", {Numbers::Kind::kInside, 2, false});
  for (const char* type : {"RandomNormalLike", "RandomUniformLike"})
    cases[type] = unary_case(type, kNoGradient);
  cases["Trilu"] = [](Random& random) {
    return std::vector<OperatorCase>{
        CaseBuilder("Trilu", random).operand({6, 4, 4}).done(),
        CaseBuilder("Trilu", random).operand({4, 6, 8}).whole("upper", 0).whole("k", -1).done()};
  };
}

// --- products ----------------------------------------------------------------------------------

inline void add_products(std::map<std::string, CaseMaker>& cases) {
  cases["MatMul"] = [](Random& random) {
    const auto n = [&] { return size_of(random); };
    std::vector<OperatorCase> list;
    const std::int64_t k = n();
    list.push_back(CaseBuilder("MatMul", random).operand({n(), k}).operand({k, n()}).done());
    list.push_back(CaseBuilder("MatMul", random).operand({2, 6, 4}).operand({4, 6}).done());
    list.push_back(CaseBuilder("MatMul", random).operand({2, 3, 4, 4}).operand({3, 4, 2}).done());
    list.push_back(
        CaseBuilder("MatMul", random).operand({2, 1, 4, 4}).operand({1, 3, 4, 4}).done());
    list.push_back(CaseBuilder("MatMul", random).operand({6}).operand({6}).done());
    list.push_back(CaseBuilder("MatMul", random).operand({4}).operand({3, 4, 6}).done());
    list.push_back(CaseBuilder("MatMul", random).operand({3, 6, 4}).operand({4}).done());
    list.push_back(CaseBuilder("MatMul", random)
                       .operand({2, 4, 6})
                       .operand({2, 12, 4})
                       .whole("transpose_a", 1)
                       .whole("transpose_b", 1)
                       .done());
    return list;
  };
  cases["Gemm"] = [](Random& random) {
    return std::vector<OperatorCase>{
        CaseBuilder("Gemm", random).operand({6, 4}).operand({4, 8}).done(),
        CaseBuilder("Gemm", random).operand({6, 4}).operand({4, 8}).operand({8}).done(),
        CaseBuilder("Gemm", random)
            .operand({4, 6})
            .operand({4, 4})
            .operand({6, 1})
            .whole("transA", 1)
            .whole("transB", 1)
            .number("alpha", 0.5)
            .number("beta", 2.0)
            .done(),
        CaseBuilder("Gemm", random).operand({6, 4}).operand({4, 8}).operand(Shape{}).done()};
  };
}

// --- reductions --------------------------------------------------------------------------------

inline void add_reductions(std::map<std::string, CaseMaker>& cases) {
  for (const char* type : {"ReduceL1",
                           "ReduceL2",
                           "ReduceLogSum",
                           "ReduceLogSumExp",
                           "ReduceMax",
                           "ReduceMean",
                           "ReduceMin",
                           "ReduceProd",
                           "ReduceSum",
                           "ReduceSumSquare",
                           "ReduceVariance"}) {
    cases[type] = [type](Random& random) {
      const Numbers numbers = std::string(type) == "ReduceLogSum" ? kPositiveNumbers : kRealNumbers;
      return std::vector<OperatorCase>{CaseBuilder(type, random)
                                           .operand(random_shape(random, 3), numbers)
                                           .list("axes", {-1})
                                           .done(),
                                       CaseBuilder(type, random)
                                           .operand({4, 6, 4}, numbers)
                                           .list("axes", {0, 2})
                                           .whole("keepdims", 0)
                                           .done(),
                                       CaseBuilder(type, random).operand({4, 6}, numbers).done()};
    };
  }
  for (const char* type : {"GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool"}) {
    cases[type] = [type](Random& random) {
      return std::vector<OperatorCase>{CaseBuilder(type, random).operand({2, 3, 4, 6}).done(),
                                       CaseBuilder(type, random).operand({4, 2, 8}).done()};
    };
  }
}

// --- normalisations ----------------------------------------------------------------------------

inline void add_normalizations(std::map<std::string, CaseMaker>& cases) {
  cases["RMSNormalization"] = [](Random& random) {
    return std::vector<OperatorCase>{
        CaseBuilder("RMSNormalization", random).operand({4, 6, 8}).operand({8}).done(),
        CaseBuilder("RMSNormalization", random).operand({6, 12}).operand({12}).done()};
  };
  for (const char* type : {"Softmax", "LogSoftmax"}) {
    cases[type] = [type](Random& random) {
      return std::vector<OperatorCase>{
          CaseBuilder(type, random).operand(random_shape(random, 3)).done(),
          CaseBuilder(type, random).operand({6, 8, 4}).whole("axis", 1).done()};
    };
  }
  cases["SoftmaxCrossEntropyLoss"] = [](Random& random) {
    const auto make = [&](const char* reduction) {
      CaseBuilder builder("SoftmaxCrossEntropyLoss", random);
      return builder.operand({4, 12, 6})
          .operand({4, 6}, whole_below(12))
          .text("reduction", reduction);
    };
    std::vector<OperatorCase> list;
    for (const char* reduction : {"mean", "sum", "none"}) list.push_back(make(reduction).done());
    list.push_back(make("mean").whole("ignore_index", 3).done());
    list.push_back(make("mean").operand({12}, {Numbers::Kind::kPositive, 2, false}).done());
    return list;
  };
}

// --- shapes ------------------------------------------------------------------------------------

inline void add_shapes(std::map<std::string, CaseMaker>& cases) {
  cases["Reshape"] = [](Random& random) {
    std::vector<OperatorCase> list;
    for (const auto& [from, to] : std::vector<std::pair<Shape, Shape>>{{{4, 6, 8}, {24, 8}},
                                                                       {{24, 8}, {4, 6, -1}},
                                                                       {{6, 4}, {4, 6}},
                                                                       {{8, 4}, {2, 16}},
                                                                       {{1, 12, 1}, {3, 1, 4}},
                                                                       {{2, 2, 2, 6}, {8, 6}}})
      list.push_back(CaseBuilder("Reshape", random).operand(from).list("shape", to).done());
    return list;
  };
  cases["Flatten"] = [](Random& random) {
    return std::vector<OperatorCase>{
        CaseBuilder("Flatten", random).operand({4, 6, 2}).done(),
        CaseBuilder("Flatten", random).operand({2, 6, 4}).whole("axis", 2).done()};
  };
  cases["Squeeze"] = [](Random& random) {
    return std::vector<OperatorCase>{CaseBuilder("Squeeze", random).operand({1, 6, 1, 4}).done()};
  };
  cases["Unsqueeze"] = [](Random& random) {
    return std::vector<OperatorCase>{
        CaseBuilder("Unsqueeze", random).operand({6, 4}).list("axes", {0, -1}).done()};
  };
  cases["Transpose"] = [](Random& random) {
    return std::vector<OperatorCase>{
        CaseBuilder("Transpose", random).operand({4, 4, 6}).list("perm", {1, 0, 2}).done(),
        CaseBuilder("Transpose", random).operand(random_shape(random, 3)).done()};
  };
  cases["Expand"] = [](Random& random) {
    return std::vector<OperatorCase>{
        CaseBuilder("Expand", random).operand({6, 1}).list("shape", {4, 1, 8}).done(),
        CaseBuilder("Expand", random).operand({1}).list("shape", {6, 4}).done()};
  };
}

// --- attention ---------------------------------------------------------------------------------

inline void add_attention(std::map<std::string, CaseMaker>& cases) {
  cases["Attention"] = [](Random& random) {
    std::vector<OperatorCase> list;
    list.push_back(CaseBuilder("Attention", random)
                       .operand({2, 4, 6, 3})
                       .operand({2, 2, 6, 3})
                       .operand({2, 2, 6, 2})
                       .whole("is_causal", 1)
                       .done());
    list.push_back(CaseBuilder("Attention", random)
                       .operand({2, 3, 4, 2})
                       .operand({2, 3, 8, 2})
                       .operand({2, 3, 8, 2})
                       .operand({4, 8}, kTruthValues)
                       .done());
    list.back().values[3]->values.assign(32, 1);
    for (std::size_t i = 0; i < 32; i += 3) list.back().values[3]->values[i] = 0;
    list.push_back(CaseBuilder("Attention", random)
                       .operand({2, 4, 4, 2})
                       .operand({2, 2, 4, 2})
                       .operand({2, 2, 4, 2})
                       .operand({1, 4, 1, 4}, kNoGradient)
                       .number("scale", 0.3)
                       .number("softcap", 2.0)
                       .done());
    list.push_back(CaseBuilder("Attention", random)
                       .operand({2, 4, 6, 2})
                       .operand({2, 2, 6, 2})
                       .operand({2, 2, 6, 2})
                       .omitted()
                       .omitted()
                       .omitted()
                       .omitted()
                       .operand({4})
                       .whole("is_causal", 1)
                       .whole("sliding_window", 3)
                       .done());
    list.push_back(CaseBuilder("Attention", random)
                       .operand({2, 6, 16})
                       .operand({2, 6, 8})
                       .operand({2, 6, 4})
                       .whole("q_num_heads", 4)
                       .whole("kv_num_heads", 2)
                       .whole("is_causal", 1)
                       .done());
    list.push_back(CaseBuilder("Attention", random)
                       .operand({2, 4, 4, 2})
                       .operand({2, 2, 4, 2})
                       .operand({2, 2, 4, 3})
                       .omitted()
                       .operand({2, 2, 3, 2})
                       .operand({2, 2, 3, 3})
                       .whole("is_causal", 1)
                       .outputs(3)
                       .done());
    return list;
  };
  cases["RotaryEmbedding"] = [](Random& random) {
    return std::vector<OperatorCase>{CaseBuilder("RotaryEmbedding", random)
                                         .operand({2, 4, 6, 4})
                                         .operand({6, 2}, kNoGradient)
                                         .operand({6, 2}, kNoGradient)
                                         .done(),
                                     CaseBuilder("RotaryEmbedding", random)
                                         .operand({2, 3, 4, 6})
                                         .operand({2, 4, 2}, kNoGradient)
                                         .operand({2, 4, 2}, kNoGradient)
                                         .whole("rotary_embedding_dim", 4)
                                         .whole("interleaved", 1)
                                         .done(),
                                     CaseBuilder("RotaryEmbedding", random)
                                         .operand({2, 2, 6, 4})
                                         .operand({9, 2}, kNoGradient)
                                         .operand({9, 2}, kNoGradient)
                                         .operand({2, 6}, whole_below(9))
                                         .done()};
  };
}

// --- look-ups and scatters ---------------------------------------------------------------------

inline void add_gathers(std::map<std::string, CaseMaker>& cases) {
  cases["Gather"] = [](Random& random) {
    return std::vector<OperatorCase>{
        CaseBuilder("Gather", random).operand({12, 4}).operand({6, 4}, whole_below(12)).done(),
        CaseBuilder("Gather", random)
            .operand({4, 6, 2})
            .operand({8}, whole_below(6))
            .whole("axis", 1)
            .done(),
        CaseBuilder("Gather", random).operand({6}).operand(Shape{}, whole_below(6)).done()};
  };
  cases["GatherElements"] = [](Random& random) {
    return std::vector<OperatorCase>{CaseBuilder("GatherElements", random)
                                         .operand({6, 4})
                                         .operand({6, 4}, whole_below(6))
                                         .done(),
                                     CaseBuilder("GatherElements", random)
                                         .operand({4, 6, 3})
                                         .operand({4, 8, 2}, whole_below(6))
                                         .whole("axis", 1)
                                         .done()};
  };
  cases["GatherND"] = [](Random& random) {
    return std::vector<OperatorCase>{
        CaseBuilder("GatherND", random).operand({4, 6}).operand({6, 2}, whole_below(4)).done(),
        CaseBuilder("GatherND", random).operand({6, 4, 2}).operand({4, 1}, whole_below(6)).done(),
        CaseBuilder("GatherND", random)
            .operand({4, 6, 3})
            .operand({4, 2, 1}, whole_below(6))
            .whole("batch_dims", 1)
            .done()};
  };
  for (const char* reduction : {"none", "add", "mul", "max", "min"}) {
    const std::string how = reduction;
    const auto elements = [how](Random& random) {
      std::vector<OperatorCase> list;
      list.push_back(CaseBuilder("ScatterElements", random)
                         .operand({6, 4})
                         .operand({8, 4}, whole_below(6))
                         .operand({8, 4})
                         .text("reduction", how)
                         .done());
      list.push_back(CaseBuilder("ScatterElements", random)
                         .operand({4, 6, 3})
                         .operand({4, 4, 2}, whole_below(6))
                         .operand({4, 4, 2})
                         .whole("axis", 1)
                         .text("reduction", how)
                         .done());
      return list;
    };
    const auto nd = [how](Random& random) {
      std::vector<OperatorCase> list;
      list.push_back(CaseBuilder("ScatterND", random)
                         .operand({6, 4, 2})
                         .operand({4, 1}, whole_below(6))
                         .operand({4, 4, 2})
                         .text("reduction", how)
                         .done());
      list.push_back(CaseBuilder("ScatterND", random)
                         .operand({4, 6})
                         .operand({2, 6, 2}, whole_below(4))
                         .operand({2, 6})
                         .text("reduction", how)
                         .done());
      return list;
    };
    for (const auto& [type, maker] :
         std::map<std::string, CaseMaker>{{"ScatterElements", elements}, {"ScatterND", nd}}) {
      const CaseMaker before = cases[type];
      const CaseMaker add = maker;
      cases[type] = [before, add](Random& random) {
        std::vector<OperatorCase> list = before ? before(random) : std::vector<OperatorCase>();
        for (OperatorCase& c : add(random)) list.push_back(std::move(c));
        return list;
      };
    }
  }
}

// --- joins and selections ----------------------------------------------------------------------

inline void add_joins(std::map<std::string, CaseMaker>& cases) {
  cases["Concat"] = [](Random& random) {
    CaseBuilder four("Concat", random);
    for (int i = 0; i < 4; ++i) four.operand({4, 2, 6});
    return std::vector<OperatorCase>{
        CaseBuilder("Concat", random).operand({4, 6}).operand({4, 6}).whole("axis", 1).done(),
        CaseBuilder("Concat", random)
            .operand({6, 4})
            .operand({6, 2})
            .operand({6, 6})
            .whole("axis", -1)
            .done(),
        four.whole("axis", 1).done()};
  };
  cases["Split"] = [](Random& random) {
    return std::vector<OperatorCase>{
        CaseBuilder("Split", random).operand({4, 12}).whole("axis", 1).outputs(2).done(),
        CaseBuilder("Split", random).operand({6, 4}).outputs(3).done(),
        CaseBuilder("Split", random)
            .operand({4, 12})
            .whole("axis", 1)
            .list("split", {3, 8, 1})
            .outputs(3)
            .done()};
  };
  cases["Slice"] = [](Random& random) {
    return std::vector<OperatorCase>{CaseBuilder("Slice", random)
                                         .operand({4, 12})
                                         .list("starts", {6})
                                         .list("ends", {12})
                                         .list("axes", {1})
                                         .done(),
                                     CaseBuilder("Slice", random)
                                         .operand({8, 6})
                                         .list("starts", {1, 0})
                                         .list("ends", {-1, 100})
                                         .done(),
                                     CaseBuilder("Slice", random)
                                         .operand({6, 8})
                                         .list("starts", {-1})
                                         .list("ends", {-100})
                                         .list("axes", {1})
                                         .list("steps", {-2})
                                         .done()};
  };
  cases["Pad"] = [](Random& random) {
    std::vector<OperatorCase> list;
    list.push_back(CaseBuilder("Pad", random)
                       .operand({4, 6, 2})
                       .list("pads", {0, 1, 0, 0, 2, 0})
                       .number("value", 1.5)
                       .done());
    for (const char* mode : {"constant", "reflect", "edge", "wrap"})
      list.push_back(CaseBuilder("Pad", random)
                         .operand({6, 4})
                         .list("pads", {2, 1})
                         .list("axes", {1})
                         .text("mode", mode)
                         .done());
    list.push_back(CaseBuilder("Pad", random).operand({6, 4}).list("pads", {0, -1, 0, 2}).done());
    return list;
  };
  cases["Tile"] = [](Random& random) {
    return std::vector<OperatorCase>{
        CaseBuilder("Tile", random).operand({4, 2}).list("repeats", {1, 6}).done(),
        CaseBuilder("Tile", random).operand({4, 4}).list("repeats", {2, 2}).done()};
  };
  cases["TopK"] = [](Random& random) {
    return std::vector<OperatorCase>{
        CaseBuilder("TopK", random).operand({6, 8}).whole("k", 3).outputs(2).done(),
        CaseBuilder("TopK", random)
            .operand({4, 6, 4})
            .whole("k", 2)
            .whole("axis", 1)
            .whole("largest", 0)
            .outputs(2)
            .done()};
  };
  cases["Sort"] = [](Random& random) {
    return std::vector<OperatorCase>{
        CaseBuilder("Sort", random).operand({6, 8}).outputs(2).done(),
        CaseBuilder("Sort", random).operand({4, 6}).whole("axis", 0).done()};
  };
  cases["CumSum"] = [](Random& random) {
    return std::vector<OperatorCase>{
        CaseBuilder("CumSum", random).operand({6, 4, 2}).whole("axis", 1).done(),
        CaseBuilder("CumSum", random)
            .operand({4, 6})
            .whole("axis", 0)
            .whole("exclusive", 1)
            .whole("reverse", 1)
            .done()};
  };
  for (const char* type : {"ArgMax", "ArgMin"}) {
    cases[type] = [type](Random& random) {
      return std::vector<OperatorCase>{CaseBuilder(type, random).operand({4, 6}).done(),
                                       CaseBuilder(type, random)
                                           .operand({6, 4, 2}, whole_below(2))
                                           .whole("axis", 1)
                                           .whole("keepdims", 0)
                                           .whole("select_last_index", 1)
                                           .done()};
    };
  }
  cases["NonZero"] = [](Random& random) {
    return std::vector<OperatorCase>{
        CaseBuilder("NonZero", random).operand({4, 6}, kTruthValues).done(),
        CaseBuilder("NonZero", random).operand({8}, whole_below(3)).whole("size", 3).done()};
  };
  cases["Unique"] = [](Random& random) {
    return std::vector<OperatorCase>{
        CaseBuilder("Unique", random).operand({4, 3}, whole_below(5)).outputs(4).done(),
        CaseBuilder("Unique", random)
            .operand({6, 2}, whole_below(2))
            .whole("axis", 0)
            .whole("sorted", 0)
            .outputs(4)
            .done()};
  };
}

// --- windows -----------------------------------------------------------------------------------

inline void add_windows(std::map<std::string, CaseMaker>& cases) {
  cases["Conv"] = [](Random& random) {
    return std::vector<OperatorCase>{
        CaseBuilder("Conv", random)
            .operand({2, 4, 8, 6})
            .operand({6, 4, 3, 3})
            .operand({6})
            .list("pads", {1, 1, 1, 1})
            .done(),
        CaseBuilder("Conv", random)
            .operand({2, 4, 12})
            .operand({4, 1, 3})
            .whole("group", 4)
            .list("strides", {2})
            .list("pads", {1, 1})
            .done(),
        CaseBuilder("Conv", random)
            .operand({2, 4, 12})
            .operand({4, 2, 2})
            .operand({4})
            .whole("group", 2)
            .list("dilations", {2})
            .text("auto_pad", "SAME_UPPER")
            .done(),
        CaseBuilder("Conv", random).operand({2, 2, 6}).operand({2, 2, 1}).done(),
        CaseBuilder("Conv", random)
            .operand({1, 2, 4, 4, 4})
            .operand({2, 2, 2, 2, 2})
            .list("strides", {2, 2, 2})
            .done(),
        CaseBuilder("Conv", random).operand({2, 2, 8}).operand({2, 2, 3}).done()};
  };
  for (const char* type : {"AveragePool", "LpPool", "MaxPool"}) {
    cases[type] = [type](Random& random) {
      const int outputs = std::string(type) == "MaxPool" ? 2 : 1;
      std::vector<OperatorCase> list;
      list.push_back(CaseBuilder(type, random)
                         .operand({2, 2, 8, 6})
                         .list("kernel_shape", {2, 2})
                         .list("strides", {2, 2})
                         .outputs(outputs)
                         .done());
      list.push_back(CaseBuilder(type, random)
                         .operand({2, 3, 12})
                         .list("kernel_shape", {3})
                         .list("pads", {1, 1})
                         .outputs(outputs)
                         .done());
      list.push_back(CaseBuilder(type, random)
                         .operand({1, 2, 8})
                         .list("kernel_shape", {3})
                         .list("strides", {2})
                         .whole("ceil_mode", 1)
                         .list("dilations", {1})
                         .outputs(outputs)
                         .done());
      if (outputs == 1)
        list.push_back(CaseBuilder(type, random)
                           .operand({2, 2, 8})
                           .list("kernel_shape", {3})
                           .list("pads", {1, 1})
                           .whole("count_include_pad", 1)
                           .done());
      return list;
    };
  }
}

// --- more norms and losses ---------------------------------------------------------------------

inline void add_more_norms(std::map<std::string, CaseMaker>& cases) {
  cases["LayerNormalization"] = [](Random& random) {
    return std::vector<OperatorCase>{
        CaseBuilder("LayerNormalization", random).operand({4, 6, 8}).operand({8}).done(),
        CaseBuilder("LayerNormalization", random)
            .operand({6, 4, 6})
            .operand({4, 6})
            .operand({4, 6})
            .whole("axis", 1)
            .outputs(3)
            .done()};
  };
  cases["GroupNormalization"] = [](Random& random) {
    return std::vector<OperatorCase>{CaseBuilder("GroupNormalization", random)
                                         .operand({2, 12, 6})
                                         .operand({12})
                                         .operand({12})
                                         .whole("num_groups", 2)
                                         .done(),
                                     CaseBuilder("GroupNormalization", random)
                                         .operand({2, 8, 2, 4})
                                         .operand({4})
                                         .operand({4})
                                         .whole("num_groups", 4)
                                         .done()};
  };
  cases["InstanceNormalization"] = [](Random& random) {
    return std::vector<OperatorCase>{CaseBuilder("InstanceNormalization", random)
                                         .operand({2, 6, 4, 2})
                                         .operand({6})
                                         .operand({6})
                                         .done()};
  };
  cases["BatchNormalization"] = [](Random& random) {
    const auto make = [&](const Shape& x, std::int64_t training, int outputs) {
      CaseBuilder builder("BatchNormalization", random);
      const Shape c = {x[1]};
      const Numbers variance{Numbers::Kind::kPositive, 2, false};
      builder.operand(x).operand(c).operand(c).operand(c, kNoGradient).operand(c, variance);
      OperatorCase made = builder.whole("training_mode", training).outputs(outputs).done();
      made.smooth_results = 1;  // running statistics
      return made;
    };
    return std::vector<OperatorCase>{
        make({4, 6, 2}, 0, 1), make({4, 6, 2}, 1, 3), make({6, 4, 2, 2}, 1, 1), make({8, 4}, 1, 1)};
  };
  cases["LpNormalization"] = [](Random& random) {
    return std::vector<OperatorCase>{CaseBuilder("LpNormalization", random).operand({6, 8}).done(),
                                     CaseBuilder("LpNormalization", random)
                                         .operand({4, 6, 2})
                                         .whole("axis", 1)
                                         .whole("p", 1)
                                         .done()};
  };
  cases["MeanVarianceNormalization"] = [](Random& random) {
    return std::vector<OperatorCase>{
        CaseBuilder("MeanVarianceNormalization", random).operand({2, 6, 4, 2}).done(),
        CaseBuilder("MeanVarianceNormalization", random).operand({6, 4}).list("axes", {-1}).done()};
  };
  cases["NegativeLogLikelihoodLoss"] = [](Random& random) {
    const Numbers weights{Numbers::Kind::kPositive, 2, false};
    return std::vector<OperatorCase>{CaseBuilder("NegativeLogLikelihoodLoss", random)
                                         .operand({4, 6})
                                         .operand({4}, whole_below(6))
                                         .done(),
                                     CaseBuilder("NegativeLogLikelihoodLoss", random)
                                         .operand({4, 6, 2})
                                         .operand({4, 2}, whole_below(6))
                                         .operand({6}, weights)
                                         .text("reduction", "none")
                                         .done(),
                                     CaseBuilder("NegativeLogLikelihoodLoss", random)
                                         .operand({4, 6, 2})
                                         .operand({4, 2}, whole_below(6))
                                         .operand({6}, weights)
                                         .whole("ignore_index", 2)
                                         .done()};
  };
  const CaseMaker losses = cases["SoftmaxCrossEntropyLoss"];
  cases["SoftmaxCrossEntropyLoss"] = [losses](Random& random) {
    std::vector<OperatorCase> list = losses(random);
    list.push_back(CaseBuilder("SoftmaxCrossEntropyLoss", random)
                       .operand({6, 4})
                       .operand({6}, whole_below(4))
                       .outputs(2)
                       .done());
    return list;
  };
}

// --- generators, experts, products of any form -------------------------------------------------

inline void add_others(std::map<std::string, CaseMaker>& cases) {
  cases["Constant"] = [](Random& random) {
    return std::vector<OperatorCase>{
        CaseBuilder("Constant", random).list("shape", {4, 6}).done(),
        CaseBuilder("Constant", random).list("value_ints", {5, 4, 3, 2, 1, 0}).done(),
        CaseBuilder("Constant", random).number("value_float", 1.5).done()};
  };
  cases["ConstantOfShape"] = [](Random& random) {
    return std::vector<OperatorCase>{
        CaseBuilder("ConstantOfShape", random).list("shape", {4, 6}).number("value", 2).done()};
  };
  for (const char* type : {"RandomNormal", "RandomUniform"}) {
    cases[type] = [type](Random& random) {
      return std::vector<OperatorCase>{CaseBuilder(type, random).list("shape", {4, 6, 2}).done()};
    };
  }
  cases["Range"] = [](Random& random) {
    return std::vector<OperatorCase>{CaseBuilder("Range", random).whole("limit", 12).done(),
                                     CaseBuilder("Range", random)
                                         .number("start", 3)
                                         .number("limit", -1)
                                         .number("delta", -0.5)
                                         .done()};
  };
  cases["Multinomial"] = [](Random& random) {
    return std::vector<OperatorCase>{CaseBuilder("Multinomial", random)
                                         .operand({6, 4}, kNoGradient)
                                         .whole("sample_size", 8)
                                         .done()};
  };
  cases["OneHot"] = [](Random& random) {
    return std::vector<OperatorCase>{CaseBuilder("OneHot", random)
                                         .operand({4, 2}, whole_below(6))
                                         .operand(DenseTensor{{2}, {-1, 2}}, kNoGradient)
                                         .whole("depth", 6)
                                         .whole("axis", 1)
                                         .done()};
  };
  cases["Einsum"] = [](Random& random) {
    return std::vector<OperatorCase>{
        CaseBuilder("Einsum", random)
            .operand({2, 4, 6})
            .operand({2, 6, 3})
            .text("equation", "bij,bjk->bik")
            .done(),
        CaseBuilder("Einsum", random).operand({4, 6, 2}).text("equation", "abc->ca").done(),
        CaseBuilder("Einsum", random)
            .operand({2, 3, 4})
            .operand({4, 6})
            .text("equation", "...i,ij")
            .done(),
        CaseBuilder("Einsum", random)
            .operand({4, 2})
            .operand({2, 6})
            .operand({6, 4})
            .text("equation", "ab,bc,cd->ad")
            .done(),
        CaseBuilder("Einsum", random)
            .operand({1, 4, 6})
            .operand({3, 6, 2})
            .text("equation", "...ab,...bc->...ac")
            .done()};
  };
  cases["GroupedMatMul"] = [](Random& random) {
    return std::vector<OperatorCase>{
        CaseBuilder("GroupedMatMul", random).operand({4, 6, 2}).operand({4, 2, 6}).done(),
        CaseBuilder("GroupedMatMul", random)
            .operand({6, 2, 4})
            .operand({6, 8, 4})
            .whole("transpose_b", 1)
            .done()};
  };
  cases["MoEDispatch"] = [](Random& random) {
    return std::vector<OperatorCase>{CaseBuilder("MoEDispatch", random)
                                         .operand({12, 4})
                                         .operand({12, 2}, whole_below(6))
                                         .whole("num_experts", 6)
                                         .done(),
                                     CaseBuilder("MoEDispatch", random)
                                         .operand({24, 2})
                                         .operand({24, 1}, whole_below(4))
                                         .whole("num_experts", 4)
                                         .whole("groups", 4)
                                         .number("capacity_factor", 1.25)
                                         .done()};
  };
  cases["MoECombine"] = [](Random& random) {
    return std::vector<OperatorCase>{CaseBuilder("MoECombine", random)
                                         .operand({6, 4, 4})
                                         .operand({12, 2}, whole_below(6))
                                         .operand({12, 2})
                                         .done(),
                                     CaseBuilder("MoECombine", random)
                                         .operand({4, 8, 2})
                                         .operand({24, 1}, whole_below(4))
                                         .whole("groups", 4)
                                         .done()};
  };
}

// --- of the user's own ---------------------------------------------------------------------------

/// One rule of every kind; what such an operator does follows from it.
inline void add_custom(std::map<std::string, CaseMaker>& cases) {
  cases["Custom"] = [](Random& random) {
    struct Row {
      std::string rule;
      std::vector<Shape> operands;
      int results = 1;
    };
    const std::vector<Row> rows = {
        {"x.. -> x..", {{4, 6}}},
        {"b s h, h f -> b s f ; sum:h lin:x|y", {{4, 6, 4}, {4, 6}}},
        {"b s h, h f -> b s f ; sum:h", {{4, 6, 4}, {4, 6}}},
        {"b s h, h f, f -> b s f ; sum:h lin:x|y add:z", {{2, 6, 4}, {4, 6}, {6}}},
        {"b k, k, b -> b ; sum:k lin:x+y", {{6, 4}, {4}, {6}}},
        {"~x.., ~x.. -> x.. ; lin:x+y", {{4, 1, 6}, {6, 6}}},
        {"a b, b, a -> a b ; lin:x+z add:z", {{4, 6}, {6}, {4}}},
        {"b (g q) e, b g e -> b (g q)  ; whole:e", {{4, 12, 2}, {4, 4, 2}}},
        {"b n -> b ; max:n", {{4, 12}}},
        {"b n, n -> b ; min:n", {{4, 12}, {12}}},
        {"b c n -> n b ; prod:c", {{4, 6, 2}}},
        {"b n -> b n ; stat:n", {{4, 12}}},
        {"b n h, h -> b h n ; stat:h saves:x,y", {{2, 4, 6}, {6}}},
        {"b n -> b n ; stat:n lin:x", {{4, 12}}},
        {"b n -> b ; stat:n", {{4, 12}}},
        {"b n, b -> b n, b ; stat:n", {{4, 12}, {4}}, 2},
        {"b t c, c f -> b t f ; shift:t(3) sum:c lin:x|y", {{2, 12, 4}, {4, 2}}},
        {"b t u -> b u t ; shift:t(4,2,1,1) shift:u(3,1,2,0) lin:x", {{2, 24, 12}}},
        {"b s e, b t e, b t f -> b s f ; ring:t=s whole:e,f", {{2, 6, 2}, {2, 12, 2}, {2, 12, 4}}},
        {"b n f, f -> b n, b n f, b f ; sum:n", {{4, 6, 2}, {2}}, 3},
        {"a b . -> b a . ; whole:a", {{4, 6, 3}}},
        {"b s, b -> b s, b", {{4, 6}, {4}}, 2},
    };
    std::vector<OperatorCase> made;
    for (const Row& row : rows) {
      CaseBuilder builder("Custom", random);
      builder.rule(row.rule).outputs(row.results);
      for (const Shape& shape : row.operands) builder.operand(shape);
      made.push_back(builder.done());
    }
    // whole numbers, say positions, and an operand that is left out
    made.push_back(CaseBuilder("Custom", random)
                       .rule("b s h, s, h? -> b s h ; lin:x")
                       .operand({2, 6, 4})
                       .operand({6}, whole_below(1000))
                       .omitted()
                       .done());
    return made;
  };
}

inline const std::map<std::string, CaseMaker>& operator_cases() {
  static const std::map<std::string, CaseMaker> kCases = [] {
    std::map<std::string, CaseMaker> cases;
    add_elementwise(cases);
    add_products(cases);
    add_reductions(cases);
    add_normalizations(cases);
    add_shapes(cases);
    add_attention(cases);
    add_gathers(cases);
    add_joins(cases);
    add_windows(cases);
    add_more_norms(cases);
    add_others(cases);
    add_custom(cases);
    return cases;
  }();
  return kCases;
}

}  // namespace meshplan::test

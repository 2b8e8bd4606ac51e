// SPDX-License-Identifier: Apache-2.0
// Every row of the operator table: result types, what each factor is, and its strategies counted by
// a second enumerator that reads the rule's text.
#include "graph/operator_table.h"

#include <algorithm>
#include <functional>
#include <set>
#include <sstream>

#include "graph/operator_info.h"
#include "support/catch.h"

namespace meshplan {
namespace {

struct Example {
  std::string type;
  std::vector<std::optional<Shape>> inputs;
  Attributes attributes;
  Shape result;
  /// "name:kind" of every factor; parallel ones without a kind.
  std::string factors;
};

Attribute number(std::int64_t value) { return value; }
Attribute list(std::vector<std::int64_t> values) { return values; }

const std::vector<Example>& examples() {
  static const std::vector<Example> kExamples = {
      {"Abs", {{{4, 8}}}, {}, {4, 8}, "x0 x1"},
      {"Add", {{{4, 8}}, {{8}}}, {}, {4, 8}, "x0 x1"},
      {"Add", {{{4, 1}}, {{1, 8}}}, {}, {4, 8}, "x0 x1"},
      {"Attention",
       {{{2, 8, 16, 4}}, {{2, 4, 16, 4}}, {{2, 4, 16, 6}}},
       {{"is_causal", number(1)}},
       {2, 8, 16, 6},
       "b g q s e:whole t:ring f:whole"},
      {"Attention",
       {{{2, 8, 16, 4}}, {{2, 8, 12, 4}}, {{2, 8, 12, 4}}, {{16, 12}}},
       {},
       {2, 8, 16, 4},
       "b g q s e:whole t:ring f:whole"},
      {"Cast", {{{4, 8}}}, {{"to", std::string("bf16")}}, {4, 8}, "x0 x1"},
      {"Clip", {{{4, 8}}, std::nullopt, std::nullopt}, {}, {4, 8}, "x0 x1"},
      {"Cos", {{{4, 8}}}, {}, {4, 8}, "x0 x1"},
      {"Div", {{{4, 8}}, {{4, 1}}}, {}, {4, 8}, "x0 x1"},
      {"Equal", {{{4, 8}}, {{4, 8}}}, {}, {4, 8}, "x0 x1"},
      {"Erf", {{{4, 8}}}, {}, {4, 8}, "x0 x1"},
      {"Exp", {{{4, 8}}}, {}, {4, 8}, "x0 x1"},
      {"Expand", {{{4, 1}}}, {{"shape", list({2, 4, 8})}}, {2, 4, 8}, "x1 x0 x2"},
      {"Flatten", {{{2, 4, 8}}}, {{"axis", number(2)}}, {8, 8}, "x0 x1 x2"},
      {"Gather", {{{16, 8}}, {{2, 4}}}, {{"axis", number(0)}}, {2, 4, 8}, "v:sum d1 t0 t1"},
      {"Gather", {{{16, 8}}, {{4}}}, {{"axis", number(1)}}, {16, 4}, "d0 v:sum t0"},
      {"Gelu", {{{4, 8}}}, {}, {4, 8}, "x0 x1"},
      {"Gemm", {{{4, 8}}, {{8, 2}}, {{2}}}, {}, {4, 2}, "m k:sum n"},
      {"Gemm",
       {{{8, 4}}, {{2, 8}}},
       {{"transA", number(1)}, {"transB", number(1)}},
       {4, 2},
       "k:sum m n"},
      {"Greater", {{{4, 8}}, {{4, 8}}}, {}, {4, 8}, "x0 x1"},
      {"GreaterOrEqual", {{{4, 8}}, {{8}}}, {}, {4, 8}, "x0 x1"},
      {"Identity", {{{4, 8}}}, {}, {4, 8}, "x0 x1"},
      {"LayerNormalization", {{{2, 4, 8}}, {{8}}, {{8}}}, {}, {2, 4, 8}, "x0 x1 r0:stat"},
      {"LayerNormalization",
       {{{2, 4, 8}}, {{4, 8}}},
       {{"axis", number(1)}},
       {2, 4, 8},
       "x0 r0:stat r1:stat"},
      {"Less", {{{4, 8}}, {{4, 8}}}, {}, {4, 8}, "x0 x1"},
      {"LessOrEqual", {{{4, 8}}, {{4, 8}}}, {}, {4, 8}, "x0 x1"},
      {"Log", {{{4, 8}}}, {}, {4, 8}, "x0 x1"},
      {"LogSoftmax", {{{4, 8}}}, {}, {4, 8}, "x0 x1:stat"},
      {"MatMul", {{{2, 4, 8}}, {{8, 6}}}, {}, {2, 4, 6}, "B0 m k:sum n"},
      {"MatMul", {{{2, 4, 8}}, {{2, 8, 6}}}, {}, {2, 4, 6}, "B0 m k:sum n"},
      {"MatMul",
       {{{2, 8, 4}}, {{6, 8}}},
       {{"transpose_a", number(1)}, {"transpose_b", number(1)}},
       {2, 4, 6},
       "B0 k:sum m n"},
      {"MatMul", {{{8}}, {{8, 6}}}, {}, {6}, "k:sum n"},
      {"MatMul", {{{4, 8}}, {{8}}}, {}, {4}, "m k:sum"},
      {"MatMul", {{{8}}, {{8}}}, {}, {}, "k:sum"},
      {"Mul", {{{4, 8}}, {{4, 8}}}, {}, {4, 8}, "x0 x1"},
      {"Neg", {{{4, 8}}}, {}, {4, 8}, "x0 x1"},
      {"Pow", {{{4, 8}}, {{}}}, {}, {4, 8}, "x0 x1"},
      {"RMSNormalization", {{{2, 4, 8}}, {{8}}}, {}, {2, 4, 8}, "x0 x1 r0:stat"},
      {"Reciprocal", {{{4, 8}}}, {}, {4, 8}, "x0 x1"},
      {"ReduceMax", {{{4, 8}}}, {{"axes", list({1})}}, {4, 1}, "x0 x1:max"},
      {"ReduceMean",
       {{{2, 4, 8}}},
       {{"axes", list({0, 2})}, {"keepdims", number(0)}},
       {4},
       "x0:sum x1 x2:sum"},
      {"ReduceMin", {{{4, 8}}}, {{"keepdims", number(0)}}, {}, "x0:min x1:min"},
      {"ReduceProd", {{{4, 8}}}, {{"axes", list({-1})}}, {4, 1}, "x0 x1:prod"},
      {"ReduceSum", {{{4, 8}}}, {{"noop_with_empty_axes", number(1)}}, {4, 8}, "x0 x1"},
      {"Relu", {{{4, 8}}}, {}, {4, 8}, "x0 x1"},
      {"Reshape", {{{2, 4, 8}}}, {{"shape", list({8, 8})}}, {8, 8}, "x0 x1 x2"},
      {"Reshape", {{{4, 32}}}, {{"shape", list({0, 4, 8})}}, {4, 4, 8}, "x0 x1 x2"},
      {"Reshape",
       {{{6, 4}}},
       {{"shape", list({4, -1})}},
       {4, 6},
       "x0 p0:whole p1:whole q0:whole q1:whole"},
      {"RotaryEmbedding",
       {{{2, 4, 8, 6}}, {{8, 3}}, {{8, 3}}},
       {},
       {2, 4, 8, 6},
       "b h s d:whole e:whole"},
      {"RotaryEmbedding",
       {{{2, 4, 8, 6}}, {{50, 3}}, {{50, 3}}, {{2, 8}}},
       {},
       {2, 4, 8, 6},
       "b h s d:whole p:whole e:whole"},
      {"Sigmoid", {{{4, 8}}}, {}, {4, 8}, "x0 x1"},
      {"Silu", {{{4, 8}}}, {}, {4, 8}, "x0 x1"},
      {"Sin", {{{4, 8}}}, {}, {4, 8}, "x0 x1"},
      {"Softmax", {{{2, 4, 8}}}, {{"axis", number(1)}}, {2, 4, 8}, "x0 x1:stat x2"},
      {"SoftmaxCrossEntropyLoss",
       {{{4, 8, 16}}, {{4, 8}}},
       {{"axis", number(-1)}},
       {},
       "t0:sum t1:sum v:stat"},
      {"SoftmaxCrossEntropyLoss",
       {{{4, 16}}, {{4}}, {{16}}},
       {{"reduction", std::string("none")}},
       {4},
       "t0 v:stat"},
      {"Sqrt", {{{4, 8}}}, {}, {4, 8}, "x0 x1"},
      {"Squeeze", {{{4, 1, 8}}}, {{"axes", list({1})}}, {4, 8}, "x0 x1"},
      {"Sub", {{{4, 8}}, {{4, 8}}}, {}, {4, 8}, "x0 x1"},
      {"Tanh", {{{4, 8}}}, {}, {4, 8}, "x0 x1"},
      {"Transpose", {{{2, 4, 8}}}, {{"perm", list({2, 0, 1})}}, {8, 2, 4}, "x0 x1 x2"},
      {"Transpose", {{{4, 8}}}, {}, {8, 4}, "x0 x1"},
      {"Unsqueeze", {{{4, 8}}}, {{"axes", list({0, -1})}}, {1, 4, 8, 1}, "x0 x1"},
      {"Where", {{{4, 8}}, {{4, 8}}, {{8}}}, {}, {4, 8}, "x0 x1"},
  };
  return kExamples;
}

Result<TypedOperator> infer(const Example& example) {
  OperatorSpec spec;
  spec.type = example.type;
  spec.attributes = example.attributes;
  for (const auto& shape : example.inputs) {
    spec.inputs.push_back(shape ? std::optional<TensorType>({*shape, DType::kBf16}) : std::nullopt);
  }
  return infer_operator(spec);
}

std::string shape_text(const Shape& shape) {
  std::string text = "[";
  for (const std::int64_t size : shape) text += std::to_string(size) + " ";
  return text + "]";
}

const char* kind_text(const Factor& factor) {
  switch (factor.kind) {
    case FactorKind::kParallel:
      return "";
    case FactorKind::kReduction:
      return reduction_name(factor.reduction);
    case FactorKind::kStatistic:
      return "stat";
    case FactorKind::kRing:
      return "ring";
    case FactorKind::kWhole:
      return "whole";
    case FactorKind::kWindow:
      return "window";
    case FactorKind::kRoute:
      return "route";
  }
  return "?";
}

// --- a second reading of the notation ------------------------------------------------------------

/// What a rule's text says, read with nothing but searches for separators.
struct TextRule {
  std::vector<std::string> names;                            ///< factors in order
  std::map<std::string, std::string> kinds;                  ///< of the others than parallel
  std::map<std::string, std::string> ring_of;                ///< query factor -> key factor
  std::vector<std::vector<std::vector<std::string>>> sides;  ///< operands, then results: dims
  int passes = 0;                                            ///< ways for Partial to pass through
};

TextRule read_text(const Rule& rule) {
  TextRule read;
  const std::string& text = rule.text;
  const std::size_t arrow = text.find("->");
  const std::size_t semicolon = std::min(text.find(';'), text.size());
  std::vector<std::string> sides;
  for (const std::string& half :
       {text.substr(0, arrow), text.substr(arrow + 2, semicolon - arrow - 2)}) {
    std::stringstream parts(half);
    std::vector<std::string> list;
    for (std::string part; std::getline(parts, part, ',');) list.push_back(part);
    if (half.empty() || half.find_first_not_of(' ') == std::string::npos) list = {""};
    if (half.find_last_not_of(' ') != std::string::npos && half[half.find_last_not_of(' ')] == ',')
      list.emplace_back();
    sides.insert(sides.end(), list.begin(), list.end());
  }
  for (std::size_t side = 0; side < sides.size(); ++side) {
    const OperandRule& bound = side < rule.operands.size()
                                   ? rule.operands[side]
                                   : rule.results[side - rule.operands.size()];
    std::vector<std::vector<std::string>> dims;
    std::string inside = sides[side];
    std::replace(inside.begin(), inside.end(), '?', ' ');
    std::vector<std::string> words;
    {
      std::string padded;
      for (const char c : inside)
        padded += c == '(' || c == ')' ? std::string({' ', c, ' '}) : std::string(1, c);
      std::stringstream in(padded);
      for (std::string word; in >> word;) words.push_back(word);
    }
    bool open = false;
    bool marked = false;
    for (std::string word : words) {
      if (word == "~") {
        marked = true;
        continue;
      }
      if (word == "(") {
        open = true;
        dims.emplace_back();
        continue;
      }
      if (word == ")") {
        open = false;
        continue;
      }
      if (word[0] == '~') {
        marked = true;
        word.erase(0, 1);
      }
      if (word == ".") {
        dims.push_back({"."});
        continue;
      }
      std::vector<std::string> names = {word};
      if (word.size() > 2 && word.substr(word.size() - 2) == "..") {
        const std::string run = word.substr(0, word.size() - 2);
        names.clear();
        for (const int id : rule.names.at(run))
          names.push_back(rule.factors[static_cast<std::size_t>(id)].name);
      }
      for (const std::string& name : names) {
        if (std::find(read.names.begin(), read.names.end(), name) == read.names.end())
          read.names.push_back(name);
        if (open) {
          dims.back().push_back(name);
        } else {
          dims.push_back({name});
        }
      }
    }
    if (!bound.present) dims.clear();
    // broadcast operands lack dimensions on the left, and sizes of 1 carry nothing
    while (marked && dims.size() > bound.shape.size()) dims.erase(dims.begin());
    for (std::size_t d = 0; d < dims.size() && d < bound.shape.size(); ++d) {
      if (bound.shape[d] == 1) dims[d] = {"."};
    }
    read.sides.push_back(std::move(dims));
  }
  std::stringstream modifiers(semicolon < text.size() ? text.substr(semicolon + 1) : "");
  for (std::string modifier; modifiers >> modifier;) {
    const std::string key = modifier.substr(0, modifier.find(':'));
    std::string values = modifier.substr(modifier.find(':') + 1);
    if (key == "flops" || key == "bytes" || key == "saves") continue;
    if (key == "lin") {
      const bool joint = values.find('+') != std::string::npos;
      for (const char c : values) {
        if (c == '|' || c == ',' || c == '+') continue;
        if (!joint) ++read.passes;
      }
      if (joint) ++read.passes;
      continue;
    }
    if (key == "ring") {
      const std::size_t equals = values.find('=');
      read.kinds[values.substr(0, equals)] = "ring";
      read.ring_of[values.substr(equals + 1)] = values.substr(0, equals);
      continue;
    }
    std::stringstream names(values);
    for (std::string name; std::getline(names, name, ',');) {
      for (const int id : rule.names.at(name))
        read.kinds[rule.factors[static_cast<std::size_t>(id)].name] = key;
    }
  }
  return read;
}

/// Whether cutting every factor by its axes, in mesh order, cuts a dimension into blocks in mesh
/// order, of equal size: looked at index by index.
bool blocks_in_order(const std::vector<std::string>& dimension,
                     const std::map<std::string, std::int64_t>& sizes,
                     const std::map<std::string, std::vector<std::size_t>>& axes_of,
                     const std::vector<std::int64_t>& mesh) {
  std::int64_t length = 1;
  std::int64_t pieces = 1;
  std::set<std::size_t> cutting;
  for (const std::string& name : dimension) {
    length *= sizes.at(name);
    const auto axes = axes_of.find(name);
    if (axes == axes_of.end()) continue;
    for (const std::size_t axis : axes->second) {
      pieces *= mesh[axis];
      cutting.insert(axis);
    }
  }
  if (length % pieces != 0) return false;
  for (std::int64_t i = 0; i < length; ++i) {
    // the device coordinates that own index i, factor by factor
    std::map<std::size_t, std::int64_t> owner;
    std::int64_t rest = i;
    for (std::size_t f = dimension.size(); f-- > 0;) {
      const std::int64_t size = sizes.at(dimension[f]);
      std::int64_t at = rest % size;
      rest /= size;
      const auto axes = axes_of.find(dimension[f]);
      if (axes == axes_of.end()) continue;
      std::int64_t block = size;
      for (const std::size_t axis : axes->second) {
        block /= mesh[axis];
        owner[axis] = at / block;
        at %= block;
      }
    }
    std::int64_t piece = 0;
    for (const std::size_t axis : cutting) piece = piece * mesh[axis] + owner[axis];
    if (piece != i / (length / pieces)) return false;
  }
  return true;
}

std::size_t count_strategies(const Rule& rule, const std::vector<std::int64_t>& mesh) {
  const TextRule text = read_text(rule);
  std::map<std::string, std::int64_t> sizes;
  for (const Factor& factor : rule.factors) sizes[factor.name] = factor.size;
  // actions: lists of the factors that the axis cuts; passes and none cut nothing
  std::vector<std::vector<std::string>> actions(static_cast<std::size_t>(text.passes) + 1);
  for (const std::string& name : text.names) {
    const auto kind = text.kinds.find(name);
    if (kind != text.kinds.end() && (kind->second == "ring" || kind->second == "whole")) continue;
    actions.push_back({name});
    const auto ring = text.ring_of.find(name);
    if (ring != text.ring_of.end()) actions.push_back({name, ring->second});
  }
  std::size_t count = 0;
  std::vector<std::size_t> at(mesh.size(), 0);
  while (true) {
    bool legal = true;
    std::map<std::string, std::vector<std::size_t>> axes_of;
    for (std::size_t axis = 0; axis < mesh.size(); ++axis) {
      if (mesh[axis] == 1 && at[axis] != 0) legal = false;
      for (const std::string& name : actions[at[axis]]) axes_of[name].push_back(axis);
    }
    for (const auto& [name, axes] : axes_of) {
      std::int64_t pieces = 1;
      for (const std::size_t axis : axes) pieces *= mesh[axis];
      if (sizes.at(name) % pieces != 0) legal = false;
    }
    for (const auto& side : text.sides) {
      for (const auto& dimension : side) {
        if (legal && dimension != std::vector<std::string>{"."})
          legal = blocks_in_order(dimension, sizes, axes_of, mesh);
      }
    }
    if (legal) ++count;
    std::size_t axis = 0;
    while (axis < at.size() && ++at[axis] == actions.size()) at[axis++] = 0;
    if (axis == at.size()) return count;
  }
}

// -------------------------------------------------------------------------------------------------

TEST_CASE("every operator type has an example here") {
  std::set<std::string> shown;
  for (const Example& example : examples()) shown.insert(example.type);
  for (const std::string& type : operator_types()) {
    INFO(type);
    CHECK(shown.contains(type));
  }
  CHECK(std::is_sorted(operator_types().begin(), operator_types().end()));
}

TEST_CASE("every row gives the shape of its result and says what its factors are") {
  for (const Example& example : examples()) {
    const auto typed = infer(example);
    INFO(example.type << " -> " << shape_text(example.result));
    if (!typed) FAIL(typed.error().message);
    CHECK(typed->outputs.at(0).shape == example.result);
    std::string factors;
    for (const Factor& factor : typed->rule->factors) {
      const std::string kind = kind_text(factor);
      factors += (factors.empty() ? "" : " ") + factor.name + (kind.empty() ? "" : ":" + kind);
    }
    CHECK(factors == example.factors);
    // every dimension of every operand and result is the product of its factors, or private
    for (const auto* side : {&typed->rule->operands, &typed->rule->results}) {
      for (const OperandRule& operand : *side) {
        if (!operand.present) continue;
        REQUIRE(operand.dims.size() == operand.shape.size());
        for (std::size_t d = 0; d < operand.dims.size(); ++d) {
          if (operand.dims[d].empty()) continue;
          std::int64_t product = 1;
          for (const int id : operand.dims[d])
            product *= typed->rule->factors[static_cast<std::size_t>(id)].size;
          CHECK(product == operand.shape[d]);
        }
      }
    }
  }
}

TEST_CASE("every row has as many strategies as its rule's text allows") {
  for (const Example& example : examples()) {
    const auto typed = infer(example);
    REQUIRE(typed.has_value());
    for (const std::vector<std::int64_t>& mesh : std::vector<std::vector<std::int64_t>>{
             {1}, {2}, {3}, {4}, {2, 2}, {4, 2}, {2, 4}, {2, 3}, {1, 2}, {2, 2, 2}}) {
      std::string mesh_text = shape_text(mesh);
      INFO(example.type << " with rule " << typed->rule->text << " on " << mesh_text);
      const OperatorInfo info(typed->rule, mesh);
      CHECK(info.strategies().size() == count_strategies(*typed->rule, mesh));
      CHECK(std::is_sorted(info.strategies().begin(), info.strategies().end()));
    }
  }
}

TEST_CASE("results have the type that the operands give them") {
  auto type_of = [](const std::string& type, std::vector<DType> inputs, Attributes attributes) {
    OperatorSpec spec;
    spec.type = type;
    spec.attributes = std::move(attributes);
    for (const DType dtype : inputs) spec.inputs.push_back(TensorType{{4, 8}, dtype});
    const auto typed = infer_operator(spec);
    if (!typed) FAIL(typed.error().message);
    return typed->outputs.at(0).dtype;
  };
  CHECK(type_of("Add", {DType::kBf16, DType::kBf16}, {}) == DType::kBf16);
  CHECK(type_of("Less", {DType::kBf16, DType::kBf16}, {}) == DType::kBool);
  CHECK(type_of("Where", {DType::kBool, DType::kFp16, DType::kFp16}, {}) == DType::kFp16);
  CHECK(type_of("Cast", {DType::kFp32}, {{"to", std::string("bf16")}}) == DType::kBf16);
  CHECK(type_of("Cast", {DType::kFp32}, {{"to", number(10)}}) == DType::kFp16);
}

TEST_CASE("what does not fit is named") {
  auto error_of = [](const Example& example) {
    const auto typed = infer(example);
    INFO(example.type);
    REQUIRE_FALSE(typed.has_value());
    CHECK(typed.error().where.empty());
    return typed.error().message;
  };
  auto has = [](const std::string& message, const std::string& part) {
    INFO(message);
    CHECK(message.find(part) != std::string::npos);
  };
  has(error_of({"Matmul", {{{4, 8}}, {{8, 2}}}, {}, {}, ""}), "MatMul");
  has(error_of({"MatMul", {{{4, 8}}, {{7, 2}}}, {}, {}, ""}), "factor \"k\" is 8 elsewhere");
  has(error_of({"MatMul", {{{4, 8}}}, {}, {}, ""}), "operand 1 of MatMul is missing");
  has(error_of({"MatMul", {{{}}, {{8, 2}}}, {}, {}, ""}), "at least one dimension");
  has(error_of({"Softmax", {{{4, 8}}}, {{"axis", number(2)}}, {}, ""}), "attribute \"axis\" is 2");
  has(error_of({"Softmax", {{{4, 8}}}, {{"axis", std::string("x")}}, {}, ""}),
      "attribute \"axis\" must be an integer");
  has(error_of({"Reshape", {{{4, 8}}}, {}, {}, ""}), "attribute \"shape\" is missing");
  has(error_of({"Reshape", {{{4, 8}}}, {{"shape", list({5, -1})}}, {}, ""}), "do not divide by 5");
  has(error_of({"Reshape", {{{4, 8}}}, {{"shape", list({-1, -1})}}, {}, ""}), "entry 1 is -1");
  has(error_of({"Reshape", {{{4, 8}}}, {{"shape", list({16})}}, {}, ""}), "has 16 elements");
  has(error_of({"Reshape", {{{4}}}, {{"shape", list({4, 0})}}, {}, ""}), "copies a dimension");
  has(error_of({"Squeeze", {{{4, 8}}}, {{"axes", list({0})}}, {}, ""}), "only size 1");
  has(error_of({"Unsqueeze", {{{4}}}, {{"axes", list({0, 0})}}, {}, ""}), "twice");
  has(error_of({"Transpose", {{{4, 8}}}, {{"perm", list({0, 0})}}, {}, ""}),
      "permutation of 0 to 1");
  has(error_of({"Expand", {{{4, 3}}}, {{"shape", list({4, 8})}}, {}, ""}), "cannot become 8");
  has(error_of({"Cast", {{{4}}}, {}, {}, ""}), "attribute \"to\" is missing");
  has(error_of({"Cast", {{{4}}}, {{"to", std::string("bf61")}}, {}, ""}), "bf16");
  has(error_of({"SoftmaxCrossEntropyLoss",
                {{{4, 8}}, {{4}}},
                {{"reduction", std::string("median")}},
                {},
                ""}),
      "expected \"mean\", \"sum\" or \"none\"");
  has(error_of({"Attention", {{{1, 6, 4, 2}}, {{1, 4, 4, 2}}, {{1, 4, 4, 2}}}, {}, {}, ""}),
      "6 query heads are no multiple of the 4 key heads");
  has(error_of({"Attention", {{{6, 4, 2}}, {{1, 4, 4, 2}}, {{1, 4, 4, 2}}}, {}, {}, ""}),
      "[batch, heads, sequence, head size]");
  has(error_of({"RotaryEmbedding", {{{4, 2}}, {{4, 1}}, {{4, 1}}}, {}, {}, ""}),
      "[batch, heads, sequence, head size]");
}

}  // namespace
}  // namespace meshplan

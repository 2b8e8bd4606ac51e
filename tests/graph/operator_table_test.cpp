// SPDX-License-Identifier: Apache-2.0
// Every row of the operator table: result types, what each factor is, what the backward needs, and
// its strategies counted by a second enumerator that reads the rule's text.
#include "graph/operator_table.h"

#include <algorithm>
#include <functional>
#include <set>
#include <sstream>

#include "graph/operator_examples.h"
#include "graph/operator_info.h"
#include "support/catch.h"

namespace meshplan::operator_table_test {
namespace {

std::string shape_text(const Shape& shape) {
  std::string text;
  for (const std::int64_t size : shape) text += (text.empty() ? "" : " ") + std::to_string(size);
  return "[" + text + "]";
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
      return "shift";
  }
  return "?";
}

std::string joined(const std::vector<std::string>& parts, const std::string& between) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : between) + part;
  return text;
}

/// "result shapes | factors | linear, saved, added and exchanged | FLOPs".
std::string summary(const TypedOperator& typed) {
  const Rule& rule = *typed.rule;
  std::vector<std::string> shapes, factors, facts, saved, added;
  for (const TensorType& output : typed.outputs) shapes.push_back(shape_text(output.shape));
  for (const Factor& factor : rule.factors) {
    const std::string kind = kind_text(factor);
    factors.push_back(factor.name + (kind.empty() ? "" : ":" + kind));
    if (factor.kind == FactorKind::kRing)
      factors.back() += "=" + rule.factors[static_cast<std::size_t>(factor.partner)].name;
  }
  for (const LinearGroup& group : rule.linear) {
    std::vector<std::string> operands;
    for (const int operand : group.operands) operands.push_back(std::to_string(operand));
    facts.push_back("lin:" + joined(operands, "+"));
  }
  for (std::size_t i = 0; i < rule.operands.size(); ++i) {
    if (rule.operands[i].saved) saved.push_back(std::to_string(i));
    if (rule.operands[i].addend) added.push_back(std::to_string(i));
  }
  if (!rule.results.empty() && rule.results[0].saved) saved.emplace_back("out");
  if (!saved.empty()) facts.push_back("saves:" + joined(saved, ","));
  if (!added.empty()) facts.push_back("add:" + joined(added, ","));
  if (rule.statistic_forward + rule.statistic_backward > 0)
    facts.push_back("stat:" + std::to_string(rule.statistic_forward) + "/" +
                    std::to_string(rule.statistic_backward) +
                    (rule.statistic_values > 1 ? "x" + std::to_string(rule.statistic_values) : ""));
  for (const Route& route : rule.routes)
    facts.push_back("route:" + rule.factors[static_cast<std::size_t>(route.token)].name + "=" +
                    rule.factors[static_cast<std::size_t>(route.expert)].name);
  std::vector<std::int64_t> sizes;
  for (const Factor& factor : rule.factors) sizes.push_back(factor.size);
  return joined(shapes, " ") + " | " + joined(factors, " ") + " | " + joined(facts, " ") + " | " +
         std::to_string(static_cast<std::int64_t>(rule.flops(sizes)));
}

// --- a second reading of the notation ------------------------------------------------------------

/// What a rule's text says, read with nothing but searches for separators.
struct TextRule {
  std::vector<std::string> names;                            ///< factors in order
  std::map<std::string, std::string> kinds;                  ///< of the others than parallel
  std::map<std::string, std::string> ring_of;                ///< query factor -> key factor
  std::vector<std::pair<std::string, std::string>> routes;   ///< tokens, experts
  std::map<std::string, std::vector<std::int64_t>> windows;  ///< width, stride, before, after
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
    const bool blank = half.find_first_not_of(' ') == std::string::npos;
    if (blank && sides.empty() && rule.operands.empty()) continue;
    std::vector<std::string> list = {""};
    for (const char c : half) {
      if (c == ',') {
        list.emplace_back();
      } else {
        list.back() += c;
      }
    }
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
    if (key == "flops" || key == "bytes" || key == "saves" || key == "add") continue;
    if (key == "shift") {
      const std::size_t open = values.find('(');
      std::stringstream numbers(values.substr(open + 1));
      auto& window = read.windows[values.substr(0, open)];
      for (std::string number; std::getline(numbers, number, ',');)
        window.push_back(std::stoll(number));
      continue;
    }
    if (key == "route") {
      const std::size_t equals = values.find('=');
      read.routes.emplace_back(values.substr(0, equals), values.substr(equals + 1));
      continue;
    }
    if (key == "lin") {
      const bool joint = values.find('+') != std::string::npos;
      const auto separators =
          std::count_if(values.begin(), values.end(), [](char c) { return c == '|' || c == ','; });
      read.passes += joint ? 1 : static_cast<int>(separators) + 1;
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

/// Whether every shard finds what its windows cover in itself and its two neighbours: looked at
/// position by position.
bool windows_reach(const std::vector<std::int64_t>& window,
                   std::int64_t extent,
                   std::int64_t windows,
                   std::int64_t pieces) {
  if (extent % pieces != 0) return false;
  for (std::int64_t i = 0; i < windows; ++i) {
    const std::int64_t shard = i / (windows / pieces);
    for (std::int64_t at = 0; at < window[0]; ++at) {
      const std::int64_t position = i * window[1] - window[2] + at;
      if (position < 0 || position >= extent) continue;
      const std::int64_t owner = position / (extent / pieces);
      if (owner < shard - 1 || owner > shard + 1) return false;
    }
  }
  return true;
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

/// Whether the tokens that routes bring together on the experts' side, where only the other axes
/// cut them, are one block: looked at index by index.
bool routed_in_blocks(std::int64_t size,
                      const std::vector<std::size_t>& axes,
                      const std::set<std::size_t>& routes,
                      const std::vector<std::int64_t>& mesh) {
  for (std::int64_t i = 0; i < size; ++i) {
    std::int64_t block = size, at = i;           // where every axis cuts
    std::int64_t block_there = size, there = i;  // where the routes do not
    for (const std::size_t axis : axes) {
      block /= mesh[axis];
      const std::int64_t owner = at / block;
      at %= block;
      if (routes.contains(axis)) continue;
      block_there /= mesh[axis];
      if (there / block_there != owner) return false;
      there %= block_there;
    }
  }
  return true;
}

std::size_t count_strategies(const Rule& rule, const std::vector<std::int64_t>& mesh) {
  const TextRule text = read_text(rule);
  std::map<std::string, std::int64_t> sizes;
  for (const Factor& factor : rule.factors) sizes[factor.name] = factor.size;
  // actions: lists of the factors that the axis cuts; passes and none cut nothing
  std::vector<std::vector<std::string>> actions(static_cast<std::size_t>(text.passes) + 1);
  std::map<std::string, std::int64_t> extents;
  for (const OperandRule& operand : rule.operands) {
    for (std::size_t d = 0; d < operand.dims.size(); ++d) {
      if (operand.dims[d].size() == 1)
        extents[rule.factors[static_cast<std::size_t>(operand.dims[d][0])].name] = operand.shape[d];
    }
  }
  const std::size_t first_route = actions.size();
  for (const auto& [token, expert] : text.routes) {
    if (sizes.at(token) > 1 && sizes.at(expert) > 1) actions.push_back({token, expert});
  }
  const std::size_t past_routes = actions.size();
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
      std::set<std::size_t> routes;
      for (const std::size_t axis : axes) {
        if (at[axis] >= first_route && at[axis] < past_routes && actions[at[axis]][0] == name)
          routes.insert(axis);
      }
      if (legal && !routes.empty()) legal = routed_in_blocks(sizes.at(name), axes, routes, mesh);
      const auto window = text.windows.find(name);
      if (legal && window != text.windows.end())
        legal = windows_reach(window->second, extents.at(name), sizes.at(name), pieces);
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

TEST_CASE("every operator type has an example") {
  std::set<std::string> shown;
  for (const OperatorExample& example : operator_examples()) shown.insert(example.type);
  for (const std::string& type : operator_types()) {
    INFO(type);
    CHECK(shown.contains(type));
  }
  CHECK(std::is_sorted(operator_types().begin(), operator_types().end()));
}

TEST_CASE("every row says what its results, factors, saved operands and FLOPs are") {
  for (const OperatorExample& example : operator_examples()) {
    const auto typed = infer_operator(spec_of(example));
    INFO(example.type << ", expected " << example.expected);
    if (!typed) FAIL(typed.error().message);
    INFO(typed->rule->text);
    CHECK(summary(*typed) == example.expected);
    // every dimension of every operand and result is the product of its factors, or private
    for (const auto* side : {&typed->rule->operands, &typed->rule->results}) {
      for (const OperandRule& operand : *side) {
        if (!operand.present) continue;
        REQUIRE(operand.dims.size() == operand.shape.size());
        for (std::size_t d = 0; d < operand.dims.size(); ++d) {
          if (operand.dims[d].empty()) continue;
          std::int64_t product = 1;
          for (const int id : operand.dims[d]) {
            const Factor& factor = typed->rule->factors[static_cast<std::size_t>(id)];
            const bool extent =
                factor.kind == FactorKind::kWindow && side == &typed->rule->operands;
            product *= extent ? factor.window.extent : factor.size;
          }
          CHECK(product == operand.shape[d]);
        }
      }
    }
    // what is saved must be there, and a result that may be Partial is no help to the backward
    for (const OperandRule& operand : typed->rule->operands)
      CHECK((operand.present || !operand.saved));
    for (const OperandRule& result : typed->rule->results) {
      const bool reduced = std::any_of(
          typed->rule->factors.begin(), typed->rule->factors.end(), [](const Factor& factor) {
            return factor.kind == FactorKind::kReduction;
          });
      CHECK((!result.saved || !reduced));
    }
  }
}

void count_strategies_of_rows(const std::vector<std::vector<std::int64_t>>& meshes) {
  for (const OperatorExample& example : operator_examples()) {
    const auto typed = infer_operator(spec_of(example));
    REQUIRE(typed.has_value());
    for (const std::vector<std::int64_t>& mesh : meshes) {
      const OperatorInfo info(typed->rule, mesh);
      const std::size_t count = count_strategies(*typed->rule, mesh);
      if (info.strategies().size() != count ||
          !std::is_sorted(info.strategies().begin(), info.strategies().end())) {
        INFO(example.type << " with rule " << typed->rule->text << " on " << shape_text(mesh));
        CHECK(info.strategies().size() == count);
        CHECK(std::is_sorted(info.strategies().begin(), info.strategies().end()));
      }
    }
  }
}

TEST_CASE("every row has as many strategies as its rule's text allows") {
  count_strategies_of_rows(
      {{1}, {2}, {3}, {4}, {2, 2}, {4, 2}, {2, 4}, {2, 3}, {1, 2}, {2, 2, 2}, {2, 1, 3}});
}

TEST_CASE("every row has as many strategies on four axes", "[.][slow]") {
  count_strategies_of_rows({{2, 2, 2, 2}});
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
  auto error_of = [](const OperatorExample& example) {
    const auto typed = infer_operator(spec_of(example));
    INFO(example.type);
    REQUIRE_FALSE(typed.has_value());
    CHECK(typed.error().where.empty());
    return typed.error().message;
  };
  auto has = [](const std::string& message, const std::string& part) {
    INFO(message);
    CHECK(message.find(part) != std::string::npos);
  };
  has(error_of({"Matmul", {{{4, 8}}, {{8, 2}}}, {}, 1, ""}), "MatMul");
  has(error_of({"MatMul", {{{4, 8}}, {{7, 2}}}, {}, 1, ""}), "factor \"k\" is 8 elsewhere");
  has(error_of({"MatMul", {{{4, 8}}}, {}, 1, ""}), "operand 1 of MatMul is missing");
  has(error_of({"MatMul", {{{}}, {{8, 2}}}, {}, 1, ""}), "at least one dimension");
  has(error_of({"Softmax", {{{4, 8}}}, {{"axis", number(2)}}, 1, ""}), "attribute \"axis\" is 2");
  has(error_of({"Softmax", {{{4, 8}}}, {{"axis", std::string("x")}}, 1, ""}),
      "attribute \"axis\" must be an integer");
  has(error_of({"Reshape", {{{4, 8}}}, {}, 1, ""}), "attribute \"shape\" is missing");
  has(error_of({"Reshape", {{{4, 8}}}, {{"shape", list({5, -1})}}, 1, ""}), "do not divide by 5");
  has(error_of({"Reshape", {{{4, 8}}}, {{"shape", list({-1, -1})}}, 1, ""}), "entry 1 is -1");
  has(error_of({"Reshape", {{{4, 8}}}, {{"shape", list({16})}}, 1, ""}), "has 16 elements");
  has(error_of({"Reshape", {{{4}}}, {{"shape", list({4, 0})}}, 1, ""}), "copies a dimension");
  has(error_of({"Squeeze", {{{4, 8}}}, {{"axes", list({0})}}, 1, ""}), "only size 1");
  has(error_of({"Unsqueeze", {{{4}}}, {{"axes", list({0, 0})}}, 1, ""}), "twice");
  has(error_of({"Transpose", {{{4, 8}}}, {{"perm", list({0, 0})}}, 1, ""}),
      "permutation of 0 to 1");
  has(error_of({"Expand", {{{4, 3}}}, {{"shape", list({4, 8})}}, 1, ""}), "cannot become 8");
  has(error_of({"Cast", {{{4}}}, {}, 1, ""}), "attribute \"to\" is missing");
  has(error_of({"Cast", {{{4}}}, {{"to", std::string("bf61")}}, 1, ""}), "bf16");
  has(error_of({"SoftmaxCrossEntropyLoss",
                {{{4, 8}}, {{4}}},
                {{"reduction", std::string("median")}},
                1,
                ""}),
      "expected \"mean\", \"sum\" or \"none\"");
  has(error_of({"Attention", {{{1, 6, 4, 2}}, {{1, 4, 4, 2}}, {{1, 4, 4, 2}}}, {}, 1, ""}),
      "6 query heads are no multiple of the 4 key heads");
  has(error_of({"Attention", {{{6, 4, 2}}, {{1, 4, 4, 2}}, {{1, 4, 4, 2}}}, {}, 1, ""}),
      "[batch, heads, sequence, head size]");
  has(error_of({"RotaryEmbedding", {{{4, 2}}, {{4, 1}}, {{4, 1}}}, {}, 1, ""}),
      "[batch, heads, sequence, head size]");
}

TEST_CASE("every family says what does not fit") {
  struct Row {
    OperatorExample example;
    std::string says;
  };
  std::vector<Row> rows;
  const auto add = [&](Row row) { rows.push_back(std::move(row)); };
  add({{"Conv", {{{2, 4}}, {{6, 4}}}, {}, 1, ""},
       "[batch, channels, 1 to 3 dimensions], got [2, 4]"});
  add({{"Conv", {{{2, 4, 8}}, {{6, 4}}}, {}, 1, ""}, "has 2 dimensions, expected 3"});
  add({{"Conv", {{{2, 4, 8}}, {{6, 2, 3}}}, {{"group", number(3)}}, 1, ""}, "must divide the 4"});
  add({{"Conv", {{{2, 4, 8}}, {{6, 3, 3}}}, {}, 1, ""}, "\"c\" is 4 elsewhere"});
  add({{"Conv", {{{2, 4, 8}}, {{6, 4, 3}}}, {{"kernel_shape", list({5})}}, 1, ""},
       "\"kernel_shape\" is [5]"});
  add({{"Conv", {{{2, 4, 8}}, {{6, 4, 9}}}, {}, 1, ""}, "a window of width 9 does not fit"});
  add({{"Conv", {{{2, 4, 8}}, {{6, 4, 3}}}, {{"strides", list({0})}}, 1, ""},
       "holds 0, expected 1"});
  add({{"Conv", {{{2, 4, 8}}, {{6, 4, 3}}}, {{"pads", list({1})}}, 1, ""},
       "1 entries, expected 2"});
  add({{"Conv", {{{2, 4, 8}}, {{6, 4, 3}}}, {{"auto_pad", text("SAME")}}, 1, ""},
       "\"SAME_UPPER\""});
  add({{"Conv", {{{2, 4, 8}}, {{6, 4, 3}}, {{5}}}, {}, 1, ""}, "elsewhere"});
  add({{"MaxPool", {{{2, 4, 8}}}, {}, 1, ""}, "\"kernel_shape\" is missing"});
  add({{"LpPool", {{{2, 4, 8}}}, {{"kernel_shape", list({2})}}, 2, ""}, "has 1 output(s), got 2"});
  add({{"GlobalMaxPool", {{{4}}}, {}, 1, ""}, "[batch, channels, ...], got [4]"});
  add({{"Concat", {{{4}}, {{4}}}, {}, 1, ""}, "\"axis\" is missing"});
  add({{"Concat", {{{4, 8}}, {{4}}}, {{"axis", number(0)}}, 1, ""}, "operand 1 has 1 dimensions"});
  add({{"Concat", {{{4, 8}}, {{4, 7}}}, {{"axis", number(0)}}, 1, ""}, "elsewhere"});
  add({{"Concat", {}, {{"axis", number(0)}}, 1, ""}, "operand 0 of Concat is missing"});
  add({{"Split", {{{7}}}, {{"num_outputs", number(3)}}, 2, ""}, "but there are 2 outputs"});
  add({{"Split", {{{3}}}, {}, 4, ""}, "cannot be split into 4 parts"});
  add({{"Split", {{{8}}}, {{"split", list({4, 5})}}, 2, ""},
       "do not add up to dimension 0 of size 8"});
  add({{"Split", {{{8}}}, {{"split", list({9, -1})}}, 2, ""}, "cannot be split"});
  add({{"Split", {{{8}}}, {{"split", list({4, 4})}}, 3, ""}, "has 2 output(s), got 3"});
  add({{"Slice", {{{8}}}, {{"starts", list({0})}}, 1, ""}, "\"ends\" is missing"});
  add({{"Slice", {{{8}}}, {{"starts", list({0})}, {"ends", list({1, 2})}}, 1, ""},
       "\"ends\" has 2 entries, \"starts\" has 1"});
  add({{"Slice", {{{8}}}, {{"starts", list({4})}, {"ends", list({2})}}, 1, ""}, "is empty"});
  add({{"Slice",
        {{{8}}},
        {{"starts", list({4})}, {"ends", list({2})}, {"steps", list({0})}},
        1,
        ""},
       "\"steps\" holds 0"});
  add({{"Slice", {{{8}}}, {{"starts", list({0, 0})}, {"ends", list({2, 2})}}, 1, ""},
       "operand 0 has 1 dimensions"});
  add({{"Slice",
        {{{8, 8}}},
        {{"starts", list({0, 0})}, {"ends", list({2, 2})}, {"axes", list({1, -1})}},
        1,
        ""},
       "twice"});
  add({{"Pad", {{{8}}}, {}, 1, ""}, "\"pads\" is missing"});
  add({{"Pad", {{{8}}}, {{"pads", list({1})}}, 1, ""}, "1 entries, expected 2"});
  add({{"Pad", {{{8}}}, {{"pads", list({-8, 0})}}, 1, ""}, "leaves nothing of dimension 0"});
  add({{"Pad", {{{8}}}, {{"pads", list({8, 0})}, {"mode", text("reflect")}}, 1, ""},
       "more than mode \"reflect\""});
  add({{"Pad", {{{8}}}, {{"pads", list({1, 0})}, {"mode", text("mirror")}}, 1, ""}, "\"wrap\""});
  add({{"Pad", {{{8}}}, {{"pads", list({std::int64_t{1} << 62, 0})}}, 1, ""}, "exceeds 64 bits"});
  add({{"Tile", {{{8}}}, {{"repeats", list({1, 2})}}, 1, ""}, "2 entries, expected 1"});
  add({{"Tile", {{{8}}}, {{"repeats", list({0})}}, 1, ""}, "expected 1 or more"});
  add({{"Tile", {{{8}}}, {{"repeats", list({std::int64_t{1} << 61})}}, 1, ""}, "exceeds 64 bits"});
  add({{"TopK", {{{8}}}, {}, 2, ""}, "\"k\" is missing"});
  add({{"TopK", {{{8}}}, {{"k", number(9)}}, 2, ""}, "but dimension 0 has size 8"});
  add({{"TopK", {{{8}}}, {{"k", number(0)}}, 2, ""}, "expected 1 or more"});
  add({{"TopK", {{{8}}}, {{"k", number(2)}}, 1, ""}, "has 2 output(s), got 1"});
  add({{"CumSum", {{{8}}}, {}, 1, ""}, "\"axis\" is missing"});
  add({{"ArgMax", {{{}}}, {}, 1, ""}, "attribute \"axis\" is 0"});
  add({{"NonZero", {{{8}}}, {{"size", number(9)}}, 1, ""}, "expected 1 to 8"});
  add({{"OneHot", {{{8}}}, {}, 1, ""}, "\"depth\" is missing"});
  add({{"OneHot", {{{8}}}, {{"depth", number(4)}, {"axis", number(2)}}, 1, ""}, "from -2 to 1"});
  add({{"Range", {}, {}, 1, ""}, "\"limit\" is missing"});
  add({{"Range", {}, {{"limit", number(4)}, {"delta", number(0)}}, 1, ""}, "\"delta\" is 0"});
  add({{"Range", {}, {{"limit", number(-4)}}, 1, ""}, "Range is empty"});
  add({{"Range", {}, {{"limit", real(1e300)}}, 1, ""}, "too many elements"});
  add({{"ConstantOfShape", {}, {}, 1, ""}, "\"shape\" is missing"});
  add({{"RandomNormal", {}, {{"shape", list({4, 0})}}, 1, ""}, "entry 1 is 0"});
  add({{"Constant", {}, {{"value_ints", text("x")}}, 1, ""}, "must be a list of numbers"});
  add({{"Multinomial", {{{4, 8}}}, {{"sample_size", number(0)}}, 1, ""}, "expected 1 or more"});
  add({{"Trilu", {{{8}}}, {}, 1, ""}, "at least two dimensions"});
  add({{"Max", {}, {}, 1, ""}, "at least one operand"});
  add({{"Sum", {{{4}}, {{3}}}, {}, 1, ""}, "elsewhere"});
  add({{"CastLike", {{{4}}}, {}, 1, ""}, "operand 1 of CastLike is missing"});
  add({{"GatherElements", {{{4, 8}}, {{4}}}, {}, 1, ""}, "need as many dimensions"});
  add({{"GatherElements", {{{4, 8}}, {{2, 9}}}, {}, 1, ""}, "larger than operand 0's 8"});
  add({{"GatherND", {{{4, 8}}, {{2, 3}}}, {}, 1, ""}, "has 2 dimensions to index"});
  add({{"GatherND", {{{4, 8}}, {{4, 1}}}, {{"batch_dims", number(2)}}, 1, ""}, "expected 0 to 1"});
  add({{"GatherND", {{{4, 8}}, {{}}}, {}, 1, ""}, "\"batch_dims\" is 0"});
  add({{"ScatterND", {{{4, 8}}, {{2, 1}}, {{2, 7}}}, {}, 1, ""}, "elsewhere"});
  add({{"ScatterND", {{{4, 8}}, {{2, 1}}, {{2, 8}}}, {{"reduction", text("sub")}}, 1, ""},
       "\"none\", \"add\""});
  add({{"ScatterElements", {{{4, 8}}, {{4, 2}}, {{4, 3}}}, {{"axis", number(1)}}, 1, ""},
       "elsewhere"});
  add({{"Einsum", {{{4, 8}}}, {}, 1, ""}, "\"equation\" is missing"});
  add({{"Einsum", {{{4, 8}}}, {{"equation", text("ij,jk->ik")}}, 1, ""},
       "2 terms, but there are 1"});
  add({{"Einsum", {{{4, 4}}}, {{"equation", text("ii->i")}}, 1, ""},
       "diagonals are not supported"});
  add({{"Einsum", {{{4, 8}}}, {{"equation", text("ij->k")}}, 1, ""}, "\"k\" is in the result"});
  add({{"Einsum", {{{4, 8}}}, {{"equation", text("i1->i")}}, 1, ""}, "found \"1\""});
  add({{"Einsum", {{{4, 8}}}, {{"equation", text("ij->...j")}}, 1, ""}, "no operand has"});
  add({{"GroupNormalization", {{{2, 8}}, {{8}}, {{8}}}, {}, 1, ""}, "\"num_groups\" is missing"});
  add({{"GroupNormalization", {{{2, 8}}, {{8}}, {{8}}}, {{"num_groups", number(3)}}, 1, ""},
       "must divide the 8 channels"});
  add({{"InstanceNormalization", {{{2}}, {{2}}, {{2}}}, {}, 1, ""}, "[batch, channels, ...]"});
  add({{"MeanVarianceNormalization", {{{2, 3}}}, {}, 1, ""}, "\"axes\" is missing"});
  add({{"ReduceSum", {{{2, 3}}}, {{"axes", list({1, -1})}}, 1, ""}, "twice"});
  add({{"ReduceL2", {{{2, 3}}}, {{"axes", list({2})}}, 1, ""}, "from -2 to 1"});
  add({{"NegativeLogLikelihoodLoss", {{{4, 8}}, {{5}}}, {}, 1, ""}, "elsewhere"});
  add({{"NegativeLogLikelihoodLoss", {{{4, 8}}, {{4}}}, {}, 2, ""}, "has 1 output(s), got 2"});
  add({{"MoEDispatch", {{{16, 6}}, {{16, 2}}}, {}, 1, ""}, "\"num_experts\" is missing"});
  add({{"MoEDispatch", {{{16}}, {{16, 2}}}, {{"num_experts", number(4)}}, 1, ""},
       "[tokens, width]"});
  add({{"MoEDispatch", {{{16, 6}}, {{16}}}, {{"num_experts", number(4)}}, 1, ""},
       "[tokens, top_k]"});
  add({{"MoEDispatch",
        {{{16, 6}}, {{16, 2}}},
        {{"num_experts", number(4)}, {"groups", number(3)}},
        1,
        ""},
       "must divide the 16 tokens"});
  add({{"MoEDispatch",
        {{{16, 6}}, {{16, 2}}},
        {{"num_experts", number(4)}, {"top_k", number(3)}},
        1,
        ""},
       "\"top_k\" is 3"});
  add({{"MoEDispatch",
        {{{16, 6}}, {{16, 2}}},
        {{"num_experts", number(4)}, {"capacity_factor", real(-1)}},
        1,
        ""},
       "above 0"});
  add({{"MoECombine", {{{4, 16, 6}}, {{16, 2}}, {{16, 3}}}, {}, 1, ""},
       "must have operand 1's shape"});
  add({{"MoECombine", {{{4, 15, 6}}, {{16, 2}}}, {{"groups", number(2)}}, 1, ""}, "the 15 slots"});
  add({{"GroupedMatMul", {{{4, 16, 6}}, {{4, 5, 6}}}, {}, 1, ""}, "\"d\" is 6 elsewhere"});
  add({{"Attention", {{{2, 4, 8}}, {{2, 4, 8}}, {{2, 4, 8}}}, {}, 1, ""},
       "\"q_num_heads\" is missing"});
  add({{"Attention",
        {{{2, 4, 8}}, {{2, 4, 8}}, {{2, 4, 8}}},
        {{"q_num_heads", number(3)}, {"kv_num_heads", number(2)}},
        1,
        ""},
       "must divide the last dimension of operand 0"});
  add({{"Attention",
        {{{1, 4, 4, 2}}, {{1, 4, 4, 2}}, {{1, 4, 4, 2}}, std::nullopt, {{1, 4, 4, 2}}},
        {},
        1,
        ""},
       "past keys and past values together"});
  add({{"Attention", {{{1, 4, 4, 2}}, {{1, 4, 6, 2}}, {{1, 4, 6, 2}}, {{4, 1, 4}}}, {}, 1, ""},
       "the last dimension of the mask (shape [4, 1, 4]) is 4, expected 1 or 6, the number of "
       "keys"});
  add({{"Attention",
        {{{1, 4, 1, 2}},
         {{1, 4, 1, 2}},
         {{1, 4, 1, 2}},
         {{4, 1, 5}},
         {{1, 4, 5, 2}},
         {{1, 4, 5, 2}}},
        {},
        1,
        ""},
       "expected 1 or 6, the number of keys"});
  add({{"RotaryEmbedding", {{{2, 4, 8, 6}}, {{8, 6}}, {{8, 6}}}, {}, 1, ""},
       "the tables have 6 columns, expected half of the 6 elements"});
  add({{"RotaryEmbedding",
        {{{2, 4, 8, 6}}, {{8, 3}}, {{8, 3}}},
        {{"rotary_embedding_dim", number(4)}},
        1,
        ""},
       "the tables have 3 columns, expected half of the 4 elements"});
  add({{"RotaryEmbedding", {{{2, 4, 8}}, {{4, 1}}, {{4, 1}}}, {}, 1, ""},
       "\"num_heads\" is missing"});
  add({{"Dropout", {{{4}}}, {}, 3, ""}, "has 1 output(s), got 3"});
  add({{"Relu", {{{4}}, {{4}}}, {}, 1, ""}, "takes at most 1 operands, got 2"});
  add({{"Relu", {}, {}, 1, ""}, "operand 0 is missing"});
  add({{"Relu", {std::nullopt}, {}, 1, ""}, "operand 0 is missing"});

  for (const Row& row : rows) {
    const auto typed = infer_operator(spec_of(row.example));
    INFO(row.example.type << ": " << row.says);
    REQUIRE_FALSE(typed.has_value());
    INFO(typed.error().message);
    CHECK(typed.error().message.find(row.says) != std::string::npos);
    CHECK(typed.error().where.empty());
  }
}

TEST_CASE("further results have types of their own") {
  const auto types = [](OperatorSpec spec) {
    const auto typed = infer_operator(spec);
    if (!typed) FAIL(typed.error().message);
    std::string names;
    for (const TensorType& output : typed->outputs)
      names += (names.empty() ? "" : " ") + std::string(dtype_name(output.dtype));
    return names;
  };
  CHECK(types(spec_of({"TopK", {{{8}}}, {{"k", number(2)}}, 2, ""})) == "bf16 int64");
  CHECK(types(spec_of({"Dropout", {{{8}}}, {}, 2, ""})) == "bf16 bool");
  CHECK(types(spec_of({"LayerNormalization", {{{8}}, {{8}}}, {}, 3, ""})) == "bf16 fp32 fp32");
  CHECK(types(spec_of({"Unique", {{{8}}}, {}, 2, ""})) == "bf16 int64");
  CHECK(types(spec_of({"Range", {}, {{"limit", number(4)}}, 1, ""})) == "int64");
  CHECK(types(spec_of({"Constant", {}, {{"value_int", number(4)}}, 1, ""})) == "int64");
  CHECK(types(spec_of({"ConstantOfShape", {}, {{"shape", list({2})}}, 1, ""})) == "fp32");
  CHECK(types(spec_of({"Bernoulli", {{{8}}}, {}, 1, ""})) == "bf16");
  CHECK(types(spec_of({"Bernoulli", {{{8}}}, {{"dtype", text("bool")}}, 1, ""})) == "bool");
  CHECK(types(spec_of({"Multinomial", {{{2, 8}}}, {}, 1, ""})) == "int32");
  OperatorSpec like = spec_of({"CastLike", {{{8}}, {{}}}, {}, 1, ""});
  like.inputs[1]->dtype = DType::kFp16;
  CHECK(types(like) == "fp16");
}

TEST_CASE("a cast is linear to wider floating types only") {
  const auto linear = [](DType from, const char* to) {
    OperatorSpec spec = spec_of({"Cast", {{{8}}}, {{"to", text(to)}}, 1, ""});
    spec.inputs[0]->dtype = from;
    const auto typed = infer_operator(spec);
    REQUIRE(typed.has_value());
    return !typed->rule->linear.empty();
  };
  CHECK(linear(DType::kBf16, "fp32"));
  CHECK(linear(DType::kFp16, "fp64"));
  CHECK(linear(DType::kFp8E4M3, "bf16"));
  CHECK(linear(DType::kFp32, "fp32"));
  CHECK_FALSE(linear(DType::kFp32, "bf16"));
  CHECK_FALSE(linear(DType::kFp16, "bf16"));
  CHECK_FALSE(linear(DType::kBf16, "int32"));
  CHECK_FALSE(linear(DType::kInt32, "int64"));
  CHECK_FALSE(linear(DType::kBool, "fp32"));
}

TEST_CASE("a rule of one's own that contracts is a matrix product") {
  const auto family = [](const std::string& rule) {
    OperatorSpec spec = spec_of({"Custom", {{{4, 8}}, {{8, 6}}}, {}, 1, ""});
    spec.rule = rule;
    const auto typed = infer_operator(spec);
    if (!typed) FAIL(typed.error().message);
    return typed->rule->family;
  };
  CHECK(family("m k, k n -> m n ; sum:k lin:x|y") == OperatorFamily::kMatMul);
  CHECK(family("m k, k n -> m n ; sum:k") == OperatorFamily::kOther);
  CHECK(family("m k, k n -> m k n ; lin:x|y") == OperatorFamily::kOther);
  CHECK(family("m k, k n -> m n ; max:k") == OperatorFamily::kOther);
}

}  // namespace
}  // namespace meshplan::operator_table_test

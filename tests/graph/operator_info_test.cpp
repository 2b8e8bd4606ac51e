// SPDX-License-Identifier: Apache-2.0
// Strategies and the states that follow from them.
#include "graph/operator_info.h"

#include <algorithm>

#include "support/catch.h"

namespace meshplan::operator_info_test {
namespace {

using Shapes = std::vector<std::optional<std::vector<std::int64_t>>>;

OperatorInfo info_of(const std::string& text,
                     const Shapes& shapes,
                     std::vector<std::int64_t> mesh,
                     const std::map<std::string, std::int64_t>& sizes = {}) {
  auto rule = make_rule(text, shapes, sizes);
  if (!rule) FAIL(rule.error().message);
  return OperatorInfo(std::make_shared<const Rule>(*std::move(rule)), std::move(mesh));
}

std::vector<std::string> labels(const OperatorInfo& info) {
  std::vector<std::string> list;
  for (const Strategy& strategy : info.strategies()) list.push_back(info.label(strategy));
  return list;
}

bool has(const OperatorInfo& info, const std::string& label) {
  const std::vector<std::string> list = labels(info);
  return std::find(list.begin(), list.end(), label) != list.end();
}

Strategy strategy_of(const OperatorInfo& info, const std::string& label) {
  for (const Strategy& strategy : info.strategies()) {
    if (info.label(strategy) == label) return strategy;
  }
  FAIL("no strategy " << label);
  return {};
}

std::string state_text(const TensorState& state, int axes) {
  std::string text;
  for (int axis = 0; axis < axes; ++axis) {
    if (axis > 0) text += ",";
    text += is_sharded(state[axis])                ? "S(" + std::to_string(state[axis]) + ")"
            : state[axis] == kReplicatedState      ? "R/R"
            : state[axis] == kGradientPartialState ? "R/P"
                                                   : "P/R";
  }
  return text;
}

const std::string kProduct = "B.. m k, k n -> B.. m n ; sum:k lin:x|y";

TEST_CASE("the strategies of a product and the states they need") {
  const OperatorInfo info = info_of(kProduct, {{{8, 16, 32}}, {{32, 64}}}, {4});
  CHECK(labels(info) ==
        std::vector<std::string>{"B0", "m", "k", "n", "partial", "partial", "none"});
  struct Row {
    const char* label;
    const char* x;
    const char* y;
    const char* result;
  };
  for (const Row& row : {Row{"B0", "S(0)", "R/P", "S(0)"},
                         {"m", "S(1)", "R/P", "S(1)"},
                         {"k", "S(2)", "S(0)", "P/R"},
                         {"n", "R/P", "S(1)", "S(2)"},
                         {"partial", "P/R", "R/P", "P/R"},
                         {"none", "R/R", "R/R", "R/R"}}) {
    INFO(row.label);
    const Strategy strategy = strategy_of(info, row.label);
    CHECK(state_text(info.operand_state(strategy, 0, true), 1) == row.x);
    CHECK(state_text(info.operand_state(strategy, 1, true), 1) == row.y);
    CHECK(state_text(info.result_state(strategy, 0), 1) == row.result);
  }
  // without a gradient there is nothing to be partial
  CHECK(state_text(info.operand_state(strategy_of(info, "m"), 1, false), 1) == "R/R");
  CHECK(info.passes_partial(info.strategies()[4]));
  CHECK_FALSE(info.passes_partial(info.strategies()[3]));
  CHECK(info.local_factors(strategy_of(info, "k")) == std::vector<std::int64_t>{8, 16, 8, 64});
  // the second way: the other operand is Partial
  CHECK(state_text(info.operand_state(info.strategies()[5], 0, true), 1) == "R/P");
  CHECK(state_text(info.operand_state(info.strategies()[5], 1, true), 1) == "P/R");
}

TEST_CASE("a joint sum passes Partial through all operands, a norm through none") {
  const OperatorInfo add = info_of("~x.., ~x.. -> x.. ; lin:x+y", {{{8, 4}}, {{4}}}, {2});
  CHECK(labels(add) == std::vector<std::string>{"x0", "x1", "partial", "none"});
  const Strategy pass = strategy_of(add, "partial");
  CHECK(state_text(add.operand_state(pass, 0, true), 1) == "P/R");
  CHECK(state_text(add.operand_state(pass, 1, true), 1) == "P/R");
  // a broadcast operand lacks the factor: its gradient is partial
  CHECK(state_text(add.operand_state(strategy_of(add, "x0"), 1, true), 1) == "R/P");
  const OperatorInfo norm = info_of("x.. r, r -> x.. r ; stat:r", {{{8, 4}}, {{4}}}, {2});
  CHECK(labels(norm) == std::vector<std::string>{"x0", "r", "none"});
}

TEST_CASE("where one operand passes Partial, the gradients of the others are sums") {
  // x / y: the gradient of y is -x / y^2 times that of the result, and x is Partial
  const OperatorInfo quotient = info_of("~x.., ~x.. -> x.. ; lin:x saves:x,y", {{{8}}, {{8}}}, {2});
  const Strategy pass = strategy_of(quotient, "partial");
  CHECK(state_text(quotient.operand_state(pass, 0, true), 1) == "P/R");
  CHECK(state_text(quotient.operand_state(pass, 1, true), 1) == "R/P");
  CHECK(state_text(quotient.operand_state(pass, 1, false), 1) == "R/R");
  CHECK(state_text(quotient.result_state(pass, 0), 1) == "P/R");
}

TEST_CASE("as many strategies as the notes on a real model count") {
  // products of a 70B model on one and two axes, its norms and its attention
  CHECK(info_of("x.. r, r -> x.. r ; stat:r", {{{16, 4096, 8192}}, {{8192}}}, {8})
            .strategies()
            .size() == 4);
  CHECK(info_of("x.. r, r -> x.. r ; stat:r", {{{64, 4096, 8192}}, {{8192}}}, {4, 4, 4})
            .strategies()
            .size() == 64);
  CHECK(info_of("~x.., ~x.. -> x.. ; lin:x+y", {{{16, 4096, 8192}}, {{16, 4096, 8192}}}, {4, 4})
            .strategies()
            .size() == 25);
}

TEST_CASE("an axis must divide what it cuts, and an axis of size 1 cuts nothing") {
  CHECK(labels(info_of("x.. -> x..", {{{6, 5}}}, {2})) == std::vector<std::string>{"x0", "none"});
  CHECK(labels(info_of("x.. -> x..", {{{6, 5}}}, {5})) == std::vector<std::string>{"x1", "none"});
  CHECK(labels(info_of("x.. -> x..", {{{6, 5}}}, {4})) == std::vector<std::string>{"none"});
  CHECK(labels(info_of("x.. -> x..", {{{6, 5}}}, {1, 3})) ==
        std::vector<std::string>{"none,x0", "none,none"});
  // two axes on one factor must divide it together
  CHECK(has(info_of("x.. -> x..", {{{12}}}, {2, 3}), "x0,x0"));
  CHECK_FALSE(has(info_of("x.. -> x..", {{{6}}}, {2, 2}), "x0,x0"));
  CHECK(labels(info_of("x.. -> x.. ; whole:x", {{{8, 8}}}, {2})) ==
        std::vector<std::string>{"none"});
}

TEST_CASE("within a compound dimension a minor factor is cut only after the whole major one") {
  const std::map<std::string, std::int64_t> sizes = {{"a", 4}, {"b", 6}};
  const std::string text = "(a b) -> a b ; lin:x";
  CHECK(labels(info_of(text, {{{24}}}, {2}, sizes)) ==
        std::vector<std::string>{"a", "partial", "none"});
  CHECK(has(info_of(text, {{{24}}}, {4}, sizes), "a"));
  CHECK_FALSE(has(info_of(text, {{{24}}}, {2}, sizes), "b"));
  CHECK_FALSE(has(info_of(text, {{{24}}}, {3}, sizes), "b"));
  const OperatorInfo two = info_of(text, {{{24}}}, {4, 2}, sizes);
  CHECK(has(two, "a,b"));
  CHECK_FALSE(has(two, "b,a"));  // out of order
  CHECK_FALSE(has(two, "a,a"));  // 8 does not divide 4
  CHECK_FALSE(has(two, "none,b"));
  const OperatorInfo three = info_of(text, {{{24}}}, {2, 2, 3}, sizes);
  CHECK(has(three, "a,a,b"));
  CHECK_FALSE(has(three, "a,b,a"));
  CHECK_FALSE(has(three, "a,none,b"));  // half of the major factor is left
  CHECK(state_text(three.operand_state(strategy_of(three, "a,a,b"), 0, true), 3) ==
        "S(0),S(0),S(0)");
  CHECK(state_text(three.result_state(strategy_of(three, "a,a,b"), 0), 3) == "S(0),S(0),S(1)");
}

TEST_CASE("attention with grouped heads: groups first, then the queries of a group") {
  const std::string text = "b (g q) s e, b g t e, b g t f -> b (g q) s f ; ring:t=s whole:e,f";
  // 32 query heads on 8 key heads
  const Shapes shapes = {{{1, 32, 64, 16}}, {{1, 8, 64, 16}}, {{1, 8, 64, 16}}};
  CHECK(labels(info_of(text, shapes, {8})) == std::vector<std::string>{"g", "s", "s=t", "none"});
  // more devices than groups: no axis of 16 cuts the heads, two axes of 8 and 2 do
  CHECK(labels(info_of(text, shapes, {16})) == std::vector<std::string>{"s", "s=t", "none"});
  const OperatorInfo split = info_of(text, shapes, {8, 2});
  CHECK(has(split, "g,q"));
  CHECK_FALSE(has(split, "q,g"));
  CHECK_FALSE(has(split, "none,q"));
  CHECK_FALSE(has(info_of(text, shapes, {4, 2}), "g,q"));  // 2 of each 8 groups are left
  const Strategy heads = strategy_of(split, "g,q");
  CHECK(state_text(split.operand_state(heads, 0, true), 2) == "S(1),S(1)");
  // the keys of a group are read by both devices: their gradient is a sum
  CHECK(state_text(split.operand_state(heads, 1, true), 2) == "S(1),R/P");
  CHECK(state_text(split.operand_state(heads, 2, true), 2) == "S(1),R/P");
  CHECK(state_text(split.result_state(heads, 0), 2) == "S(1),S(1)");
  // all of the sequence is read: gathered keys, or a ring
  const OperatorInfo one = info_of(text, shapes, {4});
  const Strategy gathered = strategy_of(one, "s");
  CHECK(state_text(one.operand_state(gathered, 0, true), 1) == "S(2)");
  CHECK(state_text(one.operand_state(gathered, 1, true), 1) == "R/P");
  const Strategy ring = strategy_of(one, "s=t");
  CHECK(state_text(one.operand_state(ring, 1, true), 1) == "S(2)");
  CHECK(state_text(one.operand_state(ring, 2, true), 1) == "S(2)");
  // every device works through all keys in the end
  CHECK(one.local_factors(ring) == one.local_factors(gathered));
  CHECK(one.local_factors(ring)[3] == 16);
  CHECK(one.local_factors(ring)[5] == 64);
}

TEST_CASE("a result without the factor is redundant, unless it is reduced") {
  // two results: the second lacks n
  const OperatorInfo info = info_of("m n -> m n, m ; ", {{{4, 4}}}, {2});
  const Strategy strategy = strategy_of(info, "n");
  CHECK(state_text(info.result_state(strategy, 0), 1) == "S(1)");
  CHECK(state_text(info.result_state(strategy, 1), 1) == "R/R");
  const OperatorInfo maximum = info_of("m n -> m ; max:n", {{{4, 4}}}, {2});
  CHECK(state_text(maximum.result_state(strategy_of(maximum, "n"), 0), 1) == "P/R");
  CHECK(maximum.result_reduction() == Reduction::kMax);
}

TEST_CASE("the states of a tensor: six per axis for an activation of three dimensions") {
  const std::vector<std::int64_t> shape = {64, 64, 64};
  for (const auto& [mesh, count] : std::vector<std::pair<std::vector<std::int64_t>, std::size_t>>{
           {{4}, 6}, {{4, 4}, 36}, {{4, 4, 4}, 216}, {{4, 1, 4}, 36}}) {
    CHECK(all_states(shape, mesh, true, true).size() == count);
  }
  CHECK(all_states(shape, std::vector<std::int64_t>{4}, false, true).size() == 5);
  CHECK(all_states(shape, std::vector<std::int64_t>{4}, true, false).size() == 5);
  // what does not divide is left out
  CHECK(all_states({6, 4}, std::vector<std::int64_t>{4}, false, false).size() == 2);
  CHECK(all_states({8}, std::vector<std::int64_t>{4, 4}, false, false).size() == 3);

  TensorState state;
  state[0] = 1;
  state[1] = 1;
  const std::vector<std::int64_t> mesh = {2, 3};
  CHECK(divides({5, 12}, state, mesh));
  CHECK_FALSE(divides({5, 8}, state, mesh));
  CHECK_FALSE(divides({12}, state, mesh));
  CHECK(local_shape({5, 12}, state, mesh) == std::vector<std::int64_t>{5, 2});
}

TEST_CASE("a window reads no further than the neighbours") {
  const std::string text = "b s -> b s ; shift:s(3,1,1,1)";
  const Rule rule = info_of(text, {{{1, 12}}}, {2}).rule();
  CHECK(rule.factors[1].window == Window{12, 3, 1, 1, 1});
  CHECK(halo(rule.factors[1].window, 12, 3) == Halo{1, 1});
  CHECK(halo(rule.factors[1].window, 12, 12) == Halo{1, 1});
  CHECK_FALSE(halo(rule.factors[1].window, 12, 5).has_value());  // unequal pieces
  CHECK(labels(info_of(text, {{{1, 12}}}, {4})) == std::vector<std::string>{"s", "none"});
  // causal: nothing of what follows; as wide as a shard is still the neighbour, wider is not
  const std::string causal = "s -> s ; shift:s(4,1,3,0)";
  CHECK(halo(info_of(causal, {{{12}}}, {2}).rule().factors[0].window, 12, 4) == Halo{3, 0});
  CHECK(labels(info_of(causal, {{{12}}}, {4})) == std::vector<std::string>{"s", "none"});
  CHECK(labels(info_of(causal, {{{12}}}, {6})) == std::vector<std::string>{"none"});
  // stride 2 halves: [16] -> [8]; windows of two positions need no halo
  const OperatorInfo halves = info_of("s -> s ; shift:s(2,2,0,0)", {{{16}}}, {4});
  CHECK(halves.rule().results[0].shape == std::vector<std::int64_t>{8});
  CHECK(halo(halves.rule().factors[0].window, 8, 4) == Halo{0, 0});
  CHECK(halves.local_factors(halves.strategies()[0]) == std::vector<std::int64_t>{2});
  // without padding the shards drift apart: [34] -> [32], both divide by 2
  CHECK(halo(Window{34, 3, 1, 0, 0}, 32, 2) == Halo{1, 1});
  // the extent must divide, too
  CHECK_FALSE(halo(Window{9, 2, 1, 0, 0}, 8, 2).has_value());
}

TEST_CASE("a route cuts tokens on one side and experts on the other") {
  const std::string text =
      "(g s) d, (g s) . -> e (g c) d ; whole:s route:g=e route:s=e lin:x saves:y";
  const std::map<std::string, std::int64_t> sizes = {{"g", 2}, {"e", 4}, {"c", 3}};
  const Shapes shapes = {{{8, 6}}, {{8, 2}}};
  const OperatorInfo one = info_of(text, shapes, {2}, sizes);
  CHECK(labels(one) == std::vector<std::string>{"g", "g>e", "d", "e", "partial", "none"});
  const Strategy route = strategy_of(one, "g>e");
  CHECK(state_text(one.operand_state(route, 0, true), 1) == "S(0)");
  CHECK(state_text(one.operand_state(route, 1, false), 1) == "S(0)");
  CHECK(state_text(one.result_state(route, 0), 1) == "S(0)");
  CHECK(state_text(one.result_state(strategy_of(one, "g"), 0), 1) == "S(1)");
  CHECK(state_text(one.operand_state(strategy_of(one, "e"), 0, true), 1) == "R/P");
  CHECK(one.local_factors(route) == std::vector<std::int64_t>{1, 4, 6, 2, 3});
  // tokens within a group go to experts once the groups are cut
  const OperatorInfo two = info_of(text, shapes, {2, 2}, sizes);
  CHECK(has(two, "g,s>e"));
  CHECK(has(two, "g>e,s>e"));
  CHECK_FALSE(has(two, "none,s>e"));
  CHECK_FALSE(has(two, "s>e,g"));
  CHECK_FALSE(has(two, "g>e,g"));
}

}  // namespace
}  // namespace meshplan::operator_info_test

// SPDX-License-Identifier: Apache-2.0
// Trees of copies and lifetimes, against examples worked out by hand.
#include "cost_model/data_flow.h"

#include "support/graph_builder.h"

namespace meshplan::data_flow_test {
namespace {

/// The tree below a tensor: "result(copy(q.0 k.0) s.0)"; what is stored is marked with '*'.
std::string tree(const Graph& graph, const DataFlow& flow, int value) {
  const Value& v = flow.values()[static_cast<std::size_t>(value)];
  std::string text = v.kind == ValueKind::kResult      ? "result"
                     : v.kind == ValueKind::kInput     ? "input"
                     : v.kind == ValueKind::kParameter ? "parameter"
                                                       : "copy";
  if (v.stored) text += "*";
  std::string inside;
  for (const int out : v.outgoing) {
    const Transfer& transfer = flow.transfers()[static_cast<std::size_t>(out)];
    inside += inside.empty() ? "" : " ";
    inside += transfer.to >= 0
                  ? tree(graph, flow, transfer.to)
                  : graph.op(transfer.use.op).name + "." + std::to_string(transfer.use.operand);
  }
  return inside.empty() ? text : text + "(" + inside + ")";
}

std::string tree(const Graph& graph, const DataFlow& flow, const std::string& tensor) {
  const int root = flow.root(test::tensor_id(graph, tensor));
  return root < 0 ? "none" : tree(graph, flow, root);
}

TEST_CASE("a tensor with one reader has no copy, one with several has one") {
  const Graph graph = test::build_graph(R"(
    input x 8 16; weight w 16 16; h = MatMul x w
    a = Silu h; b = Relu h
    c = Add a b; loss l = ReduceMean c)");
  const DataFlow flow(graph);
  CHECK(tree(graph, flow, "h") == "result(copy(a.0 b.0))");
  CHECK(tree(graph, flow, "a") == "result(c.0)");
  CHECK(tree(graph, flow, "c") == "result(l.0)");
  CHECK(tree(graph, flow, "l") == "result");
  // the only reader of an input or a parameter reads it directly
  CHECK(tree(graph, flow, "x") == "none");
  CHECK(tree(graph, flow, "w") == "none");
  CHECK(flow.direct(test::operator_id(graph, "h"), 0) == DirectUse::kInput);
  CHECK(flow.direct(test::operator_id(graph, "h"), 1) == DirectUse::kParameter);
  CHECK(flow.direct(test::operator_id(graph, "a"), 0) == DirectUse::kNo);
  CHECK(flow.transfer(test::operator_id(graph, "h"), 0) == -1);
  CHECK(flow.moments() == 2 * 5);
}

TEST_CASE("like readers share one more copy where there are others") {
  const std::string block = R"(
    input x 8 16; weight w 16 16; weight wq 16 16; weight wk 16 16; weight wv 16 16; constant f 16
    h = MatMul x w
    q = MatMul h wq; k = MatMul h wk; v = MatMul h wv
    qk = Mul q k; m = Add qk v; )";
  // q, k and v alone: one group, one copy
  const Graph alone = test::build_graph(block + "loss l = ReduceMean m");
  CHECK(tree(alone, DataFlow(alone), "h") == "result(copy*(k.0 q.0 v.0))");
  // with a residual addition: the group has a copy of its own
  const Graph residual = test::build_graph(block + "r = Add h m; loss l = ReduceMean r");
  CHECK(tree(residual, DataFlow(residual), "h") == "result(copy(copy*(k.0 q.0 v.0) r.0))");
  // operands at another place are not alike
  const Graph second = test::build_graph(block + "r = Add m h; s = Add h r; loss l = ReduceMean s");
  CHECK(tree(second, DataFlow(second), "h") == "result(copy(copy*(k.0 q.0 v.0) r.1 s.0))");
}

TEST_CASE(
    "inputs and parameters with several readers choose their own state, constants need none") {
  const Graph graph = test::build_graph(R"(
    input x 8 16; weight w 16 16; constant c 16
    a = MatMul x w; b = MatMul x w transpose_b=1
    d = Add a c; e = Mul b c; f = Add d e; loss l = ReduceMean f)");
  const DataFlow flow(graph);
  // the two products have different rules: two groups of one
  CHECK(tree(graph, flow, "x") == "input*(a.0 b.0)");
  CHECK(tree(graph, flow, "w") == "parameter*(a.1 b.1)");
  CHECK(tree(graph, flow, "c") == "none");
  CHECK(flow.direct(test::operator_id(graph, "d"), 1) == DirectUse::kConstant);
  CHECK(flow.direct(test::operator_id(graph, "e"), 1) == DirectUse::kConstant);
}

TEST_CASE("lifetimes of two layers") {
  // moments: forward h 0, a 1, y 2, l 3; backward l 4, y 5, a 6, h 7
  const Graph graph = test::build_graph(R"(
    input x 8 16; weight w 16 32; weight u 32 4
    h = MatMul x w; a = Silu h; y = MatMul a u; loss l = ReduceMean y)");
  const DataFlow flow(graph);
  auto value = [&](const char* name) {
    return flow.values()[static_cast<std::size_t>(flow.root(test::tensor_id(graph, name)))];
  };
  auto into = [&](const char* op) {
    return flow
        .transfers()[static_cast<std::size_t>(flow.transfer(test::operator_id(graph, op), 0))];
  };
  CHECK(value("h").live == MomentRange{0, 2});
  CHECK(value("h").gradient == MomentRange{6, 8});
  CHECK_FALSE(value("h").stored);
  CHECK(value("h").kept.empty());
  // Silu needs h in its backward at 6
  CHECK(into("a").saves);
  CHECK(into("a").same == MomentRange{2, 7});
  CHECK(into("a").kept == MomentRange{1, 7});
  CHECK(into("a").copy == MomentRange{1, 2});
  CHECK(into("a").regathered == MomentRange{6, 7});
  CHECK(into("a").gradient == MomentRange{6, 7});
  // the second product needs a for the gradient of u
  CHECK(value("a").live == MomentRange{1, 3});
  CHECK(value("a").gradient == MomentRange{5, 7});
  CHECK(into("y").same == MomentRange{3, 6});
  // the mean needs nothing
  CHECK_FALSE(into("l").saves);
  CHECK(value("y").live == MomentRange{2, 4});
  CHECK(value("y").gradient == MomentRange{4, 6});
  CHECK(value("l").live == MomentRange{3, 4});
  CHECK(value("l").gradient.empty());  // the constant 1

  // x is read in the backward (for w's gradient), w is not: x has no gradient
  const Operator& first = graph.op(test::operator_id(graph, "h"));
  CHECK(backward_reads(graph, first, 0));
  CHECK_FALSE(backward_reads(graph, first, 1));
  const Operator& second = graph.op(test::operator_id(graph, "y"));
  CHECK(backward_reads(graph, second, 0));
  CHECK(backward_reads(graph, second, 1));

  const ParameterSpan span = parameter_span(graph, flow, test::tensor_id(graph, "u"));
  CHECK(span.first == 2);
  CHECK(span.gathered == MomentRange{1, 3});
  CHECK(span.gathered_backward == MomentRange{4, 6});
  CHECK(span.unreduced == MomentRange{5, 6});
}

TEST_CASE("a result that its producer saves is stored once, until the first backward ends") {
  // moments: s 0, r 1, t 2, l 3 | l 4, t 5, r 6, s 7
  const Graph graph = test::build_graph(R"(
    weight x 8 16; weight u 16 4
    s = Softmax x axis=-1; r = Relu s; t = MatMul r u; loss l = ReduceMean t)");
  const DataFlow flow(graph);
  const Value& s = flow.values()[static_cast<std::size_t>(flow.root(test::tensor_id(graph, "s")))];
  CHECK(s.stored);  // the softmax saves its result
  CHECK(s.live == MomentRange{0, 2});
  CHECK(s.kept == MomentRange{2, 8});
  const Value& r = flow.values()[static_cast<std::size_t>(flow.root(test::tensor_id(graph, "r")))];
  CHECK(r.stored);  // Relu saves its result, and the product reads it: one buffer
  CHECK(r.kept == MomentRange{3, 7});
  const Transfer& read =
      flow.transfers()[static_cast<std::size_t>(flow.transfer(test::operator_id(graph, "t"), 0))];
  CHECK(read.saves);
  CHECK(read.stored);
}

TEST_CASE("views have no buffer: they prolong their operand's") {
  // moments: h 0, v 1, a 2, l 3 | l 4, a 5, v 6, h 7
  const Graph graph = test::build_graph(R"(
    input x 8 16; weight w 16 32
    h = MatMul x w; v = Reshape h shape=8,4,8; a = Silu v; loss l = ReduceMean a)");
  const DataFlow flow(graph);
  auto value = [&](const char* name) {
    return flow.values()[static_cast<std::size_t>(flow.root(test::tensor_id(graph, name)))];
  };
  CHECK(value("v").view);
  CHECK(value("v").live.empty());
  CHECK(value("v").gradient.empty());
  CHECK(value("h").live == MomentRange{0, 3});  // until Silu has read the view
  CHECK(value("h").gradient == MomentRange{5, 8});
  const Transfer& into_view =
      flow.transfers()[static_cast<std::size_t>(flow.transfer(test::operator_id(graph, "v"), 0))];
  CHECK(into_view.saves);  // saving the view saves its operand
  CHECK(into_view.same == MomentRange{3, 6});
}

TEST_CASE("in inference nothing is saved and there are no gradients") {
  const Graph graph = test::build_graph(R"(
    input x 8 16; weight w 16 32; h = MatMul x w; a = Silu h; y = Relu a)",
                                        false);
  const DataFlow flow(graph);
  CHECK(flow.moments() == 3);
  for (const Value& value : flow.values()) {
    CHECK_FALSE(value.stored);
    CHECK(value.kept.empty());
    CHECK(value.gradient.empty());
  }
  for (const Transfer& transfer : flow.transfers()) CHECK_FALSE(transfer.saves);
}

}  // namespace
}  // namespace meshplan::data_flow_test

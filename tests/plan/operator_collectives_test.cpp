// SPDX-License-Identifier: Apache-2.0
// The collectives that an operator executes inside are those that it is priced with: kind, axes,
// pass, number and elements, for every type and strategy.
#include <algorithm>
#include <map>
#include <tuple>

#include "cost_model/inner_exchanges.h"
#include "plan/operator_cases.h"
#include "plan/operator_proof.h"
#include "support/catch.h"

namespace meshplan::operator_collectives_test {

using namespace test;
namespace {

/// Times that each kind of collective runs: (collective, axes, backward, elements).
using Counts = std::map<std::tuple<Collective, AxisSet, bool, std::int64_t>, std::int64_t>;

/// The operator alone, as a graph whose tensors have the gradients that are compared.
Graph graph_of(const OperatorCase& c, const TypedOperator& typed) {
  Graph graph;
  Operator op;
  op.name = "op";
  op.type = c.spec.type;
  op.attributes = c.spec.attributes;
  op.rule = typed.rule;
  bool trained = false;
  for (std::size_t i = 0; i < c.spec.inputs.size(); ++i) {
    op.inputs.emplace_back();
    if (!c.spec.inputs[i]) continue;
    Tensor tensor;
    tensor.name = "x" + std::to_string(i);
    tensor.shape = c.spec.inputs[i]->shape;
    tensor.dtype = c.spec.inputs[i]->dtype;
    tensor.role = Role::kInput;
    tensor.has_gradient = c.gradients[i];
    trained = trained || c.gradients[i];
    tensor.uses = {{OperatorId{0}, static_cast<int>(i)}};
    op.inputs.back() = static_cast<TensorId>(graph.tensors.size());
    graph.tensors.push_back(std::move(tensor));
  }
  for (const TensorType& output : typed.outputs) {
    Tensor tensor;
    tensor.name = "y" + std::to_string(op.outputs.size());
    tensor.shape = output.shape;
    tensor.dtype = output.dtype;
    tensor.has_gradient = trained && is_floating(output.dtype);
    tensor.producer = OperatorId{0};
    op.outputs.push_back(static_cast<TensorId>(graph.tensors.size()));
    graph.tensors.push_back(std::move(tensor));
  }
  graph.operators.push_back(std::move(op));
  return graph;
}

std::string text_of(const Counts& counts) {
  std::string text;
  for (const auto& [key, count] : counts) {
    const auto& [collective, axes, backward, elements] = key;
    text += std::string(collective_name(collective)) + " axes " + std::to_string(axes) +
            (backward ? " backward " : " forward ") + std::to_string(count) + " x " +
            std::to_string(elements) + " elements; ";
  }
  return text.empty() ? "none" : text;
}

TEST_CASE("operators execute the collectives that they are priced with") {
  std::size_t with_collectives = 0;
  for (const auto& [type, make] : operator_cases()) {
    Random random(3);
    for (const OperatorCase& c : make(random)) {
      auto typed = infer_operator(c.spec);
      if (!typed) FAIL(type << ": " << typed.error().message);
      auto whole = run_whole(c, *typed, random);
      if (!whole) FAIL(type << ": " << whole.error().message);
      const Graph graph = graph_of(c, *typed);
      for (const Sizes& mesh : {Sizes{2}, Sizes{2, 2}, Sizes{2, 3}}) {
        const auto info = std::make_shared<const OperatorInfo>(typed->rule, mesh);
        for (const Strategy& strategy : info->strategies()) {
          Counts priced, executed;
          for (const InnerExchange& inner :
               inner_exchanges(graph, graph.operators[0], *info, strategy))
            priced[{inner.collective, inner.axes, inner.backward, inner.elements}] += inner.count;
          std::vector<InnerCall> calls;
          if (disproof(c, *typed, *whole, info, strategy, random, &calls)) continue;
          for (const InnerCall& call : calls)
            executed[{call.collective, call.axes, call.backward, call.elements}] += call.count;
          with_collectives += executed.empty() ? 0U : 1U;
          INFO(type << " " << typed->rule->text << " as " << info->label(strategy));
          INFO("priced:   " << text_of(priced));
          INFO("executed: " << text_of(executed));
          CHECK(priced == executed);
        }
      }
    }
  }
  CHECK(with_collectives > 100);
}

}  // namespace
}  // namespace meshplan::operator_collectives_test

// SPDX-License-Identifier: Apache-2.0
#include "search/constraint_restrictions.h"

#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>

namespace meshplan {
namespace {

bool allows(const LayoutChoices& choices, const Placements& placements) {
  for (std::size_t axis = 0; axis < placements.size(); ++axis) {
    if (!choices.allows(static_cast<int>(axis), placements[axis])) return false;
  }
  return true;
}

}  // namespace

Restrictions restrictions_from(const BoundConstraints& constraints, PriceBook& book) {
  Restrictions restrictions;
  if (constraints.empty()) return restrictions;
  const auto bound = std::make_shared<const BoundConstraints>(constraints);
  const Graph& graph = book.graph();
  auto placements_of = [&book](TensorId tensor, const TensorState& state) {
    const Tensor& t = book.graph().tensor(tensor);
    const Reduction reduction =
        t.producer ? book.info(*t.producer).result_reduction() : Reduction::kSum;
    return value_placements(state, book.mesh_axes(), reduction);
  };
  restrictions.strategy = [bound, &book, &graph, placements_of](OperatorId id,
                                                                const Strategy& strategy) {
    const Operator& op = graph.op(id);
    const auto own = bound->operators.find(id);
    for (std::size_t i = 0; i < op.inputs.size(); ++i) {
      if (!op.inputs[i]) continue;
      const TensorId tensor = *op.inputs[i];
      const auto of_tensor = bound->tensors.find(tensor);
      if (of_tensor == bound->tensors.end() && own == bound->operators.end()) continue;
      const TensorState state = book.operand_state(id, strategy, i);
      const bool parameter = graph.tensor(tensor).role == Role::kParameter;
      if (of_tensor != bound->tensors.end() && !parameter &&
          !allows(of_tensor->second, placements_of(tensor, state)))
        return false;
      if (own == bound->operators.end()) continue;
      const OperatorChoices& choices = own->second;
      if (i < choices.inputs.size() && choices.inputs[i] &&
          !allows(*choices.inputs[i], placements_of(tensor, state)))
        return false;
      if (i < choices.in_strategy.size() && choices.in_strategy[i]) {
        const Shape& shape = graph.tensor(tensor).shape;
        const Shape local = local_shape(shape, state, book.mesh_shape());
        for (std::size_t d = 0; d < shape.size(); ++d) {
          if (shape[d] / local[d] != (*choices.in_strategy[i])[d]) return false;
        }
      }
    }
    for (std::size_t r = 0; r < op.outputs.size(); ++r) {
      const auto of_tensor = bound->tensors.find(op.outputs[r]);
      if (of_tensor == bound->tensors.end() && own == bound->operators.end()) continue;
      const TensorState state = book.result_state(id, strategy, r);
      if (own != bound->operators.end() && r < own->second.outputs.size() &&
          own->second.outputs[r] &&
          !allows(*own->second.outputs[r], placements_of(op.outputs[r], state))) {
        return false;
      }
      // a tensor that nothing reads ends as its producer leaves it, without Partial
      if (of_tensor != bound->tensors.end() && graph.tensor(op.outputs[r]).uses.empty() &&
          !allows(of_tensor->second, placements_of(op.outputs[r], book.final_state(state)))) {
        return false;
      }
    }
    return true;
  };
  restrictions.value = [bound, placements_of, &graph](TensorId tensor, const TensorState& state) {
    const auto found = bound->tensors.find(tensor);
    if (found == bound->tensors.end() || graph.tensor(tensor).role == Role::kParameter) return true;
    return allows(found->second, placements_of(tensor, state));
  };
  // equal parameters rest alike; most of a constrained model's are equal
  using RestKey = std::tuple<const StateTable*, bool, TensorState, ParameterChoice>;
  const auto rests = std::make_shared<std::map<RestKey, std::optional<Placements>>>();
  restrictions.parameter = [bound, rests, &book](TensorId tensor,
                                                 const TensorState& state,
                                                 const ParameterChoice& choice) {
    const auto found = bound->tensors.find(tensor);
    if (found == bound->tensors.end()) return true;
    const bool read_again = parameter_read_again(book.graph(), book.flow(), tensor);
    const auto [rest, is_new] =
        rests->try_emplace(RestKey{&book.states(tensor), read_again, state, choice});
    if (is_new) {
      const auto price = book.parameter_price(tensor, state, choice, read_again);
      if (price) rest->second = price->rest;
    }
    return rest->second && allows(found->second, *rest->second);
  };
  return restrictions;
}

}  // namespace meshplan

// SPDX-License-Identifier: Apache-2.0
#include "cost_model/data_flow.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

namespace meshplan {

bool has_backward(const Graph& graph, const Operator& op) {
  return std::any_of(op.inputs.begin(), op.inputs.end(), [&](const auto& input) {
    return input && graph.tensor(*input).has_gradient;
  });
}

bool backward_reads(const Graph& graph, const Operator& op, std::size_t operand) {
  if (!op.rule->operands[operand].saved) return false;
  for (std::size_t other = 0; other < op.inputs.size(); ++other) {
    if (!op.inputs[other] || !graph.tensor(*op.inputs[other]).has_gradient) continue;
    if (!op.rule->product || other != operand) return true;
  }
  return false;
}

bool ends_graph(const Graph& graph, TensorId tensor) {
  return graph.tensor(tensor).role == Role::kLoss ||
         std::find(graph.outputs.begin(), graph.outputs.end(), tensor) != graph.outputs.end();
}

ParameterSpan parameter_span(const Graph& graph, const DataFlow& flow, TensorId tensor) {
  const std::vector<Use>& uses = graph.tensor(tensor).uses;
  ParameterSpan span;
  span.first = flow.forward_moment(uses.front().op);
  const int last = flow.forward_moment(uses.back().op);
  span.backward_first = flow.moments() - 1 - last;
  span.backward_last = flow.moments() - 1 - span.first;
  span.gathered = {span.first - 1, last + 1};
  span.gathered_backward = {span.backward_first - 1, span.backward_last + 1};
  span.unreduced = {span.backward_first, span.backward_last + 1};
  return span;
}

/// What hangs below a node, in operator numbers.
struct DataFlow::Span {
  int first_reader = -1;
  int last_reader = -1;  ///< readers of views included
  int first_saver = -1;  ///< -1: nothing below is saved
  int last_saver = -1;

  void add(const Span& other) {
    auto lower = [](int& a, int b) { a = b < 0 ? a : a < 0 ? b : std::min(a, b); };
    lower(first_reader, other.first_reader);
    lower(first_saver, other.first_saver);
    last_reader = std::max(last_reader, other.last_reader);
    last_saver = std::max(last_saver, other.last_saver);
  }
};

DataFlow::DataFlow(const Graph& graph) : roots_(graph.tensors.size(), -1) {
  for (const Operator& op : graph.operators) {
    operand_transfer_.emplace_back(op.inputs.size(), -1);
    direct_.emplace_back(op.inputs.size(), DirectUse::kNo);
  }
  moments_ = static_cast<int>(graph.operators.size()) * (graph.training ? 2 : 1);
  for (std::size_t t = 0; t < graph.tensors.size(); ++t) add_tree(graph, static_cast<TensorId>(t));
  measure(graph);
}

int DataFlow::add_transfer(int from, int to, Use use) {
  const int id = static_cast<int>(transfers_.size());
  Transfer transfer;
  transfer.from = from;
  transfer.to = to;
  transfer.use = use;
  values_[static_cast<std::size_t>(from)].outgoing.push_back(id);
  if (to >= 0) {
    values_[static_cast<std::size_t>(to)].incoming = id;
  } else {
    operand_transfer_[index(use.op)][static_cast<std::size_t>(use.operand)] = id;
  }
  transfers_.push_back(std::move(transfer));
  return id;
}

void DataFlow::add_tree(const Graph& graph, TensorId id) {
  const Tensor& tensor = graph.tensor(id);
  auto new_value = [&](ValueKind kind) {
    Value value;
    value.tensor = id;
    value.kind = kind;
    values_.push_back(std::move(value));
    return static_cast<int>(values_.size()) - 1;
  };
  int root = -1;
  if (tensor.producer) {
    root = new_value(ValueKind::kResult);
    const Operator& producer = graph.op(*tensor.producer);
    Value& value = values_.back();
    value.view = producer.rule->family == OperatorFamily::kView;
    value.result = static_cast<int>(
        std::find(producer.outputs.begin(), producer.outputs.end(), id) - producer.outputs.begin());
  } else {
    const DirectUse kind = tensor.role == Role::kParameter  ? DirectUse::kParameter
                           : tensor.role == Role::kConstant ? DirectUse::kConstant
                                                            : DirectUse::kInput;
    if (kind == DirectUse::kConstant || tensor.uses.size() == 1) {
      for (const Use& use : tensor.uses)
        direct_[index(use.op)][static_cast<std::size_t>(use.operand)] = kind;
      return;
    }
    if (tensor.uses.empty()) return;
    root = new_value(kind == DirectUse::kParameter ? ValueKind::kParameter : ValueKind::kInput);
  }
  roots_[index(id)] = root;
  if (tensor.uses.size() == 1) {
    add_transfer(root, -1, tensor.uses[0]);
    return;
  }
  if (tensor.uses.empty()) return;
  // like readers: equal rule, equal operand position; in the order of their first use
  std::vector<std::pair<std::pair<std::string, int>, std::vector<Use>>> groups;
  for (const Use& use : tensor.uses) {
    const std::pair<std::string, int> key = {graph.op(use.op).rule->text, use.operand};
    auto found = std::find_if(
        groups.begin(), groups.end(), [&](const auto& group) { return group.first == key; });
    if (found == groups.end()) found = groups.insert(found, {key, {}});
    found->second.push_back(use);
  }
  // inputs and parameters choose their own state: the root plays the copy
  int copy = root;
  if (tensor.producer) {
    copy = new_value(ValueKind::kCopy);
    add_transfer(root, copy, {});
  }
  for (const auto& [key, uses] : groups) {
    int node = copy;
    if (uses.size() > 1 && groups.size() > 1) {
      node = new_value(ValueKind::kCopy);
      add_transfer(copy, node, {});
    }
    for (const Use& use : uses) add_transfer(node, -1, use);
  }
}

/// Lifetimes, from the readers up. Values are in tensor order, not in topological order, so the
/// spans of views' results are found from the last operator to the first.
void DataFlow::measure(const Graph& graph) {
  std::vector<Span> below(values_.size());  // of each value
  std::vector<std::vector<int>> leaves(graph.operators.size());
  for (std::size_t t = 0; t < transfers_.size(); ++t) {
    if (transfers_[t].to < 0) leaves[index(transfers_[t].use.op)].push_back(static_cast<int>(t));
  }
  std::vector<Span> side(transfers_.size());  // of each transfer's far side
  auto number_of_savers = [&](const Value& value) {
    int count = 0;
    for (const int out : value.outgoing) {
      if (transfers_[static_cast<std::size_t>(out)].saves) ++count;
    }
    return count;
  };
  // a transfer's far side is known once all operators that read it have been visited
  auto climb = [&](int leaf) {
    int at = leaf;
    while (true) {
      Transfer& transfer = transfers_[static_cast<std::size_t>(at)];
      below[static_cast<std::size_t>(transfer.from)].add(side[static_cast<std::size_t>(at)]);
      Value& from = values_[static_cast<std::size_t>(transfer.from)];
      if (from.kind != ValueKind::kCopy) break;
      side[static_cast<std::size_t>(from.incoming)].add(side[static_cast<std::size_t>(at)]);
      at = from.incoming;
    }
  };
  for (std::size_t i = graph.operators.size(); i-- > 0;) {
    const Operator& op = graph.operators[i];
    const bool view = op.rule->family == OperatorFamily::kView;
    const int number = static_cast<int>(i);
    for (const int leaf : leaves[i]) {
      Transfer& transfer = transfers_[static_cast<std::size_t>(leaf)];
      Span span;
      span.first_reader = span.last_reader = number;
      transfer.saves = graph.training &&
                       backward_reads(graph, op, static_cast<std::size_t>(transfer.use.operand));
      if (transfer.saves) span.first_saver = span.last_saver = number;
      if (view) {
        for (const TensorId output : op.outputs) {
          const int root = roots_[index(output)];
          if (root < 0) continue;
          Span through = below[static_cast<std::size_t>(root)];
          transfer.saves = transfer.saves || through.first_saver >= 0;
          through.first_reader = -1;  // a view's own readers are later; keep the view first
          span.add(through);
        }
      }
      side[static_cast<std::size_t>(leaf)] = span;
      climb(leaf);
    }
  }
  // what a copy's own transfer saves: the copy, if several readers below save it
  for (std::size_t v = values_.size(); v-- > 0;) {  // groups come after their copy
    Value& value = values_[v];
    const int savers = number_of_savers(value);
    if (value.kind == ValueKind::kCopy) {
      value.stored = savers >= 2;
      transfers_[static_cast<std::size_t>(value.incoming)].saves = savers >= 2;
    }
  }
  for (std::size_t v = 0; v < values_.size(); ++v) {
    Value& value = values_[v];
    if (value.kind == ValueKind::kCopy) continue;
    if (value.kind != ValueKind::kResult) {
      value.stored = true;  // inputs and parameters stay
      continue;
    }
    const Tensor& tensor = graph.tensor(value.tensor);
    const Operator& producer = graph.op(*tensor.producer);
    const int i = static_cast<int>(index(*tensor.producer));
    const bool saved_result =
        graph.training && producer.rule->results[static_cast<std::size_t>(value.result)].saved &&
        has_backward(graph, producer);
    const bool savers_below = below[v].first_saver >= 0;
    value.stored = saved_result || number_of_savers(value) >= 2 || (value.view && savers_below);
    if (value.view) continue;
    const int last = std::max(i, below[v].last_reader);
    value.live = {i, last + 1};
    if (value.stored) {
      const int first = saved_result ? i : below[v].first_saver;
      value.kept = {last + 1, moments_ - first};
    }
    if (tensor.has_gradient && tensor.role != Role::kLoss)
      value.gradient = {moments_ - 1 - last, moments_ - i};
  }
  for (std::size_t t = 0; t < transfers_.size(); ++t) {
    Transfer& transfer = transfers_[t];
    const Value& from = values_[static_cast<std::size_t>(transfer.from)];
    const Span& far = side[t];
    transfer.stored = from.stored;
    transfer.copy = {far.first_reader, far.last_reader + 1};
    if (graph.training && graph.tensor(from.tensor).has_gradient)
      transfer.gradient = {moments_ - 1 - far.last_reader, moments_ - far.first_reader};
    if (!transfer.saves) continue;
    const int last_of_from =
        std::max(below[static_cast<std::size_t>(transfer.from)].last_reader, 0);
    const int backward_end = moments_ - far.first_saver;
    transfer.same = {last_of_from + 1, backward_end};
    transfer.kept = {far.first_reader, backward_end};
    transfer.regathered = {moments_ - 1 - far.last_saver, backward_end};
  }
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    for (const int leaf : leaves[i]) {
      int at = leaf;
      while (true) {
        Transfer& transfer = transfers_[static_cast<std::size_t>(at)];
        const auto reader = static_cast<OperatorId>(i);
        if (transfer.readers.empty() || transfer.readers.back() != reader) {
          transfer.readers.push_back(reader);
        }
        const Value& from = values_[static_cast<std::size_t>(transfer.from)];
        if (from.kind != ValueKind::kCopy) break;
        at = from.incoming;
      }
    }
  }
}

}  // namespace meshplan

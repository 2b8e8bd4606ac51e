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
  const Timeline& timeline = flow.timeline();
  ParameterSpan span;
  span.first = timeline.forward(uses.front().op);
  span.gathered = {timeline.prefetch(span.first), timeline.forward(uses.back().op) + 1};
  if (!graph.training) return span;
  const int reduced_first = timeline.backward(uses.back().op);
  span.backward_last = timeline.backward(uses.front().op);
  span.unreduced = {reduced_first, span.backward_last + 1};
  int first = timeline.size();
  int last = -1;
  for (const Use& use : uses) {
    const bool recomputed = timeline.recomputes(use.op);
    const auto operand = static_cast<std::size_t>(use.operand);
    if (recomputed) {
      first = std::min(first, timeline.recompute(use.op));
      last = std::max(last, timeline.recompute(use.op));
      if (!backward_reads(graph, graph.op(use.op), operand)) continue;
    }
    first = std::min(first, timeline.backward(use.op));
    last = std::max(last, timeline.backward(use.op));
  }
  span.backward_first = first;
  span.gathered_backward = {timeline.prefetch(first), last + 1};
  return span;
}

WorkspaceSpan workspace_span(const DataFlow& flow, OperatorId op) {
  const auto run = [](int moment) {
    return moment < 0 ? MomentRange{} : MomentRange{moment, moment + 1};
  };
  const Timeline& timeline = flow.timeline();
  const int backward = timeline.backward(op);
  WorkspaceSpan span{run(timeline.forward(op)), run(timeline.recompute(op)), {}, run(backward)};
  if (backward >= 0)
    span.kept = {std::max(timeline.forward(op), timeline.recompute(op)) + 1, backward};
  return span;
}

bool parameter_read_again(const Graph& graph, const DataFlow& flow, TensorId tensor) {
  const std::vector<Use>& uses = graph.tensor(tensor).uses;
  return std::any_of(uses.begin(), uses.end(), [&](const Use& use) {
    return flow.timeline().recomputes(use.op) ||
           backward_reads(graph, graph.op(use.op), static_cast<std::size_t>(use.operand));
  });
}

namespace {

/// The first and last of some moments; -1: none.
struct FirstLast {
  int first = -1;
  int last = -1;
  bool any() const { return first >= 0; }
  void add(int moment) { add(FirstLast{moment, moment}); }
  void add(const FirstLast& other) {
    if (!other.any()) return;
    first = any() ? std::min(first, other.first) : other.first;
    last = std::max(last, other.last);
  }
};

}  // namespace

/// Who reads what hangs below a node, and when; readers of views included.
struct DataFlow::Span {
  FirstLast readers;  ///< forward (the first one without views' readers)
  FirstLast again;    ///< values made again: when readers take them, recomputed or else backward
  FirstLast saved;    ///< when what is saved is read

  void add(const Span& other) {
    readers.add(other.readers);
    again.add(other.again);
    saved.add(other.saved);
  }
};

DataFlow::DataFlow(const Graph& graph, const Recomputation& recomputation)
    : roots_(graph.tensors.size(), -1), timeline_(graph, recomputation) {
  for (const Operator& op : graph.operators) {
    operand_transfer_.emplace_back(op.inputs.size(), -1);
    direct_.emplace_back(op.inputs.size(), DirectUse::kNo);
  }
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
    for (const int leaf : leaves[i]) {
      Transfer& transfer = transfers_[static_cast<std::size_t>(leaf)];
      const TensorId tensor = values_[static_cast<std::size_t>(transfer.from)].tensor;
      const bool made_again = timeline_.made_again(tensor);
      Span span;
      span.readers.add(static_cast<int>(i));
      const int recomputed = timeline_.recompute(static_cast<OperatorId>(i));
      if (recomputed >= 0) (made_again ? span.again : span.saved).add(recomputed);
      if (graph.training &&
          backward_reads(graph, op, static_cast<std::size_t>(transfer.use.operand))) {
        const int backward = timeline_.backward(static_cast<OperatorId>(i));
        span.saved.add(backward);
        if (made_again && recomputed < 0) span.again.add(backward);
      }
      if (view) {
        for (const TensorId output : op.outputs) {
          const int root = roots_[index(output)];
          if (root < 0) continue;
          const Span& through = below[static_cast<std::size_t>(root)];
          span.readers.last = std::max(span.readers.last, through.readers.last);
          span.saved.add(through.saved);
          if (!made_again) {
            span.saved.add(through.again);
          } else if (timeline_.made_again(output)) {
            span.again.add(through.again);
          } else if (through.saved.any()) {
            span.again.add(through.saved.first);
          }
        }
      }
      transfer.saves = span.saved.any();
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
    const Span& readers = below[v];
    value.stored =
        saved_result || number_of_savers(value) >= 2 || (value.view && readers.saved.any());
    if (value.view) continue;
    const int last = std::max(i, readers.readers.last);
    value.live = {i, last + 1};
    int alive = last;  // until here it lives without being stored
    if (timeline_.made_again(value.tensor)) {
      const int recomputed = timeline_.recompute(*tensor.producer);
      alive = std::max(recomputed, readers.again.last);
      value.again = {recomputed, alive + 1};
    }
    if (value.stored) {
      const int own = saved_result ? timeline_.backward(*tensor.producer) : -1;
      value.kept = {alive + 1, std::max(own, readers.saved.last) + 1};
    }
    if (tensor.has_gradient && tensor.role != Role::kLoss) {
      value.gradient = {timeline_.backward(static_cast<OperatorId>(last)),
                        timeline_.backward(*tensor.producer) + 1};
    }
  }
  for (std::size_t t = 0; t < transfers_.size(); ++t) {
    Transfer& transfer = transfers_[t];
    const Value& from = values_[static_cast<std::size_t>(transfer.from)];
    const Span& far = side[t];
    const Span& near = below[static_cast<std::size_t>(transfer.from)];
    transfer.stored = from.stored;
    transfer.copy = {far.readers.first, far.readers.last + 1};
    if (graph.training && graph.tensor(from.tensor).has_gradient) {
      transfer.gradient = {timeline_.backward(static_cast<OperatorId>(far.readers.last)),
                           timeline_.backward(static_cast<OperatorId>(far.readers.first)) + 1};
    }
    const int end = far.saved.last + 1;
    if (timeline_.made_again(from.tensor)) {
      transfer.again = far.again.any();
      if (transfer.again) transfer.copy_again = {far.again.first, far.again.last + 1};
      if (!transfer.saves) continue;
      transfer.same = {near.again.last + 1, end};
      transfer.kept = {far.again.first, end};
      continue;
    }
    if (!transfer.saves) continue;
    transfer.same = {std::max(near.readers.last, 0) + 1, end};
    transfer.kept = {far.readers.first, end};
    transfer.regathered = {far.saved.first, end};
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

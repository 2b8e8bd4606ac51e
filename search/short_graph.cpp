// SPDX-License-Identifier: Apache-2.0
#include "search/short_graph.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "lib/check.h"

namespace meshplan {
namespace {

/// Of a stretch of equal layers these stay: the first, two in the middle, the last.
constexpr std::size_t kKept = 4;
/// Shorter stretches are left as they are.
constexpr std::size_t kFewestPeriods = 6;

/// Equal layers: operators begin + i and begin + i + period are alike, up to the last period.
struct Stretch {
  std::size_t begin = 0;
  std::size_t period = 0;
  std::size_t count = 0;

  std::size_t first_dropped() const { return begin + (kKept - 1) * period; }
  std::size_t end_dropped() const { return begin + (count - 1) * period; }
  std::size_t dropped() const { return (count - kKept) * period; }
};

class Stretches {
 public:
  Stretches(const Graph& graph, const Recomputation& recomputation)
      : graph_(graph), recomputation_(recomputation) {
    for (const TensorId output : graph.outputs) outputs_.insert(output);
  }

  std::vector<Stretch> find() {
    find(0, graph_.operators.size());
    std::sort(found_.begin(), found_.end(), [](const Stretch& a, const Stretch& b) {
      return a.begin < b.begin;
    });
    return std::move(found_);
  }

 private:
  /// The stretch around the middle of a range, then those before and after it.
  void find(std::size_t begin, std::size_t end) {
    if (end - begin < kFewestPeriods) return;
    const std::size_t middle = begin + (end - begin) / 2;
    const std::size_t longest = std::min((end - begin) / kFewestPeriods, kLongestPeriod);
    for (std::size_t period = 1; period <= longest; ++period) {
      if (middle + period >= end || !alike(middle, middle + period)) continue;
      std::size_t first = middle;
      while (first > begin && alike(first - 1, first - 1 + period)) --first;
      std::size_t last = middle;  // the last that is like the one a period later
      while (last + 1 + period < end && alike(last + 1, last + 1 + period)) ++last;
      const Stretch stretch{first, period, (last + 1 + period - first) / period};
      if (stretch.count < kFewestPeriods || !reaches_back_little(stretch)) continue;
      found_.push_back(stretch);
      find(begin, first);
      find(first + stretch.count * period, end);
      return;
    }
    find(begin, middle);
    find(middle + 1, end);
  }

  /// Whether what comes after the operators left out reads nothing of the layers long before.
  bool reaches_back_little(const Stretch& stretch) const {
    for (std::size_t i = stretch.end_dropped(); i < stretch.end_dropped() + stretch.period; ++i) {
      for (const auto& input : graph_.operators[i].inputs) {
        if (!input || !graph_.tensor(*input).producer) continue;
        const std::size_t producer = index(*graph_.tensor(*input).producer);
        if (producer >= stretch.begin && producer < stretch.end_dropped() &&
            producer < stretch.begin + stretch.dropped())
          return false;
      }
    }
    return true;
  }

  bool alike_use(const Use& a, const Use& b, std::size_t distance) const {
    return index(a.op) + distance == index(b.op) && a.operand == b.operand;
  }

  bool alike_uses(const Tensor& a, const Tensor& b, std::size_t distance) const {
    return std::equal(a.uses.begin(),
                      a.uses.end(),
                      b.uses.begin(),
                      b.uses.end(),
                      [&](const Use& x, const Use& y) { return alike_use(x, y, distance); });
  }

  static bool alike_type(const Tensor& a, const Tensor& b) {
    return a.shape == b.shape && a.units == b.units && a.dtype == b.dtype && a.role == b.role &&
           a.trainable == b.trainable && a.has_gradient == b.has_gradient;
  }

  bool alike_operand(TensorId a, TensorId b, std::size_t distance) const {
    if (a == b) return true;
    const Tensor& x = graph_.tensor(a);
    const Tensor& y = graph_.tensor(b);
    if (!alike_type(x, y) || x.producer.has_value() != y.producer.has_value()) return false;
    if (!x.producer) return alike_uses(x, y, distance);
    if (index(*x.producer) + distance != index(*y.producer)) return false;
    const auto place = [](const std::vector<TensorId>& list, TensorId tensor) {
      return std::find(list.begin(), list.end(), tensor) - list.begin();
    };
    return place(graph_.op(*x.producer).outputs, a) == place(graph_.op(*y.producer).outputs, b);
  }

  bool alike(std::size_t i, std::size_t j) const {
    const Operator& a = graph_.operators[i];
    const Operator& b = graph_.operators[j];
    if (a.rule != b.rule || a.type != b.type || a.inputs.size() != b.inputs.size() ||
        a.outputs.size() != b.outputs.size())
      return false;
    for (const std::vector<int>* list : {&recomputation_.segment, &recomputation_.region}) {
      if (!list->empty() && ((*list)[i] < 0) != ((*list)[j] < 0)) return false;
    }
    for (std::size_t k = 0; k < a.inputs.size(); ++k) {
      if (a.inputs[k].has_value() != b.inputs[k].has_value()) return false;
      if (a.inputs[k] && !alike_operand(*a.inputs[k], *b.inputs[k], j - i)) return false;
    }
    for (std::size_t k = 0; k < a.outputs.size(); ++k) {
      const Tensor& x = graph_.tensor(a.outputs[k]);
      const Tensor& y = graph_.tensor(b.outputs[k]);
      if (!alike_type(x, y) || !alike_uses(x, y, j - i) ||
          outputs_.contains(a.outputs[k]) != outputs_.contains(b.outputs[k]))
        return false;
    }
    return true;
  }

  const Graph& graph_;
  const Recomputation& recomputation_;
  std::set<TensorId> outputs_;
  std::vector<Stretch> found_;
};

/// The values and transfers between a tensor's root and an operand, the operand first.
struct Path {
  std::vector<int> values;
  std::vector<int> transfers;
};

Path path_to(const DataFlow& flow, OperatorId op, std::size_t operand) {
  Path path;
  for (int transfer = flow.transfer(op, operand); transfer >= 0;) {
    path.transfers.push_back(transfer);
    path.values.push_back(flow.transfers()[static_cast<std::size_t>(transfer)].from);
    transfer = flow.values()[static_cast<std::size_t>(path.values.back())].incoming;
  }
  return path;
}

}  // namespace

ShortGraph shorten(const Graph& graph, const Recomputation& recomputation) {
  ShortGraph made;
  const std::size_t count = graph.operators.size();
  const std::vector<Stretch> stretches = Stretches(graph, recomputation).find();
  made.shortened = !stretches.empty();
  if (!made.shortened) {
    made.graph = graph;
    made.recomputation = recomputation;
    made.weights.assign(count, 1);
    made.operators.resize(count);
    made.tensors.resize(graph.tensors.size());
    for (std::size_t i = 0; i < count; ++i) made.operators[i] = static_cast<OperatorId>(i);
    for (std::size_t t = 0; t < graph.tensors.size(); ++t)
      made.tensors[t] = static_cast<TensorId>(t);
    return made;
  }

  // of the whole graph: which one takes an operator's place as a producer, as a choice; its weight
  std::vector<std::size_t> producer(count);
  std::iota(producer.begin(), producer.end(), std::size_t{0});
  std::vector<std::size_t> stand_in = producer;
  std::vector<std::int64_t> weights(count, 1);
  std::vector<char> is_dropped(count, 0);
  for (const Stretch& stretch : stretches) {
    const std::size_t between = stretch.count - 2;  // neither the first layer nor the last one
    for (std::size_t layer = 1; layer + 1 < stretch.count; ++layer) {
      const std::size_t kept = layer <= between / 2 ? 1 : 2;
      for (std::size_t i = 0; i < stretch.period; ++i)
        stand_in[stretch.begin + layer * stretch.period + i] =
            stretch.begin + kept * stretch.period + i;
    }
    for (std::size_t i = 0; i < stretch.period; ++i) {
      weights[stretch.begin + stretch.period + i] = static_cast<std::int64_t>(between / 2);
      weights[stretch.begin + 2 * stretch.period + i] =
          static_cast<std::int64_t>(between - between / 2);
    }
    for (std::size_t i = stretch.first_dropped(); i < stretch.end_dropped(); ++i) {
      is_dropped[i] = 1;
      producer[i] = i - stretch.dropped();
    }
  }

  Graph& result = made.graph;
  result.name = graph.name;
  result.fingerprint = graph.fingerprint;
  result.training = graph.training;
  std::vector<std::optional<TensorId>> new_tensor(graph.tensors.size());
  std::vector<std::optional<OperatorId>> new_operator(count);
  std::vector<int> region_of;
  const auto place = [&](TensorId old) {
    if (!new_tensor[index(old)]) {
      new_tensor[index(old)] = static_cast<TensorId>(result.tensors.size());
      result.tensors.push_back(graph.tensor(old));
      result.tensors.back().uses.clear();
      result.tensors.back().producer.reset();
    }
    return *new_tensor[index(old)];
  };
  for (std::size_t i = 0; i < count; ++i) {
    if (is_dropped[i] != 0) continue;
    const auto id = static_cast<OperatorId>(result.operators.size());
    new_operator[i] = id;
    Operator op = graph.operators[i];
    for (std::size_t k = 0; k < op.inputs.size(); ++k) {
      if (!op.inputs[k]) continue;
      TensorId tensor = *op.inputs[k];
      if (const auto& made_by = graph.tensor(tensor).producer;
          made_by && is_dropped[index(*made_by)] != 0) {
        const std::vector<TensorId>& outputs = graph.op(*made_by).outputs;
        const auto output = std::find(outputs.begin(), outputs.end(), tensor) - outputs.begin();
        tensor =
            graph.operators[producer[index(*made_by)]].outputs[static_cast<std::size_t>(output)];
      }
      op.inputs[k] = place(tensor);
      result.tensors[index(*op.inputs[k])].uses.push_back({id, static_cast<int>(k)});
    }
    for (TensorId& output : op.outputs) {
      output = place(output);
      result.tensors[index(output)].producer = id;
    }
    result.operators.push_back(std::move(op));
    made.weights.push_back(weights[i]);
    if (!recomputation.segment.empty()) {
      made.recomputation.segment.push_back(recomputation.segment[i]);
      made.recomputation.region.push_back(recomputation.region[i]);
    }
  }
  made.recomputation.stores_results = recomputation.stores_results;
  for (const TensorId output : graph.outputs) {
    if (new_tensor[index(output)]) result.outputs.push_back(*new_tensor[index(output)]);
  }
  for (std::size_t i = 0; i < count; ++i) made.operators.push_back(*new_operator[stand_in[i]]);
  for (std::size_t t = 0; t < graph.tensors.size(); ++t) {
    const Tensor& tensor = graph.tensors[t];
    if (tensor.producer) {
      const std::vector<TensorId>& outputs = graph.op(*tensor.producer).outputs;
      const auto output =
          std::find(outputs.begin(), outputs.end(), static_cast<TensorId>(t)) - outputs.begin();
      made.tensors.push_back(result.op(made.operators[index(*tensor.producer)])
                                 .outputs[static_cast<std::size_t>(output)]);
    } else if (!tensor.uses.empty()) {
      const Use& use = tensor.uses.front();
      made.tensors.push_back(
          *result.op(made.operators[index(use.op)]).inputs[static_cast<std::size_t>(use.operand)]);
    } else {  // nothing is asked about it
      made.tensors.push_back(place(static_cast<TensorId>(t)));
    }
  }
  return made;
}

Assignment expanded(const ShortGraph& shortened,
                    PriceBook& whole_book,
                    PriceBook& short_book,
                    const Assignment& assignment) {
  if (!shortened.shortened) return assignment;
  const Graph& graph = whole_book.graph();
  const DataFlow& flow = whole_book.flow();
  const DataFlow& short_flow = short_book.flow();
  Assignment made;
  made.strategies.reserve(graph.operators.size());
  for (const OperatorId id : shortened.operators)
    made.strategies.push_back(assignment.strategies[index(id)]);
  for (const TensorId tensor : shortened.tensors)
    made.parameters.push_back(assignment.parameters[index(tensor)]);
  made.values.resize(flow.values().size());
  made.gathered.resize(flow.transfers().size());
  std::vector<char> is_known(flow.values().size(), 0);
  for (std::size_t i = 0; i < graph.operators.size(); ++i) {
    const auto id = static_cast<OperatorId>(i);
    const OperatorId stand_in = shortened.operators[i];
    for (std::size_t operand = 0; operand < graph.operators[i].inputs.size(); ++operand) {
      if (!graph.operators[i].inputs[operand]) continue;
      const Path path = path_to(flow, id, operand);
      const Path short_path = path_to(short_flow, stand_in, operand);
      // a tensor that all layers read has more copies in the whole graph than in the short one
      for (std::size_t depth = 0; depth < path.transfers.size(); ++depth) {
        if (depth < short_path.transfers.size())
          made.gathered[static_cast<std::size_t>(path.transfers[depth])] =
              assignment.gathered[static_cast<std::size_t>(short_path.transfers[depth])];
        const auto value = static_cast<std::size_t>(path.values[depth]);
        if (is_known[value] != 0 || flow.values()[value].kind == ValueKind::kResult) continue;
        is_known[value] = 1;
        made.values[value] =
            short_path.values.empty()
                ? short_book.operand_state(
                      stand_in, assignment.strategies[index(stand_in)], operand)
                : value_state(short_book,
                              assignment,
                              short_path.values[std::min(depth, short_path.values.size() - 1)]);
      }
    }
  }
  // gathering again means something only where a saved value arrives in another layout
  for (std::size_t t = 0; t < made.gathered.size(); ++t) {
    const Transfer& transfer = flow.transfers()[t];
    if (made.gathered[t] == 0) continue;
    const TensorId tensor = flow.values()[static_cast<std::size_t>(transfer.from)].tensor;
    const TensorState from = value_state(whole_book, made, transfer.from);
    const TensorState to = far_state(whole_book, made, transfer);
    const Reduction reduction =
        graph.tensor(tensor).producer
            ? whole_book.info(*graph.tensor(tensor).producer).result_reduction()
            : Reduction::kSum;
    if (!transfer.saves || transfer.again ||
        value_placements(from, whole_book.mesh_axes(), reduction) ==
            value_placements(to, whole_book.mesh_axes(), reduction))
      made.gathered[t] = 0;
  }
  return made;
}

}  // namespace meshplan

// SPDX-License-Identifier: Apache-2.0
#include "search/plan_cost_graph.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "cost_model/data_flow.h"

namespace meshplan {
namespace {

std::int64_t ticks(Seconds time) { return std::llround(time.value * kTicksPerSecond); }

std::string state_label(const TensorState& state, int axes) {
  const std::string value = to_string(value_placements(state, axes));
  const std::string gradient = to_string(gradient_placements(state, axes));
  return value == gradient ? value : value + "/" + gradient;
}

const char* action_label(ParameterAction action) {
  switch (action) {
    case ParameterAction::kNone:
      return "none";
    case ParameterAction::kState:
      return "state";
    case ParameterAction::kGradient:
      return "gradient";
    case ParameterAction::kAll:
      return "all";
  }
  return "none";
}

/// Bytes per strategy (or pair) over intervals.
using Usage = std::map<std::pair<int, int>, std::vector<std::int64_t>>;

struct NodeDraft {
  std::vector<std::int64_t> costs;
  Usage usage;

  void use(std::size_t strategy, MomentRange interval, Bytes bytes, int moments) {
    interval.begin = std::max(interval.begin, 0);
    interval.end = std::min(interval.end, moments);
    if (interval.empty() || bytes == 0) return;
    std::vector<std::int64_t>& all = usage[{interval.begin, interval.end}];
    all.resize(costs.size(), 0);
    all[strategy] += bytes;
  }
};

/// A node whose strategies fix the state of a tensor.
struct Side {
  int node = -1;
  std::vector<TensorState> states;  ///< per strategy
};

class Builder {
 public:
  Builder(PriceBook& book, const Restrictions& restrictions)
      : book_(book),
        graph_(book.graph()),
        flow_(book.flow()),
        restrictions_(restrictions),
        moments_(flow_.moments()) {}

  Result<PlanCostGraph> run(Bytes limit) {
    made_.graph.name = graph_.name;
    made_.graph.unit = 1 / kTicksPerSecond;
    made_.graph.limit = limit;
    made_.moments = moments_;
    for (std::size_t i = 0; i < graph_.operators.size(); ++i) {
      if (!add_operator(static_cast<OperatorId>(i)))
        return conflict("operator", graph_.operators[i].name);
    }
    for (std::size_t v = 0; v < flow_.values().size(); ++v) {
      if (!add_value(flow_.values()[v]))
        return conflict("tensor", graph_.tensor(flow_.values()[v].tensor).name);
    }
    for (const Transfer& transfer : flow_.transfers()) add_transfer(transfer);
    add_direct_parameters();
    return std::move(made_);
  }

 private:
  static Unexpected<Error> conflict(const char* what, const std::string& name) {
    return fail(ErrorCode::kConflict,
                "",
                std::string(what) + " \"" + name + "\" has no choice left on this mesh");
  }

  int add_node(std::string name,
               std::vector<std::string> labels,
               const NodeDraft& draft,
               PlanCostGraphNode choices) {
    CostGraph::Node node;
    node.costs = made_.graph.pool.add(draft.costs);
    for (const auto& [interval, bytes] : draft.usage)
      node.uses.push_back({interval.first, interval.second, made_.graph.pool.add(bytes)});
    made_.graph.nodes.push_back(std::move(node));
    made_.names.push_back(std::move(name));
    made_.labels.push_back(std::move(labels));
    made_.choices.push_back(std::move(choices));
    return static_cast<int>(made_.graph.nodes.size()) - 1;
  }

  void add_edge(int from, int to, const NodeDraft& pairs) {
    CostGraph::Edge edge;
    edge.from = from;
    edge.to = to;
    edge.costs = made_.graph.pool.add(pairs.costs);
    for (const auto& [interval, bytes] : pairs.usage)
      edge.uses.push_back({interval.first, interval.second, made_.graph.pool.add(bytes)});
    made_.graph.edges.push_back(std::move(edge));
  }

  /// Only equal states go together.
  void tie(const Side& a, const Side& b) {
    NodeDraft pairs;
    for (const TensorState& from : a.states) {
      for (const TensorState& to : b.states) pairs.costs.push_back(from == to ? 0 : kForbiddenCost);
    }
    add_edge(a.node, b.node, pairs);
  }

  bool add_operator(OperatorId id) {
    const Operator& op = graph_.op(id);
    const OperatorInfo& info = book_.info(id);
    std::vector<Strategy> strategies;
    for (const Strategy& strategy : info.strategies()) {
      if (is_possible(id, strategy)) strategies.push_back(strategy);
    }
    if (strategies.empty()) return false;
    NodeDraft draft;
    draft.costs.resize(strategies.size());
    std::vector<std::string> labels;
    for (std::size_t s = 0; s < strategies.size(); ++s) {
      const Strategy& strategy = strategies[s];
      labels.push_back(info.label(strategy));
      const OperatorPrice& price = book_.shared_operator_price(id, strategy);
      draft.costs[s] = ticks(price.objective);
      const WorkspaceSpan span = workspace_span(flow_, id);
      draft.use(s, span.forward, price.workspace.forward, moments_);
      draft.use(s, span.recompute, price.workspace.forward, moments_);
      draft.use(s, span.kept, price.workspace.kept, moments_);
      draft.use(s, span.backward, price.workspace.backward, moments_);
      for (std::size_t r = 0; r < op.outputs.size(); ++r) {
        const TensorId tensor = op.outputs[r];
        const TensorState state = book_.result_state(id, strategy, r);
        const int root = flow_.root(tensor);
        if (root >= 0) {
          const Value& value = flow_.values()[static_cast<std::size_t>(root)];
          const Bytes bytes = book_.local_bytes(tensor, state);
          for (const MomentRange& interval : {value.live, value.again, value.kept, value.gradient})
            draft.use(s, interval, bytes, moments_);
        }
        if (!ends_graph(graph_, tensor)) continue;
        const Redistribution* end = book_.forward_steps(tensor, state, book_.final_state(state));
        if (end != nullptr) draft.costs[s] += move_ticks(*end);
      }
      for (std::size_t i = 0; i < op.inputs.size(); ++i) {
        if (op.inputs[i] && lies_with(id, i))
          draft.use(s,
                    {0, moments_},
                    book_.local_bytes(*op.inputs[i], book_.operand_state(id, strategy, i)),
                    moments_);
      }
    }
    PlanCostGraphNode choices;
    choices.op = id;
    choices.strategies = strategies;
    strategies_.push_back(std::move(strategies));
    add_node(op.name, std::move(labels), draft, std::move(choices));
    return true;
  }

  /// An input or constant without a transfer, at its first reader.
  bool lies_with(OperatorId id, std::size_t operand) const {
    const DirectUse direct = flow_.direct(id, operand);
    if (direct == DirectUse::kNo || direct == DirectUse::kParameter) return false;
    const Use& first = graph_.tensor(*graph_.op(id).inputs[operand]).uses.front();
    return first.op == id && static_cast<std::size_t>(first.operand) == operand;
  }

  bool is_possible(OperatorId id, const Strategy& strategy) {
    if (restrictions_.strategy && !restrictions_.strategy(id, strategy)) return false;
    const Operator& op = graph_.op(id);
    for (std::size_t i = 0; i < op.inputs.size(); ++i) {
      if (!op.inputs[i]) continue;
      const TensorState state = book_.operand_state(id, strategy, i);
      const Tensor& tensor = graph_.tensor(*op.inputs[i]);
      // only an operator's result can be Partial, and linear operators pass sums only
      if (state.has_partial() &&
          !(tensor.producer && book_.info(*tensor.producer).result_reduction() == Reduction::kSum))
        return false;
      if (flow_.direct(id, i) == DirectUse::kParameter &&
          ways_to_rest(*op.inputs[i], state).empty())
        return false;
    }
    return true;
  }

  using Resting = std::pair<ParameterChoice, ParameterPrice>;
  std::vector<Resting> ways_to_rest(TensorId tensor, const TensorState& state) {
    std::vector<Resting> ways;
    if (state.has_partial()) return ways;
    const bool again = parameter_read_again(graph_, flow_, tensor);
    for (const ParameterChoice& choice : book_.parameter_choices(tensor, state)) {
      if (restrictions_.parameter && !restrictions_.parameter(tensor, state, choice)) continue;
      if (auto price = book_.parameter_price(tensor, state, choice, again))
        ways.emplace_back(choice, std::move(*price));
    }
    return ways;
  }

  /// A node for a parameter in one of these states.
  Side add_parameter(TensorId tensor, const std::vector<TensorState>& states) {
    Side side;
    PlanCostGraphNode choices;
    choices.parameter = tensor;
    std::vector<std::string> labels;
    std::vector<ParameterPrice> prices;
    for (const TensorState& state : states) {
      for (Resting& way : ways_to_rest(tensor, state)) {
        std::string label = state_label(state, book_.mesh_axes()) + " ";
        for (int axis = 0; axis < book_.mesh_axes(); ++axis)
          label += (axis > 0 ? "," : "") +
                   std::string(action_label(way.first[static_cast<std::size_t>(axis)]));
        labels.push_back(std::move(label));
        side.states.push_back(state);
        choices.rests.push_back(way.first);
        prices.push_back(std::move(way.second));
      }
    }
    NodeDraft draft;
    for (const ParameterPrice& price : prices) draft.costs.push_back(ticks(price.objective));
    const ParameterSpan span = parameter_span(graph_, flow_, tensor);
    for (std::size_t s = 0; s < prices.size(); ++s) {
      const ParameterPrice& price = prices[s];
      draft.use(s,
                {0, moments_},
                price.rest_bytes + price.gradient_bytes + price.optimizer_bytes,
                moments_);
      draft.use(s, span.gathered, price.gathered_bytes, moments_);
      if (price.gathered_backward)
        draft.use(s, span.gathered_backward, price.gathered_bytes, moments_);
      draft.use(s, span.unreduced, price.unreduced_bytes, moments_);
    }
    if (prices.empty()) return side;
    if (flow_.root(tensor) >= 0) {
      choices.value = static_cast<std::size_t>(flow_.root(tensor));
      choices.states = side.states;
    }
    side.node = add_node(graph_.tensor(tensor).name, std::move(labels), draft, std::move(choices));
    return side;
  }

  bool add_value(const Value& value) {
    Side side;
    const Tensor& tensor = graph_.tensor(value.tensor);
    if (value.kind == ValueKind::kResult) {
      side.node = static_cast<int>(index(*tensor.producer));
      for (const Strategy& strategy : strategies_[index(*tensor.producer)])
        side.states.push_back(
            book_.result_state(*tensor.producer, strategy, static_cast<std::size_t>(value.result)));
      values_.push_back(std::move(side));
      return true;
    }
    std::vector<TensorState> states;
    for (const TensorState& state : book_.states(value.tensor).states) {
      if (value.kind != ValueKind::kCopy && state.has_partial()) continue;
      if (restrictions_.value && !restrictions_.value(value.tensor, state)) continue;
      states.push_back(state);
    }
    if (value.kind == ValueKind::kParameter) {
      side = add_parameter(value.tensor, states);
    } else if (!states.empty()) {
      NodeDraft draft;
      draft.costs.assign(states.size(), 0);
      std::vector<std::string> labels;
      for (std::size_t s = 0; s < states.size(); ++s) {
        labels.push_back(state_label(states[s], book_.mesh_axes()));
        if (value.kind == ValueKind::kInput)
          draft.use(s, {0, moments_}, book_.local_bytes(value.tensor, states[s]), moments_);
      }
      PlanCostGraphNode choices;
      choices.value = values_.size();
      choices.states = states;
      side.node = add_node(tensor.name, std::move(labels), draft, std::move(choices));
      side.states = std::move(states);
    }
    values_.push_back(side);
    return side.node >= 0;
  }

  Side operand_side(const Use& use) {
    Side side;
    side.node = static_cast<int>(index(use.op));
    for (const Strategy& strategy : strategies_[index(use.op)])
      side.states.push_back(
          book_.operand_state(use.op, strategy, static_cast<std::size_t>(use.operand)));
    return side;
  }

  std::int64_t move_ticks(const Redistribution& moves) const {
    return ticks(book_.per_step(book_.exposed(OverlapKind::kActivation, moves.time)));
  }

  void add_transfer(const Transfer& transfer) {
    const Side& from = values_[static_cast<std::size_t>(transfer.from)];
    const Side to = transfer.to >= 0 ? values_[static_cast<std::size_t>(transfer.to)]
                                     : operand_side(transfer.use);
    if (!transfer.saves || transfer.again) {
      join(transfer, from, to, std::vector<bool>(to.states.size(), false));
      return;
    }
    Side how;  // the far state, and whether the value is gathered again
    std::vector<bool> gathered;
    std::vector<std::string> labels;
    for (const TensorState& state : std::set<TensorState>(to.states.begin(), to.states.end())) {
      for (const bool again : {false, true}) {
        how.states.push_back(state);
        gathered.push_back(again);
        labels.push_back(state_label(state, book_.mesh_axes()) + (again ? " gathered" : " kept"));
      }
    }
    NodeDraft draft;
    draft.costs.assign(how.states.size(), 0);
    const TensorId tensor = flow_.values()[static_cast<std::size_t>(transfer.from)].tensor;
    PlanCostGraphNode choices;
    choices.transfer = static_cast<std::size_t>(&transfer - flow_.transfers().data());
    choices.gathered.assign(gathered.begin(), gathered.end());
    how.node =
        add_node(graph_.tensor(tensor).name + " for " + graph_.op(transfer.readers.front()).name,
                 std::move(labels),
                 draft,
                 std::move(choices));
    join(transfer, from, how, gathered);
    tie(how, to);
  }

  /// What a transfer costs between all states of its two sides, as evaluate() counts it.
  void join(const Transfer& transfer,
            const Side& from,
            const Side& to,
            const std::vector<bool>& gathered) {
    const TensorId tensor = flow_.values()[static_cast<std::size_t>(transfer.from)].tensor;
    const std::size_t width = to.states.size();
    NodeDraft pairs;
    pairs.costs.assign(from.states.size() * width, 0);
    for (std::size_t a = 0; a < from.states.size(); ++a) {
      const Bytes near_bytes = book_.local_bytes(tensor, from.states[a]);
      for (std::size_t b = 0; b < width; ++b) {
        const std::size_t pair = a * width + b;
        const Bytes far_bytes = book_.local_bytes(tensor, to.states[b]);
        const auto use = [&](const MomentRange& interval, Bytes bytes) {
          pairs.use(pair, interval, bytes, moments_);
        };
        const Redistribution* value = book_.forward_steps(tensor, from.states[a], to.states[b]);
        const Redistribution* gradient = book_.gradient_steps(tensor, from.states[a], to.states[b]);
        std::int64_t& cost = pairs.costs[pair];
        if (value == nullptr) {
          if (gathered[b]) {
            cost = kForbiddenCost;  // nothing to gather
            continue;
          }
          if (transfer.saves && !transfer.stored) use(transfer.same, near_bytes);
        } else if (transfer.again) {
          cost += 2 * move_ticks(*value);
          use(transfer.copy, far_bytes);
          use(transfer.saves ? transfer.kept : transfer.copy_again, far_bytes);
        } else {
          cost += move_ticks(*value);
          if (!transfer.saves) {
            use(transfer.copy, far_bytes);
          } else if (!gathered[b]) {
            use(transfer.kept, far_bytes);
          } else {
            cost += move_ticks(*value);
            use(transfer.copy, far_bytes);
            use(transfer.regathered, far_bytes);
            if (!transfer.stored) use(transfer.same, near_bytes);
          }
        }
        if (gradient == nullptr) continue;
        cost += move_ticks(*gradient);
        use(transfer.gradient, far_bytes);
      }
    }
    add_edge(from.node, to.node, pairs);
  }

  void add_direct_parameters() {
    for (std::size_t t = 0; t < graph_.tensors.size(); ++t) {
      const Tensor& tensor = graph_.tensors[t];
      const auto id = static_cast<TensorId>(t);
      if (tensor.role != Role::kParameter || tensor.uses.empty() || flow_.root(id) >= 0) continue;
      const Side reader = operand_side(tensor.uses.front());
      const std::set<TensorState> states(reader.states.begin(), reader.states.end());
      tie(add_parameter(id, {states.begin(), states.end()}), reader);
    }
  }

  PriceBook& book_;
  const Graph& graph_;
  const DataFlow& flow_;
  const Restrictions& restrictions_;
  int moments_;
  PlanCostGraph made_;
  std::vector<std::vector<Strategy>> strategies_;  ///< per operator, which is the node's number
  std::vector<Side> values_;                       ///< per value
};

}  // namespace

Result<PlanCostGraph> plan_cost_graph(PriceBook& book,
                                      const Restrictions& restrictions,
                                      Bytes memory_limit) {
  return Builder(book, restrictions).run(memory_limit);
}

Assignment assignment_of(const PlanCostGraph& graph,
                         const PriceBook& book,
                         const CostGraphAssignment& chosen) {
  Assignment made;
  made.strategies.resize(book.graph().operators.size());
  made.values.resize(book.flow().values().size());
  made.gathered.resize(book.flow().transfers().size());
  made.parameters.resize(book.graph().tensors.size());
  for (std::size_t n = 0; n < graph.choices.size(); ++n) {
    const PlanCostGraphNode& node = graph.choices[n];
    const auto at = static_cast<std::size_t>(chosen[n]);
    if (node.op) made.strategies[index(*node.op)] = node.strategies[at];
    if (node.value) made.values[*node.value] = node.states[at];
    if (node.parameter) made.parameters[index(*node.parameter)] = node.rests[at];
    if (node.transfer) made.gathered[*node.transfer] = node.gathered[at];
  }
  return made;
}

}  // namespace meshplan

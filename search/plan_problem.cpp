// SPDX-License-Identifier: Apache-2.0
#include "search/plan_problem.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <map>
#include <optional>
#include <tuple>

#include "lib/check.h"

namespace meshplan {
namespace {

/// Words of a key: what has equal words is alike.
using Key = std::vector<std::uint64_t>;

std::uint64_t word(double value) {
  return value == 0 ? 0 : std::bit_cast<std::uint64_t>(value);  // 0.0 and -0.0 are alike
}
std::uint64_t word(int value) { return static_cast<std::uint64_t>(value); }
std::uint64_t word(const void* address) { return reinterpret_cast<std::uintptr_t>(address); }

}  // namespace

/// One way for a parameter to rest.
struct PlanProblem::ParameterOption {
  ParameterChoice choice{};
  double objective = 0;
  Bytes always = 0;
  Bytes gathered = 0;
  Bytes gathered_backward = 0;
  Bytes unreduced = 0;
};

/// Parameters of equal shape and use.
struct PlanProblem::ParameterClass {
  std::vector<std::vector<ParameterOption>> options;  ///< per state of the tensor's StateTable
};

/// Operators of equal rule, types and use.
struct PlanProblem::OperatorClass {
  std::vector<Strategy> strategies;
  std::vector<double> objective;
  std::vector<WorkspaceBytes> workspace;
  std::vector<Bytes> always;                     ///< inputs and constants that it reads first
  std::vector<std::vector<int>> operand_states;  ///< [operand][strategy], index into the StateTable
  std::vector<std::vector<int>> result_states;   ///< [result][strategy]
  std::vector<std::vector<Bytes>> result_bytes;  ///< [result][strategy]
  std::vector<std::pair<std::size_t, int>> parameters;  ///< direct: operand, parameter class
};

struct PlanProblem::Variable {
  int domain = 0;
  // an operator
  std::optional<OperatorId> op;
  int op_class = -1;
  // or a value
  int value = -1;
  const std::vector<int>* states = nullptr;  ///< allowed, into the StateTable; equal lists are one
  int parameter_class = -1;
  int kind = 0;    ///< variables of one kind differ in their moments only
  int moment = 0;  ///< of the operator (a value: of its producer or first reader)
};

/// A transfer between two variables.
struct PlanProblem::Link {
  int from = 0;
  int to = 0;
  const std::vector<int>* from_states = nullptr;  ///< per value of the variable
  const std::vector<int>* to_states = nullptr;
  const StateTable* table = nullptr;
  const Transfer* transfer = nullptr;
  int kind = 0;  ///< links of one kind differ in their moments only
};

/// A link between two states at a price of memory.
struct PlanProblem::Cell {
  double objective = 0;
  double priced = 0;
  bool gathered = false;
};

/// Prices of intervals of moments.
class PlanProblem::Weights {
 public:
  explicit Weights(const MemoryPrices& prices)
      : at_(prices.at.begin(), prices.at.end()), memory_only_(prices.memory_only) {
    for (const auto& [moment, price] : at_) always_ += price;
  }
  double always() const { return always_; }
  double of(const MomentRange& interval) const {
    double sum = 0;
    if (interval.empty()) return sum;
    for (const auto& [moment, price] : at_) {
      if (moment >= interval.begin && moment < interval.end) sum += price;
    }
    return sum;
  }
  /// Rounded down to the price grid, so that bounds stay bounds.
  double price(double weight, Bytes bytes) const {
    if (weight == 0) return 0;
    if (memory_only_) return weight * static_cast<double>(bytes);
    return down_to_price_grid({weight * static_cast<double>(bytes)}).value;
  }
  double seconds(double objective) const { return memory_only_ ? 0 : objective; }

 private:
  std::vector<std::pair<int, double>> at_;
  bool memory_only_;
  double always_ = 0;
};

/// What a byte of a result costs.
double PlanProblem::weight_of(const Value& value, const Weights& weights) {
  return weights.of(value.live) + weights.of(value.again) + weights.of(value.kept) +
         weights.of(value.gradient);
}

/// What a byte costs over each of a transfer's intervals.
struct PlanProblem::LinkWeights {
  LinkWeights(const Transfer& transfer, const Weights& weights)
      : same(weights.of(transfer.same)),
        kept(weights.of(transfer.kept)),
        copy(weights.of(transfer.copy)),
        copy_again(weights.of(transfer.copy_again)),
        regathered(weights.of(transfer.regathered)),
        gradient(weights.of(transfer.gradient)) {}
  double same;
  double kept;
  double copy;
  double copy_again;
  double regathered;
  double gradient;
};

/// What a byte costs over each of a parameter's intervals.
struct PlanProblem::SpanWeights {
  SpanWeights(const ParameterSpan& span, const Weights& weights)
      : gathered(weights.of(span.gathered)),
        gathered_backward(weights.of(span.gathered_backward)),
        unreduced(weights.of(span.unreduced)) {}
  double gathered;
  double gathered_backward;
  double unreduced;
};

/// The tables at some prices, and what was computed from them.
struct PlanProblem::Tables {
  explicit Tables(const MemoryPrices& at) : prices(at) {}
  MemoryPrices prices;
  MinSum sum;
  Interner unary_keys;
  Interner link_keys;
  Interner contents;  ///< of costs with links to fixed variables
  std::vector<TableNumber> unary;
  std::vector<TableNumber> links;
  std::vector<TableNumber> by_content;
};

PlanProblem::PlanProblem(PriceBook& book) : book_(book) {}

PlanProblem::~PlanProblem() = default;

std::size_t PlanProblem::variables() const { return variables_.size(); }

Result<std::unique_ptr<PlanProblem>> PlanProblem::make(PriceBook& book,
                                                       const Restrictions& restrictions) {
  std::unique_ptr<PlanProblem> problem(new PlanProblem(book));
  if (auto done = problem->add_operators(restrictions); !done) return fail(done.error());
  if (auto done = problem->add_values(restrictions); !done) return fail(done.error());
  problem->add_links();
  return problem;
}

Result<void> PlanProblem::add_operators(const Restrictions& restrictions) {
  const Graph& graph = book_.graph();
  for (std::size_t i = 0; i < graph.operators.size(); ++i) {
    Variable variable;
    variable.op = static_cast<OperatorId>(i);
    auto number = operator_class(*variable.op, restrictions);
    if (!number) return fail(number.error());
    variable.op_class = *number;
    variable.domain =
        static_cast<int>(operator_classes_[static_cast<std::size_t>(*number)]->strategies.size());
    variable.kind = variable_kinds_.number(Key{0, word(*number)}).first;
    variable.moment = book_.flow().timeline().forward(*variable.op);
    variables_.push_back(std::move(variable));
  }
  return {};
}

Result<int> PlanProblem::operator_class(OperatorId id, const Restrictions& restrictions) {
  const Graph& graph = book_.graph();
  const Operator& op = graph.op(id);
  const OperatorInfo& info = book_.info(id);
  const DataFlow& flow = book_.flow();
  auto first_reader = [&](std::size_t operand) {
    const Use& use = graph.tensor(*op.inputs[operand]).uses.front();
    return use.op == id && static_cast<std::size_t>(use.operand) == operand;
  };
  // a rule fixes the number of operands and results: every part of the key has its place
  Key key;
  key.reserve(2 + 6 * op.inputs.size() + 3 * op.outputs.size());
  key.push_back(word(op.rule.get()));
  key.push_back(flow.timeline().recomputes(id) ? 1U : 0U);
  std::vector<int> direct_parameters(op.inputs.size(), -1);
  for (std::size_t i = 0; i < op.inputs.size(); ++i) {
    if (!op.inputs[i]) {
      key.push_back(0);
      continue;
    }
    const Tensor& tensor = graph.tensor(*op.inputs[i]);
    const DirectUse direct = flow.direct(id, i);
    key.insert(key.end(),
               {1,
                word(static_cast<int>(tensor.dtype)),
                word(static_cast<int>(direct)),
                word(tensor.has_gradient ? 1 : 0)});
    if (direct == DirectUse::kParameter) {
      direct_parameters[i] = parameter_class(*op.inputs[i], restrictions);
      key.push_back(word(direct_parameters[i]));
    } else if (direct != DirectUse::kNo) {
      key.push_back(first_reader(i) ? 1 : 0);
    }
    // the reduction of a Partial operand is its producer's
    key.push_back(word(
        tensor.producer ? static_cast<int>(book_.info(*tensor.producer).result_reduction()) : -1));
  }
  for (const TensorId output : op.outputs) {
    const Tensor& tensor = graph.tensor(output);
    key.insert(key.end(),
               {word(static_cast<int>(tensor.dtype)),
                word(tensor.has_gradient ? 1 : 0),
                word(ends_graph(graph, output) ? 1 : 0)});
  }
  const std::vector<Strategy>& strategies =
      restrictions.among ? restrictions.among(id) : info.strategies();
  if (restrictions.among) {
    key.push_back(strategies.size());
    for (const Strategy& strategy : strategies) {
      std::uint64_t actions = 0;
      for (const std::uint8_t action : strategy.actions) actions = actions << 8U | action;
      key.push_back(actions);
    }
  }
  std::vector<bool> is_allowed;  // empty: all are
  if (restrictions.strategy) {
    for (const Strategy& strategy : strategies) {
      is_allowed.push_back(restrictions.strategy(id, strategy));
      key.push_back(is_allowed.back() ? 1 : 0);
    }
  }
  std::vector<Seconds> charges;  // empty: none
  if (restrictions.strategy_charge) {
    for (const Strategy& strategy : strategies) {
      charges.push_back(restrictions.strategy_charge(id, strategy));
      key.push_back(word(charges.back().value));
    }
  }
  const auto [number, added] = operator_class_of_.number(key);
  if (!added) return number;

  auto made = std::make_unique<OperatorClass>();
  made->operand_states.resize(op.inputs.size());
  made->result_states.resize(op.outputs.size());
  made->result_bytes.resize(op.outputs.size());
  for (std::size_t i = 0; i < op.inputs.size(); ++i) {
    if (direct_parameters[i] >= 0) made->parameters.emplace_back(i, direct_parameters[i]);
  }
  for (std::size_t at = 0; at < strategies.size(); ++at) {
    const Strategy& strategy = strategies[at];
    bool possible = is_allowed.empty() || is_allowed[at];
    Bytes always = 0;
    std::vector<TensorState> operands(op.inputs.size());
    for (std::size_t i = 0; i < op.inputs.size() && possible; ++i) {
      if (!op.inputs[i]) continue;
      const Tensor& tensor = graph.tensor(*op.inputs[i]);
      operands[i] = book_.operand_state(id, strategy, i);
      const DirectUse direct = flow.direct(id, i);
      if (operands[i].has_partial()) {
        // only an operator's result can be Partial, and linear operators pass sums only
        possible =
            tensor.producer && book_.info(*tensor.producer).result_reduction() == Reduction::kSum;
      }
      if (direct == DirectUse::kParameter) {
        const int state = book_.states(*op.inputs[i]).index.at(operands[i]);
        possible = possible && !parameter_classes_[static_cast<std::size_t>(direct_parameters[i])]
                                    ->options[static_cast<std::size_t>(state)]
                                    .empty();
      } else if (direct != DirectUse::kNo && first_reader(i)) {
        always += book_.local_bytes(*op.inputs[i], operands[i]);
      }
    }
    if (!possible) continue;
    const OperatorPrice price = book_.operator_price(id, strategy);
    Seconds objective = price.objective;
    if (!charges.empty()) objective += charges[at];
    for (std::size_t r = 0; r < op.outputs.size(); ++r) {
      const TensorState state = book_.result_state(id, strategy, r);
      made->result_states[r].push_back(book_.states(op.outputs[r]).index.at(state));
      made->result_bytes[r].push_back(book_.local_bytes(op.outputs[r], state));
      if (!ends_graph(graph, op.outputs[r])) continue;
      const Redistribution* end =
          book_.forward_steps(op.outputs[r], state, book_.final_state(state));
      if (end != nullptr)
        objective += book_.per_step(book_.exposed(OverlapKind::kActivation, end->time));
    }
    for (std::size_t i = 0; i < op.inputs.size(); ++i) {
      if (op.inputs[i])
        made->operand_states[i].push_back(book_.states(*op.inputs[i]).index.at(operands[i]));
    }
    made->strategies.push_back(strategy);
    made->objective.push_back(objective.value);
    made->workspace.push_back(price.workspace);
    made->always.push_back(always);
  }
  if (made->strategies.empty()) {
    return fail(ErrorCode::kConflict,
                "",
                "operator \"" + op.name + "\" (" + op.type +
                    ") has no strategy left on this mesh: the constraints exclude every one that "
                    "its rule allows");
  }
  operator_classes_.push_back(std::move(made));
  return number;
}

int PlanProblem::parameter_class(TensorId tensor, const Restrictions& restrictions) {
  const Graph& graph = book_.graph();
  const StateTable& table = book_.states(tensor);
  const bool reads = parameter_read_again(graph, book_.flow(), tensor);
  const Tensor& t = graph.tensor(tensor);
  Key key = {word(&table), reads ? 1U : 0U, word(static_cast<int>(t.dtype))};
  auto allowed = [&](const TensorState& state, const ParameterChoice& choice) {
    return !restrictions.parameter || restrictions.parameter(tensor, state, choice);
  };
  auto charge = [&](const TensorState& state, const ParameterChoice& choice) {
    return restrictions.parameter_charge ? restrictions.parameter_charge(tensor, state, choice)
                                         : Seconds{};
  };
  if (restrictions.parameter || restrictions.parameter_charge) {
    for (const TensorState& state : table.states) {
      if (state.has_partial()) continue;
      for (const ParameterChoice& choice : book_.parameter_choices(tensor, state)) {
        key.push_back(allowed(state, choice) ? 1 : 0);
        key.push_back(word(charge(state, choice).value));
      }
    }
  }
  const auto [number, added] = parameter_class_of_.number(key);
  if (!added) return number;
  auto made = std::make_unique<ParameterClass>();
  for (std::size_t s = 0; s < table.states.size(); ++s) {
    std::vector<ParameterOption> options;
    const std::vector<ParameterChoice> choices =
        table.states[s].has_partial() ? std::vector<ParameterChoice>{}
                                      : book_.parameter_choices(tensor, table.states[s]);
    for (const ParameterChoice& choice : choices) {
      if (!allowed(table.states[s], choice)) continue;
      const std::optional<ParameterPrice> price =
          book_.parameter_price(tensor, table.states[s], choice, reads);
      if (!price) continue;
      ParameterOption option;
      option.choice = choice;
      option.objective = price->objective.value + charge(table.states[s], choice).value;
      option.always = price->rest_bytes + price->gradient_bytes + price->optimizer_bytes;
      option.gathered = price->gathered_bytes;
      option.gathered_backward = price->gathered_backward ? price->gathered_bytes : 0;
      option.unreduced = price->unreduced_bytes;
      options.push_back(option);
    }
    // keep what is best in seconds or in some kind of bytes
    std::vector<ParameterOption> best;
    for (const ParameterOption& option : options) {
      const bool dominated =
          std::any_of(options.begin(), options.end(), [&](const ParameterOption& other) {
            if (&other == &option) return false;
            const bool no_worse = other.objective <= option.objective &&
                                  other.always <= option.always &&
                                  other.gathered <= option.gathered &&
                                  other.gathered_backward <= option.gathered_backward &&
                                  other.unreduced <= option.unreduced;
            const bool equal = other.objective == option.objective &&
                               other.always == option.always && other.gathered == option.gathered &&
                               other.gathered_backward == option.gathered_backward &&
                               other.unreduced == option.unreduced;
            return no_worse && (!equal || &other < &option);
          });
      if (!dominated) best.push_back(option);
    }
    made->options.push_back(std::move(best));
  }
  parameter_classes_.push_back(std::move(made));
  return number;
}

Result<void> PlanProblem::add_values(const Restrictions& restrictions) {
  const Graph& graph = book_.graph();
  const std::vector<Value>& values = book_.flow().values();
  value_variable_.assign(values.size(), -1);
  for (std::size_t v = 0; v < values.size(); ++v) {
    const Value& value = values[v];
    if (value.kind == ValueKind::kResult) continue;
    const StateTable& table = book_.states(value.tensor);
    Variable variable;
    variable.value = static_cast<int>(v);
    std::vector<int> states;
    if (value.kind == ValueKind::kParameter)
      variable.parameter_class = parameter_class(value.tensor, restrictions);
    for (std::size_t s = 0; s < table.states.size(); ++s) {
      if (value.kind != ValueKind::kCopy && table.states[s].has_partial()) continue;
      if (restrictions.value && !restrictions.value(value.tensor, table.states[s])) continue;
      if (variable.parameter_class >= 0 &&
          parameter_classes_[static_cast<std::size_t>(variable.parameter_class)]
              ->options[s]
              .empty())
        continue;
      states.push_back(static_cast<int>(s));
    }
    if (states.empty()) {
      return fail(ErrorCode::kConflict,
                  "",
                  "tensor \"" + graph.tensor(value.tensor).name +
                      "\" has no placement left on this mesh: the constraints exclude every one");
    }
    variable.domain = static_cast<int>(states.size());
    variable.states = &*state_lists_.insert(std::move(states)).first;
    variable.kind = variable_kinds_
                        .number(Key{1,
                                    word(static_cast<int>(value.kind)),
                                    word(&table),
                                    word(variable.states),
                                    word(variable.parameter_class)})
                        .first;
    const Tensor& tensor = graph.tensor(value.tensor);
    variable.moment = book_.flow().timeline().forward(tensor.producer ? *tensor.producer
                                                                      : tensor.uses.front().op);
    value_variable_[v] = static_cast<int>(variables_.size());
    variables_.push_back(std::move(variable));
  }
  return {};
}

void PlanProblem::add_links() {
  const Graph& graph = book_.graph();
  const DataFlow& flow = book_.flow();
  for (const Transfer& transfer : flow.transfers()) {
    const Value& from = flow.values()[static_cast<std::size_t>(transfer.from)];
    Link link;
    link.transfer = &transfer;
    link.table = &book_.states(from.tensor);
    auto of_value = [&](int value, int& variable, const std::vector<int>*& states) {
      variable = value_variable_[static_cast<std::size_t>(value)];
      if (variable >= 0) {
        states = variables_[static_cast<std::size_t>(variable)].states;
        return;
      }
      variable = static_cast<int>(index(*graph.tensor(from.tensor).producer));
      const OperatorClass& producer = *operator_classes_[static_cast<std::size_t>(
          variables_[static_cast<std::size_t>(variable)].op_class)];
      states = &producer.result_states[static_cast<std::size_t>(from.result)];
    };
    of_value(transfer.from, link.from, link.from_states);
    if (transfer.to >= 0) {
      of_value(transfer.to, link.to, link.to_states);
    } else {
      link.to = static_cast<int>(index(transfer.use.op));
      const OperatorClass& reader = *operator_classes_[static_cast<std::size_t>(
          variables_[static_cast<std::size_t>(link.to)].op_class)];
      link.to_states = &reader.operand_states[static_cast<std::size_t>(transfer.use.operand)];
    }
    link.kind =
        link_kinds_
            .number(Key{word(link.table),
                        word(link.from_states),
                        word(link.to_states),
                        (transfer.saves ? 1U : 0U) + (transfer.stored ? 2U : 0U) +
                            (transfer.gradient.empty() ? 0U : 4U) + (transfer.again ? 8U : 0U)})
            .first;
    links_.push_back(link);
  }
}

double PlanProblem::option_cost(const ParameterOption& option,
                                const Weights& weights,
                                const SpanWeights& of) {
  return weights.seconds(option.objective) + weights.price(weights.always(), option.always) +
         weights.price(of.gathered, option.gathered) +
         weights.price(of.gathered_backward, option.gathered_backward) +
         weights.price(of.unreduced, option.unreduced);
}

const PlanProblem::ParameterOption* PlanProblem::best_option(const ParameterClass& parameter,
                                                             int state,
                                                             const Weights& weights,
                                                             const SpanWeights& of) {
  const ParameterOption* best = nullptr;
  double best_cost = 0;
  for (const ParameterOption& option : parameter.options[static_cast<std::size_t>(state)]) {
    const double cost = option_cost(option, weights, of);
    if (best == nullptr || cost < best_cost ||
        (cost == best_cost && option.always < best->always)) {
      best = &option;
      best_cost = cost;
    }
  }
  return best;
}

double PlanProblem::unary_cost(const Variable& variable, int value, const Weights& weights) const {
  const Graph& graph = book_.graph();
  const auto at = static_cast<std::size_t>(value);
  double cost = 0;
  visit_parameters(
      variable, value, [&](TensorId tensor, const ParameterClass& parameter, int state) {
        const SpanWeights of(parameter_span(graph, book_.flow(), tensor), weights);
        cost += option_cost(*best_option(parameter, state, weights, of), weights, of);
      });
  if (!variable.op) {
    const Value& v = book_.flow().values()[static_cast<std::size_t>(variable.value)];
    if (v.kind == ValueKind::kInput) {
      cost += weights.price(
          weights.always(),
          book_.states(v.tensor).bytes[static_cast<std::size_t>((*variable.states)[at])]);
    }
    return cost;
  }
  const Operator& op = graph.op(*variable.op);
  const OperatorClass& shared = *operator_classes_[static_cast<std::size_t>(variable.op_class)];
  cost +=
      weights.seconds(shared.objective[at]) + weights.price(weights.always(), shared.always[at]);
  const WorkspaceSpan span = workspace_span(book_.flow(), *variable.op);
  const WorkspaceBytes& workspace = shared.workspace[at];
  cost += weights.price(weights.of(span.forward) + weights.of(span.recompute), workspace.forward);
  cost += weights.price(weights.of(span.kept), workspace.kept);
  cost += weights.price(weights.of(span.backward), workspace.backward);
  for (std::size_t r = 0; r < op.outputs.size(); ++r) {
    const int root = book_.flow().root(op.outputs[r]);
    const Value& v = book_.flow().values()[static_cast<std::size_t>(root)];
    cost += weights.price(weight_of(v, weights), shared.result_bytes[r][at]);
  }
  return cost;
}

/// Variables with equal keys have equal costs at these prices.
void PlanProblem::unary_key(const Variable& variable,
                            const Weights& weights,
                            std::vector<std::uint64_t>& key) const {
  const DataFlow& flow = book_.flow();
  const Graph& graph = book_.graph();
  key.assign(1, word(variable.kind));
  if (weights.always() == 0) return;
  auto add_parameter = [&](TensorId tensor) {
    const ParameterSpan span = parameter_span(graph, flow, tensor);
    for (const MomentRange& interval : {span.gathered, span.gathered_backward, span.unreduced})
      key.push_back(word(weights.of(interval)));
  };
  if (!variable.op) {
    const Value& v = flow.values()[static_cast<std::size_t>(variable.value)];
    if (v.kind == ValueKind::kParameter) add_parameter(v.tensor);
    return;
  }
  const Operator& op = graph.op(*variable.op);
  const WorkspaceSpan own = workspace_span(flow, *variable.op);
  for (const MomentRange& interval : {own.forward, own.recompute, own.kept, own.backward})
    key.push_back(word(weights.of(interval)));
  for (const TensorId output : op.outputs) {
    const Value& v = flow.values()[static_cast<std::size_t>(flow.root(output))];
    key.push_back(word(weight_of(v, weights)));
  }
  for (const auto& [operand, parameter] :
       operator_classes_[static_cast<std::size_t>(variable.op_class)]->parameters)
    add_parameter(*op.inputs[operand]);
}

/// Links with equal keys have equal costs at these prices.
void PlanProblem::link_key(const Link& link,
                           const Weights& weights,
                           std::vector<std::uint64_t>& key) {
  const Transfer& t = *link.transfer;
  key.assign(1, word(link.kind));
  if (weights.always() == 0) return;
  for (const MomentRange* interval :
       {&t.same, &t.kept, &t.copy, &t.copy_again, &t.regathered, &t.gradient})
    key.push_back(word(weights.of(*interval)));
}

PlanProblem::Cell PlanProblem::cell(
    const Link& link, int from, int to, const Weights& weights, const LinkWeights& of) const {
  const StateTable& table = *link.table;
  const Transfer& transfer = *link.transfer;
  const auto a = static_cast<std::size_t>(from);
  const auto b = static_cast<std::size_t>(to);
  const std::size_t pair = a * table.states.size() + b;
  const bool same_value = table.value_layout[a] == table.value_layout[b];
  const bool same_gradient = table.gradient_layout[a] == table.gradient_layout[b];
  const Moves& seconds = moves(link);
  const double forward = seconds.forward[pair];
  Cell made;
  made.objective = seconds.both[pair];
  double memory = 0;
  if (!transfer.gradient.empty() && !same_gradient)
    memory += weights.price(of.gradient, table.bytes[b]);
  if (same_value) {
    if (transfer.saves && !transfer.stored) memory += weights.price(of.same, table.bytes[a]);
  } else if (transfer.again) {
    made.objective += forward;
    memory += weights.price(of.copy, table.bytes[b]) +
              weights.price(transfer.saves ? of.kept : of.copy_again, table.bytes[b]);
  } else if (!transfer.saves) {
    memory += weights.price(of.copy, table.bytes[b]);
  } else {
    const double keep = weights.price(of.kept, table.bytes[b]);
    double again = weights.seconds(forward) + weights.price(of.copy, table.bytes[b]) +
                   weights.price(of.regathered, table.bytes[b]);
    if (!transfer.stored) again += weights.price(of.same, table.bytes[a]);
    made.gathered = again < keep;
    if (made.gathered) {
      made.objective += forward;
      memory += again - weights.seconds(forward);
    } else {
      memory += keep;
    }
  }
  made.priced = weights.seconds(made.objective) + memory;
  return made;
}

const PlanProblem::Moves& PlanProblem::moves(const Link& link) const {
  Moves& known = moves_[link.table];
  if (!known.both.empty()) return known;
  const StateTable& table = *link.table;
  const auto seconds = [&](Seconds time) {
    return book_.per_step(book_.exposed(OverlapKind::kActivation, time)).value;
  };
  known.forward.reserve(table.forward.size());
  known.both.reserve(table.forward.size());
  for (std::size_t pair = 0; pair < table.forward.size(); ++pair) {
    known.forward.push_back(seconds(table.forward[pair]));
    known.both.push_back(known.forward.back() + seconds(table.gradient[pair]));
  }
  return known;
}

/// The costs of a link whose ends are both free: cell() of every pair, with what depends on one
/// state alone computed once.
CostTable PlanProblem::link_table(const Link& link, const Weights& weights) const {
  const StateTable& table = *link.table;
  const Transfer& transfer = *link.transfer;
  const Moves& seconds = moves(link);
  const LinkWeights of(transfer, weights);
  const std::size_t width = table.states.size();
  std::vector<double> gradient(width, 0);  // of the state at the far end
  std::vector<double> copied(width, 0);    // where the value travels and there is no choice
  std::vector<double> kept(width, 0);
  std::vector<double> again(width, 0);
  std::vector<double> same(width, 0);  // of the near end
  for (std::size_t state = 0; state < width; ++state) {
    const Bytes bytes = table.bytes[state];
    if (!transfer.gradient.empty()) gradient[state] = weights.price(of.gradient, bytes);
    if (transfer.saves && !transfer.stored) same[state] = weights.price(of.same, bytes);
    copied[state] = weights.price(of.copy, bytes);
    if (transfer.again)
      copied[state] += weights.price(transfer.saves ? of.kept : of.copy_again, bytes);
    kept[state] = weights.price(of.kept, bytes);
    again[state] = copied[state] + weights.price(of.regathered, bytes);
  }
  const bool choice = transfer.saves && !transfer.again;
  CostTable made{
      static_cast<int>(link.from_states->size()), static_cast<int>(link.to_states->size()), {}};
  made.costs.reserve(link.from_states->size() * link.to_states->size());
  // strategies often share states: each pair of states is priced once
  std::vector<std::vector<double>> rows(width);
  for (const int from : *link.from_states) {
    const auto a = static_cast<std::size_t>(from);
    std::vector<double>& row = rows[a];
    if (row.empty()) {
      row.resize(width);
      for (std::size_t b = 0; b < width; ++b) {
        const double forward = weights.seconds(seconds.forward[a * width + b]);
        double cost = weights.seconds(seconds.both[a * width + b]);
        if (table.gradient_layout[a] != table.gradient_layout[b]) cost += gradient[b];
        if (table.value_layout[a] == table.value_layout[b]) {
          cost += same[a];
        } else if (choice) {
          cost += std::min(kept[b], forward + again[b] + same[a]);
        } else {
          cost += copied[b] + (transfer.again ? forward : 0.0);
        }
        row[b] = cost;
      }
    }
    for (const int to : *link.to_states) made.costs.push_back(row[static_cast<std::size_t>(to)]);
  }
  return made;
}

void PlanProblem::follow(std::vector<Follower> followers) {
  follower_.assign(variables_.size(), -1);
  followers_ = std::move(followers);
  for (std::size_t f = 0; f < followers_.size(); ++f)
    follower_[static_cast<std::size_t>(followers_[f].variable)] = static_cast<int>(f);
  for (const Follower& follower : followers_) {
    MESHPLAN_CHECK(follower_[static_cast<std::size_t>(follower.leader)] < 0);
    MESHPLAN_CHECK(
        follower.value.size() ==
        static_cast<std::size_t>(variables_[static_cast<std::size_t>(follower.leader)].domain));
  }
}

void PlanProblem::weigh(std::vector<std::int64_t> weights) {
  MESHPLAN_CHECK(weights.size() == book_.graph().operators.size());
  weights_ = std::move(weights);
}

int PlanProblem::leader_of(int variable) const {
  if (follower_.empty()) return variable;
  const int follower = follower_[static_cast<std::size_t>(variable)];
  return follower < 0 ? variable : followers_[static_cast<std::size_t>(follower)].leader;
}

int PlanProblem::value_of(int variable, int leader_value) const {
  if (follower_.empty()) return leader_value;
  const int follower = follower_[static_cast<std::size_t>(variable)];
  return follower < 0 ? leader_value
                      : followers_[static_cast<std::size_t>(follower)]
                            .value[static_cast<std::size_t>(leader_value)];
}

double PlanProblem::weight_of(const Variable& variable) const {
  if (weights_.empty()) return 1;
  // a value belongs to its producer or first reader
  const std::size_t op =
      variable.op ? index(*variable.op) : static_cast<std::size_t>(variable.moment);
  return static_cast<double>(weights_[op]);
}

double PlanProblem::weight_of(const Link& link) const {
  return weight_of(variables_[static_cast<std::size_t>(link.to)]);
}

PlanProblem::Solution PlanProblem::solve(const MemoryPrices& prices,
                                         const Choice* fixed,
                                         const std::vector<char>* free) {
  const Weights weights(prices);
  constexpr std::size_t kMostKept = std::size_t{1} << 24;  // entries
  if (!tables_ || tables_->prices != prices || tables_->sum.entries() > kMostKept)
    tables_ = std::make_unique<Tables>(prices);
  MinSum& sum = tables_->sum;
  sum.clear();
  std::vector<int> number(variables_.size(), -1);
  auto is_free = [&](int v) {
    return free == nullptr || (*free)[static_cast<std::size_t>(v)] != 0;
  };
  auto state_of = [&](int v, const std::vector<int>& states) {
    return states[static_cast<std::size_t>((*fixed)[static_cast<std::size_t>(v)])];
  };
  // what the links to fixed variables add to the free ones, and followers to their leaders
  std::map<int, std::vector<double>> extra;
  const auto extra_of = [&](int v) -> std::vector<double>& {
    std::vector<double>& costs = extra[v];
    costs.resize(static_cast<std::size_t>(variables_[static_cast<std::size_t>(v)].domain));
    return costs;
  };
  MESHPLAN_CHECK(followers_.empty() || free == nullptr);
  for (const Follower& follower : followers_) {
    const Variable& variable = variables_[static_cast<std::size_t>(follower.variable)];
    std::vector<double>& costs = extra_of(follower.leader);
    for (std::size_t value = 0; value < costs.size(); ++value)
      costs[value] += weight_of(variable) * unary_cost(variable, follower.value[value], weights);
  }
  if (!followers_.empty()) {  // links that are now within one variable
    for (const Link& link : links_) {
      const int v = leader_of(link.from);
      if (v != leader_of(link.to)) continue;
      std::vector<double>& costs = extra_of(v);
      const LinkWeights of(*link.transfer, weights);
      for (std::size_t value = 0; value < costs.size(); ++value) {
        const auto state = [&](int end, const std::vector<int>& states) {
          return states[static_cast<std::size_t>(value_of(end, static_cast<int>(value)))];
        };
        costs[value] += weight_of(link) * cell(link,
                                               state(link.from, *link.from_states),
                                               state(link.to, *link.to_states),
                                               weights,
                                               of)
                                              .priced;
      }
    }
  }
  if (free != nullptr) {
    for (const Link& link : links_) {
      if (is_free(link.from) == is_free(link.to)) continue;
      const bool to_fixed = is_free(link.from);
      const int v = to_fixed ? link.from : link.to;
      std::vector<double>& costs = extra_of(v);
      const LinkWeights of(*link.transfer, weights);
      for (std::size_t value = 0; value < costs.size(); ++value) {
        const int from =
            to_fixed ? (*link.from_states)[value] : state_of(link.from, *link.from_states);
        const int to = to_fixed ? state_of(link.to, *link.to_states) : (*link.to_states)[value];
        costs[value] += weight_of(link) * cell(link, from, to, weights, of).priced;
      }
    }
  }
  Key key;
  for (std::size_t v = 0; v < variables_.size(); ++v) {
    if (!is_free(static_cast<int>(v)) || leader_of(static_cast<int>(v)) != static_cast<int>(v))
      continue;
    const Variable& variable = variables_[v];
    unary_key(variable, weights, key);
    key.push_back(word(weight_of(variable)));
    const auto [known, added] = tables_->unary_keys.number(key);
    if (added) {
      CostTable made{variable.domain, 1, {}};
      for (int value = 0; value < variable.domain; ++value)
        made.costs.push_back(weight_of(variable) * unary_cost(variable, value, weights));
      tables_->unary.push_back(sum.add_table(std::move(made)));
    }
    TableNumber table = tables_->unary[static_cast<std::size_t>(known)];
    if (const auto more = extra.find(static_cast<int>(v)); more != extra.end()) {
      CostTable made = sum.table(table);
      key.clear();
      for (std::size_t value = 0; value < made.costs.size(); ++value)
        key.push_back(word(made.costs[value] += more->second[value]));
      const auto [content, is_new] = tables_->contents.number(key);
      if (is_new) tables_->by_content.push_back(sum.add_table(std::move(made)));
      table = tables_->by_content[static_cast<std::size_t>(content)];
    }
    number[v] = sum.add_variable(table);
  }
  for (const Link& link : links_) {
    if (!is_free(link.from) || !is_free(link.to)) continue;
    const int from = leader_of(link.from);
    const int to = leader_of(link.to);
    if (from == to) continue;
    link_key(link, weights, key);
    key.push_back(word(weight_of(link)));
    for (const int end : {link.from, link.to}) {
      if (leader_of(end) == end) {
        key.push_back(0);
        continue;
      }
      const std::vector<int>& value =
          followers_[static_cast<std::size_t>(follower_[static_cast<std::size_t>(end)])].value;
      key.push_back(value.size());
      for (const int at : value) key.push_back(word(at));
    }
    const auto [known, added] = tables_->link_keys.number(key);
    if (added) {
      CostTable table = link_table(link, weights);
      if (leader_of(link.from) != link.from || leader_of(link.to) != link.to) {
        CostTable followed{variables_[static_cast<std::size_t>(from)].domain,
                           variables_[static_cast<std::size_t>(to)].domain,
                           {}};
        for (int row = 0; row < followed.rows; ++row) {
          for (int column = 0; column < followed.columns; ++column)
            followed.costs.push_back(table.costs[static_cast<std::size_t>(
                value_of(link.from, row) * table.columns + value_of(link.to, column))]);
        }
        table = std::move(followed);
      }
      for (double& cost : table.costs) cost *= weight_of(link);
      tables_->links.push_back(sum.add_table(std::move(table)));
    }
    sum.add_edge(number[static_cast<std::size_t>(from)],
                 number[static_cast<std::size_t>(to)],
                 tables_->links[static_cast<std::size_t>(known)]);
  }
  const MinSumSolution found = sum.solve();
  Solution solution;
  solution.feasible = found.feasible;
  solution.exact = found.exact;
  solution.priced = found.value;
  solution.lower_bound = found.lower_bound;
  solution.tables = found.tables;
  if (!found.feasible) return solution;
  solution.choice.resize(variables_.size());
  for (std::size_t v = 0; v < variables_.size(); ++v) {
    const int leader = leader_of(static_cast<int>(v));
    const int at = number[static_cast<std::size_t>(leader)];
    solution.choice[v] =
        at < 0 ? (*fixed)[v]
               : value_of(static_cast<int>(v), found.choice[static_cast<std::size_t>(at)]);
  }
  return solution;
}

PlanProblem::Solution PlanProblem::descend(const MemoryPrices& prices,
                                           const std::vector<int>& order) const {
  const Weights weights(prices);
  std::vector<std::vector<int>> members(variables_.size());  // of every leader
  for (std::size_t v = 0; v < variables_.size(); ++v)
    members[static_cast<std::size_t>(leader_of(static_cast<int>(v)))].push_back(
        static_cast<int>(v));
  std::vector<std::vector<const Link*>> links(variables_.size());  // of every leader
  for (const Link& link : links_) {
    const int from = leader_of(link.from);
    const int to = leader_of(link.to);
    links[static_cast<std::size_t>(from)].push_back(&link);
    if (from != to) links[static_cast<std::size_t>(to)].push_back(&link);
  }
  Solution solution;
  solution.choice.assign(variables_.size(), -1);
  for (const int leader : order) {
    double best_cost = 0;
    int best = -1;
    const int domain = variables_[static_cast<std::size_t>(leader)].domain;
    for (int value = 0; value < domain; ++value) {
      double cost = 0;
      for (const int v : members[static_cast<std::size_t>(leader)]) {
        const Variable& variable = variables_[static_cast<std::size_t>(v)];
        cost += weight_of(variable) * unary_cost(variable, value_of(v, value), weights);
      }
      for (const Link* link : links[static_cast<std::size_t>(leader)]) {
        const auto end = [&](int v) {
          return leader_of(v) == leader ? value_of(v, value)
                                        : solution.choice[static_cast<std::size_t>(v)];
        };
        const int from = end(link->from);
        const int to = end(link->to);
        if (from < 0 || to < 0) continue;  // not decided yet
        cost += weight_of(*link) * cell(*link,
                                        (*link->from_states)[static_cast<std::size_t>(from)],
                                        (*link->to_states)[static_cast<std::size_t>(to)],
                                        weights,
                                        LinkWeights(*link->transfer, weights))
                                       .priced;
      }
      if (best < 0 || cost < best_cost) {
        best = value;
        best_cost = cost;
      }
    }
    for (const int v : members[static_cast<std::size_t>(leader)])
      solution.choice[static_cast<std::size_t>(v)] = value_of(v, best);
    solution.priced += best_cost;
  }
  MESHPLAN_CHECK(std::find(solution.choice.begin(), solution.choice.end(), -1) ==
                 solution.choice.end());
  solution.feasible = true;
  solution.exact = false;
  return solution;
}

double PlanProblem::bound_of_variables(const MemoryPrices& prices) const {
  const Weights weights(prices);
  Interner keys;
  std::vector<double> least;
  Key key;
  double sum = 0;
  for (const Variable& variable : variables_) {
    unary_key(variable, weights, key);
    const auto [known, is_new] = keys.number(key);
    if (is_new) {
      least.push_back(kForbidden);
      for (int value = 0; value < variable.domain; ++value)
        least.back() = std::min(least.back(), unary_cost(variable, value, weights));
    }
    sum += least[static_cast<std::size_t>(known)];
  }
  return sum;
}

void PlanProblem::forget_tables() { tables_.reset(); }

template <class Visit>
void PlanProblem::visit_parameters(const Variable& variable, int value, const Visit& visit) const {
  const auto at = static_cast<std::size_t>(value);
  if (!variable.op) {
    if (variable.parameter_class < 0) return;
    visit(book_.flow().values()[static_cast<std::size_t>(variable.value)].tensor,
          *parameter_classes_[static_cast<std::size_t>(variable.parameter_class)],
          (*variable.states)[at]);
    return;
  }
  const OperatorClass& shared = *operator_classes_[static_cast<std::size_t>(variable.op_class)];
  for (const auto& [operand, parameter] : shared.parameters) {
    visit(*book_.graph().op(*variable.op).inputs[operand],
          *parameter_classes_[static_cast<std::size_t>(parameter)],
          shared.operand_states[operand][at]);
  }
}

bool PlanProblem::has_choice(const Link& link, int from, int to) {
  const Transfer& transfer = *link.transfer;
  const std::vector<int>& layout = link.table->value_layout;
  return transfer.saves && !transfer.again &&
         layout[static_cast<std::size_t>(from)] != layout[static_cast<std::size_t>(to)];
}

std::pair<int, int> PlanProblem::states_of(const Link& link, const Choice& choice) const {
  const auto state = [&](int variable, const std::vector<int>& states) {
    return states[static_cast<std::size_t>(choice[static_cast<std::size_t>(variable)])];
  };
  return {state(link.from, *link.from_states), state(link.to, *link.to_states)};
}

Decision PlanProblem::decide(Choice choice,
                             const MemoryPrices& prices,
                             const Decision* known,
                             const std::vector<char>* free) const {
  const Weights weights(prices);
  const Graph& graph = book_.graph();
  Decision decision;
  if (known != nullptr) {
    decision = *known;
  } else {
    decision.rests.assign(graph.tensors.size(), 0);
    decision.gathered.assign(links_.size(), 0);
  }
  decision.choice = std::move(choice);
  const auto is_free = [&](std::size_t v) { return free == nullptr || (*free)[v] != 0; };
  for (std::size_t v = 0; v < variables_.size(); ++v) {
    if (!is_free(v)) continue;
    visit_parameters(variables_[v],
                     decision.choice[v],
                     [&](TensorId tensor, const ParameterClass& parameter, int state) {
                       const SpanWeights of(parameter_span(graph, book_.flow(), tensor), weights);
                       decision.rests[index(tensor)] = static_cast<std::uint16_t>(
                           best_option(parameter, state, weights, of) -
                           parameter.options[static_cast<std::size_t>(state)].data());
                     });
  }
  for (std::size_t l = 0; l < links_.size(); ++l) {
    const Link& link = links_[l];
    if (!is_free(static_cast<std::size_t>(link.from)) &&
        !is_free(static_cast<std::size_t>(link.to)))
      continue;
    const auto [from, to] = states_of(link, decision.choice);
    decision.gathered[l] =
        has_choice(link, from, to) &&
                cell(link, from, to, weights, LinkWeights(*link.transfer, weights)).gathered
            ? 1
            : 0;
  }
  return decision;
}

Decision PlanProblem::spliced(const Decision& before, const Decision& after, int cut) const {
  Decision decision = after;
  for (std::size_t v = 0; v < variables_.size(); ++v) {
    if (variables_[v].moment >= cut) continue;
    decision.choice[v] = before.choice[v];
    visit_parameters(
        variables_[v], decision.choice[v], [&](TensorId tensor, const ParameterClass&, int) {
          decision.rests[index(tensor)] = before.rests[index(tensor)];
        });
  }
  for (std::size_t l = 0; l < links_.size(); ++l) {
    if (variables_[static_cast<std::size_t>(links_[l].to)].moment < cut)
      decision.gathered[l] = before.gathered[l];
  }
  return decision;
}

PlanProblem::Measured PlanProblem::measure(const Decision& decision) const {
  const Choice& choice = decision.choice;
  const DataFlow& flow = book_.flow();
  const Graph& graph = book_.graph();
  const int end = flow.moments();
  std::vector<Bytes> difference(static_cast<std::size_t>(end) + 1, 0);
  double weight = 1;  // of what is being counted
  auto add = [&](MomentRange interval, Bytes bytes) {
    bytes *= static_cast<Bytes>(weight);
    interval.begin = std::max(interval.begin, 0);
    interval.end = std::min(interval.end, end);
    if (interval.empty()) return;
    difference[static_cast<std::size_t>(interval.begin)] += bytes;
    difference[static_cast<std::size_t>(interval.end)] -= bytes;
  };
  Measured measured;
  for (std::size_t v = 0; v < variables_.size(); ++v) {
    const Variable& variable = variables_[v];
    const auto at = static_cast<std::size_t>(choice[v]);
    weight = weight_of(variable);
    visit_parameters(
        variable, choice[v], [&](TensorId tensor, const ParameterClass& parameter, int state) {
          const ParameterSpan span = parameter_span(graph, flow, tensor);
          const ParameterOption& option =
              parameter.options[static_cast<std::size_t>(state)][decision.rests[index(tensor)]];
          measured.objective.value += weight * option.objective;
          add({0, end}, option.always);
          add(span.gathered, option.gathered);
          add(span.gathered_backward, option.gathered_backward);
          add(span.unreduced, option.unreduced);
        });
    if (!variable.op) {
      const Value& value = flow.values()[static_cast<std::size_t>(variable.value)];
      if (value.kind == ValueKind::kInput)
        add({0, end},
            book_.states(value.tensor).bytes[static_cast<std::size_t>((*variable.states)[at])]);
      continue;
    }
    const OperatorClass& shared = *operator_classes_[static_cast<std::size_t>(variable.op_class)];
    const Operator& op = graph.op(*variable.op);
    measured.objective.value += weight * shared.objective[at];
    add({0, end}, shared.always[at]);
    const WorkspaceSpan span = workspace_span(flow, *variable.op);
    add(span.forward, shared.workspace[at].forward);
    add(span.recompute, shared.workspace[at].forward);
    add(span.kept, shared.workspace[at].kept);
    add(span.backward, shared.workspace[at].backward);
    for (std::size_t r = 0; r < op.outputs.size(); ++r) {
      const Value& value = flow.values()[static_cast<std::size_t>(flow.root(op.outputs[r]))];
      for (const MomentRange& interval : {value.live, value.again, value.kept, value.gradient})
        add(interval, shared.result_bytes[r][at]);
    }
  }
  for (std::size_t l = 0; l < links_.size(); ++l) {
    const Link& link = links_[l];
    weight = weight_of(link);
    const auto [from, to] = states_of(link, choice);
    const auto a = static_cast<std::size_t>(from);
    const auto b = static_cast<std::size_t>(to);
    const StateTable& table = *link.table;
    const Transfer& transfer = *link.transfer;
    const std::size_t pair = a * table.states.size() + b;
    const Moves& seconds = moves(link);
    const double forward = seconds.forward[pair];
    measured.objective.value += weight * seconds.both[pair];
    const Bytes from_bytes = table.bytes[a];
    const Bytes to_bytes = table.bytes[b];
    if (!transfer.gradient.empty() && table.gradient_layout[a] != table.gradient_layout[b])
      add(transfer.gradient, to_bytes);
    if (table.value_layout[a] == table.value_layout[b]) {
      if (transfer.saves && !transfer.stored) add(transfer.same, from_bytes);
    } else if (transfer.again) {
      measured.objective.value += weight * forward;
      add(transfer.copy, to_bytes);
      add(transfer.saves ? transfer.kept : transfer.copy_again, to_bytes);
    } else if (!transfer.saves) {
      add(transfer.copy, to_bytes);
    } else if (decision.gathered[l] == 0) {
      add(transfer.kept, to_bytes);
    } else {
      measured.objective.value += weight * forward;
      add(transfer.copy, to_bytes);
      add(transfer.regathered, to_bytes);
      if (!transfer.stored) add(transfer.same, from_bytes);
    }
  }
  Bytes now = 0;
  for (int moment = 0; moment < end; ++moment) {
    now += difference[static_cast<std::size_t>(moment)];
    measured.profile.push_back(now);
    const bool is_own = weights_.empty() || weights_[index(flow.timeline().at(moment).op)] == 1;
    if (is_own && now > measured.peak) {
      measured.peak = now;
      measured.peak_moment = moment;
    }
  }
  return measured;
}

Assignment PlanProblem::assignment(const Decision& decision) const {
  const Choice& choice = decision.choice;
  const Graph& graph = book_.graph();
  const DataFlow& flow = book_.flow();
  Assignment made;
  made.strategies.resize(graph.operators.size());
  made.values.resize(flow.values().size());
  made.gathered.resize(flow.transfers().size());
  made.parameters.resize(graph.tensors.size());
  for (std::size_t v = 0; v < variables_.size(); ++v) {
    const Variable& variable = variables_[v];
    const auto at = static_cast<std::size_t>(choice[v]);
    visit_parameters(
        variable, choice[v], [&](TensorId tensor, const ParameterClass& parameter, int state) {
          made.parameters[index(tensor)] =
              parameter.options[static_cast<std::size_t>(state)][decision.rests[index(tensor)]]
                  .choice;
        });
    if (!variable.op) {
      const Value& value = flow.values()[static_cast<std::size_t>(variable.value)];
      made.values[static_cast<std::size_t>(variable.value)] =
          book_.states(value.tensor).states[static_cast<std::size_t>((*variable.states)[at])];
      continue;
    }
    made.strategies[index(*variable.op)] =
        operator_classes_[static_cast<std::size_t>(variable.op_class)]->strategies[at];
  }
  for (std::size_t l = 0; l < links_.size(); ++l) {
    const auto [from, to] = states_of(links_[l], choice);
    made.gathered[l] = has_choice(links_[l], from, to) ? decision.gathered[l] : 0;
  }
  return made;
}

std::size_t PlanProblem::pairs() const {
  std::size_t sum = 0;
  for (const Link& link : links_)
    sum += static_cast<std::size_t>(variables_[static_cast<std::size_t>(link.from)].domain) *
           static_cast<std::size_t>(variables_[static_cast<std::size_t>(link.to)].domain);
  return sum;
}

int PlanProblem::moment_of(std::size_t variable) const { return variables_[variable].moment; }

const std::vector<Strategy>& PlanProblem::strategies(OperatorId op) const {
  const Variable& variable = variables_[index(op)];
  return operator_classes_[static_cast<std::size_t>(variable.op_class)]->strategies;
}

std::vector<TensorState> PlanProblem::states_of(int variable) const {
  const Variable& chosen = variables_[static_cast<std::size_t>(variable)];
  const Value& value = book_.flow().values()[static_cast<std::size_t>(chosen.value)];
  std::vector<TensorState> states;
  for (const int state : *chosen.states)
    states.push_back(book_.states(value.tensor).states[static_cast<std::size_t>(state)]);
  return states;
}

std::vector<std::vector<int>> PlanProblem::neighbours() const {
  std::vector<std::vector<int>> neighbours(variables_.size());
  for (const Link& link : links_) {
    if (link.from == link.to) continue;
    neighbours[static_cast<std::size_t>(link.from)].push_back(link.to);
    neighbours[static_cast<std::size_t>(link.to)].push_back(link.from);
  }
  for (std::vector<int>& list : neighbours) {
    std::sort(list.begin(), list.end());
    list.erase(std::unique(list.begin(), list.end()), list.end());
  }
  return neighbours;
}

std::optional<Choice> PlanProblem::choice_of(const Assignment& assignment) const {
  Choice choice;
  const auto find = [&](const auto& list, const auto& wanted) {
    const auto found = std::find(list.begin(), list.end(), wanted);
    if (found == list.end()) return false;
    choice.push_back(static_cast<int>(found - list.begin()));
    return true;
  };
  for (std::size_t v = 0; v < variables_.size(); ++v) {
    const Variable& variable = variables_[v];
    const bool found =
        variable.op ? find(strategies(*variable.op), assignment.strategies[index(*variable.op)])
                    : find(states_of(static_cast<int>(v)),
                           assignment.values[static_cast<std::size_t>(variable.value)]);
    if (!found) return std::nullopt;
  }
  return choice;
}

void PlanProblem::enumerate(const std::function<void(const Choice&)>& visit) const {
  Choice choice(variables_.size(), 0);
  while (true) {
    visit(choice);
    std::size_t v = 0;
    while (v < choice.size() && ++choice[v] == variables_[v].domain) choice[v++] = 0;
    if (v == choice.size()) return;
  }
}

}  // namespace meshplan

// SPDX-License-Identifier: Apache-2.0
#include "search/plan_assignment.h"

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "graph/json.h"

namespace meshplan {
namespace {

/// The state whose value and gradient have these placements.
std::optional<TensorState> state_of(const Placements& value, const Placements& gradient) {
  TensorState state;
  if (value.size() > state.axes.size() || gradient.size() != value.size()) return std::nullopt;
  for (std::size_t axis = 0; axis < value.size(); ++axis) {
    if (const auto* shard = std::get_if<Shard>(&value[axis])) {
      if (shard->dim < 0 || shard->dim > 15) return std::nullopt;
      state.axes[axis] = static_cast<AxisState>(shard->dim);
    } else if (is_partial(value[axis])) {
      state.axes[axis] = kPartialState;
    } else if (is_replicate(value[axis])) {
      state.axes[axis] = is_partial(gradient[axis]) ? kGradientPartialState : kReplicatedState;
    } else {
      return std::nullopt;
    }
  }
  return state;
}

class Decoder {
 public:
  Decoder(const Plan& plan, PriceBook& book)
      : plan_(plan), book_(book), graph_(book.graph()), flow_(book.flow()) {}

  Result<Assignment> run() {
    if (!plan_.mesh.ranks.empty())
      return fail(ErrorCode::kUnsupported, "/mesh/ranks", "the search numbers ranks row-major");
    for (std::size_t i = 0; i < plan_.operators.size(); ++i)
      operators_.emplace(plan_.operators[i].name, i);
    for (std::size_t i = 0; i < plan_.tensors.size(); ++i)
      tensors_.emplace(plan_.tensors[i].name, i);
    for (const PlanRedistribution& move : plan_.redistributions) {
      std::string& key = key_;
      key.clear();
      add_key(move.tensor, move.phase, key);
      for (const PlanUse& use : move.consumers) add_reader(use.op, use.operand.value_or(-1), key);
      moves_.emplace(key, &move);
    }
    made_.strategies.resize(graph_.operators.size());
    made_.values.resize(flow_.values().size());
    made_.gathered.resize(flow_.transfers().size());
    made_.parameters.resize(graph_.tensors.size());
    for (std::size_t i = 0; i < graph_.operators.size(); ++i) {
      if (auto done = read_operator(static_cast<OperatorId>(i)); !done) return fail(done.error());
    }
    for (std::size_t v = 0; v < flow_.values().size(); ++v) {
      if (auto done = read_value(static_cast<int>(v)); !done) return fail(done.error());
    }
    for (std::size_t t = 0; t < flow_.transfers().size(); ++t) {
      const Transfer& transfer = flow_.transfers()[t];
      made_.gathered[t] = find(transfer, Phase::kRegather) != nullptr ? 1 : 0;
    }
    for (std::size_t t = 0; t < graph_.tensors.size(); ++t) {
      if (auto done = read_parameter(static_cast<TensorId>(t)); !done) return fail(done.error());
    }
    return std::move(made_);
  }

 private:
  static void add_key(std::string_view tensor, Phase phase, std::string& key) {
    key += tensor;
    key += '\0';
    key += static_cast<char>('0' + static_cast<int>(phase));
  }
  static void add_reader(std::string_view op, int operand, std::string& key) {
    key += '\0';
    key += op;
    key += '\0';
    key += std::to_string(operand);
  }

  void add_reader(const Use& use, std::string& key) const {
    const Operator& op = graph_.op(use.op);
    const auto& tensor = op.inputs[static_cast<std::size_t>(use.operand)];
    const bool several = std::count(op.inputs.begin(), op.inputs.end(), tensor) > 1;
    add_reader(op.name, several ? use.operand : -1, key);
  }
  void add_readers(const Transfer& transfer, std::string& key) const {
    if (transfer.to < 0) return add_reader(transfer.use, key);
    for (const int below : flow_.values()[static_cast<std::size_t>(transfer.to)].outgoing)
      add_readers(flow_.transfers()[static_cast<std::size_t>(below)], key);
  }

  const PlanRedistribution* look_up() const {
    const auto found = moves_.find(key_);
    return found == moves_.end() ? nullptr : found->second;
  }
  /// What of a transfer runs in a phase.
  const PlanRedistribution* find(const Transfer& transfer, Phase phase) {
    key_.clear();
    add_key(tensor_of(transfer.from).name, phase, key_);
    add_readers(transfer, key_);
    return look_up();
  }
  /// What moves a parameter for all of its readers.
  const PlanRedistribution* find(TensorId parameter, Phase phase) {
    key_.clear();
    add_key(graph_.tensor(parameter).name, phase, key_);
    for (const Use& use : graph_.tensor(parameter).uses) add_reader(use, key_);
    return look_up();
  }

  const Tensor& tensor_of(int value) const {
    return graph_.tensor(flow_.values()[static_cast<std::size_t>(value)].tensor);
  }

  Unexpected<Error> none(std::string where, std::string message) const {
    return fail(ErrorCode::kConflict, std::move(where), std::move(message));
  }

  Result<void> read_operator(OperatorId id) {
    const Operator& op = graph_.op(id);
    const auto found = operators_.find(op.name);
    if (found == operators_.end())
      return none("/operators", "the plan says nothing about operator \"" + op.name + "\"");
    const PlanOperator& entry = plan_.operators[found->second];
    const std::string where = "/operators/" + std::to_string(found->second);
    std::optional<Strategy> match;
    for (const Strategy& strategy : book_.info(id).strategies()) {
      if (!matches(id, strategy, entry)) continue;
      // where several look alike, the one that takes as long
      if (!match) match = strategy;
      if (book_.per_step(book_.shared_operator_price(id, strategy).compute()) ==
          entry.compute_time) {
        match = strategy;
        break;
      }
    }
    if (!match)
      return none(where, "operator \"" + op.name + "\" has no such strategy on this mesh");
    made_.strategies[index(id)] = *match;
    return {};
  }

  bool matches(OperatorId id, const Strategy& strategy, const PlanOperator& entry) {
    const Operator& op = graph_.op(id);
    if (entry.in_placements.size() != op.inputs.size() ||
        entry.out_placements.size() != op.outputs.size())
      return false;
    for (std::size_t r = 0; r < op.outputs.size(); ++r) {
      if (value_of(op.outputs[r], book_.result_state(id, strategy, r)) != entry.out_placements[r])
        return false;
    }
    for (std::size_t i = 0; i < op.inputs.size(); ++i) {
      if (op.inputs[i].has_value() != entry.in_placements[i].has_value()) return false;
      if (op.inputs[i] &&
          value_of(*op.inputs[i], book_.operand_state(id, strategy, i)) != *entry.in_placements[i])
        return false;
    }
    return true;
  }

  Placements value_of(TensorId tensor, const TensorState& state) const {
    const Tensor& t = graph_.tensor(tensor);
    const Reduction reduction =
        t.producer ? book_.info(*t.producer).result_reduction() : Reduction::kSum;
    return value_placements(state, book_.mesh_axes(), reduction);
  }

  /// Values stand in the DataFlow after what they are filled from.
  Result<void> read_value(int number) {
    const Value& value = flow_.values()[static_cast<std::size_t>(number)];
    if (value.kind == ValueKind::kResult) return {};
    const Tensor& tensor = graph_.tensor(value.tensor);
    const auto entry = tensors_.find(tensor.name);
    if (entry == tensors_.end())
      return none("/tensors", "the plan says nothing about tensor \"" + tensor.name + "\"");
    const PlanTensor& said = plan_.tensors[entry->second];
    Placements held = said.placements;
    Placements gradient(held.size(), Placement(Replicate{}));
    if (value.kind == ValueKind::kParameter) {
      if (const auto* gather = find(value.tensor, Phase::kForward)) held = gather->to;
      if (said.gradient) gradient = *said.gradient;
      if (const auto* reduce = find(value.tensor, Phase::kGradient)) gradient = reduce->from;
    } else if (value.kind == ValueKind::kCopy) {
      const Transfer& transfer = flow_.transfers()[static_cast<std::size_t>(value.incoming)];
      const TensorState from = value_state(book_, made_, transfer.from);
      held = value_of(value.tensor, from);
      if (const auto* forward = find(transfer, Phase::kForward)) held = forward->to;
      if (tensor.has_gradient) {
        gradient = gradient_placements(from, book_.mesh_axes());
        const Phase back = tensor.role == Role::kParameter ? Phase::kGradient : Phase::kBackward;
        if (const auto* backward = find(transfer, back)) gradient = backward->from;
      }
    }
    const auto state = state_of(held, gradient);
    if (!state || book_.states(value.tensor).index.count(*state) == 0) {
      return fail(ErrorCode::kUnsupported,
                  "/tensors/" + json_pointer_part(tensor.name),
                  "the strategy space has no copy of \"" + tensor.name + "\" that is " +
                      to_string(held) + " with the gradient " + to_string(gradient));
    }
    made_.values[static_cast<std::size_t>(number)] = *state;
    return {};
  }

  Result<void> read_parameter(TensorId id) {
    const Tensor& tensor = graph_.tensor(id);
    if (tensor.role != Role::kParameter || tensor.uses.empty()) return {};
    const auto entry = tensors_.find(tensor.name);
    if (entry == tensors_.end())
      return none("/tensors", "the plan says nothing about tensor \"" + tensor.name + "\"");
    const PlanTensor& said = plan_.tensors[entry->second];
    const TensorState state = parameter_state(book_, made_, id);
    const bool again = parameter_read_again(graph_, flow_, id);
    for (const ParameterChoice& choice : book_.parameter_choices(id, state)) {
      const auto price = book_.parameter_price(id, state, choice, again);
      if (!price || price->rest != said.placements) continue;
      if (tensor.has_gradient &&
          (said.gradient != price->gradient || said.optimizer_state != price->state))
        continue;
      made_.parameters[index(id)] = choice;
      return {};
    }
    return none("/tensors/" + json_pointer_part(tensor.name),
                "parameter \"" + tensor.name + "\" cannot rest like this");
  }

  const Plan& plan_;
  PriceBook& book_;
  const Graph& graph_;
  const DataFlow& flow_;
  std::unordered_map<std::string_view, std::size_t> operators_;  ///< looked up only
  std::unordered_map<std::string_view, std::size_t> tensors_;    ///< looked up only
  /// By tensor, phase and readers; looked up only.
  std::unordered_map<std::string, const PlanRedistribution*> moves_;
  std::string key_;
  Assignment made_;
};

}  // namespace

Result<Assignment> assignment_of(const Plan& plan, PriceBook& book) {
  return Decoder(plan, book).run();
}

}  // namespace meshplan

// SPDX-License-Identifier: Apache-2.0
#include "search/axis_roles.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>

#include "search/dimension_roles.h"

namespace meshplan {
namespace {

constexpr double kLeastShare = 0.25;

/// FLOPs, elements and parameters that one axis cuts in which way.
struct AxisVotes {
  double products = 0;             ///< FLOPs of all products
  std::array<double, 5> by_use{};  ///< and of those that the axis cuts so
  double attention_sequence = 0;
  double attention_heads = 0;
  double normalised = 0;           ///< elements of all normalised tensors
  double normalised_sequence = 0;  ///< of those cut along the sequence
  double all_parameters = 0;       ///< elements of all parameters
  double parameters = 0;           ///< and of those that readers want whole
  std::array<double, 4> rest{};    ///< of these by ParameterAction

  double& of(AxisUse use) { return by_use[static_cast<std::size_t>(use)]; }
  double of(AxisUse use) const { return by_use[static_cast<std::size_t>(use)]; }
};

bool has_factor(const OperandRule& operand, int factor) {
  return std::any_of(operand.dims.begin(), operand.dims.end(), [&](const DimensionFactors& dim) {
    return std::find(dim.begin(), dim.end(), factor) != dim.end();
  });
}

/// A factor of the weight, the other operands and the result: each index has a weight of its own.
bool is_expert(const Operator& op, int factor) {
  for (const OperandRule& operand : op.rule->operands) {
    if (operand.present && !operand.addend && !has_factor(operand, factor)) return false;
  }
  return has_factor(op.rule->results[0], factor);
}

double flops_of(const Operator& op) {
  std::vector<std::int64_t> sizes;
  for (const Factor& factor : op.rule->factors) sizes.push_back(factor.size);
  return op.rule->flops(sizes);
}

class AxisVoting {
 public:
  AxisVoting(PriceBook& book, const Assignment& assignment, const AxisUses& uses, int axis)
      : book_(book), graph_(book.graph()), assignment_(assignment), uses_(uses), axis_(axis) {}

  AxisVotes run() {
    for (std::size_t i = 0; i < graph_.operators.size(); ++i) add_operator(i);
    for (std::size_t t = 0; t < graph_.tensors.size(); ++t) add_parameter(t);
    return votes_;
  }

 private:
  void add_operator(std::size_t i) {
    const Operator& op = graph_.operators[i];
    const auto id = static_cast<OperatorId>(i);
    const AxisAction& action = book_.info(id).action(assignment_.strategies[i], axis_);
    const AxisUse use = uses_.of(id, action);
    if (op.rule->family == OperatorFamily::kMatMul) {
      const double flops = flops_of(op);
      votes_.products += flops;
      votes_.of(use) += flops;
    } else if (op.rule->family == OperatorFamily::kAttention) {
      if (use == AxisUse::kSequence) {
        votes_.attention_sequence += flops_of(op);
      } else if (use == AxisUse::kNone && action.kind == AxisAction::Kind::kFactor) {
        votes_.attention_heads += flops_of(op);
      }
    } else if (op.rule->family == OperatorFamily::kNormalization) {
      const auto elements = static_cast<double>(element_count(graph_.tensor(op.outputs[0]).shape));
      votes_.normalised += elements;
      if (use == AxisUse::kSequence) votes_.normalised_sequence += elements;
    }
  }

  void add_parameter(std::size_t t) {
    const Tensor& tensor = graph_.tensors[t];
    const auto axis = static_cast<std::size_t>(axis_);
    if (tensor.role != Role::kParameter || tensor.uses.empty()) return;
    const auto elements = static_cast<double>(element_count(tensor.shape));
    votes_.all_parameters += elements;
    const TensorState state = parameter_state(book_, assignment_, static_cast<TensorId>(t));
    if (is_sharded(state.axes[axis])) return;
    votes_.parameters += elements;
    votes_.rest[static_cast<std::size_t>(assignment_.parameters[t][axis])] += elements;
  }

  PriceBook& book_;
  const Graph& graph_;
  const Assignment& assignment_;
  const AxisUses& uses_;
  int axis_;
  AxisVotes votes_;
};

/// How most parameters that are not cut for their readers rest along the axis; none where they are
/// few. Those that are cut more count for what cuts less.
std::optional<ParameterAction> rest_of(const AxisVotes& votes) {
  if (votes.parameters < kLeastShare * votes.all_parameters) return std::nullopt;
  double cut = 0;
  for (const ParameterAction action :
       {ParameterAction::kAll, ParameterAction::kGradient, ParameterAction::kState}) {
    cut += votes.rest[static_cast<std::size_t>(action)];
    if (cut > votes.parameters / 2) return action;
  }
  return ParameterAction::kNone;
}

const char* rest_role(ParameterAction rest) {
  switch (rest) {
    case ParameterAction::kNone:
      return "";
    case ParameterAction::kState:
      return "zero1";
    case ParameterAction::kGradient:
      return "zero2";
    case ParameterAction::kAll:
      return "fsdp";
  }
  return "";
}

AxisHabit habit_of(const AxisVotes& votes) {
  const bool context = votes.attention_sequence >= votes.attention_heads;
  std::vector<std::pair<AxisUse, const char*>> uses = {{AxisUse::kBatch, "dp"},
                                                       {AxisUse::kWeights, "tp"},
                                                       {AxisUse::kExperts, "ep"},
                                                       {AxisUse::kSequence, context ? "cp" : "sp"}};
  std::stable_sort(uses.begin(), uses.end(), [&](const auto& a, const auto& b) {
    return votes.of(a.first) > votes.of(b.first);
  });
  AxisHabit habit;
  for (const auto& [use, role] : uses) {
    if (votes.of(use) <= 0 || votes.of(use) < kLeastShare * votes.products) continue;
    if (habit.roles.empty()) habit.use = use;
    habit.roles.emplace_back(role);
  }
  const auto has = [&](const char* role) {
    return std::find(habit.roles.begin(), habit.roles.end(), role) != habit.roles.end();
  };
  if (has("tp") && !has("sp") && !has("cp") && 2 * votes.normalised_sequence > votes.normalised) {
    habit.sequence_between = true;
    habit.roles.emplace_back("sp");
  }
  if (habit.roles.empty()) return habit;
  habit.rest = rest_of(votes);
  if (!habit.rest || *habit.rest == ParameterAction::kNone) return habit;
  const auto data = std::find(habit.roles.begin(), habit.roles.end(), "dp");
  if (*habit.rest == ParameterAction::kAll && data != habit.roles.end()) {
    *data = rest_role(*habit.rest);
  } else {
    habit.roles.emplace_back(rest_role(*habit.rest));
  }
  return habit;
}

}  // namespace

AxisUses::AxisUses(const Graph& graph)
    : graph_(graph), batch_(follow_dimension(graph, 0)), sequence_(follow_dimension(graph, 1)) {}

AxisUse AxisUses::of(OperatorId id, const AxisAction& action) const {
  const std::size_t i = index(id);
  if (action.kind == AxisAction::Kind::kRing) return AxisUse::kSequence;
  if (action.kind != AxisAction::Kind::kFactor) return AxisUse::kNone;
  if (batch_[i] && *batch_[i] == action.factor) return AxisUse::kBatch;
  if (sequence_[i] && *sequence_[i] == action.factor) return AxisUse::kSequence;
  const Operator& op = graph_.operators[i];
  if (op.rule->family != OperatorFamily::kMatMul || !shards_parameter(graph_, op, action))
    return AxisUse::kNone;
  return is_expert(op, action.factor) ? AxisUse::kExperts : AxisUse::kWeights;
}

std::vector<AxisHabit> axis_habits(PriceBook& book, const Assignment& assignment) {
  const AxisUses uses(book.graph());
  std::vector<AxisHabit> habits;
  for (int axis = 0; axis < book.mesh_axes(); ++axis) {
    const bool used = book.mesh_shape()[static_cast<std::size_t>(axis)] > 1;
    habits.push_back(used ? habit_of(AxisVoting(book, assignment, uses, axis).run()) : AxisHabit());
  }
  return habits;
}

std::vector<std::vector<std::string>> axis_roles(PriceBook& book, const Assignment& assignment) {
  std::vector<std::vector<std::string>> roles;
  for (AxisHabit& habit : axis_habits(book, assignment)) roles.push_back(std::move(habit.roles));
  return roles;
}

std::vector<std::string> axis_names(const std::vector<std::vector<std::string>>& roles) {
  std::vector<std::string> names;
  std::map<std::string, int> taken;
  for (const std::vector<std::string>& of_axis : roles) {
    if (of_axis.empty()) {
      names.push_back("d" + std::to_string(names.size()));
      continue;
    }
    const int count = ++taken[of_axis.front()];
    names.push_back(of_axis.front() + (count > 1 ? std::to_string(count) : ""));
  }
  return names;
}

}  // namespace meshplan

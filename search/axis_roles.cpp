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
  double products = 0;  ///< FLOPs of all products
  double batch = 0;     ///< of those that cut the batch, ...
  double sequence = 0;
  double weights = 0;
  double experts = 0;
  double attention_sequence = 0;
  double attention_heads = 0;
  double normalised = 0;           ///< elements of all normalised tensors
  double normalised_sequence = 0;  ///< of those cut along the sequence
  double all_parameters = 0;       ///< elements of all parameters
  double parameters = 0;           ///< and of those that readers want whole
  std::array<double, 4> rest{};    ///< of these by ParameterAction
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
  AxisVoting(PriceBook& book, const Assignment& assignment, int axis)
      : book_(book),
        graph_(book.graph()),
        assignment_(assignment),
        axis_(axis),
        batch_(follow_dimension(graph_, 0)),
        sequence_(follow_dimension(graph_, 1)) {}

  AxisVotes run() {
    for (std::size_t i = 0; i < graph_.operators.size(); ++i) add_operator(i);
    for (std::size_t t = 0; t < graph_.tensors.size(); ++t) add_parameter(t);
    return votes_;
  }

 private:
  void add_operator(std::size_t i) {
    const Operator& op = graph_.operators[i];
    const AxisAction& action =
        book_.info(static_cast<OperatorId>(i)).action(assignment_.strategies[i], axis_);
    const bool factor = action.kind == AxisAction::Kind::kFactor;
    const bool cuts_batch = factor && batch_[i] && *batch_[i] == action.factor;
    const bool ring = action.kind == AxisAction::Kind::kRing;
    const bool cuts_sequence = ring || (factor && sequence_[i] && *sequence_[i] == action.factor);
    if (op.rule->family == OperatorFamily::kMatMul) {
      const double flops = flops_of(op);
      votes_.products += flops;
      if (cuts_batch) {
        votes_.batch += flops;
      } else if (cuts_sequence) {
        votes_.sequence += flops;
      } else if (shards_parameter(graph_, op, action)) {
        (is_expert(op, action.factor) ? votes_.experts : votes_.weights) += flops;
      }
    } else if (op.rule->family == OperatorFamily::kAttention && !cuts_batch) {
      if (cuts_sequence) votes_.attention_sequence += flops_of(op);
      if (factor && !cuts_sequence) votes_.attention_heads += flops_of(op);
    } else if (op.rule->family == OperatorFamily::kNormalization) {
      const auto elements = static_cast<double>(element_count(graph_.tensor(op.outputs[0]).shape));
      votes_.normalised += elements;
      if (cuts_sequence) votes_.normalised_sequence += elements;
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
  int axis_;
  std::vector<std::optional<int>> batch_;
  std::vector<std::optional<int>> sequence_;
  AxisVotes votes_;
};

/// How most parameters that are not cut for their readers rest along the axis: "fsdp", "zero2",
/// "zero1" or "".
std::string rest_of(const AxisVotes& votes) {
  if (votes.parameters < kLeastShare * votes.all_parameters) return "";
  double cut = 0;
  for (const auto& [action, name] : {std::pair(ParameterAction::kAll, "fsdp"),
                                     std::pair(ParameterAction::kGradient, "zero2"),
                                     std::pair(ParameterAction::kState, "zero1")}) {
    cut += votes.rest[static_cast<std::size_t>(action)];
    if (cut > votes.parameters / 2) return name;
  }
  return "";
}

std::vector<std::string> roles_of(const AxisVotes& votes) {
  const bool context = votes.attention_sequence >= votes.attention_heads;
  std::vector<std::pair<double, std::string>> shares = {{votes.batch, "dp"},
                                                        {votes.weights, "tp"},
                                                        {votes.experts, "ep"},
                                                        {votes.sequence, context ? "cp" : "sp"}};
  std::stable_sort(
      shares.begin(), shares.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<std::string> roles;
  for (const auto& [flops, role] : shares) {
    if (flops > 0 && flops >= kLeastShare * votes.products) roles.push_back(role);
  }
  const auto has = [&](const char* role) {
    return std::find(roles.begin(), roles.end(), role) != roles.end();
  };
  if (has("tp") && !has("sp") && !has("cp") && 2 * votes.normalised_sequence > votes.normalised)
    roles.emplace_back("sp");
  const std::string rest = roles.empty() ? "" : rest_of(votes);
  if (rest.empty()) return roles;
  const auto data = std::find(roles.begin(), roles.end(), "dp");
  if (rest == "fsdp" && data != roles.end()) {
    *data = rest;
  } else {
    roles.push_back(rest);
  }
  return roles;
}

}  // namespace

std::vector<std::vector<std::string>> axis_roles(PriceBook& book, const Assignment& assignment) {
  std::vector<std::vector<std::string>> roles;
  for (int axis = 0; axis < book.mesh_axes(); ++axis) {
    const bool used = book.mesh_shape()[static_cast<std::size_t>(axis)] > 1;
    roles.push_back(used ? roles_of(AxisVoting(book, assignment, axis).run())
                         : std::vector<std::string>());
  }
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

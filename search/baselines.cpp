// SPDX-License-Identifier: Apache-2.0
#include "search/baselines.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <variant>

#include "lib/check.h"
#include "search/dimension_roles.h"

namespace meshplan {
namespace {

bool reads_weight_matrix(const Graph& graph, const Operator& op) {
  if (op.rule->family != OperatorFamily::kMatMul && op.rule->family != OperatorFamily::kEmbedding)
    return false;
  return std::any_of(op.inputs.begin(), op.inputs.end(), [&](const auto& input) {
    return input && graph.tensor(*input).role == Role::kParameter;
  });
}

/// Normalisations and residual additions: what lies between the blocks.
bool between_blocks(const Graph& graph, const Operator& op) {
  if (op.rule->family == OperatorFamily::kNormalization) {
    return std::any_of(op.inputs.begin(), op.inputs.end(), [&](const auto& input) {
      return input && graph.tensor(*input).role == Role::kParameter;
    });
  }
  if (op.type != "Add") return false;
  return std::all_of(op.inputs.begin(), op.inputs.end(), [&](const auto& input) {
    return input && graph.tensor(*input).producer.has_value();
  });
}

/// Does the action shard the factor, alone or in the ring form? An operator that has no such
/// factor, or cannot shard it, does redundant work.
bool shards(const OperatorInfo& info, const AxisAction& action, const std::optional<int>& factor) {
  if (!factor || info.rule().factors[static_cast<std::size_t>(*factor)].kind == FactorKind::kWhole)
    return action.kind == AxisAction::Kind::kNone;
  return (action.kind == AxisAction::Kind::kFactor || action.kind == AxisAction::Kind::kRing) &&
         action.factor == *factor;
}

bool is_tensor_axis(AxisRole role) {
  return role == AxisRole::kTensor || role == AxisRole::kTensorSequence;
}

TextbookPlan textbook_plan(const std::string& name) {
  const AxisRole data = AxisRole::kData;
  if (name == "ddp") return {{data}, ParameterAction::kNone};
  if (name == "zero1") return {{data}, ParameterAction::kState};
  if (name == "zero2") return {{data}, ParameterAction::kGradient};
  if (name == "fsdp") return {{data}, ParameterAction::kAll};
  if (name == "megatron") return {{data, AxisRole::kTensor}, ParameterAction::kState};
  return {{data, AxisRole::kTensorSequence}, ParameterAction::kState};
}

}  // namespace

Restrictions restrict_to(const TextbookPlan& plan, PriceBook& book) {
  MESHPLAN_CHECK(static_cast<int>(plan.axes.size()) == book.mesh_axes());
  const Graph& graph = book.graph();
  Restrictions restrictions;
  restrictions.strategy = [&book,
                           &graph,
                           axes = plan.axes,
                           batch = follow_dimension(graph, 0),
                           sequence = follow_dimension(graph, 1)](OperatorId id,
                                                                  const Strategy& strategy) {
    const Operator& op = graph.op(id);
    const OperatorInfo& info = book.info(id);
    for (std::size_t axis = 0; axis < axes.size(); ++axis) {
      if (book.mesh_shape()[axis] == 1) continue;
      const AxisAction& action = info.action(strategy, static_cast<int>(axis));
      bool fits = true;
      if (axes[axis] == AxisRole::kData) {
        fits = shards(info, action, batch[index(id)]);
      } else if (axes[axis] == AxisRole::kContext) {
        fits = shards(info, action, sequence[index(id)]);
      } else if (reads_weight_matrix(graph, op)) {
        fits = shards_parameter(graph, op, action);
      } else if (between_blocks(graph, op)) {
        fits = axes[axis] == AxisRole::kTensor ? action.kind == AxisAction::Kind::kNone
                                               : shards(info, action, sequence[index(id)]);
      }
      if (!fits) return false;
    }
    return true;
  };
  ParameterChoice ideal{};
  for (std::size_t axis = 0; axis < plan.axes.size(); ++axis)
    ideal[axis] = is_tensor_axis(plan.axes[axis]) || book.mesh_shape()[axis] == 1
                      ? ParameterAction::kNone
                      : plan.rest;
  restrictions.parameter =
      [&book, ideal](TensorId tensor, const TensorState& state, const ParameterChoice& choice) {
        if (choice == ideal) return true;
        const std::vector<ParameterChoice> legal = book.parameter_choices(tensor, state);
        const bool exists = std::find(legal.begin(), legal.end(), ideal) != legal.end() &&
                            book.parameter_price(tensor, state, ideal, false).has_value();
        return !exists && choice == ParameterChoice{};
      };
  return restrictions;
}

Result<TextbookResult> search_textbook(const TextbookPlan& plan,
                                       const Graph& graph,
                                       const Cluster& cluster,
                                       const std::vector<MeshShape>& meshes,
                                       const DpOptions& options) {
  const RestrictionsOf restrictions = [&](PriceBook& book,
                                          const MeshShape&) -> Result<Restrictions> {
    return restrict_to(plan, book);
  };
  auto outcome = dp_search(graph, cluster, meshes, options, restrictions);
  const bool fits = !outcome || !std::holds_alternative<NoPlan>(*outcome);
  if (!fits) {
    DpOptions unlimited = options;
    unlimited.memory_limit = std::numeric_limits<Bytes>::max();
    outcome = dp_search(graph, cluster, meshes, unlimited, restrictions);
  }
  if (!outcome) return fail(outcome.error());
  return TextbookResult{std::move(std::get<DpResult>(*outcome)), fits};
}

std::span<const std::string> baseline_names() {
  static const std::vector<std::string> kNames = {
      "ddp", "zero1", "zero2", "fsdp", "megatron", "megatron-sp"};
  return kNames;
}

Result<BaselinePrice> price_baseline(const std::string& name,
                                     const Graph& graph,
                                     const Cluster& cluster,
                                     const std::vector<MeshShape>& meshes,
                                     const DpOptions& options) {
  const TextbookPlan plan = textbook_plan(name);
  std::vector<MeshShape> tried;
  if (plan.axes.size() == 1) {
    tried.push_back({{cluster.devices()}, {"dp"}});
  } else {
    for (const MeshShape& mesh : meshes) {
      if (mesh.shape.size() == 2) tried.push_back(mesh);
    }
  }
  if (tried.empty()) return fail(ErrorCode::kUnsupported, "", "needs a mesh of two axes");
  const auto searched = search_textbook(plan, graph, cluster, tried, options);
  if (!searched)
    return fail(ErrorCode::kUnsupported, "", "cannot be applied: " + searched.error().message);
  const DpResult& found = searched->found;
  BaselinePrice price;
  price.name = name;
  price.mesh = found.mesh;
  price.objective = found.evaluation.objective;
  price.step_time = found.evaluation.step_time;
  price.peak = found.evaluation.peak;
  price.fits = searched->fits;
  return price;
}

}  // namespace meshplan

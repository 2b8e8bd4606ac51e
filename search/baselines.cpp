// SPDX-License-Identifier: Apache-2.0
#include "search/baselines.h"

#include <algorithm>
#include <limits>

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

ParameterAction resting(const std::string& name) {
  if (name == "ddp") return ParameterAction::kNone;
  if (name == "zero2") return ParameterAction::kGradient;
  if (name == "fsdp") return ParameterAction::kAll;
  return ParameterAction::kState;  // zero1 and both forms of megatron
}

bool is_two_axis(const std::string& name) { return name == "megatron" || name == "megatron-sp"; }

/// On the data axis the batch factor must be sharded wherever there is one that divides.
Restrictions restrict_to(const std::string& name, PriceBook& book) {
  const Graph& graph = book.graph();
  const auto batch = follow_dimension(graph, 0);
  const auto sequence = follow_dimension(graph, 1);
  auto shards =
      [&book](OperatorId op, const Strategy& strategy, int axis, const std::optional<int>& factor) {
        const OperatorInfo& info = book.info(op);
        const AxisAction& action = info.action(strategy, axis);
        if (!factor ||
            info.rule().factors[static_cast<std::size_t>(*factor)].kind == FactorKind::kWhole)
          return action.kind == AxisAction::Kind::kNone;
        return action.kind == AxisAction::Kind::kFactor && action.factor == *factor;
      };
  Restrictions restrictions;
  restrictions.strategy = [&book, &graph, name, batch, sequence, shards](OperatorId id,
                                                                         const Strategy& strategy) {
    const Operator& op = graph.op(id);
    if (!shards(id, strategy, 0, batch[index(id)])) return false;
    if (!is_two_axis(name)) return true;
    const AxisAction& action = book.info(id).action(strategy, 1);
    if (reads_weight_matrix(graph, op)) return shards_parameter(graph, op, action);
    if (!between_blocks(graph, op)) return true;
    return name == "megatron" ? action.kind == AxisAction::Kind::kNone
                              : shards(id, strategy, 1, sequence[index(id)]);
  };
  const ParameterAction wanted = resting(name);
  restrictions.parameter =
      [&book, wanted](TensorId tensor, const TensorState& state, const ParameterChoice& choice) {
        if (choice[1] != ParameterAction::kNone) return false;
        if (choice[0] == wanted) return true;
        // where the pattern's cut does not exist the parameter rests whole
        ParameterChoice ideal{};
        ideal[0] = wanted;
        const std::vector<ParameterChoice> legal = book.parameter_choices(tensor, state);
        const bool exists = std::find(legal.begin(), legal.end(), ideal) != legal.end() &&
                            book.parameter_price(tensor, state, ideal, false).has_value();
        return !exists && choice[0] == ParameterAction::kNone;
      };
  return restrictions;
}

}  // namespace

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
  std::vector<MeshShape> tried;
  if (!is_two_axis(name)) {
    tried.push_back({{cluster.devices()}, {"dp"}});
  } else {
    for (const MeshShape& mesh : meshes) {
      if (mesh.shape.size() == 2) tried.push_back(mesh);
    }
  }
  if (tried.empty()) return fail(ErrorCode::kUnsupported, "", "needs a mesh of two axes");
  const RestrictionsOf restrictions = [&](PriceBook& book,
                                          const MeshShape&) -> Result<Restrictions> {
    return restrict_to(name, book);
  };
  auto priced = [&](const DpOptions& with) {
    return dp_search(graph, cluster, tried, with, restrictions);
  };
  auto outcome = priced(options);
  bool fits = true;
  if (outcome && std::holds_alternative<NoPlan>(*outcome)) {
    fits = false;
    DpOptions unlimited = options;
    unlimited.memory_limit = std::numeric_limits<Bytes>::max();
    outcome = priced(unlimited);
  }
  if (!outcome)
    return fail(ErrorCode::kUnsupported, "", "cannot be applied: " + outcome.error().message);
  const DpResult& found = std::get<DpResult>(*outcome);
  BaselinePrice price;
  price.name = name;
  price.mesh = found.mesh;
  price.objective = found.evaluation.objective;
  price.step_time = found.evaluation.step_time;
  price.peak = found.evaluation.peak;
  price.fits = fits;
  return price;
}

}  // namespace meshplan

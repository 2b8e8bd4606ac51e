// SPDX-License-Identifier: Apache-2.0
// A plan does not store its derivations: propagation is quick and always comes out alike, so it is
// done once more. What the plan held of it is the first that all its strategies keep.
#include "search/explain_propagation.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "search/propagation_search.h"

namespace meshplan {
namespace {

bool keeps(const ConstraintPropagation& propagation, const Assignment& assignment) {
  for (std::size_t o = 0; o < assignment.strategies.size(); ++o) {
    if (!propagation.allows(static_cast<OperatorId>(o), assignment.strategies[o])) return false;
  }
  return true;
}

/// Of every action along the axis the cheapest alternative, the chosen one first.
std::vector<Alternative> by_action(const OperatorInfo& info,
                                   int axis,
                                   const std::vector<Alternative>& alternatives) {
  std::map<std::string, std::string> action_of;  // by the whole strategy's label
  for (const Strategy& strategy : info.strategies()) {
    Strategy alone;
    alone.actions.fill(static_cast<std::uint8_t>(info.actions().size() - 1));
    alone.actions[static_cast<std::size_t>(axis)] =
        strategy.actions[static_cast<std::size_t>(axis)];
    action_of.emplace(info.label(strategy), info.label(alone));
  }
  std::vector<Alternative> kept;
  std::set<std::string> seen;
  for (const bool chosen : {true, false}) {
    for (const Alternative& each : alternatives) {
      if (each.chosen == chosen && seen.insert(action_of[each.label]).second) kept.push_back(each);
    }
  }
  return kept;
}

}  // namespace

Result<PropagationExplanation> explain_propagation(PlanExplainer& explainer,
                                                   const Plan& plan,
                                                   const std::optional<Constraints>& constraints,
                                                   PropagationPolicy policy,
                                                   TensorId tensor) {
  PriceBook& book = explainer.book();
  const Graph& graph = book.graph();
  const MeshShape mesh{plan.mesh.shape, plan.mesh.axes};
  PropagationExplanation made;
  std::shared_ptr<const ConstraintPropagation> propagation;
  for (const PropagationHold hold : {PropagationHold::kAll, PropagationHold::kActivations}) {
    auto found = propagate(book, mesh, constraints, policy, hold);
    if (!found) return fail(found.error());
    propagation = std::move(*found);
    if (!keeps(*propagation, explainer.assignment())) continue;
    made.hold = hold;
    break;
  }

  const std::string& name = graph.tensor(tensor).name;
  const auto entry = std::find_if(plan.tensors.begin(),
                                  plan.tensors.end(),
                                  [&](const PlanTensor& each) { return each.name == name; });
  std::set<std::pair<OperatorId, int>> on_the_way;
  for (int axis = 0; axis < book.mesh_axes(); ++axis) {
    const auto a = static_cast<std::size_t>(axis);
    if (mesh.shape[a] == 1) continue;
    AxisOrigin origin{axis, Replicate{}, {}, propagation->contested(tensor, axis)};
    if (entry != plan.tensors.end() && a < entry->placements.size())
      origin.placement = entry->placements[a];
    const auto* const shard = std::get_if<Shard>(&origin.placement);
    const std::optional<int> cut = propagation->cut_by(tensor, axis);
    if (shard != nullptr ? cut == shard->dim : !cut)
      origin.origin = propagation->origin(tensor, axis);
    for (const PropagationStep& step : origin.origin.steps) on_the_way.emplace(step.op, axis);
    for (const OperatorId op : origin.contested_by) on_the_way.emplace(op, axis);
    if (graph.tensor(tensor).producer) on_the_way.emplace(*graph.tensor(tensor).producer, axis);
    for (const Use& use : graph.tensor(tensor).uses) on_the_way.emplace(use.op, axis);
    made.axes.push_back(std::move(origin));
  }
  for (const PropagationConflict& conflict : propagation->conflicts()) {
    if (!on_the_way.contains({conflict.op, conflict.axis})) continue;
    if (made.conflicts.size() == kMostExplainedConflicts) {
      ++made.more_conflicts;
      continue;
    }
    made.conflicts.push_back({conflict,
                              by_action(book.info(conflict.op),
                                        conflict.axis,
                                        explainer.explain(conflict.op, false).alternatives)});
  }
  return made;
}

}  // namespace meshplan

// SPDX-License-Identifier: Apache-2.0
#include "search/simplify.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace meshplan {
namespace {

/// The only operand of an operator, if it has one result and the operand is another's result that
/// nothing else reads.
std::optional<TensorId> only_operand(const Graph& graph, const Operator& op) {
  std::optional<TensorId> operand;
  for (const auto& input : op.inputs) {
    if (!input) continue;
    if (operand) return std::nullopt;
    operand = input;
  }
  if (!operand || op.outputs.size() != 1) return std::nullopt;
  const Tensor& tensor = graph.tensor(*operand);
  if (!tensor.producer || tensor.uses.size() != 1 || ends_graph(graph, *operand))
    return std::nullopt;
  return operand;
}

bool may_be_partial(const Rule& rule) {
  return !rule.linear.empty() ||
         std::any_of(rule.factors.begin(), rule.factors.end(), [](const Factor& factor) {
           return factor.kind == FactorKind::kReduction && factor.size > 1;
         });
}

/// Whether every cut of the leader's result has a place.
bool places_all(const DimensionMap& map, const Rule& leader, std::size_t result) {
  const std::vector<DimensionFactors>& dims = leader.results[result].dims;
  for (std::size_t d = 0; d < dims.size(); ++d) {
    const bool may_be_cut = std::any_of(dims[d].begin(), dims[d].end(), [&](int factor) {
      const Factor& of = leader.factors[static_cast<std::size_t>(factor)];
      return of.size > 1 && of.kind != FactorKind::kWhole;
    });
    if (may_be_cut && !cut_after(map, static_cast<int>(d))) return false;
  }
  return true;
}

}  // namespace

std::vector<EliminatedOperator> simplify(const Graph& graph, const DataFlow& flow) {
  std::vector<EliminatedOperator> made;
  std::vector<int> place(graph.operators.size(), -1);  // in `made`
  for (std::size_t i = 0; i < graph.operators.size(); ++i) {
    const Operator& op = graph.operators[i];
    const bool view = op.rule->family == OperatorFamily::kView;
    if (!view && op.rule->family != OperatorFamily::kElementwise) continue;
    const std::optional<TensorId> operand = only_operand(graph, op);
    if (!operand) continue;
    const Value& value = flow.values()[static_cast<std::size_t>(flow.root(*operand))];
    std::optional<DimensionMap> map = dimension_map(*op.rule);
    if (!map || value.kind != ValueKind::kResult) continue;
    const OperatorId before = *graph.tensor(*operand).producer;
    OperatorId leader = before;
    if (const int known = place[index(before)]; known >= 0) {
      const EliminatedOperator& eliminated = made[static_cast<std::size_t>(known)];
      auto composed = compose(eliminated.map, *map);
      if (!composed) continue;
      map = std::move(*composed);
      leader = eliminated.leader;
    }
    const Rule& rule = *graph.op(leader).rule;
    if (graph.op(leader).outputs.size() != 1 || !places_all(*map, rule, 0)) continue;
    if (may_be_partial(rule) && (!view || op.rule->linear.empty())) continue;
    place[i] = static_cast<int>(made.size());
    made.push_back({static_cast<OperatorId>(i), leader, std::move(*map)});
  }
  return made;
}

std::map<std::string, int> eliminated_types(const Graph& graph,
                                            const std::vector<EliminatedOperator>& eliminated) {
  std::map<std::string, int> types;
  for (const EliminatedOperator& one : eliminated) ++types[graph.op(one.op).type];
  return types;
}

std::vector<Follower> followers_in(const PlanProblem& problem,
                                   const std::vector<EliminatedOperator>& eliminated) {
  PriceBook& book = problem.book();
  const Graph& graph = book.graph();
  std::vector<Follower> made;
  std::vector<int> place(graph.operators.size(), -1);  // in `made`
  for (const EliminatedOperator& one : eliminated) {
    const Operator& op = graph.op(one.op);
    const std::size_t operand =
        static_cast<std::size_t>(std::find_if(op.inputs.begin(),
                                              op.inputs.end(),
                                              [](const auto& input) { return input.has_value(); }) -
                                 op.inputs.begin());
    const OperatorId before = *graph.tensor(*op.inputs[operand]).producer;
    const int known = place[index(before)];
    const OperatorId leader =
        known < 0 ? before : static_cast<OperatorId>(made[static_cast<std::size_t>(known)].leader);
    const std::vector<Strategy>& own = problem.strategies(one.op);
    const std::vector<Strategy>& of_before = problem.strategies(before);
    const std::vector<Strategy>& of_leader = problem.strategies(leader);
    Follower follower{static_cast<int>(index(one.op)), static_cast<int>(index(leader)), {}};
    for (std::size_t value = 0; value < of_leader.size(); ++value) {
      const std::size_t value_before =
          known < 0 ? value
                    : static_cast<std::size_t>(made[static_cast<std::size_t>(known)].value[value]);
      const TensorState arrives = book.result_state(before, of_before[value_before], 0);
      std::optional<TensorState> leaves;
      if (leader == one.leader)
        leaves = state_after(one.map, book.result_state(leader, of_leader[value], 0));
      const auto found = std::find_if(own.begin(), own.end(), [&](const Strategy& strategy) {
        return book.operand_state(one.op, strategy, operand) == arrives &&
               (leader != one.leader || leaves == book.result_state(one.op, strategy, 0));
      });
      if (found == own.end()) break;
      follower.value.push_back(static_cast<int>(found - own.begin()));
    }
    if (follower.value.size() != of_leader.size()) continue;
    place[index(one.op)] = static_cast<int>(made.size());
    made.push_back(std::move(follower));
  }
  return made;
}

}  // namespace meshplan

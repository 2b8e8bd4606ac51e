// SPDX-License-Identifier: Apache-2.0
// simplify: which operators of a graph decide nothing, so that a search need not ask them.
//
// A view (reshape, transpose, squeeze) or an elementwise operator of one operand can do its work in
// whatever layout its operand arrives. It follows the operator before it: the map of its dimensions
// is composed with those of what is eliminated before, so that any layout of the leader's result
// says what it does. It stays where that does not hold: the operand has several readers, a cut of
// the leader has no place in it (the minor part of a merged dimension), or the leader's result may
// be Partial and it would have to decide where to add it up (views pass it on).
#pragma once

#include <map>
#include <string>
#include <vector>

#include "cost_model/data_flow.h"
#include "search/dimension_map.h"
#include "search/plan_problem.h"

namespace meshplan {

struct EliminatedOperator {
  OperatorId op{};
  OperatorId leader{};  ///< stays
  DimensionMap map;     ///< of this operator's result in the leader's
};

/// In the order of the operators.
std::vector<EliminatedOperator> simplify(const Graph& graph, const DataFlow& flow);

/// How many of each type.
std::map<std::string, int> eliminated_types(const Graph& graph,
                                            const std::vector<EliminatedOperator>& eliminated);

/// The eliminated operators as followers in a problem of the same graph. Where a problem leaves one
/// no strategy that takes what a leader's strategy gives (constraints, what does not divide), it
/// decides for itself.
std::vector<Follower> followers_in(const PlanProblem& problem,
                                   const std::vector<EliminatedOperator>& eliminated);

}  // namespace meshplan

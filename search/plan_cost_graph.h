// SPDX-License-Identifier: Apache-2.0
// plan_cost_graph: all plans of one mesh as a bare cost graph (cost_graph.h), for other solvers and
// for proofs: an assignment costs and uses what evaluate() says of the plan that it stands for.
//
// Nodes: every operator (its strategies); every copy, and every input and parameter with several
// readers (its states); every parameter (its state and how it rests); every saved operand that may
// be kept or gathered again (its state and which of the two). Nodes that share a state are joined
// by edges that forbid all but equal ones. Costs are ticks of the price grid, 2^-40 s.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cost_model/evaluate.h"
#include "cost_model/price_book.h"
#include "search/cost_graph.h"
#include "search/plan_problem.h"

namespace meshplan {

/// What a node's strategies choose. One list per kind of choice is filled, with an entry per
/// strategy; several where one node decides several things.
struct PlanCostGraphNode {
  std::optional<OperatorId> op;
  std::vector<Strategy> strategies;
  std::optional<std::size_t> value;  ///< of the DataFlow
  std::vector<TensorState> states;
  std::optional<TensorId> parameter;
  std::vector<ParameterChoice> rests;
  std::optional<std::size_t> transfer;  ///< of the DataFlow
  std::vector<std::uint8_t> gathered;
};

struct PlanCostGraph {
  CostGraph graph;
  std::int64_t moments = 0;
  std::vector<std::string> names;                ///< per node
  std::vector<std::vector<std::string>> labels;  ///< per node and strategy
  std::vector<PlanCostGraphNode> choices;        ///< per node
};

/// Errors: kConflict where the restrictions leave an operator or tensor without a choice.
Result<PlanCostGraph> plan_cost_graph(PriceBook& book,
                                      const Restrictions& restrictions,
                                      Bytes memory_limit);

/// The plan that an allowed assignment of the graph stands for.
Assignment assignment_of(const PlanCostGraph& graph,
                         const PriceBook& book,
                         const CostGraphAssignment& chosen);

/// "meshplan.cost_graph/1.0".
std::string write_cost_graph(const PlanCostGraph& graph);

/// The contest's format: whole costs, one interval per node. Further intervals, and the usage of
/// pairs, become nodes of their own, tied by forbidden pairs.
std::string write_contest_cost_graph(const PlanCostGraph& graph);

/// The integer program of Alpa and XLA in the LP format that CBC, GLPK and others read: a 0/1
/// variable per strategy, one per allowed pair of an edge, one row per moment at which the limit
/// can be exceeded. Costs are in units of 2^-20 s (0.95 us), which decimals give exactly.
std::string write_lp_cost_graph(const PlanCostGraph& graph);

}  // namespace meshplan

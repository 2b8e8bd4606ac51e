// SPDX-License-Identifier: Apache-2.0
// What holds for every text that is read as a cost graph; small ones are solved and compared with
// all their assignments.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "fuzz/fuzz.h"
#include "search/cost_graph.h"
#include "search/cost_graph_solver.h"

namespace meshplan::fuzz {

/// The number of assignments, or nothing above `most`.
inline std::optional<std::size_t> assignments(const CostGraph& graph, std::size_t most) {
  std::size_t count = 1;
  for (std::size_t node = 0; node < graph.nodes.size(); ++node) {
    law(graph.strategies(node) >= 1, "a node has a strategy");
    count *= graph.strategies(node);
    if (count > most) return std::nullopt;
  }
  return count;
}

/// The least cost of the feasible assignments.
inline std::optional<Int128> least_cost(const CostGraph& graph, std::size_t count) {
  std::optional<Int128> least;
  for (std::size_t number = 0; number < count; ++number) {
    CostGraphAssignment assignment;
    std::size_t rest = number;
    for (std::size_t node = 0; node < graph.nodes.size(); ++node) {
      assignment.push_back(static_cast<int>(rest % graph.strategies(node)));
      rest /= graph.strategies(node);
    }
    const CostGraphEvaluation evaluation = evaluate(graph, assignment);
    if (evaluation.feasible() && (!least || evaluation.cost < *least)) least = evaluation.cost;
  }
  return least;
}

inline void check_cost_graph(const std::string& text) {
  const Result<CostGraph> graph = parse_cost_graph(text, "f.json");
  if (!graph) return check_refusal(graph.error());
  constexpr std::size_t kMost = 200;
  const std::optional<std::size_t> count = assignments(*graph, kMost);
  if (!count) {
    const CostGraphEvaluation first = evaluate(*graph, CostGraphAssignment(graph->nodes.size(), 0));
    law(first.within_limit || graph->limit, "only a limit is exceeded");
    return;
  }
  if (graph->nodes.size() > 40 || graph->edges.size() > 40) return;
  const std::optional<Int128> least = least_cost(*graph, *count);
  SolveOptions options;
  options.iterations = 2;
  const CostGraphSolution solution = solve_cost_graph(*graph, options);
  using Status = CostGraphSolution::Status;
  law(!solution.lower_bound || !least || *solution.lower_bound <= *least,
      "no assignment is below the bound");
  switch (solution.status) {
    case Status::kOptimal:
      law(least && solution.evaluation.cost == *least, "the best is the best of all assignments");
      break;
    case Status::kFeasible:
      law(least && solution.evaluation.cost >= *least && solution.evaluation.feasible(),
          "what is found is feasible");
      break;
    case Status::kImpossible:
      law(!least, "impossible means that no assignment is feasible");
      break;
    case Status::kNothing:
      break;
  }
}

}  // namespace meshplan::fuzz

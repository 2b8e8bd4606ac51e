// SPDX-License-Identifier: Apache-2.0
// PlanExplainer: why a plan is as it is, and what anything else would cost.
//
// Alternatives are priced by evaluate() of the plan's assignment with one thing changed: the rest
// as it is, or what is within two transfers chosen anew at the plan's price of memory. What binds
// is read off the prices of the search on the plan's mesh; a wish is that search once more, under
// one constraint more.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "cost_model/evaluate.h"
#include "graph/constraints.h"
#include "plan/plan.h"
#include "search/dp_search.h"

namespace meshplan {

/// A plan with something changed, against the plan.
struct Consequence {
  Seconds objective;  ///< what it gains (below 0) or loses
  Bytes peak = 0;     ///< of the whole changed plan
  bool fits = true;
};

/// Something that could be chosen instead.
struct Alternative {
  std::string label;  ///< a strategy: per mesh axis the factor; a parameter: how it rests
  std::vector<Placements> inputs;   ///< a strategy's; of an omitted operand empty
  std::vector<Placements> outputs;  ///< a strategy's results; a tensor's value
  bool chosen = false;
  bool constrained = false;  ///< the plan's constraints exclude it
  Consequence alone;         ///< with the rest as it is
  /// With what is near chosen anew; none for the chosen one, where nothing near fits it, or for
  /// ways of resting.
  std::optional<Consequence> around;
};

/// Why strategies of an operator are left out. `all` = `left` + the others.
struct FilterCounts {
  std::size_t all = 0;           ///< every action of the rule on every axis
  std::size_t divisibility = 0;  ///< a dimension that the axes do not divide
  std::size_t rule = 0;          ///< order, windows, sums that cannot be passed on, no way to rest
  std::size_t constraints = 0;
  /// Proven: no plan of this mesh with it fits the memory limit. None: not asked for.
  std::optional<std::size_t> memory;
  std::size_t left = 0;
};

/// What an operator's part in the objective is made of.
struct OperatorCost {
  Seconds forward;
  Seconds recompute;
  Seconds backward;
  Seconds inside;   ///< collectives inside, what is not hidden
  Seconds outside;  ///< bringing operands, taking gradients back, its parameters' collectives
  Seconds update;   ///< of the parameters that it reads first
  Seconds objective() const { return forward + recompute + backward + inside + outside + update; }
};

struct OperatorExplanation {
  OperatorCost cost;
  FilterCounts filters;
  std::vector<Alternative> alternatives;  ///< the cheapest first (around, or else alone)
};

struct TensorExplanation {
  /// What decides the placement: the tensor itself (a parameter's rest, a copy), or its producer.
  enum class By : std::uint8_t { kParameter, kCopy, kProducer, kReader, kNothing };
  By by = By::kNothing;
  std::optional<OperatorId> op;           ///< kProducer, kReader
  std::vector<Alternative> alternatives;  ///< of a kProducer or kReader: of that operator
};

/// A moment at which memory is worth something.
struct MemoryPrice {
  std::string moment;
  double seconds_per_gib = 0;
};

/// What a constraint of the user costs: the objective without it, against the plan's.
struct ConstraintPrice {
  std::string where;
  std::optional<Seconds> objective;  ///< none: no plan was found without it either
};

struct Binding {
  Bytes peak = 0;
  Bytes limit = 0;
  std::string moment;               ///< of the peak
  std::vector<MemoryPrice> prices;  ///< empty: memory does not bind
  std::vector<ConstraintPrice> constraints;
};

/// The best mesh with one level of the network faster or slower.
struct Sensitivity {
  std::string level;
  double factor = 1;
  std::optional<Seconds> as_planned;  ///< the plan itself; none where a step is too long
  std::optional<Seconds> same_mesh;   ///< the best plan of its mesh
  std::optional<Seconds> best;        ///< over all meshes
  MeshShape best_mesh;
  bool stays = false;  ///< no other mesh is better
};

/// A plan under one constraint more, or why there is none.
struct Wish {
  std::optional<DpResult> found;
  std::string reason;               ///< why not
  std::optional<Bytes> min_memory;  ///< where nothing fits: the least that any such plan needs
};

class PlanExplainer {
 public:
  /// `options`: prices, memory limit and threads of the plan's search. Everything must outlive the
  /// explainer. Errors: those of assignment_of; kConflict where the plan's objective is not that of
  /// its assignment; those of PriceBook and PlanProblem.
  static Result<std::unique_ptr<PlanExplainer>> make(const Plan& plan,
                                                     const Graph& graph,
                                                     const Cluster& cluster,
                                                     const DpOptions& options,
                                                     const std::optional<Constraints>& constraints);
  ~PlanExplainer();

  const Evaluation& evaluation() const;
  const Assignment& assignment() const;
  PriceBook& book() const;

  /// `price_constraints`: also search without each constraint, at most `most` of them.
  Binding binding(std::size_t most_constraints);
  OperatorCost cost_of(OperatorId op) const;
  /// `prove_memory`: also count what memory excludes.
  FilterCounts filters(OperatorId op, bool prove_memory);
  OperatorExplanation explain(OperatorId op, bool prove_memory);
  TensorExplanation explain(TensorId tensor);
  /// All levels, 20 % slower and faster.
  std::vector<Sensitivity> sensitivity();
  /// The best plan of this mesh under these constraints too. Errors: those of bind_constraints.
  Result<Wish> why_not(const Constraints& wish);

 private:
  class Parts;
  explicit PlanExplainer(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

/// Both constraints together; the mesh is that of `a` where it has one.
Constraints join(const Constraints& a, const Constraints& b);

}  // namespace meshplan

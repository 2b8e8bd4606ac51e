// SPDX-License-Identifier: Apache-2.0
// Propagation (constraint_propagation.h) leaves of every operator the strategies that keep what
// follows from the constraints; what is open is chosen by the exact search on that smaller space,
// so meshes, numbers of micro-batches, the memory limit, several plans and earlier plans work as
// they do there. Without anything contested or open this search has nothing to choose but how
// parameters rest; with everything open it is the exact one. What propagation fixed is no law of
// the user's: where no plan keeps it within the memory limit, the constraints alone are kept. And a
// constraint on a parameter says how it rests; whether its readers take it so (tensor parallel) or
// gathered (as ZeRO-3 does) is a question of price too, asked once for the whole plan.
//
// Complexity: one propagation per mesh, then the exact search over at most as many strategies;
// twice where parameters are constrained.
//
// A clash that no single operator shows (a placement that cannot be moved to another) is found by
// leaving constraints out: what can be left out while there is still no plan is not to blame.
#include "search/propagation_search.h"

#include <algorithm>
#include <set>
#include <utility>

#include "search/constraint_restrictions.h"

namespace meshplan {
namespace {

/// More constraints than this are not tried one by one.
constexpr std::size_t kMostTried = 64;

Result<BoundConstraints> bound_on(const std::optional<Constraints>& constraints,
                                  const Graph& graph,
                                  const MeshShape& shape) {
  if (!constraints) return BoundConstraints{};
  auto mesh = DeviceMesh::make(shape.shape, shape.axes);
  if (!mesh) return fail(mesh.error());
  return bind_constraints(*constraints, graph, *mesh);
}

/// Whether anything is said about placements.
bool places(const std::optional<Constraints>& constraints) {
  if (!constraints) return false;
  return !constraints->tensors.empty() || !constraints->operators.empty() ||
         std::any_of(constraints->scopes.begin(), constraints->scopes.end(), [](const auto& scope) {
           return !scope.parameters.empty() || scope.input || scope.output;
         });
}

/// By the names alone: what they mean on a mesh is known per mesh.
bool has_constrained_parameters(const std::optional<Constraints>& constraints, const Graph& graph) {
  if (!constraints) return false;
  const bool by_scope = std::any_of(constraints->scopes.begin(),
                                    constraints->scopes.end(),
                                    [](const auto& scope) { return !scope.parameters.empty(); });
  std::set<std::string> named;
  bool pattern = false;
  for (const TensorConstraint& each : constraints->tensors) {
    named.insert(each.tensor);
    pattern = pattern || each.tensor.find_first_of("*{") != std::string::npos;
  }
  return by_scope || pattern ||
         std::any_of(graph.tensors.begin(), graph.tensors.end(), [&](const Tensor& tensor) {
           return tensor.role == Role::kParameter && named.contains(tensor.name);
         });
}

bool has_plan(PriceBook& book, const BoundConstraints& bound) {
  auto problem = PlanProblem::make(book, restrictions_from(bound, book));
  return problem && (*problem)->solve({}).feasible;
}

/// The constraints of which no plan keeps all, none of them to spare; empty where there is one.
std::vector<std::string> clashing(PriceBook& book, const BoundConstraints& bound) {
  std::set<std::string> wheres;
  for (const auto& [id, choices] : bound.tensors) wheres.insert(choices.where);
  const auto each_part = [](auto& choices, const auto& visit) {
    for (auto* list : {&choices.inputs, &choices.outputs}) {
      for (auto& part : *list) {
        if (part) visit(part, part->where);
      }
    }
    for (auto& part : choices.in_strategy) {
      if (part) visit(part, choices.in_strategy_where);
    }
  };
  for (const auto& [id, choices] : bound.operators)
    each_part(choices, [&](const auto& /*part*/, const std::string& at) { wheres.insert(at); });
  if (wheres.size() > kMostTried || has_plan(book, bound)) return {};
  BoundConstraints left = bound;
  std::vector<std::string> needed;
  for (const std::string& where : wheres) {
    BoundConstraints fewer = left;
    std::erase_if(fewer.tensors, [&](const auto& each) { return each.second.where == where; });
    for (auto& [id, choices] : fewer.operators)
      each_part(choices, [&](auto& part, const std::string& at) {
        if (at == where) part.reset();
      });
    if (has_plan(book, fewer)) {
      needed.push_back(where);
    } else {
      left = std::move(fewer);
    }
  }
  return needed;
}

}  // namespace

Error name_clash(Error error,
                 const std::vector<DpJob>& jobs,
                 const Cluster& cluster,
                 const std::vector<MeshShape>& meshes,
                 const DpOptions& options,
                 const std::optional<Constraints>& constraints) {
  if (error.code != ErrorCode::kConflict || !error.where.empty() || !constraints) return error;
  const DpJob& job = jobs.front();
  PriceOptions prices = options.prices;
  prices.microbatches = job.microbatches;
  const MeshShape& mesh = meshes.front();
  auto book = PriceBook::make(*job.graph, cluster, mesh.shape, prices);
  auto bound = bound_on(constraints, *job.graph, mesh);
  if (!book || !bound) return error;
  const auto propagation =
      ConstraintPropagation::make(**book, *bound, PropagationPolicy::kCost, PropagationHold::kAll);
  if (!propagation) return propagation.error();
  const std::vector<std::string> all = clashing(**book, *bound);
  if (all.empty()) return error;
  error.where = all.front();
  std::string others;
  for (std::size_t i = 1; i < all.size(); ++i) others += (i > 1 ? ", " : "") + all[i];
  error.message = others.empty() ? "no plan keeps it: " + error.message
                                 : "clashes with " + others + ": " + error.message;
  return error;
}

Result<std::shared_ptr<const ConstraintPropagation>> propagate(
    PriceBook& book,
    const MeshShape& mesh,
    const std::optional<Constraints>& constraints,
    PropagationPolicy policy,
    PropagationHold hold) {
  auto bound = bound_on(constraints, book.graph(), mesh);
  if (!bound) return fail(bound.error());
  return ConstraintPropagation::make(book, std::move(*bound), policy, hold);
}

RestrictionsOf restrictions_of(const std::optional<Constraints>& constraints) {
  if (!constraints) return {};
  return [&constraints](PriceBook& book, const MeshShape& mesh) -> Result<Restrictions> {
    auto bound = bound_on(constraints, book.graph(), mesh);
    if (!bound) return fail(bound.error());
    return restrictions_from(*bound, book);
  };
}

Result<PropagationOutcome> propagation_search(std::size_t count,
                                              const std::vector<DpJob>& jobs,
                                              const Cluster& cluster,
                                              const std::vector<MeshShape>& meshes,
                                              const DpOptions& options,
                                              const std::optional<Constraints>& constraints,
                                              PropagationPolicy policy) {
  using Found = Result<std::variant<std::vector<DpResult>, NoPlan>>;
  const auto held = [&constraints, policy](PropagationHold hold) -> RestrictionsOf {
    return [&constraints, policy, hold](PriceBook& book,
                                        const MeshShape& mesh) -> Result<Restrictions> {
      auto propagation = propagate(book, mesh, constraints, policy, hold);
      if (!propagation) return fail(propagation.error());
      return restrictions_from(std::move(*propagation), book);
    };
  };
  const auto first_of = [](Found& found) -> DpResult* {
    auto* const results = found ? std::get_if<std::vector<DpResult>>(&*found) : nullptr;
    return results == nullptr ? nullptr : &results->front();
  };
  // no plan, but perhaps one that keeps less
  const auto lost = [](const Found& found) {
    if (!found) return found.error().code == ErrorCode::kConflict && found.error().where.empty();
    const NoPlan* const none = std::get_if<NoPlan>(&*found);
    return none != nullptr && !none->stopped;
  };
  const bool compares = policy == PropagationPolicy::kCost && places(constraints);
  std::vector<PropagationHold> holds = {PropagationHold::kAll};
  if (compares && has_constrained_parameters(constraints, *jobs.front().graph))
    holds.push_back(PropagationHold::kActivations);

  PropagationOutcome outcome;
  std::optional<Found> exact;  // on the mesh that was found first
  Found found(std::variant<std::vector<DpResult>, NoPlan>{NoPlan{}});
  for (const PropagationHold hold : holds) {
    found = top_plans(count, jobs, cluster, meshes, options, held(hold));
    const DpResult* const first = first_of(found);
    if (first == nullptr && lost(found)) continue;
    outcome.hold = hold;
    if (first == nullptr || !compares || (options.stop && options.stop())) break;
    if (!exact) {
      exact = top_plans(
          count, {jobs[first->job]}, cluster, {first->mesh}, options, restrictions_of(constraints));
      if (DpResult* const least = first_of(*exact)) {
        for (DpResult& result : std::get<std::vector<DpResult>>(**exact)) result.job = first->job;
        least->stopped = least->stopped || first->stopped;
      }
    }
    const DpResult* const least = first_of(*exact);
    if (least == nullptr || first->evaluation.objective.value <=
                                least->evaluation.objective.value * (1 + kWorthReleasing))
      break;
    outcome.hold.reset();
  }
  if (!outcome.hold) {
    outcome.by_price = exact && first_of(*exact) != nullptr;
    found = outcome.by_price
                ? std::move(*exact)
                : top_plans(count, jobs, cluster, meshes, options, restrictions_of(constraints));
  }
  if (!found) return fail(name_clash(found.error(), jobs, cluster, meshes, options, constraints));
  if (auto* const results = std::get_if<std::vector<DpResult>>(&*found)) {
    for (DpResult& result : *results) {
      result.lower_bound = 0;
      result.optimal = false;
    }
  }
  outcome.restrictions = outcome.hold ? held(*outcome.hold) : restrictions_of(constraints);
  outcome.found = std::move(*found);
  return outcome;
}

}  // namespace meshplan

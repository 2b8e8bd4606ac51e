// SPDX-License-Identifier: Apache-2.0
#include "search/explain_plan.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "graph/json.h"
#include "lib/device_mesh.h"
#include "search/constraint_restrictions.h"
#include "search/memory_search.h"
#include "search/plan_assignment.h"
#include "search/plan_problem.h"

namespace meshplan {
namespace {

constexpr double kGiB = 1024.0 * 1024 * 1024;
constexpr int kNear = 2;                    ///< transfers from what is changed to what is free
constexpr std::size_t kMostNear = 48;       ///< variables chosen anew
constexpr std::size_t kMostRechosen = 128;  ///< alternatives with others chosen anew

std::size_t at(int index) { return static_cast<std::size_t>(index); }

/// What an alternative costs at best.
double least(const Alternative& alternative) {
  const double alone = alternative.alone.objective.value;
  return alternative.around ? std::min(alone, alternative.around->objective.value) : alone;
}

bool cheaper(const Alternative& a, const Alternative& b) {
  if (a.chosen != b.chosen) return a.chosen;
  return least(a) < least(b);
}

}  // namespace

class PlanExplainer::Parts {
 public:
  Parts(const Plan& plan,
        const Graph& graph,
        const Cluster& cluster,
        const DpOptions& options,
        const std::optional<Constraints>& constraints)
      : plan_(plan),
        graph_(graph),
        cluster_(cluster),
        options_(options),
        constraints_(constraints),
        mesh_{plan.mesh.shape, plan.mesh.axes} {
    options_.prices.microbatches = plan.options.microbatches;
  }

  Result<void> prepare() {
    if (mesh_.shape.size() > static_cast<std::size_t>(kMostSearchedAxes)) {
      return fail(
          ErrorCode::kUnsupported,
          "/mesh",
          "plans of at most " + std::to_string(kMostSearchedAxes) + " mesh axes can be explained");
    }
    auto book = PriceBook::make(graph_, cluster_, mesh_.shape, options_.prices);
    if (!book) return fail(book.error());
    book_ = std::move(*book);
    auto assignment = assignment_of(plan_, *book_);
    if (!assignment) return fail(assignment.error());
    assignment_ = std::move(*assignment);
    evaluation_ = evaluate(*book_, assignment_);
    if (plan_.result.objective != evaluation_.objective || plan_.memory.peak != evaluation_.peak)
      return fail(ErrorCode::kConflict,
                  "/result/objective",
                  "the plan is none of those that the search chooses from: the nearest one costs "
                  "something else");
    auto open = PlanProblem::make(*book_, {});
    if (!open) return fail(open.error());
    open_ = std::move(*open);
    auto allowed = restrictions(*book_, mesh_, constraints_);
    if (!allowed) return fail(allowed.error());
    allowed_ = std::move(*allowed);
    if (constraints_) {
      auto bound = PlanProblem::make(*book_, allowed_);
      if (!bound) return fail(bound.error());
      bound_ = std::move(*bound);
    }
    for (std::size_t t = 0; allowed_.parameter && t < graph_.tensors.size(); ++t) {
      const Tensor& tensor = graph_.tensors[t];
      const auto id = static_cast<TensorId>(t);
      if (tensor.role != Role::kParameter || tensor.uses.empty() ||
          allowed_.parameter(
              id, parameter_state(*book_, assignment_, id), assignment_.parameters[t]))
        continue;
      return fail(ErrorCode::kConflict,
                  "/tensors/" + json_pointer_part(tensor.name),
                  "the plan does not keep its constraints as they are now");
    }
    auto choice = open_->choice_of(assignment_);
    auto bound_choice = problem().choice_of(assignment_);
    if (!choice || !bound_choice)
      return fail(ErrorCode::kConflict,
                  "/operators",
                  choice ? "the plan does not keep its constraints as they are now"
                         : "the plan is none of those that the search chooses from");
    open_choice_ = std::move(*choice);
    choice_ = std::move(*bound_choice);
    neighbours_ = open_->neighbours();
    return {};
  }

  /// The prices of memory of the search on this mesh; searched once.
  const MemorySearchResult& searched() {
    if (!searched_) searched_ = memory_search(problem(), options_.memory_limit);
    return *searched_;
  }

  Binding binding(std::size_t most_constraints) {
    Binding made;
    made.peak = evaluation_.peak;
    made.limit = options_.memory_limit;
    made.moment = moment_name(graph_, book_->flow(), evaluation_.peak_moment);
    for (const auto& [moment, price] : searched().prices.at) {
      if (price > 0)
        made.prices.push_back({moment_name(graph_, book_->flow(), moment), price * kGiB});
    }
    std::stable_sort(made.prices.begin(), made.prices.end(), [](const auto& a, const auto& b) {
      return a.seconds_per_gib > b.seconds_per_gib;
    });
    if (constraints_) price_constraints(most_constraints, made.constraints);
    return made;
  }

  OperatorCost cost_of(OperatorId op) const {
    const OperatorPrice& price =
        book_->shared_operator_price(op, assignment_.strategies[index(op)]);
    OperatorCost cost;
    cost.forward = book_->per_step(price.forward);
    cost.recompute = book_->per_step(price.recompute);
    cost.backward = book_->per_step(price.backward);
    for (const InnerCollective& inner : price.collectives) {
      cost.inside += static_cast<double>(inner.count) *
                     book_->per_step(book_->exposed(inner.overlap, inner.time));
    }
    const auto& inputs = graph_.op(op).inputs;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const auto& input = inputs[i];
      if (!input || graph_.tensor(*input).role != Role::kParameter) continue;
      if (graph_.tensor(*input).uses.front() != Use{op, static_cast<int>(i)}) continue;
      cost.update +=
          book_
              ->shared_parameter_price(*input,
                                       parameter_state(*book_, assignment_, *input),
                                       assignment_.parameters[index(*input)],
                                       parameter_read_again(graph_, book_->flow(), *input))
              .update;
    }
    cost.outside = evaluation_.breakdown.operators()[index(op)] - cost.objective();
    return cost;
  }

  /// `alternatives`, if given, are those of the operator in the order of its strategies: what is
  /// known to fit needs no proof.
  FilterCounts filters(OperatorId op,
                       bool prove_memory,
                       const std::vector<Alternative>* alternatives) {
    const OperatorInfo& info = book_->info(op);
    FilterCounts counts;
    Strategy strategy;
    const auto none = static_cast<std::uint8_t>(info.actions().size() - 1);
    strategy.actions.fill(none);
    count_actions(info, strategy, 0, counts);
    const std::vector<Strategy>& possible = open_->strategies(op);
    counts.rule += info.strategies().size() - possible.size();
    const std::vector<Strategy>& allowed = problem().strategies(op);
    counts.constraints = possible.size() - allowed.size();
    counts.left = allowed.size();
    if (!prove_memory) return counts;
    counts.memory = 0;
    for (std::size_t i = 0; i < allowed.size(); ++i) {
      if (alternatives != nullptr) {
        const auto place = std::find(possible.begin(), possible.end(), allowed[i]);
        const Alternative& known =
            (*alternatives)[static_cast<std::size_t>(place - possible.begin())];
        if (known.chosen || known.alone.fits || (known.around && known.around->fits)) continue;
      }
      if (!never_fits(op, allowed[i])) continue;
      ++*counts.memory;
      --counts.left;
    }
    return counts;
  }

  std::vector<Alternative> alternatives_of(OperatorId op) {
    const OperatorInfo& info = book_->info(op);
    const std::vector<Strategy>& strategies = open_->strategies(op);
    const int variable = static_cast<int>(index(op));
    std::vector<Alternative> made;
    std::vector<int> values;
    const std::vector<Strategy>& allowed = problem().strategies(op);
    for (std::size_t s = 0; s < strategies.size(); ++s) {
      made.push_back(describe(op, info, strategies[s]));
      values.push_back(place_of(allowed, strategies[s], static_cast<int>(s), made.back()));
      try_alone(variable, values.back(), made.back());
    }
    rechoose(variable, values, made);
    return made;
  }

  TensorExplanation explain_tensor(TensorId id) {
    TensorExplanation made;
    const Tensor& tensor = graph_.tensor(id);
    if (tensor.uses.empty() && !tensor.producer) return made;
    if (tensor.role == Role::kParameter) {
      made.by = TensorExplanation::By::kParameter;
      made.alternatives = ways_of_resting(id);
      return made;
    }
    const int root = book_->flow().root(id);
    if (tensor.producer) {
      made.by = TensorExplanation::By::kProducer;
      made.op = *tensor.producer;
      made.alternatives = alternatives_of(*tensor.producer);
    } else if (root < 0) {
      made.by = TensorExplanation::By::kReader;
      made.op = tensor.uses.front().op;
      made.alternatives = alternatives_of(*made.op);
    } else {
      made.by = TensorExplanation::By::kCopy;
      made.alternatives = states_of_value(root);
    }
    std::stable_sort(made.alternatives.begin(), made.alternatives.end(), cheaper);
    return made;
  }

  std::vector<Sensitivity> sensitivity() {
    std::vector<Sensitivity> rows;
    const bool fixed_mesh = constraints_ && constraints_->mesh;
    const std::vector<MeshShape> meshes =
        fixed_mesh ? std::vector<MeshShape>{mesh_} : all_meshes(cluster_);
    for (std::size_t level = 0; level < cluster_.levels.size(); ++level) {
      if (cluster_.levels[level].size == 1) continue;
      for (const double factor : {0.8, 1.2}) {
        Cluster changed = cluster_;
        changed.levels[level].scale_bandwidth(factor);
        Sensitivity row;
        row.level = cluster_.levels[level].name;
        row.factor = factor;
        row.as_planned = price_on(changed);
        row.same_mesh = best_on(changed, {mesh_}).first;
        const auto [best, mesh] = best_on(changed, meshes);
        row.best = best;
        row.best_mesh = mesh;
        row.stays = row.same_mesh && (!best || *row.same_mesh <= *best);
        rows.push_back(std::move(row));
      }
    }
    return rows;
  }

  Result<Wish> why_not(const Constraints& wish) {
    const std::optional<Constraints> joined = constraints_ ? join(*constraints_, wish) : wish;
    auto bound = bind(graph_, mesh_, joined);
    if (!bound) return fail(bound.error());
    auto outcome = search({mesh_}, cluster_, joined);
    Wish made;
    if (!outcome) {
      made.reason = outcome.error().message;
    } else if (NoPlan* none = std::get_if<NoPlan>(&*outcome)) {
      made.reason = "no such plan fits the memory limit";
      if (none->min_memory > 0) made.min_memory = none->min_memory;
    } else {
      made.found = std::move(std::get<DpResult>(*outcome));
    }
    return made;
  }

  const Evaluation& evaluation() const { return evaluation_; }
  const Assignment& assignment() const { return assignment_; }
  PriceBook& book() const { return *book_; }

 private:
  PlanProblem& problem() { return bound_ ? *bound_ : *open_; }

  // ---- Restrictions

  static Result<BoundConstraints> bind(const Graph& graph,
                                       const MeshShape& shape,
                                       const std::optional<Constraints>& constraints) {
    if (!constraints) return BoundConstraints{};
    auto mesh = DeviceMesh::make(shape.shape, shape.axes);
    if (!mesh) return fail(mesh.error());
    return bind_constraints(*constraints, graph, *mesh);
  }

  static Result<Restrictions> restrictions(PriceBook& book,
                                           const MeshShape& shape,
                                           const std::optional<Constraints>& constraints) {
    auto bound = bind(book.graph(), shape, constraints);
    if (!bound) return fail(bound.error());
    return restrictions_from(*bound, book);
  }

  Result<DpOutcome> search(const std::vector<MeshShape>& meshes,
                           const Cluster& cluster,
                           const std::optional<Constraints>& constraints) const {
    RestrictionsOf of;
    if (constraints) {
      of = [&](PriceBook& book, const MeshShape& shape) {
        return restrictions(book, shape, constraints);
      };
    }
    return dp_search(graph_, cluster, meshes, options_, of);
  }

  // ---- Changing one thing

  /// What it takes when a variable has another value and the `free` ones are chosen anew; none
  /// where they have no choice that goes with it.
  std::optional<Consequence> try_value(int variable,
                                       int value,
                                       bool constrained,
                                       const std::vector<int>& free) {
    PlanProblem& all = constrained ? *open_ : problem();
    Choice choice = constrained ? open_choice_ : choice_;
    choice[at(variable)] = value;
    const MemoryPrices& prices = searched().prices;
    if (!free.empty()) {
      std::vector<char> flags(choice.size(), 0);
      for (const int v : free) flags[at(v)] = 1;
      PlanProblem::Solution solution = all.solve(prices, &choice, &flags);
      if (!solution.feasible) return std::nullopt;
      choice = std::move(solution.choice);
    }
    const Decision decision = all.decide(std::move(choice), prices);
    std::vector<int> changed = free;
    changed.push_back(variable);
    return consequence(merged(all.assignment(decision), changed));
  }

  /// The number of a value among the allowed ones; where it is none of them, the alternative is
  /// marked as constrained and keeps its number among all.
  template <class Value>
  static int place_of(const std::vector<Value>& allowed,
                      const Value& value,
                      int number,
                      Alternative& alternative) {
    const auto found = std::find(allowed.begin(), allowed.end(), value);
    alternative.constrained = found == allowed.end();
    return alternative.constrained ? number : static_cast<int>(found - allowed.begin());
  }

  void try_alone(int variable, int value, Alternative& alternative) {
    alternative.chosen = !alternative.constrained && value == choice_[at(variable)];
    alternative.alone = alternative.chosen
                            ? Consequence{{}, evaluation_.peak, true}
                            : *try_value(variable, value, alternative.constrained, {});
  }

  Consequence consequence(const Assignment& assignment) const {
    const Evaluation made = evaluate(*book_, assignment);
    return {made.objective - evaluation_.objective, made.peak, made.peak <= options_.memory_limit};
  }

  /// The plan's assignment with these variables, and what hangs on them, as in `other`.
  Assignment merged(const Assignment& other, const std::vector<int>& changed) const {
    const DataFlow& flow = book_->flow();
    Assignment made = assignment_;
    std::vector<char> operators(graph_.operators.size(), 0);
    std::vector<char> values(flow.values().size(), 0);
    for (const int variable : changed) {
      if (at(variable) < operators.size()) operators[at(variable)] = 1;
    }
    for (std::size_t v = 0; v < flow.values().size(); ++v) {
      const int variable = open_->variable_of(static_cast<int>(v));
      if (variable >= 0 && std::find(changed.begin(), changed.end(), variable) != changed.end()) {
        values[v] = 1;
        made.values[v] = other.values[v];
        const TensorId tensor = flow.values()[v].tensor;
        if (flow.values()[v].kind == ValueKind::kParameter)
          made.parameters[index(tensor)] = other.parameters[index(tensor)];
      }
    }
    for (std::size_t i = 0; i < operators.size(); ++i) {
      if (operators[i] == 0) continue;
      made.strategies[i] = other.strategies[i];
      const Operator& op = graph_.operators[i];
      for (std::size_t k = 0; k < op.inputs.size(); ++k) {
        if (op.inputs[k] && flow.direct(static_cast<OperatorId>(i), k) == DirectUse::kParameter)
          made.parameters[index(*op.inputs[k])] = other.parameters[index(*op.inputs[k])];
      }
    }
    const auto touched = [&](int value) {
      const Value& v = flow.values()[at(value)];
      if (v.kind != ValueKind::kResult) return values[at(value)] != 0;
      return operators[index(*graph_.tensor(v.tensor).producer)] != 0;
    };
    for (std::size_t t = 0; t < flow.transfers().size(); ++t) {
      const Transfer& transfer = flow.transfers()[t];
      const bool far =
          transfer.to >= 0 ? touched(transfer.to) : operators[index(transfer.use.op)] != 0;
      if (far || touched(transfer.from)) made.gathered[t] = other.gathered[t];
    }
    return made;
  }

  /// What is within a few transfers of a variable, without it.
  std::vector<int> near(int variable) const {
    std::vector<int> reached = {variable};
    std::size_t begin = 0;
    for (int distance = 0; distance < kNear; ++distance) {
      const std::size_t end = reached.size();
      for (std::size_t i = begin; i < end; ++i) {
        for (const int next : neighbours_[at(reached[i])]) {
          if (reached.size() > kMostNear) break;
          if (std::find(reached.begin(), reached.end(), next) == reached.end())
            reached.push_back(next);
        }
      }
      begin = end;
    }
    reached.erase(reached.begin());
    return reached;
  }

  /// Fills `around` of the most promising alternatives.
  void rechoose(int variable, const std::vector<int>& values, std::vector<Alternative>& list) {
    const std::vector<int> free = near(variable);
    if (free.empty()) return;
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < list.size(); ++i) {
      if (!list[i].chosen) order.push_back(i);
    }
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return list[a].alone.objective < list[b].alone.objective;
    });
    if (order.size() > kMostRechosen) order.resize(kMostRechosen);
    for (const std::size_t i : order)
      list[i].around = try_value(variable, values[i], list[i].constrained, free);
  }

  Alternative describe(OperatorId id, const OperatorInfo& info, const Strategy& strategy) {
    Alternative made;
    const Operator& op = graph_.op(id);
    made.label = info.label(strategy);
    for (std::size_t i = 0; i < op.inputs.size(); ++i) {
      made.inputs.push_back(op.inputs[i]
                                ? value_of(*op.inputs[i], book_->operand_state(id, strategy, i))
                                : Placements());
    }
    for (std::size_t r = 0; r < op.outputs.size(); ++r)
      made.outputs.push_back(value_of(op.outputs[r], book_->result_state(id, strategy, r)));
    return made;
  }

  Placements value_of(TensorId tensor, const TensorState& state) const {
    const Tensor& t = graph_.tensor(tensor);
    const Reduction reduction =
        t.producer ? book_->info(*t.producer).result_reduction() : Reduction::kSum;
    return value_placements(state, book_->mesh_axes(), reduction);
  }

  std::vector<Alternative> ways_of_resting(TensorId id) {
    const TensorState state = parameter_state(*book_, assignment_, id);
    const bool again = parameter_read_again(graph_, book_->flow(), id);
    std::vector<Alternative> list;
    for (const ParameterChoice& choice : book_->parameter_choices(id, state)) {
      const auto price = book_->parameter_price(id, state, choice, again);
      if (!price) continue;
      Alternative made;
      for (int axis = 0; axis < book_->mesh_axes(); ++axis)
        made.label += (axis > 0 ? "," : "") + std::string(action_name(choice[at(axis)]));
      made.outputs = {price->rest, price->gradient, price->state};
      made.chosen = choice == assignment_.parameters[index(id)];
      made.constrained =
          allowed_.parameter && !made.chosen && !allowed_.parameter(id, state, choice);
      Assignment changed = assignment_;
      changed.parameters[index(id)] = choice;
      made.alone = consequence(changed);
      list.push_back(std::move(made));
    }
    std::stable_sort(list.begin(), list.end(), cheaper);
    return list;
  }

  static const char* action_name(ParameterAction action) {
    switch (action) {
      case ParameterAction::kNone:
        return "whole";
      case ParameterAction::kState:
        return "state";
      case ParameterAction::kGradient:
        return "state+gradient";
      case ParameterAction::kAll:
        return "all";
    }
    return "whole";
  }

  std::vector<Alternative> states_of_value(int value) {
    const int variable = open_->variable_of(value);
    const TensorId tensor = book_->flow().values()[at(value)].tensor;
    std::vector<Alternative> list;
    std::vector<int> values;
    const std::vector<TensorState> states = open_->states_of(variable);
    const std::vector<TensorState> allowed = problem().states_of(variable);
    for (std::size_t s = 0; s < states.size(); ++s) {
      Alternative made;
      made.outputs = {value_of(tensor, states[s])};
      made.label = to_string(made.outputs[0]);
      values.push_back(place_of(allowed, states[s], static_cast<int>(s), made));
      try_alone(variable, values.back(), made);
      list.push_back(std::move(made));
    }
    rechoose(variable, values, list);
    return list;
  }

  // ---- What is left out

  static bool divides(const OperatorInfo& info, const Strategy& strategy) {
    std::vector<std::int64_t> left;
    for (const Factor& factor : info.rule().factors) left.push_back(factor.size);
    for (std::size_t axis = 0; axis < info.mesh_shape().size(); ++axis) {
      const AxisAction& action = info.action(strategy, static_cast<int>(axis));
      for (const int factor : {action.factor, action.ring}) {
        if (factor < 0) continue;
        if (left[at(factor)] % info.mesh_shape()[axis] != 0) return false;
        left[at(factor)] /= info.mesh_shape()[axis];
      }
    }
    return true;
  }

  static void count_actions(const OperatorInfo& info,
                            Strategy& strategy,
                            std::size_t axis,
                            FilterCounts& counts) {
    if (axis == info.mesh_shape().size() || axis == strategy.actions.size()) {
      ++counts.all;
      if (info.legal(strategy)) return;
      ++(divides(info, strategy) ? counts.rule : counts.divisibility);
      return;
    }
    const auto none = static_cast<std::uint8_t>(info.actions().size() - 1);
    for (std::uint8_t action = info.mesh_shape()[axis] == 1 ? none : std::uint8_t{0};
         action <= none;
         ++action) {
      strategy.actions[axis] = action;
      count_actions(info, strategy, axis + 1, counts);
    }
    strategy.actions[axis] = none;
  }

  /// Whether it is proven that no plan in which the operator has this strategy fits: at some moment
  /// that is priced, or the peak's, every one needs more.
  bool never_fits(OperatorId op, const Strategy& strategy) {
    Restrictions only = allowed_;
    only.strategy = [&, allowed = allowed_.strategy](OperatorId id, const Strategy& s) {
      if (id == op) return s == strategy;
      return !allowed || allowed(id, s);
    };
    auto problem = PlanProblem::make(*book_, only);
    if (!problem) return false;
    std::vector<int> moments = {evaluation_.peak_moment};
    for (const auto& [moment, price] : searched().prices.at) moments.push_back(moment);
    for (const int moment : moments) {
      const MemoryPrices bytes{{{moment, 1.0}}, true};
      const PlanProblem::Solution solution = (*problem)->solve(bytes);
      if (!solution.feasible || solution.lower_bound > static_cast<double>(options_.memory_limit))
        return true;
    }
    return false;
  }

  // ---- Searching once more

  void price_constraints(std::size_t most, std::vector<ConstraintPrice>& prices) const {
    const Constraints& all = *constraints_;
    const auto without = [&](const std::string& where, Constraints less) {
      if (prices.size() == most) return;
      ConstraintPrice price{where, std::nullopt};
      auto outcome = search({mesh_}, cluster_, less);
      if (outcome) {
        if (const DpResult* found = std::get_if<DpResult>(&*outcome))
          price.objective = found->evaluation.objective;
      }
      prices.push_back(std::move(price));
    };
    Constraints nothing;
    nothing.file = all.file;
    nothing.mesh = all.mesh;
    without("all", nothing);
    const auto each = [&](auto Constraints::*list) {
      for (std::size_t i = 0; i < (all.*list).size(); ++i) {
        Constraints less = all;
        (less.*list).erase((less.*list).begin() + static_cast<std::ptrdiff_t>(i));
        without((all.*list)[i].where, std::move(less));
      }
    };
    each(&Constraints::tensors);
    each(&Constraints::operators);
    each(&Constraints::scopes);
  }

  std::optional<Seconds> price_on(const Cluster& cluster) const {
    auto book = PriceBook::make(graph_, cluster, mesh_.shape, options_.prices);
    if (!book) return std::nullopt;
    return evaluate(**book, assignment_).objective;
  }

  std::pair<std::optional<Seconds>, MeshShape> best_on(const Cluster& cluster,
                                                       const std::vector<MeshShape>& meshes) const {
    auto outcome = search(meshes, cluster, constraints_);
    if (!outcome) return {};
    const DpResult* found = std::get_if<DpResult>(&*outcome);
    if (found == nullptr) return {};
    return {found->evaluation.objective, found->mesh};
  }

  const Plan& plan_;
  const Graph& graph_;
  const Cluster& cluster_;
  DpOptions options_;
  const std::optional<Constraints>& constraints_;
  MeshShape mesh_;
  std::unique_ptr<PriceBook> book_;
  Assignment assignment_;
  Evaluation evaluation_;
  Restrictions allowed_;
  std::unique_ptr<PlanProblem> open_;   ///< without constraints
  std::unique_ptr<PlanProblem> bound_;  ///< with them, if there are any
  Choice open_choice_;                  ///< the plan's, of the open problem
  Choice choice_;                       ///< the same of the one with constraints, if there are any
  std::vector<std::vector<int>> neighbours_;
  std::optional<MemorySearchResult> searched_;
};

PlanExplainer::PlanExplainer(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
PlanExplainer::~PlanExplainer() = default;

Result<std::unique_ptr<PlanExplainer>> PlanExplainer::make(
    const Plan& plan,
    const Graph& graph,
    const Cluster& cluster,
    const DpOptions& options,
    const std::optional<Constraints>& constraints) {
  auto parts = std::make_unique<Parts>(plan, graph, cluster, options, constraints);
  if (auto done = parts->prepare(); !done) return fail(done.error());
  return std::unique_ptr<PlanExplainer>(new PlanExplainer(std::move(parts)));
}

const Evaluation& PlanExplainer::evaluation() const { return parts_->evaluation(); }
const Assignment& PlanExplainer::assignment() const { return parts_->assignment(); }
PriceBook& PlanExplainer::book() const { return parts_->book(); }

Binding PlanExplainer::binding(std::size_t most_constraints) {
  return parts_->binding(most_constraints);
}

OperatorCost PlanExplainer::cost_of(OperatorId op) const { return parts_->cost_of(op); }

FilterCounts PlanExplainer::filters(OperatorId op, bool prove_memory) {
  return parts_->filters(op, prove_memory, nullptr);
}

OperatorExplanation PlanExplainer::explain(OperatorId op, bool prove_memory) {
  OperatorExplanation made;
  made.cost = parts_->cost_of(op);
  made.alternatives = parts_->alternatives_of(op);
  made.filters = parts_->filters(op, prove_memory, &made.alternatives);
  std::stable_sort(made.alternatives.begin(), made.alternatives.end(), cheaper);
  return made;
}

TensorExplanation PlanExplainer::explain(TensorId tensor) { return parts_->explain_tensor(tensor); }

std::vector<Sensitivity> PlanExplainer::sensitivity() { return parts_->sensitivity(); }

Result<Wish> PlanExplainer::why_not(const Constraints& wish) { return parts_->why_not(wish); }

Constraints join(const Constraints& a, const Constraints& b) {
  Constraints joined = a;
  if (!joined.mesh) joined.mesh = b.mesh;
  joined.tensors.insert(joined.tensors.end(), b.tensors.begin(), b.tensors.end());
  joined.operators.insert(joined.operators.end(), b.operators.begin(), b.operators.end());
  joined.scopes.insert(joined.scopes.end(), b.scopes.begin(), b.scopes.end());
  return joined;
}

}  // namespace meshplan

// SPDX-License-Identifier: Apache-2.0
#include "search/preferred_plan.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <set>
#include <utility>

#include "search/memory_search.h"

namespace meshplan {
namespace {

/// Axis by axis, what is quickly seen: where the state is cut, the parameter is; elsewhere an
/// action cuts what rests, the gradient or the optimizer state.
bool may_rest_as(const PlanTensor& old,
                 const TensorState& state,
                 const ParameterChoice& choice,
                 int axes) {
  for (int axis = 0; axis < axes; ++axis) {
    const auto at = static_cast<std::size_t>(axis);
    if (at >= old.placements.size()) return false;
    const bool is_cut = is_sharded(state[axis]);
    if (is_shard(old.placements[at]) != (is_cut || choice[at] == ParameterAction::kAll))
      return false;
    if (is_cut && old.placements[at] != Placement(Shard{state[axis]}) &&
        std::holds_alternative<Shard>(old.placements[at]))
      return false;
    if (old.optimizer_state && at < old.optimizer_state->size() &&
        is_shard((*old.optimizer_state)[at]) != (is_cut || choice[at] != ParameterAction::kNone))
      return false;
  }
  return true;
}

}  // namespace

EarlierChoices::EarlierChoices(const Plan& plan) : plan_(plan) {
  for (const PlanOperator& op : plan.operators) operators_.emplace(op.name, &op);
  for (const PlanTensor& tensor : plan.tensors) tensors_.emplace(tensor.name, &tensor);
}

bool EarlierChoices::same_mesh(std::span<const std::int64_t> shape) const {
  return plan_.mesh.ranks.empty() &&
         std::equal(shape.begin(), shape.end(), plan_.mesh.shape.begin(), plan_.mesh.shape.end());
}

bool EarlierChoices::is_kept(PriceBook& book, OperatorId id, const Strategy& strategy) const {
  const Graph& graph = book.graph();
  const Operator& op = graph.op(id);
  const auto found = operators_.find(op.name);
  if (found == operators_.end()) return false;
  const PlanOperator& old = *found->second;
  if (old.type != op.type || old.in_placements.size() != op.inputs.size() ||
      old.out_placements.size() != op.outputs.size())
    return false;
  const auto placements = [&](TensorId tensor, const TensorState& state) {
    const Tensor& t = graph.tensor(tensor);
    return value_placements(
        state,
        book.mesh_axes(),
        t.producer ? book.info(*t.producer).result_reduction() : Reduction::kSum);
  };
  for (std::size_t i = 0; i < op.inputs.size(); ++i) {
    const std::optional<Placements>& before = old.in_placements[i];
    if (before.has_value() != op.inputs[i].has_value()) return false;
    if (before && placements(*op.inputs[i], book.operand_state(id, strategy, i)) != *before)
      return false;
  }
  for (std::size_t r = 0; r < op.outputs.size(); ++r) {
    if (placements(op.outputs[r], book.result_state(id, strategy, r)) != old.out_placements[r])
      return false;
  }
  return true;
}

bool EarlierChoices::is_kept(PriceBook& book,
                             TensorId parameter,
                             const TensorState& state,
                             const ParameterChoice& choice) const {
  const auto found = tensors_.find(book.graph().tensor(parameter).name);
  if (found == tensors_.end()) return false;
  const PlanTensor& old = *found->second;
  if (!may_rest_as(old, state, choice, book.mesh_axes())) return false;
  const bool reads = parameter_read_again(book.graph(), book.flow(), parameter);
  const auto price = book.parameter_price(parameter, state, choice, reads);
  if (!price || price->rest != old.placements) return false;
  if (!book.graph().tensor(parameter).has_gradient) return true;
  return (!old.gradient || *old.gradient == price->gradient) &&
         (!old.optimizer_state || *old.optimizer_state == price->state);
}

KeptChoices EarlierChoices::kept(PriceBook& book, const Assignment& assignment) const {
  KeptChoices kept;
  if (!same_mesh(book.mesh_shape())) return kept;
  const Graph& graph = book.graph();
  for (std::size_t i = 0; i < graph.operators.size(); ++i) {
    if (is_kept(book, static_cast<OperatorId>(i), assignment.strategies[i])) ++kept.operators;
  }
  for (std::size_t t = 0; t < graph.tensors.size(); ++t) {
    const Tensor& tensor = graph.tensors[t];
    if (tensor.role != Role::kParameter || tensor.uses.empty()) continue;
    const auto id = static_cast<TensorId>(t);
    if (is_kept(book, id, parameter_state(book, assignment, id), assignment.parameters[t]))
      ++kept.parameters;
  }
  return kept;
}

KeptChoices EarlierChoices::known(const Graph& graph) const {
  KeptChoices known;
  for (const Operator& op : graph.operators) known.operators += operators_.count(op.name);
  for (const Tensor& tensor : graph.tensors) {
    if (tensor.role == Role::kParameter && !tensor.uses.empty())
      known.parameters += tensors_.count(tensor.name);
  }
  return known;
}

namespace {

constexpr int kMostCrossings = 12;
constexpr double kLargestSum = kLongestStep / 2;  ///< of all charges, so that sums stay exact

/// What an operator, by its number, is charged if it is not kept; parameters as their first reader.
using ChargeOf = std::function<Seconds(std::size_t)>;

/// The choices of one book that are kept, looked up many times.
class KeptTable {
 public:
  KeptTable(const EarlierChoices& earlier, PriceBook& book) {
    const Graph& graph = book.graph();
    strategies_.resize(graph.operators.size());
    for (std::size_t i = 0; i < graph.operators.size(); ++i) {
      const auto id = static_cast<OperatorId>(i);
      for (const Strategy& strategy : book.info(id).strategies()) {
        if (earlier.is_kept(book, id, strategy)) strategies_[i].insert(strategy);
      }
    }
    parameters_.resize(graph.tensors.size());
    for (std::size_t t = 0; t < graph.tensors.size(); ++t) {
      if (graph.tensors[t].role != Role::kParameter || graph.tensors[t].uses.empty()) continue;
      const auto id = static_cast<TensorId>(t);
      for (const TensorState& state : book.states(id).states) {
        if (state.has_partial()) continue;
        for (const ParameterChoice& choice : book.parameter_choices(id, state)) {
          if (earlier.is_kept(book, id, state, choice)) parameters_[t].insert({state, choice});
        }
      }
    }
  }
  bool has(OperatorId id, const Strategy& strategy) const {
    return strategies_[index(id)].contains(strategy);
  }
  bool has(TensorId id, const TensorState& state, const ParameterChoice& choice) const {
    return parameters_[index(id)].contains({state, choice});
  }

 private:
  std::vector<std::set<Strategy>> strategies_;
  std::vector<std::set<std::pair<TensorState, ParameterChoice>>> parameters_;
};

class PreferenceSearch {
 public:
  PreferenceSearch(const EarlierChoices& earlier,
                   Seconds most,
                   PriceBook& book,
                   const Restrictions& allowed,
                   const DpOptions& options)
      : earlier_(earlier),
        most_(most),
        book_(book),
        allowed_(allowed),
        options_(options),
        table_(earlier, book) {}

  struct Found {
    Assignment assignment;
    Evaluation evaluation;
    KeptChoices kept;
  };

  /// The plan that keeps the most; none within the tolerance was found.
  std::optional<Found> run() {
    const std::size_t choices =
        book_.graph().operators.size() + earlier_.known(book_.graph()).parameters;
    const Seconds high =
        down_to_price_grid({std::min(most_.value, kLargestSum / static_cast<double>(choices + 1))});
    const Seconds tick{1 / kTicksPerSecond};  // decides between equals
    const std::optional<Found> all = solve(high);
    if (!all || fits(*all)) return std::move(best_);
    const std::optional<Found> none = solve(tick);
    if (!none || !fits(*none)) return std::move(best_);
    cross(*all, high, *none, tick);
    return std::move(best_);
  }

 private:
  bool fits(const Found& found) const {
    return found.evaluation.objective <= most_ && found.evaluation.peak <= options_.memory_limit;
  }
  bool stopped() const { return options_.stop && options_.stop(); }

  std::optional<Found> solve(Seconds charge) {
    return solve([charge](std::size_t /*op*/) { return charge; });
  }

  std::optional<Found> solve(const ChargeOf& charge) {
    if (stopped()) return std::nullopt;
    Restrictions restrictions = allowed_;
    restrictions.strategy_charge = [&](OperatorId id, const Strategy& strategy) {
      return table_.has(id, strategy) ? Seconds{} : charge(index(id));
    };
    restrictions.parameter_charge =
        [&](TensorId tensor, const TensorState& state, const ParameterChoice& choice) {
          return table_.has(tensor, state, choice)
                     ? Seconds{}
                     : charge(index(book_.graph().tensor(tensor).uses.front().op));
        };
    auto problem = PlanProblem::make(book_, restrictions);
    if (!problem) return std::nullopt;
    const MemorySearchResult result =
        MemorySearch(**problem, options_.memory_limit).run(std::nullopt, options_.stop);
    if (!result.decision) return std::nullopt;
    Found found;
    found.assignment = (*problem)->assignment(*result.decision);
    found.evaluation = evaluate(book_, found.assignment);
    found.kept = earlier_.kept(book_, found.assignment);
    if (fits(found) && is_better(found)) best_ = found;
    return found;
  }

  bool is_better(const Found& found) const {
    if (!best_) return true;
    const std::size_t kept = found.kept.all();
    const std::size_t before = best_->kept.all();
    return kept > before ||
           (kept == before && found.evaluation.objective < best_->evaluation.objective);
  }

  /// `above` keeps more but costs too much, `below` does not cost too much.
  void cross(Found above, Seconds above_charge, Found below, Seconds below_charge) {
    for (int i = 0; i < kMostCrossings; ++i) {
      if (above.kept.all() <= below.kept.all() + 1) return;
      const double changes = static_cast<double>(above.kept.all() - below.kept.all());
      const double more = above.evaluation.objective.value - below.evaluation.objective.value;
      const Seconds charge = on_price_grid({more / changes});
      if (!(charge > below_charge && charge < above_charge)) break;
      std::optional<Found> next = solve(charge);
      if (!next) return;
      const bool is_new = next->kept != above.kept && next->kept != below.kept;
      if (fits(*next)) {
        below = std::move(*next);
        below_charge = charge;
      } else {
        above = std::move(*next);
        above_charge = charge;
      }
      if (!is_new) break;
    }
    join(above_charge, below_charge, true);
    join(above_charge, below_charge, false);
  }

  /// The higher charge for operators before the cut, or from it on.
  void join(Seconds above, Seconds below, bool first) {
    std::size_t low = 0;  // so many operators are charged more: fits
    std::size_t high = book_.graph().operators.size();
    const std::size_t count = high;
    while (high - low > 1) {
      const std::size_t middle = low + (high - low) / 2;
      const std::optional<Found> found = solve([&](std::size_t op) {
        return (first ? op < middle : op >= count - middle) ? above : below;
      });
      if (!found && stopped()) return;
      (found && fits(*found) ? low : high) = middle;
    }
  }

  const EarlierChoices& earlier_;
  Seconds most_;
  PriceBook& book_;
  const Restrictions& allowed_;
  const DpOptions& options_;
  KeptTable table_;
  std::optional<Found> best_;
};

}  // namespace

Preferred prefer_choices(const EarlierChoices& earlier,
                         double tolerance,
                         DpResult& best,
                         const std::vector<DpJob>& jobs,
                         const Cluster& cluster,
                         const std::optional<MeshShape>& mesh,
                         const DpOptions& options,
                         const RestrictionsOf& restrictions) {
  Preferred preferred;
  preferred.kept = earlier.kept(*best.book, best.assignment);
  const auto old_job = std::find_if(jobs.begin(), jobs.end(), [&](const DpJob& job) {
    return job.microbatches == earlier.plan().options.microbatches;
  });
  const std::size_t number =
      old_job == jobs.end() ? best.job : static_cast<std::size_t>(old_job - jobs.begin());
  const DpJob& job = jobs[number];
  preferred.known = earlier.known(*job.graph);
  if (preferred.kept == preferred.known) return preferred;
  if (!mesh || !earlier.same_mesh(mesh->shape)) {
    preferred.note =
        "nothing of the earlier plan is kept: its mesh is not one that this plan may have";
    return preferred;
  }
  PriceOptions prices = options.prices;
  prices.microbatches = job.microbatches;
  auto book = PriceBook::make(*job.graph, cluster, mesh->shape, prices);
  if (!book) return preferred;
  Restrictions allowed;
  if (restrictions) {
    auto made = restrictions(**book, *mesh);
    if (!made) return preferred;
    allowed = std::move(*made);
  }
  const Seconds objective = best.evaluation.objective;
  const Seconds most = down_to_price_grid((1 + tolerance) * objective);
  auto found = PreferenceSearch(earlier, most, **book, allowed, options).run();
  if (!found && !earlier.same_mesh(best.mesh.shape))
    preferred.note =
        "nothing of the earlier plan is kept: no plan found on its mesh fits and is within the "
        "tolerance";
  if (!found || found->kept.all() <= preferred.kept.all()) return preferred;
  DpResult& plan = preferred.plan.emplace();
  preferred.kept = found->kept;
  plan.job = number;
  plan.mesh = *mesh;
  plan.book = std::move(*book);
  plan.assignment = std::move(found->assignment);
  plan.evaluation = std::move(found->evaluation);
  plan.lower_bound = best.lower_bound;
  plan.stopped = best.stopped;
  plan.optimal = !plan.stopped && plan.lower_bound >= plan.evaluation.objective.value;
  return preferred;
}

}  // namespace meshplan

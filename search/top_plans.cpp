// SPDX-License-Identifier: Apache-2.0
#include "search/top_plans.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "search/axis_roles.h"
#include "search/in_parallel.h"

namespace meshplan {
namespace {

/// Results looked at for each one wanted, and searched with restrictions.
constexpr std::size_t kMostLookedAt = 4;

/// What plans must not do along one axis.
struct Ban {
  int axis = 0;
  AxisUse use = AxisUse::kNone;         ///< of products
  bool sequence_between = false;        ///< of normalisations
  std::optional<ParameterAction> rest;  ///< of parameters that can rest otherwise
};

struct Candidate {
  DpResult result;
  std::vector<Ban> bans;
};

/// Can a parameter that `rest` is banned for along the axis rest in another way? What is cut may
/// always be whole; what is whole must divide.
bool may_rest_otherwise(const PriceBook& book,
                        TensorId tensor,
                        const TensorState& state,
                        std::size_t axis,
                        ParameterAction rest) {
  if (rest != ParameterAction::kNone) return true;
  ParameterChoice cut{};
  cut[axis] =
      book.graph().tensor(tensor).has_gradient ? ParameterAction::kState : ParameterAction::kAll;
  return book.parameter_price(tensor, state, cut, false).has_value();
}

/// `allowed` and none of the bans. The book must outlive the result.
Restrictions with_bans(PriceBook& book, Restrictions allowed, const std::vector<Ban>& bans) {
  const auto uses = std::make_shared<const AxisUses>(book.graph());
  Restrictions made = allowed;
  made.strategy = [&book, allowed, bans, uses](OperatorId id, const Strategy& strategy) {
    if (allowed.strategy && !allowed.strategy(id, strategy)) return false;
    const OperatorFamily family = book.graph().op(id).rule->family;
    return std::none_of(bans.begin(), bans.end(), [&](const Ban& ban) {
      const AxisUse use = uses->of(id, book.info(id).action(strategy, ban.axis));
      if (family == OperatorFamily::kMatMul) return ban.use != AxisUse::kNone && ban.use == use;
      return family == OperatorFamily::kNormalization && ban.sequence_between &&
             use == AxisUse::kSequence;
    });
  };
  made.parameter = [&book, allowed, bans](
                       TensorId tensor, const TensorState& state, const ParameterChoice& choice) {
    if (allowed.parameter && !allowed.parameter(tensor, state, choice)) return false;
    return std::none_of(bans.begin(), bans.end(), [&](const Ban& ban) {
      const auto axis = static_cast<std::size_t>(ban.axis);
      return ban.rest && *ban.rest == choice[axis] && !is_sharded(state.axes[axis]) &&
             may_rest_otherwise(book, tensor, state, axis, *ban.rest);
    });
  };
  return made;
}

/// Axes of the same use.
struct AxisGroup {
  std::int64_t size = 1;
  int largest = 0;  ///< axis; the first of equal ones
};
using AxisGroups = std::map<std::pair<AxisUse, bool>, AxisGroup>;

AxisGroups groups_of(const MeshShape& mesh, const std::vector<AxisHabit>& habits) {
  AxisGroups groups;
  for (std::size_t axis = 0; axis < habits.size(); ++axis) {
    if (mesh.shape[axis] == 1) continue;
    const auto [found, is_new] =
        groups.try_emplace({habits[axis].use, habits[axis].sequence_between});
    AxisGroup& group = found->second;
    group.size *= mesh.shape[axis];
    if (is_new || mesh.shape[axis] > mesh.shape[static_cast<std::size_t>(group.largest)])
      group.largest = static_cast<int>(axis);
  }
  return groups;
}

/// Equal for plans of one kind.
std::vector<std::int64_t> kind_of(const MeshShape& mesh, const std::vector<AxisHabit>& habits) {
  std::vector<std::int64_t> kind;
  for (const auto& [use, group] : groups_of(mesh, habits)) {
    const auto& rest = habits[static_cast<std::size_t>(group.largest)].rest;
    kind.insert(kind.end(),
                {static_cast<std::int64_t>(use.first),
                 use.second ? 1 : 0,
                 group.size,
                 rest ? static_cast<std::int64_t>(*rest) : -1});
  }
  return kind;
}

/// What the plan does, each alone; how parameters rest only `with_rest`.
std::vector<Ban> bans_against(const MeshShape& mesh,
                              const std::vector<AxisHabit>& habits,
                              bool with_rest) {
  std::vector<Ban> bans;
  for (std::size_t axis = 0; axis < habits.size(); ++axis) {
    const int number = static_cast<int>(axis);
    const AxisHabit& habit = habits[axis];
    if (habit.use != AxisUse::kNone) bans.push_back({number, habit.use, false, std::nullopt});
    if (habit.sequence_between) bans.push_back({number, AxisUse::kNone, true, std::nullopt});
  }
  if (!with_rest) return bans;
  for (const auto& [use, group] : groups_of(mesh, habits)) {
    const auto& rest = habits[static_cast<std::size_t>(group.largest)].rest;
    if (rest) bans.push_back({group.largest, AxisUse::kNone, false, rest});
  }
  return bans;
}

class TopSearch {
 public:
  TopSearch(const std::vector<DpJob>& jobs,
            const Cluster& cluster,
            const DpOptions& options,
            const RestrictionsOf& restrictions)
      : jobs_(jobs), cluster_(cluster), options_(options), restrictions_(restrictions) {}

  std::vector<DpResult> run(std::size_t count, DpResult best) {
    std::vector<DpResult> others = std::move(best.others);
    best.others.clear();
    add({std::move(best), {}});
    for (DpResult& other : others) add({std::move(other), {}});
    std::vector<DpResult> results;
    std::set<std::vector<std::int64_t>> kinds;
    const std::size_t most = kMostLookedAt * count;
    const auto stopped = [&] { return options_.stop && options_.stop(); };
    for (std::size_t looked = 0; looked < most && !open_.empty() && results.size() < count &&
                                 (results.empty() || !stopped());
         ++looked) {
      Candidate next = std::move(open_.front());
      open_.erase(open_.begin());
      const std::vector<AxisHabit> habits = axis_habits(*next.result.book, next.result.assignment);
      const bool is_new = kinds.insert(kind_of(next.result.mesh, habits)).second;
      // what is like a result on another mesh may rest in the same ways, but its axes are others
      if (!is_new || results.size() + 1 < count) split(next, habits, is_new || !next.bans.empty());
      if (is_new) results.push_back(std::move(next.result));
    }
    std::stable_sort(results.begin(), results.end(), [](const DpResult& a, const DpResult& b) {
      return a.evaluation.objective < b.evaluation.objective;
    });
    return results;
  }

 private:
  void add(Candidate candidate) {
    const Seconds objective = candidate.result.evaluation.objective;
    const auto place = std::upper_bound(
        open_.begin(), open_.end(), objective, [](Seconds one, const Candidate& other) {
          return one < other.result.evaluation.objective;
        });
    open_.insert(place, std::move(candidate));
  }

  void split(const Candidate& parent, const std::vector<AxisHabit>& habits, bool with_rest) {
    const std::vector<Ban> bans = bans_against(parent.result.mesh, habits, with_rest);
    std::vector<std::optional<DpResult>> found(bans.size());
    DpOptions options = options_;
    options.results = 1;
    options.threads = 1;
    options.progress = {};
    in_parallel(bans.size(), options_.threads, [&](std::size_t i) {
      std::vector<Ban> all = parent.bans;
      all.push_back(bans[i]);
      found[i] = search(parent.result, options, all);
    });
    for (std::size_t i = 0; i < bans.size(); ++i) {
      if (!found[i]) continue;
      std::vector<Ban> all = parent.bans;
      all.push_back(bans[i]);
      add({std::move(*found[i]), std::move(all)});
    }
  }

  /// The best plan of the same mesh and job that does nothing of what is banned.
  std::optional<DpResult> search(const DpResult& parent,
                                 const DpOptions& options,
                                 const std::vector<Ban>& bans) const {
    const RestrictionsOf restrictions = [&](PriceBook& book,
                                            const MeshShape& mesh) -> Result<Restrictions> {
      Restrictions allowed;
      if (restrictions_) {
        auto made = restrictions_(book, mesh);
        if (!made) return made;
        allowed = std::move(*made);
      }
      return with_bans(book, std::move(allowed), bans);
    };
    auto outcome = dp_search({jobs_[parent.job]}, cluster_, {parent.mesh}, options, restrictions);
    if (!outcome) return std::nullopt;  // nothing is left to choose
    auto* const result = std::get_if<DpResult>(&*outcome);
    if (result == nullptr) return std::nullopt;
    result->job = parent.job;
    return std::move(*result);
  }

  const std::vector<DpJob>& jobs_;
  const Cluster& cluster_;
  const DpOptions& options_;
  const RestrictionsOf& restrictions_;
  std::vector<Candidate> open_;  ///< not looked at, the cheapest first
};

}  // namespace

Result<std::variant<std::vector<DpResult>, NoPlan>> top_plans(std::size_t count,
                                                              const std::vector<DpJob>& jobs,
                                                              const Cluster& cluster,
                                                              const std::vector<MeshShape>& meshes,
                                                              const DpOptions& options,
                                                              const RestrictionsOf& restrictions) {
  using Top = std::variant<std::vector<DpResult>, NoPlan>;
  DpOptions several = options;
  several.results = count > 1 ? 2 * count : 1;  // meshes that differ may be of one kind
  auto outcome = dp_search(jobs, cluster, meshes, several, restrictions);
  if (!outcome) return fail(outcome.error());
  if (auto* const none = std::get_if<NoPlan>(&*outcome)) return Top(std::move(*none));
  DpResult& best = std::get<DpResult>(*outcome);
  std::vector<DpResult> results;
  if (count <= 1) {
    results.push_back(std::move(best));
    return Top(std::move(results));
  }
  const double bound = best.lower_bound;
  const bool stopped = best.stopped;
  results = TopSearch(jobs, cluster, options, restrictions).run(count, std::move(best));
  DpResult& first = results.front();
  first.lower_bound = std::min(bound, first.evaluation.objective.value);
  first.stopped = stopped;
  first.optimal = !stopped && first.lower_bound >= first.evaluation.objective.value;
  for (std::size_t i = 1; i < results.size(); ++i) results[i].optimal = false;
  return Top(std::move(results));
}

}  // namespace meshplan

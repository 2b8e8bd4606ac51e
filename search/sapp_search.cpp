// SPDX-License-Identifier: Apache-2.0
// SAPP, symbolic recursive partitioning of the devices.
//
// Problem: exact search looks at every mesh, and on each at every combination of what the axes do.
// A good plan is wanted long before that, and for graphs that are too large for it.
//
// Idea: divide the devices step by step, the outermost links first. Each round divides by one prime
// factor of the device count and decides for every operator which of its dimensions this axis cuts,
// or none, at the true price (the same PriceBook as of the exact search) of a mesh of the rounds so
// far, on the shapes that they left. A round may open a new axis, anywhere among the axes so far,
// or lengthen one: rounds that most operators use alike so become one axis, and a plan has three
// axes at most. What of an axis does not divide an operator's dimension is free to cut another one.
// All other axes are kept as they are, so a round is a problem of a handful of states per tensor:
// solved exactly by elimination, or (kGreedy) by one operator after another, the heavy ones first.
//
// Rounds are short-sighted: the first one divides the whole model as if two devices were all. So in
// the end every axis is chosen anew with the others fixed, prime factors move from axis to axis and
// axes are swapped, as long as the plan gets cheaper.
//
// What makes it fast: operators that decide nothing follow others (simplify.h), equal layers are
// treated once (short_graph.h), and prices are looked up of the few states that can occur.
//
// Memory: where the plan needs more than there is, the rounds are run again with a price per byte,
// eight times higher each time, until a plan fits; then a few times in between. What all of them
// chose on a mesh are the choices of one last exact search within the limit (memory_search.h).
//
// What it cannot do: prove anything. Ours differs from MindSpore's: it prices memory instead of
// cutting fewer model dimensions, has rounds for any device count, and uses the devices that an
// operator cannot.
#include "search/sapp_search.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <set>
#include <span>
#include <tuple>
#include <utility>

#include "lib/check.h"
#include "search/in_parallel.h"
#include "search/short_graph.h"
#include "search/simplify.h"

namespace meshplan {
namespace {

constexpr int kMostSteps = 40;     ///< of improving a partition
constexpr int kMostPrices = 12;    ///< of memory, before bytes alone count
constexpr int kPricesBetween = 2;  ///< between the last that did not fit and the first that did

using Sizes = std::vector<std::int64_t>;

/// A plan of the short graph on the rounds so far.
struct Partition {
  Sizes shape;
  Assignment assignment;
  Seconds objective;
  double priced = 0;  ///< with the memory at its price
  Bytes peak = 0;
  int peak_moment = 0;
};

/// Prime factors, the largest first.
Sizes primes_of(std::int64_t number) {
  Sizes primes;
  for (std::int64_t p = 2; p * p <= number; ++p) {
    for (; number % p == 0; number /= p) primes.push_back(p);
  }
  if (number > 1) primes.push_back(number);
  std::reverse(primes.begin(), primes.end());
  return primes;
}

MeshShape mesh_of(const Sizes& shape) {
  MeshShape mesh{shape, {}};
  for (std::size_t axis = 0; axis < shape.size(); ++axis)
    mesh.axes.push_back("d" + std::to_string(axis));
  return mesh;
}

/// Equal for values of equal actions on all axes but one.
Strategy with_action(Strategy strategy, std::size_t axis, std::uint8_t action) {
  strategy.actions[axis] = action;
  return strategy;
}

/// SAPP for one job.
class Partitioning {
 public:
  Partitioning(const DpJob& job,
               const Cluster& cluster,
               const SappOptions& options,
               const RestrictionsOf& restrictions,
               SappReport& report)
      : graph_(*job.graph),
        cluster_(cluster),
        options_(options),
        prices_(options.search.prices),
        restrictions_(restrictions),
        report_(report) {
    prices_.microbatches = job.microbatches;
    flow_ = std::make_shared<const DataFlow>(graph_, prices_.recomputation);
  }

  /// The best plan within the limit, or the least memory that a plan was found to need.
  Result<DpOutcome> run() {
    // restrictions name operators and tensors of the whole graph
    if (restrictions_) {
      short_.graph = graph_;
      short_.recomputation = prices_.recomputation;
      short_.weights.assign(graph_.operators.size(), 1);
    } else {
      short_ = shorten(graph_, prices_.recomputation);
    }
    short_prices_ = prices_;
    short_prices_.recomputation = short_.recomputation;
    short_flow_ = short_.shortened
                      ? std::make_shared<const DataFlow>(short_.graph, short_.recomputation)
                      : std::make_shared<const DataFlow>(short_.graph, prices_.recomputation);
    eliminated_ = simplify(short_.graph, *short_flow_);
    report_.operators = graph_.operators.size();
    report_.eliminated = eliminated_types(graph_, simplify(graph_, *flow_));
    report_.searched = short_.graph.operators.size() - eliminated_.size();
    report_.rounds = options_.mesh ? options_.mesh->shape : sapp_rounds(cluster_);
    const OperatorInfoCounts counts(short_.graph);
    none_ = counts.none;

    const Bytes limit = options_.search.memory_limit;
    if (auto done = partition({}); !done) return fail(done.error());
    if (partitions_.front().peak > limit) {
      if (auto done = control_memory(limit); !done) return fail(done.error());
    }
    return choose(limit);
  }

 private:
  /// The number of every operator's action "none": the last one.
  struct OperatorInfoCounts {
    explicit OperatorInfoCounts(const Graph& graph) {
      std::map<const Rule*, std::uint8_t> known;
      for (const Operator& op : graph.operators) {
        const auto [found, is_new] = known.try_emplace(op.rule.get(), std::uint8_t{0});
        if (is_new)
          found->second =
              static_cast<std::uint8_t>(OperatorInfo(op.rule, {1}).actions().size() - 1);
        none.push_back(found->second);
      }
    }
    std::vector<std::uint8_t> none;
  };

  bool stopped() const { return options_.search.stop && options_.search.stop(); }

  Partition empty_partition() const {
    Partition made;
    for (const std::uint8_t none : none_) {
      Strategy strategy;
      strategy.actions.fill(none);
      made.assignment.strategies.push_back(strategy);
    }
    made.assignment.values.resize(short_flow_->values().size());
    return made;
  }

  /// A partition with one more axis that cuts nothing, before axis `at`.
  Partition with_axis(Partition made, std::size_t at, std::int64_t size) const {
    made.shape.insert(made.shape.begin() + static_cast<std::ptrdiff_t>(at), size);
    for (std::size_t i = 0; i < none_.size(); ++i) {
      auto& actions = made.assignment.strategies[i].actions;
      std::copy_backward(
          actions.begin() + static_cast<std::ptrdiff_t>(at), actions.end() - 1, actions.end());
      actions[at] = none_[i];
    }
    for (TensorState& value : made.assignment.values) {
      std::copy_backward(value.axes.begin() + static_cast<std::ptrdiff_t>(at),
                         value.axes.end() - 1,
                         value.axes.end());
      value.axes[at] = kReplicatedState;
    }
    for (ParameterChoice& choice : made.assignment.parameters) {
      std::copy_backward(
          choice.begin() + static_cast<std::ptrdiff_t>(at), choice.end() - 1, choice.end());
      choice[at] = ParameterAction::kNone;
    }
    return made;
  }

  Partition without_axis(Partition made, std::size_t at) const {
    made.shape.erase(made.shape.begin() + static_cast<std::ptrdiff_t>(at));
    for (std::size_t i = 0; i < none_.size(); ++i) {
      auto& actions = made.assignment.strategies[i].actions;
      std::copy(actions.begin() + static_cast<std::ptrdiff_t>(at) + 1,
                actions.end(),
                actions.begin() + static_cast<std::ptrdiff_t>(at));
      actions.back() = none_[i];
    }
    for (TensorState& value : made.assignment.values) {
      std::copy(value.axes.begin() + static_cast<std::ptrdiff_t>(at) + 1,
                value.axes.end(),
                value.axes.begin() + static_cast<std::ptrdiff_t>(at));
      value.axes.back() = kReplicatedState;
    }
    for (ParameterChoice& choice : made.assignment.parameters) {
      std::copy(choice.begin() + static_cast<std::ptrdiff_t>(at) + 1,
                choice.end(),
                choice.begin() + static_cast<std::ptrdiff_t>(at));
      choice.back() = ParameterAction::kNone;
    }
    return made;
  }

  static Partition with_axes_swapped(Partition made, std::size_t a, std::size_t b) {
    std::swap(made.shape[a], made.shape[b]);
    for (Strategy& strategy : made.assignment.strategies)
      std::swap(strategy.actions[a], strategy.actions[b]);
    for (TensorState& value : made.assignment.values) std::swap(value.axes[a], value.axes[b]);
    for (ParameterChoice& choice : made.assignment.parameters) std::swap(choice[a], choice[b]);
    return made;
  }

  /// What a one-axis problem leaves to choose.
  struct Choices {
    std::vector<const std::vector<Strategy>*> strategies;  ///< per operator
    std::map<std::pair<const OperatorInfo*, Strategy>, std::vector<Strategy>> lists;
    std::map<std::pair<OperatorId, Strategy>, std::vector<Strategy>>
        own_lists;  ///< of restricted operators
    std::map<TensorId, std::set<TensorState>> values;
  };

  /// Every operator with one axis free, the others as they are; where that leaves nothing (or only
  /// what the user forbids), everything.
  Choices choices_of(PriceBook& book,
                     const Partition& from,
                     std::size_t axis,
                     const Restrictions& user) const {
    Choices made;
    const Graph& graph = book.graph();
    for (std::size_t i = 0; i < graph.operators.size(); ++i) {
      const auto id = static_cast<OperatorId>(i);
      const OperatorInfo& info = book.info(id);
      const Strategy base = with_action(from.assignment.strategies[i], axis, none_[i]);
      auto [found, is_new] = made.lists.try_emplace({&info, base});
      std::vector<Strategy>& list = found->second;
      if (is_new) {
        for (int action = 0; action <= none_[i]; ++action) {
          const Strategy strategy = with_action(base, axis, static_cast<std::uint8_t>(action));
          if (info.legal(strategy)) list.push_back(strategy);
        }
        if (list.empty()) list = info.strategies();
      }
      made.strategies.push_back(&list);
      if (!user.strategy) continue;
      std::vector<Strategy> allowed;
      const auto keep = [&](const std::vector<Strategy>& all) {
        for (const Strategy& strategy : all) {
          if (user.strategy(id, strategy)) allowed.push_back(strategy);
        }
      };
      keep(list);
      if (allowed.empty()) keep(info.strategies());
      if (allowed.size() == list.size()) continue;
      made.strategies.back() = &(made.own_lists[{id, base}] = std::move(allowed));
    }
    const std::vector<Value>& values = book.flow().values();
    for (std::size_t v = 0; v < values.size(); ++v) {
      if (values[v].kind == ValueKind::kResult) continue;
      const TensorId tensor = values[v].tensor;
      const Tensor& t = graph.tensor(tensor);
      std::set<TensorState>& states = made.values[tensor];
      const auto offer = [&](const TensorState& state) {
        if (values[v].kind != ValueKind::kCopy && state.has_partial()) return;
        if (divides(t.divisible(), state, book.mesh_shape()) &&
            (!user.value || user.value(tensor, state)))
          states.insert(state);
      };
      TensorState state = from.assignment.values[v];
      for (std::size_t d = 0; d < t.shape.size(); ++d) {
        state.axes[axis] = static_cast<AxisState>(d);
        if (book.mesh_shape()[axis] > 1) offer(state);
      }
      state.axes[axis] = kReplicatedState;
      offer(state);
      if (book.mesh_shape()[axis] > 1) {
        state.axes[axis] = kPartialState;
        offer(state);
        state.axes[axis] = kGradientPartialState;
        if (t.has_gradient) offer(state);
      }
      if (states.empty()) {
        for (const TensorState& any : all_states(t.divisible(),
                                                 book.mesh_shape(),
                                                 t.has_gradient,
                                                 values[v].kind == ValueKind::kCopy))
          offer(any);
      }
    }
    return made;
  }

  /// States that can occur: tables of prices have no others.
  static void keep_states(PriceBook& book,
                          const std::vector<const std::vector<Strategy>*>& strategies,
                          const std::map<TensorId, std::set<TensorState>>& values) {
    const Graph& graph = book.graph();
    std::map<std::tuple<const OperatorInfo*, const std::vector<Strategy>*, std::size_t, bool>,
             std::vector<TensorState>>
        known;  // operands count from 0, results from the end
    for (std::size_t i = 0; i < graph.operators.size(); ++i) {
      const auto id = static_cast<OperatorId>(i);
      const Operator& op = graph.op(id);
      const auto keep = [&](TensorId tensor, std::size_t place, const auto& state_of) {
        auto [found, is_new] = known.try_emplace(
            {&book.info(id), strategies[i], place, graph.tensor(tensor).has_gradient});
        if (is_new) {
          std::set<TensorState> states;
          for (const Strategy& strategy : *strategies[i]) states.insert(state_of(strategy));
          found->second.assign(states.begin(), states.end());
        }
        book.keep_states(tensor, found->second);
      };
      for (std::size_t k = 0; k < op.inputs.size(); ++k) {
        if (op.inputs[k])
          keep(*op.inputs[k], k, [&](const Strategy& s) { return book.operand_state(id, s, k); });
      }
      for (std::size_t r = 0; r < op.outputs.size(); ++r)
        keep(op.outputs[r], std::numeric_limits<std::size_t>::max() - r, [&](const Strategy& s) {
          return book.result_state(id, s, r);
        });
    }
    for (const auto& [tensor, states] : values)
      book.keep_states(tensor, std::vector<TensorState>(states.begin(), states.end()));
  }

  static Restrictions restrictions_to(const std::vector<const std::vector<Strategy>*>& strategies,
                                      const std::map<TensorId, std::set<TensorState>>& values,
                                      const Restrictions& user) {
    Restrictions allowed;
    allowed.among = [&strategies](OperatorId id) -> const std::vector<Strategy>& {
      return *strategies[index(id)];
    };
    allowed.value = [&values](TensorId tensor, const TensorState& state) {
      return values.at(tensor).contains(state);
    };
    allowed.parameter = user.parameter;
    return allowed;
  }

  Result<Restrictions> user_restrictions(PriceBook& book, const MeshShape& mesh) const {
    if (!restrictions_ || book.cluster().devices() != cluster_.devices()) return Restrictions{};
    return restrictions_(book, mesh);
  }

  MeshShape named(const Sizes& shape) const {
    return options_.mesh ? *options_.mesh : mesh_of(shape);
  }

  /// The partition with one axis chosen anew and the others as they are; nullopt: there is none.
  Result<std::optional<Partition>> choose_axis(const Cluster& cluster,
                                               const Partition& from,
                                               std::size_t axis,
                                               const MemoryPrices& prices) const {
    auto book = PriceBook::make(short_.graph, cluster, from.shape, short_prices_, short_flow_);
    if (!book) return fail(book.error());
    auto user = user_restrictions(**book, named(from.shape));
    if (!user) return fail(user.error());
    const Choices choices = choices_of(**book, from, axis, *user);
    keep_states(**book, choices.strategies, choices.values);
    Restrictions allowed = restrictions_to(choices.strategies, choices.values, *user);
    if (!from.assignment.parameters.empty()) {
      // along the other axes a parameter rests as it did, or whole
      allowed.parameter =
          [&](TensorId tensor, const TensorState& state, const ParameterChoice& choice) {
            const ParameterChoice& before = from.assignment.parameters[index(tensor)];
            bool is_same = true;
            bool is_whole = true;
            for (std::size_t other = 0; other < choice.size(); ++other) {
              if (other == axis) continue;
              is_same = is_same && choice[other] == before[other];
              is_whole = is_whole && choice[other] == ParameterAction::kNone;
            }
            return (is_same || is_whole || user->parameter) &&
                   (!user->parameter || user->parameter(tensor, state, choice));
          };
    }
    auto problem = PlanProblem::make(**book, allowed);
    if (!problem) return fail(problem.error());
    const std::vector<Follower> followers = followers_in(**problem, eliminated_);
    (*problem)->follow(followers);
    (*problem)->weigh(short_.weights);
    const PlanProblem::Solution solution =
        options_.rounds == SappRounds::kGreedy
            ? (*problem)->descend(prices, sort_by_weight(**problem, short_.weights, followers))
            : (*problem)->solve(prices);
    if (!solution.feasible) return std::optional<Partition>();
    const Decision decision = (*problem)->decide(solution.choice, prices);
    const PlanProblem::Measured measured = (*problem)->measure(decision);
    Partition made{from.shape,
                   (*problem)->assignment(decision),
                   measured.objective,
                   0,
                   measured.peak,
                   measured.peak_moment};
    made.priced = prices.memory_only ? 0 : measured.objective.value;
    for (const auto& [moment, price] : prices.at)
      made.priced +=
          price * static_cast<double>(measured.profile[static_cast<std::size_t>(moment)]);
    return std::optional<Partition>(std::move(made));
  }

  /// One thing to try: a partition, and its axes to be chosen anew, one after another.
  struct Trial {
    Partition from;
    std::vector<std::size_t> axes;
  };

  /// The cheapest of all trials, the first of equal ones; nullopt: there is none.
  Result<std::optional<Partition>> best_of(const Cluster& cluster,
                                           const std::vector<Trial>& trials,
                                           const MemoryPrices& prices) {
    std::vector<std::optional<Partition>> found(trials.size());
    std::vector<std::optional<Error>> errors(trials.size());
    in_parallel(trials.size(), options_.search.threads, [&](std::size_t i) {
      Partition now = trials[i].from;
      for (const std::size_t axis : trials[i].axes) {
        auto made = choose_axis(cluster, now, axis, prices);
        if (!made) {
          errors[i] = made.error();
          return;
        }
        if (!*made) return;
        now = std::move(**made);
      }
      found[i] = std::move(now);
    });
    std::optional<Partition> best;
    for (std::size_t i = 0; i < trials.size(); ++i) {
      report_.solves += static_cast<int>(trials[i].axes.size());
      if (found[i] && (!best || found[i]->priced < best->priced)) best = std::move(found[i]);
    }
    if (!best) {
      for (const auto& error : errors) {
        if (error) return fail(*error);
      }
    }
    return best;
  }

  /// Runs all rounds at these prices and improves what comes out; joins partitions_.
  Result<void> partition(const MemoryPrices& prices) {
    ++report_.partitions;
    Partition now = empty_partition();
    if (options_.mesh) {
      now.shape = options_.mesh->shape;
      for (std::size_t axis = 0; axis < now.shape.size(); ++axis) {
        auto best = best_of(cluster_, {{now, {axis}}}, prices);
        if (!best) return fail(best.error());
        if (!*best) return no_plan();
        now = std::move(**best);
      }
    } else {
      std::int64_t divided = 1;
      for (const std::int64_t prime : report_.rounds) {
        divided *= prime;
        std::vector<Trial> trials;
        for (std::size_t axis = 0; axis < now.shape.size(); ++axis) {
          trials.push_back({now, {axis}});
          trials.back().from.shape[axis] *= prime;
        }
        if (now.shape.size() < static_cast<std::size_t>(kMostSearchedAxes)) {
          for (std::size_t at = 0; at <= now.shape.size(); ++at)
            trials.push_back({with_axis(now, at, prime), {at}});
        }
        auto best = best_of(outer_part(cluster_, divided), trials, prices);
        if (!best) return fail(best.error());
        if (!*best) return no_plan();
        now = std::move(**best);
      }
      if (now.shape.empty()) {  // one device
        auto best = best_of(cluster_, {{with_axis(now, 0, 1), {0}}}, prices);
        if (!best) return fail(best.error());
        if (!*best) return no_plan();
        now = std::move(**best);
      }
    }
    if (restrictions_) {  // they hold on the whole mesh, so the rounds knew nothing of them
      std::vector<std::size_t> axes(now.shape.size());
      std::iota(axes.begin(), axes.end(), std::size_t{0});
      auto best = best_of(cluster_, {{now, std::move(axes)}}, prices);
      if (!best) return fail(best.error());
      if (!*best) return no_plan();
      now = std::move(**best);
    }
    return improve(std::move(now), prices);
  }

  /// How partitions are changed to make them cheaper, the cheap ways first.
  enum class Change : std::uint8_t { kAxis, kOrder, kSize };

  Result<void> improve(Partition now, const MemoryPrices& prices, Change last = Change::kSize) {
    if (options_.first_answer) last = Change::kAxis;
    int steps = 0;
    for (int change = 0; change <= static_cast<int>(last) && steps < kMostSteps && !stopped();
         ++steps) {
      auto best = best_of(cluster_, neighbours(now, static_cast<Change>(change)), prices);
      if (!best) return fail(best.error());
      const bool is_better =
          *best && ((*best)->priced < now.priced ||
                    ((*best)->priced == now.priced && (*best)->shape.size() < now.shape.size()));
      change = is_better ? 0 : change + 1;
      if (is_better) now = std::move(**best);
    }
    partitions_.push_back(std::move(now));
    return {};
  }

  /// All partitions a change away.
  std::vector<Trial> neighbours(const Partition& now, Change change) const {
    std::vector<Trial> trials;
    const std::size_t axes = now.shape.size();
    if (change == Change::kAxis) {
      for (std::size_t axis = 0; axis < axes; ++axis) trials.push_back({now, {axis}});
      return trials;
    }
    if (options_.mesh) return trials;
    if (change == Change::kOrder) {
      for (std::size_t a = 0; a + 1 < axes; ++a) {
        for (std::size_t b = a + 1; b < axes; ++b)
          trials.push_back({with_axes_swapped(now, a, b), {a, b}});
      }
      return trials;
    }
    for (std::size_t a = 0; a < axes; ++a) {  // two axes become one
      for (std::size_t b = 0; b < axes; ++b) {
        if (a == b) continue;
        Partition merged = now;
        merged.shape[a] *= merged.shape[b];
        trials.push_back({without_axis(std::move(merged), b), {b < a ? a - 1 : a}});
      }
    }
    for (std::size_t from = 0; from < axes; ++from) {
      Sizes primes = primes_of(now.shape[from]);
      primes.erase(std::unique(primes.begin(), primes.end()), primes.end());
      for (const std::int64_t prime : primes) {
        const bool whole = now.shape[from] == prime;
        if (whole && axes > 1) continue;  // that merges two axes
        Partition less = now;
        less.shape[from] /= prime;
        for (std::size_t to = 0; to < axes; ++to) {
          if (to == from) continue;
          Partition moved = less;
          moved.shape[to] *= prime;
          trials.push_back({std::move(moved), {to, from}});
        }
        if (whole || axes >= static_cast<std::size_t>(kMostSearchedAxes)) continue;
        for (std::size_t at = 0; at <= axes; ++at)
          trials.push_back({with_axis(less, at, prime), {at, from >= at ? from + 1 : from}});
      }
    }
    return trials;
  }

  static Unexpected<Error> no_plan() {
    return fail(ErrorCode::kConflict,
                "",
                "no plan keeps the constraints: what they leave of two neighbouring operators does "
                "not go together");
  }

  /// The last partition with its axes chosen anew at these prices.
  Result<void> repartition(const MemoryPrices& prices, Change last) {
    ++report_.partitions;
    Partition now = partitions_.back();
    now.priced = std::numeric_limits<double>::infinity();
    return improve(std::move(now), prices, last);
  }

  /// Partitions at prices of memory, until one fits.
  Result<void> control_memory(Bytes limit) {
    const auto at_price = [&](double price) {
      MemoryPrices prices;
      prices.at[partitions_.back().peak_moment] = price;
      return prices;
    };
    const auto fits = [&] { return partitions_.back().peak <= limit; };
    // a price at which the memory of all devices is worth a small part of the step
    double price =
        partitions_.front().objective.value / 64 / static_cast<double>(std::max<Bytes>(limit, 1));
    double below = price / 8;
    bool is_anew = false;  // rounds were run at the price that fits
    int tried = 0;
    for (; tried < kMostPrices; ++tried, below = price, price *= 8) {
      is_anew = false;
      if (auto done = repartition(at_price(price), Change::kAxis); !done) return done;
      if (fits()) break;
      if (tried % 2 == 0) continue;
      is_anew = true;  // no choice on that mesh may fit
      if (auto done = partition(at_price(price)); !done) return done;
      if (fits()) break;
    }
    if (tried == kMostPrices) {  // bytes alone, at the moments where they are missing
      for (int i = 0; i <= kPricesBetween && !fits(); ++i) {
        MemoryPrices bytes = at_price(1);
        bytes.memory_only = true;
        if (auto done = i == 0 ? partition(bytes) : repartition(bytes, Change::kSize); !done)
          return done;
      }
      return {};
    }
    if (stopped() || options_.first_answer) return {};
    if (!is_anew) {
      if (auto done = partition(at_price(price)); !done) return done;
    }
    double above = price;
    for (int i = 0; i < kPricesBetween && !stopped(); ++i) {
      const double between = std::sqrt(below * above);
      if (auto done = repartition(at_price(between), Change::kSize); !done) return done;
      (fits() ? above : below) = between;
    }
    return {};
  }

  /// The whole graph's assignment of a partition.
  Result<Assignment> whole(const Partition& partition, PriceBook& book) const {
    if (!short_.shortened) return partition.assignment;
    auto short_book =
        PriceBook::make(short_.graph, cluster_, partition.shape, short_prices_, short_flow_);
    if (!short_book) return fail(short_book.error());
    return expanded(short_, book, **short_book, partition.assignment);
  }

  Result<std::unique_ptr<PriceBook>> whole_book(const Sizes& shape) const {
    return PriceBook::make(graph_, cluster_, shape, prices_, flow_);
  }

  Result<DpOutcome> choose(Bytes limit) {
    std::optional<DpResult> best;
    std::optional<NoPlan> least;
    const auto offer = [&](DpResult found) {
      const Evaluation& evaluation = found.evaluation;
      if (evaluation.peak > limit) {
        if (!least || evaluation.peak < least->least_peak)
          least = NoPlan{0,
                         evaluation.peak,
                         moment_name(graph_, *flow_, evaluation.peak_moment),
                         found.mesh,
                         false};
        return;
      }
      if (!best || evaluation.objective < best->evaluation.objective) best = std::move(found);
    };
    // of equal meshes, all that was chosen at any price
    std::map<Sizes, std::vector<Assignment>> chosen;
    for (const Partition& partition : partitions_) {
      auto book = whole_book(partition.shape);
      if (!book) return fail(book.error());
      auto assignment = whole(partition, **book);
      if (!assignment) return fail(assignment.error());
      chosen[partition.shape].push_back(*assignment);
      DpResult found;
      found.mesh = named(partition.shape);
      found.evaluation = evaluate(**book, *assignment);
      found.book = std::move(*book);
      found.assignment = std::move(*assignment);
      offer(std::move(found));
    }
    if (partitions_.size() > 1 && !(best && options_.first_answer)) {
      for (const auto& [shape, assignments] : chosen) {
        auto found = join(shape,
                          assignments,
                          limit,
                          best ? std::optional(best->evaluation.objective) : std::nullopt);
        if (!found) return fail(found.error());
        if (*found) offer(std::move(**found));
      }
    }
    if (!best) return DpOutcome(*least);
    best->found_by = "sapp";
    best->stopped = stopped();
    return DpOutcome(std::move(*best));
  }

  /// The best plan within the limit of what the assignments of one mesh chose.
  Result<std::optional<DpResult>> join(const Sizes& shape,
                                       const std::vector<Assignment>& assignments,
                                       Bytes limit,
                                       std::optional<Seconds> to_beat) const {
    auto book = whole_book(shape);
    if (!book) return fail(book.error());
    auto user = user_restrictions(**book, named(shape));
    if (!user) return fail(user.error());
    std::set<std::vector<Strategy>> lists;
    std::vector<const std::vector<Strategy>*> strategies;
    for (std::size_t i = 0; i < graph_.operators.size(); ++i) {
      std::vector<Strategy> list;
      for (const Assignment& assignment : assignments) list.push_back(assignment.strategies[i]);
      std::sort(list.begin(), list.end());
      list.erase(std::unique(list.begin(), list.end()), list.end());
      strategies.push_back(&*lists.insert(std::move(list)).first);
    }
    std::map<TensorId, std::set<TensorState>> values;
    for (std::size_t v = 0; v < flow_->values().size(); ++v) {
      const Value& value = flow_->values()[v];
      if (value.kind == ValueKind::kResult) continue;
      for (const Assignment& assignment : assignments)
        values[value.tensor].insert(assignment.values[v]);
    }
    keep_states(**book, strategies, values);
    auto problem = PlanProblem::make(**book, restrictions_to(strategies, values, *user));
    if (!problem) return fail(problem.error());
    MemorySearch search(**problem, limit);
    std::optional<Incumbent> incumbent;
    if (to_beat) incumbent = Incumbent{*to_beat, {}};
    const MemorySearchResult result = search.run(incumbent, options_.search.stop);
    if (!result.decision) return std::optional<DpResult>();
    DpResult found;
    found.mesh = named(shape);
    found.assignment = (*problem)->assignment(*result.decision);
    problem->reset();
    auto plain = whole_book(shape);
    if (!plain) return fail(plain.error());
    found.book = std::move(*plain);
    found.evaluation = evaluate(*found.book, found.assignment);
    MESHPLAN_CHECK(found.evaluation.objective == result.objective);
    return std::optional<DpResult>(std::move(found));
  }

  const Graph& graph_;
  const Cluster& cluster_;
  const SappOptions& options_;
  PriceOptions prices_;
  const RestrictionsOf& restrictions_;
  SappReport& report_;
  std::shared_ptr<const DataFlow> flow_;
  ShortGraph short_;
  PriceOptions short_prices_;
  std::shared_ptr<const DataFlow> short_flow_;
  std::vector<EliminatedOperator> eliminated_;
  std::vector<std::uint8_t> none_;  ///< per operator of the short graph: the action "none"
  std::vector<Partition> partitions_;
};

}  // namespace

std::vector<std::int64_t> sapp_rounds(const Cluster& cluster) {
  Sizes rounds;
  for (auto level = cluster.levels.rbegin(); level != cluster.levels.rend(); ++level) {
    const Sizes primes = primes_of(level->size);
    rounds.insert(rounds.end(), primes.begin(), primes.end());
  }
  return rounds;
}

Cluster outer_part(const Cluster& cluster, std::int64_t devices) {
  Cluster made = cluster;
  for (std::size_t l = made.levels.size(); l-- > 0;) {
    Level& level = made.levels[l];
    const std::int64_t whole = level.size;
    level.size = std::gcd(whole, devices);
    devices /= level.size;
    if (level.wiring == Wiring::kFullyConnected && level.size > 1 && level.size < whole)
      level.bandwidth *= static_cast<double>(level.size - 1) / static_cast<double>(whole - 1);
  }
  MESHPLAN_CHECK(devices == 1);
  return made;
}

std::vector<int> sort_by_weight(const PlanProblem& problem,
                                const std::vector<std::int64_t>& weights,
                                const std::vector<Follower>& followers) {
  PriceBook& book = problem.book();
  const std::size_t operators = book.graph().operators.size();
  std::vector<int> leader(problem.variables());
  std::iota(leader.begin(), leader.end(), 0);
  for (const Follower& follower : followers)
    leader[static_cast<std::size_t>(follower.variable)] = follower.leader;
  std::vector<double> weight(operators, 0);
  std::vector<int> order;
  for (std::size_t i = 0; i < operators; ++i) {
    const auto id = static_cast<OperatorId>(i);
    Strategy none;
    none.actions.fill(static_cast<std::uint8_t>(book.info(id).actions().size() - 1));
    weight[i] =
        book.shared_operator_price(id, none).objective.value * static_cast<double>(weights[i]);
    if (leader[i] == static_cast<int>(i)) order.push_back(static_cast<int>(i));
  }
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return weight[static_cast<std::size_t>(a)] > weight[static_cast<std::size_t>(b)];
  });
  std::map<int, std::vector<int>> copies;  // of the operator that makes or first reads them
  for (std::size_t v = operators; v < problem.variables(); ++v)
    copies[leader[static_cast<std::size_t>(problem.moment_of(v))]].push_back(static_cast<int>(v));
  std::vector<int> made;
  for (const int op : order) {
    made.push_back(op);
    if (const auto found = copies.find(op); found != copies.end())
      made.insert(made.end(), found->second.begin(), found->second.end());
  }
  return made;
}

Result<SappOutcome> sapp_search(const std::vector<DpJob>& jobs,
                                const Cluster& cluster,
                                const SappOptions& options,
                                const RestrictionsOf& restrictions) {
  std::optional<SappResult> best;
  std::optional<NoPlan> least;
  std::optional<Error> error;
  std::vector<std::size_t> order(jobs.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  // with more micro-batches a plan fits more easily
  if (options.first_answer)
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return jobs[a].microbatches > jobs[b].microbatches;
    });
  for (const std::size_t job : order) {
    if (best && options.first_answer) break;
    if (best && options.search.stop && options.search.stop()) {
      best->found.stopped = true;
      break;
    }
    SappReport report;
    auto outcome = Partitioning(jobs[job], cluster, options, restrictions, report).run();
    if (!outcome) {
      if (!error) error = outcome.error();
      continue;
    }
    if (const NoPlan* none = std::get_if<NoPlan>(&*outcome)) {
      if (!least || none->least_peak < least->least_peak) least = *none;
      continue;
    }
    DpResult& found = std::get<DpResult>(*outcome);
    found.job = job;
    if (!best || found.evaluation.objective < best->found.evaluation.objective)
      best = SappResult{std::move(found), std::move(report)};
  }
  if (!best && !least) return fail(*error);
  if (!best) return SappOutcome(*least);
  if (best->found.evaluation.objective.value > kLongestStep)
    return fail(step_too_long(best->found.evaluation.objective));
  return SappOutcome(std::move(*best));
}

Result<SappOutcome> sapp_search(const Graph& graph,
                                const Cluster& cluster,
                                const SappOptions& options,
                                const RestrictionsOf& restrictions) {
  return sapp_search(
      {{&graph, options.search.prices.microbatches}}, cluster, options, restrictions);
}

}  // namespace meshplan

// SPDX-License-Identifier: Apache-2.0
// Every assignment of a small graph, priced by evaluate() alone: what the search must not beat and
// must not miss. Shares no table with the search.
//
// Strategies and states of copies are combined one by one, each combination evaluated as a whole.
// How a parameter rests and whether a saved operand is gathered again add to objective and memory
// independently of everything but the states around them; their shares are differences of two
// evaluations, and random complete assignments check that the shares do add up.
#pragma once

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "cost_model/evaluate.h"
#include "support/catch.h"
#include "support/random.h"

namespace meshplan::test {

class BruteForce {
 public:
  explicit BruteForce(PriceBook& book) : book_(book), graph_(book.graph()), flow_(book.flow()) {
    for (std::size_t i = 0; i < graph_.operators.size(); ++i)
      strategies_.push_back(legal_strategies(static_cast<OperatorId>(i)));
    for (const Value& value : flow_.values()) {
      states_.push_back(value.kind == ValueKind::kResult ? std::vector<TensorState>{TensorState()}
                                                         : legal_states(value));
    }
  }

  /// Combinations of strategies and states.
  double combinations() const {
    double product = 1;
    for (const auto& list : strategies_) product *= static_cast<double>(list.size());
    for (const auto& list : states_) product *= static_cast<double>(list.size());
    return product;
  }

  /// Goes through all assignments. Gives up (false) when there are more than `most`.
  bool run(double most, std::uint64_t seed) {
    Random random(seed);
    std::vector<std::size_t> at(strategies_.size() + states_.size(), 0);
    auto list_size = [&](std::size_t k) {
      return k < strategies_.size() ? strategies_[k].size()
                                    : states_[k - strategies_.size()].size();
    };
    for (std::size_t k = 0; k < at.size(); ++k) {
      if (list_size(k) == 0) return true;
    }
    while (true) {
      Assignment assignment;
      for (std::size_t i = 0; i < strategies_.size(); ++i)
        assignment.strategies.push_back(strategies_[i][at[i]]);
      for (std::size_t v = 0; v < states_.size(); ++v)
        assignment.values.push_back(states_[v][at[strategies_.size() + v]]);
      assignment.gathered.resize(flow_.transfers().size());
      assignment.parameters.resize(graph_.tensors.size());
      if (!add(assignment, most, random)) return false;
      std::size_t k = 0;
      while (k < at.size() && ++at[k] == list_size(k)) at[k++] = 0;
      if (k == at.size()) return true;
    }
  }

  double visited() const { return visited_; }
  /// The least objective; needs at least one assignment.
  double least() const { return frontier_.rbegin()->second; }
  /// The least objective of all assignments that fit; nullopt: none does.
  std::optional<double> least_within(Bytes limit) const {
    auto after = frontier_.upper_bound(limit);
    if (after == frontier_.begin()) return std::nullopt;
    return std::prev(after)->second;
  }
  /// Peak -> least objective, of all that are best in one or the other.
  const std::map<Bytes, double>& frontier() const { return frontier_; }

  /// Every state that divides, written down anew.
  std::vector<TensorState> every_state(TensorId tensor, bool partial) const {
    const Tensor& t = graph_.tensor(tensor);
    std::vector<TensorState> list = {TensorState()};
    for (int axis = 0; axis < book_.mesh_axes(); ++axis) {
      if (book_.mesh_shape()[static_cast<std::size_t>(axis)] == 1) continue;
      std::vector<TensorState> longer;
      for (const TensorState& state : list) {
        for (int code = 0; code <= kPartialState; ++code) {
          if (code < kReplicatedState && static_cast<std::size_t>(code) >= t.shape.size()) continue;
          if (code == kGradientPartialState && !t.has_gradient) continue;
          if (code == kPartialState && !partial) continue;
          longer.push_back(state);
          longer.back()[axis] = static_cast<AxisState>(code);
        }
      }
      list = std::move(longer);
    }
    std::erase_if(list, [&](const TensorState& state) {
      for (std::size_t d = 0; d < t.shape.size(); ++d) {
        std::int64_t pieces = 1;
        for (int axis = 0; axis < book_.mesh_axes(); ++axis) {
          if (state[axis] == d) pieces *= book_.mesh_shape()[static_cast<std::size_t>(axis)];
        }
        if (t.shape[d] % pieces != 0) return true;
      }
      return false;
    });
    return list;
  }

 private:
  struct Share {
    double objective = 0;
    std::vector<Bytes> profile;
  };
  using Shares = std::vector<Share>;  ///< of the alternatives, the default (all zero) first

  std::vector<Strategy> legal_strategies(OperatorId id) {
    std::vector<Strategy> list;
    const Operator& op = graph_.op(id);
    for (const Strategy& strategy : book_.info(id).strategies()) {
      bool legal = true;
      for (std::size_t i = 0; i < op.inputs.size(); ++i) {
        if (!op.inputs[i]) continue;
        // what no operator makes is never Partial; a maximum does not pass through a linear
        // operator
        const Tensor& tensor = graph_.tensor(*op.inputs[i]);
        const bool sums =
            tensor.producer && book_.info(*tensor.producer).result_reduction() == Reduction::kSum;
        if (book_.operand_state(id, strategy, i).has_partial() && !sums) legal = false;
      }
      if (legal) list.push_back(strategy);
    }
    return list;
  }

  std::vector<TensorState> legal_states(const Value& value) const {
    return every_state(value.tensor, value.kind == ValueKind::kCopy);
  }

  std::vector<ParameterChoice> legal_choices(TensorId id, const TensorState& state) {
    const Tensor& tensor = graph_.tensor(id);
    std::vector<ParameterChoice> list = {ParameterChoice{}};
    for (int axis = 0; axis < book_.mesh_axes(); ++axis) {
      if (is_sharded(state[axis]) || book_.mesh_shape()[static_cast<std::size_t>(axis)] == 1)
        continue;
      std::vector<ParameterChoice> longer;
      for (const ParameterChoice& choice : list) {
        for (const ParameterAction action : {ParameterAction::kNone,
                                             ParameterAction::kState,
                                             ParameterAction::kGradient,
                                             ParameterAction::kAll}) {
          const bool of_gradient =
              action == ParameterAction::kState || action == ParameterAction::kGradient;
          if (of_gradient && !tensor.has_gradient) continue;
          if (action == ParameterAction::kGradient && state[axis] != kGradientPartialState)
            continue;
          longer.push_back(choice);
          longer.back()[static_cast<std::size_t>(axis)] = action;
        }
      }
      list = std::move(longer);
    }
    std::erase_if(list, [&](const ParameterChoice& choice) {
      return !book_.parameter_price(id, state, choice, true).has_value();
    });
    return list;
  }

  Share difference(const Assignment& changed, const Evaluation& base) {
    const Evaluation other = evaluate(book_, changed);
    Share share{(other.objective - base.objective).value, other.profile};
    for (std::size_t m = 0; m < share.profile.size(); ++m) share.profile[m] -= base.profile[m];
    return share;
  }

  bool add(Assignment& assignment, double most, Random& random) {
    const Evaluation base = evaluate(book_, assignment);
    std::vector<const Shares*> shares;
    std::vector<std::size_t> choosers;  // parameters, then transfers
    std::vector<std::vector<ParameterChoice>> choices;
    for (std::size_t t = 0; t < graph_.tensors.size(); ++t) {
      const auto id = static_cast<TensorId>(t);
      if (graph_.tensors[t].role != Role::kParameter || graph_.tensors[t].uses.empty()) continue;
      const TensorState state = parameter_state(book_, assignment, id);
      choices.push_back(legal_choices(id, state));
      Shares& known = parameter_shares_[{t, state}];
      if (known.empty()) {
        for (const ParameterChoice& choice : choices.back()) {
          Assignment changed = assignment;
          changed.parameters[t] = choice;
          known.push_back(difference(changed, base));
        }
      }
      shares.push_back(&known);
      choosers.push_back(t);
    }
    const std::size_t parameters = shares.size();
    for (std::size_t t = 0; t < flow_.transfers().size(); ++t) {
      const Transfer& transfer = flow_.transfers()[t];
      const TensorState from = value_state(book_, assignment, transfer.from);
      const TensorState to = far_state(book_, assignment, transfer);
      if (!transfer.saves || transfer.again ||
          book_.forward_steps(
              flow_.values()[static_cast<std::size_t>(transfer.from)].tensor, from, to) == nullptr)
        continue;
      Shares& known = gather_shares_[{t, {from, to}}];
      if (known.empty()) {
        known.push_back({0, std::vector<Bytes>(base.profile.size(), 0)});
        Assignment changed = assignment;
        changed.gathered[t] = 1;
        known.push_back(difference(changed, base));
      }
      shares.push_back(&known);
      choosers.push_back(t);
    }
    double count = 1;
    for (const Shares* list : shares) count *= static_cast<double>(list->size());
    visited_ += count;
    if (visited_ > most) return false;
    // all alternatives
    std::vector<std::size_t> at(shares.size(), 0);
    const std::size_t checked = random.chance(3) ? random.below(static_cast<std::size_t>(count))
                                                 : static_cast<std::size_t>(-1);
    for (std::size_t number = 0;; ++number) {
      double objective = base.objective.value;
      std::vector<Bytes> profile = base.profile;
      for (std::size_t k = 0; k < shares.size(); ++k) {
        const Share& share = (*shares[k])[at[k]];
        objective += share.objective;
        for (std::size_t m = 0; m < profile.size(); ++m) profile[m] += share.profile[m];
      }
      offer(*std::max_element(profile.begin(), profile.end()), objective);
      if (number == checked) {
        Assignment complete = assignment;
        for (std::size_t k = 0; k < shares.size(); ++k) {
          if (k < parameters) {
            complete.parameters[choosers[k]] = choices[k][at[k]];
          } else {
            complete.gathered[choosers[k]] = at[k] == 0 ? 0 : 1;
          }
        }
        const Evaluation whole = evaluate(book_, complete);
        REQUIRE(whole.objective.value == objective);
        REQUIRE(whole.profile == profile);
        REQUIRE(whole.peak == *std::max_element(profile.begin(), profile.end()));
      }
      std::size_t k = 0;
      while (k < at.size() && ++at[k] == shares[k]->size()) at[k++] = 0;
      if (k == at.size()) return true;
    }
  }

  void offer(Bytes peak, double objective) {
    auto after = frontier_.upper_bound(peak);
    if (after != frontier_.begin() && std::prev(after)->second <= objective) return;
    frontier_[peak] = objective;
    auto next = frontier_.upper_bound(peak);
    while (next != frontier_.end() && next->second >= objective) next = frontier_.erase(next);
  }

  PriceBook& book_;
  const Graph& graph_;
  const DataFlow& flow_;
  std::vector<std::vector<Strategy>> strategies_;
  std::vector<std::vector<TensorState>> states_;
  std::map<std::pair<std::size_t, TensorState>, Shares> parameter_shares_;
  std::map<std::pair<std::size_t, std::pair<TensorState, TensorState>>, Shares> gather_shares_;
  std::map<Bytes, double> frontier_;
  double visited_ = 0;
};

}  // namespace meshplan::test

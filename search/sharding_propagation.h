// SPDX-License-Identifier: Apache-2.0
// ShardingPropagation: from the shardings that are given to those that follow.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "search/factor_table.h"

namespace meshplan {

/// Where an axis of a tensor came from: operator `op` took it over from tensor `from`.
struct Derivation {
  std::int32_t op = -1;  ///< -1: given, or not there
  std::int32_t from = -1;
  friend bool operator==(const Derivation&, const Derivation&) = default;
};

/// An axis that two dimensions of one tensor were about to take at once, over these operators.
struct Contest {
  int tensor = -1;
  int axis = -1;
  std::vector<int> operators;  ///< ascending
};

class ShardingPropagation {
 public:
  /// kFree spreads only what no tensor of the operator contradicts; kResolving also where one
  /// does, deciding by size and position.
  enum class Step : std::uint8_t { kFree, kResolving };
  /// Which operators and factors spread, and in which direction; each level adds to those before.
  static constexpr int kLevels = 5;
  static constexpr int kAllLevels = kLevels - 1;

  /// `priorities`: per dimension of all tensors, when its sharding begins to spread (lower numbers
  /// first); empty: all at once. The graph must outlive the propagation.
  ShardingPropagation(const PropagationGraph& graph,
                      Shardings given,
                      std::vector<std::int64_t> priorities = {});

  /// Until nothing changes, operators in their order; what changed is followed at once.
  void to_fixpoint(Step step, int level);
  /// The same with free steps in waves: all operators look at the same state, then what they found
  /// is taken over at once. An axis wanted by two dimensions of a tensor in one wave is contested
  /// and goes to neither, so no order of visits matters.
  void to_fixpoint_in_waves(int level);
  /// Levels 0, 1, ...: free steps, then resolving ones.
  void by_levels();
  /// Every priority in ascending order, for each the levels; without `resolving`, free steps in
  /// waves.
  void run(bool resolving);

  const Shardings& shardings() const { return now_; }
  const Derivation& derivation(std::size_t tensor, std::size_t axis) const {
    return derivations_[tensor * graph_.mesh.size() + axis];
  }
  const std::vector<Contest>& contests() const { return contests_; }

 private:
  struct Change {
    int tensor = -1;
    int op = -1;
    std::vector<AxisList> dims;
    std::vector<Derivation> derivations;  ///< per mesh axis
  };

  int directions(const FactorTable& table, std::size_t factor, bool single_uses, int level) const;
  bool visits(std::size_t op, int level) const;
  /// Projects the operator's tensors into cuts_.
  void load(std::size_t op);
  FactorCut& cut(std::size_t position, std::size_t factor) {
    return cuts_[position * factors_ + factor];
  }
  AxisList compatible(std::size_t op, std::size_t factor, int directions);
  bool may_take(std::size_t op,
                std::size_t position,
                std::size_t factor,
                std::size_t at,
                int axis,
                std::int64_t left);
  void free_step(std::size_t op, int level, std::vector<Change>& changes);
  void resolving_step(std::size_t op, int level, std::vector<Change>& changes);
  void collect(std::size_t op, std::vector<Change>& changes);
  void apply(const Change& change);
  void hide(std::int64_t above);

  const PropagationGraph& graph_;
  Shardings given_;
  std::vector<std::int64_t> priorities_;
  Shardings now_;
  std::vector<Derivation> derivations_;
  std::vector<Contest> contests_;
  std::vector<std::vector<int>> operators_of_;  ///< per tensor, ascending
  std::vector<std::vector<int>> readers_of_;
  std::vector<char> single_uses_;  ///< per operator: no tensor it reads has another reader
  std::vector<char> hidden_;       ///< per dimension: its priority has not come yet
  // of the operator that is looked at
  std::size_t factors_ = 0;
  std::vector<FactorCut> cuts_;
  std::vector<FactorCut> before_;
  std::vector<AxisSet> used_;    ///< per tensor
  std::vector<AxisSet> barred_;  ///< per tensor
};

}  // namespace meshplan

// SPDX-License-Identifier: Apache-2.0
// BlockPlan: exact minimisation over some nodes of a core, all others fixed, by variable
// elimination.
//
// Where the next table would have more than `cap` entries, a node of its scope is frozen at the
// strategy it has (conditioning), so that the plan always fits; the result is then the best over
// the rest. The order of elimination and the layout of all tables depend on the nodes alone, not on
// costs or on the fixed strategies: a plan is made once and run with many prices.
#pragma once

#include <cstdint>
#include <vector>

#include "search/elimination_kernel.h"
#include "search/solver/core.h"

namespace meshplan::solver {

/// Reproducible random numbers (splitmix64), the same on every machine.
class RandomBits {
 public:
  explicit RandomBits(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    state_ += 0x9E3779B97F4A7C15U;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30U)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27U)) * 0x94D049BB133111EBU;
    return z ^ (z >> 31U);
  }
  /// 0 to count - 1.
  int below(int count) {
    return static_cast<int>(next() % static_cast<std::uint64_t>(count < 1 ? 1 : count));
  }
  /// 0 to 1.
  double unit() { return static_cast<double>(next() >> 11U) * 0x1.0p-53; }

 private:
  std::uint64_t state_;
};

/// Memory that plans are made and run in; one per worker.
struct BlockWorkspace {
  std::vector<int> local;      ///< per node of the core: its number in the block, or -1
  std::vector<double> tables;  ///< of the last run
  std::vector<double> own;
};

class BlockPlan {
 public:
  /// `nodes`: distinct. `noise`: 0 for the plain order of smallest tables first, otherwise the
  /// scale of random changes to it.
  BlockPlan(const Core& core,
            const std::vector<int>& nodes,
            double cap,
            double noise,
            RandomBits& random,
            BlockWorkspace& workspace);

  /// Gives the nodes that are not frozen the strategies that are best for the others; on ties a
  /// node keeps its strategy where it can. `theta` has the costs per strategy, memory priced.
  /// Returns the least sum over the nodes, their links and the links to the others.
  double run(const Core& core,
             const std::vector<double>& theta,
             Labels& labels,
             BlockWorkspace& workspace) const;

  /// Table entries that a run visits.
  double work() const { return work_; }
  /// Table entries that making the plan was worth.
  double cost_to_make() const { return made_; }
  bool complete() const { return frozen_ == 0; }
  int frozen() const { return frozen_; }

 private:
  struct Member {
    const double* table = nullptr;  ///< of an edge; otherwise a result, at `offset`
    std::size_t offset = 0;
    std::size_t value_stride = 0;
    std::size_t strides = 0;  ///< where its strides begin in strides_
  };
  struct Step {
    int node = 0;
    std::size_t own = 0;  ///< where its costs begin
    std::size_t out = 0;
    std::size_t scope_begin = 0;
    std::size_t scope_count = 0;
    std::size_t member_begin = 0;
    std::size_t member_count = 0;
    std::size_t outside_begin = 0;
    std::size_t outside_count = 0;
  };
  struct Outside {
    int node = 0;
    const double* columns = nullptr;
  };

  void order_nodes(const Core& core,
                   const std::vector<int>& nodes,
                   double cap,
                   double noise,
                   RandomBits& random,
                   const std::vector<int>& local);
  void lay_out(const Core& core, const std::vector<int>& nodes, const std::vector<int>& local);

  std::vector<int> order_;     ///< numbers in the block
  std::vector<int> position_;  ///< per number in the block: place in order_, -1: frozen
  std::vector<Step> steps_;
  std::vector<int> scope_;  ///< nodes of the core
  std::vector<int> scope_sizes_;
  std::vector<Member> members_;
  std::vector<std::size_t> strides_;
  std::vector<Outside> outside_;
  std::size_t table_entries_ = 0;
  std::size_t own_entries_ = 0;
  double work_ = 0;
  double made_ = 0;
  int frozen_ = 0;
};

}  // namespace meshplan::solver

// SPDX-License-Identifier: Apache-2.0
// Builds a redistribution step by step, refusing steps that the current layout does not allow.
// Internal to lib and its tests.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lib/redistribution.h"
#include "lib/redistribution_moves.h"
#include "lib/result.h"

namespace meshplan {

/// Fills in everything of a step but its price. `move.to` is not used.
RedistributionStep step_between(std::span<const std::int64_t> axis_sizes,
                                const Move& move,
                                LayoutCode before,
                                Bytes bytes_before,
                                LayoutCode after,
                                Bytes bytes_after);

struct CodePair {
  LayoutCode from = 0;
  LayoutCode to = 0;
};
/// Errors of a request that no sequence can serve: see RedistributionPlanner::plan().
Result<void> check_codes(std::span<const std::int64_t> axis_sizes,
                         std::span<const std::int64_t> shape,
                         Bytes dtype_bytes,
                         LayoutCode from,
                         LayoutCode to,
                         Division division = Division::kAny);
/// Both placements as codes, checked.
Result<CodePair> checked_codes(std::span<const std::int64_t> axis_sizes,
                               std::span<const std::int64_t> shape,
                               Bytes dtype_bytes,
                               std::span<const Placement> from,
                               std::span<const Placement> to);
/// The partial axes of `from` that have to be reduced on the way to `to`, innermost first: those
/// that `to` has not, and those that pending reductions of another kind around them depend on.
std::vector<int> axes_to_reduce(const LayoutState& from, const LayoutState& to);

class StepBuilder {
 public:
  StepBuilder(std::vector<std::int64_t> axis_sizes,
              std::vector<std::int64_t> shape,
              Bytes dtype_bytes,
              CollectivePrice price,
              LayoutCode from);

  LayoutCode code() const { return code_; }
  LayoutState state() const { return unpack(code_, static_cast<int>(axis_sizes_.size())); }

  // Each appends one step (none for an empty list of axes) and returns whether the layout allows
  // it.
  bool slice(int dim, std::span<const int> axes);
  /// `axes` must be the innermost cuts of `dim`, in order; likewise of `concat_dim`.
  bool all_gather(int dim, std::span<const int> axes);
  bool all_to_all(int split_dim, int concat_dim, std::span<const int> axes);
  bool all_reduce(std::span<const int> axes, Reduction reduction);
  bool reduce_scatter(int dim, std::span<const int> axes, Reduction reduction);
  bool mask(std::span<const int> axes, Reduction reduction);
  bool permute(LayoutCode to);

  /// Masks until every axis that is partial in `to` is partial, outermost first.
  bool mask_missing(const LayoutState& to);

  /// The finished sequence; the last step ends with the placements of `to`, which must hold the
  /// same data as the current layout.
  Redistribution finish(LayoutCode to) &&;

 private:
  bool append(const Move& move, LayoutCode after);
  bool free(std::span<const int> axes) const;
  bool innermost(int dim, std::span<const int> axes) const;
  LayoutCode with_cuts(LayoutCode base, int dim, std::span<const int> axes) const;
  LayoutCode without_cuts(std::span<const int> axes) const;

  std::vector<std::int64_t> axis_sizes_;
  std::vector<std::int64_t> shape_;
  Bytes dtype_bytes_;
  CollectivePrice price_;
  LayoutCode code_;
  Redistribution result_;
};

}  // namespace meshplan

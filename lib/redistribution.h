// SPDX-License-Identifier: Apache-2.0
// Redistribution: the cheapest collectives that turn one placement of a tensor into another.
//
// Example on a 2x4 mesh, tensor 8x16: from S(0),R to R,S(1) is
//   slice dim 1 by axis 1            -> S(0),S(1)
//   all_gather dim 0 over axis 0     -> R,S(1)
// The price of a redistribution is the sum of the prices of exactly these steps.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "lib/collective.h"
#include "lib/placement.h"
#include "lib/result.h"
#include "lib/units.h"

namespace meshplan {

/// One collective (or local step) of a redistribution.
struct RedistributionStep {
  Collective collective = Collective::kAllReduce;
  AxisSet axes = 0;        ///< the mesh axes that the groups span
  std::vector<int> order;  ///< the same axes, outermost digit of the group order first
  int dim = -1;            ///< gathered, scattered or sliced tensor dimension, else -1
  int split_dim = -1;      ///< all-to-all: the dimension that is cut
  int concat_dim = -1;     ///< all-to-all: the dimension that is put together
  Reduction reduction = Reduction::kSum;  ///< of reduce_scatter, all_reduce and mask
  Bytes call_bytes = 0;                   ///< the larger side on one device, as priced
  Bytes bytes_moved = 0;                  ///< sent per device; 0 for slice and mask
  Seconds time;
  Placements after;  ///< the placements when the step is done

  friend bool operator==(const RedistributionStep&, const RedistributionStep&) = default;
};

/// A sequence of steps. No steps: the layouts hold the same data.
struct Redistribution {
  std::vector<RedistributionStep> steps;
  Seconds time;     ///< sum of the steps' times, exact
  Bytes bytes = 0;  ///< sum of the steps' bytes_moved
  Bytes peak =
      0;  ///< the most that one step's input and output take on a device (all-reduce in place)
};

/// What layouts may cut a dimension into: pieces of any sizes, or only equal ones (then a layout on
/// the way is never uneven either).
enum class Division : std::uint8_t { kAny, kEqual };

/// Finds cheapest redistributions on one mesh (at most 8 axes). Costs obey the triangle inequality
/// (on up to 4 axes with tensors of up to 5 dimensions; larger problems leave alone what both
/// layouts have in common) and never exceed gather-everything-then-slice. Ties: lower peak, fewer
/// steps, a fixed order. Everything found is remembered. Not thread-safe: make one per thread.
class RedistributionPlanner {
 public:
  /// `axis_sizes`: the sizes of the mesh axes, outermost first, each >= 1.
  RedistributionPlanner(std::vector<std::int64_t> axis_sizes,
                        CollectivePrice price,
                        Division division = Division::kAny);
  RedistributionPlanner(RedistributionPlanner&&) noexcept;
  RedistributionPlanner& operator=(RedistributionPlanner&&) noexcept;
  ~RedistributionPlanner();

  /// The cheapest steps for a tensor of `shape` (global sizes). The result lives as long as the
  /// planner. A dimension may be cut unevenly by one axis; several axes on it must divide it.
  /// Errors: kValue, kConflict (Partial to another reduction), kOverflow, kUnsupported.
  Result<const Redistribution*> plan(std::span<const std::int64_t> shape,
                                     Bytes dtype_bytes,
                                     std::span<const Placement> from,
                                     std::span<const Placement> to);

  /// Costs between all pairs of `layouts`: entry [i * K + j] is plan(layouts[i], layouts[j])->time
  /// to the last bit. Errors as plan().
  Result<std::vector<Seconds>> cost_table(std::span<const std::int64_t> shape,
                                          Bytes dtype_bytes,
                                          std::span<const Placements> layouts);

  /// Costs from one layout to each of `layouts`: plan(from, layouts[i])->time. Errors as plan().
  Result<std::vector<Seconds>> costs_from(std::span<const std::int64_t> shape,
                                          Bytes dtype_bytes,
                                          std::span<const Placement> from,
                                          std::span<const Placements> layouts);

  std::span<const std::int64_t> axis_sizes() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace meshplan

// SPDX-License-Identifier: Apache-2.0
// what_if: the best plan of one job at every point of a grid of machines and batch sizes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cost_model/cluster.h"
#include "plan/plan.h"
#include "search/dp_search.h"

namespace meshplan {

/// Another network: every level's bandwidth, or that of one level, times a factor.
struct NetworkChange {
  double factor = 1;
  std::optional<std::string> level;  ///< none: every level
  friend bool operator==(const NetworkChange&, const NetworkChange&) = default;
};

/// The graph at one batch size.
struct WhatIfBatch {
  std::optional<std::int64_t> size;        ///< of the whole step; none: the graph names no batch
  std::vector<Graph> graphs;               ///< one per number of micro-batches
  std::vector<std::int64_t> microbatches;  ///< ascending; the best one is taken
  Recomputation recomputation;             ///< of these graphs
};

/// The axes of the grid and how each point is planned. A point per combination.
struct WhatIfSweep {
  std::vector<Cluster> clusters;
  std::vector<std::optional<std::int64_t>> devices;  ///< none: as many as the cluster has
  std::vector<WhatIfBatch> batches;
  std::vector<std::optional<Bytes>> memory;  ///< of a device; none: the cluster's
  std::vector<NetworkChange> network;
  int mesh_axes = kMostSearchedAxes;  ///< meshes of up to so many axes
  /// `recomputation`, `overlap` and the memory limit are those of the point.
  DpOptions search;
  /// Laid over a cluster's own fractions; may be empty.
  std::function<void(Overlap&)> overlap;
  /// May be called from several threads at once; may be empty.
  RestrictionsOf restrictions;
};

/// Which points one machine computes: every `count`-th group of points, from number `index` on. A
/// group shares cluster, devices and batch.
struct WhatIfShard {
  std::size_t index = 0;
  std::size_t count = 1;
};

/// Place of a point on every axis of the grid.
struct WhatIfPlace {
  std::size_t cluster = 0;
  std::size_t devices = 0;
  std::size_t batch = 0;
  std::size_t memory = 0;
  std::size_t network = 0;
  friend bool operator==(const WhatIfPlace&, const WhatIfPlace&) = default;
};

/// A grid has at most so many points.
inline constexpr std::size_t kMostWhatIfPoints = 1'000'000;

/// How many places each axis has, at least one, and their order: the last axis runs fastest.
struct WhatIfGrid {
  WhatIfPlace sizes;

  /// Whether there are at most kMostWhatIfPoints points. All else is for such grids.
  bool countable() const;
  std::size_t points() const;
  WhatIfPlace place(std::size_t point) const;
  std::size_t point(const WhatIfPlace& place) const;
  /// The points of a shard, ascending.
  std::vector<std::size_t> points_of(const WhatIfShard& shard) const;
};

/// The best plan of a point, in figures.
struct WhatIfPlan {
  PlanMesh mesh;
  std::int64_t microbatches = 1;
  Seconds objective;
  Seconds lower_bound;
  PlanCost cost;
  Bytes peak = 0;
  friend bool operator==(const WhatIfPlan&, const WhatIfPlan&) = default;

  double gap() const;
};

/// What became of a point. kImpossible: there is no such machine, or the job cannot be planned.
enum class WhatIfStatus : std::uint8_t { kOptimal, kFeasible, kInfeasible, kImpossible };
/// "optimal", "feasible", "infeasible", "impossible".
const char* what_if_status_name(WhatIfStatus status);

struct WhatIfPoint {
  WhatIfPlace place;
  std::int64_t devices = 0;
  std::optional<std::int64_t> batch;
  Bytes memory = 0;        ///< of a device
  Bytes memory_limit = 0;  ///< what of it a plan may use
  WhatIfStatus status = WhatIfStatus::kImpossible;
  std::optional<WhatIfPlan> plan;  ///< optimal, feasible
  /// Infeasible: the least bytes that any plan was proven to need; none where that is not proven.
  std::optional<Bytes> min_memory;
  std::string moment;  ///< infeasible: when the least is needed
  std::string reason;  ///< impossible: why
  friend bool operator==(const WhatIfPoint&, const WhatIfPoint&) = default;
};

WhatIfGrid grid_of(const WhatIfSweep& sweep);

/// The machine of a point. Errors: kUsage where the cluster cannot have so many devices.
Result<Cluster> machine_of(const WhatIfSweep& sweep, const WhatIfPlace& place);

/// Plans the points of the shard, in the order of the grid; what is found does not depend on
/// shards and threads. `progress` is told how many points of how many are done, one call at a time;
/// may be empty.
std::vector<WhatIfPoint> what_if(
    const WhatIfSweep& sweep,
    const WhatIfShard& shard = {},
    const std::function<void(std::size_t, std::size_t)>& progress = {});

/// Per point: devices x time of the smallest machine that has a plan over devices x time of this
/// one, of the points with the same cluster, batch, memory and network. None without a plan.
std::vector<std::optional<double>> scaling_efficiency(const std::vector<WhatIfPoint>& points);

/// What a front weighs against the step time.
enum class WhatIfExpense : std::uint8_t { kDevices, kPricePerStep };

/// Per point, whether it is on the Pareto front of step time and the expense, among the points with
/// the same batch, memory and network: none of them is better in one and as good in the other.
/// False without a plan or, for kPricePerStep, a price.
std::vector<bool> pareto_front(const std::vector<WhatIfPoint>& points, WhatIfExpense expense);

}  // namespace meshplan

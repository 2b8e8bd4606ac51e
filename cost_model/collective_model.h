// SPDX-License-Identifier: Apache-2.0
// Prices of collectives on a cluster. The axes of a call select groups of ranks; a group's price
// depends on its shape alone: how many parts it has at every level of the network.
//
// Example: 2 nodes of 8 devices, mesh dp=4,tp=4. Groups of tp lie in one node: shape 4 x 1. Groups
// of dp are ranks {0, 4, 8, 12}: shape 2 x 2, two devices in each of two nodes.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "cost_model/cluster.h"
#include "cost_model/collective_algorithms.h"
#include "cost_model/piecewise_linear.h"
#include "lib/collective.h"
#include "lib/device_mesh.h"
#include "lib/result.h"
#include "lib/units.h"

namespace meshplan {

/// The shape of the group of these ranks: per level, the most units of the level below (devices, at
/// level 0) that one unit holds. Ragged groups are shaped, and priced, as the full group around
/// them. Ranks are distinct and below cluster.devices().
GroupShape group_shape(const Cluster& cluster, std::span<const std::int64_t> ranks);

/// The price of a local pass over `bytes` of data: they are read once and written once.
Seconds copy_time(const Cluster& cluster, Bytes bytes);

/// Prices every collective on every set of axes of one mesh. Immutable; safe to share by threads.
class CollectiveModel {
 public:
  /// More axes than this of size 2 and above are not priced.
  static constexpr int kMaxAxes = 12;

  /// The mesh is given by its shape (outermost axis first) and the rank at each position,
  /// row-major; no ranks: 0, 1, 2, ... Errors: kRank (a rank outside the cluster), kDuplicate (a
  /// rank twice), kUnsupported (more than kMaxAxes axes), kConflict (ranks and shape do not agree).
  static Result<CollectiveModel> make(const Cluster& cluster,
                                      std::span<const std::int64_t> shape,
                                      std::span<const std::int64_t> ranks = {});

  /// The same for a mesh with its own ranks.
  static Result<CollectiveModel> make(const Cluster& cluster, const DeviceMesh& mesh);

  /// Seconds of one call, on the price grid: that of the slowest group, by the cheapest algorithm.
  /// Never falls when bytes grow or bandwidth falls; a group of one device costs nothing. Axes that
  /// the mesh does not have are a broken invariant. Takes no memory and no lock.
  Seconds time(const CollectiveCall& call) const;

  /// Bytes that each device sends (all-gather: (n - 1) / n of the output, ...); 0 for local calls.
  Bytes moved(const CollectiveCall& call) const;

  /// Devices in one group of these axes.
  std::int64_t group_size(AxisSet axes) const;

  /// The outermost level that a group of these axes crosses; -1 for groups of one device.
  int level(AxisSet axes) const;

 private:
  /// The prices of one group shape.
  struct GroupPrice {
    GroupShape shape;
    std::array<PiecewiseLinear, kNetworkCollectives.size()> times;  ///< by Collective
  };
  struct AxisEntry {
    std::int64_t size = 1;
    std::vector<std::uint32_t> prices;  ///< of the distinct shapes of its groups, into prices_
  };

  CollectiveModel() = default;

  const AxisEntry& entry(AxisSet axes) const;
  static GroupPrice group_price(CollectiveAlgorithmBook& book, const GroupShape& shape);

  Cluster cluster_;
  std::vector<int> compact_;        ///< mesh axis -> bit among the axes of size >= 2, or -1
  std::vector<AxisEntry> entries_;  ///< by compact axis set
  std::vector<GroupPrice> prices_;
};

}  // namespace meshplan

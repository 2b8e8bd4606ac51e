// SPDX-License-Identifier: Apache-2.0
// The time of every collective on one group of devices as a function of its size: the best of the
// algorithms that communication libraries have.
#pragma once

#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "cost_model/cluster.h"
#include "cost_model/piecewise_linear.h"
#include "lib/collective.h"

namespace meshplan {

/// How many parts a group has inside one unit of each level, innermost first: {8, 2} for all
/// devices of two nodes of 8. One entry per level of the cluster.
using GroupShape = std::vector<std::int64_t>;

/// Finds, and remembers, the times of group shapes on one cluster, which must outlive it.
class CollectiveAlgorithmBook {
 public:
  explicit CollectiveAlgorithmBook(const Cluster& cluster);

  /// Seconds by bytes (CollectiveCall::bytes) of one collective that is not local, on a group of
  /// two devices and more; with the fixed costs of its calls.
  const PiecewiseLinear& time(Collective collective, const GroupShape& shape);

 private:
  /// Whether the own piece of each device has yet to be copied to where the collective works.
  enum class Piece : std::uint8_t { kCopied, kInPlace };
  const PiecewiseLinear& best(Collective collective, const GroupShape& shape, Piece piece);
  PiecewiseLinear find(Collective collective, const GroupShape& shape, Piece piece);
  PiecewiseLinear one_call(Collective collective, const GroupShape& shape) const;
  PiecewiseLinear ring(Collective curve, const GroupShape& shape) const;
  PiecewiseLinear own_piece(Collective curve, const GroupShape& shape) const;
  PiecewiseLinear ring_all_reduce(const GroupShape& shape) const;
  bool has_tree(const GroupShape& shape) const;
  PiecewiseLinear tree_all_reduce(const GroupShape& shape) const;
  PiecewiseLinear direct_exchange(const GroupShape& shape) const;
  PiecewiseLinear pipeline(Collective collective, const GroupShape& shape) const;
  std::vector<GroupShape> stages(const GroupShape& shape) const;
  PiecewiseLinear staged(Collective collective,
                         const GroupShape& part,
                         const GroupShape& rest,
                         Piece piece);

  const BandwidthCurve& curve(std::size_t level, Collective collective) const;
  /// Seconds of moving one piece over one device's own link.
  PiecewiseLinear piece_time(std::size_t level, Collective collective, std::int64_t parts) const;
  /// 1 / the part of the level's links that a group of `units` uses.
  double unused_links(std::size_t level, std::int64_t units) const;
  /// Devices whose full links together carry what leaves one unit below the level.
  double links_out(std::size_t level, const GroupShape& shape) const;

  const Cluster& cluster_;
  std::map<std::tuple<Collective, Piece, GroupShape>, PiecewiseLinear> known_;
};

}  // namespace meshplan

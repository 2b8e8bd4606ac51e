// SPDX-License-Identifier: Apache-2.0
#include "cost_model/collective_model.h"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <utility>

#include "lib/check.h"

namespace meshplan {

GroupShape group_shape(const Cluster& cluster, std::span<const std::int64_t> ranks) {
  std::vector<std::int64_t> units(ranks.begin(), ranks.end());
  std::sort(units.begin(), units.end());
  GroupShape shape;
  for (const Level& level : cluster.levels) {
    std::int64_t most = 1;
    std::int64_t count = 0;
    std::vector<std::int64_t> parents;
    for (const std::int64_t unit : units) {
      const std::int64_t parent = unit / level.size;
      if (parents.empty() || parents.back() != parent) {
        parents.push_back(parent);
        count = 0;
      }
      most = std::max(most, ++count);
    }
    shape.push_back(most);
    units = std::move(parents);
  }
  return shape;
}

Seconds copy_time(const Cluster& cluster, Bytes bytes) {
  if (bytes <= 0) return {};
  const double rate =
      cluster.device.memory_bandwidth * cluster.efficiency.of(OperatorFamily::kElementwise).memory;
  return on_price_grid({2.0 * static_cast<double>(bytes) / rate});
}

namespace {

Result<void> check_ranks(const Cluster& cluster, std::span<const std::int64_t> ranks) {
  const std::int64_t devices = cluster.devices();
  std::vector<bool> seen(static_cast<std::size_t>(devices), false);
  for (const std::int64_t rank : ranks) {
    if (rank < 0 || rank >= devices) {
      return fail(ErrorCode::kRank,
                  "",
                  "rank " + std::to_string(rank) + " is not on the cluster \"" + cluster.name +
                      "\", which has " + std::to_string(devices) + " devices");
    }
    if (seen[static_cast<std::size_t>(rank)]) {
      return fail(
          ErrorCode::kDuplicate, "", "rank " + std::to_string(rank) + " is in the mesh twice");
    }
    seen[static_cast<std::size_t>(rank)] = true;
  }
  return {};
}

/// The positions of the mesh, as offsets from its first one, that differ from it on `axes` only.
std::vector<std::size_t> offsets_along(std::span<const std::int64_t> shape, AxisSet axes) {
  std::vector<std::size_t> offsets = {0};
  std::size_t stride = 1;
  for (std::size_t axis = shape.size(); axis-- > 0;) {
    const auto size = static_cast<std::size_t>(shape[axis]);
    if ((axes >> axis & 1U) != 0) {
      const std::size_t known = offsets.size();
      for (std::size_t i = 1; i < size; ++i) {
        for (std::size_t k = 0; k < known; ++k) offsets.push_back(offsets[k] + i * stride);
      }
    }
    stride *= size;
  }
  return offsets;
}

/// The distinct shapes of the groups along `axes` that are not inside another one.
std::vector<GroupShape> shapes_along(const Cluster& cluster,
                                     std::span<const std::int64_t> shape,
                                     std::span<const std::int64_t> ranks,
                                     AxisSet axes) {
  const AxisSet all = (AxisSet{1} << shape.size()) - 1;
  const std::vector<std::size_t> members = offsets_along(shape, axes);
  std::vector<GroupShape> shapes;
  std::vector<std::int64_t> group(members.size());
  for (const std::size_t base : offsets_along(shape, all & ~axes)) {
    for (std::size_t i = 0; i < members.size(); ++i) group[i] = ranks[base + members[i]];
    GroupShape found = group_shape(cluster, group);
    if (std::find(shapes.begin(), shapes.end(), found) == shapes.end()) {
      shapes.push_back(std::move(found));
    }
  }
  const auto inside = [](const GroupShape& a, const GroupShape& b) {
    return a != b && std::equal(a.begin(), a.end(), b.begin(), std::less_equal<>());
  };
  std::vector<GroupShape> largest;
  for (const GroupShape& s : shapes) {
    const bool covered = std::any_of(
        shapes.begin(), shapes.end(), [&](const GroupShape& other) { return inside(s, other); });
    if (!covered) largest.push_back(s);
  }
  std::sort(largest.begin(), largest.end());
  return largest;
}

}  // namespace

CollectiveModel::GroupPrice CollectiveModel::group_price(CollectiveAlgorithmBook& book,
                                                         const GroupShape& shape) {
  GroupPrice price;
  price.shape = shape;
  const bool one_device =
      std::all_of(shape.begin(), shape.end(), [](std::int64_t f) { return f == 1; });
  if (one_device) return price;
  for (const Collective collective : kNetworkCollectives)
    price.times[static_cast<std::size_t>(collective)] = book.time(collective, shape);
  return price;
}

Result<CollectiveModel> CollectiveModel::make(const Cluster& cluster,
                                              std::span<const std::int64_t> shape,
                                              std::span<const std::int64_t> ranks) {
  MESHPLAN_CHECK(!cluster.levels.empty() &&
                 cluster.levels.size() <= static_cast<std::size_t>(kMaxLevels));
  CollectiveModel model;
  model.cluster_ = cluster;
  std::vector<std::int64_t> wide;  // the axes of two and more
  std::int64_t positions = 1;
  for (const std::int64_t size : shape) {
    if (size < 1 || positions > kMaxDevices / size) {
      return fail(ErrorCode::kConflict,
                  "",
                  "a mesh needs sizes of 1 and more with a product of at most " +
                      std::to_string(kMaxDevices));
    }
    positions *= size;
    model.compact_.push_back(size > 1 ? static_cast<int>(wide.size()) : -1);
    if (size > 1) wide.push_back(size);
  }
  if (wide.size() > static_cast<std::size_t>(kMaxAxes)) {
    return fail(ErrorCode::kUnsupported,
                "",
                "a mesh with " + std::to_string(wide.size()) +
                    " axes of two and more devices has no prices; at most " +
                    std::to_string(kMaxAxes) + " such axes are supported");
  }
  std::vector<std::int64_t> all_ranks(ranks.begin(), ranks.end());
  if (ranks.empty()) {
    all_ranks.resize(static_cast<std::size_t>(positions));
    std::iota(all_ranks.begin(), all_ranks.end(), 0);
  }
  if (all_ranks.size() != static_cast<std::size_t>(positions)) {
    return fail(ErrorCode::kConflict,
                "",
                "the mesh has " + std::to_string(positions) + " positions and " +
                    std::to_string(all_ranks.size()) + " ranks");
  }
  if (auto ok = check_ranks(cluster, all_ranks); !ok) return fail(ok.error());

  CollectiveAlgorithmBook book(model.cluster_);
  std::map<GroupShape, std::uint32_t> known;
  const auto price_of = [&](const GroupShape& s) {
    const auto [found, inserted] =
        known.try_emplace(s, static_cast<std::uint32_t>(model.prices_.size()));
    if (inserted) model.prices_.push_back(group_price(book, s));
    return found->second;
  };
  model.entries_.resize(std::size_t{1} << wide.size());
  for (std::size_t axes = 0; axes < model.entries_.size(); ++axes) {
    AxisEntry& entry = model.entries_[axes];
    for (std::size_t i = 0; i < wide.size(); ++i) {
      if ((axes >> i & 1U) != 0) entry.size *= wide[i];
    }
    for (const GroupShape& s : shapes_along(cluster, wide, all_ranks, static_cast<AxisSet>(axes))) {
      entry.prices.push_back(price_of(s));
    }
  }
  return model;
}

Result<CollectiveModel> CollectiveModel::make(const Cluster& cluster, const DeviceMesh& mesh) {
  if (mesh.size() > kMaxDevices) return make(cluster, mesh.shape());  // refused without a rank list
  return make(cluster, mesh.shape(), mesh.ranks());
}

const CollectiveModel::AxisEntry& CollectiveModel::entry(AxisSet axes) const {
  std::size_t compact = 0;
  for (std::size_t axis = 0; axes != 0; ++axis, axes >>= 1) {
    if ((axes & 1U) == 0) continue;
    MESHPLAN_CHECK(axis < compact_.size());
    if (compact_[axis] >= 0) compact |= std::size_t{1} << compact_[axis];
  }
  return entries_[compact];
}

Seconds CollectiveModel::time(const CollectiveCall& call) const {
  const AxisEntry& axes = entry(call.axes);
  if (axes.size == 1 || call.bytes <= 0) return {};
  if (call.collective == Collective::kSlice || call.collective == Collective::kMask) {
    return copy_time(cluster_, call.bytes);
  }
  double slowest = 0;
  for (const std::uint32_t price : axes.prices) {
    const PiecewiseLinear& seconds =
        prices_[price].times[static_cast<std::size_t>(call.collective)];
    slowest = std::max(slowest, seconds(static_cast<double>(call.bytes)));
  }
  // Rounded up: then a collective is never dearer than its parts (an all-reduce than reduce-scatter
  // and all-gather) by rounding alone.
  return up_to_price_grid({slowest});
}

Bytes CollectiveModel::moved(const CollectiveCall& call) const {
  return moved_bytes(call.collective, entry(call.axes).size, call.bytes);
}

std::int64_t CollectiveModel::group_size(AxisSet axes) const { return entry(axes).size; }

int CollectiveModel::level(AxisSet axes) const {
  int outermost = -1;
  for (const std::uint32_t price : entry(axes).prices) {
    const GroupShape& shape = prices_[price].shape;
    for (std::size_t l = 0; l < shape.size(); ++l) {
      if (shape[l] > 1) outermost = std::max(outermost, static_cast<int>(l));
    }
  }
  return outermost;
}

}  // namespace meshplan

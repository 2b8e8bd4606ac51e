// SPDX-License-Identifier: Apache-2.0
#include "lib/redistribution_replay.h"

#include <algorithm>
#include <bit>
#include <map>
#include <numeric>
#include <utility>

#include "lib/redistribution_moves.h"
#include "lib/redistribution_reduce.h"

namespace meshplan {
namespace {

/// Row-major strides of the mesh coordinates in the flat position.
std::vector<std::int64_t> strides_of(std::span<const std::int64_t> axis_sizes) {
  std::vector<std::int64_t> strides(axis_sizes.size(), 1);
  for (std::size_t axis = axis_sizes.size(); axis-- > 1;)
    strides[axis - 1] = strides[axis] * axis_sizes[axis];
  return strides;
}

/// What a device holds (or needs): its piece of every dimension, its term of every reduction over
/// axes in `touched`, and its coordinates on the untouched axes that do not cut.
std::vector<std::int64_t> content_key(std::span<const std::int64_t> axis_sizes,
                                      const LayoutState& state,
                                      std::span<const std::int64_t> strides,
                                      DeviceRank device,
                                      AxisSet touched) {
  const auto coordinate = [&](std::size_t axis) {
    return device / strides[axis] % axis_sizes[axis];
  };
  std::vector<std::int64_t> key;
  for (int dim = 0; dim < kMaxMoveDims; ++dim) {
    std::int64_t piece = 0;
    for (const std::int8_t axis : state.cuts_of(dim)) {
      const auto a = static_cast<std::size_t>(axis);
      piece = piece * axis_sizes[a] + coordinate(a);
    }
    key.push_back(piece);
  }
  for (int reduction = 0; reduction < 5; ++reduction) {
    std::int64_t term = 0;
    for (std::size_t axis = 0; axis < axis_sizes.size(); ++axis) {
      if ((touched >> axis & 1U) != 0 && state.partial[axis] == reduction) {
        term = term * axis_sizes[axis] + coordinate(axis);
      }
    }
    key.push_back(term);
  }
  for (std::size_t axis = 0; axis < axis_sizes.size(); ++axis) {
    if ((touched >> axis & 1U) == 0) key.push_back(coordinate(axis));
  }
  return key;
}

}  // namespace

std::vector<std::vector<DeviceRank>> device_groups(std::span<const std::int64_t> axis_sizes,
                                                   std::span<const int> order) {
  const std::vector<std::int64_t> strides = strides_of(axis_sizes);
  const auto expand = [&](std::vector<DeviceRank> bases, std::size_t axis) {
    std::vector<DeviceRank> result;
    result.reserve(bases.size() * static_cast<std::size_t>(axis_sizes[axis]));
    for (const DeviceRank base : bases) {
      for (std::int64_t i = 0; i < axis_sizes[axis]; ++i)
        result.push_back(base + i * strides[axis]);
    }
    return result;
  };
  std::vector<DeviceRank> bases = {0};
  for (std::size_t axis = 0; axis < axis_sizes.size(); ++axis) {
    if (std::find(order.begin(), order.end(), static_cast<int>(axis)) == order.end()) {
      bases = expand(std::move(bases), axis);
    }
  }
  std::vector<std::vector<DeviceRank>> groups;
  for (const DeviceRank base : bases) {
    std::vector<DeviceRank> group = {base};
    for (const int axis : order) group = expand(std::move(group), static_cast<std::size_t>(axis));
    groups.push_back(std::move(group));
  }
  return groups;
}

Result<std::vector<std::array<DeviceRank, 2>>> permute_pairs(
    std::span<const std::int64_t> axis_sizes,
    int tensor_rank,
    std::span<const Placement> before,
    std::span<const Placement> after) {
  if (const auto used = used_axes(axis_sizes, before, after)) {
    // Among the devices that agree on the other axes.
    auto part = permute_pairs(used->sizes, tensor_rank, used->from, used->to);
    if (!part) return part;
    std::vector<std::array<DeviceRank, 2>> pairs;
    for (const auto& devices : device_groups(axis_sizes, used->axes)) {
      for (const auto& [source, destination] : *part) {
        pairs.push_back({devices[static_cast<std::size_t>(source)],
                         devices[static_cast<std::size_t>(destination)]});
      }
    }
    std::sort(pairs.begin(), pairs.end(), [](const auto& a, const auto& b) { return a[1] < b[1]; });
    return pairs;
  }
  const auto from = encode_placements(axis_sizes, tensor_rank, before);
  if (!from) return fail(from.error());
  const auto to = encode_placements(axis_sizes, tensor_rank, after);
  if (!to) return fail(to.error());
  const int axes = static_cast<int>(axis_sizes.size());
  const LayoutState state_from = unpack(*from, axes);
  const LayoutState state_to = unpack(*to, axes);
  const AxisSet touched = relabelled_axes(axis_sizes, *from, *to);
  const std::vector<std::int64_t> strides = strides_of(axis_sizes);
  DeviceRank devices = 1;
  for (const std::int64_t size : axis_sizes) devices *= size;

  std::vector<std::vector<std::int64_t>> needed;
  std::map<std::vector<std::int64_t>, std::vector<DeviceRank>>
      holders;  // devices that can still send, ascending
  std::vector<DeviceRank> source(static_cast<std::size_t>(devices), -1);
  for (DeviceRank device = 0; device < devices; ++device) {
    needed.push_back(content_key(axis_sizes, state_to, strides, device, touched));
    auto held = content_key(axis_sizes, state_from, strides, device, touched);
    if (held == needed.back()) {
      source[static_cast<std::size_t>(device)] = device;
    } else {
      holders[std::move(held)].push_back(device);
    }
  }
  std::map<std::vector<std::int64_t>, std::size_t> used;
  std::vector<std::array<DeviceRank, 2>> pairs;
  for (DeviceRank device = 0; device < devices; ++device) {
    const auto d = static_cast<std::size_t>(device);
    if (source[d] < 0) {
      const auto found = holders.find(needed[d]);
      std::size_t& next = used[needed[d]];
      if (found == holders.end() || next >= found->second.size()) {
        return fail(ErrorCode::kValue,
                    "",
                    "no permutation of the devices turns " + to_string(before) + " into " +
                        to_string(after));
      }
      source[d] = found->second[next++];
    }
    pairs.push_back({source[d], device});
  }
  return pairs;
}

namespace {

/// The pairs of a permute behind which some axes may have been relabelled from R to P(avg): of the
/// axes that are P(avg) now, as many as possible were so before.
Result<std::vector<std::array<DeviceRank, 2>>> permute_to(std::span<const std::int64_t> axis_sizes,
                                                          int tensor_rank,
                                                          std::span<const Placement> before,
                                                          const Placements& after) {
  auto pairs = permute_pairs(axis_sizes, tensor_rank, before, after);
  if (pairs) return pairs;
  std::vector<std::size_t> averages;
  for (std::size_t axis = 0; axis < after.size(); ++axis) {
    if (after[axis] == Placement{Partial{Reduction::kAvg}}) averages.push_back(axis);
  }
  std::vector<unsigned> sets((std::size_t{1} << averages.size()) - 1);
  std::iota(sets.begin(), sets.end(), 1U);
  std::stable_sort(sets.begin(), sets.end(), [](unsigned a, unsigned b) {
    return std::popcount(a) < std::popcount(b);
  });
  for (const unsigned set : sets) {
    Placements reached = after;
    for (std::size_t i = 0; i < averages.size(); ++i) {
      if ((set >> i & 1U) != 0) reached[averages[i]] = Replicate{};
    }
    auto others = permute_pairs(axis_sizes, tensor_rank, before, reached);
    if (others) return others;
  }
  return pairs;
}

}  // namespace

Result<ReplayStep> replay_step(std::span<const std::int64_t> axis_sizes,
                               int tensor_rank,
                               std::span<const Placement> before,
                               const RedistributionStep& step) {
  ReplayStep replay;
  replay.collective = step.collective;
  replay.groups = device_groups(axis_sizes, step.order);
  replay.dim = step.dim;
  replay.split_dim = step.split_dim;
  replay.concat_dim = step.concat_dim;
  replay.reduction = step.reduction;
  if (step.collective == Collective::kPermute) {
    auto pairs = permute_to(axis_sizes, tensor_rank, before, step.after);
    if (!pairs) return fail(pairs.error());
    replay.pairs = *std::move(pairs);
  }
  return replay;
}

std::map<DeviceRank, std::vector<std::int64_t>> received_shapes(const ReplayStep& step,
                                                                std::size_t tensor_rank) {
  std::map<DeviceRank, std::vector<std::int64_t>> shapes;
  for (const auto& group : step.groups) {
    for (const DeviceRank rank : group)
      shapes.emplace(rank, std::vector<std::int64_t>(tensor_rank, 0));
  }
  for (const BlockSend& send : step.sends) {
    std::vector<std::int64_t>& shape = shapes[send.destination];
    shape.resize(tensor_rank, 0);
    for (std::size_t dim = 0; dim < send.size.size(); ++dim) {
      shape[dim] = std::max(shape[dim], send.destination_begin[dim] + send.size[dim]);
    }
  }
  return shapes;
}

void translate(ReplayStep& step, std::span<const std::int64_t> ranks) {
  const auto rank_of = [&](DeviceRank position) {
    return ranks[static_cast<std::size_t>(position)];
  };
  for (auto& group : step.groups) {
    for (DeviceRank& device : group) device = rank_of(device);
  }
  for (auto& pair : step.pairs) {
    for (DeviceRank& device : pair) device = rank_of(device);
  }
  for (BlockSend& send : step.sends) {
    send.source = rank_of(send.source);
    send.destination = rank_of(send.destination);
  }
}

}  // namespace meshplan

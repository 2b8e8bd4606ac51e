// SPDX-License-Identifier: Apache-2.0
// Test support: what devices hold of a tensor under given placements, worked out from the meaning
// of the placements alone, and whether they hold it.
#pragma once

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "lib/redistribution_replay.h"
#include "lib/virtual_devices.h"

namespace meshplan {

using Sizes = std::vector<std::int64_t>;

inline std::vector<std::int64_t> coordinates_of(const Sizes& sizes, DeviceRank device) {
  std::vector<std::int64_t> coordinates(sizes.size());
  for (std::size_t axis = sizes.size(); axis-- > 0;) {
    coordinates[axis] = device % sizes[axis];
    device /= sizes[axis];
  }
  return coordinates;
}

/// The block that a device holds: axes cut from left to right, a strided shard comes after the axes
/// to its right that its factor counts.
inline void block_range(const Sizes& sizes,
                        const Sizes& shape,
                        const Placements& placements,
                        DeviceRank device,
                        std::vector<std::int64_t>& begin,
                        std::vector<std::int64_t>& size) {
  const auto coordinates = coordinates_of(sizes, device);
  begin.assign(shape.size(), 0);
  size = shape;
  for (std::size_t dim = 0; dim < shape.size(); ++dim) {
    std::vector<std::size_t> order;
    for (std::size_t axis = sizes.size(); axis-- > 0;) {
      std::int64_t factor = 0;
      if (const auto* shard = std::get_if<Shard>(&placements[axis]);
          shard && shard->dim == static_cast<int>(dim)) {
        factor = 1;
      }
      if (const auto* strided = std::get_if<StridedShard>(&placements[axis]);
          strided && strided->dim == static_cast<int>(dim)) {
        factor = strided->split_factor;
      }
      if (factor == 0) continue;
      std::size_t position = 0;
      for (std::int64_t product = 1; product < factor; ++position)
        product *= sizes[order[position]];
      order.insert(order.begin() + static_cast<std::ptrdiff_t>(position), axis);
    }
    std::int64_t pieces = 1;
    std::int64_t index = 0;
    for (const std::size_t axis : order) {
      pieces *= sizes[axis];
      index = index * sizes[axis] + coordinates[axis];
    }
    const std::int64_t step = (shape[dim] + pieces - 1) / pieces;
    begin[dim] = std::min(index * step, shape[dim]);
    size[dim] = std::min((index + 1) * step, shape[dim]) - begin[dim];
  }
}

inline double reduce_values(Reduction reduction, const std::vector<double>& values) {
  double result = values.front();
  for (std::size_t i = 1; i < values.size(); ++i) {
    switch (reduction) {
      case Reduction::kSum:
      case Reduction::kAvg:
        result += values[i];
        break;
      case Reduction::kMax:
        result = std::max(result, values[i]);
        break;
      case Reduction::kMin:
        result = std::min(result, values[i]);
        break;
      case Reduction::kProd:
        result *= values[i];
        break;
    }
  }
  return reduction == Reduction::kAvg ? result / static_cast<double>(values.size()) : result;
}

/// Random terms whose reduction is exactly `value` (a small whole number or a power of two times
/// one).
inline std::vector<double> terms_of(double value,
                                    Reduction reduction,
                                    std::int64_t count,
                                    std::mt19937& random) {
  const auto pick = [&](int low, int high) {
    return static_cast<double>(std::uniform_int_distribution<int>(low, high)(random));
  };
  std::vector<double> terms(static_cast<std::size_t>(count), value);
  const std::size_t exact = std::uniform_int_distribution<std::size_t>(0, terms.size() - 1)(random);
  double rest = reduction == Reduction::kAvg ? value * static_cast<double>(count) : value;
  for (std::size_t i = 0; i < terms.size(); ++i) {
    if (i == exact) continue;
    switch (reduction) {
      case Reduction::kSum:
      case Reduction::kAvg:
        terms[i] = pick(-50, 50);
        rest -= terms[i];
        break;
      case Reduction::kMax:
        terms[i] = value - pick(0, 9);
        break;
      case Reduction::kMin:
        terms[i] = value + pick(0, 9);
        break;
      case Reduction::kProd:
        terms[i] = pick(0, 1) == 0 ? -2.0 : 0.5;
        rest /= terms[i];
        break;
    }
  }
  terms[exact] = rest;
  return terms;
}

inline std::vector<std::size_t> partial_axes(const Placements& placements) {
  std::vector<std::size_t> axes;
  for (std::size_t axis = 0; axis < placements.size(); ++axis) {
    if (std::holds_alternative<Partial>(placements[axis])) axes.push_back(axis);
  }
  return axes;
}

/// What the devices (by position) hold of `full`. Unlike reductions are resolved from the innermost
/// axis outwards, so values are split into terms from the outermost axis inwards.
inline VirtualDevices distribute_by_meaning(const DenseTensor& full,
                                            const Sizes& sizes,
                                            const Placements& placements,
                                            std::mt19937& random) {
  const std::int64_t devices = element_count(sizes);
  const auto partial = partial_axes(placements);
  // terms[t] is the full-size tensor of partial coordinates t (mixed radix over the partial axes).
  std::vector<DenseTensor> terms = {full};
  for (const std::size_t axis : partial) {
    std::vector<DenseTensor> next;
    for (const DenseTensor& term : terms) {
      const std::size_t base = next.size();
      next.resize(base + static_cast<std::size_t>(sizes[axis]), term);
      for (std::size_t i = 0; i < term.values.size(); ++i) {
        const auto split = terms_of(
            term.values[i], std::get<Partial>(placements[axis]).reduction, sizes[axis], random);
        for (std::size_t j = 0; j < split.size(); ++j) next[base + j].values[i] = split[j];
      }
    }
    terms = std::move(next);
  }
  VirtualDevices result;
  std::vector<std::int64_t> begin;
  std::vector<std::int64_t> size;
  for (DeviceRank device = 0; device < devices; ++device) {
    const auto coordinates = coordinates_of(sizes, device);
    std::int64_t term = 0;
    for (const std::size_t axis : partial) term = term * sizes[axis] + coordinates[axis];
    block_range(sizes, full.shape, placements, device, begin, size);
    result.at(device) = block_of(terms[static_cast<std::size_t>(term)], begin, size);
  }
  return result;
}

/// Do the devices hold `full` under the placements?
inline bool holds(const VirtualDevices& devices,
                  const DenseTensor& full,
                  const Sizes& sizes,
                  const Placements& placements) {
  const auto partial = partial_axes(placements);
  std::vector<std::int64_t> begin;
  std::vector<std::int64_t> size;
  std::map<DeviceRank, DenseTensor> values = devices.tensors();
  for (std::size_t k = partial.size(); k-- > 0;) {  // innermost first
    std::map<DeviceRank, DenseTensor> next;
    const int axis = static_cast<int>(partial[k]);
    for (const auto& group : device_groups(sizes, std::vector<int>{axis})) {
      DenseTensor sum = values.at(group.front());
      for (const DeviceRank device : group) {
        if (values.at(device).shape != sum.shape) return false;
      }
      for (std::size_t i = 0; i < sum.values.size(); ++i) {
        std::vector<double> terms;
        for (const DeviceRank device : group) terms.push_back(values.at(device).values[i]);
        sum.values[i] = reduce_values(std::get<Partial>(placements[partial[k]]).reduction, terms);
      }
      for (const DeviceRank device : group) next[device] = sum;
    }
    values = std::move(next);
  }
  for (DeviceRank device = 0; device < element_count(sizes); ++device) {
    block_range(sizes, full.shape, placements, device, begin, size);
    if (values.at(device) != block_of(full, begin, size)) return false;
  }
  return true;
}

/// A tensor of different whole numbers.
inline DenseTensor numbered(const Sizes& shape) {
  DenseTensor tensor = DenseTensor::filled(shape, 0.0);
  for (std::size_t i = 0; i < tensor.values.size(); ++i)
    tensor.values[i] = static_cast<double>(i + 1);
  return tensor;
}

}  // namespace meshplan

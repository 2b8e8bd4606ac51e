// SPDX-License-Identifier: Apache-2.0
#include "lib/redistribution_verify.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace meshplan {
namespace {

constexpr std::int64_t kMostNumbers = std::int64_t{1} << 24;

/// Term `index` of `count` whose reduction is `value`; exact for whole numbers below 2^30.
double term_of(double value, Reduction reduction, std::int64_t index, std::int64_t count) {
  const auto i = static_cast<double>(index);
  const auto n = static_cast<double>(count);
  switch (reduction) {
    case Reduction::kSum:  // 3, 4, 5, ... and what is missing
      return index + 1 < count ? i + 3 : value - (n - 1) * (n - 2) / 2 - 3 * (n - 1);
    case Reduction::kAvg:
      return index + 1 < count ? i + 3 : n * value - (n - 1) * (n - 2) / 2 - 3 * (n - 1);
    case Reduction::kMax:
      return index + 1 < count ? value - 1 - i : value;
    case Reduction::kMin:
      return index + 1 < count ? value + 1 + i : value;
    case Reduction::kProd:  // -1, -1, ... with an even number of them, one 2 and one half
      if (count == 1) return value;
      if (index + 1 == count) return count % 2 == 1 ? -value / 2 : value / 2;
      return index == 0 ? 2.0 : index == 1 && count % 2 == 1 ? -1.0 : 1.0;
  }
  return value;
}

std::vector<std::int64_t> begins_of(const std::vector<Interval>& block) {
  std::vector<std::int64_t> begins;
  for (const Interval& interval : block) begins.push_back(interval.begin);
  return begins;
}
std::vector<std::int64_t> sizes_of(const std::vector<Interval>& block) {
  std::vector<std::int64_t> sizes;
  for (const Interval& interval : block) sizes.push_back(interval.size());
  return sizes;
}

std::vector<int> partial_axes(const Layout& layout) {
  std::vector<int> axes;
  for (int axis = 0; axis < layout.mesh().ndim(); ++axis) {
    if (layout.partial_of(axis)) axes.push_back(axis);
  }
  return axes;
}

}  // namespace

Result<VirtualDevices> distribute(const DenseTensor& full, const Layout& layout) {
  const DeviceMesh& mesh = layout.mesh();
  VirtualDevices devices;
  for (std::int64_t position = 0; position < mesh.size(); ++position) {
    auto block = layout.slice(full.shape, position);
    if (!block) return fail(block.error());
    DenseTensor shard = block_of(full, begins_of(*block), sizes_of(*block));
    // Outermost axis first: its terms are what the reductions inside it have to give.
    for (const int axis : partial_axes(layout)) {
      const std::int64_t index = mesh.coordinate_at(position, axis);
      for (double& value : shard.values) {
        value = term_of(value, *layout.partial_of(axis), index, mesh.axis_size(axis));
      }
    }
    devices.at(mesh.rank_at(position)) = std::move(shard);
  }
  return devices;
}

namespace {

/// `held`: by position.
Result<std::optional<ShardDifference>> difference_of(std::vector<const DenseTensor*> held,
                                                     const DenseTensor& full,
                                                     const Layout& layout,
                                                     double tolerance) {
  const DeviceMesh& mesh = layout.mesh();
  std::deque<DenseTensor> resolved;
  const std::vector<int> partial = partial_axes(layout);
  for (auto axis = partial.rbegin(); axis != partial.rend(); ++axis) {
    const std::int64_t members = mesh.axis_size(*axis);
    std::int64_t stride = 1;
    for (int inner = *axis + 1; inner < mesh.ndim(); ++inner) stride *= mesh.axis_size(inner);
    for (std::int64_t position = 0; position < mesh.size(); ++position) {
      if (mesh.coordinate_at(position, *axis) != 0) continue;
      std::vector<std::size_t> group;
      std::vector<const DenseTensor*> terms;
      for (std::int64_t m = 0; m < members; ++m) {
        group.push_back(static_cast<std::size_t>(position + m * stride));
        terms.push_back(held[group.back()]);
      }
      auto whole = reduced(terms, *layout.partial_of(*axis));
      if (!whole) return fail(ErrorCode::kConflict, "", whole.error().message);
      resolved.push_back(*std::move(whole));
      for (const std::size_t member : group) held[member] = &resolved.back();
    }
  }
  double largest = 1;
  for (const double value : full.values) {
    if (std::isfinite(value)) largest = std::max(largest, std::abs(value));
  }
  auto equal = [&](double expected, double found) {
    return expected == found || std::abs(expected - found) <= tolerance * largest;
  };
  for (std::int64_t position = 0; position < mesh.size(); ++position) {
    auto block = layout.slice(full.shape, position);
    if (!block) return fail(block.error());
    const std::vector<std::int64_t> begin = begins_of(*block);
    const std::vector<std::int64_t> sizes = sizes_of(*block);
    const bool all = sizes == full.shape;
    const DenseTensor part = all ? DenseTensor() : block_of(full, begin, sizes);
    const DenseTensor& expected = all ? full : part;
    const DeviceRank rank = mesh.rank_at(position);
    const DenseTensor& found = *held[static_cast<std::size_t>(position)];
    if (found.values.empty() && expected.values.empty()) continue;
    if (found.shape != expected.shape) return std::optional(ShardDifference{rank, true, {}, 0, 0});
    for (std::size_t i = 0; i < expected.values.size(); ++i) {
      if (equal(expected.values[i], found.values[i])) continue;
      ShardDifference difference{rank, false, begin, expected.values[i], found.values[i]};
      auto rest = static_cast<std::int64_t>(i);
      for (std::size_t d = begin.size(); d-- > 0;) {
        difference.index[d] += rest % expected.shape[d];
        rest /= expected.shape[d];
      }
      return std::optional(std::move(difference));
    }
  }
  return std::optional<ShardDifference>();
}

}  // namespace

Result<std::optional<ShardDifference>> first_difference(const VirtualDevices& devices,
                                                        const DenseTensor& full,
                                                        const Layout& layout,
                                                        double tolerance) {
  static const DenseTensor kNothing;
  std::vector<const DenseTensor*> held;
  for (std::int64_t position = 0; position < layout.mesh().size(); ++position) {
    const auto found = devices.tensors().find(layout.mesh().rank_at(position));
    held.push_back(found == devices.tensors().end() ? &kNothing : &found->second);
  }
  return difference_of(std::move(held), full, layout, tolerance);
}

Result<std::optional<ShardDifference>> first_difference(std::span<const DenseTensor> devices,
                                                        const DenseTensor& full,
                                                        const Layout& layout,
                                                        double tolerance) {
  std::vector<const DenseTensor*> held;
  for (const DenseTensor& device : devices) held.push_back(&device);
  return difference_of(std::move(held), full, layout, tolerance);
}

Result<void> check_devices(const VirtualDevices& devices,
                           const DenseTensor& full,
                           const Layout& layout) {
  const auto difference = first_difference(devices, full, layout);
  if (!difference) return fail(difference.error());
  if (!*difference) return {};
  const ShardDifference& first = **difference;
  std::string message = "device " + std::to_string(first.rank) + " holds ";
  if (first.other_shape) {
    message += "a shard of another shape";
  } else {
    message += std::to_string(first.found) + " as element [";
    for (std::size_t d = 0; d < first.index.size(); ++d)
      message += (d == 0 ? "" : ", ") + std::to_string(first.index[d]);
    message += "] of the tensor, expected " + std::to_string(first.expected);
  }
  return fail(ErrorCode::kConflict, "", std::move(message));
}

Result<void> verify_redistribution(std::span<const std::int64_t> shape,
                                   const Layout& from,
                                   const Layout& to,
                                   std::span<const ReplayStep> steps) {
  // Some step may hold the whole tensor on every device.
  std::int64_t numbers = std::max(from.mesh().size(), to.mesh().size());
  for (const std::int64_t size : shape) {
    if (size > 0 && numbers > kMostNumbers / size) {
      return fail(ErrorCode::kUnsupported,
                  "",
                  "the tensor is too large to be executed on virtual devices; use a smaller shape");
    }
    numbers *= std::max<std::int64_t>(size, 1);
  }
  DenseTensor full = DenseTensor::filled({shape.begin(), shape.end()}, 0.0);
  for (std::size_t i = 0; i < full.values.size(); ++i) full.values[i] = static_cast<double>(i + 1);
  auto devices = distribute(full, from);
  if (!devices) return fail(devices.error());
  for (std::size_t i = 0; i < steps.size(); ++i) {
    std::map<DeviceRank, std::vector<std::int64_t>> shapes;
    if (steps[i].collective == Collective::kSendReceive)
      shapes = received_shapes(steps[i], shape.size());
    if (auto done = devices->execute(steps[i], shapes); !done) {
      return fail(
          ErrorCode::kConflict, "", "step " + std::to_string(i + 1) + ": " + done.error().message);
    }
  }
  return check_devices(*devices, full, to);
}

}  // namespace meshplan

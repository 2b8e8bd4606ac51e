// SPDX-License-Identifier: Apache-2.0
// Virtual devices: each holds a tensor of real numbers; collectives act on them exactly as the
// communication libraries define them. They know nothing of meshes or layouts, so a sequence that
// leaves the right shards on them is right.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "lib/redistribution_replay.h"
#include "lib/result.h"

namespace meshplan {

/// A dense row-major tensor.
struct DenseTensor {
  std::vector<std::int64_t> shape;
  std::vector<double> values;

  static DenseTensor filled(std::vector<std::int64_t> shape, double value);
  friend bool operator==(const DenseTensor&, const DenseTensor&) = default;
};

/// Number of elements of a shape.
std::int64_t element_count(std::span<const std::int64_t> shape);
/// The block of `size` at `begin`. The block must lie inside.
DenseTensor block_of(const DenseTensor& tensor,
                     std::span<const std::int64_t> begin,
                     std::span<const std::int64_t> size);
/// Writes `block` into `tensor` at `begin`. The block must lie inside.
void place_block(DenseTensor& tensor,
                 std::span<const std::int64_t> begin,
                 const DenseTensor& block);
/// Piece `index` of `count` along `dim`: pieces of ceil(size / count), the last ones shorter or
/// empty.
DenseTensor piece_of(const DenseTensor& tensor, int dim, std::int64_t index, std::int64_t count);
/// Puts pieces together along `dim`; their other sizes must agree. Errors: kValue.
Result<DenseTensor> concatenated(std::span<const DenseTensor* const> pieces, int dim);
/// Element-wise reduction in the given order; shapes must agree. Errors: kValue.
Result<DenseTensor> reduced(std::span<const DenseTensor* const> terms, Reduction reduction);
/// The value that a reduction ignores: 0, 1 or an infinity (avg: 0, as in a sum).
double reduction_identity(Reduction reduction);

/// The devices of a job by rank.
class VirtualDevices {
 public:
  /// What device `rank` holds (an empty scalar tensor at first).
  DenseTensor& at(DeviceRank rank) { return tensors_[rank]; }
  const std::map<DeviceRank, DenseTensor>& tensors() const { return tensors_; }

  /// Executes one step on all its groups. `result_shape` is asked for the local shape that a rank
  /// has after a send_receive; other collectives do not need it. Errors: kValue where the step does
  /// not fit what the devices hold; then nothing has changed.
  Result<void> execute(const ReplayStep& step,
                       const std::map<DeviceRank, std::vector<std::int64_t>>& result_shapes = {});

 private:
  std::map<DeviceRank, DenseTensor> tensors_;
};

}  // namespace meshplan

// SPDX-License-Identifier: Apache-2.0
// Prices of computation on one device: the roofline with an efficiency per family of operators.
#pragma once

#include <cstdint>
#include <optional>

#include "cost_model/cluster.h"
#include "graph/dtype.h"
#include "graph/operator_family.h"
#include "lib/units.h"

namespace meshplan {

/// The local dimensions of a dense product [m, k] x [k, n].
struct MatMulDims {
  std::int64_t m = 1;
  std::int64_t n = 1;
  std::int64_t k = 1;
};

/// One pass of one operator over its largest local shard.
struct LocalWork {
  OperatorFamily family = OperatorFamily::kOther;
  double flops = 0;  ///< >= 0
  double bytes = 0;  ///< read and written; >= 0
  DType dtype = DType::kFp32;
  std::optional<MatMulDims> dims;  ///< of products; scales their rate by saturation and alignment
};

/// Prices passes of operators on one device. Immutable; safe to share by threads.
class ComputeModel {
 public:
  explicit ComputeModel(const Cluster& cluster);

  /// max(FLOPs / rate, bytes / rate) + launch overhead, on the price grid. Views, and passes
  /// without FLOPs and bytes, cost nothing.
  Seconds time(const LocalWork& work) const;
  Seconds roofline(OperatorFamily family,
                   double flops,
                   double bytes,
                   DType dtype,
                   const std::optional<MatMulDims>& dims = std::nullopt) const {
    return time({family, flops, bytes, dtype, dims});
  }

  /// A pass that only moves data.
  Seconds memory_pass(OperatorFamily family, double bytes) const {
    return time({family, 0.0, bytes, DType::kFp32, std::nullopt});
  }

  /// The update of parameters and their state, which reads and writes `bytes`; no launch overhead,
  /// since one kernel updates many parameters.
  Seconds optimizer_time(double bytes) const;

  /// FLOP per second that the family can reach at most: the device's peak for this type, or for
  /// the next type that can hold its values where the device has none. Families that do not run on
  /// matrix units count at fp32.
  double peak_flops(OperatorFamily family, DType dtype) const;

  /// Product of m / (m + half) over the three dimensions, in (0, 1).
  double saturation(const MatMulDims& dims) const;
  double alignment(const MatMulDims& dims) const;

  /// Backward over forward time of fused attention.
  double attention_backward_factor() const { return efficiency_.attention_backward_factor; }

 private:
  Device device_;
  Efficiency efficiency_;
};

}  // namespace meshplan

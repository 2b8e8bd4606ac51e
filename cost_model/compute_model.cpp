// SPDX-License-Identifier: Apache-2.0
#include "cost_model/compute_model.h"

#include <algorithm>
#include <span>

#include "lib/check.h"

namespace meshplan {
namespace {

/// The types at whose rate products of this type can run, the best first.
std::span<const DType> runs_as(DType dtype) {
  static constexpr DType kFp8A[] = {
      DType::kFp8E4M3, DType::kFp8E5M2, DType::kBf16, DType::kFp16, DType::kFp32};
  static constexpr DType kFp8B[] = {
      DType::kFp8E5M2, DType::kFp8E4M3, DType::kBf16, DType::kFp16, DType::kFp32};
  static constexpr DType kHalf[] = {DType::kFp16, DType::kFp32};
  static constexpr DType kBrain[] = {DType::kBf16, DType::kFp32};
  static constexpr DType kSingle[] = {DType::kFp32, DType::kFp64};
  static constexpr DType kDouble[] = {DType::kFp64, DType::kFp32};
  static constexpr DType kByte[] = {DType::kInt8, DType::kFp16, DType::kBf16, DType::kFp32};
  static constexpr DType kWord[] = {DType::kInt32, DType::kFp32};
  switch (dtype) {
    case DType::kFp8E4M3:
      return kFp8A;
    case DType::kFp8E5M2:
      return kFp8B;
    case DType::kFp16:
      return kHalf;
    case DType::kBf16:
      return kBrain;
    case DType::kFp32:
      return kSingle;
    case DType::kFp64:
      return kDouble;
    case DType::kBool:
    case DType::kUInt8:
    case DType::kInt8:
      return kByte;
    case DType::kInt16:
    case DType::kInt32:
    case DType::kInt64:
      return kWord;
  }
  MESHPLAN_CHECK(false);
}

bool on_matrix_units(OperatorFamily family) {
  switch (family) {
    case OperatorFamily::kMatMul:
    case OperatorFamily::kAttention:
    case OperatorFamily::kConvolution:
      return true;
    case OperatorFamily::kNormalization:
    case OperatorFamily::kElementwise:
    case OperatorFamily::kEmbedding:
    case OperatorFamily::kReduction:
    case OperatorFamily::kLoss:
    case OperatorFamily::kView:
    case OperatorFamily::kOther:
      return false;
  }
  MESHPLAN_CHECK(false);
}

double saturated(std::int64_t size, double half) {
  const double s = static_cast<double>(std::max<std::int64_t>(size, 1));
  return s / (s + half);
}

}  // namespace

ComputeModel::ComputeModel(const Cluster& cluster)
    : device_(cluster.device), efficiency_(cluster.efficiency) {
  MESHPLAN_CHECK(!device_.peak_flops.empty());
}

double ComputeModel::peak_flops(OperatorFamily family, DType dtype) const {
  const bool matrix = on_matrix_units(family);
  if (matrix && dtype == DType::kFp32 && efficiency_.use_tf32 && device_.tf32_peak_flops) {
    return *device_.tf32_peak_flops;
  }
  for (const DType candidate : runs_as(matrix || dtype == DType::kFp64 ? dtype : DType::kFp32)) {
    const auto found = device_.peak_flops.find(candidate);
    if (found != device_.peak_flops.end()) return found->second;
  }
  // Nothing fits: the slowest rate that is known.
  double least = device_.peak_flops.begin()->second;
  for (const auto& [type, rate] : device_.peak_flops) least = std::min(least, rate);
  return least;
}

double ComputeModel::saturation(const MatMulDims& dims) const {
  const MatMulSaturation& half = efficiency_.matmul_half;
  return saturated(dims.m, half.m) * saturated(dims.n, half.n) * saturated(dims.k, half.k);
}

double ComputeModel::alignment(const MatMulDims& dims) const {
  const MatMulAlignment& alignment = efficiency_.matmul_alignment;
  double rate = 1;
  for (const std::int64_t size : {dims.m, dims.n, dims.k}) {
    if (size < alignment.elements || size % alignment.elements == 0) continue;
    rate = std::min(rate, size % 8 == 0 ? alignment.eighths : alignment.odd);
  }
  return rate;
}

Seconds ComputeModel::time(const LocalWork& work) const {
  MESHPLAN_CHECK(work.flops >= 0 && work.bytes >= 0);
  if (work.family == OperatorFamily::kView || (work.flops == 0 && work.bytes == 0)) return {};
  const FamilyEfficiency& efficiency = efficiency_.of(work.family);
  double rate = peak_flops(work.family, work.dtype) * efficiency.flops;
  if (work.dims) rate *= saturation(*work.dims) * alignment(*work.dims);
  const double compute = work.flops / rate;
  const double memory = work.bytes / (device_.memory_bandwidth * efficiency.memory);
  return on_price_grid({std::max(compute, memory) + efficiency_.launch_overhead.value});
}

Seconds ComputeModel::optimizer_time(double bytes) const {
  if (bytes <= 0) return {};
  return on_price_grid({bytes / (device_.memory_bandwidth * efficiency_.optimizer_memory)});
}

}  // namespace meshplan

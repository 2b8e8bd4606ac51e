// SPDX-License-Identifier: Apache-2.0
// Clusters for tests: round numbers, so that expected times can be written down.
#pragma once

#include <string>
#include <vector>

#include "cost_model/cluster.h"

namespace meshplan::test {

/// A level without efficiency curves: `size` parts, bandwidth in GB/s, latency in microseconds.
inline Level level(std::int64_t size, double gigabytes, double microseconds) {
  Level result;
  result.name = "l" + std::to_string(size) + "x" + std::to_string(static_cast<int>(gigabytes));
  result.size = size;
  result.bandwidth = gigabytes * 1e9;
  result.latency = {microseconds * 1e-6};
  return result;
}

/// Devices of 100 TFLOPS (bf16), 10 TFLOPS (fp32), 1 TB/s and 16 GiB, used to the full.
inline Cluster cluster(std::vector<Level> levels) {
  Cluster result;
  result.name = "test";
  result.device.name = "unit";
  result.device.memory = Bytes{16} << 30;
  result.device.memory_bandwidth = 1e12;
  result.device.peak_flops = {{DType::kBf16, 100e12}, {DType::kFp32, 10e12}};
  result.levels = std::move(levels);
  for (FamilyEfficiency& family : result.efficiency.families) family = {1.0, 1.0};
  result.efficiency.optimizer_memory = 1.0;
  result.efficiency.matmul_half = {0, 0, 0};
  result.efficiency.launch_overhead = {0};
  return result;
}

}  // namespace meshplan::test

// SPDX-License-Identifier: Apache-2.0
// The machine that a plan is made for: devices, the levels of its network, and how much of their
// peak rates real programs reach. Plain data; read from a file by apps/cluster_reader.h.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "graph/dtype.h"
#include "graph/operator_family.h"
#include "lib/collective.h"
#include "lib/result.h"
#include "lib/units.h"

namespace meshplan {

/// One accelerator.
struct Device {
  std::string name;
  Bytes memory = 0;
  Bytes reserved_memory = 0;    ///< kept free: driver, communication library, other processes
  double memory_bandwidth = 0;  ///< bytes per second
  std::map<DType, double> peak_flops;  ///< FLOP per second of dense products; never empty
  std::optional<double>
      tf32_peak_flops;  ///< fp32 products on matrix units, where the device has them
};

/// Message size -> fraction of the link's bandwidth that a collective reaches, as benchmarks such
/// as nccl-tests report it ("bus bandwidth" over link bandwidth) on one number of devices. What
/// counts is the size of one piece, a message on one link, so that the curve of one number of
/// devices tells the others. Between two points the transfer *time* is interpolated, so that time
/// grows with size and the fraction does not fall.
/// Example: {1 MiB, 0.25}, {64 MiB, 0.8} of 8 devices: pieces of up to 128 KiB reach 0.25, pieces
/// from 8 MiB reach 0.8.
struct BandwidthCurve {
  struct Point {
    Bytes bytes = 0;
    double fraction = 1;
    friend bool operator==(const Point&, const Point&) = default;
  };
  std::vector<Point>
      points;  ///< sizes ascend, neither fraction nor bytes / fraction falls; empty: 1
  std::int64_t devices = 1;  ///< on which the sizes were measured: a piece is 1 / devices
  std::int64_t sharing = 1;  ///< of these, devices whose links carry a piece of a ring together

  /// 1 / fraction at this size on those devices; never grows with the size.
  double slowdown(double size) const;
  friend bool operator==(const BandwidthCurve&, const BandwidthCurve&) = default;
};

/// Curves per collective, with one for those that have none of their own.
struct CollectiveCurves {
  BandwidthCurve common;
  std::map<Collective, BandwidthCurve> own;

  const BandwidthCurve& of(Collective collective) const;
  friend bool operator==(const CollectiveCurves&, const CollectiveCurves&) = default;
};

/// How the units inside a level are wired.
enum class Wiring : std::uint8_t {
  kSwitch,          ///< each reaches any other at its full bandwidth
  kFullyConnected,  ///< one link to every other: a group of n uses (n - 1) / (size - 1) of them
};

/// "switch", "fully_connected": the names used in cluster files.
const char* wiring_name(Wiring wiring);

/// An all-reduce that the network's switches do.
struct InNetworkReduction {
  double bandwidth = 0;  ///< bytes of the all-reduce per second
  Seconds latency;       ///< of the whole
  friend bool operator==(const InNetworkReduction&, const InNetworkReduction&) = default;
};

/// One level of the network. A unit of level i is made of `size` units of level i - 1 (devices for
/// i = 0), e.g. 8 devices to a node, 16 nodes to a pod.
struct Level {
  std::string name;
  std::int64_t size = 1;
  double bandwidth = 0;         ///< bytes per second, per device and direction, all devices sending
  Seconds latency;              ///< of one message
  double oversubscription = 1;  ///< the only thing that reduces bandwidth further; >= 1
  Wiring wiring = Wiring::kSwitch;
  /// What all devices of one group inside one unit reach together; none: the sum of their own.
  std::optional<double> group_bandwidth;
  std::optional<InNetworkReduction> in_network_all_reduce;
  std::optional<CollectiveCurves> collectives;  ///< instead of Efficiency::collectives

  double effective_bandwidth() const { return bandwidth / oversubscription; }
  /// The same wires, `factor` times as fast; latencies stay.
  void scale_bandwidth(double factor);
};

/// Which ways beside a ring a collective may run.
struct CollectiveAlgorithms {
  /// All-reduces over a tree of the units of each level, all levels at work at the same time.
  bool tree = true;
  /// Several calls over parts of the group, one after the other.
  bool staged = true;
  friend bool operator==(const CollectiveAlgorithms&, const CollectiveAlgorithms&) = default;
};

/// How much of its time a kind of communication can hide behind computation: 0 none, 1 all.
struct Overlap {
  double gradient = 0.8;    ///< reduction of parameters' gradients
  double gather = 0.8;      ///< gathering of sharded parameters
  double ring = 0.8;        ///< exchanges of ring attention
  double activation = 0.0;  ///< redistribution of activations and their gradients
  double expert = 0.0;      ///< exchange of tokens between experts
  friend bool operator==(const Overlap&, const Overlap&) = default;
};

/// Fractions of the device's peak rates that a family of operators reaches.
struct FamilyEfficiency {
  double flops = 0.7;   ///< of peak_flops; for products before the saturation in their dimensions
  double memory = 0.7;  ///< of memory_bandwidth
  friend bool operator==(const FamilyEfficiency&, const FamilyEfficiency&) = default;
};

/// Dimension of a local product at which half of the rate is reached: m / (m + half).
struct MatMulSaturation {
  double m = 64;
  double n = 64;
  double k = 64;
  friend bool operator==(const MatMulSaturation&, const MatMulSaturation&) = default;
};

/// What is left of a local product's rate where a dimension of `elements` or more is no multiple of
/// them: `eighths` if all of these are multiples of 8, otherwise `odd`.
struct MatMulAlignment {
  std::int64_t elements = 64;
  double eighths = 1;
  double odd = 1;
  friend bool operator==(const MatMulAlignment&, const MatMulAlignment&) = default;
};

inline constexpr int kOperatorFamilyCount = static_cast<int>(OperatorFamily::kOther) + 1;

/// "matmul", "attention", "convolution", "normalization", "elementwise", "embedding", "reduction",
/// "loss", "view", "other": the names used in cluster files.
const char* operator_family_name(OperatorFamily family);

/// What the peak rates do not say. The defaults are those of a cluster file without "efficiency";
/// docs/clusters.md says where each comes from.
struct Efficiency {
  std::array<FamilyEfficiency, kOperatorFamilyCount> families;
  double optimizer_memory = 0.7;  ///< of memory_bandwidth, by the update of parameters
  MatMulSaturation matmul_half;
  MatMulAlignment matmul_alignment;
  bool use_tf32 = false;              ///< fp32 products run at tf32_peak_flops
  Seconds launch_overhead = {4e-6};   ///< per operator and pass
  Seconds collective_overhead = {0};  ///< per collective call, before its first message
  /// Bytes per second at which a gather copies each device's own piece to its place and a scatter
  /// reads it; none: that costs nothing.
  std::optional<double> own_piece_bandwidth;
  CollectiveCurves collectives;
  CollectiveAlgorithms algorithms;
  Overlap overlap;
  Bytes bucket_bytes = 25'000'000;         ///< smaller gradient collectives share their latency
  double allocator_reserve = 0.0;          ///< fraction of the peak that fragmentation takes
  DType reduce_dtype = DType::kFp32;       ///< in which gradients travel
  double attention_backward_factor = 2.5;  ///< backward / forward of fused attention

  const FamilyEfficiency& of(OperatorFamily family) const {
    return families[static_cast<std::size_t>(family)];
  }
};

/// What an operator was measured to take on one device; replaces the roofline where it applies.
struct Measurement {
  std::string type;  ///< of the operator, e.g. "MatMul"
  std::vector<std::vector<std::int64_t>>
      inputs;                  ///< local shapes of the operands, omitted ones: {}
  DType dtype = DType::kFp32;  ///< of the first operand
  Seconds forward;
  std::optional<Seconds> backward;  ///< none: the roofline's
};

/// The most devices that a cluster may have.
inline constexpr std::int64_t kMaxDevices = std::int64_t{1} << 20;
/// The most levels that a cluster may have.
inline constexpr int kMaxLevels = 8;

struct Cluster {
  std::string name;
  std::string fingerprint;  ///< "sha256:..." of the file's content, whatever its formatting
  Device device;
  std::vector<Level> levels;  ///< from the innermost outwards; at least one
  Efficiency efficiency;
  std::vector<Measurement> measurements;        ///< no two of one type, shapes and dtype
  std::optional<double> price_per_device_hour;  ///< in any currency

  /// The product of the levels' sizes. Ranks run fastest over the innermost level.
  std::int64_t devices() const;
  /// Memory that a plan may use on one device.
  Bytes usable_memory() const { return device.memory - device.reserved_memory; }
  /// The memory limit of plans: what is usable, without the allocator's reserve.
  Bytes plan_memory() const {
    return static_cast<Bytes>(static_cast<double>(usable_memory()) /
                              (1 + efficiency.allocator_reserve));
  }

  /// The same machine with another number of devices: the outermost level is scaled; below the
  /// product of the inner levels, outer levels become 1 and the level inside them is scaled or, the
  /// innermost one, cut. Fully connected levels keep the bandwidth of a link. Errors: kUsage where
  /// that does not give exactly `count`.
  Result<Cluster> resized(std::int64_t count) const;
};

}  // namespace meshplan

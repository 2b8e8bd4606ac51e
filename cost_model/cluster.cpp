// SPDX-License-Identifier: Apache-2.0
#include "cost_model/cluster.h"

#include <algorithm>
#include <utility>

#include "lib/check.h"

namespace meshplan {

const char* operator_family_name(OperatorFamily family) {
  switch (family) {
    case OperatorFamily::kMatMul:
      return "matmul";
    case OperatorFamily::kAttention:
      return "attention";
    case OperatorFamily::kConvolution:
      return "convolution";
    case OperatorFamily::kNormalization:
      return "normalization";
    case OperatorFamily::kElementwise:
      return "elementwise";
    case OperatorFamily::kEmbedding:
      return "embedding";
    case OperatorFamily::kReduction:
      return "reduction";
    case OperatorFamily::kLoss:
      return "loss";
    case OperatorFamily::kView:
      return "view";
    case OperatorFamily::kOther:
      return "other";
  }
  MESHPLAN_CHECK(false);
}

const char* wiring_name(Wiring wiring) {
  switch (wiring) {
    case Wiring::kSwitch:
      return "switch";
    case Wiring::kFullyConnected:
      return "fully_connected";
  }
  MESHPLAN_CHECK(false);
}

double BandwidthCurve::slowdown(double size) const {
  if (points.empty()) return 1.0;
  if (size <= static_cast<double>(points.front().bytes)) return 1.0 / points.front().fraction;
  if (size >= static_cast<double>(points.back().bytes)) return 1.0 / points.back().fraction;
  const auto right =
      std::upper_bound(points.begin(), points.end(), size, [](double b, const Point& p) {
        return b < static_cast<double>(p.bytes);
      });
  const auto left = right - 1;
  const double left_bytes = static_cast<double>(left->bytes);
  const double right_bytes = static_cast<double>(right->bytes);
  const double left_time = left_bytes / left->fraction;
  const double right_time = right_bytes / right->fraction;
  const double share = (size - left_bytes) / (right_bytes - left_bytes);
  return (left_time + share * (right_time - left_time)) / size;
}

const BandwidthCurve& CollectiveCurves::of(Collective collective) const {
  const auto found = own.find(collective);
  return found == own.end() ? common : found->second;
}

std::int64_t Cluster::devices() const {
  std::int64_t product = 1;
  for (const Level& level : levels) product *= level.size;
  return product;
}

void Level::scale_bandwidth(double factor) {
  bandwidth *= factor;
  if (group_bandwidth) *group_bandwidth *= factor;
  if (in_network_all_reduce) in_network_all_reduce->bandwidth *= factor;
}

Result<Cluster> Cluster::resized(std::int64_t count) const {
  const auto refuse = [&](const std::string& why) {
    return fail(
        ErrorCode::kUsage,
        "--devices",
        std::to_string(count) + " devices are not possible on cluster \"" + name + "\": " + why);
  };
  if (count < 1 || count > kMaxDevices) {
    return refuse("between 1 and " + std::to_string(kMaxDevices) + " were expected");
  }
  Cluster result = *this;
  // The level to scale: the outermost one whose inner units are not larger than the request.
  std::size_t scaled = levels.size() - 1;
  std::int64_t inner = devices() / levels.back().size;
  while (scaled > 0 && count < inner) {
    result.levels[scaled].size = 1;
    --scaled;
    inner /= levels[scaled].size;
  }
  if (count % inner != 0) {
    const std::int64_t below = count / inner * inner;
    return refuse("level \"" + levels[scaled].name + "\" grows in steps of " +
                  std::to_string(inner) + " devices; the nearest numbers are " +
                  std::to_string(below) + " and " + std::to_string(below + inner));
  }
  result.levels[scaled].size = count / inner;
  for (std::size_t l = 0; l < levels.size(); ++l) {
    Level& level = result.levels[l];
    if (level.wiring != Wiring::kFullyConnected || level.size == levels[l].size ||
        level.size == 1 || levels[l].size == 1) {
      continue;
    }
    level.bandwidth *=
        static_cast<double>(level.size - 1) / static_cast<double>(levels[l].size - 1);
  }
  return result;
}

}  // namespace meshplan

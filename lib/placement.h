// SPDX-License-Identifier: Apache-2.0
// Placement: what one mesh axis does with a tensor. Printed R, S(1), SS(0,4), P(sum).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "lib/result.h"

namespace meshplan {

/// How the values of a Partial tensor combine.
enum class Reduction : std::uint8_t { kSum, kMax, kMin, kAvg, kProd };

/// "sum", "max", "min", "avg", "prod".
const char* reduction_name(Reduction reduction);
/// Reads a name in any case ("sum", "SUM"). Errors: kValue with the names that exist.
Result<Reduction> parse_reduction(std::string_view text);

/// Every device along the axis holds the same data.
struct Replicate {
  friend auto operator<=>(const Replicate&, const Replicate&) = default;
};

/// Tensor dimension `dim` (>= 0 once resolved; negative counts from the end) is cut along the axis.
struct Shard {
  int dim = 0;
  friend auto operator<=>(const Shard&, const Shard&) = default;
};

/// A Shard whose pieces are not in mesh order: `split_factor` is the product of the sizes of the
/// mesh axes to the right that cut the same dimension before this one. Example on a 2x4 mesh:
/// tensor map ((0,1),-1) is [SS(0,4), S(0)].
struct StridedShard {
  int dim = 0;
  std::int64_t split_factor = 2;
  friend auto operator<=>(const StridedShard&, const StridedShard&) = default;
};

/// Each device holds a summand (or max, ... operand); the value is the reduction over the axis.
struct Partial {
  Reduction reduction = Reduction::kSum;
  friend auto operator<=>(const Partial&, const Partial&) = default;
};

using Placement = std::variant<Replicate, Shard, StridedShard, Partial>;
/// One placement per mesh axis, in mesh order.
using Placements = std::vector<Placement>;

/// "R", "S(1)", "SS(0,4)", "P(sum)".
std::string to_string(const Placement& placement);
/// "S(0),R".
std::string to_string(std::span<const Placement> placements);

/// Reads the short and the long form ("Replicate", "Shard(1)", "Partial(sum)", "P" = "P(sum)").
/// Errors: kValue with what was expected.
Result<Placement> parse_placement(std::string_view text);
/// Reads "S(0),R" (commas inside parentheses do not separate). An error's `where` is the index of
/// the faulty entry, e.g. "/1".
Result<Placements> parse_placements(std::string_view text);

/// A Shard or StridedShard (of this dimension, if given).
bool is_shard(const Placement& placement, std::optional<int> dim = std::nullopt);
bool is_replicate(const Placement& placement);
/// A Partial (of this reduction, if given).
bool is_partial(const Placement& placement, std::optional<Reduction> reduction = std::nullopt);

/// Equal placements have equal hashes; the same on every machine.
std::size_t hash_value(const Placement& placement);

}  // namespace meshplan

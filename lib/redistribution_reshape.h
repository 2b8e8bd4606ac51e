// SPDX-License-Identifier: Apache-2.0
// Redistribution across a view: a chain of reshapes and transposes between two layouts.
//
// Both shapes are products of common factors. Example: (8,16) reshaped to (2,4,16) has the factors
// 2, 4, 16; dimension 0 of the input is (2,4), dimensions 0 and 1 of the output are 2 and 4. An
// axis of size 2 that cuts input dimension 0 cuts the factor 2, and so output dimension 0: nothing
// moves.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "lib/placement.h"
#include "lib/redistribution.h"
#include "lib/result.h"

namespace meshplan {

/// How the dimensions of two tensors with the same elements correspond.
class ViewRelation {
 public:
  /// The tensor itself. Errors: kValue (negative size), kOverflow.
  static Result<ViewRelation> make(std::vector<std::int64_t> shape);

  /// Appends a reshape; row-major order of the elements is kept. Errors: kValue (another number of
  /// elements, negative size).
  Result<void> reshape(const std::vector<std::int64_t>& shape);
  /// Appends a transpose: output dimension i is dimension permutation[i] so far. Errors: kValue.
  Result<void> transpose(const std::vector<int>& permutation);

  const std::vector<std::int64_t>& input_shape() const { return input_shape_; }
  const std::vector<std::int64_t>& output_shape() const { return output_shape_; }

  /// The placements under which every device's part of the output is its part of the input, or
  /// nothing where there are none. Uneven cuts pass where a whole dimension does.
  std::optional<Placements> carry(std::span<const std::int64_t> axis_sizes,
                                  std::span<const Placement> input) const;

  /// "out 0 <- in 0 / 4; out 1 <- in 0 % 4 / 1", one part per output dimension and factor.
  std::string to_string() const;

 private:
  ViewRelation() = default;
  void split(int factor, std::int64_t major);

  std::vector<std::int64_t> input_shape_;
  std::vector<std::int64_t> output_shape_;
  std::vector<std::int64_t> factors_;         ///< sizes, each at least 2
  std::vector<std::vector<int>> input_dims_;  ///< factors of a dimension, outermost first
  std::vector<std::vector<int>> output_dims_;
};

/// What to do before and after a view.
struct RedistributionThroughView {
  Redistribution before;  ///< of the input, from its layout to `input`
  Placements input;
  Placements output;     ///< what the view makes of `input`
  Redistribution after;  ///< of the output, from `output` to the layout wanted
  Seconds time;
};

/// The cheapest way from a layout of the input to a layout of the output: what lines up stays, the
/// rest is redistributed on either side. Errors: as RedistributionPlanner::plan.
Result<RedistributionThroughView> redistribute_through(RedistributionPlanner& planner,
                                                       const ViewRelation& view,
                                                       Bytes dtype_bytes,
                                                       std::span<const Placement> from,
                                                       std::span<const Placement> to);

}  // namespace meshplan

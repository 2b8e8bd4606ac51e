// SPDX-License-Identifier: Apache-2.0
// Values of the named dimensions of a graph document, and of sizes written with them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "graph/graph_document.h"
#include "lib/result.h"

namespace meshplan {

/// The bytes of one tensor may not exceed this.
constexpr std::int64_t kMostTensorBytes = std::int64_t{1} << 62;

/// A tensor may not have more dimensions than this.
constexpr std::size_t kMostDimensions = 32;

class DimensionSizes {
 public:
  /// The dimensions of `document` with "batch" divided by `microbatches`. Errors: kValue (a name
  /// that no expression can use, a batch that does not divide), kMissing (no batch to divide),
  /// kDuplicate.
  static Result<DimensionSizes> make(const GraphDocument& document, std::int64_t microbatches);

  /// The value of a number (any) or of a product of names and positive numbers: "batch*seq", "2*h".
  /// Errors (with an empty `where`, the caller knows it): kMissing with the nearest dimension,
  /// kValue, kOverflow.
  Result<std::int64_t> evaluate(const Size& size) const;

 private:
  Result<std::int64_t> factor(std::string_view text) const;

  std::map<std::string, std::int64_t, std::less<>> values_;
};

/// Bytes of a tensor of this type. Errors (with an empty `where`): kOverflow beyond
/// kMostTensorBytes, kUnsupported beyond kMostDimensions.
Result<std::int64_t> tensor_bytes(const Shape& shape, DType dtype);

}  // namespace meshplan

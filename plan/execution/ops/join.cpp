// SPDX-License-Identifier: Apache-2.0
// Joining, cutting, padding, repeating: every entry of the result has one place that it comes from,
// by global position along each dimension. What another shard holds counts as 0.
#include <algorithm>

#include "plan/execution/ops/meanings.h"

namespace meshplan {
namespace {

using Results = std::vector<Var>;
using Sources = std::vector<std::int64_t>;  ///< global position that each entry comes from, or -1

Results join(const OperatorContext& cx) {
  const std::size_t axis = cx.axis(0, cx.result_shape(0).size());
  const std::int64_t total = cx.result_shape(0)[axis];
  Var y;
  std::int64_t begin = 0;
  for (std::size_t i = 0; i < cx.operand_count(); ++i) {
    const std::int64_t size = cx.operand_shape(i)[axis];
    Sources source(static_cast<std::size_t>(total), -1);
    for (std::int64_t p = 0; p < size && begin + p < total; ++p)
      source[static_cast<std::size_t>(begin + p)] = p;
    const Var part = cx.take_global(cx.operand(i), i, axis, 0, axis, source);
    y = i == 0 ? part : y + part;
    begin += size;
  }
  return {y};
}

Results cut(const OperatorContext& cx) {
  const std::size_t axis = cx.axis(0, cx.operand_shape(0).size());
  Results results;
  std::int64_t begin = 0;
  for (std::size_t r = 0; r < cx.result_count(); ++r) {
    Sources source;
    for (std::int64_t p = 0; p < cx.result_shape(r)[axis]; ++p) source.push_back(begin + p);
    results.push_back(cx.take_global(cx.operand(0), 0, axis, r, axis, source));
    begin += cx.result_shape(r)[axis];
  }
  return results;
}

std::size_t dimension(std::int64_t axis, std::size_t rank) {
  return static_cast<std::size_t>(axis < 0 ? axis + static_cast<std::int64_t>(rank) : axis);
}

Results slice(const OperatorContext& cx) {
  const std::size_t rank = cx.operand_shape(0).size();
  const auto starts = cx.integers("starts").value_or(Sources());
  const auto axes = cx.integers("axes");
  const auto steps = cx.integers("steps");
  Var y = cx.operand(0);
  for (std::size_t i = 0; i < starts.size(); ++i) {
    const std::size_t d = axes ? dimension((*axes)[i], rank) : i;
    const std::int64_t size = cx.operand_shape(0)[d];
    const std::int64_t step = steps ? (*steps)[i] : 1;
    const std::int64_t start = std::clamp<std::int64_t>(
        starts[i] < 0 ? starts[i] + size : starts[i], 0, step > 0 ? size : size - 1);
    Sources source;
    for (std::int64_t p = 0; p < cx.result_shape(0)[d]; ++p)
      source.push_back(p == 0 ? start : start + p * step);
    y = cx.take_global(y, 0, d, 0, d, source);
  }
  return {y};
}

/// Where a padded position comes from; -1: the constant.
std::int64_t padded_source(std::int64_t p, std::int64_t size, const std::string& mode) {
  if (p >= 0 && p < size) return p;
  if (mode == "edge") return std::clamp<std::int64_t>(p, 0, size - 1);
  if (mode == "wrap") return ((p % size) + size) % size;
  if (mode == "reflect") return p < 0 ? -p : 2 * (size - 1) - p;
  return -1;
}

Results pad(const OperatorContext& cx) {
  const std::size_t rank = cx.operand_shape(0).size();
  const auto pads = cx.integers("pads").value_or(Sources(2 * rank, 0));
  const auto axes = cx.integers("axes");
  const std::string mode = cx.text("mode", "constant");
  const double fill = cx.has(1) ? cx.operand(1).value().values[0] : cx.number("value", 0);
  const std::size_t count = axes ? axes->size() : rank;
  Var y = cx.operand(0);
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t d = axes ? dimension((*axes)[i], rank) : i;
    if (pads[i] == 0 && pads[i + count] == 0) continue;
    Sources source;
    for (std::int64_t p = 0; p < cx.result_shape(0)[d]; ++p)
      source.push_back(padded_source(p - pads[i], cx.operand_shape(0)[d], mode));
    y = cx.take_global(y, 0, d, 0, d, source, fill);
  }
  return {y.valid() ? y * 1.0 : y};
}

Results tile(const OperatorContext& cx) {
  Var y = cx.operand(0);
  for (std::size_t d = 0; d < cx.operand_shape(0).size(); ++d) {
    Sources source;
    for (std::int64_t p = 0; p < cx.result_shape(0)[d]; ++p)
      source.push_back(p % cx.operand_shape(0)[d]);
    y = cx.take_global(y, 0, d, 0, d, source);
  }
  return {y};
}

constexpr MeaningRow kRows[] = {
    {"Concat", join},
    {"Pad", pad},
    {"Slice", slice},
    {"Split", cut},
    {"Tile", tile},
};

}  // namespace

std::span<const MeaningRow> join_meanings() { return kRows; }

}  // namespace meshplan

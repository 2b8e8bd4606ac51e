// SPDX-License-Identifier: Apache-2.0
// Operators that rename or regroup dimensions. Shards of a compound dimension are blocks, so a
// device regroups its own elements.
#include "plan/execution/ops/meanings.h"

namespace meshplan {
namespace {

using Results = std::vector<Var>;

Results regroup(const OperatorContext& cx) { return {reshape(cx.operand(0), cx.local_result(0))}; }

Results transpose(const OperatorContext& cx) {
  std::vector<std::size_t> order;
  if (const auto perm = cx.integers("perm")) {
    for (const std::int64_t d : *perm) order.push_back(static_cast<std::size_t>(d));
  } else {
    for (std::size_t d = cx.operand_shape(0).size(); d-- > 0;) order.push_back(d);
  }
  return {permute(cx.operand(0), order)};
}

Results expand(const OperatorContext& cx) { return {broadcast(cx.operand(0), cx.local_result(0))}; }

constexpr MeaningRow kRows[] = {
    {"Expand", expand},
    {"Flatten", regroup},
    {"Reshape", regroup},
    {"Squeeze", regroup},
    {"Transpose", transpose},
    {"Unsqueeze", regroup},
};

}  // namespace

std::span<const MeaningRow> shape_meanings() { return kRows; }

}  // namespace meshplan

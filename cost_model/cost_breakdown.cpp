// SPDX-License-Identifier: Apache-2.0
#include "cost_model/cost_breakdown.h"

#include <algorithm>
#include <limits>

#include "graph/tensor_state.h"

namespace meshplan {
namespace {

constexpr std::size_t kWorks = static_cast<std::size_t>(Work::kOptimizer) + 1;
constexpr std::size_t kCollectives = static_cast<std::size_t>(Collective::kMask) + 1;
constexpr std::size_t kAxisSets = std::size_t{1} << kPlanMeshAxes;

/// Where a kind on a set of axes stands among all cells.
std::size_t position_of(const CostCell& cell) {
  if (const auto* work = std::get_if<Work>(&cell.kind)) return static_cast<std::size_t>(*work);
  const auto collective = static_cast<std::size_t>(std::get<Collective>(cell.kind));
  return kWorks + collective * kAxisSets + cell.axes;
}

}  // namespace

CostBreakdown::CostBreakdown(std::size_t operators)
    : cells_(kWorks + kCollectives * kAxisSets), operators_(operators) {}

void CostBreakdown::add(OperatorId op, std::int64_t executions, const CostCell& one) {
  constexpr Bytes kMost = std::numeric_limits<Bytes>::max();
  CostCell& cell = cells_[position_of(one)];
  const auto times = static_cast<double>(executions);
  cell.kind = one.kind;
  cell.axes = one.axes;
  cell.objective += times * one.objective;
  cell.time += times * one.time;
  Bytes bytes = 0;
  if (__builtin_mul_overflow(executions, one.bytes, &bytes) ||
      __builtin_add_overflow(cell.bytes, bytes, &cell.bytes)) {
    cell.bytes = kMost;
  }
  operators_[index(op)] += times * one.objective;
}

std::vector<CostCell> CostBreakdown::cells() const {
  std::vector<CostCell> filled;
  std::copy_if(cells_.begin(), cells_.end(), std::back_inserter(filled), [](const CostCell& cell) {
    return cell.time.value > 0 || cell.bytes > 0;
  });
  return filled;
}

Seconds CostBreakdown::objective() const {
  Seconds sum;
  for (const CostCell& cell : cells_) sum += cell.objective;
  return sum;
}

}  // namespace meshplan

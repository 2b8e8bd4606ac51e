// SPDX-License-Identifier: Apache-2.0
// CostBreakdown: where the objective of a plan goes. Every price enters it once, with the operator
// that it is for, what takes the time and on which mesh axes; all sums are exact.
#pragma once

#include <cstdint>
#include <vector>

#include "cost_model/cost_kinds.h"
#include "graph/graph.h"
#include "lib/units.h"

namespace meshplan {

/// What one kind of work or collective takes per step, on one set of mesh axes.
struct CostCell {
  CostKind kind;
  AxisSet axes = 0;   ///< none for work without a collective
  Seconds objective;  ///< the part of the objective
  Seconds time;       ///< with what is hidden
  Bytes bytes = 0;    ///< sent by one device; stays at the largest number where it would overflow
  friend bool operator==(const CostCell&, const CostCell&) = default;
};

class CostBreakdown {
 public:
  explicit CostBreakdown(std::size_t operators = 0);

  /// `executions` times `one`, on account of `op`.
  void add(OperatorId op, std::int64_t executions, const CostCell& one);

  /// Work first, then collectives by kind and axes; without empty ones.
  std::vector<CostCell> cells() const;
  /// Per operator: its work, the collectives inside it, what brings its operands and takes their
  /// gradients back, and the update of parameters that it reads first.
  const std::vector<Seconds>& operators() const { return operators_; }
  /// The sum of all cells, which is that of all operators.
  Seconds objective() const;

 private:
  std::vector<CostCell> cells_;  ///< by kind and axes
  std::vector<Seconds> operators_;
};

}  // namespace meshplan

// SPDX-License-Identifier: Apache-2.0
// The collectives inside an operator that its rule and strategy imply: statistics over cut factors,
// halos of windows, keys and values around a ring, tokens to their experts. What they cost is the
// price book's business.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/graph.h"
#include "graph/operator_info.h"
#include "lib/collective.h"
#include "lib/units.h"

namespace meshplan {

/// When a collective runs beside computation, and which fraction of it is free.
enum class OverlapKind : std::uint8_t { kActivation, kGradient, kGather, kRing };

/// One collective inside an operator, in one micro-batch.
struct InnerExchange {
  Collective collective = Collective::kAllReduce;
  AxisSet axes = 0;
  bool backward = false;
  std::int64_t count = 1;     ///< times it runs
  std::int64_t elements = 0;  ///< of one device, as CollectiveCall::bytes counts
  Bytes element_bytes = 0;
  OverlapKind overlap = OverlapKind::kActivation;
};

/// In the order in which they run, forward first within each kind.
std::vector<InnerExchange> inner_exchanges(const Graph& graph,
                                           const Operator& op,
                                           const OperatorInfo& info,
                                           const Strategy& strategy);

/// The mesh axes on which the strategy acts on the factor.
AxisSet axes_of_factor(const OperatorInfo& info, const Strategy& strategy, int factor);

/// Per factor of the rule, whether the operand has it.
std::vector<bool> factors_in(const OperandRule& operand, std::size_t count);

}  // namespace meshplan

// SPDX-License-Identifier: Apache-2.0
// The one sharding of an operator's factors that it runs with, where its tensors disagree.
#pragma once

#include <vector>

#include "search/factor_table.h"

namespace meshplan {

struct AgreedSharding {
  std::vector<AxisList> factors;  ///< per factor of the table
  AxisSet reduced = 0;            ///< axes over which the results are to be summed
};

/// Chosen from what the tensors of operator `op` have, by how much data agrees.
AgreedSharding agreed_sharding(const PropagationGraph& graph,
                               const Shardings& shardings,
                               std::size_t op);

/// How tensor `position` of the table lies under it: a list per dimension.
std::vector<AxisList> dimensions_under(const PropagationGraph& graph,
                                       const FactorTable& table,
                                       std::size_t position,
                                       const AgreedSharding& common);

}  // namespace meshplan

// SPDX-License-Identifier: Apache-2.0
// What reductions and normalisations share.
#pragma once

#include <vector>

#include "plan/execution/device_tape.h"

namespace meshplan {

Var square(Var x);
Var absolute(Var x);
/// |x|^p and the p-th root of x.
Var power(Var x, double p);
Var root(Var x, double p);

/// Sums over all shards in one collective; with `spread`, as numbers that vary along the axes
/// again, so that their gradients are summed in one collective, too.
std::vector<Var> reduced_together(const std::vector<Var>& sums, AxisSet axes, bool spread = false);

}  // namespace meshplan

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

/// The extreme of the shard over `dims`, which `axes` cut. The backward finds out the extreme of
/// all shards and how many elements share it: an element has its part of the gradient, whichever
/// shard it is in.
Var partial_extreme(Var x, const std::vector<std::size_t>& dims, AxisSet axes, bool largest);
/// The product of the shard, [rows, 1]; the gradient of an element is the product of all others.
Var partial_product(Var x, const std::vector<std::size_t>& dims, AxisSet axes);

/// Sums over all shards in one collective; with `spread`, as numbers that vary along the axes
/// again, so that their gradients are summed in one collective, too.
std::vector<Var> reduced_together(const std::vector<Var>& sums, AxisSet axes, bool spread = false);

}  // namespace meshplan

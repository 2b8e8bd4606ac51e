// SPDX-License-Identifier: Apache-2.0
// The step that all eliminations share: one variable is minimised out of a sum of tables.
#pragma once

#include <cstddef>
#include <span>

namespace meshplan {

/// A table that depends on the eliminated variable and on some of the scope's.
struct EliminationMember {
  const double* costs = nullptr;
  std::size_t value_stride = 0;          ///< of the eliminated variable
  const std::size_t* strides = nullptr;  ///< of every variable of the scope; 0: not in the table
};

/// out[scope] = min over the variable's values v of own[v] + the members, row-major over the scope
/// (`sizes`, the first variable slowest). An infinite own[v] forbids a value.
void eliminate_variable(const double* own,
                        std::size_t values,
                        std::span<const int> sizes,
                        std::span<const EliminationMember> members,
                        double* out);

}  // namespace meshplan

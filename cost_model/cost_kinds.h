// SPDX-License-Identifier: Apache-2.0
// The kinds under which the time and the memory of a plan are reported.
#pragma once

#include <cstddef>
#include <cstdint>
#include <variant>

#include "lib/collective.h"

namespace meshplan {

/// What takes time without a collective.
enum class Work : std::uint8_t {
  kCompute,    ///< forward and backward of operators
  kRecompute,  ///< the forward once more, before the backward
  kOptimizer,  ///< the update of parameters
};

/// What takes time.
using CostKind = std::variant<Work, Collective>;
/// "compute", "recompute", "optimizer", or the collective's name.
const char* cost_kind_name(CostKind kind);

/// Kinds of memory, in the order of a plan's `memory`.
enum class MemoryKind : std::uint8_t {
  kParameters,
  kGradients,
  kOptimizer,
  kActivations,
  kGathered,
  kBuffers,
  kWorkspace
};
inline constexpr std::size_t kMemoryKinds = 7;
/// "parameters", "gradients", ...: the names used in plans.
const char* memory_kind_name(MemoryKind kind);

}  // namespace meshplan

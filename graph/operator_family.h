// SPDX-License-Identifier: Apache-2.0
// Families of operators with the same efficiency on a device.
#pragma once

#include <cstdint>

namespace meshplan {

enum class OperatorFamily : std::uint8_t {
  kMatMul,
  kAttention,
  kConvolution,
  kNormalization,
  kElementwise,
  kEmbedding,
  kReduction,
  kLoss,
  kView,  ///< moves no data, costs nothing
  kOther,
};

}  // namespace meshplan

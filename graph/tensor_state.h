// SPDX-License-Identifier: Apache-2.0
// The state of a tensor on a mesh: value and gradient, one of four states per mesh axis.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <string>

#include "lib/placement.h"

namespace meshplan {

/// Meshes of a plan have at most this many axes.
inline constexpr int kPlanMeshAxes = 4;

/// On one mesh axis: S(d) is d (0..15), R/R, R/P, P/R (value / gradient).
using AxisState = std::uint8_t;
inline constexpr AxisState kReplicatedState = 16;       ///< R/R
inline constexpr AxisState kGradientPartialState = 17;  ///< R/P
inline constexpr AxisState kPartialState = 18;          ///< P/R
inline constexpr bool is_sharded(AxisState state) { return state < 16; }

/// One AxisState per mesh axis; axes past the mesh are kReplicatedState.
struct TensorState {
  std::array<AxisState, kPlanMeshAxes> axes{
      kReplicatedState, kReplicatedState, kReplicatedState, kReplicatedState};

  AxisState operator[](int axis) const { return axes[static_cast<std::size_t>(axis)]; }
  AxisState& operator[](int axis) { return axes[static_cast<std::size_t>(axis)]; }
  friend auto operator<=>(const TensorState&, const TensorState&) = default;

  bool has_partial() const {
    for (const AxisState state : axes) {
      if (state == kPartialState) return true;
    }
    return false;
  }
};

/// The placements of the value: R/R and R/P are R, P/R is P(reduction).
inline Placements value_placements(const TensorState& state,
                                   int mesh_axes,
                                   Reduction reduction = Reduction::kSum) {
  Placements placements;
  for (int axis = 0; axis < mesh_axes; ++axis) {
    const AxisState s = state[axis];
    placements.push_back(is_sharded(s)        ? Placement(Shard{s})
                         : s == kPartialState ? Placement(Partial{reduction})
                                              : Placement(Replicate{}));
  }
  return placements;
}

/// The placements of the gradient: R/P is P(sum), R/R and P/R are R.
inline Placements gradient_placements(const TensorState& state, int mesh_axes) {
  Placements placements;
  for (int axis = 0; axis < mesh_axes; ++axis) {
    const AxisState s = state[axis];
    placements.push_back(is_sharded(s)                ? Placement(Shard{s})
                         : s == kGradientPartialState ? Placement(Partial{Reduction::kSum})
                                                      : Placement(Replicate{}));
  }
  return placements;
}

}  // namespace meshplan

// SPDX-License-Identifier: Apache-2.0
// The states and moves that a redistribution is a path over. Internal to lib and its tests.
//
// A state says for every mesh axis: replicated, partial with a reduction, or the k-th cut (0 =
// outermost) of a tensor dimension. It is packed into a LayoutCode, one byte per axis, so that it
// can be compared, hashed and stored cheaply. Axes of size 1 carry no data: moves ignore them.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "lib/collective.h"
#include "lib/placement.h"
#include "lib/redistribution.h"
#include "lib/result.h"
#include "lib/units.h"

namespace meshplan {

inline constexpr int kMaxMoveAxes = 8;   ///< mesh axes of a state
inline constexpr int kMaxMoveDims = 15;  ///< tensor dimensions of a state

/// Byte m is mesh axis m: 0 replicated, 0x80 | reduction partial, (dim + 1) << 3 | position cut.
using LayoutCode = std::uint64_t;

/// A LayoutCode taken apart.
struct LayoutState {
  int axes = 0;
  std::array<std::array<std::int8_t, kMaxMoveAxes>, kMaxMoveDims>
      cuts{};  ///< axes per dimension, outermost first
  std::array<std::int8_t, kMaxMoveDims> cut_count{};
  std::array<std::int8_t, kMaxMoveAxes> partial{};  ///< reduction of a partial axis, else -1

  std::span<const std::int8_t> cuts_of(int dim) const {
    const auto d = static_cast<std::size_t>(dim);
    return {cuts[d].data(), static_cast<std::size_t>(cut_count[d])};
  }
};

inline std::uint8_t code_byte(LayoutCode code, int axis) {
  return static_cast<std::uint8_t>(code >> (8 * static_cast<unsigned>(axis)));
}
inline LayoutCode with_byte(LayoutCode code, int axis, unsigned byte) {
  const unsigned shift = 8 * static_cast<unsigned>(axis);
  return (code & ~(LayoutCode{0xff} << shift)) | (LayoutCode{byte} << shift);
}
inline unsigned cut_byte(int dim, int position) {
  return static_cast<unsigned>((dim + 1) << 3 | position);
}
inline unsigned partial_byte(Reduction reduction) {
  return 0x80U | static_cast<unsigned>(reduction);
}

LayoutState unpack(LayoutCode code, int axes);

/// Placements to code. Errors: kValue (count, dimension, split factor), kUnsupported (too many axes
/// or dimensions).
Result<LayoutCode> encode_placements(std::span<const std::int64_t> axis_sizes,
                                     int tensor_rank,
                                     std::span<const Placement> placements);
/// Code to placements: StridedShard where the cuts of a dimension are not in mesh order.
Placements decode_placements(std::span<const std::int64_t> axis_sizes, LayoutCode code);

/// The code without axes of size 1.
LayoutCode active_code(std::span<const std::int64_t> axis_sizes, LayoutCode code);

/// May two partial axes of these reductions be reduced in either order?
bool reductions_commute(Reduction a, Reduction b);

/// May the partial axes of `set`, all of kind `reduction`, be reduced now? Unlike reductions are
/// resolved from the innermost mesh axis outwards.
bool may_reduce(const LayoutState& state, unsigned set, Reduction reduction);
/// May the replicated axes of `set` become partial, the pending reductions unharmed?
bool may_mask(const LayoutState& state, unsigned set, Reduction reduction);

/// One move. `relabel` moves take no time and no step (R -> P(avg): equal values are their
/// average).
struct Move {
  std::uint32_t to = 0;  ///< index of the state it leads to
  Collective collective = Collective::kSlice;
  std::uint8_t axes = 0;
  std::int8_t dim = -1;         ///< gathered, scattered, sliced or split dimension
  std::int8_t concat_dim = -1;  ///< all-to-all only
  Reduction reduction = Reduction::kSum;
  bool relabel = false;
};

/// All states of a tensor rank on a mesh, with moves generated when first asked for.
class MoveGraph {
 public:
  /// `reductions`: the kinds of Partial that states may have.
  MoveGraph(std::vector<std::int64_t> axis_sizes,
            int tensor_rank,
            std::vector<Reduction> reductions);

  /// How many states there would be (stops counting at `limit`).
  static std::size_t count_states(std::span<const std::int64_t> axis_sizes,
                                  int tensor_rank,
                                  std::size_t reductions,
                                  std::size_t limit);

  std::size_t size() const { return states_.size(); }
  LayoutCode state(std::size_t index) const { return states_[index]; }
  /// Index of a state; its axes of size 1 are ignored. The state must be one of this graph.
  std::uint32_t index_of(LayoutCode code) const;
  std::span<const Move> moves(std::size_t index);
  std::span<const std::int64_t> axis_sizes() const { return axis_sizes_; }
  int tensor_rank() const { return tensor_rank_; }

 private:
  void generate(std::size_t index, std::vector<Move>& moves) const;
  void generate_permutes(std::size_t index, std::vector<Move>& moves) const;

  std::vector<std::int64_t> axis_sizes_;
  int tensor_rank_;
  std::vector<Reduction> reductions_;
  std::vector<LayoutCode> states_;
  std::unordered_map<LayoutCode, std::uint32_t> index_;
  std::vector<std::uint32_t> shape_class_;  ///< states of one class have equal local shapes
  std::vector<std::vector<std::uint32_t>> class_members_;
  std::vector<std::vector<Move>> moves_;
  std::vector<char> generated_;
};

/// The mesh axes whose coordinate decides something else in `b` than in `a`: those that a
/// collective permute from a to b moves data along.
AxisSet relabelled_axes(std::span<const std::int64_t> axis_sizes, LayoutCode a, LayoutCode b);

/// The largest local shard in elements, or -1 where the state is not legal for the shape (a
/// dimension that several axes cut must be divided by them; with kEqual, one that any axis cuts).
std::int64_t local_elements(std::span<const std::int64_t> axis_sizes,
                            std::span<const std::int64_t> shape,
                            LayoutCode code,
                            Division division = Division::kAny);

}  // namespace meshplan

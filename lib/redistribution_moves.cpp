// SPDX-License-Identifier: Apache-2.0
#include "lib/redistribution_moves.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "lib/check.h"

namespace meshplan {
namespace {

constexpr std::uint8_t kPartialBit = 0x80;

std::string ordinal_place(std::size_t index) { return "/" + std::to_string(index); }

/// Calls visit(sequence) for every ordered, non-empty selection of the axes in `mask`.
template <class Visit>
void for_each_sequence(unsigned mask,
                       std::array<std::int8_t, kMaxMoveAxes>& sequence,
                       std::size_t length,
                       const Visit& visit) {
  for (int axis = 0; axis < kMaxMoveAxes; ++axis) {
    const unsigned bit = 1U << axis;
    if ((mask & bit) == 0) continue;
    sequence[length] = static_cast<std::int8_t>(axis);
    visit(std::span<const std::int8_t>(sequence.data(), length + 1));
    for_each_sequence(mask & ~bit, sequence, length + 1, visit);
  }
}

/// What an axis decides: replicated, partial of a kind, or a digit (dimension, stride) of the
/// piece.
struct AxisRole {
  int kind = 0;  ///< 0 replicated, 1 partial, 2 cut
  std::int64_t a = 0;
  std::int64_t b = 0;
  friend bool operator==(const AxisRole&, const AxisRole&) = default;
};

std::array<AxisRole, kMaxMoveAxes> roles_of(std::span<const std::int64_t> axis_sizes,
                                            LayoutCode code) {
  std::array<AxisRole, kMaxMoveAxes> roles{};
  const LayoutState state = unpack(code, static_cast<int>(axis_sizes.size()));
  for (std::size_t axis = 0; axis < axis_sizes.size(); ++axis) {
    if (state.partial[axis] >= 0) roles[axis] = {1, state.partial[axis], 0};
  }
  for (int dim = 0; dim < kMaxMoveDims; ++dim) {
    std::int64_t stride = 1;
    const auto cuts = state.cuts_of(dim);
    for (auto cut = cuts.rbegin(); cut != cuts.rend(); ++cut) {
      const auto axis = static_cast<std::size_t>(*cut);
      roles[axis] = {2, dim, stride};
      stride *= axis_sizes[axis];
    }
  }
  return roles;
}

bool is_linear(Reduction reduction) {
  return reduction == Reduction::kSum || reduction == Reduction::kAvg;
}

/// Does reducing only identities of `masked` with `inner` give that identity again?
bool keeps_identity(Reduction inner, Reduction masked) {
  if (masked == Reduction::kProd) return inner != Reduction::kSum;
  if (masked == Reduction::kMax) return inner != Reduction::kProd;
  return true;
}

}  // namespace

LayoutState unpack(LayoutCode code, int axes) {
  LayoutState state;
  state.axes = axes;
  state.partial.fill(-1);
  for (int axis = 0; axis < axes; ++axis) {
    const std::uint8_t byte = code_byte(code, axis);
    if ((byte & kPartialBit) != 0) {
      state.partial[static_cast<std::size_t>(axis)] = static_cast<std::int8_t>(byte & 0x7f);
    } else if (byte != 0) {
      const auto dim = static_cast<std::size_t>((byte >> 3) - 1);
      state.cuts[dim][byte & 7] = static_cast<std::int8_t>(axis);
      ++state.cut_count[dim];
    }
  }
  return state;
}

Result<LayoutCode> encode_placements(std::span<const std::int64_t> axis_sizes,
                                     int tensor_rank,
                                     std::span<const Placement> placements) {
  if (axis_sizes.size() > kMaxMoveAxes) {
    return fail(ErrorCode::kUnsupported,
                "",
                "a redistribution takes at most 8 mesh axes that a layout uses, here are " +
                    std::to_string(axis_sizes.size()));
  }
  if (tensor_rank > kMaxMoveDims) {
    return fail(ErrorCode::kUnsupported,
                "",
                "a redistribution takes at most 15 tensor dimensions, this tensor has " +
                    std::to_string(tensor_rank));
  }
  if (placements.size() != axis_sizes.size()) {
    return fail(ErrorCode::kValue,
                "",
                "expected one placement per mesh axis (" + std::to_string(axis_sizes.size()) +
                    "), got " + std::to_string(placements.size()));
  }
  std::array<std::array<std::int8_t, kMaxMoveAxes>, kMaxMoveDims> cuts{};
  std::array<std::size_t, kMaxMoveDims> count{};
  LayoutCode code = 0;
  for (std::size_t axis = axis_sizes.size(); axis-- > 0;) {
    const Placement& placement = placements[axis];
    if (std::holds_alternative<Replicate>(placement)) continue;
    if (const auto* partial = std::get_if<Partial>(&placement)) {
      code = with_byte(code, static_cast<int>(axis), partial_byte(partial->reduction));
      continue;
    }
    const auto* shard = std::get_if<Shard>(&placement);
    const auto* strided = std::get_if<StridedShard>(&placement);
    int dim = shard != nullptr ? shard->dim : strided->dim;
    const std::int64_t factor = shard != nullptr ? 1 : strided->split_factor;
    if (dim < 0) dim += tensor_rank;
    if (dim < 0 || dim >= tensor_rank) {
      return fail(ErrorCode::kValue,
                  ordinal_place(axis),
                  to_string(placement) + " names a dimension that a tensor of " +
                      std::to_string(tensor_rank) + " dimensions does not have");
    }
    // Axes to the right are placed already; this one goes in after those that come before it.
    auto& list = cuts[static_cast<std::size_t>(dim)];
    auto& length = count[static_cast<std::size_t>(dim)];
    std::size_t position = 0;
    std::int64_t product = 1;
    while (product < factor && position < length) {
      product *= axis_sizes[static_cast<std::size_t>(list[position])];
      ++position;
    }
    if (product != factor) {
      return fail(
          ErrorCode::kValue,
          ordinal_place(axis),
          to_string(placement) + ": the split factor " + std::to_string(factor) +
              " is not a product of sizes of mesh axes to the right that cut the same dimension");
    }
    std::copy_backward(list.begin() + static_cast<std::ptrdiff_t>(position),
                       list.begin() + static_cast<std::ptrdiff_t>(length),
                       list.begin() + static_cast<std::ptrdiff_t>(length) + 1);
    list[position] = static_cast<std::int8_t>(axis);
    ++length;
  }
  for (int dim = 0; dim < tensor_rank; ++dim) {
    const auto d = static_cast<std::size_t>(dim);
    for (std::size_t i = 0; i < count[d]; ++i) {
      code = with_byte(code, cuts[d][i], cut_byte(dim, static_cast<int>(i)));
    }
  }
  return code;
}

Placements decode_placements(std::span<const std::int64_t> axis_sizes, LayoutCode code) {
  Placements placements(axis_sizes.size(), Placement{Replicate{}});
  const LayoutState state = unpack(code, static_cast<int>(axis_sizes.size()));
  for (std::size_t axis = 0; axis < axis_sizes.size(); ++axis) {
    if (state.partial[axis] >= 0)
      placements[axis] = Partial{static_cast<Reduction>(state.partial[axis])};
  }
  for (int dim = 0; dim < kMaxMoveDims; ++dim) {
    const auto cuts = state.cuts_of(dim);
    for (std::size_t i = 0; i < cuts.size(); ++i) {
      std::int64_t factor = 1;
      for (std::size_t j = 0; j < i; ++j) {
        if (cuts[j] > cuts[i]) factor *= axis_sizes[static_cast<std::size_t>(cuts[j])];
      }
      const auto axis = static_cast<std::size_t>(cuts[i]);
      if (factor == 1) {
        placements[axis] = Shard{dim};
      } else {
        placements[axis] = StridedShard{dim, factor};
      }
    }
  }
  return placements;
}

bool reductions_commute(Reduction a, Reduction b) {
  return a == b || (is_linear(a) && is_linear(b));
}

bool may_reduce(const LayoutState& state, unsigned set, Reduction reduction) {
  const unsigned outermost = set & (~set + 1);
  for (int axis = 0; axis < state.axes; ++axis) {
    const std::int8_t held = state.partial[static_cast<std::size_t>(axis)];
    const unsigned bit = 1U << axis;
    if ((set & bit) != 0) {
      if (held != static_cast<int>(reduction)) return false;
    } else if (held >= 0 && bit > outermost &&
               !reductions_commute(reduction, static_cast<Reduction>(held))) {
      return false;
    }
  }
  return true;
}

bool may_mask(const LayoutState& state, unsigned set, Reduction reduction) {
  const unsigned outermost = set & (~set + 1);
  for (int axis = 0; axis < state.axes; ++axis) {
    const std::int8_t held = state.partial[static_cast<std::size_t>(axis)];
    if (held >= 0 && (1U << axis) > outermost &&
        !keeps_identity(static_cast<Reduction>(held), reduction)) {
      return false;
    }
  }
  return true;
}

LayoutCode active_code(std::span<const std::int64_t> axis_sizes, LayoutCode code) {
  // Axes of size 1 may stand anywhere in a dimension's list: take them out and close the gaps.
  if (std::find(axis_sizes.begin(), axis_sizes.end(), 1) == axis_sizes.end()) return code;
  const LayoutState state = unpack(code, static_cast<int>(axis_sizes.size()));
  for (std::size_t axis = 0; axis < axis_sizes.size(); ++axis) {
    if (axis_sizes[axis] == 1) code = with_byte(code, static_cast<int>(axis), 0);
  }
  for (int dim = 0; dim < kMaxMoveDims; ++dim) {
    int position = 0;
    for (const std::int8_t axis : state.cuts_of(dim)) {
      if (axis_sizes[static_cast<std::size_t>(axis)] == 1) continue;
      code = with_byte(code, axis, cut_byte(dim, position++));
    }
  }
  return code;
}

std::int64_t local_elements(std::span<const std::int64_t> axis_sizes,
                            std::span<const std::int64_t> shape,
                            LayoutCode code,
                            Division division) {
  std::array<std::int64_t, kMaxMoveDims> pieces;
  std::array<int, kMaxMoveDims> cutters{};
  pieces.fill(1);
  for (std::size_t axis = 0; axis < axis_sizes.size(); ++axis) {
    const std::uint8_t byte = code_byte(code, static_cast<int>(axis));
    if (byte == 0 || (byte & kPartialBit) != 0 || axis_sizes[axis] == 1) continue;
    const auto dim = static_cast<std::size_t>((byte >> 3) - 1);
    pieces[dim] *= axis_sizes[axis];
    ++cutters[dim];
  }
  std::int64_t elements = 1;
  for (std::size_t dim = 0; dim < shape.size(); ++dim) {
    const bool may_differ = division == Division::kAny && cutters[dim] <= 1;
    if (!may_differ && shape[dim] % pieces[dim] != 0) return -1;
    elements *= shape[dim] / pieces[dim] + (shape[dim] % pieces[dim] != 0 ? 1 : 0);
  }
  return elements;
}

AxisSet relabelled_axes(std::span<const std::int64_t> axis_sizes, LayoutCode a, LayoutCode b) {
  const auto roles_a = roles_of(axis_sizes, a);
  const auto roles_b = roles_of(axis_sizes, b);
  AxisSet axes = 0;
  for (std::size_t axis = 0; axis < axis_sizes.size(); ++axis) {
    if (axis_sizes[axis] > 1 && roles_a[axis] != roles_b[axis]) axes |= AxisSet{1} << axis;
  }
  return axes;
}

std::size_t MoveGraph::count_states(std::span<const std::int64_t> axis_sizes,
                                    int tensor_rank,
                                    std::size_t reductions,
                                    std::size_t limit) {
  // ways[k]: states whose dimensions hold k cuts altogether; a further axis has k + rank places to
  // cut at.
  std::vector<std::size_t> ways = {1};
  for (const std::int64_t size : axis_sizes) {
    if (size == 1) continue;
    std::vector<std::size_t> next(ways.size() + 1, 0);
    for (std::size_t k = 0; k < ways.size(); ++k) {
      next[k] += ways[k] * (1 + reductions);
      if (tensor_rank > 0) next[k + 1] += ways[k] * (k + static_cast<std::size_t>(tensor_rank));
    }
    ways = std::move(next);
    std::size_t total = 0;
    for (const std::size_t way : ways) total += way;
    if (total >= limit) return limit;
  }
  std::size_t total = 0;
  for (const std::size_t way : ways) total += way;
  return total;
}

MoveGraph::MoveGraph(std::vector<std::int64_t> axis_sizes,
                     int tensor_rank,
                     std::vector<Reduction> reductions)
    : axis_sizes_(std::move(axis_sizes)),
      tensor_rank_(tensor_rank),
      reductions_(std::move(reductions)) {
  MESHPLAN_CHECK(axis_sizes_.size() <= kMaxMoveAxes && tensor_rank_ <= kMaxMoveDims);
  states_.push_back(0);
  for (int axis = 0; axis < static_cast<int>(axis_sizes_.size()); ++axis) {
    if (axis_sizes_[static_cast<std::size_t>(axis)] == 1) continue;
    std::vector<LayoutCode> next;
    for (const LayoutCode base : states_) {
      next.push_back(base);
      for (const Reduction reduction : reductions_)
        next.push_back(with_byte(base, axis, partial_byte(reduction)));
      const LayoutState state = unpack(base, axis);
      for (int dim = 0; dim < tensor_rank_; ++dim) {
        const auto cuts = state.cuts_of(dim);
        for (std::size_t position = 0; position <= cuts.size(); ++position) {
          LayoutCode code = with_byte(base, axis, cut_byte(dim, static_cast<int>(position)));
          for (std::size_t i = position; i < cuts.size(); ++i) {
            code = with_byte(code, cuts[i], cut_byte(dim, static_cast<int>(i) + 1));
          }
          next.push_back(code);
        }
      }
    }
    states_ = std::move(next);
  }
  std::sort(states_.begin(), states_.end());
  index_.reserve(states_.size());
  std::map<std::vector<std::int64_t>, std::uint32_t> classes;
  shape_class_.reserve(states_.size());
  for (std::size_t i = 0; i < states_.size(); ++i) {
    index_.emplace(states_[i], static_cast<std::uint32_t>(i));
    std::vector<std::int64_t> key(static_cast<std::size_t>(tensor_rank_) + 5, 1);
    for (std::size_t axis = 0; axis < axis_sizes_.size(); ++axis) {
      const std::uint8_t byte = code_byte(states_[i], static_cast<int>(axis));
      if ((byte & kPartialBit) != 0) {
        key[static_cast<std::size_t>(tensor_rank_) + (byte & 0x7f)] *= axis_sizes_[axis];
      } else if (byte != 0) {
        key[static_cast<std::size_t>((byte >> 3) - 1)] *= axis_sizes_[axis];
      }
    }
    const auto [found, added] =
        classes.emplace(std::move(key), static_cast<std::uint32_t>(class_members_.size()));
    if (added) class_members_.emplace_back();
    shape_class_.push_back(found->second);
    class_members_[found->second].push_back(static_cast<std::uint32_t>(i));
  }
  moves_.resize(states_.size());
  generated_.assign(states_.size(), 0);
}

std::uint32_t MoveGraph::index_of(LayoutCode code) const {
  const auto found = index_.find(active_code(axis_sizes_, code));
  MESHPLAN_CHECK(found != index_.end());
  return found->second;
}

std::span<const Move> MoveGraph::moves(std::size_t index) {
  if (generated_[index] == 0) {
    generate(index, moves_[index]);
    moves_[index].shrink_to_fit();
    generated_[index] = 1;
  }
  return moves_[index];
}

void MoveGraph::generate(std::size_t index, std::vector<Move>& moves) const {
  const LayoutCode code = states_[index];
  const int axes = static_cast<int>(axis_sizes_.size());
  const LayoutState state = unpack(code, axes);
  unsigned replicated = 0;
  for (int axis = 0; axis < axes; ++axis) {
    const auto a = static_cast<std::size_t>(axis);
    if (axis_sizes_[a] == 1) continue;
    if (code_byte(code, axis) == 0) replicated |= 1U << axis;
  }
  const auto add = [&](LayoutCode to, Move move) {
    move.to = index_.find(to)->second;
    moves.push_back(move);
  };
  const auto mask_of = [](std::span<const std::int8_t> list) {
    unsigned mask = 0;
    for (const std::int8_t axis : list) mask |= 1U << axis;
    return static_cast<std::uint8_t>(mask);
  };
  std::array<std::int8_t, kMaxMoveAxes> buffer{};

  // Slice: append replicated axes to a dimension.
  const auto append = [&](LayoutCode base, int dim, std::span<const std::int8_t> list) {
    int position = state.cut_count[static_cast<std::size_t>(dim)];
    for (const std::int8_t axis : list) base = with_byte(base, axis, cut_byte(dim, position++));
    return base;
  };
  for_each_sequence(replicated, buffer, 0, [&](std::span<const std::int8_t> list) {
    for (int dim = 0; dim < tensor_rank_; ++dim) {
      Move move{0, Collective::kSlice, mask_of(list), static_cast<std::int8_t>(dim)};
      add(append(code, dim, list), move);
    }
  });

  // Reduce partial axes of one kind, where no other kind inside them has to come first.
  for (const Reduction reduction : reductions_) {
    unsigned candidates = 0;
    for (int axis = 0; axis < axes; ++axis) {
      if (state.partial[static_cast<std::size_t>(axis)] == static_cast<int>(reduction))
        candidates |= 1U << axis;
    }
    for_each_sequence(candidates, buffer, 0, [&](std::span<const std::int8_t> list) {
      const std::uint8_t set = mask_of(list);
      if (!may_reduce(state, set, reduction)) return;
      for (int dim = 0; dim < tensor_rank_; ++dim) {
        Move move{0, Collective::kReduceScatter, set, static_cast<std::int8_t>(dim)};
        move.reduction = reduction;
        add(append(code, dim, list), move);
      }
      if (!std::is_sorted(list.begin(), list.end())) return;
      LayoutCode to = code;
      for (const std::int8_t axis : list) to = with_byte(to, axis, 0);
      Move move{0, Collective::kAllReduce, set};
      move.reduction = reduction;
      add(to, move);
    });
    // Mask: replicated axes become partial.
    for_each_sequence(replicated, buffer, 0, [&](std::span<const std::int8_t> list) {
      if (!std::is_sorted(list.begin(), list.end())) return;
      if (!may_mask(state, mask_of(list), reduction)) return;
      LayoutCode to = code;
      for (const std::int8_t axis : list) to = with_byte(to, axis, partial_byte(reduction));
      Move move{0, Collective::kMask, mask_of(list)};
      move.reduction = reduction;
      move.relabel = reduction == Reduction::kAvg;
      add(to, move);
    });
  }

  // All-to-all and all-gather take the innermost axes of a dimension.
  for (int source = 0; source < tensor_rank_; ++source) {
    const auto cuts = state.cuts_of(source);
    for (std::size_t length = 1; length <= cuts.size(); ++length) {
      const auto suffix = cuts.last(length);
      for (int target = 0; target < tensor_rank_; ++target) {
        if (target == source) continue;
        add(append(code, target, suffix),
            Move{0,
                 Collective::kAllToAll,
                 mask_of(suffix),
                 static_cast<std::int8_t>(target),
                 static_cast<std::int8_t>(source)});
      }
      LayoutCode to = code;
      for (const std::int8_t axis : suffix) to = with_byte(to, axis, 0);
      add(to, Move{0, Collective::kAllGather, mask_of(suffix), static_cast<std::int8_t>(source)});
    }
  }
  generate_permutes(index, moves);
}

void MoveGraph::generate_permutes(std::size_t index, std::vector<Move>& moves) const {
  const LayoutCode code = states_[index];
  const auto roles = roles_of(axis_sizes_, code);
  for (const std::uint32_t other : class_members_[shape_class_[index]]) {
    if (other == index) continue;
    const auto other_roles = roles_of(axis_sizes_, states_[other]);
    AxisSet touched = 0;
    bool moves_partial = false;
    for (std::size_t axis = 0; axis < axis_sizes_.size(); ++axis) {
      if (roles[axis] == other_roles[axis]) continue;
      touched |= AxisSet{1} << axis;
      moves_partial = moves_partial || roles[axis].kind == 1 || other_roles[axis].kind == 1;
    }
    if (moves_partial) {
      // The order of unlike reductions depends on the axes that carry them: leave such states
      // alone.
      bool commute = true;
      for (const auto& a : roles) {
        for (const auto& b : roles) {
          if (a.kind == 1 && b.kind == 1) {
            commute = commute &&
                      reductions_commute(static_cast<Reduction>(a.a), static_cast<Reduction>(b.a));
          }
        }
      }
      if (!commute) continue;
    }
    moves.push_back(Move{other, Collective::kPermute, static_cast<std::uint8_t>(touched)});
  }
}

}  // namespace meshplan

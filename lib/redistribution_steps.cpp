// SPDX-License-Identifier: Apache-2.0
#include "lib/redistribution_steps.h"

#include <algorithm>
#include <array>
#include <limits>
#include <string>
#include <utility>

namespace meshplan {
namespace {

constexpr Bytes kMostBytes = Bytes{1} << 57;

std::uint8_t set_of(std::span<const int> axes) {
  unsigned set = 0;
  for (const int axis : axes) set |= 1U << axis;
  return static_cast<std::uint8_t>(set);
}

}  // namespace

RedistributionStep step_between(std::span<const std::int64_t> axis_sizes,
                                const Move& move,
                                LayoutCode before,
                                Bytes bytes_before,
                                LayoutCode after,
                                Bytes bytes_after) {
  RedistributionStep step;
  step.collective = move.collective;
  step.axes = move.axes;
  step.reduction = move.reduction;
  step.call_bytes =
      move.collective == Collective::kSlice ? bytes_after : std::max(bytes_before, bytes_after);
  step.after = decode_placements(axis_sizes, after);
  std::int64_t devices = 1;
  for (std::size_t axis = 0; axis < axis_sizes.size(); ++axis) {
    if ((move.axes >> axis & 1) == 0) continue;
    devices *= axis_sizes[axis];
    step.order.push_back(static_cast<int>(axis));
  }
  // Group order: as the axes stand in the dimension that they cut before or after.
  const bool cuts_before =
      move.collective == Collective::kAllGather || move.collective == Collective::kAllToAll;
  const bool cuts_after =
      move.collective == Collective::kSlice || move.collective == Collective::kReduceScatter;
  if (cuts_before || cuts_after) {
    const LayoutCode code = cuts_before ? before : after;
    std::sort(step.order.begin(), step.order.end(), [&](int a, int b) {
      return code_byte(code, a) < code_byte(code, b);
    });
  }
  if (move.collective == Collective::kAllToAll) {
    step.split_dim = move.dim;
    step.concat_dim = move.concat_dim;
  } else {
    step.dim = move.dim;
  }
  step.bytes_moved = moved_bytes(move.collective, devices, step.call_bytes);
  return step;
}

Result<void> check_codes(std::span<const std::int64_t> axis_sizes,
                         std::span<const std::int64_t> shape,
                         Bytes dtype_bytes,
                         LayoutCode from,
                         LayoutCode to,
                         Division division) {
  if (dtype_bytes < 1) return fail(ErrorCode::kValue, "/dtype", "an element has at least one byte");
  Bytes total = dtype_bytes;
  for (std::size_t dim = 0; dim < shape.size(); ++dim) {
    if (shape[dim] < 0) {
      return fail(ErrorCode::kValue, "/shape/" + std::to_string(dim), "a size is not negative");
    }
    // What is left free of 64 bits holds the sum of all steps, two passes of an all-reduce each.
    if (shape[dim] > 0 && total > kMostBytes / shape[dim]) {
      return fail(ErrorCode::kOverflow,
                  "/shape",
                  "the tensor has more than 2^57 bytes, more than can be counted");
    }
    total *= std::max<std::int64_t>(shape[dim], 1);
  }
  for (const auto& [code, where] : {std::pair{from, "/from"}, std::pair{to, "/to"}}) {
    if (local_elements(axis_sizes, shape, code, division) < 0) {
      return fail(ErrorCode::kValue,
                  where,
                  to_string(decode_placements(axis_sizes, code)) +
                      (division == Division::kEqual
                           ? " cuts a dimension that it does not divide"
                           : " cuts a dimension by several axes whose product does not divide it; "
                             "only a single axis may cut unevenly"));
    }
  }
  for (std::size_t axis = 0; axis < axis_sizes.size(); ++axis) {
    const std::uint8_t before = code_byte(from, static_cast<int>(axis));
    const std::uint8_t after = code_byte(to, static_cast<int>(axis));
    if ((before & 0x80) != 0 && (after & 0x80) != 0 && before != after && axis_sizes[axis] > 1) {
      return fail(ErrorCode::kConflict,
                  "/to/" + std::to_string(axis),
                  "a tensor that is P(" +
                      std::string(reduction_name(static_cast<Reduction>(before & 0x7f))) +
                      ") on a mesh axis cannot become P(" +
                      reduction_name(static_cast<Reduction>(after & 0x7f)) +
                      ") on it; reduce it first");
    }
  }
  return {};
}

Result<CodePair> checked_codes(std::span<const std::int64_t> axis_sizes,
                               std::span<const std::int64_t> shape,
                               Bytes dtype_bytes,
                               std::span<const Placement> from,
                               std::span<const Placement> to) {
  const auto under = [](const char* prefix, Error error) {
    error.where = prefix + error.where;
    return error;
  };
  const int rank = static_cast<int>(shape.size());
  const auto source = encode_placements(axis_sizes, rank, from);
  if (!source) return fail(under("/from", source.error()));
  const auto goal = encode_placements(axis_sizes, rank, to);
  if (!goal) return fail(under("/to", goal.error()));
  if (auto checked = check_codes(axis_sizes, shape, dtype_bytes, *source, *goal); !checked) {
    return fail(checked.error());
  }
  return CodePair{*source, *goal};
}

std::vector<int> axes_to_reduce(const LayoutState& from, const LayoutState& to) {
  const auto kind = [](const LayoutState& state, int axis) {
    return state.partial[static_cast<std::size_t>(axis)];
  };
  unsigned set = 0;
  for (int axis = 0; axis < from.axes; ++axis) {
    if (kind(from, axis) >= 0 && kind(to, axis) != kind(from, axis)) set |= 1U << axis;
  }
  for (bool grew = true; grew;) {
    grew = false;
    for (int outer = 0; outer < from.axes; ++outer) {
      for (int inner = outer + 1; inner < from.axes; ++inner) {
        if ((set >> inner & 1U) != 0 || kind(from, inner) < 0) continue;
        const bool reduces_around = (set >> outer & 1U) != 0 &&
                                    !reductions_commute(static_cast<Reduction>(kind(from, outer)),
                                                        static_cast<Reduction>(kind(from, inner)));
        LayoutState alone;
        alone.axes = from.axes;
        alone.partial.fill(-1);
        alone.partial[static_cast<std::size_t>(inner)] = kind(from, inner);
        const bool masks_around =
            kind(to, outer) >= 0 && (kind(from, outer) < 0 || (set >> outer & 1U) != 0) &&
            !may_mask(alone, 1U << outer, static_cast<Reduction>(kind(to, outer)));
        if (!reduces_around && !masks_around) continue;
        set |= 1U << inner;
        grew = true;
      }
    }
  }
  std::vector<int> axes;
  for (int axis = from.axes; axis-- > 0;) {
    if ((set >> axis & 1U) != 0) axes.push_back(axis);
  }
  return axes;
}

StepBuilder::StepBuilder(std::vector<std::int64_t> axis_sizes,
                         std::vector<std::int64_t> shape,
                         Bytes dtype_bytes,
                         CollectivePrice price,
                         LayoutCode from)
    : axis_sizes_(std::move(axis_sizes)),
      shape_(std::move(shape)),
      dtype_bytes_(dtype_bytes),
      price_(std::move(price)),
      code_(from) {
  result_.peak = local_elements(axis_sizes_, shape_, code_) * dtype_bytes_;
}

bool StepBuilder::append(const Move& move, LayoutCode after) {
  const std::int64_t elements_before = local_elements(axis_sizes_, shape_, code_);
  const std::int64_t elements_after = local_elements(axis_sizes_, shape_, after);
  if (elements_before < 0 || elements_after < 0) return false;
  const Bytes bytes_before = elements_before * dtype_bytes_;
  const Bytes bytes_after = elements_after * dtype_bytes_;
  if (!move.relabel) {
    RedistributionStep step =
        step_between(axis_sizes_, move, code_, bytes_before, after, bytes_after);
    step.time = on_price_grid(price_({step.collective, step.axes, step.call_bytes}));
    result_.time += step.time;
    result_.bytes += step.bytes_moved;
    const bool in_place =
        move.collective == Collective::kAllReduce || move.collective == Collective::kMask;
    result_.peak = std::max(result_.peak, in_place ? bytes_before : bytes_before + bytes_after);
    result_.steps.push_back(std::move(step));
  }
  code_ = after;
  return true;
}

bool StepBuilder::free(std::span<const int> axes) const {
  return std::all_of(
      axes.begin(), axes.end(), [&](int axis) { return code_byte(code_, axis) == 0; });
}

bool StepBuilder::innermost(int dim, std::span<const int> axes) const {
  const LayoutState now = state();
  const auto cuts = now.cuts_of(dim);
  return axes.size() <= cuts.size() &&
         std::equal(axes.begin(), axes.end(), cuts.last(axes.size()).begin());
}

LayoutCode StepBuilder::with_cuts(LayoutCode base, int dim, std::span<const int> axes) const {
  int position = state().cut_count[static_cast<std::size_t>(dim)];
  for (const int axis : axes) base = with_byte(base, axis, cut_byte(dim, position++));
  return base;
}

LayoutCode StepBuilder::without_cuts(std::span<const int> axes) const {
  LayoutCode code = code_;
  for (const int axis : axes) code = with_byte(code, axis, 0);
  return code;
}

bool StepBuilder::slice(int dim, std::span<const int> axes) {
  if (axes.empty()) return true;
  if (!free(axes)) return false;
  return append(Move{0, Collective::kSlice, set_of(axes), static_cast<std::int8_t>(dim)},
                with_cuts(code_, dim, axes));
}

bool StepBuilder::all_gather(int dim, std::span<const int> axes) {
  if (axes.empty()) return true;
  if (!innermost(dim, axes)) return false;
  return append(Move{0, Collective::kAllGather, set_of(axes), static_cast<std::int8_t>(dim)},
                without_cuts(axes));
}

bool StepBuilder::all_to_all(int split_dim, int concat_dim, std::span<const int> axes) {
  if (axes.empty()) return true;
  if (split_dim == concat_dim || !innermost(concat_dim, axes)) return false;
  return append(Move{0,
                     Collective::kAllToAll,
                     set_of(axes),
                     static_cast<std::int8_t>(split_dim),
                     static_cast<std::int8_t>(concat_dim)},
                with_cuts(without_cuts(axes), split_dim, axes));
}

bool StepBuilder::all_reduce(std::span<const int> axes, Reduction reduction) {
  if (axes.empty()) return true;
  if (!may_reduce(state(), set_of(axes), reduction)) return false;
  Move move{0, Collective::kAllReduce, set_of(axes)};
  move.reduction = reduction;
  return append(move, without_cuts(axes));
}

bool StepBuilder::reduce_scatter(int dim, std::span<const int> axes, Reduction reduction) {
  if (axes.empty()) return true;
  if (!may_reduce(state(), set_of(axes), reduction)) return false;
  Move move{0, Collective::kReduceScatter, set_of(axes), static_cast<std::int8_t>(dim)};
  move.reduction = reduction;
  return append(move, with_cuts(code_, dim, axes));
}

bool StepBuilder::mask(std::span<const int> axes, Reduction reduction) {
  if (axes.empty()) return true;
  if (!free(axes) || !may_mask(state(), set_of(axes), reduction)) return false;
  LayoutCode after = code_;
  for (const int axis : axes) after = with_byte(after, axis, partial_byte(reduction));
  Move move{0, Collective::kMask, set_of(axes)};
  move.reduction = reduction;
  move.relabel = reduction == Reduction::kAvg;
  return append(move, after);
}

bool StepBuilder::permute(LayoutCode to) {
  if (to == code_) return true;
  const AxisSet axes = relabelled_axes(axis_sizes_, code_, to);
  return append(Move{0, Collective::kPermute, static_cast<std::uint8_t>(axes)}, to);
}

bool StepBuilder::mask_missing(const LayoutState& to) {
  for (int axis = 0; axis < to.axes; ++axis) {
    const std::int8_t wanted = to.partial[static_cast<std::size_t>(axis)];
    if (wanted < 0 || state().partial[static_cast<std::size_t>(axis)] == wanted) continue;
    const std::array<int, 1> axes = {axis};
    if (!mask(axes, static_cast<Reduction>(wanted))) return false;
  }
  return true;
}

Redistribution StepBuilder::finish(LayoutCode to) && {
  if (!result_.steps.empty()) result_.steps.back().after = decode_placements(axis_sizes_, to);
  return std::move(result_);
}

}  // namespace meshplan

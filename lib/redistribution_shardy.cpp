// SPDX-License-Identifier: Apache-2.0
// Shardy's order of collectives, from a description of what it does: shrink first, permute, move,
// grow last. A dimension holds a list of mesh axes; what both sides have in front is left alone.
// Then, at most a few rounds of
//   slice    axes that are wanted and not held: behind an axis that will move to the same place, so
//            that one all-to-all takes both; else where they belong; else wherever there is room,
//   permute  re-label equal shards when an axis stands where another is wanted, when axes of one
//            destination are scattered, or when an axis to be gathered stands behind one to be
//            moved,
//   move     the innermost axes of a dimension to the dimension that wants them,
//   gather   the innermost axes that nobody wants.
// Room is counted in shards, so an axis may be taken in part: the lists hold pieces of axes, and
// the steps are emitted on a mesh whose axes are cut at every border that was used.
#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "lib/check.h"
#include "lib/redistribution_policies.h"
#include "lib/redistribution_reduce.h"
#include "lib/redistribution_steps.h"

namespace meshplan {
namespace {

using Piece = SubAxis;
using Pieces = std::vector<Piece>;
using Lists = std::vector<Pieces>;  ///< per tensor dimension, outermost first

std::int64_t shards_of(const Pieces& pieces) {
  std::int64_t product = 1;
  for (const Piece& piece : pieces) product *= piece.size;
  return product;
}

/// One collective on pieces of axes; `after` are the lists when it is done.
struct Operation {
  Collective collective = Collective::kSlice;
  int dim = -1;
  int target = -1;  ///< all-to-all: the dimension that receives the axes
  Pieces pieces;
  Lists after;
};

/// Where a piece is wanted.
struct Place {
  std::size_t dim = 0;
  std::size_t index = 0;
};

class ShardyRun {
 public:
  ShardyRun(Lists from, Lists to, std::vector<std::int64_t> shape)
      : now_(std::move(from)), want_(std::move(to)), shape_(std::move(shape)) {}

  std::vector<Operation> run() {
    constexpr int kRounds = 4;
    for (int round = 0; round < kRounds && !done(); ++round) {
      slice();
      permute();
      move();
      gather();
    }
    if (!done()) finish_by_gathering();
    return std::move(operations_);
  }
  const Lists& now() const { return now_; }

 private:
  std::size_t dims() const { return now_.size(); }
  bool done() {
    cut_to_common_pieces();
    return now_ == want_;
  }

  /// Splits the pieces of both sides at every border that either has.
  void cut_to_common_pieces() {
    std::map<int, std::set<std::int64_t>> borders;
    for (const Lists* lists : {&now_, &want_}) {
      for (const Pieces& pieces : *lists) {
        for (const Piece& piece : pieces) {
          borders[piece.axis].insert(piece.before);
          borders[piece.axis].insert(piece.before * piece.size);
        }
      }
    }
    for (Lists* lists : {&now_, &want_}) {
      for (Pieces& pieces : *lists) {
        Pieces cut;
        for (const Piece& piece : pieces) {
          std::int64_t before = piece.before;
          for (const std::int64_t border : borders[piece.axis]) {
            if (border <= before || border > piece.before * piece.size) continue;
            cut.push_back({piece.axis, before, border / before});
            before = border;
          }
        }
        pieces = std::move(cut);
      }
    }
  }

  std::size_t prefix_length(std::size_t dim) const {
    std::size_t length = 0;
    while (length < now_[dim].size() && length < want_[dim].size() &&
           now_[dim][length] == want_[dim][length]) {
      ++length;
    }
    return length;
  }
  /// The lists of one side behind the common front.
  Pieces tail(const Lists& lists, std::size_t dim) const {
    return {lists[dim].begin() + static_cast<std::ptrdiff_t>(prefix_length(dim)), lists[dim].end()};
  }
  static std::optional<Place> find(const Lists& lists, const Piece& piece) {
    for (std::size_t dim = 0; dim < lists.size(); ++dim) {
      const auto found = std::find(lists[dim].begin(), lists[dim].end(), piece);
      if (found != lists[dim].end()) {
        return Place{dim, static_cast<std::size_t>(found - lists[dim].begin())};
      }
    }
    return std::nullopt;
  }
  bool is_free(const Piece& piece) const { return !find(now_, piece); }

  void emit(Collective collective, std::size_t dim, int target, Pieces pieces) {
    operations_.push_back({collective, static_cast<int>(dim), target, std::move(pieces), now_});
  }

  // --- slice ---

  void slice() {
    cut_to_common_pieces();
    std::vector<std::int64_t> room;
    for (std::size_t dim = 0; dim < dims(); ++dim) {
      const std::int64_t wanted = shards_of(tail(want_, dim));
      room.push_back(wanted / std::gcd(shards_of(tail(now_, dim)), wanted));
    }
    Lists added(dims());
    Pieces taken;
    slice_behind_movers(added, taken, room);
    Pieces left;
    const auto place = [&](std::size_t dim, const Piece& piece) {
      const std::int64_t part = std::gcd(piece.size, room[dim]);
      if (part > 1) {
        added[dim].push_back({piece.axis, piece.before, part});
        room[dim] /= part;
      }
      return Piece{piece.axis, piece.before * part, piece.size / part};
    };
    for (std::size_t dim = 0; dim < dims(); ++dim) {
      for (const Piece& piece : tail(want_, dim)) {
        if (!is_free(piece) || std::find(taken.begin(), taken.end(), piece) != taken.end())
          continue;
        const Piece rest = place(dim, piece);
        if (rest.size > 1) left.push_back(rest);
      }
    }
    for (Piece rest : left) {
      for (std::size_t dim = 0; dim < dims() && rest.size > 1; ++dim) rest = place(dim, rest);
    }
    for (std::size_t dim = 0; dim < dims(); ++dim) {
      if (added[dim].empty()) continue;
      now_[dim].insert(now_[dim].end(), added[dim].begin(), added[dim].end());
      emit(Collective::kSlice, dim, -1, added[dim]);
    }
  }

  /// Free axes that follow, at their destination, the last axis of a dimension that moves there.
  void slice_behind_movers(Lists& added, Pieces& taken, std::vector<std::int64_t>& room) const {
    for (std::size_t source = 0; source < dims(); ++source) {
      const Pieces held = tail(now_, source);
      if (held.empty() || !tail(want_, source).empty()) continue;
      const auto place = find(want_, held.back());
      if (!place || place->dim == source || !tail(now_, place->dim).empty()) continue;
      // All that moves there from here must be one ordered run that ends with the last axis.
      const Pieces& wanted = want_[place->dim];
      std::size_t run = 0;
      while (run < held.size() && run <= place->index &&
             held[held.size() - 1 - run] == wanted[place->index - run]) {
        ++run;
      }
      std::size_t movers = 0;
      for (const Piece& piece : held) {
        const auto goal = find(want_, piece);
        if (goal && goal->dim == place->dim) ++movers;
      }
      if (movers != run) continue;
      // The axes that move there are as good as there.
      const Pieces moving(held.end() - static_cast<std::ptrdiff_t>(run), held.end());
      std::int64_t& free = room[place->dim];
      free /= std::gcd(free, shards_of(moving));
      for (std::size_t i = place->index + 1; i < wanted.size() && is_free(wanted[i]); ++i) {
        const std::int64_t parts =
            shards_of(now_[source]) * shards_of(added[source]) * wanted[i].size;
        if (shape_[source] % parts != 0) break;
        added[source].push_back(wanted[i]);
        taken.push_back(wanted[i]);
        free /= std::gcd(free, wanted[i].size);
      }
    }
  }

  // --- permute ---

  bool should_permute() const {
    Pieces dropped;
    Pieces missing;
    for (std::size_t dim = 0; dim < dims(); ++dim) {
      const Pieces held = tail(now_, dim);
      const Pieces wanted = tail(want_, dim);
      if (!held.empty() && !wanted.empty()) {
        const auto divides = [](std::int64_t a, std::int64_t b) {
          return a % b == 0 || b % a == 0;
        };
        if (divides(held.front().size, wanted.front().size) ||
            divides(shards_of(held), shards_of(wanted))) {
          return true;
        }
      }
      bool mover_seen = false;
      std::map<std::size_t, std::pair<std::size_t, std::size_t>> last;  // target: index here, there
      for (std::size_t i = 0; i < held.size(); ++i) {
        const auto goal = find(want_, held[i]);
        if (!goal) {
          dropped.push_back(held[i]);
          if (mover_seen) return true;
          continue;
        }
        if (goal->dim == dim) continue;
        mover_seen = true;
        const auto before = last.find(goal->dim);
        if (before != last.end() &&
            (before->second.first + 1 != i || before->second.second + 1 != goal->index)) {
          return true;
        }
        last[goal->dim] = {i, goal->index};
      }
      for (const Piece& piece : wanted) {
        if (is_free(piece)) missing.push_back(piece);
      }
    }
    for (const Piece& out : dropped) {
      for (const Piece& in : missing) {
        if (std::gcd(out.size, in.size) > 1) return true;
      }
    }
    return false;
  }

  void permute() {
    cut_to_common_pieces();
    if (!should_permute()) return;
    std::vector<std::int64_t> room;
    Lists front(dims());   // wanted axes in their place
    Lists middle(dims());  // axes to be gathered
    Lists back(dims());    // axes on their way to another dimension
    Pieces waiting;        // wanted axes without a place yet
    Lists unwanted(dims());
    for (std::size_t dim = 0; dim < dims(); ++dim) {
      const Pieces held = tail(now_, dim);
      room.push_back(shards_of(held));
      for (const Piece& piece : held) {
        if (!find(want_, piece)) unwanted[dim].push_back(piece);
      }
      std::sort(unwanted[dim].begin(), unwanted[dim].end());
    }
    /// Takes as much of a piece as fits; returns the rest (size 1: all of it was taken).
    const auto take = [&](std::size_t dim, const Piece& piece, Pieces& list, bool at_front) {
      const std::int64_t part = std::gcd(piece.size, room[dim]);
      if (part == 1) return piece;
      list.insert(at_front ? list.begin() : list.end(), Piece{piece.axis, piece.before, part});
      room[dim] /= part;
      return Piece{piece.axis, piece.before * part, piece.size / part};
    };
    for (std::size_t dim = 0; dim < dims(); ++dim) {
      bool in_place = true;
      for (const Piece& piece : tail(want_, dim)) {
        const Piece rest = in_place ? take(dim, piece, front[dim], false) : piece;
        if (rest.size == 1) continue;
        in_place = false;
        waiting.push_back(rest);
      }
    }
    for (std::size_t dim = 0; dim < dims(); ++dim) {
      for (Piece& piece : waiting) {
        if (piece.size > 1) piece = take(dim, piece, back[dim], false);
      }
    }
    for (std::size_t dim = 0; dim < dims(); ++dim) {
      for (std::size_t i = unwanted[dim].size(); i-- > 0;) {
        unwanted[dim][i] = take(dim, unwanted[dim][i], middle[dim], true);
      }
    }
    for (std::size_t dim = 0; dim < dims(); ++dim) {
      for (std::size_t other = 0; other < dims(); ++other) {
        for (std::size_t i = unwanted[other].size(); i-- > 0;) {
          if (unwanted[other][i].size > 1) {
            unwanted[other][i] = take(dim, unwanted[other][i], middle[dim], true);
          }
        }
      }
    }
    Lists next = now_;
    for (std::size_t dim = 0; dim < dims(); ++dim) {
      if (room[dim] != 1) return;  // the axes at hand do not fill the shards
      next[dim].resize(prefix_length(dim));
      for (const Pieces* part : {&front[dim], &middle[dim], &back[dim]}) {
        next[dim].insert(next[dim].end(), part->begin(), part->end());
      }
    }
    if (next == now_) return;
    now_ = std::move(next);
    emit(Collective::kPermute, 0, -1, {});
    cut_to_common_pieces();
  }

  // --- move and gather ---

  /// The innermost axes of `source` that go, in order, to one other dimension.
  std::pair<Pieces, std::size_t> movers(std::size_t source) const {
    const Pieces held = tail(now_, source);
    if (held.empty()) return {};
    const auto place = find(want_, held.back());
    if (!place || place->dim == source) return {};
    std::size_t run = 0;
    while (run < held.size() && run <= place->index &&
           held[held.size() - 1 - run] == want_[place->dim][place->index - run]) {
      ++run;
    }
    return {{held.end() - static_cast<std::ptrdiff_t>(run), held.end()}, place->dim};
  }
  void move_pieces(std::size_t source, std::size_t target, const Pieces& pieces) {
    now_[source].resize(now_[source].size() - pieces.size());
    now_[target].insert(now_[target].end(), pieces.begin(), pieces.end());
    emit(Collective::kAllToAll, source, static_cast<int>(target), pieces);
  }

  void move() {
    cut_to_common_pieces();
    for (bool progress = true; progress;) {
      progress = false;
      for (std::size_t source = 0; source < dims(); ++source) {
        const auto [pieces, target] = movers(source);
        if (pieces.empty()) continue;
        Pieces landed = now_[target];
        landed.insert(landed.end(), pieces.begin(), pieces.end());
        if (landed.size() > want_[target].size() ||
            !std::equal(landed.begin(), landed.end(), want_[target].begin())) {
          continue;
        }
        move_pieces(source, target, pieces);
        progress = true;
      }
    }
    for (std::size_t source = 0; source < dims(); ++source) {
      const auto [pieces, target] = movers(source);
      if (!pieces.empty()) move_pieces(source, target, pieces);
    }
  }

  void gather() {
    for (std::size_t dim = 0; dim < dims(); ++dim) {
      const Pieces held = tail(now_, dim);
      std::size_t count = 0;
      while (count < held.size() && !find(want_, held[held.size() - 1 - count])) ++count;
      if (count == 0) continue;
      const Pieces pieces(held.end() - static_cast<std::ptrdiff_t>(count), held.end());
      now_[dim].resize(now_[dim].size() - count);
      emit(Collective::kAllGather, dim, -1, pieces);
    }
  }

  void finish_by_gathering() {
    for (std::size_t dim = 0; dim < dims(); ++dim) {
      const Pieces held = tail(now_, dim);
      if (held.empty()) continue;
      now_[dim].resize(now_[dim].size() - held.size());
      emit(Collective::kAllGather, dim, -1, held);
    }
    for (std::size_t dim = 0; dim < dims(); ++dim) {
      const Pieces wanted = tail(want_, dim);
      if (wanted.empty()) continue;
      now_[dim].insert(now_[dim].end(), wanted.begin(), wanted.end());
      emit(Collective::kSlice, dim, -1, wanted);
    }
  }

  Lists now_;
  Lists want_;
  std::vector<std::int64_t> shape_;
  std::vector<Operation> operations_;
};

Lists lists_of(std::span<const std::int64_t> axis_sizes,
               const LayoutState& state,
               std::size_t dims) {
  Lists lists(dims);
  for (std::size_t dim = 0; dim < dims; ++dim) {
    for (const std::int8_t axis : state.cuts_of(static_cast<int>(dim))) {
      lists[dim].push_back({axis, 1, axis_sizes[static_cast<std::size_t>(axis)]});
    }
  }
  return lists;
}

/// The mesh cut at every border that the operations use.
class RefinedMesh {
 public:
  RefinedMesh(std::span<const std::int64_t> axis_sizes, const std::vector<Operation>& operations) {
    for (int axis = 0; axis < static_cast<int>(axis_sizes.size()); ++axis) {
      const std::int64_t size = axis_sizes[static_cast<std::size_t>(axis)];
      std::set<std::int64_t> borders = {size};
      for (const Operation& operation : operations) {
        for (const Pieces& pieces : operation.after) {
          for (const Piece& piece : pieces) {
            if (piece.axis != axis) continue;
            borders.insert(piece.before);
            borders.insert(piece.before * piece.size);
          }
        }
      }
      std::int64_t before = 1;
      for (const std::int64_t border : borders) {
        if (border == 1 && size > 1) continue;
        axes_.push_back({axis, before, border / before});
        before = border;
      }
    }
  }
  /// Leaves out the pieces that neither the operations nor a reduction use.
  void keep_used(const std::vector<Operation>& operations,
                 const Lists& from,
                 const LayoutState& state) {
    std::set<int> used;
    const auto look_at = [&](const Lists& lists) {
      for (const Pieces& pieces : lists) {
        for (const int axis : axes_of(pieces)) used.insert(axis);
      }
    };
    look_at(from);
    for (const Operation& operation : operations) look_at(operation.after);
    std::vector<SubAxis> kept;
    for (std::size_t i = 0; i < axes_.size(); ++i) {
      if (used.count(static_cast<int>(i)) != 0 ||
          state.partial[static_cast<std::size_t>(axes_[i].axis)] >= 0) {
        kept.push_back(axes_[i]);
      }
    }
    axes_ = std::move(kept);
  }

  const std::vector<SubAxis>& axes() const { return axes_; }
  std::vector<std::int64_t> sizes() const {
    std::vector<std::int64_t> sizes;
    for (const SubAxis& axis : axes_) sizes.push_back(axis.size);
    return sizes;
  }
  /// The refined axes of a piece, outermost first.
  std::vector<int> axes_of(const Pieces& pieces) const {
    std::vector<int> result;
    for (const Piece& piece : pieces) {
      for (std::size_t i = 0; i < axes_.size(); ++i) {
        if (axes_[i].axis == piece.axis && axes_[i].before >= piece.before &&
            axes_[i].before * axes_[i].size <= piece.before * piece.size) {
          result.push_back(static_cast<int>(i));
        }
      }
    }
    return result;
  }
  LayoutCode code_of(const Lists& lists) const {
    LayoutCode code = 0;
    for (std::size_t dim = 0; dim < lists.size(); ++dim) {
      int position = 0;
      for (const int axis : axes_of(lists[dim])) {
        code = with_byte(code, axis, cut_byte(static_cast<int>(dim), position++));
      }
    }
    return code;
  }
  LayoutCode with_partial(LayoutCode code, const LayoutState& state) const {
    for (std::size_t i = 0; i < axes_.size(); ++i) {
      const std::int8_t kind = state.partial[static_cast<std::size_t>(axes_[i].axis)];
      if (kind >= 0) {
        code = with_byte(code, static_cast<int>(i), partial_byte(static_cast<Reduction>(kind)));
      }
    }
    return code;
  }

 private:
  std::vector<SubAxis> axes_;
};

/// The shape, or where several axes cut a dimension unevenly, the next one that everything divides.
std::vector<std::int64_t> padded_shape(std::span<const std::int64_t> shape,
                                       const Lists& from,
                                       const std::vector<Operation>& operations) {
  std::vector<std::int64_t> padded(shape.begin(), shape.end());
  for (std::size_t dim = 0; dim < shape.size(); ++dim) {
    std::int64_t common = 1;
    bool fits = true;
    const auto look_at = [&](const Pieces& pieces) {
      const std::int64_t parts = shards_of(pieces);
      common = std::lcm(common, parts);
      fits = fits && (pieces.size() < 2 || shape[dim] % parts == 0);
    };
    look_at(from[dim]);
    for (const Operation& operation : operations) look_at(operation.after[dim]);
    if (!fits) padded[dim] = (shape[dim] + common - 1) / common * common;
  }
  return padded;
}

/// The operations from `first` on.
bool build_from(StepBuilder& steps,
                const RefinedMesh& mesh,
                const std::vector<Operation>& operations,
                std::size_t first) {
  for (std::size_t i = first; i < operations.size(); ++i) {
    const Operation& operation = operations[i];
    const std::vector<int> axes = mesh.axes_of(operation.pieces);
    bool allowed = true;
    if (operation.collective == Collective::kSlice) {
      allowed = steps.slice(operation.dim, axes);
    } else if (operation.collective == Collective::kAllToAll) {
      allowed = steps.all_to_all(operation.target, operation.dim, axes);
    } else if (operation.collective == Collective::kAllGather) {
      allowed = steps.all_gather(operation.dim, axes);
    } else {
      // Pending reductions stay where they are.
      LayoutCode after = mesh.code_of(operation.after);
      for (int axis = 0; axis < static_cast<int>(mesh.axes().size()); ++axis) {
        const std::uint8_t byte = code_byte(steps.code(), axis);
        if ((byte & 0x80) != 0) after = with_byte(after, axis, byte);
      }
      allowed = steps.permute(after);
    }
    if (!allowed) return false;
  }
  return true;
}

/// Reductions, then the operations; an all-reduce in front of slices becomes a reduce-scatter where
/// the slices start with exactly its axes.
bool build(StepBuilder& steps,
           const RefinedMesh& mesh,
           const std::vector<Operation>& operations,
           const LayoutState& from,
           const std::vector<int>& reduce) {
  const auto refined = [&](int axis) { return mesh.axes_of({{axis, 1, std::int64_t{1} << 62}}); };
  std::size_t done = 0;
  while (done < reduce.size()) {
    const std::int8_t kind = from.partial[static_cast<std::size_t>(reduce[done])];
    std::vector<int> together;
    while (done < reduce.size() && from.partial[static_cast<std::size_t>(reduce[done])] == kind) {
      const auto pieces = refined(reduce[done++]);
      together.insert(together.end(), pieces.begin(), pieces.end());
    }
    std::sort(together.begin(), together.end());
    const auto reduction = static_cast<Reduction>(kind);
    if (done < reduce.size()) {
      if (!steps.all_reduce(together, reduction)) return false;
      continue;
    }
    // The last reduction: how far do the slices behind it use its axes?
    std::vector<std::pair<int, std::vector<int>>> scatters;
    std::vector<std::pair<int, std::vector<int>>> slices;
    std::size_t next = 0;
    std::size_t matched = 0;
    for (; next < operations.size() && operations[next].collective == Collective::kSlice; ++next) {
      const std::vector<int> axes = mesh.axes_of(operations[next].pieces);
      auto rest = axes.begin();
      while (rest != axes.end() && std::binary_search(together.begin(), together.end(), *rest))
        ++rest;
      matched += static_cast<std::size_t>(rest - axes.begin());
      scatters.push_back({operations[next].dim, {axes.begin(), rest}});
      slices.push_back({operations[next].dim, {rest, axes.end()}});
    }
    if (matched != together.size()) {
      if (!steps.all_reduce(together, reduction)) return false;
      break;
    }
    for (const auto& [dim, axes] : scatters) {
      if (!steps.reduce_scatter(dim, axes, reduction)) return false;
    }
    for (const auto& [dim, axes] : slices) {
      if (!steps.slice(dim, axes)) return false;
    }
    return build_from(steps, mesh, operations, next);
  }
  return build_from(steps, mesh, operations, 0);
}

}  // namespace

Result<RefinedRedistribution> shardy_redistribution(std::span<const std::int64_t> axis_sizes,
                                                    const PriceOfMesh& price,
                                                    std::span<const std::int64_t> shape,
                                                    Bytes dtype_bytes,
                                                    std::span<const Placement> from,
                                                    std::span<const Placement> to) {
  const std::size_t axis_count = axis_sizes.size();
  std::vector<int> whole_axis(axis_count);  // in the mesh asked for, per axis looked at
  std::iota(whole_axis.begin(), whole_axis.end(), 0);
  const std::vector<std::int64_t> whole_sizes(axis_sizes.begin(), axis_sizes.end());
  const Placements whole_from(from.begin(), from.end());
  const auto used = used_axes(axis_sizes, from, to);
  if (used) {
    whole_axis = used->axes;
    axis_sizes = used->sizes;
    from = used->from;
    to = used->to;
  }
  // Padding makes several axes on an uneven dimension legal; everything else is checked here.
  const int rank = static_cast<int>(shape.size());
  const auto source = encode_placements(axis_sizes, rank, from);
  const auto goal = encode_placements(axis_sizes, rank, to);
  if (!source || !goal) {
    auto codes = checked_codes(axis_sizes, shape, dtype_bytes, from, to);
    return fail(codes.error());
  }
  const std::vector<std::int64_t> empty(shape.size(), 0);
  if (auto ok = check_codes(axis_sizes, shape, dtype_bytes, 0, 0); !ok) return fail(ok.error());
  if (auto ok = check_codes(axis_sizes, empty, dtype_bytes, *source, *goal); !ok)
    return fail(ok.error());
  const int axes = static_cast<int>(axis_sizes.size());
  const LayoutState state_from = unpack(active_code(axis_sizes, *source), axes);
  const LayoutState state_to = unpack(active_code(axis_sizes, *goal), axes);

  const Lists lists_from = lists_of(axis_sizes, state_from, shape.size());
  const Lists lists_to = lists_of(axis_sizes, state_to, shape.size());
  ShardyRun run(lists_from, lists_to, {shape.begin(), shape.end()});
  const std::vector<Operation> operations = run.run();

  RefinedMesh mesh(axis_sizes, operations);
  // All pieces of the mesh asked for, and which of them the sequence is built on.
  RefinedRedistribution result;
  UsedAxes pieces;
  const std::vector<SubAxis> refined = mesh.axes();
  if (refined.size() > kMaxMoveAxes) mesh.keep_used(operations, lists_from, state_from);
  if (mesh.axes().size() > kMaxMoveAxes) {
    return fail(
        ErrorCode::kUnsupported, "/mesh", "the sequence needs more than 8 parts of mesh axes");
  }
  for (std::size_t axis = 0, next = 0, kept = 0; axis < axis_count; ++axis) {
    const auto looked_at = std::find(whole_axis.begin(), whole_axis.end(), static_cast<int>(axis));
    if (looked_at == whole_axis.end()) {
      result.axes.push_back({static_cast<int>(axis), 1, whole_sizes[axis]});
      continue;
    }
    const int index = static_cast<int>(looked_at - whole_axis.begin());
    for (; next < refined.size() && refined[next].axis == index; ++next) {
      if (kept < mesh.axes().size() && mesh.axes()[kept] == refined[next]) {
        pieces.axes.push_back(static_cast<int>(result.axes.size()));
        ++kept;
      }
      result.axes.push_back({static_cast<int>(axis), refined[next].before, refined[next].size});
    }
  }
  for (const SubAxis& piece : result.axes) result.axis_sizes.push_back(piece.size);
  pieces.sizes = mesh.sizes();
  result.refined = result.axes.size() != axis_count;
  result.padded_shape = padded_shape(shape, lists_from, operations);
  LayoutCode refined_from = mesh.with_partial(mesh.code_of(lists_from), state_from);
  LayoutCode refined_to = mesh.with_partial(mesh.code_of(lists_to), state_to);
  if (!result.refined) refined_to = *goal;  // keeps what the caller says about axes of size 1
  if (auto ok =
          check_codes(pieces.sizes, result.padded_shape, dtype_bytes, refined_from, refined_from);
      !ok) {
    return fail(ok.error());
  }
  StepBuilder steps(pieces.sizes,
                    result.padded_shape,
                    dtype_bytes,
                    price_on(pieces, price(result.axis_sizes)),
                    refined_from);
  const bool built =
      build(steps, mesh, operations, state_from, axes_to_reduce(state_from, state_to)) &&
      steps.mask_missing(
          unpack(active_code(pieces.sizes, refined_to), static_cast<int>(pieces.sizes.size())));
  MESHPLAN_CHECK(built);
  MESHPLAN_CHECK(steps.code() == active_code(pieces.sizes, refined_to));
  result.steps = on_all_axes(pieces, result.axes.size(), std::move(steps).finish(refined_to));
  result.from = whole_from;
  if (result.refined) {
    result.from.assign(result.axes.size(), Placement{Replicate{}});
    const Placements on_pieces = decode_placements(pieces.sizes, refined_from);
    for (std::size_t i = 0; i < pieces.axes.size(); ++i)
      result.from[static_cast<std::size_t>(pieces.axes[i])] = on_pieces[i];
  }
  return result;
}

}  // namespace meshplan

// SPDX-License-Identifier: Apache-2.0
#include "lib/redistribution_between.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <utility>

#include "lib/check.h"
#include "lib/layout.h"
#include "lib/redistribution_moves.h"
#include "lib/redistribution_steps.h"
#include "lib/virtual_devices.h"

namespace meshplan {
namespace {

constexpr std::int64_t kMostDevices = std::int64_t{1} << 20;

/// A digit of the position in the first mesh, and what it counts in the second.
struct Digit {
  std::int64_t size = 1;
  int first_axis = 0;
  std::int64_t first_stride = 1;
  std::int64_t second_stride = 1;
};

/// position_map[p]: the position in the second mesh of the device at position p of the first.
class RefinementSearch {
 public:
  RefinementSearch(std::span<const std::int64_t> first,
                   std::span<const std::int64_t> second,
                   std::vector<std::int64_t> position_map)
      : first_(first), second_(second), map_(std::move(position_map)) {}

  std::optional<MeshRefinement> run() {
    if (map_.front() != 0 || !extend(first_.size(), 1)) return std::nullopt;
    return coarse();
  }

 private:
  /// Finds digits for the axes before `axis`; those behind are found. Digits are taken from the
  /// innermost outwards: the largest run of devices that are equally spaced in the second mesh.
  bool extend(std::size_t axis, std::int64_t stride) {
    while (axis-- > 0) {
      std::int64_t left = first_[axis];
      while (left > 1) {
        const std::int64_t step = map_[static_cast<std::size_t>(stride)];
        std::int64_t run = 1;
        while (run < left && map_[static_cast<std::size_t>(run * stride)] == run * step) ++run;
        // The largest divisor of what is left of the axis that is not longer than the run.
        std::int64_t size = run;
        while (left % size != 0) --size;
        if (size == 1) return false;
        digits_.push_back({size, static_cast<int>(axis), stride, step});
        stride *= size;
        left /= size;
      }
    }
    std::reverse(digits_.begin(), digits_.end());
    return is_linear() && cut_at_second_axes();
  }

  bool is_linear() const {
    for (std::size_t position = 0; position < map_.size(); ++position) {
      std::int64_t expected = 0;
      for (const Digit& digit : digits_) {
        expected += static_cast<std::int64_t>(position) / digit.first_stride % digit.size *
                    digit.second_stride;
      }
      if (expected != map_[position]) return false;
    }
    return true;
  }

  /// Splits digits where an axis of the second mesh ends; fails where that is inside a prime.
  bool cut_at_second_axes() {
    std::int64_t border = 1;
    for (std::size_t axis = second_.size(); axis-- > 0;) {
      border *= second_[axis];
      for (std::size_t i = 0; i < digits_.size(); ++i) {
        const Digit digit = digits_[i];
        if (digit.second_stride >= border || digit.second_stride * digit.size <= border) continue;
        const std::int64_t inner = border / digit.second_stride;
        if (border % digit.second_stride != 0 || digit.size % inner != 0) return false;
        digits_[i] = {digit.size / inner, digit.first_axis, digit.first_stride * inner, border};
        digits_.insert(digits_.begin() + static_cast<std::ptrdiff_t>(i) + 1,
                       {inner, digit.first_axis, digit.first_stride, digit.second_stride});
      }
    }
    return true;
  }

  std::optional<MeshRefinement> coarse() const {
    MeshRefinement result;
    result.of_first.resize(first_.size());
    result.of_second.resize(second_.size());
    for (std::size_t i = 0; i < digits_.size(); ++i) {
      result.sizes.push_back(digits_[i].size);
      result.of_first[static_cast<std::size_t>(digits_[i].first_axis)].push_back(
          static_cast<int>(i));
    }
    std::int64_t border = 1;
    for (std::size_t axis = second_.size(); axis-- > 0;) {
      const std::int64_t stride = border;
      border *= second_[axis];
      std::vector<std::pair<std::int64_t, int>> pieces;
      for (std::size_t i = 0; i < digits_.size(); ++i) {
        const std::int64_t at = digits_[i].second_stride;
        if (at >= stride && at < border) pieces.emplace_back(-at, static_cast<int>(i));
      }
      std::sort(pieces.begin(), pieces.end());
      std::int64_t product = 1;
      for (const auto& piece : pieces) {
        result.of_second[axis].push_back(piece.second);
        product *= digits_[static_cast<std::size_t>(piece.second)].size;
      }
      if (product != second_[axis]) return std::nullopt;
    }
    return result;
  }

  std::span<const std::int64_t> first_;
  std::span<const std::int64_t> second_;
  std::vector<std::int64_t> map_;
  std::vector<Digit> digits_;
};

std::vector<std::int64_t> sizes_of(const DeviceMesh& mesh) {
  return {mesh.shape().begin(), mesh.shape().end()};
}

AxisSet all_axes(std::size_t count) { return (AxisSet{1} << count) - 1; }

bool same_ranks(const DeviceMesh& a, const DeviceMesh& b) {
  std::vector<std::int64_t> left = a.ranks();
  std::vector<std::int64_t> right = b.ranks();
  std::sort(left.begin(), left.end());
  std::sort(right.begin(), right.end());
  return left == right;
}

std::string piece_name(const DeviceMesh& mesh,
                       std::span<const std::vector<int>> pieces,
                       std::span<const std::int64_t> sizes,
                       int piece) {
  for (std::size_t axis = 0; axis < pieces.size(); ++axis) {
    std::int64_t before = 1;
    for (const int candidate : pieces[axis]) {
      const std::int64_t size = sizes[static_cast<std::size_t>(candidate)];
      if (candidate == piece) {
        const std::string name = mesh.axis_label(static_cast<int>(axis));
        if (pieces[axis].size() == 1) return name;
        return name + ":(" + std::to_string(before) + ")" + std::to_string(size);
      }
      before *= size;
    }
  }
  return {};
}

class BetweenPlanner {
 public:
  BetweenPlanner(const DeviceMesh& from_mesh,
                 const DeviceMesh& to_mesh,
                 const PriceOfDeviceMesh& price,
                 std::span<const std::int64_t> shape,
                 Bytes dtype_bytes,
                 Placements from,
                 Placements to)
      : from_mesh_(from_mesh),
        to_mesh_(to_mesh),
        price_(price),
        shape_(shape),
        dtype_bytes_(dtype_bytes),
        from_(std::move(from)),
        to_(std::move(to)),
        rank_(static_cast<int>(shape.size())) {}

  Result<RedistributionBetween> run() {
    std::vector<RedistributionBetween> found;
    const auto keep = [&](Result<RedistributionBetween> candidate) -> Result<void> {
      if (!candidate) {
        // A mesh with too many pieces is no fault of the request: other ways remain.
        if (candidate.error().code == ErrorCode::kUnsupported) return {};
        return fail(candidate.error());
      }
      found.push_back(*std::move(candidate));
      return {};
    };
    if (same_ranks(from_mesh_, to_mesh_)) {
      if (auto done = keep(by_refinement(from_mesh_, {})); !done) return fail(done.error());
      const bool refines = !found.empty();
      if (!refines && from_mesh_.ranks() != to_mesh_.ranks()) {
        if (auto done = keep(by_permute()); !done) return fail(done.error());
      }
      if (auto done = keep(by_gathering()); !done) return fail(done.error());
      if (!refines) {
        if (auto done = keep(by_blocks()); !done) return fail(done.error());
      }
    } else if (auto done = keep(by_blocks()); !done) {
      return fail(done.error());
    }
    if (found.empty()) {
      return fail(ErrorCode::kUnsupported, "/to_mesh", "the two meshes have too many axes");
    }
    std::size_t best = 0;
    for (std::size_t i = 1; i < found.size(); ++i) {
      if (found[i].time < found[best].time) best = i;
    }
    return std::move(found[best]);
  }

 private:
  Result<void> append(RedistributionBetween& result,
                      const DeviceMesh& mesh,
                      const Placements& before,
                      const Redistribution& plan) const {
    const std::vector<std::int64_t> ranks = mesh.ranks();
    Placements now = before;
    for (const RedistributionStep& step : plan.steps) {
      auto replay = replay_step(mesh.shape(), rank_, now, step);
      if (!replay) return fail(replay.error());
      translate(*replay, ranks);
      result.steps.push_back({step, *std::move(replay), mesh});
      now = step.after;
    }
    result.time += plan.time;
    result.bytes += plan.bytes;
    return {};
  }

  Result<void> append_plan(RedistributionBetween& result,
                           const DeviceMesh& mesh,
                           const Placements& from,
                           const Placements& to) const {
    auto price = price_(mesh);
    if (!price) return fail(price.error());
    RedistributionPlanner planner(sizes_of(mesh), *price);
    auto plan = planner.plan(shape_, dtype_bytes_, from, to);
    if (!plan) return fail(plan.error());
    return append(result, mesh, from, **plan);
  }

  /// A plan on the common refinement of `start` (which holds the data under from_) and the goal.
  Result<RedistributionBetween> by_refinement(const DeviceMesh& start,
                                              RedistributionBetween result) const {
    const auto refinement = common_refinement(start, to_mesh_);
    if (!refinement)
      return fail(ErrorCode::kUnsupported, "", "the meshes have no common refinement");
    if (refinement->sizes.empty()) return result;  // one device: all layouts hold the same
    auto from =
        refined_placements(start.shape(), refinement->sizes, refinement->of_first, rank_, from_);
    if (!from) return fail(from.error());
    auto to =
        refined_placements(to_mesh_.shape(), refinement->sizes, refinement->of_second, rank_, to_);
    if (!to) return fail(to.error());
    for (const auto& [placements, mesh] : {std::pair{&*from, &start}, std::pair{&*to, &to_mesh_}}) {
      const auto code = encode_placements(refinement->sizes, rank_, *placements);
      // One axis may cut unevenly, its pieces may not.
      if (!code || local_elements(refinement->sizes, shape_, *code) < 0) {
        return fail(
            ErrorCode::kUnsupported,
            "",
            "an uneven cut of " + to_string(*mesh) + " has no counterpart on the refinement");
      }
    }
    std::vector<std::string> names;
    for (int piece = 0; piece < static_cast<int>(refinement->sizes.size()); ++piece) {
      names.push_back(piece_name(start, refinement->of_first, refinement->sizes, piece));
    }
    auto mesh = refinement->sizes == sizes_of(start)
                    ? Result<DeviceMesh>(start)
                    : DeviceMesh::make(refinement->sizes, names, start.ranks());
    if (!mesh) return fail(mesh.error());
    if (auto done = append_plan(result, *mesh, *from, *to); !done) return fail(done.error());
    return result;
  }

  /// One permute that brings position p of the source to the rank at position p of the goal.
  Result<RedistributionBetween> by_permute() const {
    auto moved = DeviceMesh::make(sizes_of(from_mesh_),
                                  {from_mesh_.axes().begin(), from_mesh_.axes().end()},
                                  to_mesh_.ranks());
    if (!moved) return fail(moved.error());
    auto price = price_(from_mesh_);
    if (!price) return fail(price.error());
    const auto code = encode_placements(from_mesh_.shape(), rank_, from_);
    if (!code) return fail(code.error());
    RedistributionStep step;
    step.collective = Collective::kPermute;
    step.axes = all_axes(from_mesh_.shape().size());
    for (int axis = 0; axis < from_mesh_.ndim(); ++axis) step.order.push_back(axis);
    step.call_bytes = local_elements(from_mesh_.shape(), shape_, *code) * dtype_bytes_;
    step.bytes_moved = step.call_bytes;
    step.time = on_price_grid((*price)({step.collective, step.axes, step.call_bytes}));
    step.after = from_;
    ReplayStep replay;
    replay.collective = Collective::kPermute;
    const std::vector<std::int64_t> before = from_mesh_.ranks();
    const std::vector<std::int64_t> after = to_mesh_.ranks();
    replay.groups = {before};
    std::sort(replay.groups.front().begin(), replay.groups.front().end());
    for (std::size_t p = 0; p < before.size(); ++p) replay.pairs.push_back({before[p], after[p]});
    RedistributionBetween result;
    result.time = step.time;
    result.bytes = step.bytes_moved;
    result.steps.push_back({std::move(step), std::move(replay), *moved});
    return by_refinement(*moved, std::move(result));
  }

  static Placements replicated(const DeviceMesh& mesh) {
    return Placements(static_cast<std::size_t>(mesh.ndim()), Placement{Replicate{}});
  }
  static Placements without_partial(Placements placements) {
    for (Placement& placement : placements) {
      if (std::holds_alternative<Partial>(placement)) placement = Replicate{};
    }
    return placements;
  }

  Result<RedistributionBetween> by_gathering() const {
    RedistributionBetween result;
    if (auto done = append_plan(result, from_mesh_, from_, replicated(from_mesh_)); !done)
      return fail(done.error());
    if (auto done = append_plan(result, to_mesh_, replicated(to_mesh_), to_); !done)
      return fail(done.error());
    return result;
  }

  /// Reductions on the source, blocks to whoever needs them, masks on the destination.
  Result<RedistributionBetween> by_blocks() const {
    RedistributionBetween result;
    const Placements held = without_partial(from_);
    const Placements needed = without_partial(to_);
    if (auto done = append_plan(result, from_mesh_, from_, held); !done) return fail(done.error());
    auto source = Layout::from_placements(from_mesh_, held, rank_);
    if (!source) return fail(source.error());
    auto goal = Layout::from_placements(to_mesh_, needed, rank_);
    if (!goal) return fail(goal.error());
    if (from_mesh_.size() > kMostDevices || to_mesh_.size() > kMostDevices) {
      return fail(
          ErrorCode::kUnsupported, "/mesh", "blocks are listed for at most 1048576 devices");
    }
    auto step = block_step(*source, *goal);
    if (!step) return fail(step.error());
    if (!is_in_place(*step, *source)) {
      result.time += step->step.time;
      result.bytes += step->step.bytes_moved;
      result.steps.push_back(*std::move(step));
    }
    if (auto done = append_plan(result, to_mesh_, needed, to_); !done) return fail(done.error());
    // Axes of size 1 need no step to become what the goal says.
    if (!result.steps.empty() && result.steps.back().mesh == to_mesh_)
      result.steps.back().step.after = to_;
    return result;
  }

  /// Does every device of the goal keep exactly what it holds?
  bool is_in_place(const BetweenStep& step, const Layout& source) const {
    return std::all_of(
        step.replay.sends.begin(), step.replay.sends.end(), [&](const BlockSend& send) {
          if (send.source != send.destination) return false;
          const auto position = from_mesh_.position_of(send.source);
          MESHPLAN_CHECK(position.has_value());
          const auto held = source.slice(shape_, *position);
          MESHPLAN_CHECK(held.has_value());
          for (std::size_t dim = 0; dim < send.size.size(); ++dim) {
            if (send.size[dim] != (*held)[dim].size() || send.destination_begin[dim] != 0)
              return false;
          }
          return true;
        });
  }

  Result<BetweenStep> block_step(const Layout& source, const Layout& goal) const {
    // The pieces that exist on the source and who holds each.
    std::map<std::vector<std::int64_t>, std::vector<DeviceRank>> holders;
    std::map<DeviceRank, std::vector<Interval>> held;
    for (std::int64_t position = 0; position < from_mesh_.size(); ++position) {
      std::vector<std::int64_t> key;
      for (int dim = 0; dim < rank_; ++dim) key.push_back(source.piece_of(dim, position));
      auto slice = source.slice(shape_, position);
      if (!slice) return fail(slice.error());
      const DeviceRank device = from_mesh_.rank_at(position);
      holders[std::move(key)].push_back(device);
      held.emplace(device, *std::move(slice));
    }
    std::map<DeviceRank, Bytes> sent;
    Bytes most_received = 0;
    ReplayStep replay;
    replay.collective = Collective::kSendReceive;
    for (std::int64_t position = 0; position < to_mesh_.size(); ++position) {
      auto slice = goal.slice(shape_, position);
      if (!slice) return fail(slice.error());
      const DeviceRank device = to_mesh_.rank_at(position);
      Bytes received = 0;
      collect_blocks(source, *slice, [&](const std::vector<std::int64_t>& key) {
        // The device itself, else the holder that has sent least so far.
        const std::vector<DeviceRank>& candidates = holders.at(key);
        DeviceRank best = candidates.front();
        for (const DeviceRank candidate : candidates) {
          if (sent[candidate] < sent[best]) best = candidate;
        }
        if (std::find(candidates.begin(), candidates.end(), device) != candidates.end()) {
          best = device;
        }
        BlockSend send;
        send.source = best;
        send.destination = device;
        const std::vector<Interval>& piece = held.at(best);
        Bytes bytes = dtype_bytes_;
        for (std::size_t dim = 0; dim < slice->size(); ++dim) {
          const std::int64_t begin = std::max(piece[dim].begin, (*slice)[dim].begin);
          const std::int64_t end = std::min(piece[dim].end, (*slice)[dim].end);
          const std::int64_t size = std::max<std::int64_t>(end - begin, 0);  // 0: an empty shard
          send.source_begin.push_back(size > 0 ? begin - piece[dim].begin : 0);
          send.destination_begin.push_back(size > 0 ? begin - (*slice)[dim].begin : 0);
          send.size.push_back(size);
          bytes *= size;
        }
        if (best != device) {
          sent[best] += bytes;
          received += bytes;
        }
        replay.sends.push_back(std::move(send));
      });
      most_received = std::max(most_received, received);
    }
    const DeviceMesh& mesh = from_mesh_.size() > to_mesh_.size() ? from_mesh_ : to_mesh_;
    auto price = price_(mesh);
    if (!price) return fail(price.error());
    RedistributionStep step;
    step.collective = Collective::kSendReceive;
    step.axes = all_axes(to_mesh_.shape().size());
    for (int axis = 0; axis < to_mesh_.ndim(); ++axis) step.order.push_back(axis);
    Bytes most_sent = 0;
    for (const auto& [device, bytes] : sent) most_sent = std::max(most_sent, bytes);
    step.bytes_moved = most_sent;
    step.call_bytes = std::max(most_sent, most_received);
    // A device handles its messages one after the other.
    std::map<DeviceRank, std::int64_t> outgoing;
    std::map<DeviceRank, std::int64_t> incoming;
    std::int64_t most = 0;
    for (const BlockSend& send : replay.sends) {
      if (send.source == send.destination || element_count(send.size) == 0) continue;
      most = std::max({most, ++outgoing[send.source], ++incoming[send.destination]});
    }
    const Seconds one =
        most > 0 ? (*price)({Collective::kSendReceive,
                             all_axes(mesh.shape().size()),
                             step.call_bytes / most + (step.call_bytes % most != 0 ? 1 : 0)})
                 : (*price)({Collective::kSlice, 0, local_bytes(goal)});
    step.time = on_price_grid(static_cast<double>(std::max<std::int64_t>(most, 1)) * one);
    step.after = goal.placements();
    replay.groups = {from_mesh_.ranks()};
    std::vector<DeviceRank>& everyone = replay.groups.front();
    for (const std::int64_t device : to_mesh_.ranks()) everyone.push_back(device);
    std::sort(everyone.begin(), everyone.end());
    everyone.erase(std::unique(everyone.begin(), everyone.end()), everyone.end());
    return BetweenStep{std::move(step), std::move(replay), to_mesh_};
  }

  Bytes local_bytes(const Layout& layout) const {
    Bytes bytes = dtype_bytes_;
    auto local = layout.local_shape(shape_);
    if (!local) return 0;
    for (const std::int64_t size : *local) bytes *= size;
    return bytes;
  }

  /// Calls visit(key) for every source piece that shares elements with a block, in row-major order.
  template <class Visit>
  void collect_blocks(const Layout& source,
                      const std::vector<Interval>& block,
                      const Visit& visit) const {
    std::vector<std::pair<std::int64_t, std::int64_t>> range;  // first and last piece per dimension
    for (int dim = 0; dim < rank_; ++dim) {
      const Interval& part = block[static_cast<std::size_t>(dim)];
      const std::int64_t parts = source.parts(dim);
      const std::int64_t size = shape_[static_cast<std::size_t>(dim)];
      const std::int64_t step = size / parts + (size % parts != 0 ? 1 : 0);
      if (part.size() <= 0) {
        range.emplace_back(0, 0);  // an empty block says how large the other dimensions are
      } else {
        range.emplace_back(part.begin / step, (part.end - 1) / step);
      }
    }
    std::vector<std::int64_t> key;
    for (const auto& one : range) key.push_back(one.first);
    while (true) {
      visit(key);
      std::size_t dim = key.size();
      while (dim > 0 && key[dim - 1] == range[dim - 1].second) {
        key[dim - 1] = range[dim - 1].first;
        --dim;
      }
      if (dim == 0) return;
      ++key[dim - 1];
    }
  }

  const DeviceMesh& from_mesh_;
  const DeviceMesh& to_mesh_;
  const PriceOfDeviceMesh& price_;
  std::span<const std::int64_t> shape_;
  Bytes dtype_bytes_;
  Placements from_;
  Placements to_;
  int rank_;
};

}  // namespace

std::optional<MeshRefinement> common_refinement(const DeviceMesh& first, const DeviceMesh& second) {
  if (first.size() != second.size() || first.size() > kMostDevices) return std::nullopt;
  std::vector<std::int64_t> map;
  map.reserve(static_cast<std::size_t>(first.size()));
  for (std::int64_t position = 0; position < first.size(); ++position) {
    const auto other = second.position_of(first.rank_at(position));
    if (!other) return std::nullopt;
    map.push_back(*other);
  }
  return RefinementSearch(first.shape(), second.shape(), std::move(map)).run();
}

Result<Placements> refined_placements(std::span<const std::int64_t> axis_sizes,
                                      std::span<const std::int64_t> refined_sizes,
                                      std::span<const std::vector<int>> pieces,
                                      int tensor_rank,
                                      std::span<const Placement> placements) {
  if (refined_sizes.size() > kMaxMoveAxes) {
    return fail(ErrorCode::kUnsupported, "", "the meshes together have more than 8 pieces of axes");
  }
  const auto code = encode_placements(axis_sizes, tensor_rank, placements);
  if (!code) return fail(code.error());
  const LayoutState state = unpack(*code, static_cast<int>(axis_sizes.size()));
  LayoutCode refined = 0;
  for (std::size_t axis = 0; axis < axis_sizes.size(); ++axis) {
    if (state.partial[axis] < 0) continue;
    for (const int piece : pieces[axis]) {
      refined =
          with_byte(refined, piece, partial_byte(static_cast<Reduction>(state.partial[axis])));
    }
  }
  for (int dim = 0; dim < tensor_rank; ++dim) {
    int position = 0;
    for (const std::int8_t axis : state.cuts_of(dim)) {
      for (const int piece : pieces[static_cast<std::size_t>(axis)]) {
        refined = with_byte(refined, piece, cut_byte(dim, position++));
      }
    }
  }
  return decode_placements(refined_sizes, refined);
}

Result<RedistributionBetween> redistribute_between(const DeviceMesh& from_mesh,
                                                   const DeviceMesh& to_mesh,
                                                   const PriceOfDeviceMesh& price,
                                                   std::span<const std::int64_t> shape,
                                                   Bytes dtype_bytes,
                                                   std::span<const Placement> from,
                                                   std::span<const Placement> to) {
  const auto check = [&](const DeviceMesh& mesh,
                         std::span<const Placement> placements,
                         const char* where) -> Result<void> {
    auto codes = checked_codes(mesh.shape(), shape, dtype_bytes, placements, placements);
    if (codes) return {};
    Error error = codes.error();
    if (error.where.starts_with("/from")) error.where = where + error.where.substr(5);
    return fail(std::move(error));
  };
  if (auto ok = check(from_mesh, from, "/from"); !ok) return fail(ok.error());
  if (auto ok = check(to_mesh, to, "/to"); !ok) return fail(ok.error());
  BetweenPlanner planner(from_mesh,
                         to_mesh,
                         price,
                         shape,
                         dtype_bytes,
                         {from.begin(), from.end()},
                         {to.begin(), to.end()});
  return planner.run();
}

}  // namespace meshplan

// SPDX-License-Identifier: Apache-2.0
#include "lib/layout.h"

#include <algorithm>
#include <utility>

#include "lib/check.h"
#include "lib/text.h"

namespace meshplan {
namespace {

std::size_t at(int index) { return static_cast<std::size_t>(index); }

std::string index_pointer(std::size_t index) { return "/" + std::to_string(index); }

/// The order that a split factor asks for: the cut goes before the first of `right` (the axes to
/// the right on the same dimension, outermost first) at which the sizes so far multiply to it.
std::optional<int> index_of_factor(const DeviceMesh& mesh,
                                   std::span<const std::uint8_t> right,
                                   std::int64_t factor) {
  std::int64_t product = 1;
  for (std::size_t i = 0; i <= right.size(); ++i) {
    if (product == factor) return static_cast<int>(i);
    if (i < right.size()) product *= mesh.axis_size(right[i]);
  }
  return std::nullopt;
}

std::string possible_factors(const DeviceMesh& mesh, std::span<const std::uint8_t> right) {
  std::int64_t product = 1;
  std::string text = "1";
  for (const std::uint8_t axis : right) {
    product *= mesh.axis_size(axis);
    text += ", " + std::to_string(product);
  }
  return text;
}

}  // namespace

Layout::Layout(const DeviceMesh& mesh, int rank)
    : mesh_(mesh), rank_(static_cast<std::int16_t>(rank)) {}

Layout Layout::replicated(const DeviceMesh& mesh, int tensor_rank) {
  MESHPLAN_CHECK(tensor_rank >= 0 && tensor_rank <= kMaxTensorRank);
  return Layout(mesh, tensor_rank);
}

Result<Layout> Layout::start(const DeviceMesh& mesh, std::size_t tensor_rank) {
  if (tensor_rank > at(kMaxTensorRank)) {
    return fail(ErrorCode::kUnsupported,
                "",
                "a tensor of " + counted(tensor_rank, "dimension") + ", at most " +
                    std::to_string(kMaxTensorRank) + " are supported");
  }
  return Layout(mesh, static_cast<int>(tensor_rank));
}

/// Makes `axis` the cut number `index` (outermost first) of dimension `dim`.
void Layout::insert_cut(int axis, int dim, int index) {
  const auto end = order_.begin() + cuts_;
  auto place =
      std::find_if(order_.begin(), end, [&](std::uint8_t other) { return dim_[other] >= dim + 1; });
  place += index;
  std::move_backward(place, end, end + 1);
  *place = static_cast<std::uint8_t>(axis);
  dim_[at(axis)] = static_cast<std::int16_t>(dim + 1);
  ++cuts_;
}

Result<Layout> Layout::from_placements(const DeviceMesh& mesh,
                                       std::span<const Placement> placements,
                                       int tensor_rank) {
  if (tensor_rank < 0) {
    return fail(ErrorCode::kValue, "", "the tensor rank must not be negative");
  }
  Result<Layout> layout = start(mesh, at(tensor_rank));
  if (!layout) return layout;
  if (placements.size() != at(mesh.ndim())) {
    return fail(ErrorCode::kValue,
                "",
                counted(placements.size(), "placement") + " for a mesh of " +
                    counted(at(mesh.ndim()), "axis", "axes"));
  }
  for (int axis = mesh.ndim() - 1; axis >= 0; --axis) {
    const Placement& placement = placements[at(axis)];
    if (const auto* partial = std::get_if<Partial>(&placement)) {
      layout->partial_[at(axis)] =
          static_cast<std::uint8_t>(1 + static_cast<int>(partial->reduction));
      continue;
    }
    const auto* plain = std::get_if<Shard>(&placement);
    const auto* strided = std::get_if<StridedShard>(&placement);
    if (plain == nullptr && strided == nullptr) continue;
    const int given = plain != nullptr ? plain->dim : strided->dim;
    const int dim = given < 0 ? given + tensor_rank : given;
    if (dim < 0 || dim >= tensor_rank) {
      return fail(
          ErrorCode::kValue,
          index_pointer(at(axis)),
          to_string(placement) + ": the tensor has " + counted(at(tensor_rank), "dimension"));
    }
    const std::span<const std::uint8_t> right = layout->axes_of(dim);
    const std::int64_t factor = plain != nullptr ? 1 : strided->split_factor;
    const std::optional<int> index = index_of_factor(mesh, right, factor);
    if (!index) {
      return fail(ErrorCode::kValue,
                  index_pointer(at(axis)),
                  to_string(placement) + ": no order of the axes has this split factor on axis " +
                      mesh.axis_label(axis) + ", possible: " + possible_factors(mesh, right));
    }
    layout->insert_cut(axis, dim, *index);
  }
  return layout;
}

Result<void> Layout::set_partial(std::span<const std::optional<Reduction>> partial) {
  if (partial.empty()) return {};
  if (partial.size() != at(mesh_.ndim())) {
    return fail(ErrorCode::kValue,
                "/partial",
                counted(partial.size(), "partial entry", "partial entries") + " for a mesh of " +
                    counted(at(mesh_.ndim()), "axis", "axes"));
  }
  for (std::size_t axis = 0; axis < partial.size(); ++axis) {
    if (!partial[axis]) continue;
    if (dim_[axis] != 0) {
      return fail(ErrorCode::kConflict,
                  "/partial/" + std::to_string(axis),
                  "axis " + mesh_.axis_label(static_cast<int>(axis)) + " cuts dimension " +
                      std::to_string(dim_[axis] - 1) + " and cannot be partial as well");
    }
    partial_[axis] = static_cast<std::uint8_t>(1 + static_cast<int>(*partial[axis]));
  }
  return {};
}

Result<Layout> Layout::from_tensor_map(const DeviceMesh& mesh,
                                       std::span<const std::vector<int>> map,
                                       std::span<const std::optional<Reduction>> partial) {
  Result<Layout> layout = start(mesh, map.size());
  if (!layout) return layout;
  for (std::size_t dim = 0; dim < map.size(); ++dim) {
    if (map[dim].size() == 1 && map[dim][0] == -1) continue;
    int index = 0;
    for (const int entry : map[dim]) {
      if (entry == -1) {
        return fail(ErrorCode::kValue, index_pointer(dim), "-1 (not cut) cannot stand among axes");
      }
      if (entry < 0 || entry >= mesh.ndim()) {
        return fail(ErrorCode::kValue,
                    index_pointer(dim),
                    "entry " + std::to_string(entry) + " is out of range: the mesh has axes 0 to " +
                        std::to_string(mesh.ndim() - 1) +
                        " (counted from the right), -1 is not cut");
      }
      const int axis = mesh.ndim() - 1 - entry;
      if (layout->dim_[at(axis)] != 0) {
        return fail(ErrorCode::kDuplicate,
                    index_pointer(dim),
                    "axis " + mesh.axis_label(axis) + " (entry " + std::to_string(entry) +
                        ") cuts the tensor twice");
      }
      layout->insert_cut(axis, static_cast<int>(dim), index++);
    }
  }
  if (Result<void> set = layout->set_partial(partial); !set) return fail(set.error());
  return layout;
}

Result<Layout> Layout::from_alias_map(const DeviceMesh& mesh,
                                      const AliasMap& map,
                                      std::span<const std::optional<Reduction>> partial) {
  Result<Layout> layout = start(mesh, map.size());
  if (!layout) return layout;
  for (std::size_t dim = 0; dim < map.size(); ++dim) {
    if (map[dim].size() == 1 && map[dim][0] == "None") continue;
    int index = 0;
    for (const std::string& name : map[dim]) {
      if (name == "None") {
        return fail(ErrorCode::kValue, index_pointer(dim), "\"None\" cannot stand among axes");
      }
      Result<AxisSet> axes = mesh.axis_set(name);
      if (!axes) return fail(axes.error().code, index_pointer(dim), axes.error().message);
      for (int axis = 0; axis < mesh.ndim(); ++axis) {
        if ((*axes >> axis & 1U) == 0) continue;
        if (layout->dim_[at(axis)] != 0) {
          return fail(ErrorCode::kDuplicate,
                      index_pointer(dim),
                      "axis " + mesh.axis_label(axis) + " cuts the tensor twice");
        }
        layout->insert_cut(axis, static_cast<int>(dim), index++);
      }
    }
  }
  if (Result<void> set = layout->set_partial(partial); !set) return fail(set.error());
  return layout;
}

Result<Layout> Layout::from_dictionary(const LayoutDictionary& dictionary) {
  Result<DeviceMesh> mesh =
      DeviceMesh::make(dictionary.mesh_shape, dictionary.alias_name, dictionary.rank_list);
  if (!mesh) return fail(mesh.error());
  return from_tensor_map(*mesh, dictionary.tensor_map, dictionary.partial);
}

std::span<const std::uint8_t> Layout::axes_of(int dim) const {
  std::size_t begin = 0;
  while (begin < cuts_ && dim_[order_[begin]] < dim + 1) ++begin;
  std::size_t end = begin;
  while (end < cuts_ && dim_[order_[end]] == dim + 1) ++end;
  return std::span(order_).subspan(begin, end - begin);
}

std::optional<int> Layout::dim_of(int axis) const {
  const int dim = dim_[at(axis)];
  return dim == 0 ? std::nullopt : std::optional(dim - 1);
}

std::optional<Reduction> Layout::partial_of(int axis) const {
  const int stored = partial_[at(axis)];
  return stored == 0 ? std::nullopt : std::optional(static_cast<Reduction>(stored - 1));
}

AxisSet Layout::cutting_axes() const {
  AxisSet axes = 0;
  for (std::size_t i = 0; i < cuts_; ++i) axes |= AxisSet{1} << order_[i];
  return axes;
}

AxisSet Layout::partial_axes() const {
  AxisSet axes = 0;
  for (int axis = 0; axis < mesh_.ndim(); ++axis) {
    if (partial_[at(axis)] != 0) axes |= AxisSet{1} << axis;
  }
  return axes;
}

std::int64_t Layout::parts(int dim) const {
  std::int64_t product = 1;
  for (const std::uint8_t axis : axes_of(dim)) product *= mesh_.axis_size(axis);
  return product;
}

std::int64_t Layout::repeat_count() const {
  return mesh_.size() / mesh_.group_size(cutting_axes());
}

Placement Layout::placement(int axis) const {
  if (const std::optional<Reduction> reduction = partial_of(axis)) return Partial{*reduction};
  const std::optional<int> dim = dim_of(axis);
  if (!dim) return Replicate{};
  std::int64_t factor = 1;
  for (const std::uint8_t before : axes_of(*dim)) {
    if (before == axis) break;
    if (before > axis) factor *= mesh_.axis_size(before);
  }
  if (factor == 1) return Shard{*dim};
  return StridedShard{*dim, factor};
}

Placements Layout::placements() const {
  Placements list(at(mesh_.ndim()));
  for (int axis = 0; axis < mesh_.ndim(); ++axis) list[at(axis)] = placement(axis);
  return list;
}

TensorMap Layout::tensor_map() const {
  TensorMap map(at(rank_));
  for (std::size_t i = 0; i < cuts_; ++i) {
    const int axis = order_[i];
    map[at(dim_[order_[i]] - 1)].push_back(mesh_.ndim() - 1 - axis);
  }
  return map;
}

AliasMap Layout::alias_map() const {
  AliasMap map(at(rank_));
  for (std::size_t i = 0; i < cuts_; ++i) {
    map[at(dim_[order_[i]] - 1)].push_back(mesh_.axis_label(order_[i]));
  }
  return map;
}

PartialList Layout::partial() const {
  PartialList list(at(mesh_.ndim()));
  for (int axis = 0; axis < mesh_.ndim(); ++axis) list[at(axis)] = partial_of(axis);
  return list;
}

Layout Layout::without_partial() const {
  Layout layout = *this;
  layout.partial_.fill(0);
  return layout;
}

Result<Layout> Layout::with_partial(const AxisRef& axis, std::optional<Reduction> reduction) const {
  Result<AxisSet> axes = mesh_.axis_set(axis);
  if (!axes) return fail(axes.error());
  PartialList list = partial();
  for (int i = 0; i < mesh_.ndim(); ++i) {
    if ((*axes >> i & 1U) != 0) list[at(i)] = reduction;
  }
  Layout layout = without_partial();
  if (Result<void> set = layout.set_partial(list); !set) {
    return fail(set.error().code, "/axis", set.error().message);
  }
  return layout;
}

Result<void> Layout::check_shape(std::span<const std::int64_t> shape) const {
  if (shape.size() != at(rank_)) {
    return fail(ErrorCode::kValue,
                "",
                "a shape of " + counted(shape.size(), "size") + " for a layout of " +
                    counted(at(rank_), "dimension"));
  }
  for (int dim = 0; dim < rank_; ++dim) {
    const std::int64_t size = shape[at(dim)];
    const auto axes = axes_of(dim);
    if (size < 0) {
      return fail(ErrorCode::kValue,
                  index_pointer(at(dim)),
                  "a size must not be negative, got " + std::to_string(size));
    }
    const auto cutters = std::count_if(
        axes.begin(), axes.end(), [&](std::uint8_t axis) { return mesh_.axis_size(axis) > 1; });
    if (cutters > 1 && size % parts(dim) != 0) {
      return fail(ErrorCode::kValue,
                  index_pointer(at(dim)),
                  "size " + std::to_string(size) + " of dimension " + std::to_string(dim) +
                      " is cut by several axes and must be divisible by their product " +
                      std::to_string(parts(dim)));
    }
  }
  return {};
}

std::int64_t Layout::piece_of(int dim, std::int64_t position) const {
  std::int64_t piece = 0;
  for (const std::uint8_t axis : axes_of(dim)) {
    piece = piece * mesh_.axis_size(axis) + mesh_.coordinate_at(position, axis);
  }
  return piece;
}

Interval Layout::slice_of(int dim, std::int64_t size, std::int64_t position) const {
  const std::int64_t count = parts(dim);
  const std::int64_t piece = piece_of(dim, position);
  const std::int64_t chunk = size / count + (size % count != 0 ? 1 : 0);
  // Written so that piece * chunk cannot overflow.
  if (chunk == 0 || piece > (size - 1) / chunk) return {size, size};
  const std::int64_t begin = piece * chunk;
  return {begin, begin + std::min(chunk, size - begin)};
}

Result<std::vector<Interval>> Layout::slice(std::span<const std::int64_t> shape,
                                            std::int64_t position) const {
  if (Result<void> fits = check_shape(shape); !fits) return fail(fits.error());
  std::vector<Interval> slices;
  slices.reserve(shape.size());
  for (int dim = 0; dim < rank_; ++dim) slices.push_back(slice_of(dim, shape[at(dim)], position));
  return slices;
}

Result<std::vector<std::int64_t>> Layout::local_shape(std::span<const std::int64_t> shape,
                                                      std::int64_t position) const {
  if (Result<void> fits = check_shape(shape); !fits) return fail(fits.error());
  std::vector<std::int64_t> local;
  local.reserve(shape.size());
  for (int dim = 0; dim < rank_; ++dim) {
    local.push_back(slice_of(dim, shape[at(dim)], position).size());
  }
  return local;
}

Result<std::vector<std::int64_t>> Layout::global_shape(std::span<const std::int64_t> local) const {
  if (local.size() != at(rank_)) {
    return fail(ErrorCode::kValue,
                "",
                "a local shape of " + counted(local.size(), "size") + " for a layout of " +
                    counted(at(rank_), "dimension"));
  }
  std::vector<std::int64_t> shape(local.begin(), local.end());
  for (std::size_t dim = 0; dim < shape.size(); ++dim) {
    if (shape[dim] < 0) {
      return fail(ErrorCode::kValue,
                  index_pointer(dim),
                  "a size must not be negative, got " + std::to_string(shape[dim]));
    }
    if (__builtin_mul_overflow(shape[dim], parts(static_cast<int>(dim)), &shape[dim])) {
      return fail(ErrorCode::kOverflow, index_pointer(dim), "the global size exceeds 64 bits");
    }
  }
  return shape;
}

std::string Layout::compact() const {
  std::string text = to_string(tensor_map()) + " [";
  for (int axis = 0; axis < mesh_.ndim(); ++axis) {
    if (axis > 0) text += ',';
    const std::optional<Reduction> reduction = partial_of(axis);
    text += reduction ? reduction_name(*reduction) : "-";
  }
  return text + "] " + mesh_.hash_text();
}

LayoutDictionary Layout::dictionary() const {
  return {{mesh_.shape().begin(), mesh_.shape().end()},
          {mesh_.axes().begin(), mesh_.axes().end()},
          mesh_.ranks(),
          tensor_map(),
          partial(),
          mesh_.named() && mesh_.axes().back() == "interleaved_parallel"};
}

std::uint64_t Layout::hash() const {
  std::uint64_t mixed = mesh_.hash() ^ static_cast<std::uint64_t>(rank_);
  const auto mix = [&](std::uint64_t word) {
    mixed = (mixed ^ word) * 0x9E3779B97F4A7C15U;
    mixed ^= mixed >> 29;
  };
  for (std::size_t i = 0; i < cuts_; ++i) mix(order_[i]);
  for (std::size_t axis = 0; axis < at(mesh_.ndim()); ++axis) {
    mix(static_cast<std::uint64_t>(dim_[axis]) << 8 | partial_[axis]);
  }
  return mixed;
}

bool operator==(const Layout& a, const Layout& b) {
  return a.rank_ == b.rank_ && a.cuts_ == b.cuts_ && a.order_ == b.order_ && a.dim_ == b.dim_ &&
         a.partial_ == b.partial_ && a.mesh_ == b.mesh_;
}

std::string to_string(const TensorMap& map) {
  const auto print_entry = [](const std::vector<int>& entry) {
    if (entry.empty()) return std::string("-1");
    if (entry.size() == 1) return std::to_string(entry[0]);
    std::string text = "(";
    for (std::size_t i = 0; i < entry.size(); ++i) {
      text += (i > 0 ? "," : "") + std::to_string(entry[i]);
    }
    return text + ')';
  };
  std::string text = "(";
  for (std::size_t dim = 0; dim < map.size(); ++dim) {
    text += (dim > 0 ? "," : "") + print_entry(map[dim]);
  }
  return text + ')';
}

std::string to_string(const Layout& layout) {
  return to_string(layout.placements()) + " on " + to_string(layout.mesh());
}

}  // namespace meshplan

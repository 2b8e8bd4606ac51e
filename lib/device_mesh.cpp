// SPDX-License-Identifier: Apache-2.0
#include "lib/device_mesh.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <map>
#include <mutex>
#include <numeric>
#include <tuple>
#include <utility>

#include "lib/check.h"
#include "lib/nearest_name.h"
#include "lib/sha256.h"
#include "lib/text.h"

namespace meshplan {
namespace {

constexpr const char* kInterleaved = "interleaved_parallel";

std::size_t at(int index) { return static_cast<std::size_t>(index); }
std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

AxisSet bit(int axis) { return AxisSet{1} << axis; }
int first_axis(AxisSet axes) { return std::countr_zero(axes); }
int last_axis(AxisSet axes) { return static_cast<int>(std::bit_width(axes)) - 1; }
bool is_single(AxisSet axes) { return std::has_single_bit(axes); }

Result<void> check_name(const std::string& name, const std::string& where) {
  if (name.empty()) return fail(ErrorCode::kValue, where, "an axis name must not be empty");
  if (name == "None") {
    return fail(
        ErrorCode::kValue, where, "\"None\" stands for \"not cut\" and cannot name an axis");
  }
  return {};
}

Result<void> check_names(const std::vector<std::string>& axes, std::size_t ndim) {
  if (axes.empty()) return {};
  if (axes.size() != ndim) {
    return fail(ErrorCode::kValue,
                "/axes",
                counted(axes.size(), "axis name") + " for a mesh of " + counted(ndim, "dimension"));
  }
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const std::string where = "/axes/" + std::to_string(i);
    if (Result<void> checked = check_name(axes[i], where); !checked) return checked;
    const auto end = axes.begin() + static_cast<std::ptrdiff_t>(i);
    if (std::find(axes.begin(), end, axes[i]) != end) {
      return fail(ErrorCode::kDuplicate, where, "axis name " + quoted(axes[i]) + " is given twice");
    }
    if (axes[i] == kInterleaved && i + 1 != axes.size()) {
      return fail(ErrorCode::kOrder, where, "interleaved_parallel must be the last axis");
    }
  }
  return {};
}

Result<std::int64_t> checked_size(const std::vector<std::int64_t>& shape) {
  if (shape.empty()) {
    return fail(ErrorCode::kValue, "/shape", "a mesh needs at least one dimension");
  }
  if (shape.size() > at(kMaxMeshAxes)) {
    return fail(ErrorCode::kUnsupported,
                "/shape",
                counted(shape.size(), "mesh dimension") + ", at most " +
                    std::to_string(kMaxMeshAxes) + " are supported");
  }
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] < 1) {
      return fail(ErrorCode::kValue,
                  "/shape/" + std::to_string(i),
                  "a mesh dimension must be at least 1, got " + std::to_string(shape[i]));
    }
  }
  std::int64_t size = 1;
  for (const std::int64_t extent : shape) {
    if (__builtin_mul_overflow(size, extent, &size)) {
      return fail(ErrorCode::kOverflow, "/shape", "the number of devices exceeds 64 bits");
    }
  }
  return size;
}

/// (rank, position) by rank.
using RankIndex = std::vector<std::pair<std::int64_t, std::int64_t>>;

Result<RankIndex> index_ranks(const std::vector<std::int64_t>& ranks) {
  RankIndex index(ranks.size());
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i] < 0) {
      return fail(ErrorCode::kValue,
                  "/ranks/" + std::to_string(i),
                  "a rank must not be negative, got " + std::to_string(ranks[i]));
    }
    index[i] = {ranks[i], static_cast<std::int64_t>(i)};
  }
  std::sort(index.begin(), index.end());
  for (std::size_t i = 1; i < index.size(); ++i) {
    if (index[i].first == index[i - 1].first) {
      return fail(ErrorCode::kDuplicate,
                  "/ranks/" + std::to_string(index[i].second),
                  "rank " + std::to_string(index[i].first) + " is in the mesh twice");
    }
  }
  return index;
}

bool counts_up(const std::vector<std::int64_t>& ranks) {
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i] != static_cast<std::int64_t>(i)) return false;
  }
  return true;
}

/// `count` steps of `stride`.
struct Run {
  std::int64_t count;
  std::int64_t stride;
};

/// The nested runs, innermost first, that make up a list; nullopt if it is not regular. Each run is
/// as long as it can be, so that equal lists have equal runs however their meshes were cut.
std::optional<std::vector<Run>> regular_runs(const std::vector<std::int64_t>& list) {
  std::vector<Run> runs;
  for (std::size_t block = 1; block < list.size();) {
    const std::int64_t stride = list[block] - list[0];
    std::size_t count = 1;
    const auto continues = [&](std::size_t begin) {
      std::int64_t shift = 0;
      if (__builtin_mul_overflow(stride, static_cast<std::int64_t>(begin / block), &shift)) {
        return false;
      }
      for (std::size_t i = 0; i < block; ++i) {
        if (list[begin + i] - list[i] != shift) return false;
      }
      return true;
    };
    while ((count + 1) * block <= list.size() && continues(count * block)) ++count;
    if (count == 1 || list.size() % (block * count) != 0) return std::nullopt;
    runs.push_back({static_cast<std::int64_t>(count), stride});
    block *= count;
  }
  return runs;
}

/// SHA-256 of a list of numbers, 8 bytes each, least significant first.
std::string digest(const std::vector<std::int64_t>& list) {
  std::string bytes;
  bytes.reserve(8 * list.size());
  for (const std::int64_t number : list) {
    for (unsigned shift = 0; shift < 64; shift += 8) {
      bytes += static_cast<char>(static_cast<std::uint64_t>(number) >> shift & 0xFFU);
    }
  }
  return sha256_hex(bytes);
}

std::string shape_text(std::span<const std::int64_t> shape) {
  std::string text;
  for (const std::int64_t extent : shape) {
    if (!text.empty()) text += 'x';
    text += std::to_string(extent);
  }
  return text;
}

/// Names joined by commas; commas, bars and backslashes in a name are escaped.
std::string escaped_names(std::span<const std::string> names) {
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (i > 0) text += ',';
    for (const char letter : names[i]) {
      if (letter == ',' || letter == '|' || letter == '\\') text += '\\';
      text += letter;
    }
  }
  return text;
}

std::string joined(std::span<const std::string> names) {
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i) text += (i > 0 ? "_" : "") + names[i];
  return text;
}

/// Reads a name as axis names joined by "_" in ascending order.
class JoinedName {
 public:
  JoinedName(std::span<const std::string> names, std::string_view name)
      : names_(names), name_(name) {
    std::size_t longest = 0;
    for (const std::string& axis : names) longest += axis.size() + 1;
    if (name.size() > longest) return;
    dead_.assign((names.size() + 1) * (name.size() + 1), false);
    read(0, 0, 0);
  }
  /// The readings with two axes or more; two of them at most.
  const std::vector<AxisSet>& readings() const { return readings_; }

 private:
  /// Reads on from letter `begin` with the axes from `next`; false where nothing fits.
  bool read(std::size_t next, std::size_t begin, AxisSet taken) {
    const std::size_t state = next * (name_.size() + 1) + begin;
    if (dead_[state]) return false;
    bool fits = false;
    for (std::size_t i = next; i < names_.size() && readings_.size() < 2; ++i) {
      if (!name_.substr(begin).starts_with(names_[i])) continue;
      const AxisSet with = taken | bit(static_cast<int>(i));
      const std::size_t end = begin + names_[i].size();
      if (end == name_.size()) {
        fits = true;
        if (!is_single(with)) readings_.push_back(with);
      } else if (name_[end] == '_') {
        fits = read(i + 1, end + 1, with) || fits;
      }
    }
    dead_[state] = !fits;
    return fits;
  }

  std::span<const std::string> names_;
  std::string_view name_;
  std::vector<bool> dead_;
  std::vector<AxisSet> readings_;
};

}  // namespace

/// The named dimensions of a view: each is a set of root axes, outermost first.
struct DeviceMesh::Dimensions {
  std::vector<std::string> names;
  std::vector<AxisSet> axes;
  friend auto operator<=>(const Dimensions&, const Dimensions&) = default;
};

/// What all meshes of a family share.
struct DeviceMesh::Root {
  std::vector<std::int64_t> shape;
  std::vector<std::string> axes;
  std::vector<std::int64_t> strides;
  std::int64_t size = 1;
  std::vector<std::int64_t> ranks;  ///< empty: position = rank
  RankIndex index;

  std::mutex mutex;  ///< guards what follows
  std::map<std::string, AxisSet, std::less<>> flattened;
  std::vector<Dimensions> selections;
  std::map<std::pair<Dimensions, std::int64_t>, std::weak_ptr<const View>> views;
  std::size_t purge_at = 64;

  std::int64_t rank_at(std::int64_t position) const {
    return ranks.empty() ? position : ranks[at(position)];
  }
  std::optional<std::int64_t> position_of(std::int64_t rank) const {
    if (ranks.empty()) return rank >= 0 && rank < size ? std::optional(rank) : std::nullopt;
    const auto found =
        std::lower_bound(index.begin(), index.end(), std::pair(rank, std::int64_t{0}));
    if (found == index.end() || found->first != rank) return std::nullopt;
    return found->second;
  }
  Dimensions all() const {
    Dimensions dimensions{axes, {}};
    for (std::size_t i = 0; i < shape.size(); ++i) {
      dimensions.axes.push_back(bit(static_cast<int>(i)));
    }
    return dimensions;
  }
  /// `position` with the coordinates of `chosen` set to 0.
  std::int64_t without(std::int64_t position, AxisSet chosen) const {
    for (AxisSet left = chosen; left != 0; left &= left - 1) {
      const std::size_t axis = at(first_axis(left));
      position -= (position / strides[axis]) % shape[axis] * strides[axis];
    }
    return position;
  }
};

struct DeviceMesh::View {
  std::shared_ptr<Root> root;
  Dimensions dimensions;
  std::int64_t offset = 0;  ///< root position of the view's first device
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides;  ///< row-major strides of positions
  std::int64_t size = 1;
  AxisSet root_axes = 0;
  bool whole = false;  ///< the root itself

  mutable std::once_flag hashed;
  mutable std::string hash_text;
  mutable std::uint64_t hash = 0;
  mutable bool regular = false;  ///< hash_text tells every rank

  std::int64_t to_root_position(std::int64_t position) const {
    if (whole) return position;
    std::int64_t at_root = offset;
    for (AxisSet left = root_axes; left != 0;) {
      const int axis = last_axis(left);
      left &= ~bit(axis);
      at_root += position % root->shape[at(axis)] * root->strides[at(axis)];
      position /= root->shape[at(axis)];
    }
    return at_root;
  }
  std::optional<std::int64_t> from_root_position(std::int64_t at_root) const {
    if (whole) return at_root;
    if (root->without(at_root, root_axes) != offset) return std::nullopt;
    std::int64_t position = 0;
    for (AxisSet left = root_axes; left != 0; left &= left - 1) {
      const std::size_t axis = at(first_axis(left));
      position = position * root->shape[axis] + at_root / root->strides[axis] % root->shape[axis];
    }
    return position;
  }
};

// Since the dimensions of a view are ascending and disjoint sets of root axes, the digits of a view
// position are those of the root position in the same order, whatever is flattened.

DeviceMesh DeviceMesh::view_of(const std::shared_ptr<Root>& root,
                               const Dimensions& dimensions,
                               std::int64_t root_position) {
  AxisSet root_axes = 0;
  for (const AxisSet axes : dimensions.axes) root_axes |= axes;
  const std::int64_t offset = root->without(root_position, root_axes);

  const std::lock_guard lock(root->mutex);
  const auto key = std::pair(dimensions, offset);
  if (const auto found = root->views.find(key); found != root->views.end()) {
    if (std::shared_ptr<const View> alive = found->second.lock()) return DeviceMesh(alive);
  }
  const auto view = std::make_shared<View>();
  view->root = root;
  view->dimensions = dimensions;
  view->offset = offset;
  view->root_axes = root_axes;
  view->whole = dimensions == root->all();
  for (const AxisSet axes : dimensions.axes) {
    std::int64_t extent = 1;
    for (AxisSet left = axes; left != 0; left &= left - 1) {
      extent *= root->shape[at(first_axis(left))];
    }
    view->shape.push_back(extent);
  }
  view->strides.resize(view->shape.size());
  for (std::size_t i = view->shape.size(); i-- > 0;) {
    view->strides[i] = view->size;
    view->size *= view->shape[i];
  }
  if (root->views.size() >= root->purge_at) {
    std::erase_if(root->views, [](const auto& entry) { return entry.second.expired(); });
    root->purge_at = std::max<std::size_t>(64, 2 * root->views.size());
  }
  root->views[key] = view;
  const auto known = std::find(root->selections.begin(), root->selections.end(), dimensions);
  if (!view->whole && known == root->selections.end()) root->selections.push_back(dimensions);
  return DeviceMesh(view);
}

Result<DeviceMesh> DeviceMesh::make(std::vector<std::int64_t> shape,
                                    std::vector<std::string> axes) {
  Result<std::int64_t> size = checked_size(shape);
  if (!size) return fail(size.error());
  if (Result<void> named = check_names(axes, shape.size()); !named) return fail(named.error());
  const auto root = std::make_shared<Root>();
  root->size = *size;
  root->strides.resize(shape.size());
  std::int64_t stride = 1;
  for (std::size_t i = shape.size(); i-- > 0;) {
    root->strides[i] = stride;
    stride *= shape[i];
  }
  root->shape = std::move(shape);
  root->axes = std::move(axes);
  return view_of(root, root->all(), 0);
}

Result<DeviceMesh> DeviceMesh::make(std::vector<std::int64_t> shape,
                                    std::vector<std::string> axes,
                                    std::vector<std::int64_t> ranks) {
  Result<DeviceMesh> mesh = make(std::move(shape), std::move(axes));
  if (!mesh) return mesh;
  if (mesh->size() != static_cast<std::int64_t>(ranks.size())) {
    return fail(
        ErrorCode::kValue,
        "/ranks",
        counted(ranks.size(), "rank") + " for a mesh of " + counted(at(mesh->size()), "device"));
  }
  if (counts_up(ranks)) return mesh;
  Result<RankIndex> index = index_ranks(ranks);
  if (!index) return fail(index.error());
  Root& root = *mesh->view_->root;  // nobody else has seen it yet
  root.ranks = std::move(ranks);
  root.index = std::move(*index);
  return mesh;
}

namespace {

/// Appends the ranks of one level of nesting; every list must be as long as `shape` says.
Result<void> collect_ranks(const NestedRanks& nested,
                           std::span<const std::int64_t> shape,
                           const std::string& where,
                           std::vector<std::int64_t>& ranks) {
  const auto* list = std::get_if<std::vector<NestedRanks>>(&nested.value);
  if (shape.empty() != (list == nullptr) ||
      (list != nullptr && list->size() != static_cast<std::size_t>(shape.front()))) {
    return fail(ErrorCode::kValue,
                where,
                "the rank lists are ragged: lists of one level must be equally long");
  }
  if (list == nullptr) {
    ranks.push_back(std::get<std::int64_t>(nested.value));
    return {};
  }
  for (std::size_t i = 0; i < list->size(); ++i) {
    Result<void> inner =
        collect_ranks((*list)[i], shape.subspan(1), where + "/" + std::to_string(i), ranks);
    if (!inner) return inner;
  }
  return {};
}

}  // namespace

Result<DeviceMesh> DeviceMesh::from_nested(const NestedRanks& nested,
                                           std::vector<std::string> axes) {
  std::vector<std::int64_t> shape;
  const NestedRanks* level = &nested;
  while (const auto* list = std::get_if<std::vector<NestedRanks>>(&level->value)) {
    if (list->empty()) {
      std::string where = "/ranks";
      for (std::size_t depth = 0; depth < shape.size(); ++depth) where += "/0";
      return fail(ErrorCode::kValue, where, "a rank list must not be empty");
    }
    if (shape.size() == at(kMaxMeshAxes)) {
      return fail(ErrorCode::kUnsupported,
                  "/ranks",
                  "at most " + std::to_string(kMaxMeshAxes) + " mesh dimensions are supported");
    }
    shape.push_back(static_cast<std::int64_t>(list->size()));
    level = &list->front();
  }
  if (shape.empty()) {
    return fail(ErrorCode::kValue,
                "/ranks",
                "a mesh needs at least one dimension: expected a list of ranks");
  }
  std::vector<std::int64_t> ranks;
  if (Result<void> flat = collect_ranks(nested, shape, "/ranks", ranks); !flat) {
    return fail(flat.error());
  }
  Result<DeviceMesh> mesh = make(shape, std::move(axes), std::move(ranks));
  constexpr std::string_view kFlat = "/ranks/";
  if (mesh || !mesh.error().where.starts_with(kFlat)) return mesh;
  // make() knows the place of a faulty rank in the flat list; the user's list is nested.
  std::int64_t position = std::stoll(mesh.error().where.substr(kFlat.size()));
  std::string nested_place;
  for (std::size_t axis = shape.size(); axis-- > 0; position /= shape[axis]) {
    nested_place.insert(0, "/" + std::to_string(position % shape[axis]));
  }
  return fail(mesh.error().code, "/ranks" + nested_place, mesh.error().message);
}

std::span<const std::int64_t> DeviceMesh::shape() const { return view_->shape; }
std::span<const std::string> DeviceMesh::axes() const { return view_->dimensions.names; }
std::int64_t DeviceMesh::size() const { return view_->size; }

std::string DeviceMesh::axis_label(int axis) const {
  return named() ? axes()[at(axis)] : "mesh_dim_" + std::to_string(axis);
}

Result<int> DeviceMesh::axis_index(std::string_view name) const {
  const auto found = std::find(axes().begin(), axes().end(), name);
  if (found != axes().end()) return static_cast<int>(found - axes().begin());
  std::string message = "unknown mesh axis " + quoted(name);
  if (!named()) {
    message += ": the mesh has no axis names";
  } else if (const std::string hint = nearest_name_hint(name, axes()); !hint.empty()) {
    message += hint;
  } else {
    message += ", the mesh has " + escaped_names(axes());
  }
  return fail(ErrorCode::kUnknownAxis, "/axis", message);
}

/// Own axes by name: one axis, or several joined by "_"; 0 where the name is neither.
Result<AxisSet> DeviceMesh::own_axes(std::string_view name) const {
  const auto found = std::find(axes().begin(), axes().end(), name);
  if (found != axes().end()) return bit(static_cast<int>(found - axes().begin()));
  const std::vector<AxisSet> readings = JoinedName(axes(), name).readings();
  if (readings.size() > 1) {
    return fail(ErrorCode::kConflict,
                "/axis",
                "axis name " + quoted(name) + " can be read as more than one set of axes");
  }
  return readings.empty() ? AxisSet{0} : readings.front();
}

AxisSet DeviceMesh::to_root(AxisSet own) const {
  AxisSet root_axes = 0;
  for (AxisSet left = own; left != 0; left &= left - 1) {
    root_axes |= view_->dimensions.axes[at(first_axis(left))];
  }
  return root_axes;
}

/// The root axes that `axis` stands for; `*through_root` tells whether the root's names were
/// needed.
Result<AxisSet> DeviceMesh::root_axes_of(const AxisRef& axis, bool* through_root) const {
  *through_root = false;
  if (const auto* index = std::get_if<std::int64_t>(&axis)) {
    if (*index < 0 || *index >= ndim()) {
      return fail(ErrorCode::kValue,
                  "/axis",
                  "axis index " + std::to_string(*index) + " is out of range, the mesh has " +
                      counted(at(ndim()), "axis", "axes"));
    }
    return view_->dimensions.axes[at(*index)];
  }
  const std::string& name = std::get<std::string>(axis);
  Result<AxisSet> own = own_axes(name);
  if (own && is_single(*own)) return to_root(*own);
  std::optional<AxisSet> flattened;
  {
    const std::lock_guard lock(view_->root->mutex);
    const auto found = view_->root->flattened.find(name);
    if (found != view_->root->flattened.end()) flattened = found->second;
  }
  if (own && *own != 0) {
    if (!flattened || *flattened == to_root(*own)) return to_root(*own);
    return fail(ErrorCode::kConflict,
                "/axis",
                "axis name " + quoted(name) + " joins axes of this mesh and is the name of other " +
                    "flattened axes");
  }
  *through_root = true;
  if (flattened) return *flattened;
  if (!own) return own;
  if (!view_->whole) {
    Result<AxisSet> joined_at_root = root().own_axes(name);
    if (!joined_at_root) return joined_at_root;
    if (*joined_at_root != 0 && !is_single(*joined_at_root)) return joined_at_root;
  }
  return fail(axis_index(name).error());
}

Result<AxisSet> DeviceMesh::axis_set(const AxisRef& axis) const {
  bool through_root = false;
  Result<AxisSet> root_axes = root_axes_of(axis, &through_root);
  if (!root_axes) return root_axes;
  AxisSet own = 0;
  AxisSet left = *root_axes;
  for (std::size_t i = 0; i < view_->dimensions.axes.size(); ++i) {
    const AxisSet dimension = view_->dimensions.axes[i];
    if ((dimension & left) != dimension) continue;
    own |= bit(static_cast<int>(i));
    left &= ~dimension;
  }
  if (left == 0) return own;
  return fail(
      ErrorCode::kUnknownAxis,
      "/axis",
      "axis " + quoted(std::get<std::string>(axis)) + " is not made of axes of this sub-mesh");
}

std::int64_t DeviceMesh::rank_at(std::int64_t position) const {
  MESHPLAN_CHECK(position >= 0 && position < view_->size);
  return view_->root->rank_at(view_->to_root_position(position));
}

std::optional<std::int64_t> DeviceMesh::position_of(std::int64_t rank) const {
  const std::optional<std::int64_t> at_root = view_->root->position_of(rank);
  return at_root ? view_->from_root_position(*at_root) : std::nullopt;
}

std::int64_t DeviceMesh::coordinate_at(std::int64_t position, int axis) const {
  return position / view_->strides[at(axis)] % view_->shape[at(axis)];
}

std::vector<std::int64_t> DeviceMesh::ranks() const {
  std::vector<std::int64_t> list(at(size()));
  for (std::int64_t i = 0; i < size(); ++i) list[at(i)] = rank_at(i);
  return list;
}

std::optional<std::vector<std::int64_t>> DeviceMesh::coordinates(std::int64_t rank) const {
  const std::optional<std::int64_t> position = position_of(rank);
  if (!position) return std::nullopt;
  std::vector<std::int64_t> found(at(ndim()));
  for (int axis = 0; axis < ndim(); ++axis) found[at(axis)] = coordinate_at(*position, axis);
  return found;
}

DeviceMesh DeviceMesh::root() const {
  return view_->whole ? *this : view_of(view_->root, view_->root->all(), 0);
}

bool DeviceMesh::is_root() const { return view_->whole; }

/// The root position of a rank that must be in this mesh, or only in its root.
Result<std::int64_t> DeviceMesh::root_position(std::int64_t rank, bool through_root) const {
  const std::optional<std::int64_t> position = view_->root->position_of(rank);
  if (position && (through_root || view_->from_root_position(*position))) return *position;
  return fail(ErrorCode::kRank, "/rank", "rank " + std::to_string(rank) + " is not in the mesh");
}

Result<DeviceMesh> DeviceMesh::slice(const std::vector<std::string>& names,
                                     std::int64_t rank) const {
  if (!named()) {
    return fail(ErrorCode::kValue, "/axes", "a mesh without axis names cannot be sliced by name");
  }
  if (names.empty()) {
    return fail(ErrorCode::kValue, "/axes", "the selection of axes must not be empty");
  }
  Dimensions chosen;
  AxisSet taken = 0;
  bool any_through_root = false;
  bool ascending = true;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const std::string where = "/axes/" + std::to_string(i);
    bool through_root = false;
    Result<AxisSet> axes = root_axes_of(names[i], &through_root);
    if (!axes) return fail(axes.error().code, where, axes.error().message);
    if ((taken & *axes) != 0) {
      return fail(ErrorCode::kDuplicate, where, "axis " + quoted(names[i]) + " is selected twice");
    }
    ascending = ascending && (taken == 0 || last_axis(taken) < first_axis(*axes));
    any_through_root = any_through_root || through_root;
    taken |= *axes;
    chosen.names.push_back(names[i]);
    chosen.axes.push_back(*axes);
  }
  if (!ascending) {
    return fail(ErrorCode::kOrder,
                "/axes",
                "axes must be named in mesh order, which is " + escaped_names(root().axes()));
  }
  Result<std::int64_t> position = root_position(rank, any_through_root);
  if (!position) return fail(position.error());
  if (chosen == view_->dimensions && view_->from_root_position(*position)) return *this;
  return view_of(view_->root, chosen, *position);
}

Result<DeviceMesh> DeviceMesh::flatten(const std::optional<std::string>& name) const {
  if (!name && !named()) {
    return fail(ErrorCode::kMissing, "/name", "flattening a mesh without axis names needs a name");
  }
  const std::string flat_name = name ? *name : joined(axes());
  if (ndim() == 1 && named() && flat_name == axes()[0]) return *this;
  if (Result<void> valid = check_name(flat_name, "/name"); !valid) return fail(valid.error());
  Root& root = *view_->root;
  const auto conflict = [&](const char* why) {
    return fail(ErrorCode::kConflict, "/name", "the name " + quoted(flat_name) + why);
  };
  for (std::span<const std::string> used : {std::span<const std::string>(root.axes), axes()}) {
    if (std::find(used.begin(), used.end(), flat_name) != used.end()) {
      return conflict(" is already that of a mesh axis");
    }
  }
  if (flat_name == kInterleaved &&
      last_axis(view_->root_axes) != static_cast<int>(root.shape.size()) - 1) {
    return fail(ErrorCode::kOrder, "/name", "interleaved_parallel must be the last axis");
  }
  const std::vector<AxisSet> readings = JoinedName(root.axes, flat_name).readings();
  if (!readings.empty() && (readings.size() > 1 || readings.front() != view_->root_axes)) {
    return conflict(" already stands for other axes joined by \"_\"");
  }
  {
    const std::lock_guard lock(root.mutex);
    const auto [entry, added] = root.flattened.try_emplace(flat_name, view_->root_axes);
    if (!added && entry->second != view_->root_axes) {
      return conflict(" is already used for other flattened axes");
    }
  }
  return view_of(view_->root, Dimensions{{flat_name}, {view_->root_axes}}, view_->offset);
}

Result<DeviceMesh> DeviceMesh::unflatten(const AxisRef& axis,
                                         const std::vector<std::int64_t>& sizes,
                                         const std::vector<std::string>& names) const {
  Result<AxisSet> set = axis_set(axis);
  if (!set) return fail(set.error());
  const int first = first_axis(*set);
  const int last = last_axis(*set);
  if (std::popcount(*set) != last - first + 1) {
    return fail(ErrorCode::kOrder, "/axis", "the flattened axes are not neighbours in the mesh");
  }
  if (sizes.empty()) {
    return fail(ErrorCode::kValue, "/sizes", "expected at least one size");
  }
  if (!named() && !names.empty()) {
    return fail(ErrorCode::kValue, "/names", "a mesh without axis names takes no names");
  }
  if (named() && names.size() != sizes.size()) {
    return fail(ErrorCode::kValue,
                "/names",
                counted(sizes.size(), "size") + " but " + counted(names.size(), "name"));
  }
  Result<std::int64_t> product = checked_size(sizes);
  if (!product) {
    std::string where = product.error().where;
    return fail(product.error().code, "/sizes" + where.substr(6), product.error().message);
  }
  if (*product != group_size(*set)) {
    return fail(ErrorCode::kValue,
                "/sizes",
                "the sizes multiply to " + std::to_string(*product) + ", the axis has " +
                    counted(at(group_size(*set)), "device"));
  }
  std::vector<std::int64_t> new_shape(shape().begin(), shape().begin() + first);
  new_shape.insert(new_shape.end(), sizes.begin(), sizes.end());
  new_shape.insert(new_shape.end(), shape().begin() + last + 1, shape().end());
  std::vector<std::string> new_axes;
  if (named()) {
    new_axes.assign(axes().begin(), axes().begin() + first);
    new_axes.insert(new_axes.end(), names.begin(), names.end());
    new_axes.insert(new_axes.end(), axes().begin() + last + 1, axes().end());
  }
  const bool counts_up = view_->whole && view_->root->ranks.empty();
  if (!counts_up && size() > kMaxListedRanks) {
    return fail(ErrorCode::kOverflow, "/mesh", "the sub-mesh has too many ranks to list");
  }
  Result<DeviceMesh> split =
      counts_up ? make(new_shape, new_axes) : make(new_shape, new_axes, ranks());
  if (split || !split.error().where.starts_with("/axes")) return split;
  // The faulty name is one of `names`, or clashes with one of them.
  std::string where = "/names";
  for (std::size_t i = 0; i < names.size(); ++i) {
    const std::string new_axis = "/axes/" + std::to_string(at(first) + i);
    if (split.error().where == new_axis) where += "/" + std::to_string(i);
  }
  return fail(split.error().code, where, split.error().message);
}

Result<DeviceMesh> DeviceMesh::concatenate(const std::vector<DeviceMesh>& meshes) {
  if (meshes.empty()) return fail(ErrorCode::kValue, "/meshes", "expected at least one mesh");
  if (meshes.size() == 1) return meshes.front();
  const std::shared_ptr<Root>& root = meshes.front().view_->root;
  Dimensions all;
  AxisSet taken = 0;
  bool ascending = true;
  for (std::size_t i = 0; i < meshes.size(); ++i) {
    const View& view = *meshes[i].view_;
    const std::string where = "/meshes/" + std::to_string(i);
    if (view.root != root) {
      return fail(ErrorCode::kConflict, where, "meshes of different roots cannot be concatenated");
    }
    if (!meshes[i].named()) {
      return fail(ErrorCode::kValue, where, "a mesh without axis names cannot be concatenated");
    }
    if ((taken & view.root_axes) != 0) {
      return fail(ErrorCode::kDuplicate, where, "the mesh repeats an axis of the meshes before it");
    }
    ascending = ascending && (taken == 0 || last_axis(taken) < first_axis(view.root_axes));
    taken |= view.root_axes;
    all.names.insert(all.names.end(), view.dimensions.names.begin(), view.dimensions.names.end());
    all.axes.insert(all.axes.end(), view.dimensions.axes.begin(), view.dimensions.axes.end());
  }
  if (!ascending) {
    return fail(ErrorCode::kOrder,
                "/meshes",
                "meshes must be given in root order, which is " + escaped_names(root->axes));
  }
  const std::int64_t offset = root->without(meshes.front().view_->offset, taken);
  for (std::size_t i = 1; i < meshes.size(); ++i) {
    if (root->without(meshes[i].view_->offset, taken) != offset) {
      return fail(ErrorCode::kConflict,
                  "/meshes/" + std::to_string(i),
                  "the meshes belong to ranks that differ along an axis that none of them has");
    }
  }
  return view_of(root, all, offset);
}

Result<std::vector<DeviceMesh>> DeviceMesh::sub_meshes(std::int64_t rank) const {
  Result<std::int64_t> position = root_position(rank, true);
  if (!position) return fail(position.error());
  std::vector<Dimensions> selections;
  {
    const std::lock_guard lock(view_->root->mutex);
    selections = view_->root->selections;
  }
  std::vector<DeviceMesh> found;
  for (const Dimensions& selection : selections) {
    found.push_back(view_of(view_->root, selection, *position));
  }
  return found;
}

std::vector<std::string> DeviceMesh::flattened_names() const {
  const std::lock_guard lock(view_->root->mutex);
  std::vector<std::string> names;
  for (const auto& [name, axes] : view_->root->flattened) names.push_back(name);
  return names;
}

Result<DeviceMesh> DeviceMesh::along(const std::optional<AxisRef>& axis, std::int64_t rank) const {
  if (!axis && ndim() != 1) {
    return fail(ErrorCode::kMissing,
                "/axis",
                "an axis must be given on a mesh of " + std::to_string(ndim()) + " dimensions");
  }
  const AxisRef wanted = axis ? *axis : AxisRef(std::int64_t{0});
  bool through_root = false;
  Result<AxisSet> axes = root_axes_of(wanted, &through_root);
  if (!axes) return fail(axes.error());
  Result<std::int64_t> position = root_position(rank, through_root);
  if (!position) return fail(position.error());
  const auto* index = std::get_if<std::int64_t>(&wanted);
  const std::string name =
      index != nullptr ? axis_label(static_cast<int>(*index)) : std::get<std::string>(wanted);
  const Dimensions dimension{{name}, {*axes}};
  if (dimension == view_->dimensions) return *this;
  return view_of(view_->root, dimension, *position);
}

Result<std::vector<std::int64_t>> DeviceMesh::group(const std::optional<AxisRef>& axis,
                                                    std::int64_t rank) const {
  Result<DeviceMesh> mesh = along(axis, rank);
  if (!mesh) return fail(mesh.error());
  if (mesh->size() > kMaxListedRanks) {
    return fail(ErrorCode::kOverflow, "/axis", "the group has too many ranks to list");
  }
  return mesh->ranks();
}

Result<std::int64_t> DeviceMesh::local_rank(const std::optional<AxisRef>& axis,
                                            std::int64_t rank) const {
  Result<DeviceMesh> mesh = along(axis, rank);
  if (!mesh) return fail(mesh.error());
  return *mesh->position_of(rank);
}

Result<std::vector<std::vector<std::int64_t>>> DeviceMesh::groups(
    const std::optional<AxisRef>& axis) const {
  if (!axis && ndim() != 1) {
    return fail(ErrorCode::kMissing,
                "/axis",
                "an axis must be given on a mesh of " + std::to_string(ndim()) + " dimensions");
  }
  const AxisRef wanted = axis ? *axis : AxisRef(std::int64_t{0});
  bool through_root = false;
  Result<AxisSet> axes = root_axes_of(wanted, &through_root);
  if (!axes) return fail(axes.error());
  const DeviceMesh mesh = through_root ? root() : *this;
  Result<AxisSet> set = mesh.axis_set(wanted);
  if (!set) return fail(set.error());
  if (mesh.size() > kMaxListedRanks) {
    return fail(ErrorCode::kOverflow, "/mesh", "the mesh has too many ranks to list its groups");
  }
  return mesh.groups_of(*set);
}

std::int64_t DeviceMesh::group_size(AxisSet axes) const {
  std::int64_t product = 1;
  for (AxisSet left = axes; left != 0; left &= left - 1) product *= axis_size(first_axis(left));
  return product;
}

std::vector<std::int64_t> DeviceMesh::group_at(AxisSet axes, std::int64_t position) const {
  for (AxisSet left = axes; left != 0; left &= left - 1) {
    const int axis = first_axis(left);
    position -= coordinate_at(position, axis) * view_->strides[at(axis)];
  }
  std::vector<std::int64_t> group(at(group_size(axes)));
  for (std::size_t i = 0; i < group.size(); ++i) {
    std::int64_t member = position;
    std::int64_t digits = static_cast<std::int64_t>(i);
    for (AxisSet left = axes; left != 0;) {
      const int axis = last_axis(left);
      left &= ~bit(axis);
      member += digits % axis_size(axis) * view_->strides[at(axis)];
      digits /= axis_size(axis);
    }
    group[i] = rank_at(member);
  }
  return group;
}

std::vector<std::vector<std::int64_t>> DeviceMesh::groups_of(AxisSet axes) const {
  std::vector<std::pair<std::int64_t, std::vector<std::int64_t>>> by_smallest;
  const AxisSet others = (ndim() == kMaxMeshAxes ? ~AxisSet{0} : bit(ndim()) - 1) & ~axes;
  const std::int64_t count = group_size(others);
  for (std::int64_t i = 0; i < count; ++i) {
    std::int64_t position = 0;
    std::int64_t digits = i;
    for (AxisSet left = others; left != 0;) {
      const int axis = last_axis(left);
      left &= ~bit(axis);
      position += digits % axis_size(axis) * view_->strides[at(axis)];
      digits /= axis_size(axis);
    }
    std::vector<std::int64_t> group = group_at(axes, position);
    const std::int64_t smallest = *std::min_element(group.begin(), group.end());
    by_smallest.emplace_back(smallest, std::move(group));
  }
  std::sort(by_smallest.begin(), by_smallest.end());
  std::vector<std::vector<std::int64_t>> found;
  found.reserve(by_smallest.size());
  for (auto& [smallest, group] : by_smallest) found.push_back(std::move(group));
  return found;
}

const std::string& DeviceMesh::hash_text() const {
  const View& view = *view_;
  std::call_once(view.hashed, [&] {
    std::string text = shape_text(shape()) + '|' + escaped_names(axes()) + '|';
    std::optional<std::vector<Run>> runs;
    std::vector<std::int64_t> list;
    if (view.root->ranks.empty()) {
      runs.emplace();
      for (AxisSet left = view.root_axes; left != 0;) {
        const int axis = last_axis(left);
        left &= ~bit(axis);
        const Run run{view.root->shape[at(axis)], view.root->strides[at(axis)]};
        if (run.count == 1) continue;
        if (!runs->empty() && runs->back().count * runs->back().stride == run.stride) {
          runs->back().count *= run.count;
        } else {
          runs->push_back(run);
        }
      }
    } else {
      list = ranks();
      runs = regular_runs(list);
    }
    if (runs) {
      text += std::to_string(rank_at(0));
      for (std::size_t i = runs->size(); i-- > 0;) {
        text += '+' + std::to_string((*runs)[i].count) + '*' + std::to_string((*runs)[i].stride);
      }
    } else {
      text += '#' + digest(list);
    }
    view.regular = runs.has_value();
    view.hash_text = std::move(text);
    view.hash = 0xCBF29CE484222325U;
    for (const char letter : view.hash_text) {
      view.hash = (view.hash ^ static_cast<unsigned char>(letter)) * 0x100000001B3U;
    }
  });
  return view.hash_text;
}

std::uint64_t DeviceMesh::hash() const {
  static_cast<void>(hash_text());
  return view_->hash;
}

bool operator==(const DeviceMesh& a, const DeviceMesh& b) {
  if (a.view_ == b.view_) return true;
  if (a.hash_text() != b.hash_text()) return false;
  return a.view_->regular || a.ranks() == b.ranks();
}

Result<DeviceMesh> init_device_mesh(std::vector<std::int64_t> shape,
                                    std::vector<std::string> axes) {
  static std::mutex mutex;
  static std::map<std::string, std::weak_ptr<const DeviceMesh::View>> cache;
  static std::size_t purge_at = 64;
  Result<DeviceMesh> mesh = DeviceMesh::make(std::move(shape), std::move(axes));
  if (!mesh) return mesh;
  const std::lock_guard lock(mutex);
  std::weak_ptr<const DeviceMesh::View>& entry = cache[mesh->hash_text()];
  if (std::shared_ptr<const DeviceMesh::View> alive = entry.lock()) return DeviceMesh(alive);
  entry = mesh->view_;
  if (cache.size() >= purge_at) {
    std::erase_if(cache, [](const auto& cached) { return cached.second.expired(); });
    purge_at = std::max<std::size_t>(64, 2 * cache.size());
  }
  return mesh;
}

std::string to_string(const DeviceMesh& mesh) {
  std::string text = shape_text(mesh.shape());
  if (mesh.named()) text += '(' + escaped_names(mesh.axes()) + ')';
  return text;
}

}  // namespace meshplan

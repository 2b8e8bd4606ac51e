// SPDX-License-Identifier: Apache-2.0
// DeviceMesh: an n-dimensional array of ranks with named axes. Axis 0 is the outermost.
//
// A root mesh holds either ranks 0..n-1 (nothing is stored per rank) or an explicit rank list. A
// sub-mesh is a view of its root: some of the root's axes, each its own dimension or several of
// them flattened into one, through the coordinates of the rank that looks. Copies share their
// state and cost one reference count.
//
// Positions count the devices of a mesh in row-major order; ranks are the numbers of the devices.
// An error's `where` is the JSON Pointer of the faulty argument, e.g. "/axes/1".
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "lib/collective.h"
#include "lib/result.h"

namespace meshplan {

/// An AxisSet has a bit for every axis.
inline constexpr int kMaxMeshAxes = 32;
/// Longest rank list that is ever written out (group lists and layouts of a mesh included).
inline constexpr std::int64_t kMaxListedRanks = std::int64_t{1} << 22;

/// A rank, or a list of lists of ... ranks.
struct NestedRanks {
  std::variant<std::int64_t, std::vector<NestedRanks>> value;
};

/// An axis by index or by name; a name may be that of flattened axes.
using AxisRef = std::variant<std::int64_t, std::string>;

class DeviceMesh {
 public:
  /// Ranks 0..n-1 in row-major order. Without `axes` the mesh is unnamed: its axes are known by
  /// index only. Errors: kValue (no dimension, size below 1, wrong number of names, empty name,
  /// "None"), kDuplicate (name), kOrder (interleaved_parallel not last), kOverflow, kUnsupported
  /// (more than 32 axes).
  static Result<DeviceMesh> make(std::vector<std::int64_t> shape, std::vector<std::string> axes);
  /// The same with an own rank list in row-major order. Errors also: kValue (length, negative
  /// rank), kDuplicate (rank).
  static Result<DeviceMesh> make(std::vector<std::int64_t> shape,
                                 std::vector<std::string> axes,
                                 std::vector<std::int64_t> ranks);
  /// The shape follows from the nesting. Errors also: kValue (ragged lists, a bare rank).
  static Result<DeviceMesh> from_nested(const NestedRanks& ranks, std::vector<std::string> axes);

  std::span<const std::int64_t> shape() const;
  /// Empty on an unnamed mesh.
  std::span<const std::string> axes() const;
  bool named() const { return !axes().empty(); }
  int ndim() const { return static_cast<int>(shape().size()); }
  std::int64_t size() const;
  std::int64_t axis_size(int axis) const { return shape()[static_cast<std::size_t>(axis)]; }
  /// The axis' name, "mesh_dim_<i>" on an unnamed mesh.
  std::string axis_label(int axis) const;
  /// Errors: kUnknownAxis with the nearest name.
  Result<int> axis_index(std::string_view name) const;
  /// The axes of this mesh that `axis` stands for: one, or several for a flattened name. Errors:
  /// kUnknownAxis, kValue (index out of range), kConflict (a name with two meanings).
  Result<AxisSet> axis_set(const AxisRef& axis) const;

  /// The rank at a position in [0, size()).
  std::int64_t rank_at(std::int64_t position) const;
  std::optional<std::int64_t> position_of(std::int64_t rank) const;
  /// The coordinate of a position along one axis.
  std::int64_t coordinate_at(std::int64_t position, int axis) const;
  /// All ranks in row-major order; size() numbers.
  std::vector<std::int64_t> ranks() const;
  /// nullopt for a rank outside the mesh.
  std::optional<std::vector<std::int64_t>> coordinates(std::int64_t rank) const;

  /// The mesh this one was cut from, or itself.
  DeviceMesh root() const;
  bool is_root() const;
  /// The sub-mesh of the named axes (in mesh order) that contains `rank`; flattened names give one
  /// dimension. All axes give the mesh itself; the same request gives the same object while it is
  /// in use. Errors: kValue (no axis, unnamed mesh), kUnknownAxis, kDuplicate, kOrder, kRank.
  Result<DeviceMesh> slice(const std::vector<std::string>& names, std::int64_t rank) const;
  /// One dimension of all axes. The name (default: the axes' names joined by "_") becomes known to
  /// the root and all its sub-meshes. Errors: kValue (name), kConflict (the name is that of a root
  /// axis or of other axes), kOrder (interleaved_parallel for axes that are not the last), kMissing
  /// (no name on an unnamed mesh).
  Result<DeviceMesh> flatten(const std::optional<std::string>& name = std::nullopt) const;
  /// A mesh over the same ranks with one axis split row-major; it is its own root. Errors: kValue
  /// (sizes do not multiply to the axis, counts differ, names on an unnamed mesh), kOrder
  /// (flattened axes that are not neighbours), those of make() and axis_set().
  Result<DeviceMesh> unflatten(const AxisRef& axis,
                               const std::vector<std::int64_t>& sizes,
                               const std::vector<std::string>& names) const;
  /// The axes of sub-meshes of one root side by side. Errors: kValue (none given, unnamed),
  /// kConflict (other roots, sub-meshes of ranks that differ elsewhere), kDuplicate, kOrder.
  static Result<DeviceMesh> concatenate(const std::vector<DeviceMesh>& meshes);
  /// Every selection of axes that was sliced, flattened, concatenated or asked for its groups,
  /// seen by `rank`, in the order of first use. Errors: kRank.
  Result<std::vector<DeviceMesh>> sub_meshes(std::int64_t rank) const;
  /// Names registered by flatten(), in alphabetical order.
  std::vector<std::string> flattened_names() const;

  /// The 1-D mesh of `rank` along an axis; on a 1-D mesh the axis may be left out. Errors:
  /// kMissing (no axis on an N-D mesh), kRank, those of axis_set().
  Result<DeviceMesh> along(const std::optional<AxisRef>& axis, std::int64_t rank) const;
  /// The ranks of along(), in coordinate order.
  Result<std::vector<std::int64_t>> group(const std::optional<AxisRef>& axis,
                                          std::int64_t rank) const;
  /// Every group along an axis, ordered by smallest rank. Errors also: kOverflow (too many ranks).
  Result<std::vector<std::vector<std::int64_t>>> groups(const std::optional<AxisRef>& axis) const;
  /// The index of `rank` in its group.
  Result<std::int64_t> local_rank(const std::optional<AxisRef>& axis, std::int64_t rank) const;
  /// Number of devices along a set of axes.
  std::int64_t group_size(AxisSet axes) const;
  /// The group of a position along a set of this mesh's axes, in row-major order.
  std::vector<std::int64_t> group_at(AxisSet axes, std::int64_t position) const;
  /// Every group along a set of this mesh's axes, ordered by smallest rank; size() numbers.
  std::vector<std::vector<std::int64_t>> groups_of(AxisSet axes) const;

  /// A text that covers shape, axes and every rank: equal meshes have equal texts on every
  /// machine, unlike ones differ (irregular rank lists stand as their SHA-256).
  const std::string& hash_text() const;
  std::uint64_t hash() const;
  /// The same shape, axes and ranks; where the meshes came from does not matter.
  friend bool operator==(const DeviceMesh& a, const DeviceMesh& b);
  /// Both are handles of one object (and share the flattened names).
  bool same_object(const DeviceMesh& other) const { return view_ == other.view_; }

 private:
  struct Root;
  struct View;
  struct Dimensions;
  friend Result<DeviceMesh> init_device_mesh(std::vector<std::int64_t>, std::vector<std::string>);

  explicit DeviceMesh(std::shared_ptr<const View> view) : view_(std::move(view)) {}
  static DeviceMesh view_of(const std::shared_ptr<Root>& root,
                            const Dimensions& dimensions,
                            std::int64_t root_position);
  Result<AxisSet> own_axes(std::string_view name) const;
  Result<AxisSet> root_axes_of(const AxisRef& axis, bool* through_root) const;
  Result<std::int64_t> root_position(std::int64_t rank, bool through_root) const;
  AxisSet to_root(AxisSet own) const;

  std::shared_ptr<const View> view_;
};

/// DeviceMesh::make with a process-wide cache: the same shape and names give the same object while
/// any copy of it is in use.
Result<DeviceMesh> init_device_mesh(std::vector<std::int64_t> shape, std::vector<std::string> axes);

/// "2x4(dp,tp)".
std::string to_string(const DeviceMesh& mesh);

}  // namespace meshplan

// SPDX-License-Identifier: Apache-2.0
// Layout: how one tensor lies on a mesh. It has two views that convert into each other without
// loss: a placement per mesh axis, and a tensor map with an entry per tensor dimension.
//
// Tensor-map entries count mesh axes from the right: entry = ndim - 1 - axis. A dimension that is
// cut by several axes lists them outermost (slowest) first. Example on a 2x4 mesh (dp, tp):
//   S(0),R      (1,-1)      ("dp", "None")
//   S(1),S(0)   (0,1)       ("tp", "dp")
//   S(0),S(0)   ((1,0),-1)  (("dp", "tp"), "None")     plain Shards cut in mesh order
//   SS(0,4),S(0) ((0,1),-1) (("tp", "dp"), "None")     tp cuts first
//   P(sum),S(0) (0,-1) with dp partial
//
// One thing has no placement: where axes of size 1 stand among those that cut a dimension. On a
// 2x1 mesh ((1,0)) and ((0,1)) are both S(0),S(0), which reads back as ((1,0)). Every device holds
// the same piece either way, so the maps keep what was written and nothing else depends on it.
//
// A layout stores at most 32 axes inline: conversions between the views allocate nothing but the
// lists they return. An error's `where` is the index of the faulty entry, e.g. "/1".
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lib/collective.h"
#include "lib/device_mesh.h"
#include "lib/placement.h"
#include "lib/result.h"

namespace meshplan {

inline constexpr int kMaxTensorRank = 1024;

/// Per tensor dimension the entries of the axes that cut it, outermost first; {} or {-1}: not cut.
using TensorMap = std::vector<std::vector<int>>;
/// The same with axis names; flattened names stand for their axes; {} or {"None"}: not cut.
using AliasMap = std::vector<std::vector<std::string>>;
/// Per mesh axis the reduction that is pending along it.
using PartialList = std::vector<std::optional<Reduction>>;

/// Half-open range of indices.
struct Interval {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t size() const { return end - begin; }
  friend auto operator<=>(const Interval&, const Interval&) = default;
};

/// Everything that a layout is, in plain values (what other programs store).
struct LayoutDictionary {
  std::vector<std::int64_t> mesh_shape;
  std::vector<std::string> alias_name;
  std::vector<std::int64_t> rank_list;
  TensorMap tensor_map;
  PartialList partial;
  bool interleaved_parallel = false;  ///< the mesh's last axis has that name
  friend bool operator==(const LayoutDictionary&, const LayoutDictionary&) = default;
};

class Layout {
 public:
  /// One placement per mesh axis. Errors: kValue (number of placements, dimension out of range,
  /// split factor that no order has), kUnsupported (tensor rank above 1024).
  static Result<Layout> from_placements(const DeviceMesh& mesh,
                                        std::span<const Placement> placements,
                                        int tensor_rank);
  /// One entry per tensor dimension; `partial` is empty or has an entry per mesh axis. Errors:
  /// kValue (entry out of range, length of `partial`), kDuplicate (axis used twice), kConflict (an
  /// axis both cuts and is partial), kUnsupported.
  static Result<Layout> from_tensor_map(const DeviceMesh& mesh,
                                        std::span<const std::vector<int>> map,
                                        std::span<const std::optional<Reduction>> partial = {});
  /// Errors: those of from_tensor_map, kUnknownAxis, kValue ("None" among several names).
  static Result<Layout> from_alias_map(const DeviceMesh& mesh,
                                       const AliasMap& map,
                                       std::span<const std::optional<Reduction>> partial = {});
  static Result<Layout> from_dictionary(const LayoutDictionary& dictionary);
  /// R on every axis. `tensor_rank` in [0, kMaxTensorRank].
  static Layout replicated(const DeviceMesh& mesh, int tensor_rank);

  const DeviceMesh& mesh() const { return mesh_; }
  /// Number of tensor dimensions.
  int rank() const { return rank_; }

  /// The mesh axes that cut a tensor dimension, outermost cut first.
  std::span<const std::uint8_t> axes_of(int dim) const;
  std::optional<int> dim_of(int axis) const;
  std::optional<Reduction> partial_of(int axis) const;
  AxisSet cutting_axes() const;
  AxisSet partial_axes() const;
  bool has_partial() const { return partial_axes() != 0; }
  /// Number of pieces of a tensor dimension.
  std::int64_t parts(int dim) const;
  /// Number of devices that hold the same piece (Partial axes included).
  std::int64_t repeat_count() const;

  Placement placement(int axis) const;
  Placements placements() const;
  TensorMap tensor_map() const;
  /// On an unnamed mesh the axes are called mesh_dim_<i>.
  AliasMap alias_map() const;
  PartialList partial() const;
  /// The same cuts without pending reductions.
  Layout without_partial() const;
  /// The same cuts with another pending reduction (or none) on one axis; a flattened name sets all
  /// its axes. Errors: kConflict (the axis cuts the tensor), those of DeviceMesh::axis_set.
  Result<Layout> with_partial(const AxisRef& axis, std::optional<Reduction> reduction) const;

  /// Errors: kValue where the number of dimensions differs, a size is negative, or a dimension that
  /// several axes cut is not divisible by their product. One axis may cut unevenly: pieces of
  /// ceil(size / parts), the last ones shorter or empty.
  Result<void> check_shape(std::span<const std::int64_t> shape) const;
  /// Index of the piece of dimension `dim` that the device at `position` holds.
  std::int64_t piece_of(int dim, std::int64_t position) const;
  /// That piece of a dimension of `size` elements. The size must satisfy check_shape().
  Interval slice_of(int dim, std::int64_t size, std::int64_t position) const;
  /// The piece of every dimension. Errors: check_shape().
  Result<std::vector<Interval>> slice(std::span<const std::int64_t> shape,
                                      std::int64_t position) const;
  /// Shape of the piece at `position`; position 0 has the largest. Errors: check_shape().
  Result<std::vector<std::int64_t>> local_shape(std::span<const std::int64_t> shape,
                                                std::int64_t position = 0) const;
  /// Shape of the tensor whose even pieces have shape `local`. Errors: kValue, kOverflow.
  Result<std::vector<std::int64_t>> global_shape(std::span<const std::int64_t> local) const;

  /// Canonical text of mesh, map and partial: equal exactly for equal layouts (see
  /// DeviceMesh::hash_text). Example: "(1,-1) [-,sum] 2x4|dp,tp|0+8*1".
  std::string compact() const;
  LayoutDictionary dictionary() const;
  std::uint64_t hash() const;
  /// Same mesh, map and partial.
  friend bool operator==(const Layout& a, const Layout& b);

 private:
  Layout(const DeviceMesh& mesh, int rank);
  static Result<Layout> start(const DeviceMesh& mesh, std::size_t tensor_rank);
  Result<void> set_partial(std::span<const std::optional<Reduction>> partial);
  void insert_cut(int axis, int dim, int index);

  static constexpr std::size_t kAxes = static_cast<std::size_t>(kMaxMeshAxes);
  DeviceMesh mesh_;
  std::int16_t rank_ = 0;
  std::uint8_t cuts_ = 0;                      ///< number of axes that cut
  std::array<std::uint8_t, kAxes> order_{};    ///< cutting axes by dimension, then outermost first
  std::array<std::int16_t, kAxes> dim_{};      ///< per axis: 1 + tensor dimension, 0: cuts nothing
  std::array<std::uint8_t, kAxes> partial_{};  ///< per axis: 1 + reduction, 0: not partial
};

/// "((1,0),-1)".
std::string to_string(const TensorMap& map);
/// The placements, then the mesh: "S(0),R on 2x4(dp,tp)".
std::string to_string(const Layout& layout);

}  // namespace meshplan

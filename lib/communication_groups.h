// SPDX-License-Identifier: Apache-2.0
// Communication groups: created on first use, through an interface that a runtime implements.
//
// Creating a group is collective: every member must call, and two ranks that create their common
// groups in different orders wait for each other forever. Hence nothing is created as a side effect
// of building, slicing or flattening a mesh, and plan_groups() fixes one order for all ranks.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lib/collective.h"
#include "lib/device_mesh.h"
#include "lib/result.h"

namespace meshplan {

/// What a runtime offers. Implementations need not be thread-safe: CommunicationGroups calls them
/// one at a time.
class GroupPlatform {
 public:
  virtual ~GroupPlatform() = default;
  /// The rank of this process.
  virtual std::int64_t get_rank() = 0;
  /// Creates a group of `ranks` (this process among them, in group order) and returns its handle.
  virtual Result<std::uint64_t> create_group(std::span<const std::int64_t> ranks,
                                             const std::string& description) = 0;
};

/// A group as this process sees it.
struct CommunicationGroup {
  std::uint64_t handle = 0;         ///< what the platform returned
  std::vector<std::int64_t> ranks;  ///< in group order
  friend bool operator==(const CommunicationGroup&, const CommunicationGroup&) = default;
};

/// All groups along a set of mesh axes.
struct AxisGroups {
  std::vector<std::string> axes;                 ///< in mesh order
  std::vector<std::vector<std::int64_t>> ranks;  ///< ordered by smallest rank
  friend bool operator==(const AxisGroups&, const AxisGroups&) = default;
};

/// The groups of a plan that communicates along `used` axes of a mesh, each once, in the order in
/// which all ranks must create them: fewer axes first, then in mesh order. Axes of size 1 are left
/// out, since they change no group; sets of only such axes need none.
std::vector<AxisGroups> plan_groups(const DeviceMesh& mesh, std::span<const AxisSet> used);

/// The groups that this process has created. Groups of equal rank lists are one group, whichever
/// mesh or axis they were asked for by.
class CommunicationGroups {
 public:
  /// `platform` must outlive this object. Calls nothing yet.
  explicit CommunicationGroups(GroupPlatform& platform) : platform_(platform) {}

  /// The group of this process along an axis (name, index or flattened name; may be left out on a
  /// 1-D mesh). The first request creates it, later ones call nothing. Errors: those of
  /// DeviceMesh::group and of the platform; a group that failed is tried again next time.
  Result<CommunicationGroup> get(const DeviceMesh& mesh,
                                 const std::optional<AxisRef>& axis = std::nullopt);
  /// Takes over groups that the runtime has made already; nothing is created. One group gives the
  /// 1-D mesh of its ranks, called `axes`; several need the `mesh` whose axis i has group i among
  /// its groups. Errors: kValue (no group, count or ranks differ from the mesh), kMissing (mesh),
  /// those of DeviceMesh::make.
  Result<DeviceMesh> adopt(const std::vector<CommunicationGroup>& groups,
                           const std::optional<DeviceMesh>& mesh,
                           std::vector<std::string> axes);
  /// Creates, in order, those groups of a plan that contain this process.
  Result<void> create(std::span<const AxisGroups> groups);
  /// Number of groups that exist.
  std::size_t size() const;

 private:
  std::int64_t rank();
  Result<CommunicationGroup> get_or_create(std::vector<std::int64_t> ranks,
                                           const std::string& description);

  GroupPlatform& platform_;
  mutable std::mutex mutex_;
  std::optional<std::int64_t> rank_;
  std::map<std::vector<std::int64_t>, std::uint64_t> handles_;
};

}  // namespace meshplan

// SPDX-License-Identifier: Apache-2.0
#include "lib/communication_groups.h"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "lib/text.h"

namespace meshplan {
namespace {

/// "mesh_dp", "mesh_dp_tp", "mesh_dim_0".
std::string description_of(std::span<const std::string> axes) {
  std::string text;
  for (const std::string& axis : axes) text += (text.empty() ? "" : "_") + axis;
  return text.starts_with("mesh_dim_") ? text : "mesh_" + text;
}

}  // namespace

std::vector<AxisGroups> plan_groups(const DeviceMesh& mesh, std::span<const AxisSet> used) {
  AxisSet wide = 0;
  for (int axis = 0; axis < mesh.ndim(); ++axis) {
    if (mesh.axis_size(axis) > 1) wide |= AxisSet{1} << axis;
  }
  // The axes of a set in mesh order; lists compare by length, then axis by axis.
  std::vector<std::vector<int>> sets;
  for (const AxisSet axes : used) {
    std::vector<int> list;
    for (AxisSet left = axes & wide; left != 0; left &= left - 1) {
      list.push_back(std::countr_zero(left));
    }
    if (!list.empty()) sets.push_back(std::move(list));
  }
  std::sort(sets.begin(), sets.end(), [](const auto& a, const auto& b) {
    return a.size() != b.size() ? a.size() < b.size() : a < b;
  });
  sets.erase(std::unique(sets.begin(), sets.end()), sets.end());

  std::vector<AxisGroups> plan;
  for (const std::vector<int>& set : sets) {
    AxisGroups groups;
    AxisSet axes = 0;
    for (const int axis : set) {
      groups.axes.push_back(mesh.axis_label(axis));
      axes |= AxisSet{1} << axis;
    }
    groups.ranks = mesh.groups_of(axes);
    plan.push_back(std::move(groups));
  }
  return plan;
}

std::int64_t CommunicationGroups::rank() {
  if (!rank_) rank_ = platform_.get_rank();
  return *rank_;
}

Result<CommunicationGroup> CommunicationGroups::get_or_create(std::vector<std::int64_t> ranks,
                                                              const std::string& description) {
  if (const auto known = handles_.find(ranks); known != handles_.end()) {
    return CommunicationGroup{known->second, std::move(ranks)};
  }
  Result<std::uint64_t> handle = platform_.create_group(ranks, description);
  if (!handle) return fail(handle.error());
  handles_.emplace(ranks, *handle);
  return CommunicationGroup{*handle, std::move(ranks)};
}

Result<CommunicationGroup> CommunicationGroups::get(const DeviceMesh& mesh,
                                                    const std::optional<AxisRef>& axis) {
  const std::lock_guard lock(mutex_);
  Result<DeviceMesh> line = mesh.along(axis, rank());
  if (!line) return fail(line.error());
  return get_or_create(line->ranks(), description_of(std::array{line->axis_label(0)}));
}

Result<DeviceMesh> CommunicationGroups::adopt(const std::vector<CommunicationGroup>& groups,
                                              const std::optional<DeviceMesh>& mesh,
                                              std::vector<std::string> axes) {
  if (groups.empty()) return fail(ErrorCode::kValue, "/groups", "expected at least one group");
  if (!mesh && groups.size() > 1) {
    return fail(ErrorCode::kMissing, "/mesh", "several groups need the mesh that they belong to");
  }
  const std::vector<std::int64_t>& first = groups.front().ranks;
  Result<DeviceMesh> whole =
      mesh ? Result<DeviceMesh>(*mesh)
           : DeviceMesh::make({static_cast<std::int64_t>(first.size())}, std::move(axes), first);
  if (!whole) return whole;
  if (groups.size() != static_cast<std::size_t>(whole->ndim())) {
    return fail(ErrorCode::kValue,
                "/groups",
                counted(groups.size(), "group") + " for a mesh of " +
                    counted(static_cast<std::size_t>(whole->ndim()), "dimension"));
  }
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const std::vector<std::int64_t>& ranks = groups[i].ranks;
    const std::int64_t axis = static_cast<std::int64_t>(i);
    const auto expected = whole->group(axis, ranks.empty() ? -1 : ranks.front());
    if (!expected || *expected != ranks) {
      return fail(ErrorCode::kValue,
                  "/groups/" + std::to_string(i),
                  "the ranks of the group are none of the groups of axis " +
                      whole->axis_label(static_cast<int>(i)));
    }
  }
  const std::lock_guard lock(mutex_);
  for (const CommunicationGroup& group : groups) handles_.emplace(group.ranks, group.handle);
  return whole;
}

Result<void> CommunicationGroups::create(std::span<const AxisGroups> groups) {
  const std::lock_guard lock(mutex_);
  for (const AxisGroups& along : groups) {
    for (const std::vector<std::int64_t>& ranks : along.ranks) {
      if (std::find(ranks.begin(), ranks.end(), rank()) == ranks.end()) continue;
      Result<CommunicationGroup> made = get_or_create(ranks, description_of(along.axes));
      if (!made) return fail(made.error());
    }
  }
  return {};
}

std::size_t CommunicationGroups::size() const {
  const std::lock_guard lock(mutex_);
  return handles_.size();
}

}  // namespace meshplan

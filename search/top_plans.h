// SPDX-License-Identifier: Apache-2.0
// top_plans: several good plans that are distinct in kind, for people who choose between them.
//
// Plans are of one kind if their axes are used alike (axis_roles.h), axes of the same use taken
// together, and if parameters rest alike along the largest axis of each use: dp=2,dp=8 is the kind
// of dp=16, that of dp=16 with another ZeRO stage is not. Numbers of micro-batches make no kind.
//
// Idea: start from the best plans of all meshes. The cheapest plan that was not looked at yet is
// the next result if its kind is new. What is like it is split up: for everything that it does
// along an axis (cutting the batch, the weights, ...; how parameters rest), the best plan of the
// same mesh that does not do that is searched. Such a plan costs no less than the one it comes
// from, so the kinds come out in the order of their cost, up to the gap of the searches. Not every
// kind is found: one that differs from a better one only where neither is of clear use is skipped.
#pragma once

#include <cstddef>
#include <vector>

#include "search/dp_search.h"

namespace meshplan {

/// The results of dp_search and up to `count` - 1 more of other kinds, the cheapest first; fewer
/// where no more are found. The first one bears the lower bound over all jobs and meshes. Errors:
/// those of dp_search.
Result<std::variant<std::vector<DpResult>, NoPlan>> top_plans(
    std::size_t count,
    const std::vector<DpJob>& jobs,
    const Cluster& cluster,
    const std::vector<MeshShape>& meshes,
    const DpOptions& options,
    const RestrictionsOf& restrictions = {});

}  // namespace meshplan

// SPDX-License-Identifier: Apache-2.0
// SAPP together with exact search: each does what the other cannot.
#pragma once

#include <cstddef>
#include <string>
#include <variant>
#include <vector>

#include "search/sapp_search.h"

namespace meshplan {

struct SappAnswer {
  std::variant<std::vector<DpResult>, NoPlan> found;
  std::vector<std::string> notes;  ///< on what SAPP did, where the first plan is its own
};

/// SAPP's plan alone. Where it finds none within the limit, exact search goes on: it finds some, or
/// says whether there is any. Errors: those of sapp_search and top_plans.
Result<SappAnswer> sapp_or_exact(std::size_t count,
                                 const std::vector<DpJob>& jobs,
                                 const Cluster& cluster,
                                 const std::vector<MeshShape>& meshes,
                                 const SappOptions& options,
                                 const RestrictionsOf& restrictions);

/// SAPP's plan, then top_plans with that bound. An exact search that is stopped before it has a
/// plan leaves SAPP's. Errors: those of top_plans.
Result<SappAnswer> sapp_then_exact(std::size_t count,
                                   const std::vector<DpJob>& jobs,
                                   const Cluster& cluster,
                                   const std::vector<MeshShape>& meshes,
                                   const SappOptions& options,
                                   const RestrictionsOf& restrictions);

}  // namespace meshplan

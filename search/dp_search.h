// SPDX-License-Identifier: Apache-2.0
// dp_search: the best plan over a list of meshes by exact variable elimination.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "cost_model/evaluate.h"
#include "search/memory_search.h"

namespace meshplan {

struct MeshShape {
  std::vector<std::int64_t> shape;
  std::vector<std::string> axes;
};

/// The meshes of `--mesh auto`: every ordered product of one or two factors. On a cluster of one
/// level both orders are alike and only the ascending one is listed.
std::vector<MeshShape> auto_meshes(const Cluster& cluster);

struct DpOptions {
  PriceOptions prices;
  Bytes memory_limit = 0;
  unsigned threads = 1;
};

/// What was found on the best mesh.
struct DpResult {
  MeshShape mesh;
  std::unique_ptr<PriceBook> book;  ///< of that mesh
  Assignment assignment;
  Evaluation evaluation;
  double lower_bound = 0;  ///< over all meshes
  bool optimal = false;    ///< proven, over all meshes
};

/// Why there is no plan within the limit.
struct NoPlan {
  Bytes min_memory = 0;  ///< the least that any plan of any mesh was proven to need; 0: not proven
  std::string moment;    ///< when
  MeshShape mesh;        ///< where the least is needed
};

/// Seconds up to which sums of prices are exact: 2^53 ticks of the price grid.
constexpr double kLongestStep = 8192.0;

using DpOutcome = std::variant<DpResult, NoPlan>;

/// Gives the restrictions that hold on a mesh; may be empty.
using RestrictionsOf = std::function<Result<Restrictions>(PriceBook&, const MeshShape&)>;

/// Graph and cluster must outlive the result. The same answer for any number of threads. Errors:
/// those of PriceBook::make and PlanProblem::make, if no mesh is left; kOverflow for a step longer
/// than kLongestStep.
Result<DpOutcome> dp_search(const Graph& graph,
                            const Cluster& cluster,
                            const std::vector<MeshShape>& meshes,
                            const DpOptions& options,
                            const RestrictionsOf& restrictions = {});

}  // namespace meshplan

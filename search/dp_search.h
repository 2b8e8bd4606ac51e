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

/// Meshes of more axes are not searched: tables grow with the fourth power of the states.
constexpr int kMostSearchedAxes = 3;

/// The meshes of `--mesh auto` and `--mesh all`: every ordered product of up to three factors above
/// 1. The order of two axes matters even inside one level: the outer one of two that cut a
/// dimension can stay when the inner one is gathered, not the other way round.
std::vector<MeshShape> all_meshes(const Cluster& cluster);

/// The graph of one number of micro-batches.
struct DpJob {
  const Graph* graph = nullptr;
  std::int64_t microbatches = 1;
  /// Of the graph with the options' recomputation, where searches share it; may be empty.
  std::shared_ptr<const DataFlow> flow = nullptr;
};

/// How far a search is.
struct DpProgress {
  std::size_t searched = 0;  ///< meshes of all jobs, those dropped by their bound included
  std::size_t meshes = 0;
  std::optional<Seconds> best;
  std::optional<double> lower_bound;  ///< over all meshes; none while one has no bound yet
};

struct DpResult;

struct DpOptions {
  PriceOptions prices;  ///< `microbatches` is the job's
  Bytes memory_limit = 0;
  unsigned threads = 1;
  bool bound_first = true;  ///< false: search every mesh fully (`--mesh all`)
  /// So many results are wanted, each of another mesh or job; bounds drop what is no better than
  /// the last of them.
  std::size_t results = 1;
  /// A plan that another search found: an upper bound, and the result (moved from here) where none
  /// as cheap is found. For one result.
  DpResult* first = nullptr;
  /// Asked again and again, from any thread: true ends the search with the best plan so far, which
  /// is then not called optimal. Empty: never.
  std::function<bool()> stop;
  /// Told after every mesh, and within one whenever its plan or bound gets better; from any thread,
  /// one at a time. May be empty.
  std::function<void(const DpProgress&)> progress;
};

/// What was found on the best mesh of the best job.
struct DpResult {
  std::size_t job = 0;
  MeshShape mesh;
  std::unique_ptr<PriceBook> book;  ///< of that mesh
  Assignment assignment;
  Evaluation evaluation;
  std::string found_by = "dp";
  double lower_bound = 0;  ///< over all jobs and meshes; 0 where none was found
  bool optimal = false;    ///< proven, over all jobs and meshes
  bool stopped = false;    ///< the search was ended early; no bound was found if it is 0 then
  /// The best ones of other meshes and jobs, the cheapest first, at most DpOptions::results - 1;
  /// of these, `lower_bound` and `optimal` say nothing.
  std::vector<DpResult> others;
};

/// Why there is no plan within the limit.
struct NoPlan {
  Bytes min_memory = 0;  ///< the least that any plan of any mesh was proven to need; 0: not proven
  /// Where it is not proven: the least peak of the plans that were tried; 0: none was.
  Bytes least_peak = 0;
  std::string moment;    ///< of `min_memory` or `least_peak`
  MeshShape mesh;        ///< likewise
  bool stopped = false;  ///< the search was ended before it found a plan
};

/// Seconds up to which sums of prices are exact: 2^53 ticks of the price grid.
constexpr double kLongestStep = 8192.0;

/// That a step is longer than that.
Error step_too_long(Seconds objective);

using DpOutcome = std::variant<DpResult, NoPlan>;

/// Gives the restrictions that hold on a mesh; may be empty.
using RestrictionsOf = std::function<Result<Restrictions>(PriceBook&, const MeshShape&)>;

/// The best plan of all jobs and meshes. First the meshes of one and two axes of every job, then
/// those of three; once there is a plan, a mesh is first bounded by one solve at the memory prices
/// of the best plan's bound, and dropped where that or any later bound is no better than the plan.
/// Graphs and cluster must outlive the result. The same answer for any number of threads. Errors:
/// those of PriceBook::make and PlanProblem::make, if no mesh is left; kOverflow for a step longer
/// than kLongestStep.
Result<DpOutcome> dp_search(const std::vector<DpJob>& jobs,
                            const Cluster& cluster,
                            const std::vector<MeshShape>& meshes,
                            const DpOptions& options,
                            const RestrictionsOf& restrictions = {});

/// The same for one job of options.prices.microbatches.
Result<DpOutcome> dp_search(const Graph& graph,
                            const Cluster& cluster,
                            const std::vector<MeshShape>& meshes,
                            const DpOptions& options,
                            const RestrictionsOf& restrictions = {});

}  // namespace meshplan

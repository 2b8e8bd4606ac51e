// SPDX-License-Identifier: Apache-2.0
#include "search/dp_search.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <thread>

#include "lib/check.h"

namespace meshplan {
namespace {

/// One mesh's part of the search.
struct MeshRun {
  std::size_t job = 0;
  std::size_t mesh = 0;
  std::optional<Error> error;
  double bound = 0;  ///< from one solve; 0: not bounded
  std::unique_ptr<PriceBook> book;
  std::unique_ptr<PlanProblem> problem;
  MemorySearchResult found;
};

class DpSearch {
 public:
  DpSearch(const std::vector<DpJob>& jobs,
           const Cluster& cluster,
           const std::vector<MeshShape>& meshes,
           const DpOptions& options,
           const RestrictionsOf& restrictions)
      : jobs_(jobs),
        cluster_(cluster),
        meshes_(meshes),
        options_(options),
        restrictions_(restrictions) {
    for (const DpJob& job : jobs)
      flows_.push_back(std::make_shared<const DataFlow>(*job.graph, options.prices.recomputation));
  }

  Result<DpOutcome> run() {
    for (const bool large : {false, true}) {
      for (std::size_t job = 0; job < jobs_.size(); ++job) {
        std::vector<MeshRun> stage;
        for (std::size_t mesh = 0; mesh < meshes_.size(); ++mesh) {
          if ((meshes_[mesh].shape.size() > 2) != large) continue;
          stage.emplace_back();
          stage.back().job = job;
          stage.back().mesh = mesh;
        }
        search(stage);
      }
    }
    return outcome();
  }

 private:
  static constexpr std::size_t kWave = 2;

  /// All meshes of a stage, a few at a time, those with the most even axes first. Once there is a
  /// plan, each of the others is bounded, and those with a bound below it are searched in the order
  /// of their bounds. Nothing depends on the number of threads.
  void search(std::vector<MeshRun>& stage) {
    if (!options_.bound_first) {
      in_parallel(stage.size(), [&](std::size_t i) {
        prepare(stage[i]);
        search(stage[i]);
      });
      for (MeshRun& run : stage) take(std::move(run));
      return;
    }
    std::stable_sort(stage.begin(), stage.end(), [&](const MeshRun& a, const MeshRun& b) {
      return longest_axis(a) < longest_axis(b);
    });
    bool bounded = false;
    for (std::size_t begin = 0; begin < stage.size(); begin += kWave) {
      if (!bounded && incumbent_) {
        in_parallel(stage.size() - begin, [&](std::size_t i) { prepare(stage[begin + i]); });
        std::stable_sort(stage.begin() + static_cast<std::ptrdiff_t>(begin),
                         stage.end(),
                         [](const MeshRun& a, const MeshRun& b) { return a.bound < b.bound; });
        bounded = true;
      }
      const std::size_t count = std::min(kWave, stage.size() - begin);
      in_parallel(count, [&](std::size_t i) {
        if (!bounded) prepare(stage[begin + i]);
        search(stage[begin + i]);
      });
      for (std::size_t i = 0; i < count; ++i) take(std::move(stage[begin + i]));
    }
  }

  std::int64_t longest_axis(const MeshRun& run) const {
    const std::vector<std::int64_t>& shape = meshes_[run.mesh].shape;
    return *std::max_element(shape.begin(), shape.end());
  }

  template <class Work>
  void in_parallel(std::size_t count, Work work) const {
    if (count == 0) return;
    std::atomic<std::size_t> next{0};
    const auto run = [&] {
      for (std::size_t i = next++; i < count; i = next++) work(i);
    };
    const std::size_t helpers =
        std::min<std::size_t>(options_.threads > 0 ? options_.threads - 1 : 0, count - 1);
    std::vector<std::thread> threads;
    for (std::size_t h = 0; h < helpers; ++h) threads.emplace_back(run);
    run();
    for (std::thread& thread : threads) thread.join();
  }

  bool dropped(const MeshRun& run) const {
    return incumbent_ && options_.bound_first && run.bound >= incumbent_->objective.value;
  }

  void prepare(MeshRun& run) const {
    const DpJob& job = jobs_[run.job];
    const MeshShape& mesh = meshes_[run.mesh];
    PriceOptions prices = options_.prices;
    prices.microbatches = job.microbatches;
    auto book = PriceBook::make(*job.graph, cluster_, mesh.shape, prices, flows_[run.job]);
    if (!book) {
      run.error = book.error();
      return;
    }
    run.book = std::move(*book);
    Restrictions allowed;
    if (restrictions_) {
      auto made = restrictions_(*run.book, mesh);
      if (!made) {
        run.error = made.error();
        return;
      }
      allowed = std::move(*made);
    }
    auto problem = PlanProblem::make(*run.book, allowed);
    if (!problem) {
      run.error = problem.error();
      return;
    }
    run.problem = std::move(*problem);
    if (!incumbent_ || !options_.bound_first) return;
    run.bound = bound_at(*run.problem, incumbent_->prices, options_.memory_limit);
    if (dropped(run)) release(run);
  }

  void search(MeshRun& run) const {
    if (run.error || dropped(run)) return;
    run.found = memory_search(
        *run.problem, options_.memory_limit, options_.bound_first ? incumbent_ : std::nullopt);
    if (!run.found.decision) release(run);
  }

  static void release(MeshRun& run) {
    run.problem.reset();
    run.book.reset();
  }

  void take(MeshRun&& run) {
    if (dropped(run)) {
      release(run);
      return;
    }
    if (run.error) {
      if (!first_error_) first_error_ = run.error;
      return;
    }
    const MemorySearchResult& found = run.found;
    if (!found.decision && found.min_memory) {
      if (!least_ || *found.min_memory < *least_->found.min_memory) least_ = std::move(run);
      return;  // proven: no plan on this mesh, it bounds nothing
    }
    bound_ = bound_ ? std::min(*bound_, found.lower_bound) : found.lower_bound;
    if (!found.decision) {
      all_proven_ = false;
      return;
    }
    if (incumbent_ && incumbent_->objective <= found.objective) return;
    incumbent_ = {found.objective, found.prices};
    best_ = std::move(run);
  }

  Result<DpOutcome> outcome() {
    if (best_) return best();
    if (!least_ && !all_proven_) return DpOutcome(NoPlan{0, "", meshes_.front()});
    if (!least_) return fail(*first_error_);
    const MemorySearchResult& found = least_->found;
    const Graph& graph = *jobs_[least_->job].graph;
    return DpOutcome(NoPlan{all_proven_ ? *found.min_memory : 0,
                            moment_name(graph, *flows_[least_->job], found.tightest_moment),
                            meshes_[least_->mesh]});
  }

  Result<DpOutcome> best() {
    MeshRun& run = *best_;
    if (run.found.objective.value > kLongestStep) {
      return fail(ErrorCode::kOverflow,
                  "",
                  "the best step found takes " +
                      std::to_string(std::llround(run.found.objective.value)) +
                      " s; prices add up exactly to 8192 s only. Take more devices or a smaller "
                      "batch, and check the rates of the cluster");
    }
    DpResult result;
    result.job = run.job;
    result.mesh = meshes_[run.mesh];
    result.assignment = run.problem->assignment(*run.found.decision);
    run.problem.reset();
    result.book = std::move(run.book);
    result.evaluation = evaluate(*result.book, result.assignment);
    // the search's own sum and the evaluator's must agree to the last bit
    MESHPLAN_CHECK(result.evaluation.objective == run.found.objective);
    MESHPLAN_CHECK(result.evaluation.peak <= options_.memory_limit);
    result.lower_bound = std::min(*bound_, run.found.objective.value);
    result.optimal = result.lower_bound >= run.found.objective.value;
    return DpOutcome(std::move(result));
  }

  const std::vector<DpJob>& jobs_;
  const Cluster& cluster_;
  const std::vector<MeshShape>& meshes_;
  const DpOptions& options_;
  const RestrictionsOf& restrictions_;
  std::vector<std::shared_ptr<const DataFlow>> flows_;  ///< of the jobs' graphs
  std::optional<Incumbent> incumbent_;
  std::optional<MeshRun> best_;
  std::optional<MeshRun> least_;  ///< where the least memory is needed, if nothing fits
  std::optional<double> bound_;   ///< on all plans of the meshes that were searched
  std::optional<Error> first_error_;
  bool all_proven_ = true;  ///< wherever no plan was found there is none
};

}  // namespace

std::vector<MeshShape> all_meshes(const Cluster& cluster) {
  const std::int64_t devices = cluster.devices();
  static const std::vector<std::string> kAxes = {"d0", "d1", "d2"};
  std::vector<std::int64_t> factors;
  for (std::int64_t factor = 2; factor <= devices / 2; ++factor) {
    if (devices % factor == 0) factors.push_back(factor);
  }
  const auto make = [&](std::vector<std::int64_t> shape) {
    const auto axes = static_cast<std::ptrdiff_t>(shape.size());
    return MeshShape{std::move(shape), {kAxes.begin(), kAxes.begin() + axes}};
  };
  std::vector<MeshShape> meshes = {make({devices})};
  for (const std::int64_t outer : factors) meshes.push_back(make({outer, devices / outer}));
  for (const std::int64_t outer : factors) {
    const std::int64_t rest = devices / outer;
    for (const std::int64_t middle : factors) {
      if (middle < rest && rest % middle == 0)
        meshes.push_back(make({outer, middle, rest / middle}));
    }
  }
  return meshes;
}

Result<DpOutcome> dp_search(const std::vector<DpJob>& jobs,
                            const Cluster& cluster,
                            const std::vector<MeshShape>& meshes,
                            const DpOptions& options,
                            const RestrictionsOf& restrictions) {
  return DpSearch(jobs, cluster, meshes, options, restrictions).run();
}

Result<DpOutcome> dp_search(const Graph& graph,
                            const Cluster& cluster,
                            const std::vector<MeshShape>& meshes,
                            const DpOptions& options,
                            const RestrictionsOf& restrictions) {
  return dp_search({{&graph, options.prices.microbatches}}, cluster, meshes, options, restrictions);
}

}  // namespace meshplan

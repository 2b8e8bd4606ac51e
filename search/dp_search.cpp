// SPDX-License-Identifier: Apache-2.0
#include "search/dp_search.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "lib/check.h"
#include "search/in_parallel.h"

namespace meshplan {
namespace {

/// One mesh's part of the search.
struct MeshRun {
  std::size_t job = 0;
  std::size_t mesh = 0;
  std::optional<Error> error;
  double bound = 0;      ///< from one solve; 0: not bounded
  bool skipped = false;  ///< the search was stopped before this mesh
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
    progress_.meshes = jobs_.size() * meshes_.size();
    std::size_t left = progress_.meshes;
    for (const bool large : {false, true}) {
      for (std::size_t job = 0; job < jobs_.size(); ++job) {
        std::vector<MeshRun> stage;
        for (std::size_t mesh = 0; mesh < meshes_.size(); ++mesh) {
          if ((meshes_[mesh].shape.size() > 2) != large) continue;
          stage.emplace_back();
          stage.back().job = job;
          stage.back().mesh = mesh;
        }
        left -= stage.size();
        search(stage, left == 0);
      }
    }
    return outcome();
  }

 private:
  static constexpr std::size_t kWave = 2;
  static constexpr double kNothingOpen = std::numeric_limits<double>::infinity();

  /// All meshes of a stage, a few at a time, those with the most even axes first. Once there is a
  /// plan, each of the others is bounded, and those with a bound below it are searched in the order
  /// of their bounds. Nothing depends on the number of threads.
  void search(std::vector<MeshRun>& stage, bool is_last) {
    if (!options_.bound_first) {
      in_parallel(stage.size(), options_.threads, [&](std::size_t i) {
        prepare(stage[i]);
        search(stage[i]);
      });
      for (MeshRun& run : stage) {
        if (is_last && &run == &stage.back()) open_bound_ = kNothingOpen;
        take(std::move(run));
      }
      return;
    }
    std::stable_sort(stage.begin(), stage.end(), [&](const MeshRun& a, const MeshRun& b) {
      return longest_axis(a) < longest_axis(b);
    });
    bool bounded = false;
    for (std::size_t begin = 0; begin < stage.size(); begin += kWave) {
      if (!bounded && !best_.empty()) {
        in_parallel(stage.size() - begin, options_.threads, [&](std::size_t i) {
          prepare(stage[begin + i]);
        });
        std::stable_sort(stage.begin() + static_cast<std::ptrdiff_t>(begin),
                         stage.end(),
                         [](const MeshRun& a, const MeshRun& b) { return a.bound < b.bound; });
        bounded = true;
      }
      const std::size_t count = std::min(kWave, stage.size() - begin);
      in_parallel(count, options_.threads, [&](std::size_t i) {
        if (!bounded) prepare(stage[begin + i]);
        search(stage[begin + i]);
      });
      for (std::size_t i = begin; i < begin + count; ++i) {
        const bool end = i + 1 == stage.size();
        if (is_last && (bounded || end)) open_bound_ = end ? kNothingOpen : stage[i + 1].bound;
        take(std::move(stage[i]));
      }
    }
  }

  std::int64_t longest_axis(const MeshRun& run) const {
    const std::vector<std::int64_t>& shape = meshes_[run.mesh].shape;
    return *std::max_element(shape.begin(), shape.end());
  }

  /// Not one of the wanted results.
  bool dropped(const MeshRun& run) const {
    return best_.size() >= options_.results && options_.bound_first &&
           run.bound >= best_.back().found.objective.value;
  }

  bool stopped() const { return options_.stop && options_.stop(); }

  /// The result that a further mesh must beat; none as long as any is wanted.
  std::optional<Incumbent> incumbent() const {
    if (best_.size() < options_.results || !options_.bound_first) return std::nullopt;
    return Incumbent{best_.back().found.objective, prices_};
  }

  void prepare(MeshRun& run) const {
    run.skipped = stopped();
    if (run.skipped) return;
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
    if (best_.empty() || !options_.bound_first) return;
    run.bound = bound_at(*run.problem, prices_, options_.memory_limit);
    if (dropped(run)) release(run);
  }

  void search(MeshRun& run) const {
    run.skipped = run.skipped || stopped();
    if (run.skipped) release(run);
    if (run.error || run.skipped || dropped(run)) return;
    run.found = memory_search(*run.problem, options_.memory_limit, incumbent(), options_.stop);
    if (!run.found.decision) release(run);
  }

  static void release(MeshRun& run) {
    run.problem.reset();
    run.book.reset();
  }

  void take(MeshRun&& run) {
    take_result(std::move(run));
    ++progress_.searched;
    if (!options_.progress) return;
    if (!best_.empty()) {
      progress_.best = best_.front().found.objective;
      if (open_bound_)
        progress_.lower_bound =
            std::min({*open_bound_, bound_.value_or(kNothingOpen), progress_.best->value});
    }
    options_.progress(progress_);
  }

  void take_result(MeshRun&& run) {
    if (run.skipped) {
      stopped_ = true;
      bound_ = bound_ ? std::min(*bound_, run.bound) : run.bound;
      return;
    }
    if (dropped(run)) {
      release(run);
      return;
    }
    if (run.error) {
      if (!first_error_) first_error_ = run.error;
      return;
    }
    const MemorySearchResult& found = run.found;
    stopped_ = stopped_ || found.stopped;
    if (!found.decision && found.min_memory) {
      if (!least_ || *found.min_memory < *least_->found.min_memory) least_ = std::move(run);
      return;  // proven: no plan on this mesh, it bounds nothing
    }
    bound_ = bound_ ? std::min(*bound_, found.lower_bound) : found.lower_bound;
    if (!found.decision) {
      all_proven_ = false;
      return;
    }
    const auto place = std::upper_bound(
        best_.begin(), best_.end(), found.objective, [](Seconds objective, const MeshRun& other) {
          return objective < other.found.objective;
        });
    if (place == best_.end() && best_.size() >= options_.results) return;
    if (place == best_.begin()) prices_ = found.prices;
    best_.insert(place, std::move(run));
    if (best_.size() > options_.results) best_.pop_back();
  }

  Result<DpOutcome> outcome() {
    if (!best_.empty()) return best();
    if (!least_ && (stopped_ || !all_proven_))
      return DpOutcome(NoPlan{0, "", meshes_.front(), stopped_});
    if (!least_) return fail(*first_error_);
    const MemorySearchResult& found = least_->found;
    const Graph& graph = *jobs_[least_->job].graph;
    return DpOutcome(NoPlan{all_proven_ && !stopped_ ? *found.min_memory : 0,
                            moment_name(graph, *flows_[least_->job], found.tightest_moment),
                            meshes_[least_->mesh],
                            stopped_});
  }

  Result<DpOutcome> best() {
    const Seconds objective = best_.front().found.objective;
    if (objective.value > kLongestStep) {
      return fail(ErrorCode::kOverflow,
                  "",
                  "the best step found takes " + std::to_string(std::llround(objective.value)) +
                      " s; prices add up exactly to 8192 s only. Take more devices or a smaller "
                      "batch, and check the rates of the cluster");
    }
    DpResult result = result_of(best_.front());
    result.lower_bound = std::min(*bound_, objective.value);
    result.stopped = stopped_;
    result.optimal = !stopped_ && result.lower_bound >= objective.value;
    for (std::size_t i = 1; i < best_.size(); ++i) {
      if (best_[i].found.objective.value <= kLongestStep)
        result.others.push_back(result_of(best_[i]));
    }
    return DpOutcome(std::move(result));
  }

  DpResult result_of(MeshRun& run) const {
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
    return result;
  }

  const std::vector<DpJob>& jobs_;
  const Cluster& cluster_;
  const std::vector<MeshShape>& meshes_;
  const DpOptions& options_;
  const RestrictionsOf& restrictions_;
  std::vector<std::shared_ptr<const DataFlow>> flows_;  ///< of the jobs' graphs
  std::vector<MeshRun> best_;                           ///< the results so far, the cheapest first
  MemoryPrices prices_;                                 ///< of the bound of the best one
  bool stopped_ = false;
  DpProgress progress_;
  std::optional<double> open_bound_;  ///< on the meshes not taken yet; none: some have no bound
  std::optional<MeshRun> least_;      ///< where the least memory is needed, if nothing fits
  std::optional<double> bound_;       ///< on all plans of the meshes that were searched
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

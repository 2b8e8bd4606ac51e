// SPDX-License-Identifier: Apache-2.0
#include "search/dp_search.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>
#include <numeric>

#include "lib/check.h"
#include "search/in_parallel.h"
#include "search/whole_plan.h"

namespace meshplan {
namespace {

/// One mesh's part of the search.
struct MeshRun {
  std::size_t job = 0;
  std::size_t mesh = 0;
  std::optional<Error> error;
  double bound = 0;       ///< from one solve; 0: not bounded
  bool promised = false;  ///< others were measured by its plan
  bool skipped = false;   ///< the search was stopped before this mesh
  std::unique_ptr<PriceBook> book;
  std::unique_ptr<PlanProblem> problem;
  std::unique_ptr<MemorySearch> memory;  ///< of the problem
  Restrictions allowed;
  MemorySearchResult found;
  std::optional<Assignment> plan;  ///< of what was found
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
      flows_.push_back(
          job.flow ? job.flow
                   : std::make_shared<const DataFlow>(*job.graph, options.prices.recomputation));
    job_states_.resize(jobs.size());
    if (options.first == nullptr || options.results != 1) return;
    told_ = progress_.best = options.first->evaluation.objective;
    // one grid step more, so that a plan as cheap is found here
    first_ = *told_ + Seconds{1 / kTicksPerSecond};
  }

  Result<DpOutcome> run() {
    progress_.meshes = jobs_.size() * meshes_.size();
    std::size_t left = progress_.meshes;
    std::vector<std::size_t> order(jobs_.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    for (const bool large : {false, true}) {
      // the jobs that did best on few axes first
      std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
        return job_states_[a].bound < job_states_[b].bound;
      });
      for (const std::size_t job : order) {
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
  static constexpr std::size_t kMostPairs = 20'000;  ///< of a problem that is solved whole
  static constexpr double kNothingOpen = std::numeric_limits<double>::infinity();

  /// All meshes of a stage. Those with the most even axes are looked at roughly, if nothing is
  /// known of the job yet; each of the others is bounded at the prices found there; those with a
  /// bound below the best plan are searched in the order of their bounds, a few at a time. Nothing
  /// depends on the number of threads.
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
    std::size_t rough = 0;
    if (stage.size() > 1 && !job_states_[stage.front().job].prices) {
      rough = std::min(kWave, stage.size());
      in_parallel(rough, options_.threads, [&](std::size_t i) { look_roughly(stage[i]); });
      for (std::size_t i = 0; i < rough; ++i) promise(stage[i]);
    }
    in_parallel(stage.size() - rough, options_.threads, [&](std::size_t i) {
      prepare(stage[rough + i]);
      bound(stage[rough + i]);
    });
    std::stable_sort(stage.begin(), stage.end(), [](const MeshRun& a, const MeshRun& b) {
      return a.bound < b.bound;
    });
    for (std::size_t begin = 0; begin < stage.size(); begin += kWave) {
      const std::size_t count = std::min(kWave, stage.size() - begin);
      in_parallel(count, options_.threads, [&](std::size_t i) { search(stage[begin + i]); });
      for (std::size_t i = begin; i < begin + count; ++i) {
        const bool end = i + 1 == stage.size();
        if (is_last) open_bound_ = end ? kNothingOpen : stage[i + 1].bound;
        take(std::move(stage[i]));
      }
    }
  }

  std::int64_t longest_axis(const MeshRun& run) const {
    const std::vector<std::int64_t>& shape = meshes_[run.mesh].shape;
    return *std::max_element(shape.begin(), shape.end());
  }

  /// Not one of the wanted results. What holds a plan already stays, others were measured by it.
  bool dropped(const MeshRun& run) const {
    const std::optional<Seconds> least = to_beat();
    return least && !run.promised && run.bound >= least->value;
  }

  bool stopped() const { return options_.stop && options_.stop(); }

  /// What a further mesh must beat; none as long as any is wanted.
  std::optional<Seconds> to_beat() const {
    if (!options_.bound_first) return std::nullopt;
    if (options_.results != 1) {
      if (best_.size() < options_.results) return std::nullopt;
      return best_.back().found.objective;
    }
    std::optional<Seconds> least = first_;
    if (promised_ && (!least || *promised_ < *least)) least = promised_;
    if (!best_.empty() && (!least || best_.back().found.objective < *least))
      least = best_.back().found.objective;
    return least;
  }

  /// The result that a further mesh of a job must beat.
  std::optional<Incumbent> incumbent(std::size_t job) const {
    const std::optional<Seconds> least = to_beat();
    if (!least) return std::nullopt;
    return Incumbent{*least, prices_of(job)};
  }

  void look_roughly(MeshRun& run) const {
    prepare(run);
    if (!run.memory) return;
    run.found = run.memory->run(incumbent(run.job), options_.stop, SearchEffort::kRough);
    run.bound = run.found.lower_bound;
  }

  /// What a rough look found will be among the results.
  void promise(MeshRun& run) {
    if (!run.memory) return;
    learn(run);
    if (!run.found.decision) return;
    run.promised = true;
    if (!promised_ || run.found.objective < *promised_) promised_ = run.found.objective;
  }

  /// Keeps good prices for the other meshes of the job.
  void learn(const MeshRun& run) {
    const MemorySearchResult& found = run.found;
    if (found.empty || found.min_memory) return;
    JobState& job = job_states_[run.job];
    if (job.prices && found.lower_bound >= job.bound) return;
    job.prices = found.prices;
    job.bound = found.lower_bound;
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
    if (restrictions_) {
      auto made = restrictions_(*run.book, mesh);
      if (!made) {
        run.error = made.error();
        return;
      }
      run.allowed = std::move(*made);
    }
    auto problem = PlanProblem::make(*run.book, run.allowed);
    if (!problem) {
      run.error = problem.error();
      return;
    }
    run.problem = std::move(*problem);
    run.memory = std::make_unique<MemorySearch>(*run.problem, options_.memory_limit);
    if (options_.progress) run.memory->watch([this](const auto& found) { tell(found); });
  }

  /// What the search of one mesh knows while it runs.
  void tell(const MemorySearchResult& found) const {
    const std::lock_guard<std::mutex> lock(telling_);
    if (found.decision && (!told_ || found.objective < *told_)) told_ = found.objective;
    DpProgress now = progress_;
    now.best = told_;
    if (now.meshes == 1)
      now.lower_bound = std::min(found.lower_bound,
                                 told_ ? told_->value : std::numeric_limits<double>::infinity());
    options_.progress(now);
  }

  void bound(MeshRun& run) const {
    if (!run.memory) return;
    const std::optional<Seconds> least = to_beat();
    run.bound = run.memory->bound(prices_of(run.job), least ? least->value : kNothingOpen);
    if (dropped(run)) release(run);
  }

  void search(MeshRun& run) const {
    run.skipped = run.skipped || stopped();
    if (run.skipped && !run.promised) release(run);
    if (!run.memory || dropped(run)) return;
    const std::optional<Incumbent> least = incumbent(run.job);
    if (!run.skipped) run.found = run.memory->run(least, options_.stop);
    run.memory.reset();
    if (run.found.decision) run.plan = run.problem->assignment(*run.found.decision);
    if (!(least && run.found.lower_bound >= least->objective.value)) complete(run);
    run.problem.reset();
    if (!run.plan) release(run);
  }

  /// What the memory search leaves open is solved as a bare cost graph, if it is small: to the end
  /// where that is possible.
  void complete(MeshRun& run) const {
    MemorySearchResult& found = run.found;
    if (run.skipped || found.empty || found.min_memory || found.proven_optimal || found.stopped)
      return;
    if (run.problem->pairs() > kMostPairs) return;
    const WholePlan whole =
        solve_whole(*run.book, run.allowed, options_.memory_limit, options_.threads, options_.stop);
    found.stopped = whole.stopped;
    found.lower_bound = std::max(found.lower_bound, whole.lower_bound);
    if (whole.plan && (!run.plan || whole.objective < found.objective)) {
      run.plan = whole.plan;
      found.objective = whole.objective;
    }
    if (run.plan) {
      found.lower_bound = std::min(found.lower_bound, found.objective.value);
      found.proven_optimal = found.lower_bound >= found.objective.value;
    } else if (whole.least_memory) {
      found.min_memory = whole.least_memory;
    }
  }

  /// Good prices for meshes of a job: of its best mesh so far, or of the best of all.
  const MemoryPrices& prices_of(std::size_t job) const {
    return job_states_[job].prices ? *job_states_[job].prices : prices_;
  }

  static void release(MeshRun& run) {
    run.memory.reset();
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
    if (run.skipped && !run.promised) {
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
    stopped_ = stopped_ || found.stopped || run.skipped;
    if (found.empty) {  // like a mesh that could not be prepared, it bounds nothing
      if (!first_error_) first_error_ = no_plan_error(run);
      return;
    }
    if (!run.plan && found.least_peak && (!near_ || *found.least_peak < near_->least_peak)) {
      near_ = NoPlan{0,
                     *found.least_peak,
                     moment_name(*jobs_[run.job].graph, *flows_[run.job], found.least_peak_moment),
                     meshes_[run.mesh],
                     false};
    }
    if (!run.plan && found.min_memory) {
      if (!least_ || *found.min_memory < *least_->found.min_memory) least_ = std::move(run);
      return;  // proven: no plan on this mesh, it bounds nothing
    }
    if (!job_states_[run.job].prices) learn(run);
    bound_ = bound_ ? std::min(*bound_, found.lower_bound) : found.lower_bound;
    if (!run.plan) {
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

  Error no_plan_error(const MeshRun& run) const {
    std::string shape;
    for (const std::int64_t size : meshes_[run.mesh].shape)
      shape += (shape.empty() ? "" : "x") + std::to_string(size);
    return {ErrorCode::kConflict,
            "",
            "no plan on the mesh " + shape +
                " keeps the constraints: what they leave of two "
                "neighbouring operators does not go together"};
  }

  /// Whether the plan that was given is cheaper than all that were found.
  bool keeps_first() const {
    return first_ && (best_.empty() || *first_ <= best_.front().found.objective);
  }

  Result<DpOutcome> outcome() {
    if (keeps_first()) {
      DpResult result = std::move(*options_.first);
      const double objective = result.evaluation.objective.value;
      result.lower_bound = std::min(bound_.value_or(objective), objective);
      result.stopped = stopped_;
      result.optimal = !stopped_ && result.lower_bound >= objective;
      return DpOutcome(std::move(result));
    }
    if (!best_.empty()) return best();
    if (stopped_ || !all_proven_) {
      NoPlan none = near_.value_or(NoPlan{0, 0, "", meshes_.front(), false});
      none.stopped = stopped_;
      return DpOutcome(std::move(none));
    }
    if (!least_) return fail(*first_error_);
    const MemorySearchResult& found = least_->found;
    const Graph& graph = *jobs_[least_->job].graph;
    return DpOutcome(NoPlan{*found.min_memory,
                            0,
                            moment_name(graph, *flows_[least_->job], found.tightest_moment),
                            meshes_[least_->mesh],
                            false});
  }

  Result<DpOutcome> best() {
    const Seconds objective = best_.front().found.objective;
    if (objective.value > kLongestStep) return fail(step_too_long(objective));
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
    result.assignment = std::move(*run.plan);
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
  /// The least bound of a job's meshes and its prices.
  struct JobState {
    std::optional<MemoryPrices> prices;
    double bound = kNothingOpen;
  };
  std::vector<JobState> job_states_;
  std::optional<Seconds> first_;     ///< what beats the plan that was given
  std::optional<Seconds> promised_;  ///< the best of what was found and not yet taken
  std::vector<MeshRun> best_;        ///< the results so far, the cheapest first
  MemoryPrices prices_;              ///< of the bound of the best one
  bool stopped_ = false;
  DpProgress progress_;
  mutable std::mutex telling_;
  mutable std::optional<Seconds> told_;  ///< the best plan of all meshes so far
  std::optional<double> open_bound_;     ///< on the meshes not taken yet; none: some have no bound
  std::optional<MeshRun> least_;         ///< where the least memory is needed, if nothing fits
  std::optional<double> bound_;          ///< on all plans of the meshes that were searched
  std::optional<Error> first_error_;
  std::optional<NoPlan> near_;  ///< the lightest of the plans that do not fit
  bool all_proven_ = true;      ///< wherever no plan was found there is none
};

}  // namespace

Error step_too_long(Seconds objective) {
  return {ErrorCode::kOverflow,
          "",
          "the best step found takes " + std::to_string(std::llround(objective.value)) +
              " s; prices add up exactly to 8192 s only. Take more devices or a smaller "
              "batch, and check the rates of the cluster"};
}

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

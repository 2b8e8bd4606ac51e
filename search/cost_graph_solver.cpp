// SPDX-License-Identifier: Apache-2.0
#include "search/cost_graph_solver.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "search/in_parallel.h"
#include "search/solver/block.h"
#include "search/solver/core.h"
#include "search/solver/exact.h"
#include "search/solver/prices.h"
#include "search/solver/problem.h"
#include "search/solver/worker.h"

namespace meshplan {
namespace {

using namespace solver;

constexpr double kRoundWork = 3e7;     ///< table entries of one worker in one round
constexpr double kRoundSeconds = 0.2;  ///< instead, where the clock decides
constexpr double kReserve = 0.12;      ///< seconds kept for evaluating the result
constexpr int kStartGrowths = 60;
constexpr double kStartRounds = 20;   ///< work of looking for the first assignment
constexpr double kStartPasses = 200;  ///< the same in passes of messages, of large graphs
constexpr double kCompleteTables = 1 << 24;
constexpr double kTinyCore = 300;    ///< strategies; up to this, complete search comes first
constexpr double kSmallCore = 3000;  ///< beyond, it is not tried
constexpr std::int64_t kExactRounds[] = {2, 16, 64, 128};  ///< after these complete search is tried
constexpr double kExactShares[] = {0.02, 0.05, 0.1, 0.2};  ///< of the time limit
constexpr int kMostBalances = 200;
constexpr double kAhead = 0.15;           ///< how far beyond the bound the prices aim at most
constexpr double kRepairShare = 0.25;     ///< work on making labellings fit, per work on the prices
constexpr double kPriceShare = 0.6;       ///< of the budget, in which the first worker climbs
constexpr double kLeastPatience = 10;     ///< rounds without a gain
constexpr double kWorthARound = 1e-6;     ///< relative gain of the bound
constexpr double kLastExactRounds = 32;   ///< work of the last complete search
constexpr std::size_t kMostAlong = 8;     ///< binding moments whose prices are searched one by one
constexpr double kMostAlongWork = 3e6;    ///< of a pass, for that
constexpr double kWorthShrinking = 0.04;  ///< of the strategies that can be dropped

class Solver {
 public:
  Solver(const CostGraph& graph, const SolveOptions& options) : graph_(graph), options_(options) {
    if (options.time_limit) {
      const auto limit = std::chrono::duration_cast<Clock::duration>(
          std::chrono::duration<double>(std::max(0.0, *options.time_limit - kReserve)));
      end_ = options.start + limit;
    }
  }

  CostGraphSolution run() {
    reduce_graph();
    if (!result_done_) {
      core_ = std::make_unique<Core>(reduced_.problem);
      search();
    }
    return finish();
  }

 private:
  double seconds() const {
    return std::chrono::duration<double>(Clock::now() - options_.start).count();
  }
  bool over() const {
    return (end_ && Clock::now() >= *end_) || (options_.stop && options_.stop());
  }

  void reduce_graph() {
    const double before = seconds();
    BackMap back;
    Problem problem = to_problem(graph_, back);
    reduced_ = reduce(std::move(problem), [this] { return over(); });
    CostGraphSolution::Phases& phases = result_.phases;
    phases.reduce_seconds = seconds() - before;
    phases.free_nodes = reduced_.problem.nodes.size();
    phases.free_edges = reduced_.problem.edges.size();
    phases.moments = reduced_.problem.room.size();
    if (reduced_.impossible) {
      result_.status = CostGraphSolution::Status::kImpossible;
      result_.no_allowed = reduced_.impossible->forbidden;
      if (!result_.no_allowed) {
        result_.least_usage = reduced_.impossible->least_usage;
        result_.tightest_moment = reduced_.impossible->moment;
      }
      result_done_ = true;
    }
  }

  // ---- the search on the core ----

  void search() {
    cost_tolerance_ = reduced_.problem.cost_tolerance;
    usage_tolerance_ = reduced_.problem.usage_tolerance;
    make_workers();
    const Core& core = *core_;
    if (core.nodes() == 0) {
      bound_ = core.constant();
      submit({Labels(), core.constant(), core.usage_of(Labels())});
      return;
    }
    if (core.moments() == 0 && solve_without_limit()) return;
    prices_ = std::make_unique<Prices>(core);
    Budget budget(
        std::max(kStartRounds * kRoundWork, kStartPasses * prices_->work()), end_, &options_.stop);
    if (!over()) start(budget);
    if (shared_.elites.empty() && !over()) prove_impossible();
    if (result_done_ || over()) return;
    if (static_cast<double>(core.strategies()) <= kTinyCore) {
      Budget first(kRoundWork / 4, end_, &options_.stop);
      climb(first);
      raise_bound(prices_->best_bound());
      try_exact(kRoundWork);
    }
    if (!result_done_) rounds();
  }

  void make_workers() {
    for (const auto& worker : workers_) {
      result_.phases.blocks += worker->blocks();
      result_.phases.improvements += worker->improvements();
    }
    workers_.clear();
    for (std::uint64_t w = 0; w < worker_count(); ++w) {
      const std::uint64_t seed = 1000003 * w + 7919 * backs_.size() + 1;
      workers_.push_back(
          std::make_unique<Worker>(*core_, options_.seed * 0x9E3779B97F4A7C15U + seed));
    }
  }

  std::size_t worker_count() const {
    // the number of workers is part of the result, the number of threads is not
    return options_.time_limit ? std::max<std::size_t>(2, options_.threads) : 2;
  }

  void submit(const Solution& solution) {
    if (assignment_.empty()) result_.phases.first_feasible_seconds = seconds();
    const bool better = solution.cost < shared_.incumbent || assignment_.empty();
    shared_.offer(solution);
    if (!better) return;
    shared_.incumbent = solution.cost;
    std::vector<int> labels = solution.labels;
    for (std::size_t b = backs_.size(); b-- > 0;) labels = backs_[b].expand(labels);
    assignment_ = reduced_.back.expand(labels);
    report();
  }

  void report() {
    if (!options_.progress) return;
    CostGraphProgress progress;
    progress.seconds = seconds();
    if (std::isfinite(shared_.incumbent)) progress.cost = shared_.incumbent;
    if (std::isfinite(bound_)) progress.lower_bound = bound_;
    options_.progress(progress);
  }

  void raise_bound(double bound) {
    // costs are whole numbers; a core that was shrunk has only what is better than the incumbent
    const double whole = std::min(std::ceil(bound - 1e-6), shared_.incumbent);
    if (whole > bound_) bound_ = whole;
  }
  bool proven() const { return bound_ >= shared_.best_cost(); }

  /// Elimination of everything, where the tables allow it.
  bool solve_without_limit() {
    const Core& core = *core_;
    std::vector<int> all(static_cast<std::size_t>(core.nodes()));
    for (std::size_t v = 0; v < all.size(); ++v) all[v] = static_cast<int>(v);
    BlockWorkspace workspace;
    const BlockPlan plan(core, all, kCompleteTables, 0, workers_[0]->random(), workspace);
    if (!plan.complete() || plan.work() > 16 * kCompleteTables) return false;
    Labels labels(all.size(), 0);
    plan.run(core, core.costs(), labels, workspace);
    const double cost = core.cost_of(labels);
    if (cost >= core.big() / 2) {
      if (std::isfinite(shared_.incumbent)) {
        bound_ = shared_.incumbent;
        return true;
      }
      result_.no_allowed = true;
      result_.status = CostGraphSolution::Status::kImpossible;
      result_done_ = true;
      return true;
    }
    submit({labels, cost, core.usage_of(labels)});
    bound_ = shared_.incumbent;
    return true;
  }

  /// Equal prices at all moments, raised until the labelling fits, then halved towards the edge.
  void start(Budget& budget) {
    const Core& core = *core_;
    Worker& worker = *workers_[0];
    Prices& prices = *prices_;
    const auto moments = static_cast<std::size_t>(core.moments());
    const auto attempt = [&](double price, int passes, bool repair) {
      prices.set(std::vector<double>(moments, price));
      for (int pass = 0; pass < passes && !budget.over(); ++pass) {
        prices.bound();
        budget.spend(prices.work());
      }
      if (budget.over()) return false;
      raise_bound(prices.best_bound());
      Labels labels = prices.labels();
      worker.polish(prices.theta(), labels, budget);
      std::vector<double> usage = core.usage_of(labels);
      const double cost = core.cost_of(labels);
      const bool allowed = cost < core.big() / 2;
      if (allowed && core.fits(usage)) {
        submit({std::move(labels), cost, std::move(usage)});
        return true;
      }
      if (repair && allowed) {
        if (auto solution = worker.repair(prices.prices(), std::move(labels), 20, budget))
          submit(std::move(*solution));
      }
      return false;
    };
    if (attempt(0, 4, false) || budget.over()) return;
    const std::vector<double> usage = core.usage_of(prices.labels());
    double overflow = 0;
    for (std::size_t t = 0; t < moments; ++t) overflow += std::max(0.0, usage[t] - core.room()[t]);
    if (overflow == 0) return;
    double price = 0.5 * std::max(1.0, std::abs(prices.best_bound())) / overflow;
    double below = 0;
    bool fits = false;
    for (int growth = 0; growth < kStartGrowths && !budget.over(); ++growth) {
      fits = attempt(price, 2, growth >= 6);
      if (fits || !shared_.elites.empty()) break;
      below = price;
      price *= 4;
    }
    for (int i = 0; i < 2 && fits && below > 0 && !budget.over(); ++i) {
      const double middle = std::sqrt(below * price);
      if (attempt(middle, 2, true)) {
        price = middle;
      } else {
        below = middle;
      }
    }
    // few moments bind in the end: climbing from nothing finds them sooner than equal prices lose
    // the others; the search goes by equal prices until then
    start_prices_.assign(moments, below > 0 ? below : price);
    prices.set(start_prices_);
    for (int pass = 0; pass < 4 && !budget.over(); ++pass) prices.bound();
    start_bound_ = prices.center_bound();
    prices.set(std::vector<double>(moments, 0));
  }

  /// Moments that are exceeded count ever more (fictitious play). Whatever they count, no labelling
  /// exceeds the limit by less than the least weighted excess over the sum of the weights.
  void prove_impossible() {
    Problem memory;
    memory.nodes = reduced_.problem.nodes;
    memory.edges = reduced_.problem.edges;
    memory.room = reduced_.problem.room;
    const auto to_memory = [](std::vector<double>& costs) {
      for (double& cost : costs) cost = cost == kForbidden ? kForbidden : 0;
    };
    for (Problem::Node& node : memory.nodes) to_memory(node.costs);
    for (Problem::Edge& edge : memory.edges) {
      CostTable table = reduced_.problem.pool.table(edge.table);
      to_memory(table.costs);
      edge.table = memory.pool.add(table.rows, table.columns, table.costs);
    }
    const Core core(memory);
    Prices prices(core);
    if (core.moments() == 0) return;
    prices.bound();
    std::vector<double> weights(static_cast<std::size_t>(core.moments()), 0);
    std::size_t moment = 0;
    Budget budget(4 * kRoundWork, end_, &options_.stop);
    for (int round = 1; round <= kMostBalances && !budget.over(); ++round) {
      const std::vector<double> usage = core.usage_of(prices.labels());
      double worst = -std::numeric_limits<double>::infinity();
      for (std::size_t t = 0; t < usage.size(); ++t) {
        const double excess = usage[t] - core.room()[t];
        if (excess <= worst) continue;
        worst = excess;
        moment = t;
      }
      weights[moment] += 1;
      prices.set(weights);
      for (int pass = 0; pass < 4 && !budget.over(); ++pass) {
        const double excess = prices.bound() / round;
        budget.spend(prices.work());
        if (excess <= reduced_.problem.usage_tolerance) continue;
        result_.status = CostGraphSolution::Status::kImpossible;
        result_.least_usage =
            reduced_.problem.limit + std::ceil(excess - reduced_.problem.usage_tolerance - 1e-6);
        result_.tightest_moment = reduced_.problem.when[moment];
        result_done_ = true;
        return;
      }
    }
  }

  /// Workers side by side, round by round.
  void rounds() {
    const bool timed = options_.time_limit.has_value();
    for (std::int64_t round = 0; !over() && !proven(); ++round) {
      if ((!timed || options_.iterations_given) && round >= options_.iterations) break;
      if (!timed && !options_.iterations_given && stands_still(round)) {
        try_exact(kLastExactRounds * kRoundWork);
        break;
      }
      ++result_.phases.rounds;
      share_prices();
      const double work = timed ? std::numeric_limits<double>::infinity() : kRoundWork;
      const auto run_worker = [&](std::size_t w) {
        std::optional<Clock::time_point> round_end = end_;
        if (timed) {
          const auto slice = std::chrono::duration<double>(kRoundSeconds);
          round_end =
              std::min(*end_, Clock::now() + std::chrono::duration_cast<Clock::duration>(slice));
        }
        Budget budget(work, round_end, &options_.stop);
        if (w == 0 && price_turn(round)) {
          climb(budget);
        } else if (w == 0 && !searched_along_) {
          searched_along_ = true;
          if (prices_->work() < kMostAlongWork)
            prices_->search_along(kMostAlong, [this] { return over(); });
        } else {
          workers_[w]->improve(shared_, budget);
        }
      };
      in_parallel(workers_.size(), options_.threads, run_worker);
      for (const auto& worker : workers_) {
        for (Solution& solution : worker->take_found()) submit(std::move(solution));
      }
      raise_bound(prices_->best_bound());
      // complete search, each time with more of what is left
      const auto turn = std::find(std::begin(kExactRounds), std::end(kExactRounds), round);
      if (turn != std::end(kExactRounds)) {
        const auto number = turn - std::begin(kExactRounds);
        try_exact(std::max(8.0, static_cast<double>(round)) * kRoundWork, kExactShares[number]);
        if (result_done_) return;
      }
      if (round == 6 || round == 20 || round == 50 || round == 100 || round == 180) shrink();
      report();
    }
  }

  /// Whether neither cost nor bound has moved for so many rounds that more are not worth it; the
  /// smaller the graph, the fewer.
  bool stands_still(std::int64_t round) {
    const double nodes = static_cast<double>(core_->nodes());
    const auto patience = static_cast<std::int64_t>(std::max(kLeastPatience, nodes / 4));
    const double worth = kWorthARound * std::max(1.0, std::abs(bound_));
    if (shared_.best_cost() < cost_at_gain_ || bound_ > bound_at_gain_ + worth) {
      cost_at_gain_ = shared_.best_cost();
      bound_at_gain_ = bound_;
      last_gain_ = round;
    }
    return round - last_gain_ >= (shared_.elites.empty() ? 4 * patience : patience);
  }

  void share_prices() {
    shared_.prices = prices_->center_bound() < start_bound_ ? start_prices_ : prices_->center();
  }

  /// Whether the first worker works on the prices in this round.
  bool price_turn(std::int64_t round) const {
    if (shared_.elites.empty()) return true;
    if (prices_->converged()) return false;
    double done = 0;
    if (end_) {
      const double all = *options_.time_limit;
      done = seconds() / all;
    } else {
      done = static_cast<double>(round) / static_cast<double>(options_.iterations);
    }
    return done < kPriceShare;
  }

  void climb(Budget& budget) {
    Prices& prices = *prices_;
    Worker& worker = *workers_[0];
    do {
      prices.bound();
      const double best = shared_.best_cost();
      const double level = prices.best_bound();
      // a first solution may cost many times the best: steps towards it would be far too long
      const double target = std::min(best, level + kAhead * std::max(1.0, std::abs(level)));
      if (repair_work_ <= kRepairShare * pass_work_) {
        const double before = budget.spent();
        if (auto solution = worker.repair(prices.prices(), prices.labels(), 12, budget))
          worker.found(std::move(*solution));
        repair_work_ += budget.spent() - before;
      }
      prices.climb(target);
      ++price_steps_;
      budget.spend(prices.work());
      pass_work_ += prices.work();
    } while (!budget.over() && !prices.converged());
  }

  /// Complete search with so much work, or such a share of the time limit, where the core is small.
  void try_exact(double work, double share = 0.02) {
    if (static_cast<double>(core_->strategies()) > kSmallCore || proven()) return;
    std::optional<Clock::time_point> end = end_;
    if (end) {
      const double limit = *options_.time_limit;
      const auto most =
          std::chrono::duration<double>(std::max(share * limit, std::min(1.0, 0.1 * limit)));
      end = std::min(*end, Clock::now() + std::chrono::duration_cast<Clock::duration>(most));
    }
    Budget budget(end ? std::numeric_limits<double>::infinity() : work, end, &options_.stop);
    const ExactOutcome outcome =
        search_all(reduced_.problem, prices_->center(), shared_.best_cost(), budget);
    if (outcome.solution) submit(*outcome.solution);
    if (!outcome.complete) return;
    if (!std::isfinite(shared_.incumbent)) {
      if (usage_tolerance_ > 0) return;
      result_.status = CostGraphSolution::Status::kImpossible;
      result_done_ = true;
    } else {
      bound_ = shared_.best_cost();
    }
  }

  /// Drops the strategies that nothing better than the incumbent can use, and reduces again.
  void shrink() {
    if (!std::isfinite(shared_.incumbent) || over() || proven() || cost_tolerance_ > 0) return;
    const std::vector<double> bounds = prices_->strategy_bounds();
    const double most = shared_.incumbent - 1 + 1e-6;
    const Problem& old = reduced_.problem;
    const auto dropped =
        std::count_if(bounds.begin(), bounds.end(), [&](double bound) { return bound > most; });
    if (static_cast<double>(dropped) < kWorthShrinking * static_cast<double>(bounds.size())) return;
    std::vector<std::vector<int>> kept(old.nodes.size());
    for (std::size_t v = 0; v < old.nodes.size(); ++v) {
      const double* bound = bounds.data() + core_->first(static_cast<int>(v));
      for (int s = 0; s < core_->size(static_cast<int>(v)); ++s) {
        if (bound[s] <= most) kept[v].push_back(s);
      }
      if (kept[v].empty()) {
        bound_ = shared_.incumbent;
        return;
      }
    }
    BackMap filter;
    Problem rest = restricted(old, kept, filter);
    Reduced made = reduce(std::move(rest), [this] { return over(); });
    if (made.impossible) {  // nothing better is left
      if (usage_tolerance_ == 0) bound_ = shared_.incumbent;
      return;
    }
    go_on_with(std::move(made), std::move(filter), kept);
  }

  void go_on_with(Reduced made, BackMap filter, const std::vector<std::vector<int>>& kept) {
    const std::vector<double> prices = prices_of(made.problem, prices_->center(), reduced_.problem);
    const auto position = [](const std::vector<int>& list, int value) {
      const auto found = std::find(list.begin(), list.end(), value);
      return found == list.end() ? -1 : static_cast<int>(found - list.begin());
    };
    std::vector<Labels> mapped;
    for (const Solution& elite : shared_.elites) {
      Labels labels;
      for (const auto& [node, strategies] : made.back.remaining()) {
        const auto at = static_cast<std::size_t>(node);
        const int in_kept = position(kept[at], elite.labels[at]);
        const int label = in_kept < 0 ? -1 : position(strategies, in_kept);
        if (label < 0) break;
        labels.push_back(label);
      }
      if (labels.size() == made.back.remaining().size()) mapped.push_back(std::move(labels));
    }
    backs_.push_back(std::move(filter));
    backs_.push_back(std::move(made.back));
    reduced_.problem = std::move(made.problem);
    prices_.reset();
    core_ = std::make_unique<Core>(reduced_.problem);
    make_workers();
    shared_.elites.clear();
    for (Labels& labels : mapped) {
      std::vector<double> usage = core_->usage_of(labels);
      const double cost = core_->cost_of(labels);
      if (cost < core_->big() / 2 && core_->fits(usage))
        submit({std::move(labels), cost, std::move(usage)});
    }
    if (core_->nodes() == 0) {
      submit({Labels(), core_->constant(), core_->usage_of(Labels())});
      bound_ = shared_.incumbent;
      return;
    }
    if (core_->moments() == 0 && solve_without_limit()) return;
    prices_ = std::make_unique<Prices>(*core_);
    prices_->set(prices);
    start_bound_ = -std::numeric_limits<double>::infinity();  // the start's moments are gone
    searched_along_ = false;
    for (int pass = 0; pass < 4; ++pass) prices_->bound();
  }

  // ---- the result ----

  CostGraphSolution finish() {
    CostGraphSolution::Phases& phases = result_.phases;
    phases.search_seconds = seconds();
    phases.price_steps = price_steps_;
    for (const auto& worker : workers_) {
      phases.blocks += worker->blocks();
      phases.improvements += worker->improvements();
    }
    if (std::isfinite(bound_))
      result_.lower_bound = static_cast<Int128>(std::floor(bound_ - cost_tolerance_));
    if (!std::isfinite(shared_.incumbent)) return std::move(result_);
    result_.assignment = assignment_;
    result_.assignment.resize(graph_.nodes.size());
    result_.evaluation = evaluate(graph_, result_.assignment);
    // the search's own sums are exact below 2^53; the evaluator has the last word
    if (!result_.evaluation.feasible()) {
      result_.assignment.clear();
      return std::move(result_);
    }
    result_.status = CostGraphSolution::Status::kFeasible;
    if (result_.lower_bound) {
      result_.lower_bound = std::min(*result_.lower_bound, result_.evaluation.cost);
      if (*result_.lower_bound == result_.evaluation.cost)
        result_.status = CostGraphSolution::Status::kOptimal;
      const double cost = static_cast<double>(result_.evaluation.cost);
      if (cost != 0)
        result_.gap =
            static_cast<double>(result_.evaluation.cost - *result_.lower_bound) / std::abs(cost);
    }
    return std::move(result_);
  }

  const CostGraph& graph_;
  const SolveOptions& options_;
  std::optional<Clock::time_point> end_;
  Reduced reduced_;
  std::unique_ptr<Core> core_;
  std::unique_ptr<Prices> prices_;
  std::vector<double> start_prices_;
  double start_bound_ = -std::numeric_limits<double>::infinity();
  std::vector<BackMap> backs_;      ///< of the cores since the first, two each
  CostGraphAssignment assignment_;  ///< the incumbent, of the graph's nodes and those made of edges
  std::vector<std::unique_ptr<Worker>> workers_;
  Shared shared_;
  double bound_ = -std::numeric_limits<double>::infinity();
  double cost_tolerance_ = 0;
  double usage_tolerance_ = 0;
  double cost_at_gain_ = std::numeric_limits<double>::infinity();
  double bound_at_gain_ = -std::numeric_limits<double>::infinity();
  std::int64_t last_gain_ = 0;  ///< round in which one of them moved last
  std::int64_t price_steps_ = 0;
  bool searched_along_ = false;  ///< each price by itself, of this core
  double pass_work_ = 0;         ///< of message passing, and of making labellings fit
  double repair_work_ = 0;
  CostGraphSolution result_;
  bool result_done_ = false;
};

}  // namespace

CostGraphSolution solve_cost_graph(const CostGraph& graph, const SolveOptions& options) {
  return Solver(graph, options).run();
}

}  // namespace meshplan

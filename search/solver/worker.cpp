// SPDX-License-Identifier: Apache-2.0
// Neighbourhood search: take a block of nodes, price memory at about what the best bound says,
// solve the block exactly with all other nodes fixed, and take the result if it fits and costs no
// more. Where it does not fit, the prices at the exceeded moments are raised, where it fits and
// brings nothing, all prices are lowered, a few times.
#include "search/solver/worker.h"

#include <algorithm>
#include <cmath>

#include "search/solver/exact.h"

namespace meshplan::solver {
namespace {

constexpr double kFullPlanWork = 6e6;  ///< entries: 5 to 20 ms
constexpr std::size_t kFullPlans = 6;
constexpr int kAttempts = 6;
constexpr double kLargestBlock = 1200;
constexpr std::int64_t kPatience = 150;  ///< blocks without a gain of kGain, before an escape
constexpr std::size_t kExhausted = 64;   ///< nodes of a block that may be searched to the end
constexpr double kBlockSearch = 2e6;     ///< work in that
constexpr double kGain = 1e-7;           ///< relative

}  // namespace

void Shared::offer(const Solution& solution) {
  const std::size_t nodes = solution.labels.size();
  const auto distance = [&](const Solution& other) {
    std::size_t count = 0;
    for (std::size_t v = 0; v < nodes; ++v)
      count += solution.labels[v] != other.labels[v] ? 1U : 0U;
    return count;
  };
  const std::size_t near = nodes / 200;
  for (std::size_t i = 0; i < elites.size(); ++i) {
    if (distance(elites[i]) > near) continue;
    if (elites[i].cost <= solution.cost) return;
    elites.erase(elites.begin() + static_cast<std::ptrdiff_t>(i));
    break;
  }
  const auto place =
      std::upper_bound(elites.begin(), elites.end(), solution, [](const auto& a, const auto& b) {
        return a.cost < b.cost;
      });
  elites.insert(place, solution);
  if (elites.size() > kMostElites) elites.pop_back();
}

Worker::Worker(const Core& core, std::uint64_t seed)
    : core_(core),
      random_(seed),
      change_(static_cast<std::size_t>(core.moments()) + 1, 0),
      inside_(static_cast<std::size_t>(core.nodes()), 0) {
  workspace_.local.assign(static_cast<std::size_t>(core.nodes()), -1);
  theta_.resize(core.strategies());
}

std::vector<Solution> Worker::take_found() { return std::exchange(found_, {}); }

void Worker::found(Solution solution) {
  if (solution.cost < current_.cost) current_ = solution;
  found_.push_back(std::move(solution));
}

const BlockPlan& Worker::full_plan(Budget& budget) {
  // a new plan when the known ones have been used often enough to pay for it
  ++runs_;
  if (plans_.size() == kFullPlans || (!plans_.empty() && runs_ < 12 * plans_.size()))
    return plans_[next_plan_++ % plans_.size()];
  std::vector<int> all(static_cast<std::size_t>(core_.nodes()));
  for (std::size_t v = 0; v < all.size(); ++v) all[v] = static_cast<int>(v);
  // one cap may be too small and the next one too large: once too large, it only shrinks
  bool may_grow = plans_.empty();
  while (true) {
    BlockPlan plan(core_, all, plan_cap_, plans_.empty() ? 0 : 2, random_, workspace_);
    budget.spend(plan.cost_to_make());
    const bool large = plan.work() > 4 * kFullPlanWork && plan_cap_ > 64;
    const bool small =
        may_grow && plan.work() < kFullPlanWork / 8 && !plan.complete() && plan_cap_ < 1 << 22;
    if (large) {
      plan_cap_ /= 4;
      may_grow = false;
    }
    if (small) plan_cap_ *= 4;
    if ((large || small) && !budget.over()) continue;
    plans_.push_back(std::move(plan));
    return plans_.back();
  }
}

void Worker::polish(const std::vector<double>& theta, Labels& labels, Budget& budget) {
  const BlockPlan& plan = full_plan(budget);
  plan.run(core_, theta, labels, workspace_);
  budget.spend(plan.work());
}

std::optional<Solution> Worker::repair(std::vector<double> prices,
                                       Labels labels,
                                       int most_rounds,
                                       Budget& budget) {
  std::vector<double> prefix;
  std::vector<double> theta;
  double mean = 0;
  for (const double price : prices) mean += price;
  mean /= static_cast<double>(std::max<std::size_t>(prices.size(), 1));
  for (int round = 0; round < most_rounds && !budget.over(); ++round) {
    prefix_sums(prices, prefix);
    core_.price(prefix, theta);
    polish(theta, labels, budget);
    std::vector<double> usage = core_.usage_of(labels);
    bool fits = true;
    for (std::size_t t = 0; t < usage.size(); ++t) {
      if (usage[t] <= core_.room()[t]) continue;
      fits = false;
      prices[t] = 1.3 * prices[t] + 0.03 * mean;
    }
    budget.spend(4 * static_cast<double>(usage.size() + core_.strategies()));
    if (!fits) continue;
    const double cost = core_.cost_of(labels);
    if (cost >= core_.big() / 2) return std::nullopt;
    return Solution{std::move(labels), cost, std::move(usage)};
  }
  return std::nullopt;
}

void Worker::choose_start(const Shared& shared) {
  if (shared.elites.empty()) return;
  const double best = shared.best_cost();
  if (current_.labels.empty() || current_.cost > best + 0.02 * std::abs(best)) {
    current_ = shared.elites.front();
    since_better_ = 0;
    shakes_ = 0;
  }
}

void Worker::escape(const Shared& shared) {
  since_better_ = 0;
  const int where = random_.below(100);
  if (where < 55 || shared.elites.empty()) {
    const bool own = shared.elites.empty() || best_.cost <= shared.elites.front().cost;
    current_ = own ? best_ : shared.elites.front();
  } else if (where < 80) {
    current_ = shared.elites[static_cast<std::size_t>(
        random_.below(static_cast<int>(shared.elites.size())))];
  }
  shakes_ = 4 + random_.below(30);
  const double loss = std::pow(10.0, -2.2 - 3.0 * random_.unit());
  allowed_ = current_.cost + loss * std::abs(current_.cost);
}

void Worker::grow_region(std::vector<int>& block, std::size_t size) {
  // `block` is the seed; inside_ marks what is in it
  for (std::size_t done = 0; done < block.size() && block.size() < size;) {
    // a random one of the nodes that are not finished
    const std::size_t pick =
        done + static_cast<std::size_t>(
                   random_.below(static_cast<int>(std::min<std::size_t>(block.size() - done, 8))));
    std::swap(block[done], block[pick]);
    const auto links = core_.links(block[done++]);
    const std::size_t count = links.size();
    const std::size_t most = 24;  // of a hub only some
    const std::size_t begin =
        count > most ? static_cast<std::size_t>(random_.below(static_cast<int>(count))) : 0;
    for (std::size_t i = 0; i < std::min(count, most) && block.size() < size; ++i) {
      const int u = links[(begin + i) % count].node;
      char& mark = inside_[static_cast<std::size_t>(u)];
      if (mark != 0) continue;
      mark = 1;
      block.push_back(u);
    }
  }
}

std::vector<int> Worker::choose_block(const Shared& shared, int kind, int size) {
  std::vector<int> block;
  const auto add = [&](int v) {
    char& mark = inside_[static_cast<std::size_t>(v)];
    if (mark != 0) return;
    mark = 1;
    block.push_back(v);
  };
  const int nodes = core_.nodes();
  const auto wanted = static_cast<std::size_t>(size);
  if (kind == kTight && core_.moments() > 0) {
    // of a few moments the one with the least room left
    int moment = 0;
    double least = std::numeric_limits<double>::infinity();
    for (int i = 0; i < 4; ++i) {
      const int t = random_.below(core_.moments());
      const auto at = static_cast<std::size_t>(t);
      const double left = core_.room()[at] - current_.usage[at];
      if (left < least) {
        least = left;
        moment = t;
      }
    }
    std::vector<int> alive;
    for (int v = 0; v < nodes; ++v) {
      for (const Core::CoreUse& use : core_.uses(v)) {
        if (use.begin > moment || use.end <= moment) continue;
        alive.push_back(v);
        break;
      }
    }
    for (std::size_t i = 0; i < alive.size() && block.size() < (wanted + 1) / 2; ++i) {
      const std::size_t j =
          i + static_cast<std::size_t>(random_.below(static_cast<int>(alive.size() - i)));
      std::swap(alive[i], alive[j]);
      add(alive[i]);
    }
  } else if (kind == kDifference && shared.elites.size() > 1) {
    const Solution& other = shared.elites[static_cast<std::size_t>(
        random_.below(static_cast<int>(shared.elites.size())))];
    std::vector<int> different;
    for (int v = 0; v < nodes; ++v) {
      if (other.labels[static_cast<std::size_t>(v)] != current_.labels[static_cast<std::size_t>(v)])
        different.push_back(v);
    }
    const std::size_t most = std::max<std::size_t>(wanted, 200);
    const std::size_t begin =
        different.size() > most
            ? static_cast<std::size_t>(random_.below(static_cast<int>(different.size() - most)))
            : 0;
    for (std::size_t i = begin; i < different.size() && block.size() < most; ++i) add(different[i]);
    grow_region(block, block.size() + block.size() / 2);
  } else if (kind == kWindow) {
    const int begin = random_.below(std::max(1, nodes - size));
    for (int v = begin; v < std::min(nodes, begin + size); ++v) add(v);
  }
  if (block.empty()) add(random_.below(nodes));
  grow_region(block, wanted);
  for (const int v : block) inside_[static_cast<std::size_t>(v)] = 0;
  return block;
}

double Worker::local_cost(const std::vector<int>& block) const {
  double sum = 0;
  for (const int v : block) {
    const auto own = static_cast<std::size_t>(current_.labels[static_cast<std::size_t>(v)]);
    sum += core_.costs(v)[own];
    for (const Core::Link& link : core_.links(v)) {
      if (inside_[static_cast<std::size_t>(link.node)] != 0 && link.node < v) continue;
      sum +=
          link.rows[own * static_cast<std::size_t>(core_.size(link.node)) +
                    static_cast<std::size_t>(current_.labels[static_cast<std::size_t>(link.node)])];
    }
  }
  return sum;
}

void Worker::draw_prices(const Shared& shared) {
  const std::size_t moments = shared.prices.size();
  prices_ = shared.prices;
  const double global = std::exp(0.8 * (random_.unit() - 0.6));
  const int segments = 1 + random_.below(random_.below(4) == 0 ? 40 : 8);
  const double spread = random_.below(3) == 0 ? 3.0 : 0.8;
  double factor = global;
  std::size_t next = 0;
  for (std::size_t t = 0; t < moments; ++t) {
    if (t == next) {
      factor = global * std::exp(spread * (random_.unit() - 0.5));
      next = t + 1 +
             static_cast<std::size_t>(random_.unit() * 2 * static_cast<double>(moments) / segments);
    }
    prices_[t] *= factor;
  }
}

bool Worker::change_fits(const std::vector<int>& block, const Labels& before) {
  std::fill(change_.begin(), change_.end(), 0.0);
  for (std::size_t i = 0; i < block.size(); ++i) {
    const int v = block[i];
    const int now = current_.labels[static_cast<std::size_t>(v)];
    if (now == before[i]) continue;
    for (const Core::CoreUse& use : core_.uses(v)) {
      const double more = use.usage[now] - use.usage[before[i]];
      change_[static_cast<std::size_t>(use.begin)] += more;
      change_[static_cast<std::size_t>(use.end)] -= more;
    }
  }
  bool fits = true;
  double sum = 0;
  const std::size_t moments = current_.usage.size();
  for (std::size_t t = 0; t < moments; ++t) {
    sum += change_[t];
    change_[t] = sum;
    fits = fits && current_.usage[t] + sum <= core_.room()[t];
  }
  return fits;
}

void Worker::accept(double gain) {
  for (std::size_t t = 0; t < current_.usage.size(); ++t) current_.usage[t] += change_[t];
  current_.cost -= gain;
  if (gain > kGain * std::abs(current_.cost)) since_better_ = 0;
  if (current_.cost < best_.cost) {
    ++improvements_;
    best_ = current_;
  }
}

Problem Worker::problem_of(const std::vector<int>& block) {
  Problem problem;
  std::vector<int> place(block.size());
  for (std::size_t i = 0; i < block.size(); ++i)
    workspace_.local[static_cast<std::size_t>(block[i])] = static_cast<int>(i);
  const auto allowed = [&](double cost) { return cost < core_.big() / 2 ? cost : kForbidden; };
  std::vector<double> table;
  std::fill(change_.begin(), change_.end(), 0.0);
  for (std::size_t i = 0; i < block.size(); ++i) {
    const int v = block[i];
    const auto size = static_cast<std::size_t>(core_.size(v));
    const auto label = static_cast<std::size_t>(current_.labels[static_cast<std::size_t>(v)]);
    Problem::Node node{{core_.costs(v), core_.costs(v) + size}, {}};
    for (const Core::Link& link : core_.links(v)) {
      const int other = workspace_.local[static_cast<std::size_t>(link.node)];
      if (other < 0) {
        const double* column =
            link.columns +
            static_cast<std::size_t>(current_.labels[static_cast<std::size_t>(link.node)]) * size;
        for (std::size_t s = 0; s < size; ++s) node.costs[s] += column[s];
      } else if (link.node > v) {
        const auto columns = static_cast<std::size_t>(core_.size(link.node));
        table.clear();
        for (std::size_t e = 0; e < size * columns; ++e) table.push_back(allowed(link.rows[e]));
        problem.edges.push_back({static_cast<int>(i),
                                 other,
                                 problem.pool.add(core_.size(v), core_.size(link.node), table)});
      }
    }
    for (double& cost : node.costs) cost = allowed(cost);
    for (const Core::CoreUse& use : core_.uses(v)) {
      node.uses.push_back({use.begin, use.end, {use.usage, use.usage + size}});
      change_[static_cast<std::size_t>(use.begin)] += use.usage[label];
      change_[static_cast<std::size_t>(use.end)] -= use.usage[label];
    }
    problem.nodes.push_back(std::move(node));
  }
  for (const int v : block) workspace_.local[static_cast<std::size_t>(v)] = -1;
  double used = 0;
  for (std::size_t t = 0; t < current_.usage.size(); ++t) {
    used += change_[t];
    problem.room.push_back(core_.room()[t] - current_.usage[t] + used);
    problem.when.push_back(static_cast<std::int64_t>(t));
  }
  return problem;
}

void Worker::exhaust_block(const Shared& shared, const std::vector<int>& block, Budget& budget) {
  ++blocks_;
  const Problem problem = problem_of(block);
  for (const int v : block) inside_[static_cast<std::size_t>(v)] = 1;
  const double cost_before = local_cost(block);
  for (const int v : block) inside_[static_cast<std::size_t>(v)] = 0;
  Budget some = budget.part(kBlockSearch);
  const ExactOutcome outcome = search_all(problem, shared.prices, cost_before, some);
  budget.spend(some.spent());
  if (!outcome.solution) return;
  Labels before;
  for (std::size_t i = 0; i < block.size(); ++i)
    before.push_back(std::exchange(current_.labels[static_cast<std::size_t>(block[i])],
                                   outcome.solution->labels[i]));
  if (change_fits(block, before)) {
    accept(cost_before - outcome.solution->cost);
  } else {
    for (std::size_t i = 0; i < block.size(); ++i)
      current_.labels[static_cast<std::size_t>(block[i])] = before[i];
  }
}

void Worker::try_block(const Shared& shared, const std::vector<int>& block, Budget& budget) {
  ++blocks_;
  for (const int v : block) inside_[static_cast<std::size_t>(v)] = 1;
  double cap = block.size() <= 64 ? 1 << 15 : 1 << 12;
  std::optional<BlockPlan> plan;
  while (true) {
    plan.emplace(core_, block, cap, 1, random_, workspace_);
    budget.spend(plan->cost_to_make());
    if (plan->work() < 2e6 || cap <= 64) break;
    cap /= 8;
  }
  draw_prices(shared);
  const double moments = static_cast<double>(core_.moments());
  double mean = 0;
  for (const double price : shared.prices) mean += price;
  if (moments > 0) mean /= moments;
  Labels before;
  for (const int v : block) before.push_back(current_.labels[static_cast<std::size_t>(v)]);
  const double cost_before = local_cost(block);
  bool was_infeasible = false;
  for (int attempt = 0; attempt < kAttempts && !budget.over(); ++attempt) {
    prefix_sums(prices_, prefix_);
    for (const int v : block) core_.price_node(v, prefix_, theta_.data() + core_.first(v));
    plan->run(core_, theta_, current_.labels, workspace_);
    const bool fits = change_fits(block, before);
    budget.spend(plan->work() + 3 * moments);
    if (fits) {
      const double gain = cost_before - local_cost(block);
      bool changed = false;
      for (std::size_t i = 0; i < block.size() && !changed; ++i)
        changed = current_.labels[static_cast<std::size_t>(block[i])] != before[i];
      const bool shaken = shakes_ > 0 && current_.cost - gain <= allowed_;
      if (changed && (gain >= 0 || shaken)) {
        accept(gain);
        break;
      }
    }
    for (std::size_t i = 0; i < block.size(); ++i)
      current_.labels[static_cast<std::size_t>(block[i])] = before[i];
    if (fits) {
      if (was_infeasible) break;
      for (double& price : prices_) price *= 0.6;
    } else {
      was_infeasible = true;
      for (std::size_t t = 0; t < current_.usage.size(); ++t) {
        if (current_.usage[t] + change_[t] > core_.room()[t])
          prices_[t] = 1.6 * prices_[t] + 0.1 * mean;
      }
    }
  }
  for (const int v : block) inside_[static_cast<std::size_t>(v)] = 0;
}

void Worker::improve(const Shared& shared, Budget& budget) {
  choose_start(shared);
  if (current_.labels.empty() || core_.nodes() == 0) return;
  if (best_.labels.empty() || current_.cost < best_.cost) best_ = current_;
  const double before = best_.cost;
  const double largest = std::min(kLargestBlock, static_cast<double>(core_.nodes()));
  while (!budget.over()) {
    if (since_better_ > kPatience) escape(shared);
    const int kind = random_.below(kKinds);
    const double size = 8 * std::exp(random_.unit() * std::log(std::max(1.0, largest / 8)));
    const std::vector<int> block = choose_block(shared, kind, static_cast<int>(size));
    budget.spend(8 * static_cast<double>(block.size()) + core_.nodes());
    if (shakes_ > 0) {
      --shakes_;
    } else {
      ++since_better_;
    }
    if (shakes_ == 0 && block.size() <= kExhausted && random_.below(2) == 0) {
      exhaust_block(shared, block, budget);
    } else {
      try_block(shared, block, budget);
    }
  }
  if (best_.cost < before || before > shared.best_cost()) found_.push_back(best_);
  // good but different ones are worth knowing
  if (shakes_ == 0 && current_.cost > best_.cost &&
      current_.cost < best_.cost + 0.01 * std::abs(best_.cost))
    found_.push_back(current_);
}

}  // namespace meshplan::solver

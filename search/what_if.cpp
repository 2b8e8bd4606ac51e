// SPDX-License-Identifier: Apache-2.0
// Every point of the grid is one dp_search; what follows is about not doing the same work twice.
//
// Points with the same cluster, number of devices and batch form a group: they have the same
// graphs, meshes and strategies and differ in the memory limit and in the network's bandwidth. In a
// group the limits are walked from the largest to the smallest:
//
//   * The best plan under a limit stays the best under a smaller one that it fits: what fits the
//     smaller limit fits the larger one as well, so the larger one's lower bound holds too.
//   * The least memory that any plan needs depends on no price. Once it is proven that nothing fits
//     a limit, the proof holds for every smaller limit on every network, and for the same limit on
//     the other networks.
//
// Graphs are resolved, and their data flow is found, once per batch and not once per point. Nothing
// passes from one group to another: that is why a sweep can be split over machines by groups and
// joined again without a byte of difference. Groups run in parallel, the largest machines, whose
// searches take longest, first; threads beyond the number of groups work inside the searches.
//
// Cost: at most one search per point. What it cannot do: use the plan of one machine as the start
// for another one; the answer would then depend on how the sweep is split.
#include "search/what_if.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <numeric>
#include <tuple>
#include <utility>

#include "lib/check.h"
#include "plan/build_plan.h"
#include "search/axis_roles.h"
#include "search/in_parallel.h"

namespace meshplan {
namespace {

using Flows = std::vector<std::shared_ptr<const DataFlow>>;

void change_network(const NetworkChange& change, Cluster& cluster) {
  for (Level& level : cluster.levels) {
    if (!change.level || *change.level == level.name) level.scale_bandwidth(change.factor);
  }
}

WhatIfPlan figures_of(DpResult& found, std::int64_t microbatches) {
  WhatIfPlan made;
  made.mesh.shape = found.mesh.shape;
  made.mesh.roles = axis_roles(*found.book, found.assignment);
  made.mesh.axes = axis_names(made.mesh.roles);
  made.microbatches = microbatches;
  made.objective = found.evaluation.objective;
  made.lower_bound = {found.lower_bound};
  made.cost = plan_cost(*found.book, found.evaluation);
  made.peak = found.evaluation.peak;
  return made;
}

/// Plans all points of one group.
class GroupSearch {
 public:
  GroupSearch(const WhatIfSweep& sweep,
              const WhatIfGrid& grid,
              const WhatIfPlace& group,
              const Flows& flows,
              unsigned threads)
      : sweep_(sweep),
        grid_(grid),
        group_(group),
        batch_(sweep.batches[group.batch]),
        flows_(flows),
        options_(sweep.search),
        machine_(machine_of(sweep, group)) {
    options_.threads = threads;
    options_.prices.recomputation = batch_.recomputation;
  }

  /// Fills the points of the group; `points` has all of the grid.
  template <class Done>
  void run(std::vector<WhatIfPoint>& points, const Done& done) {
    std::vector<std::size_t> memory(grid_.sizes.memory);
    std::iota(memory.begin(), memory.end(), std::size_t{0});
    std::stable_sort(memory.begin(), memory.end(), [&](std::size_t a, std::size_t b) {
      return bytes_of(a) > bytes_of(b);
    });
    last_.resize(grid_.sizes.network);
    for (const std::size_t m : memory) {
      for (std::size_t n = 0; n < grid_.sizes.network; ++n) {
        WhatIfPlace place = group_;
        place.memory = m;
        place.network = n;
        WhatIfPoint& point = points[grid_.point(place)];
        point.place = place;
        fill(point);
        done();
      }
    }
  }

 private:
  Bytes bytes_of(std::size_t memory) const {
    return sweep_.memory[memory].value_or(sweep_.clusters[group_.cluster].device.memory);
  }

  void fill(WhatIfPoint& point) {
    const Cluster& cluster = sweep_.clusters[group_.cluster];
    point.devices = sweep_.devices[group_.devices].value_or(cluster.devices());
    point.batch = batch_.size;
    point.memory = bytes_of(point.place.memory);
    if (!machine_) {
      point.reason = machine_.error().message;
      return;
    }
    Cluster machine = *machine_;
    machine.device.memory = point.memory;
    if (machine.usable_memory() <= 0) {
      point.reason = "the device has " + std::to_string(point.memory) +
                     " bytes of memory, of which the cluster reserves " +
                     std::to_string(machine.device.reserved_memory);
      return;
    }
    point.memory_limit = machine.plan_memory();
    std::optional<WhatIfPoint>& last = last_[point.place.network];
    if (none_ && none_->min_memory > point.memory_limit) {
      take_none(*none_, point);
    } else if (last && last->plan && last->plan->peak <= point.memory_limit) {
      point.status = last->status;
      point.plan = last->plan;
    } else {
      search(machine, point);
    }
    last = point;
  }

  void search(Cluster& machine, WhatIfPoint& point) {
    change_network(sweep_.network[point.place.network], machine);
    options_.memory_limit = point.memory_limit;
    options_.prices.overlap = machine.efficiency.overlap;
    if (sweep_.overlap) sweep_.overlap(options_.prices.overlap);
    std::vector<DpJob> jobs;
    for (std::size_t i = 0; i < batch_.graphs.size(); ++i)
      jobs.push_back({&batch_.graphs[i], batch_.microbatches[i], flows_[i]});
    std::vector<MeshShape> meshes = all_meshes(machine);
    meshes.erase(std::remove_if(meshes.begin(),
                                meshes.end(),
                                [&](const MeshShape& mesh) {
                                  return mesh.shape.size() >
                                         static_cast<std::size_t>(sweep_.mesh_axes);
                                }),
                 meshes.end());
    auto outcome = dp_search(jobs, machine, meshes, options_, sweep_.restrictions);
    if (!outcome) {
      point.reason = outcome.error().message;
      return;
    }
    if (const NoPlan* none = std::get_if<NoPlan>(&*outcome)) {
      if (none->min_memory > 0) none_ = *none;
      return take_none(*none, point);
    }
    auto& found = std::get<DpResult>(*outcome);
    point.status = found.optimal ? WhatIfStatus::kOptimal : WhatIfStatus::kFeasible;
    point.plan = figures_of(found, batch_.microbatches[found.job]);
  }

  static void take_none(const NoPlan& none, WhatIfPoint& point) {
    point.status = WhatIfStatus::kInfeasible;
    if (none.min_memory > 0) point.min_memory = none.min_memory;
    point.moment = none.moment;
  }

  const WhatIfSweep& sweep_;
  const WhatIfGrid& grid_;
  WhatIfPlace group_;
  const WhatIfBatch& batch_;
  const Flows& flows_;
  DpOptions options_;
  Result<Cluster> machine_;
  std::vector<std::optional<WhatIfPoint>> last_;  ///< per network, under the last larger limit
  std::optional<NoPlan> none_;                    ///< with a proof
};

std::size_t groups_of(const WhatIfPlace& sizes) {
  return sizes.cluster * sizes.devices * sizes.batch;
}

}  // namespace

bool WhatIfGrid::countable() const {
  std::size_t points = 1;
  for (const std::size_t size :
       {sizes.cluster, sizes.devices, sizes.batch, sizes.memory, sizes.network}) {
    if (size > kMostWhatIfPoints || points * size > kMostWhatIfPoints) return false;
    points *= size;
  }
  return true;
}

std::size_t WhatIfGrid::points() const { return groups_of(sizes) * sizes.memory * sizes.network; }

WhatIfPlace WhatIfGrid::place(std::size_t point) const {
  WhatIfPlace place;
  for (const auto axis : {&WhatIfPlace::network,
                          &WhatIfPlace::memory,
                          &WhatIfPlace::batch,
                          &WhatIfPlace::devices,
                          &WhatIfPlace::cluster}) {
    place.*axis = point % (sizes.*axis);
    point /= sizes.*axis;
  }
  return place;
}

std::size_t WhatIfGrid::point(const WhatIfPlace& place) const {
  std::size_t point = 0;
  for (const auto axis : {&WhatIfPlace::cluster,
                          &WhatIfPlace::devices,
                          &WhatIfPlace::batch,
                          &WhatIfPlace::memory,
                          &WhatIfPlace::network})
    point = point * (sizes.*axis) + place.*axis;
  return point;
}

std::vector<std::size_t> WhatIfGrid::points_of(const WhatIfShard& shard) const {
  const std::size_t size = sizes.memory * sizes.network;
  std::vector<std::size_t> points;
  for (std::size_t group = shard.index; group < groups_of(sizes); group += shard.count) {
    for (std::size_t i = 0; i < size; ++i) points.push_back(group * size + i);
  }
  return points;
}

double WhatIfPlan::gap() const {
  return objective.value > 0 ? (objective.value - lower_bound.value) / objective.value : 0;
}

const char* what_if_status_name(WhatIfStatus status) {
  switch (status) {
    case WhatIfStatus::kOptimal:
      return "optimal";
    case WhatIfStatus::kFeasible:
      return "feasible";
    case WhatIfStatus::kInfeasible:
      return "infeasible";
    case WhatIfStatus::kImpossible:
      return "impossible";
  }
  return "";
}

WhatIfGrid grid_of(const WhatIfSweep& sweep) {
  return {{sweep.clusters.size(),
           sweep.devices.size(),
           sweep.batches.size(),
           sweep.memory.size(),
           sweep.network.size()}};
}

Result<Cluster> machine_of(const WhatIfSweep& sweep, const WhatIfPlace& place) {
  const Cluster& cluster = sweep.clusters[place.cluster];
  const auto devices = sweep.devices[place.devices];
  return devices ? cluster.resized(*devices) : Result<Cluster>(cluster);
}

std::vector<WhatIfPoint> what_if(const WhatIfSweep& sweep,
                                 const WhatIfShard& shard,
                                 const std::function<void(std::size_t, std::size_t)>& progress) {
  const WhatIfGrid grid = grid_of(sweep);
  const std::vector<std::size_t> wanted = grid.points_of(shard);
  std::vector<Flows> flows(sweep.batches.size());
  in_parallel(flows.size(), sweep.search.threads, [&](std::size_t b) {
    for (const Graph& graph : sweep.batches[b].graphs)
      flows[b].push_back(std::make_shared<const DataFlow>(graph, sweep.batches[b].recomputation));
  });
  const std::size_t size = grid.sizes.memory * grid.sizes.network;
  std::vector<WhatIfPlace> groups;
  for (std::size_t i = 0; i < wanted.size(); i += size) groups.push_back(grid.place(wanted[i]));
  const auto devices = [&](const WhatIfPlace& place) {
    return sweep.devices[place.devices].value_or(sweep.clusters[place.cluster].devices());
  };
  std::stable_sort(groups.begin(), groups.end(), [&](const WhatIfPlace& a, const WhatIfPlace& b) {
    return devices(a) > devices(b);
  });
  const unsigned threads = std::max(1U, sweep.search.threads);
  const unsigned inside =
      std::max(1U, threads / static_cast<unsigned>(std::max<std::size_t>(1, groups.size())));
  std::vector<WhatIfPoint> points(grid.points());
  std::mutex telling;
  std::size_t done = 0;
  in_parallel(groups.size(), threads, [&](std::size_t g) {
    GroupSearch(sweep, grid, groups[g], flows[groups[g].batch], inside).run(points, [&] {
      const std::lock_guard<std::mutex> lock(telling);
      ++done;
      if (progress) progress(done, wanted.size());
    });
  });
  std::vector<WhatIfPoint> made;
  made.reserve(wanted.size());
  for (const std::size_t point : wanted) made.push_back(std::move(points[point]));
  return made;
}

std::vector<std::optional<double>> scaling_efficiency(const std::vector<WhatIfPoint>& points) {
  using Series = std::tuple<std::size_t, std::size_t, std::size_t, std::size_t>;
  const auto series_of = [](const WhatIfPoint& point) {
    const WhatIfPlace& place = point.place;
    return Series{place.cluster, place.batch, place.memory, place.network};
  };
  const auto device_seconds = [](const WhatIfPoint& point) {
    return static_cast<double>(point.devices) * point.plan->cost.step_time.value;
  };
  std::map<Series, const WhatIfPoint*> smallest;
  for (const WhatIfPoint& point : points) {
    if (!point.plan) continue;
    const WhatIfPoint*& least = smallest.try_emplace(series_of(point), &point).first->second;
    if (point.devices < least->devices) least = &point;
  }
  std::vector<std::optional<double>> efficiency(points.size());
  for (std::size_t i = 0; i < points.size(); ++i) {
    if (!points[i].plan || !(device_seconds(points[i]) > 0)) continue;
    efficiency[i] = device_seconds(*smallest.at(series_of(points[i]))) / device_seconds(points[i]);
  }
  return efficiency;
}

std::vector<bool> pareto_front(const std::vector<WhatIfPoint>& points, WhatIfExpense expense) {
  struct Offer {
    double expense;
    double time;
    std::size_t point;
  };
  using World = std::tuple<std::size_t, std::size_t, std::size_t>;
  std::map<World, std::vector<Offer>> worlds;
  for (std::size_t i = 0; i < points.size(); ++i) {
    const WhatIfPoint& point = points[i];
    if (!point.plan) continue;
    const bool priced = expense == WhatIfExpense::kPricePerStep;
    if (priced && !point.plan->cost.price_per_step) continue;
    worlds[{point.place.batch, point.place.memory, point.place.network}].push_back(
        {priced ? *point.plan->cost.price_per_step : static_cast<double>(point.devices),
         point.plan->cost.step_time.value,
         i});
  }
  std::vector<bool> front(points.size(), false);
  for (auto& [world, offers] : worlds) {
    std::sort(offers.begin(), offers.end(), [](const Offer& a, const Offer& b) {
      return std::tie(a.expense, a.time, a.point) < std::tie(b.expense, b.time, b.point);
    });
    // from cheap to dear, only what is faster than everything before, or equal to the last such one
    const Offer* last = nullptr;
    for (const Offer& offer : offers) {
      const bool equal =
          last != nullptr && offer.expense == last->expense && offer.time == last->time;
      if (last != nullptr && !equal && offer.time >= last->time) continue;
      front[offer.point] = true;
      last = &offer;
    }
  }
  return front;
}

}  // namespace meshplan

// SPDX-License-Identifier: Apache-2.0
// A group of devices is a box: f_0 devices in each unit of level 0, f_1 such units in each unit of
// level 1, and so on. Every algorithm priced here is a sequence of stages, each over a factor of
// that box, and costs  latency + sum over levels of bytes(level) / bandwidth(level).
//
// All-gather, reduce-scatter. A stage over g units of one level takes ceil(log2 g) messages
// (recursive doubling; a ring takes g - 1 and moves the same bytes). Stages on slower levels belong
// where the data is smallest: first in a gather, last in a scatter. Which level is the slowest may
// depend on the size (curves), so all orders of the levels are kept; there are few. Two stages on
// one level are never better than one, since ceil(log2 ab) <= ceil(log2 a) + ceil(log2 b) and the
// bytes are equal; and swapping two neighbouring stages into the better order never costs. So the
// minimum over the orders is the minimum over *all* ways to stage the collective: a fused call
// is never dearer than any sequence of calls on axes it is made of.
//
// All-reduce is a reduce-scatter followed by an all-gather.
//
// All-to-all. A stage over a sub-box (a_0, a_1, ...) exchanges directly: (a_0 - 1) messages at
// level 0, (a_0 a_1 - a_0) at level 1, ..., each of 1 / (a_0 a_1 ...) of the data. A box with f_l
// parts can be exchanged by any stages whose radices multiply to f_l or more at each level (all
// radices 2: the log-step algorithm). The useful sequences are found by dynamic programming over
// what is left of the box; only the lower hull of (latency, time per byte) is kept, since only its
// corners are ever the cheapest. Allowing products above f_l makes the price monotone in devices.
//
// Permutation and broadcast run at the slowest level they cross: the levels form one pipeline.
//
// The slowdown of short messages is looked up once per call, by the size of the whole call, not per
// stage: this is how benchmarks report it, and it keeps the arguments above valid.
// Not modelled: congestion between groups (bandwidths are those with all devices sending), and
// algorithms that pipeline several levels of a reduction.
#include "cost_model/collective_model.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <utility>

#include "lib/check.h"

namespace meshplan {
namespace {

/// Messages of a doubling over n units.
int doubling_steps(std::int64_t n) {
  return static_cast<int>(std::bit_width(static_cast<std::uint64_t>(n - 1)));
}

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// For every value of ceil(n / a), the least a that gives it: 1, 2, ..., n, thinned out.
std::vector<std::int64_t> useful_radices(std::int64_t n) {
  std::vector<std::int64_t> radices;
  std::int64_t last = 0;
  for (std::int64_t a = 1; a <= n;) {
    const std::int64_t left = ceil_div(n, a);
    if (left != last) radices.push_back(a);
    last = left;
    // the next a with a smaller quotient: the least a with a * (left - 1) >= n
    a = left > 1 ? std::max(a + 1, ceil_div(n, left - 1)) : n + 1;
  }
  return radices;
}

bool on_one_device(const GroupShape& shape) {
  return std::all_of(shape.begin(), shape.end(), [](std::int64_t f) { return f == 1; });
}

Bytes saturating_double(Bytes bytes) {
  constexpr Bytes kMost = std::numeric_limits<Bytes>::max();
  return bytes > kMost / 2 ? kMost : 2 * bytes;
}

}  // namespace

GroupShape group_shape(const Cluster& cluster, std::span<const std::int64_t> ranks) {
  std::vector<std::int64_t> units(ranks.begin(), ranks.end());
  std::sort(units.begin(), units.end());
  GroupShape shape;
  for (const Level& level : cluster.levels) {
    std::int64_t most = 1;
    std::int64_t count = 0;
    std::vector<std::int64_t> parents;
    for (const std::int64_t unit : units) {
      const std::int64_t parent = unit / level.size;
      if (parents.empty() || parents.back() != parent) {
        parents.push_back(parent);
        count = 0;
      }
      most = std::max(most, ++count);
    }
    shape.push_back(most);
    units = std::move(parents);
  }
  return shape;
}

Seconds copy_time(const Cluster& cluster, Bytes bytes) {
  if (bytes <= 0) return {};
  const double rate =
      cluster.device.memory_bandwidth * cluster.efficiency.of(OperatorFamily::kElementwise).memory;
  return on_price_grid({2.0 * static_cast<double>(bytes) / rate});
}

/// Finds the algorithms of every group shape of a mesh.
class CollectiveModel::Builder {
 public:
  explicit Builder(CollectiveModel& model) : model_(model), levels_(model.cluster_.levels) {
    for (std::size_t l = 0; l < levels_.size(); ++l) {
      beta_[l] = 1.0 / levels_[l].effective_bandwidth();
    }
  }

  std::uint32_t price_of(const GroupShape& shape) {
    const auto [found, inserted] =
        known_.try_emplace(shape, static_cast<std::uint32_t>(model_.prices_.size()));
    if (inserted) model_.prices_.push_back(price(shape));
    return found->second;
  }

 private:
  GroupPrice price(const GroupShape& shape) {
    GroupPrice result;
    result.shape = shape;
    for (std::size_t l = 0; l < shape.size(); ++l) {
      if (shape[l] == 1) continue;
      result.message_latency = std::max(result.message_latency, levels_[l].latency.value);
      result.broadcast_latency += doubling_steps(shape[l]) * levels_[l].latency.value;
    }
    result.gather = gather_terms(shape);
    result.all_to_all = exchange_terms(shape);
    return result;
  }

  /// All-gather in every order of the levels; beyond five crossed levels only slowest first.
  std::vector<Term> gather_terms(const GroupShape& shape) const {
    std::vector<std::size_t> order;
    for (std::size_t l = 0; l < shape.size(); ++l) {
      if (shape[l] > 1) order.push_back(l);
    }
    std::vector<Term> terms;
    if (order.size() > 5) {
      std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
        return beta_[a] > beta_[b];
      });
      terms.push_back(gather_in_order(shape, order));
      return terms;
    }
    do {
      terms.push_back(gather_in_order(shape, order));
    } while (std::next_permutation(order.begin(), order.end()));
    return terms;
  }

  Term gather_in_order(const GroupShape& shape, std::span<const std::size_t> order) const {
    Term term;
    double later = 1.0;  // units of the stages that follow: their share is not gathered yet
    for (auto l = order.rbegin(); l != order.rend(); ++l) {
      const double f = static_cast<double>(shape[*l]);
      term.latency += doubling_steps(shape[*l]) * levels_[*l].latency.value;
      term.per_byte[*l] = (f - 1.0) / f / later * beta_[*l];
      later *= f;
    }
    return term;
  }

  /// The hull of the ways to exchange a box of this shape, cheapest latency first.
  const std::vector<Term>& exchange_terms(const GroupShape& shape) {
    if (const auto found = exchanges_.find(shape); found != exchanges_.end()) return found->second;
    std::vector<Term> terms;
    if (on_one_device(shape)) {
      terms.emplace_back();
    } else {
      std::vector<std::vector<std::int64_t>> radices;
      for (const std::int64_t f : shape) radices.push_back(useful_radices(f));
      limit_choices(shape, radices);
      GroupShape stage(shape.size(), 1);
      add_stages(shape, radices, 0, stage, terms);
    }
    return exchanges_.emplace(shape, lower_hull(std::move(terms))).first->second;
  }

  /// Boxes over many levels: a stage covers all or nothing of a level, to keep the search small.
  static void limit_choices(const GroupShape& shape,
                            std::vector<std::vector<std::int64_t>>& radices) {
    std::size_t choices = 1;
    for (const auto& r : radices) choices *= r.size();
    for (std::size_t l = 0; choices > 400 && l < radices.size(); ++l) {
      choices = choices / radices[l].size() * std::min<std::size_t>(radices[l].size(), 3);
      if (radices[l].size() > 3) radices[l] = {1, 2, shape[l]};
    }
  }

  void add_stages(const GroupShape& shape,
                  const std::vector<std::vector<std::int64_t>>& radices,
                  std::size_t level,
                  GroupShape& stage,
                  std::vector<Term>& terms) {
    if (level < shape.size()) {
      for (const std::int64_t radix : radices[level]) {
        stage[level] = radix;
        add_stages(shape, radices, level + 1, stage, terms);
      }
      stage[level] = 1;
      return;
    }
    if (on_one_device(stage)) return;
    GroupShape rest;
    for (std::size_t l = 0; l < shape.size(); ++l) rest.push_back(ceil_div(shape[l], stage[l]));
    const Term first = direct_exchange(stage);
    for (Term term : exchange_terms(rest)) {
      term.latency += first.latency;
      for (std::size_t l = 0; l < levels_.size(); ++l) term.per_byte[l] += first.per_byte[l];
      terms.push_back(term);
    }
  }

  Term direct_exchange(const GroupShape& stage) const {
    Term term;
    double all = 1.0;
    for (const std::int64_t a : stage) all *= static_cast<double>(a);
    double inner = 1.0;
    for (std::size_t l = 0; l < stage.size(); ++l) {
      const double outer = inner * static_cast<double>(stage[l]);
      term.latency += (outer - inner) * levels_[l].latency.value;
      term.per_byte[l] = (outer - inner) / all * beta_[l];
      inner = outer;
    }
    return term;
  }

  double slope(const Term& term) const {
    return std::accumulate(term.per_byte.begin(), term.per_byte.end(), 0.0);
  }

  /// The terms that are the cheapest at some size, by ascending latency and falling slope.
  std::vector<Term> lower_hull(std::vector<Term> terms) const {
    std::sort(terms.begin(), terms.end(), [&](const Term& a, const Term& b) {
      if (a.latency != b.latency) return a.latency < b.latency;
      const double sa = slope(a);
      const double sb = slope(b);
      return sa != sb ? sa < sb : a.per_byte < b.per_byte;
    });
    std::vector<Term> hull;
    for (const Term& term : terms) {
      if (!hull.empty() && slope(term) >= slope(hull.back())) continue;
      while (hull.size() >= 2 && !below(hull[hull.size() - 2], hull.back(), term)) hull.pop_back();
      hull.push_back(term);
    }
    return hull;
  }

  /// Is `b` strictly the cheapest of the three at some size, where latencies ascend a, b, c?
  bool below(const Term& a, const Term& b, const Term& c) const {
    const double ab = (b.latency - a.latency) * (slope(a) - slope(c));
    const double ac = (c.latency - a.latency) * (slope(a) - slope(b));
    return ab < ac;
  }

  CollectiveModel& model_;
  const std::vector<Level>& levels_;
  std::array<double, kMaxLevels> beta_{};
  std::map<GroupShape, std::uint32_t> known_;
  std::map<GroupShape, std::vector<Term>> exchanges_;
};

namespace {

Result<void> check_ranks(const Cluster& cluster, std::span<const std::int64_t> ranks) {
  const std::int64_t devices = cluster.devices();
  std::vector<bool> seen(static_cast<std::size_t>(devices), false);
  for (const std::int64_t rank : ranks) {
    if (rank < 0 || rank >= devices) {
      return fail(ErrorCode::kRank,
                  "",
                  "rank " + std::to_string(rank) + " is not on the cluster \"" + cluster.name +
                      "\", which has " + std::to_string(devices) + " devices");
    }
    if (seen[static_cast<std::size_t>(rank)]) {
      return fail(
          ErrorCode::kDuplicate, "", "rank " + std::to_string(rank) + " is in the mesh twice");
    }
    seen[static_cast<std::size_t>(rank)] = true;
  }
  return {};
}

/// The positions of the mesh, as offsets from its first one, that differ from it on `axes` only.
std::vector<std::size_t> offsets_along(std::span<const std::int64_t> shape, AxisSet axes) {
  std::vector<std::size_t> offsets = {0};
  std::size_t stride = 1;
  for (std::size_t axis = shape.size(); axis-- > 0;) {
    const auto size = static_cast<std::size_t>(shape[axis]);
    if ((axes >> axis & 1U) != 0) {
      const std::size_t known = offsets.size();
      for (std::size_t i = 1; i < size; ++i) {
        for (std::size_t k = 0; k < known; ++k) offsets.push_back(offsets[k] + i * stride);
      }
    }
    stride *= size;
  }
  return offsets;
}

/// The distinct shapes of the groups along `axes` that are not inside another one.
std::vector<GroupShape> shapes_along(const Cluster& cluster,
                                     std::span<const std::int64_t> shape,
                                     std::span<const std::int64_t> ranks,
                                     AxisSet axes) {
  const AxisSet all = (AxisSet{1} << shape.size()) - 1;
  const std::vector<std::size_t> members = offsets_along(shape, axes);
  std::vector<GroupShape> shapes;
  std::vector<std::int64_t> group(members.size());
  for (const std::size_t base : offsets_along(shape, all & ~axes)) {
    for (std::size_t i = 0; i < members.size(); ++i) group[i] = ranks[base + members[i]];
    GroupShape found = group_shape(cluster, group);
    if (std::find(shapes.begin(), shapes.end(), found) == shapes.end()) {
      shapes.push_back(std::move(found));
    }
  }
  const auto inside = [](const GroupShape& a, const GroupShape& b) {
    return a != b && std::equal(a.begin(), a.end(), b.begin(), std::less_equal<>());
  };
  std::vector<GroupShape> largest;
  for (const GroupShape& s : shapes) {
    const bool covered = std::any_of(
        shapes.begin(), shapes.end(), [&](const GroupShape& other) { return inside(s, other); });
    if (!covered) largest.push_back(s);
  }
  std::sort(largest.begin(), largest.end());
  return largest;
}

}  // namespace

Result<CollectiveModel> CollectiveModel::make(const Cluster& cluster,
                                              std::span<const std::int64_t> shape,
                                              std::span<const std::int64_t> ranks) {
  MESHPLAN_CHECK(!cluster.levels.empty() &&
                 cluster.levels.size() <= static_cast<std::size_t>(kMaxLevels));
  CollectiveModel model;
  model.cluster_ = cluster;
  std::vector<std::int64_t> wide;  // the axes of two and more
  std::int64_t positions = 1;
  for (const std::int64_t size : shape) {
    if (size < 1 || positions > kMaxDevices / size) {
      return fail(ErrorCode::kConflict,
                  "",
                  "a mesh needs sizes of 1 and more with a product of at most " +
                      std::to_string(kMaxDevices));
    }
    positions *= size;
    model.compact_.push_back(size > 1 ? static_cast<int>(wide.size()) : -1);
    if (size > 1) wide.push_back(size);
  }
  if (wide.size() > static_cast<std::size_t>(kMaxAxes)) {
    return fail(ErrorCode::kUnsupported,
                "",
                "a mesh with " + std::to_string(wide.size()) +
                    " axes of two and more devices has no prices; at most " +
                    std::to_string(kMaxAxes) + " such axes are supported");
  }
  std::vector<std::int64_t> all_ranks(ranks.begin(), ranks.end());
  if (ranks.empty()) {
    all_ranks.resize(static_cast<std::size_t>(positions));
    std::iota(all_ranks.begin(), all_ranks.end(), 0);
  }
  if (all_ranks.size() != static_cast<std::size_t>(positions)) {
    return fail(ErrorCode::kConflict,
                "",
                "the mesh has " + std::to_string(positions) + " positions and " +
                    std::to_string(all_ranks.size()) + " ranks");
  }
  if (auto ok = check_ranks(cluster, all_ranks); !ok) return fail(ok.error());

  Builder builder(model);
  model.entries_.resize(std::size_t{1} << wide.size());
  for (std::size_t axes = 0; axes < model.entries_.size(); ++axes) {
    AxisEntry& entry = model.entries_[axes];
    for (std::size_t i = 0; i < wide.size(); ++i) {
      if ((axes >> i & 1U) != 0) entry.size *= wide[i];
    }
    for (const GroupShape& s : shapes_along(cluster, wide, all_ranks, static_cast<AxisSet>(axes))) {
      entry.prices.push_back(builder.price_of(s));
    }
  }
  return model;
}

Result<CollectiveModel> CollectiveModel::make(const Cluster& cluster, const DeviceMesh& mesh) {
  if (mesh.size() > kMaxDevices) return make(cluster, mesh.shape());  // refused without a rank list
  return make(cluster, mesh.shape(), mesh.ranks());
}

const CollectiveModel::AxisEntry& CollectiveModel::entry(AxisSet axes) const {
  std::size_t compact = 0;
  for (std::size_t axis = 0; axes != 0; ++axis, axes >>= 1) {
    if ((axes & 1U) == 0) continue;
    MESHPLAN_CHECK(axis < compact_.size());
    if (compact_[axis] >= 0) compact |= std::size_t{1} << compact_[axis];
  }
  return entries_[compact];
}

double CollectiveModel::cheapest(std::span<const Term> terms, Collective curve, Bytes bytes) const {
  const std::size_t levels = cluster_.levels.size();
  std::array<double, kMaxLevels> size{};
  for (std::size_t l = 0; l < levels; ++l) {
    const auto& own = cluster_.levels[l].collectives;
    const CollectiveCurves& curves = own ? *own : cluster_.efficiency.collectives;
    size[l] = static_cast<double>(bytes) * curves.of(curve).slowdown(bytes);
  }
  double least = 0;
  for (std::size_t i = 0; i < terms.size(); ++i) {
    double time = terms[i].latency;
    for (std::size_t l = 0; l < levels; ++l) time += terms[i].per_byte[l] * size[l];
    if (i == 0 || time < least) least = time;
  }
  return least;
}

double CollectiveModel::bottleneck(const GroupPrice& price, Collective curve, Bytes bytes) const {
  double slowest = 0;
  for (std::size_t l = 0; l < price.shape.size(); ++l) {
    if (price.shape[l] == 1) continue;
    const Level& level = cluster_.levels[l];
    const CollectiveCurves& curves =
        level.collectives ? *level.collectives : cluster_.efficiency.collectives;
    slowest = std::max(slowest, curves.of(curve).slowdown(bytes) / level.effective_bandwidth());
  }
  return slowest * static_cast<double>(bytes);
}

double CollectiveModel::group_time(const GroupPrice& price, const CollectiveCall& call) const {
  switch (call.collective) {
    case Collective::kAllGather:
    case Collective::kReduceScatter:
      return cheapest(price.gather, call.collective, call.bytes);
    case Collective::kAllReduce:
      return std::min(2.0 * cheapest(price.gather, Collective::kAllReduce, call.bytes),
                      cheapest(price.gather, Collective::kReduceScatter, call.bytes) +
                          cheapest(price.gather, Collective::kAllGather, call.bytes));
    case Collective::kAllToAll:
      return cheapest(price.all_to_all, Collective::kAllToAll, call.bytes);
    case Collective::kPermute:
    case Collective::kSendReceive:
      return price.message_latency + bottleneck(price, call.collective, call.bytes);
    case Collective::kBroadcast:
      return price.broadcast_latency + bottleneck(price, call.collective, call.bytes);
    case Collective::kSlice:
    case Collective::kMask:
      return 0.0;
  }
  MESHPLAN_CHECK(false);
}

Seconds CollectiveModel::time(const CollectiveCall& call) const {
  const AxisEntry& axes = entry(call.axes);
  if (axes.size == 1 || call.bytes <= 0) return {};
  if (call.collective == Collective::kSlice || call.collective == Collective::kMask) {
    return copy_time(cluster_, call.bytes);
  }
  double slowest = 0;
  for (const std::uint32_t price : axes.prices) {
    slowest = std::max(slowest, group_time(prices_[price], call));
  }
  // Rounded up: then a collective is never dearer than its parts (an all-reduce than reduce-scatter
  // and all-gather) by rounding alone.
  return up_to_price_grid({cluster_.efficiency.collective_overhead.value + slowest});
}

Bytes CollectiveModel::moved(const CollectiveCall& call) const {
  const std::int64_t n = entry(call.axes).size;
  if (n == 1 || call.bytes <= 0) return 0;
  switch (call.collective) {
    case Collective::kAllGather:
    case Collective::kReduceScatter:
    case Collective::kAllToAll:
      return call.bytes - call.bytes / n;
    case Collective::kAllReduce:
      return saturating_double(call.bytes - call.bytes / n);
    case Collective::kPermute:
    case Collective::kSendReceive:
    case Collective::kBroadcast:
      return call.bytes;
    case Collective::kSlice:
    case Collective::kMask:
      return 0;
  }
  MESHPLAN_CHECK(false);
}

std::int64_t CollectiveModel::group_size(AxisSet axes) const { return entry(axes).size; }

int CollectiveModel::level(AxisSet axes) const {
  int outermost = -1;
  for (const std::uint32_t price : entry(axes).prices) {
    const GroupShape& shape = prices_[price].shape;
    for (std::size_t l = 0; l < shape.size(); ++l) {
      if (shape[l] > 1) outermost = std::max(outermost, static_cast<int>(l));
    }
  }
  return outermost;
}

}  // namespace meshplan

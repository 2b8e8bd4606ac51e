// SPDX-License-Identifier: Apache-2.0
// Problem: of all sequences of collectives between two layouts, the cheapest one.
// Idea: layouts are the nodes of a graph, moves (slice, mask, all-gather, reduce-scatter,
// all-reduce, all-to-all, permute, each over one or several axes) its edges, a move's price its
// length. Dijkstra from a source gives the costs of all destinations at once. The graph depends on
// the mesh and the tensor's rank only; a shape decides which nodes are legal and how many bytes an
// edge moves. Costs are counted in integer ticks of the price grid, so that sums are exact and ties
// are ties. Ties: least peak memory (found by the same Dijkstra, labels ordered by cost then peak),
// then fewest steps (breadth-first over the edges that lie on a cheapest path and stay under that
// peak), then the first edge in the graph's order. Complexity: states x moves x log per source.
// Limits: 8 axes, 15 dimensions; all layouts up to kMaxStates (4 axes and 5 dimensions
// fit), beyond that only those that change what the two ends differ in (see plan_large).
#include "lib/redistribution.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <map>
#include <numeric>
#include <queue>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "lib/check.h"
#include "lib/redistribution_moves.h"
#include "lib/redistribution_reduce.h"
#include "lib/redistribution_steps.h"

namespace meshplan {
namespace {

using Ticks = std::int64_t;
constexpr Ticks kFar = std::numeric_limits<Ticks>::max();
constexpr double kLongest = 4194304.0;  // seconds; a longer price counts as this

/// Stays below kFar however long the sum gets: paths that long are equally dear.
Ticks plus(Ticks cost, Ticks price) { return price < kFar - 1 - cost ? cost + price : kFar - 1; }

constexpr std::size_t kMaxStates = 5000;
constexpr std::size_t kMaxContexts = 256;

Seconds seconds_of(Ticks ticks) { return {static_cast<double>(ticks) / kTicksPerSecond}; }

std::size_t mix(std::uint64_t value) {
  value ^= value >> 31;
  value *= 0x9e3779b97f4a7c15U;
  value ^= value >> 29;
  return static_cast<std::size_t>(value);
}

struct CallKey {
  Bytes bytes;
  AxisSet axes;
  Collective collective;
  friend bool operator==(const CallKey&, const CallKey&) = default;
};
struct CallHash {
  std::size_t operator()(const CallKey& key) const {
    return mix(static_cast<std::uint64_t>(key.bytes) * 31 + key.axes * 1024U +
               static_cast<unsigned>(key.collective));
  }
};
struct PairKey {
  LayoutCode from;
  LayoutCode to;
  friend bool operator==(const PairKey&, const PairKey&) = default;
};
struct PairHash {
  std::size_t operator()(const PairKey& key) const {
    return mix(key.from * 0x9e3779b97f4a7c15U ^ mix(key.to));
  }
};

/// What Dijkstra found from one source.
struct Source {
  std::vector<Ticks> cost;
  std::vector<Bytes> peak;
  std::vector<std::uint32_t> tight_begin;  ///< per state: its range in `tight`
  std::vector<std::uint32_t> tight;        ///< predecessors on cheapest paths
};

/// A move that the shape allows, and its price.
struct Edge {
  std::uint32_t to = 0;
  Ticks price = 0;
};

/// Costs do not depend on what the dimensions are called: tensors whose shapes are permutations of
/// each other share theirs under the shape with ascending sizes.
struct SortedDims {
  explicit SortedDims(std::span<const std::int64_t> sizes)
      : shape(sizes.begin(), sizes.end()), place(sizes.size()) {
    std::vector<std::size_t> order(sizes.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return sizes[a] < sizes[b];
    });
    for (std::size_t i = 0; i < order.size(); ++i) {
      shape[i] = sizes[order[i]];
      place[order[i]] = static_cast<int>(i);
    }
  }
  /// The code of the same layout of the sorted shape.
  LayoutCode renamed(LayoutCode code) const {
    for (int axis = 0; axis < kMaxMoveAxes; ++axis) {
      const std::uint8_t byte = code_byte(code, axis);
      if (byte == 0 || (byte & 0x80) != 0) continue;
      const auto dim = static_cast<std::size_t>((byte >> 3) - 1);
      code = with_byte(code, axis, cut_byte(place[dim], byte & 7));
    }
    return code;
  }

  std::vector<std::int64_t> shape;
  std::vector<int> place;  ///< per dimension of the given shape
};

/// A graph with the bytes and prices of one shape.
struct Context {
  std::vector<std::int64_t> shape;
  Bytes dtype_bytes = 0;
  MoveGraph* graph = nullptr;
  std::vector<Bytes> local;                ///< per state, -1: not legal
  std::vector<std::vector<Ticks>> prices;  ///< per state and move, -1: not legal
  std::vector<std::unique_ptr<Source>> sources;
  // Of tables of costs, which need no paths:
  std::vector<std::vector<Ticks>> rows;  ///< per state: the costs to all, empty where not asked
  std::vector<std::vector<Edge>> edges;  ///< per state; without those that a detour is cheaper than
};

}  // namespace

class RedistributionPlanner::Impl {
 public:
  Impl(std::vector<std::int64_t> axis_sizes, CollectivePrice price, Division division)
      : axis_sizes_(std::move(axis_sizes)), price_(std::move(price)), division_(division) {
    for (const std::int64_t size : axis_sizes_) MESHPLAN_CHECK(size >= 1);
  }

  Result<const Redistribution*> plan(std::span<const std::int64_t> shape,
                                     Bytes dtype_bytes,
                                     std::span<const Placement> from,
                                     std::span<const Placement> to) {
    const int rank = static_cast<int>(shape.size());
    if (const auto used = used_axes(axis_sizes_, from, to)) {
      return plan_used(shape, dtype_bytes, from, to, *used);
    }
    const auto source = encode_placements(axis_sizes_, rank, from);
    if (!source) return fail(at("/from", source.error()));
    const auto target = encode_placements(axis_sizes_, rank, to);
    if (!target) return fail(at("/to", target.error()));
    Memo* memo = find_memo(shape, dtype_bytes);
    if (memo != nullptr) {
      const auto found = memo->plans.find(PairKey{*source, *target});
      if (found != memo->plans.end()) return &found->second;
    }
    if (auto checked = check_codes(axis_sizes_, shape, dtype_bytes, *source, *target, division_);
        !checked)
      return fail(checked.error());
    Redistribution found;
    if (is_large(rank, *source, *target)) {
      auto large = plan_large(shape, dtype_bytes, *source, *target);
      if (!large) return fail(large.error());
      found = *std::move(large);
    } else {
      found = find_plan(
          context_of(shape, dtype_bytes, reductions_of(*source, *target)), *source, *target);
    }
    if (memo == nullptr) {
      memos_.push_back(std::make_unique<Memo>());
      memo = memos_.back().get();
      memo->shape.assign(shape.begin(), shape.end());
      memo->dtype_bytes = dtype_bytes;
      memo_index_[shape_hash(shape, dtype_bytes)].push_back(memo);
      last_memo_ = memo;
    }
    return &memo->plans.emplace(PairKey{*source, *target}, std::move(found)).first->second;
  }

  Result<std::vector<Seconds>> cost_table(std::span<const std::int64_t> shape,
                                          Bytes dtype_bytes,
                                          std::span<const Placements> layouts) {
    const int rank = static_cast<int>(shape.size());
    if (axis_sizes_.size() > static_cast<std::size_t>(kMaxMoveAxes))
      return table_by_rows(shape, dtype_bytes, layouts);
    std::vector<LayoutCode> codes;
    codes.reserve(layouts.size());
    unsigned kinds = 0;
    for (std::size_t i = 0; i < layouts.size(); ++i) {
      const auto code = encode_placements(axis_sizes_, rank, layouts[i]);
      if (!code) return fail(at("/" + std::to_string(i), code.error()));
      if (auto checked = check_codes(axis_sizes_, shape, dtype_bytes, *code, *code, division_);
          !checked) {
        return fail(at("/" + std::to_string(i), checked.error()));
      }
      codes.push_back(*code);
      kinds |= reductions_of(*code, *code);
    }
    const bool only_sums = (kinds & ~1U) == 0;
    if (!only_sums || is_large(rank, 0, 0)) return table_by_rows(shape, dtype_bytes, layouts);
    std::vector<Seconds> table(codes.size() * codes.size());
    const SortedDims sorted(shape);
    Context& context = context_of(sorted.shape, dtype_bytes, 1U);
    std::vector<std::uint32_t> indices;
    for (const LayoutCode code : codes)
      indices.push_back(context.graph->index_of(sorted.renamed(code)));
    for (std::size_t i = 0; i < codes.size(); ++i) {
      const std::vector<Ticks>& cost = costs_from(context, indices[i]);
      for (std::size_t j = 0; j < codes.size(); ++j)
        table[i * codes.size() + j] = seconds_of(cost[indices[j]]);
    }
    return table;
  }

  Result<std::vector<Seconds>> costs_from(std::span<const std::int64_t> shape,
                                          Bytes dtype_bytes,
                                          std::span<const Placement> from,
                                          std::span<const Placements> layouts) {
    std::vector<Seconds> costs;
    costs.reserve(layouts.size());
    for (std::size_t i = 0; i < layouts.size(); ++i) {
      if (axis_sizes_.size() > static_cast<std::size_t>(kMaxMoveAxes)) {
        const auto found = plan(shape, dtype_bytes, from, layouts[i]);
        if (!found) return fail(at("/" + std::to_string(i), found.error()));
        costs.push_back((*found)->time);
        continue;
      }
      const auto codes = checked_codes(axis_sizes_, shape, dtype_bytes, from, layouts[i]);
      if (!codes) return fail(at("/" + std::to_string(i), codes.error()));
      if (is_large(static_cast<int>(shape.size()), codes->from, codes->to)) {
        const auto found = plan(shape, dtype_bytes, from, layouts[i]);
        if (!found) return fail(found.error());
        costs.push_back((*found)->time);
        continue;
      }
      Context& context = context_of(shape, dtype_bytes, reductions_of(codes->from, codes->to));
      const Source& source = source_of(context, context.graph->index_of(codes->from));
      costs.push_back(seconds_of(source.cost[context.graph->index_of(codes->to)]));
    }
    return costs;
  }

  std::span<const std::int64_t> axis_sizes() const { return axis_sizes_; }

 private:
  /// The plans found for one shape.
  struct Memo {
    std::vector<std::int64_t> shape;
    Bytes dtype_bytes = 0;
    std::unordered_map<PairKey, Redistribution, PairHash> plans;
  };

  static Error at(const std::string& prefix, Error error) {
    error.where = prefix + error.where;
    return error;
  }

  static std::uint64_t shape_hash(std::span<const std::int64_t> shape, Bytes dtype_bytes) {
    std::uint64_t hash = static_cast<std::uint64_t>(dtype_bytes);
    for (const std::int64_t size : shape)
      hash = mix(hash * 31 + static_cast<std::uint64_t>(size) + 1);
    return hash;
  }

  Memo* find_memo(std::span<const std::int64_t> shape, Bytes dtype_bytes) {
    const auto matches = [&](const Memo& memo) {
      return memo.dtype_bytes == dtype_bytes &&
             std::equal(shape.begin(), shape.end(), memo.shape.begin(), memo.shape.end());
    };
    if (last_memo_ != nullptr && matches(*last_memo_)) return last_memo_;
    const auto found = memo_index_.find(shape_hash(shape, dtype_bytes));
    if (found == memo_index_.end()) return nullptr;
    for (Memo* memo : found->second) {
      if (matches(*memo)) return last_memo_ = memo;
    }
    return nullptr;
  }

  /// Bit set of the reductions that states may have: sum always, so that one graph serves all
  /// layouts without Partial or with sums.
  unsigned reductions_of(LayoutCode from, LayoutCode to) const {
    unsigned kinds = 1U << static_cast<unsigned>(Reduction::kSum);
    for (std::size_t axis = 0; axis < axis_sizes_.size(); ++axis) {
      if (axis_sizes_[axis] == 1) continue;
      for (const LayoutCode code : {from, to}) {
        const std::uint8_t byte = code_byte(code, static_cast<int>(axis));
        if ((byte & 0x80) != 0) kinds |= 1U << (byte & 0x7f);
      }
    }
    return kinds;
  }

  static std::vector<Reduction> reductions_in(unsigned kinds) {
    std::vector<Reduction> reductions;
    for (unsigned kind = 0; kind < 5; ++kind) {
      if ((kinds >> kind & 1U) != 0) reductions.push_back(static_cast<Reduction>(kind));
    }
    return reductions;
  }

  /// Are there too many layouts to look at all of them?
  bool is_large(int rank, LayoutCode from, LayoutCode to) const {
    const std::size_t kinds = reductions_in(reductions_of(from, to)).size();
    return MoveGraph::count_states(axis_sizes_, rank, kinds, kMaxStates) >= kMaxStates;
  }

  /// Must not be large.
  Context& context_of(std::span<const std::int64_t> shape, Bytes dtype_bytes, unsigned kinds) {
    auto key =
        std::tuple(std::vector<std::int64_t>(shape.begin(), shape.end()), dtype_bytes, kinds);
    if (const auto found = contexts_.find(key); found != contexts_.end()) return *found->second;
    const auto rank = static_cast<int>(shape.size());
    std::unique_ptr<MoveGraph>& graph = graphs_[{rank, kinds}];
    if (graph == nullptr)
      graph = std::make_unique<MoveGraph>(axis_sizes_, rank, reductions_in(kinds));
    if (contexts_.size() >= kMaxContexts) contexts_.clear();
    auto context = std::make_unique<Context>();
    context->shape.assign(shape.begin(), shape.end());
    context->dtype_bytes = dtype_bytes;
    context->graph = graph.get();
    const std::size_t states = context->graph->size();
    context->local.reserve(states);
    for (std::size_t i = 0; i < states; ++i) {
      const std::int64_t elements =
          local_elements(axis_sizes_, shape, context->graph->state(i), division_);
      context->local.push_back(elements < 0 ? -1 : elements * dtype_bytes);
    }
    context->prices.resize(states);
    context->sources.resize(states);
    return *contexts_.emplace(std::move(key), std::move(context)).first->second;
  }

  Result<std::vector<Seconds>> table_by_rows(std::span<const std::int64_t> shape,
                                             Bytes dtype_bytes,
                                             std::span<const Placements> layouts) {
    std::vector<Seconds> table;
    table.reserve(layouts.size() * layouts.size());
    for (const Placements& from : layouts) {
      auto row = costs_from(shape, dtype_bytes, from, layouts);
      if (!row) return row;
      table.insert(table.end(), row->begin(), row->end());
    }
    return table;
  }

  /// On a mesh with more axes than a state has.
  Result<const Redistribution*> plan_used(std::span<const std::int64_t> shape,
                                          Bytes dtype_bytes,
                                          std::span<const Placement> from,
                                          std::span<const Placement> to,
                                          const UsedAxes& used) {
    auto key = std::tuple(std::vector<std::int64_t>(shape.begin(), shape.end()),
                          dtype_bytes,
                          to_string(from) + " " + to_string(to));
    if (const auto known = used_plans_.find(key); known != used_plans_.end()) return &known->second;
    std::unique_ptr<Impl>& part = parts_[used.axes];
    if (part == nullptr)
      part = std::make_unique<Impl>(used.sizes, price_on(used, price_), division_);
    const auto found = part->plan(shape, dtype_bytes, used.from, used.to);
    if (!found) return fail(found.error());
    return &used_plans_.emplace(std::move(key), on_all_axes(used, axis_sizes_.size(), **found))
                .first->second;
  }

  /// Leaves alone what both layouts have in common, and dimensions that neither cuts but two; if
  /// that is still large, takes the cheapest of the rule-based sequences.
  Result<Redistribution> plan_large(std::span<const std::int64_t> shape,
                                    Bytes dtype_bytes,
                                    LayoutCode from,
                                    LayoutCode to) {
    const auto problem = reduce_problem(axis_sizes_, shape, dtype_bytes, from, to);
    std::vector<std::int64_t> sizes;
    for (const int axis : problem.axes)
      sizes.push_back(axis_sizes_[static_cast<std::size_t>(axis)]);
    const auto rank = static_cast<int>(problem.shape.size());
    const std::size_t kinds = reductions_in(reductions_of(from, to)).size();
    if (MoveGraph::count_states(sizes, rank, kinds, kMaxStates) >= kMaxStates) {
      return cheapest_by_rules(axis_sizes_, price_, shape, dtype_bytes, from, to, division_);
    }
    std::unique_ptr<Impl>& part = parts_[problem.axes];
    if (part == nullptr) {
      UsedAxes used;
      used.axes = problem.axes;
      part = std::make_unique<Impl>(sizes, price_on(used, price_), division_);
    }
    const auto found = part->plan(problem.shape,
                                  problem.dtype_bytes,
                                  decode_placements(sizes, problem.from),
                                  decode_placements(sizes, problem.to));
    if (!found) return fail(found.error());
    return restore_problem(axis_sizes_, problem, **found, to);
  }

  static Bytes call_bytes(const Context& context, std::size_t from, const Move& move) {
    const Bytes before = context.local[from];
    const Bytes after = context.local[move.to];
    return move.collective == Collective::kSlice ? after : std::max(before, after);
  }

  Ticks price_of(Collective collective, AxisSet axes, Bytes bytes) {
    const CallKey key{bytes, axes, collective};
    if (const auto found = prices_.find(key); found != prices_.end()) return found->second;
    const Seconds time = price_({collective, axes, bytes});
    MESHPLAN_CHECK(time.value >= 0.0);
    const Ticks ticks =
        static_cast<Ticks>(std::nearbyint(std::min(time.value, kLongest) * kTicksPerSecond));
    prices_.emplace(key, ticks);
    return ticks;
  }

  /// The prices of a state's moves, -1 for moves to states that the shape forbids.
  const std::vector<Ticks>& prices_from(Context& context, std::size_t state) {
    std::vector<Ticks>& prices = context.prices[state];
    const auto moves = context.graph->moves(state);
    if (prices.size() == moves.size()) return prices;
    prices.reserve(moves.size());
    for (const Move& move : moves) {
      if (context.local[move.to] < 0) {
        prices.push_back(-1);
      } else if (move.relabel) {
        prices.push_back(0);
      } else {
        prices.push_back(price_of(move.collective, move.axes, call_bytes(context, state, move)));
      }
    }
    return prices;
  }

  /// Dijkstra without paths: the costs from one state to all. What it finds to be no cheapest path
  /// to a neighbour, no later one follows.
  const std::vector<Ticks>& costs_from(Context& context, std::uint32_t source) {
    context.rows.resize(context.graph->size());
    context.edges.resize(context.graph->size());
    std::vector<Ticks>& cost = context.rows[source];
    if (!cost.empty()) return cost;
    cost.assign(context.graph->size(), kFar);
    cost[source] = 0;
    heap_.clear();
    heap_.emplace_back(0, source);
    while (!heap_.empty()) {
      std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
      const auto [reached, state] = heap_.back();
      heap_.pop_back();
      if (reached != cost[state]) continue;
      for (const Edge& edge : edges_from(context, state)) {
        const Ticks candidate = plus(reached, edge.price);
        if (candidate >= cost[edge.to]) continue;
        cost[edge.to] = candidate;
        heap_.emplace_back(candidate, edge.to);
        std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
      }
    }
    std::erase_if(context.edges[source],
                  [&](const Edge& edge) { return edge.price > cost[edge.to]; });
    return cost;
  }

  const std::vector<Edge>& edges_from(Context& context, std::uint32_t state) {
    std::vector<Edge>& edges = context.edges[state];
    const auto moves = context.graph->moves(state);
    if (!edges.empty() || moves.empty()) return edges;
    const std::vector<Ticks>& prices = prices_from(context, state);
    for (std::size_t i = 0; i < moves.size(); ++i) {
      if (prices[i] < 0) continue;
      const auto known = std::find_if(
          edges.begin(), edges.end(), [&](const Edge& edge) { return edge.to == moves[i].to; });
      if (known == edges.end())
        edges.push_back({moves[i].to, prices[i]});
      else
        known->price = std::min(known->price, prices[i]);
    }
    return edges;
  }

  /// What a move's input and output take together; all-reduce and mask overwrite their input.
  static Bytes move_peak(const Context& context, std::size_t from, const Move& move) {
    return works_in_place(move) ? context.local[from]
                                : context.local[from] + context.local[move.to];
  }
  static bool works_in_place(const Move& move) {
    return move.relabel || move.collective == Collective::kAllReduce ||
           move.collective == Collective::kMask;
  }

  /// Dijkstra with labels (cost, peak), and the edges that lie on cheapest paths.
  const Source& source_of(Context& context, std::uint32_t source) {
    std::unique_ptr<Source>& slot = context.sources[source];
    if (slot != nullptr) return *slot;
    slot = std::make_unique<Source>();
    const std::size_t states = context.graph->size();
    slot->cost.assign(states, kFar);
    slot->peak.assign(states, 0);
    slot->cost[source] = 0;
    slot->peak[source] = context.local[source];
    using Label = std::tuple<Ticks, Bytes, std::uint32_t>;
    std::vector<Label> heap = {{0, slot->peak[source], source}};
    while (!heap.empty()) {
      std::pop_heap(heap.begin(), heap.end(), std::greater<>());
      const auto [cost, peak, state] = heap.back();
      heap.pop_back();
      if (cost != slot->cost[state] || peak != slot->peak[state]) continue;
      const auto moves = context.graph->moves(state);
      const std::vector<Ticks>& prices = prices_from(context, state);
      for (std::size_t i = 0; i < moves.size(); ++i) {
        if (prices[i] < 0) continue;
        const std::uint32_t next = moves[i].to;
        const Ticks next_cost = plus(cost, prices[i]);
        if (next_cost > slot->cost[next]) continue;
        const Bytes next_peak = std::max(peak, move_peak(context, state, moves[i]));
        if (next_cost == slot->cost[next] && next_peak >= slot->peak[next]) continue;
        slot->cost[next] = next_cost;
        slot->peak[next] = next_peak;
        heap.emplace_back(next_cost, next_peak, next);
        std::push_heap(heap.begin(), heap.end(), std::greater<>());
      }
    }
    std::vector<std::pair<std::uint32_t, std::uint32_t>> tight;  // (state, predecessor)
    for (std::uint32_t state = 0; state < states; ++state) {
      if (slot->cost[state] == kFar) continue;
      const auto moves = context.graph->moves(state);
      const std::vector<Ticks>& prices = prices_from(context, state);
      for (std::size_t i = 0; i < moves.size(); ++i) {
        if (prices[i] >= 0 && plus(slot->cost[state], prices[i]) == slot->cost[moves[i].to]) {
          tight.emplace_back(moves[i].to, state);
        }
      }
    }
    std::sort(tight.begin(), tight.end());
    slot->tight_begin.assign(states + 1, 0);
    slot->tight.reserve(tight.size());
    for (const auto& [state, predecessor] : tight) {
      ++slot->tight_begin[state + 1];
      slot->tight.push_back(predecessor);
    }
    for (std::size_t i = 0; i < states; ++i) slot->tight_begin[i + 1] += slot->tight_begin[i];
    return *slot;
  }

  Redistribution find_plan(Context& context, LayoutCode from, LayoutCode to) {
    MoveGraph& graph = *context.graph;
    const std::uint32_t start = graph.index_of(from);
    const std::uint32_t goal = graph.index_of(to);
    Redistribution result;
    result.peak = context.local[start];
    if (start == goal) return result;
    const Source& source = source_of(context, start);
    MESHPLAN_CHECK(source.cost[goal] != kFar);
    const Bytes peak_limit = source.peak[goal];

    // Steps left to the goal, backwards along the edges of cheapest paths.
    distance_.assign(graph.size(), -1);
    std::vector<std::uint32_t>& queue = queue_;
    queue.assign(1, goal);
    distance_[goal] = 0;
    for (std::size_t head = 0; head < queue.size() && distance_[start] < 0; ++head) {
      const std::uint32_t state = queue[head];
      for (std::uint32_t i = source.tight_begin[state]; i < source.tight_begin[state + 1]; ++i) {
        const std::uint32_t before = source.tight[i];
        if (distance_[before] >= 0 || context.local[before] > peak_limit) continue;
        if (!fits(context, source, before, state, peak_limit)) continue;
        distance_[before] = distance_[state] + 1;
        queue.push_back(before);
      }
    }
    MESHPLAN_CHECK(distance_[start] > 0);
    Ticks time = 0;
    for (std::uint32_t state = start; state != goal;) {
      const Move* chosen = nullptr;
      Ticks price = 0;
      const auto moves = graph.moves(state);
      const std::vector<Ticks>& prices = prices_from(context, state);
      for (std::size_t i = 0; i < moves.size() && chosen == nullptr; ++i) {
        const Move& move = moves[i];
        if (distance_[move.to] != distance_[state] - 1 || distance_[move.to] < 0) continue;
        if (prices[i] < 0 || plus(source.cost[state], prices[i]) != source.cost[move.to]) continue;
        if (move_peak(context, state, move) > peak_limit) continue;
        chosen = &move;
        price = prices[i];
      }
      MESHPLAN_CHECK(chosen != nullptr);
      if (!chosen->relabel) {
        result.steps.push_back(step_of(context, state, *chosen, price));
        time = plus(time, price);
        result.bytes += result.steps.back().bytes_moved;
        result.peak = std::max(result.peak, move_peak(context, state, *chosen));
      } else if (!result.steps.empty()) {
        result.steps.back().after = decode_placements(axis_sizes_, graph.state(chosen->to));
      }
      state = chosen->to;
    }
    if (!result.steps.empty()) result.steps.back().after = decode_placements(axis_sizes_, to);
    result.time = seconds_of(time);
    return result;
  }

  /// Does a cheapest move lead from one state to the other under the memory limit?
  bool fits(Context& context,
            const Source& source,
            std::uint32_t from,
            std::uint32_t to,
            Bytes peak_limit) {
    if (context.local[from] + context.local[to] <= peak_limit) return true;
    const auto moves = context.graph->moves(from);
    const std::vector<Ticks>& prices = prices_from(context, from);
    for (std::size_t i = 0; i < moves.size(); ++i) {
      if (moves[i].to == to && works_in_place(moves[i]) && prices[i] >= 0 &&
          plus(source.cost[from], prices[i]) == source.cost[to] &&
          context.local[from] <= peak_limit) {
        return true;
      }
    }
    return false;
  }

  RedistributionStep step_of(const Context& context,
                             std::uint32_t from,
                             const Move& move,
                             Ticks price) const {
    RedistributionStep step = step_between(axis_sizes_,
                                           move,
                                           context.graph->state(from),
                                           context.local[from],
                                           context.graph->state(move.to),
                                           context.local[move.to]);
    step.time = seconds_of(price);
    return step;
  }

  std::vector<std::int64_t> axis_sizes_;
  CollectivePrice price_;
  Division division_;
  std::map<std::pair<int, unsigned>, std::unique_ptr<MoveGraph>>
      graphs_;  ///< by rank and reductions
  std::map<std::tuple<std::vector<std::int64_t>, Bytes, unsigned>, std::unique_ptr<Context>>
      contexts_;
  std::unordered_map<CallKey, Ticks, CallHash> prices_;
  std::vector<std::unique_ptr<Memo>> memos_;
  std::unordered_map<std::uint64_t, std::vector<Memo*>> memo_index_;
  Memo* last_memo_ = nullptr;
  std::map<std::vector<int>, std::unique_ptr<Impl>> parts_;  ///< by the axes that they redistribute
  std::map<std::tuple<std::vector<std::int64_t>, Bytes, std::string>, Redistribution> used_plans_;
  // Scratch space that would otherwise be allocated for every query.
  std::vector<std::pair<Ticks, std::uint32_t>> heap_;
  std::vector<std::int32_t> distance_;
  std::vector<std::uint32_t> queue_;
};

RedistributionPlanner::RedistributionPlanner(std::vector<std::int64_t> axis_sizes,
                                             CollectivePrice price,
                                             Division division)
    : impl_(std::make_unique<Impl>(std::move(axis_sizes), std::move(price), division)) {}
RedistributionPlanner::RedistributionPlanner(RedistributionPlanner&&) noexcept = default;
RedistributionPlanner& RedistributionPlanner::operator=(RedistributionPlanner&&) noexcept = default;
RedistributionPlanner::~RedistributionPlanner() = default;

Result<const Redistribution*> RedistributionPlanner::plan(std::span<const std::int64_t> shape,
                                                          Bytes dtype_bytes,
                                                          std::span<const Placement> from,
                                                          std::span<const Placement> to) {
  return impl_->plan(shape, dtype_bytes, from, to);
}

std::span<const std::int64_t> RedistributionPlanner::axis_sizes() const {
  return impl_->axis_sizes();
}

Result<std::vector<Seconds>> RedistributionPlanner::costs_from(
    std::span<const std::int64_t> shape,
    Bytes dtype_bytes,
    std::span<const Placement> from,
    std::span<const Placements> layouts) {
  return impl_->costs_from(shape, dtype_bytes, from, layouts);
}

Result<std::vector<Seconds>> RedistributionPlanner::cost_table(
    std::span<const std::int64_t> shape, Bytes dtype_bytes, std::span<const Placements> layouts) {
  return impl_->cost_table(shape, dtype_bytes, layouts);
}

}  // namespace meshplan

// SPDX-License-Identifier: Apache-2.0
// Exact reductions of a cost graph, repeated until nothing changes:
//
//   forbidden   a strategy that is forbidden, or whose every pair on some edge is, goes;
//   dominated   strategy s goes if a strategy t uses no more memory anywhere and
//               cost(s) - cost(t) + sum over edges of min over the neighbour of (row s - row t) >=
//               0;
//   single      a node with one strategy left becomes part of its neighbours' costs and of the
//   usage
//               that is there in any case;
//   determined  where each strategy of a leaves one strategy of b, b becomes part of a; so does a
//   node
//               without memory and with one neighbour;
//   separable   an edge whose table is a sum of a row and a column part becomes part of both nodes;
//   parallel    edges between the same two nodes are added up;
//   moments     at which the limit cannot be exceeded, or only if it is at the moment before or
//               after as well, go; uses of equal intervals are added up; what all strategies of a
//               node use is used in any case.
//
// Each keeps at least one optimal solution. Sums are exact as long as they are below 2^53. Work is
// limited: where nodes have thousands of strategies or edges, what is left unreduced is as good.
#include <algorithm>
#include <deque>
#include <functional>
#include <numeric>

#include "lib/check.h"
#include "search/solver/problem.h"

namespace meshplan::solver {
namespace {

class Reducer {
 public:
  Reducer(Problem problem, const std::function<bool()>& stop)
      : pool_(std::move(problem.pool)),
        constant_(problem.constant),
        room_(std::move(problem.room)),
        when_(std::move(problem.when)),
        limit_(problem.limit),
        cost_tolerance_(problem.cost_tolerance),
        usage_tolerance_(problem.usage_tolerance),
        fixed_(room_.size() + 1, 0),
        back_(problem.nodes.size()),
        stop_(stop) {
    nodes_.resize(problem.nodes.size());
    for (std::size_t v = 0; v < nodes_.size(); ++v) {
      nodes_[v].costs = std::move(problem.nodes[v].costs);
      nodes_[v].uses = std::move(problem.nodes[v].uses);
      nodes_[v].numbers.resize(nodes_[v].costs.size());
      std::iota(nodes_[v].numbers.begin(), nodes_[v].numbers.end(), 0);
      nodes_[v].strategies = static_cast<int>(nodes_[v].costs.size());
    }
    double entries = 0;
    for (const Problem::Edge& edge : problem.edges)
      entries += static_cast<double>(pool_.table(edge.table).costs.size());
    most_work_ = kMostWork + kWorkPerEntry * entries;
    most_made_ = kMostMade + kMadePerEntry * entries;
    for (const Problem::Edge& edge : problem.edges) add_edge(edge.from, edge.to, edge.table);
  }

  Reduced run() {
    compress_moments();
    for (std::size_t v = 0; v < nodes_.size(); ++v) look_at(static_cast<int>(v));
    while (!impossible_ && !ended()) {
      if (quick_step()) continue;
      if (slow_step()) continue;
      if (!compress_moments()) break;
    }
    if (!impossible_) compress_moments();
    return finish();
  }

 private:
  static constexpr double kMostWork = 3e9;  ///< numbers looked at: some seconds
  static constexpr double kWorkPerEntry = 200;
  static constexpr double kMostMade = 2e7;  ///< entries of tables, which all stay in the pool
  static constexpr double kMadePerEntry = 20;
  static constexpr double kLargeMerge = 1 << 18;  ///< entries that a merge may make in any case
  static constexpr double kMergeGrowth = 2;       ///< and in terms of those that it replaces
  static constexpr double kDominanceShare = 0.1;  ///< of the work, for one node
  static constexpr int kMostMomentPasses = 50;

  bool ended() const { return work_ > most_work_ || made_ > most_made_ || stop_(); }

  int add_table(std::size_t rows, std::size_t columns, const std::vector<double>& costs) {
    made_ += static_cast<double>(costs.size());
    work_ += 8 * static_cast<double>(costs.size());
    return pool_.add(static_cast<int>(rows), static_cast<int>(columns), costs);
  }

  struct Node {
    std::vector<int> numbers;  ///< of the strategies that are left
    std::vector<double> costs;
    std::vector<Use> uses;
    std::vector<int> edges;  ///< removed ones stay until half of them are
    std::vector<int> fresh;  ///< not yet looked at for strategies that they forbid
    int degree = 0;          ///< edges that are not removed
    int strategies = 0;      ///< at the beginning
    bool alive = true;
    bool queued = false;    ///< for a quick look
    bool changed = false;   ///< since dominated strategies were looked for
    bool combined = false;  ///< uses are sorted and added up
  };
  struct Edge {
    int a = 0;
    int b = 0;
    int table = 0;  ///< rows: a
    bool alive = true;
  };
  /// What is known of a table.
  struct Shape {
    bool known = false;
    bool separable = false;
    bool determines = false;  ///< every row has one entry that is not forbidden
  };

  Node& node(int v) { return nodes_[static_cast<std::size_t>(v)]; }
  Edge& edge(int e) { return edges_[static_cast<std::size_t>(e)]; }

  /// Something about the node changed.
  void look_at(int v) {
    Node& own = node(v);
    work_ += 1;
    if (!own.alive) return;
    if (!own.queued) {
      own.queued = true;
      quick_.push_back(v);
    }
    if (!own.changed) {
      own.changed = true;
      slow_.push_back(v);
    }
  }

  /// What is cheap to find: determined nodes, forbidden strategies, single strategies, leaves.
  bool quick_step() {
    if (!new_edges_.empty()) {
      const int e = new_edges_.front();
      new_edges_.pop_front();
      if (edge(e).alive) merge_ends(e);
      return true;
    }
    if (quick_.empty()) return false;
    const int v = quick_.front();
    quick_.pop_front();
    node(v).queued = false;
    if (!node(v).alive) return true;
    remove_forbidden(v);
    if (impossible_ || !node(v).alive) return true;
    if (node(v).costs.size() == 1) {
      fold_single(v);
    } else if (node(v).degree <= 1 && uses_nothing(v)) {
      fold_leaf(v);
    }
    return true;
  }

  bool slow_step() {
    if (slow_.empty()) return false;
    const int v = slow_.front();
    slow_.pop_front();
    node(v).changed = false;
    if (node(v).alive) remove_dominated(v);
    return true;
  }

  bool uses_nothing(int v) {
    if (!node(v).uses.empty()) combine_uses(node(v));
    return node(v).uses.empty();
  }

  // ---- edges ----

  /// The table of an edge with the strategies of `v` as rows.
  int table_from(const Edge& of, int v) {
    return of.a == v ? of.table : pool_.transposed(of.table);
  }
  int other(const Edge& of, int v) const { return of.a == v ? of.b : of.a; }

  const Shape& shape(int table) {
    const auto at = static_cast<std::size_t>(table);
    if (shapes_.size() <= at) shapes_.resize(static_cast<std::size_t>(pool_.size()));
    Shape& known = shapes_[at];
    if (known.known) return known;
    known.known = true;
    const CostTable& of = pool_.table(table);
    const auto rows = static_cast<std::size_t>(of.rows);
    const auto columns = static_cast<std::size_t>(of.columns);
    const std::vector<double>& costs = of.costs;
    known.separable = costs[0] != kForbidden;
    for (std::size_t r = 0; r < rows && known.separable; ++r) {
      const double shift = costs[r * columns] - costs[0];
      known.separable = shift != kForbidden;
      for (std::size_t c = 0; c < columns && known.separable; ++c)
        known.separable =
            costs[r * columns + c] != kForbidden && costs[r * columns + c] - costs[c] == shift;
    }
    known.determines = true;
    for (std::size_t r = 0; r < rows && known.determines; ++r) {
      const auto begin = costs.begin() + static_cast<std::ptrdiff_t>(r * columns);
      known.determines = std::count(begin, begin + of.columns, kForbidden) == of.columns - 1;
    }
    return known;
  }

  void add_edge(int a, int b, int table) {
    while (true) {
      if (shape(table).separable) {
        const CostTable& of = pool_.table(table);
        const auto columns = static_cast<std::size_t>(of.columns);
        for (std::size_t r = 0; r < static_cast<std::size_t>(of.rows); ++r)
          node(a).costs[r] += of.costs[r * columns];
        for (std::size_t c = 0; c < columns; ++c) node(b).costs[c] += of.costs[c] - of.costs[0];
        look_at(a);
        look_at(b);
        return;
      }
      const int parallel = edge_between(a, b);
      if (parallel < 0) break;
      const CostTable& first = pool_.table(table_from(edge(parallel), a));
      const CostTable& second = pool_.table(table);
      std::vector<double> sum = first.costs;
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += second.costs[i];
      remove_edge(parallel);
      table = add_table(
          static_cast<std::size_t>(second.rows), static_cast<std::size_t>(second.columns), sum);
    }
    const int made = static_cast<int>(edges_.size());
    edges_.push_back({a, b, table, true});
    for (const int v : {a, b}) {
      node(v).edges.push_back(made);
      node(v).fresh.push_back(made);
      ++node(v).degree;
      look_at(v);
    }
    new_edges_.push_back(made);
  }

  int edge_between(int a, int b) {
    const int fewer = node(a).edges.size() <= node(b).edges.size() ? a : b;
    const int wanted = fewer == a ? b : a;
    work_ += static_cast<double>(node(fewer).edges.size());
    for (const int e : node(fewer).edges) {
      if (edge(e).alive && other(edge(e), fewer) == wanted) return e;
    }
    return -1;
  }

  void remove_edge(int e) {
    edge(e).alive = false;
    for (const int v : {edge(e).a, edge(e).b}) {
      Node& own = node(v);
      --own.degree;
      if (2 * static_cast<std::size_t>(own.degree) + 4 < own.edges.size())
        std::erase_if(own.edges, [&](int other_edge) { return !edge(other_edge).alive; });
      if (own.degree <= 1) look_at(v);
    }
  }

  /// A copy, since edges change while one walks over them.
  std::vector<int> live_edges(int v) {
    std::vector<int> live;
    work_ += static_cast<double>(node(v).edges.size());
    for (const int e : node(v).edges) {
      if (edge(e).alive) live.push_back(e);
    }
    return live;
  }

  /// Where one end of the edge determines the other, that becomes part of it.
  void merge_ends(int e) {
    const int a = edge(e).a;
    const int b = edge(e).b;
    const int from_a = table_from(edge(e), a);
    const int from_b = table_from(edge(e), b);
    const bool a_determines = shape(from_a).determines && may_take(a, b);
    const bool b_determines = shape(from_b).determines && may_take(b, a);
    if (a_determines && !(b_determines && node(b).degree > node(a).degree)) {
      merge(a, b, e, determined_columns(from_a));
    } else if (b_determines) {
      merge(b, a, e, determined_columns(from_b));
    }
  }

  /// Whether the tables do not grow much when `b` becomes part of `a`: pairs of large nodes that
  /// determine both ends would be combined with all other neighbours of theirs.
  bool may_take(int a, int b) {
    double others = 0;
    for (const int e : node(b).edges) {
      if (edge(e).alive && other(edge(e), b) != a)
        others += static_cast<double>(node(other(edge(e), b)).costs.size());
    }
    const double made = others * static_cast<double>(node(a).costs.size());
    const double before = others * static_cast<double>(node(b).costs.size()) +
                          static_cast<double>(node(a).costs.size() * node(b).costs.size());
    return made <= std::max(kLargeMerge, kMergeGrowth * before);
  }

  std::vector<int> determined_columns(int table) const {
    const CostTable& of = pool_.table(table);
    std::vector<int> columns;
    for (int r = 0; r < of.rows; ++r) {
      const auto begin = of.costs.begin() + std::ptrdiff_t{r} * of.columns;
      columns.push_back(static_cast<int>(std::min_element(begin, begin + of.columns) - begin));
    }
    return columns;
  }

  // ---- one node ----

  void remove_forbidden(int v) {
    Node& own = node(v);
    std::vector<char> gone;
    const auto check = [&](const std::vector<double>& costs) {
      for (std::size_t s = 0; s < costs.size(); ++s) {
        if (costs[s] != kForbidden) continue;
        gone.resize(own.costs.size(), 0);
        gone[s] = 1;
      }
    };
    check(own.costs);
    work_ += static_cast<double>(own.costs.size() * (own.fresh.size() + 1));
    for (const int e : own.fresh) {
      if (edge(e).alive) check(pool_.row_minima(table_from(edge(e), v)));
    }
    own.fresh.clear();
    if (gone.empty()) return;
    if (std::count(gone.begin(), gone.end(), 0) == 0) {
      impossible_ = Impossible{true, 0, 0};
      return;
    }
    keep_rest(v, gone);
  }

  void remove_dominated(int v) {
    Node& own = node(v);
    if (own.costs.size() == 1) return;
    if (!own.combined) combine_uses(own);
    std::vector<int> tables;
    for (const int e : own.edges) {
      if (edge(e).alive) tables.push_back(table_from(edge(e), v));
    }
    work_ += static_cast<double>(tables.size() * own.costs.size());
    std::vector<double> least = own.costs;
    for (const int table : tables) {
      const std::vector<double>& minima = pool_.row_minima(table);
      for (std::size_t s = 0; s < least.size(); ++s) least[s] += minima[s];
    }
    std::vector<char> gone(least.size(), 0);
    mark_dominated(own, tables, least, gone);
    if (std::count(gone.begin(), gone.end(), 1) > 0) keep_rest(v, gone);
  }

  void mark_dominated(const Node& own,
                      const std::vector<int>& tables,
                      const std::vector<double>& least,
                      std::vector<char>& gone) {
    const std::size_t count = own.costs.size();
    std::vector<std::size_t> order;
    for (std::size_t s = 0; s < count; ++s) order.push_back(s);
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return least[a] < least[b];
    });
    // usage per strategy, one row each, so that most comparisons end at the first numbers
    const std::size_t width = own.uses.size();
    usage_.resize(count * width);
    for (std::size_t i = 0; i < width; ++i) {
      for (std::size_t s = 0; s < count; ++s) usage_[s * width + i] = own.uses[i].usage[s];
    }
    std::vector<const double*> costs;
    std::vector<const double*> minima;
    std::vector<std::size_t> columns;
    for (const int table : tables) {
      minima.push_back(pool_.row_minima(table).data());
      costs.push_back(pool_.table(table).costs.data());
      columns.push_back(static_cast<std::size_t>(pool_.table(table).columns));
    }
    const double most = work_ + kDominanceShare * most_work_;
    for (const std::size_t s : order) {
      if (work_ > most || ended()) return;
      for (const std::size_t t : order) {
        if (least[t] > least[s]) break;  // cheaper in any case
        work_ += 4;
        if (t == s || gone[t] != 0) continue;
        const double* const more = usage_.data() + s * width;
        const double* const less = usage_.data() + t * width;
        bool never_more = true;
        for (std::size_t k = 0; k < width && never_more; ++k) never_more = less[k] <= more[k];
        if (!never_more) continue;
        // `surplus` is what s costs more in any case, edges not yet looked at counted at most
        double surplus = least[s] - least[t];
        for (std::size_t e = 0; e < costs.size() && surplus >= 0; ++e) {
          const double* const row = costs[e] + s * columns[e];
          const double* const than = costs[e] + t * columns[e];
          const double bound = minima[e][s] - minima[e][t];
          double difference = kForbidden;
          work_ += static_cast<double>(columns[e]);
          for (std::size_t c = 0; c < columns[e]; ++c) {
            if (row[c] != kForbidden) difference = std::min(difference, row[c] - than[c]);
          }
          surplus += difference - bound;
        }
        if (surplus >= 0) {
          gone[s] = 1;
          break;
        }
      }
    }
  }

  void keep_rest(int v, const std::vector<char>& gone) {
    Node& own = node(v);
    std::vector<std::size_t> kept;
    for (std::size_t s = 0; s < gone.size(); ++s) {
      if (gone[s] == 0) kept.push_back(s);
    }
    const auto shrink = [&](auto& list) {
      for (std::size_t i = 0; i < kept.size(); ++i) list[i] = list[kept[i]];
      list.resize(kept.size());
    };
    shrink(own.numbers);
    shrink(own.costs);
    for (Use& use : own.uses) shrink(use.usage);
    for (const int e : live_edges(v)) {
      // edges are replaced one by one; none of the others is touched by that
      const int u = other(edge(e), v);
      const CostTable& from = pool_.table(table_from(edge(e), v));
      const auto columns = static_cast<std::size_t>(from.columns);
      std::vector<double> costs;
      costs.reserve(kept.size() * columns);
      for (const std::size_t s : kept) {
        const auto begin = from.costs.begin() + static_cast<std::ptrdiff_t>(s * columns);
        costs.insert(costs.end(), begin, begin + from.columns);
      }
      remove_edge(e);
      add_edge(v, u, add_table(kept.size(), columns, costs));
    }
    own.combined = false;
    look_at(v);
  }

  void remove_node(int v) {
    for (const int e : live_edges(v)) {
      look_at(other(edge(e), v));
      remove_edge(e);
    }
    node(v) = Node{};
    node(v).alive = false;
  }

  void fold_single(int v) {
    Node& own = node(v);
    constant_ += own.costs[0];
    for (const Use& use : own.uses) use_always(use, use.usage[0]);
    for (const int e : live_edges(v)) {
      const int u = other(edge(e), v);
      const std::vector<double>& row = pool_.table(table_from(edge(e), v)).costs;
      for (std::size_t c = 0; c < row.size(); ++c) node(u).costs[c] += row[c];
    }
    back_.fixed(v, own.numbers[0]);
    remove_node(v);
  }

  /// A node without memory and with at most one neighbour.
  void fold_leaf(int v) {
    Node& own = node(v);
    if (own.degree == 0) {
      const auto best = std::min_element(own.costs.begin(), own.costs.end());
      constant_ += *best;
      back_.fixed(v, own.numbers[static_cast<std::size_t>(best - own.costs.begin())]);
      remove_node(v);
      return;
    }
    const int e = live_edges(v).front();
    const int u = other(edge(e), v);
    const CostTable& table = pool_.table(table_from(edge(e), u));
    std::vector<int> choice;
    for (int r = 0; r < table.rows; ++r) {
      const double* row = table.costs.data() + std::ptrdiff_t{r} * table.columns;
      int best = 0;
      for (int c = 1; c < table.columns; ++c) {
        if (row[c] + own.costs[static_cast<std::size_t>(c)] <
            row[best] + own.costs[static_cast<std::size_t>(best)])
          best = c;
      }
      choice.push_back(best);
    }
    merge(u, v, e, choice);
  }

  /// Strategy s of `a` decides that `b` takes choice[s].
  void merge(int a, int b, int between, const std::vector<int>& choice) {
    Node& into = node(a);
    Node& from = node(b);
    const std::size_t count = choice.size();
    {
      const CostTable& table = pool_.table(table_from(edge(between), a));
      for (std::size_t s = 0; s < count; ++s) {
        const auto c = static_cast<std::size_t>(choice[s]);
        into.costs[s] +=
            table.costs[s * static_cast<std::size_t>(table.columns) + c] + from.costs[c];
      }
    }
    for (const Use& use : from.uses) {
      Use made{use.begin, use.end, std::vector<double>(count)};
      for (std::size_t s = 0; s < count; ++s)
        made.usage[s] = use.usage[static_cast<std::size_t>(choice[s])];
      into.uses.push_back(std::move(made));
    }
    std::vector<int> record(static_cast<std::size_t>(into.strategies), 0);
    for (std::size_t s = 0; s < count; ++s)
      record[static_cast<std::size_t>(into.numbers[s])] =
          from.numbers[static_cast<std::size_t>(choice[s])];
    back_.determined(b, a, std::move(record));
    remove_edge(between);
    for (const int e : live_edges(b)) {
      const int u = other(edge(e), b);
      const CostTable& table = pool_.table(table_from(edge(e), b));
      std::vector<double> costs;
      costs.reserve(count * static_cast<std::size_t>(table.columns));
      for (const int c : choice) {
        const auto begin = table.costs.begin() + std::ptrdiff_t{c} * table.columns;
        costs.insert(costs.end(), begin, begin + table.columns);
      }
      const auto columns = static_cast<std::size_t>(table.columns);
      remove_edge(e);
      add_edge(a, u, add_table(count, columns, costs));
    }
    remove_node(b);
    into.combined = false;
    look_at(a);
  }

  // ---- moments ----

  void use_always(const Use& use, double usage) {
    fixed_[static_cast<std::size_t>(use.begin)] += usage;
    fixed_[static_cast<std::size_t>(use.end)] -= usage;
  }

  /// Equal intervals are added up, what all strategies use becomes fixed; whether anything changed.
  bool combine_uses(Node& own) {
    std::stable_sort(own.uses.begin(), own.uses.end(), [](const Use& a, const Use& b) {
      return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
    });
    const std::size_t before = own.uses.size();
    std::size_t kept = 0;
    for (std::size_t i = 0; i < before; ++i) {
      Use& use = own.uses[i];
      if (use.begin >= use.end) continue;
      if (kept > 0 && own.uses[kept - 1].begin == use.begin && own.uses[kept - 1].end == use.end) {
        for (std::size_t s = 0; s < use.usage.size(); ++s)
          own.uses[kept - 1].usage[s] += use.usage[s];
        continue;
      }
      if (kept != i) own.uses[kept] = std::move(use);
      ++kept;
    }
    own.uses.resize(kept);
    std::erase_if(own.uses, [&](Use& use) {
      const double least = *std::min_element(use.usage.begin(), use.usage.end());
      if (least != 0) {
        use_always(use, least);
        for (double& usage : use.usage) usage -= least;
      }
      return std::all_of(use.usage.begin(), use.usage.end(), [](double u) { return u == 0; });
    });
    own.combined = true;
    return own.uses.size() != before;
  }

  void apply_fixed() {
    double sum = 0;
    for (std::size_t t = 0; t < room_.size(); ++t) {
      sum += fixed_[t];
      room_[t] -= sum;
    }
    std::fill(fixed_.begin(), fixed_.end(), 0.0);
  }

  /// Keeps the moments that can decide whether the limit holds; whether there is more to do now.
  bool compress_moments() {
    for (Node& own : nodes_) {
      if (own.alive && !own.combined) combine_uses(own);
    }
    apply_fixed();
    check_room();
    if (impossible_) return false;
    std::vector<double> most(room_.size() + 1, 0);
    for (const Node& own : nodes_) {
      for (const Use& use : own.uses) {
        const double usage = *std::max_element(use.usage.begin(), use.usage.end());
        most[static_cast<std::size_t>(use.begin)] += usage;
        most[static_cast<std::size_t>(use.end)] -= usage;
      }
    }
    std::vector<char> keep(room_.size(), 0);
    double sum = 0;
    for (std::size_t t = 0; t < room_.size(); ++t) {
      sum += most[t];
      keep[t] = sum > room_[t] ? 1 : 0;
    }
    keep_moments(keep);
    for (int pass = 0; pass < kMostMomentPasses && drop_covered_moments(); ++pass) {
    }
    check_room();
    return !impossible_ && !(quick_.empty() && slow_.empty() && new_edges_.empty());
  }

  /// Nothing fits where more than the limit is used in any case.
  void check_room() {
    for (std::size_t t = 0; t < room_.size(); ++t) {
      if (room_[t] < -usage_tolerance_ &&
          (!impossible_ || limit_ - room_[t] > impossible_->least_usage))
        impossible_ = Impossible{false, limit_ - room_[t] - usage_tolerance_, when_[t]};
    }
  }

  /// Between neighbours p and q: if no use ends at q and the room there is no larger, p needs no
  /// look; if no use begins at q and the room at p is no larger, q needs none. Begins and ends of
  /// what is dropped move to the next moment that is kept. Whether any was dropped.
  bool drop_covered_moments() {
    std::vector<char> begins(room_.size() + 1, 0);
    std::vector<char> ends(room_.size() + 1, 0);
    for (const Node& own : nodes_) {
      work_ += 1 + static_cast<double>(own.uses.size());
      for (const Use& use : own.uses) {
        begins[static_cast<std::size_t>(use.begin)] = 1;
        ends[static_cast<std::size_t>(use.end)] = 1;
      }
    }
    work_ += static_cast<double>(room_.size());
    std::vector<char> keep(room_.size(), 1);
    std::vector<std::size_t> kept;
    for (std::size_t q = 0; q < room_.size(); ++q) {
      while (!kept.empty()) {
        const std::size_t p = kept.back();
        if (ends[q] == 0 && room_[q] <= room_[p]) {
          keep[p] = 0;
          begins[q] = std::max(begins[q], begins[p]);
          ends[q] = std::max(ends[q], ends[p]);
          kept.pop_back();
          continue;
        }
        if (begins[q] == 0 && room_[p] <= room_[q]) {
          keep[q] = 0;
          ends[q + 1] = std::max(ends[q + 1], ends[q]);
        }
        break;
      }
      if (keep[q] != 0) kept.push_back(q);
    }
    if (kept.size() == room_.size()) return false;
    keep_moments(keep);
    return true;
  }

  void keep_moments(const std::vector<char>& keep) {
    std::vector<int> number(keep.size() + 1, 0);
    std::size_t kept = 0;
    for (std::size_t t = 0; t < keep.size(); ++t) {
      number[t] = static_cast<int>(kept);
      if (keep[t] == 0) continue;
      room_[kept] = room_[t];
      when_[kept] = when_[t];
      ++kept;
    }
    number[keep.size()] = static_cast<int>(kept);
    if (kept == keep.size()) return;
    room_.resize(kept);
    when_.resize(kept);
    fixed_.assign(kept + 1, 0);
    for (std::size_t v = 0; v < nodes_.size(); ++v) {
      Node& own = nodes_[v];
      for (Use& use : own.uses) {
        use.begin = number[static_cast<std::size_t>(use.begin)];
        use.end = number[static_cast<std::size_t>(use.end)];
      }
      if (combine_uses(own)) look_at(static_cast<int>(v));
    }
    apply_fixed();
  }

  // ---- the result ----

  Reduced finish() {
    Reduced result;
    result.impossible = impossible_;
    Problem& made = result.problem;
    made.constant = constant_;
    made.limit = limit_;
    made.cost_tolerance = cost_tolerance_;
    made.usage_tolerance = usage_tolerance_;
    if (!impossible_) {
      made.room = room_;
      made.when = when_;
      std::vector<int> number(nodes_.size(), -1);
      for (std::size_t v = 0; v < nodes_.size(); ++v) {
        if (!nodes_[v].alive) continue;
        number[v] = static_cast<int>(made.nodes.size());
        back_.remains(static_cast<int>(v), std::move(nodes_[v].numbers));
        made.nodes.push_back({std::move(nodes_[v].costs), std::move(nodes_[v].uses)});
      }
      for (Edge& of : edges_) {
        if (!of.alive) continue;
        int a = number[static_cast<std::size_t>(of.a)];
        int b = number[static_cast<std::size_t>(of.b)];
        int table = of.table;
        if (a > b) {
          std::swap(a, b);
          table = pool_.transposed(table);
        }
        const CostTable& costs = pool_.table(table);
        made.edges.push_back({a, b, made.pool.add(costs.rows, costs.columns, costs.costs)});
      }
    }
    result.back = std::move(back_);
    return result;
  }

  std::vector<Node> nodes_;
  std::vector<Edge> edges_;
  TablePool pool_;
  double constant_;
  std::vector<double> room_;
  std::vector<std::int64_t> when_;
  double limit_;
  double cost_tolerance_;
  double usage_tolerance_;
  std::vector<double> fixed_;  ///< changes of the usage that is there in any case, not yet in room_
  BackMap back_;
  const std::function<bool()>& stop_;
  double work_ = 0;  ///< numbers looked at
  double most_work_ = 0;
  double made_ = 0;  ///< entries of new tables
  double most_made_ = 0;
  std::deque<int> new_edges_;
  std::deque<int> quick_;
  std::deque<int> slow_;
  std::vector<Shape> shapes_;  ///< per table
  std::vector<double> usage_;  ///< scratch
  std::optional<Impossible> impossible_;
};

}  // namespace

Reduced reduce(Problem problem, const std::function<bool()>& stop) {
  return Reducer(std::move(problem), stop).run();
}

}  // namespace meshplan::solver

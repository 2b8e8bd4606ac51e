// SPDX-License-Identifier: Apache-2.0
#include "search/min_sum.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <iterator>
#include <limits>
#include <queue>
#include <set>
#include <utility>

#include "lib/check.h"
#include "search/best_instructions.h"
#include "search/elimination_kernel.h"

namespace meshplan {

const double kForbidden = std::numeric_limits<double>::infinity();

namespace {

/// Eight sums at a time; the compiler maps them to what the machine has.
using Wide __attribute__((vector_size(64))) = double;
constexpr std::size_t kWide = sizeof(Wide) / sizeof(double);

/// out[u][w] = min(out[u][w], costs[v] + left[v][u] + right[v][w]) over all v. Blocks of four rows
/// and eight columns of `out` stay in registers while v runs.
MESHPLAN_BEST_INSTRUCTIONS
void min_plus_product(const std::vector<double>& costs,
                      const double* left,
                      const double* right,
                      std::size_t rows,
                      std::size_t width,
                      double* out) {
  constexpr std::size_t kRows = 4;
  const double forbidden = kForbidden;
  struct Base {
    std::size_t value;
    double rows[kRows];
  };
  std::vector<Base> bases;
  bases.reserve(costs.size());
  for (std::size_t u = 0; u < rows; u += kRows) {
    const std::size_t count = std::min(kRows, rows - u);
    bases.clear();
    for (std::size_t v = 0; v < costs.size(); ++v) {
      Base base{v, {forbidden, forbidden, forbidden, forbidden}};
      bool any = false;
      for (std::size_t k = 0; k < count; ++k) {
        base.rows[k] = costs[v] + left[v * rows + u + k];
        any = any || base.rows[k] != forbidden;
      }
      if (any) bases.push_back(base);
    }
    double* to = out + u * width;
    if (count < kRows || width < kWide) {
      for (const Base& base : bases) {
        const double* from = right + base.value * width;
        for (std::size_t k = 0; k < count; ++k) {
          for (std::size_t w = 0; w < width; ++w)
            to[k * width + w] = std::min(to[k * width + w], base.rows[k] + from[w]);
        }
      }
      continue;
    }
    for (std::size_t begin = 0; begin < width; begin += kWide) {
      const std::size_t w = std::min(begin, width - kWide);  // the last block may overlap
      Wide least[kRows];
      for (std::size_t k = 0; k < kRows; ++k)
        std::memcpy(&least[k], to + k * width + w, sizeof(Wide));
      for (const Base& base : bases) {
        Wide from;
        std::memcpy(&from, right + base.value * width + w, sizeof(Wide));
        for (std::size_t k = 0; k < kRows; ++k) {
          const Wide sum = from + base.rows[k];
          least[k] = sum < least[k] ? sum : least[k];
        }
      }
      for (std::size_t k = 0; k < kRows; ++k)
        std::memcpy(to + k * width + w, &least[k], sizeof(Wide));
    }
  }
}

/// The most that `kept` is dearer than `gone` in any column that `gone` allows; may end once it is
/// above `enough`.
MESHPLAN_BEST_INSTRUCTIONS
double most_lost(const double* kept, const double* gone, std::size_t columns, double enough) {
  double most = -kForbidden;
  std::size_t w = 0;
  for (; w + kWide <= columns && most <= enough; w += kWide) {
    Wide dearer;
    Wide cheaper;
    std::memcpy(&dearer, kept + w, sizeof(Wide));
    std::memcpy(&cheaper, gone + w, sizeof(Wide));
    const Wide lost = dearer - cheaper;  // no number where both are forbidden
    for (std::size_t k = 0; k < kWide; ++k) most = lost[k] > most ? lost[k] : most;
  }
  for (; w < columns && most <= enough; ++w) {
    const double lost = kept[w] - gone[w];
    most = lost > most ? lost : most;
  }
  return most;
}

MESHPLAN_BEST_INSTRUCTIONS
void add_row(std::vector<double>& sums, const double* row) {
  for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += row[i];
}

/// The first place of the least number.
MESHPLAN_BEST_INSTRUCTIONS
std::size_t least_place(const double* row, std::size_t columns) {
  Wide wide;
  for (std::size_t k = 0; k < kWide; ++k) wide[k] = row[0];
  std::size_t w = 0;
  for (; w + kWide <= columns; w += kWide) {
    Wide next;
    std::memcpy(&next, row + w, sizeof(Wide));
    wide = next < wide ? next : wide;
  }
  double least = row[0];
  for (std::size_t k = 0; k < kWide; ++k) least = std::min(least, wide[k]);
  for (; w < columns; ++w) least = std::min(least, row[w]);
  return static_cast<std::size_t>(std::find(row, row + columns, least) - row);
}

}  // namespace

TableNumber MinSum::add_table(CostTable table) {
  MESHPLAN_CHECK(table.costs.size() ==
                 static_cast<std::size_t>(table.rows) * static_cast<std::size_t>(table.columns));
  entries_ += table.costs.size();
  ++computed_;
  tables_.push_back({std::move(table)});
  return static_cast<TableNumber>(tables_.size()) - 1;
}

void MinSum::clear() {
  unary_.clear();
  edges_.clear();
}

int MinSum::add_variable(TableNumber unary) {
  unary_.push_back(unary);
  return static_cast<int>(unary_.size()) - 1;
}

void MinSum::add_edge(int a, int b, TableNumber number) {
  MESHPLAN_CHECK(a != b && table(number).rows == table(unary_[static_cast<std::size_t>(a)]).rows &&
                 table(number).columns == table(unary_[static_cast<std::size_t>(b)]).rows);
  edges_.push_back({a, b, number});
}

TableNumber MinSum::made(Operation operation, TableNumber a, TableNumber b, TableNumber c) {
  const auto word = [](int high, int low) {
    return std::uint64_t{static_cast<std::uint32_t>(high)} << 32U | static_cast<std::uint32_t>(low);
  };
  const auto [known, is_new] = operations_.number(
      std::array<std::uint64_t, 2>{word(static_cast<int>(operation), a), word(b, c)});
  if (!is_new) return results_[static_cast<std::size_t>(known)];
  Entry entry;
  entry.operation = operation;
  entry.a = a;
  entry.b = b;
  entry.c = c;
  const auto count = [&](int values) { return static_cast<int>(values_.words(values).size()); };
  switch (operation) {
    case Operation::kGiven:
      break;
    case Operation::kTranspose:
      entry.table = {table(a).columns, table(a).rows, {}};
      break;
    case Operation::kAdd:
      entry.table = {table(a).rows, table(a).columns, {}};
      break;
    case Operation::kFold:
      entry.table = {table(b).columns, 1, {}};
      break;
    case Operation::kJoin:
      entry.table = {table(b).columns, table(c).columns, {}};
      break;
    case Operation::kRestrict:
      entry.table = {count(b), c < 0 ? table(a).columns : count(c), {}};
      break;
    case Operation::kMinimum: {
      const std::vector<int>& sizes = minima_[static_cast<std::size_t>(a)].sizes;
      entry.table = {1, 1, {}};
      if (sizes.size() == 2) entry.table.columns = sizes[1];
      for (std::size_t s = 0; s < sizes.size(); ++s) {
        if (s == 0 || sizes.size() != 2) entry.table.rows *= sizes[s];
      }
      break;
    }
  }
  tables_.push_back(std::move(entry));
  results_.push_back(static_cast<TableNumber>(tables_.size()) - 1);
  return results_.back();
}

TableNumber MinSum::transposed(TableNumber number) {
  const Entry& entry = tables_[static_cast<std::size_t>(number)];
  if (entry.operation == Operation::kTranspose) return entry.a;
  return made(Operation::kTranspose, number, -1, -1);
}

TableNumber MinSum::added(TableNumber a, TableNumber b) {
  return made(Operation::kAdd, std::min(a, b), std::max(a, b), -1);
}

TableNumber MinSum::restricted(TableNumber number, int rows, int columns) {
  return made(Operation::kRestrict, number, rows, columns);
}

template <class Visit>
void MinSum::visit_operands(const Entry& entry, const Visit& visit) const {
  switch (entry.operation) {
    case Operation::kGiven:
      return;
    case Operation::kTranspose:
    case Operation::kRestrict:
      visit(entry.a);
      return;
    case Operation::kAdd:
    case Operation::kFold:
      visit(entry.a);
      visit(entry.b);
      return;
    case Operation::kJoin:
      visit(entry.a);
      visit(entry.b);
      visit(entry.c);
      return;
    case Operation::kMinimum: {
      const Minimum& minimum = minima_[static_cast<std::size_t>(entry.a)];
      if (minimum.unary >= 0) visit(minimum.unary);
      for (const TableNumber member : minimum.members) visit(member);
      return;
    }
  }
}

void MinSum::compute(std::vector<TableNumber> wanted) {
  std::vector<TableNumber> missing;
  std::vector<char> seen(tables_.size(), 0);
  const auto want = [&](TableNumber number) {
    const auto at = static_cast<std::size_t>(number);
    if (seen[at] != 0 || !tables_[at].table.costs.empty()) return;
    seen[at] = 1;
    missing.push_back(number);
  };
  for (const TableNumber number : wanted) want(number);
  for (std::size_t i = 0; i < missing.size(); ++i)
    visit_operands(tables_[static_cast<std::size_t>(missing[i])], want);
  std::sort(missing.begin(), missing.end());
  for (const TableNumber number : missing) compute_one(tables_[static_cast<std::size_t>(number)]);
}

void MinSum::compute_one(Entry& entry) {
  CostTable& result = entry.table;
  result.costs.assign(
      static_cast<std::size_t>(result.rows) * static_cast<std::size_t>(result.columns), kForbidden);
  entries_ += result.costs.size();
  ++computed_;
  switch (entry.operation) {
    case Operation::kGiven:
      break;
    case Operation::kTranspose: {
      const CostTable& from = table(entry.a);
      const auto rows = static_cast<std::size_t>(from.rows);
      const auto columns = static_cast<std::size_t>(from.columns);
      for (std::size_t r = 0; r < rows; ++r) {
        for (std::size_t c = 0; c < columns; ++c)
          result.costs[c * rows + r] = from.costs[r * columns + c];
      }
      break;
    }
    case Operation::kAdd: {
      const std::vector<double>& one = table(entry.a).costs;
      const std::vector<double>& other = table(entry.b).costs;
      for (std::size_t i = 0; i < other.size(); ++i) result.costs[i] = one[i] + other[i];
      break;
    }
    case Operation::kFold: {
      const CostTable& costs = table(entry.a);
      const CostTable& pair = table(entry.b);
      const auto width = static_cast<std::size_t>(pair.columns);
      for (std::size_t v = 0; v < costs.costs.size(); ++v) {
        const double base = costs.costs[v];
        if (base == kForbidden) continue;
        const double* row = pair.costs.data() + v * width;
        for (std::size_t u = 0; u < width; ++u)
          result.costs[u] = std::min(result.costs[u], base + row[u]);
      }
      break;
    }
    case Operation::kJoin:
      min_plus_product(table(entry.a).costs,
                       table(entry.b).costs.data(),
                       table(entry.c).costs.data(),
                       static_cast<std::size_t>(result.rows),
                       static_cast<std::size_t>(result.columns),
                       result.costs.data());
      break;
    case Operation::kRestrict: {
      const CostTable& from = table(entry.a);
      auto to = result.costs.begin();
      for (const std::uint64_t row : values_.words(entry.b)) {
        const double* costs = from.costs.data() + row * static_cast<std::size_t>(from.columns);
        if (entry.c < 0) {
          to = std::copy(costs, costs + from.columns, to);
          continue;
        }
        for (const std::uint64_t column : values_.words(entry.c)) *to++ = costs[column];
      }
      break;
    }
    case Operation::kMinimum: {
      const Minimum& minimum = minima_[static_cast<std::size_t>(entry.a)];
      const std::size_t scope = minimum.sizes.size();
      std::vector<EliminationMember> members;
      for (std::size_t m = 0; m < minimum.members.size(); ++m) {
        const std::size_t* strides = minimum.strides.data() + m * (scope + 1);
        members.push_back({table(minimum.members[m]).costs.data(), strides[scope], strides});
      }
      const std::vector<double> nothing(minimum.values, 0);
      const std::vector<double>& own = minimum.unary >= 0 ? table(minimum.unary).costs : nothing;
      eliminate_variable(own.data(), own.size(), minimum.sizes, members, result.costs.data());
      break;
    }
  }
}

/// Neighbours, ascending, each with the table that has the own values as rows.
using Neighbours = std::vector<std::pair<int, TableNumber>>;

/// What is needed to choose an eliminated variable's value once its neighbours are chosen.
struct MinSum::Record {
  int variable;
  TableNumber unary;
  Neighbours pairs;
  std::vector<Factor> factors;
};

class MinSum::Elimination {
 public:
  Elimination(MinSum& problem, bool reduced, std::vector<Eliminated>* steps)
      : problem_(problem),
        steps_(steps),
        unary_(problem.unary_),
        original_(unary_.size()),
        neighbours_(unary_.size()),
        depth_(unary_.size()),
        factors_of_(unary_.size()),
        left_(kBudgets * static_cast<double>(problem.budget_)) {
    for (const TableNumber unary : unary_) domain_.push_back(problem.table(unary).rows);
    for (const Edge& edge : problem.edges_) add_pair(edge.a, edge.b, edge.table);
    if (reduced) reduce();
  }

  /// Lays out all steps; their tables are not computed yet.
  void lay_out() {
    using Turn = std::pair<Rank, int>;
    std::vector<Rank> ranks(unary_.size());  // the one that counts
    std::vector<Turn> all;
    all.reserve(2 * unary_.size());
    for (int v = 0; v < static_cast<int>(unary_.size()); ++v)
      all.emplace_back(ranks[static_cast<std::size_t>(v)] = rank(v), v);
    std::priority_queue<Turn, std::vector<Turn>, std::greater<>> queue({}, std::move(all));
    auto enqueue = [&](int v) {
      const Rank now = rank(v);
      Rank& known = ranks[static_cast<std::size_t>(v)];
      if (known == now) return;
      known = now;
      queue.emplace(now, v);
    };
    while (!queue.empty()) {
      const auto [first, v] = queue.top();
      queue.pop();
      if (ranks[static_cast<std::size_t>(v)] != first) continue;  // outdated or eliminated
      ranks[static_cast<std::size_t>(v)] = Rank{};
      const std::vector<int> around = scope_around(v);
      if (steps_ != nullptr) steps_->push_back({v, around});
      eliminate(v);
      for (const int u : around) {
        int& depth = depth_[static_cast<std::size_t>(u)];
        depth = std::max(depth, depth_[static_cast<std::size_t>(v)] + 1);
        enqueue(u);
      }
    }
  }

  bool exact() const { return exact_; }
  /// Entries that eliminations over several neighbours will visit.
  double work() const { return kBudgets * static_cast<double>(problem_.budget_) - left_; }

  /// Computes the tables and reads off the values.
  MinSumSolution run() {
    std::vector<TableNumber> wanted = constants_;
    for (const Record& record : records_) {
      wanted.push_back(record.unary);
      for (const auto& [u, table] : record.pairs) wanted.push_back(table);
      for (const Factor& factor : record.factors) wanted.push_back(factor.table);
    }
    problem_.compute(std::move(wanted));
    for (const TableNumber constant : constants_) {
      const std::vector<double>& costs = problem_.table(constant).costs;
      bound_ += *std::min_element(costs.begin(), costs.end());
    }
    if (bound_ == kForbidden) return {};
    return read_off();
  }

 private:
  /// The order of elimination. A cheap step between at most two neighbours never makes the rest
  /// harder; these come first and in rounds (by depth), so that equal parts of the graph stay equal
  /// and a chain of them is halved by each round. Then the fewest combinations.
  struct Rank {
    int round = -1;  ///< below 0: eliminated
    double combinations = 0;
    friend auto operator<=>(const Rank&, const Rank&) = default;
  };
  static constexpr double kCheap = 1 << 17;
  /// All tables over several variables live until the end, so together they have a limit as well.
  static constexpr double kBudgets = 4;

  Rank rank(int v) const {
    const auto at = static_cast<std::size_t>(v);
    const double all = combinations(v);
    const bool cheap = neighbours_[at].size() <= 2 && factors_of_[at].empty() && all <= kCheap;
    return {cheap ? depth_[at] : std::numeric_limits<int>::max(), all};
  }

  /// Drops every value that another one of its variable replaces at no more cost, whatever the
  /// neighbours' values are: unary[t] - unary[s] + the sum over the neighbours of the largest
  /// difference of the two rows is not above 0. An optimum without the dropped values remains.
  void reduce() {
    std::vector<int> kept(unary_.size());
    bool dropped = false;
    for (std::size_t v = 0; v < unary_.size(); ++v) {
      kept[v] = kept_values(v);
      dropped =
          dropped || problem_.values_.words(kept[v]).size() < static_cast<std::size_t>(domain_[v]);
    }
    if (!dropped) return;
    for (std::size_t v = 0; v < unary_.size(); ++v) {
      unary_[v] = problem_.restricted(unary_[v], kept[v], -1);
      for (auto& [u, table] : neighbours_[v])
        table = problem_.restricted(table, kept[v], kept[static_cast<std::size_t>(u)]);
      const std::span<const std::uint64_t> values = problem_.values_.words(kept[v]);
      if (static_cast<int>(values.size()) == domain_[v]) continue;
      original_[v].assign(values.begin(), values.end());
      domain_[v] = static_cast<int>(values.size());
    }
  }

  int original_value(int v, int value) const {
    const std::vector<int>& original = original_[static_cast<std::size_t>(v)];
    return original.empty() ? value : original[static_cast<std::size_t>(value)];
  }

  /// The number of the list of values that reduce() keeps; computed once for equal tables.
  int kept_values(std::size_t v) {
    std::vector<std::uint64_t> key = {static_cast<std::uint64_t>(unary_[v])};
    for (const auto& [u, table] : neighbours_[v]) key.push_back(static_cast<std::uint64_t>(table));
    const auto [known, added] = problem_.reductions_.number(key);
    if (!added) return problem_.reduced_[static_cast<std::size_t>(known)];
    std::vector<TableNumber> wanted = {unary_[v]};
    for (const auto& [u, table] : neighbours_[v]) {
      wanted.push_back(table);
      wanted.push_back(problem_.transposed(table));
    }
    problem_.compute(std::move(wanted));
    const std::vector<double>& own = problem_.table(unary_[v]).costs;
    const std::size_t values = own.size();
    std::vector<const CostTable*> tables;
    std::vector<const CostTable*> columns;
    for (const auto& [u, table] : neighbours_[v]) {
      tables.push_back(&problem_.table(table));
      columns.push_back(&problem_.table(problem_.transposed(table)));
    }
    // Where a value does best on an edge, another one must do as well to replace it: most fail
    // there, and what they lose there is the least they can lose on that edge.
    std::vector<double> there;
    std::vector<const double*> best_column(tables.size());
    std::vector<double> best(tables.size());
    const auto replaces = [&](std::size_t t, std::size_t s) {
      double sum = own[t] - own[s];
      double least = there[t] - there[s];  // it can come to; to give up early
      for (std::size_t e = 0; e < tables.size() && least <= 0; ++e) {
        least -= best_column[e][t] - best[e];
        const double most = most_lost(row_of(*tables[e], t),
                                      row_of(*tables[e], s),
                                      static_cast<std::size_t>(tables[e]->columns),
                                      -least);
        least += most;
        sum += most;
      }
      return least <= 0 && sum <= 0;
    };
    std::vector<char> gone(values, 0);
    for (std::size_t s = values; s-- > 0;) {  // of equal values the first stays
      there = own;
      for (std::size_t e = 0; e < tables.size(); ++e) {
        const double* row = row_of(*tables[e], s);
        const std::size_t place = least_place(row, static_cast<std::size_t>(tables[e]->columns));
        best[e] = row[place];
        best_column[e] = row_of(*columns[e], place);
        add_row(there, best_column[e]);
      }
      for (std::size_t t = 0; t < values && gone[s] == 0; ++t) {
        if (t == s || gone[t] != 0) continue;
        if (there[s] == kForbidden || (there[t] <= there[s] && replaces(t, s))) gone[s] = 1;
      }
    }
    std::vector<std::uint64_t> kept;
    for (std::size_t s = 0; s < values; ++s) {
      if (gone[s] == 0) kept.push_back(s);
    }
    problem_.reduced_.push_back(problem_.values_.number(kept).first);
    return problem_.reduced_.back();
  }

  static const double* row_of(const CostTable& table, std::size_t row) {
    return table.costs.data() + row * static_cast<std::size_t>(table.columns);
  }

  int domain(int v) const { return domain_[static_cast<std::size_t>(v)]; }

  void add_pair(int a, int b, TableNumber table) {
    // tables are kept with the row variable first, on both sides
    add_half(a, b, table);
    add_half(b, a, problem_.transposed(table));
  }
  void add_half(int a, int b, TableNumber table) {
    Neighbours& known = neighbours_[static_cast<std::size_t>(a)];
    const auto at = std::lower_bound(
        known.begin(), known.end(), b, [](const auto& pair, int u) { return pair.first < u; });
    if (at != known.end() && at->first == b) {
      at->second = problem_.added(at->second, table);
    } else {
      known.insert(at, {b, table});
    }
  }

  /// The variables that share a table with `v`, ascending.
  std::vector<int> scope_around(int v) const {
    std::vector<int> scope;
    for (const auto& [u, table] : neighbours_[static_cast<std::size_t>(v)]) scope.push_back(u);
    if (factors_of_[static_cast<std::size_t>(v)].empty()) return scope;
    for (const int f : factors_of_[static_cast<std::size_t>(v)]) {
      for (const int u : factors_[static_cast<std::size_t>(f)].scope) {
        if (u != v) scope.push_back(u);
      }
    }
    std::sort(scope.begin(), scope.end());
    scope.erase(std::unique(scope.begin(), scope.end()), scope.end());
    return scope;
  }

  double combinations(int v) const {
    double product = domain(v);
    if (factors_of_[static_cast<std::size_t>(v)].empty()) {
      for (const auto& [u, table] : neighbours_[static_cast<std::size_t>(v)]) product *= domain(u);
    } else {
      for (const int u : scope_around(v)) product *= domain(u);
    }
    return product;
  }

  void eliminate(int v) {
    const auto at = static_cast<std::size_t>(v);
    Record record{v, unary_[at], std::move(neighbours_[at]), {}};
    for (const int f : factors_of_[at])
      record.factors.push_back(factors_[static_cast<std::size_t>(f)]);
    // detach
    for (const auto& [u, table] : record.pairs) {
      std::erase_if(neighbours_[static_cast<std::size_t>(u)],
                    [v](const auto& pair) { return pair.first == v; });
    }
    for (const int f : factors_of_[at]) {
      for (const int u : factors_[static_cast<std::size_t>(f)].scope) {
        if (u != v) std::erase(factors_of_[static_cast<std::size_t>(u)], f);
      }
    }
    if (record.factors.empty() && record.pairs.size() <= 2 &&
        combinations_of(record) <= static_cast<double>(problem_.budget_)) {
      if (record.pairs.empty()) {
        constants_.push_back(record.unary);
      } else if (record.pairs.size() == 1) {
        const auto u = static_cast<std::size_t>(record.pairs[0].first);
        unary_[u] = problem_.added(
            unary_[u], problem_.made(Operation::kFold, record.unary, record.pairs[0].second, -1));
      } else {
        add_pair(
            record.pairs[0].first,
            record.pairs[1].first,
            problem_.made(
                Operation::kJoin, record.unary, record.pairs[0].second, record.pairs[1].second));
      }
    } else {
      eliminate_general(record);
    }
    records_.push_back(std::move(record));
  }

  double combinations_of(const Record& record) const {
    double product = domain(record.variable);
    for (const auto& [u, table] : record.pairs) product *= domain(u);
    return product;
  }

  /// Tables of an eliminated variable that are minimised together.
  struct Bucket {
    std::vector<int> scope;  ///< ascending
    std::vector<Factor> members;
  };

  /// Several neighbours: one table over all of them, or several within the budget.
  void eliminate_general(const Record& record) {
    std::vector<Factor> parts;
    for (const auto& [u, table] : record.pairs) parts.push_back({{record.variable, u}, table});
    parts.insert(parts.end(), record.factors.begin(), record.factors.end());
    const double most = std::min(static_cast<double>(problem_.budget_), std::max(left_, kCheap));
    std::vector<Bucket> buckets;
    for (Factor& part : parts) {
      std::vector<int> sorted = part.scope;
      std::sort(sorted.begin(), sorted.end());
      Bucket* home = nullptr;
      for (Bucket& bucket : buckets) {
        std::vector<int> joined;
        std::set_union(bucket.scope.begin(),
                       bucket.scope.end(),
                       sorted.begin(),
                       sorted.end(),
                       std::back_inserter(joined));
        if (combinations(joined) > most) continue;
        bucket.scope = std::move(joined);
        home = &bucket;
        break;
      }
      if (home == nullptr) {
        buckets.push_back({std::move(sorted), {}});
        home = &buckets.back();
      }
      home->members.push_back(std::move(part));
    }
    if (buckets.size() > 1) exact_ = false;
    for (std::size_t b = 0; b < buckets.size(); ++b) {
      Bucket& bucket = buckets[b];
      std::erase(bucket.scope, record.variable);
      const TableNumber table = minimum_of(record.variable, b == 0 ? record.unary : -1, bucket);
      const std::vector<int>& rest = bucket.scope;
      if (rest.empty()) {
        constants_.push_back(table);
      } else if (rest.size() == 1) {
        TableNumber& unary = unary_[static_cast<std::size_t>(rest[0])];
        unary = problem_.added(unary, table);
      } else if (rest.size() == 2) {
        add_pair(rest[0], rest[1], table);
      } else {
        const int number = static_cast<int>(factors_.size());
        for (const int u : rest) factors_of_[static_cast<std::size_t>(u)].push_back(number);
        factors_.push_back({rest, table});
      }
    }
  }

  double combinations(const std::vector<int>& scope) const {
    double product = 1;
    for (const int u : scope) product *= domain(u);
    return product;
  }

  /// min over the variable's values of its costs (if unary >= 0) and the members, a table over the
  /// bucket's scope.
  TableNumber minimum_of(int variable, TableNumber unary, const Bucket& bucket) {
    const std::vector<int>& rest = bucket.scope;
    const std::vector<Factor>& members = bucket.members;
    auto slot_of = [&](int u) {
      return u == variable ? rest.size()
                           : static_cast<std::size_t>(
                                 std::lower_bound(rest.begin(), rest.end(), u) - rest.begin());
    };
    // what is computed, whatever the variables' numbers; longer than the keys of other operations
    std::vector<std::uint64_t> key = {static_cast<std::uint64_t>(unary + 1),
                                      static_cast<std::uint64_t>(domain(variable)),
                                      rest.size()};
    for (const int u : rest) key.push_back(static_cast<std::uint64_t>(domain(u)));
    for (const Factor& member : members) {
      key.push_back(static_cast<std::uint64_t>(member.table));
      for (const int u : member.scope) key.push_back(slot_of(u));
    }
    const auto [known, is_new] = problem_.minimum_keys_.number(key);
    if (is_new) {
      Minimum minimum{unary, static_cast<std::size_t>(domain(variable)), {}, {}, {}};
      for (const int u : rest) minimum.sizes.push_back(domain(u));
      minimum.strides.assign(members.size() * (rest.size() + 1), 0);
      for (std::size_t m = 0; m < members.size(); ++m) {
        std::size_t* const stride = minimum.strides.data() + m * (rest.size() + 1);
        std::size_t step = 1;
        for (std::size_t s = members[m].scope.size(); s-- > 0;) {
          const int u = members[m].scope[s];
          stride[slot_of(u)] = step;
          step *= static_cast<std::size_t>(domain(u));
        }
        minimum.members.push_back(members[m].table);
      }
      problem_.minima_.push_back(std::move(minimum));
    }
    const TableNumber table = problem_.made(Operation::kMinimum, known, -1, -1);
    if (counted_.insert(table).second && problem_.table(table).costs.empty())
      left_ -= combinations(rest) * domain(variable);
    return table;
  }

  MinSumSolution read_off() {
    MinSumSolution solution;
    solution.exact = exact_;
    solution.lower_bound = bound_;
    solution.choice.assign(unary_.size(), 0);
    for (std::size_t r = records_.size(); r-- > 0;) {
      const Record& record = records_[r];
      const std::vector<double>& own = problem_.table(record.unary).costs;
      double best = kForbidden;
      for (std::size_t v = 0; v < own.size(); ++v) {
        double sum = own[v];
        for (const auto& [u, number] : record.pairs) {
          const CostTable& pair = problem_.table(number);
          sum += pair.costs[v * static_cast<std::size_t>(pair.columns) + chosen(solution, u)];
        }
        for (const Factor& factor : record.factors) {
          std::size_t entry = 0;
          for (const int u : factor.scope) {
            entry = entry * static_cast<std::size_t>(domain(u)) +
                    (u == record.variable ? v : chosen(solution, u));
          }
          sum += problem_.table(factor.table).costs[entry];
        }
        if (sum < best) {
          best = sum;
          solution.choice[static_cast<std::size_t>(record.variable)] = static_cast<int>(v);
        }
      }
    }
    for (std::size_t v = 0; v < unary_.size(); ++v)
      solution.choice[v] = original_value(static_cast<int>(v), solution.choice[v]);
    if (!exact_) improve(solution);
    solution.value = value_of(solution);
    solution.feasible = solution.value != kForbidden;
    return solution;
  }

  static std::size_t chosen(const MinSumSolution& solution, int u) {
    return static_cast<std::size_t>(solution.choice[static_cast<std::size_t>(u)]);
  }

  double value_of(const MinSumSolution& solution) const {
    double sum = 0;
    for (std::size_t v = 0; v < problem_.unary_.size(); ++v)
      sum += problem_.table(problem_.unary_[v]).costs[chosen(solution, static_cast<int>(v))];
    for (const Edge& edge : problem_.edges_) {
      const CostTable& pair = problem_.table(edge.table);
      sum += pair.costs[chosen(solution, edge.a) * static_cast<std::size_t>(pair.columns) +
                        chosen(solution, edge.b)];
    }
    return sum;
  }

  /// One variable at a time to the value that is best for its neighbours, until nothing changes.
  void improve(MinSumSolution& solution) const {
    std::vector<std::vector<const Edge*>> edges_of(problem_.unary_.size());
    for (const Edge& edge : problem_.edges_) {
      edges_of[static_cast<std::size_t>(edge.a)].push_back(&edge);
      edges_of[static_cast<std::size_t>(edge.b)].push_back(&edge);
    }
    constexpr int kMostRounds = 100;
    bool changed = true;
    for (int round = 0; changed && round < kMostRounds; ++round) {
      changed = false;
      for (std::size_t v = 0; v < edges_of.size(); ++v) {
        const std::vector<double>& own = problem_.table(problem_.unary_[v]).costs;
        auto cost = [&](std::size_t value) {
          double sum = own[value];
          for (const Edge* edge : edges_of[v]) {
            const CostTable& pair = problem_.table(edge->table);
            const auto width = static_cast<std::size_t>(pair.columns);
            sum += edge->a == static_cast<int>(v)
                       ? pair.costs[value * width + chosen(solution, edge->b)]
                       : pair.costs[chosen(solution, edge->a) * width + value];
          }
          return sum;
        };
        double best = cost(static_cast<std::size_t>(solution.choice[v]));
        for (std::size_t value = 0; value < own.size(); ++value) {
          const double sum = cost(value);
          if (sum < best) {
            best = sum;
            solution.choice[v] = static_cast<int>(value);
            changed = true;
          }
        }
      }
    }
  }

  MinSum& problem_;
  std::vector<Eliminated>* steps_;
  std::vector<TableNumber> unary_;
  std::vector<int> domain_;
  std::vector<std::vector<int>> original_;  ///< the values kept of a variable; empty: all
  std::vector<Neighbours> neighbours_;
  std::vector<int> depth_;  ///< eliminations, one after another, that led to a variable's tables
  std::vector<Factor> factors_;
  std::vector<std::vector<int>> factors_of_;
  std::vector<Record> records_;
  std::set<TableNumber> counted_;
  std::vector<TableNumber> constants_;  ///< tables whose least entries add up to the bound
  double left_;  ///< entries that eliminations over several neighbours may still visit
  double bound_ = 0;
  bool exact_ = true;
};

bool MinSum::joined(int a, int b) const {
  return std::any_of(edges_.begin(), edges_.end(), [&](const Edge& edge) {
    return (edge.a == a && edge.b == b) || (edge.a == b && edge.b == a);
  });
}

MinSumSolution MinSum::solve(std::vector<Eliminated>* steps) {
  std::vector<Eliminated> steps_reduced;
  std::vector<Eliminated> steps_whole;
  Elimination reduced(*this, true, &steps_reduced);
  reduced.lay_out();
  MinSumSolution solution;
  if (reduced.exact()) {
    solution = reduced.run();
  } else {
    // values are dropped unevenly, which can make equal parts unequal and tables too many
    Elimination whole(*this, false, &steps_whole);
    whole.lay_out();
    const bool whole_first = whole.exact() || whole.work() < reduced.work();
    solution = whole_first ? whole.run() : reduced.run();
    if (!solution.exact && solution.value > solution.lower_bound) {
      MinSumSolution other = whole_first ? reduced.run() : whole.run();
      const double bound = std::max(solution.lower_bound, other.lower_bound);
      if (other.value < solution.value) solution = std::move(other);
      solution.lower_bound = bound;
    }
    if (whole_first) std::swap(steps_reduced, steps_whole);
  }
  if (steps != nullptr) *steps = std::move(steps_reduced);
  solution.tables = computed_;
  return solution;
}

}  // namespace meshplan

// SPDX-License-Identifier: Apache-2.0
// MinSum: exact minimisation of a sum of tables over discrete variables, by variable elimination.
//
// Problem: variables with small domains, a cost per value, and tables of costs over pairs of them;
// find the values of least total cost. Variables are eliminated one after another, always the one
// whose neighbours and own domain have the fewest combinations (ties: lowest number): its tables
// are added and minimised over its values into one table over its neighbours. Then the values are
// read off backwards. Chains, trees and series-parallel graphs never need a table over more than
// two variables; MindSpore's operator, edge, merge, contract, source, triangle and star
// eliminations are the cases of zero, one, two and three neighbours.
//
// Reduction: a value that another one replaces at no more cost whatever the neighbours do is
// dropped first (dead-end elimination; Desmet et al. 1992, Goldstein 1994).
//
// Repetition: tables have numbers, and a table computed from the same numbers is computed once.
// A hundred equal layers therefore cost the products of one, and a vector pass each. Numbers come
// first: a whole elimination is laid out without a single cost, which tells whether it stays within
// the budget, before the tables that it needs are computed.
//
// Limits: where a table would exceed the budget, or all distinct ones four budgets, the tables of
// the variable are split into groups that fit, each minimised alone (mini-buckets; Dechter and Rish
// 2003). The sum is then a lower bound, the values found are improved one variable at a time, and
// exact is false.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "lib/interner.h"

namespace meshplan {

/// A dense table of costs; entries that are forbidden are kForbidden.
struct CostTable {
  int rows = 0;
  int columns = 1;
  std::vector<double> costs;  ///< row-major
};

/// Marks a combination that must not be chosen; never part of a sum that is returned.
extern const double kForbidden;

/// Numbers of tables of one problem. Results of eliminations join the list.
using TableNumber = int;

struct MinSumSolution {
  bool feasible = false;
  bool exact = true;
  double value = 0;         ///< of `choice`
  double lower_bound = 0;   ///< equals value where exact
  std::vector<int> choice;  ///< per variable
  std::size_t tables = 0;   ///< distinct ones, given or computed: what the search was work for
};

/// A step of the elimination: a variable, and those it shared a table with at that time, ascending.
/// MindSpore's names: one neighbour is a merge or a contract (parallel edges, its edge elimination,
/// are added up before), two are an operator or a source, or a triangle where they are joined
/// themselves, more are a star.
struct Eliminated {
  int variable;
  std::vector<int> neighbours;
};

class MinSum {
 public:
  /// `budget`: the most entries that one elimination may visit.
  explicit MinSum(std::size_t budget = std::size_t{1} << 29) : budget_(budget) {}

  /// Tables given once may be used by many variables and edges.
  TableNumber add_table(CostTable table);
  int add_variable(TableNumber unary);
  /// Rows of the table are values of `a`, columns values of `b`; a != b.
  void add_edge(int a, int b, TableNumber table);

  /// Forgets variables and edges; tables and what was computed from them stay.
  void clear();
  /// A table that was given.
  const CostTable& table(TableNumber number) const {
    return tables_[static_cast<std::size_t>(number)].table;
  }
  /// Of all tables, given or computed.
  std::size_t entries() const { return entries_; }

  /// `steps`, if given, receives every elimination in its order.
  MinSumSolution solve(std::vector<Eliminated>* steps = nullptr);
  /// Whether an edge was added between the two variables.
  bool joined(int a, int b) const;

 private:
  struct Edge {
    int a;
    int b;
    TableNumber table;
  };
  /// A table over any number of variables, the first one slowest.
  struct Factor {
    std::vector<int> scope;
    TableNumber table;
  };
  struct Record;
  class Elimination;
  enum class Operation : std::uint8_t {
    kGiven,
    kTranspose,
    kAdd,
    kFold,      ///< min over v of a[v] + b[v][u]
    kJoin,      ///< min over v of a[v] + b[v][u] + c[v][w]
    kRestrict,  ///< rows `b` and columns `c` (numbers of values_; -1: all) of a
    kMinimum,   ///< minima_[a]
  };
  /// What eliminate_variable() is called with.
  struct Minimum {
    TableNumber unary = -1;  ///< -1: none
    std::size_t values = 0;
    std::vector<int> sizes;
    std::vector<TableNumber> members;
    std::vector<std::size_t> strides;  ///< per member: of every size, then of the value
  };
  /// A table, or how it is computed; operands have lower numbers.
  struct Entry {
    CostTable table;  ///< without costs: not computed yet
    Operation operation = Operation::kGiven;
    TableNumber a = -1;
    TableNumber b = -1;
    TableNumber c = -1;
  };

  /// The number of the result of an operation.
  TableNumber made(Operation operation, TableNumber a, TableNumber b, TableNumber c);
  TableNumber transposed(TableNumber table);
  TableNumber added(TableNumber a, TableNumber b);
  TableNumber restricted(TableNumber table, int rows, int columns);
  template <class Visit>
  void visit_operands(const Entry& entry, const Visit& visit) const;
  /// Computes these tables and what they need.
  void compute(std::vector<TableNumber> wanted);
  void compute_one(Entry& entry);

  std::size_t budget_;
  std::size_t entries_ = 0;
  std::size_t computed_ = 0;
  std::deque<Entry> tables_;
  std::vector<Minimum> minima_;
  std::vector<TableNumber> unary_;
  std::vector<Edge> edges_;
  Interner operations_;               ///< operation and operands
  std::vector<TableNumber> results_;  ///< per number of operations_
  Interner minimum_keys_;             ///< of minima_
  Interner values_;                   ///< lists of values that are kept of a variable
  Interner reductions_;               ///< tables of a variable and of its neighbours
  std::vector<int> reduced_;          ///< per number of reductions_: the number of its values_
};

}  // namespace meshplan

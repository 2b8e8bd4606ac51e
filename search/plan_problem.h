// SPDX-License-Identifier: Apache-2.0
// PlanProblem: all plans of one graph on one mesh as a min-sum problem.
//
// Variables: the strategy of every operator; the state of every copy, and of inputs and parameters
// with several readers. Edges: the transfers of the DataFlow. What is decided by a state alone
// (how a parameter rests, whether a saved operand is kept or gathered again) is minimised inside
// the tables, at the given price of memory. Equal operators and equal transfers share tables, so
// equal layers cost one.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cost_model/evaluate.h"
#include "cost_model/price_book.h"
#include "lib/interner.h"
#include "lib/result.h"
#include "search/min_sum.h"

namespace meshplan {

/// What may be chosen; an empty function allows everything. Answers must not depend on anything
/// but the arguments.
struct Restrictions {
  std::function<bool(OperatorId, const Strategy&)> strategy;
  std::function<bool(TensorId, const TensorState&)>
      value;  ///< of copies, shared inputs and parameters
  std::function<bool(TensorId, const TensorState&, const ParameterChoice&)> parameter;
};

/// A price of memory at some moments, in seconds per byte. With `memory_only`, seconds do not count
/// and the priced sum is in bytes.
struct MemoryPrices {
  std::map<int, double> at;
  bool memory_only = false;
};

/// A value for every variable.
using Choice = std::vector<int>;

/// A choice and the prices at which the choices inside the tables are made: `prices` for variables
/// whose operator runs before `cut`, `late` from there on.
struct Decision {
  Choice choice;
  MemoryPrices prices;
  MemoryPrices late;
  int cut = std::numeric_limits<int>::max();
};

class PlanProblem {
 public:
  /// The book must outlive the problem. Errors: kConflict where the restrictions (or the lack of
  /// any divisible dimension) leave an operator or tensor without a choice; it is named.
  static Result<std::unique_ptr<PlanProblem>> make(PriceBook& book,
                                                   const Restrictions& restrictions);
  ~PlanProblem();

  struct Solution {
    bool feasible = false;
    bool exact = true;
    double priced = 0;       ///< objective + priced memory of `choice`
    double lower_bound = 0;  ///< on the least priced sum
    Choice choice;
    std::size_t tables = 0;  ///< distinct tables, given or computed
  };

  /// The least priced sum. With `fixed`, only variables with free[v] != 0 are chosen, the others
  /// keep their value, and the sum is that of the free ones and their links.
  Solution solve(const MemoryPrices& prices,
                 const Choice* fixed = nullptr,
                 const std::vector<char>* free = nullptr);

  /// What a decision costs, in seconds, and takes, in bytes per moment.
  struct Measured {
    Seconds objective;
    std::vector<Bytes> profile;
    Bytes peak = 0;
    int peak_moment = 0;
  };
  Measured measure(const Decision& decision) const;

  /// The whole assignment behind a decision.
  Assignment assignment(const Decision& decision) const;

  std::size_t variables() const;
  /// The moment at which a variable's operator runs (a value: its producer or first reader).
  int moment_of(std::size_t variable) const;
  PriceBook& book() const { return book_; }

  /// Tries every combination of the variables: for tests on tiny graphs. `visit` gets each choice.
  void enumerate(const std::function<void(const Choice&)>& visit) const;

 private:
  struct ParameterOption;
  struct ParameterClass;
  struct OperatorClass;
  struct Variable;
  struct Link;
  struct Cell;
  class Weights;
  struct LinkWeights;
  struct SpanWeights;

  explicit PlanProblem(PriceBook& book);
  Result<void> add_operators(const Restrictions& restrictions);
  Result<void> add_values(const Restrictions& restrictions);
  void add_links();
  Result<int> operator_class(OperatorId id, const Restrictions& restrictions);
  int parameter_class(TensorId tensor, const Restrictions& restrictions);
  static const ParameterOption* best_option(const ParameterClass& parameter,
                                            int state,
                                            const Weights& weights,
                                            const SpanWeights& of);
  static double option_cost(const ParameterOption& option,
                            const Weights& weights,
                            const SpanWeights& of);
  static double weight_of(const Value& value, const Weights& weights);
  double unary_cost(const Variable& variable, int value, const Weights& weights) const;
  void unary_key(const Variable& variable,
                 const Weights& weights,
                 std::vector<std::uint64_t>& key) const;
  static void link_key(const Link& link, const Weights& weights, std::vector<std::uint64_t>& key);
  CostTable link_table(const Link& link, const Weights& weights) const;
  Cell cell(
      const Link& link, int from, int to, const Weights& weights, const LinkWeights& of) const;

  PriceBook& book_;
  std::vector<std::unique_ptr<ParameterClass>> parameter_classes_;
  Interner parameter_class_of_;
  std::vector<std::unique_ptr<OperatorClass>> operator_classes_;
  Interner operator_class_of_;
  Interner variable_kinds_;
  Interner link_kinds_;
  std::vector<Variable> variables_;
  std::set<std::vector<int>> state_lists_;
  std::vector<Link> links_;          ///< per transfer
  std::vector<int> value_variable_;  ///< per DataFlow value, -1: result of an operator
};

}  // namespace meshplan

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
#include <map>
#include <memory>
#include <optional>
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

/// What may be chosen, and what is charged for; an empty function allows everything. Answers must
/// not depend on anything but the arguments.
struct Restrictions {
  /// The strategies that are looked at, ascending; an empty function: all of the operator's.
  std::function<const std::vector<Strategy>&(OperatorId)> among;
  std::function<bool(OperatorId, const Strategy&)> strategy;
  std::function<bool(TensorId, const TensorState&)>
      value;  ///< of copies, shared inputs and parameters
  std::function<bool(TensorId, const TensorState&, const ParameterChoice&)> parameter;
  /// What a choice is charged beyond its price, on the price grid and not below 0; an empty
  /// function charges nothing. Objectives of the problem then include it, those of evaluate() do
  /// not.
  std::function<Seconds(OperatorId, const Strategy&)> strategy_charge;
  std::function<Seconds(TensorId, const TensorState&, const ParameterChoice&)> parameter_charge;
};

/// A price of memory at some moments, in seconds per byte. With `memory_only`, seconds do not count
/// and the priced sum is in bytes.
struct MemoryPrices {
  std::map<int, double> at;
  bool memory_only = false;
  friend bool operator==(const MemoryPrices&, const MemoryPrices&) = default;
};

/// A value for every variable.
using Choice = std::vector<int>;

/// A variable that decides nothing of its own: its value follows from another's.
struct Follower {
  int variable = 0;
  int leader = 0;          ///< follows none itself
  std::vector<int> value;  ///< per value of the leader
};

/// Everything that is chosen: a value for every variable, and what is minimised inside the tables.
struct Decision {
  Choice choice;
  std::vector<std::uint16_t> rests;    ///< per tensor; parameters: which of the ways to rest
  std::vector<std::uint8_t> gathered;  ///< per transfer: a saved operand is gathered again
};

class PlanProblem {
 public:
  /// The book must outlive the problem. Errors: kConflict where the restrictions (or the lack of
  /// any divisible dimension) leave an operator or tensor without a choice; it is named.
  static Result<std::unique_ptr<PlanProblem>> make(PriceBook& book,
                                                   const Restrictions& restrictions);
  ~PlanProblem();

  /// Before the first solve(), of all variables alone: these are not chosen but follow.
  void follow(std::vector<Follower> followers);
  /// Before the first solve(): every operator stands for so many equal ones (1 and more), with what
  /// it reads. measure() then counts each so often, and the peak only at moments of operators that
  /// stand for themselves.
  void weigh(std::vector<std::int64_t> weights);

  struct Solution {
    bool feasible = false;
    bool exact = true;
    double priced = 0;       ///< objective + priced memory of `choice`
    double lower_bound = 0;  ///< on the least priced sum
    Choice choice;
    std::size_t tables = 0;  ///< distinct tables, given or computed
  };

  /// The least priced sum. With `fixed`, only variables with free[v] != 0 are chosen, the others
  /// keep their value, and the sum is that of the free ones and their links. Tables are kept for
  /// further calls at the same prices.
  Solution solve(const MemoryPrices& prices,
                 const Choice* fixed = nullptr,
                 const std::vector<char>* free = nullptr);
  /// Chooses one variable after another, in this order, each at the least priced sum with those
  /// before it; every variable is in the order but followers.
  Solution descend(const MemoryPrices& prices, const std::vector<int>& order) const;
  /// A lower bound on the least priced sum that no transfer adds to: every variable alone at its
  /// best.
  double bound_of_variables(const MemoryPrices& prices) const;
  /// Forgets the tables that solve() keeps.
  void forget_tables();

  /// A choice and what is best inside the tables at these prices. With `known`, only what free
  /// variables and their links decide is decided anew, the rest is as known.
  Decision decide(Choice choice,
                  const MemoryPrices& prices,
                  const Decision* known = nullptr,
                  const std::vector<char>* free = nullptr) const;
  /// Variables whose operator runs before `cut`, and the links into them, as in `before`, the
  /// others as in `after`.
  Decision spliced(const Decision& before, const Decision& after, int cut) const;

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
  /// Pairs of values of variables that share a transfer, over all transfers: how large the problem
  /// is without tables that are shared.
  std::size_t pairs() const;
  /// The moment at which a variable's operator runs (a value: its producer or first reader).
  int moment_of(std::size_t variable) const;
  PriceBook& book() const { return book_; }

  /// The strategies that an operator's variable (number index(op)) chooses from, in the order of
  /// its values.
  const std::vector<Strategy>& strategies(OperatorId op) const;
  /// The variable of a DataFlow value, or -1: the result of an operator is that operator's.
  int variable_of(int value) const { return value_variable_[static_cast<std::size_t>(value)]; }
  /// The states that the variable of a value chooses from, in the order of its values.
  std::vector<TensorState> states_of(int variable) const;
  /// Per variable those that it shares a transfer with, ascending.
  std::vector<std::vector<int>> neighbours() const;
  /// The choice behind an assignment; nullopt where it is none of this problem's.
  std::optional<Choice> choice_of(const Assignment& assignment) const;

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
  struct Tables;
  /// Seconds of moving a value, and of that and bringing its gradient back, for pairs of states.
  struct Moves {
    std::vector<double> forward;
    std::vector<double> both;
  };

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
  /// visit(tensor, class, state) for every parameter whose rest a variable decides.
  template <class Visit>
  void visit_parameters(const Variable& variable, int value, const Visit& visit) const;
  /// Whether a link between these states may be kept or gathered again.
  static bool has_choice(const Link& link, int from, int to);
  std::pair<int, int> states_of(const Link& link, const Choice& choice) const;
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
  const Moves& moves(const Link& link) const;
  /// The variable that decides this one's value, and the value that it has then.
  int leader_of(int variable) const;
  int value_of(int variable, int leader_value) const;
  double weight_of(const Variable& variable) const;
  double weight_of(const Link& link) const;
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
  mutable std::map<const StateTable*, Moves> moves_;  ///< filled when first asked for
  std::unique_ptr<Tables> tables_;                    ///< of the last prices
  std::vector<int> follower_;  ///< per variable, into followers_ or -1; empty: none follows
  std::vector<Follower> followers_;
  std::vector<std::int64_t> weights_;  ///< per operator; empty: 1
};

}  // namespace meshplan

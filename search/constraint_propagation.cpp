// SPDX-License-Identifier: Apache-2.0
// From constraints to what every operator is to do.
//
// Problem: the user places a few tensors and operators; the rest should follow, and what does not
// follow should be what is cheapest.
//
// Idea: the constraints become shardings of tensors. An operator with constraints of its own gets a
// further operand with one dimension per factor, cut as all strategies that its constraints allow
// cut it; so it spreads like a tensor. Then shardings propagate (sharding_propagation.h).
//
// Policy cost: only free steps, in waves. An axis that all tensors of an operator with a factor
// agree on must shard that factor there. Where they do not agree (a conflict), where an axis was
// contested, and where none came (an open end), nothing is required: the search decides by price
// among all strategies that keep what is required, exactly, all such operators together. So a
// conflict is never settled by the order of visits, and what was fixed is held fixed.
//
// Policy rules: free and resolving steps by levels, then the common sharding of each operator's
// tensors (agreed_sharding.h); the operator's strategy is the legal one that agrees with it on the
// outermost axes. The search is left with parameters' rests and copies.
//
// A requirement that leaves an operator no strategy together with those of the axes outside it (a
// size that does not divide) is dropped. Constraints are never dropped: they hold by restriction of
// the same strategy space that the exact search uses, and two that leave an operator nothing are an
// error.
//
// Complexity: that of the propagation, and one pass over the operators; equal operators with equal
// requirements share one list of strategies.
#include "search/constraint_propagation.h"

#include <algorithm>
#include <array>
#include <set>
#include <tuple>

#include "search/agreed_sharding.h"
#include "search/constraint_restrictions.h"
#include "search/dimension_roles.h"

namespace meshplan {
namespace {

bool involves(const AxisAction& action, int factor) {
  return action.factor == factor || action.ring == factor;
}

std::string quote(const std::string& name) { return "\"" + name + "\""; }

/// A constraint that bears on one operator.
struct Atom {
  std::string where;
  std::vector<char> allowed;  ///< per strategy
};

}  // namespace

std::optional<PropagationPolicy> parse_propagation_policy(const std::string& name) {
  if (name == "cost") return PropagationPolicy::kCost;
  if (name == "rules") return PropagationPolicy::kRules;
  return std::nullopt;
}

ConstraintPropagation::ConstraintPropagation(PriceBook& book,
                                             BoundConstraints bound,
                                             PropagationPolicy policy,
                                             PropagationHold hold)
    : book_(book),
      graph_(book.graph()),
      bound_(std::move(bound)),
      plain_(meshplan::restrictions_from(bound_, book)),
      policy_(policy),
      hold_(hold) {}

Result<std::shared_ptr<const ConstraintPropagation>> ConstraintPropagation::make(
    PriceBook& book, BoundConstraints bound, PropagationPolicy policy, PropagationHold hold) {
  std::shared_ptr<ConstraintPropagation> made(
      new ConstraintPropagation(book, std::move(bound), policy, hold));
  if (auto done = made->run(); !done) return fail(done.error());
  return std::shared_ptr<const ConstraintPropagation>(std::move(made));
}

Result<void> ConstraintPropagation::run() {
  if (auto done = find_usable(); !done) return done;
  if (auto done = check_shared_parameters(); !done) return done;
  build_graph();
  given_ = Shardings(tensors_);
  priorities_.assign(given_.dims.size(), 0);
  from_batch_ = bound_.tensors.empty() && bound_.operators.empty();
  seed_tensors();
  seed_operators();
  if (from_batch_) seed_batch();
  const bool all_at_once =
      std::all_of(priorities_.begin(), priorities_.end(), [](auto p) { return p == 0; });
  found_ = std::make_unique<ShardingPropagation>(
      tensors_, given_, all_at_once ? std::vector<std::int64_t>{} : priorities_);
  found_->run(policy_ == PropagationPolicy::kRules);
  find_roots();
  require_factors();
  choose_strategies();
  return {};
}

// ---- What constraints leave
// -----------------------------------------------------------------------

bool ConstraintPropagation::touched(OperatorId id) const {
  if (bound_.operators.contains(id)) return true;
  const Operator& op = graph_.op(id);
  return std::any_of(op.inputs.begin(),
                     op.inputs.end(),
                     [&](const auto& t) { return t && touches_tensor(*t); }) ||
         std::any_of(
             op.outputs.begin(), op.outputs.end(), [&](TensorId t) { return touches_tensor(t); });
}

/// Whether the constrained parameters that this operator alone reads can rest as they must.
bool ConstraintPropagation::usable_parameters(OperatorId id,
                                              const Strategy& strategy,
                                              const Restrictions& restrictions) const {
  const Operator& op = graph_.op(id);
  for (std::size_t i = 0; i < op.inputs.size(); ++i) {
    if (!op.inputs[i] || !touches_tensor(*op.inputs[i]) ||
        book_.flow().direct(id, i) != DirectUse::kParameter)
      continue;
    const TensorState state = book_.operand_state(id, strategy, i);
    const std::vector<ParameterChoice> choices =
        state.has_partial() ? std::vector<ParameterChoice>{}
                            : book_.parameter_choices(*op.inputs[i], state);
    if (std::none_of(choices.begin(), choices.end(), [&](const ParameterChoice& choice) {
          return restrictions.parameter(*op.inputs[i], state, choice);
        }))
      return false;
  }
  return true;
}

/// Equal for operators on whose tensors alone there are constraints, and the same ones.
std::vector<std::intptr_t> ConstraintPropagation::usable_key(
    OperatorId id, const std::map<TensorId, int>& choice_classes) const {
  const Operator& op = graph_.op(id);
  std::vector<std::intptr_t> key = {reinterpret_cast<std::intptr_t>(&book_.info(id))};
  const auto add = [&](TensorId tensor, DirectUse direct) {
    const auto found = choice_classes.find(tensor);
    if (found == choice_classes.end()) return key.push_back(-1);
    const Tensor& t = graph_.tensor(tensor);
    const bool parameter = t.role == Role::kParameter;
    key.insert(
        key.end(),
        {found->second,
         static_cast<std::intptr_t>(direct),
         reinterpret_cast<std::intptr_t>(&book_.states(tensor)),
         t.uses.empty() ? 1 : 0,
         parameter && parameter_read_again(graph_, book_.flow(), tensor) ? 1 : 0,
         t.producer ? static_cast<std::intptr_t>(book_.info(*t.producer).result_reduction()) : -1});
  };
  for (std::size_t i = 0; i < op.inputs.size(); ++i) {
    if (op.inputs[i]) {
      add(*op.inputs[i], book_.flow().direct(id, i));
    } else {
      key.push_back(-2);
    }
  }
  for (const TensorId output : op.outputs) add(output, DirectUse::kNo);
  return key;
}

Result<void> ConstraintPropagation::find_usable() {
  if (bound_.tensors.empty() && bound_.operators.empty()) return {};
  std::map<TensorId, int> choice_classes;
  std::map<std::string, int> classes;
  for (const auto& [tensor, choices] : bound_.tensors) {
    std::string text;
    for (const std::vector<Placement>& allowed : choices.axes) {
      for (const Placement& placement : allowed) text += to_string(placement) + " ";
      text += ";";
    }
    choice_classes[tensor] =
        classes.try_emplace(text, static_cast<int>(classes.size())).first->second;
  }
  std::map<std::vector<std::intptr_t>, int> known;
  for (std::size_t o = 0; o < graph_.operators.size(); ++o) {
    const auto id = static_cast<OperatorId>(o);
    if (!touched(id)) continue;
    const int next = static_cast<int>(usable_.size());
    if (!bound_.operators.contains(id)) {
      const auto [found, is_new] = known.try_emplace(usable_key(id, choice_classes), next);
      usable_class_.emplace(id, found->second);
      if (!is_new) continue;
    } else {
      usable_class_.emplace(id, next);
    }
    std::vector<char> usable;
    bool any = false;
    for (const Strategy& strategy : book_.info(id).strategies()) {
      const bool fits = plain_.strategy(id, strategy) && usable_parameters(id, strategy, plain_);
      usable.push_back(fits ? 1 : 0);
      any = any || fits;
    }
    if (!any) return fail(clash_at(id));
    usable_.push_back(std::move(usable));
  }
  return {};
}

/// Which constraints leave the operator nothing: one alone, two together, or all.
Error ConstraintPropagation::clash_at(OperatorId id) const {
  const Operator& op = graph_.op(id);
  std::vector<Atom> atoms;
  const auto add = [&](std::string where, BoundConstraints only) {
    const Restrictions restrictions = meshplan::restrictions_from(only, book_);
    Atom atom{std::move(where), {}};
    for (const Strategy& strategy : book_.info(id).strategies())
      atom.allowed.push_back(
          restrictions.strategy(id, strategy) && usable_parameters(id, strategy, restrictions) ? 1
                                                                                               : 0);
    atoms.push_back(std::move(atom));
  };
  std::set<TensorId> seen;
  const auto add_tensor = [&](TensorId tensor) {
    const auto found = bound_.tensors.find(tensor);
    if (found == bound_.tensors.end() || !seen.insert(tensor).second) return;
    BoundConstraints only;
    only.tensors.emplace(tensor, found->second);
    add(found->second.where, std::move(only));
  };
  for (const auto& input : op.inputs) {
    if (input) add_tensor(*input);
  }
  for (const TensorId output : op.outputs) add_tensor(output);
  if (const auto own = bound_.operators.find(id); own != bound_.operators.end()) {
    const OperatorChoices& all = own->second;
    const auto add_own = [&](const std::string& where, auto&& fill) {
      OperatorChoices choices;
      choices.inputs.resize(all.inputs.size());
      choices.outputs.resize(all.outputs.size());
      choices.in_strategy.resize(all.in_strategy.size());
      fill(choices);
      BoundConstraints only;
      only.operators.emplace(id, std::move(choices));
      add(where, std::move(only));
    };
    for (std::size_t i = 0; i < all.inputs.size(); ++i) {
      if (all.inputs[i])
        add_own(all.inputs[i]->where, [&](OperatorChoices& c) { c.inputs[i] = all.inputs[i]; });
    }
    for (std::size_t i = 0; i < all.outputs.size(); ++i) {
      if (all.outputs[i])
        add_own(all.outputs[i]->where, [&](OperatorChoices& c) { c.outputs[i] = all.outputs[i]; });
    }
    for (std::size_t i = 0; i < all.in_strategy.size(); ++i) {
      if (all.in_strategy[i])
        add_own(all.in_strategy_where + "/" + std::to_string(i),
                [&](OperatorChoices& c) { c.in_strategy[i] = all.in_strategy[i]; });
    }
  }
  const std::string at = "operator " + quote(op.name) + " (" + op.type + ")";
  const auto none = [](const std::vector<char>& allowed) {
    return std::none_of(allowed.begin(), allowed.end(), [](char c) { return c != 0; });
  };
  for (const Atom& atom : atoms) {
    if (none(atom.allowed))
      return {ErrorCode::kConflict, atom.where, at + " has no strategy on this mesh that keeps it"};
  }
  for (std::size_t a = 0; a < atoms.size(); ++a) {
    for (std::size_t b = a + 1; b < atoms.size(); ++b) {
      std::vector<char> both = atoms[a].allowed;
      for (std::size_t s = 0; s < both.size(); ++s) both[s] = both[s] & atoms[b].allowed[s];
      if (none(both))
        return {ErrorCode::kConflict,
                atoms[a].where,
                "clashes with " + atoms[b].where + ": " + at +
                    " has no strategy on this mesh that keeps both"};
    }
  }
  std::string all;
  for (const Atom& atom : atoms) all += (all.empty() ? "" : ", ") + atom.where;
  return {ErrorCode::kConflict,
          atoms.empty() ? "" : atoms.front().where,
          at + " has no strategy on this mesh that keeps all of: " + all};
}

/// Operators that are told how to read one and the same parameter must be told the same.
Result<void> ConstraintPropagation::check_shared_parameters() const {
  for (const Tensor& tensor : graph_.tensors) {
    if (tensor.role != Role::kParameter || tensor.uses.size() < 2) continue;
    struct User {
      Use use;
      std::string where;
      std::set<TensorState> states;
    };
    std::vector<User> users;
    for (const Use& use : tensor.uses) {
      const auto own = bound_.operators.find(use.op);
      const auto i = static_cast<std::size_t>(use.operand);
      if (own == bound_.operators.end()) continue;
      const OperatorChoices& choices = own->second;
      if (!choices.inputs[i] && !choices.in_strategy[i]) continue;
      User user{use, choices.inputs[i] ? choices.inputs[i]->where : choices.in_strategy_where, {}};
      const std::vector<char>& allowed = usable(use.op);
      const std::vector<Strategy>& strategies = book_.info(use.op).strategies();
      for (std::size_t s = 0; s < strategies.size(); ++s) {
        // values alone: whose gradient is a sum is the operator's business
        TensorState state = book_.operand_state(use.op, strategies[s], i);
        for (AxisState& axis : state.axes) {
          if (axis == kGradientPartialState) axis = kReplicatedState;
        }
        if (allowed[s] != 0) user.states.insert(state);
      }
      for (const User& other : users) {
        std::vector<TensorState> both;
        std::set_intersection(user.states.begin(),
                              user.states.end(),
                              other.states.begin(),
                              other.states.end(),
                              std::back_inserter(both));
        if (!both.empty()) continue;
        return fail(ErrorCode::kConflict,
                    user.where,
                    "clashes with " + other.where + ": operators " +
                        quote(graph_.op(other.use.op).name) + " and " +
                        quote(graph_.op(use.op).name) + " share parameter " + quote(tensor.name) +
                        " and are to read it in different placements");
      }
      users.push_back(std::move(user));
    }
  }
  return {};
}

// ---- What is given
// ---------------------------------------------------------------------------------

void ConstraintPropagation::build_graph() {
  tensors_.mesh.assign(book_.mesh_shape().begin(), book_.mesh_shape().end());
  tensors_.in_order_and_even = true;
  for (const Tensor& tensor : graph_.tensors) tensors_.add_tensor(tensor.shape);
  std::map<const Rule*, std::shared_ptr<const FactorTable>> tables;
  tensors_.operators.reserve(graph_.operators.size());
  for (std::size_t o = 0; o < graph_.operators.size(); ++o) {
    const Operator& op = graph_.operators[o];
    const auto id = static_cast<OperatorId>(o);
    std::shared_ptr<const FactorTable>& table = tables[op.rule.get()];
    if (!table)
      table = std::make_shared<const FactorTable>(
          factor_table(*op.rule, policy_ == PropagationPolicy::kRules));
    PropagationGraph::Op made{table, {}};
    if (bound_.operators.contains(id)) {
      auto own = std::make_shared<FactorTable>(*table);
      Shape sizes;
      FactorTable::Dims dims;
      for (std::size_t f = 0; f < table->factors.size(); ++f) {
        sizes.push_back(table->factors[f].size);
        dims.push_back({static_cast<int>(f)});
      }
      own->tensors.insert(own->tensors.begin(), std::move(dims));
      ++own->operands;
      const int row = tensors_.add_tensor(sizes);
      rows_.emplace(id, row);
      row_operators_.push_back(id);
      made.table = std::move(own);
      made.tensors.push_back(row);
    }
    for (const auto& input : op.inputs) {
      // every reader has a constant for itself
      const bool spreads =
          input && (graph_.tensor(*input).role != Role::kConstant || touches_tensor(*input));
      made.tensors.push_back(spreads ? static_cast<int>(index(*input)) : -1);
    }
    made.tensors.resize(made.table->operands, -1);  // trailing optional ones
    for (const TensorId output : op.outputs)
      made.tensors.push_back(static_cast<int>(index(output)));
    made.tensors.resize(made.table->tensors.size(), -1);
    tensors_.operators.push_back(std::move(made));
  }
}

void ConstraintPropagation::seed_tensors() {
  for (const auto& [id, choices] : bound_.tensors) {
    const std::size_t t = index(id);
    const std::size_t first = tensors_.first_dim[t];
    for (std::size_t d = first; d < tensors_.first_dim[t + 1]; ++d)
      priorities_[d] = choices.priority;
    for (std::size_t axis = 0; axis < choices.axes.size(); ++axis) {
      const std::vector<Placement>& allowed = choices.axes[axis];
      if (allowed.empty() || tensors_.mesh[axis] == 1) continue;
      const AxisSet bit = AxisSet{1} << axis;
      for (std::size_t d = first; d < tensors_.first_dim[t + 1]; ++d) {
        const Placement shard = Shard{static_cast<int>(d - first)};
        const bool may = std::find(allowed.begin(), allowed.end(), shard) != allowed.end();
        if (!may) given_.open[d] &= ~bit;
        if (may && allowed.size() == 1) given_.dims[d].push_back(static_cast<int>(axis));
      }
      if (allowed.size() == 1 && !std::holds_alternative<Shard>(allowed.front()))
        given_.barred[t] |= bit;
    }
  }
}

void ConstraintPropagation::seed_operators() {
  for (const auto& [id, row] : rows_) {
    const auto t = static_cast<std::size_t>(row);
    const OperatorInfo& info = book_.info(id);
    const std::vector<char>& allowed = usable(id);
    // numbers of cuts may be had with different axes; without prices, the first way is as good as
    // any
    const std::vector<std::optional<Shape>>& cuts = bound_.operators.at(id).in_strategy;
    const bool first_alone =
        policy_ == PropagationPolicy::kRules &&
        std::any_of(cuts.begin(), cuts.end(), [](const auto& cut) { return cut.has_value(); });
    for (int axis = 0; axis < book_.mesh_axes(); ++axis) {
      if (tensors_.mesh[static_cast<std::size_t>(axis)] == 1) continue;
      std::set<int> factors;  // -1: none
      for (std::size_t s = 0; s < allowed.size(); ++s) {
        if (allowed[s] == 0) continue;
        factors.insert(info.action(info.strategies()[s], axis).factor);
        if (first_alone) break;
      }
      const AxisSet bit = AxisSet{1} << static_cast<unsigned>(axis);
      for (std::size_t d = tensors_.first_dim[t]; d < tensors_.first_dim[t + 1]; ++d) {
        const int factor = static_cast<int>(d - tensors_.first_dim[t]);
        if (!factors.contains(factor)) given_.open[d] &= ~bit;
        if (factors.contains(factor) && factors.size() == 1) given_.dims[d].push_back(axis);
      }
      if (factors.size() == 1 && factors.contains(-1)) given_.barred[t] |= bit;
    }
  }
}

/// The batch of the inputs, cut by all axes that divide it.
void ConstraintPropagation::seed_batch() {
  const std::vector<std::optional<int>> batch = follow_dimension(graph_, 0);
  for (std::size_t t = 0; t < graph_.tensors.size(); ++t) {
    const Tensor& tensor = graph_.tensors[t];
    if (tensor.role != Role::kInput || tensor.shape.empty() || tensor.uses.empty()) continue;
    const Use& use = tensor.uses.front();
    const DimensionFactors& dim =
        graph_.op(use.op).rule->operands[static_cast<std::size_t>(use.operand)].dims[0];
    if (dim.empty() || batch[index(use.op)] != dim.front()) continue;
    std::int64_t left = tensor.shape[0];
    for (std::size_t axis = 0; axis < tensors_.mesh.size(); ++axis) {
      const std::int64_t size = tensors_.mesh[axis];
      if (size == 1 || left % size != 0) continue;
      left /= size;
      given_.dims[tensors_.first_dim[t]].push_back(static_cast<int>(axis));
    }
  }
}

// ---- What follows
// ----------------------------------------------------------------------------------

/// Whether the axis cuts the tensor because it cuts a parameter at rest.
bool ConstraintPropagation::from_parameter(std::size_t tensor, std::size_t axis) const {
  if ((used_axes(tensors_, found_->shardings(), tensor) >> axis & 1U) == 0) return false;
  const auto root = static_cast<std::size_t>(roots_[tensor * tensors_.mesh.size() + axis]);
  return root < graph_.tensors.size() && graph_.tensors[root].role == Role::kParameter;
}

/// What the tensors of each operator agree on, and where they do not.
void ConstraintPropagation::require_factors() {
  std::array<std::int16_t, kPlanMeshAxes> open{};
  open.fill(-1);
  required_.assign(graph_.operators.size(), open);
  const Shardings& now = found_->shardings();
  std::vector<FactorCut> cuts;
  for (std::size_t o = 0; o < graph_.operators.size(); ++o) {
    const PropagationGraph::Op& op = tensors_.operators[o];
    const FactorTable& table = *op.table;
    const std::size_t factors = table.factors.size();
    AxisSet used = 0;
    for (const int tensor : op.tensors) {
      if (tensor >= 0) used |= used_axes(tensors_, now, static_cast<std::size_t>(tensor));
    }
    if (used == 0) continue;
    cuts.assign(op.tensors.size() * factors, {});
    for (std::size_t p = 0; p < op.tensors.size(); ++p) {
      if (op.tensors[p] >= 0) project(tensors_, now, table, p, op.tensors[p], &cuts[p * factors]);
    }
    for (std::size_t axis = 0; axis < tensors_.mesh.size(); ++axis) {
      const AxisSet bit = AxisSet{1} << axis;
      if ((used & bit) == 0) continue;
      int agreed = -1;
      bool conflict = false;
      const auto has = [&](std::size_t p, std::size_t f) {
        return (cuts[p * factors + f].axes.set() & bit) != 0;
      };
      for (std::size_t p = 0; p < op.tensors.size(); ++p) {
        if (op.tensors[p] < 0) continue;
        bool placed = false;
        for (std::size_t f = 0; f < factors; ++f) {
          if (!has(p, f)) continue;
          placed = true;
          conflict = conflict || (agreed >= 0 && agreed != static_cast<int>(f));
          agreed = static_cast<int>(f);
        }
        conflict = conflict ||
                   (!placed &&
                    (used_axes(tensors_, now, static_cast<std::size_t>(op.tensors[p])) & bit) != 0);
      }
      for (std::size_t p = 0; p < op.tensors.size() && !conflict && agreed >= 0; ++p) {
        const auto f = static_cast<std::size_t>(agreed);
        conflict = op.tensors[p] >= 0 && cuts[p * factors + f].there && !has(p, f);
      }
      if (!conflict) {
        if (hold_ == PropagationHold::kActivations &&
            std::any_of(op.tensors.begin(), op.tensors.end(), [&](int t) {
              return t >= 0 && from_parameter(static_cast<std::size_t>(t), axis);
            }))
          continue;
        // a factor of the table's own is none of the rule's
        const bool of_rule =
            agreed >= 0 && agreed < static_cast<int>(graph_.operators[o].rule->factors.size());
        required_[o][axis] = static_cast<std::int16_t>(of_rule ? agreed : -1);
        continue;
      }
      PropagationConflict made{static_cast<OperatorId>(o), static_cast<int>(axis), {}};
      for (std::size_t p = 0; p < op.tensors.size(); ++p) {
        if (op.tensors[p] < 0) continue;
        const auto t = static_cast<std::size_t>(op.tensors[p]);
        PropagationConflict::Claim claim;
        if (t < graph_.tensors.size()) claim.tensor = static_cast<TensorId>(t);
        for (std::size_t f = 0; f < factors; ++f) {
          if (has(p, f) && f < graph_.operators[o].rule->factors.size())
            claim.factor = graph_.operators[o].rule->factors[f].name;
        }
        for (std::size_t d = tensors_.first_dim[t]; d < tensors_.first_dim[t + 1]; ++d) {
          if ((now.dims[d].set() & bit) != 0)
            claim.dim = static_cast<int>(d - tensors_.first_dim[t]);
        }
        made.claims.push_back(std::move(claim));
      }
      conflicts_.push_back(std::move(made));
    }
  }
}

/// The strategies that are left of every operator.
void ConstraintPropagation::choose_strategies() {
  using Key = std::tuple<const OperatorInfo*, std::array<std::int16_t, kPlanMeshAxes>, bool, int>;
  std::map<Key, int> known;
  filter_of_.reserve(graph_.operators.size());
  for (std::size_t o = 0; o < graph_.operators.size(); ++o) {
    const auto id = static_cast<OperatorId>(o);
    const OperatorInfo& info = book_.info(id);
    std::array<std::int16_t, kPlanMeshAxes>& wanted = required_[o];
    const bool exact = policy_ == PropagationPolicy::kRules;
    if (exact) {
      wanted.fill(-1);
      const AgreedSharding common = agreed_sharding(tensors_, found_->shardings(), o);
      for (std::size_t f = 0; f < graph_.operators[o].rule->factors.size(); ++f) {
        for (const std::uint8_t axis : common.factors[f])
          wanted[axis] = static_cast<std::int16_t>(f);
      }
    }
    const auto touched_as = usable_class_.find(id);
    const int usable_class = touched_as == usable_class_.end() ? -1 : touched_as->second;
    const Key key{&info, wanted, exact, usable_class};
    const auto [found, is_new] = known.try_emplace(key, static_cast<int>(filters_.size()));
    filter_of_.push_back(found->second);
    if (!is_new) continue;
    const std::vector<Strategy>& strategies = info.strategies();
    const auto may = [&](std::size_t s) {
      return usable_class < 0 || usable_[static_cast<std::size_t>(usable_class)][s] != 0;
    };
    const auto keeps = [&](const Strategy& strategy, int axis) {
      const std::int16_t factor = wanted[static_cast<std::size_t>(axis)];
      const AxisAction& action = info.action(strategy, axis);
      if (exact)
        return factor < 0 ? action.kind == AxisAction::Kind::kNone
                          : action.kind == AxisAction::Kind::kFactor && action.factor == factor;
      return factor < 0 || involves(action, factor);
    };
    std::vector<char> filter(strategies.size(), 0);
    if (exact) {
      // agrees on the outermost axes; what it does not agree on does nothing, if possible
      std::optional<std::size_t> best;
      int best_score = -1;
      for (std::size_t s = 0; s < strategies.size(); ++s) {
        if (!may(s)) continue;
        int score = 0;
        for (int axis = 0; axis < book_.mesh_axes(); ++axis) {
          const bool idle = info.action(strategies[s], axis).kind == AxisAction::Kind::kNone;
          score = 4 * score + (keeps(strategies[s], axis) ? 3 : idle ? 1 : 0);
        }
        if (score <= best_score) continue;
        best_score = score;
        best = s;
      }
      if (best) filter[*best] = 1;
    } else {
      for (std::size_t s = 0; s < strategies.size(); ++s) filter[s] = may(s) ? 1 : 0;
      for (int axis = 0; axis < book_.mesh_axes(); ++axis) {
        std::vector<char> fewer = filter;
        for (std::size_t s = 0; s < strategies.size(); ++s)
          fewer[s] = fewer[s] != 0 && keeps(strategies[s], axis) ? 1 : 0;
        if (std::find(fewer.begin(), fewer.end(), 1) != fewer.end()) filter = std::move(fewer);
      }
    }
    filters_.push_back(std::move(filter));
  }
}

bool ConstraintPropagation::allows(OperatorId op, const Strategy& strategy) const {
  const std::vector<Strategy>& all = book_.info(op).strategies();
  const auto at = std::lower_bound(all.begin(), all.end(), strategy);
  const std::vector<char>& filter = filters_[static_cast<std::size_t>(filter_of_[index(op)])];
  return at != all.end() && *at == strategy &&
         filter[static_cast<std::size_t>(at - all.begin())] != 0;
}

// ---- Where it comes from
// ---------------------------------------------------------------------------

std::optional<int> ConstraintPropagation::cut_by(TensorId tensor, int axis) const {
  const std::size_t t = index(tensor);
  for (std::size_t d = tensors_.first_dim[t]; d < tensors_.first_dim[t + 1]; ++d) {
    if ((found_->shardings().dims[d].set() >> static_cast<unsigned>(axis) & 1U) != 0)
      return static_cast<int>(d - tensors_.first_dim[t]);
  }
  return std::nullopt;
}

std::vector<OperatorId> ConstraintPropagation::contested(TensorId tensor, int axis) const {
  std::vector<OperatorId> operators;
  for (const Contest& contest : found_->contests()) {
    if (contest.tensor != static_cast<int>(index(tensor)) || contest.axis != axis) continue;
    for (const int op : contest.operators) operators.push_back(static_cast<OperatorId>(op));
  }
  return operators;
}

std::optional<int> ConstraintPropagation::required(OperatorId op, int axis) const {
  const std::int16_t factor = required_[index(op)][static_cast<std::size_t>(axis)];
  return factor < 0 ? std::nullopt : std::optional<int>(factor);
}

/// Where each tensor's axes were given, by the derivations' ends.
void ConstraintPropagation::find_roots() {
  const std::size_t axes = tensors_.mesh.size();
  roots_.assign(tensors_.tensors() * axes, -1);
  std::vector<std::size_t> way;
  for (std::size_t t = 0; t < tensors_.tensors(); ++t) {
    for (std::size_t axis = 0; axis < axes; ++axis) {
      std::size_t at = t;
      while (roots_[at * axes + axis] < 0 && found_->derivation(at, axis).op >= 0) {
        way.push_back(at);
        at = static_cast<std::size_t>(found_->derivation(at, axis).from);
      }
      const std::int32_t root =
          roots_[at * axes + axis] >= 0 ? roots_[at * axes + axis] : static_cast<std::int32_t>(at);
      roots_[at * axes + axis] = root;
      for (; !way.empty(); way.pop_back()) roots_[way.back() * axes + axis] = root;
    }
  }
}

PropagationOrigin ConstraintPropagation::origin(TensorId tensor, int axis) const {
  PropagationOrigin made;
  const auto a = static_cast<std::size_t>(axis);
  if (!cut_by(tensor, axis)) {
    const auto given = bound_.tensors.find(tensor);
    if (given != bound_.tensors.end() && given->second.axes[a].size() == 1)
      made.kind = PropagationOrigin::Kind::kConstraint;
    return made;
  }
  std::size_t at = index(tensor);
  while (found_->derivation(at, a).op >= 0) {
    const Derivation& step = found_->derivation(at, a);
    at = static_cast<std::size_t>(step.from);
    PropagationStep next{static_cast<OperatorId>(step.op), std::nullopt};
    if (at < graph_.tensors.size()) next.from = static_cast<TensorId>(at);
    made.steps.push_back(next);
  }
  made.kind = !made.steps.empty() ? PropagationOrigin::Kind::kPropagated
              : from_batch_       ? PropagationOrigin::Kind::kDefault
                                  : PropagationOrigin::Kind::kConstraint;
  return made;
}

std::string ConstraintPropagation::reason(TensorId tensor,
                                          const Placements& placements,
                                          const std::vector<std::string>& axes) const {
  std::vector<std::string> reasons;
  for (int axis = 0; axis < book_.mesh_axes(); ++axis) {
    const auto a = static_cast<std::size_t>(axis);
    const auto* const shard = std::get_if<Shard>(&placements[a]);
    const std::optional<int> cut = cut_by(tensor, axis);
    const bool agrees = shard != nullptr ? cut == shard->dim : !cut;
    const std::size_t number = index(tensor) * tensors_.mesh.size() + a;
    if (agrees && cut && roots_[number] != static_cast<std::int32_t>(index(tensor))) {
      const auto root = static_cast<std::size_t>(roots_[number]);
      reasons.push_back("propagated from " +
                        (root < graph_.tensors.size()
                             ? graph_.tensors[root].name
                             : graph_.op(row_operators_[root - graph_.tensors.size()]).name));
      continue;
    }
    switch (agrees ? origin(tensor, axis).kind : PropagationOrigin::Kind::kPrice) {
      case PropagationOrigin::Kind::kPropagated:
      case PropagationOrigin::Kind::kPrice:
        reasons.emplace_back("cost");
        break;
      case PropagationOrigin::Kind::kConstraint:
        reasons.emplace_back("constraint");
        break;
      case PropagationOrigin::Kind::kDefault:
        reasons.emplace_back("batch");
        break;
    }
  }
  if (std::all_of(reasons.begin(), reasons.end(), [&](const std::string& r) {
        return r == reasons.front();
      }))
    return reasons.empty() ? "cost" : reasons.front();
  std::string text;
  for (std::size_t axis = 0; axis < reasons.size(); ++axis)
    text += (axis == 0 ? "" : ", ") + axes[axis] + ": " + reasons[axis];
  return text;
}

Restrictions restrictions_from(std::shared_ptr<const ConstraintPropagation> propagation,
                               PriceBook& book) {
  Restrictions restrictions = restrictions_from(propagation->bound(), book);
  restrictions.strategy = [propagation = std::move(propagation)](OperatorId op,
                                                                 const Strategy& strategy) {
    return propagation->allows(op, strategy);
  };
  return restrictions;
}

}  // namespace meshplan

// SPDX-License-Identifier: Apache-2.0
// Sharding propagation along operator rules.
//
// Problem: a few tensors are cut by mesh axes; which cuts of the others avoid communication?
//
// Idea: an operator is a list of factors, and every dimension of its operands and results a product
// of some of them. What cuts a factor in one tensor should cut it in all. So an operator is a
// table, tensors by factors, of lists of mesh axes. Per factor, the longest list that agrees with
// all tensors is found: one list a prefix of another is no disagreement, and behind the first
// mismatch nothing spreads. A free step gives that list to a tensor only as far as no tensor of the
// operator uses one of its axes for another factor, may not be cut further, or cannot be cut evenly
// where it has to. A resolving step looks at each tensor alone: the factors that larger tensors (in
// elementwise operators: more pieces) stand behind come first, and what no longer fits is left out.
// Lists only grow, so it ends: each dimension grows at most as often as the mesh has axes.
//
// Order: cheap operators first, those with readers of their own before shared ones, factors that
// need no communication before sums, and broadcasts backwards before forwards. Dimensions of a
// later priority are closed until it comes. Visits follow the graph's order, which is one for all
// orders of a document; in waves, no order matters at all.
//
// Complexity: O(operators x axes x rank x table) visits; in practice two to four per operator and
// level. An operator whose tensors agree is left alone at once.
//
// What it cannot do: an axis is never divided into parts of itself, so a cut that fits a dimension
// of 2 x 4 only in part spreads to neither factor. The method and its schedule are those of Shardy
// (openxla.org/shardy), with its basic and aggressive propagation as free and resolving steps.
#include "search/sharding_propagation.h"

#include <algorithm>
#include <set>

#include "lib/check.h"

namespace meshplan {
namespace {

constexpr int kForward = 1;
constexpr int kBackward = 2;
constexpr int kBoth = kForward | kBackward;

bool has(AxisSet set, int axis) { return (set >> static_cast<unsigned>(axis) & 1U) != 0; }

}  // namespace

ShardingPropagation::ShardingPropagation(const PropagationGraph& graph,
                                         Shardings given,
                                         std::vector<std::int64_t> priorities)
    : graph_(graph), given_(std::move(given)), priorities_(std::move(priorities)), now_(given_) {
  derivations_.resize(graph.tensors() * graph.mesh.size());
  operators_of_.resize(graph.tensors());
  readers_of_.resize(graph.tensors());
  std::size_t most_tensors = 0;
  std::size_t most_cells = 0;
  for (std::size_t o = 0; o < graph.operators.size(); ++o) {
    const PropagationGraph::Op& op = graph.operators[o];
    MESHPLAN_CHECK(op.tensors.size() == op.table->tensors.size());
    most_tensors = std::max(most_tensors, op.tensors.size());
    most_cells = std::max(most_cells, op.tensors.size() * op.table->factors.size());
    for (std::size_t p = 0; p < op.tensors.size(); ++p) {
      if (op.tensors[p] < 0) continue;
      const auto t = static_cast<std::size_t>(op.tensors[p]);
      const int number = static_cast<int>(o);
      if (operators_of_[t].empty() || operators_of_[t].back() != number)
        operators_of_[t].push_back(number);
      if (p < op.table->operands && (readers_of_[t].empty() || readers_of_[t].back() != number))
        readers_of_[t].push_back(number);
    }
  }
  cuts_.resize(most_cells);
  used_.resize(most_tensors);
  barred_.resize(most_tensors);
  for (const PropagationGraph::Op& op : graph.operators) {
    char single = 1;
    for (std::size_t p = 0; p < op.table->operands && p < op.tensors.size(); ++p) {
      if (op.tensors[p] < 0 || op.table->tensors[p].empty()) continue;
      if (readers_of_[static_cast<std::size_t>(op.tensors[p])].size() > 1) single = 0;
    }
    single_uses_.push_back(single);
  }
  hidden_.resize(now_.dims.size(), 0);
}

/// Directions in which a factor spreads: the union of what each level up to this one allows.
int ShardingPropagation::directions(const FactorTable& table,
                                    std::size_t factor,
                                    bool single_uses,
                                    int level) const {
  if (table.factors[factor].blocked) return 0;
  if (level >= 4) return kBoth;
  int found = 0;
  if (level >= 1 || single_uses) {
    if (table.cheap) found |= kBoth;
    if (table.cheap_forward) found |= kForward;
  }
  if (level >= 3 || (level >= 2 && table.factors[factor].kind == FactorClass::kPass))
    found |= table.broadcast ? kBackward : kBoth;
  return found;
}

bool ShardingPropagation::visits(std::size_t op, int level) const {
  const FactorTable& table = *graph_.operators[op].table;
  if (level >= 2) return true;
  return (table.cheap || table.cheap_forward) && (level >= 1 || single_uses_[op] != 0);
}

void ShardingPropagation::load(std::size_t op) {
  const PropagationGraph::Op& visited = graph_.operators[op];
  factors_ = visited.table->factors.size();
  std::fill(cuts_.begin(),
            cuts_.begin() + static_cast<std::ptrdiff_t>(visited.tensors.size() * factors_),
            FactorCut{});
  for (std::size_t p = 0; p < visited.tensors.size(); ++p) {
    used_[p] = 0;
    barred_[p] = 0;
    if (visited.tensors[p] < 0) continue;
    const auto t = static_cast<std::size_t>(visited.tensors[p]);
    used_[p] = used_axes(graph_, now_, t);
    barred_[p] = now_.barred[t];
    project(graph_, now_, *visited.table, p, visited.tensors[p], &cut(p, 0));
  }
}

/// The longest list that agrees with every tensor of the factor; only the side that spreads makes
/// it longer.
AxisList ShardingPropagation::compatible(std::size_t op, std::size_t factor, int directions) {
  const PropagationGraph::Op& visited = graph_.operators[op];
  const std::size_t operands = visited.table->operands;
  const std::size_t tensors = visited.tensors.size();
  AxisList list;
  bool grows = true;
  const auto join = [&](std::size_t p) {
    const FactorCut& own = cut(p, factor);
    if (!own.there || visited.tensors[p] < 0) return;
    const std::size_t same = list.common_prefix(own.axes);
    if (same < list.size() && same < own.axes.size()) {
      list.cut(same);
      grows = false;
    } else if (same == list.size() && grows &&
               (directions & (p < operands ? kForward : kBackward)) != 0) {
      list = own.axes;
    }
  };
  const bool results_first = directions == kBackward;
  for (std::size_t p = results_first ? operands : 0; p < tensors; ++p) join(p);
  for (std::size_t p = 0; results_first && p < operands; ++p) join(p);
  return list;
}

/// Whether tensor `position` has, or can have, `axis` as number `at` of its list for the factor, of
/// which `left` pieces are not cut yet.
bool ShardingPropagation::may_take(std::size_t op,
                                   std::size_t position,
                                   std::size_t factor,
                                   std::size_t at,
                                   int axis,
                                   std::int64_t left) {
  const FactorCut& own = cut(position, factor);
  if (has(barred_[position], axis)) return false;
  if (at < own.axes.size() && own.axes[at] == axis) return true;
  if (!has(own.open, axis) || !own.overflow.empty()) return false;
  const std::int64_t size = graph_.mesh[static_cast<std::size_t>(axis)];
  if ((!own.minor || graph_.in_order_and_even) && left % size != 0) return false;
  if (!graph_.in_order_and_even) return true;
  // axes that cut a dimension of this tensor already come before it in the mesh
  const FactorTable& table = *graph_.operators[op].table;
  for (const std::vector<int>& dimension : table.tensors[position]) {
    const auto place = std::find(dimension.begin(), dimension.end(), static_cast<int>(factor));
    if (place == dimension.end()) continue;
    for (auto other = dimension.begin(); other != dimension.end(); ++other) {
      const AxisList& axes = cut(position, static_cast<std::size_t>(*other)).axes;
      if (axes.empty()) continue;
      if (other <= place ? axes.back() > axis : axes[0] < axis) return false;
    }
  }
  return true;
}

void ShardingPropagation::free_step(std::size_t op, int level, std::vector<Change>& changes) {
  load(op);
  const PropagationGraph::Op& visited = graph_.operators[op];
  const FactorTable& table = *visited.table;
  const std::size_t tensors = visited.tensors.size();
  bool changed = false;
  for (std::size_t f = 0; f < factors_; ++f) {
    const int way = directions(table, f, single_uses_[op] != 0, level);
    if (way == 0) continue;
    AxisList list = compatible(op, f, way);
    std::int64_t left = table.factors[f].size;
    for (std::size_t at = 0; at < list.size(); ++at) {
      const int axis = list[at];
      bool fits = true;
      for (std::size_t p = 0; p < tensors && fits; ++p) {
        if (visited.tensors[p] < 0) continue;
        const FactorCut& own = cut(p, f);
        fits = !has(used_[p] & ~own.axes.set(), axis) &&
               (!own.there || may_take(op, p, f, at, axis, left));
      }
      if (!fits) {
        list.cut(at);
        break;
      }
      left /= std::max<std::int64_t>(1, graph_.mesh[static_cast<std::size_t>(axis)]);
    }
    for (std::size_t p = 0; p < tensors; ++p) {
      FactorCut& own = cut(p, f);
      if (!own.there || visited.tensors[p] < 0 || own.axes.size() >= list.size() ||
          !list.starts_with(own.axes))
        continue;
      if (!changed) before_ = cuts_;
      changed = true;
      own.axes = list;
      used_[p] |= list.set();
    }
  }
  if (changed) collect(op, changes);
}

void ShardingPropagation::resolving_step(std::size_t op, int level, std::vector<Change>& changes) {
  load(op);
  const PropagationGraph::Op& visited = graph_.operators[op];
  const FactorTable& table = *visited.table;
  const std::size_t tensors = visited.tensors.size();
  struct Wanted {
    std::size_t factor = 0;
    AxisList list;
    std::int64_t source_elements = -1;
    std::size_t source = 0;
    std::int64_t count = 1;
  };
  std::vector<Wanted> wanted;
  for (std::size_t f = 0; f < factors_; ++f) {
    const int way = directions(table, f, single_uses_[op] != 0, level);
    if (way == 0) continue;
    Wanted want{f, compatible(op, f, way)};
    if (want.list.empty()) continue;
    want.count = pieces(want.list, graph_.mesh);
    for (std::size_t p = 0; p < tensors; ++p) {
      if (visited.tensors[p] < 0 || !cut(p, f).there || !cut(p, f).axes.starts_with(want.list))
        continue;
      const std::int64_t elements = graph_.elements[static_cast<std::size_t>(visited.tensors[p])];
      if (elements > want.source_elements) {
        want.source_elements = elements;
        want.source = p;
      }
    }
    wanted.push_back(want);
  }
  if (wanted.empty()) return;
  std::stable_sort(wanted.begin(), wanted.end(), [&](const Wanted& a, const Wanted& b) {
    if (a.source_elements != b.source_elements) return a.source_elements > b.source_elements;
    if (table.elementwise && a.count != b.count) return a.count > b.count;
    return a.source < b.source;
  });
  bool changed = false;
  const auto visit = [&](std::size_t p) {
    if (visited.tensors[p] < 0) return;
    for (const Wanted& want : wanted) {
      const std::size_t f = want.factor;
      FactorCut& own = cut(p, f);
      if (!own.there) continue;
      AxisList list = want.list;
      // no further than a result that stays less cut: nothing goes sideways past it
      for (std::size_t r = table.operands; table.elementwise && p < table.operands && r < tensors;
           ++r) {
        if (visited.tensors[r] >= 0 && cut(r, f).there && list.starts_with(cut(r, f).axes))
          list.cut(cut(r, f).axes.size());
      }
      std::int64_t left = table.factors[f].size;
      for (std::size_t at = 0; at < list.size(); ++at) {
        const int axis = list[at];
        if (has(used_[p] & ~own.axes.set(), axis) || !may_take(op, p, f, at, axis, left)) {
          list.cut(at);
          break;
        }
        left /= std::max<std::int64_t>(1, graph_.mesh[static_cast<std::size_t>(axis)]);
      }
      if (own.axes.size() >= list.size() || !list.starts_with(own.axes)) continue;
      if (!changed) before_ = cuts_;
      changed = true;
      own.axes = list;
      used_[p] |= list.set();
    }
  };
  for (std::size_t p = table.operands; p < tensors; ++p) visit(p);
  for (std::size_t p = 0; p < table.operands; ++p) visit(p);
  if (changed) collect(op, changes);
}

/// What cuts_ says that before_ and the tensors did not.
void ShardingPropagation::collect(std::size_t op, std::vector<Change>& changes) {
  const PropagationGraph::Op& visited = graph_.operators[op];
  const FactorTable& table = *visited.table;
  for (std::size_t p = 0; p < visited.tensors.size(); ++p) {
    if (visited.tensors[p] < 0) continue;
    Change change;
    change.tensor = visited.tensors[p];
    change.op = static_cast<int>(op);
    const std::size_t first = graph_.first_dim[static_cast<std::size_t>(change.tensor)];
    bool differs = false;
    for (std::size_t d = 0; d < table.tensors[p].size(); ++d) {
      change.dims.push_back(unproject(graph_, table, table.tensors[p][d], &cut(p, 0)));
      differs = differs || change.dims.back() != now_.dims[first + d];
    }
    if (!differs) continue;
    change.derivations.resize(graph_.mesh.size());
    for (std::size_t f = 0; f < factors_; ++f) {
      if (!cut(p, f).there) continue;
      for (const std::uint8_t axis : cut(p, f).axes) {
        if (has(before_[p * factors_ + f].axes.set(), axis)) continue;
        for (std::size_t q = 0; q < visited.tensors.size(); ++q) {
          if (visited.tensors[q] < 0 || !has(before_[q * factors_ + f].axes.set(), axis)) continue;
          change.derivations[axis] = {change.op, visited.tensors[q]};
          break;
        }
      }
    }
    changes.push_back(std::move(change));
  }
}

void ShardingPropagation::apply(const Change& change) {
  const auto t = static_cast<std::size_t>(change.tensor);
  std::copy(change.dims.begin(),
            change.dims.end(),
            now_.dims.begin() + static_cast<std::ptrdiff_t>(graph_.first_dim[t]));
  for (std::size_t axis = 0; axis < graph_.mesh.size(); ++axis) {
    if (change.derivations[axis].op >= 0)
      derivations_[t * graph_.mesh.size() + axis] = change.derivations[axis];
  }
}

void ShardingPropagation::to_fixpoint(Step step, int level) {
  std::vector<int> stack;
  std::vector<char> waiting(graph_.operators.size(), 0);
  const auto push = [&](int op) {
    const auto o = static_cast<std::size_t>(op);
    if (waiting[o] != 0 || !visits(o, level)) return;
    waiting[o] = 1;
    stack.push_back(op);
  };
  for (std::size_t o = graph_.operators.size(); o-- > 0;) push(static_cast<int>(o));
  std::vector<Change> changes;
  while (!stack.empty()) {
    const int op = stack.back();
    stack.pop_back();
    waiting[static_cast<std::size_t>(op)] = 0;
    changes.clear();
    if (step == Step::kFree) {
      free_step(static_cast<std::size_t>(op), level, changes);
    } else {
      resolving_step(static_cast<std::size_t>(op), level, changes);
    }
    for (const Change& change : changes) apply(change);
    for (const Change& change : changes) {
      for (const int other : operators_of_[static_cast<std::size_t>(change.tensor)]) {
        if (other != op) push(other);
      }
    }
  }
}

void ShardingPropagation::to_fixpoint_in_waves(int level) {
  std::vector<int> wave;
  for (std::size_t o = 0; o < graph_.operators.size(); ++o) {
    if (visits(o, level)) wave.push_back(static_cast<int>(o));
  }
  std::vector<Change> changes;
  std::vector<char> listed(graph_.operators.size(), 0);
  while (!wave.empty()) {
    changes.clear();
    for (const int op : wave) free_step(static_cast<std::size_t>(op), level, changes);
    std::stable_sort(changes.begin(), changes.end(), [](const Change& a, const Change& b) {
      return a.tensor < b.tensor;
    });
    std::vector<int> next;
    for (std::size_t begin = 0; begin < changes.size();) {
      std::size_t end = begin;
      while (end < changes.size() && changes[end].tensor == changes[begin].tensor) ++end;
      const auto t = static_cast<std::size_t>(changes[begin].tensor);
      const std::size_t first = graph_.first_dim[t];
      // per axis the dimensions that want it
      for (std::size_t axis = 0; axis < graph_.mesh.size(); ++axis) {
        int wanted_by = -1;
        bool contested = false;
        for (std::size_t c = begin; c < end; ++c) {
          for (std::size_t d = 0; d < changes[c].dims.size(); ++d) {
            if (!has(changes[c].dims[d].set(), static_cast<int>(axis))) continue;
            contested = contested || (wanted_by >= 0 && wanted_by != static_cast<int>(d));
            wanted_by = static_cast<int>(d);
          }
        }
        if (!contested) continue;
        now_.barred[t] |= AxisSet{1} << axis;
        Contest contest{static_cast<int>(t), static_cast<int>(axis), {}};
        for (std::size_t c = begin; c < end; ++c) {
          if (contest.operators.empty() || contest.operators.back() != changes[c].op)
            contest.operators.push_back(changes[c].op);
        }
        contests_.push_back(std::move(contest));
      }
      // of lists for one dimension the longest that agrees with all others
      bool grown = false;
      for (std::size_t d = 0; d < changes[begin].dims.size(); ++d) {
        AxisList list = now_.dims[first + d];
        const AxisList* source = nullptr;
        std::size_t from = begin;
        bool agree = true;
        for (std::size_t c = begin; c < end; ++c) {
          const AxisList& other = changes[c].dims[d];
          if (source == nullptr || other.size() > source->size()) {
            agree = agree && (source == nullptr || other.starts_with(*source));
            source = &other;
            from = c;
          } else {
            agree = agree && source->starts_with(other);
          }
        }
        AxisList taken = agree ? *source : list;
        for (std::size_t i = 0; i < taken.size(); ++i) {
          if (has(now_.barred[t], taken[i]) && i >= list.size()) taken.cut(i);
        }
        if (taken.size() <= list.size()) continue;
        grown = true;
        now_.dims[first + d] = taken;
        for (std::size_t i = list.size(); i < taken.size(); ++i)
          derivations_[t * graph_.mesh.size() + static_cast<std::size_t>(taken[i])] =
              changes[from].derivations[static_cast<std::size_t>(taken[i])];
      }
      if (grown) {
        for (const int op : operators_of_[t]) {
          if (listed[static_cast<std::size_t>(op)] != 0 ||
              !visits(static_cast<std::size_t>(op), level))
            continue;
          listed[static_cast<std::size_t>(op)] = 1;
          next.push_back(op);
        }
      }
      begin = end;
    }
    for (const int op : next) listed[static_cast<std::size_t>(op)] = 0;
    std::sort(next.begin(), next.end());
    wave = std::move(next);
  }
}

void ShardingPropagation::by_levels() {
  for (int level = 0; level < kLevels; ++level) {
    to_fixpoint(Step::kFree, level);
    to_fixpoint(Step::kResolving, level);
  }
}

/// Closes and empties what has a later priority, and keeps its axes for it.
void ShardingPropagation::hide(std::int64_t above) {
  for (std::size_t t = 0; t < graph_.tensors(); ++t) {
    for (std::size_t d = graph_.first_dim[t]; d < graph_.first_dim[t + 1]; ++d) {
      if (priorities_[d] <= above) continue;
      hidden_[d] = 1;
      now_.barred[t] |= given_.dims[d].set();
      now_.dims[d] = {};
      now_.open[d] = 0;
    }
  }
}

void ShardingPropagation::run(bool resolving) {
  std::set<std::int64_t> steps = {0};
  steps.insert(priorities_.begin(), priorities_.end());
  if (!priorities_.empty()) hide(0);
  for (const std::int64_t priority : steps) {
    for (std::size_t t = 0; t < graph_.tensors() && priority > 0; ++t) {
      for (std::size_t d = graph_.first_dim[t]; d < graph_.first_dim[t + 1]; ++d) {
        if (hidden_[d] == 0 || priorities_[d] != priority) continue;
        hidden_[d] = 0;
        now_.barred[t] = (now_.barred[t] & ~given_.dims[d].set()) | given_.barred[t];
        now_.dims[d] = given_.dims[d];
        now_.open[d] = given_.open[d];
      }
    }
    if (resolving) {
      by_levels();
    } else {
      for (int level = 0; level < kLevels; ++level) to_fixpoint_in_waves(level);
    }
  }
}

}  // namespace meshplan

// SPDX-License-Identifier: Apache-2.0
// Where the tensors of an operator disagree, it still runs with one list of axes per factor, and
// the tensors are redistributed to that and from it. Three ways to find it, in this order:
//
// 1. All agree, no axis is used twice, nothing is cut that must be whole: that is it.
// 2. Two tensors, every dimension one factor, none that must be whole: one tensor stays as it is.
//    Which one: that without a cut along which data moves between neighbours, then the one with
//    more elements, then the one in more pieces, then the operand.
// 3. Otherwise greedily: candidates are the beginnings of the lists found, weighed by the elements
// of
//    the tensors that have them. The heaviest is taken, candidates that use its axes or do not go
//    on from it are dropped, and so on. Ties: factors that pass before sums, shifts and whole ones;
//    more pieces; the later factor; the later axes. An inner factor of a dimension waits until the
//    one outside it is cut completely.
// A factor that must be whole loses its axes; where it is in all tensors, they go to factors that
// are in all tensors, too, and pass, as far as sizes divide: a sort along a cut dimension runs cut
// along another.
//
// Complexity: O(c^2) in the number of candidates, at most factors x axes.
#include "search/agreed_sharding.h"

#include <algorithm>
#include <optional>

namespace meshplan {
namespace {

class Chooser {
 public:
  Chooser(const PropagationGraph& graph, const Shardings& shardings, std::size_t op)
      : graph_(graph),
        op_(graph.operators[op]),
        table_(*op_.table),
        factors_(table_.factors.size()),
        cuts_(op_.tensors.size() * factors_) {
    common_.factors.resize(factors_);
    for (std::size_t p = 0; p < op_.tensors.size(); ++p) {
      if (!takes_part(p)) continue;
      present_.push_back(p);
      project(graph, shardings, table_, p, op_.tensors[p], &cuts_[p * factors_]);
    }
  }

  AgreedSharding choose() {
    if (!agreed() && !kept_one()) {
      greedily();
      free_whole_factors();
    }
    for (std::size_t f = 0; f < factors_; ++f) {
      if (table_.factors[f].kind != FactorClass::kReduction || in_result(f)) continue;
      common_.reduced |= common_.factors[f].set();
    }
    return std::move(common_);
  }

 private:
  struct Candidate {
    std::size_t factor = 0;
    AxisList axes;
    std::int64_t weight = 0;
  };

  bool takes_part(std::size_t p) const { return op_.tensors[p] >= 0 && !table_.tensors[p].empty(); }
  const FactorCut& cut(std::size_t p, std::size_t f) const { return cuts_[p * factors_ + f]; }
  std::int64_t elements(std::size_t p) const {
    return graph_.elements[static_cast<std::size_t>(op_.tensors[p])];
  }
  bool in_result(std::size_t f) const {
    return std::any_of(present_.begin(), present_.end(), [&](std::size_t p) {
      return p >= table_.operands && cut(p, f).there;
    });
  }
  bool in_all(std::size_t f) const {
    return std::all_of(
        present_.begin(), present_.end(), [&](std::size_t p) { return cut(p, f).there; });
  }

  bool agreed() {
    AxisSet used = 0;
    std::vector<AxisList> lists(factors_);
    for (std::size_t f = 0; f < factors_; ++f) {
      bool first = true;
      for (const std::size_t p : present_) {
        if (!cut(p, f).there) continue;
        if (!cut(p, f).overflow.empty() || (!first && cut(p, f).axes != lists[f])) return false;
        lists[f] = cut(p, f).axes;
        first = false;
      }
      if (table_.factors[f].kind == FactorClass::kWhole && !lists[f].empty()) return false;
      if ((used & lists[f].set()) != 0) return false;
      used |= lists[f].set();
    }
    common_.factors = std::move(lists);
    return true;
  }

  bool kept_one() {
    if (present_.size() != 2 || present_[0] >= table_.operands || present_[1] < table_.operands)
      return false;
    for (const std::size_t p : present_) {
      for (const std::vector<int>& dimension : table_.tensors[p]) {
        const auto f = static_cast<std::size_t>(dimension[0]);
        if (dimension.size() > 1) return false;
        if (table_.factors[f].kind == FactorClass::kWhole && table_.factors[f].size > 1)
          return false;
      }
    }
    const auto shifts = [&](std::size_t p) {
      for (std::size_t f = 0; f < factors_; ++f) {
        if (table_.factors[f].kind == FactorClass::kShift && !cut(p, f).axes.empty()) return true;
      }
      return false;
    };
    const auto all_pieces = [&](std::size_t p) {
      std::int64_t product = 1;
      for (std::size_t f = 0; f < factors_; ++f) product *= pieces(cut(p, f).axes, graph_.mesh);
      return product;
    };
    std::size_t kept = present_[0];
    std::size_t other = present_[1];
    if (shifts(kept) != shifts(other)       ? shifts(kept)
        : elements(kept) != elements(other) ? elements(kept) < elements(other)
                                            : all_pieces(kept) < all_pieces(other))
      std::swap(kept, other);
    AxisSet used = 0;
    for (std::size_t f = 0; f < factors_; ++f) {
      if (!cut(kept, f).there) continue;
      common_.factors[f] = cut(kept, f).axes;
      used |= common_.factors[f].set();
    }
    for (std::size_t f = 0; f < factors_; ++f) {  // what only the other one has
      if (cut(kept, f).there) continue;
      for (const std::uint8_t axis : cut(other, f).axes) {
        if ((used >> axis & 1U) != 0) break;
        common_.factors[f].push_back(axis);
        used |= AxisSet{1} << axis;
      }
    }
    return true;
  }

  /// Every factor outside this one in a dimension is cut completely.
  bool may_be_cut(std::size_t f) const {
    for (const std::size_t p : present_) {
      for (const std::vector<int>& dimension : table_.tensors[p]) {
        const auto at = std::find(dimension.begin(), dimension.end(), static_cast<int>(f));
        for (auto outer = dimension.begin(); at != dimension.end() && outer != at; ++outer) {
          const auto o = static_cast<std::size_t>(*outer);
          if (pieces(common_.factors[o], graph_.mesh) < table_.factors[o].size) return false;
        }
      }
    }
    return true;
  }

  bool before(const Candidate& a, const Candidate& b) const {
    if (a.weight != b.weight) return a.weight > b.weight;
    const FactorClass kind_a = table_.factors[a.factor].kind;
    const FactorClass kind_b = table_.factors[b.factor].kind;
    if (kind_a != kind_b) return kind_a < kind_b;
    const std::int64_t more_a =
        pieces(a.axes, graph_.mesh) / pieces(common_.factors[a.factor], graph_.mesh);
    const std::int64_t more_b =
        pieces(b.axes, graph_.mesh) / pieces(common_.factors[b.factor], graph_.mesh);
    if (more_a != more_b) return more_a > more_b;
    if (a.factor != b.factor) return a.factor > b.factor;
    return a.axes > b.axes;
  }

  void greedily() {
    std::vector<Candidate> candidates;
    for (std::size_t f = 0; f < factors_; ++f) {
      std::vector<AxisList> prefixes;
      for (const std::size_t p : present_) {
        AxisList prefix;
        for (const std::uint8_t axis : cut(p, f).axes) {
          prefix.push_back(axis);
          if (std::find(prefixes.begin(), prefixes.end(), prefix) == prefixes.end())
            prefixes.push_back(prefix);
        }
      }
      for (const AxisList& prefix : prefixes) {
        Candidate candidate{f, prefix};
        for (const std::size_t p : present_) {
          if (cut(p, f).axes.starts_with(prefix)) candidate.weight += elements(p);
        }
        candidates.push_back(candidate);
      }
    }
    while (true) {
      std::optional<Candidate> best;
      for (const Candidate& candidate : candidates) {
        if (may_be_cut(candidate.factor) && (!best || before(candidate, *best))) best = candidate;
      }
      if (!best) return;
      const AxisList taken = best->axes;
      common_.factors[best->factor] = taken;
      std::vector<Candidate> left;
      for (Candidate& candidate : candidates) {
        if (candidate.factor == best->factor) {
          if (candidate.axes.size() > taken.size() && candidate.axes.starts_with(taken))
            left.push_back(candidate);
          continue;
        }
        for (std::size_t i = 0; i < candidate.axes.size(); ++i) {
          if ((taken.set() >> static_cast<unsigned>(candidate.axes[i]) & 1U) != 0)
            candidate.axes.cut(i);
        }
        if (candidate.axes.size() > common_.factors[candidate.factor].size())
          left.push_back(candidate);
      }
      candidates = std::move(left);
    }
  }

  void free_whole_factors() {
    AxisList loose;
    for (std::size_t f = 0; f < factors_; ++f) {
      if (table_.factors[f].kind != FactorClass::kWhole) continue;
      if (in_all(f)) {
        for (const std::uint8_t axis : common_.factors[f]) loose.push_back(axis);
      }
      common_.factors[f] = {};
    }
    for (const std::uint8_t axis : loose) {
      for (std::size_t f = 0; f < factors_; ++f) {
        AxisList& list = common_.factors[f];
        if (table_.factors[f].kind != FactorClass::kPass || !in_all(f) || !may_be_cut(f)) continue;
        const std::int64_t left = table_.factors[f].size / pieces(list, graph_.mesh);
        if (left < graph_.mesh[axis] || left % graph_.mesh[axis] != 0) continue;
        list.push_back(axis);
        break;
      }
    }
  }

  const PropagationGraph& graph_;
  const PropagationGraph::Op& op_;
  const FactorTable& table_;
  std::size_t factors_;
  std::vector<FactorCut> cuts_;
  std::vector<std::size_t> present_;  ///< tensors with dimensions
  AgreedSharding common_;
};

}  // namespace

AgreedSharding agreed_sharding(const PropagationGraph& graph,
                               const Shardings& shardings,
                               std::size_t op) {
  return Chooser(graph, shardings, op).choose();
}

std::vector<AxisList> dimensions_under(const PropagationGraph& graph,
                                       const FactorTable& table,
                                       std::size_t position,
                                       const AgreedSharding& common) {
  std::vector<FactorCut> cuts(table.factors.size());
  for (std::size_t f = 0; f < cuts.size(); ++f) cuts[f].axes = common.factors[f];
  std::vector<AxisList> lists;
  for (const std::vector<int>& dimension : table.tensors[position])
    lists.push_back(unproject(graph, table, dimension, cuts.data()));
  return lists;
}

}  // namespace meshplan

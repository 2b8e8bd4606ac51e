// SPDX-License-Identifier: Apache-2.0
// What an operator of the user's does: some function that has its rule.
//
// A rule does not say what an operator computes, only what depends on what and how it is summed.
// Any function that keeps to it serves to see whether a plan executes it rightly, so this takes one
// that keeps to nothing else:
//
// - an operand enters by a bent copy (tanh + 1/2) of its elements; one that is linear (`lin`) as it
//   is. Operands that are linear together are summed with different weights, groups multiplied;
// - factors that a result lacks are reduced as the rule says; private and whole ones are summed;
// - a statistic is the mean of the squares of the first operand's elements, and scales it (a linear
//   operand: the mean, which is added); a window is a weighted sum of the positions it covers;
// - keys go around the ring and are summed; addends are added by the first device of a Partial
// axis;
// - what only the result has is a number that depends on the position.
//
// What is not a function of the shards in this way is refused: routes, groups of linear operands
// that overlap, and the cases of `no_meaning` whose exchanges would not be those that are priced.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "cost_model/inner_exchanges.h"
#include "graph/operator_table.h"
#include "plan/execution/ops/meanings.h"
#include "plan/execution/ops/statistics.h"

namespace meshplan {
namespace {

using Results = std::vector<Var>;
using List = std::vector<std::int64_t>;
using Factors = std::set<int>;

constexpr std::size_t kMostTerms = 64;

Factors factors_of(const OperandRule& tensor) {
  Factors found;
  for (const DimensionFactors& dim : tensor.dims) found.insert(dim.begin(), dim.end());
  return found;
}

bool includes(const Factors& all, const Factors& some) {
  return std::includes(all.begin(), all.end(), some.begin(), some.end());
}

Factors of_kind(const Rule& rule, FactorKind kind) {
  Factors found;
  for (std::size_t f = 0; f < rule.factors.size(); ++f) {
    if (rule.factors[f].kind == kind) found.insert(static_cast<int>(f));
  }
  return found;
}

const Factor& factor_of(const Rule& rule, int id) {
  return rule.factors[static_cast<std::size_t>(id)];
}

/// How the rule's reduced factors combine; nullopt: it reduces nothing, or sums.
std::optional<Reduction> other_reduction(const Rule& rule) {
  for (const int f : of_kind(rule, FactorKind::kReduction)) {
    if (factor_of(rule, f).reduction != Reduction::kSum) return factor_of(rule, f).reduction;
  }
  return std::nullopt;
}

/// The sets of operands that are linear together, each once.
std::set<Factors> linear_groups(const Rule& rule) {
  std::set<Factors> groups;
  for (const LinearGroup& group : rule.linear)
    groups.insert({group.operands.begin(), group.operands.end()});
  return groups;
}

/// Numbers with a letter for every dimension: factors, and private dimensions.
struct Term {
  std::string letters;
  Var value;
};

char letter(std::size_t number) { return static_cast<char>('!' + static_cast<char>(number)); }
constexpr std::size_t kMostLetters = '~' - '!';

class RuleMeaning {
 public:
  explicit RuleMeaning(const OperatorContext& cx)
      : cx_(cx),
        rule_(cx.info.rule()),
        sizes_(cx.info.local_factors(cx.strategy)),
        letters_(rule_.factors.size()) {}

  Results run() {
    for (std::size_t i = 0; i < rule_.operands.size(); ++i) {
      operands_.push_back(cx_.has(i) ? with_windows(i) : Var());
      factors_.push_back(rule_.operands[i].present ? factors_of(rule_.operands[i]) : Factors());
    }
    pass_around();
    take_statistics();
    Results results;
    for (std::size_t r = 0; r < rule_.results.size(); ++r) {
      const Var y = other_reduction(rule_) ? extreme_or_product(r) : sum_of_products(r);
      if (!y.valid()) return {};
      results.push_back(reshape(y * (1.0 + static_cast<double>(r)), cx_.local_result(r)));
    }
    return results;
  }

 private:
  // ---- operands

  /// Operand i with windows in place of the positions that they slide over. Every dimension's halo
  /// comes first: a later one carries the corners of the earlier ones.
  Var with_windows(std::size_t i) {
    Var x = cx_.operand(i);
    const auto& dims = rule_.operands[i].dims;
    std::vector<std::size_t> slides;
    std::vector<Halo> reach;
    for (std::size_t d = 0; d < dims.size(); ++d) {
      if (dims[d].size() != 1) continue;
      const Factor& factor = factor_of(rule_, dims[d][0]);
      if (factor.kind != FactorKind::kWindow) continue;
      const AxisSet axes = cx_.operand_axes(i, d);
      slides.push_back(d);
      reach.emplace_back();
      if (axes == 0) continue;
      reach.back() = halo(factor.window, factor.size, cx_.tape.group_size(axes)).value_or(Halo{});
      x = halo_exchange(x, d, axes, reach.back().before, reach.back().after);
    }
    for (std::size_t s = 0; s < slides.size(); ++s)
      x = windows_along(x, i, slides[s], reach[s].before);
    return x;
  }

  /// A weighted sum of what each window covers; `before` rows of other shards come first.
  Var windows_along(Var x, std::size_t i, std::size_t d, std::int64_t before) {
    const int id = rule_.operands[i].dims[d][0];
    const Factor& factor = factor_of(rule_, id);
    const Window& window = factor.window;
    const List begin = cx_.operand_begin(i, d);
    const std::int64_t count = sizes_[static_cast<std::size_t>(id)];
    Var sum;
    for (std::int64_t k = 0; k < window.width; ++k) {
      List index;
      for (const std::int64_t first : begin) {
        // equal pieces of the positions and of the windows
        const std::int64_t piece = first / (window.extent * count / factor.size);
        for (std::int64_t w = 0; w < count; ++w) {
          const std::int64_t at = (piece * count + w) * window.stride - window.before + k;
          const bool padding = at < 0 || at >= window.extent;
          const std::int64_t local = at + before - first;
          if (!padding && local < 0) return cx_.tape.fail("a window reaches beyond the halo");
          index.push_back(padding ? -1 : local);
        }
      }
      const Var part = take(x, d, std::make_shared<const List>(std::move(index))) *
                       (1.0 / (1.0 + static_cast<double>(k)));
      sum = k == 0 ? part : sum + part;
    }
    return sum;
  }

  /// Operands with keys, on devices that hold some of them each: all in one block around the ring.
  void pass_around() {
    const Factors ring = of_kind(rule_, FactorKind::kRing);
    for (std::size_t a = cx_.info.mesh_shape().size(); a-- > 0;) {
      const int axis = static_cast<int>(a);
      const AxisAction& action = cx_.info.action(cx_.strategy, axis);
      if (action.kind != AxisAction::Kind::kRing) continue;
      std::vector<std::size_t> passed;
      std::vector<Shape> shapes;
      std::vector<Var> blocks;
      for (std::size_t i = 0; i < operands_.size(); ++i) {
        if (!factors_[i].contains(action.ring) || !operands_[i].valid()) continue;
        const std::size_t d = dimension_of(i, action.ring);
        std::vector<std::size_t> order = {d};
        for (std::size_t e = 0; e < rule_.operands[i].dims.size(); ++e) {
          if (e != d) order.push_back(e);
        }
        const Var x = permute(operands_[i], order);
        passed.push_back(i);
        shapes.push_back(x.shape());
        blocks.push_back(reshape(x, {x.shape()[0], element_count(x.shape()) / x.shape()[0]}));
      }
      if (passed.empty()) continue;
      const Var all = ring_gather(concat(blocks, 1), 0, axis);
      if (!all.valid()) return;
      std::int64_t first = 0;
      for (std::size_t p = 0; p < passed.size(); ++p) {
        const std::int64_t width = blocks[p].shape()[1];
        List index;
        for (std::int64_t device = 0; device < cx_.tape.devices(); ++device) {
          for (std::int64_t j = 0; j < width; ++j) index.push_back(first + j);
        }
        first += width;
        shapes[p][0] = all.shape()[0];
        const Var own =
            reshape(take(all, 1, std::make_shared<const List>(std::move(index))), shapes[p]);
        const std::size_t d = dimension_of(passed[p], action.ring);
        std::vector<std::size_t> order;
        for (std::size_t e = 0; e < shapes[p].size(); ++e)
          order.push_back(e == d ? 0 : e < d ? e + 1 : e);
        operands_[passed[p]] = permute(own, order);
      }
    }
  }

  std::size_t dimension_of(std::size_t i, int factor) const {
    const auto& dims = rule_.operands[i].dims;
    std::size_t d = 0;
    while (std::find(dims[d].begin(), dims[d].end(), factor) == dims[d].end()) ++d;
    return d;
  }

  /// The first operand is scaled by a statistic of itself (a linear one: shifted).
  void take_statistics() {
    const Factors over = of_kind(rule_, FactorKind::kStatistic);
    if (over.empty() || !operands_[0].valid()) return;
    const Term x = term(0, operands_[0]);
    std::string rest;
    AxisSet axes = 0;
    double count = 1;
    for (const int f : factors_[0]) {
      if (!over.contains(f)) {
        rest += factor_letter(f);
        continue;
      }
      axes |= axes_of_factor(cx_.info, cx_.strategy, f);
      count *= static_cast<double>(factor_of(rule_, f).size);
    }
    const bool linear = is_linear(0);
    const Var local = einsum({x.letters}, rest, {linear ? x.value : square(x.value)});
    statistic_ = {rest, all_reduce(local, axes, Reduction::kSum) * (1 / count)};
    if (!statistic_.value.valid()) return;
    // back to the first operand's dimensions: 1 where it has others
    Shape shape;
    for (const char at : x.letters) {
      const std::size_t found = rest.find(at);
      shape.push_back(found == std::string::npos ? 1 : statistic_.value.shape()[found]);
    }
    std::string order;
    for (const char at : x.letters) {
      if (rest.find(at) != std::string::npos) order += at;
    }
    const Var along = reshape(einsum({rest}, order, {statistic_.value}), shape);
    const Var made = linear ? x.value + along * 0.5 : x.value * reciprocal(sqrt(along + 1.0));
    operands_[0] = reshape(made, operands_[0].shape());
  }

  // ---- terms

  char factor_letter(int f) const { return letter(static_cast<std::size_t>(f)); }

  bool is_linear(std::size_t i) const {
    return std::any_of(rule_.linear.begin(), rule_.linear.end(), [&](const LinearGroup& group) {
      return std::find(group.operands.begin(), group.operands.end(), static_cast<int>(i)) !=
             group.operands.end();
    });
  }

  /// Operand i, one letter per factor.
  Term term(std::size_t i, Var x) {
    Term found;
    if (!x.valid()) return found;
    Shape shape;
    const auto& dims = rule_.operands[i].dims;
    for (std::size_t d = 0; d < dims.size(); ++d) {
      std::int64_t product = 1;
      for (const int f : dims[d]) {
        found.letters += factor_letter(f);
        shape.push_back(sizes_[static_cast<std::size_t>(f)]);
        product *= shape.back();
      }
      if (dims[d].empty()) {
        if (letters_ >= kMostLetters) {
          cx_.tape.fail("more dimensions than there are letters");
          return found;
        }
        found.letters += letter(letters_++);
        shape.push_back(x.shape()[d]);
        product = shape.back();
      }
      if (product != x.shape()[d]) {
        cx_.tape.fail("a shard cuts across the factors of dimension " + std::to_string(d));
        return found;
      }
    }
    found.value = reshape(x, shape);
    return found;
  }

  static Var bent(Var x) {
    return map(
        x,
        [](double v) { return std::tanh(v) + 0.5; },
        [](double v, double) {
          const double t = std::tanh(v);
          return 1 - t * t;
        });
  }

  /// A number per position of a dimension that only result r has.
  Term by_position(std::size_t r, int f) {
    const std::int64_t count = sizes_[static_cast<std::size_t>(f)];
    const AxisSet axes = axes_of_factor(cx_.info, cx_.strategy, f);
    DenseTensor values = DenseTensor::filled({cx_.tape.devices(), count}, 1.0);
    const auto& dims = rule_.results[r].dims;
    for (std::size_t d = 0; d < dims.size(); ++d) {
      if (dims[d].size() != 1 || dims[d][0] != f) continue;  // else the same number everywhere
      const List begin = cx_.result_begin(r, d);
      for (std::size_t at = 0; at < values.values.size(); ++at) {
        const std::int64_t position =
            begin[at / static_cast<std::size_t>(count)] + static_cast<std::int64_t>(at) % count;
        values.values[at] = 1 + 0.1 * static_cast<double>(position % 16);
      }
    }
    return {{factor_letter(f)}, cx_.tape.step(std::move(values), axes)};
  }

  /// The factors of a result, and its own letters for private dimensions.
  std::string letters_of(std::size_t r) const {
    std::string letters;
    for (const DimensionFactors& dim : rule_.results[r].dims) {
      for (const int f : dim) letters += factor_letter(f);
    }
    return letters;
  }

  // ---- results

  /// Whether result r may depend on operand i: on nothing that it lacks and that is not reduced.
  bool concerns(std::size_t r, std::size_t i) const {
    const Factors kept = factors_of(rule_.results[r]);
    return std::all_of(factors_[i].begin(), factors_[i].end(), [&](int f) {
      const FactorKind kind = factor_of(rule_, f).kind;
      return kept.contains(f) || kind == FactorKind::kReduction || kind == FactorKind::kWhole ||
             kind == FactorKind::kRing || kind == FactorKind::kStatistic;
    });
  }

  /// The product of the terms over the result's letters.
  Var product(std::size_t r, std::vector<Term> terms) {
    const Factors kept = factors_of(rule_.results[r]);
    const auto covered = [&](int f) {
      return std::any_of(terms.begin(), terms.end(), [&](const Term& t) {
        return t.letters.find(factor_letter(f)) != std::string::npos;
      });
    };
    for (const int f : kept) {
      if (!covered(f)) terms.push_back(by_position(r, f));
    }
    // a sum over a factor that no operand has counts it
    double times = 1;
    for (const int f : of_kind(rule_, FactorKind::kReduction)) {
      if (!kept.contains(f) && !covered(f) && !other_reduction(rule_))
        times *= static_cast<double>(sizes_[static_cast<std::size_t>(f)]);
    }
    if (terms.empty()) terms.push_back({"", full(cx_.tape, {}, 1)});
    std::vector<std::string> letters;
    std::vector<Var> values;
    for (const Term& each : terms) {
      letters.push_back(each.letters);
      values.push_back(each.value);
    }
    return einsum(letters, letters_of(r), values) * times;
  }

  Var zeros(std::size_t r) {
    Shape shape;
    for (const DimensionFactors& dim : rule_.results[r].dims) {
      for (const int f : dim) shape.push_back(sizes_[static_cast<std::size_t>(f)]);
    }
    return full(cx_.tape, std::move(shape), 0);
  }

  Var sum_of_products(std::size_t r) {
    const Factors kept = factors_of(rule_.results[r]);
    const Factors over = of_kind(rule_, FactorKind::kStatistic);
    // a result without the statistic's rows is the statistic, and nothing else
    const bool bare = !over.empty() && !includes(kept, over);
    std::vector<std::vector<Term>> groups;  // of each one is taken, in every way
    std::vector<bool> seen(operands_.size(), false);
    const auto usable = [&](std::size_t i) {
      return operands_[i].valid() && !rule_.operands[i].addend && !bare && concerns(r, i);
    };
    for (const Factors& group : linear_groups(rule_)) {
      std::vector<Term>& choices = groups.emplace_back();
      for (const int id : group) {
        const auto i = static_cast<std::size_t>(id);
        seen[i] = true;
        if (!usable(i)) continue;
        choices.push_back(term(i, operands_[i] * (1 + 0.25 * static_cast<double>(i))));
      }
      if (bare && group.contains(0) && concerns(r, 0)) choices.push_back(statistic_);
    }
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      if (!seen[i] && usable(i)) groups.push_back({term(i, bent(operands_[i]))});
    }
    if (bare && !seen[0] && concerns(r, 0)) groups.push_back({statistic_});
    std::vector<std::vector<Term>> terms = {{}};
    for (const std::vector<Term>& choices : groups) {
      std::vector<std::vector<Term>> longer;
      for (const std::vector<Term>& chosen : terms) {
        for (const Term& choice : choices) {
          longer.push_back(chosen);
          longer.back().push_back(choice);
        }
      }
      terms = std::move(longer);
    }
    if (!cx_.tape.ok()) return {};
    if (terms.size() > kMostTerms) return cx_.tape.fail("too many ways to combine its operands");
    Var y = zeros(r);
    for (const std::vector<Term>& chosen : terms) y = y + product(r, chosen);
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      if (!rule_.operands[i].addend || !operands_[i].valid() || !includes(kept, factors_[i]))
        continue;
      // where the result is a sum and this is not, the first device adds it
      const AxisSet once = cx_.partial_axes(r) & ~cx_.partial_operand_axes(i);
      y = y + product_of_addend(r, term(i, operands_[i] * cx_.first_of(once)));
    }
    return y;
  }

  /// An addend over all of the result's letters.
  Var product_of_addend(std::size_t r, const Term& addend) {
    const std::string all = letters_of(r);
    std::string order;
    Shape shape;
    for (const char at : all) {
      const std::size_t found = addend.letters.find(at);
      if (found == std::string::npos) {
        shape.push_back(1);
        continue;
      }
      order += at;
      shape.push_back(addend.value.valid() ? addend.value.shape()[found] : 1);
    }
    return reshape(einsum({addend.letters}, order, {addend.value}), shape);
  }

  /// The first operand has all factors; what the others have bends with it.
  Var extreme_or_product(std::size_t r) {
    const Factors kept = factors_of(rule_.results[r]);
    std::vector<std::string> letters;
    std::vector<Var> values;
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      if (!operands_[i].valid()) continue;
      const Term each = term(i, bent(operands_[i]));
      letters.push_back(each.letters);
      values.push_back(each.value);
    }
    std::string rows, reduced;
    std::vector<std::size_t> dims;
    Shape shape;
    AxisSet axes = 0;
    for (const int f : factors_[0]) {
      if (!kept.contains(f)) {
        reduced += factor_letter(f);
        axes |= axes_of_factor(cx_.info, cx_.strategy, f);
        continue;
      }
      rows += factor_letter(f);
      shape.push_back(sizes_[static_cast<std::size_t>(f)]);
    }
    const Var all = einsum(letters, rows + reduced, values);
    for (std::size_t d = 0; d < reduced.size(); ++d) dims.push_back(rows.size() + d);
    const Reduction how = *other_reduction(rule_);
    const Var y = how == Reduction::kProd
                      ? partial_product(all, dims, axes)
                      : partial_extreme(all, dims, axes, how == Reduction::kMax);
    return product(r, {{rows, reshape(y, shape)}});
  }

  const OperatorContext& cx_;
  const Rule& rule_;
  List sizes_;               ///< local, of the factors; keys of a ring: all
  std::size_t letters_ = 0;  ///< used
  std::vector<Var> operands_;
  std::vector<Factors> factors_;
  Term statistic_;
};

}  // namespace

std::optional<std::string> no_meaning(const Rule& rule) {
  if (rule.text == kReplicatedRule) return "nothing is known about it";
  if (!rule.routes.empty()) return "a rule with a route does not say which token goes where";
  const std::set<Factors> groups = linear_groups(rule);
  std::vector<int> linear(rule.operands.size(), 0);
  for (const Factors& group : groups) {
    for (const int i : group) ++linear[static_cast<std::size_t>(i)];
  }
  for (const int count : linear) {
    if (count > 1) return "an operand is linear in two ways at once";
  }
  const auto first = [&] {
    return rule.operands.empty() ? Factors() : factors_of(rule.operands[0]);
  }();
  const Factors statistics = of_kind(rule, FactorKind::kStatistic);
  if (!includes(first, statistics))
    return "statistics are taken of the first operand, which lacks a factor of them";
  for (std::size_t i = 0; i < rule.operands.size(); ++i) {
    const OperandRule& operand = rule.operands[i];
    if (!operand.addend) continue;
    const Factors own = factors_of(operand);
    for (const OperandRule& result : rule.results) {
      if (!includes(factors_of(result), own)) return "an addend has a factor that a result lacks";
    }
    if (linear[i] == 0) continue;
    // linear together with what it is added to
    for (std::size_t j = 0; j < rule.operands.size(); ++j) {
      if (groups.size() > 1 ||
          (!rule.operands[j].addend && groups.begin()->size() < 2 && rule.operands[j].present))
        return "an addend is linear without what it is added to";
    }
  }
  for (const int t : of_kind(rule, FactorKind::kRing)) {
    for (const OperandRule& operand : rule.operands) {
      for (const DimensionFactors& dim : operand.dims) {
        if (dim.size() > 1 && std::find(dim.begin(), dim.end(), t) != dim.end())
          return "the keys of a ring share a dimension";
      }
    }
    for (const OperandRule& result : rule.results) {
      if (factors_of(result).contains(t)) return "a result has the keys of a ring";
    }
  }
  if (!other_reduction(rule)) return std::nullopt;
  if (!statistics.empty()) return "it has statistics and a reduction that is no sum";
  if (rule.results.size() > 1) return "it has several results and a reduction that is no sum";
  for (std::size_t i = 0; i < rule.operands.size(); ++i) {
    if (!rule.operands[i].present) continue;
    if (rule.operands[i].addend) return "it has an addend and a reduction that is no sum";
    if (!includes(first, factors_of(rule.operands[i])))
      return "the first operand lacks a factor of another, and the reduction is no sum";
  }
  const Factors kept = factors_of(rule.results[0]);
  for (std::size_t f = 0; f < rule.factors.size(); ++f) {
    const int id = static_cast<int>(f);
    const bool reduced = rule.factors[f].kind == FactorKind::kReduction;
    if (reduced && !first.contains(id)) return "the first operand lacks a factor that is reduced";
    if (first.contains(id) && !reduced && !kept.contains(id))
      return "the first operand has a factor that the result lacks, and the reduction is no sum";
  }
  return std::nullopt;
}

Results meaning_by_rule(const OperatorContext& cx) { return RuleMeaning(cx).run(); }

}  // namespace meshplan

// SPDX-License-Identifier: Apache-2.0
// Wrong rules are found: each rule is spoilt in every way that applies to it, and for each there is
// a strategy whose numbers differ from the unsharded run.
#include <algorithm>
#include <map>
#include <set>

#include "plan/operator_cases.h"
#include "plan/operator_proof.h"
#include "support/catch.h"

namespace meshplan::operator_mutation_test {

using namespace test;
namespace {

struct Mutant {
  std::string kind;
  std::string what;
  Rule rule;
  Mistake mistake;
};

/// Whether no other tensor has the factors: exchanging them is giving them other names. A factor of
/// size 1 is none.
bool private_to(const Rule& rule, const OperandRule& tensor, const DimensionFactors& dim) {
  for (const std::vector<OperandRule>* list : {&rule.operands, &rule.results}) {
    for (const OperandRule& other : *list) {
      if (&other == &tensor) continue;
      for (const DimensionFactors& theirs : other.dims) {
        for (const int factor : theirs) {
          if (rule.factors[static_cast<std::size_t>(factor)].size == 1) continue;
          if (std::find(dim.begin(), dim.end(), factor) != dim.end()) return false;
        }
      }
    }
  }
  return true;
}

/// A sum turned parallel; an operand that leaves a joint sum; two dimensions' factors exchanged.
std::vector<Mutant> spoilt(const Rule& rule) {
  std::vector<Mutant> list;
  for (std::size_t f = 0; f < rule.factors.size(); ++f) {
    if (rule.factors[f].kind != FactorKind::kReduction) continue;
    list.push_back({"sum turned parallel", rule.factors[f].name, rule, {}});
    list.back().rule.factors[f].kind = FactorKind::kParallel;
  }
  for (std::size_t g = 0; g < rule.linear.size(); ++g) {
    for (std::size_t i = 0; i < rule.linear[g].operands.size(); ++i) {
      if (rule.linear[g].operands.size() < 2) continue;
      // what is added once may be a copy as well
      const auto operand = static_cast<std::size_t>(rule.linear[g].operands[i]);
      if (rule.operands[operand].addend) continue;
      list.push_back({"Partial dropped", "operand " + std::to_string(i), rule, {}});
      std::vector<int>& operands = list.back().rule.linear[g].operands;
      operands.erase(operands.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
  for (const bool results : {false, true}) {
    const std::vector<OperandRule>& tensors = results ? rule.results : rule.operands;
    for (std::size_t t = 0; t < tensors.size(); ++t) {
      for (std::size_t d = 0; d < tensors[t].dims.size(); ++d) {
        for (std::size_t e = d + 1; e < tensors[t].dims.size(); ++e) {
          if (tensors[t].dims[d] == tensors[t].dims[e]) continue;
          if (private_to(rule, tensors[t], tensors[t].dims[d]) &&
              private_to(rule, tensors[t], tensors[t].dims[e]))
            continue;
          list.push_back({"factor on the wrong dimension",
                          (results ? "result " : "operand ") + std::to_string(t) + ", " +
                              std::to_string(d) + " and " + std::to_string(e),
                          rule,
                          {}});
          Rule& wrong = list.back().rule;
          auto& dims = (results ? wrong.results : wrong.operands)[t].dims;
          std::swap(dims[d], dims[e]);
        }
      }
    }
  }
  return list;
}

std::vector<Mutant> misread(const Rule& rule) {
  std::vector<Mutant> list;
  for (std::size_t i = 0; i < rule.operands.size(); ++i)
    list.push_back(
        {"gradient's sum forgotten", "operand " + std::to_string(i), rule, {i, std::nullopt}});
  for (std::size_t r = 0; r < rule.results.size(); ++r)
    list.push_back({"Partial dropped", "result " + std::to_string(r), rule, {std::nullopt, r}});
  return list;
}

/// Whether a strategy means something else under the mutant than under the rule.
bool differs(const OperatorCase& c,
             const OperatorInfo& right,
             const OperatorInfo& wrong,
             const Strategy& strategy,
             const Mistake& mistake) {
  for (std::size_t i = 0; i < c.values.size(); ++i) {
    if (!c.values[i]) continue;
    const TensorState state = right.operand_state(strategy, i, c.gradients[i]);
    if (state != wrong.operand_state(strategy, i, c.gradients[i])) return true;
    if (mistake.forgets_gradient_sum_of == i && c.gradients[i] &&
        state != right.operand_state(strategy, i, false))
      return true;
  }
  for (std::size_t r = 0; r < right.rule().results.size(); ++r) {
    const TensorState state = right.result_state(strategy, r);
    if (state != wrong.result_state(strategy, r)) return true;
    if (mistake.forgets_partial_of == r && state != without_partial(state)) return true;
  }
  return false;
}

/// nullopt where no strategy shows a difference, else whether it was found.
std::optional<bool> found(const OperatorCase& c,
                          const TypedOperator& typed,
                          const WholeRun& whole,
                          const Mutant& mutant,
                          Random& random) {
  bool applies = false;
  const auto spoilt_rule = std::make_shared<const Rule>(mutant.rule);
  for (const Sizes& mesh : {Sizes{2}, Sizes{3}, Sizes{2, 2}}) {
    const OperatorInfo right(typed.rule, mesh);
    const auto wrong = std::make_shared<const OperatorInfo>(spoilt_rule, mesh);
    if (right.actions().size() != wrong->actions().size()) continue;
    for (const Strategy& strategy : wrong->strategies()) {
      if (!differs(c, right, *wrong, strategy, mutant.mistake)) continue;
      bool divides_all = true;  // what cannot be cut at all is refused long before
      for (std::size_t i = 0; i < c.values.size(); ++i) {
        if (c.values[i])
          divides_all = divides_all &&
                        divides(c.values[i]->shape, wrong->operand_state(strategy, i, true), mesh);
      }
      for (std::size_t r = 0; r < whole.results.size(); ++r)
        divides_all =
            divides_all && divides(whole.results[r].shape, wrong->result_state(strategy, r), mesh);
      if (!divides_all) continue;
      applies = true;
      if (disproof(c, typed, whole, wrong, strategy, random, nullptr, mutant.mistake)) return true;
    }
  }
  return applies ? std::optional(false) : std::nullopt;
}

TEST_CASE("every way to spoil a rule is found by the numbers") {
  std::map<std::string, std::map<std::string, int>> counts;        // of a type, by kind
  std::set<std::string> nothing_to_spoil = {"NonZero", "Unique"};  // every dimension is whole
  for (const auto& [type, make] : operator_cases()) {
    // results that depend on positions alone, whatever the operand is
    if (type == "RandomNormalLike" || type == "RandomUniformLike") continue;
    Random random(7);
    std::map<std::string, int>& of_type = counts[type];
    for (const OperatorCase& c : make(random)) {
      if (c.values.empty()) nothing_to_spoil.insert(type);
      auto typed = infer_operator(c.spec);
      if (!typed) FAIL(type << ": " << typed.error().message);
      auto whole = run_whole(c, *typed, random);
      if (!whole) FAIL(type << ": " << whole.error().message);
      // what a user's operator does follows from its rule: another rule is another operator
      std::vector<Mutant> mutants = type == "Custom" ? std::vector<Mutant>() : spoilt(*typed->rule);
      for (Mutant& mutant : misread(*typed->rule)) mutants.push_back(std::move(mutant));
      for (const Mutant& mutant : mutants) {
        const auto caught = found(c, *typed, *whole, mutant, random);
        if (!caught) continue;
        ++of_type[mutant.kind];
        INFO(type << " " << typed->rule->text << ": " << mutant.kind << ", " << mutant.what);
        CHECK(*caught);
      }
    }
  }
  // every row with something to spoil has been spoilt
  int mutants = 0;
  for (const auto& [type, kinds] : counts) {
    INFO(type);
    CHECK((nothing_to_spoil.contains(type) || !kinds.empty()));
    for (const auto& [kind, count] : kinds) mutants += count;
  }
  CHECK(mutants > 500);
}

}  // namespace
}  // namespace meshplan::operator_mutation_test

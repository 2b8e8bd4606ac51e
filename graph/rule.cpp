// SPDX-License-Identifier: Apache-2.0
// The rule notation: parsing (text -> patterns) and binding (patterns + shapes -> Rule).
#include "graph/rule.h"

#include <algorithm>
#include <cctype>
#include <set>

#include "graph/dimension_sizes.h"
#include "lib/check.h"

namespace meshplan {
namespace {

constexpr std::size_t kLongestRule = 10000;
constexpr std::size_t kMostFactors = 64;
/// The product of two sizes from 1 to kMostTensorBytes + 1; that number where it is larger, which
/// no dimension has.
std::int64_t bounded_product(std::int64_t a, std::int64_t b) {
  return a > kMostTensorBytes / b ? kMostTensorBytes + 1 : a * b;
}

enum class TermKind { kSingle, kRun, kCompound, kPrivate };

/// One dimension (or run of dimensions) of an operand pattern.
struct Term {
  TermKind kind = TermKind::kSingle;
  std::vector<std::string> names;  ///< one name; several for a compound; none for `.`
  bool broadcast = false;  ///< `~`: size 1 does not carry the factor, missing dimensions allowed
  std::size_t column = 0;
};

struct OperandPattern {
  std::vector<Term> terms;
  bool optional = false;
};

struct Modifier {
  std::string key;
  std::vector<std::string> values;  ///< factor or operand names
  std::string text;                 ///< everything after the colon
  std::size_t column = 0;
};

struct ParsedRule {
  std::vector<OperandPattern> operands;
  std::vector<OperandPattern> results;
  std::vector<Modifier> modifiers;
};

Unexpected<Error> syntax(std::string_view text, std::size_t at, const std::string& expected) {
  return fail(ErrorCode::kValue,
              "",
              "rule \"" + std::string(text.substr(0, 200)) + "\", column " +
                  std::to_string(at + 1) + ": " + expected);
}

bool is_name_start(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0; }
bool is_name_part(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '\'';
}

class RuleParser {
 public:
  explicit RuleParser(std::string_view text) : text_(text) {}

  Result<ParsedRule> run() {
    if (text_.size() > kLongestRule)
      return syntax(text_, 0, "the rule is longer than 10,000 characters");
    ParsedRule rule;
    if (auto done = operand_list(rule.operands, true); !done) return fail(done.error());
    skip_space();
    if (text_.substr(at_, 2) != "->") return syntax(text_, at_, "expected \"->\"");
    at_ += 2;
    if (auto done = operand_list(rule.results, false); !done) return fail(done.error());
    skip_space();
    if (at_ < text_.size() && text_[at_] == ';') {
      ++at_;
      if (auto done = modifiers(rule.modifiers); !done) return fail(done.error());
    }
    skip_space();
    if (at_ != text_.size()) return syntax(text_, at_, "expected a factor, \",\" or \";\"");
    return rule;
  }

 private:
  void skip_space() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }

  std::string name() {
    const std::size_t start = at_;
    if (at_ < text_.size() && is_name_start(text_[at_])) {
      while (at_ < text_.size() && is_name_part(text_[at_])) ++at_;
    }
    return std::string(text_.substr(start, at_ - start));
  }

  Result<void> operand_list(std::vector<OperandPattern>& list, bool operands) {
    for (;;) {
      OperandPattern pattern;
      for (;;) {
        skip_space();
        if (at_ >= text_.size()) break;
        const char c = text_[at_];
        if (c == ',' || c == ';' || text_.substr(at_, 2) == "->") break;
        if (c == '?') {
          if (!operands) return syntax(text_, at_, "a result cannot be optional");
          pattern.optional = true;
          ++at_;
          continue;
        }
        auto parsed = term();
        if (!parsed) return fail(parsed.error());
        pattern.terms.push_back(std::move(*parsed));
      }
      list.push_back(std::move(pattern));
      if (at_ < text_.size() && text_[at_] == ',') {
        ++at_;
        continue;
      }
      return {};
    }
  }

  Result<Term> term() {
    Term parsed;
    parsed.column = at_;
    if (text_[at_] == '~') {
      parsed.broadcast = true;
      ++at_;
    }
    if (at_ < text_.size() && text_[at_] == '.') {
      ++at_;
      parsed.kind = TermKind::kPrivate;
      return parsed;
    }
    if (at_ < text_.size() && text_[at_] == '(') {
      ++at_;
      parsed.kind = TermKind::kCompound;
      for (;;) {
        skip_space();
        if (at_ < text_.size() && text_[at_] == ')') break;
        std::string factor = name();
        if (factor.empty()) return syntax(text_, at_, "expected a factor or \")\"");
        parsed.names.push_back(std::move(factor));
      }
      ++at_;
      if (parsed.names.empty()) return syntax(text_, at_ - 1, "expected a factor");
      return parsed;
    }
    std::string factor = name();
    if (factor.empty())
      return syntax(text_, at_, "expected a factor (a name that starts with a letter)");
    parsed.names.push_back(std::move(factor));
    if (text_.substr(at_, 2) == "..") {
      parsed.kind = TermKind::kRun;
      at_ += 2;
    }
    return parsed;
  }

  Result<void> modifiers(std::vector<Modifier>& list) {
    for (;;) {
      skip_space();
      if (at_ >= text_.size()) return {};
      Modifier modifier;
      modifier.column = at_;
      modifier.key = name();
      if (modifier.key.empty() || at_ >= text_.size() || text_[at_] != ':') {
        return syntax(text_, at_, "expected a modifier such as \"sum:k\"");
      }
      ++at_;
      const std::size_t start = at_;
      int open = 0;  // expressions may hold spaces inside parentheses
      while (at_ < text_.size() && (text_[at_] != ' ' || open > 0)) {
        if (text_[at_] == '(') ++open;
        if (text_[at_] == ')') --open;
        ++at_;
      }
      modifier.text = std::string(text_.substr(start, at_ - start));
      if (modifier.text.empty())
        return syntax(text_, start, "expected a value after \"" + modifier.key + ":\"");
      std::string value;
      for (const char c : modifier.text + ",") {
        if (is_name_part(c)) {
          value += c;
        } else if (!value.empty()) {
          modifier.values.push_back(value);
          value.clear();
        }
      }
      list.push_back(std::move(modifier));
    }
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

std::string operand_text(std::size_t operand) { return "operand " + std::to_string(operand); }

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(shape[i]);
  }
  return text + "]";
}

/// Patterns + shapes -> factors with sizes.
class RuleBinder {
 public:
  using Shape = std::vector<std::int64_t>;

  RuleBinder(std::string_view text,
             const ParsedRule& parsed,
             std::span<const std::optional<Shape>> shapes,
             const std::map<std::string, std::int64_t>& sizes)
      : text_(text), parsed_(parsed), shapes_(shapes), given_(sizes) {}

  Result<Rule> run() {
    rule_.text = std::string(text_);
    if (auto done = check_names(); !done) return fail(done.error());
    if (auto done = match_operands(); !done) return fail(done.error());
    if (auto done = find_run_lengths(); !done) return fail(done.error());
    if (auto done = name_factors(); !done) return fail(done.error());
    if (auto done = bind_sizes(); !done) return fail(done.error());
    if (auto done = build_results(); !done) return fail(done.error());
    if (auto done = apply_modifiers(); !done) return fail(done.error());
    if (auto done = check_kinds(); !done) return fail(done.error());
    return std::move(rule_);
  }

 private:
  Result<void> match_operands() {
    // no operands, or one without dimensions: the text is the same
    if (shapes_.empty() && parsed_.operands.size() == 1 && parsed_.operands[0].terms.empty())
      return {};
    if (shapes_.size() > parsed_.operands.size()) {
      return fail(ErrorCode::kValue,
                  "",
                  "takes at most " + std::to_string(parsed_.operands.size()) + " operands, got " +
                      std::to_string(shapes_.size()));
    }
    for (std::size_t i = 0; i < parsed_.operands.size(); ++i) {
      const bool present = i < shapes_.size() && shapes_[i].has_value();
      if (!present && !parsed_.operands[i].optional) {
        return fail(ErrorCode::kMissing,
                    "",
                    operand_text(i) + " is missing (rule \"" + std::string(text_) + "\")");
      }
      OperandRule operand;
      operand.present = present;
      if (present) operand.shape = *shapes_[i];
      rule_.operands.push_back(std::move(operand));
    }
    return {};
  }

  /// A run is as long as the dimensions that the other terms of its operand leave.
  Result<void> find_run_lengths() {
    bool changed = true;
    std::size_t rounds = 0;
    while (changed && rounds++ <= parsed_.operands.size() + 1) {
      changed = false;
      for (std::size_t i = 0; i < rule_.operands.size(); ++i) {
        if (!rule_.operands[i].present) continue;
        std::size_t fixed = 0;
        const Term* open = nullptr;
        bool several = false;
        for (const Term& term : parsed_.operands[i].terms) {
          if (term.kind != TermKind::kRun) {
            ++fixed;
          } else if (const auto known = run_length_.find(term.names[0]);
                     known != run_length_.end() && !term.broadcast) {
            fixed += known->second;
          } else {
            several = open != nullptr;
            open = &term;
          }
        }
        const std::size_t rank = rule_.operands[i].shape.size();
        if (open == nullptr || several) continue;
        if (rank < fixed) {
          return fail(ErrorCode::kValue,
                      "",
                      operand_text(i) + " has " + std::to_string(rank) +
                          " dimensions, expected at least " + std::to_string(fixed));
        }
        auto [entry, added] = run_length_.emplace(open->names[0], rank - fixed);
        if (!added && open->broadcast && entry->second < rank - fixed) {
          entry->second = rank - fixed;
          added = true;
        }
        changed = changed || added;
      }
    }
    return {};
  }

  /// A name is that of a run wherever it stands, or nowhere.
  Result<void> check_names() const {
    std::map<std::string, TermKind> first;
    for (const std::vector<OperandPattern>* list : {&parsed_.operands, &parsed_.results}) {
      for (const OperandPattern& pattern : *list) {
        for (const Term& term : pattern.terms) {
          for (const std::string& name : term.names) {
            const auto [known, added] = first.emplace(name, term.kind);
            if ((known->second == TermKind::kRun) != (term.kind == TermKind::kRun)) {
              return syntax(
                  text_,
                  term.column,
                  "\"" + name + "\" is a factor and a run (\"" + name + "..\") in the same rule");
            }
          }
        }
      }
    }
    return {};
  }

  Result<void> name_factors() {
    for (const std::vector<OperandPattern>* list : {&parsed_.operands, &parsed_.results}) {
      for (const OperandPattern& pattern : *list) {
        for (const Term& term : pattern.terms) {
          if (term.kind == TermKind::kRun) {
            const auto length = run_length_.find(term.names[0]);
            if (length == run_length_.end()) {
              if (optional_only(term.names[0])) {
                run_length_[term.names[0]] = 0;
                rule_.names[term.names[0]] = {};
                continue;
              }
              return syntax(
                  text_,
                  term.column,
                  "the length of run \"" + term.names[0] + "..\" cannot be told from the operands");
            }
            if (rule_.names.contains(term.names[0])) continue;
            std::vector<int> ids;
            for (std::size_t k = 0; k < length->second; ++k)
              ids.push_back(add_factor(term.names[0] + std::to_string(k)));
            rule_.names[term.names[0]] = std::move(ids);
            continue;
          }
          for (const std::string& factor : term.names) {
            if (!rule_.names.contains(factor)) rule_.names[factor] = {add_factor(factor)};
          }
        }
      }
    }
    if (rule_.factors.size() > kMostFactors) {
      return fail(ErrorCode::kUnsupported, "", "more than 64 dimensions in one operator");
    }
    known_.assign(rule_.factors.size(), std::nullopt);
    for (const auto& [name, size] : given_) {
      const auto found = rule_.names.find(name);
      if (found == rule_.names.end()) continue;
      if (size < 1 || size > kMostTensorBytes) {
        return fail(ErrorCode::kValue,
                    "",
                    "the size of factor \"" + name + "\" is " + std::to_string(size) +
                        ", expected 1 to 2^62");
      }
      for (const int factor : found->second) known_[static_cast<std::size_t>(factor)] = size;
    }
    return {};
  }

  /// Whether the run stands in operands, but in omitted ones alone.
  bool optional_only(const std::string& run) const {
    bool omitted = false;
    for (std::size_t i = 0; i < parsed_.operands.size(); ++i) {
      for (const Term& term : parsed_.operands[i].terms) {
        if (term.kind != TermKind::kRun || term.names[0] != run) continue;
        if (rule_.operands[i].present) return false;
        omitted = true;
      }
    }
    return omitted;
  }

  int add_factor(std::string name) {
    Factor factor;
    factor.name = std::move(name);
    rule_.factors.push_back(std::move(factor));
    return static_cast<int>(rule_.factors.size()) - 1;
  }

  /// The factors of each dimension of one pattern for a tensor of `rank` dimensions.
  Result<std::vector<std::pair<DimensionFactors, bool>>> expand(const OperandPattern& pattern,
                                                                std::size_t rank,
                                                                const std::string& who) const {
    std::size_t full = 0;
    for (const Term& term : pattern.terms)
      full += term.kind == TermKind::kRun ? run_length_.at(term.names[0]) : 1;
    std::size_t missing = full > rank ? full - rank : 0;
    std::vector<std::pair<DimensionFactors, bool>> dims;
    for (const Term& term : pattern.terms) {
      if (term.kind == TermKind::kPrivate) {
        dims.emplace_back();
        continue;
      }
      if (term.kind == TermKind::kCompound) {
        DimensionFactors factors;
        for (const std::string& name : term.names) factors.push_back(rule_.names.at(name)[0]);
        dims.emplace_back(std::move(factors), term.broadcast);
        continue;
      }
      for (const int factor : rule_.names.at(term.names[0])) {
        if (term.broadcast && missing > 0) {  // aligned from the right: the leftmost are missing
          --missing;
          continue;
        }
        dims.emplace_back(DimensionFactors{factor}, term.broadcast);
      }
    }
    if (dims.size() != rank) {
      return fail(ErrorCode::kValue,
                  "",
                  who + " has " + std::to_string(rank) + " dimensions, expected " +
                      std::to_string(dims.size()));
    }
    return dims;
  }

  Result<void> bind_sizes() {
    std::vector<std::vector<std::pair<DimensionFactors, bool>>> expanded(rule_.operands.size());
    for (std::size_t i = 0; i < rule_.operands.size(); ++i) {
      if (!rule_.operands[i].present) continue;
      auto dims = expand(parsed_.operands[i], rule_.operands[i].shape.size(), operand_text(i));
      if (!dims) return fail(dims.error());
      expanded[i] = std::move(*dims);
    }
    // single factors first (a broadcast 1 says nothing), then compounds with one unknown
    for (std::size_t pass = 0; pass <= rule_.factors.size() + 1; ++pass) {
      bool changed = false;
      for (std::size_t i = 0; i < expanded.size(); ++i) {
        for (std::size_t d = 0; d < expanded[i].size(); ++d) {
          const auto& [factors, broadcast] = expanded[i][d];
          const std::int64_t size = rule_.operands[i].shape[d];
          if (factors.empty() || (broadcast && size == 1)) continue;
          std::int64_t product = 1;
          int unknown = -1;
          int unknowns = 0;
          for (const int factor : factors) {
            const auto& known = known_[static_cast<std::size_t>(factor)];
            if (known) {
              product = bounded_product(product, *known);
            } else {
              unknown = factor;
              ++unknowns;
            }
          }
          if (unknowns == 0) {
            if (product != size) return mismatch(i, d, factors, product);
          } else if (unknowns == 1) {
            if (size % product != 0) return mismatch(i, d, factors, product);
            known_[static_cast<std::size_t>(unknown)] = size / product;
            changed = true;
          }
        }
      }
      if (!changed) break;
    }
    for (std::size_t i = 0; i < expanded.size(); ++i) {
      for (std::size_t d = 0; d < expanded[i].size(); ++d) {
        auto& [factors, broadcast] = expanded[i][d];
        // a broadcast dimension does not carry the factor; if every operand has size 1, it does
        if (broadcast && rule_.operands[i].shape[d] == 1 && !factors.empty()) {
          auto& known = known_[static_cast<std::size_t>(factors[0])];
          if (!known) known = 1;
          if (*known != 1) factors.clear();
        }
        rule_.operands[i].dims.push_back(factors);
      }
    }
    for (std::size_t f = 0; f < rule_.factors.size(); ++f) {
      if (!known_[f]) {
        bool needed = false;  // factors of omitted operands alone have no size and no meaning
        for (const OperandPattern& result : parsed_.results) {
          for (const Term& term : result.terms) {
            for (const std::string& name : term.names) {
              const std::vector<int>& ids = rule_.names.at(name);
              needed =
                  needed || std::find(ids.begin(), ids.end(), static_cast<int>(f)) != ids.end();
            }
          }
        }
        for (const OperandRule& operand : rule_.operands) {
          for (const DimensionFactors& dim : operand.dims) {
            needed = needed || std::find(dim.begin(), dim.end(), static_cast<int>(f)) != dim.end();
          }
        }
        if (needed) {
          return fail(ErrorCode::kValue,
                      "",
                      "the size of factor \"" + rule_.factors[f].name +
                          "\" cannot be told from the operands (rule \"" + std::string(text_) +
                          "\")");
        }
      }
      rule_.factors[f].size = known_[f].value_or(1);
    }
    return bind_windows();
  }

  /// `shift:s(width,stride,before,after)`: the operands' size becomes the extent, and the factor
  /// counts windows from here on.
  Result<void> bind_windows() {
    for (const Modifier& modifier : parsed_.modifiers) {
      if (modifier.key != "shift") continue;
      auto window = window_of(modifier);
      if (!window) return fail(window.error());
      auto factors = factors_of(modifier, modifier.values[0]);
      if (!factors) return fail(factors.error());
      for (const int id : *factors) {
        Factor& along = factor(id);
        if (along.kind == FactorKind::kWindow)
          return syntax(text_, modifier.column, "\"" + along.name + "\" has two windows");
        if (stands_in_compound(id))
          return syntax(text_,
                        modifier.column,
                        "\"" + along.name + "\" has a window, so it cannot share its dimension");
        along.kind = FactorKind::kWindow;
        along.window = *window;
        along.window.extent = along.size;
        const std::int64_t room = along.size + window->before + window->after - window->width;
        if (room < 0) {
          return fail(ErrorCode::kValue,
                      "",
                      "a window of width " + std::to_string(window->width) +
                          " does not fit into dimension \"" + along.name + "\" of size " +
                          std::to_string(along.size) + " with padding " +
                          std::to_string(window->before) + " and " + std::to_string(window->after));
        }
        along.size = room / window->stride + 1;
      }
    }
    return {};
  }

  Result<Window> window_of(const Modifier& modifier) const {
    const auto wrong = [&] {
      return syntax(text_,
                    modifier.column,
                    "expected \"shift:s(width,stride,before,after)\" with whole numbers, the last "
                    "three may be left out");
    };
    const std::size_t count = modifier.values.size();
    if (count < 2 || count > 5) return wrong();
    std::vector<std::int64_t> numbers;
    for (std::size_t i = 1; i < count; ++i) {
      const std::string& value = modifier.values[i];
      if (value.size() > 15 ||
          !std::all_of(value.begin(), value.end(), [](char c) { return c >= '0' && c <= '9'; }))
        return wrong();
      numbers.push_back(std::stoll(value));
    }
    Window window;
    window.width = numbers[0];
    window.stride = numbers.size() > 1 ? numbers[1] : 1;
    if (window.width < 1 || window.stride < 1) return wrong();
    // left out: as many windows as positions; one number: the same on both sides
    window.before = numbers.size() > 2 ? numbers[2] : (window.width - 1) / 2;
    window.after = numbers.size() > 3   ? numbers[3]
                   : numbers.size() > 2 ? window.before
                                        : window.width - 1 - window.before;
    return window;
  }

  bool stands_in_compound(int id) const {
    for (const std::vector<OperandPattern>* list : {&parsed_.operands, &parsed_.results}) {
      for (const OperandPattern& pattern : *list) {
        for (const Term& term : pattern.terms) {
          if (term.kind != TermKind::kCompound) continue;
          for (const std::string& name : term.names) {
            if (rule_.names.at(name)[0] == id) return true;
          }
        }
      }
    }
    return false;
  }

  Unexpected<Error> mismatch(std::size_t operand,
                             std::size_t dim,
                             const DimensionFactors& factors,
                             std::int64_t expected) const {
    std::string name;
    for (const int factor : factors) {
      if (!name.empty()) name += " ";
      name += rule_.factors[static_cast<std::size_t>(factor)].name;
    }
    return fail(ErrorCode::kValue,
                "",
                "dimension " + std::to_string(dim) + " of " + operand_text(operand) + " (shape " +
                    shape_text(rule_.operands[operand].shape) + ") is " +
                    std::to_string(rule_.operands[operand].shape[dim]) + ", but factor \"" + name +
                    "\" is " +
                    (expected > kMostTensorBytes ? "more than 2^62" : std::to_string(expected)) +
                    " elsewhere");
  }

  Result<void> build_results() {
    for (const OperandPattern& pattern : parsed_.results) {
      OperandRule result;
      std::size_t rank = 0;
      for (const Term& term : pattern.terms)
        rank += term.kind == TermKind::kRun ? run_length_.at(term.names[0]) : 1;
      auto dims = expand(pattern, rank, "result");
      if (!dims) return fail(dims.error());
      for (auto& [factors, broadcast] : *dims) {
        std::int64_t size = 1;
        for (const int factor : factors) {
          size = bounded_product(size, rule_.factors[static_cast<std::size_t>(factor)].size);
        }
        if (size > kMostTensorBytes)
          return fail(ErrorCode::kOverflow, "", "a result dimension exceeds 64 bits");
        result.dims.push_back(factors);
        result.shape.push_back(size);
      }
      rule_.results.push_back(std::move(result));
    }
    return {};
  }

  Result<std::vector<int>> factors_of(const Modifier& modifier, const std::string& name) const {
    const auto found = rule_.names.find(name);
    if (found == rule_.names.end())
      return syntax(text_, modifier.column, "\"" + name + "\" is no factor of this rule");
    return found->second;
  }

  /// Operands in modifiers are x, y, z, w (first to fourth) or 0, 1, 2, ...
  Result<int> operand_of(const Modifier& modifier, const std::string& name) const {
    static constexpr std::string_view kNames = "xyzw";
    std::size_t operand = rule_.operands.size();
    if (name.size() == 1 && kNames.find(name[0]) != std::string_view::npos)
      operand = kNames.find(name[0]);
    if (!name.empty() && name.size() < 4 &&
        std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; })) {
      operand = static_cast<std::size_t>(std::stoi(name));
    }
    if (operand >= rule_.operands.size()) {
      return syntax(text_,
                    modifier.column,
                    "\"" + name + "\" names no operand (x, y, z, w or a number from 0)");
    }
    return static_cast<int>(operand);
  }

  Result<void> apply_modifiers() {
    static const std::map<std::string, Reduction> kReductions = {{"sum", Reduction::kSum},
                                                                 {"max", Reduction::kMax},
                                                                 {"min", Reduction::kMin},
                                                                 {"prod", Reduction::kProd}};
    bool saves_given = false;
    std::set<std::string> seen;
    for (const Modifier& modifier : parsed_.modifiers) {
      const bool repeats =
          modifier.key == "lin" || modifier.key == "shift" || modifier.key == "route";
      if (!repeats && !seen.insert(modifier.key).second) {
        return syntax(text_, modifier.column, "modifier \"" + modifier.key + "\" is given twice");
      }
      if (const auto reduction = kReductions.find(modifier.key); reduction != kReductions.end()) {
        if (auto done = set_kind(modifier, FactorKind::kReduction, reduction->second); !done)
          return done;
      } else if (modifier.key == "stat") {
        if (auto done = set_kind(modifier, FactorKind::kStatistic, Reduction::kSum); !done)
          return done;
      } else if (modifier.key == "whole") {
        if (auto done = set_kind(modifier, FactorKind::kWhole, Reduction::kSum); !done) return done;
      } else if (modifier.key == "ring") {
        if (modifier.values.size() != 2)
          return syntax(text_, modifier.column, "expected \"ring:t=s\"");
        auto ring = factors_of(modifier, modifier.values[0]);
        if (!ring) return fail(ring.error());
        auto partner = factors_of(modifier, modifier.values[1]);
        if (!partner) return fail(partner.error());
        if (ring->size() != 1 || partner->size() != 1)
          return syntax(text_, modifier.column, "\"ring\" takes single factors");
        factor((*ring)[0]).kind = FactorKind::kRing;
        factor((*ring)[0]).partner = (*partner)[0];
      } else if (modifier.key == "shift") {  // bound with the sizes
      } else if (modifier.key == "route") {
        if (auto done = add_route(modifier); !done) return done;
      } else if (modifier.key == "add") {
        for (const std::string& name : modifier.values) {
          auto operand = operand_of(modifier, name);
          if (!operand) return fail(operand.error());
          rule_.operands[static_cast<std::size_t>(*operand)].addend = true;
        }
      } else if (modifier.key == "lin") {
        if (auto done = add_linear(modifier); !done) return done;
      } else if (modifier.key == "flops" || modifier.key == "bytes") {
        auto expression = Expression::parse(modifier.text);
        if (!expression) return fail(expression.error());
        for (const std::string& name : expression->variables()) {
          if (auto known = factors_of(modifier, name); !known) return fail(known.error());
        }
        (modifier.key == "flops" ? rule_.flops_expression : rule_.bytes_expression) =
            std::move(*expression);
      } else if (modifier.key == "saves") {
        saves_given = true;
        for (const std::string& name : modifier.values) {
          if (name == "none") continue;
          if (name == "out") {
            for (OperandRule& result : rule_.results) result.saved = true;
            continue;
          }
          auto operand = operand_of(modifier, name);
          if (!operand) return fail(operand.error());
          rule_.operands[static_cast<std::size_t>(*operand)].saved = true;
        }
      } else {
        return syntax(
            text_,
            modifier.column,
            "unknown modifier \"" + modifier.key +
                "\" (sum, max, min, prod, stat, shift, ring, route, whole, lin, add, flops, "
                "bytes, saves)");
      }
    }
    if (!saves_given) {
      for (OperandRule& operand : rule_.operands) operand.saved = operand.present;
    }
    return {};
  }

  Result<void> add_route(const Modifier& modifier) {
    if (modifier.values.size() != 2)
      return syntax(text_, modifier.column, "expected \"route:t=e\" (tokens, experts)");
    Route route;
    for (const auto& [name, id] : {std::pair{&modifier.values[0], &route.token},
                                   std::pair{&modifier.values[1], &route.expert}}) {
      auto factors = factors_of(modifier, *name);
      if (!factors) return fail(factors.error());
      if (factors->size() != 1)
        return syntax(text_, modifier.column, "\"route\" takes single factors");
      *id = (*factors)[0];
    }
    if (route.token == route.expert)
      return syntax(text_, modifier.column, "\"route\" takes two factors");
    for (const std::vector<OperandRule>* list : {&rule_.operands, &rule_.results}) {
      for (const OperandRule& operand : *list) {
        for (const DimensionFactors& dim : operand.dims) {
          const auto has = [&](int id) {
            return std::find(dim.begin(), dim.end(), id) != dim.end();
          };
          if (has(route.token) && has(route.expert))
            return syntax(text_,
                          modifier.column,
                          "tokens and experts of a route stand in different dimensions");
        }
      }
    }
    rule_.routes.push_back(route);
    return {};
  }

  Result<void> set_kind(const Modifier& modifier, FactorKind kind, Reduction reduction) {
    for (const std::string& name : modifier.values) {
      auto factors = factors_of(modifier, name);
      if (!factors) return fail(factors.error());
      for (const int id : *factors) {
        if (factor(id).kind == FactorKind::kWindow)
          return syntax(text_, modifier.column, "\"" + name + "\" has a window (shift) already");
        factor(id).kind = kind;
        factor(id).reduction = reduction;
      }
    }
    return {};
  }

  Result<void> add_linear(const Modifier& modifier) {
    const bool jointly = modifier.text.find('+') != std::string::npos;
    LinearGroup joint;
    for (const std::string& name : modifier.values) {
      auto operand = operand_of(modifier, name);
      if (!operand) return fail(operand.error());
      if (!rule_.operands[static_cast<std::size_t>(*operand)].present) continue;
      if (jointly) {
        joint.operands.push_back(*operand);
      } else {
        rule_.linear.push_back({{*operand}});
      }
    }
    if (jointly && !joint.operands.empty()) rule_.linear.push_back(std::move(joint));
    if (modifier.text.find('|') != std::string::npos) rule_.product = true;
    return {};
  }

  Result<void> check_kinds() {
    std::vector<bool> in_operand(rule_.factors.size()), in_result(rule_.factors.size());
    auto mark = [&](const std::vector<OperandRule>& list, std::vector<bool>& seen) -> Result<void> {
      for (const OperandRule& operand : list) {
        std::vector<bool> here(rule_.factors.size());
        for (const DimensionFactors& dim : operand.dims) {
          for (const int id : dim) {
            const auto at = static_cast<std::size_t>(id);
            if (here[at]) {
              return fail(ErrorCode::kValue,
                          "",
                          "rule \"" + std::string(text_) + "\": factor \"" +
                              rule_.factors[at].name + "\" stands twice in one operand");
            }
            here[at] = true;
            seen[at] = true;
          }
        }
      }
      return {};
    };
    if (auto done = mark(rule_.operands, in_operand); !done) return done;
    if (auto done = mark(rule_.results, in_result); !done) return done;
    // reduced in one result, kept by another: a loss and what it is the sum of
    const auto in_every_result = [&](int id) {
      return std::all_of(
          rule_.results.begin(), rule_.results.end(), [&](const OperandRule& result) {
            return std::any_of(result.dims.begin(), result.dims.end(), [&](const auto& dim) {
              return std::find(dim.begin(), dim.end(), id) != dim.end();
            });
          });
    };
    if (auto done = check_reductions(); !done) return done;
    for (std::size_t f = 0; f < rule_.factors.size(); ++f) {
      const Factor& factor = rule_.factors[f];
      if (factor.kind == FactorKind::kReduction && in_result[f] &&
          in_every_result(static_cast<int>(f))) {
        return fail(ErrorCode::kValue,
                    "",
                    "rule \"" + std::string(text_) + "\": factor \"" + factor.name +
                        "\" is reduced, but a result has it");
      }
      if (factor.kind == FactorKind::kWindow &&
          (!in_operand[f] || !in_every_result(static_cast<int>(f)))) {
        return fail(ErrorCode::kValue,
                    "",
                    "rule \"" + std::string(text_) + "\": factor \"" + factor.name +
                        "\" has a window, so an operand and every result must have it");
      }
      if (factor.kind == FactorKind::kParallel && in_operand[f] && !in_result[f]) {
        return fail(ErrorCode::kValue,
                    "",
                    "rule \"" + std::string(text_) + "\": factor \"" + factor.name +
                        "\" is in no result; say how it is reduced (sum:" + factor.name +
                        ", max:" + factor.name + ", ... or whole:" + factor.name + ")");
      }
    }
    return {};
  }

  /// A result is Partial in one way: sums pass through linear operators only.
  Result<void> check_reductions() const {
    std::optional<Reduction> used;
    if (!rule_.linear.empty()) used = Reduction::kSum;
    for (const Factor& factor : rule_.factors) {
      if (factor.kind != FactorKind::kReduction) continue;
      if (used && *used != factor.reduction) {
        return fail(ErrorCode::kValue,
                    "",
                    "rule \"" + std::string(text_) +
                        "\": a result cannot be Partial in two ways (" + reduction_name(*used) +
                        " and " + reduction_name(factor.reduction) + ")");
      }
      used = factor.reduction;
    }
    return {};
  }

  Factor& factor(int id) { return rule_.factors[static_cast<std::size_t>(id)]; }

  std::string_view text_;
  const ParsedRule& parsed_;
  std::span<const std::optional<Shape>> shapes_;
  const std::map<std::string, std::int64_t>& given_;
  std::map<std::string, std::size_t> run_length_;
  std::vector<std::optional<std::int64_t>> known_;
  Rule rule_;
};

/// The positions [begin, end) that piece `piece` of `pieces` reads, without the padding.
std::pair<std::int64_t, std::int64_t> positions_read(const Window& window,
                                                     std::int64_t windows,
                                                     std::int64_t pieces,
                                                     std::int64_t piece) {
  const std::int64_t count = windows / pieces;
  const std::int64_t first = piece * count * window.stride - window.before;
  const std::int64_t last = first + (count - 1) * window.stride + window.width;
  return {std::max<std::int64_t>(first, 0), std::min(last, window.extent)};
}

double evaluate_sizes(const Rule& rule,
                      const Expression& expression,
                      std::span<const std::int64_t> factor_sizes) {
  std::vector<double> values;
  for (const std::string& name : expression.variables()) {
    double value = 1;
    for (const int factor : rule.names.at(name))
      value *= static_cast<double>(factor_sizes[static_cast<std::size_t>(factor)]);
    values.push_back(value);
  }
  return expression.evaluate(values);
}

}  // namespace

bool exchanges_statistics(const Factor& factor, bool backward) {
  return factor.kind == FactorKind::kStatistic ||
         (backward && factor.kind == FactorKind::kReduction && factor.reduction != Reduction::kSum);
}

std::optional<Halo> halo(const Window& window, std::int64_t windows, std::int64_t pieces) {
  if (windows % pieces != 0 || window.extent % pieces != 0) return std::nullopt;
  const std::int64_t size = window.extent / pieces;
  Halo most;
  for (std::int64_t piece = 0; piece < pieces; ++piece) {
    const auto [first, last] = positions_read(window, windows, pieces, piece);
    if (first >= last) continue;  // nothing but padding
    most.before = std::max(most.before, piece * size - first);
    most.after = std::max(most.after, last - (piece + 1) * size);
  }
  if (most.before > size || most.after > size) return std::nullopt;
  return most;
}

OperatorFamily family_of(const Rule& rule) {
  if (!rule.product || rule.linear.size() != 2 || rule.operands.size() < 2 ||
      rule.results.size() != 1)
    return OperatorFamily::kOther;
  const auto has = [](const OperandRule& operand, int id) {
    return std::any_of(operand.dims.begin(), operand.dims.end(), [&](const auto& dim) {
      return std::find(dim.begin(), dim.end(), id) != dim.end();
    });
  };
  for (std::size_t g = 0; g < 2; ++g) {
    if (rule.linear[g].operands != std::vector<int>{static_cast<int>(g)})
      return OperatorFamily::kOther;
  }
  for (std::size_t f = 0; f < rule.factors.size(); ++f) {
    const int id = static_cast<int>(f);
    if (rule.factors[f].kind == FactorKind::kReduction &&
        rule.factors[f].reduction == Reduction::kSum && has(rule.operands[0], id) &&
        has(rule.operands[1], id))
      return OperatorFamily::kMatMul;
  }
  return OperatorFamily::kOther;
}

double Rule::flops(std::span<const std::int64_t> factor_sizes) const {
  if (flops_expression) return flops_scale * evaluate_sizes(*this, *flops_expression, factor_sizes);
  double points = 1;
  for (const std::int64_t size : factor_sizes) points *= static_cast<double>(size);
  return flops_scale * points;
}

std::optional<double> Rule::moved_elements(std::span<const std::int64_t> factor_sizes) const {
  if (!bytes_expression) return std::nullopt;
  return evaluate_sizes(*this, *bytes_expression, factor_sizes);
}

Result<Rule> make_rule(std::string_view text,
                       std::span<const std::optional<std::vector<std::int64_t>>> operand_shapes,
                       const std::map<std::string, std::int64_t>& sizes) {
  auto parsed = RuleParser(text).run();
  if (!parsed) return fail(parsed.error());
  return RuleBinder(text, *parsed, operand_shapes, sizes).run();
}

}  // namespace meshplan

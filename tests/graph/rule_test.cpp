// SPDX-License-Identifier: Apache-2.0
// The rule notation: every way to write it wrong, with the column, and how shapes bind.
#include "graph/rule.h"

#include "support/catch.h"

namespace meshplan::rule_test {
namespace {

using Shapes = std::vector<std::optional<std::vector<std::int64_t>>>;

std::string error_of(const std::string& text,
                     const Shapes& shapes,
                     const std::map<std::string, std::int64_t>& sizes = {}) {
  const Result<Rule> rule = make_rule(text, shapes, sizes);
  if (rule) return "no error";
  CHECK(rule.error().where.empty());
  return rule.error().message;
}

Rule rule_of(const std::string& text,
             const Shapes& shapes,
             const std::map<std::string, std::int64_t>& sizes = {}) {
  Result<Rule> rule = make_rule(text, shapes, sizes);
  if (!rule) FAIL(text << ": " << rule.error().message);
  return *std::move(rule);
}

/// "b=2 s=3 h:sum=4": name, what it is, size.
std::string factors_text(const Rule& rule) {
  std::string text;
  for (const Factor& factor : rule.factors) {
    text += (text.empty() ? "" : " ") + factor.name;
    switch (factor.kind) {
      case FactorKind::kParallel:
        break;
      case FactorKind::kReduction:
        text += std::string(":") + reduction_name(factor.reduction);
        break;
      case FactorKind::kStatistic:
        text += ":stat";
        break;
      case FactorKind::kRing:
        text += ":ring";
        break;
      case FactorKind::kWhole:
        text += ":whole";
        break;
      case FactorKind::kWindow:
        text += ":shift";
        break;
    }
    text += "=" + std::to_string(factor.size);
  }
  return text;
}

TEST_CASE("wrong notation is an error with its column") {
  struct Row {
    const char* text;
    std::size_t column;
    const char* says;
  };
  const Shapes one = {{{8}}};
  const Shapes two = {{{8, 4}}};
  for (const Row& row : {
           Row{"", 1, "expected \"->\""},
           {"b", 2, "expected \"->\""},
           {"b , c", 6, "expected \"->\""},
           {"b -> b?", 7, "a result cannot be optional"},
           {"1 -> b", 1, "expected a factor (a name that starts with a letter)"},
           {"b -> 2", 6, "expected a factor (a name that starts with a letter)"},
           {"~ -> b", 2, "expected a factor (a name that starts with a letter)"},
           {"b -> b )", 8, "expected a factor"},
           {"(b -> b", 4, "expected a factor or \")\""},
           {"() -> b", 2, "expected a factor"},
           {"b -> b ; sum", 13, "expected a modifier such as \"sum:k\""},
           {"b -> b ; :k", 10, "expected a modifier such as \"sum:k\""},
           {"b -> b ; sum:", 14, "expected a value after \"sum:\""},
           {"b -> b ; foo:b", 10, "unknown modifier \"foo\""},
           {"b -> b ; stat:z", 10, "\"z\" is no factor of this rule"},
           {"b -> b ; flops:2*z", 10, "\"z\" is no factor of this rule"},
           {"b -> b ; stat:b stat:b", 17, "modifier \"stat\" is given twice"},
           {"b -> b ; lin:z", 10, "\"z\" names no operand"},
           {"b -> b ; saves:7", 10, "\"7\" names no operand"},
           {"b -> b ; ring:b", 10, "expected \"ring:t=s\""},
           {"b -> b ; shift:b", 10, "expected \"shift:s(width,stride,before,after)\""},
           {"b -> b ; shift:b(0)", 10, "expected \"shift:s(width,stride,before,after)\""},
           {"b -> b ; shift:b(3,x)", 10, "expected \"shift:s(width,stride,before,after)\""},
           {"b -> b ; shift:z(3)", 10, "\"z\" is no factor of this rule"},
           {"b -> b ; shift:b(3) shift:b(3)", 21, "\"b\" has two windows"},
           {"b -> b ; shift:b(3) stat:b", 21, "\"b\" has a window (shift) already"},
           {"(b) -> b ; shift:b(3)", 12, "cannot share its dimension"},
           {"b -> b ; route:b", 10, "expected \"route:t=e\""},
           {"b -> b ; route:b=b", 10, "\"route\" takes two factors"},
           {"b -> b ; add:z", 10, "\"z\" names no operand"},
           {"b -> c..", 6, "the length of run \"c..\" cannot be told"},
       }) {
    INFO(row.text);
    const std::string message = error_of(row.text, one);
    INFO(message);
    CHECK(message.find(", column " + std::to_string(row.column) + ": ") != std::string::npos);
    CHECK(message.find(row.says) != std::string::npos);
    CHECK(message.find(std::string("rule \"") + row.text) != std::string::npos);
  }
  CHECK(error_of(std::string(20000, 'b'), one).find("longer than 10,000") != std::string::npos);
  // an expression has columns of its own
  CHECK(error_of("b -> b ; flops:2*", one).find("column") != std::string::npos);
  CHECK(error_of("a b -> a", two) ==
        "rule \"a b -> a\": factor \"b\" is in no result; say how it is reduced (sum:b, max:b, ... "
        "or whole:b)");
  CHECK(error_of("a b -> a b ; sum:b", two) ==
        "rule \"a b -> a b ; sum:b\": factor \"b\" is reduced, but a result has it");
  CHECK(error_of("a b -> ; sum:a max:b", two) ==
        "rule \"a b -> ; sum:a max:b\": a result cannot be Partial in two ways (sum and max)");
  CHECK(error_of("a b -> a ; max:b lin:x", two) ==
        "rule \"a b -> a ; max:b lin:x\": a result cannot be Partial in two ways (sum and max)");
  CHECK(error_of("a b -> a ; shift:b(3)", two).find("an operand and every result must have it") !=
        std::string::npos);
  CHECK(error_of("a -> a ; shift:a(9,1,0,0)", one)
            .find("does not fit into dimension \"a\" of size 8") != std::string::npos);
  CHECK(error_of("a a -> a", {{{4, 4}}}) ==
        "rule \"a a -> a\": factor \"a\" stands twice in one operand");
}

TEST_CASE("any text ends in a rule or in one line of error") {
  // every way to cut and to double a rule, and every character changed
  const std::string text = "~B.. (g q) m, m k? -> B.. (g q) m ; sum:k lin:x|y flops:2*(B+m)";
  const Shapes shapes = {{{2, 8, 3}}, {{3, 5}}};
  int rules = 0;
  auto attempt = [&](const std::string& wrong) {
    const Result<Rule> rule = make_rule(wrong, shapes, {{"g", 4}, {"q", 2}});
    if (rule) {
      ++rules;
    } else {
      CHECK(rule.error().message.find('\n') == std::string::npos);
      CHECK_FALSE(rule.error().message.empty());
    }
  };
  for (std::size_t at = 0; at <= text.size(); ++at) {
    attempt(text.substr(0, at));
    attempt(text.substr(at));
    attempt(text.substr(0, at) + text);
    for (const char c : {'~', '.', '(', ')', '?', ',', ';', ':', '-', '>', ' ', 'q', '0', '|'}) {
      std::string changed = text;
      if (at < text.size()) changed[at] = c;
      attempt(changed);
      changed.insert(at, 1, c);
      attempt(changed);
    }
  }
  CHECK(rules > 0);
}

TEST_CASE("a name is that of a run everywhere or nowhere") {
  CHECK(error_of("b.. m, b m -> b.. m", {{{2, 3}}, {{2, 3}}}) ==
        "rule \"b.. m, b m -> b.. m\", column 8: \"b\" is a factor and a run (\"b..\") in the same "
        "rule");
  // an empty run has no first factor that a compound could hold
  CHECK(error_of("~b.. m, (b m) -> m", {{{3}}, {{3}}}).find("\"b\" is a factor and a run") !=
        std::string::npos);
}

TEST_CASE("shapes give the factors their sizes") {
  const Rule product =
      rule_of("b s h, h f -> b s f ; sum:h lin:x|y flops:2*b*s*h*f", {{{2, 3, 4}}, {{4, 5}}});
  CHECK(factors_text(product) == "b=2 s=3 h:sum=4 f=5");
  CHECK(product.results.at(0).shape == std::vector<std::int64_t>{2, 3, 5});
  CHECK(product.product);
  CHECK(product.linear.size() == 2);
  CHECK(product.flops(std::vector<std::int64_t>{2, 3, 4, 5}) == 240);
  // what is not said to be saved is saved
  CHECK(product.operands[0].saved);
  CHECK(product.operands[1].saved);

  CHECK(error_of("b s h, h f -> b s f ; sum:h", {{{2, 3, 4}}, {{7, 5}}}) ==
        "dimension 0 of operand 1 (shape [7, 5]) is 7, but factor \"h\" is 4 elsewhere");
  CHECK(error_of("b s h, h f -> b s f ; sum:h", {{{2, 3}}, {{3, 5}}}) ==
        "operand 0 has 2 dimensions, expected 3");
  CHECK(error_of("b -> b", {{{2}}, {{2}}}) == "takes at most 1 operands, got 2");
  CHECK(error_of("b, b -> b", {{{2}}}) == "operand 1 is missing (rule \"b, b -> b\")");
  CHECK(error_of("b, b -> b", {{{2}}, std::nullopt}).find("operand 1 is missing") == 0);
}

TEST_CASE("runs take the dimensions that are left, broadcast ones are aligned from the right") {
  CHECK(factors_text(rule_of("x.. -> x..", {{{2, 3, 4}}})) == "x0=2 x1=3 x2=4");
  CHECK(factors_text(rule_of("B.. m k, k n -> B.. m n ; sum:k", {{{2, 3, 4, 5}}, {{5, 6}}})) ==
        "B0=2 B1=3 m=4 k:sum=5 n=6");
  CHECK(rule_of("x.. -> x..", {{{}}}).factors.empty());

  const Rule add = rule_of("~x.., ~x.. -> x.. ; lin:x+y saves:none", {{{2, 3, 4}}, {{3, 1}}});
  CHECK(factors_text(add) == "x0=2 x1=3 x2=4");
  CHECK(add.results[0].shape == std::vector<std::int64_t>{2, 3, 4});
  CHECK(add.operands[1].dims == std::vector<DimensionFactors>{{1}, {}});
  REQUIRE(add.linear.size() == 1);
  CHECK(add.linear[0].operands == std::vector<int>{0, 1});
  CHECK_FALSE(add.operands[0].saved);
  // a dimension of 1 everywhere carries its factor
  CHECK(factors_text(rule_of("~x.., ~x.. -> x..", {{{1, 4}}, {{4}}})) == "x0=1 x1=4");
  CHECK(factors_text(rule_of("~x.., ~x.. -> x..", {{{4}}, {{2, 1}}})) == "x0=2 x1=4");
  CHECK(error_of("~x.., ~x.. -> x..", {{{3}}, {{4}}}).find("elsewhere") != std::string::npos);
}

TEST_CASE("compound dimensions split by what is known of their factors") {
  const Rule attention =
      rule_of("b (g q) s e, b g t e, b g t f -> b (g q) s f ; ring:t=s whole:e,f",
              {{{1, 8, 16, 4}}, {{1, 2, 16, 4}}, {{1, 2, 16, 6}}});
  CHECK(factors_text(attention) == "b=1 g=2 q=4 s=16 e:whole=4 t:ring=16 f:whole=6");
  CHECK(attention.results[0].shape == std::vector<std::int64_t>{1, 8, 16, 6});
  CHECK(attention.factors[5].partner == 3);
  // nothing says how 8 splits
  CHECK(error_of("(g q) -> (g q)", {{{8}}}).find("cannot be told from the operands") !=
        std::string::npos);
  CHECK(factors_text(rule_of("(g q) -> (g q)", {{{8}}}, {{"g", 2}})) == "g=2 q=4");
  CHECK(error_of("(g q) -> (g q)", {{{8}}}, {{"g", 3}}).find("factor \"g q\" is 3 elsewhere") !=
        std::string::npos);
  // a factor of the result alone
  CHECK(rule_of("b -> b n", {{{8}}}, {{"n", 3}}).results[0].shape ==
        std::vector<std::int64_t>{8, 3});
  CHECK(error_of("b -> b n", {{{8}}}).find("the size of factor \"n\" cannot be told") == 0);
  const std::int64_t large = std::int64_t{1} << 40;
  CHECK(error_of("a, b -> (a b)", {{{large}}, {{large}}}) == "a result dimension exceeds 64 bits");
}

TEST_CASE("optional operands may be left out, with what only they know") {
  const std::string text = "x.. r, r, r? -> x.. r ; stat:r saves:x";
  const Rule with = rule_of(text, {{{2, 8}}, {{8}}, {{8}}});
  const Rule without = rule_of(text, {{{2, 8}}, {{8}}});
  const Rule null = rule_of(text, {{{2, 8}}, {{8}}, std::nullopt});
  CHECK(factors_text(with) == "x0=2 r:stat=8");
  CHECK(factors_text(without) == factors_text(with));
  CHECK(null.operands == without.operands);
  CHECK(with.operands[2].present);
  CHECK_FALSE(without.operands[2].present);
  CHECK_FALSE(without.operands[2].saved);
  // an omitted operand cannot be the way of a partial sum
  CHECK(rule_of("a, a? -> a ; lin:x+y", {{{4}}}).linear.at(0).operands == std::vector<int>{0});
}

TEST_CASE("more than 64 dimensions are refused") {
  const std::vector<std::int64_t> shape(65, 2);
  CHECK(error_of("x.. -> x..", {shape}).find("more than 64 dimensions") != std::string::npos);
}

TEST_CASE("expressions count runs as the product of their sizes") {
  const Rule rule = rule_of("B.. k -> B.. ; sum:k flops:3*B*(k+1) bytes:B/2", {{{2, 5, 7}}});
  CHECK(rule.flops(std::vector<std::int64_t>{2, 5, 7}) == 240);
  CHECK(rule.moved_elements(std::vector<std::int64_t>{2, 5, 7}) == std::optional<double>(5));
  const Rule plain = rule_of("a b -> a b", {{{3, 4}}});
  CHECK(plain.flops(std::vector<std::int64_t>{3, 4}) == 12);
  CHECK_FALSE(plain.moved_elements(std::vector<std::int64_t>{3, 4}).has_value());
}

}  // namespace
}  // namespace meshplan::rule_test

// SPDX-License-Identifier: Apache-2.0
#include "graph/scope_pattern.h"

#include "support/catch.h"

namespace meshplan::scope_pattern_test {

namespace {

ScopePattern pattern(const std::string& text) {
  Result<ScopePattern> result = ScopePattern::parse(text);
  REQUIRE(result.has_value());
  return *result;
}

}  // namespace

TEST_CASE("a star stands for one component of a scope", "[scope_pattern]") {
  const ScopePattern mlp = pattern("layers.*.mlp");
  CHECK(mlp.matches("layers.0.mlp"));
  CHECK(mlp.matches("layers.last.mlp"));
  CHECK_FALSE(mlp.matches("layers.mlp"));
  CHECK_FALSE(mlp.matches("layers.0.1.mlp"));
  CHECK_FALSE(mlp.matches("layers.0.mlp2"));
  CHECK_FALSE(mlp.matches("layers.0.mlp.act"));
  CHECK_FALSE(mlp.matches("layers..mlp"));
  CHECK(mlp.instance_in("layers.12.mlp.act") == "layers.12.mlp");
  CHECK(mlp.instance_in("layers.12.mlp") == "layers.12.mlp");
  CHECK_FALSE(mlp.instance_in("model.layers.12.mlp").has_value());
  CHECK_FALSE(mlp.instance_in("").has_value());
  CHECK(mlp.depth() == 3);
}

TEST_CASE("braces stand for a range of numbers", "[scope_pattern]") {
  const ScopePattern layers = pattern("layers.{2..10}");
  CHECK(layers.matches("layers.2"));
  CHECK(layers.matches("layers.10"));
  CHECK_FALSE(layers.matches("layers.1"));
  CHECK_FALSE(layers.matches("layers.11"));
  CHECK_FALSE(layers.matches("layers.02"));
  CHECK_FALSE(layers.matches("layers.-2"));
  CHECK_FALSE(layers.matches("layers.two"));
  CHECK(layers.instance_in("layers.7.attn.q") == "layers.7");
}

TEST_CASE("the end of a name matches by whole components", "[scope_pattern]") {
  CHECK(pattern("w2").ends("layers.3.mlp.w2"));
  CHECK(pattern("w2").ends("w2"));
  CHECK_FALSE(pattern("w2").ends("layers.3.mlp.aw2"));
  CHECK(pattern("*.weight").ends("layers.3.up.weight"));
  CHECK_FALSE(pattern("*.weight").ends("weight"));
}

TEST_CASE("malformed patterns are refused", "[scope_pattern]") {
  for (const char* bad : {"",
                          ".",
                          "a.",
                          ".a",
                          "a..b",
                          "{1..2",
                          "{2..1}",
                          "{..}",
                          "{1..}",
                          "{a..b}",
                          "{1}",
                          "{01..2}",
                          "{1..99999999999999999999}",
                          "{1...2}",
                          "{"}) {
    INFO(bad);
    const Result<ScopePattern> result = ScopePattern::parse(bad);
    REQUIRE_FALSE(result.has_value());
    CHECK(result.error().code == ErrorCode::kValue);
  }
}

}  // namespace meshplan::scope_pattern_test

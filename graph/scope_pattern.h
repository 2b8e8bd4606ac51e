// SPDX-License-Identifier: Apache-2.0
// Patterns over dotted module paths: "layers.*.mlp", "layers.{0..31}.mlp".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "lib/result.h"

namespace meshplan {

/// `*` stands for exactly one component, `{a..b}` for one that is a whole number from a to b;
/// everything else is taken literally.
class ScopePattern {
 public:
  /// Errors (empty `where`): kValue for an empty pattern, an empty component or a malformed range.
  static Result<ScopePattern> parse(std::string_view text);

  /// True if the whole path matches.
  bool matches(std::string_view path) const;
  /// The leading part of the path that matches: "layers.3.mlp" for the path "layers.3.mlp.act" and
  /// the pattern "layers.*.mlp". A scope contains its sub-scopes.
  std::optional<std::string_view> instance_in(std::string_view path) const;
  /// True if the path ends in components that match; "mlp.w2" ends "layers.3.mlp.w2".
  bool ends(std::string_view path) const;

  const std::string& text() const { return text_; }
  /// Patterns of more components are more specific.
  std::size_t depth() const { return parts_.size(); }

 private:
  struct Any {};
  struct Range {
    std::int64_t first = 0;
    std::int64_t last = 0;
  };
  using Part = std::variant<std::string, Any, Range>;
  static bool part_matches(const Part& part, std::string_view component);

  std::string text_;
  std::vector<Part> parts_;
};

}  // namespace meshplan

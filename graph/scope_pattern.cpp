// SPDX-License-Identifier: Apache-2.0
#include "graph/scope_pattern.h"

#include <charconv>
#include <system_error>
#include <utility>

namespace meshplan {
namespace {

/// The parts between dots; dots in braces do not separate.
std::vector<std::string_view> components(std::string_view path) {
  std::vector<std::string_view> result;
  std::size_t begin = 0;
  bool in_braces = false;
  for (std::size_t i = 0; i < path.size(); ++i) {
    if (path[i] == '{') in_braces = true;
    if (path[i] == '}') in_braces = false;
    if (path[i] != '.' || in_braces) continue;
    result.push_back(path.substr(begin, i - begin));
    begin = i + 1;
  }
  result.push_back(path.substr(begin));
  return result;
}

/// A number written without sign and leading zeros.
std::optional<std::int64_t> whole_number(std::string_view text) {
  if (text.empty() || text.front() == '-' || (text.size() > 1 && text.front() == '0')) {
    return std::nullopt;
  }
  std::int64_t value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

Result<ScopePattern> ScopePattern::parse(std::string_view text) {
  ScopePattern pattern;
  pattern.text_ = text;
  for (const std::string_view component : components(text)) {
    if (component.empty()) {
      return fail(
          ErrorCode::kValue,
          "",
          "\"" + pattern.text_ +
              "\" has an empty component; expected names, \"*\" or \"{0..31}\", with dots between");
    }
    if (component == "*") {
      pattern.parts_.emplace_back(Any{});
      continue;
    }
    if (component.front() != '{') {
      pattern.parts_.emplace_back(std::string(component));
      continue;
    }
    const std::size_t dots = component.find("..");
    std::optional<std::int64_t> first;
    std::optional<std::int64_t> last;
    if (dots != std::string_view::npos && component.back() == '}') {
      first = whole_number(component.substr(1, dots - 1));
      last = whole_number(component.substr(dots + 2, component.size() - dots - 3));
    }
    if (!first || !last || *first > *last) {
      return fail(ErrorCode::kValue,
                  "",
                  "\"" + std::string(component) + "\" is no range; expected \"{0..31}\"");
    }
    pattern.parts_.emplace_back(Range{*first, *last});
  }
  return pattern;
}

bool ScopePattern::part_matches(const Part& part, std::string_view component) {
  struct Match {
    std::string_view component;
    bool operator()(const std::string& literal) const { return literal == component; }
    bool operator()(const Any&) const { return !component.empty(); }
    bool operator()(const Range& range) const {
      const std::optional<std::int64_t> number = whole_number(component);
      return number && *number >= range.first && *number <= range.last;
    }
  };
  return std::visit(Match{component}, part);
}

bool ScopePattern::matches(std::string_view path) const {
  const auto instance = instance_in(path);
  return instance && instance->size() == path.size();
}

std::optional<std::string_view> ScopePattern::instance_in(std::string_view path) const {
  const std::vector<std::string_view> found = components(path);
  if (found.size() < parts_.size()) return std::nullopt;
  std::size_t length = parts_.size() - 1;  // the dots
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    if (!part_matches(parts_[i], found[i])) return std::nullopt;
    length += found[i].size();
  }
  return path.substr(0, length);
}

bool ScopePattern::ends(std::string_view path) const {
  const std::vector<std::string_view> found = components(path);
  if (found.size() < parts_.size()) return false;
  const std::size_t skipped = found.size() - parts_.size();
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    if (!part_matches(parts_[i], found[skipped + i])) return false;
  }
  return true;
}

}  // namespace meshplan

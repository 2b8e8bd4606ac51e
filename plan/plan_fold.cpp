// SPDX-License-Identifier: Apache-2.0
#include "plan/plan_fold.h"

#include <algorithm>
#include <charconv>
#include <compare>
#include <optional>
#include <tuple>
#include <unordered_map>
#include <utility>

namespace meshplan {
namespace {

// Marks in literals and keys; where a name holds one of them, kQuote stands before it.
constexpr char kNumber = '\0';  // a number was here
constexpr char kEnd = '\1';     // a text of the key ends
constexpr char kQuote = '\2';

bool is_mark(char c) { return c == kNumber || c == kEnd || c == kQuote; }

constexpr std::size_t kMostDigits = 9;         // longer numbers are no counters
constexpr std::size_t kShortestRun = 2;        // layers.0, layers.1
constexpr std::size_t kShortestSuffixRun = 4;  // fc1, fc2 stay apart

bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// A number inside the texts of an entry: itself, or a range once it is folded.
struct Number {
  std::int64_t first = 0;
  std::int64_t last = 0;
  bool loop = false;
  friend auto operator<=>(const Number&, const Number&) = default;
};

/// Where a number stands; the same for all entries of one group.
struct Position {
  std::size_t text = 0;
  bool component = false;  ///< a whole part of a dotted or slashed path
};

/// Entries (or, after a pass, runs of them) that may fold.
struct Candidate {
  std::vector<std::size_t> members;
  std::vector<Number> numbers;
};

/// Entries with equal bodies and equal texts once the numbers are taken out.
struct Group {
  std::vector<std::string> literals;  ///< per text, with kNumber where a number stands
  std::vector<Position> positions;
  std::vector<Candidate> candidates;
};

bool is_boundary(char c) { return c == '.' || c == '/' || c == '[' || c == ']' || c == ':'; }

/// Takes the counters out of a text.
void scan(std::string_view text,
          std::size_t text_index,
          std::string& literal,
          std::vector<Position>& positions,
          std::vector<Number>& numbers) {
  for (std::size_t i = 0; i < text.size();) {
    std::size_t end = i;
    while (end < text.size() && !is_digit(text[end]) && !is_mark(text[end])) ++end;
    literal.append(text.data() + i, end - i);
    i = end;
    if (i == text.size()) break;
    if (is_mark(text[i])) {
      literal += {kQuote, text[i++]};
      continue;
    }
    while (end < text.size() && is_digit(text[end])) ++end;
    const std::string_view digits = text.substr(i, end - i);
    if (digits.size() > kMostDigits || (digits.size() > 1 && digits.front() == '0')) {
      literal += digits;
    } else {
      std::int64_t value = 0;
      std::from_chars(digits.data(), digits.data() + digits.size(), value);
      literal += kNumber;
      const bool component =
          (i == 0 || is_boundary(text[i - 1])) && (end == text.size() || is_boundary(text[end]));
      positions.push_back({text_index, component});
      numbers.push_back({value, value, false});
    }
    i = end;
  }
}

std::vector<Group> group(std::span<const FoldItem> items) {
  std::vector<Group> groups;
  std::unordered_map<std::string, std::size_t> known;  // looked up only, never walked
  std::string key;
  std::vector<std::size_t> ends;  // of each literal in the key
  std::vector<Position> positions;
  std::vector<Number> numbers;
  for (std::size_t item = 0; item < items.size(); ++item) {
    const std::vector<std::string_view>& texts = items[item].texts;
    key = std::to_string(items[item].body);
    const std::size_t begin = key.size() + 1;
    ends.clear();
    positions.clear();
    numbers.clear();
    for (std::size_t t = 0; t < texts.size(); ++t) {
      key += kEnd;
      scan(texts[t], t, key, positions, numbers);
      ends.push_back(key.size());
    }
    const auto [found, is_new] = known.try_emplace(key, groups.size());
    if (is_new) {
      Group& made = groups.emplace_back();
      made.positions = positions;
      for (std::size_t t = 0; t < texts.size(); ++t) {
        const std::size_t first = t == 0 ? begin : ends[t - 1] + 1;
        made.literals.push_back(key.substr(first, ends[t] - first));
      }
    }
    groups[found->second].candidates.push_back({{item}, numbers});
  }
  return groups;
}

/// Whether `next` continues a run that starts with `first`, and which numbers run along. `follows`
/// is empty before the second element of the run fixes it.
bool extends(const Group& group,
             std::size_t loop,
             const Candidate& previous,
             const Candidate& next,
             std::vector<bool>& follows) {
  const Number& counter = next.numbers[loop];
  if (counter.first != previous.numbers[loop].first + 1) return false;
  std::vector<bool> now(next.numbers.size(), false);
  std::size_t loops_before = 0;  // loops of the name that run slower than this one
  for (std::size_t p = 0; p < loop; ++p) loops_before += next.numbers[p].loop ? 1U : 0U;
  std::size_t text_loops = 0;
  bool text_follows = false;
  for (std::size_t p = 0; p < next.numbers.size(); ++p) {
    if (p > 0 && group.positions[p].text != group.positions[p - 1].text) {
      text_loops = 0;
      text_follows = false;
    }
    if (p == loop) continue;
    const Number& a = previous.numbers[p];
    const Number& b = next.numbers[p];
    if (a == b) {
      text_loops += b.loop ? 1U : 0U;
      continue;
    }
    const bool in_name = group.positions[p].text == 0;
    const bool runs_along =
        !a.loop && !b.loop && b.first == counter.first && a.first == previous.numbers[loop].first;
    if (in_name || !runs_along || text_follows || text_loops != loops_before) return false;
    now[p] = text_follows = true;
  }
  if (follows.empty()) follows = now;
  return follows == now;
}

/// Joins `run`, whose counters are consecutive, to one candidate.
Candidate join(std::span<Candidate> run, std::size_t loop, const std::vector<bool>& follows) {
  Candidate joined;
  joined.numbers = run.front().numbers;
  const Number range{run.front().numbers[loop].first, run.back().numbers[loop].first, true};
  joined.numbers[loop] = range;
  for (std::size_t p = 0; p < follows.size(); ++p) {
    if (follows[p]) joined.numbers[p] = range;
  }
  joined.members.reserve(run.size() * run.front().members.size());
  for (std::size_t outer = 0; outer < run.front().members.size(); ++outer) {
    for (const Candidate& candidate : run) joined.members.push_back(candidate.members[outer]);
  }
  return joined;
}

/// One pass over one number of the name.
void fold_over(Group& group, std::size_t loop) {
  std::vector<Candidate>& all = group.candidates;
  // by the other numbers of the name
  const auto order = [&](const Candidate& a, const Candidate& b) {
    for (std::size_t p = 0; p < a.numbers.size() && group.positions[p].text == 0; ++p) {
      if (p == loop || a.numbers[p] == b.numbers[p]) continue;
      return a.numbers[p] <=> b.numbers[p];
    }
    return std::strong_ordering::equal;
  };
  std::sort(all.begin(), all.end(), [&](const Candidate& a, const Candidate& b) {
    const std::strong_ordering ordered = order(a, b);
    if (ordered != 0) return ordered < 0;
    return std::tie(a.numbers[loop], a.members.front()) <
           std::tie(b.numbers[loop], b.members.front());
  });
  std::vector<Candidate> sorted = std::move(all);
  const std::size_t shortest = group.positions[loop].component ? kShortestRun : kShortestSuffixRun;
  all.clear();
  for (std::size_t begin = 0; begin < sorted.size();) {
    std::size_t end = begin + 1;
    std::vector<bool> follows;
    while (end < sorted.size() && order(sorted[end], sorted[begin]) == 0 &&
           sorted[end].members.size() == sorted[begin].members.size() &&
           extends(group, loop, sorted[end - 1], sorted[end], follows)) {
      ++end;
    }
    if (end - begin >= shortest) {
      all.push_back(join(std::span(sorted).subspan(begin, end - begin), loop, follows));
    } else {
      end = begin + 1;
      all.push_back(std::move(sorted[begin]));
    }
    begin = end;
  }
}

std::vector<std::string> texts_of(const Group& group, const Candidate& candidate) {
  std::vector<std::string> texts;
  std::size_t p = 0;
  for (const std::string& literal : group.literals) {
    std::string& text = texts.emplace_back();
    for (std::size_t i = 0; i < literal.size(); ++i) {
      if (literal[i] == kQuote) {
        text += literal[++i];
        continue;
      }
      if (literal[i] != kNumber) {
        text += literal[i];
        continue;
      }
      const Number& number = candidate.numbers[p++];
      text += number.loop
                  ? "{" + std::to_string(number.first) + ".." + std::to_string(number.last) + "}"
                  : std::to_string(number.first);
    }
  }
  return texts;
}

/// "{first..last}" at the front of `text`: the range and its length in characters.
struct Pattern {
  std::int64_t first = 0;
  std::int64_t last = 0;
  std::size_t size = 0;
};

std::optional<Pattern> pattern_at(std::string_view text) {
  Pattern pattern;
  const auto number = [&](std::int64_t& value) {
    std::size_t digits = 0;
    while (pattern.size + digits < text.size() && is_digit(text[pattern.size + digits])) ++digits;
    if (digits == 0 || digits > kMostDigits) return false;
    const char* const begin = text.data() + pattern.size;
    std::from_chars(begin, begin + digits, value);
    pattern.size += digits;
    return true;
  };
  if (text.empty() || text[0] != '{') return std::nullopt;
  pattern.size = 1;
  if (!number(pattern.first)) return std::nullopt;
  if (text.substr(pattern.size, 2) != "..") return std::nullopt;
  pattern.size += 2;
  if (!number(pattern.last)) return std::nullopt;
  if (text.substr(pattern.size, 1) != "}") return std::nullopt;
  ++pattern.size;
  return pattern;
}

/// A text cut at its patterns: literals[0], patterns[0], literals[1], ...
struct CutText {
  std::vector<std::string_view> literals;
  std::vector<Pattern> patterns;
};

CutText cut(std::string_view text) {
  CutText result;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < text.size();) {
    const std::optional<Pattern> pattern = pattern_at(text.substr(i));
    if (!pattern) {
      ++i;
      continue;
    }
    result.literals.push_back(text.substr(begin, i - begin));
    result.patterns.push_back(*pattern);
    begin = i += pattern->size;
  }
  result.literals.push_back(text.substr(begin));
  return result;
}

}  // namespace

std::vector<FoldedItem> fold(std::span<const FoldItem> items) {
  std::vector<FoldedItem> folded;
  for (Group& each : group(items)) {
    for (std::size_t p = 0; p < each.positions.size() && each.positions[p].text == 0; ++p) {
      if (each.candidates.size() > 1) fold_over(each, p);
    }
    for (Candidate& candidate : each.candidates) {
      std::vector<std::string> texts = texts_of(each, candidate);
      folded.push_back({std::move(texts), std::move(candidate.members)});
    }
  }
  const auto first_member = [](const FoldedItem& item) {
    return *std::min_element(item.members.begin(), item.members.end());
  };
  std::vector<std::pair<std::size_t, std::size_t>> order;
  for (std::size_t i = 0; i < folded.size(); ++i) order.emplace_back(first_member(folded[i]), i);
  std::sort(order.begin(), order.end());
  std::vector<FoldedItem> result;
  result.reserve(folded.size());
  for (const auto& [first, i] : order) result.push_back(std::move(folded[i]));
  return result;
}

bool has_pattern(std::string_view text) {
  return text.find('{') != std::string_view::npos && !cut(text).patterns.empty();
}

Result<std::vector<std::vector<std::string>>> unfold(std::span<const std::string_view> texts,
                                                     std::size_t most) {
  std::vector<CutText> pieces;
  for (const std::string_view text : texts) pieces.push_back(cut(text));
  const std::vector<Pattern> loops = pieces.front().patterns;
  std::size_t count = 1;
  for (std::size_t t = 0; t < pieces.size(); ++t) {
    if (pieces[t].patterns.size() > loops.size()) {
      return fail(ErrorCode::kValue,
                  "",
                  "\"" + std::string(texts[t]) + "\" has more patterns than the entry's name \"" +
                      std::string(texts[0]) + "\"");
    }
    for (std::size_t k = 0; k < pieces[t].patterns.size(); ++k) {
      const Pattern& pattern = pieces[t].patterns[k];
      if (pattern.last < pattern.first) {
        return fail(ErrorCode::kValue,
                    "",
                    "\"" + std::string(texts[t]) + "\" has a pattern that counts downwards");
      }
      if (pattern.last - pattern.first != loops[k].last - loops[k].first) {
        return fail(ErrorCode::kValue,
                    "",
                    "pattern " + std::to_string(k + 1) + " of \"" + std::string(texts[t]) +
                        "\" is not as long as that of the entry's name \"" + std::string(texts[0]) +
                        "\"");
      }
    }
  }
  for (const Pattern& loop : loops) {
    const auto length = static_cast<std::size_t>(loop.last - loop.first) + 1;
    if (length > most / count) {
      return fail(ErrorCode::kOverflow,
                  "",
                  "\"" + std::string(texts[0]) + "\" stands for more than " + std::to_string(most) +
                      " entries");
    }
    count *= length;
  }
  std::vector<std::vector<std::string>> members;
  members.reserve(count);
  std::vector<std::int64_t> counters(loops.size(), 0);
  for (std::size_t member = 0; member < count; ++member) {
    std::vector<std::string>& expanded = members.emplace_back();
    for (const CutText& piece : pieces) {
      std::string& text = expanded.emplace_back(piece.literals[0]);
      for (std::size_t k = 0; k < piece.patterns.size(); ++k) {
        text += std::to_string(piece.patterns[k].first + counters[k]);
        text += piece.literals[k + 1];
      }
    }
    for (std::size_t k = loops.size(); k-- > 0;) {
      if (++counters[k] <= loops[k].last - loops[k].first) break;
      counters[k] = 0;
    }
  }
  return members;
}

}  // namespace meshplan

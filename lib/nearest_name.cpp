// SPDX-License-Identifier: Apache-2.0
#include "lib/nearest_name.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <vector>

namespace meshplan {
namespace {

/// Optimal string alignment distance: insertions, deletions, replacements and swapped neighbours.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1), above(b.size() + 1), row(b.size() + 1);
  std::iota(above.begin(), above.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replace = above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, replace});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
    std::swap(before, above);
    std::swap(above, row);
  }
  return above[b.size()];
}

}  // namespace

std::string nearest_name_hint(std::string_view name, std::span<const std::string> known) {
  constexpr std::size_t kLongest = 200;
  if (name.size() > kLongest) return "";
  std::size_t best = std::max<std::size_t>(1, name.size() / 3) + 1;
  const std::string* found = nullptr;
  for (const std::string& candidate : known) {
    if (candidate.size() > name.size() + best || name.size() > candidate.size() + best) continue;
    const std::size_t distance = edit_distance(name, candidate);
    if (distance < best) {
      best = distance;
      found = &candidate;
    }
  }
  return found == nullptr ? "" : "; did you mean \"" + *found + "\"?";
}

}  // namespace meshplan

// SPDX-License-Identifier: Apache-2.0
// Ranks that create communication groups: does anyone wait forever?
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace meshplan::test {

/// Simulates ranks that each create groups in an order of their own. A creation is done when every
/// member waits for it. Returns the number of ranks that wait forever.
inline std::size_t waiting_forever(
    std::map<std::int64_t, std::vector<std::vector<std::int64_t>>> programs) {
  for (bool progress = true; progress;) {
    progress = false;
    for (auto& [rank, program] : programs) {
      if (program.empty()) continue;
      const std::vector<std::int64_t> group = program.front();
      const bool all_wait = std::all_of(group.begin(), group.end(), [&](std::int64_t member) {
        const auto& other = programs[member];
        return !other.empty() && other.front() == group;
      });
      if (!all_wait) continue;
      for (const std::int64_t member : group) {
        auto& other = programs[member];
        other.erase(other.begin());
      }
      progress = true;
    }
  }
  return static_cast<std::size_t>(std::count_if(
      programs.begin(), programs.end(), [](const auto& entry) { return !entry.second.empty(); }));
}

}  // namespace meshplan::test

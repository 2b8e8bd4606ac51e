// SPDX-License-Identifier: Apache-2.0
// Independent pieces of work on several threads.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <thread>
#include <vector>

namespace meshplan {

/// Calls work(0), ..., work(count - 1), each once, on at most `threads` threads (the caller's
/// included); returns when all are done. Calls must not depend on each other.
template <class Work>
void in_parallel(std::size_t count, unsigned threads, const Work& work) {
  if (count == 0) return;
  std::atomic<std::size_t> next{0};
  const auto run = [&] {
    for (std::size_t i = next++; i < count; i = next++) work(i);
  };
  const std::size_t helpers = std::min<std::size_t>(threads > 0 ? threads - 1 : 0, count - 1);
  std::vector<std::thread> started;
  for (std::size_t h = 0; h < helpers; ++h) started.emplace_back(run);
  run();
  for (std::thread& thread : started) thread.join();
}

}  // namespace meshplan

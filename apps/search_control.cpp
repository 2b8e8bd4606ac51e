// SPDX-License-Identifier: Apache-2.0
#include "apps/search_control.h"

#include <atomic>
#include <utility>

#include <signal.h>

#include "plan/readable.h"

namespace meshplan {
namespace {

std::atomic<bool> interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free);  // it is set in a signal handler
struct sigaction before;

void interrupt(int /*signal*/) { interrupted = true; }

}  // namespace

std::string progress_text(const DpProgress& progress) {
  std::string text =
      std::to_string(progress.searched) + " of " + std::to_string(progress.meshes) + " meshes";
  if (progress.best) text += ", best " + readable_time(*progress.best);
  if (!progress.lower_bound) return text;
  text += ", bound " + readable_time({*progress.lower_bound});
  if (!progress.best) return text;
  const double best = progress.best->value;
  return text + ", gap " + readable_percent(best > 0 ? (best - *progress.lower_bound) / best : 0);
}

SearchControl::SearchControl(std::optional<Seconds> limit,
                             const CommonOptions& common,
                             std::string text)
    : line_(common, std::move(text)) {
  // a limit beyond what the clock counts is none
  constexpr double kLongest = 1e9;
  if (limit && limit->value < kLongest)
    end_ = std::chrono::steady_clock::now() +
           std::chrono::duration_cast<std::chrono::steady_clock::duration>(
               std::chrono::duration<double>(limit->value));
  interrupted = false;
  struct sigaction ours = {};
  ours.sa_handler = interrupt;
  ours.sa_flags = static_cast<int>(SA_RESETHAND) | SA_RESTART;
  ::sigemptyset(&ours.sa_mask);
  ::sigaction(SIGINT, &ours, &before);
}

SearchControl::~SearchControl() { ::sigaction(SIGINT, &before, nullptr); }

bool SearchControl::stop() const {
  return interrupted || (end_ && std::chrono::steady_clock::now() >= *end_);
}

}  // namespace meshplan

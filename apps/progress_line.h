// SPDX-License-Identifier: Apache-2.0
// ProgressLine: what a command that takes longer than a second is doing, on one line of the
// terminal that is written over and erased at the end.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "apps/command.h"

namespace meshplan {

/// Shows nothing where standard error is no terminal, with --quiet, and in the first second. The
/// line ends with the time since the start, so that it moves even where nothing is told. Messages
/// that end a command must come after its destruction.
class ProgressLine {
 public:
  ProgressLine(const CommonOptions& common, std::string text);
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  /// Whether anything can be seen at all: where not, texts need not be made.
  bool visible() const { return visible_; }
  /// The new text, without line ends; may be called from any thread.
  void show(std::string text);

 private:
  void run();

  const bool visible_;
  const std::chrono::steady_clock::time_point start_;
  std::mutex mutex_;  ///< guards what follows
  std::condition_variable changed_;
  std::string text_;
  bool end_ = false;
  bool shown_ = false;
  std::thread painter_;
};

}  // namespace meshplan

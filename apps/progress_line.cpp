// SPDX-License-Identifier: Apache-2.0
#include "apps/progress_line.h"

#include <cstdio>
#include <utility>

#include <sys/ioctl.h>
#include <unistd.h>

namespace meshplan {
namespace {

using namespace std::chrono_literals;

constexpr auto kSilent = 1s;
constexpr auto kBetweenPaints = 200ms;

/// Without what would run into a second line; counts characters, not bytes.
std::string cut_to_terminal(const std::string& text) {
  winsize window = {};
  const bool known = ::ioctl(STDERR_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_col > 1;
  std::size_t room = known ? window.ws_col - 1U : 79U;
  std::size_t end = 0;
  while (end < text.size()) {
    const bool starts = (static_cast<unsigned char>(text[end]) & 0xC0U) != 0x80U;
    if (starts && room-- == 0) break;
    ++end;
  }
  return text.substr(0, end);
}

}  // namespace

ProgressLine::ProgressLine(const CommonOptions& common, std::string text)
    : visible_(!common.quiet && ::isatty(STDERR_FILENO) == 1),
      start_(std::chrono::steady_clock::now()),
      text_(std::move(text)) {
  if (visible_) painter_ = std::thread([this] { run(); });
}

ProgressLine::~ProgressLine() {
  if (!visible_) return;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    end_ = true;
  }
  changed_.notify_one();
  painter_.join();
  if (!shown_) return;
  std::fputs("\r\033[K", stderr);
  std::fflush(stderr);
}

void ProgressLine::show(std::string text) {
  if (!visible_) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  text_ = std::move(text);
}

void ProgressLine::run() {
  std::unique_lock<std::mutex> lock(mutex_);
  auto next = start_ + kSilent;
  std::string painted;
  while (!changed_.wait_until(lock, next, [this] { return end_; })) {
    next = std::chrono::steady_clock::now() + kBetweenPaints;
    const auto seconds =
        std::chrono::duration_cast<std::chrono::seconds>(std::chrono::steady_clock::now() - start_);
    std::string line = cut_to_terminal(text_ + ", " + std::to_string(seconds.count()) + " s");
    if (line == painted) continue;
    painted = std::move(line);
    shown_ = true;
    std::fprintf(stderr, "\r\033[K%s", painted.c_str());
    std::fflush(stderr);
  }
}

}  // namespace meshplan

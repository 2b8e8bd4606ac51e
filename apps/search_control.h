// SPDX-License-Identifier: Apache-2.0
// Ends a search at a time limit or at Ctrl-C, and shows on a terminal how far it is. What a plan
// says never depends on the clock but for where the search was ended.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <utility>

#include "apps/progress_line.h"
#include "lib/units.h"
#include "search/dp_search.h"

namespace meshplan {

/// "3 of 40 meshes, best 3.526 s, bound 3.510 s, gap 0.45 %": what is known yet.
std::string progress_text(const DpProgress& progress);

/// From its construction to its destruction the first Ctrl-C asks the search to end; a second one
/// ends the program as usual. One at a time.
class SearchControl {
 public:
  /// `limit`: from now on. `text`: what is shown first.
  SearchControl(std::optional<Seconds> limit, const CommonOptions& common, std::string text);
  ~SearchControl();
  SearchControl(const SearchControl&) = delete;
  SearchControl& operator=(const SearchControl&) = delete;

  /// Whether to end now; may be called from any thread.
  bool stop() const;
  /// Whether the line can be seen at all: where not, texts need not be made.
  bool visible() const { return line_.visible(); }
  /// Replaces the line that is shown; from any thread.
  void show(std::string text) { line_.show(std::move(text)); }

 private:
  std::optional<std::chrono::steady_clock::time_point> end_;
  ProgressLine line_;
};

}  // namespace meshplan

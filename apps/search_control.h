// SPDX-License-Identifier: Apache-2.0
// Ends a search at a time limit or at Ctrl-C, and shows on a terminal how far it is. The only clock
// in the program; what a plan says never depends on it but for where the search was ended.
#pragma once

#include <chrono>
#include <optional>
#include <string>

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
  /// `limit`: from now on.
  SearchControl(std::optional<Seconds> limit, const CommonOptions& common);
  ~SearchControl();
  SearchControl(const SearchControl&) = delete;
  SearchControl& operator=(const SearchControl&) = delete;

  /// Whether to end now; may be called from any thread.
  bool stop() const;
  /// Replaces the line that is shown; from any thread.
  void show(const DpProgress& progress);

 private:
  std::optional<std::chrono::steady_clock::time_point> end_;
  ProgressLine line_;
};

}  // namespace meshplan

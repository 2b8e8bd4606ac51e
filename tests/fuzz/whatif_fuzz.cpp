// SPDX-License-Identifier: Apache-2.0
// Sweeps and parts of sweeps of whatif: read, written and read again, shown in every form, joined.
#include <utility>
#include <vector>

#include "apps/whatif_report.h"
#include "fuzz/fuzz.h"

namespace meshplan::fuzz {
namespace {

void check_shown(const WhatIfReport& report) {
  law(!what_if_csv(report).empty(), "a sweep has a table");
  law(!summary_text(summarise(report)).empty(), "a sweep has a summary");
  law(!what_if_plot(report).empty(), "a sweep has a picture");
}

void check_what_if_text(const std::string& text) {
  const Result<WhatIfReport> report = read_what_if(text, "w.json");
  if (!report) return check_refusal(report.error());
  const std::string written = write_what_if(*report);
  const Result<WhatIfReport> again = read_what_if(written, "w.json");
  law(again && write_what_if(*again) == written, "a sweep reads back from what is written");
  const Result<WhatIfReport> merged = merge_what_if({*report}, {"w.json"});
  if (!merged) {
    check_refusal(merged.error());
    law(!report->shard || report->shard->count > 1, "one part of one is the whole");
  } else {
    law(merged->points.size() == report->points.size(), "no point is lost");
    check_shown(*merged);
  }
  if (!report->shard) check_shown(*report);
}

}  // namespace
}  // namespace meshplan::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  meshplan::fuzz::check_what_if_text(meshplan::fuzz::input_text(data, size));
  return 0;
}

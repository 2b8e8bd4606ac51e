// SPDX-License-Identifier: Apache-2.0
// Plans: read strictly and as `check` reads them, written and read again, and checked against a
// small graph, whatever they say.
#include <vector>

#include "fuzz/fuzz.h"
#include "fuzz/small_plan.h"
#include "plan/check_plan.h"
#include "plan/plan_json.h"

namespace meshplan::fuzz {
namespace {

void check_findings(const std::vector<Finding>& findings) {
  for (const Finding& finding : findings)
    law(!finding.message.empty(), "a finding says what is wrong");
}

void check_plan_text(const std::string& text) {
  const Result<Plan> strict = read_plan(text, "p.json");
  if (!strict) {
    check_refusal(strict.error());
  } else {
    const Result<Plan> again = read_plan(write_plan(*strict), "p.json");
    law(again && *again == *strict, "a plan reads back from what is written");
  }
  std::vector<Finding> findings;
  PlanReading reading;
  reading.findings = &findings;
  const Result<Plan> lenient = read_plan(text, "p.json", reading);
  law(!strict || (lenient && findings.empty()), "what is a plan has no findings");
  if (!lenient) return check_refusal(lenient.error());
  check_findings(findings);
  check_findings(check_plan(*lenient, small_graph(), small_cluster()));
}

}  // namespace
}  // namespace meshplan::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  meshplan::fuzz::check_plan_text(meshplan::fuzz::input_text(data, size));
  return 0;
}

// SPDX-License-Identifier: Apache-2.0
// What people and programs read of a difference between two plans.
#pragma once

#include <string>

#include "graph/json.h"
#include "plan/diff_plans.h"
#include "plan/plan_summary.h"

namespace meshplan {

/// The verdict, what the plans are of, the numbers, and the changes by scope, the largest effects
/// first; long lists are cut and say so. For summary_text and summary_markdown.
Summary summarise(const PlanDiff& diff);

/// Everything, as one JSON object.
std::string diff_json(const PlanDiff& diff);
/// The same as a value of a larger document.
void write_diff(JsonWriter& writer, const PlanDiff& diff);

/// JUnit XML: one test case per limit, failed where it does not hold; the changes as its output.
std::string diff_junit(const PlanDiff& diff);

}  // namespace meshplan

// SPDX-License-Identifier: Apache-2.0
// The plan document meshplan.plan/1.0 (docs/plan.md).
#pragma once

#include <string>
#include <string_view>

#include "lib/result.h"
#include "plan/plan.h"

namespace meshplan {

/// The document: equal plans give equal bytes, one tensor, operator or redistribution per line,
/// equal layers folded. Names must be unique among the tensors. read_plan gives the same plan back.
std::string write_plan(const Plan& plan);

/// Reads a document; `file` is the name used in errors. Errors: kInput (not JSON), kType, kMissing,
/// kValue (unknown keys, names and placements that are none), kUnsupported (a newer schema),
/// kOverflow (more than a million entries in one list). Whether what it says is true is
/// check_plan's matter.
Result<Plan> read_plan(std::string_view text, std::string file);

}  // namespace meshplan

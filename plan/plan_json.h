// SPDX-License-Identifier: Apache-2.0
// The plan document meshplan.plan/1.0 (docs/plan.md).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "lib/result.h"
#include "plan/finding.h"
#include "plan/plan.h"

namespace meshplan {

/// The newest schema that read_plan knows and write_plan writes: meshplan.plan/1.0.
inline constexpr int kPlanSchemaMajor = 1;
inline constexpr int kPlanSchemaMinor = 0;

/// Where the entries of a plan stand in its document: folded ones stand there once.
struct PlanPlaces {
  std::vector<std::string> tensors;  ///< per tensor: its key
  std::vector<std::size_t> operators;
  std::vector<std::size_t> redistributions;
  std::vector<std::size_t> at_peak;
};

/// How a plan is read, and what is kept beside it.
struct PlanReading {
  int minor = kPlanSchemaMinor;
  /// Keys of the document that minors up to `minor` added; they may be there and are skipped.
  std::vector<std::string> added_keys;
  /// If given, a value of the right JSON type that no plan can hold (a name or a placement that is
  /// none, a number out of range) is listed here instead of being an error, and left at its
  /// default.
  std::vector<Finding>* findings = nullptr;
  PlanPlaces* places = nullptr;  ///< if given, filled
};

/// The document: equal plans give equal bytes, one tensor, operator or redistribution per line,
/// equal layers folded. Names must be unique among the tensors. read_plan gives the same plan back.
std::string write_plan(const Plan& plan);

/// Reads a document; `file` is the name used in errors. Errors: kInput (not JSON), kType, kMissing,
/// kValue (unknown keys, names and placements that are none), kUnsupported (a newer schema),
/// kOverflow (more than a million entries in one list). Whether what it says is true is
/// check_plan's matter.
Result<Plan> read_plan(std::string_view text, std::string file, const PlanReading& reading = {});

}  // namespace meshplan

// SPDX-License-Identifier: Apache-2.0
// From findings about the expanded plan to the document that the user has, where equal layers stand
// once.
#pragma once

#include <string>
#include <vector>

#include "plan/finding.h"
#include "plan/plan_json.h"

namespace meshplan {

/// A finding with its pointer into the document.
struct LocatedFinding {
  Finding finding;
  /// The tensors, operators or shares of memory that it is about, equal names folded; may be empty.
  std::vector<std::string> entries;
  friend bool operator==(const LocatedFinding&, const LocatedFinding&) = default;
};

/// The findings of check_plan in the document that `plan` and `places` were read from, in the same
/// order; those that differ in nothing but the entry of one folded line are one.
std::vector<LocatedFinding> locate(const std::vector<Finding>& findings,
                                   const Plan& plan,
                                   const PlanPlaces& places);

/// "/operators/3/compute_time (layers.{0..31}.fc1): expected 1.5e-4, found 1e-4: ...".
std::string to_string(const LocatedFinding& located);

}  // namespace meshplan

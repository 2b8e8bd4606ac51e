// SPDX-License-Identifier: Apache-2.0
// Finding: one thing that a plan says wrongly.
#pragma once

#include <string>

namespace meshplan {

struct Finding {
  std::string
      pointer;  ///< JSON Pointer into the expanded plan, e.g. "/operators/3/in_placements/0"
  std::string expected;  ///< what the plan should say there, or "none"
  std::string found;     ///< what it says, or "none"
  std::string message;   ///< a sentence
  friend bool operator==(const Finding&, const Finding&) = default;
};

/// "/operators/3/compute_time: expected 1.5e-4, found 1e-4: the operator's ...".
std::string to_string(const Finding& finding);

}  // namespace meshplan

// SPDX-License-Identifier: Apache-2.0
// Reads constraints (meshplan.constraints/1.0). What they say about a graph is checked by
// bind_constraints (graph/constraints.h).
#pragma once

#include <string>
#include <string_view>

#include "graph/constraints.h"
#include "lib/result.h"

namespace meshplan {

/// Reads a document. `file` is the name used in errors, which carry file and JSON Pointer: those of
/// JsonDocument::parse, unknown and missing keys, wrong kinds; kValue (a malformed placement, a
/// wrong number of them), kUnknownAxis, kConflict (an axis used twice), kMissing (placements
/// without a mesh that they refer to).
Result<Constraints> parse_constraints(std::string_view text, const std::string& file);

/// Reads the file of `--constraints`; "-" is standard input. Errors also: kInput.
Result<Constraints> load_constraints(const std::string& path);

}  // namespace meshplan

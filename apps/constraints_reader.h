// SPDX-License-Identifier: Apache-2.0
// Reads constraints (meshplan.constraints/1.0). What they say about a graph is checked by
// bind_constraints (graph/constraints.h).
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "graph/constraints.h"
#include "graph/graph_document.h"
#include "lib/result.h"

namespace meshplan {

/// Reads a document. `file` is the name used in errors, which carry file and JSON Pointer: those of
/// JsonDocument::parse, unknown and missing keys, wrong kinds; kValue (a malformed placement, a
/// wrong number of them), kUnknownAxis, kConflict (an axis used twice), kMissing (placements
/// without a mesh that they refer to).
Result<Constraints> parse_constraints(std::string_view text, const std::string& file);

/// Reads the file of `--constraints`; "-" is standard input. Errors also: kInput.
Result<Constraints> load_constraints(const std::string& path);

/// The constraints of a job: those of the file, if one is given, or those that the graph was
/// written with (document_constraints), if any. Errors: those of load_constraints and
/// check_constraints.
Result<std::optional<Constraints>> find_constraints(const std::string& path,
                                                    const GraphDocument& document,
                                                    const Graph& graph);

}  // namespace meshplan

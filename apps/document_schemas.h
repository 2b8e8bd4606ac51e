// SPDX-License-Identifier: Apache-2.0
// The JSON Schemas (draft 7) of the documents, one file each in schemas/.
#pragma once

#include <span>
#include <string_view>

namespace meshplan {

struct DocumentSchema {
  std::string_view kind;  ///< "graph", "cluster", ...
  std::string_view text;
};

/// Sorted by kind.
std::span<const DocumentSchema> document_schemas();

}  // namespace meshplan

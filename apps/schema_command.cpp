// SPDX-License-Identifier: Apache-2.0
// meshplan schema KIND: the JSON Schema of a document, for editors and other programs.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "apps/command.h"
#include "apps/document_schemas.h"

namespace meshplan {

RunCommand define_schema(CLI::App& app, CommonOptions& common) {
  auto kind = std::make_shared<std::string>();
  std::vector<std::string> kinds;
  std::string type;
  for (const DocumentSchema& schema : document_schemas()) {
    kinds.emplace_back(schema.kind);
    type += (type.empty() ? "" : "|") + kinds.back();
  }
  app.add_option("KIND", *kind, "The document: " + type)
      ->required()
      ->type_name(type)
      ->check(CLI::IsMember(kinds));
  return [kind, &common] {
    const auto schemas = document_schemas();
    const auto found = std::find_if(
        schemas.begin(), schemas.end(), [&](const auto& schema) { return schema.kind == *kind; });
    if (auto done = write_output(common.output, found->text); !done) return report(done.error());
    return int{kDone};
  };
}

}  // namespace meshplan

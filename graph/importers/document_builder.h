// SPDX-License-Identifier: Apache-2.0
// What importers build graph documents with: one call per tensor or operator.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "graph/graph_document.h"

namespace meshplan {

class DocumentBuilder {
 public:
  using Attributes = std::map<std::string, AttributeDocument>;

  /// `file` is named in errors about the document.
  DocumentBuilder(std::string name, std::string file);

  void dimension(const std::string& name, std::int64_t size);
  /// Declares a tensor and returns its name.
  std::string tensor(const std::string& name,
                     Role role,
                     std::vector<Size> shape,
                     DType dtype,
                     bool trainable = true);
  /// Adds an operator with one result of the same name, and returns that name.
  std::string add(const std::string& type,
                  const std::string& name,
                  const std::string& scope,
                  std::vector<std::string> inputs,
                  Attributes attributes = {});
  /// Adds an operator with several results.
  void add(const std::string& type,
           const std::string& name,
           const std::string& scope,
           std::vector<std::string> inputs,
           std::vector<std::string> outputs,
           Attributes attributes);
  GraphDocument finish(std::vector<std::string> outputs) &&;

 private:
  GraphDocument document_;
};

}  // namespace meshplan

// SPDX-License-Identifier: Apache-2.0
// What the model families of the Hugging Face importer share. A new family is one hf_*.cpp file
// with a build function and one row in hf.cpp.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

#include "graph/importers/document_builder.h"
#include "graph/importers/hf.h"
#include "graph/json.h"

namespace meshplan {

/// The settings of a config.json under the names that its family may use for them.
class HfConfig {
 public:
  HfConfig(JsonCursor root, std::string name, std::string file)
      : root_(root), name_(std::move(name)), file_(std::move(file)) {}

  const std::string& name() const { return name_; }  ///< of the model, for the graph
  const std::string& file() const { return file_; }
  const JsonCursor& root() const { return root_; }

  /// The value under the first of `keys` that is there and not null. Errors: kConflict where two of
  /// them differ.
  Result<std::optional<JsonCursor>> find(std::initializer_list<std::string_view> keys) const;
  /// A size from 1 to kMostHfSize. Errors also: kMissing.
  Result<std::int64_t> size(std::initializer_list<std::string_view> keys) const;
  Result<std::int64_t> size_or(std::initializer_list<std::string_view> keys,
                               std::int64_t otherwise) const;
  Result<double> number_or(std::string_view key, double otherwise) const;
  Result<bool> flag_or(std::string_view key, bool otherwise) const;
  Result<std::string> text_or(std::string_view key, const std::string& otherwise) const;
  /// The element type of the weights ("torch_dtype" or "dtype"); bf16 with a note where none is
  /// given.
  Result<DType> dtype(std::vector<std::string>& notes) const;
  /// The ONNX operator of the activation under `key`, e.g. "Silu". Errors: kUnsupported.
  Result<std::string> activation(std::string_view key, const std::string& otherwise) const;
  /// The number of layers, or what the options put in its place.
  Result<std::int64_t> layers(std::initializer_list<std::string_view> keys,
                              const HfOptions& options) const;

 private:
  JsonCursor root_;
  std::string name_;
  std::string file_;
};

/// One row per model family.
struct HfFamily {
  std::string_view model_type;
  Result<HfImport> (*build)(const HfConfig& config, const HfOptions& options);
};

Result<HfImport> build_llama(const HfConfig& config, const HfOptions& options);

}  // namespace meshplan

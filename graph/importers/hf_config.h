// SPDX-License-Identifier: Apache-2.0
// The settings of a Hugging Face config.json, read with their defaults and places.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "graph/importers/hf.h"
#include "graph/json.h"

namespace meshplan {

/// The names of one setting; families use one or two. "" names nothing: such a setting is never
/// there.
struct HfKey {
  std::string_view name;
  std::string_view other = {};
  constexpr HfKey() = default;
  constexpr HfKey(const char* first, const char* second = "") : name(first), other(second) {}
};

/// A setting that is true or false; without a name it always has the value.
struct HfToggle {
  HfKey key;
  bool value = false;
};

/// An activation as operators compute it.
struct HfActivation {
  std::string_view type;             ///< ONNX operator
  bool tanh_approximation = false;   ///< Gelu
  std::optional<double> alpha = {};  ///< Swish: x * sigmoid(alpha * x)
};

class HfConfig {
 public:
  HfConfig(JsonCursor root, std::string name, std::string file)
      : root_(root), name_(std::move(name)), file_(std::move(file)) {}

  const std::string& name() const { return name_; }  ///< of the model, for the graph
  const std::string& file() const { return file_; }
  const JsonCursor& root() const { return root_; }

  /// The value under the first name that is there and not null. Errors: kConflict where both are
  /// there and differ.
  Result<std::optional<JsonCursor>> find(const HfKey& key) const;
  /// A size from 1 to kMostHfSize. Errors also: kMissing.
  Result<std::int64_t> size(const HfKey& key) const;
  Result<std::int64_t> size_or(const HfKey& key, std::int64_t otherwise) const;
  /// nullopt where it is missing or null.
  Result<std::optional<std::int64_t>> optional_size(const HfKey& key) const;
  Result<double> number_or(const HfKey& key, double otherwise) const;
  Result<bool> flag(const HfToggle& toggle) const;
  Result<std::string> text_or(const HfKey& key, const std::string& otherwise) const;
  /// The element type of the weights ("torch_dtype" or "dtype"); bf16 with a note where none is
  /// given.
  Result<DType> dtype(std::vector<std::string>& notes) const;
  /// The activation that `key` names, or the one called `otherwise`. Errors: kUnsupported.
  Result<HfActivation> activation(const HfKey& key, std::string_view otherwise) const;
  /// The number of layers, or what the options put in its place.
  Result<std::int64_t> layers(const HfKey& key, const HfOptions& options) const;
  /// An error at the setting, or at the root where it is missing.
  Unexpected<Error> error(const HfKey& key, ErrorCode code, std::string message) const;

 private:
  JsonCursor root_;
  std::string name_;
  std::string file_;
};

/// The rate of the dropout after the softmax of attention; 0 where the config gives none. Errors:
/// kType, kValue.
Result<double> attention_dropout(const HfConfig& config);

/// The sequence length that the options must give. Errors: kUsage.
Result<std::int64_t> required_sequence(const HfOptions& options, const std::string& model_type);

}  // namespace meshplan

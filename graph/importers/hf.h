// SPDX-License-Identifier: Apache-2.0
// The computation graph of a model from its Hugging Face config.json alone: no weights, no Python.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/graph_document.h"
#include "lib/result.h"

namespace meshplan {

struct HfOptions {
  std::int64_t batch = 1;              ///< sequences per optimizer step
  std::optional<std::int64_t> seq;     ///< tokens per sequence; images have none
  bool training = true;                ///< with labels and a loss
  std::optional<std::int64_t> layers;  ///< instead of the config's number of layers
  std::int64_t past = 0;               ///< tokens in the cache before these (inference, decoders)
  /// Attention of its products, Softmax and Dropout, as before fused kernels, instead of one
  /// operator.
  bool eager_attention = false;
};

struct HfImport {
  GraphDocument document;
  std::vector<std::string> notes;  ///< what the user should know (assumed or ignored settings)
};

/// Batch, sequence length and number of layers may be at most this.
constexpr std::int64_t kMostHfSize = (std::int64_t{1} << 31) - 1;
constexpr std::int64_t kMostHfLayers = 10000;

/// Errors: those of JsonDocument::parse; kUnsupported (another model_type, an unknown activation);
/// kMissing, kType, kValue and kConflict for the settings that the family needs, with their place.
/// Keys that do not shape the graph are ignored.
Result<HfImport> import_hf(std::string_view text,
                           const std::string& file,
                           const HfOptions& options);

/// The values of "model_type" that import_hf knows, sorted.
std::span<const std::string> hf_model_types();

}  // namespace meshplan

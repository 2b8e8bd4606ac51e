// SPDX-License-Identifier: Apache-2.0
// The feed-forward part of a layer: an MLP, or a mixture of them.
#pragma once

#include <string>
#include <string_view>

#include "graph/importers/hf_transformer.h"

namespace meshplan {

/// Module names relative to the layer.
struct MlpNames {
  std::string_view scope;
  std::string_view gate;
  std::string_view up;
  std::string_view down;
};

/// x [batch, seq, hidden] through an MLP of the stack's kind and the given width.
std::string mlp_of_layer(TransformerBuilder& builder,
                         const Stack& stack,
                         const std::string& layer,
                         const MlpNames& names,
                         std::int64_t width,
                         const std::string& x);

/// x [batch, seq, hidden] through router, experts and shared experts. The experts' weights are
/// stacked, [experts, in, out].
std::string experts_of_layer(TransformerBuilder& builder,
                             const Stack& stack,
                             const std::string& layer,
                             const std::string& x,
                             const Size& seq);

}  // namespace meshplan

// SPDX-License-Identifier: Apache-2.0
// Stacks of transformer layers, described by values: every model of the Hugging Face importer is
// such stacks between its embeddings and its head.
//
// Weights stand as [in, out], the order in which MatMul reads them. Projections that a model keeps
// fused are emitted cut apart, `c_attn.q`, `c_attn.k`, `c_attn.v`: the same number of weights, and
// each part can be sharded on its own.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "graph/importers/hf_config.h"

namespace meshplan {

enum class NormKind : std::uint8_t { kRms, kLayer, kLayerWithoutBias };

/// Where norms stand around an attention or MLP block f.
enum class NormPlace : std::uint8_t {
  kBefore,    ///< x + f(norm(x))
  kAfter,     ///< x + norm(f(x))
  kAround,    ///< x + norm(f(norm(x)))
  kAfterAdd,  ///< norm(x + f(x))
};

/// What is normalised in queries and keys.
enum class QkNorm : std::uint8_t {
  kNone,
  kPerHead,    ///< each head, with the same weights
  kAllHeads,   ///< all heads of a token together
  kEveryHead,  ///< each head, with weights of its own
};

/// What the modules of a layer are called, all relative to the layer.
struct LayerNames {
  std::string_view attention = "self_attn";
  std::string_view q = "self_attn.q_proj";
  std::string_view k = "self_attn.k_proj";
  std::string_view v = "self_attn.v_proj";
  std::string_view out = "self_attn.o_proj";
  std::string_view mlp = "mlp";
  std::string_view gate = "mlp.gate_proj";
  std::string_view up = "mlp.up_proj";
  std::string_view down = "mlp.down_proj";
  std::string_view attention_norm = "input_layernorm";
  std::string_view attention_post_norm = "";  ///< after the block: kAfter, kAround
  std::string_view mlp_norm = "post_attention_layernorm";
  std::string_view mlp_post_norm = "";
  std::string_view cross = "";  ///< attention to an encoder's result; its norm follows
  std::string_view cross_norm = "";
  std::string_view router = "mlp.gate";
  std::string_view expert_gate = "mlp.experts.gate_proj";
  std::string_view expert_up = "mlp.experts.up_proj";
  std::string_view expert_down = "mlp.experts.down_proj";
  std::string_view shared_experts = "mlp.shared_experts";
};

/// Queries and keys through narrow projections; each has a part without and one with positions.
struct LatentAttention {
  std::optional<std::int64_t> q_rank;  ///< none: queries are projected directly
  std::int64_t kv_rank = 0;
  std::int64_t nope_dim = 0;
  std::int64_t rope_dim = 0;
};

struct AttentionModel {
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;   ///< of queries and keys
  std::int64_t value_dim = 0;  ///< of values
  bool q_bias = false;
  bool k_bias = false;
  bool v_bias = false;
  bool out_bias = false;
  bool causal = true;
  bool sinks = false;           ///< a learned score per head that takes part in the softmax
  std::optional<double> scale;  ///< where it is not head_dim^-0.5
  double softcap = 0;           ///< 0: none
  std::int64_t rotary_dim = 0;  ///< dimensions of a head that turn; 0: none
  bool interleaved = false;     ///< pairs are neighbours
  QkNorm qk_norm = QkNorm::kNone;
  std::optional<LatentAttention> latent;
  std::string mask;  ///< tensor added to the scores, "" for none
};

struct MlpModel {
  std::int64_t width = 0;
  bool gated = true;
  bool bias = false;
  HfActivation activation{"Silu"};
};

/// How a router turns scores into experts and weights.
enum class Router : std::uint8_t {
  kSoftmax,      ///< softmax, then the best k
  kBestSoftmax,  ///< the best k, then their softmax
  kSigmoid,      ///< sigmoid; a learned bias takes part in the choice alone
};

struct MoeModel {
  std::int64_t experts = 0;
  std::int64_t top_k = 0;
  std::int64_t width = 0;
  std::int64_t shared_width = 0;  ///< 0: no shared expert
  bool shared_gate = false;
  bool bias = false;     ///< of router and experts
  bool clamped = false;  ///< gated unit with clamped inputs and a shifted linear part
  Router router = Router::kSoftmax;
  bool normalise = false;   ///< weights of a token sum to 1
  double scale = 1;         ///< of the weights
  std::int64_t groups = 1;  ///< experts are chosen from the best `top_groups` groups of these
  std::int64_t top_groups = 1;
};

/// Layers of one kind. What may differ from layer to layer is a list with one entry per layer.
struct Stack {
  std::string scope;  ///< "model.layers"
  LayerNames names;
  std::int64_t layers = 0;
  std::int64_t hidden = 0;
  NormKind norm = NormKind::kRms;
  NormPlace place = NormPlace::kBefore;
  double epsilon = 1e-6;
  bool parallel = false;     ///< attention and MLP read the same input
  bool shared_norm = false;  ///< ... and the same norm's result
  AttentionModel attention;
  MlpModel mlp;
  std::optional<MoeModel> moe;
  std::vector<bool> sparse;                 ///< layers with experts; empty: none
  std::vector<std::int64_t> window;         ///< positions that a token sees; empty, 0: all
  std::vector<bool> local_rotary;           ///< layers that turn by the second table; empty: none
  std::string rotary = "model.rotary_emb";  ///< prefix of the tables
};

}  // namespace meshplan

// SPDX-License-Identifier: Apache-2.0
// What distinguishes the decoders of the Hugging Face importer, one value per model_type. The names
// of settings stand beside their reference defaults; what no setting says is fixed here.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "graph/importers/hf_config.h"
#include "graph/importers/hf_stack.h"

namespace meshplan {

/// What the settings of a family are called.
struct HfKeys {
  HfKey hidden = "hidden_size";
  HfKey layers = "num_hidden_layers";
  HfKey heads = "num_attention_heads";
  HfKey kv_heads = "num_key_value_heads";
  HfKey head_dim = "head_dim";
  HfKey intermediate = "intermediate_size";
  HfKey vocab = "vocab_size";
  HfKey positions = "max_position_embeddings";
  HfKey epsilon = "rms_norm_eps";
  HfKey activation = "hidden_act";
};

/// Modules outside the layers.
struct ModelNames {
  std::string_view embedding = "model.embed_tokens";
  std::string_view position_embedding = "";
  std::string_view embedding_norm = "";
  std::string_view layers = "model.layers";
  std::string_view norm = "model.norm";
  std::string_view rotary = "model.rotary_emb";
  std::string_view head = "lm_head";
};

enum class Positions : std::uint8_t { kRotary, kLearned, kAlibi };

/// Which layers see a window of positions only.
enum class Windows : std::uint8_t {
  kNone,
  kAll,         ///< where the setting is not null
  kLateLayers,  ///< from max_window_layers on, with use_sliding_window
  kAlternate,   ///< layers 0, 2, 4, ...
  kPattern,     ///< all but every n-th; they turn by a rotary table of their own
};

/// How the number of heads of keys and values is found.
enum class KvHeads : std::uint8_t {
  kSetting,      ///< the setting, else all heads
  kMultiQuery,   ///< one with multi_query (default true), else all
  kQueryGroups,  ///< multi_query_group_num with multi_query_attention, else all
  kFalcon,       ///< as kMultiQuery; the new decoder architecture reads num_kv_heads
};

enum class Experts : std::uint8_t { kNone, kMixtral, kQwen, kQwenShared, kDeepSeek, kGptOss };

struct HfDecoder {
  std::string_view model_type;
  HfKeys keys = {};
  ModelNames model = {};
  LayerNames layer = {};
  NormKind norm = NormKind::kRms;
  NormPlace place = NormPlace::kBefore;
  double epsilon = 1e-6;
  HfToggle norm_before = {"", true};  ///< false: norms stand after the sums instead
  HfToggle parallel = {};
  HfToggle two_parallel_norms = {};  ///< attention and MLP of a parallel layer have a norm each
  KvHeads kv_heads = KvHeads::kSetting;
  std::int64_t head_dim = 0;  ///< where the setting is missing; 0: hidden size / heads
  HfToggle qkv_bias = {};
  HfToggle out_bias = {};
  HfToggle mlp_bias = {};
  QkNorm qk_norm = QkNorm::kNone;
  HfToggle qk_norm_switch = {"", true};
  bool gated = true;
  bool four_times = false;  ///< the MLP is 4 x hidden where the setting is missing
  std::string_view activation = "silu";
  Positions positions = Positions::kRotary;
  std::int64_t positions_value = 0;  ///< learned positions where the setting is missing
  HfToggle alibi = {};               ///< true: linear biases instead of `positions`
  HfKey alibi_without = {};          ///< ... also where this setting is missing
  std::int64_t position_offset = 0;  ///< unused rows before the first position
  HfKey rotary_dim = {};             ///< dimensions of a head that turn
  std::int64_t rotary_dim_value = 0;
  HfKey rotary_fraction = {};  ///< or their share
  double rotary_fraction_value = 1;
  bool interleaved = false;
  Windows windows = Windows::kNone;
  std::int64_t window = 0;     ///< where the setting is missing
  bool query_scale = false;    ///< scores are scaled by query_pre_attn_scalar^-0.5
  bool softcaps = false;       ///< attn_logit_softcapping, final_logit_softcapping
  HfKey embedding_width = {};  ///< where it may differ from the hidden size
  bool scaled_embeddings = false;
  bool sinks = false;
  bool latent = false;
  Experts experts = Experts::kNone;
  HfToggle tied = {"tie_word_embeddings"};
  bool head_bias = false;
  HfKey logit_scale = {};
  std::array<HfToggle, 2> required = {};  ///< settings that must have this value
};

/// Sorted by model_type.
std::span<const HfDecoder> hf_decoders();

}  // namespace meshplan

// SPDX-License-Identifier: Apache-2.0
// Decoders: a row of the architecture table and the settings of a config become a stack between an
// embedding and the scores of the next token.
#include <cmath>

#include "graph/importers/hf_family.h"
#include "graph/importers/hf_transformer.h"
#include "lib/nearest_name.h"

namespace meshplan {
namespace {

/// A decoder with all its settings read.
struct Decoder {
  Stack stack;
  std::int64_t vocab = 0;
  std::int64_t embedding_width = 0;
  std::int64_t positions = 0;  ///< rows of the position table; 0: none
  bool alibi = false;
  bool final_norm = true;
  bool tied = false;
  bool scaled_scores = false;
  double final_softcap = 0;
};

class DecoderReader {
 public:
  DecoderReader(const HfDecoder& row,
                const HfConfig& config,
                const HfOptions& options,
                std::vector<std::string>& notes)
      : row_(row),
        keys_(row.keys),
        config_(config),
        options_(options),
        seq_(options.seq.value_or(1)),
        notes_(notes) {}

  Result<Decoder> read() {
    for (const auto step : {&DecoderReader::read_sizes,
                            &DecoderReader::read_heads,
                            &DecoderReader::read_layers,
                            &DecoderReader::read_positions,
                            &DecoderReader::read_windows,
                            &DecoderReader::read_latent,
                            &DecoderReader::read_experts,
                            &DecoderReader::read_ends}) {
      if (auto done = (this->*step)(); !done) return fail(done.error());
    }
    return std::move(model_);
  }

 private:
  Stack& stack() { return model_.stack; }
  AttentionModel& attention() { return model_.stack.attention; }

  Result<void> size(const HfKey& key, std::int64_t& into) {
    const Result<std::int64_t> value = config_.size(key);
    if (!value) return fail(value.error());
    into = *value;
    return {};
  }
  Result<void> size_or(const HfKey& key, std::int64_t otherwise, std::int64_t& into) {
    const Result<std::int64_t> value = config_.size_or(key, otherwise);
    if (!value) return fail(value.error());
    into = *value;
    return {};
  }
  Result<void> number_or(const HfKey& key, double otherwise, double& into) {
    const Result<double> value = config_.number_or(key, otherwise);
    if (!value) return fail(value.error());
    into = *value;
    return {};
  }
  Result<void> flag(const HfToggle& toggle, bool& into) {
    const Result<bool> value = config_.flag(toggle);
    if (!value) return fail(value.error());
    into = *value;
    return {};
  }
  /// The first error of several reads.
  static Result<void> all(std::initializer_list<Result<void>> reads) {
    for (const Result<void>& read : reads) {
      if (!read) return read;
    }
    return {};
  }

  Result<void> read_sizes() {
    for (const HfToggle& required : row_.required) {
      bool given = required.value;
      if (auto read = flag(required, given); !read) return read;
      if (given != required.value) {
        return config_.error(
            required.key,
            ErrorCode::kUnsupported,
            std::string("only ") + (required.value ? "true" : "false") + " is supported");
      }
    }
    stack().scope = row_.model.layers;
    stack().names = row_.layer;
    stack().rotary = row_.model.rotary;
    stack().norm = row_.norm;
    if (auto read = all({size(keys_.hidden, stack().hidden)}); !read) return read;
    if (row_.experts != Experts::kGptOss || config_.root().find("intermediate_size")) {
      auto read = row_.four_times
                      ? size_or(keys_.intermediate, 4 * stack().hidden, stack().mlp.width)
                      : size(keys_.intermediate, stack().mlp.width);
      if (!read) return read;
    }
    if (auto read = all({size(keys_.heads, attention().heads), size(keys_.vocab, model_.vocab)});
        !read)
      return read;
    const Result<std::int64_t> layers = config_.layers(keys_.layers, options_);
    if (!layers) return fail(layers.error());
    stack().layers = *layers;
    return size_or(row_.embedding_width, stack().hidden, model_.embedding_width);
  }

  Result<void> read_kv_heads() {
    const std::int64_t heads = attention().heads;
    std::int64_t& into = attention().kv_heads;
    const auto multi_query = [&]() -> Result<void> {
      bool one = true;
      if (auto read = flag({"multi_query", true}, one); !read) return read;
      into = one ? 1 : heads;
      return {};
    };
    bool other = false;
    switch (row_.kv_heads) {
      case KvHeads::kSetting:
        return size_or(keys_.kv_heads, heads, into);
      case KvHeads::kMultiQuery:
        return multi_query();
      case KvHeads::kQueryGroups:
        if (auto read = flag({"multi_query_attention", false}, other); !read) return read;
        if (other) return size("multi_query_group_num", into);
        into = heads;
        return {};
      case KvHeads::kFalcon:
        if (auto read = flag({"new_decoder_architecture", false}, other); !read) return read;
        if (!other) return multi_query();
        stack().names.attention_norm = "ln_attn";
        stack().names.mlp_norm = "ln_mlp";
        return size_or(keys_.kv_heads, heads, into);
    }
    return {};
  }

  /// The setting that says the number of key and value heads, for messages.
  HfKey kv_heads_key() const {
    return row_.kv_heads == KvHeads::kQueryGroups ? HfKey("multi_query_group_num") : keys_.kv_heads;
  }

  Result<void> read_heads() {
    if (auto read = read_kv_heads(); !read) return read;
    AttentionModel& a = attention();
    const std::string heads(keys_.heads.name);
    if (a.heads % a.kv_heads != 0) {
      const HfKey key = kv_heads_key();
      return config_.error(key,
                           ErrorCode::kConflict,
                           heads + " " + std::to_string(a.heads) + " is not a multiple of " +
                               std::string(key.name) + " " + std::to_string(a.kv_heads));
    }
    const auto given = config_.optional_size(keys_.head_dim);
    if (!given) return fail(given.error());
    if (*given || row_.head_dim != 0) {
      a.head_dim = given->value_or(row_.head_dim);
    } else if (stack().hidden % a.heads != 0 && !row_.latent) {
      const std::string missing(keys_.head_dim.name);
      return config_.error(keys_.hidden,
                           ErrorCode::kConflict,
                           std::to_string(stack().hidden) + " does not divide into " + heads + " " +
                               std::to_string(a.heads) +
                               (missing.empty() ? "" : ", and there is no " + missing));
    } else {
      a.head_dim = stack().hidden / a.heads;
    }
    a.value_dim = a.head_dim;
    bool normalised = false;
    auto read = all({flag(row_.qkv_bias, a.q_bias),
                     flag(row_.out_bias, a.out_bias),
                     flag(row_.mlp_bias, stack().mlp.bias),
                     flag(row_.qk_norm_switch, normalised)});
    if (!read) return read;
    a.k_bias = a.v_bias = a.q_bias;
    a.qk_norm = normalised ? row_.qk_norm : QkNorm::kNone;
    a.sinks = row_.sinks;
    if (a.sinks && options_.eager_attention) {
      return config_.error(
          "model_type",
          ErrorCode::kUnsupported,
          "attention sinks are supported in fused attention, not in eager attention");
    }
    if (row_.query_scale) {
      double scalar = 0;
      if (auto scaled = number_or("query_pre_attn_scalar", 256, scalar); !scaled) return scaled;
      if (!(scalar > 0)) {
        return config_.error(
            "query_pre_attn_scalar", ErrorCode::kValue, "expected a number above 0");
      }
      if (scalar != static_cast<double>(a.head_dim)) a.scale = 1 / std::sqrt(scalar);
    }
    return row_.softcaps ? number_or("attn_logit_softcapping", 0, a.softcap) : Result<void>{};
  }

  Result<void> read_layers() {
    bool before = true;
    bool two_norms = false;
    auto read = all({number_or(keys_.epsilon, row_.epsilon, stack().epsilon),
                     flag(row_.norm_before, before),
                     flag(row_.parallel, stack().parallel),
                     flag(row_.two_parallel_norms, two_norms)});
    if (!read) return read;
    stack().place = before ? row_.place : NormPlace::kAfterAdd;
    stack().shared_norm = !two_norms;
    model_.final_norm = before;
    stack().mlp.gated = row_.gated;
    const Result<HfActivation> activation = config_.activation(keys_.activation, row_.activation);
    if (!activation) return fail(activation.error());
    stack().mlp.activation = *activation;
    return {};
  }

  Result<void> read_positions() {
    const std::int64_t context = seq_ + options_.past;
    bool alibi = false;
    if (auto read = flag(row_.alibi, alibi); !read) return read;
    const bool missing =
        !row_.alibi_without.name.empty() && !config_.root().find(row_.alibi_without.name);
    model_.alibi = row_.positions == Positions::kAlibi || alibi || missing;
    const bool learned = row_.positions == Positions::kLearned && !model_.alibi;
    std::int64_t most = 0;
    auto read = size_or(keys_.positions, learned ? row_.positions_value : context, most);
    if (!read) return read;
    const std::string name(keys_.positions.name);
    const std::string tokens = "the sequence of " + std::to_string(context) + " tokens is longer ";
    if (learned) {
      model_.positions = most + row_.position_offset;
      if (context <= most) return {};
      return config_.error(keys_.positions,
                           ErrorCode::kConflict,
                           tokens + "than the table of " + std::to_string(most) + " positions");
    }
    if (context > most) notes_.emplace_back(tokens + "than " + name + " " + std::to_string(most));
    return model_.alibi ? Result<void>{} : read_rotary();
  }

  Result<void> read_rotary() {
    AttentionModel& a = attention();
    a.interleaved = row_.interleaved;
    if (row_.latent) return {};  // its own dimensions turn
    double fraction = 1;
    if (auto read = number_or(row_.rotary_fraction, row_.rotary_fraction_value, fraction); !read)
      return read;
    if (!(fraction > 0 && fraction <= 1)) {
      return config_.error(
          row_.rotary_fraction, ErrorCode::kValue, "expected a number above 0 and at most 1");
    }
    const auto share = static_cast<std::int64_t>(fraction * static_cast<double>(a.head_dim) + 1e-9);
    const std::int64_t otherwise =
        row_.rotary_dim_value != 0 ? std::min(row_.rotary_dim_value, a.head_dim) : share;
    if (auto read = size_or(row_.rotary_dim, otherwise, a.rotary_dim); !read) return read;
    if (a.rotary_dim > a.head_dim) {
      return config_.error(row_.rotary_dim,
                           ErrorCode::kConflict,
                           std::to_string(a.rotary_dim) + " dimensions cannot turn in heads of " +
                               std::to_string(a.head_dim));
    }
    if (a.rotary_dim % 2 == 0 && a.rotary_dim > 0) return {};
    const bool given = config_.root().find(keys_.head_dim.name).has_value();
    if (a.rotary_dim == a.head_dim) {
      return config_.error(given ? keys_.head_dim : keys_.hidden,
                           ErrorCode::kValue,
                           "the size of a head is " + std::to_string(a.head_dim) +
                               ", but rotary positions turn pairs: it must be even");
    }
    return config_.error(row_.rotary_dim,
                         ErrorCode::kValue,
                         "rotary positions turn pairs: " + std::to_string(a.rotary_dim) +
                             " dimensions of a head cannot turn");
  }

  /// Whether each layer sees a window only: "layer_types" says it, or the family's habit.
  Result<std::vector<bool>> windowed_layers() {
    std::vector<bool> windowed(static_cast<std::size_t>(stack().layers));
    const auto types = config_.find("layer_types");
    if (!types) return fail(types.error());
    if (*types) {
      const Result<std::vector<JsonCursor>> list = (*types)->as_array();
      if (!list) return fail(list.error());
      if (list->empty()) return (*types)->error(ErrorCode::kValue, "the list is empty");
      for (std::size_t i = 0; i < windowed.size(); ++i) {
        const JsonCursor& cursor = (*list)[i % list->size()];
        const Result<std::string_view> kind = cursor.as_string();
        if (!kind) return fail(kind.error());
        windowed[i] = *kind == "sliding_attention";
        if (windowed[i] || *kind == "full_attention") continue;
        return cursor.error(
            ErrorCode::kUnsupported,
            "the layer type " + json_quote(kind->substr(0, 60)) +
                " is not supported; supported are full_attention, sliding_attention" +
                nearest_name_hint(*kind,
                                  std::vector<std::string>{"full_attention", "sliding_attention"}));
      }
      return windowed;
    }
    std::int64_t late = 0;
    std::int64_t pattern = 6;
    if (row_.windows == Windows::kLateLayers) {
      bool used = false;
      if (auto read = flag({"use_sliding_window", false}, used); !read) return fail(read.error());
      const auto from = config_.find("max_window_layers");
      if (!from) return fail(from.error());
      const Result<std::int64_t> number =
          *from ? (*from)->as_int64(0, kMostHfSize) : std::int64_t{28};
      if (!number) return fail(number.error());
      late = used ? *number : kMostHfSize;
    }
    if (row_.windows == Windows::kPattern) {
      auto read = size_or({"sliding_window_pattern", "_sliding_window_pattern"}, 6, pattern);
      if (!read) return fail(read.error());
    }
    for (std::size_t i = 0; i < windowed.size(); ++i) {
      const auto number = static_cast<std::int64_t>(i);
      switch (row_.windows) {
        case Windows::kNone:
          break;
        case Windows::kAll:
          windowed[i] = true;
          break;
        case Windows::kLateLayers:
          windowed[i] = number >= late;
          break;
        case Windows::kAlternate:
          windowed[i] = number % 2 == 0;
          break;
        case Windows::kPattern:
          windowed[i] = (number + 1) % pattern != 0;
          break;
      }
    }
    return windowed;
  }

  Result<void> read_windows() {
    if (row_.windows == Windows::kNone) return {};
    const Result<std::vector<bool>> windowed = windowed_layers();
    if (!windowed) return fail(windowed.error());
    if (row_.windows == Windows::kPattern) stack().local_rotary = *windowed;
    const auto setting = config_.root().find("sliding_window");
    std::int64_t window = setting && setting->kind() == JsonKind::kNull ? 0 : row_.window;
    if (auto read = size_or("sliding_window", window, window); !read) return read;
    if (window == 0 || window >= seq_ + options_.past) return {};  // every token sees all others
    for (const bool layer : *windowed) stack().window.push_back(layer ? window : 0);
    return {};
  }

  Result<void> read_latent() {
    if (!row_.latent) return {};
    LatentAttention latent;
    AttentionModel& a = attention();
    const auto rank = config_.optional_size("q_lora_rank");
    if (!rank) return fail(rank.error());
    latent.q_rank = *rank;
    auto read = all({size("kv_lora_rank", latent.kv_rank),
                     size("qk_nope_head_dim", latent.nope_dim),
                     size("qk_rope_head_dim", latent.rope_dim),
                     size("v_head_dim", a.value_dim)});
    if (!read) return read;
    if (latent.rope_dim % 2 != 0) {
      return config_.error(
          "qk_rope_head_dim", ErrorCode::kValue, "rotary positions turn pairs: it must be even");
    }
    a.head_dim = latent.nope_dim + latent.rope_dim;
    a.kv_heads = a.heads;
    a.rotary_dim = latent.rope_dim;
    a.latent = latent;
    return {};
  }

  Result<void> read_qwen_experts(MoeModel& moe) {
    std::int64_t step = 1;
    auto read = all({size("num_experts", moe.experts),
                     size("moe_intermediate_size", moe.width),
                     size("num_experts_per_tok", moe.top_k),
                     size_or("decoder_sparse_step", 1, step),
                     flag({"norm_topk_prob", false}, moe.normalise)});
    if (!read) return read;
    if (row_.experts == Experts::kQwenShared) {
      moe.shared_gate = true;
      read = size("shared_expert_intermediate_size", moe.shared_width);
      if (!read) return read;
    }
    for (std::int64_t i = 0; i < stack().layers; ++i) stack().sparse.push_back((i + 1) % step == 0);
    const auto dense = config_.find("mlp_only_layers");
    if (!dense) return fail(dense.error());
    if (!*dense) return {};
    const Result<std::vector<std::int64_t>> layers = (*dense)->as_int64s();
    if (!layers) return fail(layers.error());
    for (const std::int64_t i : *layers) {
      if (i >= 0 && i < stack().layers) stack().sparse[static_cast<std::size_t>(i)] = false;
    }
    return {};
  }

  Result<void> read_deepseek_experts(MoeModel& moe) {
    const bool third = row_.model_type == "deepseek_v3";
    const Result<std::string> scoring =
        config_.text_or("scoring_func", third ? "sigmoid" : "softmax");
    if (!scoring) return fail(scoring.error());
    if (*scoring != "softmax" && *scoring != "sigmoid") {
      return config_.error(
          "scoring_func",
          ErrorCode::kUnsupported,
          "the scoring function " + json_quote(scoring->substr(0, 60)) +
              " is not supported; supported are sigmoid, softmax" +
              nearest_name_hint(*scoring, std::vector<std::string>{"sigmoid", "softmax"}));
    }
    moe.router = *scoring == "sigmoid" ? Router::kSigmoid : Router::kSoftmax;
    const Result<std::string> method =
        config_.text_or("topk_method", third ? "noaux_tc" : "greedy");
    if (!method) return fail(method.error());
    std::int64_t shared = 0;
    std::int64_t every = 1;
    std::int64_t dense = 0;
    const auto first = config_.find("first_k_dense_replace");
    if (!first) return fail(first.error());
    if (*first) {
      const Result<std::int64_t> given = (*first)->as_int64(0, kMostHfSize);
      if (!given) return fail(given.error());
      dense = *given;
    }
    auto read = all({size("n_routed_experts", moe.experts),
                     size("moe_intermediate_size", moe.width),
                     size("num_experts_per_tok", moe.top_k),
                     size_or("moe_layer_freq", 1, every),
                     flag({"norm_topk_prob", third}, moe.normalise),
                     number_or("routed_scaling_factor", 1, moe.scale)});
    if (!read) return read;
    const auto given = config_.optional_size("n_shared_experts");
    if (!given) return fail(given.error());
    shared = given->value_or(0);
    moe.shared_width = shared * moe.width;
    if (*method != "greedy") {
      read = all({size_or("n_group", 1, moe.groups), size_or("topk_group", 1, moe.top_groups)});
      if (!read) return read;
    }
    if (moe.experts % moe.groups != 0) {
      return config_.error("n_group",
                           ErrorCode::kConflict,
                           "n_routed_experts " + std::to_string(moe.experts) +
                               " is not a multiple of n_group " + std::to_string(moe.groups));
    }
    for (std::int64_t i = 0; i < stack().layers; ++i)
      stack().sparse.push_back(i >= dense && i % every == 0);
    return {};
  }

  Result<void> read_experts() {
    if (row_.experts == Experts::kNone) return {};
    MoeModel moe;
    HfKey count = "num_experts";
    Result<void> read;
    switch (row_.experts) {
      case Experts::kNone:
        break;
      case Experts::kMixtral:
      case Experts::kGptOss:
        count = "num_local_experts";
        moe.normalise = true;
        moe.bias = moe.clamped = row_.experts == Experts::kGptOss;
        if (moe.clamped) {
          moe.router = Router::kBestSoftmax;
          stack().mlp.activation = {"Swish", false, 1.702};
        }
        moe.width = stack().mlp.width;
        stack().sparse.assign(static_cast<std::size_t>(stack().layers), true);
        read = all({size("num_local_experts", moe.experts),
                    size({"num_experts_per_tok", "experts_per_token"}, moe.top_k)});
        break;
      case Experts::kQwen:
      case Experts::kQwenShared:
        read = read_qwen_experts(moe);
        break;
      case Experts::kDeepSeek:
        count = "n_routed_experts";
        read = read_deepseek_experts(moe);
        break;
    }
    if (!read) return read;
    const std::int64_t reachable = moe.experts / moe.groups * std::min(moe.top_groups, moe.groups);
    if (moe.top_k > moe.experts || (moe.groups > 1 && moe.top_k > reachable)) {
      return config_.error("num_experts_per_tok",
                           ErrorCode::kConflict,
                           std::to_string(moe.top_k) + " experts per token are more than " +
                               std::string(count.name) + " " + std::to_string(moe.experts) +
                               " allows");
    }
    stack().moe = moe;
    return {};
  }

  Result<void> read_ends() {
    if (auto read = flag(row_.tied, model_.tied); !read) return read;
    if (row_.softcaps) {
      auto read = number_or("final_logit_softcapping", 0, model_.final_softcap);
      if (!read) return read;
    }
    double scale = 1;
    if (auto read = number_or(row_.logit_scale, 1, scale); !read) return read;
    model_.scaled_scores = scale != 1;
    return {};
  }

  const HfDecoder& row_;
  const HfKeys& keys_;
  const HfConfig& config_;
  const HfOptions& options_;
  std::int64_t seq_;
  std::vector<std::string>& notes_;
  Decoder model_;
};

/// From token ids to scores.
std::string emit(TransformerBuilder& b, const HfDecoder& row, Decoder& model) {
  DocumentBuilder& out = b.out();
  const ModelNames& names = row.model;
  Stack& stack = model.stack;
  const std::string ids = out.tensor("input_ids", Role::kInput, {"batch", "seq"}, DType::kInt64);
  const std::string embedding(names.embedding);
  const std::string scope = parent_scope(embedding);
  std::string x = b.embedding(embedding, ids, model.vocab, model.embedding_width);
  if (row.scaled_embeddings) x = b.scaled(embedding + ".scaled", scope, x);
  const bool projected = model.embedding_width != stack.hidden;
  if (projected) {
    x = b.linear(joined(scope, "project_in"), scope, x, model.embedding_width, stack.hidden, false);
  }
  if (model.positions > 0) {
    const std::string table(names.position_embedding);
    const std::string places = out.tensor("position_ids", Role::kConstant, {"seq"}, DType::kInt64);
    const std::string y = b.embedding(table, places, model.positions, stack.hidden);
    x = b.binary("Add", joined(scope, "embeddings"), scope, x, y);
  }
  if (!names.embedding_norm.empty()) {
    x = b.norm(
        stack.norm, stack.epsilon, std::string(names.embedding_norm), scope, x, stack.hidden);
  }
  if (model.alibi) {
    const Size context = b.options().past > 0 ? "context" : "seq";
    stack.attention.mask =
        b.constant(joined(scope, "alibi"), {stack.attention.heads, std::int64_t{1}, context});
  }
  StackInput input;
  input.x = x;
  x = b.layers(stack, input);
  const std::string norm(names.norm);
  if (model.final_norm)
    x = b.norm(stack.norm, stack.epsilon, norm, parent_scope(norm), x, stack.hidden);
  if (projected) {
    x = b.linear(
        joined(scope, "project_out"), scope, x, stack.hidden, model.embedding_width, false);
  }
  const std::string head(names.head);
  std::string scores =
      model.tied
          ? b.tied_scores(head, x, embedding + ".weight")
          : b.linear(
                head, parent_scope(head), x, model.embedding_width, model.vocab, row.head_bias);
  if (model.scaled_scores) scores = b.scaled(head + ".scaled", parent_scope(head), scores);
  if (model.final_softcap > 0)
    scores = b.softcapped(head + ".softcapped", parent_scope(head), scores);
  return scores;
}

}  // namespace

Result<HfImport> build_decoder(const HfDecoder& decoder,
                               const HfConfig& config,
                               const HfOptions& options) {
  const Result<std::int64_t> seq = required_sequence(options, std::string(decoder.model_type));
  if (!seq) return fail(seq.error());
  std::vector<std::string> notes;
  Result<Decoder> model = DecoderReader(decoder, config, options, notes).read();
  if (!model) return fail(model.error());
  const Result<DType> dtype = config.dtype(notes);
  if (!dtype) return fail(dtype.error());
  TransformerBuilder builder(config, options, *dtype);
  builder.out().dimension("seq", *seq);
  if (options.past > 0) {
    builder.out().dimension("past", options.past);
    builder.out().dimension("context", options.past + *seq);
  }
  const std::string scores = emit(builder, decoder, *model);
  const std::string result = builder.with_loss(scores, {"batch", "seq"});
  return std::move(builder).finish({result}, std::move(notes));
}

}  // namespace meshplan

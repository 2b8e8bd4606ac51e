// SPDX-License-Identifier: Apache-2.0
// Encoder and decoder with attention between them: T5 over texts, Whisper over speech.
#include "graph/importers/hf_family.h"
#include "graph/importers/hf_transformer.h"

namespace meshplan {
namespace {

constexpr LayerNames kT5EncoderLayer{.attention = "layer.0.SelfAttention",
                                     .q = "layer.0.SelfAttention.q",
                                     .k = "layer.0.SelfAttention.k",
                                     .v = "layer.0.SelfAttention.v",
                                     .out = "layer.0.SelfAttention.o",
                                     .mlp = "layer.1.DenseReluDense",
                                     .gate = "layer.1.DenseReluDense.wi_0",
                                     .up = "layer.1.DenseReluDense.wi",
                                     .down = "layer.1.DenseReluDense.wo",
                                     .attention_norm = "layer.0.layer_norm",
                                     .mlp_norm = "layer.1.layer_norm"};
constexpr LayerNames kT5DecoderLayer{.attention = "layer.0.SelfAttention",
                                     .q = "layer.0.SelfAttention.q",
                                     .k = "layer.0.SelfAttention.k",
                                     .v = "layer.0.SelfAttention.v",
                                     .out = "layer.0.SelfAttention.o",
                                     .mlp = "layer.2.DenseReluDense",
                                     .gate = "layer.2.DenseReluDense.wi_0",
                                     .up = "layer.2.DenseReluDense.wi",
                                     .down = "layer.2.DenseReluDense.wo",
                                     .attention_norm = "layer.0.layer_norm",
                                     .mlp_norm = "layer.2.layer_norm",
                                     .cross = "layer.1.EncDecAttention",
                                     .cross_norm = "layer.1.layer_norm"};
constexpr LayerNames kWhisperLayer{.out = "self_attn.out_proj",
                                   .mlp = "",
                                   .up = "fc1",
                                   .down = "fc2",
                                   .attention_norm = "self_attn_layer_norm",
                                   .mlp_norm = "final_layer_norm"};

struct T5 {
  Stack encoder;
  Stack decoder;
  std::int64_t vocab = 0;
  std::int64_t buckets = 0;
  bool tied = true;
};

Result<T5> read_t5(const HfConfig& config, const HfOptions& options) {
  T5 model;
  Stack& stack = model.encoder;
  AttentionModel& a = stack.attention;
  struct Setting {
    std::int64_t* into;
    HfKey key;
    std::optional<std::int64_t> otherwise;
  };
  for (const Setting& setting : {Setting{&stack.hidden, "d_model", {}},
                                 Setting{&stack.mlp.width, "d_ff", {}},
                                 Setting{&a.heads, {"num_heads", "num_attention_heads"}, {}},
                                 Setting{&a.head_dim, "d_kv", 64},
                                 Setting{&model.vocab, "vocab_size", {}},
                                 Setting{&model.buckets, "relative_attention_num_buckets", 32}}) {
    const Result<std::int64_t> value = setting.otherwise
                                           ? config.size_or(setting.key, *setting.otherwise)
                                           : config.size(setting.key);
    if (!value) return fail(value.error());
    *setting.into = *value;
  }
  const Result<std::int64_t> layers = config.layers({"num_layers", "num_hidden_layers"}, options);
  if (!layers) return fail(layers.error());
  stack.layers = *layers;
  const Result<double> epsilon = config.number_or("layer_norm_epsilon", 1e-6);
  if (!epsilon) return fail(epsilon.error());
  stack.epsilon = *epsilon;
  const Result<bool> tied = config.flag({"tie_word_embeddings", true});
  if (!tied) return fail(tied.error());
  model.tied = *tied;
  const Result<std::string> feed = config.text_or("feed_forward_proj", "relu");
  if (!feed) return fail(feed.error());
  stack.mlp.gated = *feed == "gated-gelu" || *feed == "gated-silu" || *feed == "gated-relu";
  if (!stack.mlp.gated && *feed != "relu" && *feed != "gelu") {
    return config.error("feed_forward_proj",
                        ErrorCode::kUnsupported,
                        json_quote(feed->substr(0, 60)) +
                            " is not supported; supported are relu, gelu, gated-gelu, gated-relu, "
                            "gated-silu");
  }
  const std::string_view name =
      stack.mlp.gated ? std::string_view(*feed).substr(6) : std::string_view(*feed);
  const Result<HfActivation> activation =
      config.activation({}, stack.mlp.gated && name == "gelu" ? "gelu_new" : name);
  if (!activation) return fail(activation.error());
  stack.mlp.activation = *activation;
  a.kv_heads = a.heads;
  a.value_dim = a.head_dim;
  a.scale = 1.0;
  a.causal = false;
  stack.scope = "encoder.block";
  stack.names = kT5EncoderLayer;
  model.decoder = stack;
  const Result<std::int64_t> decoder_layers =
      config.find("num_decoder_layers") && *config.find("num_decoder_layers")
          ? config.layers("num_decoder_layers", options)
          : layers;
  if (!decoder_layers) return fail(decoder_layers.error());
  model.decoder.layers = *decoder_layers;
  model.decoder.scope = "decoder.block";
  model.decoder.names = kT5DecoderLayer;
  model.decoder.attention.causal = true;
  if (stack.mlp.gated) {
    model.encoder.names.up = "layer.1.DenseReluDense.wi_1";
    model.decoder.names.up = "layer.2.DenseReluDense.wi_1";
  }
  return model;
}

/// Learned scores by distance [heads, seq, seq]: each distance falls into a bucket, and all layers
/// of a stack share the table of the buckets.
std::string distance_scores(TransformerBuilder& b,
                            const Stack& stack,
                            const std::string& seq,
                            std::int64_t buckets) {
  const std::string scope = stack.scope + ".0." + std::string(stack.names.attention);
  const std::string places = b.out().tensor(
      scope + ".relative_position_buckets", Role::kConstant, {seq, seq}, DType::kInt64);
  const std::string scores =
      b.embedding(scope + ".relative_attention_bias", places, buckets, stack.attention.heads);
  return b.out().add(
      "Transpose",
      scope + ".position_bias",
      scope,
      {scores},
      {{"perm", std::vector<Size>{std::int64_t{2}, std::int64_t{0}, std::int64_t{1}}}});
}

struct Whisper {
  Stack encoder;
  Stack decoder;
  std::int64_t vocab = 0;
  std::int64_t mel_bins = 0;
  std::int64_t source_positions = 0;
  std::int64_t target_positions = 0;
  bool scaled = false;
  bool tied = true;
};

Result<Stack> read_whisper_stack(const HfConfig& config,
                                 const HfOptions& options,
                                 const std::string& side) {
  Stack stack;
  const std::string layers_key = side + "_layers";
  const std::string heads_key = side + "_attention_heads";
  const std::string width_key = side + "_ffn_dim";
  const Result<std::int64_t> hidden = config.size("d_model");
  if (!hidden) return fail(hidden.error());
  const Result<std::int64_t> layers = config.layers(layers_key.c_str(), options);
  if (!layers) return fail(layers.error());
  const Result<std::int64_t> heads = config.size(heads_key.c_str());
  if (!heads) return fail(heads.error());
  const Result<std::int64_t> width = config.size(width_key.c_str());
  if (!width) return fail(width.error());
  const Result<HfActivation> activation = config.activation("activation_function", "gelu");
  if (!activation) return fail(activation.error());
  if (*hidden % *heads != 0) {
    return config.error("d_model",
                        ErrorCode::kConflict,
                        std::to_string(*hidden) + " does not divide into " + heads_key + " " +
                            std::to_string(*heads));
  }
  stack.layers = *layers;
  stack.hidden = *hidden;
  stack.norm = NormKind::kLayer;
  stack.epsilon = 1e-5;
  AttentionModel& a = stack.attention;
  a.heads = a.kv_heads = *heads;
  a.head_dim = a.value_dim = *hidden / *heads;
  a.q_bias = a.v_bias = a.out_bias = true;
  a.causal = side == "decoder";
  stack.mlp = {*width, false, true, *activation};
  stack.scope = "model." + side + ".layers";
  stack.names = kWhisperLayer;
  if (side == "decoder") {
    stack.names.cross = "encoder_attn";
    stack.names.cross_norm = "encoder_attn_layer_norm";
  }
  return stack;
}

Result<Whisper> read_whisper(const HfConfig& config, const HfOptions& options) {
  Whisper model;
  const Result<Stack> encoder = read_whisper_stack(config, options, "encoder");
  if (!encoder) return fail(encoder.error());
  const Result<Stack> decoder = read_whisper_stack(config, options, "decoder");
  if (!decoder) return fail(decoder.error());
  model.encoder = *encoder;
  model.decoder = *decoder;
  const Result<std::int64_t> vocab = config.size("vocab_size");
  if (!vocab) return fail(vocab.error());
  model.vocab = *vocab;
  struct Setting {
    std::int64_t* into;
    HfKey key;
    std::int64_t otherwise;
  };
  for (const Setting& setting : {Setting{&model.mel_bins, "num_mel_bins", 80},
                                 Setting{&model.source_positions, "max_source_positions", 1500},
                                 Setting{&model.target_positions, "max_target_positions", 448}}) {
    const Result<std::int64_t> value = config.size_or(setting.key, setting.otherwise);
    if (!value) return fail(value.error());
    *setting.into = *value;
  }
  const Result<bool> scaled = config.flag({"scale_embedding", false});
  if (!scaled) return fail(scaled.error());
  model.scaled = *scaled;
  const Result<bool> tied = config.flag({"tie_word_embeddings", true});
  if (!tied) return fail(tied.error());
  model.tied = *tied;
  return model;
}

/// Sound [batch, mel bins, 2 * frames] -> [batch, frames, hidden] by two convolutions, the second
/// of stride 2, and a fixed table of positions.
std::string hear(TransformerBuilder& b, const Whisper& model) {
  const std::string scope = "model.encoder";
  const Stack& stack = model.encoder;
  std::string x = b.out().tensor(
      "input_features", Role::kInput, {"batch", model.mel_bins, "2*frames"}, b.dtype());
  std::int64_t in = model.mel_bins;
  for (const std::int64_t stride : {std::int64_t{1}, std::int64_t{2}}) {
    const std::string name = scope + ".conv" + std::to_string(stride);
    x = b.out().add("Conv",
                    name,
                    scope,
                    {x,
                     b.parameter(name + ".weight", {stack.hidden, in, std::int64_t{3}}),
                     b.parameter(name + ".bias", {stack.hidden})},
                    {{"kernel_shape", std::vector<Size>{std::int64_t{3}}},
                     {"strides", std::vector<Size>{stride}},
                     {"pads", std::vector<Size>{std::int64_t{1}, std::int64_t{1}}}});
    x = b.activate({"Gelu"}, name + ".act_fn", scope, x);
    in = stack.hidden;
  }
  x = b.out().add("Transpose",
                  scope + ".frames",
                  scope,
                  {x},
                  {{"perm", std::vector<Size>{std::int64_t{0}, std::int64_t{2}, std::int64_t{1}}}});
  const std::string places =
      b.parameter(scope + ".embed_positions.weight", {"frames", stack.hidden}, false);
  return b.binary("Add", scope + ".with_positions", scope, x, places);
}

}  // namespace

Result<HfImport> build_t5(const HfConfig& config, const HfOptions& options) {
  const Result<std::int64_t> seq = required_sequence(options, "t5");
  if (!seq) return fail(seq.error());
  HfImport import;
  Result<T5> model = read_t5(config, options);
  if (!model) return fail(model.error());
  const Result<DType> dtype = config.dtype(import.notes);
  if (!dtype) return fail(dtype.error());

  TransformerBuilder b(config, options, *dtype);
  b.out().dimension("seq", *seq);
  b.out().dimension("target", *seq);
  const std::int64_t hidden = model->encoder.hidden;
  const std::string table = b.parameter("shared.weight", {model->vocab, hidden});
  const auto embed = [&](const std::string& side, const std::string& ids, const char* length) {
    const std::string given = b.out().tensor(ids, Role::kInput, {"batch", length}, DType::kInt64);
    return b.out().add(
        "Gather", side + ".embed_tokens", side, {table, given}, {{"axis", std::int64_t{0}}});
  };
  StackInput source;
  source.x = embed("encoder", "input_ids", "seq");
  model->encoder.attention.mask = distance_scores(b, model->encoder, "seq", model->buckets);
  std::string encoded = b.layers(model->encoder, source);
  encoded = b.norm(NormKind::kRms,
                   model->encoder.epsilon,
                   "encoder.final_layer_norm",
                   "encoder",
                   encoded,
                   hidden);
  StackInput target;
  target.x = embed("decoder", "decoder_input_ids", "target");
  target.seq = "target";
  target.encoded = encoded;
  model->decoder.attention.mask = distance_scores(b, model->decoder, "target", model->buckets);
  std::string x = b.layers(model->decoder, target);
  x = b.norm(
      NormKind::kRms, model->decoder.epsilon, "decoder.final_layer_norm", "decoder", x, hidden);
  const std::string scores =
      model->tied ? b.tied_scores("lm_head", b.scaled("decoder.scaled", "decoder", x), table)
                  : b.linear("lm_head", "", x, hidden, model->vocab, false);
  const std::string result = b.with_loss(scores, {"batch", "target"});
  return std::move(b).finish({result}, std::move(import.notes));
}

Result<HfImport> build_whisper(const HfConfig& config, const HfOptions& options) {
  const Result<std::int64_t> seq = required_sequence(options, "whisper");
  if (!seq) return fail(seq.error());
  HfImport import;
  Result<Whisper> model = read_whisper(config, options);
  if (!model) return fail(model.error());
  if (*seq > model->target_positions) {
    return config.error("max_target_positions",
                        ErrorCode::kConflict,
                        "the sequence of " + std::to_string(*seq) +
                            " tokens is longer than the table of " +
                            std::to_string(model->target_positions) + " positions");
  }
  const Result<DType> dtype = config.dtype(import.notes);
  if (!dtype) return fail(dtype.error());

  TransformerBuilder b(config, options, *dtype);
  b.out().dimension("seq", *seq);
  b.out().dimension("frames", model->source_positions);
  const std::int64_t hidden = model->encoder.hidden;
  const auto end = [&](const Stack& stack, const std::string& side, const std::string& x) {
    return b.norm(stack.norm, stack.epsilon, side + ".layer_norm", side, x, hidden);
  };
  StackInput source;
  source.x = hear(b, *model);
  source.seq = "frames";
  StackInput target;
  target.encoded = end(model->encoder, "model.encoder", b.layers(model->encoder, source));
  target.encoded_seq = "frames";

  const std::string side = "model.decoder";
  const std::string ids =
      b.out().tensor("decoder_input_ids", Role::kInput, {"batch", "seq"}, DType::kInt64);
  const std::string places =
      b.out().tensor("position_ids", Role::kConstant, {"seq"}, DType::kInt64);
  std::string x = b.embedding(side + ".embed_tokens", ids, model->vocab, hidden);
  if (model->scaled) x = b.scaled(side + ".embed_tokens.scaled", side, x);
  target.x =
      b.binary("Add",
               side + ".with_positions",
               side,
               x,
               b.embedding(side + ".embed_positions", places, model->target_positions, hidden));
  x = end(model->decoder, side, b.layers(model->decoder, target));
  const std::string scores = model->tied
                                 ? b.tied_scores("proj_out", x, side + ".embed_tokens.weight")
                                 : b.linear("proj_out", "", x, hidden, model->vocab, false);
  const std::string result = b.with_loss(scores, {"batch", "seq"});
  return std::move(b).finish({result}, std::move(import.notes));
}

}  // namespace meshplan

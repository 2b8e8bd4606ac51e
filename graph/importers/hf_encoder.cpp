// SPDX-License-Identifier: Apache-2.0
// Encoders: BERT over tokens, ViT over the patches of an image.
#include "graph/importers/hf_family.h"
#include "graph/importers/hf_transformer.h"
#include "lib/nearest_name.h"

namespace meshplan {
namespace {

constexpr LayerNames kBertLayer{.attention = "attention.self",
                                .q = "attention.self.query",
                                .k = "attention.self.key",
                                .v = "attention.self.value",
                                .out = "attention.output.dense",
                                .mlp = "",
                                .up = "intermediate.dense",
                                .down = "output.dense",
                                .attention_norm = "attention.output.LayerNorm",
                                .mlp_norm = "output.LayerNorm"};
constexpr LayerNames kVitLayer{.attention = "attention.attention",
                               .q = "attention.attention.query",
                               .k = "attention.attention.key",
                               .v = "attention.attention.value",
                               .out = "attention.output.dense",
                               .mlp = "",
                               .up = "intermediate.dense",
                               .down = "output.dense",
                               .attention_norm = "layernorm_before",
                               .mlp_norm = "layernorm_after"};

/// What both encoders read; every projection has a bias but q, k and v where `qkv_bias` is false.
Result<Stack> read_encoder(const HfConfig& config, const HfOptions& options, bool qkv_bias) {
  Stack stack;
  const Result<std::int64_t> hidden = config.size("hidden_size");
  if (!hidden) return fail(hidden.error());
  const Result<std::int64_t> layers = config.layers("num_hidden_layers", options);
  if (!layers) return fail(layers.error());
  const Result<std::int64_t> heads = config.size("num_attention_heads");
  if (!heads) return fail(heads.error());
  const Result<std::int64_t> width = config.size("intermediate_size");
  if (!width) return fail(width.error());
  const Result<double> epsilon = config.number_or("layer_norm_eps", 1e-12);
  if (!epsilon) return fail(epsilon.error());
  const Result<HfActivation> activation = config.activation("hidden_act", "gelu");
  if (!activation) return fail(activation.error());
  if (*hidden % *heads != 0) {
    return config.error("hidden_size",
                        ErrorCode::kConflict,
                        std::to_string(*hidden) + " does not divide into num_attention_heads " +
                            std::to_string(*heads));
  }
  stack.layers = *layers;
  stack.hidden = *hidden;
  stack.norm = NormKind::kLayer;
  stack.epsilon = *epsilon;
  AttentionModel& a = stack.attention;
  a.heads = a.kv_heads = *heads;
  a.head_dim = a.value_dim = *hidden / *heads;
  a.q_bias = a.k_bias = a.v_bias = qkv_bias;
  a.out_bias = true;
  a.causal = false;
  stack.mlp = {*width, false, true, *activation};
  return stack;
}

/// The first architecture of the config, or `otherwise`. Errors: kUnsupported for another than the
/// `known` ones.
Result<std::string> architecture(const HfConfig& config,
                                 const std::vector<std::string>& known,
                                 const std::string& otherwise,
                                 std::vector<std::string>& notes) {
  const auto list = config.find("architectures");
  if (!list) return fail(list.error());
  if (!*list || (*list)->size() == 0) {
    notes.emplace_back("the config names no architecture; " + otherwise + " is assumed");
    return otherwise;
  }
  const Result<std::vector<std::string>> given = (*list)->as_strings();
  if (!given) return fail(given.error());
  std::string all;
  for (const std::string& name : known) {
    if (name == given->front()) return name;
    all += (all.empty() ? "" : ", ") + name;
  }
  return (*list)->at(0).error(ErrorCode::kUnsupported,
                              "the architecture " + json_quote(given->front().substr(0, 60)) +
                                  " is not supported; supported are " + all +
                                  nearest_name_hint(given->front(), known));
}

/// How many classes a head tells apart: "num_labels", the size of "id2label", or 2.
Result<std::int64_t> label_count(const HfConfig& config) {
  const auto given = config.optional_size("num_labels");
  if (!given) return fail(given.error());
  if (*given) return **given;
  const auto names = config.root().find("id2label");
  const bool listed = names && names->kind() == JsonKind::kObject && names->size() > 0;
  return listed ? static_cast<std::int64_t>(names->size()) : std::int64_t{2};
}

/// The first token of x [batch, tokens, hidden] as [batch, hidden].
std::string first_token(TransformerBuilder& b,
                        const std::string& name,
                        const std::string& scope,
                        const std::string& x,
                        std::int64_t hidden) {
  const std::string first = b.out().add("Slice",
                                        name,
                                        scope,
                                        {x},
                                        {{"starts", std::vector<Size>{std::int64_t{0}}},
                                         {"ends", std::vector<Size>{std::int64_t{1}}},
                                         {"axes", std::vector<Size>{std::int64_t{1}}}});
  return b.reshape(name + ".flat", scope, first, {"batch", hidden});
}

}  // namespace

Result<HfImport> build_bert(const HfConfig& config, const HfOptions& options) {
  const Result<std::int64_t> seq = required_sequence(options, "bert");
  if (!seq) return fail(seq.error());
  HfImport import;
  Result<Stack> stack = read_encoder(config, options, true);
  if (!stack) return fail(stack.error());
  const Result<std::int64_t> vocab = config.size("vocab_size");
  if (!vocab) return fail(vocab.error());
  const Result<std::int64_t> positions = config.size_or("max_position_embeddings", 512);
  if (!positions) return fail(positions.error());
  const Result<std::int64_t> types = config.size_or("type_vocab_size", 2);
  if (!types) return fail(types.error());
  const Result<std::string> kind = config.text_or("position_embedding_type", "absolute");
  if (!kind) return fail(kind.error());
  if (*kind != "absolute") {
    return config.error("position_embedding_type",
                        ErrorCode::kUnsupported,
                        "only \"absolute\" positions are supported");
  }
  if (*seq > *positions) {
    return config.error("max_position_embeddings",
                        ErrorCode::kConflict,
                        "the sequence of " + std::to_string(*seq) +
                            " tokens is longer than the table of " + std::to_string(*positions) +
                            " positions");
  }
  const Result<std::string> head =
      architecture(config,
                   {"BertForMaskedLM", "BertForSequenceClassification", "BertModel"},
                   "BertForMaskedLM",
                   import.notes);
  if (!head) return fail(head.error());
  const Result<std::int64_t> labels = label_count(config);
  if (!labels) return fail(labels.error());
  const Result<DType> dtype = config.dtype(import.notes);
  if (!dtype) return fail(dtype.error());

  TransformerBuilder b(config, options, *dtype);
  b.out().dimension("seq", *seq);
  const std::string prefix = *head == "BertModel" ? "" : "bert";
  const std::string scope = joined(prefix, "embeddings");
  const std::int64_t hidden = stack->hidden;
  const std::string ids =
      b.out().tensor("input_ids", Role::kInput, {"batch", "seq"}, DType::kInt64);
  const std::string segments =
      b.out().tensor("token_type_ids", Role::kInput, {"batch", "seq"}, DType::kInt64);
  const std::string places =
      b.out().tensor("position_ids", Role::kConstant, {"seq"}, DType::kInt64);
  const std::string words = b.embedding(scope + ".word_embeddings", ids, *vocab, hidden);
  const std::string typed =
      b.binary("Add",
               scope + ".with_types",
               scope,
               words,
               b.embedding(scope + ".token_type_embeddings", segments, *types, hidden));
  const std::string placed =
      b.binary("Add",
               scope + ".with_positions",
               scope,
               typed,
               b.embedding(scope + ".position_embeddings", places, *positions, hidden));
  stack->scope = joined(prefix, "encoder.layer");
  stack->names = kBertLayer;
  stack->place = NormPlace::kAfterAdd;
  StackInput input;
  input.x = b.norm(stack->norm, stack->epsilon, scope + ".LayerNorm", scope, placed, hidden);
  const std::string encoded = b.layers(*stack, input);
  if (*head == "BertForMaskedLM") {
    const std::string cls = "cls.predictions";
    std::string x =
        b.linear(cls + ".transform.dense", cls + ".transform", encoded, hidden, hidden, true);
    x = b.activate(stack->mlp.activation, cls + ".transform.act_fn", cls + ".transform", x);
    x = b.norm(
        stack->norm, stack->epsilon, cls + ".transform.LayerNorm", cls + ".transform", x, hidden);
    x = b.tied_scores(cls + ".decoder", x, scope + ".word_embeddings.weight");
    x = b.binary("Add", cls + ".scores", cls, x, b.parameter(cls + ".bias", {*vocab}));
    const std::string result = b.with_loss(x, {"batch", "seq"});
    return std::move(b).finish({result}, std::move(import.notes));
  }
  const std::string pooler = joined(prefix, "pooler");
  std::string pooled = first_token(b, pooler + ".first_token", pooler, encoded, hidden);
  pooled = b.linear(pooler + ".dense", pooler, pooled, hidden, hidden, true);
  pooled = b.out().add("Tanh", pooler + ".activation", pooler, {pooled});
  if (*head == "BertModel") {
    if (options.training)
      import.notes.emplace_back("BertModel has no loss: gradients start at its outputs");
    return std::move(b).finish({encoded, pooled}, std::move(import.notes));
  }
  const std::string scores = b.linear("classifier", "", pooled, hidden, *labels, true);
  const std::string result = b.with_loss(scores, {"batch"});
  return std::move(b).finish({result}, std::move(import.notes));
}

Result<HfImport> build_vit(const HfConfig& config, const HfOptions& options) {
  HfImport import;
  const Result<bool> qkv_bias = config.flag({"qkv_bias", true});
  if (!qkv_bias) return fail(qkv_bias.error());
  Result<Stack> stack = read_encoder(config, options, *qkv_bias);
  if (!stack) return fail(stack.error());
  const Result<std::int64_t> image = config.size_or("image_size", 224);
  if (!image) return fail(image.error());
  const Result<std::int64_t> patch = config.size_or("patch_size", 16);
  if (!patch) return fail(patch.error());
  const Result<std::int64_t> channels = config.size_or("num_channels", 3);
  if (!channels) return fail(channels.error());
  constexpr std::int64_t kMostPixels = 1 << 15;
  if (*image > kMostPixels || *image % *patch != 0) {
    return config.error("image_size",
                        ErrorCode::kConflict,
                        std::to_string(*image) + " is no multiple of patch_size " +
                            std::to_string(*patch) + " up to " + std::to_string(kMostPixels));
  }
  const Result<std::string> head = architecture(
      config, {"ViTForImageClassification"}, "ViTForImageClassification", import.notes);
  if (!head) return fail(head.error());
  const Result<std::int64_t> labels = label_count(config);
  if (!labels) return fail(labels.error());
  const Result<DType> dtype = config.dtype(import.notes);
  if (!dtype) return fail(dtype.error());

  TransformerBuilder b(config, options, *dtype);
  const std::int64_t side = *image / *patch;
  const std::int64_t patches = side * side;
  if (options.seq) {
    import.notes.emplace_back("the sequence length is that of an image, " +
                              std::to_string(patches + 1) + " tokens; the given one is ignored");
  }
  b.out().dimension("tokens", patches + 1);
  const std::string scope = "vit.embeddings";
  const std::int64_t hidden = stack->hidden;
  const std::string pixels =
      b.out().tensor("pixel_values", Role::kInput, {"batch", *channels, *image, *image}, *dtype);
  const std::string projection = scope + ".patch_embeddings.projection";
  const std::vector<Size> window{*patch, *patch};
  const std::string planes =
      b.out().add("Conv",
                  projection,
                  scope,
                  {pixels,
                   b.parameter(projection + ".weight", {hidden, *channels, *patch, *patch}),
                   b.parameter(projection + ".bias", {hidden})},
                  {{"kernel_shape", window}, {"strides", window}});
  const std::string flat =
      b.reshape(scope + ".flat_patches", scope, planes, {"batch", hidden, patches});
  const std::string rows =
      b.out().add("Transpose",
                  scope + ".patches",
                  scope,
                  {flat},
                  {{"perm", std::vector<Size>{std::int64_t{0}, std::int64_t{2}, std::int64_t{1}}}});
  const std::string token =
      b.out().add("Expand",
                  scope + ".class_token",
                  scope,
                  {b.parameter(scope + ".cls_token", {std::int64_t{1}, std::int64_t{1}, hidden})},
                  {{"shape", std::vector<Size>{"batch", std::int64_t{1}, hidden}}});
  const std::string tokens =
      b.out().add("Concat", scope + ".tokens", scope, {token, rows}, {{"axis", std::int64_t{1}}});
  const std::string places =
      b.parameter(scope + ".position_embeddings", {std::int64_t{1}, "tokens", hidden});
  stack->scope = "vit.encoder.layer";
  stack->names = kVitLayer;
  StackInput input;
  input.x = b.binary("Add", scope + ".with_positions", scope, tokens, places);
  input.seq = "tokens";
  std::string x = b.layers(*stack, input);
  x = b.norm(stack->norm, stack->epsilon, "vit.layernorm", "vit", x, hidden);
  x = first_token(b, "vit.first_token", "vit", x, hidden);
  const std::string scores = b.linear("classifier", "", x, hidden, *labels, true);
  const std::string result = b.with_loss(scores, {"batch"});
  return std::move(b).finish({result}, std::move(import.notes));
}

}  // namespace meshplan

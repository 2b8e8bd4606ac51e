// SPDX-License-Identifier: Apache-2.0
// Llama 2 and 3: pre-norm decoder with RMS norms, rotary positions, grouped-query attention and a
// gated MLP. Weights stand as [in, out], the order in which MatMul reads them; a tied output
// projection reads the embedding table transposed.
#include "graph/importers/hf_family.h"

namespace meshplan {
namespace {

struct Llama {
  std::int64_t hidden = 0;
  std::int64_t intermediate = 0;
  std::int64_t layers = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t vocab = 0;
  double epsilon = 0;
  bool tied = false;
  bool attention_bias = false;
  bool mlp_bias = false;
  std::string activation;
  DType dtype = DType::kBf16;
};

Result<std::int64_t> read_head_dim(const HfConfig& config, const Llama& model) {
  const auto given = config.find({"head_dim"});
  if (!given) return fail(given.error());
  if (*given) return (*given)->as_int64(1, kMostHfSize);
  if (model.hidden % model.heads != 0) {
    return config.root()
        .find("hidden_size")
        ->error(ErrorCode::kConflict,
                std::to_string(model.hidden) + " does not divide into num_attention_heads " +
                    std::to_string(model.heads) + ", and there is no head_dim");
  }
  return model.hidden / model.heads;
}

Result<Llama> read_llama(const HfConfig& config,
                         const HfOptions& options,
                         std::vector<std::string>& notes) {
  Llama model;
  struct Setting {
    std::int64_t* into;
    std::string_view key;
  };
  for (const Setting& setting : {Setting{&model.hidden, "hidden_size"},
                                 Setting{&model.intermediate, "intermediate_size"},
                                 Setting{&model.heads, "num_attention_heads"},
                                 Setting{&model.vocab, "vocab_size"}}) {
    const Result<std::int64_t> size = config.size({setting.key});
    if (!size) return fail(size.error());
    *setting.into = *size;
  }
  const Result<std::int64_t> layers = config.layers({"num_hidden_layers"}, options);
  if (!layers) return fail(layers.error());
  model.layers = *layers;
  const Result<std::int64_t> kv_heads = config.size_or({"num_key_value_heads"}, model.heads);
  if (!kv_heads) return fail(kv_heads.error());
  model.kv_heads = *kv_heads;
  if (model.heads % model.kv_heads != 0) {
    return config.root()
        .find("num_key_value_heads")
        ->error(ErrorCode::kConflict,
                "num_attention_heads " + std::to_string(model.heads) +
                    " is not a multiple of num_key_value_heads " + std::to_string(model.kv_heads));
  }
  const Result<std::int64_t> head_dim = read_head_dim(config, model);
  if (!head_dim) return fail(head_dim.error());
  model.head_dim = *head_dim;
  if (model.head_dim % 2 != 0) {
    const auto given = config.root().find("head_dim");
    return (given ? *given : *config.root().find("hidden_size"))
        .error(ErrorCode::kValue,
               "the size of a head is " + std::to_string(model.head_dim) +
                   ", but rotary positions turn pairs: it must be even");
  }
  const Result<double> epsilon = config.number_or("rms_norm_eps", 1e-6);
  if (!epsilon) return fail(epsilon.error());
  model.epsilon = *epsilon;
  struct Flag {
    bool* into;
    std::string_view key;
  };
  for (const Flag& flag : {Flag{&model.tied, "tie_word_embeddings"},
                           Flag{&model.attention_bias, "attention_bias"},
                           Flag{&model.mlp_bias, "mlp_bias"}}) {
    const Result<bool> value = config.flag_or(flag.key, false);
    if (!value) return fail(value.error());
    *flag.into = *value;
  }
  const Result<std::string> activation = config.activation("hidden_act", "Silu");
  if (!activation) return fail(activation.error());
  model.activation = *activation;
  const Result<DType> dtype = config.dtype(notes);
  if (!dtype) return fail(dtype.error());
  model.dtype = *dtype;
  if (config.root().find("quantization_config")) {
    notes.emplace_back("quantization_config is ignored: weights are planned in " +
                       std::string(dtype_name(model.dtype)));
  }
  return model;
}

/// Emits the operators of the model in the order of the data.
class LlamaBuilder {
 public:
  LlamaBuilder(const Llama& model, DocumentBuilder& out) : model_(model), out_(out) {}

  /// From token ids to logits.
  std::string forward() {
    const std::string ids = out_.tensor("input_ids", Role::kInput, {"batch", "seq"}, DType::kInt64);
    table_ = out_.tensor(
        "model.embed_tokens.weight", Role::kParameter, {model_.vocab, model_.hidden}, model_.dtype);
    for (const char* name : {"cos", "sin"}) {
      out_.tensor(std::string("model.rotary_emb.") + name,
                  Role::kConstant,
                  {"seq", model_.head_dim / 2},
                  model_.dtype);
    }
    std::string x = out_.add(
        "Gather", "model.embed_tokens", "model", {table_, ids}, {{"axis", std::int64_t{0}}});
    for (std::int64_t i = 0; i < model_.layers; ++i) {
      x = layer("model.layers." + std::to_string(i), x);
    }
    x = norm("model.norm", "model", x);
    if (model_.tied) {
      return out_.add("MatMul", "lm_head", "", {x, table_}, {{"transpose_b", std::int64_t{1}}});
    }
    return linear("lm_head", "", x, model_.hidden, model_.vocab, false);
  }

 private:
  std::string norm(const std::string& name, const std::string& scope, const std::string& x) {
    const std::string weight =
        out_.tensor(name + ".weight", Role::kParameter, {model_.hidden}, model_.dtype);
    return out_.add("RMSNormalization",
                    name,
                    scope,
                    {x, weight},
                    {{"axis", std::int64_t{-1}}, {"epsilon", model_.epsilon}});
  }

  std::string linear(const std::string& name,
                     const std::string& scope,
                     const std::string& x,
                     std::int64_t in,
                     std::int64_t out,
                     bool bias) {
    const std::string weight =
        out_.tensor(name + ".weight", Role::kParameter, {in, out}, model_.dtype);
    const std::string product = out_.add("MatMul", name, scope, {x, weight});
    if (!bias) return product;
    const std::string offset = out_.tensor(name + ".bias", Role::kParameter, {out}, model_.dtype);
    return out_.add("Add", name + ".add_bias", scope, {product, offset});
  }

  /// One of q, k and v: projected, [batch, seq, heads * head_dim] -> [batch, heads, seq, head_dim].
  std::string heads_of(const std::string& scope,
                       const std::string& which,
                       const std::string& x,
                       std::int64_t heads) {
    const std::string prefix = scope + "." + which;
    const std::string projected = linear(
        prefix + "_proj", scope, x, model_.hidden, heads * model_.head_dim, model_.attention_bias);
    const std::string split =
        out_.add("Reshape",
                 prefix + "_split",
                 scope,
                 {projected},
                 {{"shape", std::vector<Size>{"batch", "seq", heads, model_.head_dim}}});
    return out_.add("Transpose", prefix + "_heads", scope, {split}, {{"perm", swap_heads()}});
  }

  std::string rotary(const std::string& scope, const std::string& which, const std::string& x) {
    return out_.add("RotaryEmbedding",
                    scope + "." + which + "_rotary",
                    scope,
                    {x, "model.rotary_emb.cos", "model.rotary_emb.sin"});
  }

  std::string attention(const std::string& scope, const std::string& x) {
    const std::string q = rotary(scope, "q", heads_of(scope, "q", x, model_.heads));
    const std::string k = rotary(scope, "k", heads_of(scope, "k", x, model_.kv_heads));
    const std::string v = heads_of(scope, "v", x, model_.kv_heads);
    const std::string mixed = out_.add(
        "Attention", scope + ".attention", scope, {q, k, v}, {{"is_causal", std::int64_t{1}}});
    const std::string back =
        out_.add("Transpose", scope + ".merge_heads", scope, {mixed}, {{"perm", swap_heads()}});
    const std::int64_t width = model_.heads * model_.head_dim;
    const std::string merged = out_.add("Reshape",
                                        scope + ".merge",
                                        scope,
                                        {back},
                                        {{"shape", std::vector<Size>{"batch", "seq", width}}});
    return linear(scope + ".o_proj", scope, merged, width, model_.hidden, model_.attention_bias);
  }

  std::string mlp(const std::string& scope, const std::string& x) {
    const auto project = [&](const char* name, const std::string& from, bool up) {
      return linear(scope + "." + name,
                    scope,
                    from,
                    up ? model_.hidden : model_.intermediate,
                    up ? model_.intermediate : model_.hidden,
                    model_.mlp_bias);
    };
    const std::string gate = project("gate_proj", x, true);
    const std::string up = project("up_proj", x, true);
    const std::string active = out_.add(model_.activation, scope + ".act_fn", scope, {gate});
    const std::string gated = out_.add("Mul", scope + ".gated", scope, {active, up});
    return project("down_proj", gated, false);
  }

  std::string layer(const std::string& scope, const std::string& x) {
    const std::string attended =
        attention(scope + ".self_attn", norm(scope + ".input_layernorm", scope, x));
    const std::string middle = out_.add("Add", scope + ".attention_residual", scope, {x, attended});
    const std::string transformed =
        mlp(scope + ".mlp", norm(scope + ".post_attention_layernorm", scope, middle));
    return out_.add("Add", scope + ".mlp_residual", scope, {middle, transformed});
  }

  static std::vector<Size> swap_heads() {
    return {std::int64_t{0}, std::int64_t{2}, std::int64_t{1}, std::int64_t{3}};
  }

  const Llama& model_;
  DocumentBuilder& out_;
  std::string table_;
};

}  // namespace

Result<HfImport> build_llama(const HfConfig& config, const HfOptions& options) {
  HfImport import;
  const Result<Llama> model = read_llama(config, options, import.notes);
  if (!model) return fail(model.error());
  const Result<std::int64_t> positions = config.size_or({"max_position_embeddings"}, options.seq);
  if (!positions) return fail(positions.error());
  if (options.seq > *positions) {
    import.notes.emplace_back("the sequence of " + std::to_string(options.seq) +
                              " tokens is longer than max_position_embeddings " +
                              std::to_string(*positions));
  }
  DocumentBuilder out(config.name(), config.file());
  out.dimension("batch", options.batch);
  out.dimension("seq", options.seq);
  std::string result = LlamaBuilder(*model, out).forward();
  if (options.training) {
    const std::string labels = out.tensor("labels", Role::kInput, {"batch", "seq"}, DType::kInt64);
    // the scores stay in the model's type; their softmax and the loss are computed in fp32
    out.tensor("loss", Role::kLoss, {}, DType::kFp32);
    result = out.add("SoftmaxCrossEntropyLoss",
                     "loss",
                     "",
                     {result, labels},
                     {{"axis", std::int64_t{-1}}, {"reduction", std::string("mean")}});
  }
  import.document = std::move(out).finish({result});
  return import;
}

}  // namespace meshplan

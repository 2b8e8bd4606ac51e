// SPDX-License-Identifier: Apache-2.0
// What distinguishes the model types of the Hugging Face importer.
#include <map>
#include <string>
#include <vector>

#include "graph/importers/hf.h"
#include "support/catch.h"
#include "support/imported_models.h"

namespace meshplan::import_hf_models_test {
namespace {

using test::config_of;
using test::has_operator;
using test::imported;
using test::operands;
using test::operator_named;
using test::parameters_of;
using test::result_shape;
using test::shipped_config;
using test::shipped_models;
using test::tensor_named;

using Changes = std::map<std::string, std::string>;

Graph small_model(const std::string& name, const HfOptions& options) {
  return imported(shipped_config(name), options);
}

/// Two sequences of 16 tokens, so many layers.
HfOptions few_layers(std::int64_t layers, bool training = true) {
  return HfOptions{2, 16, training, layers};
}

std::int64_t whole_attribute(const Graph& graph, const std::string& op, const std::string& name) {
  const Attributes& attributes = operator_named(graph, op).attributes;
  const auto found = attributes.find(name);
  return found == attributes.end() ? 0 : std::get<std::int64_t>(found->second);
}

double number_attribute(const Graph& graph, const std::string& op, const std::string& name) {
  const Attributes& attributes = operator_named(graph, op).attributes;
  const auto found = attributes.find(name);
  return found == attributes.end() ? 0 : std::get<double>(found->second);
}

std::string error_of(const std::string& config, const HfOptions& options = {4, 8, true, {}}) {
  const Result<HfImport> import = import_hf(config, "config.json", options);
  INFO(config);
  REQUIRE_FALSE(import.has_value());
  return to_string(import.error());
}

TEST_CASE("Parameter counts of all shipped models are exact to the last weight") {
  const std::map<std::string, std::int64_t> counts = {
      {"baichuan2_7b", 7505973248},
      {"bert_arctic_embed_m", 109482240},
      {"bert_base_uncased", 109483778},
      {"bloom_176b", 176247271424},
      {"chatglm3_6b", 6243584000},
      {"cohere_aya_23_8b", 8028033024},
      {"deepseek_moe_16b", 16375728128},
      {"deepseek_v2_lite", 15706484224},
      {"deepseek_v3", 671026419200},
      {"falcon_7b", 6921720704},
      {"gemma2_9b", 9241705984},
      {"gemma3_1b", 999885952},
      {"gemma_2b", 2506172416},
      {"gpt2", 124439808},
      {"gpt2_medium", 354823168},
      {"gpt_bigcode_santacoder", 1124886528},
      {"gpt_j_6b", 6050882784},
      {"gpt_neox_20b", 20554567680},
      {"gpt_neox_redpajama_3b", 2775864320},
      {"gpt_oss_120b", 116829156672},
      {"gpt_oss_20b", 20914757184},
      {"llama2_70b", 68976648192},
      {"llama2_7b", 6738415616},
      {"llama3_1_405b", 405853388800},
      {"llama3_1_70b", 70553706496},
      {"llama3_1_8b", 8030261248},
      {"llama3_2_1b", 1235814400},
      {"mistral_7b", 7241732096},
      {"mixtral_8x7b", 46702792704},
      {"olmo2_7b", 7298617344},
      {"opt_1_3b", 1315758080},
      {"opt_30b", 29974540288},
      {"phi_2_msft", 2779683840},
      {"phi_3_5_mini", 3821079552},
      {"qwen1_5_moe_a2_7b", 14315784192},
      {"qwen2_0_5b", 494032768},
      {"qwen2_7b", 7615616512},
      {"qwen3_1_7b", 1720574976},
      {"qwen3_30b_a3b", 30532122624},
      {"smollm2_135m", 134515008},
      {"t5_base", 222903552},
      {"tinyllama_1_1b", 1100048384},
      {"vit_base_patch16_224", 86567656},
      {"whisper_base", 72593920},
  };
  for (const std::string& name : shipped_models()) {
    INFO(name);
    REQUIRE(counts.count(name) == 1);
    const bool image = name.rfind("vit", 0) == 0;
    for (const bool training : {true, false}) {
      HfOptions options{8, 128, training, {}};
      if (image) options.seq.reset();
      CHECK(parameters_of(small_model(name, options)) == counts.at(name));
    }
  }
  CHECK(counts.size() == shipped_models().size());
}

TEST_CASE("Every model type has a shipped config, and every config's model type is known") {
  std::map<std::string, int> seen;
  for (const std::string& name : shipped_models()) {
    const std::string text = shipped_config(name);
    const std::size_t at = text.find(':', text.find("\"model_type\"")) + 3;
    ++seen[text.substr(at, text.find('"', at) - at)];
  }
  for (const std::string& type : hf_model_types()) {
    INFO(type);
    // a model of text and images holds the text model's settings under "text_config"
    CHECK((seen.count(type) == 1 || type == "gemma3"));
  }
  CHECK(seen.size() + 1 == hf_model_types().size());
}

TEST_CASE("Every weight of a model in training has a gradient, unless it is fixed") {
  for (const std::string& name : shipped_models()) {
    INFO(name);
    HfOptions options = few_layers(name == "deepseek_v3" ? 4 : 2);
    if (name.rfind("vit", 0) == 0) options.seq.reset();
    const Graph graph = small_model(name, options);
    for (const Tensor& tensor : graph.tensors) {
      if (tensor.role != Role::kParameter) continue;
      INFO(tensor.name);
      const bool fixed = tensor.name == "model.encoder.embed_positions.weight" ||
                         tensor.name.find("e_score_correction_bias") != std::string::npos;
      CHECK(tensor.has_gradient == !fixed);
      CHECK_FALSE(tensor.uses.empty());
    }
  }
}

TEST_CASE("Norms stand before, after or around a block, or after its sum") {
  const auto reads = [](const Graph& graph, const std::string& op, const std::string& operand) {
    const std::vector<std::string> names = operands(graph, op);
    INFO(op);
    CHECK(std::find(names.begin(), names.end(), operand) != names.end());
  };
  const Graph before = small_model("mistral_7b", few_layers(1));
  reads(before, "model.layers.0.self_attn.q_proj", "model.layers.0.input_layernorm");
  reads(before, "model.layers.0.attention_residual", "model.layers.0.self_attn.o_proj");
  const Graph after = small_model("olmo2_7b", few_layers(1));
  reads(after, "model.layers.0.self_attn.q_proj", "model.embed_tokens");
  reads(after, "model.layers.0.attention_residual", "model.layers.0.post_attention_layernorm");
  reads(after, "model.layers.0.post_attention_layernorm", "model.layers.0.self_attn.o_proj");
  CHECK_FALSE(has_operator(after, "model.layers.0.input_layernorm"));
  const Graph around = small_model("gemma2_9b", few_layers(1));
  reads(around, "model.layers.0.self_attn.q_proj", "model.layers.0.input_layernorm");
  reads(around, "model.layers.0.attention_residual", "model.layers.0.post_attention_layernorm");
  reads(around, "model.layers.0.mlp.up_proj", "model.layers.0.pre_feedforward_layernorm");
  reads(around, "model.layers.0.mlp_residual", "model.layers.0.post_feedforward_layernorm");
  const Graph summed = small_model("bert_base_uncased", few_layers(2));
  reads(summed,
        "bert.encoder.layer.0.attention.output.LayerNorm",
        "bert.encoder.layer.0.attention_residual");
  reads(
      summed, "bert.encoder.layer.1.attention.self.query", "bert.encoder.layer.0.output.LayerNorm");
}

TEST_CASE("Attention and MLP of a parallel layer read one input") {
  // one norm for both
  for (const auto& [name, norm, up] :
       {std::tuple{"gpt_j_6b", "transformer.h.0.ln_1", "transformer.h.0.mlp.fc_in"},
        std::tuple{"phi_2_msft", "transformer.h.0.ln", "transformer.h.0.mlp.fc1"},
        std::tuple{
            "falcon_7b", "transformer.h.0.input_layernorm", "transformer.h.0.mlp.dense_h_to_4h"},
        std::tuple{
            "cohere_aya_23_8b", "model.layers.0.input_layernorm", "model.layers.0.mlp.up_proj"}}) {
    INFO(name);
    CHECK(operands(small_model(name, few_layers(1)), up)[0] == norm);
  }
  // a norm each, of the same input
  const Graph neox = small_model("gpt_neox_20b", few_layers(2));
  CHECK(operands(neox, "gpt_neox.layers.1.input_layernorm")[0] == "gpt_neox.layers.0.mlp_residual");
  CHECK(operands(neox, "gpt_neox.layers.1.post_attention_layernorm")[0] ==
        "gpt_neox.layers.0.mlp_residual");
  // and one after the other where the config says so
  const Graph redpajama = small_model("gpt_neox_redpajama_3b", few_layers(1));
  CHECK(operands(redpajama, "gpt_neox.layers.0.post_attention_layernorm")[0] ==
        "gpt_neox.layers.0.attention_residual");
}

TEST_CASE("Rotary positions turn all, a share or a number of a head's dimensions") {
  for (const auto& [name, op, turned, table] :
       {std::tuple{"gpt_neox_20b", "gpt_neox.layers.0.attention.q_rotary", 24, 12},
        std::tuple{"gpt_j_6b", "transformer.h.0.attn.q_rotary", 64, 32},
        std::tuple{"phi_2_msft", "transformer.h.0.mixer.k_rotary", 32, 16},
        std::tuple{"chatglm3_6b", "transformer.encoder.layers.0.self_attention.q_rotary", 64, 32},
        std::tuple{"mistral_7b", "model.layers.0.self_attn.q_rotary", 0, 64},
        std::tuple{"falcon_7b", "transformer.h.0.self_attention.k_rotary", 0, 32}}) {
    INFO(name);
    const Graph graph = small_model(name, few_layers(1));
    CHECK(whole_attribute(graph, op, "rotary_embedding_dim") == turned);
    CHECK(tensor_named(graph, operands(graph, op)[1]).shape == Shape{16, table});
  }
  CHECK(whole_attribute(small_model("gpt_j_6b", few_layers(1)),
                        "transformer.h.0.attn.q_rotary",
                        "interleaved") == 1);
}

TEST_CASE("Positions are learned, or biases of the scores") {
  const Graph gpt2 = small_model("gpt2", few_layers(1));
  CHECK(tensor_named(gpt2, "transformer.wpe.weight").shape == Shape{1024, 768});
  CHECK(tensor_named(small_model("opt_1_3b", few_layers(1)), "model.decoder.embed_positions.weight")
            .shape == Shape{2050, 2048});
  CHECK(error_of(shipped_config("gpt2"), HfOptions{1, 1025, true, {}}) ==
        "config.json: /n_positions: the sequence of 1025 tokens is longer than the table of 1024 "
        "positions");
  const Graph bloom = small_model("bloom_176b", few_layers(1));
  CHECK(operands(bloom, "transformer.h.0.self_attention.attention")[3] == "transformer.alibi");
  CHECK(tensor_named(bloom, "transformer.alibi").shape == Shape{112, 1, 16});
  CHECK_FALSE(has_operator(bloom, "transformer.h.0.self_attention.q_rotary"));
  // the large Baichuan names no max_position_embeddings and has no rotary positions
  std::string baichuan = shipped_config("baichuan2_7b");
  CHECK(has_operator(imported(baichuan, few_layers(1)), "model.layers.0.self_attn.q_rotary"));
  baichuan.replace(baichuan.find("max_position_embeddings"), 23, "model_max_length");
  CHECK(operands(imported(baichuan, few_layers(1)), "model.layers.0.self_attn.attention")[3] ==
        "model.alibi");
}

TEST_CASE("Queries and keys are normalised per head or all together") {
  const Graph qwen = small_model("qwen3_1_7b", few_layers(1));
  CHECK(result_shape(qwen, "model.layers.0.self_attn.k_norm") == Shape{2, 16, 8, 128});
  CHECK(tensor_named(qwen, "model.layers.0.self_attn.k_norm.weight").shape == Shape{128});
  const Graph olmo = small_model("olmo2_7b", few_layers(1));
  CHECK(result_shape(olmo, "model.layers.0.self_attn.k_norm") == Shape{2, 16, 4096});
  CHECK_FALSE(
      has_operator(small_model("qwen2_7b", few_layers(1)), "model.layers.0.self_attn.q_norm"));
  std::string cohere = shipped_config("cohere_aya_23_8b");
  cohere.replace(cohere.find("\"use_qk_norm\": false"), 20, "\"use_qk_norm\": true ");
  const Graph normed = imported(cohere, few_layers(1));
  CHECK(tensor_named(normed, "model.layers.0.self_attn.q_norm.weight").shape == Shape{32, 128});
  CHECK(result_shape(normed, "model.layers.0.self_attn.q_norm.scaled") == Shape{2, 16, 32, 128});
}

TEST_CASE("Windows, scales and caps of scores follow the family and the config") {
  const auto windows = [](const std::string& name, std::int64_t seq, std::int64_t layers) {
    const Graph graph = small_model(name, HfOptions{1, seq, true, layers});
    std::vector<std::int64_t> list;
    for (std::int64_t i = 0; i < layers; ++i) {
      list.push_back(whole_attribute(
          graph, "model.layers." + std::to_string(i) + ".self_attn.attention", "sliding_window"));
    }
    return list;
  };
  using List = std::vector<std::int64_t>;
  CHECK(windows("gemma2_9b", 8192, 4) == List{4096, 0, 4096, 0});
  CHECK(windows("gemma2_9b", 4096, 4) == List{0, 0, 0, 0});
  CHECK(windows("gemma3_1b", 1024, 7) == List{512, 512, 512, 512, 512, 0, 512});
  CHECK(windows("gpt_oss_20b", 1024, 3) == List{128, 0, 128});
  CHECK(windows("mistral_7b", 8192, 2) == List{4096, 4096});
  CHECK(windows("mixtral_8x7b", 8192, 2) == List{0, 0});
  CHECK(windows("qwen2_7b", 8192, 2) == List{0, 0});
  // half of the pairs of a causal window are seen while it fills, all of them from then on
  const Graph mistral = small_model("mistral_7b", HfOptions{1, 8192, true, 1});
  CHECK(operator_named(mistral, "model.layers.0.self_attn.attention").rule->flops_scale ==
        (0.5 * 4096 * 4096 + 4096.0 * 4096) / (8192.0 * 8192));

  const std::string attention = "model.layers.0.self_attn.attention";
  const Graph gemma2 = small_model("gemma2_9b", few_layers(1));
  CHECK(number_attribute(gemma2, attention, "softcap") == 50.0);
  CHECK(number_attribute(gemma2, attention, "scale") == 0);  // heads are as wide as the scalar
  CHECK(result_shape(gemma2, "lm_head.softcapped") == Shape{2, 16, 256000});
  CHECK(has_operator(gemma2, "model.embed_tokens.scaled"));
  const Graph gemma3 = small_model("gemma3_1b", few_layers(6));
  CHECK(number_attribute(gemma3, attention, "softcap") == 0);
  CHECK_FALSE(has_operator(gemma3, "lm_head.softcapped"));
  CHECK(operands(gemma3, "model.layers.0.self_attn.q_rotary")[1] == "model.rotary_emb_local.cos");
  CHECK(operands(gemma3, "model.layers.5.self_attn.q_rotary")[1] == "model.rotary_emb.cos");
  CHECK(has_operator(small_model("cohere_aya_23_8b", few_layers(1)), "lm_head.scaled"));
  CHECK(number_attribute(small_model("t5_base", few_layers(1)),
                         "encoder.block.0.layer.0.SelfAttention.attention",
                         "scale") == 1.0);
}

TEST_CASE("layer_types wins over the family's habit") {
  const Changes gpt_oss = {{"model_type", "\"gpt_oss\""},
                           {"hidden_size", "64"},
                           {"intermediate_size", "96"},
                           {"num_hidden_layers", "2"},
                           {"num_attention_heads", "8"},
                           {"num_key_value_heads", "2"},
                           {"head_dim", "16"},
                           {"num_local_experts", "4"},
                           {"num_experts_per_tok", "2"},
                           {"sliding_window", "8"},
                           {"vocab_size", "100"},
                           {"torch_dtype", "\"bfloat16\""}};
  const std::string types = R"(["full_attention", "sliding_attention"])";
  const Graph graph = imported(config_of(gpt_oss, {{"layer_types", types}}), {2, 16, true, {}});
  CHECK(whole_attribute(graph, "model.layers.0.self_attn.attention", "sliding_window") == 0);
  CHECK(whole_attribute(graph, "model.layers.1.self_attn.attention", "sliding_window") == 8);
  CHECK(error_of(config_of(gpt_oss, {{"layer_types", R"(["full_atention", "sliding_attention"])"}}))
            .find("config.json: /layer_types/0: the layer type \"full_atention\" is not "
                  "supported; supported are full_attention, sliding_attention; did you mean "
                  "\"full_attention\"?") == 0);
  CHECK(error_of(config_of(gpt_oss, {{"layer_types", "[]"}})).find("config.json: /layer_types: ") ==
        0);
  CHECK(error_of(config_of(gpt_oss, {{"num_experts_per_tok", "5"}}))
            .find("config.json: /num_experts_per_tok: 5 experts per token are more than "
                  "num_local_experts 4") == 0);
}

TEST_CASE("Keys and values have as many heads as the config says") {
  for (const auto& [name, op, heads] :
       {std::tuple{"falcon_7b", "transformer.h.0.self_attention.k_heads", 1},
        std::tuple{"gpt_bigcode_santacoder", "transformer.h.0.attn.v_heads", 1},
        std::tuple{"chatglm3_6b", "transformer.encoder.layers.0.self_attention.k_heads", 2},
        std::tuple{"gemma_2b", "model.layers.0.self_attn.k_heads", 1},
        std::tuple{"phi_2_msft", "transformer.h.0.mixer.k_heads", 32},
        std::tuple{"qwen3_30b_a3b", "model.layers.0.self_attn.v_heads", 4}}) {
    INFO(name);
    CHECK(result_shape(small_model(name, few_layers(1)), op)[1] == heads);
  }
  const Changes falcon = {{"model_type", "\"falcon\""},
                          {"hidden_size", "64"},
                          {"num_hidden_layers", "1"},
                          {"num_attention_heads", "8"},
                          {"vocab_size", "100"},
                          {"torch_dtype", "\"bfloat16\""}};
  const auto kv_heads = [&](const Changes& changes) {
    return result_shape(imported(config_of(falcon, changes), {2, 16, true, {}}),
                        "transformer.h.0.self_attention.k_heads")[1];
  };
  CHECK(kv_heads({}) == 1);
  CHECK(kv_heads({{"multi_query", "false"}}) == 8);
  CHECK(kv_heads({{"new_decoder_architecture", "true"}, {"num_kv_heads", "4"}}) == 4);
  const Graph both =
      imported(config_of(falcon, {{"new_decoder_architecture", "true"}}), {2, 16, true, {}});
  CHECK(has_operator(both, "transformer.h.0.ln_attn"));
  CHECK(has_operator(both, "transformer.h.0.ln_mlp"));
  CHECK(error_of(config_of(falcon, {{"new_decoder_architecture", "true"}, {"num_kv_heads", "3"}}))
            .find("config.json: /num_kv_heads: num_attention_heads 8 is not a multiple of "
                  "num_kv_heads 3") == 0);
}

TEST_CASE("Experts are stacked, their tokens dispatched and combined") {
  const Graph mixtral = small_model("mixtral_8x7b", few_layers(1));
  const std::string moe = "model.layers.0.block_sparse_moe.";
  CHECK(result_shape(mixtral, moe + "gate") == Shape{32, 8});
  CHECK(tensor_named(mixtral, moe + "experts.w1.weight").shape == Shape{8, 4096, 14336});
  CHECK(tensor_named(mixtral, moe + "experts.w2.weight").shape == Shape{8, 14336, 4096});
  // two groups of 16 tokens with two choices each: four slots per expert and group
  CHECK(result_shape(mixtral, moe + "dispatch") == Shape{8, 8, 4096});
  CHECK(whole_attribute(mixtral, moe + "dispatch", "groups") == 2);
  CHECK(result_shape(mixtral, moe + "combine") == Shape{32, 4096});
  CHECK(result_shape(mixtral, moe + "routed") == Shape{2, 16, 4096});
  CHECK(operands(mixtral, moe + "combine")[2] == moe + "normalised_weights");
  CHECK(tensor_named(mixtral, moe + "normalised_weights").has_gradient);
  CHECK(tensor_named(mixtral, moe + "gate.weight").has_gradient);

  // weights of qwen1.5-moe are not normalised; its shared expert is scaled by a sigmoid
  const Graph qwen = small_model("qwen1_5_moe_a2_7b", few_layers(1));
  CHECK(operands(qwen, "model.layers.0.mlp.combine")[2] == "model.layers.0.mlp.best_experts");
  CHECK(tensor_named(qwen, "model.layers.0.mlp.shared_expert.up_proj.weight").shape ==
        Shape{2048, 5632});
  CHECK(operands(qwen, "model.layers.0.mlp.with_shared")[1] == "model.layers.0.mlp.shared_scaled");
  CHECK(result_shape(qwen, "model.layers.0.mlp.shared_expert_gate") == Shape{2, 16, 1});

  // the first layer of the DeepSeek models is dense, of V3 the first three
  const Graph v1 = small_model("deepseek_moe_16b", few_layers(2));
  CHECK(tensor_named(v1, "model.layers.0.mlp.up_proj.weight").shape == Shape{2048, 10944});
  CHECK(tensor_named(v1, "model.layers.1.mlp.shared_experts.up_proj.weight").shape ==
        Shape{2048, 2816});
  const Graph v3 = small_model("deepseek_v3", few_layers(4));
  CHECK(has_operator(v3, "model.layers.2.mlp.up_proj"));
  const std::string router = "model.layers.3.mlp.";
  CHECK(operator_named(v3, router + "router_scores").type == "Sigmoid");
  CHECK(result_shape(v3, router + "grouped_scores") == Shape{32, 8, 32});
  CHECK(result_shape(v3, router + "best_groups") == Shape{32, 4});
  CHECK(result_shape(v3, router + "best_experts") == Shape{32, 8});
  CHECK(operands(v3, router + "expert_scores") ==
        std::vector<std::string>{router + "router_scores", router + "best_experts.indices"});
  CHECK(operands(v3, router + "combine")[2] == router + "scaled_weights");

  const Graph gpt_oss = small_model("gpt_oss_20b", few_layers(1));
  CHECK(operands(gpt_oss, "model.layers.0.mlp.router_scores")[0] ==
        "model.layers.0.mlp.best_experts");
  CHECK(tensor_named(gpt_oss, "model.layers.0.mlp.experts.down_proj.bias").shape ==
        Shape{32, 1, 2880});
  CHECK(tensor_named(gpt_oss, "model.layers.0.self_attn.sinks").shape == Shape{64});
  CHECK(operator_named(gpt_oss, "model.layers.0.mlp.experts.act_fn").type == "Swish");
  CHECK(operator_named(gpt_oss, "model.layers.0.mlp.experts.gate_clamp").type == "Clip");
}

TEST_CASE("Layers with experts follow the config's steps and lists") {
  const Changes qwen = {{"model_type", "\"qwen3_moe\""},
                        {"hidden_size", "64"},
                        {"intermediate_size", "96"},
                        {"moe_intermediate_size", "32"},
                        {"num_hidden_layers", "6"},
                        {"num_attention_heads", "4"},
                        {"num_experts", "8"},
                        {"num_experts_per_tok", "2"},
                        {"vocab_size", "100"},
                        {"torch_dtype", "\"bfloat16\""}};
  const auto sparse = [&](const Changes& changes) {
    const Graph graph = imported(config_of(qwen, changes), {2, 16, true, {}});
    std::string text;
    for (int i = 0; i < 6; ++i)
      text += has_operator(graph, "model.layers." + std::to_string(i) + ".mlp.gate") ? 'x' : '.';
    return text;
  };
  CHECK(sparse({}) == "xxxxxx");
  CHECK(sparse({{"decoder_sparse_step", "2"}}) == ".x.x.x");
  CHECK(sparse({{"mlp_only_layers", "[1, 4, 99]"}}) == "x.xx.x");
  CHECK(error_of(config_of(qwen, {{"num_experts", "1"}}))
            .find("config.json: /num_experts_per_tok: ") == 0);
  CHECK(error_of(config_of(qwen, {{"num_experts", ""}})) ==
        "config.json: the key \"num_experts\" is missing");
}

TEST_CASE("Decoding steps group sequences, so that few slots stay empty") {
  // 64 sequences of one token, 8 choices each of 128 experts: 16 sequences fill the experts once
  const Graph step = small_model("qwen3_30b_a3b", HfOptions{64, 1, false, 1, 100});
  CHECK(whole_attribute(step, "model.layers.0.mlp.dispatch", "groups") == 4);
  CHECK(result_shape(step, "model.layers.0.mlp.dispatch") == Shape{128, 4, 2048});
}

TEST_CASE("Latent attention projects through narrow layers and shares the keys' positions") {
  const std::string attention = "model.layers.0.self_attn.";
  const Graph v3 = small_model("deepseek_v3", few_layers(1));
  CHECK(tensor_named(v3, attention + "q_a_proj.weight").shape == Shape{7168, 1536});
  CHECK(tensor_named(v3, attention + "q_b_proj.nope.weight").shape == Shape{1536, 128 * 128});
  CHECK(tensor_named(v3, attention + "q_b_proj.rope.weight").shape == Shape{1536, 128 * 64});
  CHECK(tensor_named(v3, attention + "kv_a_proj_with_mqa.latent.weight").shape == Shape{7168, 512});
  CHECK(tensor_named(v3, attention + "kv_a_layernorm.weight").shape == Shape{512});
  CHECK(result_shape(v3, attention + "k_rotary") == Shape{2, 1, 16, 64});
  CHECK(result_shape(v3, attention + "k_joined") == Shape{2, 128, 16, 192});
  CHECK(result_shape(v3, attention + "attention") == Shape{2, 128, 16, 128});
  const Graph lite = small_model("deepseek_v2_lite", few_layers(1));
  CHECK(tensor_named(lite, attention + "q_proj.nope.weight").shape == Shape{2048, 16 * 128});
  CHECK_FALSE(has_operator(lite, attention + "q_a_proj"));
}

TEST_CASE("In inference a cache of keys and values is state") {
  const HfOptions step{4, 1, false, 2, 1000};
  const Graph llama = small_model("llama3_1_8b", step);
  const std::string attention = "model.layers.1.self_attn.attention";
  CHECK(operands(llama, attention)[4] == "model.layers.1.self_attn.past_key");
  const Tensor& key = tensor_named(llama, "model.layers.1.self_attn.past_key");
  CHECK(key.role == Role::kState);
  CHECK(key.shape == Shape{4, 8, 1000, 128});
  CHECK(result_shape(llama, attention) == Shape{4, 32, 1, 128});
  // a token sees all that is cached and itself
  CHECK(operator_named(llama, attention).rule->flops_scale == Approx(1).epsilon(1e-3));
  // a window keeps no more than it sees
  const Graph gemma = small_model("gemma3_1b", HfOptions{4, 1, false, 6, 1000});
  CHECK(tensor_named(gemma, "model.layers.0.self_attn.past_value").shape == Shape{4, 1, 512, 256});
  CHECK(tensor_named(gemma, "model.layers.5.self_attn.past_value").shape == Shape{4, 1, 1000, 256});
  // latent attention caches the narrow projection
  const Graph v3 = small_model("deepseek_v3", step);
  CHECK(tensor_named(v3, "model.layers.0.self_attn.past_latent").shape == Shape{4, 1000, 512});
  CHECK(tensor_named(v3, "model.layers.0.self_attn.past_k_rope").shape == Shape{4, 1, 1000, 64});
  CHECK(result_shape(v3, "model.layers.0.self_attn.v_heads") == Shape{4, 128, 1001, 128});
  CHECK(tensor_named(small_model("bloom_176b", step), "transformer.alibi").shape ==
        Shape{112, 1, 1001});
  for (const Graph* graph : {&llama, &gemma, &v3}) {
    for (const Tensor& tensor : graph->tensors) CHECK_FALSE(tensor.has_gradient);
  }
  const auto refused = [](const std::string& name, const HfOptions& options) {
    const Result<HfImport> import = import_hf(shipped_config(name), "c", options);
    REQUIRE_FALSE(import.has_value());
    CHECK(import.error().code == ErrorCode::kUsage);
  };
  refused("llama3_1_8b", HfOptions{4, 1, true, 2, 1000});
  refused("llama3_1_8b", HfOptions{4, 1, false, 2, -1});
  refused("t5_base", HfOptions{4, 1, false, 2, 1000});
}

TEST_CASE("An encoder ends in what its architecture asks for") {
  const Graph classes = small_model("bert_base_uncased", few_layers(1));
  CHECK(result_shape(classes, "classifier.add_bias") == Shape{2, 2});
  CHECK(tensor_named(classes, "labels").shape == Shape{2});
  CHECK(whole_attribute(classes, "bert.encoder.layer.0.attention.self.attention", "is_causal") ==
        0);
  const Graph alone = small_model("bert_arctic_embed_m", few_layers(1));
  CHECK(alone.outputs.size() == 2);
  std::string masked = shipped_config("bert_base_uncased");
  masked.replace(masked.find("BertForSequenceClassification"), 29, "BertForMaskedLM");
  const Graph words = imported(masked, HfOptions{2, 16, true, {}});
  CHECK(parameters_of(words) == 109514298);
  CHECK(result_shape(words, "cls.predictions.scores") == Shape{2, 16, 30522});
  masked.replace(masked.find("BertForMaskedLM"), 15, "BertForMaskedLm");
  CHECK(error_of(masked).find("config.json: /architectures/0: the architecture "
                              "\"BertForMaskedLm\" is not supported; supported are ") == 0);
  CHECK(error_of(shipped_config("bert_base_uncased"), HfOptions{1, 513, true, {}})
            .find("config.json: /max_position_embeddings: ") == 0);

  HfOptions images{2, {}, true, 1};
  const Graph vit = small_model("vit_base_patch16_224", images);
  CHECK(result_shape(vit, "vit.embeddings.patch_embeddings.projection") == Shape{2, 768, 14, 14});
  CHECK(result_shape(vit, "vit.embeddings.with_positions") == Shape{2, 197, 768});
  CHECK(result_shape(vit, "vit.first_token.flat") == Shape{2, 768});
  CHECK(result_shape(vit, "classifier.add_bias") == Shape{2, 1000});
  images.seq = 16;
  const Result<HfImport> noted =
      import_hf(shipped_config("vit_base_patch16_224"), "config.json", images);
  REQUIRE(noted.has_value());
  CHECK(noted->notes.size() == 1);
  // every other model needs a length
  for (const char* name : {"llama2_7b", "bert_base_uncased", "t5_base", "whisper_base"}) {
    const Result<HfImport> import =
        import_hf(shipped_config(name), "c", HfOptions{2, {}, true, {}});
    REQUIRE_FALSE(import.has_value());
    CHECK(import.error().code == ErrorCode::kUsage);
    CHECK(import.error().message.find("--seq") != std::string::npos);
  }
}

TEST_CASE("Decoders attend to their encoder") {
  const Graph t5 = small_model("t5_base", few_layers(2));
  const std::string cross = "decoder.block.1.layer.1.EncDecAttention";
  CHECK(operands(t5, cross + ".k")[0] == "encoder.final_layer_norm");
  CHECK(operands(t5, cross + ".q")[0] == "decoder.block.1.layer.1.layer_norm");
  CHECK(operands(t5, cross + ".attention").size() == 3);
  // the scores by distance of the first layer serve all layers of a stack
  const std::string bias = "encoder.block.0.layer.0.SelfAttention.position_bias";
  CHECK(operands(t5, "encoder.block.1.layer.0.SelfAttention.attention")[3] == bias);
  CHECK(result_shape(t5, bias) == Shape{12, 16, 16});
  CHECK(whole_attribute(t5, "decoder.block.0.layer.0.SelfAttention.attention", "is_causal") == 1);
  CHECK(whole_attribute(t5, "encoder.block.0.layer.0.SelfAttention.attention", "is_causal") == 0);
  std::string gated = shipped_config("t5_base");
  gated.replace(gated.find("\"relu\""), 6, "\"gated-gelu\"");
  gated.replace(gated.find("\"tie_word_embeddings\": true"), 27, "\"tie_word_embeddings\": false");
  CHECK(parameters_of(imported(gated, HfOptions{2, 16, true, {}})) ==
        222903552 + 24 * 768 * 3072 + 768 * 32128);
  gated.replace(gated.find("gated-gelu"), 10, "gated-geru");
  CHECK(error_of(gated).find("config.json: /feed_forward_proj: \"gated-geru\" is not supported") ==
        0);

  const Graph whisper = small_model("whisper_base", few_layers(1));
  CHECK(tensor_named(whisper, "input_features").shape == Shape{2, 80, 3000});
  CHECK(result_shape(whisper, "model.encoder.conv2") == Shape{2, 512, 1500});
  CHECK(result_shape(whisper, "model.decoder.layers.0.encoder_attn.k_heads") ==
        Shape{2, 8, 1500, 64});
  CHECK_FALSE(tensor_named(whisper, "model.encoder.embed_positions.weight").trainable);
  CHECK_FALSE(has_operator(whisper, "model.decoder.layers.0.self_attn.k_proj.add_bias"));
  CHECK(error_of(shipped_config("whisper_base"), HfOptions{1, 449, true, {}})
            .find("config.json: /max_target_positions: ") == 0);
}

TEST_CASE("Settings that the importer cannot follow are refused with their place") {
  std::string bloom = shipped_config("bloom_176b");
  bloom.insert(bloom.find('{') + 1, "\"apply_residual_connection_post_layernorm\": true, ");
  CHECK(error_of(bloom) ==
        "config.json: /apply_residual_connection_post_layernorm: only false is supported");
  std::string v3 = shipped_config("deepseek_v3");
  v3.replace(v3.find("\"sigmoid\""), 9, "\"sigmoyd\"");
  CHECK(error_of(v3).find("config.json: /scoring_func: the scoring function \"sigmoyd\" is not "
                          "supported; supported are sigmoid, softmax; did you mean") == 0);
  v3 = shipped_config("deepseek_v3");
  v3.replace(v3.find("\"n_group\": 8"), 12, "\"n_group\": 7");
  CHECK(error_of(v3).find("config.json: /n_group: ") == 0);
  std::string neox = shipped_config("gpt_neox_20b");
  neox.replace(neox.find("0.25"), 4, "1.25");
  CHECK(error_of(neox).find("config.json: /rotary_pct: ") == 0);
  std::string gptj = shipped_config("gpt_j_6b");
  gptj.replace(gptj.find("\"rotary_dim\": 64"), 16, "\"rotary_dim\": 63");
  CHECK(error_of(gptj).find("config.json: /rotary_dim: ") == 0);
}

TEST_CASE("Of a model of text and images the text model is imported") {
  const std::string text = shipped_config("gemma3_1b");
  const std::string both = R"({"model_type": "gemma3", "text_config": )" + text + "}";
  const Result<HfImport> import = import_hf(both, "config.json", few_layers(2));
  REQUIRE(import.has_value());
  CHECK(import->notes.size() == 1);
  CHECK(parameters_of(imported(both, {2, 16, true, {}})) == 999885952);
}

}  // namespace
}  // namespace meshplan::import_hf_models_test

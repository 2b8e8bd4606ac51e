// SPDX-License-Identifier: Apache-2.0
#include <map>
#include <string>
#include <vector>

#include "graph/importers/hf.h"
#include "support/catch.h"
#include "support/imported_models.h"

namespace meshplan::import_hf_test {
namespace {

using test::imported;
using test::operator_named;
using test::parameters_of;
using test::result_shape;

/// A small Llama with the named setting replaced ("" removes it).
std::string small_config(const std::map<std::string, std::string>& changes = {}) {
  const std::map<std::string, std::string> settings = {{"model_type", "\"llama\""},
                                                       {"hidden_size", "64"},
                                                       {"intermediate_size", "96"},
                                                       {"num_hidden_layers", "2"},
                                                       {"num_attention_heads", "8"},
                                                       {"num_key_value_heads", "2"},
                                                       {"vocab_size", "100"},
                                                       {"torch_dtype", "\"bfloat16\""}};
  return test::config_of(settings, changes);
}

std::string error_of(const std::string& config) {
  const Result<HfImport> import = import_hf(config, "config.json", HfOptions{4, 8, true, {}});
  INFO(config);
  REQUIRE_FALSE(import.has_value());
  return to_string(import.error());
}

TEST_CASE("A Llama layer has the operators and shapes of the model") {
  const Graph graph = imported(test::shipped_config("llama3_1_8b"), HfOptions{2, 16, true, {}});
  CHECK(graph.operators.size() == 1 + 32 * 24 + 3);
  const std::string layer = "model.layers.31.";
  CHECK(result_shape(graph, "model.embed_tokens") == Shape{2, 16, 4096});
  CHECK(result_shape(graph, layer + "self_attn.q_heads") == Shape{2, 32, 16, 128});
  CHECK(result_shape(graph, layer + "self_attn.k_rotary") == Shape{2, 8, 16, 128});
  CHECK(result_shape(graph, layer + "self_attn.attention") == Shape{2, 32, 16, 128});
  CHECK(result_shape(graph, layer + "self_attn.merge") == Shape{2, 16, 4096});
  CHECK(result_shape(graph, layer + "mlp.gated") == Shape{2, 16, 14336});
  CHECK(result_shape(graph, layer + "mlp_residual") == Shape{2, 16, 4096});
  CHECK(result_shape(graph, "lm_head") == Shape{2, 16, 128256});
  CHECK(operator_named(graph, layer + "self_attn.q_proj").scope == "model.layers.31.self_attn");
  CHECK(operator_named(graph, layer + "mlp.down_proj").scope == "model.layers.31.mlp");
  CHECK(operator_named(graph, layer + "mlp_residual").scope == "model.layers.31");
  REQUIRE(graph.outputs.size() == 1);
  const Tensor& loss = graph.tensor(graph.outputs[0]);
  CHECK(loss.role == Role::kLoss);
  CHECK(loss.shape.empty());
  CHECK(loss.dtype == DType::kFp32);
  for (const Tensor& tensor : graph.tensors) {
    INFO(tensor.name);
    const bool outside = tensor.role == Role::kInput || tensor.role == Role::kConstant;
    CHECK(tensor.has_gradient == !outside);
  }
}

TEST_CASE("The multiplications of a Llama forward pass are those of its formula") {
  const Graph graph = imported(test::shipped_config("llama2_7b"), HfOptions{1, 4096, true, {}});
  double flops = 0;
  for (const Operator& op : graph.operators) {
    std::vector<std::int64_t> sizes;
    for (const Factor& factor : op.rule->factors) sizes.push_back(factor.size);
    if (op.type == "MatMul" || op.type == "Attention") flops += op.rule->flops(sizes);
  }
  // two per weight and token, without the embedding table; causal attention half of 4 s^2 h
  const double weights = 6738415616.0 - 32000.0 * 4096 - 65 * 4096;
  CHECK(flops == 2 * weights * 4096 + 32 * 0.5 * 4 * 4096.0 * 4096 * 4096);
}

TEST_CASE("Tied embeddings are one table that is read twice") {
  const Graph graph = imported(test::shipped_config("llama3_2_1b"), HfOptions{2, 16, true, {}});
  for (const Tensor& tensor : graph.tensors) {
    if (tensor.name == "model.embed_tokens.weight") CHECK(tensor.uses.size() == 2);
    CHECK(tensor.name != "lm_head.weight");
  }
  CHECK(result_shape(graph, "lm_head") == Shape{2, 16, 128256});
}

TEST_CASE("Options choose the mode and the number of layers") {
  const Graph inference = imported(test::shipped_config("llama2_7b"), HfOptions{2, 16, false, 3});
  CHECK(inference.operators.size() == 1 + 3 * 24 + 2);
  CHECK(inference.tensor(inference.outputs[0]).name == "lm_head");
  CHECK(inference.tensor(inference.outputs[0]).shape == Shape{2, 16, 32000});
  CHECK(imported(test::shipped_config("llama2_7b"), HfOptions{2, 16, true, 64}).operators.size() ==
        1 + 64 * 24 + 3);
  // a training graph planned for inference ends in the same logits
  const Result<HfImport> import =
      import_hf(test::shipped_config("llama2_7b"), "c", HfOptions{2, 16, true, 3});
  REQUIRE(import.has_value());
  GraphOptions options;
  options.training = false;
  const Result<Graph> dropped = resolve(import->document, options);
  REQUIRE(dropped.has_value());
  CHECK(dropped->operators.size() == inference.operators.size());
  CHECK(dropped->tensor(dropped->outputs[0]).name == "lm_head");
  const auto refused = [](HfOptions wrong) {
    const Result<HfImport> result = import_hf(small_config(), "c", wrong);
    REQUIRE_FALSE(result.has_value());
    CHECK(result.error().code == ErrorCode::kUsage);
  };
  refused(HfOptions{0, 8, true, {}});
  refused(HfOptions{8, -1, true, {}});
  refused(HfOptions{8, 8, true, 0});
  refused(HfOptions{8, 8, true, 1000000000});
}

TEST_CASE("Biases, head sizes, activations and dtypes follow the config") {
  const Graph biased =
      imported(small_config({{"attention_bias", "true"}, {"mlp_bias", "true"}, {"head_dim", "16"}}),
               HfOptions{4, 8, true, {}});
  const std::int64_t layer = 64 * 128 + 2 * 64 * 32 + 128 * 64 + (128 + 2 * 32 + 64) + 3 * 64 * 96 +
                             (96 + 96 + 64) + 2 * 64;
  CHECK(parameters_of(biased) == 2 * 100 * 64 + 64 + 2 * layer);
  CHECK(result_shape(biased, "model.layers.0.self_attn.merge") == Shape{4, 8, 128});
  CHECK(result_shape(biased, "model.layers.1.mlp.down_proj.add_bias") == Shape{4, 8, 64});
  const Graph relu =
      imported(small_config({{"hidden_act", "\"relu\""}}), HfOptions{4, 8, true, {}});
  CHECK(operator_named(relu, "model.layers.0.mlp.act_fn").type == "Relu");
  const std::map<std::string, DType> types = {
      {"\"float16\"", DType::kFp16}, {"\"bfloat16\"", DType::kBf16}, {"\"float32\"", DType::kFp32}};
  for (const auto& [name, dtype] : types) {
    const Graph graph = imported(small_config({{"torch_dtype", name}}), HfOptions{4, 8, true, {}});
    for (const Tensor& tensor : graph.tensors) {
      if (tensor.role == Role::kParameter) CHECK(tensor.dtype == dtype);
    }
  }
  // full attention where no key says otherwise, also for null
  for (const char* absent : {"", "null"}) {
    const Graph full =
        imported(small_config({{"num_key_value_heads", absent}}), HfOptions{4, 8, true, {}});
    CHECK(result_shape(full, "model.layers.0.self_attn.k_heads") == Shape{4, 8, 8, 8});
  }
}

TEST_CASE("Settings that do not shape the graph are ignored, what is assumed is noted") {
  const HfOptions options{4, 8, true, {}};
  const auto notes = [&](const std::map<std::string, std::string>& changes) {
    const Result<HfImport> import = import_hf(small_config(changes), "config.json", options);
    REQUIRE(import.has_value());
    return import->notes;
  };
  CHECK(notes({{"context_window_size", "2048"},
               {"prefill_chunk_size", "[1, {}]"},
               {"transformers.js_config", "{\"a\": null}"}})
            .empty());
  CHECK(notes({{"torch_dtype", ""}}).size() == 1);
  CHECK(notes({{"max_position_embeddings", "4"}}).size() == 1);
  CHECK(notes({{"quantization_config", "{}"}}).size() == 1);
}

TEST_CASE("The model's name comes from the config or its file") {
  const auto name = [](const std::map<std::string, std::string>& changes, const std::string& file) {
    const Result<HfImport> import =
        import_hf(small_config(changes), file, HfOptions{4, 8, true, {}});
    REQUIRE(import.has_value());
    return import->document.name;
  };
  CHECK(name({{"_name_or_path", "\"meta/Some-7B/\""}}, "config.json") == "Some-7B");
  CHECK(name({}, "folder/small.json") == "small");
  CHECK(name({}, "folder/config.json") == "llama");
  CHECK(name({}, "-") == "llama");
}

TEST_CASE("Configs that do not describe a Llama model are refused with their place") {
  CHECK(error_of(small_config({{"model_type", "\"mamba\""}}))
            .find("config.json: /model_type: model_type \"mamba\" is not supported; supported are: "
                  "baichuan, bert, bloom, chatglm, ") == 0);
  CHECK(error_of(small_config({{"model_type", "\"lama\""}})).find("; did you mean \"llama\"?") !=
        std::string::npos);
  CHECK(error_of(small_config({{"model_type", ""}})) ==
        "config.json: the key \"model_type\" is missing");
  CHECK(error_of(small_config({{"model_type", "7"}})).find("config.json: /model_type: ") == 0);
  CHECK(error_of("[]").find("config.json: expected an object") == 0);
  CHECK(error_of("{").find("config.json: not valid JSON") == 0);
  for (const char* key : {"hidden_size",
                          "intermediate_size",
                          "num_hidden_layers",
                          "num_attention_heads",
                          "vocab_size"}) {
    CHECK(error_of(small_config({{key, ""}})) ==
          "config.json: the key \"" + std::string(key) + "\" is missing");
    CHECK(error_of(small_config({{key, "null"}})) ==
          "config.json: /" + std::string(key) + ": is null, expected a size");
    for (const char* bad : {"0", "-5", "1.5", "\"64\"", "true", "99999999999", "1e3"}) {
      CHECK(error_of(small_config({{key, bad}})).find("config.json: /" + std::string(key) + ": ") ==
            0);
    }
  }
  CHECK(error_of(small_config({{"num_key_value_heads", "3"}})) ==
        "config.json: /num_key_value_heads: num_attention_heads 8 is not a multiple of "
        "num_key_value_heads 3");
  CHECK(error_of(small_config({{"hidden_size", "65"}})) ==
        "config.json: /hidden_size: 65 does not divide into num_attention_heads 8, and there is no "
        "head_dim");
  CHECK(error_of(small_config({{"head_dim", "7"}})).find("config.json: /head_dim: ") == 0);
  CHECK(error_of(small_config({{"hidden_act", "\"silou\""}}))
            .find("config.json: /hidden_act: the activation \"silou\" is not supported") == 0);
  CHECK(error_of(small_config({{"torch_dtype", "\"int4\""}})).find("config.json: /torch_dtype: ") ==
        0);
  CHECK(error_of(small_config({{"dtype", "\"float16\""}})) ==
        "config.json: /dtype: differs from \"torch_dtype\", which means the same");
  CHECK(error_of(small_config({{"tie_word_embeddings", "1"}}))
            .find("config.json: /tie_word_embeddings: ") == 0);
  CHECK(error_of(small_config({{"num_hidden_layers", "20000"}}))
            .find("config.json: /num_hidden_layers: ") == 0);
}

HfOptions eager(std::int64_t batch, std::int64_t seq) {
  HfOptions options;
  options.batch = batch;
  options.seq = seq;
  options.eager_attention = true;
  return options;
}

TEST_CASE("Eager attention is products around a softmax in a scope of their own") {
  const Graph graph = imported(
      small_config({{"num_key_value_heads", "8"}, {"attention_dropout", "0.1"}}), eager(4, 16));
  const std::string core = "model.layers.1.self_attn.core";
  std::vector<std::string> types;
  for (const Operator& op : graph.operators) {
    CHECK(op.type != "Attention");
    if (op.scope == core) types.push_back(op.type);
  }
  CHECK(types == std::vector<std::string>{"MatMul", "Add", "Softmax", "Dropout", "MatMul"});
  CHECK(result_shape(graph, core + ".scores") == Shape{4, 8, 16, 16});
  CHECK(result_shape(graph, core + ".context") == Shape{4, 8, 16, 8});
  CHECK(result_shape(graph, "model.layers.1.self_attn.merge") == Shape{4, 16, 64});
  // the mask is one for all layers
  std::size_t masks = 0;
  for (const Tensor& tensor : graph.tensors)
    masks += tensor.name.find("causal_mask") != std::string::npos ? 1U : 0U;
  CHECK(masks == 1);
  CHECK_FALSE(test::has_operator(imported(small_config(), eager(4, 16)), core + ".dropout"));
}

TEST_CASE("Eager attention multiplies what fused attention without a mask does") {
  const auto products = [](const Graph& graph) {
    double flops = 0;
    for (const Operator& op : graph.operators) {
      std::vector<std::int64_t> sizes;
      for (const Factor& factor : op.rule->factors) sizes.push_back(factor.size);
      if (op.type == "MatMul" || op.type == "Attention") flops += op.rule->flops(sizes);
    }
    return flops;
  };
  for (const std::string& name : test::shipped_models()) {
    const std::string config = test::shipped_config(name);
    if (name.substr(0, 7) == "gpt_oss") continue;
    INFO(name);
    HfOptions options = eager(2, 16);
    options.layers = 2;
    if (name.substr(0, 3) == "vit") options.seq.reset();
    const Graph made = imported(config, options);
    options.eager_attention = false;
    const Graph fused = imported(config, options);
    CHECK(parameters_of(made) == parameters_of(fused));
    CHECK(made.outputs.size() == fused.outputs.size());
    // of causal attention a fused kernel leaves half of the pairs out
    CHECK(products(made) >= products(fused));
    CHECK(products(made) <= 2 * products(fused));
  }
}

TEST_CASE("What eager attention cannot be is an error") {
  const auto error = [](const std::string& config, const HfOptions& options) {
    const Result<HfImport> import = import_hf(config, "config.json", options);
    REQUIRE_FALSE(import.has_value());
    return to_string(import.error());
  };
  CHECK(error(test::shipped_config("gpt_oss_20b"), eager(2, 16)) ==
        "config.json: /model_type: attention sinks are supported in fused attention, not in eager "
        "attention");
  CHECK(error(small_config({{"attention_dropout", "1"}}), eager(2, 16)) ==
        "config.json: /attention_dropout: expected a rate of dropout from 0 to below 1");
  HfOptions cached = eager(2, 16);
  cached.training = false;
  cached.past = 8;
  CHECK(error(small_config(), cached) ==
        "eager attention has no cache: expected 0 tokens in it, there are 8");
}

}  // namespace
}  // namespace meshplan::import_hf_test

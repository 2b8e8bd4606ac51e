// SPDX-License-Identifier: Apache-2.0
#include "graph/importers/hf_config.h"

#include <span>

#include "lib/nearest_name.h"

namespace meshplan {
namespace {

template <class Value>
struct Named {
  std::string_view name;
  Value value;
};

/// Names of activations in configs.
constexpr Named<HfActivation> kActivations[] = {
    {"gelu", {"Gelu"}},
    {"gelu_fast", {"Gelu", true}},
    {"gelu_new", {"Gelu", true}},
    {"gelu_python", {"Gelu"}},
    {"gelu_pytorch_tanh", {"Gelu", true}},
    {"quick_gelu", {"Swish", false, 1.702}},
    {"relu", {"Relu"}},
    {"sigmoid", {"Sigmoid"}},
    {"silu", {"Silu"}},
    {"swish", {"Silu"}},
    {"tanh", {"Tanh"}},
};

constexpr Named<DType> kDTypes[] = {
    {"bfloat16", DType::kBf16},
    {"float16", DType::kFp16},
    {"float32", DType::kFp32},
    {"float64", DType::kFp64},
};

/// The value of `cursor` in a table of names, or an error that lists them.
template <class Value>
Result<Value> look_up(const JsonCursor& cursor,
                      const char* what,
                      std::span<const Named<Value>> table) {
  const Result<std::string_view> text = cursor.as_string();
  if (!text) return fail(text.error());
  std::vector<std::string> known;
  std::string list;
  for (const Named<Value>& row : table) {
    if (row.name == *text) return row.value;
    known.emplace_back(row.name);
    list += (list.empty() ? "" : ", ") + known.back();
  }
  return cursor.error(ErrorCode::kUnsupported,
                      std::string(what) + " " + json_quote(text->substr(0, 60)) +
                          " is not supported; supported are " + list +
                          nearest_name_hint(*text, known));
}

}  // namespace

Result<std::optional<JsonCursor>> HfConfig::find(const HfKey& key) const {
  std::optional<JsonCursor> first;
  for (const std::string_view name : {key.name, key.other}) {
    const std::optional<JsonCursor> found = name.empty() ? std::nullopt : root_.find(name);
    if (!found || found->kind() == JsonKind::kNull) continue;
    if (!first) {
      first = found;
      continue;
    }
    const auto a = first->as_int64();
    const auto b = found->as_int64();
    const bool same = a && b ? *a == *b
                             : first->kind() == JsonKind::kString &&
                                   found->kind() == JsonKind::kString &&
                                   *first->as_string() == *found->as_string();
    if (!same) {
      return found->error(
          ErrorCode::kConflict,
          "differs from " + json_quote(first->name_in_parent()) + ", which means the same");
    }
  }
  return first;
}

Result<std::int64_t> HfConfig::size(const HfKey& key) const {
  const auto found = optional_size(key);
  if (!found) return fail(found.error());
  if (*found) return **found;
  const std::optional<JsonCursor> null = root_.find(key.name);
  if (null) return null->error(ErrorCode::kMissing, "is null, expected a size");
  const std::string other = key.other.empty() ? "" : " or " + json_quote(key.other);
  return root_.error(ErrorCode::kMissing,
                     "the key " + json_quote(key.name) + other + " is missing");
}

Result<std::int64_t> HfConfig::size_or(const HfKey& key, std::int64_t otherwise) const {
  const auto found = optional_size(key);
  if (!found) return fail(found.error());
  return found->value_or(otherwise);
}

Result<std::optional<std::int64_t>> HfConfig::optional_size(const HfKey& key) const {
  const auto found = find(key);
  if (!found) return fail(found.error());
  if (!*found) return std::optional<std::int64_t>();
  const Result<std::int64_t> size = (*found)->as_int64(1, kMostHfSize);
  if (!size) return fail(size.error());
  return std::optional<std::int64_t>(*size);
}

Result<double> HfConfig::number_or(const HfKey& key, double otherwise) const {
  const auto found = find(key);
  if (!found) return fail(found.error());
  return *found ? (*found)->as_double() : otherwise;
}

Result<bool> HfConfig::flag(const HfToggle& toggle) const {
  const auto found = find(toggle.key);
  if (!found) return fail(found.error());
  return *found ? (*found)->as_bool() : toggle.value;
}

Result<std::string> HfConfig::text_or(const HfKey& key, const std::string& otherwise) const {
  const auto found = find(key);
  if (!found) return fail(found.error());
  if (!*found) return otherwise;
  const Result<std::string_view> text = (*found)->as_string();
  if (!text) return fail(text.error());
  return std::string(*text);
}

Result<DType> HfConfig::dtype(std::vector<std::string>& notes) const {
  const auto found = find({"torch_dtype", "dtype"});
  if (!found) return fail(found.error());
  DType dtype = DType::kBf16;
  if (*found) {
    const Result<DType> given = look_up<DType>(**found, "the element type", kDTypes);
    if (!given) return given;
    dtype = *given;
  } else {
    notes.emplace_back("the config names no torch_dtype; bfloat16 is assumed");
  }
  if (root_.find("quantization_config")) {
    notes.emplace_back("quantization_config is ignored: weights are planned in " +
                       std::string(dtype_name(dtype)));
  }
  return dtype;
}

Result<HfActivation> HfConfig::activation(const HfKey& key, std::string_view otherwise) const {
  const auto found = find(key);
  if (!found) return fail(found.error());
  if (*found) return look_up<HfActivation>(**found, "the activation", kActivations);
  HfActivation activation;
  for (const auto& row : kActivations) {
    if (row.name == otherwise) activation = row.value;
  }
  return activation;
}

Result<std::int64_t> HfConfig::layers(const HfKey& key, const HfOptions& options) const {
  const Result<std::int64_t> given = size(key);
  if (!given) return given;
  const std::int64_t layers = options.layers.value_or(*given);
  if (layers <= kMostHfLayers) return layers;
  return error(key,
               ErrorCode::kValue,
               "expected at most " + std::to_string(kMostHfLayers) + " layers, found " +
                   std::to_string(layers));
}

Unexpected<Error> HfConfig::error(const HfKey& key, ErrorCode code, std::string message) const {
  const auto found = find(key);
  return (found && *found ? **found : root_).error(code, std::move(message));
}

Result<double> attention_dropout(const HfConfig& config) {
  constexpr HfKey kKeys[] = {
      "attention_dropout", "attn_pdrop", "attention_probs_dropout_prob", "dropout_rate"};
  for (const HfKey& key : kKeys) {
    const auto found = config.find(key);
    if (!found) return fail(found.error());
    if (!*found) continue;
    const Result<double> rate = (*found)->as_double();
    if (rate && !(*rate >= 0 && *rate < 1))
      return (*found)->error(ErrorCode::kValue, "expected a rate of dropout from 0 to below 1");
    return rate;
  }
  return 0;
}

Result<std::int64_t> required_sequence(const HfOptions& options, const std::string& model_type) {
  if (options.seq) return *options.seq;
  return fail(ErrorCode::kUsage,
              "",
              "the sequence length is missing: a " + model_type + " model needs --seq");
}

}  // namespace meshplan

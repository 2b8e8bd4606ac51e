// SPDX-License-Identifier: Apache-2.0
#include "graph/importers/hf.h"

#include <algorithm>

#include "graph/importers/hf_family.h"
#include "lib/nearest_name.h"

namespace meshplan {
namespace {

/// Sorted by model_type.
constexpr HfFamily kFamilies[] = {
    {"llama", build_llama},
};
static_assert(std::ranges::is_sorted(kFamilies, {}, &HfFamily::model_type));

struct NamedValue {
  std::string_view name;
  std::string_view value;
};

/// Names of activations in configs -> ONNX operators.
constexpr NamedValue kActivations[] = {
    {"gelu", "Gelu"},
    {"relu", "Relu"},
    {"sigmoid", "Sigmoid"},
    {"silu", "Silu"},
    {"swish", "Silu"},
    {"tanh", "Tanh"},
};

constexpr NamedValue kDTypes[] = {
    {"bfloat16", "bf16"},
    {"float16", "fp16"},
    {"float32", "fp32"},
    {"float64", "fp64"},
};

/// The value of `cursor` in a table of names, or an error that lists them.
Result<std::string> look_up(const JsonCursor& cursor,
                            const char* what,
                            std::span<const NamedValue> table) {
  const Result<std::string_view> text = cursor.as_string();
  if (!text) return fail(text.error());
  std::vector<std::string> known;
  std::string list;
  for (const NamedValue& row : table) {
    if (row.name == *text) return std::string(row.value);
    known.emplace_back(row.name);
    list += (list.empty() ? "" : ", ") + known.back();
  }
  return cursor.error(ErrorCode::kUnsupported,
                      std::string(what) + " " + json_quote(text->substr(0, 60)) +
                          " is not supported; supported are " + list +
                          nearest_name_hint(*text, known));
}

std::string last_part(std::string_view path) {
  while (!path.empty() && path.back() == '/') path.remove_suffix(1);
  const std::size_t slash = path.rfind('/');
  return std::string(slash == std::string_view::npos ? path : path.substr(slash + 1));
}

/// What the model calls itself, else the file's name, else the family's.
std::string model_name(const JsonCursor& root, const std::string& file, std::string_view family) {
  if (const auto found = root.find("_name_or_path"); found && found->kind() == JsonKind::kString) {
    const std::string name = last_part(*found->as_string());
    if (!name.empty()) return name;
  }
  std::string name = last_part(file);
  if (name.size() > 5 && name.substr(name.size() - 5) == ".json") name.resize(name.size() - 5);
  return name.empty() || name == "config" || name == "-" ? std::string(family) : name;
}

}  // namespace

Result<std::optional<JsonCursor>> HfConfig::find(
    std::initializer_list<std::string_view> keys) const {
  std::optional<JsonCursor> first;
  for (const std::string_view key : keys) {
    const std::optional<JsonCursor> found = root_.find(key);
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

Result<std::int64_t> HfConfig::size(std::initializer_list<std::string_view> keys) const {
  const auto found = find(keys);
  if (!found) return fail(found.error());
  if (*found) return (*found)->as_int64(1, kMostHfSize);
  std::string names;
  for (const std::string_view key : keys) names += (names.empty() ? "" : " or ") + json_quote(key);
  const std::optional<JsonCursor> null = root_.find(*keys.begin());
  return (null ? *null : root_)
      .error(ErrorCode::kMissing,
             null ? "is null, expected a size" : "the key " + names + " is missing");
}

Result<std::int64_t> HfConfig::size_or(std::initializer_list<std::string_view> keys,
                                       std::int64_t otherwise) const {
  const auto found = find(keys);
  if (!found) return fail(found.error());
  return *found ? (*found)->as_int64(1, kMostHfSize) : otherwise;
}

Result<double> HfConfig::number_or(std::string_view key, double otherwise) const {
  const auto found = find({key});
  if (!found) return fail(found.error());
  return *found ? (*found)->as_double() : otherwise;
}

Result<bool> HfConfig::flag_or(std::string_view key, bool otherwise) const {
  const auto found = find({key});
  if (!found) return fail(found.error());
  return *found ? (*found)->as_bool() : otherwise;
}

Result<std::string> HfConfig::text_or(std::string_view key, const std::string& otherwise) const {
  const auto found = find({key});
  if (!found) return fail(found.error());
  if (!*found) return otherwise;
  const Result<std::string_view> text = (*found)->as_string();
  if (!text) return fail(text.error());
  return std::string(*text);
}

Result<DType> HfConfig::dtype(std::vector<std::string>& notes) const {
  const auto found = find({"torch_dtype", "dtype"});
  if (!found) return fail(found.error());
  if (!*found) {
    notes.emplace_back("the config names no torch_dtype; bfloat16 is assumed");
    return DType::kBf16;
  }
  const Result<std::string> name = look_up(**found, "the element type", kDTypes);
  if (!name) return fail(name.error());
  return *parse_dtype(*name);
}

Result<std::string> HfConfig::activation(std::string_view key, const std::string& otherwise) const {
  const auto found = find({key});
  if (!found) return fail(found.error());
  if (!*found) return otherwise;
  return look_up(**found, "the activation", kActivations);
}

Result<std::int64_t> HfConfig::layers(std::initializer_list<std::string_view> keys,
                                      const HfOptions& options) const {
  const Result<std::int64_t> given = size(keys);
  if (!given) return given;
  const std::int64_t layers = options.layers.value_or(*given);
  if (layers <= kMostHfLayers) return layers;
  return (*find(keys))
      ->error(ErrorCode::kValue,
              "expected at most " + std::to_string(kMostHfLayers) + " layers, found " +
                  std::to_string(layers));
}

Result<HfImport> import_hf(std::string_view text,
                           const std::string& file,
                           const HfOptions& options) {
  for (const auto& [name, value, most] :
       {std::tuple{"the batch", options.batch, kMostHfSize},
        std::tuple{"the sequence length", options.seq, kMostHfSize},
        std::tuple{"the number of layers", options.layers.value_or(1), kMostHfLayers}}) {
    if (value >= 1 && value <= most) continue;
    return fail(ErrorCode::kUsage,
                "",
                std::string(name) + " is " + std::to_string(value) + ", expected 1 to " +
                    std::to_string(most));
  }
  const Result<JsonDocument> json = JsonDocument::parse(text, file);
  if (!json) return fail(json.error());
  const Result<JsonCursor> cursor = json->root().get("model_type");
  if (!cursor) return fail(cursor.error());
  const Result<std::string_view> type = cursor->as_string();
  if (!type) return fail(type.error());
  for (const HfFamily& family : kFamilies) {
    if (family.model_type != *type) continue;
    return family.build(HfConfig(json->root(), model_name(json->root(), file, *type), file),
                        options);
  }
  std::string list;
  for (const std::string& known : hf_model_types()) list += (list.empty() ? "" : ", ") + known;
  return cursor->error(ErrorCode::kUnsupported,
                       "model_type " + json_quote(type->substr(0, 60)) +
                           " is not supported; supported are: " + list +
                           nearest_name_hint(*type, hf_model_types()));
}

std::span<const std::string> hf_model_types() {
  static const std::vector<std::string> kTypes = [] {
    std::vector<std::string> types;
    for (const HfFamily& family : kFamilies) types.emplace_back(family.model_type);
    return types;
  }();
  return kTypes;
}

}  // namespace meshplan

// SPDX-License-Identifier: Apache-2.0
#include "graph/importers/hf.h"

#include <algorithm>

#include "graph/importers/hf_family.h"
#include "lib/nearest_name.h"

namespace meshplan {
namespace {

/// What is no decoder.
struct HfFamily {
  std::string_view model_type;
  Result<HfImport> (*build)(const HfConfig& config, const HfOptions& options);
};

/// Sorted by model_type.
constexpr HfFamily kFamilies[] = {
    {"bert", build_bert},
    {"t5", build_t5},
    {"vit", build_vit},
    {"whisper", build_whisper},
};
static_assert(std::ranges::is_sorted(kFamilies, {}, &HfFamily::model_type));

/// The same model under another name; of a model of text and images, the part for text.
constexpr std::pair<std::string_view, std::string_view> kOtherNames[] = {
    {"gemma3_text", "gemma3"},
};

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
  return name.empty() || name == "config" || name == "-" || name == "standard input"
             ? std::string(family)
             : name;
}

}  // namespace

Result<HfImport> import_hf(std::string_view text,
                           const std::string& file,
                           const HfOptions& options) {
  for (const auto& [name, value, most] :
       {std::tuple{"the batch", options.batch, kMostHfSize},
        std::tuple{"the sequence length", options.seq.value_or(1), kMostHfSize},
        std::tuple{"the number of layers", options.layers.value_or(1), kMostHfLayers}}) {
    if (value >= 1 && value <= most) continue;
    return fail(ErrorCode::kUsage,
                "",
                std::string(name) + " is " + std::to_string(value) + ", expected 1 to " +
                    std::to_string(most));
  }
  if (options.past < 0 || options.past > kMostHfSize || (options.past > 0 && options.training)) {
    return fail(ErrorCode::kUsage,
                "",
                "a cache of " + std::to_string(options.past) + " tokens: expected 0 to " +
                    std::to_string(kMostHfSize) + ", and 0 in training");
  }
  if (options.past > 0 && options.eager_attention) {
    return fail(ErrorCode::kUsage,
                "",
                "eager attention has no cache: expected 0 tokens in it, there are " +
                    std::to_string(options.past));
  }
  const Result<JsonDocument> json = JsonDocument::parse(text, file);
  if (!json) return fail(json.error());
  const Result<JsonCursor> cursor = json->root().get("model_type");
  if (!cursor) return fail(cursor.error());
  const Result<std::string_view> type = cursor->as_string();
  if (!type) return fail(type.error());
  std::string_view known = *type;
  for (const auto& [name, same] : kOtherNames) {
    if (name == known) known = same;
  }
  const HfConfig config(json->root(), model_name(json->root(), file, *type), file);
  const auto checked = [&](const HfConfig& of) -> Result<void> {
    if (!options.eager_attention) return {};
    const Result<double> rate = attention_dropout(of);
    if (!rate) return fail(rate.error());
    return {};
  };
  if (auto ok = checked(config); !ok) return fail(ok.error());
  for (const HfDecoder& decoder : hf_decoders()) {
    if (decoder.model_type != known) continue;
    if (const auto text_part = config.root().find("text_config")) {
      const HfConfig part(*text_part, config.name(), file);
      if (auto ok = checked(part); !ok) return fail(ok.error());
      Result<HfImport> import = build_decoder(decoder, part, options);
      if (import) import->notes.emplace_back("only the model in text_config is imported");
      return import;
    }
    return build_decoder(decoder, config, options);
  }
  for (const HfFamily& family : kFamilies) {
    if (family.model_type != known) continue;
    if (options.past == 0) return family.build(config, options);
    return fail(
        ErrorCode::kUsage, "", "a cache is supported for decoders, not for " + std::string(known));
  }
  std::string list;
  for (const std::string& name : hf_model_types()) list += (list.empty() ? "" : ", ") + name;
  return cursor->error(ErrorCode::kUnsupported,
                       "model_type " + json_quote(type->substr(0, 60)) +
                           " is not supported; supported are: " + list +
                           nearest_name_hint(*type, hf_model_types()));
}

std::span<const std::string> hf_model_types() {
  static const std::vector<std::string> kTypes = [] {
    std::vector<std::string> types;
    for (const HfDecoder& decoder : hf_decoders()) types.emplace_back(decoder.model_type);
    for (const HfFamily& family : kFamilies) types.emplace_back(family.model_type);
    for (const auto& [name, same] : kOtherNames) types.emplace_back(name);
    std::sort(types.begin(), types.end());
    return types;
  }();
  return kTypes;
}

}  // namespace meshplan

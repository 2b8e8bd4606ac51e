// SPDX-License-Identifier: Apache-2.0
// meshplan import FORMAT FILE: another tool's description of a model -> graph JSON.
#include <memory>
#include <string>

#include <spdlog/spdlog.h>

#include "apps/command.h"
#include "graph/graph_document.h"
#include "graph/importers/hf.h"

namespace meshplan {
namespace {

struct ImportHfOptions {
  std::string config;
  std::string mode = "training";
  std::string attention = "fused";
  HfOptions model;
};

/// The weights of a document, counted on its resolved graph; resolving also proves it right.
Result<std::int64_t> count_parameters(const GraphDocument& document, bool training) {
  const Result<Graph> graph = resolve(document, GraphOptions{training, 1, false});
  if (!graph) return fail(graph.error());
  std::int64_t count = 0;
  for (const Tensor& tensor : graph->tensors) {
    if (tensor.role != Role::kParameter) continue;
    if (__builtin_add_overflow(count, element_count(tensor.shape), &count)) {
      return fail(
          ErrorCode::kOverflow, document.file, "the number of weights does not fit into 64 bits");
    }
  }
  return count;
}

int run_import_hf(const ImportHfOptions& options, const CommonOptions& common) {
  const Result<std::string> text = read_file(options.config);
  if (!text) return report(text.error());
  HfOptions model = options.model;
  model.training = options.mode == "training";
  model.eager_attention = options.attention == "eager";
  const Result<HfImport> import = import_hf(*text, input_name(options.config), model);
  if (!import) return report(import.error());
  for (const std::string& note : import->notes)
    spdlog::warn("{}: {}", input_name(options.config), note);
  const Result<std::int64_t> parameters = count_parameters(import->document, model.training);
  if (!parameters) return report(parameters.error());
  spdlog::info("{}: {} parameters, {} operators",
               import->document.name,
               *parameters,
               import->document.operators.size());
  if (auto ok = write_output(common.output, write_graph_document(import->document)); !ok) {
    return report(ok.error());
  }
  return kDone;
}

}  // namespace

RunCommand define_import(CLI::App& app, CommonOptions& common) {
  app.require_subcommand(0, 1);  // a missing format is reported below, a wrong one by its name
  auto options = std::make_shared<ImportHfOptions>();
  CLI::App* hf = app.add_subcommand("hf", "From a Hugging Face config.json (no weights needed)");
  hf->fallthrough();  // -o and the other common options may follow
  std::string families;
  for (const std::string& type : hf_model_types())
    families += (families.empty() ? "" : ", ") + type;
  hf->footer("Model types: " + families +
             "\nExample:\n  meshplan import hf config.json --batch 64 --seq 4096 -o model.json");
  hf->add_option("CONFIG", options->config, "The model's config.json (\"-\": standard input)")
      ->required();
  hf->add_option("--batch", options->model.batch, "Sequences per optimizer step, over all devices")
      ->required()
      ->check(CLI::Range(std::int64_t{1}, kMostHfSize))
      ->type_name("B");
  hf->add_option("--seq", options->model.seq, "Tokens per sequence (all models but of images)")
      ->check(CLI::Range(std::int64_t{1}, kMostHfSize))
      ->type_name("S");
  hf->add_option("--mode", options->mode, "With labels and a loss, or the forward pass alone")
      ->check(CLI::IsMember({"training", "inference"}))
      ->type_name("training|inference")
      ->capture_default_str();
  hf->add_option("--attention",
                 options->attention,
                 "One operator, or products, softmax and dropout, as before fused kernels")
      ->check(CLI::IsMember({"fused", "eager"}))
      ->type_name("fused|eager")
      ->capture_default_str();
  hf->add_option("--past",
                 options->model.past,
                 "With --mode inference: tokens in the cache of keys and values before these")
      ->check(CLI::Range(std::int64_t{0}, kMostHfSize))
      ->type_name("P")
      ->capture_default_str();
  hf->add_option("--layers", options->model.layers, "Layers instead of the config's number")
      ->check(CLI::Range(std::int64_t{1}, kMostHfLayers))
      ->type_name("N");
  refuse_empty_values(*hf);
  return [options, &common, hf] {
    if (!hf->parsed()) {
      return report({ErrorCode::kUsage,
                     "import",
                     "name the format to import: hf (meshplan import hf --help shows how)"});
    }
    return run_import_hf(*options, common);
  };
}

}  // namespace meshplan

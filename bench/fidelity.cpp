// SPDX-License-Identifier: Apache-2.0
// How near the cost model comes to published, measured training runs: every run whose model and
// degrees of parallelism are known is priced with exactly that configuration, and the predicted
// step time and memory stand beside the measured ones (docs/fidelity.md).
// Usage: fidelity FILE [--format text|json|markdown]
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "apps/cluster_reader.h"
#include "apps/command.h"
#include "graph/graph_document.h"
#include "graph/importers/hf.h"
#include "graph/json.h"
#include "search/baselines.h"

using namespace meshplan;

namespace {

/// A measured run, as the file has it; 0 and "" where it says nothing.
struct Run {
  std::string id;
  std::string model;
  std::string device;
  std::string data_parallel;  ///< kind: "ZeRO-1", "FSDP full shard", ...
  std::string recompute;
  std::string precision;
  bool from_memory = false;
  bool sequence_parallel = false;
  std::int64_t layers = 0;
  std::int64_t hidden = 0;
  std::int64_t heads = 0;
  std::int64_t seq = 0;
  std::int64_t vocab = 0;
  std::int64_t global_batch = 0;
  std::int64_t micro_batch = 0;
  std::int64_t dp = 0;
  std::int64_t tp = 0;
  std::int64_t pp = 0;
  std::int64_t cp = 0;
  std::int64_t devices = 0;
  double parameters = 0;
  double step_seconds = 0;
  double tokens_per_second = 0;  ///< per device
  double utilisation = 0;        ///< of the bf16 peak, percent; model FLOPs
  double memory_gib = 0;
};

/// Predicted and measured; a measured value of 0 is not known.
struct Comparison {
  Run run;
  std::string configuration;
  double predicted_time = 0;
  double measured_time = 0;
  double predicted_memory = 0;  ///< bytes
  double measured_memory = 0;
  Evaluation evaluation;
  std::int64_t microbatches = 1;
};

struct Skipped {
  std::string id;
  std::string reason;
};

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

Result<Run> read_run(const JsonCursor& row) {
  Run run;
  const auto text = [&](const char* key, std::string& into) {
    if (const auto at = row.find(key)) {
      if (const auto value = at->as_string()) into = *value;
    }
  };
  const auto flag = [&](const char* key, bool& into) {
    if (const auto at = row.find(key)) {
      if (const auto value = at->as_bool()) into = *value;
    }
  };
  const auto number = [&](const char* key, double& into) {
    if (const auto at = row.find(key)) {
      if (const auto value = at->as_double()) into = *value;
    }
  };
  const auto whole = [&](const char* key, std::int64_t& into) {
    if (const auto at = row.find(key)) {
      if (const auto value = at->as_int64()) into = *value;
    }
  };
  const auto id = row.get("id");
  if (!id) return fail(id.error());
  const auto name = id->as_string();
  if (!name) return fail(name.error());
  run.id = *name;
  text("model", run.model);
  text("gpu", run.device);
  text("dp_kind", run.data_parallel);
  text("recompute", run.recompute);
  text("precision", run.precision);
  flag("from_memory", run.from_memory);
  flag("sequence_parallel", run.sequence_parallel);
  whole("layers", run.layers);
  whole("hidden", run.hidden);
  whole("heads", run.heads);
  whole("seq", run.seq);
  whole("vocab", run.vocab);
  whole("global_batch", run.global_batch);
  whole("micro_batch", run.micro_batch);
  whole("dp", run.dp);
  whole("tp", run.tp);
  whole("pp", run.pp);
  whole("cp", run.cp);
  whole("n_gpus", run.devices);
  number("params_B", run.parameters);
  run.parameters *= 1e9;
  number("iter_time_s", run.step_seconds);
  number("tokens_per_s_per_gpu", run.tokens_per_second);
  number("mfu_pct", run.utilisation);
  number("memory_GB", run.memory_gib);
  return run;
}

/// The shipped cluster of a device type.
std::optional<std::string> cluster_of(const std::string& device) {
  struct Entry {
    const char* part;
    const char* cluster;
  };
  static constexpr Entry kClusters[] = {{"A100-80GB SXM", "dgx-a100-80g"},
                                        {"A100-40GB SXM", "dgx-a100-40g"},
                                        {"H100-80GB SXM", "dgx-h100"},
                                        {"H100-96GB", "h100-96g-500w"},
                                        {"H200", "dgx-h200"},
                                        {"V100-32GB", "dgx-v100-32g"},
                                        {"TPUv4", "tpu-v4"},
                                        {"Ascend 910B", "ascend-910b"}};
  for (const Entry& entry : kClusters) {
    if (contains(device, entry.part)) return entry.cluster;
  }
  return std::nullopt;
}

/// config.json of the run's model: the published one where the name says which, otherwise a GPT of
/// the run's sizes.
std::string config_of(const Run& run) {
  const std::string type = contains(run.precision, "fp16") ? "float16" : "bfloat16";
  const std::string sizes =
      "\"num_hidden_layers\": " + std::to_string(run.layers) +
      ", \"hidden_size\": " + std::to_string(run.hidden) +
      ", \"num_attention_heads\": " + std::to_string(run.heads) +
      ", \"vocab_size\": " + std::to_string(run.vocab) + ", \"torch_dtype\": \"" + type + "\"";
  if (contains(run.model, "Llama 3")) {  // heads share keys and values; a wide gated MLP
    const std::int64_t intermediate = run.hidden == 4096    ? 14336
                                      : run.hidden == 8192  ? 28672
                                      : run.hidden == 16384 ? 53248
                                                            : run.hidden * 7 / 2;
    return "{\"model_type\": \"llama\", " + sizes +
           ", \"num_key_value_heads\": 8, \"intermediate_size\": " + std::to_string(intermediate) +
           ", \"max_position_embeddings\": " + std::to_string(run.seq) +
           ", \"rms_norm_eps\": 1e-5, \"hidden_act\": \"silu\", \"tie_word_embeddings\": false}";
  }
  if (contains(run.model, "PaLM")) {  // one head of keys and values, a gated MLP of four widths
    return "{\"model_type\": \"llama\", " + sizes +
           ", \"num_key_value_heads\": 1, \"head_dim\": 256, \"intermediate_size\": " +
           std::to_string(4 * run.hidden) +
           ", \"max_position_embeddings\": " + std::to_string(run.seq) +
           ", \"rms_norm_eps\": 1e-5, \"hidden_act\": \"silu\", \"tie_word_embeddings\": true}";
  }
  return "{\"model_type\": \"gpt2\", \"n_layer\": " + std::to_string(run.layers) +
         ", \"n_embd\": " + std::to_string(run.hidden) +
         ", \"n_head\": " + std::to_string(run.heads) +
         ", \"n_positions\": " + std::to_string(run.seq) +
         ", \"vocab_size\": " + std::to_string(run.vocab) +
         ", \"activation_function\": \"gelu_new\", \"layer_norm_epsilon\": 1e-5, "
         "\"torch_dtype\": \"" +
         type + "\"}";
}

ParameterAction rest_of(const Run& run) {
  const std::string& kind = run.data_parallel;
  if (contains(kind, "FSDP") || contains(kind, "ZeRO-3") || contains(kind, "fully sharded"))
    return ParameterAction::kAll;
  if (contains(kind, "ZeRO-2")) return ParameterAction::kGradient;
  if (contains(kind, "ZeRO-1")) return ParameterAction::kState;
  return ParameterAction::kNone;
}

/// Why the run cannot be priced, or "".
std::string reason_to_skip(const Run& run) {
  if (run.from_memory) return "recalled, not seen in its source";
  if (run.pp > 1) return "pipeline parallel";
  if (run.layers < 1 || run.hidden < 1 || run.seq < 1) return "sizes of the model unknown";
  if (run.heads < 1 || run.vocab < 1) return "heads or vocabulary unknown";
  if (run.devices < 1 || run.global_batch < 1) return "devices or batch unknown";
  const std::int64_t others = std::max<std::int64_t>(run.tp, 1) * std::max<std::int64_t>(run.cp, 1);
  if (run.dp < 1 || run.pp < 1 || run.dp * others != run.devices)
    return "degrees of parallelism unknown, or not those of its devices";
  if (!(run.step_seconds > 0) && !(run.tokens_per_second > 0) && !(run.utilisation > 0))
    return "no time measured";
  if (!cluster_of(run.device)) return "no shipped cluster of the device type";
  const std::int64_t per_device = run.micro_batch > 0 ? run.micro_batch : 1;
  if (run.global_batch % run.dp != 0 || run.global_batch / run.dp % per_device != 0)
    return "the batch does not divide into its micro-batches";
  return "";
}

double measured_seconds(const Run& run, const Cluster& cluster) {
  const double tokens = static_cast<double>(run.global_batch) * static_cast<double>(run.seq);
  if (run.step_seconds > 0) return run.step_seconds;
  if (run.tokens_per_second > 0)
    return tokens / (run.tokens_per_second * static_cast<double>(run.devices));
  // model FLOPs as those who publish utilisation count them: 6 per parameter and token, and
  // 12 per layer, width and position for attention
  const double flops = (6 * run.parameters + 12.0 * static_cast<double>(run.layers) *
                                                 static_cast<double>(run.hidden) *
                                                 static_cast<double>(run.seq)) *
                       tokens;
  return flops / (run.utilisation / 100 * cluster.device.peak_flops.at(DType::kBf16) *
                  static_cast<double>(run.devices));
}

Result<Comparison> compare(const Run& run) {
  auto cluster = load_cluster(*cluster_of(run.device));
  if (cluster) cluster = cluster->resized(run.devices);
  if (!cluster) return fail(cluster.error());
  const auto imported =
      import_hf(config_of(run), run.id, {run.global_batch, run.seq, true, std::nullopt, 0});
  if (!imported) return fail(imported.error());

  Comparison made;
  made.run = run;
  const std::int64_t tp = std::max<std::int64_t>(run.tp, 1);
  const std::int64_t cp = std::max<std::int64_t>(run.cp, 1);
  made.microbatches = run.global_batch / run.dp / (run.micro_batch > 0 ? run.micro_batch
                                                                       : run.global_batch / run.dp);
  const auto graph = resolve(imported->document, {true, made.microbatches, false});
  if (!graph) return fail(graph.error());

  TextbookPlan plan;
  plan.rest = rest_of(run);
  MeshShape mesh;
  const auto add_axis = [&](const char* name, std::int64_t size, AxisRole role) {
    if (size == 1 && !mesh.shape.empty()) return;
    mesh.shape.push_back(size);
    mesh.axes.emplace_back(name);
    plan.axes.push_back(role);
    made.configuration += (made.configuration.empty() ? "" : " ") + std::string(name) +
                          std::to_string(size);
  };
  add_axis("dp", run.dp, AxisRole::kData);
  add_axis("cp", cp, AxisRole::kContext);
  add_axis("tp", tp, run.sequence_parallel ? AxisRole::kTensorSequence : AxisRole::kTensor);
  DpOptions options;
  options.prices.microbatches = made.microbatches;
  options.prices.overlap = cluster->efficiency.overlap;
  const double reserve = 1 + cluster->efficiency.allocator_reserve;
  options.memory_limit =
      static_cast<Bytes>(static_cast<double>(cluster->usable_memory()) / reserve);
  auto searched = search_textbook(plan, *graph, *cluster, {mesh}, options);
  if (!searched) return fail(searched.error());
  made.evaluation = std::move(searched->found.evaluation);
  made.predicted_time = made.evaluation.step_time.value;
  made.measured_time = measured_seconds(run, *cluster);
  made.predicted_memory = static_cast<double>(made.evaluation.peak) * reserve;
  made.measured_memory = run.memory_gib * 1024 * 1024 * 1024;
  return made;
}

/// Rank correlation of predicted and measured times (Spearman; equal values share a rank).
double rank_correlation(const std::vector<Comparison>& rows) {
  const auto ranks = [&](auto value) {
    std::vector<double> ranks(rows.size());
    for (std::size_t i = 0; i < rows.size(); ++i) {
      double below = 0;
      double equal = 0;
      for (const Comparison& other : rows) {
        below += value(other) < value(rows[i]) ? 1 : 0;
        equal += value(other) == value(rows[i]) ? 1 : 0;
      }
      ranks[i] = below + (equal + 1) / 2;
    }
    return ranks;
  };
  const std::vector<double> a = ranks([](const Comparison& row) { return row.predicted_time; });
  const std::vector<double> b = ranks([](const Comparison& row) { return row.measured_time; });
  const double mean = (static_cast<double>(rows.size()) + 1) / 2;
  double ab = 0;
  double aa = 0;
  double bb = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    ab += (a[i] - mean) * (b[i] - mean);
    aa += (a[i] - mean) * (a[i] - mean);
    bb += (b[i] - mean) * (b[i] - mean);
  }
  return aa > 0 && bb > 0 ? ab / std::sqrt(aa * bb) : 1;
}

double error_of(double predicted, double measured) { return predicted / measured - 1; }

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: fidelity FILE [--format text|json|markdown]\n");
    return 2;
  }
  const auto text = read_file(argv[1]);
  if (!text) return report(text.error());
  const auto document = JsonDocument::parse(*text, argv[1]);
  if (!document) return report(document.error());
  const auto rows = document->root().get("rows");
  if (!rows) return report(rows.error());
  std::vector<Comparison> compared;
  std::vector<Skipped> skipped;
  for (std::size_t i = 0; i < rows->size(); ++i) {
    const auto run = read_run(rows->at(i));
    if (!run) return report(run.error());
    std::string reason = reason_to_skip(*run);
    if (reason.empty()) {
      auto made = compare(*run);
      if (made) {
        compared.push_back(std::move(*made));
      } else {
        reason = made.error().message;
      }
    }
    if (!reason.empty()) skipped.push_back({run->id, reason});
  }
  for (const Comparison& c : compared) {
    const Evaluation& e = c.evaluation;
    std::printf("%s %-14s %-18s %-16s rec=%-9s m=%-3ld pred %9.3f meas %9.3f err %+6.1f%% mem %5.1f meas %5.1f  comp %.3f comm %.3f\n",
                c.run.id.c_str(), c.run.model.c_str(), c.run.device.c_str(), c.configuration.c_str(), c.run.recompute.c_str(), (long)c.microbatches,
                c.predicted_time, c.measured_time, 100 * error_of(c.predicted_time, c.measured_time),
                c.predicted_memory / (1024.0 * 1024 * 1024), c.run.memory_gib, e.compute.value, e.communication.value);
  }
  std::printf("%f\n", rank_correlation(compared));
  for (const Skipped& s : skipped) std::printf("skip %s %s\n", s.id.c_str(), s.reason.c_str());
  return 0;
}

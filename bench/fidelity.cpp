// SPDX-License-Identifier: Apache-2.0
// How near the cost model comes to published, measured training runs: every run whose model and
// degrees of parallelism are known is priced with exactly that configuration, and the predicted
// step time and memory stand beside the measured ones (docs/fidelity.md).
// Usage: fidelity FILE [--format text|json|markdown]
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <map>
#include <optional>
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
  bool fitted = false;
  std::array<double, 4> seconds{};  ///< of products, attention, other computation, exposed exchange
};
constexpr const char* kParts[] = {"products", "attention", "other computation", "exposed exchange"};

struct Skipped {
  std::string id;
  std::string reason;
};

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

/// What published tables leave out: heads of about 128, and the vocabulary of GPT-2 in multiples of
/// 1,024.
void assume_missing(Run& run) {
  if (run.vocab < 1) run.vocab = 51200;
  if (run.heads > 0 || run.hidden < 1) return;
  for (std::int64_t heads = 1; heads <= run.hidden; ++heads) {
    const auto distance = [&](std::int64_t of) {
      return std::abs(static_cast<double>(run.hidden) / static_cast<double>(of) - 128);
    };
    if (run.hidden % heads == 0 && (run.heads == 0 || distance(heads) < distance(run.heads)))
      run.heads = heads;
  }
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
  assume_missing(run);
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
  const std::string sizes = "\"num_hidden_layers\": " + std::to_string(run.layers) +
                            ", \"hidden_size\": " + std::to_string(run.hidden) +
                            ", \"num_attention_heads\": " + std::to_string(run.heads) +
                            ", \"vocab_size\": " + std::to_string(run.vocab) +
                            ", \"torch_dtype\": \"" + type + "\"";
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
  const double flops =
      (6 * run.parameters + 12.0 * static_cast<double>(run.layers) *
                                static_cast<double>(run.hidden) * static_cast<double>(run.seq)) *
      tokens;
  return flops / (run.utilisation / 100 * cluster.device.peak_flops.at(DType::kBf16) *
                  static_cast<double>(run.devices));
}

/// Whether the run set an efficiency of its device's cluster file: named by what it is, so that it
/// is recognised in any collection.
bool is_fitted(const Run& run) {
  struct Entry {
    const char* device;
    const char* model;
    std::int64_t seq;
    std::int64_t devices;
    const char* precision;
  };
  static constexpr Entry kFitted[] = {
      {"A100-80GB SXM", "MPT 13b", 2048, 8, "bf16"},
      {"A100-80GB SXM", "MPT 3b", 2048, 8, "bf16"},
      {"A100-80GB SXM", "MPT 13b", 8192, 8, "bf16"},
      {"A100-80GB SXM", "MPT 7b", 32768, 8, "bf16"},
      {"A100-80GB SXM", "MPT 1b", 8192, 8, "bf16"},
      {"A100-40GB SXM", "MPT 7b", 2048, 8, "bf16"},
      {"A100-40GB SXM", "MPT 13b", 2048, 128, "bf16"},
      {"A100-40GB SXM", "MPT 3b", 8192, 8, "bf16"},
      {"A100-40GB SXM", "MPT 1b", 2048, 8, "bf16"},
      {"A100-40GB SXM", "MPT 7b", 16384, 8, "bf16"},
      {"H100-80GB SXM", "MPT 7b", 2048, 8, "bf16"},
      {"H100-80GB SXM", "MPT 1b", 2048, 8, "bf16"},
      {"H100-80GB SXM", "MPT 13b", 1024, 8, "bf16"},
      {"H100-80GB SXM", "MPT 7b", 8192, 8, "bf16"},
      {"H100-80GB SXM", "MPT 3b", 16384, 8, "bf16"},
      {"H100-96GB (500 W)", "Llama 3.1 8B", 8192, 8, "bf16"},
      {"H100-96GB (500 W)", "Llama 3.1 8B", 8192, 8, "bf16+compile"},
      {"H100-96GB (500 W)", "Llama 3.1 8B", 32768, 8, "fp8+compile"},
  };
  return std::any_of(std::begin(kFitted), std::end(kFitted), [&](const Entry& entry) {
    return run.device == entry.device && run.model == entry.model && run.seq == entry.seq &&
           run.devices == entry.devices && run.precision == entry.precision;
  });
}

/// Where a step's time goes.
std::array<double, 4> split(DpResult& found, std::int64_t microbatches) {
  std::array<double, 4> seconds{};
  const Graph& graph = found.book->graph();
  for (std::size_t i = 0; i < graph.operators.size(); ++i) {
    const auto id = static_cast<OperatorId>(i);
    const OperatorPrice price = found.book->operator_price(id, found.assignment.strategies[i]);
    const OperatorFamily family = graph.op(id).rule->family;
    const std::size_t part = family == OperatorFamily::kMatMul      ? 0
                             : family == OperatorFamily::kAttention ? 1
                                                                    : 2;
    seconds[part] += static_cast<double>(microbatches) * (price.forward + price.backward).value;
  }
  const double compute = found.evaluation.compute.value;
  seconds[2] = compute - seconds[0] - seconds[1];  // with the optimizer
  seconds[3] = found.evaluation.step_time.value - compute;
  return seconds;
}

/// A compiler fuses what moves data: such passes reach the streaming rate of the memory, where
/// separate kernels with their casts reach what the cluster's file says.
void compile(Efficiency& efficiency) {
  constexpr double kStreaming = 0.85;
  for (FamilyEfficiency& family : efficiency.families)
    family.memory = std::max(family.memory, kStreaming);
}

Result<Comparison> compare(const Run& run) {
  auto cluster = load_cluster(*cluster_of(run.device));
  if (cluster) cluster = cluster->resized(run.devices);
  if (!cluster) return fail(cluster.error());
  if (contains(run.precision, "compile")) compile(cluster->efficiency);
  const auto imported =
      import_hf(config_of(run), run.id, {run.global_batch, run.seq, true, std::nullopt, 0});
  if (!imported) return fail(imported.error());

  Comparison made;
  made.run = run;
  const std::int64_t tp = std::max<std::int64_t>(run.tp, 1);
  const std::int64_t cp = std::max<std::int64_t>(run.cp, 1);
  const std::int64_t per_replica = run.global_batch / run.dp;
  const std::int64_t microbatches = run.micro_batch > 0 ? per_replica / run.micro_batch : 1;
  const auto graph = resolve(imported->document, {true, microbatches, false});
  if (!graph) return fail(graph.error());

  TextbookPlan plan;
  plan.rest = rest_of(run);
  MeshShape mesh;
  const auto add_axis = [&](const char* name, std::int64_t size, AxisRole role) {
    if (size == 1 && !mesh.shape.empty()) return;
    mesh.shape.push_back(size);
    mesh.axes.emplace_back(name);
    plan.axes.push_back(role);
    made.configuration +=
        (made.configuration.empty() ? "" : " ") + std::string(name) + std::to_string(size);
  };
  add_axis("dp", run.dp, AxisRole::kData);
  add_axis("cp", cp, AxisRole::kContext);
  add_axis("tp", tp, run.sequence_parallel ? AxisRole::kTensorSequence : AxisRole::kTensor);
  DpOptions options;
  options.prices.microbatches = microbatches;
  options.prices.overlap = cluster->efficiency.overlap;
  if (contains(run.precision, "fp8")) options.prices.product_dtype = DType::kFp8E4M3;
  auto recomputation =
      find_recomputation(*graph, parse_recompute(run.recompute).value_or(RecomputeOption::kNone));
  if (!recomputation) return fail(recomputation.error());
  options.prices.recomputation = std::move(*recomputation);
  const double reserve = 1 + cluster->efficiency.allocator_reserve;
  options.memory_limit =
      static_cast<Bytes>(static_cast<double>(cluster->usable_memory()) / reserve);
  auto searched = search_textbook(plan, *graph, *cluster, {mesh}, options);
  if (!searched) return fail(searched.error());
  const Evaluation& evaluation = searched->found.evaluation;
  made.predicted_time = evaluation.step_time.value;
  made.measured_time = measured_seconds(run, *cluster);
  made.predicted_memory = static_cast<double>(evaluation.peak) * reserve;
  made.fitted = is_fitted(run);
  made.seconds = split(searched->found, microbatches);
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

double time_error(const Comparison& row) { return row.predicted_time / row.measured_time - 1; }
double memory_error(const Comparison& row) {
  return row.predicted_memory / row.measured_memory - 1;
}

/// Errors of some rows: how large on average and at most, and in which direction.
struct Errors {
  std::size_t rows = 0;
  double mean = 0;
  double most = 0;
  double bias = 0;
};
template <class Error>
Errors errors_of(const std::vector<Comparison>& rows, Error error) {
  Errors errors;
  for (const Comparison& row : rows) {
    const double each = error(row);
    ++errors.rows;
    errors.mean += std::abs(each);
    errors.bias += each;
    errors.most = std::max(errors.most, std::abs(each));
  }
  if (errors.rows > 0) {
    errors.mean /= static_cast<double>(errors.rows);
    errors.bias /= static_cast<double>(errors.rows);
  }
  return errors;
}

std::string percent(double fraction, bool sign = false) {
  char text[32];
  std::snprintf(text, sizeof text, sign ? "%+.1f %%" : "%.1f %%", 100 * fraction);
  return text;
}
std::string fixed(double value, int digits) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

/// Lines of cells as aligned text or as a Markdown table.
void print_table(const std::vector<std::vector<std::string>>& lines, bool markdown) {
  std::vector<std::size_t> width(lines.front().size(), 0);
  for (const auto& line : lines) {
    for (std::size_t c = 0; c < line.size(); ++c) width[c] = std::max(width[c], line[c].size());
  }
  for (std::size_t l = 0; l < lines.size(); ++l) {
    std::string text = markdown ? "|" : "";
    for (std::size_t c = 0; c < width.size(); ++c) {
      if (markdown) {
        text += " " + lines[l][c] + " |";
      } else {
        text += lines[l][c] +
                std::string(c + 1 < width.size() ? width[c] - lines[l][c].size() + 2 : 0, ' ');
      }
    }
    std::printf("%s\n", text.c_str());
    if (l > 0 || !markdown) continue;
    std::string rule = "|";
    for (std::size_t c = 0; c < width.size(); ++c) rule += "---|";
    std::printf("%s\n", rule.c_str());
  }
}

void print_tables(const std::vector<Comparison>& rows,
                  const std::vector<Skipped>& skipped,
                  bool markdown) {
  std::vector<std::vector<std::string>> lines = {{"run",
                                                  "model",
                                                  "device",
                                                  "mesh",
                                                  "seq",
                                                  "recompute",
                                                  "measured s",
                                                  "predicted s",
                                                  "error",
                                                  "measured GiB",
                                                  "predicted GiB",
                                                  "error"}};
  constexpr double kGiB = 1024.0 * 1024 * 1024;
  for (const Comparison& row : rows) {
    const bool has_memory = row.measured_memory > 0;
    lines.push_back({row.run.id + (row.fitted ? " *" : ""),
                     row.run.model,
                     row.run.device,
                     row.configuration,
                     std::to_string(row.run.seq),
                     row.run.recompute,
                     fixed(row.measured_time, 3),
                     fixed(row.predicted_time, 3),
                     percent(time_error(row), true),
                     has_memory ? fixed(row.measured_memory / kGiB, 1) : "",
                     fixed(row.predicted_memory / kGiB, 1),
                     has_memory ? percent(memory_error(row), true) : ""});
  }
  print_table(lines, markdown);
  std::printf("\n* set an efficiency of its device; not in the errors below\n\n");

  std::map<std::string, std::vector<Comparison>> by_device;
  for (const Comparison& row : rows) {
    by_device[row.run.device].push_back(row);
    by_device["all"].push_back(row);
  }
  lines = {{"device",
            "runs",
            "mean error",
            "largest",
            "bias",
            "rank correlation of all",
            "runs with memory",
            "mean error",
            "largest",
            "bias"}};
  for (const auto& [device, all] : by_device) {
    std::vector<Comparison> tested;
    std::vector<Comparison> with_memory;
    for (const Comparison& row : all) {
      if (!row.fitted) tested.push_back(row);
      if (row.measured_memory > 0) with_memory.push_back(row);
    }
    const Errors time = errors_of(tested, time_error);
    const Errors memory = errors_of(with_memory, memory_error);
    lines.push_back({device,
                     std::to_string(time.rows),
                     percent(time.mean),
                     percent(time.most),
                     percent(time.bias, true),
                     device == "all" ? "" : fixed(rank_correlation(all), 3),
                     std::to_string(memory.rows),
                     percent(memory.mean),
                     percent(memory.most),
                     percent(memory.bias, true)});
  }
  print_table(lines, markdown);

  std::vector<Comparison> worst = rows;
  std::stable_sort(worst.begin(), worst.end(), [](const Comparison& a, const Comparison& b) {
    return std::abs(time_error(a)) > std::abs(time_error(b));
  });
  if (worst.size() > 5) worst.resize(5);
  std::printf("\nWhat the predicted time of the worst runs is made of\n\n");
  lines = {{"run", "error", kParts[0], kParts[1], kParts[2], kParts[3]}};
  for (const Comparison& row : worst) {
    lines.push_back({row.run.id, percent(time_error(row), true)});
    for (const double seconds : row.seconds)
      lines.back().push_back(percent(seconds / row.predicted_time));
  }
  print_table(lines, markdown);

  std::map<std::string, std::string> reasons;
  for (const Skipped& row : skipped) {
    std::string& ids = reasons[row.reason];
    ids += (ids.empty() ? "" : ", ") + row.id;
  }
  std::printf("\nSkipped\n\n");
  lines = {{"reason", "runs"}};
  for (const auto& [reason, ids] : reasons) lines.push_back({reason, ids});
  print_table(lines, markdown);
}

void print_json(const std::vector<Comparison>& rows, const std::vector<Skipped>& skipped) {
  JsonWriter writer;
  const auto known = [&](const char* key, double value) {
    writer.key(key);
    if (value > 0) {
      writer.value(value);
    } else {
      writer.null();
    }
  };
  writer.begin_object();
  writer.key("rows");
  writer.begin_array();
  for (const Comparison& row : rows) {
    writer.begin_object();
    writer.member("id", row.run.id);
    writer.member("predicted_time", row.predicted_time);
    writer.member("predicted_memory", row.predicted_memory);
    known("measured_time", row.measured_time);
    known("measured_memory", row.measured_memory);
    writer.end_object();
  }
  writer.end_array();
  writer.key("fitted");
  writer.begin_array(JsonWriter::kOneLine);
  for (const Comparison& row : rows) {
    if (row.fitted) writer.value(row.run.id);
  }
  writer.end_array();
  writer.key("skipped");
  writer.begin_array();
  for (const Skipped& row : skipped) {
    writer.begin_object();
    writer.member("id", row.id);
    writer.member("reason", row.reason);
    writer.end_object();
  }
  writer.end_array();
  writer.end_object();
  std::printf("%s\n", std::move(writer).text().c_str());
}

int usage() {
  std::fprintf(stderr, "usage: fidelity FILE [--format text|json|markdown]\n");
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  std::string file;
  std::string format = "text";
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--format" && i + 1 < argc) {
      format = argv[++i];
    } else if (file.empty() && !word.starts_with("--")) {
      file = word;
    } else {
      return usage();
    }
  }
  if (file.empty() || (format != "text" && format != "json" && format != "markdown"))
    return usage();
  const auto text = read_file(file);
  if (!text) return report(text.error());
  const auto document = JsonDocument::parse(*text, file);
  if (!document) return report(document.error());
  const auto list = document->root().get("rows");
  if (!list) return report(list.error());
  std::vector<Comparison> rows;
  std::vector<Skipped> skipped;
  for (std::size_t i = 0; i < list->size(); ++i) {
    const auto run = read_run(list->at(i));
    if (!run) return report(run.error());
    std::string reason = reason_to_skip(*run);
    if (reason.empty()) {
      auto made = compare(*run);
      if (made) {
        rows.push_back(std::move(*made));
      } else {
        reason = made.error().message;
      }
    }
    if (!reason.empty()) skipped.push_back({run->id, reason});
  }
  if (format == "json") {
    print_json(rows, skipped);
  } else {
    print_tables(rows, skipped, format == "markdown");
  }
  return 0;
}

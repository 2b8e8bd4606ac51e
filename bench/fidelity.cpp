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
#include <limits>
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
#include "plan/plan_summary.h"
#include "search/baselines.h"

using namespace meshplan;

namespace {

/// A measured run, as the file has it; 0 and "" where it says nothing.
struct Run {
  std::string id;
  std::string source;
  std::string model;
  std::string device;
  std::string data_parallel;  ///< kind: "ZeRO-1", "FSDP full shard", ...
  std::string recompute;
  std::string precision;
  std::string memory_unit;  ///< "GiB", otherwise GB
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
  double memory = 0;             ///< bytes per device
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

template <class T>
struct Field {
  const char* key;
  T Run::*member;
};
constexpr Field<std::string> kTexts[] = {{"source", &Run::source},
                                         {"model", &Run::model},
                                         {"gpu", &Run::device},
                                         {"dp_kind", &Run::data_parallel},
                                         {"recompute", &Run::recompute},
                                         {"precision", &Run::precision},
                                         {"memory_unit", &Run::memory_unit}};
constexpr Field<bool> kFlags[] = {{"from_memory", &Run::from_memory},
                                  {"sequence_parallel", &Run::sequence_parallel}};
constexpr Field<std::int64_t> kWholes[] = {{"layers", &Run::layers},
                                           {"hidden", &Run::hidden},
                                           {"heads", &Run::heads},
                                           {"seq", &Run::seq},
                                           {"vocab", &Run::vocab},
                                           {"global_batch", &Run::global_batch},
                                           {"micro_batch", &Run::micro_batch},
                                           {"dp", &Run::dp},
                                           {"tp", &Run::tp},
                                           {"pp", &Run::pp},
                                           {"cp", &Run::cp},
                                           {"n_gpus", &Run::devices}};
constexpr Field<double> kNumbers[] = {{"params_B", &Run::parameters},
                                      {"iter_time_s", &Run::step_seconds},
                                      {"tokens_per_s_per_gpu", &Run::tokens_per_second},
                                      {"mfu_pct", &Run::utilisation},
                                      {"memory_GB", &Run::memory}};
/// More than any run has; products of four of these stay within 64 bits.
constexpr std::int64_t kMostCount = 1 << 30;

/// Every field that the row has, converted by `read`. Errors: those of `read`.
template <class T, std::size_t kCount, class Read>
Result<void> read_fields(const JsonCursor& row,
                         const Field<T> (&fields)[kCount],
                         Run& run,
                         Read read) {
  for (const Field<T>& field : fields) {
    const std::optional<JsonCursor> at = row.find(field.key);
    if (!at) continue;
    auto value = read(*at);
    if (!value) return fail(value.error());
    run.*field.member = T(*value);
  }
  return {};
}

/// Keys that no table names are left alone: tables of runs hold more than is compared.
Result<Run> read_run(const JsonCursor& row) {
  const auto id = row.get("id");
  if (!id) return fail(id.error());
  const auto name = id->as_string();
  if (!name) return fail(name.error());
  Run run;
  run.id = *name;
  const auto number = [](const JsonCursor& at) -> Result<double> {
    const auto value = at.as_double();
    if (value && !(*value >= 0 && *value <= 1e15))
      return at.error(ErrorCode::kValue, "expected a number from 0 to 1e15");
    return value;
  };
  const Result<void> parts[] = {
      read_fields(row, kTexts, run, [](const JsonCursor& at) { return at.as_string(); }),
      read_fields(row, kFlags, run, [](const JsonCursor& at) { return at.as_bool(); }),
      read_fields(
          row, kWholes, run, [](const JsonCursor& at) { return at.as_int64(0, kMostCount); }),
      read_fields(row, kNumbers, run, number)};
  for (const Result<void>& part : parts) {
    if (!part) return fail(part.error());
  }
  run.parameters *= 1e9;
  run.memory *= run.memory_unit == "GiB" ? 1024.0 * 1024 * 1024 : 1e9;
  assume_missing(run);
  return run;
}

/// What a source's framework does its own way, and what its memory column counts.
struct Framework {
  const char* source;  ///< part of the source's name
  bool fused_loss;     ///< the cross-entropy is one kernel
  RecomputeOption selective;
  bool whole_device;  ///< memory with driver and libraries, not what the allocator reserved
  /// Attention of several kernels, with dropout; "selective" is to run these again.
  bool eager_attention;
  bool caching_allocator;  ///< PyTorch's
};
constexpr Framework kFrameworks[] = {
    {"torchtitan", false, RecomputeOption::kSelectiveOp, false, false, true},
    {"LLM Foundry", true, RecomputeOption::kSelective, false, false, true},
    // Megatron-LM before flash attention
    {"BigScience", true, RecomputeOption::kNone, true, true, true},
    {"Korthikanti", true, RecomputeOption::kNone, false, true, true},
    {"PaLM", true, RecomputeOption::kSelective, false, false, false},  // XLA
    {"", true, RecomputeOption::kSelective, false, false, true},
};

const Framework& framework_of(const Run& run) {
  return *std::find_if(std::begin(kFrameworks), std::end(kFrameworks), [&](const Framework& each) {
    return contains(run.source, each.source);
  });
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
         ", \"attn_pdrop\": 0.1, \"activation_function\": \"gelu_new\", \"layer_norm_epsilon\": "
         "1e-5, "
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
  if (!run.recompute.empty() && !parse_recompute(run.recompute))
    return "recomputation of another kind";
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

/// What a step takes longer where its memory exceeds what plans may use: such a run may fit by a
/// hair, but its allocator fails, frees its cache and asks again in every step. Measured by L.
/// Wright (github.com/lessw2020/transformer_central, FSDP on a vision transformer of 2 billion
/// parameters): one step of batch size below the first retries, 25 % more images per second.
constexpr double kAllocationRetries = 1.25;

/// Megatron-LM's softmax masks the scores as it reads them.
void mask_in_softmax(GraphDocument& document) {
  std::map<std::string, std::string> scores;  // by what the mask was added to them as
  std::erase_if(document.operators, [&](const OperatorDocument& op) {
    const bool masks = std::string_view(op.name).ends_with(".core.masked");
    if (masks) scores[op.outputs[0]] = op.inputs[0];
    return masks;
  });
  for (OperatorDocument& op : document.operators) {
    for (std::string& input : op.inputs) {
      if (const auto found = scores.find(input); found != scores.end()) input = found->second;
    }
  }
  std::erase_if(document.tensors, [](const TensorDocument& tensor) {
    return std::string_view(tensor.name).ends_with("causal_mask");
  });
}

/// The kernels of attention between its projections, run again in the backward.
RecomputeScopes attention_cores(const Graph& graph) {
  RecomputeScopes scopes;
  for (const Operator& op : graph.operators) {
    const bool core = std::string_view(op.scope).ends_with(".core");
    scopes.recompute.push_back(core ? std::optional(true) : std::nullopt);
    scopes.scope.push_back(op.scope);
  }
  return scopes;
}

Result<Comparison> compare(const Run& run) {
  auto cluster = load_cluster(*cluster_of(run.device));
  if (cluster) cluster = cluster->resized(run.devices);
  if (!cluster) return fail(cluster.error());
  if (contains(run.precision, "compile")) compile(cluster->efficiency);
  const Framework& framework = framework_of(run);
  HfOptions model;
  model.batch = run.global_batch;
  model.seq = run.seq;
  model.eager_attention = framework.eager_attention;
  auto imported = import_hf(config_of(run), run.id, model);
  if (!imported) return fail(imported.error());
  if (framework.eager_attention) mask_in_softmax(imported->document);
  for (OperatorDocument& op : imported->document.operators) {
    if (framework.fused_loss && op.type == "SoftmaxCrossEntropyLoss")
      op.attributes["fused"] = std::int64_t{1};
  }

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
  RecomputeOption recompute = parse_recompute(run.recompute).value_or(RecomputeOption::kNone);
  if (recompute == RecomputeOption::kSelective) recompute = framework.selective;
  const bool core = framework.eager_attention && contains(run.recompute, "selective");
  auto recomputation =
      find_recomputation(*graph, recompute, core ? attention_cores(*graph) : RecomputeScopes{});
  if (!recomputation) return fail(recomputation.error());
  options.prices.recomputation = std::move(*recomputation);
  const double reserve = 1 + cluster->efficiency.allocator_reserve;
  // A caching allocator is asked for what the configuration stores, whether it fits or not; a
  // compiler plans the memory of a step and arranges it to fit.
  const Bytes limit = cluster->plan_memory();
  options.memory_limit = framework.caching_allocator ? std::numeric_limits<Bytes>::max() : limit;
  auto searched = search_textbook(plan, *graph, *cluster, {mesh}, options);
  if (!searched) return fail(searched.error());
  const Evaluation& evaluation = searched->found.evaluation;
  made.predicted_time = evaluation.step_time.value;
  if (framework.caching_allocator && evaluation.peak > limit)
    made.predicted_time *= kAllocationRetries;
  made.measured_time = measured_seconds(run, *cluster);
  made.predicted_memory = static_cast<double>(evaluation.peak) * reserve;
  if (framework.whole_device)
    made.predicted_memory += static_cast<double>(cluster->device.reserved_memory);
  made.fitted = is_fitted(run);
  made.seconds = split(searched->found, microbatches);
  made.measured_memory = run.memory;
  return made;
}

/// Rank correlation of predicted and measured times (Spearman; equal values share a rank).
double rank_correlation(const std::vector<Comparison>& rows) {
  const auto ranks_by = [&](auto value) {
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
  const std::vector<double> a = ranks_by([](const Comparison& row) { return row.predicted_time; });
  const std::vector<double> b = ranks_by([](const Comparison& row) { return row.measured_time; });
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

/// A table with a heading; numbers are on the right.
SummaryTable table_of(std::string title, std::vector<std::string> columns, std::size_t texts) {
  std::vector<bool> right(columns.size(), true);
  std::fill_n(right.begin(), texts, false);
  return {std::move(title), std::move(columns), std::move(right), {}};
}

SummaryTable device_table(const std::vector<Comparison>& rows) {
  SummaryTable table = table_of("Errors by device, of runs that set nothing",
                                {"device",
                                 "runs",
                                 "mean error",
                                 "largest",
                                 "bias",
                                 "rank correlation of all",
                                 "runs with memory",
                                 "mean error",
                                 "largest",
                                 "bias"},
                                1);
  std::map<std::string, std::vector<Comparison>> by_device;
  for (const Comparison& row : rows) {
    by_device[row.run.device].push_back(row);
    by_device["all"].push_back(row);
  }
  for (const auto& [device, all] : by_device) {
    std::vector<Comparison> tested;
    std::vector<Comparison> with_memory;
    for (const Comparison& row : all) {
      if (row.fitted) continue;
      tested.push_back(row);
      if (row.measured_memory > 0) with_memory.push_back(row);
    }
    const Errors time = errors_of(tested, time_error);
    const Errors memory = errors_of(with_memory, memory_error);
    const bool any = memory.rows > 0;
    table.rows.push_back({device,
                          std::to_string(time.rows),
                          percent(time.mean),
                          percent(time.most),
                          percent(time.bias, true),
                          device == "all" ? "" : fixed(rank_correlation(all), 3),
                          std::to_string(memory.rows),
                          any ? percent(memory.mean) : "",
                          any ? percent(memory.most) : "",
                          any ? percent(memory.bias, true) : ""});
  }
  return table;
}

/// What the predicted time of the worst runs is made of.
SummaryTable worst_table(std::vector<Comparison> rows) {
  SummaryTable table = table_of("What the predicted time of the worst runs is made of",
                                {"run", "error", kParts[0], kParts[1], kParts[2], kParts[3]},
                                1);
  std::stable_sort(rows.begin(), rows.end(), [](const Comparison& a, const Comparison& b) {
    return std::abs(time_error(a)) > std::abs(time_error(b));
  });
  if (rows.size() > 5) rows.resize(5);
  for (const Comparison& row : rows) {
    table.rows.push_back({row.run.id, percent(time_error(row), true)});
    for (const double seconds : row.seconds)
      table.rows.back().push_back(percent(seconds / row.predicted_time));
  }
  return table;
}

SummaryTable run_table(const std::vector<Comparison>& rows) {
  SummaryTable table = table_of("All runs (* set an efficiency of its device)",
                                {"run",
                                 "model",
                                 "device",
                                 "mesh",
                                 "recompute",
                                 "seq",
                                 "measured s",
                                 "predicted s",
                                 "error",
                                 "measured GiB",
                                 "predicted GiB",
                                 "error"},
                                5);
  constexpr double kGiB = 1024.0 * 1024 * 1024;
  for (const Comparison& row : rows) {
    const bool has_memory = row.measured_memory > 0;
    table.rows.push_back({row.run.id + (row.fitted ? " *" : ""),
                          row.run.model,
                          row.run.device,
                          row.configuration,
                          row.run.recompute,
                          std::to_string(row.run.seq),
                          fixed(row.measured_time, 3),
                          fixed(row.predicted_time, 3),
                          percent(time_error(row), true),
                          has_memory ? fixed(row.measured_memory / kGiB, 1) : "",
                          fixed(row.predicted_memory / kGiB, 1),
                          has_memory ? percent(memory_error(row), true) : ""});
  }
  return table;
}

SummaryTable skipped_table(const std::vector<Skipped>& skipped) {
  constexpr std::size_t kIdsPerLine = 8;
  SummaryTable table = table_of("Not compared", {"reason", "runs"}, 2);
  std::map<std::string, std::vector<std::string>> reasons;
  for (const Skipped& row : skipped) reasons[row.reason].push_back(row.id);
  for (const auto& [reason, ids] : reasons) {
    for (std::size_t i = 0; i < ids.size(); ++i) {
      if (i % kIdsPerLine == 0) {
        table.rows.push_back({reason, ids[i]});
      } else {
        table.rows.back()[1] += ", " + ids[i];
      }
    }
  }
  return table;
}

void print_tables(const std::vector<Comparison>& rows,
                  const std::vector<Skipped>& skipped,
                  bool markdown) {
  Summary summary;
  summary.title = "Predicted against measured runs";
  const auto fitted =
      std::count_if(rows.begin(), rows.end(), [](const Comparison& row) { return row.fitted; });
  summary.facts = {{"runs compared", std::to_string(rows.size())},
                   {"of which set an efficiency", std::to_string(fitted)},
                   {"not compared", std::to_string(skipped.size())}};
  summary.tables = {device_table(rows), worst_table(rows), run_table(rows), skipped_table(skipped)};
  const std::string text = markdown ? summary_markdown(summary) : summary_text(summary);
  std::fputs(text.c_str(), stdout);
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

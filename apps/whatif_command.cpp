// SPDX-License-Identifier: Apache-2.0
// meshplan whatif GRAPH: the same job on other clusters, device counts, batches, memories,
// networks.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "apps/cluster_reader.h"
#include "apps/command.h"
#include "apps/constraints_reader.h"
#include "apps/progress_line.h"
#include "apps/search_options.h"
#include "apps/whatif_report.h"
#include "graph/graph_document.h"
#include "graph/quantity.h"
#include "lib/nearest_name.h"
#include "lib/text.h"
#include "plan/readable.h"
#include "search/propagation_search.h"

namespace meshplan {
namespace {

constexpr std::int64_t kMostBatch = std::int64_t{1} << 40;
constexpr double kMostNetworkFactor = 1e6;

struct WhatIfCommandOptions {
  std::string graph;
  std::vector<std::string> clusters;
  std::string devices;
  std::string batch;
  std::string memory;
  std::string network;
  int mesh_axes = 2;
  std::string mode = "training";
  std::string optimizer = "adamw";
  std::string microbatches = "1";
  std::string recompute = "none";
  std::string overlap;
  std::string constraints;
  std::string unknown_operators = "error";
  std::string csv;
  std::string plot;
  std::string shard;
  std::vector<std::string> merge;
};

// ---- The axes of the sweep ----------------------------------------------------------------------

std::vector<std::string> split_list(const std::string& text) {
  std::vector<std::string> parts;
  std::size_t begin = 0;
  while (begin <= text.size()) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    parts.emplace_back(trim(std::string_view(text).substr(begin, end - begin)));
    begin = end + 1;
  }
  return parts;
}

std::optional<std::int64_t> whole_number(std::string_view text, std::int64_t most) {
  std::int64_t value = 0;
  const auto [rest, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = status == std::errc() && rest == text.data() + text.size();
  if (!whole || value < 1 || value > most) return std::nullopt;
  return value;
}

/// "8,16,64" or "8..1024", which doubles from the first number on; both may be mixed. Without a
/// text: the one place that leaves everything as it is.
Result<std::vector<std::optional<std::int64_t>>> parse_counts(const std::string& option,
                                                              const std::string& text,
                                                              std::int64_t most) {
  std::vector<std::optional<std::int64_t>> values;
  if (text.empty()) return std::vector<std::optional<std::int64_t>>{std::nullopt};
  for (const std::string& part : split_list(text)) {
    const std::size_t dots = part.find("..");
    const auto first = whole_number(std::string_view(part).substr(0, dots), most);
    const auto last = dots == std::string::npos
                          ? first
                          : whole_number(std::string_view(part).substr(dots + 2), most);
    if (!first || !last || *last < *first)
      return usage(option,
                   meshplan::quoted(part) + ": expected a number from 1 to " +
                       std::to_string(most) + " or a range that doubles, e.g. 8,16,64 or 8..1024");
    for (std::int64_t value = *first; value <= *last; value *= 2) {
      if (std::find(values.begin(), values.end(), value) != values.end())
        return usage(option, std::to_string(value) + " is given twice");
      values.emplace_back(value);
    }
  }
  return values;
}

Result<std::vector<std::optional<Bytes>>> parse_memory(const std::string& text) {
  if (text.empty()) return std::vector<std::optional<Bytes>>{std::nullopt};
  std::vector<std::optional<Bytes>> values;
  for (const std::string& part : split_list(text)) {
    auto bytes = parse_bytes(part);
    if (!bytes || *bytes < 1)
      return usage("--memory",
                   meshplan::quoted(part) + ": expected the memory of a device, e.g. 40GiB,80GiB");
    if (std::find(values.begin(), values.end(), *bytes) != values.end())
      return usage("--memory", meshplan::quoted(part) + " is given twice");
    values.emplace_back(*bytes);
  }
  return values;
}

/// "0.5x,1x" or "ib=2x".
Result<std::vector<NetworkChange>> parse_network(const std::string& text,
                                                 const std::vector<Cluster>& clusters) {
  if (text.empty()) return std::vector<NetworkChange>{{}};
  std::vector<NetworkChange> values;
  for (const std::string& part : split_list(text)) {
    NetworkChange change;
    const std::size_t equals = part.rfind('=');
    if (equals != std::string::npos) change.level = std::string(trim(part.substr(0, equals)));
    auto factor =
        parse_quantity(equals == std::string::npos ? part : part.substr(equals + 1), Unit::kRatio);
    if (!factor || !(*factor >= 1 / kMostNetworkFactor && *factor <= kMostNetworkFactor))
      return usage("--network",
                   meshplan::quoted(part) +
                       ": expected a factor from 0.000001 to 1000000 for every level of the "
                       "network or, with its name, for one, e.g. 0.5x,1x,ib=2x");
    change.factor = *factor;
    for (const Cluster& cluster : clusters) {
      if (!change.level) break;
      std::vector<std::string> names;
      for (const Level& level : cluster.levels) names.push_back(level.name);
      if (std::find(names.begin(), names.end(), *change.level) != names.end()) continue;
      std::string known;
      for (const std::string& name : names) known += (known.empty() ? "" : ", ") + name;
      return usage("--network",
                   "cluster " + meshplan::quoted(cluster.name) + " has no level " +
                       meshplan::quoted(*change.level) + " (it has " + known + ")" +
                       nearest_name_hint(*change.level, names));
    }
    if (std::find(values.begin(), values.end(), change) != values.end())
      return usage("--network", meshplan::quoted(part) + " is given twice");
    values.push_back(std::move(change));
  }
  return values;
}

Result<WhatIfShard> parse_shard(const std::string& text) {
  const std::size_t slash = text.find('/');
  const auto refuse = [&] {
    return usage("--shard",
                 meshplan::quoted(text) +
                     ": expected i/n, part i (from 0) of n, e.g. 0/4, 1/4, 2/4 and 3/4");
  };
  if (slash == std::string::npos) return refuse();
  const std::string_view index = std::string_view(text).substr(0, slash);
  const auto most = static_cast<std::int64_t>(kMostWhatIfPoints);
  const auto count = whole_number(std::string_view(text).substr(slash + 1), most);
  const auto number = index == "0" ? std::optional<std::int64_t>(0) : whole_number(index, most);
  if (!count || !number || *number >= *count) return refuse();
  return WhatIfShard{static_cast<std::size_t>(*number), static_cast<std::size_t>(*count)};
}

Result<std::vector<Cluster>> load_clusters(const std::vector<std::string>& names) {
  std::vector<Cluster> clusters;
  for (const std::string& name : names) {
    auto cluster = load_cluster(name);
    if (!cluster) return fail(cluster.error());
    for (const Cluster& other : clusters) {
      if (other.name == cluster->name)
        return usage("--cluster",
                     "two clusters are called " + meshplan::quoted(other.name) +
                         "; results could not be told apart, give them different names");
    }
    clusters.push_back(std::move(*cluster));
  }
  return clusters;
}

/// The graph with another batch size. Errors: kUsage where it has none, or not of that size.
Result<void> set_batch(std::int64_t size, GraphDocument& document) {
  for (DimensionDocument& dimension : document.dimensions) {
    if (dimension.name != "batch") continue;
    const bool inside = (!dimension.min || size >= *dimension.min) &&
                        (!dimension.max || size <= *dimension.max) &&
                        (!dimension.multiple_of || size % *dimension.multiple_of == 0);
    if (inside) {
      dimension.size = size;
      return {};
    }
    std::string allowed;
    if (dimension.min) allowed += " from " + std::to_string(*dimension.min);
    if (dimension.max) allowed += " to " + std::to_string(*dimension.max);
    if (dimension.multiple_of)
      allowed += " in multiples of " + std::to_string(*dimension.multiple_of);
    return usage(
        "--batch",
        std::to_string(size) + " is not possible: the graph's dimension \"batch\" goes" + allowed);
  }
  std::string names;
  for (const DimensionDocument& dimension : document.dimensions)
    names += (names.empty() ? "" : ", ") + dimension.name;
  return usage("--batch",
               "the graph names no dimension \"batch\", so its batch cannot be changed (its "
               "dimensions: " +
                   (names.empty() ? "none" : names) + ")");
}

// ---- The sweep ----------------------------------------------------------------------------------

/// All that is asked, read and checked.
struct WhatIfRequest {
  WhatIfSweep sweep;
  WhatIfReport report;  ///< without points
  std::optional<Constraints> constraints;
};

Result<WhatIfBatch> resolve_batch(const GraphDocument& document,
                                  std::optional<std::int64_t> size,
                                  const WhatIfCommandOptions& options,
                                  const std::optional<Constraints>& constraints) {
  GraphDocument changed = document;
  if (size) {
    if (auto done = set_batch(*size, changed); !done) return fail(done.error());
  }
  WhatIfBatch batch;
  for (const DimensionDocument& dimension : changed.dimensions) {
    if (dimension.name == "batch") batch.size = dimension.size;
  }
  auto counts = parse_microbatches(options.microbatches, changed);
  if (!counts) return fail(counts.error());
  batch.microbatches = std::move(*counts);
  for (const std::int64_t count : batch.microbatches) {
    if (size && *size % count != 0)
      return usage("--batch",
                   std::to_string(*size) + " cannot be divided into " +
                       counted(static_cast<std::size_t>(count), "micro-batch", "micro-batches") +
                       " (--microbatches)");
    auto graph = resolve(
        changed, {options.mode == "training", count, options.unknown_operators == "replicate"});
    if (!graph) {
      Error error = graph.error();
      if (size) error.message += " (with --batch " + std::to_string(*size) + ")";
      return fail(std::move(error));
    }
    batch.graphs.push_back(std::move(*graph));
  }
  const Graph& graph = batch.graphs.front();
  if (auto done = check_has_operators(graph, input_name(options.graph)); !done)
    return fail(done.error());
  RecomputeScopes scopes;
  if (constraints) {
    if (auto done = check_constraints(*constraints, graph); !done) return fail(done.error());
    auto made = recompute_scopes(*constraints, graph);
    if (!made) return fail(made.error());
    scopes = std::move(*made);
  }
  auto recomputation = find_recomputation(graph, *parse_recompute(options.recompute), scopes);
  if (!recomputation)
    return fail(recomputation.error().code, "--recompute", recomputation.error().message);
  batch.recomputation = std::move(*recomputation);
  return batch;
}

/// Every number of devices must be possible on some cluster, every memory larger than what some
/// cluster reserves: what is impossible everywhere is a slip.
Result<void> check_machines(const WhatIfSweep& sweep) {
  for (std::size_t d = 0; d < sweep.devices.size(); ++d) {
    std::optional<Error> first;
    bool possible = false;
    for (std::size_t c = 0; c < sweep.clusters.size(); ++c) {
      WhatIfPlace place;
      place.cluster = c;
      place.devices = d;
      const auto machine = machine_of(sweep, place);
      possible = possible || machine.has_value();
      if (!machine && !first) first = machine.error();
    }
    if (!possible) return fail(*first);
  }
  for (const auto& memory : sweep.memory) {
    const Cluster* least = nullptr;
    for (const Cluster& cluster : sweep.clusters) {
      if (least == nullptr || cluster.device.reserved_memory < least->device.reserved_memory)
        least = &cluster;
    }
    if (memory && *memory <= least->device.reserved_memory)
      return usage("--memory",
                   readable_bytes(*memory) + " leave nothing for a plan: cluster " +
                       meshplan::quoted(least->name) + " reserves " +
                       readable_bytes(least->device.reserved_memory) + " of each device");
  }
  return {};
}

std::map<std::string, std::string> options_of(const WhatIfCommandOptions& options,
                                              const CommonOptions& common) {
  std::map<std::string, std::string> made = {{"mode", options.mode},
                                             {"optimizer", options.optimizer},
                                             {"microbatches", options.microbatches},
                                             {"recompute", options.recompute},
                                             {"mesh_axes", std::to_string(options.mesh_axes)},
                                             {"seed", std::to_string(common.seed)}};
  if (!options.overlap.empty()) made["overlap"] = options.overlap;
  if (!options.constraints.empty()) made["constraints"] = options.constraints;
  if (options.unknown_operators != "error") made["unknown_operators"] = options.unknown_operators;
  return made;
}

Result<std::unique_ptr<WhatIfRequest>> read_what_if_request(const WhatIfCommandOptions& options,
                                                            const CommonOptions& common) {
  std::vector<std::string> inputs = options.clusters;
  inputs.insert(inputs.end(), {options.graph, options.constraints});
  if (auto done = check_inputs(inputs); !done) return fail(done.error());
  auto request = std::make_unique<WhatIfRequest>();
  WhatIfSweep& sweep = request->sweep;
  WhatIfReport& report = request->report;
  auto clusters = load_clusters(options.clusters);
  if (!clusters) return fail(clusters.error());
  sweep.clusters = std::move(*clusters);
  auto devices = parse_counts("--devices", options.devices, kMaxDevices);
  if (!devices) return fail(devices.error());
  sweep.devices = std::move(*devices);
  auto batches = parse_counts("--batch", options.batch, kMostBatch);
  if (!batches) return fail(batches.error());
  auto memory = parse_memory(options.memory);
  if (!memory) return fail(memory.error());
  sweep.memory = std::move(*memory);
  auto network = parse_network(options.network, sweep.clusters);
  if (!network) return fail(network.error());
  sweep.network = std::move(*network);
  if (auto done = check_machines(sweep); !done) return fail(done.error());
  auto changes = parse_overlap(options.overlap);
  if (!changes) return fail(changes.error());
  sweep.overlap = [changes = std::move(*changes)](Overlap& overlap) { apply(changes, overlap); };
  if (!options.shard.empty()) {
    auto shard = parse_shard(options.shard);
    if (!shard) return fail(shard.error());
    report.shard = *shard;
  }
  report.batch = std::move(*batches);
  report.devices = sweep.devices;
  report.memory = sweep.memory;
  report.network = sweep.network;
  for (const Cluster& cluster : sweep.clusters)
    report.clusters.push_back({cluster.name, cluster.fingerprint});
  if (!report.grid().countable())
    return usage("whatif",
                 "the product of clusters, devices, batches, memories and networks has more than " +
                     readable_count(static_cast<std::int64_t>(kMostWhatIfPoints)) + " points");

  auto text = read_file(options.graph);
  if (!text) return fail(text.error());
  auto document = read_graph_document(*text, input_name(options.graph));
  if (!document) return fail(document.error());
  if (!options.constraints.empty()) {
    auto constraints = load_constraints(options.constraints);
    if (!constraints) return fail(constraints.error());
    if (constraints->mesh)
      return fail(ErrorCode::kConflict,
                  input_name(options.constraints) + ": /mesh",
                  "these constraints are for one mesh, and whatif looks at the meshes of many "
                  "machines; constraints without a mesh hold on all");
    request->constraints = std::move(*constraints);
    sweep.restrictions = restrictions_of(request->constraints);
  }
  for (const auto& size : report.batch) {
    auto batch = resolve_batch(*document, size, options, request->constraints);
    if (!batch) return fail(batch.error());
    sweep.batches.push_back(std::move(*batch));
  }
  sweep.mesh_axes = options.mesh_axes;
  sweep.search.prices.optimizer = *parse_optimizer(options.optimizer);
  sweep.search.threads = threads_of(common);
  report.generator_version = MESHPLAN_VERSION;
  report.graph = {document->name, fingerprint(*document)};
  report.options = options_of(options, common);
  return request;
}

Result<WhatIfReport> merged_report(const WhatIfCommandOptions& options) {
  if (auto done = check_inputs(options.merge); !done) return fail(done.error());
  std::vector<WhatIfReport> parts;
  std::vector<std::string> names;
  for (const std::string& file : options.merge) {
    auto text = read_file(file);
    if (!text) return fail(text.error());
    auto part = read_what_if(*text, input_name(file));
    if (!part) return fail(part.error());
    parts.push_back(std::move(*part));
    names.push_back(input_name(file));
  }
  return merge_what_if(std::move(parts), names);
}

// ---- Printing -----------------------------------------------------------------------------------

/// Each result goes to a place of its own, and a part is JSON.
Result<void> check_what_if_outputs(const WhatIfCommandOptions& options,
                                   const CommonOptions& common) {
  const OutputFile outputs[] = {
      {"-o", common.output}, {"--csv", options.csv}, {"--plot", options.plot}};
  std::vector<std::string> inputs = options.clusters;
  inputs.insert(inputs.end(), {options.graph, options.constraints});
  inputs.insert(inputs.end(), options.merge.begin(), options.merge.end());
  if (auto done = check_outputs(outputs, inputs); !done) return fail(done.error());
  if (!options.shard.empty()) {
    if (common.format == "markdown")
      return usage("--format", "a part (--shard) is JSON, which --merge reads");
    if (!options.csv.empty() || !options.plot.empty())
      return usage(options.csv.empty() ? "--plot" : "--csv",
                   "is for a whole sweep; give it with --merge");
  }
  return {};
}

int print_what_if(const WhatIfReport& report,
                  const WhatIfCommandOptions& options,
                  const CommonOptions& common) {
  const bool any_plan =
      std::any_of(report.points.begin(), report.points.end(), [](const WhatIfPoint& point) {
        return point.plan.has_value();
      });
  // a part has done what it should, whatever came out
  const bool nothing = !any_plan && !report.shard;
  if (!options.csv.empty() && !nothing) {
    if (auto done = write_output(options.csv, what_if_csv(report)); !done)
      return meshplan::report(done.error());
  }
  if (!options.plot.empty() && !nothing) {
    if (auto done = write_output(options.plot, what_if_plot(report)); !done)
      return meshplan::report(done.error());
  }
  // a sheet or a picture on standard output stands there alone
  const bool taken = (options.csv == "-" || options.plot == "-") && !nothing;
  if (!taken || (!common.output.empty() && common.output != "-")) {
    const std::string shown = common.format == "json" || report.shard ? write_what_if(report)
                              : common.format == "markdown" ? summary_markdown(summarise(report))
                                                            : summary_text(summarise(report));
    if (auto done = write_output(nothing ? "" : common.output, shown); !done)
      return meshplan::report(done.error());
  }
  if (!nothing) return kDone;
  meshplan::report({ErrorCode::kConflict,
                    "",
                    "no point of the sweep has a plan; the result on standard output says what is "
                    "missing at each"});
  return kNoPlan;
}

int run_what_if(const WhatIfCommandOptions& options, const CommonOptions& common) {
  if (auto done = check_what_if_outputs(options, common); !done) return report(done.error());
  if (!options.merge.empty()) {
    const auto merged = merged_report(options);
    if (!merged) return report(merged.error());
    return print_what_if(*merged, options, common);
  }
  auto request = read_what_if_request(options, common);
  if (!request) return report(request.error());
  WhatIfReport& made = (*request)->report;
  {
    ProgressLine line(common, "planning the first points");
    made.points = what_if(
        (*request)->sweep,
        made.shard.value_or(WhatIfShard{}),
        [&](std::size_t done, std::size_t all) {
          line.show(std::to_string(done) + " of " + std::to_string(all) + " points planned");
        });
  }
  return print_what_if(made, options, common);
}

}  // namespace

RunCommand define_whatif(CLI::App& app, CommonOptions& common) {
  auto options = std::make_shared<WhatIfCommandOptions>();
  CLI::Option* const graph = app.add_option(
      "GRAPH", options->graph, "Computation graph, meshplan.graph/1.0 (\"-\": standard input)");
  CLI::Option* const cluster =
      app.add_option("--cluster",
                     options->clusters,
                     "Cluster file, or the name of a shipped one (may be repeated)")
          ->type_name("C")
          ->allow_extra_args(false);
  app.add_option("--devices",
                 options->devices,
                 "Numbers of devices: a list, 8,16,64, or a range that doubles, 8..1024 (default: "
                 "as many as each cluster has)")
      ->type_name("N,...");
  app.add_option("--batch",
                 options->batch,
                 "Sizes of the graph's dimension \"batch\", a list or a range that doubles "
                 "(default: the graph's)")
      ->type_name("B,...");
  app.add_option("--memory",
                 options->memory,
                 "Memory sizes of a device, e.g. 40GiB,80GiB (default: the cluster's)")
      ->type_name("SIZE,...");
  app.add_option("--network",
                 options->network,
                 "Bandwidths of the network against the cluster's, e.g. 0.5x,1x,2x: of every "
                 "level, or of one, e.g. ib=2x")
      ->type_name("F,...");
  app.add_option("--mesh-axes",
                 options->mesh_axes,
                 "Search meshes of up to so many axes; plan takes 3, which takes longer and is "
                 "seldom better")
      ->check(CLI::Range(1, kMostSearchedAxes))
      ->type_name("1|2|3")
      ->capture_default_str();
  add_step_options(app,
                   {options->mode,
                    options->optimizer,
                    options->microbatches,
                    options->recompute,
                    options->overlap,
                    options->unknown_operators});
  app.add_option("--constraints",
                 options->constraints,
                 "What is fixed, meshplan.constraints/1.0 without a mesh")
      ->type_name("FILE");
  CLI::Option* const csv =
      app.add_option("--csv", options->csv, "Also write a line per point")->type_name("FILE");
  CLI::Option* const plot =
      app.add_option("--plot",
                     options->plot,
                     "Also draw throughput and scaling efficiency over devices, as SVG")
          ->type_name("FILE");
  app.add_option("--shard",
                 options->shard,
                 "Plan only part i (from 0) of n and print it as JSON for --merge: one sweep on n "
                 "machines")
      ->type_name("i/n");
  CLI::Option* const merge =
      app.add_option("--merge",
                     options->merge,
                     "Join the parts of a sweep; the result is that of a run without --shard")
          ->type_name("FILE ...");
  refuse_empty_values(app);
  std::vector<const CLI::Option*> of_sweep;
  for (const CLI::Option* option : app.get_options()) {
    const bool help = option == app.get_help_ptr();
    if (option != csv && option != plot && option != merge && !help) of_sweep.push_back(option);
  }
  return [options, &common, graph, cluster, of_sweep] {
    for (const CLI::Option* option : of_sweep) {
      if (!options->merge.empty() && option->count() > 0)
        return report({ErrorCode::kUsage,
                       option->get_name(),
                       "--merge joins what is planned already; this option belongs to the runs "
                       "that made the parts"});
    }
    if (options->merge.empty() && graph->count() == 0)
      return report({ErrorCode::kUsage, "GRAPH", "expected a graph to plan, or parts (--merge)"});
    if (options->merge.empty() && cluster->count() == 0)
      return report({ErrorCode::kUsage, "--cluster", "expected at least one cluster"});
    return run_what_if(*options, common);
  };
}

}  // namespace meshplan

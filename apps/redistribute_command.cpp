// SPDX-License-Identifier: Apache-2.0
// meshplan redistribute: the collectives between two layouts of one tensor, from the command line
// or many with --batch. A single request is turned into a batch request, so that both answer alike.
#include <algorithm>
#include <array>
#include <cstdio>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "apps/batch.h"
#include "apps/cluster_reader.h"
#include "apps/command.h"
#include "apps/mesh_json.h"
#include "cost_model/collective_model.h"
#include "graph/dtype.h"
#include "lib/device_mesh.h"
#include "lib/layout.h"
#include "lib/nearest_name.h"
#include "lib/redistribution.h"
#include "lib/redistribution_between.h"
#include "lib/redistribution_policies.h"
#include "lib/redistribution_replay.h"
#include "lib/redistribution_verify.h"

namespace meshplan {
namespace {

/// Groups are written out for at most this many devices.
constexpr std::int64_t kMostDevices = std::int64_t{1} << 16;
/// Planners are kept for this many meshes; beyond, all are made anew.
constexpr std::size_t kMostPlanners = 64;

// ---- Prices ----

/// One level of 100 GB/s and 1 us; local passes at 2 TB/s of memory bandwidth.
Cluster default_cluster(std::int64_t devices) {
  Cluster cluster;
  cluster.name = "default";
  cluster.device.name = "device";
  cluster.device.memory_bandwidth = 2e12;
  Level level;
  level.name = "network";
  level.size = std::max<std::int64_t>(devices, 1);
  level.bandwidth = 100e9;
  level.latency = {1e-6};
  cluster.levels.push_back(std::move(level));
  return cluster;
}

/// The clusters and planners of a run, made once each.
class Prices {
 public:
  Result<CollectivePrice> of(const DeviceMesh& mesh, const std::string& cluster_name) {
    if (cluster_name.empty()) {
      return price_of(CollectiveModel::make(default_cluster(mesh.size()), mesh.shape()));
    }
    auto found = clusters_.find(cluster_name);
    if (found == clusters_.end()) {
      found = clusters_.emplace(cluster_name, load_cluster(cluster_name)).first;
    }
    if (!found->second) return fail(found->second.error());
    return price_of(CollectiveModel::make(*found->second, mesh.shape(), mesh.ranks()));
  }

  Result<RedistributionPlanner*> planner(const DeviceMesh& mesh, const std::string& cluster_name) {
    const std::string key = cluster_name + "\n" + mesh.hash_text();
    const auto found = planners_.find(key);
    if (found != planners_.end()) return found->second.get();
    Result<CollectivePrice> price = of(mesh, cluster_name);
    if (!price) return fail(price.error());
    if (planners_.size() >= kMostPlanners) planners_.clear();
    auto planner = std::make_unique<RedistributionPlanner>(
        std::vector<std::int64_t>(mesh.shape().begin(), mesh.shape().end()), *std::move(price));
    return planners_.emplace(key, std::move(planner)).first->second.get();
  }

 private:
  static Result<CollectivePrice> price_of(Result<CollectiveModel> model) {
    if (!model) return fail(model.error().code, "/mesh", model.error().message);
    auto shared = std::make_shared<const CollectiveModel>(*std::move(model));
    return CollectivePrice([shared](const CollectiveCall& call) { return shared->time(call); });
  }

  std::map<std::string, Result<Cluster>> clusters_;
  std::map<std::string, std::unique_ptr<RedistributionPlanner>> planners_;
};

// ---- Requests ----

struct Options {
  std::string mesh;
  std::string ranks;
  std::string to_mesh;
  std::string to_ranks;
  std::string shape;
  std::string dtype = "bf16";
  std::string from;
  std::string to;
  std::string from_map;
  std::string to_map;
  std::string cluster;
  std::string policy = "cheapest";
  std::string batch;
  bool verify = false;
};

enum class Policy : std::uint8_t { kCheapest, kHyperParallel, kShardy };

struct Request {
  DeviceMesh mesh;
  std::optional<DeviceMesh> to_mesh;
  std::vector<std::int64_t> shape;
  Bytes dtype_bytes = 2;
  Placements from;
  Placements to;
  Policy policy = Policy::kCheapest;
  std::string cluster;
  bool verify = false;

  const DeviceMesh& goal_mesh() const { return to_mesh ? *to_mesh : mesh; }
};

/// `side` is "from" or "to": placements, or a tensor map with the reductions pending beside it.
Result<Placements> read_side(const JsonCursor& request,
                             const std::string& side,
                             const DeviceMesh& mesh,
                             int rank) {
  const auto placements = given(request, side);
  const auto map = given(request, side + "_map");
  const auto partial = given(request, side + "_partial");
  if (placements && (map || partial)) {
    return (map ? *map : *partial)
        .error(ErrorCode::kConflict, "\"" + side + "\" says the same already; give one of the two");
  }
  if (placements) {
    Result<Placements> read = read_placements(*placements);
    if (!read) return read;
    Result<Layout> layout = Layout::from_placements(mesh, *read, rank);
    if (!layout) return error_at(*placements, layout.error());
    return layout->placements();
  }
  if (!map) {
    return request.error(ErrorCode::kMissing,
                         "\"" + side + "\" (placements) or \"" + side + "_map\" is missing");
  }
  Result<TensorMap> entries = read_tensor_map(*map);
  if (!entries) return fail(entries.error());
  PartialList reductions;
  if (partial) {
    Result<PartialList> read = read_partial(*partial);
    if (!read) return fail(read.error());
    reductions = *std::move(read);
  }
  if (static_cast<int>(entries->size()) != rank) {
    return map->error(ErrorCode::kValue,
                      "expected one entry per tensor dimension (" + std::to_string(rank) +
                          "), found " + std::to_string(entries->size()));
  }
  Result<Layout> layout = Layout::from_tensor_map(mesh, *entries, reductions);
  if (!layout) {
    Error error = layout.error();
    const std::string_view of_partial = "/partial";
    if (!partial || !error.where.starts_with(of_partial)) return error_at(*map, error);
    error.where.erase(0, of_partial.size());
    return error_at(*partial, error);
  }
  return layout->placements();
}

Result<Policy> policy_of(std::string_view name) {
  static const std::vector<std::string> kNames = {"cheapest", "hyper-parallel", "shardy"};
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) return static_cast<Policy>(i);
  }
  return fail(ErrorCode::kValue,
              "",
              "unknown policy \"" + std::string(name) +
                  "\", expected cheapest, hyper-parallel or shardy" +
                  nearest_name_hint(name, kNames));
}

Result<DeviceMesh> read_small_mesh(const JsonCursor& value) {
  Result<DeviceMesh> mesh = read_mesh(value);
  if (mesh && mesh->size() > kMostDevices) {
    return value.error(ErrorCode::kUnsupported,
                       "redistribute writes every group out and takes at most " +
                           std::to_string(kMostDevices) + " devices, this mesh has " +
                           std::to_string(mesh->size()));
  }
  return mesh;
}

/// `options` of the command line are the defaults of a batch.
Result<Request> read_request(const JsonCursor& value, const Options& options) {
  if (auto ok = value.allow_only({"mesh",
                                  "to_mesh",
                                  "shape",
                                  "dtype",
                                  "policy",
                                  "cluster",
                                  "from",
                                  "to",
                                  "from_map",
                                  "to_map",
                                  "from_partial",
                                  "to_partial",
                                  "verify"});
      !ok) {
    return fail(ok.error());
  }
  Result<JsonCursor> mesh_value = value.get("mesh");
  if (!mesh_value) return fail(mesh_value.error());
  Result<DeviceMesh> mesh = read_small_mesh(*mesh_value);
  if (!mesh) return fail(mesh.error());
  Request request{*mesh, {}, {}, 2, {}, {}, Policy::kCheapest, options.cluster, options.verify};
  if (const auto to_mesh = given(value, "to_mesh")) {
    Result<DeviceMesh> other = read_small_mesh(*to_mesh);
    if (!other) return fail(other.error());
    if (!(*other == *mesh)) request.to_mesh = *std::move(other);
  }
  Result<JsonCursor> shape_value = value.get("shape");
  if (!shape_value) return fail(shape_value.error());
  Result<std::vector<std::int64_t>> shape = read_shape(*shape_value);
  if (!shape) return fail(shape.error());
  request.shape = *std::move(shape);
  if (const auto dtype = given(value, "dtype")) {
    Result<std::string_view> name = dtype->as_string();
    if (!name) return fail(name.error());
    const std::optional<DType> type = parse_dtype(*name);
    if (!type) {
      return dtype->error(
          ErrorCode::kValue,
          "unknown dtype \"" + std::string(*name) + "\"" + nearest_name_hint(*name, dtype_names()));
    }
    request.dtype_bytes = dtype_bytes(*type);
  }
  if (const auto policy = given(value, "policy")) {
    Result<std::string_view> name = policy->as_string();
    if (!name) return fail(name.error());
    Result<Policy> read = policy_of(*name);
    if (!read) return error_at(*policy, read.error());
    request.policy = *read;
    if (request.policy != Policy::kCheapest && request.to_mesh) {
      return policy->error(ErrorCode::kUnsupported,
                           "only the policy cheapest goes from one mesh to another");
    }
  }
  if (const auto cluster = given(value, "cluster")) {
    Result<std::string_view> name = cluster->as_string();
    if (!name) return fail(name.error());
    if (name->empty() || *name == "-")
      return cluster->error(ErrorCode::kValue, "expected a cluster file or name");
    request.cluster = *name;
  }
  if (const auto verify = given(value, "verify")) {
    Result<bool> flag = verify->as_bool();
    if (!flag) return fail(flag.error());
    request.verify = *flag;
  }
  const int rank = static_cast<int>(request.shape.size());
  Result<Placements> from = read_side(value, "from", request.mesh, rank);
  if (!from) return fail(from.error());
  request.from = *std::move(from);
  Result<Placements> to = read_side(value, "to", request.goal_mesh(), rank);
  if (!to) return fail(to.error());
  request.to = *std::move(to);
  return request;
}

// ---- Answers ----

/// What a request is answered with.
struct Outcome {
  std::vector<BetweenStep> steps;
  Seconds time;
  Bytes bytes = 0;
  std::optional<DeviceMesh> refined;  ///< the mesh that axes and placements of the steps refer to
  std::vector<std::int64_t> shape;    ///< padded where it differs from the request's
  Placements from;                    ///< on `refined`, else as requested
  Placements to;
};

Result<void> add_steps(Outcome& outcome,
                       const DeviceMesh& mesh,
                       const Placements& from,
                       const Redistribution& plan) {
  const std::vector<std::int64_t> ranks = mesh.ranks();
  Placements now = from;
  for (const RedistributionStep& step : plan.steps) {
    Result<ReplayStep> replay =
        replay_step(mesh.shape(), static_cast<int>(outcome.shape.size()), now, step);
    if (!replay) return fail(replay.error());
    translate(*replay, ranks);
    outcome.steps.push_back({step, *std::move(replay), mesh});
    now = step.after;
  }
  outcome.time = plan.time;
  outcome.bytes = plan.bytes;
  return {};
}

std::string piece_name(const DeviceMesh& mesh, const SubAxis& piece) {
  const std::string name = mesh.axis_label(piece.axis);
  if (piece.size == mesh.axis_size(piece.axis)) return name;
  return name + ":(" + std::to_string(piece.before) + ")" + std::to_string(piece.size);
}

Result<Outcome> solve_shardy(const Request& request, Prices& prices) {
  std::optional<Error> failure;
  const auto refined_mesh = [&](std::span<const std::int64_t> sizes) {
    return DeviceMesh::make({sizes.begin(), sizes.end()}, {}, request.mesh.ranks());
  };
  const PriceOfMesh price = [&](std::span<const std::int64_t> sizes) -> CollectivePrice {
    Result<DeviceMesh> mesh = refined_mesh(sizes);
    Result<CollectivePrice> found =
        mesh ? prices.of(*mesh, request.cluster) : Result<CollectivePrice>(fail(mesh.error()));
    if (found) return *found;
    failure = found.error();
    return [](const CollectiveCall&) { return Seconds{}; };
  };
  Result<RefinedRedistribution> found = shardy_redistribution(
      request.mesh.shape(), price, request.shape, request.dtype_bytes, request.from, request.to);
  if (failure) return fail(*failure);
  if (!found) return fail(found.error());
  Outcome outcome{{}, {}, 0, {}, found->padded_shape, request.from, request.to};
  if (!found->refined) {
    if (auto ok = add_steps(outcome, request.mesh, request.from, found->steps); !ok)
      return fail(ok.error());
    return outcome;
  }
  std::vector<std::string> names;
  for (const SubAxis& piece : found->axes) names.push_back(piece_name(request.mesh, piece));
  Result<DeviceMesh> mesh = DeviceMesh::make(found->axis_sizes, names, request.mesh.ranks());
  if (!mesh) return fail(mesh.error());
  outcome.refined = *mesh;
  outcome.from = found->from;
  if (auto ok = add_steps(outcome, *mesh, found->from, found->steps); !ok) return fail(ok.error());
  if (!outcome.steps.empty()) outcome.to = outcome.steps.back().step.after;
  return outcome;
}

Result<Outcome> solve(const Request& request, Prices& prices) {
  Outcome outcome{{}, {}, 0, {}, request.shape, request.from, request.to};
  if (request.policy == Policy::kShardy) return solve_shardy(request, prices);
  if (request.policy == Policy::kHyperParallel) {
    Result<CollectivePrice> price = prices.of(request.mesh, request.cluster);
    if (!price) return fail(price.error());
    Result<Redistribution> found = hyper_parallel_redistribution(
        request.mesh.shape(), *price, request.shape, request.dtype_bytes, request.from, request.to);
    if (!found) return fail(found.error());
    if (auto ok = add_steps(outcome, request.mesh, request.from, *found); !ok)
      return fail(ok.error());
    return outcome;
  }
  if (request.to_mesh) {
    const PriceOfDeviceMesh price = [&](const DeviceMesh& mesh) {
      return prices.of(mesh, request.cluster);
    };
    Result<RedistributionBetween> found = redistribute_between(request.mesh,
                                                               *request.to_mesh,
                                                               price,
                                                               request.shape,
                                                               request.dtype_bytes,
                                                               request.from,
                                                               request.to);
    if (!found) return fail(found.error());
    outcome.steps = std::move(found->steps);
    outcome.time = found->time;
    outcome.bytes = found->bytes;
    return outcome;
  }
  Result<RedistributionPlanner*> planner = prices.planner(request.mesh, request.cluster);
  if (!planner) return fail(planner.error());
  auto found = (*planner)->plan(request.shape, request.dtype_bytes, request.from, request.to);
  if (!found) return fail(found.error());
  if (auto ok = add_steps(outcome, request.mesh, request.from, **found); !ok)
    return fail(ok.error());
  return outcome;
}

Result<void> verify(const Request& request, const Outcome& outcome) {
  const int rank = static_cast<int>(outcome.shape.size());
  const DeviceMesh& start = outcome.refined ? *outcome.refined : request.mesh;
  const DeviceMesh& goal = outcome.refined ? *outcome.refined : request.goal_mesh();
  Result<Layout> from = Layout::from_placements(start, outcome.from, rank);
  if (!from) return fail(from.error());
  Result<Layout> to = Layout::from_placements(goal, outcome.to, rank);
  if (!to) return fail(to.error());
  std::vector<ReplayStep> steps;
  for (const BetweenStep& step : outcome.steps) steps.push_back(step.replay);
  return verify_redistribution(outcome.shape, *from, *to, steps);
}

void write_lists(JsonWriter& out, const std::vector<std::vector<DeviceRank>>& lists) {
  out.begin_array(JsonWriter::kOneLine);
  for (const auto& list : lists) out.array(list);
  out.end_array();
}

bool reduces(Collective collective) {
  return collective == Collective::kAllReduce || collective == Collective::kReduceScatter ||
         collective == Collective::kMask;
}

void write_step(JsonWriter& out, const BetweenStep& one, bool own_mesh, int rank) {
  const RedistributionStep& step = one.step;
  out.begin_object(JsonWriter::kOneLine);
  out.member("collective", collective_name(step.collective));
  out.key("axes");
  out.begin_array(JsonWriter::kOneLine);
  for (const int axis : step.order) out.value(one.mesh.axis_label(axis));
  out.end_array();
  out.key("groups");
  write_lists(out, one.replay.groups);
  if (step.dim >= 0) out.member("dim", step.dim);
  if (step.split_dim >= 0) {
    out.member("split_dim", step.split_dim);
    out.member("concat_dim", step.concat_dim);
  }
  if (step.collective == Collective::kPermute) {
    out.key("pairs");
    out.begin_array(JsonWriter::kOneLine);
    for (const auto& pair : one.replay.pairs) out.array(pair);
    out.end_array();
  }
  if (step.collective == Collective::kSendReceive) {
    out.key("sends");
    out.begin_array(JsonWriter::kOneLine);
    for (const BlockSend& send : one.replay.sends) {
      out.begin_array(JsonWriter::kOneLine);
      out.value(send.source);
      out.value(send.destination);
      out.array(send.source_begin);
      out.array(send.destination_begin);
      out.array(send.size);
      out.end_array();
    }
    out.end_array();
  }
  if (reduces(step.collective)) out.member("reduction", reduction_name(step.reduction));
  out.member("bytes", step.bytes_moved);
  out.member("time", step.time.value);
  out.key("placements");
  write_placements(out, step.after);
  out.key("tensor_map");
  Result<Layout> layout = Layout::from_placements(one.mesh, step.after, rank);
  if (layout) {
    write_tensor_map(out, layout->tensor_map());
  } else {
    out.null();
  }
  if (own_mesh) {
    out.key("mesh");
    out.begin_object(JsonWriter::kOneLine);
    write_mesh_members(out, one.mesh);
    out.end_object();
  }
  out.end_object();
}

/// An error of lib whose place is a member of the request.
Unexpected<Error> place(const JsonCursor& value, Error error) {
  for (const std::string side : {"from", "to"}) {
    // Placements may have been given as a map; the places inside them differ.
    if (error.where.starts_with("/" + side) && !given(value, side))
      error.where = "/" + side + "_map";
  }
  if (!error.where.empty() && !error.where.starts_with("/")) {
    error.message = error.where + ": " + error.message;  // a fault of the cluster file
    error.where = "/cluster";
  }
  return error_at(value, error);
}

Result<Outcome> answer(const Request& request, Prices& prices) {
  Result<Outcome> outcome = solve(request, prices);
  if (!outcome || !request.verify) return outcome;
  if (auto ok = verify(request, *outcome); !ok) return fail(ok.error());
  return outcome;
}

void write_answer(const Request& request, const Outcome& outcome, JsonWriter& out) {
  const int rank = static_cast<int>(outcome.shape.size());
  out.begin_object();
  out.key("steps");
  out.begin_array();
  for (const BetweenStep& step : outcome.steps) {
    write_step(out, step, outcome.refined || request.to_mesh, rank);
  }
  out.end_array();
  out.member("time", outcome.time.value);
  out.member("bytes", outcome.bytes);
  if (outcome.shape != request.shape) {
    out.key("padded_shape");
    out.array(outcome.shape);
  }
  if (request.verify) out.member("verified", true);
  out.end_object();
}

// ---- The command line ----

/// Reads an option that lists numbers, with parentheses around those that belong together.
template <class Read>
auto read_list(const std::string& option,
               const std::string& text,
               const char* example,
               const Read& read) -> decltype(read(std::declval<const JsonCursor&>())) {
  std::string list = "[" + text + "]";
  std::replace(list.begin(), list.end(), '(', '[');
  std::replace(list.begin(), list.end(), ')', ']');
  Result<JsonDocument> document = JsonDocument::parse(list, "");
  if (!document || document->root().kind() != JsonKind::kArray) {
    return usage(option, "\"" + text.substr(0, 60) + "\" cannot be read; expected e.g. " + example);
  }
  auto value = read(document->root());
  if (!value) return usage(option, value.error().message);
  return value;
}

Result<DeviceMesh> mesh_option(const MeshOption& option) {
  Result<DeviceMesh> mesh = read_mesh_option(option);
  if (mesh && mesh->size() > kMostDevices) {
    return usage(option.axes_option,
                 "has " + std::to_string(mesh->size()) + " devices, at most " +
                     std::to_string(kMostDevices) + " are taken");
  }
  return mesh;
}

Result<Placements> side_option(const std::string& side,
                               const std::string& placements,
                               const std::string& map,
                               const DeviceMesh& mesh,
                               int rank) {
  const std::string option = "--" + side;
  if (placements.empty() == map.empty()) {
    return usage(option,
                 placements.empty()
                     ? "or " + option + "-map is required, e.g. " + option + " \"S(0),R\""
                     : "cannot be combined with " + option + "-map");
  }
  if (!map.empty()) {
    return read_list(
        option + "-map", map, "(1,0),-1", [&](const JsonCursor& value) -> Result<Placements> {
          Result<TensorMap> entries = read_tensor_map(value);
          if (!entries) return fail(entries.error());
          if (static_cast<int>(entries->size()) != rank) {
            return fail(ErrorCode::kValue,
                        "",
                        "expected one entry per tensor dimension (" + std::to_string(rank) + ")");
          }
          Result<Layout> layout = Layout::from_tensor_map(mesh, *entries);
          if (!layout) return fail(layout.error());
          return layout->placements();
        });
  }
  Result<Placements> parsed = parse_placements(placements);
  if (!parsed) return usage(option, parsed.error().message);
  Result<Layout> layout = Layout::from_placements(mesh, *parsed, rank);
  if (!layout) return usage(option, layout.error().message);
  return layout->placements();
}

Result<Request> request_of(const Options& options) {
  if (options.mesh.empty())
    return usage("--mesh", "is required, e.g. --mesh dp=2,tp=4 (or --batch FILE)");
  Result<DeviceMesh> mesh = mesh_option({"--mesh", options.mesh, "--ranks", options.ranks});
  if (!mesh) return fail(mesh.error());
  Request request{*mesh, {}, {}, 2, {}, {}, Policy::kCheapest, options.cluster, options.verify};
  if (!options.to_mesh.empty()) {
    Result<DeviceMesh> other =
        mesh_option({"--to-mesh", options.to_mesh, "--to-ranks", options.to_ranks});
    if (!other) return fail(other.error());
    if (!(*other == *mesh)) request.to_mesh = *std::move(other);
  }
  Result<std::vector<std::int64_t>> shape = read_list(
      "--shape", options.shape, "8,16", [](const JsonCursor& value) { return read_shape(value); });
  if (!shape) return fail(shape.error());
  request.shape = *std::move(shape);
  const std::optional<DType> dtype = parse_dtype(options.dtype);
  if (!dtype) {
    return usage("--dtype",
                 "unknown dtype \"" + options.dtype + "\"" +
                     nearest_name_hint(options.dtype, dtype_names()));
  }
  request.dtype_bytes = dtype_bytes(*dtype);
  Result<Policy> policy = policy_of(options.policy);
  if (!policy) return usage("--policy", policy.error().message);
  request.policy = *policy;
  if (request.policy != Policy::kCheapest && request.to_mesh) {
    return usage("--policy", "only cheapest goes from one mesh to another");
  }
  const int rank = static_cast<int>(request.shape.size());
  Result<Placements> from = side_option("from", options.from, options.from_map, request.mesh, rank);
  if (!from) return fail(from.error());
  request.from = *std::move(from);
  Result<Placements> to = side_option("to", options.to, options.to_map, request.goal_mesh(), rank);
  if (!to) return fail(to.error());
  request.to = *std::move(to);
  return request;
}

std::string time_text(Seconds time) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.3f us", time.value * 1e6);
  return text.data();
}

std::string what_it_does(const BetweenStep& one) {
  const RedistributionStep& step = one.step;
  std::string text;
  if (step.dim >= 0) text = "dim " + std::to_string(step.dim);
  if (step.split_dim >= 0) {
    text = "dim " + std::to_string(step.concat_dim) + " to " + std::to_string(step.split_dim);
  }
  if (reduces(step.collective))
    text = std::string(reduction_name(step.reduction)) + (text.empty() ? "" : " " + text);
  std::string axes;
  for (const int axis : step.order) axes += (axes.empty() ? "" : ",") + one.mesh.axis_label(axis);
  return text + (text.empty() ? "" : " ") + "over " + axes;
}

std::string print(const Request& request, const Outcome& outcome, const std::string& format) {
  if (format == "json") {
    JsonWriter out;
    write_answer(request, outcome, out);
    return std::move(out).text();
  }
  using Row = std::array<std::string, 5>;
  std::vector<Row> rows = {{"step", "what", "moved per device", "time", "placements"}};
  for (const BetweenStep& one : outcome.steps) {
    rows.push_back({collective_name(one.step.collective),
                    what_it_does(one),
                    std::to_string(one.step.bytes_moved) + " B",
                    time_text(one.step.time),
                    to_string(one.step.after)});
  }
  const std::string verified = request.verify ? ", verified on virtual devices" : "";
  const std::string total = outcome.steps.empty()
                                ? "nothing to do: both layouts hold the same data" + verified
                                : "total: " + std::to_string(outcome.bytes) + " B per device, " +
                                      time_text(outcome.time) + verified;
  std::string text;
  if (format == "markdown") {
    for (std::size_t i = 0; i < rows.size(); ++i) {
      text += "|";
      for (const std::string& cell : rows[i]) text += " " + cell + " |";
      text += i == 0 ? "\n|---|---|---:|---:|---|\n" : "\n";
    }
    return text + "\n" + total + "\n";
  }
  const std::string shape =
      request.goal_mesh() == request.mesh ? "" : " on " + to_string(request.goal_mesh());
  text = to_string(request.from) + " on " + to_string(request.mesh) + " -> " +
         to_string(request.to) + shape + "\n";
  if (!outcome.steps.empty()) {
    std::array<std::size_t, 5> widths{};
    for (const Row& row : rows) {
      for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
    }
    for (const Row& row : rows) {
      std::string line;
      for (std::size_t i = 0; i < row.size(); ++i) {
        const std::string padding(widths[i] - row[i].size(), ' ');
        const bool right = i == 2 || i == 3;
        line += (i == 0 ? "" : "  ") + (right ? padding + row[i] : row[i] + padding);
      }
      line.erase(line.find_last_not_of(' ') + 1);
      text += line + "\n";
    }
  }
  if (outcome.shape != request.shape) {
    text += "the shape is padded to";
    for (std::size_t i = 0; i < outcome.shape.size(); ++i) {
      text += (i == 0 ? " " : "x") + std::to_string(outcome.shape[i]);
    }
    text += "\n";
  }
  return text + total + "\n";
}

int run_batch(const Options& options, const CommonOptions& common) {
  Result<std::string> text = read_file(options.batch);
  if (!text) return report(text.error());
  Prices prices;
  const auto answer_one = [&](const JsonCursor& value, JsonWriter& out) -> Result<void> {
    Result<Request> request = read_request(value, options);
    if (!request) return fail(request.error());
    Result<Outcome> outcome = answer(*request, prices);
    if (!outcome) return place(value, outcome.error());
    write_answer(*request, *outcome, out);
    return {};
  };
  const std::string name = input_name(options.batch);
  Result<std::string> answers = answer_batch(*text, name, answer_one);
  if (!answers) return report(answers.error());
  Result<void> written = write_output(common.output, *answers);
  return written ? kDone : report(written.error());
}

/// The option behind the place of an error of lib.
std::string option_of(const Options& options, const std::string& where) {
  if (where.starts_with("/from")) return options.from.empty() ? "--from-map" : "--from";
  if (where.starts_with("/to_mesh")) return "--to-mesh";
  if (where.starts_with("/to")) return options.to.empty() ? "--to-map" : "--to";
  if (where.starts_with("/mesh")) return "--mesh";
  if (where.starts_with("/shape")) return "--shape";
  if (where.starts_with("/dtype")) return "--dtype";
  return where;
}

int run_redistribute(const Options& options, const CommonOptions& common) {
  if (!options.batch.empty()) return run_batch(options, common);
  Result<Request> request = request_of(options);
  if (!request) return report(request.error());
  Prices prices;
  Result<Outcome> outcome = solve(*request, prices);
  if (!outcome) {
    Error error = outcome.error();
    // Faults of a cluster file keep their place and exit code.
    const std::string option = option_of(options, error.where);
    if (option != error.where || error.where.empty())
      error = {ErrorCode::kUsage, option, error.message};
    return report(error);
  }
  if (request->verify) {
    if (auto ok = verify(*request, *outcome); !ok) {
      const bool too_large = ok.error().code == ErrorCode::kUnsupported;
      std::cerr << "meshplan: error: --verify: " << ok.error().message << '\n';
      return too_large ? kUsageError : kRejected;
    }
  }
  Result<void> written = write_output(common.output, print(*request, *outcome, common.format));
  return written ? kDone : report(written.error());
}

}  // namespace

RunCommand define_redistribute(CLI::App& app, CommonOptions& common) {
  auto options = std::make_shared<Options>();
  CLI::Option* mesh =
      app.add_option("--mesh", options->mesh, "Axes and sizes, outermost first: dp=2,tp=4")
          ->type_name("AXES");
  app.add_option("--ranks", options->ranks, "Own ranks: [[0,1,2,3],[4,5,6,7]]")
      ->type_name("LISTS")
      ->needs(mesh);
  CLI::Option* to_mesh =
      app.add_option("--to-mesh", options->to_mesh, "The mesh of the destination, if it is another")
          ->type_name("AXES")
          ->needs(mesh);
  app.add_option("--to-ranks", options->to_ranks, "Own ranks of --to-mesh")
      ->type_name("LISTS")
      ->needs(to_mesh);
  app.add_option("--shape", options->shape, "Sizes of the tensor; none for a scalar")
      ->type_name("8,16");
  app.add_option("--dtype", options->dtype, "Type of its elements")
      ->type_name("TYPE")
      ->capture_default_str();
  app.add_option("--from", options->from, "Placements that the tensor has")
      ->type_name("\"S(0),R\"");
  app.add_option("--to", options->to, "Placements that it needs")->type_name("\"R,S(1)\"");
  app.add_option("--from-map", options->from_map, "The same as a tensor map")
      ->type_name("\"(1,0),-1\"");
  app.add_option("--to-map", options->to_map, "The same as a tensor map")->type_name("\"-1,0\"");
  app.add_option("--cluster", options->cluster, "Cluster file or name (default: 100 GB/s and 1 us)")
      ->type_name("FILE");
  app.add_option("--policy", options->policy, "Whose sequence: cheapest, hyper-parallel or shardy")
      ->type_name("POLICY")
      ->capture_default_str();
  app.add_flag(
      "--verify", options->verify, "Execute the steps on virtual devices (exit 5 if wrong)");
  app.add_option(
         "--batch", options->batch, "Answer a JSON array of requests (\"-\": standard input)")
      ->type_name("FILE")
      ->excludes(mesh);
  refuse_empty_values(app, "--shape");  // a scalar has no sizes
  return [options, &common] { return run_redistribute(*options, common); };
}

}  // namespace meshplan

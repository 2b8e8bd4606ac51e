// SPDX-License-Identifier: Apache-2.0
// The document meshplan.whatif/1.0: writing, reading, joining parts.
#include <algorithm>
#include <limits>
#include <utility>

#include "apps/field_reader.h"
#include "apps/whatif_report.h"
#include "graph/json.h"
#include "lib/text.h"

namespace meshplan {
namespace {

constexpr std::int64_t kMostInteger = std::numeric_limits<std::int64_t>::max();
constexpr std::size_t kMostParts = 1'000'000;
/// Beyond every figure of a plan, and so that quotients of two can be written too.
constexpr double kMostFigure = 1e30;
constexpr double kLeastFigure = 1 / kMostFigure;  ///< above 0

// ---- Writing ------------------------------------------------------------------------------------

template <class Value>
void write_optionals(JsonWriter& writer, const char* key, const std::vector<Value>& values) {
  writer.key(key);
  writer.begin_array(JsonWriter::kOneLine);
  for (const Value& value : values) {
    if (value) {
      writer.value(*value);
    } else {
      writer.null();
    }
  }
  writer.end_array();
}

void write_network(JsonWriter& writer, const NetworkChange& change) {
  writer.member("network", change.factor);
  if (change.level) writer.member("network_level", *change.level);
}

void write_plan_figures(JsonWriter& writer, const WhatIfPlan& plan) {
  writer.key("mesh");
  writer.begin_object(JsonWriter::kOneLine);
  writer.key("shape");
  writer.array(plan.mesh.shape);
  writer.key("axes");
  writer.array(plan.mesh.axes);
  writer.key("roles");
  writer.begin_array(JsonWriter::kOneLine);
  for (const std::vector<std::string>& roles : plan.mesh.roles) writer.array(roles);
  writer.end_array();
  writer.end_object();
  writer.member("microbatches", plan.microbatches);
  writer.member("objective", plan.objective.value);
  writer.member("lower_bound", plan.lower_bound.value);
  writer.member("gap", plan.gap());
  const PlanCost& cost = plan.cost;
  writer.member("step_time", cost.step_time.value);
  writer.member("compute_time", cost.compute_time.value);
  writer.member("communication_time", cost.communication_time.value);
  writer.member("exposed_communication_time", cost.exposed_communication_time.value);
  writer.member("tokens_per_second", cost.tokens_per_second);
  writer.member("model_flops_utilization", cost.model_flops_utilization);
  if (cost.hardware_flops_utilization)
    writer.member("hardware_flops_utilization", *cost.hardware_flops_utilization);
  if (cost.price_per_step) writer.member("price_per_step", *cost.price_per_step);
  writer.member("peak_memory", plan.peak);
}

/// What follows from all points of a whole sweep.
struct Derived {
  std::optional<double> efficiency;
  bool on_device_front = false;
  bool on_price_front = false;
};

void write_point(JsonWriter& writer,
                 const WhatIfReport& report,
                 const WhatIfPoint& point,
                 const std::optional<Derived>& derived) {
  writer.begin_object(JsonWriter::kOneLine);
  writer.member("cluster", report.clusters[point.place.cluster].name);
  writer.member("devices", point.devices);
  if (point.batch) writer.member("batch", *point.batch);
  writer.member("memory", point.memory);
  write_network(writer, report.network[point.place.network]);
  writer.member("status", what_if_status_name(point.status));
  writer.member("memory_limit", point.memory_limit);
  if (point.plan) {
    write_plan_figures(writer, *point.plan);
    if (derived) {
      writer.member("efficiency", derived->efficiency.value_or(0));
      writer.member("on_device_front", derived->on_device_front);
      writer.member("on_price_front", derived->on_price_front);
    }
  }
  if (point.status == WhatIfStatus::kInfeasible) {
    if (point.min_memory) {
      writer.member("min_memory", *point.min_memory);
      writer.member("missing_memory", *point.min_memory - point.memory_limit);
    }
    writer.member("moment", point.moment);
  }
  if (point.status == WhatIfStatus::kImpossible) writer.member("reason", point.reason);
  writer.end_object();
}

// ---- Reading ------------------------------------------------------------------------------------

std::int64_t integer(FieldReader& fields,
                     std::string_view key,
                     std::int64_t least,
                     std::int64_t most = kMostInteger) {
  const auto cursor = fields.require(key);
  return cursor ? fields.keep(cursor->as_int64(least, most)) : least;
}

double number(FieldReader& fields, std::string_view key) {
  const auto cursor = fields.require(key);
  const double value = cursor ? fields.keep(cursor->as_double()) : 0.0;
  if (cursor && fields.ok() && value != 0 && !(value >= kLeastFigure && value <= kMostFigure))
    fields.refuse(*cursor, ErrorCode::kValue, "expected 0 or a number from 1e-30 to 1e30");
  return value;
}

std::vector<std::string> texts(FieldReader& fields, std::string_view key) {
  const auto cursor = fields.require(key);
  return cursor ? fields.keep(cursor->as_strings()) : std::vector<std::string>();
}

/// What follows from the rest is not kept, but must be of its kind.
void check_derived(FieldReader& fields) {
  for (const char* key : {"gap", "efficiency"}) {
    if (const auto at = fields.find(key)) fields.keep(at->as_double());
  }
  for (const char* key : {"on_device_front", "on_price_front"}) {
    if (const auto at = fields.find(key)) fields.keep(at->as_bool());
  }
  if (const auto at = fields.find("missing_memory")) fields.keep(at->as_int64(0, kMostInteger));
}

std::vector<JsonCursor> elements(FieldReader& fields, std::string_view key) {
  const auto cursor = fields.require(key);
  if (!cursor) return {};
  auto list = fields.keep(cursor->as_array());
  if (fields.ok() && list.empty())
    fields.refuse(*cursor, ErrorCode::kValue, "expected at least one element");
  return list;
}

std::vector<std::optional<std::int64_t>> optional_integers(FieldReader& fields,
                                                           std::string_view key) {
  std::vector<std::optional<std::int64_t>> values;
  for (const JsonCursor& at : elements(fields, key)) {
    if (at.kind() == JsonKind::kNull) {
      values.emplace_back();
    } else {
      values.emplace_back(fields.keep(at.as_int64(1, kMostInteger)));
    }
  }
  return values;
}

NetworkChange read_network(FieldReader& fields) {
  NetworkChange change;
  change.factor = number(fields, "network");
  if (const auto level = fields.find("network_level"))
    change.level = std::string(fields.keep(level->as_string()));
  return change;
}

PlanMesh read_mesh(const JsonCursor& at, FieldReader& point) {
  PlanMesh mesh;
  FieldReader fields(at, {"shape", "axes", "roles"});
  if (const auto shape = fields.require("shape")) mesh.shape = fields.keep(shape->as_int64s());
  mesh.axes = texts(fields, "axes");
  if (const auto roles = fields.require("roles")) {
    for (const JsonCursor& axis : fields.keep(roles->as_array()))
      mesh.roles.push_back(fields.keep(axis.as_strings()));
  }
  if (fields.ok() && (mesh.axes.size() != mesh.shape.size() ||
                      mesh.roles.size() != mesh.shape.size() || mesh.shape.empty()))
    fields.refuse(at, ErrorCode::kValue, "expected shape, axes and roles of the same length");
  if (!fields.ok()) point.keep(Result<void>(fields.failure()));
  return mesh;
}

WhatIfPlan read_plan_figures(FieldReader& fields) {
  WhatIfPlan plan;
  if (const auto mesh = fields.require("mesh")) plan.mesh = read_mesh(*mesh, fields);
  plan.microbatches = integer(fields, "microbatches", 1);
  plan.objective = {number(fields, "objective")};
  plan.lower_bound = {number(fields, "lower_bound")};
  if (const auto at = fields.find("lower_bound"); at && plan.lower_bound > plan.objective)
    fields.refuse(*at, ErrorCode::kConflict, "a lower bound is at most the objective");
  PlanCost& cost = plan.cost;
  cost.step_time = {number(fields, "step_time")};
  cost.compute_time = {number(fields, "compute_time")};
  cost.communication_time = {number(fields, "communication_time")};
  cost.exposed_communication_time = {number(fields, "exposed_communication_time")};
  cost.tokens_per_second = number(fields, "tokens_per_second");
  cost.model_flops_utilization = number(fields, "model_flops_utilization");
  if (fields.find("hardware_flops_utilization"))
    cost.hardware_flops_utilization = number(fields, "hardware_flops_utilization");
  if (fields.find("price_per_step")) cost.price_per_step = number(fields, "price_per_step");
  plan.peak = integer(fields, "peak_memory", 0);
  return plan;
}

/// What stands at a point must be what its place on the axes says.
void check_place(const WhatIfReport& report,
                 const WhatIfPoint& point,
                 const std::string& cluster,
                 const NetworkChange& network,
                 const JsonCursor& at,
                 FieldReader& fields) {
  const auto refuse = [&](const char* key, const std::string& expected) {
    fields.refuse(at.find(key).value_or(at),
                  ErrorCode::kConflict,
                  "the axes of the sweep give this point " + expected);
  };
  const WhatIfPlace& place = point.place;
  if (!fields.ok()) return;
  if (cluster != report.clusters[place.cluster].name)
    refuse("cluster", meshplan::quoted(report.clusters[place.cluster].name));
  const auto devices = report.devices[place.devices];
  if (devices && *devices != point.devices) refuse("devices", std::to_string(*devices));
  const auto batch = report.batch[place.batch];
  if (batch && batch != point.batch) refuse("batch", std::to_string(*batch));
  const auto memory = report.memory[place.memory];
  if (memory && *memory != point.memory) refuse("memory", std::to_string(*memory));
  if (!(network == report.network[place.network]))
    refuse("network", network_text(report.network[place.network]));
}

WhatIfPoint read_point(const JsonCursor& at,
                       const WhatIfReport& report,
                       const WhatIfPlace& place,
                       FieldReader& whole) {
  WhatIfPoint point;
  point.place = place;
  FieldReader fields(at,
                     {"cluster",
                      "devices",
                      "batch",
                      "memory",
                      "network",
                      "network_level",
                      "status",
                      "memory_limit",
                      "mesh",
                      "microbatches",
                      "objective",
                      "lower_bound",
                      "gap",
                      "step_time",
                      "compute_time",
                      "communication_time",
                      "exposed_communication_time",
                      "tokens_per_second",
                      "model_flops_utilization",
                      "hardware_flops_utilization",
                      "price_per_step",
                      "peak_memory",
                      "efficiency",
                      "on_device_front",
                      "on_price_front",
                      "min_memory",
                      "missing_memory",
                      "moment",
                      "reason"});
  const std::string cluster = fields.text("cluster");
  point.devices = integer(fields, "devices", 1);
  if (fields.find("batch")) point.batch = integer(fields, "batch", 1);
  point.memory = integer(fields, "memory", 0);
  const NetworkChange network = read_network(fields);
  point.memory_limit = integer(fields, "memory_limit", 0);
  check_place(report, point, cluster, network, at, fields);
  const auto status = fields.require("status");
  const std::string name = status ? std::string(fields.keep(status->as_string())) : "";
  bool known = false;
  for (const WhatIfStatus one : {WhatIfStatus::kOptimal,
                                 WhatIfStatus::kFeasible,
                                 WhatIfStatus::kInfeasible,
                                 WhatIfStatus::kImpossible}) {
    if (name != what_if_status_name(one)) continue;
    known = true;
    point.status = one;
  }
  if (status && fields.ok() && !known)
    fields.refuse(
        *status, ErrorCode::kValue, "expected optimal, feasible, infeasible or impossible");
  if (point.status == WhatIfStatus::kOptimal || point.status == WhatIfStatus::kFeasible)
    point.plan = read_plan_figures(fields);
  if (point.status == WhatIfStatus::kInfeasible) {
    if (fields.find("min_memory"))
      point.min_memory = integer(fields, "min_memory", point.memory_limit);
    point.moment = fields.text("moment");
  }
  if (point.status == WhatIfStatus::kImpossible && fields.ok())
    point.reason = fields.text("reason");
  check_derived(fields);
  if (!fields.ok()) whole.keep(Result<void>(fields.failure()));
  return point;
}

void read_axes(FieldReader& fields, WhatIfReport& report) {
  for (const JsonCursor& at : elements(fields, "clusters")) {
    FieldReader cluster(at, {"name", "fingerprint"});
    report.clusters.push_back({cluster.text("name"), cluster.text("fingerprint")});
    if (!cluster.ok()) fields.keep(Result<void>(cluster.failure()));
  }
  report.devices = optional_integers(fields, "devices");
  report.batch = optional_integers(fields, "batch");
  report.memory = optional_integers(fields, "memory");
  for (const JsonCursor& at : elements(fields, "network")) {
    FieldReader network(at, {"network", "network_level"});
    report.network.push_back(read_network(network));
    if (!network.ok()) fields.keep(Result<void>(network.failure()));
  }
}

void read_shard(FieldReader& fields, WhatIfReport& report) {
  const auto at = fields.find("shard");
  if (!at) return;
  FieldReader shard(*at, {"index", "count"});
  const auto most = static_cast<std::int64_t>(kMostParts);
  const std::int64_t count = integer(shard, "count", 1, most);
  const std::int64_t index = integer(shard, "index", 0, count - 1);
  if (!shard.ok()) fields.keep(Result<void>(shard.failure()));
  report.shard = {static_cast<std::size_t>(index), static_cast<std::size_t>(count)};
}

void read_points(FieldReader& fields, WhatIfReport& report) {
  const auto at = fields.require("points");
  if (!at) return;
  const auto list = fields.keep(at->as_array());
  if (!fields.ok()) return;
  const WhatIfGrid grid = report.grid();
  if (!grid.countable())
    return fields.refuse(*at, ErrorCode::kOverflow, "the axes of the sweep have too many points");
  const auto expected = grid.points_of(report.shard.value_or(WhatIfShard{}));
  if (list.size() != expected.size())
    return fields.refuse(*at,
                         ErrorCode::kConflict,
                         "expected the " + counted(expected.size(), "point") + " of the " +
                             (report.shard ? "shard" : "sweep") + ", found " +
                             std::to_string(list.size()));
  report.points.reserve(list.size());
  for (std::size_t i = 0; i < list.size() && fields.ok(); ++i)
    report.points.push_back(read_point(list[i], report, grid.place(expected[i]), fields));
}

/// The first part of the head in which two reports differ, as a JSON Pointer; "" where none does.
std::string first_difference(const WhatIfReport& a, const WhatIfReport& b) {
  if (a.generator_version != b.generator_version) return "/generator/version";
  if (!(a.graph == b.graph)) return "/graph";
  if (a.options != b.options) return "/options";
  if (a.clusters != b.clusters) return "/clusters";
  if (a.devices != b.devices) return "/devices";
  if (a.batch != b.batch) return "/batch";
  if (a.memory != b.memory) return "/memory";
  if (a.network != b.network) return "/network";
  if (a.shard->count != b.shard->count) return "/shard/count";
  return "";
}

}  // namespace

WhatIfGrid WhatIfReport::grid() const {
  return {{clusters.size(), devices.size(), batch.size(), memory.size(), network.size()}};
}

std::string network_text(const NetworkChange& change) {
  std::string factor = json_number(change.factor);
  if (factor.size() > 2 && factor.compare(factor.size() - 2, 2, ".0") == 0)
    factor.resize(factor.size() - 2);
  return (change.level ? *change.level + "=" : "") + factor + "x";
}

std::string write_what_if(const WhatIfReport& report) {
  JsonWriter writer;
  writer.begin_object();
  writer.member("schema", "meshplan.whatif/1.0");
  writer.key("generator");
  writer.begin_object(JsonWriter::kOneLine);
  writer.member("name", "meshplan");
  writer.member("version", report.generator_version);
  writer.end_object();
  writer.key("graph");
  writer.begin_object(JsonWriter::kOneLine);
  writer.member("name", report.graph.name);
  writer.member("fingerprint", report.graph.fingerprint);
  writer.end_object();
  writer.key("options");
  writer.begin_object(JsonWriter::kOneLine);
  for (const auto& [name, value] : report.options) writer.member(name, value);
  writer.end_object();
  writer.key("clusters");
  writer.begin_array();
  for (const WhatIfCluster& cluster : report.clusters) {
    writer.begin_object(JsonWriter::kOneLine);
    writer.member("name", cluster.name);
    writer.member("fingerprint", cluster.fingerprint);
    writer.end_object();
  }
  writer.end_array();
  write_optionals(writer, "devices", report.devices);
  write_optionals(writer, "batch", report.batch);
  write_optionals(writer, "memory", report.memory);
  writer.key("network");
  writer.begin_array(JsonWriter::kOneLine);
  for (const NetworkChange& change : report.network) {
    writer.begin_object(JsonWriter::kOneLine);
    write_network(writer, change);
    writer.end_object();
  }
  writer.end_array();
  if (report.shard) {
    writer.key("shard");
    writer.begin_object(JsonWriter::kOneLine);
    writer.member("index", report.shard->index);
    writer.member("count", report.shard->count);
    writer.end_object();
  }
  writer.key("points");
  writer.begin_array();
  const auto efficiency = scaling_efficiency(report.points);
  const auto device_front = pareto_front(report.points, WhatIfExpense::kDevices);
  const auto price_front = pareto_front(report.points, WhatIfExpense::kPricePerStep);
  for (std::size_t i = 0; i < report.points.size(); ++i) {
    std::optional<Derived> derived;
    if (!report.shard) derived = Derived{efficiency[i], device_front[i], price_front[i]};
    write_point(writer, report, report.points[i], derived);
  }
  writer.end_array();
  writer.end_object();
  return std::move(writer).text();
}

Result<WhatIfReport> read_what_if(std::string_view text, const std::string& file) {
  auto document = JsonDocument::parse(text, file);
  if (!document) return fail(document.error());
  const JsonCursor root = document->root();
  if (auto done = check_schema(root, "meshplan.whatif", 1, 0); !done) return fail(done.error());
  FieldReader fields(root,
                     {"schema",
                      "generator",
                      "graph",
                      "options",
                      "clusters",
                      "devices",
                      "batch",
                      "memory",
                      "network",
                      "shard",
                      "points"});
  WhatIfReport report;
  if (const auto at = fields.require("generator")) {
    FieldReader generator(*at, {"name", "version"});
    generator.text("name");
    report.generator_version = generator.text("version");
    if (!generator.ok()) return generator.failure();
  }
  if (const auto at = fields.require("graph")) {
    FieldReader graph(*at, {"name", "fingerprint"});
    report.graph = {graph.text("name"), graph.text("fingerprint")};
    if (!graph.ok()) return graph.failure();
  }
  if (const auto at = fields.require("options")) {
    fields.keep(at->expect(JsonKind::kObject));
    for (std::size_t i = 0; fields.ok() && i < at->size(); ++i)
      report.options.emplace(at->key_at(i), fields.keep(at->at(i).as_string()));
  }
  read_axes(fields, report);
  read_shard(fields, report);
  if (fields.ok()) read_points(fields, report);
  if (!fields.ok()) return fields.failure();
  return report;
}

Result<WhatIfReport> merge_what_if(std::vector<WhatIfReport> parts,
                                   const std::vector<std::string>& names) {
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (!parts[i].shard)
      return fail(ErrorCode::kMissing,
                  names[i] + ": /shard",
                  "this is a whole sweep; parts, which whatif --shard i/n makes, can be joined");
    const std::string difference = first_difference(parts.front(), parts[i]);
    if (!difference.empty())
      return fail(ErrorCode::kConflict,
                  names[i] + ": " + difference,
                  "not a part of the same sweep as " + names.front() + ", which differs here");
  }
  const std::size_t count = parts.front().shard->count;
  std::map<std::size_t, std::size_t> part_of;  // shard -> part
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const auto [found, is_new] = part_of.emplace(parts[i].shard->index, i);
    if (!is_new)
      return fail(ErrorCode::kDuplicate,
                  names[i] + ": /shard/index",
                  "part " + std::to_string(parts[i].shard->index) + " is in " +
                      names[found->second] + " already");
  }
  if (parts.size() < count) {
    std::string missing;
    std::size_t listed = 0;
    for (std::size_t shard = 0; shard < count && listed < 8; ++shard) {
      if (part_of.count(shard) != 0) continue;
      missing += (missing.empty() ? "" : ", ") + std::to_string(shard);
      ++listed;
    }
    if (count - parts.size() > listed) missing += ", ...";
    return fail(ErrorCode::kMissing,
                "--merge",
                "the sweep has " + counted(count, "part") + ", " +
                    std::to_string(count - parts.size()) + " of them missing: " + missing);
  }
  const WhatIfGrid grid = parts.front().grid();
  std::vector<WhatIfPoint> points(grid.points());
  for (WhatIfReport& part : parts) {
    const auto places = grid.points_of(*part.shard);
    for (std::size_t i = 0; i < places.size(); ++i) points[places[i]] = std::move(part.points[i]);
  }
  WhatIfReport whole = std::move(parts.front());
  whole.points = std::move(points);
  whole.shard.reset();
  return whole;
}

}  // namespace meshplan

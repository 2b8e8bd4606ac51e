// SPDX-License-Identifier: Apache-2.0
#include "apps/cluster_reader.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <set>
#include <span>
#include <system_error>

#include "apps/command.h"
#include "apps/field_reader.h"
#include "graph/json.h"
#include "graph/operator_table.h"
#include "graph/quantity.h"
#include "lib/nearest_name.h"
#include "lib/sha256.h"

namespace meshplan {
namespace {

constexpr double kLargest = 1e30;
constexpr NumberRange kRate = {1.0, kLargest, "a rate from 1 to 1e30 per second"};
constexpr NumberRange kDelay = {0.0, 3600.0, "a time of at most one hour"};
constexpr NumberRange kFraction = {1e-6, 1.0, "a fraction above 0 and at most 1"};
/// In-network reductions reach more than the link bandwidth by the formula of a ring.
constexpr NumberRange kBusFraction = {1e-6, 4.0, "a fraction above 0 and at most 4"};
constexpr NumberRange kShare = {0.0, 1.0, "a fraction from 0 to 1"};

std::vector<std::string> family_names() {
  std::vector<std::string> names;
  for (int i = 0; i < kOperatorFamilyCount; ++i) {
    const auto family = static_cast<OperatorFamily>(i);
    if (family != OperatorFamily::kView) names.emplace_back(operator_family_name(family));
  }
  return names;
}

Bytes positive_bytes(FieldReader& fields, const JsonCursor& cursor) {
  const Bytes bytes = fields.keep(read_bytes(cursor));
  if (fields.ok() && bytes < 1)
    fields.refuse(cursor, ErrorCode::kValue, "expected at least 1 byte");
  return bytes;
}

// ---------------------------------------------------------------------------------------- device

void read_peaks(const JsonCursor& cursor, FieldReader& fields, Device& device) {
  fields.keep(cursor.expect(JsonKind::kObject));
  for (std::size_t i = 0; fields.ok() && i < cursor.size(); ++i) {
    const std::string key(cursor.key_at(i));
    const double rate = fields.quantity_at(cursor.at(i), Unit::kFlops, kRate);
    const std::optional<DType> dtype = parse_dtype(key);
    if (key == "tf32") {
      device.tf32_peak_flops = rate;
    } else if (key == "fp8") {
      device.peak_flops.emplace(DType::kFp8E4M3, rate);
      device.peak_flops.emplace(DType::kFp8E5M2, rate);
    } else if (dtype) {
      device.peak_flops[*dtype] = rate;
    } else {
      std::vector<std::string> known(dtype_names().begin(), dtype_names().end());
      known.insert(known.end(), {"tf32", "fp8"});
      fields.refuse(cursor.at(i),
                    ErrorCode::kValue,
                    "unknown dtype \"" + key + "\"" + nearest_name_hint(key, known));
    }
  }
  if (fields.ok() && device.peak_flops.empty()) {
    fields.refuse(cursor,
                  ErrorCode::kMissing,
                  "expected the peak rate of at least one dtype, e.g. {\"bf16\": \"312TFLOPS\"}");
  }
}

Result<Device> read_device(const JsonCursor& cursor) {
  FieldReader fields(cursor,
                     {"name", "memory", "reserved_memory", "memory_bandwidth", "peak_flops"});
  Device device;
  device.name = fields.text("name");
  if (const auto memory = fields.require("memory")) device.memory = positive_bytes(fields, *memory);
  if (const auto reserved = fields.find("reserved_memory")) {
    device.reserved_memory = fields.keep(read_bytes(*reserved));
    if (fields.ok() && device.reserved_memory >= device.memory) {
      fields.refuse(*reserved, ErrorCode::kValue, "expected less than the device's memory");
    }
  }
  device.memory_bandwidth = fields.quantity("memory_bandwidth", Unit::kBytesPerSecond, kRate);
  if (const auto peaks = fields.require("peak_flops")) read_peaks(*peaks, fields, device);
  if (!fields.ok()) return fields.failure();
  return device;
}

// ---------------------------------------------------------------------------------------- curves

Result<BandwidthCurve> finish_curve(const JsonCursor& cursor, BandwidthCurve curve) {
  auto& points = curve.points;
  std::sort(
      points.begin(), points.end(), [](const auto& a, const auto& b) { return a.bytes < b.bytes; });
  for (std::size_t i = 1; i < points.size(); ++i) {
    const std::string size = std::to_string(points[i].bytes) + " bytes";
    if (points[i].bytes == points[i - 1].bytes) {
      return cursor.error(ErrorCode::kDuplicate, "two fractions are given for " + size);
    }
    if (points[i].fraction < points[i - 1].fraction) {
      return cursor.error(
          ErrorCode::kValue,
          "the fraction falls at " + size +
              "; expected the upper envelope of the measurement, which does not fall");
    }
    const double before = static_cast<double>(points[i - 1].bytes) / points[i - 1].fraction;
    if (static_cast<double>(points[i].bytes) / points[i].fraction < before) {
      return cursor.error(ErrorCode::kValue,
                          "the fraction at " + size + " makes it faster than a smaller message");
    }
  }
  return curve;
}

/// {"devices": 8, "1MiB": 0.3, "64MiB": 0.8, "all_reduce": {"1MiB": 0.4}}: on how many devices it
/// was measured (0: not said), sizes, and collectives with their own.
Result<CollectiveCurves> read_curves(const JsonCursor& cursor, bool nested = false) {
  if (auto ok = cursor.expect(JsonKind::kObject); !ok) return fail(ok.error());
  CollectiveCurves curves;
  curves.common.devices = 0;
  std::vector<std::string> names;
  for (const Collective c : kNetworkCollectives) names.emplace_back(collective_name(c));
  for (std::size_t i = 0; i < cursor.size(); ++i) {
    const std::string key(cursor.key_at(i));
    const auto name = std::find(names.begin(), names.end(), key);
    if (!nested && name != names.end()) {
      Result<CollectiveCurves> own = read_curves(cursor.at(i), true);
      if (!own) return fail(own.error());
      curves.own[kNetworkCollectives[static_cast<std::size_t>(name - names.begin())]] =
          std::move(own->common);
      continue;
    }
    if (key == "devices") {
      const Result<std::int64_t> devices = cursor.at(i).as_int64(1, kMaxDevices);
      if (!devices) return fail(devices.error());
      curves.common.devices = *devices;
      continue;
    }
    const Result<Bytes> bytes = parse_bytes(key);
    if (!bytes || *bytes < 1) {
      return cursor.at(i).error(
          ErrorCode::kValue,
          "expected a message size such as \"1MiB\", \"devices\"" +
              (nested ? std::string() : " or a collective" + nearest_name_hint(key, names)));
    }
    FieldReader fields(cursor, {});
    BandwidthCurve::Point point{*bytes, 0};
    const Result<double> fraction = read_quantity(cursor.at(i), Unit::kRatio);
    if (!fraction) return fail(fraction.error());
    if (!(*fraction >= kBusFraction.least && *fraction <= kBusFraction.most)) {
      return cursor.at(i).error(ErrorCode::kValue, std::string("expected ") + kBusFraction.text);
    }
    point.fraction = *fraction;
    curves.common.points.push_back(point);
  }
  Result<BandwidthCurve> common = finish_curve(cursor, std::move(curves.common));
  if (!common) return fail(common.error());
  curves.common = std::move(*common);
  return curves;
}

/// Fills in on how many devices the curves of a level were measured, where the file does not say:
/// on all that a unit of the level holds. More devices than one unit inside the level holds share
/// the links of a ring between units; fewer stand in different ones, each with a link of its own.
void complete_curves(CollectiveCurves& curves, std::int64_t inside, std::int64_t all) {
  const auto complete = [&](BandwidthCurve& curve, bool messages) {
    if (curve.devices == 0) curve.devices = messages ? 1 : all;
    curve.sharing = !messages && curve.devices > inside ? inside : 1;
  };
  complete(curves.common, false);
  for (auto& [collective, curve] : curves.own) {
    complete(curve, collective == Collective::kPermute || collective == Collective::kSendReceive);
  }
}

// ---------------------------------------------------------------------------------------- levels

Result<InNetworkReduction> read_reduction(const JsonCursor& cursor) {
  InNetworkReduction reduction;
  FieldReader fields(cursor, {"bandwidth", "latency"});
  reduction.bandwidth = fields.quantity("bandwidth", Unit::kBytesPerSecond, kRate);
  reduction.latency = {fields.quantity("latency", Unit::kSeconds, kDelay)};
  if (!fields.ok()) return fields.failure();
  return reduction;
}

constexpr Wiring kWirings[] = {Wiring::kSwitch, Wiring::kFullyConnected};

Wiring read_wiring(const JsonCursor& cursor, FieldReader& fields) {
  const std::string name(fields.keep(cursor.as_string()));
  std::vector<std::string> names;
  for (const Wiring wiring : kWirings) {
    if (name == wiring_name(wiring)) return wiring;
    names.emplace_back(wiring_name(wiring));
  }
  if (fields.ok()) {
    fields.refuse(cursor,
                  ErrorCode::kValue,
                  "expected \"switch\" or \"fully_connected\", found \"" + name + "\"" +
                      nearest_name_hint(name, names));
  }
  return Wiring::kSwitch;
}

Result<Level> read_level(const JsonCursor& cursor) {
  FieldReader fields(cursor,
                     {"name",
                      "size",
                      "bandwidth",
                      "latency",
                      "oversubscription",
                      "wiring",
                      "group_bandwidth",
                      "in_network_all_reduce",
                      "collectives"});
  Level level;
  level.name = fields.text("name");
  if (const auto size = fields.require("size"))
    level.size = fields.keep(size->as_int64(1, kMaxDevices));
  level.bandwidth = fields.quantity("bandwidth", Unit::kBytesPerSecond, kRate);
  level.latency = {fields.quantity("latency", Unit::kSeconds, kDelay)};
  fields.quantity("oversubscription",
                  Unit::kRatio,
                  {1.0, 1e6, "a factor from 1 to 1e6"},
                  level.oversubscription);
  if (const auto wiring = fields.find("wiring")) level.wiring = read_wiring(*wiring, fields);
  if (const auto group = fields.find("group_bandwidth"))
    level.group_bandwidth = fields.quantity_at(*group, Unit::kBytesPerSecond, kRate);
  if (const auto reduces = fields.find("in_network_all_reduce"))
    level.in_network_all_reduce = fields.keep(read_reduction(*reduces));
  if (const auto curves = fields.find("collectives"))
    level.collectives = fields.keep(read_curves(*curves));
  if (!fields.ok()) return fields.failure();
  return level;
}

Result<std::vector<Level>> read_levels(const JsonCursor& cursor) {
  const Result<std::vector<JsonCursor>> items = cursor.as_array();
  if (!items) return fail(items.error());
  if (items->empty() || items->size() > static_cast<std::size_t>(kMaxLevels)) {
    return cursor.error(
        ErrorCode::kValue,
        "expected 1 to " + std::to_string(kMaxLevels) + " levels, the innermost first");
  }
  std::vector<Level> levels;
  std::set<std::string> names;
  std::int64_t devices = 1;
  for (const JsonCursor& item : *items) {
    Result<Level> level = read_level(item);
    if (!level) return fail(level.error());
    if (!names.insert(level->name).second) {
      return item.error(ErrorCode::kDuplicate, "there is another level \"" + level->name + "\"");
    }
    const std::int64_t inside = devices;
    devices *= level->size;
    if (level->collectives) complete_curves(*level->collectives, inside, devices);
    if (devices > kMaxDevices) {
      return item.error(
          ErrorCode::kOverflow,
          "the sizes multiply to more than " + std::to_string(kMaxDevices) + " devices");
    }
    levels.push_back(std::move(*level));
  }
  return levels;
}

// ------------------------------------------------------------------------------------ efficiency

void read_families(const JsonCursor& cursor,
                   FieldReader& fields,
                   Efficiency& efficiency,
                   double FamilyEfficiency::*member) {
  static const std::vector<std::string> names = family_names();
  fields.keep(cursor.expect(JsonKind::kObject));
  for (std::size_t i = 0; fields.ok() && i < cursor.size(); ++i) {
    const std::string key(cursor.key_at(i));
    const double value = fields.quantity_at(cursor.at(i), Unit::kRatio, kFraction);
    if (key == "optimizer" && member == &FamilyEfficiency::memory) {
      efficiency.optimizer_memory = value;
      continue;
    }
    bool known = false;
    for (int f = 0; f < kOperatorFamilyCount; ++f) {
      if (key != operator_family_name(static_cast<OperatorFamily>(f))) continue;
      efficiency.families[static_cast<std::size_t>(f)].*member = value;
      known = true;
    }
    if (!known || key == operator_family_name(OperatorFamily::kView)) {
      fields.refuse(cursor.at(i),
                    ErrorCode::kValue,
                    "unknown operator family \"" + key + "\"" + nearest_name_hint(key, names));
    }
  }
}

Result<MatMulSaturation> read_saturation(const JsonCursor& cursor) {
  constexpr NumberRange kHalf = {0.0, 1e6, "a number from 0 to 1e6"};
  MatMulSaturation half;
  FieldReader fields(cursor, {"m", "n", "k"});
  fields.quantity("m", Unit::kRatio, kHalf, half.m);
  fields.quantity("n", Unit::kRatio, kHalf, half.n);
  fields.quantity("k", Unit::kRatio, kHalf, half.k);
  if (!fields.ok()) return fields.failure();
  return half;
}

Result<MatMulAlignment> read_alignment(const JsonCursor& cursor) {
  constexpr NumberRange kRateLeft = {0.01, 1.0, "a fraction from 0.01 to 1"};
  MatMulAlignment alignment;
  double elements = static_cast<double>(alignment.elements);
  FieldReader fields(cursor, {"elements", "eighths", "odd"});
  fields.quantity("elements", Unit::kRatio, {8.0, 65536.0, "a number from 8 to 65536"}, elements);
  fields.quantity("eighths", Unit::kRatio, kRateLeft, alignment.eighths);
  fields.quantity("odd", Unit::kRatio, kRateLeft, alignment.odd);
  if (!fields.ok()) return fields.failure();
  alignment.elements = std::llround(elements);
  return alignment;
}

Result<Overlap> read_overlap(const JsonCursor& cursor) {
  Overlap overlap;
  FieldReader fields(cursor, {"gradient", "gather", "ring", "activation", "expert"});
  fields.quantity("gradient", Unit::kRatio, kShare, overlap.gradient);
  fields.quantity("gather", Unit::kRatio, kShare, overlap.gather);
  fields.quantity("ring", Unit::kRatio, kShare, overlap.ring);
  fields.quantity("activation", Unit::kRatio, kShare, overlap.activation);
  fields.quantity("expert", Unit::kRatio, kShare, overlap.expert);
  if (!fields.ok()) return fields.failure();
  return overlap;
}

/// ["ring", "tree", "staged"]: a ring is always there.
CollectiveAlgorithms read_algorithms(const JsonCursor& cursor, FieldReader& fields) {
  CollectiveAlgorithms algorithms{false, false};
  const std::vector<JsonCursor> items = fields.keep(cursor.as_array());
  for (const JsonCursor& item : items) {
    const std::string name(fields.keep(item.as_string()));
    if (name == "tree") {
      algorithms.tree = true;
    } else if (name == "staged") {
      algorithms.staged = true;
    } else if (name != "ring" && fields.ok()) {
      const std::vector<std::string> names = {"ring", "tree", "staged"};
      fields.refuse(item,
                    ErrorCode::kValue,
                    "expected \"ring\", \"tree\" or \"staged\", found \"" + name + "\"" +
                        nearest_name_hint(name, names));
    }
  }
  return algorithms;
}

DType read_reduce_dtype(const JsonCursor& cursor, FieldReader& fields) {
  const std::string name(fields.keep(cursor.as_string()));
  const std::optional<DType> dtype = parse_dtype(name);
  if (dtype && is_floating(*dtype)) return *dtype;
  if (fields.ok()) {
    fields.refuse(cursor,
                  ErrorCode::kValue,
                  "expected a floating-point dtype, found \"" + name + "\"" +
                      nearest_name_hint(name, dtype_names()));
  }
  return DType::kFp32;
}

Result<Efficiency> read_efficiency(const JsonCursor& cursor) {
  FieldReader fields(cursor,
                     {"flops",
                      "memory",
                      "matmul_half",
                      "matmul_alignment",
                      "use_tf32",
                      "launch_overhead",
                      "collective_overhead",
                      "own_piece_bandwidth",
                      "collectives",
                      "algorithms",
                      "overlap",
                      "bucket_bytes",
                      "allocator_reserve",
                      "reduce_dtype",
                      "attention_backward"});
  Efficiency e;
  if (const auto at = fields.find("flops")) read_families(*at, fields, e, &FamilyEfficiency::flops);
  if (const auto at = fields.find("memory"))
    read_families(*at, fields, e, &FamilyEfficiency::memory);
  if (const auto at = fields.find("matmul_half")) e.matmul_half = fields.keep(read_saturation(*at));
  if (const auto at = fields.find("matmul_alignment"))
    e.matmul_alignment = fields.keep(read_alignment(*at));
  if (const auto at = fields.find("use_tf32")) e.use_tf32 = fields.keep(at->as_bool());
  fields.quantity("launch_overhead", Unit::kSeconds, kDelay, e.launch_overhead.value);
  fields.quantity("collective_overhead", Unit::kSeconds, kDelay, e.collective_overhead.value);
  if (const auto at = fields.find("collectives")) e.collectives = fields.keep(read_curves(*at));
  if (const auto at = fields.find("own_piece_bandwidth"))
    e.own_piece_bandwidth = fields.quantity_at(*at, Unit::kBytesPerSecond, kRate);
  if (const auto at = fields.find("algorithms")) e.algorithms = read_algorithms(*at, fields);
  if (const auto at = fields.find("overlap")) e.overlap = fields.keep(read_overlap(*at));
  if (const auto at = fields.find("bucket_bytes")) e.bucket_bytes = positive_bytes(fields, *at);
  fields.quantity("allocator_reserve",
                  Unit::kRatio,
                  {0.0, 0.9, "a fraction from 0 to 0.9"},
                  e.allocator_reserve);
  if (const auto at = fields.find("reduce_dtype")) e.reduce_dtype = read_reduce_dtype(*at, fields);
  fields.quantity("attention_backward",
                  Unit::kRatio,
                  {0.1, 100.0, "a factor from 0.1 to 100"},
                  e.attention_backward_factor);
  if (!fields.ok()) return fields.failure();
  return e;
}

Result<void> check_sources(const JsonCursor& cursor) {
  if (auto ok = cursor.expect(JsonKind::kObject); !ok) return ok;
  for (std::size_t i = 0; i < cursor.size(); ++i) {
    if (auto text = cursor.at(i).as_string(); !text) return fail(text.error());
  }
  return {};
}

// --------------------------------------------------------------------------------------- writing

void write_curve(JsonWriter& writer, const BandwidthCurve& curve) {
  writer.member("devices", curve.devices);
  for (const BandwidthCurve::Point& point : curve.points) {
    writer.member(std::to_string(point.bytes), point.fraction);
  }
}

void write_curves(JsonWriter& writer, const CollectiveCurves& curves) {
  writer.key("collectives");
  writer.begin_object();
  write_curve(writer, curves.common);
  for (const auto& [collective, curve] : curves.own) {
    writer.key(collective_name(collective));
    writer.begin_object();
    write_curve(writer, curve);
    writer.end_object();
  }
  writer.end_object();
}

void write_device(JsonWriter& writer, const Device& device) {
  writer.key("device");
  writer.begin_object();
  writer.member("name", device.name);
  writer.member("memory", device.memory);
  writer.member("reserved_memory", device.reserved_memory);
  writer.member("memory_bandwidth", device.memory_bandwidth);
  writer.key("peak_flops");
  writer.begin_object();
  for (const auto& [dtype, rate] : device.peak_flops) writer.member(dtype_name(dtype), rate);
  if (device.tf32_peak_flops) writer.member("tf32", *device.tf32_peak_flops);
  writer.end_object();
  writer.end_object();
}

void write_levels(JsonWriter& writer, const std::vector<Level>& levels) {
  writer.key("levels");
  writer.begin_array();
  for (const Level& level : levels) {
    writer.begin_object();
    writer.member("name", level.name);
    writer.member("size", level.size);
    writer.member("bandwidth", level.bandwidth);
    writer.member("latency", level.latency.value);
    writer.member("oversubscription", level.oversubscription);
    writer.member("wiring", wiring_name(level.wiring));
    if (level.group_bandwidth) writer.member("group_bandwidth", *level.group_bandwidth);
    if (const auto& reduction = level.in_network_all_reduce) {
      writer.key("in_network_all_reduce");
      writer.begin_object();
      writer.member("bandwidth", reduction->bandwidth);
      writer.member("latency", reduction->latency.value);
      writer.end_object();
    }
    if (level.collectives) write_curves(writer, *level.collectives);
    writer.end_object();
  }
  writer.end_array();
}

void write_families(JsonWriter& writer, const Efficiency& e, double FamilyEfficiency::*member) {
  for (int i = 0; i < kOperatorFamilyCount; ++i) {
    const auto family = static_cast<OperatorFamily>(i);
    if (family != OperatorFamily::kView)
      writer.member(operator_family_name(family), e.of(family).*member);
  }
}

void write_efficiency(JsonWriter& writer, const Efficiency& e) {
  writer.key("efficiency");
  writer.begin_object();
  writer.key("flops");
  writer.begin_object();
  write_families(writer, e, &FamilyEfficiency::flops);
  writer.end_object();
  writer.key("memory");
  writer.begin_object();
  write_families(writer, e, &FamilyEfficiency::memory);
  writer.member("optimizer", e.optimizer_memory);
  writer.end_object();
  writer.key("matmul_half");
  writer.begin_object();
  writer.member("m", e.matmul_half.m);
  writer.member("n", e.matmul_half.n);
  writer.member("k", e.matmul_half.k);
  writer.end_object();
  if (e.matmul_alignment != MatMulAlignment{}) {
    writer.key("matmul_alignment");
    writer.begin_object();
    writer.member("elements", e.matmul_alignment.elements);
    writer.member("eighths", e.matmul_alignment.eighths);
    writer.member("odd", e.matmul_alignment.odd);
    writer.end_object();
  }
  writer.member("use_tf32", e.use_tf32);
  writer.member("launch_overhead", e.launch_overhead.value);
  writer.member("collective_overhead", e.collective_overhead.value);
  if (e.own_piece_bandwidth) writer.member("own_piece_bandwidth", *e.own_piece_bandwidth);
  write_curves(writer, e.collectives);
  writer.key("algorithms");
  writer.begin_array();
  writer.value("ring");
  if (e.algorithms.tree) writer.value("tree");
  if (e.algorithms.staged) writer.value("staged");
  writer.end_array();
  writer.key("overlap");
  writer.begin_object();
  writer.member("gradient", e.overlap.gradient);
  writer.member("gather", e.overlap.gather);
  writer.member("ring", e.overlap.ring);
  writer.member("activation", e.overlap.activation);
  writer.member("expert", e.overlap.expert);
  writer.end_object();
  writer.member("bucket_bytes", e.bucket_bytes);
  writer.member("allocator_reserve", e.allocator_reserve);
  writer.member("reduce_dtype", dtype_name(e.reduce_dtype));
  writer.member("attention_backward", e.attention_backward_factor);
  writer.end_object();
}

// ---------------------------------------------------------------------------------- measurements

bool is_known_operator(const std::string& type) {
  const std::span<const std::string> types = operator_types();
  return std::binary_search(types.begin(), types.end(), type);
}

/// A type that graphs declare by rule cannot be known here: "custom" says that it is no
/// misspelling.
void check_measured_type(FieldReader& fields, const std::string& type) {
  bool custom = false;
  if (const auto at = fields.find("custom")) custom = fields.keep(at->as_bool());
  const auto at = fields.find("operator");
  if (!at || custom || is_known_operator(type)) return;
  fields.refuse(*at,
                ErrorCode::kValue,
                "unknown operator type \"" + type + "\"" +
                    nearest_name_hint(type, operator_types()) +
                    "; of a type that graphs declare by rule, say \"custom\": true");
}

/// The local shapes of the operands, at least one; an omitted operand (and a scalar) is [].
void read_measured_shapes(FieldReader& fields, std::vector<std::vector<std::int64_t>>& shapes) {
  const auto inputs = fields.require("inputs");
  if (!inputs) return;
  for (const JsonCursor& shape : fields.keep(inputs->as_array())) {
    shapes.push_back(fields.keep(shape.as_int64s()));
    for (std::size_t d = 0; d < shapes.back().size(); ++d) {
      if (shapes.back()[d] >= 1) continue;
      fields.refuse(shape.at(d),
                    ErrorCode::kValue,
                    "expected a size of at least 1, found " + std::to_string(shapes.back()[d]));
    }
  }
  if (shapes.empty())
    fields.refuse(*inputs,
                  ErrorCode::kValue,
                  "expected the local shape of every operand, found an empty list");
}

Result<Measurement> read_measurement(const JsonCursor& cursor) {
  FieldReader fields(cursor, {"operator", "custom", "inputs", "dtype", "forward", "backward"});
  Measurement made;
  made.type = fields.text("operator");
  check_measured_type(fields, made.type);
  read_measured_shapes(fields, made.inputs);
  if (const auto at = fields.require("dtype")) {
    const std::string name(fields.keep(at->as_string()));
    const std::optional<DType> dtype = parse_dtype(name);
    if (fields.ok() && !dtype) {
      fields.refuse(*at,
                    ErrorCode::kValue,
                    "unknown dtype \"" + name + "\"" + nearest_name_hint(name, dtype_names()));
    }
    made.dtype = dtype.value_or(DType::kFp32);
  }
  made.forward = {fields.quantity("forward", Unit::kSeconds, kDelay)};
  if (const auto backward = fields.find("backward"))
    made.backward = Seconds{fields.quantity_at(*backward, Unit::kSeconds, kDelay)};
  if (!fields.ok()) return fields.failure();
  return made;
}

Result<std::vector<Measurement>> read_measurements(const JsonCursor& cursor) {
  const Result<std::vector<JsonCursor>> items = cursor.as_array();
  if (!items) return fail(items.error());
  std::vector<Measurement> made;
  std::set<std::tuple<std::string, std::vector<std::vector<std::int64_t>>, DType>> known;
  for (const JsonCursor& item : *items) {
    Result<Measurement> measurement = read_measurement(item);
    if (!measurement) return fail(measurement.error());
    if (!known.emplace(measurement->type, measurement->inputs, measurement->dtype).second) {
      return item.error(ErrorCode::kDuplicate,
                        "there is another measurement of \"" + measurement->type +
                            "\" with these shapes and this dtype");
    }
    made.push_back(std::move(*measurement));
  }
  return made;
}

void write_measurements(JsonWriter& writer, const std::vector<Measurement>& measurements) {
  writer.key("measurements");
  writer.begin_array();
  for (const Measurement& measurement : measurements) {
    writer.begin_object();
    writer.member("operator", measurement.type);
    if (!is_known_operator(measurement.type)) writer.member("custom", true);
    writer.key("inputs");
    writer.begin_array(JsonWriter::kOneLine);
    for (const std::vector<std::int64_t>& shape : measurement.inputs) {
      writer.begin_array(JsonWriter::kOneLine);
      for (const std::int64_t size : shape) writer.value(size);
      writer.end_array();
    }
    writer.end_array();
    writer.member("dtype", dtype_name(measurement.dtype));
    writer.member("forward", measurement.forward.value);
    if (measurement.backward) writer.member("backward", measurement.backward->value);
    writer.end_object();
  }
  writer.end_array();
}

// --------------------------------------------------------------------------------------- finding

bool is_path(std::string_view name) {
  return name == "-" || name.find('/') != std::string_view::npos || name.ends_with(".json");
}

}  // namespace

Result<Cluster> parse_cluster(std::string_view text, const std::string& file) {
  const Result<JsonDocument> document = JsonDocument::parse(text, file);
  if (!document) return fail(document.error());
  const JsonCursor root = document->root();
  if (auto ok = root.expect(JsonKind::kObject); !ok) return fail(ok.error());
  if (auto ok = check_schema(root, "meshplan.cluster", 1, 0); !ok) return fail(ok.error());
  FieldReader fields(root,
                     {"schema",
                      "name",
                      "device",
                      "levels",
                      "efficiency",
                      "measurements",
                      "price_per_device_hour",
                      "sources"});
  Cluster cluster;
  cluster.name = fields.text("name");
  if (const auto device = fields.require("device"))
    cluster.device = fields.keep(read_device(*device));
  if (const auto levels = fields.require("levels"))
    cluster.levels = fields.keep(read_levels(*levels));
  if (const auto at = fields.find("efficiency"))
    cluster.efficiency = fields.keep(read_efficiency(*at));
  if (!cluster.levels.empty()) {
    const std::int64_t first = cluster.levels[0].size;
    complete_curves(cluster.efficiency.collectives, first, first);
  }
  if (const auto at = fields.find("measurements"))
    cluster.measurements = fields.keep(read_measurements(*at));
  if (const auto price = fields.find("price_per_device_hour")) {
    cluster.price_per_device_hour =
        fields.quantity_at(*price, Unit::kRatio, {0.0, 1e9, "a price from 0 to 1e9"});
  }
  if (const auto sources = fields.find("sources")) fields.keep(check_sources(*sources));
  if (!fields.ok()) return fields.failure();
  cluster.fingerprint = "sha256:" + sha256_hex(write_cluster(cluster));
  return cluster;
}

std::string write_cluster(const Cluster& cluster) {
  JsonWriter writer;
  writer.begin_object();
  writer.member("schema", "meshplan.cluster/1.0");
  writer.member("name", cluster.name);
  write_device(writer, cluster.device);
  write_levels(writer, cluster.levels);
  write_efficiency(writer, cluster.efficiency);
  if (!cluster.measurements.empty()) write_measurements(writer, cluster.measurements);
  if (cluster.price_per_device_hour)
    writer.member("price_per_device_hour", *cluster.price_per_device_hour);
  writer.end_object();
  return std::move(writer).text();
}

std::vector<std::string> config_folders() {
  std::vector<std::string> folders;
  std::error_code status;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", status);
  if (!status) {
    const auto beside = program.parent_path().parent_path() / "share" / "meshplan" / "configs";
    folders.push_back(beside.string());
  }
  folders.emplace_back(MESHPLAN_SOURCE_CONFIGS);
  folders.emplace_back(MESHPLAN_INSTALLED_CONFIGS);
  return folders;
}

std::vector<std::string> shipped_clusters() {
  std::set<std::string> names;
  for (const std::string& folder : config_folders()) {
    std::error_code status;
    std::filesystem::directory_iterator files(std::filesystem::path(folder) / "clusters", status);
    for (; !status && files != std::filesystem::directory_iterator(); files.increment(status)) {
      const std::filesystem::path path = files->path();
      if (path.extension() == ".json") names.insert(path.stem().string());
    }
  }
  return {names.begin(), names.end()};
}

Result<Cluster> load_cluster(const std::string& name_or_path) {
  std::string path = name_or_path;
  if (!is_path(name_or_path)) {
    path.clear();
    for (const std::string& folder : config_folders()) {
      const auto candidate = std::filesystem::path(folder) / "clusters" / (name_or_path + ".json");
      std::error_code status;
      if (std::filesystem::is_regular_file(candidate, status)) {
        path = candidate.string();
        break;
      }
    }
    if (path.empty()) {
      const std::vector<std::string> known = shipped_clusters();
      std::string list;
      for (const std::string& name : known) list += (list.empty() ? "" : ", ") + name;
      return fail(ErrorCode::kInput,
                  "--cluster",
                  "there is no cluster \"" + name_or_path + "\"" +
                      nearest_name_hint(name_or_path, known) + "; the shipped ones are " +
                      (list.empty() ? "missing" : list) +
                      "; a file is given with its path, e.g. ./mine.json");
    }
  }
  const Result<std::string> text = read_file(path);
  if (!text) return fail(text.error());
  return parse_cluster(*text, input_name(path));
}

}  // namespace meshplan

// SPDX-License-Identifier: Apache-2.0
#include "graph/quantity.h"

#include <charconv>
#include <cmath>
#include <span>
#include <string>
#include <system_error>

namespace meshplan {
namespace {

struct Row {
  std::string_view name;
  double factor;
};

constexpr double kKi = 1024.0;
constexpr Row kBytes[] = {{"B", 1.0},
                          {"kB", 1e3},
                          {"KB", 1e3},
                          {"MB", 1e6},
                          {"GB", 1e9},
                          {"TB", 1e12},
                          {"KiB", kKi},
                          {"MiB", kKi* kKi},
                          {"GiB", kKi* kKi* kKi},
                          {"TiB", kKi* kKi* kKi* kKi}};
constexpr Row kBytesPerSecond[] = {{"B/s", 1.0},
                                   {"kB/s", 1e3},
                                   {"KB/s", 1e3},
                                   {"MB/s", 1e6},
                                   {"GB/s", 1e9},
                                   {"TB/s", 1e12},
                                   {"KiB/s", kKi},
                                   {"MiB/s", kKi* kKi},
                                   {"GiB/s", kKi* kKi* kKi},
                                   {"TiB/s", kKi* kKi* kKi* kKi},
                                   {"bit/s", 0.125},
                                   {"kbit/s", 0.125e3},
                                   {"Mbit/s", 0.125e6},
                                   {"Gbit/s", 0.125e9},
                                   {"Tbit/s", 0.125e12}};
constexpr Row kFlops[] = {{"FLOPS", 1.0},
                          {"kFLOPS", 1e3},
                          {"MFLOPS", 1e6},
                          {"GFLOPS", 1e9},
                          {"TFLOPS", 1e12},
                          {"PFLOPS", 1e15},
                          {"EFLOPS", 1e18},
                          {"FLOP/s", 1.0},
                          {"GFLOP/s", 1e9},
                          {"TFLOP/s", 1e12},
                          {"PFLOP/s", 1e15},
                          {"EFLOP/s", 1e18}};

/// Times divide by an exact number, so that "3us" is the double nearest to 3e-6.
struct Time {
  std::string_view name;
  double multiply;
  double divide;
};
constexpr Time kTimes[] = {{"ns", 1.0, 1e9},
                           {"us", 1.0, 1e6},
                           {"\xC2\xB5s", 1.0, 1e6},
                           {"\xCE\xBCs", 1.0, 1e6},
                           {"ms", 1.0, 1e3},
                           {"s", 1.0, 1.0},
                           {"min", 60.0, 1.0},
                           {"h", 3600.0, 1.0}};

const char* known_units(Unit unit) {
  switch (unit) {
    case Unit::kBytes:
      return "a size such as 80GiB or 40GB (B, kB, MB, GB, TB, KiB, MiB, GiB, TiB)";
    case Unit::kBytesPerSecond:
      return "a rate such as 900GB/s or 200Gbit/s (B/s to TB/s, KiB/s to TiB/s, bit/s to Tbit/s)";
    case Unit::kSeconds:
      return "a time such as 5us (ns, us, ms, s, min, h)";
    case Unit::kFlops:
      return "a speed such as 312TFLOPS (FLOPS, kFLOPS, MFLOPS, GFLOPS, TFLOPS, PFLOPS, EFLOPS)";
    case Unit::kRatio:
      return "a ratio such as 0.02, 2% or 0.5x";
  }
  return "";
}

std::optional<double> scaled(double number, std::string_view unit, std::span<const Row> rows) {
  for (const Row& row : rows) {
    if (row.name == unit) return number * row.factor;
  }
  return std::nullopt;
}

std::optional<double> in_base_unit(double number, std::string_view name, Unit unit) {
  if (name.empty()) return number;
  switch (unit) {
    case Unit::kBytes:
      return scaled(number, name, kBytes);
    case Unit::kBytesPerSecond:
      return scaled(number, name, kBytesPerSecond);
    case Unit::kFlops:
      return scaled(number, name, kFlops);
    case Unit::kSeconds:
      for (const Time& time : kTimes) {
        if (time.name == name) return number * time.multiply / time.divide;
      }
      return std::nullopt;
    case Unit::kRatio:
      if (name == "%") return number / 100.0;
      if (name == "x") return number;
      return std::nullopt;
  }
  return std::nullopt;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

}  // namespace

Result<double> parse_quantity(std::string_view text, Unit unit) {
  const auto refuse = [&](ErrorCode code) {
    return fail(
        code,
        "",
        "expected " + std::string(known_units(unit)) + ", found " + json_quote(text.substr(0, 60)));
  };
  const std::string_view all = trimmed(text);
  double number = 0.0;
  const auto read = std::from_chars(all.data(), all.data() + all.size(), number);
  if (read.ec != std::errc() || !std::isfinite(number) || number < 0.0) {
    return refuse(ErrorCode::kValue);
  }
  const auto used = static_cast<std::size_t>(read.ptr - all.data());
  const std::optional<double> value = in_base_unit(number, trimmed(all.substr(used)), unit);
  if (!value || !std::isfinite(*value)) return refuse(ErrorCode::kValue);
  return *value;
}

namespace {

Result<Bytes> whole_bytes(double bytes) {
  constexpr double kLimit = 9223372036854775808.0;  // 2^63
  if (bytes >= kLimit) return fail(ErrorCode::kOverflow, "", "the size does not fit into 64 bits");
  return static_cast<Bytes>(std::nearbyint(bytes));
}

}  // namespace

Result<Bytes> parse_bytes(std::string_view text) {
  const Result<double> bytes = parse_quantity(text, Unit::kBytes);
  if (!bytes) return fail(bytes.error());
  return whole_bytes(*bytes);
}

Result<double> read_quantity(const JsonCursor& cursor, Unit unit) {
  if (cursor.kind() == JsonKind::kString) {
    const Result<double> value = parse_quantity(*cursor.as_string(), unit);
    if (!value) return cursor.error(value.error().code, value.error().message);
    return value;
  }
  const Result<double> number = cursor.as_double();
  if (!number) return number;
  if (*number < 0.0) {
    return cursor.error(
        ErrorCode::kValue,
        "expected " + std::string(known_units(unit)) + ", found " + json_number(*number));
  }
  return number;
}

Result<Bytes> read_bytes(const JsonCursor& cursor) {
  if (cursor.kind() == JsonKind::kInteger) return cursor.as_int64(0, INT64_MAX);
  const Result<double> bytes = read_quantity(cursor, Unit::kBytes);
  if (!bytes) return fail(bytes.error());
  const Result<Bytes> whole = whole_bytes(*bytes);
  if (!whole) return cursor.error(whole.error().code, whole.error().message);
  return whole;
}

}  // namespace meshplan

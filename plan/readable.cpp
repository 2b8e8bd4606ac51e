// SPDX-License-Identifier: Apache-2.0
#include "plan/readable.h"

#include <array>
#include <cmath>
#include <cstdio>

namespace meshplan {
namespace {

std::string fixed(double value, int decimals) {
  std::array<char, 64> buffer{};
  std::snprintf(buffer.data(), buffer.size(), "%.*f", decimals, value);
  return buffer.data();
}

/// Three or four significant digits for 0.1 <= |value| < 10,000.
std::string digits(double value) {
  const double size = std::abs(value);
  return fixed(value, size < 9.995 ? 2 : size < 99.95 ? 1 : 0);
}

}  // namespace

std::string readable_bytes(Bytes bytes) {
  constexpr std::array<const char*, 7> kUnits = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (std::abs(value) >= 999.5 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  return (unit == 0 ? fixed(value, 0) : digits(value)) + " " + kUnits[unit];
}

std::string readable_time(Seconds time) {
  const double value = time.value;
  const double size = std::abs(value);
  if (value == 0) return "0 s";
  if (size < 0.9995e-6) return digits(value * 1e9) + " ns";
  if (size < 0.9995e-3) return digits(value * 1e6) + " us";
  if (size < 0.9995) return digits(value * 1e3) + " ms";
  if (size < 99.995) return fixed(value, size < 9.9995 ? 3 : 2) + " s";
  if (size < 600) return fixed(value, 1) + " s";
  if (size >= 1e12) return fixed(value, 0) + " s";
  const auto minutes = static_cast<std::int64_t>(value / 60);
  return readable_count(minutes) + " min " + fixed(value - 60.0 * static_cast<double>(minutes), 0) +
         " s";
}

std::string readable_percent(double fraction) {
  const double value = 100 * fraction;
  const double size = std::abs(value);
  if (size != 0 && size < 0.0005) return "under 0.001 %";
  return fixed(value, size >= 0.995 || size == 0 ? 1 : size >= 0.0995 ? 2 : 3) + " %";
}

std::string readable_price(double price) {
  std::array<char, 64> buffer{};
  std::snprintf(buffer.data(), buffer.size(), "%.4g", price);
  return buffer.data();
}

std::string readable_count(std::int64_t count) {
  std::string text = std::to_string(count);
  const std::size_t first = text[0] == '-' ? 1 : 0;
  for (std::size_t i = text.size(); i > first + 3;) {
    i -= 3;
    text.insert(i, 1, ',');
  }
  return text;
}

namespace {

const char* sign_of(double value) { return value > 0 ? "+" : value < 0 ? "-" : ""; }

}  // namespace

std::string signed_bytes(Bytes bytes) {
  const std::string text = readable_bytes(bytes);
  return bytes > 0 ? "+" + text : text;
}

std::string signed_time(Seconds time) {
  return sign_of(time.value) + readable_time({std::abs(time.value)});
}

std::string signed_percent(double fraction) {
  if (fraction != 0 && std::abs(fraction) < 0.000005) return "about 0 %";
  return sign_of(fraction) + readable_percent(std::abs(fraction));
}

}  // namespace meshplan

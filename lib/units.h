// SPDX-License-Identifier: Apache-2.0
// Units of prices. Bytes are 64-bit integers, seconds are doubles on a fixed grid.
#pragma once

#include <cmath>
#include <compare>
#include <cstdint>

namespace meshplan {

/// A number of bytes, elements or floating-point operations on one device.
using Bytes = std::int64_t;

/// A time in seconds.
struct Seconds {
  double value = 0.0;

  friend auto operator<=>(const Seconds&, const Seconds&) = default;
  friend Seconds operator+(Seconds a, Seconds b) { return {a.value + b.value}; }
  friend Seconds operator-(Seconds a, Seconds b) { return {a.value - b.value}; }
  friend Seconds operator*(double factor, Seconds a) { return {factor * a.value}; }
  Seconds& operator+=(Seconds other) {
    value += other.value;
    return *this;
  }
};

/// Ticks of the price grid.
constexpr double kTicksPerSecond = 1099511627776.0;  // 2^40

/// Rounds to a multiple of 2^-40 s (about one picosecond). Sums of such numbers up to 8,192 s are
/// exact in a double and therefore independent of their order: search, evaluator and checker agree
/// to the last bit. Every price is rounded once, before it enters a sum or a table.
inline Seconds on_price_grid(Seconds time) {
  return {std::nearbyint(time.value * kTicksPerSecond) / kTicksPerSecond};
}
/// The next multiple upwards: for prices that must not fall below a sum of others.
inline Seconds up_to_price_grid(Seconds time) {
  return {std::ceil(time.value * kTicksPerSecond) / kTicksPerSecond};
}
/// The next multiple downwards: for terms of lower bounds.
inline Seconds down_to_price_grid(Seconds time) {
  return {std::floor(time.value * kTicksPerSecond) / kTicksPerSecond};
}

}  // namespace meshplan

// SPDX-License-Identifier: Apache-2.0
// Quantities with units: "80GiB", "900GB/s", "5us", "312TFLOPS". A plain number is in the base
// unit: bytes, bytes per second, seconds, operations per second.
#pragma once

#include <string_view>

#include "graph/json.h"
#include "lib/result.h"
#include "lib/units.h"

namespace meshplan {

enum class Unit : std::uint8_t {
  kBytes,           ///< B, kB, MB, GB, TB (powers of 1000); KiB, MiB, GiB, TiB (powers of 1024)
  kBytesPerSecond,  ///< the same with /s; also bit/s, kbit/s, Mbit/s, Gbit/s, Tbit/s
  kSeconds,         ///< ns, us, ms, s, min, h
  kFlops,           ///< FLOPS, kFLOPS, MFLOPS, GFLOPS, TFLOPS, PFLOPS, EFLOPS
  kRatio            ///< % (2% is 0.02), x (0.5x is 0.5)
};

/// Reads a finite quantity >= 0 and returns it in the base unit. White space may stand around the
/// number. Errors: kValue with the units that are known, `where` empty.
Result<double> parse_quantity(std::string_view text, Unit unit);

/// parse_quantity for kBytes, rounded to whole bytes. Errors also: kOverflow beyond 2^63 - 1.
Result<Bytes> parse_bytes(std::string_view text);

/// A JSON number (in the base unit) or a string with a unit. Errors carry the place.
Result<double> read_quantity(const JsonCursor& cursor, Unit unit);
Result<Bytes> read_bytes(const JsonCursor& cursor);

}  // namespace meshplan

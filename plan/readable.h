// SPDX-License-Identifier: Apache-2.0
// Numbers as people read them, always with a unit and about four digits.
#pragma once

#include <string>

#include "lib/units.h"

namespace meshplan {

/// "512 B", "1.50 MiB", "76.0 GiB".
std::string readable_bytes(Bytes bytes);
/// "0 s", "3.20 us", "12.3 ms", "1.234 s", "12 min 5 s".
std::string readable_time(Seconds time);
/// "45.1 %" of a fraction; small ones keep two digits: "0.012 %".
std::string readable_percent(double fraction);
/// "12.34", "0.0012": four digits, in whatever currency.
std::string readable_price(double price);
/// "12,345,678".
std::string readable_count(std::int64_t count);

/// The same for differences, always with their sign: "+1.50 MiB", "-12.3 ms", "+45.1 %"; "0" with
/// its unit where there is none.
std::string signed_bytes(Bytes bytes);
std::string signed_time(Seconds time);
std::string signed_percent(double fraction);

}  // namespace meshplan

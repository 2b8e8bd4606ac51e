// SPDX-License-Identifier: Apache-2.0
// Hints for mistyped names.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace meshplan {

/// `; did you mean "tp"?` for the known name nearest to `name` (at most a third of its letters
/// differ, ties to the first), or "" where none is near. Names over 200 letters get no hint.
std::string nearest_name_hint(std::string_view name, std::span<const std::string> known);

}  // namespace meshplan

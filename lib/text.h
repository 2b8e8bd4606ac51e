// SPDX-License-Identifier: Apache-2.0
// Small things about text: trimming what was read, quoting and counting in messages.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace meshplan {

/// Without the blanks, tabs and line ends around it.
std::string_view trim(std::string_view text);

/// What the user wrote, in quotes, on one line: at most 60 bytes of it, cut between two characters;
/// control characters become "?".
std::string quoted(std::string_view text);

/// "1 axis", "2 axes": `plural` is `noun` + "s" where it is left out.
std::string counted(std::size_t count, std::string_view noun, std::string_view plural = "");

/// For XML text and attributes; what XML 1.0 has no way to say becomes "?".
std::string xml_text(std::string_view text);

}  // namespace meshplan

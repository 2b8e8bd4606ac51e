// SPDX-License-Identifier: Apache-2.0
#include "lib/text.h"

#include <algorithm>

namespace meshplan {

std::string_view trim(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\n";
  const std::size_t first = text.find_first_not_of(kBlank);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

std::string quoted(std::string_view text) {
  constexpr std::size_t kLongest = 60;
  std::size_t size = std::min(text.size(), kLongest);
  const auto continues_character = [&](std::size_t i) {
    return (static_cast<unsigned char>(text[i]) & 0xC0U) == 0x80U;
  };
  while (size < text.size() && size > 0 && continues_character(size)) --size;
  std::string quote(text.substr(0, size));
  std::replace_if(
      quote.begin(),
      quote.end(),
      [](char letter) { return static_cast<unsigned char>(letter) < 0x20 || letter == 0x7F; },
      '?');
  return '"' + quote + (size < text.size() ? "...\"" : "\"");
}

std::string counted(std::size_t count, std::string_view noun, std::string_view plural) {
  std::string text = std::to_string(count) + ' ';
  if (count != 1 && !plural.empty()) return text.append(plural);
  return text.append(noun).append(count == 1 ? "" : "s");
}

std::string xml_text(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t' ? '?' : c;
    }
  }
  return out;
}

}  // namespace meshplan

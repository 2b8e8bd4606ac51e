// SPDX-License-Identifier: Apache-2.0
#include "lib/text.h"

#include <string>

#include "support/catch.h"

namespace meshplan::text_test {
namespace {

TEST_CASE("a quote is one line of at most 60 bytes and cuts no character") {
  CHECK(meshplan::quoted("dp") == "\"dp\"");
  CHECK(meshplan::quoted("") == "\"\"");
  CHECK(meshplan::quoted("a\nb\tc\x7f") == "\"a?b?c?\"");
  CHECK(meshplan::quoted(std::string(60, 'x')) == '"' + std::string(60, 'x') + '"');
  CHECK(meshplan::quoted(std::string(61, 'x')) == '"' + std::string(60, 'x') + "...\"");
  const std::string wide = "\xE6\x97\xA5";  // three bytes
  std::string text = "a";
  for (int i = 0; i < 20; ++i) text += wide;
  // 1 + 19 * 3 = 58; the next character would end at 61.
  CHECK(meshplan::quoted(text) == '"' + text.substr(0, 58) + "...\"");
}

TEST_CASE("counts take the plural where there is not exactly one") {
  CHECK(counted(1, "rank") == "1 rank");
  CHECK(counted(0, "rank") == "0 ranks");
  CHECK(counted(1, "axis", "axes") == "1 axis");
  CHECK(counted(2, "axis", "axes") == "2 axes");
}

TEST_CASE("trimming takes blanks from both ends only") {
  CHECK(trim(" \t a b\r\n") == "a b");
  CHECK(trim(" \n") == "");
  CHECK(trim("") == "");
}

}  // namespace
}  // namespace meshplan::text_test

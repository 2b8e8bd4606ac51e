// SPDX-License-Identifier: Apache-2.0
#include "lib/interner.h"

#include <map>
#include <random>

#include "support/catch.h"

namespace meshplan::interner_test {

TEST_CASE("an interner numbers sequences like a map does", "[interner]") {
  std::mt19937 random(7);
  Interner interner;
  std::map<std::vector<std::uint64_t>, int> expected;
  for (int i = 0; i < 20000; ++i) {
    // few values and lengths, so that many sequences repeat and some are prefixes of others
    std::vector<std::uint64_t> words(random() % 6);
    for (std::uint64_t& word : words) word = random() % 4;
    const auto [entry, is_new] = expected.emplace(words, static_cast<int>(expected.size()));
    const auto [number, added] = interner.number(words);
    REQUIRE(number == entry->second);
    REQUIRE(added == is_new);
  }
  CHECK(expected.size() > 1000);
}

}  // namespace meshplan::interner_test

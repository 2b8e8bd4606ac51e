// SPDX-License-Identifier: Apache-2.0
#include "plan/plan_fold.h"

#include <set>

#include "support/catch.h"

namespace meshplan::plan_fold_test {
namespace {

using Texts = std::vector<std::vector<std::string>>;

std::vector<FoldedItem> fold_texts(const Texts& texts,
                                   const std::vector<std::size_t>& bodies = {}) {
  std::vector<FoldItem> items;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    items.push_back({{texts[i].begin(), texts[i].end()}, bodies.empty() ? 0 : bodies[i]});
  }
  return fold(items);
}

std::vector<std::string> names(const std::vector<FoldedItem>& folded) {
  std::vector<std::string> result;
  for (const FoldedItem& item : folded) result.push_back(item.texts[0]);
  return result;
}

TEST_CASE("equal layers become one entry, in the order of their first members") {
  const auto folded = fold_texts({{"embed"},
                                  {"layers.0.a"},
                                  {"layers.0.b"},
                                  {"layers.1.a"},
                                  {"layers.1.b"},
                                  {"layers.2.a"},
                                  {"layers.2.b"},
                                  {"norm"}});
  CHECK(names(folded) ==
        std::vector<std::string>{"embed", "layers.{0..2}.a", "layers.{0..2}.b", "norm"});
  CHECK(folded[2].members == std::vector<std::size_t>{2, 4, 6});
}

TEST_CASE("a layer that differs splits the range") {
  const auto folded = fold_texts({{"l.0"}, {"l.1"}, {"l.2"}, {"l.3"}, {"l.4"}}, {0, 0, 1, 0, 0});
  CHECK(names(folded) == std::vector<std::string>{"l.{0..1}", "l.2", "l.{3..4}"});
}

TEST_CASE("two counters are independent loops, the first the slowest") {
  Texts texts;
  for (int layer = 0; layer < 3; ++layer) {
    for (int expert = 0; expert < 2; ++expert) {
      const std::string name =
          "layers." + std::to_string(layer) + ".experts." + std::to_string(expert) + ".w";
      texts.push_back({name, name});
    }
  }
  const auto folded = fold_texts(texts);
  REQUIRE(folded.size() == 1);
  CHECK(folded[0].texts[0] == "layers.{0..2}.experts.{0..1}.w");
  CHECK(folded[0].texts[1] == folded[0].texts[0]);
  CHECK(folded[0].members == std::vector<std::size_t>{0, 1, 2, 3, 4, 5});
}

TEST_CASE("a text that follows the counter in another way keeps its entry apart") {
  // the next layer; the counter twice; only the second counter
  CHECK(fold_texts({{"l.0", "l.1"}, {"l.1", "l.2"}}).size() == 2);
  CHECK(fold_texts({{"l.0", "l.0.x.0"}, {"l.1", "l.1.x.1"}}).size() == 2);
  CHECK(fold_texts({{"l.0.e.0", "e.0"}, {"l.0.e.1", "e.1"}}).size() == 1);  // one loop only
  CHECK(names(fold_texts(
            {{"l.0.e.0", "e.0"}, {"l.0.e.1", "e.1"}, {"l.1.e.0", "e.0"}, {"l.1.e.1", "e.1"}})) ==
        std::vector<std::string>{"l.{0..1}.e.0", "l.{0..1}.e.1"});
  // a number that happens to equal the counter once is no obstacle
  CHECK(fold_texts({{"l.0", "fc.1"}, {"l.1", "fc.1"}, {"l.2", "fc.1"}}).size() == 1);
}

TEST_CASE("numbered siblings and padded numbers stay readable") {
  CHECK(fold_texts({{"fc1"}, {"fc2"}}).size() == 2);
  CHECK(fold_texts({{"h1.a"}, {"h2.a"}, {"h3.a"}, {"h4.a"}}).size() == 1);
  CHECK(fold_texts({{"layers.00"}, {"layers.01"}}).size() == 2);
}

TEST_CASE("unfold lists what a pattern stands for") {
  const std::string_view texts[] = {"a.{2..3}.b.{0..1}", "x.{2..3}", "plain", "y.{7..8}.{0..1}"};
  const auto members = unfold(texts, 100);
  REQUIRE(members);
  CHECK(*members == Texts{{"a.2.b.0", "x.2", "plain", "y.7.0"},
                          {"a.2.b.1", "x.2", "plain", "y.7.1"},
                          {"a.3.b.0", "x.3", "plain", "y.8.0"},
                          {"a.3.b.1", "x.3", "plain", "y.8.1"}});
}

TEST_CASE("bad patterns are refused and huge ones end early") {
  const auto fails = [](std::vector<std::string_view> texts) {
    const auto result = unfold(texts, 1000);
    return result ? std::string() : error_code_name(result.error().code);
  };
  CHECK(fails({"a.{3..2}"}) == "value");
  CHECK(fails({"a", "b.{0..1}"}) == "value");
  CHECK(fails({"a.{0..1}", "b.{0..2}"}) == "value");
  CHECK(fails({"a.{0..999999999}.{0..999999999}.{0..999999999}"}) == "overflow");
  CHECK(fails({"a.{0..999}"}).empty());
  CHECK(fails({"a.{0..1000}"}) == "overflow");
  for (const char* text : {"{", "{1}", "{1..}", "{..2}", "{1..2", "{-1..2}", "{1...2}", "{a..b}"}) {
    CHECK_FALSE(has_pattern(text));
  }
}

TEST_CASE("characters that the folding uses as marks are letters like others in a name") {
  const std::string zero("a\0b", 3);
  const auto folded = fold_texts({{zero, "\1x"}, {"\2.0"}, {"\2.1"}, {std::string("\0", 1)}});
  CHECK(names(folded) == std::vector<std::string>{zero, "\2.{0..1}", std::string("\0", 1)});
  CHECK(folded[0].texts[1] == "\1x");
}

}  // namespace
}  // namespace meshplan::plan_fold_test

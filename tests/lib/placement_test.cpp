// SPDX-License-Identifier: Apache-2.0
#include "lib/placement.h"

#include <unordered_set>

#include "support/catch.h"

namespace meshplan::placement_test {
namespace {

TEST_CASE("every placement reads back from its own text and from the long form") {
  std::vector<Placement> all = {Replicate{}};
  std::vector<std::string> long_forms = {"Replicate"};
  for (const int dim : {0, 1, 7, -1, -3}) {
    all.emplace_back(Shard{dim});
    long_forms.push_back("Shard(" + std::to_string(dim) + ")");
    for (const std::int64_t factor : {std::int64_t{2}, std::int64_t{12}, std::int64_t{1} << 40}) {
      all.emplace_back(StridedShard{dim, factor});
      long_forms.push_back("StridedShard(" + std::to_string(dim) + ", " + std::to_string(factor) +
                           ")");
    }
  }
  for (const char* name : {"sum", "max", "min", "avg", "prod"}) {
    all.emplace_back(Partial{*parse_reduction(name)});
    long_forms.push_back(std::string("Partial(") + name + ")");
  }
  std::unordered_set<std::string> texts;
  std::unordered_set<std::size_t> hashes;
  for (std::size_t i = 0; i < all.size(); ++i) {
    INFO(long_forms[i]);
    CHECK(*parse_placement(to_string(all[i])) == all[i]);
    CHECK(*parse_placement("  " + to_string(all[i]) + " ") == all[i]);
    CHECK(*parse_placement(long_forms[i]) == all[i]);
    CHECK(texts.insert(to_string(all[i])).second);
    CHECK(hashes.insert(hash_value(all[i])).second);
  }
  CHECK(*parse_placements(to_string(all)) == all);
}

TEST_CASE("the texts of placements are the documented ones") {
  CHECK(to_string(Placement(Replicate{})) == "R");
  CHECK(to_string(Placement(Shard{1})) == "S(1)");
  CHECK(to_string(Placement(StridedShard{0, 4})) == "SS(0,4)");
  CHECK(to_string(Placement(Partial{Reduction::kAvg})) == "P(avg)");
  CHECK(to_string(Placements{Shard{0}, StridedShard{1, 2}, Replicate{}}) == "S(0),SS(1,2),R");
  CHECK(*parse_placement("P") == Placement(Partial{Reduction::kSum}));
  CHECK(*parse_placement("P()") == Placement(Partial{Reduction::kSum}));
  CHECK(*parse_placement("P(MAX)") == Placement(Partial{Reduction::kMax}));
  CHECK(*parse_placement("SS( 0 , 4 )") == Placement(StridedShard{0, 4}));
  CHECK(parse_placements("")->empty());
  CHECK(parse_placements(" SS(0,4) , S(0),R ")->size() == 3);
}

TEST_CASE("a wrong placement is an error that says what was expected") {
  for (const char* text : {"",
                           "X",
                           "S",
                           "S()",
                           "S(a)",
                           "S(1.5)",
                           "S(1",
                           "S1)",
                           "S(1))",
                           "S(99999999999)",
                           "SS(0)",
                           "SS(0,)",
                           "SS(,4)",
                           "SS(0,0)",
                           "SS(0,-2)",
                           "SS(0,4,1)",
                           "P(foo)",
                           "P(all)",
                           "R(1)",
                           "s(0)",
                           "S(0x1)",
                           "S(+1)",
                           "SS(0,99999999999999999999)",
                           "Shard",
                           "(0)",
                           ")(",
                           "S(0)S(1)",
                           "\xff\xfe"}) {
    INFO(text);
    const Result<Placement> parsed = parse_placement(text);
    REQUIRE_FALSE(parsed);
    CHECK(parsed.error().code == ErrorCode::kValue);
    CHECK(parsed.error().message.find("placement") != std::string::npos);
  }
  const Result<Placements> list = parse_placements("S(0),,R");
  REQUIRE_FALSE(list);
  CHECK(list.error().where == "/1");
  CHECK_FALSE(parse_placements("S(0),"));
  CHECK_FALSE(parse_placements("S(0"));
  CHECK_FALSE(parse_placements("S(0)),R"));
  // What the user wrote is quoted, but never without bound.
  CHECK(parse_placement(std::string(100000, 'x')).error().message.size() < 200);
}

TEST_CASE("predicates look at the kind and, if asked, at the dimension or reduction") {
  CHECK(is_shard(Shard{1}));
  CHECK(is_shard(StridedShard{1, 2}, 1));
  CHECK_FALSE(is_shard(StridedShard{1, 2}, 0));
  CHECK_FALSE(is_shard(Replicate{}));
  CHECK(is_replicate(Replicate{}));
  CHECK_FALSE(is_replicate(Partial{}));
  CHECK(is_partial(Partial{Reduction::kMin}, Reduction::kMin));
  CHECK_FALSE(is_partial(Partial{Reduction::kMin}, Reduction::kSum));
  CHECK(Placement(Shard{0}) != Placement(StridedShard{0, 2}));
  CHECK(Placement(Shard{-1}) != Placement(Shard{1}));
}

}  // namespace
}  // namespace meshplan::placement_test

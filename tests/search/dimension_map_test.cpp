// SPDX-License-Identifier: Apache-2.0
// Composition of dimension maps: MindSpore's cases, and maps read off operators.
#include "search/dimension_map.h"

#include "support/graph_builder.h"

namespace meshplan::dimension_map_test {
namespace {

using Dims = std::vector<std::vector<int>>;

/// A transpose: dimension i is the source's axes[i].
DimensionMap transpose(const std::vector<int>& axes) {
  DimensionMap made{static_cast<int>(axes.size()), {}};
  for (const int axis : axes) made.dims.push_back({axis});
  return made;
}

/// As MindSpore writes reshapes, all padded to one rank: an empty list is the dimension itself.
DimensionMap reshape(Dims dims) { return {static_cast<int>(dims.size()), std::move(dims)}; }

DimensionMap map_of(const std::string& text, const std::string& op) {
  const Graph graph = test::build_graph(text, false);
  const auto map = dimension_map(*graph.op(test::operator_id(graph, op)).rule);
  REQUIRE(map.has_value());
  return *map;
}

TEST_CASE("maps compose as MindSpore's do") {
  const auto transposed = compose(transpose({3, 2, 1, 0}), transpose({2, 3, 0, 1}));
  REQUIRE(transposed.has_value());
  CHECK(*transposed == transpose({1, 0, 3, 2}));

  const auto reshaped = compose(reshape({{2}, {2}, {3}, {3}}), reshape({{}, {}, {0, 1}, {2, 3}}));
  REQUIRE(reshaped.has_value());
  CHECK(reshaped->dims == Dims{{}, {}, {2}, {3}});
  CHECK(reshaped->source_rank == 4);
}

TEST_CASE("maps of tensors of different ranks do not compose") {
  for (const auto& [first, second] : {std::pair(transpose({3, 2, 1, 0}), transpose({0, 1})),
                                      std::pair(reshape({{0}, {1}, {2}}), reshape({{0}, {1}}))}) {
    const auto made = compose(first, second);
    REQUIRE_FALSE(made.has_value());
    CHECK(made.error().code == ErrorCode::kConflict);
    CHECK(made.error().message ==
          "the second map is of a tensor of 2 dimensions, the first one makes a tensor of " +
              std::to_string(first.dims.size()));
  }
  const auto made = compose(transpose({1, 0}), {2, {{0}, {2}}});
  REQUIRE_FALSE(made.has_value());
  CHECK(made.error().code == ErrorCode::kValue);
  CHECK(made.error().message == "dimension 2 is none of the tensor's 2");
}

TEST_CASE("composition is associative, and identities change nothing") {
  const DimensionMap a = transpose({2, 0, 1});
  const DimensionMap b{3, {{0, 1}, {2}}};
  const DimensionMap c{2, {{0}, {0}, {1}}};
  CHECK(*compose(*compose(a, b), c) == *compose(a, *compose(b, c)));
  CHECK(*compose(a, transpose({0, 1, 2})) == a);
  CHECK(*compose(transpose({0, 1, 2}), a) == a);
}

TEST_CASE("operators' maps follow from their rules") {
  CHECK(map_of("input x 4 6 8; y = Transpose x perm=2,0,1", "y") == transpose({2, 0, 1}));
  CHECK(map_of("input x 4 6 8; y = Reshape x shape=4,48", "y") == DimensionMap{3, {{0}, {1, 2}}});
  CHECK(map_of("input x 4 48; y = Reshape x shape=4,6,8", "y") == DimensionMap{2, {{0}, {1}, {1}}});
  CHECK(map_of("input x 4 6; y = Relu x", "y") == transpose({0, 1}));
}

TEST_CASE("a cut goes where the dimension begins") {
  const DimensionMap merged{3, {{0}, {1, 2}}};
  CHECK(cut_after(merged, 0) == 0);
  CHECK(cut_after(merged, 1) == 1);
  CHECK_FALSE(cut_after(merged, 2).has_value());
  TensorState state;
  state[0] = 1;
  state[1] = kPartialState;
  CHECK(state_after(transpose({1, 0}), state)->axes[0] == 0);
  CHECK(state_after(transpose({1, 0}), state)->axes[1] == kPartialState);
  state[2] = 2;
  CHECK_FALSE(state_after(merged, state).has_value());
}

}  // namespace
}  // namespace meshplan::dimension_map_test

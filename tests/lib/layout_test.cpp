// SPDX-License-Identifier: Apache-2.0
#include "lib/layout.h"

#include <algorithm>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "support/catch.h"

namespace meshplan::layout_test {
namespace {

DeviceMesh mesh_of(std::vector<std::int64_t> shape, std::vector<std::int64_t> ranks = {}) {
  static const std::vector<std::string> kNames = {"dp", "cp", "tp"};
  std::vector<std::string> names(kNames.end() - static_cast<std::ptrdiff_t>(shape.size()),
                                 kNames.end());
  return ranks.empty() ? *DeviceMesh::make(std::move(shape), names)
                       : *DeviceMesh::make(std::move(shape), names, std::move(ranks));
}

const std::vector<std::vector<std::int64_t>> kShapes = {
    {1}, {2}, {3}, {2, 4}, {3, 2}, {1, 4}, {4, 1}, {2, 2, 2}, {2, 3, 4}, {2, 1, 3}, {1, 1, 2}};

/// Calls `visit` with every tensor map of a rank: every subset of the axes in every order on every
/// dimension.
template <class Visit>
void for_each_map(int ndim, TensorMap& map, unsigned used, const Visit& visit) {
  visit(map, used);
  // Extend by one axis; to reach every map once, entries are appended in dimension order.
  std::size_t first = 0;
  for (std::size_t dim = 0; dim < map.size(); ++dim) {
    if (!map[dim].empty()) first = dim;
  }
  for (std::size_t dim = first; dim < map.size(); ++dim) {
    for (int entry = 0; entry < ndim; ++entry) {
      if ((used >> entry & 1U) != 0) continue;
      map[dim].push_back(entry);
      for_each_map(ndim, map, used | 1U << entry, visit);
      map[dim].pop_back();
    }
  }
}

/// Calls `visit` with every way to make the axes outside `used` partial (sum or max) or not.
template <class Visit>
void for_each_partial(int ndim, unsigned used, const Visit& visit) {
  PartialList partial(static_cast<std::size_t>(ndim));
  const auto fill = [&](const auto& self, std::size_t axis) -> void {
    if (axis == partial.size()) return visit(partial);
    const unsigned entry = static_cast<unsigned>(partial.size() - 1 - axis);
    self(self, axis + 1);
    if ((used >> entry & 1U) != 0) return;
    for (const Reduction reduction : {Reduction::kSum, Reduction::kMax}) {
      partial[axis] = reduction;
      self(self, axis + 1);
    }
    partial[axis] = std::nullopt;
  };
  fill(fill, 0);
}

TEST_CASE("every tensor map of tensors up to 4-D on meshes up to 3-D survives all its forms") {
  std::size_t count = 0;
  for (const auto& shape : kShapes) {
    const DeviceMesh mesh = mesh_of(shape);
    const bool has_unit = std::count(shape.begin(), shape.end(), 1) > 0;
    for (int rank = 0; rank <= 4; ++rank) {
      std::map<std::string, TensorMap> seen;
      TensorMap start(static_cast<std::size_t>(rank));
      for_each_map(mesh.ndim(), start, 0, [&](const TensorMap& map, unsigned used) {
        for_each_partial(mesh.ndim(), used, [&](const PartialList& partial) {
          ++count;
          const Result<Layout> layout = Layout::from_tensor_map(mesh, map, partial);
          REQUIRE(layout);
          CHECK(layout->tensor_map() == map);
          CHECK(layout->partial() == partial);
          const Result<Layout> by_alias =
              Layout::from_alias_map(mesh, layout->alias_map(), partial);
          REQUIRE(by_alias);
          CHECK(*by_alias == *layout);
          const Result<Layout> by_dictionary = Layout::from_dictionary(layout->dictionary());
          REQUIRE(by_dictionary);
          CHECK(*by_dictionary == *layout);
          CHECK(by_dictionary->hash() == layout->hash());
          CHECK(seen.emplace(layout->compact(), map).second);

          const Placements placements = layout->placements();
          const Result<Layout> by_placements = Layout::from_placements(mesh, placements, rank);
          REQUIRE(by_placements);
          CHECK(by_placements->placements() == placements);
          CHECK(by_placements->partial() == partial);
          // The order of axes of size 1 has no meaning and no placement.
          if (!has_unit) CHECK(*by_placements == *layout);
          const Result<Placements> parsed = parse_placements(to_string(placements));
          REQUIRE(parsed);
          CHECK(*parsed == placements);
          for (int dim = 0; dim < rank; ++dim) {
            for (std::int64_t position = 0; position < mesh.size(); ++position) {
              CHECK(by_placements->piece_of(dim, position) == layout->piece_of(dim, position));
            }
          }
        });
      });
    }
  }
  CHECK(count == 4555);  // sum of C(n,k) k! C(k+r-1,r-1) 3^(n-k)
}

TEST_CASE("the pieces of all devices tile the tensor, each as often as the repeat count says") {
  for (const auto& shape : kShapes) {
    const DeviceMesh mesh = mesh_of(shape);
    TensorMap start(2);
    for_each_map(mesh.ndim(), start, 0, [&](const TensorMap& map, unsigned /*used*/) {
      const Layout layout = *Layout::from_tensor_map(mesh, map);
      INFO(to_string(layout) << " " << to_string(map));
      const std::vector<std::int64_t> sizes = {24, 48};
      std::map<std::pair<std::int64_t, std::int64_t>, std::int64_t> owners;
      for (std::int64_t position = 0; position < mesh.size(); ++position) {
        const auto pieces = *layout.slice(sizes, position);
        const auto local = *layout.local_shape(sizes, position);
        CHECK(local == std::vector<std::int64_t>{24 / layout.parts(0), 48 / layout.parts(1)});
        CHECK(*layout.global_shape(local) == sizes);
        for (std::int64_t row = pieces[0].begin; row < pieces[0].end; ++row) {
          for (std::int64_t column = pieces[1].begin; column < pieces[1].end; ++column) {
            ++owners[{row, column}];
          }
        }
      }
      CHECK(owners.size() == 24 * 48);
      for (const auto& [element, count] : owners) REQUIRE(count == layout.repeat_count());
    });
  }
}

TEST_CASE("the first axis of an entry cuts outermost, and plain shards cut in mesh order") {
  const DeviceMesh mesh = mesh_of({2, 4});
  const auto begins = [&](const TensorMap& map) {
    const Layout layout = *Layout::from_tensor_map(mesh, map);
    std::vector<std::int64_t> list;
    for (std::int64_t i = 0; i < 8; ++i) list.push_back(layout.slice_of(0, 8, i).begin);
    return list;
  };
  CHECK(begins({{1, 0}}) == std::vector<std::int64_t>{0, 1, 2, 3, 4, 5, 6, 7});
  CHECK(begins({{0, 1}}) == std::vector<std::int64_t>{0, 2, 4, 6, 1, 3, 5, 7});
  const auto text = [&](const DeviceMesh& on, const TensorMap& map) {
    return to_string(Layout::from_tensor_map(on, map)->placements());
  };
  CHECK(text(mesh, {{1, 0}}) == "S(0),S(0)");
  CHECK(text(mesh, {{0, 1}}) == "SS(0,4),S(0)");
  const DeviceMesh cube = mesh_of({2, 3, 4});
  CHECK(text(cube, {{0, 2, 1}}) == "SS(0,4),SS(0,4),S(0)");
  CHECK(text(cube, {{1, 0, 2}}) == "SS(0,12),S(0),S(0)");
  CHECK(text(cube, {{0, 1, 2}}) == "SS(0,12),SS(0,4),S(0)");
  CHECK(text(cube, {{2, 0}, {1}}) == "S(0),S(1),S(0)");
}

TEST_CASE("one axis may cut unevenly: rounded up, the last pieces shorter or empty") {
  const auto sizes = [](const Layout& layout, std::int64_t size) {
    std::vector<std::int64_t> list;
    std::int64_t next = 0;
    for (std::int64_t i = 0; i < layout.mesh().size(); ++i) {
      const Interval piece = layout.slice_of(0, size, i);
      CHECK(piece.begin == std::min(next, size));
      next = piece.end;
      list.push_back(piece.size());
    }
    CHECK(next == size);
    return list;
  };
  const Layout four = *Layout::from_tensor_map(mesh_of({4}), TensorMap{{0}});
  REQUIRE(four.check_shape(std::vector<std::int64_t>{5}));
  CHECK(sizes(four, 5) == std::vector<std::int64_t>{2, 2, 1, 0});
  CHECK(sizes(four, 1) == std::vector<std::int64_t>{1, 0, 0, 0});
  CHECK(sizes(four, 0) == std::vector<std::int64_t>{0, 0, 0, 0});
  CHECK(sizes(four, 7) == std::vector<std::int64_t>{2, 2, 2, 1});
  const std::int64_t huge = std::numeric_limits<std::int64_t>::max();
  CHECK(four.slice_of(0, huge, 3).end == huge);

  const Layout both = *Layout::from_tensor_map(mesh_of({2, 4}), TensorMap{{1, 0}});
  const Result<void> uneven = both.check_shape(std::vector<std::int64_t>{12});
  REQUIRE_FALSE(uneven);
  CHECK(uneven.error().code == ErrorCode::kValue);
  CHECK(uneven.error().where == "/0");
  CHECK(uneven.error().message.find("divisible by their product 8") != std::string::npos);
  // An axis of size 1 does not count.
  const Layout unit = *Layout::from_tensor_map(mesh_of({1, 4}), TensorMap{{1, 0}});
  CHECK(sizes(unit, 5) == std::vector<std::int64_t>{2, 2, 1, 0});
}

TEST_CASE("every wrong placement list is refused") {
  const DeviceMesh mesh = mesh_of({2, 3, 4});
  struct Case {
    const char* placements;
    int rank;
    ErrorCode code;
    const char* where;
  };
  for (const Case& wrong : {
           Case{"R,R", 2, ErrorCode::kValue, ""},
           Case{"R,R,R,R", 2, ErrorCode::kValue, ""},
           Case{"R,R,R,S(0)", 2, ErrorCode::kValue, ""},
           Case{"S(2),R,R", 2, ErrorCode::kValue, "/0"},
           Case{"R,S(-3),R", 2, ErrorCode::kValue, "/1"},
           Case{"P,R,S(0)", 0, ErrorCode::kValue, "/2"},
           Case{"R,R,R", -1, ErrorCode::kValue, ""},
           Case{"R,R,R", 1025, ErrorCode::kUnsupported, ""},
           Case{"SS(0,4),S(0),R", 2, ErrorCode::kValue, "/0"},
           Case{"SS(0,2),R,S(0)", 2, ErrorCode::kValue, "/0"},
           Case{"R,R,SS(0,2)", 2, ErrorCode::kValue, "/2"},
           Case{"SS(0,3),R,R", 2, ErrorCode::kValue, "/0"},
       }) {
    INFO(wrong.placements);
    const Placements placements = *parse_placements(wrong.placements);
    const Result<Layout> layout = Layout::from_placements(mesh, placements, wrong.rank);
    REQUIRE_FALSE(layout);
    CHECK(layout.error().code == wrong.code);
    CHECK(layout.error().where == wrong.where);
  }
  CHECK(Layout::from_placements(mesh, *parse_placements("S(-1),S(-2),R"), 2)->placements() ==
        *parse_placements("S(1),S(0),R"));
  CHECK(Layout::from_placements(mesh, *parse_placements("SS(0,1),R,R"), 2)->placements() ==
        *parse_placements("S(0),R,R"));
}

TEST_CASE("every wrong tensor or alias map is refused") {
  const DeviceMesh mesh = mesh_of({2, 3, 4});
  struct Case {
    TensorMap map;
    ErrorCode code;
  };
  for (const Case& wrong : {Case{{{3}}, ErrorCode::kValue},
                            Case{{{-2}}, ErrorCode::kValue},
                            Case{{{1, -1}}, ErrorCode::kValue},
                            Case{{{-1, -1}}, ErrorCode::kValue},
                            Case{{{1}, {1}}, ErrorCode::kDuplicate},
                            Case{{{1, 1}}, ErrorCode::kDuplicate},
                            Case{{{0, 1}, {2, 0}}, ErrorCode::kDuplicate}}) {
    INFO(to_string(wrong.map));
    const Result<Layout> layout = Layout::from_tensor_map(mesh, wrong.map);
    REQUIRE_FALSE(layout);
    CHECK(layout.error().code == wrong.code);
  }
  const auto alias_code = [&](const AliasMap& map) {
    return Layout::from_alias_map(mesh, map).error().code;
  };
  CHECK(alias_code({{"xx"}}) == ErrorCode::kUnknownAxis);
  CHECK(alias_code({{"dp"}, {"dp"}}) == ErrorCode::kDuplicate);
  CHECK(alias_code({{"dp", "tp"}, {"tp"}}) == ErrorCode::kDuplicate);
  CHECK(alias_code({{"dp", "None"}}) == ErrorCode::kValue);
  CHECK(alias_code({{"dp_cp"}, {"cp"}}) == ErrorCode::kDuplicate);
  CHECK(Layout::from_alias_map(mesh, {{"dp_cp", "tp"}, {"None"}, {}})->tensor_map() ==
        TensorMap{{2, 1, 0}, {}, {}});

  const PartialList short_list = {Reduction::kSum};
  CHECK(Layout::from_tensor_map(mesh, TensorMap{{2}}, short_list).error().code ==
        ErrorCode::kValue);
  const PartialList clash = {Reduction::kSum, std::nullopt, std::nullopt};
  const Result<Layout> both = Layout::from_tensor_map(mesh, TensorMap{{2}}, clash);
  CHECK(both.error().code == ErrorCode::kConflict);
  CHECK(both.error().where == "/partial/0");
}

TEST_CASE("wrong shapes are refused") {
  const Layout layout = *Layout::from_tensor_map(mesh_of({2, 4}), TensorMap{{1}, {0}});
  const auto code = [](const auto& result) { return result.error().code; };
  CHECK(code(layout.local_shape(std::vector<std::int64_t>{8})) == ErrorCode::kValue);
  CHECK(code(layout.local_shape(std::vector<std::int64_t>{8, -1})) == ErrorCode::kValue);
  CHECK(code(layout.global_shape(std::vector<std::int64_t>{8})) == ErrorCode::kValue);
  CHECK(code(layout.global_shape(std::vector<std::int64_t>{8, -1})) == ErrorCode::kValue);
  CHECK(code(layout.global_shape(std::vector<std::int64_t>{std::int64_t{1} << 62, 1})) ==
        ErrorCode::kOverflow);
}

TEST_CASE("a pending reduction is set and taken back per axis") {
  const Layout layout = *Layout::from_tensor_map(mesh_of({2, 4}), TensorMap{{1}, {}});
  const Layout partial = *layout.with_partial("tp", Reduction::kMax);
  CHECK(to_string(partial.placements()) == "S(0),P(max)");
  CHECK(partial.partial_axes() == 0b10);
  CHECK(partial.cutting_axes() == 0b01);
  CHECK(partial.partial_of(1) == Reduction::kMax);
  CHECK(partial.dim_of(0) == 0);
  CHECK_FALSE(partial == layout);
  CHECK(partial.hash() != layout.hash());
  CHECK(partial.without_partial() == layout);
  CHECK(*partial.with_partial(std::int64_t{1}, std::nullopt) == layout);
  CHECK(layout.with_partial("cp", Reduction::kSum).error().code == ErrorCode::kConflict);
  CHECK(layout.with_partial("xx", Reduction::kSum).error().code == ErrorCode::kUnknownAxis);
  CHECK(partial.compact() == "(1,-1) [-,max] 2x4|cp,tp|0+8*1");
}

TEST_CASE("layouts of meshes that differ in a rank differ") {
  const TensorMap map = {{1}, {0}};
  const Layout a = *Layout::from_tensor_map(mesh_of({2, 2}, {0, 1, 2, 3}), map);
  const Layout b = *Layout::from_tensor_map(mesh_of({2, 2}, {0, 2, 1, 3}), map);
  CHECK_FALSE(a == b);
  CHECK(a.compact() != b.compact());
  CHECK(a.hash() != b.hash());
  CHECK(a.dictionary().rank_list != b.dictionary().rank_list);
  const DeviceMesh interleaved = *DeviceMesh::make({2, 2}, {"dp", "interleaved_parallel"});
  CHECK(Layout::replicated(interleaved, 1).dictionary().interleaved_parallel);
  CHECK_FALSE(a.dictionary().interleaved_parallel);
}

}  // namespace
}  // namespace meshplan::layout_test

// SPDX-License-Identifier: Apache-2.0
#include "lib/device_mesh.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "support/catch.h"

namespace meshplan::device_mesh_test {
namespace {

using Ranks = std::vector<std::int64_t>;
using Names = std::vector<std::string>;

const Names kNames = {"a", "b", "c", "d"};

DeviceMesh named_mesh(const Ranks& shape, const Ranks& ranks = {}) {
  const Names names(kNames.begin(), kNames.begin() + static_cast<std::ptrdiff_t>(shape.size()));
  return ranks.empty() ? *DeviceMesh::make(shape, names) : *DeviceMesh::make(shape, names, ranks);
}

ErrorCode code_of(const Result<DeviceMesh>& mesh) {
  REQUIRE_FALSE(mesh);
  CHECK_FALSE(mesh.error().message.empty());
  return mesh.error().code;
}

/// The obvious way to do it: all coordinates of all ranks, compared one by one.
struct PlainMesh {
  Ranks shape;
  std::vector<std::pair<Ranks, std::int64_t>> devices;  ///< coordinates, rank; row-major

  PlainMesh(Ranks sizes, const Ranks& ranks) : shape(std::move(sizes)) {
    Ranks at(shape.size(), 0);
    for (const std::int64_t rank : ranks) {
      devices.emplace_back(at, rank);
      for (std::size_t axis = shape.size(); axis-- > 0;) {
        if (++at[axis] < shape[axis]) break;
        at[axis] = 0;
      }
    }
  }
  const Ranks& coordinates(std::int64_t rank) const {
    return std::find_if(devices.begin(),
                        devices.end(),
                        [&](const auto& device) { return device.second == rank; })
        ->first;
  }
  /// Ranks that share the coordinates of `rank` on every axis outside `axes`.
  Ranks slice(AxisSet axes, std::int64_t rank) const {
    const Ranks& own = coordinates(rank);
    Ranks found;
    for (const auto& [at, other] : devices) {
      bool same = true;
      for (std::size_t axis = 0; axis < own.size(); ++axis) {
        same = same && ((axes >> axis & 1U) != 0 || at[axis] == own[axis]);
      }
      if (same) found.push_back(other);
    }
    return found;
  }
};

Names names_of(AxisSet axes, std::size_t ndim) {
  Names names;
  for (std::size_t axis = 0; axis < ndim; ++axis) {
    if ((axes >> axis & 1U) != 0) names.push_back(kNames[axis]);
  }
  return names;
}

std::string joined(const Names& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : "_") + name;
  return text;
}

/// Row-major ranks, the same backwards, a shuffled subset of a larger cluster.
std::vector<Ranks> rank_lists(std::int64_t count) {
  Ranks up(static_cast<std::size_t>(count));
  std::iota(up.begin(), up.end(), 0);
  Ranks pool(static_cast<std::size_t>(3 * count));
  std::iota(pool.begin(), pool.end(), 5);
  std::mt19937 random(static_cast<unsigned>(count));
  for (std::size_t i = pool.size(); i-- > 1;) std::swap(pool[i], pool[random() % (i + 1)]);
  pool.resize(up.size());
  return {up, Ranks(up.rbegin(), up.rend()), pool};
}

TEST_CASE(
    "coordinates, slices, groups and flattening agree with plain enumeration, for every rank") {
  for (const Ranks& shape : std::vector<Ranks>{{1},
                                               {5},
                                               {2, 4},
                                               {4, 2},
                                               {3, 2},
                                               {1, 4},
                                               {2, 2, 2},
                                               {2, 3, 4},
                                               {2, 1, 3},
                                               {2, 2, 1, 3}}) {
    const std::int64_t count =
        std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
    for (const Ranks& ranks : rank_lists(count)) {
      const PlainMesh plain(shape, ranks);
      const DeviceMesh mesh = named_mesh(shape, ranks);
      INFO(to_string(mesh));
      CHECK(mesh.ranks() == ranks);
      CHECK(mesh.size() == count);
      for (const std::int64_t rank : ranks) {
        REQUIRE(mesh.coordinates(rank) == plain.coordinates(rank));
        CHECK(mesh.rank_at(*mesh.position_of(rank)) == rank);
        for (AxisSet axes = 1; axes < (AxisSet{1} << shape.size()); ++axes) {
          const Names names = names_of(axes, shape.size());
          const Ranks expected = plain.slice(axes, rank);
          const Result<DeviceMesh> part = mesh.slice(names, rank);
          REQUIRE(part);
          REQUIRE(part->ranks() == expected);
          CHECK(Names(part->axes().begin(), part->axes().end()) == names);
          CHECK(part->root().same_object(mesh));
          CHECK(part->same_object(*mesh.slice(names, expected.front())));
          CHECK(part->same_object(mesh) == (names.size() == shape.size()));
          CHECK(part->hash_text() ==
                DeviceMesh::make({part->shape().begin(), part->shape().end()}, names, expected)
                    ->hash_text());
          CHECK(mesh.group_at(axes, *mesh.position_of(rank)) == expected);
          const Result<DeviceMesh> flat = part->flatten();
          REQUIRE(flat);
          CHECK(flat->ranks() == expected);
          CHECK(flat->ndim() == 1);
          CHECK(*mesh.group(joined(names), rank) == expected);
          const auto index = std::find(expected.begin(), expected.end(), rank) - expected.begin();
          CHECK(*mesh.local_rank(joined(names), rank) == index);
          CHECK(*part->position_of(rank) == index);
          for (const std::int64_t other : ranks) {
            const bool inside = std::count(expected.begin(), expected.end(), other) > 0;
            CHECK(part->coordinates(other).has_value() == inside);
          }
        }
      }
    }
  }
}

TEST_CASE("the groups of an axis split the mesh, each rank in its own group, smallest rank first") {
  for (const Ranks& ranks : rank_lists(24)) {
    const DeviceMesh mesh = named_mesh({2, 3, 4}, ranks);
    for (const AxisRef& axis :
         std::vector<AxisRef>{std::int64_t{0}, "b", "c", "a_b", "a_c", "a_b_c"}) {
      const auto groups = *mesh.groups(axis);
      std::set<std::int64_t> seen;
      std::int64_t last = -1;
      for (const Ranks& group : groups) {
        const std::int64_t smallest = *std::min_element(group.begin(), group.end());
        CHECK(smallest > last);
        last = smallest;
        for (const std::int64_t rank : group) {
          CHECK(seen.insert(rank).second);
          CHECK(*mesh.group(axis, rank) == group);
        }
      }
      CHECK(seen == std::set<std::int64_t>(ranks.begin(), ranks.end()));
    }
  }
}

TEST_CASE("a mesh is built from nested lists of any depth and order") {
  const auto list = [](std::vector<NestedRanks> entries) {
    return NestedRanks{std::move(entries)};
  };
  const auto rank = [](std::int64_t value) { return NestedRanks{value}; };
  const DeviceMesh mesh = *DeviceMesh::from_nested(
      list({list({rank(7), rank(5)}), list({rank(3), rank(12)})}), {"x", "y"});
  CHECK(mesh.ranks() == Ranks{7, 5, 3, 12});
  CHECK(mesh == *DeviceMesh::make({2, 2}, {"x", "y"}, {7, 5, 3, 12}));
  CHECK(*mesh.group("x", 12) == Ranks{5, 12});
  CHECK(code_of(DeviceMesh::from_nested(rank(3), {})) == ErrorCode::kValue);
  CHECK(code_of(DeviceMesh::from_nested(list({}), {})) == ErrorCode::kValue);
  CHECK(code_of(DeviceMesh::from_nested(list({list({rank(0)}), list({})}), {})) ==
        ErrorCode::kValue);
  CHECK(code_of(DeviceMesh::from_nested(list({list({rank(0)}), rank(1)}), {})) ==
        ErrorCode::kValue);
  CHECK(code_of(DeviceMesh::from_nested(list({rank(1), list({rank(0)})}), {})) ==
        ErrorCode::kValue);
  // A fault is placed where it stands in the nesting.
  const NestedRanks twice = list({list({rank(7), rank(5)}), list({rank(3), rank(7)})});
  CHECK(DeviceMesh::from_nested(twice, {}).error().where == "/ranks/1/1");
  const NestedRanks negative = list({list({list({rank(4)})}), list({list({rank(-1)})})});
  CHECK(DeviceMesh::from_nested(negative, {}).error().where == "/ranks/1/0/0");
  CHECK(DeviceMesh::from_nested(list({list({})}), {}).error().where == "/ranks/0");
  NestedRanks deep = rank(0);
  for (int i = 0; i < 32; ++i) deep = list({deep});
  CHECK(DeviceMesh::from_nested(deep, {})->ndim() == 32);
  CHECK(code_of(DeviceMesh::from_nested(list({deep}), {})) == ErrorCode::kUnsupported);
}

TEST_CASE("every rule of construction has an error of its own") {
  const std::int64_t big = std::int64_t{1} << 40;
  CHECK(code_of(DeviceMesh::make({}, {})) == ErrorCode::kValue);
  CHECK(code_of(DeviceMesh::make({2, 0}, {})) == ErrorCode::kValue);
  CHECK(code_of(DeviceMesh::make({2, -4}, {})) == ErrorCode::kValue);
  CHECK(code_of(DeviceMesh::make({big, big}, {})) == ErrorCode::kOverflow);
  CHECK(code_of(DeviceMesh::make(Ranks(33, 1), {})) == ErrorCode::kUnsupported);
  CHECK(code_of(DeviceMesh::make({2, 2}, {"a"})) == ErrorCode::kValue);
  CHECK(code_of(DeviceMesh::make({2, 2}, {"a", "b", "c"})) == ErrorCode::kValue);
  CHECK(code_of(DeviceMesh::make({2, 2}, {"a", "a"})) == ErrorCode::kDuplicate);
  CHECK(code_of(DeviceMesh::make({2, 2}, {"a", ""})) == ErrorCode::kValue);
  CHECK(code_of(DeviceMesh::make({2, 2}, {"None", "a"})) == ErrorCode::kValue);
  CHECK(code_of(DeviceMesh::make({2, 2}, {"interleaved_parallel", "a"})) == ErrorCode::kOrder);
  CHECK(DeviceMesh::make({2, 2}, {"a", "interleaved_parallel"}));
  CHECK(code_of(DeviceMesh::make({2, 2}, {"a", "b"}, {0, 1, 2})) == ErrorCode::kValue);
  CHECK(code_of(DeviceMesh::make({2, 2}, {"a", "b"}, {})) == ErrorCode::kValue);
  CHECK(code_of(DeviceMesh::make({2, 2}, {"a", "b"}, {0, 1, 2, 1})) == ErrorCode::kDuplicate);
  CHECK(code_of(DeviceMesh::make({2, 2}, {"a", "b"}, {0, 1, -2, 3})) == ErrorCode::kValue);
  CHECK(DeviceMesh::make({2, 2}, {"a", "b"}, {0, 1, 2, 1}).error().where == "/ranks/3");
  CHECK(DeviceMesh::make({2, 0}, {}).error().where == "/shape/1");
}

TEST_CASE("every rule of slicing and asking has an error of its own") {
  const DeviceMesh mesh = named_mesh({2, 2, 2});
  CHECK(code_of(mesh.slice({}, 0)) == ErrorCode::kValue);
  CHECK(code_of(mesh.slice({"x"}, 0)) == ErrorCode::kUnknownAxis);
  CHECK(code_of(mesh.slice({"None"}, 0)) == ErrorCode::kUnknownAxis);
  CHECK(code_of(mesh.slice({"a", "a"}, 0)) == ErrorCode::kDuplicate);
  CHECK(code_of(mesh.slice({"a_b", "b"}, 0)) == ErrorCode::kDuplicate);
  CHECK(code_of(mesh.slice({"b", "a"}, 0)) == ErrorCode::kOrder);
  CHECK(code_of(mesh.slice({"a_c", "b"}, 0)) == ErrorCode::kOrder);
  CHECK(code_of(mesh.slice({"a"}, 8)) == ErrorCode::kRank);
  CHECK(code_of(mesh.slice({"a"}, -1)) == ErrorCode::kRank);
  CHECK(code_of(DeviceMesh::make({2, 2}, {})->slice({"a"}, 0)) == ErrorCode::kValue);
  CHECK(mesh.group(std::nullopt, 0).error().code == ErrorCode::kMissing);
  CHECK(mesh.local_rank(std::nullopt, 0).error().code == ErrorCode::kMissing);
  CHECK(mesh.groups(std::nullopt).error().code == ErrorCode::kMissing);
  CHECK(mesh.group(std::int64_t{3}, 0).error().code == ErrorCode::kValue);
  CHECK(mesh.group(std::int64_t{-1}, 0).error().code == ErrorCode::kValue);
  CHECK(mesh.group("b_a", 0).error().code == ErrorCode::kUnknownAxis);
  CHECK(mesh.local_rank("a", 99).error().code == ErrorCode::kRank);
  CHECK_FALSE(mesh.coordinates(99));
  CHECK(mesh.axis_index("x").error().code == ErrorCode::kUnknownAxis);
  const DeviceMesh wide = *DeviceMesh::make({2, 2}, {"data", "model"});
  CHECK(wide.axis_index("modell").error().message.find("did you mean \"model\"") !=
        std::string::npos);
  CHECK(*named_mesh({5}).group(std::nullopt, 3) == Ranks{0, 1, 2, 3, 4});
  CHECK(*named_mesh({5}).local_rank(std::nullopt, 3) == 3);
}

TEST_CASE("a sub-mesh knows its root and answers only for its own ranks") {
  const DeviceMesh mesh = named_mesh({2, 2, 2});
  const DeviceMesh part = *mesh.slice({"a", "c"}, 6);
  CHECK(part.ranks() == Ranks{2, 3, 6, 7});
  CHECK_FALSE(part.is_root());
  CHECK(part.slice({"c"}, 6)->ranks() == Ranks{6, 7});
  CHECK(part.slice({"c"}, 6)->root().same_object(mesh));
  CHECK(code_of(part.slice({"c"}, 0)) == ErrorCode::kRank);
  CHECK(code_of(part.slice({"b"}, 6)) == ErrorCode::kUnknownAxis);
  CHECK(*part.group("a", 3) == Ranks{3, 7});
  CHECK(*part.groups("a") == std::vector<Ranks>{{2, 6}, {3, 7}});
  // Joined names of the root are known to all its meshes.
  CHECK(*part.group("a_b", 3) == Ranks{1, 3, 5, 7});
  CHECK(mesh.slice({"c"}, 0)->slice({"a_b"}, 0)->ranks() == Ranks{0, 2, 4, 6});

  const std::vector<DeviceMesh> known = *mesh.sub_meshes(7);
  REQUIRE(known.size() >= 3);
  CHECK(known[0].ranks() == Ranks{2, 3, 6, 7});
  CHECK(known[1].ranks() == Ranks{6, 7});
  CHECK(mesh.sub_meshes(8).error().code == ErrorCode::kRank);
}

TEST_CASE("flattened names are registered at the root and compared by layout") {
  const DeviceMesh mesh = *DeviceMesh::make({2, 2, 2}, {"dp_shard", "cp", "tp"});
  const DeviceMesh fsdp = *mesh.slice({"dp_shard", "cp"}, 3)->flatten();
  CHECK(fsdp.axes()[0] == "dp_shard_cp");
  CHECK(fsdp.ranks() == Ranks{1, 3, 5, 7});
  CHECK(fsdp.root().same_object(mesh));
  CHECK(fsdp.flatten()->same_object(fsdp));
  CHECK(mesh.slice({"dp_shard", "cp"}, 1)->flatten()->same_object(fsdp));
  CHECK(mesh.flattened_names() == Names{"dp_shard_cp"});

  const DeviceMesh own = *mesh.slice({"dp_shard", "cp"}, 0)->flatten("x");
  CHECK(mesh.slice({"x"}, 2)->same_object(own));
  CHECK(mesh.slice({"tp"}, 0)->slice({"x"}, 2)->same_object(own));
  CHECK(mesh.slice({"x", "tp"}, 0)->shape()[0] == 4);
  CHECK(mesh.slice({"x", "tp"}, 0)->flatten()->axes()[0] == "x_tp");
  CHECK(*mesh.groups("x") == std::vector<Ranks>{{0, 2, 4, 6}, {1, 3, 5, 7}});
  // cp x tp has as many devices as dp_shard x cp, but is not the same axis.
  CHECK(code_of(mesh.slice({"cp", "tp"}, 0)->flatten("x")) == ErrorCode::kConflict);
  CHECK(code_of(mesh.flatten("x")) == ErrorCode::kConflict);
  CHECK(code_of(mesh.flatten("tp")) == ErrorCode::kConflict);
  CHECK(code_of(mesh.slice({"tp"}, 0)->flatten("cp")) == ErrorCode::kConflict);
  CHECK(code_of(mesh.flatten("cp_tp")) == ErrorCode::kConflict);
  CHECK(code_of(mesh.flatten("")) == ErrorCode::kValue);
  CHECK(code_of(mesh.flatten("None")) == ErrorCode::kValue);
  CHECK(mesh.slice({"tp"}, 0)->flatten()->same_object(*mesh.slice({"tp"}, 0)));
  const DeviceMesh unnamed = *DeviceMesh::make({2, 4}, {});
  CHECK(code_of(unnamed.flatten()) == ErrorCode::kMissing);
  CHECK(unnamed.flatten("all")->ranks() == unnamed.ranks());
}

TEST_CASE("a flattened name never means other axes in a sub-mesh than at the root") {
  const DeviceMesh mesh = named_mesh({2, 2, 2});
  REQUIRE(mesh.slice({"a", "b"}, 0)->flatten("x"));
  const DeviceMesh part = *mesh.slice({"x", "c"}, 0);
  CHECK(*part.group("x_c", 0) == Ranks{0, 1, 2, 3, 4, 5, 6, 7});
  // At the root "x_c" is a free name; once taken for a x c it is ambiguous in the sub-mesh.
  CHECK(*mesh.slice({"a", "c"}, 0)->flatten("x_c")->group(std::nullopt, 0) == Ranks{0, 1, 4, 5});
  CHECK(*mesh.group("x_c", 0) == Ranks{0, 1, 4, 5});
  CHECK(part.group("x_c", 0).error().code == ErrorCode::kConflict);
  CHECK(code_of(part.flatten()) == ErrorCode::kConflict);
  CHECK(code_of(mesh.slice({"a", "b"}, 0)->flatten("interleaved_parallel")) == ErrorCode::kOrder);
  CHECK(mesh.slice({"b", "c"}, 0)->flatten("interleaved_parallel"));
}

TEST_CASE("a joined name with two readings is refused, and hostile names cost no time") {
  const DeviceMesh mesh = *DeviceMesh::make({2, 2, 2, 2}, {"a", "b_c", "a_b", "c"});
  CHECK(mesh.group("a_b_c", 0).error().code == ErrorCode::kConflict);
  Names names;
  std::string text;
  for (int i = 1; i <= 32; ++i) {
    text += (text.empty() ? "a" : "_a");
    names.push_back(text);
  }
  std::string asked = names[0];
  for (int i = 0; i < 400; ++i) asked += "_a";
  const DeviceMesh nasty = *DeviceMesh::make(Ranks(32, 1), names);
  CHECK(nasty.group(asked + "_b", 0).error().code == ErrorCode::kUnknownAxis);
  CHECK(nasty.group(asked, 0).error().code == ErrorCode::kConflict);
}

TEST_CASE("an axis is split row-major and the result is its own root") {
  const DeviceMesh mesh = named_mesh({2, 6});
  const DeviceMesh split = *mesh.unflatten("b", {3, 2}, {"x", "y"});
  CHECK(to_string(split) == "2x3x2(a,x,y)");
  CHECK(split.ranks() == mesh.ranks());
  CHECK(split.is_root());
  CHECK(split.slice({"x"}, 4)->ranks() == Ranks{0, 2, 4});
  CHECK(mesh.unflatten("a_b", {4, 3}, {"x", "y"})->ranks() == mesh.ranks());
  CHECK(mesh.slice({"b"}, 7)->unflatten(std::int64_t{0}, {2, 3}, {"x", "y"})->ranks() ==
        Ranks{6, 7, 8, 9, 10, 11});
  CHECK(code_of(mesh.unflatten("b", {4, 2}, {"x", "y"})) == ErrorCode::kValue);
  CHECK(code_of(mesh.unflatten("b", {3, 2}, {"x"})) == ErrorCode::kValue);
  CHECK(code_of(mesh.unflatten("b", {}, {})) == ErrorCode::kValue);
  CHECK(code_of(mesh.unflatten("b", {-3, -2}, {"x", "y"})) == ErrorCode::kValue);
  CHECK(code_of(mesh.unflatten("b", {std::int64_t{1} << 40, std::int64_t{1} << 40}, {"x", "y"})) ==
        ErrorCode::kOverflow);
  CHECK(code_of(mesh.unflatten("b", {3, 2}, {"a", "y"})) == ErrorCode::kDuplicate);
  CHECK(code_of(mesh.unflatten("b", {3, 2}, {"x", "x"})) == ErrorCode::kDuplicate);
  CHECK(code_of(mesh.unflatten(std::int64_t{2}, {3, 2}, {"x", "y"})) == ErrorCode::kValue);
  CHECK(code_of(named_mesh({2, 2, 2}).unflatten("a_c", {4}, {"x"})) == ErrorCode::kOrder);
  const DeviceMesh unnamed = *DeviceMesh::make({2, 6}, {});
  CHECK(to_string(*unnamed.unflatten(std::int64_t{1}, {3, 2}, {})) == "2x3x2");
  const Result<DeviceMesh> names = unnamed.unflatten(std::int64_t{1}, {3, 2}, {"x", "y"});
  CHECK(code_of(names) == ErrorCode::kValue);
  CHECK(names.error().where == "/names");
}

TEST_CASE("sub-meshes of one root are concatenated in root order") {
  const DeviceMesh mesh = named_mesh({2, 2, 2});
  const auto part = [&](const Names& names, std::int64_t rank) { return *mesh.slice(names, rank); };
  CHECK(DeviceMesh::concatenate({part({"a"}, 5), part({"c"}, 5)})->ranks() == Ranks{0, 1, 4, 5});
  CHECK(DeviceMesh::concatenate({part({"a"}, 2), part({"c"}, 7)})->ranks() == Ranks{2, 3, 6, 7});
  CHECK(DeviceMesh::concatenate({part({"a"}, 5), part({"b", "c"}, 5)})->same_object(mesh));
  CHECK(DeviceMesh::concatenate({part({"b"}, 5)})->same_object(part({"b"}, 5)));
  CHECK(DeviceMesh::concatenate({part({"a_b"}, 5), part({"c"}, 5)})->shape()[0] == 4);
  CHECK(code_of(DeviceMesh::concatenate({})) == ErrorCode::kValue);
  CHECK(code_of(DeviceMesh::concatenate({part({"a"}, 0), part({"a"}, 0)})) ==
        ErrorCode::kDuplicate);
  CHECK(code_of(DeviceMesh::concatenate({part({"c"}, 0), part({"a"}, 0)})) == ErrorCode::kOrder);
  CHECK(code_of(DeviceMesh::concatenate({part({"a"}, 0), part({"c"}, 2)})) == ErrorCode::kConflict);
  const DeviceMesh other = named_mesh({2, 2, 2});
  CHECK(code_of(DeviceMesh::concatenate({part({"a"}, 0), *other.slice({"c"}, 0)})) ==
        ErrorCode::kConflict);
}

TEST_CASE("equality and hash cover shape, names and every rank") {
  const DeviceMesh mesh = named_mesh({2, 4});
  CHECK(mesh == named_mesh({2, 4}, {0, 1, 2, 3, 4, 5, 6, 7}));
  CHECK(mesh.hash() == named_mesh({2, 4}, {0, 1, 2, 3, 4, 5, 6, 7}).hash());
  std::set<std::string> texts = {mesh.hash_text()};
  // First and last rank agree; what lies between does not.
  for (const Ranks& ranks : std::vector<Ranks>{{0, 2, 1, 3, 4, 5, 6, 7},
                                               {0, 1, 2, 4, 3, 5, 6, 7},
                                               {0, 2, 4, 6, 1, 3, 5, 7},
                                               {0, 4, 1, 5, 2, 6, 3, 7},
                                               {0, 6, 5, 4, 3, 2, 1, 7}}) {
    const DeviceMesh other = named_mesh({2, 4}, ranks);
    CHECK_FALSE(other == mesh);
    CHECK(texts.insert(other.hash_text()).second);
  }
  CHECK(texts.insert(named_mesh({4, 2}).hash_text()).second);
  CHECK(texts.insert(DeviceMesh::make({2, 4}, {"a", "c"})->hash_text()).second);
  CHECK(texts.insert(DeviceMesh::make({2, 4}, {"a,", "c"})->hash_text()).second);
  CHECK(texts.insert(DeviceMesh::make({2, 4}, {"a", ",c"})->hash_text()).second);
  CHECK(texts.insert(DeviceMesh::make({2, 4}, {})->hash_text()).second);
  CHECK(mesh.hash_text() == "2x4|a,b|0+8*1");
  CHECK(mesh.slice({"a"}, 2)->hash_text() == "2|a|2+2*4");
  // SHA-256 of the ranks, 8 bytes each.
  CHECK(named_mesh({2, 2}, {3, 9, 27, 81}).hash_text() ==
        "2x2|a,b|#b7e2e219dc121d98f4405d6a6dd6d0e4c7839886cf5e5b510ae1b409d4541e4b");
  // Multiples of this stride exceed 64 bits.
  const std::int64_t far = std::int64_t{1} << 62;
  CHECK(named_mesh({2}, {0, far}).hash_text() == "2|a|0+2*4611686018427387904");
  CHECK(named_mesh({3}, {0, far, 1}).hash_text().starts_with("3|a|#"));
}

TEST_CASE("init_device_mesh returns one object per shape and names, while it is in use") {
  const DeviceMesh mesh = *init_device_mesh({2, 4}, {"cache", "test"});
  CHECK(init_device_mesh({2, 4}, {"cache", "test"})->same_object(mesh));
  CHECK_FALSE(init_device_mesh({2, 4}, {"cache", "other"})->same_object(mesh));
  CHECK_FALSE(DeviceMesh::make({2, 4}, {"cache", "test"})->same_object(mesh));
  CHECK(init_device_mesh({2, 4}, {"cache"}).error().code == ErrorCode::kValue);
  for (std::int64_t i = 1; i < 1000; ++i) CHECK(init_device_mesh({i}, {"many"})->size() == i);
  CHECK(init_device_mesh({2, 4}, {"cache", "test"})->same_object(mesh));
}

TEST_CASE("threads share meshes, their caches and their flattened names") {
  const DeviceMesh mesh = named_mesh({4, 3, 2, 5});
  const std::vector<Ranks> expected = *mesh.groups("a_c");
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (std::int64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (std::int64_t i = 0; i < 300; ++i) {
        const std::int64_t rank = (7 * i + t) % mesh.size();
        const DeviceMesh part = *mesh.slice({"a", "c"}, rank);
        const DeviceMesh flat = *part.flatten("n" + std::to_string(i % 20));
        const DeviceMesh cached = *init_device_mesh({1 + i % 90, 2}, {"p", "q"});
        const bool right = std::count(expected.begin(), expected.end(), flat.ranks()) == 1 &&
                           flat.position_of(rank) && part.root().same_object(mesh) &&
                           flat.same_object(*mesh.slice({"n" + std::to_string(i % 20)}, rank)) &&
                           cached.same_object(*init_device_mesh({1 + i % 90, 2}, {"p", "q"})) &&
                           cached.hash() == DeviceMesh::make({1 + i % 90, 2}, {"p", "q"})->hash() &&
                           mesh.sub_meshes(rank)->size() <= 21;
        if (!right) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
  CHECK(mesh.flattened_names().size() == 20);
}

TEST_CASE("a mesh far too large to list answers about single ranks") {
  const std::int64_t wide = std::int64_t{1} << 20;
  const DeviceMesh mesh = named_mesh({wide, 1024, wide});
  CHECK(mesh.coordinates(mesh.size() - 1) == Ranks{wide - 1, 1023, wide - 1});
  CHECK(*mesh.local_rank("b", 5 * wide + 3) == 5);
  CHECK(mesh.slice({"b"}, 3)->rank_at(2) == 2 * wide + 3);
  CHECK(mesh.groups("b").error().code == ErrorCode::kOverflow);
  CHECK(mesh.group("a_c", 0).error().code == ErrorCode::kOverflow);
  CHECK(mesh == named_mesh({wide, 1024, wide}));
  CHECK_FALSE(mesh == named_mesh({wide, wide, 1024}));
}

TEST_CASE("lists of ranks are written out up to their limit and refused one step beyond it") {
  const DeviceMesh most = named_mesh({kMaxListedRanks});
  REQUIRE(most.group("a", 0));
  CHECK(most.group("a", 0)->size() == static_cast<std::size_t>(kMaxListedRanks));
  REQUIRE(most.groups("a"));
  CHECK(most.groups("a")->front().back() == kMaxListedRanks - 1);
  const DeviceMesh more = named_mesh({kMaxListedRanks + 1});
  CHECK(more.group("a", 0).error().code == ErrorCode::kOverflow);
  CHECK(more.groups("a").error().code == ErrorCode::kOverflow);
}

}  // namespace
}  // namespace meshplan::device_mesh_test

// SPDX-License-Identifier: Apache-2.0
#include "lib/layout.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <new>
#include <set>
#include <unordered_set>

#include "support/catch.h"

namespace meshplan {
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

}  // namespace
}  // namespace meshplan

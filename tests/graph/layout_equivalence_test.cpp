// SPDX-License-Identifier: Apache-2.0
// Layouts that another planner calls equal - refined meshes, refined shapes, reshapes - place the
// same elements on every device; what a Reshape reads and writes does, too.
#include <algorithm>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "graph/operator_info.h"
#include "graph/operator_table.h"
#include "lib/device_mesh.h"
#include "lib/layout.h"
#include "support/catch.h"

namespace meshplan::layout_equivalence_test {

using nlohmann::json;

namespace {

using Sizes = std::vector<std::int64_t>;
/// Places [begin, end) of a flattened tensor, ascending, neighbours joined.
using Runs = std::vector<Interval>;

DeviceMesh mesh_of(const Sizes& shape) {
  auto mesh = DeviceMesh::make(shape, {});
  REQUIRE(mesh.has_value());
  return *mesh;
}

/// Tensor maps count axes from the right.
Layout layout_of(const DeviceMesh& mesh, const json& map) {
  TensorMap entries;
  for (const json& entry : map) entries.push_back({entry.get<int>()});
  auto layout = Layout::from_tensor_map(mesh, entries);
  REQUIRE(layout.has_value());
  return *layout;
}

/// What the device at `position` holds.
Runs runs_of(const Layout& layout, const Sizes& shape, std::int64_t position) {
  const auto slice = layout.slice(shape, position);
  REQUIRE(slice.has_value());
  Runs runs = {{0, 1}};
  for (std::size_t d = 0; d < shape.size(); ++d) {
    Runs finer;
    for (const Interval& run : runs) {
      for (std::int64_t at = run.begin; at < run.end; ++at) {
        const Interval piece{at * shape[d] + (*slice)[d].begin, at * shape[d] + (*slice)[d].end};
        if (piece.size() == 0) continue;
        if (!finer.empty() && finer.back().end == piece.begin) {
          finer.back().end = piece.end;
        } else {
          finer.push_back(piece);
        }
      }
    }
    runs = std::move(finer);
  }
  return runs;
}

Layout layout_of(const DeviceMesh& mesh, const TensorState& state, const Sizes& shape) {
  const Placements placements = value_placements(state, static_cast<int>(mesh.shape().size()));
  auto layout = Layout::from_placements(mesh, placements, static_cast<int>(shape.size()));
  REQUIRE(layout.has_value());
  return *layout;
}

std::shared_ptr<const Rule> reshape_rule(const Sizes& from, const Sizes& to) {
  OperatorSpec spec;
  spec.type = "Reshape";
  spec.attributes = {{"shape", to}};
  spec.inputs.emplace_back(TensorType{from, DType::kFp32});
  const auto typed = infer_operator(spec);
  REQUIRE(typed.has_value());
  return typed->rule;
}

/// Every strategy of a Reshape reads and writes the same elements on every device; how many
/// strategies cut anything.
int check_reshape(const Sizes& from, const Sizes& to, const Sizes& mesh_shape) {
  const OperatorInfo info(reshape_rule(from, to), mesh_shape);
  const DeviceMesh mesh = mesh_of(mesh_shape);
  int cutting = 0;
  bool same = true;
  for (const Strategy& strategy : info.strategies()) {
    const Layout read = layout_of(mesh, info.operand_state(strategy, 0, false), from);
    const Layout written = layout_of(mesh, info.result_state(strategy, 0), to);
    cutting += read.cutting_axes() != 0 ? 1 : 0;
    same = same && read.cutting_axes() == written.cutting_axes();
    for (std::int64_t position = 0; same && position < mesh.size(); ++position)
      same = runs_of(read, from, position) == runs_of(written, to, position);
  }
  INFO(json(from).dump() << " to " << json(to).dump() << " on " << json(mesh_shape).dump());
  CHECK(same);
  return cutting;
}

/// Ordered ways to write `total` as a product of at most `count` factors > 1.
std::vector<Sizes> factorisations(std::int64_t total, std::size_t count) {
  std::vector<Sizes> all = {{total}};
  for (std::int64_t first = 2; count > 1 && first < total; ++first) {
    if (total % first != 0) continue;
    for (const Sizes& rest : factorisations(total / first, count - 1)) {
      all.push_back({first});
      all.back().insert(all.back().end(), rest.begin(), rest.end());
    }
  }
  return all;
}

}  // namespace

TEST_CASE("Layouts another planner calls equal hold the same elements on every device") {
  std::ifstream file(MESHPLAN_TEST_DATA "/layout_equivalence_cases.json");
  int compared = 0;
  for (const json& one : json::parse(file)) {
    INFO(one.dump());
    if (one.contains("same")) {
      const json& a = one.at("same").at(0);
      const json& b = one.at("same").at(1);
      const DeviceMesh mesh_a = mesh_of(a.at("mesh").get<Sizes>());
      const DeviceMesh mesh_b = mesh_of(b.at("mesh").get<Sizes>());
      REQUIRE(mesh_a.size() == mesh_b.size());
      const Layout layout_a = layout_of(mesh_a, a.at("map"));
      const Layout layout_b = layout_of(mesh_b, b.at("map"));
      for (std::int64_t position = 0; position < mesh_a.size(); ++position) {
        CHECK(runs_of(layout_a, a.at("shape").get<Sizes>(), position) ==
              runs_of(layout_b, b.at("shape").get<Sizes>(), position));
      }
      ++compared;
    } else if (one.contains("from")) {
      // theirs refines both sides; ours has strategies that agree about every element
      check_reshape(one.at("from").at("shape").get<Sizes>(),
                    one.at("to").at("shape").get<Sizes>(),
                    one.at("from").at("mesh").get<Sizes>());
    } else if (one.contains("factors")) {
      // the common refinement of two shapes: the factors of the reshape between them
      const auto rule =
          reshape_rule(one.at("from_shape").get<Sizes>(), one.at("to_shape").get<Sizes>());
      Sizes factors;
      for (const Factor& factor : rule->factors) {
        if (factor.size > 1) factors.push_back(factor.size);
      }
      CHECK(factors == one.at("factors").get<Sizes>());
    } else if (one.contains("local")) {
      const DeviceMesh mesh = mesh_of(one.at("mesh").get<Sizes>());
      const auto shape = one.at("shape").get<Sizes>();
      CHECK(layout_of(mesh, one.at("map")).local_shape(shape).value() ==
            one.at("local").get<Sizes>());
    } else if (one.contains("ranks")) {
      const auto ranks = one.at("ranks").get<Sizes>();
      auto mesh = DeviceMesh::make(one.at("mesh").get<Sizes>(), {}, ranks);
      CHECK(mesh.has_value() != one.value("refused", false));
      if (!mesh) continue;
      const auto position = mesh->position_of(one.at("rank").get<std::int64_t>());
      REQUIRE(position.has_value());
      if (one.contains("groups")) {
        for (std::size_t axis = 0; axis < one.at("groups").size(); ++axis)
          CHECK(mesh->group_at(AxisSet{1} << axis, *position) ==
                one.at("groups").at(axis).get<Sizes>());
      } else {
        const AxisSet all = (AxisSet{1} << mesh->shape().size()) - 1;
        const AxisSet cutting = layout_of(*mesh, one.at("map")).cutting_axes();
        CHECK(mesh->group_at(all & ~cutting, *position) == one.at("replicas").get<Sizes>());
      }
    } else {
      CHECK(one.contains("sweep"));  // the case below
    }
  }
  CHECK(compared == 17);
}

TEST_CASE("A Reshape between all shapes of 2 to 16 elements on all meshes moves no element") {
  int cutting = 0;
  for (std::int64_t devices = 2; devices <= 8; devices *= 2) {
    for (std::int64_t elements = 2; elements <= 16; elements *= 2) {
      const auto shapes = factorisations(elements, 3);
      for (const Sizes& mesh : factorisations(devices, 3)) {
        for (const Sizes& from : shapes) {
          for (const Sizes& to : shapes) cutting += check_reshape(from, to, mesh);
        }
      }
    }
  }
  CHECK(cutting > 100);
  // and sizes that are no powers of two
  for (const Sizes& from : factorisations(36, 3)) {
    for (const Sizes& to : factorisations(36, 3)) {
      for (const Sizes& mesh : {Sizes{2, 3}, Sizes{3, 2}, Sizes{6}, Sizes{4}, Sizes{3, 3}})
        check_reshape(from, to, mesh);
    }
  }
}

}  // namespace meshplan::layout_equivalence_test

// SPDX-License-Identifier: Apache-2.0
// Meshes, placements and layouts in JSON, as requests and answers of the batch interfaces write
// them. Errors carry the place of the faulty value.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "graph/json.h"
#include "lib/device_mesh.h"
#include "lib/layout.h"
#include "lib/placement.h"
#include "lib/result.h"

namespace meshplan {

/// The member `key`, unless it is left out or null.
std::optional<JsonCursor> given(const JsonCursor& object, std::string_view key);

/// The error of a lib function that was given (a part of) `value`: its `where` is put behind the
/// place of `value`.
Unexpected<Error> error_at(const JsonCursor& value, const Error& error);

/// {"shape": [2,4], "axes": ["dp","tp"], "ranks": [[0,1,2,3],[4,5,6,7]], "flatten": {"all":
/// ["dp","tp"]}}: without `ranks` 0..n-1, without `axes` unnamed, without `shape` that of the
/// nested `ranks`.
Result<DeviceMesh> read_mesh(const JsonCursor& value);
/// ["S(0)", "R"].
Result<Placements> read_placements(const JsonCursor& value);
/// [1, -1], [[1, 0], -1].
Result<TensorMap> read_tensor_map(const JsonCursor& value);
/// ["dp", "None"], [["dp", "tp"], "None"].
Result<AliasMap> read_alias_map(const JsonCursor& value);
/// ["sum", null].
Result<PartialList> read_partial(const JsonCursor& value);
/// A list of sizes, each at least 0.
Result<std::vector<std::int64_t>> read_shape(const JsonCursor& value);

/// "dp=2,tp=4" of a command line, or "2,4" without names. Errors: kUsage at `place`.
Result<DeviceMesh> parse_mesh(std::string_view text, std::string place);

/// A mesh of two options: axes as parse_mesh() takes them and "[[0,1],[2,3]]", own ranks.
struct MeshOption {
  const char* axes_option = "--mesh";
  std::string axes;
  const char* ranks_option = "--ranks";
  std::string ranks;
};
/// The mesh as read_mesh() takes it; without axes the shape is that of the ranks. Errors: kUsage at
/// the option.
Result<std::string> mesh_object_text(const MeshOption& option);
/// The mesh itself. Errors: kUsage at the option.
Result<DeviceMesh> read_mesh_option(const MeshOption& option);

/// "shape", "axes" (null on an unnamed mesh) and "ranks" (flat) as members of the open object.
void write_mesh_members(JsonWriter& writer, const DeviceMesh& mesh);
void write_placements(JsonWriter& writer, const Placements& placements);
void write_tensor_map(JsonWriter& writer, const TensorMap& map);
void write_alias_map(JsonWriter& writer, const AliasMap& map);
void write_partial(JsonWriter& writer, const PartialList& partial);

}  // namespace meshplan

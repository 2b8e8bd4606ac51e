// SPDX-License-Identifier: Apache-2.0
#include "apps/mesh_json.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <limits>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "lib/text.h"

namespace meshplan {
namespace {

Result<void> read_ranks(const JsonCursor& value, int depth, NestedRanks& nested) {
  if (value.kind() != JsonKind::kArray) {
    Result<std::int64_t> rank = value.as_int64();
    if (!rank) return fail(rank.error());
    nested.value = *rank;
    return {};
  }
  if (depth > kMaxMeshAxes) {
    return value.error(
        ErrorCode::kUnsupported,
        "at most " + std::to_string(kMaxMeshAxes) + " mesh dimensions are supported");
  }
  auto& list = nested.value.emplace<std::vector<NestedRanks>>(value.size());
  for (std::size_t i = 0; i < list.size(); ++i) {
    Result<void> entry = read_ranks(value.at(i), depth + 1, list[i]);
    if (!entry) return entry;
  }
  return {};
}

/// A mesh of lib, with the places of errors put behind that of the mesh object.
Result<DeviceMesh> located(const JsonCursor& object, Result<DeviceMesh> mesh) {
  return mesh ? mesh : Result<DeviceMesh>(error_at(object, mesh.error()));
}

/// The mesh of a list of ranks: nested lists have the mesh's shape, a flat one takes `shape`.
Result<DeviceMesh> mesh_of_ranks(const JsonCursor& object,
                                 const JsonCursor& value,
                                 const std::optional<std::vector<std::int64_t>>& shape,
                                 std::vector<std::string> axes) {
  if (Result<void> list = value.expect(JsonKind::kArray); !list) return fail(list.error());
  NestedRanks nested;
  if (Result<void> read = read_ranks(value, 1, nested); !read) return fail(read.error());
  const auto& entries = std::get<std::vector<NestedRanks>>(nested.value);
  bool flat = true;
  std::vector<std::int64_t> ranks;
  for (const NestedRanks& entry : entries) {
    const auto* rank = std::get_if<std::int64_t>(&entry.value);
    flat = flat && rank != nullptr;
    if (rank != nullptr) ranks.push_back(*rank);
  }
  if (flat && shape) {
    return located(object, DeviceMesh::make(*shape, std::move(axes), std::move(ranks)));
  }
  Result<DeviceMesh> mesh = located(object, DeviceMesh::from_nested(nested, std::move(axes)));
  if (!mesh || !shape) return mesh;
  const std::vector<std::int64_t> nesting(mesh->shape().begin(), mesh->shape().end());
  if (nesting != *shape) {
    return value.error(ErrorCode::kValue, "the nesting of the ranks differs from the shape");
  }
  return mesh;
}

Result<void> declare_flattened(const JsonCursor& value, const DeviceMesh& mesh) {
  if (Result<void> object = value.expect(JsonKind::kObject); !object) return object;
  for (std::size_t i = 0; i < value.size(); ++i) {
    const JsonCursor axes = value.at(i);
    Result<std::vector<std::string>> names = axes.as_strings();
    if (!names) return fail(names.error());
    Result<DeviceMesh> part = mesh.slice(*names, mesh.rank_at(0));
    if (!part) {
      std::string& where = part.error().where;
      where = where.starts_with("/axes") ? where.substr(5) : "";
      return error_at(axes, part.error());
    }
    Result<DeviceMesh> flat = part->flatten(std::string(value.key_at(i)));
    if (!flat) return axes.error(flat.error().code, flat.error().message);
  }
  return {};
}

}  // namespace

std::optional<JsonCursor> given(const JsonCursor& object, std::string_view key) {
  const std::optional<JsonCursor> member = object.find(key);
  return member && member->kind() != JsonKind::kNull ? member : std::nullopt;
}

Unexpected<Error> error_at(const JsonCursor& value, const Error& error) {
  std::string where = value.where();
  if (!error.where.empty()) {
    if (value.pointer().empty()) where += ": ";
    where += error.where;
  }
  return fail(error.code, std::move(where), error.message);
}

Result<DeviceMesh> read_mesh(const JsonCursor& value) {
  if (Result<void> keys = value.allow_only({"shape", "axes", "ranks", "flatten"}); !keys) {
    return fail(keys.error());
  }
  std::vector<std::string> axes;
  if (const auto names = given(value, "axes")) {
    Result<std::vector<std::string>> read = names->as_strings();
    if (!read) return fail(read.error());
    axes = std::move(*read);
  }
  std::optional<std::vector<std::int64_t>> shape;
  if (const auto sizes = given(value, "shape")) {
    Result<std::vector<std::int64_t>> read = sizes->as_int64s();
    if (!read) return fail(read.error());
    shape = std::move(*read);
  }
  const auto ranks = given(value, "ranks");
  if (!ranks && !shape) {
    return value.error(ErrorCode::kMissing, "a mesh needs \"shape\" or nested \"ranks\"");
  }
  Result<DeviceMesh> mesh = ranks ? mesh_of_ranks(value, *ranks, shape, std::move(axes))
                                  : located(value, DeviceMesh::make(*shape, std::move(axes)));
  if (!mesh) return mesh;
  if (const auto flatten = given(value, "flatten")) {
    if (Result<void> declared = declare_flattened(*flatten, *mesh); !declared) {
      return fail(declared.error());
    }
  }
  return mesh;
}

Result<Placements> read_placements(const JsonCursor& value) {
  if (Result<void> list = value.expect(JsonKind::kArray); !list) return fail(list.error());
  Placements placements;
  for (std::size_t i = 0; i < value.size(); ++i) {
    Result<std::string_view> text = value.at(i).as_string();
    if (!text) return fail(text.error());
    Result<Placement> placement = parse_placement(*text);
    if (!placement) return error_at(value.at(i), placement.error());
    placements.push_back(*placement);
  }
  return placements;
}

Result<TensorMap> read_tensor_map(const JsonCursor& value) {
  if (Result<void> list = value.expect(JsonKind::kArray); !list) return fail(list.error());
  const auto read_entry = [](const JsonCursor& entry) {
    return entry.as_int64(-1, std::numeric_limits<int>::max());
  };
  TensorMap map(value.size());
  for (std::size_t dim = 0; dim < map.size(); ++dim) {
    const JsonCursor entry = value.at(dim);
    const bool several = entry.kind() == JsonKind::kArray;
    for (std::size_t i = 0; i < (several ? entry.size() : 1); ++i) {
      const JsonCursor axis = several ? entry.at(i) : entry;
      Result<std::int64_t> number = read_entry(axis);
      if (!number) return fail(number.error());
      if (several && *number == -1) {
        return axis.error(ErrorCode::kValue, "-1 (not cut) cannot stand in a list of axes");
      }
      map[dim].push_back(static_cast<int>(*number));
    }
  }
  return map;
}

Result<AliasMap> read_alias_map(const JsonCursor& value) {
  if (Result<void> list = value.expect(JsonKind::kArray); !list) return fail(list.error());
  AliasMap map(value.size());
  for (std::size_t dim = 0; dim < map.size(); ++dim) {
    const JsonCursor entry = value.at(dim);
    const bool several = entry.kind() == JsonKind::kArray;
    for (std::size_t i = 0; i < (several ? entry.size() : 1); ++i) {
      const JsonCursor axis = several ? entry.at(i) : entry;
      Result<std::string_view> name = axis.as_string();
      if (!name) return fail(name.error());
      if (several && *name == "None") {
        return axis.error(ErrorCode::kValue, "\"None\" cannot stand in a list of axes");
      }
      map[dim].emplace_back(*name);
    }
  }
  return map;
}

Result<PartialList> read_partial(const JsonCursor& value) {
  if (Result<void> list = value.expect(JsonKind::kArray); !list) return fail(list.error());
  PartialList partial(value.size());
  for (std::size_t i = 0; i < partial.size(); ++i) {
    const JsonCursor entry = value.at(i);
    if (entry.kind() == JsonKind::kNull) continue;
    Result<std::string_view> name = entry.as_string();
    if (!name) return fail(name.error());
    Result<Reduction> reduction = parse_reduction(*name);
    if (!reduction) return error_at(entry, reduction.error());
    partial[i] = *reduction;
  }
  return partial;
}

Result<std::vector<std::int64_t>> read_shape(const JsonCursor& value) {
  if (Result<void> list = value.expect(JsonKind::kArray); !list) return fail(list.error());
  std::vector<std::int64_t> shape;
  for (std::size_t i = 0; i < value.size(); ++i) {
    Result<std::int64_t> size = value.at(i).as_int64(0, std::numeric_limits<std::int64_t>::max());
    if (!size) return fail(size.error());
    shape.push_back(*size);
  }
  return shape;
}

Result<DeviceMesh> parse_mesh(std::string_view text, std::string place) {
  std::vector<std::int64_t> shape;
  std::vector<std::string> axes;
  const auto bad = [&](const std::string& why) {
    return fail(ErrorCode::kUsage, place, why + "; expected e.g. dp=2,tp=4");
  };
  // Quoting replaces what is no UTF-8.
  const auto reread = JsonDocument::parse(json_quote(text), "");
  if (!reread || *reread->root().as_string() != text) return bad("the text is not valid UTF-8");
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string_view axis = text.substr(begin, end - begin);
    const std::size_t equals = axis.rfind('=');
    const std::string_view size =
        trim(equals == std::string_view::npos ? axis : axis.substr(equals + 1));
    std::int64_t number = 0;
    const auto [stop, status] = std::from_chars(size.data(), size.data() + size.size(), number);
    if (status != std::errc() || stop != size.data() + size.size()) {
      return bad(quoted(axis) + " is no axis with a 64-bit size");
    }
    shape.push_back(number);
    if (equals != std::string_view::npos) axes.emplace_back(trim(axis.substr(0, equals)));
    begin = end + 1;
  }
  if (!axes.empty() && axes.size() != shape.size()) return bad("some axes have no name");
  Result<DeviceMesh> mesh = DeviceMesh::make(std::move(shape), std::move(axes));
  if (!mesh) return fail(ErrorCode::kUsage, std::move(place), mesh.error().message);
  return mesh;
}

Result<std::string> mesh_object_text(const MeshOption& option) {
  JsonWriter writer(0);
  writer.begin_object();
  if (!option.axes.empty()) {
    Result<DeviceMesh> mesh = parse_mesh(option.axes, option.axes_option);
    if (!mesh) return fail(mesh.error());
    writer.key("shape");
    writer.array(mesh->shape());
    if (mesh->named()) {
      writer.key("axes");
      writer.array(mesh->axes());
    }
  }
  writer.end_object();
  std::string text = std::move(writer).text();
  if (option.ranks.empty()) return text;
  // Alone first: nothing but a value may stand in the option.
  Result<JsonDocument> ranks = JsonDocument::parse(option.ranks, "");
  if (!ranks) {
    return fail(ErrorCode::kUsage,
                option.ranks_option,
                ranks.error().message + "; expected e.g. [[0,1],[2,3]]");
  }
  text.pop_back();
  return text + (option.axes.empty() ? "" : ",") + "\"ranks\":" + option.ranks + "}";
}

Result<DeviceMesh> read_mesh_option(const MeshOption& option) {
  if (option.ranks.empty()) return parse_mesh(option.axes, option.axes_option);
  Result<std::string> text = mesh_object_text(option);
  if (!text) return fail(text.error());
  Result<JsonDocument> document = JsonDocument::parse(*text, "");
  if (!document) return fail(ErrorCode::kUsage, option.ranks_option, document.error().message);
  Result<DeviceMesh> mesh = read_mesh(document->root());
  if (mesh) return mesh;
  const bool of_ranks = mesh.error().where.find("/ranks") != std::string::npos;
  return fail(
      ErrorCode::kUsage, of_ranks ? option.ranks_option : option.axes_option, mesh.error().message);
}

void write_mesh_members(JsonWriter& writer, const DeviceMesh& mesh) {
  writer.key("shape");
  writer.array(mesh.shape());
  writer.key("axes");
  if (mesh.named()) {
    writer.array(mesh.axes());
  } else {
    writer.null();
  }
  writer.key("ranks");
  writer.begin_array(JsonWriter::kOneLine);
  for (std::int64_t i = 0; i < mesh.size(); ++i) writer.value(mesh.rank_at(i));
  writer.end_array();
}

void write_placements(JsonWriter& writer, const Placements& placements) {
  writer.begin_array(JsonWriter::kOneLine);
  for (const Placement& placement : placements) writer.value(to_string(placement));
  writer.end_array();
}

void write_tensor_map(JsonWriter& writer, const TensorMap& map) {
  writer.begin_array(JsonWriter::kOneLine);
  for (const std::vector<int>& entry : map) {
    if (entry.size() > 1) {
      writer.array(entry);
    } else {
      writer.value(entry.empty() ? -1 : entry[0]);
    }
  }
  writer.end_array();
}

void write_alias_map(JsonWriter& writer, const AliasMap& map) {
  writer.begin_array(JsonWriter::kOneLine);
  for (const std::vector<std::string>& entry : map) {
    if (entry.size() > 1) {
      writer.array(entry);
    } else {
      writer.value(entry.empty() ? std::string("None") : entry[0]);
    }
  }
  writer.end_array();
}

void write_partial(JsonWriter& writer, const PartialList& partial) {
  writer.begin_array(JsonWriter::kOneLine);
  for (const std::optional<Reduction>& reduction : partial) {
    if (reduction) {
      writer.value(reduction_name(*reduction));
    } else {
      writer.null();
    }
  }
  writer.end_array();
}

}  // namespace meshplan

// SPDX-License-Identifier: Apache-2.0
// meshplan mesh: questions about device meshes and layouts, one from the command line or many with
// --batch. A single question is turned into a batch request, so that both give the same answers.
#include <algorithm>
#include <array>
#include <cctype>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "apps/batch.h"
#include "apps/command.h"
#include "apps/mesh_json.h"
#include "lib/check.h"
#include "lib/device_mesh.h"
#include "lib/layout.h"
#include "lib/nearest_name.h"

namespace meshplan {
namespace {

/// A root mesh with ranks 0..n-1 is written without its rank list beyond this size.
constexpr std::int64_t kLongestRootList = 65536;

// ---- Requests ----

std::optional<JsonCursor> given(const JsonCursor& object, std::string_view key) {
  const std::optional<JsonCursor> member = object.find(key);
  return member && member->kind() != JsonKind::kNull ? member : std::nullopt;
}

Result<JsonCursor> required(const JsonCursor& request, std::string_view key) {
  if (const auto member = given(request, key)) return *member;
  return request.error(ErrorCode::kMissing, "the key " + json_quote(key) + " is missing");
}

struct MeshRequest {
  JsonCursor request;
  DeviceMesh mesh;
  std::int64_t rank = 0;
  bool rank_given = false;
};

Result<std::optional<AxisRef>> read_axis(const JsonCursor& request) {
  const auto axis = given(request, "axis");
  if (!axis) return std::optional<AxisRef>();
  if (axis->kind() == JsonKind::kString) {
    return std::optional<AxisRef>(std::string(*axis->as_string()));
  }
  if (axis->kind() != JsonKind::kInteger) {
    return axis->error(ErrorCode::kType,
                       std::string("expected the name or the index of an axis, found ") +
                           json_kind_name(axis->kind()));
  }
  Result<std::int64_t> index = axis->as_int64();
  if (!index) return fail(index.error());
  return std::optional<AxisRef>(*index);
}

Result<std::vector<std::string>> read_names(const JsonCursor& request, std::string_view key) {
  Result<JsonCursor> names = required(request, key);
  return names ? names->as_strings() : Result<std::vector<std::string>>(fail(names.error()));
}

Result<void> check_listable(const MeshRequest& from, std::int64_t count) {
  if (count <= kMaxListedRanks) return {};
  return from.request.error(ErrorCode::kOverflow,
                            "the answer would list " + std::to_string(count) +
                                " numbers, at most " + std::to_string(kMaxListedRanks) +
                                " are written");
}

// ---- Answers ----

using Answer = Result<void>;

Answer write_mesh(const MeshRequest& from, const Result<DeviceMesh>& mesh, JsonWriter& out) {
  if (!mesh) return error_at(from.request, mesh.error());
  if (Answer listable = check_listable(from, mesh->size()); !listable) return listable;
  write_mesh_members(out, *mesh);
  return {};
}

Answer answer_info(const MeshRequest& from, JsonWriter& out) {
  if (Answer written = write_mesh(from, from.mesh, out); !written) return written;
  out.member("ndim", from.mesh.ndim());
  out.member("hash", from.mesh.hash_text());
  return {};
}

Answer answer_coordinates(const MeshRequest& from, JsonWriter& out) {
  out.key("coordinates");
  if (const auto coordinates = from.mesh.coordinates(from.rank)) {
    out.array(*coordinates);
  } else {
    out.null();
  }
  return {};
}

Answer answer_slice(const MeshRequest& from, JsonWriter& out) {
  Result<std::vector<std::string>> axes = read_names(from.request, "axes");
  if (!axes) return fail(axes.error());
  Result<DeviceMesh> part = from.mesh.slice(*axes, from.rank);
  if (Answer written = write_mesh(from, part, out); !written) return written;
  const DeviceMesh root = part->root();
  out.key("root");
  out.begin_object(JsonWriter::kOneLine);
  const bool counts_up = root.size() > kLongestRootList &&
                         root == *DeviceMesh::make({root.shape().begin(), root.shape().end()},
                                                   {root.axes().begin(), root.axes().end()});
  if (counts_up) {
    out.key("shape");
    out.array(root.shape());
    out.key("axes");
    out.array(root.axes());
  } else {
    write_mesh_members(out, root);
  }
  out.end_object();
  return {};
}

Answer answer_group(const MeshRequest& from, JsonWriter& out) {
  Result<std::optional<AxisRef>> axis = read_axis(from.request);
  if (!axis) return fail(axis.error());
  Result<std::vector<std::int64_t>> ranks = from.mesh.group(*axis, from.rank);
  if (!ranks) return error_at(from.request, ranks.error());
  out.key("ranks");
  out.array(*ranks);
  return {};
}

Answer answer_groups(const MeshRequest& from, JsonWriter& out) {
  Result<std::optional<AxisRef>> axis = read_axis(from.request);
  if (!axis) return fail(axis.error());
  Result<std::vector<std::vector<std::int64_t>>> groups = from.mesh.groups(*axis);
  if (!groups) return error_at(from.request, groups.error());
  out.key("groups");
  out.begin_array();
  for (const std::vector<std::int64_t>& group : *groups) out.array(group);
  out.end_array();
  return {};
}

Answer answer_local_rank(const MeshRequest& from, JsonWriter& out) {
  Result<std::optional<AxisRef>> axis = read_axis(from.request);
  if (!axis) return fail(axis.error());
  Result<std::int64_t> local_rank = from.mesh.local_rank(*axis, from.rank);
  if (!local_rank) return error_at(from.request, local_rank.error());
  out.member("local_rank", *local_rank);
  return {};
}

Answer answer_flatten(const MeshRequest& from, JsonWriter& out) {
  Result<std::vector<std::string>> axes = read_names(from.request, "axes");
  if (!axes) return fail(axes.error());
  std::optional<std::string> name;
  if (const auto member = given(from.request, "name")) {
    Result<std::string_view> text = member->as_string();
    if (!text) return fail(text.error());
    name = std::string(*text);
  }
  Result<DeviceMesh> part = from.mesh.slice(*axes, from.rank);
  return write_mesh(from, part ? part->flatten(name) : part, out);
}

Answer answer_unflatten(const MeshRequest& from, JsonWriter& out) {
  Result<JsonCursor> present = required(from.request, "axis");
  if (!present) return fail(present.error());
  Result<std::optional<AxisRef>> axis = read_axis(from.request);
  if (!axis) return fail(axis.error());
  Result<JsonCursor> sizes = required(from.request, "sizes");
  if (!sizes) return fail(sizes.error());
  Result<std::vector<std::int64_t>> numbers = sizes->as_int64s();
  if (!numbers) return fail(numbers.error());
  Result<std::vector<std::string>> names = std::vector<std::string>();
  if (from.mesh.named()) names = read_names(from.request, "names");
  if (!names) return fail(names.error());
  return write_mesh(from, from.mesh.unflatten(**axis, *numbers, *names), out);
}

Answer answer_concatenate(const MeshRequest& from, JsonWriter& out) {
  Result<JsonCursor> lists = required(from.request, "meshes");
  if (!lists) return fail(lists.error());
  if (Answer array = lists->expect(JsonKind::kArray); !array) return array;
  std::vector<DeviceMesh> meshes;
  for (std::size_t i = 0; i < lists->size(); ++i) {
    Result<std::vector<std::string>> axes = lists->at(i).as_strings();
    if (!axes) return fail(axes.error());
    Result<DeviceMesh> part = from.mesh.slice(*axes, from.rank);
    if (!part) {
      std::string& where = part.error().where;
      if (where == "/rank") return error_at(from.request, part.error());
      where = where.starts_with("/axes") ? where.substr(5) : "";
      return error_at(lists->at(i), part.error());
    }
    meshes.push_back(*part);
  }
  return write_mesh(from, DeviceMesh::concatenate(meshes), out);
}

Answer answer_global_shape(const MeshRequest& from, JsonWriter& out) {
  Result<JsonCursor> local = required(from.request, "local_shape");
  if (!local) return fail(local.error());
  Result<std::vector<std::int64_t>> sizes = read_shape(*local);
  if (!sizes) return fail(sizes.error());
  Result<JsonCursor> map = required(from.request, "tensor_map");
  if (!map) return fail(map.error());
  Result<TensorMap> entries = read_tensor_map(*map);
  if (!entries) return fail(entries.error());
  Result<Layout> layout = Layout::from_tensor_map(from.mesh, *entries);
  if (!layout) return error_at(*map, layout.error());
  Result<std::vector<std::int64_t>> shape = layout->global_shape(*sizes);
  if (!shape) return error_at(*local, shape.error());
  out.key("shape");
  out.array(*shape);
  return {};
}

/// The layout of a request in whichever of its three forms is given.
Result<Layout> read_layout(const MeshRequest& from, int tensor_rank) {
  std::optional<JsonCursor> form;
  for (const char* key : {"placements", "tensor_map", "alias_map"}) {
    const auto member = given(from.request, key);
    if (!member) continue;
    if (form) {
      return member->error(ErrorCode::kConflict,
                           "give only one of \"placements\", \"tensor_map\" and \"alias_map\"");
    }
    form = member;
  }
  if (!form) {
    return from.request.error(
        ErrorCode::kMissing,
        "one of the keys \"placements\", \"tensor_map\" and \"alias_map\" is required");
  }
  PartialList partial;
  const auto partial_member = given(from.request, "partial");
  if (partial_member) {
    Result<PartialList> read = read_partial(*partial_member);
    if (!read) return fail(read.error());
    partial = std::move(*read);
  }
  const auto located = [&](Result<Layout> layout) -> Result<Layout> {
    if (layout) return layout;
    const bool of_partial = layout.error().where.starts_with("/partial");
    return error_at(of_partial ? from.request : *form, layout.error());
  };
  if (form->name_in_parent() == "placements") {
    if (partial_member) {
      return partial_member->error(ErrorCode::kConflict,
                                   "placements say themselves which axes are partial");
    }
    Result<Placements> placements = read_placements(*form);
    if (!placements) return fail(placements.error());
    return located(Layout::from_placements(from.mesh, *placements, tensor_rank));
  }
  if (Result<void> list = form->expect(JsonKind::kArray); !list) return fail(list.error());
  if (form->size() != static_cast<std::size_t>(tensor_rank)) {
    return form->error(ErrorCode::kValue,
                       std::to_string(form->size()) + " entries for a tensor of " +
                           std::to_string(tensor_rank) +
                           (tensor_rank == 1 ? " dimension" : " dimensions"));
  }
  if (form->name_in_parent() == "tensor_map") {
    Result<TensorMap> map = read_tensor_map(*form);
    if (!map) return fail(map.error());
    return located(Layout::from_tensor_map(from.mesh, *map, partial));
  }
  Result<AliasMap> map = read_alias_map(*form);
  if (!map) return fail(map.error());
  return located(Layout::from_alias_map(from.mesh, *map, partial));
}

Answer answer_layout(const MeshRequest& from, JsonWriter& out) {
  Result<JsonCursor> member = required(from.request, "shape");
  if (!member) return fail(member.error());
  Result<std::vector<std::int64_t>> shape = read_shape(*member);
  if (!shape) return fail(shape.error());
  if (shape->size() > static_cast<std::size_t>(kMaxTensorRank)) {
    return member->error(
        ErrorCode::kUnsupported,
        "at most " + std::to_string(kMaxTensorRank) + " tensor dimensions are supported");
  }
  const int tensor_rank = static_cast<int>(shape->size());
  Result<Layout> layout = read_layout(from, tensor_rank);
  if (!layout) return fail(layout.error());
  std::optional<std::int64_t> position = 0;
  if (from.rank_given) position = from.mesh.position_of(from.rank);
  if (!position) {
    return from.request.find("rank")->error(
        ErrorCode::kRank, "rank " + std::to_string(from.rank) + " is not in the mesh");
  }
  Result<std::vector<std::int64_t>> local = layout->local_shape(*shape, *position);
  if (!local) return error_at(*member, local.error());
  const std::int64_t per_device = std::max<std::int64_t>(1, tensor_rank);
  if (from.mesh.size() > kMaxListedRanks / per_device) {
    return from.request.error(ErrorCode::kOverflow, "the mesh has too many ranks to list slices");
  }
  out.key("placements");
  write_placements(out, layout->placements());
  out.key("tensor_map");
  write_tensor_map(out, layout->tensor_map());
  out.key("alias_map");
  if (from.mesh.named()) {
    write_alias_map(out, layout->alias_map());
  } else {
    out.null();
  }
  out.key("partial");
  write_partial(out, layout->partial());
  out.key("local_shape");
  out.array(*local);
  out.key("slices");
  out.begin_array();
  for (std::int64_t device = 0; device < from.mesh.size(); ++device) {
    out.begin_array(JsonWriter::kOneLine);
    for (int dim = 0; dim < tensor_rank; ++dim) {
      const Interval piece = layout->slice_of(dim, (*shape)[static_cast<std::size_t>(dim)], device);
      out.array(std::array{piece.begin, piece.end});
    }
    out.end_array();
  }
  out.end_array();
  out.member("repeat", layout->repeat_count());
  out.member("compact", layout->compact());
  return {};
}

struct MeshOperation {
  std::string_view name;
  Answer (*answer)(const MeshRequest& from, JsonWriter& out);
};

constexpr std::array kOperations = {
    MeshOperation{"info", answer_info},
    MeshOperation{"coordinates", answer_coordinates},
    MeshOperation{"slice", answer_slice},
    MeshOperation{"group", answer_group},
    MeshOperation{"ranks_along", answer_group},
    MeshOperation{"groups", answer_groups},
    MeshOperation{"local_rank", answer_local_rank},
    MeshOperation{"flatten", answer_flatten},
    MeshOperation{"unflatten", answer_unflatten},
    MeshOperation{"concatenate", answer_concatenate},
    MeshOperation{"global_shape", answer_global_shape},
    MeshOperation{"layout", answer_layout},
};

Result<const MeshOperation*> read_operation(const JsonCursor& request) {
  Result<JsonCursor> op = required(request, "op");
  if (!op) return fail(op.error());
  Result<std::string_view> name = op->as_string();
  if (!name) return fail(name.error());
  std::vector<std::string> known;
  for (const MeshOperation& operation : kOperations) {
    if (operation.name == *name) return &operation;
    known.emplace_back(operation.name);
  }
  std::string message = "unknown operation " + json_quote(name->substr(0, 60));
  const std::string hint = nearest_name_hint(*name, known);
  if (hint.empty()) {
    message += ", expected ";
    for (std::size_t i = 0; i < known.size(); ++i) message += (i > 0 ? ", " : "") + known[i];
  }
  return op->error(ErrorCode::kValue, message + hint);
}

Answer answer_mesh_request(const JsonCursor& request, JsonWriter& out) {
  Answer keys = request.allow_only({"mesh",
                                    "rank",
                                    "op",
                                    "axes",
                                    "axis",
                                    "name",
                                    "sizes",
                                    "names",
                                    "meshes",
                                    "local_shape",
                                    "tensor_map",
                                    "shape",
                                    "placements",
                                    "alias_map",
                                    "partial"});
  if (!keys) return keys;
  Result<const MeshOperation*> operation = read_operation(request);
  if (!operation) return fail(operation.error());
  Result<JsonCursor> object = required(request, "mesh");
  if (!object) return fail(object.error());
  Result<DeviceMesh> mesh = read_mesh(*object);
  if (!mesh) return fail(mesh.error());
  MeshRequest from{request, *mesh};
  if (const auto rank = given(request, "rank")) {
    Result<std::int64_t> number = rank->as_int64();
    if (!number) return fail(number.error());
    from.rank = *number;
    from.rank_given = true;
  }
  out.begin_object();
  if (Answer answered = (*operation)->answer(from, out); !answered) return answered;
  out.end_object();
  return {};
}

// ---- The command line ----

struct MeshOptions {
  std::string mesh;
  std::string ranks;
  std::optional<std::int64_t> rank;
  bool info = false;
  bool coordinates = false;
  std::string slice;
  std::string group;
  std::string groups;
  std::string local_rank;
  std::string flatten;
  std::string name;
  std::string unflatten;
  std::string sizes;
  std::string names;
  std::string concatenate;
  std::string global_shape;
  std::string layout;
  std::string tensor_map;
  std::string alias_map;
  std::string shape;
  std::string batch;
};

Unexpected<Error> usage(std::string place, std::string message) {
  return fail(ErrorCode::kUsage, std::move(place), std::move(message));
}

/// The parts of a list separated by `separator` outside parentheses.
std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts(1);
  int depth = 0;
  for (const char letter : text) {
    if (letter == '(') ++depth;
    if (letter == ')') --depth;
    if (letter == separator && depth <= 0) {
      parts.emplace_back();
    } else if (letter != ' ') {
      parts.back() += letter;
    }
  }
  return parts;
}

std::string json_strings(std::string_view text, char separator = ',') {
  JsonWriter writer(0);
  writer.array(split(text, separator));
  return std::move(writer).text();
}

/// `text` as a JSON array; lists may be written with parentheses, and without the outer ones.
Result<std::string> json_numbers(std::string_view text, const char* option) {
  std::string list(text);
  std::replace(list.begin(), list.end(), '(', '[');
  std::replace(list.begin(), list.end(), ')', ']');
  Result<JsonDocument> whole = JsonDocument::parse(list, option);
  if (whole && whole->root().kind() == JsonKind::kArray) return list;
  list = "[" + list + "]";
  whole = JsonDocument::parse(list, option);
  if (whole) return list;
  return usage(option, "expected numbers separated by commas, e.g. 8,16");
}

/// "(dp,tp),None" as a JSON alias map.
std::string json_aliases(std::string_view text) {
  if (text.size() >= 2 && text.starts_with("((") && text.ends_with(")")) {
    text = text.substr(1, text.size() - 2);
  }
  JsonWriter writer(0);
  writer.begin_array();
  for (const std::string& entry : split(text, ',')) {
    if (entry.starts_with('(') && entry.ends_with(')')) {
      writer.array(split(std::string_view(entry).substr(1, entry.size() - 2), ','));
    } else {
      writer.value(entry);
    }
  }
  writer.end_array();
  return std::move(writer).text();
}

std::string json_axis(const std::string& text) {
  const bool index = !text.empty() && std::all_of(text.begin(), text.end(), [](char letter) {
    return letter >= '0' && letter <= '9';
  });
  return index && text.size() < 19 ? std::to_string(std::stoll(text)) : json_quote(text);
}

/// One option that asks a question: its request and what else it needs.
struct Question {
  const char* option;
  bool asked;
  std::string members;  ///< JSON members of the request, "op" included
};

Result<std::vector<Question>> questions(const MeshOptions& options) {
  std::vector<Question> asked;
  const auto ask = [&](const char* option, bool is_asked, std::string members) {
    if (is_asked) asked.push_back({option, true, std::move(members)});
  };
  const auto numbers = [](const std::string& text, const char* option) {
    return text.empty() ? Result<std::string>(std::string("null")) : json_numbers(text, option);
  };
  Result<std::string> shape = numbers(options.shape, "--shape");
  if (!shape) return fail(shape.error());
  Result<std::string> map = numbers(options.tensor_map, "--tensor-map");
  if (!map) return fail(map.error());
  Result<std::string> sizes = numbers(options.sizes, "--sizes");
  if (!sizes) return fail(sizes.error());
  Result<std::string> local = numbers(options.global_shape, "--global-shape");
  if (!local) return fail(local.error());

  ask("--info", options.info, R"("op":"info")");
  ask("--coordinates", options.coordinates, R"("op":"coordinates")");
  ask("--slice", !options.slice.empty(), R"("op":"slice","axes":)" + json_strings(options.slice));
  ask("--group", !options.group.empty(), R"("op":"group","axis":)" + json_axis(options.group));
  ask("--groups", !options.groups.empty(), R"("op":"groups","axis":)" + json_axis(options.groups));
  ask("--local-rank",
      !options.local_rank.empty(),
      R"("op":"local_rank","axis":)" + json_axis(options.local_rank));
  ask("--flatten",
      !options.flatten.empty(),
      R"("op":"flatten","axes":)" + json_strings(options.flatten) +
          (options.name.empty() ? "" : R"(,"name":)" + json_quote(options.name)));
  ask("--unflatten",
      !options.unflatten.empty(),
      R"("op":"unflatten","axis":)" + json_axis(options.unflatten) + R"(,"sizes":)" + *sizes +
          (options.names.empty() ? "" : R"(,"names":)" + json_strings(options.names)));
  std::string meshes;
  for (const std::string& mesh : split(options.concatenate, ';')) {
    meshes += (meshes.empty() ? "" : ",") + json_strings(mesh);
  }
  ask("--concatenate",
      !options.concatenate.empty(),
      R"("op":"concatenate","meshes":[)" + meshes + "]");
  ask("--global-shape",
      !options.global_shape.empty(),
      R"("op":"global_shape","local_shape":)" + *local + R"(,"tensor_map":)" + *map);
  const std::string tensor = R"("op":"layout","shape":)" + *shape;
  ask("--layout",
      !options.layout.empty(),
      tensor + R"(,"placements":)" + json_strings(options.layout));
  ask("--tensor-map",
      !options.tensor_map.empty() && options.global_shape.empty(),
      tensor + R"(,"tensor_map":)" + *map);
  ask("--alias-map",
      !options.alias_map.empty(),
      tensor + R"(,"alias_map":)" + json_aliases(options.alias_map));
  return asked;
}

/// The option that a JSON Pointer into the request came from.
std::string option_of(std::string_view pointer, const char* question) {
  constexpr std::array<std::pair<std::string_view, const char*>, 6> kOptions = {{
      {"/mesh/ranks", "--ranks"},
      {"/mesh", "--mesh"},
      {"/rank", "--rank"},
      {"/shape", "--shape"},
      {"/sizes", "--sizes"},
      {"/names", "--names"},
  }};
  for (const auto& [member, option] : kOptions) {
    if (!pointer.starts_with(member)) continue;
    if (pointer.size() == member.size() || pointer[member.size()] == '/') return option;
  }
  return question;
}

Result<std::string> mesh_members(const MeshOptions& options) {
  if (options.mesh.empty() && options.ranks.empty()) {
    return usage("--mesh", "is required, e.g. --mesh dp=2,tp=4 (or --batch FILE)");
  }
  return mesh_object_text({"--mesh", options.mesh, "--ranks", options.ranks});
}

// ---- Printing ----

/// Scalars as they are, lists with spaces; long lists are cut in the middle.
std::string line_of(const JsonCursor& value) {
  if (value.kind() == JsonKind::kString) return std::string(*value.as_string());
  if (value.kind() == JsonKind::kInteger) return std::to_string(*value.as_int64());
  if (value.kind() == JsonKind::kNull) return "-";
  constexpr std::size_t kLongest = 64;
  constexpr std::size_t kEnds = 16;
  std::string line;
  for (std::size_t i = 0; i < value.size(); ++i) {
    if (value.size() > kLongest && i == kEnds) {
      line += " ... (" + std::to_string(value.size()) + " in all)";
      i = value.size() - kEnds;
    }
    const JsonCursor entry = value.at(i);
    const bool nested = entry.kind() == JsonKind::kArray;
    if (!line.empty()) line += ' ';
    line += nested ? "(" + line_of(entry) + ")" : line_of(entry);
  }
  return line;
}

/// Rows of the printed answer: a name (blank where a list goes on) and a text.
using Rows = std::vector<std::pair<std::string, std::string>>;

void add_rows(const JsonCursor& object, const std::string& prefix, Rows& rows) {
  constexpr std::size_t kLongest = 64;
  for (std::size_t i = 0; i < object.size(); ++i) {
    const JsonCursor value = object.at(i);
    const std::string name = prefix + std::string(object.key_at(i));
    if (value.kind() == JsonKind::kObject) {
      add_rows(value, name + " ", rows);
      continue;
    }
    if (name != "groups" && name != "slices") {
      rows.emplace_back(name, line_of(value));
      continue;
    }
    for (std::size_t k = 0; k < value.size(); ++k) {
      if (k == kLongest) {
        rows.emplace_back("", "... (" + std::to_string(value.size()) + " in all)");
        break;
      }
      rows.emplace_back(k == 0 ? name : "", line_of(value.at(k)));
    }
  }
}

std::string print(const std::string& answer, const std::string& format) {
  if (format == "json") return answer;
  const Result<JsonDocument> document = JsonDocument::parse(answer, "answer");
  MESHPLAN_CHECK(document.has_value());
  Rows rows;
  add_rows(document->root(), "", rows);
  std::string text;
  if (format == "markdown") {
    text = "| | |\n|---|---|\n";
    for (const auto& [name, value] : rows) text += "| " + name + " | " + value + " |\n";
    return text;
  }
  std::size_t width = 0;
  for (const auto& [name, value] : rows) width = std::max(width, name.size());
  for (const auto& [name, value] : rows) {
    text += name + std::string(width - name.size() + 2, ' ') + value + '\n';
  }
  return text;
}

int run_batch(const MeshOptions& options, const CommonOptions& common) {
  Result<std::string> text = read_file(options.batch);
  if (!text) return report(text.error());
  const std::string name = options.batch == "-" ? "standard input" : options.batch;
  Result<std::string> answers = answer_batch(*text, name, answer_mesh_request);
  if (!answers) return report(answers.error());
  Result<void> written = write_output(common.output, *answers);
  return written ? kDone : report(written.error());
}

Result<std::string> answer_single(const MeshOptions& options) {
  Result<std::string> mesh = mesh_members(options);
  if (!mesh) return mesh;
  Result<std::vector<Question>> asked = questions(options);
  if (!asked) return fail(asked.error());
  if (asked->empty()) asked->push_back({"--info", true, R"("op":"info")"});
  if (asked->size() > 1) {
    return usage((*asked)[1].option, std::string("cannot be combined with ") + (*asked)[0].option);
  }
  const Question& question = asked->front();
  std::string text = "{\"mesh\":" + *mesh + ',' + question.members;
  if (options.rank) text += ",\"rank\":" + std::to_string(*options.rank);
  Result<JsonDocument> request = JsonDocument::parse(text + '}', "");
  if (!request) return usage(question.option, request.error().message);
  JsonWriter out;
  if (Result<void> done = answer_mesh_request(request->root(), out); !done) {
    std::string_view pointer = done.error().where;
    if (pointer.starts_with(": ")) pointer.remove_prefix(2);
    return usage(option_of(pointer, question.option), done.error().message);
  }
  return std::move(out).text();
}

int run_mesh(const MeshOptions& options, const CommonOptions& common) {
  if (!options.batch.empty()) return run_batch(options, common);
  Result<std::string> answer = answer_single(options);
  if (!answer) return report(answer.error());
  Result<void> written = write_output(common.output, print(*answer, common.format));
  return written ? kDone : report(written.error());
}

}  // namespace

RunCommand define_mesh(CLI::App& app, CommonOptions& common) {
  auto options = std::make_shared<MeshOptions>();
  CLI::Option* mesh =
      app.add_option("--mesh", options->mesh, "Axes and sizes, outermost first: dp=2,tp=4")
          ->type_name("AXES");
  CLI::Option* ranks = app.add_option("--ranks", options->ranks, "Own ranks: [[0,1,2,3],[4,5,6,7]]")
                           ->type_name("LISTS");
  app.add_option("--rank", options->rank, "The rank that looks (default 0)")->type_name("R");
  app.add_flag("--info", options->info, "Shape, axes, ranks and hash (default)");
  app.add_flag("--coordinates", options->coordinates, "Coordinates of the rank");
  app.add_option("--slice", options->slice, "Sub-mesh of these axes")->type_name("A,B");
  app.add_option("--group", options->group, "Ranks along an axis (name, index, flattened name)")
      ->type_name("A");
  app.add_option("--groups", options->groups, "Every group along an axis")->type_name("A");
  app.add_option("--local-rank", options->local_rank, "Index of the rank along an axis")
      ->type_name("A");
  app.add_option("--flatten", options->flatten, "One axis made of these")->type_name("A,B");
  app.add_option("--name", options->name, "Name for --flatten")->type_name("N");
  app.add_option("--unflatten", options->unflatten, "Split an axis into --sizes called --names")
      ->type_name("A");
  app.add_option("--sizes", options->sizes, "Sizes for --unflatten")->type_name("2,4");
  app.add_option("--names", options->names, "Names for --unflatten")->type_name("A,B");
  app.add_option("--concatenate", options->concatenate, "Sub-meshes side by side")
      ->type_name("\"A;B,C\"");
  app.add_option("--global-shape",
                 options->global_shape,
                 "Shape of the tensor with this local shape and --tensor-map")
      ->type_name("4,8");
  app.add_option("--layout", options->layout, "Placements of a tensor of --shape")
      ->type_name("\"S(0),R\"");
  app.add_option("--tensor-map", options->tensor_map, "The layout as tensor map: (1,0),-1")
      ->type_name("MAP");
  app.add_option("--alias-map", options->alias_map, "The layout as axis names: (dp,tp),None")
      ->type_name("MAP");
  app.add_option("--shape", options->shape, "Shape of the tensor")->type_name("8,16");
  app.add_option(
         "--batch", options->batch, "Answer a JSON array of requests (\"-\": standard input)")
      ->type_name("FILE")
      ->excludes(mesh)
      ->excludes(ranks);
  return [options, &common] { return run_mesh(*options, common); };
}

}  // namespace meshplan

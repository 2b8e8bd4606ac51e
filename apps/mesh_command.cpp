// SPDX-License-Identifier: Apache-2.0
// meshplan mesh: questions about device meshes and layouts, one from the command line or many with
// --batch. A single question is turned into a batch request, so that both give the same answers.
#include <algorithm>
#include <array>
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
#include "lib/text.h"

namespace meshplan {
namespace {

/// A root mesh with ranks 0..n-1 is written without its rank list beyond this size.
constexpr std::int64_t kLongestRootList = 65536;

// ---- Requests ----

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
  if (from.mesh.named() || given(from.request, "names")) names = read_names(from.request, "names");
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
                       counted(form->size(), "entry", "entries") + " for a tensor of " +
                           counted(static_cast<std::size_t>(tensor_rank), "dimension"));
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

/// The options as they were given; an empty text is a text.
struct MeshOptions {
  using Text = std::optional<std::string>;
  Text mesh;
  Text ranks;
  Text rank;
  bool info = false;
  bool coordinates = false;
  Text slice;
  Text group;
  Text groups;
  Text local_rank;
  Text flatten;
  Text name;
  Text unflatten;
  Text sizes;
  Text names;
  Text concatenate;
  Text global_shape;
  Text layout;
  Text tensor_map;
  Text alias_map;
  Text shape;
  Text batch;
};

bool opens(char letter) { return letter == '(' || letter == '['; }
bool closes(char letter) { return letter == ')' || letter == ']'; }

/// The trimmed parts of a list separated by `separator` outside parentheses and brackets.
std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  int depth = 0;
  std::size_t begin = 0;
  for (std::size_t i = 0; i <= text.size(); ++i) {
    const char letter = i < text.size() ? text[i] : separator;
    if (opens(letter)) ++depth;
    if (closes(letter)) --depth;
    if (letter != separator || (depth > 0 && i < text.size())) continue;
    parts.emplace_back(trim(text.substr(begin, i - begin)));
    begin = i + 1;
  }
  return parts;
}

std::string json_strings(std::string_view text, char separator = ',') {
  JsonWriter writer(0);
  writer.array(split(text, separator));
  return std::move(writer).text();
}

bool is_integer(std::string_view text) {
  if (text.starts_with('-')) text.remove_prefix(1);
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char letter) {
    return letter >= '0' && letter <= '9';
  });
}

/// An integer as the JSON reader sees it; any other text as a string, which it refuses by name.
std::string json_integer(std::string_view text) {
  const bool leading_zero = text.starts_with("-0") || (text.size() > 1 && text.starts_with('0'));
  return is_integer(text) && !leading_zero ? std::string(text) : json_quote(text);
}

/// What stands inside the parentheses or brackets that enclose the whole text.
std::optional<std::string_view> enclosed(std::string_view text) {
  text = trim(text);
  if (text.size() < 2 || !opens(text.front())) return std::nullopt;
  int depth = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (opens(text[i])) ++depth;
    if (closes(text[i])) --depth;
    if (depth == 0)
      return i + 1 == text.size() ? std::optional(text.substr(1, i - 1)) : std::nullopt;
  }
  return std::nullopt;
}

/// "8,16", "(8,16)" or "[8,16]" as a JSON array of what `element` makes of the entries.
template <class Element>
std::string json_list(std::string_view text, const Element& element) {
  const std::string_view inside = enclosed(text).value_or(text);
  std::string list;
  if (!trim(inside).empty()) {
    for (const std::string& part : split(inside, ',')) {
      list += (list.empty() ? "" : ",") + element(part);
    }
  }
  return '[' + list + ']';
}

/// "(1,0),-1", also as a whole in parentheses or brackets, as the JSON array of a map with one
/// entry per tensor dimension. "(1,0)" is the map of two dimensions, unless the tensor has one.
template <class Element>
std::string json_map(std::string_view text, std::size_t tensor_rank, const Element& element) {
  const auto entry = [&](std::string_view part) {
    return enclosed(part) ? json_list(part, element) : element(part);
  };
  const auto inside = enclosed(text);
  if (inside && tensor_rank == 1 && split(*inside, ',').size() > 1) return '[' + entry(text) + ']';
  return json_list(text, entry);
}

/// An axis by name, or by index where no axis of the mesh has such a name.
std::string json_axis(const std::string& text, const std::vector<std::string>& names) {
  const bool named = std::find(names.begin(), names.end(), text) != names.end();
  return named ? json_quote(text) : json_integer(text);
}

/// An option that asks a question, and the options that say more about it.
struct Question {
  const char* option;
  std::string members;                ///< JSON members of the request, "op" included
  std::vector<std::string> needs;     ///< options that must be given
  std::vector<std::string> may_have;  ///< options that may be given
};

/// `names` are the axis names of --mesh.
std::vector<Question> questions(const MeshOptions& options, const std::vector<std::string>& names) {
  std::vector<Question> asked;
  const auto list = [](const MeshOptions::Text& text) {
    return text ? json_list(*text, json_integer) : std::string("null");
  };
  if (options.info) asked.push_back({"--info", R"("op":"info")", {}, {}});
  if (options.coordinates) asked.push_back({"--coordinates", R"("op":"coordinates")", {}, {}});
  if (options.slice) {
    const std::string axes = options.slice->empty() ? "[]" : json_strings(*options.slice);
    asked.push_back({"--slice", R"("op":"slice","axes":)" + axes, {}, {}});
  }
  const auto ask_axis = [&](const char* option, const char* op, const MeshOptions::Text& axis) {
    if (!axis) return;
    asked.push_back(
        {option, std::string(R"("op":")") + op + R"(","axis":)" + json_axis(*axis, names), {}, {}});
  };
  ask_axis("--group", "group", options.group);
  ask_axis("--groups", "groups", options.groups);
  ask_axis("--local-rank", "local_rank", options.local_rank);
  if (options.flatten) {
    const std::string axes = options.flatten->empty() ? "[]" : json_strings(*options.flatten);
    const std::string name = options.name ? R"(,"name":)" + json_quote(*options.name) : "";
    asked.push_back({"--flatten", R"("op":"flatten","axes":)" + axes + name, {}, {"--name"}});
  }
  if (options.unflatten) {
    Question question{"--unflatten",
                      R"("op":"unflatten","axis":)" + json_axis(*options.unflatten, names) +
                          R"(,"sizes":)" + list(options.sizes),
                      {"--sizes"},
                      {"--names"}};
    if (options.names) question.members += R"(,"names":)" + json_strings(*options.names);
    if (!names.empty()) question.needs.emplace_back("--names");
    asked.push_back(std::move(question));
  }
  if (options.concatenate) {
    std::string meshes;
    for (const std::string& mesh : split(*options.concatenate, ';')) {
      meshes += (meshes.empty() ? "" : ",") + json_strings(mesh);
    }
    asked.push_back({"--concatenate", R"("op":"concatenate","meshes":[)" + meshes + "]", {}, {}});
  }
  const MeshOptions::Text& shape = options.global_shape ? options.global_shape : options.shape;
  const std::size_t tensor_rank = shape ? split(enclosed(*shape).value_or(*shape), ',').size() : 0;
  const std::string map =
      options.tensor_map ? json_map(*options.tensor_map, tensor_rank, json_integer) : "null";
  if (options.global_shape) {
    asked.push_back({"--global-shape",
                     R"("op":"global_shape","local_shape":)" + list(options.global_shape) +
                         R"(,"tensor_map":)" + map,
                     {"--tensor-map"},
                     {}});
  }
  const auto ask_layout = [&](const char* option, const char* form, const std::string& layout) {
    asked.push_back(
        {option,
         R"("op":"layout","shape":)" + list(options.shape) + ",\"" + form + "\":" + layout,
         {"--shape"},
         {}});
  };
  if (options.layout) {
    ask_layout(
        "--layout", "placements", options.layout->empty() ? "[]" : json_strings(*options.layout));
  }
  if (options.tensor_map && !options.global_shape) ask_layout("--tensor-map", "tensor_map", map);
  if (options.alias_map) {
    ask_layout("--alias-map", "alias_map", json_map(*options.alias_map, tensor_rank, json_quote));
  }
  return asked;
}

/// The one question that is asked, --info by default, with all that it needs and nothing else.
Result<Question> only_question(const MeshOptions& options, const std::vector<std::string>& names) {
  std::vector<Question> asked = questions(options, names);
  if (asked.empty()) asked.push_back({"--info", R"("op":"info")", {}, {}});
  if (asked.size() > 1) {
    return usage(asked[1].option, std::string("cannot be combined with ") + asked[0].option);
  }
  Question& question = asked.front();
  const std::array<std::pair<const char*, bool>, 5> extras = {{
      {"--name", options.name.has_value()},
      {"--sizes", options.sizes.has_value()},
      {"--names", options.names.has_value()},
      {"--shape", options.shape.has_value()},
      {"--tensor-map", options.tensor_map && options.global_shape},
  }};
  for (const auto& [extra, is_given] : extras) {
    const auto has = [name = extra](const std::vector<std::string>& list) {
      return std::find(list.begin(), list.end(), name) != list.end();
    };
    if (!is_given && has(question.needs)) {
      return usage(question.option, std::string("needs ") + extra + " as well");
    }
    if (is_given && !has(question.needs) && !has(question.may_have)) {
      return usage(extra, std::string("says nothing about ") + question.option);
    }
  }
  return std::move(question);
}

/// The option that a JSON Pointer into the request came from.
std::string option_of(std::string_view pointer, const char* question) {
  constexpr std::array<std::pair<std::string_view, const char*>, 8> kOptions = {{
      {"/mesh/ranks", "--ranks"},
      {"/mesh", "--mesh"},
      {"/rank", "--rank"},
      {"/name", "--name"},
      {"/shape", "--shape"},
      {"/tensor_map", "--tensor-map"},
      {"/sizes", "--sizes"},
      {"/names", "--names"},
  }};
  for (const auto& [member, option] : kOptions) {
    if (!pointer.starts_with(member)) continue;
    if (pointer.size() == member.size() || pointer[member.size()] == '/') return option;
  }
  return question;
}

/// The mesh object of the request; `names` receives the axis names of --mesh.
Result<std::string> mesh_object(const MeshOptions& options, std::vector<std::string>& names) {
  if (!options.mesh && !options.ranks) {
    return usage("--mesh", "is required, e.g. --mesh dp=2,tp=4 (or --batch FILE)");
  }
  if (options.mesh) {
    Result<DeviceMesh> mesh = parse_mesh(*options.mesh, "--mesh");
    if (!mesh) return fail(mesh.error());
    names.assign(mesh->axes().begin(), mesh->axes().end());
  }
  if (options.ranks && options.ranks->empty()) {
    return usage("--ranks", "is empty; expected e.g. [[0,1],[2,3]]");
  }
  return mesh_object_text(
      {"--mesh", options.mesh.value_or(""), "--ranks", options.ranks.value_or("")});
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

/// A bar would end the cell.
std::string markdown_cell(std::string_view text) {
  std::string cell;
  for (const char letter : text) {
    if (letter == '|') cell += '\\';
    cell += letter;
  }
  return cell;
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
    for (const auto& [name, value] : rows) {
      text += "| " + name + " | " + markdown_cell(value) + " |\n";
    }
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
  if (options.batch->empty()) {
    return report({ErrorCode::kUsage, "--batch", "expected a file name or \"-\""});
  }
  Result<std::string> text = read_file(*options.batch);
  if (!text) return report(text.error());
  const std::string name = input_name(*options.batch);
  Result<std::string> answers = answer_batch(*text, name, answer_mesh_request);
  if (!answers) return report(answers.error());
  Result<void> written = write_output(common.output, *answers);
  return written ? kDone : report(written.error());
}

Result<std::string> answer_single(const MeshOptions& options) {
  std::vector<std::string> names;
  Result<std::string> mesh = mesh_object(options, names);
  if (!mesh) return mesh;
  Result<Question> asked = only_question(options, names);
  if (!asked) return fail(asked.error());
  const Question& question = *asked;
  std::string text = "{\"mesh\":" + *mesh + ',' + question.members;
  if (options.rank) text += ",\"rank\":" + json_integer(*options.rank);
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
  if (options.batch) return run_batch(options, common);
  Result<std::string> answer = answer_single(options);
  if (!answer) return report(answer.error());
  Result<void> written = write_output(common.output, print(*answer, common.format));
  return written ? kDone : report(written.error());
}

}  // namespace

RunCommand define_mesh(CLI::App& app, CommonOptions& common) {
  auto options = std::make_shared<MeshOptions>();
  std::vector<CLI::Option*> single;  // what asks a single question; --batch takes none of them
  const auto flag = [&](const char* name, bool MeshOptions::*member, const char* help) {
    single.push_back(app.add_flag(name, (*options).*member, help));
  };
  // A function, since CLI11 takes an empty text for an optional that is not given.
  const auto add_text = [&](const char* name,
                            MeshOptions::Text MeshOptions::*member,
                            const char* type,
                            const char* help) {
    const auto store = [options, member](const std::string& text) { (*options).*member = text; };
    return app.add_option_function<std::string>(name, store, help)->type_name(type);
  };
  const auto text = [&](const char* name,
                        MeshOptions::Text MeshOptions::*member,
                        const char* type,
                        const char* help) { single.push_back(add_text(name, member, type, help)); };
  using O = MeshOptions;
  text("--mesh", &O::mesh, "AXES", "Axes and sizes, outermost first: dp=2,tp=4");
  text("--ranks", &O::ranks, "LISTS", "Own ranks: [[0,1,2,3],[4,5,6,7]]");
  text("--rank", &O::rank, "R", "The rank that looks (default 0)");
  flag("--info", &O::info, "Shape, axes, ranks and hash (default)");
  flag("--coordinates", &O::coordinates, "Coordinates of the rank");
  text("--slice", &O::slice, "A,B", "Sub-mesh of these axes");
  text("--group", &O::group, "A", "Ranks along an axis (name, index, flattened name)");
  text("--groups", &O::groups, "A", "Every group along an axis");
  text("--local-rank", &O::local_rank, "A", "Index of the rank along an axis");
  text("--flatten", &O::flatten, "A,B", "One axis made of these");
  text("--name", &O::name, "N", "Name for --flatten");
  text("--unflatten", &O::unflatten, "A", "Split an axis into --sizes called --names");
  text("--sizes", &O::sizes, "2,4", "Sizes for --unflatten");
  text("--names", &O::names, "A,B", "Names for --unflatten");
  text("--concatenate", &O::concatenate, "\"A;B,C\"", "Sub-meshes side by side");
  text("--global-shape",
       &O::global_shape,
       "4,8",
       "Shape of the tensor with this local shape and --tensor-map");
  text("--layout", &O::layout, "\"S(0),R\"", "Placements of a tensor of --shape");
  text("--tensor-map", &O::tensor_map, "MAP", "The layout as tensor map: (1,0),-1");
  text("--alias-map", &O::alias_map, "MAP", "The layout as axis names: (dp,tp),None");
  text("--shape", &O::shape, "8,16", "Shape of the tensor");
  CLI::Option* batch = add_text(
      "--batch", &O::batch, "FILE", "Answer a JSON array of requests (\"-\": standard input)");
  for (CLI::Option* option : single) batch->excludes(option);
  return [options, &common] { return run_mesh(*options, common); };
}

}  // namespace meshplan

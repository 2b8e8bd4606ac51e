// SPDX-License-Identifier: Apache-2.0
// Reading and writing of the graph document; what it means is resolved in graph_resolve.cpp.
#include "graph/graph_document.h"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <type_traits>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "graph/json.h"
#include "lib/device_mesh.h"
#include "lib/nearest_name.h"
#include "lib/sha256.h"

namespace meshplan {
namespace {

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

Result<std::string> read_text(const JsonCursor& cursor) {
  const Result<std::string_view> text = cursor.as_string();
  if (!text) return fail(text.error());
  return std::string(*text);
}

/// The text under `key`, "" where it is absent.
Result<std::string> read_optional_text(const JsonCursor& object, std::string_view key) {
  const std::optional<JsonCursor> found = object.find(key);
  if (!found) return std::string();
  return read_text(*found);
}

Result<std::string> read_name(const JsonCursor& cursor) {
  Result<std::string> name = read_text(cursor);
  if (name && name->empty()) return cursor.error(ErrorCode::kValue, "a name must not be empty");
  return name;
}

Result<std::vector<std::string>> read_names(const JsonCursor& cursor) {
  if (auto ok = cursor.expect(JsonKind::kArray); !ok) return fail(ok.error());
  std::vector<std::string> names;
  names.reserve(cursor.size());
  for (std::size_t i = 0; i < cursor.size(); ++i) {
    Result<std::string> name = read_name(cursor.at(i));
    if (!name) return fail(name.error());
    names.push_back(*std::move(name));
  }
  return names;
}

/// The value named `text` among `names` (in enumerator order), or an error with the nearest name.
Result<std::size_t> read_enumerator(const JsonCursor& cursor,
                                    const char* what,
                                    std::span<const std::string> names) {
  const Result<std::string_view> text = cursor.as_string();
  if (!text) return fail(text.error());
  const auto found = std::find(names.begin(), names.end(), *text);
  if (found != names.end()) return static_cast<std::size_t>(found - names.begin());
  std::string message =
      "unknown " + std::string(what) + " " + json_quote(text->substr(0, 60)) + "; known are ";
  for (std::size_t i = 0; i < names.size(); ++i) message += (i == 0 ? "" : ", ") + names[i];
  return cursor.error(ErrorCode::kValue, message + nearest_name_hint(*text, names));
}

Result<Role> read_role(const JsonCursor& cursor) {
  static const std::array<std::string, 6> kNames = {
      "input", "parameter", "constant", "state", "loss", "activation"};
  const Result<std::size_t> found = read_enumerator(cursor, "role", kNames);
  if (!found) return fail(found.error());
  return static_cast<Role>(*found);
}

Result<DType> read_dtype(const JsonCursor& cursor) {
  const Result<std::size_t> found = read_enumerator(cursor, "dtype", dtype_names());
  if (!found) return fail(found.error());
  return static_cast<DType>(*found);
}

Result<void> read_size_option(const JsonCursor& object,
                              std::string_view key,
                              std::optional<std::int64_t>& into) {
  const std::optional<JsonCursor> found = object.find(key);
  if (!found) return {};
  const Result<std::int64_t> size = found->as_int64(1, kMost);
  if (!size) return fail(size.error());
  into = *size;
  return {};
}

Result<DimensionDocument> read_dimension(std::string_view name, const JsonCursor& cursor) {
  if (auto ok = cursor.allow_only({"size", "dynamic", "min", "max", "multiple_of"}); !ok) {
    return fail(ok.error());
  }
  DimensionDocument dimension;
  dimension.name = name;
  const Result<JsonCursor> size_cursor = cursor.get("size");
  if (!size_cursor) return fail(size_cursor.error());
  const Result<std::int64_t> size = size_cursor->as_int64(1, kMost);
  if (!size) return fail(size.error());
  dimension.size = *size;
  if (const auto found = cursor.find("dynamic")) {
    const Result<bool> dynamic = found->as_bool();
    if (!dynamic) return fail(dynamic.error());
    dimension.dynamic = *dynamic;
  }
  if (auto ok = read_size_option(cursor, "min", dimension.min); !ok) return fail(ok.error());
  if (auto ok = read_size_option(cursor, "max", dimension.max); !ok) return fail(ok.error());
  if (auto ok = read_size_option(cursor, "multiple_of", dimension.multiple_of); !ok) {
    return fail(ok.error());
  }
  const auto refuse = [&](const char* key, const std::string& relation) {
    return cursor.find(key)->error(ErrorCode::kConflict,
                                   "size " + std::to_string(dimension.size) + " is " + relation);
  };
  if (dimension.min && dimension.size < *dimension.min) return refuse("min", "below min");
  if (dimension.max && dimension.size > *dimension.max) return refuse("max", "above max");
  if (dimension.multiple_of && dimension.size % *dimension.multiple_of != 0) {
    return refuse("multiple_of", "not a multiple of " + std::to_string(*dimension.multiple_of));
  }
  return dimension;
}

Result<Size> read_size(const JsonCursor& cursor) {
  if (cursor.kind() == JsonKind::kString) {
    return Size(std::in_place_index<1>, *cursor.as_string());
  }
  if (cursor.kind() != JsonKind::kInteger) {
    return cursor.error(ErrorCode::kType,
                        "expected a size: an integer or the name of a dimension, found " +
                            std::string(json_kind_name(cursor.kind())));
  }
  const Result<std::int64_t> size = cursor.as_int64(1, kMost);
  if (!size) return fail(size.error());
  return Size(*size);
}

/// One placement per axis of `mesh`.
Result<Placements> read_placements(const JsonCursor& cursor,
                                   const std::optional<ConstraintMesh>& mesh) {
  if (auto ok = cursor.expect(JsonKind::kArray); !ok) return fail(ok.error());
  if (!mesh) {
    return cursor.error(ErrorCode::kMissing,
                        "placements refer to the mesh of the graph, and there is no \"mesh\"");
  }
  if (cursor.size() != mesh->shape.size()) {
    return cursor.error(ErrorCode::kValue,
                        "expected one placement for each of the " +
                            std::to_string(mesh->shape.size()) + " axes of the mesh, found " +
                            std::to_string(cursor.size()));
  }
  Placements placements;
  for (std::size_t i = 0; i < cursor.size(); ++i) {
    const Result<std::string_view> text = cursor.at(i).as_string();
    if (!text) return fail(text.error());
    Result<Placement> placement = parse_placement(*text);
    if (!placement) return cursor.at(i).error(placement.error().code, placement.error().message);
    placements.push_back(*placement);
  }
  return placements;
}

/// Placements of every operand or result; null, where that may be, is none.
template <class Item>
Result<void> read_placement_lists(const JsonCursor& op,
                                  std::string_view key,
                                  std::size_t count,
                                  const std::optional<ConstraintMesh>& mesh,
                                  std::vector<Item>& into) {
  const std::optional<JsonCursor> lists = op.find(key);
  if (!lists) return {};
  if (auto ok = lists->expect(JsonKind::kArray); !ok) return ok;
  if (lists->size() != count) {
    return lists->error(ErrorCode::kValue,
                        "expected the placements of " + std::to_string(count) + " tensors, found " +
                            std::to_string(lists->size()));
  }
  for (std::size_t i = 0; i < count; ++i) {
    if (std::is_same_v<Item, std::optional<Placements>> && lists->at(i).kind() == JsonKind::kNull) {
      into.emplace_back();
      continue;
    }
    Result<Placements> placements = read_placements(lists->at(i), mesh);
    if (!placements) return fail(placements.error());
    into.emplace_back(*std::move(placements));
  }
  return {};
}

Result<ConstraintMesh> read_strategy_mesh(const JsonCursor& cursor) {
  if (auto ok = cursor.allow_only({"shape", "axes"}); !ok) return fail(ok.error());
  const Result<JsonCursor> shape = cursor.get("shape");
  if (!shape) return fail(shape.error());
  const Result<JsonCursor> axes = cursor.get("axes");
  if (!axes) return fail(axes.error());
  Result<std::vector<std::int64_t>> sizes = shape->as_int64s();
  if (!sizes) return fail(sizes.error());
  Result<std::vector<std::string>> names = axes->as_strings();
  if (!names) return fail(names.error());
  if (names->size() != sizes->size()) {
    return cursor.error(ErrorCode::kValue,
                        std::to_string(sizes->size()) + " sizes, but " +
                            std::to_string(names->size()) + " axis names");
  }
  const Result<DeviceMesh> made = DeviceMesh::make(*sizes, *names);
  if (!made) {
    return fail(made.error().code, cursor.where() + made.error().where, made.error().message);
  }
  ConstraintMesh mesh;
  mesh.shape = *std::move(sizes);
  mesh.axes = *std::move(names);
  return mesh;
}

Result<TensorDocument> read_tensor(std::string_view name,
                                   const JsonCursor& cursor,
                                   const std::optional<ConstraintMesh>& mesh) {
  if (auto ok = cursor.allow_only({"shape", "dtype", "role", "trainable", "placements"}); !ok) {
    return fail(ok.error());
  }
  TensorDocument tensor;
  tensor.name = name;
  if (name.empty()) return cursor.error(ErrorCode::kValue, "a tensor's name must not be empty");
  if (const auto shape = cursor.find("shape")) {
    if (auto ok = shape->expect(JsonKind::kArray); !ok) return fail(ok.error());
    tensor.shape.emplace();
    for (std::size_t i = 0; i < shape->size(); ++i) {
      Result<Size> size = read_size(shape->at(i));
      if (!size) return fail(size.error());
      tensor.shape->push_back(*std::move(size));
    }
  }
  if (const auto found = cursor.find("dtype")) {
    const Result<DType> dtype = read_dtype(*found);
    if (!dtype) return fail(dtype.error());
    tensor.dtype = *dtype;
  }
  if (const auto found = cursor.find("role")) {
    const Result<Role> role = read_role(*found);
    if (!role) return fail(role.error());
    tensor.role = *role;
  }
  if (const auto found = cursor.find("trainable")) {
    const Result<bool> trainable = found->as_bool();
    if (!trainable) return fail(trainable.error());
    if (tensor.role != Role::kParameter) {
      return found->error(ErrorCode::kConflict,
                          "only a tensor of role \"parameter\" can be trainable or not; this one's "
                          "role is \"" +
                              std::string(role_name(tensor.role)) + "\"");
    }
    tensor.trainable = *trainable;
  }
  if (const auto found = cursor.find("placements")) {
    if (tensor.role != Role::kParameter) {
      return found->error(ErrorCode::kConflict,
                          "only parameters rest between steps; the placements of other tensors are "
                          "those of the operators");
    }
    Result<Placements> placements = read_placements(*found, mesh);
    if (!placements) return fail(placements.error());
    tensor.placements = *std::move(placements);
  }
  return tensor;
}

Result<AttributeDocument> read_attribute_list(const JsonCursor& cursor) {
  bool reals = false;
  bool texts = false;
  for (std::size_t i = 0; i < cursor.size(); ++i) {
    const JsonKind kind = cursor.at(i).kind();
    reals = reals || kind == JsonKind::kNumber;
    texts = texts || kind == JsonKind::kString;
    if (kind != JsonKind::kInteger && kind != JsonKind::kNumber && kind != JsonKind::kString) {
      return cursor.at(i).error(ErrorCode::kType,
                                "a list in an attribute holds numbers or texts, found " +
                                    std::string(json_kind_name(kind)));
    }
  }
  if (reals && texts) {
    return cursor.error(ErrorCode::kType, "a list holds either fractions or texts, not both");
  }
  if (reals) {
    std::vector<double> numbers;
    for (std::size_t i = 0; i < cursor.size(); ++i) numbers.push_back(*cursor.at(i).as_double());
    return AttributeDocument(std::move(numbers));
  }
  std::vector<Size> sizes;
  for (std::size_t i = 0; i < cursor.size(); ++i) {
    const JsonCursor element = cursor.at(i);
    if (element.kind() == JsonKind::kString) {
      sizes.emplace_back(std::in_place_index<1>, *element.as_string());
      continue;
    }
    const Result<std::int64_t> number = element.as_int64();
    if (!number) return fail(number.error());
    sizes.emplace_back(*number);
  }
  return AttributeDocument(std::move(sizes));
}

Result<AttributeDocument> read_attribute(const JsonCursor& cursor) {
  switch (cursor.kind()) {
    case JsonKind::kBool:
      return AttributeDocument(std::int64_t{*cursor.as_bool() ? 1 : 0});
    case JsonKind::kInteger: {
      const Result<std::int64_t> number = cursor.as_int64();
      if (!number) return fail(number.error());
      return AttributeDocument(*number);
    }
    case JsonKind::kNumber:
      return AttributeDocument(*cursor.as_double());
    case JsonKind::kString:
      return AttributeDocument(std::string(*cursor.as_string()));
    case JsonKind::kArray:
      return read_attribute_list(cursor);
    case JsonKind::kNull:
    case JsonKind::kObject:
      break;
  }
  return cursor.error(ErrorCode::kType,
                      "an attribute is a number, a text, true or false, or a list, found " +
                          std::string(json_kind_name(cursor.kind())));
}

Result<OperatorDocument> read_operator(const JsonCursor& cursor,
                                       const std::optional<ConstraintMesh>& mesh) {
  if (auto ok = cursor.allow_only({"name",
                                   "type",
                                   "inputs",
                                   "outputs",
                                   "attributes",
                                   "scope",
                                   "rule",
                                   "flops",
                                   "in_placements",
                                   "out_placements"});
      !ok) {
    return fail(ok.error());
  }
  OperatorDocument op;
  for (const auto& [key, into] : {std::pair{"name", &op.name}, std::pair{"type", &op.type}}) {
    const Result<JsonCursor> found = cursor.get(key);
    if (!found) return fail(found.error());
    Result<std::string> text = read_name(*found);
    if (!text) return fail(text.error());
    *into = *std::move(text);
  }
  for (const auto& [key, into] : {std::pair{"scope", &op.scope},
                                  std::pair{"rule", &op.rule},
                                  std::pair{"flops", &op.flops}}) {
    Result<std::string> text = read_optional_text(cursor, key);
    if (!text) return fail(text.error());
    *into = *std::move(text);
  }
  if (const auto found = cursor.find("inputs")) {
    Result<std::vector<std::string>> inputs = found->as_strings();
    if (!inputs) return fail(inputs.error());
    op.inputs = *std::move(inputs);
  }
  const Result<JsonCursor> outputs_cursor = cursor.get("outputs");
  if (!outputs_cursor) return fail(outputs_cursor.error());
  Result<std::vector<std::string>> outputs = read_names(*outputs_cursor);
  if (!outputs) return fail(outputs.error());
  if (outputs->empty()) {
    return outputs_cursor->error(ErrorCode::kValue, "an operator makes at least one tensor");
  }
  op.outputs = *std::move(outputs);
  if (const auto found = cursor.find("attributes")) {
    if (auto ok = found->expect(JsonKind::kObject); !ok) return fail(ok.error());
    for (std::size_t i = 0; i < found->size(); ++i) {
      Result<AttributeDocument> attribute = read_attribute(found->at(i));
      if (!attribute) return fail(attribute.error());
      op.attributes.emplace(found->key_at(i), *std::move(attribute));
    }
  }
  if (auto ok =
          read_placement_lists(cursor, "in_placements", op.inputs.size(), mesh, op.in_placements);
      !ok) {
    return fail(ok.error());
  }
  if (auto ok = read_placement_lists(
          cursor, "out_placements", op.outputs.size(), mesh, op.out_placements);
      !ok) {
    return fail(ok.error());
  }
  return op;
}

Result<OperatorTypeDocument> read_operator_type(std::string_view name, const JsonCursor& cursor) {
  if (auto ok = cursor.allow_only({"rule", "flops"}); !ok) return fail(ok.error());
  OperatorTypeDocument type;
  type.name = name;
  if (name.empty()) return cursor.error(ErrorCode::kValue, "a type's name must not be empty");
  const Result<JsonCursor> rule_cursor = cursor.get("rule");
  if (!rule_cursor) return fail(rule_cursor.error());
  Result<std::string> rule = read_name(*rule_cursor);
  if (!rule) return fail(rule.error());
  type.rule = *std::move(rule);
  Result<std::string> flops = read_optional_text(cursor, "flops");
  if (!flops) return fail(flops.error());
  type.flops = *std::move(flops);
  return type;
}

/// Reads the object under `key` (absent: nothing) member by member.
template <class Item, class Read>
Result<void> read_members(const JsonCursor& root,
                          std::string_view key,
                          std::vector<Item>& into,
                          Read read) {
  const std::optional<JsonCursor> object = root.find(key);
  if (!object) return {};
  if (auto ok = object->expect(JsonKind::kObject); !ok) return ok;
  into.reserve(object->size());
  for (std::size_t i = 0; i < object->size(); ++i) {
    Result<Item> item = read(object->key_at(i), object->at(i));
    if (!item) return fail(item.error());
    into.push_back(*std::move(item));
  }
  return {};
}

}  // namespace

Result<GraphDocument> read_graph_document(std::string_view text, const std::string& file) {
  const Result<JsonDocument> json = JsonDocument::parse(text, file);
  if (!json) return fail(json.error());
  const JsonCursor root = json->root();
  if (auto ok = check_schema(root, "meshplan.graph", 1, 0); !ok) return fail(ok.error());
  if (auto ok = root.allow_only({"schema",
                                 "name",
                                 "dimensions",
                                 "tensors",
                                 "operators",
                                 "operator_types",
                                 "outputs",
                                 "mesh"});
      !ok) {
    return fail(ok.error());
  }
  GraphDocument document;
  document.file = file;
  Result<std::string> name = read_optional_text(root, "name");
  if (!name) return fail(name.error());
  document.name = *std::move(name);
  if (auto ok = read_members(root, "dimensions", document.dimensions, read_dimension); !ok) {
    return fail(ok.error());
  }
  if (const auto mesh = root.find("mesh")) {
    Result<ConstraintMesh> read = read_strategy_mesh(*mesh);
    if (!read) return fail(read.error());
    document.mesh = *std::move(read);
  }
  const auto read_one_tensor = [&](std::string_view tensor, const JsonCursor& cursor) {
    return read_tensor(tensor, cursor, document.mesh);
  };
  if (auto ok = read_members(root, "tensors", document.tensors, read_one_tensor); !ok) {
    return fail(ok.error());
  }
  if (auto ok = read_members(root, "operator_types", document.operator_types, read_operator_type);
      !ok) {
    return fail(ok.error());
  }
  const Result<JsonCursor> operators = root.get("operators");
  if (!operators) return fail(operators.error());
  if (auto ok = operators->expect(JsonKind::kArray); !ok) return fail(ok.error());
  document.operators.reserve(operators->size());
  for (std::size_t i = 0; i < operators->size(); ++i) {
    Result<OperatorDocument> op = read_operator(operators->at(i), document.mesh);
    if (!op) return fail(op.error());
    document.operators.push_back(*std::move(op));
  }
  if (const auto outputs_cursor = root.find("outputs")) {
    Result<std::vector<std::string>> outputs = read_names(*outputs_cursor);
    if (!outputs) return fail(outputs.error());
    document.outputs = *std::move(outputs);
  }
  return document;
}

namespace {

void write_size(JsonWriter& writer, const Size& size) {
  std::visit([&](const auto& value) { writer.value(value); }, size);
}

void write_attribute(JsonWriter& writer, const AttributeDocument& attribute) {
  struct Visitor {
    JsonWriter& writer;
    void operator()(std::int64_t number) const { writer.value(number); }
    void operator()(double number) const { writer.value(number); }
    void operator()(const std::string& text) const { writer.value(text); }
    void operator()(const std::vector<double>& numbers) const { writer.array(numbers); }
    void operator()(const std::vector<Size>& sizes) const {
      writer.begin_array(JsonWriter::kOneLine);
      for (const Size& size : sizes) write_size(writer, size);
      writer.end_array();
    }
  };
  std::visit(Visitor{writer}, attribute);
}

void write_item(JsonWriter& writer, const DimensionDocument& dimension) {
  writer.key(dimension.name);
  writer.begin_object(JsonWriter::kOneLine);
  writer.member("size", dimension.size);
  if (dimension.dynamic) writer.member("dynamic", true);
  if (dimension.min) writer.member("min", *dimension.min);
  if (dimension.max) writer.member("max", *dimension.max);
  if (dimension.multiple_of) writer.member("multiple_of", *dimension.multiple_of);
  writer.end_object();
}

void write_placements(JsonWriter& writer, const Placements& placements) {
  writer.begin_array(JsonWriter::kOneLine);
  for (const Placement& placement : placements) writer.value(to_string(placement));
  writer.end_array();
}

void write_item(JsonWriter& writer, const TensorDocument& tensor) {
  writer.key(tensor.name);
  writer.begin_object(JsonWriter::kOneLine);
  if (tensor.shape) {
    writer.key("shape");
    writer.begin_array();
    for (const Size& size : *tensor.shape) write_size(writer, size);
    writer.end_array();
  }
  if (tensor.dtype) writer.member("dtype", dtype_name(*tensor.dtype));
  if (tensor.role != Role::kActivation) writer.member("role", role_name(tensor.role));
  if (tensor.role == Role::kParameter && !tensor.trainable) writer.member("trainable", false);
  if (!tensor.placements.empty()) {
    writer.key("placements");
    write_placements(writer, tensor.placements);
  }
  writer.end_object();
}

void write_item(JsonWriter& writer, const OperatorTypeDocument& type) {
  writer.key(type.name);
  writer.begin_object(JsonWriter::kOneLine);
  writer.member("rule", type.rule);
  if (!type.flops.empty()) writer.member("flops", type.flops);
  writer.end_object();
}

void write_item(JsonWriter& writer, const OperatorDocument& op) {
  writer.begin_object(JsonWriter::kOneLine);
  writer.member("name", op.name);
  writer.member("type", op.type);
  writer.key("inputs");
  writer.array(op.inputs);
  writer.key("outputs");
  writer.array(op.outputs);
  if (!op.attributes.empty()) {
    writer.key("attributes");
    writer.begin_object();
    for (const auto& [name, attribute] : op.attributes) {
      writer.key(name);
      write_attribute(writer, attribute);
    }
    writer.end_object();
  }
  if (!op.scope.empty()) writer.member("scope", op.scope);
  if (!op.rule.empty()) writer.member("rule", op.rule);
  if (!op.flops.empty()) writer.member("flops", op.flops);
  if (!op.in_placements.empty()) {
    writer.key("in_placements");
    writer.begin_array();
    for (const auto& placements : op.in_placements) {
      if (placements) {
        write_placements(writer, *placements);
      } else {
        writer.null();
      }
    }
    writer.end_array();
  }
  if (!op.out_placements.empty()) {
    writer.key("out_placements");
    writer.begin_array();
    for (const Placements& placements : op.out_placements) write_placements(writer, placements);
    writer.end_array();
  }
  writer.end_object();
}

/// The items in their own order, or by name.
template <class Item>
void write_items(JsonWriter& writer, const std::vector<Item>& items, bool by_name) {
  std::vector<std::size_t> order(items.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  if (by_name) {
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return items[a].name < items[b].name;
    });
  }
  for (const std::size_t i : order) write_item(writer, items[i]);
}

void write(JsonWriter& writer, const GraphDocument& document, bool canonical) {
  writer.begin_object();
  writer.member("schema", "meshplan.graph/1.0");
  writer.member("name", document.name);
  if (!document.dimensions.empty()) {
    writer.key("dimensions");
    writer.begin_object();
    write_items(writer, document.dimensions, canonical);
    writer.end_object();
  }
  if (!document.operator_types.empty()) {
    writer.key("operator_types");
    writer.begin_object();
    write_items(writer, document.operator_types, canonical);
    writer.end_object();
  }
  writer.key("tensors");
  writer.begin_object();
  write_items(writer, document.tensors, canonical);
  writer.end_object();
  writer.key("operators");
  writer.begin_array();
  write_items(writer, document.operators, canonical);
  writer.end_array();
  if (document.outputs) {
    writer.key("outputs");
    writer.array(*document.outputs);
  }
  if (document.mesh) {
    writer.key("mesh");
    writer.begin_object(JsonWriter::kOneLine);
    writer.key("shape");
    writer.array(document.mesh->shape);
    writer.key("axes");
    writer.array(document.mesh->axes);
    writer.end_object();
  }
  writer.end_object();
}

bool is_redistribution(const OperatorDocument& op) { return op.type == kRedistributeType; }

/// What the document computes, without what a plan wrote into it.
GraphDocument without_strategies(const GraphDocument& document) {
  GraphDocument plain = document;
  if (auto moved = without_redistributions(document)) plain = std::move(moved->document);
  plain.mesh.reset();
  for (TensorDocument& tensor : plain.tensors) tensor.placements.clear();
  for (OperatorDocument& op : plain.operators) {
    op.in_placements.clear();
    op.out_placements.clear();
  }
  return plain;
}

}  // namespace

Result<PlainGraphDocument> without_redistributions(const GraphDocument& document) {
  std::unordered_map<std::string_view, std::uint32_t> made_by;  // results of redistributions
  const auto place = [&](std::size_t op, const std::string& below) {
    return document.file + ": /operators/" + std::to_string(op) + below;
  };
  for (std::uint32_t o = 0; o < document.operators.size(); ++o) {
    const OperatorDocument& op = document.operators[o];
    if (!is_redistribution(op)) continue;
    if (op.inputs.size() != 1 || op.inputs[0].empty() || op.outputs.size() != 1) {
      return fail(ErrorCode::kConflict,
                  place(o, ""),
                  "a Redistribute operator has one input and one output");
    }
    if (!op.rule.empty()) {
      return fail(
          ErrorCode::kConflict,
          place(o, "/rule"),
          "a Redistribute operator moves a tensor and has no rule; a type of your own needs "
          "another name");
    }
    if (!made_by.emplace(op.outputs[0], o).second) {
      return fail(ErrorCode::kDuplicate,
                  place(o, "/outputs/0"),
                  "tensor " + json_quote(op.outputs[0]) + " is made twice");
    }
  }
  for (const TensorDocument& tensor : document.tensors) {
    if (const auto found = made_by.find(tensor.name); found != made_by.end()) {
      return fail(ErrorCode::kConflict,
                  place(found->second, "/outputs/0"),
                  "tensor " + json_quote(tensor.name) +
                      " is what it moves and has no entry under \"tensors\"");
    }
  }
  PlainGraphDocument plain;
  plain.document = document;
  plain.document.operators.clear();
  for (std::uint32_t o = 0; o < document.operators.size(); ++o) {
    const OperatorDocument& op = document.operators[o];
    for (std::size_t i = 0; i < op.outputs.size() && !is_redistribution(op); ++i) {
      if (!made_by.contains(op.outputs[i])) continue;
      return fail(ErrorCode::kDuplicate,
                  place(o, "/outputs/" + std::to_string(i)),
                  "tensor " + json_quote(op.outputs[i]) + " is made twice");
    }
  }
  std::unordered_map<std::string_view, std::string_view> moved;  // result -> what it is of
  for (const auto& [result, first] : made_by) {
    std::string_view from = document.operators[first].inputs[0];
    for (std::size_t steps = 0; made_by.contains(from); ++steps) {
      if (steps > made_by.size()) {
        return fail(ErrorCode::kValue, place(first, ""), "redistributions stand in a circle");
      }
      from = document.operators[made_by.at(from)].inputs[0];
    }
    moved.emplace(result, from);
  }
  const auto rename = [&](std::string& name) {
    if (const auto found = moved.find(name); found != moved.end()) name = found->second;
  };
  for (std::uint32_t o = 0; o < document.operators.size(); ++o) {
    if (is_redistribution(document.operators[o])) continue;
    plain.document.operators.push_back(document.operators[o]);
    for (std::string& input : plain.document.operators.back().inputs) rename(input);
    plain.places.push_back(o);
  }
  if (plain.document.outputs) {
    for (std::string& output : *plain.document.outputs) rename(output);
  }
  return plain;
}

std::optional<Constraints> document_constraints(const GraphDocument& document, const Graph& graph) {
  if (!document.mesh) return std::nullopt;
  Constraints constraints;
  constraints.file = document.file;
  constraints.mesh = document.mesh;
  const auto pattern = [](const Placements& placements) {
    return PlacementPattern(placements.begin(), placements.end());
  };
  std::unordered_set<std::string_view> known;
  for (const Operator& op : graph.operators) known.insert(op.name);
  for (std::size_t o = 0; o < document.operators.size(); ++o) {
    const OperatorDocument& op = document.operators[o];
    if (is_redistribution(op) || !known.contains(op.name)) continue;
    if (op.in_placements.empty() && op.out_placements.empty()) continue;
    OperatorConstraint made;
    made.op = op.name;
    made.where = document.file + ": /operators/" + std::to_string(o);
    if (!op.in_placements.empty()) {
      made.in_placements.emplace();
      for (const auto& placements : op.in_placements) {
        made.in_placements->emplace_back();
        if (placements) made.in_placements->back() = pattern(*placements);
      }
    }
    if (!op.out_placements.empty()) {
      made.out_placements.emplace();
      for (const Placements& placements : op.out_placements)
        made.out_placements->emplace_back(pattern(placements));
    }
    constraints.operators.push_back(std::move(made));
  }
  known.clear();
  for (const Tensor& tensor : graph.tensors) known.insert(tensor.name);
  for (const TensorDocument& tensor : document.tensors) {
    if (tensor.placements.empty() || !known.contains(tensor.name)) continue;
    TensorConstraint made;
    made.tensor = tensor.name;
    made.layout = pattern(tensor.placements);
    made.where = document.file + ": /tensors/" + json_pointer_part(tensor.name);
    constraints.tensors.push_back(std::move(made));
  }
  if (constraints.empty()) return std::nullopt;
  return constraints;
}

std::string write_graph_document(const GraphDocument& document) {
  JsonWriter writer(2);
  write(writer, document, false);
  return std::move(writer).text();
}

std::string fingerprint(const GraphDocument& document) {
  JsonWriter writer(0);
  const bool planned =
      document.mesh ||
      std::any_of(document.operators.begin(), document.operators.end(), is_redistribution);
  if (planned) {
    write(writer, without_strategies(document), true);
  } else {
    write(writer, document, true);
  }
  return "sha256:" + sha256_hex(std::move(writer).text());
}

}  // namespace meshplan

// SPDX-License-Identifier: Apache-2.0
#include "apps/constraints_reader.h"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "apps/command.h"
#include "apps/field_reader.h"
#include "graph/json.h"
#include "lib/nearest_name.h"

namespace meshplan {
namespace {

std::string quote(std::string_view name) { return "\"" + std::string(name) + "\""; }

bool is_star(const JsonCursor& cursor) {
  const Result<std::string_view> text = cursor.as_string();
  return text && *text == "*";
}

class Reader {
 public:
  Reader(const JsonCursor& root, const std::string& file) : root_(root) {
    constraints_.file = file;
  }

  Result<Constraints> read() {
    if (auto ok = root_.expect(JsonKind::kObject); !ok) return fail(ok.error());
    if (auto ok = check_schema(root_, "meshplan.constraints", 1, 0); !ok) return fail(ok.error());
    if (auto ok = root_.allow_only({"schema", "mesh", "tensors", "operators", "scopes"}); !ok) {
      return fail(ok.error());
    }
    if (const auto mesh = root_.find("mesh")) {
      if (auto ok = read_mesh(*mesh); !ok) return fail(ok.error());
    }
    if (auto ok = each_member("tensors", &Reader::read_tensor); !ok) return fail(ok.error());
    if (auto ok = each_member("operators", &Reader::read_operator); !ok) return fail(ok.error());
    if (auto ok = each_member("scopes", &Reader::read_scope); !ok) return fail(ok.error());
    return std::move(constraints_);
  }

 private:
  Result<void> each_member(std::string_view key,
                           Result<void> (Reader::*read_one)(const std::string&,
                                                            const JsonCursor&)) {
    const auto members = root_.find(key);
    if (!members) return {};
    if (auto ok = members->expect(JsonKind::kObject); !ok) return ok;
    for (std::size_t i = 0; i < members->size(); ++i) {
      if (auto ok = (this->*read_one)(std::string(members->key_at(i)), members->at(i)); !ok)
        return ok;
    }
    return {};
  }

  // --------------------------------------------------------------------------------------- mesh

  Result<void> read_mesh(const JsonCursor& cursor) {
    FieldReader fields(cursor, {"shape", "axes", "flatten"});
    ConstraintMesh mesh;
    if (const auto shape = fields.require("shape")) mesh.shape = fields.keep(shape->as_int64s());
    if (const auto axes = fields.require("axes")) mesh.axes = fields.keep(axes->as_strings());
    if (!fields.ok()) return fields.failure();
    if (mesh.axes.size() != mesh.shape.size()) {
      return cursor.error(ErrorCode::kValue,
                          std::to_string(mesh.shape.size()) + " sizes, but " +
                              std::to_string(mesh.axes.size()) + " axis names");
    }
    const Result<DeviceMesh> made = DeviceMesh::make(mesh.shape, mesh.axes);
    if (!made) {
      return fail(made.error().code, cursor.where() + made.error().where, made.error().message);
    }
    if (const auto flatten = fields.find("flatten")) {
      if (auto ok = read_flatten(*flatten, mesh); !ok) return ok;
    }
    constraints_.mesh = std::move(mesh);
    return {};
  }

  Result<void> read_flatten(const JsonCursor& cursor, ConstraintMesh& mesh) {
    if (auto ok = cursor.expect(JsonKind::kObject); !ok) return ok;
    for (std::size_t i = 0; i < cursor.size(); ++i) {
      const JsonCursor value = cursor.at(i);
      const std::string name(cursor.key_at(i));
      if (name.empty() || std::find(mesh.axes.begin(), mesh.axes.end(), name) != mesh.axes.end()) {
        return value.error(ErrorCode::kConflict,
                           quote(name) + " is not free as a name of flattened axes");
      }
      Result<std::vector<std::string>> parts = value.as_strings();
      if (!parts) return fail(parts.error());
      if (parts->empty()) return value.error(ErrorCode::kValue, "expected at least one axis");
      auto from = mesh.axes.begin();
      for (std::size_t k = 0; k < parts->size(); ++k) {
        const std::string& part = (*parts)[k];
        const auto found = std::find(mesh.axes.begin(), mesh.axes.end(), part);
        if (found == mesh.axes.end()) {
          return value.at(k).error(
              ErrorCode::kUnknownAxis,
              "the mesh has no axis " + quote(part) + nearest_name_hint(part, mesh.axes));
        }
        if (found < from) {
          return value.error(ErrorCode::kOrder, "expected different axes in the order of the mesh");
        }
        from = found + 1;
      }
      mesh.flatten.emplace(name, std::move(*parts));
    }
    return {};
  }

  // ------------------------------------------------------------------------------------ layouts

  Result<PlacementPattern> read_pattern(const JsonCursor& cursor) const {
    const Result<std::vector<JsonCursor>> items = cursor.as_array();
    if (!items) return fail(items.error());
    if (!constraints_.mesh) {
      return cursor.error(
          ErrorCode::kMissing,
          "placements need a \"mesh\" in the same file; without one use \"dims\" with axis "
          "names, or \"in_strategy\"");
    }
    if (items->size() != constraints_.mesh->axes.size()) {
      return cursor.error(ErrorCode::kValue,
                          "expected one placement for each of the " +
                              std::to_string(constraints_.mesh->axes.size()) +
                              " mesh axes, found " + std::to_string(items->size()));
    }
    PlacementPattern pattern;
    for (const JsonCursor& item : *items) {
      const Result<std::string_view> text = item.as_string();
      if (!text) return fail(text.error());
      if (*text == "*") {
        pattern.emplace_back(std::nullopt);
        continue;
      }
      Result<Placement> placement = parse_placement(*text);
      if (!placement)
        return item.error(placement.error().code, placement.error().message + ", or \"*\"");
      pattern.emplace_back(std::move(*placement));
    }
    return pattern;
  }

  /// A list with an entry for every operand, or "*" for one without constraint.
  Result<std::vector<std::optional<PlacementPattern>>> read_operands(
      const JsonCursor& cursor) const {
    const Result<std::vector<JsonCursor>> items = cursor.as_array();
    if (!items) return fail(items.error());
    std::vector<std::optional<PlacementPattern>> operands;
    for (const JsonCursor& item : *items) {
      operands.emplace_back();
      if (is_star(item)) continue;
      Result<PlacementPattern> pattern = read_pattern(item);
      if (!pattern) return fail(pattern.error());
      operands.back() = std::move(*pattern);
    }
    return operands;
  }

  /// The mesh axes behind a name; all names are accepted where no mesh is declared.
  Result<std::vector<std::string>> axes_named(const JsonCursor& cursor,
                                              const std::string& name) const {
    if (!constraints_.mesh) return std::vector<std::string>{name};
    const ConstraintMesh& mesh = *constraints_.mesh;
    if (const auto found = mesh.flatten.find(name); found != mesh.flatten.end())
      return found->second;
    const Result<DeviceMesh> made = DeviceMesh::make(mesh.shape, mesh.axes);
    const Result<AxisSet> set = made->axis_set(name);
    if (!set) {
      std::vector<std::string> known = mesh.axes;
      for (const auto& [flattened, parts] : mesh.flatten) known.push_back(flattened);
      return cursor.error(ErrorCode::kUnknownAxis,
                          "the mesh has no axis " + quote(name) + nearest_name_hint(name, known));
    }
    std::vector<std::string> axes;
    for (std::size_t axis = 0; axis < mesh.axes.size(); ++axis) {
      if ((*set >> axis & 1U) != 0) axes.push_back(mesh.axes[axis]);
    }
    return axes;
  }

  /// "open", or a list of axes that may end in "open".
  Result<DimensionConstraint> read_dimension(const JsonCursor& cursor,
                                             std::set<std::string>& used) const {
    DimensionConstraint dim;
    if (cursor.kind() == JsonKind::kString) {
      if (*cursor.as_string() != "open") {
        return cursor.error(ErrorCode::kValue,
                            "expected \"open\" or a list of mesh axes, e.g. [\"dp\"]");
      }
      dim.open = true;
      return dim;
    }
    const Result<std::vector<JsonCursor>> items = cursor.as_array();
    if (!items) return fail(items.error());
    for (const JsonCursor& item : *items) {
      const Result<std::string_view> name = item.as_string();
      if (!name) return fail(name.error());
      if (dim.open)
        return item.error(ErrorCode::kOrder, "\"open\" is the last entry of a dimension");
      if (*name == "open") {
        dim.open = true;
        continue;
      }
      const Result<std::vector<std::string>> axes = axes_named(item, std::string(*name));
      if (!axes) return fail(axes.error());
      for (const std::string& axis : *axes) {
        if (!used.insert(axis).second) {
          return item.error(ErrorCode::kConflict,
                            "mesh axis " + quote(axis) + " is used twice in one tensor");
        }
      }
      dim.axes.emplace_back(*name);
    }
    return dim;
  }

  // ------------------------------------------------------------------------------------ members

  Result<void> read_tensor(const std::string& name, const JsonCursor& cursor) {
    FieldReader fields(cursor, {"placements", "dims", "priority"});
    TensorConstraint tensor;
    tensor.tensor = name;
    tensor.where = cursor.where();
    if (const auto at = fields.find("priority")) {
      tensor.priority = fields.keep(at->as_int64(0, std::numeric_limits<std::int32_t>::max()));
    }
    const auto placements = fields.find("placements");
    const auto dims = fields.find("dims");
    if (!fields.ok()) return fields.failure();
    if (placements.has_value() == dims.has_value()) {
      return cursor.error(placements ? ErrorCode::kConflict : ErrorCode::kMissing,
                          "expected either \"placements\" or \"dims\"");
    }
    if (placements) {
      tensor.layout = fields.keep(read_pattern(*placements));
    } else {
      std::vector<DimensionConstraint> layout;
      std::set<std::string> used;
      const auto items = fields.keep(dims->as_array());
      for (const JsonCursor& item : items)
        layout.push_back(fields.keep(read_dimension(item, used)));
      tensor.layout = std::move(layout);
    }
    if (!fields.ok()) return fields.failure();
    constraints_.tensors.push_back(std::move(tensor));
    return {};
  }

  Result<void> read_operator(const std::string& name, const JsonCursor& cursor) {
    FieldReader fields(cursor, {"in_strategy", "in_placements", "out_placements"});
    OperatorConstraint op;
    op.op = name;
    op.where = cursor.where();
    if (const auto at = fields.find("in_strategy"))
      op.in_strategy = fields.keep(read_strategy(*at));
    if (const auto at = fields.find("in_placements"))
      op.in_placements = fields.keep(read_operands(*at));
    if (const auto at = fields.find("out_placements"))
      op.out_placements = fields.keep(read_operands(*at));
    if (!fields.ok()) return fields.failure();
    if (!op.in_strategy && !op.in_placements && !op.out_placements) {
      return cursor.error(ErrorCode::kMissing,
                          "expected \"in_strategy\", \"in_placements\" or \"out_placements\"");
    }
    constraints_.operators.push_back(std::move(op));
    return {};
  }

  static Result<std::vector<std::optional<std::vector<std::int64_t>>>> read_strategy(
      const JsonCursor& cursor) {
    const Result<std::vector<JsonCursor>> items = cursor.as_array();
    if (!items) return fail(items.error());
    std::vector<std::optional<std::vector<std::int64_t>>> strategy;
    for (const JsonCursor& item : *items) {
      strategy.emplace_back();
      if (is_star(item)) continue;
      const Result<std::vector<JsonCursor>> cuts = item.as_array();
      if (!cuts) return fail(cuts.error());
      strategy.back().emplace();
      for (const JsonCursor& cut : *cuts) {
        const Result<std::int64_t> count = cut.as_int64(1, std::int64_t{1} << 30);
        if (!count) return fail(count.error());
        strategy.back()->push_back(*count);
      }
    }
    return strategy;
  }

  Result<void> read_scope(const std::string& name, const JsonCursor& cursor) {
    Result<ScopePattern> pattern = ScopePattern::parse(name);
    if (!pattern) return cursor.error(pattern.error().code, pattern.error().message);
    FieldReader fields(cursor, {"parameters", "input", "output", "recompute"});
    ScopeConstraint scope{std::move(*pattern), {}, {}, {}, {}, cursor.where()};
    if (const auto at = fields.find("parameters")) {
      fields.keep(at->expect(JsonKind::kObject));
      for (std::size_t i = 0; fields.ok() && i < at->size(); ++i) {
        scope.parameters.emplace(at->key_at(i), fields.keep(read_pattern(at->at(i))));
      }
    }
    if (const auto at = fields.find("input")) scope.input = fields.keep(read_pattern(*at));
    if (const auto at = fields.find("output")) scope.output = fields.keep(read_pattern(*at));
    if (const auto at = fields.find("recompute")) scope.recompute = fields.keep(at->as_bool());
    if (!fields.ok()) return fields.failure();
    constraints_.scopes.push_back(std::move(scope));
    return {};
  }

  JsonCursor root_;
  Constraints constraints_;
};

}  // namespace

Result<Constraints> parse_constraints(std::string_view text, const std::string& file) {
  const Result<JsonDocument> document = JsonDocument::parse(text, file);
  if (!document) return fail(document.error());
  return Reader(document->root(), file).read();
}

Result<Constraints> load_constraints(const std::string& path) {
  const Result<std::string> text = read_file(path);
  if (!text) return fail(text.error());
  return parse_constraints(*text, input_name(path));
}

Result<std::optional<Constraints>> find_constraints(const std::string& path,
                                                    const GraphDocument& document,
                                                    const Graph& graph) {
  std::optional<Constraints> constraints;
  if (path.empty()) {
    constraints = document_constraints(document, graph);
  } else {
    Result<Constraints> loaded = load_constraints(path);
    if (!loaded) return fail(loaded.error());
    constraints = *std::move(loaded);
  }
  if (!constraints) return constraints;
  if (auto ok = check_constraints(*constraints, graph); !ok) return fail(ok.error());
  return constraints;
}

}  // namespace meshplan

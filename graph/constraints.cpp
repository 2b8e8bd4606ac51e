// SPDX-License-Identifier: Apache-2.0
// Binding goes through the constraints in the order of the file and joins what they say about the
// same tensor or operand: per mesh axis, the intersection of the allowed placements. An empty
// intersection is a clash, reported with both places.
#include "graph/constraints.h"

#include <algorithm>
#include <set>
#include <unordered_map>
#include <utility>

#include "lib/nearest_name.h"

namespace meshplan {
namespace {

std::string quote(std::string_view name) { return "\"" + std::string(name) + "\""; }

/// A key as a part of a JSON Pointer.
std::string pointer_part(std::string_view key) {
  std::string part;
  for (const char c : key) part += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
  return part;
}

std::string list_of(const std::vector<Placement>& placements) {
  std::string text;
  for (const Placement& p : placements) text += (text.empty() ? "" : " or ") + to_string(p);
  return text;
}

/// The tensor dimension that a placement cuts.
std::optional<int> cut_dimension(const Placement& placement) {
  if (const auto* shard = std::get_if<Shard>(&placement)) return shard->dim;
  if (const auto* strided = std::get_if<StridedShard>(&placement)) return strided->dim;
  return std::nullopt;
}

bool has_pattern_characters(std::string_view name) {
  return name.find_first_of("*{") != std::string_view::npos;
}

/// Names of one kind of thing in the graph.
template <class Id>
class NameTable {
 public:
  explicit NameTable(const char* kind) : kind_(kind) {}

  /// The names must outlive the table.
  void reserve(std::size_t names) {
    names_.reserve(names);
    ids_.reserve(names);
  }
  void add(std::string_view name, Id id) {
    names_.push_back(name);
    ids_.emplace(name, id);
  }

  /// The thing of this name or, for a pattern, all things that it matches.
  Result<std::vector<Id>> find(const std::string& name, const std::string& where) const {
    if (const auto found = ids_.find(name); found != ids_.end())
      return std::vector<Id>{found->second};
    std::vector<Id> matches;
    if (has_pattern_characters(name)) {
      const Result<ScopePattern> pattern = ScopePattern::parse(name);
      if (!pattern) return fail(ErrorCode::kValue, where, pattern.error().message);
      for (const std::string_view candidate : names_) {
        if (pattern->matches(candidate)) matches.push_back(ids_.at(candidate));
      }
    }
    if (!matches.empty()) return matches;
    const std::vector<std::string> known(names_.begin(), names_.end());
    return fail(ErrorCode::kMissing,
                where,
                std::string("the graph has no ") + kind_ + " " + quote(name) +
                    nearest_name_hint(name, known));
  }

 private:
  const char* kind_;
  std::vector<std::string_view> names_;
  std::unordered_map<std::string_view, Id> ids_;
};

class Binder {
 public:
  /// Without a mesh only what does not depend on it is checked.
  Binder(const Constraints& constraints,
         const Graph& graph,
         const DeviceMesh* mesh,
         const ConstraintOptions& options)
      : constraints_(constraints), graph_(graph), mesh_(mesh), options_(options) {
    tensors_.reserve(graph.tensors.size());
    operators_.reserve(graph.operators.size());
    for (std::size_t i = 0; i < graph.tensors.size(); ++i) {
      tensors_.add(graph.tensors[i].name, static_cast<TensorId>(i));
    }
    for (std::size_t i = 0; i < graph.operators.size(); ++i) {
      operators_.add(graph.operators[i].name, static_cast<OperatorId>(i));
    }
  }

  Result<BoundConstraints> bind() {
    bound_.recompute.resize(graph_.operators.size());
    bound_.recompute_scope.resize(graph_.operators.size());
    recompute_depth_.resize(graph_.operators.size(), 0);
    recompute_where_.resize(graph_.operators.size());
    if (auto ok = check_mesh(); !ok) return fail(ok.error());
    for (const TensorConstraint& c : constraints_.tensors) {
      if (auto ok = bind_tensor(c); !ok) return fail(ok.error());
    }
    for (const OperatorConstraint& c : constraints_.operators) {
      if (auto ok = bind_operator(c); !ok) return fail(ok.error());
    }
    for (const ScopeConstraint& c : constraints_.scopes) {
      if (auto ok = bind_scope(c); !ok) return fail(ok.error());
    }
    if (auto ok = check_cuts(); !ok) return fail(ok.error());
    return std::move(bound_);
  }

 private:
  int ndim() const { return mesh_ != nullptr ? mesh_->ndim() : 0; }

  Result<void> check_mesh() const {
    if (mesh_ == nullptr || !constraints_.mesh) return {};
    const ConstraintMesh& own = *constraints_.mesh;
    const bool same =
        std::equal(
            own.shape.begin(), own.shape.end(), mesh_->shape().begin(), mesh_->shape().end()) &&
        std::equal(own.axes.begin(), own.axes.end(), mesh_->axes().begin(), mesh_->axes().end());
    if (same) return {};
    const Result<DeviceMesh> written_for = DeviceMesh::make(own.shape, own.axes);
    return fail(ErrorCode::kConflict,
                constraints_.file + ": /mesh",
                "the constraints are written for the mesh " +
                    (written_for ? to_string(*written_for) : std::string("?")) +
                    ", the plan is for " + to_string(*mesh_) +
                    "; give the same mesh in both places");
  }

  // --------------------------------------------------------------------------------- one layout

  Result<Placement> resolve(const Placement& placement,
                            const Shape& shape,
                            const std::string& what,
                            const std::string& where) const {
    const std::optional<int> dim = cut_dimension(placement);
    if (!dim) return placement;
    const int rank = static_cast<int>(shape.size());
    const int resolved = *dim < 0 ? *dim + rank : *dim;
    if (resolved < 0 || resolved >= rank) {
      return fail(ErrorCode::kValue,
                  where,
                  to_string(placement) + " cuts a dimension that " + what +
                      " does not have; it has " + std::to_string(rank));
    }
    if (const auto* strided = std::get_if<StridedShard>(&placement)) {
      return Placement(StridedShard{resolved, strided->split_factor});
    }
    return Placement(Shard{resolved});
  }

  Result<LayoutChoices> choices(const PlacementPattern& pattern,
                                const Shape& shape,
                                const std::string& what,
                                const std::string& where) const {
    LayoutChoices result;
    result.where = where;
    if (mesh_ != nullptr && pattern.size() != static_cast<std::size_t>(ndim())) {
      return fail(ErrorCode::kValue,
                  where,
                  std::to_string(pattern.size()) + " placements are given for the " +
                      std::to_string(ndim()) + " axes of the mesh " + to_string(*mesh_));
    }
    for (const std::optional<Placement>& placement : pattern) {
      result.axes.emplace_back();
      if (!placement) continue;
      Result<Placement> resolved = resolve(*placement, shape, what, where);
      if (!resolved) return fail(resolved.error());
      result.axes.back().push_back(std::move(*resolved));
    }
    return result;
  }

  /// The mesh axes of a name, outermost first.
  Result<std::vector<int>> axes_named(const std::string& name, const std::string& where) const {
    std::vector<std::string> parts = {name};
    if (constraints_.mesh) {
      const auto found = constraints_.mesh->flatten.find(name);
      if (found != constraints_.mesh->flatten.end()) parts = found->second;
    }
    std::vector<int> axes;
    for (const std::string& part : parts) {
      const Result<AxisSet> set = mesh_->axis_set(part);
      if (!set) return fail(set.error().code, where, set.error().message);
      for (int axis = 0; axis < ndim(); ++axis) {
        if ((*set >> axis & 1U) != 0) axes.push_back(axis);
      }
    }
    return axes;
  }

  Result<LayoutChoices> choices(const std::vector<DimensionConstraint>& dims,
                                const Shape& shape,
                                const std::string& what,
                                const std::string& where) const {
    if (dims.size() != shape.size()) {
      return fail(ErrorCode::kValue,
                  where,
                  what + " has " + std::to_string(shape.size()) + " dimensions, but " +
                      std::to_string(dims.size()) + " are given");
    }
    LayoutChoices result;
    result.where = where;
    if (mesh_ == nullptr) return result;
    result.axes.resize(static_cast<std::size_t>(ndim()));
    std::vector<Placement> rest = {Replicate{}};  // what axes that are not named may do
    for (std::size_t d = 0; d < dims.size(); ++d) {
      const int dim = static_cast<int>(d);
      if (dims[d].open) rest.emplace_back(Shard{dim});
      std::vector<int> order;
      for (const std::string& name : dims[d].axes) {
        Result<std::vector<int>> named = axes_named(name, where);
        if (!named) return fail(named.error());
        order.insert(order.end(), named->begin(), named->end());
      }
      for (std::size_t i = 0; i < order.size(); ++i) {
        std::vector<Placement>& allowed = result.axes[static_cast<std::size_t>(order[i])];
        if (!allowed.empty()) {
          return fail(ErrorCode::kConflict,
                      where,
                      "mesh axis " + quote(mesh_->axis_label(order[i])) + " is used twice");
        }
        // axes to the right in the mesh that cut this dimension before this one
        std::int64_t before = 1;
        for (std::size_t k = 0; k < i; ++k) {
          if (order[k] > order[i]) before *= mesh_->axis_size(order[k]);
        }
        allowed.push_back(before > 1 ? Placement(StridedShard{dim, before})
                                     : Placement(Shard{dim}));
      }
    }
    for (std::vector<Placement>& allowed : result.axes) {
      if (allowed.empty()) allowed = rest;
    }
    return result;
  }

  /// `into` keeps what both allow.
  Result<void> join(LayoutChoices& into,
                    const LayoutChoices& other,
                    const std::string& what) const {
    into.priority = std::min(into.priority, other.priority);
    for (std::size_t axis = 0; axis < into.axes.size(); ++axis) {
      const std::vector<Placement>& theirs = other.axes[axis];
      std::vector<Placement>& ours = into.axes[axis];
      if (theirs.empty()) continue;
      if (ours.empty()) {
        ours = theirs;
        continue;
      }
      std::vector<Placement> both;
      for (const Placement& p : ours) {
        if (std::find(theirs.begin(), theirs.end(), p) != theirs.end()) both.push_back(p);
      }
      if (both.empty()) {
        return fail(ErrorCode::kConflict,
                    other.where,
                    "asks for " + list_of(theirs) + " of " + what + " on mesh axis " +
                        quote(mesh_->axis_label(static_cast<int>(axis))) + ", but " + into.where +
                        " asks for " + list_of(ours));
      }
      ours = std::move(both);
    }
    if (into.where.find(other.where) == std::string::npos) into.where += ", " + other.where;
    return {};
  }

  Result<void> join(std::optional<LayoutChoices>& into,
                    const LayoutChoices& other,
                    const std::string& what) const {
    if (into) return join(*into, other, what);
    into = other;
    return {};
  }

  // ------------------------------------------------------------------------------------ tensors

  Result<void> add_tensor(TensorId id, const LayoutChoices& choices) {
    const Tensor& tensor = graph_.tensor(id);
    const std::string what = "tensor " + quote(tensor.name);
    if (tensor.role != Role::kActivation) {
      for (const std::vector<Placement>& allowed : choices.axes) {
        if (allowed.size() == 1 && std::holds_alternative<Partial>(allowed.front())) {
          return fail(ErrorCode::kValue,
                      choices.where,
                      what + " has the role " + role_name(tensor.role) + " and cannot be " +
                          to_string(allowed.front()));
        }
      }
    }
    const auto [found, inserted] = bound_.tensors.try_emplace(id, choices);
    return inserted ? Result<void>() : join(found->second, choices, what);
  }

  Result<void> bind_tensor(const TensorConstraint& constraint) {
    const Result<std::vector<TensorId>> ids = tensors_.find(constraint.tensor, constraint.where);
    if (!ids) return fail(ids.error());
    for (const TensorId id : *ids) {
      const Tensor& tensor = graph_.tensor(id);
      const std::string what = "tensor " + quote(tensor.name);
      if (tensor.uses.empty() && !tensor.producer)
        return fail(ErrorCode::kValue,
                    constraint.where,
                    "nothing reads " + what + ", so no plan places it; leave the constraint out");
      Result<LayoutChoices> layout = std::visit(
          [&](const auto& given) { return choices(given, tensor.shape, what, constraint.where); },
          constraint.layout);
      if (!layout) return fail(layout.error());
      layout->priority = constraint.priority;
      if (mesh_ == nullptr) continue;
      if (auto ok = add_tensor(id, *layout); !ok) return ok;
    }
    return {};
  }

  // ---------------------------------------------------------------------------------- operators

  OperatorChoices& choices_of(OperatorId id) {
    OperatorChoices& result = bound_.operators[id];
    result.inputs.resize(graph_.op(id).inputs.size());
    result.outputs.resize(graph_.op(id).outputs.size());
    result.in_strategy.resize(graph_.op(id).inputs.size());
    return result;
  }

  static Result<void> check_count(std::size_t given,
                                  std::size_t there,
                                  const char* kind,
                                  const std::string& op,
                                  const std::string& where) {
    if (given == there) return {};
    return fail(ErrorCode::kValue,
                where,
                "operator " + quote(op) + " has " + std::to_string(there) + " " + kind + ", but " +
                    std::to_string(given) + " are given");
  }

  Result<void> bind_operands(const Operator& op,
                             const std::vector<std::optional<PlacementPattern>>& given,
                             const std::vector<std::optional<TensorId>>& operands,
                             const char* kind,
                             const std::string& where,
                             std::vector<std::optional<LayoutChoices>>* into) const {
    if (auto ok = check_count(given.size(), operands.size(), kind, op.name, where); !ok) return ok;
    for (std::size_t i = 0; i < given.size(); ++i) {
      if (!given[i]) continue;
      const std::string here = where + "/" + std::to_string(i);
      if (!operands[i]) {
        return fail(ErrorCode::kValue,
                    here,
                    "operator " + quote(op.name) + " leaves this operand out; expected \"*\"");
      }
      const Tensor& tensor = graph_.tensor(*operands[i]);
      const std::string what = "tensor " + quote(tensor.name);
      const Result<LayoutChoices> layout = choices(*given[i], tensor.shape, what, here);
      if (!layout) return fail(layout.error());
      if (into == nullptr) continue;
      if (auto ok = join((*into)[i], *layout, what + " at operator " + quote(op.name)); !ok)
        return ok;
    }
    return {};
  }

  Result<void> bind_operator(const OperatorConstraint& constraint) {
    const Result<std::vector<OperatorId>> ids = operators_.find(constraint.op, constraint.where);
    if (!ids) return fail(ids.error());
    for (const OperatorId id : *ids) {
      const Operator& op = graph_.op(id);
      OperatorChoices* into = mesh_ != nullptr ? &choices_of(id) : nullptr;
      if (constraint.in_placements) {
        if (auto ok = bind_operands(op,
                                    *constraint.in_placements,
                                    op.inputs,
                                    "inputs",
                                    constraint.where + "/in_placements",
                                    into ? &into->inputs : nullptr);
            !ok) {
          return ok;
        }
      }
      if (constraint.out_placements) {
        const std::vector<std::optional<TensorId>> outputs(op.outputs.begin(), op.outputs.end());
        if (auto ok = bind_operands(op,
                                    *constraint.out_placements,
                                    outputs,
                                    "outputs",
                                    constraint.where + "/out_placements",
                                    into ? &into->outputs : nullptr);
            !ok) {
          return ok;
        }
      }
      if (constraint.in_strategy) {
        if (auto ok = bind_strategy(op, constraint, into); !ok) return ok;
      }
    }
    return {};
  }

  Result<void> bind_strategy(const Operator& op,
                             const OperatorConstraint& constraint,
                             OperatorChoices* into) const {
    const std::string where = constraint.where + "/in_strategy";
    const auto& given = *constraint.in_strategy;
    if (auto ok = check_count(given.size(), op.inputs.size(), "inputs", op.name, where); !ok)
      return ok;
    for (std::size_t i = 0; i < given.size(); ++i) {
      if (!given[i]) continue;
      const std::string here = where + "/" + std::to_string(i);
      if (!op.inputs[i]) {
        return fail(ErrorCode::kValue,
                    here,
                    "operator " + quote(op.name) + " leaves this operand out; expected \"*\"");
      }
      const Tensor& tensor = graph_.tensor(*op.inputs[i]);
      if (given[i]->size() != tensor.shape.size()) {
        return fail(ErrorCode::kValue,
                    here,
                    "tensor " + quote(tensor.name) + " has " + std::to_string(tensor.shape.size()) +
                        " dimensions, but cuts of " + std::to_string(given[i]->size()) +
                        " are given");
      }
      if (into == nullptr) continue;
      if (!expressible(*given[i])) {
        return fail(ErrorCode::kConflict,
                    here,
                    "these cuts cannot be made with whole axes of the mesh " + to_string(*mesh_));
      }
      into->in_strategy[i] = given[i];
    }
    if (into != nullptr) into->in_strategy_where = where;
    return {};
  }

  /// Can every cut be the product of axes, each used once?
  bool expressible(std::vector<std::int64_t> cuts, int axis = 0) const {
    if (std::all_of(cuts.begin(), cuts.end(), [](std::int64_t c) { return c == 1; })) return true;
    if (axis == ndim()) return false;
    const std::int64_t size = mesh_->axis_size(axis);
    if (size > 1) {
      for (std::int64_t& cut : cuts) {
        if (cut % size != 0) continue;
        cut /= size;
        if (expressible(cuts, axis + 1)) return true;
        cut *= size;
      }
    }
    return expressible(std::move(cuts), axis + 1);
  }

  // ------------------------------------------------------------------------------------- scopes

  /// Per operator the number of the scope instance that it is in, or -1.
  struct Instances {
    std::vector<int> of_operator;
    std::vector<std::string> names;
  };

  Instances instances(const ScopePattern& pattern) const {
    Instances result;
    std::unordered_map<std::string, int> known;
    for (const Operator& op : graph_.operators) {
      int instance = -1;
      if (const auto name = pattern.instance_in(op.scope); name && !op.scope.empty()) {
        const auto [found, inserted] =
            known.try_emplace(std::string(*name), static_cast<int>(result.names.size()));
        if (inserted) result.names.emplace_back(*name);
        instance = found->second;
      }
      result.of_operator.push_back(instance);
    }
    return result;
  }

  std::vector<std::string> scope_names() const {
    std::set<std::string> names;
    for (const Operator& op : graph_.operators) {
      for (std::size_t dot = op.scope.find('.');; dot = op.scope.find('.', dot + 1)) {
        if (!op.scope.empty()) names.insert(op.scope.substr(0, dot));
        if (dot == std::string::npos) break;
      }
    }
    return {names.begin(), names.end()};
  }

  Result<void> bind_scope(const ScopeConstraint& constraint) {
    const Instances inside = instances(constraint.pattern);
    if (inside.names.empty()) {
      return fail(ErrorCode::kMissing,
                  constraint.where,
                  "the graph has no scope " + quote(constraint.pattern.text()) +
                      nearest_name_hint(constraint.pattern.text(), scope_names()));
    }
    for (const auto& [name, pattern] : constraint.parameters) {
      if (auto ok = bind_scope_parameter(constraint, name, pattern, inside); !ok) return ok;
    }
    if (constraint.input) {
      if (auto ok = bind_scope_input(constraint, inside); !ok) return ok;
    }
    if (constraint.output) {
      if (auto ok = bind_scope_output(constraint, inside); !ok) return ok;
    }
    return constraint.recompute ? bind_recompute(constraint, inside) : Result<void>();
  }

  Result<void> bind_scope_parameter(const ScopeConstraint& constraint,
                                    const std::string& name,
                                    const PlacementPattern& pattern,
                                    const Instances& inside) {
    const std::string where = constraint.where + "/parameters/" + pointer_part(name);
    const Result<ScopePattern> tail = ScopePattern::parse(name);
    if (!tail) return fail(ErrorCode::kValue, where, tail.error().message);
    std::set<TensorId> matches;
    std::set<std::string> known;
    for (std::size_t i = 0; i < graph_.operators.size(); ++i) {
      if (inside.of_operator[i] < 0) continue;
      const std::string& scope = inside.names[static_cast<std::size_t>(inside.of_operator[i])];
      for (const std::optional<TensorId>& input : graph_.operators[i].inputs) {
        if (!input || graph_.tensor(*input).role != Role::kParameter) continue;
        const std::string& full = graph_.tensor(*input).name;
        if (tail->ends(full)) matches.insert(*input);
        known.insert(full.starts_with(scope + ".") ? full.substr(scope.size() + 1) : full);
      }
    }
    if (matches.empty()) {
      const std::vector<std::string> names(known.begin(), known.end());
      std::string message = "no operator in scope " + quote(constraint.pattern.text()) +
                            " reads a parameter " + quote(name) + nearest_name_hint(name, names);
      if (!names.empty())
        message += "; it reads " + names.front() + (names.size() > 1 ? ", ..." : "");
      return fail(ErrorCode::kMissing, where, std::move(message));
    }
    for (const TensorId id : matches) {
      const Tensor& tensor = graph_.tensor(id);
      const Result<LayoutChoices> layout =
          choices(pattern, tensor.shape, "tensor " + quote(tensor.name), where);
      if (!layout) return fail(layout.error());
      if (mesh_ == nullptr) continue;
      if (auto ok = add_tensor(id, *layout); !ok) return ok;
    }
    return {};
  }

  /// Floating-point activations; where some carry gradients, only those: a scope's input and output
  /// are its hidden states, not masks, indices and tables.
  std::vector<TensorId> hidden_states(const std::set<TensorId>& tensors) const {
    std::vector<TensorId> with_gradient;
    std::vector<TensorId> floating;
    for (const TensorId id : tensors) {
      const Tensor& tensor = graph_.tensor(id);
      if (tensor.role != Role::kActivation && tensor.role != Role::kInput) continue;
      if (!is_floating(tensor.dtype)) continue;
      floating.push_back(id);
      if (tensor.has_gradient) with_gradient.push_back(id);
    }
    return with_gradient.empty() ? floating : with_gradient;
  }

  /// Binds what enters each instance of the scope, at the operands that read it there.
  Result<void> bind_scope_input(const ScopeConstraint& constraint, const Instances& inside) {
    std::vector<std::set<TensorId>> entering(inside.names.size());
    for (std::size_t t = 0; t < graph_.tensors.size(); ++t) {
      const Tensor& tensor = graph_.tensors[t];
      const int home = tensor.producer ? inside.of_operator[index(*tensor.producer)] : -1;
      for (const Use& use : tensor.uses) {
        const int instance = inside.of_operator[index(use.op)];
        if (instance < 0 || instance == home) continue;
        entering[static_cast<std::size_t>(instance)].insert(static_cast<TensorId>(t));
      }
    }
    const std::string where = constraint.where + "/input";
    for (std::size_t instance = 0; instance < entering.size(); ++instance) {
      for (const TensorId id : hidden_states(entering[instance])) {
        const Tensor& tensor = graph_.tensor(id);
        const std::string what = "tensor " + quote(tensor.name);
        const Result<LayoutChoices> layout = choices(*constraint.input, tensor.shape, what, where);
        if (!layout) return fail(layout.error());
        if (mesh_ == nullptr) continue;
        for (const Use& use : tensor.uses) {
          if (inside.of_operator[index(use.op)] != static_cast<int>(instance)) continue;
          auto& into = choices_of(use.op).inputs[static_cast<std::size_t>(use.operand)];
          const std::string here = what + " at operator " + quote(graph_.op(use.op).name);
          if (auto ok = join(into, *layout, here); !ok) return ok;
        }
      }
    }
    return {};
  }

  /// Binds what leaves each instance of the scope.
  Result<void> bind_scope_output(const ScopeConstraint& constraint, const Instances& inside) {
    std::vector<std::set<TensorId>> leaving(inside.names.size());
    const std::set<TensorId> outputs(graph_.outputs.begin(), graph_.outputs.end());
    for (std::size_t t = 0; t < graph_.tensors.size(); ++t) {
      const Tensor& tensor = graph_.tensors[t];
      const auto id = static_cast<TensorId>(t);
      const int home = tensor.producer ? inside.of_operator[index(*tensor.producer)] : -1;
      if (home < 0) continue;
      const bool read_outside =
          std::any_of(tensor.uses.begin(), tensor.uses.end(), [&](const Use& use) {
            return inside.of_operator[index(use.op)] != home;
          });
      if (read_outside || outputs.count(id) > 0) leaving[static_cast<std::size_t>(home)].insert(id);
    }
    const std::string where = constraint.where + "/output";
    for (const std::set<TensorId>& candidates : leaving) {
      for (const TensorId id : hidden_states(candidates)) {
        const Tensor& tensor = graph_.tensor(id);
        const Result<LayoutChoices> layout =
            choices(*constraint.output, tensor.shape, "tensor " + quote(tensor.name), where);
        if (!layout) return fail(layout.error());
        if (mesh_ == nullptr) continue;
        if (auto ok = add_tensor(id, *layout); !ok) return ok;
      }
    }
    return {};
  }

  /// The most specific scope counts; two of the same depth must agree.
  Result<void> bind_recompute(const ScopeConstraint& constraint, const Instances& inside) {
    const std::size_t depth = constraint.pattern.depth();
    for (std::size_t i = 0; i < graph_.operators.size(); ++i) {
      if (inside.of_operator[i] < 0 || depth < recompute_depth_[i]) continue;
      std::optional<bool>& value = bound_.recompute[i];
      if (depth == recompute_depth_[i] && value && *value != *constraint.recompute) {
        return fail(ErrorCode::kConflict,
                    constraint.where + "/recompute",
                    "says otherwise about operator " + quote(graph_.operators[i].name) + " than " +
                        recompute_where_[i]);
      }
      value = constraint.recompute;
      bound_.recompute_scope[i] = inside.names[static_cast<std::size_t>(inside.of_operator[i])];
      recompute_depth_[i] = depth;
      recompute_where_[i] = constraint.where + "/recompute";
    }
    return {};
  }

  // ---------------------------------------------------------------------------------- divisibility

  /// What the fixed axes cut from every dimension.
  std::vector<std::int64_t> fixed_cuts(const LayoutChoices& layout, std::size_t rank) const {
    std::vector<std::int64_t> cuts(rank, 1);
    for (std::size_t axis = 0; axis < layout.axes.size(); ++axis) {
      if (layout.axes[axis].size() != 1) continue;
      if (const auto dim = cut_dimension(layout.axes[axis].front())) {
        cuts[static_cast<std::size_t>(*dim)] *= mesh_->axis_size(static_cast<int>(axis));
      }
    }
    return cuts;
  }

  Result<void> check_divisible(const Tensor& tensor,
                               const std::vector<std::int64_t>& cuts,
                               const std::string& where) const {
    for (std::size_t d = 0; d < cuts.size() && !options_.allow_uneven; ++d) {
      if (tensor.shape[d] % cuts[d] == 0) continue;
      return fail(ErrorCode::kConflict,
                  where,
                  "cuts dimension " + std::to_string(d) + " of tensor " + quote(tensor.name) +
                      ", which has " + std::to_string(tensor.shape[d]) + " elements, into " +
                      std::to_string(cuts[d]) + "; uneven shards are possible with --allow-uneven");
    }
    return {};
  }

  Result<void> check_cuts() const {
    if (mesh_ == nullptr) return {};
    for (const auto& [id, layout] : bound_.tensors) {
      const Tensor& tensor = graph_.tensor(id);
      if (auto ok = check_divisible(tensor, fixed_cuts(layout, tensor.shape.size()), layout.where);
          !ok)
        return ok;
    }
    for (const auto& [id, choices] : bound_.operators) {
      const Operator& op = graph_.op(id);
      for (std::size_t i = 0; i < op.inputs.size(); ++i) {
        if (!op.inputs[i]) continue;
        if (auto ok = check_input(op, graph_.tensor(*op.inputs[i]), choices, i); !ok) return ok;
      }
      for (std::size_t i = 0; i < op.outputs.size(); ++i) {
        if (!choices.outputs[i]) continue;
        const Tensor& tensor = graph_.tensor(op.outputs[i]);
        const LayoutChoices& layout = *choices.outputs[i];
        if (auto ok =
                check_divisible(tensor, fixed_cuts(layout, tensor.shape.size()), layout.where);
            !ok)
          return ok;
      }
    }
    return {};
  }

  Result<void> check_input(const Operator& op,
                           const Tensor& tensor,
                           const OperatorChoices& choices,
                           std::size_t i) const {
    const auto& strategy = choices.in_strategy[i];
    if (strategy) {
      if (auto ok = check_divisible(tensor, *strategy, choices.in_strategy_where); !ok) return ok;
    }
    if (!choices.inputs[i]) return {};
    const LayoutChoices& layout = *choices.inputs[i];
    const std::vector<std::int64_t> cuts = fixed_cuts(layout, tensor.shape.size());
    if (auto ok = check_divisible(tensor, cuts, layout.where); !ok) return ok;
    if (!strategy) return {};
    const bool all_fixed = std::all_of(layout.axes.begin(),
                                       layout.axes.end(),
                                       [](const auto& allowed) { return allowed.size() == 1; });
    for (std::size_t d = 0; d < cuts.size(); ++d) {
      if (all_fixed ? (*strategy)[d] == cuts[d] : (*strategy)[d] % cuts[d] == 0) continue;
      return fail(ErrorCode::kConflict,
                  choices.in_strategy_where,
                  "cuts dimension " + std::to_string(d) + " of input " + std::to_string(i) +
                      " of operator " + quote(op.name) + " into " + std::to_string((*strategy)[d]) +
                      ", but " + layout.where + " cuts it into " + std::to_string(cuts[d]));
    }
    return {};
  }

  const Constraints& constraints_;
  const Graph& graph_;
  const DeviceMesh* mesh_;
  ConstraintOptions options_;
  NameTable<TensorId> tensors_{"tensor"};
  NameTable<OperatorId> operators_{"operator"};
  BoundConstraints bound_;
  std::vector<std::size_t> recompute_depth_;
  std::vector<std::string> recompute_where_;
};

}  // namespace

bool LayoutChoices::allows(int axis, const Placement& placement) const {
  const std::vector<Placement>& allowed = axes[static_cast<std::size_t>(axis)];
  return allowed.empty() || std::find(allowed.begin(), allowed.end(), placement) != allowed.end();
}

bool BoundConstraints::any_recompute() const {
  return std::any_of(
      recompute.begin(), recompute.end(), [](const auto& r) { return r.has_value(); });
}

Result<void> check_constraints(const Constraints& constraints, const Graph& graph) {
  const Result<BoundConstraints> bound = Binder(constraints, graph, nullptr, {}).bind();
  return bound ? Result<void>() : Result<void>(fail(bound.error()));
}

Result<RecomputeScopes> recompute_scopes(const Constraints& constraints, const Graph& graph) {
  Result<BoundConstraints> bound = Binder(constraints, graph, nullptr, {}).bind();
  if (!bound) return fail(bound.error());
  return RecomputeScopes{std::move(bound->recompute), std::move(bound->recompute_scope)};
}

Result<BoundConstraints> bind_constraints(const Constraints& constraints,
                                          const Graph& graph,
                                          const DeviceMesh& mesh,
                                          const ConstraintOptions& options) {
  return Binder(constraints, graph, &mesh, options).bind();
}

}  // namespace meshplan

// SPDX-License-Identifier: Apache-2.0
#include "plan/execution/shrink_graph.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include "graph/operator_table.h"
#include "lib/check.h"

namespace meshplan {
namespace {

/// Sizes below which an uncut dimension does not shrink: one element would hide mistakes.
constexpr std::int64_t kLeastSize = 2;

/// Indivisible parts of dimensions, some of them equal.
class Atoms {
 public:
  int add(std::int64_t size) {
    atoms_.push_back({size, static_cast<int>(atoms_.size()), {}, 1, false});
    return static_cast<int>(atoms_.size()) - 1;
  }

  /// The indivisible parts of a dimension, major to minor; parts of size 1 are left out.
  std::vector<int> leaves(const std::vector<int>& dimension) {
    std::vector<int> result;
    for (const int atom : dimension) add_leaves(atom, result);
    return result;
  }

  /// Makes two factorisations of one size the same; what does not line up keeps its size.
  void unify(const std::vector<int>& a, const std::vector<int>& b) {
    std::vector<int> left = leaves(a);
    std::vector<int> right = leaves(b);
    while (!left.empty() && !right.empty()) {
      const int x = root(left.back());
      const int y = root(right.back());
      const std::int64_t size_x = at(x).size;
      const std::int64_t size_y = at(y).size;
      if (size_x == size_y) {
        join(x, y);
        left.pop_back();
        right.pop_back();
      } else if (size_x % size_y == 0) {
        split(x, size_y);
      } else if (size_y % size_x == 0) {
        split(y, size_x);
      } else {
        for (const int atom : left) freeze(atom);
        for (const int atom : right) freeze(atom);
        return;
      }
      left = leaves(left);  // atoms of either side may have been split
      right = leaves(right);
    }
  }

  /// Demands that `pieces` cut the dimension: its first parts, one after another; cuts across parts
  /// keep the sizes. False where they do not divide it.
  bool cut(const std::vector<int>& dimension, std::int64_t pieces) {
    const std::vector<int> parts = leaves(dimension);
    std::int64_t size = 1;
    for (const int part : parts) size *= at(root(part)).size;
    if (size % pieces != 0) return false;
    for (const int part : parts) {
      if (pieces == 1) return true;
      Atom& atom = at(root(part));
      const std::int64_t here = std::gcd(pieces, atom.size);
      atom.multiple = std::lcm(atom.multiple, here);
      pieces /= here;
      if (pieces > 1 && here != atom.size) break;
    }
    if (pieces > 1) std::for_each(parts.begin(), parts.end(), [&](int part) { freeze(part); });
    return true;
  }

  void freeze(int atom) { at(root(atom)).frozen = true; }

  // ---- the new sizes

  /// Gives every part its least size.
  void shrink() {
    for (std::size_t i = 0; i < atoms_.size(); ++i) {
      Atom& atom = atoms_[i];
      if (root(static_cast<int>(i)) != static_cast<int>(i) || !atom.parts.empty()) continue;
      if (atom.frozen) {
        atom.now = atom.size;
      } else if (!atom.fixed) {
        const std::int64_t twice = 2 * atom.multiple;
        atom.now = atom.multiple > 1 ? (atom.size % twice == 0 ? twice : atom.multiple)
                                     : std::min(atom.size, kLeastSize);
      }
    }
  }
  std::int64_t now(const std::vector<int>& dimension) {
    std::int64_t product = 1;
    for (const int leaf : leaves(dimension)) product *= at(root(leaf)).now;
    return product;
  }
  bool frozen(int atom) { return at(root(atom)).frozen; }
  std::int64_t size(int atom) { return at(root(atom)).size; }
  std::int64_t multiple(int atom) { return at(root(atom)).multiple; }
  /// A size that follows from others; false where the part has another one already, or pieces do
  /// not divide it.
  bool fix(int atom, std::int64_t size) {
    Atom& a = at(root(atom));
    if (a.frozen || (a.fixed && a.now != size) || size % a.multiple != 0) return false;
    a.fixed = true;
    a.now = size;
    return true;
  }

 private:
  struct Atom {
    std::int64_t size;
    int parent;              ///< itself: a class of its own
    std::vector<int> parts;  ///< major, minor: the atom was split
    std::int64_t multiple;   ///< pieces that must divide it
    bool frozen;             ///< keeps its size
    bool fixed = false;      ///< its new size follows from others
    std::int64_t now = 0;    ///< the new size
  };

  Atom& at(int atom) { return atoms_[static_cast<std::size_t>(atom)]; }

  int root(int atom) {
    while (at(atom).parent != atom) atom = at(atom).parent = at(at(atom).parent).parent;
    return atom;
  }
  void add_leaves(int atom, std::vector<int>& result) {
    const int class_of = root(atom);
    if (at(class_of).parts.empty()) {
      if (at(class_of).size > 1) result.push_back(class_of);
      return;
    }
    const std::vector<int> parts = at(class_of).parts;
    for (const int part : parts) add_leaves(part, result);
  }
  void split(int atom, std::int64_t minor) {
    const std::int64_t major = at(atom).size / minor;
    const int first = add(major);
    const int second = add(minor);
    if (at(atom).frozen) {
      freeze(first);
      freeze(second);
    }
    at(atom).parts = {first, second};
  }
  void join(int x, int y) {
    if (x == y) return;
    at(y).parent = x;
    at(x).frozen = at(x).frozen || at(y).frozen;
  }

  std::vector<Atom> atoms_;
};

using Dimensions = std::vector<std::vector<int>>;  ///< per dimension its atoms

class Shrinker {
 public:
  Shrinker(const Graph& graph, const std::vector<std::vector<Pieces>>& pieces)
      : graph_(graph), pieces_(pieces) {}

  Result<Graph> run() {
    add_dimensions();
    for (const Operator& op : graph_.operators) tie(op);
    if (auto ok = cut(); !ok) return fail(ok.error());
    // every round frees or freezes at least one part of a dimension
    const std::size_t most = 2 * graph_.operators.size() + 2;
    for (std::size_t round = 0; round < most; ++round) {
      atoms_.shrink();
      std::optional<Result<Graph>> made = infer();
      if (made) return *std::move(made);
    }
    return fail(ErrorCode::kUnsupported, "", "no sizes of the graph pass type inference");
  }

 private:
  void add_dimensions() {
    for (const Tensor& tensor : graph_.tensors) {
      Dimensions& dimensions = dimensions_.emplace_back();
      for (const std::int64_t size : tensor.shape) dimensions.push_back({atoms_.add(size)});
    }
  }

  /// The operator's rule: dimensions with a common factor are cut alike.
  void tie(const Operator& op) {
    const Rule& rule = *op.rule;
    std::vector<int> factors;
    for (const Factor& factor : rule.factors) factors.push_back(atoms_.add(factor.size));
    auto tie_tensor = [&](const OperandRule& operand, TensorId tensor) {
      for (std::size_t d = 0; d < operand.dims.size(); ++d) {
        if (operand.dims[d].empty()) continue;
        std::vector<int> product;
        for (const int f : operand.dims[d]) product.push_back(factors[static_cast<std::size_t>(f)]);
        atoms_.unify(dimensions_[index(tensor)][d], product);
      }
    };
    for (std::size_t i = 0; i < op.inputs.size(); ++i) {
      if (op.inputs[i] && rule.operands[i].present) tie_tensor(rule.operands[i], *op.inputs[i]);
    }
    for (std::size_t r = 0; r < op.outputs.size(); ++r) tie_tensor(rule.results[r], op.outputs[r]);
  }

  Result<void> cut() {
    for (std::size_t t = 0; t < graph_.tensors.size(); ++t) {
      for (const Pieces& pieces : pieces_[t]) {
        MESHPLAN_CHECK(pieces.size() == dimensions_[t].size());
        for (std::size_t d = 0; d < pieces.size(); ++d) {
          if (atoms_.cut(dimensions_[t][d], pieces[d])) continue;
          return fail(ErrorCode::kValue,
                      "",
                      "dimension " + std::to_string(d) + " of tensor \"" + graph_.tensors[t].name +
                          "\" is not cut into whole parts by " + std::to_string(pieces[d]));
        }
      }
    }
    return {};
  }

  /// The graph with the present sizes, or nullopt where a size had to be changed.
  std::optional<Result<Graph>> infer() {
    Graph graph = graph_;
    for (std::size_t t = 0; t < graph.tensors.size(); ++t) {
      for (std::size_t d = 0; d < dimensions_[t].size(); ++d)
        graph.tensors[t].shape[d] = atoms_.now(dimensions_[t][d]);
    }
    for (std::size_t o = 0; o < graph.operators.size(); ++o) {
      Operator& op = graph.operators[o];
      const Operator& before = graph_.operators[o];
      rewrite_attributes(graph, before, op);
      Result<TypedOperator> typed = typed_operator(graph, op);
      bool fits = typed.has_value() && typed->outputs.size() == op.outputs.size();
      for (std::size_t r = 0; fits && r < op.outputs.size(); ++r) {
        const Shape& inferred = typed->outputs[r].shape;
        const Shape& assumed = graph.tensor(op.outputs[r]).shape;
        fits = inferred.size() == assumed.size();
        for (std::size_t d = 0; fits && d < inferred.size(); ++d) {
          if (inferred[d] == assumed[d]) continue;
          const std::vector<int> leaves = atoms_.leaves(dimensions_[index(op.outputs[r])][d]);
          if (leaves.size() == 1 && atoms_.fix(leaves[0], inferred[d])) return std::nullopt;
          fits = false;
        }
      }
      if (!fits) {
        if (relax(o)) return std::nullopt;
        return Result<Graph>(fail(ErrorCode::kUnsupported,
                                  "",
                                  "operator \"" + op.name + "\" (" + op.type +
                                      ") does not take its own sizes" +
                                      (typed ? std::string() : ": " + typed.error().message)));
      }
      op.rule = typed->rule;
    }
    return Result<Graph>(std::move(graph));
  }

  /// The parts of the operator's dimensions that no rule ties freely: private ones and those that
  /// cannot be cut.
  std::vector<int> stiff_parts(const Operator& op) {
    std::vector<int> parts;
    auto look = [&](const OperandRule& operand, TensorId tensor) {
      for (std::size_t d = 0; d < operand.dims.size(); ++d) {
        const bool stiff = std::all_of(operand.dims[d].begin(), operand.dims[d].end(), [&](int f) {
          const FactorKind kind = op.rule->factors[static_cast<std::size_t>(f)].kind;
          return kind == FactorKind::kWhole || kind == FactorKind::kWindow;
        });
        if (!stiff) continue;
        for (const int leaf : atoms_.leaves(dimensions_[index(tensor)][d])) parts.push_back(leaf);
      }
    };
    for (std::size_t i = 0; i < op.inputs.size(); ++i) {
      if (op.inputs[i] && op.rule->operands[i].present) look(op.rule->operands[i], *op.inputs[i]);
    }
    for (std::size_t r = 0; r < op.outputs.size(); ++r) look(op.rule->results[r], op.outputs[r]);
    return parts;
  }

  /// Changes sizes around an operator that refused them; false where all have their own already.
  bool relax(std::size_t number) {
    const Operator& op = graph_.operators[number];
    std::vector<int> parts = stiff_parts(op);
    if (!parts.empty() && !scaled_[number]) {
      scaled_[number] = true;
      if (scale(parts)) return true;
    }
    bool changed = false;
    auto freeze = [&](const std::vector<int>& atoms) {
      for (const int atom : atoms) {
        changed = changed || !atoms_.frozen(atom);
        atoms_.freeze(atom);
      }
    };
    freeze(parts);
    if (changed) return true;
    auto freeze_tensor = [&](TensorId tensor) {
      for (const std::vector<int>& dimension : dimensions_[index(tensor)])
        freeze(atoms_.leaves(dimension));
    };
    for (const auto& input : op.inputs) {
      if (input) freeze_tensor(*input);
    }
    for (const TensorId output : op.outputs) freeze_tensor(output);
    return changed;
  }

  /// Divides all parts by the largest divisor that leaves each whole, cuttable and above one
  /// element; false where there is none or a part has a size already.
  bool scale(const std::vector<int>& parts) {
    std::int64_t common = 0;
    for (const int part : parts) common = std::gcd(common, atoms_.size(part));
    for (std::int64_t divisor = common; divisor > 1; --divisor) {
      if (common % divisor != 0) continue;
      const bool fits = std::all_of(parts.begin(), parts.end(), [&](int part) {
        const std::int64_t size = atoms_.size(part) / divisor;
        return size >= kLeastSize && size % atoms_.multiple(part) == 0 && !atoms_.frozen(part);
      });
      if (!fits) continue;
      return std::all_of(parts.begin(), parts.end(), [&](int part) {
        return atoms_.fix(part, atoms_.size(part) / divisor);
      });
    }
    return false;
  }

  /// Sizes and positions that stand in attributes.
  void rewrite_attributes(const Graph& graph, const Operator& before, Operator& op) const {
    if (const auto shape = op.attributes.find("shape"); shape != op.attributes.end()) {
      if (std::holds_alternative<std::vector<std::int64_t>>(shape->second))
        shape->second = graph.tensor(op.outputs[0]).shape;
    }
    if (op.inputs.empty() || !op.inputs[0]) return;
    const Shape& old_shape = graph_.tensor(*before.inputs[0]).shape;
    const Shape& new_shape = graph.tensor(*op.inputs[0]).shape;
    const auto rank = static_cast<std::int64_t>(old_shape.size());
    auto list = [&](const char* name) -> std::vector<std::int64_t>* {
      const auto found = op.attributes.find(name);
      if (found == op.attributes.end()) return nullptr;
      return std::get_if<std::vector<std::int64_t>>(&found->second);
    };
    auto dimension = [&](std::int64_t axis) {
      return static_cast<std::size_t>(axis < 0 ? axis + rank : axis);
    };
    auto scaled = [&](std::int64_t position, std::size_t d) {
      if (d >= old_shape.size() || position > old_shape[d] || position < -old_shape[d])
        return position;  // "to the end"
      return position * new_shape[d] / old_shape[d];
    };
    if (std::vector<std::int64_t>* split = list("split")) {
      const auto axis = op.attributes.find("axis");
      const std::int64_t* number =
          axis == op.attributes.end() ? nullptr : std::get_if<std::int64_t>(&axis->second);
      const std::size_t d = dimension(number == nullptr ? 0 : *number);
      for (std::size_t r = 0; r < split->size() && r < op.outputs.size(); ++r)
        (*split)[r] = graph.tensor(op.outputs[r]).shape[d];
    }
    if (std::vector<std::int64_t>* starts = list("starts")) {
      std::vector<std::int64_t>* ends = list("ends");
      const std::vector<std::int64_t>* axes = list("axes");
      for (std::size_t i = 0; i < starts->size(); ++i) {
        const std::size_t d = axes != nullptr && i < axes->size() ? dimension((*axes)[i]) : i;
        (*starts)[i] = scaled((*starts)[i], d);
        if (ends != nullptr && i < ends->size()) (*ends)[i] = scaled((*ends)[i], d);
      }
    }
  }

  /// Equal operators are inferred once.
  Result<TypedOperator> typed_operator(const Graph& graph, const Operator& op) {
    OperatorSpec spec;
    spec.type = op.type;
    spec.attributes = op.attributes;
    spec.output_count = static_cast<int>(op.outputs.size());
    std::vector<TensorType> outputs;
    for (const auto& input : op.inputs) {
      spec.inputs.emplace_back();
      if (input) spec.inputs.back() = {graph.tensor(*input).shape, graph.tensor(*input).dtype};
    }
    for (const TensorId output : op.outputs)
      outputs.push_back({graph.tensor(output).shape, graph.tensor(output).dtype});
    const auto types = operator_types();
    const bool built_in = std::binary_search(types.begin(), types.end(), op.type);
    if (op.rule->text == kReplicatedRule) return replicated_operator(spec, std::move(outputs));
    if (!built_in) spec.rule = op.rule->text;
    auto& known = typed_[op.rule.get()];
    for (const auto& [earlier, typed] : known) {
      if (earlier.attributes == spec.attributes && earlier.inputs == spec.inputs &&
          earlier.output_count == spec.output_count)
        return typed;
    }
    Result<TypedOperator> typed = infer_operator(spec);
    if (typed) known.emplace_back(std::move(spec), *typed);
    return typed;
  }

  const Graph& graph_;
  const std::vector<std::vector<Pieces>>& pieces_;
  Atoms atoms_;
  std::vector<Dimensions> dimensions_;  ///< per tensor
  std::map<std::size_t, bool> scaled_;  ///< operators whose stiff parts were divided
  std::map<const Rule*, std::vector<std::pair<OperatorSpec, TypedOperator>>> typed_;
};

}  // namespace

Result<Graph> shrink_graph(const Graph& graph, const std::vector<std::vector<Pieces>>& pieces) {
  MESHPLAN_CHECK(pieces.size() == graph.tensors.size());
  return Shrinker(graph, pieces).run();
}

}  // namespace meshplan

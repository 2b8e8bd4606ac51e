// SPDX-License-Identifier: Apache-2.0
#include "plan/execution/shrink_graph.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <string_view>
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

  /// Demands that `pieces` cut the dimension: its first parts, one after another, each as far as it
  /// can be. False where they do not divide it.
  bool cut(const std::vector<int>& dimension, std::int64_t pieces) {
    const std::vector<int> parts = leaves(dimension);
    for (const int part : parts) {
      Atom& atom = at(root(part));
      const std::int64_t here = std::gcd(pieces, atom.size);
      atom.multiple = std::lcm(atom.multiple, here);
      if (here > 1 && part != parts.front()) atom.minor = true;
      pieces /= here;
    }
    return pieces == 1;
  }

  /// At least so many elements, where there were as many.
  void demand(int atom, std::int64_t least) {
    at(root(atom)).least = std::max(at(root(atom)).least, least);
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
        // two elements in a piece, where there were as many (enough of them behind a major part)
        const std::int64_t twice = 2 * atom.multiple;
        const std::int64_t pieces = atom.size % twice == 0 && !atom.minor ? twice : atom.multiple;
        const std::int64_t least = (atom.least + pieces - 1) / pieces * pieces;
        atom.now = std::min(atom.size, atom.multiple > 1 ? std::max(pieces, least) : atom.least);
      }
    }
  }
  std::int64_t now(const std::vector<int>& dimension) {
    std::int64_t product = 1;
    for (const int leaf : leaves(dimension)) product *= at(root(leaf)).now;
    return product;
  }
  /// Makes two dimensions of one size the same, whatever cuts them; false where they are already,
  /// or where either is in parts or has its size.
  bool tie(const std::vector<int>& a, const std::vector<int>& b) {
    const std::vector<int> left = leaves(a);
    const std::vector<int> right = leaves(b);
    if (left.size() != 1 || right.size() != 1) return false;
    const int x = root(left[0]);
    const int y = root(right[0]);
    if (x == y || at(x).size != at(y).size || at(x).fixed || at(y).fixed) return false;
    join(x, y);
    return true;
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
    bool minor = false;      ///< cut behind a part that is cut already
    bool fixed = false;      ///< its new size follows from others
    std::int64_t least = kLeastSize;
    std::int64_t now = 0;  ///< the new size
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
    at(x).multiple = std::lcm(at(x).multiple, at(y).multiple);
    at(x).least = std::max(at(x).least, at(y).least);
    at(x).minor = at(x).minor || at(y).minor;
  }

  std::vector<Atom> atoms_;
};

/// Attributes that are the size of a factor of the rule.
struct SizeAttribute {
  std::string_view type;
  const char* attribute;
  const char* factor;
};
constexpr SizeAttribute kSizeAttributes[] = {
    {"Attention", "kv_num_heads", "g"},
    {"Conv", "group", "g"},
    {"GroupNormalization", "num_groups", "g"},
    {"MoECombine", "groups", "g"},
    {"MoEDispatch", "groups", "g"},
    {"MoEDispatch", "num_experts", "e"},
    {"OneHot", "depth", "v"},
    {"RotaryEmbedding", "num_heads", "h"},
    {"TopK", "k", "k"},
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
    std::vector<int>& factors = factors_.emplace_back();
    for (const Factor& factor : rule.factors) factors.push_back(atoms_.add(factor.size));
    const bool slides = std::any_of(rule.factors.begin(), rule.factors.end(), [](const Factor& f) {
      return f.kind == FactorKind::kWindow;
    });
    auto tie_tensor = [&](const OperandRule& operand, TensorId tensor) {
      for (std::size_t d = 0; d < operand.dims.size(); ++d) {
        const bool whole = std::all_of(operand.dims[d].begin(), operand.dims[d].end(), [&](int f) {
          return rule.factors[static_cast<std::size_t>(f)].kind == FactorKind::kWhole;
        });
        if (slides && whole) freeze_dimension(tensor, d);  // a kernel
        if (operand.dims[d].empty()) continue;
        if (slides_over(rule, operand, d)) continue;
        std::vector<int> product;
        for (const int f : operand.dims[d]) product.push_back(factors[static_cast<std::size_t>(f)]);
        atoms_.unify(dimensions_[index(tensor)][d], product);
      }
    };
    for (std::size_t i = 0; i < op.inputs.size(); ++i) {
      if (op.inputs[i] && rule.operands[i].present) tie_tensor(rule.operands[i], *op.inputs[i]);
    }
    for (std::size_t r = 0; r < op.outputs.size(); ++r) tie_tensor(rule.results[r], op.outputs[r]);
    if (op.type != "TopK") return;
    // some are chosen, some are not
    const auto choose_from = [&](int factor) {
      for (const int leaf : atoms_.leaves({factor})) atoms_.demand(leaf, 2 * kLeastSize);
    };
    for (const int j : rule.names.at("j")) choose_from(factors[static_cast<std::size_t>(j)]);
  }

  /// Whether windows slide along the dimension so that it has another size than they are many.
  static bool slides_over(const Rule& rule, const OperandRule& operand, std::size_t d) {
    if (operand.dims[d].size() != 1) return false;
    const Factor& factor = rule.factors[static_cast<std::size_t>(operand.dims[d][0])];
    return factor.kind == FactorKind::kWindow && operand.shape[d] != factor.size;
  }

  void freeze_dimension(TensorId tensor, std::size_t d) {
    for (const int leaf : atoms_.leaves(dimensions_[index(tensor)][d])) atoms_.freeze(leaf);
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
      if (fit_windows(o)) return std::nullopt;
      rewrite_attributes(graph, before, op);
      Result<TypedOperator> typed = typed_operator(graph, op);
      bool fits = typed.has_value() && typed->outputs.size() == op.outputs.size();
      for (std::size_t r = 0; fits && r < op.outputs.size(); ++r) {
        const Shape& inferred = typed->outputs[r].shape;
        const Shape& assumed = graph.tensor(op.outputs[r]).shape;
        fits = inferred.size() == assumed.size();
        for (std::size_t d = 0; fits && d < inferred.size(); ++d) {
          if (inferred[d] == assumed[d]) continue;
          if (adopt(dimensions_[index(op.outputs[r])][d], inferred[d])) return std::nullopt;
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

  /// Gives the dimensions that windows slide over the size that so many windows need; false where
  /// they have it.
  bool fit_windows(std::size_t number) {
    const Operator& op = graph_.operators[number];
    const Rule& rule = *op.rule;
    bool changed = false;
    for (std::size_t i = 0; i < op.inputs.size(); ++i) {
      if (!op.inputs[i]) continue;
      for (std::size_t d = 0; d < rule.operands[i].dims.size(); ++d) {
        if (!slides_over(rule, rule.operands[i], d)) continue;
        const int factor = rule.operands[i].dims[d][0];
        const Window& window = rule.factors[static_cast<std::size_t>(factor)].window;
        const std::int64_t count = atoms_.now({factors_[number][static_cast<std::size_t>(factor)]});
        const std::int64_t least =
            (count - 1) * window.stride + window.width - window.before - window.after;
        const std::vector<int>& dimension = dimensions_[index(*op.inputs[i])][d];
        const std::int64_t now = atoms_.now(dimension);
        if (now >= least && now < least + window.stride) continue;
        // a multiple of the stride, as most are, else any that gives so many
        std::vector<std::int64_t> sizes = {(least + window.stride - 1) / window.stride *
                                           window.stride};
        for (std::int64_t size = least; size < least + window.stride; ++size) sizes.push_back(size);
        changed =
            std::any_of(sizes.begin(),
                        sizes.end(),
                        [&](std::int64_t size) { return size > 0 && adopt(dimension, size); }) ||
            changed;
      }
    }
    return changed;
  }

  /// Gives a dimension the size that inference found: its last part changes that can.
  bool adopt(const std::vector<int>& dimension, std::int64_t size) {
    const std::vector<int> leaves = atoms_.leaves(dimension);
    const std::int64_t now = atoms_.now(dimension);
    for (std::size_t i = leaves.size(); i-- > 0;) {
      const std::int64_t others = now / atoms_.now({leaves[i]});
      if (size % others == 0 && atoms_.fix(leaves[i], size / others)) return true;
    }
    return false;
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

  /// Ties private dimensions of the operator's tensors (no factor: never cut, like the keys of a
  /// mask) to dimensions of the same size that have factors; false where nothing changed.
  bool tie_private(const Operator& op) {
    std::vector<const std::vector<int>*> own, shared;
    auto look = [&](const OperandRule& operand, TensorId tensor) {
      for (std::size_t d = 0; d < operand.dims.size(); ++d)
        (operand.dims[d].empty() ? own : shared).push_back(&dimensions_[index(tensor)][d]);
    };
    for (std::size_t i = 0; i < op.inputs.size(); ++i) {
      if (op.inputs[i] && op.rule->operands[i].present) look(op.rule->operands[i], *op.inputs[i]);
    }
    for (std::size_t r = 0; r < op.outputs.size(); ++r) look(op.rule->results[r], op.outputs[r]);
    bool changed = false;
    for (const auto* dimension : own) {
      for (const auto* other : shared) changed = atoms_.tie(*dimension, *other) || changed;
    }
    return changed;
  }

  /// Changes sizes around an operator that refused them; false where all have their own already.
  bool relax(std::size_t number) {
    const Operator& op = graph_.operators[number];
    if (tie_private(op)) return true;
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
  void rewrite_attributes(const Graph& graph, const Operator& before, Operator& op) {
    if (const auto shape = op.attributes.find("shape"); shape != op.attributes.end()) {
      if (std::holds_alternative<std::vector<std::int64_t>>(shape->second))
        shape->second = graph.tensor(op.outputs[0]).shape;
    }
    const auto number = [&](const char* name) -> std::int64_t* {
      const auto found = op.attributes.find(name);
      return found == op.attributes.end() ? nullptr : std::get_if<std::int64_t>(&found->second);
    };
    for (const auto& [type, attribute, factor] : kSizeAttributes) {
      if (op.type != type) continue;
      const auto named = op.rule->names.find(factor);
      std::int64_t* size = number(attribute);
      if (size == nullptr || named == op.rule->names.end()) continue;
      std::vector<int> parts;
      const auto o = static_cast<std::size_t>(&before - graph_.operators.data());
      for (const int f : named->second) parts.push_back(factors_[o][static_cast<std::size_t>(f)]);
      *size = atoms_.now(parts);
    }
    if (op.inputs.empty() || !op.inputs[0]) return;
    if (op.type == "MoEDispatch" || op.type == "MoECombine") {
      if (std::int64_t* top_k = number("top_k")) *top_k = graph.tensor(*op.inputs[1]).shape[1];
    }
    const Shape& old_shape = graph_.tensor(*before.inputs[0]).shape;
    const Shape& new_shape = graph.tensor(*op.inputs[0]).shape;
    const auto rank = static_cast<std::int64_t>(old_shape.size());
    auto list = [&](const char* name) -> std::vector<std::int64_t>* {
      const auto found = op.attributes.find(name);
      if (found == op.attributes.end()) return nullptr;
      if (const auto* only = std::get_if<std::int64_t>(&found->second))
        found->second = std::vector<std::int64_t>{*only};  // one may stand for a list
      return std::get_if<std::vector<std::int64_t>>(&found->second);
    };
    auto dimension = [&](std::int64_t axis) {
      return static_cast<std::size_t>(axis < 0 ? axis + rank : axis);
    };
    if (std::int64_t* turned = number("rotary_embedding_dim"); turned != nullptr && rank == 4)
      *turned = *turned * new_shape[3] / old_shape[3];
    if (std::vector<std::int64_t>* split = list("split")) {
      const std::int64_t* axis = number("axis");
      const std::size_t d = dimension(axis == nullptr ? 0 : *axis);
      for (std::size_t r = 0; r < split->size() && r < op.outputs.size(); ++r)
        (*split)[r] = graph.tensor(op.outputs[r]).shape[d];
    }
    if (std::vector<std::int64_t>* starts = list("starts")) {
      std::vector<std::int64_t>* ends = list("ends");
      const std::vector<std::int64_t>* axes = list("axes");
      for (std::size_t i = 0; i < starts->size(); ++i) {
        const std::size_t d = axes != nullptr && i < axes->size() ? dimension((*axes)[i]) : i;
        if (d >= old_shape.size() || ends == nullptr || i >= ends->size()) continue;
        scale_range((*starts)[i], (*ends)[i], old_shape[d], new_shape[d]);
      }
    }
  }

  /// The same share of a dimension of `size` that shrinks to `now`: at least one position where
  /// there was one, and not from the start what was not.
  static void scale_range(std::int64_t& start,
                          std::int64_t& end,
                          std::int64_t size,
                          std::int64_t now) {
    const auto from_start = [&](std::int64_t position) {
      return position < 0 ? std::max<std::int64_t>(position + size, 0) : position;
    };
    const std::int64_t first = from_start(start);
    const std::int64_t last = std::min(from_start(end), size);
    if (first >= last || now < 1) {  // nothing, or backwards
      if (start <= size && start >= -size) start = start * now / size;
      if (end <= size && end >= -size) end = end * now / size;
      return;
    }
    start = first == 0 ? 0
                       : std::clamp<std::int64_t>(
                             first * now / size, 1, std::max<std::int64_t>(now - 1, 1));
    start = std::min(start, now - 1);
    end = std::max(last * now / size, start + 1);
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
  std::vector<Dimensions> dimensions_;     ///< per tensor
  std::vector<std::vector<int>> factors_;  ///< per operator and factor of its rule
  std::map<std::size_t, bool> scaled_;     ///< operators whose stiff parts were divided
  std::map<const Rule*, std::vector<std::pair<OperatorSpec, TypedOperator>>> typed_;
};

}  // namespace

Result<Graph> shrink_graph(const Graph& graph, const std::vector<std::vector<Pieces>>& pieces) {
  MESHPLAN_CHECK(pieces.size() == graph.tensors.size());
  return Shrinker(graph, pieces).run();
}

}  // namespace meshplan

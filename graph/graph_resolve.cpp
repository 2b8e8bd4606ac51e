// SPDX-License-Identifier: Apache-2.0
// From the graph document to the Graph, in phases that each take near-linear time:
//   1. values of the dimensions; sizes of all tensors that are given
//   2. names -> numbers: who makes and who reads each tensor
//   3. topological order (Kahn's algorithm, ties by the operators' names)
//   4. types: each distinct operator (type, attributes, operand types) is inferred once
//   5. for inference: losses and what only they need are dropped
//   6. the Graph, its tensors numbered: sources by name, then results in operator order
//   7. gradients: forward from trainable parameters, backward from losses
#include <algorithm>
#include <functional>
#include <queue>
#include <set>
#include <span>
#include <unordered_map>
#include <utility>

#include "graph/dimension_sizes.h"
#include "graph/dynamic_dimensions.h"
#include "graph/graph_document.h"
#include "graph/json.h"
#include "graph/operator_table.h"
#include "lib/check.h"
#include "lib/nearest_name.h"

namespace meshplan {
namespace {

/// Attributes that hold sizes and positions: texts in them are names or products of dimensions.
constexpr std::string_view kSizeAttributes[] = {"axes",
                                                "delta",
                                                "depth",
                                                "ends",
                                                "groups",
                                                "k",
                                                "limit",
                                                "num_experts",
                                                "pads",
                                                "repeats",
                                                "shape",
                                                "size",
                                                "sizes",
                                                "split",
                                                "start",
                                                "starts",
                                                "steps"};

Error placed(Error error, std::string where) {
  error.where = std::move(where);
  return error;
}

/// A tensor while the graph is being built; `given` is absent for a result that only an operator
/// names.
struct TensorState {
  std::string_view name;
  const TensorDocument* given = nullptr;
  std::optional<std::uint32_t> producer;
  std::vector<std::uint32_t> readers;  ///< operators, in document order, once per operand
  std::optional<Shape> shape;          ///< given or inferred
  std::optional<DType> dtype;
  bool loss = false;
};

struct OperatorState {
  std::vector<std::optional<std::uint32_t>> inputs;
  std::vector<std::uint32_t> outputs;
  Attributes attributes;
  std::shared_ptr<const Rule> rule;
  bool dropped = false;
};

class Resolver {
 public:
  /// `places` of the operators in the file; none where they stand as in `document`.
  Resolver(const GraphDocument& document,
           const GraphOptions& options,
           std::span<const std::uint32_t> places)
      : doc_(document), options_(options), places_(places) {}

  Result<Graph> run();

 private:
  Result<void> declare_tensors();
  Result<void> declare_types();
  Result<void> link_operators();
  Result<void> link_outputs();
  Result<void> check_roles() const;
  Result<void> sort_operators();
  Error cycle_error(const std::vector<std::uint32_t>& missing) const;
  Result<void> infer_types();
  Result<void> infer_types_of(std::uint32_t op);
  Result<const TypedOperator*> typed_operator(std::uint32_t op, const OperatorSpec& spec);
  Result<std::vector<TensorType>> given_types(std::uint32_t op) const;
  Result<void> resolve_attributes(std::uint32_t op);
  template <class Where>
  Result<Attribute> resolve_list(const std::vector<Size>& list,
                                 bool sizes,
                                 const Where& where) const;
  Result<void> accept_result(std::uint32_t op,
                             std::size_t i,
                             const TensorType& type,
                             bool any_float);
  std::vector<bool> may_drop() const;
  void drop_losses();
  Result<Graph> build() const;

  std::string operator_place(std::uint32_t op) const {
    return doc_.file + ": /operators/" + std::to_string(places_.empty() ? op : places_[op]);
  }
  std::string tensor_place(std::string_view name) const {
    return doc_.file + ": /tensors/" + json_pointer_part(name);
  }
  std::string about(std::uint32_t op) const {
    return "operator " + json_quote(doc_.operators[op].name) + " (" + doc_.operators[op].type + ")";
  }

  const GraphDocument& doc_;
  const GraphOptions& options_;
  std::span<const std::uint32_t> places_;
  DimensionSizes sizes_;
  std::vector<TensorState> tensors_;
  std::unordered_map<std::string_view, std::uint32_t> tensor_by_name_;
  std::unordered_map<std::string_view, const OperatorTypeDocument*> types_;
  std::vector<OperatorState> operators_;
  std::vector<std::uint32_t> order_;    ///< operators, topological
  std::vector<std::uint32_t> outputs_;  ///< tensors
  std::unordered_map<std::string, TypedOperator> typed_;
};

Result<void> Resolver::declare_tensors() {
  tensors_.reserve(doc_.tensors.size() + doc_.operators.size());
  tensor_by_name_.reserve(doc_.tensors.size() + doc_.operators.size());
  for (const TensorDocument& given : doc_.tensors) {
    const auto id = static_cast<std::uint32_t>(tensors_.size());
    if (!tensor_by_name_.emplace(given.name, id).second) {
      return fail(ErrorCode::kDuplicate, tensor_place(given.name), "the tensor is declared twice");
    }
    TensorState tensor;
    tensor.name = given.name;
    tensor.given = &given;
    tensor.dtype = given.dtype;
    tensor.loss = given.role == Role::kLoss;
    if (given.shape) {
      tensor.shape.emplace();
      for (std::size_t i = 0; i < given.shape->size(); ++i) {
        const auto where = [&] { return tensor_place(given.name) + "/shape/" + std::to_string(i); };
        const Result<std::int64_t> size = sizes_.evaluate((*given.shape)[i]);
        if (!size) return fail(placed(size.error(), where()));
        if (*size < 1) {
          return fail(ErrorCode::kValue,
                      where(),
                      "expected a size of at least 1, found " + std::to_string(*size));
        }
        tensor.shape->push_back(*size);
      }
      const auto bytes = tensor_bytes(*tensor.shape, given.dtype.value_or(DType::kBool));
      if (!bytes) return fail(placed(bytes.error(), tensor_place(given.name) + "/shape"));
    }
    tensors_.push_back(std::move(tensor));
  }
  return {};
}

bool is_built_in(const std::string& type) {
  const auto types = operator_types();
  return std::binary_search(types.begin(), types.end(), type);
}

Result<void> Resolver::declare_types() {
  for (const OperatorTypeDocument& type : doc_.operator_types) {
    const std::string where = doc_.file + ": /operator_types/" + json_pointer_part(type.name);
    if (is_built_in(type.name) || type.name == kRedistributeType) {
      return fail(ErrorCode::kDuplicate,
                  where,
                  "the type is built in; a rule of your own needs another name");
    }
    if (!types_.emplace(type.name, &type).second) {
      return fail(ErrorCode::kDuplicate, where, "the type is declared twice");
    }
  }
  return {};
}

Result<void> Resolver::link_operators() {
  operators_.resize(doc_.operators.size());
  std::unordered_map<std::string_view, std::uint32_t> by_name;
  by_name.reserve(doc_.operators.size());
  for (std::uint32_t o = 0; o < doc_.operators.size(); ++o) {
    const OperatorDocument& op = doc_.operators[o];
    const auto [first, fresh] = by_name.emplace(op.name, o);
    if (!fresh) {
      return fail(ErrorCode::kDuplicate,
                  operator_place(o) + "/name",
                  "operator " + json_quote(op.name) + " is declared twice, first at /operators/" +
                      std::to_string(places_.empty() ? first->second : places_[first->second]));
    }
    for (std::size_t i = 0; i < op.outputs.size(); ++i) {
      const auto id = static_cast<std::uint32_t>(tensors_.size());
      const auto [found, added] = tensor_by_name_.emplace(op.outputs[i], id);
      if (added) {
        tensors_.emplace_back();
        tensors_.back().name = op.outputs[i];
      }
      TensorState& tensor = tensors_[found->second];
      const auto where = [&] { return operator_place(o) + "/outputs/" + std::to_string(i); };
      if (tensor.producer) {
        return fail(ErrorCode::kDuplicate,
                    where(),
                    "tensor " + json_quote(tensor.name) + " is made twice: by operator " +
                        json_quote(doc_.operators[*tensor.producer].name) + " and by operator " +
                        json_quote(op.name));
      }
      const Role role = tensor.given == nullptr ? Role::kActivation : tensor.given->role;
      if (role != Role::kActivation && role != Role::kLoss) {
        return fail(ErrorCode::kConflict,
                    where(),
                    "tensor " + json_quote(tensor.name) + " has the role \"" + role_name(role) +
                        "\", which no operator may make");
      }
      tensor.producer = o;
      operators_[o].outputs.push_back(found->second);
    }
  }
  for (std::uint32_t o = 0; o < doc_.operators.size(); ++o) {
    const OperatorDocument& op = doc_.operators[o];
    for (std::size_t i = 0; i < op.inputs.size(); ++i) {
      if (op.inputs[i].empty()) {
        operators_[o].inputs.emplace_back();
        continue;
      }
      const auto found = tensor_by_name_.find(op.inputs[i]);
      if (found == tensor_by_name_.end()) {
        std::vector<std::string> known;
        for (const TensorState& tensor : tensors_) known.emplace_back(tensor.name);
        return fail(ErrorCode::kMissing,
                    operator_place(o) + "/inputs/" + std::to_string(i),
                    "tensor " + json_quote(op.inputs[i]) + " is not declared" +
                        nearest_name_hint(op.inputs[i], known));
      }
      tensors_[found->second].readers.push_back(o);
      operators_[o].inputs.emplace_back(found->second);
    }
  }
  return {};
}

Result<void> Resolver::link_outputs() {
  if (!doc_.outputs) return {};
  std::set<std::uint32_t> seen;
  for (std::size_t i = 0; i < doc_.outputs->size(); ++i) {
    const std::string& name = (*doc_.outputs)[i];
    const std::string where = doc_.file + ": /outputs/" + std::to_string(i);
    const auto found = tensor_by_name_.find(name);
    if (found == tensor_by_name_.end()) {
      std::vector<std::string> known;
      for (const TensorState& tensor : tensors_) known.emplace_back(tensor.name);
      return fail(
          ErrorCode::kMissing,
          where,
          "tensor " + json_quote(name) + " is not declared" + nearest_name_hint(name, known));
    }
    if (!seen.insert(found->second).second) {
      return fail(ErrorCode::kDuplicate, where, "tensor " + json_quote(name) + " is named twice");
    }
    outputs_.push_back(found->second);
  }
  return {};
}

Result<void> Resolver::check_roles() const {
  for (const TensorState& tensor : tensors_) {
    if (tensor.producer) continue;
    const Role role = tensor.given->role;  // a tensor without a producer is a declared one
    if (role == Role::kActivation || role == Role::kLoss) {
      return fail(ErrorCode::kMissing,
                  tensor_place(tensor.name),
                  std::string("no operator makes this ") + role_name(role) +
                      "; give it the role \"input\", \"parameter\", \"constant\" or \"state\", or "
                      "name it in an operator's outputs");
    }
    for (const auto& [key, known] : {std::pair{"shape", tensor.shape.has_value()},
                                     std::pair{"dtype", tensor.dtype.has_value()}}) {
      if (known) continue;
      return fail(ErrorCode::kMissing,
                  tensor_place(tensor.name),
                  std::string("the key \"") + key + "\" is missing; a tensor of role \"" +
                      role_name(role) + "\" needs it");
    }
    if (role == Role::kParameter && tensor.given->trainable && options_.training &&
        !is_floating(*tensor.dtype)) {
      return fail(ErrorCode::kConflict,
                  tensor_place(tensor.name) + "/dtype",
                  std::string("a parameter of dtype ") + dtype_name(*tensor.dtype) +
                      " cannot be trained; give it \"trainable\": false");
    }
  }
  return {};
}

Result<void> Resolver::sort_operators() {
  const std::size_t count = doc_.operators.size();
  std::vector<std::uint32_t> by_name(count);
  for (std::uint32_t o = 0; o < count; ++o) by_name[o] = o;
  std::sort(by_name.begin(), by_name.end(), [&](std::uint32_t a, std::uint32_t b) {
    return doc_.operators[a].name < doc_.operators[b].name;
  });
  std::vector<std::uint32_t> rank(count);
  for (std::uint32_t r = 0; r < count; ++r) rank[by_name[r]] = r;

  std::vector<std::uint32_t> missing(count, 0);  // operands not made yet
  std::priority_queue<std::uint32_t, std::vector<std::uint32_t>, std::greater<>> ready;
  for (std::uint32_t o = 0; o < count; ++o) {
    for (const auto& input : operators_[o].inputs) {
      if (input && tensors_[*input].producer) ++missing[o];
    }
    if (missing[o] == 0) ready.push(rank[o]);
  }
  order_.reserve(count);
  while (!ready.empty()) {
    const std::uint32_t o = by_name[ready.top()];
    ready.pop();
    order_.push_back(o);
    for (const std::uint32_t output : operators_[o].outputs) {
      for (const std::uint32_t reader : tensors_[output].readers) {
        if (--missing[reader] == 0) ready.push(rank[reader]);
      }
    }
  }
  if (order_.size() < count) return fail(cycle_error(missing));
  return {};
}

/// Walks from an unsorted operator to an unsorted producer of its operands until one comes twice.
Error Resolver::cycle_error(const std::vector<std::uint32_t>& missing) const {
  std::uint32_t at = 0;
  while (missing[at] == 0) ++at;
  std::vector<std::uint32_t> path;
  std::vector<bool> seen(missing.size());
  while (!seen[at]) {
    seen[at] = true;
    path.push_back(at);
    for (const auto& input : operators_[at].inputs) {
      if (!input || !tensors_[*input].producer || missing[*tensors_[*input].producer] == 0)
        continue;
      at = *tensors_[*input].producer;
      break;
    }
  }
  std::vector<std::uint32_t> cycle(std::find(path.begin(), path.end(), at), path.end());
  std::reverse(cycle.begin(), cycle.end());  // in the direction of the data
  std::rotate(cycle.begin(), std::min_element(cycle.begin(), cycle.end()), cycle.end());
  constexpr std::size_t kShown = 10;
  std::string names;
  for (std::size_t i = 0; i < cycle.size() && i < kShown; ++i) {
    names += json_quote(doc_.operators[cycle[i]].name) + " -> ";
  }
  if (cycle.size() > kShown) {
    names += "... (" + std::to_string(cycle.size() - kShown) + " more) -> ";
  }
  return {ErrorCode::kValue,
          operator_place(cycle.front()),
          "the operators form a cycle: " + names + json_quote(doc_.operators[cycle.front()].name)};
}

template <class Where>
Result<Attribute> Resolver::resolve_list(const std::vector<Size>& list,
                                         bool sizes,
                                         const Where& where) const {
  const auto is_text = [](const Size& size) { return std::holds_alternative<std::string>(size); };
  const bool all_texts = !list.empty() && std::all_of(list.begin(), list.end(), is_text);
  if (!sizes && all_texts) {
    std::vector<std::string> texts;
    for (const Size& size : list) texts.push_back(std::get<std::string>(size));
    return Attribute(std::move(texts));
  }
  std::vector<std::int64_t> numbers;
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (!sizes && is_text(list[i])) {
      return fail(ErrorCode::kType, where(), "a list holds either numbers or texts, not both");
    }
    const Result<std::int64_t> number = sizes_.evaluate(list[i]);
    if (!number) return fail(placed(number.error(), where() + "/" + std::to_string(i)));
    numbers.push_back(*number);
  }
  return Attribute(std::move(numbers));
}

Result<void> Resolver::resolve_attributes(std::uint32_t op) {
  for (const auto& [name, given] : doc_.operators[op].attributes) {
    const bool sizes = std::find(std::begin(kSizeAttributes), std::end(kSizeAttributes), name) !=
                       std::end(kSizeAttributes);
    const auto where = [&, key = &name] {
      return operator_place(op) + "/attributes/" + json_pointer_part(*key);
    };
    Attribute value;
    if (const auto* list = std::get_if<std::vector<Size>>(&given)) {
      Result<Attribute> resolved = resolve_list(*list, sizes, where);
      if (!resolved) return fail(resolved.error());
      value = *std::move(resolved);
    } else if (const auto* text = std::get_if<std::string>(&given); text != nullptr && sizes) {
      const Result<std::int64_t> number = sizes_.evaluate(*text);
      if (!number) return fail(placed(number.error(), where()));
      value = *number;
    } else if (text != nullptr) {
      value = *text;
    } else if (const auto* integer = std::get_if<std::int64_t>(&given)) {
      value = *integer;
    } else if (const auto* real = std::get_if<double>(&given)) {
      value = *real;
    } else {
      value = std::get<std::vector<double>>(given);
    }
    operators_[op].attributes.emplace(name, std::move(value));
  }
  return {};
}

/// A text that is equal for operators with equal rules and results.
class TypeKey {
 public:
  explicit TypeKey(const OperatorSpec& spec) {
    text(spec.type);
    text(spec.rule);
    text(spec.flops);
    number(spec.output_count);
    for (const auto& [name, value] : spec.attributes) {
      text(name);
      number(static_cast<std::int64_t>(value.index()));
      std::visit([&](const auto& v) { add(v); }, value);
    }
    number(-1);
    for (const auto& input : spec.inputs) {
      number(input ? 1 : 0);
      if (input) type(*input);
    }
  }
  void type(const TensorType& tensor) {
    number(static_cast<std::int64_t>(tensor.dtype));
    add(tensor.shape);
  }
  std::string take() { return std::move(key_); }

 private:
  void number(std::int64_t n) { key_.append(reinterpret_cast<const char*>(&n), sizeof n); }
  void text(const std::string& t) {
    number(static_cast<std::int64_t>(t.size()));
    key_ += t;
  }
  void add(std::int64_t n) { number(n); }
  void add(double d) { key_.append(reinterpret_cast<const char*>(&d), sizeof d); }
  void add(const std::string& t) { text(t); }
  template <class Item>
  void add(const std::vector<Item>& items) {
    number(static_cast<std::int64_t>(items.size()));
    for (const Item& item : items) add(item);
  }

  std::string key_;
};

/// The types that the document gives for the results of an operator that nothing is known about.
Result<std::vector<TensorType>> Resolver::given_types(std::uint32_t op) const {
  std::vector<TensorType> types;
  for (const std::uint32_t output : operators_[op].outputs) {
    const TensorState& tensor = tensors_[output];
    if (!tensor.shape || !tensor.dtype) {
      return fail(ErrorCode::kMissing,
                  tensor_place(tensor.name),
                  about(op) + " is of an unknown type, so its result " + json_quote(tensor.name) +
                      " needs a shape and a dtype here");
    }
    types.push_back({*tensor.shape, *tensor.dtype});
  }
  return types;
}

Result<const TypedOperator*> Resolver::typed_operator(std::uint32_t op, const OperatorSpec& spec) {
  const OperatorDocument& given = doc_.operators[op];
  const bool unknown = spec.rule.empty() && !is_built_in(spec.type);
  TypeKey key(spec);
  std::vector<TensorType> outputs;
  if (unknown && options_.replicate_unknown) {
    Result<std::vector<TensorType>> types = given_types(op);
    if (!types) return fail(types.error());
    outputs = *std::move(types);
    for (const TensorType& type : outputs) key.type(type);
  }
  std::string text = key.take();
  const auto cached = typed_.find(text);
  if (cached != typed_.end()) return &cached->second;
  if (unknown && options_.replicate_unknown) {
    return &typed_.emplace(std::move(text), replicated_operator(spec, std::move(outputs)))
                .first->second;
  }
  Result<TypedOperator> typed = infer_operator(spec);
  if (!typed) {
    Error error = typed.error();
    error.where = operator_place(op) + (unknown ? "/type" : "");
    if (unknown) {
      const auto built_in = operator_types();
      std::vector<std::string> known(built_in.begin(), built_in.end());
      for (const OperatorTypeDocument& type : doc_.operator_types) known.push_back(type.name);
      const std::string hint = nearest_name_hint(given.type, known);
      error.message = "operator type " + json_quote(given.type) + " is not known" +
                      (hint.empty() ? "." : hint) +
                      " Declare it with a rule, in the operator (\"rule\": \"b s h, h f -> b s f ; "
                      "sum:h\") or under \"operator_types\", or accept it as replicated with "
                      "--unknown-operators replicate";
    }
    error.message = "operator " + json_quote(given.name) +
                    (unknown ? "" : " (" + given.type + ")") + ": " + error.message;
    return fail(std::move(error));
  }
  return &typed_.emplace(std::move(text), *std::move(typed)).first->second;
}

std::string shape_text(const Shape& shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  }
  return text + "]";
}

/// Joins what is given of result `i` with what is inferred.
Result<void> Resolver::accept_result(std::uint32_t op,
                                     std::size_t i,
                                     const TensorType& type,
                                     bool any_float) {
  TensorState& tensor = tensors_[operators_[op].outputs[i]];
  if (tensor.shape && *tensor.shape != type.shape) {
    return fail(ErrorCode::kValue,
                tensor_place(tensor.name) + "/shape",
                "the shape given is " + shape_text(*tensor.shape) + ", but " + about(op) +
                    " makes " + shape_text(type.shape));
  }
  if (tensor.dtype && *tensor.dtype != type.dtype &&
      !(any_float && is_floating(*tensor.dtype) && is_floating(type.dtype))) {
    return fail(ErrorCode::kValue,
                tensor_place(tensor.name) + "/dtype",
                std::string("the dtype given is ") + dtype_name(*tensor.dtype) + ", but " +
                    about(op) + " makes " + dtype_name(type.dtype));
  }
  tensor.shape = type.shape;
  if (!tensor.dtype) tensor.dtype = type.dtype;
  const auto where = [&] { return operator_place(op) + "/outputs/" + std::to_string(i); };
  if (std::any_of(type.shape.begin(), type.shape.end(), [](std::int64_t s) { return s < 1; })) {
    return fail(ErrorCode::kValue,
                where(),
                about(op) + " makes a tensor of shape " + shape_text(type.shape) +
                    "; every size must be at least 1");
  }
  if (const auto bytes = tensor_bytes(*tensor.shape, *tensor.dtype); !bytes) {
    return fail(placed(bytes.error(), where()));
  }
  if (tensor.loss && !is_floating(*tensor.dtype)) {
    return fail(
        ErrorCode::kConflict,
        tensor_place(tensor.name) + "/role",
        std::string("a loss has a floating type, this one is ") + dtype_name(*tensor.dtype));
  }
  return {};
}

Result<void> Resolver::infer_types_of(std::uint32_t op) {
  const OperatorDocument& given = doc_.operators[op];
  if (auto ok = resolve_attributes(op); !ok) return ok;
  OperatorSpec spec;
  spec.type = given.type;
  spec.rule = given.rule;
  spec.flops = given.flops;
  if (!given.rule.empty() && is_built_in(given.type)) {
    return fail(ErrorCode::kConflict,
                operator_place(op) + "/rule",
                "the type " + json_quote(given.type) +
                    " is built in and has its rule; a rule of your own needs another type name, "
                    "for example \"Custom\"");
  }
  if (const auto type = types_.find(given.type); given.rule.empty() && type != types_.end()) {
    spec.rule = type->second->rule;
    spec.flops = given.flops.empty() ? type->second->flops : given.flops;
  }
  if (spec.rule.empty() && !given.flops.empty()) {
    return fail(ErrorCode::kConflict,
                operator_place(op) + "/flops",
                "\"flops\" is an expression over the factors of a rule, and there is no \"rule\"");
  }
  spec.attributes = operators_[op].attributes;
  spec.output_count = static_cast<int>(given.outputs.size());
  for (const auto& input : operators_[op].inputs) {
    if (!input) {
      spec.inputs.emplace_back();
    } else {
      spec.inputs.push_back(TensorType{*tensors_[*input].shape, *tensors_[*input].dtype});
    }
  }
  const Result<const TypedOperator*> found = typed_operator(op, spec);
  if (!found) return fail(found.error());
  const TypedOperator* typed = *found;
  if (typed->outputs.size() != given.outputs.size()) {
    return fail(ErrorCode::kValue,
                operator_place(op) + "/outputs",
                about(op) + " makes " + std::to_string(typed->outputs.size()) + " tensors, but " +
                    std::to_string(given.outputs.size()) + " are named");
  }
  operators_[op].rule = typed->rule;
  for (std::size_t i = 0; i < typed->outputs.size(); ++i) {
    if (auto ok = accept_result(op, i, typed->outputs[i], typed->any_floating_result); !ok) {
      return ok;
    }
  }
  return {};
}

Result<void> Resolver::infer_types() {
  for (const std::uint32_t op : order_) {
    if (auto ok = infer_types_of(op); !ok) return ok;
  }
  return {};
}

/// Which operators may go with the losses. Where the document names other outputs, what these do
/// not need: all may. Where it names none, the model ends with its last parameters; behind them
/// only what makes a loss, or depends on inputs that the model does not see (labels), may go.
std::vector<bool> Resolver::may_drop() const {
  if (!outputs_.empty()) return std::vector<bool>(operators_.size(), true);
  enum : std::uint8_t { kFromModel = 1, kFromElsewhere = 2 };
  std::vector<bool> model(
      operators_.size());  // leads to an operator that reads a parameter, or is one
  for (auto at = order_.rbegin(); at != order_.rend(); ++at) {
    const OperatorState& op = operators_[*at];
    model[*at] = std::any_of(op.inputs.begin(), op.inputs.end(), [&](const auto& input) {
      return input && !tensors_[*input].producer &&
             tensors_[*input].given->role == Role::kParameter;
    });
    for (const std::uint32_t output : op.outputs) {
      for (const std::uint32_t reader : tensors_[output].readers) {
        if (model[reader]) model[*at] = true;
      }
    }
  }
  std::vector<std::uint8_t> origin(operators_.size());
  std::vector<bool> may(operators_.size());
  for (const std::uint32_t o : order_) {
    if (model[o]) {
      origin[o] = kFromModel;
      continue;
    }
    for (const auto& input : operators_[o].inputs) {
      if (!input) continue;
      const TensorState& tensor = tensors_[*input];
      if (tensor.producer) {
        origin[o] |= origin[*tensor.producer];
      } else if (tensor.given->role == Role::kInput) {
        origin[o] |= kFromElsewhere;
      }
    }
    may[o] = origin[o] != kFromModel;
    for (const std::uint32_t output : operators_[o].outputs) {
      if (tensors_[output].loss) may[o] = true;
    }
  }
  if (std::find(model.begin(), model.end(), true) == model.end()) {  // no parameters: losses alone
    for (std::uint32_t o = 0; o < operators_.size(); ++o) {
      const auto& outputs = operators_[o].outputs;
      may[o] =
          std::any_of(outputs.begin(), outputs.end(), [&](auto t) { return tensors_[t].loss; });
    }
  }
  return may;
}

/// Marks, from the end backwards, every operator that may go and all of whose results are losses or
/// are read by dropped operators only (and by at least one: a result that nobody reads was no part
/// of a loss).
void Resolver::drop_losses() {
  std::erase_if(outputs_, [&](std::uint32_t output) { return tensors_[output].loss; });
  const std::vector<bool> may = may_drop();
  std::vector<bool> is_output(tensors_.size());
  for (const std::uint32_t output : outputs_) is_output[output] = true;
  for (auto at = order_.rbegin(); at != order_.rend(); ++at) {
    OperatorState& op = operators_[*at];
    op.dropped =
        may[*at] && std::all_of(op.outputs.begin(), op.outputs.end(), [&](std::uint32_t output) {
          const TensorState& tensor = tensors_[output];
          const bool unread =
              std::all_of(tensor.readers.begin(), tensor.readers.end(), [&](std::uint32_t reader) {
                return operators_[reader].dropped;
              });
          return unread && !is_output[output] && (tensor.loss || !tensor.readers.empty());
        });
  }
}

/// True for a tensor that is read by dropped operators and by no other.
bool only_dropped_read(const TensorState& tensor, const std::vector<OperatorState>& operators) {
  return !tensor.readers.empty() &&
         std::all_of(tensor.readers.begin(), tensor.readers.end(), [&](std::uint32_t reader) {
           return operators[reader].dropped;
         });
}

/// Tensors that carry a value from a trainable parameter and whose value reaches a seed.
void find_gradients(Graph& graph) {
  std::vector<bool> from_parameter(graph.tensors.size());
  std::vector<bool> to_seed(graph.tensors.size());
  bool has_loss = false;
  for (std::size_t t = 0; t < graph.tensors.size(); ++t) {
    const Tensor& tensor = graph.tensors[t];
    from_parameter[t] = tensor.trainable && is_floating(tensor.dtype);
    to_seed[t] = tensor.role == Role::kLoss;
    has_loss = has_loss || to_seed[t];
  }
  if (!has_loss) {
    for (const TensorId output : graph.outputs) {
      to_seed[index(output)] = is_floating(graph.tensor(output).dtype);
    }
  }
  for (const Operator& op : graph.operators) {
    const bool reached = std::any_of(op.inputs.begin(), op.inputs.end(), [&](const auto& input) {
      return input && from_parameter[index(*input)];
    });
    for (const TensorId output : op.outputs) {
      from_parameter[index(output)] = reached && is_floating(graph.tensor(output).dtype);
    }
  }
  for (auto op = graph.operators.rbegin(); op != graph.operators.rend(); ++op) {
    const bool reaches = std::any_of(op->outputs.begin(), op->outputs.end(), [&](TensorId output) {
      return to_seed[index(output)];
    });
    if (!reaches) continue;
    for (const auto& input : op->inputs) {
      if (input && is_floating(graph.tensor(*input).dtype)) to_seed[index(*input)] = true;
    }
  }
  for (std::size_t t = 0; t < graph.tensors.size(); ++t) {
    graph.tensors[t].has_gradient = from_parameter[t] && to_seed[t];
  }
}

Result<Graph> Resolver::build() const {
  Graph graph;
  graph.name = doc_.name;
  graph.fingerprint = fingerprint(doc_);
  graph.training = options_.training;

  // numbers: sources by name, then results in operator order
  std::vector<std::uint32_t> numbered;
  for (std::uint32_t t = 0; t < tensors_.size(); ++t) {
    if (!tensors_[t].producer && !only_dropped_read(tensors_[t], operators_)) numbered.push_back(t);
  }
  std::sort(numbered.begin(), numbered.end(), [&](std::uint32_t a, std::uint32_t b) {
    return tensors_[a].name < tensors_[b].name;
  });
  for (const std::uint32_t o : order_) {
    if (operators_[o].dropped) continue;
    numbered.insert(numbered.end(), operators_[o].outputs.begin(), operators_[o].outputs.end());
  }
  std::vector<TensorId> id_of(tensors_.size());
  graph.tensors.reserve(numbered.size());
  for (const std::uint32_t t : numbered) {
    id_of[t] = static_cast<TensorId>(graph.tensors.size());
    const TensorState& state = tensors_[t];
    Tensor tensor;
    tensor.name = state.name;
    tensor.shape = *state.shape;
    tensor.dtype = *state.dtype;
    if (state.given != nullptr) tensor.role = state.given->role;
    if (tensor.role == Role::kLoss && !options_.training) tensor.role = Role::kActivation;
    tensor.trainable = tensor.role == Role::kParameter && state.given->trainable;
    graph.tensors.push_back(std::move(tensor));
  }
  for (const std::uint32_t o : order_) {
    const OperatorState& state = operators_[o];
    if (state.dropped) continue;
    const auto id = static_cast<OperatorId>(graph.operators.size());
    Operator op;
    op.name = doc_.operators[o].name;
    op.type = doc_.operators[o].type;
    op.scope = doc_.operators[o].scope;
    op.attributes = state.attributes;
    op.rule = state.rule;
    for (std::size_t i = 0; i < state.inputs.size(); ++i) {
      op.inputs.emplace_back();
      if (!state.inputs[i]) continue;
      op.inputs.back() = id_of[*state.inputs[i]];
      graph.tensors[index(*op.inputs.back())].uses.push_back({id, static_cast<int>(i)});
    }
    for (const std::uint32_t output : state.outputs) {
      op.outputs.push_back(id_of[output]);
      graph.tensors[index(id_of[output])].producer = id;
    }
    graph.operators.push_back(std::move(op));
  }
  for (const std::uint32_t output : outputs_) graph.outputs.push_back(id_of[output]);
  if (graph.outputs.empty() && (!doc_.outputs || !options_.training)) {
    // every result that nobody reads
    for (std::size_t t = 0; t < graph.tensors.size(); ++t) {
      const Tensor& tensor = graph.tensors[t];
      if (tensor.producer && tensor.uses.empty()) graph.outputs.push_back(static_cast<TensorId>(t));
    }
  }
  return graph;
}

Result<Graph> Resolver::run() {
  Result<DimensionSizes> sizes = DimensionSizes::make(doc_, options_.microbatches);
  if (!sizes) return fail(sizes.error());
  sizes_ = *std::move(sizes);
  if (auto ok = declare_tensors(); !ok) return fail(ok.error());
  if (auto ok = declare_types(); !ok) return fail(ok.error());
  if (auto ok = link_operators(); !ok) return fail(ok.error());
  if (auto ok = link_outputs(); !ok) return fail(ok.error());
  if (auto ok = check_roles(); !ok) return fail(ok.error());
  if (auto ok = sort_operators(); !ok) return fail(ok.error());
  if (auto ok = infer_types(); !ok) return fail(ok.error());
  if (!options_.training) drop_losses();
  Result<Graph> graph = build();
  if (!graph) return graph;
  if (graph->operators.empty()) {
    return fail(ErrorCode::kValue,
                doc_.file + ": /operators",
                doc_.operators.empty()
                    ? "the graph has no operators"
                    : "in inference mode nothing is left: everything serves the loss");
  }
  if (options_.training) find_gradients(*graph);
  return graph;
}

}  // namespace

Result<Graph> resolve(const GraphDocument& document, const GraphOptions& options) {
  const auto resolve_at = [&](const GraphDocument& sizes) -> Result<Graph> {
    const bool moves =
        std::any_of(sizes.operators.begin(), sizes.operators.end(), [](const OperatorDocument& op) {
          return op.type == kRedistributeType;
        });
    if (!moves) return Resolver(sizes, options, {}).run();
    const Result<PlainGraphDocument> plain = without_redistributions(sizes);
    if (!plain) return fail(plain.error());
    return Resolver(plain->document, options, plain->places).run();
  };
  Result<Graph> graph = resolve_at(document);
  if (graph) {
    if (auto limited = limit_cuts(*graph, document, options.microbatches, resolve_at); !limited)
      graph = fail(limited.error());
  }
  if (!graph) graph.error().message = one_line(graph.error().message);  // names may hold anything
  return graph;
}

Result<Graph> read_graph(std::string_view text,
                         const std::string& file,
                         const GraphOptions& options) {
  const Result<GraphDocument> document = read_graph_document(text, file);
  if (!document) return fail(document.error());
  return resolve(*document, options);
}

}  // namespace meshplan

// SPDX-License-Identifier: Apache-2.0
// The computation graph: tensors and operators of one optimizer step's forward pass, with every
// size resolved to a number. Built from a GraphDocument (graph_document.h) by resolve().
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "graph/dtype.h"
#include "graph/rule.h"

namespace meshplan {

using Shape = std::vector<std::int64_t>;

/// Index into Graph::tensors / Graph::operators.
enum class TensorId : std::uint32_t {};
enum class OperatorId : std::uint32_t {};
inline std::size_t index(TensorId id) { return static_cast<std::size_t>(id); }
inline std::size_t index(OperatorId id) { return static_cast<std::size_t>(id); }

enum class Role : std::uint8_t { kInput, kParameter, kConstant, kState, kLoss, kActivation };
/// "input", "parameter", "constant", "state", "loss", "activation".
const char* role_name(Role role);

/// An attribute with its dimension expressions resolved.
using Attribute = std::variant<std::int64_t,
                               double,
                               std::string,
                               std::vector<std::int64_t>,
                               std::vector<double>,
                               std::vector<std::string>>;
using Attributes = std::map<std::string, Attribute>;

/// Operand `operand` of operator `op` reads the tensor.
struct Use {
  OperatorId op{};
  int operand = 0;
  friend bool operator==(const Use&, const Use&) = default;
};

struct Tensor {
  std::string name;
  Shape shape;
  /// What cuts of each dimension must divide: the common part of its sizes at all sizes of the
  /// dynamic dimensions; empty: the shape.
  Shape units;
  const Shape& divisible() const { return units.empty() ? shape : units; }
  DType dtype = DType::kFp32;
  Role role = Role::kActivation;
  bool trainable = false;     ///< parameters only
  bool has_gradient = false;  ///< on a path from a trainable parameter to a loss (training)
  std::optional<OperatorId> producer;  ///< none for inputs, parameters, constants, states
  std::vector<Use> uses;               ///< in operator order
};

struct Operator {
  std::string name;
  std::string type;
  std::string scope;                            ///< dotted module path, may be empty
  std::vector<std::optional<TensorId>> inputs;  ///< an omitted optional operand is nullopt
  std::vector<TensorId> outputs;
  Attributes attributes;
  std::shared_ptr<const Rule> rule;  ///< never null; equal operators share one
};

/// Invariants: operators are in topological order, ties by name; every tensor has at most one
/// producer; shapes and dtypes satisfy the operators' rules; every size is >= 1; no product of
/// sizes of one tensor exceeds 2^62 bytes.
struct Graph {
  std::string name;
  std::string fingerprint;  ///< "sha256:..." of the document, independent of operator order
  std::vector<Tensor> tensors;
  std::vector<Operator> operators;
  std::vector<TensorId> outputs;
  bool training = true;

  const Tensor& tensor(TensorId id) const { return tensors[index(id)]; }
  const Operator& op(OperatorId id) const { return operators[index(id)]; }
};

/// Number of elements.
std::int64_t element_count(const Shape& shape);

}  // namespace meshplan

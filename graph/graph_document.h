// SPDX-License-Identifier: Apache-2.0
// The graph document, meshplan.graph/1.0, as its author wrote it: sizes may be named dimensions,
// types of activations may be left out. resolve() turns it into a Graph.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "graph/constraints.h"
#include "graph/graph.h"
#include "lib/result.h"

namespace meshplan {

/// A number, or a dimension's name or a product: 4096, "batch", "batch*seq", "2*batch".
using Size = std::variant<std::int64_t, std::string>;

/// A named size. `dynamic` sizes may change between steps within min..max, by multiple_of.
struct DimensionDocument {
  std::string name;
  std::int64_t size = 1;
  bool dynamic = false;
  std::optional<std::int64_t> min;
  std::optional<std::int64_t> max;
  std::optional<std::int64_t> multiple_of;
  friend bool operator==(const DimensionDocument&, const DimensionDocument&) = default;
};

struct TensorDocument {
  std::string name;
  std::optional<std::vector<Size>> shape;
  std::optional<DType> dtype;
  Role role = Role::kActivation;
  bool trainable = true;  ///< parameters only
  Placements placements;  ///< parameters, with a mesh: as it rests between steps; may be empty
  friend bool operator==(const TensorDocument&, const TensorDocument&) = default;
};

/// A list of numbers and texts is a vector<Size>; booleans are the integers 0 and 1.
using AttributeDocument =
    std::variant<std::int64_t, double, std::string, std::vector<Size>, std::vector<double>>;

struct OperatorDocument {
  std::string name;
  std::string type;
  std::vector<std::string> inputs;  ///< "" is an omitted optional operand
  std::vector<std::string> outputs;
  std::map<std::string, AttributeDocument> attributes;
  std::string scope;
  std::string rule;   ///< of an operator that no table knows
  std::string flops;  ///< expression over the rule's factors
  /// With a mesh, what every input and output must be; an input may be free. Both may be empty.
  std::vector<std::optional<Placements>> in_placements;
  std::vector<Placements> out_placements;
  friend bool operator==(const OperatorDocument&, const OperatorDocument&) = default;
};

/// A type declared once under "operator_types".
struct OperatorTypeDocument {
  std::string name;
  std::string rule;
  std::string flops;
  friend bool operator==(const OperatorTypeDocument&, const OperatorTypeDocument&) = default;
};

struct GraphDocument {
  std::string file;  ///< named in errors; not written
  std::string name;
  std::vector<DimensionDocument> dimensions;
  std::vector<TensorDocument> tensors;
  std::vector<OperatorDocument> operators;
  std::vector<OperatorTypeDocument> operator_types;
  /// Absent: every tensor that an operator makes and none reads.
  std::optional<std::vector<std::string>> outputs;
  /// Of a graph that was written with the strategies of a plan: what its placements refer to.
  std::optional<ConstraintMesh> mesh;
};

/// The type of the operators that mark where a plan redistributes a tensor. They compute nothing:
/// their result is their operand in another layout, and resolve() and fingerprint() see through
/// them.
inline constexpr std::string_view kRedistributeType = "Redistribute";

/// Reads a document. Errors: those of JsonDocument::parse; unknown and missing keys, wrong kinds,
/// unknown roles and dtypes, sizes below 1, each with file and JSON Pointer.
Result<GraphDocument> read_graph_document(std::string_view text, const std::string& file);

/// Writes a document that reads back as the same value, one line per dimension, tensor, operator.
std::string write_graph_document(const GraphDocument& document);

/// The document without its redistributions: what read their results reads what they moved.
struct PlainGraphDocument {
  GraphDocument document;
  std::vector<std::uint32_t> places;  ///< of its operators in the document with redistributions
};

/// Errors name the place: kConflict (a redistribution with more than one operand or result, or a
/// rule; a result that is declared as a tensor), kDuplicate (a result that is made twice), kValue
/// (redistributions in a circle).
Result<PlainGraphDocument> without_redistributions(const GraphDocument& document);

/// What the placements written into the document fix, for the operators and tensors that `graph`,
/// resolved from it, still has; nothing where there are none.
std::optional<Constraints> document_constraints(const GraphDocument& document, const Graph& graph);

/// "sha256:..." of what the document says; the same for any order of its tensors, operators,
/// dimensions and keys, for any white space, and with or without a plan's strategies.
std::string fingerprint(const GraphDocument& document);

struct GraphOptions {
  bool training = true;  ///< false: no gradients; losses and what only they need are dropped
  std::int64_t microbatches = 1;   ///< divides the dimension "batch"
  bool replicate_unknown = false;  ///< accept operators of unknown types as replicated
};

/// Evaluates every size, sorts the operators, infers and checks all types and finds out which
/// tensors have gradients. Errors name the place in the document's file: kMissing (an undeclared
/// tensor or dimension, a missing shape), kDuplicate (names, two producers), kValue (shapes that do
/// not fit, cycles, roles), kOverflow (products beyond 64 bits), kUnsupported (unknown operators).
Result<Graph> resolve(const GraphDocument& document, const GraphOptions& options);

/// read_graph_document and resolve.
Result<Graph> read_graph(std::string_view text,
                         const std::string& file,
                         const GraphOptions& options);

}  // namespace meshplan

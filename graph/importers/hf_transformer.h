// SPDX-License-Identifier: Apache-2.0
// Emits the operators of transformer models in the order of the data.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "graph/importers/document_builder.h"
#include "graph/importers/hf_config.h"
#include "graph/importers/hf_stack.h"

namespace meshplan {

/// What a stack reads beside its own input.
struct StackInput {
  std::string x;             ///< [batch, seq, hidden]
  std::string seq = "seq";   ///< the dimension of x
  std::string encoded = {};  ///< of an encoder, for cross-attention
  Size encoded_seq = "seq";
};

/// The building blocks that all models share. The graph's dimension `batch` is there from the
/// start.
class TransformerBuilder {
 public:
  TransformerBuilder(const HfConfig& config, const HfOptions& options, DType dtype);

  DocumentBuilder& out() { return out_; }
  DType dtype() const { return dtype_; }
  const HfOptions& options() const { return options_; }

  std::string parameter(const std::string& name, std::vector<Size> shape, bool trainable = true);
  std::string constant(const std::string& name, std::vector<Size> shape);
  /// A constant that several layers read: made the first time it is asked for.
  std::string shared_constant(const std::string& name, std::vector<Size> shape);
  /// Whether attention drops probabilities out.
  bool drops_attention() const { return drops_attention_; }
  /// x [.., in] -> [.., out].
  std::string linear(const std::string& name,
                     const std::string& scope,
                     const std::string& x,
                     std::int64_t in,
                     std::int64_t out,
                     bool bias);
  std::string norm(NormKind kind,
                   double epsilon,
                   const std::string& name,
                   const std::string& scope,
                   const std::string& x,
                   std::int64_t width);
  std::string activate(const HfActivation& activation,
                       const std::string& name,
                       const std::string& scope,
                       const std::string& x);
  /// Add, Mul, ... of two tensors.
  std::string binary(const char* type,
                     const std::string& name,
                     const std::string& scope,
                     const std::string& a,
                     const std::string& b);
  /// x times a number that stands as the constant `name`.factor.
  std::string scaled(const std::string& name, const std::string& scope, const std::string& x);
  /// softcap * tanh(x / softcap).
  std::string softcapped(const std::string& name, const std::string& scope, const std::string& x);
  /// The rows of a new parameter `name`.weight [rows, width] at `ids`.
  std::string embedding(const std::string& name,
                        const std::string& ids,
                        std::int64_t rows,
                        std::int64_t width);
  std::string reshape(const std::string& name,
                      const std::string& scope,
                      const std::string& x,
                      std::vector<Size> shape);
  /// Scores per row of a tied table [rows, width], which is read transposed.
  std::string tied_scores(const std::string& name, const std::string& x, const std::string& table);
  /// All layers of a stack.
  std::string layers(const Stack& stack, const StackInput& input);
  /// The mean loss of scores [.., classes] over labels of the given shape, where `training`; else
  /// the scores.
  std::string with_loss(const std::string& scores, std::vector<Size> labels);
  HfImport finish(std::vector<std::string> outputs, std::vector<std::string> notes) &&;

 private:
  DocumentBuilder out_;
  HfOptions options_;
  DType dtype_;
  bool drops_attention_ = false;
  std::set<std::string> shared_;
};

/// "a.b", or the one that is not empty.
std::string joined(std::string_view scope, std::string_view name);
/// "a.b" of "a.b.c".
std::string parent_scope(std::string_view name);

}  // namespace meshplan

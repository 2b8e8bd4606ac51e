// SPDX-License-Identifier: Apache-2.0
#include "graph/importers/hf_transformer.h"

#include <utility>

namespace meshplan {

std::string joined(std::string_view scope, std::string_view name) {
  const bool both = !scope.empty() && !name.empty();
  return std::string(scope) + (both ? "." : "") + std::string(name);
}

std::string parent_scope(std::string_view name) {
  const std::size_t dot = name.rfind('.');
  return dot == std::string_view::npos ? "" : std::string(name.substr(0, dot));
}

TransformerBuilder::TransformerBuilder(const HfConfig& config,
                                       const HfOptions& options,
                                       DType dtype)
    : out_(config.name(), config.file()), options_(options), dtype_(dtype) {
  const Result<double> dropout = attention_dropout(config);  // checked by import_hf
  drops_attention_ = options.training && dropout && *dropout > 0;
  out_.dimension("batch", options.batch);
}

std::string TransformerBuilder::parameter(const std::string& name,
                                          std::vector<Size> shape,
                                          bool trainable) {
  return out_.tensor(name, Role::kParameter, std::move(shape), dtype_, trainable);
}

std::string TransformerBuilder::constant(const std::string& name, std::vector<Size> shape) {
  return out_.tensor(name, Role::kConstant, std::move(shape), dtype_);
}

std::string TransformerBuilder::shared_constant(const std::string& name, std::vector<Size> shape) {
  return shared_.insert(name).second ? constant(name, std::move(shape)) : name;
}

std::string TransformerBuilder::binary(const char* type,
                                       const std::string& name,
                                       const std::string& scope,
                                       const std::string& a,
                                       const std::string& b) {
  return out_.add(type, name, scope, {a, b});
}

std::string TransformerBuilder::linear(const std::string& name,
                                       const std::string& scope,
                                       const std::string& x,
                                       std::int64_t in,
                                       std::int64_t out,
                                       bool bias) {
  const std::string product =
      binary("MatMul", name, scope, x, parameter(name + ".weight", {in, out}));
  if (!bias) return product;
  return binary("Add", name + ".add_bias", scope, product, parameter(name + ".bias", {out}));
}

std::string TransformerBuilder::norm(NormKind kind,
                                     double epsilon,
                                     const std::string& name,
                                     const std::string& scope,
                                     const std::string& x,
                                     std::int64_t width) {
  std::vector<std::string> inputs{x, parameter(name + ".weight", {width})};
  if (kind == NormKind::kLayer) inputs.push_back(parameter(name + ".bias", {width}));
  return out_.add(kind == NormKind::kRms ? "RMSNormalization" : "LayerNormalization",
                  name,
                  scope,
                  std::move(inputs),
                  {{"axis", std::int64_t{-1}}, {"epsilon", epsilon}});
}

std::string TransformerBuilder::activate(const HfActivation& activation,
                                         const std::string& name,
                                         const std::string& scope,
                                         const std::string& x) {
  DocumentBuilder::Attributes attributes;
  if (activation.tanh_approximation) attributes["approximate"] = std::string("tanh");
  if (activation.alpha) attributes["alpha"] = *activation.alpha;
  return out_.add(std::string(activation.type), name, scope, {x}, std::move(attributes));
}

std::string TransformerBuilder::scaled(const std::string& name,
                                       const std::string& scope,
                                       const std::string& x) {
  return binary("Mul", name, scope, x, constant(name + ".factor", {}));
}

std::string TransformerBuilder::softcapped(const std::string& name,
                                           const std::string& scope,
                                           const std::string& x) {
  const std::string cap = constant(name + ".cap", {});
  const std::string small = binary("Div", name + ".divided", scope, x, cap);
  const std::string bounded = out_.add("Tanh", name + ".tanh", scope, {small});
  return binary("Mul", name, scope, bounded, cap);
}

std::string TransformerBuilder::embedding(const std::string& name,
                                          const std::string& ids,
                                          std::int64_t rows,
                                          std::int64_t width) {
  return out_.add("Gather",
                  name,
                  parent_scope(name),
                  {parameter(name + ".weight", {rows, width}), ids},
                  {{"axis", std::int64_t{0}}});
}

std::string TransformerBuilder::reshape(const std::string& name,
                                        const std::string& scope,
                                        const std::string& x,
                                        std::vector<Size> shape) {
  return out_.add("Reshape", name, scope, {x}, {{"shape", std::move(shape)}});
}

std::string TransformerBuilder::tied_scores(const std::string& name,
                                            const std::string& x,
                                            const std::string& table) {
  return out_.add(
      "MatMul", name, parent_scope(name), {x, table}, {{"transpose_b", std::int64_t{1}}});
}

std::string TransformerBuilder::with_loss(const std::string& scores, std::vector<Size> labels) {
  if (!options_.training) return scores;
  const std::string given = out_.tensor("labels", Role::kInput, std::move(labels), DType::kInt64);
  // the scores stay in the model's type; their softmax and the loss are computed in fp32
  out_.tensor("loss", Role::kLoss, {}, DType::kFp32);
  return out_.add("SoftmaxCrossEntropyLoss",
                  "loss",
                  "",
                  {scores, given},
                  {{"axis", std::int64_t{-1}}, {"reduction", std::string("mean")}});
}

HfImport TransformerBuilder::finish(std::vector<std::string> outputs,
                                    std::vector<std::string> notes) && {
  return {std::move(out_).finish(std::move(outputs)), std::move(notes)};
}

}  // namespace meshplan

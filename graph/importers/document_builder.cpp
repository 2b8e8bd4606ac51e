// SPDX-License-Identifier: Apache-2.0
#include "graph/importers/document_builder.h"

#include <utility>

namespace meshplan {

DocumentBuilder::DocumentBuilder(std::string name, std::string file) {
  document_.name = std::move(name);
  document_.file = std::move(file);
}

void DocumentBuilder::dimension(const std::string& name, std::int64_t size) {
  DimensionDocument dimension;
  dimension.name = name;
  dimension.size = size;
  document_.dimensions.push_back(std::move(dimension));
}

std::string DocumentBuilder::tensor(
    const std::string& name, Role role, std::vector<Size> shape, DType dtype, bool trainable) {
  TensorDocument tensor;
  tensor.name = name;
  tensor.role = role;
  tensor.shape = std::move(shape);
  tensor.dtype = dtype;
  tensor.trainable = trainable;
  document_.tensors.push_back(std::move(tensor));
  return name;
}

std::string DocumentBuilder::add(const std::string& type,
                                 const std::string& name,
                                 const std::string& scope,
                                 std::vector<std::string> inputs,
                                 Attributes attributes) {
  add(type, name, scope, std::move(inputs), {name}, std::move(attributes));
  return name;
}

void DocumentBuilder::add(const std::string& type,
                          const std::string& name,
                          const std::string& scope,
                          std::vector<std::string> inputs,
                          std::vector<std::string> outputs,
                          Attributes attributes) {
  OperatorDocument op;
  op.name = name;
  op.type = type;
  op.inputs = std::move(inputs);
  op.outputs = std::move(outputs);
  op.attributes = std::move(attributes);
  op.scope = scope;
  document_.operators.push_back(std::move(op));
}

GraphDocument DocumentBuilder::finish(std::vector<std::string> outputs) && {
  document_.outputs = std::move(outputs);
  return std::move(document_);
}

}  // namespace meshplan

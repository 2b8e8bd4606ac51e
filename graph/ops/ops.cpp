// SPDX-License-Identifier: Apache-2.0
#include "graph/ops/ops.h"

namespace meshplan {

Result<std::int64_t> integer_attribute(const OperatorSpec& spec,
                                       const std::string& name,
                                       std::int64_t otherwise) {
  const auto found = spec.attributes.find(name);
  if (found == spec.attributes.end()) return otherwise;
  if (const auto* value = std::get_if<std::int64_t>(&found->second)) return *value;
  return fail(ErrorCode::kType, "", "attribute \"" + name + "\" must be an integer");
}

Result<std::optional<std::vector<std::int64_t>>> integers_attribute(const OperatorSpec& spec,
                                                                    const std::string& name) {
  using Found = std::optional<std::vector<std::int64_t>>;
  const auto found = spec.attributes.find(name);
  if (found == spec.attributes.end()) return Found();
  if (const auto* value = std::get_if<std::vector<std::int64_t>>(&found->second))
    return Found(*value);
  // an empty list has no element to tell its type
  if (const auto* value = std::get_if<std::vector<double>>(&found->second);
      value != nullptr && value->empty())
    return Found(std::in_place);
  if (const auto* value = std::get_if<std::vector<std::string>>(&found->second);
      value != nullptr && value->empty())
    return Found(std::in_place);
  if (const auto* value = std::get_if<std::int64_t>(&found->second))
    return Found(std::vector<std::int64_t>{*value});
  return fail(ErrorCode::kType, "", "attribute \"" + name + "\" must be a list of integers");
}

Result<std::string> text_attribute(const OperatorSpec& spec,
                                   const std::string& name,
                                   const std::string& otherwise) {
  const auto found = spec.attributes.find(name);
  if (found == spec.attributes.end()) return otherwise;
  if (const auto* value = std::get_if<std::string>(&found->second)) return *value;
  return fail(ErrorCode::kType, "", "attribute \"" + name + "\" must be a string");
}

Result<Shape> operand_shape(const OperatorSpec& spec, std::size_t i) {
  if (i >= spec.inputs.size() || !spec.inputs[i]) {
    return fail(ErrorCode::kMissing,
                "",
                "operand " + std::to_string(i) + " of " + spec.type + " is missing");
  }
  return spec.inputs[i]->shape;
}

Result<std::size_t> dimension_number(std::int64_t axis,
                                     std::size_t rank,
                                     const std::string& attribute) {
  const auto limit = static_cast<std::int64_t>(rank);
  if (axis < -limit || axis >= limit) {
    return fail(ErrorCode::kValue,
                "",
                "attribute \"" + attribute + "\" is " + std::to_string(axis) +
                    ", expected a dimension from " + std::to_string(-limit) + " to " +
                    std::to_string(limit - 1));
  }
  return static_cast<std::size_t>(axis < 0 ? axis + limit : axis);
}

std::string factor_list(const std::string& name, std::size_t count) {
  std::string text;
  for (std::size_t i = 0; i < count; ++i) text += " " + name + std::to_string(i);
  return text;
}

Result<Rule> rule_from_text(const OperatorSpec& spec,
                            const std::string& text,
                            const std::map<std::string, std::int64_t>& sizes) {
  std::vector<std::optional<Shape>> shapes;
  for (const auto& input : spec.inputs)
    shapes.push_back(input ? std::optional<Shape>(input->shape) : std::nullopt);
  return make_rule(text, shapes, sizes);
}

}  // namespace meshplan

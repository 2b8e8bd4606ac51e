// SPDX-License-Identifier: Apache-2.0
#include "graph/ops/ops.h"

#include <algorithm>

namespace meshplan {

Result<std::int64_t> integer_attribute(const OperatorSpec& spec,
                                       const std::string& name,
                                       std::int64_t otherwise) {
  const auto found = spec.attributes.find(name);
  if (found == spec.attributes.end()) return otherwise;
  if (const auto* value = std::get_if<std::int64_t>(&found->second)) return *value;
  return fail(ErrorCode::kType, "", "attribute \"" + name + "\" must be an integer");
}

Result<double> number_attribute(const OperatorSpec& spec,
                                const std::string& name,
                                double otherwise) {
  const auto found = spec.attributes.find(name);
  if (found == spec.attributes.end()) return otherwise;
  if (const auto* value = std::get_if<double>(&found->second)) return *value;
  if (const auto* value = std::get_if<std::int64_t>(&found->second))
    return static_cast<double>(*value);
  return fail(ErrorCode::kType, "", "attribute \"" + name + "\" must be a number");
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

Result<std::string> choice_attribute(const OperatorSpec& spec,
                                     const std::string& name,
                                     const std::string& otherwise,
                                     const std::vector<std::string>& known) {
  auto text = text_attribute(spec, name, otherwise);
  if (!text || std::find(known.begin(), known.end(), *text) != known.end()) return text;
  std::string list;
  for (std::size_t i = 0; i < known.size(); ++i) {
    list += (i == 0 ? "" : i + 1 == known.size() ? " or " : ", ") + ("\"" + known[i] + "\"");
  }
  return wrong("attribute \"" + name + "\" is \"" + *text + "\", expected " + list);
}

Result<std::vector<std::int64_t>> required_integers(const OperatorSpec& spec,
                                                    const std::string& name) {
  auto list = integers_attribute(spec, name);
  if (!list) return fail(list.error());
  if (!*list) return fail(ErrorCode::kMissing, "", "attribute \"" + name + "\" is missing");
  return **list;
}

Result<std::int64_t> required_size(const OperatorSpec& spec, const std::string& name) {
  auto size = integer_attribute(spec, name, 0);
  if (!size) return size;
  if (!spec.attributes.contains(name))
    return fail(ErrorCode::kMissing, "", "attribute \"" + name + "\" is missing");
  if (*size < 1)
    return wrong("attribute \"" + name + "\" is " + std::to_string(*size) + ", expected 1 or more");
  return size;
}

bool has_operand(const OperatorSpec& spec, std::size_t i) {
  return i < spec.inputs.size() && spec.inputs[i].has_value();
}

std::string shape_text(const Shape& shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i)
    text += (i > 0 ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

Unexpected<Error> wrong(const std::string& message) { return fail(ErrorCode::kValue, "", message); }

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

Result<std::size_t> axis_attribute(const OperatorSpec& spec, std::int64_t otherwise) {
  auto x = operand_shape(spec, 0);
  if (!x) return fail(x.error());
  auto axis = integer_attribute(spec, "axis", otherwise);
  if (!axis) return fail(axis.error());
  return dimension_number(*axis, x->size(), "axis");
}

Result<std::optional<std::vector<bool>>> axes_attribute(const OperatorSpec& spec,
                                                        std::size_t rank) {
  using Named = std::optional<std::vector<bool>>;
  auto axes = integers_attribute(spec, "axes");
  if (!axes) return fail(axes.error());
  if (!*axes) return Named();
  std::vector<bool> named(rank);
  for (const std::int64_t axis : **axes) {
    auto d = dimension_number(axis, rank, "axes");
    if (!d) return fail(d.error());
    if (named[*d])
      return wrong("attribute \"axes\" names dimension " + std::to_string(axis) + " twice");
    named[*d] = true;
  }
  return Named(std::move(named));
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

RuleText& RuleText::operand(const std::string& dims) {
  operands_.push_back(dims);
  return *this;
}

RuleText& RuleText::result(const std::string& dims) {
  results_.push_back(dims);
  return *this;
}

RuleText& RuleText::mark(const std::string& key, const std::string& value) {
  std::string& list = lists_[key];
  list += (list.empty() ? "" : ",") + value;
  return *this;
}

RuleText& RuleText::modifier(const std::string& text) {
  modifiers_ += " " + text;
  return *this;
}

RuleText& RuleText::size(const std::string& factor, std::int64_t size) {
  sizes_[factor] = size;
  return *this;
}

std::string RuleText::whole(const std::string& factor, std::int64_t size) {
  mark("whole", factor).size(factor, size);
  return " " + factor;
}

Result<Rule> RuleText::bind(const OperatorSpec& spec) const {
  const auto joined = [](const std::vector<std::string>& list) {
    std::string text;
    for (std::size_t i = 0; i < list.size(); ++i)
      text += (i == 0 ? "" : ", ") +
              list[i].substr(std::min(list[i].find_first_not_of(' '), list[i].size()));
    return text;
  };
  std::string text = joined(operands_) + " -> " + joined(results_) + " ;";
  for (const auto& [key, list] : lists_) text += " " + key + ":" + list;
  return rule_from_text(spec, text + modifiers_, sizes_);
}

}  // namespace meshplan

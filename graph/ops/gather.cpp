// SPDX-License-Identifier: Apache-2.0
// Look-up and its opposite. A shard of a looked-up dimension answers what lies in it, the others
// contribute 0: the result is a sum over the shards. A shard of a written dimension takes what
// falls into it.
#include <algorithm>

#include "graph/ops/ops.h"

namespace meshplan {
namespace {

/// What ScatterElements and ScatterND do with an element that is written.
struct Combine {
  bool adds = false;      ///< updates of different devices can be summed
  bool replaces = false;  ///< the result is the operand where nothing is written
};

Result<Combine> combine_of(const OperatorSpec& spec) {
  auto reduction =
      choice_attribute(spec, "reduction", "none", {"none", "add", "mul", "max", "min"});
  if (!reduction) return fail(reduction.error());
  return Combine{*reduction == "add", *reduction == "none"};
}

/// The modifiers that all scatters share; `updates` are the factors of the updates that the result
/// lacks. Two updates of one place do not commute unless they are added, so they stay together.
void scatter_modifiers(RuleText& text,
                       const Combine& how,
                       const std::vector<std::string>& updates) {
  for (const std::string& factor : updates) text.mark(how.adds ? "sum" : "whole", factor);
  if (how.adds) text.modifier("add:x");
  if (how.adds || how.replaces) {
    text.modifier("lin:x+z saves:y");
  } else {
    text.modifier("saves:x,y,z");
  }
}

/// Checks that the last dimension of `indices` can index `data` behind `batch` dimensions.
Result<std::size_t> index_width(const Shape& data, const Shape& indices, std::size_t batch) {
  if (indices.size() <= batch)
    return wrong("operand 1 of shape " + shape_text(indices) + " needs more than " +
                 std::to_string(batch) + " dimensions");
  const auto width = static_cast<std::size_t>(indices.back());
  if (width > data.size() - batch)
    return wrong("the last dimension of operand 1 is " + std::to_string(width) +
                 ", but operand 0 has " + std::to_string(data.size() - batch) +
                 " dimensions to index");
  return width;
}

}  // namespace

/// Gather along any dimension (axis 0 of a matrix: an embedding). The gradient is dense.
Result<Rule> make_gather(const OperatorSpec& spec) {
  auto data = operand_shape(spec, 0);
  if (!data) return fail(data.error());
  auto indices = operand_shape(spec, 1);
  if (!indices) return fail(indices.error());
  auto axis = axis_attribute(spec, 0);
  if (!axis) return fail(axis.error());
  const std::string rows = factor_list("t", indices->size());
  std::string operand, result, moved = "bytes:1";
  for (std::size_t d = 0; d < data->size(); ++d) {
    const std::string name = " d" + std::to_string(d);
    operand += d == *axis ? " v" : name;
    result += d == *axis ? rows : name;
    if (d != *axis) moved += "*d" + std::to_string(d);
  }
  for (std::size_t d = 0; d < indices->size(); ++d) moved += "*t" + std::to_string(d);
  return rule_from_text(
      spec, operand + "," + rows + " ->" + result + " ; sum:v saves:y flops:0 " + moved);
}

namespace {

/// The dimensions of operand 0 and of the indices of GatherElements and ScatterElements: equal
/// beside the axis; a shorter index dimension starts at 0, so neither side of it can be cut.
struct ElementDims {
  std::string data;
  std::string indices;
};

Result<ElementDims> element_dims(const OperatorSpec& spec, RuleText& text) {
  auto data = operand_shape(spec, 0);
  if (!data) return fail(data.error());
  auto indices = operand_shape(spec, 1);
  if (!indices) return fail(indices.error());
  auto axis = axis_attribute(spec, 0);
  if (!axis) return fail(axis.error());
  if (data->size() != indices->size())
    return wrong("operands 0 and 1 of shapes " + shape_text(*data) + " and " +
                 shape_text(*indices) + " need as many dimensions");
  ElementDims dims;
  for (std::size_t d = 0; d < data->size(); ++d) {
    const std::string name = "x" + std::to_string(d);
    if (d == *axis) {
      dims.data += " v";
      dims.indices += " t";
    } else if ((*data)[d] == (*indices)[d]) {
      dims.data += " " + name;
      dims.indices += " " + name;
    } else if ((*indices)[d] < (*data)[d]) {
      dims.data += " p" + std::to_string(d);
      dims.indices += " " + name;
      text.mark("whole", "p" + std::to_string(d)).mark("whole", name);
    } else {
      return wrong("dimension " + std::to_string(d) + " of operand 1 is " +
                   std::to_string((*indices)[d]) + ", larger than operand 0's " +
                   std::to_string((*data)[d]));
    }
  }
  return dims;
}

}  // namespace

Result<Rule> make_gather_elements(const OperatorSpec& spec) {
  RuleText text;
  auto dims = element_dims(spec, text);
  if (!dims) return fail(dims.error());
  return text.operand(dims->data)
      .operand(dims->indices)
      .result(dims->indices)
      .mark("sum", "v")
      .modifier("saves:y flops:0")
      .bind(spec);
}

Result<Rule> make_scatter_elements(const OperatorSpec& spec) {
  auto how = combine_of(spec);
  if (!how) return fail(how.error());
  RuleText text;
  auto dims = element_dims(spec, text);
  if (!dims) return fail(dims.error());
  text.operand(dims->data).operand(dims->indices).operand(dims->indices).result(dims->data);
  scatter_modifiers(text, *how, {"t"});
  return text.modifier("flops:0").bind(spec);
}

/// GatherND: the last dimension of the indices names a place in the dimensions behind the batch.
Result<Rule> make_gather_nd(const OperatorSpec& spec) {
  auto data = operand_shape(spec, 0);
  if (!data) return fail(data.error());
  auto indices = operand_shape(spec, 1);
  if (!indices) return fail(indices.error());
  auto attribute = integer_attribute(spec, "batch_dims", 0);
  if (!attribute) return fail(attribute.error());
  const auto limit = static_cast<std::int64_t>(std::min(data->size(), indices->size()));
  if (*attribute < 0 || *attribute >= limit)
    return wrong("attribute \"batch_dims\" is " + std::to_string(*attribute) + ", expected 0 to " +
                 std::to_string(limit - 1));
  const auto batch = static_cast<std::size_t>(*attribute);
  auto width = index_width(*data, *indices, batch);
  if (!width) return fail(width.error());
  RuleText text;
  const std::string shared = factor_list("b", batch);
  const std::string places = factor_list("t", indices->size() - 1 - batch);
  const std::string kept = factor_list("d", data->size() - batch - *width);
  for (std::size_t i = 0; i < *width; ++i) text.mark("sum", "v" + std::to_string(i));
  return text.operand(shared + factor_list("v", *width) + kept)
      .operand(shared + places + " .")
      .result(shared + places + kept)
      .modifier("saves:y flops:0")
      .bind(spec);
}

Result<Rule> make_scatter_nd(const OperatorSpec& spec) {
  auto how = combine_of(spec);
  if (!how) return fail(how.error());
  auto data = operand_shape(spec, 0);
  if (!data) return fail(data.error());
  auto indices = operand_shape(spec, 1);
  if (!indices) return fail(indices.error());
  auto width = index_width(*data, *indices, 0);
  if (!width) return fail(width.error());
  RuleText text;
  const std::string places = factor_list("t", indices->size() - 1);
  const std::string kept = factor_list("d", data->size() - *width);
  const std::string all = factor_list("v", *width) + kept;
  text.operand(all).operand(places + " .").operand(places + kept).result(all);
  std::vector<std::string> updates;
  for (std::size_t i = 0; i + 1 < indices->size(); ++i) updates.push_back("t" + std::to_string(i));
  scatter_modifiers(text, *how, updates);
  return text.modifier("flops:0").bind(spec);
}

}  // namespace meshplan

// SPDX-License-Identifier: Apache-2.0
// Operators that join, cut or repeat along dimensions. Such a dimension stays whole, except where
// all parts are equal: then it is a compound (n d) of the part's number and the place within it.
// Sharding n gives each device some of the parts; a part that is read is 0 elsewhere, hence sum:n.
#include <algorithm>
#include <cstdlib>

#include "graph/dimension_sizes.h"
#include "graph/ops/ops.h"

namespace meshplan {
namespace {

/// "x0 x1 x2" with dimension `at` written as `dim`.
std::string dims_with(std::size_t rank, std::size_t at, const std::string& dim) {
  std::string text;
  for (std::size_t d = 0; d < rank; ++d) text += d == at ? " " + dim : " x" + std::to_string(d);
  return text;
}

}  // namespace

Result<Rule> make_concat(const OperatorSpec& spec) {
  auto x = operand_shape(spec, 0);
  if (!x) return fail(x.error());
  if (!spec.attributes.contains("axis"))
    return fail(ErrorCode::kMissing, "", "attribute \"axis\" is missing");
  auto axis = axis_attribute(spec, 0);
  if (!axis) return fail(axis.error());
  std::int64_t total = 0;
  bool equal = true;
  std::string all;
  for (std::size_t i = 0; i < spec.inputs.size(); ++i) {
    auto part = operand_shape(spec, i);
    if (!part) return fail(part.error());
    if (part->size() != x->size())
      return wrong("operand " + std::to_string(i) + " has " + std::to_string(part->size()) +
                   " dimensions, expected " + std::to_string(x->size()));
    if ((*part)[*axis] > kMostTensorBytes - total)
      return fail(ErrorCode::kOverflow, "", "the joined dimension exceeds 64 bits");
    total += (*part)[*axis];
    equal = equal && (*part)[*axis] == (*x)[*axis];
    all += (i == 0 ? "" : "+") + std::to_string(i);
  }
  RuleText text;
  for (std::size_t i = 0; i < spec.inputs.size(); ++i)
    text.operand(dims_with(x->size(), *axis, equal ? "d" : "."));
  if (equal) {
    text.result(dims_with(x->size(), *axis, "(n d)")).size("n", std::ssize(spec.inputs));
  } else {
    text.result(dims_with(x->size(), *axis, text.whole("j", total).substr(1)));
  }
  return text.modifier("lin:" + all + " saves:none flops:0").bind(spec);
}

/// Split by `split` (sizes), or into `num_outputs` parts, or into as many as there are results; the
/// last part may be smaller.
Result<Rule> make_split(const OperatorSpec& spec) {
  auto x = operand_shape(spec, 0);
  if (!x) return fail(x.error());
  auto axis = axis_attribute(spec, 0);
  if (!axis) return fail(axis.error());
  const std::int64_t size = (*x)[*axis];
  auto given = integers_attribute(spec, "split");
  if (!given) return fail(given.error());
  auto count = integer_attribute(spec, "num_outputs", spec.output_count);
  if (!count) return fail(count.error());
  std::vector<std::int64_t> parts;
  if (*given) {
    parts = **given;
  } else {
    if (*count != spec.output_count)
      return wrong("attribute \"num_outputs\" is " + std::to_string(*count) + ", but there are " +
                   std::to_string(spec.output_count) + " outputs");
    if (*count < 1) return wrong("Split needs at least one output");
    const std::int64_t part = (size - 1) / *count + 1;
    parts.assign(static_cast<std::size_t>(*count), part);
    parts.back() = size - part * (*count - 1);
  }
  std::int64_t total = 0;
  for (const std::int64_t part : parts) {
    if (part < 1)
      return wrong("dimension " + std::to_string(*axis) + " of size " + std::to_string(size) +
                   " cannot be split into " + std::to_string(parts.size()) +
                   " parts of at least 1");
    total += std::min(part, size + 1 - std::min(total, size));  // more than `size` is enough
  }
  if (total != size)
    return wrong("the parts " + shape_text(parts) + " do not add up to dimension " +
                 std::to_string(*axis) + " of size " + std::to_string(size));
  const bool equal =
      std::all_of(parts.begin(), parts.end(), [&](std::int64_t part) { return part == parts[0]; });
  RuleText text;
  text.operand(dims_with(x->size(), *axis, equal ? "(n d)" : "."));
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::string part = "d" + std::to_string(i);
    text.result(dims_with(x->size(), *axis, equal ? "d" : text.whole(part, parts[i]).substr(1)));
  }
  if (equal) text.mark("sum", "n").size("n", std::ssize(parts));
  return text.modifier("lin:x saves:none flops:0").bind(spec);
}

/// Slice: attributes `starts`, `ends`, `axes`, `steps`; negative positions count from the end,
/// those beyond it stand for it.
Result<Rule> make_slice(const OperatorSpec& spec) {
  auto x = operand_shape(spec, 0);
  if (!x) return fail(x.error());
  auto starts = required_integers(spec, "starts");
  if (!starts) return fail(starts.error());
  auto ends = required_integers(spec, "ends");
  if (!ends) return fail(ends.error());
  auto axes = integers_attribute(spec, "axes");
  if (!axes) return fail(axes.error());
  auto steps = integers_attribute(spec, "steps");
  if (!steps) return fail(steps.error());
  for (const auto& [name, size] :
       {std::pair{"ends", ends->size()},
        std::pair{"axes", *axes ? (*axes)->size() : starts->size()},
        std::pair{"steps", *steps ? (*steps)->size() : starts->size()}}) {
    if (size != starts->size())
      return wrong(std::string("attribute \"") + name + "\" has " + std::to_string(size) +
                   " entries, \"starts\" has " + std::to_string(starts->size()));
  }
  if (starts->size() > x->size())
    return wrong("attribute \"starts\" has " + std::to_string(starts->size()) +
                 " entries, operand 0 has " + std::to_string(x->size()) + " dimensions");
  if (auto named = axes_attribute(spec, x->size()); !named) return fail(named.error());
  RuleText text;
  std::vector<std::string> from, to;
  for (std::size_t d = 0; d < x->size(); ++d) {
    from.push_back(" x" + std::to_string(d));
    to.push_back(" x" + std::to_string(d));
  }
  for (std::size_t i = 0; i < starts->size(); ++i) {
    std::size_t d = i;
    if (*axes) d = *dimension_number((**axes)[i], x->size(), "axes");
    const std::int64_t size = (*x)[d];
    const std::int64_t given = *steps ? (**steps)[i] : 1;
    if (given == 0) return wrong("attribute \"steps\" holds 0");
    const std::int64_t step = std::clamp(given, -size - 1, size + 1);  // longer find no more
    const auto position = [&](std::int64_t at, std::int64_t least, std::int64_t most) {
      return std::clamp(at < 0 ? at + size : at, least, most);
    };
    const std::int64_t start = position((*starts)[i], 0, step > 0 ? size : size - 1);
    const std::int64_t end = position((*ends)[i], step > 0 ? 0 : -1, step > 0 ? size : size - 1);
    const std::int64_t range = step > 0 ? end - start : start - end;
    const std::int64_t length = range < 1 ? 0 : (range - 1) / std::abs(step) + 1;
    if (length < 1)
      return wrong("the slice of dimension " + std::to_string(d) + " (size " +
                   std::to_string(size) + ") is empty");
    if (step == 1 && length == size) continue;
    const std::string number = std::to_string(d);
    if (step == 1 && size % length == 0 && start % length == 0) {
      from[d] = " (n" + number + " x" + number + ")";
      text.mark("sum", "n" + number).size("n" + number, size / length);
    } else {
      from[d] = " .";
      to[d] = text.whole("x" + number, length);
    }
  }
  std::string operand, result;
  for (std::size_t d = 0; d < x->size(); ++d) {
    operand += from[d];
    result += to[d];
  }
  return text.operand(operand).result(result).modifier("lin:x saves:none flops:0").bind(spec);
}

/// Pad: attribute `pads` (begins, then ends, of all dimensions or of `axes`; negative ones cut).
/// The constant is attribute `value` or operand 1. Padding with anything but 0 is not linear.
Result<Rule> make_pad(const OperatorSpec& spec) {
  auto x = operand_shape(spec, 0);
  if (!x) return fail(x.error());
  auto pads = required_integers(spec, "pads");
  if (!pads) return fail(pads.error());
  auto axes = integers_attribute(spec, "axes");
  if (!axes) return fail(axes.error());
  if (auto named = axes_attribute(spec, x->size()); !named) return fail(named.error());
  auto mode = choice_attribute(spec, "mode", "constant", {"constant", "reflect", "edge", "wrap"});
  if (!mode) return fail(mode.error());
  auto value = number_attribute(spec, "value", 0);
  if (!value) return fail(value.error());
  const std::size_t count = *axes ? (*axes)->size() : x->size();
  if (pads->size() != 2 * count)
    return wrong("attribute \"pads\" has " + std::to_string(pads->size()) + " entries, expected " +
                 std::to_string(2 * count));
  RuleText text;
  std::vector<std::string> from, to;
  for (std::size_t d = 0; d < x->size(); ++d) {
    from.push_back(" x" + std::to_string(d));
    to.push_back(" x" + std::to_string(d));
  }
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t d = *axes ? *dimension_number((**axes)[i], x->size(), "axes") : i;
    const std::int64_t before = (*pads)[i];
    const std::int64_t after = (*pads)[i + count];
    if (before == 0 && after == 0) continue;
    for (const std::int64_t pad : {before, after}) {
      if (pad < -kMostTensorBytes / 4 || pad > kMostTensorBytes / 4 ||
          (*x)[d] > kMostTensorBytes / 4)
        return fail(ErrorCode::kOverflow, "", "the padded dimension exceeds 64 bits");
      const std::int64_t most = (*x)[d] - (*mode == "reflect" ? 1 : 0);
      if ((*mode == "reflect" || *mode == "wrap") && pad > most)
        return wrong("attribute \"pads\": " + std::to_string(pad) + " is more than mode \"" +
                     *mode + "\" can take of dimension " + std::to_string(d) + " (size " +
                     std::to_string((*x)[d]) + ")");
    }
    const std::int64_t size = (*x)[d] + before + after;
    if (size < 1)
      return wrong("attribute \"pads\" leaves nothing of dimension " + std::to_string(d) +
                   " (size " + std::to_string((*x)[d]) + ")");
    from[d] = " .";
    to[d] = text.whole("x" + std::to_string(d), size);
  }
  std::string operand, result;
  for (std::size_t d = 0; d < x->size(); ++d) {
    operand += from[d];
    result += to[d];
  }
  text.operand(operand).result(result).modifier("saves:none flops:0");
  if (spec.inputs.size() > 1) {
    text.operand("");
  } else if (*mode != "constant" || *value == 0) {
    text.modifier("lin:x");
  }
  return text.bind(spec);
}

/// Tile: attribute `repeats`. The copies are a factor of the result alone.
Result<Rule> make_tile(const OperatorSpec& spec) {
  auto x = operand_shape(spec, 0);
  if (!x) return fail(x.error());
  auto repeats = required_integers(spec, "repeats");
  if (!repeats) return fail(repeats.error());
  if (repeats->size() != x->size())
    return wrong("attribute \"repeats\" has " + std::to_string(repeats->size()) +
                 " entries, expected " + std::to_string(x->size()));
  RuleText text;
  std::string result;
  for (std::size_t d = 0; d < x->size(); ++d) {
    const std::string number = std::to_string(d);
    if ((*repeats)[d] < 1)
      return wrong("attribute \"repeats\": entry " + number + " is " +
                   std::to_string((*repeats)[d]) + ", expected 1 or more");
    if ((*repeats)[d] == 1) {
      result += " x" + number;
    } else {
      result += " (n" + number + " x" + number + ")";
      text.size("n" + number, (*repeats)[d]);
    }
  }
  return text.operand(factor_list("x", x->size()))
      .result(result)
      .modifier("lin:x saves:none flops:0")
      .bind(spec);
}

}  // namespace meshplan

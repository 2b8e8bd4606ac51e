// SPDX-License-Identifier: Apache-2.0
// Windows that slide over spatial dimensions: convolution and pooling. A spatial dimension is a
// window factor: its shards fetch a halo from their neighbours. Where windows of width 1 and stride
// 1 make none, it is parallel.
#include <algorithm>

#include "graph/dimension_sizes.h"
#include "graph/ops/ops.h"

namespace meshplan {
namespace {

/// The list attribute with one entry >= `least` per spatial dimension.
Result<std::vector<std::int64_t>> spatial_list(const OperatorSpec& spec,
                                               const std::string& name,
                                               std::size_t count,
                                               std::int64_t otherwise,
                                               std::int64_t least) {
  auto list = integers_attribute(spec, name);
  if (!list) return fail(list.error());
  if (!*list) return std::vector<std::int64_t>(count, otherwise);
  if ((*list)->size() != count)
    return wrong("attribute \"" + name + "\" has " + std::to_string((*list)->size()) +
                 " entries, expected " + std::to_string(count));
  constexpr std::int64_t kMost = 1'000'000'000;  // sums and products of these stay in 64 bits
  for (const std::int64_t value : **list) {
    if (value < least || value > kMost)
      return wrong("attribute \"" + name + "\" holds " + std::to_string(value) + ", expected " +
                   std::to_string(least) + " to " + std::to_string(kMost));
  }
  return **list;
}

/// ONNX's kernel_shape, strides, dilations, pads, auto_pad and ceil_mode, one Window per spatial
/// dimension of operand 0.
Result<std::vector<Window>> windows_of(const OperatorSpec& spec,
                                       const std::vector<std::int64_t>& kernel) {
  const Shape& x = spec.inputs[0]->shape;
  const std::size_t count = kernel.size();
  auto strides = spatial_list(spec, "strides", count, 1, 1);
  if (!strides) return fail(strides.error());
  auto dilations = spatial_list(spec, "dilations", count, 1, 1);
  if (!dilations) return fail(dilations.error());
  auto pads = spatial_list(spec, "pads", 2 * count, 0, 0);
  if (!pads) return fail(pads.error());
  auto automatic =
      choice_attribute(spec, "auto_pad", "NOTSET", {"NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"});
  if (!automatic) return fail(automatic.error());
  auto ceil = integer_attribute(spec, "ceil_mode", 0);
  if (!ceil) return fail(ceil.error());
  std::vector<Window> windows;
  for (std::size_t i = 0; i < count; ++i) {
    Window window;
    window.extent = x[i + 2];
    if (kernel[i] - 1 > kMostTensorBytes / (*dilations)[i])
      return fail(ErrorCode::kOverflow, "", "the width of a window exceeds 64 bits");
    window.width = (kernel[i] - 1) * (*dilations)[i] + 1;
    window.stride = (*strides)[i];
    if (*automatic == "NOTSET") {
      window.before = (*pads)[i];
      window.after = (*pads)[i + count];
    } else if (*automatic != "VALID") {
      const std::int64_t windows_wanted = (window.extent - 1) / window.stride + 1;
      const std::int64_t total = std::max<std::int64_t>(
          (windows_wanted - 1) * window.stride + window.width - window.extent, 0);
      window.before = *automatic == "SAME_UPPER" ? total / 2 : total - total / 2;
      window.after = total - window.before;
    }
    const std::int64_t room = window.extent + window.before + window.after - window.width;
    if (room < 0)
      return wrong("a window of width " + std::to_string(window.width) +
                   " does not fit into dimension " + std::to_string(i + 2) + " of size " +
                   std::to_string(window.extent) + " with padding " +
                   std::to_string(window.before) + " and " + std::to_string(window.after));
    // rounding up adds a window that hangs over the end, if it starts before the end
    const std::int64_t last = (room / window.stride + 1) * window.stride;
    if (*ceil != 0 && room % window.stride != 0 && last < window.extent + window.before)
      window.after = last + window.width - window.extent - window.before;
    windows.push_back(window);
  }
  return windows;
}

std::string number(std::int64_t value) { return std::to_string(value); }

void add_windows(RuleText& text, const std::vector<Window>& windows) {
  for (std::size_t i = 0; i < windows.size(); ++i) {
    const Window& w = windows[i];
    if (w.width == 1 && w.stride == 1 && w.before == 0 && w.after == 0) continue;
    text.modifier("shift:s" + std::to_string(i) + "(" + number(w.width) + "," + number(w.stride) +
                  "," + number(w.before) + "," + number(w.after) + ")");
  }
}

/// [batch, channels, spatial...] with 1 to 3 spatial dimensions.
Result<std::size_t> spatial_rank(const OperatorSpec& spec) {
  auto x = operand_shape(spec, 0);
  if (!x) return fail(x.error());
  if (x->size() < 3 || x->size() > 5)
    return fail(ErrorCode::kUnsupported,
                "",
                spec.type +
                    " takes an operand of shape [batch, channels, 1 to 3 dimensions], got " +
                    shape_text(*x));
  return x->size() - 2;
}

std::string product_of(const std::string& factor, std::size_t count) {
  std::string text;
  for (std::size_t i = 0; i < count; ++i) text += "*" + factor + std::to_string(i);
  return text;
}

Result<Rule> pool(const OperatorSpec& spec, const std::string& modifiers, bool with_indices) {
  auto rank = spatial_rank(spec);
  if (!rank) return fail(rank.error());
  if (!spec.attributes.contains("kernel_shape"))
    return fail(ErrorCode::kMissing, "", "attribute \"kernel_shape\" is missing");
  auto kernel = spatial_list(spec, "kernel_shape", *rank, 1, 1);
  if (!kernel) return fail(kernel.error());
  auto windows = windows_of(spec, *kernel);
  if (!windows) return fail(windows.error());
  const std::string dims = "b c" + factor_list("s", *rank);
  RuleText text;
  text.operand(dims).result(dims).modifier(modifiers);
  if (with_indices && spec.output_count == 2) text.result(dims);
  add_windows(text, *windows);
  std::string flops = "flops:b*c" + product_of("s", *rank);
  for (const std::int64_t size : *kernel) flops += "*" + number(size);
  return text.modifier(flops).bind(spec);
}

Result<Rule> global_pool(const OperatorSpec& spec, const char* kind, const std::string& modifiers) {
  auto x = operand_shape(spec, 0);
  if (!x) return fail(x.error());
  if (x->size() < 2)
    return wrong(spec.type + " takes an operand of shape [batch, channels, ...], got " +
                 shape_text(*x));
  const std::size_t rank = x->size() - 2;
  RuleText text;
  std::string result = "b c";
  for (std::size_t i = 0; i < rank; ++i) {
    text.mark(kind, "s" + std::to_string(i));
    result += " .";
  }
  return text.operand("b c" + factor_list("s", rank)).result(result).modifier(modifiers).bind(spec);
}

}  // namespace

/// Conv with groups, strides, dilations and padding in 1 to 3 dimensions. A kernel dimension stays
/// whole; the bias is added once.
Result<Rule> make_conv(const OperatorSpec& spec) {
  auto rank = spatial_rank(spec);
  if (!rank) return fail(rank.error());
  const Shape& x = spec.inputs[0]->shape;
  auto w = operand_shape(spec, 1);
  if (!w) return fail(w.error());
  if (w->size() != x.size())
    return wrong("operand 1 of shape " + shape_text(*w) + " has " + number(std::ssize(*w)) +
                 " dimensions, expected " + number(std::ssize(x)));
  auto groups = integer_attribute(spec, "group", 1);
  if (!groups) return fail(groups.error());
  if (*groups < 1 || x[1] % *groups != 0 || (*w)[0] % *groups != 0)
    return wrong("attribute \"group\" is " + number(*groups) + ", but it must divide the " +
                 number(x[1]) + " channels of operand 0 and the " + number((*w)[0]) +
                 " of operand 1");
  const Shape kernel(w->begin() + 2, w->end());
  auto given = spatial_list(spec, "kernel_shape", *rank, 0, 1);
  if (!given) return fail(given.error());
  if (spec.attributes.contains("kernel_shape") && *given != kernel)
    return wrong("attribute \"kernel_shape\" is " + shape_text(*given) +
                 ", but operand 1 has shape " + shape_text(*w));
  auto windows = windows_of(spec, kernel);
  if (!windows) return fail(windows.error());
  RuleText text;
  const std::string spatial = factor_list("s", *rank);
  text.operand("b (g c)" + spatial).operand("(g o) c" + factor_list("w", *rank));
  if (has_operand(spec, 2)) text.operand("(g o)").modifier("add:z");
  text.result("b (g o)" + spatial).mark("sum", "c").size("g", *groups);
  for (std::size_t i = 0; i < *rank; ++i) text.mark("whole", "w" + std::to_string(i));
  add_windows(text, *windows);
  return text
      .modifier("lin:x|y saves:x,y flops:2*b*g*o*c" + product_of("w", *rank) +
                product_of("s", *rank))
      .bind(spec);
}

/// MaxPool (second result: the positions of the maxima) and LpPool.
Result<Rule> make_max_pool(const OperatorSpec& spec) {
  return pool(spec, "saves:x,out", spec.type == "MaxPool");
}
/// AveragePool; the number that it divides by depends on the position in the whole tensor.
Result<Rule> make_average_pool(const OperatorSpec& spec) {
  return pool(spec, "lin:x saves:none", false);
}

/// GlobalAveragePool: a sum with a scale, as ReduceMean.
Result<Rule> make_global_average_pool(const OperatorSpec& spec) {
  return global_pool(spec, "sum", "lin:x saves:none");
}
Result<Rule> make_global_max_pool(const OperatorSpec& spec) {
  auto rule = global_pool(spec, "max", "saves:x");
  if (rule) rule->statistic_backward = 2;  // as ReduceMax
  return rule;
}
Result<Rule> make_global_lp_pool(const OperatorSpec& spec) {
  auto rule = global_pool(spec, "stat", "saves:x,out");
  if (rule) rule->statistic_forward = 1;
  return rule;
}

}  // namespace meshplan

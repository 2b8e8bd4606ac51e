// SPDX-License-Identifier: Apache-2.0
// Operators that only rename or regroup dimensions.
#include <algorithm>
#include <numeric>

#include "graph/ops/ops.h"

namespace meshplan {
namespace {

/// The rule of a reshape: both shapes are factorised from the left into common factors; what does
/// not line up within a block of equal products is private. Example: [6, 4] -> [4, 6] shares one
/// factor 2 (the major half); [b*s, h] -> [b, s, h] shares b, s and h.
Result<Rule> regroup(const OperatorSpec& spec, const Shape& from, const Shape& to) {
  // dims[side][dimension] lists factor numbers; a dimension whose rest is private ends in -1
  std::vector<std::vector<int>> dims[2] = {std::vector<std::vector<int>>(from.size()),
                                           std::vector<std::vector<int>>(to.size())};
  std::vector<std::int64_t> sizes;
  std::size_t i = 0;
  std::size_t j = 0;
  std::int64_t a = 1;
  std::int64_t b = 1;
  std::size_t at_i = 0;
  std::size_t at_j = 0;
  while (true) {
    while (a == 1 && i < from.size()) {
      at_i = i;
      a = from[i++];
    }
    while (b == 1 && j < to.size()) {
      at_j = j;
      b = to[j++];
    }
    if (a == 1 && b == 1) break;
    const std::int64_t common = std::gcd(a, b);
    if (common > 1) {
      dims[0][at_i].push_back(static_cast<int>(sizes.size()));
      dims[1][at_j].push_back(static_cast<int>(sizes.size()));
      sizes.push_back(common);
      a /= common;
      b /= common;
      continue;
    }
    // nothing in common: skip to the end of the block, where both products agree again
    dims[0][at_i].push_back(-1);
    dims[1][at_j].push_back(-1);
    std::int64_t left = a;
    std::int64_t right = b;
    while (left != right) {
      if (left < right) {
        at_i = i;
        left *= from[i++];
        if (from[at_i] > 1) dims[0][at_i].push_back(-1);
      } else {
        at_j = j;
        right *= to[j++];
        if (to[at_j] > 1) dims[1][at_j].push_back(-1);
      }
    }
    a = b = 1;
  }
  // the rule's text: private rests become "whole" factors so that sizes still multiply
  std::string text;
  std::string whole;
  std::map<std::string, std::int64_t> given;
  for (int side = 0; side < 2; ++side) {
    const Shape& shape = side == 0 ? from : to;
    if (side == 1) text += " ->";
    for (std::size_t d = 0; d < shape.size(); ++d) {
      if (shape[d] == 1) {
        text += " .";
        continue;
      }
      std::string inner;
      std::int64_t rest = shape[d];
      for (const int factor : dims[side][d]) {
        if (factor < 0) {
          const std::string name = (side == 0 ? "p" : "q") + std::to_string(d);
          inner += " " + name;
          whole += (whole.empty() ? "" : ",") + name;
          given[name] = rest;
        } else {
          const std::string name = "x" + std::to_string(factor);
          inner += " " + name;
          given[name] = sizes[static_cast<std::size_t>(factor)];
          rest /= sizes[static_cast<std::size_t>(factor)];
        }
      }
      text += " (" + inner.substr(1) + ")";
    }
  }
  text += " ; lin:x saves:none flops:0";
  if (!whole.empty()) text += " whole:" + whole;
  return rule_from_text(spec, text, given);
}

std::int64_t product(const Shape& shape, std::size_t begin, std::size_t end) {
  std::int64_t total = 1;
  for (std::size_t i = begin; i < end; ++i) total *= shape[i];
  return total;
}

}  // namespace

Result<Rule> make_reshape(const OperatorSpec& spec) {
  auto from = operand_shape(spec, 0);
  if (!from) return fail(from.error());
  auto shape = required_integers(spec, "shape");
  if (!shape) return fail(shape.error());
  auto allow_zero = integer_attribute(spec, "allowzero", 0);
  if (!allow_zero) return fail(allow_zero.error());
  Shape to = *shape;
  const std::int64_t elements = element_count(*from);
  std::int64_t known = 1;
  std::optional<std::size_t> open;
  for (std::size_t d = 0; d < to.size(); ++d) {
    if (to[d] == 0 && *allow_zero == 0) {
      if (d >= from->size())
        return fail(ErrorCode::kValue,
                    "",
                    "attribute \"shape\": entry " + std::to_string(d) +
                        " copies a dimension that the operand does not have");
      to[d] = (*from)[d];
    }
    if (to[d] == -1 && !open) {
      open = d;
      continue;
    }
    if (to[d] < 1)
      return fail(ErrorCode::kValue,
                  "",
                  "attribute \"shape\": entry " + std::to_string(d) + " is " +
                      std::to_string(to[d]) + ", expected a size >= 1 (or a single -1)");
    if (known > elements / to[d])
      return fail(ErrorCode::kValue,
                  "",
                  "attribute \"shape\" has more elements than the operand (" +
                      std::to_string(elements) + ")");
    known *= to[d];
  }
  if (open) {
    if (elements % known != 0)
      return fail(ErrorCode::kValue,
                  "",
                  "attribute \"shape\": " + std::to_string(elements) +
                      " elements do not divide by " + std::to_string(known));
    to[*open] = elements / known;
  } else if (known != elements) {
    return fail(ErrorCode::kValue,
                "",
                "attribute \"shape\" has " + std::to_string(known) + " elements, the operand " +
                    std::to_string(elements));
  }
  return regroup(spec, *from, to);
}

Result<Rule> make_flatten(const OperatorSpec& spec) {
  auto from = operand_shape(spec, 0);
  if (!from) return fail(from.error());
  auto attribute = integer_attribute(spec, "axis", 1);
  if (!attribute) return fail(attribute.error());
  const auto rank = static_cast<std::int64_t>(from->size());
  if (*attribute < -rank || *attribute > rank)
    return fail(ErrorCode::kValue,
                "",
                "attribute \"axis\" is " + std::to_string(*attribute) + ", expected " +
                    std::to_string(-rank) + " to " + std::to_string(rank));
  const auto axis = static_cast<std::size_t>(*attribute < 0 ? *attribute + rank : *attribute);
  return regroup(spec, *from, {product(*from, 0, axis), product(*from, axis, from->size())});
}

Result<Rule> make_squeeze(const OperatorSpec& spec) {
  auto from = operand_shape(spec, 0);
  if (!from) return fail(from.error());
  auto axes = integers_attribute(spec, "axes");
  if (!axes) return fail(axes.error());
  std::vector<bool> drop(from->size());
  for (std::size_t d = 0; d < from->size(); ++d) drop[d] = !*axes && (*from)[d] == 1;
  if (*axes) {
    for (const std::int64_t axis : **axes) {
      auto d = dimension_number(axis, from->size(), "axes");
      if (!d) return fail(d.error());
      if ((*from)[*d] != 1)
        return fail(ErrorCode::kValue,
                    "",
                    "attribute \"axes\": dimension " + std::to_string(axis) + " has size " +
                        std::to_string((*from)[*d]) + ", only size 1 can be squeezed");
      drop[*d] = true;
    }
  }
  Shape to;
  for (std::size_t d = 0; d < from->size(); ++d) {
    if (!drop[d]) to.push_back((*from)[d]);
  }
  return regroup(spec, *from, to);
}

Result<Rule> make_unsqueeze(const OperatorSpec& spec) {
  auto from = operand_shape(spec, 0);
  if (!from) return fail(from.error());
  auto axes = required_integers(spec, "axes");
  if (!axes) return fail(axes.error());
  const std::size_t rank = from->size() + axes->size();
  auto added = axes_attribute(spec, rank);
  if (!added) return fail(added.error());
  Shape to;
  std::size_t next = 0;
  for (std::size_t d = 0; d < rank; ++d) to.push_back((**added)[d] ? 1 : (*from)[next++]);
  return regroup(spec, *from, to);
}

Result<Rule> make_transpose(const OperatorSpec& spec) {
  auto from = operand_shape(spec, 0);
  if (!from) return fail(from.error());
  auto perm = integers_attribute(spec, "perm");
  if (!perm) return fail(perm.error());
  std::vector<std::int64_t> order;
  if (*perm) {
    order = **perm;
  } else {
    for (std::size_t d = from->size(); d > 0; --d)
      order.push_back(static_cast<std::int64_t>(d) - 1);
  }
  std::vector<std::int64_t> sorted = order;
  std::sort(sorted.begin(), sorted.end());
  bool permutation = sorted.size() == from->size();
  for (std::size_t d = 0; permutation && d < sorted.size(); ++d)
    permutation = sorted[d] == static_cast<std::int64_t>(d);
  if (!permutation)
    return fail(ErrorCode::kValue,
                "",
                "attribute \"perm\" must be a permutation of 0 to " +
                    std::to_string(static_cast<std::int64_t>(from->size()) - 1));
  std::string text = factor_list("x", from->size()) + " ->";
  for (const std::int64_t d : order) text += " x" + std::to_string(d);
  return rule_from_text(spec, text + " ; lin:x saves:none flops:0");
}

Result<Rule> make_expand(const OperatorSpec& spec) {
  auto from = operand_shape(spec, 0);
  if (!from) return fail(from.error());
  auto shape = required_integers(spec, "shape");
  if (!shape) return fail(shape.error());
  Shape to = *shape;
  if (to.size() < from->size()) to.insert(to.begin(), from->size() - to.size(), 1);
  const std::size_t added = to.size() - from->size();
  std::string operand, result;
  std::map<std::string, std::int64_t> sizes;
  for (std::size_t d = 0; d < to.size(); ++d) {
    const std::string name = "x" + std::to_string(d);
    const std::int64_t size = d < added ? 1 : (*from)[d - added];
    if (to[d] < 1)
      return fail(ErrorCode::kValue,
                  "",
                  "attribute \"shape\": entry " + std::to_string(d) + " is " +
                      std::to_string(to[d]) + ", expected a size >= 1");
    if (size != 1 && to[d] != 1 && to[d] != size)
      return fail(ErrorCode::kValue,
                  "",
                  "attribute \"shape\": dimension " + std::to_string(d) + " of size " +
                      std::to_string(size) + " cannot become " + std::to_string(to[d]));
    const std::int64_t out = std::max(size, to[d]);
    if (d >= added) operand += size == out ? " " + name : " .";
    result += " " + name;
    sizes[name] = out;
  }
  return rule_from_text(spec, operand + " ->" + result + " ; lin:x saves:none flops:0", sizes);
}

}  // namespace meshplan

// SPDX-License-Identifier: Apache-2.0
#include "graph/dimension_sizes.h"

#include <charconv>
#include <system_error>
#include <vector>

#include "graph/json.h"
#include "lib/nearest_name.h"

namespace meshplan {
namespace {

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// Letters, digits, _ and . with a letter first, so that products can be told from names.
bool is_dimension_name(std::string_view name) {
  if (name.empty() || !is_letter(name.front())) return false;
  for (const char c : name) {
    if (!is_letter(c) && !is_digit(c) && c != '.') return false;
  }
  return true;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

}  // namespace

Result<DimensionSizes> DimensionSizes::make(const GraphDocument& document,
                                            std::int64_t microbatches) {
  DimensionSizes sizes;
  for (const DimensionDocument& dimension : document.dimensions) {
    const std::string where = document.file + ": /dimensions/" + json_pointer_part(dimension.name);
    if (!is_dimension_name(dimension.name)) {
      return fail(ErrorCode::kValue,
                  where,
                  "a dimension's name is made of letters, digits, _ and ., with a letter first");
    }
    if (dimension.size < 1) {
      return fail(ErrorCode::kValue,
                  where + "/size",
                  "expected an integer of at least 1, found " + std::to_string(dimension.size));
    }
    if (!sizes.values_.emplace(dimension.name, dimension.size).second) {
      return fail(ErrorCode::kDuplicate, where, "the dimension is declared twice");
    }
  }
  if (microbatches == 1) return sizes;
  const auto batch = sizes.values_.find("batch");
  if (batch == sizes.values_.end()) {
    return fail(ErrorCode::kMissing,
                document.file + ": /dimensions",
                "there is no dimension \"batch\" to divide into " + std::to_string(microbatches) +
                    " micro-batches");
  }
  if (microbatches < 1 || batch->second % microbatches != 0) {
    return fail(ErrorCode::kValue,
                document.file + ": /dimensions/batch/size",
                "the batch of " + std::to_string(batch->second) + " does not divide into " +
                    std::to_string(microbatches) + " micro-batches");
  }
  batch->second /= microbatches;
  return sizes;
}

Result<std::int64_t> DimensionSizes::factor(std::string_view text) const {
  if (!text.empty() && is_digit(text.front())) {
    std::int64_t number = 0;
    const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
    if (read.ec == std::errc::result_out_of_range) {
      return fail(ErrorCode::kOverflow, "", "the number does not fit into 64 bits");
    }
    if (read.ptr == text.data() + text.size() && number >= 1) return number;
  } else if (const auto found = values_.find(text); found != values_.end()) {
    return found->second;
  } else if (is_dimension_name(text)) {
    std::vector<std::string> known;
    for (const auto& [name, value] : values_) known.push_back(name);
    return fail(
        ErrorCode::kMissing,
        "",
        "dimension " + json_quote(text) + " is not declared" + nearest_name_hint(text, known));
  }
  return fail(ErrorCode::kValue,
              "",
              "expected the name of a dimension, a number of at least 1, or a product such as "
              "\"batch*seq\", found " +
                  json_quote(text.substr(0, 60)));
}

Result<std::int64_t> DimensionSizes::evaluate(const Size& size) const {
  if (const auto* number = std::get_if<std::int64_t>(&size)) return *number;
  std::string_view rest = std::get<std::string>(size);
  std::int64_t product = 1;
  while (true) {
    const std::size_t star = rest.find('*');
    const Result<std::int64_t> value = factor(trimmed(rest.substr(0, star)));
    if (!value) return value;
    if (__builtin_mul_overflow(product, *value, &product)) {
      return fail(ErrorCode::kOverflow,
                  "",
                  "the product " + json_quote(std::get<std::string>(size).substr(0, 60)) +
                      " does not fit into 64 bits");
    }
    if (star == std::string_view::npos) return product;
    rest.remove_prefix(star + 1);
  }
}

Result<std::int64_t> tensor_bytes(const Shape& shape, DType dtype) {
  if (shape.size() > kMostDimensions) {
    return fail(ErrorCode::kUnsupported,
                "",
                "a tensor has at most " + std::to_string(kMostDimensions) +
                    " dimensions, this one has " + std::to_string(shape.size()));
  }
  std::int64_t bytes = dtype_bytes(dtype);
  for (const std::int64_t size : shape) {
    if (__builtin_mul_overflow(bytes, size, &bytes) || bytes > kMostTensorBytes) {
      return fail(
          ErrorCode::kOverflow, "", "the tensor is larger than 2^62 bytes; check its shape");
    }
  }
  return bytes;
}

}  // namespace meshplan

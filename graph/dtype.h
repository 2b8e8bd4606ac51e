// SPDX-License-Identifier: Apache-2.0
// Element types of tensors.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace meshplan {

enum class DType : std::uint8_t {
  kBool,
  kUInt8,
  kInt8,
  kInt16,
  kInt32,
  kInt64,
  kFp8E4M3,
  kFp8E5M2,
  kFp16,
  kBf16,
  kFp32,
  kFp64,
};

/// "bool", "uint8", "int8", "int16", "int32", "int64", "fp8_e4m3", "fp8_e5m2", "fp16", "bf16",
/// "fp32", "fp64": the names used in files.
const char* dtype_name(DType dtype);
std::optional<DType> parse_dtype(std::string_view name);
/// Every name that parse_dtype reads, for error messages.
std::span<const std::string> dtype_names();
/// Bytes of one element.
int dtype_bytes(DType dtype);
/// True for the types that can carry a gradient.
bool is_floating(DType dtype);

}  // namespace meshplan

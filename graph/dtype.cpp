// SPDX-License-Identifier: Apache-2.0
#include "graph/dtype.h"

#include <array>
#include <cstddef>

namespace meshplan {
namespace {

struct DTypeRow {
  std::string name;
  int bytes;
  bool floating;
};

/// In the order of the enumerators.
const std::array<DTypeRow, 12>& rows() {
  static const std::array<DTypeRow, 12> kRows = {{
      {"bool", 1, false},
      {"uint8", 1, false},
      {"int8", 1, false},
      {"int16", 2, false},
      {"int32", 4, false},
      {"int64", 8, false},
      {"fp8_e4m3", 1, true},
      {"fp8_e5m2", 1, true},
      {"fp16", 2, true},
      {"bf16", 2, true},
      {"fp32", 4, true},
      {"fp64", 8, true},
  }};
  return kRows;
}

const DTypeRow& row(DType dtype) { return rows()[static_cast<std::size_t>(dtype)]; }

}  // namespace

const char* dtype_name(DType dtype) { return row(dtype).name.c_str(); }

std::optional<DType> parse_dtype(std::string_view name) {
  for (std::size_t i = 0; i < rows().size(); ++i) {
    if (rows()[i].name == name) return static_cast<DType>(i);
  }
  return std::nullopt;
}

std::span<const std::string> dtype_names() {
  static const auto kNames = [] {
    std::array<std::string, 12> names;
    for (std::size_t i = 0; i < names.size(); ++i) names[i] = rows()[i].name;
    return names;
  }();
  return kNames;
}

int dtype_bytes(DType dtype) { return row(dtype).bytes; }

bool is_floating(DType dtype) { return row(dtype).floating; }

}  // namespace meshplan

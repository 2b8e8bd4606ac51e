// SPDX-License-Identifier: Apache-2.0
#include <map>

#include "plan/execution/ops/meanings.h"

namespace meshplan {

Meaning find_meaning(const std::string& type) {
  static const std::map<std::string_view, Meaning> kRows = [] {
    std::map<std::string_view, Meaning> rows;
    for (const std::span<const MeaningRow> family : {attention_meanings(),
                                                     convolution_meanings(),
                                                     elementwise_meanings(),
                                                     gather_meanings(),
                                                     generator_meanings(),
                                                     join_meanings(),
                                                     loss_meanings(),
                                                     matmul_meanings(),
                                                     moe_meanings(),
                                                     normalization_meanings(),
                                                     reduction_meanings(),
                                                     selection_meanings(),
                                                     shape_meanings()}) {
      for (const MeaningRow& row : family) rows.emplace(row.type, row.meaning);
    }
    return rows;
  }();
  const auto found = kRows.find(type);
  return found == kRows.end() ? nullptr : found->second;
}

}  // namespace meshplan

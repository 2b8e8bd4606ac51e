// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>

#include "graph/operator_table.h"
#include "plan/execution/ops/meanings.h"

namespace meshplan {

namespace {

Meaning built_in_meaning(const std::string& type) {
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

bool is_built_in(const std::string& type) {
  const auto types = operator_types();
  return std::binary_search(types.begin(), types.end(), type);
}

}  // namespace

Meaning find_meaning(const std::string& type, const Rule& rule) {
  if (is_built_in(type)) return built_in_meaning(type);
  return no_meaning(rule) ? nullptr : meaning_by_rule;
}

Result<void> can_execute(const std::string& type, const Rule& rule) {
  if (find_meaning(type, rule) != nullptr) return {};
  return fail(ErrorCode::kUnsupported,
              "",
              "operators of type \"" + type + "\" cannot be executed" +
                  (is_built_in(type) ? std::string() : ": " + *no_meaning(rule)));
}

}  // namespace meshplan

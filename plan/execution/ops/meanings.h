// SPDX-License-Identifier: Apache-2.0
// The families of meanings. Each file of this folder has the rows of one family.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "plan/execution/operator_context.h"

namespace meshplan {

struct MeaningRow {
  std::string_view type;
  Meaning meaning;
};

std::span<const MeaningRow> attention_meanings();
std::span<const MeaningRow> convolution_meanings();
std::span<const MeaningRow> elementwise_meanings();
std::span<const MeaningRow> gather_meanings();
std::span<const MeaningRow> generator_meanings();
std::span<const MeaningRow> join_meanings();
std::span<const MeaningRow> loss_meanings();
std::span<const MeaningRow> matmul_meanings();
std::span<const MeaningRow> moe_meanings();
std::span<const MeaningRow> normalization_meanings();
std::span<const MeaningRow> reduction_meanings();
std::span<const MeaningRow> selection_meanings();
std::span<const MeaningRow> shape_meanings();

/// The results of an operator that only its rule describes: some function that has it.
std::vector<Var> meaning_by_rule(const OperatorContext& cx);
/// Why there is no such function of this rule; nullopt: there is.
std::optional<std::string> no_meaning(const Rule& rule);

}  // namespace meshplan

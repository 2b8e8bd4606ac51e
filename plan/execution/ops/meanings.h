// SPDX-License-Identifier: Apache-2.0
// The families of meanings. Each file of this folder has the rows of one family.
#pragma once

#include <span>
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

}  // namespace meshplan

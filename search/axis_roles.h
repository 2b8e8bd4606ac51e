// SPDX-License-Identifier: Apache-2.0
// What the axes of a mesh are used for in a plan, in the words of those who set up jobs.
//
//   dp    most products cut the batch
//   fsdp  the same, and parameters rest cut along the axis
//   zero1, zero2  parameters rest whole; their optimizer state, or gradients too, are cut
//   tp    products cut their weights
//   sp    the sequence is cut where the weights are not (beside tp), or products cut the sequence
//         and attention the heads
//   cp    products cut the sequence, and attention too
//   ep    products of experts cut the experts
//
// Votes are counted in FLOPs of products, in elements of normalised tensors and of parameters.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cost_model/evaluate.h"
#include "cost_model/price_book.h"

namespace meshplan {

/// What an axis cuts of an operator.
enum class AxisUse : std::uint8_t { kNone, kBatch, kSequence, kWeights, kExperts };

/// Tells what actions of operators mean. The graph must outlive it.
class AxisUses {
 public:
  explicit AxisUses(const Graph& graph);
  /// kWeights and kExperts of products alone.
  AxisUse of(OperatorId op, const AxisAction& action) const;

 private:
  const Graph& graph_;
  std::vector<std::optional<int>> batch_;  ///< the factor that the batch is, per operator
  std::vector<std::optional<int>> sequence_;
};

/// What a plan does along one axis, where it does something clear.
struct AxisHabit {
  AxisUse use = AxisUse::kNone;         ///< of the most FLOPs of products
  bool sequence_between = false;        ///< cuts weights, and most normalised tensors by sequence
  std::optional<ParameterAction> rest;  ///< of most parameters that readers want whole
  std::vector<std::string> roles;       ///< see axis_roles()
};
std::vector<AxisHabit> axis_habits(PriceBook& book, const Assignment& assignment);

/// Per mesh axis its roles, the one that the most FLOPs follow first; a role of less than a quarter
/// of the FLOPs is none. Axes of no clear use, and of size 1, have none.
std::vector<std::vector<std::string>> axis_roles(PriceBook& book, const Assignment& assignment);

/// A name for every mesh axis: its first role, with a number from the second axis of that role on
/// (tp, tp2); d0, d1, ... for axes without a role.
std::vector<std::string> axis_names(const std::vector<std::vector<std::string>>& roles);

}  // namespace meshplan

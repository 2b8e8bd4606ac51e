// SPDX-License-Identifier: Apache-2.0
// Rule: how an operator's dimensions relate. Its iteration space is a list of factors; every
// dimension of every operand and result is a product of factors, major to minor. Strategies,
// placements, gradients, local shapes, FLOPs and the plan checker derive from it.
//
// Notation (docs/rules.md): `b s h, h f -> b s f ; sum:h lin:x|y flops:2*b*s*h*f`.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/expression.h"
#include "graph/operator_family.h"
#include "lib/placement.h"
#include "lib/result.h"

namespace meshplan {

/// What sharding a factor means.
enum class FactorKind : std::uint8_t {
  kParallel,   ///< its index is in a result: no communication
  kReduction,  ///< in operands only: the result is Partial
  kStatistic,  ///< kept by the result, but small statistics over it are reduced inside the operator
  kWindow,     ///< a window slides along it: halo exchange
  kRing,       ///< keys and values of attention: sharded together with `partner`, or not at all
  kRoute,      ///< expert index: all-to-all inside the operator
  kWhole,      ///< cannot be sharded
};

struct Factor {
  std::string name;
  std::int64_t size = 1;
  FactorKind kind = FactorKind::kParallel;
  Reduction reduction = Reduction::kSum;  ///< kReduction: how partial results combine
  int partner = -1;                       ///< kRing: the factor it follows
  friend bool operator==(const Factor&, const Factor&) = default;
};

/// The factors of one dimension, major to minor; empty: a private dimension, never sharded.
using DimensionFactors = std::vector<int>;

struct OperandRule {
  std::vector<DimensionFactors> dims;
  std::vector<std::int64_t> shape;
  bool present = true;  ///< false for an omitted optional operand
  bool saved = false;   ///< the backward needs its value
  friend bool operator==(const OperandRule&, const OperandRule&) = default;
};

/// A way for Partial(sum) to pass through: these operands and every result are Partial; with
/// `joint`, all of `operands` are needed to be Partial, the other operands are replicated.
struct LinearGroup {
  std::vector<int> operands;
  friend bool operator==(const LinearGroup&, const LinearGroup&) = default;
};

struct Rule {
  std::string text;  ///< the notation it came from
  OperatorFamily family = OperatorFamily::kOther;
  std::vector<Factor> factors;
  std::vector<OperandRule> operands;
  std::vector<OperandRule> results;
  std::vector<LinearGroup> linear;
  bool product =
      false;  ///< linear in each operand alone (`lin:x|y`): an operand's gradient reads the others
  double backward_factor = 0;  ///< backward FLOPs over forward FLOPs; 0: once per operand with a
                               ///< gradient (product) or one pass
  int statistic_forward = 0;   ///< collectives over a sharded statistic factor, forward
  int statistic_backward = 0;  ///< and backward
  double flops_scale = 1;      ///< multiplies the FLOPs expression (0.5 for causal attention)
  int workspace_bytes =
      0;  ///< bytes per element of the first operand held while it runs, both ways

  /// Forward floating-point operations with the given size of every factor.
  double flops(std::span<const std::int64_t> factor_sizes) const;
  /// Elements of the first result's type that the forward moves instead of all operands and
  /// results; nullopt where the default holds.
  std::optional<double> moved_elements(std::span<const std::int64_t> factor_sizes) const;

  std::optional<Expression> flops_expression;
  std::optional<Expression> bytes_expression;
  std::map<std::string, std::vector<int>> names;  ///< name of a factor or run -> its factors
};

/// Builds a Rule for operands of these shapes. `text` is in the rule notation; an omitted optional
/// operand is nullopt. `sizes` gives sizes of factors that no operand dimension determines
/// (compound dimensions, result-only factors).
/// Errors (empty where): kValue with the column in `text`, or with what does not fit which operand.
Result<Rule> make_rule(std::string_view text,
                       std::span<const std::optional<std::vector<std::int64_t>>> operand_shapes,
                       const std::map<std::string, std::int64_t>& sizes = {});

}  // namespace meshplan

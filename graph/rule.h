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
  kWindow,     ///< a window slides along it: halo exchange with the neighbours
  kRing,       ///< keys and values of attention: sharded together with `partner`, or not at all
  kWhole,      ///< cannot be sharded
};

/// How windows lie along a factor: window i covers `width` positions of the operand's dimension
/// from i * stride - before on, which has `extent` positions between `before` and `after` of
/// padding. The factor's size is the number of windows, the result's dimension.
struct Window {
  std::int64_t extent = 0;
  std::int64_t width = 1;
  std::int64_t stride = 1;
  std::int64_t before = 0;
  std::int64_t after = 0;
  friend bool operator==(const Window&, const Window&) = default;
};

/// Positions that a shard of a window factor reads of the shards before and after it (the most
/// over all shards).
struct Halo {
  std::int64_t before = 0;
  std::int64_t after = 0;
  friend bool operator==(const Halo&, const Halo&) = default;
};

struct Factor {
  std::string name;
  std::int64_t size = 1;
  FactorKind kind = FactorKind::kParallel;
  Reduction reduction = Reduction::kSum;  ///< kReduction: how partial results combine
  int partner = -1;                       ///< kRing: the factor it follows
  Window window;                          ///< kWindow
  /// What the pieces of a cut must divide: the common part of its sizes at all sizes of the dynamic
  /// dimensions; 0: its size.
  std::int64_t unit = 0;
  /// Whether it can be cut into so many equal pieces, whatever the dynamic dimensions are.
  bool divides_into(std::int64_t pieces) const { return (unit > 0 ? unit : size) % pieces == 0; }
  friend bool operator==(const Factor&, const Factor&) = default;
};

/// The factors of one dimension, major to minor; empty: a private dimension, never sharded.
using DimensionFactors = std::vector<int>;

struct OperandRule {
  std::vector<DimensionFactors> dims;
  std::vector<std::int64_t> shape;
  bool present = true;  ///< false for an omitted optional operand
  bool saved = false;   ///< the backward needs its value
  /// Added to the result as it is (a bias). Where the result is Partial on an axis and this operand
  /// is replicated, the first device of the axis alone adds it, so its gradient is a sum there.
  bool addend = false;
  friend bool operator==(const OperandRule&, const OperandRule&) = default;
};

/// A way for Partial(sum) to pass through: these operands and every result are Partial; with
/// `joint`, all of `operands` are needed to be Partial, the other operands are replicated.
struct LinearGroup {
  std::vector<int> operands;
  friend bool operator==(const LinearGroup&, const LinearGroup&) = default;
};

/// An axis that cuts the tokens `token` on one side of the operator cuts the experts `expert` on
/// the other side, by an all-to-all inside.
struct Route {
  int token = -1;
  int expert = -1;
  friend bool operator==(const Route&, const Route&) = default;
};

/// Buffers of an operator's own on a device, in bytes per local element of its first operand.
struct Workspace {
  int forward = 0;    ///< while the forward runs
  int kept = 0;       ///< from then until the backward
  int backward = 0;   ///< while the backward runs
  int exchanged = 0;  ///< more in both where a statistic factor is sharded
  friend bool operator==(const Workspace&, const Workspace&) = default;
};

struct Rule {
  std::string text;  ///< the notation it came from
  OperatorFamily family = OperatorFamily::kOther;
  std::vector<Factor> factors;
  std::vector<OperandRule> operands;
  std::vector<OperandRule> results;
  std::vector<LinearGroup> linear;
  std::vector<Route> routes;
  bool product =
      false;  ///< linear in each operand alone (`lin:x|y`): an operand's gradient reads the others
  double backward_factor = 0;  ///< backward FLOPs over forward FLOPs; 0: once per operand with a
                               ///< gradient (product) or one pass
  int statistic_forward = 0;   ///< collectives over a sharded statistic factor, forward
  int statistic_backward = 0;  ///< and backward
  int statistic_values = 1;    ///< numbers per row in each (mean and variance travel together: 2)
  double flops_scale = 1;      ///< multiplies the FLOPs expression (0.5 for causal attention)
  Workspace workspace;

  /// Forward floating-point operations with the given size of every factor.
  double flops(std::span<const std::int64_t> factor_sizes) const;
  /// Elements of the first result's type that the forward moves instead of all operands and
  /// results; nullopt where the default holds.
  std::optional<double> moved_elements(std::span<const std::int64_t> factor_sizes) const;

  std::optional<Expression> flops_expression;
  std::optional<Expression> bytes_expression;
  std::map<std::string, std::vector<int>> names;  ///< name of a factor or run -> its factors
};

/// Whether sharding the factor exchanges statistics inside the operator. In the backward a maximum,
/// minimum or product does, too: its gradient needs the reduced value, which the result, Partial
/// then, does not hold.
bool exchanges_statistics(const Factor& factor, bool backward);

/// nullopt where the pieces are unequal or a shard reads beyond its direct neighbours.
std::optional<Halo> halo(const Window& window, std::int64_t windows, std::int64_t pieces);

/// The family of an operator that only its rule describes: a product of its first two operands that
/// sums over a common factor is a kMatMul.
OperatorFamily family_of(const Rule& rule);

/// Builds a Rule for operands of these shapes. `text` is in the rule notation; an omitted optional
/// operand is nullopt. `sizes` gives sizes of factors that no operand dimension determines
/// (compound dimensions, result-only factors).
/// Errors (empty where): kValue with the column in `text`, or with what does not fit which operand.
Result<Rule> make_rule(std::string_view text,
                       std::span<const std::optional<std::vector<std::int64_t>>> operand_shapes,
                       const std::map<std::string, std::int64_t>& sizes = {});

}  // namespace meshplan

// SPDX-License-Identifier: Apache-2.0
// The difference between two plans: what changed, where, what it costs, and whether the new plan is
// worse than allowed.
//
// Operators and tensors are matched by name. Equal changes of entries whose names differ by
// counters are one line (plan_fold.h), so what happens to 32 equal layers is said once. The effect
// of a change is the difference of the operator's part in the objective; all effects together are
// the difference of the objectives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "graph/scope_pattern.h"
#include "lib/units.h"
#include "plan/plan.h"

namespace meshplan {

struct DiffOptions {
  double max_slowdown = 0.02;       ///< of step time and objective, as a fraction of the old one's
  double max_memory_growth = 0.02;  ///< of the peak
  /// Changes of what one of these matches are not listed: a scope that a name lies in, the end of a
  /// name, or "options.NAME". Limits hold for the whole plans nevertheless.
  std::vector<ScopePattern> ignore;
  /// The scope of an operator; nullopt: its name without the last part. May be empty.
  std::function<std::optional<std::string>(const std::string&)> scope_of;
};

enum class ChangeKind : std::uint8_t {
  kAdded,
  kRemoved,
  kChanged,  ///< it does something else
  kCost,     ///< it does the same for another price
};
/// "added", "removed", "changed", "cost".
const char* change_kind_name(ChangeKind kind);

/// One property that differs, as text; "" where there is none.
struct DiffAspect {
  std::string what;  ///< "inputs", "outputs", "at rest", "gradient", ...
  std::string before;
  std::string after;
  friend bool operator==(const DiffAspect&, const DiffAspect&) = default;
};

/// Equal changes of operators or tensors with names that differ by counters.
struct DiffEntry {
  std::string name;  ///< "layers.{0..31}.mlp.fc1"
  std::size_t count = 1;
  ChangeKind kind = ChangeKind::kChanged;
  std::string type;  ///< of the operator; of a tensor: "tensor" or "parameter"
  std::vector<DiffAspect> aspects;
  /// All of them together, per step. Operators: their part in the objective. Tensors: their
  /// collectives and updates, hidden or not, which stand in their readers' parts already.
  Seconds before;
  Seconds after;
  Bytes bytes = 0;  ///< tensors: what the values on one device grow by, all together

  Seconds effect() const { return after - before; }
};

/// The operators of one scope that changed.
struct DiffScope {
  std::string name;  ///< "layers.{0..31}.mlp"; "" for names without a scope
  std::size_t operators = 0;
  Seconds effect;
  std::vector<DiffEntry> entries;  ///< the largest effects first
};

/// A number before and after; none where a plan has none.
struct DiffNumber {
  std::string name;
  std::optional<double> before;
  std::optional<double> after;
  /// (after - before) / before; none where there is nothing to divide.
  std::optional<double> change() const;
};

/// A part of the objective.
struct DiffCell {
  std::string kind;
  std::vector<std::string> axes;
  std::optional<std::string> level;
  Seconds before;
  Seconds after;
};

/// One thing that must not get worse.
struct DiffLimit {
  std::string name;  ///< "step_time", "objective", "peak_memory", "fits"
  bool holds = true;
  std::optional<double> change;   ///< relative
  std::optional<double> allowed;  ///< relative
  std::string message;            ///< a sentence
};

struct DiffCounts {
  std::size_t added = 0;
  std::size_t removed = 0;
  std::size_t changed = 0;
  std::size_t cost = 0;
  std::size_t same = 0;
  std::size_t ignored = 0;
};

struct PlanDiff {
  std::vector<DiffLimit> limits;
  std::vector<DiffAspect> identity;  ///< graph, cluster, devices, generator
  std::vector<DiffAspect> mesh;      ///< empty: the same
  std::vector<DiffAspect> options;
  std::vector<DiffAspect> result;   ///< status, gap, the moment of the peak
  std::vector<DiffNumber> cost;     ///< seconds, but for rates and prices
  std::vector<DiffNumber> memory;   ///< bytes
  std::vector<DiffCell> breakdown;  ///< what differs, the largest differences first
  std::vector<DiffScope> scopes;    ///< the largest effects first
  std::vector<DiffEntry> tensors;   ///< the largest effects first
  DiffCounts operator_counts;
  DiffCounts tensor_counts;
  Seconds effect;  ///< of all operators' changes, those ignored included

  bool worse() const;
  /// Nothing is listed: the plans do the same for the same price.
  bool empty() const;
};

/// Never fails, whatever the plans say. The same for any order of the entries.
PlanDiff diff_plans(const Plan& before, const Plan& after, const DiffOptions& options = {});

}  // namespace meshplan

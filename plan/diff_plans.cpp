// SPDX-License-Identifier: Apache-2.0
#include "plan/diff_plans.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <variant>

#include "graph/dtype.h"
#include "graph/json.h"
#include "lib/text.h"
#include "plan/body_writer.h"
#include "plan/plan_fold.h"
#include "plan/plan_summary.h"
#include "plan/readable.h"

namespace meshplan {
namespace {

std::string joined(const std::vector<std::string>& parts, const char* between) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : between) + part;
  return text;
}

// ---- What the parts of a plan look like as text -------------------------------------------------

std::string text_of(const Placements& placements) { return "[" + to_string(placements) + "]"; }

std::string text_of(const std::vector<Placements>& list) {
  std::vector<std::string> parts;
  for (const Placements& placements : list) parts.push_back(text_of(placements));
  return joined(parts, " ");
}

std::string text_of(const std::vector<std::optional<Placements>>& list) {
  std::vector<std::string> parts;
  for (const auto& placements : list) parts.push_back(placements ? text_of(*placements) : "none");
  return joined(parts, " ");
}

std::string text_of(const std::optional<Placements>& placements) {
  return placements ? text_of(*placements) : "";
}

std::string text_of(const std::vector<PlanCollective>& collectives) {
  std::vector<std::string> parts;
  for (const PlanCollective& inner : collectives) {
    parts.push_back(std::string(phase_name(inner.phase)) + " " + collective_name(inner.collective) +
                    "(" + joined(inner.axes, ",") + ")" +
                    (inner.count > 1 ? " x" + std::to_string(inner.count) : ""));
  }
  return joined(parts, ", ");
}

/// Who reads it is left out: in equal layers that are other names.
std::string text_of(const std::vector<PlanSaved>& saved) {
  std::vector<std::string> parts;
  for (const PlanSaved& each : saved)
    parts.push_back(text_of(each.placements) + " " + saved_name(each.backward));
  return joined(parts, ", ");
}

std::string text_of(const OptionValue& value) {
  struct Visitor {
    std::string operator()(bool flag) const { return flag ? "true" : "false"; }
    std::string operator()(std::int64_t number) const { return std::to_string(number); }
    std::string operator()(double number) const {
      return std::isfinite(number) ? json_number(number) : std::to_string(number);
    }
    std::string operator()(const std::string& text) const { return text; }
    std::string operator()(const std::vector<std::string>& texts) const {
      return joined(texts, ", ");
    }
  };
  return std::visit(Visitor{}, value);
}

void add_aspect(std::vector<DiffAspect>& aspects,
                std::string what,
                std::string before,
                std::string after) {
  if (before == after) return;
  aspects.push_back({std::move(what), std::move(before), std::move(after)});
}

/// Plans may say anything: times beyond all reason are cut, so that sums of a million stay finite.
Seconds bounded(Seconds time) {
  constexpr double kMost = 1e200;
  return std::isnan(time.value) ? Seconds{} : Seconds{std::clamp(time.value, -kMost, kMost)};
}

// ---- Tensors with what moves them ---------------------------------------------------------------

/// A tensor of a plan and its redistributions.
struct Travelling {
  const PlanTensor* tensor = nullptr;
  std::vector<const PlanRedistribution*> moves;
};

bool same_way(const PlanRedistribution& a, const PlanRedistribution& b) {
  return a.phase == b.phase && a.per == b.per && a.from == b.from && a.to == b.to &&
         a.steps == b.steps;
}

bool same_saved(const std::vector<PlanSaved>& a, const std::vector<PlanSaved>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& x, const auto& y) {
    return x.placements == y.placements && x.backward == y.backward;
  });
}

/// Everything but the names of readers.
bool same(const Travelling& a, const Travelling& b) {
  const PlanTensor& x = *a.tensor;
  const PlanTensor& y = *b.tensor;
  return x.placements == y.placements && x.shape == y.shape && x.dtype == y.dtype &&
         x.local_shape == y.local_shape && x.gradient == y.gradient &&
         x.optimizer_state == y.optimizer_state && x.update_time == y.update_time &&
         same_saved(x.saved, y.saved) &&
         std::equal(a.moves.begin(),
                    a.moves.end(),
                    b.moves.begin(),
                    b.moves.end(),
                    [](const auto* m, const auto* n) { return same_way(*m, *n); });
}

std::string text_of(const std::vector<const PlanRedistribution*>& moves) {
  std::vector<std::string> parts;
  for (const PlanRedistribution* move : moves) {
    std::string part = phase_name(move->phase);
    for (const PlanStep& step : move->steps) {
      part += std::string(" ") + collective_name(step.collective);
      if (!step.axes.empty()) part += "(" + joined(step.axes, ",") + ")";
    }
    // what happens once per micro-batch anyway needs no word
    if (move->per == Per::kStep) part += " per step";
    parts.push_back(std::move(part));
  }
  return joined(parts, ", ");
}

Seconds time_of(const Plan& plan, const Travelling& way) {
  Seconds time = bounded(way.tensor->update_time.value_or(Seconds{}));
  for (const PlanRedistribution* move : way.moves) {
    const double times =
        move->per == Per::kStep ? 1 : static_cast<double>(plan.options.microbatches);
    for (const PlanStep& step : move->steps) time += times * bounded(step.time);
  }
  return bounded(time);
}

Bytes local_bytes(const PlanTensor& tensor) {
  const auto dtype = parse_dtype(tensor.dtype);
  Bytes bytes = dtype ? dtype_bytes(*dtype) : 0;
  for (const std::int64_t extent : tensor.local_shape) {
    if (extent < 0 || __builtin_mul_overflow(bytes, extent, &bytes)) return 0;
  }
  return bytes;
}

/// Tensors by name, in the order of the plan.
struct TensorIndex {
  explicit TensorIndex(const Plan& plan) {
    for (const PlanTensor& tensor : plan.tensors) {
      if (numbers.try_emplace(tensor.name, list.size()).second) list.push_back({&tensor, {}});
    }
    for (const PlanRedistribution& move : plan.redistributions) {
      const auto found = numbers.find(move.tensor);
      if (found != numbers.end()) list[found->second].moves.push_back(&move);
    }
  }
  const Travelling* find(const std::string& name) const {
    const auto found = numbers.find(name);
    return found == numbers.end() ? nullptr : &list[found->second];
  }
  std::vector<Travelling> list;
  std::unordered_map<std::string_view, std::size_t> numbers;  ///< looked up only, never walked
};

// ---- Folding ------------------------------------------------------------------------------------

/// A change of one operator or tensor.
struct Change {
  std::string name;
  std::string scope;
  ChangeKind kind = ChangeKind::kChanged;
  std::string type;
  std::vector<DiffAspect> aspects;
  Seconds before;
  Seconds after;
  Bytes bytes = 0;
};

struct FoldedChange {
  DiffEntry entry;
  std::string scope;
};

std::vector<FoldedChange> fold_changes(const std::vector<Change>& changes) {
  std::unordered_map<std::string, std::size_t> bodies;  // looked up only, never walked
  std::vector<FoldItem> items;
  BodyWriter body;
  for (const Change& change : changes) {
    body.clear();
    body.value(static_cast<int>(change.kind));
    body.value(change.type);
    for (const DiffAspect& aspect : change.aspects) {
      body.value(aspect.what);
      body.value(aspect.before);
      body.value(aspect.after);
    }
    body.value(change.before.value);
    body.value(change.after.value);
    body.value(change.bytes);
    const std::size_t number = bodies.try_emplace(body.bytes(), bodies.size()).first->second;
    items.push_back({{change.name, change.scope}, number});
  }
  std::vector<FoldedChange> folded;
  for (FoldedItem& item : fold(items)) {
    const Change& sample = changes[item.members.front()];
    FoldedChange& made = folded.emplace_back();
    made.scope = std::move(item.texts[1]);
    DiffEntry& entry = made.entry;
    entry.name = std::move(item.texts[0]);
    entry.count = item.members.size();
    entry.kind = sample.kind;
    entry.type = sample.type;
    entry.aspects = sample.aspects;
    entry.before = static_cast<double>(entry.count) * sample.before;
    entry.after = static_cast<double>(entry.count) * sample.after;
    if (__builtin_mul_overflow(sample.bytes, static_cast<Bytes>(entry.count), &entry.bytes))
      entry.bytes = 0;
  }
  return folded;
}

/// The largest effects first, what does something else before what only costs something else.
bool stands_before(const DiffEntry& a, const DiffEntry& b) {
  const auto key = [](const DiffEntry& entry) {
    return std::make_tuple(
        -std::abs(entry.effect().value), entry.kind == ChangeKind::kCost, -std::abs(entry.bytes));
  };
  return std::make_tuple(key(a), std::string_view(a.name)) <
         std::make_tuple(key(b), std::string_view(b.name));
}

// ---- The whole ----------------------------------------------------------------------------------

class Differ {
 public:
  Differ(const Plan& before, const Plan& after, const DiffOptions& options)
      : before_(before), after_(after), options_(options) {}

  PlanDiff run() {
    compare_head();
    compare_options();
    compare_numbers();
    compare_breakdown();
    compare_operators();
    compare_tensors();
    judge();
    return std::move(diff_);
  }

 private:
  bool ignored(const std::string& name) const {
    return std::any_of(
        options_.ignore.begin(), options_.ignore.end(), [&](const ScopePattern& pattern) {
          return pattern.instance_in(name) || pattern.ends(name);
        });
  }

  std::string scope_of(const std::string& name) const {
    if (options_.scope_of) {
      if (auto scope = options_.scope_of(name)) return *std::move(scope);
    }
    const std::size_t end = name.find_last_of("./");
    return end == std::string::npos ? "" : name.substr(0, end);
  }

  void compare_head() {
    const auto identity = [&](const char* what, const std::string& a, const std::string& b) {
      add_aspect(diff_.identity, what, a, b);
    };
    identity("graph", before_.graph.name, after_.graph.name);
    identity("graph fingerprint", before_.graph.fingerprint, after_.graph.fingerprint);
    identity("cluster", before_.cluster.name, after_.cluster.name);
    identity("cluster fingerprint", before_.cluster.fingerprint, after_.cluster.fingerprint);
    identity(
        "devices", std::to_string(before_.cluster.devices), std::to_string(after_.cluster.devices));
    identity("generator", before_.generator_version, after_.generator_version);
    add_aspect(diff_.mesh, "mesh", mesh_text(before_.mesh), mesh_text(after_.mesh));
    if (diff_.mesh.empty() && before_.mesh.ranks != after_.mesh.ranks) {
      const auto ranks = [](const PlanMesh& mesh) {
        return mesh.ranks.empty() ? std::string("row-major") : std::string("other ranks");
      };
      diff_.mesh.push_back({"ranks", ranks(before_.mesh), ranks(after_.mesh)});
    }
    const PlanResult& a = before_.result;
    const PlanResult& b = after_.result;
    add_aspect(diff_.result, "status", plan_status_name(a.status), plan_status_name(b.status));
    const auto gap = [](const PlanResult& result) {
      return result.gap ? readable_percent(*result.gap) : "none proven";
    };
    add_aspect(diff_.result, "gap", gap(a), gap(b));
    add_aspect(diff_.result, "moment of the peak", before_.memory.moment, after_.memory.moment);
  }

  static std::map<std::string, std::string> option_texts(const PlanOptions& options) {
    std::map<std::string, std::string> texts = {
        {"search", options.search},
        {"mode", options.mode},
        {"optimizer", options.optimizer},
        {"microbatches", std::to_string(options.microbatches)},
        {"recompute", options.recompute},
        {"seed", std::to_string(options.seed)}};
    for (const auto& [kind, fraction] : options.overlap)
      texts["overlap." + kind] = text_of(OptionValue(fraction));
    for (const auto& [name, value] : options.others) texts[name] = text_of(value);
    return texts;
  }

  void compare_options() {
    const auto before = option_texts(before_.options);
    auto after = option_texts(after_.options);
    const auto add = [&](const std::string& name, const std::string& a, const std::string& b) {
      if (!ignored("options." + name)) add_aspect(diff_.options, name, a, b);
    };
    for (const auto& [name, text] : before) {
      const auto found = after.find(name);
      add(name, text, found == after.end() ? "" : found->second);
      if (found != after.end()) after.erase(found);
    }
    for (const auto& [name, text] : after) add(name, "", text);
    std::sort(diff_.options.begin(), diff_.options.end(), [](const auto& a, const auto& b) {
      return a.what < b.what;
    });
  }

  void compare_numbers() {
    using Number = std::optional<double>;
    const auto seconds = [](const std::optional<Seconds>& time) {
      return time ? Number(time->value) : Number();
    };
    const bool cost_before = before_.result.status != PlanStatus::kInfeasible;
    const bool cost_after = after_.result.status != PlanStatus::kInfeasible;
    const auto add = [&](const char* name, auto value) {
      diff_.cost.push_back({name,
                            cost_before ? Number(value(before_.cost)) : Number(),
                            cost_after ? Number(value(after_.cost)) : Number()});
    };
    diff_.cost.push_back(
        {"objective", seconds(before_.result.objective), seconds(after_.result.objective)});
    add("step_time", [](const PlanCost& cost) { return cost.step_time.value; });
    add("compute_time", [](const PlanCost& cost) { return cost.compute_time.value; });
    add("communication_time", [](const PlanCost& cost) { return cost.communication_time.value; });
    add("exposed_communication_time",
        [](const PlanCost& cost) { return cost.exposed_communication_time.value; });
    add("tokens_per_second", [](const PlanCost& cost) { return cost.tokens_per_second; });
    add("model_flops_utilization",
        [](const PlanCost& cost) { return cost.model_flops_utilization; });
    if (before_.cost.price_per_step || after_.cost.price_per_step) {
      diff_.cost.push_back(
          {"price_per_step", before_.cost.price_per_step, after_.cost.price_per_step});
    }
    const auto bytes = [&](const char* name, Bytes PlanMemory::*member) {
      const auto of = [&](const Plan& plan, bool feasible) {
        return feasible || member == &PlanMemory::limit
                   ? Number(static_cast<double>(plan.memory.*member))
                   : Number();
      };
      diff_.memory.push_back({name, of(before_, cost_before), of(after_, cost_after)});
    };
    bytes("peak", &PlanMemory::peak);
    bytes("limit", &PlanMemory::limit);
    bytes("parameters", &PlanMemory::parameters);
    bytes("gradients", &PlanMemory::gradients);
    bytes("optimizer", &PlanMemory::optimizer);
    bytes("activations", &PlanMemory::activations);
    bytes("gathered", &PlanMemory::gathered);
    bytes("buffers", &PlanMemory::buffers);
    bytes("workspace", &PlanMemory::workspace);
  }

  void compare_breakdown() {
    std::map<std::tuple<std::string, std::vector<std::string>, std::optional<std::string>>,
             DiffCell>
        cells;
    const auto add = [&](const Plan& plan, Seconds DiffCell::*side) {
      for (const PlanCostCell& cell : plan.breakdown) {
        const std::string kind = cost_kind_name(cell.kind);
        DiffCell& made = cells[{kind, cell.axes, cell.level}];
        made.kind = kind;
        made.axes = cell.axes;
        made.level = cell.level;
        made.*side += bounded(cell.objective);
      }
    };
    add(before_, &DiffCell::before);
    add(after_, &DiffCell::after);
    for (auto& [key, cell] : cells) {
      if (cell.before != cell.after) diff_.breakdown.push_back(std::move(cell));
    }
    std::stable_sort(
        diff_.breakdown.begin(), diff_.breakdown.end(), [](const DiffCell& a, const DiffCell& b) {
          return std::abs((a.after - a.before).value) > std::abs((b.after - b.before).value);
        });
  }

  static Seconds price(const PlanOperator& op) {
    return bounded(op.objective.value_or(op.compute_time));
  }

  void compare_operators() {
    std::unordered_map<std::string_view, const PlanOperator*> old;  // looked up only
    for (const PlanOperator& op : before_.operators) old.try_emplace(op.name, &op);
    std::unordered_map<std::string_view, bool> present;  // looked up only
    std::vector<Change> changes;
    DiffCounts& counts = diff_.operator_counts;
    const auto add = [&](Change change) {
      diff_.effect += change.after - change.before;
      if (ignored(change.name)) {
        ++counts.ignored;
        return;
      }
      ++count_of(counts, change.kind);
      change.scope = scope_of(change.name);
      changes.push_back(std::move(change));
    };
    for (const PlanOperator& op : after_.operators) {
      if (!present.try_emplace(op.name, true).second) continue;
      const auto found = old.find(op.name);
      if (found == old.end()) {
        add({op.name, "", ChangeKind::kAdded, op.type, added_aspects(op), {}, price(op)});
        continue;
      }
      const PlanOperator& was = *found->second;
      if (was == op) {
        ++counts.same;
        continue;
      }
      std::vector<DiffAspect> aspects = changed_aspects(was, op);
      const bool cost = aspects.empty();
      if (cost && price(was) == price(op) && was.compute_time == op.compute_time) {
        ++counts.same;
        continue;
      }
      add({op.name,
           "",
           cost ? ChangeKind::kCost : ChangeKind::kChanged,
           op.type,
           std::move(aspects),
           price(was),
           price(op)});
    }
    for (const PlanOperator& op : before_.operators) {
      if (present.try_emplace(op.name, true).second)
        add({op.name, "", ChangeKind::kRemoved, op.type, removed_aspects(op), price(op), {}});
    }
    collect_scopes(changes);
  }

  static std::size_t& count_of(DiffCounts& counts, ChangeKind kind) {
    switch (kind) {
      case ChangeKind::kAdded:
        return counts.added;
      case ChangeKind::kRemoved:
        return counts.removed;
      case ChangeKind::kChanged:
        return counts.changed;
      case ChangeKind::kCost:
        return counts.cost;
    }
    return counts.changed;
  }

  static std::vector<DiffAspect> changed_aspects(const PlanOperator& was, const PlanOperator& is) {
    std::vector<DiffAspect> aspects;
    add_aspect(aspects, "type", was.type, is.type);
    if (was.in_placements != is.in_placements)
      add_aspect(aspects, "inputs", text_of(was.in_placements), text_of(is.in_placements));
    if (was.out_placements != is.out_placements)
      add_aspect(aspects, "outputs", text_of(was.out_placements), text_of(is.out_placements));
    add_aspect(
        aspects, "recompute", was.recompute ? "true" : "false", is.recompute ? "true" : "false");
    if (was.collectives != is.collectives)
      add_aspect(aspects, "collectives", text_of(was.collectives), text_of(is.collectives));
    return aspects;
  }
  static std::vector<DiffAspect> added_aspects(const PlanOperator& op) {
    std::vector<DiffAspect> aspects;
    add_aspect(aspects, "inputs", "", text_of(op.in_placements));
    add_aspect(aspects, "outputs", "", text_of(op.out_placements));
    return aspects;
  }
  static std::vector<DiffAspect> removed_aspects(const PlanOperator& op) {
    std::vector<DiffAspect> aspects = added_aspects(op);
    for (DiffAspect& aspect : aspects) std::swap(aspect.before, aspect.after);
    return aspects;
  }

  void collect_scopes(const std::vector<Change>& changes) {
    std::map<std::string, DiffScope> scopes;
    for (FoldedChange& change : fold_changes(changes)) {
      DiffScope& scope = scopes[change.scope];
      scope.name = change.scope;
      scope.operators += change.entry.count;
      scope.effect += change.entry.effect();
      scope.entries.push_back(std::move(change.entry));
    }
    for (auto& [name, scope] : scopes) {
      std::sort(scope.entries.begin(), scope.entries.end(), stands_before);
      diff_.scopes.push_back(std::move(scope));
    }
    std::stable_sort(
        diff_.scopes.begin(), diff_.scopes.end(), [](const DiffScope& a, const DiffScope& b) {
          return std::abs(a.effect.value) > std::abs(b.effect.value);
        });
  }

  void compare_tensors() {
    const TensorIndex old(before_);
    const TensorIndex now(after_);
    std::vector<Change> changes;
    DiffCounts& counts = diff_.tensor_counts;
    const auto add = [&](Change change) {
      if (ignored(change.name)) {
        ++counts.ignored;
        return;
      }
      ++count_of(counts, change.kind);
      changes.push_back(std::move(change));
    };
    const auto type = [](const PlanTensor& tensor) {
      return std::string(tensor.optimizer_state ? "parameter" : "tensor");
    };
    for (const Travelling& way : now.list) {
      const PlanTensor& tensor = *way.tensor;
      const Travelling* was = old.find(tensor.name);
      Change change;
      change.name = tensor.name;
      change.type = type(tensor);
      change.after = time_of(after_, way);
      if (was == nullptr) {
        change.kind = ChangeKind::kAdded;
        change.bytes = local_bytes(tensor);
        add_aspect(change.aspects, "placements", "", text_of(tensor.placements));
        add(std::move(change));
        continue;
      }
      change.before = time_of(before_, *was);
      if (change.before == change.after && same(*was, way)) {
        ++counts.same;
        continue;
      }
      change.aspects = tensor_aspects(*was, way);
      change.kind = change.aspects.empty() ? ChangeKind::kCost : ChangeKind::kChanged;
      change.bytes = local_bytes(tensor) - local_bytes(*was->tensor);
      add(std::move(change));
    }
    for (const Travelling& way : old.list) {
      const PlanTensor& tensor = *way.tensor;
      if (now.find(tensor.name) != nullptr) continue;
      Change change;
      change.name = tensor.name;
      change.type = type(tensor);
      change.kind = ChangeKind::kRemoved;
      change.before = time_of(before_, way);
      change.bytes = -local_bytes(tensor);
      add_aspect(change.aspects, "placements", text_of(tensor.placements), "");
      add(std::move(change));
    }
    for (FoldedChange& change : fold_changes(changes))
      diff_.tensors.push_back(std::move(change.entry));
    std::sort(diff_.tensors.begin(), diff_.tensors.end(), stands_before);
  }

  static std::string shape_text(const PlanTensor& tensor) {
    std::vector<std::string> sizes;
    for (const std::int64_t size : tensor.shape) sizes.push_back(std::to_string(size));
    return tensor.dtype + "[" + joined(sizes, ",") + "]";
  }

  static std::vector<DiffAspect> tensor_aspects(const Travelling& was, const Travelling& is) {
    const PlanTensor& a = *was.tensor;
    const PlanTensor& b = *is.tensor;
    std::vector<DiffAspect> aspects;
    if (a.shape != b.shape || a.dtype != b.dtype)
      add_aspect(aspects, "shape", shape_text(a), shape_text(b));
    if (a.placements != b.placements)
      add_aspect(aspects, "placements", text_of(a.placements), text_of(b.placements));
    if (a.gradient != b.gradient)
      add_aspect(aspects, "gradient", text_of(a.gradient), text_of(b.gradient));
    if (a.optimizer_state != b.optimizer_state)
      add_aspect(
          aspects, "optimizer_state", text_of(a.optimizer_state), text_of(b.optimizer_state));
    if (!same_saved(a.saved, b.saved))
      add_aspect(aspects, "saved", text_of(a.saved), text_of(b.saved));
    add_aspect(aspects, "collectives", text_of(was.moves), text_of(is.moves));
    return aspects;
  }

  // ---- The verdict

  const DiffNumber& number(const std::vector<DiffNumber>& list, std::string_view name) const {
    return *std::find_if(
        list.begin(), list.end(), [&](const DiffNumber& each) { return each.name == name; });
  }

  void limit(const char* name, const char* what, const DiffNumber& number, double allowed) {
    DiffLimit made;
    made.name = name;
    made.change = number.change();
    made.allowed = allowed;
    made.message = what;
    if (!number.before || !number.after) {
      made.message += !number.before ? " has nothing to compare with" : " does not exist any more";
      made.change.reset();
    } else {
      made.holds = *number.after - *number.before <= allowed * *number.before;
      const std::string grown = made.change ? signed_percent(*made.change) : "grown from nothing";
      made.message += " " + grown + ", allowed " + signed_percent(allowed);
    }
    diff_.limits.push_back(std::move(made));
  }

  void judge() {
    limit("step_time", "step time", number(diff_.cost, "step_time"), options_.max_slowdown);
    limit("objective", "objective", number(diff_.cost, "objective"), options_.max_slowdown);
    limit("peak_memory", "peak memory", number(diff_.memory, "peak"), options_.max_memory_growth);
    DiffLimit fits;
    fits.name = "fits";
    const auto in_limit = [](const Plan& plan) {
      return plan.result.status != PlanStatus::kInfeasible && plan.memory.peak <= plan.memory.limit;
    };
    // what did not fit before is no worse for not fitting now
    fits.holds = in_limit(after_) || !in_limit(before_);
    fits.message = in_limit(after_) ? "the new plan fits the memory limit"
                   : in_limit(before_)
                       ? "the new plan does not fit the memory limit, the old one did"
                       : "neither plan fits the memory limit";
    diff_.limits.push_back(std::move(fits));
  }

  const Plan& before_;
  const Plan& after_;
  const DiffOptions& options_;
  PlanDiff diff_;
};

}  // namespace

const char* change_kind_name(ChangeKind kind) {
  switch (kind) {
    case ChangeKind::kAdded:
      return "added";
    case ChangeKind::kRemoved:
      return "removed";
    case ChangeKind::kChanged:
      return "changed";
    case ChangeKind::kCost:
      return "cost";
  }
  return "changed";
}

std::optional<double> DiffNumber::change() const {
  if (!before || !after) return std::nullopt;
  if (*before == *after) return 0.0;
  if (*before == 0) return std::nullopt;
  return (*after - *before) / *before;
}

bool PlanDiff::worse() const {
  return std::any_of(
      limits.begin(), limits.end(), [](const DiffLimit& limit) { return !limit.holds; });
}

bool PlanDiff::empty() const {
  const auto same = [](const DiffNumber& number) { return number.before == number.after; };
  return identity.empty() && mesh.empty() && options.empty() && result.empty() &&
         breakdown.empty() && scopes.empty() && tensors.empty() &&
         std::all_of(cost.begin(), cost.end(), same) &&
         std::all_of(memory.begin(), memory.end(), same);
}

PlanDiff diff_plans(const Plan& before, const Plan& after, const DiffOptions& options) {
  return Differ(before, after, options).run();
}

}  // namespace meshplan

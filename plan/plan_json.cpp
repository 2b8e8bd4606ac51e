// SPDX-License-Identifier: Apache-2.0
// Each kind of value has a write() and a read(), the keys in the same order. Folding happens
// between the plan and the entries: visit_texts() says which texts of an entry are names.
#include "plan/plan_json.h"

#include <algorithm>
#include <initializer_list>
#include <limits>
#include <numeric>
#include <span>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <utility>

#include "graph/json.h"
#include "lib/nearest_name.h"
#include "plan/body_writer.h"
#include "plan/plan_fold.h"

namespace meshplan {
namespace {

/// Of one list. A million operators have more tensors than that, and a short text that folds
/// entries must not stand for more than memory holds.
constexpr std::size_t kMostEntries = 2'000'000;

// ---- The texts of an entry that folding may change, its name first ------------------------------

template <class Visit>
void visit_texts(PlanTensor& tensor, Visit visit) {
  visit(tensor.name);
  for (PlanSaved& saved : tensor.saved) {
    for (std::string& reader : saved.readers) visit(reader);
  }
  visit(tensor.reason);
}
template <class Visit>
void visit_texts(PlanOperator& op, Visit visit) {
  visit(op.name);
}
template <class Visit>
void visit_texts(PlanMemoryShare& share, Visit visit) {
  visit(share.name);
}
template <class Visit>
void visit_texts(PlanRedistribution& redistribution, Visit visit) {
  visit(redistribution.tensor);
  visit(redistribution.producer);
  for (PlanUse& use : redistribution.consumers) visit(use.op);
}
template <class Entry, class Visit>
void visit_texts(const Entry& entry, Visit visit) {
  visit_texts(const_cast<Entry&>(entry), [&](const std::string& text) { visit(text); });
}

// ---- Writing ------------------------------------------------------------------------------------

constexpr auto kOneLine = JsonWriter::kOneLine;

/// Writes the values of a plan; everything below the document's own keys stands on one line. Into a
/// BodyWriter go the bodies of entries: everything but the texts that visit_texts() visits.
template <class Writer>
class PlanWriter {
 public:
  static constexpr bool kBodies = std::is_same_v<Writer, BodyWriter>;

  explicit PlanWriter(Writer& writer) : writer_(writer) {}

  void write(const Placements& placements) {
    writer_.begin_array(kOneLine);
    for (const Placement& placement : placements) {
      if constexpr (kBodies) {
        writer_.value(placement);
      } else {
        writer_.value(to_string(placement));
      }
    }
    writer_.end_array();
  }

  void write_name(const std::string& name) {
    if constexpr (!kBodies) writer_.value(name);
  }
  void write_name(std::string_view key, const std::string& name) {
    writer_.key(key);
    write_name(name);
  }

  void write(Seconds time) { writer_.value(time.value); }
  template <class Integer>
  requires std::is_integral_v<Integer>
  void write(Integer number) { writer_.value(number); }
  void write(double number) { writer_.value(number); }
  void write(const std::string& text) { writer_.value(text); }
  void write(const std::vector<std::int64_t>& numbers) { writer_.array(numbers); }
  void write(const std::vector<std::string>& texts) { writer_.array(texts); }

  template <class Value>
  void write(const std::optional<Value>& value) {
    if (value) {
      write(*value);
    } else {
      writer_.null();
    }
  }

  template <class Value>
  void write_member(std::string_view key, const Value& value) {
    writer_.key(key);
    write(value);
  }
  /// Nothing where there is no value.
  template <class Value>
  void write_member_if(std::string_view key, const std::optional<Value>& value) {
    if (value) write_member(key, *value);
  }
  template <class Value>
  void write_list(std::string_view key, const std::vector<Value>& values) {
    writer_.key(key);
    writer_.begin_array(kOneLine);
    for (const Value& value : values) write(value);
    writer_.end_array();
  }

  void write(const PlanOptions& options) {
    writer_.begin_object(kOneLine);
    writer_.member("search", options.search);
    writer_.member("mode", options.mode);
    writer_.member("optimizer", options.optimizer);
    writer_.member("microbatches", options.microbatches);
    writer_.member("recompute", options.recompute);
    writer_.key("overlap");
    writer_.begin_object(kOneLine);
    for (const auto& [kind, fraction] : options.overlap) writer_.member(kind, fraction);
    writer_.end_object();
    writer_.member("seed", options.seed);
    for (const auto& [name, option] : options.others) {
      writer_.key(name);
      std::visit([&](const auto& value) { write(value); }, option);
    }
    writer_.end_object();
  }

  void write(const PlanMesh& mesh) {
    writer_.begin_object(kOneLine);
    write_member("shape", mesh.shape);
    write_member("axes", mesh.axes);
    if (!mesh.roles.empty()) write_list("roles", mesh.roles);
    writer_.key("ranks");
    if (mesh.ranks.empty()) {
      writer_.value("row-major");
    } else {
      write(mesh.ranks);
    }
    writer_.end_object();
  }

  void write(const PlanStage& stage) {
    writer_.begin_object(kOneLine);
    writer_.key("operators");
    if (stage.operators) {
      write(*stage.operators);
    } else {
      writer_.value("all");
    }
    writer_.key("devices");
    if (stage.devices) {
      write(*stage.devices);
    } else {
      writer_.value("all");
    }
    writer_.end_object();
  }

  void write(const PlanResult& result) {
    writer_.begin_object(kOneLine);
    writer_.member("status", plan_status_name(result.status));
    write_member("objective", result.objective);
    write_member("lower_bound", result.lower_bound);
    write_member("gap", result.gap);
    writer_.member("found_by", result.found_by);
    write_member_if("min_memory", result.min_memory);
    writer_.end_object();
  }

  void write(const PlanPreference& preference) {
    writer_.begin_object(kOneLine);
    writer_.member("tolerance", preference.tolerance);
    write_member("best_objective", preference.best_objective);
    writer_.member("operators", preference.operators);
    writer_.member("kept_operators", preference.kept_operators);
    writer_.member("parameters", preference.parameters);
    writer_.member("kept_parameters", preference.kept_parameters);
    writer_.end_object();
  }

  void write(const PlanCost& cost) {
    writer_.begin_object(kOneLine);
    write_member("step_time", cost.step_time);
    write_member("compute_time", cost.compute_time);
    write_member("communication_time", cost.communication_time);
    write_member("exposed_communication_time", cost.exposed_communication_time);
    writer_.member("tokens_per_second", cost.tokens_per_second);
    writer_.member("model_flops_utilization", cost.model_flops_utilization);
    write_member_if("hardware_flops_utilization", cost.hardware_flops_utilization);
    write_member_if("price_per_step", cost.price_per_step);
    writer_.end_object();
  }

  void write(const PlanCostCell& cell) {
    writer_.begin_object(kOneLine);
    writer_.member("kind", cost_kind_name(cell.kind));
    write_member("axes", cell.axes);
    write_member("level", cell.level);
    write_member("objective", cell.objective);
    write_member("time", cell.time);
    writer_.member("bytes", cell.bytes);
    writer_.end_object();
  }

  void write(const PlanMemoryShare& share) {
    writer_.begin_object(kOneLine);
    write_name("name", share.name);
    writer_.member("kind", memory_kind_name(share.kind));
    writer_.member("bytes", share.bytes);
    writer_.end_object();
  }

  void write(const PlanMemory& memory) {
    writer_.begin_object(kOneLine);
    writer_.member("peak", memory.peak);
    writer_.member("limit", memory.limit);
    writer_.member("moment", memory.moment);
    writer_.member("parameters", memory.parameters);
    writer_.member("gradients", memory.gradients);
    writer_.member("optimizer", memory.optimizer);
    writer_.member("activations", memory.activations);
    writer_.member("gathered", memory.gathered);
    writer_.member("buffers", memory.buffers);
    writer_.member("workspace", memory.workspace);
    writer_.member("seed_formula", memory.seed_formula);
    writer_.end_object();
  }

  void write(const PlanSaved& saved) {
    writer_.begin_object(kOneLine);
    write_member("placements", saved.placements);
    writer_.key("for");
    writer_.begin_array(kOneLine);
    for (const std::string& reader : saved.readers) write_name(reader);
    writer_.end_array();
    writer_.member("backward", saved_name(saved.backward));
    writer_.end_object();
  }

  void write_tensor_map(const std::vector<std::vector<int>>& map) {
    writer_.begin_array(kOneLine);
    for (const std::vector<int>& axes : map) {
      if (axes.empty()) {
        writer_.value(-1);
      } else if (axes.size() == 1 && axes[0] >= 0) {
        writer_.value(axes[0]);
      } else {
        writer_.array(axes);
      }
    }
    writer_.end_array();
  }

  void write(const PlanTensor& tensor) {
    writer_.begin_object(kOneLine);
    write_member("shape", tensor.shape);
    writer_.member("dtype", tensor.dtype);
    write_member("placements", tensor.placements);
    writer_.key("tensor_map");
    write_tensor_map(tensor.tensor_map);
    write_member("local_shape", tensor.local_shape);
    write_member("gradient", tensor.gradient);
    write_member_if("optimizer_state", tensor.optimizer_state);
    write_member_if("update_time", tensor.update_time);
    if (!tensor.saved.empty()) write_list("saved", tensor.saved);
    if (!tensor.reason.empty()) write_name("reason", tensor.reason);
    writer_.end_object();
  }

  void write(const PlanCollective& collective) {
    writer_.begin_object(kOneLine);
    writer_.member("collective", collective_name(collective.collective));
    write_member("axes", collective.axes);
    writer_.member("phase", phase_name(collective.phase));
    writer_.member("count", collective.count);
    writer_.member("bytes", collective.bytes);
    write_member("time", collective.time);
    writer_.end_object();
  }

  void write(const PlanOperator& op) {
    writer_.begin_object(kOneLine);
    write_name("name", op.name);
    writer_.member("type", op.type);
    write_list("in_placements", op.in_placements);
    write_list("out_placements", op.out_placements);
    write_list("in_strategy", op.in_strategy);
    if (op.recompute) writer_.member("recompute", true);
    write_member("compute_time", op.compute_time);
    write_member_if("objective", op.objective);
    write_list("collectives", op.collectives);
    writer_.end_object();
  }

  void write(const PlanSend& send) {
    writer_.begin_array(kOneLine);
    writer_.value(send.source);
    writer_.value(send.destination);
    writer_.array(send.source_begin);
    writer_.array(send.destination_begin);
    writer_.array(send.size);
    writer_.end_array();
  }

  void write(const std::pair<std::int64_t, std::int64_t>& pair) {
    writer_.array(std::initializer_list<std::int64_t>{pair.first, pair.second});
  }

  void write(const PlanStep& step) {
    writer_.begin_object(kOneLine);
    writer_.member("collective", collective_name(step.collective));
    if (step.reduction) writer_.member("reduction", reduction_name(*step.reduction));
    write_member("axes", step.axes);
    write_member_if("dim", step.dim);
    write_member_if("split_dim", step.split_dim);
    write_member_if("concat_dim", step.concat_dim);
    if (!step.pairs.empty()) write_list("pairs", step.pairs);
    if (!step.sends.empty()) write_list("sends", step.sends);
    writer_.member("bytes", step.bytes);
    write_member("time", step.time);
    write_member("placements", step.placements);
    writer_.end_object();
  }

  void write(const PlanRedistribution& entry) {
    writer_.begin_object(kOneLine);
    write_name("tensor", entry.tensor);
    write_name("producer", entry.producer);
    writer_.key("consumers");
    writer_.begin_array(kOneLine);
    bool operands = false;
    for (const PlanUse& use : entry.consumers) {
      write_name(use.op);
      operands = operands || use.operand.has_value();
    }
    writer_.end_array();
    if (operands) {
      writer_.key("operands");
      writer_.begin_array(kOneLine);
      for (const PlanUse& use : entry.consumers) write(use.operand);
      writer_.end_array();
    }
    writer_.member("phase", phase_name(entry.phase));
    writer_.member("per", per_name(entry.per));
    write_member("from", entry.from);
    write_member("to", entry.to);
    write_list("steps", entry.steps);
    writer_.end_object();
  }

  void write(const PlanGroup& group) {
    writer_.begin_object(kOneLine);
    write_member("axes", group.axes);
    write_list("ranks", group.ranks);
    writer_.end_object();
  }

  void write(const PlanBaseline& baseline) {
    writer_.begin_object(kOneLine);
    writer_.member("name", baseline.name);
    write_member("objective", baseline.objective);
    write_member("step_time", baseline.step_time);
    write_member("peak_memory", baseline.peak_memory);
    writer_.member("fits", baseline.fits);
    if (!baseline.note.empty()) writer_.member("note", baseline.note);
    writer_.end_object();
  }

  template <class Value>
  void write_lines(std::string_view key, const std::vector<Value>& values) {
    writer_.key(key);
    writer_.begin_array();
    for (const Value& value : values) write(value);
    writer_.end_array();
  }

  void write_order(std::string_view key, const std::vector<std::vector<std::int64_t>>& runs) {
    if (!runs.empty()) write_list(key, runs);
  }

 private:
  Writer& writer_;
};

// ---- Folding ------------------------------------------------------------------------------------

/// Entries that fold together: all redistributions of one tensor, so that their order stays.
template <class Entry>
std::vector<std::vector<std::size_t>> units_of(const std::vector<Entry>& entries) {
  std::vector<std::vector<std::size_t>> units;
  if constexpr (std::is_same_v<Entry, PlanRedistribution>) {
    std::unordered_map<std::string_view, std::size_t> known;  // looked up only, never walked
    for (std::size_t i = 0; i < entries.size(); ++i) {
      const auto [found, is_new] = known.try_emplace(entries[i].tensor, units.size());
      if (is_new) units.emplace_back();
      units[found->second].push_back(i);
    }
  } else {
    for (std::size_t i = 0; i < entries.size(); ++i) units.push_back({i});
  }
  return units;
}

/// Numbers for the bodies (everything but the texts) of the units; equal ones share a number.
template <class Entry>
std::vector<FoldItem> fold_items(const std::vector<Entry>& entries,
                                 const std::vector<std::vector<std::size_t>>& units) {
  std::vector<FoldItem> items;
  items.reserve(units.size());
  std::unordered_map<std::string, std::size_t> bodies;  // looked up only, never walked
  BodyWriter body;
  PlanWriter<BodyWriter> values(body);
  for (const std::vector<std::size_t>& unit : units) {
    FoldItem& item = items.emplace_back();
    body.clear();
    item.texts.reserve(4);
    for (const std::size_t i : unit) {
      visit_texts(entries[i], [&](const std::string& text) { item.texts.push_back(text); });
      values.write(entries[i]);
    }
    item.body = bodies.try_emplace(body.bytes(), bodies.size()).first->second;
  }
  return items;
}

/// The entries as they stand in the document, and which entries of the plan they stand for.
template <class Entry>
struct FoldedEntries {
  std::vector<Entry> entries;
  std::vector<std::size_t> members;  ///< of the expanded document, as positions in the plan
};

template <class Entry>
FoldedEntries<Entry> fold_entries(const std::vector<Entry>& entries, bool folded) {
  FoldedEntries<Entry> result;
  if (!folded) {
    result.entries = entries;
    return result;
  }
  const std::vector<std::vector<std::size_t>> units = units_of(entries);
  for (const FoldedItem& item : fold(fold_items(entries, units))) {
    const std::vector<std::size_t>& sample = units[item.members.front()];
    std::size_t text = 0;
    for (std::size_t part = 0; part < sample.size(); ++part) {
      Entry& entry = result.entries.emplace_back(entries[sample[part]]);
      visit_texts(entry, [&](std::string& name) { name = item.texts[text++]; });
      for (const std::size_t unit : item.members) result.members.push_back(units[unit][part]);
    }
  }
  return result;
}

/// Where the entries of the plan stand in the expanded document: runs of [first, step, count], none
/// where they stand in order.
std::vector<std::vector<std::int64_t>> order_runs(const std::vector<std::size_t>& members) {
  std::vector<std::int64_t> place(members.size());
  bool in_order = true;
  for (std::size_t i = 0; i < members.size(); ++i) {
    place[members[i]] = static_cast<std::int64_t>(i);
    in_order = in_order && members[i] == i;
  }
  std::vector<std::vector<std::int64_t>> runs;
  if (in_order) return runs;
  for (std::size_t begin = 0; begin < place.size();) {
    std::size_t end = begin + 1;
    const std::int64_t step = end < place.size() ? place[end] - place[begin] : 1;
    while (end < place.size() && place[end] - place[end - 1] == step) ++end;
    runs.push_back({place[begin], step, static_cast<std::int64_t>(end - begin)});
    begin = end;
  }
  return runs;
}

/// False if a name of the plan reads as a pattern; then nothing is folded.
bool may_fold(const Plan& plan) {
  bool plain = true;
  const auto look = [&](const std::string& text) { plain = plain && !has_pattern(text); };
  for (const PlanMemoryShare& share : plan.at_peak) visit_texts(share, look);
  for (const PlanTensor& tensor : plan.tensors) visit_texts(tensor, look);
  for (const PlanOperator& op : plan.operators) visit_texts(op, look);
  for (const PlanRedistribution& entry : plan.redistributions) visit_texts(entry, look);
  return plain;
}

}  // namespace

std::string write_plan(const Plan& plan) {
  const bool folded = may_fold(plan);
  const auto tensors = fold_entries(plan.tensors, folded);
  const auto operators = fold_entries(plan.operators, folded);
  const auto redistributions = fold_entries(plan.redistributions, folded);
  JsonWriter writer;
  PlanWriter<JsonWriter> values(writer);
  writer.begin_object();
  writer.member("schema", "meshplan.plan/1.0");
  writer.key("generator");
  writer.begin_object(kOneLine);
  writer.member("name", "meshplan");
  writer.member("version", plan.generator_version);
  writer.end_object();
  writer.key("graph");
  writer.begin_object(kOneLine);
  writer.member("name", plan.graph.name);
  writer.member("fingerprint", plan.graph.fingerprint);
  writer.end_object();
  writer.key("cluster");
  writer.begin_object(kOneLine);
  writer.member("name", plan.cluster.name);
  writer.member("fingerprint", plan.cluster.fingerprint);
  writer.member("devices", plan.cluster.devices);
  writer.end_object();
  values.write_member("options", plan.options);
  values.write_member("mesh", plan.mesh);
  values.write_list("stages", plan.stages);
  values.write_member("result", plan.result);
  values.write_member_if("preference", plan.preference);
  values.write_member("cost", plan.cost);
  if (!plan.breakdown.empty()) values.write_lines("breakdown", plan.breakdown);
  values.write_member("memory", plan.memory);
  if (!plan.at_peak.empty())
    values.write_lines("at_peak", fold_entries(plan.at_peak, folded).entries);
  if (!plan.notes.empty()) values.write_lines("notes", plan.notes);
  if (!plan.baselines.empty()) values.write_lines("baselines", plan.baselines);
  if (!folded) writer.member("folded", false);
  writer.key("tensors");
  writer.begin_object();
  for (const PlanTensor& tensor : tensors.entries) values.write_member(tensor.name, tensor);
  writer.end_object();
  values.write_lines("operators", operators.entries);
  values.write_lines("redistributions", redistributions.entries);
  values.write_lines("groups", plan.groups);
  const auto tensor_order = order_runs(tensors.members);
  const auto operator_order = order_runs(operators.members);
  const auto redistribution_order = order_runs(redistributions.members);
  if (!tensor_order.empty() || !operator_order.empty() || !redistribution_order.empty()) {
    writer.key("order");
    writer.begin_object();
    values.write_order("tensors", tensor_order);
    values.write_order("operators", operator_order);
    values.write_order("redistributions", redistribution_order);
    writer.end_object();
  }
  writer.end_object();
  return std::move(writer).text();
}

namespace {

// ---- Reading ------------------------------------------------------------------------------------

/// Reads values until the first fault; after it every call does nothing. With a list of findings, a
/// value of the right JSON type that a plan cannot hold is no fault: it is listed.
class PlanReader {
 public:
  explicit PlanReader(std::vector<Finding>* findings) : findings_(findings) {}

  const std::optional<Error>& error() const { return error_; }

  bool ok() const { return !error_; }
  bool ok(const Result<void>& result) {
    if (!error_ && !result) error_ = result.error();
    return !error_;
  }
  template <class Value, class Target>
  void take(const JsonCursor& at, const Result<Value>& result, Target& target) {
    if (error_) return;
    if (result) {
      target = *result;
    } else if (findings_ != nullptr && (result.error().code == ErrorCode::kValue ||
                                        result.error().code == ErrorCode::kOverflow)) {
      findings_->push_back({at.pointer(), "a number in range", "another", result.error().message});
    } else {
      error_ = result.error();
    }
  }
  /// Of a value with the wrong type or key, or of too much.
  void fault(const JsonCursor& at, ErrorCode code, std::string message) {
    if (!error_) error_ = at.error(code, std::move(message)).error();
  }
  /// A value with the right type that a plan cannot hold.
  void out_of_range(const JsonCursor& at,
                    std::string expected,
                    const std::string& found,
                    std::string message) {
    if (error_) return;
    if (findings_ == nullptr) return fault(at, ErrorCode::kValue, std::move(message));
    findings_->push_back({at.pointer(), std::move(expected), one_line(found), std::move(message)});
  }

  void read(const JsonCursor& at, std::string& text) { take(at, at.as_string(), text); }
  void read(const JsonCursor& at, std::int64_t& number) { take(at, at.as_int64(), number); }
  void read(const JsonCursor& at, std::uint64_t& number) { take(at, at.as_uint64(), number); }
  void read(const JsonCursor& at, int& number) {
    constexpr std::int64_t kMost = std::numeric_limits<int>::max();
    std::int64_t wide = number;
    take(at, at.as_int64(-kMost, kMost), wide);
    number = static_cast<int>(wide);
  }
  void read(const JsonCursor& at, double& number) { take(at, at.as_double(), number); }
  void read(const JsonCursor& at, bool& flag) { take(at, at.as_bool(), flag); }
  void read(const JsonCursor& at, Seconds& time) { read(at, time.value); }
  void read(const JsonCursor& at, std::vector<std::int64_t>& numbers) {
    take(at, at.as_int64s(), numbers);
  }
  void read(const JsonCursor& at, std::vector<std::string>& texts) {
    take(at, at.as_strings(), texts);
  }
  void read(const JsonCursor& at, Placements& placements) {
    if (!ok(at.expect(JsonKind::kArray))) return;
    placements.clear();
    for (std::size_t i = 0; i < at.size(); ++i) {
      std::string text;
      read(at.at(i), text);
      if (error_) return;
      const Result<Placement> placement = parse_placement(text);
      if (placement) {
        placements.push_back(*placement);
      } else if (placement.error().code == ErrorCode::kValue) {
        out_of_range(at.at(i), "a placement", text, placement.error().message);
      } else {
        return fault(at.at(i), placement.error().code, placement.error().message);
      }
    }
  }
  /// null or a value.
  template <class Value>
  void read(const JsonCursor& at, std::optional<Value>& value) {
    value.reset();
    if (at.kind() == JsonKind::kNull) return;
    Value present{};
    read(at, present);
    value = std::move(present);
  }
  template <class Value>
  void read_list(const JsonCursor& at, std::vector<Value>& values) {
    values.clear();
    if (!ok(at.expect(JsonKind::kArray))) return;
    values.resize(at.size());
    for (std::size_t i = 0; i < at.size() && ok(); ++i) read(at.at(i), values[i]);
  }

  /// One of the names that `name_of` gives for the enumerators from 0 to `last`.
  template <class Enum>
  void read_enum(const JsonCursor& at, const char* (*name_of)(Enum), Enum last, Enum& value) {
    std::vector<std::string> names;
    for (int i = 0; i <= static_cast<int>(last); ++i)
      names.emplace_back(name_of(static_cast<Enum>(i)));
    std::string text;
    if (!read_known(at, names, text)) return;
    value = static_cast<Enum>(std::find(names.begin(), names.end(), text) - names.begin());
  }

  /// One of these names; false where it is none.
  bool read_known(const JsonCursor& at, const std::vector<std::string>& names, std::string& text) {
    read(at, text);
    if (error_) return false;
    if (std::find(names.begin(), names.end(), text) != names.end()) return true;
    std::string expected;
    for (std::size_t i = 0; i < names.size(); ++i) {
      expected += (i == 0 ? "" : i + 1 == names.size() ? " or " : ", ") + names[i];
    }
    out_of_range(at,
                 expected,
                 text,
                 "expected " + expected + ", found " + json_quote(text.substr(0, 60)) +
                     nearest_name_hint(text, names));
    return false;
  }
  void read(const JsonCursor& at, PlanStatus& value) {
    read_enum(at, plan_status_name, PlanStatus::kInfeasible, value);
  }
  void read(const JsonCursor& at, Phase& value) {
    read_enum(at, phase_name, Phase::kRecompute, value);
  }
  void read(const JsonCursor& at, Per& value) { read_enum(at, per_name, Per::kStep, value); }
  void read(const JsonCursor& at, Saved& value) {
    read_enum(at, saved_name, Saved::kComputed, value);
  }
  void read(const JsonCursor& at, Collective& value) {
    read_enum(at, collective_name, Collective::kMask, value);
  }
  void read(const JsonCursor& at, Reduction& value) {
    read_enum(at, reduction_name, Reduction::kProd, value);
  }

  void read(const JsonCursor& at, MemoryKind& value) {
    read_enum(at, memory_kind_name, MemoryKind::kWorkspace, value);
  }
  void read(const JsonCursor& at, CostKind& value) {
    constexpr int kWorks = static_cast<int>(Work::kOptimizer) + 1;
    constexpr int kCollectives = static_cast<int>(Collective::kMask) + 1;
    std::vector<CostKind> kinds;
    for (int i = 0; i < kWorks; ++i) kinds.emplace_back(static_cast<Work>(i));
    for (int i = 0; i < kCollectives; ++i) kinds.emplace_back(static_cast<Collective>(i));
    std::vector<std::string> names;
    for (const CostKind kind : kinds) names.emplace_back(cost_kind_name(kind));
    std::string text;
    if (!read_known(at, names, text)) return;
    value = kinds[static_cast<std::size_t>(std::find(names.begin(), names.end(), text) -
                                           names.begin())];
  }

  template <class Value>
  void member(const JsonCursor& object, std::string_view key, Value& value) {
    if (error_) return;
    const Result<JsonCursor> found = object.get(key);
    if (!found) return fault(found.error());
    read(*found, value);
  }
  void known_member(const JsonCursor& object,
                    std::string_view key,
                    const std::vector<std::string>& names,
                    std::string& text) {
    if (error_) return;
    const Result<JsonCursor> found = object.get(key);
    if (!found) return fault(found.error());
    read_known(*found, names, text);
  }
  template <class Value>
  void member_if(const JsonCursor& object, std::string_view key, Value& value) {
    if (error_) return;
    if (const auto found = object.find(key)) read(*found, value);
  }
  template <class Value>
  void list(const JsonCursor& object, std::string_view key, std::vector<Value>& values) {
    if (error_) return;
    const Result<JsonCursor> found = object.get(key);
    if (!found) return fault(found.error());
    read_list(*found, values);
  }
  template <class Value>
  void list_if(const JsonCursor& object, std::string_view key, std::vector<Value>& values) {
    if (error_) return;
    if (const auto found = object.find(key)) read_list(*found, values);
  }

  void read(const JsonCursor& at, PlanGraph& graph) {
    if (!ok(at.allow_only({"name", "fingerprint"}))) return;
    member(at, "name", graph.name);
    member(at, "fingerprint", graph.fingerprint);
  }
  void read(const JsonCursor& at, PlanCluster& cluster) {
    if (!ok(at.allow_only({"name", "fingerprint", "devices"}))) return;
    member(at, "name", cluster.name);
    member(at, "fingerprint", cluster.fingerprint);
    member(at, "devices", cluster.devices);
  }
  void read(const JsonCursor& at, PlanOptions& options) { read_options(at, options); }
  void read(const JsonCursor& at, PlanMesh& mesh) {
    if (!ok(at.allow_only({"shape", "axes", "roles", "ranks"}))) return;
    member(at, "shape", mesh.shape);
    member(at, "axes", mesh.axes);
    list_if(at, "roles", mesh.roles);
    read_or_text(at, "ranks", "row-major", mesh.ranks);
  }
  void read(const JsonCursor& at, PlanStage& stage) {
    if (!ok(at.allow_only({"operators", "devices"}))) return;
    read_or_text(at, "operators", "all", stage.operators);
    read_or_text(at, "devices", "all", stage.devices);
  }
  void read(const JsonCursor& at, PlanResult& result) {
    if (!ok(at.allow_only(
            {"status", "objective", "lower_bound", "gap", "found_by", "min_memory"}))) {
      return;
    }
    member(at, "status", result.status);
    member(at, "objective", result.objective);
    member(at, "lower_bound", result.lower_bound);
    member(at, "gap", result.gap);
    known_member(at, "found_by", {"dp", "propagation", "sapp"}, result.found_by);
    member_if(at, "min_memory", result.min_memory);
  }
  void read(const JsonCursor& at, PlanPreference& preference) {
    if (!ok(at.allow_only({"tolerance",
                           "best_objective",
                           "operators",
                           "kept_operators",
                           "parameters",
                           "kept_parameters"}))) {
      return;
    }
    member(at, "tolerance", preference.tolerance);
    member(at, "best_objective", preference.best_objective);
    member(at, "operators", preference.operators);
    member(at, "kept_operators", preference.kept_operators);
    member(at, "parameters", preference.parameters);
    member(at, "kept_parameters", preference.kept_parameters);
  }
  void read(const JsonCursor& at, PlanCost& cost) {
    if (!ok(at.allow_only({"step_time",
                           "compute_time",
                           "communication_time",
                           "exposed_communication_time",
                           "tokens_per_second",
                           "model_flops_utilization",
                           "hardware_flops_utilization",
                           "price_per_step"}))) {
      return;
    }
    member(at, "step_time", cost.step_time);
    member(at, "compute_time", cost.compute_time);
    member(at, "communication_time", cost.communication_time);
    member(at, "exposed_communication_time", cost.exposed_communication_time);
    member(at, "tokens_per_second", cost.tokens_per_second);
    member(at, "model_flops_utilization", cost.model_flops_utilization);
    member_if(at, "hardware_flops_utilization", cost.hardware_flops_utilization);
    member_if(at, "price_per_step", cost.price_per_step);
  }
  void read(const JsonCursor& at, PlanCostCell& cell) {
    if (!ok(at.allow_only({"kind", "axes", "level", "objective", "time", "bytes"}))) return;
    member(at, "kind", cell.kind);
    member(at, "axes", cell.axes);
    member(at, "level", cell.level);
    member(at, "objective", cell.objective);
    member(at, "time", cell.time);
    member(at, "bytes", cell.bytes);
  }
  void read(const JsonCursor& at, PlanMemoryShare& share) {
    if (!ok(at.allow_only({"name", "kind", "bytes"}))) return;
    member(at, "name", share.name);
    member(at, "kind", share.kind);
    member(at, "bytes", share.bytes);
  }
  void read(const JsonCursor& at, PlanMemory& memory) {
    if (!ok(at.allow_only({"peak",
                           "limit",
                           "moment",
                           "parameters",
                           "gradients",
                           "optimizer",
                           "activations",
                           "gathered",
                           "buffers",
                           "workspace",
                           "seed_formula"}))) {
      return;
    }
    member(at, "peak", memory.peak);
    member(at, "limit", memory.limit);
    member(at, "moment", memory.moment);
    member(at, "parameters", memory.parameters);
    member(at, "gradients", memory.gradients);
    member(at, "optimizer", memory.optimizer);
    member(at, "activations", memory.activations);
    member(at, "gathered", memory.gathered);
    member(at, "buffers", memory.buffers);
    member(at, "workspace", memory.workspace);
    member(at, "seed_formula", memory.seed_formula);
  }
  void read(const JsonCursor& at, PlanSaved& saved) {
    if (!ok(at.allow_only({"placements", "for", "backward"}))) return;
    member(at, "placements", saved.placements);
    member(at, "for", saved.readers);
    member(at, "backward", saved.backward);
  }
  void read(const JsonCursor& at, PlanTensor& tensor) {
    if (!ok(at.allow_only({"shape",
                           "dtype",
                           "placements",
                           "tensor_map",
                           "local_shape",
                           "gradient",
                           "optimizer_state",
                           "update_time",
                           "saved",
                           "reason"}))) {
      return;
    }
    member(at, "shape", tensor.shape);
    member(at, "dtype", tensor.dtype);
    member(at, "placements", tensor.placements);
    read_tensor_map(at, tensor.tensor_map);
    member(at, "local_shape", tensor.local_shape);
    member_if(at, "gradient", tensor.gradient);
    member_if(at, "optimizer_state", tensor.optimizer_state);
    member_if(at, "update_time", tensor.update_time);
    list_if(at, "saved", tensor.saved);
    member_if(at, "reason", tensor.reason);
  }
  void read(const JsonCursor& at, PlanCollective& collective) {
    if (!ok(at.allow_only({"collective", "axes", "phase", "count", "bytes", "time"}))) return;
    member(at, "collective", collective.collective);
    member(at, "axes", collective.axes);
    member(at, "phase", collective.phase);
    member(at, "count", collective.count);
    member(at, "bytes", collective.bytes);
    member(at, "time", collective.time);
  }
  void read(const JsonCursor& at, PlanOperator& op) {
    if (!ok(at.allow_only({"name",
                           "type",
                           "in_placements",
                           "out_placements",
                           "in_strategy",
                           "recompute",
                           "compute_time",
                           "objective",
                           "collectives"}))) {
      return;
    }
    member(at, "name", op.name);
    member(at, "type", op.type);
    list(at, "in_placements", op.in_placements);
    list(at, "out_placements", op.out_placements);
    list_if(at, "in_strategy", op.in_strategy);
    member_if(at, "recompute", op.recompute);
    member(at, "compute_time", op.compute_time);
    member_if(at, "objective", op.objective);
    list_if(at, "collectives", op.collectives);
  }
  void read(const JsonCursor& at, PlanSend& send) {
    if (!ok(at.expect(JsonKind::kArray))) return;
    if (at.size() != 5) {
      return out_of_range(at,
                          "5 entries",
                          std::to_string(at.size()),
                          "expected [source, destination, source_begin, destination_begin, size]");
    }
    read(at.at(0), send.source);
    read(at.at(1), send.destination);
    read(at.at(2), send.source_begin);
    read(at.at(3), send.destination_begin);
    read(at.at(4), send.size);
  }
  void read(const JsonCursor& at, std::pair<std::int64_t, std::int64_t>& pair) {
    if (!ok(at.expect(JsonKind::kArray))) return;
    if (at.size() != 2) {
      return out_of_range(
          at, "2 entries", std::to_string(at.size()), "expected [source, destination]");
    }
    read(at.at(0), pair.first);
    read(at.at(1), pair.second);
  }
  void read(const JsonCursor& at, PlanStep& step) {
    if (!ok(at.allow_only({"collective",
                           "reduction",
                           "axes",
                           "dim",
                           "split_dim",
                           "concat_dim",
                           "pairs",
                           "sends",
                           "bytes",
                           "time",
                           "placements"}))) {
      return;
    }
    member(at, "collective", step.collective);
    member_if(at, "reduction", step.reduction);
    member(at, "axes", step.axes);
    member_if(at, "dim", step.dim);
    member_if(at, "split_dim", step.split_dim);
    member_if(at, "concat_dim", step.concat_dim);
    list_if(at, "pairs", step.pairs);
    list_if(at, "sends", step.sends);
    member(at, "bytes", step.bytes);
    member(at, "time", step.time);
    member(at, "placements", step.placements);
  }
  void read(const JsonCursor& at, PlanRedistribution& entry) {
    if (!ok(at.allow_only({"tensor",
                           "producer",
                           "consumers",
                           "operands",
                           "phase",
                           "per",
                           "from",
                           "to",
                           "steps"}))) {
      return;
    }
    member(at, "tensor", entry.tensor);
    member(at, "producer", entry.producer);
    std::vector<std::string> consumers;
    member(at, "consumers", consumers);
    std::vector<std::optional<int>> operands(consumers.size());
    list_if(at, "operands", operands);
    if (ok() && operands.size() != consumers.size()) {
      out_of_range(*at.find("operands"),
                   std::to_string(consumers.size()) + " entries",
                   std::to_string(operands.size()),
                   "expected one number or null for each of the " +
                       std::to_string(consumers.size()) + " consumers, found " +
                       std::to_string(operands.size()));
      operands.resize(consumers.size());
    }
    if (!ok()) return;
    for (std::size_t i = 0; i < consumers.size(); ++i) {
      entry.consumers.push_back({std::move(consumers[i]), operands[i]});
    }
    member(at, "phase", entry.phase);
    member_if(at, "per", entry.per);
    member(at, "from", entry.from);
    member(at, "to", entry.to);
    list(at, "steps", entry.steps);
  }
  void read(const JsonCursor& at, PlanGroup& group) {
    if (!ok(at.allow_only({"axes", "ranks"}))) return;
    member(at, "axes", group.axes);
    list(at, "ranks", group.ranks);
  }
  void read(const JsonCursor& at, PlanBaseline& baseline) {
    if (!ok(at.allow_only({"name", "objective", "step_time", "peak_memory", "fits", "note"}))) {
      return;
    }
    member(at, "name", baseline.name);
    member(at, "objective", baseline.objective);
    member_if(at, "step_time", baseline.step_time);
    member_if(at, "peak_memory", baseline.peak_memory);
    member(at, "fits", baseline.fits);
    member_if(at, "note", baseline.note);
  }

  /// Expands the entry that was read from `at` onto the end of `entries`.
  template <class Entry>
  void expand(const JsonCursor& at, Entry&& entry, bool folded, std::vector<Entry>& entries) {
    if (error_) return;
    bool patterns = false;
    if (folded) {
      visit_texts(std::as_const(entry),
                  [&](const std::string& text) { patterns = patterns || has_pattern(text); });
    }
    if (!patterns) {
      if (entries.size() >= kMostEntries) return too_many(at);
      entries.push_back(std::forward<Entry>(entry));
      return;
    }
    std::vector<std::string_view> texts;
    visit_texts(std::as_const(entry), [&](const std::string& text) { texts.push_back(text); });
    const auto members = unfold(texts, kMostEntries - entries.size());
    if (!members && members.error().code == ErrorCode::kValue)
      return out_of_range(
          at, "patterns that stand for names", std::string(texts[0]), members.error().message);
    if (!members) return fault(at, members.error().code, members.error().message);
    for (const std::vector<std::string>& names : *members) {
      Entry& copy = entries.emplace_back(entry);
      std::size_t text = 0;
      visit_texts(copy, [&](std::string& name) { name = names[text++]; });
    }
  }

 private:
  void fault(const Error& error) {
    if (!error_) error_ = error;
  }
  void too_many(const JsonCursor& at) {
    fault(at, ErrorCode::kOverflow, "more than " + std::to_string(kMostEntries) + " entries");
  }

  /// A fixed text that stands for "nothing given", or a value.
  template <class Value>
  void read_or_text(const JsonCursor& object,
                    std::string_view key,
                    const char* fixed,
                    Value& value) {
    if (error_) return;
    const Result<JsonCursor> found = object.get(key);
    if (!found) return fault(found.error());
    if (found->kind() != JsonKind::kString) return read(*found, value);
    std::string text;
    read(*found, text);
    if (text != fixed) {
      out_of_range(*found,
                   std::string("\"") + fixed + "\" or a list",
                   text,
                   std::string("expected \"") + fixed + "\" or a list, found " +
                       json_quote(text.substr(0, 60)));
    }
  }

  void read_options(const JsonCursor& at, PlanOptions& options) {
    if (!ok(at.expect(JsonKind::kObject))) return;
    std::vector<std::string> known = {
        "search", "mode", "optimizer", "microbatches", "recompute", "overlap", "seed"};
    const std::size_t own = known.size();
    known.insert(known.end(), plan_option_names().begin(), plan_option_names().end());
    for (std::size_t i = 0; i < at.size() && ok(); ++i) {
      const std::string key(at.key_at(i));
      const auto found = std::find(known.begin(), known.end(), key);
      if (found == known.end()) {
        return fault(
            at.at(i),
            ErrorCode::kValue,
            "unknown option " + json_quote(key.substr(0, 60)) + nearest_name_hint(key, known));
      }
      if (found - known.begin() < static_cast<std::ptrdiff_t>(own)) continue;
      read_option(at.at(i), options.others[key]);
    }
    known_member(at, "search", {"auto", "dp", "propagation", "sapp"}, options.search);
    member(at, "mode", options.mode);
    member(at, "optimizer", options.optimizer);
    member(at, "microbatches", options.microbatches);
    known_member(at, "recompute", {"none", "selective", "selective-op", "full"}, options.recompute);
    if (error_) return;
    if (const auto overlap = at.find("overlap")) {
      if (!ok(overlap->expect(JsonKind::kObject))) return;
      for (std::size_t i = 0; i < overlap->size(); ++i) {
        read(overlap->at(i), options.overlap[std::string(overlap->key_at(i))]);
      }
    }
    member_if(at, "seed", options.seed);
  }

  void read_option(const JsonCursor& at, OptionValue& option) {
    switch (at.kind()) {
      case JsonKind::kBool:
        read(at, option.emplace<bool>());
        return;
      case JsonKind::kInteger:
        read(at, option.emplace<std::int64_t>());
        return;
      case JsonKind::kNumber:
        read(at, option.emplace<double>());
        return;
      case JsonKind::kString:
        read(at, option.emplace<std::string>());
        return;
      case JsonKind::kArray:
        read(at, option.emplace<std::vector<std::string>>());
        return;
      case JsonKind::kNull:
      case JsonKind::kObject:
        break;
    }
    fault(at,
          ErrorCode::kType,
          std::string("expected true, false, a number, a string or a list of strings, found ") +
              json_kind_name(at.kind()));
  }

  void read_tensor_map(const JsonCursor& object, std::vector<std::vector<int>>& map) {
    if (error_) return;
    const Result<JsonCursor> found = object.get("tensor_map");
    if (!found) return fault(found.error());
    if (!ok(found->expect(JsonKind::kArray))) return;
    map.assign(found->size(), {});
    for (std::size_t i = 0; i < map.size() && ok(); ++i) {
      const JsonCursor entry = found->at(i);
      if (entry.kind() == JsonKind::kArray) {
        map[i].resize(entry.size());
        for (std::size_t k = 0; k < entry.size(); ++k) read(entry.at(k), map[i][k]);
        continue;
      }
      int axis = -1;
      read(entry, axis);
      if (axis != -1) map[i].push_back(axis);
    }
  }

  std::optional<Error> error_;
  std::vector<Finding>* findings_;
};

/// Puts `entries` into the order that runs of [first, step, count] describe. A list that is not a
/// permutation of the entries (somebody edited them) leaves them in the order of the file.
template <class Entry, class Place>
void reorder(PlanReader& reader,
             const std::optional<JsonCursor>& order,
             std::string_view key,
             std::vector<Entry>& entries,
             std::vector<Place>* sources) {
  const std::optional<JsonCursor> runs = order ? order->find(key) : std::nullopt;
  if (!runs) return;
  std::vector<std::vector<std::int64_t>> parsed;
  reader.read_list(*runs, parsed);
  if (!reader.ok()) return;
  const auto size = static_cast<std::int64_t>(entries.size());
  std::vector<std::size_t> places;
  std::vector<bool> seen(entries.size(), false);
  for (const std::vector<std::int64_t>& run : parsed) {
    if (run.size() != 3 || run[2] < 1 || run[2] > size || run[1] < -size || run[1] > size) return;
    for (std::int64_t i = 0; i < run[2]; ++i) {
      const std::int64_t place = run[0] + i * run[1];
      if (run[0] < 0 || run[0] >= size || place < 0 || place >= size) return;
      if (seen[static_cast<std::size_t>(place)]) return;
      seen[static_cast<std::size_t>(place)] = true;
      places.push_back(static_cast<std::size_t>(place));
    }
  }
  if (places.size() != entries.size()) return;
  const auto apply = [&](auto& list) {
    std::remove_reference_t<decltype(list)> ordered;
    ordered.reserve(list.size());
    for (const std::size_t place : places) ordered.push_back(std::move(list[place]));
    list = std::move(ordered);
  };
  apply(entries);
  if (sources != nullptr) apply(*sources);
}

/// `sources` gets, per entry, its key or its place in the list of the document.
template <class Entry, class Place>
void read_entries(PlanReader& reader,
                  const JsonCursor& root,
                  std::string_view key,
                  bool folded,
                  std::vector<Entry>& entries,
                  std::vector<Place>* sources) {
  if (!reader.ok()) return;
  const Result<JsonCursor> list = root.get(key);
  if (!reader.ok(list ? Result<void>() : Result<void>(fail(list.error())))) return;
  constexpr bool kIsTensor = std::is_same_v<Entry, PlanTensor>;
  if (!reader.ok(list->expect(kIsTensor ? JsonKind::kObject : JsonKind::kArray))) return;
  for (std::size_t i = 0; i < list->size() && reader.ok(); ++i) {
    Entry entry;
    if constexpr (kIsTensor) entry.name = list->key_at(i);
    reader.read(list->at(i), entry);
    reader.expand(list->at(i), std::move(entry), folded, entries);
    if (sources == nullptr) continue;
    if constexpr (kIsTensor) {
      sources->resize(entries.size(), std::string(list->key_at(i)));
    } else {
      sources->resize(entries.size(), i);
    }
  }
}

/// The shares of the peak in their order.
void sort_shares(std::vector<PlanMemoryShare>& shares, std::vector<std::size_t>* sources) {
  std::vector<std::size_t> order(shares.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return stands_before(shares[a], shares[b]);
  });
  std::vector<PlanMemoryShare> sorted;
  sorted.reserve(shares.size());
  for (const std::size_t place : order) sorted.push_back(std::move(shares[place]));
  shares = std::move(sorted);
  if (sources == nullptr) return;
  for (std::size_t& place : order) place = (*sources)[place];
  *sources = std::move(order);
}

}  // namespace

Result<Plan> read_plan(std::string_view text, std::string file, const PlanReading& reading) {
  const Result<JsonDocument> document = JsonDocument::parse(text, std::move(file));
  if (!document) return fail(document.error());
  const JsonCursor root = document->root();
  if (auto ok = check_schema(root, "meshplan.plan", kPlanSchemaMajor, reading.minor); !ok)
    return fail(ok.error());
  static const std::vector<std::string> kKeys = {
      "schema", "generator", "graph",     "cluster",         "options", "mesh",  "stages",
      "result", "cost",      "breakdown", "memory",          "at_peak", "notes", "baselines",
      "folded", "tensors",   "operators", "redistributions", "groups",  "order", "preference"};
  std::vector<std::string> known = kKeys;
  known.insert(known.end(), reading.added_keys.begin(), reading.added_keys.end());
  for (std::size_t i = 0; i < root.size(); ++i) {
    const std::string key(root.key_at(i));
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    return root.at(i).error(
        ErrorCode::kValue,
        "unknown key " + json_quote(key.substr(0, 60)) + nearest_name_hint(key, known));
  }
  PlanReader reader(reading.findings);
  PlanPlaces* const places = reading.places;
  if (places != nullptr) *places = {};
  Plan plan;
  if (const auto generator = root.find("generator")) {
    reader.ok(generator->allow_only({"name", "version"}));
    std::string name;  // that of this program, whatever wrote the plan
    reader.member_if(*generator, "name", name);
    reader.member_if(*generator, "version", plan.generator_version);
  }
  reader.member(root, "graph", plan.graph);
  reader.member(root, "cluster", plan.cluster);
  reader.member(root, "options", plan.options);
  reader.member(root, "mesh", plan.mesh);
  reader.list(root, "stages", plan.stages);
  reader.member(root, "result", plan.result);
  reader.member_if(root, "preference", plan.preference);
  reader.member(root, "cost", plan.cost);
  reader.list_if(root, "breakdown", plan.breakdown);
  reader.member(root, "memory", plan.memory);
  reader.member_if(root, "notes", plan.notes);
  reader.list_if(root, "baselines", plan.baselines);
  bool folded = true;
  reader.member_if(root, "folded", folded);
  const auto list_of = [&](auto PlanPlaces::*list) {
    return places == nullptr ? nullptr : &(places->*list);
  };
  auto* const shares = list_of(&PlanPlaces::at_peak);
  auto* const tensors = list_of(&PlanPlaces::tensors);
  auto* const operators = list_of(&PlanPlaces::operators);
  auto* const redistributions = list_of(&PlanPlaces::redistributions);
  if (root.find("at_peak")) read_entries(reader, root, "at_peak", folded, plan.at_peak, shares);
  if (reader.ok()) sort_shares(plan.at_peak, shares);
  read_entries(reader, root, "tensors", folded, plan.tensors, tensors);
  read_entries(reader, root, "operators", folded, plan.operators, operators);
  read_entries(reader, root, "redistributions", folded, plan.redistributions, redistributions);
  reader.list(root, "groups", plan.groups);
  const std::optional<JsonCursor> order = root.find("order");
  if (order) reader.ok(order->allow_only({"tensors", "operators", "redistributions"}));
  if (reader.ok()) {
    reorder(reader, order, "tensors", plan.tensors, tensors);
    reorder(reader, order, "operators", plan.operators, operators);
    reorder(reader, order, "redistributions", plan.redistributions, redistributions);
  }
  if (reader.error()) return fail(*reader.error());
  return plan;
}

}  // namespace meshplan

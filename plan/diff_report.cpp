// SPDX-License-Identifier: Apache-2.0
#include "plan/diff_report.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "lib/text.h"
#include "plan/readable.h"

namespace meshplan {
namespace {

constexpr std::size_t kMostScopes = 40;
constexpr std::size_t kMostEntries = 12;  // of a scope
constexpr std::size_t kMostTensors = 20;
constexpr std::size_t kMostCells = 12;

std::string joined(const std::vector<std::string>& parts, const char* between) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : between) + part;
  return text;
}

std::string or_none(const std::string& text) { return text.empty() ? "none" : text; }

// ---- Text ---------------------------------------------------------------------------------------

/// The nearest number of bytes.
Bytes whole(double value) {
  constexpr double kMost = 9.2e18;
  return static_cast<Bytes>(std::clamp(value, -kMost, kMost));
}

enum class Quantity : std::uint8_t { kTime, kBytes, kFraction, kPlain };

Quantity quantity_of(const std::string& name) {
  if (name == "tokens_per_second" || name == "price_per_step") return Quantity::kPlain;
  if (name == "model_flops_utilization") return Quantity::kFraction;
  return Quantity::kTime;
}

std::string value_text(const std::optional<double>& value, Quantity quantity) {
  if (!value) return "none";
  switch (quantity) {
    case Quantity::kTime:
      return readable_time({*value});
    case Quantity::kBytes:
      return readable_bytes(whole(*value));
    case Quantity::kFraction:
      return readable_percent(*value);
    case Quantity::kPlain:
      break;
  }
  if (std::abs(*value) >= 1000 && std::abs(*value) < 9e15)
    return readable_count(static_cast<std::int64_t>(std::llround(*value)));
  return json_number(*value);
}

std::string label_of(std::string name) {
  std::replace(name.begin(), name.end(), '_', ' ');
  return name;
}

std::string counts_text(const DiffCounts& counts) {
  std::vector<std::string> parts;
  const auto add = [&](std::size_t count, const char* what) {
    if (count > 0) parts.push_back(readable_count(static_cast<std::int64_t>(count)) + what);
  };
  add(counts.added, " added");
  add(counts.removed, " removed");
  add(counts.changed, " changed");
  add(counts.cost, " with another price");
  add(counts.ignored, " ignored");
  add(counts.same, " as before");
  return parts.empty() ? "none" : joined(parts, ", ");
}

SummaryTable number_table(const PlanDiff& diff) {
  SummaryTable table{
      "Cost and memory", {"", "before", "after", "change"}, {false, true, true, true}, {}};
  const auto add = [&](const DiffNumber& number, Quantity quantity) {
    if (!number.before && !number.after) return;
    if (quantity == Quantity::kBytes && number.before == 0.0 && number.after == 0.0) return;
    const auto change = number.change();
    std::string changed = change ? signed_percent(*change) : "";
    if (change == 0.0) changed = "same";
    table.rows.push_back({label_of(number.name),
                          value_text(number.before, quantity),
                          value_text(number.after, quantity),
                          std::move(changed)});
  };
  for (const DiffNumber& number : diff.cost) add(number, quantity_of(number.name));
  for (DiffNumber number : diff.memory) {
    number.name = number.name == "peak"    ? "peak memory"
                  : number.name == "limit" ? "memory limit"
                                           : "  " + number.name;
    add(number, Quantity::kBytes);
  }
  return table;
}

SummaryTable breakdown_table(const PlanDiff& diff) {
  SummaryTable table{"Where the objective changed",
                     {"what", "axes", "level", "before", "after", "effect"},
                     {false, false, false, true, true, true},
                     {}};
  for (const DiffCell& cell : diff.breakdown) {
    if (table.rows.size() == kMostCells) {
      table.rows.push_back({std::to_string(diff.breakdown.size() - kMostCells) + " more"});
      table.rows.back().resize(table.columns.size());
      break;
    }
    table.rows.push_back({cell.kind,
                          joined(cell.axes, ","),
                          cell.level.value_or(""),
                          readable_time(cell.before),
                          readable_time(cell.after),
                          signed_time(cell.after - cell.before)});
  }
  return table;
}

/// The part of a name below its scope.
std::string below(const std::string& name, const std::string& scope) {
  const bool inside = !scope.empty() && name.size() > scope.size() + 1 &&
                      name.compare(0, scope.size(), scope) == 0 &&
                      (name[scope.size()] == '.' || name[scope.size()] == '/');
  return inside ? name.substr(scope.size() + 1) : name;
}

std::string kind_text(const DiffEntry& entry) {
  return entry.kind == ChangeKind::kCost ? "same, other price"
                                         : std::string(change_kind_name(entry.kind));
}

void add_entry(const DiffEntry& entry, std::string name, SummaryTable& table) {
  const auto side = [&](Seconds time, ChangeKind missing) {
    return entry.kind == missing ? std::string() : readable_time(time);
  };
  table.rows.push_back({std::move(name),
                        entry.type + " " + kind_text(entry),
                        side(entry.before, ChangeKind::kAdded),
                        side(entry.after, ChangeKind::kRemoved),
                        std::to_string(entry.count),
                        signed_time(entry.effect())});
  for (const DiffAspect& aspect : entry.aspects) {
    table.rows.push_back({"",
                          "  " + label_of(aspect.what),
                          entry.kind == ChangeKind::kAdded ? "" : or_none(aspect.before),
                          entry.kind == ChangeKind::kRemoved ? "" : or_none(aspect.after),
                          "",
                          ""});
  }
}

void add_more(std::size_t count, const std::string& indent, SummaryTable& table) {
  table.rows.push_back({indent + std::to_string(count) + " more"});
  table.rows.back().resize(table.columns.size());
}

SummaryTable scope_table(const PlanDiff& diff) {
  SummaryTable table{"Changes by scope, with their effect on the objective",
                     {"where", "what", "before", "after", "times", "effect"},
                     {false, false, false, false, true, true},
                     {}};
  for (std::size_t s = 0; s < diff.scopes.size(); ++s) {
    const DiffScope& scope = diff.scopes[s];
    if (s == kMostScopes) {
      add_more(diff.scopes.size() - s, "", table);
      break;
    }
    table.rows.push_back({scope.name.empty() ? "(no scope)" : scope.name,
                          counted(scope.operators, "operator"),
                          "",
                          "",
                          "",
                          signed_time(scope.effect)});
    for (std::size_t e = 0; e < scope.entries.size(); ++e) {
      if (e == kMostEntries) {
        add_more(scope.entries.size() - e, "  ", table);
        break;
      }
      const DiffEntry& entry = scope.entries[e];
      add_entry(entry, "  " + below(entry.name, scope.name), table);
    }
  }
  return table;
}

SummaryTable tensor_table(const PlanDiff& diff) {
  SummaryTable table{"Tensors and their collectives (a part of the effects above)",
                     {"tensor", "what", "before", "after", "times", "effect"},
                     {false, false, false, false, true, true},
                     {}};
  for (std::size_t t = 0; t < diff.tensors.size(); ++t) {
    if (t == kMostTensors) {
      add_more(diff.tensors.size() - t, "", table);
      break;
    }
    add_entry(diff.tensors[t], diff.tensors[t].name, table);
  }
  return table;
}

/// The first digits of a fingerprint tell enough.
std::string shortened(const std::string& text) {
  constexpr std::size_t kEnough = 19;  // "sha256:" and 12 digits
  return text.rfind("sha256:", 0) == 0 && text.size() > kEnough ? text.substr(0, kEnough) + ".."
                                                                : text;
}

std::string change_text(const DiffAspect& aspect) {
  return or_none(shortened(aspect.before)) + " -> " + or_none(shortened(aspect.after));
}

std::string verdict(const PlanDiff& diff) {
  std::vector<std::string> broken;
  for (const DiffLimit& limit : diff.limits) {
    if (!limit.holds) broken.push_back(limit.message);
  }
  if (!broken.empty()) return "worse than allowed: " + joined(broken, "; ");
  if (diff.empty()) return "the plans are the same";
  return "nothing is worse than allowed";
}

// ---- JSON ---------------------------------------------------------------------------------------

/// Bytes are whole numbers, and exact ones up to 2^53.
bool is_bytes(const char* group) { return std::string_view(group) == "memory"; }

void write_number(JsonWriter& writer, const std::optional<double>& value, bool bytes = false) {
  if (value && std::isfinite(*value)) {
    if (bytes) return writer.value(whole(*value));
    writer.value(*value);
  } else {
    writer.null();
  }
}

void write_aspects(JsonWriter& writer, const char* key, const std::vector<DiffAspect>& aspects) {
  writer.key(key);
  writer.begin_array();
  for (const DiffAspect& aspect : aspects) {
    writer.begin_object(JsonWriter::kOneLine);
    writer.member("what", aspect.what);
    writer.member("before", aspect.before);
    writer.member("after", aspect.after);
    writer.end_object();
  }
  writer.end_array();
}

void write_numbers(JsonWriter& writer, const char* key, const std::vector<DiffNumber>& numbers) {
  writer.key(key);
  writer.begin_object();
  for (const DiffNumber& number : numbers) {
    writer.key(number.name);
    writer.begin_object(JsonWriter::kOneLine);
    writer.key("before");
    write_number(writer, number.before, is_bytes(key));
    writer.key("after");
    write_number(writer, number.after, is_bytes(key));
    writer.key("change");
    write_number(writer, number.change());
    writer.end_object();
  }
  writer.end_object();
}

void write_entry(JsonWriter& writer, const DiffEntry& entry, bool tensor) {
  writer.begin_object();
  writer.member("name", entry.name);
  writer.member("count", entry.count);
  writer.member("change", change_kind_name(entry.kind));
  writer.member("type", entry.type);
  writer.member("before", entry.before.value);
  writer.member("after", entry.after.value);
  writer.member("effect", entry.effect().value);
  if (tensor) writer.member("bytes", entry.bytes);
  write_aspects(writer, "aspects", entry.aspects);
  writer.end_object();
}

void write_counts(JsonWriter& writer, const char* key, const DiffCounts& counts) {
  writer.key(key);
  writer.begin_object(JsonWriter::kOneLine);
  writer.member("added", counts.added);
  writer.member("removed", counts.removed);
  writer.member("changed", counts.changed);
  writer.member("cost", counts.cost);
  writer.member("same", counts.same);
  writer.member("ignored", counts.ignored);
  writer.end_object();
}

}  // namespace

Summary summarise(const PlanDiff& diff) {
  Summary summary;
  summary.title = "difference between two plans";
  summary.facts.emplace_back("verdict", verdict(diff));
  for (const DiffAspect& aspect : diff.identity)
    summary.facts.emplace_back(aspect.what, change_text(aspect));
  for (const DiffAspect& aspect : diff.mesh)
    summary.facts.emplace_back(aspect.what, change_text(aspect));
  for (const DiffAspect& aspect : diff.options)
    summary.facts.emplace_back("option " + aspect.what, change_text(aspect));
  for (const DiffAspect& aspect : diff.result)
    summary.facts.emplace_back(aspect.what, change_text(aspect));
  summary.facts.emplace_back("operators", counts_text(diff.operator_counts));
  summary.facts.emplace_back("tensors", counts_text(diff.tensor_counts));
  SummaryTable tables[] = {
      number_table(diff), breakdown_table(diff), scope_table(diff), tensor_table(diff)};
  for (SummaryTable& table : tables) {
    if (!table.rows.empty()) summary.tables.push_back(std::move(table));
  }
  return summary;
}

void write_diff(JsonWriter& writer, const PlanDiff& diff) {
  writer.begin_object();
  writer.member("worse", diff.worse());
  writer.member("same", diff.empty());
  writer.key("limits");
  writer.begin_array();
  for (const DiffLimit& limit : diff.limits) {
    writer.begin_object(JsonWriter::kOneLine);
    writer.member("name", limit.name);
    writer.member("holds", limit.holds);
    writer.key("change");
    write_number(writer, limit.change);
    writer.key("allowed");
    write_number(writer, limit.allowed);
    writer.member("message", limit.message);
    writer.end_object();
  }
  writer.end_array();
  write_aspects(writer, "identity", diff.identity);
  write_aspects(writer, "mesh", diff.mesh);
  write_aspects(writer, "options", diff.options);
  write_aspects(writer, "result", diff.result);
  write_numbers(writer, "cost", diff.cost);
  write_numbers(writer, "memory", diff.memory);
  writer.key("breakdown");
  writer.begin_array();
  for (const DiffCell& cell : diff.breakdown) {
    writer.begin_object(JsonWriter::kOneLine);
    writer.member("kind", cell.kind);
    writer.key("axes");
    writer.array(cell.axes);
    writer.key("level");
    if (cell.level) {
      writer.value(*cell.level);
    } else {
      writer.null();
    }
    writer.member("before", cell.before.value);
    writer.member("after", cell.after.value);
    writer.member("effect", (cell.after - cell.before).value);
    writer.end_object();
  }
  writer.end_array();
  write_counts(writer, "operators", diff.operator_counts);
  write_counts(writer, "tensors", diff.tensor_counts);
  writer.member("effect", diff.effect.value);
  writer.key("scopes");
  writer.begin_array();
  for (const DiffScope& scope : diff.scopes) {
    writer.begin_object();
    writer.member("scope", scope.name);
    writer.member("operators", scope.operators);
    writer.member("effect", scope.effect.value);
    writer.key("changes");
    writer.begin_array();
    for (const DiffEntry& entry : scope.entries) write_entry(writer, entry, false);
    writer.end_array();
    writer.end_object();
  }
  writer.end_array();
  writer.key("tensor_changes");
  writer.begin_array();
  for (const DiffEntry& entry : diff.tensors) write_entry(writer, entry, true);
  writer.end_array();
  writer.end_object();
}

std::string diff_json(const PlanDiff& diff) {
  JsonWriter writer;
  write_diff(writer, diff);
  return std::move(writer).text();
}

std::string diff_junit(const PlanDiff& diff) {
  const auto failures =
      std::count_if(diff.limits.begin(), diff.limits.end(), [](const auto& l) { return !l.holds; });
  const std::string numbers = "tests=\"" + std::to_string(diff.limits.size()) + "\" failures=\"" +
                              std::to_string(failures) + "\" errors=\"0\"";
  std::string text = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n";
  text += "<testsuites " + numbers + ">\n";
  text += "  <testsuite name=\"meshplan diff\" " + numbers + " skipped=\"0\">\n";
  text += "    <properties>\n";
  const auto add_properties = [&](const char* group, const std::vector<DiffNumber>& list) {
    for (const DiffNumber& number : list) {
      for (const bool after : {false, true}) {
        const auto& value = after ? number.after : number.before;
        if (!value || !std::isfinite(*value)) continue;
        text += "      <property name=\"" + std::string(group) + "." + number.name +
                (after ? ".after" : ".before") + "\" value=\"" +
                (is_bytes(group) ? std::to_string(whole(*value)) : json_number(*value)) + "\"/>\n";
      }
    }
  };
  add_properties("cost", diff.cost);
  add_properties("memory", diff.memory);
  text += "    </properties>\n";
  for (const DiffLimit& limit : diff.limits) {
    text += "    <testcase classname=\"meshplan.diff\" name=\"" + xml_text(limit.name) + "\"";
    if (limit.holds) {
      text += "/>\n";
      continue;
    }
    text += ">\n      <failure message=\"" + xml_text(limit.message) + "\" type=\"worse\">" +
            xml_text(limit.message) + "</failure>\n    </testcase>\n";
  }
  text += "    <system-out>" + xml_text(summary_text(summarise(diff))) + "</system-out>\n";
  text += "  </testsuite>\n</testsuites>\n";
  return text;
}

}  // namespace meshplan

// SPDX-License-Identifier: Apache-2.0
#include "plan/plan_summary.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <string_view>
#include <unordered_map>

#include "plan/body_writer.h"
#include "plan/plan_fold.h"
#include "plan/readable.h"

namespace meshplan {
namespace {

constexpr std::size_t kCostliest = 10;
constexpr std::size_t kMostLayerRows = 40;
constexpr std::size_t kWidestName = 52;
constexpr std::size_t kLargestAtPeak = 8;
constexpr std::size_t kMostBreakdownRows = 8;

std::string joined(const std::vector<std::string>& parts, const char* between) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : between) + part;
  return text;
}

std::string share(double part, double whole) {
  return whole > 0 ? readable_percent(part / whole) : "";
}

std::int64_t executions(const Plan& plan, Per per) {
  return per == Per::kStep ? 1 : plan.options.microbatches;
}

// ---- Facts --------------------------------------------------------------------------------------

std::string options_text(const PlanOptions& options) {
  std::string text = options.mode;
  if (options.mode == "training") {
    text += ", " + options.optimizer + ", " + std::to_string(options.microbatches) +
            (options.microbatches == 1 ? " micro-batch" : " micro-batches") + ", recompute " +
            options.recompute;
  }
  return text;
}

std::string proof_text(const PlanResult& result) {
  std::string text = std::string(plan_status_name(result.status)) + ", found by " + result.found_by;
  if (result.status == PlanStatus::kOptimal)
    return text + "; nothing in the strategy space is better";
  if (result.status == PlanStatus::kInfeasible) return text;
  if (!result.gap || !result.lower_bound) return text + "; no bound proven";
  return text + "; proven gap " + readable_percent(*result.gap) + " (lower bound " +
         readable_time(*result.lower_bound) + ")";
}

std::string preference_text(const PlanPreference& preference, const PlanResult& result) {
  const auto of = [](std::int64_t kept, std::int64_t all, const char* what) {
    return readable_count(kept) + " of " + readable_count(all) + " " + what;
  };
  std::string text =
      of(preference.kept_operators, preference.operators, "operators and ") +
      of(preference.kept_parameters, preference.parameters, "parameters placed as before");
  const double best = preference.best_objective.value;
  if (result.objective && best > 0)
    text += ", which costs " + readable_percent(result.objective->value / best - 1) + " (best " +
            readable_time(preference.best_objective) + ")";
  return text;
}

std::string step_text(const PlanCost& cost) {
  std::string text = readable_time(cost.step_time) + " = compute " +
                     readable_time(cost.compute_time) + " + exposed communication " +
                     readable_time(cost.exposed_communication_time);
  text += " (of " + readable_time(cost.communication_time) + " communication)";
  return text;
}

void add_facts(const Plan& plan, Summary& summary) {
  const auto add = [&](const char* label, std::string value) {
    summary.facts.emplace_back(label, std::move(value));
  };
  add("mesh", mesh_text(plan.mesh));
  add("mode", options_text(plan.options));
  add("result", proof_text(plan.result));
  if (plan.result.status == PlanStatus::kInfeasible) {
    if (plan.result.min_memory) {
      const Bytes least = *plan.result.min_memory;
      add("least memory",
          readable_bytes(least) + " per device, " + readable_bytes(least - plan.memory.limit) +
              " over the limit of " + readable_bytes(plan.memory.limit));
    }
    return;
  }
  if (plan.result.objective) add("objective", readable_time(*plan.result.objective));
  if (plan.preference) add("preference", preference_text(*plan.preference, plan.result));
  add("step time", step_text(plan.cost));
  if (plan.cost.tokens_per_second > 0) {
    std::string speed =
        plan.cost.tokens_per_second < 9e15
            ? readable_count(static_cast<std::int64_t>(plan.cost.tokens_per_second + 0.5)) +
                  " tokens per second"
            : "over 9e15 tokens per second";
    if (plan.cost.model_flops_utilization > 0) {
      speed +=
          ", " + readable_percent(plan.cost.model_flops_utilization) + " model FLOPs utilisation";
    }
    if (plan.cost.hardware_flops_utilization) {
      speed +=
          " (" + readable_percent(*plan.cost.hardware_flops_utilization) + " with recomputation)";
    }
    add("throughput", std::move(speed));
  }
  if (plan.cost.price_per_step) {
    std::string price = readable_price(*plan.cost.price_per_step) + " per step";
    if (plan.cost.tokens_per_second > 0 && plan.cost.step_time.value > 0) {
      const double tokens = plan.cost.tokens_per_second * plan.cost.step_time.value;
      price +=
          ", " + readable_price(*plan.cost.price_per_step / tokens * 1e9) + " per billion tokens";
    }
    add("cost", std::move(price));
  }
  std::string memory =
      readable_bytes(plan.memory.peak) + " of " + readable_bytes(plan.memory.limit) + " per device";
  if (plan.memory.limit > 0) {
    memory += " (" +
              share(static_cast<double>(plan.memory.peak), static_cast<double>(plan.memory.limit)) +
              ")";
  }
  if (!plan.memory.moment.empty()) memory += ", at its peak in the " + plan.memory.moment;
  add("memory", std::move(memory));
}

/// What some cells of the breakdown take together.
struct Spent {
  Seconds objective;
  Seconds time;
  Bytes bytes = 0;

  Spent& operator+=(const Spent& other) {
    objective += other.objective;
    time += other.time;
    if (__builtin_add_overflow(bytes, other.bytes, &bytes))
      bytes = std::numeric_limits<Bytes>::max();
    return *this;
  }
};

SummaryTable memory_table(const Plan& plan) {
  SummaryTable table{"Memory at the peak", {"kind", "bytes", "share"}, {false, true, true}, {}};
  const std::pair<const char*, Bytes> kinds[] = {{"parameters", plan.memory.parameters},
                                                 {"gradients", plan.memory.gradients},
                                                 {"optimizer", plan.memory.optimizer},
                                                 {"activations", plan.memory.activations},
                                                 {"gathered", plan.memory.gathered},
                                                 {"buffers", plan.memory.buffers},
                                                 {"workspace", plan.memory.workspace}};
  for (const auto& [name, bytes] : kinds) {
    if (bytes == 0) continue;
    table.rows.push_back(
        {name,
         readable_bytes(bytes),
         share(static_cast<double>(bytes), static_cast<double>(plan.memory.peak))});
  }
  return table;
}

/// The largest first; what is left in one row, so that the rows add up to the peak.
SummaryTable peak_table(const Plan& plan) {
  SummaryTable table{"Largest tensors at the peak",
                     {"tensor", "kind", "each", "times", "bytes", "share"},
                     {false, false, true, true, true, true},
                     {}};
  std::vector<FoldItem> items;
  std::map<std::pair<MemoryKind, Bytes>, std::size_t> bodies;
  for (const PlanMemoryShare& share : plan.at_peak) {
    const std::size_t body =
        bodies.try_emplace({share.kind, share.bytes}, bodies.size()).first->second;
    items.push_back({{share.name}, body});
  }
  std::vector<FoldedItem> rows = fold(items);
  const auto together = [&](const FoldedItem& row) {
    return static_cast<Bytes>(row.members.size()) * plan.at_peak[row.members.front()].bytes;
  };
  std::stable_sort(rows.begin(), rows.end(), [&](const FoldedItem& a, const FoldedItem& b) {
    return together(a) > together(b);
  });
  const auto share_of = [&](Bytes bytes) {
    return share(static_cast<double>(bytes), static_cast<double>(plan.memory.peak));
  };
  std::size_t others = 0;
  Bytes rest = 0;
  for (const FoldedItem& row : rows) {
    if (table.rows.size() == kLargestAtPeak) {
      others += row.members.size();
      rest += together(row);
      continue;
    }
    const PlanMemoryShare& sample = plan.at_peak[row.members.front()];
    table.rows.push_back({row.texts[0],
                          memory_kind_name(sample.kind),
                          readable_bytes(sample.bytes),
                          std::to_string(row.members.size()),
                          readable_bytes(together(row)),
                          share_of(together(row))});
  }
  if (others > 0)
    table.rows.push_back(
        {"others", "", "", std::to_string(others), readable_bytes(rest), share_of(rest)});
  return table;
}

/// The objective by what takes the time, on which axes and over which level.
SummaryTable breakdown_table(const Plan& plan) {
  SummaryTable table{"Where the objective goes",
                     {"what", "axes", "level", "objective", "share", "hidden", "sent"},
                     {false, false, false, true, true, true, true},
                     {}};
  std::vector<const PlanCostCell*> cells;
  for (const PlanCostCell& cell : plan.breakdown) cells.push_back(&cell);
  std::stable_sort(cells.begin(), cells.end(), [](const PlanCostCell* a, const PlanCostCell* b) {
    return a->objective > b->objective;
  });
  const auto add = [&](std::string what, std::string axes, std::string level, const Spent& spent) {
    const double whole = plan.result.objective ? plan.result.objective->value : 0;
    const Seconds hidden = spent.time - spent.objective;
    table.rows.push_back({std::move(what),
                          std::move(axes),
                          std::move(level),
                          readable_time(spent.objective),
                          share(spent.objective.value, whole),
                          hidden.value > 0 ? readable_time(hidden) : "",
                          spent.bytes > 0 ? readable_bytes(spent.bytes) : ""});
  };
  Spent rest;
  for (const PlanCostCell* cell : cells) {
    const Spent spent{cell->objective, cell->time, cell->bytes};
    if (table.rows.size() == kMostBreakdownRows && cells.size() > kMostBreakdownRows + 1) {
      rest += spent;
      continue;
    }
    add(cost_kind_name(cell->kind), joined(cell->axes, ","), cell->level.value_or(""), spent);
  }
  if (cells.size() > table.rows.size())
    add(std::to_string(cells.size() - table.rows.size()) + " others", "", "", rest);
  return table;
}

// ---- Costliest ----------------------------------------------------------------------------------

/// A row of equal things: what one of them costs per step and how many there are.
struct Costly {
  std::string name;
  std::size_t count = 1;
  Seconds each;
  std::size_t sample = 0;
  Seconds total() const { return static_cast<double>(count) * each; }
};

/// Folds names with equal `body` and `each`, the dearest rows first, at most ten.
std::vector<Costly> costliest(const std::vector<std::string_view>& names,
                              const std::vector<std::string>& bodies,
                              const std::vector<Seconds>& each) {
  std::unordered_map<std::string_view, std::size_t> numbers;  // looked up only, never walked
  std::vector<FoldItem> items;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const std::size_t body = numbers.try_emplace(bodies[i], numbers.size()).first->second;
    items.push_back({{names[i]}, body});
  }
  std::vector<Costly> rows;
  for (const FoldedItem& item : fold(items)) {
    const std::size_t sample = item.members.front();
    if (each[sample].value <= 0) continue;
    rows.push_back({item.texts[0], item.members.size(), each[sample], sample});
  }
  std::stable_sort(rows.begin(), rows.end(), [](const Costly& a, const Costly& b) {
    return a.total() > b.total();
  });
  if (rows.size() > kCostliest) rows.resize(kCostliest);
  return rows;
}

/// Per step: the computation of an operator and the collectives inside it.
Seconds operator_time(const Plan& plan, const PlanOperator& op) {
  Seconds time = op.compute_time;
  for (const PlanCollective& inner : op.collectives) {
    time += static_cast<double>(plan.options.microbatches * inner.count) * inner.time;
  }
  return time;
}

std::string placements_text(const std::vector<Placements>& list) {
  std::vector<std::string> parts;
  for (const Placements& placements : list) parts.push_back("[" + to_string(placements) + "]");
  return joined(parts, " ");
}

SummaryTable operator_table(const Plan& plan) {
  SummaryTable table{"Costliest operators",
                     {"operator", "type", "result", "each", "times", "per step", "share"},
                     {false, false, false, true, true, true, true},
                     {}};
  std::vector<std::string_view> names;
  std::vector<std::string> bodies;
  std::vector<Seconds> each;
  BodyWriter body;
  for (const PlanOperator& op : plan.operators) {
    names.push_back(op.name);
    each.push_back(operator_time(plan, op));
    body.clear();
    body.value(op.type);
    for (const Placements& placements : op.out_placements) body.array(placements);
    body.value(each.back().value);
    bodies.push_back(body.bytes());
  }
  for (const Costly& row : costliest(names, bodies, each)) {
    const PlanOperator& op = plan.operators[row.sample];
    table.rows.push_back({row.name,
                          op.type,
                          placements_text(op.out_placements),
                          readable_time(row.each),
                          std::to_string(row.count),
                          readable_time(row.total()),
                          share(row.total().value, plan.cost.step_time.value)});
  }
  return table;
}

std::string steps_text(const PlanRedistribution& entry) {
  std::vector<std::string> parts;
  for (const PlanStep& step : entry.steps) {
    parts.push_back(std::string(collective_name(step.collective)) + "(" + joined(step.axes, ",") +
                    ")");
  }
  return joined(parts, " ");
}

/// What steps_text() shows.
void add_steps(BodyWriter& body, const PlanRedistribution& entry) {
  for (const PlanStep& step : entry.steps) {
    body.value(collective_name(step.collective));
    body.array(step.axes);
  }
}

/// Per step, hidden or not.
Seconds redistribution_time(const Plan& plan, const PlanRedistribution& entry) {
  Seconds time;
  for (const PlanStep& step : entry.steps) time += step.time;
  return static_cast<double>(executions(plan, entry.per)) * time;
}

Bytes redistribution_bytes(const PlanRedistribution& entry) {
  return std::accumulate(
      entry.steps.begin(), entry.steps.end(), Bytes{0}, [](Bytes sum, const PlanStep& step) {
        Bytes total = 0;
        return __builtin_add_overflow(sum, step.bytes, &total) ? sum : total;
      });
}

SummaryTable redistribution_table(const Plan& plan) {
  SummaryTable table{
      "Costliest redistributions",
      {"tensor", "phase", "collectives", "bytes", "each", "times", "per step", "share"},
      {false, false, false, true, true, true, true, true},
      {}};
  std::vector<std::string_view> names;
  std::vector<std::string> bodies;
  std::vector<Seconds> each;
  BodyWriter body;
  for (const PlanRedistribution& entry : plan.redistributions) {
    names.push_back(entry.tensor);
    each.push_back(redistribution_time(plan, entry));
    body.clear();
    body.value(phase_name(entry.phase));
    add_steps(body, entry);
    body.value(redistribution_bytes(entry));
    body.value(each.back().value);
    bodies.push_back(body.bytes());
  }
  for (const Costly& row : costliest(names, bodies, each)) {
    const PlanRedistribution& entry = plan.redistributions[row.sample];
    table.rows.push_back({row.name,
                          phase_name(entry.phase),
                          steps_text(entry),
                          readable_bytes(redistribution_bytes(entry)),
                          readable_time(row.each),
                          std::to_string(row.count),
                          readable_time(row.total()),
                          share(row.total().value, plan.cost.step_time.value)});
  }
  return table;
}

// ---- Layers -------------------------------------------------------------------------------------

/// The part of a name up to its first counter: "layers.3" of "layers.3.mlp.fc1"; without one, the
/// part up to the first separator.
std::string_view layer_of(std::string_view name) {
  std::size_t first_end = name.size();
  for (std::size_t begin = 0; begin < name.size();) {
    std::size_t end = name.find_first_of("./", begin);
    if (end == std::string_view::npos) end = name.size();
    const std::string_view part = name.substr(begin, end - begin);
    const bool counter = !part.empty() && std::all_of(part.begin(), part.end(), [](char c) {
      return c >= '0' && c <= '9';
    });
    if (counter) return name.substr(0, end);
    if (begin == 0) first_end = end;
    begin = end + 1;
  }
  return name.substr(0, first_end);
}

struct Layer {
  std::string_view name;
  std::size_t operators = 0;
  Seconds compute;
  Seconds communication;
  Bytes parameters = 0;             ///< local, at rest
  std::map<std::string, int> rest;  ///< placements of its parameters -> how many
  std::map<std::string, int> flow;  ///< placements of its results -> how many
  BodyWriter body;                  ///< equal in equal layers
};

Bytes local_bytes(const PlanTensor& tensor, const std::vector<std::int64_t>& shape) {
  static const std::map<std::string, Bytes, std::less<>> sizes = {{"bool", 1},
                                                                  {"uint8", 1},
                                                                  {"int8", 1},
                                                                  {"fp8_e4m3", 1},
                                                                  {"fp8_e5m2", 1},
                                                                  {"int16", 2},
                                                                  {"fp16", 2},
                                                                  {"bf16", 2},
                                                                  {"int32", 4},
                                                                  {"fp32", 4},
                                                                  {"int64", 8},
                                                                  {"fp64", 8}};
  const auto size = sizes.find(tensor.dtype);
  Bytes bytes = size == sizes.end() ? 0 : size->second;
  for (const std::int64_t extent : shape) {
    if (__builtin_mul_overflow(bytes, extent, &bytes)) return 0;
  }
  return bytes;
}

std::vector<Layer> layers_of(const Plan& plan) {
  std::vector<Layer> layers;
  std::unordered_map<std::string_view, std::size_t> known;  // looked up only, never walked
  const auto layer = [&](std::string_view key, bool may_add) -> Layer* {
    if (!may_add) {
      const auto found = known.find(key);
      return found == known.end() ? nullptr : &layers[found->second];
    }
    const auto [found, is_new] = known.try_emplace(key, layers.size());
    if (is_new) layers.emplace_back().name = key;
    return &layers[found->second];
  };
  for (const PlanOperator& op : plan.operators) {
    const std::string_view name = layer_of(op.name);
    Layer& in = *layer(name, true);
    ++in.operators;
    in.compute += op.compute_time;
    const Seconds time = operator_time(plan, op);
    in.communication += time - op.compute_time;
    for (const Placements& placements : op.out_placements) ++in.flow[to_string(placements)];
    in.body.value(std::string_view(op.name).substr(name.size()));
    in.body.value(op.type);
    for (const auto& operand : op.in_placements) {
      if (operand) {
        in.body.array(*operand);
      } else {
        in.body.null();
      }
    }
    for (const Placements& placements : op.out_placements) in.body.array(placements);
    in.body.value(time.value);
  }
  for (const PlanTensor& tensor : plan.tensors) {
    const std::string_view name = layer_of(tensor.name);
    Layer* const in = layer(name, false);
    if (in == nullptr) continue;
    in->body.value(std::string_view(tensor.name).substr(name.size()));
    in->body.array(tensor.placements);
    if (!tensor.optimizer_state) continue;
    in->parameters += local_bytes(tensor, tensor.local_shape);
    ++in->rest[to_string(tensor.placements)];
  }
  for (const PlanRedistribution& entry : plan.redistributions) {
    const std::string_view name = layer_of(entry.tensor);
    Layer* in = layer(entry.producer.empty() ? name : layer_of(entry.producer), false);
    if (in == nullptr && !entry.consumers.empty())
      in = layer(layer_of(entry.consumers[0].op), false);
    if (in == nullptr) continue;
    const Seconds time = redistribution_time(plan, entry);
    in->communication += time;
    in->body.value(std::string_view(entry.tensor).substr(name.size()));
    in->body.value(phase_name(entry.phase));
    add_steps(in->body, entry);
    in->body.value(time.value);
  }
  return layers;
}

/// The most frequent placements, and how many others there are.
std::string most_frequent(const std::map<std::string, int>& placements) {
  if (placements.empty()) return "";
  const auto most =
      std::max_element(placements.begin(), placements.end(), [](const auto& a, const auto& b) {
        return a.second < b.second;
      });
  std::string text = "[" + most->first + "]";
  if (placements.size() > 1) text += " and " + std::to_string(placements.size() - 1) + " more";
  return text;
}

SummaryTable layer_table(const Plan& plan) {
  SummaryTable table{
      "Layers (each)",
      {"layer", "operators", "compute", "communication", "parameters", "at rest", "results"},
      {false, true, true, true, true, false, false},
      {}};
  const std::vector<Layer> layers = layers_of(plan);
  std::vector<FoldItem> items;
  std::unordered_map<std::string_view, std::size_t> bodies;  // looked up only, never walked
  for (const Layer& layer : layers) {
    const std::size_t body = bodies.try_emplace(layer.body.bytes(), bodies.size()).first->second;
    items.push_back({{layer.name}, body});
  }
  const std::vector<FoldedItem> folded = fold(items);
  for (const FoldedItem& item : folded) {
    if (table.rows.size() == kMostLayerRows) {
      table.rows.push_back({std::to_string(folded.size() - kMostLayerRows) + " more"});
      table.rows.back().resize(table.columns.size());
      break;
    }
    const Layer& layer = layers[item.members.front()];
    table.rows.push_back({item.texts[0],
                          std::to_string(layer.operators),
                          readable_time(layer.compute),
                          readable_time(layer.communication),
                          layer.parameters > 0 ? readable_bytes(layer.parameters) : "",
                          most_frequent(layer.rest),
                          most_frequent(layer.flow)});
  }
  return table;
}

SummaryTable baseline_table(const Plan& plan) {
  SummaryTable table{"Textbook plans",
                     {"plan", "objective", "against this plan", "step time", "memory", "note"},
                     {false, true, true, true, true, false},
                     {}};
  for (const PlanBaseline& baseline : plan.baselines) {
    std::string against;
    if (baseline.objective && plan.result.objective && plan.result.objective->value > 0) {
      const double ratio = baseline.objective->value / plan.result.objective->value - 1;
      against = (ratio >= 0 ? "+" : "") + readable_percent(ratio);
    }
    std::string note = baseline.note;
    if (baseline.objective && !baseline.fits) {
      note = note.empty() ? "does not fit" : "does not fit; " + note;
    }
    table.rows.push_back({baseline.name,
                          baseline.objective ? readable_time(*baseline.objective) : "",
                          against,
                          baseline.step_time ? readable_time(*baseline.step_time) : "",
                          baseline.peak_memory ? readable_bytes(*baseline.peak_memory) : "",
                          note});
  }
  return table;
}

// ---- Printing -----------------------------------------------------------------------------------

/// Columns that a reader sees: bytes that do not continue a UTF-8 character.
std::size_t width(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;
  }));
}

/// One line, at most kWidestName columns, shortened in the middle.
std::string shortened(std::string_view text) {
  std::string line(text);
  for (char& c : line) {
    if (static_cast<unsigned char>(c) < 0x20) c = ' ';
  }
  if (width(line) <= kWidestName) return line;
  const auto boundary = [&](std::size_t at) {
    while (at < line.size() && (static_cast<unsigned char>(line[at]) & 0xC0U) == 0x80U) ++at;
    return at;
  };
  const std::size_t half = (kWidestName - 2) / 2;
  return line.substr(0, boundary(half)) + ".." + line.substr(boundary(line.size() - half));
}

std::string trimmed(std::string line) {
  while (!line.empty() && line.back() == ' ') line.pop_back();
  return line + "\n";
}

std::string table_text(const SummaryTable& table) {
  std::vector<std::vector<std::string>> rows{table.columns};
  for (const auto& row : table.rows) {
    std::vector<std::string>& cells = rows.emplace_back();
    for (const std::string& cell : row) cells.push_back(shortened(cell));
  }
  std::vector<std::size_t> widths(table.columns.size(), 0);
  for (const auto& row : rows) {
    for (std::size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], width(row[c]));
  }
  std::string text = "\n" + table.title + "\n";
  for (const auto& row : rows) {
    std::string line = " ";
    for (std::size_t c = 0; c < row.size(); ++c) {
      const std::string space(widths[c] - width(row[c]), ' ');
      line += " " + (table.right[c] ? space + row[c] : row[c] + space) + " ";
    }
    text += trimmed(std::move(line));
  }
  return text;
}

std::string markdown_cell(std::string_view text) {
  std::string cell;
  for (const char c : text) {
    if (c == '|' || c == '\\') cell += '\\';
    cell += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return cell;
}

}  // namespace

std::string mesh_text(const PlanMesh& mesh) {
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < mesh.shape.size(); ++i) {
    const std::string name = i < mesh.axes.size() ? mesh.axes[i] : "axis" + std::to_string(i);
    parts.push_back(name + "=" + std::to_string(mesh.shape[i]));
    if (i >= mesh.roles.size()) continue;
    // what the name says already is not said again
    std::vector<std::string> roles = mesh.roles[i];
    const auto is_named = [&](const std::string& role) {
      return name.compare(0, role.size(), role) == 0 &&
             name.find_first_not_of("0123456789", role.size()) == std::string::npos;
    };
    std::erase_if(roles, is_named);
    if (!roles.empty()) parts.back() += " (" + joined(roles, ", ") + ")";
  }
  return parts.empty() ? "one device" : joined(parts, ", ");
}

Summary summarise(const Plan& plan) {
  Summary summary;
  summary.title = (plan.graph.name.empty() ? "graph" : plan.graph.name) + " on " +
                  plan.cluster.name + ", " + readable_count(plan.cluster.devices) +
                  (plan.cluster.devices == 1 ? " device" : " devices");
  add_facts(plan, summary);
  SummaryTable tables[] = {breakdown_table(plan),
                           memory_table(plan),
                           peak_table(plan),
                           operator_table(plan),
                           redistribution_table(plan),
                           layer_table(plan),
                           baseline_table(plan)};
  for (SummaryTable& table : tables) {
    if (!table.rows.empty()) summary.tables.push_back(std::move(table));
  }
  summary.notes = plan.notes;
  return summary;
}

std::string summary_text(const Summary& summary) {
  std::string text = shortened(summary.title) == summary.title
                         ? summary.title + "\n"
                         : markdown_cell(summary.title) + "\n";
  std::size_t widest = 0;
  for (const auto& [label, value] : summary.facts) widest = std::max(widest, width(label));
  for (const auto& [label, value] : summary.facts) {
    std::string line = "  " + label + std::string(widest - width(label) + 2, ' ');
    for (const char c : value) line += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    text += trimmed(std::move(line));
  }
  for (const SummaryTable& table : summary.tables) text += table_text(table);
  if (!summary.notes.empty()) text += "\n";
  for (const std::string& note : summary.notes) text += "note: " + note + "\n";
  return text;
}

std::string summary_markdown(const Summary& summary) {
  std::string text = "# " + markdown_cell(summary.title) + "\n\n| | |\n|---|---|\n";
  for (const auto& [label, value] : summary.facts) {
    text += "| " + label + " | " + markdown_cell(value) + " |\n";
  }
  for (const SummaryTable& table : summary.tables) {
    text += "\n## " + table.title + "\n\n|";
    for (const std::string& column : table.columns) text += " " + column + " |";
    text += "\n|";
    for (const bool right : table.right) text += right ? "---:|" : "---|";
    text += "\n";
    for (const auto& row : table.rows) {
      text += "|";
      for (const std::string& cell : row) text += " " + markdown_cell(cell) + " |";
      text += "\n";
    }
  }
  if (!summary.notes.empty()) text += "\n";
  for (const std::string& note : summary.notes) text += "- " + markdown_cell(note) + "\n";
  return text;
}

}  // namespace meshplan

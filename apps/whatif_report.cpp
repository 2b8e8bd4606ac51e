// SPDX-License-Identifier: Apache-2.0
#include "apps/whatif_report.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>
#include <utility>

#include "graph/json.h"
#include "lib/text.h"
#include "plan/readable.h"

namespace meshplan {
namespace {

/// The columns that say where a point is: those of axes with one unnamed place are left out.
struct PlaceColumns {
  bool batch = false;
  bool memory = false;
  bool network = false;

  explicit PlaceColumns(const WhatIfReport& report)
      : batch(report.batch.size() > 1 || report.batch.front().has_value()),
        memory(report.memory.size() > 1 || report.memory.front().has_value()),
        network(report.network != std::vector<NetworkChange>{{}}) {}

  SummaryTable table(const std::string& title, const std::vector<std::string>& more) const {
    SummaryTable made;
    made.title = title;
    made.columns = {"cluster", "devices"};
    if (batch) made.columns.emplace_back("batch");
    if (memory) made.columns.emplace_back("device memory");
    if (network) made.columns.emplace_back("network");
    made.right.assign(made.columns.size(), true);
    made.right.front() = false;
    for (const std::string& column : more) {
      made.columns.push_back(column);
      made.right.push_back(true);
    }
    return made;
  }

  std::vector<std::string> row(const WhatIfReport& report, const WhatIfPoint& point) const {
    std::vector<std::string> made = {report.clusters[point.place.cluster].name,
                                     readable_count(point.devices)};
    if (batch) made.push_back(point.batch ? readable_count(*point.batch) : "");
    if (memory) made.push_back(readable_bytes(point.memory));
    if (network) made.push_back(network_text(report.network[point.place.network]));
    return made;
  }
};

std::string tokens_text(double tokens_per_second) {
  constexpr double kMost = 9e15;
  if (!(tokens_per_second > 0)) return "";
  if (tokens_per_second >= kMost) return "over 9e15";
  return readable_count(std::llround(tokens_per_second));
}

bool any_price(const WhatIfReport& report) {
  return std::any_of(report.points.begin(), report.points.end(), [](const WhatIfPoint& point) {
    return point.plan && point.plan->cost.price_per_step;
  });
}

std::string price_of(const WhatIfPoint& point) {
  const auto& price = point.plan->cost.price_per_step;
  return price ? readable_price(*price) : "";
}

std::string outcome_text(const WhatIfPoint& point) {
  if (point.status == WhatIfStatus::kOptimal) return "optimal";
  if (point.status == WhatIfStatus::kImpossible) return "impossible";
  if (point.plan) return "gap " + readable_percent(point.plan->gap());
  if (!point.min_memory) return "does not fit";
  return "needs " + readable_bytes(*point.min_memory - point.memory_limit) + " more";
}

SummaryTable point_table(const WhatIfReport& report, const PlaceColumns& places) {
  const auto many = report.options.find("microbatches");
  const bool batches = many != report.options.end() && many->second == "auto";
  const bool prices = any_price(report);
  const auto efficiency = scaling_efficiency(report.points);
  std::vector<std::string> columns = {"mesh"};
  if (batches) columns.emplace_back("micro-batches");
  for (const char* column : {"step time", "tokens/s", "MFU", "efficiency", "memory"})
    columns.emplace_back(column);
  if (prices) columns.emplace_back("price per step");
  columns.emplace_back("result");
  SummaryTable table = places.table("Points", columns);
  for (const std::size_t left : {table.columns.size() - 1, table.columns.size() - columns.size()})
    table.right[left] = false;
  for (std::size_t i = 0; i < report.points.size(); ++i) {
    const WhatIfPoint& point = report.points[i];
    std::vector<std::string> row = places.row(report, point);
    if (point.plan) {
      const PlanCost& cost = point.plan->cost;
      row.push_back(mesh_text(point.plan->mesh));
      if (batches) row.push_back(readable_count(point.plan->microbatches));
      row.push_back(readable_time(cost.step_time));
      row.push_back(tokens_text(cost.tokens_per_second));
      row.push_back(
          cost.model_flops_utilization > 0 ? readable_percent(cost.model_flops_utilization) : "");
      row.push_back(efficiency[i] && !report.shard ? readable_percent(*efficiency[i]) : "");
      row.push_back(readable_bytes(point.plan->peak));
      if (prices) row.push_back(price_of(point));
    }
    row.resize(table.columns.size() - 1);
    row.push_back(outcome_text(point));
    table.rows.push_back(std::move(row));
  }
  return table;
}

SummaryTable front_table(const WhatIfReport& report,
                         const PlaceColumns& places,
                         WhatIfExpense expense) {
  const bool priced = expense == WhatIfExpense::kPricePerStep;
  SummaryTable table = places.table(priced ? "Pareto front: step time against price per step"
                                           : "Pareto front: step time against devices",
                                    {"step time", "tokens/s"});
  if (priced) {
    table.columns.emplace_back("price per step");
    table.right.push_back(true);
  }
  const auto front = pareto_front(report.points, expense);
  std::vector<const WhatIfPoint*> shown;
  for (std::size_t i = 0; i < front.size(); ++i) {
    if (front[i]) shown.push_back(&report.points[i]);
  }
  const auto expense_of = [&](const WhatIfPoint& point) {
    return priced ? *point.plan->cost.price_per_step : static_cast<double>(point.devices);
  };
  std::stable_sort(shown.begin(), shown.end(), [&](const WhatIfPoint* a, const WhatIfPoint* b) {
    const auto world = [](const WhatIfPlace& place) {
      return std::tuple{place.batch, place.memory, place.network};
    };
    return std::tuple{world(a->place), expense_of(*a)} <
           std::tuple{world(b->place), expense_of(*b)};
  });
  for (const WhatIfPoint* point : shown) {
    std::vector<std::string> row = places.row(report, *point);
    row.push_back(readable_time(point->plan->cost.step_time));
    row.push_back(tokens_text(point->plan->cost.tokens_per_second));
    if (priced) row.push_back(price_of(*point));
    table.rows.push_back(std::move(row));
  }
  return table;
}

/// The fewest devices of the same cluster, batch, memory and network that have a plan.
std::string fits_from(const WhatIfReport& report, const WhatIfPoint& point) {
  const WhatIfPoint* least = nullptr;
  for (const WhatIfPoint& other : report.points) {
    WhatIfPlace there = other.place;
    there.devices = point.place.devices;
    if (!other.plan || !(there == point.place) || other.devices < point.devices) continue;
    if (least == nullptr || other.devices < least->devices) least = &other;
  }
  return least == nullptr ? "" : readable_count(least->devices) + " devices";
}

SummaryTable missing_table(const WhatIfReport& report, const PlaceColumns& places) {
  SummaryTable table = places.table("What is missing where nothing fits",
                                    {"limit", "least needed", "missing", "at", "fits from"});
  table.right[table.right.size() - 2] = false;
  for (const WhatIfPoint& point : report.points) {
    if (point.status != WhatIfStatus::kInfeasible) continue;
    std::vector<std::string> row = places.row(report, point);
    row.push_back(readable_bytes(point.memory_limit));
    row.push_back(point.min_memory ? readable_bytes(*point.min_memory) : "not proven");
    row.push_back(point.min_memory ? readable_bytes(*point.min_memory - point.memory_limit) : "");
    row.push_back(point.moment);
    row.push_back(fits_from(report, point));
    table.rows.push_back(std::move(row));
  }
  return table;
}

std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string field = "\"";
  for (const char c : text) field += c == '"' ? std::string("\"\"") : std::string(1, c);
  return field + "\"";
}

/// "16x8": the shape alone, for sheets.
std::string shape_of(const PlanMesh& mesh) {
  std::string text;
  for (const std::int64_t size : mesh.shape)
    text += (text.empty() ? "" : "x") + std::to_string(size);
  return text;
}

}  // namespace

Summary summarise(const WhatIfReport& report) {
  Summary summary;
  summary.title = report.graph.name + " on other machines";
  std::string options;
  for (const auto& [name, value] : report.options)
    options += (options.empty() ? "" : ", ") + name + " " + value;
  std::replace(options.begin(), options.end(), '_', ' ');
  summary.facts.emplace_back("options", options);
  if (report.shard)
    summary.facts.emplace_back(
        "part", std::to_string(report.shard->index) + " of " + std::to_string(report.shard->count));
  std::size_t planned = 0;
  std::size_t infeasible = 0;
  for (const WhatIfPoint& point : report.points) {
    planned += point.plan ? 1U : 0U;
    infeasible += point.status == WhatIfStatus::kInfeasible ? 1U : 0U;
  }
  std::string counts =
      counted(report.points.size(), "point") + ", " + std::to_string(planned) + " with a plan";
  if (infeasible > 0) counts += ", " + std::to_string(infeasible) + " where nothing fits";
  const std::size_t impossible = report.points.size() - planned - infeasible;
  if (impossible > 0) counts += ", " + std::to_string(impossible) + " impossible";
  summary.facts.emplace_back("points", counts);
  const PlaceColumns places(report);
  summary.tables.push_back(point_table(report, places));
  if (!report.shard) {
    for (const WhatIfExpense expense : {WhatIfExpense::kDevices, WhatIfExpense::kPricePerStep}) {
      SummaryTable front = front_table(report, places, expense);
      if (!front.rows.empty()) summary.tables.push_back(std::move(front));
    }
  }
  SummaryTable missing = missing_table(report, places);
  if (!missing.rows.empty()) summary.tables.push_back(std::move(missing));
  if (infeasible > 0)
    summary.notes.emplace_back(
        "what helps where nothing fits: more devices, more device memory, smaller micro-batches "
        "(--microbatches), recomputation (--recompute), a smaller optimizer state (--optimizer)");
  std::set<std::string> reasons;
  for (const WhatIfPoint& point : report.points) {
    if (point.status == WhatIfStatus::kImpossible && reasons.insert(point.reason).second)
      summary.notes.push_back("impossible: " + point.reason);
  }
  return summary;
}

std::string what_if_csv(const WhatIfReport& report) {
  std::string text =
      "cluster,devices,batch,memory,network,network_level,status,mesh,axes,microbatches,objective,"
      "lower_bound,gap,step_time,compute_time,communication_time,exposed_communication_time,"
      "tokens_per_second,model_flops_utilization,efficiency,price_per_step,peak_memory,"
      "memory_limit,min_memory,missing_memory,moment,on_device_front,on_price_front,reason\r\n";
  const auto efficiency = scaling_efficiency(report.points);
  const auto device_front = pareto_front(report.points, WhatIfExpense::kDevices);
  const auto price_front = pareto_front(report.points, WhatIfExpense::kPricePerStep);
  for (std::size_t i = 0; i < report.points.size(); ++i) {
    const WhatIfPoint& point = report.points[i];
    const NetworkChange& network = report.network[point.place.network];
    std::vector<std::string> row = {report.clusters[point.place.cluster].name,
                                    std::to_string(point.devices),
                                    point.batch ? std::to_string(*point.batch) : "",
                                    std::to_string(point.memory),
                                    json_number(network.factor),
                                    network.level.value_or(""),
                                    what_if_status_name(point.status)};
    constexpr std::size_t kFigures = 15;
    if (point.plan) {
      const PlanCost& cost = point.plan->cost;
      row.push_back(shape_of(point.plan->mesh));
      row.push_back(mesh_text(point.plan->mesh));
      row.push_back(std::to_string(point.plan->microbatches));
      for (const double value : {point.plan->objective.value,
                                 point.plan->lower_bound.value,
                                 point.plan->gap(),
                                 cost.step_time.value,
                                 cost.compute_time.value,
                                 cost.communication_time.value,
                                 cost.exposed_communication_time.value,
                                 cost.tokens_per_second,
                                 cost.model_flops_utilization})
        row.push_back(json_number(value));
      row.push_back(efficiency[i] && !report.shard ? json_number(*efficiency[i]) : "");
      row.push_back(cost.price_per_step ? json_number(*cost.price_per_step) : "");
      row.push_back(std::to_string(point.plan->peak));
    } else {
      row.resize(row.size() + kFigures);
    }
    row.push_back(std::to_string(point.memory_limit));
    row.push_back(point.min_memory ? std::to_string(*point.min_memory) : "");
    row.push_back(point.min_memory ? std::to_string(*point.min_memory - point.memory_limit) : "");
    row.push_back(point.moment);
    for (const auto* front : {&device_front, &price_front})
      row.emplace_back(report.shard || !point.plan ? "" : (*front)[i] ? "true" : "false");
    row.push_back(point.reason);
    for (std::size_t column = 0; column < row.size(); ++column)
      text += (column == 0 ? "" : ",") + csv_field(row[column]);
    text += "\r\n";
  }
  return text;
}

}  // namespace meshplan

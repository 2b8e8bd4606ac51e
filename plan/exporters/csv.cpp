// SPDX-License-Identifier: Apache-2.0
// One table of everything that a plan places and moves, for spreadsheets and scripts (RFC 4180).
#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "graph/json.h"
#include "plan/exporters/exporter.h"

namespace meshplan {
namespace {

std::string cell(std::string_view text) {
  if (text.find_first_of("\",\r\n") == std::string_view::npos) return std::string(text);
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + "\"";
}

std::string sizes_text(const std::vector<std::int64_t>& sizes) {
  std::string text;
  for (const std::int64_t size : sizes) text += (text.empty() ? "" : "x") + std::to_string(size);
  return text;
}

std::string brackets(const Placements& placements) { return "[" + to_string(placements) + "]"; }

std::string steps_text(const std::vector<PlanStep>& steps) {
  std::string text;
  for (const PlanStep& step : steps) {
    text += (text.empty() ? "" : "; ") + std::string(collective_name(step.collective)) + "(";
    for (std::size_t i = 0; i < step.axes.size(); ++i) text += (i == 0 ? "" : " ") + step.axes[i];
    text += ")";
  }
  return text;
}

struct Row {
  std::string record;
  std::string name;
  std::string type;
  std::string scope;
  std::string phase;
  std::string from;  ///< placements in, or before
  std::string to;    ///< placements out, or after
  std::string shape;
  std::string dtype;
  std::string local_shape;
  std::string bytes;    ///< moved per device in one execution
  std::string seconds;  ///< of an operator per step, of a redistribution per execution
  std::string steps;
};

void write(std::string& text, const Row& row) {
  const std::string* const cells[] = {&row.record,
                                      &row.name,
                                      &row.type,
                                      &row.scope,
                                      &row.phase,
                                      &row.from,
                                      &row.to,
                                      &row.shape,
                                      &row.dtype,
                                      &row.local_shape,
                                      &row.bytes,
                                      &row.seconds,
                                      &row.steps};
  bool first = true;
  for (const std::string* value : cells) {
    if (!first) text += ',';
    first = false;
    text += cell(*value);
  }
  text += "\r\n";
}

}  // namespace

Exported export_csv(const ExportSource& source) {
  Exported exported;
  std::string& text = exported.text;
  text =
      "record,name,type,scope,phase,placements_before,placements_after,shape,dtype,local_shape,"
      "bytes,seconds,steps\r\n";
  for (std::size_t t = 0; t < source.plan.tensors.size(); ++t) {
    const PlanTensor& tensor = source.plan.tensors[t];
    Row row;
    row.record = "tensor";
    row.name = tensor.name;
    row.type = role_name(source.graph.tensors[t].role);
    row.to = brackets(tensor.placements);
    row.shape = sizes_text(tensor.shape);
    row.dtype = tensor.dtype;
    row.local_shape = sizes_text(tensor.local_shape);
    write(text, row);
    for (const auto& [record, placements] :
         {std::pair{"gradient", &tensor.gradient}, {"optimizer_state", &tensor.optimizer_state}}) {
      if (!*placements) continue;
      row.record = record;
      row.to = brackets(**placements);
      row.local_shape.clear();
      write(text, row);
    }
  }
  for (std::size_t o = 0; o < source.plan.operators.size(); ++o) {
    const PlanOperator& op = source.plan.operators[o];
    Row row;
    row.record = "operator";
    row.name = op.name;
    row.type = op.type;
    row.scope = source.graph.operators[o].scope;
    if (op.recompute) row.phase = "recomputed";
    for (const auto& placements : op.in_placements)
      row.from += (row.from.empty() ? "" : " ") + (placements ? brackets(*placements) : "-");
    for (const Placements& placements : op.out_placements)
      row.to += (row.to.empty() ? "" : " ") + brackets(placements);
    row.seconds = json_number(op.compute_time.value);
    write(text, row);
    for (const PlanCollective& inside : op.collectives) {
      Row move;
      move.record = "collective";
      move.name = op.name;
      move.scope = row.scope;
      move.phase = phase_name(inside.phase);
      move.bytes = std::to_string(inside.bytes);
      move.seconds = json_number(inside.time.value);
      move.steps = std::string(collective_name(inside.collective)) + "(";
      for (std::size_t i = 0; i < inside.axes.size(); ++i)
        move.steps += (i == 0 ? "" : " ") + inside.axes[i];
      move.steps += ") x " + std::to_string(inside.count);
      write(text, move);
    }
  }
  for (const PlanRedistribution& moved : source.plan.redistributions) {
    Row row;
    row.record = "redistribution";
    row.name = moved.tensor;
    row.phase = phase_name(moved.phase);
    row.from = brackets(moved.from);
    row.to = brackets(moved.to);
    Bytes bytes = 0;
    double seconds = 0;
    for (const PlanStep& step : moved.steps) {
      if (__builtin_add_overflow(bytes, step.bytes, &bytes))
        bytes = std::numeric_limits<Bytes>::max();
      seconds += step.time.value;
    }
    row.bytes = std::to_string(bytes);
    row.seconds = json_number(std::min(seconds, std::numeric_limits<double>::max()));
    row.steps = steps_text(moved.steps);
    write(text, row);
  }
  return exported;
}

}  // namespace meshplan

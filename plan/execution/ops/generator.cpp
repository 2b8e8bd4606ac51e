// SPDX-License-Identifier: Apache-2.0
// Results that depend on positions alone, or on random numbers by position.
#include <cmath>

#include "plan/execution/ops/meanings.h"

namespace meshplan {
namespace {

using Results = std::vector<Var>;

AxisSet all_axes(const OperatorContext& cx) {
  AxisSet axes = 0;
  for (std::size_t d = 0; d < cx.result_shape(0).size(); ++d) axes |= cx.result_axes(0, d);
  return axes;
}

/// A list is laid out by global index; of a constant that only has a shape, the numbers are drawn.
Results constant(const OperatorContext& cx) {
  for (const char* name : {"value_ints", "value_floats"}) {
    const auto list = cx.numbers(name);
    if (!list) continue;
    DenseTensor values = cx.result_index(0);
    for (double& value : values.values) value = (*list)[static_cast<std::size_t>(value)];
    return {cx.tape.step(std::move(values), all_axes(cx))};
  }
  for (const char* name : {"value", "value_float", "value_int"}) {
    if (cx.has_attribute(name)) return {full(cx.tape, cx.local_result(0), cx.number(name, 0))};
  }
  const bool floating = cx.call.result_types.empty() || is_floating(cx.call.result_types[0]);
  if (cx.call.type == "ConstantOfShape" || !floating) return {full(cx.tape, cx.local_result(0), 0)};
  return {map(cx.uniform(0, 0), [](double u) { return 2 * u - 1; })};
}

Results range(const OperatorContext& cx) {
  const double start = cx.number("start", 0);
  const double delta = cx.number("delta", 1);
  return {map(cx.result_positions(0, 0, 1), [=](double p) { return start + p * delta; })};
}

/// Operand 1 holds the values for "off" and "on".
Results one_hot(const OperatorContext& cx) {
  const std::size_t rank = cx.result_shape(0).size();
  const std::int64_t given = cx.integer("axis", -1);
  const auto axis =
      static_cast<std::size_t>(given < 0 ? given + static_cast<std::int64_t>(rank) : given);
  const auto depth = static_cast<double>(cx.result_shape(0)[axis]);
  const bool values = cx.has(1);
  const double off = values ? cx.operand(1).value().values[0] : 0;
  const double on = values ? cx.operand(1).value().values[1] : 1;
  Shape shape = cx.operand(0).shape();
  shape.insert(shape.begin() + static_cast<std::ptrdiff_t>(axis), 1);
  return {map2(reshape(cx.operand(0), shape),
               cx.result_positions(0, axis, rank),
               [=](double i, double p) { return (i < 0 ? i + depth : i) == p ? on : off; })};
}

/// Draws from the unnormalised log-probabilities of a row.
Results multinomial(const OperatorContext& cx) {
  const DenseTensor& scores = cx.operand(0).value();
  const auto classes = static_cast<std::size_t>(cx.operand(0).shape()[1]);
  const Var drawn = cx.uniform(0, 0);
  if (!drawn.valid()) return {drawn};
  if (drawn.shape()[0] != cx.operand(0).shape()[0])
    return {cx.tape.fail("the shards of scores and samples do not belong together")};
  DenseTensor samples = drawn.value();
  const auto per_row = static_cast<std::size_t>(drawn.shape()[1]);
  for (std::size_t i = 0; i < samples.values.size(); ++i) {
    const std::size_t row = i / per_row;
    double total = 0;
    for (std::size_t c = 0; c < classes; ++c) total += std::exp(scores.values[row * classes + c]);
    double left = samples.values[i] * total;
    std::size_t chosen = 0;
    while (chosen + 1 < classes) {
      left -= std::exp(scores.values[row * classes + chosen]);
      if (left < 0) break;
      ++chosen;
    }
    samples.values[i] = static_cast<double>(chosen);
  }
  return {cx.tape.step(std::move(samples), drawn.varying() | cx.operand(0).varying())};
}

constexpr MeaningRow kRows[] = {
    {"Constant", constant},
    {"ConstantOfShape", constant},
    {"Multinomial", multinomial},
    {"OneHot", one_hot},
    {"Range", range},
};

}  // namespace

std::span<const MeaningRow> generator_meanings() { return kRows; }

}  // namespace meshplan

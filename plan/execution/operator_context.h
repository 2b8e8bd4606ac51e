// SPDX-License-Identifier: Apache-2.0
// What the meaning of an operator sees: its operands on the devices, its attributes, and where the
// shards lie. Written once, a meaning is both the unsharded run (a mesh of one device) and a shard.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "graph/operator_info.h"
#include "plan/execution/device_tape.h"
#include "plan/execution/execution.h"

namespace meshplan {

class OperatorContext {
 public:
  OperatorContext(DeviceTape& tape,
                  const OperatorCall& call,
                  const OperatorInfo& info,
                  const Strategy& strategy,
                  std::vector<Var> operands);

  DeviceTape& tape;
  const OperatorCall& call;
  const OperatorInfo& info;
  const Strategy& strategy;

  // attributes, as the rule's maker has accepted them
  bool has_attribute(const std::string& name) const { return call.attributes.contains(name); }
  std::int64_t integer(const std::string& name, std::int64_t otherwise) const;
  double number(const std::string& name, double otherwise) const;
  std::string text(const std::string& name, const std::string& otherwise) const;
  std::optional<std::vector<std::int64_t>> integers(const std::string& name) const;
  std::optional<std::vector<double>> numbers(const std::string& name) const;
  /// Attribute "axis" as a dimension of `rank`.
  std::size_t axis(std::int64_t otherwise, std::size_t rank) const;

  // operands and results; shapes are global unless they are called local
  std::size_t operand_count() const { return operands_.size(); }
  bool has(std::size_t operand) const;
  Var operand(std::size_t i) const { return operands_[i]; }
  const Shape& operand_shape(std::size_t i) const { return info.rule().operands[i].shape; }
  std::size_t result_count() const { return info.rule().results.size(); }
  const Shape& result_shape(std::size_t r) const { return info.rule().results[r].shape; }
  Shape local_result(std::size_t r) const;
  Shape local_operand(std::size_t i) const;

  // where the shards lie
  /// Axes that cut the dimension.
  AxisSet operand_axes(std::size_t i, std::size_t dim) const;
  AxisSet result_axes(std::size_t r, std::size_t dim) const;
  AxisSet operand_axes(std::size_t i, const std::vector<std::size_t>& dims) const;
  /// Axes on which the result is a sum (maximum, ...) of what the devices have.
  AxisSet partial_axes(std::size_t r) const;
  /// Axes on which the operand is one.
  AxisSet partial_operand_axes(std::size_t i) const;
  /// Global index of the first local entry, for every device.
  std::vector<std::int64_t> operand_begin(std::size_t i, std::size_t dim) const;
  std::vector<std::int64_t> result_begin(std::size_t r, std::size_t dim) const;
  /// Global indices of a dimension's local entries, as a value of `rank` dimensions.
  Var operand_positions(std::size_t i, std::size_t dim, std::size_t rank) const;
  Var result_positions(std::size_t r, std::size_t dim, std::size_t rank) const;
  /// 1 on the first device of the groups of `axes`, 0 on the others (no dimensions).
  Var first_of(AxisSet axes) const;
  /// Row-major global index of every local element of a result.
  DenseTensor result_index(std::size_t r) const;
  /// Uniform in (0, 1), by `salt`, the call's seed and the element's global index.
  Var uniform(std::size_t r, std::uint64_t salt) const;

  /// take() along `dim` of operand i: source[j] is the global position that the result r's entry j
  /// along dimension `to` comes from, or -1 for `fill`. What another shard holds becomes 0.
  Var take_global(Var x,
                  std::size_t i,
                  std::size_t dim,
                  std::size_t r,
                  std::size_t to,
                  const std::vector<std::int64_t>& source,
                  double fill = 0) const;

 private:
  Var positions(const std::vector<std::int64_t>& begin,
                std::int64_t count,
                std::size_t dim,
                std::size_t rank,
                AxisSet axes) const;
  AxisSet axes_of(const TensorState& state, std::size_t dim) const;
  std::vector<std::int64_t> begin_of(const TensorState& state,
                                     std::size_t dim,
                                     std::int64_t size) const;

  std::vector<Var> operands_;
  std::vector<TensorState> operand_states_;
  std::vector<TensorState> result_states_;
};

/// The results of an operator on all devices.
using Meaning = std::vector<Var> (*)(const OperatorContext&);

/// That of the type; of a type that is not built in, by its rule. nullptr where there is none
/// (can_execute has the reason).
Meaning find_meaning(const std::string& type, const Rule& rule);

}  // namespace meshplan

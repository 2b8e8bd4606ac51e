// SPDX-License-Identifier: Apache-2.0
// Executing one operator with real numbers on virtual devices, forward and backward.
//
// Every device gets its local blocks of the operands, in the states that the strategy asks for
// (OperatorInfo::operand_state), and ends up with its blocks of the results in theirs; from
// gradients of the results follow gradients of the operands. Nothing but the local blocks, the
// strategy and the collectives inside the operator is used, so a wrong rule gives wrong numbers.
//
//   auto run = OperatorExecution::forward(call, info, strategy, operands);
//   run->results()                          // [result][device]
//   auto gradients = run->backward(...);    // [operand][device]
//   run->collectives()                      // what was exchanged inside, both ways
//
// Sides of the states: an operand that is P/R takes any terms of its value and gets its whole
// gradient; R/P takes copies and gets terms of its gradient; S blocks, R/R copies, both ways. A
// result that is P/R gives terms and takes its whole gradient on every device.
//
// The unsharded run is the same on a mesh without axes: OperatorInfo(rule, {}).strategies()[0].
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "graph/operator_info.h"
#include "lib/result.h"
#include "lib/virtual_devices.h"
#include "plan/execution/device_tape.h"

namespace meshplan {

/// A tensor on all devices of a mesh, by position (row-major): the local block of each.
using DeviceTensors = std::vector<DenseTensor>;

/// What is executed.
struct OperatorCall {
  std::string type;
  Attributes attributes;
  std::vector<DType> operand_types;  ///< may be empty: all floating
  std::vector<DType> result_types;
  std::vector<bool> operand_gradients;  ///< operands whose gradient is wanted; [] means none
  std::uint64_t seed = 0;               ///< of random operators
};

/// The call that an operator of a graph is: gradients where the graph has them.
OperatorCall operator_call(const Graph& graph, OperatorId id, std::uint64_t seed = 0);

class OperatorExecution {
 public:
  /// Runs the forward. An operand without gradient may be in R/R where its state says R/P. `info`
  /// is kept. Errors: kUnsupported (a type that cannot be executed), kValue (a local block of the
  /// wrong shape, or a rule whose local shapes do not fit together).
  static Result<OperatorExecution> forward(
      OperatorCall call,
      std::shared_ptr<const OperatorInfo> info,
      const Strategy& strategy,
      const std::vector<std::optional<std::span<const DenseTensor>>>& operands);

  OperatorExecution(OperatorExecution&&) noexcept;
  OperatorExecution& operator=(OperatorExecution&&) noexcept;
  ~OperatorExecution();

  /// By result, then by device.
  const std::vector<DeviceTensors>& results() const;
  /// Hands result r over; results() has it no more.
  DeviceTensors take_result(std::size_t r);
  /// Gradients of the operands (nullopt where none is wanted) from those of the results (nullopt:
  /// zero). Errors: kValue (a block of the wrong shape).
  Result<std::vector<std::optional<DeviceTensors>>> backward(
      const std::vector<std::optional<DeviceTensors>>& gradients);
  /// The collectives so far, in order.
  const std::vector<InnerCall>& collectives() const;

 private:
  struct State;
  explicit OperatorExecution(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

/// Whether operators of this type and rule can be executed: built-in ones mean what their page
/// says, others some function that has their rule. Errors: kUnsupported with the reason.
Result<void> can_execute(const std::string& type, const Rule& rule);

}  // namespace meshplan

// SPDX-License-Identifier: Apache-2.0
// evaluate(): the price of a complete assignment, derived from nothing but the graph, the cluster
// and the choices. Every search's own objective must equal it to the last bit.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cost_model/cost_breakdown.h"
#include "cost_model/price_book.h"
#include "cost_model/step_trace.h"

namespace meshplan {

/// Every choice of a plan on one mesh.
struct Assignment {
  std::vector<Strategy> strategies;  ///< per operator
  std::vector<TensorState> values;   ///< per value of the DataFlow; kResult entries are not read
  std::vector<std::uint8_t>
      gathered;  ///< per transfer: 1 where the saved operand is gathered again
  std::vector<ParameterChoice> parameters;  ///< per tensor; only parameters are read
  friend bool operator==(const Assignment&, const Assignment&) = default;
};

/// What one tensor (of the workspace: one operator) takes of a kind of memory.
struct MemoryShare {
  MemoryKind kind = MemoryKind::kParameters;
  std::size_t owner = 0;  ///< TensorId or, of kWorkspace, OperatorId
  Bytes bytes = 0;
  friend bool operator==(const MemoryShare&, const MemoryShare&) = default;
};

struct Evaluation {
  Seconds objective;        ///< what the searches minimise, per step
  CostBreakdown breakdown;  ///< of the objective
  Seconds compute;          ///< per step, optimizer included
  Seconds communication;    ///< per step, hidden or not
  Seconds step_time;        ///< of the simulated step
  Bytes peak = 0;
  int peak_moment = 0;
  std::array<Bytes, kMemoryKinds> at_peak{};
  std::vector<MemoryShare> shares_at_peak;  ///< by kind and owner; add up to `peak`
  std::vector<Bytes> profile;               ///< total bytes per moment
  Bytes seed_formula = 0;
  double model_flops = 0;     ///< of the whole job per step, nothing recomputed
  double hardware_flops = 0;  ///< the same with what is recomputed
};

/// The state of a value under an assignment.
TensorState value_state(PriceBook& book, const Assignment& assignment, int value);

/// The state on the far side of a transfer.
TensorState far_state(PriceBook& book, const Assignment& assignment, const Transfer& transfer);

/// The state in which a parameter is used: by its only reader, or its own.
TensorState parameter_state(PriceBook& book, const Assignment& assignment, TensorId tensor);

Evaluation evaluate(PriceBook& book, const Assignment& assignment);

/// The walk behind Evaluation::step_time, event by event. Of the micro-batches that are drawn, and
/// `repeated` times of number 1, kCompute and kUpdate add up to Evaluation::compute and the times
/// of collectives to Evaluation::communication; the largest memory is the peak.
StepTrace trace_step(PriceBook& book, const Assignment& assignment);

/// "forward of X", "recomputation of X", "backward of X".
std::string moment_name(const Graph& graph, const DataFlow& flow, int moment);

}  // namespace meshplan

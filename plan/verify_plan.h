// SPDX-License-Identifier: Apache-2.0
// verify_plan: runs a plan with real numbers on virtual devices and compares it with the unsharded
// run.
//
// The graph is shrunk (plan/execution/shrink_graph.h): every operator, tensor and placement stays,
// sizes become as small as the plan's cuts allow. Parameters, inputs and optimizer states are drawn
// from a seed. Every device runs every operator on its own shards, every redistribution of the plan
// is executed step by step, values are brought back for the backward, gradients travel to their
// producers, are accumulated over micro-batches and reduced, the optimizer updates its shards, and
// parameters are gathered to where they rest. What each operator leaves, every gradient and every
// updated parameter is compared with a run on one device in double precision.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "lib/result.h"
#include "lib/units.h"
#include "plan/plan.h"

namespace meshplan {

struct VerifyOptions {
  std::uint64_t seed = 0;
  /// Numbers agree within this times the larger of 1 and the tensor's largest number: the two runs
  /// add in other orders, nothing else differs.
  double tolerance = 1e-8;
  /// A run that would take more is refused before it starts (by an estimate).
  Bytes memory_limit = Bytes{8} << 30;
};

/// The first thing that the plan computes otherwise than the graph says.
struct Divergence {
  std::string op;  ///< the operator that runs, or that the value was on its way from or to
  std::string tensor;
  std::string phase;  ///< "forward", "backward", "regather", "gradient", "update"
  std::string message;
  std::optional<std::int64_t> device;  ///< rank
  std::vector<std::int64_t> index;     ///< in the whole tensor
  double expected = 0;
  double found = 0;
};
/// One line.
std::string to_string(const Divergence& divergence);

struct VerifyReport {
  std::optional<Divergence> divergence;
  std::vector<std::int64_t> mesh_shape;  ///< as run: large axes are shrunk as well
  std::int64_t microbatches = 0;         ///< as run: at most two
  std::int64_t operators = 0;            ///< runs of operators, forward and backward
  std::int64_t redistributions = 0;      ///< executed
  std::int64_t collectives = 0;          ///< executed, those inside operators included
  std::int64_t comparisons = 0;          ///< tensors compared with the unsharded run
};

/// `graph`: of the plan's mode and micro-batches, as the search saw it. Errors: kConflict (the plan
/// is of another graph or not well formed; where: a pointer into the plan), kUnsupported (an
/// operator type that cannot be executed, or a run too large for the memory limit; what is named).
Result<VerifyReport> verify_plan(const Plan& plan,
                                 const Graph& graph,
                                 const VerifyOptions& options = {});

}  // namespace meshplan

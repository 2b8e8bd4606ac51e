// SPDX-License-Identifier: Apache-2.0
#include "plan/plan.h"

#include <tuple>

namespace meshplan {

const char* plan_status_name(PlanStatus status) {
  switch (status) {
    case PlanStatus::kOptimal:
      return "optimal";
    case PlanStatus::kFeasible:
      return "feasible";
    case PlanStatus::kInfeasible:
      return "infeasible";
  }
  return "feasible";
}

const char* phase_name(Phase phase) {
  switch (phase) {
    case Phase::kForward:
      return "forward";
    case Phase::kBackward:
      return "backward";
    case Phase::kRegather:
      return "regather";
    case Phase::kGradient:
      return "gradient";
    case Phase::kUpdate:
      return "update";
    case Phase::kRecompute:
      return "recompute";
  }
  return "forward";
}

const char* per_name(Per per) {
  switch (per) {
    case Per::kMicrobatch:
      return "microbatch";
    case Per::kStep:
      return "step";
  }
  return "microbatch";
}

const char* saved_name(Saved saved) {
  switch (saved) {
    case Saved::kKept:
      return "kept";
    case Saved::kGathered:
      return "gathered";
    case Saved::kComputed:
      return "computed";
  }
  return "kept";
}

bool stands_before(const PlanMemoryShare& a, const PlanMemoryShare& b) {
  return std::tie(b.bytes, a.name, a.kind) < std::tie(a.bytes, b.name, b.kind);
}

const std::vector<std::string>& plan_option_names() {
  static const std::vector<std::string> names = {
      "allow_uneven",
      "baseline",
      "constraints",
      "devices",
      "memory_limit",
      "mesh",
      "microbatches_auto",
      "pad_parameters",
      "policy",
      "prefer",
      "sapp",
      "time_limit",
      "tolerance",
      "top",
      "unknown_operators",
  };
  return names;
}

}  // namespace meshplan

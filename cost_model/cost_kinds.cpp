// SPDX-License-Identifier: Apache-2.0
#include "cost_model/cost_kinds.h"

namespace meshplan {
namespace {

const char* work_name(Work work) {
  switch (work) {
    case Work::kCompute:
      return "compute";
    case Work::kRecompute:
      return "recompute";
    case Work::kOptimizer:
      return "optimizer";
  }
  return "compute";
}

}  // namespace

const char* cost_kind_name(CostKind kind) {
  if (const auto* collective = std::get_if<Collective>(&kind)) return collective_name(*collective);
  return work_name(std::get<Work>(kind));
}

const char* memory_kind_name(MemoryKind kind) {
  switch (kind) {
    case MemoryKind::kParameters:
      return "parameters";
    case MemoryKind::kGradients:
      return "gradients";
    case MemoryKind::kOptimizer:
      return "optimizer";
    case MemoryKind::kActivations:
      return "activations";
    case MemoryKind::kGathered:
      return "gathered";
    case MemoryKind::kBuffers:
      return "buffers";
    case MemoryKind::kWorkspace:
      return "workspace";
  }
  return "parameters";
}

}  // namespace meshplan

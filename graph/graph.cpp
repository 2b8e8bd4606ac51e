// SPDX-License-Identifier: Apache-2.0
#include "graph/graph.h"

namespace meshplan {

const char* role_name(Role role) {
  switch (role) {
    case Role::kInput:
      return "input";
    case Role::kParameter:
      return "parameter";
    case Role::kConstant:
      return "constant";
    case Role::kState:
      return "state";
    case Role::kLoss:
      return "loss";
    case Role::kActivation:
      return "activation";
  }
  return "?";
}

std::int64_t element_count(const Shape& shape) {
  std::int64_t count = 1;
  for (const std::int64_t size : shape) count *= size;
  return count;
}

}  // namespace meshplan

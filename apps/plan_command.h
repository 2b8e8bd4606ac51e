// SPDX-License-Identifier: Apache-2.0
// What `meshplan plan` does, for commands that plan again.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "apps/command.h"
#include "plan/plan.h"

namespace meshplan {

/// The options of `meshplan plan` as they are given.
struct PlanCommandOptions {
  std::string graph;
  std::string cluster;
  std::optional<std::int64_t> devices;
  std::string mesh = "auto";
  std::string search = "auto";
  std::string policy;  ///< "": cost
  std::string sapp;    ///< "": exact
  std::string constraints;
  std::string mode = "training";
  std::string optimizer = "adamw";
  std::string microbatches = "1";
  std::string recompute = "none";
  std::string overlap;
  std::string memory_limit;
  std::string unknown_operators = "error";
  std::vector<std::string> baselines;
  std::int64_t top = 1;
  std::string time_limit;
  std::string prefer;
  std::string tolerance;
  std::string trace;
  std::string cost_graph_file;
  std::string cost_graph_format = "own";
  bool cost_graph_format_given = false;
};

/// The plans of `meshplan plan` with these options, the cheapest first; at least one. Otherwise the
/// exit code: what is wrong, or that nothing fits, has been reported.
std::variant<std::vector<Plan>, int> find_plans(const PlanCommandOptions& options,
                                                const CommonOptions& common);

}  // namespace meshplan

// SPDX-License-Identifier: Apache-2.0
// The options of searches, for every command that searches: from what the user wrote to what
// dp_search takes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "apps/command.h"
#include "cost_model/cluster.h"
#include "graph/graph_document.h"
#include "lib/result.h"

namespace meshplan {

/// Where the texts of the options that say what a step is go; their values are the defaults.
struct StepOptionTexts {
  std::string& mode;
  std::string& optimizer;
  std::string& microbatches;
  std::string& recompute;
  std::string& overlap;
};

/// --mode, --optimizer, --microbatches, --recompute, --overlap. The texts outlive the run.
void add_step_options(CLI::App& app, StepOptionTexts options);

/// --overlap: "gradient=0.8,gather=0.5" over the cluster's fractions. Errors: kUsage.
Result<void> parse_overlap(const std::string& text, Overlap& overlap);

/// --microbatches: "4" or "auto", the powers of two that divide the graph's batch; ascending.
/// Errors: kUsage.
Result<std::vector<std::int64_t>> parse_microbatches(const std::string& text,
                                                     const GraphDocument& document);

/// kValue, at the graph's /operators, where there are none to place.
Result<void> check_has_operators(const Graph& graph, const std::string& file);

/// --threads; 0: all cores.
unsigned threads_of(const CommonOptions& common);

}  // namespace meshplan

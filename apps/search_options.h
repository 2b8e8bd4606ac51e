// SPDX-License-Identifier: Apache-2.0
// The options of searches, for every command that searches: from what the user wrote to what
// dp_search takes.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
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
  std::string& unknown_operators;
};

/// --mode, --optimizer, --microbatches, --recompute, --overlap, --unknown-operators. The texts
/// outlive the run.
void add_step_options(CLI::App& app, StepOptionTexts options);

/// The fractions of --overlap that are given; the others are the cluster's.
using OverlapChanges = std::vector<std::pair<double Overlap::*, double>>;

/// --overlap: "gradient=0.8,gather=0.5". Errors: kUsage.
Result<OverlapChanges> parse_overlap(const std::string& text);
void apply(const OverlapChanges& changes, Overlap& overlap);

/// --microbatches: "4" or "auto", the powers of two that divide the graph's batch; ascending.
/// Errors: kUsage.
Result<std::vector<std::int64_t>> parse_microbatches(const std::string& text,
                                                     const GraphDocument& document);

/// kValue, at the graph's /operators, where there are none to place.
Result<void> check_has_operators(const Graph& graph, const std::string& file);

/// --threads; 0: all cores.
unsigned threads_of(const CommonOptions& common);

}  // namespace meshplan

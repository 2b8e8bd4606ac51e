// SPDX-License-Identifier: Apache-2.0
// Textbook plans as restrictions of the strategy space, priced by the same search and evaluator.
//
// ddp, zero1, zero2, fsdp: every operator shards the batch over all devices; parameters rest whole,
// with optimizer state, with state and gradient, or completely cut. megatron: over the first mesh
// axis the batch, over the second every product with a weight shards the weight, and what lies
// between blocks (normalisations, residual additions) is replicated; megatron-sp: sharded over the
// sequence. Optimizer state is cut over the first axis where that is possible, as is usual.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "search/dp_search.h"

namespace meshplan {

/// What a textbook plan does along one mesh axis.
enum class AxisRole : std::uint8_t {
  kData,            ///< every operator shards the batch wherever it divides
  kContext,         ///< the sequence, attention in its ring form or with gathered keys and values
  kTensor,          ///< every product with a weight shards the weight, between blocks replicated
  kTensorSequence,  ///< the same, between blocks sharded over the sequence
};

/// One textbook plan: a role per mesh axis, and how parameters rest along data and context axes
/// (whole where that cut does not exist).
struct TextbookPlan {
  std::vector<AxisRole> axes;
  ParameterAction rest = ParameterAction::kNone;
};

/// What the plan leaves open. The book must outlive the result.
Restrictions restrict_to(const TextbookPlan& plan, PriceBook& book);

struct TextbookResult {
  DpResult found;
  bool fits = true;  ///< within the memory limit
};

/// The cheapest plan of the pattern on these meshes (of as many axes as it has roles), within the
/// memory limit if there is one, else without a limit. Errors: those of dp_search.
Result<TextbookResult> search_textbook(const TextbookPlan& plan,
                                       const Graph& graph,
                                       const Cluster& cluster,
                                       const std::vector<MeshShape>& meshes,
                                       const DpOptions& options);

/// "ddp", "zero1", "zero2", "fsdp", "megatron", "megatron-sp".
std::span<const std::string> baseline_names();

struct BaselinePrice {
  std::string name;
  MeshShape mesh;
  Seconds objective;
  Seconds step_time;
  Bytes peak = 0;
  bool fits = true;  ///< within the memory limit
};

/// The cheapest plan of the pattern, within the memory limit if there is one, else without a limit.
/// `meshes` are those tried for the two-axis patterns; the others use one axis. Errors:
/// kUnsupported where the pattern cannot be applied (the batch does not divide, no mesh of two
/// axes).
Result<BaselinePrice> price_baseline(const std::string& name,
                                     const Graph& graph,
                                     const Cluster& cluster,
                                     const std::vector<MeshShape>& meshes,
                                     const DpOptions& options);

}  // namespace meshplan

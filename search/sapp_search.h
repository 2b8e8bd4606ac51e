// SPDX-License-Identifier: Apache-2.0
// sapp_search: a good plan soon, by recursive partitioning of the devices (sapp_search.cpp says
// how).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "search/dp_search.h"

namespace meshplan {

enum class SappRounds : std::uint8_t {
  kExact,   ///< each round is minimised over all operators at once
  kGreedy,  ///< each operator decides in its turn, the heavy ones first
};

struct SappOptions {
  DpOptions search;  ///< prices, limit, threads, stop
  SappRounds rounds = SappRounds::kExact;
  /// The mesh, if it is given: one round per axis.
  std::optional<MeshShape> mesh;
  /// The first plan within the limit is enough: partitions are not improved, and no better price
  /// of memory is looked for than one that is high enough, nor a better job than one with a plan.
  bool first_answer = false;
};

/// What SAPP did.
struct SappReport {
  std::size_t operators = 0;
  std::map<std::string, int> eliminated;  ///< type -> operators that follow another one
  std::size_t searched = 0;               ///< operators left when equal layers are treated once
  std::vector<std::int64_t> rounds;       ///< devices over which each round divides
  int partitions = 0;                     ///< of the whole graph: one, and one per price of memory
  int solves = 0;                         ///< one-axis problems
};

struct SappResult {
  DpResult found;  ///< without a lower bound
  SappReport report;
};

using SappOutcome = std::variant<SappResult, NoPlan>;

/// The best plan of all jobs that recursive partitioning finds; NoPlan proves nothing. Graphs and
/// cluster must outlive the result. The same answer for any number of threads. With `stop`, what is
/// found is not improved any further. Errors: those of PriceBook::make and PlanProblem::make;
/// kOverflow for a step longer than kLongestStep.
Result<SappOutcome> sapp_search(const std::vector<DpJob>& jobs,
                                const Cluster& cluster,
                                const SappOptions& options,
                                const RestrictionsOf& restrictions = {});

/// The same for one job of options.search.prices.microbatches.
Result<SappOutcome> sapp_search(const Graph& graph,
                                const Cluster& cluster,
                                const SappOptions& options,
                                const RestrictionsOf& restrictions = {});

/// The prime factors of the device count, outermost level first, the large ones of a level first.
std::vector<std::int64_t> sapp_rounds(const Cluster& cluster);

/// The cluster of one device out of each part into which the first rounds divide the devices:
/// `devices` is the product of these rounds.
Cluster outer_part(const Cluster& cluster, std::int64_t devices);

/// The variables in the order in which they decide: operators by what they cost undivided, times
/// how many they stand for, heavy first; copies after what they are copies of. Followers are left
/// out.
std::vector<int> sort_by_weight(const PlanProblem& problem,
                                const std::vector<std::int64_t>& weights,
                                const std::vector<Follower>& followers);

}  // namespace meshplan

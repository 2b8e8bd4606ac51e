// SPDX-License-Identifier: Apache-2.0
#include "search/sapp_then_exact.h"

#include <utility>

#include "search/top_plans.h"

namespace meshplan {
namespace {

std::vector<std::string> notes_of(const SappReport& report) {
  std::size_t follow = 0;
  std::string types;
  for (const auto& [type, count] : report.eliminated) {
    follow += static_cast<std::size_t>(count);
    types += (types.empty() ? "" : ", ") + type + " " + std::to_string(count);
  }
  std::string rounds;
  for (const std::int64_t devices : report.rounds)
    rounds += (rounds.empty() ? "" : " x ") + std::to_string(devices);
  std::vector<std::string> notes;
  notes.push_back("SAPP: " + std::to_string(follow) + " of " + std::to_string(report.operators) +
                  " operators follow the one before them" +
                  (types.empty() ? "" : " (" + types + ")") +
                  "; of the others, equal layers taken once, " + std::to_string(report.searched) +
                  " were searched");
  notes.push_back("SAPP: rounds over " + (rounds.empty() ? "1" : rounds) + " devices; " +
                  std::to_string(report.solves) + " divisions along one axis tried");
  if (report.partitions > 1) {
    notes.push_back("SAPP: the first division of the devices exceeds the memory limit; divided " +
                    std::to_string(report.partitions - 1) + " times more with a price of memory");
  }
  return notes;
}

}  // namespace

Result<SappAnswer> sapp_or_exact(std::size_t count,
                                 const std::vector<DpJob>& jobs,
                                 const Cluster& cluster,
                                 const std::vector<MeshShape>& meshes,
                                 const SappOptions& options,
                                 const RestrictionsOf& restrictions) {
  auto outcome = sapp_search(jobs, cluster, options, restrictions);
  if (!outcome) return fail(outcome.error());
  if (auto* const result = std::get_if<SappResult>(&*outcome)) {
    SappAnswer answer{std::vector<DpResult>{}, notes_of(result->report)};
    std::get<std::vector<DpResult>>(answer.found).push_back(std::move(result->found));
    return answer;
  }
  auto found = top_plans(count, jobs, cluster, meshes, options.search, restrictions);
  if (!found) return fail(found.error());
  return SappAnswer{std::move(*found),
                    {"SAPP found no plan within the memory limit; exact search did"}};
}

Result<SappAnswer> sapp_then_exact(std::size_t count,
                                   const std::vector<DpJob>& jobs,
                                   const Cluster& cluster,
                                   const std::vector<MeshShape>& meshes,
                                   const SappOptions& options,
                                   const RestrictionsOf& restrictions) {
  // what is wrong, and whether anything fits, exact search says
  SappOptions soon = options;
  soon.first_answer = true;
  auto outcome = sapp_search(jobs, cluster, soon, restrictions);
  SappResult* const first = outcome ? std::get_if<SappResult>(&*outcome) : nullptr;
  DpOptions exact = options.search;
  if (first != nullptr && count == 1) exact.first = &first->found;
  auto found = top_plans(count, jobs, cluster, meshes, exact, restrictions);
  if (!found) return fail(found.error());
  SappAnswer answer{std::move(*found), {}};
  if (first == nullptr) return answer;
  if (const NoPlan* none = std::get_if<NoPlan>(&answer.found); none != nullptr && none->stopped) {
    first->found.stopped = true;
    answer.found.emplace<std::vector<DpResult>>().push_back(std::move(first->found));
  }
  const auto* const plans = std::get_if<std::vector<DpResult>>(&answer.found);
  if (plans != nullptr && plans->front().found_by == "sapp") answer.notes = notes_of(first->report);
  return answer;
}

}  // namespace meshplan

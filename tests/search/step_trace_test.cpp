// SPDX-License-Identifier: Apache-2.0
// The trace of a step adds up to the figures of its evaluation.
#include <algorithm>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "search/dp_search.h"
#include "support/models.h"

namespace meshplan::step_trace_test {
namespace {

using Kind = StepEvent::Kind;

struct Settings {
  std::int64_t microbatches = 1;
  Overlap overlap;
  bool recompute = false;
  std::int64_t percent = 100;  ///< of the memory that the best plan takes
};

DpResult best_plan(const Graph& graph, const Cluster& cluster, const Settings& settings) {
  DpOptions options;
  options.prices.overlap = settings.overlap;
  options.prices.microbatches = settings.microbatches;
  if (settings.recompute)
    options.prices.recomputation = *find_recomputation(graph, RecomputeOption::kFull);
  options.memory_limit = std::numeric_limits<Bytes>::max();
  const std::vector<MeshShape> meshes = {{{2, 4}, {"a", "b"}}, {{8}, {"a"}}};
  const auto search = [&] {
    auto outcome = dp_search(graph, cluster, meshes, options);
    REQUIRE(outcome.has_value());
    REQUIRE(std::holds_alternative<DpResult>(*outcome));
    return std::get<DpResult>(std::move(*outcome));
  };
  DpResult found = search();
  if (settings.percent == 100) return found;
  options.memory_limit = found.evaluation.peak / 100 * settings.percent;
  return search();
}

/// No two events of a track at the same time.
void check_track(std::vector<StepEvent> events) {
  std::stable_sort(events.begin(), events.end(), [](const StepEvent& a, const StepEvent& b) {
    return a.start < b.start;
  });
  for (std::size_t i = 1; i < events.size(); ++i)
    CHECK(events[i - 1].start + events[i - 1].duration <= events[i].start);
}

void check_trace(DpResult& found, const Settings& settings) {
  const StepTrace trace = trace_step(*found.book, found.assignment);
  const Evaluation& evaluation = found.evaluation;
  CHECK(trace.end == evaluation.step_time);
  CHECK(trace.repeated == std::max<std::int64_t>(0, settings.microbatches - 3));
  Seconds compute;
  Seconds communication;
  std::map<bool, std::vector<StepEvent>> tracks;
  for (const StepEvent& event : trace.events) {
    CHECK(event.start.value >= 0);
    CHECK(event.start + event.duration <= trace.end);
    CHECK(event.microbatch < settings.microbatches);
    const bool of_step = !event.moment.has_value();
    const auto times =
        static_cast<double>(event.microbatch == 1 && !of_step ? 1 + trace.repeated : 1);
    if (event.kind == Kind::kCompute || event.kind == Kind::kUpdate) compute += times * event.time;
    if (event.collective) communication += times * event.time;
    tracks[event.kind == Kind::kHidden].push_back(event);
  }
  CHECK(compute == evaluation.compute);
  CHECK(communication == evaluation.communication);
  check_track(tracks[true]);
  // rings run beside their operator; the others take turns
  std::vector<StepEvent> turns;
  for (const StepEvent& event : tracks[false]) {
    const bool ring = event.collective == Collective::kPermute && !event.tensor;
    if (!ring && event.kind != Kind::kSlowdown) turns.push_back(event);
  }
  check_track(turns);
  Bytes peak = 0;
  for (std::size_t i = 0; i < trace.memory.size(); ++i) {
    peak = std::max(peak, trace.memory[i].bytes);
    if (i > 0) CHECK(trace.memory[i - 1].start <= trace.memory[i].start);
  }
  CHECK(peak == evaluation.peak);
}

TEST_CASE("a trace adds up to the step time, the compute, the communication and the peak") {
  test::LlamaSizes sizes;
  sizes.hidden = 256;
  sizes.intermediate = 688;
  sizes.heads = 4;
  sizes.kv_heads = 4;
  const Graph graph = test::llama_graph(test::llama_config(sizes), 8, 512);
  const Cluster cluster = test::shipped_cluster("dgx-a100-80g", 8);
  const Overlap none{0, 0, 0, 0, 0};
  const Overlap all{1, 1, 1, 0, 0};
  for (const std::int64_t microbatches : {1, 2, 3, 7}) {
    for (const Overlap& overlap : {none, cluster.efficiency.overlap, all}) {
      for (const std::int64_t percent : {100, 90}) {
        if (percent != 100 && !(overlap == cluster.efficiency.overlap)) continue;
        const Settings settings{microbatches, overlap, percent == 90 && microbatches == 2, percent};
        INFO(microbatches << " micro-batches, overlap " << overlap.gradient << ", " << percent
                          << " % of the memory");
        DpResult found = best_plan(graph, cluster, settings);
        check_trace(found, settings);
      }
    }
  }
}

TEST_CASE("the trace of a forward pass alone adds up as well") {
  const Graph graph = test::llama_graph(test::llama_config({}), 8, 64, std::nullopt, false);
  const Cluster cluster = test::shipped_cluster("dgx-h100", 8);
  const Settings settings{1, cluster.efficiency.overlap, false, 100};
  DpResult found = best_plan(graph, cluster, settings);
  check_trace(found, settings);
}

}  // namespace
}  // namespace meshplan::step_trace_test

// SPDX-License-Identifier: Apache-2.0
// The simulated step, event by event: what the step time of a plan is made of.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "cost_model/timeline.h"
#include "graph/graph.h"
#include "lib/collective.h"
#include "lib/units.h"

namespace meshplan {

/// Something that takes time on one device.
struct StepEvent {
  enum class Kind : std::uint8_t {
    kCompute,   ///< the moment's operator
    kUpdate,    ///< the optimizer's work on `tensor`
    kBlocking,  ///< a collective that the computation waits for or, in rings, runs beside
    kHidden,    ///< a collective on the communication track, beside later computation
    kSlowdown,  ///< what hidden communication takes from the computation
    kRepeat,    ///< micro-batches like the one before, `count` of them
  };
  Kind kind = Kind::kCompute;
  std::optional<Collective> collective;
  AxisSet axes = 0;
  std::optional<TensorId> tensor;  ///< what is moved or updated; none inside an operator
  std::optional<Moment> moment;    ///< when; none at the end of the step
  std::int64_t microbatch = 0;
  std::int64_t count = 1;
  Seconds start;
  Seconds duration;  ///< as far as the step takes it
  Seconds time;      ///< of the work itself; more than the duration where the rest is hidden
};

/// The first two micro-batches and the last one are drawn; those between are one kRepeat.
struct StepTrace {
  struct Memory {
    Seconds start;
    Bytes bytes = 0;
  };
  std::vector<StepEvent> events;  ///< in the order in which they were issued
  std::vector<Memory> memory;     ///< from each start on
  std::int64_t repeated = 0;      ///< micro-batches that are like number 1
  Seconds end;                    ///< the step time
};

/// Draws the trace while the step is walked.
class StepRecorder {
 public:
  /// Where a moment's collectives belong.
  enum class When : std::uint8_t { kBlocking, kGather, kRing, kAfter, kAfterLast };

  explicit StepRecorder(const Timeline& timeline)
      : timeline_(timeline), collectives_(static_cast<std::size_t>(timeline.size())) {}

  // what there is
  void add(int moment, When when, const StepEvent& event) {
    collectives_[static_cast<std::size_t>(moment)].push_back({when, event});
  }
  void add_to_tail(const StepEvent& event) { tail_.push_back(event); }

  // what happens, in the order of the walk
  void begin(std::int64_t microbatch) { microbatch_ = microbatch; }
  void memory(Seconds start, Bytes bytes) { trace_.memory.push_back({start + offset_, bytes}); }
  void compute(std::size_t moment, Seconds start, Seconds duration);
  void slowdown(std::size_t moment, Seconds start, Seconds duration);
  /// The moment's collectives of one sort, one after the other.
  void collectives(std::size_t moment, When when, Seconds start, bool hidden);
  /// `count` micro-batches, each as long as the last one; what follows comes so much later.
  void repeat(Seconds start, std::int64_t count, Seconds each);
  /// Updates, then what follows them; ends the trace.
  StepTrace finish(Seconds start, Seconds end);

 private:
  struct Entry {
    When when;
    StepEvent event;
  };

  void draw(StepEvent event, std::optional<Moment> moment, Seconds start, Seconds duration);

  const Timeline& timeline_;
  std::vector<std::vector<Entry>> collectives_;  ///< per moment
  std::vector<StepEvent> tail_;
  std::int64_t microbatch_ = 0;
  Seconds offset_;
  StepTrace trace_;
};

}  // namespace meshplan

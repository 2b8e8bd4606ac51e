// SPDX-License-Identifier: Apache-2.0
#include "cost_model/step_trace.h"

#include <utility>

namespace meshplan {

void StepRecorder::draw(StepEvent event,
                        std::optional<Moment> moment,
                        Seconds start,
                        Seconds duration) {
  if (duration.value == 0) return;
  event.moment = moment;
  event.microbatch = microbatch_;
  event.start = start + offset_;
  event.duration = duration;
  trace_.events.push_back(event);
}

void StepRecorder::compute(std::size_t moment, Seconds start, Seconds duration) {
  StepEvent event;
  event.time = duration;
  draw(event, timeline_.at(static_cast<int>(moment)), start, duration);
}

void StepRecorder::slowdown(std::size_t moment, Seconds start, Seconds duration) {
  StepEvent event;
  event.kind = StepEvent::Kind::kSlowdown;
  event.time = duration;
  draw(event, timeline_.at(static_cast<int>(moment)), start, duration);
}

void StepRecorder::collectives(std::size_t moment, When when, Seconds start, bool hidden) {
  for (const Entry& entry : collectives_[moment]) {
    if (entry.when != when) continue;
    StepEvent event = entry.event;
    event.kind = hidden ? StepEvent::Kind::kHidden : StepEvent::Kind::kBlocking;
    draw(event, timeline_.at(static_cast<int>(moment)), start, event.time);
    start += event.time;
  }
}

void StepRecorder::repeat(Seconds start, std::int64_t count, Seconds each) {
  if (count == 0) return;
  StepEvent event;
  event.kind = StepEvent::Kind::kRepeat;
  event.count = count;
  const Seconds all = static_cast<double>(count) * each;
  event.time = all;
  draw(event, std::nullopt, start, all);
  trace_.repeated = count;
  offset_ += all;
}

StepTrace StepRecorder::finish(Seconds start, Seconds end) {
  offset_ = {};
  for (const bool updates : {true, false}) {
    for (const StepEvent& event : tail_) {
      if ((event.kind == StepEvent::Kind::kUpdate) != updates) continue;
      draw(event, std::nullopt, start, event.duration);
      start += event.duration;
    }
  }
  trace_.end = end;
  return std::move(trace_);
}

}  // namespace meshplan

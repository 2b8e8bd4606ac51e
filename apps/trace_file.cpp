// SPDX-License-Identifier: Apache-2.0
#include "apps/trace_file.h"

#include <map>
#include <utility>
#include <vector>

#include "graph/json.h"

namespace meshplan {
namespace {

/// Number and name of the track that an event is on; 0 is the computation.
class StepTracks {
 public:
  explicit StepTracks(const PriceBook& book) : book_(book) {}

  int of(const StepEvent& event) {
    if (!event.collective) return 0;
    const int level =
        uses_network(*event.collective) ? book_.collectives().level(event.axes) : kLocal;
    const bool hidden = event.kind == StepEvent::Kind::kHidden;
    const int track = 1 + 2 * (level + 1) + (hidden ? 1 : 0);
    const std::string where =
        level < 0 ? "local moves" : book_.cluster().levels[static_cast<std::size_t>(level)].name;
    names_.try_emplace(track, hidden ? where + ", beside the computation" : where);
    return track;
  }
  const std::map<int, std::string>& names() const { return names_; }

 private:
  static constexpr int kLocal = -1;
  const PriceBook& book_;
  std::map<int, std::string> names_{{0, "computation"}};
};

std::string joined_axes(AxisSet axes, const Plan& plan) {
  std::string text;
  for (std::size_t axis = 0; axis < plan.mesh.axes.size(); ++axis) {
    if ((axes >> axis & 1U) != 0) text += (text.empty() ? "" : ",") + plan.mesh.axes[axis];
  }
  return text;
}

std::string event_name(const StepEvent& event, const Graph& graph, const Plan& plan) {
  const std::string at = event.moment ? std::string(pass_name(event.moment->pass)) + " of " +
                                            graph.op(event.moment->op).name
                                      : "";
  const std::string tensor = event.tensor ? graph.tensor(*event.tensor).name : at;
  switch (event.kind) {
    case StepEvent::Kind::kCompute:
      return at;
    case StepEvent::Kind::kUpdate:
      return "update of " + tensor;
    case StepEvent::Kind::kBlocking:
    case StepEvent::Kind::kHidden:
      return std::string(collective_name(*event.collective)) + "(" + joined_axes(event.axes, plan) +
             ") " + tensor;
    case StepEvent::Kind::kSlowdown:
      return "slowed down by communication";
    case StepEvent::Kind::kRepeat:
      return std::to_string(event.count) + " more micro-batches like the one before";
  }
  return "";
}

const char* event_category(StepEvent::Kind kind) {
  switch (kind) {
    case StepEvent::Kind::kCompute:
      return "compute";
    case StepEvent::Kind::kUpdate:
      return "update";
    case StepEvent::Kind::kBlocking:
      return "communication";
    case StepEvent::Kind::kHidden:
      return "hidden communication";
    case StepEvent::Kind::kSlowdown:
      return "slowdown";
    case StepEvent::Kind::kRepeat:
      return "repeat";
  }
  return "";
}

double microseconds(Seconds time) { return time.value * 1e6; }

void write_track(JsonWriter& writer, int track, const std::string& name) {
  for (const bool order : {false, true}) {
    writer.begin_object(JsonWriter::kOneLine);
    writer.member("ph", "M");
    writer.member("pid", 0);
    writer.member("tid", track);
    writer.member("name", order ? "thread_sort_index" : "thread_name");
    writer.key("args");
    writer.begin_object(JsonWriter::kOneLine);
    if (order) {
      writer.member("sort_index", track);
    } else {
      writer.member("name", name);
    }
    writer.end_object();
    writer.end_object();
  }
}

}  // namespace

std::string write_step_trace(const StepTrace& trace, PriceBook& book, const Plan& plan) {
  const Graph& graph = book.graph();
  JsonWriter writer;
  writer.begin_object();
  writer.member("displayTimeUnit", "ms");
  writer.key("otherData");
  writer.begin_object(JsonWriter::kOneLine);
  writer.member("graph", plan.graph.name);
  writer.member("cluster", plan.cluster.name);
  writer.member("devices", plan.cluster.devices);
  writer.member("microbatches", plan.options.microbatches);
  writer.member("repeated_microbatches", trace.repeated);
  writer.member("step_time", trace.end.value);
  writer.member("peak_memory", plan.memory.peak);
  writer.end_object();
  writer.key("traceEvents");
  writer.begin_array();
  StepTracks tracks(book);
  for (const StepEvent& event : trace.events) {
    writer.begin_object(JsonWriter::kOneLine);
    writer.member("ph", "X");
    writer.member("pid", 0);
    writer.member("tid", tracks.of(event));
    writer.member("ts", microseconds(event.start));
    writer.member("dur", microseconds(event.duration));
    writer.member("cat", event_category(event.kind));
    writer.member("name", event_name(event, graph, plan));
    writer.key("args");
    writer.begin_object(JsonWriter::kOneLine);
    writer.member("seconds", event.time.value);
    writer.member("microbatch", event.microbatch);
    if (event.collective) {
      writer.member("collective", collective_name(*event.collective));
      writer.member("axes", joined_axes(event.axes, plan));
    }
    if (event.tensor) writer.member("tensor", graph.tensor(*event.tensor).name);
    if (event.moment) {
      writer.member("operator", graph.op(event.moment->op).name);
      writer.member("pass", pass_name(event.moment->pass));
    }
    if (event.kind == StepEvent::Kind::kRepeat) writer.member("count", event.count);
    writer.end_object();
    writer.end_object();
  }
  for (const StepTrace::Memory& memory : trace.memory) {
    writer.begin_object(JsonWriter::kOneLine);
    writer.member("ph", "C");
    writer.member("pid", 0);
    writer.member("ts", microseconds(memory.start));
    writer.member("name", "memory");
    writer.key("args");
    writer.begin_object(JsonWriter::kOneLine);
    writer.member("bytes", memory.bytes);
    writer.end_object();
    writer.end_object();
  }
  writer.begin_object(JsonWriter::kOneLine);
  writer.member("ph", "M");
  writer.member("pid", 0);
  writer.member("name", "process_name");
  writer.key("args");
  writer.begin_object(JsonWriter::kOneLine);
  writer.member("name", "one device, one step of " + plan.graph.name);
  writer.end_object();
  writer.end_object();
  for (const auto& [track, name] : tracks.names()) write_track(writer, track, name);
  writer.end_array();
  writer.end_object();
  return std::move(writer).text();
}

}  // namespace meshplan

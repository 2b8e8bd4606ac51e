// SPDX-License-Identifier: Apache-2.0
// plan --trace: a file that trace viewers read and that says what the plan says.
#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "support/catch.h"
#include "support/run_program.h"

namespace meshplan::plan_trace_test {
namespace {

using nlohmann::json;
using test::ProgramRun;
using test::run_program;
using test::TemporaryFolder;

const std::string kGraph = std::string(MESHPLAN_SOURCE_DIR) + "/examples/mlp/graph.json";

ProgramRun plan(const std::vector<std::string>& more) {
  std::vector<std::string> words = {
      "plan", kGraph, "--cluster", "dgx-a100-80g", "--devices", "16", "--microbatches", "8"};
  words.insert(words.end(), more.begin(), more.end());
  return run_program(words);
}

TEST_CASE("a trace has the plan's step time, work, communication and peak memory") {
  const TemporaryFolder folder;
  const std::string plan_file = folder.file("plan.json");
  const std::string trace_file = folder.file("trace.json");
  const ProgramRun run =
      plan({"--mesh", "a=2,b=8", "--top", "2", "-o", plan_file, "--trace", trace_file});
  INFO(run.err);
  REQUIRE(run.exit_code == 0);
  const json made = json::parse(test::file_text(plan_file));
  const json trace = json::parse(test::file_text(trace_file));
  CHECK(trace["otherData"]["step_time"] == made["cost"]["step_time"]);
  CHECK(trace["otherData"]["repeated_microbatches"] == 5);
  double compute = 0;
  double communication = 0;
  double end = 0;
  std::int64_t peak = 0;
  std::set<int> used;
  std::set<int> named;
  for (const json& event : trace["traceEvents"]) {
    if (event["ph"] == "M") {
      if (event["name"] == "thread_name") named.insert(event["tid"].get<int>());
      continue;
    }
    if (event["ph"] == "C") {
      CHECK(event["name"] == "memory");
      peak = std::max(peak, event["args"]["bytes"].get<std::int64_t>());
      continue;
    }
    REQUIRE(event["ph"] == "X");
    used.insert(event["tid"].get<int>());
    end = std::max(end, event["ts"].get<double>() + event["dur"].get<double>());
    const json& args = event["args"];
    const bool repeats = args["microbatch"] == 1 && args.contains("operator");
    const double seconds = args["seconds"].get<double>() * (repeats ? 6 : 1);
    const std::string kind = event["cat"];
    if (kind == "compute" || kind == "update") compute += seconds;
    if (args.contains("collective")) {
      communication += seconds;
      CHECK(event["tid"] != 0);
      CHECK(event["name"].get<std::string>().find(args["collective"].get<std::string>() + "(") ==
            0);
    }
  }
  used.insert(0);
  CHECK(used == named);
  CHECK(end == Approx(made["cost"]["step_time"].get<double>() * 1e6));
  CHECK(compute == Approx(made["cost"]["compute_time"].get<double>()));
  CHECK(communication == Approx(made["cost"]["communication_time"].get<double>()));
  CHECK(peak == made["memory"]["peak"].get<std::int64_t>());

  const ProgramRun alone = plan({"--mesh", "a=2,b=8", "--trace", "-"});
  CHECK(alone.out == test::file_text(trace_file));
}

TEST_CASE("a trace cannot be written where something else is") {
  const TemporaryFolder folder;
  const std::string file = folder.file("x.json");
  const auto refused = [&](const std::vector<std::string>& more, const std::string& message) {
    const ProgramRun run = plan(more);
    CHECK(run.exit_code == 2);
    CHECK(run.err.find(message) != std::string::npos);
    CHECK(run.out.empty());
  };
  refused({"--trace", file, "-o", file}, "--trace: writes to the same place as -o");
  refused({"--trace", file, "--mesh", "a=16", "--dump-cost-graph", file},
          "--trace: writes to the same place as --dump-cost-graph");
  // the same place by another name, though nothing is there yet
  refused({"--trace", (folder.path() / "." / "x.json").string(), "-o", file},
          "--trace: writes to the same place as -o");
  refused({"--mesh", "a=16", "--dump-cost-graph", file, "-o", file},
          "--dump-cost-graph: writes to the same place as -o");
  refused({"--trace", "-", "--format", "json"}, "--trace: standard output has the plan");
  refused({"--trace", ""}, "expected a value, found an empty text");
  const ProgramRun nowhere = plan({"--mesh", "a=16", "--trace", folder.file("no/x.json")});
  CHECK(nowhere.exit_code == 3);
  CHECK(nowhere.err.find("x.json: cannot create") != std::string::npos);
}

}  // namespace
}  // namespace meshplan::plan_trace_test

// SPDX-License-Identifier: Apache-2.0
// export through the program: what it writes is read, planned and verified again.
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "support/catch.h"
#include "support/models.h"
#include "support/run_program.h"

namespace meshplan::export_command_test {
namespace {

using nlohmann::json;
using test::file_text;
using test::ProgramRun;
using test::run_program;
using test::TemporaryFolder;

/// A small Llama and the plan that the options give.
struct Job {
  TemporaryFolder folder;
  std::string graph = folder.file("graph.json");
  std::string plan = folder.file("plan.json");
  std::vector<std::string> options;

  explicit Job(std::vector<std::string> given) : options(std::move(given)) {
    const std::string config = folder.write("config.json", test::llama_config({}));
    run({"import", "hf", config, "--batch", "8", "--seq", "64", "-o", graph}, 0);
    make_plan(graph, plan);
  }
  void make_plan(const std::string& from,
                 const std::string& to,
                 std::vector<std::string> more = {}) {
    std::vector<std::string> arguments = {
        "plan", from, "--cluster", "dgx-a100-80g", "--devices", "8", "-o", to};
    arguments.insert(arguments.end(), options.begin(), options.end());
    arguments.insert(arguments.end(), more.begin(), more.end());
    run(arguments, 0);
  }
  ProgramRun run(const std::vector<std::string>& arguments, int code) const {
    ProgramRun run = run_program(arguments);
    INFO(arguments[0] << ": " << run.err);
    REQUIRE(run.exit_code == code);
    return run;
  }
  std::string export_graph() {
    const std::string file = folder.file("exported.json");
    run({"export", plan, "--graph", graph, "--to", "graph", "-o", file}, 0);
    return file;
  }
};

json placements_of(const std::string& plan) {
  const json document = json::parse(file_text(plan));
  json found;
  for (const auto& [name, tensor] : document["tensors"].items()) found[name] = tensor["placements"];
  for (const json& op : document["operators"])
    found[op["name"].get<std::string>()] = {op["in_placements"], op["out_placements"]};
  return found;
}

TEST_CASE("an exported graph plans to the same plan, checks and verifies") {
  for (const std::vector<std::string>& options : {std::vector<std::string>{},
                                                  {"--mesh", "dp=2,tp=4", "--microbatches", "2"},
                                                  {"--mode", "inference", "--mesh", "tp=8"}}) {
    Job job(options);
    const std::string exported = job.export_graph();
    const std::string again = job.folder.file("again.json");
    // the mesh comes from the graph
    std::vector<std::string> kept;
    for (std::size_t i = 0; i < options.size(); i += 2) {
      if (options[i] != "--mesh") kept.insert(kept.end(), {options[i], options[i + 1]});
    }
    job.options = kept;
    job.make_plan(exported, again);
    CHECK(placements_of(again) == placements_of(job.plan));
    const json before = json::parse(file_text(job.plan));
    const json after = json::parse(file_text(again));
    CHECK(after["result"]["objective"] == before["result"]["objective"]);
    CHECK(after["graph"] == before["graph"]);
    CHECK(after["redistributions"] == before["redistributions"]);
    for (const std::string& plan : {job.plan, again}) {
      job.run({"check", plan, "--graph", exported, "--cluster", "dgx-a100-80g"}, 0);
      job.run({"verify", plan, "--graph", exported}, 0);
    }
  }
}

TEST_CASE(
    "a plan that its constraints made worse is kept by the exported graph, unless told otherwise") {
  Job job({});
  const std::string constraints = job.folder.write("constraints.json", R"json({
    "schema": "meshplan.constraints/1.0", "mesh": {"shape": [8], "axes": ["tp"]},
    "tensors": {"model.layers.0.mlp.up_proj.weight": {"placements": ["S(1)"]}}})json");
  job.make_plan(job.graph, job.plan, {"--constraints", constraints});
  const std::string exported = job.export_graph();
  const std::string again = job.folder.file("again.json");
  job.make_plan(exported, again);
  CHECK(placements_of(again) == placements_of(job.plan));
  const json held = json::parse(file_text(again));
  CHECK(held["mesh"]["shape"] == json({8}));
  // other constraints take the place of those in the graph
  const std::string free =
      job.folder.write("free.json", R"({"schema": "meshplan.constraints/1.0"})");
  job.make_plan(exported, again, {"--constraints", free});
  const json better = json::parse(file_text(again));
  CHECK(better["result"]["objective"] < held["result"]["objective"]);
  // and a mesh that is not the graph's is refused
  const ProgramRun clash = job.run(
      {"plan", exported, "--cluster", "dgx-a100-80g", "--devices", "8", "--mesh", "a=2,b=4"}, 3);
  CHECK(clash.err.find("exported.json: /mesh") != std::string::npos);
  job.run({"explain", job.plan, "--graph", exported, "--cluster", "dgx-a100-80g"}, 0);
}

TEST_CASE("every format is written, with warnings on standard error and to any place") {
  Job job({"--mesh", "dp=2,tp=4"});
  for (const char* format :
       {"csv", "dot", "graph", "hyper-parallel", "hyper-parallel-rfc", "mindspore"}) {
    INFO(format);
    const std::string file = job.folder.file("out");
    const ProgramRun to_file =
        job.run({"export", job.plan, "--graph", job.graph, "--to", format, "-o", file}, 0);
    CHECK(to_file.out.empty());
    const ProgramRun printed =
        job.run({"export", job.plan, "--graph", job.graph, "--to", format}, 0);
    CHECK(printed.out == file_text(file));
    CHECK(printed.err == to_file.err);
    const ProgramRun quiet =
        job.run({"export", job.plan, "--graph", job.graph, "--to", format, "--quiet"}, 0);
    CHECK(quiet.err.empty());
  }
}

TEST_CASE("export refuses what it cannot write, and writes nothing") {
  Job job({});
  const std::string file = job.folder.file("out");
  const auto refuse =
      [&](const std::vector<std::string>& arguments, int code, const std::string& part) {
        std::vector<std::string> all = {"export"};
        all.insert(all.end(), arguments.begin(), arguments.end());
        all.insert(all.end(), {"-o", file});
        const ProgramRun run = run_program(all);
        INFO(run.err);
        CHECK(run.exit_code == code);
        CHECK(run.err.find(part) != std::string::npos);
        CHECK(run.out.empty());
        CHECK(file_text(file).empty());
      };
  refuse({job.plan, "--graph", job.graph}, 2, "--to is required");
  refuse({job.plan, "--graph", job.graph, "--to", "onnx"}, 2, "--to: onnx not in {csv,dot,graph,");
  refuse({"-", "--graph", "-", "--to", "csv"}, 2, "only one input can be standard input");
  refuse({job.folder.file("none"), "--graph", job.graph, "--to", "csv"}, 3, "cannot open");
  refuse({job.graph, "--graph", job.graph, "--to", "csv"},
         3,
         "/schema: expected \"meshplan.plan/1.0\"");
  const std::string other = job.folder.file("other.json");
  job.run(
      {"import", "hf", job.folder.file("config.json"), "--batch", "16", "--seq", "64", "-o", other},
      0);
  refuse({job.plan, "--graph", other, "--to", "csv"},
         3,
         "plan.json: /graph/fingerprint: the plan was made for another graph");
}

}  // namespace
}  // namespace meshplan::export_command_test

// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "support/catch.h"
#include "support/run_program.h"

namespace meshplan::check_command_test {
namespace {

using nlohmann::json;
using test::ProgramRun;
using test::run_program;
using test::TemporaryFolder;

const std::string kGraph = std::string(MESHPLAN_SOURCE_DIR) + "/examples/mlp/graph.json";

/// The plan of the example on eight devices.
json planned(const TemporaryFolder& folder) {
  const ProgramRun run = run_program({"plan",
                                      kGraph,
                                      "--cluster",
                                      "dgx-a100-80g",
                                      "--devices",
                                      "8",
                                      "--mesh",
                                      "a=2,b=4",
                                      "-o",
                                      folder.file("plan.json")});
  INFO(run.err);
  REQUIRE(run.exit_code == 0);
  return json::parse(test::file_text(folder.file("plan.json")));
}

struct Checker {
  const TemporaryFolder& folder;
  ProgramRun operator()(const json& plan, const std::string& format = "json") const {
    return run_program({"check",
                        folder.write("edited.json", plan.dump()),
                        "--graph",
                        kGraph,
                        "--cluster",
                        "dgx-a100-80g",
                        "--format",
                        format});
  }
};

std::vector<std::string> pointers(const json& report) {
  std::vector<std::string> list;
  for (const json& finding : report["findings"]) list.push_back(finding["pointer"]);
  return list;
}

bool has(const std::vector<std::string>& list, const std::string& text) {
  return std::find(list.begin(), list.end(), text) != list.end();
}

TEST_CASE("check says that a plan is right, what it costs and that it fits") {
  const TemporaryFolder folder;
  const json plan = planned(folder);
  const Checker check{folder};
  const ProgramRun run = check(plan);
  REQUIRE(run.exit_code == 0);
  const json report = json::parse(run.out);
  CHECK(report["valid"] == true);
  CHECK(report["findings"].empty());
  CHECK(report["derived"]["objective"] == plan["result"]["objective"]);
  CHECK(report["derived"]["step_time"] == plan["cost"]["step_time"]);
  CHECK(report["derived"]["peak"] == plan["memory"]["peak"]);
  CHECK(report["derived"]["fits"] == true);
  CHECK(check(plan, "text").out.find("the plan is valid: objective ") == 0);
}

TEST_CASE("check lists every difference with its place, what was expected and what was found") {
  const TemporaryFolder folder;
  const json plan = planned(folder);
  const Checker check{folder};
  json edited = plan;
  edited["cost"]["step_time"] = 1.0;
  edited["memory"]["peak"] = 7;
  edited["graph"]["fingerprint"] = "sha256:0";
  edited["operators"][1]["compute_time"] = 2.0;
  edited["groups"].erase(edited["groups"].size() - 1);
  ProgramRun run = check(edited);
  CHECK(run.exit_code == 5);
  CHECK(run.err.empty());
  json report = json::parse(run.out);
  const auto list = pointers(report);
  for (const char* pointer : {"/cost/step_time",
                              "/memory/peak",
                              "/graph/fingerprint",
                              "/operators/1/compute_time",
                              "/groups"})
    CHECK(has(list, pointer));
  for (const json& finding : report["findings"]) {
    INFO(finding.dump());
    CHECK_FALSE(finding["expected"].get<std::string>().empty());
    CHECK_FALSE(finding["found"].get<std::string>().empty());
    CHECK_FALSE(finding["message"].get<std::string>().empty());
    if (finding["pointer"] != "/memory/peak") continue;
    CHECK(finding["expected"] == std::to_string(plan["memory"]["peak"].get<std::int64_t>()));
    CHECK(finding["found"] == "7");
  }
  // what follows from the placements is said nevertheless
  CHECK(report["derived"]["step_time"] == plan["cost"]["step_time"]);
  CHECK(check(edited, "text").out.find("/memory/peak: expected ") != std::string::npos);

  SECTION("a plan that leaves something out is not checked any less elsewhere") {
    edited = plan;
    edited["operators"].erase(0);
    edited["tensors"].erase(edited["tensors"].begin().key());
    edited["operators"][1]["compute_time"] = 2.0;
    run = check(edited);
    CHECK(run.exit_code == 5);
    const auto places = pointers(json::parse(run.out));
    CHECK(has(places, "/operators"));
    CHECK(has(places, "/operators/1/compute_time"));
    CHECK(std::any_of(places.begin(), places.end(), [](const std::string& place) {
      return place.rfind("/tensors/", 0) == 0;
    }));
  }
}

TEST_CASE("check ends with 5 where the types are right and the values are not") {
  const TemporaryFolder folder;
  const json plan = planned(folder);
  const Checker check{folder};
  const std::pair<const char*, json> edits[] = {
      {"/operators/0/out_placements/0/0", "Q(1)"},
      {"/operators/0/out_placements/0/0", "S(99)"},
      {"/redistributions/0/phase", "sideways"},
      {"/result/status", "great"},
      {"/result/found_by", "luck"},
      {"/options/mode", "dreaming"},
      {"/options/search", "luck"},
      {"/options/optimizer", "luck"},
      {"/options/microbatches", 0},
      {"/options/microbatches", 3},
      {"/options/overlap/gradient", 7},
      {"/cluster/devices", 3},
      {"/cluster/devices", -1},
      {"/mesh/shape/0", 3},
      {"/mesh/ranks", "column-major"},
      {"/memory/peak", 18446744073709551615ULL},
      {"/memory/limit", 1},
      {"/stages", json::array()},
      {"/operators", json::array()},
      {"/tensors", json::object()},
      {"/redistributions", json::array()},
      {"/groups", json::array()},
      {"/operators/0/in_placements", json::array()},
  };
  for (const auto& [pointer, value] : edits) {
    json edited = plan;
    edited[json::json_pointer(pointer)] = value;
    INFO(pointer << " is now " << value.dump());
    const ProgramRun run = check(edited);
    INFO(run.err);
    CHECK(run.exit_code == 5);
    const json report = json::parse(run.out);
    CHECK(report["valid"] == false);
    CHECK_FALSE(report["findings"].empty());
  }
}

TEST_CASE("check ends with 3 where files are wrong and with 2 where the command line is") {
  const TemporaryFolder folder;
  const json plan = planned(folder);
  const Checker check{folder};
  const auto edit = [&](const char* pointer, const json& value) {
    json edited = plan;
    edited[json::json_pointer(pointer)] = value;
    return check(edited);
  };
  const auto fails = [](const ProgramRun& run, int code, const std::string& part) {
    INFO(run.err);
    CHECK(run.exit_code == code);
    CHECK(run.out.empty());
    CHECK(run.err.find(part) != std::string::npos);
    CHECK(std::count(run.err.begin(), run.err.end(), '\n') == 1);
  };
  fails(edit("/schema", "meshplan.plan/1.2"), 3, "not \"meshplan.plan/1.2\"");
  fails(edit("/schema", "meshplan.plan/2.0"), 3, "not \"meshplan.plan/2.0\"");
  fails(edit("/schema", "meshplan.graph/1.0"), 3, "/schema");
  fails(edit("/memory/peak", "much"), 3, "/memory/peak");
  fails(edit("/memory/peaks", 1), 3, "unknown key");
  fails(edit("/options/serch", "dp"), 3, "did you mean \"search\"?");
  const std::vector<std::string> rest = {"--graph", kGraph, "--cluster", "dgx-a100-80g"};
  const auto run = [](std::vector<std::string> words, const std::vector<std::string>& more) {
    words.insert(words.end(), more.begin(), more.end());
    return run_program(words);
  };
  fails(run({"check", folder.file("none.json")}, rest), 3, "none.json");
  fails(run({"check", folder.write("cut.json", "{\"schema\":")}, rest), 3, "not valid JSON");
  fails(run_program({"check",
                     folder.file("plan.json"),
                     "--graph",
                     folder.file("none.json"),
                     "--cluster",
                     "dgx-a100-80g"}),
        3,
        "none.json");
  fails(
      run_program({"check", folder.file("plan.json"), "--graph", kGraph, "--cluster", "dgx-a101"}),
      3,
      "dgx-a101");
  fails(run_program({"check", folder.file("plan.json"), "--graph", kGraph}), 2, "--cluster");
  fails(run({"check", "-", "--graph", "-", "--cluster", "dgx-a100-80g"}, {}), 2, "standard input");
  // another graph is no wrong file: the plan is not right for it
  const std::string other = folder.write("other.json", [] {
    json graph = json::parse(test::file_text(kGraph));
    graph["dimensions"]["batch"]["size"] = 16;
    return graph.dump();
  }());
  const ProgramRun another = run_program({"check",
                                          folder.file("plan.json"),
                                          "--graph",
                                          other,
                                          "--cluster",
                                          "dgx-a100-80g",
                                          "--format",
                                          "json"});
  CHECK(another.exit_code == 5);
  CHECK(has(pointers(json::parse(another.out)), "/graph/fingerprint"));
}

}  // namespace
}  // namespace meshplan::check_command_test

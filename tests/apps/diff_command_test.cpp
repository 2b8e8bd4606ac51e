// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "support/catch.h"
#include "support/run_program.h"

namespace meshplan::diff_command_test {
namespace {

using nlohmann::json;
using test::ProgramRun;
using test::run_program;
using test::TemporaryFolder;

const std::string kGraph = std::string(MESHPLAN_SOURCE_DIR) + "/examples/mlp/graph.json";
const std::string kConstraints =
    std::string(MESHPLAN_SOURCE_DIR) + "/examples/mlp/tensor_parallel.json";

using Words = std::vector<std::string>;

ProgramRun run(Words words, const Words& more = {}) {
  words.insert(words.end(), more.begin(), more.end());
  return run_program(words);
}

/// Plans the example's graph (or another one) and returns the plan's file.
std::string planned(const TemporaryFolder& folder,
                    const std::string& name,
                    const Words& options,
                    const std::string& graph = kGraph) {
  const ProgramRun made =
      run({"plan", graph, "--cluster", "dgx-a100-80g", "--devices", "8", "-o", folder.file(name)},
          options);
  INFO(made.err);
  REQUIRE(made.exit_code == 0);
  return folder.file(name);
}

/// The example's graph with a wider first layer.
std::string wider(const TemporaryFolder& folder) {
  json graph = json::parse(test::file_text(kGraph));
  graph["tensors"]["w1"]["shape"][1] = 8192;
  graph["tensors"]["w2"]["shape"][0] = 8192;
  return folder.write("wider.json", graph.dump());
}

json read_json(const std::string& file) { return json::parse(test::file_text(file)); }

TEST_CASE("diff compares two plans in every format") {
  const TemporaryFolder folder;
  const std::string one = planned(folder, "one.json", {"--mesh", "a=2,b=4"});
  const std::string two = planned(folder, "two.json", {"--mesh", "a=2,b=4", "--recompute", "full"});
  ProgramRun same = run({"diff", one, one});
  CHECK(same.exit_code == 0);
  CHECK(same.out.find("the plans are the same") != std::string::npos);

  const json before = read_json(one);
  const json after = read_json(two);
  const ProgramRun told = run({"diff",
                               one,
                               two,
                               "--format",
                               "json",
                               "--max-slowdown",
                               "900%",
                               "--junit",
                               folder.file("x")});
  INFO(told.err);
  REQUIRE(told.exit_code == 0);
  const json diff = json::parse(told.out);
  CHECK(diff["worse"] == false);
  CHECK(diff["cost"]["objective"]["before"] == before["result"]["objective"]);
  CHECK(diff["cost"]["objective"]["after"] == after["result"]["objective"]);
  CHECK(
      diff["cost"]["step_time"]["change"].get<double>() ==
      Approx(after["cost"]["step_time"].get<double>() / before["cost"]["step_time"].get<double>() -
             1));
  CHECK(diff["options"] ==
        json::parse(R"([{"what": "recompute", "before": "none", "after": "full"}])"));
  CHECK(diff["operators"]["changed"].get<int>() > 0);
  CHECK(diff["effect"].get<double>() ==
        after["result"]["objective"].get<double>() - before["result"]["objective"].get<double>());
  CHECK(test::file_text(folder.file("x")).find("<testsuites tests=\"4\" failures=\"0\"") !=
        std::string::npos);

  const ProgramRun text = run({"diff", one, two, "--max-slowdown", "0%"});
  CHECK(text.exit_code == 5);
  CHECK(text.out.find("worse than allowed: step time +") != std::string::npos);
  const ProgramRun page = run(
      {"diff", one, two, "--format", "markdown", "--max-slowdown", "9x", "-o", folder.file("m")});
  CHECK(page.exit_code == 0);
  CHECK(page.out.empty());
  CHECK(test::file_text(folder.file("m")).find("| where | what | before |") != std::string::npos);
  // backwards it is an improvement
  CHECK(run({"diff", two, one, "--max-slowdown", "0", "--max-memory-growth", "900%"}).exit_code ==
        0);
}

TEST_CASE("with graph and cluster diff checks the new plan") {
  const TemporaryFolder folder;
  const std::string one = planned(folder, "one.json", {"--mesh", "a=2,b=4"});
  const Words rest = {"--graph", kGraph, "--cluster", "dgx-a100-80g", "--format", "json"};
  ProgramRun right = run({"diff", one, one}, rest);
  INFO(right.err);
  CHECK(right.exit_code == 0);
  CHECK(json::parse(right.out)["limits"][4]["name"] == "valid");
  json plan = read_json(one);
  plan["operators"][0]["compute_time"] = 1e-9;
  const ProgramRun wrong = run({"diff", one, folder.write("wrong.json", plan.dump())}, rest);
  CHECK(wrong.exit_code == 5);
  const json valid = json::parse(wrong.out)["limits"][4];
  CHECK(valid["holds"] == false);
  CHECK(valid["message"].get<std::string>().find("/operators/0/compute_time") != std::string::npos);
}

TEST_CASE("diff --replan plans the new graph as the old one was") {
  const TemporaryFolder folder;
  const Words options = {"--mesh",
                         "a=2,b=4",
                         "--optimizer",
                         "momentum",
                         "--microbatches",
                         "auto",
                         "--overlap",
                         "gradient=0.5",
                         "--recompute",
                         "selective",
                         "--memory-limit",
                         "20GiB",
                         "--baseline",
                         "ddp",
                         "--seed",
                         "3"};
  const std::string old = planned(folder, "old.json", options);
  const Words rest = {"--cluster", "dgx-a100-80g", "--format", "json"};
  ProgramRun same = run({"diff", "--replan", old, "--graph", kGraph}, rest);
  INFO(same.err);
  CHECK(same.exit_code == 0);
  CHECK(json::parse(same.out)["same"] == true);

  const std::string graph = wider(folder);
  const ProgramRun worse = run({"diff",
                                "--replan",
                                old,
                                "--graph",
                                graph,
                                "--new-plan",
                                folder.file("new.json"),
                                "--junit",
                                folder.file("new.xml")},
                               rest);
  INFO(worse.err);
  CHECK(worse.exit_code == 5);
  const json diff = json::parse(worse.out);
  CHECK(diff["worse"] == true);
  CHECK(diff["options"].empty());
  // what it compares with is what plan gives with these options
  const json expected = read_json(planned(folder, "expected.json", options, graph));
  const json made = read_json(folder.file("new.json"));
  CHECK(diff["cost"]["objective"]["after"] == expected["result"]["objective"]);
  CHECK(made["operators"] == expected["operators"]);
  CHECK(made["options"]["microbatches_auto"] == true);
  CHECK(test::file_text(folder.file("new.xml")).find("<failure ") != std::string::npos);
  CHECK(run({"check", folder.file("new.json"), "--graph", graph, "--cluster", "dgx-a100-80g"})
            .exit_code == 0);
  CHECK(run({"diff",
             "--replan",
             old,
             "--graph",
             graph,
             "--max-slowdown",
             "900%",
             "--max-memory-growth",
             "900%"},
            rest)
            .exit_code == 0);
}

TEST_CASE("diff --replan keeps constraints, mode and mesh, and ends with 4 where nothing fits") {
  const TemporaryFolder folder;
  const std::string constraints = folder.write("fixed.json", test::file_text(kConstraints));
  const std::string old =
      planned(folder, "old.json", {"--constraints", constraints, "--mode", "inference"});
  const Words rest = {"--graph", kGraph, "--cluster", "dgx-a100-80g", "--format", "json"};
  const ProgramRun same = run({"diff", "--replan", old}, rest);
  INFO(same.err);
  CHECK(same.exit_code == 0);
  CHECK(json::parse(same.out)["same"] == true);
  std::filesystem::rename(constraints, folder.file("moved.json"));
  ProgramRun lost = run({"diff", "--replan", old}, rest);
  CHECK(lost.exit_code == 3);
  CHECK(lost.err.find("fixed.json") != std::string::npos);
  const ProgramRun found =
      run({"diff", "--replan", old, "--constraints", folder.file("moved.json")}, rest);
  CHECK(found.exit_code == 0);

  const std::string tight =
      planned(folder, "tight.json", {"--mesh", "a=8", "--memory-limit", "120MiB"});
  json graph = read_json(kGraph);
  graph["tensors"]["w1"]["shape"][1] = 1 << 20;
  graph["tensors"]["w2"]["shape"][0] = 1 << 20;
  const ProgramRun none = run({"diff",
                               "--replan",
                               tight,
                               "--graph",
                               folder.write("large.json", graph.dump()),
                               "--cluster",
                               "dgx-a100-80g",
                               "-o",
                               folder.file("none.txt")});
  CHECK(none.exit_code == 4);
  CHECK(none.out.empty());
  CHECK(none.err.find("no plan fits the memory limit") != std::string::npos);
  CHECK_FALSE(std::filesystem::exists(folder.file("none.txt")));
}

TEST_CASE("a wrong command line of diff is 2, a wrong file 3, on one line") {
  const TemporaryFolder folder;
  const std::string plan = planned(folder, "plan.json", {"--mesh", "a=8"});
  const auto fails = [&](const Words& words, int code, const std::string& part) {
    const ProgramRun wrong = run({"diff"}, words);
    INFO(wrong.err);
    CHECK(wrong.exit_code == code);
    CHECK(wrong.out.empty());
    CHECK(wrong.err.find(part) != std::string::npos);
    CHECK(std::count(wrong.err.begin(), wrong.err.end(), '\n') == 1);
  };
  fails({}, 2, "NEW: expected two plans");
  fails({plan}, 2, "NEW: expected two plans");
  fails({plan, plan, "--cluster", "dgx-a100-80g"}, 2, "needs --graph");
  fails({"--replan", plan}, 2, "needs --graph and --cluster");
  fails({plan, plan, "--replan", plan, "--graph", kGraph, "--cluster", "x"}, 2, "do not give both");
  fails({plan, plan, "--new-plan", "x"}, 2, "goes with --replan");
  for (const char* share : {"2", "-2%", "many", "", "2%%", "nan"})
    fails({plan, plan, "--max-slowdown", share}, 2, "--max-slowdown");
  fails({plan, plan, "--max-memory-growth", "1e3"}, 2, "a fraction below 1, e.g. 2% or 0.02");
  fails({plan, plan, "--ignore", "a..b"}, 2, "--ignore");
  fails({plan, plan, "--junit", "-"}, 2, "standard output is taken");
  fails({plan, plan, "--junit", "x", "-o", "x"}, 2, "--junit: writes to the same place as -o");
  fails({plan, plan, "--junit", plan}, 2, "which is read here");
  fails({"-", "-"}, 2, "only one input can be standard input");
  fails({plan, plan, "--max-slowdwn", "2%"}, 2, "did you mean \"--max-slowdown\"?");
  fails({plan, folder.file("none.json")}, 3, "none.json");
  fails({plan, folder.write("bad.json", "[1]")}, 3, "bad.json: expected an object");
  fails({plan, plan, "--graph", folder.file("none.json")}, 3, "none.json");
  fails({"--replan", plan, "--graph", kGraph, "--cluster", "dgx-a101"}, 3, "dgx-a101");
  json foreign = read_json(plan);
  foreign["options"]["optimizer"] = "luck";
  fails({"--replan",
         folder.write("foreign.json", foreign.dump()),
         "--graph",
         kGraph,
         "--cluster",
         "dgx-a100-80g"},
        3,
        "foreign.json: /options/optimizer: \"luck\"");
  CHECK(run({"diff", plan, "-"}).exit_code == 3);  // nothing there
  CHECK(run_program({"diff", plan, "-"}, test::file_text(plan)).exit_code == 0);
}

}  // namespace
}  // namespace meshplan::diff_command_test

// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "support/catch.h"
#include "support/run_program.h"

namespace meshplan::explain_command_test {
namespace {

using nlohmann::json;
using test::ProgramRun;
using test::run_program;
using test::TemporaryFolder;
using Words = std::vector<std::string>;

const std::string kGraph = std::string(MESHPLAN_SOURCE_DIR) + "/examples/mlp/graph.json";
const std::string kConstraints =
    std::string(MESHPLAN_SOURCE_DIR) + "/examples/mlp/tensor_parallel.json";

std::string planned(const TemporaryFolder& folder, const Words& more = {}) {
  Words words = {"plan",
                 kGraph,
                 "--cluster",
                 "dgx-a100-80g",
                 "--devices",
                 "8",
                 "-o",
                 folder.file("plan.json")};
  words.insert(words.end(), more.begin(), more.end());
  const ProgramRun run = run_program(words);
  INFO(run.err);
  REQUIRE(run.exit_code == 0);
  return folder.file("plan.json");
}

ProgramRun explain(const std::string& plan, const Words& more, const std::string& graph = kGraph) {
  Words words = {"explain", plan, "--graph", graph, "--cluster", "dgx-a100-80g"};
  words.insert(words.end(), more.begin(), more.end());
  return run_program(words);
}

json explained(const std::string& plan, Words more) {
  more.insert(more.end(), {"--format", "json"});
  const ProgramRun run = explain(plan, more);
  INFO(run.err);
  REQUIRE(run.exit_code == 0);
  return json::parse(run.out);
}

json read_json(const std::string& file) { return json::parse(test::file_text(file)); }

TEST_CASE("explain splits the whole cost, by axes and by operators") {
  const TemporaryFolder folder;
  const std::string file = planned(folder);
  const json plan = read_json(file);
  const json told = explained(file, {});
  CHECK(told["objective"] == plan["result"]["objective"]);
  double axes = 0;
  for (const json& row : told["axes"]) {
    axes += row["objective"].get<double>();
    double kinds = 0;
    for (const json& kind : row["kinds"]) kinds += kind["objective"].get<double>();
    CHECK(kinds == Approx(row["objective"].get<double>()));
  }
  CHECK(axes == Approx(told["objective"].get<double>()).epsilon(1e-12));
  double operators = 0;
  for (const json& row : told["operators"]) {
    operators += row["count"].get<double>() * row["cost"]["objective"].get<double>();
    const json& counts = row["filters"];
    CHECK(counts["all"].get<int>() == counts["divisibility"].get<int>() +
                                          counts["rule"].get<int>() +
                                          counts["constraints"].get<int>() +
                                          counts["memory"].get<int>() + counts["left"].get<int>());
    REQUIRE_FALSE(row["alternatives"].empty());
    CHECK(row["alternatives"][0]["chosen"] == true);
  }
  CHECK(operators == Approx(told["objective"].get<double>()).epsilon(1e-12));
  CHECK(told["memory"]["peak"] == plan["memory"]["peak"]);
  CHECK(told["memory"]["binds"] == false);
  REQUIRE(told["sensitivity"].size() == 2);  // of the one level that eight devices span
  for (const json& row : told["sensitivity"]) {
    CHECK(row["level"] == "nvlink");
    CHECK(row["best"].get<double>() <= row["same_mesh"].get<double>());
  }
  const ProgramRun text = explain(file, {});
  for (const char* part : {"Where time goes by mesh axis",
                           "memory does not bind",
                           "Cost split",
                           "The best alternative of each operator",
                           "Strategies left out, and why",
                           "If a level of the network were slower or faster"})
    CHECK(text.out.find(part) != std::string::npos);
  CHECK(explain(file, {"--format", "markdown"}).out.find("## Cost split") != std::string::npos);
}

TEST_CASE("explain shows the alternatives of an operator, a tensor and a scope") {
  const TemporaryFolder folder;
  const std::string file = planned(folder);
  const json op = explained(file, {"--operator", "layers.0.up"});
  REQUIRE(op["operators"].size() == 1);
  const json& alternatives = op["operators"][0]["alternatives"];
  CHECK(alternatives.size() == op["operators"][0]["filters"]["left"].get<std::size_t>());
  CHECK(op.count("sensitivity") == 0);
  for (const json& each : alternatives) {
    CHECK(each["inputs"].size() == 2);
    if (each["chosen"] == true) continue;
    CHECK(each["rest_fixed"]["objective"].get<double>() >= 0);  // the plan is optimal
    CHECK(each["neighbours_chosen_anew"]["objective"].get<double>() >= 0);
  }
  const json tensor = explained(file, {"--tensor", "w1"});
  CHECK(tensor["tensor"]["name"] == "w1");
  CHECK(tensor["tensor"]["alternatives"].size() > 1);
  CHECK(explained(file, {"--tensor", "h0"})["tensor"]["operator"] == "layers.0.up");
  const json scope = explained(file, {"--scope", "layers.*"});
  std::size_t operators = 0;
  for (const json& row : scope["operators"]) operators += row["count"].get<std::size_t>();
  CHECK(operators == 6);
}

TEST_CASE("explain --why-not says what a wish costs and what it forces elsewhere") {
  const TemporaryFolder folder;
  const std::string file = planned(folder);
  const json plan = read_json(file);
  const json told = explained(file, {"--why-not", "w1=S(0),R"})["why_not"];
  CHECK(told["possible"] == true);
  CHECK(told["objective"].get<double>() > 0);
  const json& diff = told["diff"];
  CHECK(diff["effect"].get<double>() == told["objective"].get<double>());
  CHECK(diff["options"].empty());
  CHECK(diff["operators"]["changed"].get<int>() > 0);
  // the same as a plan under that constraint
  const json constraints = {
      {"schema", "meshplan.constraints/1.0"},
      {"mesh", {{"shape", plan["mesh"]["shape"]}, {"axes", plan["mesh"]["axes"]}}},
      {"tensors", {{"w1", {{"placements", {"S(0)", "R"}}}}}}};
  const std::string wished =
      planned(folder, {"--constraints", folder.write("wish.json", constraints.dump())});
  CHECK(read_json(wished)["result"]["objective"].get<double>() -
            plan["result"]["objective"].get<double>() ==
        told["objective"].get<double>());

  const std::string again = planned(folder);
  const json own =
      explained(again,
                {"--why-not",
                 "w1=" + plan["tensors"]["w1"]["placements"][0].get<std::string>() + "," +
                     plan["tensors"]["w1"]["placements"][1].get<std::string>()})["why_not"];
  CHECK(own["objective"] == 0.0);
  CHECK(own["diff"]["same"] == true);
  // one axis left free; an operator's result
  CHECK(explained(again, {"--why-not", "w1=*,R"})["why_not"]["possible"] == true);
  CHECK(explained(again, {"--why-not", "layers.0.up=S(1),*"})["why_not"]["possible"] == true);
  const json never = explained(again, {"--why-not", "layers.0.gelu=P(sum),*"})["why_not"];
  CHECK(never["possible"] == false);
  CHECK(never["reason"].get<std::string>().find("layers.0.gelu") != std::string::npos);
  CHECK(explain(again, {"--why-not", "w1=S(0),R"}).out.find("w1=S(0),R: costs +") !=
        std::string::npos);
}

TEST_CASE("explain keeps the plan's constraints and prices them") {
  const TemporaryFolder folder;
  const std::string constraints = folder.write("fixed.json", test::file_text(kConstraints));
  const std::string file = planned(folder, {"--constraints", constraints});
  const json told = explained(file, {});
  REQUIRE(told["constraints"].size() > 1);
  CHECK(told["constraints"][0]["without"] == "all");
  CHECK(told["constraints"][0]["gain"].get<double>() <= 0);
  std::filesystem::rename(constraints, folder.file("moved.json"));
  const ProgramRun lost = explain(file, {});
  CHECK(lost.exit_code == 3);
  CHECK(lost.err.find("--constraints") != std::string::npos);
  CHECK(
      explain(file, {"--constraints", folder.file("moved.json"), "--operator", "mean"}).exit_code ==
      0);
}

TEST_CASE("explain refuses what is wrong on one line, with the nearest name") {
  const TemporaryFolder folder;
  const std::string file = planned(folder);
  const auto fails = [](const ProgramRun& run, int code, const std::string& part) {
    INFO(run.err);
    CHECK(run.exit_code == code);
    CHECK(run.out.empty());
    CHECK(run.err.find(part) != std::string::npos);
    CHECK(std::count(run.err.begin(), run.err.end(), '\n') == 1);
  };
  fails(explain(file, {"--operator", "layers.0.upp"}), 2, "did you mean \"layers.0.up\"?");
  fails(explain(file, {"--tensor", "w11"}), 2, "did you mean \"w1\"?");
  fails(explain(file, {"--scope", "layer.0"}), 2, "did you mean \"layers.0\"?");
  fails(explain(file, {"--scope", "a..b"}), 2, "--scope");
  fails(explain(file, {"--operator", "mean", "--tensor", "w1"}), 2, "give one of");
  fails(explain(file, {"--why-not", "w1"}), 2, "expected a tensor or operator");
  fails(explain(file, {"--why-not", "w1=S(0)"}), 2, "has 1 placement");
  fails(explain(file, {"--why-not", "w1=S(0),Q"}), 2, "--why-not");
  fails(explain(file, {"--why-not", "w1=S(7),R"}), 2, "--why-not");
  fails(explain(file, {"--why-not", "w12=S(0),R"}), 2, "did you mean");
  fails(explain(folder.file("none.json"), {}), 3, "none.json");
  fails(explain(file, {}, folder.file("none.json")), 3, "none.json");
  fails(run_program({"explain", file, "--graph", kGraph, "--cluster", "dgx-a101"}), 3, "dgx-a101");
  fails(run_program({"explain", file, "--graph", kGraph}), 2, "--cluster");
  // a plan that is not right for the graph is rejected
  json graph = read_json(kGraph);
  graph["dimensions"]["batch"]["size"] = 16;
  fails(explain(file, {}, folder.write("other.json", graph.dump())), 5, "meshplan check");
  json plan = read_json(file);
  plan["cost"]["step_time"] = 1.0;
  fails(explain(folder.write("wrong.json", plan.dump()), {}), 5, "/cost/step_time");
}

}  // namespace
}  // namespace meshplan::explain_command_test

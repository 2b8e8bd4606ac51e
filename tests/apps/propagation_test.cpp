// SPDX-License-Identifier: Apache-2.0
// plan --search propagation and what explain says of it, as a user calls them.
#include <algorithm>
#include <cstddef>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "support/catch.h"
#include "support/run_program.h"

namespace meshplan::propagation_test {
namespace {

using nlohmann::json;
using test::ProgramRun;
using test::TemporaryFolder;

const std::string kCluster = "dgx-a100-80g";
const std::string kMlp = std::string(MESHPLAN_SOURCE_DIR) + "/examples/mlp/graph.json";

std::string write_file(const TemporaryFolder& folder,
                       const std::string& name,
                       const json& content) {
  const std::string file = folder.file(name);
  std::ofstream(file) << content.dump();
  return file;
}

ProgramRun propagate(const std::string& graph, std::vector<std::string> options) {
  options.insert(options.begin(),
                 {"plan", graph, "--cluster", kCluster, "--search", "propagation"});
  return test::run_program(options);
}

/// The run, which must have ended with 0.
ProgramRun succeeded(ProgramRun run) {
  INFO(run.out << run.err);
  REQUIRE(run.exit_code == 0);
  return run;
}

/// The plan, checked and verified.
json planned(const TemporaryFolder& folder,
             const std::string& graph,
             std::vector<std::string> options,
             const std::string& name = "plan.json") {
  const std::string file = folder.file(name);
  options.insert(options.end(), {"-o", file});
  succeeded(propagate(graph, options));
  succeeded(test::run_program({"check", file, "--graph", graph, "--cluster", kCluster}));
  succeeded(test::run_program({"verify", file, "--graph", graph}));
  return json::parse(test::file_text(file));
}

/// What explain says of a tensor of the folder's plan.json.
ProgramRun explain_tensor(const TemporaryFolder& folder,
                          const std::string& graph,
                          const std::string& tensor,
                          const std::string& format = "text") {
  return succeeded(test::run_program({"explain",
                                      folder.file("plan.json"),
                                      "--graph",
                                      graph,
                                      "--cluster",
                                      kCluster,
                                      "--tensor",
                                      tensor,
                                      "--format",
                                      format}));
}

json explained_tensor(const TemporaryFolder& folder,
                      const std::string& graph,
                      const std::string& tensor) {
  return json::parse(explain_tensor(folder, graph, tensor, "json").out).at("tensor");
}

/// Of the plan's expanded operators, by name.
std::map<std::string, json> operators_of(const json& plan) {
  std::map<std::string, json> made;
  for (const json& op : plan.at("operators")) made[op.at("name").get<std::string>()] = op;
  return made;
}

json constraints(const json& tensors, const json& operators = json::object()) {
  return {{"schema", "meshplan.constraints/1.0"},
          {"mesh", {{"shape", {2, 4}}, {"axes", {"dp", "tp"}}}},
          {"tensors", tensors},
          {"operators", operators}};
}

/// x -> fc1 -> gelu -> fc2 -> add x -> mean
json small_mlp() {
  return json::parse(R"({
  "schema": "meshplan.graph/1.0", "name": "small", "dimensions": {"batch": {"size": 64}},
  "tensors": {
    "x": {"shape": ["batch", 512], "dtype": "bf16", "role": "input"},
    "spare": {"shape": ["batch"], "dtype": "bf16", "role": "input"},
    "w1": {"shape": [512, 2048], "dtype": "bf16", "role": "parameter"},
    "w2": {"shape": [2048, 512], "dtype": "bf16", "role": "parameter"},
    "loss": {"shape": [], "dtype": "fp32", "role": "loss"}},
  "operators": [
    {"name": "fc1", "type": "MatMul", "inputs": ["x", "w1"], "outputs": ["h"]},
    {"name": "gelu", "type": "Gelu", "inputs": ["h"], "outputs": ["a"]},
    {"name": "fc2", "type": "MatMul", "inputs": ["a", "w2"], "outputs": ["y"]},
    {"name": "add", "type": "Add", "inputs": ["x", "y"], "outputs": ["z"]},
    {"name": "mean", "type": "ReduceMean", "inputs": ["z"], "outputs": ["loss"],
     "attributes": {"keepdims": 0}}]})");
}

const json kMegatron = {{"x", {{"placements", {"S(0)", "R"}}}},
                        {"w1", {{"placements", {"R", "S(1)"}}}}};

}  // namespace

TEST_CASE("From a batch and one weight follows a tensor-parallel block, with reasons") {
  const TemporaryFolder folder;
  const std::string graph = write_file(folder, "graph.json", small_mlp());
  const std::string file = write_file(folder, "c.json", constraints(kMegatron));
  for (const std::string policy : {"cost", "rules"}) {
    INFO(policy);
    const json plan =
        planned(folder, graph, {"--devices", "8", "--constraints", file, "--policy", policy});
    CHECK(plan.at("result").at("found_by") == "propagation");
    CHECK(plan.at("result").at("lower_bound").is_null());
    CHECK(plan.at("options").at("policy") == policy);
    auto ops = operators_of(plan);
    CHECK(ops.at("fc1").at("out_placements") == json::parse(R"j([["S(0)", "S(1)"]])j"));
    CHECK(ops.at("fc2").at("in_placements") ==
          json::parse(R"j([["S(0)", "S(1)"], ["R", "S(0)"]])j"));
    CHECK(plan.at("tensors").at("x").at("reason") == "constraint");
    CHECK(plan.at("tensors").at("h").at("reason") ==
          "dp: propagated from x, tp: propagated from w1");

    const json tensor = explained_tensor(folder, graph, "a");
    CHECK(tensor.at("held") == "all");
    REQUIRE(tensor.at("origin").size() == 2);
    CHECK(tensor.at("origin").at(1).at("from") == "propagated");
    CHECK(tensor.at("origin").at(1).at("steps") ==
          json::parse(
              R"j([{"operator": "gelu", "tensor": "h"}, {"operator": "fc1", "tensor": "w1"}])j"));
  }
}

TEST_CASE("Conflicts are explained with the price of every way out") {
  const TemporaryFolder folder;
  const std::string graph = write_file(folder, "graph.json", small_mlp());
  // dp cuts the batch of x and the hidden dimension of h: fc1 can follow one alone
  const std::string file = write_file(folder,
                                      "c.json",
                                      constraints({{"x", {{"placements", {"S(0)", "R"}}}},
                                                   {"a", {{"placements", {"S(1)", "*"}}}}}));
  planned(folder, graph, {"--devices", "8", "--constraints", file});
  const json tensor = explained_tensor(folder, graph, "h");
  REQUIRE_FALSE(tensor.at("conflicts").empty());
  const json& conflict = tensor.at("conflicts").at(0);
  CHECK(conflict.at("operator") == "fc1");
  CHECK(conflict.at("axis") == "dp");
  CHECK(conflict.at("found") == "x S(0), w1 -, h S(1)");
  CHECK(conflict.at("alternatives").size() >= 3);
  CHECK(conflict.at("alternatives").at(0).at("chosen") == true);
  CHECK(conflict.at("alternatives").at(1).at("rest_fixed").is_object());
  const ProgramRun text = explain_tensor(folder, graph, "h");
  CHECK(text.out.find("Where its placements come from") != std::string::npos);
  CHECK(text.out.find("Conflicts on the way, and what each way out would cost") !=
        std::string::npos);
}

TEST_CASE("What two operators want at once goes to neither, and is decided by price") {
  const TemporaryFolder folder;
  const std::string graph = write_file(folder, "graph.json", json::parse(R"j({
  "schema": "meshplan.graph/1.0", "name": "contest",
  "tensors": {"x": {"shape": [64, 32], "dtype": "fp32", "role": "input"}},
  "operators": [
    {"name": "one", "type": "Relu", "inputs": ["x"], "outputs": ["q"]},
    {"name": "two", "type": "Relu", "inputs": ["q"], "outputs": ["r"]}]})j"));
  const std::string file = write_file(folder,
                                      "c.json",
                                      constraints({{"x", {{"placements", {"S(0)", "R"}}}},
                                                   {"r", {{"placements", {"S(1)", "R"}}}}}));
  const json plan =
      planned(folder, graph, {"--devices", "8", "--constraints", file, "--mode", "inference"});
  CHECK(plan.at("tensors").at("q").at("reason") == "cost");
  const json tensor = explained_tensor(folder, graph, "q");
  CHECK(tensor.at("origin").at(0).at("contested_by") == json::parse(R"j(["one", "two"])j"));
  CHECK(tensor.at("conflicts").size() == 2);
}

TEST_CASE("Constraints that clash are named together") {
  const TemporaryFolder folder;
  const std::string graph = write_file(folder, "graph.json", small_mlp());
  const auto error_of = [&](const json& content) {
    const std::string file = write_file(folder, "c.json", content);
    const ProgramRun run =
        propagate(graph, {"--devices", "8", "--constraints", file, "-o", folder.file("no.json")});
    CHECK(run.exit_code == 3);
    CHECK_FALSE(std::ifstream(folder.file("no.json")).good());
    return run.err;
  };
  const std::string both = error_of(
      constraints({{"a", {{"placements", {"S(0)", "*"}}}}, {"x", {{"placements", {"R", "*"}}}}},
                  {{"fc2", {{"in_placements", {{"S(1)", "*"}, "*"}}}}}));
  INFO(both);
  CHECK(both.find("c.json: /tensors/a") != std::string::npos);
  CHECK(both.find("/operators/fc2/in_placements") != std::string::npos);
  CHECK(both.find("clashes with") != std::string::npos);

  const std::string one = error_of(
      constraints(json::object(),
                  json::parse(R"j({"fc1": {"in_placements": [["S(0)", "*"], ["S(0)", "*"]]}})j")));
  INFO(one);
  CHECK(one.find("/operators/fc1/in_placements/0") != std::string::npos);
  CHECK(one.find("/operators/fc1/in_placements/1") != std::string::npos);

  const std::string unread = error_of(constraints({{"spare", {{"placements", {"S(0)", "R"}}}}}));
  INFO(unread);
  CHECK(unread.find("c.json: /tensors/spare: nothing reads tensor \"spare\"") != std::string::npos);
}

TEST_CASE("A constraint that cannot be kept, alone or with two others, is named by every search") {
  const TemporaryFolder folder;
  const std::string graph = write_file(folder, "graph.json", json::parse(R"j({
  "schema": "meshplan.graph/1.0", "name": "g",
  "tensors": {
    "x": {"shape": [16, 16], "dtype": "fp32", "role": "input"},
    "w": {"shape": [16, 16], "dtype": "fp32", "role": "parameter"}},
  "operators": [
    {"name": "relu", "type": "Relu", "inputs": ["x"], "outputs": ["a"]},
    {"name": "one", "type": "MatMul", "inputs": ["a", "w"], "outputs": ["b"]},
    {"name": "two", "type": "MatMul", "inputs": ["b", "w"], "outputs": ["c"]}]})j"));
  const auto error_of = [&](const std::string& search, const std::string& body) {
    const std::string file = folder.file("c.json");
    std::ofstream(file) << R"j({"schema": "meshplan.constraints/1.0",
      "mesh": {"shape": [2, 2], "axes": ["dp", "tp"]}, )j" +
                               body + "}";
    const ProgramRun run = test::run_program({"plan",
                                              graph,
                                              "--cluster",
                                              kCluster,
                                              "--devices",
                                              "4",
                                              "--mode",
                                              "inference",
                                              "--constraints",
                                              file,
                                              "--search",
                                              search});
    CHECK(run.exit_code == 3);
    return run.err;
  };
  for (const std::string search : {"propagation", "dp"}) {
    INFO(search);
    const std::string alone =
        error_of(search, R"j("operators": {"relu": {"in_placements": [["P(sum)", "*"]]}})j");
    CHECK(alone.find("c.json: /operators/relu/in_placements/0: operator \"relu\" (Relu) has no "
                     "strategy on this mesh that keeps it") != std::string::npos);
    const std::string three = error_of(search, R"j("operators": {"one": {
        "in_strategy": [[2, 1], "*"], "in_placements": ["*", ["S(1)", "*"]],
        "out_placements": [["*", "S(1)"]]}})j");
    CHECK(three.find("has no strategy on this mesh that keeps all of: ") != std::string::npos);
    for (const char* part : {"in_strategy/0", "in_placements/1", "out_placements/0"})
      CHECK(three.find(std::string("c.json: /operators/one/") + part) != std::string::npos);
    // no operator shows it: how a shared parameter rests is nobody's alone
    const std::string shared =
        error_of(search, R"j("tensors": {"w": {"placements": ["SS(0,2)", "R"]}})j");
    INFO(shared);
    CHECK(shared.find("c.json: /tensors/w: no plan keeps it: tensor \"w\" has no placement left") !=
          std::string::npos);
  }
}

TEST_CASE("Users of a shared parameter agree, or it is an error") {
  const TemporaryFolder folder;
  const std::string graph = write_file(folder, "graph.json", json::parse(R"({
  "schema": "meshplan.graph/1.0", "name": "shared",
  "tensors": {
    "x": {"shape": [64, 32], "dtype": "fp32", "role": "input"},
    "b": {"shape": [64, 32], "dtype": "fp32", "role": "input"},
    "w": {"shape": [64, 32], "dtype": "fp32", "role": "parameter"}},
  "operators": [
    {"name": "one", "type": "Mul", "inputs": ["x", "w"], "outputs": ["m"]},
    {"name": "two", "type": "Mul", "inputs": ["b", "w"], "outputs": ["n"]},
    {"name": "sum", "type": "Add", "inputs": ["m", "n"], "outputs": ["s"]}]})"));
  const auto run_with = [&](const json& two) {
    json operators = {{"one", {{"in_strategy", {{2, 4}, {2, 4}}}}}};
    if (!two.is_null()) operators["two"] = {{"in_strategy", two}};
    const std::string file = write_file(
        folder, "c.json", {{"schema", "meshplan.constraints/1.0"}, {"operators", operators}});
    return propagate(graph,
                     {"--devices",
                      "8",
                      "--mesh",
                      "dp=2,tp=4",
                      "--mode",
                      "inference",
                      "--constraints",
                      file,
                      "-o",
                      folder.file("p.json")});
  };
  const ProgramRun free = run_with({});
  INFO(free.err);
  REQUIRE(free.exit_code == 0);
  const json plan = json::parse(test::file_text(folder.file("p.json")));
  CHECK(operators_of(plan).at("two").at("in_strategy") == json::parse("[[2, 4], [2, 4]]"));
  CHECK(run_with(json::parse("[[2, 4], [2, 4]]")).exit_code == 0);
  const ProgramRun clash = run_with(json::parse("[[4, 2], [4, 2]]"));
  CHECK(clash.exit_code == 3);
  const ProgramRun other = run_with(json::parse("[[8, 1], [8, 1]]"));
  CHECK(other.exit_code == 3);
  CHECK(other.err.find("share parameter \"w\"") != std::string::npos);
  CHECK(other.err.find("/operators/one/in_strategy") != std::string::npos);
  CHECK(other.err.find("/operators/two/in_strategy") != std::string::npos);
}

TEST_CASE("Cuts that others get are those of MindSpore's propagation") {
  const TemporaryFolder folder;
  std::ifstream data(std::string(MESHPLAN_TEST_DATA) + "/propagation_strategy_cases.json");
  const json file = json::parse(data);
  for (const json& one : file.at("cases")) {
    INFO(one.at("id"));
    const std::string graph = write_file(folder, "graph.json", one.at("graph"));
    const std::string given = write_file(folder, "c.json", one.at("constraints"));
    for (const std::string policy : {"rules", "cost"}) {
      const ProgramRun run = propagate(graph,
                                       {"--devices",
                                        std::to_string(one.at("devices").get<int>()),
                                        "--mode",
                                        "inference",
                                        "--constraints",
                                        given,
                                        "--policy",
                                        policy,
                                        "-o",
                                        folder.file("p.json")});
      INFO(policy << ": " << run.err);
      REQUIRE(run.exit_code == 0);
      const json plan = json::parse(test::file_text(folder.file("p.json")));
      auto ops = operators_of(plan);
      for (const auto& [name, fixed] : one.at("constraints").at("operators").items()) {
        if (fixed.contains("in_strategy"))
          CHECK(ops.at(name).at("in_strategy") == fixed.at("in_strategy"));
      }
      // prices may speak for another way
      if (policy != "rules" || !one.contains("strategies")) continue;
      for (const auto& [name, cuts] : one.at("strategies").items())
        CHECK(ops.at(name).at("in_strategy") == cuts);
      if (one.contains("same")) CHECK(plan.at("redistributions").empty());
    }
  }
  for (const json& one : file.at("skipped")) CHECK(one.at("reason").get<std::string>().size() > 30);
  CHECK(file.at("cases").size() + file.at("skipped").size() == 17);
}

TEST_CASE("Without constraints the batch is cut, and memory decides what more") {
  const TemporaryFolder folder;
  const json plan = planned(folder, kMlp, {"--devices", "8", "--mesh", "dp=8"});
  bool from_batch = false;
  for (const auto& [name, tensor] : plan.at("tensors").items())
    from_batch = from_batch || tensor.at("reason") == "batch";
  CHECK(from_batch);
  // 24 devices and every mesh
  planned(folder, kMlp, {"--devices", "24"});
  // so little memory that the batch alone does not do
  const ProgramRun none = propagate(kMlp, {"--devices", "8", "--memory-limit", "1KiB"});
  CHECK(none.exit_code == 4);
}

TEST_CASE("The order of the document and the number of threads change no byte of the plan") {
  const TemporaryFolder folder;
  json document = small_mlp();
  const std::string file = write_file(folder, "c.json", constraints(kMegatron));
  const std::string graph = folder.file("graph.json");
  for (const std::string policy : {"cost", "rules"}) {
    std::vector<std::string> texts;
    for (const bool reversed : {false, true}) {
      json changed = document;
      if (reversed) std::reverse(changed.at("operators").begin(), changed.at("operators").end());
      std::ofstream(graph) << changed.dump();
      for (const std::string threads : {"1", "3"}) {
        planned(
            folder,
            graph,
            {"--devices", "8", "--constraints", file, "--policy", policy, "--threads", threads});
        texts.push_back(test::file_text(folder.file("plan.json")));
      }
    }
    for (const std::string& text : texts) CHECK(text == texts.front());
  }
}

TEST_CASE("--prefer, --top and --policy go with propagation") {
  const TemporaryFolder folder;
  const std::string graph = write_file(folder, "graph.json", small_mlp());
  const std::string file = write_file(folder, "c.json", constraints(kMegatron));
  planned(folder, graph, {"--devices", "8", "--constraints", file}, "old.json");
  const json kept = planned(folder,
                            graph,
                            {"--devices",
                             "8",
                             "--constraints",
                             file,
                             "--prefer",
                             folder.file("old.json"),
                             "--tolerance",
                             "5%"});
  CHECK(kept.at("preference").at("kept_operators") == kept.at("preference").at("operators"));
  planned(folder, graph, {"--devices", "8", "--constraints", file, "--top", "2"});
  succeeded(test::run_program(
      {"diff", "--replan", folder.file("old.json"), "--graph", graph, "--cluster", kCluster}));
  const ProgramRun alone = test::run_program(
      {"plan", graph, "--cluster", kCluster, "--devices", "8", "--policy", "rules"});
  CHECK(alone.exit_code == 2);
  CHECK(alone.err.find("--policy: says how --search propagation decides") != std::string::npos);
  const ProgramRun unknown = propagate(graph, {"--policy", "luck"});
  CHECK(unknown.exit_code == 2);
}

}  // namespace meshplan::propagation_test

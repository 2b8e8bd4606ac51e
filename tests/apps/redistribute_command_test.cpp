// SPDX-License-Identifier: Apache-2.0
// meshplan redistribute through the real program's entry point.
#include <cstdio>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "apps/command.h"
#include "support/catch.h"

namespace meshplan::redistribute_command_test {

using nlohmann::json;

namespace {

struct Run {
  int code = 0;
  std::string out;
  std::string error;
};

/// Runs `meshplan redistribute ...` with the given standard input.
Run run(std::vector<std::string> arguments, const std::string& input = "") {
  std::vector<const char*> argv = {"meshplan", "redistribute"};
  for (const std::string& argument : arguments) argv.push_back(argument.c_str());
  std::ostringstream out;
  std::ostringstream error;
  std::istringstream in(input);
  auto* old_out = std::cout.rdbuf(out.rdbuf());
  auto* old_error = std::cerr.rdbuf(error.rdbuf());
  auto* old_in = std::cin.rdbuf(in.rdbuf());
  const int code = run_meshplan(static_cast<int>(argv.size()), argv.data());
  std::cout.rdbuf(old_out);
  std::cerr.rdbuf(old_error);
  std::cin.rdbuf(old_in);
  return {code, out.str(), error.str()};
}

json batch(const std::string& requests) {
  const Run result = run({"--batch", "-"}, requests);
  REQUIRE(result.code == kDone);
  return json::parse(result.out);
}

std::vector<std::string> collectives_of(const json& answer) {
  std::vector<std::string> names;
  for (const json& step : answer.at("steps")) names.push_back(step.at("collective"));
  return names;
}

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("A step carries all that an outsider needs to replay it") {
  const json answers = batch(R"json([
    {"mesh": {"shape": [2, 4], "axes": ["dp", "tp"]}, "shape": [8, 16], "dtype": "bf16", "policy": "cheapest",
     "from": ["S(0)", "R"], "to": ["R", "S(1)"]},
    {"mesh": {"shape": [2, 4], "axes": ["dp", "tp"]}, "shape": [8, 16], "dtype": "fp32",
     "from_map": [[0, 1], -1], "to_map": [-1, [0, 1]]},
    {"mesh": {"shape": [2, 2], "axes": ["a", "b"], "ranks": [[3, 1], [2, 0]]}, "shape": [64, 64],
     "from": ["S(0)", "S(1)"], "to": ["S(1)", "S(0)"], "verify": true},
    {"mesh": {"shape": [2, 3], "axes": ["a", "b"]}, "to_mesh": {"shape": [3, 2], "axes": ["c", "d"]}, "shape": [12],
     "from": ["S(0)", "R"], "to": ["S(0)", "R"], "verify": true}])json");
  REQUIRE(answers.size() == 4);
  CHECK(collectives_of(answers[0]) == Names{"slice", "all_gather"});
  const json& gather = answers[0]["steps"][1];
  CHECK(gather["axes"] == json{"dp"});
  CHECK(gather["groups"] == json::parse("[[0,4],[1,5],[2,6],[3,7]]"));
  CHECK(gather["dim"] == 0);
  CHECK(gather["bytes"] == 32);
  CHECK(gather["placements"] == json{"R", "S(1)"});
  CHECK(gather["tensor_map"] == json::parse("[-1,0]"));
  CHECK(answers[0]["bytes"] == 32);
  CHECK(answers[0]["time"] ==
        answers[0]["steps"][0]["time"].get<double>() + gather["time"].get<double>());

  CHECK(collectives_of(answers[1]) == Names{"all_to_all"});
  CHECK(answers[1]["steps"][0]["axes"] == json{"tp", "dp"});
  CHECK(answers[1]["steps"][0]["groups"] == json::parse("[[0,4,1,5,2,6,3,7]]"));
  CHECK(answers[1]["steps"][0]["split_dim"] == 1);
  CHECK(answers[1]["steps"][0]["concat_dim"] == 0);
  CHECK(answers[1]["steps"][0]["placements"] == json{"SS(1,4)", "S(1)"});

  CHECK(collectives_of(answers[2]) == Names{"permute"});
  CHECK(answers[2]["steps"][0]["pairs"] == json::parse("[[3,3],[2,1],[1,2],[0,0]]"));
  CHECK(answers[2]["verified"] == true);

  CHECK(collectives_of(answers[3]) == Names{"send_receive"});
  CHECK(answers[3]["steps"][0]["sends"][1] == json::parse("[1,1,[0],[0],[4]]"));
  CHECK(answers[3]["steps"][0]["mesh"]["shape"] == json{3, 2});
  CHECK(answers[3]["verified"] == true);
}

TEST_CASE(
    "An unreduced tensor becomes replicated by one all-reduce, sharded by one reduce-scatter") {
  std::string requests = "[";
  for (const char* size : {"1", "7", "1024", "1000003", "33554432"}) {
    for (const char* to : {"R", "S(0)"}) {
      requests += std::string(requests.size() > 1 ? "," : "") +
                  R"json({"mesh": {"shape": [8]}, "shape": [)json" + size +
                  R"json(], "dtype": "bf16", "from": ["P(sum)"], "to": [")json" + to + "\"]}";
    }
  }
  const json answers = batch(requests + "]");
  for (std::size_t i = 0; i < answers.size(); ++i) {
    CHECK(collectives_of(answers[i]) == Names{i % 2 == 0 ? "all_reduce" : "reduce_scatter"});
  }
}

TEST_CASE("Policies and clusters change the sequence and its price") {
  const json answers = batch(R"json([
    {"mesh": {"shape": [2, 4], "axes": ["dp", "tp"]}, "shape": [8, 16], "policy": "hyper-parallel",
     "from_map": [1, 0], "to_map": [0, 1]},
    {"mesh": {"shape": [4, 2, 4], "axes": ["x", "y", "z"]}, "shape": [16, 8], "policy": "shardy",
     "from_map": [0, 1], "to_map": [[1, 0], 2]},
    {"mesh": {"shape": [2, 2, 2], "axes": ["x", "y", "z"]}, "shape": [4, 10], "policy": "shardy",
     "from_map": [-1, [2, 0]], "to_map": [[2, 1, 0], -1]},
    {"mesh": {"shape": [2, 8], "axes": ["dp", "tp"]}, "shape": [4096, 4096], "from": ["S(0)", "R"], "to": ["R", "R"]},
    {"mesh": {"shape": [2, 8], "axes": ["dp", "tp"]}, "shape": [4096, 4096], "from": ["S(0)", "R"], "to": ["R", "R"],
     "cluster": "dgx-a100-80g"}])json");
  CHECK(collectives_of(answers[0]) == Names{"all_gather", "all_to_all", "slice"});
  CHECK(collectives_of(answers[1]) == Names{"slice", "slice", "permute"});
  CHECK(answers[1]["steps"][0]["axes"] == json{"x:(2)2"});
  CHECK(answers[1]["steps"][0]["mesh"]["axes"] == json{"x:(1)2", "x:(2)2", "y", "z"});
  CHECK(answers[2]["padded_shape"] == json{8, 12});
  CHECK(collectives_of(answers[3]) == Names{"all_gather"});
  CHECK(answers[3]["time"] != answers[4]["time"]);
}

TEST_CASE("A bad request is answered by its fault and does not stop the others") {
  const json answers = batch(R"json([
    {"mesh": {"shape": [2, 4]}, "shape": [8], "from": ["S(0)", "R"], "to": ["R", "S(7)"]},
    {"mesh": {"shape": [2, 4]}, "shape": [8], "from": ["S(0)", "R"]},
    {"mesh": {"shape": [2]}, "shape": [8], "from": ["P(sum)"], "to": ["P(max)"]},
    {"mesh": {"shape": [2]}, "shape": [8], "from": ["P(all)"], "to": ["R"]},
    {"mesh": {"shape": [2]}, "shape": [8], "from": ["R"], "from_map": [-1], "to": ["R"]},
    {"mesh": {"shape": [2]}, "shape": [8], "from": ["R"], "to": ["R"], "dtype": "bf61"},
    {"mesh": {"shape": [2]}, "shape": [8], "from": ["R"], "to": ["R"], "policy": "cheap"},
    {"mesh": {"shape": [2]}, "shape": [8], "from": ["R"], "to": ["R"], "cluster": "no-such-cluster"},
    {"mesh": {"shape": [2]}, "shape": [-8], "from": ["R"], "to": ["R"]},
    {"mesh": {"shape": [2]}, "shape": [8], "from": ["R"], "to": ["R"], "colour": 1},
    {"mesh": {"shape": [1099511627776]}, "shape": [8], "from": ["R"], "to": ["R"]},
    {"mesh": {"shape": [2, 2]}, "shape": [6], "from": ["S(0)", "S(0)"], "to": ["R", "R"]},
    {"mesh": {"shape": [2]}, "shape": [9223372036854775807], "dtype": "fp32", "from": ["R"], "to": ["S(0)"]},
    7,
    {"mesh": {"shape": [2]}, "shape": [8], "from": ["S(0)"], "to": ["S(0)"]},
    {"mesh": {"shape": [2]}, "shape": [8], "from_map": [0], "from_partial": ["sum"], "to": ["R"]},
    {"mesh": {"shape": [2]}, "to_mesh": {"shape": [3]}, "shape": [8], "from": ["R"], "to": ["S(1)"]},
    {"mesh": {"shape": [2]}, "shape": [99999999], "from": ["R"], "to": ["S(0)"], "verify": true}])json");
  REQUIRE(answers.size() == 18);
  const auto fault = [&](std::size_t i) {
    const json& error = answers[i].at("error");
    CHECK_FALSE(error.at("message").get<std::string>().empty());
    return error.at("code").get<std::string>() + " " + error.at("where").get<std::string>();
  };
  CHECK(fault(0) == "value /0/to/1");
  CHECK(fault(1) == "missing /1");
  CHECK(fault(2) == "conflict /2/to/0");
  CHECK(fault(3) == "value /3/from/0");
  CHECK(fault(4) == "conflict /4/from_map");
  CHECK(fault(5) == "value /5/dtype");
  CHECK(fault(6) == "value /6/policy");
  CHECK(fault(7) == "value /7/cluster");
  CHECK(fault(8) == "value /8/shape/0");
  CHECK(fault(9) == "value /9/colour");
  CHECK(fault(10) == "unsupported /10/mesh");
  CHECK(fault(11) == "value /11/from");
  CHECK(fault(12) == "overflow /12/shape");
  CHECK(fault(13) == "type /13");
  CHECK(fault(15) == "conflict /15/from_partial/0");
  CHECK(fault(16) == "value /16/to/0");
  CHECK(fault(17) == "unsupported /17");
  CHECK(answers[14]["steps"].empty());
  CHECK(answers[14]["time"] == 0.0);
}

TEST_CASE("The command line prints a table, verifies, and names the option at fault") {
  const std::vector<std::string> good = {
      "--mesh", "dp=2,tp=4", "--shape", "8,16", "--from", "S(0),P(sum)", "--to", "R,S(1)"};
  auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), good.begin(), good.end());
    return more;
  };
  const Run text = run(with({"--verify"}));
  CHECK(text.code == kDone);
  CHECK(text.out.find("reduce_scatter  sum dim 1 over tp") != std::string::npos);
  CHECK(text.out.find("verified on virtual devices") != std::string::npos);
  CHECK(run(with({"--format", "markdown"})).out.starts_with("| step |"));
  CHECK(json::parse(run(with({"--format", "json"})).out).at("steps").size() == 2);
  const Run map =
      run({"--mesh", "2,4", "--shape", "8,16", "--from-map", "(1,0),-1", "--to-map", "1,0"});
  CHECK(map.code == kDone);
  CHECK(map.out.find("all_to_all") != std::string::npos);
  CHECK(run({"--mesh", "dp=2", "--shape", "", "--from", "P(sum)", "--to", "R"}).code == kDone);
  const Run between = run({"--mesh",
                           "a=2,b=4",
                           "--to-mesh",
                           "c=4,d=2",
                           "--shape",
                           "16",
                           "--from",
                           "S(0),R",
                           "--to",
                           "S(0),S(0)",
                           "--verify"});
  CHECK(between.code == kDone);

  const auto refused = [](const std::vector<std::string>& arguments, const std::string& option) {
    const Run result = run(arguments);
    CHECK(result.code == kUsageError);
    CHECK(result.out.empty());
    INFO(result.error);
    CHECK(result.error.find(option) != std::string::npos);
  };
  refused({}, "--mesh");
  refused({"--mesh", "dp=0", "--shape", "8", "--from", "R", "--to", "R"}, "--mesh");
  refused({"--mesh", "dp=2", "--shape", "8,x", "--from", "R", "--to", "R"}, "--shape");
  refused({"--mesh", "dp=2", "--shape", "8", "--from", "S(3)", "--to", "R"}, "--from");
  refused({"--mesh", "dp=2", "--shape", "8", "--from", "R", "--to", "Q"}, "--to");
  refused({"--mesh", "dp=2", "--shape", "8", "--from", "R"}, "--to");
  refused({"--mesh", "dp=2", "--shape", "8", "--from", "P(sum)", "--to", "P(max)"}, "--to");
  refused({"--mesh", "dp=2", "--shape", "8", "--from", "R", "--to", "R", "--dtype", "int3"},
          "--dtype");
  refused({"--mesh", "dp=2", "--shape", "8", "--from", "R", "--to", "R", "--policy", "best"},
          "--policy");
  refused({"--mesh", "dp=2", "--shape", "8", "--from-map", "5", "--to", "R"}, "--from-map");
  refused({"--mesh", "dp=2", "--ranks", "[0,0]", "--shape", "8", "--from", "R", "--to", "R"},
          "--ranks");
  refused({"--mesh", "dp=2", "--ranks", "[0,1.5]", "--shape", "8", "--from", "R", "--to", "R"},
          "--ranks: expected an integer, found a number 1.5");
  refused({"--mesh", "dp=2", "--ranks", "[0", "--shape", "8", "--from", "R", "--to", "R"},
          "--ranks");
  refused({"--mesh", "dp=2", "--shape", "8,", "--from", "R", "--to", "R"},
          "--shape: \"8,\" cannot be read; expected e.g. 8,16");
  refused({"--mesh", "dp=2", "--shape", "8", "--from-map", "[0", "--to", "R"},
          "--from-map: \"[0\"");
  refused({"--mesh", "dp=2", "--shape", "99999999999", "--from", "R", "--to", "R", "--verify"},
          "--verify");

  CHECK(run({"--batch", "/no/such/file"}).code == kInputError);
  CHECK(run({"--batch", "-"}, "{").code == kInputError);
  CHECK(run({"--batch", "-"}, "{}").code == kInputError);
  CHECK(run({"--batch", "-"}, "[]").out == "[]\n");
  CHECK(run(with({"--cluster", "/no/such/cluster.json"})).code == kInputError);
}

TEST_CASE("The answer is the same whatever was asked before") {
  const std::string one =
      R"json({"mesh": {"shape": [2, 2, 2], "axes": ["a", "b", "c"]}, "shape": [16, 16],
                              "from": ["S(0)", "S(0)", "S(1)"], "to": ["S(1)", "R", "S(0)"]})json";
  const std::string other =
      R"json({"mesh": {"shape": [2, 2, 2], "axes": ["a", "b", "c"]}, "shape": [16, 16],
                                "from": ["S(1)", "R", "S(0)"], "to": ["P(sum)", "S(1)", "S(0)"]
})json";
  const json alone = batch("[" + one + "]");
  const json after = batch("[" + other + "," + other + "," + one + "]");
  CHECK(alone[0] == after[2]);
}

}  // namespace meshplan::redistribute_command_test

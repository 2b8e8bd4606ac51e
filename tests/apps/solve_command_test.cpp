// SPDX-License-Identifier: Apache-2.0
// meshplan solve as a user calls it: results, exit codes, determinism, --check.
#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "support/catch.h"
#include "support/random.h"
#include "support/run_program.h"

namespace meshplan::solve_command_test {
namespace {

using nlohmann::json;
using test::run_program;
using test::TemporaryFolder;

const char* const kExample = R"json({"problem": {"name": "example",
 "nodes": {"intervals": [[30, 70], [40, 70], [50, 120], [110, 140], [110, 150]],
           "costs": [[15], [55, 65], [25, 45, 35], [85, 75], [95]],
           "usages": [[10], [25, 25], [15, 20, 15], [10, 10], [15]]},
 "edges": {"nodes": [[0, 1], [0, 2], [1, 3], [2, 4], [3, 4]],
           "costs": [[30, 40], [50, 10, 40], [90, 10, 20, 80], [60, 20, 30], [70, 60]]},
 "usage_limit": LIMIT}})json";

std::string example(const std::string& limit) {
  std::string text = kExample;
  return text.replace(text.find("LIMIT"), 5, limit);
}

std::string last_line(std::string text) {
  if (!text.empty() && text.back() == '\n') text.pop_back();
  const std::size_t newline = text.rfind('\n');
  return newline == std::string::npos ? text : text.substr(newline + 1);
}

/// A ladder of nodes with a binding limit: too large for a complete search.
std::string ladder(int nodes) {
  test::Random random(11);
  json intervals = json::array();
  json costs = json::array();
  json usages = json::array();
  json ends = json::array();
  json tables = json::array();
  for (int v = 0; v < nodes; ++v) {
    intervals.push_back({v, v + random.between(2, 9)});
    json cost = json::array();
    json usage = json::array();
    for (int s = 0; s < 4; ++s) {
      cost.push_back(random.between(0, 1000));
      usage.push_back(random.between(1, 1000));
    }
    costs.push_back(cost);
    usages.push_back(usage);
    for (const int back : {1, 4}) {
      if (v < back) continue;
      json table = json::array();
      for (int i = 0; i < 16; ++i)
        table.push_back(random.chance(5) ? 1000000000000000000 : random.between(0, 2000));
      ends.push_back({v - back, v});
      tables.push_back(table);
    }
  }
  const json document = {
      {"problem",
       {{"name", "ladder"},
        {"nodes", {{"intervals", intervals}, {"costs", costs}, {"usages", usages}}},
        {"edges", {{"nodes", ends}, {"costs", tables}}},
        {"usage_limit", 2600}}}};
  return document.dump();
}

TEST_CASE("solve prints cost, bound and gap, and ends with the assignment") {
  const TemporaryFolder folder;
  const std::string path = folder.write("g.json", example("50"));
  const auto run = run_program({"solve", path});
  CHECK(run.exit_code == 0);
  CHECK(run.err.empty());
  CHECK(run.out.find("result       optimal") != std::string::npos);
  CHECK(run.out.find("cost         445") != std::string::npos);
  CHECK(run.out.find("lower bound  445, gap 0") != std::string::npos);
  CHECK(run.out.find("peak usage   50 of 50 at moment 50") != std::string::npos);
  CHECK(last_line(run.out) == "[0, 0, 2, 1, 0]");
  const auto from_input = run_program({"solve", "-"}, example("50"));
  CHECK(from_input.out == run.out);
}

TEST_CASE("solve as JSON has what is read from outside") {
  const TemporaryFolder folder;
  const std::string path = folder.write("g.json", example("50"));
  const std::string out = folder.file("result.json");
  const auto run = run_program({"solve", path, "--format", "json", "-o", out, "--time-limit", "5"});
  CHECK(run.exit_code == 0);
  CHECK(run.out.empty());
  const json result = json::parse(test::file_text(out));
  CHECK(result["cost"] == 445);
  CHECK(result["lower_bound"] == 445);
  CHECK(result["gap"] == 0.0);
  CHECK(result["feasible"] == true);
  CHECK(result["status"] == "optimal");
  CHECK(result["peak_usage"] == 50);
  CHECK(result["usage_limit"] == 50);
  CHECK(result["assignment"] == json({0, 0, 2, 1, 0}));
  CHECK(result["phases"].contains("first_feasible_seconds"));
  const auto check = run_program({"solve", path, "--check", out});
  CHECK(check.exit_code == 0);
}

TEST_CASE("numbers beyond 2^53 are written as texts too") {
  const std::string text = R"json({"problem": {"nodes": {"intervals": [[0, 1], [0, 1]],
    "costs": [[999999999999999999], [7]], "usages": [[9007199254740993], [0]]},
    "edges": {"nodes": [], "costs": []}, "usage_limit": 9223372036854775807}})json";
  const auto run = run_program({"solve", "-", "--format", "json"}, text);
  REQUIRE(run.exit_code == 0);
  const json result = json::parse(run.out);
  CHECK(result["cost_text"] == "1000000000000000006");
  CHECK(result["cost"] == 1000000000000000006);
  CHECK(result["peak_usage_text"] == "9007199254740993");
  CHECK(result["usage_limit_text"] == "9223372036854775807");
  CHECK(result["lower_bound"].get<double>() <= 1000000000000000006.0);
}

TEST_CASE("an impossible limit is exit code 4 with its proof") {
  const auto text = run_program({"solve", "-"}, example("49"));
  CHECK(text.exit_code == 4);
  CHECK(text.out.empty());
  CHECK(text.err.find("no assignment fits the usage limit of 49") != std::string::npos);
  CHECK(text.err.find("at least 50, 1 more") != std::string::npos);
  const TemporaryFolder folder;
  const std::string out = folder.file("result.json");
  const auto run = run_program({"solve", "-", "--format", "json", "-o", out}, example("20"));
  CHECK(run.exit_code == 4);
  CHECK(test::file_text(out).empty());
  const json result = json::parse(run.out);
  CHECK(result["feasible"] == false);
  CHECK(result["status"] == "infeasible");
  CHECK(result["cost"].is_null());
  CHECK(result["assignment"].is_null());
  CHECK(result["least_usage"] == 50.0);
  const auto forbidden = run_program(
      {"solve", "-"},
      R"json({"problem": {"nodes": {"intervals": [[0, 1]], "costs": [[1000000000000000000]],
              "usages": [[1]]}, "edges": {"nodes": [], "costs": []}}})json");
  CHECK(forbidden.exit_code == 4);
  CHECK(forbidden.err.find("every assignment uses a forbidden") != std::string::npos);
}

TEST_CASE("--check evaluates an assignment, exit code 5 where it is not feasible") {
  const TemporaryFolder folder;
  const std::string path = folder.write("g.json", example("50"));
  const auto good = run_program({"solve", path, "--check", "[0, 1, 2, 0, 0]"});
  CHECK(good.exit_code == 0);
  CHECK(good.out.find("cost         495") != std::string::npos);
  const auto over = run_program({"solve", path, "--check", "[0,0,1,1,0]"});
  CHECK(over.exit_code == 5);
  CHECK(over.out.find("over limit   by 5") != std::string::npos);
  const auto as_json = run_program({"solve", path, "--check", "[0,0,1,1,0]", "--format", "json"});
  CHECK(as_json.exit_code == 5);
  const json result = json::parse(as_json.out);
  CHECK(result["feasible"] == false);
  CHECK(result["cost"] == 415);
  CHECK(result["peak_usage"] == 55);
  CHECK(run_program({"solve", path, "--check", "[0,0,9,1,0]"}).exit_code == 3);
  CHECK(run_program({"solve", path, "--check", "[0,0]"}).exit_code == 3);
  CHECK(run_program({"solve", path, "--check", folder.file("none")}).exit_code == 3);
  // what solve prints is what --check reads
  const auto solved = run_program({"solve", path});
  const auto again = run_program({"solve", path, "--check", folder.write("a.txt", solved.out)});
  CHECK(again.exit_code == 0);
  CHECK(again.out.find("cost         445") != std::string::npos);
}

TEST_CASE("wrong files and wrong options end with 3 and 2") {
  CHECK(run_program({"solve", "-"}, "{").exit_code == 3);
  CHECK(run_program({"solve", "/nowhere/at/all.json"}).exit_code == 3);
  const auto fault = run_program({"solve", "-"}, R"json({"problem": {"nodes": 1}})json");
  CHECK(fault.exit_code == 3);
  CHECK(fault.err.find("standard input: /problem/nodes: expected an object") != std::string::npos);
  CHECK(run_program({"solve"}).exit_code == 2);
  CHECK(run_program({"solve", "-", "--time-limit", "0"}).exit_code == 2);
  CHECK(run_program({"solve", "-", "--time-limit", "soon"}).exit_code == 2);
  CHECK(run_program({"solve", "-", "--iterations", "-1"}).exit_code == 2);
  CHECK(run_program({"solve", "--help"}).out.find("--time-limit") != std::string::npos);
}

TEST_CASE("with a number of iterations the bytes are the same on any number of threads") {
  const TemporaryFolder folder;
  const std::string path = folder.write("ladder.json", ladder(60));
  for (const std::string format : {"text", "json"}) {
    const std::vector<std::string> arguments = {
        "solve", path, "--iterations", "1", "--seed", "3", "--format", format};
    std::vector<std::string> with_one = arguments;
    with_one.insert(with_one.end(), {"--threads", "1"});
    std::vector<std::string> with_four = arguments;
    with_four.insert(with_four.end(), {"--threads", "4"});
    const auto one = run_program(with_one);
    const auto four = run_program(with_four);
    CHECK(one.exit_code == 0);
    CHECK(one.out == four.out);
  }
}

TEST_CASE("the bound is below the cost, and the evaluator agrees with what is printed") {
  const TemporaryFolder folder;
  const std::string path = folder.write("ladder.json", ladder(60));
  const std::string out = folder.file("r.json");
  const auto run = run_program({"solve", path, "--iterations", "3", "--format", "json", "-o", out});
  REQUIRE(run.exit_code == 0);
  const json result = json::parse(test::file_text(out));
  CHECK(result["lower_bound"] <= result["cost"]);
  CHECK(result["peak_usage"] <= 2600);
  CHECK(result["gap"].get<double>() < 0.2);
  const auto check = run_program({"solve", path, "--check", out, "--format", "json"});
  CHECK(check.exit_code == 0);
  CHECK(json::parse(check.out)["cost"] == result["cost"]);
  CHECK(json::parse(check.out)["peak_usage"] == result["peak_usage"]);
}

TEST_CASE("options of solve that say nothing are refused") {
  const TemporaryFolder folder;
  const std::string file = folder.write("graph.json", example("100"));
  for (const std::vector<std::string>& options : std::vector<std::vector<std::string>>{
           {file, "--time-limit", "nan"}, {file, "--check", ""}, {"-", "--check", "-"}}) {
    std::vector<std::string> words = options;
    words.insert(words.begin(), "solve");
    const auto run = run_program(words, example("100"));
    INFO(options.back() << ": " << run.err);
    CHECK(run.exit_code == 2);
    CHECK(run.out.empty());
    CHECK(run.err.find("meshplan: error: ") == 0);
  }
}

TEST_CASE("a result may be written over the graph that it is the result of") {
  const TemporaryFolder folder;
  const std::string file = folder.write("graph.json", example("100"));
  REQUIRE(run_program({"solve", file, "-o", file, "--format", "json"}).exit_code == 0);
  CHECK(json::parse(test::file_text(file)).at("status") == "optimal");
}

}  // namespace
}  // namespace meshplan::solve_command_test

// SPDX-License-Identifier: Apache-2.0
// The integer program that plan writes, solved by CBC where it is installed (Debian: coinor-cbc):
// its optimum is that of solve on the same problem in our own format, and no plan is better.
#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>
#include <unistd.h>

#include "support/catch.h"
#include "support/run_program.h"

namespace meshplan::integer_program_test {
namespace {

using nlohmann::json;

constexpr const char* kCbc = "/usr/bin/cbc";
constexpr const char* kGraph = MESHPLAN_SOURCE_DIR "/examples/mlp/graph.json";

std::vector<std::string> plan_words(const std::string& limit) {
  return {"plan",
          kGraph,
          "--cluster",
          "dgx-a100-80g",
          "--devices",
          "4",
          "--mesh",
          "a=2,b=2",
          "--format",
          "json",
          "--memory-limit",
          limit};
}

/// The plan, and the problem in a file.
json planned(const std::string& limit, const std::string& file, const std::string& format) {
  std::vector<std::string> words = plan_words(limit);
  words.insert(words.end(), {"--dump-cost-graph", file, "--cost-graph-format", format});
  const test::ProgramRun run = test::run_program(words);
  INFO(run.err);
  REQUIRE(run.exit_code == 0);
  return json::parse(run.out);
}

TEST_CASE("CBC finds the optimum of solve in the integer program, with and without a limit") {
  if (::access(kCbc, X_OK) != 0) {
    WARN("CBC is not installed; nothing compared");
    return;
  }
  const test::TemporaryFolder folder;
  const json free = json::parse(test::run_program(plan_words("1TiB")).out);
  const auto peak = free.at("memory").at("peak").get<std::int64_t>();
  double before = 0;
  for (const std::string& limit : {std::string("1TiB"), std::to_string(peak / 1000 * 949)}) {
    INFO("limit " << limit);
    const std::string program = folder.file("program.lp");
    const std::string own = folder.file("own.json");
    const std::string answer = folder.file("answer.txt");
    const json plan = planned(limit, program, "lp");
    planned(limit, own, "own");
    const json solved = json::parse(test::run_program({"solve", own, "--format", "json"}).out);
    REQUIRE(solved.at("status") == "optimal");
    const test::ProgramRun cbc = test::run_program(
        {program, "-solve", "-solution", answer}, "", std::chrono::seconds(300), kCbc);
    REQUIRE(cbc.exit_code == 0);
    const std::string text = test::file_text(answer);
    INFO(text.substr(0, 200));
    REQUIRE(text.rfind("Optimal - objective value ", 0) == 0);
    const double optimum = std::ldexp(std::strtod(text.c_str() + 26, nullptr), -20);
    CHECK(solved.at("cost").get<double>() == Approx(optimum).epsilon(1e-6));
    const json& result = plan.at("result");
    CHECK(result.at("objective").get<double>() >= solved.at("cost").get<double>());
    CHECK(result.at("lower_bound").get<double>() <= solved.at("cost").get<double>());
    if (result.at("status") == "optimal") CHECK(result.at("objective") == solved.at("cost"));
    CHECK(optimum > before);  // the limit binds
    before = optimum;
  }
}

}  // namespace
}  // namespace meshplan::integer_program_test

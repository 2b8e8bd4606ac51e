// SPDX-License-Identifier: Apache-2.0
// plan --prefer and --tolerance, as a user calls them.
#include <algorithm>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "support/catch.h"
#include "support/run_program.h"

namespace meshplan::prefer_test {
namespace {

using nlohmann::json;
using test::ProgramRun;
using test::TemporaryFolder;

const std::string kGraph = std::string(MESHPLAN_SOURCE_DIR) + "/examples/mlp/graph.json";
const std::string kCluster = "dgx-a100-80g";

ProgramRun plan(std::vector<std::string> options, const std::string& graph = kGraph) {
  options.insert(options.begin(), {"plan", graph, "--cluster", kCluster});
  return test::run_program(options);
}

/// Plans into a file of the folder, and checks what was written.
json planned(const TemporaryFolder& folder,
             const std::string& name,
             std::vector<std::string> options,
             const std::string& graph = kGraph) {
  const std::string file = folder.file(name);
  options.insert(options.end(), {"-o", file});
  if (std::find(options.begin(), options.end(), "--devices") == options.end())
    options.insert(options.end(), {"--devices", "8"});
  const ProgramRun run = plan(options, graph);
  INFO(run.err);
  REQUIRE(run.exit_code == 0);
  const ProgramRun check =
      test::run_program({"check", file, "--graph", graph, "--cluster", kCluster});
  INFO(check.out << check.err);
  REQUIRE(check.exit_code == 0);
  return json::parse(test::file_text(file));
}

double objective(const json& plan) { return plan.at("result").at("objective").get<double>(); }

TEST_CASE("--prefer keeps an old plan that costs little more, mesh, names and all") {
  const TemporaryFolder folder;
  const json best = planned(folder, "best.json", {});
  const json old = planned(folder, "old.json", {"--mesh", "left=8"});
  REQUIRE(objective(old) > objective(best));
  const double worse = objective(old) / objective(best) - 1;
  const std::string enough = std::to_string(100 * worse * 1.01) + "%";
  const json kept =
      planned(folder, "kept.json", {"--prefer", folder.file("old.json"), "--tolerance", enough});
  CHECK(objective(kept) == objective(old));
  CHECK(kept.at("mesh") == old.at("mesh"));
  CHECK(kept.at("operators") == old.at("operators"));
  const json& preference = kept.at("preference");
  CHECK(preference.at("best_objective") == best.at("result").at("objective"));
  CHECK(preference.at("kept_operators") == preference.at("operators"));
  CHECK(preference.at("operators").get<int>() > 0);
  CHECK(preference.at("kept_parameters") == preference.at("parameters"));
  CHECK(preference.at("parameters").get<int>() > 0);
  CHECK(kept.at("result").at("lower_bound") == best.at("result").at("lower_bound"));
  CHECK(kept.at("options").at("prefer") == folder.file("old.json"));
  // with nothing allowed the best plan stands, and says what it keeps
  const json strict =
      planned(folder, "strict.json", {"--prefer", folder.file("old.json"), "--tolerance", "0"});
  CHECK(objective(strict) == objective(best));
  CHECK(strict.at("operators") == best.at("operators"));
  CHECK(strict.at("notes").dump().find("earlier plan") != std::string::npos);
  // an old plan that is the best one is all kept, also over its own file
  const json same = planned(folder, "best.json", {"--prefer", folder.file("best.json")});
  CHECK(same.at("operators") == best.at("operators"));
  CHECK(same.at("preference").at("kept_operators") == same.at("preference").at("operators"));
  CHECK(same.at("options").at("tolerance") == 0.01);
}

TEST_CASE("the summary says how many operators are placed as before and what that costs") {
  const TemporaryFolder folder;
  planned(folder, "old.json", {"--mesh", "left=8"});
  const ProgramRun run = plan(
      {"--devices", "8", "--prefer", folder.file("old.json"), "--tolerance", "900%", "--quiet"});
  INFO(run.err);
  REQUIRE(run.exit_code == 0);
  const std::size_t at = run.out.find("  preference  ");
  REQUIRE(at != std::string::npos);
  const std::string line = run.out.substr(at, run.out.find('\n', at) - at);
  INFO(line);
  CHECK(line.find("operators and") != std::string::npos);
  CHECK(line.find("parameters placed as before, which costs") != std::string::npos);
  CHECK(line.find("%") != std::string::npos);
  CHECK(run.out.find("left=8") != std::string::npos);
}

TEST_CASE("an old plan of a changed graph counts for the operators that are left") {
  const TemporaryFolder folder;
  planned(folder, "old.json", {"--mesh", "left=8"});
  json graph = json::parse(test::file_text(kGraph));
  json& first = graph.at("operators").at(0);
  first["name"] = "renamed";
  const std::string file = folder.write("graph.json", graph.dump());
  const json made = planned(
      folder, "new.json", {"--prefer", folder.file("old.json"), "--tolerance", "900%"}, file);
  const json same =
      planned(folder, "same.json", {"--prefer", folder.file("old.json"), "--tolerance", "900%"});
  const int all = same.at("preference").at("operators").get<int>();
  CHECK(same.at("preference").at("kept_operators") == all);
  CHECK(made.at("preference").at("operators") == all - 1);
  CHECK(made.at("preference").at("kept_operators") == all - 1);
}

TEST_CASE("an old plan of another machine keeps nothing, and the plan says why") {
  const TemporaryFolder folder;
  planned(folder, "old.json", {"--devices", "16"});
  const json made = planned(folder, "new.json", {"--prefer", folder.file("old.json")});
  CHECK(made.at("preference").at("kept_operators") == 0);
  CHECK(made.at("notes").dump().find("mesh") != std::string::npos);
  // a mesh that is given is not changed for an old plan
  planned(folder, "old2.json", {"--mesh", "a=4,b=2"});
  const json given =
      planned(folder,
              "given.json",
              {"--mesh", "a=2,b=4", "--prefer", folder.file("old2.json"), "--tolerance", "900%"});
  CHECK(given.at("mesh").at("shape") == json({2, 4}));
  CHECK(given.at("preference").at("kept_operators") == 0);
}

TEST_CASE("wrong preferences and tolerances are refused") {
  const TemporaryFolder folder;
  planned(folder, "old.json", {});
  const std::string old = folder.file("old.json");
  const auto expect = [&](std::vector<std::string> options, int code, const char* word) {
    options.insert(options.end(), {"--devices", "8"});
    const ProgramRun run = plan(options);
    INFO(run.err);
    CHECK(run.exit_code == code);
    CHECK(run.out.empty());
    CHECK(run.err.find(word) != std::string::npos);
    CHECK(std::count(run.err.begin(), run.err.end(), '\n') == 1);
  };
  expect({"--tolerance", "1%"}, 2, "--prefer");
  expect({"--prefer", old, "--tolerance=-1%"}, 2, "--tolerance");
  expect({"--prefer", old, "--tolerance", "1 %%"}, 2, "--tolerance");
  expect({"--prefer", old, "--tolerance", "nan"}, 2, "--tolerance");
  expect({"--prefer", old, "--tolerance", "1e400"}, 2, "--tolerance");
  expect({"--prefer", old, "--tolerance", "5GB"}, 2, "--tolerance");
  expect({"--prefer", old, "--top", "2"}, 2, "--top");
  expect({"--prefer", "-", "--constraints", "-"}, 2, "standard input");
  expect({"--prefer", folder.file("none.json")}, 3, "none.json");
  expect({"--prefer", folder.path().string()}, 3, "folder");
  expect({"--prefer", kGraph}, 3, "schema");
  expect(
      {"--prefer", folder.write("cut.json", test::file_text(old).substr(0, 700))}, 3, "cut.json");
  expect({"--prefer", folder.write("bytes.json", "{\"schema\": \"\xff\xfe\"}")}, 3, "bytes.json");
  json empty = json::parse(test::file_text(old));
  empty["operators"] = json::array();
  empty.erase("order");
  expect({"--prefer", folder.write("empty.json", empty.dump())}, 3, "/operators");
  json wrong = json::parse(test::file_text(old));
  wrong["preference"] = {{"tolerance", 0.1}};
  expect({"--prefer", folder.write("wrong.json", wrong.dump())}, 3, "best_objective");
}

}  // namespace
}  // namespace meshplan::prefer_test

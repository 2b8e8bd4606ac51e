// SPDX-License-Identifier: Apache-2.0
#include "plan/located_findings.h"

#include <nlohmann/json.hpp>

#include "plan/check_plan.h"
#include "plan/planned.h"
#include "support/catch.h"

namespace meshplan::located_findings_test {
namespace {

using testing::plan_case;
using testing::Planned;

TEST_CASE("findings are about the lines of the document, equal layers about one") {
  const Planned planned = plan_case({});
  auto document = nlohmann::json::parse(write_plan(planned.plan));
  std::size_t line = 0;
  std::string pattern;
  for (; line < document["operators"].size(); ++line) {
    pattern = document["operators"][line]["name"];
    if (pattern.find("{0..1}") != std::string::npos) break;
  }
  REQUIRE(line < document["operators"].size());
  document["operators"][line]["compute_time"] = 1.0;
  std::string key;
  for (const auto& [name, tensor] : document["tensors"].items()) {
    if (name.find("{0..1}") != std::string::npos && name.find("weight") != std::string::npos)
      key = name;
  }
  REQUIRE_FALSE(key.empty());
  document["tensors"][key]["local_shape"] = {3, 3};

  PlanPlaces places;
  PlanReading reading;
  reading.places = &places;
  const Result<Plan> plan = read_plan(document.dump(), "plan.json", reading);
  REQUIRE(plan);
  REQUIRE(places.operators.size() == plan->operators.size());
  REQUIRE(places.redistributions.size() == plan->redistributions.size());
  REQUIRE(places.at_peak.size() == plan->at_peak.size());
  REQUIRE(places.tensors.size() == plan->tensors.size());
  std::optional<DerivedCost> derived;
  const auto findings = check_plan(*plan, planned.graph, planned.cluster, &derived);
  CHECK(findings.size() == 4);  // two layers each
  const auto located = locate(findings, *plan, places);
  REQUIRE(located.size() == 2);
  CHECK(located[0].finding.pointer == "/tensors/" + key + "/local_shape");
  CHECK(located[0].entries == std::vector<std::string>{key});
  CHECK(located[1].finding.pointer == "/operators/" + std::to_string(line) + "/compute_time");
  CHECK(located[1].entries == std::vector<std::string>{pattern});
  CHECK(to_string(located[1]).find(located[1].finding.pointer + " (" + pattern + "): expected ") ==
        0);
  for (const LocatedFinding& each : located) {
    const auto found = document.at(nlohmann::json::json_pointer(each.finding.pointer));
    CHECK((each.finding.found == found.dump() || found.dump() == "[3,3]" ||
           std::stod(each.finding.found) == found.get<double>()));
  }
  // what follows from the placements does not depend on what the plan says
  REQUIRE(derived);
  CHECK(derived->objective == *planned.plan.result.objective);
  CHECK(derived->step_time == planned.plan.cost.step_time);
  CHECK(derived->peak == planned.plan.memory.peak);
}

TEST_CASE("entries in another order than the document's are found in it") {
  Planned planned = plan_case({});
  // the document lists equal layers together, the graph layer by layer
  const auto document = nlohmann::json::parse(write_plan(planned.plan));
  REQUIRE(document.contains("order"));
  PlanPlaces places;
  PlanReading reading;
  reading.places = &places;
  const Result<Plan> plan = read_plan(document.dump(), "plan.json", reading);
  REQUIRE(plan);
  for (std::size_t i = 0; i < plan->operators.size(); ++i) {
    const std::string name = document["operators"][places.operators[i]]["name"];
    if (name.find('{') == std::string::npos) CHECK(name == plan->operators[i].name);
    CHECK(document["operators"][places.operators[i]]["type"] == plan->operators[i].type);
  }
  for (std::size_t i = 0; i < plan->tensors.size(); ++i)
    CHECK(document["tensors"][places.tensors[i]]["dtype"] == plan->tensors[i].dtype);
  for (std::size_t i = 0; i < plan->at_peak.size(); ++i)
    CHECK(document["at_peak"][places.at_peak[i]]["bytes"] == plan->at_peak[i].bytes);
}

TEST_CASE("values that no plan can hold are listed where that is asked for") {
  const Planned planned = plan_case({});
  auto document = nlohmann::json::parse(write_plan(planned.plan));
  document["operators"][0]["out_placements"][0][0] = "Q(1)";
  document["redistributions"][0]["phase"] = "sideways";
  document["result"]["status"] = "great";
  document["memory"]["peak"] = 18446744073709551615ULL;
  document["groups"][0]["axes"][0] = "nowhere";
  CHECK_FALSE(read_plan(document.dump(), "plan.json"));
  std::vector<Finding> findings;
  PlanReading reading;
  reading.findings = &findings;
  const Result<Plan> plan = read_plan(document.dump(), "plan.json", reading);
  REQUIRE(plan);
  std::vector<std::string> places;
  for (const Finding& finding : findings) places.push_back(finding.pointer);
  CHECK(places == std::vector<std::string>{"/result/status",
                                           "/memory/peak",
                                           "/operators/0/out_placements/0/0",
                                           "/redistributions/0/phase"});
  CHECK(findings[0].found == "great");
  CHECK(findings[0].expected == "optimal, feasible or infeasible");
  const auto checked = check_plan(*plan, planned.graph, planned.cluster);
  CHECK(std::any_of(checked.begin(), checked.end(), [](const Finding& finding) {
    return finding.pointer == "/groups/0/axes" && finding.found == "nowhere";
  }));
  // wrong types and keys are errors still
  document["memory"]["peak"] = "much";
  CHECK(read_plan(document.dump(), "plan.json", reading).error().code == ErrorCode::kType);
  document["memory"].erase("peak");
  CHECK(read_plan(document.dump(), "plan.json", reading).error().code == ErrorCode::kMissing);
  document["memory"]["peaks"] = 1;
  CHECK(read_plan(document.dump(), "plan.json", reading).error().message.find("unknown key") !=
        std::string::npos);
}

TEST_CASE("a reader of 1.1 reads and checks plans of 1.0, newer ones are refused by name") {
  const Planned planned = plan_case({});
  const std::string text = write_plan(planned.plan);
  PlanReading newer;
  newer.minor = 1;
  newer.added_keys = {"pipeline"};
  const Result<Plan> old = read_plan(text, "plan.json", newer);
  REQUIRE(old);
  CHECK(*old == planned.plan);
  CHECK(check_plan(*old, planned.graph, planned.cluster).empty());

  auto document = nlohmann::json::parse(text);
  document["schema"] = "meshplan.plan/1.1";
  document["pipeline"] = {{"schedule", "1f1b"}};
  const Result<Plan> own = read_plan(document.dump(), "plan.json", newer);
  REQUIRE(own);
  CHECK(check_plan(*own, planned.graph, planned.cluster).empty());
  for (const char* version : {"1.2", "2.0"}) {
    document["schema"] = std::string("meshplan.plan/") + version;
    const Result<Plan> plan = read_plan(document.dump(), "plan.json", newer);
    REQUIRE_FALSE(plan);
    CHECK(plan.error().code == ErrorCode::kUnsupported);
    CHECK(plan.error().where == "plan.json: /schema");
    CHECK(plan.error().message ==
          std::string("this program reads meshplan.plan 1.0 to 1.1, not \"meshplan.plan/") +
              version + "\"");
  }
  // today's reader knows neither the version nor the key
  document["schema"] = "meshplan.plan/1.1";
  CHECK(read_plan(document.dump(), "plan.json").error().code == ErrorCode::kUnsupported);
  document["schema"] = "meshplan.plan/1.0";
  CHECK(read_plan(document.dump(), "plan.json").error().where == "plan.json: /pipeline");
}

}  // namespace
}  // namespace meshplan::located_findings_test

// SPDX-License-Identifier: Apache-2.0
// The communication groups of real plans: complete, each once, in an order in which no rank waits
// for another forever.
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "lib/communication_groups.h"
#include "support/catch.h"
#include "support/group_simulation.h"
#include "support/recording_platform.h"
#include "support/run_program.h"

namespace meshplan::plan_groups_test {
namespace {

using nlohmann::json;

/// Every list of axes that anything in the plan communicates along.
void collect_axes(const json& value, std::set<std::vector<std::string>>& found) {
  if (value.is_object() && value.contains("collective") && value.contains("axes")) {
    const std::string collective = value.at("collective");
    if (collective != "slice" && collective != "mask") {
      found.insert(value.at("axes").get<std::vector<std::string>>());
    }
  }
  if (!value.is_structured()) return;
  for (const json& inner : value) collect_axes(inner, found);
}

TEST_CASE("all ranks can create a plan's groups in the order of the plan") {
  const test::TemporaryFolder folder;
  const std::string graph = std::string(MESHPLAN_SOURCE_DIR) + "/examples/mlp/graph.json";
  for (const char* axes : {"dp=2,tp=4", "dp=2,cp=2,tp=2", "tp=8"}) {
    INFO(axes);
    const std::string file = folder.file("plan.json");
    const test::ProgramRun run = test::run_program(
        {"plan", graph, "--cluster", "dgx-a100-80g", "--devices", "8", "--mesh", axes, "-o", file});
    INFO(run.err);
    REQUIRE(run.exit_code == 0);
    const json plan = json::parse(test::file_text(file));
    const DeviceMesh mesh =
        *DeviceMesh::make(plan.at("mesh").at("shape").get<std::vector<std::int64_t>>(),
                          plan.at("mesh").at("axes").get<std::vector<std::string>>());
    std::vector<AxisGroups> listed;
    std::set<std::vector<std::string>> listed_axes;
    std::vector<AxisSet> sets;
    for (const json& group : plan.at("groups")) {
      listed.push_back({group.at("axes").get<std::vector<std::string>>(),
                        group.at("ranks").get<std::vector<std::vector<std::int64_t>>>()});
      CHECK(listed_axes.insert(listed.back().axes).second);
      AxisSet set = 0;
      for (const std::string& axis : listed.back().axes) {
        set |= AxisSet{1} << *mesh.axis_index(axis);
      }
      sets.push_back(set);
    }
    // The one canonical order, and the groups that the mesh says.
    CHECK(plan_groups(mesh, sets) == listed);
    // Nothing that the plan does needs another group.
    std::set<std::vector<std::string>> needed;
    collect_axes(plan, needed);
    REQUIRE_FALSE(needed.empty());
    for (const std::vector<std::string>& along : needed) CHECK(listed_axes.count(along) == 1);

    std::map<std::int64_t, std::vector<std::vector<std::int64_t>>> programs;
    std::size_t requests = 0;
    for (const std::int64_t rank : mesh.ranks()) {
      RecordingPlatform platform(rank);
      CommunicationGroups groups(platform);
      REQUIRE(groups.create(listed));
      for (const RecordingPlatform::Request& request : platform.requests) {
        programs[rank].push_back(request.ranks);
      }
      requests += platform.requests.size();
    }
    CHECK(requests == listed.size() * static_cast<std::size_t>(mesh.size()));
    CHECK(test::waiting_forever(programs) == 0);
  }
}

}  // namespace
}  // namespace meshplan::plan_groups_test

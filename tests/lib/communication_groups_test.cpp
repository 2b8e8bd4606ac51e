// SPDX-License-Identifier: Apache-2.0
#include "lib/communication_groups.h"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "support/catch.h"
#include "support/group_simulation.h"
#include "support/recording_platform.h"

namespace meshplan::communication_groups_test {
namespace {

using Ranks = std::vector<std::int64_t>;
using test::waiting_forever;

TEST_CASE("meshes make no platform calls, the first use of a group creates it, the second none") {
  RecordingPlatform platform(5);
  CommunicationGroups groups(platform);
  const DeviceMesh mesh = *DeviceMesh::make({2, 2, 2}, {"dp", "cp", "tp"});
  const DeviceMesh part = *mesh.slice({"dp", "cp"}, 5);
  const DeviceMesh flat = *part.flatten();
  CHECK(*mesh.group("tp", 5) == Ranks{4, 5});
  CHECK(platform.calls() == 0);

  const CommunicationGroup first = *groups.get(mesh, "tp");
  CHECK(first.ranks == Ranks{4, 5});
  CHECK(platform.requests == std::vector<RecordingPlatform::Request>{{{4, 5}, "mesh_tp"}});
  CHECK(platform.rank_calls == 1);
  const std::size_t calls = platform.calls();
  CHECK(*groups.get(mesh, "tp") == first);
  CHECK(*groups.get(mesh, std::int64_t{2}) == first);
  CHECK(*groups.get(*mesh.slice({"tp"}, 5)) == first);
  // The same ranks asked for through another mesh are the same group.
  CHECK(*groups.get(*DeviceMesh::make({2}, {"x"}, {4, 5})) == first);
  CHECK(platform.calls() == calls);

  CHECK(groups.get(flat)->ranks == Ranks{1, 3, 5, 7});
  CHECK(groups.get(mesh, "dp_cp")->handle == groups.get(flat)->handle);
  CHECK(platform.requests.size() == 2);
  CHECK(groups.size() == 2);

  // A group is described alike whichever way it came to be.
  const auto descriptions = [](const DeviceMesh& on, const AxisRef& axis) {
    RecordingPlatform one(0);
    CHECK(CommunicationGroups(one).get(on, axis));
    RecordingPlatform all(0);
    const std::vector<AxisSet> used = {1};
    CHECK(CommunicationGroups(all).create(plan_groups(on, used)));
    REQUIRE(one.requests == all.requests);
    return one.requests.front().description;
  };
  CHECK(descriptions(mesh, "dp") == "mesh_dp");
  CHECK(descriptions(*DeviceMesh::make({2, 2}, {}), std::int64_t{0}) == "mesh_dim_0");
  CHECK(descriptions(*DeviceMesh::make({2, 2}, {"mesh_tp", "tp"}), "mesh_tp") == "mesh_mesh_tp");
}

TEST_CASE("errors of a group come from the mesh or the platform and leave nothing behind") {
  RecordingPlatform platform(9);
  CommunicationGroups groups(platform);
  const DeviceMesh mesh = *DeviceMesh::make({2, 8}, {"dp", "tp"});
  CHECK(groups.get(mesh).error().code == ErrorCode::kMissing);
  CHECK(groups.get(mesh, "tpp").error().code == ErrorCode::kUnknownAxis);
  CHECK(groups.get(*DeviceMesh::make({4}, {"x"})).error().code == ErrorCode::kRank);
  CHECK(platform.requests.empty());
  platform.fail_next = true;
  CHECK(groups.get(mesh, "tp").error().code == ErrorCode::kUnsupported);
  CHECK(groups.size() == 0);
  CHECK(groups.get(mesh, "tp"));
  CHECK(platform.requests.size() == 2);
}

TEST_CASE("groups that exist are adopted without creating any") {
  RecordingPlatform platform(5);
  CommunicationGroups groups(platform);
  const DeviceMesh mesh = *DeviceMesh::make({2, 4}, {"dp", "tp"});
  const std::vector<CommunicationGroup> made = {{31, {1, 5}}, {32, {4, 5, 6, 7}}};
  CHECK(*groups.adopt(made, mesh, {}) == mesh);
  CHECK(groups.get(mesh, "tp")->handle == 32);
  CHECK(groups.get(mesh, "dp")->handle == 31);
  CHECK(platform.requests.empty());
  CHECK(groups.adopt({{33, {3, 1}}}, std::nullopt, {"x"})->ranks() == Ranks{3, 1});
  CHECK(groups.adopt(made, std::nullopt, {}).error().code == ErrorCode::kMissing);
  CHECK(groups.adopt({}, mesh, {}).error().code == ErrorCode::kValue);
  CHECK(groups.adopt({made[1], made[0]}, mesh, {}).error().where == "/groups/0");
  CHECK(groups.adopt({made[0], {34, {}}}, mesh, {}).error().where == "/groups/1");
  CHECK(groups.adopt({{35, {1, 1}}}, std::nullopt, {}).error().code == ErrorCode::kDuplicate);
}

TEST_CASE("a plan lists each group once: fewer axes first, then mesh order") {
  const DeviceMesh mesh = *DeviceMesh::make({2, 1, 2}, {"dp", "one", "tp"});
  const std::vector<AxisSet> used = {0b101, 0b100, 0b001, 0b100, 0b110, 0b010, 0};
  const std::vector<AxisGroups> plan = plan_groups(mesh, used);
  CHECK(plan == std::vector<AxisGroups>{{{"dp"}, {{0, 2}, {1, 3}}},
                                        {{"tp"}, {{0, 1}, {2, 3}}},
                                        {{"dp", "tp"}, {{0, 1, 2, 3}}}});
  CHECK(plan_groups(mesh, {}).empty());
}

/// What each rank asks of its platform when it creates the groups of a plan.
std::map<std::int64_t, std::vector<Ranks>> recorded(const DeviceMesh& mesh,
                                                    const std::vector<AxisGroups>& plan) {
  std::map<std::int64_t, std::vector<Ranks>> programs;
  for (const std::int64_t rank : mesh.ranks()) {
    RecordingPlatform platform(rank);
    CommunicationGroups groups(platform);
    REQUIRE(groups.create(plan));
    for (const RecordingPlatform::Request& request : platform.requests) {
      programs[rank].push_back(request.ranks);
    }
    // A second pass finds everything in place.
    const std::size_t calls = platform.calls();
    REQUIRE(groups.create(plan));
    CHECK(platform.calls() == calls);
  }
  return programs;
}

TEST_CASE("ranks that create a plan's groups in its order never wait for each other") {
  std::mt19937 random(7);
  for (const Ranks& shape : std::vector<Ranks>{{2, 2}, {2, 4}, {2, 3, 2}, {2, 1, 2, 3}}) {
    const std::vector<std::string> all_names = {"a", "b", "c", "d"};
    const std::vector<std::string> names(
        all_names.begin(), all_names.begin() + static_cast<std::ptrdiff_t>(shape.size()));
    const std::int64_t size =
        std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
    for (int trial = 0; trial < 20; ++trial) {
      Ranks ranks(static_cast<std::size_t>(size));
      std::iota(ranks.begin(), ranks.end(), trial);
      for (std::size_t i = ranks.size(); i-- > 1;) std::swap(ranks[i], ranks[random() % (i + 1)]);
      const DeviceMesh mesh = *DeviceMesh::make(shape, names, ranks);
      std::vector<AxisSet> used;
      for (int i = 0; i < 4; ++i) {
        used.push_back(static_cast<AxisSet>(random()) & ((AxisSet{1} << shape.size()) - 1));
      }
      const std::vector<AxisGroups> plan = plan_groups(mesh, used);
      std::set<Ranks> seen;
      for (const AxisGroups& along : plan) {
        for (const Ranks& group : along.ranks) CHECK(seen.insert(group).second);
      }
      CHECK(waiting_forever(recorded(mesh, plan)) == 0);

      // Where every rank of the job takes part in every creation, all must have the same list:
      // each finds it for itself, whatever the order in which the axes came up there.
      for (std::size_t i = 0; i < ranks.size(); ++i) {
        for (std::size_t k = used.size(); k-- > 1;) std::swap(used[k], used[random() % (k + 1)]);
        CHECK(plan_groups(mesh, used) == plan);
      }
    }
  }
}

TEST_CASE("the simulation finds the deadlock of ranks that disagree on the order") {
  const DeviceMesh mesh = *DeviceMesh::make({2, 2}, {"dp", "tp"});
  auto programs = recorded(mesh, plan_groups(mesh, std::vector<AxisSet>{1, 2}));
  CHECK(waiting_forever(programs) == 0);
  // 0 waits for 1, 1 for 3, 3 for 2 and 2 for 0.
  for (const std::int64_t rank : {0, 3}) std::reverse(programs[rank].begin(), programs[rank].end());
  CHECK(waiting_forever(programs) == 4);
}

}  // namespace
}  // namespace meshplan::communication_groups_test

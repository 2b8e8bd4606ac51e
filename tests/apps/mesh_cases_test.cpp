// SPDX-License-Identifier: Apache-2.0
// Replays the behaviour of another library, recorded in data/mesh_cases.json. Where that library is
// at fault, data/mesh_case_deviations.json says what is right and why.
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "apps/command.h"
#include "lib/communication_groups.h"
#include "lib/device_mesh.h"
#include "lib/layout.h"
#include "support/catch.h"
#include "support/recording_platform.h"
#include "support/run_program.h"

namespace meshplan::mesh_cases_test {
namespace {

using nlohmann::json;
using test::ProgramRun;
using test::run_program;

json read_data(const std::string& name) {
  std::ifstream file(std::string(MESHPLAN_TEST_DATA) + "/" + name);
  REQUIRE(file);
  return json::parse(file);
}

std::map<std::string, json> deviations() {
  std::map<std::string, json> by_id;
  for (const json& deviation : read_data("mesh_case_deviations.json")) {
    by_id[deviation.at("id")] = deviation;
  }
  return by_id;
}

/// Whether `answer` has every member of `expected`; `slices` are given for some positions only.
bool agrees(const json& answer, const json& expected) {
  for (const auto& [key, value] : expected.items()) {
    if (!answer.contains(key)) return false;
    if (key != "slices") {
      if (answer.at(key) != value) return false;
      continue;
    }
    for (const auto& [position, slices] : value.items()) {
      if (answer.at(key).at(std::stoul(position)) != slices) return false;
    }
  }
  return true;
}

/// Whether `answer` is an error of the kind that the library's exception stands for.
bool fails_alike(const json& answer, const json& one) {
  if (!answer.contains("error")) return false;
  return answer.at("error").at("code") == one.at("error");
}

TEST_CASE("meshplan mesh answers the recorded requests, or better where that is written down") {
  const json cases = read_data("mesh_cases.json");
  const std::map<std::string, json> better = deviations();
  json requests = json::array();
  std::vector<json> asked;
  for (const json& one : cases) {
    if (!one.contains("request")) continue;
    requests.push_back(one.at("request"));
    asked.push_back(one);
  }
  const ProgramRun run = run_program({"mesh", "--batch", "-"}, requests.dump());
  REQUIRE(run.exit_code == 0);
  const json answers = json::parse(run.out);
  REQUIRE(answers.size() == asked.size());
  std::size_t deviating = 0;
  for (std::size_t i = 0; i < asked.size(); ++i) {
    const json& one = asked[i];
    const std::string id = one.at("id");
    INFO(id << ": " << answers[i].dump());
    const bool as_recorded = one.contains("answer")
                                 ? agrees(answers[i], one.at("answer"))
                                 : one.contains("error") && fails_alike(answers[i], one);
    const auto ours = better.find(id);
    if (ours == better.end()) {
      CHECK(as_recorded);
      continue;
    }
    ++deviating;
    CHECK_FALSE(as_recorded);
    CHECK_FALSE(ours->second.at("reason").get<std::string>().empty());
    if (ours->second.contains("error")) {
      CHECK(fails_alike(answers[i], ours->second));
    } else {
      CHECK(agrees(answers[i], ours->second.at("answer")));
    }
  }
  CHECK(cases.size() == 310);
  CHECK(asked.size() == 276);
  CHECK(deviating == 24);
}

// ---- Cases about objects, which no request can ask for ----

DeviceMesh mesh_of(const json& input) {
  std::vector<std::string> names;
  for (const char* key : {"mesh_dim_names", "alias_name"}) {
    if (input.contains(key)) names = input.at(key).get<std::vector<std::string>>();
  }
  if (input.contains("mesh")) {
    const auto ranks = input.at("mesh").get<std::vector<std::int64_t>>();
    return *DeviceMesh::make({static_cast<std::int64_t>(ranks.size())}, names, ranks);
  }
  const auto shape = input.at("mesh_shape").get<std::vector<std::int64_t>>();
  if (names.empty()) names = {"dp", "tp"};
  names.resize(shape.size());
  return *DeviceMesh::make(shape, names);
}

AliasMap alias_map_of(const json& entries) {
  AliasMap map;
  for (const json& entry : entries) {
    map.push_back(entry.is_array() ? entry.get<std::vector<std::string>>()
                                   : std::vector<std::string>{entry.get<std::string>()});
  }
  return map;
}

using Check = std::function<void(const json& one)>;

void check_cache(const json& one) {
  const json& input = one.at("input");
  const auto shape = input.at("mesh_shape").get<std::vector<std::int64_t>>();
  if (input.contains("rank_lists")) {
    const auto names = input.at("mesh_dim_names").get<std::vector<std::string>>();
    const auto lists = input.at("rank_lists").get<std::vector<std::vector<std::int64_t>>>();
    const DeviceMesh first = *DeviceMesh::make(shape, names, lists[0]);
    const DeviceMesh second = *DeviceMesh::make(shape, names, lists[1]);
    const json& right = one.at("later_revision");
    CHECK(first.same_object(second) == right.at("same_object").get<bool>());
    CHECK(json(second.ranks()) == right.at("second_rank_list"));
    CHECK(first.hash_text() != second.hash_text());
    CHECK_FALSE(first == second);
    return;
  }
  const auto names = input.at("mesh_dim_names").get<std::vector<std::vector<std::string>>>();
  const DeviceMesh first = *init_device_mesh(shape, names[0]);
  const DeviceMesh second = *init_device_mesh(shape, names[1]);
  CHECK(first.same_object(second) == one.at("expected").at("same_object").get<bool>());
  CHECK(first.same_object(*init_device_mesh(shape, names[0])));
}

void check_group_requests(const json& one) {
  const json& input = one.at("input");
  RecordingPlatform platform(input.at("rank"));
  CommunicationGroups groups(platform);
  const DeviceMesh mesh = mesh_of(input);
  if (input.contains("select")) {
    const auto axes = input.at("select").get<std::vector<std::string>>();
    const DeviceMesh flat = *mesh.slice(axes, input.at("rank"))->flatten();
    CHECK(platform.calls() == 0);
    REQUIRE(groups.get(flat));
    REQUIRE(platform.requests.size() == 1);
    CHECK(json(platform.requests[0].ranks) == one.at("expected").at("split_ranks").at(0));
    return;
  }
  CHECK(platform.calls() == 0);
  // The library asked for all groups of an axis at construction; we ask for our own on first use.
  for (int axis = 0; axis < mesh.ndim(); ++axis) {
    REQUIRE(groups.get(mesh, std::int64_t{axis}));
    const json& request = one.at("expected").at("requests").at(static_cast<std::size_t>(axis));
    CHECK(platform.requests.back().description == request.at("group_desc"));
    CHECK(json(platform.requests.back().ranks) == request.at("split_ranks").at(0));
    CHECK(json(*mesh.groups(std::int64_t{axis})) == request.at("split_ranks"));
  }
  CHECK(platform.requests.size() == 2);
}

/// The tensor-map entry of an axis name, -1 for "None".
Result<int> map_entry(const DeviceMesh& mesh, const std::string& name) {
  const Result<Layout> layout = Layout::from_alias_map(mesh, {{name}});
  if (!layout) return fail(layout.error());
  const TensorMap map = layout->tensor_map();
  return map[0].empty() ? -1 : map[0][0];
}

void check_axis(const json& one) {
  const json& input = one.at("input");
  const DeviceMesh mesh = mesh_of(input);
  const std::string axis = input.at("axis");
  const Result<int> found =
      input.at("op") == "axis_id" ? map_entry(mesh, axis) : mesh.axis_index(axis);
  if (one.contains("library_error")) {
    REQUIRE_FALSE(found);
    CHECK(found.error().code == ErrorCode::kUnknownAxis);
  } else {
    CHECK(*found == one.at("expected").at("value"));
  }
}

void check_from_group(const json& one) {
  const json& input = one.at("input");
  std::vector<CommunicationGroup> groups;
  if (input.at("is_list").get<bool>()) {
    for (const json& ranks : input.at("groups")) {
      groups.push_back({7, ranks.get<std::vector<std::int64_t>>()});
    }
  } else {
    groups.push_back({7, input.at("groups").get<std::vector<std::int64_t>>()});
  }
  std::vector<std::string> names;
  if (!input.at("mesh_dim_names").is_null()) {
    names = input.at("mesh_dim_names").get<std::vector<std::string>>();
  }
  std::optional<DeviceMesh> mesh;
  if (const json& ranks = input.at("mesh"); !ranks.is_null()) {
    mesh = ranks.at(0).is_array() ? *DeviceMesh::make({2, 4}, names)
                                  : *DeviceMesh::make({2}, names, ranks);
  }
  RecordingPlatform platform(input.at("rank"));
  CommunicationGroups known(platform);
  const Result<DeviceMesh> adopted = known.adopt(groups, mesh, names);
  REQUIRE_FALSE(adopted);
  CHECK(adopted.error().code == ErrorCode::kValue);
  CHECK(platform.calls() == 0);
}

void check_predicate(const json& one) {
  const json& input = one.at("input");
  const std::string op = input.at("op");
  const Placement placement = *parse_placement(input.at("placement").get<std::string>());
  const json& argument = input.at("arg");
  bool value = false;
  if (op == "is_shard") {
    value = is_shard(placement, argument.is_null() ? std::nullopt : std::optional<int>(argument));
  } else if (op == "is_partial") {
    value = is_partial(placement,
                       argument.is_null()
                           ? std::nullopt
                           : std::optional(*parse_reduction(argument.get<std::string>())));
  } else {
    REQUIRE(op == "is_replicate");
    value = is_replicate(placement);
  }
  CHECK(value == one.at("expected").at("value").get<bool>());
}

void check_set_partial(const json& one) {
  const json& input = one.at("input");
  const Layout layout =
      *Layout::from_alias_map(mesh_of(input), alias_map_of(input.at("alias_tensor_map")));
  const Result<Layout> changed =
      layout.with_partial(input.at("axis").get<std::string>(), Reduction::kSum);
  REQUIRE_FALSE(changed);
  CHECK(changed.error().code == ErrorCode::kUnknownAxis);
}

void check_equality(const json& one) {
  const auto layout_of = [&](const json& side) {
    const json& options = side.at(1);
    const std::vector<std::int64_t> shape = one.at("input").at("mesh_shape");
    const DeviceMesh mesh =
        options.contains("rank_list")
            ? *DeviceMesh::make(
                  shape, {"dp", "tp"}, options.at("rank_list").get<std::vector<std::int64_t>>())
            : *DeviceMesh::make(shape, {"dp", "tp"});
    return *Layout::from_alias_map(mesh, alias_map_of(side.at(0)));
  };
  const Layout a = layout_of(one.at("input").at("a"));
  const Layout b = layout_of(one.at("input").at("b"));
  const bool equal = one.at("expected").at("equal").get<bool>() || one.at("id") == "ly.eq.3";
  CHECK((a == b) == equal);
  CHECK((a.compact() == b.compact()) == equal);
  CHECK((a.hash() == b.hash()) == equal);
}

const std::map<std::string, Check>& checks() {
  static const std::map<std::string, Check> kChecks = {
      {"init_device_mesh twice", check_cache},
      {"flatten: groups requested from the platform", check_group_requests},
      {"construct: groups requested from the platform", check_group_requests},
      {"axis_id", check_axis},
      {"axis_index", check_axis},
      {"from_group", check_from_group},
      {"is_shard", check_predicate},
      {"is_replicate", check_predicate},
      {"is_partial", check_predicate},
      {"set_partial_by_dev_axis", check_set_partial},
      {"equality", check_equality},
      {"to_hash",
       [](const json& one) {
         const DeviceMesh mesh = mesh_of(one.at("input"));
         CHECK(json(mesh.ranks()) == one.at("expected").at("later_revision_to_hash").at(2));
         CHECK(mesh.hash_text() == "4|tp|4+4*1");
         CHECK(mesh.hash_text() != DeviceMesh::make({4}, {"tp"}, {4, 6, 5, 7})->hash_text());
       }},
      {"size",
       [](const json& one) {
         const DeviceMesh mesh = mesh_of(one.at("input"));
         CHECK(mesh.size() == one.at("expected").at("size()"));
         CHECK(mesh.axis_size(1) == one.at("expected").at("size(1)"));
       }},
      {"repr", [](const json& one) { CHECK(to_string(mesh_of(one.at("input"))) == "2x2(dp,tp)"); }},
      {"placement_to_tensor_map",
       [](const json& one) {
         const Result<Layout> layout = Layout::from_placements(
             mesh_of(one.at("input")), Placements(2), one.at("input").at("tensor_dim").get<int>());
         REQUIRE_FALSE(layout);
         CHECK(layout.error().code == ErrorCode::kValue);
       }},
      {"set [P(max)], convert, set [R], convert",
       [](const json& one) {
         const DeviceMesh mesh = mesh_of(one.at("input"));
         const Placements first = {Partial{Reduction::kMax}};
         const Placements second = {Replicate{}};
         CHECK(Layout::from_placements(mesh, first, 1)->has_partial());
         const Layout after = *Layout::from_placements(mesh, second, 1);
         CHECK(after.placements() == second);
         CHECK_FALSE(after.has_partial());
       }},
      {"from_device_mesh",
       [](const json& one) {
         const Layout layout = Layout::replicated(mesh_of(one.at("input")), 2);
         const LayoutDictionary dictionary = layout.dictionary();
         CHECK(json(dictionary.mesh_shape) == one.at("expected").at("mesh_shape"));
         CHECK(json(dictionary.alias_name) == one.at("expected").at("alias_name"));
         CHECK(json(dictionary.rank_list) == one.at("expected").at("rank_list"));
         CHECK(dictionary.tensor_map == TensorMap(2));
         CHECK(dictionary.partial == PartialList(2));
       }},
      {"reset_partial",
       [](const json& one) {
         const Placements partial = {Partial{Reduction::kSum}, Shard{1}};
         const Layout layout = *Layout::from_placements(mesh_of(one.at("input")), partial, 2);
         CHECK(layout.has_partial());
         CHECK(json(to_string(layout.without_partial().placements())) == "R,S(1)");
         CHECK(*layout.with_partial("dp", std::nullopt) == layout.without_partial());
       }},
      {"two layouts, rank lists 0123 then 0213",
       [](const json& one) {
         const DeviceMesh first = *DeviceMesh::make({2, 2}, {"dp", "tp"}, {0, 1, 2, 3});
         const DeviceMesh second = *DeviceMesh::make({2, 2}, {"dp", "tp"}, {0, 2, 1, 3});
         CHECK(Layout::replicated(first, 1).mesh().ranks() ==
               std::vector<std::int64_t>{0, 1, 2, 3});
         const Layout layout = Layout::replicated(second, 1);
         CHECK(json(layout.dictionary().rank_list) == one.at("expected").at("layout.rank_list"));
         CHECK(layout.mesh().ranks() == layout.dictionary().rank_list);
       }},
      {"to_string",
       [](const json& one) {
         const Layout layout = *Layout::from_alias_map(
             mesh_of(one.at("input")), alias_map_of(one.at("input").at("alias_tensor_map")));
         CHECK(to_string(layout) == "S(0),R on 2x2(dp,tp)");
       }},
  };
  return kChecks;
}

TEST_CASE("the recorded cases about objects hold, or better where that is written down") {
  std::size_t count = 0;
  std::set<std::string> used;
  for (const json& one : read_data("mesh_cases.json")) {
    if (one.contains("request")) continue;
    INFO(one.at("id").get<std::string>());
    const std::string op = one.at("input").at("op");
    const auto check = checks().find(op);
    REQUIRE(check != checks().end());
    check->second(one);
    used.insert(op);
    ++count;
  }
  CHECK(count == 34);
  CHECK(used.size() == checks().size());
}

}  // namespace
}  // namespace meshplan::mesh_cases_test

// SPDX-License-Identifier: Apache-2.0
#include <iostream>
#include <new>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "apps/command.h"
#include "lib/device_mesh.h"
#include "support/catch.h"
#include "support/run_program.h"

namespace meshplan::mesh_command_test {
namespace {

using nlohmann::json;
using test::ProgramRun;
using test::run_program;
using test::TemporaryFolder;

ProgramRun mesh(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "mesh");
  return run_program(arguments);
}

ProgramRun batch(const std::string& requests) {
  return run_program({"mesh", "--batch", "-"}, requests);
}

/// The answer to one request.
json ask(const json& request) {
  const ProgramRun run = batch(json::array({request}).dump());
  INFO(request.dump() << run.err);
  REQUIRE(run.exit_code == 0);
  const json answers = json::parse(run.out);
  REQUIRE(answers.size() == 1);
  return answers[0];
}

const json kMesh = {{"shape", {2, 4}}, {"axes", {"dp", "tp"}}};
const json kCube = {{"shape", {2, 2, 2}}, {"axes", {"dp", "cp", "tp"}}};

json request(const char* op, json members = json::object(), const json& on = kMesh) {
  members["op"] = op;
  members["mesh"] = on;
  return members;
}

TEST_CASE("each operation answers with the documented members") {
  CHECK(ask(request("info")) == json{{"shape", {2, 4}},
                                     {"axes", {"dp", "tp"}},
                                     {"ranks", {0, 1, 2, 3, 4, 5, 6, 7}},
                                     {"ndim", 2},
                                     {"hash", "2x4|dp,tp|0+8*1"}});
  CHECK(ask(request("coordinates", {{"rank", 6}})) == json{{"coordinates", {1, 2}}});
  CHECK(ask(request("coordinates")) == json{{"coordinates", {0, 0}}});
  CHECK(ask(request("coordinates", {{"rank", 8}})) == json{{"coordinates", nullptr}});
  CHECK(ask(request("coordinates", {{"rank", -1}})) == json{{"coordinates", nullptr}});
  CHECK(ask(request("slice", {{"axes", {"tp"}}, {"rank", 5}})) ==
        json{{"shape", {4}},
             {"axes", {"tp"}},
             {"ranks", {4, 5, 6, 7}},
             {"root",
              {{"shape", {2, 4}}, {"axes", {"dp", "tp"}}, {"ranks", {0, 1, 2, 3, 4, 5, 6, 7}}}}});
  CHECK(ask(request("group", {{"axis", "dp"}, {"rank", 5}})) == json{{"ranks", {1, 5}}});
  CHECK(ask(request("ranks_along", {{"axis", 1}, {"rank", 5}})) == json{{"ranks", {4, 5, 6, 7}}});
  CHECK(ask(request("group", {{"axis", "dp_cp"}, {"rank", 1}}, kCube)) ==
        json{{"ranks", {1, 3, 5, 7}}});
  CHECK(ask(request("groups", {{"axis", "dp"}})) ==
        json{{"groups", {{0, 4}, {1, 5}, {2, 6}, {3, 7}}}});
  CHECK(ask(request("local_rank", {{"axis", "tp"}, {"rank", 6}})) == json{{"local_rank", 2}});
  CHECK(ask(request("local_rank", {{"rank", 6}}, {{"shape", {8}}})) == json{{"local_rank", 6}});
  CHECK(ask(request("flatten", {{"axes", {"dp", "cp"}}, {"rank", 1}}, kCube)) ==
        json{{"shape", {4}}, {"axes", {"dp_cp"}}, {"ranks", {1, 3, 5, 7}}});
  CHECK(ask(request("flatten", {{"axes", {"dp", "tp"}}, {"name", "world"}})) ==
        json{{"shape", {8}}, {"axes", {"world"}}, {"ranks", {0, 1, 2, 3, 4, 5, 6, 7}}});
  CHECK(
      ask(request("unflatten", {{"axis", "tp"}, {"sizes", {2, 2}}, {"names", {"x", "y"}}})) ==
      json{{"shape", {2, 2, 2}}, {"axes", {"dp", "x", "y"}}, {"ranks", {0, 1, 2, 3, 4, 5, 6, 7}}});
  CHECK(ask(request(
            "concatenate",
            {{"meshes", json::array({json::array({"dp"}), json::array({"tp"})})}, {"rank", 7}},
            kCube)) == json{{"shape", {2, 2}}, {"axes", {"dp", "tp"}}, {"ranks", {2, 3, 6, 7}}});
  CHECK(ask(request("global_shape",
                    {{"local_shape", {4, 8}}, {"tensor_map", json::parse("[[1,0],-1]")}})) ==
        json{{"shape", {32, 8}}});
  const json layout = {{"placements", {"S(0)", "P(max)"}},
                       {"tensor_map", {1, -1}},
                       {"alias_map", {"dp", "None"}},
                       {"partial", {nullptr, "max"}},
                       {"local_shape", {2, 8}},
                       {"slices", {{{0, 2}, {0, 8}}, {{2, 4}, {0, 8}}}},
                       {"repeat", 1},
                       {"compact", "(1,-1) [-,max] 2x1|dp,tp|0+2*1"}};
  const json pair = {{"shape", {2, 1}}, {"axes", {"dp", "tp"}}};
  CHECK(ask(request("layout", {{"shape", {4, 8}}, {"placements", {"S(0)", "P(max)"}}}, pair)) ==
        layout);
}

TEST_CASE("the three forms of a layout give the same answer") {
  const json by_map =
      ask(request("layout", {{"shape", {16, 3}}, {"tensor_map", json::parse("[[0,1],-1]")}}));
  CHECK(by_map.at("placements") == json{"SS(0,4)", "S(0)"});
  CHECK(ask(request("layout", {{"shape", {16, 3}}, {"placements", {"SS(0,4)", "S(0)"}}})) ==
        by_map);
  json by_alias = request("layout", {{"shape", {16, 3}}});
  by_alias["alias_map"] = json::array({json::array({"tp", "dp"}), "None"});
  CHECK(ask(by_alias) == by_map);
  // The looking rank chooses the piece whose shape is given.
  const json uneven = request("layout", {{"shape", {5}}, {"alias_map", {"tp"}}});
  CHECK(ask(uneven).at("local_shape") == json{2});
  json looking = uneven;
  looking["rank"] = 6;
  CHECK(ask(looking).at("local_shape") == json{1});
  looking["rank"] = 7;
  CHECK(ask(looking).at("local_shape") == json{0});
}

TEST_CASE("a mesh object may have own ranks, declared flattened axes, or no names") {
  const json own = {{"ranks", json::parse("[[7,5],[3,1]]")}, {"axes", {"dp", "tp"}}};
  CHECK(ask(request("group", {{"axis", "dp"}, {"rank", 1}}, own)) == json{{"ranks", {5, 1}}});
  CHECK(ask(request("info", {}, own)).at("ranks") == json{7, 5, 3, 1});
  const json flat = {{"shape", {2, 2}}, {"ranks", {7, 5, 3, 1}}};
  CHECK(ask(request("info", {}, flat)).at("axes").is_null());
  CHECK(ask(request("layout", {{"shape", {4}}, {"placements", {"S(0)", "R"}}}, flat))
            .at("alias_map")
            .is_null());
  json declared = kCube;
  declared["flatten"] = {{"fsdp", {"dp", "cp"}}};
  CHECK(ask(request("group", {{"axis", "fsdp"}, {"rank", 3}}, declared)) ==
        json{{"ranks", {1, 3, 5, 7}}});
  CHECK(ask(request("slice", {{"axes", {"fsdp", "tp"}}}, declared)).at("shape") == json{4, 2});
  CHECK(ask(request("layout", {{"shape", {8, 8}}, {"alias_map", {"fsdp", "tp"}}}, declared))
            .at("tensor_map") == json::parse("[[2,1],0]"));
}

TEST_CASE("every fault of a request is answered with its code and place, and stops no other") {
  struct Case {
    std::string text;
    const char* code;
    const char* where;
  };
  const std::string mesh_text = R"("mesh":{"shape":[2,4],"axes":["dp","tp"]})";
  const auto with = [&](const std::string& members) {
    return "{" + mesh_text + "," + members + "}";
  };
  const auto on = [](const std::string& object) {
    return R"({"op":"info","mesh":)" + object + "}";
  };
  std::string deep;
  for (int i = 0; i < 150; ++i) deep += '[';
  deep += '0' + std::string(150, ']');
  std::string too_deep;
  for (int i = 0; i < 20000; ++i) too_deep += '[';
  too_deep += std::string(20000, ']');
  const std::vector<Case> cases = {
      {"null", "type", ""},
      {"[]", "type", ""},
      {"{}", "missing", ""},
      {R"({"op":"info"})", "missing", ""},
      {R"({"op":7,"mesh":{"shape":[2]}})", "type", "/op"},
      {with(R"("op":"inof")"), "value", "/op"},
      {with(R"("op":"info","rnak":3)"), "value", "/rnak"},
      {with(R"("op":"info","op":"info")"), "duplicate", "/op"},
      {with(R"("op":"coordinates","rank":"3")"), "type", "/rank"},
      {with(R"("op":"coordinates","rank":1.0)"), "type", "/rank"},
      {with(R"("op":"coordinates","rank":true)"), "type", "/rank"},
      {with(R"("op":"coordinates","rank":99999999999999999999)"), "overflow", "/rank"},
      {with(R"("op":"slice")"), "missing", ""},
      {with(R"("op":"slice","axes":[])"), "value", "/axes"},
      {with(R"("op":"slice","axes":"dp")"), "type", "/axes"},
      {with(R"("op":"slice","axes":["dp",1])"), "type", "/axes/1"},
      {with(R"("op":"slice","axes":["dp","pt"])"), "unknown_axis", "/axes/1"},
      {with(R"("op":"slice","axes":["dp","dp"])"), "duplicate", "/axes/1"},
      {with(R"("op":"slice","axes":["tp","dp"])"), "order", "/axes"},
      {with(R"("op":"slice","axes":["tp"],"rank":8)"), "rank", "/rank"},
      {with(R"("op":"group")"), "missing", "/axis"},
      {with(R"("op":"group","axis":2)"), "value", "/axis"},
      {with(R"("op":"group","axis":-1)"), "value", "/axis"},
      {with(R"("op":"group","axis":["dp"])"), "type", "/axis"},
      {with(R"("op":"group","axis":"x")"), "unknown_axis", "/axis"},
      {with(R"("op":"group","axis":"dp","rank":8)"), "rank", "/rank"},
      {with(R"("op":"groups","axis":"tp_dp")"), "unknown_axis", "/axis"},
      {with(R"("op":"local_rank","axis":"dp","rank":-1)"), "rank", "/rank"},
      {with(R"("op":"local_rank")"), "missing", "/axis"},
      {with(R"("op":"flatten")"), "missing", ""},
      {with(R"("op":"flatten","axes":["dp","tp"],"name":"dp")"), "conflict", "/name"},
      {with(R"("op":"flatten","axes":["dp","tp"],"name":"")"), "value", "/name"},
      {with(R"("op":"flatten","axes":["dp","tp"],"name":7)"), "type", "/name"},
      {with(R"("op":"unflatten","sizes":[2,2],"names":["a","b"])"), "missing", ""},
      {with(R"("op":"unflatten","axis":"tp","names":["a","b"])"), "missing", ""},
      {with(R"("op":"unflatten","axis":"tp","sizes":[2,2])"), "missing", ""},
      {with(R"("op":"unflatten","axis":"tp","sizes":[2,3],"names":["a","b"])"), "value", "/sizes"},
      {with(R"("op":"unflatten","axis":"tp","sizes":[4],"names":["dp"])"), "duplicate", "/names/0"},
      {R"({"op":"unflatten","axis":0,"sizes":[1,2],"names":["a","b"],"mesh":{"shape":[2]}})",
       "value",
       "/names"},
      {with(R"("op":"concatenate")"), "missing", ""},
      {with(R"("op":"concatenate","meshes":[])"), "value", "/meshes"},
      {with(R"("op":"concatenate","meshes":["dp"])"), "type", "/meshes/0"},
      {with(R"("op":"concatenate","meshes":[["tp"],["dp"]])"), "order", "/meshes"},
      {with(R"("op":"concatenate","meshes":[["dp"],["dp"]])"), "duplicate", "/meshes/1"},
      {with(R"("op":"concatenate","meshes":[["dp"],["x"]])"), "unknown_axis", "/meshes/1/0"},
      {with(R"("op":"concatenate","meshes":[["dp"]],"rank":50)"), "rank", "/rank"},
      {with(R"("op":"global_shape","local_shape":[2])"), "missing", ""},
      {with(R"("op":"global_shape","local_shape":[2],"tensor_map":[0,1])"),
       "value",
       "/local_shape"},
      {with(R"("op":"global_shape","local_shape":[9223372036854775807],"tensor_map":[0])"),
       "overflow",
       "/local_shape/0"},
      {with(R"("op":"layout","placements":["R","R"])"), "missing", ""},
      {with(R"("op":"layout","shape":[8])"), "missing", ""},
      {with(R"("op":"layout","shape":[-8],"placements":["R","R"])"), "value", "/shape/0"},
      {with(R"("op":"layout","shape":[8],"placements":["R","R"],"tensor_map":[0])"),
       "conflict",
       "/tensor_map"},
      {with(R"("op":"layout","shape":[8],"placements":["R"])"), "value", "/placements"},
      {with(R"~("op":"layout","shape":[8],"placements":["R","S(1)"])~"), "value", "/placements/1"},
      {with(R"("op":"layout","shape":[8],"placements":["R","Q"])"), "value", "/placements/1"},
      {with(R"("op":"layout","shape":[8],"placements":["R",0])"), "type", "/placements/1"},
      {with(R"("op":"layout","shape":[8,8],"tensor_map":[0])"), "value", "/tensor_map"},
      {with(R"("op":"layout","shape":[8,8],"tensor_map":[0,0])"), "duplicate", "/tensor_map/1"},
      {with(R"("op":"layout","shape":[8],"tensor_map":[2])"), "value", "/tensor_map/0"},
      {with(R"("op":"layout","shape":[8],"tensor_map":[[1,-1]])"), "value", "/tensor_map/0/1"},
      {with(R"("op":"layout","shape":[8],"tensor_map":[0],"partial":[null,"sum"])"),
       "conflict",
       "/partial/1"},
      {with(R"("op":"layout","shape":[8],"tensor_map":[0],"partial":["all",null])"),
       "value",
       "/partial/0"},
      {with(R"("op":"layout","shape":[8],"alias_map":[["dp","None"]])"), "value", "/alias_map/0/1"},
      {with(R"("op":"layout","shape":[8],"alias_map":["xx"])"), "unknown_axis", "/alias_map/0"},
      {with(R"~("op":"layout","shape":[12],"placements":["S(0)","S(0)"])~"), "value", "/shape/0"},
      {with(R"("op":"layout","shape":[8],"placements":["R","R"],"rank":8)"), "rank", "/rank"},
      {on("3"), "type", "/mesh"},
      {on("{}"), "missing", "/mesh"},
      {on(R"({"shape":[]})"), "value", "/mesh/shape"},
      {on(R"({"shape":4})"), "type", "/mesh/shape"},
      {on(R"({"shape":[2,"4"]})"), "type", "/mesh/shape/1"},
      {on(R"({"shape":[2,0]})"), "value", "/mesh/shape/1"},
      {on(R"({"shape":[9000000000,9000000000]})"), "overflow", "/mesh/shape"},
      {on(R"({"shape":[9000000000]})"), "overflow", ""},
      {on(R"({"shape":[2,2],"axes":["a"]})"), "value", "/mesh/axes"},
      {on(R"({"shape":[2,2],"axes":["a","a"]})"), "duplicate", "/mesh/axes/1"},
      {on(R"({"shape":[2,2],"axes":["a",""]})"), "value", "/mesh/axes/1"},
      {on(R"({"shape":[2,2],"axes":["None","a"]})"), "value", "/mesh/axes/0"},
      {on(R"({"shape":[2,2],"axes":["interleaved_parallel","a"]})"), "order", "/mesh/axes/0"},
      {on(R"({"shape":[2,2],"axes":["a",3]})"), "type", "/mesh/axes/1"},
      {on(R"({"shape":[2,2],"ranks":[0,1,2]})"), "value", "/mesh/ranks"},
      {on(R"({"shape":[2,2],"ranks":[0,1,2,2]})"), "duplicate", "/mesh/ranks/3"},
      {on(R"({"shape":[2,2],"ranks":[0,1,-2,3]})"), "value", "/mesh/ranks/2"},
      {on(R"({"shape":[2,2],"ranks":[[0,1,2],[3,4,5]]})"), "value", "/mesh/ranks"},
      {on(R"({"shape":[2,2],"ranks":[[0,1],[2,1]]})"), "duplicate", "/mesh/ranks/1/1"},
      {on(R"({"ranks":[[[0,1]],[[-2,1]]]})"), "value", "/mesh/ranks/1/0/0"},
      {on(R"({"ranks":[[],[]]})"), "value", "/mesh/ranks/0"},
      {on(R"({"ranks":[[0,1],[2]]})"), "value", "/mesh/ranks/1"},
      {on(R"({"ranks":[]})"), "value", "/mesh/ranks"},
      {on(R"({"ranks":5})"), "type", "/mesh/ranks"},
      {on(R"({"ranks":[0.5]})"), "type", "/mesh/ranks/0"},
      {on(R"({"ranks":)" + deep + "}"), "unsupported", ""},
      {on(R"({"ranks":)" + too_deep + "}"), "value", ""},
      {on(R"({"shape":[1e400]})"), "value", ""},
      {on(R"({"shape":[2],"color":"red"})"), "value", "/mesh/color"},
      {on(R"({"shape":[2,2],"axes":["a","b"],"flatten":{"a":["a","b"]}})"),
       "conflict",
       "/mesh/flatten/a"},
      {on(R"({"shape":[2,2],"axes":["a","b"],"flatten":{"x":["b","a"]}})"),
       "order",
       "/mesh/flatten/x"},
      {on(R"({"shape":[2,2],"axes":["a","b"],"flatten":{"x":["a","c"]}})"),
       "unknown_axis",
       "/mesh/flatten/x/1"},
      {on(R"({"shape":[2,2],"axes":["a","b"],"flatten":[]})"), "type", "/mesh/flatten"},
  };
  std::string text = "[";
  for (const Case& wrong : cases) text += wrong.text + ",\n";
  text += with(R"("op":"group","axis":"dp","rank":5)") + "]";
  const ProgramRun run = batch(text);
  REQUIRE(run.exit_code == 0);
  const json answers = json::parse(run.out);
  REQUIRE(answers.size() == cases.size() + 1);
  for (std::size_t i = 0; i < cases.size(); ++i) {
    INFO(cases[i].text.substr(0, 200) << " -> " << answers[i].dump());
    REQUIRE(answers[i].contains("error"));
    const json& error = answers[i].at("error");
    CHECK(error.size() == 3);
    CHECK(error.at("code") == cases[i].code);
    const std::string where = error.at("where");
    const std::string expected = "/" + std::to_string(i) + cases[i].where;
    // Deep nesting is placed at the list that is one too many.
    CHECK((where == expected || (cases[i].where[0] == '\0' && where.starts_with(expected + "/"))));
    CHECK(error.at("message").get<std::string>().size() > 10);
    CHECK(error.at("message").get<std::string>().size() < 600);
  }
  CHECK(answers.back() == json{{"ranks", {1, 5}}});
}

TEST_CASE("a batch that is no array of JSON is an input error with its place") {
  for (const char* text : {"",
                           "{",
                           "[",
                           "[{}",
                           "[{},]",
                           "[,{}]",
                           "hello",
                           "[{} {}]",
                           "[1e999",
                           "[tru]",
                           "[{\"a\":1]",
                           "[\"\xff\"]",
                           "{}",
                           "5",
                           "null",
                           "[] []"}) {
    INFO(text);
    const ProgramRun run = batch(text);
    CHECK(run.exit_code == 3);
    CHECK(run.out.empty());
    CHECK(run.err.find("standard input") != std::string::npos);
  }
  CHECK(json::parse(batch("[]").out) == json::array());
  CHECK(json::parse(batch(" \n[ ]\n").out) == json::array());
  CHECK(mesh({"--batch", "/nonexistent.json"}).exit_code == 3);
  const TemporaryFolder folder;
  const std::string file = folder.write("requests.json", "[{\"op\":\"x\"}]");
  const std::string out = folder.file("answers.json");
  CHECK(mesh({"--batch", file, "-o", out}).exit_code == 0);
  CHECK(json::parse(test::file_text(out)).size() == 1);
  folder.write("requests.json", "[{\"op\":");
  CHECK(mesh({"--batch", file, "-o", folder.file("none.json")}).exit_code == 3);
  CHECK(test::file_text(folder.file("none.json")).empty());
}

TEST_CASE("a single request prints a table, Markdown or the JSON of the batch answer") {
  const ProgramRun text = mesh({"--mesh", "dp=2,tp=4", "--rank", "5", "--slice", "tp"});
  CHECK(text.exit_code == 0);
  CHECK(text.out ==
        "shape       4\n"
        "axes        tp\n"
        "ranks       4 5 6 7\n"
        "root shape  2 4\n"
        "root axes   dp tp\n"
        "root ranks  0 1 2 3 4 5 6 7\n");
  CHECK(mesh({"--mesh", "dp=2,tp=4", "--group", "dp", "--format", "markdown"}).out ==
        "| | |\n|---|---|\n| ranks | 0 4 |\n");
  const auto answer = [](std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"--format", "json"});
    const ProgramRun run = mesh(arguments);
    INFO(run.err);
    REQUIRE(run.exit_code == 0);
    return json::parse(run.out);
  };
  CHECK(answer({"--mesh", "dp=2,tp=4"}) == ask(request("info")));
  CHECK(answer({"--mesh", "dp=2,tp=4", "--info"}) == ask(request("info")));
  CHECK(answer({"--mesh", "dp=2,tp=4", "--coordinates", "--rank", "6"}) ==
        json{{"coordinates", {1, 2}}});
  CHECK(answer({"--mesh", "dp=2,tp=4", "--groups", "1"}) ==
        json{{"groups", {{0, 1, 2, 3}, {4, 5, 6, 7}}}});
  CHECK(answer({"--mesh", "dp=2,tp=4", "--local-rank", "tp", "--rank", "6"}) ==
        json{{"local_rank", 2}});
  CHECK(answer({"--mesh", "a=2,b=2,c=2", "--flatten", "a,b", "--name", "x"}).at("axes") ==
        json{"x"});
  CHECK(answer({"--mesh", "w=8", "--unflatten", "w", "--sizes", "2,4", "--names", "a,b"})
            .at("shape") == json{2, 4});
  CHECK(answer({"--mesh", "a=2,b=2,c=2", "--concatenate", "a;c", "--rank", "2"}).at("ranks") ==
        json{2, 3, 6, 7});
  CHECK(answer({"--mesh", "dp=2,tp=4", "--global-shape", "4,8", "--tensor-map", "(1,0),-1"}) ==
        json{{"shape", {32, 8}}});
  const json layout =
      ask(request("layout", {{"shape", {16, 3}}, {"tensor_map", json::parse("[[0,1],-1]")}}));
  const std::vector<std::string> base = {"--mesh", "dp=2,tp=4", "--shape", "16,3"};
  for (const std::vector<std::string>& form :
       std::vector<std::vector<std::string>>{{"--layout", "SS(0,4),S(0)"},
                                             {"--layout", "StridedShard(0,4), Shard(0)"},
                                             {"--tensor-map", "(0,1),-1"},
                                             {"--tensor-map", "((0,1),-1)"},
                                             {"--tensor-map", "[[0,1],-1]"},
                                             {"--alias-map", "(tp,dp),None"},
                                             {"--alias-map", "((tp,dp),None)"}}) {
    std::vector<std::string> arguments = base;
    arguments.insert(arguments.end(), form.begin(), form.end());
    INFO(form[1]);
    CHECK(answer(arguments) == layout);
  }
  CHECK(answer({"--ranks", "[[0,2],[1,3]]", "--group", "0"}) == json{{"ranks", {0, 1}}});
  CHECK(answer({"--mesh", "a=2,b=2", "--ranks", "[[0,2],[1,3]]", "--group", "b"}) ==
        json{{"ranks", {0, 2}}});
}

TEST_CASE("names and lists may be written with blanks, parentheses or brackets") {
  const auto json_of = [](std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"--format", "json"});
    const ProgramRun run = mesh(arguments);
    INFO(run.err);
    REQUIRE(run.exit_code == 0);
    return json::parse(run.out);
  };
  CHECK(json_of({"--mesh", " d p = 2 , tp=4"}).at("axes") == json{"d p", "tp"});
  CHECK(json_of({"--mesh", "d p=2,tp=4", "--slice", " d p"}).at("ranks") == json{0, 4});
  // An axis called like a number is found by its name, other numbers are indices.
  CHECK(json_of({"--mesh", "a=2,0=2", "--group", "0"}).at("ranks") == json{0, 1});
  CHECK(json_of({"--mesh", "a=2,0=2", "--group", "1"}).at("ranks") == json{0, 1});
  // One list for a tensor of one dimension is the list of the axes that cut it.
  const auto map_of = [&](const char* option, const char* map, const char* shape) {
    return json_of({"--mesh", "dp=2,tp=4", option, map, "--shape", shape}).at("tensor_map");
  };
  const json both = json::parse("[[1,0]]");
  for (const char* text : {"(1,0)", "[1,0]", "((1,0))", "[[1,0]]", " ( 1 , 0 ) "}) {
    CHECK(map_of("--tensor-map", text, "8") == both);
  }
  for (const char* text : {"(dp,tp)", "[dp,tp]", "((dp,tp))", "dp_tp"}) {
    CHECK(map_of("--alias-map", text, "(8)") == both);
  }
  for (const char* text : {"(1,0)", "1,0", "[1,0]", "(1),(0)"}) {
    CHECK(map_of("--tensor-map", text, "8,8") == json{1, 0});
  }
  for (const char* text : {"(dp,tp)", "dp,tp", "[dp,[tp]]"}) {
    CHECK(map_of("--alias-map", text, "[8,8]") == json{1, 0});
  }
  CHECK(map_of("--tensor-map", "(),1", "8,8") == json{-1, 1});
  CHECK(map_of("--alias-map", "()", "") == json::array());
  CHECK(map_of("--tensor-map", "", "()") == json::array());
  // What is printed can be given again.
  const json layout =
      json_of({"--mesh", "dp=2,tp=4", "--tensor-map", "((0,1),-1)", "--shape", "8,8"});
  CHECK(layout.at("compact").get<std::string>().starts_with("((0,1),-1) "));
  CHECK(json_of({"--mesh", "dp=2,tp=4", "--alias-map", "((tp,dp),None)", "--shape", "8,8"}) ==
        layout);
  // A bar in a name does not break the table.
  CHECK(mesh({"--mesh", "a|b=2", "--flatten", "a|b", "--format", "markdown"}).out ==
        "| | |\n|---|---|\n| shape | 2 |\n| axes | a\\|b |\n| ranks | 0 1 |\n");
}

TEST_CASE("what a command throws is a message and exit code 1, never an abort") {
  std::ostringstream caught;
  std::streambuf* const before = std::cerr.rdbuf(caught.rdbuf());
  const int no_memory = run_guarded([]() -> int { throw std::bad_alloc(); });
  const int bug = run_guarded([]() -> int { throw std::logic_error("the reason"); });
  const int fine = run_guarded([] { return 5; });
  std::cerr.rdbuf(before);
  CHECK(no_memory == kBug);
  CHECK(bug == kBug);
  CHECK(fine == 5);
  CHECK(caught.str() ==
        "meshplan: error: out of memory; ask for less at once\n"
        "meshplan: internal error, please report it: the reason\n");
}

TEST_CASE("a wrong command line is exit 2 and names the option") {
  struct Case {
    std::vector<std::string> arguments;
    const char* names;
  };
  for (const Case& wrong : std::vector<Case>{
           {{}, "--mesh"},
           {{"--slice", "tp"}, "--mesh"},
           {{"--mesh", ""}, "--mesh"},
           {{"--mesh", "dp="}, "--mesh"},
           {{"--mesh", "=4"}, "--mesh"},
           {{"--mesh", "dp=2,,tp=4"}, "--mesh"},
           {{"--mesh", "dp=2,4"}, "--mesh"},
           {{"--mesh", "dp=0"}, "--mesh"},
           {{"--mesh", "dp=-2"}, "--mesh"},
           {{"--mesh", "dp=2,dp=2"}, "--mesh"},
           {{"--mesh", "dp=99999999999999999999"}, "--mesh"},
           {{"--mesh", "dp=9999999999,tp=9999999999"}, "--mesh"},
           {{"--mesh", "dp=2,tp=4", "--rank", "x"}, "--rank"},
           {{"--mesh", "dp=2,tp=4", "--rank", "8", "--slice", "tp"}, "--rank"},
           {{"--mesh", "dp=2,tp=4", "--ranks", "[[0,1"}, "--ranks"},
           {{"--mesh", "dp=2,tp=4", "--ranks", "[0,1]"}, "--ranks"},
           {{"--mesh", "dp=2,tp=4", "--ranks", "7"}, "--ranks"},
           {{"--mesh", "dp=2,tp=4", "--ranks", "[0],\"x\":[1]"}, "--ranks"},
           {{"--mesh", "dp=2,tp=4", "--slice", "pt"}, "did you mean"},
           {{"--mesh", "dp=2,tp=4", "--slice", "tp,dp"}, "--slice"},
           {{"--mesh", "dp=2,tp=4", "--slice", "tp", "--info"}, "--slice"},
           {{"--mesh", "dp=2,tp=4", "--group", "7"}, "--group"},
           {{"--mesh", "dp=2,tp=4", "--layout", "S(0),R"}, "--layout"},
           {{"--mesh", "dp=2,tp=4", "--layout", "S(0),R", "--shape", "a"}, "--shape"},
           {{"--mesh", "dp=2,tp=4", "--layout", "S(0),R", "--shape", "-4"}, "--shape"},
           {{"--mesh", "dp=2,tp=4", "--layout", "S(0),Q", "--shape", "8"}, "--layout"},
           {{"--mesh", "dp=2,tp=4", "--layout", "S(0)", "--shape", "8"}, "--layout"},
           {{"--mesh", "dp=2,tp=4", "--batch", "-"}, "--batch"},
           {{"--mesh", "dp=2,tp=4", "--unflatten", "tp", "--sizes", "3,2", "--names", "a,b"},
            "--sizes"},
           {{"--mesh", "dp=2,tp=4", "--nonsense"}, "--nonsense"},
           {{"--mesh", "dp=9999999999"}, "--info"},
           // An empty text is an answer, not silence.
           {{"--mesh", "dp=2,tp=4", "--slice", ""}, "--slice: the selection of axes"},
           {{"--mesh", "dp=2,tp=4", "--group", ""}, "--group: unknown mesh axis \"\""},
           {{"--mesh", "dp=2,tp=4", "--flatten", ""}, "--flatten: the selection of axes"},
           {{"--mesh", "dp=2,tp=4", "--alias-map", "", "--shape", "8"}, "--alias-map: 0 entries"},
           {{"--batch", ""}, "--batch: expected a file name"},
           {{"--mesh", "dp=2", "--ranks", ""}, "--ranks: is empty"},
           // An option that the question has no use for.
           {{"--mesh", "dp=2,tp=4", "--info", "--name", "x"}, "--name: says nothing about --info"},
           {{"--mesh", "dp=2,tp=4", "--shape", "8,8"}, "--shape: says nothing about --info"},
           {{"--mesh", "dp=2,tp=4", "--slice", "dp", "--sizes", "2"}, "--sizes: says nothing"},
           {{"--mesh", "4", "--unflatten", "0", "--sizes", "2,2", "--names", "a,b"},
            "--names: a mesh without axis names"},
           {{"--batch", "-", "--info"}, "--info"},
           {{"--batch", "-", "--rank", "3"}, "--rank"},
           // An option that the question needs.
           {{"--mesh", "dp=2,tp=4", "--layout", "R,R"}, "--layout: needs --shape"},
           {{"--mesh", "dp=2,tp=4", "--unflatten", "tp"}, "--unflatten: needs --sizes"},
           {{"--mesh", "dp=2,tp=4", "--unflatten", "tp", "--sizes", "2,2"}, "needs --names"},
           {{"--mesh", "dp=2,tp=4", "--global-shape", "8"}, "--global-shape: needs --tensor-map"},
           {{"--mesh", "dp=2,tp=4", "--global-shape", "8", "--tensor-map", "7"}, "--tensor-map: "},
           {{"--mesh", "dp=2,tp=4", "--flatten", "dp,tp", "--name", "tp"}, "--name: the name"},
           {{"--mesh", "dp=2,tp=4", "--rank", "99999999999999999999", "--coordinates"},
            "--rank: the integer does not fit"},
           {{"--mesh", "dp=2,tp=4", "--group", "-1"}, "--group: axis index -1 is out of range"},
           {{"--mesh", "dp=2,tp=4", "--layout", "R", "--shape", "8"},
            "1 placement for a mesh of 2"},
           {{"--mesh", "dp=2,tp=4", "--tensor-map", "((1,0),)", "--shape", "8"}, "--tensor-map: "},
           {{"--mesh", "d\xff=2"}, "--mesh: the text is not valid UTF-8"},
       }) {
    std::string line;
    for (const std::string& argument : wrong.arguments) line += argument + " ";
    const ProgramRun run = mesh(wrong.arguments);
    INFO(line << "-> " << run.err);
    CHECK(run.exit_code == 2);
    CHECK(run.out.empty());
    CHECK(run.err.find(wrong.names) != std::string::npos);
  }
}

TEST_CASE("a mesh of a million devices is answered at once, and its long lists are cut in text") {
  const ProgramRun group = mesh(
      {"--mesh", "dp=1024,cp=32,tp=32", "--group", "cp", "--rank", "1048575", "--format", "json"});
  CHECK(json::parse(group.out).at("ranks").size() == 32);
  const ProgramRun info = mesh({"--mesh", "dp=1024,cp=32,tp=32"});
  CHECK(info.exit_code == 0);
  CHECK(info.out.find("(1048576 in all)") != std::string::npos);
  CHECK(info.out.size() < 2000);
  const json slice = ask(request("slice",
                                 {{"axes", {"tp"}}, {"rank", 77}},
                                 {{"shape", {1024, 32, 32}}, {"axes", {"dp", "cp", "tp"}}}));
  CHECK(slice.at("ranks").front() == 64);
  CHECK_FALSE(slice.at("root").contains("ranks"));
}

TEST_CASE("an answer that would list too many ranks is an overflow, one about a part of them not") {
  const json vast = {{"shape", {2, kMaxListedRanks}}, {"axes", {"dp", "tp"}}};
  for (const json& wanted :
       {request("info", json::object(), vast), request("groups", {{"axis", "dp"}}, vast)}) {
    const json answer = ask(wanted);
    INFO(answer.dump());
    CHECK(answer.at("error").at("code") == "overflow");
  }
  const json group = ask(request("group", {{"axis", "dp"}, {"rank", 5}}, vast));
  CHECK(group.at("ranks") == json({5, kMaxListedRanks + 5}));
}

/// The words of a command line; double quotes group.
std::vector<std::string> words_of(const std::string& line) {
  std::vector<std::string> words(1);
  bool quoted = false;
  for (const char letter : line) {
    if (letter == '"') {
      quoted = !quoted;
    } else if (letter == ' ' && !quoted) {
      words.emplace_back();
    } else {
      words.back() += letter;
    }
  }
  return words;
}

TEST_CASE("the commands in the user page print what it says") {
  const std::string page = test::file_text(std::string(MESHPLAN_SOURCE_DIR) + "/docs/mesh.md");
  const std::string open = "```console\n$ meshplan ";
  int count = 0;
  for (std::size_t at = page.find(open); at != std::string::npos; at = page.find(open, at)) {
    at += open.size();
    const std::size_t line_end = page.find('\n', at);
    const std::size_t end = page.find("```", line_end);
    const std::string line = page.substr(at, line_end - at);
    const ProgramRun run = run_program(words_of(line));
    INFO(line);
    CHECK(run.out + run.err == page.substr(line_end + 1, end - line_end - 1));
    ++count;
  }
  CHECK(count == 13);
  // The batch example: requests, then answers.
  const std::string json_open = "```json\n";
  const std::size_t requests = page.find(json_open) + json_open.size();
  const std::size_t requests_end = page.find("```", requests);
  const std::size_t answers = page.find(json_open, requests_end) + json_open.size();
  CHECK(batch(page.substr(requests, requests_end - requests)).out ==
        page.substr(answers, page.find("```", answers) - answers));
}

}  // namespace
}  // namespace meshplan::mesh_command_test

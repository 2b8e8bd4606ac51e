// SPDX-License-Identifier: Apache-2.0
// The program's `whatif`: every way to print, parts that join to the whole, every error.
#include <algorithm>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "apps/whatif_report.h"
#include "support/catch.h"
#include "support/run_program.h"

namespace meshplan::whatif_command_test {
namespace {

using nlohmann::json;
using test::ProgramRun;
using test::run_program;
using test::TemporaryFolder;
using Words = std::vector<std::string>;

const std::string kGraph = std::string(MESHPLAN_SOURCE_DIR) + "/examples/mlp/graph.json";

Words joined(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

ProgramRun whatif(const Words& more) { return run_program(joined({"whatif"}, more)); }

/// Two clusters, one with a price; 36 points, of which some do not fit.
Words sweep(const TemporaryFolder& folder) {
  json cluster = json::parse(
      test::file_text(std::string(MESHPLAN_SOURCE_DIR) + "/examples/tiny_llama/four_gpus.json"));
  cluster["name"] = "own & cheap";
  cluster["price_per_device_hour"] = 0.75;
  cluster["device"]["reserved_memory"] = 0;
  const std::string own = folder.write("own.json", cluster.dump());
  return {kGraph,
          "--cluster",
          "dgx-a100-80g",
          "--cluster",
          own,
          "--devices",
          "2..4,1",
          "--batch",
          "4096,8192",
          "--memory",
          "4250MiB,80GiB",
          "--network",
          "1x,0.5x,2x"};
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

TEST_CASE("parts join to the bytes of the whole, in every format and on any threads") {
  const TemporaryFolder folder;
  const Words words = sweep(folder);
  const auto outputs = [&](const std::string& name) {
    return Words{"--csv", folder.file(name + ".csv"), "--plot", folder.file(name + ".svg")};
  };
  const ProgramRun whole =
      whatif(joined(joined(words, outputs("a")), {"--format", "json", "--threads", "1"}));
  INFO(whole.err);
  REQUIRE(whole.exit_code == 0);
  CHECK(whatif(joined(words, {"--format", "json", "--threads", "4"})).out == whole.out);
  Words parts;
  for (const char* shard : {"2/3", "0/3", "1/3"}) {
    parts.push_back(folder.file(std::string("part") + shard[0] + ".json"));
    const ProgramRun part = whatif(joined(words, {"--shard", shard, "-o", parts.back()}));
    INFO(part.err);
    REQUIRE(part.exit_code == 0);
    CHECK(part.out.empty());
  }
  const Words merge = joined({"--merge"}, parts);
  const ProgramRun again = whatif(joined(joined(merge, outputs("b")), {"--format", "json"}));
  INFO(again.err);
  REQUIRE(again.exit_code == 0);
  CHECK(again.out == whole.out);
  for (const char* file : {".csv", ".svg"}) {
    CHECK(test::file_text(folder.file(std::string("a") + file)).size() > 1000);
    CHECK(test::file_text(folder.file(std::string("a") + file)) ==
          test::file_text(folder.file(std::string("b") + file)));
  }
  for (const char* format : {"text", "markdown"})
    CHECK(whatif(joined(merge, {"--format", format})).out ==
          whatif(joined(words, {"--format", format})).out);
  // what was written reads back as the same
  const auto read = read_what_if(whole.out, "whole.json");
  REQUIRE(read.has_value());
  CHECK(write_what_if(*read) == whole.out);
}

TEST_CASE("a sweep says at each point what plan says") {
  const TemporaryFolder folder;
  const ProgramRun run = whatif(joined(sweep(folder), {"--format", "json", "--mesh-axes", "3"}));
  INFO(run.err);
  REQUIRE(run.exit_code == 0);
  const json document = json::parse(run.out);
  CHECK(document["schema"] == "meshplan.whatif/1.0");
  REQUIRE(document["points"].size() == 72);
  std::size_t planned = 0;
  std::size_t missing = 0;
  for (const json& point : document["points"]) {
    if (point["status"] == "infeasible") {
      ++missing;
      CHECK(point["missing_memory"].get<std::int64_t>() > 0);
      CHECK(point["missing_memory"].get<std::int64_t>() ==
            point["min_memory"].get<std::int64_t>() - point["memory_limit"].get<std::int64_t>());
      continue;
    }
    ++planned;
    CHECK(point["peak_memory"] <= point["memory_limit"]);
    CHECK(point.contains("price_per_step") == (point["cluster"] == "own & cheap"));
    if (!point.contains("price_per_step")) CHECK(point["on_price_front"] == false);
    // one in six, compared with the command that plans one machine
    if (point["network"] != 1.0 || point["batch"] != 8192 || point["memory"] != 85899345920)
      continue;
    const std::string cluster =
        point["cluster"] == "own & cheap" ? folder.file("own.json") : "dgx-a100-80g";
    const std::string file = folder.file("plan.json");
    const ProgramRun plan =
        run_program({"plan",
                     "--search",
                     "dp",
                     kGraph,
                     "--cluster",
                     cluster,
                     "--devices",
                     std::to_string(point["devices"].get<int>()),
                     "-o",
                     file,
                     "--memory-limit",
                     std::to_string(point["memory_limit"].get<std::int64_t>())});
    INFO(plan.err);
    REQUIRE(plan.exit_code == 0);
    const json one = json::parse(test::file_text(file));
    CHECK(point["objective"] == one["result"]["objective"]);
    CHECK(point["lower_bound"] == one["result"]["lower_bound"]);
    for (const char* figure : {"step_time",
                               "compute_time",
                               "communication_time",
                               "exposed_communication_time",
                               "tokens_per_second",
                               "model_flops_utilization"})
      CHECK(point[figure] == one["cost"][figure]);
    if (point.contains("price_per_step"))
      CHECK(point["price_per_step"] == one["cost"]["price_per_step"]);
    CHECK(point["mesh"]["shape"] == one["mesh"]["shape"]);
    CHECK(point["mesh"]["axes"] == one["mesh"]["axes"]);
    CHECK(point["peak_memory"] == one["memory"]["peak"]);
  }
  CHECK(planned > 40);
  CHECK(missing > 0);
}

TEST_CASE("tables, sheet and picture have every point") {
  const TemporaryFolder folder;
  const Words words = sweep(folder);
  const ProgramRun text = whatif(words);
  INFO(text.err);
  REQUIRE(text.exit_code == 0);
  for (const char* part : {"Points",
                           "efficiency",
                           "price per step",
                           "Pareto front: step time against devices",
                           "Pareto front: step time against price per step",
                           "What is missing where nothing fits",
                           "fits from",
                           "own & cheap",
                           "0.5x"})
    CHECK(text.out.find(part) != std::string::npos);
  const ProgramRun page = whatif(joined(words, {"--format", "markdown"}));
  CHECK(page.out.find("| cluster | devices | batch | device memory | network | mesh |") !=
        std::string::npos);

  const ProgramRun sheet = whatif(joined(words, {"--csv", "-"}));
  REQUIRE(sheet.exit_code == 0);
  const auto rows = lines_of(sheet.out);
  REQUIRE(rows.size() == 73);
  const auto commas = [](const std::string& row) {
    bool quoted = false;
    std::size_t count = 0;
    for (const char c : row) {
      if (c == '"') quoted = !quoted;
      if (c == ',' && !quoted) ++count;
    }
    return count;
  };
  for (const std::string& row : rows) {
    CHECK(row.back() == '\r');
    CHECK(commas(row) == commas(rows.front()));
  }

  const std::string svg = folder.file("scaling.svg");
  REQUIRE(whatif(joined(words, {"--plot", svg})).exit_code == 0);
  const std::string picture = test::file_text(svg);
  CHECK(picture.find("own &amp; cheap, batch 4,096") != std::string::npos);
  CHECK(picture.find("no plan fits") != std::string::npos);
  CHECK(picture.find("nan") == std::string::npos);
  CHECK(picture.find("inf") == std::string::npos);
  std::size_t lines = 0;
  for (std::size_t at = picture.find("<polyline"); at != std::string::npos;
       at = picture.find("<polyline", at + 1))
    ++lines;
  CHECK(lines >= 3 * 12);  // two panels and the legend
}

TEST_CASE("where nothing fits at all the exit code is 4, and -o leaves no file") {
  const TemporaryFolder folder;
  const Words words = {
      kGraph, "--cluster", "dgx-a100-80g", "--devices", "1,2", "--memory", "4400MiB"};
  const std::string file = folder.file("out.json");
  const ProgramRun run = whatif(joined(words,
                                       {"--format",
                                        "json",
                                        "-o",
                                        file,
                                        "--csv",
                                        folder.file("out.csv"),
                                        "--plot",
                                        folder.file("out.svg")}));
  CHECK(run.exit_code == 4);
  CHECK(run.err.find("no point of the sweep has a plan") != std::string::npos);
  CHECK(json::parse(run.out)["points"][0]["status"] == "infeasible");
  CHECK(json::parse(run.out)["points"][0]["missing_memory"].get<std::int64_t>() > 0);
  for (const char* name : {"out.json", "out.csv", "out.svg"})
    CHECK_FALSE(std::filesystem::exists(folder.file(name)));
  // a part has done its work; the join says it
  REQUIRE(whatif(joined(words, {"--shard", "0/1", "-o", file})).exit_code == 0);
  const ProgramRun merged = whatif({"--merge", file, "--format", "json"});
  CHECK(merged.exit_code == 4);
  CHECK(merged.out == run.out);
}

void refused(const Words& words, int code, const std::string& message) {
  const ProgramRun run = whatif(words);
  INFO(run.err);
  CHECK(run.exit_code == code);
  CHECK(run.err.find(message) != std::string::npos);
  CHECK(run.out.empty());
}

TEST_CASE("wrong axes are refused by the name of their option") {
  const TemporaryFolder folder;
  const Words base = {kGraph, "--cluster", "dgx-a100-80g"};
  const auto check = [&](const Words& more, const std::string& message) {
    refused(joined(base, more), 2, message);
  };
  refused({"--cluster", "dgx-h100"}, 2, "GRAPH: expected a graph to plan, or parts (--merge)");
  refused({kGraph}, 2, "--cluster: expected at least one cluster");
  check({"--cluster", "dgx-a100-80g"}, "--cluster: two clusters are called \"dgx-a100-80g\"");
  check({"--devices", "8,x"}, "--devices: \"x\": expected a number from 1 to 1048576");
  check({"--devices", "16..8"}, "--devices: \"16..8\": expected a number");
  check({"--devices", "8,,16"}, "--devices: \"\": expected a number");
  check({"--devices", "4..16,8"}, "--devices: 8 is given twice");
  check({"--devices", "8,12"}, "--devices: 12 devices are not possible");
  check({"--devices", ""}, "expected a value, found an empty text");
  check({"--batch", "0"}, "--batch: \"0\": expected a number");
  check({"--batch", "64,65", "--microbatches", "2"},
        "--batch: 65 cannot be divided into 2 micro-batches");
  check({"--memory", "40"}, "--memory: 40 B leave nothing for a plan: cluster \"dgx-a100-80g\"");
  check({"--memory", "40Gb"}, "--memory: \"40Gb\": expected the memory of a device");
  check({"--memory", "1GiB,1024MiB"}, "--memory: \"1024MiB\" is given twice");
  check({"--network", "0x"}, "--network: \"0x\": expected a factor from 0.000001 to 1000000");
  check({"--network", "1x,100%"}, "--network: \"100%\" is given twice");
  check({"--network", "nvlnk=2x"},
        "has no level \"nvlnk\" (it has nvlink, ib); did you mean \"nvlink\"?");
  check({"--overlap", "ring=2"}, "--overlap: \"ring=2\": expected a fraction from 0 to 1");
  check({"--microbatches", "0"}, "--microbatches: \"0\": expected a number");
  for (const char* shard : {"3", "2/2", "-1/2", "0/0", "a/b", "1/2/3"})
    check({"--shard", shard}, "expected i/n, part i (from 0) of n");
  check({"--shard", "0/2", "--csv", "x.csv"}, "--csv: is for a whole sweep");
  check({"--shard", "0/2", "--plot", "x.svg"}, "--plot: is for a whole sweep");
  check({"--shard", "0/2", "--format", "markdown"}, "--format: a part (--shard) is JSON");
  check({"--csv", "x", "--plot", "x"}, "--plot: writes to the same place as --csv");
  const std::string constraints = folder.write("constraints.json", "{}");
  for (const char* option : {"-o", "--csv", "--plot"})
    check({"--constraints", constraints, option, constraints},
          std::string(option) + ": would replace \"" + constraints + "\", which is read here");
  check({"--merge", "part.json"}, "--merge joins what is planned already");
  const std::string many = "1..1048576";
  std::string factors = "1";
  for (int i = 2; i < 3000; ++i) factors += "," + std::to_string(i);
  check({"--devices",
         "1..8",
         "--batch",
         many,
         "--memory",
         "5GiB,6GiB,7GiB,8GiB,9GiB",
         "--network",
         factors},
        "more than 1,000,000 points");
}

TEST_CASE("graphs and constraints that a sweep cannot take are refused with their place") {
  const TemporaryFolder folder;
  json graph = json::parse(test::file_text(kGraph));
  graph["dimensions"]["batch"] =
      json{{"size", 128}, {"dynamic", true}, {"min", 64}, {"max", 256}, {"multiple_of", 64}};
  const std::string bounded = folder.write("bounded.json", graph.dump());
  const Words rest = {"--cluster", "dgx-a100-80g", "--devices", "2", "--format", "json"};
  refused(joined({bounded, "--batch", "96"}, rest),
          2,
          "--batch: 96 is not possible: the graph's dimension \"batch\" goes from 64 to 256 in "
          "multiples of 64");
  const ProgramRun fine = whatif(joined({bounded, "--batch", "192"}, rest));
  INFO(fine.err);
  CHECK(json::parse(fine.out)["points"][0]["batch"] == 192);
  graph["dimensions"] = json{{"rows", json{{"size", 64}}}};
  graph["tensors"]["x"]["shape"][0] = "rows";
  const std::string other = folder.write("rows.json", graph.dump());
  refused(joined({other, "--batch", "96"}, rest),
          2,
          "--batch: the graph names no dimension \"batch\", so its batch cannot be changed (its "
          "dimensions: rows)");
  const ProgramRun without = whatif(joined({other}, rest));
  INFO(without.err);
  REQUIRE(without.exit_code == 0);
  CHECK_FALSE(json::parse(without.out)["points"][0].contains("batch"));
  refused(joined({folder.file("none.json")}, rest), 3, "none.json: cannot open");
  refused(joined({"-"}, rest), 3, "standard input");
  refused(joined({kGraph,
                  "--constraints",
                  std::string(MESHPLAN_SOURCE_DIR) + "/examples/mlp/tensor_parallel.json"},
                 rest),
          3,
          "tensor_parallel.json: /mesh: these constraints are for one mesh");
  const std::string wish = folder.write(
      "wish.json",
      R"({"schema": "meshplan.constraints/1.0", "scopes": {"layers.*": {"recompute": true}}})");
  const ProgramRun constrained = whatif(joined({kGraph, "--constraints", wish}, rest));
  INFO(constrained.err);
  REQUIRE(constrained.exit_code == 0);
  CHECK(json::parse(constrained.out)["points"][0].contains("hardware_flops_utilization"));
}

TEST_CASE("files that are no parts of one sweep are refused with file and place") {
  const TemporaryFolder folder;
  const Words words = {kGraph, "--cluster", "dgx-a100-80g", "--devices", "1,2"};
  const auto part = [&](const std::string& name, const Words& more) {
    const std::string file = folder.file(name);
    const ProgramRun run = whatif(joined(joined(words, more), {"-o", file}));
    INFO(run.err);
    REQUIRE(run.exit_code == 0);
    return file;
  };
  const std::string zero = part("zero.json", {"--shard", "0/2"});
  const std::string one = part("one.json", {"--shard", "1/2"});
  const std::string third = part("third.json", {"--shard", "2/3"});
  const std::string other = part("other.json", {"--shard", "1/2", "--recompute", "full"});
  const std::string whole = part("whole.json", {"--format", "json"});
  CHECK(whatif({"--merge", one, zero}).exit_code == 0);
  refused({"--merge", zero}, 3, "--merge: the sweep has 2 parts, 1 of them missing: 1");
  refused({"--merge", zero, zero}, 3, "zero.json: /shard/index: part 0 is in ");
  refused({"--merge", zero, third}, 3, "third.json: /shard/count: not a part of the same sweep");
  refused({"--merge", zero, other}, 3, "other.json: /options: not a part of the same sweep");
  refused({"--merge", whole}, 3, "whole.json: /shard: this is a whole sweep");
  refused({"--merge", folder.file("x")}, 3, "cannot open");

  const json good = json::parse(test::file_text(zero));
  const auto bad = [&](const char* pointer, const json& value, const std::string& message) {
    json changed = good;
    const json::json_pointer place{pointer};
    if (value.is_discarded()) {
      changed[place.parent_pointer()].erase(place.back());
    } else {
      changed[place] = value;
    }
    const std::string file = folder.write("bad.json", changed.dump());
    refused({"--merge", file, one}, 3, "bad.json: " + message);
  };
  const json gone = json::parse("", nullptr, false);
  bad("/schema", "meshplan.plan/1.0", "/schema: ");
  bad("/schema", "meshplan.whatif/1.1", "/schema: ");
  bad("/point", 1, "/point: ");
  bad("/graph/name", gone, "/graph: ");
  bad("/clusters", json::array(), "/clusters: expected at least one element");
  bad("/devices/0", 0, "/devices/0: ");
  bad("/shard/index", 2, "/shard/index: ");
  bad("/points", json::array(), "/points: expected the 1 point of the shard, found 0");
  bad("/points/0/cluster", "x", "/points/0/cluster: the axes of the sweep give this point \"dgx");
  bad("/points/0/devices", 3, "/points/0/devices: the axes of the sweep give this point 1");
  bad("/points/0/network", 2.0, "/points/0/network: the axes of the sweep give this point 1x");
  bad("/points/0/status", "good", "/points/0/status: expected optimal, feasible, infeasible or");
  // figures whose quotients are no numbers any more
  for (const double figure : {-1.0, 1e-320, 1e308}) {
    for (const char* key : {"objective", "step_time", "lower_bound", "model_flops_utilization"}) {
      const std::string pointer = std::string("/points/0/") + key;
      bad(pointer.c_str(), figure, pointer + ": expected 0 or a number from 1e-30 to 1e30");
    }
  }
  bad("/points/0/lower_bound", 1e6, "/points/0/lower_bound: a lower bound is at most the objec");
  bad("/points/0/gap", true, "/points/0/gap: ");
  bad("/points/0/mesh/axes", json::array(), "/points/0/mesh: expected shape, axes and roles");
  bad("/points/0/step_time", gone, "/points/0: ");
  bad("/points/0/peak_memory", "1", "/points/0/peak_memory: ");
}

}  // namespace
}  // namespace meshplan::whatif_command_test

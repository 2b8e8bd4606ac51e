// SPDX-License-Identifier: Apache-2.0
// What `meshplan plan` chooses on its own (micro-batches, meshes), against the same with every
// choice given; and that nothing is written where nothing fits.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "support/catch.h"
#include "support/run_program.h"

namespace meshplan::plan_choices_test {
namespace {

using nlohmann::json;

const std::string kGraph = std::string(MESHPLAN_SOURCE_DIR) + "/examples/mlp/graph.json";
const std::string kTooLarge = std::string(MESHPLAN_SOURCE_DIR) + "/examples/too_small/config.json";

/// Plans the example's perceptron on a node of eight and checks the plan; none where nothing fits.
std::optional<json> planned(const test::TemporaryFolder& folder,
                            std::vector<std::string> options,
                            const std::string& cluster = "dgx-a100-80g") {
  const std::string file = folder.file("plan.json");
  options.insert(options.begin(), {"plan", kGraph, "--cluster", cluster, "--devices", "8"});
  options.insert(options.end(), {"-o", file});
  const test::ProgramRun run = test::run_program(options);
  INFO(run.err);
  if (run.exit_code == 4) return std::nullopt;
  REQUIRE(run.exit_code == 0);
  const test::ProgramRun check =
      test::run_program({"check", file, "--graph", kGraph, "--cluster", cluster});
  INFO(check.out << check.err);
  REQUIRE(check.exit_code == 0);
  return json::parse(test::file_text(file));
}

double objective(const json& plan) { return plan.at("result").at("objective").get<double>(); }

TEST_CASE("--microbatches auto finds the best of all numbers") {
  const test::TemporaryFolder folder;
  const json free = *planned(folder, {"--mesh", "dp=8"});
  const auto peak = free.at("memory").at("peak").get<std::int64_t>();
  std::vector<std::int64_t> chosen;
  for (const int percent : {100, 50}) {
    INFO("limit " << percent << " % of " << peak);
    const std::string limit = std::to_string(peak / 100 * percent);
    const auto with = [&](const std::string& count) {
      return planned(folder, {"--mesh", "dp=8", "--memory-limit", limit, "--microbatches", count});
    };
    double least = 1e9;
    std::int64_t best = 0;
    for (std::int64_t count = 1; count <= 8192; count *= 2) {
      const std::optional<json> plan = with(std::to_string(count));
      if (!plan || objective(*plan) >= least) continue;
      least = objective(*plan);
      best = count;
    }
    const std::optional<json> found = with("auto");
    REQUIRE(found);
    CHECK(objective(*found) == least);
    CHECK(found->at("options").at("microbatches") == best);
    // the bound holds for every number of micro-batches
    CHECK(found->at("result").at("lower_bound").get<double>() <= least);
    chosen.push_back(best);
  }
  CHECK(chosen[0] == 1);
  CHECK(chosen[1] > 1);  // the limit makes more of them worth it
}

TEST_CASE("--mesh all finds the best of all meshes, in every order of their axes") {
  const test::TemporaryFolder folder;
  double least = 1e9;
  for (const char* mesh : {"a=8", "a=2,b=4", "a=4,b=2", "a=2,b=2,c=2"})
    least = std::min(least, objective(*planned(folder, {"--mesh", mesh})));
  const json all = *planned(folder, {"--mesh", "all"});
  CHECK(objective(all) == least);
  CHECK(all.at("options").at("mesh") == "all");
  const json automatic = *planned(folder, {"--mesh", "auto"});
  CHECK(objective(all) <= objective(automatic));
  CHECK(all.at("result").at("lower_bound").get<double>() <=
        automatic.at("result").at("objective").get<double>());
  const json alone = *planned(folder, {"--mesh", "all", "--threads", "1"});
  CHECK(alone == all);
}

TEST_CASE("the cost graph that plan writes has the plan's objective as its optimum") {
  const test::TemporaryFolder folder;
  for (const char* format : {"own", "contest"}) {
    INFO(format);
    const std::string file = folder.file(format);
    const json plan = *planned(
        folder, {"--mesh", "dp=2,tp=4", "--dump-cost-graph", file, "--cost-graph-format", format});
    const test::ProgramRun run = test::run_program({"solve", file, "--format", "json"});
    INFO(run.err);
    REQUIRE(run.exit_code == 0);
    const json solved = json::parse(run.out);
    CHECK(solved.at("status") == "optimal");
    const double unit = std::string(format) == "own" ? 1 : std::ldexp(1.0, -40);
    CHECK(solved.at("cost").get<double>() * unit == objective(plan));
  }
  const test::ProgramRun several = test::run_program({"plan",
                                                      kGraph,
                                                      "--cluster",
                                                      "dgx-a100-80g",
                                                      "--devices",
                                                      "8",
                                                      "--dump-cost-graph",
                                                      folder.file("several")});
  CHECK(several.exit_code == 2);
  CHECK(several.err.find("--mesh") != std::string::npos);
}

TEST_CASE("--top writes plans of different kinds, each of which checks") {
  const test::TemporaryFolder folder;
  const json one = *planned(folder, {});
  const json first = *planned(folder, {"--top", "2"});  // checks the first one
  json same = first;
  CHECK(same.at("options").at("top") == 2);
  same.at("options").erase("top");
  CHECK(same == one);
  const auto kind = [](const json& plan) {
    return plan.at("mesh").at("shape").dump() + plan.at("mesh").at("roles").dump();
  };
  const std::string file = folder.file("plan.2.json");
  const json second = json::parse(test::file_text(file));
  CHECK(objective(second) >= objective(first));
  CHECK(kind(second) != kind(first));
  CHECK(second.at("result").at("status") == "feasible");
  CHECK(second.at("result").at("lower_bound").is_null());
  CHECK(test::run_program({"check", file, "--graph", kGraph, "--cluster", "dgx-a100-80g"})
            .exit_code == 0);
  CHECK_FALSE(std::filesystem::exists(folder.file("plan.3.json")));
  const std::vector<std::string> command = {
      "plan", kGraph, "--cluster", "dgx-a100-80g", "--devices", "8", "--top", "2"};
  std::vector<std::string> as_json = command;
  as_json.insert(as_json.end(), {"--format", "json"});
  const json list = json::parse(test::run_program(as_json).out);
  REQUIRE(list.size() == 2);
  CHECK(list[0] == first);
  CHECK(test::run_program(command).out.find("Other kinds of plans") != std::string::npos);
}

TEST_CASE("a plan made with measured operators checks with them, and not with others") {
  const test::TemporaryFolder folder;
  const auto cluster = [&](const std::string& name, const std::string& forward) {
    std::string list;
    for (const int m : {1024, 2048, 4096, 8192}) {
      for (const int k : {128, 256, 512, 1024, 2048, 4096}) {
        for (const int n : {128, 256, 512, 1024, 2048, 4096})
          list += (list.empty() ? "" : ", ") +
                  (R"({"operator": "MatMul", "inputs": [[)" + std::to_string(m) + ", " +
                   std::to_string(k) + "], [" + std::to_string(k) + ", " + std::to_string(n) +
                   R"(]], "dtype": "bf16", "forward": ")" + forward + "\"}");
      }
    }
    return folder.write(name, R"({"schema": "meshplan.cluster/1.0", "name": "measured",
      "device": {"name": "d", "memory": "80GiB", "reserved_memory": 0,
                 "memory_bandwidth": "2TB/s", "peak_flops": {"bf16": "300TFLOPS"}},
      "levels": [{"name": "l", "size": 8, "bandwidth": "300GB/s", "latency": "3us"}],
      "measurements": [)" + list + "]}");
  };
  const std::string measured = cluster("measured.json", "7ms");
  const json plan = *planned(folder, {}, measured);
  for (const json& op : plan.at("operators")) {
    if (op.at("type") != "MatMul") continue;
    CHECK(op.at("compute_time").get<double>() > 7e-3);
    CHECK(op.at("compute_time").get<double>() < 14e-3);
  }
  const test::ProgramRun other = test::run_program({"check",
                                                    folder.file("plan.json"),
                                                    "--graph",
                                                    kGraph,
                                                    "--cluster",
                                                    cluster("other.json", "8ms")});
  CHECK(other.exit_code == 5);
}

TEST_CASE(
    "where no plan is found, the message has a figure, and claims no proof that is not there") {
  // between what is proven to be too little and what is enough
  for (const char* search : {"auto", "dp", "sapp", "propagation"}) {
    INFO(search);
    int open = 0;
    for (int limit = 90; limit <= 98; limit += 2) {
      INFO(limit);
      const test::ProgramRun run = test::run_program({"plan",
                                                      kGraph,
                                                      "--cluster",
                                                      "dgx-a100-80g",
                                                      "--devices",
                                                      "8",
                                                      "--search",
                                                      search,
                                                      "--memory-limit",
                                                      std::to_string(limit) + "MiB",
                                                      "--format",
                                                      "json"});
      if (run.exit_code == 0) continue;
      REQUIRE(run.exit_code == 4);
      const json plan = json::parse(run.out);
      const bool proven =
          plan.at("result").contains("min_memory") && !plan.at("result").at("min_memory").is_null();
      if (proven) {
        CHECK(run.err.find("no plan fits the memory limit of") != std::string::npos);
        CHECK(run.err.find("every plan needs at least") != std::string::npos);
        continue;
      }
      ++open;
      CHECK(run.err.find("no plan was found that fits") != std::string::npos);
      CHECK(run.err.find("the lightest that was tried needs") != std::string::npos);
      CHECK(run.err.find(" more; that there is none is not proven") != std::string::npos);
      CHECK(run.err.find("every plan needs") == std::string::npos);
      REQUIRE(plan.at("notes").size() == 1);
      CHECK(run.err.find(plan.at("notes")[0].get<std::string>()) != std::string::npos);
    }
    CHECK(open > 0);
  }
}

TEST_CASE("where nothing fits, -o writes nothing and leaves what is there") {
  const test::TemporaryFolder folder;
  const std::string graph = folder.file("graph.json");
  REQUIRE(
      test::run_program({"import", "hf", kTooLarge, "--batch", "8", "--seq", "2048", "-o", graph})
          .exit_code == 0);
  for (const char* format : {"text", "json", "markdown"}) {
    INFO(format);
    const std::string fresh = folder.file(std::string("fresh_") + format);
    const std::string old = folder.write(std::string("old_") + format, "what was there\n");

    for (const std::string& file : {fresh, old}) {
      const test::ProgramRun run = test::run_program({"plan",
                                                      graph,
                                                      "--cluster",
                                                      "dgx-a100-40g",
                                                      "--devices",
                                                      "2",
                                                      "--format",
                                                      format,
                                                      "-o",
                                                      file});
      CHECK(run.exit_code == 4);
      CHECK(run.err.find("no plan fits") != std::string::npos);
      if (std::string(format) == "json") {
        CHECK(json::parse(run.out).at("result").at("status") == "infeasible");
      } else {
        CHECK(run.out.empty());
      }
    }
    CHECK_FALSE(std::filesystem::exists(fresh));
    CHECK(test::file_text(old) == "what was there\n");
  }
}

}  // namespace
}  // namespace meshplan::plan_choices_test

// SPDX-License-Identifier: Apache-2.0
// The program that compares predicted with measured runs (bench/fidelity.cpp), run on small tables
// of runs. Only where the programs of bench/ are built.
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "support/catch.h"
#include "support/run_program.h"

#ifdef MESHPLAN_FIDELITY

namespace meshplan::fidelity_test {
namespace {

using nlohmann::json;

/// A run of a small GPT on 8 devices; `more` adds to it or replaces what it has.
json run_of(const std::string& id, const json& more) {
  json run = {{"id", id},
              {"source", "MosaicML LLM Foundry benchmarks"},
              {"model", "GPT small"},
              {"layers", 2},
              {"hidden", 768},
              {"heads", 12},
              {"seq", 1024},
              {"vocab", 50368},
              {"params_B", 0.05},
              {"global_batch", 64},
              {"micro_batch", 8},
              {"dp", 8},
              {"tp", 1},
              {"pp", 1},
              {"n_gpus", 8},
              {"recompute", "none"},
              {"dp_kind", "FSDP full shard"},
              {"precision", "bf16"},
              {"gpu", "A100-80GB SXM"},
              {"note", "keys that are not compared are left alone"}};
  run.update(more);
  return run;
}

json three_runs() {
  return {{"rows",
           {run_of("A", {{"tokens_per_s_per_gpu", 500000}}),
            run_of("B", {{"iter_time_s", 0.05}, {"memory_GB", 12}, {"memory_unit", "GiB"}}),
            run_of("C", {{"iter_time_s", 0.05}, {"pp", 2}, {"n_gpus", 16}})}}};
}

test::ProgramRun fidelity(const json& runs, const std::vector<std::string>& options = {}) {
  const test::TemporaryFolder folder;
  std::vector<std::string> arguments = {folder.write("runs.json", runs.dump())};
  arguments.insert(arguments.end(), options.begin(), options.end());
  return test::run_program(arguments, "", std::chrono::seconds(300), MESHPLAN_FIDELITY);
}

TEST_CASE("runs are compared as JSON, the others are skipped with the reason", "[fidelity]") {
  const test::ProgramRun run = fidelity(three_runs(), {"--format", "json"});
  INFO(run.err);
  REQUIRE(run.exit_code == 0);
  const json made = json::parse(run.out);
  REQUIRE(made.at("rows").size() == 2);
  const json& a = made.at("rows").at(0);
  CHECK(a.at("id") == "A");
  CHECK(a.at("measured_time").get<double>() == Approx(64 * 1024 / (500000.0 * 8)));
  CHECK(a.at("measured_memory").is_null());
  const json& b = made.at("rows").at(1);
  CHECK(b.at("measured_time") == 0.05);
  CHECK(b.at("measured_memory").get<double>() == 12.0 * 1024 * 1024 * 1024);
  // one configuration, whatever was measured of it
  CHECK(a.at("predicted_time") == b.at("predicted_time"));
  CHECK(a.at("predicted_memory") == b.at("predicted_memory"));
  // 6 FLOPs per parameter and token at the peak is the least a step can take
  const double parameters = 12.0 * 2 * 768 * 768 + 50368.0 * 768;
  CHECK(a.at("predicted_time").get<double>() > 6 * parameters * 8 * 1024 / 312e12);
  CHECK(a.at("predicted_memory").get<double>() > 18 * parameters / 8);
  CHECK(made.at("fitted").empty());
  CHECK(made.at("skipped") == json::parse(R"([{"id": "C", "reason": "pipeline parallel"}])"));
}

TEST_CASE("the comparison is printed as text and as Markdown", "[fidelity]") {
  const test::ProgramRun text = fidelity(three_runs());
  REQUIRE(text.exit_code == 0);
  const test::ProgramRun markdown = fidelity(three_runs(), {"--format", "markdown"});
  REQUIRE(markdown.exit_code == 0);
  for (const std::string part :
       {"Errors by device", "All runs", "Not compared", "pipeline parallel", "A100-80GB SXM"}) {
    INFO(part);
    CHECK(text.out.find(part) != std::string::npos);
    CHECK(markdown.out.find(part) != std::string::npos);
  }
  CHECK(markdown.out.find("\n| A | GPT small | A100-80GB SXM | dp8 | none | 1024 |") !=
        std::string::npos);
  CHECK(text.out.find('|') == std::string::npos);
}

TEST_CASE("recomputation and the loss are those of the run's framework", "[fidelity]") {
  const auto memory = [](const json& more) {
    const test::ProgramRun run = fidelity(
        {{"rows", {run_of("A", {{"iter_time_s", 1}}), run_of("B", more)}}}, {"--format", "json"});
    REQUIRE(run.exit_code == 0);
    const json made = json::parse(run.out);
    REQUIRE(made.at("rows").size() == 2);
    return made.at("rows").at(1).at("predicted_memory").get<double>() /
           made.at("rows").at(0).at("predicted_memory").get<double>();
  };
  CHECK(memory({{"iter_time_s", 1}, {"recompute", "full"}}) < 1);
  CHECK(memory({{"iter_time_s", 1}, {"recompute", "selective"}}) < 1);
  // a cross-entropy of several kernels holds the logits in fp32 two to three times
  CHECK(memory({{"iter_time_s", 1}, {"source", "torchtitan"}}) > 1.2);
}

/// Predicted seconds and bytes of a run.
json prediction(const json& run) {
  const test::ProgramRun made = fidelity({{"rows", {run}}}, {"--format", "json"});
  REQUIRE(made.exit_code == 0);
  REQUIRE(json::parse(made.out).at("rows").size() == 1);
  return json::parse(made.out).at("rows").at(0);
}

TEST_CASE("a run that asks for more memory than there is pays for its allocator", "[fidelity]") {
  const auto of = [](std::int64_t micro_batch, const char* source) {
    return prediction(run_of("A",
                             {{"iter_time_s", 1},
                              {"source", source},
                              {"global_batch", 8192},
                              {"micro_batch", micro_batch}}));
  };
  const auto time = [](const json& row) { return row.at("predicted_time").get<double>(); };
  const auto memory = [](const json& row) { return row.at("predicted_memory").get<double>(); };
  const json fits = of(256, "LLM Foundry");
  const json does_not = of(1024, "LLM Foundry");
  constexpr double kMost = 76.0 * 1024 * 1024 * 1024;  // of 80 GiB, 4 are reserved
  REQUIRE(memory(fits) < kMost);
  REQUIRE(memory(does_not) > kMost);
  CHECK(time(does_not) > 1.2 * time(fits));
  CHECK(time(does_not) < 1.3 * time(fits));
  // a compiler arranges the memory of the step
  CHECK(time(of(1024, "PaLM")) < 1.1 * time(fits));
}

TEST_CASE("attention before fused kernels is that of the time", "[fidelity]") {
  const auto of = [](const char* source, const char* recompute) {
    return prediction(run_of("A",
                             {{"iter_time_s", 1},
                              {"source", source},
                              {"seq", 2048},
                              {"recompute", recompute},
                              {"dp_kind", "none"}}));
  };
  const auto value = [](const json& row, const char* key) { return row.at(key).get<double>(); };
  const json fused = of("LLM Foundry", "none");
  const json eager = of("Korthikanti et al.", "none");
  const json selective = of("Korthikanti et al.", "selective");
  CHECK(value(eager, "predicted_time") > value(fused, "predicted_time"));
  CHECK(value(selective, "predicted_time") > value(eager, "predicted_time"));
  // two layers of 12 heads, 8 sequences: the softmax, what dropout lets through and its mask
  const double scores = 2.0 * 5 * 12 * 8 * 2048 * 2048;
  CHECK((value(eager, "predicted_memory") - value(selective, "predicted_memory")) / scores > 0.5);
  CHECK((value(eager, "predicted_memory") - value(selective, "predicted_memory")) / scores < 1.1);
}

TEST_CASE("a run that set an efficiency is named", "[fidelity]") {
  const json run = run_of("Z",
                          {{"model", "MPT 3b"},
                           {"seq", 2048},
                           {"micro_batch", 1},
                           {"global_batch", 8},
                           {"iter_time_s", 1}});
  const test::ProgramRun made = fidelity({{"rows", {run}}}, {"--format", "json"});
  REQUIRE(made.exit_code == 0);
  CHECK(json::parse(made.out).at("fitted") == json::parse(R"(["Z"])"));
}

TEST_CASE("wrong values of a run are errors with their place", "[fidelity]") {
  struct Wrong {
    const char* key;
    json value;
    const char* place;
  };
  const Wrong wrong[] = {{"layers", "two", "/rows/0/layers"},
                         {"hidden", 76.5, "/rows/0/hidden"},
                         {"dp", -8, "/rows/0/dp"},
                         {"model", 7, "/rows/0/model"},
                         {"from_memory", 0, "/rows/0/from_memory"},
                         {"iter_time_s", "fast", "/rows/0/iter_time_s"},
                         {"memory_GB", -1, "/rows/0/memory_GB"},
                         {"id", 1, "/rows/0/id"}};
  for (const Wrong& each : wrong) {
    INFO(each.key);
    json more = {{"iter_time_s", 1}};
    more[each.key] = each.value;
    const test::ProgramRun run = fidelity({{"rows", {run_of("A", more)}}});
    CHECK(run.exit_code == 3);
    CHECK(run.out.empty());
    CHECK(run.err.find(each.place) != std::string::npos);
  }
  CHECK(fidelity(json::object()).exit_code == 3);
  CHECK(fidelity(three_runs(), {"--format", "xml"}).exit_code == 2);
}

}  // namespace
}  // namespace meshplan::fidelity_test

#endif  // MESHPLAN_FIDELITY

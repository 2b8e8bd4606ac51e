// SPDX-License-Identifier: Apache-2.0
#include "plan/plan_summary.h"

#include <algorithm>
#include <sstream>

#include "plan/random_plan.h"
#include "plan/readable.h"
#include "support/catch.h"

namespace meshplan::plan_summary_test {
namespace {

/// Four equal layers of two operators, an embedding before and a loss behind.
Plan layered_plan() {
  Plan plan;
  plan.graph.name = "tiny";
  plan.cluster = {"box", "sha256:0", 8};
  plan.mesh = {{2, 4}, {"dp", "tp"}, {}, {}};
  plan.options.microbatches = 2;
  plan.result = {PlanStatus::kFeasible, Seconds{0.25}, Seconds{0.2475}, 0.01, "dp", std::nullopt};
  plan.cost = {
      Seconds{0.5}, Seconds{0.4}, Seconds{0.2}, Seconds{0.1}, 123456.4, 0.4512, {}, 0.0125};
  plan.memory.peak = 12LL << 30;
  plan.memory.limit = 16LL << 30;
  plan.memory.moment = "backward of layers.3.fc2";
  plan.memory.parameters = 9LL << 30;
  plan.memory.activations = 3LL << 30;
  const auto add = [&](const std::string& name, double seconds) {
    PlanOperator op;
    op.name = name;
    op.type = "MatMul";
    op.out_placements = {{Shard{0}, Replicate{}}};
    op.compute_time = {seconds};
    plan.operators.push_back(op);
  };
  add("embed", 0.001);
  for (int layer = 0; layer < 4; ++layer) {
    const std::string prefix = "layers." + std::to_string(layer) + ".";
    add(prefix + "fc1", 0.06);
    add(prefix + "fc2", 0.03);
    PlanTensor weight;
    weight.name = prefix + "fc1.weight";
    weight.dtype = "bf16";
    weight.local_shape = {1024, 1024};
    weight.placements = {Replicate{}, Shard{1}};
    weight.optimizer_state = weight.placements;
    plan.tensors.push_back(weight);
    PlanRedistribution sum;
    sum.tensor = prefix + "y";
    sum.producer = prefix + "fc2";
    sum.consumers = {{"loss", std::nullopt}};
    PlanStep step;
    step.axes = {"tp"};
    step.bytes = 1 << 20;
    step.time = {0.005};
    sum.steps = {step};
    plan.redistributions.push_back(sum);
  }
  add("loss", 0.002);
  return plan;
}

const SummaryTable& table(const Summary& summary, const std::string& title) {
  const auto found = std::find_if(summary.tables.begin(),
                                  summary.tables.end(),
                                  [&](const SummaryTable& each) { return each.title == title; });
  REQUIRE(found != summary.tables.end());
  return *found;
}

std::string fact(const Summary& summary, const std::string& label) {
  for (const auto& [name, value] : summary.facts) {
    if (name == label) return value;
  }
  return "(none)";
}

TEST_CASE("the summary states mesh, times, speed, price, memory and proof") {
  const Summary summary = summarise(layered_plan());
  CHECK(summary.title == "tiny on box, 8 devices");
  CHECK(fact(summary, "mesh") == "dp=2, tp=4");
  CHECK(fact(summary, "mode") == "training, adamw, 2 micro-batches, recompute none");
  CHECK(fact(summary, "result") == "feasible, found by dp; proven gap 1.0 % (lower bound 248 ms)");
  CHECK(fact(summary, "objective") == "250 ms");
  CHECK(fact(summary, "step time") ==
        "500 ms = compute 400 ms + exposed communication 100 ms (of 200 ms communication)");
  CHECK(fact(summary, "throughput") == "123,456 tokens per second, 45.1 % model FLOPs utilisation");
  CHECK(fact(summary, "cost") == "0.0125 per step, 202.5 per billion tokens");
  CHECK(fact(summary, "memory") ==
        "12.0 GiB of 16.0 GiB per device (75.0 %), at its peak in the "
        "backward of layers.3.fc2");
  CHECK(table(summary, "Memory at the peak").rows ==
        std::vector<std::vector<std::string>>{{"parameters", "9.00 GiB", "75.0 %"},
                                              {"activations", "3.00 GiB", "25.0 %"}});
}

TEST_CASE("equal layers share a row in every table") {
  const Summary summary = summarise(layered_plan());
  const auto& operators = table(summary, "Costliest operators").rows;
  REQUIRE(operators.size() == 4);
  CHECK(operators[0] ==
        std::vector<std::string>{
            "layers.{0..3}.fc1", "MatMul", "[S(0),R]", "60.0 ms", "4", "240 ms", "48.0 %"});
  const auto& moves = table(summary, "Costliest redistributions").rows;
  REQUIRE(moves.size() == 1);
  CHECK(moves[0] == std::vector<std::string>{"layers.{0..3}.y",
                                             "forward",
                                             "all_reduce(tp)",
                                             "1.00 MiB",
                                             "10.0 ms",
                                             "4",
                                             "40.0 ms",
                                             "8.0 %"});
  const auto& layers = table(summary, "Layers (each)").rows;
  REQUIRE(layers.size() == 3);
  CHECK(layers[1] ==
        std::vector<std::string>{
            "layers.{0..3}", "2", "90.0 ms", "10.0 ms", "2.00 MiB", "[R,S(1)]", "[S(0),R]"});
}

TEST_CASE("the objective is shown by kind, axes and level, the dearest first") {
  Plan plan = layered_plan();
  plan.breakdown = {
      {Work::kCompute, {}, std::nullopt, Seconds{0.125}, Seconds{0.125}, 0},
      {Collective::kAllGather, {"dp", "tp"}, "ib", Seconds{0.15}, Seconds{0.25}, 1024}};
  const auto rows = table(summarise(plan), "Where the objective goes").rows;
  CHECK(rows == std::vector<std::vector<std::string>>{
                    {"all_gather", "dp,tp", "ib", "150 ms", "60.0 %", "100 ms", "1.00 KiB"},
                    {"compute", "", "", "125 ms", "50.0 %", "", ""}});
  for (const Collective collective : kNetworkCollectives) {
    plan.breakdown.push_back({collective, {"tp"}, "nvlink", Seconds{0.01}, Seconds{0.02}, 1024});
    plan.breakdown.push_back({collective, {"dp"}, "ib", Seconds{0.03}, Seconds{0.03}, 2048});
  }
  const auto many = table(summarise(plan), "Where the objective goes").rows;
  REQUIRE(many.size() == 9);
  // one of 30 ms and seven of 10 ms do not stand alone
  CHECK(many.back() ==
        std::vector<std::string>{"8 others", "", "", "100 ms", "40.0 %", "70.0 ms", "9.00 KiB"});
}

TEST_CASE("equal tensors at the peak share a row, and what is small is added up") {
  Plan plan = layered_plan();
  plan.memory.peak = 1000;
  for (const char* name : {"layers.0.w", "layers.1.w", "layers.2.w"})
    plan.at_peak.push_back({name, MemoryKind::kOptimizer, 100});
  plan.at_peak.push_back({"x", MemoryKind::kActivations, 250});
  for (int i = 0; i < 9; ++i)
    plan.at_peak.push_back({std::string(static_cast<std::size_t>(i + 1), 'a'),
                            MemoryKind::kBuffers,
                            i == 0 ? 170 : 40 - i});
  const auto rows = table(summarise(plan), "Largest tensors at the peak").rows;
  REQUIRE(rows.size() == 9);
  CHECK(rows[0] ==
        std::vector<std::string>{"layers.{0..2}.w", "optimizer", "100 B", "3", "300 B", "30.0 %"});
  CHECK(rows[1] == std::vector<std::string>{"x", "activations", "250 B", "1", "250 B", "25.0 %"});
  CHECK(rows[2] == std::vector<std::string>{"a", "buffers", "170 B", "1", "170 B", "17.0 %"});
  // 34 + 33 + 32 bytes
  CHECK(rows[8] == std::vector<std::string>{"others", "", "", "3", "99 B", "9.9 %"});
}

TEST_CASE("a layer that differs has a row of its own") {
  Plan plan = layered_plan();
  plan.operators[1].out_placements = {{Replicate{}, Replicate{}}};
  const auto rows = table(summarise(plan), "Layers (each)").rows;
  REQUIRE(rows.size() == 4);
  CHECK(rows[1][0] == "layers.0");
  CHECK(rows[2][0] == "layers.{1..3}");
}

TEST_CASE("no more than ten costliest of each kind") {
  Plan plan = layered_plan();
  for (int i = 0; i < 30; ++i) {
    PlanOperator op = plan.operators[0];
    op.name = "other_" + std::string(static_cast<std::size_t>(i + 1), 'x');
    op.compute_time = {1.0 + i};
    plan.operators.push_back(op);
  }
  const auto rows = table(summarise(plan), "Costliest operators").rows;
  REQUIRE(rows.size() == 10);
  CHECK(rows[0][3] == "30.00 s");
}

TEST_CASE("baselines are compared with the plan") {
  Plan plan = layered_plan();
  plan.baselines = {{"fsdp", Seconds{0.5}, Seconds{0.6}, 1LL << 30, true, ""},
                    {"ddp", Seconds{0.3}, std::nullopt, 99LL << 30, false, ""},
                    {"megatron", std::nullopt, std::nullopt, std::nullopt, true, "one device"}};
  const auto rows = table(summarise(plan), "Textbook plans").rows;
  CHECK(rows[0] ==
        std::vector<std::string>{"fsdp", "500 ms", "+100.0 %", "600 ms", "1.00 GiB", ""});
  CHECK(rows[1][5] == "does not fit");
  CHECK(rows[2] == std::vector<std::string>{"megatron", "", "", "", "", "one device"});
}

TEST_CASE("an infeasible result says what is missing") {
  Plan plan;
  plan.cluster.devices = 1;
  plan.memory.limit = 8LL << 30;
  plan.result.status = PlanStatus::kInfeasible;
  plan.result.min_memory = 10LL << 30;
  const Summary summary = summarise(plan);
  CHECK(fact(summary, "least memory") ==
        "10.0 GiB per device, 2.00 GiB over the limit of 8.00 GiB");
  CHECK(fact(summary, "step time") == "(none)");
  CHECK(summary.tables.empty());
}

TEST_CASE("the text is aligned and plain") {
  std::istringstream lines(summary_text(summarise(layered_plan())));
  std::vector<std::string> table_lines;
  bool inside = false;
  for (std::string line; std::getline(lines, line);) {
    CHECK(line.find('\x1b') == std::string::npos);
    CHECK((line.empty() || line.back() != ' '));
    if (line.empty()) inside = false;
    if (inside) table_lines.push_back(line);
    if (line == "Costliest operators") inside = true;
  }
  REQUIRE(table_lines.size() == 5);
  for (const std::string& line : table_lines) CHECK(line.size() == table_lines[0].size());
}

TEST_CASE("markdown has one table per section and escapes what would break it") {
  Plan plan = layered_plan();
  plan.graph.name = "a|b\nc";
  plan.notes = {"x|y"};
  const std::string text = summary_markdown(summarise(plan));
  CHECK(text.rfind("# a\\|b c on box, 8 devices\n", 0) == 0);
  CHECK(text.find("\n## Layers (each)\n\n| layer | operators |") != std::string::npos);
  CHECK(text.find("\n- x\\|y\n") != std::string::npos);
}

TEST_CASE("random plans have summaries") {
  for (unsigned seed = 0; seed < 40; ++seed) {
    INFO("seed " << seed);
    const Plan plan = testing::RandomPlan(seed).make(5, 6);
    CHECK_FALSE(summary_text(summarise(plan)).empty());
    CHECK(summary_text(summarise(plan)) == summary_text(summarise(plan)));
  }
}

TEST_CASE("numbers are readable") {
  CHECK(readable_bytes(0) == "0 B");
  CHECK(readable_bytes(999) == "999 B");
  CHECK(readable_bytes(1000) == "0.98 KiB");
  CHECK(readable_bytes(1536LL << 20) == "1.50 GiB");
  CHECK(readable_bytes(INT64_MAX) == "8.00 EiB");
  CHECK(readable_bytes(-1024) == "-1.00 KiB");
  CHECK(readable_time({0}) == "0 s");
  CHECK(readable_time({3.2e-6}) == "3.20 us");
  CHECK(readable_time({0.01234}) == "12.3 ms");
  CHECK(readable_time({0.9999}) == "1.000 s");
  CHECK(readable_time({12.345}) == "12.35 s");
  CHECK(readable_time({725}) == "12 min 5 s");
  CHECK(readable_percent(0) == "0.0 %");
  CHECK(readable_percent(0.00012) == "0.012 %");
  CHECK(readable_percent(1.5) == "150.0 %");
  CHECK(readable_count(-1234567) == "-1,234,567");
  CHECK(readable_count(999) == "999");
}

}  // namespace
}  // namespace meshplan::plan_summary_test

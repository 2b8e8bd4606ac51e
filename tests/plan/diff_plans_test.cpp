// SPDX-License-Identifier: Apache-2.0
#include "plan/diff_plans.h"

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "plan/diff_report.h"
#include "plan/planned.h"
#include "support/catch.h"

namespace meshplan::diff_plans_test {
namespace {

using testing::plan_case;
using testing::Planned;
using testing::PlannedCase;

/// `layers` layers of two products; each costs 1/4 s.
Plan tower(int layers) {
  Plan plan;
  plan.graph = {"tower", "sha256:g"};
  plan.cluster = {"c", "sha256:c", 4};
  plan.mesh = {{4}, {"dp"}, {}, {}};
  for (int layer = 0; layer < layers; ++layer) {
    for (const char* name : {"fc1", "fc2"}) {
      PlanOperator op;
      op.name = "layers." + std::to_string(layer) + ".mlp." + name;
      op.type = "MatMul";
      op.in_placements = {Placements{Shard{0}}, Placements{Replicate{}}};
      op.out_placements = {Placements{Shard{0}}};
      op.compute_time = {0.125};
      op.objective = Seconds{0.25};
      plan.operators.push_back(op);
      PlanTensor weight;
      weight.name = op.name + ".weight";
      weight.shape = {8, 8};
      weight.local_shape = {8, 8};
      weight.dtype = "bf16";
      weight.placements = {Replicate{}};
      weight.optimizer_state = Placements{Replicate{}};
      plan.tensors.push_back(weight);
    }
  }
  plan.result.objective = Seconds{0.5 * layers};
  plan.cost.step_time = {0.5 * layers};
  plan.memory.peak = 1000;
  plan.memory.limit = 2000;
  return plan;
}

const DiffLimit& limit(const PlanDiff& diff, const std::string& name) {
  return *std::find_if(
      diff.limits.begin(), diff.limits.end(), [&](const auto& each) { return each.name == name; });
}

TEST_CASE("a plan does not differ from itself") {
  const Plan plan = plan_case({}).plan;
  const PlanDiff diff = diff_plans(plan, plan);
  CHECK(diff.empty());
  CHECK_FALSE(diff.worse());
  CHECK(diff.operator_counts.same == plan.operators.size());
  CHECK(diff.tensor_counts.same == plan.tensors.size());
  CHECK(summary_text(summarise(diff)).find("the plans are the same") != std::string::npos);
}

TEST_CASE("what happens to 32 equal layers is one line with the effect of all") {
  const Plan before = tower(32);
  Plan after = before;
  for (std::size_t i = 0; i < after.operators.size(); i += 2) {
    after.operators[i].in_placements = {Placements{Replicate{}}, Placements{Shard{1}}};
    after.operators[i].out_placements = {Placements{Shard{1}}};
    after.operators[i].objective = Seconds{0.5};
  }
  after.result.objective = Seconds{24};
  const PlanDiff diff = diff_plans(before, after);
  REQUIRE(diff.scopes.size() == 1);
  CHECK(diff.scopes[0].name == "layers.{0..31}.mlp");
  CHECK(diff.scopes[0].operators == 32);
  CHECK(diff.scopes[0].effect == Seconds{8});
  REQUIRE(diff.scopes[0].entries.size() == 1);
  const DiffEntry& entry = diff.scopes[0].entries[0];
  CHECK(entry.name == "layers.{0..31}.mlp.fc1");
  CHECK(entry.count == 32);
  CHECK(entry.kind == ChangeKind::kChanged);
  CHECK(entry.before == Seconds{8});
  CHECK(entry.after == Seconds{16});
  CHECK(entry.aspects == std::vector<DiffAspect>{{"inputs", "[S(0)] [R]", "[R] [S(1)]"},
                                                 {"outputs", "[S(0)]", "[S(1)]"}});
  CHECK(diff.effect == Seconds{8});

  SECTION("one layer that differs from the others is a line of its own") {
    after.operators[10].objective = Seconds{0.75};
    const PlanDiff other = diff_plans(before, after);
    std::vector<std::string> names;
    for (const DiffScope& scope : other.scopes) names.push_back(scope.name);
    CHECK(names ==
          std::vector<std::string>{"layers.{6..31}.mlp", "layers.{0..4}.mlp", "layers.5.mlp"});
  }
  SECTION("scopes that are given take the place of names") {
    DiffOptions options;
    options.scope_of = [](const std::string& name) -> std::optional<std::string> {
      if (name.find("fc1") == std::string::npos) return std::nullopt;
      return "blocks." + name.substr(7, name.find('.', 7) - 7);
    };
    CHECK(diff_plans(before, after, options).scopes[0].name == "blocks.{0..31}");
  }
}

TEST_CASE("operators come and go, change and get another price") {
  Plan before = tower(2);
  Plan after = before;
  after.operators.erase(after.operators.begin());  // layers.0.mlp.fc1
  after.operators.push_back(before.operators[0]);
  after.operators.back().name = "head.fc";
  after.operators[0].objective = Seconds{0.375};  // layers.0.mlp.fc2
  after.operators[1].recompute = true;            // layers.1.mlp.fc1
  const PlanDiff diff = diff_plans(before, after);
  CHECK(diff.operator_counts.added == 1);
  CHECK(diff.operator_counts.removed == 1);
  CHECK(diff.operator_counts.cost == 1);
  CHECK(diff.operator_counts.changed == 1);
  CHECK(diff.operator_counts.same == 1);
  CHECK(diff.effect == Seconds{0.125});
  std::vector<std::string> seen;
  for (const DiffScope& scope : diff.scopes) {
    for (const DiffEntry& entry : scope.entries)
      seen.push_back(entry.name + " " + change_kind_name(entry.kind));
  }
  std::sort(seen.begin(), seen.end());
  CHECK(seen == std::vector<std::string>{"head.fc added",
                                         "layers.0.mlp.fc1 removed",
                                         "layers.0.mlp.fc2 cost",
                                         "layers.1.mlp.fc1 changed"});

  SECTION("what is ignored is counted, not listed") {
    DiffOptions options;
    for (const char* text : {"layers.*", "head.fc"})
      options.ignore.push_back(*ScopePattern::parse(text));
    const PlanDiff silent = diff_plans(before, after, options);
    CHECK(silent.scopes.empty());
    CHECK(silent.operator_counts.ignored == 4);
    CHECK(silent.effect == diff.effect);
  }
  SECTION("options are compared by name and can be ignored") {
    after.options.seed = 7;
    after.options.overlap["ring"] = 0.5;
    after.options.others["mesh"] = "auto";
    CHECK(diff_plans(before, after).options == std::vector<DiffAspect>{{"mesh", "", "auto"},
                                                                       {"overlap.ring", "", "0.5"},
                                                                       {"seed", "0", "7"}});
    DiffOptions options;
    options.ignore.push_back(*ScopePattern::parse("options.seed"));
    CHECK(diff_plans(before, after, options).options.size() == 2);
  }
}

TEST_CASE("a plan is worse beyond what is allowed, not at it") {
  const Plan before = tower(2);
  Plan after = before;
  after.cost.step_time = {1.25};
  after.memory.peak = 1100;
  DiffOptions options;
  options.max_slowdown = 0.25;
  options.max_memory_growth = 0.1;
  CHECK_FALSE(diff_plans(before, after, options).worse());
  options.max_slowdown = 0.2499;
  PlanDiff diff = diff_plans(before, after, options);
  CHECK(diff.worse());
  CHECK_FALSE(limit(diff, "step_time").holds);
  CHECK(limit(diff, "step_time").change == 0.25);
  CHECK(limit(diff, "objective").holds);
  CHECK(limit(diff, "peak_memory").holds);
  options = {1, 0.0999, {}, {}};
  CHECK_FALSE(limit(diff_plans(before, after, options), "peak_memory").holds);
  options.max_memory_growth = 10;
  after.memory.peak = 2001;
  diff = diff_plans(before, after, options);
  CHECK(limit(diff, "peak_memory").holds);
  CHECK_FALSE(limit(diff, "fits").holds);
  CHECK_FALSE(diff_plans(after, after, options).worse());  // it did not fit before either

  SECTION("something from nothing is worse") {
    Plan nothing = before;
    nothing.cost.step_time = {0};
    diff = diff_plans(nothing, before, options);
    CHECK_FALSE(limit(diff, "step_time").holds);
    CHECK_FALSE(limit(diff, "step_time").change);
    CHECK_FALSE(diff_plans(nothing, nothing, options).worse());
  }
  SECTION("a plan that is infeasible now") {
    Plan none;
    none.result.status = PlanStatus::kInfeasible;
    diff = diff_plans(before, none, options);
    CHECK_FALSE(limit(diff, "fits").holds);
    CHECK(diff_plans(none, before, options).limits.back().holds);
    CHECK_FALSE(diff_plans(none, before, options).worse());
  }
}

TEST_CASE("tensors say how they rest and travel, and what that takes") {
  const Plan before = tower(4);
  Plan after = before;
  after.options.microbatches = 2;
  for (PlanTensor& tensor : after.tensors) {
    tensor.optimizer_state = Placements{Shard{0}};
    PlanRedistribution move;
    move.tensor = tensor.name;
    move.phase = Phase::kGradient;
    move.per = Per::kStep;
    move.from = {Partial{}};
    move.to = {Shard{0}};
    move.steps.push_back({});
    move.steps[0].collective = Collective::kReduceScatter;
    move.steps[0].axes = {"dp"};
    move.steps[0].time = {0.5};
    after.redistributions.push_back(move);
    move.phase = Phase::kForward;
    move.per = Per::kMicrobatch;
    move.steps[0].collective = Collective::kAllGather;
    after.redistributions.push_back(move);
    tensor.local_shape = {2, 8};
  }
  const PlanDiff diff = diff_plans(before, after);
  REQUIRE(diff.tensors.size() == 2);
  CHECK(diff.tensors[0].name == "layers.{0..3}.mlp.fc1.weight");
  CHECK(diff.tensors[0].type == "parameter");
  CHECK(diff.tensors[0].effect() == Seconds{4 * (0.5 + 2 * 0.5)});
  CHECK(diff.tensors[0].bytes == 4 * (2 * 8 - 8 * 8) * 2);
  CHECK(diff.tensors[0].aspects ==
        std::vector<DiffAspect>{
            {"optimizer_state", "[R]", "[S(0)]"},
            {"collectives", "", "gradient reduce_scatter(dp) per step, forward all_gather(dp)"}});
}

TEST_CASE("the effects of all changes add up to the difference of the objectives") {
  PlannedCase wanted;
  const Planned one = plan_case(wanted);
  for (const int change : {0, 1, 2}) {
    PlannedCase other = wanted;
    if (change == 0) other.mesh = {{4}, {"dp"}};
    if (change == 1) other.microbatches = 4;
    if (change == 2) other.recompute = "full";
    const Planned two = plan_case(other);
    const PlanDiff diff = diff_plans(one.plan, two.plan);
    const Seconds difference = *two.plan.result.objective - *one.plan.result.objective;
    CHECK(difference.value != 0);
    CHECK(diff.effect == difference);
    Seconds sum;
    for (const DiffScope& scope : diff.scopes) sum += scope.effect;
    CHECK(sum == difference);
    Seconds cells;
    for (const DiffCell& cell : diff.breakdown) cells += cell.after - cell.before;
    CHECK(cells == difference);
    const auto json = nlohmann::json::parse(diff_json(diff));
    CHECK(json["effect"].get<double>() == difference.value);
    CHECK(json["cost"]["objective"]["after"].get<double>() == two.plan.result.objective->value);
    CHECK(json["memory"]["peak"]["before"].get<Bytes>() == one.plan.memory.peak);
    CHECK(json["worse"].get<bool>() == diff.worse());
  }
}

TEST_CASE("equal changes are listed alike in whatever order the plans list them") {
  const Plan before = tower(8);
  Plan after = before;
  for (PlanOperator& op : after.operators) op.objective = Seconds{0.5};
  Plan turned = after;
  std::reverse(turned.operators.begin(), turned.operators.end());
  CHECK(diff_json(diff_plans(before, after)) == diff_json(diff_plans(before, turned)));
}

/// Whether every tag is closed in order and no other character needs an escape.
bool well_formed(const std::string& text) {
  std::vector<std::string> open;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '&') {
      const std::size_t end = text.find(';', i);
      if (end == std::string::npos || end - i > 5) return false;
    }
    if (static_cast<unsigned char>(text[i]) < 0x20 && text[i] != '\n' && text[i] != '\t')
      return false;
    if (text[i] == '>') return false;
    if (text[i] != '<') continue;
    const std::size_t end = text.find('>', i);
    if (end == std::string::npos || text.find('<', i + 1) < end) return false;
    const std::string tag = text.substr(i + 1, end - i - 1);
    const std::string name = tag.substr(0, tag.find_first_of(" /", 1));
    if (tag[0] == '/') {
      if (open.empty() || "/" + open.back() != name) return false;
      open.pop_back();
    } else if (tag[0] != '?' && tag.back() != '/') {
      open.push_back(name);
    }
    i = end;
  }
  return open.empty();
}

TEST_CASE("JUnit XML has a case per limit, whatever the names hold") {
  Plan before = tower(1);
  before.operators[0].name = "a<b> & \"c\"\x01 \xc3\xa4";
  Plan after = before;
  after.operators[0].objective = Seconds{1};
  after.cost.step_time = {4};
  after.memory.moment = "</testsuite>";
  const std::string text = diff_junit(diff_plans(before, after));
  CHECK(well_formed(text));
  CHECK(text.find("tests=\"4\" failures=\"1\"") != std::string::npos);
  CHECK(text.find("<testcase classname=\"meshplan.diff\" name=\"step_time\">\n      <failure ") !=
        std::string::npos);
  CHECK(text.find("<testcase classname=\"meshplan.diff\" name=\"peak_memory\"/>") !=
        std::string::npos);
  CHECK(text.find("a&lt;b&gt; &amp; &quot;c&quot;") != std::string::npos);
}

TEST_CASE("plans that say impossible things are compared all the same") {
  const Plan before = tower(3);
  Plan after = before;
  const double values[] = {1e308, -1e308, 5e-324, -0.0};
  for (std::size_t i = 0; i < after.operators.size(); ++i) {
    after.operators[i].objective = Seconds{values[i % 4]};
    after.tensors[i].update_time = Seconds{values[i % 4]};
    after.tensors[i].local_shape = {std::numeric_limits<std::int64_t>::min(), -3, 1 << 30};
  }
  after.cost.step_time = {1e308};
  after.memory.peak = std::numeric_limits<Bytes>::max();
  after.memory.limit = std::numeric_limits<Bytes>::min();
  after.breakdown.assign(5, {Work::kCompute, {}, std::nullopt, {1e308}, {1e308}, 1});
  after.mesh.shape = {-1, 0};
  for (const bool turned : {false, true}) {
    const PlanDiff diff = turned ? diff_plans(after, before) : diff_plans(before, after);
    CHECK(nlohmann::json::parse(diff_json(diff))["worse"] == diff.worse());
    CHECK(well_formed(diff_junit(diff)));
    CHECK_FALSE(summary_markdown(summarise(diff)).empty());
  }
}

TEST_CASE("long lists of changes are cut in text and complete as JSON") {
  Plan before = tower(1);
  for (int i = 0; i < 200; ++i) {
    before.operators.push_back(before.operators[0]);
    std::string name = "scope" + std::string(1, static_cast<char>('a' + i % 26)) +
                       std::string(static_cast<std::size_t>(i / 26 + 1), 'x');
    before.operators.back().name = name + ".fc";
  }
  const PlanDiff diff = diff_plans(before, tower(1));
  CHECK(diff.scopes.size() == 200);
  const Summary summary = summarise(diff);
  const auto table = std::find_if(summary.tables.begin(), summary.tables.end(), [](const auto& t) {
    return t.title.find("Changes by scope") == 0;
  });
  REQUIRE(table != summary.tables.end());
  CHECK(table->rows.back()[0] == "160 more");
  CHECK(nlohmann::json::parse(diff_json(diff))["scopes"].size() == 200);
}

}  // namespace
}  // namespace meshplan::diff_plans_test

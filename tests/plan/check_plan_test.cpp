// SPDX-License-Identifier: Apache-2.0
#include "plan/check_plan.h"

#include <algorithm>
#include <functional>
#include <random>

#include <nlohmann/json.hpp>

#include "plan/plan_json.h"
#include "plan/planned.h"
#include "support/catch.h"

namespace meshplan::check_plan_test {
namespace {

using testing::kMlp;
using testing::plan_case;
using testing::Planned;
using testing::planned_cases;
using testing::PlannedCase;

std::string text(const std::vector<Finding>& findings) {
  std::string all;
  for (std::size_t i = 0; i < std::min<std::size_t>(findings.size(), 8); ++i) {
    all += to_string(findings[i]) + "\n";
  }
  return all;
}

TEST_CASE("the planner's plans are right") {
  for (const PlannedCase& wanted : planned_cases()) {
    const Planned planned = plan_case(wanted);
    const std::vector<Finding> findings = check_plan(planned.plan, planned.graph, planned.cluster);
    INFO(wanted.name << ": " << findings.size() << " findings\n" << text(findings));
    CHECK(findings.empty());
    const Result<Plan> read = read_plan(write_plan(planned.plan), "plan.json");
    REQUIRE(read);
    CHECK(*read == planned.plan);
  }
}

TEST_CASE("a plan made with measured operators is right with them and wrong without") {
  PlannedCase wanted;
  wanted.graph_text = kMlp;
  wanted.microbatches = 2;
  for (const std::int64_t m : {1, 2, 4, 8}) {
    for (const std::int64_t k : {16, 32, 64, 128, 256}) {
      for (const std::int64_t n : {16, 32, 64, 128, 256})
        wanted.measurements.push_back({"MatMul", {{m, k}, {k, n}}, DType::kBf16, {3e-3}, {{5e-3}}});
    }
  }
  const Planned planned = plan_case(wanted);
  const PlanOperator& product = planned.plan.operators[0];
  REQUIRE(product.name == "fc1");
  CHECK(product.compute_time == 2 * (on_price_grid({3e-3}) + on_price_grid({5e-3})));
  CHECK(text(check_plan(planned.plan, planned.graph, planned.cluster)) == "");

  Cluster unmeasured = planned.cluster;
  unmeasured.measurements.clear();
  const std::vector<Finding> findings = check_plan(planned.plan, planned.graph, unmeasured);
  CHECK(std::any_of(findings.begin(), findings.end(), [](const Finding& finding) {
    return finding.pointer == "/operators/0/compute_time";
  }));
}

TEST_CASE("what a plan may leave out is not missed") {
  Planned planned = plan_case({});
  planned.plan.breakdown.clear();
  planned.plan.at_peak.clear();
  for (PlanOperator& op : planned.plan.operators) op.objective.reset();
  CHECK(check_plan(planned.plan, planned.graph, planned.cluster).empty());
  const Result<Plan> read = read_plan(write_plan(planned.plan), "plan.json");
  REQUIRE(read);
  CHECK(*read == planned.plan);
}

TEST_CASE("a plan says on which level and axes its objective goes, and what makes its peak") {
  PlannedCase wanted;
  wanted.mesh = {{2, 4}, {"dp", "tp"}};
  const Planned planned = plan_case(wanted);
  Seconds objective;
  for (const PlanCostCell& cell : planned.plan.breakdown) {
    INFO(cost_kind_name(cell.kind));
    objective += cell.objective;
    const bool outside = std::find(cell.axes.begin(), cell.axes.end(), "dp") != cell.axes.end();
    const bool local =
        std::holds_alternative<Work>(cell.kind) || cell.kind == CostKind(Collective::kSlice);
    CHECK(cell.level.has_value() != local);
    if (cell.level) CHECK(*cell.level == planned.cluster.levels[outside ? 1 : 0].name);
    CHECK((cell.bytes == 0) == local);
  }
  CHECK(objective == *planned.plan.result.objective);
  Bytes peak = 0;
  Bytes last = planned.plan.memory.peak;
  for (const PlanMemoryShare& share : planned.plan.at_peak) {
    peak += share.bytes;
    CHECK(share.bytes <= last);
    last = share.bytes;
  }
  CHECK(peak == planned.plan.memory.peak);
}

TEST_CASE("no more communication is exposed than there is, however many micro-batches") {
  for (const std::int64_t microbatches : {1, 2, 4, 8}) {
    PlannedCase wanted;
    wanted.mesh = {{2, 4}, {"dp", "tp"}};
    wanted.batch = 16;
    wanted.microbatches = microbatches;
    const Planned planned = plan_case(wanted);
    const PlanCost& cost = planned.plan.cost;
    INFO(microbatches << " micro-batches");
    CHECK(check_plan(planned.plan, planned.graph, planned.cluster).empty());
    CHECK(cost.exposed_communication_time.value <= cost.communication_time.value * (1 + 1e-9));
  }
}

TEST_CASE("plans under a tight memory limit are right") {
  PlannedCase wanted;
  wanted.name = "tight llama";
  wanted.mesh = {{2, 4}, {"dp", "tp"}};
  const Planned free = plan_case(wanted);
  for (const std::int64_t percent : {90, 75, 60, 50}) {
    wanted.limit = free.plan.memory.peak / 100 * percent;
    const Planned tight = plan_case(wanted);
    const std::vector<Finding> findings = check_plan(tight.plan, tight.graph, tight.cluster);
    INFO(percent << " %: " << findings.size() << " findings\n" << text(findings));
    CHECK(findings.empty());
    CHECK(tight.plan.memory.peak <= wanted.limit);
  }
}

/// A fault that can be made in a plan; false where the plan has no place for it.
struct Mutation {
  const char* name;
  std::function<bool(Plan&, std::size_t)> apply;  ///< the n-th place
};

template <class List, class Change>
std::function<bool(Plan&, std::size_t)> each(List list, Change change) {
  return [list, change](Plan& plan, std::size_t n) {
    auto& entries = list(plan);
    if (n >= entries.size()) return false;
    change(entries, n);
    return true;
  };
}

std::vector<Mutation> mutations() {
  const auto tensors = [](Plan & p) -> auto& { return p.tensors; };
  const auto operators = [](Plan & p) -> auto& { return p.operators; };
  const auto moves = [](Plan & p) -> auto& { return p.redistributions; };
  const auto groups = [](Plan & p) -> auto& { return p.groups; };
  const auto breakdown = [](Plan & p) -> auto& { return p.breakdown; };
  const auto at_peak = [](Plan & p) -> auto& { return p.at_peak; };
  const auto erase = [](auto& list, std::size_t n) {
    list.erase(list.begin() + static_cast<std::ptrdiff_t>(n));
  };
  const auto repeat = [](auto& list, std::size_t n) { list.push_back(list[n]); };
  const auto rename = [](auto& list, std::size_t n) { list[n].name += "?"; };
  return {
      {"a tensor is missing", each(tensors, erase)},
      {"a tensor is unknown", each(tensors, rename)},
      {"an operator is missing", each(operators, erase)},
      {"an operator stands twice", each(operators, repeat)},
      {"an operator is unknown", each(operators, rename)},
      {"another operator is recomputed, or one less",
       each(operators, [](auto& l, std::size_t n) { l[n].recompute = !l[n].recompute; })},
      {"a type is wrong", each(operators, [](auto& l, std::size_t n) { l[n].type += "?"; })},
      {"a redistribution is missing", each(moves, erase)},
      {"a redistribution stands twice", each(moves, repeat)},
      {"a redistribution lost its last step",
       each(moves, [](auto& l, std::size_t n) { l[n].steps.pop_back(); })},
      {"a step moves other bytes",
       each(moves, [](auto& l, std::size_t n) { l[n].steps[0].bytes += 1; })},
      {"a step takes another time",
       each(moves, [](auto& l, std::size_t n) { l[n].steps[0].time += Seconds{1e-9}; })},
      {"a step is another collective",
       each(moves,
            [](auto& l, std::size_t n) {
              Collective& c = l[n].steps[0].collective;
              c = c == Collective::kAllReduce ? Collective::kAllGather : Collective::kAllReduce;
            })},
      {"a step leads elsewhere",
       each(moves,
            [](auto& l, std::size_t n) {
              for (Placement& p : l[n].steps.back().placements) p = Partial{Reduction::kMax};
            })},
      {"a step has an unknown axis",
       each(moves, [](auto& l, std::size_t n) { l[n].steps[0].axes[0] += "?"; })},
      {"a redistribution has another tensor",
       each(moves, [](auto& l, std::size_t n) { l[n].tensor += "?"; })},
      {"a redistribution has another producer",
       each(moves, [](auto& l, std::size_t n) { l[n].producer += "?"; })},
      {"a reader is another operator",
       each(moves,
            [](auto& l, std::size_t n) {
              if (l[n].consumers.empty()) {
                l[n].consumers.push_back({"?", std::nullopt});
              } else {
                l[n].consumers[0].op += "?";
              }
            })},
      {"a redistribution runs at another frequency",
       each(moves,
            [](auto& l, std::size_t n) {
              l[n].per = l[n].per == Per::kStep ? Per::kMicrobatch : Per::kStep;
            })},
      {"a redistribution is in another phase",
       each(moves,
            [](auto& l, std::size_t n) {
              l[n].phase = l[n].phase == Phase::kForward ? Phase::kBackward : Phase::kForward;
            })},
      {"a group is missing", each(groups, erase)},
      {"a group stands twice", each(groups, repeat)},
      {"two ranks are swapped",
       each(groups,
            [](auto& l, std::size_t n) { std::swap(l[n].ranks[0][0], l[n].ranks.back().back()); })},
      {"the groups are in another order",
       [](Plan& p, std::size_t n) {
         if (n + 1 >= p.groups.size()) return false;
         std::swap(p.groups[n], p.groups[n + 1]);
         return true;
       }},
      {"a part of the objective is missing", each(breakdown, erase)},
      {"a part of the objective stands twice", each(breakdown, repeat)},
      {"a part of the objective is another kind",
       each(breakdown,
            [](auto& l, std::size_t n) {
              l[n].kind = l[n].kind == CostKind(Work::kCompute) ? Work::kOptimizer : Work::kCompute;
            })},
      {"a part of the objective runs on another level",
       each(breakdown,
            [](auto& l, std::size_t n) {
              l[n].level = l[n].level ? std::nullopt : std::optional<std::string>("null");
            })},
      {"a part of the objective is larger",
       each(breakdown, [](auto& l, std::size_t n) { l[n].objective += Seconds{1e-9}; })},
      {"a part of the peak is missing", each(at_peak, erase)},
      {"a part of the peak stands twice", each(at_peak, repeat)},
      {"a part of the peak is of another kind",
       each(at_peak,
            [](auto& l, std::size_t n) {
              l[n].kind =
                  l[n].kind == MemoryKind::kBuffers ? MemoryKind::kGathered : MemoryKind::kBuffers;
            })},
      {"an operator's part of the objective is another",
       each(operators, [](auto& l, std::size_t n) { *l[n].objective += Seconds{1e-9}; })},
      {"a stored layout is missing",
       [](Plan& p, std::size_t n) {
         for (PlanTensor& t : p.tensors) {
           if (t.saved.empty() || n-- > 0) continue;
           t.saved.pop_back();
           return true;
         }
         return false;
       }},
      {"a stored layout has one reader less",
       [](Plan& p, std::size_t n) {
         for (PlanTensor& t : p.tensors) {
           if (t.saved.empty() || n-- > 0) continue;
           t.saved[0].readers.clear();
           return true;
         }
         return false;
       }},
      {"a gradient is missing",
       [](Plan& p, std::size_t n) {
         for (PlanTensor& t : p.tensors) {
           if (!t.gradient || n-- > 0) continue;
           t.gradient.reset();
           return true;
         }
         return false;
       }},
      {"an inner collective is missing",
       [](Plan& p, std::size_t n) {
         for (PlanOperator& op : p.operators) {
           if (op.collectives.empty() || n-- > 0) continue;
           op.collectives.pop_back();
           return true;
         }
         return false;
       }},
      {"an inner collective runs once more",
       [](Plan& p, std::size_t n) {
         for (PlanOperator& op : p.operators) {
           if (op.collectives.empty() || n-- > 0) continue;
           ++op.collectives[0].count;
           return true;
         }
         return false;
       }},
  };
}

/// Makes every fault at every step-th place that it can be made at.
void make_faults(std::size_t step) {
  for (const PlannedCase& wanted : planned_cases()) {
    if (wanted.name != "llama" && wanted.name != "mlp on a wide mesh" &&
        wanted.recompute == "none") {
      continue;
    }
    const Planned planned = plan_case(wanted);
    for (const Mutation& mutation : mutations()) {
      for (std::size_t n = 0; n < 500; n += step) {
        Plan plan = planned.plan;
        if (!mutation.apply(plan, n)) break;
        INFO(wanted.name << ": " << mutation.name << ", place " << n);
        CHECK_FALSE(check_plan(plan, planned.graph, planned.cluster).empty());
      }
    }
  }
}

TEST_CASE("every fault of the list is reported, in many places") { make_faults(9); }

TEST_CASE("every fault of the list is reported, wherever it is made", "[.][slow]") {
  make_faults(1);
}

/// Every leaf of a document, by JSON Pointer.
void collect(const nlohmann::json& value,
             const std::string& pointer,
             std::vector<std::string>& leaves) {
  if (value.is_object()) {
    for (const auto& [key, member] : value.items()) {
      std::string part;
      for (const char c : key) part += c == '/' ? "~1" : c == '~' ? "~0" : std::string(1, c);
      collect(member, pointer + "/" + part, leaves);
    }
  } else if (value.is_array()) {
    for (std::size_t i = 0; i < value.size(); ++i) {
      collect(value[i], pointer + "/" + std::to_string(i), leaves);
    }
  } else {
    leaves.push_back(pointer);
  }
}

/// What nothing can be derived for.
bool is_free(const std::string& pointer) {
  for (const char* begin : {"/schema",
                            "/generator",
                            "/graph/name",
                            "/cluster/name",
                            "/options/seed",
                            "/options/memory_limit",
                            "/options/overlap/expert",
                            "/result/lower_bound",
                            "/result/gap",
                            "/result/status",
                            "/mesh/axes",
                            "/mesh/roles",
                            "/order",
                            "/folded"}) {
    if (pointer.rfind(begin, 0) == 0) return true;
  }
  return pointer.size() > 7 && pointer.substr(pointer.size() - 7) == "/reason";
}

/// Another value of the same kind.
nlohmann::json changed(const nlohmann::json& leaf) {
  if (leaf.is_number_integer()) return leaf.get<std::int64_t>() + 1;
  if (leaf.is_number()) return 1.001 * leaf.get<double>() + 1e-6;
  if (leaf.is_boolean()) return !leaf.get<bool>();
  if (leaf.is_null()) return nlohmann::json::array({"R", "R"});
  const auto text = leaf.get<std::string>();
  if (text == "R") return "S(0)";
  if (text == "S(0)") return "S(1)";
  if (text.rfind("S(", 0) == 0 || text.rfind("P(", 0) == 0 || text.rfind("SS(", 0) == 0) return "R";
  if (text == "kept") return "gathered";
  if (text == "gathered" || text == "computed") return "kept";
  if (text == "recompute") return "regather";
  return text + "x";
}

/// Changes up to `most` values of each plan, a sixth of them in a large one.
void change_values(std::size_t most) {
  for (const PlannedCase& wanted : planned_cases()) {
    const bool small = !wanted.graph_text.empty();
    if (!small && wanted.name != "llama, tied embeddings" && wanted.name != "llama" &&
        wanted.recompute == "none") {
      continue;
    }
    const Planned planned = plan_case(wanted);
    const auto document = nlohmann::json::parse(write_plan(planned.plan));
    std::vector<std::string> leaves;
    collect(document, "", leaves);
    std::mt19937 random(3);
    std::shuffle(leaves.begin(), leaves.end(), random);
    leaves.resize(std::min<std::size_t>(leaves.size(), small ? most : most / 6));
    std::size_t tried = 0;
    for (const std::string& leaf : leaves) {
      if (is_free(leaf)) continue;
      nlohmann::json edited = document;
      nlohmann::json& place = edited[nlohmann::json::json_pointer(leaf)];
      place = changed(place);
      const Result<Plan> plan = read_plan(edited.dump(), "plan.json");
      if (!plan) continue;  // refused at once
      ++tried;
      INFO(wanted.name << ": " << leaf << " is now " << place.dump());
      CHECK_FALSE(check_plan(*plan, planned.graph, planned.cluster).empty());
    }
    CHECK(tried > most / 12);
  }
}

TEST_CASE("no value of a plan can be changed unnoticed") { change_values(300); }

TEST_CASE("no value of any plan can be changed unnoticed", "[.][slow]") { change_values(3000); }

TEST_CASE("nonsense is reported, never believed") {
  const Planned planned = plan_case({});
  const auto document = nlohmann::json::parse(write_plan(planned.plan));
  std::vector<std::string> leaves;
  collect(document, "", leaves);
  std::mt19937 random(5);
  const nlohmann::json values[] = {
      0, -1, 9223372036854775807, 1e300, "S(99)", "SS(0,3)", "P(max)", "S(-1)", "", "\n"};
  for (int round = 0; round < 300; ++round) {
    nlohmann::json edited = document;
    std::string last;
    for (int i = 0; i < 3; ++i) {
      last = leaves[random() % leaves.size()];
      edited[nlohmann::json::json_pointer(last)] = values[random() % std::size(values)];
    }
    const Result<Plan> plan = read_plan(edited.dump(), "plan.json");
    if (plan) static_cast<void>(check_plan(*plan, planned.graph, planned.cluster));
  }
  Plan empty;
  CHECK_FALSE(check_plan(empty, planned.graph, planned.cluster).empty());
}

TEST_CASE("what is stored or named twice is reported, and a wrong number of devices") {
  PlannedCase wanted;
  wanted.graph_text = kMlp;
  const Planned planned = plan_case(wanted);
  REQUIRE(check_plan(planned.plan, planned.graph, planned.cluster).empty());
  const auto finds = [&](const Plan& plan, const std::string& end) {
    const auto findings = check_plan(plan, planned.graph, planned.cluster);
    return std::any_of(findings.begin(), findings.end(), [&](const Finding& finding) {
      return finding.pointer.size() >= end.size() &&
             finding.pointer.compare(finding.pointer.size() - end.size(), end.size(), end) == 0;
    });
  };
  const auto stored = std::find_if(planned.plan.tensors.begin(),
                                   planned.plan.tensors.end(),
                                   [](const auto& t) { return !t.saved.empty(); });
  REQUIRE(stored != planned.plan.tensors.end());
  const auto t = static_cast<std::size_t>(stored - planned.plan.tensors.begin());
  Plan twice = planned.plan;
  twice.tensors[t].saved.push_back(twice.tensors[t].saved.front());
  CHECK(finds(twice, "/saved/" + std::to_string(stored->saved.size())));
  Plan named = planned.plan;
  named.tensors[t].saved[0].readers.push_back(named.tensors[t].saved[0].readers.front());
  CHECK(finds(named, "/saved/0/for"));
  Plan other = planned.plan;
  other.options.others["devices"] = other.cluster.devices + 1;
  CHECK(finds(other, "/options/devices"));
  other.options.others["devices"] = other.cluster.devices;
  CHECK(check_plan(other, planned.graph, planned.cluster).empty());
}

TEST_CASE("another graph, cluster or mode is named") {
  const Planned planned = plan_case({});
  const auto first = [&](const Plan& plan, const Graph& graph, const Cluster& cluster) {
    const auto findings = check_plan(plan, graph, cluster);
    return findings.empty() ? std::string() : findings[0].pointer;
  };
  Graph graph = planned.graph;
  graph.fingerprint = "sha256:other";
  CHECK(first(planned.plan, graph, planned.cluster) == "/graph/fingerprint");
  Cluster cluster = planned.cluster;
  cluster.fingerprint = "sha256:other";
  CHECK(first(planned.plan, planned.graph, cluster) == "/cluster/fingerprint");
  Plan plan = planned.plan;
  plan.options.mode = "inference";
  CHECK(first(plan, planned.graph, planned.cluster) == "/options/mode");
  plan = planned.plan;
  plan.result.lower_bound = 2.0 * *plan.result.objective;
  plan.result.gap = -1.0;
  CHECK(first(plan, planned.graph, planned.cluster) == "/result/lower_bound");
  plan = planned.plan;
  plan.result.lower_bound = 0.5 * *plan.result.objective;
  plan.result.gap = 0.4;
  CHECK(first(plan, planned.graph, planned.cluster) == "/result/gap");
  plan.result.gap = 0.5;
  CHECK(first(plan, planned.graph, planned.cluster).empty());
  plan.result.status = PlanStatus::kOptimal;
  CHECK(first(plan, planned.graph, planned.cluster) == "/result/status");
  plan = planned.plan;
  plan.memory.limit = plan.memory.peak - 1;
  plan.options.others["memory_limit"] = plan.memory.limit;
  CHECK(first(plan, planned.graph, planned.cluster) == "/memory/limit");
}

}  // namespace
}  // namespace meshplan::check_plan_test

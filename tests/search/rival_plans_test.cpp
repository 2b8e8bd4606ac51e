// SPDX-License-Identifier: Apache-2.0
// Plans that another planner's tests expect, on its clusters: an axis has a latency alpha and a
// cost beta per byte, and computing costs (almost) nothing. Here beta is nanoseconds per byte, so
// prices in nanoseconds stand next to its objective.
//
// (Its all-to-all is charged n / 2 times what a device sends; ours is not.)
//
// `force` are constraints that spell its plan out; priced by our model, it must cost what it says
// there. (`local`: the parts of weights as they are read; whether they rest so or cut further, at
// the same price, is a tie.) The plan found without them never costs more. Where `why` stands it
// costs less, by what that model does not have; else it costs the same. Of a case without `theirs`
// only placements and collectives are compared.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "apps/constraints_reader.h"
#include "cost_model/collective_model.h"
#include "cost_model/test_clusters.h"
#include "lib/layout.h"
#include "lib/redistribution.h"
#include "plan/build_plan.h"
#include "search/constraint_restrictions.h"
#include "search/dp_search.h"
#include "support/graph_builder.h"

namespace meshplan::rival_plans_test {

using nlohmann::json;

namespace {

using Sizes = std::vector<std::int64_t>;

/// A level per mesh axis, the last axis innermost.
Cluster cluster_of(const json& one) {
  std::vector<Level> levels;
  const auto mesh = one.at("mesh").get<Sizes>();
  const auto beta = one.at("beta").get<std::vector<double>>();
  for (std::size_t axis = mesh.size(); axis-- > 0;)
    levels.push_back(test::level(mesh[axis], 1.0 / beta[axis], one.value("alpha", 1.0) * 1e-3));
  Cluster cluster = test::cluster(std::move(levels));
  cluster.efficiency.overlap = {0, 0, 0, 0, 0};
  cluster.device.memory_bandwidth = 1e21;
  cluster.device.peak_flops = {{DType::kBf16, 1e24}, {DType::kFp32, 1e24}};
  return cluster;
}

Plan plan_of(const Graph& graph, const json& one, const json& force) {
  MeshShape mesh{one.at("mesh").get<Sizes>(), {}};
  for (std::size_t axis = 0; axis < mesh.shape.size(); ++axis)
    mesh.axes.push_back("a" + std::to_string(axis));
  const Cluster cluster = cluster_of(one);
  DpOptions options;
  options.prices.optimizer = parse_optimizer(one.value("optimizer", "adam")).value();
  options.prices.overlap = cluster.efficiency.overlap;
  options.prices.microbatches = one.value("microbatches", std::int64_t{1});
  options.memory_limit = one.value("limit", std::numeric_limits<Bytes>::max());
  // computing is free here, so that the search would repeat everything on every device: as theirs,
  // it does not repeat products
  RestrictionsOf restrictions = [&graph](PriceBook& book, const MeshShape& shape) {
    Restrictions shared;
    shared.strategy = [&graph, &book, axes = static_cast<int>(shape.shape.size())](
                          OperatorId id, const Strategy& strategy) {
      const OperatorFamily family = graph.op(id).rule->family;
      if (family != OperatorFamily::kMatMul && family != OperatorFamily::kConvolution) return true;
      for (int axis = 0; axis < axes; ++axis) {
        const AxisAction::Kind kind = book.info(id).action(strategy, axis).kind;
        if (kind == AxisAction::Kind::kNone || kind == AxisAction::Kind::kPass) return false;
      }
      return true;
    };
    return Result<Restrictions>(std::move(shared));
  };
  if (!force.is_null()) {
    json document = force;
    document["schema"] = "meshplan.constraints/1.0";
    document["mesh"] = {{"shape", mesh.shape}, {"axes", mesh.axes}};
    const auto constraints = parse_constraints(document.dump(), "constraints.json");
    if (!constraints) FAIL(to_string(constraints.error()));
    restrictions = [&graph, given = *constraints](PriceBook& book,
                                                  const MeshShape& shape) -> Result<Restrictions> {
      auto made = DeviceMesh::make(shape.shape, shape.axes);
      if (!made) return fail(made.error());
      auto bound = bind_constraints(given, graph, *made);
      if (!bound) return fail(bound.error());
      return restrictions_from(*bound, book);
    };
  }
  auto outcome = dp_search(graph, cluster, {mesh}, options, restrictions);
  if (!outcome) FAIL(to_string(outcome.error()));
  auto* const found = std::get_if<DpResult>(&*outcome);
  REQUIRE(found != nullptr);
  CHECK(found->optimal);
  PlanContext context;
  context.version = "0.0.0";
  context.axes = mesh.axes;
  context.memory_limit = options.memory_limit;
  context.result.status = PlanStatus::kOptimal;
  context.result.found_by = "dp";
  context.result.objective = found->evaluation.objective;
  return build_plan(*found->book, found->assignment, found->evaluation, context);
}

/// Tensor maps count axes from the right.
Layout layout_of(const json& one) {
  const auto mesh = DeviceMesh::make(one.at("mesh").get<Sizes>(), {});
  REQUIRE(mesh.has_value());
  TensorMap map;
  for (const json& entry : one.at("map")) map.push_back({entry.get<int>()});
  const auto layout = Layout::from_tensor_map(*mesh, map);
  REQUIRE(layout.has_value());
  return *layout;
}

/// Tiles in row-major order and the devices of each, in their order.
void check_tiles(const json& one) {
  const Layout layout = layout_of(one);
  Sizes tiles;
  std::int64_t count = 1;
  for (int dim = 0; dim < layout.rank(); ++dim) {
    tiles.push_back(layout.parts(dim));
    count *= tiles.back();
  }
  std::vector<Sizes> holders(static_cast<std::size_t>(count));
  for (std::int64_t position = 0; position < layout.mesh().size(); ++position) {
    std::int64_t tile = 0;
    for (int dim = 0; dim < layout.rank(); ++dim)
      tile = tile * layout.parts(dim) + layout.piece_of(dim, position);
    holders[static_cast<std::size_t>(tile)].push_back(position);
  }
  if (layout.repeat_count() > 1) tiles.push_back(layout.repeat_count());
  Sizes devices;
  for (const Sizes& group : holders) devices.insert(devices.end(), group.begin(), group.end());
  CHECK(tiles == one.at("tiles").get<Sizes>());
  CHECK(devices == one.at("devices").get<Sizes>());
}

double nanoseconds(const Plan& plan) { return plan.result.objective->value * 1e9; }

/// Collectives that move more than `small` bytes: those of activations, and those that sum
/// gradients or gather parameters, which stand apart ("gradient all_reduce"), as other planners
/// join them into one call.
std::map<std::string, int> collectives_of(const Plan& plan, Bytes small) {
  std::map<std::string, int> counts;
  std::set<std::string> parameters;
  for (const PlanTensor& tensor : plan.tensors) {
    if (tensor.update_time) parameters.insert(tensor.name);
  }
  for (const PlanRedistribution& moved : plan.redistributions) {
    const std::string prefix = parameters.count(moved.tensor) > 0 ? "gradient " : "";
    for (const PlanStep& step : moved.steps) {
      if (step.bytes > small) ++counts[prefix + collective_name(step.collective)];
    }
  }
  for (const PlanOperator& op : plan.operators) {
    for (const PlanCollective& inner : op.collectives) {
      if (inner.bytes > small)
        counts[std::string("inner ") + collective_name(inner.collective)] +=
            static_cast<int>(inner.count);
    }
  }
  return counts;
}

/// Calls that sum something, as theirs counts all-reduces: a reduce-scatter (whose gather comes
/// later) is one, and those of all gradients are joined to one.
int sums_of(const Plan& plan, Bytes small) {
  int calls = 0;
  bool gradients = false;
  for (const auto& [name, count] : collectives_of(plan, small)) {
    const bool sums = name.find("all_reduce") != std::string::npos ||
                      name.find("reduce_scatter") != std::string::npos;
    if (!sums) continue;
    if (name.rfind("gradient ", 0) == 0) {
      gradients = true;
    } else {
      calls += count;
    }
  }
  return calls + (gradients ? 1 : 0);
}

/// At least so many of each.
void check_has(const json& wanted, const Plan& plan, Bytes small) {
  const std::map<std::string, int> counts = collectives_of(plan, small);
  for (const auto& [name, least] : wanted.items()) {
    INFO(name);
    const auto found = counts.find(name);
    CHECK((found == counts.end() ? 0 : found->second) >= least.get<int>());
  }
}

std::string text_of(const Plan& plan, Bytes small) {
  std::string text =
      std::to_string(nanoseconds(plan)) + " ns, " + std::to_string(plan.memory.peak) + " bytes;";
  for (const auto& [name, count] : collectives_of(plan, small))
    text += " " + std::to_string(count) + " " + name;
  text += ";";
  for (const PlanOperator& op : plan.operators) {
    text += " " + op.name + ":";
    for (const auto& pieces : op.in_strategy) text += pieces ? json(*pieces).dump() : "-";
  }
  return text;
}

/// Shape of a device's part of a tensor as its first reader reads it.
Sizes read_shape(const Graph& graph, const Plan& plan, const std::string& name) {
  const Tensor& tensor = graph.tensor(test::tensor_id(graph, name));
  const Use& use = tensor.uses.at(0);
  const auto& pieces =
      plan.operators.at(index(use.op)).in_strategy.at(static_cast<std::size_t>(use.operand));
  REQUIRE(pieces.has_value());
  Sizes shape = tensor.shape;
  for (std::size_t d = 0; d < shape.size(); ++d) shape[d] /= (*pieces)[d];
  return shape;
}

}  // namespace

TEST_CASE(
    "Plans another planner's tests expect cost here what they cost there, or ours is cheaper") {
  std::ifstream file(MESHPLAN_TEST_DATA "/rival_plans.json");
  const json data = json::parse(file);
  std::size_t cheaper = 0;
  std::set<std::string> replayed;
  for (const json& one : data.at("cases")) {
    const auto id = one.at("id").get<std::string>();
    replayed.insert(id);
    INFO(id << " " << one.value("why", ""));
    const Graph graph = test::build_graph(
        data.at("graphs").at(one.at("graph").get<std::string>()).get<std::string>(),
        one.value("training", true));
    const Bytes small = one.value("small", 64);
    const Plan ours = plan_of(graph, one, {});
    const Plan theirs =
        one.contains("force") ? plan_of(graph, one, one.at("force")) : plan_of(graph, one, {});
    INFO("ours: " << text_of(ours, small));
    INFO("theirs: " << text_of(theirs, small));
    if (one.contains("theirs")) {
      const double said = one.at("theirs").get<double>();
      const double priced = nanoseconds(theirs);
      CHECK(std::abs(priced - said) <= one.value("tolerance", 0.01) * said + 10);
    }
    CHECK(nanoseconds(ours) <= nanoseconds(theirs) * (1 + 1e-9));
    if (one.contains("why")) {
      ++cheaper;
      CHECK(one.at("why").get<std::string>().size() > 20);
      CHECK(nanoseconds(ours) < nanoseconds(theirs) * 0.995);
    } else {
      CHECK(nanoseconds(ours) >= nanoseconds(theirs) * (1 - one.value("tolerance", 0.01)) - 10);
    }
    if (one.contains("collectives")) {
      CHECK(collectives_of(theirs, small) ==
            one.at("collectives").get<std::map<std::string, int>>());
    }
    if (one.contains("sums")) CHECK(sums_of(theirs, small) == one.at("sums").get<int>());
    if (one.contains("theirs_has")) check_has(one.at("theirs_has"), theirs, small);
    if (one.contains("ours_has")) check_has(one.at("ours_has"), ours, small);
    if (one.value("sums_once", false)) {
      for (const PlanRedistribution& moved : theirs.redistributions) {
        if (moved.phase != Phase::kGradient) continue;
        INFO(moved.tensor);
        CHECK(moved.per == Per::kStep);
      }
    }
    if (one.value("states_cut", false)) {
      for (const PlanTensor& tensor : theirs.tensors) {
        if (!tensor.optimizer_state || tensor.shape.size() < 2) continue;
        INFO(tensor.name);
        CHECK(std::any_of(tensor.optimizer_state->begin(),
                          tensor.optimizer_state->end(),
                          [](const Placement& p) { return to_string(p).front() == 'S'; }));
      }
    }
    const json locals = one.value("local", json::object());
    for (const auto& [name, local] : locals.items())
      CHECK(read_shape(graph, theirs, name) == local.get<Sizes>());
  }
  CHECK(cheaper < data.at("cases").size());
  for (const json& one : data.at("layouts")) {
    INFO(one.dump());
    replayed.insert(one.at("id").get<std::string>());
    if (one.contains("tiles")) {
      check_tiles(one);
    } else {
      CHECK(layout_of(one).local_shape(one.at("shape").get<Sizes>()).value() ==
            one.at("local").get<Sizes>());
    }
  }
  for (const json& one : data.at("points")) {
    INFO(one.dump());
    replayed.insert(one.at("id").get<std::string>());
    const auto model = CollectiveModel::make(cluster_of(one), one.at("mesh").get<Sizes>());
    REQUIRE(model.has_value());
    for (const Collective collective :
         {Collective::kAllGather, Collective::kAllReduce, Collective::kReduceScatter}) {
      CollectiveCall call;
      call.collective = collective;
      call.axes = 1;
      call.bytes = one.at("bytes").get<Bytes>();
      const double said = one.at(collective_name(collective)).get<double>();
      CHECK(std::abs(model->time(call).value * 1e9 - said) <= 0.01 * said);
    }
  }
  for (const json& one : data.at("moves")) {
    INFO(one.dump());
    replayed.insert(one.at("id").get<std::string>());
    const auto sizes = one.at("mesh").get<Sizes>();
    const auto model = CollectiveModel::make(cluster_of(one), sizes);
    REQUIRE(model.has_value());
    RedistributionPlanner planner(sizes,
                                  [&](const CollectiveCall& call) { return model->time(call); });
    const auto from = parse_placements(one.at("from").get<std::string>());
    const auto to = parse_placements(one.at("to").get<std::string>());
    REQUIRE((from.has_value() && to.has_value()));
    const auto moves = planner.plan(one.at("shape").get<Sizes>(), 4, *from, *to);
    REQUIRE(moves.has_value());
    const double priced = (*moves)->time.value * 1e9;
    CHECK(priced <= one.at("theirs").get<double>());
    CHECK((priced < one.at("theirs").get<double>() * 0.99) == one.contains("why"));
  }
  std::size_t skipped = 0;
  for (const json& one : data.at("skipped")) {
    ++skipped;
    CHECK(one.at("reason").get<std::string>().size() > 20);
    CHECK(replayed.count(one.at("id").get<std::string>()) == 0);
  }
  CHECK(replayed.size() + skipped == 60);
  CHECK(skipped * 10 <= 60);
}

}  // namespace meshplan::rival_plans_test

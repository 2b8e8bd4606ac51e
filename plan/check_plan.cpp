// SPDX-License-Identifier: Apache-2.0
// The driver, and the parts that need no arithmetic: identity, coverage, layouts, groups.
#include "plan/check_plan.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <set>
#include <tuple>
#include <utility>

#include "graph/json.h"
#include "plan/check_plan_parts.h"

namespace meshplan::checking {
namespace {

constexpr std::size_t kMostFindings = 1'000'000;

std::string list_text(const std::vector<std::int64_t>& numbers) {
  std::string text = "[";
  for (const std::int64_t number : numbers) {
    text += (text.size() > 1 ? ", " : "") + std::to_string(number);
  }
  return text + "]";
}

std::string map_text(const std::vector<std::vector<int>>& map) {
  std::string text = "[";
  for (const std::vector<int>& axes : map) {
    text += text.size() > 1 ? ", " : "";
    if (axes.size() == 1) {
      text += std::to_string(axes[0]);
    } else if (axes.empty()) {
      text += "-1";
    } else {
      text += "[";
      for (std::size_t i = 0; i < axes.size(); ++i) {
        text += (i == 0 ? "" : ", ") + std::to_string(axes[i]);
      }
      text += "]";
    }
  }
  return text + "]";
}

std::string option_text(const OptionValue& value) {
  if (const auto* number = std::get_if<std::int64_t>(&value)) return std::to_string(*number);
  if (const auto* number = std::get_if<double>(&value)) return number_text(*number);
  if (const auto* text = std::get_if<std::string>(&value)) return *text;
  return "no number";
}

void check_result(Context& context) {
  const PlanResult& result = context.plan.result;
  const bool infeasible = result.status == PlanStatus::kInfeasible;
  if (infeasible) {
    if (!result.min_memory) {
      context.report("/result/min_memory",
                     "a number of bytes",
                     "none",
                     "an infeasible result must say the least memory that is needed");
    } else if (*result.min_memory <= context.plan.memory.limit) {
      context.report("/result/min_memory",
                     "more than " + std::to_string(context.plan.memory.limit),
                     std::to_string(*result.min_memory),
                     "an assignment that fits the limit is said to exist");
    }
    return;
  }
  if (!result.objective || !std::isfinite(result.objective->value)) {
    context.report("/result/objective", "a number of seconds", "none", "the plan has no objective");
    return;
  }
  if (result.min_memory) {
    context.report("/result/min_memory",
                   "",
                   std::to_string(*result.min_memory),
                   "only an infeasible result has this key");
  }
  const double objective = result.objective->value;
  if (result.lower_bound && result.lower_bound->value > objective) {
    context.report("/result/lower_bound",
                   "at most " + number_text(objective),
                   number_text(result.lower_bound->value),
                   "the lower bound is above the objective");
  }
  if (result.lower_bound.has_value() != result.gap.has_value()) {
    context.report("/result/gap",
                   result.lower_bound ? "a number" : "null",
                   result.gap ? number_text(*result.gap) : "null",
                   "a gap is proven exactly where there is a lower bound");
    return;
  }
  if (result.gap) {
    const double gap = objective == 0 ? 0 : (objective - result.lower_bound->value) / objective;
    if (!(std::abs(gap - *result.gap) <= 1e-12)) {
      context.report("/result/gap",
                     number_text(gap),
                     number_text(*result.gap),
                     "the gap must be (objective - lower_bound) / objective");
    }
  }
  if (result.status == PlanStatus::kOptimal && (!result.gap || *result.gap != 0)) {
    context.report("/result/status", "feasible", "optimal", "an optimal result has gap 0");
  }
}

/// What the plan says about --prefer; the earlier plan itself is not at hand.
void check_preference(Context& context) {
  const std::optional<PlanPreference>& preference = context.plan.preference;
  if (!preference) return;
  const auto check_kept = [&](const char* key, std::int64_t kept, std::int64_t all) {
    if (kept >= 0 && kept <= all) return;
    context.report(std::string("/preference/") + key,
                   "0 to " + std::to_string(all),
                   std::to_string(kept),
                   "more is kept than there is in both plans");
  };
  check_kept("kept_operators", preference->kept_operators, preference->operators);
  check_kept("kept_parameters", preference->kept_parameters, preference->parameters);
  if (!context.plan.result.objective) return;
  const double most = (1 + preference->tolerance) * preference->best_objective.value;
  if (!(context.plan.result.objective->value <= most)) {
    context.report("/preference/best_objective",
                   "at least " + number_text(context.plan.result.objective->value /
                                             (1 + preference->tolerance)),
                   number_text(preference->best_objective.value),
                   "the plan costs more than the tolerance allows");
  }
}

bool check_mesh(Context& context) {
  const PlanMesh& mesh = context.plan.mesh;
  const std::size_t before = context.findings.size();
  if (mesh.shape.size() != mesh.axes.size()) {
    context.report("/mesh/axes",
                   std::to_string(mesh.shape.size()) + " names",
                   std::to_string(mesh.axes.size()) + " names",
                   "the mesh must have one name per axis");
    return false;
  }
  if (!mesh.roles.empty() && mesh.roles.size() != mesh.shape.size()) {
    context.report("/mesh/roles",
                   std::to_string(mesh.shape.size()) + " lists",
                   std::to_string(mesh.roles.size()) + " lists",
                   "the roles must be those of every axis");
  }
  std::int64_t devices = 1;
  for (const std::int64_t size : mesh.shape) {
    if (size < 1 || size > kMaxDevices || devices > kMaxDevices) {
      context.report("/mesh/shape",
                     "sizes of at least 1",
                     list_text(mesh.shape),
                     "the shape of the mesh is out of range");
      return false;
    }
    devices *= size;
  }
  for (std::size_t i = 0; i < mesh.axes.size(); ++i) {
    if (mesh.axes[i].empty() ||
        std::find(mesh.axes.begin(),
                  mesh.axes.begin() + static_cast<std::ptrdiff_t>(i),
                  mesh.axes[i]) != mesh.axes.begin() + static_cast<std::ptrdiff_t>(i)) {
      context.report("/mesh/axes/" + std::to_string(i),
                     "a name of its own",
                     mesh.axes[i],
                     "mesh axes must have distinct names");
    }
  }
  if (devices != context.cluster.devices()) {
    context.report("/mesh/shape",
                   "a product of " + std::to_string(context.cluster.devices()),
                   list_text(mesh.shape),
                   "the mesh must use every device of the cluster");
  }
  std::vector<std::int64_t> sorted = mesh.ranks;
  std::sort(sorted.begin(), sorted.end());
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    if (sorted.size() == static_cast<std::size_t>(devices) &&
        sorted[i] == static_cast<std::int64_t>(i)) {
      continue;
    }
    context.report("/mesh/ranks",
                   "every rank once",
                   std::to_string(sorted.size()) + " ranks",
                   "the ranks of the mesh must be those of the cluster");
    break;
  }
  if (context.findings.size() != before) return false;
  auto collectives = CollectiveModel::make(context.cluster, mesh.shape, mesh.ranks);
  if (!collectives) {
    context.report("/mesh",
                   "a mesh on the levels of the cluster",
                   list_text(mesh.shape),
                   collectives.error().message);
    return false;
  }
  context.collectives.emplace(std::move(*collectives));
  context.mesh = mesh.shape;
  return true;
}

}  // namespace

// ---- Context ------------------------------------------------------------------------------------

void Context::report(std::string pointer,
                     std::string expected,
                     std::string found,
                     std::string message) {
  if (findings.size() > kMostFindings) return;
  if (findings.size() == kMostFindings) {
    findings.push_back({"", "none", "more", "there are more differences than can be listed"});
    return;
  }
  if (expected.empty()) expected = "none";
  if (found.empty()) found = "none";
  findings.push_back(
      {std::move(pointer), std::move(expected), std::move(found), std::move(message)});
}

void Context::expect(const std::string& pointer,
                     Seconds expected,
                     Seconds found,
                     const char* what) {
  if (expected == found) return;
  report(pointer, number_text(expected.value), number_text(found.value), what);
}

void Context::expect(const std::string& pointer, Bytes expected, Bytes found, const char* what) {
  if (expected == found) return;
  report(pointer, std::to_string(expected), std::to_string(found), what);
}

AxisSet Context::axis_set(const std::vector<int>& axes) const {
  AxisSet set = 0;
  for (const int axis : axes) set |= AxisSet{1} << axis;
  return set;
}

double Context::hidden(Hiding kind) const {
  const Overlap& overlap = cluster.efficiency.overlap;
  const auto option = [&](const char* name, double otherwise) {
    const auto found = plan.options.overlap.find(name);
    return found == plan.options.overlap.end() ? otherwise : found->second;
  };
  switch (kind) {
    case Hiding::kActivation:
      return option("activation", overlap.activation);
    case Hiding::kGradient:
      return option("gradient", overlap.gradient);
    case Hiding::kGather:
      return option("gather", overlap.gather);
    case Hiding::kRing:
      return option("ring", overlap.ring);
  }
  return 0;
}

Seconds Context::exposed(Hiding kind, Seconds time) const {
  const double fraction = hidden(kind);
  return fraction == 0 ? time : on_price_grid((1 - fraction) * time);
}

bool Context::uneven() const {
  const auto option = plan.options.others.find("allow_uneven");
  const bool* allowed =
      option == plan.options.others.end() ? nullptr : std::get_if<bool>(&option->second);
  return allowed != nullptr && *allowed;
}

bool Context::repeats(OperatorId op) const {
  if (index(op) < schedule.repeats.size()) return schedule.repeats[index(op)];
  const int entry = operator_entry[index(op)];
  return entry >= 0 && plan.operators[static_cast<std::size_t>(entry)].recompute;
}

Bytes Context::local_bytes(const Cuts& cuts, const Shape& shape, Bytes element) const {
  const auto local = local_shape_of(cuts, shape, mesh, uneven());
  return local ? product_of(*local) * element : 0;
}

Bytes Context::local_bytes(const Cuts& cuts, TensorId tensor) const {
  const Tensor& t = graph.tensor(tensor);
  return local_bytes(cuts, t.shape, dtype_bytes(t.dtype));
}

std::string pointer_to_tensor(const std::string& name) {
  return "/tensors/" + json_pointer_part(name);
}

std::string pointer_to(const char* list, int entry) {
  return std::string("/") + list + "/" + std::to_string(entry);
}

std::string number_text(double value) {
  char buffer[40];
  std::snprintf(buffer, sizeof buffer, "%.17g", value);
  return buffer;
}

bool has_gradient(const Graph& graph, const std::optional<TensorId>& tensor) {
  return tensor && graph.training && graph.tensor(*tensor).has_gradient;
}

bool runs_backward(const Graph& graph, const Operator& op) {
  return std::any_of(op.inputs.begin(), op.inputs.end(), [&](const auto& input) {
    return has_gradient(graph, input);
  });
}

bool needs_operand(const Graph& graph, const Operator& op, std::size_t operand) {
  if (!op.rule->operands[operand].saved) return false;
  for (std::size_t i = 0; i < op.inputs.size(); ++i) {
    const bool own = i == operand;
    if (has_gradient(graph, op.inputs[i]) && !(own && op.rule->product)) return true;
  }
  return false;
}

// ---- Parts --------------------------------------------------------------------------------------

bool check_identity(Context& context) {
  const Plan& plan = context.plan;
  if (plan.graph.fingerprint != context.graph.fingerprint) {
    context.report("/graph/fingerprint",
                   context.graph.fingerprint,
                   plan.graph.fingerprint,
                   "the plan was made for another graph");
  }
  if (plan.cluster.fingerprint != context.cluster.fingerprint) {
    context.report("/cluster/fingerprint",
                   context.cluster.fingerprint,
                   plan.cluster.fingerprint,
                   "the plan was made for another cluster");
  }
  context.expect("/cluster/devices",
                 context.cluster.devices(),
                 plan.cluster.devices,
                 "the plan was made for another number of devices");
  const std::string mode = context.graph.training ? "training" : "inference";
  if (plan.options.mode != mode) {
    context.report("/options/mode", mode, plan.options.mode, "the graph was read in another mode");
  }
  const auto devices = plan.options.others.find("devices");
  if (devices != plan.options.others.end() &&
      devices->second != OptionValue(plan.cluster.devices)) {
    context.report("/options/devices",
                   std::to_string(plan.cluster.devices),
                   option_text(devices->second),
                   "the option names another number of devices than the plan's cluster has");
  }
  if (plan.options.microbatches < 1) {
    context.report("/options/microbatches",
                   "at least 1",
                   std::to_string(plan.options.microbatches),
                   "a step has micro-batches");
    return false;
  }
  for (const auto& [kind, fraction] : plan.options.overlap) {
    static const std::set<std::string> kinds = {
        "gradient", "gather", "ring", "activation", "expert"};
    if (kinds.count(kind) == 0 || !(fraction >= 0 && fraction <= 1)) {
      context.report("/options/overlap/" + kind,
                     "a fraction of a kind of communication",
                     number_text(fraction),
                     "overlap is wrong");
      return false;
    }
  }
  if (plan.stages.size() != 1 || plan.stages[0] != PlanStage{}) {
    context.report("/stages",
                   "one stage of all operators on all devices",
                   std::to_string(plan.stages.size()) + " stages",
                   "plans of several stages cannot be checked");
    return false;
  }
  check_result(context);
  check_preference(context);
  if (plan.result.status == PlanStatus::kInfeasible) {
    if (!plan.operators.empty() || !plan.tensors.empty() || !plan.redistributions.empty()) {
      context.report("/result/status",
                     "feasible",
                     "infeasible",
                     "an infeasible result has no operators, tensors and redistributions");
    }
    return false;
  }
  return check_mesh(context);
}

bool check_coverage(Context& context) {
  const Plan& plan = context.plan;
  const Graph& graph = context.graph;
  bool complete = true;
  context.tensor_entry.assign(graph.tensors.size(), -1);
  context.operator_entry.assign(graph.operators.size(), -1);
  for (std::size_t t = 0; t < graph.tensors.size(); ++t) {
    context.tensor_ids.emplace(graph.tensors[t].name, t);
  }
  for (std::size_t i = 0; i < graph.operators.size(); ++i) {
    context.operator_ids.emplace(graph.operators[i].name, i);
  }
  const auto cover = [&](const auto& entries,
                         const auto& ids,
                         std::vector<int>& found,
                         const char* kind,
                         auto pointer) {
    for (std::size_t e = 0; e < entries.size(); ++e) {
      const auto id = ids.find(entries[e].name);
      if (id == ids.end()) {
        context.report(
            pointer(e), "none", entries[e].name, std::string("the graph has no such ") + kind);
      } else if (found[id->second] >= 0) {
        context.report(pointer(e),
                       "once",
                       entries[e].name,
                       std::string("the plan names this ") + kind + " twice");
      } else {
        found[id->second] = static_cast<int>(e);
      }
    }
  };
  cover(plan.tensors, context.tensor_ids, context.tensor_entry, "tensor", [&](std::size_t e) {
    return pointer_to_tensor(plan.tensors[e].name);
  });
  cover(
      plan.operators, context.operator_ids, context.operator_entry, "operator", [&](std::size_t e) {
        return pointer_to("operators", static_cast<int>(e));
      });
  for (std::size_t t = 0; t < graph.tensors.size(); ++t) {
    if (context.tensor_entry[t] >= 0) continue;
    complete = false;
    context.report(pointer_to_tensor(graph.tensors[t].name),
                   "an entry",
                   "none",
                   "the plan says nothing about tensor \"" + graph.tensors[t].name + "\"");
  }
  for (std::size_t i = 0; i < graph.operators.size(); ++i) {
    if (context.operator_entry[i] >= 0) continue;
    complete = false;
    context.report("/operators",
                   "an entry of " + graph.operators[i].name,
                   "none",
                   "the plan says nothing about operator \"" + graph.operators[i].name + "\"");
  }
  return complete;
}

void check_tensors(Context& context) {
  for (std::size_t t = 0; t < context.graph.tensors.size(); ++t) {
    if (context.tensor_entry[t] < 0) continue;
    const Tensor& tensor = context.graph.tensors[t];
    const PlanTensor& entry =
        context.plan.tensors[static_cast<std::size_t>(context.tensor_entry[t])];
    const std::string pointer = pointer_to_tensor(tensor.name);
    if (entry.shape != tensor.shape) {
      context.report(pointer + "/shape",
                     list_text(tensor.shape),
                     list_text(entry.shape),
                     "the shape is not the graph's");
    }
    if (entry.dtype != dtype_name(tensor.dtype)) {
      context.report(pointer + "/dtype",
                     dtype_name(tensor.dtype),
                     entry.dtype,
                     "the element type is not the graph's");
    }
    const auto cuts = cuts_of(entry.placements, tensor.shape.size(), context.mesh);
    const auto local =
        cuts ? local_shape_of(*cuts, tensor.shape, context.mesh, context.uneven()) : std::nullopt;
    const Shape& units = tensor.units.empty() ? tensor.shape : tensor.units;
    if (!local || !local_shape_of(*cuts, units, context.mesh, context.uneven())) {
      context.report(pointer + "/placements",
                     "a layout that divides the tensor",
                     to_string(entry.placements),
                     "the placements do not fit the tensor");
      continue;
    }
    if (entry.local_shape != *local) {
      context.report(pointer + "/local_shape",
                     list_text(*local),
                     list_text(entry.local_shape),
                     "the local shape does not follow from the placements");
    }
    const auto map = tensor_map_of(entry.placements, tensor.shape.size(), context.mesh);
    if (entry.tensor_map != map) {
      context.report(pointer + "/tensor_map",
                     map_text(map),
                     map_text(entry.tensor_map),
                     "the tensor map does not follow from the placements");
    }
    const auto fits = [&](const Placements& placements, const char* place) {
      const auto side = cuts_of(placements, tensor.shape.size(), context.mesh);
      if (side && local_shape_of(*side, units, context.mesh, context.uneven())) return;
      context.report(pointer + place,
                     "a layout that divides the tensor",
                     to_string(placements),
                     "the placements do not fit the tensor");
    };
    if (entry.gradient) fits(*entry.gradient, "/gradient");
    if (entry.optimizer_state) fits(*entry.optimizer_state, "/optimizer_state");
    const bool gradient = has_gradient(context.graph, static_cast<TensorId>(t));
    const bool trained = gradient && tensor.role == Role::kParameter && !tensor.uses.empty();
    if (entry.gradient.has_value() != gradient) {
      context.report(pointer + "/gradient",
                     gradient ? "placements" : "null",
                     entry.gradient ? to_string(*entry.gradient) : "null",
                     gradient ? "the tensor has a gradient" : "the tensor has no gradient");
    }
    if (entry.optimizer_state.has_value() != trained || entry.update_time.has_value() != trained) {
      context.report(pointer + "/optimizer_state",
                     trained ? "placements and update_time" : "none",
                     entry.optimizer_state ? to_string(*entry.optimizer_state) : "none",
                     trained ? "the parameter is trained" : "the tensor is not trained");
    }
  }
}

void check_groups(Context& context) {
  const PlanMesh& mesh = context.plan.mesh;
  std::set<AxisSet> needed;
  std::set<AxisSet> allowed;  // a mask talks to nobody, but may have a group
  const auto note = [&](Collective collective, const std::vector<std::string>& names) {
    AxisSet axes = 0;
    for (std::size_t axis = 0; axis < mesh.axes.size(); ++axis) {
      if (mesh.shape[axis] > 1 &&
          std::find(names.begin(), names.end(), mesh.axes[axis]) != names.end()) {
        axes |= AxisSet{1} << axis;
      }
    }
    if (axes == 0 || collective == Collective::kSlice) return;
    allowed.insert(axes);
    if (collective != Collective::kMask) needed.insert(axes);
  };
  for (const PlanRedistribution& entry : context.plan.redistributions) {
    for (const PlanStep& step : entry.steps) note(step.collective, step.axes);
  }
  for (const PlanOperator& op : context.plan.operators) {
    for (const PlanCollective& inner : op.collectives) note(inner.collective, inner.axes);
  }
  const auto ranks = [&](std::size_t position) {
    return mesh.ranks.empty() ? static_cast<std::int64_t>(position) : mesh.ranks[position];
  };
  std::size_t devices = 1;
  for (const std::int64_t size : mesh.shape) devices *= static_cast<std::size_t>(size);
  struct Place {
    std::size_t count = 0;
    std::vector<int> axes;
    std::size_t group = 0;
    std::string names;
  };
  std::vector<Place> order;
  for (std::size_t g = 0; g < context.plan.groups.size(); ++g) {
    const PlanGroup& group = context.plan.groups[g];
    const std::string pointer = pointer_to("groups", static_cast<int>(g));
    std::vector<int> axes;
    AxisSet set = 0;
    std::string names;
    for (const std::string& name : group.axes) names += (names.empty() ? "" : ",") + name;
    for (const std::string& name : group.axes) {
      const auto found = std::find(mesh.axes.begin(), mesh.axes.end(), name);
      if (found == mesh.axes.end()) {
        context.report(pointer + "/axes", "an axis of the mesh", name, "the mesh has no such axis");
        continue;
      }
      axes.push_back(static_cast<int>(found - mesh.axes.begin()));
      set |= AxisSet{1} << axes.back();
    }
    if (!std::is_sorted(axes.begin(), axes.end(), std::less_equal<>())) {
      context.report(
          pointer + "/axes", "axes in mesh order, each once", names, "the axes are in disorder");
      continue;
    }
    order.push_back({axes.size(), axes, g, names});
    if (allowed.count(set) == 0) {
      context.report(pointer, "none", names, "no collective of the plan uses this group");
    }
    needed.erase(set);
    // members of one group share the coordinates along all other axes
    std::map<std::vector<std::int64_t>, std::vector<std::int64_t>> groups;
    for (std::size_t position = 0; position < devices; ++position) {
      std::vector<std::int64_t> others;
      std::size_t rest = position;
      for (std::size_t axis = mesh.shape.size(); axis-- > 0;) {
        const auto size = static_cast<std::size_t>(mesh.shape[axis]);
        if ((set >> axis & 1U) == 0) others.push_back(static_cast<std::int64_t>(rest % size));
        rest /= size;
      }
      groups[others].push_back(ranks(position));
    }
    std::vector<std::vector<std::int64_t>> expected;
    for (auto& [others, members] : groups) expected.push_back(std::move(members));
    std::sort(expected.begin(), expected.end(), [](const auto& a, const auto& b) {
      return *std::min_element(a.begin(), a.end()) < *std::min_element(b.begin(), b.end());
    });
    if (group.ranks != expected) {
      context.report(pointer + "/ranks",
                     std::to_string(expected.size()) + " groups by smallest rank",
                     std::to_string(group.ranks.size()) + " groups",
                     "the groups are not those of the axes, or not in canonical order");
    }
  }
  for (std::size_t g = 1; g < order.size(); ++g) {
    const Place& a = order[g - 1];
    const Place& b = order[g];
    if (std::tie(a.count, a.axes) < std::tie(b.count, b.axes)) continue;
    context.report(pointer_to("groups", static_cast<int>(b.group)),
                   "a group that comes after that of " + a.names,
                   "that of " + b.names,
                   "groups must be listed once, fewest axes first, then from the outermost axis");
  }
  for (const AxisSet set : needed) {
    std::string names;
    for (std::size_t axis = 0; axis < mesh.axes.size(); ++axis) {
      if ((set >> axis & 1U) != 0) names += (names.empty() ? "" : ",") + mesh.axes[axis];
    }
    context.report("/groups", names, "", "the groups of a collective are missing");
  }
}

}  // namespace meshplan::checking

namespace meshplan {

std::string to_string(const Finding& finding) {
  std::string text = finding.pointer + ": ";
  if (!finding.expected.empty()) text += "expected " + finding.expected;
  if (!finding.found.empty()) {
    text += (finding.expected.empty() ? "found " : ", found ") + finding.found;
  }
  if (!finding.expected.empty() || !finding.found.empty()) text += ": ";
  return text + finding.message;
}

std::vector<Finding> check_plan(const Plan& plan,
                                const Graph& graph,
                                const Cluster& cluster,
                                std::optional<DerivedCost>* derived) {
  checking::Context context(plan, graph, cluster);
  if (!checking::check_identity(context)) return std::move(context.findings);
  const bool complete = checking::check_coverage(context);
  checking::check_tensors(context);
  if (complete) checking::check_recompute(context);
  checking::check_operators(context);
  if (complete) checking::check_moves(context);
  checking::check_groups(context);
  if (complete) checking::check_totals(context);
  if (derived != nullptr) *derived = context.derived;
  return std::move(context.findings);
}

}  // namespace meshplan

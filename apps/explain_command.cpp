// SPDX-License-Identifier: Apache-2.0
// meshplan explain PLAN: why is the plan as it is, and what would anything else cost?
#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "apps/cluster_reader.h"
#include "apps/command.h"
#include "apps/constraints_reader.h"
#include "apps/plan_reader.h"
#include "apps/progress_line.h"
#include "apps/search_options.h"
#include "cost_model/recompute.h"
#include "graph/json.h"
#include "graph/scope_pattern.h"
#include "lib/nearest_name.h"
#include "lib/text.h"
#include "plan/body_writer.h"
#include "plan/build_plan.h"
#include "plan/check_plan.h"
#include "plan/diff_plans.h"
#include "plan/diff_report.h"
#include "plan/plan_fold.h"
#include "plan/plan_summary.h"
#include "plan/readable.h"
#include "search/explain_plan.h"
#include "search/explain_propagation.h"

namespace meshplan {
namespace {

constexpr std::size_t kMostRows = 30;          // of alternatives, in text
constexpr std::size_t kMostOperators = 15;     // of all, in text
constexpr std::size_t kMostConstraints = 9;    // priced one by one
constexpr std::size_t kMostTried = 3'000'000;  // strategies x operators that are evaluated

struct ExplainCommandOptions {
  std::string plan;
  std::string graph;
  std::string cluster;
  std::string op;
  std::string tensor;
  std::string scope;
  std::string why_not;
  std::string constraints;
};

// ---- What is explained --------------------------------------------------------------------------

/// A plan with all that its search knew. Stays where it is: the explainer refers to its parts.
struct Subject {
  Plan plan;
  Graph graph;
  Cluster cluster;
  std::optional<Constraints> constraints;
  DpOptions search;
  std::vector<std::string> notes;
  std::unique_ptr<PlanExplainer> explainer;
};

Result<void> read_options(const ExplainCommandOptions& options,
                          const CommonOptions& common,
                          const GraphDocument& document,
                          Subject& subject) {
  const PlanOptions& planned = subject.plan.options;
  const auto optimizer = parse_optimizer(planned.optimizer);
  const auto recompute = parse_recompute(planned.recompute);
  if (!optimizer || !recompute) {
    return fail(ErrorCode::kValue,
                input_name(options.plan) + ": /options",
                "the plan has options that no search has");
  }
  subject.search.prices.optimizer = *optimizer;
  subject.search.prices.microbatches = planned.microbatches;
  Overlap& overlap = subject.search.prices.overlap;
  overlap = subject.cluster.efficiency.overlap;
  const std::pair<const char*, double*> kinds[] = {{"gradient", &overlap.gradient},
                                                   {"gather", &overlap.gather},
                                                   {"ring", &overlap.ring},
                                                   {"activation", &overlap.activation},
                                                   {"expert", &overlap.expert}};
  for (const auto& [kind, fraction] : kinds) {
    const auto given = planned.overlap.find(kind);
    if (given != planned.overlap.end()) *fraction = given->second;
  }
  subject.search.memory_limit = subject.plan.memory.limit;
  subject.search.threads = threads_of(common);
  std::string file = options.constraints;
  const auto given = planned.others.find("constraints");
  if (file.empty() && given != planned.others.end()) {
    if (const auto* text = std::get_if<std::string>(&given->second)) file = *text;
  }
  RecomputeScopes scopes;
  auto constraints = find_constraints(file, document, subject.graph);
  if (!constraints) {
    Error error = constraints.error();
    if (error.code == ErrorCode::kInput && options.constraints.empty())
      error.message +=
          " (the plan was made under these constraints; say where they are with "
          "--constraints)";
    return fail(std::move(error));
  }
  if (*constraints) {
    auto made = recompute_scopes(**constraints, subject.graph);
    if (!made) return fail(made.error());
    scopes = std::move(*made);
    subject.constraints = std::move(*constraints);
  }
  auto recomputation = find_recomputation(subject.graph, *recompute, scopes);
  if (!recomputation) return fail(recomputation.error());
  subject.search.prices.recomputation = std::move(*recomputation);
  return {};
}

/// Reads and checks everything. `rejected` is set where the plan is not right.
Result<std::unique_ptr<Subject>> read_subject(const ExplainCommandOptions& options,
                                              const CommonOptions& common,
                                              bool& rejected) {
  rejected = false;
  auto planned = read_planned_graph(options.plan, options.graph);
  if (!planned) return fail(planned.error());
  auto cluster = load_cluster(options.cluster);
  if (!cluster) return fail(cluster.error());
  auto subject = std::make_unique<Subject>();
  subject->plan = std::move(planned->plan);
  subject->graph = std::move(planned->graph);
  subject->cluster = std::move(*cluster);
  if (subject->plan.cluster.devices != subject->cluster.devices()) {
    auto resized = subject->cluster.resized(subject->plan.cluster.devices);
    if (resized) subject->cluster = std::move(*resized);
  }
  std::vector<Finding> findings = std::move(planned->findings);
  if (findings.empty()) findings = check_plan(subject->plan, subject->graph, subject->cluster);
  if (!findings.empty()) {
    rejected = true;
    return fail(ErrorCode::kConflict,
                input_name(options.plan) + ": " + findings[0].pointer,
                "only a plan that is right can be explained, and meshplan check finds " +
                    counted(findings.size(), "difference") + ", the first: expected " +
                    findings[0].expected + ", found " + findings[0].found + ": " +
                    findings[0].message);
  }
  if (subject->plan.result.status == PlanStatus::kInfeasible) {
    return fail(ErrorCode::kUnsupported,
                input_name(options.plan) + ": /result/status",
                "the plan says that nothing fits; there is nothing to explain");
  }
  if (auto done = read_options(options, common, planned->document, *subject); !done)
    return fail(done.error());
  auto explainer = PlanExplainer::make(
      subject->plan, subject->graph, subject->cluster, subject->search, subject->constraints);
  if (!explainer) {
    Error error = explainer.error();
    error.where = input_name(options.plan) + (error.where.empty() ? "" : ": " + error.where);
    return fail(std::move(error));
  }
  subject->explainer = std::move(*explainer);
  return subject;
}

// ---- The parts of an explanation ----------------------------------------------------------------

/// Operators that do and cost the same, and what is said of them.
struct OperatorRow {
  std::string name;  ///< folded
  std::size_t count = 1;
  OperatorId sample{};
  OperatorCost cost;  ///< of one
  FilterCounts filters;
  std::optional<OperatorExplanation> explanation;
};

/// One set of axes, with what runs along it.
struct AxisRow {
  std::vector<std::string> axes;
  std::optional<std::string> level;
  Seconds objective;
  Seconds time;
  Bytes bytes = 0;
  std::vector<PlanCostCell> kinds;
};

struct WishReport {
  std::string text;
  std::string reason;  ///< why it cannot be; "" where it can
  std::optional<Bytes> min_memory;
  std::optional<Plan> plan;
  std::optional<PlanDiff> diff;
  Seconds objective;  ///< against the plan's
};

struct Explanation {
  std::vector<AxisRow> axes;
  Binding binding;
  std::vector<OperatorRow> operators;  ///< the costliest first
  std::vector<Sensitivity> sensitivity;
  std::optional<std::string> tensor;
  std::optional<TensorExplanation> of_tensor;
  std::optional<PropagationExplanation> propagation;  ///< of that tensor
  std::optional<WishReport> wish;
};

std::vector<std::string> names_of_axes(const Plan& plan, AxisSet axes) {
  std::vector<std::string> names;
  for (std::size_t axis = 0; axis < plan.mesh.axes.size(); ++axis) {
    if ((axes >> axis & 1U) != 0) names.push_back(plan.mesh.axes[axis]);
  }
  return names;
}

std::vector<AxisRow> axis_rows(const Subject& subject) {
  std::map<AxisSet, AxisRow> rows;
  for (const CostCell& cell : subject.explainer->evaluation().breakdown.cells()) {
    const auto* collective = std::get_if<Collective>(&cell.kind);
    // what a device does with its own data uses no axis
    const bool local = collective == nullptr || *collective == Collective::kSlice ||
                       *collective == Collective::kMask;
    AxisRow& row = rows[local ? AxisSet{0} : cell.axes];
    row.axes = names_of_axes(subject.plan, local ? AxisSet{0} : cell.axes);
    if (!local) {
      const int level = subject.explainer->book().collectives().level(cell.axes);
      if (level >= 0) row.level = subject.cluster.levels[static_cast<std::size_t>(level)].name;
    }
    row.objective += cell.objective;
    row.time += cell.time;
    if (__builtin_add_overflow(row.bytes, cell.bytes, &row.bytes))
      row.bytes = std::numeric_limits<Bytes>::max();
    row.kinds.push_back({cell.kind, row.axes, row.level, cell.objective, cell.time, cell.bytes});
  }
  std::vector<AxisRow> list;
  for (auto& [axes, row] : rows) list.push_back(std::move(row));
  std::stable_sort(list.begin(), list.end(), [](const AxisRow& a, const AxisRow& b) {
    return a.objective > b.objective;
  });
  return list;
}

/// Operators that `wanted` holds for, equal ones in one row, the costliest first.
template <class Wanted>
std::vector<OperatorRow> operator_rows(Subject& subject, const Wanted& wanted) {
  std::vector<FoldItem> items;
  std::vector<OperatorId> ids;
  std::map<std::string, std::size_t> bodies;
  BodyWriter body;
  std::map<std::string, const PlanOperator*> entries;
  for (const PlanOperator& op : subject.plan.operators) entries.emplace(op.name, &op);
  for (std::size_t i = 0; i < subject.graph.operators.size(); ++i) {
    const auto id = static_cast<OperatorId>(i);
    const Operator& op = subject.graph.op(id);
    if (!wanted(op)) continue;
    const PlanOperator& entry = *entries.at(op.name);
    const OperatorCost cost = subject.explainer->cost_of(id);
    body.clear();
    body.value(op.type);
    body.value(static_cast<std::int64_t>(reinterpret_cast<std::intptr_t>(op.rule.get())));
    for (const auto& placements : entry.in_placements) {
      if (placements) body.array(*placements);
    }
    for (const Placements& placements : entry.out_placements) body.array(placements);
    for (const Seconds part :
         {cost.forward, cost.recompute, cost.backward, cost.inside, cost.outside, cost.update})
      body.value(part.value);
    const std::size_t number = bodies.try_emplace(body.bytes(), bodies.size()).first->second;
    items.push_back({{op.name}, number});
    ids.push_back(id);
  }
  std::vector<OperatorRow> rows;
  for (FoldedItem& item : fold(items)) {
    OperatorRow row;
    row.name = std::move(item.texts[0]);
    row.count = item.members.size();
    row.sample = ids[item.members.front()];
    row.cost = subject.explainer->cost_of(row.sample);
    rows.push_back(std::move(row));
  }
  const auto together = [](const OperatorRow& row) {
    return static_cast<double>(row.count) * row.cost.objective();
  };
  std::stable_sort(rows.begin(), rows.end(), [&](const OperatorRow& a, const OperatorRow& b) {
    return together(a) > together(b);
  });
  return rows;
}

void add_filters(Subject& subject, std::vector<OperatorRow>& rows) {
  std::map<std::pair<const Rule*, std::string>, FilterCounts> known;
  for (OperatorRow& row : rows) {
    const Rule* rule = subject.graph.op(row.sample).rule.get();
    // constraints are about names
    const std::string name = subject.constraints ? row.name : "";
    const auto [found, is_new] = known.try_emplace({rule, name});
    if (is_new) found->second = subject.explainer->filters(row.sample, false);
    row.filters = found->second;
  }
}

/// Proving what memory excludes takes a search per strategy.
bool can_try_all(const Subject& subject, const std::vector<OperatorRow>& rows) {
  std::size_t strategies = 0;
  for (const OperatorRow& row : rows)
    strategies += subject.explainer->book().info(row.sample).strategies().size();
  return strategies * subject.graph.operators.size() <= kMostTried;
}

Result<OperatorId> find_operator(const Subject& subject, const std::string& name) {
  for (std::size_t i = 0; i < subject.graph.operators.size(); ++i) {
    if (subject.graph.operators[i].name == name) return static_cast<OperatorId>(i);
  }
  std::vector<std::string> names;
  for (const Operator& op : subject.graph.operators) names.push_back(op.name);
  return usage(
      "--operator",
      "the graph has no operator " + meshplan::quoted(name) + nearest_name_hint(name, names));
}

std::optional<TensorId> tensor_named(const Graph& graph, const std::string& name) {
  for (std::size_t t = 0; t < graph.tensors.size(); ++t) {
    if (graph.tensors[t].name == name) return static_cast<TensorId>(t);
  }
  return std::nullopt;
}

Result<TensorId> find_tensor(const Subject& subject, const std::string& name) {
  if (const auto found = tensor_named(subject.graph, name)) return *found;
  std::vector<std::string> names;
  for (const Tensor& tensor : subject.graph.tensors) names.push_back(tensor.name);
  return usage(
      "--tensor",
      "the graph has no tensor " + meshplan::quoted(name) + nearest_name_hint(name, names));
}

// ---- A wish -------------------------------------------------------------------------------------

/// "S(0),R" or "*,S(1)" as a pattern of the plan's mesh.
Result<PlacementPattern> parse_pattern(const Plan& plan, const std::string& text) {
  PlacementPattern pattern;
  std::size_t begin = 0;
  int depth = 0;
  for (std::size_t i = 0; i <= text.size(); ++i) {
    if (i < text.size() && text[i] == '(') ++depth;
    if (i < text.size() && text[i] == ')') --depth;
    if (i < text.size() && (text[i] != ',' || depth > 0)) continue;
    const std::string part(trim(text.substr(begin, i - begin)));
    begin = i + 1;
    if (part == "*") {
      pattern.emplace_back();
      continue;
    }
    auto placement = parse_placement(part);
    if (!placement) return usage("--why-not", placement.error().message);
    pattern.emplace_back(*placement);
  }
  if (pattern.size() != plan.mesh.axes.size()) {
    return usage("--why-not",
                 meshplan::quoted(text) + " has " + counted(pattern.size(), "placement") +
                     ", the plan's mesh (" + mesh_text(plan.mesh) + ") " +
                     counted(plan.mesh.axes.size(), "axis", "axes") +
                     "; \"*\" leaves an axis free");
  }
  return pattern;
}

/// "w1=S(0),R": a tensor as its readers find it, or an operator's first result.
Result<Constraints> parse_wish(const Subject& subject, const std::string& text) {
  const std::size_t equals = text.rfind('=');
  if (equals == std::string::npos || equals == 0)
    return usage("--why-not",
                 meshplan::quoted(text) +
                     ": expected a tensor or operator and its placements, e.g. w1=S(0),R");
  const std::string name(trim(text.substr(0, equals)));
  auto pattern = parse_pattern(subject.plan, text.substr(equals + 1));
  if (!pattern) return fail(pattern.error());
  Constraints wish;
  wish.file = "--why-not";
  wish.mesh = ConstraintMesh{subject.plan.mesh.shape, subject.plan.mesh.axes, {}};
  if (tensor_named(subject.graph, name)) {
    wish.tensors.push_back({name, std::move(*pattern), 0, "--why-not"});
    return wish;
  }
  std::vector<std::string> names;
  for (const Tensor& tensor : subject.graph.tensors) names.push_back(tensor.name);
  for (const Operator& op : subject.graph.operators) {
    names.push_back(op.name);
    if (op.name != name) continue;
    OperatorConstraint constraint;
    constraint.op = name;
    constraint.out_placements.emplace();
    constraint.out_placements->push_back(std::move(*pattern));
    constraint.out_placements->resize(op.outputs.size());
    constraint.where = "--why-not";
    wish.operators.push_back(std::move(constraint));
    return wish;
  }
  return usage("--why-not",
               "the graph has neither a tensor nor an operator " + meshplan::quoted(name) +
                   nearest_name_hint(name, names));
}

Result<WishReport> explain_wish(Subject& subject, const std::string& text) {
  auto constraints = parse_wish(subject, text);
  if (!constraints) return fail(constraints.error());
  auto wish = subject.explainer->why_not(*constraints);
  if (!wish) return usage("--why-not", wish.error().message);
  WishReport made;
  made.text = text;
  made.reason = wish->reason;
  made.min_memory = wish->min_memory;
  if (!wish->found) return made;
  DpResult& found = *wish->found;
  PlanContext context;
  context.version = MESHPLAN_VERSION;
  context.options = subject.plan.options;
  context.axes = subject.plan.mesh.axes;
  context.roles = subject.plan.mesh.roles;
  context.memory_limit = subject.search.memory_limit;
  context.result = subject.plan.result;
  context.result.objective = found.evaluation.objective;
  made.plan = build_plan(*found.book, found.assignment, found.evaluation, context);
  made.plan->generator_version = subject.plan.generator_version;
  made.objective = found.evaluation.objective - *subject.plan.result.objective;
  DiffOptions diff;
  diff.scope_of = [&subject, scopes = std::map<std::string, std::string>()](
                      const std::string& name) mutable -> std::optional<std::string> {
    if (scopes.empty()) {
      for (const Operator& op : subject.graph.operators) scopes.emplace(op.name, op.scope);
    }
    const auto scope = scopes.find(name);
    if (scope == scopes.end() || scope->second.empty()) return std::nullopt;
    return scope->second;
  };
  made.diff = diff_plans(subject.plan, *made.plan, diff);
  return made;
}

// ---- Text ---------------------------------------------------------------------------------------

std::string joined(const std::vector<std::string>& parts, const char* between) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : between) + part;
  return text;
}

std::string placements_text(const std::vector<Placements>& list) {
  std::vector<std::string> parts;
  for (const Placements& placements : list)
    parts.push_back(placements.empty() ? "none" : "[" + to_string(placements) + "]");
  return joined(parts, " ");
}

std::string share_text(Seconds part, Seconds whole) {
  return whole.value > 0 ? readable_percent(part.value / whole.value) : "";
}

SummaryTable axis_table(const Subject& subject, const std::vector<AxisRow>& rows) {
  SummaryTable table{"Where time goes by mesh axis",
                     {"axes", "level", "objective", "share", "time", "sent", "what"},
                     {false, false, true, true, true, true, false},
                     {}};
  for (const AxisRow& row : rows) {
    std::vector<std::string> kinds;
    for (const PlanCostCell& cell : row.kinds)
      kinds.push_back(std::string(cost_kind_name(cell.kind)) + " " + readable_time(cell.objective));
    table.rows.push_back({row.axes.empty() ? "(each device alone)" : joined(row.axes, ","),
                          row.level.value_or(""),
                          readable_time(row.objective),
                          share_text(row.objective, *subject.plan.result.objective),
                          readable_time(row.time),
                          row.bytes > 0 ? readable_bytes(row.bytes) : "",
                          joined(kinds, ", ")});
  }
  return table;
}

SummaryTable operator_table(const std::vector<OperatorRow>& rows) {
  SummaryTable table{
      "Cost split (per step, each)",
      {"operator", "times", "forward", "again", "backward", "inside", "outside", "update", "all"},
      {false, true, true, true, true, true, true, true, true},
      {}};
  for (const OperatorRow& row : rows) {
    if (table.rows.size() == kMostOperators && rows.size() > kMostOperators + 1) {
      table.rows.push_back({std::to_string(rows.size() - kMostOperators) + " more"});
      table.rows.back().resize(table.columns.size());
      break;
    }
    const auto time = [](Seconds t) { return t.value == 0 ? std::string() : readable_time(t); };
    table.rows.push_back({row.name,
                          std::to_string(row.count),
                          time(row.cost.forward),
                          time(row.cost.recompute),
                          time(row.cost.backward),
                          time(row.cost.inside),
                          time(row.cost.outside),
                          time(row.cost.update),
                          readable_time(row.cost.objective())});
  }
  return table;
}

SummaryTable filter_table(const std::vector<OperatorRow>& rows) {
  SummaryTable table{
      "Strategies left out, and why",
      {"operator", "times", "all", "divisibility", "rule", "constraints", "memory", "left"},
      {false, true, true, true, true, true, true, true},
      {}};
  for (const OperatorRow& row : rows) {
    if (table.rows.size() == kMostOperators && rows.size() > kMostOperators + 1) {
      table.rows.push_back({std::to_string(rows.size() - kMostOperators) + " more"});
      table.rows.back().resize(table.columns.size());
      break;
    }
    const FilterCounts& counts = row.filters;
    table.rows.push_back({row.name,
                          std::to_string(row.count),
                          std::to_string(counts.all),
                          std::to_string(counts.divisibility),
                          std::to_string(counts.rule),
                          std::to_string(counts.constraints),
                          counts.memory ? std::to_string(*counts.memory) : "not proven",
                          std::to_string(counts.left)});
  }
  return table;
}

std::string consequence_text(const std::optional<Consequence>& consequence) {
  if (!consequence) return "";
  return signed_time(consequence->objective) + (consequence->fits ? "" : " (does not fit)");
}

SummaryTable alternative_table(std::string title,
                               const std::vector<std::string>& axes,
                               const std::vector<Alternative>& alternatives) {
  SummaryTable table{std::move(title),
                     {joined(axes, ","),
                      "inputs",
                      "results",
                      "rest as it is",
                      "neighbours chosen anew",
                      "peak",
                      ""},
                     {false, false, false, true, true, true, false},
                     {}};
  for (const Alternative& each : alternatives) {
    if (table.rows.size() == kMostRows && alternatives.size() > kMostRows + 1) {
      table.rows.push_back({std::to_string(alternatives.size() - kMostRows) + " more"});
      table.rows.back().resize(table.columns.size());
      break;
    }
    const Bytes peak = each.around ? each.around->peak : each.alone.peak;
    table.rows.push_back({each.label,
                          placements_text(each.inputs),
                          placements_text(each.outputs),
                          each.chosen ? "" : consequence_text(each.alone),
                          consequence_text(each.around),
                          readable_bytes(peak),
                          each.chosen        ? "chosen"
                          : each.constrained ? "excluded by constraints"
                                             : ""});
  }
  return table;
}

SummaryTable scope_table(const std::vector<OperatorRow>& rows) {
  SummaryTable table{
      "The best alternative of each operator",
      {"operator", "times", "chosen", "instead", "rest as it is", "around chosen anew"},
      {false, true, false, false, true, true},
      {}};
  for (const OperatorRow& row : rows) {
    if (!row.explanation) continue;
    const auto& list = row.explanation->alternatives;
    const std::size_t other = list.size() > 1 ? 1 : 0;
    table.rows.push_back({row.name,
                          std::to_string(row.count),
                          list.empty() ? "" : list[0].label,
                          other > 0 ? list[other].label : "no other",
                          other > 0 ? consequence_text(list[other].alone) : "",
                          other > 0 ? consequence_text(list[other].around) : ""});
  }
  return table;
}

std::string mesh_shape_text(const MeshShape& mesh) {
  std::vector<std::string> sizes;
  for (const std::int64_t size : mesh.shape) sizes.push_back(std::to_string(size));
  return joined(sizes, "x");
}

SummaryTable sensitivity_table(const std::vector<Sensitivity>& rows) {
  SummaryTable table{"If a level of the network were slower or faster",
                     {"level", "bandwidth", "this plan", "best on its mesh", "best", "mesh", ""},
                     {false, true, true, true, true, false, false},
                     {}};
  const auto time = [](const std::optional<Seconds>& t) { return t ? readable_time(*t) : "none"; };
  for (const Sensitivity& row : rows) {
    table.rows.push_back({row.level,
                          signed_percent(row.factor - 1),
                          time(row.as_planned),
                          time(row.same_mesh),
                          time(row.best),
                          mesh_shape_text(row.best_mesh),
                          row.stays ? "the mesh stays the best" : "another mesh is better"});
  }
  return table;
}

SummaryTable constraint_table(const Subject& subject, const Binding& binding) {
  SummaryTable table{
      "What the constraints cost", {"without", "objective", "gain"}, {false, true, true}, {}};
  for (const ConstraintPrice& price : binding.constraints) {
    table.rows.push_back(
        {price.where == "all" ? "all of them" : price.where,
         price.objective ? readable_time(*price.objective) : "no plan found",
         price.objective ? signed_time(*price.objective - *subject.plan.result.objective) : ""});
  }
  return table;
}

std::string price_text(double seconds_per_gib) {
  return readable_time({seconds_per_gib}) + " per GiB";
}

std::string binding_text(const Binding& binding) {
  std::string text = readable_bytes(binding.peak) + " of " + readable_bytes(binding.limit) +
                     " at the peak, the " + binding.moment;
  if (binding.prices.empty()) return text + "; memory does not bind";
  std::vector<std::string> parts;
  for (const MemoryPrice& price : binding.prices) {
    if (parts.size() == 3) break;
    parts.push_back("in the " + price.moment + " at a price of " +
                    price_text(price.seconds_per_gib));
  }
  return text + "; memory binds " + joined(parts, ", ");
}

const char* origin_text(PropagationOrigin::Kind kind) {
  switch (kind) {
    case PropagationOrigin::Kind::kPrice:
      return "cost";
    case PropagationOrigin::Kind::kConstraint:
      return "constraint";
    case PropagationOrigin::Kind::kDefault:
      return "batch";
    case PropagationOrigin::Kind::kPropagated:
      break;
  }
  return "propagated";
}

std::string given_text(const Subject& subject, const PropagationStep& step) {
  return step.from ? subject.graph.tensor(*step.from).name
                   : "the constraints on " + subject.graph.op(step.op).name;
}

/// One row per step of each axis' way; the middle of a long way is left out.
SummaryTable origin_table(const Subject& subject, const PropagationExplanation& made) {
  constexpr std::size_t kFirst = 12;
  constexpr std::size_t kLast = 6;
  SummaryTable table{"Where its placements come from",
                     {"axis", "placement", "because of", "step", "operator", "took it from"},
                     {false, false, false, true, false, false},
                     {}};
  for (const AxisOrigin& each : made.axes) {
    const std::string& axis = subject.plan.mesh.axes[static_cast<std::size_t>(each.axis)];
    std::string because = origin_text(each.origin.kind);
    for (std::size_t i = 0; i < each.contested_by.size(); ++i)
      because += (i == 0 ? ", contested at " : ", ") + subject.graph.op(each.contested_by[i]).name;
    const std::vector<PropagationStep>& steps = each.origin.steps;
    if (steps.empty()) table.rows.push_back({axis, to_string(each.placement), because, "", "", ""});
    for (std::size_t i = 0; i < steps.size(); ++i) {
      const bool first = i == 0;
      if (i == kFirst && steps.size() > kFirst + kLast + 1) {
        i = steps.size() - kLast - 1;
        table.rows.push_back({axis, "", "", std::to_string(i - kFirst + 1) + " more", "", ""});
        continue;
      }
      table.rows.push_back({axis,
                            first ? to_string(each.placement) : "",
                            first                   ? because
                            : i + 1 == steps.size() ? "given there"
                                                    : "",
                            std::to_string(i + 1),
                            subject.graph.op(steps[i].op).name,
                            given_text(subject, steps[i])});
    }
  }
  return table;
}

std::string claims_text(const Subject& subject, const PropagationConflict& conflict) {
  std::vector<std::string> parts;
  for (const PropagationConflict::Claim& claim : conflict.claims)
    parts.push_back((claim.tensor ? subject.graph.tensor(*claim.tensor).name : "its constraints") +
                    " " + (claim.dim ? "S(" + std::to_string(*claim.dim) + ")" : "-"));
  return joined(parts, ", ");
}

SummaryTable conflict_table(const Subject& subject, const PropagationExplanation& made) {
  SummaryTable table{"Conflicts on the way, and what each way out would cost",
                     {"operator",
                      "axis",
                      "found there",
                      "strategy",
                      "rest as it is",
                      "neighbours chosen anew",
                      ""},
                     {false, false, false, false, true, true, false},
                     {}};
  for (const ExplainedConflict& each : made.conflicts) {
    bool first = true;
    for (const Alternative& one : each.alternatives) {
      table.rows.push_back(
          {first ? subject.graph.op(each.conflict.op).name : "",
           first ? subject.plan.mesh.axes[static_cast<std::size_t>(each.conflict.axis)] : "",
           first ? claims_text(subject, each.conflict) : "",
           one.label,
           one.chosen ? "" : consequence_text(one.alone),
           consequence_text(one.around),
           one.chosen        ? "chosen"
           : one.constrained ? "excluded by constraints"
                             : ""});
      first = false;
    }
  }
  if (made.more_conflicts > 0) {
    table.rows.push_back({std::to_string(made.more_conflicts) + " more"});
    table.rows.back().resize(table.columns.size());
  }
  return table;
}

const char* by_text(TensorExplanation::By by) {
  switch (by) {
    case TensorExplanation::By::kParameter:
      return "how it rests is chosen for itself: whole, its optimizer state cut, gradient too, all";
    case TensorExplanation::By::kCopy:
      return "chosen for itself, as several operators read it";
    case TensorExplanation::By::kProducer:
      return "it lies as the operator that makes it leaves it";
    case TensorExplanation::By::kReader:
      return "it lies as its reader takes it";
    case TensorExplanation::By::kNothing:
      break;
  }
  return "nothing reads it";
}

Summary summarise(const Subject& subject, const Explanation& made) {
  Summary summary;
  const Plan& plan = subject.plan;
  summary.title = "why " + (plan.graph.name.empty() ? "the plan" : plan.graph.name) + " on " +
                  plan.cluster.name + " is planned like this";
  const auto add = [&](const char* label, std::string text) {
    summary.facts.emplace_back(label, std::move(text));
  };
  add("mesh", mesh_text(plan.mesh));
  add("objective", readable_time(*plan.result.objective));
  add("memory", binding_text(made.binding));
  const auto add_table = [&](SummaryTable table) {
    if (!table.rows.empty()) summary.tables.push_back(std::move(table));
  };
  if (made.wish) {
    const WishReport& wish = *made.wish;
    if (wish.plan) {
      add("wish",
          wish.text + ": costs " + signed_time(wish.objective) + " (" +
              signed_percent(wish.objective.value / plan.result.objective->value) +
              ") on this mesh, " + readable_bytes(wish.plan->memory.peak) + " per device");
      Summary diff = meshplan::summarise(*wish.diff);
      for (SummaryTable& table : diff.tables) add_table(std::move(table));
      for (const auto& [label, value] : diff.facts) {
        if (label == "operators" || label == "tensors") add(label.c_str(), value);
      }
    } else {
      add("wish",
          wish.text + ": impossible on this mesh: " + wish.reason +
              (wish.min_memory ? "; it needs at least " + readable_bytes(*wish.min_memory) : ""));
    }
  }
  if (made.of_tensor) {
    add("tensor", *made.tensor + ": " + by_text(made.of_tensor->by));
    if (made.of_tensor->op) add("decided by", subject.graph.op(*made.of_tensor->op).name);
    if (made.propagation) {
      if (!made.propagation->hold)
        add("propagation",
            "given up, as plans that keep it do not fit or are dearer; only the constraints were "
            "kept");
      if (made.propagation->hold == PropagationHold::kActivations)
        add("propagation", "kept but for what follows from parameters: gathering them is cheaper");
      add_table(origin_table(subject, *made.propagation));
      add_table(conflict_table(subject, *made.propagation));
    }
    add_table(alternative_table("Alternatives", plan.mesh.axes, made.of_tensor->alternatives));
  }
  add_table(axis_table(subject, made.axes));
  add_table(constraint_table(subject, made.binding));
  if (!made.operators.empty()) {
    add_table(operator_table(made.operators));
    if (made.operators.size() == 1 && made.operators[0].explanation) {
      add_table(alternative_table(
          "Alternatives", plan.mesh.axes, made.operators[0].explanation->alternatives));
    } else {
      add_table(scope_table(made.operators));
    }
    add_table(filter_table(made.operators));
  }
  add_table(sensitivity_table(made.sensitivity));
  summary.notes = subject.notes;
  return summary;
}

// ---- JSON ---------------------------------------------------------------------------------------

void write_consequence(JsonWriter& writer, const char* key, const std::optional<Consequence>& c) {
  writer.key(key);
  if (!c) return writer.null();
  writer.begin_object(JsonWriter::kOneLine);
  writer.member("objective", c->objective.value);
  writer.member("peak", c->peak);
  writer.member("fits", c->fits);
  writer.end_object();
}

void write_placements(JsonWriter& writer, const char* key, const std::vector<Placements>& list) {
  writer.key(key);
  writer.begin_array(JsonWriter::kOneLine);
  for (const Placements& placements : list) {
    if (placements.empty()) {
      writer.null();
      continue;
    }
    writer.begin_array(JsonWriter::kOneLine);
    for (const Placement& placement : placements) writer.value(to_string(placement));
    writer.end_array();
  }
  writer.end_array();
}

void write_alternatives(JsonWriter& writer, const std::vector<Alternative>& alternatives) {
  writer.key("alternatives");
  writer.begin_array();
  for (const Alternative& each : alternatives) {
    writer.begin_object(JsonWriter::kOneLine);
    writer.member("strategy", each.label);
    write_placements(writer, "inputs", each.inputs);
    write_placements(writer, "outputs", each.outputs);
    writer.member("chosen", each.chosen);
    writer.member("constrained", each.constrained);
    write_consequence(writer, "rest_fixed", each.alone);
    write_consequence(writer, "neighbours_chosen_anew", each.around);
    writer.end_object();
  }
  writer.end_array();
}

void write_filters(JsonWriter& writer, const FilterCounts& counts) {
  writer.key("filters");
  writer.begin_object(JsonWriter::kOneLine);
  writer.member("all", counts.all);
  writer.member("divisibility", counts.divisibility);
  writer.member("rule", counts.rule);
  writer.member("constraints", counts.constraints);
  writer.key("memory");
  if (counts.memory) {
    writer.value(*counts.memory);
  } else {
    writer.null();
  }
  writer.member("left", counts.left);
  writer.end_object();
}

void write_time(JsonWriter& writer, const char* key, const std::optional<Seconds>& time) {
  writer.key(key);
  if (time) {
    writer.value(time->value);
  } else {
    writer.null();
  }
}

void write_operators(JsonWriter& writer, const Subject& subject, const Explanation& made) {
  writer.key("operators");
  writer.begin_array();
  for (const OperatorRow& row : made.operators) {
    writer.begin_object();
    writer.member("name", row.name);
    writer.member("count", row.count);
    writer.member("type", subject.graph.op(row.sample).type);
    writer.key("cost");
    writer.begin_object(JsonWriter::kOneLine);
    writer.member("forward", row.cost.forward.value);
    writer.member("recompute", row.cost.recompute.value);
    writer.member("backward", row.cost.backward.value);
    writer.member("inside", row.cost.inside.value);
    writer.member("outside", row.cost.outside.value);
    writer.member("update", row.cost.update.value);
    writer.member("objective", row.cost.objective().value);
    writer.end_object();
    write_filters(writer, row.filters);
    if (row.explanation) write_alternatives(writer, row.explanation->alternatives);
    writer.end_object();
  }
  writer.end_array();
}

void write_memory(JsonWriter& writer, const Subject& subject, const Binding& binding) {
  writer.key("memory");
  writer.begin_object();
  writer.member("peak", binding.peak);
  writer.member("limit", binding.limit);
  writer.member("moment", binding.moment);
  writer.member("binds", !binding.prices.empty());
  writer.key("prices");
  writer.begin_array();
  for (const MemoryPrice& price : binding.prices) {
    writer.begin_object(JsonWriter::kOneLine);
    writer.member("moment", price.moment);
    writer.member("seconds_per_gib", price.seconds_per_gib);
    writer.end_object();
  }
  writer.end_array();
  writer.end_object();
  writer.key("constraints");
  writer.begin_array();
  for (const ConstraintPrice& price : binding.constraints) {
    writer.begin_object(JsonWriter::kOneLine);
    writer.member("without", price.where);
    write_time(writer, "objective", price.objective);
    write_time(writer,
               "gain",
               price.objective ? std::optional(*price.objective - *subject.plan.result.objective)
                               : std::nullopt);
    writer.end_object();
  }
  writer.end_array();
}

void write_axes(JsonWriter& writer, const std::vector<AxisRow>& rows) {
  writer.key("axes");
  writer.begin_array();
  for (const AxisRow& row : rows) {
    writer.begin_object();
    writer.key("axes");
    writer.array(row.axes);
    writer.key("level");
    if (row.level) {
      writer.value(*row.level);
    } else {
      writer.null();
    }
    writer.member("objective", row.objective.value);
    writer.member("time", row.time.value);
    writer.member("bytes", row.bytes);
    writer.key("kinds");
    writer.begin_array();
    for (const PlanCostCell& cell : row.kinds) {
      writer.begin_object(JsonWriter::kOneLine);
      writer.member("kind", cost_kind_name(cell.kind));
      writer.member("objective", cell.objective.value);
      writer.member("time", cell.time.value);
      writer.member("bytes", cell.bytes);
      writer.end_object();
    }
    writer.end_array();
    writer.end_object();
  }
  writer.end_array();
}

void write_sensitivity(JsonWriter& writer, const std::vector<Sensitivity>& rows) {
  writer.key("sensitivity");
  writer.begin_array();
  for (const Sensitivity& row : rows) {
    writer.begin_object(JsonWriter::kOneLine);
    writer.member("level", row.level);
    writer.member("bandwidth", row.factor);
    write_time(writer, "this_plan", row.as_planned);
    write_time(writer, "same_mesh", row.same_mesh);
    write_time(writer, "best", row.best);
    writer.key("best_mesh");
    writer.array(row.best_mesh.shape);
    writer.member("stays", row.stays);
    writer.end_object();
  }
  writer.end_array();
}

void write_propagation(JsonWriter& writer,
                       const Subject& subject,
                       const PropagationExplanation& made) {
  const auto axis_name = [&](int axis) {
    return subject.plan.mesh.axes[static_cast<std::size_t>(axis)];
  };
  writer.member("held",
                !made.hold                                    ? "constraints"
                : *made.hold == PropagationHold::kActivations ? "activations"
                                                              : "all");
  writer.key("origin");
  writer.begin_array();
  for (const AxisOrigin& each : made.axes) {
    writer.begin_object();
    writer.member("axis", axis_name(each.axis));
    writer.member("placement", to_string(each.placement));
    writer.member("from", origin_text(each.origin.kind));
    writer.key("steps");
    writer.begin_array();
    for (const PropagationStep& step : each.origin.steps) {
      writer.begin_object(JsonWriter::kOneLine);
      writer.member("operator", subject.graph.op(step.op).name);
      writer.key("tensor");
      if (step.from) {
        writer.value(subject.graph.tensor(*step.from).name);
      } else {
        writer.null();
      }
      writer.end_object();
    }
    writer.end_array();
    writer.key("contested_by");
    writer.begin_array(JsonWriter::kOneLine);
    for (const OperatorId op : each.contested_by) writer.value(subject.graph.op(op).name);
    writer.end_array();
    writer.end_object();
  }
  writer.end_array();
  writer.key("conflicts");
  writer.begin_array();
  for (const ExplainedConflict& each : made.conflicts) {
    writer.begin_object();
    writer.member("operator", subject.graph.op(each.conflict.op).name);
    writer.member("axis", axis_name(each.conflict.axis));
    writer.member("found", claims_text(subject, each.conflict));
    write_alternatives(writer, each.alternatives);
    writer.end_object();
  }
  writer.end_array();
}

void write_wish(JsonWriter& writer, const WishReport& wish) {
  writer.key("why_not");
  writer.begin_object();
  writer.member("wish", wish.text);
  writer.member("possible", wish.plan.has_value());
  if (wish.plan) {
    writer.member("objective", wish.objective.value);
    writer.member("step_time", wish.plan->cost.step_time.value);
    writer.member("peak", wish.plan->memory.peak);
    writer.key("diff");
    write_diff(writer, *wish.diff);
  } else {
    writer.member("reason", wish.reason);
    writer.key("min_memory");
    if (wish.min_memory) {
      writer.value(*wish.min_memory);
    } else {
      writer.null();
    }
  }
  writer.end_object();
}

std::string explanation_json(const Subject& subject, const Explanation& made) {
  JsonWriter writer;
  writer.begin_object();
  writer.member("objective", subject.plan.result.objective->value);
  writer.key("mesh");
  writer.begin_object(JsonWriter::kOneLine);
  writer.key("shape");
  writer.array(subject.plan.mesh.shape);
  writer.key("axes");
  writer.array(subject.plan.mesh.axes);
  writer.end_object();
  write_memory(writer, subject, made.binding);
  if (!made.axes.empty()) write_axes(writer, made.axes);
  if (!made.operators.empty()) write_operators(writer, subject, made);
  if (!made.sensitivity.empty()) write_sensitivity(writer, made.sensitivity);
  if (made.of_tensor) {
    writer.key("tensor");
    writer.begin_object();
    writer.member("name", *made.tensor);
    writer.member("decided", by_text(made.of_tensor->by));
    writer.key("operator");
    if (made.of_tensor->op) {
      writer.value(subject.graph.op(*made.of_tensor->op).name);
    } else {
      writer.null();
    }
    write_alternatives(writer, made.of_tensor->alternatives);
    if (made.propagation) write_propagation(writer, subject, *made.propagation);
    writer.end_object();
  }
  if (made.wish) write_wish(writer, *made.wish);
  writer.end_object();
  return std::move(writer).text();
}

// ---- The command --------------------------------------------------------------------------------

Result<void> explain_scope(Subject& subject, const std::string& text, Explanation& made) {
  auto pattern = ScopePattern::parse(text);
  if (!pattern) return usage("--scope", pattern.error().message);
  made.operators = operator_rows(subject, [&](const Operator& op) {
    return pattern->instance_in(op.scope.empty() ? op.name : op.scope).has_value();
  });
  if (made.operators.empty()) {
    std::vector<std::string> scopes;
    for (const Operator& op : subject.graph.operators) {
      if (!op.scope.empty() && (scopes.empty() || scopes.back() != op.scope))
        scopes.push_back(op.scope);
    }
    return usage("--scope",
                 "no operator lies in a scope that matches " + meshplan::quoted(text) +
                     nearest_name_hint(text, scopes));
  }
  const bool prove = can_try_all(subject, made.operators);
  for (OperatorRow& row : made.operators) {
    row.explanation = subject.explainer->explain(row.sample, prove);
    row.filters = row.explanation->filters;
  }
  return {};
}

Result<Explanation> explain(Subject& subject, const ExplainCommandOptions& options) {
  Explanation made;
  if (!options.why_not.empty()) {
    auto wish = explain_wish(subject, options.why_not);
    if (!wish) return fail(wish.error());
    made.wish = std::move(*wish);
  }
  const bool selected =
      !options.op.empty() || !options.tensor.empty() || !options.scope.empty() || made.wish;
  if (!options.op.empty()) {
    auto id = find_operator(subject, options.op);
    if (!id) return fail(id.error());
    OperatorRow row;
    row.name = options.op;
    row.sample = *id;
    row.cost = subject.explainer->cost_of(*id);
    row.explanation = subject.explainer->explain(*id, true);
    row.filters = row.explanation->filters;
    made.operators.push_back(std::move(row));
  } else if (!options.tensor.empty()) {
    auto id = find_tensor(subject, options.tensor);
    if (!id) return fail(id.error());
    made.tensor = options.tensor;
    made.of_tensor = subject.explainer->explain(*id);
    if (subject.plan.options.search == "propagation") {
      std::string name = "cost";
      const auto given = subject.plan.options.others.find("policy");
      if (given != subject.plan.options.others.end()) {
        if (const auto* text = std::get_if<std::string>(&given->second)) name = *text;
      }
      const auto policy = parse_propagation_policy(name);
      if (!policy)
        return fail(ErrorCode::kValue,
                    input_name(options.plan) + ": /options/policy",
                    meshplan::quoted(name) + " is no policy; expected \"cost\" or \"rules\"");
      auto propagation =
          explain_propagation(*subject.explainer, subject.plan, subject.constraints, *policy, *id);
      if (!propagation) return fail(propagation.error());
      made.propagation = std::move(*propagation);
    }
  } else if (!options.scope.empty()) {
    if (auto done = explain_scope(subject, options.scope, made); !done) return fail(done.error());
  }
  made.binding = subject.explainer->binding(selected ? 0 : kMostConstraints);
  if (selected) return made;
  made.axes = axis_rows(subject);
  made.operators = operator_rows(subject, [](const Operator&) { return true; });
  add_filters(subject, made.operators);
  if (can_try_all(subject, made.operators)) {
    for (OperatorRow& row : made.operators) {
      row.explanation = subject.explainer->explain(row.sample, true);
      row.filters = row.explanation->filters;
    }
  } else {
    subject.notes.emplace_back(
        "alternatives and what memory excludes take --operator, --tensor or --scope: there are too "
        "many to try all");
  }
  made.sensitivity = subject.explainer->sensitivity();
  return made;
}

int run_explain(const ExplainCommandOptions& options, const CommonOptions& common) {
  const int chosen = (options.op.empty() ? 0 : 1) + (options.tensor.empty() ? 0 : 1) +
                     (options.scope.empty() ? 0 : 1);
  if (chosen > 1) {
    return report({ErrorCode::kUsage,
                   options.op.empty() ? "--scope" : "--operator",
                   "give one of --operator, --tensor and --scope"});
  }
  if (auto done = check_inputs(
          std::vector{options.plan, options.graph, options.cluster, options.constraints});
      !done)
    return report(done.error());
  bool rejected = false;
  auto subject = [&] {
    const ProgressLine line(common, "checking the plan and finding its tables");
    return read_subject(options, common, rejected);
  }();
  if (!subject) {
    const int code = report(subject.error());
    return rejected ? kRejected : code;
  }
  auto made = [&] {
    const ProgressLine line(common, "trying alternatives");
    return explain(**subject, options);
  }();
  if (!made) return report(made.error());
  std::string shown;
  if (common.format == "json") {
    shown = explanation_json(**subject, *made);
  } else {
    const Summary summary = summarise(**subject, *made);
    shown = common.format == "markdown" ? summary_markdown(summary) : summary_text(summary);
  }
  if (auto done = write_output(common.output, shown); !done) return report(done.error());
  return kDone;
}

}  // namespace

RunCommand define_explain(CLI::App& app, CommonOptions& common) {
  auto options = std::make_shared<ExplainCommandOptions>();
  app.add_option("PLAN", options->plan, "Plan, meshplan.plan/1.0 (\"-\": standard input)")
      ->required();
  app.add_option("--graph", options->graph, "The graph that it plans")->required()->type_name("G");
  app.add_option("--cluster", options->cluster, "Cluster file, or the name of a shipped one")
      ->required()
      ->type_name("C");
  app.add_option("--operator", options->op, "Every strategy of this operator, and what it costs")
      ->type_name("X");
  app.add_option("--tensor", options->tensor, "Every placement of this tensor, and what it costs")
      ->type_name("T");
  app.add_option("--scope",
                 options->scope,
                 "The best alternative of each operator in these scopes, e.g. \"layers.*.mlp\"")
      ->type_name("S");
  app.add_option("--why-not",
                 options->why_not,
                 "What it would cost, and change elsewhere, if this tensor (or the first result of "
                 "this operator) lay so; \"*\" leaves an axis free")
      ->type_name("\"T=S(0),R\"");
  app.add_option("--constraints",
                 options->constraints,
                 "The constraints that the plan was made under, where their file has moved")
      ->type_name("FILE");
  refuse_empty_values(app);
  return [options, &common] { return run_explain(*options, common); };
}

}  // namespace meshplan

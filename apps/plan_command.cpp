// SPDX-License-Identifier: Apache-2.0
// meshplan plan GRAPH: graph + cluster -> plan.
#include "apps/plan_command.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <spdlog/spdlog.h>

#include "apps/cluster_reader.h"
#include "apps/command.h"
#include "apps/constraints_reader.h"
#include "apps/search_control.h"
#include "apps/search_options.h"
#include "apps/trace_file.h"
#include "graph/graph_document.h"
#include "graph/quantity.h"
#include "lib/device_mesh.h"
#include "lib/nearest_name.h"
#include "plan/build_plan.h"
#include "plan/plan_json.h"
#include "plan/plan_summary.h"
#include "plan/readable.h"
#include "search/axis_roles.h"
#include "search/baselines.h"
#include "search/plan_cost_graph.h"
#include "search/preferred_plan.h"
#include "search/propagation_search.h"
#include "search/sapp_then_exact.h"
#include "search/top_plans.h"

namespace meshplan {
namespace {

constexpr double kMostTolerance = 10;

/// "dp=16,tp=8".
Result<MeshShape> parse_mesh(const std::string& text) {
  MeshShape mesh;
  std::size_t begin = 0;
  while (begin <= text.size()) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string part = text.substr(begin, end - begin);
    const std::size_t equals = part.find('=');
    std::int64_t size = 0;
    const char* number = part.data() + (equals == std::string::npos ? part.size() : equals + 1);
    const auto [rest, status] = std::from_chars(number, part.data() + part.size(), size);
    if (equals == std::string::npos || equals == 0 || status != std::errc() ||
        rest != part.data() + part.size()) {
      return usage(
          "--mesh",
          "\"" + text +
              "\" is no mesh; expected \"auto\", \"all\" or axes with sizes, e.g. dp=16,tp=8");
    }
    mesh.axes.push_back(part.substr(0, equals));
    mesh.shape.push_back(size);
    begin = end + 1;
  }
  return mesh;
}

Result<void> check_mesh(const MeshShape& shape, const Cluster& cluster, const std::string& option) {
  auto mesh = DeviceMesh::make(shape.shape, shape.axes);
  if (!mesh) return usage(option, mesh.error().message);
  if (mesh->size() != cluster.devices()) {
    return usage(option,
                 "the mesh has " + std::to_string(mesh->size()) + " devices, the cluster " +
                     std::to_string(cluster.devices()) + " (see --devices)");
  }
  if (shape.shape.size() > static_cast<std::size_t>(kMostSearchedAxes)) {
    return usage(option,
                 "plans are searched on meshes of at most " + std::to_string(kMostSearchedAxes) +
                     " axes, this one has " + std::to_string(shape.shape.size()));
  }
  return {};
}

/// Everything that a search needs, read and checked.
struct PlanRequest {
  std::vector<Graph> graphs;               ///< one per number of micro-batches
  std::vector<std::int64_t> microbatches;  ///< ascending
  Cluster cluster;
  std::optional<Constraints> constraints;
  std::vector<MeshShape> meshes;
  bool mesh_is_given = false;
  DpOptions dp;
  std::optional<Seconds> time_limit;
  std::optional<Plan> old_plan;  ///< --prefer
  double tolerance = 0.01;
  PropagationPolicy policy = PropagationPolicy::kCost;
  SappRounds sapp = SappRounds::kExact;
};

// ---- Ways to search -----------------------------------------------------------------------------

/// What a search found, and what is needed to search near it and to describe it.
struct SearchAnswer {
  std::variant<std::vector<DpResult>, NoPlan> found;
  RestrictionsOf restrictions;
  /// Sets where placements come from, for a search that knows more than constraints and costs.
  std::function<void(DpResult&, PlanContext&)> explain;
  std::vector<std::string> notes;
};

using Search = Result<SearchAnswer> (*)(std::size_t count,
                                        const PlanRequest& request,
                                        const std::vector<DpJob>& jobs);

Result<SearchAnswer> search_exactly(std::size_t count,
                                    const PlanRequest& request,
                                    const std::vector<DpJob>& jobs) {
  SearchAnswer answer;
  answer.restrictions = restrictions_of(request.constraints);
  auto found =
      top_plans(count, jobs, request.cluster, request.meshes, request.dp, answer.restrictions);
  if (!found)
    return fail(name_clash(
        found.error(), jobs, request.cluster, request.meshes, request.dp, request.constraints));
  answer.found = std::move(*found);
  return answer;
}

Result<SearchAnswer> search_with_sapp(std::size_t count,
                                      const PlanRequest& request,
                                      const std::vector<DpJob>& jobs,
                                      bool then_exact) {
  SearchAnswer answer;
  answer.restrictions = restrictions_of(request.constraints);
  SappOptions options{request.dp, request.sapp, std::nullopt};
  if (request.mesh_is_given) options.mesh = request.meshes.front();
  auto outcome =
      then_exact ? sapp_then_exact(
                       count, jobs, request.cluster, request.meshes, options, answer.restrictions)
                 : sapp_or_exact(
                       count, jobs, request.cluster, request.meshes, options, answer.restrictions);
  if (!outcome) return fail(outcome.error());
  answer.found = std::move(outcome->found);
  answer.notes = std::move(outcome->notes);
  return answer;
}

Result<SearchAnswer> search_sapp_alone(std::size_t count,
                                       const PlanRequest& request,
                                       const std::vector<DpJob>& jobs) {
  return search_with_sapp(count, request, jobs, false);
}

Result<SearchAnswer> search_sapp_first(std::size_t count,
                                       const PlanRequest& request,
                                       const std::vector<DpJob>& jobs) {
  return search_with_sapp(count, request, jobs, true);
}

Result<SearchAnswer> search_by_propagation(std::size_t count,
                                           const PlanRequest& request,
                                           const std::vector<DpJob>& jobs) {
  auto outcome = propagation_search(count,
                                    jobs,
                                    request.cluster,
                                    request.meshes,
                                    request.dp,
                                    request.constraints,
                                    request.policy);
  if (!outcome) return fail(outcome.error());
  SearchAnswer answer;
  answer.found = std::move(outcome->found);
  if (auto* const plans = std::get_if<std::vector<DpResult>>(&answer.found)) {
    for (DpResult& plan : *plans) plan.found_by = "propagation";
  }
  answer.restrictions = std::move(outcome->restrictions);
  if (!outcome->hold) {
    answer.notes.emplace_back(
        outcome->by_price
            ? "what propagation found makes plans at least 1 % dearer; only the constraints were "
              "kept"
            : "no plan that keeps what propagation found fits; only the constraints were kept");
  } else if (*outcome->hold == PropagationHold::kActivations) {
    answer.notes.emplace_back(
        "operators need not read the constrained parameters as they rest: gathering them is "
        "cheaper");
  }
  const PropagationHold hold = outcome->hold.value_or(PropagationHold::kAll);
  answer.explain = [&request, hold](DpResult& found, PlanContext& context) {
    auto propagation =
        propagate(*found.book, found.mesh, request.constraints, request.policy, hold);
    if (!propagation) return;
    context.reason = [propagation = std::move(*propagation), axes = context.axes](
                         TensorId tensor, const Placements& placements) {
      return propagation->reason(tensor, placements, axes);
    };
  };
  return answer;
}

/// The ways of --search, one row each. `decides`: the search behind "nothing fits"; `proves`: lower
/// bounds hold for all plans that keep the constraints.
struct SearchRow {
  const char* name;
  const char* decides;
  bool proves;
  Search run;
};

constexpr SearchRow kSearches[] = {
    {"auto", "dp", true, search_sapp_first},
    {"dp", "dp", true, search_exactly},
    {"propagation", "propagation", false, search_by_propagation},
    {"sapp", "dp", true, search_sapp_alone},
};

/// "auto|dp|...".
std::string search_names() {
  std::string names;
  for (const SearchRow& row : kSearches)
    names += (names.empty() ? "" : "|") + std::string(row.name);
  return names;
}

const SearchRow* search_named(const std::string& name) {
  const auto* const found = std::find_if(std::begin(kSearches),
                                         std::end(kSearches),
                                         [&](const SearchRow& row) { return name == row.name; });
  return found == std::end(kSearches) ? nullptr : found;
}

/// Where the plan, the cost graph and the trace go: each to a place of its own.
Result<void> check_plan_outputs(const PlanCommandOptions& options, const CommonOptions& common) {
  const OutputFile outputs[] = {{"-o", common.output},
                                {"--dump-cost-graph", options.cost_graph_file},
                                {"--trace", options.trace}};
  // an earlier plan (--prefer) may be replaced by what comes of it
  const std::string inputs[] = {options.graph, options.cluster, options.constraints};
  if (auto done = check_outputs(outputs, inputs); !done) return fail(done.error());
  if (options.cost_graph_file.empty() && options.cost_graph_format_given)
    return usage("--cost-graph-format",
                 "says how to write what --dump-cost-graph, not given, writes");
  for (const OutputFile& output : outputs) {
    if (output.option != "-o" && output.path == "-" && common.format != "text")
      return usage(output.option,
                   "standard output has the plan (--format " + common.format + "); give a file");
  }
  return {};
}

/// --prefer and --tolerance.
Result<void> check_preference(const PlanCommandOptions& options, double& tolerance) {
  if (!options.tolerance.empty()) {
    if (options.prefer.empty())
      return usage("--tolerance", "says how much --prefer may cost; --prefer is not given");
    auto ratio = parse_quantity(options.tolerance, Unit::kRatio);
    if (!ratio || !(*ratio >= 0 && *ratio <= kMostTolerance))
      return usage(
          "--tolerance",
          "\"" + options.tolerance + "\": expected a fraction from 0 to 10, e.g. 1% or 0.01");
    tolerance = *ratio;
  }
  if (!options.prefer.empty() && options.top > 1)
    return usage("--prefer", "is about one plan; it cannot be given together with --top");
  return {};
}

Result<PlanRequest> read_request(const PlanCommandOptions& options, const CommonOptions& common) {
  if (auto done = check_inputs(
          std::vector{options.graph, options.cluster, options.constraints, options.prefer});
      !done)
    return fail(done.error());
  PlanRequest request;
  auto cluster = load_cluster(options.cluster);
  if (cluster && options.devices) cluster = cluster->resized(*options.devices);
  if (!cluster) return fail(cluster.error());
  request.cluster = std::move(*cluster);
  if (options.mesh != "auto" && options.mesh != "all") {
    auto mesh = parse_mesh(options.mesh);
    if (!mesh) return fail(mesh.error());
    if (auto done = check_mesh(*mesh, request.cluster, "--mesh"); !done) return fail(done.error());
    request.meshes = {std::move(*mesh)};
    request.mesh_is_given = true;
  }
  request.dp.prices.optimizer = *parse_optimizer(options.optimizer);
  request.dp.prices.overlap = request.cluster.efficiency.overlap;
  const auto overlap = parse_overlap(options.overlap);
  if (!overlap) return fail(overlap.error());
  apply(*overlap, request.dp.prices.overlap);
  request.dp.memory_limit = request.cluster.plan_memory();
  if (!options.memory_limit.empty()) {
    auto limit = parse_bytes(options.memory_limit);
    if (!limit) return usage("--memory-limit", limit.error().message);
    request.dp.memory_limit = *limit;
  }
  if (!options.time_limit.empty()) {
    auto limit = parse_quantity(options.time_limit, Unit::kSeconds);
    if (!limit || !(*limit > 0))
      return usage("--time-limit",
                   "\"" + options.time_limit + "\": expected a time above 0, e.g. 30 or 2min");
    request.time_limit = Seconds{*limit};
  }
  if (auto done = check_preference(options, request.tolerance); !done) return fail(done.error());
  if (!options.policy.empty()) {
    if (options.search != "propagation")
      return usage("--policy", "says how --search propagation decides; another search is given");
    const auto policy = parse_propagation_policy(options.policy);
    if (!policy)
      return usage("--policy", "\"" + options.policy + "\": expected \"cost\" or \"rules\"");
    request.policy = *policy;
  }
  if (!options.sapp.empty()) {
    if (options.search != "sapp" && options.search != "auto")
      return usage("--sapp", "says how --search sapp decides; another search is given");
    if (options.sapp != "exact" && options.sapp != "greedy")
      return usage("--sapp", "\"" + options.sapp + "\": expected \"exact\" or \"greedy\"");
    if (options.sapp == "greedy") request.sapp = SappRounds::kGreedy;
  }
  if (auto done = check_plan_outputs(options, common); !done) return fail(done.error());
  request.dp.threads = threads_of(common);

  auto text = read_file(options.graph);
  if (!text) return fail(text.error());
  auto document = read_graph_document(*text, input_name(options.graph));
  if (!document) return fail(document.error());
  auto counts = parse_microbatches(options.microbatches, *document);
  if (!counts) return fail(counts.error());
  request.microbatches = std::move(*counts);
  for (const std::int64_t count : request.microbatches) {
    auto graph = resolve(
        *document, {options.mode == "training", count, options.unknown_operators == "replicate"});
    if (!graph) return fail(graph.error());
    request.graphs.push_back(std::move(*graph));
  }
  if (auto done = check_has_operators(request.graphs.front(), input_name(options.graph)); !done)
    return fail(done.error());

  if (!options.prefer.empty()) {
    auto old_text = read_file(options.prefer);
    if (!old_text) return fail(old_text.error());
    auto old_plan = read_plan(*old_text, input_name(options.prefer));
    if (!old_plan) return fail(old_plan.error());
    if (old_plan->operators.empty())
      return fail(ErrorCode::kValue,
                  input_name(options.prefer) + ": /operators",
                  "the plan has no operators, so there is nothing to keep of it");
    request.old_plan = std::move(*old_plan);
  }
  auto constraints = find_constraints(options.constraints, *document, request.graphs.front());
  if (!constraints) return fail(constraints.error());
  if (*constraints) {
    if (const auto& own = (*constraints)->mesh; own && !request.mesh_is_given) {
      const MeshShape mesh{own->shape, own->axes};
      if (auto done = check_mesh(mesh, request.cluster, (*constraints)->file + ": /mesh"); !done)
        return fail(ErrorCode::kConflict, done.error().where, done.error().message);
      request.meshes = {mesh};
      request.mesh_is_given = true;
    }
    request.constraints = std::move(*constraints);
  }
  if (!request.mesh_is_given) {
    request.meshes = all_meshes(request.cluster);
    request.dp.bound_first = options.mesh != "all";
  }
  RecomputeScopes scopes;
  if (request.constraints) {
    auto made = recompute_scopes(*request.constraints, request.graphs.front());
    if (!made) return fail(made.error());
    scopes = std::move(*made);
  }
  auto recomputation =
      find_recomputation(request.graphs.front(), *parse_recompute(options.recompute), scopes);
  if (!recomputation)
    return fail(recomputation.error().code, "--recompute", recomputation.error().message);
  request.dp.prices.recomputation = std::move(*recomputation);
  return request;
}

PlanOptions plan_options(const PlanCommandOptions& options,
                         const PlanRequest& request,
                         std::int64_t microbatches,
                         const CommonOptions& common) {
  PlanOptions made;
  made.search = options.search;
  made.mode = options.mode;
  made.optimizer = options.optimizer;
  made.microbatches = microbatches;
  made.recompute = options.recompute;
  const Overlap& overlap = request.dp.prices.overlap;
  made.overlap = {{"gradient", overlap.gradient},
                  {"gather", overlap.gather},
                  {"ring", overlap.ring},
                  {"activation", overlap.activation},
                  {"expert", overlap.expert}};
  made.seed = common.seed;
  if (options.microbatches == "auto") made.others["microbatches_auto"] = true;
  made.others["mesh"] = options.mesh;
  if (options.devices) made.others["devices"] = *options.devices;
  if (!options.memory_limit.empty()) made.others["memory_limit"] = request.dp.memory_limit;
  if (!options.constraints.empty()) made.others["constraints"] = options.constraints;
  if (options.search == "propagation")
    made.others["policy"] = options.policy.empty() ? "cost" : options.policy;
  if (request.sapp == SappRounds::kGreedy) made.others["sapp"] = options.sapp;
  if (options.unknown_operators != "error")
    made.others["unknown_operators"] = options.unknown_operators;
  if (!options.baselines.empty()) made.others["baseline"] = options.baselines;
  if (options.top > 1) made.others["top"] = options.top;
  if (request.time_limit) made.others["time_limit"] = request.time_limit->value;
  if (request.old_plan) {
    made.others["prefer"] = options.prefer;
    made.others["tolerance"] = request.tolerance;
  }
  return made;
}

/// Reports why nothing fits and what would help; exit code 4.
int report_no_plan(const NoPlan& none,
                   const PlanRequest& request,
                   const PlanCommandOptions& options,
                   const CommonOptions& common) {
  const Bytes limit = request.dp.memory_limit;
  const bool proven = none.min_memory > 0;
  std::string message =
      none.stopped
          ? "the search was stopped before it found a plan, and what is simple does not fit "
            "the memory limit of "
      : proven ? "no plan fits the memory limit of "
               : "no plan was found that fits the memory limit of ";
  message += readable_bytes(limit) + " per device";
  if (proven) {
    message += ": at the tightest moment, " + none.moment + ", every plan needs at least " +
               readable_bytes(none.min_memory) + ", " + readable_bytes(none.min_memory - limit) +
               " more";
  } else if (none.least_peak > limit) {
    message += ": the lightest that was tried needs " + readable_bytes(none.least_peak) + " at " +
               none.moment + ", " + readable_bytes(none.least_peak - limit) +
               " more; that there is none is not proven";
  }
  message += none.stopped ? ". What would help: more time, " : ". What would help: ";
  message += "more devices (--devices), smaller micro-batches (--microbatches), ";
  if (options.mode == "training" && options.recompute != "full")
    message += "recomputation (--recompute full), ";
  message += "a smaller optimizer state (--optimizer)";
  report({ErrorCode::kConflict, "", message});
  if (common.format == "json") {
    PlanContext context;
    context.version = MESHPLAN_VERSION;
    context.options = plan_options(options, request, request.microbatches.front(), common);
    context.memory_limit = limit;
    context.result.found_by = search_named(options.search)->decides;
    context.result.status = PlanStatus::kInfeasible;
    if (proven) context.result.min_memory = none.min_memory;
    Plan plan = infeasible_plan(request.graphs.front(), request.cluster, context);
    plan.mesh.shape = none.mesh.shape;
    plan.mesh.axes = none.mesh.axes;
    plan.memory.moment = none.moment;
    if (!proven) plan.notes.push_back(message);
    if (auto done = write_output("", write_plan(plan)); !done) return report(done.error());
  }
  return kNoPlan;
}

/// Of the micro-batches that the plan has.
PlanBaseline baseline_of(const std::string& name, const PlanRequest& request, std::size_t job) {
  PlanBaseline made;
  made.name = name;
  DpOptions options = request.dp;
  options.prices.microbatches = request.microbatches[job];
  auto price = price_baseline(name, request.graphs[job], request.cluster, request.meshes, options);
  if (!price) {
    made.fits = false;
    made.note = price.error().message;
    return made;
  }
  made.objective = price->objective;
  made.step_time = price->step_time;
  made.peak_memory = price->peak;
  made.fits = price->fits;
  made.note = "mesh";
  for (std::size_t axis = 0; axis < price->mesh.shape.size(); ++axis)
    made.note += (axis == 0 ? " " : "x") + std::to_string(price->mesh.shape[axis]);
  return made;
}

/// The plan of a result; the cheapest one (`is_best`) alone bears the bound and the baselines. With
/// `old_names` axes are named as in the plan of --prefer.
Plan plan_of(DpResult& found,
             bool is_best,
             const SearchAnswer& answer,
             const PlanRequest& request,
             const PlanCommandOptions& options,
             const CommonOptions& common,
             bool old_names = false) {
  PlanContext context;
  context.version = MESHPLAN_VERSION;
  context.options = plan_options(options, request, request.microbatches[found.job], common);
  context.memory_limit = request.dp.memory_limit;
  context.result.found_by = found.found_by;
  const double objective = found.evaluation.objective.value;
  context.roles = axis_roles(*found.book, found.assignment);
  context.axes = old_names               ? request.old_plan->mesh.axes
                 : request.mesh_is_given ? found.mesh.axes
                                         : axis_names(context.roles);
  context.result.status = found.optimal ? PlanStatus::kOptimal : PlanStatus::kFeasible;
  context.result.objective = found.evaluation.objective;
  const bool is_bounded = found.lower_bound > 0 || (found.found_by == "dp" && !found.stopped);
  if (is_best && is_bounded && search_named(options.search)->proves) {
    context.result.lower_bound = Seconds{found.lower_bound};
    context.result.gap = objective > 0 ? (objective - found.lower_bound) / objective : 0.0;
  }
  if (request.constraints) {
    auto mesh = DeviceMesh::make(found.mesh.shape, found.mesh.axes);
    auto bound = bind_constraints(*request.constraints, request.graphs[found.job], *mesh);
    for (const auto& [tensor, choices] : bound->tensors) context.constrained.insert(tensor);
  }
  if (answer.explain) answer.explain(found, context);
  Plan plan = build_plan(*found.book, found.assignment, found.evaluation, context);
  plan.notes.insert(plan.notes.end(), answer.notes.begin(), answer.notes.end());
  if (found.stopped)
    plan.notes.emplace_back("the search was stopped early; a better plan may exist");
  if (is_best) {
    for (const std::string& name : options.baselines)
      plan.baselines.push_back(baseline_of(name, request, found.job));
  }
  return plan;
}

/// --prefer: the plan near `best` that keeps the most of the old one.
Preferred prefer_old_plan(const PlanRequest& request,
                          const std::vector<DpJob>& jobs,
                          DpResult& best,
                          const RestrictionsOf& restrictions) {
  const EarlierChoices earlier(*request.old_plan);
  const auto same =
      std::find_if(request.meshes.begin(), request.meshes.end(), [&](const MeshShape& mesh) {
        return earlier.same_mesh(mesh.shape);
      });
  std::optional<MeshShape> mesh;
  if (same != request.meshes.end()) {
    mesh = *same;
  } else if (!request.mesh_is_given) {  // one that is not searched, with an axis of size 1
    const PlanMesh& old = request.old_plan->mesh;
    const MeshShape shape{old.shape, old.axes};
    if (check_mesh(shape, request.cluster, "--prefer")) mesh = shape;
  }
  return prefer_choices(
      earlier, request.tolerance, best, jobs, request.cluster, mesh, request.dp, restrictions);
}

Plan preferred_plan_of(Preferred& preferred,
                       DpResult& best,
                       const SearchAnswer& answer,
                       const PlanRequest& request,
                       const PlanCommandOptions& options,
                       const CommonOptions& common) {
  DpResult& found = preferred.plan ? *preferred.plan : best;
  // the old plan's names say what its placements say
  const bool old_names =
      !request.mesh_is_given && EarlierChoices(*request.old_plan).same_mesh(found.mesh.shape);
  Plan plan = plan_of(found, true, answer, request, options, common, old_names);
  plan.preference = {request.tolerance,
                     best.evaluation.objective,
                     static_cast<std::int64_t>(preferred.known.operators),
                     static_cast<std::int64_t>(preferred.kept.operators),
                     static_cast<std::int64_t>(preferred.known.parameters),
                     static_cast<std::int64_t>(preferred.kept.parameters)};
  if (!preferred.note.empty()) plan.notes.push_back(preferred.note);
  return plan;
}

/// --dump-cost-graph: the whole problem of the one mesh and number of micro-batches.
Result<void> dump_cost_graph(const PlanCommandOptions& options,
                             const PlanRequest& request,
                             const RestrictionsOf& restrictions) {
  if (request.meshes.size() != 1 || request.graphs.size() != 1)
    return usage("--dump-cost-graph",
                 "a cost graph is that of one mesh and one number of micro-batches; give --mesh, "
                 "e.g. dp=4,tp=2");
  const MeshShape& mesh = request.meshes.front();
  PriceOptions prices = request.dp.prices;
  prices.microbatches = request.microbatches.front();
  auto book = PriceBook::make(request.graphs.front(), request.cluster, mesh.shape, prices);
  if (!book) return fail(book.error());
  Restrictions allowed;
  if (restrictions) {
    auto made = restrictions(**book, mesh);
    if (!made) return fail(made.error());
    allowed = std::move(*made);
  }
  const auto graph = plan_cost_graph(**book, allowed, request.dp.memory_limit);
  if (!graph) return fail(graph.error());
  return write_output(options.cost_graph_file,
                      options.cost_graph_format == "lp"        ? write_lp_cost_graph(*graph)
                      : options.cost_graph_format == "contest" ? write_contest_cost_graph(*graph)
                                                               : write_cost_graph(*graph));
}

/// What is returned where the search was stopped before it found a plan: the cheapest
/// data-parallel plan that fits, the constraints' best plan on one mesh.
std::optional<DpResult> plan_without_search(const PlanRequest& request,
                                            const RestrictionsOf& restrictions) {
  const MeshShape& mesh = request.meshes.front();
  DpOptions options = request.dp;
  options.prices.microbatches = request.microbatches.front();
  options.stop = {};
  options.progress = {};
  const Graph& graph = request.graphs.front();
  std::optional<DpResult> best;
  const auto offer = [&](DpResult found) {
    if (!best || found.evaluation.objective < best->evaluation.objective) best = std::move(found);
  };
  if (request.constraints) {
    auto outcome = dp_search(graph, request.cluster, {mesh}, options, restrictions);
    if (outcome && std::holds_alternative<DpResult>(*outcome))
      offer(std::move(std::get<DpResult>(*outcome)));
  } else {
    for (const ParameterAction rest : {ParameterAction::kNone,
                                       ParameterAction::kState,
                                       ParameterAction::kGradient,
                                       ParameterAction::kAll}) {
      const TextbookPlan data{std::vector<AxisRole>(mesh.shape.size(), AxisRole::kData), rest};
      auto found = search_textbook(data, graph, request.cluster, {mesh}, options);
      if (found && found->fits) offer(std::move(found->found));
    }
  }
  if (!best) return std::nullopt;
  best->stopped = true;
  best->optimal = false;
  best->lower_bound = 0;  // of this kind of plans alone
  return best;
}

/// "plan.json" -> "plan.2.json".
std::string numbered(const std::string& path, std::size_t number) {
  const std::filesystem::path whole(path);
  std::filesystem::path name = whole.stem();
  name += "." + std::to_string(number);
  name += whole.extension();
  return (whole.parent_path() / name).string();
}

/// The plans as one JSON list, or one plan as it is.
std::string plans_json(const std::vector<Plan>& plans) {
  if (plans.size() == 1) return write_plan(plans.front());
  std::string text = "[\n";
  for (std::size_t i = 0; i < plans.size(); ++i) {
    std::string plan = write_plan(plans[i]);
    while (!plan.empty() && plan.back() == '\n') plan.pop_back();
    text += plan + (i + 1 < plans.size() ? ",\n" : "\n");
  }
  return text + "]\n";
}

/// What the other plans are, beside the first one.
SummaryTable other_plans_table(const std::vector<Plan>& plans, const std::string& output) {
  SummaryTable table{"Other kinds of plans",
                     {"mesh", "micro-batches", "objective", "against the first", "memory", "file"},
                     {false, true, true, true, true, false},
                     {}};
  const double first = plans.front().result.objective->value;
  for (std::size_t i = 1; i < plans.size(); ++i) {
    const double objective = plans[i].result.objective->value;
    table.rows.push_back({mesh_text(plans[i].mesh),
                          std::to_string(plans[i].options.microbatches),
                          readable_time(*plans[i].result.objective),
                          first > 0 ? "+" + readable_percent(objective / first - 1) : "",
                          readable_bytes(plans[i].memory.peak),
                          output.empty() ? "" : numbered(output, i + 1)});
  }
  return table;
}

int write_plans(const std::vector<Plan>& plans, const CommonOptions& common, bool show) {
  const bool to_file = !common.output.empty() && common.output != "-";
  if (to_file) {
    for (std::size_t i = 0; i < plans.size(); ++i) {
      const std::string file = i == 0 ? common.output : numbered(common.output, i + 1);
      if (auto done = write_output(file, write_plan(plans[i])); !done) return report(done.error());
    }
  }
  if (!show) return kDone;
  std::string shown;
  if (common.format == "json" || (common.format == "text" && common.output == "-")) {
    shown = plans_json(plans);
  } else {
    Summary summary = summarise(plans.front());
    if (plans.size() > 1)
      summary.tables.push_back(other_plans_table(plans, to_file ? common.output : ""));
    shown = common.format == "markdown" ? summary_markdown(summary) : summary_text(summary);
  }
  if (auto done = write_output("", shown); !done) return report(done.error());
  return kDone;
}

int run_plan(const PlanCommandOptions& options, const CommonOptions& common) {
  const auto found = find_plans(options, common);
  if (const int* code = std::get_if<int>(&found)) return *code;
  // a cost graph or a trace on standard output stands there alone
  return write_plans(std::get<std::vector<Plan>>(found),
                     common,
                     options.cost_graph_file != "-" && options.trace != "-");
}

}  // namespace

std::variant<std::vector<Plan>, int> find_plans(const PlanCommandOptions& options,
                                                const CommonOptions& common) {
  auto request = read_request(options, common);
  if (!request) return report(request.error());
  if (!options.cost_graph_file.empty()) {
    if (auto done = dump_cost_graph(options, *request, restrictions_of(request->constraints));
        !done)
      return report(done.error());
  }
  std::vector<DpJob> jobs;
  for (std::size_t i = 0; i < request->graphs.size(); ++i)
    jobs.push_back({&request->graphs[i], request->microbatches[i]});
  std::optional<SearchControl> control(
      std::in_place, request->time_limit, common, "planning the first meshes");
  request->dp.stop = [&] { return control->stop(); };
  request->dp.progress = [&](const DpProgress& progress) {
    if (control->visible()) control->show(progress_text(progress));
  };
  auto answer =
      search_named(options.search)->run(static_cast<std::size_t>(options.top), *request, jobs);
  std::optional<Preferred> preferred;
  if (answer && std::holds_alternative<std::vector<DpResult>>(answer->found) && request->old_plan)
    preferred = prefer_old_plan(*request,
                                jobs,
                                std::get<std::vector<DpResult>>(answer->found).front(),
                                answer->restrictions);
  control.reset();
  request->dp.stop = {};  // baselines are searched to their end
  request->dp.progress = {};
  if (!answer) {
    Error error = answer.error();
    if (error.where.empty()) {
      const bool from_graph = options.constraints.empty() || error.code == ErrorCode::kOverflow ||
                              error.code == ErrorCode::kUnsupported;
      error.where = input_name(from_graph ? options.graph : options.constraints);
    }
    return report(error);
  }
  if (const NoPlan* none = std::get_if<NoPlan>(&answer->found)) {
    std::optional<DpResult> found;
    if (none->stopped) found = plan_without_search(*request, restrictions_of(request->constraints));
    if (!found) return report_no_plan(*none, *request, options, common);
    answer->found.emplace<0>().push_back(std::move(*found));
    answer->explain = {};
  }
  std::vector<Plan> plans;
  DpResult* const first = &std::get<std::vector<DpResult>>(answer->found).front();
  for (DpResult& found : std::get<std::vector<DpResult>>(answer->found)) {
    if (preferred) {
      plans.push_back(preferred_plan_of(*preferred, found, *answer, *request, options, common));
      break;
    }
    plans.push_back(plan_of(found, plans.empty(), *answer, *request, options, common));
  }
  if (!options.trace.empty()) {
    DpResult& traced = preferred && preferred->plan ? *preferred->plan : *first;
    const StepTrace trace = trace_step(*traced.book, traced.assignment);
    if (auto done =
            write_output(options.trace, write_step_trace(trace, *traced.book, plans.front()));
        !done)
      return report(done.error());
  }
  if (plans.size() < static_cast<std::size_t>(options.top))
    plans.front().notes.push_back("kinds of plans found: " + std::to_string(plans.size()) +
                                  " of the " + std::to_string(options.top) + " asked for");
  return plans;
}

RunCommand define_plan(CLI::App& app, CommonOptions& common) {
  auto options = std::make_shared<PlanCommandOptions>();
  app.add_option(
         "GRAPH", options->graph, "Computation graph, meshplan.graph/1.0 (\"-\": standard input)")
      ->required();
  app.add_option("--cluster", options->cluster, "Cluster file, or the name of a shipped one")
      ->required()
      ->type_name("C");
  app.add_option("--devices", options->devices, "Use the cluster with this many devices")
      ->check(CLI::Range(std::int64_t{1}, kMaxDevices))
      ->type_name("N");
  app.add_option("--mesh",
                 options->mesh,
                 "Device mesh, e.g. dp=16,tp=8; auto: the best of up to three axes, alike ones and "
                 "those with a bound above the best plan left out; all: every one searched fully")
      ->type_name("MESH")
      ->capture_default_str();
  app.add_option(
         "--search",
         options->search,
         "Which search: dp is exact; propagation spreads the constraints, and the batch where "
         "there are none; sapp divides the devices step by step, near-linear and without a proof; "
         "auto is sapp for a first answer, then dp")
      ->check([](const std::string& name) {
        return search_named(name) != nullptr ? std::string()
                                             : name + " not in {" + search_names() + "}";
      })
      ->type_name(search_names())
      ->capture_default_str();
  app.add_option("--sapp",
                 options->sapp,
                 "How SAPP decides a round: over all operators at once, or one after another, the "
                 "heavy ones first (default exact)")
      ->check(CLI::IsMember({"exact", "greedy"}))
      ->type_name("exact|greedy");
  app.add_option("--policy",
                 options->policy,
                 "How --search propagation decides where constraints do not: by price, or by size "
                 "and position (default cost)")
      ->check(CLI::IsMember({"cost", "rules"}))
      ->type_name("cost|rules");
  app.add_option("--constraints", options->constraints, "What is fixed, meshplan.constraints/1.0")
      ->type_name("FILE");
  add_step_options(app,
                   {options->mode,
                    options->optimizer,
                    options->microbatches,
                    options->recompute,
                    options->overlap,
                    options->unknown_operators});
  app.add_option("--memory-limit",
                 options->memory_limit,
                 "Memory per device that a plan may use, e.g. 64GiB (default: the device's without "
                 "reserves)")
      ->type_name("SIZE");
  app.add_option("--baseline", options->baselines, "Also price a textbook plan (may be repeated)")
      ->check(CLI::IsMember({"ddp", "zero1", "zero2", "fsdp", "megatron", "megatron-sp"}))
      ->type_name("ddp|zero1|zero2|fsdp|megatron|megatron-sp")
      ->take_all();
  app.add_option("--top",
                 options->top,
                 "So many plans of different kinds (other meshes, other uses of their axes), the "
                 "cheapest first; with -o plan.json the others are plan.2.json, ...")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{100}))
      ->type_name("K")
      ->capture_default_str();
  app.add_option("--prefer",
                 options->prefer,
                 "Keep what an earlier plan of the graph, or of one like it, does where that costs "
                 "little (see --tolerance)")
      ->type_name("OLD");
  app.add_option(
         "--tolerance",
         options->tolerance,
         "How much more than the best plan one that keeps more of --prefer's may cost, e.g. "
         "2% (default 1%)")
      ->type_name("F");
  app.add_option("--time-limit",
                 options->time_limit,
                 "End the search after this time, e.g. 30 (seconds) or 2min, with the best plan so "
                 "far; so does Ctrl-C")
      ->type_name("S");
  app.add_option("--trace",
                 options->trace,
                 "Also write the simulated step of the best plan for chrome://tracing or Perfetto: "
                 "computation and collectives on tracks per network level, memory as a counter")
      ->type_name("FILE");
  app.add_option(
         "--dump-cost-graph",
         options->cost_graph_file,
         "Also write the search's whole problem on the given mesh (meshplan solve reads it)")
      ->type_name("FILE");
  const CLI::Option* const format =
      app.add_option(
             "--cost-graph-format",
             options->cost_graph_format,
             "own: meshplan.cost_graph/1.0; contest: whole numbers, for other solvers; lp: an "
             "integer program")
          ->check(CLI::IsMember({"own", "contest", "lp"}))
          ->type_name("own|contest|lp")
          ->capture_default_str();
  refuse_empty_values(app);
  return [options, &common, format] {
    options->cost_graph_format_given = format->count() > 0;
    return run_plan(*options, common);
  };
}

}  // namespace meshplan

// SPDX-License-Identifier: Apache-2.0
// meshplan diff OLD NEW: what changed between two plans, and is the new one worse than allowed?
#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "apps/cluster_reader.h"
#include "apps/command.h"
#include "apps/plan_command.h"
#include "apps/plan_reader.h"
#include "apps/progress_line.h"
#include "cost_model/price_book.h"
#include "graph/graph_document.h"
#include "graph/json.h"
#include "graph/quantity.h"
#include "lib/text.h"
#include "plan/check_plan.h"
#include "plan/diff_plans.h"
#include "plan/diff_report.h"
#include "plan/plan_json.h"

namespace meshplan {
namespace {

struct DiffCommandOptions {
  std::string before;
  std::string after;
  std::string replan;
  std::string graph;
  std::string cluster;
  std::string constraints;
  std::string max_slowdown = "2%";
  std::string max_memory_growth = "2%";
  std::vector<std::string> ignore;
  std::string junit;
  std::string new_plan;
};

/// "2%" or 0.02. A bare number of 1 or more is refused: it may be meant as a percentage.
Result<double> parse_share(const std::string& option, const std::string& text) {
  const auto share = parse_quantity(text, Unit::kRatio);
  const bool bare = text.find_first_not_of("0123456789.eE+- ") == std::string::npos;
  if (!share || (bare && *share >= 1)) {
    return usage(
        option,
        meshplan::quoted(text) + ": expected a percentage or a fraction below 1, e.g. 2% or 0.02");
  }
  return *share;
}

Result<void> check_arguments(const DiffCommandOptions& options, const CommonOptions& common) {
  if (!options.replan.empty()) {
    if (!options.before.empty())
      return usage("--replan", "takes the place of OLD and NEW; do not give both");
    if (options.graph.empty() || options.cluster.empty())
      return usage("--replan", "needs --graph and --cluster: what is to be planned");
  } else {
    if (options.after.empty())
      return usage("NEW", "expected two plans, or --replan PLAN with --graph and --cluster");
    if (!options.cluster.empty() && options.graph.empty())
      return usage("--cluster", "needs --graph too: what the new plan is checked against");
    if (!options.constraints.empty() || !options.new_plan.empty())
      return usage(options.constraints.empty() ? "--new-plan" : "--constraints",
                   "goes with --replan");
  }
  const auto to_stdout = [](const std::string& path) { return path == "-"; };
  const bool shown = common.output.empty() || to_stdout(common.output);
  if (to_stdout(options.new_plan) + to_stdout(options.junit) + (shown ? 1 : 0) > 1)
    return usage(to_stdout(options.junit) ? "--junit" : "--new-plan",
                 "standard output is taken already; name a file, or one with -o");
  const OutputFile outputs[] = {
      {"-o", common.output}, {"--new-plan", options.new_plan}, {"--junit", options.junit}};
  // the plan of --replan may be replaced by the new one
  const std::string inputs[] = {
      options.before, options.after, options.graph, options.cluster, options.constraints};
  if (auto done = check_outputs(outputs, inputs); !done) return fail(done.error());
  return check_inputs(
      std::vector{options.before, options.after, options.replan, options.graph, options.cluster});
}

Result<DiffOptions> limits_of(const DiffCommandOptions& options) {
  DiffOptions limits;
  auto slowdown = parse_share("--max-slowdown", options.max_slowdown);
  if (!slowdown) return fail(slowdown.error());
  auto growth = parse_share("--max-memory-growth", options.max_memory_growth);
  if (!growth) return fail(growth.error());
  limits.max_slowdown = *slowdown;
  limits.max_memory_growth = *growth;
  for (const std::string& text : options.ignore) {
    auto pattern = ScopePattern::parse(text);
    if (!pattern) return usage("--ignore", pattern.error().message);
    limits.ignore.push_back(std::move(*pattern));
  }
  return limits;
}

std::optional<std::string> text_option(const Plan& plan, const char* name) {
  const auto found = plan.options.others.find(name);
  if (found == plan.options.others.end()) return std::nullopt;
  if (const auto* text = std::get_if<std::string>(&found->second)) return *text;
  if (const auto* number = std::get_if<std::int64_t>(&found->second))
    return std::to_string(*number);
  if (const auto* number = std::get_if<double>(&found->second)) return json_number(*number);
  return std::nullopt;
}

/// The options that a plan was made with. Errors: kValue (an option that no search has), kInput
/// (the constraints are not there any more).
Result<PlanCommandOptions> options_of(const Plan& plan, const DiffCommandOptions& options) {
  PlanCommandOptions made;
  made.graph = options.graph;
  made.cluster = options.cluster;
  made.search = plan.options.search;
  made.mode = plan.options.mode;
  made.optimizer = plan.options.optimizer;
  made.recompute = plan.options.recompute;
  const auto wrong = [&](const char* option, const std::string& value) {
    return fail(ErrorCode::kValue,
                input_name(options.replan) + ": /options/" + option,
                meshplan::quoted(value) + " is nothing that can be planned with");
  };
  if (made.mode != "training" && made.mode != "inference") return wrong("mode", made.mode);
  if (!parse_optimizer(made.optimizer)) return wrong("optimizer", made.optimizer);
  const auto automatic = plan.options.others.find("microbatches_auto");
  made.microbatches =
      automatic != plan.options.others.end() && automatic->second == OptionValue(true)
          ? "auto"
          : std::to_string(plan.options.microbatches);
  for (const auto& [kind, fraction] : plan.options.overlap)
    made.overlap += (made.overlap.empty() ? "" : ",") + kind + "=" + json_number(fraction);
  std::string mesh;
  for (std::size_t i = 0; i < std::min(plan.mesh.axes.size(), plan.mesh.shape.size()); ++i) {
    mesh +=
        (mesh.empty() ? "" : ",") + plan.mesh.axes[i] + "=" + std::to_string(plan.mesh.shape[i]);
  }
  made.mesh = text_option(plan, "mesh").value_or(mesh.empty() ? "auto" : mesh);
  made.memory_limit = text_option(plan, "memory_limit").value_or("");
  made.unknown_operators = text_option(plan, "unknown_operators").value_or("error");
  made.time_limit = text_option(plan, "time_limit").value_or("");
  made.policy = text_option(plan, "policy").value_or("");
  made.sapp = text_option(plan, "sapp").value_or("");
  made.constraints = text_option(plan, "constraints").value_or("");
  if (!options.constraints.empty()) made.constraints = options.constraints;
  const auto devices = plan.options.others.find("devices");
  if (devices != plan.options.others.end()) {
    if (const auto* number = std::get_if<std::int64_t>(&devices->second)) made.devices = *number;
  }
  return made;
}

/// The graph's scopes by operator name.
std::function<std::optional<std::string>(const std::string&)> scopes_of(const Graph& graph) {
  auto scopes = std::make_shared<std::unordered_map<std::string, std::string>>();
  for (const Operator& op : graph.operators) {
    if (!op.scope.empty()) scopes->emplace(op.name, op.scope);
  }
  return [scopes](const std::string& name) -> std::optional<std::string> {
    const auto found = scopes->find(name);
    if (found == scopes->end()) return std::nullopt;
    return found->second;
  };
}

/// The two plans, and what is wrong with the new one.
struct Compared {
  Plan before;
  Plan after;
  std::function<std::optional<std::string>(const std::string&)> scope_of;
  std::vector<Finding> findings;
  bool checked = false;
};

Result<Compared> read_plans(const DiffCommandOptions& options) {
  Compared made;
  auto before = load_plan(options.before);
  if (!before) return fail(before.error());
  made.before = std::move(*before);
  if (options.graph.empty()) {
    auto after = load_plan(options.after);
    if (!after) return fail(after.error());
    made.after = std::move(*after);
    return made;
  }
  auto planned = read_planned_graph(options.after, options.graph);
  if (!planned) return fail(planned.error());
  made.scope_of = scopes_of(planned->graph);
  made.findings = std::move(planned->findings);
  made.after = std::move(planned->plan);
  if (options.cluster.empty()) return made;
  auto cluster = load_cluster(options.cluster);
  if (!cluster) return fail(cluster.error());
  if (made.after.cluster.devices != cluster->devices()) {
    auto resized = cluster->resized(made.after.cluster.devices);
    if (resized) cluster = std::move(resized);
  }
  made.checked = true;
  const auto findings = check_plan(made.after, planned->graph, *cluster);
  made.findings.insert(made.findings.end(), findings.begin(), findings.end());
  return made;
}

/// Plans anew. The exit code where that gave no plan.
Result<std::variant<Compared, int>> replan(const DiffCommandOptions& options,
                                           const CommonOptions& common) {
  Compared made;
  auto before = load_plan(options.replan);
  if (!before) return fail(before.error());
  made.before = std::move(*before);
  auto plan_options = options_of(made.before, options);
  if (!plan_options) return fail(plan_options.error());
  CommonOptions searching = common;
  searching.seed = made.before.options.seed;
  searching.format = "text";
  searching.output.clear();
  auto found = find_plans(*plan_options, searching);
  if (const int* code = std::get_if<int>(&found)) return std::variant<Compared, int>(*code);
  made.after = std::move(std::get<std::vector<Plan>>(found).front());
  // what was only asked for beside the plan is no difference
  for (const char* name : {"baseline", "top"}) {
    made.before.options.others.erase(name);
    made.after.options.others.erase(name);
  }
  if (options.graph != "-") {
    auto text = read_file(options.graph);
    if (!text) return fail(text.error());
    GraphOptions as_planned;
    as_planned.training = made.after.options.mode == "training";
    as_planned.microbatches = made.after.options.microbatches;
    as_planned.replicate_unknown = plan_options->unknown_operators == "replicate";
    if (auto graph = read_graph(*text, input_name(options.graph), as_planned))
      made.scope_of = scopes_of(*graph);
  }
  return std::variant<Compared, int>(std::move(made));
}

/// That the new plan is right is a limit like the others.
void add_validity(const std::vector<Finding>& findings, PlanDiff& diff) {
  DiffLimit valid;
  valid.name = "valid";
  valid.holds = findings.empty();
  valid.message = valid.holds ? "the new plan is right for the graph and the cluster"
                              : "the new plan has " + counted(findings.size(), "difference") +
                                    " to what check derives, the first: " + to_string(findings[0]);
  diff.limits.push_back(std::move(valid));
}

int run_diff(const DiffCommandOptions& options, const CommonOptions& common) {
  if (auto done = check_arguments(options, common); !done) return report(done.error());
  auto limits = limits_of(options);
  if (!limits) return report(limits.error());
  Compared plans;
  if (options.replan.empty()) {
    auto read = [&] {
      const ProgressLine line(common, "reading the plans");
      return read_plans(options);
    }();
    if (!read) return report(read.error());
    plans = std::move(*read);
  } else {
    auto made = replan(options, common);
    if (!made) return report(made.error());
    if (const int* code = std::get_if<int>(&*made)) return *code;
    plans = std::move(std::get<Compared>(*made));
    if (!options.new_plan.empty()) {
      if (auto done = write_output(options.new_plan, write_plan(plans.after)); !done)
        return report(done.error());
    }
  }
  limits->scope_of = plans.scope_of;
  PlanDiff diff = [&] {
    const ProgressLine line(common, "comparing the plans");
    return diff_plans(plans.before, plans.after, *limits);
  }();
  if (plans.checked || !plans.findings.empty()) add_validity(plans.findings, diff);
  if (!options.junit.empty()) {
    if (auto done = write_output(options.junit, diff_junit(diff)); !done)
      return report(done.error());
  }
  std::string shown;
  if (common.format == "json") {
    shown = diff_json(diff);
  } else {
    const Summary summary = summarise(diff);
    shown = common.format == "markdown" ? summary_markdown(summary) : summary_text(summary);
  }
  if (auto done = write_output(common.output, shown); !done) return report(done.error());
  return diff.worse() ? kRejected : kDone;
}

}  // namespace

RunCommand define_diff(CLI::App& app, CommonOptions& common) {
  auto options = std::make_shared<DiffCommandOptions>();
  app.add_option("OLD", options->before, "Plan to compare with (\"-\": standard input)");
  app.add_option("NEW", options->after, "Plan that must not be worse (\"-\": standard input)");
  app.add_option("--replan",
                 options->replan,
                 "Instead of OLD and NEW: plan --graph on --cluster with the options of this plan, "
                 "and compare")
      ->type_name("PLAN");
  app.add_option("--graph",
                 options->graph,
                 "The graph of NEW: names scopes; with --cluster, NEW is checked as well")
      ->type_name("G");
  app.add_option("--cluster", options->cluster, "Cluster file, or the name of a shipped one")
      ->type_name("C");
  app.add_option("--max-slowdown",
                 options->max_slowdown,
                 "By how much step time and objective may grow (a percentage or a fraction)")
      ->type_name("SHARE")
      ->capture_default_str();
  app.add_option("--max-memory-growth",
                 options->max_memory_growth,
                 "By how much the peak of memory may grow (a percentage or a fraction)")
      ->type_name("SHARE")
      ->capture_default_str();
  app.add_option("--ignore",
                 options->ignore,
                 "Do not list changes in this scope or with names that end so, e.g. "
                 "\"layers.*.mlp\", or of \"options.NAME\"; may be repeated")
      ->type_name("PATTERN")
      ->take_all();
  app.add_option("--junit", options->junit, "Also write JUnit XML, one test case per limit")
      ->type_name("FILE");
  app.add_option("--new-plan", options->new_plan, "With --replan: also write the new plan")
      ->type_name("FILE");
  app.add_option("--constraints",
                 options->constraints,
                 "With --replan: the constraints, where their file has moved")
      ->type_name("FILE");
  refuse_empty_values(app);
  return [options, &common] { return run_diff(*options, common); };
}

}  // namespace meshplan

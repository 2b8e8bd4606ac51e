// SPDX-License-Identifier: Apache-2.0
// meshplan solve FILE: a cost graph alone, in our own or the contest's format, to the best
// assignment with a lower bound; --check evaluates an assignment instead.
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <spdlog/spdlog.h>

#include "apps/command.h"
#include "apps/search_control.h"
#include "apps/search_options.h"
#include "graph/json.h"
#include "plan/readable.h"
#include "search/cost_graph.h"
#include "search/cost_graph_solver.h"

namespace meshplan {
namespace {

using Status = CostGraphSolution::Status;

struct SolveCommandOptions {
  std::string file;
  std::string assignment;  ///< --check: a file or the list itself
  double time_limit = 0;   ///< 0: none
  std::int64_t iterations = 0;
};

constexpr std::int64_t kExactInDouble = std::int64_t{1} << 53;

/// A cost as people read it: a whole number, or seconds in our own format.
std::string cost_text(const CostGraph& graph, Int128 cost) {
  if (graph.contest) return to_string(cost);
  return json_number(static_cast<double>(cost) * graph.unit);
}

std::string assignment_text(const CostGraphAssignment& assignment) {
  std::string text = "[";
  for (std::size_t v = 0; v < assignment.size(); ++v)
    text += (v == 0 ? "" : ", ") + std::to_string(assignment[v]);
  return text + "]";
}

/// A whole number; what a double cannot hold is written as text too.
void write_whole(JsonWriter& writer, const std::string& name, Int128 value) {
  const auto low = static_cast<std::int64_t>(value);
  const bool fits = Int128{low} == value;
  if (fits) {
    writer.member(name, low);
  } else {
    writer.member(name, static_cast<double>(value));
  }
  if (value > kExactInDouble || value < -kExactInDouble)
    writer.member(name + "_text", to_string(value));
}

void write_cost(JsonWriter& writer, const CostGraph& graph, const std::string& name, Int128 cost) {
  if (graph.contest) {
    write_whole(writer, name, cost);
  } else {
    writer.member(name, static_cast<double>(cost) * graph.unit);
  }
}

void write_limit(JsonWriter& writer, const CostGraph& graph) {
  if (graph.limit) {
    write_whole(writer, "usage_limit", *graph.limit);
  } else {
    writer.key("usage_limit");
    writer.null();
  }
}

const char* status_name(Status status) {
  switch (status) {
    case Status::kOptimal:
      return "optimal";
    case Status::kFeasible:
      return "feasible";
    case Status::kImpossible:
      return "infeasible";
    case Status::kNothing:
      return "unknown";
  }
  return "unknown";
}

std::string solution_json(const CostGraph& graph, const CostGraphSolution& solution, bool timed) {
  const bool found = !solution.assignment.empty() || graph.nodes.empty();
  JsonWriter writer;
  writer.begin_object();
  writer.member("name", graph.name);
  writer.member("status", status_name(solution.status));
  writer.member("feasible", found);
  const auto null = [&](const char* name) {
    writer.key(name);
    writer.null();
  };
  if (found) {
    write_cost(writer, graph, "cost", solution.evaluation.cost);
  } else {
    null("cost");
  }
  if (solution.lower_bound && solution.status != Status::kImpossible) {
    write_cost(writer, graph, "lower_bound", *solution.lower_bound);
  } else {
    null("lower_bound");
  }
  if (found && solution.lower_bound) {
    writer.member("gap", solution.gap);
  } else {
    null("gap");
  }
  if (found) {
    write_whole(writer, "peak_usage", solution.evaluation.peak_usage);
    writer.member("peak_moment", solution.evaluation.peak_moment);
  } else {
    null("peak_usage");
  }
  write_limit(writer, graph);
  if (solution.least_usage) {
    writer.member("least_usage", *solution.least_usage);
    writer.member("tightest_moment", solution.tightest_moment);
  }
  const CostGraphSolution::Phases& phases = solution.phases;
  writer.key("phases");
  writer.begin_object();
  writer.member("free_nodes", phases.free_nodes);
  writer.member("free_edges", phases.free_edges);
  writer.member("moments", phases.moments);
  writer.member("rounds", phases.rounds);
  writer.member("price_steps", phases.price_steps);
  writer.member("blocks", phases.blocks);
  writer.member("improvements", phases.improvements);
  if (timed) {  // without a time limit the output depends on nothing but the input
    writer.member("reduce_seconds", phases.reduce_seconds);
    if (found) writer.member("first_feasible_seconds", phases.first_feasible_seconds);
    writer.member("total_seconds", phases.search_seconds);
  }
  writer.end_object();
  writer.key("assignment");
  if (found) {
    writer.array(solution.assignment);
  } else {
    writer.null();
  }
  writer.end_object();
  return std::move(writer).text();
}

std::string usage_text(const CostGraph& graph, const CostGraphEvaluation& evaluation) {
  std::string text = to_string(evaluation.peak_usage);
  if (graph.limit) text += " of " + std::to_string(*graph.limit);
  return text + " at moment " + std::to_string(evaluation.peak_moment);
}

std::string graph_text(const CostGraph& graph) {
  return (graph.name.empty() ? std::string("cost graph") : one_line(graph.name)) + ": " +
         readable_count(static_cast<std::int64_t>(graph.nodes.size())) + " nodes, " +
         readable_count(static_cast<std::int64_t>(graph.edges.size())) + " edges\n";
}

std::string solution_text(const CostGraph& graph, const CostGraphSolution& solution) {
  std::string text = graph_text(graph);
  text += "  result       " + std::string(status_name(solution.status)) + "\n";
  text += "  cost         " + cost_text(graph, solution.evaluation.cost) + "\n";
  if (solution.lower_bound) {
    text += "  lower bound  " + cost_text(graph, *solution.lower_bound) + ", gap " +
            readable_percent(solution.gap) + "\n";
  }
  text += "  peak usage   " + usage_text(graph, solution.evaluation) + "\n";
  const CostGraphSolution::Phases& phases = solution.phases;
  text += "  search       " + readable_count(static_cast<std::int64_t>(phases.free_nodes)) +
          " nodes and " + readable_count(static_cast<std::int64_t>(phases.free_edges)) +
          " edges left after reduction, " + readable_count(phases.price_steps) + " price steps, " +
          readable_count(phases.blocks) + " blocks\n";
  return text + assignment_text(solution.assignment) + "\n";
}

int report_nothing(const CostGraph& graph,
                   const CostGraphSolution& solution,
                   const CommonOptions& common,
                   const std::string& file,
                   bool timed) {
  std::string message;
  if (solution.status != Status::kImpossible) {
    message =
        "no assignment within the limit was found in the time or work given, and none is "
        "proven impossible; give more (--time-limit, --iterations)";
  } else if (solution.least_usage) {
    message = "no assignment fits the usage limit of " + std::to_string(*graph.limit) +
              ": around moment " + std::to_string(solution.tightest_moment) +
              ", every assignment uses at least " +
              to_string(static_cast<Int128>(*solution.least_usage)) + ", " +
              to_string(static_cast<Int128>(*solution.least_usage) - *graph.limit) + " more";
  } else if (!graph.limit || solution.no_allowed) {
    message = "every assignment uses a forbidden strategy or pair";
  } else {
    message = "no assignment avoids what is forbidden and fits the usage limit of " +
              std::to_string(*graph.limit) + "; all were searched";
  }
  report({ErrorCode::kConflict, input_name(file), message});
  if (common.format == "json") {
    if (auto done = write_output("", solution_json(graph, solution, timed)); !done)
      return report(done.error());
  }
  return kNoPlan;
}

int run_check(const SolveCommandOptions& options,
              const CostGraph& graph,
              const CommonOptions& common) {
  std::string text = options.assignment;
  std::string name = "--check";
  if (text.empty() || text.front() != '[') {
    auto content = read_file(options.assignment);
    if (!content) return report(content.error());
    text = std::move(*content);
    name = input_name(options.assignment);
  }
  auto assignment = parse_assignment(text, name, graph);
  if (!assignment) return report(assignment.error());
  const CostGraphEvaluation evaluation = evaluate(graph, *assignment);
  std::string shown;
  if (common.format == "json") {
    JsonWriter writer;
    writer.begin_object();
    writer.member("feasible", evaluation.feasible());
    write_cost(writer, graph, "cost", evaluation.cost);
    writer.member("forbidden", evaluation.forbidden);
    write_whole(writer, "peak_usage", evaluation.peak_usage);
    writer.member("peak_moment", evaluation.peak_moment);
    write_limit(writer, graph);
    writer.end_object();
    shown = std::move(writer).text();
  } else {
    shown = graph_text(graph);
    shown +=
        std::string("  result       ") + (evaluation.feasible() ? "feasible" : "infeasible") + "\n";
    shown += "  cost         " + cost_text(graph, evaluation.cost) + "\n";
    shown += "  peak usage   " + usage_text(graph, evaluation) + "\n";
    if (evaluation.forbidden > 0) {
      shown += "  forbidden    " + readable_count(static_cast<std::int64_t>(evaluation.forbidden)) +
               " strategies or pairs, the first: " + evaluation.first_forbidden + "\n";
    }
    if (!evaluation.within_limit) {
      shown += "  over limit   by " + to_string(evaluation.peak_usage - *graph.limit) + "\n";
    }
  }
  if (auto done = write_output(common.output, shown); !done) return report(done.error());
  return evaluation.feasible() ? kDone : kRejected;
}

std::string progress_text(const CostGraph& graph, const CostGraphProgress& progress) {
  std::string line = "solving";
  if (progress.cost) line += ", cost " + cost_text(graph, static_cast<Int128>(*progress.cost));
  if (progress.lower_bound)
    line += ", bound " + cost_text(graph, static_cast<Int128>(*progress.lower_bound));
  if (progress.cost && progress.lower_bound && *progress.cost > 0)
    line += ", gap " + readable_percent((*progress.cost - *progress.lower_bound) / *progress.cost);
  return line;
}

int run_solve(const SolveCommandOptions& options, const CommonOptions& common) {
  SolveOptions solve;
  solve.start = SolveOptions::Clock::now();
  if (auto done = check_inputs(std::vector{options.file, options.assignment}); !done)
    return report(done.error());
  auto graph = read_cost_graph(options.file);
  if (!graph) return report(graph.error());
  if (!options.assignment.empty()) return run_check(options, *graph, common);
  spdlog::info("read {} nodes and {} edges in {:.3f} s",
               graph->nodes.size(),
               graph->edges.size(),
               std::chrono::duration<double>(SolveOptions::Clock::now() - solve.start).count());
  const bool timed = options.time_limit > 0;
  if (timed) solve.time_limit = options.time_limit;
  if (options.iterations > 0) solve.iterations = options.iterations;
  solve.iterations_given = options.iterations > 0;
  solve.seed = common.seed;
  solve.threads = threads_of(common);
  const CostGraphSolution solution = [&] {
    // the time limit is the solver's, which counts from before the graph was read
    SearchControl control(std::nullopt, common, "reducing the graph");
    solve.stop = [&] { return control.stop(); };
    if (control.visible())
      solve.progress = [&](const CostGraphProgress& progress) {
        control.show(progress_text(*graph, progress));
      };
    return solve_cost_graph(*graph, solve);
  }();
  const CostGraphSolution::Phases& phases = solution.phases;
  spdlog::info("reduced in {:.3f} s, first assignment after {:.3f} s, ended after {:.3f} s",
               phases.reduce_seconds,
               phases.first_feasible_seconds,
               phases.search_seconds);
  if (solution.status == Status::kImpossible || solution.status == Status::kNothing)
    return report_nothing(*graph, solution, common, options.file, timed);
  const std::string shown = common.format == "json" ? solution_json(*graph, solution, timed)
                                                    : solution_text(*graph, solution);
  if (auto done = write_output(common.output, shown); !done) return report(done.error());
  return kDone;
}

}  // namespace

RunCommand define_solve(CLI::App& app, CommonOptions& common) {
  auto options = std::make_shared<SolveCommandOptions>();
  app.add_option(
         "FILE",
         options->file,
         "Cost graph, meshplan.cost_graph/1.0 or the contest's format, plain or gzip (\"-\": "
         "standard input)")
      ->required();
  app.add_option("--time-limit",
                 options->time_limit,
                 "End after this many seconds, reading included (default: after --iterations)")
      ->check(CLI::Range(0.001, 1e7))
      ->check([](const std::string& text) {
        // a range does not refuse what compares with nothing
        return std::string(std::isnan(std::strtod(text.c_str(), nullptr)) ? "expected a number"
                                                                          : "");
      })
      ->type_name("S");
  app.add_option("--iterations",
                 options->iterations,
                 "End after this many rounds of equal work; without --time-limit the output is the "
                 "same on every machine (default: when rounds bring nothing any more, at most "
                 "1000)")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 40))
      ->type_name("N");
  app.add_option(
         "--check",
         options->assignment,
         "Evaluate this assignment instead: a file, or the list itself; exit 5 if it is not "
         "feasible")
      ->type_name("ASSIGNMENT");
  refuse_empty_values(app);
  return [options, &common] { return run_solve(*options, common); };
}

}  // namespace meshplan

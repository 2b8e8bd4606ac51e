// SPDX-License-Identifier: Apache-2.0
// The table of sub-commands: a new command is one file that defines it and one row here.
#include <vector>

#include "apps/command.h"

namespace meshplan {

RunCommand define_check(CLI::App& app, CommonOptions& common);
RunCommand define_completion(CLI::App& app, CommonOptions& common);
RunCommand define_diff(CLI::App& app, CommonOptions& common);
RunCommand define_explain(CLI::App& app, CommonOptions& common);
RunCommand define_export(CLI::App& app, CommonOptions& common);
RunCommand define_mesh(CLI::App& app, CommonOptions& common);
RunCommand define_redistribute(CLI::App& app, CommonOptions& common);
RunCommand define_import(CLI::App& app, CommonOptions& common);
RunCommand define_man(CLI::App& app, CommonOptions& common);
RunCommand define_plan(CLI::App& app, CommonOptions& common);
RunCommand define_schema(CLI::App& app, CommonOptions& common);
RunCommand define_solve(CLI::App& app, CommonOptions& common);
RunCommand define_verify(CLI::App& app, CommonOptions& common);
RunCommand define_whatif(CLI::App& app, CommonOptions& common);

std::span<const Command> commands() {
  static const std::vector<Command> kCommands = {
      {"plan",
       "Find the best placement of a graph on a cluster",
       "meshplan plan llama2_7b.json --cluster dgx-a100-80g --devices 16",
       define_plan},
      {"check",
       "Check a plan against its graph and cluster, re-deriving everything it says",
       "meshplan check plan.json --graph llama2_7b.json --cluster dgx-a100-80g",
       define_check},
      {"diff",
       "What changed between two plans, and whether the new one is worse than allowed",
       "meshplan diff --replan plan.json --graph new_graph.json --cluster dgx-a100-80g",
       define_diff},
      {"explain",
       "Why a plan is as it is: cost split, alternatives and their cost, what binds",
       "meshplan explain plan.json --graph llama2_7b.json --cluster dgx-a100-80g --why-not "
       "\"lm_head.weight=S(1)\"",
       define_explain},
      {"whatif",
       "Plan the same job on other clusters, device counts, batches, memory sizes, networks",
       "meshplan whatif llama2_7b.json --cluster dgx-a100-80g --cluster dgx-h100 --devices 8..1024 "
       "--plot scaling.svg",
       define_whatif},
      {"verify",
       "Run a plan with real numbers on virtual devices and compare with the unsharded run",
       "meshplan verify plan.json --graph llama2_7b.json",
       define_verify},
      {"export",
       "Write a plan as another tool's input: graph, hyper-parallel, mindspore, dot, csv",
       "meshplan export plan.json --graph llama2_7b.json --to dot -o plan.dot",
       define_export},
      {"mesh",
       "Coordinates, sub-meshes, groups, flattening of a device mesh; layouts of tensors on it",
       "meshplan mesh --mesh dp=2,tp=4 --rank 5 --slice tp",
       define_mesh},
      {"redistribute",
       "The collectives between two placements of one tensor, their bytes and time",
       "meshplan redistribute --mesh dp=2,tp=4 --shape 8,16 --from \"S(0),R\" --to \"R,S(1)\"",
       define_redistribute},
      {"solve",
       "Solve a cost graph alone (own or contest format): best assignment, lower bound, gap",
       "meshplan solve graph.json.gz --time-limit 60",
       define_solve},
      {"import",
       "Turn another tool's description of a model into graph JSON",
       "meshplan import hf config.json --batch 64 --seq 4096 -o model.json",
       define_import},
      {"schema",
       "Print the JSON Schema of a document",
       "meshplan schema graph -o graph.schema.json",
       define_schema},
      {"completion",
       "Print what a shell needs to complete commands, options and values",
       "meshplan completion bash -o meshplan.bash",
       define_completion},
      {"man", "Print the manual page", "meshplan man -o meshplan.1", define_man},
  };
  return kCommands;
}

}  // namespace meshplan

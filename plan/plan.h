// SPDX-License-Identifier: Apache-2.0
// Plan: what was chosen, as plain values. One to one the document meshplan.plan/1.0 (docs/plan.md);
// a search fills it, plan_json.h writes and reads it, check_plan.h re-derives it.
//
// Shapes, local shapes and bytes are those of one micro-batch and one device, as in the document.
// Names are those of the graph document; nothing here points into a Graph, so a plan outlives it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "cost_model/cost_kinds.h"
#include "lib/collective.h"
#include "lib/placement.h"
#include "lib/units.h"

namespace meshplan {

/// What a search found: proven best, some plan, or that none fits the memory limit.
enum class PlanStatus : std::uint8_t { kOptimal, kFeasible, kInfeasible };
/// "optimal", "feasible", "infeasible".
const char* plan_status_name(PlanStatus status);

/// When a collective runs.
enum class Phase : std::uint8_t {
  kForward,    ///< a value or a gathered parameter on its way to its readers
  kBackward,   ///< the gradient of an activation on its way to the producer
  kRegather,   ///< a value or parameter brought back for the backward
  kGradient,   ///< the gradient of a parameter on its way to the optimizer
  kUpdate,     ///< a parameter gathered after the optimizer
  kRecompute,  ///< a value that is made again, on its way to its readers once more
};
/// "forward", "backward", "regather", "gradient", "update", "recompute".
const char* phase_name(Phase phase);

/// How often a redistribution runs: once per optimizer step or once per micro-batch.
enum class Per : std::uint8_t { kMicrobatch, kStep };
/// "microbatch", "step".
const char* per_name(Per per);

/// How a stored operand comes back in the backward.
enum class Saved : std::uint8_t {
  kKept,      ///< stored in the reader's layout
  kGathered,  ///< stored in the layout given, redistributed again (phase regather)
  kComputed,  ///< not stored: its producer runs once more
};
/// "kept", "gathered", "computed".
const char* saved_name(Saved saved);

/// The identity of the graph or cluster that a plan was made for.
struct PlanGraph {
  std::string name;
  std::string fingerprint;  ///< "sha256:..."
  friend bool operator==(const PlanGraph&, const PlanGraph&) = default;
};
struct PlanCluster {
  std::string name;
  std::string fingerprint;  ///< "sha256:..."
  std::int64_t devices = 0;
  friend bool operator==(const PlanCluster&, const PlanCluster&) = default;
};

/// The value of an option without a member of its own: false, 8, 0.01, "auto", ["fsdp", "zero1"].
using OptionValue = std::variant<bool, std::int64_t, double, std::string, std::vector<std::string>>;

/// Every given or defaulted option that can change the plan (never `threads`).
struct PlanOptions {
  std::string search = "auto";      ///< auto, dp, propagation, sapp
  std::string mode = "training";    ///< training, inference
  std::string optimizer = "adamw";  ///< adamw, adam, sgd, momentum, adafactor, none
  std::int64_t microbatches = 1;    ///< with `--microbatches auto`, the number that was chosen
  std::string recompute = "none";   ///< none, selective, selective-op, full
  std::map<std::string, double>
      overlap;  ///< gradient, gather, ring, activation, expert -> fraction
  std::uint64_t seed = 0;
  /// The others under their long name with `_`: "mesh", "memory_limit", "allow_uneven", ...
  /// Only names of plan_option_names() are read back.
  std::map<std::string, OptionValue> others;
  friend bool operator==(const PlanOptions&, const PlanOptions&) = default;
};

/// The device mesh; `axes[0]` is the outermost axis.
struct PlanMesh {
  std::vector<std::int64_t> shape;
  std::vector<std::string> axes;
  /// Per axis what it is used for ("fsdp", "tp", "sp", ...), the most important first; may be
  /// empty.
  std::vector<std::vector<std::string>> roles;
  /// The rank at each position, row-major; empty: 0, 1, 2, ... ("row-major" in the document).
  std::vector<std::int64_t> ranks;
  friend bool operator==(const PlanMesh&, const PlanMesh&) = default;
};

/// A part of the graph on a part of the devices; nullopt means all. One stage today.
struct PlanStage {
  std::optional<std::vector<std::string>> operators;
  std::optional<std::vector<std::int64_t>> devices;
  friend bool operator==(const PlanStage&, const PlanStage&) = default;
};

struct PlanResult {
  PlanStatus status = PlanStatus::kFeasible;
  std::optional<Seconds> objective;    ///< none where infeasible
  std::optional<Seconds> lower_bound;  ///< none where the search proves none
  std::optional<double> gap;           ///< (objective - lower_bound) / objective
  std::string found_by;                ///< "dp", "propagation", "sapp", ...
  std::optional<Bytes> min_memory;     ///< infeasible only: the least that any assignment needs
  friend bool operator==(const PlanResult&, const PlanResult&) = default;
};

/// `--prefer OLD`: how much of an earlier plan this one keeps.
struct PlanPreference {
  double tolerance = 0;  ///< the objective is at most (1 + tolerance) x `best_objective`
  Seconds best_objective;
  std::int64_t operators = 0;  ///< that the earlier plan has, too
  std::int64_t kept_operators = 0;
  std::int64_t parameters = 0;
  std::int64_t kept_parameters = 0;
  friend bool operator==(const PlanPreference&, const PlanPreference&) = default;
};

/// Seconds of one optimizer step (training) or pass (inference), all micro-batches included.
struct PlanCost {
  Seconds step_time;                   ///< of the simulated step
  Seconds compute_time;                ///< sum over operators and optimizer updates
  Seconds communication_time;          ///< sum over collectives, hidden or not
  Seconds exposed_communication_time;  ///< step_time without compute_time
  double tokens_per_second = 0.0;
  double model_flops_utilization = 0.0;  ///< fraction of the devices' peak
  /// The same with what runs twice; where something is recomputed.
  std::optional<double> hardware_flops_utilization;
  std::optional<double> price_per_step;  ///< where the cluster has a price per device and hour
  friend bool operator==(const PlanCost&, const PlanCost&) = default;
};

/// What one kind of work or collective takes per step, on one set of mesh axes.
struct PlanCostCell {
  CostKind kind;
  std::vector<std::string> axes;     ///< none for work without a collective
  std::optional<std::string> level;  ///< the outermost that the groups cross; none for local moves
  Seconds objective;                 ///< the part of the objective
  Seconds time;                      ///< with what is hidden
  Bytes bytes = 0;                   ///< sent by one device
  friend bool operator==(const PlanCostCell&, const PlanCostCell&) = default;
};

/// What a tensor takes of a kind of memory at the fullest moment; of workspace, an operator.
struct PlanMemoryShare {
  std::string name;
  MemoryKind kind = MemoryKind::kParameters;
  Bytes bytes = 0;
  friend bool operator==(const PlanMemoryShare&, const PlanMemoryShare&) = default;
};
/// The order of Plan::at_peak: the largest first, then by name and kind.
bool stands_before(const PlanMemoryShare& a, const PlanMemoryShare& b);

/// Bytes on the fullest device. The seven kinds are those alive at `moment` and add up to `peak`.
struct PlanMemory {
  Bytes peak = 0;
  Bytes limit = 0;
  std::string moment;  ///< "forward of X", "recomputation of X", "backward of X"
  Bytes parameters = 0;
  Bytes gradients = 0;
  Bytes optimizer = 0;
  Bytes activations = 0;
  Bytes gathered = 0;
  Bytes buffers = 0;
  Bytes workspace = 0;
  Bytes seed_formula = 0;  ///< sum of (inputs + outputs + workspace), reported for comparison
  friend bool operator==(const PlanMemory&, const PlanMemory&) = default;
};

/// One layout in which a tensor is stored for the backward.
struct PlanSaved {
  Placements placements;
  std::vector<std::string> readers;  ///< "for": the operators whose backward reads it
  Saved backward = Saved::kKept;
  friend bool operator==(const PlanSaved&, const PlanSaved&) = default;
};

struct PlanTensor {
  std::string name;
  std::vector<std::int64_t> shape;
  std::string dtype;
  Placements placements;  ///< as its producer leaves it; a parameter's between two steps
  /// Per tensor dimension the mesh axes that cut it, outermost first; an axis is counted from the
  /// right (0 = innermost mesh axis). No axis is written -1, one as a number, several as a list.
  std::vector<std::vector<int>> tensor_map;
  std::vector<std::int64_t> local_shape;  ///< of the largest shard
  std::optional<Placements> gradient;     ///< as the producer receives it; parameter: accumulated
  std::optional<Placements> optimizer_state;  ///< trainable parameters in training
  std::optional<Seconds> update_time;         ///< optimizer time of a trainable parameter, per step
  std::vector<PlanSaved> saved;
  std::string reason;  ///< "cost", "constraint", "propagated from X", ...; may be empty
  friend bool operator==(const PlanTensor&, const PlanTensor&) = default;
};

/// Collectives inside an operator (statistics of a norm, ring exchange, ...).
struct PlanCollective {
  Collective collective = Collective::kAllReduce;
  std::vector<std::string> axes;
  Phase phase = Phase::kForward;
  std::int64_t count = 1;  ///< executions per micro-batch
  Bytes bytes = 0;         ///< moved per device in one execution
  Seconds time;            ///< of one execution
  friend bool operator==(const PlanCollective&, const PlanCollective&) = default;
};

struct PlanOperator {
  std::string name;
  std::string type;
  /// Per operand, as the operator reads it; none for an omitted optional operand.
  std::vector<std::optional<Placements>> in_placements;
  std::vector<Placements> out_placements;
  /// Per operand, the number of pieces of each dimension.
  std::vector<std::optional<std::vector<std::int64_t>>> in_strategy;
  bool recompute = false;  ///< runs forward once more before the backward
  Seconds compute_time;    ///< per step: every micro-batch, every run of it
  /// The part of the objective: its computation, collectives inside it, what brings its operands
  /// (where it is their first reader) and takes gradients back, their parameters' updates.
  std::optional<Seconds> objective;
  std::vector<PlanCollective> collectives;
  friend bool operator==(const PlanOperator&, const PlanOperator&) = default;
};

/// One piece of a send_receive: local offsets and sizes per dimension.
struct PlanSend {
  std::int64_t source = 0;  ///< rank
  std::int64_t destination = 0;
  std::vector<std::int64_t> source_begin;
  std::vector<std::int64_t> destination_begin;
  std::vector<std::int64_t> size;
  friend bool operator==(const PlanSend&, const PlanSend&) = default;
};

/// One collective or local move of a redistribution.
struct PlanStep {
  Collective collective = Collective::kAllReduce;
  std::optional<Reduction> reduction;  ///< all_reduce, reduce_scatter and mask
  std::vector<std::string> axes;
  std::optional<int> dim;                                    ///< all_gather, reduce_scatter, slice
  std::optional<int> split_dim;                              ///< all_to_all
  std::optional<int> concat_dim;                             ///< all_to_all
  std::vector<std::pair<std::int64_t, std::int64_t>> pairs;  ///< permute: source, destination
  std::vector<PlanSend> sends;                               ///< send_receive
  Bytes bytes = 0;        ///< moved per device in one execution; 0 for slice and mask
  Seconds time;           ///< of one execution
  Placements placements;  ///< after the step
  friend bool operator==(const PlanStep&, const PlanStep&) = default;
};

/// A reader of a tensor. `operand` is given only where the operator reads the tensor more than
/// once.
struct PlanUse {
  std::string op;
  std::optional<int> operand;
  friend bool operator==(const PlanUse&, const PlanUse&) = default;
};

/// A tensor (or its gradient) on its way between two layouts. What one reader sees is the chain of
/// the entries that name it, in the order of the list.
struct PlanRedistribution {
  std::string tensor;
  std::string producer;            ///< empty for inputs, parameters, constants and states
  std::vector<PlanUse> consumers;  ///< empty: the end of the graph, or every reader (update)
  Phase phase = Phase::kForward;
  Per per = Per::kMicrobatch;
  Placements from;
  Placements to;
  std::vector<PlanStep> steps;
  friend bool operator==(const PlanRedistribution&, const PlanRedistribution&) = default;
};

/// The communication groups of one set of axes, in the order in which all ranks create them.
struct PlanGroup {
  std::vector<std::string> axes;
  std::vector<std::vector<std::int64_t>> ranks;
  friend bool operator==(const PlanGroup&, const PlanGroup&) = default;
};

/// `--baseline NAME`: what a textbook plan would cost on the same evaluator.
struct PlanBaseline {
  std::string name;
  std::optional<Seconds> objective;  ///< none where the pattern cannot be applied
  std::optional<Seconds> step_time;
  std::optional<Bytes> peak_memory;
  bool fits = true;  ///< within the memory limit
  std::string note;  ///< why it cannot be applied, the mesh it was priced on, ...
  friend bool operator==(const PlanBaseline&, const PlanBaseline&) = default;
};

struct Plan {
  std::string generator_version;  ///< of the meshplan that wrote it
  PlanGraph graph;
  PlanCluster cluster;
  PlanOptions options;
  PlanMesh mesh;
  std::vector<PlanStage> stages{PlanStage{}};
  PlanResult result;
  std::optional<PlanPreference> preference;
  PlanCost cost;
  std::vector<PlanCostCell> breakdown;  ///< adds up to the objective; may be left out
  PlanMemory memory;
  std::vector<PlanMemoryShare> at_peak;  ///< add up to the peak; may be left out
  std::vector<PlanTensor> tensors;       ///< in graph order; empty where infeasible
  std::vector<PlanOperator> operators;   ///< in graph order; empty where infeasible
  std::vector<PlanRedistribution> redistributions;
  std::vector<PlanGroup> groups;
  std::vector<PlanBaseline> baselines;
  std::vector<std::string> notes;  ///< what the reader of the plan should know, in sentences
  friend bool operator==(const Plan&, const Plan&) = default;
};

/// The option names that PlanOptions::others may hold, sorted.
const std::vector<std::string>& plan_option_names();

}  // namespace meshplan

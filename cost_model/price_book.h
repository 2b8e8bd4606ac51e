// SPDX-License-Identifier: Apache-2.0
// PriceBook: the price of every single choice of a plan on one mesh: an operator's strategy, a
// transfer between two states, a parameter's way of resting. docs/cost_model.md defines the prices.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "cost_model/cluster.h"
#include "cost_model/collective_model.h"
#include "cost_model/compute_model.h"
#include "cost_model/data_flow.h"
#include "cost_model/inner_exchanges.h"
#include "graph/graph.h"
#include "graph/operator_info.h"
#include "lib/interner.h"
#include "lib/redistribution.h"

namespace meshplan {

enum class Optimizer : std::uint8_t { kAdamW, kAdam, kSgd, kMomentum, kAdafactor, kNone };
std::optional<Optimizer> parse_optimizer(const std::string& name);
/// Bytes of optimizer state per element of a parameter of this type, master copy included.
Bytes optimizer_bytes(Optimizer optimizer, DType parameter);

struct PriceOptions {
  std::int64_t microbatches = 1;
  Optimizer optimizer = Optimizer::kAdamW;
  Overlap overlap;  ///< the cluster's, unless the user says otherwise
  /// Products with a parameter run at the rate of this type, whatever their operands' (fp8 training
  /// casts operands and the result's gradient before each product, which costs a pass over them).
  std::optional<DType> product_dtype;
  Recomputation recomputation;
};

/// A collective inside an operator.
struct InnerCollective {
  Collective collective = Collective::kAllReduce;
  AxisSet axes = 0;
  Pass pass = Pass::kForward;
  std::int64_t count = 1;  ///< per micro-batch
  Bytes moved = 0;         ///< per device in one execution
  Seconds time;            ///< of one execution
  OverlapKind overlap = OverlapKind::kActivation;
};

/// Buffers of an operator's own (Workspace of its rule), in bytes.
struct WorkspaceBytes {
  Bytes forward = 0;
  Bytes kept = 0;
  Bytes backward = 0;
  Bytes most() const { return std::max(forward, backward); }
};

/// One operator with one strategy, one micro-batch.
struct OperatorPrice {
  Seconds forward;    ///< computation, passing Partial on included
  Seconds recompute;  ///< the forward once more, if the operator is recomputed
  Seconds backward;
  Seconds compute() const { return forward + recompute + backward; }
  std::vector<InnerCollective> collectives;
  WorkspaceBytes workspace;
  Bytes touched = 0;  ///< local operands and results
  Seconds objective;  ///< per step: micro-batches x (computation + exposed collectives)
};

/// What one mesh axis does with a parameter that it does not shard for the reader.
enum class ParameterAction : std::uint8_t { kNone, kState, kGradient, kAll };
using ParameterChoice = std::array<ParameterAction, kPlanMeshAxes>;

/// One redistribution of a parameter or its gradient.
struct ParameterMove {
  enum class Kind : std::uint8_t { kForwardGather, kBackwardGather, kGradient, kUpdate };
  Kind kind = Kind::kForwardGather;
  bool per_step = false;
  Placements from;
  Placements to;
  std::vector<RedistributionStep> steps;
  Seconds exposed;  ///< sum over steps of (1 - overlap) x time, per execution
};

/// A parameter in its reader's state with one choice.
struct ParameterPrice {
  Placements rest;
  Placements gradient;  ///< as accumulated
  Placements state;
  std::vector<ParameterMove> moves;
  Seconds update;  ///< optimizer time per step
  Bytes rest_bytes = 0;
  Bytes gradient_bytes = 0;
  Bytes optimizer_bytes = 0;
  Bytes gathered_bytes = 0;  ///< in the reader's layout while it runs; 0 where it rests so
  bool gathered_backward = false;
  Bytes unreduced_bytes = 0;  ///< gradient at the reader's backward before its reduction
  Seconds objective;          ///< per step
};

/// All states of one kind of tensor and the prices between them.
struct StateTable {
  std::vector<TensorState> states;
  std::map<TensorState, int> index;
  std::vector<Seconds> forward;  ///< [from * K + to], one execution
  std::vector<Seconds>
      gradient;              ///< of moving the gradient back, [from * K + to] for value from -> to
  std::vector<Bytes> bytes;  ///< of the local value
  std::vector<int> value_layout;     ///< states with the same number hold the value alike
  std::vector<int> gradient_layout;  ///< and the gradient
};

class PriceBook {
 public:
  /// All references must outlive the book. Not thread-safe: one per thread.
  /// Errors: those of CollectiveModel::make; more than kPlanMeshAxes axes (kUnsupported).
  /// Books of several meshes may share the graph's `flow` (with the options' recomputation);
  /// without one, the book makes its own.
  static Result<std::unique_ptr<PriceBook>> make(const Graph& graph,
                                                 const Cluster& cluster,
                                                 std::vector<std::int64_t> mesh_shape,
                                                 PriceOptions options,
                                                 std::shared_ptr<const DataFlow> flow = nullptr);

  const Graph& graph() const { return graph_; }
  const DataFlow& flow() const { return *flow_; }
  const Cluster& cluster() const { return cluster_; }
  const PriceOptions& options() const { return options_; }
  std::span<const std::int64_t> mesh_shape() const { return mesh_shape_; }
  int mesh_axes() const { return static_cast<int>(mesh_shape_.size()); }
  const CollectiveModel& collectives() const { return collectives_; }

  const OperatorInfo& info(OperatorId op) const { return *infos_[index(op)]; }
  OperatorPrice operator_price(OperatorId op, const Strategy& strategy);
  /// The same, computed once for equal operators and kept: for walks over one assignment.
  const OperatorPrice& shared_operator_price(OperatorId op, const Strategy& strategy);

  /// Operands' and results' states, by the gradient sides of the graph's tensors.
  TensorState operand_state(OperatorId op, const Strategy& strategy, std::size_t operand);
  TensorState result_state(OperatorId op, const Strategy& strategy, std::size_t result);

  /// The states of a tensor and all prices between them; equal tensors share one table.
  const StateTable& states(TensorId tensor);
  /// From now on tables have only states that are kept, of this and of equal tensors: for searches
  /// that need few of them. Before states() is asked for any tensor.
  void keep_states(TensorId tensor, std::span<const TensorState> states);
  /// The steps of the value (nullptr: none) and of the gradient from one state to another.
  const Redistribution* forward_steps(TensorId tensor,
                                      const TensorState& from,
                                      const TensorState& to);
  const Redistribution* gradient_steps(TensorId tensor,
                                       const TensorState& from,
                                       const TensorState& to);
  /// The state that a loss or graph output ends in: its own without Partial.
  TensorState final_state(const TensorState& state) const;

  /// Bytes of the local value in a state.
  Bytes local_bytes(TensorId tensor, const TensorState& state) const;

  /// nullopt where a cut does not divide, or the choice means nothing in this state.
  /// `read_again`: whether a reader's backward or recomputation reads the parameter.
  std::optional<ParameterPrice> parameter_price(TensorId tensor,
                                                const TensorState& state,
                                                const ParameterChoice& choice,
                                                bool read_again) const;
  /// The same of a choice that is possible, computed once for equal parameters and kept.
  const ParameterPrice& shared_parameter_price(TensorId tensor,
                                               const TensorState& state,
                                               const ParameterChoice& choice,
                                               bool read_again);
  /// Every legal choice, cheapest state of memory last, in a fixed order.
  std::vector<ParameterChoice> parameter_choices(TensorId tensor, const TensorState& state) const;

  /// (1 - overlap of the kind) x time, on the price grid.
  Seconds exposed(OverlapKind kind, Seconds time) const;
  Seconds per_step(Seconds per_microbatch) const {
    return static_cast<double>(options_.microbatches) * per_microbatch;
  }

 private:
  PriceBook(const Graph& graph,
            const Cluster& cluster,
            std::vector<std::int64_t> mesh_shape,
            PriceOptions options,
            CollectiveModel collectives,
            std::shared_ptr<const DataFlow> flow);

  Reduction reduction_of(TensorId tensor) const;
  /// Equal for tensors of equal states and prices between them.
  int tensor_kind(TensorId tensor);
  /// Of the first operand; fp32 where there is none.
  DType first_dtype(const Operator& op) const;
  /// At whose rate the operator computes.
  DType compute_dtype(const Operator& op) const;
  WorkspaceBytes workspace(const Operator& op,
                           const OperatorInfo& info,
                           const Strategy& strategy) const;
  /// Of one operand or gradient of a product in PriceOptions::product_dtype: read once, written as
  /// that type and, in training, a second time transposed, which the backward's products need.
  Seconds cast_time(const Operator& op, TensorId tensor, const TensorState& state) const;
  Seconds backward_time(const Operator& op, const OperatorInfo& info, const Strategy& strategy);
  /// What the cluster's file says of this operator on shards of these shapes, or nullptr.
  const Measurement* measured(const Operator& op,
                              const OperatorInfo& info,
                              const Strategy& strategy) const;
  void add_inner_collectives(OperatorId op,
                             const OperatorInfo& info,
                             const Strategy& strategy,
                             OperatorPrice& price);
  Seconds bucketed(const CollectiveCall& call) const;
  void add_step(ParameterMove& move,
                Collective collective,
                int axis,
                int dim,
                Bytes bytes,
                Placements after,
                OverlapKind overlap) const;

  const Graph& graph_;
  const Cluster& cluster_;
  std::vector<std::int64_t> mesh_shape_;
  PriceOptions options_;
  std::shared_ptr<const DataFlow> flow_;
  CollectiveModel collectives_;
  ComputeModel compute_;
  std::map<std::tuple<std::string, std::vector<std::vector<std::int64_t>>, DType>,
           const Measurement*>
      measurements_;
  RedistributionPlanner planner_;
  std::vector<std::shared_ptr<const OperatorInfo>> infos_;  ///< per operator; one per rule
  std::vector<int> operator_kinds_;  ///< per operator; equal where all prices are equal
  Interner operator_price_keys_;
  std::deque<OperatorPrice> operator_prices_;
  Interner parameter_price_keys_;
  std::deque<ParameterPrice> parameter_prices_;
  Interner tensor_kind_keys_;
  std::vector<int> tensor_kinds_;        ///< per tensor; -1: not asked for yet
  std::deque<StateTable> state_tables_;  ///< per kind; without states: not asked for yet
  std::map<int, std::set<TensorState>> kept_states_;  ///< per kind; empty: all
};

}  // namespace meshplan

// SPDX-License-Identifier: Apache-2.0
// What the parts of the plan checker share. Internal to check_plan*.cpp.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "cost_model/collective_model.h"
#include "cost_model/compute_model.h"
#include "plan/check_plan.h"
#include "plan/check_plan_geometry.h"

namespace meshplan::checking {

/// What one mesh axis does in an operator, as the checker reads it off the placements.
struct Action {
  enum class Kind : std::uint8_t { kNone, kFactor, kRing, kRoute, kPass };
  Kind kind = Kind::kNone;
  int factor = -1;  ///< kFactor, kRing, kRoute
  int ring = -1;    ///< kRing; kRoute: the experts
  int group = -1;   ///< kPass: into Rule::linear
};

/// An operator as derived from its placements.
struct OperatorView {
  bool legal = false;           ///< everything below is filled
  std::vector<Action> actions;  ///< per mesh axis
  std::vector<Cuts> operands;   ///< empty Cuts for omitted ones
  std::vector<Cuts> gradients;  ///< of the operands; meaningless without a gradient side
  std::vector<Cuts> results;
  std::vector<Cuts> result_gradients;  ///< as the operator's backward wants them
};

enum class Hiding : std::uint8_t { kActivation, kGradient, kGather, kRing };

/// A redistribution of the plan with the prices that its steps should have.
struct MoveView {
  bool valid = false;          ///< the layouts compose
  std::vector<Seconds> times;  ///< of one execution, per step
  Cuts from;
  Cuts to;
  Seconds total() const;
};

/// A node of a tensor's tree of copies.
struct Node {
  Cuts value;
  Cuts gradient;
};

/// An edge of the tree: from a node to a copy or to a reader.
struct Edge {
  int from = 0;           ///< node
  int to = -1;            ///< node, or -1
  int use = -1;           ///< into Tensor::uses where `to` < 0
  std::vector<int> uses;  ///< all readers below, in order
  int forward = -1;       ///< redistributions of the plan, -1: none
  int regather = -1;
  int repeat = -1;  ///< of a remade value
  int backward = -1;
  Cuts value;  ///< on the far side
  Cuts gradient;
};

/// How one tensor travels.
struct TensorView {
  bool known = false;       ///< layouts are valid and all of the below is filled
  std::vector<Node> nodes;  ///< nodes[0] is the root
  std::vector<Edge> edges;  ///< parents before children
  bool direct = false;      ///< the only reader (or any, for a constant) takes it as it lies
  // parameters
  int gather = -1;  ///< redistributions: rest -> root
  int regather = -1;
  int reduce = -1;  ///< gradient, per micro-batch
  int finish = -1;  ///< gradient, per step
  int update = -1;
  // end of the graph
  int end = -1;
};

/// When everything of one micro-batch runs.
struct Schedule {
  bool any = false;                  ///< something is recomputed
  std::vector<bool> repeats;         ///< per operator: runs forward once more
  std::vector<bool> remade;          ///< per tensor: not stored, but made again
  std::vector<int> repeat_moment;    ///< per operator, -1: none
  std::vector<int> backward_moment;  ///< per operator, -1: none
  std::vector<std::string> names;    ///< of all moments
  std::vector<int> ahead;            ///< per moment: when its parameters' gathers may start
};

class Context {
 public:
  Context(const Plan& plan_, const Graph& graph_, const Cluster& cluster_)
      : plan(plan_), graph(graph_), cluster(cluster_), compute(cluster_) {}

  void report(std::string pointer, std::string expected, std::string found, std::string message);
  /// Reports unless the two are equal.
  void expect(const std::string& pointer, Seconds expected, Seconds found, const char* what);
  void expect(const std::string& pointer, Bytes expected, Bytes found, const char* what);

  std::int64_t axis_size(int axis) const { return mesh[static_cast<std::size_t>(axis)]; }
  AxisSet axis_set(const std::vector<int>& axes) const;
  /// Fraction of this kind of communication that is free.
  double hidden(Hiding kind) const;
  Seconds exposed(Hiding kind, Seconds time) const;
  double microbatches() const { return static_cast<double>(plan.options.microbatches); }
  bool uneven() const;
  /// Whether the operator runs forward once more; before check_recompute, whether its entry says
  /// so.
  bool repeats(OperatorId op) const;
  /// Bytes of the largest shard; 0 where the layout does not fit (reported elsewhere).
  Bytes local_bytes(const Cuts& cuts, const Shape& shape, Bytes element) const;
  Bytes local_bytes(const Cuts& cuts, TensorId tensor) const;

  const Plan& plan;
  const Graph& graph;
  const Cluster& cluster;
  std::vector<Finding> findings;
  Sizes mesh;
  std::optional<CollectiveModel> collectives;
  ComputeModel compute;
  std::vector<int> tensor_entry;    ///< per TensorId: into plan.tensors, -1: missing
  std::vector<int> operator_entry;  ///< per OperatorId: into plan.operators
  std::unordered_map<std::string_view, std::size_t> tensor_ids;  ///< looked up only
  std::unordered_map<std::string_view, std::size_t> operator_ids;
  std::vector<OperatorView> operators;
  std::vector<TensorView> tensors;
  std::vector<MoveView> moves;  ///< per redistribution
  Schedule schedule;
  Seconds operator_compute;  ///< per step
  std::optional<DerivedCost> derived;
};

std::string pointer_to_tensor(const std::string& name);
std::string pointer_to(const char* list, int entry);
std::string number_text(double value);

/// Does the backward of this operator need the operand's value?
bool needs_operand(const Graph& graph, const Operator& op, std::size_t operand);
bool has_gradient(const Graph& graph, const std::optional<TensorId>& tensor);
/// Is any operand's gradient wanted?
bool runs_backward(const Graph& graph, const Operator& op);

// The parts, in the order in which they run.
bool check_identity(Context& context);
bool check_coverage(Context& context);
void check_tensors(Context& context);
void check_recompute(Context& context);
void check_operators(Context& context);
void check_moves(Context& context);
void check_groups(Context& context);
void check_totals(Context& context);

/// Computation of one micro-batch, per docs/cost_model.md.
struct OperatorTimes {
  Seconds forward;
  Seconds backward;
  Bytes own_forward = 0;  ///< buffers of the operator's own in either forward
  Bytes own_kept = 0;     ///< from then to the backward
  Bytes own_backward = 0;
};
OperatorTimes operator_times(const Context& context, OperatorId op);
/// The collectives inside an operator; `time` and `bytes` filled.
struct InnerMove {
  PlanCollective collective;
  AxisSet axes = 0;
  Hiding hiding = Hiding::kActivation;
};
std::vector<InnerMove> inner_moves(const Context& context, OperatorId op);

}  // namespace meshplan::checking

// SPDX-License-Identifier: Apache-2.0
#include "plan/build_plan.h"

#include <algorithm>
#include <set>

#include "lib/check.h"
#include "lib/communication_groups.h"
#include "lib/device_mesh.h"
#include "lib/layout.h"
#include "lib/redistribution_replay.h"

namespace meshplan {
namespace {

Phase phase_of(Pass pass) {
  switch (pass) {
    case Pass::kForward:
      return Phase::kForward;
    case Pass::kRecompute:
      return Phase::kRecompute;
    case Pass::kBackward:
      return Phase::kBackward;
  }
  return Phase::kForward;
}

/// Tokens of one step: the elements of the first integer input, else the rows of the first input.
double tokens_of(const Graph& graph, std::int64_t microbatches) {
  const Tensor* first = nullptr;
  for (const Tensor& tensor : graph.tensors) {
    if (tensor.role != Role::kInput) continue;
    if (!is_floating(tensor.dtype))
      return static_cast<double>(element_count(tensor.shape) * microbatches);
    if (first == nullptr) first = &tensor;
  }
  if (first == nullptr || first->shape.empty()) return 0;
  return static_cast<double>(first->shape[0] * microbatches);
}

/// The element type of the products with the most FLOPs.
DType widest_use(const Graph& graph) {
  double most = -1;
  DType dtype = DType::kFp32;
  for (const Operator& op : graph.operators) {
    if (op.rule->family != OperatorFamily::kMatMul || !op.inputs[0]) continue;
    std::vector<std::int64_t> sizes;
    for (const Factor& factor : op.rule->factors) sizes.push_back(factor.size);
    const double flops = op.rule->flops(sizes);
    if (flops > most) {
      most = flops;
      dtype = graph.tensor(*op.inputs[0]).dtype;
    }
  }
  return dtype;
}

class PlanBuilder {
 public:
  PlanBuilder(PriceBook& book,
              const Assignment& assignment,
              const Evaluation& evaluation,
              const PlanContext& context)
      : book_(book),
        graph_(book.graph()),
        flow_(book.flow()),
        assignment_(assignment),
        evaluation_(evaluation),
        context_(context) {}

  Plan run() {
    plan_ = infeasible_plan(graph_, book_.cluster(), context_);
    plan_.mesh.shape.assign(book_.mesh_shape().begin(), book_.mesh_shape().end());
    plan_.mesh.axes = context_.axes;
    plan_.mesh.roles = context_.roles;
    auto mesh = DeviceMesh::make(plan_.mesh.shape, context_.axes);
    mesh_.emplace(std::move(*mesh));
    add_tensors();
    add_operators();
    add_parameters();  // first: a gathered parameter travels on from there
    add_transfers();
    add_ends();
    add_groups();
    add_costs();
    add_breakdown();
    return std::move(plan_);
  }

 private:
  std::vector<std::string> axis_names(AxisSet axes) const {
    std::vector<std::string> names;
    for (std::size_t axis = 0; axis < context_.axes.size(); ++axis) {
      if ((axes >> axis & 1) != 0) names.push_back(context_.axes[axis]);
    }
    return names;
  }

  Reduction reduction_of(TensorId tensor) {
    const Tensor& t = graph_.tensor(tensor);
    return t.producer ? book_.info(*t.producer).result_reduction() : Reduction::kSum;
  }

  Placements value_of(TensorId tensor, const TensorState& state) {
    return value_placements(state, book_.mesh_axes(), reduction_of(tensor));
  }
  Placements gradient_of(const TensorState& state) const {
    return gradient_placements(state, book_.mesh_axes());
  }

  /// The state in which a tensor's producer leaves it (inputs and constants: as first read).
  TensorState root_state(TensorId tensor) {
    const int root = flow_.root(tensor);
    if (root >= 0) return value_state(book_, assignment_, root);
    const std::vector<Use>& uses = graph_.tensor(tensor).uses;
    if (uses.empty()) return {};
    const Use& use = uses.front();
    return book_.operand_state(
        use.op, assignment_.strategies[index(use.op)], static_cast<std::size_t>(use.operand));
  }

  void describe_layout(PlanTensor& entry) const {
    auto layout =
        Layout::from_placements(*mesh_, entry.placements, static_cast<int>(entry.shape.size()));
    for (const auto& axes : layout->tensor_map())
      entry.tensor_map.emplace_back(axes.begin(), axes.end());
    entry.local_shape = *layout->local_shape(entry.shape);
  }

  void add_tensors() {
    plan_.tensors.reserve(graph_.tensors.size());
    for (std::size_t t = 0; t < graph_.tensors.size(); ++t) {
      const Tensor& tensor = graph_.tensors[t];
      const auto id = static_cast<TensorId>(t);
      PlanTensor entry;
      entry.name = tensor.name;
      entry.shape = tensor.shape;
      entry.dtype = dtype_name(tensor.dtype);
      const TensorState state = root_state(id);
      if (tensor.role == Role::kParameter && !tensor.uses.empty()) {
        const ParameterPrice& price = parameter(id);
        entry.placements = price.rest;
        if (tensor.has_gradient) {
          entry.gradient = price.gradient;
          entry.optimizer_state = price.state;
          entry.update_time = price.update;
        }
      } else {
        entry.placements = value_of(id, state);
        if (tensor.has_gradient) entry.gradient = gradient_of(state);
      }
      entry.reason = context_.reason                     ? context_.reason(id, entry.placements)
                     : context_.constrained.contains(id) ? "constraint"
                                                         : "cost";
      describe_layout(entry);
      plan_.tensors.push_back(std::move(entry));
    }
  }

  const ParameterPrice& parameter(TensorId id) {
    return book_.shared_parameter_price(id,
                                        parameter_state(book_, assignment_, id),
                                        assignment_.parameters[index(id)],
                                        parameter_read_again(graph_, flow_, id));
  }

  void add_operators() {
    plan_.operators.reserve(graph_.operators.size());
    for (std::size_t i = 0; i < graph_.operators.size(); ++i) {
      const Operator& op = graph_.operators[i];
      const auto id = static_cast<OperatorId>(i);
      const Strategy& strategy = assignment_.strategies[i];
      const OperatorPrice& price = book_.shared_operator_price(id, strategy);
      PlanOperator entry;
      entry.name = op.name;
      entry.type = op.type;
      entry.in_placements.reserve(op.inputs.size());
      entry.in_strategy.reserve(op.inputs.size());
      entry.out_placements.reserve(op.outputs.size());
      for (std::size_t k = 0; k < op.inputs.size(); ++k) {
        if (!op.inputs[k]) {
          entry.in_placements.emplace_back();
          entry.in_strategy.emplace_back();
          continue;
        }
        const TensorState state = book_.operand_state(id, strategy, k);
        entry.in_placements.emplace_back(value_of(*op.inputs[k], state));
        const Shape& shape = graph_.tensor(*op.inputs[k]).shape;
        const Shape local = local_shape(shape, state, book_.mesh_shape());
        std::vector<std::int64_t> pieces;
        pieces.reserve(shape.size());
        for (std::size_t d = 0; d < shape.size(); ++d) pieces.push_back(shape[d] / local[d]);
        entry.in_strategy.emplace_back(std::move(pieces));
      }
      for (std::size_t r = 0; r < op.outputs.size(); ++r)
        entry.out_placements.push_back(
            value_of(op.outputs[r], book_.result_state(id, strategy, r)));
      entry.compute_time = book_.per_step(price.compute());
      entry.objective = evaluation_.breakdown.operators()[i];
      entry.recompute = flow_.timeline().recomputes(id);
      for (const InnerCollective& inner : price.collectives) {
        entry.collectives.push_back({inner.collective,
                                     axis_names(inner.axes),
                                     phase_of(inner.pass),
                                     inner.count,
                                     inner.moved,
                                     inner.time});
        note_groups(inner.axes);
      }
      plan_.operators.push_back(std::move(entry));
    }
  }

  PlanStep step_of(const RedistributionStep& step, const Placements& before, std::size_t rank) {
    PlanStep made;
    made.collective = step.collective;
    if (step.collective == Collective::kAllReduce ||
        step.collective == Collective::kReduceScatter || step.collective == Collective::kMask)
      made.reduction = step.reduction;
    for (const int axis : step.order)
      made.axes.push_back(context_.axes[static_cast<std::size_t>(axis)]);
    if (step.dim >= 0) made.dim = step.dim;
    if (step.split_dim >= 0) made.split_dim = step.split_dim;
    if (step.concat_dim >= 0) made.concat_dim = step.concat_dim;
    if (step.collective == Collective::kPermute) {
      auto replay = replay_step(book_.mesh_shape(), static_cast<int>(rank), before, step);
      MESHPLAN_CHECK(replay.has_value());
      for (const auto& [source, destination] : replay->pairs)
        made.pairs.emplace_back(source, destination);
    }
    made.bytes = step.bytes_moved;
    made.time = step.time;
    made.placements = step.after;
    if (step.collective != Collective::kSlice) note_groups(step.axes);
    return made;
  }

  /// A reader by name; its operand's number only where it reads the tensor more than once.
  PlanUse use_of(const Use& use) const {
    const Operator& op = graph_.op(use.op);
    PlanUse made{op.name, std::nullopt};
    const auto& tensor = op.inputs[static_cast<std::size_t>(use.operand)];
    if (std::count(op.inputs.begin(), op.inputs.end(), tensor) > 1) made.operand = use.operand;
    return made;
  }

  std::vector<PlanUse> readers(const Transfer& transfer) const {
    if (transfer.to < 0) return {use_of(transfer.use)};
    std::vector<PlanUse> uses;
    for (const int below : flow_.values()[static_cast<std::size_t>(transfer.to)].outgoing) {
      for (PlanUse& use : readers(flow_.transfers()[static_cast<std::size_t>(below)]))
        uses.push_back(std::move(use));
    }
    return uses;
  }

  void add_redistribution(TensorId tensor,
                          std::vector<PlanUse> consumers,
                          Phase phase,
                          Per per,
                          Placements from,
                          Placements to,
                          const std::vector<RedistributionStep>& steps) {
    PlanRedistribution entry;
    entry.tensor = graph_.tensor(tensor).name;
    if (graph_.tensor(tensor).producer)
      entry.producer = graph_.op(*graph_.tensor(tensor).producer).name;
    entry.consumers = std::move(consumers);
    entry.phase = phase;
    entry.per = per;
    entry.from = std::move(from);
    entry.to = std::move(to);
    const std::size_t rank = graph_.tensor(tensor).shape.size();
    for (std::size_t s = 0; s < steps.size(); ++s)
      entry.steps.push_back(step_of(steps[s], s == 0 ? entry.from : steps[s - 1].after, rank));
    plan_.redistributions.push_back(std::move(entry));
  }

  void add_transfers() {
    for (std::size_t t = 0; t < flow_.transfers().size(); ++t) {
      const Transfer& transfer = flow_.transfers()[t];
      const TensorId tensor = flow_.values()[static_cast<std::size_t>(transfer.from)].tensor;
      const TensorState from = value_state(book_, assignment_, transfer.from);
      const TensorState to = far_state(book_, assignment_, transfer);
      const Redistribution* value = book_.forward_steps(tensor, from, to);
      const Redistribution* gradient = book_.gradient_steps(tensor, from, to);
      const bool gathered =
          value != nullptr && transfer.saves && !transfer.again && assignment_.gathered[t] != 0;
      if (value != nullptr)
        add_redistribution(tensor,
                           readers(transfer),
                           Phase::kForward,
                           Per::kMicrobatch,
                           value_of(tensor, from),
                           value_of(tensor, to),
                           value->steps);
      if (gathered || (value != nullptr && transfer.again))
        add_redistribution(tensor,
                           readers(transfer),
                           gathered ? Phase::kRegather : Phase::kRecompute,
                           Per::kMicrobatch,
                           value_of(tensor, from),
                           value_of(tensor, to),
                           value->steps);
      if (gradient != nullptr) {
        const bool of_parameter = graph_.tensor(tensor).role == Role::kParameter;
        add_redistribution(tensor,
                           readers(transfer),
                           of_parameter ? Phase::kGradient : Phase::kBackward,
                           Per::kMicrobatch,
                           gradient_of(to),
                           gradient_of(from),
                           gradient->steps);
      }
      if (transfer.saves)
        add_saved(tensor, value_of(tensor, gathered ? from : to), transfer, gathered);
    }
  }

  void add_saved(TensorId tensor, Placements placements, const Transfer& transfer, bool gathered) {
    std::vector<PlanSaved>& saved = plan_.tensors[index(tensor)].saved;
    const Saved how = gathered         ? Saved::kGathered
                      : transfer.again ? Saved::kComputed
                                       : Saved::kKept;
    auto found = std::find_if(saved.begin(), saved.end(), [&](const PlanSaved& entry) {
      return entry.placements == placements && entry.backward == how;
    });
    if (found == saved.end()) found = saved.insert(found, {std::move(placements), {}, how});
    for (const OperatorId reader : transfer.readers) {
      const std::string& name = graph_.op(reader).name;
      if (std::find(found->readers.begin(), found->readers.end(), name) == found->readers.end())
        found->readers.push_back(name);
    }
  }

  /// Losses and graph outputs end without Partial.
  void add_ends() {
    for (std::size_t t = 0; t < graph_.tensors.size(); ++t) {
      const auto id = static_cast<TensorId>(t);
      const Tensor& tensor = graph_.tensors[t];
      if (!tensor.producer || !ends_graph(graph_, id)) continue;
      const TensorState state = root_state(id);
      const TensorState end = book_.final_state(state);
      const Redistribution* steps = book_.forward_steps(id, state, end);
      if (steps != nullptr)
        add_redistribution(id,
                           {},
                           Phase::kForward,
                           Per::kMicrobatch,
                           value_of(id, state),
                           value_of(id, end),
                           steps->steps);
    }
  }

  void add_parameters() {
    for (std::size_t t = 0; t < graph_.tensors.size(); ++t) {
      const Tensor& tensor = graph_.tensors[t];
      if (tensor.role != Role::kParameter || tensor.uses.empty()) continue;
      const auto id = static_cast<TensorId>(t);
      std::vector<PlanUse> consumers;
      for (const Use& use : tensor.uses) consumers.push_back(use_of(use));
      for (const ParameterMove& move : parameter(id).moves) {
        const bool update = move.kind == ParameterMove::Kind::kUpdate;
        const Phase phase = move.kind == ParameterMove::Kind::kForwardGather    ? Phase::kForward
                            : move.kind == ParameterMove::Kind::kBackwardGather ? Phase::kRegather
                            : update                                            ? Phase::kUpdate
                                                                                : Phase::kGradient;
        add_redistribution(id,
                           update ? std::vector<PlanUse>() : consumers,
                           phase,
                           move.per_step ? Per::kStep : Per::kMicrobatch,
                           move.from,
                           move.to,
                           move.steps);
      }
    }
  }

  void note_groups(AxisSet axes) {
    if (book_.collectives().group_size(axes) > 1) groups_.insert(axes);
  }

  void add_groups() {
    const std::vector<AxisSet> used(groups_.begin(), groups_.end());
    for (AxisGroups& groups : plan_groups(*mesh_, used)) {
      plan_.groups.push_back({std::move(groups.axes), std::move(groups.ranks)});
    }
  }

  void add_costs() {
    plan_.cost = plan_cost(book_, evaluation_);
    PlanMemory& memory = plan_.memory;
    memory.peak = evaluation_.peak;
    memory.moment = moment_name(graph_, flow_, evaluation_.peak_moment);
    auto kind = [&](MemoryKind k) { return evaluation_.at_peak[static_cast<std::size_t>(k)]; };
    memory.parameters = kind(MemoryKind::kParameters);
    memory.gradients = kind(MemoryKind::kGradients);
    memory.optimizer = kind(MemoryKind::kOptimizer);
    memory.activations = kind(MemoryKind::kActivations);
    memory.gathered = kind(MemoryKind::kGathered);
    memory.buffers = kind(MemoryKind::kBuffers);
    memory.workspace = kind(MemoryKind::kWorkspace);
    memory.seed_formula = evaluation_.seed_formula;
  }

  void add_breakdown() {
    for (const CostCell& cell : evaluation_.breakdown.cells()) {
      PlanCostCell made{
          cell.kind, axis_names(cell.axes), {}, cell.objective, cell.time, cell.bytes};
      const int level = book_.collectives().level(cell.axes);
      const auto* collective = std::get_if<Collective>(&cell.kind);
      if (level >= 0 && collective != nullptr && uses_network(*collective))
        made.level = book_.cluster().levels[static_cast<std::size_t>(level)].name;
      plan_.breakdown.push_back(std::move(made));
    }
    for (const MemoryShare& share : evaluation_.shares_at_peak) {
      const std::string& name = share.kind == MemoryKind::kWorkspace
                                    ? graph_.operators[share.owner].name
                                    : graph_.tensors[share.owner].name;
      plan_.at_peak.push_back({name, share.kind, share.bytes});
    }
    std::sort(plan_.at_peak.begin(), plan_.at_peak.end(), stands_before);
  }

  PriceBook& book_;
  const Graph& graph_;
  const DataFlow& flow_;
  const Assignment& assignment_;
  const Evaluation& evaluation_;
  const PlanContext& context_;
  std::optional<DeviceMesh> mesh_;
  std::set<AxisSet> groups_;
  Plan plan_;
};

}  // namespace

PlanCost plan_cost(const PriceBook& book, const Evaluation& evaluation) {
  const Cluster& cluster = book.cluster();
  const Graph& graph = book.graph();
  PlanCost cost;
  cost.step_time = evaluation.step_time;
  cost.compute_time = evaluation.compute;
  cost.communication_time = evaluation.communication;
  cost.exposed_communication_time = evaluation.step_time - evaluation.compute;
  const double seconds = evaluation.step_time.value;
  if (seconds > 0) {
    cost.tokens_per_second = tokens_of(graph, book.options().microbatches) / seconds;
    const double peak =
        ComputeModel(cluster).peak_flops(OperatorFamily::kMatMul, widest_use(graph));
    const double most = seconds * peak * static_cast<double>(cluster.devices());
    cost.model_flops_utilization = evaluation.model_flops / most;
    if (book.flow().timeline().recomputes_any())
      cost.hardware_flops_utilization = evaluation.hardware_flops / most;
  }
  if (cluster.price_per_device_hour)
    cost.price_per_step =
        *cluster.price_per_device_hour * static_cast<double>(cluster.devices()) * seconds / 3600;
  return cost;
}

Plan build_plan(PriceBook& book,
                const Assignment& assignment,
                const Evaluation& evaluation,
                const PlanContext& context) {
  return PlanBuilder(book, assignment, evaluation, context).run();
}

Plan infeasible_plan(const Graph& graph, const Cluster& cluster, const PlanContext& context) {
  Plan plan;
  plan.generator_version = context.version;
  plan.graph = {graph.name, graph.fingerprint};
  plan.cluster = {cluster.name, cluster.fingerprint, cluster.devices()};
  plan.options = context.options;
  plan.result = context.result;
  plan.memory.limit = context.memory_limit;
  return plan;
}

}  // namespace meshplan

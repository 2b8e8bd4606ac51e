// SPDX-License-Identifier: Apache-2.0
#include "cost_model/price_book.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "lib/check.h"
#include "lib/redistribution_moves.h"

namespace meshplan {
namespace {

Bytes elements(const std::vector<std::int64_t>& shape) {
  Bytes product = 1;
  for (const std::int64_t size : shape) product *= size;
  return product;
}

/// The local m, n, k of the product that makes `result` from `a` and `b`: factors of a and the
/// result, of b and the result, of a and b. (Factors of all three are batch.)
MatMulDims product_dims(const OperandRule& a,
                        const OperandRule& b,
                        const OperandRule& result,
                        const std::vector<std::int64_t>& sizes) {
  const std::vector<bool> in_a = factors_in(a, sizes.size());
  const std::vector<bool> in_b = factors_in(b, sizes.size());
  const std::vector<bool> in_result = factors_in(result, sizes.size());
  MatMulDims dims;
  for (std::size_t f = 0; f < sizes.size(); ++f) {
    if (in_a[f] && in_b[f] && !in_result[f]) dims.k *= sizes[f];
    if (in_a[f] && !in_b[f] && in_result[f]) dims.m *= sizes[f];
    if (!in_a[f] && in_b[f] && in_result[f]) dims.n *= sizes[f];
  }
  return dims;
}

/// Everything but the shape that prices depend on.
std::uint64_t type_word(const Tensor& tensor) {
  return static_cast<std::uint64_t>(tensor.dtype) * 2 + (tensor.has_gradient ? 1 : 0);
}
constexpr std::uint64_t kNoTensor = ~std::uint64_t{0};

/// A small array as one word of a key.
template <class Array>
std::uint64_t word(const Array& array) {
  static_assert(sizeof(array) <= sizeof(std::uint64_t));
  std::uint64_t made = 0;
  std::memcpy(&made, array.data(), sizeof array);
  return made;
}

bool is_product(const Rule& rule) { return rule.product && rule.family == OperatorFamily::kMatMul; }

}  // namespace

std::optional<Optimizer> parse_optimizer(const std::string& name) {
  static const std::map<std::string, Optimizer> kNames = {{"adamw", Optimizer::kAdamW},
                                                          {"adam", Optimizer::kAdam},
                                                          {"sgd", Optimizer::kSgd},
                                                          {"momentum", Optimizer::kMomentum},
                                                          {"adafactor", Optimizer::kAdafactor},
                                                          {"none", Optimizer::kNone}};
  const auto found = kNames.find(name);
  return found == kNames.end() ? std::nullopt : std::optional(found->second);
}

Bytes optimizer_bytes(Optimizer optimizer, DType parameter) {
  const Bytes master = parameter == DType::kFp32 || parameter == DType::kFp64 ? 0 : 4;
  switch (optimizer) {
    case Optimizer::kAdamW:
    case Optimizer::kAdam:
      return master + 8;
    case Optimizer::kMomentum:
      return master + 4;
    case Optimizer::kAdafactor:  // row and column statistics are negligible
    case Optimizer::kSgd:
      return master;
    case Optimizer::kNone:
      return 0;
  }
  return 0;
}

namespace {

/// Tensors that redistribution can price, and memory whose sums fit into 64 bits.
Result<void> check_sizes(const Graph& graph) {
  // per element at most a value, gradient, three optimizer states and copies on the way: 32 bytes
  constexpr double kMostElements = static_cast<double>(std::int64_t{1} << 56);
  double elements = 0;
  const auto count = [&](const Tensor& tensor) {
    elements += static_cast<double>(element_count(tensor.shape));
  };
  for (const Tensor& tensor : graph.tensors) {
    count(tensor);
    if (tensor.shape.size() > static_cast<std::size_t>(kMaxMoveDims)) {
      return fail(ErrorCode::kUnsupported,
                  "",
                  "tensor \"" + tensor.name + "\" has " + std::to_string(tensor.shape.size()) +
                      " dimensions; plans are made for tensors of at most " +
                      std::to_string(kMaxMoveDims));
    }
  }
  for (const Operator& op : graph.operators) {
    for (const auto& input : op.inputs) {
      if (input) count(graph.tensors[index(*input)]);
    }
  }
  if (elements <= kMostElements) return {};
  return fail(ErrorCode::kOverflow,
              "",
              "tensors and their readers hold more than 2^56 elements; their memory does not fit "
              "into 64 bits");
}

}  // namespace

Result<std::unique_ptr<PriceBook>> PriceBook::make(const Graph& graph,
                                                   const Cluster& cluster,
                                                   std::vector<std::int64_t> mesh_shape,
                                                   PriceOptions options,
                                                   std::shared_ptr<const DataFlow> flow) {
  if (mesh_shape.size() > static_cast<std::size_t>(kPlanMeshAxes)) {
    return fail(ErrorCode::kUnsupported,
                "",
                "plans are made for meshes of at most " + std::to_string(kPlanMeshAxes) + " axes");
  }
  if (auto checked = check_sizes(graph); !checked) return fail(checked.error());
  auto collectives = CollectiveModel::make(cluster, mesh_shape);
  if (!collectives) return fail(collectives.error());
  if (!flow) flow = std::make_shared<const DataFlow>(graph, options.recomputation);
  return std::unique_ptr<PriceBook>(new PriceBook(graph,
                                                  cluster,
                                                  std::move(mesh_shape),
                                                  std::move(options),
                                                  std::move(*collectives),
                                                  std::move(flow)));
}

PriceBook::PriceBook(const Graph& graph,
                     const Cluster& cluster,
                     std::vector<std::int64_t> mesh_shape,
                     PriceOptions options,
                     CollectiveModel collectives,
                     std::shared_ptr<const DataFlow> flow)
    : graph_(graph),
      cluster_(cluster),
      mesh_shape_(std::move(mesh_shape)),
      options_(std::move(options)),
      flow_(std::move(flow)),
      collectives_(std::move(collectives)),
      compute_(cluster),
      planner_(
          mesh_shape_,
          [this](const CollectiveCall& call) { return collectives_.time(call); },
          Division::kEqual),
      tensor_kinds_(graph.tensors.size(), -1) {
  std::map<const Rule*, std::shared_ptr<const OperatorInfo>> known;
  Interner kinds;
  std::vector<std::uint64_t> key;
  for (const Operator& op : graph.operators) {
    std::shared_ptr<const OperatorInfo>& of_rule = known[op.rule.get()];
    if (!of_rule) of_rule = std::make_shared<const OperatorInfo>(op.rule, mesh_shape_);
    infos_.push_back(of_rule);
    // a rule fixes the number and shapes of operands and results
    key.assign(1, reinterpret_cast<std::uintptr_t>(op.rule.get()));
    key.push_back(flow_->timeline().recomputes(static_cast<OperatorId>(infos_.size() - 1)) ? 1 : 0);
    for (const auto& input : op.inputs)
      key.push_back(input ? type_word(graph.tensor(*input)) : kNoTensor);
    for (const TensorId output : op.outputs) key.push_back(type_word(graph.tensor(output)));
    operator_kinds_.push_back(kinds.number(key).first);
  }
  for (const Measurement& measurement : cluster.measurements)
    measurements_[{measurement.type, measurement.inputs, measurement.dtype}] = &measurement;
}

Seconds PriceBook::exposed(OverlapKind kind, Seconds time) const {
  double hidden = 0;
  switch (kind) {
    case OverlapKind::kActivation:
      hidden = options_.overlap.activation;
      break;
    case OverlapKind::kGradient:
      hidden = options_.overlap.gradient;
      break;
    case OverlapKind::kGather:
      hidden = options_.overlap.gather;
      break;
    case OverlapKind::kRing:
      hidden = options_.overlap.ring;
      break;
  }
  return hidden == 0 ? time : on_price_grid((1 - hidden) * time);
}

TensorState PriceBook::operand_state(OperatorId op, const Strategy& strategy, std::size_t operand) {
  const auto& input = graph_.op(op).inputs[operand];
  return info(op).operand_state(strategy, operand, input && graph_.tensor(*input).has_gradient);
}

TensorState PriceBook::result_state(OperatorId op, const Strategy& strategy, std::size_t result) {
  return info(op).result_state(strategy, result);
}

Bytes PriceBook::local_bytes(TensorId tensor, const TensorState& state) const {
  const Tensor& t = graph_.tensor(tensor);
  return elements(local_shape(t.shape, state, mesh_shape_)) * dtype_bytes(t.dtype);
}

// --- operators ---------------------------------------------------------------------------------

const OperatorPrice& PriceBook::shared_operator_price(OperatorId id, const Strategy& strategy) {
  const std::uint64_t key[] = {static_cast<std::uint64_t>(operator_kinds_[index(id)]),
                               word(strategy.actions)};
  const auto [number, added] = operator_price_keys_.number(key);
  if (added) operator_prices_.push_back(operator_price(id, strategy));
  return operator_prices_[static_cast<std::size_t>(number)];
}

OperatorPrice PriceBook::operator_price(OperatorId id, const Strategy& strategy) {
  const Operator& op = graph_.op(id);
  const OperatorInfo& operator_info = info(id);
  const Rule& rule = *op.rule;
  const std::vector<std::int64_t> sizes = operator_info.local_factors(strategy);
  OperatorPrice price;
  price.workspace = workspace(op, operator_info, strategy);
  for (std::size_t i = 0; i < op.inputs.size(); ++i) {
    if (op.inputs[i]) price.touched += local_bytes(*op.inputs[i], operand_state(id, strategy, i));
  }
  for (std::size_t r = 0; r < op.outputs.size(); ++r)
    price.touched += local_bytes(op.outputs[r], operator_info.result_state(strategy, r));
  if (rule.family != OperatorFamily::kView) {
    const double first_result =
        op.outputs.empty() ? 4.0 : dtype_bytes(graph_.tensor(op.outputs[0]).dtype);
    double bytes = 0;
    if (const std::optional<double> moved = rule.moved_elements(sizes)) {
      bytes = *moved * first_result;
    } else {
      for (std::size_t i = 0; i < op.inputs.size(); ++i) {
        if (op.inputs[i])
          bytes += static_cast<double>(
              local_bytes(*op.inputs[i], operator_info.operand_state(strategy, i, true)));
      }
      for (std::size_t r = 0; r < op.outputs.size(); ++r) {
        bytes += static_cast<double>(
            local_bytes(op.outputs[r], operator_info.result_state(strategy, r)));
      }
    }
    LocalWork work;
    work.family = rule.family;
    work.flops = rule.flops(sizes);
    // own buffers are written and read once; what is kept is read in the backward
    work.bytes = bytes + static_cast<double>(2 * price.workspace.forward - price.workspace.kept);
    work.dtype = compute_dtype(op);
    if (is_product(rule))
      work.dims = product_dims(rule.operands[0], rule.operands[1], rule.results[0], sizes);
    const Measurement* known = measured(op, operator_info, strategy);
    price.forward = known != nullptr ? on_price_grid(known->forward) : compute_.time(work);
    for (std::size_t i = 0; known == nullptr && i < op.inputs.size(); ++i) {
      if (op.inputs[i])
        price.forward +=
            cast_time(op, *op.inputs[i], operator_info.operand_state(strategy, i, true));
    }
    if (graph_.training && has_backward(graph_, op)) {
      price.backward = known != nullptr && known->backward
                           ? on_price_grid(*known->backward)
                           : backward_time(op, operator_info, strategy);
    }
  }
  if (operator_info.passes_partial(strategy)) {
    for (std::size_t r = 0; r < op.outputs.size(); ++r) {
      price.forward +=
          copy_time(cluster_, local_bytes(op.outputs[r], operator_info.result_state(strategy, r)));
    }
  }
  if (flow_->timeline().recomputes(id)) price.recompute = price.forward;
  add_inner_collectives(id, operator_info, strategy, price);
  Seconds objective = price.compute();
  for (const InnerCollective& inner : price.collectives) {
    objective += static_cast<double>(inner.count) * exposed(inner.overlap, inner.time);
  }
  price.objective = per_step(objective);
  return price;
}

DType PriceBook::compute_dtype(const Operator& op) const {
  if (options_.product_dtype && is_product(*op.rule)) {
    for (const auto& input : op.inputs) {
      if (input && graph_.tensor(*input).role == Role::kParameter) return *options_.product_dtype;
    }
  }
  return first_dtype(op);
}

Seconds PriceBook::cast_time(const Operator& op, TensorId tensor, const TensorState& state) const {
  const DType to = compute_dtype(op);
  const DType from = graph_.tensor(tensor).dtype;
  const auto size = [](DType dtype) { return static_cast<double>(dtype_bytes(dtype)); };
  if (!options_.product_dtype || !is_product(*op.rule) || to != *options_.product_dtype ||
      size(to) >= size(from)) {
    return {};
  }
  const double bytes = static_cast<double>(local_bytes(tensor, state));
  const double copies = graph_.training ? 2 : 1;
  return compute_.memory_pass(OperatorFamily::kElementwise,
                              bytes * (1 + copies * size(to) / size(from)));
}

DType PriceBook::first_dtype(const Operator& op) const {
  return !op.inputs.empty() && op.inputs[0] ? graph_.tensor(*op.inputs[0]).dtype : DType::kFp32;
}

const Measurement* PriceBook::measured(const Operator& op,
                                       const OperatorInfo& operator_info,
                                       const Strategy& strategy) const {
  if (measurements_.empty()) return nullptr;
  std::vector<std::vector<std::int64_t>> shapes(op.inputs.size());
  for (std::size_t i = 0; i < op.inputs.size(); ++i) {
    if (!op.inputs[i]) continue;
    shapes[i] = local_shape(graph_.tensor(*op.inputs[i]).shape,
                            operator_info.operand_state(strategy, i, true),
                            mesh_shape_);
  }
  const auto found = measurements_.find({op.type, std::move(shapes), first_dtype(op)});
  return found == measurements_.end() ? nullptr : found->second;
}

WorkspaceBytes PriceBook::workspace(const Operator& op,
                                    const OperatorInfo& operator_info,
                                    const Strategy& strategy) const {
  const Rule& rule = *op.rule;
  if (rule.workspace == Workspace{} || op.inputs.empty() || !op.inputs[0]) return {};
  const TensorState state = operator_info.operand_state(strategy, 0, true);
  const Bytes local = elements(local_shape(graph_.tensor(*op.inputs[0]).shape, state, mesh_shape_));
  const std::vector<std::int64_t> sizes = operator_info.local_factors(strategy);
  Bytes exchanged = 0;
  for (std::size_t f = 0; f < rule.factors.size(); ++f) {
    if (exchanges_statistics(rule.factors[f], false) && sizes[f] < rule.factors[f].size)
      exchanged = rule.workspace.exchanged;
  }
  WorkspaceBytes bytes;
  bytes.forward = local * (rule.workspace.forward + exchanged);
  if (!graph_.training || !has_backward(graph_, op)) return bytes;
  bytes.kept = local * rule.workspace.kept;
  bytes.backward = local * (rule.workspace.backward + exchanged);
  return bytes;
}

Seconds PriceBook::backward_time(const Operator& op,
                                 const OperatorInfo& operator_info,
                                 const Strategy& strategy) {
  const Rule& rule = *op.rule;
  const std::vector<std::int64_t> sizes = operator_info.local_factors(strategy);
  auto operand_bytes = [&](std::size_t i) {
    return static_cast<double>(
        local_bytes(*op.inputs[i], operator_info.operand_state(strategy, i, true)));
  };
  auto result_bytes = [&](std::size_t r) {
    return static_cast<double>(local_bytes(op.outputs[r], operator_info.result_state(strategy, r)));
  };
  auto has_gradient = [&](std::size_t i) {
    return op.inputs[i] && graph_.tensor(*op.inputs[i]).has_gradient;
  };
  LocalWork work;
  work.family = rule.family;
  work.flops = rule.flops(sizes);
  work.dtype = compute_dtype(op);
  if (is_product(rule)) {
    Seconds total;
    for (std::size_t i = 0; i < 2; ++i) {
      if (!has_gradient(i)) continue;
      const std::size_t other = 1 - i;
      work.bytes = result_bytes(0) + operand_bytes(other) + operand_bytes(i);
      work.dims = product_dims(rule.results[0], rule.operands[other], rule.operands[i], sizes);
      total += compute_.time(work);
    }
    return total + cast_time(op, op.outputs[0], operator_info.result_state(strategy, 0));
  }
  if (rule.backward_factor > 0) {
    for (std::size_t i = 0; i < op.inputs.size(); ++i) {
      if (op.inputs[i]) work.bytes += 2 * operand_bytes(i);
    }
    for (std::size_t r = 0; r < op.outputs.size(); ++r) work.bytes += 2 * result_bytes(r);
    work.flops *= rule.backward_factor;
    return compute_.time(work);
  }
  if (rule.product) {  // once more for every operand with a gradient
    double gradients = 0;
    for (std::size_t i = 0; i < op.inputs.size(); ++i)
      gradients += !rule.operands[i].addend && has_gradient(i) ? 1 : 0;
    work.flops *= gradients;
  }
  for (std::size_t r = 0; r < op.outputs.size(); ++r) {
    work.bytes += result_bytes(r) * (rule.results[r].saved ? 2 : 1);
  }
  for (std::size_t i = 0; i < op.inputs.size(); ++i) {
    if (!op.inputs[i]) continue;
    if (backward_reads(graph_, op, i)) work.bytes += operand_bytes(i);
    if (has_gradient(i)) work.bytes += operand_bytes(i);
  }
  const WorkspaceBytes own = workspace(op, operator_info, strategy);
  work.bytes += static_cast<double>(2 * own.backward - own.kept);
  return compute_.time(work);
}

void PriceBook::add_inner_collectives(OperatorId id,
                                      const OperatorInfo& operator_info,
                                      const Strategy& strategy,
                                      OperatorPrice& price) {
  const bool recomputed = flow_->timeline().recomputes(id);
  for (const InnerExchange& inner :
       inner_exchanges(graph_, graph_.op(id), operator_info, strategy)) {
    const CollectiveCall call{inner.collective, inner.axes, inner.elements * inner.element_bytes};
    InnerCollective made{inner.collective,
                         inner.axes,
                         inner.backward ? Pass::kBackward : Pass::kForward,
                         inner.count,
                         collectives_.moved(call),
                         collectives_.time(call),
                         inner.overlap};
    price.collectives.push_back(made);
    if (!recomputed || inner.backward) continue;
    made.pass = Pass::kRecompute;
    price.collectives.push_back(made);
  }
}

// --- transfers ---------------------------------------------------------------------------------

Reduction PriceBook::reduction_of(TensorId tensor) const {
  const Tensor& t = graph_.tensor(tensor);
  return t.producer ? info(*t.producer).result_reduction() : Reduction::kSum;
}

int PriceBook::tensor_kind(TensorId tensor) {
  int& known = tensor_kinds_[index(tensor)];
  if (known >= 0) return known;
  const Tensor& t = graph_.tensor(tensor);
  std::vector<std::uint64_t> key;
  key.reserve(3 + t.shape.size());
  key.insert(key.end(),
             {static_cast<std::uint64_t>(dtype_bytes(t.dtype)),
              t.has_gradient ? 1U : 0U,
              static_cast<std::uint64_t>(reduction_of(tensor))});
  for (const std::int64_t size : t.shape) key.push_back(static_cast<std::uint64_t>(size));
  for (const std::int64_t unit : t.units) key.push_back(static_cast<std::uint64_t>(unit));
  known = tensor_kind_keys_.number(key).first;
  return known;
}

void PriceBook::keep_states(TensorId tensor, std::span<const TensorState> states) {
  MESHPLAN_CHECK(state_tables_.empty());
  kept_states_[tensor_kind(tensor)].insert(states.begin(), states.end());
}

const StateTable& PriceBook::states(TensorId tensor) {
  const auto kind = static_cast<std::size_t>(tensor_kind(tensor));
  if (state_tables_.size() <= kind) state_tables_.resize(kind + 1);
  StateTable& table = state_tables_[kind];
  if (table.states.empty()) {
    const Tensor& t = graph_.tensor(tensor);
    const Reduction reduction = reduction_of(tensor);
    const bool gradient = t.has_gradient;
    if (kept_states_.empty()) {
      table.states = all_states(t.divisible(), mesh_shape_, gradient, true);
    } else {
      const std::set<TensorState>& kept = kept_states_.at(static_cast<int>(kind));
      table.states.assign(kept.begin(), kept.end());
    }
    const std::size_t count = table.states.size();
    std::vector<Placements> values;
    std::vector<Placements> gradients;
    for (std::size_t s = 0; s < count; ++s) {
      table.index[table.states[s]] = static_cast<int>(s);
      table.bytes.push_back(local_bytes(tensor, table.states[s]));
      auto number = [](std::vector<Placements>& list, Placements placements) {
        auto found = std::find(list.begin(), list.end(), placements);
        if (found == list.end()) found = list.insert(found, std::move(placements));
        return static_cast<int>(found - list.begin());
      };
      table.value_layout.push_back(
          number(values, value_placements(table.states[s], mesh_axes(), reduction)));
      table.gradient_layout.push_back(
          number(gradients, gradient_placements(table.states[s], mesh_axes())));
    }
    const Bytes element = dtype_bytes(t.dtype);
    auto value_costs = planner_.cost_table(t.shape, element, values);
    MESHPLAN_CHECK(value_costs.has_value());
    std::vector<Seconds> gradient_costs;
    if (gradient) {
      auto costs = planner_.cost_table(t.shape, element, gradients);
      MESHPLAN_CHECK(costs.has_value());
      gradient_costs = std::move(*costs);
    }
    table.forward.resize(count * count);
    table.gradient.resize(count * count);
    for (std::size_t from = 0; from < count; ++from) {
      for (std::size_t to = 0; to < count; ++to) {
        const auto at = [](int row, int column, std::size_t width) {
          return static_cast<std::size_t>(row) * width + static_cast<std::size_t>(column);
        };
        table.forward[from * count + to] =
            (*value_costs)[at(table.value_layout[from], table.value_layout[to], values.size())];
        if (gradient)
          table.gradient[from * count + to] = gradient_costs[at(
              table.gradient_layout[to], table.gradient_layout[from], gradients.size())];
      }
    }
  }
  return table;
}

const Redistribution* PriceBook::forward_steps(TensorId tensor,
                                               const TensorState& from,
                                               const TensorState& to) {
  if (from == to) return nullptr;
  const Tensor& t = graph_.tensor(tensor);
  const Reduction reduction = reduction_of(tensor);
  const Placements a = value_placements(from, mesh_axes(), reduction);
  const Placements b = value_placements(to, mesh_axes(), reduction);
  if (a == b) return nullptr;
  auto plan = planner_.plan(t.shape, dtype_bytes(t.dtype), a, b);
  MESHPLAN_CHECK(plan.has_value());
  return *plan;
}

const Redistribution* PriceBook::gradient_steps(TensorId tensor,
                                                const TensorState& from,
                                                const TensorState& to) {
  const Tensor& t = graph_.tensor(tensor);
  if (!t.has_gradient || from == to) return nullptr;
  const Placements a = gradient_placements(to, mesh_axes());
  const Placements b = gradient_placements(from, mesh_axes());
  if (a == b) return nullptr;
  auto plan = planner_.plan(t.shape, dtype_bytes(t.dtype), a, b);
  MESHPLAN_CHECK(plan.has_value());
  return *plan;
}

TensorState PriceBook::final_state(const TensorState& state) const {
  TensorState end = state;
  for (AxisState& axis : end.axes) {
    if (axis == kPartialState) axis = kReplicatedState;
  }
  return end;
}

// --- parameters --------------------------------------------------------------------------------

std::vector<ParameterChoice> PriceBook::parameter_choices(TensorId tensor,
                                                          const TensorState& state) const {
  const Tensor& t = graph_.tensor(tensor);
  std::vector<ParameterChoice> choices = {ParameterChoice{}};
  for (std::size_t axis = 0; axis < mesh_shape_.size(); ++axis) {
    if (mesh_shape_[axis] == 1 || is_sharded(state.axes[axis])) continue;
    std::vector<ParameterAction> actions = {ParameterAction::kNone};
    if (t.has_gradient) actions.push_back(ParameterAction::kState);
    if (t.has_gradient && state.axes[axis] == kGradientPartialState)
      actions.push_back(ParameterAction::kGradient);
    actions.push_back(ParameterAction::kAll);
    std::vector<ParameterChoice> next;
    for (const ParameterChoice& choice : choices) {
      for (const ParameterAction action : actions) {
        next.push_back(choice);
        next.back()[axis] = action;
      }
    }
    choices = std::move(next);
  }
  return choices;
}

Seconds PriceBook::bucketed(const CollectiveCall& call) const {
  const Bytes bucket = cluster_.efficiency.bucket_bytes;
  if (call.collective == Collective::kSlice || call.bytes >= bucket || bucket <= 0)
    return collectives_.time(call);
  const Seconds whole = collectives_.time({call.collective, call.axes, bucket});
  return on_price_grid((static_cast<double>(call.bytes) / static_cast<double>(bucket)) * whole);
}

void PriceBook::add_step(ParameterMove& move,
                         Collective collective,
                         int axis,
                         int dim,
                         Bytes bytes,
                         Placements after,
                         OverlapKind overlap) const {
  RedistributionStep step;
  step.collective = collective;
  step.axes = AxisSet{1} << axis;
  step.order = {axis};
  step.dim = dim;
  const CollectiveCall call{collective, step.axes, bytes};
  step.call_bytes = bytes;
  step.bytes_moved = collective == Collective::kSlice ? 0 : collectives_.moved(call);
  step.time = bucketed(call);
  step.after = std::move(after);
  move.exposed += exposed(overlap, step.time);
  move.steps.push_back(std::move(step));
}

const ParameterPrice& PriceBook::shared_parameter_price(TensorId tensor,
                                                        const TensorState& state,
                                                        const ParameterChoice& choice,
                                                        bool read_again) {
  const std::uint64_t key[] = {static_cast<std::uint64_t>(tensor_kind(tensor)),
                               type_word(graph_.tensor(tensor)),
                               word(state.axes),
                               word(choice),
                               read_again ? 1U : 0U};
  const auto [number, added] = parameter_price_keys_.number(key);
  if (added) {
    std::optional<ParameterPrice> price = parameter_price(tensor, state, choice, read_again);
    MESHPLAN_CHECK(price.has_value());
    parameter_prices_.push_back(std::move(*price));
  }
  return parameter_prices_[static_cast<std::size_t>(number)];
}

std::optional<ParameterPrice> PriceBook::parameter_price(TensorId tensor,
                                                         const TensorState& state,
                                                         const ParameterChoice& choice,
                                                         bool read_again) const {
  const Tensor& t = graph_.tensor(tensor);
  // the order of cuts: all, gradient, state; each from the innermost axis outwards
  struct Cut {
    int axis;
    int dim;
    ParameterAction action;
  };
  std::vector<Cut> cuts;
  std::vector<std::int64_t> local = local_shape(t.shape, state, mesh_shape_);
  for (const ParameterAction action :
       {ParameterAction::kAll, ParameterAction::kGradient, ParameterAction::kState}) {
    for (int axis = mesh_axes() - 1; axis >= 0; --axis) {
      if (choice[static_cast<std::size_t>(axis)] != action) continue;
      const std::int64_t size = mesh_shape_[static_cast<std::size_t>(axis)];
      const auto dim = std::find_if(
          local.begin(), local.end(), [&](std::int64_t length) { return length % size == 0; });
      if (dim == local.end()) return std::nullopt;
      *dim /= size;
      cuts.push_back({axis, static_cast<int>(dim - local.begin()), action});
    }
  }
  // placements after the first `count` cuts; `base` gives the placements of uncut axes
  auto placements_after = [&](std::size_t count, const Placements& base) {
    Placements placements = base;
    for (std::size_t c = 0; c < count; ++c) {
      std::int64_t before = 1;  // sizes of axes to the right that cut the same dimension earlier
      for (int axis = cuts[c].axis + 1; axis < mesh_axes(); ++axis) {
        bool earlier = state[axis] == static_cast<AxisState>(cuts[c].dim);
        for (std::size_t e = 0; e < c; ++e)
          earlier = earlier || (cuts[e].axis == axis && cuts[e].dim == cuts[c].dim);
        if (earlier) before *= mesh_shape_[static_cast<std::size_t>(axis)];
      }
      Placement& placement = placements[static_cast<std::size_t>(cuts[c].axis)];
      if (before > 1) {
        placement = StridedShard{cuts[c].dim, before};
      } else {
        placement = Shard{cuts[c].dim};
      }
    }
    return placements;
  };
  auto count_of = [&](ParameterAction last) {
    return static_cast<std::size_t>(std::count_if(
        cuts.begin(), cuts.end(), [&](const Cut& cut) { return cut.action >= last; }));
  };
  const std::size_t rest_cuts = count_of(ParameterAction::kAll);
  const std::size_t gradient_cuts = count_of(ParameterAction::kGradient);
  auto pieces = [&](std::size_t count) {
    std::int64_t product = 1;
    for (std::size_t c = 0; c < count; ++c)
      product *= mesh_shape_[static_cast<std::size_t>(cuts[c].axis)];
    return product;
  };
  const Placements whole = value_placements(state, mesh_axes());
  const Placements whole_gradient = gradient_placements(state, mesh_axes());
  const Bytes local_elements = elements(local_shape(t.shape, state, mesh_shape_));
  const Bytes element = dtype_bytes(t.dtype);
  const Bytes gradient_element = dtype_bytes(cluster_.efficiency.reduce_dtype);
  const bool trained = t.has_gradient;

  ParameterPrice price;
  price.rest = placements_after(rest_cuts, whole);
  price.rest_bytes = local_elements / pieces(rest_cuts) * element;
  Seconds objective;
  if (rest_cuts > 0) {
    price.gathered_bytes = local_elements * element;
    price.gathered_backward = graph_.training && read_again;
    ParameterMove gather;
    gather.from = price.rest;
    gather.to = whole;
    for (std::size_t c = rest_cuts; c-- > 0;) {
      add_step(gather,
               Collective::kAllGather,
               cuts[c].axis,
               cuts[c].dim,
               local_elements / pieces(c) * element,
               placements_after(c, whole),
               OverlapKind::kGather);
    }
    objective += per_step(gather.exposed);
    price.moves.push_back(gather);
    if (price.gathered_backward) {
      gather.kind = ParameterMove::Kind::kBackwardGather;
      objective += per_step(gather.exposed);
      price.moves.push_back(std::move(gather));
    }
  }
  if (trained) {
    price.gradient = placements_after(gradient_cuts, whole_gradient);
    price.state = placements_after(cuts.size(), whole);
    price.gradient_bytes = local_elements / pieces(gradient_cuts) * gradient_element;
    price.optimizer_bytes =
        local_elements / pieces(cuts.size()) * optimizer_bytes(options_.optimizer, t.dtype);
    if (gradient_cuts > 0) price.unreduced_bytes = local_elements * gradient_element;
    auto cut_step = [&](ParameterMove& move, std::size_t c) {
      const bool partial = state[cuts[c].axis] == kGradientPartialState;
      const Bytes before = local_elements / pieces(c) * gradient_element;
      const Bytes after = local_elements / pieces(c + 1) * gradient_element;
      add_step(move,
               partial ? Collective::kReduceScatter : Collective::kSlice,
               cuts[c].axis,
               cuts[c].dim,
               partial ? before : after,
               placements_after(c + 1, whole_gradient),
               OverlapKind::kGradient);
    };
    if (gradient_cuts > 0) {
      ParameterMove reduce;
      reduce.kind = ParameterMove::Kind::kGradient;
      reduce.from = whole_gradient;
      reduce.to = price.gradient;
      for (std::size_t c = 0; c < gradient_cuts; ++c) cut_step(reduce, c);
      objective += per_step(reduce.exposed);
      price.moves.push_back(std::move(reduce));
    }
    ParameterMove finish;  // once per step
    finish.kind = ParameterMove::Kind::kGradient;
    finish.per_step = true;
    finish.from = price.gradient;
    for (std::size_t c = gradient_cuts; c < cuts.size(); ++c) cut_step(finish, c);
    Placements reduced = placements_after(cuts.size(), whole_gradient);
    for (int axis = mesh_axes() - 1; axis >= 0; --axis) {
      if (state[axis] != kGradientPartialState ||
          choice[static_cast<std::size_t>(axis)] != ParameterAction::kNone)
        continue;
      reduced[static_cast<std::size_t>(axis)] = Replicate{};
      add_step(finish,
               Collective::kAllReduce,
               axis,
               -1,
               local_elements / pieces(cuts.size()) * gradient_element,
               reduced,
               OverlapKind::kGradient);
    }
    finish.to = price.state;
    if (!finish.steps.empty()) {
      objective += finish.exposed;
      price.moves.push_back(std::move(finish));
    }
    if (cuts.size() > rest_cuts && options_.optimizer != Optimizer::kNone) {
      ParameterMove update;
      update.kind = ParameterMove::Kind::kUpdate;
      update.per_step = true;
      update.from = price.state;
      update.to = price.rest;
      for (std::size_t c = cuts.size(); c-- > rest_cuts;) {
        add_step(update,
                 Collective::kAllGather,
                 cuts[c].axis,
                 cuts[c].dim,
                 local_elements / pieces(c) * element,
                 placements_after(c, whole),
                 OverlapKind::kGather);
      }
      objective += update.exposed;
      price.moves.push_back(std::move(update));
    }
    const Bytes state_elements = local_elements / pieces(cuts.size());
    if (options_.optimizer != Optimizer::kNone) {
      price.update = compute_.optimizer_time(static_cast<double>(2 * state_elements * element +
                                                                 state_elements * gradient_element +
                                                                 2 * price.optimizer_bytes));
    }
    objective += price.update;
  }
  price.objective = objective;
  return price;
}

}  // namespace meshplan

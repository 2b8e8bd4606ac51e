// SPDX-License-Identifier: Apache-2.0
// Operators: which strategy the placements are, whether the rule allows it, what it costs.
//
// A mesh axis may shard one factor, shard a factor of attention in its ring form, let Partial pass
// through, or do nothing. Each of these fixes what every operand and result does on that axis, so
// the strategy is read back by trying them all.
#include <algorithm>

#include "plan/check_plan_parts.h"

namespace meshplan::checking {
namespace {

std::size_t at(int index) { return static_cast<std::size_t>(index); }

/// What an operand or result does on one axis.
struct AxisUse {
  enum class Kind : std::uint8_t { kReplicated, kCut, kPartial, kGradientPartial };
  Kind kind = Kind::kReplicated;
  int dim = -1;
};

/// The dimension that holds one of the two factors, or -1.
int dimension_with(const OperandRule& operand, int factor, int ring) {
  for (std::size_t dim = 0; dim < operand.dims.size(); ++dim) {
    for (const int each : operand.dims[dim]) {
      if (each == factor || (ring >= 0 && each == ring)) return static_cast<int>(dim);
    }
  }
  return -1;
}

AxisUse operand_use(const Rule& rule, std::size_t operand, const Action& action) {
  switch (action.kind) {
    case Action::Kind::kNone:
      return {};
    case Action::Kind::kPass: {
      const std::vector<int>& partial = rule.linear[at(action.group)].operands;
      if (std::find(partial.begin(), partial.end(), static_cast<int>(operand)) != partial.end()) {
        return {AxisUse::Kind::kPartial, -1};
      }
      return {AxisUse::Kind::kGradientPartial, -1};
    }
    case Action::Kind::kFactor:
    case Action::Kind::kRing:
    case Action::Kind::kRoute:
      break;
  }
  const int dim = dimension_with(rule.operands[operand], action.factor, action.ring);
  if (dim >= 0) return {AxisUse::Kind::kCut, dim};
  return {AxisUse::Kind::kGradientPartial, -1};
}

AxisUse result_use(const Rule& rule, std::size_t result, const Action& action) {
  if (action.kind == Action::Kind::kNone) return {};
  if (action.kind == Action::Kind::kPass) return {AxisUse::Kind::kPartial, -1};
  const int dim = dimension_with(rule.results[result], action.factor, action.ring);
  if (dim >= 0) return {AxisUse::Kind::kCut, dim};
  const bool reduced = rule.factors[at(action.factor)].kind == FactorKind::kReduction;
  return {reduced ? AxisUse::Kind::kPartial : AxisUse::Kind::kReplicated, -1};
}

Reduction reduction_of(const Rule& rule) {
  Reduction reduction = Reduction::kSum;
  for (const Factor& factor : rule.factors) {
    if (factor.kind == FactorKind::kReduction) reduction = factor.reduction;
  }
  return reduction;
}

/// The reduction in which a tensor may be Partial: its producer's.
Reduction reduction_of(const Graph& graph, TensorId tensor) {
  const auto producer = graph.tensor(tensor).producer;
  return producer ? reduction_of(*graph.op(*producer).rule) : Reduction::kSum;
}

std::vector<Action> possible_actions(const Rule& rule) {
  std::vector<Action> actions;
  for (std::size_t f = 0; f < rule.factors.size(); ++f) {
    const Factor& factor = rule.factors[f];
    const int number = static_cast<int>(f);
    if (factor.size > 1 && factor.kind != FactorKind::kWhole && factor.kind != FactorKind::kRing) {
      actions.push_back({Action::Kind::kFactor, number, -1, -1});
    }
    if (factor.size > 1 && factor.kind == FactorKind::kRing && factor.partner >= 0 &&
        rule.factors[at(factor.partner)].size > 1 &&
        rule.factors[at(factor.partner)].kind != FactorKind::kWhole) {
      actions.push_back({Action::Kind::kRing, factor.partner, number, -1});
    }
  }
  for (const Route& route : rule.routes) {
    if (rule.factors[at(route.token)].size > 1 && rule.factors[at(route.expert)].size > 1)
      actions.push_back({Action::Kind::kRoute, route.token, route.expert, -1});
  }
  for (std::size_t g = 0; g < rule.linear.size(); ++g) {
    actions.push_back({Action::Kind::kPass, -1, -1, static_cast<int>(g)});
  }
  actions.push_back({});
  return actions;
}

Placement placement_of(const AxisUse& use, Reduction reduction) {
  switch (use.kind) {
    case AxisUse::Kind::kCut:
      return Shard{use.dim};
    case AxisUse::Kind::kPartial:
      return Partial{reduction};
    case AxisUse::Kind::kReplicated:
    case AxisUse::Kind::kGradientPartial:
      break;
  }
  return Replicate{};
}

Placement gradient_of(const AxisUse& use) {
  switch (use.kind) {
    case AxisUse::Kind::kCut:
      return Shard{use.dim};
    case AxisUse::Kind::kGradientPartial:
      return Partial{Reduction::kSum};
    case AxisUse::Kind::kReplicated:
    case AxisUse::Kind::kPartial:
      break;
  }
  return Replicate{};
}

/// Is this what `op` does on `axis` according to its placements?
bool matches(const Graph& graph,
             const Operator& op,
             const PlanOperator& entry,
             std::size_t axis,
             const Action& action) {
  for (std::size_t i = 0; i < op.inputs.size(); ++i) {
    if (!op.inputs[i]) continue;
    const AxisUse use = operand_use(*op.rule, i, action);
    if ((*entry.in_placements[i])[axis] != placement_of(use, reduction_of(graph, *op.inputs[i]))) {
      return false;
    }
  }
  for (std::size_t r = 0; r < op.outputs.size(); ++r) {
    const AxisUse use = result_use(*op.rule, r, action);
    if (entry.out_placements[r][axis] != placement_of(use, reduction_of(*op.rule))) return false;
  }
  return true;
}

/// Walks the axes over the factors of one dimension, major to minor: each factor must be cut
/// completely before the next one is touched, and every cut must divide.
bool cuts_in_order(const Rule& rule,
                   const DimensionFactors& dimension,
                   const std::vector<Action>& actions,
                   const Sizes& mesh) {
  std::vector<std::int64_t> rest;
  for (const int factor : dimension) rest.push_back(rule.factors[at(factor)].size);
  std::size_t current = 0;
  for (std::size_t axis = 0; axis < mesh.size(); ++axis) {
    for (const int cut : {actions[axis].factor, actions[axis].ring}) {
      const auto found = std::find(dimension.begin(), dimension.end(), cut);
      if (cut < 0 || found == dimension.end()) continue;
      const auto wanted = static_cast<std::size_t>(found - dimension.begin());
      if (wanted < current) return false;
      for (; current < wanted; ++current) {
        if (rest[current] != 1) return false;
      }
      if (rest[current] % mesh[axis] != 0) return false;
      rest[current] /= mesh[axis];
    }
  }
  return true;
}

/// "" or what the rule does not allow.
std::string forbidden(const Rule& rule, const std::vector<Action>& actions, const Sizes& mesh) {
  std::vector<std::int64_t> pieces(rule.factors.size(), 1);
  for (std::size_t axis = 0; axis < mesh.size(); ++axis) {
    for (const int factor : {actions[axis].factor, actions[axis].ring}) {
      if (factor >= 0) pieces[at(factor)] *= mesh[axis];
    }
  }
  for (std::size_t f = 0; f < pieces.size(); ++f) {
    const Factor& factor = rule.factors[f];
    const bool window = factor.kind == FactorKind::kWindow && pieces[f] > 1;
    if (window && !halo(factor.window, factor.size, pieces[f])) {
      return "factor " + factor.name + " is cut into " + std::to_string(pieces[f]) +
             " pieces, whose windows reach beyond their neighbours";
    }
    const std::int64_t unit = factor.unit > 0 ? factor.unit : factor.size;
    if (factor.size % pieces[f] == 0 && unit % pieces[f] != 0) {
      return "factor " + factor.name + " is cut into " + std::to_string(pieces[f]) +
             " pieces, and a multiple of " + std::to_string(unit) +
             " is all that its size is known to be";
    }
    if (factor.size % pieces[f] == 0) continue;
    return "factor " + rule.factors[f].name + " of size " + std::to_string(rule.factors[f].size) +
           " is cut into " + std::to_string(pieces[f]) + " pieces";
  }
  for (const std::vector<OperandRule>* list : {&rule.operands, &rule.results}) {
    for (const OperandRule& operand : *list) {
      for (const DimensionFactors& dimension : operand.dims) {
        if (dimension.size() > 1 && !cuts_in_order(rule, dimension, actions, mesh)) {
          return "a dimension made of several factors is cut in a minor one first";
        }
      }
    }
  }
  for (std::size_t outer = 0; outer < mesh.size(); ++outer) {
    if (actions[outer].kind != Action::Kind::kRoute) continue;
    for (std::size_t inner = outer + 1; inner < mesh.size(); ++inner) {
      if (actions[inner].kind == Action::Kind::kFactor &&
          actions[inner].factor == actions[outer].factor) {
        return "an axis that cuts tokens on both sides lies inside one that routes them";
      }
    }
  }
  return "";
}

/// Factors of one dimension may look alike from outside: takes the first combination of `matching`
/// actions that the rule allows. Returns "" or what is wrong with the first one.
std::string choose_actions(const Rule& rule,
                           const std::vector<std::vector<Action>>& matching,
                           const Sizes& mesh,
                           std::vector<Action>& actions) {
  std::string first;
  std::vector<std::size_t> at_action(matching.size(), 0);
  while (true) {
    for (std::size_t axis = 0; axis < mesh.size(); ++axis)
      actions[axis] = matching[axis][at_action[axis]];
    const std::string wrong = forbidden(rule, actions, mesh);
    if (wrong.empty()) return "";
    if (first.empty()) first = wrong;
    std::size_t axis = mesh.size();
    while (axis > 0 && ++at_action[axis - 1] == matching[axis - 1].size()) at_action[--axis] = 0;
    if (axis == 0) return first;
  }
}

/// Reports placements that are not one per axis or not of this operand count.
bool well_formed(Context& context,
                 const Operator& op,
                 const PlanOperator& entry,
                 const std::string& pointer) {
  if (entry.type != op.type) {
    context.report(pointer + "/type", op.type, entry.type, "the operator is of another type");
  }
  if (entry.in_placements.size() != op.inputs.size() ||
      entry.out_placements.size() != op.outputs.size()) {
    context.report(pointer,
                   std::to_string(op.inputs.size()) + " operands and " +
                       std::to_string(op.outputs.size()) + " results",
                   std::to_string(entry.in_placements.size()) + " and " +
                       std::to_string(entry.out_placements.size()),
                   "the operator has another number of operands or results");
    return false;
  }
  bool fine = true;
  const auto look = [&](const Placements& placements, TensorId tensor, const std::string& place) {
    const Tensor& t = context.graph.tensor(tensor);
    const auto cuts = cuts_of(placements, t.shape.size(), context.mesh);
    if (cuts && local_shape_of(*cuts, t.shape, context.mesh, context.uneven())) return;
    context.report(pointer + place,
                   "a layout that divides \"" + t.name + "\"",
                   to_string(placements),
                   "the placements do not fit the tensor");
    fine = false;
  };
  for (std::size_t i = 0; i < op.inputs.size(); ++i) {
    const std::string place = "/in_placements/" + std::to_string(i);
    if (op.inputs[i].has_value() != entry.in_placements[i].has_value()) {
      context.report(pointer + place,
                     op.inputs[i] ? "placements" : "null",
                     entry.in_placements[i] ? "placements" : "null",
                     "an operand is null exactly where it is omitted");
      fine = false;
    } else if (op.inputs[i]) {
      look(*entry.in_placements[i], *op.inputs[i], place);
    }
  }
  for (std::size_t r = 0; r < op.outputs.size(); ++r) {
    look(entry.out_placements[r], op.outputs[r], "/out_placements/" + std::to_string(r));
  }
  return fine;
}

std::string all_placements(const PlanOperator& entry) {
  std::string text;
  for (const auto& operand : entry.in_placements) {
    text += (text.empty() ? "[" : " [") + (operand ? to_string(*operand) : "null") + "]";
  }
  text += " ->";
  for (const Placements& result : entry.out_placements) text += " [" + to_string(result) + "]";
  return text;
}

/// Fills actions, layouts and gradients; reports what the rule does not allow.
void view_operator(Context& context,
                   OperatorId id,
                   const PlanOperator& entry,
                   const std::string& pointer) {
  const Operator& op = context.graph.op(id);
  OperatorView& view = context.operators[index(id)];
  if (!well_formed(context, op, entry, pointer)) return;
  const std::vector<Action> possible = possible_actions(*op.rule);
  view.actions.assign(context.mesh.size(), Action{});
  std::vector<std::vector<Action>> matching(context.mesh.size(), {Action{}});
  for (std::size_t axis = 0; axis < context.mesh.size(); ++axis) {
    if (context.mesh[axis] == 1) continue;
    matching[axis].clear();
    for (const Action& action : possible) {
      if (matches(context.graph, op, entry, axis, action)) matching[axis].push_back(action);
    }
    if (matching[axis].empty()) {
      context.report(pointer,
                     "what one axis can do in \"" + op.rule->text + "\"",
                     all_placements(entry),
                     "no strategy of the operator has these placements on axis " +
                         context.plan.mesh.axes[axis]);
      return;
    }
    view.actions[axis] = matching[axis].front();
  }
  const std::string wrong = choose_actions(*op.rule, matching, context.mesh, view.actions);
  if (!wrong.empty()) {
    context.report(pointer, "a strategy of the rule", all_placements(entry), wrong);
    return;
  }
  const auto gradient = [&](auto use_of, TensorId tensor) {
    Placements placements;
    for (std::size_t axis = 0; axis < context.mesh.size(); ++axis) {
      placements.push_back(gradient_of(use_of(view.actions[axis])));
    }
    return *cuts_of(placements, context.graph.tensor(tensor).shape.size(), context.mesh);
  };
  for (std::size_t i = 0; i < op.inputs.size(); ++i) {
    if (!op.inputs[i]) {
      view.operands.emplace_back();
      view.gradients.emplace_back();
      continue;
    }
    const std::size_t rank = context.graph.tensor(*op.inputs[i]).shape.size();
    view.operands.push_back(*cuts_of(*entry.in_placements[i], rank, context.mesh));
    view.gradients.push_back(gradient(
        [&](const Action& action) { return operand_use(*op.rule, i, action); }, *op.inputs[i]));
  }
  for (std::size_t r = 0; r < op.outputs.size(); ++r) {
    const std::size_t rank = context.graph.tensor(op.outputs[r]).shape.size();
    view.results.push_back(*cuts_of(entry.out_placements[r], rank, context.mesh));
    view.result_gradients.push_back(gradient(
        [&](const Action& action) { return result_use(*op.rule, r, action); }, op.outputs[r]));
  }
  view.legal = true;
}

std::string text_of(const std::vector<std::optional<std::vector<std::int64_t>>>& pieces) {
  std::string text;
  for (const auto& operand : pieces) {
    text += text.empty() ? "[" : ", ";
    if (!operand) {
      text += "null";
      continue;
    }
    text += "[";
    for (std::size_t i = 0; i < operand->size(); ++i)
      text += (i == 0 ? "" : ", ") + std::to_string((*operand)[i]);
    text += "]";
  }
  return text + "]";
}

void check_in_strategy(Context& context,
                       OperatorId id,
                       const PlanOperator& entry,
                       const std::string& pointer) {
  const Operator& op = context.graph.op(id);
  const OperatorView& view = context.operators[index(id)];
  std::vector<std::optional<std::vector<std::int64_t>>> expected;
  for (std::size_t i = 0; i < op.inputs.size(); ++i) {
    auto& pieces = expected.emplace_back();
    if (!op.inputs[i]) continue;
    pieces.emplace();
    for (const std::vector<int>& axes : view.operands[i].dims) {
      std::int64_t count = 1;
      for (const int axis : axes) count *= context.axis_size(axis);
      pieces->push_back(count);
    }
  }
  if (!entry.in_strategy.empty() && entry.in_strategy != expected) {
    context.report(pointer + "/in_strategy",
                   text_of(expected),
                   text_of(entry.in_strategy),
                   "in_strategy does not follow from the placements");
  }
}

// ---- Prices -------------------------------------------------------------------------------------

/// Factors that one device works through; the keys of a ring all pass by.
std::vector<std::int64_t> local_factors(const Context& context,
                                        const Rule& rule,
                                        const OperatorView& view) {
  std::vector<std::int64_t> sizes;
  for (const Factor& factor : rule.factors) sizes.push_back(factor.size);
  for (std::size_t axis = 0; axis < context.mesh.size(); ++axis) {
    const Action& action = view.actions[axis];
    if (action.factor >= 0) sizes[at(action.factor)] /= context.mesh[axis];
    if (action.kind == Action::Kind::kRoute) sizes[at(action.ring)] /= context.mesh[axis];
  }
  return sizes;
}

bool holds(const OperandRule& operand, int factor) {
  return dimension_with(operand, factor, -1) >= 0;
}

/// m: factors of a and the result alone; n: of b and the result; k: of a and b.
MatMulDims product_dims(const OperandRule& a,
                        const OperandRule& b,
                        const OperandRule& result,
                        const std::vector<std::int64_t>& sizes) {
  MatMulDims dims;
  for (std::size_t f = 0; f < sizes.size(); ++f) {
    const int factor = static_cast<int>(f);
    const bool in_a = holds(a, factor);
    const bool in_b = holds(b, factor);
    const bool in_result = holds(result, factor);
    dims.m *= in_a && in_result && !in_b ? sizes[f] : 1;
    dims.n *= in_b && in_result && !in_a ? sizes[f] : 1;
    dims.k *= in_a && in_b && !in_result ? sizes[f] : 1;
  }
  return dims;
}

bool is_matrix_product(const Rule& rule) {
  return rule.product && rule.family == OperatorFamily::kMatMul;
}

/// The cluster's measurement of an operator of these local operands, or nullptr.
const Measurement* find_measurement(const Context& context,
                                    const Operator& op,
                                    const OperatorView& view) {
  const auto applies = [&](const Measurement& known) {
    if (known.type != op.type || known.inputs.size() != op.inputs.size()) return false;
    for (std::size_t i = 0; i < op.inputs.size(); ++i) {
      Sizes local;
      if (op.inputs[i]) {
        const auto shape = local_shape_of(view.operands[i],
                                          context.graph.tensor(*op.inputs[i]).shape,
                                          context.mesh,
                                          context.uneven());
        if (!shape) return false;
        local = *shape;
      }
      if (local != known.inputs[i]) return false;
    }
    return known.dtype == (op.inputs.empty() || !op.inputs[0]
                               ? DType::kFp32
                               : context.graph.tensor(*op.inputs[0]).dtype);
  };
  const auto& all = context.cluster.measurements;
  const auto found = std::find_if(all.begin(), all.end(), applies);
  return found == all.end() ? nullptr : &*found;
}

}  // namespace

OperatorTimes operator_times(const Context& context, OperatorId id) {
  const Operator& op = context.graph.op(id);
  const Rule& rule = *op.rule;
  const OperatorView& view = context.operators[index(id)];
  OperatorTimes times;
  std::vector<double> in(op.inputs.size(), 0);
  std::vector<double> out(op.outputs.size(), 0);
  for (std::size_t i = 0; i < in.size(); ++i) {
    if (op.inputs[i]) {
      in[i] = static_cast<double>(context.local_bytes(view.operands[i], *op.inputs[i]));
    }
  }
  for (std::size_t r = 0; r < out.size(); ++r) {
    out[r] = static_cast<double>(context.local_bytes(view.results[r], op.outputs[r]));
  }
  const auto sum = [](const std::vector<double>& bytes) {
    double total = 0;
    for (const double each : bytes) total += each;
    return total;
  };
  const std::vector<std::int64_t> sizes = local_factors(context, rule, view);
  LocalWork work;
  work.family = rule.family;
  work.flops = rule.flops(sizes);
  work.dtype =
      !op.inputs.empty() && op.inputs[0] ? context.graph.tensor(*op.inputs[0]).dtype : DType::kFp32;
  const bool backward = runs_backward(context.graph, op);
  if (!op.inputs.empty() && op.inputs[0]) {
    const Workspace& own = rule.workspace;
    bool exchanges = false;
    for (std::size_t f = 0; f < sizes.size(); ++f) {
      exchanges = exchanges || (sizes[f] != rule.factors[f].size &&
                                exchanges_statistics(rule.factors[f], false));
    }
    const int more = exchanges ? own.exchanged : 0;
    const Shape& shape = context.graph.tensor(*op.inputs[0]).shape;
    const auto bytes = [&](int each) { return context.local_bytes(view.operands[0], shape, each); };
    times.own_forward = bytes(own.forward + more);
    times.own_kept = backward ? bytes(own.kept) : 0;
    times.own_backward = backward ? bytes(own.backward + more) : 0;
  }
  if (rule.family != OperatorFamily::kView) {
    const auto moved = rule.moved_elements(sizes);
    const double element =
        op.outputs.empty() ? 4.0 : dtype_bytes(context.graph.tensor(op.outputs[0]).dtype);
    work.bytes = moved ? *moved * element : sum(in) + sum(out);
    work.bytes += static_cast<double>(2 * times.own_forward - times.own_kept);
    if (is_matrix_product(rule)) {
      work.dims = product_dims(rule.operands[0], rule.operands[1], rule.results[0], sizes);
    }
    times.forward = context.compute.time(work);
    if (backward && is_matrix_product(rule)) {
      for (std::size_t i = 0; i < 2; ++i) {
        if (!has_gradient(context.graph, op.inputs[i])) continue;
        work.bytes = out[0] + in[0] + in[1];
        work.dims = product_dims(rule.results[0], rule.operands[1 - i], rule.operands[i], sizes);
        times.backward += context.compute.time(work);
      }
    } else if (backward && rule.backward_factor > 0) {
      work.flops *= rule.backward_factor;
      work.bytes = 2 * (sum(in) + sum(out));
      times.backward = context.compute.time(work);
    } else if (backward) {
      if (rule.product) {
        std::int64_t gradients = 0;
        for (std::size_t i = 0; i < in.size(); ++i) {
          if (has_gradient(context.graph, op.inputs[i]) && !rule.operands[i].addend) ++gradients;
        }
        work.flops *= static_cast<double>(gradients);
      }
      work.bytes = sum(out);
      for (std::size_t r = 0; r < out.size(); ++r) work.bytes += rule.results[r].saved ? out[r] : 0;
      for (std::size_t i = 0; i < in.size(); ++i) {
        if (!op.inputs[i]) continue;
        if (needs_operand(context.graph, op, i)) work.bytes += in[i];
        if (has_gradient(context.graph, op.inputs[i])) work.bytes += in[i];
      }
      work.bytes += static_cast<double>(2 * times.own_backward - times.own_kept);
      times.backward = context.compute.time(work);
    }
    if (const Measurement* known = find_measurement(context, op, view)) {
      times.forward = on_price_grid(known->forward);
      if (backward && known->backward) times.backward = on_price_grid(*known->backward);
    }
  }
  const bool passes = std::any_of(view.actions.begin(), view.actions.end(), [](const Action& a) {
    return a.kind == Action::Kind::kPass;
  });
  for (std::size_t r = 0; passes && r < out.size(); ++r) {
    times.forward +=
        copy_time(context.cluster, context.local_bytes(view.results[r], op.outputs[r]));
  }
  return times;
}

std::vector<InnerMove> inner_moves(const Context& context, OperatorId id) {
  const Operator& op = context.graph.op(id);
  const Rule& rule = *op.rule;
  const OperatorView& view = context.operators[index(id)];
  const bool backward = runs_backward(context.graph, op);
  std::vector<InnerMove> moves;
  const auto add = [&](Collective collective,
                       AxisSet axes,
                       bool in_backward,
                       std::int64_t count,
                       Bytes bytes,
                       Hiding hiding) {
    if (count == 0 || (in_backward && !backward)) return;
    const CollectiveCall call{collective, axes, bytes};
    PlanCollective made;
    made.collective = collective;
    for (std::size_t axis = 0; axis < context.mesh.size(); ++axis) {
      if ((axes >> axis & 1U) != 0) made.axes.push_back(context.plan.mesh.axes[axis]);
    }
    made.phase = in_backward ? Phase::kBackward : Phase::kForward;
    made.count = count;
    made.bytes = context.collectives->moved(call);
    made.time = context.collectives->time(call);
    moves.push_back({std::move(made), axes, hiding});
  };
  const std::vector<std::int64_t> sizes = local_factors(context, rule, view);
  const auto axes_cutting = [&](int factor) {
    AxisSet axes = 0;
    for (std::size_t axis = 0; axis < context.mesh.size(); ++axis) {
      const Action& action = view.actions[axis];
      if (action.factor == factor || action.ring == factor) axes |= AxisSet{1} << axis;
    }
    return axes;
  };
  const auto statistics = [&](bool in_backward, int count) {
    AxisSet axes = 0;
    for (std::size_t f = 0; f < rule.factors.size(); ++f) {
      if (exchanges_statistics(rule.factors[f], in_backward))
        axes |= axes_cutting(static_cast<int>(f));
    }
    if (axes == 0) return;
    Bytes bytes = 4 * rule.statistic_values;
    for (const DimensionFactors& dimension : rule.operands[0].dims) {
      for (const int factor : dimension)
        bytes *=
            exchanges_statistics(rule.factors[at(factor)], in_backward) ? 1 : sizes[at(factor)];
    }
    add(Collective::kAllReduce, axes, in_backward, count, bytes, Hiding::kActivation);
  };
  statistics(false, rule.statistic_forward);
  if (op.inputs[0] && context.graph.tensor(*op.inputs[0]).has_gradient)
    statistics(true, rule.statistic_backward);
  for (std::size_t i = 0; i < op.inputs.size(); ++i) {
    if (!op.inputs[i]) continue;
    const Tensor& tensor = context.graph.tensor(*op.inputs[i]);
    Bytes bytes = context.local_bytes(view.operands[i], *op.inputs[i]);
    for (std::size_t dim = 0; dim < tensor.shape.size(); ++dim) {
      const DimensionFactors& dimension = rule.operands[i].dims[dim];
      if (dimension.size() != 1) continue;
      const Factor& factor = rule.factors[at(dimension[0])];
      const AxisSet axes = axes_cutting(dimension[0]);
      if (factor.kind != FactorKind::kWindow || axes == 0) continue;
      const std::int64_t pieces = factor.size / sizes[at(dimension[0])];
      const std::int64_t extent = tensor.shape[dim] / pieces;
      const Halo rows = halo(factor.window, factor.size, pieces).value_or(Halo{});
      for (const std::int64_t count : {rows.before, rows.after}) {
        if (count == 0) continue;
        const Bytes moved = bytes / extent * count;
        add(Collective::kPermute, axes, false, 1, moved, Hiding::kActivation);
        if (tensor.has_gradient)
          add(Collective::kPermute, axes, true, 1, moved, Hiding::kActivation);
      }
      bytes = bytes / extent * (extent + rows.before + rows.after);
    }
  }
  AxisSet routed = 0;
  int experts = -1;
  for (std::size_t axis = 0; axis < context.mesh.size(); ++axis) {
    if (view.actions[axis].kind != Action::Kind::kRoute) continue;
    routed |= AxisSet{1} << axis;
    experts = view.actions[axis].ring;
  }
  if (routed != 0) {
    Bytes slots = 0;
    for (std::size_t r = op.outputs.size(); r-- > 0;) {
      if (holds(rule.results[r], experts))
        slots = context.local_bytes(view.results[r], op.outputs[r]);
    }
    for (std::size_t i = op.inputs.size(); i-- > 0;) {
      if (op.inputs[i] && holds(rule.operands[i], experts))
        slots = context.local_bytes(view.operands[i], *op.inputs[i]);
    }
    add(Collective::kAllToAll, routed, false, 1, slots, Hiding::kActivation);
    add(Collective::kAllToAll, routed, true, 1, slots, Hiding::kActivation);
  }
  std::int64_t gathered = 1;  // blocks that a device has from the rings of inner axes
  for (std::size_t axis = context.mesh.size(); axis-- > 0;) {
    if (view.actions[axis].kind != Action::Kind::kRing) continue;
    Bytes bytes = 0;
    for (std::size_t i = 0; i < op.inputs.size(); ++i) {
      if (op.inputs[i] && holds(rule.operands[i], view.actions[axis].ring)) {
        bytes += context.local_bytes(view.operands[i], *op.inputs[i]);
      }
    }
    bytes *= gathered;
    gathered *= context.mesh[axis];
    const AxisSet along = AxisSet{1} << axis;
    add(Collective::kPermute, along, false, context.mesh[axis] - 1, bytes, Hiding::kRing);
    add(Collective::kPermute, along, true, context.mesh[axis] - 1, 2 * bytes, Hiding::kRing);
  }
  if (context.repeats(id)) {
    const std::size_t once = moves.size();
    for (std::size_t m = 0; m < once; ++m) {
      if (moves[m].collective.phase != Phase::kForward) continue;
      InnerMove repeated = moves[m];
      repeated.collective.phase = Phase::kRecompute;
      moves.push_back(std::move(repeated));
    }
  }
  return moves;
}

void check_operators(Context& context) {
  context.operators.assign(context.graph.operators.size(), {});
  for (std::size_t i = 0; i < context.graph.operators.size(); ++i) {
    const auto id = static_cast<OperatorId>(i);
    if (context.operator_entry[i] < 0) continue;  // reported
    const std::string pointer = pointer_to("operators", context.operator_entry[i]);
    const PlanOperator& entry =
        context.plan.operators[static_cast<std::size_t>(context.operator_entry[i])];
    view_operator(context, id, entry, pointer);
    if (!context.operators[i].legal) continue;
    check_in_strategy(context, id, entry, pointer);
    const OperatorTimes times = operator_times(context, id);
    const double forwards = context.repeats(id) ? 2 : 1;
    const Seconds compute = context.microbatches() * (forwards * times.forward + times.backward);
    context.operator_compute += compute;
    context.expect(pointer + "/compute_time",
                   compute,
                   entry.compute_time,
                   "the operator's computation takes another time");
    std::vector<PlanCollective> unmatched = entry.collectives;
    for (const InnerMove& move : inner_moves(context, id)) {
      const auto found = std::find(unmatched.begin(), unmatched.end(), move.collective);
      if (found == unmatched.end()) {
        context.report(pointer + "/collectives",
                       std::to_string(move.collective.count) + " x " +
                           collective_name(move.collective.collective) + ", " +
                           std::to_string(move.collective.bytes) + " bytes, " +
                           number_text(move.collective.time.value) + " s, " +
                           phase_name(move.collective.phase),
                       "",
                       "a collective inside the operator is missing or wrong");
      } else {
        unmatched.erase(found);
      }
    }
    for (const PlanCollective& extra : unmatched) {
      context.report(pointer + "/collectives",
                     "",
                     collective_name(extra.collective),
                     "the operator needs no such collective");
    }
  }
}

}  // namespace meshplan::checking

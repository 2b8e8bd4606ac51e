// SPDX-License-Identifier: Apache-2.0
// Redistributions: every one is composed step by step, and together they must bring every tensor to
// each of its readers, every gradient back to its producer, and every parameter through the step.
//
// A tensor with one reader has an edge from its root to that reader. With several, there is a copy
// below the root, and a group node below the copy for every two or more like readers (equal rule,
// equal operand position) where there are other readers besides. Inputs and parameters choose their
// own layout, so their root plays the copy. An edge has at most one redistribution per phase; where
// it has none, both sides must hold the same data.
#include <algorithm>
#include <numeric>

#include "lib/text.h"
#include "plan/check_plan_parts.h"

namespace meshplan::checking {
namespace {

std::size_t at(int index) { return static_cast<std::size_t>(index); }

const PlanTensor& entry_of(const Context& context, std::size_t tensor) {
  return context.plan.tensors[at(context.tensor_entry[tensor])];
}

std::string names_of(const std::vector<std::string>& axes) {
  std::string text;
  for (const std::string& axis : axes) text += (text.empty() ? "" : ",") + axis;
  return text;
}

// ---- One redistribution -------------------------------------------------------------------------

struct Reached {
  std::size_t tensor = 0;
  std::vector<int> uses;  ///< into Tensor::uses, sorted
};

/// The tensor and the readers that an entry names; reports what does not exist.
std::optional<Reached> resolve(Context& context,
                               const PlanRedistribution& entry,
                               const std::string& pointer) {
  const auto found = context.tensor_ids.find(entry.tensor);
  if (found == context.tensor_ids.end()) {
    context.report(
        pointer + "/tensor", "a tensor of the graph", entry.tensor, "the graph has no such tensor");
    return std::nullopt;
  }
  Reached reached{found->second, {}};
  const Tensor& tensor = context.graph.tensors[reached.tensor];
  const std::string producer = tensor.producer ? context.graph.op(*tensor.producer).name : "";
  if (entry.producer != producer) {
    context.report(
        pointer + "/producer", producer, entry.producer, "the tensor has another producer");
  }
  for (std::size_t c = 0; c < entry.consumers.size(); ++c) {
    const PlanUse& consumer = entry.consumers[c];
    std::vector<int> matching;
    for (std::size_t u = 0; u < tensor.uses.size(); ++u) {
      const Use& use = tensor.uses[u];
      if (context.graph.op(use.op).name == consumer.op &&
          (!consumer.operand || *consumer.operand == use.operand)) {
        matching.push_back(static_cast<int>(u));
      }
    }
    if (matching.size() != 1) {
      context.report(pointer + "/consumers/" + std::to_string(c),
                     "one reader of the tensor",
                     consumer.op,
                     matching.empty() ? "no such operator reads the tensor"
                                      : "the operator reads the tensor more than once; the entry "
                                        "must give the operand");
      return std::nullopt;
    }
    reached.uses.push_back(matching[0]);
  }
  std::sort(reached.uses.begin(), reached.uses.end());
  if (std::adjacent_find(reached.uses.begin(), reached.uses.end()) != reached.uses.end()) {
    context.report(
        pointer + "/consumers", "each reader once", "one twice", "a reader is named twice");
    return std::nullopt;
  }
  return reached;
}

/// A collective of a parameter or its gradient: small ones share a bucket's latency.
Seconds bucketed_time(const Context& context, const CollectiveCall& call) {
  const Bytes bucket = context.cluster.efficiency.bucket_bytes;
  const bool local = call.collective == Collective::kSlice || call.collective == Collective::kMask;
  if (local || bucket <= 0 || call.bytes >= bucket) return context.collectives->time(call);
  const double part = static_cast<double>(call.bytes) / static_cast<double>(bucket);
  return on_price_grid(part * context.collectives->time({call.collective, call.axes, bucket}));
}

/// Composes the steps, checks their bytes and times.
void compose(
    Context& context, std::size_t number, const Tensor& tensor, Bytes element, bool bucketed) {
  const PlanRedistribution& entry = context.plan.redistributions[number];
  MoveView& move = context.moves[number];
  const std::string pointer = pointer_to("redistributions", static_cast<int>(number));
  const auto from = cuts_of(entry.from, tensor.shape.size(), context.mesh);
  const auto to = cuts_of(entry.to, tensor.shape.size(), context.mesh);
  if (!from || !to) {
    context.report(pointer + (from ? "/to" : "/from"),
                   "a layout of the tensor",
                   to_string(from ? entry.to : entry.from),
                   "the placements do not fit the tensor");
    return;
  }
  Cuts now = *from;
  for (std::size_t s = 0; s < entry.steps.size(); ++s) {
    const PlanStep& step = entry.steps[s];
    const std::string place = pointer + "/steps/" + std::to_string(s);
    std::vector<int> axes;
    for (const std::string& name : step.axes) {
      const auto& names = context.plan.mesh.axes;
      const auto found = std::find(names.begin(), names.end(), name);
      const int axis = static_cast<int>(found - names.begin());
      if (found == names.end() || std::find(axes.begin(), axes.end(), axis) != axes.end()) {
        context.report(
            place + "/axes", "axes of the mesh, each once", name, "the step names a wrong axis");
        return;
      }
      if (context.axis_size(axis) > 1) axes.push_back(axis);
    }
    const Cuts before = now;
    if (const std::string wrong = apply_step(step, axes, tensor.shape, context.mesh, now);
        !wrong.empty()) {
      context.report(place,
                     "a step that is possible from " + text_of(before, context.mesh),
                     collective_name(step.collective),
                     wrong);
      return;
    }
    const auto after = cuts_of(step.placements, tensor.shape.size(), context.mesh);
    if (!after || *after != now) {
      context.report(place + "/placements",
                     text_of(now, context.mesh),
                     to_string(step.placements),
                     "the step leads to another layout");
      return;
    }
    if (!local_shape_of(now, tensor.shape, context.mesh, context.uneven())) {
      context.report(place + "/placements",
                     "a layout that divides the tensor",
                     to_string(step.placements),
                     "the step cuts the tensor unevenly");
      return;
    }
    if (step.collective == Collective::kPermute) {
      std::vector<int> named = axes;
      std::sort(named.begin(), named.end());
      if (named != changed_axes(before, now, context.mesh)) {
        context.report(place + "/axes",
                       "the axes whose part in the layout changes",
                       names_of(step.axes),
                       "the permute runs along other axes");
      }
      if (const std::string wrong_pair =
              wrong_pairs(step.pairs, before, now, context.mesh, context.plan.mesh.ranks);
          !wrong_pair.empty()) {
        context.report(place + "/pairs",
                       "the pairs that lead from one layout to the other",
                       counted(step.pairs.size(), "pair"),
                       wrong_pair);
      }
    }
    // the larger side; what a slice or a mask writes
    const bool shrinks = step.collective == Collective::kReduceScatter;
    CollectiveCall call{step.collective, context.axis_set(axes), 0};
    call.bytes = context.local_bytes(shrinks ? before : now, tensor.shape, element);
    context.expect(place + "/bytes",
                   context.collectives->moved(call),
                   step.bytes,
                   "the step moves another number of bytes");
    move.times.push_back(bucketed ? bucketed_time(context, call) : context.collectives->time(call));
    context.expect(place + "/time", move.times.back(), step.time, "the step takes another time");
  }
  // equal values are their own average: R -> P(avg) needs no step
  Cuts averaged = now;
  for (std::size_t axis = 0; axis < context.mesh.size(); ++axis) {
    if (!averaged.reductions[axis] && to->reductions[axis] == Reduction::kAvg) {
      averaged.reductions[axis] = Reduction::kAvg;
    }
  }
  if (now != *to && averaged != *to) {
    context.report(pointer + "/to",
                   text_of(now, context.mesh),
                   to_string(entry.to),
                   "the steps end in another layout");
    return;
  }
  move.from = *from;
  move.to = *to;
  move.valid = true;
}

// ---- The tree of one tensor ---------------------------------------------------------------------

/// The edges of the tree, without layouts.
void build_tree(const Graph& graph, std::size_t id, TensorView& view) {
  const Tensor& tensor = graph.tensors[id];
  view.nodes.resize(1);
  const std::size_t readers = tensor.uses.size();
  if (!tensor.producer && (tensor.role == Role::kConstant || readers <= 1)) {
    view.direct = true;
    return;
  }
  const auto add_edge = [&](int from, int to, std::vector<int> uses) {
    Edge edge;
    edge.from = from;
    edge.to = to;
    if (to < 0) edge.use = uses[0];
    edge.uses = std::move(uses);
    view.edges.push_back(std::move(edge));
  };
  const auto add_node = [&] {
    view.nodes.emplace_back();
    return static_cast<int>(view.nodes.size()) - 1;
  };
  if (readers == 1) add_edge(0, -1, {0});
  if (readers <= 1) return;
  std::vector<std::vector<int>> groups;
  for (std::size_t u = 0; u < readers; ++u) {
    const Use& use = tensor.uses[u];
    const auto like = [&](const std::vector<int>& group) {
      const Use& first = tensor.uses[at(group[0])];
      return first.operand == use.operand &&
             graph.op(first.op).rule->text == graph.op(use.op).rule->text;
    };
    const auto found = std::find_if(groups.begin(), groups.end(), like);
    if (found == groups.end()) {
      groups.push_back({static_cast<int>(u)});
    } else {
      found->push_back(static_cast<int>(u));
    }
  }
  int copy = 0;
  if (tensor.producer) {
    std::vector<int> all(readers);
    std::iota(all.begin(), all.end(), 0);
    copy = add_node();
    add_edge(0, copy, std::move(all));
  }
  for (const std::vector<int>& group : groups) {
    int node = copy;
    if (group.size() > 1 && groups.size() > 1) {
      node = add_node();
      add_edge(copy, node, group);
    }
    for (const int use : group) add_edge(node, -1, {use});
  }
}

/// The slot of the tree that an entry fills, or nullptr.
int* slot_of(const Graph& graph,
             std::size_t id,
             const PlanRedistribution& entry,
             const std::vector<int>& uses,
             TensorView& view) {
  const Tensor& tensor = graph.tensors[id];
  const bool parameter = tensor.role == Role::kParameter;
  if (entry.consumers.empty()) {
    if (entry.phase == Phase::kUpdate && parameter && entry.per == Per::kStep) return &view.update;
    if (entry.phase == Phase::kForward && tensor.producer && entry.per == Per::kMicrobatch) {
      return &view.end;
    }
    return nullptr;
  }
  if (parameter && uses.size() == tensor.uses.size()) {
    if (entry.phase == Phase::kGradient) {
      return entry.per == Per::kStep ? &view.finish : &view.reduce;
    }
    if (entry.per == Per::kStep) return nullptr;
    if (entry.phase == Phase::kForward) return &view.gather;
    if (entry.phase == Phase::kRegather) return &view.regather;
    return nullptr;
  }
  if (entry.per == Per::kStep) return nullptr;
  for (Edge& edge : view.edges) {
    if (edge.uses != uses) continue;
    if (entry.phase == Phase::kForward) return &edge.forward;
    if (entry.phase == Phase::kRegather) return &edge.regather;
    if (entry.phase == Phase::kRecompute) return &edge.repeat;
    if (entry.phase == (parameter ? Phase::kGradient : Phase::kBackward)) return &edge.backward;
  }
  return nullptr;
}

void place_moves(Context& context) {
  for (std::size_t m = 0; m < context.plan.redistributions.size(); ++m) {
    const PlanRedistribution& entry = context.plan.redistributions[m];
    const std::string pointer = pointer_to("redistributions", static_cast<int>(m));
    const auto reached = resolve(context, entry, pointer);
    if (!reached) continue;
    const Tensor& tensor = context.graph.tensors[reached->tensor];
    TensorView& view = context.tensors[reached->tensor];
    const bool gradient = entry.phase == Phase::kBackward || entry.phase == Phase::kGradient;
    const bool has_side = has_gradient(context.graph, static_cast<TensorId>(reached->tensor));
    if ((gradient || entry.phase == Phase::kUpdate) && !has_side) {
      context.report(pointer + "/phase",
                     "a phase of the value",
                     phase_name(entry.phase),
                     "the tensor has no gradient");
      continue;
    }
    const bool again = entry.phase == Phase::kRegather || entry.phase == Phase::kRecompute;
    if (again && !context.graph.training) {
      context.report(pointer + "/phase",
                     "forward",
                     phase_name(entry.phase),
                     "there is no backward in inference");
      continue;
    }
    int* const slot = slot_of(context.graph, reached->tensor, entry, reached->uses, view);
    if (slot == nullptr) {
      context.report(pointer,
                     "",
                     std::string(phase_name(entry.phase)) + " per " + per_name(entry.per),
                     "no way of \"" + tensor.name + "\" to these readers has such a phase");
      continue;
    }
    if (*slot >= 0) {
      context.report(pointer,
                     "one entry",
                     pointer_to("redistributions", *slot) + " and this one",
                     "the tensor is brought to the same readers twice");
      continue;
    }
    *slot = static_cast<int>(m);
    const bool of_parameter = slot == &view.gather || slot == &view.regather ||
                              slot == &view.reduce || slot == &view.finish || slot == &view.update;
    const DType dtype =
        of_parameter && gradient ? context.cluster.efficiency.reduce_dtype : tensor.dtype;
    compose(context, m, tensor, dtype_bytes(dtype), of_parameter);
  }
}

// ---- Layouts along the tree ---------------------------------------------------------------------

class Chain {
 public:
  Chain(Context& context, std::size_t id)
      : context_(context),
        id_(id),
        tensor_(context.graph.tensors[id]),
        entry_(entry_of(context, id)),
        view_(context.tensors[id]),
        pointer_(pointer_to_tensor(tensor_.name)),
        gradient_side_(has_gradient(context.graph, static_cast<TensorId>(id)) &&
                       entry_.gradient.has_value()) {}

  void run() {
    if (!known()) return;
    view_.known = true;
    set_root();
    for (Edge& edge : view_.edges) add_edge(edge);
    if (tensor_.role == Role::kParameter) check_parameter();
    if (view_.direct) check_direct();
    check_end();
  }

 private:
  const Cuts* move_from(int move) const { return &context_.moves[at(move)].from; }
  const Cuts* move_to(int move) const { return &context_.moves[at(move)].to; }

  std::optional<Cuts> layout(const Placements& placements) const {
    return cuts_of(placements, tensor_.shape.size(), context_.mesh);
  }

  /// Are all operators and redistributions around the tensor valid?
  bool known() const {
    const auto legal = [&](OperatorId op) { return context_.operators[index(op)].legal; };
    const auto valid = [&](int move) { return move < 0 || context_.moves[at(move)].valid; };
    if (tensor_.producer && !legal(*tensor_.producer)) return false;
    for (const Use& use : tensor_.uses) {
      if (!legal(use.op)) return false;
    }
    for (const Edge& edge : view_.edges) {
      if (!valid(edge.forward) || !valid(edge.regather) || !valid(edge.repeat) ||
          !valid(edge.backward)) {
        return false;
      }
    }
    return valid(view_.gather) && valid(view_.regather) && valid(view_.reduce) &&
           valid(view_.finish) && valid(view_.update) && valid(view_.end) &&
           layout(entry_.placements) && (!gradient_side_ || layout(*entry_.gradient)) &&
           (!entry_.optimizer_state || layout(*entry_.optimizer_state));
  }

  void expect(const std::string& place,
              const Cuts& expected,
              const Cuts& found,
              const std::string& message) {
    if (expected == found) return;
    context_.report(
        place, text_of(expected, context_.mesh), text_of(found, context_.mesh), message);
  }

  void set_root() {
    Node& root = view_.nodes[0];
    root.value = *layout(entry_.placements);
    if (gradient_side_) root.gradient = *layout(*entry_.gradient);
    if (tensor_.producer) {
      const Operator& producer = context_.graph.op(*tensor_.producer);
      const OperatorView& made = context_.operators[index(*tensor_.producer)];
      const auto result = static_cast<std::size_t>(
          std::find(producer.outputs.begin(), producer.outputs.end(), static_cast<TensorId>(id_)) -
          producer.outputs.begin());
      expect(pointer_ + "/placements",
             made.results[result],
             root.value,
             "the tensor is not as its producer leaves it");
      root.value = made.results[result];
      if (gradient_side_) {
        expect(pointer_ + "/gradient",
               made.result_gradients[result],
               root.gradient,
               "the gradient is not as the producer receives it");
        root.gradient = made.result_gradients[result];
      }
    } else if (root.value.has_partial()) {
      context_.report(pointer_ + "/placements",
                      "no Partial",
                      to_string(entry_.placements),
                      "only an operator's result can be Partial");
    }
    if (view_.gather >= 0) {
      expect(pointer_to("redistributions", view_.gather) + "/from",
             root.value,
             *move_from(view_.gather),
             "the parameter is not gathered from where it rests");
      root.value = *move_to(view_.gather);
    }
    if (view_.reduce >= 0) root.gradient = *move_from(view_.reduce);
  }

  const Cuts& operand(const Use& use) const {
    return context_.operators[index(use.op)].operands[at(use.operand)];
  }
  const Cuts& operand_gradient(const Use& use) const {
    return context_.operators[index(use.op)].gradients[at(use.operand)];
  }
  std::string reader(const Edge& edge) const {
    const Use& use = tensor_.uses[at(edge.uses[0])];
    std::string text =
        "operand " + std::to_string(use.operand) + " of \"" + context_.graph.op(use.op).name + "\"";
    if (edge.uses.size() > 1) text += " and " + std::to_string(edge.uses.size() - 1) + " more";
    return text;
  }

  void add_edge(Edge& edge) {
    const Node near = view_.nodes[at(edge.from)];
    if (edge.to < 0) {
      edge.value = operand(tensor_.uses[at(edge.use)]);
      edge.gradient = operand_gradient(tensor_.uses[at(edge.use)]);
    } else {
      edge.value = edge.forward < 0 ? near.value : *move_to(edge.forward);
      edge.gradient = edge.backward < 0 ? near.gradient : *move_from(edge.backward);
      view_.nodes[at(edge.to)] = {edge.value, edge.gradient};
    }
    check_way(edge.forward, near.value, edge.value, "", edge);
    if (edge.regather >= 0) {
      check_way(edge.regather, near.value, edge.value, " for the backward", edge);
    }
    if (edge.repeat >= 0) {
      check_way(edge.repeat, near.value, edge.value, " once more", edge);
    }
    if (gradient_side_) {
      check_way(edge.backward, edge.gradient, near.gradient, "'s gradient", edge);
    }
  }

  /// The entry must lead from `from` to `to`; without one they must be equal.
  void check_way(
      int move, const Cuts& from, const Cuts& to, const std::string& what, const Edge& edge) {
    if (move < 0) {
      if (from == to) return;
      context_.report("/redistributions",
                      text_of(from, context_.mesh) + " to " + text_of(to, context_.mesh),
                      "",
                      "nothing brings \"" + tensor_.name + "\"" + what +
                          (what == "'s gradient" ? " back from " : " to ") + reader(edge));
      return;
    }
    const std::string place = pointer_to("redistributions", move);
    expect(place + "/from",
           from,
           *move_from(move),
           "the chain of \"" + tensor_.name + "\"" + what + " at " + reader(edge) + " is broken");
    expect(place + "/to",
           to,
           *move_to(move),
           "the chain of \"" + tensor_.name + "\"" + what + " at " + reader(edge) + " is broken");
  }

  bool read_after_forward() const {
    return std::any_of(tensor_.uses.begin(), tensor_.uses.end(), [&](const Use& use) {
      return context_.schedule.repeats[index(use.op)] ||
             needs_operand(context_.graph, context_.graph.op(use.op), at(use.operand));
    });
  }

  void check_parameter() {
    const bool again = view_.gather >= 0 && context_.graph.training && read_after_forward();
    if (again != (view_.regather >= 0)) {
      context_.report(
          view_.regather >= 0 ? pointer_to("redistributions", view_.regather) : "/redistributions",
          again ? "a regather" : "none",
          again ? "none" : "a regather",
          "a sharded parameter is gathered again exactly where the backward or recomputation of "
          "a reader of \"" +
              tensor_.name + "\" needs it");
    } else if (again) {
      expect(pointer_to("redistributions", view_.regather) + "/from",
             *move_from(view_.gather),
             *move_from(view_.regather),
             "the regather does not repeat the gather");
      expect(pointer_to("redistributions", view_.regather) + "/to",
             *move_to(view_.gather),
             *move_to(view_.regather),
             "the regather does not repeat the gather");
    }
    if (!gradient_side_ || !entry_.optimizer_state) return;
    const Cuts accumulated = *layout(*entry_.gradient);
    const Cuts state = *layout(*entry_.optimizer_state);
    const Cuts rest = *layout(entry_.placements);
    if (view_.reduce >= 0) {
      expect(pointer_to("redistributions", view_.reduce) + "/to",
             accumulated,
             *move_to(view_.reduce),
             "the gradient is not accumulated as it is reduced");
    }
    Cuts reduced = accumulated;
    if (view_.finish >= 0) {
      expect(pointer_to("redistributions", view_.finish) + "/from",
             accumulated,
             *move_from(view_.finish),
             "the last reduction does not start at the gradient");
      reduced = *move_to(view_.finish);
    }
    expect(pointer_ + "/optimizer_state",
           reduced,
           state,
           "the gradient does not reach the optimizer in the layout of its state");
    if (context_.plan.options.optimizer == "none") return;
    if (view_.update < 0) {
      expect(pointer_ + "/placements",
             state,
             rest,
             "nothing brings the updated parameter to where it rests");
      return;
    }
    expect(pointer_to("redistributions", view_.update) + "/from",
           state,
           *move_from(view_.update),
           "the update does not start at the optimizer's state");
    expect(pointer_to("redistributions", view_.update) + "/to",
           rest,
           *move_to(view_.update),
           "the update does not end where the parameter rests");
  }

  /// Without a tree of its own the tensor lies as its (first) reader wants it.
  void check_direct() {
    if (tensor_.uses.empty()) return;
    const Use& first = tensor_.uses[0];
    expect(pointer_ + "/placements",
           operand(first),
           view_.nodes[0].value,
           "the tensor is not in the layout of \"" + context_.graph.op(first.op).name + "\"");
    if (gradient_side_) {
      expect(pointer_ + "/gradient",
             operand_gradient(first),
             view_.nodes[0].gradient,
             "the gradient is not as \"" + context_.graph.op(first.op).name + "\" leaves it");
    }
  }

  void check_end() {
    const auto& outputs = context_.graph.outputs;
    const bool ends =
        tensor_.producer &&
        (tensor_.role == Role::kLoss ||
         std::find(outputs.begin(), outputs.end(), static_cast<TensorId>(id_)) != outputs.end());
    Cuts whole = view_.nodes[0].value;
    for (auto& reduction : whole.reductions) reduction.reset();
    const bool needed = ends && view_.nodes[0].value.has_partial();
    if (needed != (view_.end >= 0)) {
      context_.report(
          view_.end >= 0 ? pointer_to("redistributions", view_.end) : "/redistributions",
          needed ? text_of(whole, context_.mesh) : "none",
          needed ? "none" : to_string(context_.plan.redistributions[at(view_.end)].to),
          "\"" + tensor_.name + "\" must end without Partial, and only outputs end");
    } else if (needed) {
      expect(pointer_to("redistributions", view_.end) + "/from",
             view_.nodes[0].value,
             *move_from(view_.end),
             "the end does not start at the result");
      expect(pointer_to("redistributions", view_.end) + "/to",
             whole,
             *move_to(view_.end),
             "an output must end without Partial and otherwise as it is");
    }
  }

  Context& context_;
  std::size_t id_;
  const Tensor& tensor_;
  const PlanTensor& entry_;
  TensorView& view_;
  std::string pointer_;
  bool gradient_side_;
};

}  // namespace

Seconds MoveView::total() const {
  Seconds sum;
  for (const Seconds time : times) sum += time;
  return sum;
}

void check_moves(Context& context) {
  context.tensors.assign(context.graph.tensors.size(), {});
  context.moves.assign(context.plan.redistributions.size(), {});
  for (std::size_t t = 0; t < context.tensors.size(); ++t) {
    build_tree(context.graph, t, context.tensors[t]);
  }
  place_moves(context);
  for (std::size_t t = 0; t < context.tensors.size(); ++t) Chain(context, t).run();
}

}  // namespace meshplan::checking

// SPDX-License-Identifier: Apache-2.0
// Saved values, memory and times of the whole step.
//
// Moments: operator i of N runs forward at moment i, then everything runs backward in reverse
// order, with recomputations in between (check_plan_recompute.cpp). Everything that occupies memory
// does so over a range of moments that follows from who reads it when (docs/cost_model.md,
// "Memory"); the walk adds the ranges up and finds the fullest moment. Times are added up the same
// way, and the simulated step is repeated on two tracks.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "plan/check_plan_parts.h"

namespace meshplan::checking {
namespace {

std::size_t at(int index) { return static_cast<std::size_t>(index); }

/// The earliest and the latest of some moments.
struct Extent {
  int first = -1;
  int last = -1;

  bool empty() const { return first < 0; }
  void join(int moment) { join(Extent{moment, moment}); }
  void join(const Extent& other) {
    if (other.empty()) return;
    first = empty() ? other.first : std::min(first, other.first);
    last = std::max(last, other.last);
  }
};

/// Who reads what hangs below a point of a tree, views seen through.
struct Readers {
  Extent forward;  ///< operator numbers
  Extent stored;   ///< moments at which what is stored is read
  Extent remade;   ///< of a remade value: when each reader takes it anew

  void join(const Readers& other) {
    forward.join(other.forward);
    stored.join(other.stored);
    remade.join(other.remade);
  }
};

/// What the walk needs to know about a tensor's tree.
struct TreeLife {
  std::vector<Readers> below_node;
  std::vector<Readers> below_edge;
  std::vector<bool> saves;   ///< per edge: the far side's value is needed by the backward
  std::vector<bool> stored;  ///< per node: kept there for several, or by its producer
};

/// Something that lies in memory over a half-open range of moments.
struct Stay {
  MemoryKind kind = MemoryKind::kParameters;
  int begin = 0;
  int end = 0;
  Bytes bytes = 0;
  const std::string* owner = nullptr;  ///< a tensor's name, of workspace an operator's
};

/// What one kind of work or collective takes per step.
struct Spent {
  Seconds objective;
  Seconds time;
  Bytes bytes = 0;
};

/// Stays at the largest number where it would overflow.
Bytes product_or_most(Bytes a, Bytes b) {
  Bytes made = 0;
  return __builtin_mul_overflow(a, b, &made) ? std::numeric_limits<Bytes>::max() : made;
}
Bytes sum_or_most(Bytes a, Bytes b) {
  Bytes made = 0;
  return __builtin_add_overflow(a, b, &made) ? std::numeric_limits<Bytes>::max() : made;
}

struct Track {
  Seconds compute;
  Seconds blocking;
  Seconds before;  ///< gathers that the moment waits for
  Seconds beside;
  Seconds after;
  Seconds after_last;
  // what these take from the computation
  Seconds before_drag;
  Seconds beside_drag;
  Seconds after_drag;
  Seconds after_last_drag;
};

class Totals {
 public:
  explicit Totals(Context& context)
      : context_(context),
        graph_(context.graph),
        operators_(static_cast<int>(context.graph.operators.size())),
        moments_(static_cast<int>(context.schedule.names.size())),
        changes_(kMemoryKinds, std::vector<Bytes>(at(moments_) + 1, 0)),
        tracks_(at(moments_)),
        charged_(at(operators_)),
        lives_(context.graph.tensors.size()) {}

  void run() {
    measure();
    for (std::size_t t = 0; t < graph_.tensors.size(); ++t) check_saved(t);
    for (int i = 0; i < operators_; ++i) add_operator(i);
    for (std::size_t t = 0; t < graph_.tensors.size(); ++t) add_tensor(t);
    context_.derived.emplace();
    compare_memory();
    compare_shares();
    compare_times();
    compare_breakdown();
  }

 private:
  int backward_of(int op) const { return context_.schedule.backward_moment[at(op)]; }
  int repeat_of(int op) const { return context_.schedule.repeat_moment[at(op)]; }
  bool remade(std::size_t tensor) const { return context_.schedule.remade[tensor]; }
  const TensorView& view(std::size_t tensor) const { return context_.tensors[tensor]; }
  const PlanTensor& entry(std::size_t tensor) const {
    return context_.plan.tensors[at(context_.tensor_entry[tensor])];
  }
  bool is_view(const Operator& op) const { return op.rule->family == OperatorFamily::kView; }

  // ---- Lifetimes --------------------------------------------------------------------------------

  /// From the last operator to the first, so that a view's result is known before its operand.
  void measure() {
    std::vector<std::size_t> order(graph_.tensors.size());
    for (std::size_t t = 0; t < order.size(); ++t) order[t] = t;
    const auto born = [&](std::size_t t) {
      const auto producer = graph_.tensors[t].producer;
      return producer ? static_cast<int>(index(*producer)) : -1;
    };
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return born(a) > born(b);
    });
    for (const std::size_t t : order) measure_tree(t);
  }

  void measure_tree(std::size_t id) {
    const Tensor& tensor = graph_.tensors[id];
    const TensorView& tree = view(id);
    TreeLife& life = lives_[id];
    life.below_node.resize(tree.nodes.size());
    life.below_edge.resize(tree.edges.size());
    life.saves.assign(tree.edges.size(), false);
    life.stored.assign(tree.nodes.size(), !tensor.producer);
    std::vector<int> savers(tree.nodes.size(), 0);
    for (std::size_t e = tree.edges.size(); e-- > 0;) {  // children come after their parents
      const Edge& edge = tree.edges[e];
      if (edge.to < 0) {
        life.below_edge[e] = reader_below(tensor.uses[at(edge.use)], remade(id));
        life.saves[e] = !life.below_edge[e].stored.empty();
      } else {
        life.below_edge[e] = life.below_node[at(edge.to)];
        life.stored[at(edge.to)] = savers[at(edge.to)] >= 2;
        life.saves[e] = life.stored[at(edge.to)];
      }
      life.below_node[at(edge.from)].join(life.below_edge[e]);
      savers[at(edge.from)] += life.saves[e] ? 1 : 0;
    }
    if (!tensor.producer) return;
    const Operator& producer = graph_.op(*tensor.producer);
    life.stored[0] = keeps_result(id) || savers[0] >= 2 ||
                     (is_view(producer) && !life.below_node[0].stored.empty());
  }

  Readers reader_below(const Use& use, bool of_remade) const {
    const Operator& op = graph_.op(use.op);
    const int number = static_cast<int>(index(use.op));
    const int repeat = repeat_of(number);
    Readers readers;
    readers.forward.join(number);
    if (repeat >= 0) (of_remade ? readers.remade : readers.stored).join(repeat);
    if (graph_.training && needs_operand(graph_, op, at(use.operand))) {
      readers.stored.join(backward_of(number));
      if (of_remade && repeat < 0) readers.remade.join(backward_of(number));
    }
    if (!is_view(op)) return readers;
    for (const TensorId result : op.outputs) {  // a view hands its readers through
      const Readers& through = lives_[index(result)].below_node[0];
      readers.forward.last = std::max(readers.forward.last, through.forward.last);
      readers.stored.join(through.stored);
      if (!of_remade) {
        readers.stored.join(through.remade);
      } else if (remade(index(result))) {
        readers.remade.join(through.remade);
      } else if (!through.stored.empty()) {
        readers.remade.join(through.stored.first);
      }
    }
    return readers;
  }

  bool keeps_result(std::size_t id) const {
    const Operator& producer = graph_.op(*graph_.tensors[id].producer);
    const auto result = static_cast<std::size_t>(
        std::find(producer.outputs.begin(), producer.outputs.end(), static_cast<TensorId>(id)) -
        producer.outputs.begin());
    return producer.rule->results[result].saved && runs_backward(graph_, producer);
  }

  // ---- Saved ------------------------------------------------------------------------------------

  void check_saved(std::size_t id) {
    const TensorView& tree = view(id);
    const TreeLife& life = lives_[id];
    const std::string pointer = pointer_to_tensor(graph_.tensors[id].name) + "/saved";
    struct Stored {
      Cuts layout;
      Saved how;
      std::set<std::string> must;  ///< readers that need it
      std::set<std::string> may;
    };
    std::vector<Stored> expected;
    for (std::size_t e = 0; e < tree.edges.size(); ++e) {
      const Edge& edge = tree.edges[e];
      check_repeat(id, edge, life.below_edge[e]);
      if (!life.saves[e]) {
        if (edge.regather >= 0) {
          context_.report(pointer_to("redistributions", edge.regather),
                          "none",
                          "a regather",
                          "no backward needs this value again");
        }
        continue;
      }
      const bool again = edge.regather >= 0;
      const Cuts& layout = again ? tree.nodes[at(edge.from)].value : edge.value;
      const Saved how = again ? Saved::kGathered : remade(id) ? Saved::kComputed : Saved::kKept;
      auto found = std::find_if(expected.begin(), expected.end(), [&](const Stored& stored) {
        return stored.how == how && stored.layout == layout;
      });
      if (found == expected.end()) found = expected.insert(found, {layout, how, {}, {}});
      for (const int use : edge.uses) {
        const Use& reader = graph_.tensors[id].uses[at(use)];
        found->may.insert(graph_.op(reader.op).name);
        if (!reader_below(reader, remade(id)).stored.empty())
          found->must.insert(graph_.op(reader.op).name);
      }
    }
    std::vector<bool> seen(expected.size(), false);
    for (std::size_t s = 0; s < entry(id).saved.size(); ++s) {
      const PlanSaved& saved = entry(id).saved[s];
      const std::string place = pointer + "/" + std::to_string(s);
      const auto layout = cuts_of(saved.placements, graph_.tensors[id].shape.size(), context_.mesh);
      const auto found = std::find_if(expected.begin(), expected.end(), [&](const Stored& stored) {
        return layout && stored.how == saved.backward && stored.layout == *layout;
      });
      if (found == expected.end()) {
        context_.report(place,
                        "",
                        to_string(saved.placements) + " " + saved_name(saved.backward),
                        "no reader's backward needs the tensor stored like this");
        continue;
      }
      const auto number = static_cast<std::size_t>(found - expected.begin());
      if (seen[number]) {
        context_.report(place,
                        "",
                        to_string(saved.placements) + " " + saved_name(saved.backward),
                        "the tensor is stored twice in the same way");
      }
      seen[number] = true;
      const std::set<std::string> names(saved.readers.begin(), saved.readers.end());
      if (names.size() != saved.readers.size()) {
        context_.report(
            place + "/for", "each operator once", "one twice", "an operator is named twice");
      }
      for (const std::string& name : found->must) {
        if (names.count(name) != 0) continue;
        context_.report(place + "/for", name, "", "a reader whose backward needs it is missing");
      }
      for (const std::string& name : names) {
        if (found->may.count(name) != 0) continue;
        context_.report(place + "/for", "", name, "this operator does not read the stored tensor");
      }
    }
    for (std::size_t s = 0; s < expected.size(); ++s) {
      if (seen[s]) continue;
      context_.report(pointer,
                      text_of(expected[s].layout, context_.mesh) + " " +
                          saved_name(expected[s].how) + " for " + *expected[s].may.begin(),
                      "",
                      "the backward needs the tensor, and the plan does not store it");
    }
  }

  /// A remade value travels again to whoever takes it anew, and nothing else does.
  void check_repeat(std::size_t id, const Edge& edge, const Readers& readers) {
    const std::string& name = graph_.tensors[id].name;
    const bool travels = edge.forward >= 0 && remade(id) && !readers.remade.empty();
    if (travels && edge.repeat < 0) {
      context_.report(pointer_to("redistributions", edge.forward),
                      "the same with the phase recompute",
                      "none",
                      "\"" + name + "\" is made again, and nothing brings it to its readers then");
    }
    if (!travels && edge.repeat >= 0) {
      context_.report(pointer_to("redistributions", edge.repeat),
                      "none",
                      "recompute",
                      "\"" + name + "\" does not travel once more");
    }
    if (remade(id) && edge.regather >= 0) {
      context_.report(pointer_to("redistributions", edge.regather),
                      "none",
                      "regather",
                      "\"" + name + "\" is made again, not stored");
    }
  }

  // ---- Adding up --------------------------------------------------------------------------------

  /// Half-open range of moments.
  void occupy(MemoryKind kind, int begin, int end, Bytes bytes, const std::string& owner) {
    begin = std::max(begin, 0);
    end = std::min(end, moments_);
    if (begin >= end || bytes == 0) return;
    std::vector<Bytes>& changes = changes_[static_cast<std::size_t>(kind)];
    changes[at(begin)] += bytes;
    changes[at(end)] -= bytes;
    stays_.push_back({kind, begin, end, bytes, &owner});
  }
  void occupy_always(MemoryKind kind, Bytes bytes, const std::string& owner) {
    occupy(kind, 0, moments_, bytes, owner);
  }

  /// Adds to the objective, on account of an operator.
  void charge(int op, CostKind kind, AxisSet axes, std::int64_t executions, const Spent& one) {
    const auto times = static_cast<double>(executions);
    Spent& all = spent_[{kind, axes}];
    all.objective += times * one.objective;
    all.time += times * one.time;
    all.bytes = sum_or_most(all.bytes, product_or_most(executions, one.bytes));
    charged_[at(op)] += times * one.objective;
    objective_ += times * one.objective;
  }

  /// Axes of size 1 left out.
  AxisSet axes_of(const std::vector<std::string>& names) const {
    std::vector<int> axes;
    for (std::size_t axis = 0; axis < context_.mesh.size(); ++axis) {
      const bool named =
          std::find(names.begin(), names.end(), context_.plan.mesh.axes[axis]) != names.end();
      if (named && context_.mesh[axis] > 1) axes.push_back(static_cast<int>(axis));
    }
    return context_.axis_set(axes);
  }

  Seconds per_step(Seconds time) const { return context_.microbatches() * time; }

  /// A collective of one micro-batch at a moment.
  void communicate(int moment, Hiding hiding, Seconds time) {
    communication_ += per_step(time);
    Track& track = tracks_[at(moment)];
    if (hiding == Hiding::kActivation) {
      track.blocking += time;
      return;
    }
    if (hiding == Hiding::kGradient) {
      run_beside(hiding, time, track.after, track.after_drag);
    } else if (hiding == Hiding::kGather) {
      run_beside(hiding, time, track.before, track.before_drag);
    } else {
      run_beside(hiding, time, track.beside, track.beside_drag);
    }
  }
  void communicate_steps(int moment, Hiding hiding, int move) {
    for (const Seconds time : context_.moves[at(move)].times) communicate(moment, hiding, time);
  }
  void run_beside(Hiding hiding, Seconds time, Seconds& network, Seconds& drag) const {
    if (context_.hidden(hiding) > 0) network += time;
    drag += context_.exposed(hiding, time);
  }

  void add_operator(int number) {
    const auto id = static_cast<OperatorId>(number);
    const Operator& op = graph_.op(id);
    const OperatorView& made = context_.operators[at(number)];
    const OperatorTimes times = operator_times(context_, id);
    const std::vector<InnerMove> inner_moves_of = inner_moves(context_, id);
    const auto run = [&](int moment, Phase phase, Seconds compute) {
      if (moment < 0) return;
      const std::int64_t executions = context_.plan.options.microbatches;
      const Work work = phase == Phase::kRecompute ? Work::kRecompute : Work::kCompute;
      charge(number, work, 0, executions, {compute, compute, 0});
      compute_ += per_step(compute);
      tracks_[at(moment)].compute += compute;
      for (const InnerMove& inner : inner_moves_of) {
        const PlanCollective& collective = inner.collective;
        if (collective.phase != phase) continue;
        charge(
            number,
            collective.collective,
            inner.axes,
            product_or_most(executions, collective.count),
            {context_.exposed(inner.hiding, collective.time), collective.time, collective.bytes});
        communicate(moment, inner.hiding, static_cast<double>(collective.count) * collective.time);
      }
    };
    run(number, Phase::kForward, times.forward);
    run(repeat_of(number), Phase::kRecompute, times.forward);
    run(backward_of(number), Phase::kBackward, times.backward);
    const int repeat = repeat_of(number);
    const int backward = backward_of(number);
    occupy(MemoryKind::kWorkspace, number, number + 1, times.own_forward, op.name);
    if (repeat >= 0) occupy(MemoryKind::kWorkspace, repeat, repeat + 1, times.own_forward, op.name);
    occupy(MemoryKind::kWorkspace, std::max(number, repeat) + 1, backward, times.own_kept, op.name);
    if (backward >= 0)
      occupy(MemoryKind::kWorkspace, backward, backward + 1, times.own_backward, op.name);
    seed_formula_ += std::max(times.own_forward, times.own_backward);
    for (std::size_t i = 0; i < op.inputs.size(); ++i) {
      if (op.inputs[i]) seed_formula_ += context_.local_bytes(made.operands[i], *op.inputs[i]);
    }
    for (std::size_t r = 0; r < op.outputs.size(); ++r) {
      seed_formula_ += context_.local_bytes(made.results[r], op.outputs[r]);
    }
  }

  void add_tensor(std::size_t id) {
    const Tensor& tensor = graph_.tensors[id];
    const TensorView& tree = view(id);
    if (tensor.role == Role::kParameter && !tensor.uses.empty()) {
      add_parameter(id);
    } else if (tensor.producer) {
      add_result(id);
    } else if (!tensor.uses.empty()) {
      occupy_always(MemoryKind::kActivations, bytes_of(id, tree.nodes[0].value), tensor.name);
    }
    for (std::size_t e = 0; e < tree.edges.size(); ++e) add_edge(id, e);
  }

  Bytes bytes_of(std::size_t id, const Cuts& cuts) const {
    return context_.local_bytes(cuts, static_cast<TensorId>(id));
  }

  /// What is visible is rounded for all steps together: each is charged what it adds.
  void move_activation(int move, int moment, int account) {
    const std::vector<PlanStep>& steps = context_.plan.redistributions[at(move)].steps;
    const std::vector<Seconds>& times = context_.moves[at(move)].times;
    Seconds until;
    for (std::size_t s = 0; s < times.size(); ++s) {
      const Seconds before = context_.exposed(Hiding::kActivation, until);
      until += times[s];
      charge(account,
             steps[s].collective,
             axes_of(steps[s].axes),
             context_.plan.options.microbatches,
             {context_.exposed(Hiding::kActivation, until) - before, times[s], steps[s].bytes});
    }
    communicate(moment, Hiding::kActivation, until);
  }

  void add_result(std::size_t id) {
    const Tensor& tensor = graph_.tensors[id];
    const TensorView& tree = view(id);
    const TreeLife& life = lives_[id];
    const int born = static_cast<int>(index(*tensor.producer));
    if (tree.end >= 0) move_activation(tree.end, born, born);
    if (is_view(graph_.op(*tensor.producer))) return;  // no buffer of its own
    const Bytes bytes = bytes_of(id, tree.nodes[0].value);
    const Readers& readers = life.below_node[0];
    const int last = std::max(born, readers.forward.last);
    occupy(MemoryKind::kActivations, born, last + 1, bytes, tensor.name);
    int end = last + 1;  // of what it occupies without being stored
    if (remade(id)) {
      const int again = repeat_of(born);
      end = std::max(again, readers.remade.last) + 1;
      occupy(MemoryKind::kActivations, again, end, bytes, tensor.name);
    }
    if (life.stored[0]) {
      const int own = keeps_result(id) ? backward_of(born) : -1;
      occupy(MemoryKind::kActivations,
             end,
             std::max(own, readers.stored.last) + 1,
             bytes,
             tensor.name);
    }
    if (has_gradient(graph_, static_cast<TensorId>(id)) && tensor.role != Role::kLoss) {
      occupy(
          MemoryKind::kActivations, backward_of(last), backward_of(born) + 1, bytes, tensor.name);
    }
  }

  void add_edge(std::size_t id, std::size_t e) {
    const Tensor& tensor = graph_.tensors[id];
    const TensorView& tree = view(id);
    const TreeLife& life = lives_[id];
    const Edge& edge = tree.edges[e];
    const Readers& readers = life.below_edge[e];
    const Bytes near_bytes = bytes_of(id, tree.nodes[at(edge.from)].value);
    const Bytes far_bytes = bytes_of(id, edge.value);
    const Readers& near = life.below_node[at(edge.from)];
    const int last_of_near = remade(id) ? near.remade.last : std::max(near.forward.last, 0);
    const int saved_until = readers.stored.last + 1;
    const bool near_must_store = life.saves[e] && !life.stored[at(edge.from)];
    if (edge.forward >= 0)
      move_activation(edge.forward, readers.forward.first, readers.forward.first);
    if (edge.forward < 0) {
      if (near_must_store)
        occupy(MemoryKind::kActivations, last_of_near + 1, saved_until, near_bytes, tensor.name);
    } else if (remade(id)) {
      occupy(MemoryKind::kBuffers,
             readers.forward.first,
             readers.forward.last + 1,
             far_bytes,
             tensor.name);
      if (edge.repeat >= 0 && !readers.remade.empty()) {
        move_activation(edge.repeat, readers.remade.first, readers.forward.first);
        occupy(life.saves[e] ? MemoryKind::kActivations : MemoryKind::kBuffers,
               readers.remade.first,
               life.saves[e] ? saved_until : readers.remade.last + 1,
               far_bytes,
               tensor.name);
      }
    } else if (life.saves[e] && edge.regather < 0) {
      occupy(MemoryKind::kActivations, readers.forward.first, saved_until, far_bytes, tensor.name);
    } else {
      occupy(MemoryKind::kBuffers,
             readers.forward.first,
             readers.forward.last + 1,
             far_bytes,
             tensor.name);
      if (edge.regather >= 0 && !readers.stored.empty()) {
        move_activation(edge.regather, readers.stored.first, readers.forward.first);
        occupy(MemoryKind::kBuffers, readers.stored.first, saved_until, far_bytes, tensor.name);
        if (near_must_store)
          occupy(MemoryKind::kActivations, last_of_near + 1, saved_until, near_bytes, tensor.name);
      }
    }
    if (edge.backward >= 0) {
      const int first = backward_of(readers.forward.first);
      move_activation(edge.backward, first, readers.forward.first);
      occupy(MemoryKind::kBuffers,
             backward_of(readers.forward.last),
             first + 1,
             far_bytes,
             tensor.name);
    }
  }

  Bytes optimizer_bytes_per_element(DType dtype) const {
    const std::string& name = context_.plan.options.optimizer;
    if (name == "none") return 0;
    const Bytes master = dtype == DType::kFp32 || dtype == DType::kFp64 ? 0 : 4;
    return master + (name == "adamw" || name == "adam" ? 8 : name == "momentum" ? 4 : 0);
  }

  /// Steps of a parameter's redistribution, each hidden and rounded on its own. The visible part of
  /// one execution.
  Seconds charge_steps(int move, Hiding hiding, std::int64_t executions, int account) {
    const std::vector<PlanStep>& steps = context_.plan.redistributions[at(move)].steps;
    Seconds visible;
    for (std::size_t s = 0; s < context_.moves[at(move)].times.size(); ++s) {
      const Seconds time = context_.moves[at(move)].times[s];
      const Seconds part = context_.exposed(hiding, time);
      visible += part;
      charge(account,
             steps[s].collective,
             axes_of(steps[s].axes),
             executions,
             {part, time, steps[s].bytes});
    }
    return visible;
  }

  /// When a gathered parameter is there for recomputations and backwards.
  Extent read_again(const Tensor& parameter) const {
    Extent moments;
    for (const Use& use : parameter.uses) {
      const int op = static_cast<int>(index(use.op));
      const bool repeated = repeat_of(op) >= 0;
      if (repeated) moments.join(repeat_of(op));
      if (!repeated || needs_operand(graph_, graph_.op(use.op), at(use.operand)))
        moments.join(backward_of(op));
    }
    return moments;
  }

  void add_parameter(std::size_t id) {
    const Tensor& tensor = graph_.tensors[id];
    const TensorView& tree = view(id);
    const Cuts rest = *layout_of(id, entry(id).placements);
    const Bytes element = dtype_bytes(tensor.dtype);
    const Bytes gradient_element = dtype_bytes(context_.cluster.efficiency.reduce_dtype);
    occupy_always(
        MemoryKind::kParameters, context_.local_bytes(rest, tensor.shape, element), tensor.name);
    const int first = static_cast<int>(index(tensor.uses.front().op));
    const int last = static_cast<int>(index(tensor.uses.back().op));
    const std::int64_t microbatches = context_.plan.options.microbatches;
    if (tree.gather >= 0) {
      const Bytes whole = bytes_of(id, tree.nodes[0].value);
      occupy(
          MemoryKind::kGathered, context_.schedule.ahead[at(first)], last + 1, whole, tensor.name);
      charge_steps(tree.gather, Hiding::kGather, microbatches, first);
      communicate_steps(first, Hiding::kGather, tree.gather);
      if (tree.regather >= 0 && graph_.training) {
        const Extent again = read_again(tensor);
        occupy(MemoryKind::kGathered,
               context_.schedule.ahead[at(again.first)],
               again.last + 1,
               whole,
               tensor.name);
        charge_steps(tree.regather, Hiding::kGather, microbatches, first);
        communicate_steps(again.first, Hiding::kGather, tree.regather);
      }
    }
    if (!entry(id).gradient || !entry(id).optimizer_state) return;
    const Cuts accumulated = *layout_of(id, *entry(id).gradient);
    const Cuts state = *layout_of(id, *entry(id).optimizer_state);
    const Bytes state_elements = context_.local_bytes(state, tensor.shape, 1);
    const Bytes state_bytes = state_elements * optimizer_bytes_per_element(tensor.dtype);
    occupy_always(MemoryKind::kGradients,
                  context_.local_bytes(accumulated, tensor.shape, gradient_element),
                  tensor.name);
    occupy_always(MemoryKind::kOptimizer, state_bytes, tensor.name);
    if (tree.reduce >= 0) {
      occupy(MemoryKind::kGathered,
             backward_of(last),
             backward_of(first) + 1,
             context_.local_bytes(tree.nodes[0].gradient, tensor.shape, gradient_element),
             tensor.name);
      charge_steps(tree.reduce, Hiding::kGradient, microbatches, first);
      communicate_steps(backward_of(first), Hiding::kGradient, tree.reduce);
    }
    if (tree.finish >= 0) {
      const Seconds time = context_.moves[at(tree.finish)].total();
      charge_steps(tree.finish, Hiding::kGradient, 1, first);
      communication_ += time;
      Track& track = tracks_[at(backward_of(first))];
      for (const Seconds step : context_.moves[at(tree.finish)].times)
        run_beside(Hiding::kGradient, step, track.after_last, track.after_last_drag);
    }
    if (tree.update >= 0) {
      tail_ += charge_steps(tree.update, Hiding::kGather, 1, first);
      communication_ += context_.moves[at(tree.update)].total();
    }
    Seconds update;
    if (context_.plan.options.optimizer != "none") {
      update = context_.compute.optimizer_time(static_cast<double>(
          2 * state_elements * element + state_elements * gradient_element + 2 * state_bytes));
    }
    if (entry(id).update_time) {
      context_.expect(pointer_to_tensor(tensor.name) + "/update_time",
                      update,
                      *entry(id).update_time,
                      "the update takes another time");
    }
    charge(first, Work::kOptimizer, 0, 1, {update, update, 0});
    compute_ += update;
    tail_ += update;
  }

  std::optional<Cuts> layout_of(std::size_t id, const Placements& placements) const {
    return cuts_of(placements, graph_.tensors[id].shape.size(), context_.mesh);
  }

  // ---- Comparing --------------------------------------------------------------------------------

  const std::string& moment_name(int moment) const { return context_.schedule.names[at(moment)]; }

  void compare_memory() {
    const PlanMemory& memory = context_.plan.memory;
    std::array<Bytes, kMemoryKinds> now{};
    std::array<Bytes, kMemoryKinds> fullest{};
    Bytes peak = 0;
    int peak_moment = 0;
    for (int moment = 0; moment < moments_; ++moment) {
      Bytes total = 0;
      for (std::size_t kind = 0; kind < kMemoryKinds; ++kind) {
        now[kind] += changes_[kind][at(moment)];
        total += now[kind];
      }
      if (total <= peak) continue;
      peak = total;
      peak_moment = moment;
      fullest = now;
    }
    peak_moment_ = peak_moment;
    context_.derived->peak = peak;
    context_.expect("/memory/peak", peak, memory.peak, "the peak is another one");
    if (operators_ > 0 && memory.moment != moment_name(peak_moment)) {
      context_.report("/memory/moment",
                      moment_name(peak_moment),
                      memory.moment,
                      "the peak is at another moment");
    }
    const std::pair<const char*, Bytes> kinds[] = {{"parameters", memory.parameters},
                                                   {"gradients", memory.gradients},
                                                   {"optimizer", memory.optimizer},
                                                   {"activations", memory.activations},
                                                   {"gathered", memory.gathered},
                                                   {"buffers", memory.buffers},
                                                   {"workspace", memory.workspace}};
    for (std::size_t kind = 0; kind < kMemoryKinds; ++kind) {
      context_.expect(std::string("/memory/") + kinds[kind].first,
                      fullest[kind],
                      kinds[kind].second,
                      "this kind of memory differs at the peak");
    }
    context_.expect("/memory/seed_formula",
                    seed_formula_,
                    memory.seed_formula,
                    "the sum over all operators is another one");
    if (peak > memory.limit) {
      context_.report("/memory/limit",
                      "at least " + std::to_string(peak),
                      std::to_string(memory.limit),
                      "the plan does not fit the memory limit");
    }
    if (context_.plan.options.others.count("memory_limit") == 0) {
      const double reserve = context_.cluster.efficiency.allocator_reserve;
      const Bytes usable = context_.cluster.usable_memory();
      const Bytes limit =
          reserve == 0
              ? usable
              : static_cast<Bytes>(std::floor(static_cast<double>(usable) / (1 + reserve)));
      context_.expect("/memory/limit",
                      limit,
                      memory.limit,
                      "the limit is not what the cluster's devices offer");
    }
  }

  /// Whose memory it is at the peak.
  void compare_shares() {
    const std::vector<PlanMemoryShare>& shares = context_.plan.at_peak;
    if (shares.empty()) return;  // may be left out
    std::map<std::pair<std::string_view, MemoryKind>, Bytes> expected;
    for (const Stay& stay : stays_) {
      if (stay.begin <= peak_moment_ && peak_moment_ < stay.end)
        expected[{*stay.owner, stay.kind}] += stay.bytes;
    }
    for (std::size_t i = 0; i < shares.size(); ++i) {
      const std::string place = pointer_to("at_peak", static_cast<int>(i));
      const auto found = expected.find({shares[i].name, shares[i].kind});
      if (found == expected.end()) {
        context_.report(place,
                        "",
                        shares[i].name + ", " + memory_kind_name(shares[i].kind),
                        "nothing of that name and kind is in memory at the peak, or it stands here "
                        "twice");
        continue;
      }
      context_.expect(
          place + "/bytes", found->second, shares[i].bytes, "it takes another number of bytes");
      expected.erase(found);
    }
    for (const auto& [owner, bytes] : expected) {
      context_.report("/at_peak",
                      std::string(owner.first) + ", " + memory_kind_name(owner.second) + ", " +
                          std::to_string(bytes),
                      "",
                      "this part of the peak is missing");
    }
  }

  /// Where the objective goes.
  void compare_breakdown() {
    for (int op = 0; op < operators_; ++op) {
      const int number = context_.operator_entry[at(op)];
      const auto& objective = context_.plan.operators[at(number)].objective;
      if (!objective) continue;  // may be left out
      context_.expect(pointer_to("operators", number) + "/objective",
                      charged_[at(op)],
                      *objective,
                      "the operator has another part in the objective");
    }
    if (context_.plan.breakdown.empty()) return;  // may be left out
    std::erase_if(spent_, [](const auto& cell) {
      return cell.second.time.value == 0 && cell.second.bytes == 0;
    });
    for (std::size_t i = 0; i < context_.plan.breakdown.size(); ++i)
      compare_cell(context_.plan.breakdown[i], pointer_to("breakdown", static_cast<int>(i)));
    for (const auto& [what, spent] : spent_) {
      context_.report("/breakdown",
                      std::string(cost_kind_name(what.first)) + ", " +
                          number_text(spent.objective.value) + " s",
                      "",
                      "this part of the objective is missing");
    }
  }

  void compare_cell(const PlanCostCell& cell, const std::string& place) {
    const AxisSet axes = axes_of(cell.axes);
    const auto found = spent_.find({cell.kind, axes});
    if (found == spent_.end() ||
        static_cast<std::size_t>(std::popcount(axes)) != cell.axes.size()) {
      context_.report(place,
                      "",
                      cost_kind_name(cell.kind),
                      "nothing of this kind runs on these axes, or it stands here twice");
      return;
    }
    const Spent& spent = found->second;
    context_.expect(
        place + "/objective", spent.objective, cell.objective, "the parts add up to another sum");
    context_.expect(place + "/time", spent.time, cell.time, "the times add up to another sum");
    context_.expect(place + "/bytes", spent.bytes, cell.bytes, "the bytes add up to another sum");
    const auto* collective = std::get_if<Collective>(&cell.kind);
    const bool local = collective == nullptr || *collective == Collective::kSlice ||
                       *collective == Collective::kMask;
    const int level = local ? -1 : context_.collectives->level(axes);
    const std::string expected = level < 0 ? "null" : context_.cluster.levels[at(level)].name;
    const std::string given = cell.level ? *cell.level : "null";
    if (expected != given || cell.level.has_value() != (level >= 0))
      context_.report(place + "/level", expected, given, "the groups cross other levels");
    spent_.erase(found);
  }

  /// The step on one compute track and one communication track. Three micro-batches are walked;
  /// more take as long as the middle one each.
  Seconds simulate() const {
    const std::int64_t count = context_.plan.options.microbatches;
    const std::int64_t walked = std::min<std::int64_t>(count, 3);
    Seconds compute;
    Seconds network;
    Seconds middle;
    for (std::int64_t batch = 0; batch < walked; ++batch) {
      const Seconds begin = compute;
      std::vector<Seconds> arrival(tracks_.size());
      int next = 0;  // the first moment whose gathers have not started
      for (int moment = 0; moment < moments_; ++moment) {
        const Track& track = tracks_[at(moment)];
        while (next < moments_ && context_.schedule.ahead[at(next)] <= moment) {
          const Track& ahead = tracks_[at(next)];
          if (ahead.before.value > 0) {
            network = std::max(network, compute) + ahead.before;
            arrival[at(next)] = network;
          }
          compute += ahead.before_drag;
          ++next;
        }
        const Seconds start = std::max(compute, arrival[at(moment)]);
        compute =
            start + track.blocking + std::max(track.compute + track.beside_drag, track.beside);
        if (track.after.value > 0) network = std::max(network, compute) + track.after;
        compute += track.after_drag;
        if (batch + 1 < walked) continue;
        if (track.after_last.value > 0) network = std::max(network, compute) + track.after_last;
        compute += track.after_last_drag;
      }
      if (batch == 1) middle = compute - begin;
    }
    return std::max(compute, network) + static_cast<double>(count - walked) * middle + tail_;
  }

  void compare_times() {
    const PlanCost& cost = context_.plan.cost;
    if (context_.plan.result.objective) {
      context_.expect("/result/objective",
                      objective_,
                      *context_.plan.result.objective,
                      "the prices of operators, redistributions and updates add up to another sum");
    }
    context_.expect("/cost/compute_time",
                    compute_,
                    cost.compute_time,
                    "the computation of operators and updates adds up to another sum");
    context_.expect("/cost/communication_time",
                    communication_,
                    cost.communication_time,
                    "the collectives add up to another sum");
    const Seconds step = simulate();
    context_.derived->objective = objective_;
    context_.derived->step_time = step;
    context_.derived->compute_time = compute_;
    context_.derived->communication_time = communication_;
    context_.expect("/cost/step_time", step, cost.step_time, "the simulated step ends elsewhere");
    context_.expect("/cost/exposed_communication_time",
                    cost.step_time - cost.compute_time,
                    cost.exposed_communication_time,
                    "exposed communication is step_time without compute_time");
    check_speed(cost);
    check_price(cost);
  }

  static bool close(double a, double b) { return std::abs(a - b) <= 1e-9 * std::abs(a); }

  /// The elements of the first integer input, else the rows of the first input, of all
  /// micro-batches.
  double tokens() const {
    const Tensor* rows = nullptr;
    for (const Tensor& tensor : graph_.tensors) {
      if (tensor.role != Role::kInput) continue;
      if (!is_floating(tensor.dtype)) {
        return context_.microbatches() * static_cast<double>(element_count(tensor.shape));
      }
      if (rows == nullptr) rows = &tensor;
    }
    if (rows == nullptr || rows->shape.empty()) return 0;
    return context_.microbatches() * static_cast<double>(rows->shape[0]);
  }

  /// FLOPs of the whole model's products per step (three times the forward's in training), over
  /// what all devices could do at the peak of the largest product's type.
  double utilization(double step_time, bool with_repeats = false) const {
    const double passes = graph_.training ? 3 : 1;
    double total = 0;
    double largest = -1;
    DType dtype = DType::kFp32;
    for (std::size_t o = 0; o < graph_.operators.size(); ++o) {
      const Operator& op = graph_.operators[o];
      const OperatorFamily family = op.rule->family;
      if (family != OperatorFamily::kMatMul && family != OperatorFamily::kAttention &&
          family != OperatorFamily::kConvolution) {
        continue;
      }
      std::vector<std::int64_t> sizes;
      for (const Factor& factor : op.rule->factors) sizes.push_back(factor.size);
      const double flops = op.rule->flops(sizes);
      total += flops * (with_repeats && context_.schedule.repeats[o] ? passes + 1 : passes);
      if (family == OperatorFamily::kMatMul && op.inputs[0] && flops > largest) {
        largest = flops;
        dtype = graph_.tensor(*op.inputs[0]).dtype;
      }
    }
    const double peak = context_.compute.peak_flops(OperatorFamily::kMatMul, dtype);
    return context_.microbatches() * total /
           (step_time * peak * static_cast<double>(context_.cluster.devices()));
  }

  void check_speed(const PlanCost& cost) {
    const double step = cost.step_time.value;
    const double speed = step > 0 ? tokens() / step : 0;
    const double used = step > 0 ? utilization(step) : 0;
    if (!close(speed, cost.tokens_per_second)) {
      context_.report("/cost/tokens_per_second",
                      number_text(speed),
                      number_text(cost.tokens_per_second),
                      "the speed is another one");
    }
    if (!close(used, cost.model_flops_utilization)) {
      context_.report("/cost/model_flops_utilization",
                      number_text(used),
                      number_text(cost.model_flops_utilization),
                      "the utilisation is another one");
    }
    const double hardware = step > 0 && context_.schedule.any ? utilization(step, true) : 0;
    if (!close(hardware, cost.hardware_flops_utilization.value_or(0))) {
      context_.report("/cost/hardware_flops_utilization",
                      number_text(hardware),
                      number_text(cost.hardware_flops_utilization.value_or(0)),
                      "the utilisation with recomputation is another one");
    }
  }

  void check_price(const PlanCost& cost) {
    const auto& hourly = context_.cluster.price_per_device_hour;
    if (hourly.has_value() != cost.price_per_step.has_value()) {
      context_.report("/cost/price_per_step",
                      hourly ? "a price" : "none",
                      hourly ? "none" : "a price",
                      "the price follows from the cluster's");
      return;
    }
    if (!hourly) return;
    const double price =
        *hourly * static_cast<double>(context_.cluster.devices()) * cost.step_time.value / 3600;
    if (close(price, *cost.price_per_step)) return;
    context_.report("/cost/price_per_step",
                    number_text(price),
                    number_text(*cost.price_per_step),
                    "the price is devices x hours x price per device and hour");
  }

  Context& context_;
  const Graph& graph_;
  int operators_;
  int moments_;
  std::vector<std::vector<Bytes>> changes_;  ///< per kind and moment
  std::vector<Track> tracks_;
  std::vector<Stay> stays_;
  int peak_moment_ = 0;
  std::vector<Seconds> charged_;  ///< per operator: its part in the objective
  std::map<std::pair<CostKind, AxisSet>, Spent> spent_;
  std::vector<TreeLife> lives_;
  Seconds objective_;
  Seconds compute_;
  Seconds communication_;
  Seconds tail_;
  Bytes seed_formula_ = 0;
};

}  // namespace

void check_totals(Context& context) {
  for (const OperatorView& op : context.operators) {
    if (!op.legal) return;
  }
  for (const TensorView& tensor : context.tensors) {
    if (!tensor.known) return;  // the reason has been reported
  }
  Totals(context).run();
}

}  // namespace meshplan::checking

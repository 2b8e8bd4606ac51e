// SPDX-License-Identifier: Apache-2.0
#include "cost_model/evaluate.h"

#include <algorithm>
#include <tuple>
#include <unordered_map>

#include "lib/check.h"

namespace meshplan {
namespace {

/// Bytes per moment and kind, as differences, and who takes them.
class MemoryProfile {
 public:
  explicit MemoryProfile(int moments)
      : moments_(moments), difference_(kMemoryKinds * (static_cast<std::size_t>(moments) + 1)) {}

  /// `owner`: the tensor or, of workspace, the operator.
  template <class Owner>
  void add(MemoryKind kind, MomentRange interval, Bytes bytes, Owner owner) {
    interval.begin = std::max(interval.begin, 0);
    interval.end = std::min(interval.end, moments_);
    if (interval.empty() || bytes == 0) return;
    at(kind, interval.begin) += bytes;
    at(kind, interval.end) -= bytes;
    shares_.push_back({{kind, index(owner), bytes}, interval});
  }
  void add_always(MemoryKind kind, Bytes bytes, TensorId owner) {
    add(kind, {0, moments_}, bytes, owner);
  }

  void finish(Evaluation& evaluation) {
    std::array<Bytes, kMemoryKinds> now{};
    evaluation.profile.reserve(static_cast<std::size_t>(moments_));
    for (int moment = 0; moment < moments_; ++moment) {
      Bytes total = 0;
      for (std::size_t kind = 0; kind < kMemoryKinds; ++kind) {
        now[kind] += at(static_cast<MemoryKind>(kind), moment);
        total += now[kind];
      }
      if (total > evaluation.peak) {
        evaluation.peak = total;
        evaluation.peak_moment = moment;
        evaluation.at_peak = now;
      }
      evaluation.profile.push_back(total);
    }
    evaluation.shares_at_peak = shares_at(evaluation.peak_moment);
  }

 private:
  struct Stay {
    MemoryShare share;
    MomentRange interval;
  };

  /// One per kind and owner.
  std::vector<MemoryShare> shares_at(int moment) const {
    std::vector<MemoryShare> there;
    for (const Stay& stay : shares_) {
      if (stay.interval.begin <= moment && moment < stay.interval.end) there.push_back(stay.share);
    }
    std::sort(there.begin(), there.end(), [](const MemoryShare& a, const MemoryShare& b) {
      return std::tie(a.kind, a.owner) < std::tie(b.kind, b.owner);
    });
    std::vector<MemoryShare> merged;
    for (const MemoryShare& share : there) {
      if (!merged.empty() && merged.back().kind == share.kind &&
          merged.back().owner == share.owner) {
        merged.back().bytes += share.bytes;
      } else {
        merged.push_back(share);
      }
    }
    return merged;
  }

  Bytes& at(MemoryKind kind, int moment) {
    return difference_[static_cast<std::size_t>(kind) * (static_cast<std::size_t>(moments_) + 1) +
                       static_cast<std::size_t>(moment)];
  }
  int moments_;
  std::vector<Bytes> difference_;
  std::vector<Stay> shares_;
};

/// Communication that runs beside the computation, and the part of its time, (1 - overlap), that
/// the computation is slowed down by.
struct Hidden {
  Seconds time;
  Seconds slows;
};

/// What happens at one moment of one micro-batch.
struct MomentTime {
  Seconds compute;
  Seconds blocking;   ///< collectives that stop the compute track
  Hidden gather;      ///< parameters: there before the moment, sent off when it may be prefetched
  Hidden ring;        ///< exchanges of ring attention, beside the moment's computation
  Hidden after;       ///< gradient reductions: start when the moment ends
  Hidden after_last;  ///< the same, in the last micro-batch only
};

/// One compute track and one communication track. `recorder` may be null.
Seconds simulate(const std::vector<MomentTime>& moments,
                 const Timeline& timeline,
                 std::int64_t microbatches,
                 Seconds tail,
                 const std::vector<Bytes>& memory,
                 StepRecorder* recorder) {
  using When = StepRecorder::When;
  // a micro-batch in the middle takes as long as any other: three are walked, the rest multiplied
  constexpr std::int64_t kWalked = 3;
  const std::int64_t walked = std::min(microbatches, kWalked);
  Seconds compute;
  Seconds network;
  Seconds middle;
  const auto send = [&](const Hidden& hidden, std::size_t moment, When when) {
    const bool beside = hidden.time.value > 0;
    if (recorder != nullptr) {
      recorder->collectives(moment, when, beside ? std::max(network, compute) : compute, beside);
      if (beside) recorder->slowdown(moment, compute, hidden.slows);
    }
    if (beside) network = std::max(network, compute) + hidden.time;
    compute += hidden.slows;
    return network;
  };
  std::vector<Seconds> gathered(moments.size());  // when what a moment reads is there
  for (std::int64_t m = 0; m < walked; ++m) {
    const Seconds begin = compute;
    if (recorder != nullptr) recorder->begin(m + 1 == walked ? microbatches - 1 : m);
    std::size_t asked = 0;  // moments whose gathers have been sent off
    for (std::size_t i = 0; i < moments.size(); ++i) {
      const MomentTime& moment = moments[i];
      while (asked < moments.size() &&
             timeline.prefetch(static_cast<int>(asked)) <= static_cast<int>(i)) {
        const Hidden& gather = moments[asked].gather;
        const Seconds done = send(gather, asked, When::kGather);
        gathered[asked++] = gather.time.value > 0 ? done : Seconds{};
      }
      const Seconds start = std::max(compute, gathered[i]);
      const Seconds computes = start + moment.blocking;
      if (recorder != nullptr) {
        const bool beside = moment.ring.time.value > 0;
        recorder->memory(start, memory[i]);
        recorder->collectives(i, When::kBlocking, start, false);
        recorder->compute(i, computes, moment.compute);
        recorder->collectives(i, When::kRing, beside ? computes : computes + moment.compute, false);
        if (beside) recorder->slowdown(i, computes + moment.compute, moment.ring.slows);
      }
      compute = computes + std::max(moment.compute + moment.ring.slows, moment.ring.time);
      send(moment.after, i, When::kAfter);
      if (m + 1 == walked) send(moment.after_last, i, When::kAfterLast);
    }
    if (m == 1) {  // the last one waits for the reductions of the step
      middle = compute - begin;
      if (recorder != nullptr) recorder->repeat(compute, microbatches - walked, middle);
    }
  }
  return std::max(compute, network) + static_cast<double>(microbatches - walked) * middle + tail;
}

bool is_parameter(const Tensor& tensor) {
  return tensor.role == Role::kParameter && !tensor.uses.empty();
}

class Evaluator {
 public:
  Evaluator(PriceBook& book, const Assignment& assignment)
      : book_(book),
        graph_(book.graph()),
        flow_(book.flow()),
        assignment_(assignment),
        memory_(flow_.moments()),
        times_(static_cast<std::size_t>(flow_.moments())) {
    evaluation_.breakdown = CostBreakdown(graph_.operators.size());
  }

  Evaluation run() {
    price();
    evaluation_.objective = evaluation_.breakdown.objective();
    evaluation_.step_time = simulated(nullptr);
    return std::move(evaluation_);
  }

  StepTrace trace() {
    StepRecorder recorder(flow_.timeline());
    recorder_ = &recorder;
    price();
    const Seconds end = simulated(&recorder);
    return recorder.finish(end - tail_, end);
  }

 private:
  /// Fills the moments, the memory and the tail.
  void price() {
    for (std::size_t i = 0; i < graph_.operators.size(); ++i)
      add_operator(static_cast<OperatorId>(i));
    for (const Transfer& transfer : flow_.transfers()) add_transfer(transfer);
    for (std::size_t v = 0; v < flow_.values().size(); ++v) add_value(static_cast<int>(v));
    for (std::size_t t = 0; t < graph_.tensors.size(); ++t) {
      if (is_parameter(graph_.tensors[t])) add_parameter(static_cast<TensorId>(t));
    }
    add_direct_inputs();
    memory_.finish(evaluation_);
  }

  Seconds simulated(StepRecorder* recorder) const {
    return simulate(times_,
                    flow_.timeline(),
                    book_.options().microbatches,
                    tail_,
                    evaluation_.profile,
                    recorder);
  }

  MomentTime& at(int moment) { return times_[static_cast<std::size_t>(moment)]; }

  /// `tensor`: what is moved; none inside an operator.
  static StepEvent exchange(Collective collective,
                            AxisSet axes,
                            std::optional<TensorId> tensor,
                            Seconds time) {
    StepEvent event;
    event.collective = collective;
    event.axes = axes;
    event.tensor = tensor;
    event.time = time;
    return event;
  }

  void record(int moment, StepRecorder::When when, const StepEvent& event) const {
    if (recorder_ != nullptr) recorder_->add(moment, when, event);
  }

  void communicate(int moment, OverlapKind kind, const StepEvent& event) {
    using When = StepRecorder::When;
    const Seconds time = event.time;
    evaluation_.communication += book_.per_step(time);
    const Overlap& overlap = book_.options().overlap;
    MomentTime& m = at(moment);
    switch (kind) {
      case OverlapKind::kActivation:
        m.blocking += time;
        return record(moment, When::kBlocking, event);
      case OverlapKind::kGradient:
        hide(m.after, kind, overlap.gradient, time);
        return record(moment, When::kAfter, event);
      case OverlapKind::kGather:
        hide(m.gather, kind, overlap.gather, time);
        return record(moment, When::kGather, event);
      case OverlapKind::kRing:
        hide(m.ring, kind, overlap.ring, time);
        return record(moment, When::kRing, event);
    }
  }

  /// What does not overlap at all only stops the computation.
  void hide(Hidden& hidden, OverlapKind kind, double overlap, Seconds time) const {
    if (overlap > 0) hidden.time += time;
    hidden.slows += book_.exposed(kind, time);
  }

  void add_operator(OperatorId id) {
    const Operator& op = graph_.op(id);
    const Strategy& strategy = assignment_.strategies[index(id)];
    MESHPLAN_AUDIT(book_.info(id).legal(strategy));
    const OperatorPrice& price = book_.shared_operator_price(id, strategy);
    evaluation_.compute += book_.per_step(price.compute());
    const Timeline& timeline = flow_.timeline();
    const std::int64_t microbatches = book_.options().microbatches;
    auto run = [&](int moment, Pass pass, Seconds compute) {
      at(moment).compute += compute;
      const Work work = pass == Pass::kRecompute ? Work::kRecompute : Work::kCompute;
      evaluation_.breakdown.add(id, microbatches, {work, 0, compute, compute, 0});
      for (const InnerCollective& inner : price.collectives) {
        if (inner.pass != pass) continue;
        communicate(moment,
                    inner.overlap,
                    exchange(inner.collective,
                             inner.axes,
                             std::nullopt,
                             static_cast<double>(inner.count) * inner.time));
        evaluation_.breakdown.add(id,
                                  microbatches * inner.count,
                                  {inner.collective,
                                   inner.axes,
                                   book_.exposed(inner.overlap, inner.time),
                                   inner.time,
                                   inner.moved});
      }
    };
    run(timeline.forward(id), Pass::kForward, price.forward);
    const bool again = timeline.recomputes(id);
    if (again) run(timeline.recompute(id), Pass::kRecompute, price.recompute);
    if (graph_.training) run(timeline.backward(id), Pass::kBackward, price.backward);
    const WorkspaceSpan span = workspace_span(flow_, id);
    memory_.add(MemoryKind::kWorkspace, span.forward, price.workspace.forward, id);
    memory_.add(MemoryKind::kWorkspace, span.recompute, price.workspace.forward, id);
    memory_.add(MemoryKind::kWorkspace, span.kept, price.workspace.kept, id);
    memory_.add(MemoryKind::kWorkspace, span.backward, price.workspace.backward, id);
    evaluation_.seed_formula += price.workspace.most() + price.touched;
    if (op.rule->family == OperatorFamily::kMatMul ||
        op.rule->family == OperatorFamily::kAttention ||
        op.rule->family == OperatorFamily::kConvolution) {
      const auto [known, added] = flops_.try_emplace(op.rule.get());
      if (added) {
        std::vector<std::int64_t> sizes;
        for (const Factor& factor : op.rule->factors) sizes.push_back(factor.size);
        known->second = op.rule->flops(sizes);
      }
      const double passes = graph_.training ? 3 : 1;  // the convention of model FLOPs
      const double flops = static_cast<double>(book_.options().microbatches) * known->second;
      evaluation_.model_flops += passes * flops;
      evaluation_.hardware_flops += (again ? passes + 1 : passes) * flops;
    }
  }

  void add_transfer(const Transfer& transfer) {
    const Value& from_value = flow_.values()[static_cast<std::size_t>(transfer.from)];
    const TensorId tensor = from_value.tensor;
    const TensorState from = value_state(book_, assignment_, transfer.from);
    const TensorState to = far_state(book_, assignment_, transfer);
    const int forward = transfer.copy.begin;
    const OperatorId reader = transfer.readers.front();
    const auto position = static_cast<std::size_t>(&transfer - flow_.transfers().data());
    const bool gathered = assignment_.gathered[position] != 0;
    const Bytes from_bytes = book_.local_bytes(tensor, from);
    const Bytes to_bytes = book_.local_bytes(tensor, to);
    const Redistribution* value = book_.forward_steps(tensor, from, to);
    const Redistribution* gradient = book_.gradient_steps(tensor, from, to);
    if (value == nullptr) {
      if (transfer.saves && !transfer.stored)
        memory_.add(MemoryKind::kActivations, transfer.same, from_bytes, tensor);
    } else if (transfer.again) {
      add_moves(*value, tensor, forward, reader);
      add_moves(*value, tensor, transfer.copy_again.begin, reader);
      memory_.add(MemoryKind::kBuffers, transfer.copy, to_bytes, tensor);
      if (transfer.saves) {
        memory_.add(MemoryKind::kActivations, transfer.kept, to_bytes, tensor);
      } else {
        memory_.add(MemoryKind::kBuffers, transfer.copy_again, to_bytes, tensor);
      }
    } else {
      add_moves(*value, tensor, forward, reader);
      if (!transfer.saves) {
        memory_.add(MemoryKind::kBuffers, transfer.copy, to_bytes, tensor);
      } else if (!gathered) {
        memory_.add(MemoryKind::kActivations, transfer.kept, to_bytes, tensor);
      } else {
        add_moves(*value, tensor, transfer.regathered.begin, reader);
        memory_.add(MemoryKind::kBuffers, transfer.copy, to_bytes, tensor);
        memory_.add(MemoryKind::kBuffers, transfer.regathered, to_bytes, tensor);
        if (!transfer.stored)
          memory_.add(MemoryKind::kActivations, transfer.same, from_bytes, tensor);
      }
    }
    if (gradient != nullptr) {
      add_moves(*gradient, tensor, transfer.gradient.end - 1, reader);
      memory_.add(MemoryKind::kBuffers, transfer.gradient, to_bytes, tensor);
    }
  }

  /// What is exposed is rounded for the whole sequence: a step is charged what it adds to that.
  void add_moves(const Redistribution& moves, TensorId tensor, int moment, OperatorId account) {
    Seconds time;
    Seconds exposed;
    for (const RedistributionStep& step : moves.steps) {
      time += step.time;
      const Seconds all = book_.exposed(OverlapKind::kActivation, time);
      evaluation_.breakdown.add(
          account,
          book_.options().microbatches,
          {step.collective, step.axes, all - exposed, step.time, step.bytes_moved});
      exposed = all;
      communicate(moment,
                  OverlapKind::kActivation,
                  exchange(step.collective, step.axes, tensor, step.time));
    }
  }

  void add_value(int number) {
    const Value& value = flow_.values()[static_cast<std::size_t>(number)];
    if (value.kind == ValueKind::kCopy || value.kind == ValueKind::kParameter) return;
    const Bytes bytes = book_.local_bytes(value.tensor, value_state(book_, assignment_, number));
    if (value.kind == ValueKind::kInput) {
      memory_.add_always(MemoryKind::kActivations, bytes, value.tensor);
      return;
    }
    memory_.add(MemoryKind::kActivations, value.live, bytes, value.tensor);
    memory_.add(MemoryKind::kActivations, value.again, bytes, value.tensor);
    memory_.add(MemoryKind::kActivations, value.kept, bytes, value.tensor);
    memory_.add(MemoryKind::kActivations, value.gradient, bytes, value.tensor);
    const Tensor& tensor = graph_.tensor(value.tensor);
    if (!ends_graph(graph_, value.tensor)) return;
    const TensorState state = value_state(book_, assignment_, number);
    const Redistribution* end = book_.forward_steps(value.tensor, state, book_.final_state(state));
    if (end != nullptr)
      add_moves(*end, value.tensor, flow_.timeline().forward(*tensor.producer), *tensor.producer);
  }

  void add_parameter(TensorId id) {
    const TensorState state = parameter_state(book_, assignment_, id);
    const ParameterPrice& price = book_.shared_parameter_price(
        id, state, assignment_.parameters[index(id)], parameter_read_again(graph_, flow_, id));
    const OperatorId account = graph_.tensor(id).uses.front().op;
    evaluation_.breakdown.add(account, 1, {Work::kOptimizer, 0, price.update, price.update, 0});
    evaluation_.compute += price.update;
    tail_ += price.update;
    if (recorder_ != nullptr) {
      StepEvent event;
      event.kind = StepEvent::Kind::kUpdate;
      event.tensor = id;
      event.time = event.duration = price.update;
      recorder_->add_to_tail(event);
    }
    memory_.add_always(MemoryKind::kParameters, price.rest_bytes, id);
    memory_.add_always(MemoryKind::kGradients, price.gradient_bytes, id);
    memory_.add_always(MemoryKind::kOptimizer, price.optimizer_bytes, id);
    const ParameterSpan span = parameter_span(graph_, flow_, id);
    memory_.add(MemoryKind::kGathered, span.gathered, price.gathered_bytes, id);
    if (price.gathered_backward)
      memory_.add(MemoryKind::kGathered, span.gathered_backward, price.gathered_bytes, id);
    memory_.add(MemoryKind::kGathered, span.unreduced, price.unreduced_bytes, id);
    for (const ParameterMove& move : price.moves) {
      const std::int64_t executions = move.per_step ? 1 : book_.options().microbatches;
      const OverlapKind overlap = move.kind == ParameterMove::Kind::kGradient
                                      ? OverlapKind::kGradient
                                      : OverlapKind::kGather;
      for (const RedistributionStep& step : move.steps) {
        evaluation_.breakdown.add(account,
                                  executions,
                                  {step.collective,
                                   step.axes,
                                   book_.exposed(overlap, step.time),
                                   step.time,
                                   step.bytes_moved});
        StepEvent event = exchange(step.collective, step.axes, id, step.time);
        switch (move.kind) {
          case ParameterMove::Kind::kForwardGather:
            communicate(span.first, OverlapKind::kGather, event);
            break;
          case ParameterMove::Kind::kBackwardGather:
            communicate(span.backward_first, OverlapKind::kGather, event);
            break;
          case ParameterMove::Kind::kUpdate:
            evaluation_.communication += step.time;
            event.kind = StepEvent::Kind::kBlocking;
            event.duration = book_.exposed(OverlapKind::kGather, step.time);
            tail_ += event.duration;
            if (recorder_ != nullptr) recorder_->add_to_tail(event);
            break;
          case ParameterMove::Kind::kGradient:
            if (!move.per_step) {
              communicate(span.backward_last, OverlapKind::kGradient, event);
            } else {
              record(span.backward_last, StepRecorder::When::kAfterLast, event);
              evaluation_.communication += step.time;
              hide(at(span.backward_last).after_last,
                   OverlapKind::kGradient,
                   book_.options().overlap.gradient,
                   step.time);
            }
            break;
        }
      }
    }
  }

  /// Inputs and constants without a transfer lie in the layout of their (first) reader.
  void add_direct_inputs() {
    for (std::size_t t = 0; t < graph_.tensors.size(); ++t) {
      const Tensor& tensor = graph_.tensors[t];
      if (tensor.uses.empty() || tensor.role == Role::kParameter) continue;
      const Use& use = tensor.uses.front();
      if (flow_.direct(use.op, static_cast<std::size_t>(use.operand)) == DirectUse::kNo) continue;
      const TensorState state = book_.operand_state(
          use.op, assignment_.strategies[index(use.op)], static_cast<std::size_t>(use.operand));
      memory_.add_always(MemoryKind::kActivations,
                         book_.local_bytes(static_cast<TensorId>(t), state),
                         static_cast<TensorId>(t));
    }
  }

  PriceBook& book_;
  const Graph& graph_;
  const DataFlow& flow_;
  const Assignment& assignment_;
  MemoryProfile memory_;
  std::vector<MomentTime> times_;
  std::unordered_map<const Rule*, double> flops_;  ///< looked up only, never walked
  Seconds tail_;                                   ///< optimizer and what follows it
  StepRecorder* recorder_ = nullptr;               ///< of trace()
  Evaluation evaluation_;
};

}  // namespace

TensorState value_state(PriceBook& book, const Assignment& assignment, int value) {
  const Value& v = book.flow().values()[static_cast<std::size_t>(value)];
  if (v.kind != ValueKind::kResult) return assignment.values[static_cast<std::size_t>(value)];
  const OperatorId producer = *book.graph().tensor(v.tensor).producer;
  return book.result_state(
      producer, assignment.strategies[index(producer)], static_cast<std::size_t>(v.result));
}

TensorState far_state(PriceBook& book, const Assignment& assignment, const Transfer& transfer) {
  if (transfer.to >= 0) return value_state(book, assignment, transfer.to);
  return book.operand_state(transfer.use.op,
                            assignment.strategies[index(transfer.use.op)],
                            static_cast<std::size_t>(transfer.use.operand));
}

TensorState parameter_state(PriceBook& book, const Assignment& assignment, TensorId tensor) {
  const int root = book.flow().root(tensor);
  if (root >= 0) return value_state(book, assignment, root);
  const Use& use = book.graph().tensor(tensor).uses.front();
  return book.operand_state(
      use.op, assignment.strategies[index(use.op)], static_cast<std::size_t>(use.operand));
}

Evaluation evaluate(PriceBook& book, const Assignment& assignment) {
  return Evaluator(book, assignment).run();
}

StepTrace trace_step(PriceBook& book, const Assignment& assignment) {
  return Evaluator(book, assignment).trace();
}

std::string moment_name(const Graph& graph, const DataFlow& flow, int moment) {
  const Moment& at = flow.timeline().at(moment);
  return std::string(pass_name(at.pass)) + " of " + graph.op(at.op).name;
}

}  // namespace meshplan

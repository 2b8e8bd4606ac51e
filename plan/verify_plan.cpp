// SPDX-License-Identifier: Apache-2.0
#include "plan/verify_plan.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "cost_model/data_flow.h"
#include "cost_model/inner_exchanges.h"
#include "lib/check.h"
#include "lib/collective.h"
#include "lib/layout.h"
#include "lib/redistribution_verify.h"
#include "plan/execution/execution.h"
#include "plan/execution/shrink_graph.h"
#include "plan/readable.h"

namespace meshplan {
namespace {

/// Meshes of more devices are run with smaller axes.
constexpr std::int64_t kMostDevices = 64;
constexpr std::int64_t kMostMicrobatches = 2;

std::size_t at(int i) { return static_cast<std::size_t>(i); }

/// A tensor on the devices, by position, and how it lies there.
struct Held {
  DeviceTensors blocks;
  Layout layout;
};
using HeldPtr = std::shared_ptr<const Held>;

/// Why the run ends before its time.
struct Stop {
  std::optional<Divergence> divergence;
  std::optional<Error> error;
};
using Outcome = std::optional<Stop>;  ///< none: go on

Stop stop(Error error) { return {std::nullopt, std::move(error)}; }
Stop malformed(std::string where, std::string message) {
  return stop({ErrorCode::kConflict, std::move(where), std::move(message)});
}

// ---- the optimizer: one step of AdamW on one element -------------------------------------------

struct Moments {
  double first = 0;
  double second = 0;
};

double updated(double weight, double gradient, const Moments& before) {
  constexpr double kRate = 0.01;
  constexpr double kBeta1 = 0.9;
  constexpr double kBeta2 = 0.95;
  constexpr double kEpsilon = 1e-8;
  constexpr double kDecay = 0.1;
  const double first = kBeta1 * before.first + (1 - kBeta1) * gradient;
  const double second = kBeta2 * before.second + (1 - kBeta2) * gradient * gradient;
  return weight - kRate * (first / (std::sqrt(second) + kEpsilon) + kDecay * weight);
}

// ---- the mesh -----------------------------------------------------------------------------------

/// The axes of a step or collective, in its order.
struct NamedAxes {
  AxisSet set = 0;
  std::vector<int> order;
};

/// Errors: a name that the mesh does not have.
Result<NamedAxes> named_axes(const DeviceMesh& mesh, const std::vector<std::string>& names) {
  NamedAxes axes;
  for (const std::string& name : names) {
    const auto number = mesh.axis_index(name);
    if (!number) return fail(number.error());
    axes.order.push_back(*number);
    axes.set |= AxisSet{1} << *number;
  }
  return axes;
}

/// The plan's mesh, and the one that is run: the same axes, smaller where there are too many
/// devices.
class Meshes {
 public:
  static Result<Meshes> make(const PlanMesh& plan) {
    auto full = plan.ranks.empty() ? DeviceMesh::make(plan.shape, plan.axes)
                                   : DeviceMesh::make(plan.shape, plan.axes, plan.ranks);
    if (!full) return fail(full.error());
    std::vector<std::int64_t> shape = plan.shape;
    auto devices = [&] {
      return std::accumulate(
          shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<std::int64_t>());
    };
    while (devices() > kMostDevices) {
      auto largest = std::max_element(shape.begin(), shape.end());
      std::int64_t prime = 2;
      while (*largest % prime != 0) ++prime;
      if (prime == *largest) {  // cannot get smaller: cut something by it it must
        std::int64_t other = 0;
        for (std::int64_t& size : shape) {
          for (std::int64_t p = 2; p < size; ++p) {
            if (size % p == 0 && size / p >= 2) other = std::max(other, size);
          }
        }
        if (other == 0) break;
        largest = std::find(shape.begin(), shape.end(), other);
        prime = 2;
        while (*largest % prime != 0) ++prime;
      }
      *largest /= prime;
    }
    if (shape == plan.shape) return Meshes(*full, *full, false);
    auto small = DeviceMesh::make(shape, plan.axes);
    if (!small) return fail(small.error());
    return Meshes(*full, *small, true);
  }

  const DeviceMesh& full() const { return full_; }
  const DeviceMesh& run() const { return run_; }
  bool shrunk() const { return shrunk_; }

  /// The layout that the placements mean, on one of the two meshes (by default the one that is
  /// run).
  Result<Layout> layout(const Placements& placements, std::size_t rank) const {
    return layout(placements, rank, run_);
  }
  Result<Layout> layout(const Placements& placements,
                        std::size_t rank,
                        const DeviceMesh& mesh) const {
    auto full = Layout::from_placements(full_, placements, static_cast<int>(rank));
    if (!full) return fail(full.error());
    const TensorMap map = full->tensor_map();
    const PartialList partial = full->partial();
    return Layout::from_tensor_map(mesh, map, partial);
  }

 private:
  Meshes(DeviceMesh full, DeviceMesh run, bool shrunk)
      : full_(std::move(full)), run_(std::move(run)), shrunk_(shrunk) {}
  DeviceMesh full_;
  DeviceMesh run_;
  bool shrunk_;
};

// ---- blocks -------------------------------------------------------------------------------------

Result<DeviceTensors> distributed(const DenseTensor& full, const Layout& layout) {
  auto devices = distribute(full, layout);
  if (!devices) return fail(devices.error());
  DeviceTensors blocks;
  for (std::int64_t p = 0; p < layout.mesh().size(); ++p)
    blocks.push_back(std::move(devices->at(layout.mesh().rank_at(p))));
  return blocks;
}

VirtualDevices devices_of(const DeviceTensors& blocks, const DeviceMesh& mesh) {
  VirtualDevices devices;
  for (std::size_t p = 0; p < blocks.size(); ++p)
    devices.at(mesh.rank_at(static_cast<std::int64_t>(p))) = blocks[p];
  return devices;
}

DeviceTensors sum_of(const DeviceTensors& a, const DeviceTensors& b) {
  DeviceTensors sum = a;
  for (std::size_t p = 0; p < sum.size(); ++p) {
    MESHPLAN_CHECK(sum[p].shape == b[p].shape);
    for (std::size_t i = 0; i < sum[p].values.size(); ++i) sum[p].values[i] += b[p].values[i];
  }
  return sum;
}

/// Integers are positions somewhere: they are drawn below what their readers can take.
std::int64_t index_bound(const Graph& graph, TensorId tensor) {
  constexpr std::int64_t kElsewhere = 2;
  std::int64_t bound = 0;
  auto lower = [&](std::int64_t size) { bound = bound == 0 ? size : std::min(bound, size); };
  for (const Use& use : graph.tensor(tensor).uses) {
    const Operator& op = graph.op(use.op);
    auto shape = [&](std::size_t i) { return graph.tensor(*op.inputs[i]).shape; };
    auto axis_size = [&](std::int64_t otherwise) -> std::int64_t {
      const auto found = op.attributes.find("axis");
      const auto* given =
          found == op.attributes.end() ? nullptr : std::get_if<std::int64_t>(&found->second);
      const std::int64_t axis = given == nullptr ? otherwise : *given;
      const Shape data = shape(0);
      return data[static_cast<std::size_t>(axis < 0 ? axis + static_cast<std::int64_t>(data.size())
                                                    : axis)];
    };
    const std::string& type = op.type;
    const bool second = use.operand == 1;
    if (second && (type == "Gather" || type == "GatherElements" || type == "ScatterElements")) {
      lower(axis_size(0));
    } else if (second && (type == "GatherND" || type == "ScatterND")) {
      for (const std::int64_t size : shape(0)) lower(size);
    } else if (second &&
               (type == "SoftmaxCrossEntropyLoss" || type == "NegativeLogLikelihoodLoss")) {
      lower(axis_size(1));
    } else if (type == "RotaryEmbedding" && use.operand == 3) {
      lower(shape(1)[0]);
    } else {
      for (const TensorId output : op.outputs) {
        if (!is_floating(graph.tensor(output).dtype)) lower(index_bound(graph, output));
      }
    }
  }
  return bound == 0 ? kElsewhere : bound;
}

/// Collectives inside an operator, how often each runs.
using ExchangeCounts =
    std::map<std::tuple<bool, AxisSet, Collective, std::int64_t>, std::int64_t>;  // ..., elements

class Verifier {
 public:
  Verifier(const Plan& plan, const Graph& graph, const VerifyOptions& options)
      : plan_(plan), full_(graph), options_(options), random_(options.seed) {}

  Result<VerifyReport> run() {
    if (Outcome out = everything()) {
      if (out->error) return fail(*out->error);
      report_.divergence = std::move(out->divergence);
    }
    return std::move(report_);
  }

 private:
  /// What the plan says of a tensor.
  struct Entries {
    const PlanTensor* tensor = nullptr;
    std::vector<const PlanRedistribution*> forward;
    std::vector<const PlanRedistribution*> regather;
    std::vector<const PlanRedistribution*> recompute;
    std::vector<const PlanRedistribution*> backward;  ///< per micro-batch, fewest readers first
    const PlanRedistribution* end = nullptr;
    const PlanRedistribution* finish = nullptr;
    const PlanRedistribution* update = nullptr;
  };

  /// One micro-batch of a tensor on the devices.
  struct Travel {
    HeldPtr root;                             ///< as its producer leaves it
    std::vector<std::vector<HeldPtr>> ways;   ///< per use, what it was on its way to the reader
    std::vector<std::vector<HeldPtr>> again;  ///< the same of a value that is made again, or empty
    std::vector<HeldPtr> gradients;           ///< per use, as the reader's backward leaves it
  };

  Outcome everything() {
    if (Outcome out = prepare()) return out;
    if (Outcome out = draw_parameters()) return out;
    for (int m = 0; m < microbatches_; ++m) {
      if (Outcome out = run_microbatch()) return out;
    }
    if (graph_.training) return update_parameters();
    return std::nullopt;
  }

  // ---- reading the plan

  Outcome prepare() {
    if (plan_.result.status == PlanStatus::kInfeasible)
      return malformed("/result/status", "the plan is infeasible, there is nothing to run");
    auto meshes = Meshes::make(plan_.mesh);
    if (!meshes) return malformed("/mesh", meshes.error().message);
    meshes_ = std::move(*meshes);
    if (mesh().ndim() > kPlanMeshAxes)
      return malformed("/mesh", "a plan's mesh has at most four axes");
    report_.mesh_shape.assign(mesh().shape().begin(), mesh().shape().end());
    microbatches_ = static_cast<int>(
        std::clamp<std::int64_t>(plan_.options.microbatches, 1, kMostMicrobatches));
    report_.microbatches = microbatches_;
    if (Outcome out = read_entries()) return out;
    auto small = shrink_graph(full_, pieces());
    if (!small) return stop(small.error());
    graph_ = *std::move(small);
    if (Outcome out = find_strategies()) return out;
    return check_memory();
  }

  /// The operand or result that has experts.
  static TensorId slots_of(const Operator& op, const Route& route) {
    for (std::size_t i = 0; i < op.inputs.size(); ++i) {
      if (op.inputs[i] &&
          factors_in(op.rule->operands[i], op.rule->factors.size())[at(route.expert)])
        return *op.inputs[i];
    }
    return op.outputs[0];
  }

  /// Roughly what the run will hold: for every operator the blocks of its operands and results on
  /// all devices and once unsharded, each several times (value, gradient, steps of the tape).
  Outcome check_memory() const {
    constexpr double kCopies = 4;
    const auto devices = static_cast<double>(mesh().size());
    double elements = 0;
    std::size_t largest = 0;
    double most = 0;
    auto add = [&](TensorId tensor, const TensorState& state) {
      const Shape& shape = graph_.tensor(tensor).shape;
      const auto whole = static_cast<double>(element_count(shape));
      const double held =
          whole +
          devices * static_cast<double>(element_count(local_shape(shape, state, mesh().shape())));
      elements += held;
      if (held > most) {
        most = held;
        largest = index(tensor);
      }
    };
    for (std::size_t o = 0; o < graph_.operators.size(); ++o) {
      const Operator& op = graph_.operators[o];
      const OperatorInfo& info = *info_of_.at(op.rule.get());
      for (std::size_t i = 0; i < op.inputs.size(); ++i) {
        if (op.inputs[i]) add(*op.inputs[i], info.operand_state(strategies_[o], i, true));
      }
      for (std::size_t r = 0; r < op.outputs.size(); ++r)
        add(op.outputs[r], info.result_state(strategies_[o], r));
      const std::vector<std::int64_t> sizes = info.local_factors(strategies_[o]);
      const auto points = [&](auto counts) {
        double product = devices;
        for (std::size_t f = 0; f < sizes.size(); ++f)
          product *= counts(op.rule->factors[f]) ? static_cast<double>(sizes[f]) : 1.0;
        return product;
      };
      if (op.rule->family == OperatorFamily::kAttention)  // the score of every query and key
        elements += points([](const Factor& f) { return f.kind != FactorKind::kWhole; });
      for (const Route& route : op.rule->routes) {  // all slots of all experts, for a while
        const Shape& slots = graph_.tensor(slots_of(op, route)).shape;
        elements += 0.5 * devices * static_cast<double>(element_count(slots));
        break;
      }
    }
    const double bytes = kCopies * elements * sizeof(double);
    if (bytes <= static_cast<double>(options_.memory_limit)) return std::nullopt;
    std::string shape;
    for (const std::int64_t size : graph_.tensors[largest].shape)
      shape += (shape.empty() ? "" : ", ") + std::to_string(size);
    return stop({ErrorCode::kUnsupported,
                 "",
                 "running the plan would take about " + readable_bytes(static_cast<Bytes>(bytes)) +
                     ", more than " + readable_bytes(options_.memory_limit) + ": tensor \"" +
                     graph_.tensors[largest].name + "\" does not get smaller than [" + shape +
                     "]"});
  }

  Outcome read_entries() {
    std::unordered_map<std::string_view, std::size_t> tensor_of;
    std::unordered_map<std::string_view, std::size_t> operator_of;
    for (std::size_t t = 0; t < full_.tensors.size(); ++t) tensor_of[full_.tensors[t].name] = t;
    for (std::size_t o = 0; o < full_.operators.size(); ++o)
      operator_of[full_.operators[o].name] = o;
    entries_.resize(full_.tensors.size());
    operators_.resize(full_.operators.size());
    for (const PlanTensor& tensor : plan_.tensors) {
      const auto found = tensor_of.find(tensor.name);
      if (found == tensor_of.end())
        return malformed("/tensors", "the graph has no tensor \"" + tensor.name + "\"");
      entries_[found->second].tensor = &tensor;
    }
    for (std::size_t o = 0; o < plan_.operators.size(); ++o) {
      const PlanOperator& op = plan_.operators[o];
      const auto found = operator_of.find(op.name);
      const std::string where = "/operators/" + std::to_string(o);
      if (found == operator_of.end())
        return malformed(where, "the graph has no operator \"" + op.name + "\"");
      const Operator& of = full_.operators[found->second];
      if (op.in_placements.size() != of.inputs.size() ||
          op.out_placements.size() != of.outputs.size())
        return malformed(where, "the operator has other operands or results in the graph");
      for (std::size_t i = 0; i < of.inputs.size(); ++i) {
        if (of.inputs[i].has_value() != op.in_placements[i].has_value())
          return malformed(where + "/in_placements/" + std::to_string(i),
                           "an omitted operand has no placement, any other has one");
      }
      operators_[found->second] = &op;
    }
    for (std::size_t t = 0; t < entries_.size(); ++t) {
      if (entries_[t].tensor == nullptr)
        return malformed("/tensors", "tensor \"" + full_.tensors[t].name + "\" is missing");
    }
    for (std::size_t o = 0; o < operators_.size(); ++o) {
      if (operators_[o] == nullptr)
        return malformed("/operators", "operator \"" + full_.operators[o].name + "\" is missing");
    }
    for (std::size_t r = 0; r < plan_.redistributions.size(); ++r) {
      const PlanRedistribution& entry = plan_.redistributions[r];
      const std::string where = "/redistributions/" + std::to_string(r);
      const auto found = tensor_of.find(entry.tensor);
      if (found == tensor_of.end())
        return malformed(where, "the graph has no tensor \"" + entry.tensor + "\"");
      if (Outcome out = read_redistribution(entry, found->second, where)) return out;
    }
    for (Entries& entries : entries_) {
      std::stable_sort(entries.backward.begin(),
                       entries.backward.end(),
                       [&](const PlanRedistribution* a, const PlanRedistribution* b) {
                         return uses_of_[a].size() < uses_of_[b].size();
                       });
    }
    return std::nullopt;
  }

  /// The bytes of every step are those that its collective moves at the sizes of the big graph.
  /// Whole gradients of parameters travel in one type, whatever it is.
  Outcome check_bytes(const PlanRedistribution& entry, std::size_t t, const std::string& where) {
    const Tensor& tensor = full_.tensors[t];
    const bool reduced = entry.phase == Phase::kGradient && tensor.role == Role::kParameter &&
                         (entry.per == Per::kStep || uses_of_[&entry].size() == tensor.uses.size());
    auto local_elements = [&](const Placements& placements) -> std::optional<std::int64_t> {
      const auto layout = meshes_->layout(placements, tensor.shape.size(), meshes_->full());
      if (!layout) return std::nullopt;
      const auto local = layout->local_shape(tensor.shape);
      if (!local) return std::nullopt;
      return element_count(*local);
    };
    auto before = local_elements(entry.from);
    for (std::size_t s = 0; s < entry.steps.size(); ++s) {
      const PlanStep& step = entry.steps[s];
      const auto after = local_elements(step.placements);
      const auto axes = named_axes(meshes_->full(), step.axes);
      if (!axes) return malformed(where, axes.error().message);
      if (!before || !after) return malformed(where, "a layout does not fit the tensor");
      const std::int64_t elements =
          step.collective == Collective::kReduceScatter ? *before : *after;
      const std::int64_t devices = meshes_->full().group_size(axes->set);
      auto moves = [&](Bytes width) {
        return moved_bytes(step.collective, devices, elements * width) == step.bytes;
      };
      if (reduced && reduce_width_ == 0) {
        for (const Bytes width : {Bytes{1}, Bytes{2}, Bytes{4}, Bytes{8}}) {
          if (step.bytes > 0 && moves(width)) reduce_width_ = width;
        }
      }
      const Bytes width = reduced ? reduce_width_ : dtype_bytes(tensor.dtype);
      if (!moves(width)) {
        return diverges(
            entry.consumers.empty() ? std::string() : entry.consumers[0].op,
            t,
            phase_name(entry.phase),
            "step " + std::to_string(s) + " lists " + std::to_string(step.bytes) +
                " bytes per device, it moves " +
                std::to_string(moved_bytes(step.collective, devices, elements * width)));
      }
      before = after;
    }
    return std::nullopt;
  }

  Outcome read_redistribution(const PlanRedistribution& entry,
                              std::size_t tensor,
                              const std::string& where) {
    const Tensor& of = full_.tensors[tensor];
    std::vector<int>& uses = uses_of_[&entry];
    for (const PlanUse& consumer : entry.consumers) {
      const std::size_t before = uses.size();
      for (std::size_t u = 0; u < of.uses.size(); ++u) {
        if (full_.op(of.uses[u].op).name == consumer.op &&
            (!consumer.operand || *consumer.operand == of.uses[u].operand))
          uses.push_back(static_cast<int>(u));
      }
      if (uses.size() != before + 1)
        return malformed(where + "/consumers",
                         "\"" + consumer.op + "\" is not one reader of \"" + of.name + "\"");
    }
    std::sort(uses.begin(), uses.end());
    if (Outcome out = check_bytes(entry, tensor, where)) return out;
    Entries& entries = entries_[tensor];
    auto once = [&](const PlanRedistribution*& slot) -> Outcome {
      if (slot != nullptr) return malformed(where, "the tensor is brought there twice");
      slot = &entry;
      return std::nullopt;
    };
    const bool per_step = entry.per == Per::kStep;
    switch (entry.phase) {
      case Phase::kForward:
        if (uses.empty()) return once(entries.end);
        entries.forward.push_back(&entry);
        return std::nullopt;
      case Phase::kRegather:
        if (uses.empty()) return malformed(where + "/consumers", "expected a reader");
        entries.regather.push_back(&entry);
        return std::nullopt;
      case Phase::kRecompute:
        if (uses.empty()) return malformed(where + "/consumers", "expected a reader");
        entries.recompute.push_back(&entry);
        return std::nullopt;
      case Phase::kBackward:
      case Phase::kGradient:
        if (per_step) return once(entries.finish);
        if (uses.empty()) return malformed(where + "/consumers", "expected a reader");
        entries.backward.push_back(&entry);
        return std::nullopt;
      case Phase::kUpdate:
        return once(entries.update);
    }
    return std::nullopt;
  }

  /// Every cut of every tensor that occurs in the plan.
  std::vector<std::vector<Pieces>> pieces() const {
    std::vector<std::vector<Pieces>> all(full_.tensors.size());
    auto add = [&](std::size_t tensor, const Placements& placements) {
      const std::size_t rank = full_.tensors[tensor].shape.size();
      const auto layout = meshes_->layout(placements, rank);
      if (!layout) return;  // said where it is used
      Pieces cut;
      for (std::size_t d = 0; d < rank; ++d) cut.push_back(layout->parts(static_cast<int>(d)));
      if (std::find(all[tensor].begin(), all[tensor].end(), cut) == all[tensor].end())
        all[tensor].push_back(std::move(cut));
    };
    for (std::size_t t = 0; t < entries_.size(); ++t) {
      const PlanTensor& tensor = *entries_[t].tensor;
      add(t, tensor.placements);
      if (tensor.gradient) add(t, *tensor.gradient);
      if (tensor.optimizer_state) add(t, *tensor.optimizer_state);
    }
    for (std::size_t o = 0; o < operators_.size(); ++o) {
      const Operator& op = full_.operators[o];
      for (std::size_t i = 0; i < op.inputs.size(); ++i) {
        if (op.inputs[i]) add(index(*op.inputs[i]), *operators_[o]->in_placements[i]);
      }
      for (std::size_t r = 0; r < op.outputs.size(); ++r)
        add(index(op.outputs[r]), operators_[o]->out_placements[r]);
    }
    for (std::size_t t = 0; t < entries_.size(); ++t) {
      auto add_entry = [&](const PlanRedistribution* entry) {
        if (entry == nullptr) return;
        add(t, entry->from);
        add(t, entry->to);
        for (const PlanStep& step : entry->steps) add(t, step.placements);
      };
      for (const auto* list : {&entries_[t].forward,
                               &entries_[t].regather,
                               &entries_[t].recompute,
                               &entries_[t].backward})
        std::for_each(list->begin(), list->end(), add_entry);
      add_entry(entries_[t].end);
      add_entry(entries_[t].finish);
      add_entry(entries_[t].update);
    }
    return all;
  }

  using Infos = std::map<const Rule*, std::shared_ptr<const OperatorInfo>>;

  static const OperatorInfo& info_in(Infos& infos, const Operator& op, const DeviceMesh& mesh) {
    auto& info = infos[op.rule.get()];
    if (!info) {
      info = std::make_shared<OperatorInfo>(
          op.rule, std::vector<std::int64_t>(mesh.shape().begin(), mesh.shape().end()));
    }
    return *info;
  }

  /// The strategies of all operators: on the big graph those that give the plan's placements and
  /// need the collectives that it lists inside the operator, then the same on the small one.
  Outcome find_strategies() {
    for (std::size_t o = 0; o < graph_.operators.size(); ++o) {
      const Operator& op = graph_.operators[o];
      if (auto can = can_execute(op.type, *op.rule); !can)
        return stop(
            {ErrorCode::kUnsupported, "", "operator \"" + op.name + "\": " + can.error().message});
      auto& single = single_info_of_[op.rule.get()];
      if (!single) single = std::make_shared<OperatorInfo>(op.rule, std::vector<std::int64_t>{});
      std::vector<Strategy> candidates = strategies_of(full_, o, meshes_->full(), full_info_of_);
      const std::vector<Strategy>& small = strategies_of(graph_, o, mesh(), info_of_);
      if (candidates.empty() || small.empty()) {
        return malformed(
            operator_place(o) + "/in_placements",
            "no strategy of \"" + op.name + "\" (" + op.type + ") has these placements");
      }
      auto listed = listed_exchanges(o);
      if (!listed) return malformed(operator_place(o) + "/collectives", listed.error().message);
      std::erase_if(candidates, [&](const Strategy& strategy) {
        return needed_exchanges(o, strategy) != *listed;
      });
      if (candidates.empty())
        return inner_differs(
            o, "the plan lists other collectives inside the operator than its placements need");
      const OperatorInfo& big = info_in(full_info_of_, full_.operators[o], meshes_->full());
      const OperatorInfo& info = info_in(info_of_, op, mesh());
      const auto same_actions = [&](const Strategy& strategy) {
        for (int axis = 0; axis < mesh().ndim(); ++axis) {
          if (!(info.action(strategy, axis) == big.action(candidates.front(), axis))) return false;
        }
        return true;
      };
      const auto found = std::find_if(small.begin(), small.end(), same_actions);
      strategies_.push_back(found == small.end() ? small.front() : *found);
    }
    return std::nullopt;
  }

  /// The strategies of an operator of the big or the small graph that give the plan's placements.
  const std::vector<Strategy>& strategies_of(const Graph& graph,
                                             std::size_t o,
                                             const DeviceMesh& mesh,
                                             Infos& infos) {
    const Operator& op = graph.operators[o];
    // operators of equal layers have one answer
    std::string key;
    for (std::size_t i = 0; i < op.inputs.size(); ++i) {
      if (!op.inputs[i]) continue;
      const Tensor& tensor = graph.tensor(*op.inputs[i]);
      key += to_string(*operators_[o]->in_placements[i]) + (tensor.has_gradient ? " g" : " ");
      if (tensor.producer)
        key += reduction_name(info_in(infos, graph.op(*tensor.producer), mesh).result_reduction());
      key += ";";
    }
    for (const Placements& placements : operators_[o]->out_placements)
      key += to_string(placements) + ";";
    const auto [known, added] = strategies_known_.try_emplace({op.rule.get(), std::move(key)});
    if (added) known->second = find_strategies_of(graph, o, mesh, infos);
    return known->second;
  }

  std::vector<Strategy> find_strategies_of(const Graph& graph,
                                           std::size_t o,
                                           const DeviceMesh& mesh,
                                           Infos& infos) const {
    const Operator& op = graph.operators[o];
    const OperatorInfo& info = info_in(infos, op, mesh);
    const int axes = mesh.ndim();
    const PlanOperator& said = *operators_[o];
    auto same = [&](const Placements& state, const Placements& placements, const Tensor& tensor) {
      const std::size_t rank = tensor.shape.size();
      const auto a = Layout::from_placements(mesh, state, static_cast<int>(rank));
      const auto b = meshes_->layout(placements, rank, mesh);
      return a && b && *a == *b;
    };
    auto gives = [&](const Strategy& strategy) {
      for (std::size_t i = 0; i < op.inputs.size(); ++i) {
        if (!op.inputs[i]) continue;
        const Tensor& tensor = graph.tensor(*op.inputs[i]);
        const Reduction reduction =
            tensor.producer ? info_in(infos, graph.op(*tensor.producer), mesh).result_reduction()
                            : Reduction::kSum;
        const TensorState state = info.operand_state(strategy, i, tensor.has_gradient);
        if (!same(value_placements(state, axes, reduction), *said.in_placements[i], tensor))
          return false;
      }
      for (std::size_t r = 0; r < op.outputs.size(); ++r) {
        const TensorState state = info.result_state(strategy, r);
        if (!same(value_placements(state, axes, info.result_reduction()),
                  said.out_placements[r],
                  graph.tensor(op.outputs[r])))
          return false;
      }
      return true;
    };
    std::vector<Strategy> found;
    std::copy_if(
        info.strategies().begin(), info.strategies().end(), std::back_inserter(found), gives);
    return found;
  }

  /// Collectives inside an operator of the big graph: pass, axes, kind, bytes -> times.
  using BigExchanges = std::map<std::tuple<Pass, AxisSet, Collective, Bytes>, std::int64_t>;

  BigExchanges needed_exchanges(std::size_t o, const Strategy& strategy) {
    const Operator& op = full_.operators[o];
    BigExchanges needed;
    const OperatorInfo& info = info_in(full_info_of_, op, meshes_->full());
    for (const InnerExchange& exchange : inner_exchanges(full_, op, info, strategy)) {
      const Bytes moved = moved_bytes(exchange.collective,
                                      meshes_->full().group_size(exchange.axes),
                                      exchange.elements * exchange.element_bytes);
      const Pass pass = exchange.backward ? Pass::kBackward : Pass::kForward;
      needed[{pass, exchange.axes, exchange.collective, moved}] += exchange.count;
      if (operators_[o]->recompute && !exchange.backward)
        needed[{Pass::kRecompute, exchange.axes, exchange.collective, moved}] += exchange.count;
    }
    return needed;
  }

  Result<BigExchanges> listed_exchanges(std::size_t o) const {
    BigExchanges listed;
    for (const PlanCollective& collective : operators_[o]->collectives) {
      const auto axes = named_axes(mesh(), collective.axes);
      if (!axes) return fail(axes.error());
      const Pass pass = collective.phase == Phase::kBackward    ? Pass::kBackward
                        : collective.phase == Phase::kRecompute ? Pass::kRecompute
                                                                : Pass::kForward;
      listed[{pass, axes->set, collective.collective, collective.bytes}] += collective.count;
    }
    return listed;
  }

  Stop inner_differs(std::size_t o, std::string message) const {
    Divergence divergence;
    divergence.op = full_.operators[o].name;
    divergence.phase = "forward";
    divergence.message = std::move(message);
    return {std::move(divergence), std::nullopt};
  }

  /// The collectives that ran inside an operator are those that its strategy needs.
  Outcome check_executed_exchanges(std::size_t o) {
    const Operator& op = graph_.operators[o];
    ExchangeCounts needed;
    for (const InnerExchange& exchange :
         inner_exchanges(graph_, op, *info_of_[op.rule.get()], strategies_[o]))
      needed[{exchange.backward, exchange.axes, exchange.collective, exchange.elements}] +=
          exchange.count;
    ExchangeCounts executed;
    for (const InnerCall& call : runs_[o]->collectives())
      executed[{call.backward, call.axes, call.collective, call.elements}] += call.count;
    if (executed == needed) return std::nullopt;
    auto text = [](const ExchangeCounts& counts) {
      std::string all;
      for (const auto& [key, count] : counts) {
        const auto& [backward, axes, collective, elements] = key;
        all += (all.empty() ? "" : ", ") + std::to_string(count) + " " +
               collective_name(collective) + " of " + std::to_string(elements) +
               (backward ? " elements backward" : " elements");
      }
      return all.empty() ? std::string("none") : all;
    };
    return inner_differs(
        o, "inside the operator ran " + text(executed) + ", priced are " + text(needed));
  }

  const DeviceMesh& mesh() const { return meshes_->run(); }

  Result<Layout> layout(std::size_t tensor, const Placements& placements) const {
    return meshes_->layout(placements, graph_.tensors[tensor].shape.size());
  }

  // ---- numbers

  DenseTensor draw(const Shape& shape, const std::function<double()>& number) {
    DenseTensor tensor = DenseTensor::filled(shape, 0);
    for (double& value : tensor.values) value = number();
    return tensor;
  }
  DenseTensor draw_normal(const Shape& shape) {
    std::normal_distribution<double> normal;
    return draw(shape, [&] { return normal(random_); });
  }

  /// A tensor from outside the graph.
  DenseTensor draw(std::size_t tensor) {
    const Tensor& t = graph_.tensors[tensor];
    if (is_floating(t.dtype)) {
      // a product of many weights should neither vanish nor grow
      DenseTensor drawn = draw_normal(t.shape);
      if (t.role == Role::kParameter && t.shape.size() > 1) {
        for (double& value : drawn.values) value *= 0.5;
      }
      return drawn;
    }
    const std::int64_t below = index_bound(graph_, static_cast<TensorId>(tensor));
    std::uniform_int_distribution<std::int64_t> uniform(0, std::max<std::int64_t>(below, 1) - 1);
    return draw(t.shape, [&] { return static_cast<double>(uniform(random_)); });
  }

  Outcome draw_parameters() {
    expected_.resize(graph_.tensors.size());
    expected_gradients_.resize(graph_.tensors.size());
    summed_.resize(graph_.tensors.size());
    accumulated_.resize(graph_.tensors.size());
    for (std::size_t t = 0; t < graph_.tensors.size(); ++t) {
      if (graph_.tensors[t].role == Role::kParameter) expected_[t] = draw(t);
    }
    return std::nullopt;
  }

  // ---- the unsharded run

  Outcome reference() {
    reference_runs_.clear();
    for (std::size_t t = 0; t < graph_.tensors.size(); ++t) {
      const Tensor& tensor = graph_.tensors[t];
      if (!tensor.producer && tensor.role != Role::kParameter) expected_[t] = draw(t);
      expected_gradients_[t].reset();
    }
    for (std::size_t o = 0; o < graph_.operators.size(); ++o) {
      const Operator& op = graph_.operators[o];
      const auto& info = single_info_of_[op.rule.get()];
      std::vector<std::optional<std::span<const DenseTensor>>> operands;
      for (const auto& input : op.inputs) {
        operands.emplace_back();
        if (input) operands.back().emplace(&expected_[index(*input)], std::size_t{1});
      }
      auto made = OperatorExecution::forward(call(o), info, info->strategies().front(), operands);
      if (!made) return execution_failed(o, made.error());
      for (std::size_t r = 0; r < op.outputs.size(); ++r)
        expected_[index(op.outputs[r])] = std::move(made->take_result(r)[0]);
      reference_runs_.push_back(
          graph_.training ? std::make_unique<OperatorExecution>(std::move(*made)) : nullptr);
    }
    if (!graph_.training) return std::nullopt;
    bool has_loss = false;
    for (const Tensor& tensor : graph_.tensors) has_loss = has_loss || tensor.role == Role::kLoss;
    for (std::size_t t = 0; t < graph_.tensors.size(); ++t) {
      const Tensor& tensor = graph_.tensors[t];
      if (!tensor.has_gradient) continue;
      if (tensor.role == Role::kLoss) {
        expected_gradients_[t] = DenseTensor::filled(tensor.shape, 1);
      } else if (!has_loss && ends_graph(graph_, static_cast<TensorId>(t))) {
        expected_gradients_[t] = draw_normal(tensor.shape);
      }
    }
    seeds_ = expected_gradients_;
    for (std::size_t o = graph_.operators.size(); o-- > 0;) {
      const Operator& op = graph_.operators[o];
      std::vector<std::optional<DeviceTensors>> gradients;
      bool any = false;
      for (const TensorId output : op.outputs) {
        gradients.emplace_back();
        if (!expected_gradients_[index(output)]) continue;
        gradients.back() = DeviceTensors{*expected_gradients_[index(output)]};
        any = true;
      }
      const std::unique_ptr<OperatorExecution> run = std::move(reference_runs_[o]);
      if (!any) continue;
      auto found = run->backward(gradients);
      if (!found) return execution_failed(o, found.error());
      for (std::size_t i = 0; i < op.inputs.size(); ++i) {
        if (!op.inputs[i] || !(*found)[i]) continue;
        const std::size_t t = index(*op.inputs[i]);
        if (!graph_.tensors[t].has_gradient) continue;
        const DenseTensor& part = (*(*found)[i])[0];
        if (!expected_gradients_[t]) {
          expected_gradients_[t] = part;
        } else {
          for (std::size_t e = 0; e < part.values.size(); ++e)
            expected_gradients_[t]->values[e] += part.values[e];
        }
      }
    }
    return std::nullopt;
  }

  OperatorCall call(std::size_t o) const {
    return operator_call(graph_, static_cast<OperatorId>(o), options_.seed);
  }

  Stop execution_failed(std::size_t o, const Error& error) const {
    return stop({error.code,
                 "",
                 "operator \"" + graph_.operators[o].name + "\" (" + graph_.operators[o].type +
                     "): " + error.message});
  }

  // ---- the run on the devices

  Outcome run_microbatch() {
    if (Outcome out = reference()) return out;
    travels_.assign(graph_.tensors.size(), {});
    for (std::size_t t = 0; t < graph_.tensors.size(); ++t) {
      travels_[t].ways.resize(graph_.tensors[t].uses.size());
      travels_[t].gradients.resize(graph_.tensors[t].uses.size());
      if (graph_.tensors[t].producer) continue;
      if (Outcome out = start(t)) return out;
    }
    runs_.clear();
    for (std::size_t o = 0; o < graph_.operators.size(); ++o) {
      if (Outcome out = forward(o)) return out;
    }
    if (!graph_.training) return std::nullopt;
    for (std::size_t t = 0; t < graph_.tensors.size(); ++t) {
      if (Outcome out = regather(t)) return out;
    }
    for (std::size_t o = 0; o < graph_.operators.size(); ++o) {
      if (!operators_[o]->recompute) continue;
      if (Outcome out = recompute(o)) return out;
    }
    for (std::size_t o = graph_.operators.size(); o-- > 0;) {
      if (Outcome out = backward(o)) return out;
    }
    return accumulate();
  }

  /// Puts a tensor from outside where the plan says it rests or arrives.
  Outcome start(std::size_t t) {
    const Tensor& tensor = graph_.tensors[t];
    Travel& travel = travels_[t];
    auto put = [&](const Placements& placements, HeldPtr& held) -> Outcome {
      auto lies = layout(t, placements);
      if (!lies) return malformed(tensor_place(t) + "/placements", lies.error().message);
      auto blocks = distributed(expected_[t], *lies);
      if (!blocks) return malformed(tensor_place(t) + "/placements", blocks.error().message);
      held = std::make_shared<Held>(Held{std::move(*blocks), std::move(*lies)});
      return std::nullopt;
    };
    if (Outcome out = put(entries_[t].tensor->placements, travel.root)) return out;
    for (std::size_t u = 0; u < tensor.uses.size(); ++u) {
      HeldPtr first = travel.root;
      if (tensor.role == Role::kConstant) {  // every reader makes its own
        const Use& use = tensor.uses[u];
        if (Outcome out = put(*operators_[index(use.op)]->in_placements[at(use.operand)], first))
          return out;
      }
      travel.ways[u] = {first};
    }
    return bring(t);
  }

  std::string tensor_place(std::size_t t) const { return "/tensors/" + graph_.tensors[t].name; }

  /// Takes a value to its readers.
  Outcome bring(std::size_t t) {
    Travel& travel = travels_[t];
    for (const PlanRedistribution* entry : entries_[t].forward) {
      const std::vector<int>& uses = uses_of_[entry];
      const HeldPtr from = travel.ways[at(uses[0])].back();
      for (const int u : uses) {
        if (travel.ways[at(u)].back() == from) continue;
        return diverges(entry->consumers[0].op,
                        t,
                        "forward",
                        "one redistribution starts at different layouts of the tensor");
      }
      HeldPtr to;
      if (Outcome out = move(*entry, t, *from, to)) return out;
      for (const int u : uses) travel.ways[at(u)].push_back(to);
    }
    if (entries_[t].end != nullptr) {
      HeldPtr end;
      if (Outcome out = move(*entries_[t].end, t, *travel.root, end)) return out;
      return compare(*end, expected_[t], t, "", "forward");
    }
    if (ends_graph(graph_, static_cast<TensorId>(t)) && travel.root->layout.has_partial())
      return diverges("", t, "forward", "the graph ends with terms of a sum");
    return std::nullopt;
  }

  Stop diverges(const std::string& op,
                std::size_t tensor,
                const char* phase,
                std::string message) const {
    Divergence divergence;
    divergence.op = op;
    divergence.tensor = full_.tensors[tensor].name;
    divergence.phase = phase;
    divergence.message = std::move(message);
    return {std::move(divergence), std::nullopt};
  }

  Outcome compare(const Held& held,
                  const DenseTensor& expected,
                  std::size_t tensor,
                  const std::string& op,
                  const char* phase) {
    ++report_.comparisons;
    const auto difference = first_difference(
        std::span<const DenseTensor>(held.blocks), expected, held.layout, options_.tolerance);
    if (!difference) return diverges(op, tensor, phase, difference.error().message);
    if (!*difference) return std::nullopt;
    Stop found = diverges(op, tensor, phase, "");
    found.divergence->device = (*difference)->rank;
    if ((*difference)->other_shape) {
      found.divergence->message =
          "device " + std::to_string((*difference)->rank) + " holds a block of another shape";
      return found;
    }
    found.divergence->index = (*difference)->index;
    found.divergence->expected = (*difference)->expected;
    found.divergence->found = (*difference)->found;
    return found;
  }

  /// Executes a redistribution step by step.
  Outcome move(const PlanRedistribution& entry, std::size_t t, const Held& from, HeldPtr& to) {
    ++report_.redistributions;
    const std::string reader = entry.consumers.empty() ? std::string() : entry.consumers[0].op;
    auto wrong = [&](std::string message) {
      return diverges(reader, t, phase_name(entry.phase), std::move(message));
    };
    const std::size_t rank = graph_.tensors[t].shape.size();
    auto start = layout(t, entry.from);
    if (!start) return wrong(start.error().message);
    if (!(*start == from.layout))
      return wrong("the redistribution starts at " + to_string(start->placements()) +
                   ", but the tensor lies as " + to_string(from.layout.placements()));
    VirtualDevices devices = devices_of(from.blocks, mesh());
    Layout now = from.layout;
    const std::vector<std::int64_t> sizes(mesh().shape().begin(), mesh().shape().end());
    const std::vector<std::int64_t> ranks = mesh().ranks();
    for (const PlanStep& step : entry.steps) {
      auto after = layout(t, step.placements);
      if (!after) return wrong(after.error().message);
      RedistributionStep asked;
      asked.collective = step.collective;
      const auto axes = named_axes(mesh(), step.axes);
      if (!axes) return wrong(axes.error().message);
      asked.order = axes->order;
      asked.axes = axes->set;
      asked.dim = step.dim.value_or(-1);
      asked.split_dim = step.split_dim.value_or(-1);
      asked.concat_dim = step.concat_dim.value_or(-1);
      asked.reduction = step.reduction.value_or(Reduction::kSum);
      asked.after = after->placements();
      auto replay = replay_step(sizes, static_cast<int>(rank), now.placements(), asked);
      if (!replay) return wrong(replay.error().message);
      translate(*replay, ranks);
      if (step.collective == Collective::kPermute && !meshes_->shrunk()) {
        // as the plan says it, to the pair
        replay->pairs.clear();
        for (const auto& [source, destination] : step.pairs)
          replay->pairs.push_back({source, destination});
      }
      const bool local =
          step.collective == Collective::kSlice || step.collective == Collective::kMask;
      if (!local) ++report_.collectives;
      if (auto done = devices.execute(*replay); !done) return wrong(done.error().message);
      now = std::move(*after);
    }
    auto end = layout(t, entry.to);
    if (!end) return wrong(end.error().message);
    if (!(*end == now))
      return wrong("the redistribution ends at " + to_string(now.placements()) + " instead of " +
                   to_string(end->placements()));
    Held held{{}, std::move(now)};
    for (const std::int64_t r : ranks) held.blocks.push_back(std::move(devices.at(r)));
    to = std::make_shared<Held>(std::move(held));
    return std::nullopt;
  }

  /// Runs an operator on what arrives at it: in the forward, or when it is recomputed.
  Outcome execute(std::size_t o, bool again, std::unique_ptr<OperatorExecution>& run) {
    const Operator& op = graph_.operators[o];
    std::vector<std::optional<std::span<const DenseTensor>>> operands;
    for (std::size_t i = 0; i < op.inputs.size(); ++i) {
      operands.emplace_back();
      if (!op.inputs[i]) continue;
      const std::size_t t = index(*op.inputs[i]);
      const Travel& travel = travels_[t];
      const bool remade = again && !travel.again.empty();
      const HeldPtr& held = (remade ? travel.again : travel.ways)[use_of(o, i)].back();
      auto wanted = layout(t, *operators_[o]->in_placements[i]);
      if (!wanted) return malformed(operator_place(o), wanted.error().message);
      if (!(*wanted == held->layout))
        return diverges(op.name,
                        t,
                        again ? "recompute" : "forward",
                        "the operator reads " + to_string(wanted->placements()) +
                            ", but the tensor arrives as " + to_string(held->layout.placements()));
      operands.back().emplace(held->blocks);
    }
    auto made =
        OperatorExecution::forward(call(o), info_of_[op.rule.get()], strategies_[o], operands);
    if (!made) return execution_failed(o, made.error());
    ++report_.operators;
    run = std::make_unique<OperatorExecution>(std::move(*made));
    return std::nullopt;
  }

  Outcome forward(std::size_t o) {
    const Operator& op = graph_.operators[o];
    std::unique_ptr<OperatorExecution> made;
    if (Outcome out = execute(o, false, made)) return out;
    for (std::size_t r = 0; r < op.outputs.size(); ++r) {
      const std::size_t t = index(op.outputs[r]);
      auto lies = layout(t, operators_[o]->out_placements[r]);
      if (!lies) return malformed(operator_place(o), lies.error().message);
      auto root = layout(t, entries_[t].tensor->placements);
      if (!root || !(*root == *lies))
        return diverges(op.name, t, "forward", "the tensor is not as its producer leaves it");
      Travel& travel = travels_[t];
      travel.root = std::make_shared<Held>(Held{made->take_result(r), std::move(*lies)});
      if (Outcome out = compare(*travel.root, expected_[t], t, op.name, "forward")) return out;
      for (auto& way : travel.ways) way = {travel.root};
      if (Outcome out = bring(t)) return out;
    }
    runs_.push_back(std::move(made));
    if (graph_.training && has_backward(graph_, op)) return std::nullopt;
    report_.collectives += static_cast<std::int64_t>(runs_[o]->collectives().size());
    return check_executed_exchanges(o);
  }

  std::string operator_place(std::size_t o) const { return "/operators/" + std::to_string(o); }

  std::size_t use_of(std::size_t o, std::size_t operand) const {
    const auto& uses = graph_.tensor(*graph_.operators[o].inputs[operand]).uses;
    const auto found = std::find(
        uses.begin(), uses.end(), Use{static_cast<OperatorId>(o), static_cast<int>(operand)});
    MESHPLAN_CHECK(found != uses.end());
    return static_cast<std::size_t>(found - uses.begin());
  }

  /// Brings values and parameters back for the backward: the readers must find what they read in
  /// the forward.
  Outcome regather(std::size_t t) {
    for (const PlanRedistribution* entry : entries_[t].regather) {
      const std::vector<int>& uses = uses_of_[entry];
      auto from = layout(t, entry->from);
      if (!from) return diverges(entry->consumers[0].op, t, "regather", from.error().message);
      const std::string& reader = entry->consumers[0].op;
      const auto& first = travels_[t].ways[at(uses[0])];
      const auto kept = std::find_if(
          first.rbegin(), first.rend(), [&](const HeldPtr& held) { return held->layout == *from; });
      if (kept == first.rend())
        return diverges(
            reader, t, "regather", "the tensor never lay as " + to_string(from->placements()));
      HeldPtr again;
      if (Outcome out = move(*entry, t, **kept, again)) return out;
      for (const int u : uses) {  // one value for all of them
        const auto& way = travels_[t].ways[at(u)];
        const bool seen = std::any_of(way.begin(), way.end(), [&](const HeldPtr& held) {
          return held->layout == again->layout && held->blocks == again->blocks;
        });
        if (!seen)
          return diverges(
              reader, t, "regather", "what comes back is not what was read in the forward");
      }
    }
    return std::nullopt;
  }

  /// Runs an operator's forward once more; its backward follows from this run. What it makes again
  /// travels to its readers, who must find what they read in the forward.
  Outcome recompute(std::size_t o) {
    const Operator& op = graph_.operators[o];
    std::unique_ptr<OperatorExecution> run;
    if (Outcome out = execute(o, true, run)) return out;
    for (std::size_t r = 0; r < op.outputs.size(); ++r) {
      const std::size_t t = index(op.outputs[r]);
      const std::vector<PlanSaved>& saved = entries_[t].tensor->saved;
      const bool stored = std::any_of(saved.begin(), saved.end(), [](const PlanSaved& entry) {
        return entry.backward != Saved::kComputed;
      });
      if (stored) continue;
      Travel& travel = travels_[t];
      const HeldPtr root =
          std::make_shared<Held>(Held{run->results()[r], Layout(travel.root->layout)});
      if (Outcome out = compare(*root, expected_[t], t, op.name, "recompute")) return out;
      travel.again.assign(travel.ways.size(), {root});
      for (const PlanRedistribution* entry : entries_[t].recompute) {
        const std::vector<int>& uses = uses_of_[entry];
        HeldPtr to;
        if (Outcome out = move(*entry, t, *travel.again[at(uses[0])].back(), to)) return out;
        for (const int u : uses) travel.again[at(u)].push_back(to);
      }
      for (const PlanSaved& entry : saved) {
        for (std::size_t u = 0; u < travel.again.size(); ++u) {
          const std::string& reader = graph_.op(graph_.tensors[t].uses[u].op).name;
          if (std::find(entry.readers.begin(), entry.readers.end(), reader) == entry.readers.end())
            continue;
          auto wanted = layout(t, entry.placements);
          const auto& way = travel.again[u];
          const bool arrives = wanted && std::any_of(way.begin(), way.end(), [&](const auto& held) {
                                 return held->layout == *wanted;
                               });
          if (!arrives)
            return diverges(reader, t, "recompute", "what the backward reads is not made again");
        }
      }
    }
    report_.collectives += static_cast<std::int64_t>(runs_[o]->collectives().size());
    runs_[o] = std::move(run);
    return std::nullopt;
  }

  Outcome backward(std::size_t o) {
    const Operator& op = graph_.operators[o];
    std::vector<std::optional<DeviceTensors>> gradients;
    bool any = false;
    for (const TensorId output : op.outputs) {
      gradients.emplace_back();
      const std::size_t t = index(output);
      if (!graph_.tensors[t].has_gradient) continue;
      HeldPtr gradient;
      if (Outcome out = collect(t, gradient)) return out;
      if (!gradient) continue;
      if (!entries_[t].tensor->gradient)
        return diverges(op.name, t, "backward", "the plan gives the gradient no layout");
      auto wanted = layout(t, *entries_[t].tensor->gradient);
      if (!wanted) return malformed(tensor_place(t) + "/gradient", wanted.error().message);
      if (!(*wanted == gradient->layout))
        return diverges(op.name,
                        t,
                        "backward",
                        "the producer receives the gradient as " +
                            to_string(gradient->layout.placements()) + " instead of " +
                            to_string(wanted->placements()));
      if (Outcome out = compare(*gradient, *expected_gradients_[t], t, op.name, "backward"))
        return out;
      gradients.back() = gradient->blocks;
      any = true;
    }
    if (!any) return std::nullopt;
    const auto found = runs_[o]->backward(gradients);
    if (!found) return execution_failed(o, found.error());
    ++report_.operators;
    report_.collectives += static_cast<std::int64_t>(runs_[o]->collectives().size());
    if (Outcome out = check_executed_exchanges(o)) return out;
    for (std::size_t i = 0; i < op.inputs.size(); ++i) {
      if (!op.inputs[i] || !(*found)[i]) continue;
      const std::size_t t = index(*op.inputs[i]);
      if (!graph_.tensors[t].has_gradient) continue;
      const TensorState state = info_of_[op.rule.get()]->operand_state(strategies_[o], i, true);
      auto lies = Layout::from_placements(mesh(),
                                          gradient_placements(state, mesh().ndim()),
                                          static_cast<int>(graph_.tensors[t].shape.size()));
      MESHPLAN_CHECK(lies.has_value());
      travels_[t].gradients[use_of(o, i)] =
          std::make_shared<Held>(Held{*(*found)[i], std::move(*lies)});
    }
    runs_[o].reset();
    return std::nullopt;
  }

  /// The gradient of a tensor as its producer (or the accumulation) gets it; none arrived: nullptr.
  Outcome collect(std::size_t t, HeldPtr& gradient) {
    std::vector<HeldPtr>& parts = travels_[t].gradients;
    auto merged = [&](const std::vector<int>& uses, HeldPtr& sum) -> Outcome {
      std::vector<HeldPtr> distinct;
      for (const int u : uses) {
        const HeldPtr& part = parts[at(u)];
        if (part && std::find(distinct.begin(), distinct.end(), part) == distinct.end())
          distinct.push_back(part);
      }
      for (const HeldPtr& part : distinct) {
        if (!sum) {
          sum = part;
        } else if (!(sum->layout == part->layout)) {
          return diverges(
              graph_.op(graph_.tensors[t].uses[at(uses[0])].op).name,
              t,
              "backward",
              "gradients of different layouts meet: " + to_string(sum->layout.placements()) +
                  " and " + to_string(part->layout.placements()));
        } else {
          sum = std::make_shared<Held>(Held{sum_of(sum->blocks, part->blocks), sum->layout});
        }
      }
      return std::nullopt;
    };
    for (const PlanRedistribution* entry : entries_[t].backward) {
      const std::vector<int>& uses = uses_of_[entry];
      HeldPtr sum;
      if (Outcome out = merged(uses, sum)) return out;
      if (!sum) continue;
      HeldPtr to;
      if (Outcome out = move(*entry, t, *sum, to)) return out;
      for (const int u : uses) parts[at(u)] = to;
    }
    std::vector<int> all(parts.size());
    std::iota(all.begin(), all.end(), 0);
    if (Outcome out = merged(all, gradient)) return out;
    if (seeds_[t]) {
      // the graph's end hands the gradient over as the producer takes it
      if (!entries_[t].tensor->gradient)
        return diverges("", t, "backward", "the plan gives the gradient no layout");
      auto lies = layout(t, *entries_[t].tensor->gradient);
      if (!lies) return malformed(tensor_place(t) + "/gradient", lies.error().message);
      auto blocks = distributed(*seeds_[t], *lies);
      if (!blocks) return malformed(tensor_place(t) + "/gradient", blocks.error().message);
      const Held seed{std::move(*blocks), std::move(*lies)};
      if (!gradient) {
        gradient = std::make_shared<Held>(seed);
      } else if (gradient->layout == seed.layout) {
        gradient = std::make_shared<Held>(Held{sum_of(gradient->blocks, seed.blocks), seed.layout});
      } else {
        return diverges("", t, "backward", "gradients of different layouts meet");
      }
    }
    return std::nullopt;
  }

  /// Adds this micro-batch's gradients of the parameters.
  Outcome accumulate() {
    for (std::size_t t = 0; t < graph_.tensors.size(); ++t) {
      const Tensor& tensor = graph_.tensors[t];
      if (tensor.role != Role::kParameter || !tensor.has_gradient) continue;
      HeldPtr gradient;
      if (Outcome out = collect(t, gradient)) return out;
      if (!gradient || !expected_gradients_[t]) continue;
      if (Outcome out = compare(*gradient, *expected_gradients_[t], t, "", "gradient")) return out;
      if (!accumulated_[t]) {
        accumulated_[t] = gradient;
        summed_[t] = *expected_gradients_[t];
        continue;
      }
      accumulated_[t] = std::make_shared<Held>(
          Held{sum_of(accumulated_[t]->blocks, gradient->blocks), gradient->layout});
      for (std::size_t e = 0; e < summed_[t].values.size(); ++e)
        summed_[t].values[e] += expected_gradients_[t]->values[e];
    }
    return std::nullopt;
  }

  /// The last reductions, the optimizer on its shards, the way back to where parameters rest.
  Outcome update_parameters() {
    for (std::size_t t = 0; t < graph_.tensors.size(); ++t) {
      if (!accumulated_[t]) continue;
      const PlanTensor& said = *entries_[t].tensor;
      if (!said.gradient || !said.optimizer_state)
        return diverges("", t, "update", "the plan gives gradient or optimizer state no layout");
      auto gradient_layout = layout(t, *said.gradient);
      if (!gradient_layout || !(*gradient_layout == accumulated_[t]->layout))
        return diverges("",
                        t,
                        "gradient",
                        "the gradient is accumulated as " +
                            to_string(accumulated_[t]->layout.placements()) + " instead of " +
                            to_string(*said.gradient));
      HeldPtr gradient = accumulated_[t];
      if (entries_[t].finish != nullptr) {
        if (Outcome out = move(*entries_[t].finish, t, *accumulated_[t], gradient)) return out;
      }
      auto state_layout = layout(t, *said.optimizer_state);
      if (!state_layout || !(*state_layout == gradient->layout))
        return diverges("",
                        t,
                        "gradient",
                        "the gradient reaches the optimizer as " +
                            to_string(gradient->layout.placements()) + " instead of " +
                            to_string(*said.optimizer_state));
      if (Outcome out = compare(*gradient, summed_[t], t, "", "gradient")) return out;
      if (plan_.options.optimizer == "none") continue;
      if (Outcome out = update(t, *gradient)) return out;
    }
    return std::nullopt;
  }

  Outcome update(std::size_t t, const Held& gradient) {
    const DenseTensor first = draw_normal(graph_.tensors[t].shape);
    DenseTensor second = draw_normal(graph_.tensors[t].shape);
    for (double& value : second.values) value = 1 + value * value;
    auto weights = distributed(expected_[t], gradient.layout);
    auto firsts = distributed(first, gradient.layout);
    auto seconds = distributed(second, gradient.layout);
    if (!weights || !firsts || !seconds)
      return malformed(tensor_place(t) + "/optimizer_state", weights.error().message);
    DenseTensor expected = expected_[t];
    for (std::size_t e = 0; e < expected.values.size(); ++e)
      expected.values[e] =
          updated(expected.values[e], summed_[t].values[e], {first.values[e], second.values[e]});
    Held held{std::move(*weights), gradient.layout};
    for (std::size_t p = 0; p < held.blocks.size(); ++p) {
      for (std::size_t e = 0; e < held.blocks[p].values.size(); ++e)
        held.blocks[p].values[e] = updated(held.blocks[p].values[e],
                                           gradient.blocks[p].values[e],
                                           {(*firsts)[p].values[e], (*seconds)[p].values[e]});
    }
    HeldPtr rest = std::make_shared<Held>(std::move(held));
    if (entries_[t].update != nullptr) {
      if (Outcome out = move(*entries_[t].update, t, *rest, rest)) return out;
    }
    auto wanted = layout(t, entries_[t].tensor->placements);
    if (!wanted || !(*wanted == rest->layout))
      return diverges("",
                      t,
                      "update",
                      "the updated parameter lies as " + to_string(rest->layout.placements()) +
                          " instead of " + to_string(entries_[t].tensor->placements));
    return compare(*rest, expected, t, "", "update");
  }

  const Plan& plan_;
  const Graph& full_;
  Graph graph_;  ///< with small sizes
  VerifyOptions options_;
  std::mt19937_64 random_;
  VerifyReport report_;
  std::optional<Meshes> meshes_;
  int microbatches_ = 1;
  Bytes reduce_width_ = 0;  ///< bytes of an element of a parameter's gradient on its way

  std::vector<Entries> entries_;                                   ///< per tensor
  std::vector<const PlanOperator*> operators_;                     ///< per operator
  std::map<const PlanRedistribution*, std::vector<int>> uses_of_;  ///< of the entry's tensor
  Infos info_of_;                                                  ///< of the small graph
  Infos single_info_of_;                                           ///< of the same on one device
  Infos full_info_of_;  ///< of the big graph on its whole mesh
  std::vector<Strategy> strategies_;
  /// Of a rule (of the big graph or the small one) and what the plan says of its operator.
  std::map<std::pair<const Rule*, std::string>, std::vector<Strategy>> strategies_known_;

  std::vector<DenseTensor> expected_;                           ///< per tensor
  std::vector<std::optional<DenseTensor>> expected_gradients_;  ///< of this micro-batch
  std::vector<std::optional<DenseTensor>> seeds_;               ///< at the end of the graph
  std::vector<std::unique_ptr<OperatorExecution>> reference_runs_;
  std::vector<Travel> travels_;
  std::vector<std::unique_ptr<OperatorExecution>> runs_;
  std::vector<HeldPtr> accumulated_;  ///< gradients of parameters
  std::vector<DenseTensor> summed_;   ///< the same, unsharded
};

std::string number_text(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%.9g", value);
  return text;
}

}  // namespace

std::string to_string(const Divergence& divergence) {
  std::string text = divergence.phase + " of ";
  if (!divergence.op.empty())
    text += "operator \"" + divergence.op + (divergence.tensor.empty() ? "\": " : "\", ");
  if (!divergence.tensor.empty()) text += "tensor \"" + divergence.tensor + "\": ";
  if (!divergence.message.empty()) return text + divergence.message;
  text += "device " + std::to_string(divergence.device.value_or(0)) + " holds ";
  text += number_text(divergence.found) + " as element [";
  for (std::size_t d = 0; d < divergence.index.size(); ++d)
    text += (d == 0 ? "" : ",") + std::to_string(divergence.index[d]);
  return text + "] where the unsharded run has " + number_text(divergence.expected);
}

Result<VerifyReport> verify_plan(const Plan& plan,
                                 const Graph& graph,
                                 const VerifyOptions& options) {
  return Verifier(plan, graph, options).run();
}

}  // namespace meshplan

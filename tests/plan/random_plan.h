// SPDX-License-Identifier: Apache-2.0
// Plans with random values and layered names, for laws of the document. What they say is nonsense.
#pragma once

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "plan/plan.h"

namespace meshplan::testing {

class RandomPlan {
 public:
  explicit RandomPlan(unsigned seed) : random_(seed) {}

  Plan make(int layers, int per_layer) {
    Plan plan;
    plan.generator_version = "0.1.0";
    plan.graph = {"g \"quoted\"\n", "sha256:00"};
    plan.cluster = {"c", "sha256:11", 8};
    plan.options.overlap = {{"gather", 0.8}, {"gradient", 0.1}};
    plan.options.seed = 18446744073709551615ULL;
    plan.options.others = {{"mesh", std::string("auto")},
                           {"allow_uneven", true},
                           {"top", std::int64_t{3}},
                           {"tolerance", 0.01},
                           {"baseline", std::vector<std::string>{"fsdp", "zero1"}}};
    plan.mesh = {{2, 4}, {"dp", "tp"}, {}, coin() ? std::vector<std::int64_t>{} : ranks()};
    if (coin()) plan.mesh.roles = {{"fsdp"}, {}};
    if (coin()) plan.stages = {{{{"a", "b"}}, {{0, 1}}}, {{{"c"}}, {{2, 3}}}};
    plan.result.status = coin() ? PlanStatus::kOptimal : PlanStatus::kInfeasible;
    if (coin()) plan.result.objective = time();
    if (coin()) plan.result.gap = 0.25;
    if (coin()) plan.result.min_memory = number(1000);
    plan.result.found_by = "dp";
    if (coin()) plan.preference = {{0.01, time(), number(9), number(9), number(9), number(9)}};
    plan.cost.step_time = time();
    plan.cost.tokens_per_second = 12.5;
    if (coin()) plan.cost.price_per_step = 0.125;
    plan.memory.peak = 1LL << 62;
    plan.memory.moment = "backward of layers.3.x";
    if (coin()) plan.notes = {"first", "second"};
    if (coin()) plan.baselines = {{"fsdp", time(), std::nullopt, 12, false, "why"}};
    plan.groups = {{{"tp"}, {{0, 1, 2, 3}, {4, 5, 6, 7}}}, {{"dp", "tp"}, {ranks()}}};
    fill(plan, layers, per_layer);
    if (coin())
      plan.breakdown = {
          {Work::kRecompute, {}, std::nullopt, time(), time(), 0},
          {Collective::kAllToAll, {"dp", "tp"}, "nvlink", time(), time(), number(1 << 30)}};
    for (const PlanTensor& each : plan.tensors) {
      if (coin(3))
        plan.at_peak.push_back({each.name, static_cast<MemoryKind>(number(7)), 1 + number(3)});
    }
    std::sort(plan.at_peak.begin(), plan.at_peak.end(), stands_before);
    return plan;
  }

 private:
  bool coin(int one_in = 2) { return number(one_in) == 0; }
  std::int64_t number(std::int64_t below) {
    return std::uniform_int_distribution<std::int64_t>(0, below - 1)(random_);
  }
  Seconds time() { return on_price_grid({std::uniform_real_distribution<>(0, 1)(random_)}); }
  static std::vector<std::int64_t> ranks() { return {0, 1, 2, 3, 4, 5, 6, 7}; }

  Placement placement() {
    switch (number(4)) {
      case 0:
        return Replicate{};
      case 1:
        return Shard{static_cast<int>(number(3))};
      case 2:
        return StridedShard{static_cast<int>(number(3)), 4};
      default:
        return Partial{static_cast<Reduction>(number(5))};
    }
  }
  Placements placements() { return {placement(), placement()}; }

  PlanTensor tensor(const std::string& reader) {
    PlanTensor tensor;
    tensor.shape = {64, 1024};
    tensor.dtype = "bf16";
    tensor.placements = placements();
    tensor.tensor_map = {{1}, {}, {0, 1}, {-1}, {2, 0, 1}};
    tensor.local_shape = {4, 1024};
    if (coin()) tensor.gradient = placements();
    if (coin()) tensor.optimizer_state = placements();
    if (coin()) tensor.update_time = time();
    if (coin()) tensor.saved = {{placements(), {reader, "loss"}, Saved::kGathered}};
    if (coin()) tensor.reason = "propagated from " + reader;
    return tensor;
  }
  PlanOperator op() {
    PlanOperator op;
    op.type = "MatMul";
    op.in_placements = {placements(), std::nullopt};
    op.out_placements = {placements()};
    op.in_strategy = {std::vector<std::int64_t>{2, 1}, std::nullopt};
    op.compute_time = time();
    if (coin()) op.objective = time();
    if (coin())
      op.collectives = {{Collective::kAllGather, {"tp"}, Phase::kBackward, 2, 64, time()}};
    return op;
  }
  PlanRedistribution redistribution(const std::string& reader) {
    PlanRedistribution entry;
    entry.consumers = {{reader, std::nullopt}, {"loss", 1}};
    if (coin()) entry.consumers[1].operand.reset();
    entry.phase = static_cast<Phase>(number(5));
    entry.per = coin() ? Per::kStep : Per::kMicrobatch;
    entry.from = placements();
    entry.to = placements();
    PlanStep step;
    step.collective = static_cast<Collective>(number(9));
    if (coin()) step.reduction = Reduction::kMax;
    step.axes = {"dp", "tp"};
    if (coin()) step.dim = 1;
    if (coin()) step.split_dim = 0;
    if (coin()) step.concat_dim = 2;
    if (coin()) step.pairs = {{0, 1}, {1, 0}};
    if (coin()) step.sends = {{0, 1, {0, 0}, {1, 1}, {2, 2}}};
    step.bytes = number(1 << 20);
    step.time = time();
    step.placements = placements();
    entry.steps = {step};
    return entry;
  }

  /// Some templates are equal in all layers, some differ, some refer to the next layer.
  void fill(Plan& plan, int layers, int per_layer) {
    struct Template {
      PlanTensor tensor;
      PlanOperator op;
      std::vector<PlanRedistribution> moves;
      std::string name;
      bool crosses;
    };
    std::vector<Template> templates;
    for (int t = 0; t < per_layer; ++t) {
      const std::string name = coin(3)   ? "experts.1.w" + std::to_string(t)
                               : coin(3) ? "part" + std::to_string(t)
                                         : "sub/" + std::to_string(t);
      templates.push_back({tensor("@" + name),
                           op(),
                           {redistribution("@" + name), redistribution("@" + name)},
                           name,
                           coin(3)});
    }
    for (int layer = 0; layer < layers; ++layer) {
      const auto in_layer = [&](int number, std::string text) {
        const std::size_t at = text.find('@');
        if (at != std::string::npos) {
          text.replace(at, 1, "layers." + std::to_string(number) + ".");
        }
        return text;
      };
      for (Template& each : templates) {
        if (coin(10)) each.tensor = tensor("@" + each.name);  // from here on different
        if (coin(10)) each.op = op();
        const std::string name = in_layer(layer, "@" + each.name);
        const int reader = each.crosses ? layer + 1 : layer;
        PlanTensor& made = plan.tensors.emplace_back(each.tensor);
        made.name = name;
        made.reason = in_layer(reader, made.reason);
        for (PlanSaved& saved : made.saved) saved.readers[0] = in_layer(reader, saved.readers[0]);
        plan.operators.emplace_back(each.op).name = name;
        for (const PlanRedistribution& move : each.moves) {
          PlanRedistribution& moved = plan.redistributions.emplace_back(move);
          moved.tensor = moved.producer = name;
          moved.consumers[0].op = in_layer(reader, moved.consumers[0].op);
        }
      }
    }
    if (coin()) std::shuffle(plan.redistributions.begin(), plan.redistributions.end(), random_);
    if (coin(4)) std::shuffle(plan.operators.begin(), plan.operators.end(), random_);
  }

  std::mt19937 random_;
};

}  // namespace meshplan::testing

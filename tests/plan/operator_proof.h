// SPDX-License-Identifier: Apache-2.0
// Proof of a rule by execution: one operator, run whole and run in shards with real numbers,
// forward and backward, must give the same. What devices hold under a state is worked out here from
// the meaning of the placements alone.
#pragma once

#include <cmath>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "graph/operator_info.h"
#include "graph/operator_table.h"
#include "plan/execution/execution.h"
#include "support/random.h"
#include "support/sharded_tensor.h"

namespace meshplan::test {

/// Largest difference that counts as equal, relative to the larger of 1 and the number.
inline constexpr double kTolerance = 1e-9;

inline double real(Random& random, double low, double high) {
  return low + (high - low) * static_cast<double>(random.below(1U << 30U)) / (1U << 30U);
}

/// An operator with numbers for its operands.
struct OperatorCase {
  OperatorSpec spec;
  std::vector<std::optional<DenseTensor>> values;
  std::vector<bool> gradients;       ///< operands whose gradient is compared
  std::size_t smooth_results = 100;  ///< results after these have no gradient
};

inline OperatorCall call_of(const OperatorCase& c, const TypedOperator& typed) {
  OperatorCall call;
  call.type = c.spec.type;
  call.attributes = c.spec.attributes;
  for (const auto& input : c.spec.inputs)
    call.operand_types.push_back(input ? input->dtype : DType::kFp32);
  for (const TensorType& output : typed.outputs) call.result_types.push_back(output.dtype);
  call.operand_gradients = c.gradients;
  call.seed = 5;
  return call;
}

/// Blocks of a tensor; terms of a sum are random.
inline DeviceTensors distribute(const DenseTensor& full,
                                const Placements& placements,
                                const Sizes& mesh,
                                Random& random) {
  std::vector<DenseTensor> terms = {full};
  const std::vector<std::size_t> partial = partial_axes(placements);
  for (const std::size_t axis : partial) {
    std::vector<DenseTensor> next;
    for (const DenseTensor& term : terms) {
      DenseTensor rest = term;
      for (std::int64_t i = 0; i + 1 < mesh[axis]; ++i) {
        DenseTensor part = term;
        for (std::size_t j = 0; j < part.values.size(); ++j) {
          part.values[j] = real(random, -1, 1);
          rest.values[j] -= part.values[j];
        }
        next.push_back(std::move(part));
      }
      next.push_back(std::move(rest));
    }
    terms = std::move(next);
  }
  DeviceTensors blocks;
  Sizes begin, size;
  for (DeviceRank device = 0; device < element_count(mesh); ++device) {
    const auto coordinates = coordinates_of(mesh, device);
    std::size_t term = 0;
    for (const std::size_t axis : partial)
      term =
          term * static_cast<std::size_t>(mesh[axis]) + static_cast<std::size_t>(coordinates[axis]);
    block_range(mesh, full.shape, placements, device, begin, size);
    blocks.push_back(block_of(terms[term], begin, size));
  }
  return blocks;
}

/// What an execution reads.
inline std::vector<std::optional<std::span<const DenseTensor>>> seen(
    const std::vector<std::optional<DeviceTensors>>& operands) {
  std::vector<std::optional<std::span<const DenseTensor>>> list;
  for (const auto& operand : operands) {
    list.emplace_back();
    if (operand) list.back().emplace(*operand);
  }
  return list;
}

inline bool close(double a, double b) {
  if (std::isnan(a) && std::isnan(b)) return true;
  return a == b || std::abs(a - b) <= kTolerance * std::max(1.0, std::abs(b));
}

/// nullopt if the blocks are `full` under the placements, else the first difference.
inline std::optional<std::string> difference(DeviceTensors blocks,
                                             const DenseTensor& full,
                                             const Placements& placements,
                                             const Sizes& mesh) {
  const std::vector<std::size_t> partial = partial_axes(placements);
  for (std::size_t k = partial.size(); k-- > 0;) {
    const int axis = static_cast<int>(partial[k]);
    const Reduction how = std::get<Partial>(placements[partial[k]]).reduction;
    DeviceTensors next = blocks;
    for (const auto& group : device_groups(mesh, std::vector<int>{axis})) {
      for (std::size_t i = 0; i < blocks[static_cast<std::size_t>(group[0])].values.size(); ++i) {
        std::vector<double> terms;
        for (const DeviceRank device : group) {
          const DenseTensor& block = blocks[static_cast<std::size_t>(device)];
          if (block.shape != blocks[static_cast<std::size_t>(group[0])].shape)
            return "the devices' shapes differ";
          terms.push_back(block.values[i]);
        }
        const double total = reduce_values(how, terms);
        for (const DeviceRank device : group)
          next[static_cast<std::size_t>(device)].values[i] = total;
      }
    }
    blocks = std::move(next);
  }
  Sizes begin, size;
  for (DeviceRank device = 0; device < element_count(mesh); ++device) {
    block_range(mesh, full.shape, placements, device, begin, size);
    const DenseTensor expected = block_of(full, begin, size);
    const DenseTensor& found = blocks[static_cast<std::size_t>(device)];
    if (found.shape != expected.shape) return "device " + std::to_string(device) + ": other shape";
    for (std::size_t i = 0; i < found.values.size(); ++i) {
      if (!close(found.values[i], expected.values[i]))
        return "device " + std::to_string(device) + ", element " + std::to_string(i) + ": " +
               std::to_string(found.values[i]) + " instead of " +
               std::to_string(expected.values[i]);
    }
  }
  return std::nullopt;
}

/// The unsharded run: what every strategy must give.
struct WholeRun {
  std::vector<DenseTensor> results;
  std::vector<std::optional<DenseTensor>> result_gradients;  ///< random; none for integers
  std::vector<std::optional<DenseTensor>> operand_gradients;
};

inline Result<WholeRun> run_whole(const OperatorCase& c,
                                  const TypedOperator& typed,
                                  Random& random) {
  auto info = std::make_shared<const OperatorInfo>(typed.rule, Sizes{});
  std::vector<std::optional<DeviceTensors>> operands;
  for (const auto& value : c.values)
    operands.push_back(value ? std::optional(DeviceTensors{*value}) : std::nullopt);
  auto run =
      OperatorExecution::forward(call_of(c, typed), info, info->strategies().at(0), seen(operands));
  if (!run) return fail(run.error());
  WholeRun whole;
  std::vector<std::optional<DeviceTensors>> gradients;
  for (std::size_t r = 0; r < run->results().size(); ++r) {
    whole.results.push_back(run->results()[r][0]);
    whole.result_gradients.emplace_back();
    gradients.emplace_back();
    if (!is_floating(typed.outputs[r].dtype) || r >= c.smooth_results) continue;
    DenseTensor gradient = whole.results[r];
    for (double& value : gradient.values) value = real(random, -1, 1);
    gradients.back() = DeviceTensors{gradient};
    whole.result_gradients.back() = std::move(gradient);
  }
  auto back = run->backward(gradients);
  if (!back) return fail(back.error());
  for (const auto& gradient : *back)
    whole.operand_gradients.push_back(gradient ? std::optional(gradient->at(0)) : std::nullopt);
  return whole;
}

/// Deliberate mistakes in reading a rule, to see that they are found.
struct Mistake {
  std::optional<std::size_t> forgets_gradient_sum_of;  ///< takes an operand's R/P for R/R
  std::optional<std::size_t> forgets_partial_of;       ///< takes a result's P/R for R/R
};

inline TensorState without_partial(TensorState state) {
  for (AxisState& axis : state.axes) {
    if (axis == kPartialState) axis = kReplicatedState;
  }
  return state;
}

/// Runs `c` in shards; `info` may be of another (mutated) rule of the same shapes. nullopt if all
/// results and gradients are those of the whole run, else the first difference.
inline std::optional<std::string> disproof(const OperatorCase& c,
                                           const TypedOperator& typed,
                                           const WholeRun& whole,
                                           const std::shared_ptr<const OperatorInfo>& info,
                                           const Strategy& strategy,
                                           Random& random,
                                           std::vector<InnerCall>* calls = nullptr,
                                           const Mistake& mistake = {}) {
  const Sizes mesh(info->mesh_shape().begin(), info->mesh_shape().end());
  const int axes = static_cast<int>(mesh.size());
  std::vector<std::optional<DeviceTensors>> operands;
  for (std::size_t i = 0; i < c.values.size(); ++i) {
    operands.emplace_back();
    if (!c.values[i]) continue;
    const TensorState state = info->operand_state(strategy, i, c.gradients[i]);
    operands.back() = distribute(*c.values[i], value_placements(state, axes), mesh, random);
  }
  auto run = OperatorExecution::forward(call_of(c, typed), info, strategy, seen(operands));
  if (!run) return run.error().message;
  std::vector<std::optional<DeviceTensors>> gradients;
  for (std::size_t r = 0; r < whole.results.size(); ++r) {
    TensorState state = info->result_state(strategy, r);
    if (mistake.forgets_partial_of == r) state = without_partial(state);
    const auto wrong = difference(run->results()[r],
                                  whole.results[r],
                                  value_placements(state, axes, info->result_reduction()),
                                  mesh);
    if (wrong) return "result " + std::to_string(r) + ": " + *wrong;
    gradients.emplace_back();
    if (whole.result_gradients[r])
      gradients.back() =
          distribute(*whole.result_gradients[r], gradient_placements(state, axes), mesh, random);
  }
  auto back = run->backward(gradients);
  if (!back) return back.error().message;
  for (std::size_t i = 0; i < c.values.size(); ++i) {
    if (!whole.operand_gradients[i]) continue;
    const TensorState state =
        info->operand_state(strategy, i, mistake.forgets_gradient_sum_of != i);
    const auto wrong = difference(
        *(*back)[i], *whole.operand_gradients[i], gradient_placements(state, axes), mesh);
    if (wrong) return "gradient of operand " + std::to_string(i) + ": " + *wrong;
  }
  if (calls != nullptr) *calls = run->collectives();
  return std::nullopt;
}

}  // namespace meshplan::test

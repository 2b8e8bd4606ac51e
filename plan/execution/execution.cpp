// SPDX-License-Identifier: Apache-2.0
#include "plan/execution/execution.h"

#include <algorithm>

#include "plan/execution/operator_context.h"

namespace meshplan {
namespace {

std::string text_of(const std::vector<std::int64_t>& shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i)
    text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  return text + "]";
}

/// All devices' blocks in one tensor. Errors: kValue.
Result<DenseTensor> joined(std::span<const DenseTensor> blocks,
                           std::int64_t devices,
                           const Shape& local,
                           const std::string& what) {
  if (static_cast<std::int64_t>(blocks.size()) != devices)
    return fail(ErrorCode::kValue,
                "",
                what + " has blocks of " + std::to_string(blocks.size()) + " devices, expected " +
                    std::to_string(devices));
  DenseTensor all;
  all.shape = {devices};
  all.shape.insert(all.shape.end(), local.begin(), local.end());
  all.values.reserve(static_cast<std::size_t>(element_count(all.shape)));
  for (const DenseTensor& block : blocks) {
    if (block.shape != local)
      return fail(ErrorCode::kValue,
                  "",
                  "a block of " + what + " has shape " + text_of(block.shape) + ", expected " +
                      text_of(local));
    all.values.insert(all.values.end(), block.values.begin(), block.values.end());
  }
  return all;
}

DeviceTensors blocks_of(const DenseTensor& all) {
  DeviceTensors blocks;
  const std::vector<std::int64_t> local(all.shape.begin() + 1, all.shape.end());
  const auto size = static_cast<std::ptrdiff_t>(element_count(local));
  for (std::int64_t device = 0; device < all.shape[0]; ++device) {
    const auto begin = all.values.begin() + static_cast<std::ptrdiff_t>(device) * size;
    blocks.push_back({local, {begin, begin + size}});
  }
  return blocks;
}

/// Axes along which a tensor's blocks may differ.
AxisSet varying_axes(const TensorState& state, std::size_t axes) {
  AxisSet set = 0;
  for (std::size_t a = 0; a < axes; ++a) {
    if (state.axes[a] != kReplicatedState) set |= AxisSet{1} << a;
  }
  return set;
}

}  // namespace

struct OperatorExecution::State {
  State(OperatorCall what, std::shared_ptr<const OperatorInfo> how, const Strategy& chosen)
      : call(std::move(what)),
        info(std::move(how)),
        strategy(chosen),
        tape({info->mesh_shape().begin(), info->mesh_shape().end()}) {}

  OperatorCall call;
  std::shared_ptr<const OperatorInfo> info;
  Strategy strategy;
  DeviceTape tape;
  std::vector<Var> operands;
  std::vector<Var> result_values;
  std::vector<DeviceTensors> results;
};

OperatorExecution::OperatorExecution(std::unique_ptr<State> state) : state_(std::move(state)) {}
OperatorExecution::OperatorExecution(OperatorExecution&&) noexcept = default;
OperatorExecution& OperatorExecution::operator=(OperatorExecution&&) noexcept = default;
OperatorExecution::~OperatorExecution() = default;

Result<OperatorExecution> OperatorExecution::forward(
    OperatorCall call,
    std::shared_ptr<const OperatorInfo> info,
    const Strategy& strategy,
    const std::vector<std::optional<std::span<const DenseTensor>>>& operands) {
  if (auto can = can_execute(call.type, info->rule()); !can) return fail(can.error());
  const Meaning meaning = find_meaning(call.type, info->rule());
  auto state = std::make_unique<State>(std::move(call), std::move(info), strategy);
  const Rule& rule = state->info->rule();
  DeviceTape& tape = state->tape;
  for (std::size_t i = 0; i < rule.operands.size(); ++i) {
    const bool given = i < operands.size() && operands[i].has_value();
    if (given != rule.operands[i].present)
      return fail(ErrorCode::kValue,
                  "",
                  "operand " + std::to_string(i) + (given ? " is not expected" : " is missing"));
    if (!given) {
      state->operands.emplace_back();
      continue;
    }
    const TensorState placed = state->info->operand_state(strategy, i, true);
    auto all = joined(*operands[i],
                      tape.devices(),
                      local_shape(rule.operands[i].shape, placed, tape.mesh_shape()),
                      "operand " + std::to_string(i));
    if (!all) return fail(all.error());
    const bool gradient =
        i < state->call.operand_gradients.size() && state->call.operand_gradients[i];
    const TensorState sides = state->info->operand_state(strategy, i, gradient);
    state->operands.push_back(
        tape.input(*std::move(all), varying_axes(sides, tape.mesh_shape().size()), gradient));
  }
  const OperatorContext context(tape, state->call, *state->info, strategy, state->operands);
  state->result_values = meaning(context);
  if (tape.ok() && state->result_values.size() < rule.results.size())
    tape.fail("it has " + std::to_string(rule.results.size()) + " results, but " +
              std::to_string(state->result_values.size()) + " can be computed");
  for (std::size_t r = 0; tape.ok() && r < rule.results.size(); ++r) {
    const Var result = state->result_values[r];
    const Shape expected = context.local_result(r);
    if (!result.valid()) {
      tape.fail("result " + std::to_string(r) + " cannot be computed");
    } else if (result.shape() != expected) {
      tape.fail("result " + std::to_string(r) + " has local shape " + text_of(result.shape()) +
                ", expected " + text_of(expected));
    } else {
      state->results.push_back(blocks_of(result.value()));
    }
  }
  if (!tape.ok())
    return fail(ErrorCode::kValue,
                "",
                state->call.type + " as " + state->info->label(strategy) + ": " + tape.error());
  return OperatorExecution(std::move(state));
}

const std::vector<DeviceTensors>& OperatorExecution::results() const { return state_->results; }

DeviceTensors OperatorExecution::take_result(std::size_t r) {
  return std::move(state_->results[r]);
}

const std::vector<InnerCall>& OperatorExecution::collectives() const {
  return state_->tape.calls();
}

Result<std::vector<std::optional<DeviceTensors>>> OperatorExecution::backward(
    const std::vector<std::optional<DeviceTensors>>& gradients) {
  DeviceTape& tape = state_->tape;
  std::vector<std::pair<Var, DenseTensor>> seeds;
  for (std::size_t r = 0; r < gradients.size() && r < state_->results.size(); ++r) {
    if (!gradients[r]) continue;
    const Var result = state_->result_values[r];
    auto all = joined(*gradients[r],
                      tape.devices(),
                      result.shape(),
                      "the gradient of result " + std::to_string(r));
    if (!all) return fail(all.error());
    // devices that computed the same copy have one gradient between them, so the first one takes it
    const TensorState state = state_->info->result_state(state_->strategy, r);
    const AxisSet copies = result.varying() & ~varying_axes(state, tape.mesh_shape().size());
    if (copies != 0) {
      const std::size_t size = all->values.size() / static_cast<std::size_t>(tape.devices());
      for (const std::vector<std::int64_t>& group : tape.groups(copies)) {
        for (std::size_t m = 1; m < group.size(); ++m)
          std::fill_n(all->values.begin() +
                          static_cast<std::ptrdiff_t>(static_cast<std::size_t>(group[m]) * size),
                      size,
                      0.0);
      }
    }
    seeds.emplace_back(result, *std::move(all));
  }
  tape.backward(seeds);
  std::vector<std::optional<DeviceTensors>> found(state_->operands.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    const Var operand = state_->operands[i];
    if (!operand.valid() || !tape.needs_gradient(operand)) continue;
    const std::optional<DenseTensor>& gradient = tape.gradient(operand);
    found[i] = blocks_of(gradient ? *gradient : DenseTensor::filled(operand.value().shape, 0.0));
  }
  return found;
}

OperatorCall operator_call(const Graph& graph, OperatorId id, std::uint64_t seed) {
  const Operator& op = graph.op(id);
  OperatorCall call;
  call.type = op.type;
  call.attributes = op.attributes;
  call.seed = seed;
  for (const TensorId result : op.outputs) call.result_types.push_back(graph.tensor(result).dtype);
  for (const auto& input : op.inputs) {
    call.operand_types.push_back(input ? graph.tensor(*input).dtype : DType::kFp32);
    call.operand_gradients.push_back(input && graph.tensor(*input).has_gradient);
  }
  return call;
}

}  // namespace meshplan

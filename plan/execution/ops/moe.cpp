// SPDX-License-Identifier: Apache-2.0
// Mixture of experts: tokens to slots and back. Slots of an expert are filled in token order within
// a group of tokens; who finds none left is dropped. On a route axis devices hold tokens on one
// side and experts on the other: what changes hands is recorded as one all-to-all of the slots.
// Where such an axis cuts a group, the devices know how many slots the tokens before theirs take;
// that exchange of a few counts is not recorded.
#include "plan/execution/ops/meanings.h"

namespace meshplan {
namespace {

using Results = std::vector<Var>;
using List = std::vector<std::int64_t>;

AxisSet route_axes(const OperatorContext& cx) {
  AxisSet axes = 0;
  for (std::size_t a = 0; a < cx.info.mesh_shape().size(); ++a) {
    if (cx.info.action(cx.strategy, static_cast<int>(a)).kind == AxisAction::Kind::kRoute)
      axes |= AxisSet{1} << a;
  }
  return axes;
}

/// Slots of the whole tensor: experts x (groups x capacity).
struct Slots {
  std::int64_t experts = 1;
  std::int64_t per_expert = 1;
  std::int64_t groups = 1;

  std::int64_t count() const { return experts * per_expert; }
};

/// For every device, token of its own and choice: the slot in the whole tensor, or -1.
List slots_of_tokens(const OperatorContext& cx, const Slots& slots) {
  const Shape whole = cx.operand_shape(1);
  const std::int64_t tokens = whole[0];
  const std::int64_t top_k = whole[1];
  const std::int64_t group_size = tokens / slots.groups;
  const std::int64_t capacity = slots.per_expert / slots.groups;
  const std::int64_t own = cx.operand(1).shape()[0];
  if (cx.operand(1).shape()[1] != top_k) {
    cx.tape.fail("a shard has only some of a token's choices");
    return {};
  }
  const List begin = cx.operand_begin(1, 0);
  const std::vector<double>& held = cx.operand(1).value().values;
  List result(static_cast<std::size_t>(cx.tape.devices() * own * top_k), -1);
  for (const std::vector<std::int64_t>& group : cx.tape.groups(route_axes(cx))) {
    // the choices that the devices of a route know together
    List choices(static_cast<std::size_t>(tokens * top_k), -1);
    for (const std::int64_t device : group) {
      for (std::int64_t i = 0; i < own * top_k; ++i)
        choices[static_cast<std::size_t>(begin[static_cast<std::size_t>(device)] * top_k + i)] =
            static_cast<std::int64_t>(held[static_cast<std::size_t>(device * own * top_k + i)]);
    }
    List taken(static_cast<std::size_t>(slots.groups * slots.experts), 0);
    List slot(choices.size(), -1);
    for (std::size_t i = 0; i < choices.size(); ++i) {
      const std::int64_t expert = choices[i];
      if (expert < 0 || expert >= slots.experts) continue;
      const std::int64_t g = static_cast<std::int64_t>(i) / top_k / group_size;
      std::int64_t& next = taken[static_cast<std::size_t>(g * slots.experts + expert)];
      if (next < capacity) slot[i] = expert * slots.per_expert + g * capacity + next;
      ++next;
    }
    for (const std::int64_t device : group) {
      for (std::int64_t i = 0; i < own * top_k; ++i)
        result[static_cast<std::size_t>(device * own * top_k + i)] =
            slot[static_cast<std::size_t>(begin[static_cast<std::size_t>(device)] * top_k + i)];
    }
  }
  return result;
}

/// What the devices of a route hold of all slots, put together. Every slot comes from one of them;
/// `elements` of the slots change hands.
Var routed(Var x, AxisSet axes, std::int64_t elements) {
  if (!x.valid() || axes == 0) return x;
  DeviceTape& tape = *x.tape;
  tape.record({Collective::kAllToAll, axes, false, 1, elements});
  return tape.step(
      tape.combined(x.value(), axes, Reduction::kSum),
      {x},
      x.varying(),
      [axes, elements, &tape](const DenseTensor& g) {
        tape.record({Collective::kAllToAll, axes, true, 1, elements});
        return std::vector<std::optional<DenseTensor>>{tape.combined(g, axes, Reduction::kSum)};
      });
}

Results dispatch(const OperatorContext& cx) {
  const Shape whole = cx.result_shape(0);
  const Slots slots{whole[0], whole[1], cx.integer("groups", 1)};
  const Var x = cx.operand(0);
  if (!x.valid()) return {};
  const List of_tokens = slots_of_tokens(cx, slots);
  if (!cx.tape.ok()) return {};
  const std::int64_t top_k = cx.operand_shape(1)[1];
  const auto per_device = static_cast<std::int64_t>(of_tokens.size()) / cx.tape.devices();
  List source(static_cast<std::size_t>(cx.tape.devices() * slots.count()), -1);
  for (std::size_t i = 0; i < of_tokens.size(); ++i) {
    const std::int64_t at = static_cast<std::int64_t>(i);
    if (of_tokens[i] >= 0)
      source[static_cast<std::size_t>(at / per_device * slots.count() + of_tokens[i])] =
          at % per_device / top_k;
  }
  const Shape local = cx.local_result(0);
  Var y = take(x, 0, std::make_shared<const List>(std::move(source)));
  y = routed(y, route_axes(cx), element_count(local));
  // the own block
  List index;
  const List expert = cx.result_begin(0, 0);
  const List slot = cx.result_begin(0, 1);
  for (std::size_t device = 0; device < expert.size(); ++device) {
    for (std::int64_t e = 0; e < local[0]; ++e) {
      for (std::int64_t s = 0; s < local[1]; ++s)
        index.push_back((expert[device] + e) * slots.per_expert + slot[device] + s);
    }
  }
  return {reshape(take(y, 0, std::make_shared<const List>(std::move(index))), local)};
}

Results combine(const OperatorContext& cx) {
  const Shape whole = cx.operand_shape(0);
  const Slots slots{whole[0], whole[1], cx.integer("groups", 1)};
  const Var y = cx.operand(0);
  if (!y.valid()) return {};
  const Shape local = y.shape();
  List place(static_cast<std::size_t>(cx.tape.devices() * slots.count()), -1);
  const List expert = cx.operand_begin(0, 0);
  const List slot = cx.operand_begin(0, 1);
  for (std::size_t device = 0; device < expert.size(); ++device) {
    for (std::int64_t e = 0; e < local[0]; ++e) {
      for (std::int64_t s = 0; s < local[1]; ++s)
        place[device * static_cast<std::size_t>(slots.count()) +
              static_cast<std::size_t>((expert[device] + e) * slots.per_expert + slot[device] +
                                       s)] = e * local[1] + s;
    }
  }
  Var all = take(reshape(y, {local[0] * local[1], local[2]}),
                 0,
                 std::make_shared<const List>(std::move(place)));
  all = routed(all, route_axes(cx), element_count(local));
  const std::int64_t tokens = cx.operand(1).shape()[0];
  const std::int64_t top_k = cx.operand_shape(1)[1];
  List of_tokens = slots_of_tokens(cx, slots);
  if (!cx.tape.ok()) return {};
  Var rows = take(all, 0, std::make_shared<const List>(std::move(of_tokens)));
  rows = reshape(rows, {tokens, top_k, local[2]});
  if (cx.has(2)) rows = rows * reshape(cx.operand(2), {tokens, top_k, 1});
  return {reshape(sum(rows, {1}), cx.local_result(0))};
}

constexpr MeaningRow kRows[] = {
    {"MoECombine", combine},
    {"MoEDispatch", dispatch},
};

}  // namespace

std::span<const MeaningRow> moe_meanings() { return kRows; }

}  // namespace meshplan

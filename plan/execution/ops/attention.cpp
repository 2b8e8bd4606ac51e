// SPDX-License-Identifier: Apache-2.0
// Scaled dot-product attention and rotary position embedding. Whatever the form of the operands,
// a device computes [batch, groups, heads per group, sequence, size] of its shard; masks and
// causality follow global positions.
#include <algorithm>
#include <cmath>
#include <limits>

#include "plan/execution/ops/meanings.h"

namespace meshplan {
namespace {

using Results = std::vector<Var>;

/// [b, h, s, e] of an operand of four dimensions, or of [b, s, h * e].
Var by_heads(const OperatorContext& cx, std::size_t i, const std::string& attribute) {
  const Var x = cx.operand(i);
  if (!x.valid() || x.shape().size() == 4) return x;
  const std::int64_t size =
      cx.operand_shape(i)[2] / std::max<std::int64_t>(cx.integer(attribute, 1), 1);
  const Shape local = x.shape();
  if (local[2] % size != 0) return cx.tape.fail("a shard cuts a head");
  return permute(reshape(x, {local[0], local[1], local[2] / size, size}), {0, 2, 1, 3});
}

/// Keys and values of the whole sequence where a ring passes them around.
std::pair<Var, Var> passed_around(const OperatorContext& cx, Var k, Var v) {
  std::vector<int> axes;
  for (std::size_t a = cx.info.mesh_shape().size(); a-- > 0;) {
    const int axis = static_cast<int>(a);
    if (cx.info.action(cx.strategy, axis).kind == AxisAction::Kind::kRing) axes.push_back(axis);
  }
  if (axes.empty() || !k.valid() || !v.valid()) return {k, v};
  const std::int64_t size_k = k.shape()[3];
  const std::int64_t size_v = v.shape()[3];
  Var both = concat({k, v}, 3);
  for (const int axis : axes) both = ring_gather(both, 2, axis);
  const auto part = [&](std::int64_t first, std::int64_t count) {
    std::vector<std::int64_t> index;
    for (std::int64_t device = 0; device < cx.tape.devices(); ++device) {
      for (std::int64_t i = 0; i < count; ++i) index.push_back(first + i);
    }
    return take(both, 3, std::make_shared<const std::vector<std::int64_t>>(std::move(index)));
  };
  return {part(0, size_k), part(size_k, size_v)};
}

Results attention(const OperatorContext& cx) {
  const bool four = cx.operand_shape(0).size() == 4;
  Var q = by_heads(cx, 0, "q_num_heads");
  Var k = by_heads(cx, 1, "kv_num_heads");
  Var v = by_heads(cx, 2, "kv_num_heads");
  std::tie(k, v) = passed_around(cx, k, v);
  std::int64_t past = 0;
  if (cx.has(4) && cx.has(5)) {
    past = cx.operand(4).shape()[2];
    k = concat({cx.operand(4), k}, 2);
    v = concat({cx.operand(5), v}, 2);
  }
  if (!q.valid() || !k.valid() || !v.valid()) return {};
  const Shape of_q = q.shape();
  const std::int64_t groups = k.shape()[1];
  if (of_q[1] % groups != 0)
    return {cx.tape.fail("the query heads of a device are no multiple of its key heads")};
  const std::int64_t heads = of_q[1] / groups;
  const double scale = cx.number("scale", 1 / std::sqrt(static_cast<double>(of_q[3])));
  const Var grouped = reshape(q, {of_q[0], groups, heads, of_q[2], of_q[3]});
  Var scores = einsum({"bgqse", "bgte"}, "bgqst", {grouped, k}) * scale;
  if (const double cap = cx.number("softcap", 0); cap > 0) {
    scores = map(
        scores,
        [cap](double x) { return cap * std::tanh(x / cap); },
        [cap](double, double y) { return 1 - y * y / (cap * cap); });
  }
  const Var never = full(cx.tape, {}, -std::numeric_limits<double>::infinity());
  const std::size_t sequence = four ? 2 : 1;
  if (cx.integer("is_causal", 0) != 0) {
    const auto offset = static_cast<double>(past);
    Shape columns = {k.shape()[2]};
    DenseTensor positions = DenseTensor::filled({cx.tape.devices(), columns[0]}, 0.0);
    for (std::size_t i = 0; i < positions.values.size(); ++i)
      positions.values[i] = static_cast<double>(static_cast<std::int64_t>(i) % columns[0]);
    const Var rows = reshape(cx.operand_positions(0, sequence, 1 + sequence), {of_q[2], 1});
    const auto window = static_cast<double>(cx.integer("sliding_window", 0));
    const Var seen = map2(rows, cx.tape.step(positions, 0), [offset, window](double s, double t) {
      return t <= s + offset && (window == 0 || t > s + offset - window) ? 1.0 : 0.0;
    });
    scores = where(seen, scores, never);
  }
  if (cx.has(3)) {
    Var mask = cx.operand(3);
    Shape shape = mask.shape();
    if (shape.size() > 2) {  // heads stand third from the end
      const auto at = shape.end() - 3;
      const std::int64_t own = *at;
      *at = own == 1 ? 1 : heads;
      shape.insert(shape.end() - 3, own == 1 ? 1 : groups);
      mask = reshape(mask, shape);
    }
    const bool truth = cx.call.operand_types.size() > 3 && cx.call.operand_types[3] == DType::kBool;
    scores = truth ? where(mask, scores, never) : scores + mask;
  }
  const Var largest = extreme(stop(scores), {4}, true);
  const Var scaled = exp(scores - largest);
  Var total = sum(scaled, {4});
  if (cx.has(7)) {  // a score that belongs to no key
    const Var sinks = reshape(cx.operand(7), {groups, heads, 1, 1});
    total = total + exp(sinks - largest);
  }
  Var y = einsum({"bgqst", "bgtf"}, "bgqsf", {scaled / total, v});
  if (!four) y = permute(y, {0, 3, 1, 2, 4});
  return {reshape(y, cx.local_result(0)), k, v};
}

/// Pairs of entries are turned by the angles of their position: halves, or neighbours if
/// `interleaved`; entries beyond `rotary_embedding_dim` stay.
Results rotary(const OperatorContext& cx) {
  const bool four = cx.operand_shape(0).size() == 4;
  const Var x = by_heads(cx, 0, "num_heads");
  const auto angles = [&](std::size_t i) {
    Var table = cx.operand(i);
    if (!table.valid()) return table;
    if (cx.has(3)) {  // rows by position
      const Var positions = cx.operand(3);
      std::vector<std::int64_t> index;
      for (const double at : positions.value().values)
        index.push_back(static_cast<std::int64_t>(at));
      table = take(table, 0, std::make_shared<const std::vector<std::int64_t>>(std::move(index)));
      Shape shape = positions.shape();
      shape.push_back(table.valid() ? table.shape()[1] : 1);
      table = reshape(table, shape);
    }
    if (!table.valid()) return table;
    Shape shape = table.shape();  // [s, e] or [b, s, e]
    if (shape.size() == 3) shape.insert(shape.begin() + 1, 1);
    return reshape(table, shape);
  };
  const Var cosine = angles(1);
  const Var sine = angles(2);
  if (!x.valid() || !cosine.valid() || !sine.valid()) return {};
  const std::int64_t size = x.shape()[3];
  std::int64_t turned = cx.integer("rotary_embedding_dim", 0);
  if (turned == 0) turned = size;
  const bool interleaved = cx.integer("interleaved", 0) != 0;
  const auto part =
      [&](Var from, const std::function<std::int64_t(std::int64_t)>& source, std::int64_t count) {
        std::vector<std::int64_t> index;
        for (std::int64_t device = 0; device < cx.tape.devices(); ++device) {
          for (std::int64_t i = 0; i < count; ++i) index.push_back(source(i));
        }
        return take(from, 3, std::make_shared<const std::vector<std::int64_t>>(std::move(index)));
      };
  const std::int64_t half = turned / 2;
  const Var a = part(
      x, [&](std::int64_t i) { return interleaved ? 2 * i : i; }, half);
  const Var b = part(
      x, [&](std::int64_t i) { return interleaved ? 2 * i + 1 : half + i; }, half);
  std::vector<Var> parts = {cosine * a - sine * b, sine * a + cosine * b};
  if (turned < size)
    parts.push_back(part(
        x, [&](std::int64_t i) { return turned + i; }, size - turned));
  Var y = concat(parts, 3);
  if (interleaved) {
    y = part(
        y,
        [&](std::int64_t i) { return i >= turned  ? i
                                     : i % 2 == 0 ? i / 2
                                                  : half + i / 2; },
        size);
  }
  if (!four) y = permute(y, {0, 2, 1, 3});
  return {reshape(y, cx.local_result(0))};
}

constexpr MeaningRow kRows[] = {
    {"Attention", attention},
    {"RotaryEmbedding", rotary},
};

}  // namespace

std::span<const MeaningRow> attention_meanings() { return kRows; }

}  // namespace meshplan

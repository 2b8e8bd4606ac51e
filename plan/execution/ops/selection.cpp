// SPDX-License-Identifier: Apache-2.0
// Operators that compare or accumulate along a dimension, which every device has whole. Of equal
// entries the first one comes first.
#include <algorithm>
#include <numeric>

#include "plan/execution/ops/meanings.h"

namespace meshplan {
namespace {

using Results = std::vector<Var>;
using List = std::vector<std::int64_t>;

/// The lines of a tensor along one dimension: first place and step.
struct Lines {
  std::int64_t count = 1;  ///< on all devices
  std::int64_t length = 1;
  std::int64_t inner = 1;

  std::int64_t place(std::int64_t line, std::int64_t at) const {
    return (line / inner * length + at) * inner + line % inner;
  }
};

Lines lines_of(const DenseTensor& all, std::size_t axis) {
  Lines lines;
  for (std::size_t d = 0; d < all.shape.size(); ++d) {
    if (d == axis + 1) lines.length = all.shape[d];
    if (d > axis + 1) lines.inner *= all.shape[d];
    if (d != axis + 1) lines.count *= all.shape[d];
  }
  return lines;
}

/// The first `k` places of every line in the given order, and what is there. `descending` puts the
/// largest first.
Results ordered(Var x, std::size_t axis, std::int64_t k, bool descending) {
  if (!x.valid()) return {x, x};
  const Lines lines = lines_of(x.value(), axis);
  if (k > lines.length) return {x.tape->fail("a shard has only a part of the dimension")};
  const std::vector<double>& values = x.value().values;
  Shape shape = x.shape();
  shape[axis] = k;
  DenseTensor chosen = x.value();
  chosen.shape[axis + 1] = k;
  chosen.values.assign(static_cast<std::size_t>(element_count(chosen.shape)), 0);
  const Lines to = lines_of(chosen, axis);
  const auto per_device = static_cast<std::int64_t>(values.size()) / x.tape->devices();
  List index(chosen.values.size());
  for (std::int64_t line = 0; line < lines.count; ++line) {
    List order(static_cast<std::size_t>(lines.length));
    std::iota(order.begin(), order.end(), 0);
    const auto value = [&](std::int64_t at) {
      return values[static_cast<std::size_t>(lines.place(line, at))];
    };
    std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
      return descending ? value(a) > value(b) : value(a) < value(b);
    });
    for (std::int64_t i = 0; i < k; ++i) {
      const auto at = static_cast<std::size_t>(to.place(line, i));
      const std::int64_t source = order[static_cast<std::size_t>(i)];
      chosen.values[at] = static_cast<double>(source);
      index[at] = lines.place(line, source) % per_device;
    }
  }
  return {gather(x, std::make_shared<const List>(std::move(index)), shape),
          x.tape->step(std::move(chosen), x.varying())};
}

Results top_k(const OperatorContext& cx) {
  const std::size_t axis = cx.axis(-1, cx.operand_shape(0).size());
  return ordered(cx.operand(0), axis, cx.integer("k", 1), cx.integer("largest", 1) != 0);
}

Results sort(const OperatorContext& cx) {
  const std::size_t axis = cx.axis(-1, cx.operand_shape(0).size());
  return ordered(
      cx.operand(0), axis, cx.operand(0).shape()[axis], cx.integer("descending", 0) != 0);
}

Results arg_extreme(const OperatorContext& cx) {
  const Var x = cx.operand(0);
  const std::size_t axis = cx.axis(0, cx.operand_shape(0).size());
  const bool largest = cx.call.type == "ArgMax";
  const bool last = cx.integer("select_last_index", 0) != 0;
  const Lines lines = lines_of(x.value(), axis);
  DenseTensor found;
  found.shape = x.value().shape;
  found.shape[axis + 1] = 1;
  for (std::int64_t line = 0; line < lines.count; ++line) {
    const auto value = [&](std::int64_t at) {
      return x.value().values[static_cast<std::size_t>(lines.place(line, at))];
    };
    std::int64_t best = 0;
    for (std::int64_t at = 1; at < lines.length; ++at) {
      const bool better = largest ? value(at) > value(best) : value(at) < value(best);
      if (better || (last && value(at) == value(best))) best = at;
    }
    found.values.push_back(static_cast<double>(best));
  }
  return {reshape(cx.tape.step(std::move(found), x.varying()), cx.local_result(0))};
}

/// A product with a triangle of ones.
Results cumulative(const OperatorContext& cx) {
  const Var x = cx.operand(0);
  const Shape shape = x.shape();
  const std::size_t axis = cx.axis(0, shape.size());
  const bool exclusive = cx.integer("exclusive", 0) != 0;
  const bool reverse = cx.integer("reverse", 0) != 0;
  const std::int64_t n = shape[axis];
  DenseTensor ones = DenseTensor::filled({cx.tape.devices(), n, n}, 0.0);
  for (std::size_t i = 0; i < ones.values.size(); ++i) {
    const std::int64_t from = static_cast<std::int64_t>(i) / n % n;
    const std::int64_t to = static_cast<std::int64_t>(i) % n;
    const bool before = reverse ? from > to : from < to;
    ones.values[i] = before || (from == to && !exclusive) ? 1 : 0;
  }
  std::int64_t outer = 1;
  std::int64_t inner = 1;
  for (std::size_t d = 0; d < shape.size(); ++d)
    (d < axis ? outer : inner) *= d == axis ? 1 : shape[d];
  const Var y =
      einsum({"afc", "ft"}, "atc", {reshape(x, {outer, n, inner}), cx.tape.step(ones, 0)});
  return {reshape(y, shape)};
}

/// Columns of positions in row-major order; what is not filled is 0.
Results non_zero(const OperatorContext& cx) {
  const DenseTensor& x = cx.operand(0).value();
  const Shape shape = cx.operand(0).shape();
  const Shape result = cx.result_shape(0);
  DenseTensor found = DenseTensor::filled({cx.tape.devices(), result[0], result[1]}, 0.0);
  const std::int64_t size = element_count(shape);
  for (std::int64_t device = 0; device < cx.tape.devices(); ++device) {
    std::int64_t column = 0;
    for (std::int64_t at = 0; at < size && column < result[1]; ++at) {
      if (x.values[static_cast<std::size_t>(device * size + at)] == 0) continue;
      std::int64_t rest = at;
      for (std::size_t d = shape.size(); d-- > 0; rest /= shape[d])
        found.values[static_cast<std::size_t>(
            (device * result[0] + static_cast<std::int64_t>(d)) * result[1] + column)] =
            static_cast<double>(rest % shape[d]);
      ++column;
    }
  }
  return {cx.tape.step(std::move(found), cx.operand(0).varying())};
}

/// Sorted, or in the order of first places; results that are not filled repeat the first one with
/// count 0.
Results unique(const OperatorContext& cx) {
  Var x = cx.operand(0);
  const Shape shape = x.shape();
  const bool along = cx.has_attribute("axis");
  const std::size_t axis = along ? cx.axis(0, shape.size()) : 0;
  // rows to compare
  std::int64_t rows = along ? shape[axis] : element_count(shape);
  std::vector<std::size_t> order;
  if (along) order.push_back(axis);
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (!along || d != axis) order.push_back(d);
  }
  const std::int64_t width = element_count(shape) / rows;
  const Var flat = reshape(permute(x, order), {rows, width});
  if (!flat.valid()) return {};
  const std::int64_t n = along ? cx.result_shape(0)[axis] : cx.result_shape(0)[0];
  List index;
  DenseTensor first = DenseTensor::filled({cx.tape.devices(), n}, 0.0);
  DenseTensor counts = first;
  DenseTensor inverse = DenseTensor::filled({cx.tape.devices(), rows}, 0.0);
  for (std::int64_t device = 0; device < cx.tape.devices(); ++device) {
    const auto row = [&](std::int64_t r) {
      const auto begin =
          flat.value().values.begin() + static_cast<std::ptrdiff_t>((device * rows + r) * width);
      return std::span<const double>(begin, begin + static_cast<std::ptrdiff_t>(width));
    };
    const auto less = [&](std::int64_t a, std::int64_t b) {
      return std::lexicographical_compare(
          row(a).begin(), row(a).end(), row(b).begin(), row(b).end());
    };
    List all(static_cast<std::size_t>(rows));
    std::iota(all.begin(), all.end(), 0);
    std::stable_sort(all.begin(), all.end(), less);
    List found;  // first places
    std::vector<List> members;
    for (const std::int64_t r : all) {
      if (found.empty() || less(found.back(), r)) {
        found.push_back(r);
        members.emplace_back();
      }
      members.back().push_back(r);
    }
    List rank(found.size());
    std::iota(rank.begin(), rank.end(), 0);
    if (cx.integer("sorted", 1) == 0) {
      std::sort(rank.begin(), rank.end(), [&](std::int64_t a, std::int64_t b) {
        return found[static_cast<std::size_t>(a)] < found[static_cast<std::size_t>(b)];
      });
    }
    for (std::int64_t i = 0; i < n; ++i) {
      const bool real = i < static_cast<std::int64_t>(rank.size());
      const auto at = static_cast<std::size_t>(rank[real ? static_cast<std::size_t>(i) : 0]);
      index.push_back(found[at]);
      const auto to = static_cast<std::size_t>(device * n + i);
      first.values[to] = static_cast<double>(found[at]);
      counts.values[to] = real ? static_cast<double>(members[at].size()) : 0;
    }
    for (std::size_t i = 0; i < rank.size(); ++i) {
      for (const std::int64_t r : members[static_cast<std::size_t>(rank[i])])
        inverse.values[static_cast<std::size_t>(device * rows + r)] = static_cast<double>(i);
    }
  }
  Var values = take(flat, 0, std::make_shared<const List>(std::move(index)));
  if (along) {
    Shape moved = {n};
    for (std::size_t d = 0; d < shape.size(); ++d) {
      if (d != axis) moved.push_back(shape[d]);
    }
    std::vector<std::size_t> back;
    for (std::size_t d = 0; d < shape.size(); ++d)
      back.push_back(d == axis ? 0 : d < axis ? d + 1 : d);
    values = permute(reshape(values, moved), back);
  } else {
    values = reshape(values, {n});
  }
  const AxisSet varying = x.varying();
  return {values,
          cx.tape.step(std::move(first), varying),
          cx.tape.step(std::move(inverse), varying),
          cx.tape.step(std::move(counts), varying)};
}

constexpr MeaningRow kRows[] = {
    {"ArgMax", arg_extreme},
    {"ArgMin", arg_extreme},
    {"CumSum", cumulative},
    {"NonZero", non_zero},
    {"Sort", sort},
    {"TopK", top_k},
    {"Unique", unique},
};

}  // namespace

std::span<const MeaningRow> selection_meanings() { return kRows; }

}  // namespace meshplan

// SPDX-License-Identifier: Apache-2.0
// Windows over spatial dimensions. A shard fetches the rows that its windows reach into from its
// neighbours; then every window position is a global one, and what lies outside the tensor is
// padding.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "plan/execution/ops/meanings.h"
#include "plan/execution/ops/statistics.h"

namespace meshplan {
namespace {

using Results = std::vector<Var>;
using List = std::vector<std::int64_t>;

/// The windows along a dimension of operand 0.
struct Along {
  std::size_t dim = 0;
  Window window;            ///< width 1 where nothing slides
  std::int64_t kernel = 1;  ///< positions that a window reads
  std::int64_t dilation = 1;
  AxisSet axes = 0;
  Halo halo;
};

std::vector<Along> windows_of(const OperatorContext& cx, const List& kernel) {
  const Rule& rule = cx.info.rule();
  std::vector<Along> list;
  const auto dilations = cx.integers("dilations");
  for (std::size_t i = 0; i < kernel.size(); ++i) {
    Along along;
    along.dim = i + 2;
    along.kernel = kernel[i];
    if (dilations) along.dilation = (*dilations)[i];
    along.axes = cx.operand_axes(0, along.dim);
    along.window.extent = cx.operand_shape(0)[along.dim];
    for (const int id : rule.operands[0].dims[along.dim]) {
      const Factor& factor = rule.factors[static_cast<std::size_t>(id)];
      if (factor.kind != FactorKind::kWindow) continue;
      along.window = factor.window;
      if (along.axes != 0)
        along.halo =
            halo(factor.window, factor.size, cx.tape.group_size(along.axes)).value_or(Halo{});
    }
    list.push_back(along);
  }
  return list;
}

/// Global position of every element of the local windows, [window, kernel], device after device.
List positions_of(const OperatorContext& cx, const Along& along) {
  List positions;
  for (const std::int64_t begin : cx.result_begin(0, along.dim)) {
    for (std::int64_t w = 0; w < cx.local_result(0)[along.dim]; ++w) {
      for (std::int64_t k = 0; k < along.kernel; ++k)
        positions.push_back((begin + w) * along.window.stride - along.window.before +
                            k * along.dilation);
    }
  }
  return positions;
}

/// [b, c, windows, kernel, windows, kernel, ...] of operand 0; padding is `fill`.
Var unfolded(const OperatorContext& cx, const std::vector<Along>& windows, double fill) {
  Var x = cx.operand(0);
  for (const Along& along : windows)
    x = halo_exchange(x, along.dim, along.axes, along.halo.before, along.halo.after);
  if (!x.valid()) return x;
  Shape shape = {x.shape()[0], x.shape()[1]};
  for (const Along& along : windows) {
    const List begin = cx.operand_begin(0, along.dim);
    List index = positions_of(cx, along);
    const std::size_t per_device = index.size() / begin.size();
    for (std::size_t i = 0; i < index.size(); ++i) {
      const bool padding = index[i] < 0 || index[i] >= along.window.extent;
      index[i] += (along.axes != 0 ? along.halo.before : 0) - begin[i / per_device];
      if (padding) index[i] = -1;
      if (!padding && index[i] < 0) return cx.tape.fail("a window reaches beyond the halo");
    }
    x = take(x, along.dim, std::make_shared<const List>(std::move(index)), fill);
    shape.push_back(cx.local_result(0)[along.dim]);
    shape.push_back(along.kernel);
  }
  return reshape(x, shape);
}

Results convolution(const OperatorContext& cx) {
  const Shape kernel(cx.operand_shape(1).begin() + 2, cx.operand_shape(1).end());
  const std::vector<Along> windows = windows_of(cx, kernel);
  const Var x = unfolded(cx, windows, 0);
  const Var w = cx.operand(1);
  if (!x.valid() || !w.valid()) return {};
  // the axes that cut the groups cut channels and filters alike
  const std::int64_t groups =
      cx.integer("group", 1) / cx.tape.group_size(cx.operand_axes(0, 1) & cx.operand_axes(1, 0));
  Shape of_x = x.shape();
  Shape of_w = w.shape();
  if (groups < 1 || of_x[1] % groups != 0 || of_w[0] % groups != 0)
    return {cx.tape.fail("the groups of a shard do not divide its channels")};
  of_x[1] /= groups;
  of_x.insert(of_x.begin() + 1, groups);
  of_w[0] /= groups;
  of_w.insert(of_w.begin(), groups);
  std::string term_x = "bgc", term_w = "goc", result = "bgo";
  for (std::size_t i = 0; i < kernel.size(); ++i) {
    const char at = static_cast<char>('p' + static_cast<char>(i));
    const char within = static_cast<char>('x' + static_cast<char>(i));
    term_x += {at, within};
    term_w += within;
    result += at;
  }
  Var y = einsum({term_x, term_w}, result, {reshape(x, of_x), reshape(w, of_w)});
  y = reshape(y, cx.local_result(0));
  if (cx.has(2)) {
    Shape bias = cx.operand(2).shape();
    bias.resize(kernel.size() + 1, 1);
    y = y + reshape(cx.operand(2), bias) *
                cx.first_of(cx.partial_axes(0) & ~cx.partial_operand_axes(2));
  }
  return {y};
}

std::vector<std::size_t> kernel_dims(std::size_t count) {
  std::vector<std::size_t> dims;
  for (std::size_t i = 0; i < count; ++i) dims.push_back(3 + 2 * i);
  return dims;
}

/// A constant per window element, from its global position along one dimension.
Var by_position(const OperatorContext& cx,
                const std::vector<Along>& windows,
                std::size_t i,
                const std::function<double(std::int64_t)>& value) {
  Shape shape(2 + 2 * windows.size(), 1);
  shape[2 + 2 * i] = cx.local_result(0)[windows[i].dim];
  shape[3 + 2 * i] = windows[i].kernel;
  std::vector<std::int64_t> all = {cx.tape.devices()};
  all.insert(all.end(), shape.begin(), shape.end());
  DenseTensor values = DenseTensor::filled(std::move(all), 0.0);
  const List positions = positions_of(cx, windows[i]);
  for (std::size_t p = 0; p < positions.size(); ++p) values.values[p] = value(positions[p]);
  return cx.tape.step(std::move(values), windows[i].axes);
}

Results max_pool(const OperatorContext& cx, const std::vector<Along>& windows) {
  const std::vector<std::size_t> dims = kernel_dims(windows.size());
  const Var x = unfolded(cx, windows, -std::numeric_limits<double>::infinity());
  const Var y = extreme(x, dims, true);
  Results results = {reshape(y, cx.local_result(0))};
  if (cx.result_count() < 2 || !y.valid()) return results;
  // row-major index in the whole operand; of equal maxima the first
  const Shape& whole = cx.operand_shape(0);
  const std::size_t rank = 2 + 2 * windows.size();
  double inner = 1;
  Var index = full(cx.tape, {}, 0);
  const bool columns_first = cx.integer("storage_order", 0) != 0;
  std::vector<double> step(windows.size());
  for (std::size_t i = 0; i < windows.size(); ++i) {
    const std::size_t d = columns_first ? i : windows.size() - 1 - i;
    step[d] = inner;
    inner *= static_cast<double>(whole[windows[d].dim]);
  }
  for (std::size_t i = 0; i < windows.size(); ++i)
    index = index + by_position(cx, windows, i, [&](std::int64_t p) {
              return static_cast<double>(p) * step[i];
            });
  index = index + cx.operand_positions(0, 1, rank) * inner +
          cx.operand_positions(0, 0, rank) * (inner * static_cast<double>(whole[1]));
  const Var found = map2(stop(x), stop(y), [](double a, double b) { return a == b ? 1.0 : 0.0; });
  const Var candidates =
      where(found, index, full(cx.tape, {}, std::numeric_limits<double>::infinity()));
  results.push_back(reshape(extreme(candidates, dims, false), cx.local_result(1)));
  return results;
}

Results pool(const OperatorContext& cx) {
  const std::vector<Along> windows = windows_of(cx, cx.integers("kernel_shape").value_or(List()));
  const std::vector<std::size_t> dims = kernel_dims(windows.size());
  if (cx.call.type == "MaxPool") return max_pool(cx, windows);
  if (cx.call.type == "LpPool") {
    const auto p = static_cast<double>(cx.integer("p", 2));
    return {reshape(root(sum(power(unfolded(cx, windows, 0), p), dims), p), cx.local_result(0))};
  }
  // the mean of what counts: elements of the tensor, or its padding as well
  const bool with_padding = cx.integer("count_include_pad", 0) != 0;
  const auto pads = cx.integers("pads");
  Var count = full(cx.tape, {}, 1);
  for (std::size_t i = 0; i < windows.size(); ++i) {
    const Window& w = windows[i].window;
    const std::int64_t after = pads ? (*pads)[i + windows.size()] : w.after;
    const Var counts = by_position(cx, windows, i, [&](std::int64_t p) {
      return with_padding ? (p < w.extent + after ? 1.0 : 0.0)
                          : (p >= 0 && p < w.extent ? 1.0 : 0.0);
    });
    count = count * sum(counts, {3 + 2 * i});
  }
  return {reshape(sum(unfolded(cx, windows, 0), dims) / count, cx.local_result(0))};
}

constexpr MeaningRow kRows[] = {
    {"AveragePool", pool},
    {"Conv", convolution},
    {"LpPool", pool},
    {"MaxPool", pool},
};

}  // namespace

std::span<const MeaningRow> convolution_meanings() { return kRows; }

}  // namespace meshplan

// SPDX-License-Identifier: Apache-2.0
// The local steps of a DeviceTape. All devices are computed in one sweep: the device is one more
// dimension in front.
#include <algorithm>
#include <cmath>
#include <limits>

#include "plan/execution/device_tape.h"

namespace meshplan {
namespace {

using Offsets = std::vector<std::int64_t>;
using Gradients = std::vector<std::optional<DenseTensor>>;

std::size_t as_index(std::int64_t value) { return static_cast<std::size_t>(value); }

bool all_valid(const std::vector<Var>& list) {
  return !list.empty() && std::all_of(list.begin(), list.end(), [](Var x) { return x.valid(); });
}

std::string text_of(const Shape& shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i)
    text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  return text + "]";
}

DenseTensor zeros(const DeviceTape& tape, const Shape& local) {
  std::vector<std::int64_t> shape = {tape.devices()};
  shape.insert(shape.end(), local.begin(), local.end());
  return DenseTensor::filled(std::move(shape), 0.0);
}

/// The local shape that both broadcast to.
std::optional<Shape> common_shape(const Shape& a, const Shape& b) {
  Shape shape(std::max(a.size(), b.size()), 1);
  for (std::size_t d = 0; d < shape.size(); ++d) {
    const std::int64_t left = d + a.size() < shape.size() ? 1 : a[d + a.size() - shape.size()];
    const std::int64_t right = d + b.size() < shape.size() ? 1 : b[d + b.size() - shape.size()];
    if (left != right && left != 1 && right != 1) return std::nullopt;
    shape[d] = left == 1 ? right : left;
  }
  return shape;
}

/// Steps in `from` for every dimension of the device dimension and `to`; 0 where it broadcasts.
Offsets steps_into(const Shape& from, const Shape& to) {
  Offsets steps(to.size() + 1, 0);
  std::int64_t step = 1;
  for (std::size_t d = from.size(); d-- > 0;) {
    steps[to.size() + 1 - from.size() + d] = from[d] == 1 ? 0 : step;
    step *= from[d];
  }
  steps[0] = step;
  return steps;
}

/// Calls visit(place, a, b): all places of a tensor of `shape` (devices first) in order, and where
/// the steps lead.
template <class Visit>
void walk(const std::vector<std::int64_t>& shape,
          const Offsets& a,
          const Offsets& b,
          const Visit& visit) {
  if (element_count(shape) == 0) return;
  std::vector<std::int64_t> position(shape.size(), 0);
  const std::size_t last = shape.size() - 1;
  std::int64_t at_a = 0;
  std::int64_t at_b = 0;
  for (std::int64_t place = 0;;) {
    for (std::int64_t i = 0; i < shape[last]; ++i)
      visit(as_index(place++), as_index(at_a + i * a[last]), as_index(at_b + i * b[last]));
    std::size_t d = last;
    while (d > 0) {
      --d;
      at_a += a[d];
      at_b += b[d];
      if (++position[d] < shape[d]) break;
      at_a -= a[d] * shape[d];
      at_b -= b[d] * shape[d];
      position[d] = 0;
      if (d == 0) return;
    }
    if (last == 0) return;
  }
}

/// The sum of what was broadcast.
DenseTensor summed_to(const DeviceTape& tape, const DenseTensor& gradient, const Shape& to) {
  DenseTensor sum = zeros(tape, to);
  const Shape from(gradient.shape.begin() + 1, gradient.shape.end());
  const Offsets steps = steps_into(to, from);
  walk(gradient.shape, steps, steps, [&](std::size_t i, std::size_t a, std::size_t) {
    sum.values[a] += gradient.values[i];
  });
  return sum;
}

/// Per device: sizes before, in and after a local dimension.
struct Strip {
  std::size_t outer = 1;
  std::size_t size = 1;
  std::size_t inner = 1;
};
Strip strip_of(const DeviceTape& tape, const Shape& shape, std::size_t dim) {
  Strip strip;
  strip.outer = as_index(tape.devices());
  for (std::size_t d = 0; d < shape.size(); ++d)
    (d < dim ? strip.outer : d == dim ? strip.size : strip.inner) *= as_index(shape[d]);
  return strip;
}

}  // namespace

Var full(DeviceTape& tape, Shape shape, double value) {
  DenseTensor tensor = zeros(tape, shape);
  std::fill(tensor.values.begin(), tensor.values.end(), value);
  return tape.step(std::move(tensor), 0);
}

Var map(Var x,
        const std::function<double(double)>& f,
        std::function<double(double, double)> slope) {
  if (!x.valid()) return x;
  DenseTensor y = x.value();
  for (double& value : y.values) value = f(value);
  if (!slope) return x.tape->step(std::move(y), x.varying());
  auto out = std::make_shared<const std::vector<double>>(y.values);
  return x.tape->step(
      std::move(y), {x}, x.varying(), [x, out, slope = std::move(slope)](const DenseTensor& g) {
        DenseTensor gradient = g;
        const std::vector<double>& in = x.value().values;
        for (std::size_t i = 0; i < in.size(); ++i) gradient.values[i] *= slope(in[i], (*out)[i]);
        return Gradients{std::move(gradient)};
      });
}

Var map2(Var a,
         Var b,
         const std::function<double(double, double)>& f,
         std::function<std::pair<double, double>(double, double)> slopes) {
  if (!a.valid() || !b.valid()) return {};
  DeviceTape& tape = *a.tape;
  const auto shape = common_shape(a.shape(), b.shape());
  if (!shape)
    return tape.fail("local shapes " + text_of(a.shape()) + " and " + text_of(b.shape()) +
                     " do not broadcast");
  DenseTensor y = zeros(tape, *shape);
  const Offsets steps_a = steps_into(a.shape(), *shape);
  const Offsets steps_b = steps_into(b.shape(), *shape);
  const std::vector<double>& left = a.value().values;
  const std::vector<double>& right = b.value().values;
  walk(y.shape, steps_a, steps_b, [&](std::size_t i, std::size_t at_a, std::size_t at_b) {
    y.values[i] = f(left[at_a], right[at_b]);
  });
  const AxisSet varying = a.varying() | b.varying();
  if (!slopes) return tape.step(std::move(y), varying);
  return tape.step(
      std::move(y),
      {a, b},
      varying,
      [a, b, steps_a, steps_b, slopes = std::move(slopes)](const DenseTensor& g) {
        DenseTensor into_a = DenseTensor::filled(a.value().shape, 0.0);
        DenseTensor into_b = DenseTensor::filled(b.value().shape, 0.0);
        const std::vector<double>& in_a = a.value().values;
        const std::vector<double>& in_b = b.value().values;
        walk(g.shape, steps_a, steps_b, [&](std::size_t i, std::size_t at_a, std::size_t at_b) {
          const auto [slope_a, slope_b] = slopes(in_a[at_a], in_b[at_b]);
          into_a.values[at_a] += g.values[i] * slope_a;
          into_b.values[at_b] += g.values[i] * slope_b;
        });
        return Gradients{std::move(into_a), std::move(into_b)};
      });
}

Var operator+(Var a, Var b) {
  return map2(
      a,
      b,
      [](double x, double y) { return x + y; },
      [](double, double) { return std::pair(1.0, 1.0); });
}
Var operator-(Var a, Var b) {
  return map2(
      a,
      b,
      [](double x, double y) { return x - y; },
      [](double, double) { return std::pair(1.0, -1.0); });
}
Var operator*(Var a, Var b) {
  return map2(
      a,
      b,
      [](double x, double y) { return x * y; },
      [](double x, double y) { return std::pair(y, x); });
}
Var operator/(Var a, Var b) {
  return map2(
      a,
      b,
      [](double x, double y) { return x / y; },
      [](double x, double y) { return std::pair(1 / y, -x / (y * y)); });
}
Var operator*(Var a, double b) {
  return map(
      a, [b](double x) { return x * b; }, [b](double, double) { return b; });
}
Var operator+(Var a, double b) {
  return map(
      a, [b](double x) { return x + b; }, [](double, double) { return 1.0; });
}
Var negate(Var x) { return x * -1.0; }
Var exp(Var x) {
  return map(
      x, [](double v) { return std::exp(v); }, [](double, double y) { return y; });
}
Var log(Var x) {
  return map(
      x, [](double v) { return std::log(v); }, [](double v, double) { return 1 / v; });
}
Var sqrt(Var x) {
  return map(
      x, [](double v) { return std::sqrt(v); }, [](double, double y) { return 0.5 / y; });
}
Var reciprocal(Var x) {
  return map(
      x, [](double v) { return 1 / v; }, [](double, double y) { return -y * y; });
}

Var where(Var condition, Var a, Var b) {
  const Var chosen = map2(
      condition,
      a,
      [](double c, double v) { return c != 0 ? v : 0; },
      [](double c, double) { return std::pair(0.0, c != 0 ? 1.0 : 0.0); });
  const Var other = map2(
      condition,
      b,
      [](double c, double v) { return c != 0 ? 0 : v; },
      [](double c, double) { return std::pair(0.0, c != 0 ? 0.0 : 1.0); });
  return chosen + other;
}

Var stop(Var x) { return x.valid() ? x.tape->step(x.value(), x.varying()) : x; }

Var sum(Var x, const std::vector<std::size_t>& dims) {
  if (!x.valid()) return x;
  Shape shape = x.shape();
  for (const std::size_t d : dims) shape[d] = 1;
  return x.tape->step(
      summed_to(*x.tape, x.value(), shape), {x}, x.varying(), [x, shape](const DenseTensor& g) {
        DenseTensor gradient = DenseTensor::filled(x.value().shape, 0.0);
        const Offsets steps = steps_into(shape, x.shape());
        walk(gradient.shape, steps, steps, [&](std::size_t i, std::size_t a, std::size_t) {
          gradient.values[i] = g.values[a];
        });
        return Gradients{std::move(gradient)};
      });
}

Var extreme(Var x, const std::vector<std::size_t>& dims, bool largest) {
  if (!x.valid()) return x;
  Shape shape = x.shape();
  for (const std::size_t d : dims) shape[d] = 1;
  const Offsets steps = steps_into(shape, x.shape());
  DenseTensor best = zeros(*x.tape, shape);
  const double worst =
      largest ? -std::numeric_limits<double>::infinity() : std::numeric_limits<double>::infinity();
  std::fill(best.values.begin(), best.values.end(), worst);
  const std::vector<double>& in = x.value().values;
  walk(x.value().shape, steps, steps, [&](std::size_t i, std::size_t a, std::size_t) {
    best.values[a] = largest ? std::max(best.values[a], in[i]) : std::min(best.values[a], in[i]);
  });
  DenseTensor count = DenseTensor::filled(best.shape, 0.0);
  walk(x.value().shape, steps, steps, [&](std::size_t i, std::size_t a, std::size_t) {
    if (in[i] == best.values[a]) count.values[a] += 1;
  });
  const DenseTensor kept = best;
  return x.tape->step(
      std::move(best), {x}, x.varying(), [x, steps, kept, count](const DenseTensor& g) {
        DenseTensor gradient = DenseTensor::filled(x.value().shape, 0.0);
        walk(gradient.shape, steps, steps, [&](std::size_t i, std::size_t a, std::size_t) {
          if (x.value().values[i] == kept.values[a])
            gradient.values[i] = g.values[a] / count.values[a];
        });
        return Gradients{std::move(gradient)};
      });
}

Var reshape(Var x, Shape shape) {
  if (!x.valid()) return x;
  if (element_count(shape) != element_count(x.shape()))
    return x.tape->fail("local shape " + text_of(x.shape()) + " cannot become " + text_of(shape));
  DenseTensor y = x.value();
  y.shape.resize(1);
  y.shape.insert(y.shape.end(), shape.begin(), shape.end());
  return x.tape->step(std::move(y), {x}, x.varying(), [x](const DenseTensor& g) {
    DenseTensor gradient = g;
    gradient.shape = x.value().shape;
    return Gradients{std::move(gradient)};
  });
}

Var permute(Var x, const std::vector<std::size_t>& order) {
  if (!x.valid()) return x;
  const Shape from = x.shape();
  const Offsets natural = steps_into(from, from);
  Shape shape;
  Offsets steps = {natural[0]};
  for (const std::size_t d : order) {
    shape.push_back(from[d]);
    steps.push_back(natural[d + 1]);
  }
  DenseTensor y = zeros(*x.tape, shape);
  walk(y.shape, steps, steps, [&](std::size_t i, std::size_t a, std::size_t) {
    y.values[i] = x.value().values[a];
  });
  return x.tape->step(std::move(y), {x}, x.varying(), [x, steps](const DenseTensor& g) {
    DenseTensor gradient = DenseTensor::filled(x.value().shape, 0.0);
    walk(g.shape, steps, steps, [&](std::size_t i, std::size_t a, std::size_t) {
      gradient.values[a] = g.values[i];
    });
    return Gradients{std::move(gradient)};
  });
}

Var broadcast(Var x, const Shape& shape) {
  if (!x.valid()) return x;
  if (common_shape(x.shape(), shape) != shape)
    return x.tape->fail("local shape " + text_of(x.shape()) + " does not broadcast to " +
                        text_of(shape));
  DenseTensor y = zeros(*x.tape, shape);
  const Offsets steps = steps_into(x.shape(), shape);
  walk(y.shape, steps, steps, [&](std::size_t i, std::size_t a, std::size_t) {
    y.values[i] = x.value().values[a];
  });
  return x.tape->step(std::move(y), {x}, x.varying(), [x](const DenseTensor& g) {
    return Gradients{summed_to(*x.tape, g, x.shape())};
  });
}

Var concat(const std::vector<Var>& parts, std::size_t dim) {
  if (!all_valid(parts)) return {};
  DeviceTape& tape = *parts[0].tape;
  std::vector<const DenseTensor*> values;
  AxisSet varying = 0;
  for (const Var& part : parts) {
    values.push_back(&part.value());
    varying |= part.varying();
  }
  auto joined = concatenated(values, static_cast<int>(dim) + 1);
  if (!joined) return tape.fail(joined.error().message);
  return tape.step(*std::move(joined), parts, varying, [parts, dim](const DenseTensor& g) {
    Gradients gradients;
    std::vector<std::int64_t> begin(g.shape.size(), 0);
    for (const Var& part : parts) {
      gradients.emplace_back(block_of(g, begin, part.value().shape));
      begin[dim + 1] += part.value().shape[dim + 1];
    }
    return gradients;
  });
}

Var take(Var x, std::size_t dim, DeviceIndices index, double fill) {
  if (!x.valid()) return x;
  DeviceTape& tape = *x.tape;
  Shape shape = x.shape();
  const Strip from = strip_of(tape, shape, dim);
  const std::size_t count = index->size() / as_index(tape.devices());
  const std::size_t outer = from.outer / as_index(tape.devices());
  for (const std::int64_t at : *index) {
    if (at >= static_cast<std::int64_t>(from.size))
      return tape.fail("position " + std::to_string(at) + " lies outside a local dimension of " +
                       std::to_string(from.size));
  }
  shape[dim] = static_cast<std::int64_t>(count);
  DenseTensor y = zeros(tape, shape);
  const auto each = [from, count, outer, index](const auto& visit) {
    for (std::size_t row = 0; row < from.outer; ++row) {
      const std::size_t device = row / outer;
      for (std::size_t i = 0; i < count; ++i) {
        const std::int64_t at = (*index)[device * count + i];
        const std::size_t to = (row * count + i) * from.inner;
        visit(to,
              at < 0 ? -1
                     : static_cast<std::int64_t>((row * from.size) * from.inner) +
                           at * static_cast<std::int64_t>(from.inner));
      }
    }
  };
  const std::vector<double>& in = x.value().values;
  each([&](std::size_t to, std::int64_t source) {
    for (std::size_t i = 0; i < from.inner; ++i)
      y.values[to + i] = source < 0 ? fill : in[as_index(source) + i];
  });
  return tape.step(std::move(y), {x}, x.varying(), [x, each, from](const DenseTensor& g) {
    DenseTensor gradient = DenseTensor::filled(x.value().shape, 0.0);
    each([&](std::size_t to, std::int64_t source) {
      for (std::size_t i = 0; i < from.inner && source >= 0; ++i)
        gradient.values[as_index(source) + i] += g.values[to + i];
    });
    return Gradients{std::move(gradient)};
  });
}

namespace {

/// Adds or reads element by element: place i of the first belongs to place index[i] of the second.
template <class Visit>
void each_pair(const DeviceTape& tape,
               const std::vector<std::int64_t>& index,
               std::size_t size,
               const Visit& visit) {
  const std::size_t count = index.size() / as_index(tape.devices());
  for (std::size_t i = 0; i < index.size(); ++i) {
    if (index[i] >= 0) visit(i, (i / count) * size + as_index(index[i]));
  }
}

bool inside(const std::vector<std::int64_t>& index, std::int64_t size) {
  return std::all_of(index.begin(), index.end(), [&](std::int64_t at) { return at < size; });
}

}  // namespace

Var gather(Var x, DeviceIndices index, Shape shape, double fill) {
  if (!x.valid()) return x;
  DeviceTape& tape = *x.tape;
  DenseTensor y = zeros(tape, shape);
  const std::int64_t size = element_count(x.shape());
  if (index->size() != y.values.size() || !inside(*index, size))
    return tape.fail("the places to read do not fit local shape " + text_of(x.shape()));
  std::fill(y.values.begin(), y.values.end(), fill);
  const std::vector<double>& in = x.value().values;
  each_pair(
      tape, *index, as_index(size), [&](std::size_t i, std::size_t at) { y.values[i] = in[at]; });
  return tape.step(std::move(y), {x}, x.varying(), [x, index, size](const DenseTensor& g) {
    DenseTensor gradient = DenseTensor::filled(x.value().shape, 0.0);
    each_pair(*x.tape, *index, as_index(size), [&](std::size_t i, std::size_t at) {
      gradient.values[at] += g.values[i];
    });
    return Gradients{std::move(gradient)};
  });
}

Var scatter(Var x, DeviceIndices index, Shape shape) {
  if (!x.valid()) return x;
  DeviceTape& tape = *x.tape;
  DenseTensor y = zeros(tape, shape);
  const std::int64_t size = element_count(shape);
  if (index->size() != x.value().values.size() || !inside(*index, size))
    return tape.fail("the places to write do not fit local shape " + text_of(shape));
  const std::vector<double>& in = x.value().values;
  each_pair(
      tape, *index, as_index(size), [&](std::size_t i, std::size_t at) { y.values[at] += in[i]; });
  return tape.step(std::move(y), {x}, x.varying(), [x, index, size](const DenseTensor& g) {
    DenseTensor gradient = DenseTensor::filled(x.value().shape, 0.0);
    each_pair(*x.tape, *index, as_index(size), [&](std::size_t i, std::size_t at) {
      gradient.values[i] = g.values[at];
    });
    return Gradients{std::move(gradient)};
  });
}

// --- collectives -------------------------------------------------------------------------------

Var all_reduce(Var x, AxisSet axes, Reduction how) {
  if (!x.valid() || axes == 0) return x;
  DeviceTape& tape = *x.tape;
  DenseTensor y = tape.all_reduced(x.value(), axes, how, false);
  const AxisSet varying = x.varying() & ~axes;
  if (how != Reduction::kSum) return tape.step(std::move(y), varying);
  // every copy of the sum has the same gradient, and so has every term
  return tape.step(std::move(y), {tape.vary(x, axes)}, varying, [](const DenseTensor& g) {
    return Gradients{g};
  });
}

Var halo_exchange(Var x, std::size_t dim, AxisSet axes, std::int64_t before, std::int64_t after) {
  if (!x.valid() || axes == 0 || (before == 0 && after == 0)) return x;
  DeviceTape& tape = *x.tape;
  Shape shape = x.shape();
  const std::int64_t size = shape[dim];
  if (before > size || after > size) return tape.fail("a window reaches beyond the neighbours");
  const std::int64_t row = element_count(shape) / size;
  shape[dim] = before + size + after;
  // where each device's extended rows come from: (device, row), no device at the ends
  struct Source {
    std::int64_t device = -1;
    std::int64_t row = 0;
  };
  std::vector<Source> sources(as_index(tape.devices() * shape[dim]));
  for (const std::vector<std::int64_t>& group : tape.groups(axes)) {
    for (std::size_t m = 0; m < group.size(); ++m) {
      for (std::int64_t r = 0; r < shape[dim]; ++r) {
        const std::int64_t global = static_cast<std::int64_t>(m) * size + r - before;
        if (global < 0 || global >= static_cast<std::int64_t>(group.size()) * size) continue;
        sources[as_index(group[m] * shape[dim] + r)] = {group[as_index(global / size)],
                                                        global % size};
      }
    }
  }
  const Strip from = strip_of(tape, x.shape(), dim);
  const std::size_t outer = from.outer / as_index(tape.devices());
  const auto wide = as_index(shape[dim]);
  const auto each = [sources, from, outer, wide](const auto& visit) {
    for (std::size_t line = 0; line < from.outer; ++line) {
      const std::size_t device = line / outer;
      for (std::size_t r = 0; r < wide; ++r) {
        const Source& source = sources[device * wide + r];
        if (source.device < 0) continue;
        const std::size_t at =
            ((as_index(source.device) * outer + line % outer) * from.size + as_index(source.row)) *
            from.inner;
        for (std::size_t i = 0; i < from.inner; ++i)
          visit((line * wide + r) * from.inner + i, at + i);
      }
    }
  };
  DenseTensor y = zeros(tape, shape);
  each([&](std::size_t to, std::size_t at) { y.values[to] = x.value().values[at]; });
  const auto record = [&tape, axes, row, before, after](bool backward) {
    for (const std::int64_t rows : {before, after}) {
      if (rows > 0) tape.record({Collective::kPermute, axes, backward, 1, rows * row});
    }
  };
  record(false);
  return tape.step(std::move(y), {x}, x.varying(), [x, each, record](const DenseTensor& g) {
    record(true);
    DenseTensor gradient = DenseTensor::filled(x.value().shape, 0.0);
    each([&](std::size_t to, std::size_t at) { gradient.values[at] += g.values[to]; });
    return Gradients{std::move(gradient)};
  });
}

Var ring_gather(Var x, std::size_t dim, int axis) {
  if (!x.valid()) return x;
  DeviceTape& tape = *x.tape;
  const AxisSet axes = AxisSet{1} << axis;
  const std::int64_t members = tape.group_size(axes);
  const std::int64_t elements = element_count(x.shape());
  const std::vector<std::int64_t> local = x.value().shape;
  Shape shape = x.shape();
  const std::int64_t size = shape[dim];
  shape[dim] *= members;
  DenseTensor y = zeros(tape, shape);
  // hop by hop: what a device holds goes on to the next one, and into its place
  std::vector<std::int64_t> block_shape = local;
  block_shape[0] = 1;
  const auto cut =
      [block_shape](
          const DenseTensor& from, std::int64_t device, std::int64_t row, std::size_t along) {
        std::vector<std::int64_t> begin(block_shape.size(), 0);
        begin[0] = device;
        begin[along] = row;
        return block_of(from, begin, block_shape);
      };
  const auto paste = [](DenseTensor& into,
                        const DenseTensor& block,
                        std::int64_t device,
                        std::int64_t row,
                        std::size_t along) {
    std::vector<std::int64_t> begin(block.shape.size(), 0);
    begin[0] = device;
    begin[along] = row;
    place_block(into, begin, block);
  };
  const std::vector<std::vector<std::int64_t>> groups = tape.groups(axes);
  for (const std::vector<std::int64_t>& group : groups) {
    std::vector<DenseTensor> held;
    for (const std::int64_t device : group) held.push_back(cut(x.value(), device, 0, dim + 1));
    for (std::int64_t hop = 0; hop < members; ++hop) {
      for (std::int64_t m = 0; m < members; ++m) {
        const std::int64_t origin = (m - hop + members) % members;
        paste(y, held[as_index(m)], group[as_index(m)], origin * size, dim + 1);
      }
      std::rotate(held.rbegin(), held.rbegin() + 1, held.rend());
    }
  }
  tape.record({Collective::kPermute, axes, false, members - 1, elements});
  return tape.step(
      std::move(y),
      {x},
      x.varying(),
      [x, dim, axes, members, elements, size, groups, cut, paste](const DenseTensor& g) {
        // what was received travels once more, and with it the sum of its gradients
        x.tape->record({Collective::kPermute, axes, true, members - 1, 2 * elements});
        DenseTensor gradient = DenseTensor::filled(x.value().shape, 0.0);
        for (const std::vector<std::int64_t>& group : groups) {
          std::vector<DenseTensor> sums;  // member m holds the sum for member (m + hop + 1)
          for (std::int64_t m = 0; m < members; ++m)
            sums.push_back(cut(g, group[as_index(m)], (m + 1) % members * size, dim + 1));
          for (std::int64_t hop = 1; hop < members; ++hop) {
            std::rotate(sums.begin(), sums.begin() + 1, sums.end());
            for (std::int64_t m = 0; m < members; ++m) {
              const DenseTensor own =
                  cut(g, group[as_index(m)], (m + hop + 1) % members * size, dim + 1);
              for (std::size_t i = 0; i < own.values.size(); ++i)
                sums[as_index(m)].values[i] += own.values[i];
            }
          }
          for (std::int64_t m = 0; m < members; ++m)
            paste(gradient, sums[as_index(m)], group[as_index(m)], 0, dim + 1);
        }
        return Gradients{std::move(gradient)};
      });
}

}  // namespace meshplan

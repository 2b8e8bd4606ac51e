// SPDX-License-Identifier: Apache-2.0
// Look-up and its opposite. Indices are global: a shard of a looked-up dimension answers what lies
// in it and 0 else; a shard of a written dimension takes what falls into it.
#include <algorithm>

#include "plan/execution/ops/meanings.h"

namespace meshplan {
namespace {

using Results = std::vector<Var>;
using Gradients = std::vector<std::optional<DenseTensor>>;
using List = std::vector<std::int64_t>;

DeviceIndices shared(List list) { return std::make_shared<const List>(std::move(list)); }

std::int64_t local_index(double value, std::int64_t whole, std::int64_t begin, std::int64_t held) {
  auto at = static_cast<std::int64_t>(value);
  if (at < 0) at += whole;
  at -= begin;
  return at >= 0 && at < held ? at : -1;
}

Results look_up(const OperatorContext& cx) {
  const Var x = cx.operand(0);
  const std::size_t axis = cx.axis(0, x.shape().size());
  const List begin = cx.operand_begin(0, axis);
  const std::vector<double>& indices = cx.operand(1).value().values;
  const std::size_t count = indices.size() / begin.size();
  List index;
  for (std::size_t i = 0; i < indices.size(); ++i)
    index.push_back(
        local_index(indices[i], cx.operand_shape(0)[axis], begin[i / count], x.shape()[axis]));
  return {reshape(take(x, axis, shared(std::move(index))), cx.local_result(0))};
}

/// Calls visit(device, position): every local place of a tensor, row-major.
template <class Visit>
void each_place(std::int64_t devices, const Shape& shape, const Visit& visit) {
  const std::int64_t size = element_count(shape);
  std::vector<std::int64_t> position(shape.size());
  for (std::int64_t device = 0; device < devices; ++device) {
    for (std::int64_t at = 0; at < size; ++at) {
      std::int64_t rest = at;
      for (std::size_t d = shape.size(); d-- > 0;) {
        position[d] = rest % shape[d];
        rest /= shape[d];
      }
      visit(static_cast<std::size_t>(device), position);
    }
  }
}

/// For every entry of an index tensor of GatherElements or ScatterElements: the local place in
/// operand 0 that it names, -1 where another shard has it.
List element_places(const OperatorContext& cx, const Shape& indices_shape) {
  const Shape data = cx.operand(0).shape();
  const std::size_t axis = cx.axis(0, data.size());
  const List begin = cx.operand_begin(0, axis);
  const std::vector<double>& indices = cx.operand(1).value().values;
  bool fits = indices_shape.size() == data.size();
  for (std::size_t d = 0; fits && d < data.size(); ++d)
    fits = d == axis || indices_shape[d] <= data[d];
  if (!fits) {
    cx.tape.fail("the shards of the indices do not lie in those of the data");
    return {};
  }
  List places;
  each_place(cx.tape.devices(), indices_shape, [&](std::size_t device, const List& position) {
    const std::int64_t along =
        local_index(indices[places.size()], cx.operand_shape(0)[axis], begin[device], data[axis]);
    std::int64_t place = 0;
    for (std::size_t d = 0; d < data.size(); ++d)
      place = place * data[d] + (d == axis ? std::max<std::int64_t>(along, 0) : position[d]);
    places.push_back(along < 0 ? -1 : place);
  });
  return places;
}

/// For every element of a tensor [batch..., places..., kept...] of GatherND or ScatterND: the local
/// place in operand 0.
List nd_places(const OperatorContext& cx, std::size_t batch, const Shape& elements) {
  const Shape data = cx.operand(0).shape();
  const Shape indices = cx.operand(1).shape();
  const auto width = static_cast<std::size_t>(indices.back());
  bool fits = indices.back() == cx.operand_shape(1).back() &&
              elements.size() + 1 + batch + width == indices.size() + data.size();
  for (std::size_t d = 0; fits && d < elements.size(); ++d) {
    const bool place = d + 1 < indices.size();
    fits = elements[d] == (place ? indices[d] : data[d + 1 + batch + width - indices.size()]);
    if (d < batch) fits = fits && elements[d] == data[d];
  }
  if (!fits) {
    cx.tape.fail("the shards of data, indices and elements do not belong together");
    return {};
  }
  std::vector<List> begin;
  for (std::size_t i = 0; i < width; ++i) begin.push_back(cx.operand_begin(0, batch + i));
  const std::vector<double>& values = cx.operand(1).value().values;
  const std::size_t size = values.size() / static_cast<std::size_t>(cx.tape.devices());
  List places;
  each_place(cx.tape.devices(), elements, [&](std::size_t device, const List& position) {
    std::size_t row = 0;
    for (std::size_t d = 0; d + 1 < indices.size(); ++d)
      row = row * static_cast<std::size_t>(indices[d]) + static_cast<std::size_t>(position[d]);
    std::int64_t place = 0;
    bool here = true;
    for (std::size_t d = 0; d < data.size(); ++d) {
      std::int64_t at = 0;
      if (d < batch) {
        at = position[d];
      } else if (d < batch + width) {
        const std::size_t i = d - batch;
        at = local_index(values[device * size + row * width + i],
                         cx.operand_shape(0)[d],
                         begin[i][device],
                         data[d]);
        here = here && at >= 0;
      } else {
        at = position[indices.size() - 1 + d - batch - width];
      }
      place = place * data[d] + at;
    }
    places.push_back(here ? place : -1);
  });
  return places;
}

Results gather_elements(const OperatorContext& cx) {
  return {
      gather(cx.operand(0), shared(element_places(cx, cx.operand(1).shape())), cx.local_result(0))};
}

Results gather_nd(const OperatorContext& cx) {
  const auto batch = static_cast<std::size_t>(cx.integer("batch_dims", 0));
  const Shape local = cx.local_result(0);
  return {gather(cx.operand(0), shared(nd_places(cx, batch, local)), local)};
}

/// An element and the updates of its place, multiplied or compared. Equal extremes share the
/// gradient.
Var combine(Var x, Var updates, const List& places, const std::string& how) {
  if (!x.valid() || !updates.valid()) return {};
  const std::size_t size = x.value().values.size() / static_cast<std::size_t>(x.tape->devices());
  const std::size_t count = places.size() / static_cast<std::size_t>(x.tape->devices());
  std::vector<std::vector<std::size_t>> of_place(x.value().values.size());
  for (std::size_t i = 0; i < places.size(); ++i) {
    if (places[i] >= 0)
      of_place[(i / count) * size + static_cast<std::size_t>(places[i])].push_back(i);
  }
  const std::vector<double>& u = updates.value().values;
  DenseTensor y = x.value();
  for (std::size_t at = 0; at < of_place.size(); ++at) {
    for (const std::size_t i : of_place[at]) {
      double& value = y.values[at];
      value = how == "mul"   ? value * u[i]
              : how == "max" ? std::max(value, u[i])
                             : std::min(value, u[i]);
    }
  }
  const DenseTensor kept = y;
  return x.tape->step(std::move(y),
                      {x, updates},
                      x.varying() | updates.varying(),
                      [x, updates, of_place, kept, how](const DenseTensor& g) {
                        DenseTensor into_x = DenseTensor::filled(x.value().shape, 0.0);
                        DenseTensor into_u = DenseTensor::filled(updates.value().shape, 0.0);
                        const std::vector<double>& v = updates.value().values;
                        for (std::size_t at = 0; at < of_place.size(); ++at) {
                          const double own = x.value().values[at];
                          if (how == "mul") {
                            into_x.values[at] = g.values[at];
                            for (const std::size_t i : of_place[at]) into_x.values[at] *= v[i];
                            for (const std::size_t i : of_place[at]) {
                              double rest = own;
                              for (const std::size_t j : of_place[at]) rest *= j == i ? 1.0 : v[j];
                              into_u.values[i] = g.values[at] * rest;
                            }
                            continue;
                          }
                          double ties = own == kept.values[at] ? 1 : 0;
                          for (const std::size_t i : of_place[at])
                            ties += v[i] == kept.values[at] ? 1 : 0;
                          if (own == kept.values[at]) into_x.values[at] = g.values[at] / ties;
                          for (const std::size_t i : of_place[at]) {
                            if (v[i] == kept.values[at]) into_u.values[i] = g.values[at] / ties;
                          }
                        }
                        return Gradients{std::move(into_x), std::move(into_u)};
                      });
}

/// Of several updates of one place the last one stays.
Var replace(Var x, Var updates, List places) {
  if (!x.valid() || !updates.valid()) return {};
  const std::size_t size = x.value().values.size() / static_cast<std::size_t>(x.tape->devices());
  const std::size_t count = places.size() / static_cast<std::size_t>(x.tape->devices());
  DenseTensor written = DenseTensor::filled(x.value().shape, 0.0);
  for (std::size_t i = places.size(); i-- > 0;) {
    if (places[i] < 0) continue;
    double& mark = written.values[(i / count) * size + static_cast<std::size_t>(places[i])];
    if (mark != 0) places[i] = -1;
    mark = 1;
  }
  const AxisSet varying = x.varying() | updates.varying();
  return where(x.tape->step(std::move(written), varying),
               scatter(updates, shared(std::move(places)), x.shape()),
               x);
}

Results scatter_into(const OperatorContext& cx) {
  const Var x = cx.operand(0);
  const Var updates = cx.operand(2);
  List places = cx.call.type == "ScatterND" ? nd_places(cx, 0, updates.shape())
                                            : element_places(cx, cx.operand(1).shape());
  if (cx.tape.ok() && places.size() != updates.value().values.size())
    cx.tape.fail("the shards of indices and updates do not belong together");
  if (!cx.tape.ok()) return {};
  const std::string how = cx.text("reduction", "none");
  if (how == "none") return {replace(x, updates, std::move(places))};
  if (how != "add") return {combine(x, updates, places, how)};
  const AxisSet once = cx.partial_axes(0) & ~cx.partial_operand_axes(0);
  return {x * cx.first_of(once) + scatter(updates, shared(std::move(places)), x.shape())};
}

constexpr MeaningRow kRows[] = {
    {"Gather", look_up},
    {"GatherElements", gather_elements},
    {"GatherND", gather_nd},
    {"ScatterElements", scatter_into},
    {"ScatterND", scatter_into},
};

}  // namespace

std::span<const MeaningRow> gather_meanings() { return kRows; }

}  // namespace meshplan

// SPDX-License-Identifier: Apache-2.0
#include "plan/execution/operator_context.h"

#include <algorithm>

namespace meshplan {

OperatorContext::OperatorContext(DeviceTape& on,
                                 const OperatorCall& what,
                                 const OperatorInfo& how,
                                 const Strategy& chosen,
                                 std::vector<Var> operands)
    : tape(on), call(what), info(how), strategy(chosen), operands_(std::move(operands)) {
  for (std::size_t i = 0; i < info.rule().operands.size(); ++i)
    operand_states_.push_back(info.operand_state(strategy, i, true));
  for (std::size_t r = 0; r < info.rule().results.size(); ++r)
    result_states_.push_back(info.result_state(strategy, r));
}

// --- attributes --------------------------------------------------------------------------------

namespace {

template <class T>
const T* attribute_as(const OperatorCall& call, const std::string& name) {
  const auto found = call.attributes.find(name);
  return found == call.attributes.end() ? nullptr : std::get_if<T>(&found->second);
}

}  // namespace

std::int64_t OperatorContext::integer(const std::string& name, std::int64_t otherwise) const {
  const auto* value = attribute_as<std::int64_t>(call, name);
  return value != nullptr ? *value : otherwise;
}

double OperatorContext::number(const std::string& name, double otherwise) const {
  if (const auto* value = attribute_as<double>(call, name)) return *value;
  const auto* value = attribute_as<std::int64_t>(call, name);
  return value != nullptr ? static_cast<double>(*value) : otherwise;
}

std::string OperatorContext::text(const std::string& name, const std::string& otherwise) const {
  const auto* value = attribute_as<std::string>(call, name);
  return value != nullptr ? *value : otherwise;
}

std::optional<std::vector<std::int64_t>> OperatorContext::integers(const std::string& name) const {
  if (const auto* list = attribute_as<std::vector<std::int64_t>>(call, name)) return *list;
  if (const auto* value = attribute_as<std::int64_t>(call, name)) return {{*value}};
  // an empty list has no element to tell its type
  if (has_attribute(name)) return {std::vector<std::int64_t>()};
  return std::nullopt;
}

std::optional<std::vector<double>> OperatorContext::numbers(const std::string& name) const {
  if (const auto* list = attribute_as<std::vector<double>>(call, name)) return *list;
  if (const auto* list = attribute_as<std::vector<std::int64_t>>(call, name))
    return std::vector<double>(list->begin(), list->end());
  return std::nullopt;
}

std::size_t OperatorContext::axis(std::int64_t otherwise, std::size_t rank) const {
  const std::int64_t given = integer("axis", otherwise);
  return static_cast<std::size_t>(given < 0 ? given + static_cast<std::int64_t>(rank) : given);
}

// --- geometry ----------------------------------------------------------------------------------

bool OperatorContext::has(std::size_t operand) const {
  return operand < operands_.size() && operands_[operand].valid();
}

Shape OperatorContext::local_result(std::size_t r) const {
  return local_shape(result_shape(r), result_states_[r], info.mesh_shape());
}
Shape OperatorContext::local_operand(std::size_t i) const {
  return local_shape(operand_shape(i), operand_states_[i], info.mesh_shape());
}

AxisSet OperatorContext::axes_of(const TensorState& of, std::size_t dim) const {
  AxisSet axes = 0;
  for (std::size_t a = 0; a < info.mesh_shape().size(); ++a) {
    if (is_sharded(of.axes[a]) && of.axes[a] == dim) axes |= AxisSet{1} << a;
  }
  return axes;
}
AxisSet OperatorContext::operand_axes(std::size_t i, std::size_t dim) const {
  return axes_of(operand_states_[i], dim);
}
AxisSet OperatorContext::result_axes(std::size_t r, std::size_t dim) const {
  return axes_of(result_states_[r], dim);
}
AxisSet OperatorContext::operand_axes(std::size_t i, const std::vector<std::size_t>& dims) const {
  AxisSet axes = 0;
  for (const std::size_t dim : dims) axes |= operand_axes(i, dim);
  return axes;
}

namespace {

AxisSet partial_in(const TensorState& state, std::size_t axes) {
  AxisSet set = 0;
  for (std::size_t a = 0; a < axes; ++a) {
    if (state.axes[a] == kPartialState) set |= AxisSet{1} << a;
  }
  return set;
}

}  // namespace

AxisSet OperatorContext::partial_axes(std::size_t r) const {
  return partial_in(result_states_[r], info.mesh_shape().size());
}
AxisSet OperatorContext::partial_operand_axes(std::size_t i) const {
  return partial_in(operand_states_[i], info.mesh_shape().size());
}

std::vector<std::int64_t> OperatorContext::begin_of(const TensorState& of,
                                                    std::size_t dim,
                                                    std::int64_t size) const {
  std::vector<std::int64_t> begin;
  const std::int64_t pieces = tape.group_size(axes_of(of, dim));
  for (std::int64_t device = 0; device < tape.devices(); ++device) {
    std::int64_t piece = 0;
    for (std::size_t a = 0; a < info.mesh_shape().size(); ++a) {
      if (of.axes[a] == dim)
        piece = piece * info.mesh_shape()[a] + tape.coordinate(device, static_cast<int>(a));
    }
    begin.push_back(piece * (size / pieces));
  }
  return begin;
}
std::vector<std::int64_t> OperatorContext::operand_begin(std::size_t i, std::size_t dim) const {
  return begin_of(operand_states_[i], dim, operand_shape(i)[dim]);
}
std::vector<std::int64_t> OperatorContext::result_begin(std::size_t r, std::size_t dim) const {
  return begin_of(result_states_[r], dim, result_shape(r)[dim]);
}

Var OperatorContext::positions(const std::vector<std::int64_t>& begin,
                               std::int64_t count,
                               std::size_t dim,
                               std::size_t rank,
                               AxisSet axes) const {
  std::vector<std::int64_t> shape(rank + 1, 1);
  shape[0] = tape.devices();
  shape[dim + 1] = count;
  DenseTensor values = DenseTensor::filled(std::move(shape), 0.0);
  for (std::size_t i = 0; i < values.values.size(); ++i) {
    const auto at = static_cast<std::int64_t>(i);
    values.values[i] =
        static_cast<double>(begin[static_cast<std::size_t>(at / count)] + at % count);
  }
  return tape.step(std::move(values), axes);
}
Var OperatorContext::operand_positions(std::size_t i, std::size_t dim, std::size_t rank) const {
  return positions(operand_begin(i, dim), local_operand(i)[dim], dim, rank, operand_axes(i, dim));
}
Var OperatorContext::result_positions(std::size_t r, std::size_t dim, std::size_t rank) const {
  return positions(result_begin(r, dim), local_result(r)[dim], dim, rank, result_axes(r, dim));
}

Var OperatorContext::first_of(AxisSet axes) const {
  DenseTensor values = DenseTensor::filled({tape.devices()}, 1.0);
  for (std::int64_t device = 0; device < tape.devices(); ++device) {
    for (std::size_t a = 0; a < info.mesh_shape().size(); ++a) {
      if ((axes >> a & 1U) != 0 && tape.coordinate(device, static_cast<int>(a)) != 0)
        values.values[static_cast<std::size_t>(device)] = 0.0;
    }
  }
  return tape.step(std::move(values), axes);
}

DenseTensor OperatorContext::result_index(std::size_t r) const {
  const Shape& whole = result_shape(r);
  const Shape local = local_result(r);
  std::vector<std::int64_t> shape = {tape.devices()};
  shape.insert(shape.end(), local.begin(), local.end());
  DenseTensor index = DenseTensor::filled(std::move(shape), 0.0);
  std::int64_t inner = 1;   // of the local tensor
  std::int64_t stride = 1;  // of the whole one
  const std::int64_t size = element_count(local);
  for (std::size_t d = local.size(); d-- > 0;) {
    const std::vector<std::int64_t> begin = result_begin(r, d);
    for (std::size_t i = 0; i < index.values.size(); ++i) {
      const auto at = static_cast<std::int64_t>(i);
      const std::int64_t position =
          begin[static_cast<std::size_t>(at / size)] + at / inner % local[d];
      index.values[i] += static_cast<double>(position * stride);
    }
    inner *= local[d];
    stride *= whole[d];
  }
  return index;
}

Var OperatorContext::uniform(std::size_t r, std::uint64_t salt) const {
  DenseTensor drawn = result_index(r);
  for (double& value : drawn.values) {
    // splitmix64 of seed, salt and index
    auto x = static_cast<std::uint64_t>(value) * 0x9e3779b97f4a7c15U +
             (call.seed + 1) * 0xbf58476d1ce4e5b9U + (salt + 1) * 0x94d049bb133111ebU;
    x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9U;
    x = (x ^ (x >> 27U)) * 0x94d049bb133111ebU;
    x ^= x >> 31U;
    value = (static_cast<double>(x >> 12U) + 0.5) / 4503599627370496.0;  // 2^52
  }
  AxisSet axes = 0;
  for (std::size_t d = 0; d < result_shape(r).size(); ++d) axes |= result_axes(r, d);
  return tape.step(std::move(drawn), axes);
}

Var OperatorContext::take_global(Var x,
                                 std::size_t i,
                                 std::size_t dim,
                                 std::size_t r,
                                 std::size_t to,
                                 const std::vector<std::int64_t>& source,
                                 double fill) const {
  if (!x.valid()) return x;
  const std::vector<std::int64_t> from = operand_begin(i, dim);
  const std::vector<std::int64_t> begin = result_begin(r, to);
  const std::int64_t held = x.shape()[dim];
  const std::int64_t count = local_result(r)[to];
  std::vector<std::int64_t> index;
  std::vector<std::int64_t> mask_shape(x.shape().size() + 1, 1);
  mask_shape[0] = tape.devices();
  mask_shape[dim + 1] = count;
  DenseTensor filled = DenseTensor::filled(std::move(mask_shape), 0.0);
  for (std::size_t device = 0; device < from.size(); ++device) {
    for (std::int64_t j = 0; j < count; ++j) {
      const std::int64_t at = source[static_cast<std::size_t>(begin[device] + j)];
      const std::int64_t local = at - from[device];
      if (at < 0) filled.values[index.size()] = fill;
      index.push_back(at >= 0 && local >= 0 && local < held ? local : -1);
    }
  }
  const Var y = take(x, dim, std::make_shared<const std::vector<std::int64_t>>(std::move(index)));
  return fill == 0 ? y : y + tape.step(std::move(filled), result_axes(r, to));
}

}  // namespace meshplan

// SPDX-License-Identifier: Apache-2.0
#include "plan/execution/device_tape.h"

#include <algorithm>

#include "lib/redistribution_replay.h"

namespace meshplan {

const DenseTensor& Var::value() const { return tape->value(*this); }
Shape Var::shape() const {
  const std::vector<std::int64_t>& all = value().shape;
  return Shape(all.begin() + 1, all.end());
}
AxisSet Var::varying() const { return tape->varying(*this); }

DeviceTape::DeviceTape(std::vector<std::int64_t> mesh_shape) : mesh_shape_(std::move(mesh_shape)) {
  for (const std::int64_t size : mesh_shape_) devices_ *= size;
}

std::int64_t DeviceTape::coordinate(std::int64_t device, int axis) const {
  for (std::size_t a = mesh_shape_.size(); a-- > static_cast<std::size_t>(axis) + 1;)
    device /= mesh_shape_[a];
  return device % mesh_shape_[static_cast<std::size_t>(axis)];
}

const std::vector<std::vector<std::int64_t>>& DeviceTape::groups(AxisSet axes) {
  auto& known = groups_[axes];
  if (known.empty()) {
    std::vector<int> order;
    for (std::size_t a = 0; a < mesh_shape_.size(); ++a) {
      if ((axes >> a & 1U) != 0) order.push_back(static_cast<int>(a));
    }
    known = device_groups(mesh_shape_, order);
  }
  return known;
}

std::int64_t DeviceTape::group_size(AxisSet axes) const {
  std::int64_t size = 1;
  for (std::size_t a = 0; a < mesh_shape_.size(); ++a) {
    if ((axes >> a & 1U) != 0) size *= mesh_shape_[a];
  }
  return size;
}

Var DeviceTape::push(Node node) {
  nodes_.push_back(std::move(node));
  return {this, static_cast<int>(nodes_.size()) - 1};
}

Var DeviceTape::input(DenseTensor value, AxisSet varying, bool gradient) {
  return push({std::make_shared<const DenseTensor>(std::move(value)), varying, gradient, {}, {}});
}

Var DeviceTape::step(DenseTensor value,
                     std::vector<Var> inputs,
                     AxisSet varying,
                     Backward backward) {
  Node made;
  made.value = std::make_shared<const DenseTensor>(std::move(value));
  made.varying = varying;
  for (Var& x : inputs) {
    if (!needs_gradient(x)) continue;
    made.gradient = true;
    x = vary(x, varying);
  }
  if (made.gradient) {
    for (const Var& x : inputs) made.inputs.push_back(x.id);
    made.backward = std::move(backward);
  }
  return push(std::move(made));
}

Var DeviceTape::vary(Var x, AxisSet axes) {
  const AxisSet more = axes & ~node(x).varying;
  if (more == 0 || !needs_gradient(x)) return x;
  const auto key = std::pair(x.id, more);
  if (const auto found = lifted_.find(key); found != lifted_.end()) return {this, found->second};
  Node made;
  made.value = node(x).value;
  made.varying = node(x).varying | more;
  made.gradient = true;
  made.inputs = {x.id};
  made.backward = [this, more](const DenseTensor& g) {
    return std::vector<std::optional<DenseTensor>>{all_reduced(g, more, Reduction::kSum, true)};
  };
  const Var result = push(std::move(made));
  lifted_[key] = result.id;
  return result;
}

Var DeviceTape::fail(std::string message) {
  if (!error_) error_ = std::move(message);
  return {};
}

DenseTensor DeviceTape::combined(const DenseTensor& value, AxisSet axes, Reduction how) {
  DenseTensor result = value;
  const auto size = value.values.size() / static_cast<std::size_t>(devices_);
  for (const std::vector<std::int64_t>& group : groups(axes)) {
    const auto at = [&](std::int64_t device, std::size_t i) {
      return static_cast<std::size_t>(device) * size + i;
    };
    for (std::size_t i = 0; i < size; ++i) {
      double total = value.values[at(group[0], i)];
      for (std::size_t member = 1; member < group.size(); ++member) {
        const double term = value.values[at(group[member], i)];
        switch (how) {
          case Reduction::kSum:
          case Reduction::kAvg:
            total += term;
            break;
          case Reduction::kMax:
            total = std::max(total, term);
            break;
          case Reduction::kMin:
            total = std::min(total, term);
            break;
          case Reduction::kProd:
            total *= term;
            break;
        }
      }
      if (how == Reduction::kAvg) total /= static_cast<double>(group.size());
      for (const std::int64_t device : group) result.values[at(device, i)] = total;
    }
  }
  return result;
}

DenseTensor DeviceTape::all_reduced(const DenseTensor& value,
                                    AxisSet axes,
                                    Reduction how,
                                    bool backward) {
  const auto elements = static_cast<std::int64_t>(value.values.size()) / devices_;
  record({Collective::kAllReduce, axes, backward, 1, elements});
  return combined(value, axes, how);
}

void DeviceTape::record(InnerCall call) {
  if (group_size(call.axes) > 1 && call.count > 0) calls_.push_back(call);
}

void DeviceTape::backward(const std::vector<std::pair<Var, DenseTensor>>& seeds) {
  gradients_.assign(nodes_.size(), std::nullopt);
  const auto add = [&](std::size_t id, DenseTensor gradient) {
    std::optional<DenseTensor>& sum = gradients_[id];
    if (!sum) {
      sum = std::move(gradient);
    } else {
      for (std::size_t i = 0; i < sum->values.size(); ++i) sum->values[i] += gradient.values[i];
    }
  };
  for (const auto& [x, gradient] : seeds) {
    if (needs_gradient(x)) add(static_cast<std::size_t>(x.id), gradient);
  }
  for (std::size_t id = nodes_.size(); id-- > 0;) {
    if (!gradients_[id] || !nodes_[id].backward) continue;
    std::vector<std::optional<DenseTensor>> passed = nodes_[id].backward(*gradients_[id]);
    for (std::size_t i = 0; i < passed.size(); ++i) {
      const auto input = static_cast<std::size_t>(nodes_[id].inputs[i]);
      if (passed[i] && nodes_[input].gradient) add(input, std::move(*passed[i]));
    }
    gradients_[id].reset();
  }
}

const std::optional<DenseTensor>& DeviceTape::gradient(Var x) const {
  return gradients_[static_cast<std::size_t>(x.id)];
}

}  // namespace meshplan

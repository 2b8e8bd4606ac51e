// SPDX-License-Identifier: Apache-2.0
// DeviceTape: dense tensors on all devices of a mesh at once, with reverse-mode gradients. Every
// step is recorded; a step is either local to each device or one collective on the groups of some
// mesh axes, and collectives are counted.
//
// A value is a tensor whose dimension 0 counts the devices (by position, row-major) and whose other
// dimensions are the local shape. `varying` names the mesh axes along which devices may hold
// different numbers; along the others they are copies of one number. That is what makes gradients
// right: where a copy meets a value that varies, its gradient is a sum over those axes (an
// all-reduce of the backward); where an all-reduce makes copies, their gradient is a copy already.
//
// Nothing here fails half-way: the first misfit (shapes, a dimension that does not exist) is kept
// as the tape's error and everything after it is skipped.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "graph/graph.h"
#include "lib/collective.h"
#include "lib/virtual_devices.h"

namespace meshplan {

/// One collective inside an operator, as it was executed.
struct InnerCall {
  Collective collective = Collective::kAllReduce;
  AxisSet axes = 0;
  bool backward = false;
  std::int64_t count = 1;     ///< times in a row (hops of a ring)
  std::int64_t elements = 0;  ///< of one device, as CollectiveCall::bytes counts them
  friend bool operator==(const InnerCall&, const InnerCall&) = default;
};

class DeviceTape;

/// A step of a tape. Invalid after an error.
struct Var {
  DeviceTape* tape = nullptr;
  int id = -1;

  bool valid() const { return id >= 0; }
  const DenseTensor& value() const;
  Shape shape() const;  ///< local
  AxisSet varying() const;
};

/// Numbers that the devices use as positions, device after device.
using DeviceIndices = std::shared_ptr<const std::vector<std::int64_t>>;

class DeviceTape {
 public:
  /// Gradients of the inputs of a step from the gradient of its value; nullopt: none.
  using Backward = std::function<std::vector<std::optional<DenseTensor>>(const DenseTensor&)>;

  explicit DeviceTape(std::vector<std::int64_t> mesh_shape);
  DeviceTape(const DeviceTape&) = delete;
  DeviceTape& operator=(const DeviceTape&) = delete;

  std::int64_t devices() const { return devices_; }
  const std::vector<std::int64_t>& mesh_shape() const { return mesh_shape_; }
  std::int64_t coordinate(std::int64_t device, int axis) const;
  /// Devices that differ along `axes` only, outermost axis first.
  const std::vector<std::vector<std::int64_t>>& groups(AxisSet axes);
  std::int64_t group_size(AxisSet axes) const;

  /// A value from outside: dimension 0 counts the devices.
  Var input(DenseTensor value, AxisSet varying, bool gradient);
  /// A step; inputs that vary less than `varying` are copies there.
  Var step(DenseTensor value, std::vector<Var> inputs, AxisSet varying, Backward backward);
  /// A step without a gradient.
  Var step(DenseTensor value, AxisSet varying) { return input(std::move(value), varying, false); }
  /// x, seen as a number that may vary along `axes`, too.
  Var vary(Var x, AxisSet axes);
  Var fail(std::string message);
  bool ok() const { return !error_; }
  const std::string& error() const { return *error_; }

  /// Reduces over the groups of `axes`, without a record: what every device knows before the step.
  DenseTensor combined(const DenseTensor& value, AxisSet axes, Reduction how);
  /// The same as a collective, recorded.
  DenseTensor all_reduced(const DenseTensor& value, AxisSet axes, Reduction how, bool backward);
  void record(InnerCall call);
  const std::vector<InnerCall>& calls() const { return calls_; }

  /// Runs the backward from these gradients; `gradient` then answers for inputs.
  void backward(const std::vector<std::pair<Var, DenseTensor>>& seeds);
  /// nullopt where none arrived.
  const std::optional<DenseTensor>& gradient(Var x) const;

  const DenseTensor& value(Var x) const { return *node(x).value; }
  AxisSet varying(Var x) const { return node(x).varying; }
  bool needs_gradient(Var x) const { return node(x).gradient; }

 private:
  struct Node {
    std::shared_ptr<const DenseTensor> value;
    AxisSet varying = 0;
    bool gradient = false;
    std::vector<int> inputs;
    Backward backward;
  };
  const Node& node(Var x) const { return nodes_[static_cast<std::size_t>(x.id)]; }
  Var push(Node node);

  std::vector<std::int64_t> mesh_shape_;
  std::int64_t devices_ = 1;
  std::deque<Node> nodes_;  ///< a backward may add steps while another one runs
  std::vector<std::optional<DenseTensor>> gradients_;
  std::map<std::pair<int, AxisSet>, int> lifted_;
  std::map<AxisSet, std::vector<std::vector<std::int64_t>>> groups_;
  std::vector<InnerCall> calls_;
  std::optional<std::string> error_;
};

// --- local steps -------------------------------------------------------------------------------
// Dimensions count from 0 in the local shape. Two operands broadcast as in numpy.

/// The same number everywhere.
Var full(DeviceTape& tape, Shape shape, double value);
/// Every element by `f`; `slope(x, y)` is dy/dx, none: no gradient.
Var map(Var x,
        const std::function<double(double)>& f,
        std::function<double(double, double)> slope = nullptr);
/// Two elements by `f`; slopes(a, b) are d/da and d/db, none: no gradient.
Var map2(Var a,
         Var b,
         const std::function<double(double, double)>& f,
         std::function<std::pair<double, double>(double, double)> slopes = nullptr);
Var operator+(Var a, Var b);
Var operator-(Var a, Var b);
Var operator*(Var a, Var b);
Var operator/(Var a, Var b);
Var operator*(Var a, double b);
Var operator+(Var a, double b);
Var negate(Var x);
Var exp(Var x);
Var log(Var x);
Var sqrt(Var x);
Var reciprocal(Var x);
/// a where the condition is not 0, else b.
Var where(Var condition, Var a, Var b);
/// The value without its gradient.
Var stop(Var x);

/// Over these dimensions, which stay with size 1. Equal extremes share the gradient.
Var sum(Var x, const std::vector<std::size_t>& dims);
Var extreme(Var x, const std::vector<std::size_t>& dims, bool largest);
/// Products over letters: {"bmk", "kn"} -> "bmn". A letter that the result lacks is summed.
Var einsum(const std::vector<std::string>& terms, const std::string& result, std::vector<Var> x);

Var reshape(Var x, Shape shape);
Var permute(Var x, const std::vector<std::size_t>& order);
Var broadcast(Var x, const Shape& shape);
Var concat(const std::vector<Var>& parts, std::size_t dim);
/// Entries of one dimension; `index` has as many for every device; -1 gives `fill`.
Var take(Var x, std::size_t dim, DeviceIndices index, double fill = 0);
/// Elements by their place in the local tensor, in the order of `shape`; -1 gives `fill`.
Var gather(Var x, DeviceIndices index, Shape shape, double fill = 0);
/// The opposite: every element of x is added at its place in a tensor of zeros; -1 drops it.
Var scatter(Var x, DeviceIndices index, Shape shape);

// --- collectives -------------------------------------------------------------------------------

/// The reduction of all shards, on every device. Only a sum has a gradient.
Var all_reduce(Var x, AxisSet axes, Reduction how);
/// `before` rows of the previous device of the group and `after` of the next one around the own
/// ones; zeros at the ends.
Var halo_exchange(Var x, std::size_t dim, AxisSet axes, std::int64_t before, std::int64_t after);
/// All shards along `dim`, passed around a ring; the backward passes them again, and their
/// gradients.
Var ring_gather(Var x, std::size_t dim, int axis);

}  // namespace meshplan

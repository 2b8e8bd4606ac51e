// SPDX-License-Identifier: Apache-2.0
// What sharding propagation knows of graph and operators: for every operator, which factors its
// tensors' dimensions are made of; for every tensor, which mesh axes cut which dimension.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "graph/rule.h"
#include "lib/collective.h"

namespace meshplan {

/// Different mesh axes, the outermost first; at most kMost.
class AxisList {
 public:
  static constexpr std::size_t kMost = 8;

  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  int operator[](std::size_t i) const { return axes_[i]; }
  int back() const { return axes_[size_ - 1U]; }
  void push_back(int axis) { axes_[size_++] = static_cast<std::uint8_t>(axis); }
  /// Keeps the first `count` axes.
  void cut(std::size_t count) {
    while (size_ > count) axes_[--size_] = 0;
  }
  AxisSet set() const {
    AxisSet axes = 0;
    for (std::size_t i = 0; i < size_; ++i) axes |= AxisSet{1} << axes_[i];
    return axes;
  }
  bool starts_with(const AxisList& prefix) const { return common_prefix(prefix) == prefix.size(); }
  std::size_t common_prefix(const AxisList& other) const {
    std::size_t same = 0;
    while (same < size_ && same < other.size_ && axes_[same] == other.axes_[same]) ++same;
    return same;
  }
  const std::uint8_t* begin() const { return axes_.data(); }
  const std::uint8_t* end() const { return axes_.data() + size_; }
  friend auto operator<=>(const AxisList&, const AxisList&) = default;

 private:
  std::array<std::uint8_t, kMost> axes_{};
  std::uint8_t size_ = 0;
};

/// The product of the axes' sizes.
std::int64_t pieces(const AxisList& axes, const std::vector<std::int64_t>& mesh);

/// What sharding a factor means to the propagation, the most welcome first.
enum class FactorClass : std::uint8_t {
  kPass,       ///< no communication
  kReduction,  ///< the result is Partial, or statistics are exchanged
  kShift,      ///< data moves between neighbours
  kWhole,      ///< cannot be sharded where the operator runs
};

/// An operator as the propagation sees it.
struct FactorTable {
  struct Factor {
    std::int64_t size = 1;
    FactorClass kind = FactorClass::kPass;
    bool blocked = false;  ///< nothing spreads along it
  };
  /// The factors of every dimension, major to minor; never empty.
  using Dims = std::vector<std::vector<int>>;

  std::vector<Factor> factors;
  std::vector<Dims> tensors;  ///< operands, then results; a scalar has no dimensions
  std::size_t operands = 0;
  bool elementwise = false;    ///< all dimensions of all tensors pass
  bool cheap = false;          ///< elementwise, or moves no data: spreads first
  bool cheap_forward = false;  ///< spreads first, but from operands to results only
  bool broadcast = false;      ///< the result has factors that the operand lacks
};

/// `through_routes`: what cuts the tokens of an operator that routes them to experts cuts the
/// experts' slots, too; otherwise nothing spreads from one side to the other, as an all-to-all to
/// cut experts may be cheaper.
FactorTable factor_table(const Rule& rule, bool through_routes = true);

/// The tensors and operators between which shardings spread. Dimensions of all tensors are numbered
/// through: those of tensor t from first_dim[t] to first_dim[t + 1].
struct PropagationGraph {
  struct Op {
    std::shared_ptr<const FactorTable> table;
    std::vector<int> tensors;  ///< one per tensor of the table; -1 takes no part
  };

  std::vector<std::int64_t> mesh;      ///< sizes of the axes, at most AxisList::kMost
  std::vector<std::int64_t> elements;  ///< per tensor
  std::vector<std::size_t> first_dim = {0};
  std::vector<Op> operators;  ///< in the order in which they are visited
  /// Plans: axes cut a dimension in mesh order and divide it.
  bool in_order_and_even = false;

  int add_tensor(const Shape& shape);
  std::size_t tensors() const { return elements.size(); }
};

/// How a tensor may be cut, and is.
struct Shardings {
  std::vector<AxisList> dims;   ///< per dimension of all tensors
  std::vector<AxisSet> open;    ///< per dimension: the axes that may still be added
  std::vector<AxisSet> barred;  ///< per tensor: axes that may cut none of its dimensions

  /// Everything open, nothing cut.
  explicit Shardings(const PropagationGraph& graph);
  Shardings() = default;
};

/// The mesh axes that cut tensor `t`.
AxisSet used_axes(const PropagationGraph& graph, const Shardings& shardings, std::size_t t);

/// One tensor's dimension lists taken apart into factors, and put together again.
struct FactorCut {
  AxisList axes;
  AxisList overflow;   ///< axes of the dimension that fit no factor from here on
  AxisSet open = 0;    ///< the axes that may be added
  bool there = false;  ///< the tensor has the factor
  bool minor = false;  ///< it is the last of its dimension
};

/// The lists of one tensor per factor; `cuts` has one entry per factor of the table. A factor that
/// is not the last of its dimension takes the axes that divide what is left of it; where it is not
/// filled and the next axis does not fit, that axis and all after it fit nowhere.
void project(const PropagationGraph& graph,
             const Shardings& shardings,
             const FactorTable& table,
             std::size_t position,
             int tensor,
             FactorCut* cuts);

/// The list of one dimension from those of its factors; it ends behind the first factor that is
/// not cut completely, as what follows would be strided.
AxisList unproject(const PropagationGraph& graph,
                   const FactorTable& table,
                   const std::vector<int>& dimension,
                   const FactorCut* cuts);

}  // namespace meshplan

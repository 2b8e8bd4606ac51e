// SPDX-License-Identifier: Apache-2.0
// Messages: sequential tree-reweighted message passing (TRW-S; Kolmogorov 2006) on a core.
//
// Nodes are visited in their order, or against it; each shares what it prefers among the neighbours
// that come later. One message per edge is kept, towards the node that is visited next. Whatever
// the messages were before, a pass gives a lower bound on the sum of all costs:
//
//   a node's costs and incoming messages are non-negative once their minimum is taken out; the part
//   of them that is pushed over an edge, with the edge's table and less the message that came over
//   it, is at least the outgoing message, whose minimum is taken out as well. The bound is the sum
//   of all minima taken out; what is left is non-negative.
//
// So memory prices may change between passes, and the messages are kept.
#pragma once

#include <vector>

#include "search/solver/core.h"

namespace meshplan::solver {

class Messages {
 public:
  explicit Messages(const Core& core);

  /// One pass over `theta` (costs per strategy, as of Core::price) and the pair tables. Returns the
  /// bound, without the core's constant. `labels` receives a labelling read off on the way.
  double pass(const std::vector<double>& theta, bool forward, Labels& labels);

  /// For every strategy a bound on the sum of all costs of labellings that use it: a pass forward
  /// and one backward, after another backward one. Returns the larger bound of the two passes.
  double marginals(const std::vector<double>& theta, std::vector<double>& bounds);

  /// The message of an edge, over the strategies of the node it leads to.
  const double* message(int edge) const {
    return messages_.data() + begin_[static_cast<std::size_t>(edge)];
  }
  /// To go back to messages that served well.
  const std::vector<double>& all() const { return messages_; }
  void restore(const std::vector<double>& messages) { messages_ = messages; }
  /// Table entries visited by a pass.
  double work() const { return core_.entries() + static_cast<double>(core_.strategies()); }

 private:
  const Core& core_;
  std::vector<std::size_t> begin_;  ///< per edge, room for the larger end
  std::vector<double> messages_;
  std::vector<double> share_;  ///< per node
};

}  // namespace meshplan::solver

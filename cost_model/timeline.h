// SPDX-License-Identifier: Apache-2.0
// Timeline: the moments of one micro-batch. Every operator runs forward, in order; in training
// every operator then runs backward, in reverse order. What is recomputed runs forward once more in
// between: operators that hand each other values which are not stored run together, in forward
// order, immediately before the first backward that reads one of these values.
//
// Which operators may be recomputed is given (recompute.h). Of these, one is recomputed if a result
// of it is read again (by a backward or by a recomputed operator) and is not stored. A result is
// stored where its segment says so; a view is stored with its operand.
#pragma once

#include <cstdint>
#include <vector>

#include "cost_model/recompute.h"
#include "graph/graph.h"

namespace meshplan {

/// Half-open range of moments; empty where begin >= end.
struct MomentRange {
  int begin = 0;
  int end = 0;
  bool empty() const { return begin >= end; }
  friend auto operator<=>(const MomentRange&, const MomentRange&) = default;
};

/// Which run of an operator.
enum class Pass : std::uint8_t { kForward, kRecompute, kBackward };
/// "forward", "recomputation", "backward".
const char* pass_name(Pass pass);

struct Moment {
  Pass pass = Pass::kForward;
  OperatorId op{};
};

class Timeline {
 public:
  Timeline(const Graph& graph, const Recomputation& recomputation);

  int size() const { return static_cast<int>(moments_.size()); }
  const Moment& at(int moment) const { return moments_[static_cast<std::size_t>(moment)]; }
  int forward(OperatorId op) const { return static_cast<int>(index(op)); }
  /// -1: does not run again.
  int recompute(OperatorId op) const { return recompute_[index(op)]; }
  /// Training only.
  int backward(OperatorId op) const { return backward_[index(op)]; }
  bool recomputes(OperatorId op) const { return recompute(op) >= 0; }
  bool recomputes_any() const;
  /// From when on a parameter that is read at `moment` may be gathered: when the layer before
  /// starts (numbered_layers; a run of operators outside of all layers counts as one), in a graph
  /// without layers when the moment before does. The first backward looks back one moment.
  int prefetch(int moment) const { return prefetch_[static_cast<std::size_t>(moment)]; }
  /// Whether the tensor is not stored from forward to backward but made again by its producer.
  bool made_again(TensorId tensor) const { return made_again_[index(tensor)] != 0; }

 private:
  void add_backwards(const Graph& graph, const Recomputation& recomputation);
  void find_prefetch(const Graph& graph);

  std::vector<Moment> moments_;
  std::vector<int> recompute_;
  std::vector<int> backward_;
  std::vector<char> made_again_;
  std::vector<int> prefetch_;
};

}  // namespace meshplan

// SPDX-License-Identifier: Apache-2.0
// DataFlow: how each tensor's value reaches its readers and its gradient comes back, before any
// placement is chosen. Searches, evaluator and plan writer walk the same structure.
//
// A tensor's values form a tree: the root is what the producer leaves; several readers hang below
// one copy (where gradients are summed), groups of like readers (q, k, v; gate, up) below a copy of
// their own. Every edge of the tree is a Transfer. Readers of constants, and the only reader of an
// input or of a parameter, have no transfer: the value is already in the layout they want.
//
// A value that is made again (timeline.h) lives twice: in the forward like one that nothing saves,
// and from its recomputation until the backward has read it; so do its copies, which travel twice.
#pragma once

#include <optional>
#include <vector>

#include "cost_model/timeline.h"
#include "graph/graph.h"

namespace meshplan {

enum class ValueKind : std::uint8_t {
  kResult,     ///< left by an operator
  kInput,      ///< graph input or state with several readers: arrives in any layout
  kParameter,  ///< with several readers
  kCopy,       ///< a copy below another value
};

struct Value {
  TensorId tensor{};
  ValueKind kind = ValueKind::kResult;
  int result = 0;        ///< kResult: which result of the producer
  bool view = false;     ///< kResult of an operator that moves no data
  bool stored = false;   ///< kept for the backward at this node: readers in its layout add nothing
  MomentRange live;      ///< kResult, not a view: the buffer until the last forward reader
  MomentRange again;     ///< kResult made again, not a view: until the last recomputed reader
  MomentRange kept;      ///< kResult, stored, not a view: from then through the backward
  MomentRange gradient;  ///< kResult with a gradient, not a view
  int incoming = -1;     ///< kCopy: the transfer that fills it
  std::vector<int> outgoing;  ///< transfers
};

struct Transfer {
  int from = 0;  ///< value
  int to = -1;   ///< value (a copy), or -1: the operand `use`
  Use use;       ///< where to < 0
  /// The value on this side is read again: by a backward, or (unless it is made again itself) by a
  /// recomputed operator.
  bool saves = false;
  bool stored = false;              ///< `from` is stored anyway
  bool again = false;               ///< the value is made again and travels once more
  MomentRange same;                 ///< the producer's buffer, if it is what is saved
  MomentRange kept;                 ///< the reader's copy, if that is what is saved
  MomentRange copy;                 ///< the reader's copy, if it is not kept
  MomentRange copy_again;           ///< `again`: the copy once more, if it is not kept from then
  MomentRange regathered;           ///< the copy brought back for the backward
  MomentRange gradient;             ///< the gradient before its redistribution
  std::vector<OperatorId> readers;  ///< all operators below, in order
};

/// Operands without a transfer.
enum class DirectUse : std::uint8_t { kNo, kInput, kConstant, kParameter };

class DataFlow {
 public:
  explicit DataFlow(const Graph& graph, const Recomputation& recomputation = {});

  const std::vector<Value>& values() const { return values_; }
  const std::vector<Transfer>& transfers() const { return transfers_; }
  /// The root value of a tensor, or -1 (unused tensors, direct uses).
  int root(TensorId tensor) const { return roots_[index(tensor)]; }
  /// The transfer that feeds an operand, or -1.
  int transfer(OperatorId op, std::size_t operand) const {
    return operand_transfer_[index(op)][operand];
  }
  DirectUse direct(OperatorId op, std::size_t operand) const { return direct_[index(op)][operand]; }
  const Timeline& timeline() const { return timeline_; }
  int moments() const { return timeline_.size(); }

 private:
  struct Span;
  void add_tree(const Graph& graph, TensorId tensor);
  int add_transfer(int from, int to, Use use);
  void measure(const Graph& graph);

  std::vector<Value> values_;
  std::vector<Transfer> transfers_;
  std::vector<int> roots_;
  std::vector<std::vector<int>> operand_transfer_;
  std::vector<std::vector<DirectUse>> direct_;
  Timeline timeline_;
};

/// Whether the backward of `op` reads this operand's value: the rule saves it and a gradient needs
/// it (for a product: that of another operand).
bool backward_reads(const Graph& graph, const Operator& op, std::size_t operand);

/// When a sharded parameter is gathered (from when it is prefetched through its last reader) and
/// its gradient not yet reduced.
struct ParameterSpan {
  int first = 0;           ///< forward moment of the first reader
  int backward_first = 0;  ///< when a reader first needs it again, recomputed or backward
  int backward_last = 0;   ///< backward moment of the first reader
  MomentRange gathered;
  MomentRange gathered_backward;
  MomentRange unreduced;
};
ParameterSpan parameter_span(const Graph& graph, const DataFlow& flow, TensorId tensor);

/// When an operator's own buffers (Workspace) are there: in each of its runs, and from the last
/// forward until the backward; empty where it does not run.
struct WorkspaceSpan {
  MomentRange forward;
  MomentRange recompute;
  MomentRange kept;
  MomentRange backward;
};
WorkspaceSpan workspace_span(const DataFlow& flow, OperatorId op);

/// Whether a parameter is read again after the forward: by a backward or a recomputed operator.
bool parameter_read_again(const Graph& graph, const DataFlow& flow, TensorId tensor);

/// Whether a tensor leaves the graph: a loss or a graph output, which must not stay Partial.
bool ends_graph(const Graph& graph, TensorId tensor);

/// Whether any operand of `op` has a gradient.
bool has_backward(const Graph& graph, const Operator& op);

}  // namespace meshplan

// SPDX-License-Identifier: Apache-2.0
#include "cost_model/timeline.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <string>

#include "cost_model/data_flow.h"
#include "lib/check.h"

namespace meshplan {
namespace {

bool is_view(const Operator& op) { return op.rule->family == OperatorFamily::kView; }

/// Finds what runs again; everything goes from the last operator to the first, so that readers are
/// known before what they read.
class Recomputed {
 public:
  Recomputed(const Graph& graph, const Recomputation& recomputation)
      : graph_(graph),
        recomputation_(recomputation),
        runs_again_(graph.operators.size(), 0),
        made_again_(graph.tensors.size(), 0),
        stays_(graph.tensors.size(), 0),
        reaches_(graph.tensors.size(), 0),
        read_again_(graph.tensors.size(), 0),
        last_need_(graph.tensors.size(), -1),
        group_(graph.operators.size()) {
    std::iota(group_.begin(), group_.end(), std::size_t{0});
    for (std::size_t i = graph.operators.size(); i-- > 0;) visit(i);
  }

  bool runs_again(std::size_t op) const { return runs_again_[op] != 0; }
  const std::vector<char>& made_again() const { return made_again_; }

  /// Operators that run together, by the operator before whose backward they do.
  std::map<std::size_t, std::vector<std::vector<OperatorId>>> groups() {
    std::map<std::size_t, std::vector<OperatorId>> members;  // by the first operator
    std::map<std::size_t, int> need;
    for (std::size_t i = 0; i < runs_again_.size(); ++i) {
      if (!runs_again(i)) continue;
      const std::size_t group = find(i);
      members[group].push_back(static_cast<OperatorId>(i));
      int& last = need.try_emplace(group, -1).first->second;
      for (const TensorId output : graph_.operators[i].outputs) {
        if (made_again_[index(output)] != 0) last = std::max(last, last_need_[index(output)]);
      }
    }
    std::map<std::size_t, std::vector<std::vector<OperatorId>>> groups;
    for (auto& [group, operators] : members) {
      MESHPLAN_CHECK(need[group] >= 0);  // a chain of recomputed readers ends at a backward
      groups[static_cast<std::size_t>(need[group])].push_back(std::move(operators));
    }
    return groups;
  }

 private:
  int segment(std::size_t op) const { return recomputation_.segment[op]; }

  std::size_t find(std::size_t op) {
    while (group_[op] != op) op = group_[op] = group_[group_[op]];
    return op;
  }
  /// The first operator stands for its group.
  void unite(std::size_t a, std::size_t b) {
    a = find(a);
    b = find(b);
    group_[std::max(a, b)] = std::min(a, b);
  }

  bool any_result(const Operator& op, const std::vector<char>& of) const {
    return std::any_of(
        op.outputs.begin(), op.outputs.end(), [&](TensorId t) { return of[index(t)] != 0; });
  }

  /// Whether a reader makes the segment store what it reads.
  bool stored_for(std::size_t reader, int home) const {
    const Operator& op = graph_.operators[reader];
    if (segment(reader) == home) return is_view(op) && any_result(op, stays_);
    if (recomputation_.region[reader] == home && !is_view(op)) return false;
    if (recomputation_.stores_results[static_cast<std::size_t>(home)]) return true;
    return segment(reader) >= 0 || (is_view(op) && any_result(op, reaches_));
  }

  void visit(std::size_t i) {
    const Operator& op = graph_.operators[i];
    const bool free_view = segment(i) < 0 && is_view(op);
    for (std::size_t r = 0; r < op.outputs.size(); ++r) {
      const TensorId output = op.outputs[r];
      const std::size_t t = index(output);
      int need = -1;
      for (const Use& use : graph_.tensor(output).uses) {
        const std::size_t u = index(use.op);
        const Operator& reader = graph_.op(use.op);
        if (segment(i) >= 0 && stored_for(u, segment(i))) stays_[t] = 1;
        if (free_view && (segment(u) >= 0 || (is_view(reader) && any_result(reader, reaches_))))
          reaches_[t] = 1;
        if (runs_again(u)) read_again_[t] = 1;
        if (backward_reads(graph_, reader, static_cast<std::size_t>(use.operand)))
          need = std::max(need, static_cast<int>(u));
        if (!is_view(reader)) continue;
        for (const TensorId through : reader.outputs) {
          if (read_again_[index(through)] != 0) read_again_[t] = 1;
          need = std::max(need, last_need_[index(through)]);
        }
      }
      if (need >= 0) read_again_[t] = 1;
      const bool own = op.rule->results[r].saved && has_backward(graph_, op);
      last_need_[t] = std::max(need, own ? static_cast<int>(i) : -1);
      if (segment(i) >= 0 && stays_[t] == 0 && (own || read_again_[t] != 0)) runs_again_[i] = 1;
    }
    if (!runs_again(i)) return;
    for (const TensorId output : op.outputs) {
      const std::size_t t = index(output);
      if (stays_[t] != 0 && read_again_[t] != 0) continue;
      made_again_[t] = 1;
      for (const Use& use : graph_.tensor(output).uses) {
        if (runs_again(index(use.op))) unite(i, index(use.op));
      }
    }
  }

  const Graph& graph_;
  const Recomputation& recomputation_;
  std::vector<char> runs_again_;
  std::vector<char> made_again_;
  std::vector<char> stays_;       ///< its segment stores it
  std::vector<char> reaches_;     ///< results of views outside of segments: a segment reads them
  std::vector<char> read_again_;  ///< by a backward or a recomputed operator
  std::vector<int> last_need_;    ///< the last operator whose backward reads it, through views
  std::vector<std::size_t> group_;
};

}  // namespace

const char* pass_name(Pass pass) {
  switch (pass) {
    case Pass::kForward:
      return "forward";
    case Pass::kRecompute:
      return "recomputation";
    case Pass::kBackward:
      return "backward";
  }
  return "";
}

Timeline::Timeline(const Graph& graph, const Recomputation& recomputation)
    : recompute_(graph.operators.size(), -1),
      backward_(graph.operators.size(), -1),
      made_again_(graph.tensors.size(), 0) {
  for (std::size_t i = 0; i < graph.operators.size(); ++i)
    moments_.push_back({Pass::kForward, static_cast<OperatorId>(i)});
  if (graph.training) add_backwards(graph, recomputation);
  find_prefetch(graph);
}

void Timeline::add_backwards(const Graph& graph, const Recomputation& recomputation) {
  std::map<std::size_t, std::vector<std::vector<OperatorId>>> groups;
  if (!recomputation.segment.empty()) {
    Recomputed recomputed(graph, recomputation);
    groups = recomputed.groups();
    made_again_ = recomputed.made_again();
  }
  for (std::size_t i = graph.operators.size(); i-- > 0;) {
    if (const auto before = groups.find(i); before != groups.end()) {
      for (const std::vector<OperatorId>& group : before->second) {
        for (const OperatorId op : group) {
          recompute_[index(op)] = size();
          moments_.push_back({Pass::kRecompute, op});
        }
      }
    }
    backward_[i] = size();
    moments_.push_back({Pass::kBackward, static_cast<OperatorId>(i)});
  }
}

void Timeline::find_prefetch(const Graph& graph) {
  const std::vector<std::string> layers = numbered_layers(graph);
  const bool layered =
      std::any_of(layers.begin(), layers.end(), [](const auto& layer) { return !layer.empty(); });
  int before = 0;  // the first moment of the layer before
  int begin = 0;   // and of this one
  for (int moment = 0; moment < size(); ++moment) {
    if (moment > 0) {
      const Moment& last = at(moment - 1);
      const Moment& now = at(moment);
      const bool turns = last.pass == Pass::kForward && now.pass != Pass::kForward;
      if (turns || !layered || layers[index(last.op)] != layers[index(now.op)]) {
        before = turns ? moment - 1 : begin;
        begin = moment;
      }
    }
    prefetch_.push_back(before);
  }
}

bool Timeline::recomputes_any() const {
  return std::any_of(recompute_.begin(), recompute_.end(), [](int moment) { return moment >= 0; });
}

}  // namespace meshplan

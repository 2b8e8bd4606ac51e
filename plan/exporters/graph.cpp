// SPDX-License-Identifier: Apache-2.0
// The graph document with what the plan says about the forward.
//
// Every operator gets the placements of its operands and results, every parameter those in which it
// rests. Where a value moves between two operators, a Redistribute operator stands: it reads the
// tensor and makes a name for it in another layout, which the readers of that layout read. Several
// moves on the way to one reader are a chain, as they are in the plan:
//
//   fc1: x, w1 -> h          [S(0),P(sum)]
//   h -> h'1: Redistribute   [S(0),P(sum)] to [S(0),R], collectives all_reduce(tp)
//   gelu: h'1 -> a           [S(0),R]
//
// The document is read as the same graph (without_redistributions) with the placements as
// constraints (document_constraints), so it plans to these placements again, and the plan that it
// was written from checks and verifies against it. What happens in the backward and in the update
// has no place in a graph of the forward; it is named in the warnings.
#include <map>
#include <set>
#include <string>
#include <utility>

#include "plan/exporters/exporter.h"

namespace meshplan {
namespace {

/// Who reads a tensor: an operator's operand, or the end of the graph (operator "").
using Reader = std::pair<std::string, std::size_t>;

std::string steps_text(const PlanRedistribution& moved) {
  std::string text;
  for (const PlanStep& step : moved.steps) {
    text += (text.empty() ? "" : ", ") + std::string(collective_name(step.collective)) + "(";
    for (std::size_t i = 0; i < step.axes.size(); ++i) text += (i == 0 ? "" : ",") + step.axes[i];
    text += ")";
  }
  return text;
}

class GraphWriter {
 public:
  explicit GraphWriter(const ExportSource& source) : source_(source), document_(source.document) {}

  Exported run() {
    // a graph that was written before starts from what it is about
    if (auto plain = without_redistributions(document_)) document_ = std::move(plain->document);
    document_.mesh = ConstraintMesh{source_.plan.mesh.shape, source_.plan.mesh.axes, {}};
    collect_names();
    place_tensors();
    place_operators();
    for (const PlanRedistribution& moved : source_.plan.redistributions) {
      if (moved.phase == Phase::kForward) {
        insert(moved);
      } else {
        const char* when = phase_name(moved.phase);
        if (elsewhere_[when].empty() || elsewhere_[when].back() != moved.tensor)
          elsewhere_[when].push_back(moved.tensor);
      }
    }
    Exported exported;
    exported.text = write_graph_document(document_);
    for (const auto& [when, names] : elsewhere_)
      warn_of(exported,
              names,
              std::string("moves of tensors in the phase ") + when,
              "have no place in a graph of the forward");
    return exported;
  }

 private:
  void collect_names() {
    for (const TensorDocument& tensor : document_.tensors) tensors_.insert(tensor.name);
    for (std::size_t o = 0; o < document_.operators.size(); ++o) {
      const OperatorDocument& op = document_.operators[o];
      operators_.emplace(op.name, o);
      tensors_.insert(op.outputs.begin(), op.outputs.end());
      for (std::size_t i = 0; i < op.inputs.size(); ++i)
        readers_[op.inputs[i]].push_back({op.name, i});
    }
    if (document_.outputs) {
      for (const std::string& output : *document_.outputs) readers_[output].push_back({"", 0});
    }
  }

  void place_tensors() {
    std::map<std::string_view, const PlanTensor*> planned;
    for (const PlanTensor& tensor : source_.plan.tensors) planned.emplace(tensor.name, &tensor);
    for (TensorDocument& tensor : document_.tensors) {
      tensor.placements.clear();
      const auto found = planned.find(tensor.name);
      if (tensor.role == Role::kParameter && found != planned.end())
        tensor.placements = found->second->placements;
    }
  }

  void place_operators() {
    for (OperatorDocument& op : document_.operators) {
      op.in_placements.clear();
      op.out_placements.clear();
    }
    for (const PlanOperator& planned : source_.plan.operators) {
      OperatorDocument& op = document_.operators[operators_.at(planned.name)];
      op.in_placements = planned.in_placements;
      op.out_placements = planned.out_placements;
    }
  }

  /// The readers that the entry is about; none are named at the end of the graph.
  std::vector<Reader> readers_of(const PlanRedistribution& moved) const {
    const auto all = readers_.find(moved.tensor);
    if (all == readers_.end()) return {};
    std::vector<Reader> readers;
    for (const Reader& reader : all->second) {
      if (moved.consumers.empty()) {
        if (reader.first.empty()) readers.push_back(reader);
        continue;
      }
      for (const PlanUse& use : moved.consumers) {
        if (use.op == reader.first &&
            (!use.operand || *use.operand == static_cast<int>(reader.second)))
          readers.push_back(reader);
      }
    }
    return readers;
  }

  void insert(const PlanRedistribution& moved) {
    // readers that come from different layouts so far need an operator each
    std::map<std::string, std::vector<Reader>> groups;
    for (const Reader& reader : readers_of(moved)) {
      const auto known = current_.find({moved.tensor, reader});
      groups[known == current_.end() ? moved.tensor : known->second].push_back(reader);
    }
    if (groups.empty()) unnamed_end(moved);
    for (const auto& [from, readers] : groups) {
      const std::string to = add_operator(moved, from);
      for (const Reader& reader : readers) {
        current_[{moved.tensor, reader}] = to;
        if (reader.first.empty()) {
          for (std::string& output : *document_.outputs) {
            if (output == from) output = to;
          }
        } else {
          document_.operators[operators_.at(reader.first)].inputs[reader.second] = to;
        }
      }
    }
  }

  /// The end of a graph that names no outputs: what nobody reads is one, so the last operator of
  /// the chain makes it.
  void unnamed_end(const PlanRedistribution& moved) {
    std::string& from = ends_.emplace(moved.tensor, moved.tensor).first->second;
    from = add_operator(moved, from);
  }

  std::string add_operator(const PlanRedistribution& moved, const std::string& from) {
    std::string to;
    for (std::size_t number = ++numbers_[moved.tensor];; number = ++numbers_[moved.tensor]) {
      to = moved.tensor + "'" + std::to_string(number);
      if (!tensors_.contains(to) && !operators_.contains(from + " -> " + to)) break;
    }
    tensors_.insert(to);
    OperatorDocument op;
    op.name = from + " -> " + to;
    op.type = kRedistributeType;
    op.inputs = {from};
    op.outputs = {to};
    op.attributes.emplace("collectives", steps_text(moved));
    op.in_placements = {moved.from};
    op.out_placements = {moved.to};
    const auto producer = operators_.find(moved.producer);
    if (producer != operators_.end()) op.scope = document_.operators[producer->second].scope;
    operators_.emplace(op.name, document_.operators.size());
    document_.operators.push_back(std::move(op));
    return to;
  }

  const ExportSource& source_;
  GraphDocument document_;
  std::set<std::string> tensors_;
  std::map<std::string, std::size_t> operators_;
  std::map<std::string, std::vector<Reader>> readers_;
  std::map<std::pair<std::string, Reader>, std::string> current_;  ///< what a reader reads so far
  std::map<std::string, std::string> ends_;
  std::map<std::string, std::size_t> numbers_;
  std::map<std::string, std::vector<std::string>> elsewhere_;
};

}  // namespace

Exported export_graph(const ExportSource& source) { return GraphWriter(source).run(); }

}  // namespace meshplan

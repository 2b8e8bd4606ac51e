// SPDX-License-Identifier: Apache-2.0
// A drawing of the plan for Graphviz: operators in boxes by scope, with the placements of their
// results; tensors that come from outside as ovals; on an edge what moves before the reader gets
// it. A large graph is best drawn without its edges crossing: dot -Tsvg.
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "plan/exporters/exporter.h"
#include "plan/readable.h"

namespace meshplan {
namespace {

/// Scopes inside each other; a deeper one is drawn as one.
constexpr std::size_t kMostScopes = 20;

/// In the quotes of the dot language.
std::string quote(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    if (c == '\n') {
      quoted += "\\n";
    } else if (static_cast<unsigned char>(c) < 0x20) {
      quoted += ' ';
    } else {
      quoted += c;
    }
  }
  return quoted + "\"";
}

std::string brackets(const Placements& placements) { return "[" + to_string(placements) + "]"; }

/// A scope with the operators that stand directly in it.
struct Scope {
  std::map<std::string, Scope> inner;
  std::vector<std::size_t> operators;
};

class Drawing {
 public:
  explicit Drawing(const ExportSource& source) : source_(source) {}

  std::string run() {
    const Plan& plan = source_.plan;
    std::string title = plan.graph.name + " on " + plan.cluster.name + ", mesh";
    for (std::size_t axis = 0; axis < plan.mesh.axes.size(); ++axis)
      title += " " + plan.mesh.axes[axis] + "=" + std::to_string(plan.mesh.shape[axis]);
    if (plan.result.objective) title += "\nobjective " + readable_time(*plan.result.objective);
    text_ = "digraph " + quote(plan.graph.name) + " {\n  label=" + quote(title) +
            ";\n  labelloc=t;\n  node [shape=box, fontname=Helvetica, fontsize=10];\n"
            "  edge [fontname=Helvetica, fontsize=9];\n";
    Scope root;
    for (std::size_t o = 0; o < source_.graph.operators.size(); ++o) {
      Scope* scope = &root;
      std::string_view rest = source_.graph.operators[o].scope;
      for (std::size_t depth = 0; !rest.empty(); ++depth) {
        const std::size_t dot = depth < kMostScopes ? rest.find('.') : std::string_view::npos;
        scope = &scope->inner[std::string(rest.substr(0, dot))];
        rest = dot == std::string_view::npos ? "" : rest.substr(dot + 1);
      }
      scope->operators.push_back(o);
    }
    draw(root, 1);
    draw_sources();
    draw_edges();
    return std::move(text_) + "}\n";
  }

 private:
  void draw(const Scope& scope, std::size_t depth) {
    const std::string indent(2 * depth, ' ');
    for (const std::size_t o : scope.operators) {
      const PlanOperator& op = source_.plan.operators[o];
      std::string label = op.name + "\n" + op.type + " ";
      for (std::size_t i = 0; i < op.out_placements.size(); ++i)
        label += (i == 0 ? "" : " ") + brackets(op.out_placements[i]);
      label += "\n" + readable_time(op.compute_time);
      text_ += indent + "o" + std::to_string(o) + " [label=" + quote(label) +
               (op.recompute ? ", style=dashed" : "") + "];\n";
    }
    for (const auto& [name, inner] : scope.inner) {
      text_ += indent + "subgraph cluster_" + std::to_string(clusters_++) + " {\n" + indent +
               "  label=" + quote(name) + ";\n" + indent + "  color=gray;\n";
      draw(inner, depth + 1);
      text_ += indent + "}\n";
    }
  }

  void draw_sources() {
    for (std::size_t t = 0; t < source_.graph.tensors.size(); ++t) {
      const Tensor& tensor = source_.graph.tensors[t];
      if (tensor.producer || tensor.uses.empty()) continue;
      const PlanTensor& planned = source_.plan.tensors[t];
      text_ += "  t" + std::to_string(t) +
               " [shape=oval, label=" + quote(tensor.name + "\n" + brackets(planned.placements)) +
               "];\n";
    }
  }

  /// The collectives on the way of a tensor to each reader in the forward.
  std::map<std::pair<std::string_view, std::string_view>, std::string> moves() const {
    std::map<std::pair<std::string_view, std::string_view>, std::string> found;
    for (const PlanRedistribution& moved : source_.plan.redistributions) {
      if (moved.phase != Phase::kForward) continue;
      std::string text;
      for (const PlanStep& step : moved.steps) {
        text += "\n" + std::string(collective_name(step.collective)) + "(";
        for (std::size_t i = 0; i < step.axes.size(); ++i)
          text += (i == 0 ? "" : ",") + step.axes[i];
        text += ") " + readable_bytes(step.bytes);
      }
      for (const PlanUse& use : moved.consumers) found[{moved.tensor, use.op}] += text;
    }
    return found;
  }

  void draw_edges() {
    const auto moved = moves();
    for (std::size_t o = 0; o < source_.graph.operators.size(); ++o) {
      const Operator& op = source_.graph.operators[o];
      for (std::size_t i = 0; i < op.inputs.size(); ++i) {
        if (!op.inputs[i]) continue;
        const Tensor& tensor = source_.graph.tensor(*op.inputs[i]);
        const std::string from = tensor.producer ? "o" + std::to_string(index(*tensor.producer))
                                                 : "t" + std::to_string(index(*op.inputs[i]));
        const auto way = moved.find({tensor.name, op.name});
        std::string label = brackets(*source_.plan.operators[o].in_placements[i]);
        if (way != moved.end()) label += way->second;
        text_ += "  " + from + " -> o" + std::to_string(o) + " [label=" + quote(label) +
                 (way != moved.end() ? ", color=red, penwidth=2" : "") + "];\n";
      }
    }
  }

  const ExportSource& source_;
  std::string text_;
  std::size_t clusters_ = 0;
};

}  // namespace

Exported export_dot(const ExportSource& source) {
  Exported exported;
  exported.text = Drawing(source).run();
  std::vector<std::string> others;
  for (const PlanRedistribution& moved : source.plan.redistributions) {
    if (moved.phase != Phase::kForward) others.push_back(moved.tensor);
  }
  warn_of(exported,
          others,
          "moves of gradients, in updates and in the backward",
          "are not drawn: the drawing shows the forward");
  return exported;
}

}  // namespace meshplan

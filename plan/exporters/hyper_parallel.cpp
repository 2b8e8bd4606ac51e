// SPDX-License-Identifier: Apache-2.0
// Python for hyper-parallel: how shard_module() lays out a model's parameters and what goes into
// and comes out of its modules.
//
// A module is a scope of the graph that has operators of its own. Its inputs are the activations
// and graph inputs that its operators read and that are made outside of it, in the order in which
// they are first read, in the layout in which they are read. Its outputs are what it makes for
// others; an output is given the layout that its readers outside agree on, and otherwise stays as
// it was made, for then each reader's own input says what becomes of it. Between two modules the
// framework redistributes from the one to the other by itself.
//
// Two forms: a ShardingPlan with a tuple of placements per mesh axis, and the older dictionary with
// a tuple of axis names per tensor dimension ("None": not cut). What neither can say is named in
// the warnings: moves inside of a module, gradients and optimizer states, recomputation.
#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "graph/json.h"
#include "plan/exporters/exporter.h"

namespace meshplan {
namespace {

/// One tensor at the border of a module.
struct Border {
  TensorId tensor{};
  Placements placements;
};

struct Module {
  std::string name;
  Module* parent = nullptr;  ///< the innermost module around this one
  std::vector<Border> inputs;
  std::vector<Border> outputs;
};

bool inside(std::string_view scope, std::string_view module) {
  return scope == module || (scope.size() > module.size() && scope[module.size()] == '.' &&
                             scope.substr(0, module.size()) == module);
}

/// Scopes in the order of their components.
struct ScopeOrder {
  bool operator()(const std::string& a, const std::string& b) const {
    const auto key = [](char c) { return c == '.' ? 0 : 1 + static_cast<unsigned char>(c); };
    return std::lexicographical_compare(
        a.begin(), a.end(), b.begin(), b.end(), [&](char x, char y) { return key(x) < key(y); });
  }
};

using Modules = std::map<std::string, Module, ScopeOrder>;

class ModuleBorders {
 public:
  explicit ModuleBorders(const ExportSource& source) : source_(source) {
    for (const Operator& op : source.graph.operators) {
      if (!op.scope.empty()) modules_[op.scope];
    }
    find_parents();
    ends_.insert(source.graph.outputs.begin(), source.graph.outputs.end());
    for (std::size_t o = 0; o < source.graph.operators.size(); ++o) read(o);
    for (std::size_t o = 0; o < source.graph.operators.size(); ++o) make(o);
    find_inner_moves();
  }

  const Modules& modules() const { return modules_; }
  const std::vector<std::string>& two_layouts() const { return two_layouts_; }
  const std::vector<std::string>& inner_moves() const { return inner_moves_; }

 private:
  const std::string* scope_of(const Tensor& tensor) const {
    return tensor.producer ? &source_.graph.op(*tensor.producer).scope : nullptr;
  }

  /// In the order of modules_ what is inside of a module follows it.
  void find_parents() {
    std::vector<Module*> open;
    for (auto& [name, module] : modules_) {
      module.name = name;
      while (!open.empty() && !inside(name, open.back()->name)) open.pop_back();
      if (!open.empty()) module.parent = open.back();
      open.push_back(&module);
    }
  }

  /// `visit(name, module)` for the module of the scope and every one around it.
  template <class Visit>
  void around(const std::string& scope, Visit visit) {
    const auto own = modules_.find(scope);
    if (own == modules_.end()) return;
    for (Module* module = &own->second; module != nullptr; module = module->parent)
      visit(module->name, *module);
  }

  void read(std::size_t o) {
    const Operator& op = source_.graph.operators[o];
    for (std::size_t i = 0; i < op.inputs.size(); ++i) {
      if (!op.inputs[i]) continue;
      const Tensor& tensor = source_.graph.tensor(*op.inputs[i]);
      if (tensor.role == Role::kParameter || tensor.role == Role::kConstant) continue;
      const std::string* made = scope_of(tensor);
      const Placements& placements = *source_.plan.operators[o].in_placements[i];
      around(op.scope, [&](const std::string& name, Module& module) {
        if (made != nullptr && inside(*made, name)) return;
        auto& seen = inputs_[name];
        const auto [place, added] = seen.emplace(index(*op.inputs[i]), module.inputs.size());
        if (added) {
          module.inputs.push_back({*op.inputs[i], placements});
        } else if (module.inputs[place->second].placements != placements) {
          two_layouts_.push_back(tensor.name + " in " + name);
        }
      });
    }
  }

  void make(std::size_t o) {
    const Operator& op = source_.graph.operators[o];
    for (std::size_t i = 0; i < op.outputs.size(); ++i) {
      const Tensor& tensor = source_.graph.tensor(op.outputs[i]);
      around(op.scope, [&](const std::string& name, Module& module) {
        std::optional<Placements> agreed;
        bool agree = true;
        for (const Use& use : tensor.uses) {
          if (inside(source_.graph.op(use.op).scope, name)) continue;
          const Placements& wanted = *source_.plan.operators[index(use.op)]
                                          .in_placements[static_cast<std::size_t>(use.operand)];
          agree = agree && (!agreed || *agreed == wanted);
          agreed = wanted;
        }
        const bool is_output =
            std::find(source_.graph.outputs.begin(), source_.graph.outputs.end(), op.outputs[i]) !=
            source_.graph.outputs.end();
        if (!agreed && !is_output) return;
        const bool as_read = agreed && agree && !is_output;
        module.outputs.push_back(
            {op.outputs[i], as_read ? *agreed : source_.plan.operators[o].out_placements[i]});
      });
    }
  }

  /// Moves that no border says: producer and reader stand in the same module, or in none.
  void find_inner_moves() {
    std::unordered_map<std::string_view, const std::string*> scopes;
    for (const Operator& op : source_.graph.operators) scopes.emplace(op.name, &op.scope);
    for (const PlanRedistribution& moved : source_.plan.redistributions) {
      if (moved.phase != Phase::kForward || moved.producer.empty()) continue;
      const auto producer = scopes.find(moved.producer);
      if (producer == scopes.end()) continue;
      for (const PlanUse& use : moved.consumers) {
        const auto reader = scopes.find(use.op);
        if (reader == scopes.end() || !inside(*producer->second, *reader->second)) continue;
        inner_moves_.push_back(moved.tensor);
        break;
      }
    }
  }

  const ExportSource& source_;
  std::set<TensorId> ends_;  ///< the graph's outputs
  Modules modules_;
  std::map<std::string, std::map<std::size_t, std::size_t>> inputs_;
  std::vector<std::string> two_layouts_;
  std::vector<std::string> inner_moves_;
};

std::string python_placement(const Placement& placement) {
  struct Visitor {
    std::string operator()(const Replicate&) const { return "Replicate()"; }
    std::string operator()(const Shard& shard) const {
      return "Shard(" + std::to_string(shard.dim) + ")";
    }
    std::string operator()(const StridedShard& shard) const {
      return "StridedShard(" + std::to_string(shard.dim) +
             ", split_factor=" + std::to_string(shard.split_factor) + ")";
    }
    std::string operator()(const Partial& partial) const {
      return "Partial(" + json_quote(reduction_name(partial.reduction)) + ")";
    }
  };
  return std::visit(Visitor{}, placement);
}

/// "(a, b)" or "(a,)".
std::string python_tuple(const std::vector<std::string>& items) {
  std::string text = "(";
  for (std::size_t i = 0; i < items.size(); ++i) text += (i == 0 ? "" : ", ") + items[i];
  return text + (items.size() == 1 ? ",)" : ")");
}

std::string placements_tuple(const ExportSource& /*source*/,
                             const Placements& placements,
                             std::size_t /*rank*/) {
  std::vector<std::string> items;
  for (const Placement& placement : placements) items.push_back(python_placement(placement));
  return python_tuple(items);
}

std::string alias_tuple(const ExportSource& source,
                        const Placements& placements,
                        std::size_t rank) {
  const Layout layout = layout_of(source, placements, rank);
  if (layout.has_partial()) return "";
  std::vector<std::string> items;
  for (const std::vector<std::string>& names : layout.alias_map()) {
    std::vector<std::string> quoted;
    for (const std::string& name : names) quoted.push_back(json_quote(name));
    items.push_back(quoted.empty()       ? "\"None\""
                    : quoted.size() == 1 ? quoted[0]
                                         : python_tuple(quoted));
  }
  return python_tuple(items);
}

/// The text of a layout; "" where the form cannot say it.
using LayoutText = std::string (*)(const ExportSource&, const Placements&, std::size_t);

/// One form of the two.
class PythonPlan {
 public:
  PythonPlan(const ExportSource& source, LayoutText layout)
      : source_(source), layout_(layout), borders_(source) {}

  std::string head() const {
    const Plan& plan = source_.plan;
    return "# Sharding plan of " + one_line(plan.graph.name) + " on " +
           std::to_string(plan.cluster.devices) + " devices of " + one_line(plan.cluster.name) +
           ", written by meshplan.\n"
           "# Dimensions are those of the graph; where a framework stores a weight transposed,\n"
           "# exchange them. Shapes stand behind the parameters.\n";
  }
  std::string mesh() const {
    const PlanMesh& mesh = source_.plan.mesh;
    std::vector<std::string> sizes, names, ranks;
    for (std::size_t axis = 0; axis < mesh.shape.size(); ++axis) {
      sizes.push_back(std::to_string(mesh.shape[axis]));
      names.push_back(json_quote(mesh.axes[axis]));
    }
    for (const std::int64_t rank : mesh.ranks) ranks.push_back(std::to_string(rank));
    return "MESH_SHAPE = " + python_tuple(sizes) + "\nMESH_DIM_NAMES = " + python_tuple(names) +
           "\n" + (ranks.empty() ? "" : "MESH_RANKS = " + python_tuple(ranks) + "\n");
  }
  std::string parameters(const std::string& indent) const {
    std::string text;
    for (std::size_t t = 0; t < source_.graph.tensors.size(); ++t) {
      const Tensor& tensor = source_.graph.tensors[t];
      if (tensor.role != Role::kParameter) continue;
      text += indent + json_quote(tensor.name) + ": " +
              layout_(source_, source_.plan.tensors[t].placements, tensor.shape.size()) + ",  # [";
      for (std::size_t d = 0; d < tensor.shape.size(); ++d)
        text += (d == 0 ? "" : ", ") + std::to_string(tensor.shape[d]);
      text += "]\n";
    }
    return text;
  }
  /// Of the graph and of every module: its inputs or its outputs; `suffix` is ".input", ".output".
  std::string borders(const std::string& indent, const std::string& suffix, bool inputs) const {
    std::string text;
    std::vector<Border> whole;
    if (inputs) {
      for (std::size_t t = 0; t < source_.graph.tensors.size(); ++t) {
        if (source_.graph.tensors[t].role == Role::kInput)
          whole.push_back({static_cast<TensorId>(t), source_.plan.tensors[t].placements});
      }
    } else {
      for (const TensorId output : source_.graph.outputs)
        whole.push_back({output, end_placements(output)});
    }
    const std::string root = inputs ? "input" : "output";
    text += entry(indent, root, tuple_of(whole));
    for (const auto& [name, module] : borders_.modules())
      text += entry(indent, name + suffix, tuple_of(inputs ? module.inputs : module.outputs));
    return text;
  }
  void add_warnings(Exported& exported, bool aliases) const {
    const Plan& plan = source_.plan;
    warn_of(exported,
            borders_.inner_moves(),
            "tensors that move between operators of one module",
            "need a redistribution by hand, or smaller modules");
    warn_of(exported,
            borders_.two_layouts(),
            "tensors that are read in two layouts inside of one module",
            "are written with the first one");
    std::vector<std::string> states, gradients, recomputed, partial;
    for (std::size_t t = 0; t < plan.tensors.size(); ++t) {
      const PlanTensor& tensor = plan.tensors[t];
      if (tensor.optimizer_state && *tensor.optimizer_state != tensor.placements)
        states.push_back(tensor.name);
      const bool differs = tensor.gradient && *tensor.gradient != tensor.placements;
      if (differs && source_.graph.tensors[t].role == Role::kParameter)
        gradients.push_back(tensor.name);
    }
    for (const PlanOperator& op : plan.operators) {
      if (op.recompute) recomputed.push_back(op.name);
      const bool any = std::any_of(op.out_placements.begin(), op.out_placements.end(), [](auto& p) {
        return std::any_of(p.begin(), p.end(), [](const Placement& q) { return is_partial(q); });
      });
      if (any) partial.push_back(op.name);
    }
    warn_of(exported,
            states,
            "parameters that keep their optimizer state in another layout",
            "cannot be said in a sharding plan; give them to the optimizer");
    warn_of(exported,
            gradients,
            "parameters that accumulate their gradient in another layout",
            "cannot be said in a sharding plan");
    warn_of(
        exported, recomputed, "operators that are recomputed", "cannot be said in a sharding plan");
    if (aliases)
      warn_of(
          exported,
          partial,
          "operators that leave partial sums",
          "cannot be said with names of axes; a module that such a tensor leaves has no output");
  }

 private:
  /// A graph's output after the last redistribution.
  Placements end_placements(TensorId output) const {
    const Tensor& tensor = source_.graph.tensor(output);
    Placements placements = source_.plan.tensors[index(output)].placements;
    for (const PlanRedistribution& moved : source_.plan.redistributions) {
      if (moved.phase == Phase::kForward && moved.consumers.empty() && moved.tensor == tensor.name)
        placements = moved.to;
    }
    return placements;
  }

  /// One tuple or a list of them; "" where the form cannot say one of them.
  std::string tuple_of(const std::vector<Border>& list) const {
    std::string text;
    for (const Border& border : list) {
      const std::string tuple =
          layout_(source_, border.placements, source_.graph.tensor(border.tensor).shape.size());
      if (tuple.empty()) return "";
      text += (text.empty() ? "" : ", ") + tuple;
    }
    return list.size() > 1 ? "[" + text + "]" : text;
  }
  static std::string entry(const std::string& indent,
                           const std::string& key,
                           const std::string& value) {
    return value.empty() ? "" : indent + json_quote(key) + ": " + value + ",\n";
  }

  const ExportSource& source_;
  LayoutText layout_;
  ModuleBorders borders_;
};

}  // namespace

Exported export_hyper_parallel(const ExportSource& source) {
  const PythonPlan plan(source, placements_tuple);
  Exported exported;
  exported.text = plan.head() +
                  "from hyper_parallel import Partial, Replicate, Shard, ShardingPlan, "
                  "StridedShard\n\n" +
                  plan.mesh() +
                  "\n# shard_module(model, mesh, SHARDING_PLAN)\nSHARDING_PLAN = ShardingPlan(\n"
                  "    plan={\n" +
                  plan.parameters("        ") + "    },\n    input_plan={\n" +
                  plan.borders("        ", ".input", true) + "    },\n    output_plan={\n" +
                  plan.borders("        ", ".output", false) + "    },\n)\n";
  plan.add_warnings(exported, false);
  return exported;
}

Exported export_hyper_parallel_rfc(const ExportSource& source) {
  const PythonPlan plan(source, alias_tuple);
  Exported exported;
  exported.text = plan.head() + plan.mesh() +
                  "\nSHARDING_PLAN = {\n    \"forward\": {\n        \"input\": {\n" +
                  plan.borders("            ", "", true) + "        },\n        \"output\": {\n" +
                  plan.borders("            ", "", false) +
                  "        },\n    },\n    \"parameter\": {\n" + plan.parameters("        ") +
                  "    },\n}\n";
  plan.add_warnings(exported, true);
  return exported;
}

}  // namespace meshplan

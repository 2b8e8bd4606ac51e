// SPDX-License-Identifier: Apache-2.0
// Recomputation, from what the plan says of its operators and of what it stores.
//
// An operator with `recompute` runs forward once more. A result of it is remade, unless the plan
// stores it (an entry "kept" or "gathered" under `saved`). Operators that hand each other remade
// values run together, in forward order, right before the first backward that reads any of their
// remade values. Each of them must be needed, and must be one that the options allow.
#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "plan/check_plan_parts.h"

namespace meshplan::checking {
namespace {

std::size_t at(int index) { return static_cast<std::size_t>(index); }

class Repeats {
 public:
  explicit Repeats(Context& context)
      : context_(context),
        graph_(context.graph),
        made_(context.schedule),
        operators_(static_cast<int>(context.graph.operators.size())) {}

  void run() {
    read_plan();
    find_needs();
    lay_out();
    check_options();
  }

 private:
  bool is_view(const Operator& op) const { return op.rule->family == OperatorFamily::kView; }
  std::string place(int op) const {
    return pointer_to("operators", context_.operator_entry[at(op)]) + "/recompute";
  }

  void read_plan() {
    made_.repeats.assign(at(operators_), false);
    made_.remade.assign(graph_.tensors.size(), false);
    made_.repeat_moment.assign(at(operators_), -1);
    made_.backward_moment.assign(at(operators_), -1);
    for (int i = 0; i < operators_; ++i) {
      if (!context_.plan.operators[at(context_.operator_entry[at(i)])].recompute) continue;
      if (!graph_.training) {
        context_.report(place(i), "false", "true", "there is no backward in inference");
        continue;
      }
      made_.repeats[at(i)] = true;
      made_.any = true;
      for (const TensorId result : graph_.operators[at(i)].outputs) {
        const auto& saved = context_.plan.tensors[at(context_.tensor_entry[index(result)])].saved;
        made_.remade[index(result)] = std::all_of(saved.begin(), saved.end(), [](const auto& s) {
          return s.backward == Saved::kComputed;
        });
      }
    }
  }

  /// The last operator whose backward reads a tensor, and whether anything reads it again.
  void find_needs() {
    backward_reader_.assign(graph_.tensors.size(), -1);
    read_again_.assign(graph_.tensors.size(), false);
    for (int i = operators_ - 1; i >= 0; --i) {
      for (const TensorId result : graph_.operators[at(i)].outputs) find_need(result, i);
      if (!made_.repeats[at(i)]) continue;
      const auto& results = graph_.operators[at(i)].outputs;
      const bool needed = std::any_of(results.begin(), results.end(), [&](TensorId t) {
        return made_.remade[index(t)] && (read_again_[index(t)] || backward_reader_[index(t)] >= 0);
      });
      if (needed) continue;
      context_.report(place(i),
                      "false",
                      "true",
                      "nothing reads again what the operator makes, or it is stored");
      made_.repeats[at(i)] = false;
      for (const TensorId t : results) made_.remade[index(t)] = false;
    }
  }

  void find_need(TensorId tensor, int producer) {
    int& reader = backward_reader_[index(tensor)];
    for (const Use& use : graph_.tensor(tensor).uses) {
      const Operator& op = graph_.op(use.op);
      if (needs_operand(graph_, op, at(use.operand)))
        reader = std::max(reader, static_cast<int>(index(use.op)));
      if (made_.repeats[index(use.op)]) read_again_[index(tensor)] = true;
      if (!is_view(op)) continue;
      for (const TensorId seen : op.outputs) {
        reader = std::max(reader, backward_reader_[index(seen)]);
        if (read_again_[index(seen)]) read_again_[index(tensor)] = true;
      }
    }
    if (reader >= 0) read_again_[index(tensor)] = true;
    const Operator& op = graph_.operators[at(producer)];
    for (std::size_t r = 0; r < op.outputs.size(); ++r) {
      if (op.outputs[r] == tensor && op.rule->results[r].saved && runs_backward(graph_, op))
        reader = std::max(reader, producer);
    }
  }

  void lay_out() {
    // companions: a repeated operator and those that read what it remakes
    std::vector<int> leader(at(operators_));
    std::iota(leader.begin(), leader.end(), 0);
    for (bool changed = made_.any; changed;) {
      changed = false;
      for (std::size_t t = 0; t < graph_.tensors.size(); ++t) {
        if (!made_.remade[t]) continue;
        const std::size_t producer = index(*graph_.tensors[t].producer);
        for (const Use& use : graph_.tensors[t].uses) {
          const std::size_t reader = index(use.op);
          if (!made_.repeats[reader] || leader[reader] == leader[producer]) continue;
          leader[reader] = leader[producer] = std::min(leader[reader], leader[producer]);
          changed = true;
        }
      }
    }
    std::vector<int> before(at(operators_), -1);  // per leader: whose backward they precede
    for (std::size_t t = 0; t < graph_.tensors.size(); ++t) {
      if (!made_.remade[t]) continue;
      int& first = before[at(leader[index(*graph_.tensors[t].producer)])];
      first = std::max(first, backward_reader_[t]);
    }
    int moment = operators_;
    std::vector<int> operator_at;
    for (int i = 0; i < operators_; ++i) {
      made_.names.push_back("forward of " + name(i));
      operator_at.push_back(i);
    }
    if (!graph_.training) return look_ahead(operator_at);
    std::vector<std::vector<int>> leaders(at(operators_));
    for (int l = 0; l < operators_; ++l) {
      if (made_.repeats[at(l)] && leader[at(l)] == l && before[at(l)] >= 0)
        leaders[at(before[at(l)])].push_back(l);
    }
    std::vector<std::vector<int>> companions(at(operators_));
    for (int i = 0; i < operators_; ++i) {
      if (made_.repeats[at(i)]) companions[at(leader[at(i)])].push_back(i);
    }
    for (int i = operators_ - 1; i >= 0; --i) {
      for (const int l : leaders[at(i)]) {
        for (const int op : companions[at(l)]) {
          made_.repeat_moment[at(op)] = moment++;
          made_.names.push_back("recomputation of " + name(op));
          operator_at.push_back(op);
        }
      }
      made_.backward_moment[at(i)] = moment++;
      made_.names.push_back("backward of " + name(i));
      operator_at.push_back(i);
    }
    look_ahead(operator_at);
  }

  /// Gathers start with the first moment of the part before: parts are the stays in one layer (or
  /// outside of all), single moments where nothing is numbered. The backward's first part looks
  /// back at the last moment of the forward.
  void look_ahead(const std::vector<int>& operator_at) {
    std::vector<std::string> layer;
    bool numbered = false;
    for (const int op : operator_at) {
      layer.push_back(up_to_number(graph_.operators[at(op)].scope));
      numbered = numbered || !layer.back().empty();
    }
    std::vector<std::size_t> begins;
    for (std::size_t m = 0; m < layer.size(); ++m) {
      if (m == 0 || !numbered || m == at(operators_) || layer[m] != layer[m - 1])
        begins.push_back(m);
      const std::size_t own = begins.size() - 1;
      const bool turned = begins[own] == at(operators_);
      made_.ahead.push_back(static_cast<int>(own == 0 ? 0
                                             : turned ? begins[own] - 1
                                                      : begins[own - 1]));
    }
  }

  const std::string& name(int op) const { return graph_.operators[at(op)].name; }

  // ---- What the options allow

  /// "a.layers.3" of "a.layers.3.mlp"; "" without a number.
  static std::string up_to_number(const std::string& scope) {
    for (std::size_t begin = 0; begin < scope.size();) {
      const std::size_t end = std::min(scope.find('.', begin), scope.size());
      if (end > begin && scope.find_first_not_of("0123456789", begin) >= end)
        return scope.substr(0, end);
      begin = end + 1;
    }
    return "";
  }

  /// Per operator the part of the graph that the option recomputes together, -1: none; with
  /// `layer_of` also the part in which it stands.
  std::vector<int> parts(bool full, std::vector<int>* layer_of = nullptr) const {
    std::vector<std::string> layer;
    bool numbered = false;
    for (const Operator& op : graph_.operators) {
      layer.push_back(up_to_number(op.scope));
      numbered = numbered || !layer.back().empty();
    }
    for (int i = 0; i < operators_ && !numbered; ++i) {
      const std::string& scope = graph_.operators[at(i)].scope;
      layer[at(i)] = scope.substr(0, scope.find('.'));
    }
    std::vector<int> part(at(operators_), -1);
    std::map<std::string, int> first_of_layer;
    for (int i = 0; i < operators_; ++i) {
      if (full) {
        if (!layer[at(i)].empty())
          part[at(i)] = first_of_layer.try_emplace(layer[at(i)], i).first->second;
      } else if (is_cheap(graph_.operators[at(i)])) {
        const bool goes_on = i > 0 && part[at(i - 1)] >= 0 && layer[at(i - 1)] == layer[at(i)];
        part[at(i)] = goes_on ? part[at(i - 1)] : i;
      }
    }
    if (layer_of != nullptr) *layer_of = part;
    if (full && layer_of != nullptr) {
      std::map<int, int> products;
      for (int i = 0; i < operators_; ++i) {
        const Operator& op = graph_.operators[at(i)];
        if (part[at(i)] < 0 || is_cheap(op)) continue;
        const bool even = has_weight(op) && products[part[at(i)]]++ % 2 == 1;
        if (!even || !op.rule->routes.empty()) part[at(i)] = -1;
      }
    }
    if (full) return part;
    std::set<int> do_something;  // views alone do not
    for (int i = 0; i < operators_; ++i) {
      if (!is_view(graph_.operators[at(i)])) do_something.insert(part[at(i)]);
    }
    for (int& number : part) number = do_something.count(number) != 0 ? number : -1;
    return part;
  }

  void check_options() {
    if (context_.plan.options.others.count("constraints") != 0) return;  // scopes may say otherwise
    const std::string& option = context_.plan.options.recompute;
    const bool full = option == "full" || option == "selective-op";
    std::vector<int> home;  // of operators that stand in a part without running again
    std::vector<int> part(at(operators_), -1);
    if (option == "full" || option == "selective") {
      home = part = parts(full);
    } else if (option == "selective-op") {
      part = parts(true, &home);
    } else {
      home = part;
    }
    for (std::size_t t = 0; t < graph_.tensors.size(); ++t) {
      if (!graph_.tensors[t].producer || (!read_again_[t] && backward_reader_[t] < 0)) continue;
      const std::size_t producer = index(*graph_.tensors[t].producer);
      const bool expected =
          graph_.training && part[producer] >= 0 && !leaves(t, part, home, part[producer], full);
      // what its own backward alone reads comes along where the operator runs again for another one
      if (expected == made_.remade[t] || (made_.remade[t] && !read_again_[t])) continue;
      context_.report(place(static_cast<int>(producer)),
                      expected ? "true" : "false",
                      expected ? "false" : "true",
                      "with the option recompute " + option + ", \"" + graph_.tensors[t].name +
                          (expected ? "\" is made again" : "\" is stored"));
    }
  }

  /// Whether a tensor of this part must be stored: all that leaves a layer (`full`), or what
  /// another part of cheap operators reads.
  bool leaves(std::size_t t,
              const std::vector<int>& part,
              const std::vector<int>& stands_in,
              int home,
              bool full) const {
    const auto& uses = graph_.tensors[t].uses;
    return std::any_of(uses.begin(), uses.end(), [&](const Use& use) {
      const int reader = part[index(use.op)];
      const Operator& op = graph_.op(use.op);
      if (reader != home && stands_in[index(use.op)] == home && !is_view(op)) return false;
      if (reader != home && (full || reader >= 0)) return true;
      return is_view(op) && std::any_of(op.outputs.begin(), op.outputs.end(), [&](TensorId seen) {
               return leaves(index(seen), part, stands_in, reader == home ? home : kNowhere, full);
             });
    });
  }
  /// Home of what a view outside of all parts hands on: any part that reads it is another one.
  static constexpr int kNowhere = -2;

  /// Neither a product with something made of parameters alone, nor dear in itself.
  bool is_cheap(const Operator& op) const {
    const OperatorFamily family = op.rule->family;
    if (family == OperatorFamily::kAttention || family == OperatorFamily::kConvolution ||
        family == OperatorFamily::kEmbedding || family == OperatorFamily::kLoss ||
        !op.rule->routes.empty()) {
      return false;
    }
    return !has_weight(op);
  }
  bool has_weight(const Operator& op) const {
    return op.rule->family == OperatorFamily::kMatMul &&
           std::any_of(op.inputs.begin(), op.inputs.end(), [&](const auto& input) {
             return input && is_weight(*input);
           });
  }
  bool is_weight(TensorId id) const {
    const Tensor& tensor = graph_.tensor(id);
    if (!tensor.producer) return tensor.role == Role::kParameter || tensor.role == Role::kConstant;
    const auto& inputs = graph_.op(*tensor.producer).inputs;
    return std::all_of(inputs.begin(), inputs.end(), [&](const auto& input) {
      return !input || is_weight(*input);
    });
  }

  Context& context_;
  const Graph& graph_;
  Schedule& made_;
  int operators_;
  std::vector<int> backward_reader_;  ///< per tensor, -1: none
  std::vector<bool> read_again_;      ///< per tensor, by another operator
};

}  // namespace

void check_recompute(Context& context) { Repeats(context).run(); }

}  // namespace meshplan::checking

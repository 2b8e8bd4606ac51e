// SPDX-License-Identifier: Apache-2.0
#include "cost_model/recompute.h"

#include <algorithm>
#include <map>
#include <string_view>

namespace meshplan {
namespace {

/// "model.layers.3" of "model.layers.3.mlp.act"; "" where no component is a number.
std::string numbered_scope(std::string_view scope) {
  std::size_t begin = 0;
  while (begin < scope.size()) {
    const std::size_t end = std::min(scope.find('.', begin), scope.size());
    const std::string_view part = scope.substr(begin, end - begin);
    const bool number = !part.empty() && std::all_of(part.begin(), part.end(), [](char c) {
      return c >= '0' && c <= '9';
    });
    if (number) return std::string(scope.substr(0, end));
    begin = end + 1;
  }
  return "";
}

/// The layer of every operator, "" outside of all; without numbers, the outermost component.
std::vector<std::string> layers_of(const Graph& graph) {
  std::vector<std::string> layers = numbered_layers(graph);
  if (std::any_of(layers.begin(), layers.end(), [](const auto& l) { return !l.empty(); }))
    return layers;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const std::string& scope = graph.operators[i].scope;
    layers[i] = scope.substr(0, scope.find('.'));
  }
  return layers;
}

/// Per tensor, whether it depends on nothing but parameters and constants.
std::vector<bool> made_of_parameters(const Graph& graph) {
  std::vector<bool> made(graph.tensors.size(), false);
  for (std::size_t t = 0; t < graph.tensors.size(); ++t) {
    const Role role = graph.tensors[t].role;
    made[t] = !graph.tensors[t].producer && (role == Role::kParameter || role == Role::kConstant);
  }
  for (const Operator& op : graph.operators) {
    const bool all = std::all_of(op.inputs.begin(), op.inputs.end(), [&](const auto& input) {
      return !input || made[index(*input)];
    });
    for (const TensorId output : op.outputs) made[index(output)] = all;
  }
  return made;
}

bool multiplies_parameters(const Operator& op, const std::vector<bool>& of_parameters) {
  return op.rule->family == OperatorFamily::kMatMul &&
         std::any_of(op.inputs.begin(), op.inputs.end(), [&](const auto& input) {
           return input && of_parameters[index(*input)];
         });
}

/// Cheap compared with the memory of its results.
bool is_cheap(const Operator& op, const std::vector<bool>& of_parameters) {
  if (!op.rule->routes.empty()) return false;
  switch (op.rule->family) {
    case OperatorFamily::kAttention:
    case OperatorFamily::kConvolution:
    case OperatorFamily::kEmbedding:
    case OperatorFamily::kLoss:
      return false;
    case OperatorFamily::kMatMul:
      return !multiplies_parameters(op, of_parameters);
    case OperatorFamily::kNormalization:
    case OperatorFamily::kElementwise:
    case OperatorFamily::kReduction:
    case OperatorFamily::kView:
    case OperatorFamily::kOther:
      return true;
  }
  return false;
}

class Segments {
 public:
  explicit Segments(const Graph& graph) : graph_(graph) {
    made_.segment.assign(graph.operators.size(), -1);
    made_.region.assign(graph.operators.size(), -1);
  }

  int add(bool stores_results) {
    made_.stores_results.push_back(stores_results);
    return static_cast<int>(made_.stores_results.size()) - 1;
  }

  void add_layers(const std::vector<std::string>& layers) {
    std::map<std::string, int> known;
    for (std::size_t i = 0; i < layers.size(); ++i) {
      if (layers[i].empty()) continue;
      const auto [found, added] = known.try_emplace(layers[i], 0);
      if (added) found->second = add(true);
      made_.segment[i] = found->second;
    }
    made_.region = made_.segment;
  }

  /// Layers without what is dear, of which every second product with parameters counts as cheap.
  void add_layers_without_dear(const std::vector<std::string>& layers) {
    add_layers(layers);
    const std::vector<bool> of_parameters = made_of_parameters(graph_);
    std::map<int, int> products;  // of each layer so far
    for (std::size_t i = 0; i < layers.size(); ++i) {
      const Operator& op = graph_.operators[i];
      if (made_.segment[i] < 0 || is_cheap(op, of_parameters)) continue;
      const bool second =
          multiplies_parameters(op, of_parameters) && ++products[made_.segment[i]] % 2 == 0;
      if (!second || !op.rule->routes.empty()) made_.segment[i] = -1;
    }
  }

  void add_cheap_runs(const std::vector<std::string>& layers) {
    const std::vector<bool> of_parameters = made_of_parameters(graph_);
    for (std::size_t begin = 0; begin < layers.size();) {
      std::size_t end = begin;
      bool only_views = true;
      while (end < layers.size() && layers[end] == layers[begin] &&
             is_cheap(graph_.operators[end], of_parameters)) {
        only_views = only_views && graph_.operators[end].rule->family == OperatorFamily::kView;
        ++end;
      }
      if (end > begin && !only_views) {
        std::fill(made_.segment.begin() + static_cast<std::ptrdiff_t>(begin),
                  made_.segment.begin() + static_cast<std::ptrdiff_t>(end),
                  add(false));
      }
      begin = std::max(end, begin + 1);
    }
    made_.region = made_.segment;
  }

  void add_scopes(const RecomputeScopes& scopes) {
    std::map<std::string, int> known;
    for (std::size_t i = 0; i < scopes.recompute.size(); ++i) {
      if (!scopes.recompute[i]) continue;
      int& segment = made_.segment[i];
      if (!*scopes.recompute[i]) {
        segment = -1;
        made_.region[i] = -1;
      } else if (segment < 0 || !made_.stores_results[static_cast<std::size_t>(segment)]) {
        const auto [found, added] = known.try_emplace(scopes.scope[i], 0);
        if (added) found->second = add(true);
        segment = found->second;
        made_.region[i] = segment;
      }
    }
  }

  Recomputation take() {
    const bool any = std::any_of(
        made_.segment.begin(), made_.segment.end(), [](int segment) { return segment >= 0; });
    return any ? std::move(made_) : Recomputation{};
  }

 private:
  const Graph& graph_;
  Recomputation made_;
};

}  // namespace

std::vector<std::string> numbered_layers(const Graph& graph) {
  std::vector<std::string> layers;
  layers.reserve(graph.operators.size());
  for (const Operator& op : graph.operators) layers.push_back(numbered_scope(op.scope));
  return layers;
}

std::optional<RecomputeOption> parse_recompute(const std::string& name) {
  if (name == "none") return RecomputeOption::kNone;
  if (name == "selective") return RecomputeOption::kSelective;
  if (name == "selective-op") return RecomputeOption::kSelectiveOp;
  if (name == "full") return RecomputeOption::kFull;
  return std::nullopt;
}

Result<Recomputation> find_recomputation(const Graph& graph,
                                         RecomputeOption option,
                                         const RecomputeScopes& scopes) {
  if (!graph.training) return Recomputation{};
  Segments segments(graph);
  const std::vector<std::string> layers = layers_of(graph);
  const bool by_layer = option == RecomputeOption::kFull || option == RecomputeOption::kSelectiveOp;
  if (by_layer) {
    if (std::all_of(layers.begin(), layers.end(), [](const auto& l) { return l.empty(); })) {
      return fail(ErrorCode::kValue,
                  "",
                  std::string("recompute ") +
                      (option == RecomputeOption::kFull ? "full" : "selective-op") +
                      " needs to know the layers, but no operator has a scope; give the operators "
                      "scopes (\"layers.0\"), or name scopes in the constraints");
    }
    if (option == RecomputeOption::kFull) {
      segments.add_layers(layers);
    } else {
      segments.add_layers_without_dear(layers);
    }
  } else if (option == RecomputeOption::kSelective) {
    segments.add_cheap_runs(layers);
  }
  segments.add_scopes(scopes);
  return segments.take();
}

}  // namespace meshplan

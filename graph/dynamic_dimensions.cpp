// SPDX-License-Identifier: Apache-2.0
// What may be cut follows from two neighbouring sizes of every dynamic dimension: sizes that differ
// by one step have nothing in common but the step, so the greatest common divisor of a factor's
// sizes over all combinations of them is what divides it at every size. (128 and 256 rows, in steps
// of 128: 128. 2 x 128 and 3 x 128 times 6 and 7: 128.) The graph is resolved once per combination,
// so that sizes inferred by operators, reshapes and products of dimensions need no rules of their
// own.
#include "graph/dynamic_dimensions.h"

#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "graph/json.h"

namespace meshplan {
namespace {

/// A dimension and a size next to its own.
struct Neighbour {
  std::size_t dimension = 0;
  std::int64_t size = 1;
};

/// nullopt: the dimension has one size only.
std::optional<std::int64_t> neighbour_of(const DimensionDocument& dimension,
                                         std::int64_t microbatches) {
  if (!dimension.dynamic) return std::nullopt;
  std::int64_t step = dimension.multiple_of.value_or(1);
  // both divide the size, so their least common multiple does
  if (dimension.name == "batch") step = std::lcm(step, microbatches);
  if (!dimension.max || dimension.size <= *dimension.max - step) return dimension.size + step;
  const std::int64_t least = dimension.min.value_or(1);
  if (dimension.size - step >= least) return dimension.size - step;
  return std::nullopt;
}

/// Takes the sizes of another resolution into the common divisors.
bool join(std::vector<std::int64_t>& units, const std::vector<std::int64_t>& sizes) {
  if (units.size() != sizes.size()) return false;
  for (std::size_t i = 0; i < units.size(); ++i) units[i] = std::gcd(units[i], sizes[i]);
  return true;
}

std::vector<std::int64_t> factor_sizes(const Rule& rule) {
  std::vector<std::int64_t> sizes;
  for (const Factor& factor : rule.factors) sizes.push_back(factor.size);
  return sizes;
}

}  // namespace

Result<void> limit_cuts(Graph& graph,
                        const GraphDocument& document,
                        std::int64_t microbatches,
                        const std::function<Result<Graph>(const GraphDocument&)>& resolve_at) {
  std::vector<Neighbour> neighbours;
  for (std::size_t d = 0; d < document.dimensions.size(); ++d) {
    const auto size = neighbour_of(document.dimensions[d], microbatches);
    if (size) neighbours.push_back({d, *size});
  }
  if (neighbours.empty()) return {};
  const std::string place = document.file + ": /dimensions";
  if (neighbours.size() > kMostDynamicDimensions) {
    return fail(ErrorCode::kUnsupported,
                place,
                std::to_string(neighbours.size()) + " dimensions are dynamic, at most " +
                    std::to_string(kMostDynamicDimensions) + " may be");
  }
  std::vector<std::vector<std::int64_t>> units;    // of tensors
  std::vector<std::vector<std::int64_t>> factors;  // of operators
  for (const Tensor& tensor : graph.tensors) units.push_back(tensor.shape);
  for (const Operator& op : graph.operators) factors.push_back(factor_sizes(*op.rule));
  for (std::size_t set = 1; set < std::size_t{1} << neighbours.size(); ++set) {
    GraphDocument other = document;
    std::string sizes;
    std::string first;
    for (std::size_t n = 0; n < neighbours.size(); ++n) {
      if ((set >> n & 1U) == 0) continue;
      DimensionDocument& dimension = other.dimensions[neighbours[n].dimension];
      dimension.size = neighbours[n].size;
      if (first.empty()) first = place + "/" + json_pointer_part(dimension.name);
      sizes +=
          (sizes.empty() ? "" : ", ") + dimension.name + " = " + std::to_string(dimension.size);
    }
    const auto refuse = [&](const std::string& why) {
      return fail(
          ErrorCode::kConflict,
          first,
          "the graph does not hold at every size of what is dynamic; at " + sizes + ": " + why);
    };
    const Result<Graph> at = resolve_at(other);
    if (!at) return refuse(to_string(at.error()));
    if (at->operators.size() != graph.operators.size() ||
        at->tensors.size() != graph.tensors.size())
      return refuse("it has other operators");
    for (std::size_t i = 0; i < factors.size(); ++i) {
      if (!join(factors[i], factor_sizes(*at->operators[i].rule)))
        return refuse("operator \"" + graph.operators[i].name + "\" has another rule");
    }
    for (std::size_t t = 0; t < units.size(); ++t) {
      if (!join(units[t], at->tensors[t].shape))
        return refuse("tensor \"" + graph.tensors[t].name + "\" has another rank");
    }
  }
  for (std::size_t t = 0; t < units.size(); ++t) {
    if (units[t] != graph.tensors[t].shape) graph.tensors[t].units = std::move(units[t]);
  }
  std::map<std::pair<const Rule*, std::vector<std::int64_t>>, std::shared_ptr<const Rule>> limited;
  for (std::size_t i = 0; i < factors.size(); ++i) {
    std::shared_ptr<const Rule>& rule = graph.operators[i].rule;
    if (factors[i] == factor_sizes(*rule)) continue;
    std::shared_ptr<const Rule>& made = limited[{rule.get(), factors[i]}];
    if (!made) {
      Rule copy = *rule;
      for (std::size_t f = 0; f < copy.factors.size(); ++f) {
        if (factors[i][f] != copy.factors[f].size) copy.factors[f].unit = factors[i][f];
      }
      made = std::make_shared<const Rule>(std::move(copy));
    }
    rule = made;
  }
  return {};
}

}  // namespace meshplan

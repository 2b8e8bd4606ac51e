// SPDX-License-Identifier: Apache-2.0
#include "search/factor_table.h"

#include <algorithm>

namespace meshplan {
namespace {

FactorClass class_of(FactorKind kind) {
  switch (kind) {
    case FactorKind::kParallel:
      return FactorClass::kPass;
    case FactorKind::kReduction:
    case FactorKind::kStatistic:
      return FactorClass::kReduction;
    case FactorKind::kWindow:
      return FactorClass::kShift;
    case FactorKind::kRing:  // a ring is a choice, not a consequence
    case FactorKind::kWhole:
      break;
  }
  return FactorClass::kWhole;
}

}  // namespace

std::int64_t pieces(const AxisList& axes, const std::vector<std::int64_t>& mesh) {
  std::int64_t product = 1;
  for (const std::uint8_t axis : axes) product *= mesh[axis];
  return product;
}

FactorTable factor_table(const Rule& rule, bool through_routes) {
  FactorTable table;
  for (const Factor& factor : rule.factors) {
    const FactorClass kind = class_of(factor.kind);
    table.factors.push_back({factor.size, kind, kind == FactorClass::kWhole});
  }
  for (const Route& route : rule.routes) {
    for (const int factor : {route.token, route.expert}) {
      if (factor >= 0 && !through_routes)
        table.factors[static_cast<std::size_t>(factor)].blocked = true;
    }
  }
  table.operands = rule.operands.size();
  bool single = true;
  bool all_pass = true;
  std::vector<char> in_operand(rule.factors.size(), 0);
  const auto add = [&](const OperandRule& tensor, bool is_result) {
    table.tensors.emplace_back();
    for (std::size_t d = 0; d < tensor.dims.size(); ++d) {
      std::vector<int> factors = tensor.dims[d];
      for (const int factor : factors) {
        const auto at = static_cast<std::size_t>(factor);
        if (!is_result) in_operand[at] = 1;
        all_pass = all_pass && table.factors[at].kind == FactorClass::kPass;
        if (is_result && in_operand[at] == 0 && table.factors[at].size > 1) table.broadcast = true;
      }
      single = single && factors.size() <= 1;
      if (factors.empty()) {  // a dimension of its own
        all_pass = all_pass && tensor.shape[d] == 1;
        factors.push_back(static_cast<int>(table.factors.size()));
        table.factors.push_back({tensor.shape[d], FactorClass::kWhole, true});
      }
      table.tensors.back().push_back(std::move(factors));
    }
  };
  for (const OperandRule& operand : rule.operands) add(operand, false);
  for (const OperandRule& result : rule.results) add(result, true);
  table.elementwise = single && all_pass && !table.broadcast && !rule.operands.empty();
  table.cheap = table.elementwise || (rule.family == OperatorFamily::kView && !table.broadcast);
  return table;
}

int PropagationGraph::add_tensor(const Shape& shape) {
  const int number = static_cast<int>(elements.size());
  elements.push_back(element_count(shape));
  first_dim.push_back(first_dim.back() + shape.size());
  return number;
}

Shardings::Shardings(const PropagationGraph& graph)
    : dims(graph.first_dim.back()),
      open(graph.first_dim.back(), (AxisSet{1} << graph.mesh.size()) - 1U),
      barred(graph.tensors(), 0) {}

AxisSet used_axes(const PropagationGraph& graph, const Shardings& shardings, std::size_t t) {
  AxisSet used = 0;
  for (std::size_t d = graph.first_dim[t]; d < graph.first_dim[t + 1]; ++d)
    used |= shardings.dims[d].set();
  return used;
}

void project(const PropagationGraph& graph,
             const Shardings& shardings,
             const FactorTable& table,
             std::size_t position,
             int tensor,
             FactorCut* cuts) {
  const FactorTable::Dims& dims = table.tensors[position];
  std::size_t at = graph.first_dim[static_cast<std::size_t>(tensor)];
  for (const std::vector<int>& factors : dims) {
    const AxisList& list = shardings.dims[at];
    const AxisSet open = shardings.open[at];
    ++at;
    std::size_t next = 0;
    bool overflown = false;
    for (std::size_t i = 0; i < factors.size(); ++i) {
      const auto f = static_cast<std::size_t>(factors[i]);
      FactorCut& cut = cuts[f];
      cut = {};
      cut.there = true;
      cut.minor = i + 1 == factors.size();
      cut.open = overflown ? 0 : open;
      if (overflown) continue;
      if (cut.minor) {
        for (; next < list.size(); ++next) cut.axes.push_back(list[next]);
        continue;
      }
      std::int64_t left = table.factors[f].size;
      while (next < list.size()) {
        const std::int64_t size = graph.mesh[static_cast<std::size_t>(list[next])];
        if (left % size != 0) break;
        cut.axes.push_back(list[next++]);
        left /= size;
      }
      if (next < list.size() && left > 1) {
        for (; next < list.size(); ++next) cut.overflow.push_back(list[next]);
        overflown = true;
      }
    }
  }
}

AxisList unproject(const PropagationGraph& graph,
                   const FactorTable& table,
                   const std::vector<int>& dimension,
                   const FactorCut* cuts) {
  AxisList list;
  for (const int factor : dimension) {
    const auto f = static_cast<std::size_t>(factor);
    for (const std::uint8_t axis : cuts[f].axes) list.push_back(axis);
    for (const std::uint8_t axis : cuts[f].overflow) list.push_back(axis);
    if (!cuts[f].overflow.empty() || pieces(cuts[f].axes, graph.mesh) < table.factors[f].size)
      break;
  }
  return list;
}

}  // namespace meshplan

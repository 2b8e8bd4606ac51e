// SPDX-License-Identifier: Apache-2.0
// ShortGraph: a graph whose equal layers are left out but for a few, so that they are searched
// once.
//
// Problem: a model of a thousand equal layers is a thousand times the work of one for every mesh
// that a search looks at, although it will treat all of them alike.
//
// Idea: operators stand in topological order, so equal layers are a stretch in which every operator
// is like the one a period later: the same rule and types, operands that come from the same
// distance back (or from the same tensor), results that are read at the same distances. Of such a
// stretch the first period, two in the middle and the last one stay; those in the middle stand for
// all that was left out. What is chosen for the short graph says what to choose for the whole one.
//
// Cost: linear, but for looking for the period at a few places, up to kLongestPeriod operators
// away. What it cannot do: layers that the topological order interleaves are not found; the graph
// is then not shortened, which costs time alone.
#pragma once

#include <cstdint>
#include <vector>

#include "cost_model/evaluate.h"
#include "cost_model/recompute.h"
#include "graph/graph.h"

namespace meshplan {

/// Layers of more operators than this are not recognised.
constexpr std::size_t kLongestPeriod = 2000;

struct ShortGraph {
  Graph graph;
  Recomputation recomputation;
  std::vector<std::int64_t> weights;  ///< per operator of `graph`: how many it stands for
  std::vector<OperatorId>
      operators;                  ///< per operator of the whole graph: the one that stands for it
  std::vector<TensorId> tensors;  ///< per tensor of the whole graph
  bool shortened = false;         ///< false: `graph` is the whole one
};

ShortGraph shorten(const Graph& graph, const Recomputation& recomputation);

/// The assignment of the whole graph in which everything is as what stands for it. The books are of
/// the whole and of the short graph on one mesh.
Assignment expanded(const ShortGraph& shortened,
                    PriceBook& whole_book,
                    PriceBook& short_book,
                    const Assignment& assignment);

}  // namespace meshplan

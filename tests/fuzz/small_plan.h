// SPDX-License-Identifier: Apache-2.0
// The graph and the cluster that constraints and plans are fuzzed against: those of the example
// mlp, which .ci/fuzz.sh plans for a first input.
#pragma once

#include <fstream>
#include <iterator>
#include <string>

#include "apps/cluster_reader.h"
#include "fuzz/fuzz.h"
#include "graph/graph_document.h"

namespace meshplan::fuzz {

inline std::string source_file(const std::string& path) {
  std::ifstream file(std::string(MESHPLAN_SOURCE_DIR) + "/" + path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

inline const Graph& small_graph() {
  static const Graph kGraph = [] {
    auto graph = read_graph(source_file("examples/mlp/graph.json"), "graph.json", GraphOptions{});
    law(graph.has_value(), "the example is a graph");
    return *std::move(graph);
  }();
  return kGraph;
}

inline const Cluster& small_cluster() {
  static const Cluster kCluster = [] {
    auto cluster =
        parse_cluster(source_file("configs/clusters/dgx-a100-80g.json"), "dgx-a100-80g.json");
    law(cluster.has_value(), "the shipped cluster is one");
    auto eight = cluster->resized(8);
    law(eight.has_value(), "a node has eight devices");
    return *std::move(eight);
  }();
  return kCluster;
}

}  // namespace meshplan::fuzz

// SPDX-License-Identifier: Apache-2.0
// Reads a graph with the installed libraries and says how large it is.
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>

#include "graph/graph_document.h"
#include "search/dp_search.h"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  std::ifstream file(argv[1]);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const auto graph = meshplan::read_graph(text, argv[1], meshplan::GraphOptions{});
  if (!graph) {
    std::cerr << meshplan::to_string(graph.error()) << '\n';
    return 1;
  }
  std::cout << graph->operators.size() << " operators, " << graph->tensors.size() << " tensors\n";
  return 0;
}

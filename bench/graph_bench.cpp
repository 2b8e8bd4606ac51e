// SPDX-License-Identifier: Apache-2.0
// How long it takes to read, resolve and write graphs of growing size: a synthetic chain of small
// layers, and Llama-2-7B's architecture with many layers.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>

#include "apps/command.h"
#include "graph/graph_document.h"
#include "graph/importers/hf.h"

namespace {

double seconds(const std::function<void()>& work) {
  double best = 1e9;
  for (int i = 0; i < 3; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    best = std::min(
        best, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  return best;
}

void fatal(const meshplan::Error& error) {
  std::fprintf(stderr, "%s\n", to_string(error).c_str());
  std::exit(1);
}

/// One line of the table for one document.
void measure(const std::string& name, const std::string& text) {
  meshplan::GraphDocument document;
  const double read = seconds([&] {
    auto result = meshplan::read_graph_document(text, "bench.json");
    if (!result) fatal(result.error());
    document = *std::move(result);
  });
  const double resolve = seconds([&] {
    const auto graph = meshplan::resolve(document, {});
    if (!graph) fatal(graph.error());
  });
  const double write = seconds([&] { meshplan::write_graph_document(document); });
  std::printf("%-28s %9zu %7.1f %9.3f %9.3f %9.3f %9.2f\n",
              name.c_str(),
              document.operators.size(),
              static_cast<double>(text.size()) / 1e6,
              read,
              resolve,
              write,
              (read + resolve) / static_cast<double>(document.operators.size()) * 1e6);
}

/// `layers` layers of 4 operators with weights of their own.
std::string chain(int layers) {
  meshplan::GraphDocument document;
  document.name = "chain";
  document.dimensions = {{"batch", 256, false, {}, {}, {}}};
  const auto tensor =
      [&](const std::string& name, meshplan::Role role, std::vector<meshplan::Size> shape) {
        meshplan::TensorDocument given;
        given.name = name;
        given.role = role;
        given.shape = std::move(shape);
        given.dtype = meshplan::DType::kBf16;
        document.tensors.push_back(std::move(given));
      };
  const auto add =
      [&](const std::string& type, const std::string& name, std::vector<std::string> inputs) {
        meshplan::OperatorDocument op;
        op.type = type;
        op.name = name;
        op.inputs = std::move(inputs);
        op.outputs = {name + ".out"};
        op.scope = name.substr(0, name.rfind('.'));
        document.operators.push_back(std::move(op));
        return name + ".out";
      };
  tensor("x", meshplan::Role::kInput, {"batch", 1024});
  std::string x = "x";
  for (int i = 0; i < layers; ++i) {
    const std::string layer = "layers." + std::to_string(i);
    tensor(layer + ".w1", meshplan::Role::kParameter, {1024, 4096});
    tensor(layer + ".w2", meshplan::Role::kParameter, {4096, 1024});
    const std::string up = add("MatMul", layer + ".up", {x, layer + ".w1"});
    const std::string active = add("Gelu", layer + ".gelu", {up});
    const std::string down = add("MatMul", layer + ".down", {active, layer + ".w2"});
    x = add("Add", layer + ".add", {x, down});
  }
  std::reverse(document.operators.begin(), document.operators.end());  // the worst order to sort
  return write_graph_document(document);
}

}  // namespace

int main() {
  std::printf("%-28s %9s %7s %9s %9s %9s %9s\n",
              "graph",
              "operators",
              "MB",
              "read s",
              "resolve s",
              "write s",
              "us/op");
  for (const int layers : {250, 2500, 25000, 50000}) {
    measure("chain, " + std::to_string(layers) + " layers", chain(layers));
  }
  const auto config = meshplan::read_file(MESHPLAN_SOURCE_DIR "/configs/models/llama2_7b.json");
  if (!config) fatal(config.error());
  for (const int layers : {32, 64, 4000}) {
    const auto import = meshplan::import_hf(*config, "llama2_7b.json", {512, 4096, true, layers});
    if (!import) fatal(import.error());
    measure("llama2_7b, " + std::to_string(layers) + " layers",
            write_graph_document(import->document));
  }
  return 0;
}

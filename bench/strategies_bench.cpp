// SPDX-License-Identifier: Apache-2.0
// How long one operator's strategies take on a mesh of three axes, from its type and shapes: the
// rule and everything that is legal, nothing remembered. Prints a Markdown table
// (docs/benchmarks.md); ends with 1 where an operator is refused.
// Usage: strategies_bench [RUNS]    (default 20; the median is printed)
#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "graph/operator_info.h"
#include "graph/operator_table.h"

using namespace meshplan;

namespace {

struct Case {
  const char* label;
  OperatorSpec spec;
};

OperatorSpec spec_of(std::string type, std::vector<Shape> shapes, Attributes attributes = {}) {
  OperatorSpec spec;
  spec.type = std::move(type);
  spec.attributes = std::move(attributes);
  for (Shape& shape : shapes) spec.inputs.push_back(TensorType{std::move(shape), DType::kBf16});
  return spec;
}

std::vector<Case> cases() {
  std::vector<Case> list = {
      {"MatMul with a weight", spec_of("MatMul", {{64, 4096, 8192}, {8192, 28672}})},
      {"MatMul, batched", spec_of("MatMul", {{64, 64, 4096, 128}, {64, 64, 128, 4096}})},
      {"Add", spec_of("Add", {{64, 4096, 8192}, {64, 4096, 8192}})},
      {"Softmax", spec_of("Softmax", {{64, 64, 4096, 4096}})},
      {"RMSNormalization", spec_of("RMSNormalization", {{64, 4096, 8192}, {8192}})},
      {"Attention, grouped heads",
       spec_of("Attention", {{64, 64, 4096, 128}, {64, 8, 4096, 128}, {64, 8, 4096, 128}})},
      {"Conv",
       spec_of("Conv",
               {{256, 256, 64, 64}, {512, 256, 3, 3}},
               {{"pads", std::vector<std::int64_t>{1, 1, 1, 1}}})},
      {"Transpose of eight dimensions", spec_of("Transpose", {{64, 64, 64, 64, 8, 8, 8, 8}})},
      {"GroupedMatMul", spec_of("GroupedMatMul", {{256, 1024, 7168}, {256, 7168, 2048}})},
  };
  OperatorSpec labels = spec_of("SoftmaxCrossEntropyLoss", {{65536, 128256}, {65536}});
  labels.inputs[1]->dtype = DType::kInt64;
  list.push_back({"SoftmaxCrossEntropyLoss", std::move(labels)});
  return list;
}

}  // namespace

int main(int argc, char** argv) {
  int runs = 20;
  if (argc > 2 || (argc == 2 &&
                   (std::from_chars(argv[1], argv[1] + std::string_view(argv[1]).size(), runs).ec !=
                        std::errc{} ||
                    runs < 1))) {
    std::fprintf(stderr, "usage: strategies_bench [RUNS]\n");
    return 2;
  }
  std::printf("| operator, mesh 16x8x8 | strategies | us |\n|---|---|---|\n");
  for (const Case& it : cases()) {
    std::vector<double> times;
    std::size_t count = 0;
    for (int i = 0; i < runs; ++i) {
      const auto begin = std::chrono::steady_clock::now();
      const Result<TypedOperator> typed = infer_operator(it.spec);
      if (!typed) {
        std::fprintf(stderr, "%s: %s\n", it.label, to_string(typed.error()).c_str());
        return EXIT_FAILURE;
      }
      const OperatorInfo info(typed->rule, {16, 8, 8});
      count = info.strategies().size();
      const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
      times.push_back(time.count() * 1e6);
    }
    std::sort(times.begin(), times.end());
    std::printf("| %s | %zu | %.0f |\n", it.label, count, times[times.size() / 2]);
  }
  return EXIT_SUCCESS;
}

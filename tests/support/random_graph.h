// SPDX-License-Identifier: Apache-2.0
// Random graphs and clusters for tests. A graph is a text of graph_builder.h, so that a failing one
// can be printed and kept.
#pragma once

#include <string>
#include <vector>

#include "cost_model/price_book.h"
#include "cost_model/test_clusters.h"
#include "support/graph_builder.h"
#include "support/random.h"

namespace meshplan::test {

/// Writes graphs of few operators with shared weights, several readers, broadcasts and odd sizes.
class RandomGraphText {
 public:
  /// Sizes are drawn from `sizes`.
  RandomGraphText(Random& random, std::vector<std::int64_t> sizes)
      : random_(random), sizes_(std::move(sizes)) {}

  /// `operators` operators, the last of which makes the loss, or the result in inference mode.
  std::string make(int operators, bool training = true) {
    Item first;
    for (std::int64_t rank = random_.between(1, 3); rank > 0; --rank) first.shape.push_back(size());
    first.name = declare(random_.chance(75) ? "input" : "weight", first.shape);
    items_.push_back(first);
    for (int i = 1; i < operators; ++i) add_operator();
    const std::string end = end_call();
    return text_ + (training ? "loss l = " : "l = ") + end;
  }

 private:
  struct Item {
    std::string name;
    Shape shape;
  };

  std::int64_t size() { return random_.pick(sizes_); }

  std::string declare(const std::string& kind, const Shape& shape, const std::string& type = "") {
    const std::string name = kind.substr(0, 1) + std::to_string(++number_);
    text_ += kind + " " + name + (type.empty() ? "" : " " + type);
    for (const std::int64_t length : shape) text_ += " " + std::to_string(length);
    text_ += "; ";
    if (kind == "weight") weights_.push_back({name, shape});
    return name;
  }

  /// A weight of this shape: an old one where there is one, sometimes; seldom a frozen one.
  std::string weight(const Shape& shape) {
    for (const Item& old : weights_) {
      if (old.shape == shape && random_.chance(60)) return old.name;
    }
    return declare(random_.chance(88)   ? "weight"
                   : random_.chance(50) ? "frozen"
                                        : "constant",
                   shape);
  }

  void result(const std::string& call, Shape shape) {
    const std::string name = "t" + std::to_string(++number_);
    text_ += name + " = " + call + "; ";
    items_.push_back({name, std::move(shape)});
  }

  const Item& operand() { return random_.chance(65) ? items_.back() : random_.pick(items_); }

  void add_operator() {
    const Item x = operand();
    const std::size_t rank = x.shape.size();
    switch (random_.below(12)) {
      case 0:
      case 1:
      case 2: {
        if (rank < 2) return unary(x);
        Shape shape = x.shape;
        shape.back() = size();
        if (random_.chance(25)) {
          return result(
              "MatMul " + x.name + " " + weight({shape.back(), x.shape.back()}) + " transpose_b=1",
              shape);
        }
        return result("MatMul " + x.name + " " + weight({x.shape.back(), shape.back()}), shape);
      }
      case 3:
      case 4: {
        const std::string type = random_.chance(60) ? "Add " : "Mul ";
        for (const Item& other : items_) {
          if (other.shape == x.shape && random_.chance(50))
            return result(type + x.name + " " + other.name, x.shape);
        }
        Shape shape = x.shape;
        if (random_.chance(50)) shape = {x.shape.back()};
        return result(type + x.name + " " + weight(shape), x.shape);
      }
      case 5:
        return unary(x);
      case 6:
        return result("RMSNormalization " + x.name + " " + weight({x.shape.back()}) + " axis=-1",
                      x.shape);
      case 7:
        return result("Softmax " + x.name + " axis=" + std::to_string(random_.below(rank)),
                      x.shape);
      case 8: {
        if (rank < 2) return unary(x);
        Shape shape = x.shape;
        const std::size_t at = random_.below(rank - 1);
        shape[at] *= shape[at + 1];
        shape.erase(shape.begin() + static_cast<std::ptrdiff_t>(at) + 1);
        if (random_.chance(40) && shape[at] % 2 == 0) {
          shape.insert(shape.begin() + static_cast<std::ptrdiff_t>(at), 2);
          shape[at + 1] /= 2;
        }
        std::string list;
        for (const std::int64_t length : shape)
          list += (list.empty() ? "" : ",") + std::to_string(length);
        return result("Reshape " + x.name + " shape=" + list, shape);
      }
      case 9: {
        if (rank < 2) return unary(x);
        Shape shape = x.shape;
        std::vector<std::size_t> order;
        for (std::size_t d = 0; d < rank; ++d) order.push_back(d);
        std::swap(order.front(), order[1 + random_.below(rank - 1)]);
        std::string list;
        for (std::size_t d = 0; d < rank; ++d) {
          shape[d] = x.shape[order[d]];
          list += (d > 0 ? "," : "") + std::to_string(order[d]);
        }
        return result("Transpose " + x.name + " perm=" + list, shape);
      }
      case 10: {
        if (rank < 2) return unary(x);
        const std::size_t at = random_.below(rank);
        Shape shape = x.shape;
        shape.erase(shape.begin() + static_cast<std::ptrdiff_t>(at));
        return result((random_.chance(70) ? "ReduceMean " : "ReduceMax ") + x.name +
                          " axes=" + std::to_string(at) + " keepdims=0",
                      shape);
      }
      default: {
        const std::int64_t width = random_.chance(50) ? x.shape.back() : size();
        const Shape tokens = random_.chance(50) ? Shape{size()} : Shape{size(), size()};
        Shape shape = tokens;
        shape.push_back(width);
        const std::string table = weight({size(), width});
        const std::string ids = declare("input", tokens, "int64");
        return result("Gather " + table + " " + ids + " axis=0", shape);
      }
    }
  }

  void unary(const Item& x) {
    result((random_.chance(50)   ? "Silu "
            : random_.chance(50) ? "Identity "
                                 : "Relu ") +
               x.name,
           x.shape);
  }

  std::string end_call() {
    const Item x = items_.back();
    if (x.shape.size() < 2 || random_.chance(60)) return "ReduceMean " + x.name + " keepdims=0";
    const std::string labels = declare("input", Shape(x.shape.begin(), x.shape.end() - 1), "int64");
    return "SoftmaxCrossEntropyLoss " + x.name + " " + labels +
           " axis=-1 reduction=" + (random_.chance(70) ? "mean" : "none");
  }

  Random& random_;
  std::vector<std::int64_t> sizes_;
  std::string text_;
  std::vector<Item> items_;
  std::vector<Item> weights_;
  int number_ = 0;
};

/// A slow machine, so that a few bytes cost as much as a message. Rates differ from seed to seed.
inline Cluster random_cluster(Random& random, std::int64_t devices) {
  std::vector<Level> levels;
  auto random_level = [&](std::int64_t count) {
    return level(count,
                 random.pick(std::vector<double>{0.1, 0.5, 2, 20}),
                 random.pick(std::vector<double>{0, 0.02, 0.2}));
  };
  if (devices == 4 && random.chance(50)) {
    levels = {random_level(2), random_level(2)};
  } else {
    levels = {random_level(devices)};
  }
  Cluster made = cluster(std::move(levels));
  made.device.memory_bandwidth = random.pick(std::vector<double>{1e8, 1e9, 1e10});
  made.device.peak_flops = {{DType::kBf16, random.pick(std::vector<double>{1e8, 1e9, 1e10})}};
  made.efficiency.bucket_bytes = random.pick(std::vector<Bytes>{1, 64, 25'000'000});
  made.efficiency.overlap.gradient = random.pick(std::vector<double>{0, 0.8});
  made.efficiency.overlap.gather = random.pick(std::vector<double>{0, 0.5, 0.8});
  return made;
}

inline PriceOptions random_options(Random& random, const Cluster& cluster) {
  PriceOptions options;
  options.microbatches = random.pick(std::vector<std::int64_t>{1, 1, 2, 5});
  options.optimizer = random.pick(std::vector<Optimizer>{
      Optimizer::kAdamW, Optimizer::kAdamW, Optimizer::kSgd, Optimizer::kNone});
  options.overlap = cluster.efficiency.overlap;
  return options;
}

/// Any operators in any segments of either kind, others around them.
inline Recomputation random_recomputation(std::uint64_t seed, const Graph& graph) {
  Random random(seed ^ 0x5e9ca7e5u);
  Recomputation made;
  const auto segments = random.between(1, 3);
  for (std::int64_t s = 0; s < segments; ++s) made.stores_results.push_back(random.chance(50));
  int segment = 0;
  for (std::size_t i = 0; i < graph.operators.size(); ++i) {
    if (random.chance(35)) segment = static_cast<int>(random.between(-1, segments - 1));
    made.segment.push_back(segment);
    // an operator of no segment may read one's values without their being stored
    made.region.push_back(segment >= 0        ? segment
                          : random.chance(50) ? static_cast<int>(random.between(0, segments - 1))
                                              : -1);
  }
  return made;
}

}  // namespace meshplan::test

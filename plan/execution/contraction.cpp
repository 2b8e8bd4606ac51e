// SPDX-License-Identifier: Apache-2.0
// einsum: letters of two operands are batch (in both and the result), contracted (in both only),
// rows (left and result) and columns (right and result). Everything is brought into that order and
// becomes one matrix product per device and batch entry.
#include <algorithm>
#include <map>

#include <Eigen/Core>

#include "plan/execution/device_tape.h"

namespace meshplan {
namespace {

using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Gradients = std::vector<std::optional<DenseTensor>>;

bool has(const std::string& text, char letter) { return text.find(letter) != std::string::npos; }

/// x with its letters in the order of `to`; letters that `to` lacks are summed.
Var arrange(Var x, const std::string& from, const std::string& to) {
  std::vector<std::size_t> drop;
  Shape kept;
  std::string letters;
  for (std::size_t d = 0; d < from.size(); ++d) {
    if (has(to, from[d])) {
      letters += from[d];
      kept.push_back(x.shape()[d]);
    } else {
      drop.push_back(d);
    }
  }
  if (!drop.empty()) x = reshape(sum(x, drop), kept);
  std::vector<std::size_t> order;
  for (const char letter : to) order.push_back(letters.find(letter));
  return std::is_sorted(order.begin(), order.end()) ? x : permute(x, order);
}

/// [..., batch, m, k] x [..., batch, k, n] -> [..., batch, m, n] on every device.
Var batched_product(Var a, Var b) {
  DeviceTape& tape = *a.tape;
  const Shape left = a.shape();
  const Shape right = b.shape();
  const Eigen::Index m = left[1];
  const Eigen::Index k = left[2];
  const Eigen::Index n = right[2];
  const auto batch = static_cast<std::size_t>(left[0] * tape.devices());
  const auto product = [batch](const double* x,
                               Eigen::Index rows,
                               Eigen::Index inner,
                               bool flip_x,
                               const double* y,
                               Eigen::Index columns,
                               bool flip_y,
                               double* out) {
    for (std::size_t i = 0; i < batch; ++i) {
      const auto step = static_cast<std::ptrdiff_t>(i);
      const Eigen::Map<const Matrix> u(
          x + step * rows * inner, flip_x ? inner : rows, flip_x ? rows : inner);
      const Eigen::Map<const Matrix> v(
          y + step * inner * columns, flip_y ? columns : inner, flip_y ? inner : columns);
      Eigen::Map<Matrix> w(out + step * rows * columns, rows, columns);
      if (flip_x) {
        w.noalias() = u.transpose() * v;
      } else if (flip_y) {
        w.noalias() = u * v.transpose();
      } else {
        w.noalias() = u * v;
      }
    }
  };
  DenseTensor y = DenseTensor::filled({tape.devices(), left[0], left[1], right[2]}, 0.0);
  product(a.value().values.data(), m, k, false, b.value().values.data(), n, false, y.values.data());
  return tape.step(std::move(y),
                   {a, b},
                   a.varying() | b.varying(),
                   [a, b, m, k, n, product](const DenseTensor& g) {
                     Gradients gradients(2);
                     if (a.tape->needs_gradient(a)) {
                       gradients[0] = DenseTensor::filled(a.value().shape, 0.0);
                       product(g.values.data(),
                               m,
                               n,
                               false,
                               b.value().values.data(),
                               k,
                               true,
                               gradients[0]->values.data());
                     }
                     if (b.tape->needs_gradient(b)) {
                       gradients[1] = DenseTensor::filled(b.value().shape, 0.0);
                       product(a.value().values.data(),
                               k,
                               m,
                               true,
                               g.values.data(),
                               n,
                               false,
                               gradients[1]->values.data());
                     }
                     return gradients;
                   });
}

}  // namespace

Var einsum(const std::vector<std::string>& terms, const std::string& result, std::vector<Var> x) {
  for (const Var& operand : x) {
    if (!operand.valid()) return {};
  }
  DeviceTape& tape = *x[0].tape;
  std::map<char, std::int64_t> size;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const Shape shape = x[i].shape();
    if (shape.size() != terms[i].size())
      return tape.fail("a product expects " + std::to_string(terms[i].size()) +
                       " dimensions, got " + std::to_string(shape.size()));
    for (std::size_t d = 0; d < shape.size(); ++d) {
      if (const auto [known, added] = size.emplace(terms[i][d], shape[d]);
          !added && known->second != shape[d])
        return tape.fail("a product meets local sizes " + std::to_string(known->second) + " and " +
                         std::to_string(shape[d]) + " of one index");
    }
  }
  std::string left = terms[0];
  Var product = x[0];
  for (std::size_t i = 1; i < x.size(); ++i) {
    std::string later = result;  // letters that are still wanted
    for (std::size_t j = i + 1; j < x.size(); ++j) later += terms[j];
    std::string batch, contracted, rows, columns;
    for (const char letter : left) {
      const bool both = has(terms[i], letter);
      const bool wanted = has(later, letter);
      if (both && wanted) batch += letter;
      if (both && !wanted) contracted += letter;
      if (!both && wanted) rows += letter;
    }
    for (const char letter : terms[i]) {
      if (!has(left, letter) && has(later, letter)) columns += letter;
    }
    const auto count = [&](const std::string& letters) {
      std::int64_t product_of_sizes = 1;
      for (const char letter : letters) product_of_sizes *= size[letter];
      return product_of_sizes;
    };
    const Var a = reshape(arrange(product, left, batch + rows + contracted),
                          {count(batch), count(rows), count(contracted)});
    const Var b = reshape(arrange(x[i], terms[i], batch + contracted + columns),
                          {count(batch), count(contracted), count(columns)});
    left = batch + rows + columns;
    Shape shape;
    for (const char letter : left) shape.push_back(size[letter]);
    product = reshape(batched_product(a, b), shape);
  }
  return arrange(product, left, result);
}

}  // namespace meshplan

// SPDX-License-Identifier: Apache-2.0
#include "search/solver/messages.h"

#include <algorithm>

#include "search/best_instructions.h"

namespace meshplan::solver {
namespace {

/// message[u] = min over s of from[s] + rows[s][u], less its minimum, which is returned.
MESHPLAN_BEST_INSTRUCTIONS
double push(
    const double* from, std::size_t count, const double* rows, std::size_t width, double* message) {
  for (std::size_t u = 0; u < width; ++u) message[u] = from[0] + rows[u];
  for (std::size_t s = 1; s < count; ++s) {
    const double base = from[s];
    const double* row = rows + s * width;
    for (std::size_t u = 0; u < width; ++u) message[u] = std::min(message[u], base + row[u]);
  }
  double least = message[0];
  for (std::size_t u = 1; u < width; ++u) least = std::min(least, message[u]);
  for (std::size_t u = 0; u < width; ++u) message[u] -= least;
  return least;
}

}  // namespace

Messages::Messages(const Core& core) : core_(core) {
  begin_.assign(static_cast<std::size_t>(core.edges()) + 1, 0);
  for (int v = 0; v < core.nodes(); ++v) {
    std::size_t before = 0;
    std::size_t after = 0;
    for (const Core::Link& link : core.links(v)) {
      ++(link.node < v ? before : after);
      if (link.node > v)
        begin_[static_cast<std::size_t>(link.edge) + 1] =
            static_cast<std::size_t>(std::max(core.size(v), core.size(link.node)));
    }
    share_.push_back(1.0 / static_cast<double>(std::max<std::size_t>({before, after, 1})));
  }
  for (std::size_t e = 1; e < begin_.size(); ++e) begin_[e] += begin_[e - 1];
  messages_.assign(begin_.back(), 0);
  suffix_.assign(static_cast<std::size_t>(core.nodes()) + 1, 0);
}

double Messages::pass(const std::vector<double>& theta, bool forward, Labels& labels) {
  double bound = 0;
  const int count = core_.nodes();
  labels.resize(static_cast<std::size_t>(count));
  std::vector<double> belief;
  std::vector<double> local;
  std::vector<double> from;
  for (int i = 0; i < count; ++i) {
    const int v = forward ? i : count - 1 - i;
    const auto size = static_cast<std::size_t>(core_.size(v));
    const double* own = theta.data() + core_.first(v);
    belief.assign(own, own + size);
    local.assign(own, own + size);
    from.resize(size);
    for (const Core::Link& link : core_.links(v)) {
      const double* in = messages_.data() + begin_[static_cast<std::size_t>(link.edge)];
      for (std::size_t s = 0; s < size; ++s) belief[s] += in[s];
      if ((link.node < v) == forward) {  // its label is known
        const double* column =
            link.columns +
            static_cast<std::size_t>(labels[static_cast<std::size_t>(link.node)]) * size;
        for (std::size_t s = 0; s < size; ++s) local[s] += column[s];
      } else {
        for (std::size_t s = 0; s < size; ++s) local[s] += in[s];
      }
    }
    labels[static_cast<std::size_t>(v)] =
        static_cast<int>(std::min_element(local.begin(), local.end()) - local.begin());
    const double least = *std::min_element(belief.begin(), belief.end());
    bound += least;
    const double share = share_[static_cast<std::size_t>(v)];
    for (std::size_t s = 0; s < size; ++s) belief[s] = share * (belief[s] - least);
    for (const Core::Link& link : core_.links(v)) {
      if ((link.node < v) == forward) continue;
      double* message = messages_.data() + begin_[static_cast<std::size_t>(link.edge)];
      for (std::size_t s = 0; s < size; ++s) from[s] = belief[s] - message[s];
      bound += push(
          from.data(), size, link.rows, static_cast<std::size_t>(core_.size(link.node)), message);
    }
    if (!forward) suffix_[static_cast<std::size_t>(v)] = bound;
  }
  return bound;
}

}  // namespace meshplan::solver

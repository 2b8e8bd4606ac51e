// SPDX-License-Identifier: Apache-2.0
#include "search/solver/messages.h"

#include <algorithm>
#include <limits>

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
  }
  return bound;
}

// Forward: a node j keeps h(j) >= 0 once its minimum is out, and pushes share * h(j) over every
// later edge (j, k): table - old message into j + share * h(j) >= new message into k + its minimum.
// Backward: when node v is reached, all after it is accounted for by what the pass has taken out,
// and edges (j, k) with j < v < k by their new message into j, which may be less than the old one;
// c(j, k) is the least of (new - old + share * h(j)). So with x(v) = s all costs are at least
//   taken out after v + belief(v, s) + minima of nodes before v + minima of edges that end at or
//   before v + c of the edges over v.
double Messages::marginals(const std::vector<double>& theta, std::vector<double>& bounds) {
  const std::vector<double> old = messages_;
  const int count = core_.nodes();
  std::vector<double> shared(core_.strategies());                      // share * h
  std::vector<double> before(static_cast<std::size_t>(count) + 2, 0);  // differences of the sum
  std::vector<double> minimum(static_cast<std::size_t>(core_.edges()), 0);
  std::vector<double> belief;
  std::vector<double> from;
  double forward_bound = 0;
  for (int v = 0; v < count; ++v) {
    const auto size = static_cast<std::size_t>(core_.size(v));
    const double* own = theta.data() + core_.first(v);
    belief.assign(own, own + size);
    from.resize(size);
    for (const Core::Link& link : core_.links(v)) {
      const double* in = message(link.edge);
      for (std::size_t s = 0; s < size; ++s) belief[s] += in[s];
    }
    const double least = *std::min_element(belief.begin(), belief.end());
    forward_bound += least;
    before[static_cast<std::size_t>(v) + 1] += least;
    double* const kept = shared.data() + core_.first(v);
    const double share = share_[static_cast<std::size_t>(v)];
    for (std::size_t s = 0; s < size; ++s) kept[s] = share * (belief[s] - least);
    for (const Core::Link& link : core_.links(v)) {
      if (link.node < v) continue;
      double* out = messages_.data() + begin_[static_cast<std::size_t>(link.edge)];
      for (std::size_t s = 0; s < size; ++s) from[s] = kept[s] - out[s];
      const double taken =
          push(from.data(), size, link.rows, static_cast<std::size_t>(core_.size(link.node)), out);
      minimum[static_cast<std::size_t>(link.edge)] = taken;
      forward_bound += taken;
      before[static_cast<std::size_t>(link.node)] += taken;
    }
  }
  // prefix sums: before[v] = minima of nodes before v and of edges that end at or before v
  for (std::size_t v = 1; v < before.size(); ++v) before[v] += before[v - 1];
  std::vector<double> over(static_cast<std::size_t>(count) + 1, 0);  // changes of the sum of c
  bounds.resize(core_.strategies());
  double after = 0;
  double crossing = 0;
  for (int v = count - 1; v >= 0; --v) {
    const auto at = static_cast<std::size_t>(v);
    crossing += over[at];
    const auto size = static_cast<std::size_t>(core_.size(v));
    const double* own = theta.data() + core_.first(v);
    belief.assign(own, own + size);
    from.resize(size);
    for (const Core::Link& link : core_.links(v)) {
      const double* in = message(link.edge);
      for (std::size_t s = 0; s < size; ++s) belief[s] += in[s];
    }
    for (std::size_t s = 0; s < size; ++s)
      bounds[core_.first(v) + s] = after + belief[s] + before[at] + crossing;
    const double least = *std::min_element(belief.begin(), belief.end());
    after += least;
    const double share = share_[at];
    for (std::size_t s = 0; s < size; ++s) belief[s] = share * (belief[s] - least);
    for (const Core::Link& link : core_.links(v)) {
      if (link.node > v) continue;
      double* out = messages_.data() + begin_[static_cast<std::size_t>(link.edge)];
      for (std::size_t s = 0; s < size; ++s) from[s] = belief[s] - out[s];
      const auto width = static_cast<std::size_t>(core_.size(link.node));
      after += push(from.data(), size, link.rows, width, out);
      const double* const earlier = old.data() + begin_[static_cast<std::size_t>(link.edge)];
      const double* const kept = shared.data() + core_.first(link.node);
      double change = std::numeric_limits<double>::infinity();
      for (std::size_t u = 0; u < width; ++u)
        change = std::min(change, out[u] - earlier[u] + kept[u]);
      // over the nodes between the two ends
      if (v > 0) over[at - 1] += change;
      over[static_cast<std::size_t>(link.node)] -= change;
    }
  }
  return std::max(forward_bound, after);
}

}  // namespace meshplan::solver

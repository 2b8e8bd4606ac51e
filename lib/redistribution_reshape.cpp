// SPDX-License-Identifier: Apache-2.0
#include "lib/redistribution_reshape.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <string>
#include <utility>

#include "lib/redistribution_moves.h"
#include "lib/redistribution_steps.h"

namespace meshplan {
namespace {

constexpr std::size_t kMostStates = 20000;

Result<std::int64_t> elements_of(std::span<const std::int64_t> shape) {
  std::int64_t count = 1;
  bool empty = false;
  for (std::size_t dim = 0; dim < shape.size(); ++dim) {
    if (shape[dim] < 0) {
      return fail(ErrorCode::kValue, "/" + std::to_string(dim), "a size is not negative");
    }
    empty = empty || shape[dim] == 0;
    if (shape[dim] > 0 && count > std::numeric_limits<std::int64_t>::max() / shape[dim]) {
      return fail(ErrorCode::kOverflow, "", "the number of elements does not fit in 64 bits");
    }
    count *= std::max<std::int64_t>(shape[dim], 1);
  }
  return empty ? 0 : count;
}

}  // namespace

Result<ViewRelation> ViewRelation::make(std::vector<std::int64_t> shape) {
  if (auto elements = elements_of(shape); !elements) return fail(elements.error());
  ViewRelation view;
  view.input_shape_ = shape;
  for (const std::int64_t size : shape) {
    view.input_dims_.emplace_back();
    if (size == 1) continue;
    view.input_dims_.back().push_back(static_cast<int>(view.factors_.size()));
    view.factors_.push_back(size);
  }
  view.output_shape_ = std::move(shape);
  view.output_dims_ = view.input_dims_;
  return view;
}

void ViewRelation::split(int factor, std::int64_t major) {
  const int minor = static_cast<int>(factors_.size());
  const auto f = static_cast<std::size_t>(factor);
  factors_.push_back(factors_[f] / major);
  factors_[f] = major;
  for (auto* dims : {&input_dims_, &output_dims_}) {
    for (std::vector<int>& list : *dims) {
      const auto found = std::find(list.begin(), list.end(), factor);
      if (found != list.end()) list.insert(found + 1, minor);
    }
  }
}

Result<void> ViewRelation::reshape(const std::vector<std::int64_t>& shape) {
  const auto wanted = elements_of(shape);
  if (!wanted) return fail(wanted.error());
  const auto held = elements_of(output_shape_);
  if (!held) return fail(held.error());
  if (*wanted != *held) {
    return fail(ErrorCode::kValue,
                "",
                "a reshape keeps the number of elements, " + std::to_string(*held) + " is not " +
                    std::to_string(*wanted));
  }
  std::vector<std::vector<int>> next(shape.size());
  const auto fresh = [&](std::size_t dim) {
    if (shape[dim] == 1) return;
    next[dim].push_back(static_cast<int>(factors_.size()));
    factors_.push_back(shape[dim]);
  };
  if (*held == 0) {  // no elements, nothing to line up
    for (std::size_t dim = 0; dim < shape.size(); ++dim) fresh(dim);
  } else {
    // Factors of the current shape in row-major order; splitting one keeps the rest in place.
    std::vector<int> queue;
    for (const auto& list : output_dims_) queue.insert(queue.end(), list.begin(), list.end());
    std::size_t head = 0;
    const auto size_at = [&](std::size_t i) {
      return factors_[static_cast<std::size_t>(queue[i])];
    };
    const auto cut_head = [&](std::int64_t major) {
      split(queue[head], major);
      queue.insert(queue.begin() + static_cast<std::ptrdiff_t>(head) + 1,
                   static_cast<int>(factors_.size()) - 1);
    };
    for (std::size_t dim = 0; dim < shape.size(); ++dim) {
      std::int64_t left = shape[dim];
      while (left > 1) {
        const std::int64_t common = std::gcd(left, size_at(head));
        if (common == 1) break;
        if (common < size_at(head)) cut_head(common);
        next[dim].push_back(queue[head++]);
        left /= common;
      }
      if (left == 1) continue;
      // The borders do not meet here: up to where they do, nothing lines up.
      std::int64_t old_elements = size_at(head++);
      std::int64_t new_elements = left;
      next[dim].push_back(static_cast<int>(factors_.size()));
      factors_.push_back(left);
      while (old_elements != new_elements) {
        if (old_elements < new_elements) {
          old_elements *= size_at(head++);
        } else {
          ++dim;
          new_elements *= shape[dim];
          fresh(dim);
        }
      }
    }
  }
  output_dims_ = std::move(next);
  output_shape_ = shape;
  return {};
}

Result<void> ViewRelation::transpose(const std::vector<int>& permutation) {
  std::vector<int> sorted = permutation;
  std::sort(sorted.begin(), sorted.end());
  std::vector<int> expected(output_shape_.size());
  std::iota(expected.begin(), expected.end(), 0);
  if (sorted != expected) {
    return fail(ErrorCode::kValue, "", "a transpose names every dimension once");
  }
  std::vector<std::int64_t> shape;
  std::vector<std::vector<int>> dims;
  for (const int dim : permutation) {
    shape.push_back(output_shape_[static_cast<std::size_t>(dim)]);
    dims.push_back(output_dims_[static_cast<std::size_t>(dim)]);
  }
  output_shape_ = std::move(shape);
  output_dims_ = std::move(dims);
  return {};
}

std::optional<Placements> ViewRelation::carry(std::span<const std::int64_t> axis_sizes,
                                              std::span<const Placement> input) const {
  const auto code = encode_placements(axis_sizes, static_cast<int>(input_shape_.size()), input);
  if (!code || output_shape_.size() > static_cast<std::size_t>(kMaxMoveDims)) return std::nullopt;
  const LayoutState state =
      unpack(active_code(axis_sizes, *code), static_cast<int>(axis_sizes.size()));
  LayoutCode result = 0;
  for (std::size_t axis = 0; axis < axis_sizes.size(); ++axis) {
    if (state.partial[axis] < 0) continue;
    result = with_byte(
        result, static_cast<int>(axis), partial_byte(static_cast<Reduction>(state.partial[axis])));
  }
  std::vector<std::vector<int>> axes(factors_.size());  // that cut a factor
  std::vector<std::int64_t> left(factors_.begin(), factors_.end());
  std::vector<char> placed(factors_.size(), 0);
  for (std::size_t dim = 0; dim < input_shape_.size(); ++dim) {
    const auto cuts = state.cuts_of(static_cast<int>(dim));
    if (cuts.empty()) continue;
    const auto& factors = input_dims_[dim];
    std::int64_t parts = 1;
    for (const std::int8_t axis : cuts) parts *= axis_sizes[static_cast<std::size_t>(axis)];
    if (input_shape_[dim] % parts != 0) {
      // Uneven: the whole dimension has to be one of the output.
      const auto same = std::find(output_dims_.begin(), output_dims_.end(), factors);
      if (same == output_dims_.end() || factors.empty()) return std::nullopt;
      axes[static_cast<std::size_t>(factors.front())].assign(cuts.begin(), cuts.end());
      left[static_cast<std::size_t>(factors.front())] = 0;
      continue;
    }
    std::size_t at = 0;
    for (const std::int8_t axis : cuts) {
      const std::int64_t size = axis_sizes[static_cast<std::size_t>(axis)];
      while (at < factors.size() && left[static_cast<std::size_t>(factors[at])] == 1) ++at;
      if (at == factors.size()) return std::nullopt;
      const auto factor = static_cast<std::size_t>(factors[at]);
      if (left[factor] % size != 0) return std::nullopt;
      axes[factor].push_back(axis);
      left[factor] /= size;
    }
  }
  for (std::size_t dim = 0; dim < output_dims_.size(); ++dim) {
    int position = 0;
    bool open = false;  // a factor that is not cut to single elements: nothing may be cut behind it
    for (const int id : output_dims_[dim]) {
      const auto factor = static_cast<std::size_t>(id);
      placed[factor] = 1;
      if (open && !axes[factor].empty()) return std::nullopt;
      for (const int axis : axes[factor]) {
        result = with_byte(result, axis, cut_byte(static_cast<int>(dim), position++));
      }
      open = open || left[factor] != 1;
    }
  }
  for (std::size_t factor = 0; factor < axes.size(); ++factor) {
    if (!axes[factor].empty() && placed[factor] == 0) return std::nullopt;
  }
  return decode_placements(axis_sizes, result);
}

std::string ViewRelation::to_string() const {
  std::string text;
  for (std::size_t dim = 0; dim < output_dims_.size(); ++dim) {
    for (const int id : output_dims_[dim]) {
      for (std::size_t source = 0; source < input_dims_.size(); ++source) {
        const auto& list = input_dims_[source];
        const auto found = std::find(list.begin(), list.end(), id);
        if (found == list.end()) continue;
        std::int64_t scale = 1;
        for (auto behind = found + 1; behind != list.end(); ++behind) {
          scale *= factors_[static_cast<std::size_t>(*behind)];
        }
        text += text.empty() ? "" : "; ";
        text += "out " + std::to_string(dim) + " <- in " + std::to_string(source);
        if (found != list.begin()) {
          text += " % " + std::to_string(scale * factors_[static_cast<std::size_t>(id)]);
        }
        text += " / " + std::to_string(scale);
      }
    }
  }
  return text;
}

Result<RedistributionThroughView> redistribute_through(RedistributionPlanner& planner,
                                                       const ViewRelation& view,
                                                       Bytes dtype_bytes,
                                                       std::span<const Placement> from,
                                                       std::span<const Placement> to) {
  const std::span<const std::int64_t> sizes = planner.axis_sizes();
  const auto& input_shape = view.input_shape();
  const auto& output_shape = view.output_shape();
  // Both ends must be legal before anything is searched.
  if (auto ok = checked_codes(sizes, input_shape, dtype_bytes, from, from); !ok)
    return fail(ok.error());
  if (auto ok = checked_codes(sizes, output_shape, dtype_bytes, to, to); !ok)
    return fail(ok.error());

  // Layouts of the input that the view carries over: the ends themselves, and all layouts without
  // other reductions than the source has.
  std::vector<Reduction> reductions;
  for (const Placement& placement : from) {
    const auto* partial = std::get_if<Partial>(&placement);
    if (partial &&
        std::find(reductions.begin(), reductions.end(), partial->reduction) == reductions.end()) {
      reductions.push_back(partial->reduction);
    }
  }
  std::vector<Placements> inputs = {{from.begin(), from.end()}};
  std::vector<std::int64_t> mesh(sizes.begin(), sizes.end());
  const int rank = static_cast<int>(input_shape.size());
  if (MoveGraph::count_states(mesh, rank, reductions.size(), kMostStates) < kMostStates) {
    const MoveGraph graph(mesh, rank, reductions);
    for (std::size_t i = 0; i < graph.size(); ++i) {
      if (local_elements(mesh, input_shape, graph.state(i)) < 0) continue;
      Placements candidate = decode_placements(mesh, graph.state(i));
      // A reduction that is to start on this side would be a detour: only what the source has.
      bool new_partial = false;
      for (std::size_t axis = 0; axis < candidate.size(); ++axis) {
        new_partial = new_partial || (std::holds_alternative<Partial>(candidate[axis]) &&
                                      candidate[axis] != from[axis]);
      }
      if (!new_partial) inputs.push_back(std::move(candidate));
    }
  } else {
    inputs.emplace_back(mesh.size(), Placement{Replicate{}});
  }
  struct Candidate {
    Seconds time;
    std::size_t input;
    Placements output;
  };
  std::vector<Candidate> candidates;
  auto times = planner.costs_from(input_shape, dtype_bytes, from, inputs);
  if (!times) return fail(times.error());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    auto output = view.carry(sizes, inputs[i]);
    if (!output) continue;
    if (auto legal = checked_codes(sizes, output_shape, dtype_bytes, *output, to); !legal) continue;
    candidates.push_back({(*times)[i], i, *std::move(output)});
  }
  std::stable_sort(candidates.begin(),
                   candidates.end(),
                   [](const Candidate& a, const Candidate& b) { return a.time < b.time; });
  const Candidate* best = nullptr;
  Seconds best_time;
  for (const Candidate& candidate : candidates) {
    if (best != nullptr && candidate.time >= best_time) break;
    auto after = planner.plan(output_shape, dtype_bytes, candidate.output, to);
    if (!after) return fail(after.error());
    const Seconds time = candidate.time + (*after)->time;
    if (best == nullptr || time < best_time) {
      best = &candidate;
      best_time = time;
    }
  }
  if (best == nullptr) {
    return fail(
        ErrorCode::kConflict, "/to", "the pending reductions of both sides exclude each other");
  }
  auto before = planner.plan(input_shape, dtype_bytes, from, inputs[best->input]);
  if (!before) return fail(before.error());
  auto after = planner.plan(output_shape, dtype_bytes, best->output, to);
  if (!after) return fail(after.error());
  return RedistributionThroughView{**before, inputs[best->input], best->output, **after, best_time};
}

}  // namespace meshplan

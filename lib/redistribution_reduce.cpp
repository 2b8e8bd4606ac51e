// SPDX-License-Identifier: Apache-2.0
#include "lib/redistribution_reduce.h"

#include <algorithm>
#include <utility>

#include "lib/check.h"
#include "lib/redistribution_policies.h"
#include "lib/redistribution_steps.h"

namespace meshplan {
namespace {

constexpr std::size_t kSpareDims = 2;

std::vector<int> cuts_list(const LayoutState& state, int dim) {
  const auto cuts = state.cuts_of(dim);
  return {cuts.begin(), cuts.end()};
}

}  // namespace

std::optional<UsedAxes> used_axes(std::span<const std::int64_t> axis_sizes,
                                  std::span<const Placement> from,
                                  std::span<const Placement> to) {
  if (axis_sizes.size() <= static_cast<std::size_t>(kMaxMoveAxes) ||
      from.size() != axis_sizes.size() || to.size() != axis_sizes.size()) {
    return std::nullopt;
  }
  UsedAxes used;
  for (std::size_t axis = 0; axis < axis_sizes.size(); ++axis) {
    if (std::holds_alternative<Replicate>(from[axis]) &&
        std::holds_alternative<Replicate>(to[axis])) {
      continue;
    }
    used.axes.push_back(static_cast<int>(axis));
    used.sizes.push_back(axis_sizes[axis]);
    used.from.push_back(from[axis]);
    used.to.push_back(to[axis]);
  }
  if (used.axes.size() == axis_sizes.size()) return std::nullopt;
  return used;
}

CollectivePrice price_on(const UsedAxes& used, CollectivePrice price) {
  return [axes = used.axes, price = std::move(price)](const CollectiveCall& call) {
    CollectiveCall whole = call;
    whole.axes = 0;
    for (std::size_t i = 0; i < axes.size(); ++i) {
      if ((call.axes >> i & 1U) != 0) whole.axes |= AxisSet{1} << axes[i];
    }
    return price(whole);
  };
}

Redistribution on_all_axes(const UsedAxes& used, std::size_t axis_count, Redistribution plan) {
  for (RedistributionStep& step : plan.steps) {
    step.axes = 0;
    for (int& axis : step.order) {
      axis = used.axes[static_cast<std::size_t>(axis)];
      step.axes |= AxisSet{1} << axis;
    }
    Placements after(axis_count, Placement{Replicate{}});
    for (std::size_t i = 0; i < used.axes.size(); ++i)
      after[static_cast<std::size_t>(used.axes[i])] = step.after[i];
    step.after = std::move(after);
  }
  return plan;
}

ReducedProblem reduce_problem(std::span<const std::int64_t> axis_sizes,
                              std::span<const std::int64_t> shape,
                              Bytes dtype_bytes,
                              LayoutCode from,
                              LayoutCode to) {
  from = active_code(axis_sizes, from);
  to = active_code(axis_sizes, to);
  const int axes = static_cast<int>(axis_sizes.size());
  const LayoutState state_from = unpack(from, axes);
  const LayoutState state_to = unpack(to, axes);
  const std::vector<int> reduced = axes_to_reduce(state_from, state_to);

  ReducedProblem problem;
  std::vector<char> keeps(axis_sizes.size(), 0);
  for (int axis = 0; axis < axes; ++axis) {
    const auto a = static_cast<std::size_t>(axis);
    const bool is_cut = code_byte(from, axis) != 0 && state_from.partial[a] < 0;
    keeps[a] =
        axis_sizes[a] == 1 || (code_byte(from, axis) == code_byte(to, axis) && !is_cut &&
                               std::find(reduced.begin(), reduced.end(), axis) == reduced.end());
  }
  std::vector<std::size_t> fixed(shape.size(), 0);  // outer cuts that stay, per dimension
  std::vector<std::int64_t> rest(shape.begin(), shape.end());
  std::vector<char> even(shape.size(), 1);
  for (std::size_t dim = 0; dim < shape.size(); ++dim) {
    const std::vector<int> before = cuts_list(state_from, static_cast<int>(dim));
    const std::vector<int> after = cuts_list(state_to, static_cast<int>(dim));
    std::int64_t parts = 1;
    while (fixed[dim] < before.size() && fixed[dim] < after.size() &&
           before[fixed[dim]] == after[fixed[dim]]) {
      const auto axis = static_cast<std::size_t>(before[fixed[dim]++]);
      keeps[axis] = 1;
      parts *= axis_sizes[axis];
    }
    even[dim] = shape[dim] % parts == 0;
    rest[dim] = shape[dim] / parts + (shape[dim] % parts != 0 ? 1 : 0);
  }
  for (int axis = 0; axis < axes; ++axis) {
    if (keeps[static_cast<std::size_t>(axis)] == 0) problem.axes.push_back(axis);
  }

  std::vector<int> idle;
  for (std::size_t dim = 0; dim < shape.size(); ++dim) {
    const int d = static_cast<int>(dim);
    if (state_from.cuts_of(d).size() > fixed[dim] || state_to.cuts_of(d).size() > fixed[dim]) {
      problem.dims.push_back(d);
    } else if (even[dim] != 0) {
      idle.push_back(d);
    }
  }
  std::stable_sort(idle.begin(), idle.end(), [&](int a, int b) {
    return rest[static_cast<std::size_t>(a)] > rest[static_cast<std::size_t>(b)];
  });
  idle.resize(std::min(idle.size(), kSpareDims));
  problem.dims.insert(problem.dims.end(), idle.begin(), idle.end());
  std::sort(problem.dims.begin(), problem.dims.end());
  problem.dtype_bytes = dtype_bytes;
  for (std::size_t dim = 0; dim < shape.size(); ++dim) {
    if (!std::binary_search(problem.dims.begin(), problem.dims.end(), static_cast<int>(dim))) {
      problem.dtype_bytes *= std::max<std::int64_t>(rest[dim], 1);
    }
  }
  for (const int dim : problem.dims) problem.shape.push_back(rest[static_cast<std::size_t>(dim)]);

  const auto reduce = [&](LayoutCode code) {
    LayoutCode part = 0;
    for (std::size_t i = 0; i < problem.axes.size(); ++i) {
      std::uint8_t byte = code_byte(code, problem.axes[i]);
      if (byte != 0 && (byte & 0x80) == 0) {
        const int dim = (byte >> 3) - 1;
        const auto place = std::lower_bound(problem.dims.begin(), problem.dims.end(), dim);
        const int position = (byte & 7) - static_cast<int>(fixed[static_cast<std::size_t>(dim)]);
        byte = static_cast<std::uint8_t>(
            cut_byte(static_cast<int>(place - problem.dims.begin()), position));
      }
      part = with_byte(part, static_cast<int>(i), byte);
    }
    return part;
  };
  problem.from = reduce(from);
  problem.to = reduce(to);
  problem.kept = from;
  for (const int axis : problem.axes) problem.kept = with_byte(problem.kept, axis, 0);
  return problem;
}

Redistribution restore_problem(std::span<const std::int64_t> axis_sizes,
                               const ReducedProblem& problem,
                               const Redistribution& plan,
                               LayoutCode to) {
  std::vector<std::int64_t> sizes;
  for (const int axis : problem.axes) sizes.push_back(axis_sizes[static_cast<std::size_t>(axis)]);
  const LayoutState kept = unpack(problem.kept, static_cast<int>(axis_sizes.size()));
  const auto whole_dim = [&](int dim) {
    return dim < 0 ? dim : problem.dims[static_cast<std::size_t>(dim)];
  };
  Redistribution result = plan;
  for (RedistributionStep& step : result.steps) {
    step.axes = 0;
    for (int& axis : step.order) {
      axis = problem.axes[static_cast<std::size_t>(axis)];
      step.axes |= AxisSet{1} << axis;
    }
    step.dim = whole_dim(step.dim);
    step.split_dim = whole_dim(step.split_dim);
    step.concat_dim = whole_dim(step.concat_dim);
    const auto part = encode_placements(sizes, static_cast<int>(problem.dims.size()), step.after);
    MESHPLAN_CHECK(part.has_value());
    LayoutCode code = problem.kept;
    for (std::size_t i = 0; i < problem.axes.size(); ++i) {
      std::uint8_t byte = code_byte(*part, static_cast<int>(i));
      if (byte != 0 && (byte & 0x80) == 0) {
        const int dim = whole_dim((byte >> 3) - 1);
        const int behind = kept.cut_count[static_cast<std::size_t>(dim)];
        byte = static_cast<std::uint8_t>(cut_byte(dim, (byte & 7) + behind));
      }
      code = with_byte(code, problem.axes[i], byte);
    }
    step.after = decode_placements(axis_sizes, code);
  }
  if (!result.steps.empty()) result.steps.back().after = decode_placements(axis_sizes, to);
  return result;
}

Redistribution gather_then_slice(std::span<const std::int64_t> axis_sizes,
                                 const CollectivePrice& price,
                                 std::span<const std::int64_t> shape,
                                 Bytes dtype_bytes,
                                 LayoutCode from,
                                 LayoutCode to) {
  StepBuilder steps({axis_sizes.begin(), axis_sizes.end()},
                    {shape.begin(), shape.end()},
                    dtype_bytes,
                    price,
                    active_code(axis_sizes, from));
  const LayoutState goal = unpack(active_code(axis_sizes, to), static_cast<int>(axis_sizes.size()));
  const LayoutState start = steps.state();
  bool allowed = true;
  for (const int axis : axes_to_reduce(start, goal)) {
    const std::vector<int> axes = {axis};
    const auto kind = static_cast<Reduction>(start.partial[static_cast<std::size_t>(axis)]);
    allowed = steps.all_reduce(axes, kind) && allowed;
  }
  for (int dim = 0; dim < static_cast<int>(shape.size()); ++dim) {
    allowed = steps.all_gather(dim, cuts_list(start, dim)) && allowed;
  }
  for (int dim = 0; dim < static_cast<int>(shape.size()); ++dim) {
    allowed = steps.slice(dim, cuts_list(goal, dim)) && allowed;
  }
  allowed = steps.mask_missing(goal) && allowed;
  MESHPLAN_CHECK(allowed);
  return std::move(steps).finish(to);
}

Redistribution cheapest_by_rules(std::span<const std::int64_t> axis_sizes,
                                 const CollectivePrice& price,
                                 std::span<const std::int64_t> shape,
                                 Bytes dtype_bytes,
                                 LayoutCode from,
                                 LayoutCode to,
                                 Division division) {
  auto allowed = [&](const Redistribution& sequence) {
    return division == Division::kAny ||
           std::all_of(
               sequence.steps.begin(), sequence.steps.end(), [&](const RedistributionStep& step) {
                 const auto code =
                     encode_placements(axis_sizes, static_cast<int>(shape.size()), step.after);
                 return code && local_elements(axis_sizes, shape, *code, division) >= 0;
               });
  };
  Redistribution best = gather_then_slice(axis_sizes, price, shape, dtype_bytes, from, to);
  const Placements source = decode_placements(axis_sizes, from);
  const Placements goal = decode_placements(axis_sizes, to);
  auto greedy = hyper_parallel_redistribution(axis_sizes, price, shape, dtype_bytes, source, goal);
  if (greedy && greedy->time < best.time && allowed(*greedy)) best = *std::move(greedy);
  const PriceOfMesh price_of = [&](std::span<const std::int64_t> sizes) -> CollectivePrice {
    if (std::equal(sizes.begin(), sizes.end(), axis_sizes.begin(), axis_sizes.end())) return price;
    return [](const CollectiveCall&) { return Seconds{}; };  // a cut axis: the result is not used
  };
  auto shardy = shardy_redistribution(axis_sizes, price_of, shape, dtype_bytes, source, goal);
  if (shardy && !shardy->refined && shardy->steps.time < best.time &&
      std::equal(shape.begin(), shape.end(), shardy->padded_shape.begin()) &&
      allowed(shardy->steps)) {
    best = std::move(shardy->steps);
  }
  return best;
}

}  // namespace meshplan

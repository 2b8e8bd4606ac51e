// SPDX-License-Identifier: Apache-2.0
#include "plan/check_plan_geometry.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

namespace meshplan::checking {
namespace {

std::size_t at(int index) { return static_cast<std::size_t>(index); }

/// Dimension and split factor of a sharding placement.
std::optional<std::pair<int, std::int64_t>> shard_of(const Placement& placement) {
  if (const auto* shard = std::get_if<Shard>(&placement)) return std::pair(shard->dim, 1);
  if (const auto* strided = std::get_if<StridedShard>(&placement)) {
    return std::pair(strided->dim, strided->split_factor);
  }
  return std::nullopt;
}

/// Per dimension the axes that cut it, outermost first; with axes of size 1 if `all`.
std::optional<std::vector<std::vector<int>>> cut_lists(const Placements& placements,
                                                       std::size_t rank,
                                                       const Sizes& mesh,
                                                       bool all) {
  if (placements.size() != mesh.size()) return std::nullopt;
  std::vector<std::vector<int>> dims(rank);
  for (std::size_t axis = mesh.size(); axis-- > 0;) {
    const auto shard = shard_of(placements[axis]);
    if (!shard) continue;
    auto [dim, factor] = *shard;
    if (dim < 0 || at(dim) >= rank) return std::nullopt;
    if (mesh[axis] == 1 && !all) continue;
    // the axes in the list stand to the right of this one; those before it multiply to the factor
    std::vector<int>& list = dims[at(dim)];
    std::size_t place = 0;
    while (factor > 1 && place < list.size() && factor % mesh[at(list[place])] == 0) {
      factor /= mesh[at(list[place++])];
    }
    if (factor != 1) return std::nullopt;
    list.insert(list.begin() + static_cast<std::ptrdiff_t>(place), static_cast<int>(axis));
  }
  return dims;
}

/// What a coordinate along each axis selects: (kind, dimension or reduction, stride).
using Role = std::tuple<int, int, std::int64_t>;

std::vector<Role> roles_of(const Cuts& cuts, const Sizes& mesh) {
  std::vector<Role> roles(mesh.size(), Role{0, 0, 0});
  for (std::size_t axis = 0; axis < mesh.size(); ++axis) {
    if (cuts.reductions[axis]) roles[axis] = {1, static_cast<int>(*cuts.reductions[axis]), 0};
  }
  for (std::size_t dim = 0; dim < cuts.dims.size(); ++dim) {
    std::int64_t stride = 1;
    for (std::size_t i = cuts.dims[dim].size(); i-- > 0;) {
      const auto axis = at(cuts.dims[dim][i]);
      roles[axis] = {2, static_cast<int>(dim), stride};
      stride *= mesh[axis];
    }
  }
  return roles;
}

bool ends_with(const std::vector<int>& list, const std::vector<int>& tail) {
  return list.size() >= tail.size() &&
         std::equal(
             tail.begin(), tail.end(), list.end() - static_cast<std::ptrdiff_t>(tail.size()));
}

bool is_cut(const Cuts& cuts, int axis) {
  return std::any_of(cuts.dims.begin(), cuts.dims.end(), [&](const std::vector<int>& list) {
    return std::find(list.begin(), list.end(), axis) != list.end();
  });
}

std::string need_dim(const std::optional<int>& dim, const Cuts& cuts, const char* key) {
  if (!dim) return std::string("the step has no \"") + key + "\"";
  if (*dim < 0 || at(*dim) >= cuts.dims.size()) {
    return std::string("\"") + key + "\" is not a dimension of the tensor";
  }
  return "";
}

std::string gather(Cuts& cuts, int dim, const std::vector<int>& axes) {
  std::vector<int>& list = cuts.dims[at(dim)];
  if (!ends_with(list, axes)) {
    return "the axes are not the innermost cuts of dimension " + std::to_string(dim);
  }
  list.resize(list.size() - axes.size());
  return "";
}

std::string reduce(Cuts& cuts,
                   const std::optional<Reduction>& reduction,
                   const std::vector<int>& axes) {
  const Reduction wanted = reduction.value_or(Reduction::kSum);
  for (const int axis : axes) {
    if (cuts.reductions[at(axis)] != wanted) {
      return std::string("the tensor is not P(") + reduction_name(wanted) + ") on every axis";
    }
    cuts.reductions[at(axis)].reset();
  }
  return "";
}

std::string cut(Cuts& cuts, int dim, const std::vector<int>& axes) {
  for (const int axis : axes) {
    if (is_cut(cuts, axis) || cuts.reductions[at(axis)]) return "an axis is in use already";
    cuts.dims[at(dim)].push_back(axis);
  }
  return "";
}

/// Into how many summands (or operands of a maximum, ...) each reduction splits the tensor.
std::map<Reduction, std::int64_t> summands_of(const Cuts& cuts, const Sizes& mesh) {
  std::map<Reduction, std::int64_t> counts;
  for (std::size_t axis = 0; axis < mesh.size(); ++axis) {
    if (!cuts.reductions[axis]) continue;
    const auto [count, added] = counts.emplace(*cuts.reductions[axis], 1);
    count->second *= mesh[axis];
  }
  return counts;
}

std::string relabel(const PlanStep& step, const Sizes& shape, const Sizes& mesh, Cuts& cuts) {
  const auto after = cuts_of(step.placements, shape.size(), mesh);
  if (!after) return "the placements after the step are no layout";
  if (step.collective != Collective::kPermute) {
    if (after->reductions != cuts.reductions) return "the step may not change Partial";
  } else {
    // summands may change places like blocks: P(sum),R -> R,P(sum) on a 2x2 mesh
    if (summands_of(*after, mesh) != summands_of(cuts, mesh)) {
      return "a permute must keep the number of summands";
    }
    const auto from = local_shape_of(cuts, shape, mesh, false);
    if (!from || from != local_shape_of(*after, shape, mesh, false)) {
      return "a permute must keep the local shape";
    }
  }
  cuts = *after;
  return "";
}

}  // namespace

bool Cuts::has_partial() const {
  return std::any_of(
      reductions.begin(), reductions.end(), [](const auto& r) { return r.has_value(); });
}

std::optional<Cuts> cuts_of(const Placements& placements, std::size_t rank, const Sizes& mesh) {
  auto dims = cut_lists(placements, rank, mesh, false);
  if (!dims) return std::nullopt;
  Cuts cuts{std::move(*dims), std::vector<std::optional<Reduction>>(mesh.size())};
  for (std::size_t axis = 0; axis < mesh.size(); ++axis) {
    const auto* partial = std::get_if<Partial>(&placements[axis]);
    if (partial != nullptr && mesh[axis] > 1) cuts.reductions[axis] = partial->reduction;
  }
  return cuts;
}

Placements placements_of(const Cuts& cuts, const Sizes& mesh) {
  Placements placements(mesh.size(), Placement{Replicate{}});
  for (std::size_t axis = 0; axis < mesh.size(); ++axis) {
    if (cuts.reductions[axis]) placements[axis] = Partial{*cuts.reductions[axis]};
  }
  for (std::size_t dim = 0; dim < cuts.dims.size(); ++dim) {
    const std::vector<int>& list = cuts.dims[dim];
    for (std::size_t i = 0; i < list.size(); ++i) {
      std::int64_t before = 1;
      for (std::size_t k = 0; k < i; ++k) before *= list[k] > list[i] ? mesh[at(list[k])] : 1;
      Placement& placement = placements[at(list[i])];
      placement = Shard{static_cast<int>(dim)};
      if (before > 1) placement = StridedShard{static_cast<int>(dim), before};
    }
  }
  return placements;
}

std::string text_of(const Cuts& cuts, const Sizes& mesh) {
  return to_string(placements_of(cuts, mesh));
}

std::optional<Sizes> local_shape_of(const Cuts& cuts,
                                    const Sizes& shape,
                                    const Sizes& mesh,
                                    bool uneven) {
  if (cuts.dims.size() != shape.size()) return std::nullopt;
  Sizes local = shape;
  for (std::size_t dim = 0; dim < shape.size(); ++dim) {
    for (const int axis : cuts.dims[dim]) {
      const std::int64_t size = mesh[at(axis)];
      if (local[dim] % size == 0) {
        local[dim] /= size;
      } else if (uneven && cuts.dims[dim].size() == 1) {
        local[dim] = local[dim] / size + 1;
      } else {
        return std::nullopt;
      }
    }
  }
  return local;
}

std::vector<std::vector<int>> tensor_map_of(const Placements& placements,
                                            std::size_t rank,
                                            const Sizes& mesh) {
  std::vector<std::vector<int>> map;
  auto lists = cut_lists(placements, rank, mesh, true);
  if (!lists) return map;
  for (std::vector<int>& list : *lists) {
    for (int& axis : list) axis = static_cast<int>(mesh.size()) - 1 - axis;
    map.push_back(std::move(list));
  }
  return map;
}

std::string apply_step(const PlanStep& step,
                       const std::vector<int>& axes,
                       const Sizes& shape,
                       const Sizes& mesh,
                       Cuts& cuts) {
  std::string wrong;
  switch (step.collective) {
    case Collective::kAllGather:
      wrong = need_dim(step.dim, cuts, "dim");
      return wrong.empty() ? gather(cuts, *step.dim, axes) : wrong;
    case Collective::kReduceScatter:
      wrong = need_dim(step.dim, cuts, "dim");
      if (wrong.empty()) wrong = reduce(cuts, step.reduction, axes);
      return wrong.empty() ? cut(cuts, *step.dim, axes) : wrong;
    case Collective::kAllReduce:
      return reduce(cuts, step.reduction, axes);
    case Collective::kAllToAll:
      wrong = need_dim(step.concat_dim, cuts, "concat_dim");
      if (wrong.empty()) wrong = need_dim(step.split_dim, cuts, "split_dim");
      if (wrong.empty()) wrong = gather(cuts, *step.concat_dim, axes);
      return wrong.empty() ? cut(cuts, *step.split_dim, axes) : wrong;
    case Collective::kSlice:
      wrong = need_dim(step.dim, cuts, "dim");
      return wrong.empty() ? cut(cuts, *step.dim, axes) : wrong;
    case Collective::kMask:
      for (const int axis : axes) {
        if (is_cut(cuts, axis) || cuts.reductions[at(axis)]) return "an axis is in use already";
        cuts.reductions[at(axis)] = step.reduction.value_or(Reduction::kSum);
      }
      return "";
    case Collective::kPermute:
    case Collective::kSendReceive:
      return relabel(step, shape, mesh, cuts);
    case Collective::kBroadcast:
      return "";  // equal data before and after
  }
  return "";
}

std::string wrong_pairs(const std::vector<std::pair<std::int64_t, std::int64_t>>& pairs,
                        const Cuts& before,
                        const Cuts& after,
                        const Sizes& mesh,
                        const std::vector<std::int64_t>& ranks) {
  const std::int64_t devices = product_of(mesh);
  const auto coordinate = [&](std::int64_t position, std::size_t axis) {
    for (std::size_t inner = mesh.size(); inner-- > axis + 1;) position /= mesh[inner];
    return position % mesh[axis];
  };
  /// Which block of the tensor a device holds, and which summand of it.
  const auto block = [&](const Cuts& cuts, std::int64_t position) {
    Sizes index;
    for (const std::vector<int>& axes : cuts.dims) {
      std::int64_t piece = 0;
      for (const int axis : axes) piece = piece * mesh[at(axis)] + coordinate(position, at(axis));
      index.push_back(piece);
    }
    return index;
  };
  const auto summand = [&](const Cuts& cuts, std::int64_t position) {
    std::int64_t index = 0;
    for (std::size_t axis = 0; axis < mesh.size(); ++axis) {
      if (cuts.reductions[axis]) index = index * mesh[axis] + coordinate(position, axis);
    }
    return index;
  };
  const auto position_of = [&](std::int64_t rank) -> std::int64_t {
    if (ranks.empty()) return rank >= 0 && rank < devices ? rank : -1;
    const auto found = std::find(ranks.begin(), ranks.end(), rank);
    return found == ranks.end() ? -1 : found - ranks.begin();
  };
  if (static_cast<std::int64_t>(pairs.size()) != devices)
    return "a permute names every device as a destination once";
  std::vector<bool> reached(static_cast<std::size_t>(devices));
  std::map<std::pair<Sizes, Sizes>, std::set<std::int64_t>> summands;  // of devices that reduce
  for (const auto& [from, to] : pairs) {
    const std::int64_t source = position_of(from);
    const std::int64_t destination = position_of(to);
    if (source < 0 || destination < 0)
      return "device " + std::to_string(source < 0 ? from : to) + " is not in the mesh";
    if (reached[static_cast<std::size_t>(destination)])
      return "device " + std::to_string(to) + " receives twice";
    reached[static_cast<std::size_t>(destination)] = true;
    Sizes wanted = block(after, destination);
    if (block(before, source) != wanted)
      return "device " + std::to_string(to) + " receives another part of the tensor from device " +
             std::to_string(from);
    Sizes others;  // coordinates on the axes that do not reduce
    for (std::size_t axis = 0; axis < mesh.size(); ++axis) {
      if (!after.reductions[axis]) others.push_back(coordinate(destination, axis));
    }
    if (!summands[{std::move(wanted), std::move(others)}].insert(summand(before, source)).second)
      return "device " + std::to_string(to) + " receives a summand from device " +
             std::to_string(from) + " that another one has";
  }
  return "";
}

std::vector<int> changed_axes(const Cuts& a, const Cuts& b, const Sizes& mesh) {
  const std::vector<Role> before = roles_of(a, mesh);
  const std::vector<Role> after = roles_of(b, mesh);
  std::vector<int> axes;
  for (std::size_t axis = 0; axis < mesh.size(); ++axis) {
    if (before[axis] != after[axis]) axes.push_back(static_cast<int>(axis));
  }
  return axes;
}

std::int64_t product_of(const Sizes& sizes) {
  constexpr std::int64_t kMost = std::int64_t{1} << 62;
  std::int64_t product = 1;
  for (const std::int64_t size : sizes) {
    if (__builtin_mul_overflow(product, size, &product) || product > kMost) return kMost;
  }
  return product;
}

}  // namespace meshplan::checking

// SPDX-License-Identifier: Apache-2.0
// The greedy rewriting of the hyper-parallel library, described in its own terms: every tensor
// dimension has an entry, the list of mesh axes that cut it; a dimension whose entry equals its
// destination is resolved. Until all are:
//   A  split a dimension that is free (or holds a prefix) by what it still needs, if that is free,
//   B  move it by an all-to-all from the dimension that holds it as its innermost axes,
//   C  gather what nobody needs in this form,
//   D  if nothing happened, gather the first unresolved dimension.
// The library decides "free" by comparing whole entries and tails, and so cuts a dimension by an
// axis that is still inside another dimension's entry. We run its rule, check every step against
// the layout, and where a step is not allowed start again with the sound rule: free means that no
// unresolved dimension holds the axis at all.
#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "lib/check.h"
#include "lib/redistribution_policies.h"
#include "lib/redistribution_reduce.h"
#include "lib/redistribution_steps.h"

namespace meshplan {
namespace {

using Entry = std::vector<int>;

bool ends_with(const Entry& entry, const Entry& tail) {
  return tail.size() <= entry.size() && std::equal(tail.rbegin(), tail.rend(), entry.rbegin());
}
bool proper_prefix(const Entry& prefix, const Entry& entry) {
  return !prefix.empty() && prefix.size() < entry.size() &&
         std::equal(prefix.begin(), prefix.end(), entry.begin());
}
Entry rest_of(const Entry& entry, std::size_t length) {
  return {entry.begin() + static_cast<std::ptrdiff_t>(length), entry.end()};
}

/// How a run differs from the library's own rule.
struct Variant {
  bool scatter_anywhere = true;  ///< reduce-scatter even where the dimension is re-cut afterwards
  bool sound_split = false;
};

class GreedyRun {
 public:
  GreedyRun(StepBuilder& steps, std::vector<Entry> target, bool use_all_to_all, Variant variant)
      : steps_(steps),
        target_(std::move(target)),
        use_all_to_all_(use_all_to_all),
        variant_(variant) {}

  /// Returns whether every step was allowed.
  bool run() {
    resolved_.assign(target_.size(), false);
    std::size_t rounds = 0;
    while (refresh()) {
      if (++rounds > 64) return false;
      bool emitted = false;
      for (bool progress = true; progress;) {
        progress = split_pass();
        while (all_to_all_pass()) progress = true;
        if (failed_) return false;
        emitted = emitted || progress;
      }
      emitted = gather_pass() || emitted;
      if (failed_) return false;
      if (!emitted && refresh()) {
        const int dim = first_unresolved();
        gather(dim, current(dim));
      }
      if (failed_) return false;
    }
    return true;
  }

 private:
  Entry current(int dim) const {
    const LayoutState state = steps_.state();
    const auto cuts = state.cuts_of(dim);
    return {cuts.begin(), cuts.end()};
  }
  const Entry& target(int dim) const { return target_[static_cast<std::size_t>(dim)]; }
  bool resolved(int dim) const { return resolved_[static_cast<std::size_t>(dim)]; }
  int dims() const { return static_cast<int>(target_.size()); }

  /// Drops resolved dimensions; returns whether any is left.
  bool refresh() {
    bool left = false;
    for (int dim = 0; dim < dims(); ++dim) {
      if (!resolved(dim) && current(dim) == target(dim))
        resolved_[static_cast<std::size_t>(dim)] = true;
      left = left || !resolved(dim);
    }
    return left;
  }
  int first_unresolved() const {
    int dim = 0;
    while (resolved(dim)) ++dim;
    return dim;
  }
  void note(bool allowed) { failed_ = failed_ || !allowed; }
  void gather(int dim, const Entry& axes) { note(steps_.all_gather(dim, axes)); }

  /// May `axes` cut `dim` now? `tails`: the library also looks at the ends of entries.
  bool is_free(int dim, const Entry& axes, bool tails) const {
    for (int other = 0; other < dims(); ++other) {
      if (resolved(other)) continue;
      const Entry held = current(other);
      if (variant_.sound_split) {
        for (const int axis : axes) {
          if (std::find(held.begin(), held.end(), axis) != held.end()) return false;
        }
      } else if (other != dim && (held == axes || (tails && ends_with(held, axes)))) {
        return false;
      }
    }
    return true;
  }

  bool split_pass() {
    bool emitted = false;
    for (int dim = 0; dim < dims() && !failed_; ++dim) {
      if (resolved(dim)) continue;
      const Entry held = current(dim);
      const bool extends = proper_prefix(held, target(dim));
      if (!held.empty() && !extends) continue;
      const Entry needed = rest_of(target(dim), held.size());
      if (!is_free(dim, needed, !extends)) continue;
      note(steps_.slice(dim, needed));
      resolved_[static_cast<std::size_t>(dim)] = true;
      emitted = true;
    }
    return emitted;
  }

  bool all_to_all_pass() {
    bool emitted = false;
    for (int dim = 0; dim < dims() && !failed_; ++dim) {
      if (resolved(dim)) continue;
      const Entry held = current(dim);
      const bool extends = proper_prefix(held, target(dim));
      if (!held.empty() && !extends) continue;
      const Entry needed = rest_of(target(dim), held.size());
      for (int other = 0; other < dims(); ++other) {
        if (other == dim || resolved(other)) continue;
        const Entry source = current(other);
        // The library extends a prefix by whole entries only.
        if (!(ends_with(source, needed) && (!extends || variant_.sound_split || source == needed)))
          continue;
        if (use_all_to_all_) {
          note(steps_.all_to_all(dim, other, needed));
        } else {
          gather(other, needed);
          note(steps_.slice(dim, needed));
        }
        resolved_[static_cast<std::size_t>(dim)] = true;
        emitted = true;
        break;
      }
    }
    refresh();
    return emitted && !failed_;
  }

  bool gather_pass() {
    bool emitted = false;
    for (int dim = 0; dim < dims() && !failed_; ++dim) {
      if (resolved(dim)) continue;
      const Entry held = current(dim);
      if (held.empty()) continue;
      if (proper_prefix(target(dim), held)) {
        gather(dim, rest_of(held, target(dim).size()));
        emitted = true;
      } else if (std::find(target_.begin(), target_.end(), held) == target_.end()) {
        gather(dim, held);
        emitted = true;
      }
    }
    refresh();
    return emitted;
  }

  StepBuilder& steps_;
  std::vector<Entry> target_;
  bool use_all_to_all_;
  Variant variant_;
  std::vector<bool> resolved_;
  bool failed_ = false;
};

/// Reduces what the destination does not keep partial.
bool reduce_partials(StepBuilder& steps,
                     const LayoutState& to,
                     const std::vector<Entry>& target,
                     Variant variant) {
  struct Pending {
    bool scatter;
    std::size_t position;
    int axis;
    int dim;
    Reduction reduction;
  };
  const LayoutState from = steps.state();
  std::vector<Pending> pending;
  for (const int axis : axes_to_reduce(from, to)) {
    const auto a = static_cast<std::size_t>(axis);
    Pending one{false, 0, axis, -1, static_cast<Reduction>(from.partial[a])};
    for (std::size_t dim = 0; dim < target.size(); ++dim) {
      const auto found = std::find(target[dim].begin(), target[dim].end(), axis);
      if (found == target[dim].end()) continue;
      one.scatter = true;
      one.dim = static_cast<int>(dim);
      one.position = static_cast<std::size_t>(found - target[dim].begin());
    }
    pending.push_back(one);
  }
  const bool alike = std::all_of(pending.begin(), pending.end(), [&](const Pending& one) {
    return reductions_commute(one.reduction, pending.front().reduction);
  });
  std::stable_sort(pending.begin(), pending.end(), [&](const Pending& a, const Pending& b) {
    // Unlike reductions: innermost axis first, whatever the step.
    if (!alike) return a.axis > b.axis;
    if (a.scatter != b.scatter) return a.scatter;
    if (a.scatter && a.position != b.position) return a.position < b.position;
    return a.axis > b.axis;
  });
  for (const Pending& one : pending) {
    const std::array<int, 1> axes = {one.axis};
    bool scatter = one.scatter;
    if (scatter && !variant.scatter_anywhere) {
      const LayoutState now = steps.state();
      const auto cuts = now.cuts_of(one.dim);
      const Entry& wanted = target[static_cast<std::size_t>(one.dim)];
      scatter = cuts.size() == one.position && std::equal(cuts.begin(), cuts.end(), wanted.begin());
    }
    const bool done = scatter ? steps.reduce_scatter(one.dim, axes, one.reduction)
                              : steps.all_reduce(axes, one.reduction);
    if (!done) return false;
  }
  return true;
}

}  // namespace

Result<Redistribution> hyper_parallel_redistribution(std::span<const std::int64_t> axis_sizes,
                                                     const CollectivePrice& price,
                                                     std::span<const std::int64_t> shape,
                                                     Bytes dtype_bytes,
                                                     std::span<const Placement> from,
                                                     std::span<const Placement> to,
                                                     bool use_all_to_all) {
  if (const auto used = used_axes(axis_sizes, from, to)) {
    auto found = hyper_parallel_redistribution(used->sizes,
                                               price_on(*used, price),
                                               shape,
                                               dtype_bytes,
                                               used->from,
                                               used->to,
                                               use_all_to_all);
    if (!found) return found;
    return on_all_axes(*used, axis_sizes.size(), *std::move(found));
  }
  auto codes = checked_codes(axis_sizes, shape, dtype_bytes, from, to);
  if (!codes) return fail(codes.error());
  const LayoutCode source = active_code(axis_sizes, codes->from);
  const LayoutCode goal = active_code(axis_sizes, codes->to);
  const LayoutState wanted = unpack(goal, static_cast<int>(axis_sizes.size()));
  std::vector<Entry> target;
  for (int dim = 0; dim < static_cast<int>(shape.size()); ++dim) {
    const auto cuts = wanted.cuts_of(dim);
    target.emplace_back(cuts.begin(), cuts.end());
  }
  for (const Variant variant :
       {Variant{true, false}, Variant{false, false}, Variant{false, true}}) {
    StepBuilder steps({axis_sizes.begin(), axis_sizes.end()},
                      {shape.begin(), shape.end()},
                      dtype_bytes,
                      price,
                      source);
    if (!reduce_partials(steps, wanted, target, variant)) continue;
    if (!GreedyRun(steps, target, use_all_to_all, variant).run()) continue;
    if (!steps.mask_missing(wanted)) continue;
    if (steps.code() == goal) return std::move(steps).finish(codes->to);
  }
  check_failed("the sound rule reaches every destination", __FILE__, __LINE__);
}

}  // namespace meshplan

// SPDX-License-Identifier: Apache-2.0
// A group of devices is a box: f_0 devices in each unit of level 0, f_1 such units in each unit of
// level 1, and so on; n devices in all, m_l = f_0 ... f_(l-1) of them in one unit below level l.
//
// One call of a library starts all levels at once: its time is a fixed cost, the latency of its
// messages one after the other, and the transfer on the *slowest* level, since pieces are
// pipelined. With t_l(p) the time of a piece of p bytes on one device's link of level l (the curves
// of the cluster file):
//
//   ring (all-gather, reduce-scatter)  n - 1 pieces of S / n pass over every edge; the m_l devices
//       of a unit share what leaves it: (n - 1) t_l(S / (n m_l)). Of the n - 1 hops,
//       f_l ... f_L - f_(l+1) ... f_L have the latency of level l. This is what NCCL does.
//   own piece  each device also copies its own S / n within its memory, once.
//   ring all-reduce  twice the ring.
//   tree all-reduce  a chain inside the units of level 0, trees above: every device sends S up and
//       S down inside, and a unit with one parent and two children 2 S outside, S if there are just
//       two units. ceil(log2 f) messages each way per level above, f_0 - 1 inside. Where the
//       network reduces, S goes there and comes back at the rate that the file says.
//   direct exchange (all-to-all)  n - 1 messages of S / n, (m_(l+1) - m_l) of them over level l.
//       They are under way together: each takes the latency of level 0 to start, and sender and
//       receiver meet once, two messages over the slowest level.
//   permutation, send/receive, broadcast  one pipeline, at the rate of the slowest level crossed.
//
// Several calls, one after the other, are staged collectives: an all-gather over a part of the box
// and then over the rest, an all-reduce as reduce-scatter, all-reduce of the pieces and all-gather,
// an all-to-all in two exchanges of everything. best(box) is the minimum over all of them by
// dynamic programming, so a call over several axes is never dearer than any sequence of calls over
// parts of them. (A frame-work that never stages, measured with one call per collective, has
// "algorithms" without "staged".) Inside one level a stage may have any radix a, with ceil(f / a)
// left: so more devices are never faster. Across levels stages divide the box.
//
// Times are piecewise linear in the size, and so is the best of them: it is found once per shape.
//
// Not modelled: congestion between groups (bandwidths are those with all devices sending).
#include "cost_model/collective_algorithms.h"

#include <algorithm>
#include <bit>
#include <cstddef>

#include "lib/check.h"

namespace meshplan {
namespace {

/// Messages of a doubling over n units.
int doubling_steps(std::int64_t n) {
  return static_cast<int>(std::bit_width(static_cast<std::uint64_t>(n - 1)));
}

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

std::int64_t size_of(const GroupShape& shape) {
  std::int64_t product = 1;
  for (const std::int64_t f : shape) product *= f;
  return product;
}

/// Levels with more than one unit.
std::vector<std::size_t> crossed(const GroupShape& shape) {
  std::vector<std::size_t> levels;
  for (std::size_t l = 0; l < shape.size(); ++l) {
    if (shape[l] > 1) levels.push_back(l);
  }
  return levels;
}

/// Radices of a first stage over n units, 1 < a < n. For every value of ceil(n / a) the least a
/// that gives it; of many units only those that divide them and powers of two.
std::vector<std::int64_t> radices(std::int64_t n) {
  constexpr std::int64_t kMany = 512;
  std::vector<std::int64_t> result;
  std::int64_t last = n;
  for (std::int64_t a = 2; a < n;) {
    const std::int64_t left = ceil_div(n, a);
    const bool simple =
        n <= kMany || n % a == 0 || std::has_single_bit(static_cast<std::uint64_t>(a));
    if (left != last && simple) result.push_back(a);
    last = left;
    a = left > 1 ? std::max(a + 1, n <= kMany ? ceil_div(n, left - 1) : a + 1) : n;
  }
  return result;
}

std::vector<std::int64_t> divisors(std::int64_t n) {
  std::vector<std::int64_t> result;
  for (std::int64_t a = 1; a <= n / a; ++a) {
    if (n % a != 0) continue;
    result.push_back(a);
    if (a != n / a) result.push_back(n / a);
  }
  std::sort(result.begin(), result.end());
  return result;
}

/// What is left of the box after a stage over a part of it.
GroupShape rest_of(const GroupShape& shape, const GroupShape& stage) {
  GroupShape rest;
  for (std::size_t l = 0; l < shape.size(); ++l) rest.push_back(ceil_div(shape[l], stage[l]));
  return rest;
}

}  // namespace

CollectiveAlgorithmBook::CollectiveAlgorithmBook(const Cluster& cluster) : cluster_(cluster) {}

const PiecewiseLinear& CollectiveAlgorithmBook::time(Collective collective,
                                                     const GroupShape& shape) {
  const bool copies =
      collective == Collective::kAllGather || collective == Collective::kReduceScatter;
  return best(collective, shape, copies ? Piece::kCopied : Piece::kInPlace);
}

const PiecewiseLinear& CollectiveAlgorithmBook::best(Collective collective,
                                                     const GroupShape& shape,
                                                     Piece piece) {
  MESHPLAN_CHECK(size_of(shape) > 1);
  const auto key = std::make_tuple(collective, piece, shape);
  if (const auto found = known_.find(key); found != known_.end()) return found->second;
  PiecewiseLinear result = find(collective, shape, piece);
  return known_.emplace(key, std::move(result)).first->second;
}

PiecewiseLinear CollectiveAlgorithmBook::find(Collective collective,
                                              const GroupShape& shape,
                                              Piece piece) {
  PiecewiseLinear result = one_call(collective, shape);
  if (piece == Piece::kCopied) result = result + own_piece(collective, shape);
  const bool in_stages =
      collective == Collective::kAllGather || collective == Collective::kReduceScatter ||
      collective == Collective::kAllReduce || collective == Collective::kAllToAll;
  if (!in_stages || !cluster_.efficiency.algorithms.staged) return result;
  if (collective == Collective::kAllReduce) {
    result = least(result,
                   best(Collective::kReduceScatter, shape, Piece::kInPlace) +
                       best(Collective::kAllGather, shape, Piece::kInPlace));
  }
  for (const GroupShape& stage : stages(shape))
    result = least(result, staged(collective, stage, rest_of(shape, stage), piece));
  return result;
}

PiecewiseLinear CollectiveAlgorithmBook::one_call(Collective collective,
                                                  const GroupShape& shape) const {
  const PiecewiseLinear start(cluster_.efficiency.collective_overhead.value);
  switch (collective) {
    case Collective::kAllGather:
    case Collective::kReduceScatter:
      return start + ring(collective, shape);
    case Collective::kAllReduce: {
      const PiecewiseLinear around = ring_all_reduce(shape);
      return start + (has_tree(shape) ? least(around, tree_all_reduce(shape)) : around);
    }
    case Collective::kAllToAll:
      return start + direct_exchange(shape);
    case Collective::kPermute:
    case Collective::kSendReceive:
    case Collective::kBroadcast:
      return start + pipeline(collective, shape);
    case Collective::kSlice:
    case Collective::kMask:
      break;
  }
  MESHPLAN_CHECK(false);
}

// ------------------------------------------------------------------------------------ one call

const BandwidthCurve& CollectiveAlgorithmBook::curve(std::size_t level,
                                                     Collective collective) const {
  const auto& own = cluster_.levels[level].collectives;
  return (own ? *own : cluster_.efficiency.collectives).of(collective);
}

PiecewiseLinear CollectiveAlgorithmBook::piece_time(std::size_t level,
                                                    Collective collective,
                                                    std::int64_t parts) const {
  const double per_byte = 1.0 / cluster_.levels[level].effective_bandwidth();
  const BandwidthCurve& measured = curve(level, collective);
  if (measured.points.empty()) return PiecewiseLinear(0.0, per_byte);
  std::vector<PiecewiseLinear::Point> points = {{0.0, 0.0}};
  for (const BandwidthCurve::Point& point : measured.points) {
    const double piece = static_cast<double>(point.bytes) / static_cast<double>(parts);
    points.push_back({piece, std::max(piece * per_byte / point.fraction, points.back().y)});
  }
  return PiecewiseLinear(std::move(points), per_byte / measured.points.back().fraction);
}

double CollectiveAlgorithmBook::unused_links(std::size_t level, std::int64_t units) const {
  const Level& l = cluster_.levels[level];
  if (l.wiring == Wiring::kSwitch || units >= l.size) return 1.0;
  return static_cast<double>(l.size - 1) / static_cast<double>(units - 1);
}

double CollectiveAlgorithmBook::links_out(std::size_t level, const GroupShape& shape) const {
  double devices = 1.0;
  for (std::size_t l = 0; l < level; ++l) devices *= static_cast<double>(shape[l]);
  const Level& l = cluster_.levels[level];
  if (!l.group_bandwidth) return devices;
  return std::min(devices, *l.group_bandwidth / l.effective_bandwidth());
}

PiecewiseLinear CollectiveAlgorithmBook::ring(Collective collective,
                                              const GroupShape& shape) const {
  const double n = static_cast<double>(size_of(shape));
  double latency = 0.0;
  double units = n;  // of the level below
  PiecewiseLinear transfer;
  for (std::size_t l = 0; l < shape.size(); ++l) {
    const double f = static_cast<double>(shape[l]);
    latency += (units - units / f) * cluster_.levels[l].latency.value;
    units /= f;
    if (shape[l] == 1) continue;
    const BandwidthCurve& measured = curve(l, collective);
    const PiecewiseLinear piece = piece_time(l, collective, measured.devices * measured.sharing);
    transfer = greatest(
        transfer, piece.scaled((n - 1.0) * unused_links(l, shape[l]), n * links_out(l, shape)));
  }
  return PiecewiseLinear(latency) + transfer;
}

PiecewiseLinear CollectiveAlgorithmBook::own_piece(Collective collective,
                                                   const GroupShape& shape) const {
  const std::optional<double>& bandwidth = cluster_.efficiency.own_piece_bandwidth;
  if (!bandwidth) return PiecewiseLinear();
  double per_byte = 1.0 / *bandwidth;
  // never slower than a link, so that more devices are never faster
  for (const std::size_t l : crossed(shape)) {
    const BandwidthCurve& measured = curve(l, collective);
    const double fraction = measured.points.empty() ? 1.0 : measured.points.back().fraction;
    per_byte = std::min(per_byte, 1.0 / (cluster_.levels[l].effective_bandwidth() * fraction));
  }
  return PiecewiseLinear(0.0, per_byte / static_cast<double>(size_of(shape)));
}

PiecewiseLinear CollectiveAlgorithmBook::ring_all_reduce(const GroupShape& shape) const {
  return ring(Collective::kAllReduce, shape).scaled(2.0);
}

bool CollectiveAlgorithmBook::has_tree(const GroupShape& shape) const {
  if (!cluster_.efficiency.algorithms.tree) return false;
  const std::vector<std::size_t> levels = crossed(shape);
  return levels.size() > 1 || cluster_.levels[levels.front()].in_network_all_reduce.has_value();
}

PiecewiseLinear CollectiveAlgorithmBook::tree_all_reduce(const GroupShape& shape) const {
  const double n = static_cast<double>(size_of(shape));
  const std::vector<std::size_t> levels = crossed(shape);
  double latency = 0.0;
  PiecewiseLinear transfer;
  for (const std::size_t l : levels) {
    const Level& level = cluster_.levels[l];
    const double out = links_out(l, shape);
    if (const auto& reduction = level.in_network_all_reduce) {
      latency += reduction->latency.value;
      transfer = greatest(transfer, PiecewiseLinear(0.0, 1.0 / (out * reduction->bandwidth)));
      continue;
    }
    const BandwidthCurve& measured = curve(l, Collective::kAllReduce);
    const PiecewiseLinear piece =
        piece_time(l, Collective::kAllReduce, measured.devices * measured.sharing);
    // times S, by all devices of a unit together
    const double sent = l == levels.back() && l != levels.front() && shape[l] == 2 ? 1.0 : 2.0;
    const std::int64_t messages = l == 0 ? shape[l] - 1 : doubling_steps(shape[l]);
    latency += 2.0 * static_cast<double>(messages) * level.latency.value;
    transfer = greatest(transfer, piece.scaled(sent * n * unused_links(l, shape[l]), n * out));
  }
  return PiecewiseLinear(latency) + transfer;
}

PiecewiseLinear CollectiveAlgorithmBook::direct_exchange(const GroupShape& shape) const {
  const double n = static_cast<double>(size_of(shape));
  const double start = cluster_.levels.front().latency.value;
  double meeting = 0.0;
  double inner = 1.0;
  PiecewiseLinear transfer;
  for (std::size_t l = 0; l < shape.size(); ++l) {
    const double outer = inner * static_cast<double>(shape[l]);
    if (shape[l] > 1) {
      const double peers = outer - inner;
      meeting = std::max(meeting, 2.0 * (cluster_.levels[l].latency.value - start));
      const PiecewiseLinear piece =
          piece_time(l, Collective::kAllToAll, curve(l, Collective::kAllToAll).devices);
      const double shared = inner / links_out(l, shape);
      transfer = greatest(transfer, piece.scaled(peers * shared * unused_links(l, shape[l]), n));
    }
    inner = outer;
  }
  return PiecewiseLinear(meeting + (n - 1.0) * start) + transfer;
}

PiecewiseLinear CollectiveAlgorithmBook::pipeline(Collective collective,
                                                  const GroupShape& shape) const {
  const bool broadcast = collective == Collective::kBroadcast;
  double latency = 0.0;
  PiecewiseLinear transfer;
  for (const std::size_t l : crossed(shape)) {
    const double message = cluster_.levels[l].latency.value;
    latency = broadcast ? latency + doubling_steps(shape[l]) * message : std::max(latency, message);
    const PiecewiseLinear piece = piece_time(l, collective, curve(l, collective).devices);
    const std::int64_t used = broadcast ? shape[l] : 2;  // to one other device there is one link
    transfer = greatest(transfer, piece.scaled(unused_links(l, used)));
  }
  return PiecewiseLinear(latency) + transfer;
}

// --------------------------------------------------------------------------------------- stages

/// Parts of the box that a first or last call may cover.
std::vector<GroupShape> CollectiveAlgorithmBook::stages(const GroupShape& shape) const {
  const std::vector<std::size_t> levels = crossed(shape);
  const GroupShape none(shape.size(), 1);
  std::vector<GroupShape> result;
  if (levels.size() == 1) {
    for (const std::int64_t a : radices(shape[levels[0]])) {
      result.push_back(none);
      result.back()[levels[0]] = a;
    }
    return result;
  }
  std::vector<std::vector<std::int64_t>> choices;
  std::size_t boxes = 1;
  for (const std::size_t l : levels) {
    choices.push_back(divisors(shape[l]));
    boxes *= choices.back().size();
  }
  constexpr std::size_t kMostBoxes = 256;  // beyond, a stage covers all or nothing of a level
  for (std::size_t i = 0; boxes > kMostBoxes && i < levels.size(); ++i) {
    boxes = boxes / choices[i].size() * 2;
    choices[i] = {1, shape[levels[i]]};
  }
  for (std::size_t index = 1; index + 1 < boxes; ++index) {
    GroupShape stage = none;
    std::size_t left = index;
    for (std::size_t i = 0; i < levels.size(); ++i) {
      stage[levels[i]] = choices[i][left % choices[i].size()];
      left /= choices[i].size();
    }
    result.push_back(std::move(stage));
  }
  return result;
}

/// `part` works on all of the data, `rest` on what one device of the part then has of it; the piece
/// of a device is copied once, where the data is smallest.
PiecewiseLinear CollectiveAlgorithmBook::staged(Collective collective,
                                                const GroupShape& part,
                                                const GroupShape& rest,
                                                Piece piece) {
  const double share = static_cast<double>(size_of(part));
  const auto in_place = [&](Collective c, const GroupShape& shape) -> const PiecewiseLinear& {
    return best(c, shape, Piece::kInPlace);
  };
  switch (collective) {
    case Collective::kAllGather:
    case Collective::kReduceScatter:
      return in_place(collective, part) + best(collective, rest, piece).scaled(1.0, share);
    case Collective::kAllReduce: {
      const PiecewiseLinear& whole = in_place(Collective::kAllReduce, rest);
      return least(in_place(Collective::kAllReduce, part) + whole,
                   in_place(Collective::kReduceScatter, part) + whole.scaled(1.0, share) +
                       in_place(Collective::kAllGather, part));
    }
    case Collective::kAllToAll:
      return in_place(collective, part) + in_place(collective, rest);
    case Collective::kPermute:
    case Collective::kSendReceive:
    case Collective::kBroadcast:
    case Collective::kSlice:
    case Collective::kMask:
      break;
  }
  MESHPLAN_CHECK(false);
}

}  // namespace meshplan

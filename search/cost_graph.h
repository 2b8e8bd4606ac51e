// SPDX-License-Identifier: Apache-2.0
// CostGraph: the bare optimisation problem. Every node takes one of its strategies, a strategy has
// a cost and uses memory over half-open intervals of moments, an edge adds a cost (and perhaps
// memory) per pair of strategies, and the usage at every moment must stay within the limit.
//
// Costs are whole numbers of `unit`: 1 in the contest's format; in our own, whose costs are
// seconds, a power of two, so that sums are exact. Equal rows of numbers are stored once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lib/interner.h"
#include "lib/result.h"

namespace meshplan {

/// Totals of 64-bit numbers.
__extension__ using Int128 = __int128;

/// The number in decimal.
std::string to_string(Int128 number);

/// Costs of this and more forbid what they belong to.
inline constexpr std::int64_t kForbiddenCost = 1'000'000'000'000'000'000;

/// Distinct sequences of numbers, each stored once.
class SequencePool {
 public:
  int add(std::span<const std::int64_t> values) {
    words_.assign(values.begin(), values.end());
    return interner_.number(words_).first;
  }
  std::int64_t at(int sequence, std::size_t position) const {
    return static_cast<std::int64_t>(interner_.words(sequence)[position]);
  }
  std::size_t size(int sequence) const { return interner_.words(sequence).size(); }
  int sequences() const { return interner_.size(); }

 private:
  Interner interner_;
  std::vector<std::uint64_t> words_;  ///< scratch
};

struct CostGraph {
  /// Memory used during [begin, end); `usage` has one number per strategy (or per pair).
  struct Use {
    std::int64_t begin = 0;
    std::int64_t end = 0;
    int usage = 0;  ///< sequence
  };
  struct Node {
    int costs = 0;  ///< sequence, one number per strategy
    std::vector<Use> uses;
  };
  struct Edge {
    int from = 0;
    int to = 0;
    int costs = 0;  ///< sequence, row-major: a row per strategy of `from`
    std::vector<Use> uses;
  };

  std::string name;
  bool contest = false;  ///< read from the contest's format
  double unit = 1;       ///< of costs
  SequencePool pool;
  std::vector<Node> nodes;
  std::vector<Edge> edges;
  std::optional<std::int64_t> limit;

  std::size_t strategies(std::size_t node) const { return pool.size(nodes[node].costs); }
};

/// One strategy per node.
using CostGraphAssignment = std::vector<int>;

/// What an assignment costs and uses, summed in 128 bits from the document alone.
struct CostGraphEvaluation {
  Int128 cost = 0;            ///< in units, forbidden costs included as they stand
  std::size_t forbidden = 0;  ///< how many forbidden strategies and pairs are used
  std::string first_forbidden;
  Int128 peak_usage = 0;
  std::int64_t peak_moment = 0;  ///< the first with the highest usage
  bool within_limit = true;

  bool feasible() const { return forbidden == 0 && within_limit; }
};

/// `assignment` has one strategy per node, all in range.
CostGraphEvaluation evaluate(const CostGraph& graph, const CostGraphAssignment& assignment);

/// Reads "meshplan.cost_graph/1.0" or the contest's format, plain or gzip, in one pass; "-" is
/// standard input. Errors: kInput (unreadable, not JSON), kType, kValue, kMissing, kDuplicate,
/// kOverflow, kUnsupported, with file and JSON Pointer.
Result<CostGraph> read_cost_graph(const std::string& path);

/// The same for a text; `file` is its name in errors.
Result<CostGraph> parse_cost_graph(std::string_view text, const std::string& file);

/// Reads an assignment: a JSON array of strategy numbers, alone or as "assignment" of an object
/// (what `solve --format json` prints) or as the last line of a text. Errors as above; kValue where
/// it does not suit the graph.
Result<CostGraphAssignment> parse_assignment(std::string_view text,
                                             const std::string& file,
                                             const CostGraph& graph);

}  // namespace meshplan

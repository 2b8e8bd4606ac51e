// SPDX-License-Identifier: Apache-2.0
// What `meshplan whatif` says: a sweep or a part of it as a document that can be read back and
// joined, as tables, as CSV and as a picture.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lib/result.h"
#include "plan/plan_summary.h"
#include "search/what_if.h"

namespace meshplan {

struct WhatIfCluster {
  std::string name;
  std::string fingerprint;
  friend bool operator==(const WhatIfCluster&, const WhatIfCluster&) = default;
};

/// The document meshplan.whatif/1.0.
struct WhatIfReport {
  std::string generator_version;  ///< of the meshplan that wrote it
  PlanGraph graph;
  std::map<std::string, std::string> options;  ///< under their long names with `_`
  // the axes, each with at least one place; the meaning of none is that of WhatIfSweep
  std::vector<WhatIfCluster> clusters;
  std::vector<std::optional<std::int64_t>> devices;
  std::vector<std::optional<std::int64_t>> batch;
  std::vector<std::optional<Bytes>> memory;
  std::vector<NetworkChange> network;
  std::optional<WhatIfShard> shard;  ///< none: the whole sweep
  std::vector<WhatIfPoint> points;   ///< of the shard, in the order of the grid

  WhatIfGrid grid() const;
};

/// The document; a whole sweep has efficiencies and fronts too.
std::string write_what_if(const WhatIfReport& report);

/// Errors: those of JsonDocument::parse, unknown and missing keys, wrong kinds and values, points
/// that are not those of the shard; with file and JSON Pointer.
Result<WhatIfReport> read_what_if(std::string_view text, const std::string& file);

/// The whole sweep from all of its parts, which are called `names` in errors; exactly what a run
/// without --shard makes. Errors, with file and JSON Pointer: kMissing (no part; not all parts),
/// kDuplicate, kConflict (parts of different sweeps).
Result<WhatIfReport> merge_what_if(std::vector<WhatIfReport> parts,
                                   const std::vector<std::string>& names);

/// "0.5x", "ib=0.5x".
std::string network_text(const NetworkChange& change);

/// The points, the fronts, and what is missing where nothing fits.
Summary summarise(const WhatIfReport& report);

/// RFC 4180, one line per point: seconds, bytes, fractions.
std::string what_if_csv(const WhatIfReport& report);

/// SVG 1.1: throughput and efficiency over devices, a line per cluster, batch, memory and network.
std::string what_if_plot(const WhatIfReport& report);

}  // namespace meshplan

// SPDX-License-Identifier: Apache-2.0
// Reads and finds cluster files (meshplan.cluster/1.0; every key is explained in docs/clusters.md).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cost_model/cluster.h"
#include "lib/result.h"

namespace meshplan {

/// Reads a cluster document. `file` is the name used in errors, which carry file and JSON Pointer:
/// those of JsonDocument::parse, unknown and missing keys, wrong kinds, values out of range.
Result<Cluster> parse_cluster(std::string_view text, const std::string& file);

/// The cluster of `--cluster`: a path (it has a '/' or ends in ".json"), "-" for standard input, or
/// the name of a shipped cluster. Errors: kInput (no such file; no such cluster, with the names
/// that exist) and those of parse_cluster.
Result<Cluster> load_cluster(const std::string& name_or_path);

/// The names of the shipped clusters, sorted.
std::vector<std::string> shipped_clusters();

/// The folders that are searched for shipped data, the first that has a file wins: next to the
/// installed program, the source tree, the installation prefix.
std::vector<std::string> config_folders();

/// A document that reads back as the same cluster, defaults written out. Its SHA-256 is the
/// fingerprint, so that neither formatting nor `sources` count.
std::string write_cluster(const Cluster& cluster);

}  // namespace meshplan

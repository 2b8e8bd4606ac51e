// SPDX-License-Identifier: Apache-2.0
// Cluster files: read, written and read again, resized, and asked for the price of a collective.
#include <cmath>
#include <vector>

#include "apps/cluster_reader.h"
#include "cost_model/collective_model.h"
#include "fuzz/fuzz.h"

namespace meshplan::fuzz {
namespace {

void check_prices(const Cluster& cluster) {
  const Result<CollectiveModel> model =
      CollectiveModel::make(cluster, std::vector<std::int64_t>{2, 4});
  if (!model) return check_refusal(model.error());
  for (const Collective collective :
       {Collective::kAllReduce, Collective::kAllGather, Collective::kAllToAll}) {
    double before = 0;
    for (const Bytes bytes : {Bytes{1}, Bytes{1} << 20, Bytes{1} << 40}) {
      const double time = model->time({collective, 3, bytes}).value;
      law(std::isfinite(time) && time >= before, "more bytes take no less time");
      before = time;
    }
  }
}

void check_cluster(const std::string& text) {
  const Result<Cluster> cluster = parse_cluster(text, "c.json");
  if (!cluster) return check_refusal(cluster.error());
  const std::string written = write_cluster(*cluster);
  const Result<Cluster> again = parse_cluster(written, "c.json");
  law(again.has_value(), "a cluster reads back from what is written");
  law(write_cluster(*again) == written, "a cluster is written the same again");
  law(again->fingerprint == cluster->fingerprint, "fingerprints do not depend on formatting");
  law(cluster->devices() >= 1 && cluster->devices() <= kMaxDevices, "a cluster has devices");
  for (const std::int64_t count : {1, 2, 8, 1000}) {
    const Result<Cluster> resized = cluster->resized(count);
    if (!resized) {
      check_refusal(resized.error());
    } else {
      law(resized->devices() == count, "a cluster has the devices that were asked for");
      if (count == 8) check_prices(*resized);
    }
  }
}

}  // namespace
}  // namespace meshplan::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  meshplan::fuzz::check_cluster(meshplan::fuzz::input_text(data, size));
  return 0;
}

// SPDX-License-Identifier: Apache-2.0
#include "apps/cluster_reader.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

#include "cost_model/collective_model.h"
#include "cost_model/compute_model.h"
#include "support/catch.h"

namespace meshplan::cluster_reader_test {

namespace {

const std::string kMinimal = R"({
  "schema": "meshplan.cluster/1.0",
  "name": "small",
  "device": {"name": "A", "memory": "80GiB", "memory_bandwidth": "2039GB/s", "peak_flops": {"bf16": "312TFLOPS"}},
  "levels": [{"name": "nvlink", "size": 8, "bandwidth": "300GB/s", "latency": "3us"}]
})";

Cluster read(const std::string& text) {
  Result<Cluster> cluster = parse_cluster(text, "c.json");
  INFO((cluster ? "" : to_string(cluster.error())));
  REQUIRE(cluster.has_value());
  return *cluster;
}

/// The document with one piece of text replaced.
std::string with(const std::string& from, const std::string& to, std::string text = kMinimal) {
  const std::size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

std::string with_efficiency(const std::string& efficiency) {
  return with("\"levels\"", "\"efficiency\": " + efficiency + ", \"levels\"");
}

std::string error_of(const std::string& text) {
  const Result<Cluster> cluster = parse_cluster(text, "c.json");
  REQUIRE_FALSE(cluster.has_value());
  CHECK(cluster.error().code != ErrorCode::kUsage);  // exit code 3
  return to_string(cluster.error());
}

void check_error(const std::string& text, const std::string& where, const std::string& message) {
  const std::string error = error_of(text);
  INFO(error);
  CHECK(error.rfind("c.json" + (where.empty() ? "" : ": " + where) + ":", 0) == 0);
  CHECK(error.find(message) != std::string::npos);
  CHECK(error.find('\n') == std::string::npos);
}

std::string file_content(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

}  // namespace

TEST_CASE("a minimal cluster file has the documented defaults", "[cluster_reader]") {
  const Cluster cluster = read(kMinimal);
  CHECK(cluster.name == "small");
  CHECK(cluster.devices() == 8);
  CHECK(cluster.device.memory == Bytes{80} << 30);
  CHECK(cluster.device.reserved_memory == 0);
  CHECK(cluster.usable_memory() == cluster.device.memory);
  CHECK(cluster.device.memory_bandwidth == 2039e9);
  CHECK(cluster.device.peak_flops.at(DType::kBf16) == 312e12);
  CHECK(cluster.levels[0].bandwidth == 300e9);
  CHECK(cluster.levels[0].latency.value == 3e-6);
  CHECK(cluster.levels[0].oversubscription == 1.0);
  CHECK(cluster.efficiency.of(OperatorFamily::kMatMul) == FamilyEfficiency{0.7, 0.7});
  CHECK(cluster.efficiency.overlap == Overlap{0.8, 0.8, 0.8, 0.0, 0.0});
  CHECK(cluster.efficiency.bucket_bytes == 25'000'000);
  CHECK(cluster.efficiency.launch_overhead.value == 4e-6);
  CHECK(cluster.efficiency.attention_backward_factor == 2.5);
  CHECK(cluster.efficiency.reduce_dtype == DType::kFp32);
  CHECK_FALSE(cluster.price_per_device_hour.has_value());
}

TEST_CASE("every key of a cluster file is read", "[cluster_reader]") {
  const Cluster cluster = read(R"({
    "schema": "meshplan.cluster/1.0", "name": "full",
    "device": {"name": "A", "memory": 1000, "reserved_memory": 100, "memory_bandwidth": 1e12,
               "peak_flops": {"bf16": 1e14, "fp8": "2e14", "tf32": "156TFLOPS", "int8": "600TFLOPS"}},
    "levels": [{"name": "a", "size": 4, "bandwidth": "100GB/s", "latency": 0},
               {"name": "b", "size": 2, "bandwidth": "200Gbit/s", "latency": "5us", "oversubscription": 2,
                "collectives": {"1MiB": 0.5, "all_reduce": {"1MiB": 0.6, "8MiB": "90%"}}}],
    "efficiency": {"flops": {"matmul": 0.8, "other": "50%"}, "memory": {"elementwise": 0.9, "optimizer": 0.6},
      "matmul_half": {"m": 1, "n": 2, "k": 3},
      "matmul_alignment": {"elements": 32, "eighths": 0.75, "odd": 0.5}, "use_tf32": true, "launch_overhead": "1us",
      "collective_overhead": "2us", "collectives": {"64KiB": 0.1, "1GiB": 1},
      "overlap": {"gradient": 0.1, "gather": 0.2, "ring": 0.3, "activation": 0.4, "expert": 0.5},
      "bucket_bytes": "1MB", "allocator_reserve": 0.05, "reduce_dtype": "bf16", "attention_backward": 2},
    "measurements": [{"operator": "MatMul", "inputs": [[64, 32], [32, 16]], "dtype": "bf16", "forward": "3us",
                      "backward": "6us"},
                     {"operator": "Clip", "inputs": [[64], [], [1]], "dtype": "fp32", "forward": 1e-6}],
    "price_per_device_hour": 2.5, "sources": {"device": "a data sheet"}
  })");
  CHECK(cluster.usable_memory() == 900);
  CHECK(cluster.device.peak_flops.at(DType::kFp8E5M2) == 2e14);
  CHECK(cluster.device.peak_flops.at(DType::kInt8) == 6e14);
  CHECK(cluster.device.tf32_peak_flops == 156e12);
  CHECK(cluster.levels[1].effective_bandwidth() == 12.5e9);
  REQUIRE(cluster.levels[1].collectives.has_value());
  CHECK(cluster.levels[1].collectives->of(Collective::kAllReduce).points.size() == 2);
  CHECK(cluster.levels[1].collectives->of(Collective::kAllGather).points.size() == 1);
  const Efficiency& e = cluster.efficiency;
  CHECK(e.of(OperatorFamily::kMatMul) == FamilyEfficiency{0.8, 0.7});
  CHECK(e.of(OperatorFamily::kOther) == FamilyEfficiency{0.5, 0.7});
  CHECK(e.of(OperatorFamily::kElementwise) == FamilyEfficiency{0.7, 0.9});
  CHECK(e.optimizer_memory == 0.6);
  CHECK(e.matmul_half == MatMulSaturation{1, 2, 3});
  CHECK(e.matmul_alignment == MatMulAlignment{32, 0.75, 0.5});
  CHECK(e.use_tf32);
  CHECK(e.launch_overhead.value == 1e-6);
  CHECK(e.collective_overhead.value == 2e-6);
  CHECK(e.collectives.common ==
        BandwidthCurve{{{65536, 0.1}, {Bytes{1} << 30, 1.0}}, cluster.levels[0].size, 1});
  CHECK(e.overlap == Overlap{0.1, 0.2, 0.3, 0.4, 0.5});
  CHECK(e.bucket_bytes == 1'000'000);
  CHECK(e.allocator_reserve == 0.05);
  CHECK(e.reduce_dtype == DType::kBf16);
  CHECK(e.attention_backward_factor == 2.0);
  REQUIRE(cluster.measurements.size() == 2);
  CHECK(cluster.measurements[0].type == "MatMul");
  CHECK(cluster.measurements[0].inputs ==
        std::vector<std::vector<std::int64_t>>{{64, 32}, {32, 16}});
  CHECK(cluster.measurements[0].dtype == DType::kBf16);
  CHECK(cluster.measurements[0].forward.value == 3e-6);
  CHECK(cluster.measurements[0].backward->value == 6e-6);
  CHECK(cluster.measurements[1].inputs[1].empty());
  CHECK_FALSE(cluster.measurements[1].backward.has_value());
  CHECK(cluster.price_per_device_hour == 2.5);

  // what is written reads back as the same cluster
  const Cluster again = read(write_cluster(cluster));
  CHECK(write_cluster(again) == write_cluster(cluster));
  CHECK(again.fingerprint == cluster.fingerprint);
}

TEST_CASE("the fingerprint covers what a cluster is, not how it is written", "[cluster_reader]") {
  const Cluster cluster = read(kMinimal);
  CHECK(cluster.fingerprint.rfind("sha256:", 0) == 0);
  CHECK(cluster.fingerprint.size() == 7 + 64);
  CHECK(read(with("80GiB", "81920MiB")).fingerprint == cluster.fingerprint);
  CHECK(read(with("\"levels\"", "\"sources\": {\"name\": \"me\"}, \"levels\"")).fingerprint ==
        cluster.fingerprint);
  CHECK(read(with_efficiency("{}")).fingerprint == cluster.fingerprint);
  CHECK(read(with("80GiB", "40GiB")).fingerprint != cluster.fingerprint);
  CHECK(read(with("3us", "4us")).fingerprint != cluster.fingerprint);
  CHECK(read(with_efficiency(R"({"flops": {"matmul": 0.71}})")).fingerprint != cluster.fingerprint);
}

TEST_CASE("faults of a cluster file are named with their place", "[cluster_reader]") {
  check_error("{", "", "");
  check_error("[]", "", "expected an object");
  check_error("{}", "", "schema");
  check_error(with("cluster/1.0", "graph/1.0"), "/schema", "meshplan.cluster");
  check_error(with("cluster/1.0", "cluster/2.0"), "/schema", "");
  check_error(with("\"name\": \"small\"", "\"nam\": \"small\""), "/nam", "did you mean \"name\"");
  check_error(with("\"name\": \"small\",", ""), "", "name");
  check_error(with("\"name\": \"small\"", "\"name\": 5"), "/name", "expected a string");
  check_error(with("80GiB", "80 G"), "/device/memory", "");
  check_error(with("80GiB", "0GiB"), "/device/memory", "at least 1 byte");
  check_error(with("80GiB", "-1GiB"), "/device/memory", "");
  check_error(with("80GiB", "80Gib"), "/device/memory", "");
  check_error(with("\"80GiB\"", "\"80GiB\", \"reserved_memory\": \"80GiB\""),
              "/device/reserved_memory",
              "less than");
  check_error(with("2039GB/s", "0GB/s"), "/device/memory_bandwidth", "from 1 to 1e30 per second");
  check_error(
      with("2039GB/s", "1e300B/s"), "/device/memory_bandwidth", "from 1 to 1e30 per second");
  check_error(with("2039GB/s", "2039GB"), "/device/memory_bandwidth", "");
  check_error(with("bf16", "bf61"), "/device/peak_flops/bf61", "did you mean \"bf16\"");
  check_error(with("{\"bf16\": \"312TFLOPS\"}", "{}"), "/device/peak_flops", "at least one dtype");
  check_error(with("{\"bf16\": \"312TFLOPS\"}", "[]"), "/device/peak_flops", "expected an object");
  check_error(with("312TFLOPS", "-1"), "/device/peak_flops/bf16", "");
  check_error(with("\"size\": 8", "\"size\": 0"), "/levels/0/size", "");
  check_error(with("\"size\": 8", "\"size\": 8.5"), "/levels/0/size", "");
  check_error(with("\"size\": 8", "\"size\": 9999999"), "/levels/0/size", "");
  check_error(with("300GB/s", "NaN"), "/levels/0/bandwidth", "");
  check_error(with("\"300GB/s\"", "NaN"), "", "");
  check_error(with("\"300GB/s\"", "1e400"), "", "");
  check_error(with("3us", "3 parsec"), "/levels/0/latency", "");
  check_error(with("\"3us\"", "\"3us\", \"oversubscription\": 0.5"),
              "/levels/0/oversubscription",
              "from 1 to 1e6");
  check_error(with("\"3us\"", "\"3us\", \"oversubscription\": 1e300"),
              "/levels/0/oversubscription",
              "from 1 to 1e6");
  check_error(with("\"3us\"", "\"3us\", \"oversubscribtion\": 2"),
              "/levels/0/oversubscribtion",
              "did you mean \"oversubscription\"");
  const std::string level =
      R"({"name": "nvlink", "size": 8, "bandwidth": "300GB/s", "latency": "3us"})";
  check_error(with(level, ""), "/levels", "1 to 8 levels");
  check_error(with(level, level + "," + level), "/levels/1", "another level");
  const std::string huge =
      R"({"name": "x", "size": 1000000, "bandwidth": "1GB/s", "latency": "3us"})";
  check_error(with(level, level + "," + huge), "/levels/1", "more than 1048576 devices");
  check_error(with("\"size\": 8", "\"size\": 8, \"size\": 8"), "/levels/0/size", "");
  check_error(std::string(10'000, '['), "", "");
}

TEST_CASE("faults of the efficiency section are named with their place", "[cluster_reader]") {
  const auto check =
      [](const std::string& efficiency, const std::string& where, const std::string& message) {
        check_error(with_efficiency(efficiency), "/efficiency" + where, message);
      };
  check("5", "", "expected an object");
  check(R"({"flop": {}})", "/flop", "did you mean \"flops\"");
  check(R"({"flops": {"matmull": 0.5}})", "/flops/matmull", "did you mean \"matmul\"");
  check(R"({"flops": {"view": 0.5}})", "/flops/view", "unknown operator family");
  check(R"({"flops": {"optimizer": 0.5}})", "/flops/optimizer", "unknown operator family");
  check(R"({"flops": {"matmul": 0}})", "/flops/matmul", "above 0 and at most 1");
  check(R"({"memory": {"matmul": 1.5}})", "/memory/matmul", "above 0 and at most 1");
  check(R"({"matmul_half": {"m": -1}})", "/matmul_half/m", "");
  check(R"({"matmul_alignment": {"odd": 0}})", "/matmul_alignment/odd", "");
  check(R"({"use_tf32": 1})", "/use_tf32", "");
  check(R"({"launch_overhead": "2h"})", "/launch_overhead", "at most one hour");
  check(R"({"overlap": {"gradients": 0.5}})", "/overlap/gradients", "did you mean \"gradient\"");
  check(R"({"overlap": {"gradient": 1.1}})", "/overlap/gradient", "from 0 to 1");
  check(R"({"bucket_bytes": 0})", "/bucket_bytes", "at least 1 byte");
  check(R"({"allocator_reserve": 1})", "/allocator_reserve", "from 0 to 0.9");
  check(R"({"reduce_dtype": "int8"})", "/reduce_dtype", "floating-point");
  check(R"({"reduce_dtype": "fp33"})", "/reduce_dtype", "did you mean \"fp32\"");
  check(R"({"collectives": {"1MiB": 0}})", "/collectives/1MiB", "above 0");
  check(R"({"collectives": {"1MiB": 0.5, "1048576": 0.6}})", "/collectives", "two fractions");
  check(R"({"collectives": {"1MiB": 0.5, "2MiB": 0.4}})", "/collectives", "falls at 2097152 bytes");
  check(R"({"collectives": {"1MiB": 0.1, "2MiB": 0.5}})",
        "/collectives",
        "faster than a smaller message");
  check(R"({"collectives": {"allreduce": {}}})",
        "/collectives/allreduce",
        "did you mean \"all_reduce\"");
  check(R"({"collectives": {"all_reduce": {"all_gather": {}}}})",
        "/collectives/all_reduce/all_gather",
        "message size");
}

TEST_CASE("faults of the measurements are named with their place", "[cluster_reader]") {
  const std::string right =
      R"({"operator": "Add", "inputs": [[4], [4]], "dtype": "bf16", "forward": "3us"})";
  const auto check = [&](const std::string& list, const char* where, const char* message) {
    check_error(with("\"name\": \"small\"", "\"name\": \"small\", \"measurements\": " + list),
                "/measurements" + std::string(where),
                message);
  };
  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string text = right;
    text.replace(text.find(from), from.size(), to);
    return "[" + text + "]";
  };
  check("{}", "", "expected an array");
  check("[5]", "/0", "expected an object");
  check(changed("\"operator\"", "\"type\""), "/0/type", "unknown key");
  check(changed("[[4], [4]]", "4"), "/0/inputs", "expected an array");
  check(changed("[[4], [4]]", "[[4], [4.5]]"), "/0/inputs/1/0", "expected an integer");
  check(changed("[[4], [4]]", "[]"),
        "/0/inputs",
        "expected the local shape of every operand, found an empty list");
  check(changed("[[4], [4]]", "[[4], [8, 0]]"),
        "/0/inputs/1/1",
        "expected a size of at least 1, found 0");
  check(changed("[[4], [4]]", "[[-4], [4]]"),
        "/0/inputs/0/0",
        "expected a size of at least 1, found -4");
  check(changed("Add", "MatMull"),
        "/0/operator",
        "unknown operator type \"MatMull\"; did you mean \"MatMul\"?");
  check(changed("Add", "FusedMlp"),
        "/0/operator",
        "unknown operator type \"FusedMlp\"; of a type that graphs declare by rule, say "
        "\"custom\": true");
  check(changed("\"Add\"", "\"Add\", \"custom\": 1"), "/0/custom", "expected true or false");
  check(changed("bf16", "bf61"), "/0/dtype", "did you mean \"bf16\"");
  check(changed("3us", "3 metres"), "/0/forward", "");
  check(changed("\"3us\"", "-1"), "/0/forward", "");
  check(changed("\"3us\"", "\"3us\", \"backward\": \"1GB\""), "/0/backward", "");
  check("[" + right + ", " + right + "]", "/1", "another measurement of \"Add\"");
}

TEST_CASE("a type that graphs declare by rule can be measured", "[cluster_reader]") {
  const Result<Cluster> cluster =
      parse_cluster(with("\"name\": \"small\"",
                         R"("name": "small", "measurements": [{"operator": "FusedMlp",
                            "custom": true, "inputs": [[4, 8], []], "dtype": "bf16",
                            "forward": "3us"}])"),
                    "c.json");
  if (!cluster) FAIL(to_string(cluster.error()));
  REQUIRE(cluster->measurements.size() == 1);
  CHECK(cluster->measurements[0].type == "FusedMlp");
  CHECK(cluster->measurements[0].inputs == std::vector<std::vector<std::int64_t>>{{4, 8}, {}});
  const Result<Cluster> again = parse_cluster(write_cluster(*cluster), "c.json");
  if (!again) FAIL(to_string(again.error()));
  CHECK(again->fingerprint == cluster->fingerprint);
}

TEST_CASE("no text makes the cluster reader fail badly", "[cluster_reader]") {
  const std::uint64_t seed = 99;
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 3000; ++round) {
    std::string text = kMinimal;
    for (std::uint64_t edits = 1 + random() % 3; edits > 0; --edits) {
      const std::size_t at = random() % text.size();
      if (random() % 2 == 0) {
        text[at] = static_cast<char>(random() % 128);
      } else {
        text.erase(at, random() % 10);
      }
    }
    const Result<Cluster> cluster = parse_cluster(text, "c.json");
    if (!cluster) CHECK_FALSE(cluster.error().message.empty());
  }
}

TEST_CASE("how a level is wired and reduces, and what its curves were measured on",
          "[cluster_reader]") {
  const std::string text = R"json({
  "schema": "meshplan.cluster/1.0", "name": "two",
  "device": {"name": "A", "memory": "80GiB", "memory_bandwidth": "2TB/s", "peak_flops": {"bf16": "312TFLOPS"}},
  "levels": [{"name": "mesh", "size": 8, "bandwidth": "70GB/s", "latency": "1us", "wiring": "fully_connected",
              "in_network_all_reduce": {"bandwidth": "40GB/s", "latency": "20us"}},
             {"name": "net", "size": 4, "bandwidth": "25GB/s", "latency": "12us", "group_bandwidth": "100GB/s",
              "collectives": {"devices": 16, "1MiB": 0.5, "all_gather": {"devices": 2, "1MiB": 0.6},
                              "all_reduce": {"1MiB": 0.7}, "send_receive": {"1MiB": 0.8}}}],
  "efficiency": {"algorithms": ["ring", "staged"], "own_piece_bandwidth": "900GB/s", "collectives": {"1MiB": 0.5}}})json";
  const Cluster cluster = read(text);
  CHECK(cluster.levels[0].wiring == Wiring::kFullyConnected);
  CHECK(cluster.levels[0].in_network_all_reduce == InNetworkReduction{40e9, {20e-6}});
  CHECK(cluster.levels[1].wiring == Wiring::kSwitch);
  CHECK(cluster.levels[1].group_bandwidth == 100e9);
  CHECK(cluster.efficiency.algorithms == CollectiveAlgorithms{false, true});
  CHECK(cluster.efficiency.own_piece_bandwidth == 900e9);
  CHECK(cluster.efficiency.collectives.common.devices == 8);  // those of a node
  const CollectiveCurves& outer = *cluster.levels[1].collectives;
  const auto measured_on = [&](Collective c) {
    return std::make_pair(outer.of(c).devices, outer.of(c).sharing);
  };
  CHECK(measured_on(Collective::kAllToAll) == std::make_pair(std::int64_t{16}, std::int64_t{8}));
  CHECK(measured_on(Collective::kAllGather) == std::make_pair(std::int64_t{2}, std::int64_t{1}));
  CHECK(measured_on(Collective::kAllReduce) == std::make_pair(std::int64_t{32}, std::int64_t{8}));
  CHECK(measured_on(Collective::kSendReceive) == std::make_pair(std::int64_t{1}, std::int64_t{1}));
  const Cluster again = read(write_cluster(cluster));
  CHECK(again.fingerprint == cluster.fingerprint);
  CHECK(again.levels[1].collectives == cluster.levels[1].collectives);
  CHECK(again.efficiency.algorithms == cluster.efficiency.algorithms);

  check_error(
      with("fully_connected", "fuly_connected", text), "/levels/0/wiring", "fully_connected");
  check_error(with("\"staged\"", "\"stage\"", text), "/efficiency/algorithms/1", "\"staged\"");
  check_error(
      with("\"devices\": 16", "\"devices\": 0", text), "/levels/1/collectives/devices", "1");
  check_error(
      with(", \"latency\": \"20us\"", "", text), "/levels/0/in_network_all_reduce", "latency");
  check_error(with("\"group_bandwidth\": \"100GB/s\"", "\"group_bandwidth\": 0", text),
              "/levels/1/group_bandwidth",
              "rate");
}

TEST_CASE("every shipped cluster is valid, sourced and resizable", "[cluster_reader]") {
  const std::filesystem::path folder = std::string(MESHPLAN_SOURCE_DIR) + "/configs/clusters";
  std::size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    INFO(entry.path().string());
    CHECK(entry.path().extension() == ".json");
    const std::string text = file_content(entry.path());
    const Result<Cluster> cluster = parse_cluster(text, entry.path().string());
    INFO((cluster ? "" : to_string(cluster.error())));
    REQUIRE(cluster.has_value());
    CHECK(cluster->name == entry.path().stem().string());
    CHECK(text.find("\"sources\"") != std::string::npos);
    for (const char* key : {"device.memory_bandwidth",
                            "device.peak_flops",
                            "bandwidth\"",
                            "latency\"",
                            "efficiency.flops",
                            "efficiency.memory",
                            "efficiency.collectives"}) {
      CHECK(text.find(key, text.find("\"sources\"")) != std::string::npos);
    }
    for (const std::int64_t n : {1, 2, 4, 8, 16, 512, 4096}) {
      const Result<Cluster> resized = cluster->resized(n);
      REQUIRE(resized.has_value());
      CHECK(resized->devices() == n);
    }
    // plausible: a large product takes longer than a small one, a gigabyte over the network a while
    const ComputeModel compute(*cluster);
    const double product = compute
                               .roofline(OperatorFamily::kMatMul,
                                         2.0 * 8192 * 8192 * 8192,
                                         4e8,
                                         DType::kFp16,
                                         MatMulDims{8192, 8192, 8192})
                               .value;
    CHECK(product > 1e-3);
    CHECK(product < 1e-1);
    const std::vector<std::int64_t> shape = {cluster->devices()};
    const Result<CollectiveModel> collectives = CollectiveModel::make(*cluster, shape);
    REQUIRE(collectives.has_value());
    const double gather = collectives->time({Collective::kAllGather, 1, Bytes{1} << 30}).value;
    CHECK(gather > 1e-3);
    CHECK(gather < 1.0);
    ++files;
  }
  CHECK(files >= 4);
}

TEST_CASE("a cluster is found by name or path", "[cluster_reader]") {
  const std::vector<std::string> names = shipped_clusters();
  for (const char* name : {"dgx-a100-40g", "dgx-a100-80g", "dgx-h100", "dgx-v100-32g"}) {
    CHECK(std::find(names.begin(), names.end(), name) != names.end());
    const Result<Cluster> cluster = load_cluster(name);
    REQUIRE(cluster.has_value());
    CHECK(cluster->name == name);
    CHECK(cluster->devices() == 128);
  }
  const Result<Cluster> by_path =
      load_cluster(std::string(MESHPLAN_SOURCE_DIR) + "/configs/clusters/dgx-h100.json");
  REQUIRE(by_path.has_value());
  CHECK(by_path->fingerprint == load_cluster("dgx-h100")->fingerprint);

  const Result<Cluster> typo = load_cluster("dgx-a100-80");
  REQUIRE_FALSE(typo.has_value());
  CHECK(typo.error().code == ErrorCode::kInput);
  CHECK(typo.error().message.find("did you mean \"dgx-a100-80g\"") != std::string::npos);
  CHECK(typo.error().message.find("dgx-v100-32g") != std::string::npos);
  for (const char* bad : {"", "..", "./missing.json", "/", "nothing.json"}) {
    const Result<Cluster> missing = load_cluster(bad);
    REQUIRE_FALSE(missing.has_value());
    CHECK(missing.error().code == ErrorCode::kInput);
  }
}

}  // namespace meshplan::cluster_reader_test

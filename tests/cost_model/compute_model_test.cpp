// SPDX-License-Identifier: Apache-2.0
#include "cost_model/compute_model.h"

#include "support/catch.h"
#include "test_clusters.h"

namespace meshplan::compute_model_test {

namespace {

Cluster device() { return test::cluster({test::level(1, 1, 0)}); }

}  // namespace

TEST_CASE("the slower of computing and moving data counts", "[compute]") {
  const ComputeModel model(device());
  // 100 TFLOPS and 1 TB/s
  CHECK(model.roofline(OperatorFamily::kMatMul, 2e12, 1e9, DType::kBf16).value == Approx(0.02));
  CHECK(model.roofline(OperatorFamily::kMatMul, 1e9, 2e12, DType::kBf16).value == Approx(2.0));
  // vector work runs at the fp32 rate whatever the type
  CHECK(model.roofline(OperatorFamily::kElementwise, 1e13, 1, DType::kBf16).value == Approx(1.0));
  CHECK(model.memory_pass(OperatorFamily::kElementwise, 5e11).value == Approx(0.5));
  CHECK(model.optimizer_time(5e11).value == Approx(0.5));
}

TEST_CASE("efficiencies and the launch overhead are applied", "[compute]") {
  Cluster cluster = device();
  cluster.efficiency.families[static_cast<std::size_t>(OperatorFamily::kMatMul)] = {0.5, 0.8};
  cluster.efficiency.launch_overhead = {4e-6};
  const ComputeModel model(cluster);
  CHECK(model.roofline(OperatorFamily::kMatMul, 1e12, 1, DType::kBf16).value ==
        Approx(0.02 + 4e-6));
  CHECK(model.roofline(OperatorFamily::kMatMul, 1, 8e11, DType::kBf16).value == Approx(1.0 + 4e-6));
  CHECK(model.roofline(OperatorFamily::kView, 1e12, 1e12, DType::kBf16).value == 0.0);
  CHECK(model.roofline(OperatorFamily::kOther, 0, 0, DType::kBf16).value == 0.0);
  CHECK(model.roofline(OperatorFamily::kOther, 1, 0, DType::kBf16).value ==
        Approx(4e-6).epsilon(1e-5));
}

TEST_CASE("products saturate in each of their dimensions", "[compute]") {
  Cluster cluster = device();
  cluster.efficiency.matmul_half = {64, 128, 256};
  const ComputeModel model(cluster);
  CHECK(model.saturation({64, 128, 256}) == Approx(0.125));
  CHECK(model.saturation({192, 128, 256}) == Approx(0.75 * 0.25));
  const auto time = [&](std::int64_t m, std::int64_t n, std::int64_t k) {
    const double flops = 2.0 * static_cast<double>(m * n * k);
    return model.roofline(OperatorFamily::kMatMul, flops, 0, DType::kBf16, MatMulDims{m, n, k})
        .value;
  };
  // halving a dimension less than halves the time: what tensor parallelism costs
  CHECK(time(4096, 4096, 4096) < 2 * time(4096, 2048, 4096));
  CHECK(time(4096, 4096, 4096) > time(4096, 2048, 4096));
  CHECK(time(4096, 4096, 4096) < 2 * time(4096, 4096, 2048));
}

TEST_CASE("a type without a peak of its own runs as the next one that holds its values",
          "[compute]") {
  Cluster cluster = device();
  cluster.device.peak_flops = {{DType::kFp16, 125e12}, {DType::kFp32, 15e12}};
  const ComputeModel v100(cluster);
  CHECK(v100.peak_flops(OperatorFamily::kMatMul, DType::kFp16) == 125e12);
  CHECK(v100.peak_flops(OperatorFamily::kMatMul, DType::kBf16) == 15e12);
  CHECK(v100.peak_flops(OperatorFamily::kMatMul, DType::kFp8E4M3) == 125e12);
  CHECK(v100.peak_flops(OperatorFamily::kMatMul, DType::kFp64) == 15e12);
  CHECK(v100.peak_flops(OperatorFamily::kNormalization, DType::kFp16) == 15e12);

  cluster.device.peak_flops = {{DType::kBf16, 300e12}, {DType::kFp32, 20e12}};
  cluster.device.tf32_peak_flops = 150e12;
  CHECK(ComputeModel(cluster).peak_flops(OperatorFamily::kMatMul, DType::kFp32) == 20e12);
  cluster.efficiency.use_tf32 = true;
  CHECK(ComputeModel(cluster).peak_flops(OperatorFamily::kMatMul, DType::kFp32) == 150e12);
  CHECK(ComputeModel(cluster).peak_flops(OperatorFamily::kElementwise, DType::kFp32) == 20e12);
}

TEST_CASE("prices of computation are on the price grid", "[compute]") {
  const ComputeModel model(device());
  for (double flops = 1; flops < 1e15; flops *= 7.3) {
    const Seconds time = model.roofline(OperatorFamily::kMatMul, flops, flops / 3, DType::kBf16);
    CHECK(on_price_grid(time) == time);
  }
}

}  // namespace meshplan::compute_model_test

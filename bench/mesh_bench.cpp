// SPDX-License-Identifier: Apache-2.0
// Device meshes and layouts: a mesh of 1,048,576 devices, the conversions of the hot path, and
// 100,000 batch requests of `meshplan mesh`. Counts what is allocated.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <new>
#include <string>
#include <vector>

#include "apps/command.h"
#include "lib/device_mesh.h"
#include "lib/layout.h"

namespace {

std::size_t allocations = 0;
std::size_t allocated_bytes = 0;

}  // namespace

void* operator new(std::size_t size) {
  ++allocations;
  allocated_bytes += size;
  if (void* memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t /*size*/) noexcept { std::free(memory); }

namespace {

using meshplan::DeviceMesh;
using meshplan::Layout;

/// Processor time of this single thread; unlike the clock on the wall, other programs cost none.
double cpu_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

/// Time and allocations of `work`, per call of `calls`.
template <class Work>
void measure(const char* what, int calls, const Work& work) {
  allocations = allocated_bytes = 0;
  const double begin = cpu_seconds();
  for (int i = 0; i < calls; ++i) work(i);
  const double time = cpu_seconds() - begin;
  std::printf("%-46s %12.3f us %10.1f allocations %12.0f bytes\n",
              what,
              time / calls * 1e6,
              static_cast<double>(allocations) / calls,
              static_cast<double>(allocated_bytes) / calls);
}

/// Something that the optimiser cannot drop.
std::int64_t sink = 0;

/// 100,000 requests of all kinds as a batch file.
void write_requests(const std::filesystem::path& path) {
  std::ofstream file(path);
  const std::string mesh = R"({"mesh":{"shape":[2,4,8],"axes":["dp","cp","tp"]},"rank":)";
  for (int i = 0; i < 100000; ++i) {
    file << (i == 0 ? "[\n" : ",\n") << mesh << i % 64 << ',';
    switch (i % 5) {
      case 0:
        file << R"("op":"slice","axes":["dp","tp"]})";
        break;
      case 1:
        file << R"("op":"group","axis":"dp_cp"})";
        break;
      case 2:
        file << R"("op":"coordinates"})";
        break;
      case 3:
        file << R"("op":"flatten","axes":["cp","tp"],"name":"x"})";
        break;
      default:
        file << R"~("op":"layout","shape":[64,128],"placements":["SS(0,8)","R","S(0)"]})~";
        break;
    }
  }
  file << "\n]\n";
}

void batch() {
  const std::filesystem::path folder = std::filesystem::temp_directory_path();
  const std::filesystem::path requests = folder / "meshplan_mesh_bench_requests.json";
  const std::filesystem::path answers = folder / "meshplan_mesh_bench_answers.json";
  write_requests(requests);
  const std::string in = requests.string();
  const std::string out = answers.string();
  const std::vector<const char*> arguments = {
      "meshplan", "mesh", "--batch", in.c_str(), "-o", out.c_str()};
  const double begin = cpu_seconds();
  const int code = meshplan::run_meshplan(static_cast<int>(arguments.size()), arguments.data());
  const double time = cpu_seconds() - begin;
  std::printf("%-46s %12.3f s, exit code %d, %ju bytes of answers\n",
              "100,000 batch requests",
              time,
              code,
              static_cast<std::uintmax_t>(std::filesystem::file_size(answers)));
  std::filesystem::remove(requests);
  std::filesystem::remove(answers);
}

}  // namespace

int main() {
  const std::vector<std::string> axes = {"dp", "cp", "tp"};
  measure("build 1024x32x32", 1000, [&](int /*i*/) {
    sink += DeviceMesh::make({1024, 32, 32}, axes)->size();
  });
  const DeviceMesh mesh = *DeviceMesh::make({1024, 32, 32}, axes);
  const auto rank = [](int i) { return static_cast<std::int64_t>(i) * 1048573 % 1048576; };
  measure("  coordinates of a rank", 100000, [&](int i) {
    sink += mesh.coordinates(rank(i))->front();
  });
  measure("  slice (dp, tp) at a rank", 20000, [&](int i) {
    sink += mesh.slice({"dp", "tp"}, rank(i))->size();
  });
  for (const char* axis : {"dp", "cp", "tp"}) {
    measure((std::string("  group of a rank along ") + axis).c_str(), 20000, [&](int i) {
      sink += mesh.group(axis, rank(i))->back();
    });
  }
  measure("  flatten (cp, tp), group of a rank", 20000, [&](int i) {
    sink += mesh.slice({"cp", "tp"}, rank(i))->flatten()->rank_at(1023);
  });
  measure("  hash", 1, [&](int /*i*/) { sink += static_cast<std::int64_t>(mesh.hash()); });
  measure("  every group along cp (all ranks listed)", 1, [&](int /*i*/) {
    sink += static_cast<std::int64_t>(mesh.groups("cp")->size());
  });
  std::vector<std::int64_t> shuffled(1048576);
  for (std::size_t i = 0; i < shuffled.size(); ++i) shuffled[i] = rank(static_cast<int>(i));
  measure("build 1024x32x32 of an own rank list", 1, [&](int /*i*/) {
    sink += DeviceMesh::make({1024, 32, 32}, axes, shuffled)->size();
  });

  const meshplan::Placements placements = *meshplan::parse_placements("SS(0,32),P(sum),S(0)");
  const meshplan::TensorMap map = {{0, 2}, {}, {1}};
  const Layout layout = *Layout::from_placements(mesh, placements, 3);
  constexpr int kMany = 1000000;
  measure("placements -> layout", kMany, [&](int /*i*/) {
    sink += Layout::from_placements(mesh, placements, 3)->rank();
  });
  measure("tensor map -> layout", kMany, [&](int /*i*/) {
    sink += Layout::from_tensor_map(mesh, map)->rank();
  });
  measure("layout -> placements", kMany, [&](int /*i*/) {
    for (int axis = 0; axis < 3; ++axis) sink += meshplan::is_shard(layout.placement(axis)) ? 1 : 0;
  });
  measure("layout -> axes of every dimension", kMany, [&](int /*i*/) {
    for (int dim = 0; dim < 3; ++dim) sink += static_cast<std::int64_t>(layout.axes_of(dim).size());
  });
  measure("slice of a device", kMany, [&](int i) {
    sink += layout.slice_of(0, 1 << 20, rank(i)).begin;
  });
  measure("hash and copy of a layout", kMany, [&](int /*i*/) {
    const Layout copy = layout;
    sink += static_cast<std::int64_t>(copy.hash());
  });
  batch();
  return sink == 42 ? 1 : 0;
}

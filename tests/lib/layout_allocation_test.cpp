// SPDX-License-Identifier: Apache-2.0
// The conversions of the hot path allocate nothing. Counts what this test program allocates.
#include <atomic>
#include <cstdlib>
#include <new>

#include "lib/layout.h"
#include "support/catch.h"

namespace {

std::atomic<std::size_t> allocations = 0;

}  // namespace

void* operator new(std::size_t size) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}
void* operator new(std::size_t size, const std::nothrow_t& /*tag*/) noexcept {
  allocations.fetch_add(1, std::memory_order_relaxed);
  return std::malloc(size == 0 ? 1 : size);
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t /*size*/) noexcept { std::free(memory); }

namespace meshplan::layout_allocation_test {
namespace {

TEST_CASE("conversions between placements, tensor map and pieces allocate nothing") {
  const DeviceMesh mesh = *DeviceMesh::make({2, 3, 4}, {"dp", "cp", "tp"});
  const Placements placements = *parse_placements("SS(0,4),P(sum),S(0)");
  const TensorMap map = {{0, 2}, {}, {1}};
  const std::vector<std::int64_t> shape = {48, 7, 9};
  static_cast<void>(mesh.hash());  // computed once per mesh

  const std::size_t before = allocations;
  const Result<Layout> layout = Layout::from_placements(mesh, placements, 3);
  const Result<Layout> other = Layout::from_tensor_map(mesh, map);
  const Layout copy = *layout;
  const bool equal = copy == *layout && copy.hash() == layout->hash() && !(copy == *other);
  bool same = copy.check_shape(shape).has_value();
  for (int axis = 0; axis < 3; ++axis) {
    same = same && copy.placement(axis) == placements[static_cast<std::size_t>(axis)];
  }
  std::int64_t sum = 0;
  for (std::int64_t position = 0; position < mesh.size(); ++position) {
    for (int dim = 0; dim < 3; ++dim) {
      sum += other->slice_of(dim, shape[static_cast<std::size_t>(dim)], position).size();
      sum += static_cast<std::int64_t>(other->axes_of(dim).size());
    }
    sum += mesh.rank_at(position) + *mesh.position_of(position);
  }
  const std::size_t made = allocations - before;

  CHECK(made == 0);
  CHECK(equal);
  CHECK(same);
  CHECK(sum > 0);
  const std::size_t counted = allocations;
  static_cast<void>(copy.placements());
  CHECK(allocations > counted);  // the counter works
}

}  // namespace
}  // namespace meshplan::layout_allocation_test

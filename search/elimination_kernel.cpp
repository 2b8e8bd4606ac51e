// SPDX-License-Identifier: Apache-2.0
// Rows of the result (its last variable) are computed at once, as vectors: members that do not
// depend on the last variable add one number to a row, the others a row of theirs.
#include "search/elimination_kernel.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "search/best_instructions.h"

namespace meshplan {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// A member during the walk over the rows of the result.
struct Walk {
  const double* at = nullptr;  ///< for value 0 of the eliminated variable, this row
  std::size_t value_stride = 0;
  std::size_t last_stride = 0;
};

MESHPLAN_BEST_INSTRUCTIONS
void minimise_row(const double* own,
                  std::size_t values,
                  const Walk* scalars,
                  std::size_t scalar_count,
                  const Walk* rows,
                  std::size_t row_count,
                  std::size_t width,
                  double* sums,
                  double* out) {
  for (std::size_t w = 0; w < width; ++w) out[w] = kInfinity;
  for (std::size_t v = 0; v < values; ++v) {
    double base = own[v];
    for (std::size_t m = 0; m < scalar_count; ++m)
      base += scalars[m].at[v * scalars[m].value_stride];
    if (base == kInfinity) continue;
    const double* a = row_count > 0 ? rows[0].at + v * rows[0].value_stride : nullptr;
    const double* b = row_count > 1 ? rows[1].at + v * rows[1].value_stride : nullptr;
    if (row_count == 1) {
      for (std::size_t w = 0; w < width; ++w) out[w] = std::min(out[w], base + a[w]);
    } else if (row_count == 2) {
      for (std::size_t w = 0; w < width; ++w) out[w] = std::min(out[w], base + a[w] + b[w]);
    } else if (row_count == 3) {
      const double* c = rows[2].at + v * rows[2].value_stride;
      for (std::size_t w = 0; w < width; ++w) out[w] = std::min(out[w], base + a[w] + b[w] + c[w]);
    } else {
      for (std::size_t w = 0; w < width; ++w) sums[w] = base;
      for (std::size_t m = 0; m < row_count; ++m) {
        const double* from = rows[m].at + v * rows[m].value_stride;
        for (std::size_t w = 0; w < width; ++w) sums[w] += from[w];
      }
      for (std::size_t w = 0; w < width; ++w) out[w] = std::min(out[w], sums[w]);
    }
  }
}

/// The same where members have their last variable elsewhere than innermost.
void minimise_strided_row(const double* own,
                          std::size_t values,
                          const Walk* scalars,
                          std::size_t scalar_count,
                          const Walk* rows,
                          std::size_t row_count,
                          std::size_t width,
                          double* sums,
                          double* out) {
  std::fill(out, out + width, kInfinity);
  for (std::size_t v = 0; v < values; ++v) {
    double base = own[v];
    for (std::size_t m = 0; m < scalar_count; ++m)
      base += scalars[m].at[v * scalars[m].value_stride];
    if (base == kInfinity) continue;
    std::fill(sums, sums + width, base);
    for (std::size_t m = 0; m < row_count; ++m) {
      const double* from = rows[m].at + v * rows[m].value_stride;
      const std::size_t step = rows[m].last_stride;
      for (std::size_t w = 0; w < width; ++w) sums[w] += from[w * step];
    }
    for (std::size_t w = 0; w < width; ++w) out[w] = std::min(out[w], sums[w]);
  }
}

}  // namespace

void eliminate_variable(const double* own,
                        std::size_t values,
                        std::span<const int> sizes,
                        std::span<const EliminationMember> members,
                        double* out) {
  const std::size_t outer = sizes.empty() ? 0 : sizes.size() - 1;
  const std::size_t width = sizes.empty() ? 1 : static_cast<std::size_t>(sizes[outer]);
  std::size_t rows = 1;
  for (std::size_t s = 0; s < outer; ++s) rows *= static_cast<std::size_t>(sizes[s]);
  // scalars first, then those with the last variable; `source` tells the member of each
  std::vector<Walk> walks;
  std::vector<const EliminationMember*> source;
  walks.reserve(members.size());
  source.reserve(members.size());
  bool contiguous = true;
  for (const bool scalar : {true, false}) {
    for (const EliminationMember& member : members) {
      const std::size_t last = sizes.empty() ? 0 : member.strides[outer];
      if ((last == 0) != scalar) continue;
      contiguous = contiguous && last <= 1;
      walks.push_back({member.costs, member.value_stride, last});
      source.push_back(&member);
    }
  }
  const auto scalar_count = static_cast<std::size_t>(std::count_if(
      walks.begin(), walks.end(), [](const Walk& walk) { return walk.last_stride == 0; }));
  std::vector<double> sums(width);
  std::vector<int> at(outer, 0);
  const auto minimise = contiguous && (sizes.empty() ? false : walks.size() > scalar_count)
                            ? minimise_row
                            : minimise_strided_row;
  for (std::size_t row = 0; row < rows; ++row, out += width) {
    minimise(own,
             values,
             walks.data(),
             scalar_count,
             walks.data() + scalar_count,
             walks.size() - scalar_count,
             width,
             sums.data(),
             out);
    for (std::size_t s = outer; s-- > 0;) {
      if (++at[s] < sizes[s]) {
        for (std::size_t m = 0; m < walks.size(); ++m) walks[m].at += source[m]->strides[s];
        break;
      }
      for (std::size_t m = 0; m < walks.size(); ++m)
        walks[m].at -= source[m]->strides[s] * static_cast<std::size_t>(sizes[s] - 1);
      at[s] = 0;
    }
  }
}

}  // namespace meshplan

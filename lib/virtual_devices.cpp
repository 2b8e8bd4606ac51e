// SPDX-License-Identifier: Apache-2.0
#include "lib/virtual_devices.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <set>
#include <string>
#include <utility>

#include "lib/check.h"

namespace meshplan {
namespace {

std::size_t as_index(std::int64_t value) { return static_cast<std::size_t>(value); }

/// Elements before, in and after a dimension: a tensor is outer x size x inner.
struct Strip {
  std::int64_t outer = 1;
  std::int64_t size = 1;
  std::int64_t inner = 1;
};

Strip strip_of(std::span<const std::int64_t> shape, int dim) {
  Strip strip;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    std::int64_t& part = static_cast<int>(i) < dim    ? strip.outer
                         : static_cast<int>(i) == dim ? strip.size
                                                      : strip.inner;
    part *= shape[i];
  }
  return strip;
}

double combine(Reduction reduction, double a, double b) {
  switch (reduction) {
    case Reduction::kSum:
    case Reduction::kAvg:
      return a + b;
    case Reduction::kMax:
      return std::max(a, b);
    case Reduction::kMin:
      return std::min(a, b);
    case Reduction::kProd:
      return a * b;
  }
  return a;
}

/// Calls visit(offset in `outer_shape`, offset in `size`) for every innermost run of a block.
template <class Visit>
void for_each_run(std::span<const std::int64_t> outer_shape,
                  std::span<const std::int64_t> begin,
                  std::span<const std::int64_t> size,
                  const Visit& visit) {
  if (size.empty()) {
    visit(0, 0, 1);
    return;
  }
  if (element_count(size) == 0) return;
  std::vector<std::int64_t> position(size.size(), 0);
  const std::int64_t run = size.back();
  for (std::int64_t inner = 0;; inner += run) {
    std::int64_t outer = 0;
    for (std::size_t i = 0; i < size.size(); ++i)
      outer = outer * outer_shape[i] + begin[i] + position[i];
    visit(outer, inner, run);
    std::size_t dim = size.size() - 1;
    while (dim > 0 && ++position[dim - 1] == size[dim - 1]) {
      position[dim - 1] = 0;
      --dim;
    }
    if (dim == 0) return;
  }
}

Unexpected<Error> unfit(std::string message) {
  return fail(ErrorCode::kValue, "", std::move(message));
}

std::string shape_text(std::span<const std::int64_t> shape) {
  std::string text = "(";
  for (std::size_t i = 0; i < shape.size(); ++i)
    text += (i == 0 ? "" : ",") + std::to_string(shape[i]);
  return text + ")";
}

}  // namespace

std::int64_t element_count(std::span<const std::int64_t> shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

DenseTensor DenseTensor::filled(std::vector<std::int64_t> shape, double value) {
  DenseTensor tensor;
  tensor.values.assign(as_index(element_count(shape)), value);
  tensor.shape = std::move(shape);
  return tensor;
}

DenseTensor block_of(const DenseTensor& tensor,
                     std::span<const std::int64_t> begin,
                     std::span<const std::int64_t> size) {
  DenseTensor block = DenseTensor::filled({size.begin(), size.end()}, 0.0);
  for_each_run(
      tensor.shape, begin, size, [&](std::int64_t outer, std::int64_t inner, std::int64_t run) {
        std::copy_n(tensor.values.begin() + outer, run, block.values.begin() + inner);
      });
  return block;
}

void place_block(DenseTensor& tensor,
                 std::span<const std::int64_t> begin,
                 const DenseTensor& block) {
  for_each_run(tensor.shape,
               begin,
               block.shape,
               [&](std::int64_t outer, std::int64_t inner, std::int64_t run) {
                 std::copy_n(block.values.begin() + inner, run, tensor.values.begin() + outer);
               });
}

DenseTensor piece_of(const DenseTensor& tensor, int dim, std::int64_t index, std::int64_t count) {
  const std::int64_t size = tensor.shape[as_index(dim)];
  const std::int64_t step = size / count + (size % count != 0 ? 1 : 0);
  std::vector<std::int64_t> begin(tensor.shape.size(), 0);
  std::vector<std::int64_t> extent = tensor.shape;
  begin[as_index(dim)] = std::min(index * step, size);
  extent[as_index(dim)] = std::min((index + 1) * step, size) - begin[as_index(dim)];
  return block_of(tensor, begin, extent);
}

Result<DenseTensor> concatenated(std::span<const DenseTensor* const> pieces, int dim) {
  std::vector<std::int64_t> shape = pieces.front()->shape;
  shape[as_index(dim)] = 0;
  for (const DenseTensor* piece : pieces) {
    for (std::size_t i = 0; i < shape.size(); ++i) {
      if (piece->shape.size() != shape.size() ||
          (static_cast<int>(i) != dim && piece->shape[i] != shape[i])) {
        return unfit("cannot put pieces of shapes " + shape_text(pieces.front()->shape) + " and " +
                     shape_text(piece->shape) + " together along dimension " + std::to_string(dim));
      }
    }
    shape[as_index(dim)] += piece->shape[as_index(dim)];
  }
  DenseTensor result = DenseTensor::filled(std::move(shape), 0.0);
  const Strip whole = strip_of(result.shape, dim);
  std::int64_t begin = 0;
  for (const DenseTensor* piece : pieces) {
    const std::int64_t run = piece->shape[as_index(dim)] * whole.inner;
    for (std::int64_t outer = 0; outer < whole.outer; ++outer) {
      std::copy_n(piece->values.begin() + outer * run,
                  run,
                  result.values.begin() + outer * whole.size * whole.inner + begin * whole.inner);
    }
    begin += piece->shape[as_index(dim)];
  }
  return result;
}

Result<DenseTensor> reduced(std::span<const DenseTensor* const> terms, Reduction reduction) {
  DenseTensor result = *terms.front();
  for (const DenseTensor* term : terms.subspan(1)) {
    if (term->shape != result.shape) {
      return unfit("cannot reduce shapes " + shape_text(result.shape) + " and " +
                   shape_text(term->shape));
    }
    for (std::size_t i = 0; i < result.values.size(); ++i) {
      result.values[i] = combine(reduction, result.values[i], term->values[i]);
    }
  }
  if (reduction == Reduction::kAvg) {
    for (double& value : result.values) value /= static_cast<double>(terms.size());
  }
  return result;
}

double reduction_identity(Reduction reduction) {
  switch (reduction) {
    case Reduction::kSum:
    case Reduction::kAvg:
      return 0.0;
    case Reduction::kMax:
      return -std::numeric_limits<double>::infinity();
    case Reduction::kMin:
      return std::numeric_limits<double>::infinity();
    case Reduction::kProd:
      return 1.0;
  }
  return 0.0;
}

Result<void> VirtualDevices::execute(
    const ReplayStep& step, const std::map<DeviceRank, std::vector<std::int64_t>>& result_shapes) {
  std::map<DeviceRank, DenseTensor> results;
  const auto has_dim = [&](const DenseTensor& tensor, int dim) {
    return dim >= 0 && dim < static_cast<int>(tensor.shape.size());
  };
  const auto unknown = [](DeviceRank rank) {
    return unfit("device " + std::to_string(rank) + " does not exist");
  };

  if (step.collective == Collective::kPermute) {
    std::set<DeviceRank> sources;
    for (const auto& [source, destination] : step.pairs) {
      const auto found = tensors_.find(source);
      if (found == tensors_.end()) return unknown(source);
      if (tensors_.find(destination) == tensors_.end()) return unknown(destination);
      if (!sources.insert(source).second || !results.emplace(destination, found->second).second) {
        return unfit("a permute sends to and receives from every device at most once");
      }
    }
  } else if (step.collective == Collective::kSendReceive) {
    for (const auto& [rank, shape] : result_shapes)
      results.emplace(rank, DenseTensor::filled(shape, 0.0));
    for (const BlockSend& send : step.sends) {
      const auto source = tensors_.find(send.source);
      const auto destination = results.find(send.destination);
      if (source == tensors_.end()) return unknown(send.source);
      if (destination == results.end()) return unknown(send.destination);
      const auto inside = [&](const std::vector<std::int64_t>& shape,
                              const std::vector<std::int64_t>& begin) {
        if (begin.size() != shape.size() || send.size.size() != shape.size()) return false;
        for (std::size_t i = 0; i < shape.size(); ++i) {
          if (begin[i] < 0 || send.size[i] < 0 || begin[i] + send.size[i] > shape[i]) return false;
        }
        return true;
      };
      if (!inside(source->second.shape, send.source_begin) ||
          !inside(destination->second.shape, send.destination_begin)) {
        return unfit("a sent block lies outside the tensor that it is cut from or written to");
      }
      place_block(destination->second,
                  send.destination_begin,
                  block_of(source->second, send.source_begin, send.size));
    }
  } else {
    for (const std::vector<DeviceRank>& group : step.groups) {
      const auto count = static_cast<std::int64_t>(group.size());
      std::vector<const DenseTensor*> held;
      for (const DeviceRank rank : group) {
        const auto found = tensors_.find(rank);
        if (found == tensors_.end()) return unknown(rank);
        held.push_back(&found->second);
      }
      if (held.empty()) continue;
      const auto keep = [&](std::size_t member, DenseTensor tensor) {
        return results.emplace(group[member], std::move(tensor)).second;
      };
      bool once = true;
      switch (step.collective) {
        case Collective::kAllGather: {
          if (!has_dim(*held.front(), step.dim)) return unfit("no such dimension to gather");
          auto whole = concatenated(held, step.dim);
          if (!whole) return fail(whole.error());
          for (std::size_t i = 0; i < group.size(); ++i) once = keep(i, *whole) && once;
          break;
        }
        case Collective::kAllReduce:
        case Collective::kReduceScatter: {
          auto whole = reduced(held, step.reduction);
          if (!whole) return fail(whole.error());
          const bool scatter = step.collective == Collective::kReduceScatter;
          if (scatter && !has_dim(*whole, step.dim)) return unfit("no such dimension to scatter");
          for (std::size_t i = 0; i < group.size(); ++i) {
            once = keep(i,
                        scatter ? piece_of(*whole, step.dim, static_cast<std::int64_t>(i), count)
                                : *whole) &&
                   once;
          }
          break;
        }
        case Collective::kAllToAll: {
          for (std::size_t receiver = 0; receiver < group.size(); ++receiver) {
            std::vector<DenseTensor> pieces;
            for (const DenseTensor* tensor : held) {
              if (!has_dim(*tensor, step.split_dim) || !has_dim(*tensor, step.concat_dim)) {
                return unfit("no such dimension to split or concatenate");
              }
              pieces.push_back(
                  piece_of(*tensor, step.split_dim, static_cast<std::int64_t>(receiver), count));
            }
            std::vector<const DenseTensor*> received;
            for (const DenseTensor& piece : pieces) received.push_back(&piece);
            auto whole = concatenated(received, step.concat_dim);
            if (!whole) return fail(whole.error());
            once = keep(receiver, *std::move(whole)) && once;
          }
          break;
        }
        case Collective::kSlice:
          for (std::size_t i = 0; i < group.size(); ++i) {
            if (!has_dim(*held[i], step.dim)) return unfit("no such dimension to slice");
            once =
                keep(i, piece_of(*held[i], step.dim, static_cast<std::int64_t>(i), count)) && once;
          }
          break;
        case Collective::kMask:
          for (std::size_t i = 0; i < group.size(); ++i) {
            once = keep(i,
                        i == 0 ? *held[i]
                               : DenseTensor::filled(held[i]->shape,
                                                     reduction_identity(step.reduction))) &&
                   once;
          }
          break;
        case Collective::kBroadcast:
          for (std::size_t i = 0; i < group.size(); ++i) once = keep(i, *held.front()) && once;
          break;
        case Collective::kPermute:
        case Collective::kSendReceive:
          break;
      }
      if (!once) return unfit("a device stands in two groups of one step");
    }
  }
  for (auto& [rank, tensor] : results) tensors_[rank] = std::move(tensor);
  return {};
}

}  // namespace meshplan

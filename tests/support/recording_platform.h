// SPDX-License-Identifier: Apache-2.0
// A GroupPlatform that creates nothing and remembers every call.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lib/communication_groups.h"

namespace meshplan {

class RecordingPlatform final : public GroupPlatform {
 public:
  struct Request {
    std::vector<std::int64_t> ranks;
    std::string description;
    friend bool operator==(const Request&, const Request&) = default;
  };

  explicit RecordingPlatform(std::int64_t rank) : rank_(rank) {}

  std::int64_t get_rank() override {
    ++rank_calls;
    return rank_;
  }
  Result<std::uint64_t> create_group(std::span<const std::int64_t> ranks,
                                     const std::string& description) override {
    requests.push_back({{ranks.begin(), ranks.end()}, description});
    if (fail_next) {
      fail_next = false;
      return fail(ErrorCode::kUnsupported, "platform", "no more groups");
    }
    return std::uint64_t{1000} + requests.size();
  }
  std::size_t calls() const { return requests.size() + rank_calls; }

  std::vector<Request> requests;
  std::size_t rank_calls = 0;
  bool fail_next = false;

 private:
  std::int64_t rank_;
};

}  // namespace meshplan

// SPDX-License-Identifier: Apache-2.0
#include "lib/placement.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <optional>
#include <system_error>

#include "lib/text.h"

namespace meshplan {
namespace {

constexpr std::array kReductions = {
    Reduction::kSum, Reduction::kMax, Reduction::kMin, Reduction::kAvg, Reduction::kProd};

constexpr const char* kExpected = "expected R, S(dim), SS(dim,factor) or P(sum|max|min|avg|prod)";

template <class Integer>
std::optional<Integer> parse_integer(std::string_view text) {
  text = trim(text);
  Integer value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, status] = std::from_chars(text.data(), end, value);
  if (text.empty() || status != std::errc() || stop != end) return std::nullopt;
  return value;
}

Unexpected<Error> bad(std::string_view text, const std::string& why) {
  return fail(ErrorCode::kValue, "", "placement " + quoted(text) + ": " + why);
}

Result<Placement> parse_shard(std::string_view text, std::string_view argument) {
  const std::optional<int> dim = parse_integer<int>(argument);
  if (!dim) return bad(text, "the tensor dimension must be an integer, e.g. S(0) or S(-1)");
  return Placement(Shard{*dim});
}

Result<Placement> parse_strided(std::string_view text, std::string_view argument) {
  const std::size_t comma = argument.find(',');
  const char* kForm = "expected SS(dim,factor) with two integers, e.g. SS(0,4)";
  if (comma == std::string_view::npos) return bad(text, kForm);
  const std::optional<int> dim = parse_integer<int>(argument.substr(0, comma));
  const std::optional<std::int64_t> factor =
      parse_integer<std::int64_t>(argument.substr(comma + 1));
  if (!dim || !factor) return bad(text, kForm);
  if (*factor < 1) return bad(text, "the split factor must be at least 1");
  return Placement(StridedShard{*dim, *factor});
}

Result<Placement> parse_partial(std::string_view text, std::string_view argument) {
  Result<Reduction> reduction = parse_reduction(argument);
  if (!reduction) return bad(text, reduction.error().message);
  return Placement(Partial{*reduction});
}

}  // namespace

const char* reduction_name(Reduction reduction) {
  switch (reduction) {
    case Reduction::kSum:
      return "sum";
    case Reduction::kMax:
      return "max";
    case Reduction::kMin:
      return "min";
    case Reduction::kAvg:
      return "avg";
    case Reduction::kProd:
      return "prod";
  }
  return "sum";
}

Result<Reduction> parse_reduction(std::string_view text) {
  std::string name(trim(text));
  std::transform(name.begin(), name.end(), name.begin(), [](char letter) {
    return letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter;
  });
  for (const Reduction reduction : kReductions) {
    if (name == reduction_name(reduction)) return reduction;
  }
  return fail(ErrorCode::kValue,
              "",
              "unknown reduction " + quoted(name) + ", expected sum, max, min, avg or prod");
}

std::string to_string(const Placement& placement) {
  struct Print {
    std::string operator()(const Replicate&) const { return "R"; }
    std::string operator()(const Shard& shard) const {
      return "S(" + std::to_string(shard.dim) + ")";
    }
    std::string operator()(const StridedShard& shard) const {
      return "SS(" + std::to_string(shard.dim) + "," + std::to_string(shard.split_factor) + ")";
    }
    std::string operator()(const Partial& partial) const {
      return std::string("P(") + reduction_name(partial.reduction) + ")";
    }
  };
  return std::visit(Print{}, placement);
}

std::string to_string(std::span<const Placement> placements) {
  std::string text;
  for (const Placement& placement : placements) {
    if (!text.empty()) text += ',';
    text += to_string(placement);
  }
  return text;
}

Result<Placement> parse_placement(std::string_view whole) {
  const std::string_view text = trim(whole);
  const std::size_t open = text.find('(');
  const std::string_view name = trim(text.substr(0, open));
  if (open == std::string_view::npos) {
    if (name == "R" || name == "Replicate") return Placement(Replicate{});
    if (name == "P" || name == "Partial") return Placement(Partial{});
    return bad(whole, kExpected);
  }
  if (text.back() != ')') return bad(whole, "the closing parenthesis is missing");
  const std::string_view argument = trim(text.substr(open + 1, text.size() - open - 2));
  if (name == "S" || name == "Shard") return parse_shard(whole, argument);
  if (name == "SS" || name == "StridedShard") return parse_strided(whole, argument);
  if ((name == "R" || name == "Replicate") && argument.empty()) return Placement(Replicate{});
  if ((name == "P" || name == "Partial") && argument.empty()) return Placement(Partial{});
  if (name == "P" || name == "Partial") return parse_partial(whole, argument);
  return bad(whole, kExpected);
}

Result<Placements> parse_placements(std::string_view text) {
  Placements placements;
  if (trim(text).empty()) return placements;
  int depth = 0;
  std::size_t begin = 0;
  for (std::size_t i = 0; i <= text.size(); ++i) {
    const char letter = i < text.size() ? text[i] : ',';
    if (letter == '(') ++depth;
    if (letter == ')') --depth;
    if (letter != ',' || (depth > 0 && i < text.size())) continue;
    Result<Placement> one = parse_placement(text.substr(begin, i - begin));
    if (!one) {
      one.error().where = "/" + std::to_string(placements.size());
      return fail(std::move(one.error()));
    }
    placements.push_back(*one);
    begin = i + 1;
  }
  return placements;
}

bool is_shard(const Placement& placement, std::optional<int> dim) {
  if (const auto* plain = std::get_if<Shard>(&placement)) return !dim || plain->dim == *dim;
  const auto* strided = std::get_if<StridedShard>(&placement);
  return strided != nullptr && (!dim || strided->dim == *dim);
}

bool is_replicate(const Placement& placement) {
  return std::holds_alternative<Replicate>(placement);
}

bool is_partial(const Placement& placement, std::optional<Reduction> reduction) {
  const auto* partial = std::get_if<Partial>(&placement);
  return partial != nullptr && (!reduction || partial->reduction == *reduction);
}

std::size_t hash_value(const Placement& placement) {
  struct Number {
    std::uint64_t operator()(const Replicate&) const { return 0; }
    std::uint64_t operator()(const Shard& shard) const {
      return static_cast<std::uint64_t>(static_cast<std::int64_t>(shard.dim));
    }
    std::uint64_t operator()(const StridedShard& shard) const {
      return static_cast<std::uint64_t>(static_cast<std::int64_t>(shard.dim)) *
                 0x9E3779B97F4A7C15U +
             static_cast<std::uint64_t>(shard.split_factor);
    }
    std::uint64_t operator()(const Partial& partial) const {
      return static_cast<std::uint64_t>(partial.reduction);
    }
  };
  std::uint64_t mixed = std::visit(Number{}, placement) * 4 + placement.index();
  mixed = (mixed ^ (mixed >> 31)) * 0xBF58476D1CE4E5B9U;
  return static_cast<std::size_t>(mixed ^ (mixed >> 29));
}

}  // namespace meshplan

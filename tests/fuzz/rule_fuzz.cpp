// SPDX-License-Identifier: Apache-2.0
// Rules: the first line is the notation, "8 16" a shape of an operand, "-" an operand left out, and
// "f=4" a given size. What is accepted is sharded.
#include <charconv>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "fuzz/fuzz.h"
#include "graph/operator_info.h"
#include "graph/rule.h"

namespace meshplan::fuzz {
namespace {

std::vector<std::string_view> parts(std::string_view text, char separator) {
  std::vector<std::string_view> list;
  for (;;) {
    const std::size_t end = text.find(separator);
    list.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return list;
    text.remove_prefix(end + 1);
  }
}

/// A size of a graph: 1 to 2^62.
std::optional<std::int64_t> size_of(std::string_view text) {
  std::int64_t size = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), size);
  if (read.ec != std::errc() || size < 1 || size > std::int64_t{1} << 62) return std::nullopt;
  return size;
}

void check_rule(const std::string& text) {
  const std::vector<std::string_view> lines = parts(text, '\n');
  std::vector<std::optional<std::vector<std::int64_t>>> shapes;
  std::map<std::string, std::int64_t> sizes;
  for (std::size_t i = 1; i < lines.size(); ++i) {
    const std::size_t equals = lines[i].find('=');
    if (equals != std::string_view::npos) {
      if (const auto size = size_of(lines[i].substr(equals + 1)))
        sizes[std::string(lines[i].substr(0, equals))] = *size;
      continue;
    }
    if (shapes.size() == 8) break;
    shapes.emplace_back();
    if (lines[i] == "-") continue;
    shapes.back().emplace();
    for (const std::string_view word : parts(lines[i], ' ')) {
      const auto size = size_of(word);
      if (size && shapes.back()->size() < 16) shapes.back()->push_back(*size);
    }
  }
  Result<Rule> rule = make_rule(lines[0], shapes, sizes);
  if (!rule) return check_refusal(rule.error());
  std::vector<std::int64_t> whole;
  for (const Factor& factor : rule->factors) {
    law(factor.size >= 1, "a factor has a size");
    whole.push_back(factor.size);
  }
  law(!std::isnan(rule->flops(whole)), "FLOPs are a number");
  (void)rule->moved_elements(whole);
  (void)family_of(*rule);
  for (const OperandRule& result : rule->results) {
    for (const std::int64_t size : result.shape) law(size >= 1, "a result has elements");
  }
  const auto shared = std::make_shared<const Rule>(*std::move(rule));
  const OperatorInfo info(shared, {2, 3});
  law(!info.strategies().empty(), "an operator can always be replicated");
  const std::size_t most = std::min<std::size_t>(info.strategies().size(), 20);
  for (std::size_t s = 0; s < most; ++s) {
    const Strategy& strategy = info.strategies()[s];
    law(!info.label(strategy).empty(), "a strategy has a label");
    for (std::size_t i = 0; i < shared->operands.size(); ++i) {
      if (!shared->operands[i].present) continue;
      const TensorState state = info.operand_state(strategy, i, true);
      law(divides(shared->operands[i].shape, state, info.mesh_shape()), "a shard is a whole part");
    }
  }
}

}  // namespace
}  // namespace meshplan::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  meshplan::fuzz::check_rule(meshplan::fuzz::input_text(data, size));
  return 0;
}

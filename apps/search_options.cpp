// SPDX-License-Identifier: Apache-2.0
#include "apps/search_options.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <set>
#include <system_error>
#include <thread>
#include <utility>

#include "graph/quantity.h"
#include "lib/nearest_name.h"

namespace meshplan {

void add_step_options(CLI::App& app, StepOptionTexts options) {
  app.add_option("--mode", options.mode, "With gradients and optimizer, or the forward pass alone")
      ->check(CLI::IsMember({"training", "inference"}))
      ->type_name("training|inference")
      ->capture_default_str();
  app.add_option("--optimizer", options.optimizer, "Its state takes memory and time")
      ->check(CLI::IsMember({"adamw", "adam", "sgd", "momentum", "adafactor", "none"}))
      ->type_name("adamw|adam|sgd|momentum|adafactor|none")
      ->capture_default_str();
  app.add_option("--microbatches",
                 options.microbatches,
                 "Passes per step; divides the dimension \"batch\". auto: the best power of two")
      ->type_name("M|auto")
      ->capture_default_str();
  app.add_option("--recompute",
                 options.recompute,
                 "What the backward makes again instead of storing it: nothing, what is cheap, or "
                 "whole layers")
      ->check(CLI::IsMember({"none", "selective", "selective-op", "full"}))
      ->type_name("none|selective|selective-op|full")
      ->capture_default_str();
  app.add_option("--overlap",
                 options.overlap,
                 "Fractions of communication hidden behind computation, over the cluster's: "
                 "gradient=0.8,gather=0.8,ring=0.8,activation=0,expert=0")
      ->type_name("KIND=F,...");
  app.add_option("--unknown-operators",
                 options.unknown_operators,
                 "Operators without a rule: an error, or accepted as replicated")
      ->check(CLI::IsMember({"error", "replicate"}))
      ->type_name("error|replicate")
      ->capture_default_str();
}

Result<OverlapChanges> parse_overlap(const std::string& text) {
  constexpr std::pair<const char*, double Overlap::*> kKinds[] = {
      {"gradient", &Overlap::gradient},
      {"gather", &Overlap::gather},
      {"ring", &Overlap::ring},
      {"activation", &Overlap::activation},
      {"expert", &Overlap::expert}};
  OverlapChanges changes;
  std::set<std::string> given;
  std::size_t begin = 0;
  while (begin < text.size()) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string part = text.substr(begin, end - begin);
    const std::string name = part.substr(0, part.find('='));
    if (!given.insert(name).second) return usage("--overlap", "\"" + name + "\" is given twice");
    const auto kind = std::find_if(
        std::begin(kKinds), std::end(kKinds), [&](const auto& k) { return name == k.first; });
    if (kind == std::end(kKinds)) {
      std::vector<std::string> names;
      for (const auto& k : kKinds) names.emplace_back(k.first);
      return usage(
          "--overlap",
          "\"" + name +
              "\" is no kind of communication (gradient, gather, ring, activation, expert)" +
              nearest_name_hint(name, names));
    }
    auto fraction = part.size() > name.size()
                        ? parse_quantity(part.substr(name.size() + 1), Unit::kRatio)
                        : Result<double>(-1.0);
    if (!fraction || !(*fraction >= 0 && *fraction <= 1))
      return usage("--overlap",
                   "\"" + part + "\": expected a fraction from 0 to 1, e.g. gradient=0.8");
    changes.emplace_back(kind->second, *fraction);
    begin = end + 1;
  }
  return changes;
}

void apply(const OverlapChanges& changes, Overlap& overlap) {
  for (const auto& [fraction, value] : changes) overlap.*fraction = value;
}

Result<std::vector<std::int64_t>> parse_microbatches(const std::string& text,
                                                     const GraphDocument& document) {
  constexpr std::int64_t kMost = std::int64_t{1} << 30;
  if (text != "auto") {
    std::int64_t count = 0;
    const auto [rest, status] = std::from_chars(text.data(), text.data() + text.size(), count);
    if (status != std::errc() || rest != text.data() + text.size() || count < 1 || count > kMost)
      return usage("--microbatches",
                   "\"" + text + "\": expected a number from 1 to 1073741824, or auto");
    return std::vector{count};
  }
  std::vector<std::int64_t> counts = {1};
  for (const DimensionDocument& dimension : document.dimensions) {
    if (dimension.name != "batch") continue;
    while (counts.back() < kMost && dimension.size % (2 * counts.back()) == 0)
      counts.push_back(2 * counts.back());
  }
  return counts;
}

Result<void> check_has_operators(const Graph& graph, const std::string& file) {
  if (!graph.operators.empty()) return {};
  return fail(ErrorCode::kValue, file + ": /operators", "the graph has no operator to place");
}

unsigned threads_of(const CommonOptions& common) {
  return common.threads > 0 ? common.threads : std::max(1U, std::thread::hardware_concurrency());
}

}  // namespace meshplan

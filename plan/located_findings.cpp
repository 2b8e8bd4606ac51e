// SPDX-License-Identifier: Apache-2.0
#include "plan/located_findings.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "graph/json.h"
#include "plan/plan_fold.h"

namespace meshplan {
namespace {

/// A pointer cut in three: "/operators", "3", "/compute_time".
struct Parts {
  std::string_view list;
  std::string_view entry;
  std::string_view rest;
};

std::optional<Parts> parts_of(std::string_view pointer) {
  const std::size_t list_end = pointer.find('/', 1);
  if (pointer.empty() || list_end == std::string_view::npos) return std::nullopt;
  const std::size_t end = std::min(pointer.find('/', list_end + 1), pointer.size());
  return Parts{pointer.substr(0, list_end),
               pointer.substr(list_end + 1, end - list_end - 1),
               pointer.substr(end)};
}

std::optional<std::size_t> number_of(std::string_view text) {
  std::size_t number = 0;
  const auto [rest, status] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (status != std::errc() || rest != text.data() + text.size()) return std::nullopt;
  return number;
}

class Locator {
 public:
  Locator(const Plan& plan, const PlanPlaces& places) : plan_(plan), places_(places) {
    for (std::size_t i = 0; i < plan.tensors.size(); ++i)
      tensors_.emplace(json_pointer_part(plan.tensors[i].name), i);
  }

  /// The pointer into the document; `entry` gets the name of what it is about.
  std::string find(const std::string& pointer, std::string& entry) const {
    const auto parts = parts_of(pointer);
    if (!parts) return pointer;
    const auto numbered =
        [&](const auto& entries, const std::vector<std::size_t>& sources, auto name_of) {
          const auto number = number_of(parts->entry);
          if (!number || *number >= entries.size() || *number >= sources.size()) return pointer;
          entry = name_of(entries[*number]);
          return std::string(parts->list) + "/" + std::to_string(sources[*number]) +
                 std::string(parts->rest);
        };
    if (parts->list == "/operators") {
      return numbered(plan_.operators, places_.operators, [](const auto& op) { return op.name; });
    }
    if (parts->list == "/redistributions") {
      return numbered(plan_.redistributions, places_.redistributions, [](const auto& move) {
        return move.tensor;
      });
    }
    if (parts->list == "/at_peak") {
      return numbered(plan_.at_peak, places_.at_peak, [](const auto& share) { return share.name; });
    }
    if (parts->list != "/tensors") return pointer;
    const auto found = tensors_.find(std::string(parts->entry));
    if (found == tensors_.end() || found->second >= places_.tensors.size()) return pointer;
    entry = plan_.tensors[found->second].name;
    return "/tensors/" + json_pointer_part(places_.tensors[found->second]) +
           std::string(parts->rest);
  }

 private:
  const Plan& plan_;
  const PlanPlaces& places_;
  std::unordered_map<std::string, std::size_t> tensors_;  ///< looked up only, never walked
};

}  // namespace

std::vector<LocatedFinding> locate(const std::vector<Finding>& findings,
                                   const Plan& plan,
                                   const PlanPlaces& places) {
  if (findings.empty()) return {};
  const Locator locator(plan, places);
  std::vector<LocatedFinding> located;
  std::map<std::tuple<std::string, std::string, std::string, std::string>, std::size_t> known;
  for (const Finding& finding : findings) {
    std::string entry;
    Finding moved = finding;
    moved.pointer = locator.find(finding.pointer, entry);
    const auto [found, is_new] = known.try_emplace(
        {moved.pointer, moved.expected, moved.found, moved.message}, located.size());
    if (is_new) located.push_back({std::move(moved), {}});
    if (!entry.empty()) located[found->second].entries.push_back(std::move(entry));
  }
  for (LocatedFinding& each : located) {
    if (each.entries.size() < 2) continue;
    std::vector<FoldItem> items;
    for (const std::string& name : each.entries) items.push_back({{name}, 0});
    std::vector<std::string> names;
    for (const FoldedItem& item : fold(items)) names.push_back(item.texts[0]);
    each.entries = std::move(names);
  }
  return located;
}

std::string to_string(const LocatedFinding& located) {
  constexpr std::size_t kMostNames = 3;
  std::string names;
  for (std::size_t i = 0; i < std::min(located.entries.size(), kMostNames); ++i)
    names += (i == 0 ? "" : ", ") + one_line(located.entries[i]);
  if (located.entries.size() > kMostNames)
    names += " and " + std::to_string(located.entries.size() - kMostNames) + " more";
  const std::string text = to_string(located.finding);
  if (names.empty()) return text;
  const std::size_t end = located.finding.pointer.size();
  return text.substr(0, end) + " (" + names + ")" + text.substr(end);
}

}  // namespace meshplan

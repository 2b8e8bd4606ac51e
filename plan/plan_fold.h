// SPDX-License-Identifier: Apache-2.0
// Folding: equal entries whose names differ only by a counter become one entry with a pattern.
//
// layers.0.mlp.fc1, layers.1.mlp.fc1, ..., layers.31.mlp.fc1  ->  layers.{0..31}.mlp.fc1
//
// An entry has a name, further texts (the names of other things) and a body (everything else).
// Entries fold when their bodies are equal and their names, seen without numbers, are equal too.
// The patterns of the name are independent loops, the first one the slowest; the k-th pattern of
// another text takes the value of the k-th loop. So a text may follow the first loops of the name
// and must not depend on the counter in any other way ("layers.{0..31}.x" read by layers.{1..32}
// is never written; it is read, each text counting from the start of its own range).
//
// Cost: a sort per number in the names; 10^5 entries take a few tens of milliseconds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lib/result.h"

namespace meshplan {

struct FoldItem {
  std::vector<std::string_view> texts;  ///< the name first
  std::size_t body = 0;                 ///< equal numbers mean equal bodies
};

struct FoldedItem {
  std::vector<std::string> texts;    ///< with patterns
  std::vector<std::size_t> members;  ///< items, in the order in which the patterns run
};

/// Folds as far as possible; what does not fold comes back as it was. The result is in the order of
/// the first members.
std::vector<FoldedItem> fold(std::span<const FoldItem> items);

/// True if the text holds something that reads as a pattern.
bool has_pattern(std::string_view text);

/// The inverse of one FoldedItem: one list of texts per member. Errors (with empty `where`): kValue
/// for a text whose patterns do not follow the name's or whose range is empty, kOverflow for more
/// than `most` members.
Result<std::vector<std::vector<std::string>>> unfold(std::span<const std::string_view> texts,
                                                     std::size_t most);

}  // namespace meshplan

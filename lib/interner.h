// SPDX-License-Identifier: Apache-2.0
// Interner: dense numbers for sequences of words, so that equal things are found and computed once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace meshplan {

class Interner {
 public:
  /// The number of the sequence, counted from 0 in order of first appearance, and whether this is
  /// its first.
  std::pair<int, bool> number(std::span<const std::uint64_t> words) {
    if (2 * (begin_.size() + 1) > slots_.size()) grow();
    std::size_t slot = hash(words) & (slots_.size() - 1);
    for (; slots_[slot] >= 0; slot = (slot + 1) & (slots_.size() - 1)) {
      if (equals(slots_[slot], words)) return {slots_[slot], false};
    }
    const int made = static_cast<int>(begin_.size());
    slots_[slot] = made;
    begin_.push_back(words_.size());
    words_.insert(words_.end(), words.begin(), words.end());
    return {made, true};
  }

  /// The words of a number that was given; valid until the next new sequence.
  std::span<const std::uint64_t> words(int number) const { return sequence(number); }
  /// How many distinct sequences there are.
  int size() const { return static_cast<int>(begin_.size()); }

 private:
  static std::size_t hash(std::span<const std::uint64_t> words) {
    std::uint64_t h = words.size();
    for (const std::uint64_t word : words) {  // the mixer of splitmix64
      h = (h ^ word) + 0x9E3779B97F4A7C15U;
      h = (h ^ (h >> 30U)) * 0xBF58476D1CE4E5B9U;
      h = (h ^ (h >> 27U)) * 0x94D049BB133111EBU;
      h ^= h >> 31U;
    }
    return static_cast<std::size_t>(h);
  }
  std::span<const std::uint64_t> sequence(int number) const {
    const auto at = static_cast<std::size_t>(number);
    const std::size_t end = at + 1 < begin_.size() ? begin_[at + 1] : words_.size();
    return std::span(words_).subspan(begin_[at], end - begin_[at]);
  }
  bool equals(int number, std::span<const std::uint64_t> words) const {
    const auto known = sequence(number);
    if (known.size() != words.size()) return false;
    for (std::size_t i = 0; i < words.size(); ++i) {
      if (known[i] != words[i]) return false;
    }
    return true;
  }
  void grow() {
    std::vector<int> slots(slots_.empty() ? 64 : 2 * slots_.size(), -1);
    for (int n = 0; n < static_cast<int>(begin_.size()); ++n) {
      std::size_t slot = hash(sequence(n)) & (slots.size() - 1);
      while (slots[slot] >= 0) slot = (slot + 1) & (slots.size() - 1);
      slots[slot] = n;
    }
    slots_ = std::move(slots);
  }

  std::vector<std::uint64_t> words_;
  std::vector<std::size_t> begin_;  ///< of each sequence in words_
  std::vector<int> slots_;          ///< open addressing; -1: empty
};

}  // namespace meshplan

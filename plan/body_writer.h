// SPDX-License-Identifier: Apache-2.0
// BodyWriter: takes what a JsonWriter takes and keeps it as bytes for comparison alone. Two bodies
// are equal exactly where the same calls with equal values made them: what stands for
// FoldItem::body is found without writing numbers and placements as text.
#pragma once

#include <concepts>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>

#include "graph/json.h"
#include "lib/placement.h"

namespace meshplan {

class BodyWriter {
 public:
  void begin_object(JsonWriter::Layout /*layout*/ = JsonWriter::kLines) { bytes_ += '{'; }
  void end_object() { bytes_ += '}'; }
  void begin_array(JsonWriter::Layout /*layout*/ = JsonWriter::kLines) { bytes_ += '['; }
  void end_array() { bytes_ += ']'; }
  void key(std::string_view key) {
    add('k', static_cast<std::uint8_t>(key.size()));  // the keys of documents are short
    bytes_ += key;
  }

  void value(std::string_view text) {
    add('s', text.size());
    bytes_ += text;
  }
  void value(const std::string& text) { value(std::string_view(text)); }
  void value(const char* text) { value(std::string_view(text)); }
  void value(double number) { add('d', number); }
  void value(bool flag) { bytes_ += flag ? 't' : 'f'; }
  template <std::integral Integer>
  requires(!std::same_as<Integer, bool> &&
           !std::same_as<Integer, char>) void value(Integer number) {
    add('i', static_cast<std::int64_t>(number));
  }
  void null() { bytes_ += 'n'; }
  void value(const Placement& placement) {
    bytes_ += static_cast<char>('0' + placement.index());
    if (const auto* shard = std::get_if<Shard>(&placement)) value(shard->dim);
    if (const auto* shard = std::get_if<StridedShard>(&placement)) {
      value(shard->dim);
      value(shard->split_factor);
    }
    if (const auto* partial = std::get_if<Partial>(&placement))
      value(static_cast<int>(partial->reduction));
  }

  template <class Value>
  void member(std::string_view name, const Value& v) {
    key(name);
    value(v);
  }
  template <class Values>
  void array(const Values& values) {
    begin_array();
    for (const auto& v : values) value(v);
    end_array();
  }

  const std::string& bytes() const { return bytes_; }
  void clear() { bytes_.clear(); }

 private:
  template <class Number>
  void add(char kind, Number number) {
    char piece[1 + sizeof number];
    piece[0] = kind;
    std::memcpy(piece + 1, &number, sizeof number);
    bytes_.append(piece, sizeof piece);
  }

  std::string bytes_;
};

}  // namespace meshplan

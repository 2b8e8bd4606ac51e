// SPDX-License-Identifier: Apache-2.0
// Reads the members of one JSON object and keeps the first error, so that a document's fields can
// be read one after the other and checked once.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "graph/json.h"
#include "graph/quantity.h"
#include "lib/result.h"

namespace meshplan {

/// Bounds of a number, both included.
struct NumberRange {
  double least = 0;
  double most = 0;
  const char* text = "";  ///< "a fraction above 0 and at most 1"
};

class FieldReader {
 public:
  /// Unknown keys are an error.
  FieldReader(const JsonCursor& object, std::initializer_list<std::string_view> keys)
      : object_(object) {
    keep(object.allow_only(keys));
  }

  bool ok() const { return !error_; }
  /// Only if not ok().
  Unexpected<Error> failure() const { return fail(*error_); }

  /// The value, or T{} after keeping the error.
  template <class T>
  T keep(Result<T> result) {
    if (result) return std::move(*result);
    if (!error_) error_ = result.error();
    return T{};
  }
  void keep(const Result<void>& result) {
    if (!result && !error_) error_ = result.error();
  }
  void refuse(const JsonCursor& cursor, ErrorCode code, std::string message) {
    keep(Result<void>(cursor.error(code, std::move(message))));
  }

  std::optional<JsonCursor> find(std::string_view key) const {
    return ok() ? object_.find(key) : std::nullopt;
  }
  std::optional<JsonCursor> require(std::string_view key) {
    if (!ok()) return std::nullopt;
    Result<JsonCursor> found = object_.get(key);
    if (found) return *found;
    keep(Result<void>(fail(found.error())));
    return std::nullopt;
  }

  /// A quantity within the range. A missing key is an error.
  double quantity(std::string_view key, Unit unit, const NumberRange& range) {
    const auto cursor = require(key);
    return cursor ? quantity_at(*cursor, unit, range) : 0.0;
  }
  /// The same; a missing key leaves `value` as it is.
  void quantity(std::string_view key, Unit unit, const NumberRange& range, double& value) {
    if (const auto cursor = find(key)) value = quantity_at(*cursor, unit, range);
  }
  double quantity_at(const JsonCursor& cursor, Unit unit, const NumberRange& range) {
    const double value = keep(read_quantity(cursor, unit));
    // written so that anything that is not inside is refused
    if (ok() && !(value >= range.least && value <= range.most)) {
      refuse(cursor, ErrorCode::kValue, std::string("expected ") + range.text);
    }
    return value;
  }
  std::string text(std::string_view key) {
    const auto cursor = require(key);
    return cursor ? std::string(keep(cursor->as_string())) : std::string();
  }

 private:
  JsonCursor object_;
  std::optional<Error> error_;
};

}  // namespace meshplan

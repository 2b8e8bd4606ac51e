// SPDX-License-Identifier: Apache-2.0
// Result<T>: a value or an Error, with the member names of std::expected.
#pragma once

#include <string>
#include <utility>
#include <variant>

namespace meshplan {

/// What kind of fault an Error is. The batch interfaces print these names (error_code_name).
enum class ErrorCode {
  kType,         ///< a value of the wrong kind (a string where a list belongs)
  kValue,        ///< right kind, wrong value
  kUnknownAxis,  ///< a mesh axis that does not exist
  kRank,         ///< a rank outside the mesh
  kDuplicate,    ///< a name, rank or axis given twice
  kOrder,        ///< right items, wrong order
  kConflict,     ///< two requests that exclude each other
  kMissing,      ///< something required is absent
  kOverflow,     ///< a size or product beyond 64 bits
  kUnsupported,  ///< understood, but not offered
  kUsage,        ///< the command line is wrong (exit code 2)
  kInput,        ///< an input file is unreadable or not JSON (exit code 3)
};

/// "type", "value", "unknown_axis", ...
const char* error_code_name(ErrorCode code);

/// A fault in what the user gave: its kind, its place and a sentence that says what to do.
struct Error {
  ErrorCode code = ErrorCode::kValue;
  std::string
      where;  ///< file and JSON Pointer, e.g. "graph.json: /operators/12/inputs/1"; may be empty
  std::string message;  ///< what is wrong, what was expected
};

/// "where: message", or just the message where no place is known.
std::string to_string(const Error& error);

template <class E>
class Unexpected {
 public:
  explicit Unexpected(E error) : error_(std::move(error)) {}
  E& error() { return error_; }

 private:
  E error_;
};

/// `return fail(ErrorCode::kValue, "", "...")` in a function that returns any Result.
inline Unexpected<Error> fail(ErrorCode code, std::string where, std::string message) {
  return Unexpected<Error>(Error{code, std::move(where), std::move(message)});
}
/// Passes an error of one Result on as another Result's.
inline Unexpected<Error> fail(Error error) { return Unexpected<Error>(std::move(error)); }

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Unexpected<Error> error) : state_(std::in_place_index<1>, std::move(error.error())) {}

  bool has_value() const { return state_.index() == 0; }
  explicit operator bool() const { return has_value(); }
  T& value() & { return std::get<0>(state_); }
  const T& value() const& { return std::get<0>(state_); }
  T&& value() && { return std::get<0>(std::move(state_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  Error& error() { return std::get<1>(state_); }
  const Error& error() const { return std::get<1>(state_); }

 private:
  std::variant<T, Error> state_;
};

/// A Result without a value: success or an Error.
template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Unexpected<Error> error) : error_(std::move(error.error())), failed_(true) {}

  bool has_value() const { return !failed_; }
  explicit operator bool() const { return has_value(); }
  Error& error() { return error_; }
  const Error& error() const { return error_; }

 private:
  Error error_;
  bool failed_ = false;
};

}  // namespace meshplan

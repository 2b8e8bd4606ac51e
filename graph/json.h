// SPDX-License-Identifier: Apache-2.0
// Strict JSON: a reader that names every fault by file and JSON Pointer, and a writer whose output
// depends on nothing but what is written.
//
//   Result<JsonDocument> document = JsonDocument::parse(text, "graph.json");
//   JsonCursor root = document->root();
//   if (auto ok = check_schema(root, "meshplan.graph", 1, 0); !ok) return fail(ok.error());
//   if (auto ok = root.allow_only({"schema", "name"}); !ok) return fail(ok.error());
//   Result<JsonCursor> name = root.get("name");
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lib/result.h"

namespace meshplan {

enum class JsonKind : std::uint8_t { kNull, kBool, kInteger, kNumber, kString, kArray, kObject };
/// "null", "a boolean", "an integer", "a number", "a string", "an array", "an object".
const char* json_kind_name(JsonKind kind);

class JsonTree;

/// One value of a JsonDocument, cheap to copy; valid as long as the document lives.
class JsonCursor {
 public:
  JsonKind kind() const;

  /// Errors of the as_...() functions: kType with the place, what was expected and what was found.
  /// An integer is a number without fraction and exponent (`64`, not `64.0`); kOverflow beyond
  /// 64 bits.
  Result<std::int64_t> as_int64() const;
  /// As as_int64; kValue outside `least`..`most`.
  Result<std::int64_t> as_int64(std::int64_t least, std::int64_t most) const;
  Result<std::uint64_t> as_uint64() const;
  /// Any number, always finite.
  Result<double> as_double() const;
  Result<bool> as_bool() const;
  /// Valid UTF-8; the view lives as long as the document.
  Result<std::string_view> as_string() const;
  /// The elements of an array.
  Result<std::vector<JsonCursor>> as_array() const;
  Result<std::vector<std::int64_t>> as_int64s() const;
  Result<std::vector<std::string>> as_strings() const;

  /// kType unless the value is of this kind (kNumber is met by an integer too).
  Result<void> expect(JsonKind kind) const;

  /// Elements of an array or members of an object; 0 for everything else.
  std::size_t size() const;
  /// Element `i` of an array, or the value of member `i` of an object in file order; i < size().
  JsonCursor at(std::size_t i) const;
  /// The key of member `i` of an object in file order; i < size().
  std::string_view key_at(std::size_t i) const;

  /// The member `key` of an object. Errors: kType if this is no object, kMissing.
  Result<JsonCursor> get(std::string_view key) const;
  /// The member `key`, or nothing if there is none or this is no object.
  std::optional<JsonCursor> find(std::string_view key) const;
  /// kType unless this is an object; kValue for the first member with another key, with the
  /// nearest allowed one as a hint.
  Result<void> allow_only(std::initializer_list<std::string_view> keys) const;

  /// "graph.json: /operators/12/inputs/1"; the root is just "graph.json".
  std::string where() const;
  /// "/operators/12/inputs/1" (RFC 6901); "" for the root.
  std::string pointer() const;
  /// The last part of the pointer as text: the key or the index ("" for the root).
  std::string name_in_parent() const;
  /// `return cursor.error(ErrorCode::kValue, "...")` in a function that returns any Result.
  Unexpected<Error> error(ErrorCode code, std::string message) const;

 private:
  friend class JsonDocument;
  JsonCursor(const JsonTree* tree, std::uint32_t node) : tree_(tree), node_(node) {}
  Unexpected<Error> wrong_kind(const char* expected) const;

  const JsonTree* tree_;
  std::uint32_t node_;
};

/// A parsed file. Moving it keeps its cursors valid.
class JsonDocument {
 public:
  /// Containers may be nested this deep; deeper input is refused before it costs anything.
  static constexpr int kMaxDepth = 200;

  /// Reads one JSON value. `file` is the name used in errors. Errors: kInput (not JSON, invalid
  /// UTF-8, NaN or Infinity, numbers beyond a double, nesting; with line and column) and kDuplicate
  /// (a key twice in one object).
  static Result<JsonDocument> parse(std::string_view text, std::string file);

  JsonCursor root() const;

 private:
  explicit JsonDocument(std::shared_ptr<const JsonTree> tree) : tree_(std::move(tree)) {}
  std::shared_ptr<const JsonTree> tree_;
};

/// Checks the member "schema" of a document against `kind`/`major`.0 to `kind`/`major`.`minor`,
/// e.g. ("meshplan.graph", 1, 0). Errors: kMissing, kType, kValue (another kind), kUnsupported
/// (another major, or a newer minor).
Result<void> check_schema(const JsonCursor& root, std::string_view kind, int major, int minor);

/// `key` as one part of a JSON Pointer (RFC 6901: ~0, ~1), always on one line.
std::string json_pointer_part(std::string_view key);

/// `text` in double quotes with the escapes of JSON; invalid UTF-8 becomes U+FFFD.
std::string json_quote(std::string_view text);

/// `text` on one line: control characters escaped as in JSON, invalid UTF-8 replaced, and at most
/// about a thousand bytes of it.
std::string one_line(std::string_view text);

/// The shortest text that reads back as the same double, always recognisable as one ("1.0").
/// The value must be finite.
std::string json_number(double value);

/// Writes JSON piece by piece; keys keep the order in which they are written. Misuse (a value
/// without a key in an object, unbalanced ends, a number that is not finite) is a broken invariant.
///
///   JsonWriter writer;                       // JsonWriter(0) writes compactly
///   writer.begin_object();
///   writer.key("shape");
///   writer.begin_array(JsonWriter::kOneLine);
///   writer.value(std::int64_t{64});
///   writer.end_array();
///   writer.end_object();
///   std::string text = std::move(writer).text();
class JsonWriter {
 public:
  /// How a container is laid out: its members on lines of their own, or all of it, whatever is in
  /// it, on one line with a space after each comma and colon.
  enum Layout : std::uint8_t { kLines, kOneLine };

  /// `indent` spaces per level; 0 writes everything without any white space.
  explicit JsonWriter(int indent = 2) : indent_(indent) {}

  void begin_object(Layout layout = kLines) { begin('{', layout); }
  void end_object() { end('}'); }
  void begin_array(Layout layout = kLines) { begin('[', layout); }
  void end_array() { end(']'); }
  void key(std::string_view key);

  void value(std::string_view text);
  void value(const std::string& text) { value(std::string_view(text)); }
  void value(const char* text) { value(std::string_view(text)); }
  void value(double number);
  void value(bool flag);
  template <std::integral Integer>
  requires(!std::same_as<Integer, bool> &&
           !std::same_as<Integer, char>) void value(Integer number) {
    raw(std::to_string(number));
  }
  void null() { raw("null"); }

  /// key(name) and value(v) in one call.
  template <class Value>
  void member(std::string_view name, const Value& v) {
    key(name);
    value(v);
  }
  /// A one-line array of strings or numbers.
  template <class Values>
  void array(const Values& values) {
    begin_array(kOneLine);
    for (const auto& v : values) value(v);
    end_array();
  }

  /// What was written, with a final newline when indented. Every container must be closed.
  std::string text() &&;

 private:
  struct Level {
    char close;
    bool one_line;
    bool empty = true;
  };
  void begin(char open, Layout layout);
  void end(char close);
  void raw(std::string_view text);
  void before_value();
  void separate();

  int indent_;
  bool after_key_ = false;
  std::vector<Level> levels_;
  std::string text_;
};

}  // namespace meshplan

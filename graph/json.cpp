// SPDX-License-Identifier: Apache-2.0
// The parser's events (nlohmann's SAX interface, which does not recurse) fill one flat table of
// nodes: no recursion over the input anywhere, and the nesting limit ends hostile input early.
#include "graph/json.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <system_error>
#include <utility>

#include <nlohmann/json.hpp>

#include "lib/check.h"
#include "lib/nearest_name.h"

namespace meshplan {

/// The nodes of a document. Children of one container are consecutive in `children`.
class JsonTree {
 public:
  struct Text {
    std::uint32_t begin = 0;
    std::uint32_t size = 0;
  };
  enum class Number : std::uint8_t { kSigned, kUnsigned, kBeyond64Bits, kReal };
  /// Documents are read into many of them: what no kind needs at once shares its place.
  struct Node {
    JsonKind kind = JsonKind::kNull;
    Number number = Number::kReal;
    bool flag = false;
    std::uint32_t parent = 0;
    std::uint32_t position = 0;  ///< among the parent's children
    std::uint32_t count = 0;     ///< containers: children; strings: bytes
    union {
      std::uint64_t first = 0;  ///< containers: into children; strings: into arena
      std::int64_t integer;     ///< Number::kSigned, kUnsigned (its bits)
      double real;              ///< Number::kBeyond64Bits, kReal
    };
  };
  struct Child {
    std::uint32_t node = 0;
    Text key;
  };

  std::string file;
  std::vector<Node> nodes;
  std::vector<Child> children;
  /// For each object with more than kFewMembers members, the positions sorted by key, at the
  /// object's `first`; other entries are unused.
  std::vector<std::uint32_t> sorted;
  std::string arena;

  static constexpr std::size_t kFewMembers = 8;

  std::string_view view(Text text) const {
    return std::string_view(arena).substr(text.begin, text.size);
  }
  std::string_view text(const Node& string) const {
    return std::string_view(arena).substr(string.first, string.count);
  }
  std::string_view key(const Node& object, std::size_t i) const {
    return view(children[object.first + i].key);
  }
  std::optional<std::uint32_t> find(const Node& object, std::string_view wanted) const {
    if (object.count <= kFewMembers) {
      for (std::size_t i = 0; i < object.count; ++i) {
        if (key(object, i) == wanted) return children[object.first + i].node;
      }
      return std::nullopt;
    }
    const auto begin = sorted.begin() + static_cast<std::ptrdiff_t>(object.first);
    const auto end = begin + static_cast<std::ptrdiff_t>(object.count);
    const auto found =
        std::lower_bound(begin, end, wanted, [&](std::uint32_t position, std::string_view text) {
          return key(object, position) < text;
        });
    if (found == end || key(object, *found) != wanted) return std::nullopt;
    return children[object.first + *found].node;
  }
};

namespace {

constexpr std::size_t kLongestQuote = 60;

/// At most kLongestQuote bytes of `text`, cut between characters, quoted.
std::string short_quote(std::string_view text) {
  if (text.size() <= kLongestQuote) return json_quote(text);
  std::size_t size = kLongestQuote;
  while (size > 0 && (static_cast<unsigned char>(text[size]) & 0xC0U) == 0x80U) --size;
  return json_quote(text.substr(0, size)) + "...";
}

/// "line 3, column 14" of the byte with this number (counted from 1).
std::string line_and_column(std::string_view text, std::size_t byte) {
  const std::size_t end = std::min(byte == 0 ? 0 : byte - 1, text.size());
  const std::string_view before = text.substr(0, end);
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const std::size_t newline = before.rfind('\n');
  const std::size_t column = newline == std::string_view::npos ? end + 1 : end - newline;
  return "line " + std::to_string(line) + ", column " + std::to_string(column) + " (byte " +
         std::to_string(end) + ")";
}

/// The parser's message without its prefix and its place, on one line of bounded length.
std::string syntax_message(std::string_view what) {
  for (const std::string_view mark : {"syntax error ", "parse error: ", "] "}) {
    const std::size_t found = what.find(mark);
    if (found == std::string_view::npos) continue;
    what.remove_prefix(mark == "] " ? found + mark.size() : found);
    break;
  }
  std::string message;
  for (const char c : what.substr(0, 240)) {
    const auto byte = static_cast<unsigned char>(c);
    message += byte < 0x20 || byte >= 0x7F ? '?' : c;
  }
  if (what.size() > 240) message += "...";
  return message;
}

class TreeBuilder final : public nlohmann::json_sax<nlohmann::json> {
 public:
  TreeBuilder(JsonTree& tree, std::string_view text) : tree_(tree), text_(text) {}

  const std::optional<Error>& error() const { return error_; }

  bool null() override {
    add(JsonKind::kNull);
    return true;
  }
  bool boolean(bool flag) override {
    add(JsonKind::kBool).flag = flag;
    return true;
  }
  bool number_integer(number_integer_t number) override {
    return add_integer(JsonTree::Number::kSigned, number);
  }
  bool number_unsigned(number_unsigned_t number) override {
    const bool fits =
        number <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
    return add_integer(fits ? JsonTree::Number::kSigned : JsonTree::Number::kUnsigned,
                       static_cast<std::int64_t>(number));
  }
  bool number_float(number_float_t number, const string_t& text) override {
    const bool integer = text.find_first_of(".eE") == std::string::npos;
    JsonTree::Node& node = add(integer ? JsonKind::kInteger : JsonKind::kNumber);
    if (integer) node.number = JsonTree::Number::kBeyond64Bits;
    node.real = number;
    return true;
  }
  bool string(string_t& text) override {
    const JsonTree::Text stored = store(text);
    JsonTree::Node& node = add(JsonKind::kString);
    node.first = stored.begin;
    node.count = stored.size;
    return true;
  }
  bool binary(binary_t& /*bytes*/) override { return false; }

  bool start_object(std::size_t /*size*/) override { return open(JsonKind::kObject); }
  bool start_array(std::size_t /*size*/) override { return open(JsonKind::kArray); }
  bool key(string_t& text) override {
    key_ = store(text);
    return true;
  }
  bool end_array() override { return close(); }
  bool end_object() override { return close(); }

  bool parse_error(std::size_t position,
                   const std::string& /*last_token*/,
                   const nlohmann::json::exception& exception) override {
    if (!error_) {
      error_ = Error{ErrorCode::kInput,
                     tree_.file,
                     "not valid JSON at " + line_and_column(text_, position) + ": " +
                         syntax_message(exception.what())};
    }
    return false;
  }

 private:
  struct Open {
    std::uint32_t node;
    std::size_t first_pending;
  };

  JsonTree::Text store(const std::string& text) {
    const JsonTree::Text stored{static_cast<std::uint32_t>(tree_.arena.size()),
                                static_cast<std::uint32_t>(text.size())};
    tree_.arena += text;
    return stored;
  }

  JsonTree::Node& add(JsonKind kind) {
    const auto id = static_cast<std::uint32_t>(tree_.nodes.size());
    JsonTree::Node& node = tree_.nodes.emplace_back();
    node.kind = kind;
    if (!open_.empty()) {
      node.parent = open_.back().node;
      node.position = static_cast<std::uint32_t>(pending_.size() - open_.back().first_pending);
      pending_.push_back({id, key_});
    }
    return node;
  }

  bool add_integer(JsonTree::Number number, std::int64_t integer) {
    JsonTree::Node& node = add(JsonKind::kInteger);
    node.number = number;
    node.integer = integer;
    return true;
  }

  bool open(JsonKind kind) {
    if (open_.size() >= static_cast<std::size_t>(JsonDocument::kMaxDepth)) {
      error_ = Error{ErrorCode::kInput,
                     tree_.file,
                     "arrays and objects are nested more than " +
                         std::to_string(JsonDocument::kMaxDepth) + " deep"};
      return false;
    }
    add(kind);
    open_.push_back({static_cast<std::uint32_t>(tree_.nodes.size() - 1), pending_.size()});
    return true;
  }

  /// Moves the finished container's children to the tree; refuses equal keys.
  bool close() {
    const Open done = open_.back();
    open_.pop_back();
    JsonTree::Node& node = tree_.nodes[done.node];
    node.first = tree_.children.size();
    node.count = static_cast<std::uint32_t>(pending_.size() - done.first_pending);
    const auto begin = pending_.begin() + static_cast<std::ptrdiff_t>(done.first_pending);
    tree_.children.insert(tree_.children.end(), begin, pending_.end());
    pending_.erase(begin, pending_.end());
    return node.kind != JsonKind::kObject || index_keys(node, done.node);
  }

  bool index_keys(const JsonTree::Node& object, std::uint32_t id) {
    return object.count <= JsonTree::kFewMembers ? compare_keys(object, id) : sort_keys(object, id);
  }

  bool compare_keys(const JsonTree::Node& object, std::uint32_t id) {
    for (std::uint32_t i = 1; i < object.count; ++i) {
      const std::string_view key = tree_.key(object, i);
      for (std::uint32_t before = 0; before < i; ++before) {
        if (tree_.key(object, before) == key) return refuse_twice(key, id);
      }
    }
    return true;
  }

  bool sort_keys(const JsonTree::Node& object, std::uint32_t id) {
    std::vector<std::pair<std::string_view, std::uint32_t>> order(object.count);
    for (std::uint32_t i = 0; i < object.count; ++i) order[i] = {tree_.key(object, i), i};
    std::sort(order.begin(), order.end());
    std::optional<std::uint32_t> twice;
    for (std::size_t i = 1; i < order.size(); ++i) {
      if (order[i - 1].first != order[i].first) continue;
      if (!twice || order[i].second < *twice) twice = order[i].second;
    }
    if (twice) return refuse_twice(tree_.key(object, *twice), id);
    tree_.sorted.resize(object.first + object.count);
    for (std::size_t i = 0; i < order.size(); ++i) tree_.sorted[object.first + i] = order[i].second;
    return true;
  }

  bool refuse_twice(std::string_view key, std::uint32_t id) {
    error_ = Error{ErrorCode::kDuplicate,
                   tree_.file + ": " + path(id) + "/" + json_pointer_part(key),
                   "the key " + short_quote(key) + " stands twice in one object"};
    return false;
  }

  /// The pointer of a container whose ancestors are still open (their children are pending).
  std::string path(std::uint32_t id) const {
    std::string pointer;
    for (std::size_t level = 0; level < open_.size(); ++level) {
      const std::size_t last =
          level + 1 < open_.size() ? open_[level + 1].first_pending - 1 : pending_.size() - 1;
      const JsonTree::Child& child = pending_[last];
      const JsonTree::Node& parent = tree_.nodes[open_[level].node];
      pointer += '/';
      pointer += parent.kind == JsonKind::kObject
                     ? json_pointer_part(tree_.view(child.key))
                     : std::to_string(tree_.nodes[child.node].position);
      if (child.node == id) break;
    }
    return pointer;
  }

  JsonTree& tree_;
  std::string_view text_;
  std::optional<Error> error_;
  std::vector<Open> open_;
  std::vector<JsonTree::Child> pending_;  ///< children of the open containers, innermost last
  JsonTree::Text key_;
};

}  // namespace

std::string json_pointer_part(std::string_view key) {
  std::string part;
  part.reserve(key.size());
  for (const char c : key) {
    if (c == '~') {
      part += "~0";
    } else if (c == '/') {
      part += "~1";
    } else if (static_cast<unsigned char>(c) < 0x20) {
      const std::string quoted = json_quote(std::string_view(&c, 1));  // one line, whatever the key
      part.append(quoted, 1, quoted.size() - 2);
    } else {
      part += c;
    }
  }
  return part;
}

const char* json_kind_name(JsonKind kind) {
  switch (kind) {
    case JsonKind::kNull:
      return "null";
    case JsonKind::kBool:
      return "a boolean";
    case JsonKind::kInteger:
      return "an integer";
    case JsonKind::kNumber:
      return "a number";
    case JsonKind::kString:
      return "a string";
    case JsonKind::kArray:
      return "an array";
    case JsonKind::kObject:
      return "an object";
  }
  return "?";
}

Result<JsonDocument> JsonDocument::parse(std::string_view text, std::string file) {
  auto tree = std::make_shared<JsonTree>();
  tree->file = std::move(file);
  if (text.size() > std::numeric_limits<std::uint32_t>::max()) {
    return fail(ErrorCode::kInput, tree->file, "holds more than 4294967295 bytes");
  }
  tree->arena.reserve(text.size());
  if (text.substr(0, 3) == "\xEF\xBB\xBF") text.remove_prefix(3);  // a byte order mark is harmless
  TreeBuilder builder(*tree, text);
  bool done = false;
  try {
    done = nlohmann::json::sax_parse(text.begin(), text.end(), &builder);
  } catch (const nlohmann::json::exception& exception) {
    return fail(
        ErrorCode::kInput, tree->file, "not valid JSON: " + syntax_message(exception.what()));
  }
  if (builder.error()) return fail(*builder.error());
  MESHPLAN_CHECK(done && !tree->nodes.empty());
  return JsonDocument(std::move(tree));
}

JsonCursor JsonDocument::root() const { return JsonCursor(tree_.get(), 0); }

JsonKind JsonCursor::kind() const { return tree_->nodes[node_].kind; }

Unexpected<Error> JsonCursor::error(ErrorCode code, std::string message) const {
  return fail(code, where(), std::move(message));
}

Unexpected<Error> JsonCursor::wrong_kind(const char* expected) const {
  std::string found = json_kind_name(kind());
  const JsonTree::Node& node = tree_->nodes[node_];
  if (kind() == JsonKind::kString) found += " " + short_quote(tree_->text(node));
  if (kind() == JsonKind::kNumber) found += " " + json_number(node.real);
  if (kind() == JsonKind::kBool) found = node.flag ? "true" : "false";
  return error(ErrorCode::kType, std::string("expected ") + expected + ", found " + found);
}

Result<void> JsonCursor::expect(JsonKind wanted) const {
  if (kind() == wanted) return {};
  if (wanted == JsonKind::kNumber && kind() == JsonKind::kInteger) return {};
  return wrong_kind(json_kind_name(wanted));
}

Result<std::int64_t> JsonCursor::as_int64() const {
  const JsonTree::Node& node = tree_->nodes[node_];
  if (node.kind != JsonKind::kInteger) return wrong_kind("an integer");
  if (node.number != JsonTree::Number::kSigned) {
    return error(ErrorCode::kOverflow, "the integer does not fit into 64 bits");
  }
  return node.integer;
}

Result<std::int64_t> JsonCursor::as_int64(std::int64_t least, std::int64_t most) const {
  const Result<std::int64_t> number = as_int64();
  if (!number || (*number >= least && *number <= most)) return number;
  const std::string expected =
      most == std::numeric_limits<std::int64_t>::max()
          ? "an integer of at least " + std::to_string(least)
          : "an integer from " + std::to_string(least) + " to " + std::to_string(most);
  return error(ErrorCode::kValue, "expected " + expected + ", found " + std::to_string(*number));
}

Result<std::uint64_t> JsonCursor::as_uint64() const {
  const JsonTree::Node& node = tree_->nodes[node_];
  if (node.kind != JsonKind::kInteger) return wrong_kind("an integer");
  if (node.number == JsonTree::Number::kBeyond64Bits) {
    return error(ErrorCode::kOverflow, "the integer does not fit into 64 bits");
  }
  if (node.number == JsonTree::Number::kSigned && node.integer < 0) {
    return error(ErrorCode::kValue,
                 "expected an integer of at least 0, found " + std::to_string(node.integer));
  }
  return static_cast<std::uint64_t>(node.integer);
}

Result<double> JsonCursor::as_double() const {
  if (auto ok = expect(JsonKind::kNumber); !ok) return fail(ok.error());
  const JsonTree::Node& node = tree_->nodes[node_];
  switch (node.number) {
    case JsonTree::Number::kSigned:
      return static_cast<double>(node.integer);
    case JsonTree::Number::kUnsigned:
      return static_cast<double>(static_cast<std::uint64_t>(node.integer));
    case JsonTree::Number::kBeyond64Bits:
    case JsonTree::Number::kReal:
      break;
  }
  return node.real;
}

Result<bool> JsonCursor::as_bool() const {
  if (kind() != JsonKind::kBool) return wrong_kind("true or false");
  return tree_->nodes[node_].flag;
}

Result<std::string_view> JsonCursor::as_string() const {
  if (auto ok = expect(JsonKind::kString); !ok) return fail(ok.error());
  const JsonTree::Node& node = tree_->nodes[node_];
  return tree_->text(node);
}

Result<std::vector<JsonCursor>> JsonCursor::as_array() const {
  if (auto ok = expect(JsonKind::kArray); !ok) return fail(ok.error());
  std::vector<JsonCursor> elements;
  elements.reserve(size());
  for (std::size_t i = 0; i < size(); ++i) elements.push_back(at(i));
  return elements;
}

Result<std::vector<std::int64_t>> JsonCursor::as_int64s() const {
  if (auto ok = expect(JsonKind::kArray); !ok) return fail(ok.error());
  std::vector<std::int64_t> numbers;
  numbers.reserve(size());
  for (std::size_t i = 0; i < size(); ++i) {
    const Result<std::int64_t> number = at(i).as_int64();
    if (!number) return fail(number.error());
    numbers.push_back(*number);
  }
  return numbers;
}

Result<std::vector<std::string>> JsonCursor::as_strings() const {
  if (auto ok = expect(JsonKind::kArray); !ok) return fail(ok.error());
  std::vector<std::string> texts;
  texts.reserve(size());
  for (std::size_t i = 0; i < size(); ++i) {
    const Result<std::string_view> text = at(i).as_string();
    if (!text) return fail(text.error());
    texts.emplace_back(*text);
  }
  return texts;
}

std::size_t JsonCursor::size() const {
  const JsonTree::Node& node = tree_->nodes[node_];
  return node.kind == JsonKind::kArray || node.kind == JsonKind::kObject ? node.count : 0;
}

JsonCursor JsonCursor::at(std::size_t i) const {
  MESHPLAN_CHECK(i < size());
  return JsonCursor(tree_, tree_->children[tree_->nodes[node_].first + i].node);
}

std::string_view JsonCursor::key_at(std::size_t i) const {
  MESHPLAN_CHECK(kind() == JsonKind::kObject && i < size());
  return tree_->key(tree_->nodes[node_], i);
}

std::optional<JsonCursor> JsonCursor::find(std::string_view key) const {
  if (kind() != JsonKind::kObject) return std::nullopt;
  const auto found = tree_->find(tree_->nodes[node_], key);
  if (!found) return std::nullopt;
  return JsonCursor(tree_, *found);
}

Result<JsonCursor> JsonCursor::get(std::string_view key) const {
  if (auto ok = expect(JsonKind::kObject); !ok) return fail(ok.error());
  if (const auto found = find(key)) return *found;
  return error(ErrorCode::kMissing, "the key " + json_quote(key) + " is missing");
}

Result<void> JsonCursor::allow_only(std::initializer_list<std::string_view> keys) const {
  if (auto ok = expect(JsonKind::kObject); !ok) return ok;
  for (std::size_t i = 0; i < size(); ++i) {
    const std::string_view key = key_at(i);
    if (std::find(keys.begin(), keys.end(), key) != keys.end()) continue;
    const std::vector<std::string> known(keys.begin(), keys.end());
    std::string message = "unknown key " + short_quote(key);
    const std::string hint = nearest_name_hint(key, known);
    if (!hint.empty()) {
      message += hint;
    } else {
      message += "; known here: ";
      for (std::size_t k = 0; k < known.size(); ++k) message += (k == 0 ? "" : ", ") + known[k];
    }
    return at(i).error(ErrorCode::kValue, message);
  }
  return {};
}

std::string JsonCursor::name_in_parent() const {
  if (node_ == 0) return "";
  const JsonTree::Node& node = tree_->nodes[node_];
  const JsonTree::Node& parent = tree_->nodes[node.parent];
  if (parent.kind == JsonKind::kObject) return std::string(tree_->key(parent, node.position));
  return std::to_string(node.position);
}

std::string JsonCursor::pointer() const {
  std::vector<JsonCursor> path;
  for (JsonCursor cursor = *this; cursor.node_ != 0;) {
    path.push_back(cursor);
    cursor = JsonCursor(tree_, tree_->nodes[cursor.node_].parent);
  }
  std::string pointer;
  for (auto part = path.rbegin(); part != path.rend(); ++part) {
    pointer += "/" + json_pointer_part(part->name_in_parent());
  }
  return pointer;
}

std::string JsonCursor::where() const {
  return node_ == 0 ? tree_->file : tree_->file + ": " + pointer();
}

namespace {

/// "1.0" -> {1, 0}; nothing for any other text.
std::optional<std::pair<int, int>> parse_version(std::string_view text) {
  std::pair<int, int> version;
  const char* const end = text.data() + text.size();
  const auto major = std::from_chars(text.data(), end, version.first);
  if (major.ec != std::errc() || major.ptr == end || *major.ptr != '.') return std::nullopt;
  const auto minor = std::from_chars(major.ptr + 1, end, version.second);
  if (minor.ec != std::errc() || minor.ptr != end) return std::nullopt;
  if (version.first < 0 || version.second < 0) return std::nullopt;
  return version;
}

}  // namespace

Result<void> check_schema(const JsonCursor& root, std::string_view kind, int major, int minor) {
  const std::string own =
      std::string(kind) + "/" + std::to_string(major) + "." + std::to_string(minor);
  if (auto ok = root.expect(JsonKind::kObject); !ok) return ok;
  const std::optional<JsonCursor> schema = root.find("schema");
  if (!schema) {
    return root.error(ErrorCode::kMissing,
                      "the key \"schema\" is missing; expected \"schema\": \"" + own + "\"");
  }
  const Result<std::string_view> text = schema->as_string();
  if (!text) return fail(text.error());
  const std::size_t slash = text->rfind('/');
  const auto version =
      slash == std::string_view::npos ? std::nullopt : parse_version(text->substr(slash + 1));
  if (!version || text->substr(0, slash) != kind) {
    return schema->error(ErrorCode::kValue,
                         "expected \"" + own + "\", found " + short_quote(*text));
  }
  if (version->first != major || version->second > minor) {
    return schema->error(ErrorCode::kUnsupported,
                         "this program reads " + std::string(kind) + " " + std::to_string(major) +
                             ".0 to " + std::to_string(major) + "." + std::to_string(minor) +
                             ", not " + short_quote(*text));
  }
  return {};
}

namespace {

/// The length of the valid UTF-8 sequence at the front of `text`, 0 if there is none.
std::size_t utf8_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const auto follows = [&](std::size_t i, unsigned least, unsigned most) {
    return i < text.size() && byte(i) >= least && byte(i) <= most;
  };
  const unsigned lead = byte(0);
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead <= 0xDF) return follows(1, 0x80, 0xBF) ? 2 : 0;
  if (lead >= 0xE0 && lead <= 0xEF) {
    const unsigned least = lead == 0xE0 ? 0xA0 : 0x80;  // no overlong forms
    const unsigned most = lead == 0xED ? 0x9F : 0xBF;   // no surrogates
    return follows(1, least, most) && follows(2, 0x80, 0xBF) ? 3 : 0;
  }
  if (lead >= 0xF0 && lead <= 0xF4) {
    const unsigned least = lead == 0xF0 ? 0x90 : 0x80;
    const unsigned most = lead == 0xF4 ? 0x8F : 0xBF;  // up to U+10FFFF
    return follows(1, least, most) && follows(2, 0x80, 0xBF) && follows(3, 0x80, 0xBF) ? 4 : 0;
  }
  return 0;
}

/// Characters that stand in a JSON text as they are.
constexpr std::array<bool, 256> kPlain = [] {
  std::array<bool, 256> plain{};
  for (std::size_t c = 0x20; c < 0x7F; ++c) plain[c] = c != '"' && c != '\\';
  return plain;
}();

void append_quoted(std::string& quoted, std::string_view text) {
  quoted += '"';
  while (!text.empty()) {
    std::size_t plain = 0;
    while (plain < text.size() && kPlain[static_cast<unsigned char>(text[plain])]) ++plain;
    quoted.append(text.data(), plain);
    text.remove_prefix(plain);
    if (text.empty()) break;
    const char c = text.front();
    const std::size_t length = utf8_length(text);
    if (length == 0) {
      quoted += "\xEF\xBF\xBD";
    } else if (c == '"' || c == '\\') {
      quoted += {'\\', c};
    } else if (c == '\n') {
      quoted += "\\n";
    } else if (c == '\t') {
      quoted += "\\t";
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
      constexpr char kDigits[] = "0123456789abcdef";
      const auto code = static_cast<unsigned char>(c);
      quoted += {'\\', 'u', '0', '0', kDigits[code >> 4U], kDigits[code & 15U]};
    } else {
      quoted += text.substr(0, length);
    }
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
  quoted += '"';
}

}  // namespace

std::string json_quote(std::string_view text) {
  std::string quoted;
  append_quoted(quoted, text);
  return quoted;
}

std::string one_line(std::string_view text) {
  constexpr std::size_t kLongest = 1000;
  std::size_t size = std::min(text.size(), kLongest);
  while (size < text.size() && size > 0 &&
         (static_cast<unsigned char>(text[size]) & 0xC0U) == 0x80U) {
    --size;  // not inside of a character
  }
  std::string line;
  for (std::string_view rest = text.substr(0, size); !rest.empty();) {
    const bool plain = rest.front() == '"' || rest.front() == '\\';
    const std::size_t length = std::max<std::size_t>(utf8_length(rest), 1);
    if (plain) {
      line += rest.front();
    } else {
      const std::string quoted = json_quote(rest.substr(0, length));
      line.append(quoted, 1, quoted.size() - 2);
    }
    rest.remove_prefix(length);
  }
  return size < text.size() ? line + "..." : line;
}

std::string json_number(double value) {
  MESHPLAN_CHECK(std::isfinite(value));
  char buffer[64];
  const auto written = std::to_chars(buffer, buffer + sizeof buffer, value);
  std::string text(buffer, written.ptr);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

void JsonWriter::separate() {
  if (levels_.empty()) return;
  Level& level = levels_.back();
  if (!level.empty) text_ += ',';
  if (level.one_line) {
    if (!level.empty && indent_ > 0) text_ += ' ';
  } else if (indent_ > 0) {
    text_ += '\n';
    text_.append(levels_.size() * static_cast<std::size_t>(indent_), ' ');
  }
  level.empty = false;
}

void JsonWriter::before_value() {
  if (after_key_) {
    after_key_ = false;
    return;
  }
  MESHPLAN_CHECK(levels_.empty() ? text_.empty() : levels_.back().close == ']');
  separate();
}

void JsonWriter::raw(std::string_view text) {
  before_value();
  text_ += text;
}

void JsonWriter::key(std::string_view key) {
  MESHPLAN_CHECK(!levels_.empty() && levels_.back().close == '}' && !after_key_);
  separate();
  append_quoted(text_, key);
  text_ += indent_ > 0 ? ": " : ":";
  after_key_ = true;
}

void JsonWriter::value(std::string_view text) {
  before_value();
  append_quoted(text_, text);
}
void JsonWriter::value(double number) { raw(json_number(number)); }
void JsonWriter::value(bool flag) { raw(flag ? "true" : "false"); }

void JsonWriter::begin(char open, Layout layout) {
  before_value();
  text_ += open;
  const bool one_line = layout == kOneLine || (!levels_.empty() && levels_.back().one_line);
  levels_.push_back({open == '{' ? '}' : ']', one_line, true});
}

void JsonWriter::end(char close) {
  MESHPLAN_CHECK(!levels_.empty() && levels_.back().close == close && !after_key_);
  const Level level = levels_.back();
  levels_.pop_back();
  if (!level.empty && !level.one_line && indent_ > 0) {
    text_ += '\n';
    text_.append(levels_.size() * static_cast<std::size_t>(indent_), ' ');
  }
  text_ += close;
}

std::string JsonWriter::text() && {
  MESHPLAN_CHECK(levels_.empty() && !text_.empty());
  if (indent_ > 0) text_ += '\n';
  return std::move(text_);
}

}  // namespace meshplan

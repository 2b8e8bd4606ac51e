// SPDX-License-Identifier: Apache-2.0
// One pass over the bytes, a chunk at a time, plain or inflated on the way: no tree of the document
// is built. Numbers go straight into the pool of distinct sequences; what refers to something that
// may stand later in the file (edges before nodes) is checked at the end. The place of a fault is
// kept as a stack of keys and indices and printed only when needed.
#include <algorithm>
#include <bit>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <system_error>
#include <utility>

#include <zlib.h>

#include "graph/json.h"
#include "lib/nearest_name.h"
#include "lib/text.h"
#include "search/cost_graph.h"

namespace meshplan {
namespace {

/// Fills the buffer and returns how many bytes came, 0 at the end, or what is wrong.
using Source = std::function<Result<std::size_t>(char*, std::size_t)>;

constexpr std::size_t kChunk = std::size_t{1} << 18;
constexpr std::size_t kLongestToken = 256;  ///< of a number
constexpr int kDeepest = 200;

bool is_utf8(const std::string& text) {
  const bool ascii = std::all_of(
      text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
  if (ascii) return true;
  // quoting replaces what is no UTF-8
  const auto again = JsonDocument::parse(json_quote(text), "");
  return again.has_value() && *again->root().as_string() == text;
}

/// The tokens of a JSON text. After a fault every call returns false.
class Scanner {
 public:
  Scanner(Source source, std::string file)
      : source_(std::move(source)), file_(std::move(file)), buffer_(kChunk + 1) {
    at_ = end_ = buffer_.data();
    *end_ = '\0';
  }

  bool failed() const { return error_.has_value(); }
  Error take_error() { return std::move(*error_); }

  bool fail_here(ErrorCode code, std::string message) {
    if (!error_) error_ = Error{code, where(), std::move(message)};
    return false;
  }
  bool fail_at(const std::string& pointer, ErrorCode code, std::string message) {
    if (!error_) error_ = Error{code, file_ + ": " + pointer, std::move(message)};
    return false;
  }

  /// The next character that is no blank, '\0' at the end.
  char peek() {
    while (true) {
      while (*at_ == ' ' || *at_ == '\n' || *at_ == '\r' || *at_ == '\t') ++at_;
      if (at_ < end_ || !fill()) return *at_;
    }
  }

  /// Calls `member(key)` at every value; it must consume the value.
  template <class F>
  bool object(const F& member) {
    if (!open('{', "an object")) return false;
    if (peek() == '}') return close();
    std::vector<std::string> keys;
    do {
      std::string key;
      if (peek() != '"') return syntax("expected a key in quotes");
      if (!raw_string(key) || !punctuation(':')) return false;
      path_.back() = {key, -1};
      if (std::find(keys.begin(), keys.end(), key) != keys.end())
        return fail_here(ErrorCode::kDuplicate, "the key is given twice");
      keys.push_back(key);
      if (!member(std::string_view(key))) return false;
    } while (peek() == ',' && advance());
    if (peek() != '}') return syntax("expected \",\" or \"}\"");
    return close();
  }

  /// Calls `element()` at every value; it must consume the value.
  template <class F>
  bool array(const F& element) {
    if (!open('[', "an array")) return false;
    if (peek() == ']') return close();
    std::int64_t index = 0;
    do {
      path_.back().index = index++;
      if (!element()) return false;
    } while (peek() == ',' && advance());
    if (peek() != ']') return syntax("expected \",\" or \"]\"");
    return close();
  }

  /// A whole number; `limit` beyond 64 bits is an error.
  bool integer(std::int64_t& value) {
    peek();
    if (end_ - at_ < static_cast<std::ptrdiff_t>(kLongestToken)) fill();
    const char* p = at_;
    const bool negative = *p == '-';
    if (negative) ++p;
    if (*p < '0' || *p > '9') return wrong_kind("an integer");
    std::uint64_t digits = 0;
    const char* const first = p;
    while (*p >= '0' && *p <= '9' && p - first < 18)
      digits = digits * 10 + static_cast<std::uint64_t>(*p++ - '0');
    if ((*p >= '0' && *p <= '9') || *p == '.' || *p == 'e' || *p == 'E' ||
        (*first == '0' && p - first > 1))
      return long_integer(value);
    at_ += p - at_;
    value = negative ? -static_cast<std::int64_t>(digits) : static_cast<std::int64_t>(digits);
    return true;
  }

  bool number(double& value) {
    std::string_view token;
    if (!number_token(token, "a number")) return false;
    const auto [last, status] = std::from_chars(token.data(), token.data() + token.size(), value);
    if (status != std::errc() && token.find("e-") == std::string_view::npos &&
        token.find("E-") == std::string_view::npos)
      return fail_here(ErrorCode::kOverflow, "the number " + quoted(token) + " is too large");
    if (status != std::errc()) value = 0;
    return true;
  }

  bool string(std::string& text) {
    if (peek() != '"') return wrong_kind("a string");
    return raw_string(text);
  }

  /// null?
  bool is_null() { return peek() == 'n'; }

  bool skip() {
    switch (peek()) {
      case '{':
        return object([&](std::string_view) { return skip(); });
      case '[':
        return array([&] { return skip(); });
      case '"': {
        std::string ignored;
        return raw_string(ignored);
      }
      case 't':
        return word("true");
      case 'f':
        return word("false");
      case 'n':
        return word("null");
      default: {
        std::string_view ignored;
        return number_token(ignored, "a value");
      }
    }
  }

  bool at_end() {
    if (peek() != '\0' || at_ < end_) return syntax("expected the end of the text");
    return !failed();
  }

  bool wrong_kind(const char* expected) {
    const char c = peek();
    if (failed()) return false;
    const char* found = nullptr;
    if (c == '{') found = "an object";
    if (c == '[') found = "an array";
    if (c == '"') found = "a string";
    if (c == 't' || c == 'f') found = "a boolean";
    if (c == 'n') found = "null";
    if (c == '-' || (c >= '0' && c <= '9')) found = "a number";
    if (found == nullptr) return syntax(std::string("expected ") + expected);
    return fail_here(ErrorCode::kType, std::string("expected ") + expected + ", found " + found);
  }

 private:
  struct Part {
    std::string key;
    std::int64_t index = -1;
  };

  std::string where() const {
    std::string pointer;
    for (const Part& part : path_) {
      if (part.index < 0 && part.key.empty()) continue;
      pointer += "/";
      pointer += part.index >= 0 ? std::to_string(part.index) : json_pointer_part(part.key);
    }
    return pointer.empty() ? file_ : file_ + ": " + pointer;
  }

  bool syntax(const std::string& expected) {
    if (error_) return false;
    const bool ended = at_ >= end_ && !fill();
    if (error_) return false;
    const std::size_t byte = consumed_ + static_cast<std::size_t>(at_ - buffer_.data());
    return fail_here(ErrorCode::kInput,
                     "not valid JSON at byte " + std::to_string(byte) + ": " + expected +
                         (ended ? ", found the end of the text"
                                : ", found " + quoted(std::string_view(at_, 1))));
  }

  /// Moves the rest to the front and reads on; whether there is more than before.
  bool fill() {
    if (finished_ || error_) return false;
    const auto rest = static_cast<std::size_t>(end_ - at_);
    consumed_ += static_cast<std::size_t>(at_ - buffer_.data());
    std::memmove(buffer_.data(), at_, rest);
    at_ = buffer_.data();
    end_ = at_ + rest;
    const Result<std::size_t> got = source_(end_, kChunk - rest);
    if (!got) {
      error_ = got.error();
      finished_ = true;
    } else {
      end_ += *got;
      finished_ = *got == 0;
    }
    *end_ = '\0';
    return !finished_;
  }

  bool advance() {
    ++at_;
    return true;
  }
  bool open(char c, const char* what) {
    if (peek() != c) return wrong_kind(what);
    if (path_.size() >= kDeepest) {
      path_.clear();
      return fail_here(ErrorCode::kInput, "nested too deeply");
    }
    ++at_;
    path_.emplace_back();
    return true;
  }
  bool close() {
    ++at_;
    path_.pop_back();
    return !failed();
  }
  bool punctuation(char c) {
    if (peek() != c) return syntax(std::string("expected \"") + c + "\"");
    return advance();
  }
  bool word(std::string_view text) {
    if (end_ - at_ < static_cast<std::ptrdiff_t>(kLongestToken)) fill();
    if (std::string_view(at_, static_cast<std::size_t>(end_ - at_)).substr(0, text.size()) != text)
      return syntax("expected a value");
    at_ += text.size();
    return true;
  }

  bool raw_string(std::string& text) {
    ++at_;
    while (true) {
      if (at_ >= end_ && !fill()) return syntax("expected the end of a string");
      const char c = *at_;
      if (c == '"') return is_utf8(text) ? advance() : syntax("expected UTF-8");
      if (static_cast<unsigned char>(c) < 0x20) return syntax("expected no control character");
      ++at_;
      if (c != '\\') {
        text += c;
        continue;
      }
      if (end_ - at_ < 8) fill();
      const char escape = *at_;
      constexpr std::string_view kEscapes = "\"\\/bfnrt";
      constexpr std::string_view kMeanings = "\"\\/\b\f\n\r\t";
      if (escape == 'u') {
        if (!unicode_escape(text)) return false;
        continue;
      }
      const std::size_t known = kEscapes.find(escape);
      if (at_ >= end_ || known == std::string_view::npos) return syntax("expected an escape");
      text += kMeanings[known];
      ++at_;
    }
  }

  bool four_digits(std::uint32_t& code) {
    if (end_ - at_ < 16) fill();
    if (end_ - at_ < 5) return syntax("expected four hexadecimal digits");
    const auto [last, status] = std::from_chars(at_ + 1, at_ + 5, code, 16);
    if (status != std::errc() || last != at_ + 5) return syntax("expected four hexadecimal digits");
    at_ += 5;
    return true;
  }
  bool unicode_escape(std::string& text) {
    std::uint32_t code = 0;
    if (!four_digits(code)) return false;
    if (code >= 0xD800 && code < 0xDC00) {
      std::uint32_t low = 0;
      if (*at_ != '\\' || at_[1] != 'u') return syntax("expected the second half of a pair");
      ++at_;
      if (!four_digits(low)) return false;
      if (low < 0xDC00 || low > 0xDFFF) return syntax("expected the second half of a pair");
      code = 0x10000 + ((code - 0xD800) << 10U) + (low - 0xDC00);
    } else if (code >= 0xDC00 && code < 0xE000) {
      return syntax("expected the first half of a pair");
    }
    const auto put = [&](std::uint32_t byte) { text += static_cast<char>(byte); };
    if (code < 0x80) {
      put(code);
    } else if (code < 0x800) {
      put(0xC0U | (code >> 6U));
      put(0x80U | (code & 0x3FU));
    } else if (code < 0x10000) {
      put(0xE0U | (code >> 12U));
      put(0x80U | ((code >> 6U) & 0x3FU));
      put(0x80U | (code & 0x3FU));
    } else {
      put(0xF0U | (code >> 18U));
      put(0x80U | ((code >> 12U) & 0x3FU));
      put(0x80U | ((code >> 6U) & 0x3FU));
      put(0x80U | (code & 0x3FU));
    }
    return true;
  }

  /// The token of a JSON number; valid until the next call.
  bool number_token(std::string_view& token, const char* expected) {
    peek();
    if (end_ - at_ < static_cast<std::ptrdiff_t>(kLongestToken)) fill();
    const char* p = at_;
    const auto digits = [&p] {
      const char* const first = p;
      while (*p >= '0' && *p <= '9') ++p;
      return p - first;
    };
    if (*p == '-') ++p;
    const bool leading_zero = *p == '0';
    const auto whole = digits();
    if (whole == 0) return wrong_kind(expected);
    bool good = !leading_zero || whole == 1;
    if (*p == '.') {
      ++p;
      good = digits() > 0 && good;
    }
    if (*p == 'e' || *p == 'E') {
      ++p;
      if (*p == '+' || *p == '-') ++p;
      good = digits() > 0 && good;
    }
    token = std::string_view(at_, static_cast<std::size_t>(p - at_));
    if (!good || token.size() >= kLongestToken)
      return fail_here(ErrorCode::kInput, quoted(token) + " is not a JSON number");
    at_ += token.size();
    return true;
  }

  /// More than 18 digits, or written with a fraction or an exponent.
  bool long_integer(std::int64_t& value) {
    std::string_view token;
    if (!number_token(token, "an integer")) return false;
    const auto [last, status] = std::from_chars(token.data(), token.data() + token.size(), value);
    if (status == std::errc() && last == token.data() + token.size()) return true;
    double real = 0;
    const auto all = std::from_chars(token.data(), token.data() + token.size(), real);
    constexpr double kMost = 9223372036854775808.0;
    if (all.ec != std::errc() || !(std::abs(real) < kMost))
      return fail_here(ErrorCode::kOverflow,
                       "the number " + quoted(token) + " does not fit into 64 bits");
    if (real != std::nearbyint(real))
      return fail_here(ErrorCode::kType, "expected an integer, found " + quoted(token));
    value = static_cast<std::int64_t>(real);
    return true;
  }

  Source source_;
  std::string file_;
  std::vector<char> buffer_;
  char* at_ = nullptr;
  char* end_ = nullptr;  ///< *end_ == '\0'
  std::size_t consumed_ = 0;
  bool finished_ = false;
  std::vector<Part> path_;
  std::optional<Error> error_;
};

std::string number_pointer(std::string_view list, std::size_t index) {
  return std::string(list) + "/" + std::to_string(index);
}

/// Costs of one cell in our own format until the unit is known.
constexpr std::int64_t kForbiddenBits = -1;  // the bits of a NaN, which no text contains

class Reader {
 public:
  Reader(Source source, std::string file) : scan_(std::move(source), std::move(file)) {}

  Result<CostGraph> run() {
    const bool read = scan_.object([&](std::string_view key) { return top_level(key); }) &&
                      scan_.at_end() && finish();
    if (!read) return fail(scan_.take_error());
    return std::move(graph_);
  }

 private:
  // ---- both formats ----

  bool top_level(std::string_view key) {
    if (key == "problem" && !own_) {
      graph_.contest = true;
      return scan_.object([&](std::string_view member) { return problem(member); });
    }
    if (graph_.contest) return scan_.skip();  // "solution" and whatever other tools add
    if (key == "schema") {
      own_ = schema_ = true;
      return schema();
    }
    static const std::vector<std::string> kKeys = {
        "schema", "name", "moments", "nodes", "edges", "usage_limit", "problem"};
    if (std::find(kKeys.begin(), kKeys.end(), key) == kKeys.end() || key == "problem") {
      if (!own_) return scan_.skip();  // perhaps the contest's format; checked at the end
      return scan_.fail_here(ErrorCode::kValue,
                             "unknown member" + nearest_name_hint(std::string(key), kKeys));
    }
    own_ = true;
    if (key == "name") return scan_.string(graph_.name);
    if (key == "usage_limit") return limit();
    if (key == "moments") {
      moments_.emplace(0);
      return scan_.integer(*moments_) &&
             (*moments_ >= 0 ||
              scan_.fail_here(ErrorCode::kValue, "expected a number of moments, at least 0"));
    }
    if (key == "nodes") {
      has_nodes_ = true;
      return scan_.array([&] { return own_node(); });
    }
    return scan_.array([&] { return own_edge(); });
  }

  bool limit() {
    if (scan_.is_null()) return scan_.skip();
    std::int64_t value = 0;
    if (!scan_.integer(value)) return false;
    if (value < 0) return scan_.fail_here(ErrorCode::kValue, "the limit must not be negative");
    graph_.limit = value;
    return true;
  }

  bool integers(std::vector<std::int64_t>& values) {
    values.clear();
    return scan_.array([&] {
      std::int64_t value = 0;
      if (!scan_.integer(value)) return false;
      values.push_back(value);
      return true;
    });
  }
  bool usages(std::vector<std::int64_t>& values) {
    values.clear();
    return scan_.array([&] {
      std::int64_t value = 0;
      if (!scan_.integer(value)) return false;
      if (value < 0) return scan_.fail_here(ErrorCode::kValue, "a usage must not be negative");
      values.push_back(value);
      return true;
    });
  }

  // ---- the contest's format ----

  bool problem(std::string_view key) {
    if (key == "name") return scan_.string(graph_.name);
    if (key == "usage_limit") return limit();
    if (key == "nodes") {
      has_nodes_ = true;
      return scan_.object([&](std::string_view member) { return contest_nodes(member); });
    }
    if (key == "edges") {
      return scan_.object([&](std::string_view member) { return contest_edges(member); });
    }
    return scan_.skip();
  }

  bool contest_nodes(std::string_view key) {
    if (key == "intervals") {
      return scan_.array([&] {
        if (!integers(row_)) return false;
        if (row_.size() != 2)
          return scan_.fail_here(ErrorCode::kValue, "expected an interval [begin, end]");
        intervals_.emplace_back(row_[0], row_[1]);
        return true;
      });
    }
    if (key == "costs") {
      return scan_.array([&] {
        if (!integers(row_)) return false;
        if (row_.empty())
          return scan_.fail_here(ErrorCode::kValue, "a node needs at least one strategy");
        node_costs_.push_back(graph_.pool.add(row_));
        return true;
      });
    }
    if (key == "usages") {
      return scan_.array([&] {
        if (!usages(row_)) return false;
        node_usages_.push_back(graph_.pool.add(row_));
        return true;
      });
    }
    return scan_.skip();
  }

  bool contest_edges(std::string_view key) {
    if (key == "nodes") return scan_.array([&] { return edge_nodes(); });
    if (key == "costs") {
      return scan_.array([&] {
        if (!integers(row_)) return false;
        edge_costs_.push_back(graph_.pool.add(row_));
        return true;
      });
    }
    return scan_.skip();
  }

  bool edge_nodes() {
    if (!integers(row_)) return false;
    if (row_.size() != 2)
      return scan_.fail_here(
          ErrorCode::kUnsupported,
          "expected an edge between two nodes, found " + counted(row_.size(), "node"));
    constexpr std::int64_t kMost = 1 << 30;
    for (const std::int64_t node : row_) {
      if (node < 0 || node > kMost)
        return scan_.fail_here(ErrorCode::kValue, "there is no node " + std::to_string(node));
    }
    edge_nodes_.emplace_back(static_cast<int>(row_[0]), static_cast<int>(row_[1]));
    return true;
  }

  // ---- our own format ----

  bool schema() {
    std::string text;
    if (!scan_.string(text)) return false;
    constexpr std::string_view kKind = "meshplan.cost_graph/1.";
    if (text.rfind(kKind, 0) != 0)
      return scan_.fail_here(
          text.rfind("meshplan.cost_graph/", 0) == 0 ? ErrorCode::kUnsupported : ErrorCode::kValue,
          "expected \"meshplan.cost_graph/1.0\", found " + meshplan::quoted(text));
    if (text != "meshplan.cost_graph/1.0")
      return scan_.fail_here(
          ErrorCode::kUnsupported,
          meshplan::quoted(text) + " is newer than this program, which reads 1.0");
    return true;
  }

  using Interval = std::pair<std::int64_t, std::int64_t>;

  /// [[begin, end, bytes], ...], added to `into` at `position`.
  bool own_uses(std::map<Interval, std::vector<std::int64_t>>& into, std::size_t position) {
    return scan_.array([&] {
      if (!integers(row_)) return false;
      if (row_.size() != 3)
        return scan_.fail_here(ErrorCode::kValue, "expected [begin, end, bytes]");
      if (row_[0] > row_[1] || row_[0] < 0)
        return scan_.fail_here(ErrorCode::kValue,
                               "expected 0 <= begin <= end, found " + std::to_string(row_[0]) +
                                   " and " + std::to_string(row_[1]));
      if (row_[2] < 0) return scan_.fail_here(ErrorCode::kValue, "a usage must not be negative");
      last_moment_ = std::max(last_moment_, row_[1]);
      std::vector<std::int64_t>& usage = into[{row_[0], row_[1]}];
      if (usage.size() <= position) usage.resize(position + 1, 0);
      if (__builtin_add_overflow(usage[position], row_[2], &usage[position]))
        return scan_.fail_here(ErrorCode::kOverflow, "the usage does not fit into 64 bits");
      return true;
    });
  }

  bool own_cost(std::int64_t& bits) {
    double cost = 0;
    if (!scan_.number(cost)) return false;
    if (cost <= -static_cast<double>(kForbiddenCost))
      return scan_.fail_here(ErrorCode::kOverflow, "expected a cost above -10^18");
    bits = cost >= static_cast<double>(kForbiddenCost) ? kForbiddenBits
                                                       : std::bit_cast<std::int64_t>(cost);
    return true;
  }

  std::vector<CostGraph::Use> to_uses(std::map<Interval, std::vector<std::int64_t>>& by_interval,
                                      std::size_t strategies) {
    std::vector<CostGraph::Use> uses;
    for (auto& [interval, usage] : by_interval) {
      usage.resize(strategies, 0);
      uses.push_back({interval.first, interval.second, graph_.pool.add(usage)});
    }
    return uses;
  }

  bool unknown(std::string_view key, const std::vector<std::string>& keys) {
    return scan_.fail_here(ErrorCode::kValue,
                           "unknown member" + nearest_name_hint(std::string(key), keys));
  }

  bool own_node() {
    std::vector<std::int64_t> costs;
    std::map<Interval, std::vector<std::int64_t>> uses;
    bool has_strategies = false;
    const auto strategy = [&] {
      bool has_cost = false;
      std::int64_t bits = 0;
      const std::size_t position = costs.size();
      const bool read = scan_.object([&](std::string_view key) {
        std::string ignored;
        if (key == "label") return scan_.string(ignored);
        if (key == "cost") {
          has_cost = true;
          return own_cost(bits);
        }
        if (key == "usage") return own_uses(uses, position);
        return unknown(key, {"label", "cost", "usage"});
      });
      if (read && !has_cost) return scan_.fail_here(ErrorCode::kMissing, "\"cost\" is missing");
      costs.push_back(bits);
      return read;
    };
    const bool read = scan_.object([&](std::string_view key) {
      std::string ignored;
      if (key == "name") return scan_.string(ignored);
      if (key == "strategies") {
        has_strategies = true;
        return scan_.array(strategy);
      }
      return unknown(key, {"name", "strategies"});
    });
    if (!read) return false;
    if (!has_strategies) return scan_.fail_here(ErrorCode::kMissing, "\"strategies\" is missing");
    if (costs.empty())
      return scan_.fail_here(ErrorCode::kValue, "a node needs at least one strategy");
    graph_.nodes.push_back({real_costs_.add(costs), to_uses(uses, costs.size())});
    return true;
  }

  /// What an edge says about pairs, to be checked when the nodes are known.
  struct OwnEdge {
    std::vector<std::size_t> row_sizes;
    std::vector<std::pair<std::int64_t, std::int64_t>> forbidden;
    std::vector<std::pair<std::int64_t, std::int64_t>> pairs;
    std::vector<std::map<Interval, std::vector<std::int64_t>>> uses;  ///< per pair
    std::vector<std::int64_t> costs;
  };

  bool pair_of(std::pair<std::int64_t, std::int64_t>& pair) {
    if (!integers(row_)) return false;
    if (row_.size() != 2)
      return scan_.fail_here(ErrorCode::kValue, "expected a pair of strategies");
    pair = {row_[0], row_[1]};
    return true;
  }

  bool own_edge() {
    OwnEdge edge;
    bool has_nodes = false;
    bool has_costs = false;
    const auto use = [&] {
      std::pair<std::int64_t, std::int64_t> pair;
      std::map<Interval, std::vector<std::int64_t>> uses;
      bool has_pair = false;
      const bool read = scan_.object([&](std::string_view key) {
        if (key == "pair") {
          has_pair = true;
          return pair_of(pair);
        }
        if (key == "intervals") return own_uses(uses, 0);
        return unknown(key, {"pair", "intervals"});
      });
      if (read && !has_pair) return scan_.fail_here(ErrorCode::kMissing, "\"pair\" is missing");
      edge.pairs.push_back(pair);
      edge.uses.push_back(std::move(uses));
      return read;
    };
    const auto cost_row = [&] {
      std::size_t size = 0;
      const bool read = scan_.array([&] {
        std::int64_t bits = 0;
        if (!own_cost(bits)) return false;
        edge.costs.push_back(bits);
        ++size;
        return true;
      });
      edge.row_sizes.push_back(size);
      return read;
    };
    const bool read = scan_.object([&](std::string_view key) {
      if (key == "nodes") {
        has_nodes = true;
        return edge_nodes();
      }
      if (key == "costs") {
        has_costs = true;
        return scan_.array(cost_row);
      }
      if (key == "forbidden") {
        return scan_.array([&] { return pair_of(edge.forbidden.emplace_back()); });
      }
      if (key == "usage") return scan_.array(use);
      return unknown(key, {"nodes", "costs", "forbidden", "usage"});
    });
    if (!read) return false;
    if (!has_nodes) return scan_.fail_here(ErrorCode::kMissing, "\"nodes\" is missing");
    if (!has_costs) return scan_.fail_here(ErrorCode::kMissing, "\"costs\" is missing");
    own_edges_.push_back(std::move(edge));
    return true;
  }

  // ---- what can be checked only at the end ----

  bool finish() {
    if (!graph_.contest && !own_)
      return scan_.fail_at("/", ErrorCode::kMissing, "expected \"schema\" or \"problem\"");
    if (!graph_.contest && !schema_)
      return scan_.fail_at("/", ErrorCode::kMissing, "\"schema\" is missing");
    const std::string base = graph_.contest ? "/problem" : "";
    if (!has_nodes_)
      return scan_.fail_at(base.empty() ? "/" : base, ErrorCode::kMissing, "\"nodes\" is missing");
    if (graph_.contest) return finish_contest();
    return finish_own();
  }

  bool node_exists(const std::string& pointer, int node) {
    return static_cast<std::size_t>(node) < graph_.nodes.size() ||
           scan_.fail_at(pointer,
                         ErrorCode::kValue,
                         "there is no node " + std::to_string(node) + ", there are " +
                             std::to_string(graph_.nodes.size()));
  }

  bool finish_contest() {
    const std::size_t count = node_costs_.size();
    if (intervals_.size() != count)
      return scan_.fail_at("/problem/nodes/intervals",
                           ErrorCode::kValue,
                           "expected " + std::to_string(count) + ", one per node, found " +
                               std::to_string(intervals_.size()));
    if (node_usages_.size() != count)
      return scan_.fail_at("/problem/nodes/usages",
                           ErrorCode::kValue,
                           "expected " + std::to_string(count) + ", one per node, found " +
                               std::to_string(node_usages_.size()));
    for (std::size_t v = 0; v < count; ++v) {
      const std::size_t strategies = graph_.pool.size(node_costs_[v]);
      const std::size_t usages_size = graph_.pool.size(node_usages_[v]);
      if (usages_size != strategies)
        return scan_.fail_at(number_pointer("/problem/nodes/usages", v),
                             ErrorCode::kValue,
                             "expected " + std::to_string(strategies) +
                                 ", one per strategy, found " + std::to_string(usages_size));
      CostGraph::Node node{node_costs_[v], {}};
      const auto [begin, end] = intervals_[v];
      if (begin < end) node.uses.push_back({begin, end, node_usages_[v]});
      graph_.nodes.push_back(std::move(node));
    }
    if (edge_costs_.size() != edge_nodes_.size())
      return scan_.fail_at("/problem/edges/costs",
                           ErrorCode::kValue,
                           "expected " + std::to_string(edge_nodes_.size()) +
                               ", one per edge, found " + std::to_string(edge_costs_.size()));
    for (std::size_t e = 0; e < edge_nodes_.size(); ++e) {
      const auto [from, to] = edge_nodes_[e];
      const std::string pointer = number_pointer("/problem/edges/nodes", e);
      if (!node_exists(pointer, from) || !node_exists(pointer, to)) return false;
      const std::size_t expected = graph_.strategies(static_cast<std::size_t>(from)) *
                                   graph_.strategies(static_cast<std::size_t>(to));
      const std::size_t found = graph_.pool.size(edge_costs_[e]);
      if (found != expected)
        return scan_.fail_at(
            number_pointer("/problem/edges/costs", e),
            ErrorCode::kValue,
            "expected " + std::to_string(expected) + " costs, found " + std::to_string(found));
      graph_.edges.push_back({from, to, edge_costs_[e], {}});
    }
    return true;
  }

  bool check_pair(const std::string& pointer,
                  std::pair<std::int64_t, std::int64_t> pair,
                  std::size_t rows,
                  std::size_t columns) {
    const bool good = pair.first >= 0 && pair.first < static_cast<std::int64_t>(rows) &&
                      pair.second >= 0 && pair.second < static_cast<std::int64_t>(columns);
    return good || scan_.fail_at(pointer,
                                 ErrorCode::kValue,
                                 "there is no pair of strategies " + std::to_string(pair.first) +
                                     ", " + std::to_string(pair.second));
  }

  bool finish_own() {
    if (moments_ && last_moment_ > *moments_)
      return scan_.fail_at(
          "/moments",
          ErrorCode::kValue,
          "an interval ends at " + std::to_string(last_moment_) + ", after the last moment");
    for (std::size_t e = 0; e < own_edges_.size(); ++e) {
      OwnEdge& edge = own_edges_[e];
      const auto [from, to] = edge_nodes_[e];
      const std::string pointer = number_pointer("/edges", e);
      if (!node_exists(pointer + "/nodes", from) || !node_exists(pointer + "/nodes", to))
        return false;
      const std::size_t rows = real_costs_.size(graph_.nodes[static_cast<std::size_t>(from)].costs);
      const std::size_t columns =
          real_costs_.size(graph_.nodes[static_cast<std::size_t>(to)].costs);
      if (edge.row_sizes.size() != rows)
        return scan_.fail_at(pointer + "/costs",
                             ErrorCode::kValue,
                             "expected " + counted(rows, "row") + ", found " +
                                 std::to_string(edge.row_sizes.size()));
      for (std::size_t r = 0; r < rows; ++r) {
        if (edge.row_sizes[r] != columns)
          return scan_.fail_at(number_pointer(pointer + "/costs", r),
                               ErrorCode::kValue,
                               "expected " + counted(columns, "cost") + ", found " +
                                   std::to_string(edge.row_sizes[r]));
      }
      const auto position = [&](std::pair<std::int64_t, std::int64_t> pair) {
        return static_cast<std::size_t>(pair.first) * columns +
               static_cast<std::size_t>(pair.second);
      };
      for (std::size_t i = 0; i < edge.forbidden.size(); ++i) {
        if (!check_pair(
                number_pointer(pointer + "/forbidden", i), edge.forbidden[i], rows, columns))
          return false;
        edge.costs[position(edge.forbidden[i])] = kForbiddenBits;
      }
      std::map<Interval, std::vector<std::int64_t>> uses;
      for (std::size_t i = 0; i < edge.pairs.size(); ++i) {
        if (!check_pair(
                number_pointer(pointer + "/usage", i) + "/pair", edge.pairs[i], rows, columns))
          return false;
        for (const auto& [interval, bytes] : edge.uses[i]) {
          std::vector<std::int64_t>& usage = uses[interval];
          usage.resize(rows * columns, 0);
          std::int64_t& cell = usage[position(edge.pairs[i])];
          if (__builtin_add_overflow(cell, bytes[0], &cell))
            return scan_.fail_at(number_pointer(pointer + "/usage", i),
                                 ErrorCode::kOverflow,
                                 "the usage does not fit into 64 bits");
        }
      }
      graph_.edges.push_back(
          {from, to, real_costs_.add(edge.costs), to_uses(uses, rows * columns)});
      edge = {};
    }
    to_units();
    return true;
  }

  /// Costs become whole multiples of a power of two so fine that rounding is as that of prices, and
  /// so coarse that sums of all are exact in a double.
  void to_units() {
    std::vector<double> most(static_cast<std::size_t>(real_costs_.sequences()), 0);
    for (std::size_t s = 0; s < most.size(); ++s) {
      for (std::size_t i = 0; i < real_costs_.size(static_cast<int>(s)); ++i) {
        const std::int64_t bits = real_costs_.at(static_cast<int>(s), i);
        if (bits != kForbiddenBits)
          most[s] = std::max(most[s], std::abs(std::bit_cast<double>(bits)));
      }
    }
    double total = 0;
    for (const CostGraph::Node& node : graph_.nodes)
      total += most[static_cast<std::size_t>(node.costs)];
    for (const CostGraph::Edge& edge : graph_.edges)
      total += most[static_cast<std::size_t>(edge.costs)];
    int exponent = 40;
    constexpr double kExact = 4503599627370496.0;  // 2^52
    while (std::ldexp(total, exponent) > kExact) --exponent;
    graph_.unit = std::ldexp(1.0, -exponent);
    std::vector<int> number(most.size());
    for (std::size_t s = 0; s < most.size(); ++s) {
      row_.clear();
      for (std::size_t i = 0; i < real_costs_.size(static_cast<int>(s)); ++i) {
        const std::int64_t bits = real_costs_.at(static_cast<int>(s), i);
        row_.push_back(bits == kForbiddenBits ? kForbiddenCost
                                              : static_cast<std::int64_t>(std::nearbyint(std::ldexp(
                                                    std::bit_cast<double>(bits), exponent))));
      }
      number[s] = graph_.pool.add(row_);
    }
    for (CostGraph::Node& node : graph_.nodes)
      node.costs = number[static_cast<std::size_t>(node.costs)];
    for (CostGraph::Edge& edge : graph_.edges)
      edge.costs = number[static_cast<std::size_t>(edge.costs)];
  }

  Scanner scan_;
  CostGraph graph_;
  bool own_ = false;
  bool schema_ = false;
  bool has_nodes_ = false;
  std::vector<std::int64_t> row_;
  std::vector<Interval> intervals_;
  std::vector<int> node_costs_;
  std::vector<int> node_usages_;
  std::vector<std::pair<int, int>> edge_nodes_;
  std::vector<int> edge_costs_;
  std::optional<std::int64_t> moments_;
  std::int64_t last_moment_ = 0;
  std::vector<OwnEdge> own_edges_;
  SequencePool real_costs_;  ///< bits of doubles
};

Source text_source(std::string_view text) {
  return [text](char* to, std::size_t size) mutable -> Result<std::size_t> {
    const std::size_t count = std::min(size, text.size());
    if (count > 0) std::memcpy(to, text.data(), count);
    text.remove_prefix(count);
    return count;
  };
}

}  // namespace

Result<CostGraph> parse_cost_graph(std::string_view text, const std::string& file) {
  return Reader(text_source(text), file).run();
}

Result<CostGraph> read_cost_graph(const std::string& path) {
  const std::string name = path == "-" ? "standard input" : path;
  if (path.empty()) return fail(ErrorCode::kInput, "\"\"", "expected the name of a file");
  std::error_code ignored;
  if (path != "-" && std::filesystem::is_directory(path, ignored))
    return fail(ErrorCode::kInput, name, "is a folder, expected a file");
  errno = 0;
  gzFile file = path == "-" ? gzdopen(0, "rb") : gzopen(path.c_str(), "rb");
  const auto system_message = [] {
    return errno != 0 ? std::generic_category().message(errno) : std::string("out of memory");
  };
  if (file == nullptr) return fail(ErrorCode::kInput, name, "cannot open: " + system_message());
  gzbuffer(file, static_cast<unsigned>(kChunk));
  const auto close = [](gzFile_s* opened) { gzclose_r(opened); };
  const std::unique_ptr<gzFile_s, decltype(close)> owner(file, close);
  const Source source = [&](char* to, std::size_t size) -> Result<std::size_t> {
    const int got = gzread(file, to, static_cast<unsigned>(size));
    int code = Z_OK;
    const char* message = gzerror(file, &code);
    if (got >= 0 && (code == Z_OK || code == Z_STREAM_END)) return static_cast<std::size_t>(got);
    if (code == Z_BUF_ERROR)
      return fail(ErrorCode::kInput, name, "the compressed data end too early");
    if (code == Z_ERRNO) return fail(ErrorCode::kInput, name, "cannot read: " + system_message());
    std::string reason = message;  // "PATH: REASON"
    const std::size_t colon = reason.rfind(": ");
    if (colon != std::string::npos) reason.erase(0, colon + 2);
    return fail(ErrorCode::kInput, name, "cannot be decompressed: " + reason);
  };
  return Reader(source, name).run();
}

Result<CostGraphAssignment> parse_assignment(std::string_view text,
                                             const std::string& file,
                                             const CostGraph& graph) {
  std::string_view body = trim(text);
  if (!body.empty() && body.front() != '{' && body.front() != '[') {
    const std::size_t newline = body.rfind('\n');
    if (newline != std::string_view::npos) body = body.substr(newline + 1);
  }
  Scanner scan(text_source(body), file);
  CostGraphAssignment assignment;
  const auto list = [&] {
    return scan.array([&] {
      std::int64_t value = 0;
      if (!scan.integer(value)) return false;
      const std::size_t node = assignment.size();
      if (node >= graph.nodes.size())
        return scan.fail_here(ErrorCode::kValue,
                              "expected " + counted(graph.nodes.size(), "strategy", "strategies") +
                                  ", one per node, found more");
      const auto most = static_cast<std::int64_t>(graph.strategies(node)) - 1;
      if (value < 0 || value > most)
        return scan.fail_here(ErrorCode::kValue,
                              "node " + std::to_string(node) + " has the strategies 0 to " +
                                  std::to_string(most) + ", found " + std::to_string(value));
      assignment.push_back(static_cast<int>(value));
      return true;
    });
  };
  bool found = true;
  bool read = false;
  if (scan.peek() == '{') {
    found = false;
    read = scan.object([&](std::string_view key) {
      if (key != "assignment") return scan.skip();
      found = true;
      return list();
    });
  } else {
    read = list();
  }
  read = read && scan.at_end();
  if (!read) return fail(scan.take_error());
  if (!found) return fail(ErrorCode::kMissing, file, "\"assignment\" is missing");
  if (assignment.size() != graph.nodes.size())
    return fail(ErrorCode::kValue,
                file,
                "expected " + counted(graph.nodes.size(), "strategy", "strategies") +
                    ", one per node, found " + std::to_string(assignment.size()));
  return assignment;
}

}  // namespace meshplan

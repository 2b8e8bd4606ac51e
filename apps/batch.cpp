// SPDX-License-Identifier: Apache-2.0
// Every request is parsed as a document of its own, so that a fault inside one (a key given twice,
// nesting beyond the limit, a number no double holds) cannot take the others down, and memory is
// that of one request. The text as a whole must be JSON nevertheless.
#include "apps/batch.h"

#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

namespace meshplan {
namespace {

/// Answers that would make the output longer than this are replaced by an error.
constexpr std::size_t kLongestOutput = std::size_t{1} << 30;

/// Accepts every event; remembers whether it was more than a number out of range that failed.
class SyntaxCheck final : public nlohmann::json_sax<nlohmann::json> {
 public:
  bool bad_syntax() const { return bad_syntax_; }

  bool null() override { return true; }
  bool boolean(bool /*flag*/) override { return true; }
  bool number_integer(number_integer_t /*number*/) override { return true; }
  bool number_unsigned(number_unsigned_t /*number*/) override { return true; }
  bool number_float(number_float_t /*number*/, const string_t& /*text*/) override { return true; }
  bool string(string_t& /*text*/) override { return true; }
  bool binary(binary_t& /*bytes*/) override { return true; }
  bool start_object(std::size_t /*size*/) override { return true; }
  bool key(string_t& /*text*/) override { return true; }
  bool end_object() override { return true; }
  bool start_array(std::size_t /*size*/) override { return true; }
  bool end_array() override { return true; }
  bool parse_error(std::size_t /*position*/,
                   const std::string& /*token*/,
                   const nlohmann::json::exception& exception) override {
    constexpr int kNumberOutOfRange = 406;
    bad_syntax_ = exception.id != kNumberOutOfRange;
    return false;
  }

 private:
  bool bad_syntax_ = false;
};

bool is_json(std::string_view text) {
  SyntaxCheck check;
  try {
    nlohmann::json::sax_parse(text.begin(), text.end(), &check);
  } catch (const nlohmann::json::exception&) {
    return false;
  }
  return !check.bad_syntax();
}

/// The texts of the elements of a JSON array; nullopt where `text` is none.
std::optional<std::vector<std::string_view>> split_array(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\n";
  std::size_t at = text.find_first_not_of(kBlank);
  if (at == std::string_view::npos || text[at] != '[') return std::nullopt;
  std::vector<std::string_view> elements;
  std::size_t begin = ++at;
  std::size_t depth = 1;
  bool in_string = false;
  for (; at < text.size() && depth > 0; ++at) {
    const char letter = text[at];
    if (in_string) {
      if (letter == '\\') {
        ++at;
      } else if (letter == '"') {
        in_string = false;
      }
      continue;
    }
    if (letter == '"') in_string = true;
    if (letter == '[' || letter == '{') ++depth;
    if (letter == ']' || letter == '}') --depth;
    const bool ends = depth == 0 || (depth == 1 && letter == ',');
    if (!ends) continue;
    const std::string_view element = text.substr(begin, at - begin);
    const bool blank = element.find_first_not_of(kBlank) == std::string_view::npos;
    if (!blank) elements.push_back(element);
    if (blank && (depth == 1 || !elements.empty())) return std::nullopt;
    begin = at + 1;
  }
  const bool closed = depth == 0 && text.find_first_not_of(kBlank, at) == std::string_view::npos;
  return closed ? std::optional(std::move(elements)) : std::nullopt;
}

std::string error_answer(const Error& error, std::size_t index) {
  // A document without a file name puts ": " before the pointer, or nothing at its root.
  std::string_view where = error.where;
  if (where.starts_with(": ")) where.remove_prefix(2);
  JsonWriter writer(0);
  writer.begin_object();
  writer.key("error");
  writer.begin_object();
  writer.member("code",
                error_code_name(error.code == ErrorCode::kInput ? ErrorCode::kValue : error.code));
  writer.member("where", "/" + std::to_string(index) + std::string(where));
  writer.member("message", error.message);
  writer.end_object();
  writer.end_object();
  return std::move(writer).text();
}

Result<std::string> answer_one(std::string_view text, const AnswerRequest& answer) {
  Result<JsonDocument> request = JsonDocument::parse(text, "");
  if (!request) return fail(request.error());
  if (Result<void> object = request->root().expect(JsonKind::kObject); !object) {
    return fail(object.error());
  }
  JsonWriter writer(0);
  if (Result<void> done = answer(request->root(), writer); !done) return fail(done.error());
  return std::move(writer).text();
}

}  // namespace

Result<std::string> answer_batch(std::string_view text,
                                 const std::string& file,
                                 const AnswerRequest& answer) {
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);  // a byte order mark is harmless
  const auto requests = is_json(text) ? split_array(text) : std::nullopt;
  if (!requests) {
    Result<JsonDocument> whole = JsonDocument::parse(text, file);
    if (!whole) return fail(whole.error());
    return fail(ErrorCode::kType,
                file,
                std::string("expected an array of requests, found ") +
                    json_kind_name(whole->root().kind()));
  }
  std::string output = "[";
  for (std::size_t i = 0; i < requests->size(); ++i) {
    output += i == 0 ? "\n" : ",\n";
    Result<std::string> one = answer_one((*requests)[i], answer);
    if (!one && one.error().code == ErrorCode::kInput && !is_json((*requests)[i])) {
      return fail(ErrorCode::kInput, file + ": /" + std::to_string(i), one.error().message);
    }
    if (one && output.size() + one->size() > kLongestOutput) {
      one = fail(ErrorCode::kOverflow, "", "the answers together exceed 1 GiB");
    }
    output += one ? *one : error_answer(one.error(), i);
  }
  return output + (requests->empty() ? "]\n" : "\n]\n");
}

}  // namespace meshplan

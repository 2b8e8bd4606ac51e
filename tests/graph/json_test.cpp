// SPDX-License-Identifier: Apache-2.0
#include "graph/json.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>

#include "graph/quantity.h"
#include "support/catch.h"

namespace meshplan::json_test {
namespace {

JsonDocument parsed(const std::string& text) {
  Result<JsonDocument> document = JsonDocument::parse(text, "f.json");
  INFO(text.substr(0, 100));
  if (!document) FAIL(to_string(document.error()));
  return *std::move(document);
}

std::string parse_error(const std::string& text) {
  const Result<JsonDocument> document = JsonDocument::parse(text, "f.json");
  REQUIRE_FALSE(document.has_value());
  const std::string message = to_string(document.error());
  CHECK(message.find('\n') == std::string::npos);
  CHECK(message.rfind("f.json: ", 0) == 0);
  CHECK(message.size() < 600);
  return message;
}

TEST_CASE("JSON values of every kind are read as they are written") {
  const JsonDocument document = parsed(
      R"({"a": [1, -2, 3.5, true, null, "x\u00e9"], "b": {"z": 1, "y": 2}, "max": 9223372036854775807})");
  const JsonCursor root = document.root();
  REQUIRE(root.kind() == JsonKind::kObject);
  CHECK(root.size() == 3);
  CHECK(root.key_at(1) == "b");
  const JsonCursor a = *root.get("a");
  CHECK(*a.at(0).as_int64() == 1);
  CHECK(*a.at(1).as_int64() == -2);
  CHECK(*a.at(2).as_double() == 3.5);
  CHECK(*a.at(0).as_double() == 1.0);
  CHECK(*a.at(3).as_bool());
  CHECK(a.at(4).kind() == JsonKind::kNull);
  CHECK(*a.at(5).as_string() == "x\xC3\xA9");
  CHECK(root.find("b")->key_at(0) == "z");  // file order, not sorted
  CHECK(*root.get("max")->as_int64() == std::numeric_limits<std::int64_t>::max());
  CHECK_FALSE(root.find("c").has_value());
}

TEST_CASE("Objects of any size find their members") {
  for (const int count : {0, 1, 8, 9, 100, 5000}) {
    std::string text = "[{";
    for (int i = 0; i < count; ++i) {
      text += (i == 0 ? "" : ",") + ("\"k" + std::to_string((i * 7919) % 100003) + "\":") +
              std::to_string(i);
    }
    const JsonDocument document = parsed(text + "}, {\"k1\": 5}]");
    for (int i = 0; i < count; ++i) {
      const auto found = document.root().at(0).find("k" + std::to_string((i * 7919) % 100003));
      REQUIRE(found.has_value());
      REQUIRE(*found->as_int64() == i);
    }
    CHECK_FALSE(document.root().at(0).find("k").has_value());
    CHECK_FALSE(document.root().at(0).find("zzz").has_value());
  }
}

TEST_CASE("Places are JSON Pointers with their escapes") {
  const JsonDocument document = parsed(R"({"a/b": {"c~d": [10, {"": 1}]}})");
  const JsonCursor list = *document.root().get("a/b")->get("c~d");
  CHECK(list.at(0).where() == "f.json: /a~1b/c~0d/0");
  CHECK(list.at(1).get("")->pointer() == "/a~1b/c~0d/1/");
  CHECK(document.root().where() == "f.json");
  CHECK(list.at(1).name_in_parent() == "1");
  CHECK(list.name_in_parent() == "c~d");
}

TEST_CASE("Wrong kinds are named with what was expected and what was found") {
  const JsonDocument document =
      parsed(R"({"n": 1.5, "s": "text", "i": 3, "b": true, "l": [1, "x"]})");
  const JsonCursor root = document.root();
  const auto message = [&](const char* key, auto read) {
    const auto result = read(*root.get(key));
    REQUIRE_FALSE(result.has_value());
    CHECK(result.error().code == ErrorCode::kType);
    return to_string(result.error());
  };
  CHECK(message("n", [](JsonCursor c) { return c.as_int64(); }) ==
        "f.json: /n: expected an integer, found a number 1.5");
  CHECK(message("s", [](JsonCursor c) { return c.as_double(); }) ==
        "f.json: /s: expected a number, found a string \"text\"");
  CHECK(message("i", [](JsonCursor c) { return c.as_string(); }) ==
        "f.json: /i: expected a string, found an integer");
  CHECK(message("b", [](JsonCursor c) { return c.as_array(); }) ==
        "f.json: /b: expected an array, found true");
  CHECK(message("l", [](JsonCursor c) { return c.as_int64s(); }) ==
        "f.json: /l/1: expected an integer, found a string \"x\"");
  CHECK(message("l", [](JsonCursor c) { return c.as_bool(); }) ==
        "f.json: /l: expected true or false, found an array");
  CHECK(message("i", [](JsonCursor c) { return c.get("x"); }) ==
        "f.json: /i: expected an object, found an integer");
}

TEST_CASE("Missing and unknown keys are named, with the nearest known key") {
  const JsonDocument document = parsed(R"({"shape": 1, "dtyp": 2})");
  CHECK(to_string(document.root().get("role").error()) == "f.json: the key \"role\" is missing");
  const Result<void> ok = document.root().allow_only({"shape", "dtype", "role"});
  REQUIRE_FALSE(ok.has_value());
  CHECK(to_string(ok.error()) == "f.json: /dtyp: unknown key \"dtyp\"; did you mean \"dtype\"?");
  CHECK(document.root().allow_only({"shape", "dtyp"}).has_value());
  const Result<void> far = document.root().allow_only({"shape", "x"});
  CHECK(to_string(far.error()) == "f.json: /dtyp: unknown key \"dtyp\"; known here: shape, x");
}

TEST_CASE("A key that stands twice is refused with its place") {
  CHECK(parse_error(R"({"a": [0, {"x": 1, "y": 2, "x": 3}]})").find(": /a/1/x: ") !=
        std::string::npos);
  CHECK(parse_error(R"({"a": 1, "b": {"c": {"q": [], "q": 1}}})").find(": /b/c/q: ") !=
        std::string::npos);
  CHECK(parse_error(R"({"k": 1, "k": 1})").rfind("f.json: /k: ", 0) == 0);
  const Result<JsonDocument> document = JsonDocument::parse(R"([{"\u0061": 1, "a": 1}])", "f.json");
  CHECK(document.error().code == ErrorCode::kDuplicate);  // equal after the escapes are read
}

TEST_CASE("What is not JSON is refused with line and column") {
  CHECK(parse_error("{\"a\": 1,\n  \"b\": x}").find("line 2, column 8") != std::string::npos);
  CHECK(parse_error("").find("line 1, column 1") != std::string::npos);
  CHECK(parse_error("{\"a\": NaN}").find("line 1") != std::string::npos);
  for (const char* text : {"nul",
                           "{",
                           "[1,]",
                           "{\"a\" 1}",
                           "[1] 2",
                           "Infinity",
                           "[-Infinity]",
                           "[1e999]",
                           "[01]",
                           "[+1]",
                           "['a']",
                           "\"open",
                           "// comment\n1",
                           "[1 2]",
                           "\xEF\xBB",
                           "{\"a\": \"\\ud800\"}",
                           "[\"\xFF\"]",
                           "[\"\xC0\xAF\"]",
                           "[\"tab\there\"]"}) {
    INFO(text);
    parse_error(text);
  }
  parse_error(std::string("[\0]", 3));
  parse_error("\"" + std::string(5'000'000, 'x'));
}

TEST_CASE("Deep nesting is refused early, whatever its size") {
  const auto nested = [](std::size_t depth) {
    return std::string(depth, '[') + std::string(depth, ']');
  };
  parsed(nested(JsonDocument::kMaxDepth));
  CHECK(parse_error(nested(JsonDocument::kMaxDepth + 1)).find("200 deep") != std::string::npos);
  CHECK(parse_error(nested(10'000)).find("200 deep") != std::string::npos);
  CHECK(parse_error(std::string(20'000'000, '[')).find("200 deep") != std::string::npos);
  std::string objects;
  for (int i = 0; i < 10'000; ++i) objects += "{\"a\":";
  CHECK(parse_error(objects).find("200 deep") != std::string::npos);
}

TEST_CASE("Integers beyond 64 bits are refused where an integer is wanted") {
  const JsonDocument document = parsed(
      "[9223372036854775808, -9223372036854775808, 18446744073709551615, 18446744073709551616, "
      "-9223372036854775809, 123456789012345678901234567890]");
  const JsonCursor root = document.root();
  CHECK(root.at(0).as_int64().error().code == ErrorCode::kOverflow);
  CHECK(*root.at(1).as_int64() == std::numeric_limits<std::int64_t>::min());
  CHECK(*root.at(2).as_uint64() == std::numeric_limits<std::uint64_t>::max());
  CHECK(root.at(3).as_uint64().error().code == ErrorCode::kOverflow);
  CHECK(root.at(4).as_int64().error().code == ErrorCode::kOverflow);
  CHECK(root.at(1).as_uint64().error().code == ErrorCode::kValue);
  CHECK(*root.at(5).as_double() == 123456789012345678901234567890.0);
  CHECK(to_string(root.at(1).as_int64(1, 5).error()) ==
        "f.json: /1: expected an integer from 1 to 5, found -9223372036854775808");
}

TEST_CASE("The schema is accepted up to the own minor version") {
  const auto check = [](const std::string& text) {
    const JsonDocument document = parsed(text);
    const Result<void> ok = check_schema(document.root(), "meshplan.graph", 1, 2);
    return ok ? "ok" : to_string(ok.error());
  };
  CHECK(check(R"({"schema": "meshplan.graph/1.0"})") == "ok");
  CHECK(check(R"({"schema": "meshplan.graph/1.2"})") == "ok");
  CHECK(
      check(R"({"schema": "meshplan.graph/1.3"})") ==
      "f.json: /schema: this program reads meshplan.graph 1.0 to 1.2, not \"meshplan.graph/1.3\"");
  CHECK(check(R"({"schema": "meshplan.graph/2.0"})").find("not \"meshplan.graph/2.0\"") !=
        std::string::npos);
  CHECK(check(R"({"schema": "meshplan.plan/1.0"})").find("expected \"meshplan.graph/1.2\"") !=
        std::string::npos);
  CHECK(check(R"({})").find("\"schema\" is missing") != std::string::npos);
  CHECK(check(R"({"schema": 1})").find("expected a string") != std::string::npos);
  for (const char* bad : {"meshplan.graph",
                          "meshplan.graph/",
                          "meshplan.graph/1",
                          "meshplan.graph/1.x",
                          "meshplan.graph/1.0.0",
                          "meshplan.graph/-1.0",
                          "",
                          "/"}) {
    CHECK(check("{\"schema\": \"" + std::string(bad) + "\"}") != "ok");
  }
  CHECK(check("[]").find("expected an object") != std::string::npos);
}

TEST_CASE("The writer lays out lines, one-line containers and compact text") {
  const auto write = [](JsonWriter writer) {
    writer.begin_object();
    writer.member("name", "a \"b\"\n");
    writer.key("shape");
    writer.array(std::vector<std::int64_t>{64, 2});
    writer.key("inner");
    writer.begin_object(JsonWriter::kOneLine);
    writer.member("x", 0.5);
    writer.key("list");
    writer.begin_array();
    writer.null();
    writer.value(true);
    writer.end_array();
    writer.end_object();
    writer.key("empty");
    writer.begin_array();
    writer.end_array();
    writer.end_object();
    return std::move(writer).text();
  };
  CHECK(write(JsonWriter(2)) == R"({
  "name": "a \"b\"\n",
  "shape": [64, 2],
  "inner": {"x": 0.5, "list": [null, true]},
  "empty": []
}
)");
  CHECK(write(JsonWriter(0)) ==
        R"({"name":"a \"b\"\n","shape":[64,2],"inner":{"x":0.5,"list":[null,true]},"empty":[]})");
}

TEST_CASE("Doubles are written in their shortest form and read back unchanged") {
  CHECK(json_number(0.0) == "0.0");
  CHECK(json_number(1.0) == "1.0");
  CHECK(json_number(0.1) == "0.1");
  CHECK(json_number(2.1e-05) == "2.1e-05");
  CHECK(json_number(1e300) == "1e+300");
  std::mt19937_64 random(20240501);
  for (int i = 0; i < 20000; ++i) {
    const std::uint64_t bits = random();
    double value = 0.0;
    static_assert(sizeof value == sizeof bits);
    std::memcpy(&value, &bits, sizeof value);
    if (!std::isfinite(value)) continue;
    const JsonDocument document = parsed("[" + json_number(value) + "]");
    REQUIRE(*document.root().at(0).as_double() == value);
    REQUIRE(document.root().at(0).kind() == JsonKind::kNumber);
  }
}

TEST_CASE("Any bytes quoted as a JSON string read back as valid UTF-8") {
  std::mt19937 random(7);
  for (int i = 0; i < 3000; ++i) {
    std::string bytes;
    for (std::size_t n = random() % 12; n > 0; --n) bytes += static_cast<char>(random() % 256);
    const JsonDocument document = parsed("[" + json_quote(bytes) + "]");
    const Result<std::string_view> text = document.root().at(0).as_string();
    REQUIRE(text.has_value());
    REQUIRE(json_quote(*text) == json_quote(bytes));
  }
  CHECK(json_quote("\xC3\xA9\x7F") == "\"\xC3\xA9\\u007f\"");
}

TEST_CASE("A message is kept on one line of bounded length") {
  CHECK(one_line("say \"a\\b\"\n\x01") == "say \"a\\b\"\\n\\u0001");
  CHECK(one_line("") == "");
  CHECK(one_line(std::string(1000, 'x')) == std::string(1000, 'x'));
  CHECK(one_line(std::string(1001, 'x')) == std::string(1000, 'x') + "...");
  CHECK(one_line(std::string(999, 'x') + "\xC3\xA9") == std::string(999, 'x') + "...");
  CHECK(one_line("\xFF") == "\xEF\xBF\xBD");
}

TEST_CASE("Quantities carry their units") {
  CHECK(*parse_bytes("80GiB") == 85899345920);
  CHECK(*parse_bytes("40GB") == 40000000000);
  CHECK(*parse_bytes("1.5 GiB") == 1610612736);
  CHECK(*parse_bytes("123") == 123);
  CHECK(*parse_quantity("900GB/s", Unit::kBytesPerSecond) == 900e9);
  CHECK(*parse_quantity("200Gbit/s", Unit::kBytesPerSecond) == 25e9);
  CHECK(*parse_quantity("5us", Unit::kSeconds) == 5e-6);
  CHECK(*parse_quantity("3us", Unit::kSeconds) == 3e-6);
  CHECK(*parse_quantity("2min", Unit::kSeconds) == 120.0);
  CHECK(*parse_quantity("312TFLOPS", Unit::kFlops) == 312e12);
  CHECK(*parse_quantity("19.5TFLOPS", Unit::kFlops) == 19.5e12);
  CHECK(*parse_quantity("2%", Unit::kRatio) == 0.02);
  CHECK(*parse_quantity("0.5x", Unit::kRatio) == 0.5);
  for (const char* bad :
       {"", "GiB", "-1GiB", "80 GiBs", "80gb", "nan", "inf", "1e999", "80GiB/s", "0x10"}) {
    INFO(bad);
    CHECK_FALSE(parse_bytes(bad).has_value());
  }
  CHECK(parse_bytes("99999999TiB").error().code == ErrorCode::kOverflow);
  CHECK(parse_bytes("80GO").error().message ==
        "expected a size such as 80GiB or 40GB (B, kB, MB, GB, TB, KiB, MiB, GiB, TiB), found "
        "\"80GO\"");
  const JsonDocument document = parsed(R"(["80GiB", 7, 7.5, -1, true, "x"])");
  CHECK(*read_bytes(document.root().at(0)) == 85899345920);
  CHECK(*read_bytes(document.root().at(1)) == 7);
  CHECK(*read_quantity(document.root().at(2), Unit::kSeconds) == 7.5);
  CHECK(read_bytes(document.root().at(3)).error().where == "f.json: /3");
  CHECK(read_quantity(document.root().at(3), Unit::kSeconds).error().code == ErrorCode::kValue);
  CHECK(read_quantity(document.root().at(4), Unit::kSeconds).error().code == ErrorCode::kType);
  CHECK(read_quantity(document.root().at(5), Unit::kSeconds).error().where == "f.json: /5");
}

}  // namespace
}  // namespace meshplan::json_test

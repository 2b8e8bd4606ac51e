// SPDX-License-Identifier: Apache-2.0
// Checks JSON against a JSON Schema (draft 7). Knows the keywords that the schemas of this project
// use; any other keyword is a fault of the schema, so that none is passed over.
#pragma once

#include <cmath>
#include <string>

#include <nlohmann/json.hpp>

namespace meshplan::test {

class JsonSchema {
 public:
  explicit JsonSchema(nlohmann::json schema) : root_(std::move(schema)) {}

  /// "" or the first fault: "/operators/0: ...".
  std::string fault(const nlohmann::json& value) const { return check(root_, value, ""); }

 private:
  using json = nlohmann::json;

  static bool has_type(const json& value, const std::string& type) {
    if (type == "object") return value.is_object();
    if (type == "array") return value.is_array();
    if (type == "string") return value.is_string();
    if (type == "boolean") return value.is_boolean();
    if (type == "null") return value.is_null();
    if (type == "integer") return value.is_number_integer();
    return type == "number" && value.is_number();
  }

  std::string check(const json& schema, const json& value, const std::string& at) const {
    if (schema.is_boolean()) return schema.get<bool>() ? "" : at + ": nothing may stand here";
    for (const auto& [keyword, rule] : schema.items()) {
      const std::string found = check_keyword(schema, keyword, rule, value, at);
      if (!found.empty()) return found;
    }
    return "";
  }

  std::string check_keyword(const json& schema,
                            const std::string& keyword,
                            const json& rule,
                            const json& value,
                            const std::string& at) const {
    if (keyword == "$schema" || keyword == "title" || keyword == "description" ||
        keyword == "definitions")
      return "";
    if (keyword == "$ref") {
      const std::string name = rule.get<std::string>();
      const std::string prefix = "#/definitions/";
      if (name.rfind(prefix, 0) != 0) return at + ": the schema refers to " + name;
      return check(root_.at("definitions").at(name.substr(prefix.size())), value, at);
    }
    if (keyword == "type")
      return has_type(value, rule.get<std::string>()) ? "" : at + ": no " + rule.get<std::string>();
    if (keyword == "const") return value == rule ? "" : at + ": not " + rule.dump();
    if (keyword == "enum") {
      for (const json& one : rule) {
        if (value == one) return "";
      }
      return at + ": none of " + rule.dump();
    }
    if (keyword == "anyOf") {
      std::string all;
      for (const json& one : rule) {
        const std::string found = check(one, value, at);
        if (found.empty()) return "";
        all += " [" + found + "]";
      }
      return at + ": fits nothing:" + all;
    }
    if (keyword == "minimum")
      return !value.is_number() || value >= rule ? "" : at + ": below " + rule.dump();
    if (keyword == "minLength")
      return !value.is_string() || value.get<std::string>().size() >= rule ? ""
                                                                           : at + ": too short";
    if (keyword == "minItems")
      return !value.is_array() || value.size() >= rule ? "" : at + ": too few";
    if (keyword == "maxItems")
      return !value.is_array() || value.size() <= rule ? "" : at + ": too many";
    if (keyword == "minProperties")
      return !value.is_object() || value.size() >= rule ? "" : at + ": too few";
    if (keyword == "items") {
      for (std::size_t i = 0; value.is_array() && i < value.size(); ++i) {
        const std::string found = check(rule, value[i], at + "/" + std::to_string(i));
        if (!found.empty()) return found;
      }
      return "";
    }
    if (keyword == "required") {
      for (const json& key : rule) {
        if (value.is_object() && !value.contains(key.get<std::string>()))
          return at + ": " + key.dump() + " is missing";
      }
      return "";
    }
    if (keyword == "properties" || keyword == "additionalProperties") {
      if (!value.is_object()) return "";
      const bool named = keyword == "properties";
      const json known = schema.value("properties", json::object());
      for (const auto& [key, member] : value.items()) {
        if (known.contains(key) != named) continue;
        const std::string found = check(named ? rule.at(key) : rule, member, at + "/" + key);
        if (!found.empty()) return found;
      }
      return "";
    }
    return at + ": the schema has the keyword " + keyword;
  }

  json root_;
};

}  // namespace meshplan::test

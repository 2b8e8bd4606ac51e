// SPDX-License-Identifier: Apache-2.0
// Einsum: its equation is a rule already. Letters are factors, the ellipsis is a run of broadcast
// dimensions, what the result lacks is summed.
#include <algorithm>
#include <cctype>
#include <map>

#include "graph/ops/ops.h"

namespace meshplan {
namespace {

/// "ab...c" -> "a b ~ell.. c"; counts the letters.
Result<std::string> term_text(const std::string& term, bool operand, std::map<char, int>& letters) {
  std::string text;
  std::map<char, int> here;
  bool ellipsis = false;
  for (std::size_t i = 0; i < term.size(); ++i) {
    const char c = term[i];
    if (c == '.' && term.compare(i, 3, "...") == 0 && !ellipsis) {
      text += operand ? " ~ell.." : " ell..";
      ellipsis = true;
      i += 2;
    } else if (std::isalpha(static_cast<unsigned char>(c)) == 0) {
      return wrong("attribute \"equation\": expected a letter or \"...\", found \"" +
                   std::string(1, c) + "\"");
    } else if (++here[c] == 2) {
      return fail(ErrorCode::kUnsupported,
                  "",
                  std::string("attribute \"equation\": \"") + c +
                      "\" stands twice in one term; diagonals are not supported");
    } else {
      ++letters[c];
      text += std::string(" ") + c;
    }
  }
  return text;
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts = {""};
  for (const char c : text) {
    if (c == ',') {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

}  // namespace

Result<Rule> make_einsum(const OperatorSpec& spec) {
  auto given = text_attribute(spec, "equation", "");
  if (!given) return fail(given.error());
  std::string equation = *given;
  std::erase(equation, ' ');
  if (equation.empty()) return fail(ErrorCode::kMissing, "", "attribute \"equation\" is missing");
  const std::size_t arrow = equation.find("->");
  const std::vector<std::string> terms = split(equation.substr(0, arrow));
  if (terms.size() != spec.inputs.size())
    return wrong("attribute \"equation\" has " + std::to_string(terms.size()) +
                 " terms, but there are " + std::to_string(spec.inputs.size()) + " operands");
  RuleText text;
  std::map<char, int> letters;
  bool ellipsis = false;
  for (std::size_t i = 0; i < terms.size(); ++i) {
    if (auto shape = operand_shape(spec, i); !shape) return fail(shape.error());
    auto term = term_text(terms[i], true, letters);
    if (!term) return fail(term.error());
    ellipsis = ellipsis || terms[i].find("...") != std::string::npos;
    text.operand(*term);
  }
  // without an arrow: the ellipsis, then every letter that stands once, in alphabetical order
  std::string result = ellipsis ? "..." : "";
  for (const auto& [letter, count] : letters) {
    if (count == 1) result += letter;
  }
  if (arrow != std::string::npos) result = equation.substr(arrow + 2);
  std::map<char, int> kept;
  auto result_text = term_text(result, false, kept);
  if (!result_text) return fail(result_text.error());
  const bool keeps_ellipsis = result.find("...") != std::string::npos;
  if (keeps_ellipsis && !ellipsis)
    return wrong("attribute \"equation\": the result has \"...\", but no operand has");
  for (const auto& [letter, count] : kept) {
    if (!letters.contains(letter))
      return wrong(std::string("attribute \"equation\": \"") + letter +
                   "\" is in the result, but in no operand");
  }
  text.result(*result_text);
  std::string flops = std::string("flops:") + (terms.size() > 1 ? "2" : "1");
  if (ellipsis) flops += "*ell";
  if (ellipsis && !keeps_ellipsis) text.mark("sum", "ell");
  for (const auto& [letter, count] : letters) {
    flops += std::string("*") + letter;
    if (!kept.contains(letter)) text.mark("sum", std::string(1, letter));
  }
  // linear in each operand alone
  std::string each, all;
  for (std::size_t i = 0; i < terms.size(); ++i) {
    each += (i == 0 ? "" : "|") + std::to_string(i);
    all += (i == 0 ? "" : ",") + std::to_string(i);
  }
  text.modifier("lin:" + each).modifier("saves:" + (terms.size() > 1 ? all : "none"));
  return text.modifier(flops).bind(spec);
}

}  // namespace meshplan

// SPDX-License-Identifier: Apache-2.0
#include "apps/command_help.h"

#include <algorithm>
#include <sstream>

#include "apps/cluster_reader.h"

namespace meshplan {
namespace {

/// "auto|dp" -> both; nothing for a name of a kind of value ("FILE", "M|auto").
std::vector<std::string> choices_of(const std::string& type) {
  std::vector<std::string> choices;
  if (type.find('|') == std::string::npos) return choices;
  std::stringstream parts(type);
  for (std::string part; std::getline(parts, part, '|');) {
    if (std::any_of(part.begin(), part.end(), [](char c) { return c >= 'A' && c <= 'Z'; }))
      return {};
    choices.push_back(part);
  }
  return choices;
}

class HelpFormatter : public CLI::Formatter {
 public:
  HelpFormatter() { column_width(28); }

  std::string make_option_name(const CLI::Option* option, bool positional) const override {
    return positional ? option->get_name(true) : option->get_name(false, true);
  }
  std::string make_option_opts(const CLI::Option* option) const override {
    const OptionHelp help = describe(*option);
    std::string text = help.type.empty() ? "" : " " + help.type;
    if (help.repeats) text += " ...";
    return text;
  }
  std::string make_option_desc(const CLI::Option* option) const override {
    const OptionHelp help = describe(*option);
    std::string text = help.description;
    if (!help.range.empty()) text += " (" + help.range + ")";
    if (help.required) text += " [required]";
    if (!help.default_value.empty()) text += " [default: " + help.default_value + "]";
    return text;
  }
};

}  // namespace

OptionHelp describe(const CLI::Option& option) {
  OptionHelp help;
  if (option.get_positional()) {
    help.names.push_back(option.get_name(true));
  } else {
    for (const std::string& name : option.get_snames()) help.names.push_back("-" + name);
    for (const std::string& name : option.get_lnames()) help.names.push_back("--" + name);
  }
  help.description = option.get_description();
  help.required = option.get_required();
  if (option.get_type_size() == 0) return help;  // a flag
  // the parser appends what it checks: "N:INT in [1 - 100]", "auto|dp:{auto,dp}"
  const std::string type = option.get_type_name();
  const std::size_t colon = type.find(':');
  help.type = type.substr(0, colon);
  const std::size_t open = type.find(" in [");
  if (colon != std::string::npos && open != std::string::npos && type.back() == ']') {
    help.range = type.substr(open + 5, type.size() - open - 6);
    const std::size_t dash = help.range.find(" - ");
    if (dash != std::string::npos) help.range.replace(dash, 3, " to ");
  }
  help.choices = choices_of(help.type);
  if (option.get_positional()) help.type.clear();
  if (option.check_name("--cluster")) help.choices = shipped_clusters();
  help.default_value = option.get_default_str();
  help.repeats = option.get_expected_max() == CLI::detail::expected_max_vector_size;
  return help;
}

CommandHelp describe(const CLI::App& app, const std::string& path) {
  CommandHelp help;
  help.path = path;
  help.summary = app.get_description();
  help.footer = app.get_footer();
  for (const CLI::Option* option : app.get_options()) {
    (option->get_positional() ? help.positionals : help.options).push_back(describe(*option));
  }
  // what a command with sub-commands understands stands behind these, too
  const CLI::App* parent = app.get_parent();
  if (parent != nullptr && parent->get_parent() != nullptr) {
    for (const CLI::Option* option : parent->get_options()) {
      if (!option->get_positional() && !option->check_name("--help"))
        help.options.push_back(describe(*option));
    }
  }
  for (const CLI::App* sub : app.get_subcommands({})) {
    help.subcommands.push_back(
        describe(*sub, path.empty() ? sub->get_name() : path + " " + sub->get_name()));
  }
  return help;
}

std::shared_ptr<CLI::Formatter> help_formatter() { return std::make_shared<HelpFormatter>(); }

}  // namespace meshplan

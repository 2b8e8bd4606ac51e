// SPDX-License-Identifier: Apache-2.0
// meshplan man: the manual page, for man(1).
#include <string>

#include "apps/command.h"
#include "apps/command_help.h"

namespace meshplan {
namespace {

/// Text in roff: no backslash, leading dot or hyphen means anything.
std::string roff(const std::string& text) {
  std::string escaped;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const bool starts = i == 0 || text[i - 1] == '\n';
    if (starts && (c == '.' || c == '\'')) escaped += "\\&";
    if (c == '\\') {
      escaped += "\\e";
    } else if (c == '-') {
      escaped += "\\-";
    } else {
      escaped += c;
    }
  }
  return escaped;
}

std::string option_lines(const OptionHelp& option) {
  std::string names;
  for (const std::string& name : option.names)
    names += (names.empty() ? "\\fB" : ", \\fB") + roff(name) + "\\fR";
  if (!option.type.empty()) names += " \\fI" + roff(option.type) + "\\fR";
  if (option.repeats) names += " ...";
  std::string text = ".TP\n" + names + "\n" + roff(option.description);
  if (!option.range.empty()) text += " (" + roff(option.range) + ")";
  text += ".";
  if (option.required) text += " Required.";
  if (!option.default_value.empty()) text += " Default: " + roff(option.default_value) + ".";
  return text + "\n";
}

void write_command(std::string& text, const CommandHelp& command) {
  if (!command.subcommands.empty()) {
    for (const CommandHelp& sub : command.subcommands) write_command(text, sub);
    return;
  }
  text += ".SS meshplan " + roff(command.path);
  for (const OptionHelp& positional : command.positionals)
    text += " " + std::string(positional.required ? "" : "[") + roff(positional.names[0]) +
            (positional.required ? "" : "]");
  text += "\n" + roff(command.summary) + ".\n";
  for (const OptionHelp& positional : command.positionals) text += option_lines(positional);
  for (const OptionHelp& option : command.options) text += option_lines(option);
  if (!command.footer.empty()) text += ".PP\n.nf\n" + roff(command.footer) + "\n.fi\n";
}

std::string manual(const CommandHelp& program) {
  std::string text =
      ".TH MESHPLAN 1 \"\" \"meshplan " MESHPLAN_VERSION
      "\" \"User Commands\"\n"
      ".SH NAME\nmeshplan \\- plans how to place a neural network's job on many devices\n"
      ".SH SYNOPSIS\n.B meshplan\n.I command\n[\\fIarguments\\fR]\n"
      ".SH DESCRIPTION\n" +
      roff(program.summary) +
      "\nResults go to standard output, messages to standard error. \\- as the name of a file is "
      "standard input or output.\n.SH COMMANDS\n";
  for (const CommandHelp& command : program.subcommands) write_command(text, command);
  text += ".SH EXIT STATUS\n";
  const std::pair<int, const char*> codes[] = {
      {kDone, "Done; for check, diff and verify: nothing is worse than allowed."},
      {kBug, "An internal error: a bug, please report it."},
      {kUsageError, "The command line is wrong."},
      {kInputError, "An input file is missing, unreadable or wrong."},
      {kNoPlan, "No plan fits the memory limit."},
      {kRejected, "check, diff or verify rejects the plan."}};
  for (const auto& [code, meaning] : codes)
    text += ".TP\n.B " + std::to_string(code) + "\n" + roff(meaning) + "\n";
  return text +
         ".SH FILES\nClusters and models that come with the program lie in share/meshplan/configs "
         "beside it.\n";
}

}  // namespace

RunCommand define_man(CLI::App& app, CommonOptions& common) {
  return [&app, &common] {
    const std::string text = manual(describe(*app.get_parent()));
    if (auto done = write_output(common.output, text); !done) return report(done.error());
    return int{kDone};
  };
}

}  // namespace meshplan

// SPDX-License-Identifier: Apache-2.0
// What the program's commands and options are, as plain values read from the parser itself: help,
// manual page and shell completion are written from these, so that nothing is said twice.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

namespace meshplan {

struct OptionHelp {
  std::vector<std::string> names;    ///< "-o", "--output"; of a positional its name alone
  std::string type;                  ///< of its value: "FILE", "N", "auto|dp"; "" for a flag
  std::vector<std::string> choices;  ///< the values, where there are only these
  std::string range;                 ///< "1 to 100" of numbers that have one
  std::string description;
  std::string default_value;  ///< "" where there is none, or where the description says it
  bool required = false;
  bool repeats = false;
};

struct CommandHelp {
  std::string path;  ///< "plan", "import hf"; "" for the program itself
  std::string summary;
  std::string footer;  ///< its example
  std::vector<OptionHelp> positionals;
  std::vector<OptionHelp> options;
  std::vector<CommandHelp> subcommands;
};

OptionHelp describe(const CLI::Option& option);
/// The command and all below it.
CommandHelp describe(const CLI::App& app, const std::string& path = "");

/// Prints every option once with its type, range and default.
std::shared_ptr<CLI::Formatter> help_formatter();

}  // namespace meshplan

// SPDX-License-Identifier: Apache-2.0
// What every sub-command shares: its row in the table, the common options, files and exit codes.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include <CLI/CLI.hpp>

#include "lib/result.h"

namespace meshplan {

/// The exit codes of the program.
enum ExitCode : int {
  kDone = 0,
  kBug = 1,
  kUsageError = 2,
  kInputError = 3,
  kNoPlan = 4,
  kRejected = 5
};

/// Options that every command understands.
struct CommonOptions {
  std::string output;           ///< -o: "" or "-" is standard output
  std::string format = "text";  ///< text, json or markdown
  std::string log_level = "warn";
  bool quiet = false;
  unsigned threads = 0;  ///< 0: all cores
  std::uint64_t seed = 0;
};

/// Runs the command that was parsed and returns its exit code.
using RunCommand = std::function<int()>;

/// One row of the table of sub-commands (commands.cpp).
struct Command {
  const char* name;
  const char* summary;
  const char* example;
  /// Adds the command's own options to `app` and returns what runs it. `common` outlives the run.
  RunCommand (*define)(CLI::App& app, CommonOptions& common);
};

/// The table, in the order of `meshplan --help`.
std::span<const Command> commands();

/// The whole program without the process around it.
int run_meshplan(int argc, const char* const* argv);

/// Runs a command; what it throws (memory that cannot be had, a bug) becomes a message and kBug.
int run_guarded(const RunCommand& run);

/// Prints "meshplan: error: WHERE: MESSAGE" on standard error; returns kUsageError for kUsage and
/// kInputError for everything else.
int report(const Error& error);

/// The error of a wrong option: its name and what was expected of it.
inline Unexpected<Error> usage(const std::string& option, const std::string& message) {
  return fail(ErrorCode::kUsage, option, message);
}

/// The options of `app` so far take no empty text, which is a variable without content and not an
/// option that was not given; but for `except`, whose empty text says something.
void refuse_empty_values(CLI::App& app, std::string_view except = {});

/// How messages call an input: the path, or "standard input" for "-".
std::string input_name(const std::string& path);

/// Only one of a command's inputs can be standard input. Errors: kUsage.
Result<void> check_inputs(std::span<const std::string> paths);

/// A file that a command writes: the option that names it, and where it goes ("": nowhere).
struct OutputFile {
  std::string option;
  std::string path;
};

/// Each output goes to a place of its own, and to none of the command's inputs, which it would
/// destroy. Errors: kUsage.
Result<void> check_outputs(std::span<const OutputFile> outputs,
                           std::span<const std::string> inputs);

/// The content of a file, or of standard input for "-"; at most a gigabyte (2^30). Errors: kInput.
Result<std::string> read_file(const std::string& path);

/// Writes to standard output ("" or "-") or atomically to a file: a temporary file in the same
/// folder, renamed over the target (over a link's target; devices and pipes are written directly).
/// Errors: kInput; then the target is as it was.
Result<void> write_output(const std::string& path, std::string_view text);

}  // namespace meshplan

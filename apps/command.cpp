// SPDX-License-Identifier: Apache-2.0
#include "apps/command.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <new>
#include <system_error>
#include <vector>

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include "apps/command_help.h"
#include "lib/nearest_name.h"
#include "lib/text.h"

namespace meshplan {
namespace {

/// A whole number without sign that fits into 64 bits; "" or what is wrong with it.
std::string check_seed(const std::string& text) {
  std::uint64_t value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = status == std::errc() && end == text.data() + text.size();
  return whole ? "" : "expected an integer from 0 to 2^64 - 1, found " + text;
}

void add_common_options(CLI::App& app, CommonOptions& common) {
  app.add_option("-o,--output", common.output, "Write the result to FILE (\"-\": standard output)")
      ->check([](const std::string& path) {
        return std::string(path.empty() ? "expected the name of a file or \"-\"" : "");
      })
      ->type_name("FILE");
  app.add_option("--format", common.format, "Format of the printed result")
      ->check(CLI::IsMember({"text", "json", "markdown"}))
      ->type_name("text|json|markdown")
      ->capture_default_str();
  app.add_option("--log-level", common.log_level, "What is logged on standard error")
      ->check(CLI::IsMember({"trace", "debug", "info", "warn", "error", "off"}))
      ->type_name("trace|debug|info|warn|error|off")
      ->capture_default_str();
  app.add_flag("--quiet", common.quiet, "Log errors only");
  app.add_option("--threads", common.threads, "Threads to use (0: all cores)")
      ->check(CLI::Range(0U, 1024U))
      ->type_name("N")
      ->capture_default_str();
  app.add_option("--seed", common.seed, "Seed of everything random")
      ->check(check_seed)
      ->type_name("N")
      ->capture_default_str();
}

void set_up_logging(const CommonOptions& common) {
  auto logger = std::make_shared<spdlog::logger>("meshplan",
                                                 std::make_shared<spdlog::sinks::stderr_sink_mt>());
  logger->set_pattern("meshplan: %l: %v");
  logger->set_level(common.quiet ? spdlog::level::err : spdlog::level::from_str(common.log_level));
  spdlog::set_default_logger(std::move(logger));
}

/// Names of options ("--mesh") or sub-commands that `app` and those above it understand.
std::vector<std::string> known_words(const CLI::App& app, bool options) {
  std::vector<std::string> words;
  if (!options) {
    for (const CLI::App* sub : app.get_subcommands({})) words.push_back(sub->get_name());
    return words;
  }
  for (const CLI::App* level = &app; level != nullptr; level = level->get_parent()) {
    for (const CLI::Option* option : level->get_options()) {
      for (const std::string& name : option->get_lnames()) words.push_back("--" + name);
    }
  }
  return words;
}

/// What is wrong with the command line, on one line.
std::string usage_message(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App* command = &app;
  std::string path = "meshplan";
  while (!command->get_subcommands().empty()) {
    command = command->get_subcommands().front();
    path += " " + command->get_name();
  }
  std::string message = error.what();
  for (const CLI::App* level = command; level != nullptr; level = level->get_parent()) {
    const std::vector<std::string> rest = level->remaining();
    if (rest.empty()) continue;
    const auto looks_like_option = [](const std::string& word) {
      return word.size() > 1 && word.front() == '-';
    };
    // where a command is missing, the first word was meant to be one
    const bool is_command = !level->get_subcommands({}).empty() && !looks_like_option(rest.front());
    const auto option = std::find_if(rest.begin(), rest.end(), looks_like_option);
    const bool is_option = !is_command && option != rest.end();
    const std::string word = is_option ? option->substr(0, option->find('=')) : rest.front();
    message = (is_option    ? "there is no option \""
               : is_command ? "there is no command \""
                            : "nothing expects the argument \"") +
              word + "\"";
    if (is_option || is_command)
      message += nearest_name_hint(word, known_words(is_option ? *command : *level, is_option));
    break;
  }
  std::replace(message.begin(), message.end(), '\n', ' ');
  return message + " (" + path + " --help shows what is expected)";
}

constexpr std::size_t kMostInputBytes = std::size_t{1} << 30;

std::string system_message() { return std::generic_category().message(errno); }

/// For devices and pipes, which a rename would replace by a file.
Result<void> write_in_place(const std::string& path, std::string_view text) {
  errno = 0;
  std::ofstream file(path, std::ios::binary);
  if (!file) return fail(ErrorCode::kInput, path, "cannot open: " + system_message());
  file << text;
  file.close();
  if (!file) return fail(ErrorCode::kInput, path, "cannot write: " + system_message());
  return {};
}

/// Whether two paths, of files that need not exist, are one place.
bool same_place(const std::string& a, const std::string& b) {
  if (a == b) return true;
  std::error_code status;
  if (std::filesystem::equivalent(a, b, status) && !status) return true;
  const auto first = std::filesystem::weakly_canonical(a, status);
  if (status) return false;
  const auto second = std::filesystem::weakly_canonical(b, status);
  return !status && first == second;
}

/// Whether writing `path` takes away the file `input`; what is written to a device or a pipe does
/// not.
bool replaces(const std::string& path, const std::string& input) {
  std::error_code status;
  return std::filesystem::is_regular_file(path, status) && same_place(path, input);
}

Error too_large(const std::string& name) {
  return {
      ErrorCode::kInput,
      name,
      "is larger than " + std::to_string(kMostInputBytes >> 30U) + " GiB, which no document is"};
}

/// All of the stream, as long as it is no larger than kMostInputBytes.
Result<std::string> read_stream(std::istream& stream, const std::string& name) {
  std::string text;
  std::size_t used = 0;
  while (stream) {
    constexpr std::size_t kLeast = std::size_t{1} << 18;
    if (used == text.size()) text.resize(std::min(std::max(kLeast, 2 * used), kMostInputBytes + 1));
    stream.read(text.data() + used, static_cast<std::streamsize>(text.size() - used));
    used += static_cast<std::size_t>(stream.gcount());
    if (used > kMostInputBytes) return fail(too_large(name));
  }
  if (stream.bad()) return fail(ErrorCode::kInput, name, "cannot read: " + system_message());
  text.resize(used);
  return text;
}

}  // namespace

void refuse_empty_values(CLI::App& app, std::string_view except) {
  for (CLI::Option* const option : app.get_options()) {
    if (!except.empty() && option->get_name() == except) continue;
    option->check([](const std::string& text) {
      return std::string(text.empty() ? "expected a value, found an empty text" : "");
    });
  }
}

std::string input_name(const std::string& path) { return path == "-" ? "standard input" : path; }

int run_meshplan(int argc, const char* const* argv) {
  CLI::App app("Plans how to place every tensor of a training or inference job on a device mesh.",
               "meshplan");
  app.set_version_flag("--version", "meshplan " MESHPLAN_VERSION);
  app.require_subcommand(1);
  app.footer(
      "Exit codes: 0 done, 1 internal error, 2 wrong command line, 3 wrong input file,\n"
      "4 no plan fits the memory limit, 5 check, diff or verify rejects the plan.");
  app.formatter(help_formatter());  // every sub-command inherits it
  CommonOptions common;
  RunCommand run;
  for (const Command& command : commands()) {
    CLI::App* sub = app.add_subcommand(command.name, command.summary);
    sub->footer(std::string("Example:\n  ") + command.example);
    RunCommand run_this = command.define(*sub, common);
    add_common_options(*sub, common);
    sub->final_callback([&run, run_this] { run = run_this; });
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error, std::cout, std::cerr);
    return report({ErrorCode::kUsage, "", usage_message(app, error)});
  }
  set_up_logging(common);
  const int code = run_guarded(run);
  std::cout.flush();
  if (code == kDone && !std::cout) {
    return report({ErrorCode::kInput, "standard output", "cannot write: " + system_message()});
  }
  return code;
}

int run_guarded(const RunCommand& run) {
  try {
    return run();
  } catch (const std::bad_alloc&) {
    std::cerr << "meshplan: error: out of memory; ask for less at once\n";
  } catch (const std::exception& error) {
    std::cerr << "meshplan: internal error, please report it: " << error.what() << '\n';
  }
  return kBug;
}

int report(const Error& error) {
  std::cerr << "meshplan: error: " << to_string(error) << '\n';
  return error.code == ErrorCode::kUsage ? kUsageError : kInputError;
}

Result<void> check_inputs(std::span<const std::string> paths) {
  if (std::count(paths.begin(), paths.end(), "-") < 2) return {};
  return fail(
      ErrorCode::kUsage, "-", "only one input can be standard input; the others need files");
}

Result<void> check_outputs(std::span<const OutputFile> outputs,
                           std::span<const std::string> inputs) {
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const auto& [option, path] = outputs[i];
    if (path.empty()) continue;
    for (std::size_t j = 0; j < i; ++j) {
      if (!outputs[j].path.empty() && same_place(path, outputs[j].path))
        return usage(option, "writes to the same place as " + outputs[j].option);
    }
    if (path == "-") continue;
    for (const std::string& input : inputs) {
      if (!input.empty() && input != "-" && replaces(path, input))
        return usage(option, "would replace " + meshplan::quoted(input) + ", which is read here");
    }
  }
  return {};
}

Result<std::string> read_file(const std::string& path) {
  if (path == "-") return read_stream(std::cin, input_name(path));
  std::error_code status;
  if (std::filesystem::is_directory(path, status)) {
    return fail(ErrorCode::kInput, path, "is a folder, expected a file");
  }
  if (path.empty()) return fail(ErrorCode::kInput, "\"\"", "expected the name of a file");
  const std::uintmax_t size = std::filesystem::file_size(path, status);  // pipes have none
  if (!status && size > kMostInputBytes) return fail(too_large(path));
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file) return fail(ErrorCode::kInput, path, "cannot open: " + system_message());
  return read_stream(file, path);
}

Result<void> write_output(const std::string& path, std::string_view text) {
  if (path.empty() || path == "-") {
    std::cout << text;
    std::cout.flush();
    if (!std::cout)
      return fail(ErrorCode::kInput, "standard output", "cannot write: " + system_message());
    return {};
  }
  std::error_code status;
  const std::filesystem::file_status target = std::filesystem::status(path, status);
  if (std::filesystem::exists(target) && !std::filesystem::is_regular_file(target) &&
      !std::filesystem::is_directory(target)) {
    return write_in_place(path, text);
  }
  // a link stays a link: its target is replaced
  const std::filesystem::path real = std::filesystem::canonical(path, status);
  const std::string place = status ? path : real.string();
  const std::string temporary = place + ".tmp." + std::to_string(::getpid());
  errno = 0;
  std::ofstream file(temporary, std::ios::binary | std::ios::trunc);
  if (!file) return fail(ErrorCode::kInput, path, "cannot create: " + system_message());
  file << text;
  file.close();
  status.clear();
  if (file) std::filesystem::rename(temporary, place, status);
  if (!file || status) {
    const std::string reason = status ? status.message() : system_message();
    std::filesystem::remove(temporary, status);
    return fail(ErrorCode::kInput, path, "cannot write: " + reason);
  }
  return {};
}

}  // namespace meshplan

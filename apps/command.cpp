// SPDX-License-Identifier: Apache-2.0
#include "apps/command.h"

#include <cerrno>
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

namespace meshplan {
namespace {

void add_common_options(CLI::App& app, CommonOptions& common) {
  app.add_option("-o,--output", common.output, "Write the result to FILE (\"-\": standard output)")
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

std::string system_message() { return std::generic_category().message(errno); }

}  // namespace

int run_meshplan(int argc, const char* const* argv) {
  CLI::App app("Plans how to place every tensor of a training or inference job on a device mesh.",
               "meshplan");
  app.set_version_flag("--version", "meshplan " MESHPLAN_VERSION);
  app.require_subcommand(1);
  app.footer(
      "Exit codes: 0 done, 1 internal error, 2 wrong command line, 3 wrong input file,\n"
      "4 no plan fits the memory limit, 5 check, diff or verify rejects the plan.");
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
    return app.exit(error, std::cout, std::cerr) == 0 ? kDone : kUsageError;
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

Result<std::string> read_file(const std::string& path) {
  if (path == "-") {
    return std::string(std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>());
  }
  std::error_code status;
  if (std::filesystem::is_directory(path, status)) {
    return fail(ErrorCode::kInput, path, "is a folder, expected a file");
  }
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file) return fail(ErrorCode::kInput, path, "cannot open: " + system_message());
  std::string text;
  constexpr std::size_t kChunk = std::size_t{1} << 18;
  while (file) {
    const std::size_t before = text.size();
    text.resize(before + kChunk);
    file.read(text.data() + before, static_cast<std::streamsize>(kChunk));
    text.resize(before + static_cast<std::size_t>(file.gcount()));
  }
  if (file.bad()) return fail(ErrorCode::kInput, path, "cannot read: " + system_message());
  return text;
}

Result<void> write_output(const std::string& path, std::string_view text) {
  if (path.empty() || path == "-") {
    std::cout << text;
    std::cout.flush();
    if (!std::cout)
      return fail(ErrorCode::kInput, "standard output", "cannot write: " + system_message());
    return {};
  }
  const std::string temporary = path + ".tmp." + std::to_string(::getpid());
  errno = 0;
  std::ofstream file(temporary, std::ios::binary | std::ios::trunc);
  if (!file) return fail(ErrorCode::kInput, path, "cannot create: " + system_message());
  file << text;
  file.close();
  std::error_code status;
  if (file) std::filesystem::rename(temporary, path, status);
  if (!file || status) {
    const std::string reason = status ? status.message() : system_message();
    std::filesystem::remove(temporary, status);
    return fail(ErrorCode::kInput, path, "cannot write: " + reason);
  }
  return {};
}

}  // namespace meshplan

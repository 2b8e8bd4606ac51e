// SPDX-License-Identifier: Apache-2.0
// Runs the built program as a user does, and keeps files of a test in a folder of its own.
#pragma once

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

namespace meshplan::test {

/// What a run left behind. `exit_code` is 128 + the signal's number where a signal ended it, and
/// 1000 where it had to be stopped after `timeout`.
struct ProgramRun {
  int exit_code = -1;
  std::string out;
  std::string err;
};

/// Runs `program` (the meshplan binary by default) with these arguments, without a shell; `input`
/// is its standard input.
inline ProgramRun run_program(const std::vector<std::string>& arguments,
                              const std::string& input = "",
                              std::chrono::seconds timeout = std::chrono::seconds(300),
                              const std::string& program = MESHPLAN_BINARY) {
  std::FILE* const files[3] = {std::tmpfile(), std::tmpfile(), std::tmpfile()};
  ProgramRun run;
  for (std::FILE* file : files) {
    if (file == nullptr) return run;
  }
  std::fwrite(input.data(), 1, input.size(), files[0]);
  std::fflush(files[0]);
  std::rewind(files[0]);
  std::vector<std::string> words{program};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);

  const pid_t child = ::fork();
  if (child == 0) {
    for (int i = 0; i < 3; ++i) ::dup2(::fileno(files[i]), i);
    ::execv(argv[0], argv.data());
    ::_exit(127);
  }
  const auto end = std::chrono::steady_clock::now() + timeout;
  int status = 0;
  bool stopped = false;
  while (child > 0 && ::waitpid(child, &status, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() > end && !stopped) {
      ::kill(child, SIGKILL);
      stopped = true;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  if (child > 0) {
    run.exit_code = stopped             ? 1000
                    : WIFEXITED(status) ? WEXITSTATUS(status)
                                        : 128 + WTERMSIG(status);
  }
  const auto content = [](std::FILE* file) {
    std::string text;
    std::rewind(file);
    char buffer[65536];
    for (std::size_t n = 0; (n = std::fread(buffer, 1, sizeof buffer, file)) > 0;) {
      text.append(buffer, n);
    }
    return text;
  };
  run.out = content(files[1]);
  run.err = content(files[2]);
  for (std::FILE* file : files) std::fclose(file);
  return run;
}

/// A new, empty folder that is removed with everything in it at the end of the test.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "meshplan-test-XXXXXX").string();
    if (::mkdtemp(pattern.data()) != nullptr) path_ = pattern;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  /// The path of the file `name` in the folder, which need not exist.
  std::string file(std::string_view name) const { return (path_ / name).string(); }
  /// Writes the file and returns its path.
  std::string write(std::string_view name, std::string_view text) const {
    std::ofstream(path_ / name, std::ios::binary) << text;
    return file(name);
  }

 private:
  std::filesystem::path path_;
};

/// The content of a file, "" if it cannot be read.
inline std::string file_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
}

}  // namespace meshplan::test

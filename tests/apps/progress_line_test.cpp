// SPDX-License-Identifier: Apache-2.0
// What a terminal shows while a command runs, on a terminal of the test's own.
#include "apps/progress_line.h"

#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/catch.h"

namespace meshplan::progress_line_test {
namespace {

using namespace std::chrono_literals;

/// What is written to standard error while a line lives for `time`.
std::string shown(const CommonOptions& common, std::chrono::milliseconds time, bool terminal) {
  int ends[2] = {-1, -1};
  if (terminal) {
    ends[0] = ::posix_openpt(O_RDWR | O_NOCTTY);
    REQUIRE(ends[0] >= 0);
    REQUIRE(::grantpt(ends[0]) == 0);
    REQUIRE(::unlockpt(ends[0]) == 0);
    ends[1] = ::open(::ptsname(ends[0]), O_RDWR | O_NOCTTY);
    winsize window = {};
    window.ws_col = 24;
    window.ws_row = 5;
    REQUIRE(::ioctl(ends[1], TIOCSWINSZ, &window) == 0);
  } else {
    REQUIRE(::pipe(ends) == 0);
  }
  const int before = ::dup(STDERR_FILENO);
  ::dup2(ends[1], STDERR_FILENO);
  {
    ProgressLine line(common, "the beginning");
    line.show("3 of 40 meshes, and more than there is room for");
    std::this_thread::sleep_for(time);
  }
  ::dup2(before, STDERR_FILENO);
  ::close(before);
  ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
  std::string text;
  char buffer[4096];
  for (ssize_t n = 0; (n = ::read(ends[0], buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<std::size_t>(n));
  ::close(ends[0]);
  ::close(ends[1]);
  return text;
}

TEST_CASE("after a second a terminal shows one line, cut to its width, and erases it") {
  const std::string text = shown({}, 1300ms, true);
  CHECK(text.find("\r\033[K3 of 40 meshes, and mor") == 0);
  CHECK(text.find("more") == std::string::npos);
  CHECK(text.find('\n') == std::string::npos);
  CHECK(text.substr(text.size() - 4) == "\r\033[K");
}

TEST_CASE("what is quick, quiet or no terminal shows no progress") {
  CHECK(shown({}, 50ms, true).empty());
  CommonOptions quiet;
  quiet.quiet = true;
  CHECK(shown(quiet, 1200ms, true).empty());
  CHECK(shown({}, 1200ms, false).empty());
}

}  // namespace
}  // namespace meshplan::progress_line_test

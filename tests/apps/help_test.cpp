// SPDX-License-Identifier: Apache-2.0
// Help, manual page and completion: all from one description of the commands; the examples run.
#include <algorithm>
#include <filesystem>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include "apps/command.h"
#include "support/catch.h"
#include "support/models.h"
#include "support/run_program.h"

namespace meshplan::help_test {
namespace {

using test::ProgramRun;
using test::run_program;
using test::TemporaryFolder;

/// Every command, as words: {"plan"}, {"import", "hf"}.
std::vector<std::vector<std::string>> all_commands() {
  std::vector<std::vector<std::string>> found;
  for (const Command& command : commands()) {
    if (std::string(command.name) == "import") {
      found.push_back({"import", "hf"});
    } else {
      found.push_back({command.name});
    }
  }
  return found;
}

std::string help_of(std::vector<std::string> words) {
  words.emplace_back("--help");
  const ProgramRun run = run_program(words);
  CHECK(run.exit_code == 0);
  CHECK(run.err.empty());
  return run.out;
}

ProgramRun run_shell(const std::string& shell,
                     const std::string& script,
                     const TemporaryFolder& folder) {
  return run_program({"-c",
                      "cd \"$1\" && PATH=\"$2:$PATH\" && export PATH\n" + script,
                      "sh",
                      folder.path().string(),
                      std::filesystem::path(MESHPLAN_BINARY).parent_path().string()},
                     "",
                     std::chrono::seconds(300),
                     shell);
}

TEST_CASE("every option of every command has a description, and every command an example") {
  for (const auto& command : all_commands()) {
    const std::string help = help_of(command);
    INFO(command[0] << "\n" << help);
    CHECK(help.find("Example:\n  meshplan " + command[0]) != std::string::npos);
    std::size_t options = 0;
    for (std::size_t at = help.find("\n  -"); at != std::string::npos;
         at = help.find("\n  -", at + 1)) {
      const std::size_t end = help.find('\n', at + 1);
      const std::string line = help.substr(at + 1, end - at - 1);
      // names and type, then the description on the same line or on the next
      const std::size_t gap = line.find("  ", 2);
      const std::string description = gap == std::string::npos
                                          ? help.substr(end + 1, help.find('\n', end + 1) - end - 1)
                                          : line.substr(gap);
      INFO(line);
      CHECK(description.find_first_not_of(' ') != std::string::npos);
      CHECK(line.find(":{") == std::string::npos);
      ++options;
    }
    CHECK(options >= 6);
  }
}

TEST_CASE("defaults and ranges are shown once") {
  const std::string help = help_of({"plan"});
  CHECK(help.find("--top K") != std::string::npos);
  CHECK(help.find("(1 to 100) [default: 1]") != std::string::npos);
  CHECK(help.find("[default: adamw]") != std::string::npos);
  CHECK(help.find("--cluster C ") != std::string::npos);
  CHECK(help.find("[required]") != std::string::npos);
}

TEST_CASE("the example of every command runs") {
  const TemporaryFolder folder;
  folder.write("config.json", test::llama_config({}));
  const ProgramRun made =
      run_shell("/bin/sh",
                "set -e\n"
                "meshplan import hf config.json --batch 64 --seq 64 -o llama2_7b.json\n"
                "cp llama2_7b.json new_graph.json\n"
                "meshplan plan llama2_7b.json --cluster dgx-a100-80g --devices 16 "
                "--mesh dp=16 --dump-cost-graph graph.json -o plan.json >summary.txt\n"
                "gzip graph.json\n",
                folder);
  INFO(made.err);
  REQUIRE(made.exit_code == 0);
  for (const Command& command : commands()) {
    INFO(command.example);
    const ProgramRun run = run_shell("/bin/sh", command.example, folder);
    INFO(run.err);
    CHECK(run.exit_code == 0);
  }
}

TEST_CASE("the manual page holds every command and option") {
  const TemporaryFolder folder;
  const ProgramRun page = run_program({"man"});
  REQUIRE(page.exit_code == 0);
  CHECK(page.out.rfind(".TH MESHPLAN 1", 0) == 0);
  for (const auto& command : all_commands()) {
    std::string path = command[0];
    for (std::size_t i = 1; i < command.size(); ++i) path += " " + command[i];
    CHECK(page.out.find(".SS meshplan " + path) != std::string::npos);
  }
  CHECK(page.out.find("\\fB\\-\\-memory\\-limit\\fR \\fISIZE\\fR") != std::string::npos);
  CHECK(page.out.find("Default: adamw.") != std::string::npos);
  const std::string file = folder.write("meshplan.1", page.out);
  const ProgramRun shown = run_program(
      {"-c", "command -v man >/dev/null || exit 77; exec man --warnings -l \"$1\"", "sh", file},
      "",
      std::chrono::seconds(60),
      "/bin/sh");
  if (shown.exit_code != 0) {
    WARN("man is not there: the page was not formatted");
    return;
  }
  CHECK(shown.err.empty());
  CHECK(shown.out.find("meshplan plan") != std::string::npos);
}

TEST_CASE("an empty text is no value of any option, and is told by the option's name") {
  for (const Command& command : commands()) {
    if (std::string(command.name) == "mesh") continue;  // says itself what is empty
    CLI::App app;
    CommonOptions common;
    command.define(app, common);
    for (const CLI::Option* option : app.get_options()) {
      if (option->get_lnames().empty() || option->get_items_expected_min() == 0) continue;
      const std::string name = "--" + option->get_lnames().front();
      if (name == "--shape") continue;  // of a scalar
      const ProgramRun run = run_program({command.name, name, ""});
      INFO(command.name << ": " << run.err);
      CHECK(run.exit_code == 2);
      CHECK(run.err.find(name) != std::string::npos);
    }
  }
}

TEST_CASE("bash completes commands, options, values and files") {
  const TemporaryFolder folder;
  folder.write("graph one.json", "");
  const auto completed = [&](const std::string& words, const std::string& number) {
    const ProgramRun run = run_shell("/bin/bash",
                                     "source <(meshplan completion bash)\nCOMP_WORDS=(meshplan " +
                                         words + ")\nCOMP_CWORD=" + number +
                                         "\n_meshplan\nprintf '%s\\n' \"${COMPREPLY[@]}\"\n",
                                     folder);
    CHECK(run.err.empty());
    return "\n" + run.out;
  };
  CHECK(completed("pl", "1") == "\nplan\n");
  CHECK(completed("import h", "2") == "\nhf\n");
  CHECK(completed("plan --memory", "2") == "\n--memory-limit\n");
  CHECK(completed("plan g.json --optimizer ada", "4") == "\nadamw\nadam\nadafactor\n");
  CHECK(completed("plan --cluster dgx-a100", "3") == "\ndgx-a100-40g\ndgx-a100-80g\n");
  CHECK(completed("plan gr", "2") == "\ngraph one.json\n");
  CHECK(completed("check plan.json --graph gr", "4") == "\ngraph one.json\n");
  CHECK(completed("import hf c.json --mo", "4") == "\n--mode\n");
  CHECK(completed("import hf c.json --out", "4") == "\n--output\n");
  CHECK(completed("schema cl", "2") == "\ncluster\n");
  CHECK(completed("completion f", "2") == "\nfish\n");
}

TEST_CASE("fish completes commands, options and values") {
  const TemporaryFolder folder;
  if (run_shell("/bin/sh", "command -v fish >/dev/null", folder).exit_code != 0) {
    WARN("fish is not there: its completion was not tried");
    return;
  }
  // "word<tab>description" a line; the words alone
  const auto completed = [&](const std::string& line) {
    const ProgramRun run =
        run_shell("/bin/sh",
                  "exec fish --no-config -c 'meshplan completion fish | source; complete -C \"" +
                      line + "\"'",
                  folder);
    INFO(run.err);
    CHECK(run.exit_code == 0);
    std::string words = "\n";
    std::istringstream lines(run.out);
    for (std::string one; std::getline(lines, one);) words += one.substr(0, one.find('\t')) + "\n";
    return words;
  };
  CHECK(completed("meshplan pl") == "\nplan\n");
  CHECK(completed("meshplan import h") == "\nhf\n");
  CHECK(completed("meshplan plan --memory") == "\n--memory-limit\n");
  CHECK(completed("meshplan plan g.json --optimizer ada") == "\nadafactor\nadam\nadamw\n");
  CHECK(completed("meshplan plan --cluster dgx-a100") == "\ndgx-a100-40g\ndgx-a100-80g\n");
  CHECK(completed("meshplan import hf c.json --mo") == "\n--mode\n");
  CHECK(completed("meshplan schema cl") == "\ncluster\n");
}

TEST_CASE("zsh completes commands, options and values") {
  const TemporaryFolder folder;
  if (run_shell("/bin/sh", "command -v zsh >/dev/null", folder).exit_code != 0) {
    WARN("zsh is not there: its completion was not tried");
    return;
  }
  // completion works on a terminal alone: a shell in a pseudo terminal is given words and a tab,
  // and a key that writes the line as it has become
  const std::string script = R"zsh(
meshplan completion zsh > _meshplan
zmodload zsh/zpty
# waits until the file has so many lines; what the shell shows has to be read meanwhile
wait-for() {
  local i
  for ((i = 0; i < 600; ++i)); do
    while zpty -r -t shell shown; do :; done
    [[ -e $1 && $(wc -l <$1) -ge $2 ]] && return
    sleep 0.05
  done
}
zpty shell zsh -f -i
zpty -w shell 'PS1=; fpath=($PWD $fpath); autoload -U compinit; compinit -u -D'
zpty -w shell 'line-is() { print -r -- "<$BUFFER>" >>lines }; zle -N line-is'
zpty -w shell 'zle-line-init() { print >ready }; zle -N zle-line-init'
zpty -w shell 'bindkey "^I" complete-word; bindkey "^T" line-is; bindkey "^U" kill-whole-line'
wait-for ready 1
count=0
for line in 'meshplan pl' 'meshplan import h' 'meshplan plan --memory' \
    'meshplan plan g.json --optimizer=adag' 'meshplan plan g.json --optimizer=adaf' \
    'meshplan import hf c.json --mo' 'meshplan schema cl'; do
  zpty -n -w shell "$line"$'\t\x14\x15'
  wait-for lines $((++count))
done
zpty -d shell
cat lines
)zsh";
  const std::string file = folder.write("try.zsh", script);
  const ProgramRun run = run_shell("/bin/sh", "exec zsh -f '" + file + "'", folder);
  INFO(run.err);
  CHECK(run.out ==
        "<meshplan plan >\n<meshplan import hf >\n<meshplan plan --memory-limit=>\n"
        "<meshplan plan g.json --optimizer=adag>\n<meshplan plan g.json --optimizer=adafactor >\n"
        "<meshplan import hf c.json --mode=>\n<meshplan schema cluster >\n");
}

TEST_CASE("the completions for zsh and fish name every command and option") {
  const TemporaryFolder folder;
  const std::string zsh = run_program({"completion", "zsh"}).out;
  const std::string fish = run_program({"completion", "fish"}).out;
  for (const Command& command : commands()) {
    CHECK(zsh.find(std::string("_meshplan_") + command.name + "() {") != std::string::npos);
    CHECK(fish.find(std::string(" -f -a ") + command.name + " ") != std::string::npos);
  }
  CHECK(zsh.find(
            "'--optimizer=[Its state takes memory and time]:adamw|adam|sgd|momentum|adafactor|none:"
            "(adamw adam sgd momentum adafactor none)'") != std::string::npos);
  CHECK(fish.find("-l optimizer -r -a 'adamw adam sgd momentum adafactor none'") !=
        std::string::npos);
  for (const auto& [shell, text] : {std::pair{"zsh", &zsh}, {"fish", &fish}}) {
    const std::string file = folder.write("completion", *text);
    const ProgramRun run = run_program({"-c",
                                        std::string("command -v ") + shell +
                                            " >/dev/null || exit 77; exec " + shell + " -n \"$1\"",
                                        "sh",
                                        file},
                                       "",
                                       std::chrono::seconds(60),
                                       "/bin/sh");
    if (run.exit_code == 77) {
      WARN(shell << " is not there: its completion was not parsed");
      continue;
    }
    INFO(run.err);
    CHECK(run.exit_code == 0);
  }
}

}  // namespace
}  // namespace meshplan::help_test

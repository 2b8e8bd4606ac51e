// SPDX-License-Identifier: Apache-2.0
// meshplan completion SHELL: what a shell needs to complete commands, options and their values.
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "apps/command.h"
#include "apps/command_help.h"

namespace meshplan {
namespace {

void for_each_command(const CommandHelp& command,
                      const std::function<void(const CommandHelp&)>& visit) {
  visit(command);
  for (const CommandHelp& sub : command.subcommands) for_each_command(sub, visit);
}

std::string last_word(const std::string& path) {
  const std::size_t space = path.rfind(' ');
  return space == std::string::npos ? path : path.substr(space + 1);
}

std::string parent_path(const std::string& path) {
  const std::size_t space = path.rfind(' ');
  return space == std::string::npos ? "" : path.substr(0, space);
}

std::string word_list(const std::vector<std::string>& words, const char* between = " ") {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : between) + word;
  return text;
}

/// A text in the shell's single quotes; in fish a backslash would count.
std::string single_quoted(const std::string& text, bool fish = false) {
  std::string quoted = "'";
  for (const char c : text) {
    if (fish) {
      if (c == '\'' || c == '\\') quoted += '\\';
      quoted += c;
    } else if (c == '\'') {
      quoted += "'\\''";
    } else {
      quoted += c;
    }
  }
  return quoted + "'";
}

std::string bash_completion(const CommandHelp& program) {
  std::string enter, values, words;
  for_each_command(program, [&](const CommandHelp& command) {
    std::vector<std::string> all;
    for (const CommandHelp& sub : command.subcommands) all.push_back(last_word(sub.path));
    if (!command.path.empty())
      enter += "      \"" + parent_path(command.path) + ":" + last_word(command.path) +
               "\") command=\"" + command.path + "\" ;;\n";
    for (const OptionHelp& option : command.options) {
      all.insert(all.end(), option.names.begin(), option.names.end());
      if (option.type.empty()) continue;
      std::string pattern;
      for (const std::string& name : option.names)
        pattern += (pattern.empty() ? "\"" : " | \"") + command.path + ":" + name + "\"";
      values += "    " + pattern + ") choices=\"" + word_list(option.choices) + "\" value=1 ;;\n";
    }
    for (const OptionHelp& positional : command.positionals)
      all.insert(all.end(), positional.choices.begin(), positional.choices.end());
    words += "      \"" + command.path + "\") choices=\"" + word_list(all) + "\" ;;\n";
  });
  return "# bash completion for meshplan: source this, or put it into bash-completion's folder\n"
         "_meshplan() {\n"
         "  local word=\"${COMP_WORDS[COMP_CWORD]}\" command=\"\" choices=\"\" value=0 i\n"
         "  for ((i = 1; i < COMP_CWORD; ++i)); do\n"
         "    case \"$command:${COMP_WORDS[i]}\" in\n" +
         enter +
         "    esac\n"
         "  done\n"
         "  case \"$command:${COMP_WORDS[COMP_CWORD - 1]}\" in\n" +
         values +
         "  esac\n"
         "  if [ \"$value\" = 0 ]; then\n"
         "    case \"$command\" in\n" +
         words +
         "    esac\n"
         "  fi\n"
         "  mapfile -t COMPREPLY < <(compgen -W \"$choices\" -- \"$word\")\n"
         "  if [[ \"$word\" != -* ]]; then\n"
         "    compopt -o filenames 2>/dev/null\n"
         "    mapfile -t -O \"${#COMPREPLY[@]}\" COMPREPLY < <(compgen -f -- \"$word\")\n"
         "  fi\n"
         "}\n"
         "complete -F _meshplan meshplan\n";
}

/// A description between brackets of an _arguments specification.
std::string zsh_text(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') escaped += '\\';
    escaped += c == '\n' ? ' ' : c;
  }
  return escaped;
}

std::string zsh_action(const OptionHelp& option) {
  return option.choices.empty() ? "_files" : "(" + word_list(option.choices) + ")";
}

std::string zsh_completion(const CommandHelp& program) {
  std::string text =
      "#compdef meshplan\n# zsh completion for meshplan: put it into a folder of fpath as "
      "_meshplan\n\n";
  for_each_command(program, [&](const CommandHelp& command) {
    std::string name = command.path.empty() ? "" : "_" + command.path;
    for (char& c : name) {
      if (c == ' ' || c == '-') c = '_';
    }
    text += "_meshplan" + name + "() {\n";
    text += "  local context state line\n  typeset -A opt_args\n  _arguments -C \\\n";
    for (const OptionHelp& option : command.options) {
      for (const std::string& spelling : option.names) {
        const bool takes = !option.type.empty();
        const bool is_long = spelling.size() > 2;
        text +=
            "    " +
            single_quoted((option.repeats ? "*" : "") + spelling + (takes && is_long ? "=" : "") +
                          "[" + zsh_text(option.description) + "]" +
                          (takes ? ":" + zsh_text(option.type) + ":" + zsh_action(option) : "")) +
            " \\\n";
      }
    }
    if (command.subcommands.empty()) {
      for (const OptionHelp& positional : command.positionals)
        text += "    " +
                single_quoted(std::string(positional.required ? "" : ":") + ":" +
                              zsh_text(positional.names[0]) + ":" + zsh_action(positional)) +
                " \\\n";
      text += "    && return 0\n}\n\n";
      return;
    }
    text +=
        "    ':command:->command' '*::argument:->argument' && return 0\n  case $state in\n"
        "    command)\n      local -a commands\n      commands=(\n";
    for (const CommandHelp& sub : command.subcommands)
      text += "        " + single_quoted(last_word(sub.path) + ":" + zsh_text(sub.summary)) + "\n";
    text += "      )\n      _describe command commands ;;\n    argument)\n      case $line[1] in\n";
    for (const CommandHelp& sub : command.subcommands)
      text += "        " + last_word(sub.path) + ") _meshplan" + name + "_" + last_word(sub.path) +
              " ;;\n";
    text += "      esac ;;\n  esac\n}\n\n";
  });
  return text + "_meshplan \"$@\"\n";
}

std::string fish_completion(const CommandHelp& program) {
  std::string text =
      "# fish completion for meshplan: put it into ~/.config/fish/completions/meshplan.fish\n";
  for_each_command(program, [&](const CommandHelp& command) {
    std::vector<std::string> below;
    for (const CommandHelp& sub : command.subcommands) below.push_back(last_word(sub.path));
    std::string condition;
    if (command.path.empty()) {
      condition = "__fish_use_subcommand";
    } else {
      std::string path;  // every word of it has been seen
      for (const char c : command.path)
        path += c == ' ' ? std::string("; and __fish_seen_subcommand_from ") : std::string(1, c);
      condition = "__fish_seen_subcommand_from " + path;
      if (!below.empty()) condition += "; and not __fish_seen_subcommand_from " + word_list(below);
    }
    const std::string start = "complete -c meshplan -n " + single_quoted(condition, true);
    for (const CommandHelp& sub : command.subcommands)
      text += start + " -f -a " + last_word(sub.path) + " -d " + single_quoted(sub.summary, true) +
              "\n";
    for (const OptionHelp& option : command.options) {
      text += start;
      for (const std::string& name : option.names)
        text += name.size() == 2 ? " -s " + name.substr(1) : " -l " + name.substr(2);
      if (!option.type.empty()) text += " -r";
      if (!option.choices.empty()) text += " -a " + single_quoted(word_list(option.choices), true);
      text += " -d " + single_quoted(option.description, true) + "\n";
    }
    for (const OptionHelp& positional : command.positionals) {
      if (!positional.choices.empty())
        text += start + " -f -a " + single_quoted(word_list(positional.choices), true) + "\n";
    }
  });
  return text;
}

}  // namespace

RunCommand define_completion(CLI::App& app, CommonOptions& common) {
  auto shell = std::make_shared<std::string>();
  app.add_option("SHELL", *shell, "The shell: bash, zsh or fish")
      ->required()
      ->type_name("bash|zsh|fish")
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  return [shell, &app, &common] {
    const CommandHelp program = describe(*app.get_parent());
    const std::string text = *shell == "bash"  ? bash_completion(program)
                             : *shell == "zsh" ? zsh_completion(program)
                                               : fish_completion(program);
    if (auto done = write_output(common.output, text); !done) return report(done.error());
    return int{kDone};
  };
}

}  // namespace meshplan

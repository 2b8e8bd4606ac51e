// SPDX-License-Identifier: Apache-2.0
// The table of sub-commands: a new command is one file that defines it and one row here.
#include <vector>

#include "apps/command.h"

namespace meshplan {

// RunCommand define_mesh(CLI::App& app, CommonOptions& common);

std::span<const Command> commands() {
  static const std::vector<Command> kCommands = {};
  return kCommands;
}

}  // namespace meshplan

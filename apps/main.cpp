// SPDX-License-Identifier: Apache-2.0
#include "apps/command.h"

int main(int argc, char** argv) { return meshplan::run_meshplan(argc, argv); }

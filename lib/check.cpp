// SPDX-License-Identifier: Apache-2.0
#include "lib/check.h"

#include <cstdio>
#include <cstdlib>

namespace meshplan {

void check_failed(const char* condition, const char* file, int line) {
  std::fprintf(stderr,
               "meshplan: internal error: %s does not hold (%s:%d).\n"
               "This is a bug in meshplan; please report it with the command line and its input.\n",
               condition,
               file,
               line);
#ifdef MESHPLAN_FUZZ
  std::abort();
#endif
  std::_Exit(1);
}

}  // namespace meshplan

// SPDX-License-Identifier: Apache-2.0
#include "apps/command.h"

#ifdef __GLIBC__
#include <malloc.h>
#endif

int main(int argc, char** argv) {
#ifdef __GLIBC__
  // The search makes and drops tables of some hundred kilobytes all the time; returning each to the
  // system costs more than computing it.
  mallopt(M_MMAP_THRESHOLD, 1 << 28);
  mallopt(M_TRIM_THRESHOLD, 1 << 28);
#endif
  return meshplan::run_meshplan(argc, argv);
}

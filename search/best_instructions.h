// SPDX-License-Identifier: Apache-2.0
// MESHPLAN_BEST_INSTRUCTIONS: compiles a function for several instruction sets; the machine's best
// is taken when the program starts. Only for sums and minima in a fixed order, so that every
// instruction set gives the same numbers.
#pragma once

#if defined(__x86_64__) && defined(__GLIBC__)
#define MESHPLAN_BEST_INSTRUCTIONS __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define MESHPLAN_BEST_INSTRUCTIONS
#endif

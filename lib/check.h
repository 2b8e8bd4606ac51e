// SPDX-License-Identifier: Apache-2.0
// MESHPLAN_CHECK: a broken invariant is a bug of the program, in every build.
// MESHPLAN_AUDIT: the same for checks too slow for release builds.
#pragma once

namespace meshplan {

/// Prints the broken invariant and where to report it, then exits with code 1.
[[noreturn]] void check_failed(const char* condition, const char* file, int line);

}  // namespace meshplan

#define MESHPLAN_CHECK(condition) \
  ((condition) ? static_cast<void>(0) : ::meshplan::check_failed(#condition, __FILE__, __LINE__))
#ifdef MESHPLAN_AUDITS
#define MESHPLAN_AUDIT(condition) MESHPLAN_CHECK(condition)
#else
#define MESHPLAN_AUDIT(condition) static_cast<void>(0)
#endif

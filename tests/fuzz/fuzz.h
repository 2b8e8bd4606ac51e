// SPDX-License-Identifier: Apache-2.0
// What the fuzz targets share. A target is one file NAME_fuzz.cpp that says what must hold for
// every input of one reader: no crash, no undefined behaviour, every refusal in one line, and what
// is accepted reads back from what is written of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "lib/result.h"

namespace meshplan::fuzz {

/// A law of the reader; what breaks it is kept by the fuzzer.
inline void law(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "broken: %s\n", what);
  std::abort();
}

/// A refusal names a place or says what is wrong, on one line.
inline void check_refusal(const Error& error) {
  const std::string text = to_string(error);
  law(!error.message.empty(), "an error has a message");
  law(text.find('\n') == std::string::npos, "an error is one line");
}

/// A copy of exactly the input, so that reading beyond it is found.
inline std::string input_text(const std::uint8_t* data, std::size_t size) {
  return std::string(data, data + size);
}

}  // namespace meshplan::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

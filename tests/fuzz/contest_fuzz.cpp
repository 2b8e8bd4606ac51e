// SPDX-License-Identifier: Apache-2.0
// Cost graphs in the contest's format, plain or, where the first byte says so, packed by us.
#include <zlib.h>

#include "fuzz/cost_graph_laws.h"

namespace meshplan::fuzz {
namespace {

/// `text` in gzip, so that the fuzzer's changes reach what is inside.
std::string packed(const std::string& text) {
  z_stream stream{};
  law(::deflateInit2(&stream, Z_BEST_SPEED, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK,
      "zlib starts");
  std::string result(::deflateBound(&stream, text.size()), '\0');
  std::string input = text;
  stream.next_in = reinterpret_cast<Bytef*>(input.data());
  stream.avail_in = static_cast<uInt>(input.size());
  stream.next_out = reinterpret_cast<Bytef*>(result.data());
  stream.avail_out = static_cast<uInt>(result.size());
  law(::deflate(&stream, Z_FINISH) == Z_STREAM_END, "zlib packs");
  result.resize(stream.total_out);
  ::deflateEnd(&stream);
  return result;
}

}  // namespace
}  // namespace meshplan::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text = meshplan::fuzz::input_text(data, size);
  const bool pack = !text.empty() && text.front() == '\n';
  meshplan::fuzz::check_cost_graph(pack ? meshplan::fuzz::packed(text) : text);
  return 0;
}

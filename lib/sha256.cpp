// SPDX-License-Identifier: Apache-2.0
#include "lib/sha256.h"

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace meshplan {
namespace {

using Words = std::array<std::uint32_t, 64>;
using State = std::array<std::uint32_t, 8>;

/// floor(2^32 * frac(n^(1/root))) for the first primes, as the standard defines its constants:
/// the largest w with (whole * 2^32 + w)^root <= n * 2^(32 * root), found bit by bit.
template <int kRoot>
constexpr std::uint32_t root_fraction(std::uint32_t n) {
  __extension__ using Wide = unsigned __int128;
  std::uint64_t x = 0;  // 32 fraction bits
  for (int bit = 36; bit >= 0; --bit) {
    const std::uint64_t next = x | (std::uint64_t{1} << bit);
    // next < 2^37; its cube has up to 111 bits, its square 74
    Wide power = next;
    for (int i = 1; i < kRoot; ++i) power *= next;
    if (power <= (Wide{n} << (32 * kRoot))) x = next;
  }
  return static_cast<std::uint32_t>(x);
}

constexpr std::array<std::uint32_t, 64> first_primes() {
  std::array<std::uint32_t, 64> primes{};
  std::size_t found = 0;
  for (std::uint32_t n = 2; found < primes.size(); ++n) {
    bool prime = true;
    for (std::size_t i = 0; i < found; ++i) prime = prime && n % primes[i] != 0;
    if (prime) primes[found++] = n;
  }
  return primes;
}

constexpr std::array<std::uint32_t, 64> kPrimes = first_primes();

constexpr Words round_constants() {
  Words constants{};
  for (std::size_t i = 0; i < constants.size(); ++i) constants[i] = root_fraction<3>(kPrimes[i]);
  return constants;
}

constexpr State initial_state() {
  State state{};
  for (std::size_t i = 0; i < state.size(); ++i) state[i] = root_fraction<2>(kPrimes[i]);
  return state;
}

constexpr Words kConstants = round_constants();
constexpr State kInitial = initial_state();
static_assert(kConstants[0] == 0x428a2f98U && kInitial[0] == 0x6a09e667U);

/// One round. The eight words change their roles from round to round instead of their places, and
/// the sixteen words of the schedule are renewed in place.
template <std::size_t kRound>
void add_round(State& s, std::array<std::uint32_t, 16>& w, std::size_t at) {
  const auto role = [&](std::size_t r) -> std::uint32_t& { return s[(r - kRound) & 7U]; };
  std::uint32_t& word = w[kRound];
  if (at > 0) {
    const std::uint32_t a = w[(kRound + 1) & 15U];
    const std::uint32_t b = w[(kRound + 14) & 15U];
    word += (std::rotr(a, 7) ^ std::rotr(a, 18) ^ (a >> 3U)) + w[(kRound + 9) & 15U] +
            (std::rotr(b, 17) ^ std::rotr(b, 19) ^ (b >> 10U));
  }
  const std::uint32_t a = role(0);
  const std::uint32_t e = role(4);
  const std::uint32_t first = role(7) + kConstants[at + kRound] + word +
                              (role(6) ^ (e & (role(5) ^ role(6)))) +
                              (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25));
  role(3) += first;
  role(7) = first + ((a & role(1)) | (role(2) & (a | role(1)))) +
            (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22));
}

template <std::size_t... kRounds>
void add_rounds(State& s,
                std::array<std::uint32_t, 16>& w,
                std::size_t at,
                std::index_sequence<kRounds...> /*rounds*/) {
  (add_round<kRounds>(s, w, at), ...);
}

void add_block(State& state, const unsigned char* block) {
  std::array<std::uint32_t, 16> w;
  for (std::size_t i = 0; i < 16; ++i) {
    w[i] = static_cast<std::uint32_t>(block[4 * i]) << 24U |
           static_cast<std::uint32_t>(block[4 * i + 1]) << 16U |
           static_cast<std::uint32_t>(block[4 * i + 2]) << 8U | block[4 * i + 3];
  }
  State s = state;  // a b c d e f g h
  add_rounds(s, w, 0, std::make_index_sequence<16>());
  for (std::size_t at = 16; at < 64; at += 16) add_rounds(s, w, at, std::make_index_sequence<16>());
  for (std::size_t i = 0; i < state.size(); ++i) state[i] += s[i];
}

}  // namespace

std::string sha256_hex(std::string_view bytes) {
  State state = kInitial;
  const auto* data = reinterpret_cast<const unsigned char*>(bytes.data());
  const std::size_t whole = bytes.size() / 64 * 64;
  for (std::size_t at = 0; at < whole; at += 64) add_block(state, data + at);
  // the rest, a one bit, zeros, and the length in bits
  std::array<unsigned char, 128> tail{};
  const std::size_t rest = bytes.size() - whole;
  for (std::size_t i = 0; i < rest; ++i) tail[i] = data[whole + i];
  tail[rest] = 0x80;
  const std::size_t end = rest < 56 ? 64 : 128;
  std::uint64_t bits = static_cast<std::uint64_t>(bytes.size()) * 8;
  for (std::size_t i = end; bits != 0; bits >>= 8U) {
    tail[--i] = static_cast<unsigned char>(bits & 0xFFU);
  }
  for (std::size_t at = 0; at < end; at += 64) add_block(state, tail.data() + at);

  std::string hex;
  for (const std::uint32_t word : state) {
    for (int shift = 28; shift >= 0; shift -= 4) {
      hex += "0123456789abcdef"[(word >> static_cast<unsigned>(shift)) & 15U];
    }
  }
  return hex;
}

}  // namespace meshplan

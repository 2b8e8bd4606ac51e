// SPDX-License-Identifier: Apache-2.0
#include "lib/sha256.h"

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

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

void add_block(State& state, const unsigned char* block) {
  Words w;
  for (std::size_t i = 0; i < 16; ++i) {
    w[i] = static_cast<std::uint32_t>(block[4 * i]) << 24U |
           static_cast<std::uint32_t>(block[4 * i + 1]) << 16U |
           static_cast<std::uint32_t>(block[4 * i + 2]) << 8U | block[4 * i + 3];
  }
  for (std::size_t i = 16; i < 64; ++i) {
    const std::uint32_t a = w[i - 15];
    const std::uint32_t b = w[i - 2];
    w[i] = w[i - 16] + (std::rotr(a, 7) ^ std::rotr(a, 18) ^ (a >> 3U)) + w[i - 7] +
           (std::rotr(b, 17) ^ std::rotr(b, 19) ^ (b >> 10U));
  }
  State s = state;  // a b c d e f g h
  for (std::size_t i = 0; i < 64; ++i) {
    const std::uint32_t mixed_e = std::rotr(s[4], 6) ^ std::rotr(s[4], 11) ^ std::rotr(s[4], 25);
    const std::uint32_t choice = (s[4] & s[5]) ^ (~s[4] & s[6]);
    const std::uint32_t first = s[7] + mixed_e + choice + kConstants[i] + w[i];
    const std::uint32_t mixed_a = std::rotr(s[0], 2) ^ std::rotr(s[0], 13) ^ std::rotr(s[0], 22);
    const std::uint32_t majority = (s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]);
    s = {first + mixed_a + majority, s[0], s[1], s[2], s[3] + first, s[4], s[5], s[6]};
  }
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

// SPDX-License-Identifier: Apache-2.0
// Computes CRC-32C with the SSE4.2 instruction in three interleaved streams, or with eight tables;
// both give the same checksum. Combines checksums of adjacent pieces by algebra over GF(2).

#include "hdf5_ckpt/core/crc32c.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace ddp::ckpt {
namespace {

// The Castagnoli polynomial, lowest power in the highest bit as in the checksum itself.
constexpr std::uint32_t kPolynomial = 0x82F63B78;
constexpr std::uint32_t kOne = 0x80000000;

// a * b modulo the polynomial.
constexpr std::uint32_t multiply(std::uint32_t a, std::uint32_t b) {
  std::uint32_t product = 0;
  for (std::uint32_t bit = kOne; bit != 0; bit >>= 1) {
    if ((a & bit) != 0) product ^= b;
    b = (b & 1) != 0 ? (b >> 1) ^ kPolynomial : b >> 1;
  }
  return product;
}

using Powers = std::array<std::uint32_t, 67>;

constexpr Powers make_powers() {
  Powers powers{};
  powers[0] = kOne >> 1;
  for (std::size_t k = 1; k < powers.size(); ++k)
    powers[k] = multiply(powers[k - 1], powers[k - 1]);
  return powers;
}

// kPowers[k] = x^(2^k); 67 of them reach 8 * (2^64 - 1) bits.
constexpr Powers kPowers = make_powers();

// x^(8 * bytes): multiplying a checksum by it appends that many zero bytes.
constexpr std::uint32_t shift_by(std::uint64_t bytes) {
  std::uint32_t result = kOne;
  for (std::size_t k = 3; bytes != 0; bytes >>= 1, ++k)
    if ((bytes & 1) != 0) result = multiply(kPowers[k], result);
  return result;
}

using ByteTables = std::array<std::array<std::uint32_t, 256>, 8>;

constexpr ByteTables make_tables() {
  ByteTables tables{};
  for (std::uint32_t b = 0; b < 256; ++b) {
    std::uint32_t crc = b;
    for (int bit = 0; bit < 8; ++bit) crc = (crc & 1) != 0 ? (crc >> 1) ^ kPolynomial : crc >> 1;
    tables[0][b] = crc;
  }
  for (std::size_t n = 1; n < tables.size(); ++n)
    for (std::size_t b = 0; b < 256; ++b)
      tables[n][b] = (tables[n - 1][b] >> 8) ^ tables[0][tables[n - 1][b] & 0xff];
  return tables;
}

// kTables[n][b]: the register after byte b and n zero bytes.
constexpr ByteTables kTables = make_tables();

std::uint64_t load64(const std::byte* at) {
  std::uint64_t word = 0;
  std::memcpy(&word, at, sizeof word);
  return word;
}

std::uint32_t update_by_tables(std::uint32_t crc, const std::byte* data, std::size_t size) {
  for (; size >= 8; data += 8, size -= 8) {
    const std::uint64_t word = load64(data) ^ crc;
    crc = 0;
    for (std::size_t byte = 0; byte < 8; ++byte)
      crc ^= kTables[7 - byte][(word >> (8 * byte)) & 0xff];
  }
  for (; size > 0; ++data, --size)
    crc = (crc >> 8) ^ kTables[0][(crc ^ std::to_integer<std::uint32_t>(*data)) & 0xff];
  return crc;
}

#if defined(__x86_64__)

// The instruction has a latency of three cycles, but one can start every cycle, so three
// independent streams keep the unit busy.
constexpr std::size_t kStream = 4096;

using ShiftTables = std::array<std::array<std::uint32_t, 256>, 4>;

constexpr ShiftTables make_stream_shift() {
  ShiftTables tables{};
  for (std::size_t n = 0; n < tables.size(); ++n)
    for (std::uint32_t b = 0; b < 256; ++b)
      tables[n][b] = multiply(shift_by(kStream), b << (8 * n));
  return tables;
}

constexpr ShiftTables kStreamShift = make_stream_shift();

std::uint32_t append_stream_of_zeros(std::uint32_t crc) {
  return kStreamShift[0][crc & 0xff] ^ kStreamShift[1][(crc >> 8) & 0xff] ^
         kStreamShift[2][(crc >> 16) & 0xff] ^ kStreamShift[3][crc >> 24];
}

__attribute__((target("sse4.2"))) std::uint32_t update_by_instruction(std::uint32_t crc,
                                                                      const std::byte* data,
                                                                      std::size_t size) {
  std::uint64_t a = crc;
  for (; size >= 3 * kStream; data += 3 * kStream, size -= 3 * kStream) {
    std::uint64_t b = 0;
    std::uint64_t c = 0;
    for (std::size_t i = 0; i < kStream; i += 8) {
      a = _mm_crc32_u64(a, load64(data + i));
      b = _mm_crc32_u64(b, load64(data + kStream + i));
      c = _mm_crc32_u64(c, load64(data + 2 * kStream + i));
    }
    a = append_stream_of_zeros(static_cast<std::uint32_t>(a)) ^ b;
    a = append_stream_of_zeros(static_cast<std::uint32_t>(a)) ^ c;
  }
  for (; size >= 8; data += 8, size -= 8) a = _mm_crc32_u64(a, load64(data));
  auto tail = static_cast<std::uint32_t>(a);
  for (; size > 0; ++data, --size) tail = _mm_crc32_u8(tail, std::to_integer<std::uint8_t>(*data));
  return tail;
}

#else

std::uint32_t update_by_instruction(std::uint32_t crc, const std::byte* data, std::size_t size) {
  return update_by_tables(crc, data, size);
}

#endif

}  // namespace

bool crc32c_has_hardware() noexcept {
#if defined(__x86_64__)
  static const bool has = __builtin_cpu_supports("sse4.2") != 0;
  return has;
#else
  return false;
#endif
}

std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t prefix) noexcept {
  return crc32c_has_hardware() ? ~update_by_instruction(~prefix, bytes.data(), bytes.size())
                               : crc32c_software(bytes, prefix);
}

std::uint32_t crc32c_software(std::span<const std::byte> bytes, std::uint32_t prefix) noexcept {
  return ~update_by_tables(~prefix, bytes.data(), bytes.size());
}

std::uint32_t crc32c_combine(std::uint32_t crc_a, std::uint32_t crc_b,
                             std::uint64_t length_b) noexcept {
  return multiply(shift_by(length_b), crc_a) ^ crc_b;
}

}  // namespace ddp::ckpt

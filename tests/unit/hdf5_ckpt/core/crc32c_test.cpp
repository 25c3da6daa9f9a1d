// SPDX-License-Identifier: Apache-2.0
// Compares CRC-32C with the vectors of RFC 3720 B.4, and its three implementations with each other.

#include "hdf5_ckpt/core/crc32c.h"

#include <gtest/gtest.h>

#include <random>
#include <string_view>
#include <vector>

namespace ddp::ckpt {
namespace {

std::vector<std::byte> random_bytes(std::size_t size, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::byte> bytes(size);
  for (std::byte& b : bytes) b = static_cast<std::byte>(random());
  return bytes;
}

std::vector<std::byte> counting(int first, int step) {
  std::vector<std::byte> bytes(32);
  for (int i = 0; i < 32; ++i)
    bytes[static_cast<std::size_t>(i)] = static_cast<std::byte>(first + i * step);
  return bytes;
}

struct Vector {
  const char* name;
  std::vector<std::byte> bytes;
  std::uint32_t crc;
};

std::vector<Vector> rfc3720_vectors() {
  const auto digits = std::as_bytes(std::span(std::string_view("123456789")));
  // An iSCSI SCSI Read (10) command PDU.
  std::vector<std::byte> pdu(48, std::byte{0});
  for (const auto& [at, value] : std::initializer_list<std::pair<std::size_t, int>>{{0, 0x01},
                                                                                    {1, 0xc0},
                                                                                    {16, 0x14},
                                                                                    {22, 0x04},
                                                                                    {27, 0x14},
                                                                                    {31, 0x18},
                                                                                    {32, 0x28},
                                                                                    {40, 0x02}})
    pdu[at] = static_cast<std::byte>(value);
  return {{"nothing", {}, 0},
          {"32 zeros", counting(0, 0), 0x8a9136aa},
          {"32 ones", counting(0xff, 0), 0x62a8ab43},
          {"up", counting(0, 1), 0x46dd794e},
          {"down", counting(31, -1), 0x113fdb5c},
          {"read command", pdu, 0xd9963a56},
          {"digits", {digits.begin(), digits.end()}, 0xe3069283}};
}

TEST(Crc32c, MatchesPublishedVectors) {
  for (const Vector& vector : rfc3720_vectors()) {
    EXPECT_EQ(crc32c(vector.bytes), vector.crc) << vector.name;
    EXPECT_EQ(crc32c_software(vector.bytes), vector.crc) << vector.name;
  }
}

TEST(Crc32c, HardwareAndSoftwareAgreeOnAllLengthsAndAlignments) {
  if (!crc32c_has_hardware()) GTEST_SKIP() << "this CPU does not have SSE4.2";
  // Longer than three streams of 4096 bytes, the minimum for the interleaved kernel.
  const auto bytes = random_bytes(40000, 1);
  for (std::size_t start = 0; start < 9; ++start)
    for (const std::size_t length : {0, 1, 7, 8, 9, 4095, 12287, 12288, 12289, 24576, 36999}) {
      const auto part = std::span(bytes).subspan(start, length);
      ASSERT_EQ(crc32c(part), crc32c_software(part)) << start << " " << length;
    }
}

TEST(Crc32c, ContinuesAPrefix) {
  const auto bytes = random_bytes(30000, 2);
  for (const std::size_t cut : {0, 1, 13000, 29999, 30000}) {
    const auto head = std::span(bytes).first(cut);
    const auto tail = std::span(bytes).subspan(cut);
    EXPECT_EQ(crc32c(tail, crc32c(head)), crc32c(bytes));
    EXPECT_EQ(crc32c_software(tail, crc32c_software(head)), crc32c(bytes));
  }
}

TEST(Crc32c, CombinesPieces) {
  const auto bytes = random_bytes(70001, 3);
  for (const std::size_t cut : {0, 1, 8, 4096, 70000, 70001}) {
    const auto head = std::span(bytes).first(cut);
    const auto tail = std::span(bytes).subspan(cut);
    EXPECT_EQ(crc32c_combine(crc32c(head), crc32c(tail), tail.size()), crc32c(bytes)) << cut;
  }
}

TEST(Crc32c, CombinesLengthsBeyondThirtyTwoBits) {
  // Appending n zero bytes at once equals appending them in two steps, even if n exceeds 2^32.
  const std::uint32_t zeros_1g = [] {
    const std::vector<std::byte> block(1 << 20, std::byte{0});
    std::uint32_t crc = 0;
    for (int i = 0; i < 1024; ++i) crc = crc32c(block, crc);
    return crc;
  }();
  constexpr std::uint64_t kGiB = 1ULL << 30;
  std::uint32_t by_steps = 0x12345678;
  std::uint32_t zeros = 0;
  for (int i = 0; i < 8; ++i) {
    by_steps = crc32c_combine(by_steps, zeros_1g, kGiB);
    zeros = crc32c_combine(zeros, zeros_1g, kGiB);
  }
  EXPECT_EQ(crc32c_combine(0x12345678, zeros, 8 * kGiB), by_steps);
}

}  // namespace
}  // namespace ddp::ckpt

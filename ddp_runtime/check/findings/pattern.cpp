// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/check/findings/pattern.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace ddp::check {
namespace {

constexpr std::size_t kWord = sizeof(std::uint64_t);

std::array<std::byte, kWord> word_bytes(std::uint64_t seed, std::size_t index) noexcept {
  const std::uint64_t word = pattern_word(seed, index);
  std::array<std::byte, kWord> bytes{};
  for (std::size_t i = 0; i < kWord; ++i) bytes[i] = static_cast<std::byte>(word >> (8 * i));
  return bytes;
}

}  // namespace

// splitmix64 (Steele, Lea and Flood, 2014).
std::uint64_t pattern_word(std::uint64_t seed, std::uint64_t index) noexcept {
  std::uint64_t z = seed + (index + 1) * 0x9e3779b97f4a7c15U;
  z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9U;
  z = (z ^ (z >> 27U)) * 0x94d049bb133111ebU;
  return z ^ (z >> 31U);
}

void fill_pattern(std::span<std::byte> data, std::uint64_t seed) noexcept {
  for (std::size_t at = 0; at < data.size(); at += kWord) {
    const auto bytes = word_bytes(seed, at / kWord);
    std::memcpy(data.data() + at, bytes.data(), std::min(kWord, data.size() - at));
  }
}

std::int64_t count_wrong(std::span<const std::byte> data, std::uint64_t seed) noexcept {
  std::int64_t wrong = 0;
  for (std::size_t at = 0; at < data.size(); at += kWord) {
    const auto bytes = word_bytes(seed, at / kWord);
    const std::size_t length = std::min(kWord, data.size() - at);
    if (std::memcmp(data.data() + at, bytes.data(), length) == 0) continue;
    for (std::size_t i = 0; i < length; ++i) wrong += data[at + i] == bytes[i] ? 0 : 1;
  }
  return wrong;
}

}  // namespace ddp::check
